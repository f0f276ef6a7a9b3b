"""Documents: a call of a tool whose message is large runs in a process of its own.

To read, check and submit a document takes time and memory that grow with it; here they are bounded, and the server's
other visitors do not wait. Each process runs one call at a time, and each visitor has one under way. The processor time
of a visitor's calls is limited, too.

The process gets a line of JSON with the caller and the length of the message, then the message; it answers with a line.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
import time
from asyncio import IncompleteReadError, LimitOverrunError
from asyncio.subprocess import Process
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, Final
from weakref import WeakValueDictionary

from mcp_types import CallToolResult

from ...broker_config import Settings
from ...broker_config import load as load_settings
from ...protocol import Rejected
from ...protocol.plan.documents import decode
from .. import limits
from ..fairness import FairSemaphore
from ..limits import limits_of
from ..registry.mcp_tools import load_code
from ..runner.checking import begun, killed
from ..ui.access import Refused
from .reading import DOING, READING
from .tools import Principal, Runs, ToolContext, answer, failure

NO_MESSAGE: Final = "the body should be one message of JSON-RPC"
_TOOLS: Final = {name: tool for name, tool in {**READING, **DOING}.items() if name != "result"}
"""The tools that do not wait for a run."""
_DIED: Final = (OSError, IncompleteReadError, LimitOverrunError)
_PROGRAM: Final = "import sys; sys.path[:] = sys.argv[1:]; from acts_celery.worker.mcp.documents import main; main()"
"""The program of a process: it imports what this process would, and nothing from the folder it is started in."""


@dataclass(frozen=True, slots=True)
class DoneCall:
    """A call that has run: its message without the arguments, and the tool's answer."""

    message: bytes
    result: CallToolResult


@dataclass(slots=True)
class _Spent:
    """The processor time that a visitor's calls have taken: it is forgotten as time goes by."""

    seconds: float = 0.0
    at: float = 0.0

    def add(self, seconds: float) -> None:
        now = time.monotonic()
        self.seconds = max(0.0, self.seconds - limits.DOCUMENTS_SHARE * (now - self.at)) + seconds
        self.at = now


class Documents:
    """The processes of one server, each begun when it is first needed. Make it in the event loop that serves."""

    def __init__(self, settings: Settings) -> None:
        self._environment = {**os.environ, **settings.to_environment()}
        self._idle: list[Process] = []
        self._places = FairSemaphore(limits.DOCUMENTS_PROCESSES)
        self._own: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._spent: dict[str, _Spent] = {}
        self._waiting = Counter[str]()

    async def run(self, body: bytes, principal: Principal) -> DoneCall | None:
        """Run the call that a message is; None where it is no call, or one of a tool that waits for a run. Raises
        `Refused`.
        """
        name = principal.name
        if (own := self._own.get(name)) is None:
            self._own[name] = own = asyncio.Lock()
        if self._waiting[name] >= limits.DOCUMENTS_MOST_WAITING:
            text = f"{self._waiting[name]} of your documents are under way: send this one when they are answered"
            raise Refused(429, "TooMuchWork", text, {"Retry-After": "5"})
        self._waiting[name] += 1
        try:
            async with own, self._places.one(name):
                self._require_time(name)
                began = time.monotonic()
                try:
                    return await self._asked(body, principal)
                finally:
                    self._spent[name].add(time.monotonic() - began)
        finally:
            self._waiting[name] -= 1

    async def close(self) -> None:
        """End the processes."""
        while self._idle:
            await killed(self._idle.pop())

    def _require_time(self, name: str) -> None:
        spent = self._spent.setdefault(name, _Spent())
        spent.add(0)
        if (over := spent.seconds - limits.SPENT_SECONDS) > 0:
            taken = f"the documents of {name} have taken {limits.SPENT_SECONDS:g} s"
            text = f"{taken}: send the next one later, or a smaller one"
            raise Refused(429, "TooMuchWork", text, {"Retry-After": str(int(over / limits.DOCUMENTS_SHARE) + 1)})

    async def _asked(self, body: bytes, principal: Principal) -> DoneCall | None:
        process: Process | None = None
        try:
            while self._idle and process is None:
                process = self._idle.pop()
                process = process if process.returncode is None else None  # it was ended meanwhile
            process = process or await begun(_PROGRAM, limits.DOCUMENTS_MOST_ANSWERED, self._environment)
            answered = await _exchanged(process, body, principal)
        except _DIED as error:
            if process is not None:
                await killed(process)
                if process.returncode == -signal.SIGPROF:
                    text = f"takes more than {limits.DOCUMENTS_MOST_SECONDS} s of processor time"
                    raise Refused(413, "TooLarge", f"{text}: send a smaller document") from None
            text = f"the process that reads documents has ended ({error!r}): send a smaller document, or try again"
            raise Refused(503, "InfrastructureError", text, {"Retry-After": "2"}) from None
        except BaseException:
            if process is not None:
                await killed(process)  # its answer is not awaited any more
            raise
        self._idle.append(process)
        if answered is None:
            return None
        if "refused" in answered:
            raise Refused(400, "BadBody", answered["refused"])
        return DoneCall(json.dumps(answered["message"]).encode(), CallToolResult.model_validate(answered["result"]))


