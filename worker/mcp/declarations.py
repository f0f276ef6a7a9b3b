"""What an MCP server says of a tool: its digest, and the schema of the activity that it becomes.

The digest is over all that a model or the engine goes by: a tool that changes any of it is another tool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Final

from acts_celery.protocol.calls.declarations import read_tools
from acts_celery.protocol.calls.tools import WHO
from acts_celery.protocol.language.limits import Limits, value_problems
from acts_celery.protocol.language.messages import TRUST
from acts_celery.protocol.language.paths import copied
from acts_celery.protocol.schemas.dialects import misfits, modern
from acts_celery.protocol.schemas.walk import DEFINITIONS

_NAME: Final = re.compile(r"[A-Za-z0-9_./-]{1,128}")
"""A tool's name, as the specification has it (SEP-986)."""
_SAID: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_NOT_OURS: Final = ("$schema", "title", "$id")
_SCHEMAS: Final = ("inputSchema", "outputSchema")
_WRAPS: Final = "x-fastmcp-wrap-result"
_SHOWN: Final = 100
_WRAPPED: Final = "result"


@dataclass(frozen=True)
class Declaration:
    """One tool of a server, in the words of the server (`tools/list`)."""

    said: Mapping[str, Any]
    only_reads: bool = False
    """Whether the operator who admitted it says that it only reads (SPEC R16.8)."""

    fault: str = ""
    """Why it is no declaration by the protocol."""

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Declaration:
        """What counts of a tool as a server lists it."""
        said = {key: raw[key] for key in _SAID if raw.get(key) is not None}
        hints = {key: said["annotations"][key] for key in _HINTS if key in (said.get("annotations") or {})}
        return cls({**said, "annotations": hints} if "annotations" in said else said)

    @property
    def name(self) -> str:
        """The server's name for it."""
        return str(self.said["name"])

    @property
    def description(self) -> str:
        """What the server says that it does."""
        return str(self.said.get("description") or "")

    @property
    def has_effects(self) -> bool:
        """Whether it may change something: so it is unless the server, or the operator, says that it only reads."""
        return not self.only_reads and (self.said.get("annotations") or {}).get("readOnlyHint") is not True

    @cached_property
    def text(self) -> str:
        """All of it as JSON, the same for the same declaration."""
        return json.dumps(self.said, sort_keys=True, separators=(",", ":"))

    @cached_property
    def digest(self) -> str:
        """64 hexadecimal digits."""
        return sha256(self.text.encode()).hexdigest()

    def schema(self, source: str | None) -> dict[str, Any]:
        """The schema of the activity; its results have that source, where there is one (SPEC R16.1)."""
        given, result = self._schema_of("inputSchema") or {}, self._schema_of("outputSchema")
        if result is not None and self.wraps_result:
            kept = {key: result[key] for key in DEFINITIONS if key in result}
            result = {**result["properties"][_WRAPPED], **kept}
        schema = {key: value for key, value in given.items() if key not in _NOT_OURS}
        output = {} if result is None else {"_output": {k: v for k, v in result.items() if k not in _NOT_OURS}}
        trust = {
            **({"effects": True} if self.has_effects else {}),
            **({"result": [source]} if source is not None else {}),
        }
        return {
            **schema,
            "type": "object",
            **({"description": self.description} if self.description else {}),
            "properties": {**(given.get("properties") or {}), **output},
            **({TRUST: trust} if trust else {}),
        }

    @property
    def wraps_result(self) -> bool:
        """Whether its server puts each result into an object of its own, and says so, as FastMCP does."""
        schema = self.said.get("outputSchema")
        if not isinstance(schema, dict) or schema.get(_WRAPS) is not True:
            return False
        properties = schema.get("properties")
        return isinstance(properties, dict) and isinstance(properties.get(_WRAPPED), dict) and len(properties) == 1

    @property
    def notes(self) -> list[str]:
        """What of its schemas is left out, since it says nothing about values."""
        return [
            f"{key}{place} is left out: it is {json.dumps(part[name])[:_SHOWN]}"
            for key in _SCHEMAS
            for place, part, name in misfits(self.said.get(key))
        ]

    def _schema_of(self, key: str) -> Any:
        """One of its schemas, of 2020-12, without annotations that are not of their type."""
        if self.said.get(key) is None:
            return None
        schema = copied(modern(self.said[key]))
        for _, part, name in list(misfits(schema)):
            del part[name]
        return schema

    def problems(self) -> Iterator[str]:
        """Why it cannot be a tool here, in a few words each."""
        if self.fault:
            yield self.fault
            return
        if not _NAME.fullmatch(self.name):
            yield f"its name {self.name[:128]!r} is none that the protocol admits"
        if (problem := next(value_problems(dict(self.said), Limits()), None)) is not None:
            yield f"its declaration is {problem.message}"
            return
        given = self.said.get("inputSchema")
        if not isinstance(given, dict) or not isinstance(given.get("properties", {}), dict):
            yield "its inputSchema is no JSON Schema of an object"
            return
        if meta := [key for key in (*given, *given.get("properties", {})) if str(key).startswith("_")]:
            yield f"it has a parameter {meta[0][:100]!r}: names that begin with _ are the engine's"
            return
        _, problems = read_tools([], {self.name: self.schema("mcp")})
        yield from (problem.message for problem in problems)
        if not problems and self._speaks_of_the_engine():
            yield "a part of its inputSchema speaks of names that begin with _, which are the engine's"

    def _speaks_of_the_engine(self) -> bool:
        """Whether the server's schema says something of meta-properties, anywhere in it (SPEC R4.1)."""
        given = {key: value for key, value in self._schema_of("inputSchema").items() if key not in _NOT_OURS}
        declared, _ = read_tools([], {self.name: {**given, "type": "object"}})
        tool = declared.tools[self.name]
        return tool.pins or any(map(tool.mentions, WHO))
