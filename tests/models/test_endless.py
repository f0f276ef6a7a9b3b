"""Answers that never end, in whatever part of them: each ends by a limit (SPEC R13.4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import count, repeat
from typing import Final

import pytest

from acts_celery import InvalidAnswer, ModelError, Unreachable
from acts_celery.broker_config import ConfiguredModel
from acts_celery.worker.agent.anthropic_messages import AnthropicMessages
from acts_celery.worker.agent.asking import Candidate, answered
from acts_celery.worker.agent.clients import Bounds
from acts_celery.worker.agent.openai_chat import OpenAIChat
from acts_celery.worker.agent.sdk_model import Dialect, SdkModel
from acts_celery.worker.registry.models import ignore

from .asked import request
from .server import delta, event
from .test_anthropic import event as anthropic_event

KEY: Final = "sk-canary-4711"
BOUNDS: Final = Bounds(10_000, 4)
OK: Final = b"HTTP/1.1 200 OK\r\n"
STREAM: Final = OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
DIALECTS: Final[dict[str, type[Dialect]]] = {"openai": OpenAIChat, "anthropic": AnthropicMessages}
MUCH: Final = "x" * 1_000
TEXT: Final = {
    "openai": delta(content=MUCH),
    "anthropic": anthropic_event({"type": "content_block_delta", "delta": {"type": "text_delta", "text": MUCH}}),
}


def headers(each: int) -> Iterator[bytes]:
    """So many headers at once, one batch after the other."""
    yield OK
    yield from (b"".join(b"X-%d-%d: y\r\n" % (batch, at) for at in range(each)) for batch in count())


def body(piece: bytes) -> Iterator[bytes]:
    """A body of the same piece again and again."""
    yield STREAM
    yield from repeat(b"%x\r\n%s\r\n" % (len(piece), piece))


def line(*before: bytes) -> Iterator[bytes]:
    """What is no body, and a line that goes on."""
    yield from before
    yield from repeat(MUCH.encode())


async def asked(wire: str, answer: Iterator[bytes], pause_seconds: float, seconds: float) -> ModelError:
    """What comes of asking a server within so many seconds that answers so, and pauses behind each piece."""
    import_module(wire)  # takes seconds on a busy machine, which are not the server's

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            for piece in answer:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause_seconds)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # whoever asked has gone
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        configured = ConfiguredModel(model=f"{wire}:m", base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY)
        model = SdkModel(DIALECTS[wire](), configured, BOUNDS)
        asking = answered([Candidate(model, "m")], request("x", config={"model": "m"}), ignore, seconds, once)
        with pytest.raises(ModelError) as caught:
            await asking
        await model.close()
        return caught.value


def once(error: ModelError, *_: object) -> None:
    """What may pass is asked again: here it is seen the first time."""
    raise error


@pytest.mark.parametrize("wire", DIALECTS)
@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        pytest.param(lambda wire: headers(1_000), Unreachable, "Too many headers", id="headers"),
        pytest.param(lambda wire: line(OK, b"X: "), Unreachable, "more than 8190 bytes", id="a header"),
        pytest.param(lambda wire: line(b"HTTP/1.1 200 "), Unreachable, "more than 8190 bytes", id="a status"),
        pytest.param(lambda wire: body(TEXT[wire]), InvalidAnswer, "ACTS_LIMIT_MESSAGE_BYTES", id="a text"),
        pytest.param(lambda wire: body(event({"x": MUCH})), InvalidAnswer, "640000 bytes in one answer", id="events"),
        pytest.param(lambda wire: body(MUCH.encode()), InvalidAnswer, "640000 bytes in one answer", id="a line"),
    ],
)
def test_an_answer_that_never_ends_is_ended_by_its_size(
    wire: str, answer: Callable[[str], Iterator[bytes]], kind: type[ModelError], words: str
) -> None:
    error = asyncio.run(asked(wire, answer(wire), 0, 60))
    assert type(error) is kind
    assert words in str(error)
    assert KEY not in str(error)


@pytest.mark.parametrize("wire", DIALECTS)
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda wire: headers(1), id="headers"),
        pytest.param(lambda wire: body(b":"), id="a body"),
        pytest.param(lambda wire: body(TEXT[wire][:-1]), id="a text"),
        pytest.param(lambda wire: repeat(b"HTTP/1.1 100 Continue\r\n\r\n"), id="the promise of an answer"),
    ],
)
def test_an_answer_that_drips_is_ended_by_the_time_of_its_request(
    wire: str, answer: Callable[[str], Iterator[bytes]]
) -> None:
    error = asyncio.run(asked(wire, answer(wire), 0.1, 0.5))
    assert type(error) is Unreachable
    assert "has not answered within 0.5 seconds (request_seconds)" in str(error)
