"""Laws of trust (SPEC R16): the proof finds whatever a run refuses, and what others wrote starts no effect."""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from acts_celery.protocol import Output, Plan, Rejected, check_submission
from acts_celery.protocol.engine.events import Start
from acts_celery.protocol.engine.execution import UNTRUSTED

from . import naive
from .building import call as call_of
from .building import submission as submission_of
from .driver import Driver, Result
from .laws import TIMES, law
from .strategies import SCHEMAS, submissions
from .test_against_naive import FUNCTIONS
from .test_law_errors import told
from .test_r10_4_gathering import CONTEXT, gathering

LABELLED: dict[str, Any] = {
    **SCHEMAS,
    "fetch": {"type": "object", "_trust": {"result": ["mail"]}},
    "act": {"type": "object", "_trust": {"effects": True, "content": ["other"]}},
    "pick": {"type": "object"},
}
CONFIG = {"trust": {"otherwise": "refuse"}}


@st.composite
def _crossing(draw: st.DrawFn) -> dict[str, Any]:
    """A call that gathers one of few things: what two instances were given, and what a call of each writes."""
    places = ["†state.k0", "†state.k1", "†state.price"]
    calls = [call_of("give", to=place, value=1, _instance=name) for place, name in zip(places, "①②", strict=False)]
    one, other = draw(st.permutations(places))[:2]
    value = draw(st.sampled_from([one, one, f"{one} || {other}"]))
    return submission_of(*calls, call_of("give", to="†data.k2", value=value, _gather=True), context=CONTEXT)


@st.composite
def labelled(draw: st.DrawFn) -> dict[str, Any]:
    """A submission of which some data and results come from others, and some calls have effects.

    There are few sources, and most are read by a call with effects: where there are many, or an effect has several ways
    to one, whatever the check overlooks is hidden behind what it finds.
    """
    submission = draw(
        st.one_of(_crossing(), _crossing(), _crossing(), submissions(), submissions(), gathering(), told())
    )
    context: list[dict[str, Any]] = [{**message} for message in submission["context"]]  # some share theirs
    given = [message for message in context if message["type"] in ("state", "input")]
    plans = [message for message in context if message["type"] == "plan"]
    calls = (plans[0] if plans else submission["solution"])["calls"]
    effect = draw(st.sampled_from([call for call in calls if "_gather" in call or "_each" in call] or calls))
    likely = [one for one in (*given, *calls) if one is not effect and _is_named(one, str(effect))]
    any_ = st.sampled_from([*likely, *likely, *likely, *given, *calls])
    sources = [draw(any_) for _ in range(draw(st.sampled_from([1, 1, 1, 1, 2, 0])))]
    for source in sources:
        if "type" in source:
            source["_trust"] = [draw(st.sampled_from(["page", "mail"]))]
    for call in calls:
        alternatives = call.get("_outputPath", "").split(" || ")
        kinds = ["act", "carry"] if call is effect else ["as it is", "as it is", "as it is", "act", "carry", "pick"]
        kind = "fetch" if any(call is source for source in sources) else draw(st.sampled_from(kinds))
        if kind == "pick" and len(alternatives) > 1:
            call |= {"_tool": "pick", "paths": [f"†{one.split(' && ')[0]}" for one in alternatives]}
        elif kind in ("act", "carry", "fetch"):
            call.pop("where", None)
            call["_tool"] = "fetch" if kind == "fetch" else "act"
        if kind == "carry" and "value" in call:  # as content, which decides nothing
            call["other"] = call.pop("value")
            if "_each" in call:
                call["_each"] = ["other"]
    return {**submission, "context": context, "tools": LABELLED, "config": CONFIG}


def _is_named(one: dict[str, Any], text: str) -> bool:
    """Whether a text names a place that a message or a call may write."""
    if "type" in one:
        return any(f"†{one['type']}.{key}" in text for key in one if key != "type")
    return any(place in text for place in re.findall(r"[\w.]+", one.get("_outputPath", "")))


def varied(value: Any) -> Any:
    """Another value of the same shape and size."""
    if isinstance(value, dict):
        return {key: varied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [varied(item) for item in value]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return "".join(chr(ord(letter) ^ 1) for letter in value) if isinstance(value, str) else value


def _pick(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    """Chooses where it writes by all that it was given."""
    return Output(parameters["paths"][len(repr((parameters, context)).replace("1", "22")) % 2], 1)


class Watched(Driver):
    """Notes which effects have begun, with what decides."""

    def __init__(self, plan: Plan, fetched: Any, **options: Any) -> None:
        self.acts: list[tuple[str | None, int, Mapping[str, Any]]] = []
        functions = {
            **FUNCTIONS,
            "fetch": lambda parameters, context: fetched,
            "act": lambda parameters, context: parameters.get("value"),
            "pick": _pick,
        }
        super().__init__(plan, functions, **options)

    def _start(self, instance: str | None, start: Start) -> None:
        if start.call.tool == "act":
            given = {name: value for name, value in start.parameters.items() if name != "other"}
            self.acts.append((instance, start.call.index, given))
        super()._start(instance, start)


def refused(result: Result) -> list[int]:
    """The calls that were, for trust."""
    errors = ((entry.outcome.index, entry.outcome.error) for entry in result.log)
    return [index for index, error in errors if error is not None and error["type"] == UNTRUSTED]


def _checked(submission: dict[str, Any]) -> Plan:
    try:
        return check_submission(submission)
    except Rejected:
        assume(False)
        raise


@settings(max_examples=2 * TIMES * settings().max_examples)
@given(labelled(), st.integers(0, 2**32))
def test_r16_5_where_the_check_reports_no_way_no_run_refuses_a_call(submission: dict[str, Any], seed: int) -> None:
    plan = _checked(submission)
    proven = {call for finding in plan.findings if finding.code.startswith("ACT6") for call in finding.calls}
    for random in (None, Random(seed)):
        assert set(refused(Watched(plan, {"k": 1}, random=random).run())) <= proven


@law
@given(labelled())
def test_r16_6_other_values_from_others_start_the_same_effects_with_the_same_that_decides(
    submission: dict[str, Any],
) -> None:
    assume(naive.is_deterministic({**submission, "tools": SCHEMAS}))
    other = {
        **submission,
        "context": [
            {
                key: value if key in ("type", "schema") or key.startswith("_") else varied(value)
                for key, value in one.items()
            }
            if one.get("_trust")
            else one
            for one in submission["context"]
        ],
    }
    one, two = Watched(_checked(submission), {"k": 1}), Watched(_checked(other), {"k": 2})
    one.run()
    two.run()
    assert one.acts == two.acts
