"""The annotated drawing: branches, fan-out and executors told apart, in Mermaid that parses (SPEC R6.7)."""

from __future__ import annotations

import re
from math import isqrt

from acts_celery.protocol import Plan, check_submission
from acts_celery.protocol.analysis.findings import LEGEND, MOST_ARROWS

from .building import ANY, call, checked, plan_submission

NODE = re.compile(r'    c\d+(\["[^"]*"\]|\[\["[^"]*"\]\]|\(\["[^"]*"\]\)|\[/"[^"]*"/\])(:::[a-z]+)?')
EDGE = re.compile(r'    c\d+ (-->|-\.->)\|"[^"|]+"\| c\d+')
OTHER = re.compile(r"    (%% [^{}]*|classDef [a-z]+ [a-z0-9:#,\- ]+|style c\d+ stroke-width:3px)")


def drawn(plan: Plan) -> list[str]:
    """The lines of a drawing, each of which Mermaid's flowchart grammar knows."""
    first, *lines = plan.to_mermaid(annotated=True).splitlines()
    assert first == "flowchart TD"
    assert all(NODE.fullmatch(line) or EDGE.fullmatch(line) or OTHER.fullmatch(line) for line in lines), lines
    return lines


def test_branches_are_dashed_and_fan_out_is_bold() -> None:
    plan = checked(
        call("find", to="†state.good || †state.bad"),
        call("ask", _delegate="d", value="†state.good", to="†state.said"),
        {"_tool": "think", "_output": 1, "_outputPath": "†state.t", "about": "†state.bad"},
        call("log", event="†state.said || †state.t"),
        {"_tool": "think"},
        activities={"find": ANY, "log": ANY},
    )
    lines = drawn(plan)
    assert lines[: len(LEGEND)] == [f"    {line}" for line in LEGEND]
    assert lines[len(LEGEND) :] == [
        '    c0["0 find"]',
        '    c1[["1 ask"]]:::delegate',
        '    c2(["2 think"]):::latent',
        '    c3[/"3 log"/]:::background',
        '    c0 -.->|"if †state.good"| c1',
        '    c0 -.->|"if †state.bad"| c2',
        '    c1 -->|"†state.said"| c3',
        '    c2 -.->|"or †state.t"| c3',
        "    classDef delegate fill:#e8f0fe,stroke:#3367d6,color:#000",
        "    classDef latent fill:#fef7e0,stroke:#b06000,color:#000",
        "    classDef background fill:#f1f3f4,stroke:#80868b,color:#000,stroke-dasharray:4 3",
        "    style c0 stroke-width:3px",
    ]


def test_what_is_read_only_where_nothing_else_is_there_is_dashed() -> None:
    held = [{"type": "state", "a": 1}]
    plan = checked(call(to="†state.b"), call(value="†state.a || †state.b"), context=held)
    assert '    c0 -.->|"or †state.b"| c1' in drawn(plan)


def test_a_reader_of_either_branch_gets_a_value_for_certain() -> None:
    plan = checked(call(to="†data.a || †data.b"), call(value="†data.a || †data.b"))
    assert '    c0 -->|"†data.a, †data.b"| c1' in drawn(plan)


def test_names_and_paths_cannot_break_out_of_their_labels() -> None:
    evil = 'x"]; click c0 "javascript:1" --> c1 | <b>&#123;%% end'
    plan = checked(call(evil, to='†data["a\\"|]\\n c9"]'), call(evil, value='†data["a\\"|]\\n c9"]'))
    lines = drawn(plan)
    assert sum("-->|" in line for line in lines) == 1


def test_instances_are_one_node() -> None:
    context = [{"type": "text", "_instance": name} for name in ("①", 'a"b', "③")]
    value = plan_submission(call(), call(_instance='a"b'), context=context)
    lines = drawn(check_submission(value))
    assert '    c0[/"0 give<br/>× 3 instances"/]:::background' in lines
    assert '    c1[/"1 give<br/>a&quot;b"/]:::background' in lines


def test_the_plain_drawing_has_neither_legend_nor_styles() -> None:
    assert "%%" not in checked(call()).to_mermaid()


def test_a_drawing_says_how_many_arrows_it_leaves_out() -> None:
    many = isqrt(MOST_ARROWS) + 1
    plan = checked(*[call(to="†state.x")] * many, *[call(value="†state.x")] * many)
    assert len(plan.edges) == many**2
    left_out = f"    %% {many**2 - MOST_ARROWS} more arrows are not drawn: the edges of the plan list all"
    for lines in (drawn(plan), plan.to_mermaid().splitlines()):
        assert sum(EDGE.fullmatch(line) is not None for line in lines) == MOST_ARROWS
        assert left_out in lines
