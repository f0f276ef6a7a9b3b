"""Runs as tasks of MCP, activities as tools, and what a client that is a model can read."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Literal

import httpx2
import mcp_types
import pytest
from mcp import Client, MCPError
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientSession, ElicitationFnT
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult
from pydantic import Field

from acts_celery.protocol import check_submission
from tests.worker.backend import Backend

from .asking import SECONDS, call, over_http, refused, served

ANN, BEN, EVE = "ann-0123456789abc", "ben-0123456789abc", "eve-0123456789abc"
TOKENS = f"ann:submit+decide+control:{ANN},ben:submit:{BEN},eve:submit+decide+control:{EVE}"
EXTENSION = "io.modelcontextprotocol/tasks"


class Begun(mcp_types.Result):
    """What a call gives in place of its answer."""

    result_type: Literal["task"] = Field(alias="resultType")
    task_id: str = Field(alias="taskId")
    status: str
    created_at: str = Field(alias="createdAt")
    ttl_ms: int | None = Field(alias="ttlMs")


class Asked(mcp_types.RequestParams):
    task_id: str = Field(serialization_alias="taskId")
    input_responses: dict[str, Any] | None = Field(None, serialization_alias="inputResponses")


class TaskRequest(mcp_types.Request[Asked, str]):
    params: Asked


class Task(mcp_types.Result):
    task_id: str = Field("", alias="taskId")
    status: str = ""
    status_message: str = Field("", alias="statusMessage")
    result: dict[str, Any] | None = None
    input_requests: dict[str, Any] = Field({}, alias="inputRequests")


class Tasks(ClientExtension):
    """A client that has the extension, and leaves what it gets to the test."""

    identifier = EXTENSION

    def claims(self) -> Sequence[ResultClaim[Any]]:
        async def never(_: Begun, __: ClaimContext) -> CallToolResult:
            raise AssertionError("the test asks for tasks itself")

        return [ResultClaim(result_type="task", model=Begun, resolve=never)]


async def no_form(context: Any, params: Any) -> mcp_types.ElicitResult:
    """A client's form, which the tests fill in themselves."""
    raise AssertionError("the server asks by tasks")


@asynccontextmanager
async def client_of(url: str, token: str, *, forms: bool = True) -> AsyncIterator[ClientSession]:
    headers = {"Authorization": f"Bearer {token}"}
    http = httpx2.AsyncClient(headers=headers, timeout=SECONDS)
    async with asyncio.timeout(SECONDS), http:
        asking: ElicitationFnT | None = no_form if forms else None
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, extensions=[Tasks()], elicitation_callback=asking) as client:
            yield client.session


async def begin(session: ClientSession, tool: str, **arguments: Any) -> str:
    """The id of the task that a call is."""
    found = await session.call_tool(tool, arguments, allow_claimed=True)
    assert isinstance(found, Begun), found
    assert found.status == "working"
    return found.task_id


async def ask(session: ClientSession, method: str, task: str, answers: dict[str, Any] | None = None) -> Task:
    request = TaskRequest(method=method, params=Asked(task_id=task, input_responses=answers))
    return await session.send_request(request, Task)


async def until(session: ClientSession, task: str, status: str, message: str = "") -> Task:
    """A task once it has this status, and a message with this text."""
    for _ in count():
        found = await ask(session, "tasks/get", task)
        if found.status == status and message in found.status_message:
            return found
        await asyncio.sleep(0.02)
    raise AssertionError


