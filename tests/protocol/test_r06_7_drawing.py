"""SPEC R6.7: the graph without running anything."""

from __future__ import annotations

from typing import Any

from acts_celery.protocol import Plan, check_submission
from acts_celery.protocol.plan.graph import SPELLED_OUT, Graph

from .building import (
    ANY,
    call,
    checked,
    plan_submission,
)

X = [{"type": "state", "x": 0}]


def waits(plan: Plan, index: int, lane: str | None = None) -> tuple[int, ...]:
    """The calls a call waits for."""
    return plan.lanes[lane].graph.before(index)


# R6.7


def test_r6_7_waves_list_what_can_run_at_the_same_time() -> None:
    plan = checked(
        call(to="†state.a"),
        call(to="†state.c", value="†state.b"),
        call(to="†state.b", value="†state.a"),
        call(to="†state.d", value="†state.a"),
        call(event="†state.c"),
        call(),
    )
    assert plan.waves == ((0, 5), (2, 3), (1,), (4,))


def test_r6_7_waves_of_instances_come_after_the_global_calls_they_wait_for() -> None:
    context = [{"type": "text", "_instance": "①"}]
    plan = checked(
        call(to="†state.a"),
        call(to="†state.b", value="†state.a"),
        call(value="†state.b", _instance="①"),
        context=context,
    )
    assert plan.waves == ((0,), (1,), (2,))


def test_r6_7_the_graph_is_had_as_data() -> None:
    plan = checked(call(to="†state.a"), call(value="†state.a"))
    nothing: dict[str, list[Any]] = {"findings": [], "promised": [], "scopes": [], "held": []}
    assert plan.to_dict() == {"waves": [[0], [1]], "edges": [[0, 1]], **nothing}


def test_r6_7_of_many_writers_in_a_row_the_edges_name_the_nearest() -> None:
    plan = checked(*[call(to="†state.x", value="†state.x")] * 50, context=X)
    assert (48, 49) in plan.edges
    assert len(plan.edges) < 50 * SPELLED_OUT
    assert len(plan.waves) == 50


def test_r6_7_of_many_independent_writers_the_edges_name_each() -> None:
    many = 2 * SPELLED_OUT
    writers = [call(to=f"†state.l.k{i}") for i in range(many)]
    reader = call(value="†state.l")
    plan = checked(*writers, reader, *[call(to="†state.l.x")] * 3, reader)
    first, last = [(i, many) for i in range(many)], [(i, many + 4) for i in (*range(many), *range(many + 1, many + 4))]
    assert sorted(plan.edges) == sorted([*first, *last])


def test_r6_7_the_graph_is_drawn_as_a_mermaid_flowchart() -> None:
    plan = checked(
        call("find", to="†state.good || †state.bad"),
        {"_tool": 'say "<hi>" #1;', "_delegate": "d", "value": "†state.good", "_outputPath": "†state.said"},
        {"_tool": "think", "_output": 1, "_outputPath": "†state.t", "about": "†state.bad"},
        call("log", event="†state.said"),
        activities={"find": ANY, "log": ANY},
    )
    assert plan.to_mermaid().splitlines() == [
        "flowchart TD",
        '    c0["0 find"]',
        '    c1[["1 say &quot;&lt;hi&gt;&quot; #35;1;"]]',
        '    c2(["2 think"])',
        '    c3[/"3 log"/]',
        '    c0 -->|"†state.good ?"| c1',
        '    c0 -->|"†state.bad ?"| c2',
        '    c1 -->|"†state.said"| c3',
    ]


def test_r6_7_instances_of_one_call_are_one_node() -> None:
    context = [{"type": "text", "_instance": name} for name in "①②③"]
    drawing = check_submission(plan_submission(call(), call(_instance="②"), context=context)).to_mermaid()
    assert '    c0[/"0 give<br/>× 3 instances"/]' in drawing.splitlines()
    assert '    c1[/"1 give<br/>②"/]' in drawing.splitlines()


def test_r6_7_a_graph_without_calls_is_empty() -> None:
    graph = Graph({})
    assert (graph.before(0), list(graph.cycles()), graph.levels({}), graph.awaited) == ((), [], {}, frozenset())
    assert checked().waves == ()
