"""The client for asyncio programs: waiting holds no thread, and can be given up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from acts_celery import AsyncClient, AsyncRun, RunNotFound, RunOver
from acts_celery.protocol import Rejected

from .backend import Backend

Scene = Callable[[AsyncClient], Awaitable[None]]
MANY = 40


def play(backend: Backend, scene: Scene) -> None:
    """Run a coroutine with a client, in a loop of its own."""

    async def within() -> None:
        async with AsyncClient(backend.settings) as client:
            await asyncio.wait_for(scene(client), 60)

    asyncio.run(within())


def waiting(gate: str) -> dict[str, Any]:
    return {"calls": [{"_tool": "waitAtGate", "gate": gate, "value": gate, "_outputPath": "†state.x"}]}


def test_a_run_is_submitted_awaited_and_followed(backend: Backend) -> None:
    async def scene(client: AsyncClient) -> None:
        call = {"_tool": "echo", "value": "†input.word", "_outputPath": "†state.word"}
        run = await client.submit([{"type": "input", "word": "hello"}], {"calls": [call]})
        assert (await run.wait(timeout_seconds=30)).data()["state"] == {"word": "hello"}
        events = [(event.kind, event.status) async for event in run.follow()]
        assert events == [("run", "running"), ("call", "done"), ("run", "completed")]
        assert (await run.status())["calls"] == {"done": 1}
        with pytest.raises(RunOver):
            await run.pause()
        fork = await (await client.run(run.id)).fork()
        assert (await fork.wait(timeout_seconds=30)).status == "completed"

    play(backend, scene)


def test_who_waits_for_runs_holds_no_thread(backend: Backend) -> None:
    async def scene(client: AsyncClient) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        runs = [await client.submit(solution=waiting("many")) for _ in range(MANY)]
        ends = [asyncio.create_task(run.wait(timeout_seconds=50)) for run in runs]
        follower = asyncio.create_task(_events(runs[0]))
        await asyncio.to_thread(backend.meeting.take, "at:many")
        assert not any(end.done() for end in ends)
        assert (await runs[-1].status())["status"] == "running"  # in the one thread there is
        backend.meeting.open_gate("many")
        results = await asyncio.gather(*ends)
        assert [result.data()["state"]["x"] for result in results] == ["many"] * MANY
        assert await follower == ["running", "done", "completed"]

    play(backend, scene)


def test_waiting_that_is_given_up_leaves_the_run_and_the_client_as_they_are(backend: Backend) -> None:
    async def scene(client: AsyncClient) -> None:
        run = await client.submit(solution=waiting("patience"))
        await asyncio.to_thread(backend.meeting.take, "at:patience")
        with pytest.raises(TimeoutError, match="it continues"):
            await run.wait(timeout_seconds=0.1)
        events = aiter(run.follow())
        assert (await anext(events)).status == "running"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(events), 0.1)
        await run.pause()
        assert (await run.status())["status"] == "paused"
        await run.resume()
        backend.meeting.open_gate("patience")
        assert (await run.wait(timeout_seconds=30)).status == "completed"

    play(backend, scene)


def test_a_cancelled_run_ends_the_wait_for_it(backend: Backend) -> None:
    async def scene(client: AsyncClient) -> None:
        run = await client.submit(solution=waiting("never"))
        await asyncio.to_thread(backend.meeting.take, "at:never")
        end = asyncio.create_task(run.wait())
        await run.cancel()
        assert (await end).status == "cancelled"
        backend.meeting.open_gate("never")

    play(backend, scene)


def test_a_run_that_is_not_there_is_not_awaited(backend: Backend) -> None:
    async def scene(client: AsyncClient) -> None:
        with pytest.raises(RunNotFound):
            await client.run("none")

    play(backend, scene)


def test_what_reads_many_things_reads_them_without_an_end_of_the_loop(backend: Backend) -> None:
    async def scene(client: AsyncClient) -> None:
        call = {"_tool": "echo", "value": "x", "_outputPath": "†state.word"}
        run = await client.submit(solution={"calls": [call]}, name="many things", tags=["twins"])
        assert [entry.message["data"] async for entry in run.log(follow=True)] == [{"word": "x"}]
        assert [summary.run async for summary in client.runs(name="twins")] == [run.id]
        lines = [line async for line in run.export()]
        assert await run.total == 1
        assert (await client.find("many things")).id == run.id
        await run.delete()
        again = await client.import_run(lines)
        assert (await again.result()).data()["state"] == {"word": "x"}
        await again.delete()

    play(backend, scene)


def test_parts_that_are_given_stand_beside_those_of_a_document(backend: Backend) -> None:
    async def scene(client: AsyncClient) -> None:
        call = {"_tool": "echo", "value": "x", "_outputPath": "†state.word"}
        document = {"solution": {"calls": [call]}, "config": {"approve": ["echo"], "approve_seconds": 60}}
        tool = {"type": "object", "properties": {"value": {"const": "y"}}}
        with pytest.raises(Rejected, match="/solution/calls/0/value"):
            await client.submit_document(document, tools={"echo": tool})
        run = await client.submit_document(document, config={"approve": []}, name="parts")
        assert (await run.wait(timeout_seconds=30)).status == "completed"
        assert document["config"] == {"approve": ["echo"], "approve_seconds": 60}
        assert (await client.find("parts")).id == run.id

    play(backend, scene)


async def _events(run: AsyncRun) -> list[str]:
    return [event.status async for event in run.follow()]
