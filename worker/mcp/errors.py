"""What can go wrong with an MCP server: the type of a call's error is the name of one of these."""

from __future__ import annotations

from typing import Final

from acts_celery.worker.errors import CallFailed

TOO_LARGE: Final = -31_000
"""The code of the error that a transport of ours answers in place of a message beyond the limit."""


def too_large(most_bytes: int) -> str:
    """What is said of such a message."""
    return (
        f"more than {most_bytes:,} bytes in one message: have the tool give less, or raise ACTS_LIMIT_CALL_BYTES "
        "where workers run"
    )


class McpUnavailable(CallFailed):
    """A server that cannot be started or reached, has ended, or answers no more: another attempt may help."""


class McpRefused(CallFailed):
    """A server that answers with an error of the protocol, or not by the protocol."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry=False)


class McpToolFailed(McpRefused):
    """A tool that says that it has failed (`isError`). That is its result: it is not asked again."""


class McpToolChanged(McpRefused):
    """A tool that is not, or not any more, as it was admitted."""
