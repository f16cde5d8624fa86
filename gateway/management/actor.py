"""Who changes the configuration from a shell, for the audit trail."""

from __future__ import annotations

import getpass


def shell_actor() -> str:
    """`cli:` and the account's name; an account without a name (some containers) is `cli:unknown`."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return "cli:unknown"
