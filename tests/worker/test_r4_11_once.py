"""A call that runs at most once, or a person is asked (SPEC R4.11)."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

import pytest

from acts_celery import Result, Run
from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol import Rejected

from .backend import FIXTURES, RUN_SECONDS, Backend, Meeting, settings_apart, status_of
from .fixtures.ledger import KNOWN, STEPS
from .test_control_cli import command


@pytest.fixture
def ledger(server: EmbeddedServer, meeting: Meeting, tmp_path: Path) -> Backend:
    how = {"lease_seconds": 1.5, "sweep_interval_seconds": 0.2, "activities": (str(FIXTURES / "ledger_activities.py"),)}
    return Backend(settings_apart(server, tmp_path.name, **how), meeting, tmp_path)


def settled_or_asked(backend: Backend, run: Run, is_asked: Callable[[], Any]) -> Result | None:
    """The result of a run whose workers may die, each followed by another one; None once a person is asked."""
    given_up = time.monotonic() + RUN_SECONDS
    while True:
        with backend.worker() as worker:
            while worker.poll() is None:
                assert time.monotonic() < given_up, run.status()
                with suppress(TimeoutError):
                    return run.wait(timeout_seconds=0.3)
                if is_asked():
                    return None


def asked(backend: Backend, *calls: Any, context: Any = (), **parts: Any) -> tuple[Run, Result | None]:
    """A run of these calls, whose workers may die, and its result; None once a person is asked."""
    run = backend.client.submit(context, {"calls": [*calls]}, **parts)
    return run, settled_or_asked(backend, run, run.held)


def pays(backend: Backend, step: str, tool: str = "payHere", to: str = "†state.paid", name: str = "") -> dict[str, Any]:
    """A call that kills its worker at a step."""
    name = name or backend.folder.name
    return {"_tool": tool, "name": name, "step": step, **({"_outputPath": to} if to else {})}


def effects(backend: Backend, run: Run, name: str = "0") -> int:
    found: Any = backend.meeting.redis.hget("effects", f"{run.id}:{name}")
    return int(found or 0)


def ended_elements(run: Run) -> int:
    elements = run.result().calls[0].elements
    return elements.ended if elements is not None else 0


@pytest.mark.parametrize("tool", ["payHere", "payAsync"])
@pytest.mark.parametrize("step", STEPS)
def test_r4_11_an_effect_happens_once_or_a_person_is_asked_wherever_its_worker_is_killed(
    ledger: Backend, tool: str, step: str
) -> None:
    run, result = asked(ledger, pays(ledger, step, tool))
    assert (result is not None) is (step in KNOWN)
    if result is None:
        assert run.status()["calls"] == {"unknown": 1}
        [held] = run.held()
        known = held["unknown"]
        assert (known["attempt"], known["key"]) == (1, f"{run.id}:0")
        assert "died" in known["said"]
        assert known["worker"]
        assert known["since"]
        assert held["parameters"]["step"] == step
        assert effects(ledger, run) == (step not in ("begun", "inside"))
        with pytest.raises(Rejected, match="acts settle"):
            run.approve(held)
        with ledger.worker():
            if effects(ledger, run):
                run.settle(held, "done", value=f"paid {ledger.folder.name}")
            else:
                run.settle(held, "again")
            result = run.wait(timeout_seconds=60)
    assert status_of(result, 0) == "done"
    assert result.data()["state"]["paid"] == f"paid {ledger.folder.name}"
    assert effects(ledger, run) == 1


@pytest.mark.parametrize("step", ["begun", "effect"])
def test_r4_11_a_remote_call_that_is_lost_is_not_sent_again_by_itself(ledger: Backend, step: str) -> None:
    run, result = asked(ledger, pays(ledger, step, "payFar"))
    assert result is None
    [held] = run.held()
    before = effects(ledger, run)
    with ledger.worker():
        run.settle(held, "again" if not before else "done", **({} if not before else {"value": "paid"}))
        assert status_of(run.wait(timeout_seconds=60), 0) == "done"
    assert (before, effects(ledger, run)) == (step == "effect", 1)


@pytest.mark.parametrize("step", ["inside", "effect"])
def test_r4_11_an_activity_that_knows_how_a_call_has_ended_is_asked_and_no_person(ledger: Backend, step: str) -> None:
    run, result = asked(ledger, pays(ledger, step, "paySettled"))
    assert result is not None
    assert status_of(result, 0) == "done"
    assert result.data()["state"]["paid"] == f"paid {ledger.folder.name}"
    assert effects(ledger, run) == 1
    assert ledger.meeting.take(f"asked:{ledger.folder.name}") == f"{run.id}:0"


def test_r4_11_a_person_is_asked_where_the_activity_does_not_know_it(ledger: Backend) -> None:
    run, result = asked(ledger, pays(ledger, "effect", "paySettled", name=f"unsure {ledger.folder.name}"))
    assert result is None
    assert "cannot say" in run.held()[0]["unknown"]["said"]


def test_r4_11_of_many_elements_only_the_one_whose_end_is_not_known_is_asked_about(ledger: Backend) -> None:
    names = [f"{ledger.folder.name} {n}" for n in range(3)]
    context = [{"type": "state", "names": names, "steps": ["written", "effect", "none"]}]
    call = {"_tool": "payHere", "name": "†state.names", "step": "†state.steps", "_each": ["name", "step"]}
    run, result = asked(ledger, {**call, "_outputPath": "†state.all"}, context=context)
    assert result is None
    with ledger.worker():
        while not (held := run.held()) or ended_elements(run) + len(held) < 3:
            pass
        for one in run.held():
            assert one["call"].startswith("0[")
            number = one["call"]
            outcome = "done" if effects(ledger, run, number) else "again"
            run.settle(one, outcome, **({"value": f"paid {one['parameters']['name']}"} if outcome == "done" else {}))
        result = run.wait(timeout_seconds=60)
    assert result.data()["state"]["all"] == [f"paid {name}" for name in names]
    assert [effects(ledger, run, f"0[{n}]") for n in range(3)] == [1, 1, 1]


@pytest.mark.parametrize(("tool", "said"), [("payTooLong", "longer"), ("payUnkept", "returned")])
def test_r4_11_a_call_that_brings_no_result_is_not_begun_again(ledger: Backend, tool: str, said: str) -> None:
    run, result = asked(ledger, {"_tool": tool, "name": ledger.folder.name, "_outputPath": "†state.paid"})
    assert result is None
    [held] = run.held()
    assert said in held["unknown"]["said"]
    about = run.id, held["call"], "--shown", held["shown"]
    assert command(ledger, "settle", *about, "--done", "--failed", "both").code == 2
    assert command(ledger, "settle", *about, "--failed", "the bank says no").code == 0
    with ledger.worker():
        failed = run.wait(timeout_seconds=60)
    assert (failed.calls[0].error or {}) == {"type": "Rejected", "message": "the bank says no"}
    assert effects(ledger, run) == 1


def test_r4_11_an_exception_is_an_outcome_and_is_retried_as_the_policy_says(ledger: Backend) -> None:
    run, result = asked(ledger, {"_tool": "payThird", "name": "x", "_outputPath": "†state.paid"})
    assert result is not None
    assert result.data()["state"]["paid"] == 3
    assert effects(ledger, run) == 1


def test_r4_11_where_nobody_is_to_be_asked_the_call_fails_as_unknown(ledger: Backend) -> None:
    calls = [pays(ledger, "effect"), {"_tool": "payThird", "name": "†state.paid", "_outputPath": "†state.c"}]
    run, result = asked(ledger, *calls, config={"unknown": "fail"})
    assert result is not None
    assert [status_of(result, index) for index in range(2)] == ["failed", "skipped"]
    assert (result.calls[0].error or {})["type"] == "Unknown"
    assert effects(ledger, run) == 1


def test_r4_11_a_call_that_was_sent_and_forgotten_becomes_a_dead_letter(ledger: Backend) -> None:
    run = ledger.client.submit(solution={"calls": [pays(ledger, "effect", to="")]})
    letters = ledger.client.dead_letters()
    while not (found := letters.list(run.id)):
        with ledger.worker() as worker:
            while worker.poll() is None and not letters.list(run.id):
                with suppress(TimeoutExpired):
                    worker.wait(0.3)
    assert [one.error_type for one in found] == ["Unknown"]
    assert effects(ledger, run) == 1


def test_r4_11_a_run_that_asks_goes_on_without_what_reads_it_and_changes_nothing_of_it(ledger: Backend) -> None:
    other = {"_tool": "remark", "name": "x", "_outputPath": "†state.other"}
    reader = {"_tool": "remark", "name": "†state.paid", "_outputPath": "†state.read"}
    run, result = asked(ledger, pays(ledger, "effect"), other, reader)
    assert result is None
    with ledger.worker():
        while run.status()["calls"] != {"unknown": 1, "done": 1, "waiting": 1}:
            pass
        assert [call.status for call in run.result().calls] == ["unknown", "done", "waiting"]
        run.amend({"calls": [{**reader, "_outputPath": "†state.instead"}]})
        assert run.status()["calls"]["unknown"] == 1
        fork = run.fork()
        assert fork.status()["calls"]["unknown"] == 1
        [held], [forked] = run.held(), fork.held()
        fork.settle(forked, "done", value="paid")
        run.settle(held, "done", value="paid")
        assert {run.wait(timeout_seconds=60).status, fork.wait(timeout_seconds=60).status} == {"completed"}
    assert (effects(ledger, run), effects(ledger, fork)) == (1, 0)


@pytest.mark.parametrize("begins_again", [False, True])
def test_r4_11_a_call_that_was_begun_is_not_skipped_when_its_run_is_cancelled(
    ledger: Backend, begins_again: bool
) -> None:
    run, result = asked(ledger, pays(ledger, "effect"))
    assert result is None
    if begins_again:
        run.settle(run.held()[0], "again")
    run.cancel()
    [call] = run.result().calls
    assert (call.status, (call.error or {}).get("type")) == ("failed", "Unknown")
    assert run.status()["calls"] == {"failed": 1}


def test_r4_11_a_fork_from_before_asks_about_what_the_other_run_has_done_since(ledger: Backend) -> None:
    run, result = asked(ledger, pays(ledger, "none"))
    assert result is not None
    fork = run.fork("0-1")
    assert settled_or_asked(ledger, fork, fork.held) is None
    [held] = fork.held()
    assert held["unknown"]["key"] == f"{run.id}:0"
    assert (effects(ledger, run), effects(ledger, fork)) == (1, 0)


def test_r4_11_of_a_restored_log_calls_that_had_not_ended_are_asked_about(ledger: Backend) -> None:
    run = ledger.client.submit(solution={"calls": [pays(ledger, "none")]})
    assert "1 run under way" in command(ledger, "doctor", "--restored").stderr
    assert settled_or_asked(ledger, run, run.held) is None
    assert effects(ledger, run) == 0
    with ledger.worker():
        run.settle(run.held()[0], "again")
        assert status_of(run.wait(timeout_seconds=60), 0) == "done"
    assert effects(ledger, run) == 1
