"""Browsers in which somebody has logged in, and the pages' forms as they send them."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client


@pytest.fixture
def admin(db: None) -> Client:
    """A browser in which a superuser has logged in."""
    client = Client()
    client.force_login(User.objects.create(username="root", is_staff=True, is_superuser=True))
    return client


@pytest.fixture
def viewer(db: None) -> Any:
    """Makes browsers of staff with some permissions of the gateway's models."""

    def make(*permissions: str) -> Client:
        user = User.objects.create(username=f"user{User.objects.count()}", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        client = Client()
        client.force_login(user)
        return client

    return make


@pytest.fixture
def form() -> Any:
    """What a browser would send of a page's form, with some fields changed."""

    def read(client: Client, url: str, **changed: Any) -> dict[str, Any]:
        context = client.get(url).context
        forms = [context["adminform"].form]
        for inline in context.get("inline_admin_formsets", []):
            forms += [inline.formset.management_form, *inline.formset.forms]
        fields: dict[str, Any] = {}
        for one in forms:
            for bound in one:
                value = bound.value()
                if value is True:
                    fields[bound.html_name] = "on"
                elif not isinstance(value, (list, dict)) or isinstance(bound.field.widget.format_value(value), str):
                    shown = bound.field.prepare_value(value)
                    fields[bound.html_name] = "" if shown in (None, False) else shown
        return {**fields, **changed}

    return read
