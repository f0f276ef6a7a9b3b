"""The sessions that runs have with MCP servers (SPEC R8): each run has its own with a server, and one at a time.

A session is opened at the run's first call of the server, by the process that has that call, and closed when the run
has ended, or when nothing has used it for a while. Calls of the run that become ready in other processes are sent to
the one that has the session (`store.living`), and their answers come back. If that process dies, the next call opens
another session, and the log of the run says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Final
from weakref import WeakKeyDictionary

from msgpack import UnpackException
from redis.exceptions import RedisError

from ...broker_config import McpServer, Settings
from .. import limits
from ..broker.attempts import current_attempt, owner_token
from ..broker.messages import pack, unpack
from ..errors import CallFailed
from ..store.connections import connect_async
from ..store.held_calls import Actor, AuditRecord
from ..store.keys import ENDED_STATUSES
from ..store.living import SessionTable
from ..store.run_list import PictureKeeper
from .mcp_connections import Connection, OpenAttempts
from .mcp_tools import Declaration, McpRefused, McpToolChanged, McpToolFailed, McpUnavailable, NotAsked

logger = logging.getLogger(__name__)

_ERRORS: Final = {kind.__name__: kind for kind in (McpUnavailable, McpRefused, McpToolFailed, McpToolChanged)}
_DIED: Final = "the worker process that had it has ended"


@dataclass(eq=False)
class _LocalSession:
    """A session of this process."""

    number: int
    why: str
    """The reason why the session before it ended."""
    connection: Connection
    used_at: float
    at_work: int = 0
    is_closing: bool = False
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class RunSessions:
    """The sessions of runs, for the tasks of one event loop."""

    def __init__(
        self,
        table: SessionTable,
        servers: Mapping[str, McpServer],
        make: Callable[[str], Connection],
        keep: Callable[[str, bytes], Awaitable[str]],
        actor: Actor,
    ) -> None:
        """`make` makes a connection to a server, `keep` keeps a picture for a run (see `mcp_tools.Keep`)."""
        self._table = table
        self._servers = servers
        self._make = make
        self._keep_picture = keep
        self._actor = actor
        self._process = owner_token()
        self._kept_at = -limits.LEASE_SECONDS
        self._numbers = count(1)
        self._own: dict[tuple[str, str], _LocalSession] = {}
        self._answers: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._serving: dict[str, asyncio.Task[None]] = {}
        self._seen: dict[str, None] = {}
        """The ids of messages that have come: one may come twice."""
        self._reserved = set[tuple[str, str]]()
        """The sessions that are about to be claimed."""
        self._freed = asyncio.Event()
        self._keeping = asyncio.Lock()
        self._tending: tuple[asyncio.Task[None], ...] = ()
        self._others = set[asyncio.Task[None]]()

    async def call(self, run: str, server: str, tool: Declaration, arguments: Mapping[str, Any]) -> Any:
        """Call a tool in the run's session, in whichever process that is. Raises an `McpError`."""
        dead = ""
        while True:
            await self._begun()
            own = await self._claimed(run, server, dead)
            if isinstance(own, _LocalSession):
                return await self._call_locally(run, server, own, tool, arguments)
            answer = await self._call_remotely(own, run, server, tool, arguments)
            if answer is None:
                dead = own
            elif "error" in answer:
                raise _ERRORS.get(answer["error"], McpUnavailable)(answer["text"])
            elif "value" in answer:
                return answer["value"]

    async def close(self) -> None:
        """End all sessions of this loop."""
        for task in self._tending:
            task.cancel()
        await asyncio.gather(*self._tending, return_exceptions=True)
        await asyncio.gather(*(own.connection.close() for own in self._own.values()))
        self._own.clear()

    async def _claimed(self, run: str, server: str, dead: str = "") -> _LocalSession | str:
        """The run's session, if this process has it, else the process that has it."""
        key = run, server
        while True:
            own = self._own.get(key)
            if own is not None and own.is_closing:
                await own.gone.wait()
                continue
            if not self._is_live():
                await self._begun()
                await self._keep()
                continue
            if own is not None and not own.connection.has_ended:
                return own
            is_full = self._is_full(key)
            process, ended = self._process, own.number if own is not None else 0
            why = own.connection.why if own is not None else _DIED if dead else ""
            self._reserved.add(key)
            try:
                claim = await self._table.claim(run, server, process, dead=dead, ended=ended, why=why, gives_up=is_full)
            finally:
                self._reserved.discard(key)
            if claim.process not in ("", process):
                self._own.pop(key, None)
                return claim.process
            if process != self._process:
                continue
            if not claim.process:
                await self._room(key)
                continue
            if (known := self._own.get(key)) is None or known.number < claim.number:
                connection, now = self._make(server), asyncio.get_running_loop().time()
                self._own[key] = known = _LocalSession(claim.number, claim.why, connection, now)
                if claim.is_new and claim.number > 1:
                    await self._note_reopened(run, server, known)
            return known

    async def _call_locally(
        self, run: str, server: str, own: _LocalSession, tool: Declaration, arguments: Mapping[str, Any]
    ) -> Any:
        """Call a tool in a session of this process; in the next session where this one had ended before the call."""
        for is_last in (False, True):
            own.at_work += 1
            try:
                return await own.connection.call(tool, arguments, partial(self._keep_picture, run))
            except NotAsked as error:
                again = None if is_last else await self._claimed(run, server)
                if not isinstance(again, _LocalSession):
                    raise McpUnavailable(str(error)) from error
            except CallFailed as error:
                raise type(error)(f"{error}{_lost(own)}") from error
            finally:
                own.at_work -= 1
                own.used_at = asyncio.get_running_loop().time()
            own = again
        raise AssertionError("the last attempt returns or raises")

    async def _call_remotely(
        self, process: str, run: str, server: str, tool: Declaration, arguments: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """The answer of the process that has the session; None where that has died before the call began."""
        id_ = f"{self._process}:{next(self._numbers)}"
        call = {"run": run, "server": server, "tool": dict(tool.fields), "arguments": dict(arguments)}
        message = pack({"id": id_, "from": self._process, "call": call})
        answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[id_] = answer
        try:
            await self._table.send(process, message)
            while True:
                await asyncio.wait([answer], timeout=limits.KEEP_SECONDS)
                if answer.done():
                    return answer.result()
                if not await self._table.is_live(process):
                    if await self._table.withdraw(process, message):
                        return None
                    raise McpUnavailable(
                        f"MCP server {server} did not answer: the worker process that had the run's session has ended, "
                        "and what the session held is lost; the next call opens another"
                    )
        except asyncio.CancelledError:
            self._spawn(self._table.send(process, pack({"id": id_, "cancel": True})))
            raise
        finally:
            del self._answers[id_]

    # The calls of other processes.

    async def _read(self) -> None:
        """Take the messages of other processes."""
        while True:
            try:
                data = await self._table.receive(self._process)
            except (RedisError, TimeoutError, OSError):
                await asyncio.sleep(limits.KEEP_SECONDS)
                continue
            if data is not None:
                try:
                    self._take(unpack(data))
                except (ValueError, TypeError, KeyError, AttributeError, UnpackException) as error:
                    logger.warning("a message about a session with an MCP server cannot be read: %s", error)

    def _take(self, message: Mapping[str, Any]) -> None:
        id_ = str(message["id"])
        if message.get("cancel"):
            if (task := self._serving.get(id_)) is not None:
                task.cancel()
        elif "call" not in message:
            if (answer := self._answers.get(id_)) is not None and not answer.done():
                answer.set_result(message)
        elif id_ not in self._seen:
            self._seen[id_] = None
            while len(self._seen) > limits.MOST_SEEN:
                del self._seen[next(iter(self._seen))]
            task = self._serving[id_] = self._spawn(self._serve(id_, str(message["from"]), message["call"]))
            task.add_done_callback(lambda _: self._serving.pop(id_, None))

    async def _serve(self, id_: str, process: str, call: Mapping[str, Any]) -> None:
        """Run a call of another process, and answer it."""
        try:
            run, server = str(call["run"]), str(call["server"])
            answer = {"id": id_}
            own = await self._claimed(run, server)
            if isinstance(own, _LocalSession):
                async with asyncio.timeout(self._servers[server].timeout_seconds + limits.MCP_SESSIONS_MARGIN_SECONDS):
                    tool = Declaration(call["tool"])
                    answer["value"] = await self._call_locally(run, server, own, tool, call["arguments"])
            packed = pack(answer)
        except CallFailed as raised:
            packed = _failed(id_, raised)
        except TimeoutError:
            packed = _failed(id_, McpUnavailable("the MCP server does not answer in time"))
        except (KeyError, TypeError, ValueError, OverflowError) as raised:
            packed = _failed(id_, McpRefused(f"what the MCP server is asked, or answers, cannot be sent: {raised!r}"))
        await self._table.send(process, packed)

    # The upkeep of every second.

    async def _begun(self) -> None:
        """Register this process as alive, and begin to look after its sessions."""
        async with self._keeping:
            if not self._tending or any(task.done() for task in self._tending):
                for task in self._tending:
                    task.cancel()
                await self._live()
                create_task = asyncio.get_running_loop().create_task
                tending = create_task(self._tend(), name="acts-mcp-sessions")
                self._tending = tending, create_task(self._read(), name="acts-mcp-messages")

    async def _live(self) -> None:
        began = asyncio.get_running_loop().time()
        await self._table.begin(self._process)
        self._kept_at = began

    def _is_live(self) -> bool:
        """Whether no other process can hold this one for dead yet."""
        age = asyncio.get_running_loop().time() - self._kept_at
        return age < limits.LEASE_SECONDS - limits.MCP_SESSIONS_MARGIN_SECONDS

    async def _keep(self) -> None:
        """Renew the registration as alive; if that is too late, the sessions are lost, and the process is a new one."""
        async with self._keeping:
            began = asyncio.get_running_loop().time()
            if await self._table.keep(self._process):
                self._kept_at = began
                return
            if self._own:
                text = "this process was away for too long: its %d sessions with MCP servers are lost"
                logger.warning(text, len(self._own))
            for own in self._own.values():
                self._spawn(own.connection.close())
            self._own.clear()
            self._process = owner_token()
            await self._live()

    async def _tend(self) -> None:
        idle = 0
        try:
            while idle < limits.IDLE_ROUNDS:
                await asyncio.sleep(limits.KEEP_SECONDS)
                idle = 0 if self._own or self._answers or self._serving else idle + 1
                with suppress(RedisError, TimeoutError, OSError):
                    await self._keep()
                    await self._close_ended()
        finally:
            self._kept_at = -limits.LEASE_SECONDS
            with suppress(Exception):
                await self._table.end(self._process)

    async def _close_ended(self) -> None:
        """Close the sessions of runs that have ended, and those that nothing has used for a while."""
        runs = list(dict.fromkeys(run for run, _ in self._own))
        statuses = dict(zip(runs, await self._table.statuses(runs), strict=True))
        now = asyncio.get_running_loop().time()
        for key, own in list(self._own.items()):
            (run, server), status = key, statuses.get(key[0], "")
            idle_seconds = self._servers[server].idle_seconds
            if own.is_closing or (own.at_work and status != "cancelled"):
                continue
            if status is None or status in ENDED_STATUSES:
                why = "the run had ended"
            elif now - own.used_at > idle_seconds:
                why = f'nothing had used it for {idle_seconds:g} s ("idle_seconds" in ACTS_MCP)'
            else:
                continue
            own.is_closing = True
            self._spawn(self._close(run, server, own, why))

    async def _close(self, run: str, server: str, own: _LocalSession, why: str) -> None:
        try:
            await self._table.claim(run, server, self._process, ended=own.number, why=why, gives_up=True)
        finally:
            if self._own.get((run, server)) is own:
                del self._own[run, server]
            own.gone.set()
            try:
                await own.connection.close()
            finally:
                self._freed.set()

    # The bound on sessions.

    def _is_full(self, key: tuple[str, str]) -> bool:
        """Whether the server has as many sessions here as it may have, and none is this run's."""
        others = {own for own in (*self._own, *self._reserved) if own != key and own[1] == key[1]}
        return key not in self._own and len(others) >= self._servers[key[1]].max_sessions

    async def _room(self, key: tuple[str, str]) -> None:
        """Wait until there may be one more session with a server. Raises `McpUnavailable`."""
        server, settings = key[1], self._servers[key[1]]
        try:
            async with asyncio.timeout(settings.timeout_seconds / 2):
                while self._is_full(key):
                    self._freed.clear()
                    await self._freed.wait()
        except TimeoutError:
            raise McpUnavailable(
                f"{settings.max_sessions} runs have a session with MCP server {server} in this worker process, which "
                'is as many as it may have: raise "max_sessions" in ACTS_MCP, or say "stateless": true where its calls '
                "need no session of their own"
            ) from None

    async def _note_reopened(self, run: str, server: str, own: _LocalSession) -> None:
        """Write into the log of the run, and into ours, that its session is another one."""
        logger.warning("run %s: session %d with MCP server %s, since %s", run, own.number, server, own.why)
        about = {"server": server, "session": own.number, "because": own.why}
        await self._table.note(run, AuditRecord("session opened anew", self._actor, about))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)
        return task


