"""The first start: a demo pool, a login and a key, so that there is something to call and to look at."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth import get_user_model

from gateway.models import Pool, Team, Worker
from gateway.runtime.edit import edit
from gateway.runtime.keys import issue_key

MODEL = "demo-chat"
_ORIGIN = "demo"


@dataclass(frozen=True, slots=True)
class Demo:
    """What to print, once."""

    admin_password: str
    api_key: str


def make_demo(worker_urls: Sequence[str]) -> Demo | None:
    """Make everything in one edit; None, and nothing done, when there is a pool or a user already."""
    users = get_user_model().objects
    with edit("setup", _ORIGIN):
        if Pool.objects.exists() or users.exists():
            return None
        password = settings.ADMIN_PASSWORD or secrets.token_urlsafe(12)
        users.create_superuser("admin", password=password)
        pool = Pool.objects.create(model=MODEL, aliases=["demo"], origin=_ORIGIN)
        for number, url in enumerate(worker_urls, 1):
            Worker.objects.create(pool=pool, name=f"demo-{number}", url=url)
        team, _ = Team.objects.get_or_create(name="demo", defaults={"origin": _ORIGIN})
        return Demo(password, issue_key(team, "app", origin=_ORIGIN))
