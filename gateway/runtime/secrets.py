"""Secrets in rows: a reference (`env:NAME`, `file:PATH`), or a literal that is encrypted at rest (`sealed:<token>`).

A token holds the name of its owner beside the secret, and opens for this owner only: copied into another row, it is
refused. The first of `settings.SEAL_KEYS` seals, all of them open. No message here holds a secret.
"""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

_FILE_LIMIT_BYTES = 16 * 1024
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VISIBLE = re.compile(r"[!-~]+")  # what can stand in a header after `Bearer `
_OUR_OWN = {"IGW_SECRET_KEYS", "IGW_ADMIN_PASSWORD", "DATABASE_URL", "REDIS_URL"}  # would be sent to whoever is called


class SecretError(Exception):
    """A secret that cannot be had; the text is a sentence for the operator, without the secret."""


def account_owner(name: str) -> str:
    return f"account:{name}"


def worker_owner(model: str, name: str) -> str:
    return f"worker:{model}/{name}"


def is_reference(text: str) -> bool:
    return text.startswith(("env:", "file:"))


def is_sealed(text: str) -> bool:
    return text.startswith("sealed:")


def seal(text: str, owner: str) -> str:
    """The literal as a token bound to its owner; SecretError when it could not be sent in a header."""
    _usable(text, "the secret")
    return "sealed:" + _ring().encrypt(json.dumps([owner, text]).encode()).decode()


def store(given: str, owner: str, stored: str = "") -> str:
    """What a row keeps of a given secret: references, tokens and nothing as they are, a literal sealed.

    `stored` is what the row has now; it is kept when the literal is the one in it, so that nothing seems to change.
    """
    if not given or is_reference(given) or is_sealed(given):
        return given
    if is_sealed(stored) and _opens_to(stored, owner) == given:
        return stored
    return seal(given, owner)


def resolve(stored: str, owner: str) -> str:
    """The secret that a row refers to or holds; SecretError says why there is none."""
    if stored.startswith("env:"):
        return _from_environment(stored.removeprefix("env:"))
    if stored.startswith("file:"):
        return _from_file(stored.removeprefix("file:"))
    if is_sealed(stored):
        return _from_token(stored.removeprefix("sealed:"), owner)
    raise SecretError("expected env:NAME, file:PATH or a sealed secret")


def reseal(stored: str, owner: str, new_owner: str | None = None) -> str:
    """The same secret sealed by the newest key, for `new_owner` where its row was renamed; references stay."""
    return seal(resolve(stored, owner), new_owner or owner) if is_sealed(stored) else stored


def _ring() -> MultiFernet:
    return MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in settings.SEAL_KEYS])


def _from_environment(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise SecretError("env: is followed by the name of a variable")
    if name in _OUR_OWN:
        raise SecretError(f"the variable {name} holds a secret of the gateway itself")
    if not (text := os.environ.get(name, "").strip()):
        raise SecretError(f"the environment variable {name} is not set")
    return _usable(text, f"the environment variable {name}")


def _from_file(name: str) -> str:
    path = Path(name)
    if not path.is_absolute():
        raise SecretError("file: is followed by an absolute path")
    if path.resolve() == (settings.STATE_DIR / "secret_keys").resolve():
        raise SecretError(f"the file {name} holds a secret of the gateway itself")
    try:
        with path.open("rb") as file:
            data = file.read(_FILE_LIMIT_BYTES + 1)
    except OSError as error:
        raise SecretError(f"the file {name} cannot be read ({error.strerror})") from error
    return _usable(data.decode("latin-1").strip(), f"the file {name}")


def _from_token(token: str, owner: str) -> str:
    try:
        sealed_for, text = json.loads(_ring().decrypt(token.encode()))
    except (InvalidToken, ValueError) as error:
        raise SecretError("the sealed secret does not open with any of IGW_SECRET_KEYS") from error
    if sealed_for != owner:
        raise SecretError("the sealed secret belongs to another object; enter it anew")
    return str(text)


def _opens_to(stored: str, owner: str) -> str | None:
    try:
        return resolve(stored, owner)
    except SecretError:
        return None


def _usable(text: str, what: str) -> str:
    if len(text) > _FILE_LIMIT_BYTES or not _VISIBLE.fullmatch(text):
        raise SecretError(f"{what} is not one word of visible ASCII characters")
    return text