def _failed(id_: str, error: CallFailed) -> bytes:
    """The answer to a call of another process that has failed."""
    text = str(error).encode("utf-8", "replace").decode()
    return pack({"id": id_, "error": type(error).__name__, "text": text})


def _lost(own: _LocalSession) -> str:
    """The sentence about a session in the error of its call; empty where that is the first one, and open."""
    if own.connection.has_ended:
        return "; the session of the run with it has ended, and what that held is lost: the next call opens another"
    if own.number > 1:
        return f" (in session {own.number} of the run with it: the one before was closed, since {own.why})"
    return ""


# The connections of a process to MCP servers, by event loop: those that all runs share, and those of single runs.


class Connections:
    """The connections of a process, by event loop: a forked process, and another loop, has its own."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopConnections] = WeakKeyDictionary()

    async def call(self, name: str, tool: Declaration, arguments: Mapping[str, Any]) -> Any:
        """Call a tool of a server for the current call, in the session of its run. Raises an `McpError`."""
        attempt = current_attempt()
        if self._settings.mcp[name].stateless or attempt is None:
            return await self.to(name).call(tool, arguments, partial(self._keep, attempt.id.run if attempt else ""))
        if self._settings.effective_redis_url is None:
            raise McpRefused(
                f"each run has its own session with MCP server {name}, and the log says which worker has it, "
                'but this worker cannot read it: set ACTS_REDIS_URL here, or say "stateless": true in ACTS_MCP where '
                "the server's calls need no session"
            )
        own = self._own()
        if own.sessions is None:
            table = SessionTable(connect_async(self._settings), self._settings.key_prefix)
            actor = Actor.of(self._settings)
            own.sessions = RunSessions(table, self._settings.mcp, partial(self._of_run, own), self._keep, actor)
        return await own.sessions.call(attempt.id.run, name, tool, arguments)

    def to(self, name: str) -> Connection:
        """The connection to a server that all runs share, on the running loop."""
        own = self._own()
        if name not in own.shared:
            own.shared[name] = Connection(name, self._settings.mcp[name], self._most_bytes)
        return own.shared[name]

    async def close(self) -> None:
        """End the sessions of the running loop."""
        own = self._by_loop.pop(asyncio.get_running_loop(), None) or _LoopConnections()
        await asyncio.gather(*(connection.close() for connection in own.shared.values()))
        if own.sessions is not None:
            await own.sessions.close()

    async def _keep(self, run: str, content: bytes) -> str:
        """Keep a picture with the log of a run; returns why it is not kept, or nothing."""
        if not run or self._settings.effective_redis_url is None:
            return "the worker that has called the server does not see the log (ACTS_REDIS_URL)"
        own = self._own()
        if own.pictures is None:
            own.pictures = PictureKeeper(connect_async(self._settings), self._settings)
        try:
            return await own.pictures.keep(run, content)
        except RedisError as error:
            return f"the log did not take it: {type(error).__name__}"

    def _own(self) -> _LoopConnections:
        return self._by_loop.setdefault(asyncio.get_running_loop(), _LoopConnections())

    def _of_run(self, own: _LoopConnections, name: str) -> Connection:
        """A new connection to a server for one run."""
        server, attempts = self._settings.mcp[name], own.attempts[name]
        return Connection(name, server, self._most_bytes, attempts, reopens=False)

    @property
    def _most_bytes(self) -> int:
        """The most bytes of a server's message: as much as one call may be given."""
        return int(self._settings.limit_call_bytes)


@dataclass
class _LoopConnections:
    """The connections of one event loop."""

    shared: dict[str, Connection] = field(default_factory=dict)
    sessions: RunSessions | None = None
    pictures: PictureKeeper | None = None
    attempts: dict[str, OpenAttempts] = field(default_factory=lambda: defaultdict(OpenAttempts))
