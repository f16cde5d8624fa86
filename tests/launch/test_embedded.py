"""The embedded engines: found, started with a password, kept over a kill -9, ended with their parent."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import redis

from gateway.launch.embedded import Postgres, Store, Valkey
from gateway.launch.process import LaunchError, free_port
from gateway.runtime.lineage import die_with_parent


@pytest.fixture
def state() -> Iterator[Path]:
    """A directory that the account of Postgres can pass through; pytest's own is closed to it."""
    directory = Path(tempfile.mkdtemp(prefix="igw-launch-"))
    directory.chmod(0o711)
    yield directory
    shutil.rmtree(directory)


@contextmanager
def running(store: Store) -> Iterator[subprocess.Popen[bytes]]:
    store.prepare()
    child = subprocess.Popen(
        store.command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=die_with_parent(store.stop_signal),
        **store.options,
    )
    try:
        store.wait(lambda: child.poll() is None)
        yield child
    finally:
        child.send_signal(store.stop_signal)
        child.wait(10)


def test_postgres_with_the_generated_password_answers(state: Path) -> None:
    store = Postgres(state, is_durable=False)
    with running(store), psycopg.connect(store.url) as connection:
        assert connection.execute("select upper('grün äö'), current_database()").fetchone() == ("GRÜN ÄÖ", "igw")


def test_postgres_without_the_password_refuses(state: Path) -> None:
    store = Postgres(state, is_durable=False)
    with running(store):
        where = store.url.rpartition("@")[2]
        with pytest.raises(psycopg.OperationalError, match="no password supplied"):
            psycopg.connect(f"postgresql://igw@{where}")


def test_postgres_after_kill_9_starts_again_with_its_data(state: Path) -> None:
    store = Postgres(state)
    with running(store) as child:
        with psycopg.connect(store.url) as connection:
            connection.execute("create table kept as select 7 as n")
        child.kill()
        child.wait(10)
    again = Postgres(state)
    with running(again), psycopg.connect(again.url) as connection:
        assert connection.execute("select n from kept").fetchone() == (7,)


def test_postgres_with_data_of_another_major_says_so(state: Path) -> None:
    store = Postgres(state, is_durable=False)
    store.prepare()
    (state / "pg" / "data" / "PG_VERSION").write_text("9\n")
    with pytest.raises(LaunchError, match=r"are of Postgres 9, this is \d+: delete them or set DATABASE_URL"):
        store.prepare()


def test_postgres_secrets_are_closed_to_others(state: Path) -> None:
    Postgres(state, is_durable=False).prepare()
    modes = {name: (state / "pg" / name).stat().st_mode & 0o777 for name in ("", "data", "password")}
    assert modes == {"": 0o700, "data": 0o700, "password": 0o600}


def test_postgres_below_a_closed_directory_runs_and_widens_nothing(state: Path) -> None:
    closed = state / "closed"
    closed.mkdir(mode=0o700)
    store = Postgres(closed, is_durable=False)
    with running(store), psycopg.connect(store.url) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    data = Path(store.command[2])
    assert closed.stat().st_mode & 0o777 == 0o700
    if data.parent != closed / "pg":  # as root the data are kept elsewhere
        shutil.rmtree(data.parent)


def test_valkey_asks_for_its_password(state: Path) -> None:
    store = Valkey(state, is_durable=False)
    with running(store):
        with redis.Redis.from_url(store.url) as client:
            assert client.ping() is True
        where = store.url.rpartition("@")[2]
        with redis.Redis.from_url(f"redis://{where}") as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()
    assert (state / "valkey" / "valkey.conf").stat().st_mode & 0o777 == 0o600


def test_valkey_after_kill_9_starts_again_with_its_data(state: Path) -> None:
    store = Valkey(state)
    with running(store) as child:
        with redis.Redis.from_url(store.url) as client:
            client.set("kept", 7)
            client.execute_command("WAITAOF", 1, 0, 5000)
        child.kill()
        child.wait(10)
    again = Valkey(state)
    with running(again), redis.Redis.from_url(again.url) as client:
        assert client.get("kept") == b"7"


@pytest.mark.parametrize("kind", [Postgres, Valkey])
def test_store_that_ends_while_starting_is_named(state: Path, kind: type[Postgres | Valkey]) -> None:
    store = kind(state, is_durable=False)
    store.prepare()
    with pytest.raises(LaunchError, match="ended while it was starting"):
        store.wait(lambda: False)


def test_free_port_when_the_wanted_one_is_taken_is_another_below_the_ephemeral_range() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = free_port(taken.getsockname()[1])
    assert 20_000 <= port < 32_000


def test_free_port_when_the_wanted_one_is_free_is_that_one() -> None:
    wanted = free_port()
    assert free_port(wanted) == wanted


def test_child_whose_parent_is_killed_ends() -> None:
    code = (
        "import subprocess, sys, time, os, signal\n"
        "from gateway.runtime.lineage import die_with_parent\n"
        "child = subprocess.Popen(['sleep', '60'], preexec_fn=die_with_parent(), start_new_session=True)\n"
        "print('started', flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, timeout=10, check=False)
    # `sleep` holds the pipe: that run() came back before its 60 s shows that it ended.
    assert run.stdout == b"started\n"
