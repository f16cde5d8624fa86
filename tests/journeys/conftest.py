"""One running gateway for all journeys, with two processes and Celery, and workers that do as they are told."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.fakes.worker import FakeWorker
from tests.journeys.stack import Stack, of_the_session, stack


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    runner = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    state = tmp_path_factory.mktemp("journeys")
    with stack(state, f"igw_journeys_{runner}", of_the_session(9 + runner)) as made:
        made.serve()
        made.celery()
        yield made


@pytest.fixture(scope="session")
def key(gateway: Stack) -> str:
    return gateway.new_key("app")


@pytest.fixture
def worker() -> Iterator[FakeWorker]:
    with FakeWorker.in_thread() as made:
        yield made
