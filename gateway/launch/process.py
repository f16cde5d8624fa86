"""What the supervisor and the test plugin need of the system: free ports, and an end of what a killed run left.

Imports no Django: it runs before the settings can be read.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import time

# Below the kernel's ephemeral range (32768 and up), whose ports may be lent to outgoing connections meanwhile.
_PORTS = range(20_000, 32_000)


class LaunchError(Exception):
    """The start cannot go on; the text is a sentence for the person at the terminal."""

    exit_code = 1


class Refused(LaunchError):
    """Nothing was started, because the state directory, a port or a setting cannot be used."""

    exit_code = 2


class Guard:
    """A forked process that outlives a kill -9 of this one, and then ends the process groups it was told of.

    The signal of `die_with_parent` reaches children only, once, and a gateway may take minutes to drain. The guard
    gives every group `grace_s` and then kills it, grandchildren included. It holds what this process holds, so a lock
    is released when all is gone.
    """

    def __init__(self, grace_s: float = 5.0) -> None:
        reading, self._writing = os.pipe()
        self._pid = os.fork()
        if self._pid:
            os.close(reading)
            return
        try:
            os.close(self._writing)
            _wait_for_the_end(reading, grace_s)
        finally:
            os._exit(0)

    def watch(self, group: int) -> None:
        os.write(self._writing, b"%d\n" % group)

    def dismiss(self) -> None:
        """After an orderly stop there is nothing to end."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._writing)


def _wait_for_the_end(pipe: int, grace_s: float) -> None:
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    with os.fdopen(pipe, "rb") as lines:
        groups = {int(line) for line in lines}
    deadline = time.monotonic() + grace_s
    while any(signal_group(group, 0) for group in groups) and time.monotonic() < deadline:
        time.sleep(0.05)
    for group in groups:
        signal_group(group, signal.SIGKILL)


def signal_group(group: int, number: int) -> bool:
    """Whether the group exists, and so has got the signal."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def is_port_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a listener could bind now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(wanted: int | None = None) -> int:
    """`wanted` if it is free, else any free loopback port below the ephemeral range."""
    tries = [wanted] if wanted else []
    tries += random.sample(_PORTS, 200)
    for port in tries:
        if is_port_free(port):
            return port
    raise LaunchError("no free port was found from 20000 to 32000 on 127.0.0.1")
