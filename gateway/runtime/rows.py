"""The configuration as it lies in Postgres: all rows, read once, in a number of queries that never grows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import connection, transaction

from gateway.models import ApiKey, ConfigRevision, Group, Pool, Team, VendorAccount, Worker


@dataclass(frozen=True, slots=True)
class Rows:
    """Everything that is configured, by name in the order of code points. `workers` go by the pool's primary key."""

    teams: list[Team]
    keys: list[ApiKey]
    accounts: list[VendorAccount]
    pools: list[Pool]
    groups: list[Group]
    workers: dict[int, list[Worker]]


def read_rows() -> Rows:
    """All rows, in 6 queries; foreign keys point to objects of the same reading."""
    teams = {team.pk: team for team in Team.objects.order_by()}
    accounts = {account.pk: account for account in VendorAccount.objects.order_by()}
    pools = {pool.pk: pool for pool in Pool.objects.order_by()}
    keys = list(ApiKey.objects.order_by())
    workers: dict[int, list[Worker]] = {pk: [] for pk in pools}
    for key in keys:
        key.team = teams[key.team_id]
    for pool in pools.values():
        pool.account = accounts[pool.account_id] if pool.account_id else None
    for worker in Worker.objects.order_by():
        worker.pool = pools[worker.pool_id]
        workers[worker.pool_id].append(worker)
    for siblings in workers.values():
        siblings.sort(key=lambda worker: worker.name)
    return Rows(
        teams=sorted(teams.values(), key=lambda team: team.name),
        keys=sorted(keys, key=lambda key: (key.team.name, key.name)),
        accounts=sorted(accounts.values(), key=lambda account: account.name),
        pools=sorted(pools.values(), key=lambda pool: pool.model),
        groups=sorted(Group.objects.order_by(), key=lambda group: group.name),
        workers=workers,
    )


def newest_revision() -> int:
    """The number of the last edit; 0 before the first."""
    return ConfigRevision.objects.order_by("-pk").values_list("pk", flat=True).first() or 0


@contextmanager
def one_view() -> Iterator[None]:
    """All queries inside see one state of the database, whatever commits meanwhile.

    Inside somebody's transaction this does nothing: edits hold a lock there.
    """
    if connection.in_atomic_block:
        yield
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield
