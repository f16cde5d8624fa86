"""The control API as an operator sees it."""

from __future__ import annotations

import pytest

from tests.api.objects import Api, make_key


@pytest.fixture
def api(db: None) -> Api:
    """Calls with an operator's key."""
    return Api(make_key())
