"""One large random submission, executed by two worker processes: every value and status is the naive evaluator's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import pytest

from acts_celery.broker_config import EmbeddedServer
from tests.protocol import naive
from tests.protocol.authoring import EXPLICIT, LATENT, Author

from .backend import FIXTURES, Backend, Meeting, meeting_url, settings_for

PURE = FIXTURES / "pure_activities.py"
SEED = 20_261_121
INSTANCES = [f"i{number}" for number in range(150)]

Json = dict[str, Any]


def _stamp(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    return {"in": parameters["value"], "by": 0}


def _activity(tool: str) -> str:
    return tool if tool in LATENT else f"pure{tool.capitalize()}"


FUNCTIONS = {_activity(tool): function for tool, function in {**EXPLICIT, **LATENT, "stamp": _stamp}.items()}


@pytest.fixture
def two_workers(tmp_path: Path) -> Iterator[Backend]:
    """A server of its own with two worker processes."""
    import_module("tests.worker.fixtures.pure_activities")  # registered in this process too
    with EmbeddedServer() as server:
        backend = Backend(settings_for(server, activities=(str(PURE),)), Meeting(meeting_url(server)), tmp_path)
        with backend.worker(), backend.worker():
            yield backend


def large_submission() -> Json:
    """Some 1,000 calls in 150 instances and the global lane."""
    submission = Author(Random(SEED), INSTANCES).large_submission(shapes=2)
    for call in submission["solution"]["calls"]:
        call["_tool"] = _activity(call["_tool"])
    return submission


def part_of(submission: Json, instance: str) -> tuple[Json, list[int]]:
    """What an instance can see of a submission, with the indexes its calls have in the whole."""
    calls = submission["solution"]["calls"]
    indexes = [index for index, call in enumerate(calls) if call.get("_instance", instance) == instance]
    context = [message for message in submission["context"] if message.get("_instance", instance) == instance]
    return {"context": context, "solution": {"calls": [calls[index] for index in indexes]}}, indexes


def test_two_workers_give_every_value_and_status_that_the_naive_evaluator_gives(two_workers: Backend) -> None:
    submission = large_submission()
    thoughts = {i for i, c in enumerate(submission["solution"]["calls"]) if c["_tool"] in LATENT and "_output" not in c}
    run = two_workers.client.submit_document(submission)
    expected: dict[tuple[str | None, int], str] = {}
    values: dict[str | None, Mapping[str, Any]] = {}
    for instance in INSTANCES:
        part, indexes = part_of(submission, instance)
        assert naive.is_deterministic(part)
        verdict = naive.evaluate(part, FUNCTIONS)
        values.update({reader: _without_errors(data) for reader, data in verdict.data.items()})
        for lane, statuses in verdict.statuses.items():
            for index, status in statuses.items():
                expected[lane, indexes[index]] = "latent" if indexes[index] in thoughts else status
    result = two_workers.wait(run.id)
    assert len(result.calls) == len(expected) > 900
    assert {(call.instance, call.index): call.status for call in result.calls} == expected
    assert {"done", "failed", "skipped", "sent", "latent"} == set(expected.values())
    assert {reader: _without_errors(result.data(reader)) for reader in values} == values
    assert result.conflicts == ()
    messages = [entry.message["_call"] for entry in run.log() if "_call" in entry.message]
    assert len(messages) >= sum(status == "done" for status in expected.values())


def _without_errors(data: Mapping[str, Any]) -> Json:
    return {kind: value for kind, value in data.items() if kind != "error"}
