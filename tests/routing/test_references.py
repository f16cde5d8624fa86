from __future__ import annotations

import pytest

from gateway.routing.references import account_pool, find
from gateway.routing.snapshot import AccountSpec, GroupSpec, PoolId, PoolSpec, Snapshot

POOL = PoolSpec(PoolId(1), "org/model", ("acme/own",))
GROUP = GroupSpec("a/b")
ACCOUNT = AccountSpec(7, "acme", "openai", "https://acme.example/v1", "sk-x")
VIEW = Snapshot(
    1,
    {"org/model": POOL},
    {"org/model": POOL, "acme/own": POOL},
    {},
    {"a/b": GROUP},
    {"acme": ACCOUNT},
    frozenset({"acme/withheld"}),
)


def test_pools_by_name_or_alias_come_first():
    assert [find(VIEW, name) for name in ("org/model", "acme/own")] == [POOL, POOL]


def test_group_is_everything_behind_the_reserved_word():
    assert find(VIEW, "group/a/b") is GROUP


def test_account_model_is_split_at_the_first_slash_and_kept_verbatim():
    found = find(VIEW, "acme/Deep/Seek-R1")
    assert isinstance(found, PoolSpec)
    (worker,) = found.workers
    assert (found.model, found.is_of_account, found.id < 0) == ("acme/Deep/Seek-R1", True, True)
    assert (worker.url, worker.upstream_model, worker.credential) == (ACCOUNT.url, "Deep/Seek-R1", "sk-x")


@pytest.mark.parametrize("name", ["", "model", "group/", "group/x", "/x", "acme/", "other/x", "acme/withheld"])
def test_name_that_leads_nowhere(name: str):
    assert find(VIEW, name) is None


def test_account_pool_is_the_same_however_often_it_is_asked_for():
    assert account_pool(ACCOUNT, "m") is account_pool(ACCOUNT, "m")
    assert account_pool(ACCOUNT, "m").id != account_pool(ACCOUNT, "n").id
