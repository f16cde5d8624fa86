"""Schemas that are made from declared options."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pydantic import ValidationError

from gateway.api.schemas import options_schema
from gateway.routing.options import option


@dataclass(frozen=True, slots=True)
class Options:
    is_on: bool = option(True, "Whether")
    path: str | None = option(None, "Where")
    mode: str = option("fast", "Which way", choices=("fast", "safe"))


SCHEMA = options_schema("Options", Options)


def test_options_of_every_type_are_taken_and_may_be_left_out() -> None:
    given = {"is_on": False, "path": "/x", "mode": "safe"}

    assert SCHEMA.model_validate(given).model_dump(exclude_unset=True) == given
    assert SCHEMA.model_validate({}).model_dump(exclude_unset=True) == {}
    assert SCHEMA.model_json_schema()["properties"]["mode"]["anyOf"][0] == {"enum": ["fast", "safe"], "type": "string"}


@pytest.mark.parametrize("wrong", [{"is_on": "yes"}, {"path": 4}, {"mode": "slow"}, {"other": 1}])
def test_options_of_wrong_types_and_choices_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        SCHEMA.model_validate(wrong)
