"""From the name that an app asks for to what serves it: a pool, a model of a vendor account, or a group.

`gpt-4o`                    a pool by its name or alias; such names may hold slashes and come first
`group/<id>`                a group
`openrouter/deepseek/r1`    the account before the first slash, and its model after it, verbatim
"""

from __future__ import annotations

import functools
import hashlib

from gateway.routing.snapshot import AccountSpec, GroupSpec, PoolId, PoolSpec, Snapshot, WorkerId, WorkerSpec

GROUP = "group"


def find(snapshot: Snapshot, name: str) -> PoolSpec | GroupSpec | None:
    """What a name stands for; None: nothing."""
    pool = snapshot.names.get(name) or snapshot.pools.get(name)
    if pool is not None:
        return pool
    head, slash, tail = name.partition("/")
    if name in snapshot.withheld:
        return None
    if not slash or not head or not tail:
        return None
    if head == GROUP:
        return snapshot.groups.get(tail)
    account = snapshot.accounts.get(head)
    return None if account is None else account_pool(account, tail)


@functools.lru_cache(1024)
def account_pool(account: AccountSpec, model_id: str) -> PoolSpec:
    """The pool that stands for one model of an account, the same whenever it is asked for.

    Its id is negative, so that it is no configured pool's, and the same in every process.
    """
    name = f"{account.name}/{model_id}"
    digest = hashlib.blake2b(f"{account.id}/{model_id}".encode(), digest_size=6).digest()
    worker = WorkerSpec(
        id=WorkerId(f"a{account.id}m{model_id}"),
        name=account.name,
        url=account.url,
        upstream_model=model_id,
        is_probed=False,
        credential=account.credential,
    )
    return PoolSpec(
        id=PoolId(-int.from_bytes(digest, "big") - 1),
        model=name,
        backend=account.backend,
        workers=(worker,),
        is_of_account=True,
    )
