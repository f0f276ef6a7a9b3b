"""What can go wrong with an MCP server: the type of a call's error is the name of one of these."""

from __future__ import annotations

from acts_celery.worker.errors import CallFailed


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
