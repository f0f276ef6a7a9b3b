"""SPEC R8: scopes."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery.protocol import Context, ExpressionError, check_submission, parse
from acts_celery.protocol.calls.tools import Tool

from .building import ANY, call, checked, plan_submission, pointers, problems, problems_of, run, submission

CONTEXT: list[dict[str, Any]] = [
    {"type": "state", "user": {"name": "Ann", "key": "secret"}, "list": [{"a": 1, "b": 2}, "x"], "none": None},
    {"type": "state", "_instance": "①", "user": {"name": "Bob"}, "own": 1},
    {"type": "state", "_instance": "②", "own": 2},
    {"type": "input", "query": "q"},
    {"type": "text", "text": "never"},
]


def seen(*scopes: str, instance: str | None = None) -> dict[str, Any]:
    """What the scopes yield."""
    return Context(CONTEXT).scoped(scopes, instance=instance)


# R8.1


def test_r8_1_no_scopes_no_context() -> None:
    assert seen() == {}
    assert run(call("see", to="†data.s"), context=CONTEXT).data[None]["data"]["s"] == {}
    assert run(call("see", to="†data.s", _scopes=[]), context=CONTEXT).data[None]["data"]["s"] == {}


def test_r8_1_imports_is_the_older_name() -> None:
    calls = [
        call("see", to="†data.old", _imports=["input"]),
        call("see", to="†data.both", _imports=["input"], _scopes=["input"]),
    ]
    data = run(*calls, context=CONTEXT).data[None]["data"]
    assert data == {"old": {"input": {"query": "q"}}, "both": {"input": {"query": "q"}}}


def test_r8_1_a_kind_is_given_whole_with_or_without_a_dagger() -> None:
    assert seen("input") == seen("†input") == {"input": {"query": "q"}}


@pytest.mark.parametrize(
    ("scopes", "expected"),
    [
        (["†state.user.name"], {"state": {"user": {"name": "Ann"}}}),
        (["†state.user"], {"state": {"user": {"name": "Ann", "key": "secret"}}}),
        (["†state.user.name", "†state.none"], {"state": {"user": {"name": "Ann"}, "none": None}}),
        (["†state.user.name", "†state.user"], {"state": {"user": {"name": "Ann", "key": "secret"}}}),
        (["†state.list.0.a", "†state.list.1"], {"state": {"list": {"0": {"a": 1}, "1": "x"}}}),
        (["†state.list.0", "†state.list"], {"state": {"list": [{"a": 1, "b": 2}, "x"]}}),
        (["†state.user.name", "†input.query"], {"state": {"user": {"name": "Ann"}}, "input": {"query": "q"}}),
        (["†state.nowhere", "†nowhere", "†state.user.name.deeper", "†state.list.7"], {}),
    ],
)
def test_r8_1_a_reference_is_a_narrower_slice_and_yields_nothing_beside_it(scopes: list[str], expected: Any) -> None:
    assert seen(*scopes) == expected
    assert seen(*reversed(scopes)) == expected


def test_r8_1_a_slice_of_what_is_given_whole_adds_nothing() -> None:
    assert seen("state", "†state.user.name", "†state.list.0.a") == seen("state")


@pytest.mark.parametrize(
    "scope", ["", "†", "state.user", "†state || †input", "†state && †input", "††state", "a b", "†state..x", "1"]
)
def test_r8_1_anything_else_is_no_scope(scope: str) -> None:
    with pytest.raises(ExpressionError):
        seen(scope)
    assert pointers(problems_of(call(_scopes=["state", scope]))) == ["/solution/calls/0/_scopes/1"]


def test_r8_1_what_is_no_scope_is_reported_with_what_one_is() -> None:
    with pytest.raises(ExpressionError) as several:
        seen("†state || †input")
    with pytest.raises(ExpressionError) as undaggered:
        seen("state.user")
    told = [(error.value.position, error.value.expected) for error in (several, undaggered)]
    assert told == [(0, "a kind or one reference"), (0, "a kind, or a reference starting with †")]


@pytest.mark.parametrize("scopes", ["state", {"state": True}, 5, [None], [["state"]]])
def test_r8_1_scopes_are_a_list_of_texts(scopes: Any) -> None:
    assert problems_of(call(_scopes=scopes))[0].pointer.startswith("/solution/calls/0/_scopes")
    assert problems_of(call(_imports=scopes))[0].pointer.startswith("/solution/calls/0/_imports")


STATE_ONLY: list[dict[str, Any]] = [
    {"_scopes": {"items": {"enum": ["state"]}}},
    {"_scopes": {"items": {"enum": ["†state"]}}},
    {"_imports": {"items": {"const": "state"}}},
    {"_scopes": {"items": {"pattern": "^state$"}}},
    {"_scopes": {"items": {"anyOf": [{"enum": ["state"]}, {"enum": ["plan"]}]}, "uniqueItems": True}},
    {"_scopes": {"const": ["state"]}},
    {"_scopes": {"enum": [["plan"], ["state", "plan"]]}},
    {"oneOf": [{"properties": {"_scopes": {"const": ["state"]}}}, {"properties": {"_scopes": {"const": ["plan"]}}}]},
    {"allOf": [{"$ref": "#/$defs/d"}], "$defs": {"d": {"properties": {"_scopes": {"items": {"enum": ["state"]}}}}}},
]


@pytest.mark.parametrize("tool", STATE_ONLY)
def test_r8_1_where_a_tool_admits_a_kind_it_admits_every_reference_into_it(tool: dict[str, Any]) -> None:
    tools = {"see": tool}
    for scopes in (["state"], ["†state.user"], ["†state.user.name", "†state.list"]):
        assert checked(call("see", _scopes=scopes), tools=tools).calls[0].properties["_scopes"] == scopes
    for scopes in (["input"], ["†input.query"], ["†state.user", "†input.query"], ["state", "input"]):
        found = problems_of(call("see", _scopes=scopes), tools=tools)
        assert {problem.pointer.removeprefix("/solution/calls/0")[:8] for problem in found} <= {"", "/_scopes"}


@pytest.mark.parametrize(
    ("pinned", "given", "fits"),
    [
        (["state", "input"], ["input"], True),
        (["state", "input"], [], True),
        (["state", "input"], ["†input.query", "†state.user"], True),
        (["†state.user"], ["†state.user.name"], True),
        (["†state.user"], ["†state.list"], False),
        (["†state.user"], ["state"], False),
        (["†state.list.0"], ['†state.list["0"].a'], True),
        (["†state.use"], ["†state.user"], False),
        ([], ["state"], False),
        (["state"], ["state", "input"], False),
    ],
)
def test_r8_1_a_call_may_give_narrower_scopes_than_those_pinned(
    pinned: list[str], given: list[str], fits: bool
) -> None:
    tools = {"see": {"_scopes": {"const": pinned}}}
    assert checked(call("see"), tools=tools).calls[0].properties["_scopes"] == pinned
    if fits:
        assert checked(call("see", _scopes=given), tools=tools).calls[0].properties["_scopes"] == given
    else:
        assert pointers(problems_of(call("see", _scopes=given), tools=tools)) == ["/solution/calls/0/_scopes"]


def test_r8_1_narrower_scopes_excuse_nothing_else() -> None:
    tools = {"see": {"properties": {"_scopes": {"items": {"enum": ["state"]}}, "n": {"type": "integer"}}}}
    assert pointers(problems_of(call("see", _scopes=["†state.user"], n="text"), tools=tools)) == ["/solution/calls/0/n"]


# R8.2


def test_r8_2_a_scope_yields_the_folded_value_seen_from_the_calls_instance() -> None:
    assert seen("state", instance="①")["state"]["user"] == {"name": "Bob", "key": "secret"}
    assert seen("†state.own", instance="②") == {"state": {"own": 2}}
    assert seen("†state.own") == {}


def test_r8_2_a_call_sees_values_and_never_history_or_another_instance() -> None:
    calls = [
        call(to="†state.own", value=10, _instance="①"),
        call("see", to="†data.seen", after="†state.own", _scopes=["state"], _instance="①"),
    ]
    given = run(*calls, context=CONTEXT).data["①"]["data"]["seen"]
    assert given["state"].pop("own") == 10
    assert given == {"state": {"user": {"name": "Bob", "key": "secret"}, "list": [{"a": 1, "b": 2}, "x"], "none": None}}


# R8.3


def test_r8_3_an_activity_gets_its_scopes_by_kind() -> None:
    result = run(call("see", to="†data.s", _scopes=["input", "†state.user.name"]), context=CONTEXT)
    assert result.data[None]["data"]["s"] == {"input": {"query": "q"}, "state": {"user": {"name": "Ann"}}}


def test_r8_3_texts_and_system_messages_have_no_value_that_an_activity_could_be_given() -> None:
    result = run(call("see", to="†data.s", _scopes=["text", "system", "input"]), context=CONTEXT)
    assert result.data[None]["data"]["s"] == {"input": {"query": "q"}}


def test_r8_3_for_a_latent_call_scopes_are_a_hint() -> None:
    result = run(
        {"_tool": "think", "_output": 1, "_scopes": ["state"], "_outputPath": "†data.t"}, activities={}, context=CONTEXT
    )
    assert result.data[None]["data"] == {"t": 1}


# R8.3a


def test_r8_3a_a_scope_waits_for_the_calls_listed_before_that_write_in_it() -> None:
    for scope in ("state", "†state.a", "†state.a.b.c"):
        calls = [call(to="†state.a.b", value={"c": 1}), call(to="†data.x"), call("see", to="†data.s", _scopes=[scope])]
        assert checked(*calls).edges == ((0, 2),)
        assert run(*calls).data[None]["data"]["s"] == {"state": {"a": {"b": {"c": 1}}}}


def test_r8_3a_a_scope_never_waits_for_calls_listed_after_and_what_is_in_it_need_not_exist() -> None:
    for scope in ("state", "†state.a"):
        calls = [call("see", to="†data.s", _scopes=[scope]), call(to="†state.a", value=1)]
        assert checked(*calls).edges == ()
        assert run(*calls).data[None]["data"]["s"] == {}


def test_r8_3a_a_scope_that_a_parameter_reads_as_a_fallback_waits_for_none_listed_after() -> None:
    calls = [call("see", to="†data.s", value="†input.i || †state.a", _scopes=["†state.a"]), call(to="†state.a")]
    result = run(*calls, context=[{"type": "input", "i": 0}])
    assert [entry.outcome.index for entry in result.log] == [0, 1]


def test_r8_3a_a_call_sees_what_global_calls_listed_before_it_write() -> None:
    context = [{"type": "text", "_instance": "①"}]
    calls = [call(to="†state.a"), call("see", _scopes=["state"], _instance="①"), call(to="†state.b")]
    assert checked(*calls, context=context).edges == ((0, 1),)


def test_r8_3a_what_a_scope_waits_for_may_fail() -> None:
    result = run(call("fail", to="†state.a"), call("see", to="†data.s", _scopes=["state"]))
    assert [status.value for status in result.statuses[None].values()] == ["failed", "done"]


def test_r8_3a_a_scope_wait_that_would_close_a_cycle_is_left_out_in_the_order_of_readers() -> None:
    calls = [
        call(to="†state.a", value="†data.last"),
        call(to="†state.b"),
        call(to="†data.middle", _scopes=["state"]),
        call(to="†data.last", value="†data.middle", _scopes=["state"]),
        call(_scopes=["state"]),
    ]
    plan = checked(*calls)
    graph = plan.lanes[None].graph
    assert [graph.writers(index, parse("†state").references[0]) for index in (2, 3, 4)] == [(1,), (1,), (0, 1)]
    assert plan.dropped_waits == ((2, 0), (3, 0))


def test_r8_3a_a_thought_waits_for_nothing() -> None:
    assert checked(call(to="†state.a"), {"_tool": "think", "_scopes": ["state"]}, activities={"give": {}}).edges == ()


def test_r8_3a_readers_of_a_whole_kind_share_what_they_wait_for() -> None:
    """Chains of calls that see everything take memory in proportion to their number, with a forward reference, too."""
    sizes = []
    for number in (200, 400):
        chain = [call(to="†state.k0", value="†data.end"), call(to="†state.k1", _scopes=["state"])]
        chain += [call(to=f"†state.k{i}", value=f"†state.k{i - 1}", _scopes=["state"]) for i in range(2, number)]
        plan = checked(*chain, call(to="†data.end", value=f"†state.k{number - 1}", _scopes=["state"]))
        graph = plan.lanes[None].graph
        nodes = sum(len(nodes) for own in (graph.waits, graph.scopes) for one in own.values() for nodes in one.values())
        sizes.append(nodes + sum(map(len, graph.barriers.values())))
        assert plan.dropped_waits == tuple((reader, 0) for reader in range(1, number + 1))
        assert graph.before(number) == tuple(range(1, number))
    assert sizes[1] < 2.2 * sizes[0]


# R8.4


def test_r8_4_the_snapshot_is_taken_when_the_call_is_started() -> None:
    taken: list[Any] = []

    def keep(parameters: Any, context: Any) -> Any:
        taken.append(context)

    calls = [
        call("keep", to="†data.k", _scopes=["state"]),
        call(to="†state.list.0.a", value="changed", after="†data.k"),
    ]
    result = run(*calls, context=CONTEXT, functions={"keep": keep})
    assert taken[0]["state"]["list"][0] == {"a": 1, "b": 2}
    assert result.data[None]["state"]["list"][0] == {"a": "changed", "b": 2}


def test_r8_4_code_that_gets_it_can_change_nothing_by_it() -> None:
    def meddle(parameters: Any, context: Any) -> Any:
        context["state"]["user"]["name"] = "Eve"
        parameters["user"]["name"] = "Eve"

    result = run(
        call("meddle", to="†data.x", _scopes=["state"], user="†state.user"),
        context=CONTEXT,
        functions={"meddle": meddle},
    )
    assert result.data[None]["state"]["user"]["name"] == "Ann"


# R8.3b


def test_r8_3b_check_says_which_scopes_a_call_really_gets() -> None:
    derived = {
        "see": {"properties": {"_scopes": {"items": {"enum": ["state", "input"]}, "x-granted": ["state", "input"]}}}
    }
    pinned = {"look": {"_scopes": {"const": ["†state.a"]}}}
    calls = [
        call("see", "†data.a"),
        call("see", "†data.b", _scopes=["†state.a"]),
        call("look", "†data.c"),
        call("blind", "†data.d"),
        call("older", "†data.e", _imports=["input"]),
    ]
    value = submission(*calls, tools=pinned)
    del value["tools"]["see"]
    known = {**derived, "look": ANY, "blind": ANY, "older": ANY}
    plan = check_submission(value, activities=known)
    assert plan.to_dict()["scopes"] == [
        {"call": 0, "scopes": ["state", "input"], "by": "tool"},
        {"call": 1, "scopes": ["†state.a"], "by": "call"},
        {"call": 2, "scopes": ["†state.a"], "by": "tool"},
        {"call": 4, "scopes": ["input"], "by": "call"},
    ]


def gathering(path: str, *calls: Any, is_plan: bool = True) -> list[Any]:
    """The findings on what is gathered, beside other calls."""
    context = [{"type": "state", "_instance": name, "x": 1} for name in "ab"]
    make = plan_submission if is_plan else submission
    value = make(call("sum", path, of="†state.x", _gather=True), *calls, context=context)
    return [one for one in check_submission(value).findings if one.code == "ACT411"]


def test_r8_3b_what_an_instance_may_see_of_the_others_is_noted() -> None:
    whole, narrow = call("see", "†data.y", _scopes=["state"]), call("see", "†data.z", _scopes=["†state.x"])
    (finding,) = gathering("†state.all", whole, narrow)
    assert (finding.severity, finding.calls, finding.pointer) == ("note", (0,), "/context/2/calls/0/_outputPath")
    assert "in the _scopes of call 1: each instance may see there what the others hold" in finding.message
    assert gathering("†summary.all", whole, narrow) == []
    assert gathering("†state.all", whole, is_plan=False) == []
    assert len(gathering("†state.all", {**whole, "_instance": "a"}, is_plan=False)) == 1


# R9.2


def test_r9_2_a_parameter_that_hides_a_scoped_input_is_a_finding() -> None:
    context = [{"type": "input", "text": "old", "other": 1}]

    def found(**given: Any) -> list[str]:
        plan = checked(call("ask", "†data.x", **{"_delegate": "d", **given}), context=context)
        return [one.pointer or "" for one in plan.findings if one.code == "ACT412"]

    assert found(text="new", _scopes=["input"]) == ["/solution/calls/0/text"]
    assert found(text="new", _scopes=["†input.text"]) == ["/solution/calls/0/text"]
    assert found(text="new", _scopes=["†input.other"]) == []
    assert found(text="new", _scopes=["state"]) == []
    assert found(text="†input.text", _scopes=["input"]) == []
    assert found(words="new", _scopes=["input"]) == []


# R4.2 with R8.1: the older name of `_delegate`, and names that were meant to isolate


SUMMARY: dict[str, Any] = {"context": [{"type": "system", "text": "Sum up."}], "schema": {"type": "string"}}
PASSWORD: dict[str, Any] = {"type": "input", "password": "hidden"}


def test_r4_2_module_is_the_older_name_of_delegate() -> None:
    call_ = {"_tool": "sum", "_outputPath": "†state.s"}
    pinned = {"_module": {"const": "sum"}, "_imports": {"const": ["state"]}}
    for tool, written in (
        (pinned, {}),
        ({"_delegate": {}}, {"_module": "sum"}),
        ({"_module": {}}, {"_delegate": "sum"}),
    ):
        plan = check_submission(
            {
                "context": [PASSWORD],
                "tools": {"sum": tool},
                "delegates": {"sum": SUMMARY},
                "solution": {"calls": [{**call_, **written}]},
            }
        )
        (made,) = plan.calls
        assert str(made.runner.executor) == "delegate"
        assert made.runner.name == "sum"
        assert "input" not in {scope.kind for scope in made.scopes}


def test_r4_2_the_two_names_of_a_delegate_must_agree() -> None:
    both = {"_tool": "sum", "_delegate": "sum", "_module": "other"}
    found = problems({"context": [], "delegates": {"sum": SUMMARY}, "solution": {"calls": [both]}})
    assert "/solution/calls/0/_module" in pointers(found)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("_Module", "_delegate"), ("_modules", "_delegate"), ("_delegates", "_delegate"), ("_import", "_scopes"),
     ("_scope", "_scopes"), ("_activty", "_activity")],
)  # fmt: skip
def test_r4_2_what_was_meant_to_isolate_a_call_is_never_ignored(name: str, meant: str) -> None:
    (found,) = problems({"context": [], "tools": {"t": {name: {"const": "x"}}}, "solution": {"calls": []}})
    assert (found.pointer, meant in found.message) == (f"/tools/t/{name}", True)
    (found,) = problems_of(call("give", value=1, **{name: "x"}))
    assert (found.pointer, meant in found.message) == (f"/solution/calls/0/{name}", True)


def test_r4_2_a_name_is_found_in_every_part_of_a_tool_that_speaks_of_calls() -> None:
    for tool, at in (
        ({"properties": {"_modul": {"const": "x"}}}, "/tools/t/properties/_modul"),
        ({"allOf": [{"properties": {"_modul": {"const": "x"}}}]}, "/tools/t"),
    ):
        (found,) = problems({"context": [], "tools": {"t": tool}, "solution": {"calls": []}})
        assert found.pointer == at


@pytest.mark.parametrize("named", ["_scopes", "_imports", "_delegate", "_module"])
def test_r4_1_a_strict_tool_admits_both_names_of_what_it_speaks_of(named: str) -> None:
    tool = Tool("t", {"properties": {named: {}}, "additionalProperties": False})
    property_ = "_scopes" if named in ("_scopes", "_imports") else "_delegate"
    assert tool.problems({"_tool": "t", property_: ["state"]}, strict_meta=True) == []


def test_r4_1_other_unknown_meta_properties_are_admitted() -> None:
    assert checked(call("give", value=1, _note="x", _outputs=1)).calls
