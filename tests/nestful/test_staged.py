"""NESTFUL as staged plans: each sequence whose references provably fit can be written in two answers (SPEC R12.7)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from acts_celery.protocol import Limits
from acts_celery.protocol.language.paths import strings
from acts_celery.protocol.language.references import Reference, is_expression, parse
from acts_celery.protocol.requests import Request
from acts_celery.protocol.requests.staged import Choice, compose_choice, compose_slots, read_choice, read_slots
from acts_celery.protocol.schemas import compiled
from acts_celery.protocol.schemas.algebra import Algebra
from acts_celery.protocol.submission.checking import Environment
from acts_celery.protocol.submission.submission import read_submission

from .convert import convert_tool, convert_value
from .source import RESULT_TOOL, Flow
from .verdicts import Verdicts


def below(schema: Any, path: Sequence[str | int]) -> Any:
    """What a schema of these declarations says of a place; None where it does not name it."""
    for step in path:
        schema = schema.get("items") if isinstance(step, int) else schema.get("properties", {}).get(step)
        if schema is None:
            return None
    return schema


class Staged:
    """A sequence as the two answers of one tick."""

    def __init__(self, flow: Flow, verdicts: Verdicts) -> None:
        names = [call.name for call in flow.calls]
        self.slots = {call.label: f"s{position}" for position, call in enumerate(flow.calls)}
        self.declared = {name: convert_tool(verdicts.dataset.tools[name]) for name in names if name != RESULT_TOOL}
        for call in flow.calls:
            if call.name == RESULT_TOOL:  # its parameters are whatever it collects
                self.declared[RESULT_TOOL] = {"properties": {name: {} for name in call.arguments}}
        self.tools = {"tools": names}
        self.calls = {
            f"s{at}": {"_tool": call.name, **{key: self._moved(convert_value(v)) for key, v in call.arguments.items()}}
            for at, call in enumerate(flow.calls)
        }

    def _moved(self, value: Any) -> Any:
        """A value whose references lead to the slots."""
        if isinstance(value, dict):
            return {key: self._moved(item) for key, item in value.items()}
        if isinstance(value, list):
            return list(map(self._moved, value))
        if not (isinstance(value, str) and is_expression(value)):
            return value
        (place,) = parse(value).references
        return str(Reference("state", (self.slots[str(place.path[0])], *place.path[1:])))

    @property
    def is_declared(self) -> bool:
        """Whether it gives no parameter that its tool does not name."""
        calls = self.calls.values()
        return all(call.keys() - {"_tool"} <= self.declared[call["_tool"]]["properties"].keys() for call in calls)

    def fits(self) -> bool:
        """Whether all that it refers to is declared, and provably fits, by the algebra alone."""
        algebra = Algebra()
        for call in self.calls.values():
            named = self.declared[call["_tool"]]["properties"]
            for key, value in call.items():
                for path, text in strings(value, (key,)) if key in named else ():
                    if is_expression(text):
                        (place,) = parse(text).references
                        writer = self.calls[str(place.path[0])]["_tool"]
                        result = self.declared[writer]["properties"].get("_output", {})
                        written = algebra.along(algebra.made_of(result), place.path[1:])
                        wanted = below(named[key], path[1:])
                        if below(result, place.path[1:]) is None or not algebra.covered(written, wanted or {}):
                            return False
        return True

    def request(self) -> Request:
        """The request that it answers."""
        config = {"plan": "staged", "slots": len(self.calls)}
        value = {"context": [], "schema": {"type": "string"}, "tools": self.declared, "config": config}
        submission, problems = read_submission(value, Limits())
        assert problems == []
        return Request(submission, Environment(activities={name: {} for name in self.declared}))


@pytest.mark.nightly
def test_r12_7_each_sequence_whose_references_provably_fit_can_be_written(
    verdicts: Verdicts, record_property: Callable[[str, object], None]
) -> None:
    counted: Counter[str] = Counter()
    for flow in verdicts.valid:
        staged = Staged(flow, verdicts)
        request = staged.request()
        assert not compiled(compose_choice(request)).problems(staged.tools)
        choice = read_choice(request, staged.tools)
        assert isinstance(choice, Choice)
        answer = {"calls": staged.calls, "output": None}
        slots = compose_slots(request, choice.tools)
        admitted = not compiled(dict(slots.schema)).problems(answer)
        expected = staged.fits() and staged.is_declared
        assert admitted == expected, (flow.instance, staged.calls)
        if admitted:
            assert read_slots(request, choice, slots, answer).errors == ()
        counted["expressible" if admitted else "misfit" if staged.is_declared else "undeclared parameters"] += 1
    record_property("staged", json.dumps(counted))
    print(counted)
    assert counted["expressible"] > 100
