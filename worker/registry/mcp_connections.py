"""Connections to MCP servers: one session with a server, opened when it is first needed.

A server that is stateless has one for each event loop, which is opened again by the next call when it has ended; with
others each run has its own (`sessions`). While a server cannot be opened, calls fail at once between attempts that are
further and further apart. What a server lists is read when a session is opened, when the server says
that it has changed, after a call that was given up, and at the latest after `limits.LISTED_SECONDS`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final

from pydantic import ValidationError

from ...broker_config import McpServer
from ...broker_config.addresses import MASK
from ...broker_config.mcp import expanded
from .. import limits
from ..backoff import Backoff
from . import mcp_tools

logger = logging.getLogger(__name__)

_REOPENING: Final = Backoff(0.5, 30.0)


@dataclass
class OpenAttempts:
    """The attempts to open sessions with a server: the time between those that fail grows."""

    failures: int = 0
    not_before: float = 0.0
    why: str = ""


class Connection:
    """A session with one server, on one event loop. With `reopens` another one takes its place when it has ended."""

    def __init__(
        self,
        name: str,
        server: McpServer,
        most_bytes: int,
        attempts: OpenAttempts | None = None,
        *,
        reopens: bool = True,
    ) -> None:
        self._name = name
        self._server = server
        self._most_bytes = most_bytes
        self._reopens = reopens
        self._session: _Session | None = None
        self._opening: asyncio.Future[_Session] | None = None
        self._task: asyncio.Task[None] | None = None
        self._attempts = attempts or OpenAttempts()

    @property
    def has_ended(self) -> bool:
        """Whether its session was open and has ended."""
        return self._session is not None and self._session.ended.is_set()

    @property
    def why(self) -> str:
        """The reason why its session has ended."""
        return (self._session.why if self._session is not None else "") or "the server had ended it"

    async def tools(self) -> Mapping[str, mcp_tools.Declaration]:
        """The tools that the server lists now. Raises `McpUnavailable`, `McpRefused`."""
        session = await self._opened()
        session.is_stale = True
        return await self._listed(session)

    async def call(self, tool: mcp_tools.Declaration, arguments: Mapping[str, Any], keep: mcp_tools.Keep) -> Any:
        """Call a tool that was admitted as it is given here; `keep` keeps the pictures that it answers. Raises an
        `McpError`.
        """
        session = await self._opened()
        try:
            listed = await self._listed(session)
        except mcp_tools.McpUnavailable:
            # The tool was not called yet: a server that has begun anew, and refuses a session that it does not know,
            # may run it in another.
            session = await self._opened()
            listed = await self._listed(session)
        live = listed.get(tool.name)
        require_same(self._name, tool, live)
        asks = live.asks if live is not None else ""
        request, answers = _request(asks, tool.name, arguments)
        began = asyncio.get_running_loop().time()

        async def report(progress: float, total: float | None, message: str | None) -> None:
            nonlocal began
            if (now := asyncio.get_running_loop().time()) - began >= limits.PROGRESS_SECONDS:
                began = now
                of = "" if total is None else f" of {total:g}"
                logger.info("%s.%s: %g%s %.200r", self._name, tool.name, progress, of, message or "")

        session.at_work += 1
        try:
            # Not `call_tool`, which holds the answer against the server's own schema on this event loop, with Python's
            # regular expressions: the engine does that.
            answer = await session.client.session.send_request(request, answers, progress_callback=report)
        except asyncio.CancelledError:
            session.is_stale = True  # it may hang: the next call lists its tools first
            raise
        except Exception as error:
            raise self._failed(session, error) from error
        finally:
            session.at_work -= 1
        # Not as JSON, which would make null of NaN: what is measured is what is kept, or an error.
        result = answer.model_dump(by_alias=True, exclude_none=True)
        if asks:
            return await mcp_tools.value_of_context(asks, result, keep)
        if "content" not in result:
            asks_for = result.get("resultType")
            raise mcp_tools.McpRefused(f"MCP server {self._name} asks for what a worker cannot give: {asks_for!r}")
        return await mcp_tools.value_of(result, keep, is_wrapped=tool.wraps_result)

    async def close(self) -> None:
        """End the session, and the server's process where it is one."""
        if self._task is None:
            return
        if self._session is not None:
            self._session.end()
            await asyncio.wait([self._task], timeout=limits.MCP_CONNECTIONS_CLOSING_SECONDS)
        self._task.cancel()
        await asyncio.wait([self._task], timeout=limits.MCP_CONNECTIONS_CLOSING_SECONDS)

    async def _opened(self) -> _Session:
        if self._session is not None and not self._session.ended.is_set():
            return self._session
        if self._session is not None and not self._reopens:
            raise mcp_tools.NotAsked(f"MCP server {self._name} did not answer: {self.why}")
        if self._opening is None:
            loop = asyncio.get_running_loop()
            if (wait := self._attempts.not_before - loop.time()) > 0:
                raise mcp_tools.McpUnavailable(f"{self._attempts.why}; it is tried again in {wait:.1f} s")
            self._opening = loop.create_future()
            # In a task of its own: the first call may be cancelled, and a session ends in the task that began it.
            self._task = loop.create_task(self._serve(self._opening), name=f"acts-mcp-{self._name}")
        return await asyncio.shield(self._opening)

    async def _serve(self, opening: asyncio.Future[_Session]) -> None:
        await asyncio.to_thread(_load_sdk)  # seconds on a cold disk, in which the loop has other calls to serve
        # The specification of 2026-07-28 has no sessions: what a server keeps for one needs the handshake before that.
        modes = ("auto",) if self._reopens else ("legacy", "auto")
        for mode in modes:
            if await self._served(opening, mode, is_last=mode == modes[-1]):
                return

    async def _served(self, opening: asyncio.Future[_Session], mode: str, *, is_last: bool) -> bool:
        """Open a session and keep it until it ends; False where the server refuses this way of opening one."""
        session = _Session(self._name, self._most_bytes)
        try:
            session.client = self._client(session, mode)
            timer = asyncio.timeout(limits.OPENING_SECONDS)
            async with timer, session.client:
                await session.list_tools()
                timer.reschedule(None)
                self._attempts.failures, self._session, self._opening = 0, session, None
                opening.set_result(session)
                await session.ended.wait()
        except BaseException as error:
            if not opening.done() and not is_last and _origin(error) is mcp_tools.Origin.SERVER:
                return False
            if not opening.done():
                self._refuse(opening, f"{session.why or self._text(error)}{self._last_words(session)}")
            elif isinstance(error, Exception):
                logger.info("MCP server %s: its session has ended: %s", self._name, self._text(error))
            if isinstance(error, (asyncio.CancelledError, SystemExit, KeyboardInterrupt)):
                raise
        finally:
            session.end()
        return True

    def _refuse(self, opening: asyncio.Future[_Session], why: str) -> None:
        """Fail the calls that wait for the session, and for a while those that come: the server cannot be opened."""
        self._opening = None
        attempts = self._attempts
        attempts.failures += 1
        attempts.not_before = asyncio.get_running_loop().time() + _REOPENING.seconds(attempts.failures)
        attempts.why = f"MCP server {self._name} cannot be opened: {why}"
        logger.warning("%s", attempts.why)
        opening.set_exception(mcp_tools.McpUnavailable(attempts.why))
        opening.exception()  # the calls that waited may be gone

    async def _listed(self, session: _Session) -> Mapping[str, mcp_tools.Declaration]:
        async with session.listing:
            age = asyncio.get_running_loop().time() - session.listed_at
            if session.is_stale or age > limits.LISTED_SECONDS:
                session.is_stale = False
                try:
                    async with asyncio.timeout(limits.LISTING_SECONDS):
                        await session.list_tools()
                except asyncio.CancelledError:
                    session.is_stale = True
                    raise
                except TimeoutError as error:
                    session.is_stale = True
                    if session.at_work == 0:  # else it may be busy, and the next one to ask finds out
                        session.end()
                    text = f"MCP server {self._name} did not list its tools: {self._text(error)}"
                    raise mcp_tools.McpUnavailable(text) from error
                except Exception as error:
                    session.is_stale = True
                    raise self._failed(session, error) from error
        return session.tools

    def _failed(self, session: _Session, error: Exception) -> Exception:
        """The error of a call for an error of its session."""
        if isinstance(error, mcp_tools.McpRefused):
            return error
        if isinstance(error, (RuntimeError, ValueError)):  # the SDK's words for an answer that is not by the protocol
            return mcp_tools.McpRefused(
                f"MCP server {self._name} answered what its tool does not give: {self._text(error)}"
            )
        origin = _origin(error)
        if origin is mcp_tools.Origin.SERVER:
            return mcp_tools.McpRefused(f"MCP server {self._name} refused: {self._text(error)}")
        if origin is mcp_tools.Origin.UNFIT:
            return mcp_tools.McpRefused(f"MCP server {self._name} gave no usable answer: {self._text(error)}")
        session.is_stale = True
        # Over HTTP one request of several may fail: if the server is gone, its list is not read either.
        if origin is not mcp_tools.Origin.UNREACHABLE:
            session.end()
        return mcp_tools.McpUnavailable(f"MCP server {self._name} did not answer: {session.why or self._text(error)}")

    def _text(self, error: BaseException) -> str:
        """The text of an error on one line, without the keys of the server; of a group, its first error."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, TimeoutError):
            return "it does not answer in time"
        text = " ".join((getattr(error, "message", "") or str(error)).split()) or type(error).__name__
        return self._masked(text)[: limits.LONGEST_ERROR]

    def _masked(self, text: str) -> str:
        """A text without the keys of the server."""
        for secret in self._server.secrets():
            text = text.replace(secret, MASK)
        return text

    def _last_words(self, session: _Session) -> str:
        """The last lines of the server's process on standard error, escaped, on one line."""
        lines = [repr(self._masked(line))[1:-1] for line in session.last_lines]
        return f"; it wrote: {' | '.join(lines)[-limits.LONGEST_ERROR :]}" if lines else ""

    def _client(self, session: _Session, mode: str) -> Any:
        try:
            from mcp import Client
            from mcp_types import Implementation
        except ImportError:
            raise mcp_tools.McpUnavailable(
                "the library for MCP is missing here: pip install '.[mcp]' in the clone of acts-celery"
            ) from None

        async def hear(message: Any) -> None:
            if getattr(message, "method", "") == "notifications/tools/list_changed":
                session.is_stale = True

        return Client(
            session.filtered(self._streams(session)),
            message_handler=hear,
            client_info=Implementation(name="acts-celery", version=version("acts-celery")),
            cache=None,
            mode=mode,
        )

    def _streams(self, session: _Session) -> AbstractAsyncContextManager[Any]:
        name, server = self._name, self._server
        from mcp.client.stdio import get_default_environment

        from .mcp_transports import stdio, web

        if server.url is not None:
            headers = {key: expanded(value, name) for key, value in server.headers.items()}
            return web(
                expanded(server.url, name),
                headers,
                most_bytes=self._most_bytes,
                timeout_seconds=max(server.timeout_seconds, limits.OPENING_SECONDS) + limits.LISTING_SECONDS,
            )
        own = {key: expanded(value, name) for key, value in server.env.items()}
        assert server.command is not None
        return stdio(
            name,
            [server.command, *(expanded(each, name) for each in server.args)],
            env={**get_default_environment(), **own},
            cwd=server.cwd,
            most_bytes=self._most_bytes,
            on_end=session.end,
            last_lines=session.last_lines,
        )


