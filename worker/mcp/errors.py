"""What can go wrong with an MCP server: the type of a call's error is the name of one of these."""

from __future__ import annotations

from enum import Enum
from typing import Any

from acts_celery.worker.errors import CallFailed


def too_large(most_bytes: int) -> str:
    """What is said of a message beyond the limit."""
    return (
        f"more than {most_bytes:,} bytes in one message: have the tool give less, or raise ACTS_LIMIT_CALL_BYTES "
        "where workers run"
    )


class Origin(Enum):
    """Who says that a request has failed. The transports tell; the number of an error does not."""

    SERVER = "the server, in its answer to the request"
    UNFIT = "the transport: there is an answer, and it cannot be taken"
    UNREACHABLE = "the transport: there is no answer, and another attempt may help"
    SESSION_GONE = "the transport: the server does not know the session any more"


class Told(dict[str, Any]):
    """The `data` of an error of JSON-RPC, with its origin. No server can send one."""

    def __init__(self, origin: Origin, data: object = None) -> None:
        super().__init__(data if isinstance(data, dict) else {})
        self.origin = origin


class McpError(CallFailed):
    """What went wrong with an MCP server: nothing of it is a fault of our code."""


class McpUnavailable(McpError):
    """A server that cannot be started or reached, has ended, or answers no more: another attempt may help."""


class NotAsked(McpUnavailable):
    """A session that has ended before the tool was asked for anything."""


class McpRefused(McpError):
    """A server that answers with an error of the protocol, or not by the protocol."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry=False)


class McpToolFailed(McpRefused):
    """A tool that says that it has failed (`isError`). That is its result: it is not asked again."""


class McpToolChanged(McpRefused):
    """A tool that is not, or not any more, as it was admitted."""