def accepted(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


QUESTION = {"_tool": "ask_human", "question": "How many?", "options": [1, 2], "_outputPath": "†state.many"}
ORDER = {"_tool": "echo", "value": "†state.many", "_outputPath": "†state.said"}
DOCUMENT = {
    "context": [],
    "solution": {"calls": [QUESTION, ORDER], "output": "†state.said"},
    "config": {"approve": ["echo"]},
}


@pytest.fixture(scope="module")
def url(backend: Backend) -> Any:
    with served(backend, ACTS_MCP_TOKENS=TOKENS, ACTS_MCP_DELEGATES="look-up", ACTS_MCP_ACTIVITIES="echo") as said:
        yield said["url"]


def test_a_submission_is_a_task_whose_questions_and_approvals_the_user_answers(url: str) -> None:
    async def use() -> None:
        async with client_of(url, ANN) as ann:
            task = await begin(ann, "submit", document=DOCUMENT)
            asked = (await until(ann, task, "input_required")).input_requests
            [(key, form)] = asked.items()
            assert form["method"] == "elicitation/create"
            assert form["params"]["message"] == "How many?"
            assert form["params"]["requestedSchema"]["properties"]["answer"]["enum"] == ["1", "2"]
            with pytest.raises(MCPError, match="give one of 1, 2"):
                await ask(ann, "tasks/update", task, {key: accepted(answer="3")})
            await ask(ann, "tasks/update", task, {key: accepted(answer="2"), "never asked": accepted(answer="1")})
            await ask(ann, "tasks/update", task, {key: accepted(answer="1")})  # too late: ignored
            while key in (found := await until(ann, task, "input_required")).input_requests:
                pass
            [(second, form)] = found.input_requests.items()
            assert second != key
            assert '"value": 2' in form["params"]["message"]
            await ask(ann, "tasks/update", task, {second: accepted(decision="approve")})
            done = await until(ann, task, "completed")
            assert done.result is not None
            assert done.result["structuredContent"]["output"] == 2
            assert not done.result.get("isError")

    asyncio.run(use())


@pytest.mark.parametrize(("action", "reason"), [("decline", "ann declined"), ("cancel", "ann dismissed the question")])
def test_what_a_user_declines_does_not_run_and_the_run_says_who_declined(url: str, action: str, reason: str) -> None:
    async def use() -> None:
        async with client_of(url, ANN) as ann:
            call_ = {"_tool": "echo", "value": 1, "_outputPath": "†state.said"}
            solution = {"calls": [call_], "output": "†state.said"}
            task = await begin(
                ann, "submit", document={"context": [], "solution": solution, "config": {"approve": ["echo"]}}
            )
            [key] = (await until(ann, task, "input_required")).input_requests
            await ask(ann, "tasks/update", task, {key: {"action": action}})
            ended = await until(ann, task, "completed")
            assert ended.result is not None
            assert ended.result["isError"]
            assert reason in json.dumps(ended.result)

    asyncio.run(use())


def test_only_who_may_decide_is_asked_and_nobody_sees_the_tasks_of_others(url: str) -> None:
    async def use() -> None:
        async with client_of(url, BEN) as ben, client_of(url, EVE) as eve, client_of(url, EVE, forms=False) as plain:
            task = await begin(ben, "submit", document=DOCUMENT)
            found = await until(ben, task, "working", "waits for a person")
            assert found.input_requests == {}
            with pytest.raises(MCPError, match="the right to decide"):
                await ask(ben, "tasks/update", task, {})
            with pytest.raises(MCPError, match="the right to control"):
                await ask(ben, "tasks/cancel", task)
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                with pytest.raises(MCPError, match=f"no run {task}"):
                    await ask(eve, method, task, {})
            own = await begin(plain, "submit", document=DOCUMENT)
            found = await until(plain, own, "working", "waits for a person")
            assert found.input_requests == {}  # a client without forms is not asked
            await ask(plain, "tasks/cancel", own)
            assert (await until(plain, own, "cancelled")).result is None
            await ask(plain, "tasks/cancel", own)  # once more is no error

    asyncio.run(use())


def test_code_is_a_task_too_and_what_is_wrong_with_a_call_is_said_at_once(url: str) -> None:
    async def use() -> None:
        async with client_of(url, ANN) as ann:
            done = await until(ann, await begin(ann, "echo", value="tea"), "completed")
            assert done.result is not None
            assert done.result["structuredContent"]["answer"] == "tea"
            failed = await until(ann, await begin(ann, "look-up", what="tea", fails=True), "completed")
            assert failed.result is not None
            assert failed.result["isError"]
            wrong = await ann.call_tool("echo", {}, allow_claimed=True)
            assert isinstance(wrong, CallToolResult)
            assert wrong.is_error
            large = {"context": [{"type": "data", "text": "x" * 100_000}], "solution": {"calls": [], "output": 1}}
            done = await until(ann, await begin(ann, "submit", document=large), "completed")
            assert done.result is not None
            assert done.result["structuredContent"]["output"] == 1

    asyncio.run(use())


def test_a_task_outlives_the_server_that_has_begun_it(backend: Backend) -> None:
    async def start(url: str) -> str:
        async with client_of(url, ANN) as ann:
            return await begin(ann, "submit", document=DOCUMENT)

    async def answered(url: str, task: str) -> None:
        async with client_of(url, ANN) as ann:
            [key] = (await until(ann, task, "input_required")).input_requests
            await ask(ann, "tasks/update", task, {key: accepted(answer="1")})
            await ask(ann, "tasks/cancel", task)

    with served(backend, ACTS_MCP_TOKENS=TOKENS) as said:
        task = asyncio.run(start(said["url"]))
        os.kill(said["pid"], signal.SIGKILL)
    with served(backend, ACTS_MCP_TOKENS=TOKENS) as said:
        asyncio.run(answered(said["url"], task))


def test_a_client_without_the_extension_gets_answers_as_before(url: str) -> None:
    async def use() -> None:
        async with over_http(url, ANN) as ann:
            assert (await call(ann, "echo", value={"†": "†state.x"}))["answer"] == {"†": "†state.x"}
            assert (await refused(ann, "echo", value=1, _outputPath="†state.x"))[0] == "BadQuery"
            assert ann.server_capabilities is not None
            assert ann.server_capabilities.extensions == {EXTENSION: {}}

    asyncio.run(use())


def test_a_model_finds_out_what_to_submit(url: str) -> None:
    async def use() -> None:
        async with over_http(url, BEN) as ben:
            listed = {one["name"]: one for one in (await call(ben, "activities", search="remoteadd"))["activities"]}
            assert set(listed["remoteAdd"]["parameters"]["properties"]) == {"a", "b"}
            assert all("remoteadd" in name.lower() for name in listed)
            first = await call(ben, "activities")
            assert first["activities"][0]["name"] < first["activities"][-1]["name"]
            assert "look-up" in first["delegates"]
            [resource] = (await ben.list_resources()).resources
            [read] = (await ben.read_resource(str(resource.uri))).contents
            text = read.text  # type: ignore[union-attr]  # a text, or this test fails
            assert len(text.splitlines()) <= 60
            with pytest.raises(MCPError, match="acts://grammar"):
                await ben.read_resource("file:///etc/passwd")
            for example in text.split("```json\n")[1:]:
                document = json.loads(example.partition("```")[0])
                check_submission(document, activities={"greet": {"properties": {"name": {}}}})

    asyncio.run(use())
