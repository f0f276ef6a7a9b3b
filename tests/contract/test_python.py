"""The Python API (INTERFACE "Python"): activities, submitting, waiting, following."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

import acts_celery.broker_config
import acts_celery.protocol
from acts_celery import (
    AsyncClient,
    Client,
    InfrastructureError,
    Message,
    Output,
    Progress,
    RunNotFound,
    RunOver,
    activity,
    current_call,
    delegate,
    local,
)
from acts_celery.protocol import Rejected
from tests.worker.backend import Backend


@activity("contractGreet")
async def greet(userName: str) -> str:
    return f"Hello {userName}"


@activity("contractSees")
def sees(eventName: str, *, state: dict[str, Any]) -> dict[str, Any]:
    return {"event": eventName, "saw": state}


@activity("contractChooses")
def chooses(userId: str) -> Any:
    return Output("†state.failed", {"reason": userId})


@activity("contractWrites")
def writes(url: str) -> Any:
    return Message({"type": "state", "page": url})


@activity("contractAudits")
def audits(call: dict[str, Any], context: dict[str, Any]) -> Any:
    return [call["what"], call["_outputPath"], context]


@activity("contractKnows", retries=1, backoff_seconds=0.01)
def knows(value: int) -> Any:
    here = current_call()
    if here.attempt == 1:
        here.progress(1, 2, "half", details={"value": value})
        raise ValueError("once more")
    return here.attempt if here.last_progress == Progress(1, 2, "half", {"value": value}) else None


@delegate("contractTranslator")
def translator(context: list[dict[str, Any]]) -> int:
    return len(context)


MINE: list[Any] = [greet, sees, chooses, writes, audits, knows, translator]


def test_every_public_name_can_be_imported() -> None:
    assert [name for name in acts_celery.__all__ if not hasattr(acts_celery, name)] == []


def test_every_public_error_has_a_code_of_its_own() -> None:
    packages = (acts_celery, acts_celery.protocol, acts_celery.broker_config)
    public: list[Any] = [getattr(package, name) for package in packages for name in package.__all__]
    errors = {one for one in public if isinstance(one, type) and issubclass(one, Exception)}
    codes = [vars(error).get("code", "") for error in errors]
    assert [code for code in codes if not re.fullmatch(r"[a-z]+(_[a-z]+)*", code)] == []
    assert sorted(codes) == sorted(set(codes))
    with pytest.raises(AttributeError):
        acts_celery.no_such_name  # noqa: B018  # what is asked for is what is tested


def test_functions_are_activities_in_each_of_their_forms() -> None:
    with local(activities=MINE) as client:
        result = client.submit(
            [{"type": "state", "mark": "m"}],
            {
                "calls": [
                    {"_tool": "contractGreet", "userName": "Alex", "_outputPath": "†state.greeting"},
                    {
                        "_tool": "contractSees",
                        "eventName": "e",
                        "_scopes": ["†state.mark"],
                        "_outputPath": "†state.seen",
                    },
                    {"_tool": "contractChooses", "userId": "u", "_outputPath": "†state.verified || †state.failed"},
                    {"_tool": "contractAudits", "what": 1, "_outputPath": "†state.audit"},
                    {"_tool": "contractKnows", "value": 1, "_outputPath": "†state.attempt"},
                ]
            },
        ).wait(timeout_seconds=60)
        assert (result.status, [call.status for call in result.calls]) == ("completed", ["done"] * 5)
        state = result.data()["state"]
        assert state["greeting"] == "Hello Alex"
        assert state["seen"] == {"event": "e", "saw": {"mark": "m"}}
        assert (state["failed"], state["attempt"]) == ({"reason": "u"}, 2)
        assert state["audit"][:2] == [1, "†state.audit"]
        whole = client.submit([], {"calls": [{"_tool": "contractWrites", "url": "u", "_outputPath": "†state"}]})
        assert whole.wait(timeout_seconds=60).data()["state"] == {"page": "u"}


def test_a_rejected_submission_lists_every_error_and_leaves_nothing(backend: Backend) -> None:
    before = len(list(backend.client.runs()))
    with pytest.raises(Rejected) as refused:
        backend.client.submit([], {"calls": [{"_tool": "none"}, {"_tool": "add"}]})
    assert [error.pointer for error in refused.value.errors] == ["/solution/calls/0/_tool", "/solution/calls/1"]
    assert len(list(backend.client.runs())) == before


def test_a_run_is_followed_to_its_end(backend: Backend) -> None:
    run = backend.client.submit([], {"calls": [{"_tool": "echo", "value": 1, "_outputPath": "†state.one"}]})
    events = list(run.follow(timeout_seconds=60))
    assert events[-1].kind == "run"
    assert events[-1].status == "completed"
    assert [(event.index, event.status) for event in events if event.kind == "call"] == [(0, "done")]
    assert run.wait(timeout_seconds=60).data()["state"] == {"one": 1}
    with pytest.raises(LookupError):
        run.wait(timeout_seconds=60).data("nobody")
    with pytest.raises(RunOver):
        run.cancel()


def test_instances_have_data_of_their_own(backend: Backend) -> None:
    people = [{"type": "state", "_instance": mark, "name": mark * 2} for mark in "①②"]
    calls = [
        {"_tool": "echo", "value": "†state.name", "_instance": mark, "_outputPath": "†state.copy"} for mark in "①②"
    ]
    result = backend.client.submit(people, {"calls": calls}).wait(timeout_seconds=60)
    assert [result.data(mark)["state"]["copy"] for mark in "①②"] == ["①①", "②②"]
    assert result.to_dict()["instance_status"] == {"①": "completed", "②": "completed"}


def test_the_same_is_awaited(backend: Backend) -> None:
    async def awaited() -> Any:
        async with AsyncClient(backend.settings) as client:
            run = await client.submit([], {"calls": [{"_tool": "add", "a": 1, "b": 2, "_outputPath": "†state.sum"}]})
            return (await run.wait(timeout_seconds=60)).data()["state"]

    assert asyncio.run(awaited()) == {"sum": 3}


def test_what_is_not_there_is_an_error_of_its_own(backend: Backend) -> None:
    with pytest.raises(RunNotFound):
        backend.client.run("no-such-run").status()
    with pytest.raises(InfrastructureError):
        Client(broker="redis://127.0.0.1:1/0", redis="redis://127.0.0.1:1/0").run("any").status()
