"""The tools of MCP servers as activities: those of `ACTS_MCP` that are admitted, under `SERVER.TOOL`.

Their results are untrusted, and they have effects (SPEC R16.1), unless the operator or the tool says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from acts_celery.broker_config import McpServer, Settings
from acts_celery.worker.registry.activities import Activity, Policy, Registry, registry
from acts_celery.worker.registry.loading import load_activities

if TYPE_CHECKING:
    from .declarations import Declaration
    from .process import Connections

_VERSION_DIGITS: Final = 12
_SHOWN: Final = re.compile(r"[A-Za-z0-9_./-]{1,128}")
"""What may stand in a command that a person is to copy."""


def load_code(settings: Settings) -> None:
    """Register everything that the settings name: modules of activities, and admitted tools of MCP servers.

    No server is asked. Raises `ActivitiesError`.
    """
    load_activities(settings)
    register_tools(settings, registry)


def register_tools(settings: Settings, known: Registry) -> None:
    """Register the admitted tools of the servers that the settings name. Raises `ActivitiesError`."""
    if not settings.mcp:
        return
    from .admitted import read_admitted
    from .process import Connections

    connections, admitted = Connections(settings), read_admitted(settings)
    for name, server in settings.mcp.items():
        for tool in admitted.get(name, {}).values():
            known.add_activity(activity_of(name, server, tool, connections))


def unadmitted(settings: Settings, name: str) -> str:
    """What to do about a tool that is not registered, where its name is one of an MCP server."""
    server, _, tool = name.partition(".")
    if server not in settings.mcp or not _SHOWN.fullmatch(tool):
        return ""
    return f": it is not admitted; if MCP server {server} has it, `acts mcp admit {name}` does that"


def activity_of(name: str, server: McpServer, tool: Declaration, connections: Connections) -> Activity:
    """The activity that carries out a tool of a server."""
    policy = Policy(
        retries=server.retries, timeout_seconds=server.timeout_seconds, max_concurrency=server.max_concurrency
    )
    return Activity(
        f"{name}.{tool.name}",
        _asking(name, tool, connections),
        tool.schema(None if server.trusted else f"mcp.{name}"),
        scopes=(),
        takes_call=True,
        queue=server.queue,
        policy=policy,
        given_version=tool.digest[:_VERSION_DIGITS],
    )


def _asking(
    name: str, tool: Declaration, connections: Connections
) -> Callable[[Mapping[str, Any], Mapping[str, Any]], Awaitable[Any]]:
    async def ask(call: Mapping[str, Any], _context: Mapping[str, Any]) -> Any:
        arguments = {key: value for key, value in call.items() if not key.startswith("_")}
        return await connections.call(name, tool, arguments)

    return ask
