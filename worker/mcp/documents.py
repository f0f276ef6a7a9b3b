"""Documents: a call of a tool whose message is large runs in a process of its own (see `ui.access`)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from mcp_types import CallToolResult

from ...broker_config import Settings
from ...protocol import Rejected
from ...protocol.plan.documents import decode
from ..limits import limits_of
from ..ui.access import DocumentAnswer, DocumentProcesses, Refused, out_of_memory, serve_documents
from .reading import DOING, READING
from .tools import Principal, Runs, ToolContext, answer, failure

NO_MESSAGE: Final = "the body should be one message of JSON-RPC"
_TOOLS: Final = {name: tool for name, tool in {**READING, **DOING}.items() if name != "result"}
"""The tools that do not wait for a run."""


@dataclass(frozen=True, slots=True)
class DoneCall:
    """A call that has run: its message without the arguments, and the tool's answer."""

    message: bytes
    result: CallToolResult


class Documents(DocumentProcesses):
    """The processes of a server of MCP."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, __name__)

    async def run(self, body: bytes, principal: Principal) -> DoneCall | None:
        """Run the call that a message is; None where it is no call, or one of a tool that waits for a run. Raises
        `Refused`.
        """
        about = {"name": principal.name, "rights": sorted(principal.rights)}
        answered = await self.answer(principal.name, about, body)
        if answered is None:
            return None
        if "refused" in answered:
            raise Refused(400, "BadBody", answered["refused"])
        return DoneCall(json.dumps(answered["message"]).encode(), CallToolResult.model_validate(answered["result"]))


def main() -> None:
    """Run calls until the input ends."""
    serve_documents(_answering)


@asynccontextmanager
async def _answering(settings: Settings) -> AsyncIterator[DocumentAnswer]:
    runs = Runs(settings)
    identities = {token.name: token.identity for token in settings.read_mcp_tokens()}

    async def answered(about: Mapping[str, Any], body: bytes) -> Any:
        principal = Principal(about["name"], frozenset(about["rights"]), identities.get(about["name"]))
        return await _answered(runs, principal, body)

    yield answered
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
        result = failure(out_of_memory(), name)
    except Exception as error:
        result = failure(error, name)
    return {
        "message": {**message, "params": {**called, "arguments": {}}},
        "result": result.model_dump(mode="json", by_alias=True, exclude_none=True),
    }


async def _silent(done: float, of: float | None, text: str | None) -> None:
    """Report no progress: the call does not wait."""
