"""The agent of `six_tools` runs, whatever stands between it and its model."""

from __future__ import annotations

import json
from pathlib import Path

from acts_celery import local

from . import six_tools


def test_the_agent_of_six_tools_runs_with_a_scripted_model(tmp_path: Path) -> None:
    script = tmp_path / "answers.json"
    first = {"when": "", "answer": {"calls": six_tools.CALLS, "output": None}, "times": 1}
    script.write_text(json.dumps([first, {"when": "", "output": six_tools.OUTPUT}]), "utf-8")
    with local([six_tools.ACTIVITIES], model=f"scripted:{script}") as client:
        result = client.submit_document(six_tools.REQUEST).wait()
    assert {call.status for call in result.calls} == {"done", "sent"}, result.calls
    assert [call.tool for call in result.calls] == [*(call["_tool"] for call in six_tools.CALLS)]
    assert result.output == six_tools.EXPECTED
