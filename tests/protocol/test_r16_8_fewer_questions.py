"""What an operator or an author may say so that people are asked only what matters (SPEC R16.8)."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts_celery.protocol import Plan, Rejected, check_submission
from acts_celery.protocol.calls.trust import OperatorTrust, ToolTrust, operator_problems
from acts_celery.protocol.engine.events import Start
from acts_celery.protocol.state.labels import FieldLabels

from .building import call, pointers, problems_of, submission, written
from .driver import Driver
from .laws import TIMES, law
from .test_r16_trust import REFUSE, is_refused, refused, refusing, told_shown, ways
from .test_r16_trust import shown as shown_lines

# Labels by field: a part of a result has its own (SPEC R16.8).

REVIEWS: dict[str, list[str]] = {"reviews.*.text": ["reviews"], "*": []}
SHOP: dict[str, Any] = {
    "fetch": {"_trust": {"result": REVIEWS}},
    "pay": {"_trust": {"effects": True, "content": ["note"]}},
}
FOUND = {"id": 7, "reviews": [{"id": 1, "text": "YAK"}, {"id": 2, "text": "EMU"}]}
FETCH = call("fetch", "†state.r")


def pay(account: Any, **more: Any) -> dict[str, Any]:
    return call("pay", "†state.paid", account=account, **more)


FUNCTIONS = {"fetch": lambda parameters, context: FOUND, "pay": lambda parameters, context: "paid"}
HELD: dict[str, tuple[dict[str, Any], ...]] = {
    "a field with a label": (FETCH, pay("†state.r.reviews.0.text")),
    "the whole of it": (FETCH, pay("†state.r")),
    "a part that holds such a field": (FETCH, pay("†state.r.reviews.0")),
    "a field of a copy": (FETCH, call("give", "†state.copy", value="†state.r"), pay("†state.copy.id")),
    "a field with a label in an element of a list": (
        call("fetch", "†state.l", _outputMethod="push"),
        pay("†state.l.0.reviews.1.text"),
    ),
    "a field that others have written since": (
        FETCH,
        call("fetch", "†state.m"),
        call("give", "†state.r.id", value="†state.m.reviews.0.text", after="†state.r"),
        pay("†state.r.id", note="†state.r"),
    ),
    "a field of what may have been merged": (
        call("give", "†state.r", value={"id": 1}),
        call("fetch", "†state.r", _outputMethod="merge", after="†state.r"),
        pay("†state.r.id"),
    ),
    "another value where that with fields is missing": (
        call("give", "†state.own", value="me"),
        FETCH,
        pay("†state.r.nothing || †state.own"),
    ),
    "a field of what a call has left that has failed": (
        call("give", "†state.r", value={"id": 1}),
        call("fetch", "†state.r", fails=True, after="†state.r"),
        pay("†state.r.id"),
    ),
    "a field of what was made from others' data": (
        FETCH,
        call("fetch", "†state.s", of="†state.r.reviews.0.text"),
        pay("†state.s.id"),
    ),
    "a field of an alternative": (call("fetch", "†state.r || †state.s"), pay("†state.r.id")),
}
FREE: dict[str, tuple[dict[str, Any], ...]] = {
    "a field without a label": (FETCH, pay("†state.r.id")),
    "such a field beside one with a label": (FETCH, pay("†state.r.reviews.0.id", note="†state.r.reviews.0.text")),
    "a template of it": (FETCH, pay("no. †{state.r.reviews.1.id}")),
    "a copy of it": (FETCH, call("give", "†state.copy", value="†state.r.id"), pay("†state.copy")),
    "of an element of a list": (call("fetch", "†state.l", _outputMethod="push"), pay("†state.l.0.reviews.1.id")),
    "of an element of a list, where others wait for the list": (
        call("fetch", "†state.l", _outputMethod="push"),
        call("fetch", "†state.m", _after=["†state.l"]),
        pay("†state.l.0.id", note="†state.m"),
    ),
    "of a call for each": (
        call("give", "†state.n", value=[1, 2]),
        call("fetch", "†state.l", of="†state.n", _each="of"),
        pay("†state.l.0.reviews.1.id"),
    ),
}


def _fetch(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    if parameters.get("fails"):
        raise ValueError("no")
    return FOUND


@pytest.mark.parametrize("name", [*HELD, *FREE])
def test_r16_8_a_field_has_its_own_labels_and_the_whole_has_all(name: str) -> None:
    calls, is_held = (HELD | FREE)[name], name in HELD
    plan = check_submission(submission(*calls, tools=SHOP, config=REFUSE))
    result = Driver(plan, {**FUNCTIONS, "fetch": _fetch, "give": lambda given, context: given["value"]}).run()
    effect = next(index for index, one in enumerate(calls) if one["_tool"] == "pay")
    assert is_refused(result, effect) is is_held
    assert ways(plan) == ({effect} if is_held else set())


def test_r16_8_the_most_specific_path_counts_and_what_no_path_covers_has_all() -> None:
    said = FieldLabels.read({"a": ["x"], "a.*.b": [], "a.c.b": ["y"], 'a["d.e"]': ["z"]})
    found = {path: sorted(said.own(tuple(path.split(".")))) for path in ("a", "a.n.b", "a.n.b.m", "a.c.b", "o")}
    assert found == {"a": ["x"], "a.n.b": [], "a.n.b.m": [], "a.c.b": ["y"], "o": ["x", "y", "z"]}
    assert said.own(("a", 3, "b")) == frozenset()
    assert sorted(said.at(("a",))) == ["x", "y", "z"]
    assert said.own(("a", "d.e")) == {"z"}
    assert FieldLabels.read(said.to_dict()) == said
    equally = FieldLabels.read({"*.b": ["x"], "a.*": ["y"]})
    assert equally.own(("a", "b")) == {"x", "y"}


def test_r16_8_a_field_has_the_labels_of_all_declarations() -> None:
    tool, operator = ToolTrust.read({"result": REVIEWS}), OperatorTrust.read({"f*": {"untrusted": {"id": ["shop"]}}})
    both = ToolTrust.together((tool, operator.of("fetch")))
    assert both.result == {"reviews", "shop"}
    assert ToolTrust.read(both.to_dict()) == both
    assert OperatorTrust.read(operator.to_dict()) == operator
    whole = ToolTrust.together((tool, ToolTrust.read({"result": ["mail"]})))
    assert {label for one in whole.fields for label in one.at(("id",))} == {"mail"}
    tools = {**SHOP, "fetch": {"_trust": {"result": {"*": [], "x": ["reviews"]}}}}
    for said in ({"result": ["mail"]}, {"result": {"iban": ["mail"], "*": []}}):
        plan, result = refusing(
            FETCH,
            pay("†state.r.iban"),
            tools=tools,
            activities={"fetch": {"type": "object", "_trust": said}, "pay": {}},
        )
        assert ways(plan) == {1}
        assert is_refused(result, 1)


@pytest.mark.parametrize(
    ("said", "where"),
    [
        ({"text": "reviews"}, "/text"),
        ({"reviews.0.text": ["reviews"]}, "/reviews.0.text"),
        ({"reviews..text": ["reviews"]}, "/reviews..text"),
        ({'reviews["*"]': ["reviews"]}, '/reviews["*"]'),
        ({"text || id": ["reviews"]}, "/text || id"),
        ({"*": []}, ""),
        ({}, ""),
        ({f"a{number}": ["reviews"] for number in range(65)}, ""),
    ],
)
def test_r16_8_labels_by_field_in_another_shape_are_refused(said: Any, where: str) -> None:
    found = problems_of(FETCH, tools={"fetch": {"_trust": {"result": said}}})
    assert pointers(found) == [f"/tools/fetch/_trust/result{where}"]
    assert pointers([*operator_problems({"fetch": {"untrusted": said}})]) == [f"/fetch/untrusted{where}"]


def test_r16_8_only_the_engine_says_labels_by_field_of_a_message() -> None:
    by_field = [{"": ["mail"], "id": []}]
    given = {"type": "state", "id": 1, "_trust": ["mail"], "_trustFields": by_field}
    own = written("†state.r", {"id": 1}, _trust=["mail"], _trustFields=[{"0": ["mail"]}])
    found = problems_of(call("give", value=1), context=[given, own, {**own, "_trustFields": by_field}])
    assert pointers(found) == ["/context/0/_trustFields", "/context/1/_trustFields/0/0"]


def test_r16_8_a_model_is_shown_the_fields_without_a_label() -> None:
    by_field: dict[str, Any] = {"_trust": ["reviews"], "_trustFields": [REVIEWS]}
    message = written("†state.r", {**FOUND, "none": {}}, **by_field)
    lines = [
        '{"r":{"id":7,"reviews":[{"id":1},{"id":2}],"none":{}}}',
        "Not shown: †state.r.reviews.0.text and 1 more that differ by an index, 10 bytes that others wrote (reviews)",
    ]
    assert shown_lines(message)[-2:] == lines
    assert lines[1] in told_shown(message)
    assert '{"id":7,"reviews":[{"id":1},{"id":2}],"none":{}}' in told_shown(message)
    names: dict[str, Any] = {"_trust": ["firm"], "_trustFields": [{"id": [], "*": ["firm"]}]}
    unnamed = written("†state.r", {"id": 7, "YAK": 1, "EMU": [2]}, **names)
    assert shown_lines(unnamed)[-2:] == [
        '{"r":{"id":7}}',
        "Not shown: 2 fields of †state.r, 4 bytes that others wrote (firm)",
    ]
    listed = written(
        "†state.r", {"id": 7, "names": ["YAK", "EMU"]}, _trust=["x"], _trustFields=[{"names.*": ["x"], "*": []}]
    )
    assert shown_lines(listed)[-2:] == ['{"r":{"id":7}}', "Not shown: †state.r.names, 13 bytes that others wrote (x)"]


def test_r16_8_where_a_place_was_written_whole_before_nothing_of_it_is_shown() -> None:
    whole = written("†state.r", {"id": "YAK"}, _trust=["mail"])
    fields = written("†state.r", FOUND, _trust=["reviews"], _trustFields=[REVIEWS])
    assert "YAK" not in str(shown_lines(whole, fields))
    shorter = written("†state.r", {"reviews": []}, _trust=["reviews"], _trustFields=[REVIEWS])
    assert "YAK" not in told_shown(fields, shorter)


# Laws: R16.5 and R16.6 with all of it drawn at random.

TOOLS: dict[str, Any] = {
    "fetch": {"_trust": {"result": REVIEWS}},
    "list": {"_trust": {"result": {"*.text": ["mail"], "*.*": []}}},
    "act": {"_trust": {"effects": True, "content": ["other"]}},
    "give": {},
    "fail": {},
}
PLACES = ["†state.a", "†state.b", "†state.c"]
PARTS = ["", ".id", ".id", ".id", ".text", ".reviews", ".reviews.0.id", ".reviews.0.text", ".0.id", ".0.text", ".none"]


@st.composite
def reads(draw: st.DrawFn) -> str:
    """What a parameter reads: a field, one of two, or a text around one."""
    one, other = (draw(st.sampled_from(PLACES)) + draw(st.sampled_from(PARTS)) for _ in range(2))
    return draw(st.sampled_from([one, one, one, f"{one} || {other}", f"no. †{{{one[1:]}}}"]))


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    """A plan whose calls read fields of what others wrote, and some of which have effects."""
    calls: list[dict[str, Any]] = []
    for number in range(draw(st.integers(2, 6))):
        kinds = ["fetch", "list", "give", "act", "fail"] if number else ["fetch", "list"]
        tool = draw(st.sampled_from(kinds))
        methods: list[dict[str, Any]] = [{}, {}, {"_outputMethod": "push"}, {"_outputMethod": "merge"}]
        to = f"†data.x{number}" if tool == "act" else draw(st.sampled_from([*PLACES, *PLACES, "†state.a.reviews"]))
        more = dict(draw(st.sampled_from(methods))) if tool != "act" else {}
        if number and draw(st.integers(0, 3)):
            more["value"] = draw(reads())
        elif tool == "fetch" and draw(st.booleans()):
            more |= {"value": "†input.n", "_each": "value"}
        if tool == "act":
            more |= {"other": draw(reads())} if draw(st.booleans()) else {}
            more |= {"_scopes": [draw(st.sampled_from(PLACES)) + ".id"]} if not draw(st.integers(0, 3)) else {}
        elif not draw(st.integers(0, 5)):
            to = f"{to} || †state.c"
        calls.append(call(tool, to, **more))
    held: dict[str, Any] = {"type": "state", "a": {"id": 1}}
    given: list[list[Any]] = [[], [], [held], [{**held, "_trust": ["page"]}]]
    context = [{"type": "input", "n": [1, 2]}, *draw(st.sampled_from(given))]
    return submission(*calls, tools=TOOLS, config=REFUSE, context=context)


class Watched(Driver):
    """Notes which effects have begun, with what decides."""

    def __init__(self, plan: Plan, text: str, **options: Any) -> None:
        self.acts: list[tuple[int, Mapping[str, Any]]] = []
        found = {"id": 7, "text": 3, "reviews": [{"id": 1, "text": text}]}
        functions = {
            "fetch": lambda given, context: found,
            "list": lambda given, context: [{"id": 3, "text": text}],
            "act": lambda given, context: given.get("value"),
            "give": lambda given, context: given.get("value"),
            "fail": lambda given, context: (_ for _ in ()).throw(ValueError(str(given))),
        }
        super().__init__(plan, functions, **options)

    def _start(self, instance: str | None, start: Start) -> None:
        if start.call.tool == "act":
            given = {name: value for name, value in start.parameters.items() if name != "other"}
            self.acts.append((start.call.index, given))
        super()._start(instance, start)


def _checked(value: dict[str, Any]) -> Plan | None:
    try:
        return check_submission(value)
    except Rejected:
        return None


@settings(max_examples=2 * TIMES * settings().max_examples)
@given(plans(), st.integers(0, 2**32))
def test_r16_5_where_the_check_reports_no_way_no_run_refuses_a_call(value: dict[str, Any], seed: int) -> None:
    if (plan := _checked(value)) is not None:
        for random in (None, Random(seed)):
            assert set(refused(Watched(plan, "YAK", random=random).run())) <= ways(plan)


@law
@given(plans())
def test_r16_6_other_values_in_labelled_fields_start_the_same_effects(value: dict[str, Any]) -> None:
    if (plan := _checked(value)) is not None:
        one, other = Watched(plan, "YAK"), Watched(plan, "EMU")
        one.run()
        other.run()
        assert one.acts == other.acts
