"""An MCP server that is a process of ours, spoken to by its standard input and output: a line is a message.

The SDK's own transport reads a line of any length, and leaves a server that hangs behind when a worker is killed. This
one bounds the line, and runs the server under a guardian (`broker_config/guardian.py`), so that it ends with us.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from acts_celery.broker_config.guarded_process import guarded

from .errors import Origin, Told, too_large

logger = logging.getLogger(__name__)

_GRACE_SECONDS: Final = 2.0
"""A server has so long to end when its input is closed, and so long again after SIGTERM."""
_LAST_WORDS_SECONDS: Final = 1.0
"""So long what it writes on standard error is waited for when it has closed its output."""
_MARGIN_SECONDS: Final = 5.0
_SHOWN: Final = 500
_CHUNK_BYTES: Final = 4_096
_ID: Final = re.compile(rb'"id"\s*:\s*(\d{1,15})\b')
"""The SDK numbers its requests."""


@asynccontextmanager
async def stdio(
    name: str,
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None,
    most_bytes: int,
    on_end: Callable[[str], None],
    said: deque[str],
) -> AsyncIterator[Any]:
    """The streams of a session with a server that is started for it, and ended with it.

    `on_end` is told why, when the server closes its output or says more than `most_bytes` in one message; where it was
    asked one thing, that is the answer. `said` is filled with what it writes on standard error, as much as it takes.
    Raises the OSError that starting it met.
    """
    import anyio

    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        process = await asyncio.create_subprocess_exec(
            *guarded(command, theirs, grace_seconds=_GRACE_SECONDS),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=dict(env),
            cwd=cwd,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            limit=most_bytes,
        )
        theirs.close()
        try:
            await _started(ours, command[0])
            told, reading = anyio.create_memory_object_stream[Any](0)
            writing, given = anyio.create_memory_object_stream[Any](0)
            asked, silent = set[Any](), asyncio.Event()
            async with anyio.create_task_group() as tasks, told, reading, writing, given:
                tasks.start_soon(_read, name, process, told, asked, most_bytes, on_end, silent)
                tasks.start_soon(_write, process, given, asked)
                tasks.start_soon(_listen, name, process, said, silent)
                yield reading, writing
                tasks.cancel_scope.cancel()
        finally:
            try:
                with anyio.CancelScope(shield=True):
                    await _end(process, ours)
            finally:
                # Whoever has inherited its output may keep it open; asyncio has no public way to let go of it.
                process._transport.close()  # type: ignore[attr-defined]


async def _started(control: socket.socket, command: str) -> None:
    """Wait for the guardian to say that the server was started."""
    word, _, number = (await asyncio.get_running_loop().sock_recv(control, 64)).decode().partition(" ")
    if word != "started":
        code = int(number) if word == "failed" else 0
        raise OSError(code, os.strerror(code) if code else "it could not be started", command)


async def _read(
    name: str,
    process: Process,
    told: Any,
    asked: set[Any],
    most_bytes: int,
    on_end: Callable[[str], None],
    silent: asyncio.Event,
) -> None:
    """Pass on each message of the server. What is none is logged, and where it is meant as an answer, that answer is
    an error: whoever waits for it need not wait until its time is over.
    """
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp_types import INVALID_REQUEST, ErrorData, JSONRPCError, jsonrpc_message_adapter

    async def fail(id_: Any, text: str) -> None:
        asked.discard(id_)
        error = ErrorData(code=INVALID_REQUEST, message=text, data=Told(Origin.UNFIT))
        await told.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=id_, error=error)))

    assert process.stdout is not None
    why = "it has closed its output"
    async with told:
        try:
            while line := await process.stdout.readline():
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    logger.warning("MCP server %s wrote what is no message: %.200r", name, line)
                    for id_ in _answered(line, asked):
                        await fail(id_, "its answer is no message, or too deep")
                    continue
                asked.discard(getattr(message, "id", None))
                if isinstance(message, JSONRPCError):
                    message.error.data = Told(Origin.SERVER, message.error.data)
                await told.send(SessionMessage(message))
        except ValueError:  # a line beyond the limit
            why = f"it answered {too_large(most_bytes)}"
            if len(asked) == 1:
                with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                    await fail(next(iter(asked)), why)
        except (OSError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass
        with anyio.move_on_after(_LAST_WORDS_SECONDS):
            await silent.wait()
        on_end(why)


def _answered(line: bytes, asked: set[Any]) -> list[Any]:
    """The requests that a line which is no message is meant to answer: their ids stand at its beginning or its end."""
    if b'"jsonrpc"' not in line:
        return []
    named = {int(number) for part in (line[:_SHOWN], line[-_SHOWN:]) for number in _ID.findall(part)}
    return [id_ for id_ in asked if id_ in named]


async def _write(process: Process, given: Any, asked: set[Any]) -> None:
    """Pass on each message to the server, and note the requests that it has to answer."""
    import anyio
    from mcp_types import JSONRPCNotification, JSONRPCRequest

    assert process.stdin is not None
    with suppress(OSError, anyio.ClosedResourceError, anyio.BrokenResourceError):
        async for each in given:
            match each.message:
                case JSONRPCRequest(id=id_):
                    asked.add(id_)
                case JSONRPCNotification(method="notifications/cancelled", params={"requestId": id_}):
                    asked.discard(id_)
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode() + b"\n")
            await process.stdin.drain()


async def _listen(name: str, process: Process, said: deque[str], silent: asyncio.Event) -> None:
    """Log what the server says on standard error, one line for each piece: it forges no line of ours."""
    assert process.stderr is not None
    while piece := await process.stderr.read(_CHUNK_BYTES):
        for line in filter(None, piece.decode(errors="replace").splitlines()):
            said.append(line[:_SHOWN])
            logger.info("MCP server %s: %r", name, line[:_SHOWN])
    silent.set()


async def _end(process: Process, control: socket.socket) -> None:
    """Close the server's input, and see to it that it ends."""
    assert process.stdin is not None
    process.stdin.close()
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _GRACE_SECONDS)
        return
    with suppress(OSError):
        control.send(b"stop\n")
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _GRACE_SECONDS + _MARGIN_SECONDS)
        return
    with suppress(ProcessLookupError):  # with its guardian Linux ends the server
        process.kill()
