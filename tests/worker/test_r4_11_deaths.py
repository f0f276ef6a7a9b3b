"""One death of a worker counts once for each call that was at work in it, and the calls beside the one that kills its
workers end (SPEC R4.11).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from acts_celery import Result
from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.fairness import alone_from

from .backend import Backend, Meeting, settings_apart, status_of

OTHERS = 9


def backend_with(server: EmbeddedServer, meeting: Meeting, folder: Path, attempts: int) -> Backend:
    """A backend whose calls may lose so many workers."""
    how = {"lease_seconds": 1.5, "sweep_interval_seconds": 0.2, "limit_attempts": attempts}
    return Backend(settings_apart(server, folder.name, **how), meeting, folder)


def ended(backend: Backend, run: str) -> Result:
    """The result of a run whose workers may die; each is followed by another one."""
    while True:
        with backend.worker() as worker:
            while worker.poll() is None:
                with suppress(TimeoutError):
                    return backend.client.run(run).wait(timeout_seconds=0.3)


def records(meeting: Meeting, name: str) -> list[Any]:
    """All records under a name."""
    return [meeting.take(name) for _ in range(meeting.count(name))]


def calls_of(tool: str, name: str, shared: int) -> list[Mapping[str, Any]]:
    """Nine calls, and one among them that kills its worker."""
    parts = {"name": name, "shared": shared, "others": OTHERS}
    code = {"_delegate": tool} if tool == "perhapsKillsElsewhere" else {}
    return [
        {"_tool": tool, **code, **parts, "kills": index == 4, "_outputPath": f"†state.v{index}"}
        for index in range(OTHERS + 1)
    ]


@pytest.mark.parametrize("attempts", [2, *(pytest.param(most, marks=pytest.mark.nightly) for most in (3, 5))])
def test_r4_11_nine_calls_in_a_lane_end_beside_one_that_kills_its_workers(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path, attempts: int
) -> None:
    backend, name = backend_with(server, meeting, tmp_path, attempts), tmp_path.name
    shared = alone_from(attempts)
    run = backend.client.submit(solution={"calls": calls_of("perhapsKills", name, shared)})
    result = ended(backend, run.id)
    assert [call.status for call in result.calls] == ["failed" if n == 4 else "done" for n in range(OTHERS + 1)]
    assert (result.calls[4].error or {})["type"] == "WorkerLost"
    assert set(result.data()["state"].values()) == {shared + 1}
    begun = Counter(index for index, _, _ in records(meeting, f"begun:{name}"))
    assert begun == {n: attempts if n == 4 else shared + 1 for n in range(OTHERS + 1)}
    assert records(meeting, f"company:{name}") == [0] * (attempts - shared)


@pytest.mark.parametrize("tool", ["perhapsKillsFar", pytest.param("perhapsKillsElsewhere", marks=pytest.mark.nightly)])
def test_r4_11_nine_remote_calls_end_beside_one_that_kills_its_workers(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path, tool: str
) -> None:
    backend, name = backend_with(server, meeting, tmp_path, 5), tmp_path.name
    result = ended(backend, backend.client.submit(solution={"calls": calls_of(tool, name, 2)}).id)
    assert [call.status for call in result.calls] == ["failed" if n == 4 else "done" for n in range(OTHERS + 1)]
    assert (result.calls[4].error or {})["type"] == "WorkerLost"
    assert max(records(meeting, f"company:{name}")) == 0


@pytest.mark.nightly
def test_r4_11_elements_end_beside_one_that_kills_its_workers(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path
) -> None:
    backend, name = backend_with(server, meeting, tmp_path, 3), tmp_path.name
    context = [{"type": "state", "kills": [n == 4 for n in range(OTHERS + 1)]}]
    how = {"name": name, "shared": 2, "others": OTHERS, "_each": "kills", "_outputPath": "†state.all"}
    call = {"_tool": "perhapsKills", "kills": "†state.kills", **how}
    result = ended(backend, backend.client.submit(context, {"calls": [call]}).id)
    assert result.data()["state"]["all"] == [None if n == 4 else 3 for n in range(OTHERS + 1)]


@pytest.mark.nightly
def test_r4_11_lanes_that_share_a_process_with_a_killer_end(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path
) -> None:
    backend, name = backend_with(server, meeting, tmp_path, 3), tmp_path.name
    context = [{"type": "state", "_instance": f"i{n}", "kills": n == 4} for n in range(OTHERS + 1)]
    how = {"name": name, "shared": 2, "others": OTHERS, "_outputPath": "†state.attempt"}
    call = {"_tool": "perhapsKills", "kills": "†state.kills", **how}
    result = ended(backend, backend.client.submit([{"type": "plan", "calls": [call]}, *context]).id)
    assert {call.instance: call.status for call in result.calls} == {
        f"i{n}": "failed" if n == 4 else "done" for n in range(OTHERS + 1)
    }


@pytest.mark.parametrize("attempts", [1, 2, pytest.param(3, marks=pytest.mark.nightly), 5])
def test_r4_11_one_death_counts_once_and_no_call_that_was_claimed_is_skipped(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path, attempts: int
) -> None:
    """A charge beside one that kills its worker, and a call that reads that one's result."""
    backend, name = backend_with(server, meeting, tmp_path, attempts), tmp_path.name
    calls = [
        {"_tool": "charge", "name": name, "kills": False, "_outputPath": "†state.a"},
        {"_tool": "charge", "name": name, "kills": True, "_outputPath": "†state.b"},
        {"_tool": "echo", "value": "†state.b", "_outputPath": "†state.c"},
    ]
    result = ended(backend, backend.client.submit(solution={"calls": calls}).id)
    assert [status_of(result, index) for index in (1, 2)] == ["failed", "skipped"]
    assert (result.calls[1].error or {})["type"] == "WorkerLost"
    assert result.reason is None
    charged = Counter(records(meeting, f"charged:{name}"))
    assert charged[True] == attempts
    if attempts == 1:  # nobody knows whether it had ended, and it may not be begun again
        assert charged[False] <= 1
        assert status_of(result, 0) == "done" or (result.calls[0].error or {})["type"] == "WorkerLost"
    else:
        assert status_of(result, 0) == "done"
        assert charged[False] <= 1 + alone_from(attempts)


def test_r4_11_a_call_whose_end_was_written_does_not_share_in_the_death(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path
) -> None:
    backend, name = backend_with(server, meeting, tmp_path, 1), tmp_path.name
    calls = [
        {"_tool": "charge", "name": name, "kills": False, "_outputPath": "†state.a"},
        {"_tool": "waitAtGate", "gate": name, "value": True, "_outputPath": "†state.go"},
        {"_tool": "charge", "name": name, "kills": "†state.go", "_outputPath": "†state.b"},
    ]
    run = backend.client.submit(solution={"calls": calls})
    with backend.worker() as worker:
        next(event for event in run.follow() if event.kind == "call" and event.index == 0)
        meeting.open_gate(name)
        worker.wait()
    result = ended(backend, run.id)
    assert [status_of(result, index) for index in range(3)] == ["done", "done", "failed"]
    assert "its end is not known" in (result.calls[2].error or {})["message"]
