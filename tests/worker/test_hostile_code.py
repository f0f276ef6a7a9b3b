"""Whatever an activity raises or returns, its call ends, and the worker goes on (SPEC R7.2)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from acts_celery.broker_config import EmbeddedServer

from .backend import Backend, Meeting, settings_for, status_of


@pytest.fixture(scope="module")
def hostile(server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """A worker that may suffer."""
    settings = settings_for(server, key_prefix="hostile", queue_instances="hostile-instances", limit_attempts=1)
    running = Backend(settings, meeting, tmp_path_factory.mktemp("hostile"))
    with running.worker("-Q", "hostile-instances"):
        yield running


ENDINGS = ["speechless", "surrogate", "wordy", "odd type", "odd kind", "odd path", "no path", "cancels"]
# What ends a process comes last: a worker that does not survive it would make all the others fail.
FATAL = ["exits", "interrupts"]
CASES = [("misbehave", "cancels its task")]
CASES += [(tool, how) for group in (ENDINGS, FATAL) for tool in ("misbehave", "misbehavePlain") for how in group]


@pytest.mark.parametrize(("tool", "how"), CASES)
def test_a_misbehaving_activity_ends_its_own_call_only(hostile: Backend, tool: str, how: str) -> None:
    calls = [
        {"_tool": tool, "how": how, "_outputPath": "†state.a"},
        {"_tool": "echo", "value": 1, "_outputPath": "†state.b"},
    ]
    run = hostile.client.submit(solution={"calls": calls})
    result = run.wait(timeout_seconds=3)
    assert status_of(result, 1) == "done"
    assert status_of(result, 0) == "failed"
    error = result.calls[0].error
    assert error is None or len(error["message"]) < 100_000
