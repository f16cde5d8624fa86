"""runtime/demo: made once, at the very first start."""

from __future__ import annotations

import pytest
from django.contrib.auth import authenticate, get_user_model
from pytest_django.fixtures import Settings

from gateway.models import ApiKey, Pool, Team
from gateway.protocol.apikeys import prefix_of
from gateway.runtime.builder import build
from gateway.runtime.demo import make_demo

pytestmark = pytest.mark.django_db
URLS = ["http://127.0.0.1:9101", "http://127.0.0.1:9102"]


def test_demo_is_a_pool_a_login_and_a_key() -> None:
    demo = make_demo(URLS)
    assert demo is not None
    snapshot = build(1)
    assert snapshot.names["demo"] is snapshot.pools["demo-chat"]
    assert [worker.url for worker in snapshot.pools["demo-chat"].workers] == URLS
    assert snapshot.keys[prefix_of(demo.api_key)].models is None
    admin = authenticate(username="admin", password=demo.admin_password)
    assert admin is not None
    assert admin.is_superuser


def test_demo_is_made_once() -> None:
    make_demo(URLS)
    assert make_demo(URLS) is None
    assert (Pool.objects.count(), ApiKey.objects.count(), get_user_model().objects.count()) == (1, 1, 1)


def test_demo_is_not_made_beside_somebodys_pool() -> None:
    Pool.objects.create(model="ours", is_enabled=False)
    assert make_demo(URLS) is None
    assert (Team.objects.count(), get_user_model().objects.count()) == (0, 0)


def test_demo_takes_the_password_that_is_set(settings: Settings) -> None:
    settings.ADMIN_PASSWORD = "correct horse"
    demo = make_demo(URLS)
    assert demo is not None
    assert demo.admin_password == "correct horse"
