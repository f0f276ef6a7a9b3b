"""Types of Python in a signature, as providers are sent them: what of each is left open (SPEC R12.6)."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, TypeAdapter

from acts_celery.protocol.schemas import compiled
from acts_celery.worker.agent.wire_schema import wire_schema

from .as_sent import as_sent
from .provider_rules import anthropic_faults, openai_faults
from .six_tools import Customer, Filters, Item, Priority
from .test_wire_schema import ANTHROPIC, OPENAI, closed

FURTHER, ANY, RECURSIVE = "it may have further properties", "it may be anything", "it contains itself"


class Tree(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    below: list[Tree] = []


@pytest.mark.parametrize(
    ("type_", "value", "openai", "anthropic"),
    [
        (str, "a", set(), set()),
        (int | None, None, set(), set()),
        (date, "2026-03-01", set(), set()),
        (Priority, "low", set(), set()),
        (Literal["a", 1], 1, set(), set()),
        (list[int | str], [1, "a"], set(), set()),
        (tuple[int, str], [1, "a"], set(), set()),
        (Customer, {"name": "Ann", "more": 1}, {FURTHER}, {FURTHER}),
        (Item, {"sku": "T-1"}, {FURTHER}, {FURTHER}),
        (Filters, {"text": "a"}, {FURTHER}, {FURTHER}),
        (dict, {"a": [1]}, {"it may have any property"}, {"it may have any property"}),
        (dict[str, int], {"a": 1}, {"it may have any property"}, {"it may have any property"}),
        (list, [{"a": 1}], {ANY}, {ANY}),
        (Any, {"a": 1}, {ANY}, {ANY}),
        (Tree, {"name": "a", "below": [{"name": "b", "below": []}]}, set(), {RECURSIVE}),
    ],
)
def test_of_each_type_nothing_is_left_open_but_what_cannot_be_said(
    type_: Any, value: Any, openai: set[str], anthropic: set[str]
) -> None:
    schema = TypeAdapter(type_).json_schema()
    definitions = schema.pop("$defs", {})
    truth = {**closed(value=schema), "$defs": definitions}
    for rules, faults, open_ in ((OPENAI, openai_faults, openai), (ANTHROPIC, anthropic_faults, anthropic)):
        sent = wire_schema(truth, rules)
        assert {opening.reason for opening in sent.openings} == open_
        assert not list(faults(sent.schema))
        assert not compiled(sent.schema).problems(as_sent({"value": value}, sent.schema))