# A session, and the tools that its server lists: each tool is read by itself, from the message as it came.
#
# The SDK validates a page as a whole, so that one tool that is not by the protocol would take all others away. Such a
# tool is taken out of the message before the SDK sees it, and kept with its reason.

_TOOLS: Final = "tools"
_OLDEST: Final = "2024-11-05"


@dataclass(eq=False)
class _Session:
    """A session with a server."""

    server: str
    most_bytes: int
    client: Any = None
    tools: Mapping[str, mcp_tools.Declaration] = field(default_factory=dict)
    faults: list[mcp_tools.Declaration] = field(default_factory=list)
    """The tools that were taken out of the last page."""
    listed_at: float = 0.0
    is_stale: bool = False
    at_work: int = 0
    """The number of calls that wait for the server."""
    listing: asyncio.Lock = field(default_factory=asyncio.Lock)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    why: str = ""
    """The reason why it has ended, where that is known."""
    last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=limits.LAST_LINES))
    """The last lines that a server's process has written on standard error."""

    def end(self, why: str = "") -> None:
        """Have the session end, for a reason if none is known yet."""
        self.why = self.why or why
        self.ended.set()

    @asynccontextmanager
    async def filtered(self, streams: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
        """The streams of the session, whose pages have no tools that are not by the protocol."""
        async with streams as (reading, writing):
            yield mcp_tools.ObservedMessages(reading, self._filter), writing

    async def list_tools(self) -> None:
        """Read all pages of tools. Raises `McpRefused` for a list without an end."""
        from mcp_types import PaginatedRequestParams

        began, found, left = asyncio.get_running_loop().time(), dict[str, mcp_tools.Declaration](), self.most_bytes
        cursor: str | None = None
        cursors = set[str]()
        for _ in range(limits.MOST_PAGES):
            page = await self.client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            dumped = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools]
            read = list(map(mcp_tools.Declaration.read, dumped))
            found = {tool.name: tool for tool in self.faults} | found | {tool.name: tool for tool in read}
            left -= sum(len(tool.text) for tool in read)
            cursor = page.next_cursor
            if cursor in cursors:
                text = "MCP server %s gives the same cursor twice (%.100r): its list of tools ends there"
                logger.warning(text, self.server, cursor)
                cursor = None
            if left < 0 or len(found) > limits.MOST_TOOLS:
                break
            if cursor is None:
                more = {tool.name: tool for tool in mcp_tools.context_tools(self._kinds())}
                self.tools, self.listed_at = more | found, began
                return
            cursors.add(cursor)
        most = f"{limits.MOST_TOOLS} tools, {limits.MOST_PAGES} pages of them or {self.most_bytes:,} bytes"
        raise mcp_tools.McpRefused(f"it lists more than {most} (ACTS_LIMIT_CALL_BYTES)")

    def _kinds(self) -> list[str]:
        """The kinds of context that the server offers besides its tools."""
        offers = self.client.server_capabilities
        return [kind for kind in ("resources", "prompts") if getattr(offers, kind) is not None]

    def _filter(self, message: Any) -> None:
        page = getattr(message, "result", None)
        if not isinstance(page, dict) or not isinstance(page.get(_TOOLS), list):
            return
        kept = list[Any]()
        self.faults.clear()
        for index, tool in enumerate(page[_TOOLS]):
            if reason := self._fault(tool):
                name = tool.get("name") if isinstance(tool, dict) else None
                name = name if isinstance(name, str) and name else f"(number {index + 1} of its page)"
                fault = f"it is not by the protocol: {reason}"
                self.faults.append(mcp_tools.Declaration({"name": name[: limits.LONGEST_NAME]}, fault=fault))
            else:
                kept.append(tool)
        page[_TOOLS] = kept

    def _fault(self, tool: Any) -> str:
        """The reason why this is no tool by the protocol; empty where it is one."""
        from mcp_types import ListToolsResult
        from mcp_types.methods import validate_server_result

        page, version = {_TOOLS: [tool]}, self.client.session.protocol_version or _OLDEST
        try:
            ListToolsResult.model_validate(page, by_name=False)
            validate_server_result("tools/list", version, page)
        except ValidationError as error:
            for one in error.errors(include_url=False, include_input=False):
                if one["loc"][:1] == (_TOOLS,):
                    where = ".".join(map(str, one["loc"][2:]))
                    return f"{where}: {one['msg']}".removeprefix(": ")
        except (KeyError, ValueError):
            pass
        return ""


