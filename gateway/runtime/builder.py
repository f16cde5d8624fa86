"""From rows to the frozen Snapshot, and thereby the one check of a configuration: forms, control API and `apply` all
end here. Everything that is wrong is listed at once, under the names that files use: `pools[gpt-4o].queue.size`.

Disabled pools and keys are checked like the others, and left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from gateway.models import ApiKey, Pool, VendorAccount, Worker
from gateway.policies.registry import POLICIES
from gateway.routing.options import Problem
from gateway.routing.references import GROUP
from gateway.routing.requirement import Priority, Profile
from gateway.routing.snapshot import (
    AccountSpec,
    HistoryMode,
    KeyId,
    KeySpec,
    PolicySpec,
    PoolId,
    PoolSpec,
    Snapshot,
    TeamId,
    WorkerId,
    WorkerSpec,
    WorkerState,
)
from gateway.runtime.checks import Checks
from gateway.runtime.fields import GROUPS, account_path, key_path, pool_path, team_path, worker_path
from gateway.runtime.fingerprint import fingerprint
from gateway.runtime.groups import GroupChecks, account_pools
from gateway.runtime.records import PROFILE, read_record
from gateway.runtime.rows import Rows, newest_revision, one_view, read_rows
from gateway.runtime.secrets import account_owner, worker_owner
from gateway.vendors.registry import ADAPTERS

# Names end in URLs, headers, metric labels and spliced JSON; none of these characters needs an escape in any of them.
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+=~-]{0,199}")
_HISTORY = {mode.value: mode for mode in HistoryMode}
_STATES = {state.value: state for state in WorkerState}
_PRIORITIES = {priority.name.lower(): priority for priority in Priority}
_PATH = re.compile(r"/[!-~]*")


class ConfigError(Exception):
    """A configuration that cannot be used, with everything that is wrong with it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


@dataclass(slots=True)
class Checked:
    """The outcome of a check. `snapshot` is usable when there are no problems; warnings do not hinder it."""

    snapshot: Snapshot
    problems: list[Problem]
    warnings: list[Problem]


def build(revision: int) -> Snapshot:
    """The snapshot of the rows as they are now; ConfigError when they cannot be used."""
    return _good(check(read_rows(), revision))


def build_newest() -> Snapshot:
    """The snapshot of the newest revision, from one view of the database; ConfigError when it cannot be used."""
    with one_view():
        revision, rows = newest_revision(), read_rows()
    return _good(check(rows, revision))


def check(rows: Rows, revision: int) -> Checked:
    """Look at everything, whatever is wrong on the way."""
    return _Check(rows=rows).all(revision)


def _good(checked: Checked) -> Snapshot:
    if checked.problems:
        raise ConfigError(checked.problems)
    return checked.snapshot


