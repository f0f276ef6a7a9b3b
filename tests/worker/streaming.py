"""Requests whose model is behind a server that streams, as tests lay its answers down."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import pytest

from acts_celery import Run
from acts_celery.broker_config import EmbeddedServer
from tests.models.server import Reply, delta, model_server, streamed

from .backend import Backend, Meeting, settings_apart
from .loops import ADD

WAIT = {"type": "object", "properties": {"gate": {"type": "string"}, "value": {}}}
TOOLS = {"add": ADD, "waitAtGate": WAIT}
ASK = {"_tool": "ask", "_outputPath": "†state.asked"}
SUM = {"_tool": "add", "a": 1, "b": 2, "_outputPath": "†state.sum"}


@dataclass
class Speaker:
    """Answers the ticks of each topic as it was told."""

    replies: dict[str, list[Callable[[], Reply]]] = field(default_factory=dict)
    asked: dict[str, list[int]] = field(default_factory=dict)
    """The ticks that were asked, by topic."""

    def __call__(self, body: Any) -> Reply:
        said = [part for message in body["messages"] for part in str(message["content"]).split("\n\n")]
        topic = next(text.removeprefix("topic: ") for text in said if text.startswith("topic: "))
        tick = sum(text.startswith("# Tick ") for text in said)
        self.asked.setdefault(topic, []).append(tick)
        return self.replies[topic][tick]()


@dataclass
class Streaming:
    """A backend whose model is behind a server that streams."""

    backend: Backend
    speaker: Speaker

    def submit(self, *replies: Callable[[], Reply], **request: Any) -> tuple[Run, str]:
        """Submit a request whose ticks are answered so; the run and its topic."""
        topic = secrets.token_hex(4)
        self.speaker.replies[topic] = list(replies)
        context = [{"type": "text", "message": f"topic: {topic}"}]
        document = {"context": context, "schema": {"type": "integer"}, "tools": TOOLS, **request}
        return self.backend.client.submit_document(document), topic

    def delegate(self, *replies: Callable[[], Reply]) -> dict[str, Any]:
        """The parts of a request of which `ASK` is a call: a delegate with tools, whose ticks are answered so."""
        topic = secrets.token_hex(4)
        self.speaker.replies[topic] = list(replies)
        context = [{"type": "text", "message": f"topic: {topic}"}]
        inner = {"context": context, "schema": {"type": "integer"}, "tools": TOOLS}
        ask = {"type": "object", "properties": {"_delegate": {"const": "inner"}}}
        return {"delegates": {"inner": inner}, "tools": {**TOOLS, "ask": ask}}


def held(text: str, *marks: str, hold: Event) -> Reply:
    """A text that is streamed up to behind a mark, and the rest when the event is set."""
    whole = streamed("", pieces=1)
    at = max(text.index(mark) + len(mark) for mark in marks)
    chunks = [whole.chunks[0], delta(content=text[:at]), hold, delta(content=text[at:]), *whole.chunks[1:]]
    return Reply(chunks, headers=whole.headers)


def answer(*calls: Any, output: Any = None) -> str:
    return json.dumps({"calls": list(calls), "output": output}, ensure_ascii=False)


def waiting(gate: str, value: Any = 1) -> dict[str, Any]:
    return {"_tool": "waitAtGate", "gate": gate, "value": value, "_outputPath": f"†state.{gate}"}


def solutions(run: Run) -> list[Any]:
    return [entry.message for entry in run.log() if entry.message["type"] == "solution"]


@pytest.fixture(scope="module")
def speaker() -> Speaker:
    return Speaker()


@pytest.fixture(scope="module")
def settings(server: EmbeddedServer, speaker: Speaker, request: pytest.FixtureRequest) -> Iterator[Any]:
    with model_server(speaker) as model:
        given = {"model": "openai:m", "model_base_url": model.url, "model_api_key": "k", "lease_seconds": 1.5}
        yield settings_apart(
            server, request.module.__name__.rpartition(".")[2], **given, sweep_interval_seconds=0.2, limit_attempts=20
        )


@pytest.fixture(scope="module")
def streaming(
    settings: Any, speaker: Speaker, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Streaming]:
    backend = Backend(settings, meeting, tmp_path_factory.mktemp("streaming"))
    with backend.worker():
        yield Streaming(backend, speaker)
