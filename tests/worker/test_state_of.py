"""The state of a run as that with which another begins (`acts submit --state-of`, `Client.submit(state_of=…)`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from acts_celery import LocalClient, RunNotFound, local
from acts_celery.protocol import Rejected

from .backend import Backend
from .test_control_cli import command
from .test_r16_1_where_calls_start import CODE, LETTER, held_for, paid, pay

PEOPLE: list[dict[str, Any]] = [
    {"type": "state", "limit": 5, "shared": {"a": 1}},
    {"type": "state", "_instance": "Ann", "name": "Ann"},
    {"type": "state", "_instance": "Bob", "data": {"shared": {"b": 2}}, "_outputMethod": "assign"},
]


def echo(value: Any, to: str, **more: Any) -> dict[str, Any]:
    return {"_tool": "echo", "value": value, "_outputPath": to, **more}


def test_the_state_of_a_run_becomes_that_of_another_one_for_each_instance(backend: Backend) -> None:
    calls = [echo(7, "†state.total"), *(echo("†state.limit", "†state.own", _instance=name) for name in ("Ann", "Bob"))]
    first = backend.client.submit([*PEOPLE, {"type": "input", "word": "old"}], {"calls": calls})
    before = backend.wait(first.id)
    calls = [echo("†state.total", "†data.total"), echo("†state.own", "†data.own", _instance="Bob")]
    second = backend.client.submit([{"type": "state", "limit": 6}], {"calls": calls}, state_of=first.id)
    after = backend.wait(second.id)
    assert after.status == "completed"
    assert after.data()["data"] == {"total": 7}
    assert "input" not in after.data(), "only the state goes over"
    for name in (None, "Ann", "Bob"):
        assert after.data(name)["state"] == {**before.data(name)["state"], "limit": 6}, "the new context adds to it"
    assert after.data("Bob")["data"] == {"total": 7, "own": 5}
    assert backend.wait(first.id).data()["state"]["limit"] == 5, "and nothing of it goes back"


def test_a_run_is_named_at_the_command_line_as_anywhere(backend: Backend) -> None:
    first = command(backend, "submit", "-", "--name", "books", stdin={"solution": {"calls": [echo(1, "†state.n")]}})
    backend.wait(first.stdout.strip())
    document = {"solution": {"calls": [echo("†state.n", "†data.n")]}}
    second = command(backend, "submit", "-", "--state-of", "books", stdin=document)
    assert second.code == 0
    assert backend.wait(second.stdout.strip()).data()["data"] == {"n": 1}
    nowhere = command(backend, "submit", "-", "--state-of", "nowhere", stdin=document)
    assert nowhere.code == 4
    assert "nowhere" in nowhere.stderr


def test_errors_point_into_what_was_submitted(backend: Backend) -> None:
    first = backend.client.submit(PEOPLE, {"calls": []})
    with pytest.raises(Rejected) as rejected:
        backend.client.submit([{"type": "text"}, {"type": 5}], {"calls": []}, state_of=first.id)
    assert [problem.pointer for problem in rejected.value.errors] == ["/context/1/type"]


def test_a_run_that_is_not_there_has_no_state(backend: Backend) -> None:
    with pytest.raises(RunNotFound):
        backend.client.submit([], {"calls": []}, state_of="nowhere")


# SPEC R16.2: what others wrote keeps its sources.


@pytest.fixture
def client() -> Iterator[LocalClient]:
    paid.clear()
    with local(CODE) as client:
        yield client


def state_of(client: LocalClient, *calls: dict[str, Any], context: Any = ()) -> str:
    run = client.submit(list(context), {"calls": list(calls)})
    run.wait(timeout_seconds=60)
    return run.id


def test_r16_2_what_others_wrote_decides_nothing_in_the_run_that_goes_on_with_it(client: LocalClient) -> None:
    first = state_of(client, LETTER, {"_tool": "copied", "value": "DE1", "_outputPath": "†state.own"})
    held_for(client.submit(solution={"calls": [pay()]}, state_of=first), "mail")
    run = client.submit(solution={"calls": [pay("†state.own")]}, state_of=first)
    assert [call.status for call in run.wait(timeout_seconds=60).calls] == ["done"]
    assert paid == ["DE1"], "what nobody else has written is as trusted as before"


def test_r16_2_a_value_that_others_kept_from_being_there_is_chosen_by_them(client: LocalClient) -> None:
    choosing = {"_tool": "copied", "value": "†state.letter", "_outputPath": "†state.good || †state.bad"}
    first = state_of(client, LETTER, choosing, context=[{"type": "state", "mine": "DE1"}])
    held_for(client.submit(solution={"calls": [pay("†state.bad || †state.mine")]}, state_of=first), "mail")


def test_r16_2_labels_of_instances_stay_with_them(client: LocalClient) -> None:
    context = [{"type": "state", "_instance": "①", "iban": "DE1", "_trust": ["mail"]},
               {"type": "state", "_instance": "②", "iban": "DE2"}]  # fmt: skip
    first = state_of(client, context=context)
    held_for(client.submit(solution={"calls": [pay("†state.iban", _instance="①")]}, state_of=first), "mail")
    run = client.submit(solution={"calls": [pay("†state.iban", _instance="②")]}, state_of=first)
    assert [call.status for call in run.wait(timeout_seconds=60).calls] == ["done"]
