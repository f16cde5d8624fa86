"""From rows to the frozen Snapshot, and thereby the one check of a configuration: forms, control API and `apply` all
end here. Everything that is wrong is listed at once, under the names that files use: `pools[gpt-4o].queue.size`.

Disabled pools and keys are checked like the others, and left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError

from gateway.models import ApiKey, Pool, VendorAccount, Worker
from gateway.policies.registry import POLICIES
from gateway.routing.options import Problem, read_options
from gateway.routing.requirement import Profile
from gateway.routing.snapshot import (
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
from gateway.runtime.fields import COLUMNS, GROUPS, account_path, column_of, key_path, pool_path, team_path, worker_path
from gateway.runtime.fingerprint import fingerprint
from gateway.runtime.rows import Rows, newest_revision, one_view, read_rows
from gateway.runtime.secrets import SecretError, account_owner, resolve, worker_owner
from gateway.vendors.registry import ADAPTERS

# Names end in URLs, headers, metric labels and spliced JSON; none of these characters needs an escape in any of them.
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+=~-]{0,199}")
_SLUG = re.compile(r"[A-Za-z0-9_-]{1,100}")
_HISTORY = {mode.value: mode for mode in HistoryMode}
_STATES = {state.value: state for state in WorkerState}
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
    return _Check(rows).all(revision)


def _good(checked: Checked) -> Snapshot:
    if checked.problems:
        raise ConfigError(checked.problems)
    return checked.snapshot


@dataclass(slots=True)
class _Check:
    rows: Rows
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)  # every model name and alias -> the model of its pool
    credentials: dict[int, str | None] = field(default_factory=dict)  # by account

    def all(self, revision: int) -> Checked:
        for account in self.rows.accounts:
            self.account(account)
        specs = [(pool.is_enabled, self.pool(pool)) for pool in self.rows.pools]
        pools = {spec.model: spec for is_enabled, spec in specs if is_enabled}
        names = {name: spec for spec in pools.values() for name in (*spec.aliases, spec.model)}
        keys = self.keys()
        snapshot = Snapshot(revision, MappingProxyType(pools), MappingProxyType(names), MappingProxyType(keys))
        return Checked(replace(snapshot, fingerprint=fingerprint(snapshot)), self.problems, self.warnings)

    def wrong(self, path: str, message: str) -> None:
        self.problems.append(Problem(path, message))

    # ---- accounts

    def account(self, account: VendorAccount) -> None:
        path = account_path(account.name)
        self.slug(account.name, f"{path}.name")
        self.known(account.backend, ADAPTERS, f"{path}.backend")
        self.url(account.base_url, f"{path}.base_url")
        self.credentials[account.pk] = self.secret(account.secret, account_owner(account.name), f"{path}.api_key")

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
        groups = {name: self.group(options, getattr(pool, name), f"{path}.{name}") for name, options in GROUPS.items()}
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
        elif name.split("/")[0] == "group":
            self.wrong(path, f"{name!r}: names that begin with 'group' are reserved")
        elif (owner := self.names.setdefault(name, model)) != model or (name == model and path.endswith(".aliases")):
            self.wrong(path, f"the name {name!r} is taken by the pool {owner!r}")

    def policy(self, pool: Pool, path: str) -> PolicySpec:
        if not self.known(pool.policy, POLICIES, path):
            return PolicySpec(pool.policy, None)
        return PolicySpec(pool.policy, self.group(POLICIES[pool.policy].options, pool.policy_options, path))

    def group(self, options: type, raw: Any, path: str) -> Any:
        if not isinstance(raw, dict):
            self.wrong(path, f"expected options by name, got {raw!r}")
            raw = {}
        values: Any
        values, problems = read_options(options, raw, path)
        self.problems += problems
        return values

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
            url=account.base_url.rstrip("/"),
            upstream_model=_sent_as(pool),
            is_probed=False,
            credential=self.credentials[account.pk],
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
            labels=self.labels(worker.labels, f"{path}.labels"),
            state=_STATES.get(worker.state, WorkerState.DISABLED),
            credential=self.secret(worker.secret, worker_owner(pool.model, worker.name), f"{path}.api_key"),
        )

    def profiles(self, raw: Any, path: str) -> tuple[Profile, ...]:
        if not isinstance(raw, list):
            self.wrong(path, f'expected a list such as [{{"services": ["chat"]}}], got {raw!r}')
            return ()
        return tuple(self.profile(row, f"{path}[{number}]") for number, row in enumerate(raw))

    def profile(self, raw: Any, path: str) -> Profile:
        if not isinstance(raw, dict):
            self.wrong(path, f"expected services, models or streaming, got {raw!r}")
            return Profile()
        for name in raw.keys() - {"services", "models", "streaming"}:
            self.wrong(f"{path}.{name}", "no such field; known: services, models, streaming")
        streaming = raw.get("streaming")
        if streaming not in (None, True, False):
            self.wrong(f"{path}.streaming", f"expected true or false, got {streaming!r}")
        services, models = (self.texts(raw.get(name, []), f"{path}.{name}") for name in ("services", "models"))
        return Profile(frozenset(services), frozenset(models), streaming)

    def labels(self, raw: Any, path: str) -> Mapping[str, str]:
        if not isinstance(raw, dict) or not all(isinstance(value, str) for value in raw.values()):
            self.wrong(path, f"expected texts by name, got {raw!r}")
            raw = {}
        return MappingProxyType(dict(sorted(raw.items())))

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
        self.columns(key, path, "requests_per_minute")
        models = self.texts(key.models, f"{path}.models")
        if unknown := [name for name in models if name != "*" and name not in self.names]:
            self.warnings.append(Problem(f"{path}.models", f"no pool has the name {', '.join(unknown)}"))
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
        )

    # ---- values

    def slug(self, name: str, path: str) -> None:
        if not _SLUG.fullmatch(name):
            self.wrong(path, f"{name!r} is not a name: letters, digits, - and _ (100 at most)")

    def printable(self, text: str, path: str) -> None:
        if not text.isprintable():
            self.wrong(path, f"{text!r} has characters that cannot be printed")

    def known(self, name: str, registry: Mapping[str, Any], path: str) -> bool:
        if name not in registry:
            self.wrong(path, f"{name!r} is unknown; known: {', '.join(sorted(registry))}")
        return name in registry

    def texts(self, raw: Any, path: str) -> tuple[str, ...]:
        if not isinstance(raw, list) or not all(isinstance(text, str) and text for text in raw):
            self.wrong(path, f"expected a list of names, got {raw!r}")
            return ()
        return tuple(dict.fromkeys(raw))

    def columns(self, row: Pool | Worker | ApiKey, path: str, *names: str) -> None:
        """Bounds and choices that the models declare, for rows that no form has seen."""
        for name in names:
            column = column_of(type(row), COLUMNS[type(row)][name])
            try:
                column.clean(getattr(row, column.attname), row)
            except ValidationError as error:
                self.wrong(f"{path}.{name}", " ".join(error.messages))

    def url(self, text: str, path: str) -> None:
        if message := _wrong_url(text):
            self.wrong(path, message)

    def secret(self, stored: str, owner: str, path: str) -> str | None:
        try:
            return resolve(stored, owner) if stored else None
        except SecretError as error:
            self.wrong(path, str(error))
            return None


def _sent_as(pool: Pool) -> str | None:
    """The name that goes upstream. Without aliases the client's own is the served one and need not be touched."""
    return pool.upstream_model or (pool.model if pool.aliases else None)


def _wrong_url(text: str) -> str:
    """What is wrong with a base address. It is not shown, as it may hold a password."""
    try:
        parts = urlsplit(text)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return "not an address such as http://10.0.0.5:30000"
    if not re.fullmatch(r"[!-~]+", text) or parts.scheme not in {"http", "https"} or not has_host:
        return "expected an address that begins with http:// or https:// and a host"
    if "@" in parts.netloc:
        return "an address holds no user name or password; use api_key"
    if "?" in text or "#" in text:
        return "an address holds no query and no fragment"
    return ""
