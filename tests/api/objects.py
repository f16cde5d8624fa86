"""A client of the control API, and objects made by edits."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpResponse
from django.test import Client

from gateway.models import ApiKey, Team
from gateway.runtime.edit import edit
from gateway.runtime.importer import apply_file
from gateway.runtime.keys import issue_key

BASE = "/api/v1"
POOL = {"model": "meta/llama", "workers": [{"name": "w1", "url": "http://127.0.0.1:9101"}]}


class Api:
    """Calls the API with a key."""

    def __init__(self, key: str) -> None:
        self._client = Client()
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def __call__(self, method: str, path: str, body: Any = None) -> HttpResponse:
        data = body if isinstance(body, (bytes, str)) else json.dumps(body)
        answer: Any = self._client.generic(
            method, BASE + path, data if body is not None else "", "application/json", headers=self._headers
        )
        return answer  # type: ignore[no-any-return]

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of an answer that has to be a good one."""
        answer = self(method, path, body)
        assert 200 <= answer.status_code < 300, answer.content
        return json.loads(answer.content) if answer.content else None

    def error(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        """Status and error object of an answer."""
        answer = self(method, path, body)
        document = json.loads(answer.content)
        assert list(document) == ["error"], document
        assert set(document["error"]) >= {"message", "type", "param", "code"}
        return answer.status_code, document["error"]


def make_key(name: str = "ops", *, is_operator: bool = True, **columns: Any) -> str:
    """The text of a new key of the team `demo`."""
    with edit("tests", "admin"):
        team, _ = Team.objects.get_or_create(name="demo")
        text = issue_key(team, name, origin="admin", is_operator=is_operator)
        ApiKey.objects.filter(name=name).update(**columns)
    return text


def apply(text: str) -> None:
    """Apply a file called prod.yaml."""
    apply_file(text, "prod.yaml", "tests")
