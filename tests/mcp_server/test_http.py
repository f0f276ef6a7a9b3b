"""MCP clients over HTTP: each sees and does what its token admits, and no more."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.worker.backend import Backend

from .asking import call, over_http, refused, served

ANN, BEN, OPS, EVE = "ann-0123456789abc", "ben-0123456789abc", "ops-0123456789abc", "eve-0123456789abc"
TOKENS = f"ann:submit+decide+control:{ANN},ben:submit:{BEN},ops:decide+all:{OPS}"
ECHO: dict[str, Any] = {"context": [], "solution": {"calls": [], "output": "tea"}}
DISCOVER = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@pytest.fixture(scope="module")
def url(backend: Backend) -> Iterator[str]:
    with served(backend, ACTS_MCP_TOKENS=TOKENS) as said:
        yield said["url"]


def test_a_run_is_seen_by_its_owner_and_by_those_who_may_see_all(backend: Backend, url: str) -> None:
    async def ask() -> None:
        async with over_http(url, ANN) as ann, over_http(url, BEN) as ben, over_http(url, OPS) as ops:
            run = (await call(ann, "submit", document=ECHO, key="same", name="hers"))["run"]
            his = (await call(ben, "submit", document=ECHO, key="same", name="his"))["run"]
            assert run != his
            backend.wait(run)
            for tool in ("status", "result", "held"):
                assert (await refused(ben, tool, run=run))[0] == "RunNotFound"
            assert (await refused(ben, "explain", run=run, path="state.x"))[0] == "RunNotFound"
            assert (await refused(ben, "status", run="hers"))[0] == "RunNotFound"
            assert (await refused(ben, "status", run=run[:8]))[0] == "RunNotFound"
            assert "hers" not in (await refused(ben, "status", run="her"))[1]
            assert (await call(ben, "status", run="latest"))["run"] == his
            assert [each["run"] for each in (await call(ben, "runs"))["runs"]] == [his]
            assert (await call(ann, "result", run="hers", wait_seconds=20))["output"] == "tea"
            assert {run, his} <= {each["run"] for each in (await call(ops, "runs"))["runs"]}
            assert (await refused(ben, "cancel", run=his))[0] == "NotAdmitted"
            assert (await refused(ops, "submit", document=ECHO))[0] == "NotAdmitted"
            mine = backend.client.submit([], ECHO["solution"]).id
            assert (await refused(ann, "status", run=mine))[0] == "RunNotFound"
        audit = list(backend.client.run(run).log(audit=True))
        assert "ann" in str(audit)

    asyncio.run(ask())


def test_a_decision_is_about_one_run_whatever_others_call_theirs(backend: Backend, url: str, name: str) -> None:
    calls = [{"_tool": "echo", "value": "tea", "_outputPath": "†state.one"}]
    tea: dict[str, Any] = {"context": [], "solution": {"calls": calls}, "config": {"approve": ["*"]}}
    dear = {**tea, "solution": {"calls": [{**calls[0], "value": "FERRARI"}]}}

    async def ask() -> None:
        async with over_http(url, ANN) as ann, over_http(url, BEN) as ben, over_http(url, OPS) as ops:
            hers = (await call(ann, "submit", document=tea, name=name))["run"]
            his = (await call(ben, "submit", document=dear, name=name))["run"]
            named = (await call(ben, "submit", document=dear, name=hers[:10]))["run"]
            for run in (hers, his, named):
                assert (await call(ops, "result", run=run, wait_seconds=20))["held"] == 1
            [shown] = (await call(ops, "held", run=hers))["held"]
            about = {"call": shown["call"], "shown": shown["shown"]}
            assert (await refused(ops, "approve", run=name, **about))[0] == "AmbiguousRun"
            assert (await refused(ops, "approve", run=his, **about))[0] == "HeldAnew"
            assert (await refused(ops, "approve", run=hers, call=shown["call"]))[0] == "BadQuery"
            assert (await call(ops, "approve", run=hers[:10], **about))["run"] == hers
            assert (await call(ann, "result", run=name, wait_seconds=20))["status"] == "completed"

    asyncio.run(ask())


def test_a_run_is_undone_by_its_owner(backend: Backend, url: str, name: str) -> None:
    book = {"_tool": "book", "seat": "five", "_outputPath": "†state.seat"}

    async def ask() -> None:
        async with over_http(url, ANN) as ann:
            run = (await call(ann, "submit", document={"context": [], "solution": {"calls": [book]}}, name=name))["run"]
            backend.wait(run)
            undone = await call(ann, "cancel", run=run, undo=True)
            assert undone == {
                "run": run, "status": "completed", "undo": f"{run}.undo", "undone": 1, "not_undone": []
            }  # fmt: skip
            backend.wait(undone["undo"])
            assert (await call(ann, "status", run=undone["undo"]))["status"] == "completed"

    asyncio.run(ask())


def test_a_token_begins_no_more_than_its_limits_admit(backend: Backend, name: str) -> None:
    calls = [{"_tool": "waitAtGate", "gate": name, "value": 1, "_outputPath": "†state.one"}]
    gate: dict[str, Any] = {"context": [], "solution": {"calls": calls}}

    async def ask(url: str) -> None:
        async with over_http(url, ANN) as ann:
            run = (await call(ann, "submit", document=gate, key="one"))["run"]
            assert (await call(ann, "submit", document=gate, key="one"))["run"] == run
            kind, said = await refused(ann, "submit", document=gate)
            assert (kind, "lim has 1 runs under way, and its limit is 1" in said) == ("OverLimit", True)
            backend.meeting.open_gate(name)
            assert (await call(ann, "result", run=run, wait_seconds=50))["status"] == "completed"
            assert (await call(ann, "submit", document=gate))["run"] != run
            records = [entry.audit for entry in backend.client.run(run).log(audit=True) if entry.audit]
            assert [(one.actor.name, one.actor.is_authenticated) for one in records] == [("lim", True)]

    with served(backend, ACTS_MCP_TOKENS=f"lim:submit:{ANN}:runs=1") as said:
        asyncio.run(ask(said["url"]))


def test_ownership_outlives_the_server(backend: Backend) -> None:
    async def submit(url: str) -> str:
        async with over_http(url, ANN) as ann:
            return str((await call(ann, "submit", document=ECHO, name="kept"))["run"])

    async def look(url: str, run: str) -> None:
        async with over_http(url, ANN) as ann, over_http(url, EVE) as eve:
            assert (await call(ann, "status", run=run))["name"] == "kept"
            assert (await refused(eve, "status", run=run))[0] == "RunNotFound"

    with served(backend, ACTS_MCP_TOKENS=TOKENS) as said:
        run = asyncio.run(submit(said["url"]))
    with served(backend, ACTS_MCP_TOKENS=f"ann:read:{ANN},eve:submit+decide:{EVE}") as said:
        asyncio.run(look(said["url"], run))


@pytest.mark.parametrize(
    ("headers", "status", "kind"),
    [
        ({}, 401, "NoToken"),
        ({"Authorization": f"Bearer {EVE}"}, 401, "WrongToken"),
        ({"Authorization": f"Bearer {ANN}", "Host": "evil.example"}, 421, "WrongHost"),
        ({"Authorization": f"Bearer {ANN}", "Origin": "https://evil.example"}, 403, "WrongOrigin"),
    ],
)
def test_who_has_no_token_or_comes_from_elsewhere_is_refused(
    url: str, headers: dict[str, str], status: int, kind: str
) -> None:
    answer = httpx2.post(url, json=DISCOVER, headers=headers)
    assert (answer.status_code, answer.json()["error"]["type"]) == (status, kind)


def test_a_body_that_is_no_message_or_too_much_is_refused(url: str) -> None:
    def post(content: bytes) -> int:
        headers = {"Authorization": f"Bearer {ANN}", "Content-Type": "application/json"}
        return httpx2.post(url, content=content, headers=headers, timeout=60).status_code

    assert post(b"[]") == 400
    assert post(b"{") == 400
    assert post(b"[" * 3_000_000) == 400
    assert post(b" " * 33_554_433) == 413
    assert httpx2.get(url, headers={"Authorization": f"Bearer {ANN}"}).status_code == 405


def test_a_run_goes_on_when_client_and_server_are_killed_while_it_is_waited_for(backend: Backend, name: str) -> None:
    calls = [{"_tool": "waitAtGate", "gate": name, "value": 1, "_outputPath": "†state.one"}]
    document = {"context": [], "solution": {"calls": calls, "output": "†state.one"}}

    async def wait(said: dict[str, Any]) -> str:
        heard = asyncio.Event()

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            heard.set()

        async with over_http(said["url"], ANN) as ann:
            run = str((await call(ann, "submit", document=document))["run"])
            arguments = {"run": run, "wait_seconds": 50}
            gone = asyncio.create_task(ann.call_tool("result", arguments, progress_callback=hear))
            await heard.wait()
            gone.cancel()
            heard.clear()
            waiting = asyncio.create_task(ann.call_tool("result", arguments, progress_callback=hear))
            await heard.wait()
            os.kill(said["pid"], signal.SIGKILL)
            with pytest.raises(Exception, match=r".*"):
                await waiting
        return run

    async def look(url: str, run: str) -> None:
        async with over_http(url, ANN) as ann:
            backend.meeting.open_gate(name)
            assert (await call(ann, "result", run=run, wait_seconds=50))["output"] == 1

    with served(backend, ACTS_MCP_TOKENS=TOKENS) as said:
        run = asyncio.run(wait(said))
    with served(backend, ACTS_MCP_TOKENS=TOKENS) as said:
        asyncio.run(look(said["url"], run))


def test_without_tokens_it_prints_one_that_reads_all(backend: Backend) -> None:
    run = backend.client.submit([], ECHO["solution"], name="anybody").id

    async def ask(said: dict[str, Any]) -> None:
        async with over_http(said["url"], said["token"]) as client:
            assert (await call(client, "status", run="anybody"))["run"] == run
            assert (await refused(client, "submit", document=ECHO))[0] == "NotAdmitted"

    with served(backend) as said:
        asyncio.run(ask(said))
