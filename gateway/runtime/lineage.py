"""Processes that end with the one that started them, kill -9 of it included."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent() -> None:
    """Have this process get SIGTERM when its parent's starting thread ends. Linux only; elsewhere it does nothing.

    Fit for `preexec_fn` as well as for a child's own start.
    """
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
