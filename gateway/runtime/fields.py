"""How configuration files call the columns of the rows, and the groups of options. What an absent field means is
the column's own default.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Field, Model

from gateway.models import ApiKey, Group, Pool, Team, VendorAccount, Worker
from gateway.routing.options import BreakerOptions, HealthOptions, QueueOptions, RetryOptions, TimeoutOptions

INTERACTIVE_ORIGINS = ("admin", "api", "demo")  # every other origin is the name of a file

# In the order in which they are written. The first field of a kind is the name of the object.
COLUMNS: dict[type[Model], dict[str, str]] = {
    Team: {"name": "name"},
    ApiKey: {
        "name": "name",
        "models": "models",
        "requests_per_minute": "requests_per_minute",
        "priority": "priority",
        "operator": "is_operator",
        "expires": "expires_at",
        "disabled": "is_disabled",
    },
    VendorAccount: {"name": "name", "backend": "backend", "base_url": "base_url", "api_key": "secret"},
    Worker: {
        "name": "name",
        "url": "url",
        "weight": "weight",
        "max_in_flight": "max_in_flight",
        "upstream_model": "upstream_model",
        "profiles": "profiles",
        "labels": "labels",
        "api_key": "secret",
        "state": "state",
    },
    Pool: {
        "model": "model",
        "aliases": "aliases",
        "backend": "backend",
        "account": "account",
        "upstream_model": "upstream_model",
        "policy": "policy",
        "rate_limit": "requests_per_minute",
        "max_in_flight": "max_in_flight",
        "queue": "queue",
        "circuit_breaker": "circuit_breaker",
        "retry": "retry",
        "timeouts": "timeouts",
        "health": "health",
        "stream_usage": "stream_usage",
        "history": "history",
        "enabled": "is_enabled",
    },
    Group: {
        "id": "name",
        "strategy": "strategy",
        "members": "members",
        "rules": "rules",
        "picked": "picked",
        "error_classes": "error_classes",
        "max_attempts": "max_attempts",
        "keeps_conversations": "keeps_conversations",
        "intent_model": "intent_model",
        "intents": "intents",
        "enabled": "is_enabled",
    },
}

GROUPS: dict[str, type] = {
    "queue": QueueOptions,
    "circuit_breaker": BreakerOptions,
    "retry": RetryOptions,
    "timeouts": TimeoutOptions,
    "health": HealthOptions,
}


def column_of(model: type[Model], name: str) -> Field[Any, Any]:
    """The declaration of a column: type, bounds, choices and default."""
    column = model._meta.get_field(name)
    assert isinstance(column, Field)
    return column


def pool_path(model: str) -> str:
    return f"pools[{model}]"


def worker_path(model: str, name: str) -> str:
    return f"pools[{model}].workers[{name}]"


def group_path(name: str) -> str:
    return f"groups[{name}]"


def account_path(name: str) -> str:
    return f"accounts[{name}]"


def key_path(team: str, name: str) -> str:
    return f"teams[{team}].keys[{name}]"


def team_path(name: str) -> str:
    return f"teams[{name}]"