@dataclass(slots=True, kw_only=True)
class _Check(Checks):
    rows: Rows
    names: dict[str, str] = field(default_factory=dict)  # every model name and alias -> the model of its pool
    accounts: dict[str, AccountSpec] = field(default_factory=dict)

    def all(self, revision: int) -> Checked:
        for account in self.rows.accounts:
            self.accounts[account.name] = self.account(account)
        pools = {pool.model: self.pool(pool) for pool in self.rows.pools}
        checks = GroupChecks(self, self.rows, self.names, self.accounts)
        whole = Snapshot(
            revision=revision,
            pools=pools,
            names={name: spec for spec in pools.values() for name in (*spec.aliases, spec.model)},
            keys=MappingProxyType(self.keys()),
            groups=checks.all(),
            accounts=MappingProxyType(self.accounts),
        )
        checks.lead_somewhere(whole)
        snapshot = self.enabled(whole)
        snapshot = replace(snapshot, pools=MappingProxyType({**snapshot.pools, **account_pools(snapshot)}))
        return Checked(replace(snapshot, fingerprint=fingerprint(snapshot)), self.problems, self.warnings)

    def enabled(self, whole: Snapshot) -> Snapshot:
        """What remains without the disabled pools and groups."""
        pools = {pool.model: whole.pools[pool.model] for pool in self.rows.pools if pool.is_enabled}
        names = {name: spec for name, spec in whole.names.items() if spec.model in pools}
        groups = {group.name: whole.groups[group.name] for group in self.rows.groups if group.is_enabled}
        withheld = frozenset(whole.names.keys() - names.keys())
        return replace(
            whole, pools=pools, names=MappingProxyType(names), groups=MappingProxyType(groups), withheld=withheld
        )

    # ---- accounts

    def account(self, account: VendorAccount) -> AccountSpec:
        path = account_path(account.name)
        self.slug(account.name, f"{path}.name")
        if account.name == GROUP:
            self.wrong(f"{path}.name", f"the name {GROUP!r} is reserved: {GROUP}/<id> is a group")
        self.known(account.backend, ADAPTERS, f"{path}.backend")
        self.url(account.base_url, f"{path}.base_url")
        return AccountSpec(
            id=account.pk,
            name=account.name,
            backend=account.backend,
            url=account.base_url.rstrip("/"),
            credential=self.secret(account.secret, account_owner(account.name), f"{path}.api_key"),
        )

    # ---- pools

    def pool(self, pool: Pool) -> PoolSpec:
        path = pool_path(pool.model)
        aliases = self.texts(pool.aliases, f"{path}.aliases")
        self.claim(pool.model, pool.model, f"{path}.model")
        for alias in aliases:
            self.claim(alias, pool.model, f"{path}.aliases")
        self.known(pool.backend, ADAPTERS, f"{path}.backend")
        self.printable(pool.upstream_model, f"{path}.upstream_model")
        self.columns(pool, path, "rate_limit", "max_in_flight", "history")
        groups = {
            name: self.options(options, getattr(pool, name), f"{path}.{name}") for name, options in GROUPS.items()
        }
        if not _PATH.fullmatch(groups["health"].path):
            self.wrong(f"{path}.health.path", f"{groups['health'].path!r} is not a path such as /health")
        return PoolSpec(
            id=PoolId(pool.pk),
            model=pool.model,
            aliases=aliases,
            backend=pool.backend,
            policy=self.policy(pool, f"{path}.policy"),
            rate_limit_per_min=pool.requests_per_minute,
            max_in_flight=pool.max_in_flight,
            queue=groups["queue"],
            breaker=groups["circuit_breaker"],
            retry=groups["retry"],
            timeouts=groups["timeouts"],
            health=groups["health"],
            asks_stream_usage=pool.stream_usage,
            history=_HISTORY.get(pool.history, HistoryMode.FULL),
            created_s=int(pool.created_at.timestamp()),
            workers=self.servers(pool, path),
        )

    def claim(self, name: str, model: str, path: str) -> None:
        if not _MODEL.fullmatch(name):
            self.wrong(path, f"{name!r} is not a model name: letters, digits and ._:/@+=~- (200 at most)")
        elif name.split("/")[0] == GROUP:
            self.wrong(path, f"{name!r}: names that begin with 'group' are reserved")
        elif (owner := self.names.setdefault(name, model)) != model or (name == model and path.endswith(".aliases")):
            self.wrong(path, f"the name {name!r} is taken by the pool {owner!r}")
        elif (account := name.partition("/")[0]) != name and account in self.accounts:
            self.warn(path, f"the pool goes before the model of this name of the account {account!r}")

    def policy(self, pool: Pool, path: str) -> PolicySpec:
        if not self.known(pool.policy, POLICIES, path):
            return PolicySpec(pool.policy, None)
        return PolicySpec(pool.policy, self.options(POLICIES[pool.policy].options, pool.policy_options, path))

    # ---- who serves a pool

    def servers(self, pool: Pool, path: str) -> tuple[WorkerSpec, ...]:
        workers = tuple(self.worker(pool, worker) for worker in self.rows.workers[pool.pk])
        account = pool.account
        if account is None:
            if not workers and pool.is_enabled:
                self.wrong(f"{path}.workers", "an enabled pool needs workers or an account")
            return workers
        if workers:
            self.wrong(f"{path}.account", "a pool has workers or an account, not both")
        if account.backend != pool.backend:
            self.wrong(f"{path}.account", f"{account.name} is of {account.backend!r}, the pool of {pool.backend!r}")
        served = WorkerSpec(
            id=WorkerId(f"a{account.pk}p{pool.pk}"),
            name=account.name,
            url=self.accounts[account.name].url,
            upstream_model=_sent_as(pool),
            is_probed=False,
            credential=self.accounts[account.name].credential,
        )
        return (*workers, served)

    def worker(self, pool: Pool, worker: Worker) -> WorkerSpec:
        path = worker_path(pool.model, worker.name)
        self.slug(worker.name, f"{path}.name")
        self.url(worker.url, f"{path}.url")
        self.printable(worker.upstream_model, f"{path}.upstream_model")
        self.columns(worker, path, "weight", "max_in_flight", "state")
        return WorkerSpec(
            id=WorkerId(f"w{worker.pk}"),
            name=worker.name,
            url=worker.url.rstrip("/"),
            weight=worker.weight,
            max_in_flight=worker.max_in_flight,
            upstream_model=worker.upstream_model or _sent_as(pool),
            profiles=self.profiles(worker.profiles, f"{path}.profiles"),
            labels=MappingProxyType(self.labels(worker.labels, f"{path}.labels")),
            state=_STATES.get(worker.state, WorkerState.DISABLED),
            credential=self.secret(worker.secret, worker_owner(pool.model, worker.name), f"{path}.api_key"),
        )

    def profiles(self, raw: Any, path: str) -> tuple[Profile, ...]:
        if not isinstance(raw, list):
            self.wrong(path, f'expected a list such as [{{"services": ["chat"]}}], got {raw!r}')
            return ()
        return tuple(self.profile(row, f"{path}[{number}]") for number, row in enumerate(raw))

    def profile(self, raw: Any, path: str) -> Profile:
        values, problems = read_record(PROFILE, raw, path)
        self.problems += problems
        return Profile(**values)

    # ---- keys

    def keys(self) -> dict[str, KeySpec]:
        specs: dict[str, KeySpec] = {}
        for team in self.rows.teams:
            self.slug(team.name, f"{team_path(team.name)}.name")
        holders: dict[str, ApiKey] = {}
        for key in self.rows.keys:
            path = key_path(key.team.name, key.name)
            if (holder := holders.setdefault(key.prefix, key)) is not key:
                self.wrong(f"{path}.key", f"the same key as {holder.team.name}/{holder.name}")
            spec = self.key(key, path)
            if not key.is_disabled:
                specs[key.prefix] = spec
        return specs

    def key(self, key: ApiKey, path: str) -> KeySpec:
        self.slug(key.name, f"{path}.name")
        self.columns(key, path, "requests_per_minute", "priority")
        models = self.texts(key.models, f"{path}.models")
        if unknown := [name for name in models if name != "*" and not self.is_known(name)]:
            self.warn(f"{path}.models", f"there is no pool, group or account for {', '.join(unknown)}")
        return KeySpec(
            id=KeyId(key.pk),
            name=key.name,
            team_id=TeamId(key.team.pk),
            team=key.team.name,
            prefix=key.prefix,
            digest=bytes.fromhex(key.digest),
            models=None if "*" in models else frozenset(models),
            requests_per_min=key.requests_per_minute,
            expires_s=key.expires_at.timestamp() if key.expires_at else None,
            is_operator=key.is_operator,
            priority=_PRIORITIES.get(key.priority, Priority.INTERACTIVE),
        )

    def is_known(self, name: str) -> bool:
        """Whether a key's model could be asked for: a pool, a group, a model of an account or all of them."""
        head, _, tail = name.partition("/")
        if name in self.names or not tail:
            return name in self.names
        return tail in {group.name for group in self.rows.groups} if head == GROUP else head in self.accounts


def _sent_as(pool: Pool) -> str | None:
    """The name that goes upstream. Without aliases the client's own is the served one and need not be touched."""
    return pool.upstream_model or (pool.model if pool.aliases else None)
