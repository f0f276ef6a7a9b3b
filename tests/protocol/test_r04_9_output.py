"""SPEC R4.8, R4.9: results that models have written, and the output of a solution."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from acts_celery.protocol import Conflict, Context, Unresolved, check_submission
from acts_celery.protocol.engine.outcomes import holds_references, output_fault, resolve_output
from acts_celery.protocol.plan.submission import output_problems

from .building import call, checked, problems, run, statuses, submission, written

# R4.8


@pytest.mark.parametrize("method", ["set", "push", "concat"])
def test_r4_8_results_written_by_models_are_appended_in_the_order_listed(method: str) -> None:
    values: list[Any] = [["a"], ["b"], ["c"]] if method == "concat" else ["a", "b", "c"]
    calls = [
        {"_tool": "think", "_output": value, "_outputPath": "†state.said", "_outputMethod": method} for value in values
    ]
    result = run(*calls, activities={})
    assert [entry.outcome.index for entry in result.log] == [0, 1, 2]
    assert result.data[None]["state"]["said"] == ("c" if method == "set" else ["a", "b", "c"])


def test_r4_8_they_come_before_the_results_of_calls_that_are_carried_out() -> None:
    thoughts = [{"_tool": "think", "_output": n, "_outputPath": "†state.l", "_outputMethod": "push"} for n in (1, 3)]
    result = run(thoughts[0], call(to="†state.l", value=2, _outputMethod="push"), thoughts[1], activities={"give": {}})
    assert result.data[None]["state"]["l"] == [1, 3, 2]


def test_r4_8_one_that_is_refused_leaves_the_others_in_their_order() -> None:
    calls = [
        {"_tool": "think", "_output": value, "_outputPath": "†state.l", "_outputMethod": "concat"}
        for value in (["a"], "b", ["c"])
    ]
    result = run(*calls, activities={})
    assert statuses(result) == ["done", "failed", "done"]
    assert result.data[None]["state"]["l"] == ["a", "c"]


# R4.9


CONTEXT: list[dict[str, Any]] = [
    {"type": "state", "user": {"name": "Alex"}, "text": "†state.user"},
    {"type": "state", "_instance": "①", "x": 1},
]


def found(output: Any, *calls: Any) -> list[tuple[str, str]]:
    plan = checked(*calls, context=CONTEXT)
    problems = output_problems(output, plan.context, plan.calls, "solution", "output")
    return [(problem.pointer, problem.message) for problem in problems]


def test_r4_9_references_at_any_depth_are_read_as_a_global_reader() -> None:
    output = {"name": "†state.user.name", "list": ["†state.no || †state.user", 5, {"deep": "††state"}], "†key": None}
    assert resolve_output(output, Context(CONTEXT).fold()) == {
        "name": "Alex",
        "list": [{"name": "Alex"}, 5, {"deep": "†state"}],
        "†key": None,
    }


def test_r4_9_what_was_read_is_not_read_again() -> None:
    assert resolve_output("†state.text", Context(CONTEXT).fold()) == "†state.user"


@pytest.mark.parametrize("output", [None, 5, "text", ["a", {"b": "state.user"}]])
def test_r4_9_an_output_without_references_is_itself(output: Any) -> None:
    assert not holds_references(output)
    assert resolve_output(output, Context().fold()) == output
    assert found(output) == []


@pytest.mark.parametrize("output", ["†state.x", ["†state.user.name && †state.gone"]])
def test_r4_9_one_that_cannot_be_read_is_named(output: Any) -> None:
    with pytest.raises(Unresolved, match="†state"):
        resolve_output(output, Context(CONTEXT).fold())


def test_r4_9_a_conflict_is_none_that_can_be_read() -> None:
    context = Context([*CONTEXT, written("†state.text", 1, "push")])
    with pytest.raises(Conflict, match=r"†state\.text"):
        resolve_output(["†state.text"], context.fold())


def test_r4_9_an_output_that_does_not_parse_is_a_structural_error_with_its_place() -> None:
    ((pointer, message),) = found({"a": ["x", "†state..x"]})
    assert pointer == "/solution/output/a/1"
    assert "does not parse" in message


def test_r4_9_a_reference_that_nothing_can_satisfy_is_a_structural_error() -> None:
    calls = [call(to="†state.made", value=1), call(to="†state.own", value=1, _instance="①")]
    assert found(["†state.made.deep", "†state.user", "†state.gone || †state.made", "†state"], *calls) == []
    unresolvable = found({"a": "†state.gone", "b": "†state.own", "c": "†state.made && †state.x"}, *calls)
    assert [pointer for pointer, _ in unresolvable] == [f"/solution/output/{key}" for key in "abc"]
    assert unresolvable[0][1].startswith("unresolvable reference †state.gone: ")


def test_r4_9_an_output_that_can_never_be_read_is_a_structural_error() -> None:
    def submitted(output: Any) -> dict[str, Any]:
        value = submission(call(to="†state.made"), call(to="†state.own", _instance="①"), context=CONTEXT)
        value["solution"]["output"] = output
        return value

    assert check_submission(submitted(["†state.made", "†state.user"])).size == 2
    found = problems(submitted({"a": "†state.own", "b": ["†state..x"], "c": "†state.gone || †state.made"}))
    assert [problem.pointer for problem in found] == ["/solution/output/a", "/solution/output/b/0"]


def test_r4_9_an_output_holds_templates_too() -> None:
    output = {"said": "Dear †{state.user.name}: †{state.text} †{state.no || state.user}", "list": ["††{state.x}"]}
    assert holds_references(output)
    assert resolve_output(output, Context(CONTEXT).fold()) == {
        "said": 'Dear Alex: †state.user {"name":"Alex"}',
        "list": ["†{state.x}"],
    }
    assert found(output) == []
    assert [at for at, _ in found({"a": ["†{state.x} †{state.gone}"], "b": "†{state..x}"})] == [
        *("/solution/output/a/0", "/solution/output/a/0", "/solution/output/b"),
    ]
    with pytest.raises(Unresolved, match=r"†state\.gone"):
        resolve_output("a †{state.gone}", Context(CONTEXT).fold())


def test_r4_9_a_template_is_a_text_in_the_output() -> None:
    tools = {"give": {"type": "object"}}
    value = submission(call(to="†state.n", value=1), schema={"type": "integer"}, tools=tools)
    value["solution"]["output"] = "†{state.n}"
    (problem,) = problems(value)
    assert (problem.pointer, problem.message) == (
        "/solution/output",
        "a template is a text, and no text is admitted here: write †state.n for the value itself",
    )


@pytest.mark.parametrize("reading", ["†state.long", "†{state.long} †{state.long}"])
def test_r4_9_an_output_is_measured_before_it_is_made(reading: str) -> None:
    fold = Context([{"type": "state", "long": "x" * 1_000_000}]).fold()
    assert output_fault([reading] * 4, fold) is None
    tracemalloc.start()
    fault = output_fault([reading] * 5_000, fold)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert fault == "the output cannot be read: it comes to more than 16777216 bytes, or 250000 objects and lists"
    assert peak < 60_000_000