def require_same(server: str, admitted: mcp_tools.Declaration, live: mcp_tools.Declaration | None) -> None:
    """Raise `McpToolChanged` for a tool that is not as it was admitted."""
    if live is None:
        raise mcp_tools.McpToolChanged(
            f"MCP server {server} no longer has a tool {admitted.name}: see `acts mcp tools {server}`"
        )
    if live.fault:
        raise mcp_tools.McpToolChanged(
            f"MCP server {server} lists {admitted.name} as something else than a tool: {live.fault}"
        )
    if live.digest != admitted.digest:
        old, new = admitted.fields, live.fields
        changed = ", ".join(key for key in {**new, **old} if new.get(key) != old.get(key))
        raise mcp_tools.McpToolChanged(
            f"MCP server {server} says something else of {admitted.name} than was admitted ({changed}): look at it "
            f"with `acts mcp tools {server}`, and admit it with `acts mcp admit {server}.{admitted.name}`"
        )


def _load_sdk() -> None:
    """Import the SDK; a missing one is an error where it is used."""
    with suppress(ImportError):
        import_module(".mcp_transports", __package__)


def _origin(error: BaseException) -> mcp_tools.Origin | None:
    """The origin of an error of a session; None where the session itself has ended."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    data = getattr(error, "data", None)
    return data.origin if isinstance(data, mcp_tools.OriginData) else None


def _request(asks: str, name: str, arguments: Mapping[str, Any]) -> tuple[Any, Any]:
    """The request that calls a tool, and the types of its answer."""
    import mcp_types as types

    match asks:
        case "resources/list":
            return types.ListResourcesRequest(params=types.PaginatedRequestParams()), types.ListResourcesResult
        case "prompts/list":
            return types.ListPromptsRequest(params=types.PaginatedRequestParams()), types.ListPromptsResult
        case "resources/read":
            read = types.ReadResourceRequestParams(uri=arguments["uri"])
            return types.ReadResourceRequest(params=read), types.ReadResourceResult
        case "prompts/get":
            get = types.GetPromptRequestParams(name=arguments["name"], arguments=arguments.get("arguments") or {})
            return types.GetPromptRequest(params=get), types.GetPromptResult
    return types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=dict(arguments))), _answers()


@cache
def _answers() -> Any:
    """The types of an answer to a call."""
    from mcp_types import CallToolResult, InputRequiredResult
    from pydantic import TypeAdapter

    return TypeAdapter[CallToolResult | InputRequiredResult](CallToolResult | InputRequiredResult)
