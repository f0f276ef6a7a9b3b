"""Calls that are added to a run while a gather call waits (SPEC R11.7, R10.4), on real workers."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any

import pytest

from acts_celery import Run
from acts_celery.protocol import Limits
from acts_celery.worker.store.connections import connect_async
from acts_celery.worker.store.lane import LaneView, RunView
from acts_celery.worker.store.log import LogTerms, MessageLog

from .backend import Backend, Meeting
from .test_control import alone, echo, gate, wait_at
from .test_gathering import CONTEXT, MARKS, gather, plan

__all__ = ["alone", "gate"]  # fixtures

ALL = {"①": 1, "②": 2, "③": 2}


def gathering(backend: Backend, meeting: Meeting, gate: str, *more: dict[str, Any], first: Any = ()) -> Run:
    """A run whose gather call waits for a call at work in one instance; in the others what it reads is written."""
    calls = [wait_at(gate, "†state.n", _instance="①"), *(echo(2, "†state.n", _instance=mark) for mark in MARKS[1:])]
    run = backend.client.submit(CONTEXT, {"calls": [*first, *calls, gather("†state.n", "†data.all"), *more]})
    meeting.take(f"at:{gate}")
    list(islice((event for event in run.follow(timeout_seconds=60) if event.kind == "call"), 2))
    return run


@pytest.mark.parametrize(
    "added",
    [
        [echo(5, "†state.more", _instance="②")],
        [echo(5, "†state.more")],
        [echo(5, "†state.more", _instance="*")],
        [echo(9, "†state.n", _instance="③")],
        [],
    ],
)
def test_r11_7_a_gather_call_goes_on_waiting_for_the_calls_of_its_time(
    backend: Backend, meeting: Meeting, gate: str, added: list[dict[str, Any]]
) -> None:
    run = gathering(backend, meeting, gate, echo("†data.all", "†data.copy"))
    run.amend([*added, gather("†state.n", "†data.again")], add=True)
    assert "all" not in run.result().data().get("data", {})
    meeting.open_gate(gate)
    result = backend.wait(run.id)
    data = result.data()["data"]
    assert result.status == "completed"
    assert data["copy"] == data["all"]
    assert data["all"].items() >= {"①": 1, "②": 2}.items()
    assert data["again"].items() >= {"①": 1, "②": 2}.items()


def test_r11_7_again_and_again_also_where_another_waits(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = gathering(backend, meeting, gate)
    run.amend([echo("†state.n", "†state.m", _instance=mark) for mark in MARKS], add=True)
    run.amend([gather("†state.m", "†data.second"), echo(1, "†state.x", _instance="②")], add=True)
    run.amend([gather({"of": "†data.second"}, "†data.third"), echo("†state.x", "†state.y", _instance="②")], add=True)
    meeting.open_gate(gate)
    result = backend.wait(run.id)
    assert result.data()["data"] == {"all": ALL, "second": ALL, "third": {"of": ALL}}
    assert result.data("②")["state"]["y"] == 1


def test_r11_7_it_waits_for_a_global_call_that_ends_before_a_lane_is_driven_again(
    backend: Backend, meeting: Meeting, gate: str
) -> None:
    calls = [wait_at(gate, "†state.g"), gather("†state.g", "†data.all"), *(echo(1, "†state.n", _instance="①"),)]
    run = backend.client.submit(CONTEXT, {"calls": calls})
    meeting.take(f"at:{gate}")
    run.pause()
    meeting.open_gate(gate)
    while run.status()["calls"].get("running"):
        pass
    run.amend([echo(7, "†state.z", _instance=mark) for mark in MARKS[:2]], add=True)
    run.resume()
    result = backend.wait(run.id)
    assert (result.status, result.data()["data"]["all"]) == ("completed", 1)


def test_r11_7_in_a_plan_too(alone: Backend, meeting: Meeting, gate: str) -> None:
    calls = [wait_at(gate, "†state.n"), gather("†state.n", "†data.all")]
    with alone.worker():
        run = alone.client.submit([plan(*calls), *CONTEXT])
        for _ in MARKS:
            meeting.take(f"at:{gate}")
        run.amend([echo(["†state.n", "†state.mark"], "†state.m"), gather("†state.m", "†data.more")], add=True)
        meeting.open_gate(gate)
        result = alone.wait(run.id)
    assert result.data()["data"]["all"] == dict.fromkeys(MARKS, 1)
    assert result.data()["data"]["more"] == {mark: [1, mark] for mark in MARKS}


def test_r11_2_a_fork_from_between_goes_on_waiting_too(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = gathering(backend, meeting, gate)
    run.amend([echo(5, "†state.more", _instance="②"), gather("†state.more", "†data.more")], add=True)
    copy = run.fork(paused=True)
    meeting.open_gate(gate)
    assert backend.wait(run.id).data()["data"] == {"all": ALL, "more": {"②": 5}}
    copy.resume()
    assert backend.wait(copy.id).data()["data"] == {"all": ALL, "more": {"②": 5}}


def test_r11_7_a_replacement_of_what_has_not_begun_lets_go_of_it(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = gathering(backend, meeting, gate)
    run.amend([echo(5, "†state.more", _instance="②")], add=True)
    run.amend([gather("†state.n", "†data.new")])
    meeting.open_gate(gate)
    result = backend.wait(run.id)
    assert result.data()["data"] == {"new": ALL}


class _AmendedMeanwhile(MessageLog):
    """A log of a run that is amended once, after it was counted how many lanes its gather calls wait for."""

    run: Run

    async def unsettled(self, run: str) -> dict[int, int]:
        found = await super().unsettled(run)
        if max(found) == 3:
            await asyncio.to_thread(self.run.amend, [gather("†state.m", "†data.second")], add=True)
        return found


def test_r11_7_a_gather_call_that_comes_while_the_lane_is_read_waits_for_its_lanes(alone: Backend) -> None:
    calls = [echo(2, "†state.n", _instance=mark) for mark in MARKS]
    run = alone.client.submit(CONTEXT, {"calls": [*calls, gather("†state.n", "†data.all")]})
    run.amend([echo("†state.n", "†state.m", _instance=mark) for mark in MARKS], add=True)
    settings = alone.settings

    async def opened() -> LaneView:
        async with connect_async(settings) as redis:
            log = _AmendedMeanwhile(
                redis, settings.key_prefix, LogTerms(published_seconds=60, lease_seconds=30, window=100)
            )
            log.run = run
            view, _ = await RunView.open(log, run.id, Limits(), None)
            return await LaneView.open(log, view, None)

    lane = asyncio.run(opened())
    assert {call.index for call in lane.calls} == {3, 7}
    assert lane.gathering() == []


def test_r11_7_a_lane_that_was_read_before_it_was_written_anew_says_nothing_of_later_gather_calls(
    alone: Backend,
) -> None:
    calls = [echo(2, "†state.n", _instance=mark) for mark in MARKS]
    run = alone.client.submit(CONTEXT, {"calls": [*calls, gather("†state.n", "†data.all")]})
    settings = alone.settings

    async def opened() -> LaneView:
        async with connect_async(settings) as redis:
            log = MessageLog(redis, settings.key_prefix, LogTerms(published_seconds=60, lease_seconds=30, window=100))
            view, _ = await RunView.open(log, run.id, Limits(), None)
            entries = (await log.open(run.id, "②")).entries
            await asyncio.to_thread(run.amend, [gather("†state.mark || †state.n", "†data.new")])
            view.feed(await log.read(run.id, None, after=view.seen))
            return LaneView(view, "②", entries)

    lane = asyncio.run(opened())
    assert [call.index for call in lane.run.calls] == [4]
    assert lane.newly_settled() == []
