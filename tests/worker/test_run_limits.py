"""What one run may take in all: bytes of its log, and work of its schemas. Beyond, it fails as it stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from acts_celery import RunOver
from acts_celery.protocol import Rejected

from .backend import Backend, Meeting
from .loops import LOOP_MODEL, Asked, answer

HEAVY = {"items": {"anyOf": [*({"multipleOf": 7 + number} for number in range(1_200)), {"type": "integer"}]}}
"""Looks more than a thousand times at each element."""


@pytest.fixture(scope="module")
def small(backend: Backend, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """A worker under whose settings a run may take little."""
    names = {f"queue_{of}": f"few-{of}" for of in ("instances", "delegates", "background", "reports")}
    little = {"limit_run_bytes": 20_000, "limit_run_schema_work": 1_000_000}
    model = {"model": "told:told", "activities": (*backend.settings.activities, str(LOOP_MODEL))}
    settings = backend.settings.model_copy(update={"key_prefix": "few", **names, **little, **model})
    running = Backend(settings, meeting, tmp_path_factory.mktemp("few"))
    with running.worker("-Q", "few-instances,few-delegates"):
        yield running


def chain(value: Any, length: int) -> list[dict[str, Any]]:
    """Calls one behind the other, each with this value as its result."""
    first = {"_tool": "echo", "value": value, "_outputPath": "†data.p0"}
    rest = [{"_tool": "echo", "value": f"†data.p{n}", "_outputPath": f"†data.p{n + 1}"} for n in range(length - 1)]
    return [first, *rest]


def test_a_run_that_writes_more_than_it_may_fails_with_the_reason_and_keeps_what_it_has(small: Backend) -> None:
    result = small.run(chain("x" * 1_000, 40))
    assert (result.status, result.reason) == (
        "failed",
        "more than 20000 bytes have been written to its log (ACTS_LIMIT_RUN_BYTES)",
    )
    ended = [call.status for call in result.calls]
    assert 5 < ended.count("done") < 30
    assert ended.count("done") + ended.count("skipped") == 40
    assert result.calls[-1].reason == result.reason
    (summary,) = (each for each in small.client.runs() if each.run == result.run)
    assert summary.calls == small.client.run(result.run).status()["calls"]
    assert not {"running", "waiting"} & set(summary.calls)
    run = small.client.run(result.run)
    assert run.status()["calls"] == {"done": ended.count("done"), "skipped": ended.count("skipped")}
    with pytest.raises(RunOver):
        run.amend([{"_tool": "echo", "value": 1, "_outputPath": "†data.z"}], add=True)
    assert run.result(at=next(iter(run.follow())).id).reason is None


def test_a_run_that_has_taken_too_much_says_so_though_its_output_cannot_be_read_either(small: Backend) -> None:
    run = small.client.submit([], {"calls": chain("x" * 1_000, 40), "output": "†data.p39"})
    assert small.wait(run.id).reason == "more than 20000 bytes have been written to its log (ACTS_LIMIT_RUN_BYTES)"


def test_a_run_whose_schemas_take_more_than_they_may_fails_with_the_reason(small: Backend) -> None:
    tools = {"echo": {"type": "object", "_output": HEAVY}}
    fine = small.run(chain([1] * 100, 3), tools=tools)
    assert (fine.status, fine.reason) == ("completed", None)
    result = small.run(chain([1] * 100, 40), tools=tools)
    assert result.status == "failed"
    assert "validation budget of a run" in str(result.reason)


def test_what_takes_little_is_not_counted(backend: Backend) -> None:
    result = backend.run(chain([1] * 10, 5))
    state = backend.redis.hgetall(f"{backend.settings.key_prefix}:{{{result.run}}}:state")
    assert (result.status, b"work" in state) == ("completed", False)
    assert int(state[b"bytes"]) > 0


def test_messages_that_are_sent_count_and_are_refused_beyond(small: Backend) -> None:
    document = {
        "context": [{"type": "input", "schema": {"type": "object", "properties": {"go": {}}, "required": ["go"]}}],
        "solution": {"calls": [{"_tool": "echo", "value": "†input.go", "_outputPath": "†data.went"}]},
        "config": {"promise_seconds": 60},
    }
    run = small.client.submit_document(document)
    for _ in range(3):
        run.send({"type": "state", "state": {"text": "x" * 6_000}})
    with pytest.raises(Rejected, match=r"18\d\d\d bytes have been written .* 20000 \(ACTS_LIMIT_RUN_BYTES\)"):
        run.send({"type": "state", "state": {"text": "x" * 6_000}})
    run.send({"type": "input", "input": {"go": 1}})
    assert small.wait(run.id).status == "completed"


def test_what_a_loop_writes_counts(small: Backend) -> None:
    told = Asked(small, answer(output="x" * 19_000), answer(output=1))
    result = told.result()
    assert (result.status, result.reason) == (
        "failed",
        "more than 20000 bytes have been written to its log (ACTS_LIMIT_RUN_BYTES)",
    )


def test_what_is_said_to_a_loop_is_refused_beyond(small: Backend) -> None:
    told = Asked(small, answer(output=1))
    assert told.result().status == "completed"
    with pytest.raises(Rejected, match="ACTS_LIMIT_RUN_BYTES"):
        told.run.say("x" * 20_000)
    assert told.run.status()["status"] == "completed"
