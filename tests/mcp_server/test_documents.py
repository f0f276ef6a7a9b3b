"""Large documents: they are checked and submitted in processes of their own, within limits for each visitor."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import pytest

from acts_celery.worker.mcp import documents
from acts_celery.worker.mcp.documents import SMALL_BYTES, Documents
from acts_celery.worker.mcp.tools import Principal
from acts_celery.worker.ui.access import Refused
from tests.worker.backend import Backend

from .asking import call, over_http, refused, served

ANN, BEN = "ann-0123456789abc", "ben-0123456789abc"
LARGE: Final = 31_000_000


def chain(number: int, **more: Any) -> dict[str, Any]:
    """A submission in which each call reads what the one before it has written."""
    calls = [
        {"_tool": "echo", "value": f"†state.r{at - 1}" if at else 1, "_outputPath": f"†state.r{at}"}
        for at in range(number)
    ]
    return {"context": [], "solution": {"calls": calls, "output": f"†state.r{number - 1}"}, **more}


def message(**arguments: Any) -> bytes:
    """A call of `check` as it is sent."""
    called = {"name": "check", "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": called}).encode()


@pytest.fixture(scope="module")
def url(backend: Backend) -> Iterator[str]:
    with served(backend, ACTS_MCP_TOKENS=f"ann:submit:{ANN},ben:read:{BEN}") as said:
        yield said["url"]


def test_a_large_document_is_answered_as_a_small_one_is(backend: Backend, url: str) -> None:
    assert len(message(document=chain(300))) > SMALL_BYTES
    broken = chain(300)
    broken["solution"]["calls"][7]["value"] = "†state.nothing"

    async def ask() -> None:
        async with over_http(url, ANN) as ann, over_http(url, BEN) as ben:
            few, many = await call(ben, "check", document=chain(3)), await call(ben, "check", document=chain(300))
            assert (few["valid"], many["valid"], many["waves"][-1]) == (True, True, [299])
            [error] = (await call(ben, "check", document=broken))["errors"]
            assert error["pointer"] == "/solution/calls/7/value"
            assert (await refused(ben, "submit", document=chain(300)))[0] == "NotAdmitted"
            assert (await refused(ben, "result", run="x" * 20_000))[0] == "BadArguments"
            run = (await call(ann, "submit", document=chain(300), name="large"))["run"]
            assert (await call(ann, "result", run=run, wait_seconds=50))["output"] == 1
            audit = [entry.audit for entry in backend.client.run(run).log(audit=True) if entry.audit]
            assert [(one.actor.name, one.actor.is_authenticated) for one in audit] == [("ann", True)]

    asyncio.run(ask())


def test_a_document_that_comes_as_its_json_text_is_read_as_what_it_holds(url: str) -> None:
    async def ask() -> None:
        async with over_http(url, ANN) as ann:
            assert (await call(ann, "check", document=json.dumps(chain(3))))["valid"] is True
            run = (await call(ann, "submit", document=f" {json.dumps(chain(3))}\n"))["run"]
            assert (await call(ann, "result", run=run, wait_seconds=50))["output"] == 1
            kind, text = await refused(ann, "check", document='{"context": [], "context": []}')
            assert (kind, "twice" in text) == ("BadArguments", True)
            kind, text = await refused(ann, "check", document='{"context": [')
            assert (kind, "not JSON" in text) == ("BadArguments", True)
            assert (await refused(ann, "check", document="tea"))[0] == "BadArguments"

    asyncio.run(ask())


def test_others_are_answered_while_a_large_document_is_checked(url: str) -> None:
    async def ask() -> None:
        async with over_http(url, BEN) as ben, httpx2.AsyncClient(timeout=60) as http:
            checking = asyncio.create_task(call(ben, "check", document=chain(5_000)))
            answered = 0
            while not checking.done():
                assert (await http.get(url.removesuffix("/mcp") + "/health")).status_code == 200
                answered += 1
            assert (await checking)["valid"]
            assert answered > 10

    asyncio.run(ask())


def test_a_visitor_has_the_bytes_of_one_large_body_under_way(url: str) -> None:
    def post(token: str) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        return httpx2.post(url, content=b" " * 2_000_000, headers=headers, timeout=60)

    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port)) as slow:
        head = f"POST /mcp HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {BEN}\r\nExpect: 100-continue\r\n"
        slow.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {LARGE + 2_000_000}\r\n\r\n".encode())
        assert slow.recv(100).startswith(b"HTTP/1.1 100")  # it reads the body now, which does not come
        answer = post(BEN)
        assert (answer.status_code, answer.json()["error"]["type"]) == (429, "TooManyBytes")
        assert int(answer.headers["retry-after"]) > 0
        assert post(ANN).status_code == 400


def test_a_process_that_has_ended_is_replaced_and_time_is_limited(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask() -> None:
        some = Documents(backend.settings)
        body, ben = message(document=chain(300)), Principal("ben", frozenset(("read",)))
        for _ in range(2):
            done = await some.carried_out(body, ben)
            assert done is not None
            assert not done.result.is_error
            [process] = some._idle
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()
        monkeypatch.setattr(documents, "_SPENT_SECONDS", -1.0)
        with pytest.raises(Refused, match="later") as refusal:
            await some.carried_out(body, ben)
        assert (refusal.value.status, "Retry-After" in refusal.value.headers) == (429, True)
        await some.close()

    asyncio.run(ask())
