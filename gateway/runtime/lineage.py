"""Processes that end with the one that started them, kill -9 of it included. Imports no Django."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent(stop_signal: signal.Signals = signal.SIGTERM) -> Callable[[], None]:
    """A preexec_fn: the child gets `stop_signal` when the thread that started it ends (Linux; elsewhere nothing)."""
    parent = os.getpid()

    def prepare_child() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, int(stop_signal))
            if os.getppid() != parent:  # it died between the fork and the line above
                os._exit(1)

    return prepare_child
