"""The layer of MCP servers: whether each can be opened, and whether its tools are those that are admitted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from acts_celery.broker_config import Settings
from acts_celery.worker.errors import ActivitiesError, WorkerError

from .layer import Layer


def examine_mcp(settings: Settings) -> Iterator[Layer]:
    """Ask every server for its tools; nothing where none is configured."""
    if not settings.mcp:
        return
    from acts_celery.worker.cli.mcp_listing import listed
    from acts_celery.worker.mcp.admitted import UNSET, read_admitted
    from acts_celery.worker.mcp.standing import standings

    layer = Layer("mcp")
    yield layer
    if settings.mcp_admitted is None:
        layer.warn("no tool is admitted", UNSET)
    try:
        admitted = read_admitted(settings)
    except ActivitiesError as error:
        layer.fail(str(error), "correct the file, or ACTS_MCP_ADMITTED")
        return
    for name, found in listed(settings, settings.mcp).items():
        if isinstance(found, WorkerError):
            # Where only the workers of its queue have it, that is right so.
            note = layer.fail if settings.mcp[name].queue is None else layer.warn
            note(str(found), f"start it, or correct ACTS_MCP: {name}")
            continue
        states = Counter(each.state for each in standings(name, found, admitted.get(name, {})))
        told = f"{name}: {', '.join(f'{count} {state}' for state, count in sorted(states.items())) or 'no tools'}"
        if states["changed"] or states["gone"]:
            layer.warn(told, f"look at `acts mcp tools {name}`, and admit what is right")
        else:
            layer.add(told)
