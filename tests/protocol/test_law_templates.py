"""Laws of templates (SPEC R2.6): each is what joining by hand gives, and holds nothing that its reader does not see."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from random import Random
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from acts_celery.protocol import Expression, ExpressionError, Rejected, check_submission
from acts_celery.protocol.templates import Template, bare, escaped, meaning

from . import naive
from .building import call, run_plan, submission
from .driver import Driver
from .laws import law
from .strategies import SCHEMAS, expressions, json_values, submissions
from .test_against_naive import FUNCTIONS

_literals = st.text("†{}|& a.\n", max_size=5)
_parts = st.lists(st.one_of(_literals, expressions), max_size=5)


def written(parts: list[str | Expression]) -> str:
    """A string parameter of literal texts and expressions."""
    return "".join(escaped(part) if isinstance(part, str) else f"†{{{bare(part)}}}" for part in parts)


@law
@given(_parts)
def test_what_was_written_is_read_again(parts: list[str | Expression]) -> None:
    found = meaning(written(parts))
    if not any(isinstance(part, Expression) for part in parts):
        assert found == "".join(map(str, parts))
        return
    assert isinstance(found, Template)
    assert meaning(str(found)) == found
    assert found.expressions == tuple(part for part in parts if isinstance(part, Expression))
    assert "".join(map(str, found.parts)) == "".join(map(str, parts))


@given(st.text('†{}ab.0[]"|& ', max_size=14))
def test_a_text_either_has_a_meaning_or_is_an_error_with_a_place_in_it(text: str) -> None:
    try:
        found = meaning(text)
    except ExpressionError as error:
        position = error.position
    else:
        position = len(text)
        if isinstance(found, Template):
            assert meaning(str(found)) == found
        elif isinstance(found, str):
            assert found == text.replace("††", "†")
    assert 0 <= position <= len(text)


def join(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    """What a template does, by an activity that is given the values."""
    return "".join(part["text"] if "text" in part else by_hand(part["value"]) for part in parameters["parts"])


def by_hand(value: Any) -> str:
    return (
        value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    )


@given(submissions(), st.data(), st.integers(0, 2**32))
def test_a_template_equals_joining_by_hand(value: dict[str, Any], data: st.DataObject, seed: int) -> None:
    """In whatever submission, also in an instance, gathered, and where something that it reads never comes."""
    is_plan = "solution" not in value
    calls = value["context"][-1]["calls"] if is_plan else value["solution"]["calls"]
    written_to = re.findall(r"†[^ |&]+", " ".join(each.get("_outputPath", "") for each in calls))
    places = st.sampled_from(["†input.p", "†state", "†state.p || †input.items", *written_to])
    parts = data.draw(st.lists(st.tuples(st.just("text"), _literals) | st.tuples(st.just("value"), places), min_size=1))
    instances = sorted({message["_instance"] for message in value["context"] if "_instance" in message})
    where = data.draw(st.sampled_from([{}, {"_gather": True}, *({"_instance": name} for name in instances)]))
    assume(instances or "_gather" not in where)
    by_template = "".join(escaped(part) if kind == "text" else f"†{{{part.replace('†', '')}}}" for kind, part in parts)
    by_activity = [{kind: escaped(part) if kind == "text" else part} for kind, part in parts]
    calls += [
        call(to="†data.by_template", value=[by_template], **where),
        call("join", to="†data.by_activity", parts=by_activity, **where),
    ]
    try:
        plan = check_submission({**value, "tools": {**SCHEMAS, "join": {"type": "object"}}})
    except Rejected:
        assume(False)
        return
    result = Driver(plan, {**FUNCTIONS, "join": join}, random=Random(seed)).run()
    *_, first, second = range(len(calls))
    for lane, statuses in result.statuses.items():
        assert statuses.get(first) == statuses.get(second)
        found = result.data[lane].get("data", {})
        if isinstance(found, dict) and "by_template" in found:
            assert found["by_template"] == [found["by_activity"]]


NAMES = ("①", "②")
_kinds = st.sampled_from(["state", "data"])
_keys = st.sampled_from(["a", "b"])


@law
@given(
    st.lists(st.tuples(st.sampled_from([None, *NAMES]), _kinds, _keys), max_size=6),
    st.lists(st.tuples(_kinds, st.none() | _keys), min_size=1, max_size=4),
    st.lists(st.tuples(_kinds, st.none() | _keys), max_size=2),
    st.sampled_from([None, *NAMES]),
)
def test_never_a_byte_out_of_scope(
    written_to: list[tuple[str | None, str, str]],
    read: list[tuple[str, str | None]],
    scopes: list[tuple[str, str | None]],
    reader: str | None,
) -> None:
    """Every value is a mark of its own: what a call is given holds those at the places that it names, as its instance
    sees them, and no other.
    """
    context: list[dict[str, Any]] = [{"type": "text", "_instance": name} for name in NAMES]
    for number, (name, kind, key) in enumerate(written_to):
        message = {"type": "data", "kind": kind, "data": {key: [f"mark {number}."]}}
        context.append(message if name is None else {**message, "_instance": name})
    seen: list[Any] = []

    def look(parameters: Mapping[str, Any], scoped: Mapping[str, Any]) -> Any:
        seen.append([dict(parameters), dict(scoped)])
        return None

    paths = [".".join(filter(None, place)) for place in read]
    text = " ".join(f"†{{{path} || input}}" for path in paths)
    own = {} if reader is None else {"_instance": reader}
    named = [f"†{'.'.join(filter(None, place))}" for place in scopes]
    asked = call("look", to="†input.done", value=text, _scopes=named, **own)
    run_plan(check_submission(submission(asked, context=[*context, {"type": "input"}])), functions={"look": look})
    visible = naive.World({"context": context}, {}).values(reader)
    places = [naive.place(f"†{path}") for path in (*paths, *(scope.removeprefix("†") for scope in named))]
    allowed = {mark for place in places for mark in marks(naive.found(visible, place))}
    assert marks(seen) == allowed


def marks(value: Any) -> set[str]:
    """The marks in a value, also in the texts that were made of it."""
    return set(re.findall(r"mark \d+\.", repr(value)))


@given(json_values)
def test_what_stands_alone_in_a_template_is_the_value_as_a_text(value: Any) -> None:
    context = [{"type": "input", "input": {"v": value}}]
    result = run_plan(check_submission(submission(call(to="†state.t", value="†{input.v}"), context=context)))
    assert result.data[None]["state"] == {"t": by_hand(value)}
