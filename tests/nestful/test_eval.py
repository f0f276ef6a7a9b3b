"""NESTFUL as cases of `acts eval`: each valid sequence is a request, the model's answer is its calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from .command import acts
from .source import RESULT_KEY, RESULT_TOOL, Flow
from .test_nestful import LITERAL
from .verdicts import Verdicts

pytestmark = pytest.mark.nightly


def said(flow: Flow) -> str:
    return f"Request {flow.instance}: {flow.request}"


def case(verdicts: Verdicts, flow: Flow) -> dict[str, Any]:
    tools = verdicts.submission([flow])["tools"]
    submission = {
        "context": [{"type": "text", "message": said(flow)}],
        "tools": {call.name: tools[call.name] for call in flow.calls if call.name != RESULT_TOOL},
        "schema": {},
        "config": {"ticks": 1},
    }
    expected = verdicts.expected[flow.instance].state[RESULT_KEY]
    return {"name": flow.instance, "submission": submission, "expect": {"value": expected}}


def answer(verdicts: Verdicts, flow: Flow) -> dict[str, Any]:
    """Its calls, and what the last one collects as the output."""
    calls = verdicts.submission([flow])["solution"]["calls"]
    *own, result = ({name: value for name, value in call.items() if name != "_instance"} for call in calls)
    return {"calls": own, "output": {name: value for name, value in result.items() if not name.startswith("_")}}


def written(file: Path, lines: Sequence[Any]) -> Path:
    file.write_text("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines), "utf-8")
    return file


def has_undeclared(verdicts: Verdicts, flow: Flow) -> bool:
    """Whether it gives a tool a parameter that the tool does not declare, which a model cannot."""
    tools = verdicts.dataset.tools
    own = [call for call in flow.calls if call.name != RESULT_TOOL]
    return any(not call.arguments.keys() <= tools[call.name].parameters.keys() for call in own)


def test_acts_eval_tells_a_model_that_plans_the_sequences_from_one_that_answers_without_calls(
    verdicts: Verdicts, tmp_path: Path
) -> None:
    flows = [flow for flow in verdicts.valid if RESULT_KEY in verdicts.expected[flow.instance].state]
    written(tmp_path / "submission.json", [case(verdicts, flow) for flow in flows])
    plans = [{"when": f"Request {flow.instance}:", "answer": answer(verdicts, flow)} for flow in flows]
    halves = [{**one, "answer": {"output": {}}} if number % 2 else one for number, one in enumerate(plans)]
    models = {
        name: {"model": f"scripted:{written(tmp_path / f'{name}.jsonl', script)}"}
        for name, script in (("plans", plans), ("half", halves))
    }
    ended = acts("eval", tmp_path, "--model", "plans", "--model", "half", "--json", models=models)
    assert ended.code == 1, ended.stderr
    found = {(one["case"], one["model"]): one["difference"] for one in ended.document["cases"]}
    assert len(found) == 2 * len(flows) > 200
    for number, flow in enumerate(flows):
        said, half = found[flow.instance, "plans"], found[flow.instance, "half"]
        if has_undeclared(verdicts, flow):
            assert "Additional properties are not allowed" in said, flow.instance
        elif said is not None:  # a text that reads as a place (SPEC R12.6b)
            assert flow.instance in LITERAL, (flow.instance, said)
        assert half == said if number % 2 == 0 else "missing; " in half, (flow.instance, half)
    passed = [sum(found[flow.instance, name] is None for flow in flows) for name in ("plans", "half")]
    assert passed[0] > 120 > passed[1] > 50
    assert [each["passed"] for each in ended.document["models"]] == passed
