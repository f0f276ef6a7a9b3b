"""The file of the tools of MCP servers that an operator has admitted (`ACTS_MCP_ADMITTED`).

It is text, for a repository and for review: what a model is told of a tool is what stands there, whatever the server
says by now.

    {"files": {"read_file": {"name": "read_file", "description": "…", "inputSchema": {…}, "annotations": {…}}}}

Beside what the server says there may stand `"effects": false`: the operator says that the tool only reads (SPEC R16.8).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

from acts_celery.broker_config import Settings
from acts_celery.worker.errors import ActivitiesError

from .declarations import Declaration

Admitted = Mapping[str, Mapping[str, Declaration]]
"""Server to tool to what was admitted of it."""

_EFFECTS: Final = "effects"

UNSET: Final = "ACTS_MCP_ADMITTED is not set: set it to a file for the tools that are admitted, such as mcp-tools.json"


def read_admitted(settings: Settings) -> Admitted:
    """What is admitted. Nothing where no file is named, or it is not there yet. Raises `ActivitiesError`."""
    if settings.mcp_admitted is None:
        return {}
    path = Path(settings.mcp_admitted)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(server): {str(name): _read(str(name), said) for name, said in tools.items()}
            for server, tools in found.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        text = f"{path} is no file of admitted tools (ACTS_MCP_ADMITTED): {error}; `acts mcp admit` writes one"
        raise ActivitiesError(text) from None


def admit(settings: Settings, server: str, tools: Iterable[Declaration], gone: Iterable[str] = ()) -> None:
    """Write down that these tools of a server are admitted as they are, and that those names are not any more.

    The file is replaced at once, or not at all. Raises `ActivitiesError`.
    """
    if settings.mcp_admitted is None:
        raise ActivitiesError(UNSET)
    known = {name: dict(declared) for name, declared in read_admitted(settings).items()}
    own = known.setdefault(server, {})
    for name in gone:
        own.pop(name, None)
    own.update({tool.name: tool for tool in tools})
    document = {
        name: {tool: _written(declared[tool]) for tool in sorted(declared)}
        for name, declared in sorted(known.items())
        if declared
    }
    path = Path(settings.mcp_admitted)
    try:
        with NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as written:
            written.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        Path(written.name).chmod(0o644)
        Path(written.name).replace(path)
    except OSError as error:
        raise ActivitiesError(f"{path} cannot be written (ACTS_MCP_ADMITTED): {error}") from error


def _written(tool: Declaration) -> dict[str, Any]:
    return {**tool.said, **({_EFFECTS: False} if tool.only_reads else {})}


def _read(name: str, said: object) -> Declaration:
    if not isinstance(said, dict) or said.get("name") != name:
        raise ValueError(f"tool {name!r} has no declaration of that name")
    if said.get(_EFFECTS, False) is not False:
        raise ValueError(f'tool {name!r}: "effects" can only be false; without it the server\'s word counts')
    return replace(Declaration.read(said), only_reads=_EFFECTS in said)
