"""What an MCP server lists: each tool is read by itself, from the message as it came.

The SDK validates a page as a whole, so that one tool that is not by the protocol would take all others away. Such a
tool is taken out of the message before the SDK sees it, and kept with its reason.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from .mcp_tools import Declaration, McpRefused

logger = logging.getLogger(__name__)

_MOST_PAGES: Final = 100
_MOST_TOOLS: Final = 1_000
_LONGEST_NAME: Final = 128
_TOOLS: Final = "tools"
_OLDEST: Final = "2024-11-05"


@dataclass
class Sieve:
    """Takes tools that are not by the protocol out of the pages of a session."""

    client: Any = None
    faults: list[Declaration] = field(default_factory=list)
    """Those that were taken out of the last page."""

    @asynccontextmanager
    async def over(self, streams: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
        """The streams of a session, whose pages are sifted."""
        async with streams as (reading, writing):
            yield Heard(reading, self._tell), writing

    def _tell(self, message: Any) -> None:
        page = getattr(message, "result", None)
        if not isinstance(page, dict) or not isinstance(page.get(_TOOLS), list):
            return
        kept = list[Any]()
        self.faults.clear()
        for index, tool in enumerate(page[_TOOLS]):
            if reason := self._fault(tool):
                name = tool.get("name") if isinstance(tool, dict) else None
                known = name[:_LONGEST_NAME] if isinstance(name, str) and name else f"(number {index + 1} of its page)"
                self.faults.append(Declaration({"name": known}, fault=f"it is not by the protocol: {reason}"))
            else:
                kept.append(tool)
        page[_TOOLS] = kept

    def _fault(self, tool: Any) -> str:
        """Why this is no tool by the protocol; nothing where it is one."""
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


async def listed(client: Any, sieve: Sieve, name: str, most_bytes: int) -> dict[str, Declaration]:
    """What server `name` lists, all pages. Raises `McpRefused` for a list without an end."""
    from mcp_types import PaginatedRequestParams

    found: dict[str, Declaration] = {}
    cursor: str | None = None
    cursors = set[str]()
    left = most_bytes
    for _ in range(_MOST_PAGES):
        page = await client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        read = [Declaration.read(tool.model_dump(mode="json", by_alias=True, exclude_none=True)) for tool in page.tools]
        found |= {said.name: said for said in read}
        found = {said.name: said for said in sieve.faults} | found
        left -= sum(len(said.text) for said in read)
        cursor = page.next_cursor
        if cursor in cursors:
            logger.warning(
                "MCP server %s gives the same cursor twice (%.100r): its list of tools ends there", name, cursor
            )
            cursor = None
        if cursor is None or left < 0 or len(found) > _MOST_TOOLS:
            break
        cursors.add(cursor)
    if cursor is not None or left < 0 or len(found) > _MOST_TOOLS:
        most = f"{_MOST_TOOLS} tools, {_MOST_PAGES} pages of them or {most_bytes:,} bytes"
        raise McpRefused(f"it lists more than {most} (ACTS_LIMIT_CALL_BYTES)")
    return found


class Heard:
    """The messages of a server, as a session reads them, of each of which `tell` is told before."""

    def __init__(self, stream: Any, tell: Callable[[Any], None]) -> None:
        self._stream = stream
        self._tell = tell

    async def __aenter__(self) -> Heard:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._stream.__aexit__(*raised)

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for item in self._stream:
            self._tell(getattr(item, "message", None))
            yield item

    async def aclose(self) -> None:
        """Read no more."""
        await self._stream.aclose()