async def _exchanged(process: Process, body: bytes, principal: Principal) -> Any:
    """The answer of a process. Raises one of `_DIED` where there is none."""
    assert process.stdin is not None
    assert process.stdout is not None
    head = {"name": principal.name, "rights": sorted(principal.rights), "bytes": len(body)}
    process.stdin.writelines((json.dumps(head).encode() + b"\n", body))
    await process.stdin.drain()
    return json.loads(await process.stdout.readuntil())


def main() -> None:
    """Run calls until the input ends."""
    os.nice(limits.DOCUMENTS_NICENESS)
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what code of users prints is no answer
    settings = load_settings(env_file=None)
    load_code(settings)
    with suppress(ValueError, OSError):  # not every system bounds it
        resource.setrlimit(resource.RLIMIT_AS, (limits.DOCUMENTS_MOST_BYTES, limits.DOCUMENTS_MOST_BYTES))
    asyncio.run(_serve(settings, sys.stdin.buffer, output))


async def _serve(settings: Settings, messages: BinaryIO, output: BinaryIO) -> None:
    runs = Runs(settings)
    identities = {token.name: token.identity for token in settings.read_mcp_tokens()}
    output.write(b"\n")
    output.flush()
    while head := messages.readline():
        who = json.loads(head)
        principal = Principal(who["name"], frozenset(who["rights"]), identities.get(who["name"]))
        signal.setitimer(signal.ITIMER_PROF, limits.DOCUMENTS_MOST_SECONDS)  # it ends the process
        answered = await _answered(runs, principal, messages.read(who["bytes"]))
        signal.setitimer(signal.ITIMER_PROF, 0)
        output.write(json.dumps(answered).encode() + b"\n")
        output.flush()
    await runs.close()


async def _answered(runs: Runs, principal: Principal, body: bytes) -> dict[str, Any] | None:
    """The answer to a message; None for one that does not run here."""
    try:
        message = decode(body, limits_of(runs.settings))
    except Rejected as rejected:
        return {"refused": str(rejected)}
    if not isinstance(message, dict):
        return {"refused": NO_MESSAGE}
    called = message.get("params") if message.get("method") == "tools/call" else None
    name = called.get("name") if isinstance(called, dict) else None
    if not isinstance(called, dict) or not isinstance(name, str) or (tool := _TOOLS.get(name)) is None:
        return None
    try:
        principal.require(tool.right, name)
        call = tool.read(called.get("arguments") or {})
        result = answer(await call.execute(ToolContext(runs, principal, _silent)))
    except MemoryError:
        text = f"takes more than {limits.DOCUMENTS_MOST_BYTES} bytes of memory"
        result = failure(Refused(413, "TooLarge", text), name)
    except Exception as error:
        result = failure(error, name)
    return {
        "message": {**message, "params": {**called, "arguments": {}}},
        "result": result.model_dump(mode="json", by_alias=True, exclude_none=True),
    }


async def _silent(done: float, of: float | None, text: str | None) -> None:
    """Report no progress: the call does not wait."""
