"""Latent calls and delegates that are models, on real workers: what they are asked, and what they choose (R4.4)."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgpack
import pytest

from acts_celery import Result
from acts_celery.broker_config import EmbeddedServer

from .backend import Backend, Meeting, status_of
from .loops import ADD, loop_settings

LATENT: Final = {"judge": {"description": "Judge.", "properties": {"mail": {"type": "string"}}}}
JUDGE: Final[dict[str, Any]] = {"schema": {"type": ["integer", "string"]}}
SCHEMA: Final = {"properties": {"approved": {"type": "integer"}, "refused": {"type": "string"}}}
CHOICE: Final = "†state.approved || †state.refused || †state.error"


@pytest.fixture(scope="module")
def asking(server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    running = Backend(loop_settings(server, "asking"), meeting, tmp_path_factory.mktemp("asking"))
    with running.worker():
        yield running


def run(backend: Backend, call: Mapping[str, Any], *outputs: Any, **parts: Any) -> tuple[Result, list[Any]]:
    """What has come of a call whose model answers so, and what it was asked."""
    topic = secrets.token_hex(4)
    redis = backend.meeting.redis
    for output in outputs:
        redis.rpush(f"answers:{topic}", json.dumps({"answer": output}))
    context: list[dict[str, Any]] = [
        {"type": "text", "message": f"topic: {topic}"},
        {"type": "state", "schema": SCHEMA},
        {"type": "input", "seen": "by all"},
        {"type": "data", "data": {"own": "of ①"}, "_instance": "①"},
        {"type": "data", "data": {"own": "of ②"}, "_instance": "②"},
    ]
    result = backend.run([call], context, **parts)
    found: Any = redis.lrange(f"requests:{topic}", 0, -1)
    return result, [msgpack.unpackb(one) for one in found]


def test_r8_3_a_latent_call_sees_its_instance_whole_and_chooses_its_place(asking: Backend) -> None:
    call = {"_tool": "judge", "mail": "†input.seen", "_instance": "①", "_scopes": ["input"], "_outputPath": CHOICE}
    answer = {"output": {"path": "state.refused", "value": "†state.approved"}}
    result, (request,) = run(asking, call, answer, tools=LATENT)
    assert result.data("①")["state"] == {"refused": "†state.approved"}
    shown = json.dumps(request["messages"], ensure_ascii=False)
    assert "of ①" in shown
    assert "②" not in shown
    assert request["messages"][-2]["content"] == '## Data: †input\n{"seen":"by all"}'
    assert '{"_tool":"judge","mail":"by all"}' in request["messages"][-1]["content"]
    places = request["schema"]["properties"]["output"]["anyOf"]
    assert [one["properties"]["path"]["const"] for one in places] == ["state.approved", "state.refused", "state.error"]
    assert places[0]["properties"]["value"] == {"type": "integer"}
    assert request["config"].keys().isdisjoint({"choices", "is_rendered", "tool"})


@pytest.mark.parametrize(
    ("output", "status", "state"),
    [
        ({"path": "state.approved", "value": 7}, "done", {"approved": 7}),
        ({"path": "†state.refused", "value": "no"}, "done", {"refused": "no"}),
        ({"path": "state.approved", "value": "seven"}, "done", "InvalidAnswer"),
        (7, "done", "InvalidAnswer"),
        ({"path": "state.other", "value": 7}, "failed", "OutputError"),
        ({"path": "data.approved", "value": 7}, "failed", "OutputError"),
    ],
)
def test_r4_4_a_delegate_that_is_a_request_chooses_among_what_it_was_shown(
    asking: Backend, output: Any, status: str, state: Any
) -> None:
    call = {"_tool": "ask", "_delegate": "judge", "_scopes": ["text"], "_outputPath": CHOICE}
    result, (request,) = run(asking, call, {"output": output}, delegates={"judge": JUDGE})
    assert "by all" not in json.dumps(request["messages"])
    assert 'Choose one of "state.approved", "state.refused", "state.error".' in request["messages"][0]["content"]
    assert status_of(result, 0) == status
    found = result.data().get("state", {})
    if isinstance(state, dict):
        assert found == state
    elif status == "failed":
        assert (result.calls[0].error or {})["type"] == state
        assert not found
    else:
        assert found["error"]["type"] == state


def test_r4_4_a_delegate_that_is_a_loop_chooses_by_its_output(asking: Backend) -> None:
    call = {"_tool": "ask", "_delegate": "judge", "_scopes": ["text"], "_outputPath": CHOICE}
    adding = {"_tool": "add", "a": 3, "b": 4, "_outputPath": "†state.sum"}
    first = {"calls": [adding], "output": {"path": "state.approved", "value": "no integer"}}
    then = {"calls": [], "output": {"path": "state.approved", "value": "†state.sum"}}
    result, requests = run(asking, call, first, then, delegates={"judge": {**JUDGE, "tools": {"add": ADD}}})
    assert (status_of(result, 0), result.data()["state"]) == ("done", {"approved": 7})
    assert len(requests) == 2
    assert "the choice" not in json.dumps(requests[0]["messages"])


def test_a_text_that_a_model_copies_is_exactly_that_text(asking: Backend) -> None:
    text = "†state.a ††b †{state.c} ††{d} † †"
    call = {"_tool": "judge", "mail": text.replace("†", "††"), "_outputPath": "†data.copy"}
    for delegate in ({}, {"_delegate": "judge", "_scopes": ["text"]}):
        parts: dict[str, Any] = {"delegates": {"judge": JUDGE}} if delegate else {"tools": LATENT}
        result, (request,) = run(asking, {**call, **delegate}, {"output": text}, **parts)
        assert f'"mail":"{text}"' in request["messages"][-1]["content"]
        assert result.data()["data"]["copy"] == text
