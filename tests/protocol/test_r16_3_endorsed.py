"""Of whom the answer of a model is that is asked for one value: of a delegate, that may endorse, of a latent call, and
what instances lack (SPEC R16.2, R16.3).
"""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery.protocol import Output

from .building import call, checked, run_plan
from .test_r16_trust import FETCH, REFUSE, TOOLS, is_refused, refusing
from .test_r16_trust import FUNCTIONS_TRUST as FUNCTIONS

JUDGE: dict[str, Any] = {"context": [], "schema": {"type": "boolean"}, "_endorses": True}
JUDGED: dict[str, Any] = {
    "tools": {**TOOLS, "ask": {"properties": {"_delegate": {}}}, "judge": {"properties": {"_delegate": {}}}},
    "delegates": {"judge": JUDGE, "reader": {**JUDGE, "_endorses": False}},
}
ASKED = call("ask", "†state.is", _delegate="judge", text="†state.mail.text")
OWN = call("give", "†state.own", value="me")
ENDORSED: dict[str, tuple[bool, tuple[dict[str, Any], ...]]] = {
    "an answer": (False, (FETCH, ASKED, call("pay", "†state.paid", account="†state.is"))),
    "an error in its place": (True, (FETCH, ASKED, OWN, call("pay", "†state.paid", account="†state.is || †state.own"))),
    "what is skipped for its error": (
        True,
        (
            FETCH,
            ASKED,
            call("give", "†state.copy", value="†state.is"),
            OWN,
            call("pay", "†state.paid", account="†state.copy || †state.own"),
        ),
    ),
    "the place that it chooses": (
        True,
        (
            FETCH,
            {**ASKED, "_outputPath": "†state.a || †state.b"},
            call("pay", "†state.p", account="me", note="†state.a"),
        ),
    ),
    "an answer that others let be given": (
        True,
        (
            FETCH,
            call("pick", "†state.a || †state.b", where="††state.a", value=1, by="†state.mail"),
            call("ask", "†state.is", _delegate="judge", text="†state.a"),
            call("pay", "†state.paid", account="†state.is"),
        ),
    ),
    "a tool of its name that another one answers": (
        True,
        (
            FETCH,
            {**ASKED, "_outputPath": "†state.other"},
            {**ASKED, "_tool": "judge", "_delegate": "reader"},
            call("pay", "†state.paid", account="†state.is"),
        ),
    ),
}


@pytest.mark.parametrize("name", ENDORSED)
def test_r16_3_an_endorsement_speaks_of_an_answer_and_of_nothing_else(name: str) -> None:
    is_held, calls = ENDORSED[name]
    plan = checked(*calls, **JUDGED, config=REFUSE)

    def judge(parameters: Any, context: Any) -> Any:
        if "error" in name:
            raise ValueError(str(parameters))
        return Output("†state.a", True) if "place" in name else True

    result = run_plan(plan, functions={**FUNCTIONS, "judge": judge, "reader": judge})
    last = len(calls) - 1
    assert is_refused(result, last) is is_held
    found = {finding.calls for finding in plan.findings if finding.code in ("ACT601", "ACT602")}
    assert found == ({(last,)} if is_held else set())


def test_r16_2_a_latent_call_has_the_sources_of_all_there_is_whatever_it_is_given() -> None:
    context = [{"type": "input", "page": "x", "_trust": ["web"]}]
    calls = call("think", "†state.thought", about="tea"), call("pay", "†state.paid", account="†state.thought")
    tools = {**TOOLS, "think": {"properties": {"about": {}}}}
    plan = checked(*calls, tools=tools, activities={}, context=context, config=REFUSE)
    assert [finding.calls for finding in plan.findings if finding.code == "ACT601"] == [(1,)]
    result = run_plan(plan, functions={**FUNCTIONS, "think": lambda parameters, context: "me"})
    assert is_refused(result, 1)


def test_r16_2_what_an_instance_lacks_may_have_been_kept_from_it_by_others_who_wrote_there() -> None:
    context: list[Any] = [{"type": "state", "_instance": name, "b": 1} for name in "①②"]
    context += [
        {"type": "state", "_instance": "①", "a": 1},
        {"type": "state", "_instance": "②", "z": 1, "_trust": ["p"]},
    ]
    for note, is_held in (("†state.a || †state.b", True), ("†state.b", False)):
        gather = call("pay", "†data.paid", account="me", note=note, _gather=True)
        plan, result = refusing(gather, context=context)
        assert is_refused(result, 0) is is_held
        found = {finding.calls for finding in plan.findings if finding.code in ("ACT601", "ACT602")}
        assert found == ({(0,)} if is_held else set())
