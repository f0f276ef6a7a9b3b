"""The picture of a run (`acts show --mermaid`)."""

from __future__ import annotations

from acts_celery import CallResult, Result
from acts_celery.worker.client.results import TickResult
from acts_celery.worker.client.run import draw


def call(index: int, status: str = "done", instance: str | None = None, **more: object) -> CallResult:
    return CallResult(f"{index}:{instance}", index, "look|up", instance, status, **more)  # type: ignore[arg-type]


def result(*calls: CallResult, ticks: int | None = None, output: object = None) -> Result:
    made = None if ticks is None else tuple(TickResult(number, "m") for number in range(ticks))
    return Result("1-a", "completed", output, {}, {}, calls, ticks=made)


def test_ticks_lead_to_their_calls_and_these_to_the_next_tick() -> None:
    lines = [
        line.strip()
        for line in draw(
            result(call(0, tick=0), call(1, "failed", tick=0), call(2, tick=1), ticks=2, output=7)
        ).splitlines()
    ]
    assert [line for line in lines if "-->" in line] == [
        "rt0 --> rc0",
        "rt0 --> rc1",
        "rc0 --> rt1",
        "rc1 --> rt1",
        "rt1 --> rc2",
        "rc2 --> rend",
    ]
    assert 'rc0["0 look#124;up<br/>done"]' in lines
    assert "class rc1 failed" in lines
    assert 'rend(["completed: 7"])' in lines


def test_instances_of_a_call_are_one_node_that_shows_the_worst() -> None:
    drawn = draw(result(call(0, instance="①"), call(0, "failed", instance="②")))
    assert '["0 look#124;up ×2<br/>failed"]' in drawn


def test_a_child_run_is_drawn_inside_its_call() -> None:
    inside = result(call(0, tick=0), ticks=1, output="cocoa")
    drawn = draw(result(call(0, child="2-b")), {"2-b": inside}.get)
    assert 'subgraph rc0["0 look#124;up<br/>done"]' in drawn
    assert 'rc0_end(["completed: #34;cocoa#34;"])' in drawn
