"""Laws of resolved values (SPEC R2.2, R2.4, R2.6): data is never parsed, whatever it looks like."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from acts_celery.protocol import Output, check_submission

from .building import call, run, run_plan, submission
from .laws import law
from .strategies import JSON_VALUES, json_values

_TEXTS = (
    *("†{state.secret}", "††{state.secret}", "a †{", "†state.secret", "††state.secret", "†", "†state.secret || †input"),
    *("†state.", "† "),
)
_hostile = st.sampled_from([*(like for text in _TEXTS for like in (text, [text], {text: [text]})), *JSON_VALUES])


@law
@given(_hostile, _hostile)
def test_data_that_looks_like_a_reference_is_never_resolved_wherever_it_comes_from(value: Any, other: Any) -> None:
    seen: list[Any] = []

    def make(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
        return Output("†state.made", value)

    def look(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
        seen.append([dict(parameters), dict(context)])
        return seen[-1]

    result = run(
        call("make", to="†state.made"),
        {"_tool": "think", "_output": other, "_outputPath": "†state.thought"},
        call(to="†state.all", value=["†state.made", {"x": "†state.thought"}, "†input.v"]),
        call(to="†state.pushed", value="†state.all", _outputMethod="push"),
        call(to="†state.text", value="†{state.made}†††{input.v || state.secret}."),
        call("look", to="†state.looked", value="†state.pushed.0.1.x", _scopes=["input", "†state.thought"]),
        context=[{"type": "input", "input": {"v": value}}, {"type": "state", "secret": "SECRET"}],
        functions={"make": make, "look": look},
        activities={"make": {}, "give": {}, "look": {}},
    )
    state = result.data[None]["state"]
    everything = [value, {"x": other}, value]
    assert (state["made"], state["thought"], state["all"], state["pushed"]) == (value, other, everything, [everything])
    assert state["text"] == f"{_text(value)}†{_text(value)}."
    assert state["looked"] == seen[0] == [{"value": other}, {"input": {"v": value}, "state": {"thought": other}}]
    assert "SECRET" not in json.dumps([message["data"] for message in result.messages]) + json.dumps(seen)


def _text(value: Any) -> str:
    return (
        value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    )


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("†", "††")
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    return {key: _escaped(item) for key, item in value.items()} if isinstance(value, dict) else value


@given(json_values)
def test_every_value_can_be_written_as_a_literal_parameter(value: Any) -> None:
    plan = check_submission(submission(call(to="†state.v", value=_escaped(value))))
    assert run_plan(plan).data[None]["state"] == {"v": value}
