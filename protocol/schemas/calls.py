"""Calls: what a tool's schema says of a call as a whole (SPEC R4.1, R8.1).

A tool's schema speaks of parameters and of meta-properties at once, at its root and in everything that it applies to
the same value: `allOf`, `oneOf`, `then`, what `$ref` leads to. It is written anew so that there

- what closes or counts an object (`additionalProperties`, `maxProperties`, `const`, …) speaks of parameters; so does a
  pattern for names, unless it begins with `_`;
- `_output` is required of no call: it is what comes of it; but `not` and `if` ask whether it is there.

Calls inside parameters are ordinary objects: the document stays as it is, and what is written anew stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count
from typing import Any, Final

from .compilation import CompiledSchema
from .patterns import matches
from .walk import IN_PLACE, REFERENCES, Targets, applied, rewritten

_RESULT: Final = "_output"
_META: Final = "^_"
"""The pattern of the names of meta-properties."""
_OWN: Final = (
    "_activity",
    "_delegate",
    "_each",
    "_gather",
    "_imports",
    "_instance",
    "_outputMethod",
    "_outputPath",
    "_scopes",
)
_CALL: Final = "(call {})"
"""Under such a name among the definitions of the document it stands what is said of a call."""


def call_schema(
    tool: CompiledSchema, call: Mapping[str, Any], closed_to: Collection[str] | None = None
) -> CompiledSchema:
    """What a tool's schema says of calls like this one.

    `closed_to` are patterns for the names of the only meta-properties that do not count as parameters; None where none
    do (see `strict_meta`).
    """
    does_count, does_await = _traits(tool)
    exempt = (_META,) if closed_to is None else tuple(closed_to)
    meta = sum(key.startswith("_") for key in call) if does_count else 0
    return _written(tool, exempt, meta, does_await and _RESULT not in call)


@lru_cache(maxsize=1_024)
def speaks_of_meta_properties(pattern: str) -> bool:
    """Whether a pattern for names is one for meta-properties: but for `^` and brackets, it begins with `_`, or it
    matches names of some and none without the `_`.
    """
    named = any(matches(pattern, name) for name in _OWN) and not any(matches(pattern, name[1:]) for name in _OWN)
    return named or pattern.lstrip("^(?:").startswith("_")


@lru_cache(maxsize=1_024)
def _traits(tool: CompiledSchema) -> tuple[bool, bool]:
    """Whether a schema counts the properties of a call, and whether it asks for a result."""
    parts = applied((tool.document,), tool.document)
    asked = [part.get("required", ()) for part in parts]
    asked += [names for part in parts for names in part.get("dependentRequired", {}).values()]
    counting = any("minProperties" in part or "maxProperties" in part for part in parts)
    return counting, any(_RESULT in names for names in asked)


@lru_cache(maxsize=1_024)
def _written(tool: CompiledSchema, exempt: tuple[str, ...], meta: int, is_awaited: bool) -> CompiledSchema:
    """The schema for calls with so many meta-properties, whose result is still to come or not."""
    if not isinstance(tool.document, dict):
        return tool
    definitions: dict[str, Any] = {**tool.document.get("$defs", {})}
    targets = Targets(tool.document, definitions, "({1}) {0}".format)
    whole = _Writing(targets, exempt, meta, is_awaited).anew(tool.document)
    name = next(name for name in map(_CALL.format, count()) if name not in definitions)
    return CompiledSchema({**tool.document, "$defs": {**definitions, name: whole}}, entry=("$defs", name))


@dataclass(frozen=True)
class _Writing:
    """Writes anew what a document applies to a call, and what its references lead to."""

    targets: Targets
    exempt: tuple[str, ...]
    meta: int
    is_awaited: bool

    def anew(self, part: Any, *, asks: bool = False) -> Any:
        """A schema as it speaks of a call; one that `asks` whether a result is there takes it that none will come."""
        if not isinstance(part, dict):
            return part
        made: dict[str, Any] = {}
        besides: list[Any] = []
        for keyword, value in part.items():
            match keyword:
                case _ if keyword in REFERENCES:
                    made[keyword] = self.targets(value, *self._way(asks=asks))
                case "oneOf" if self.is_awaited and not asks:
                    besides.append({"anyOf": [{"oneOf": [self.anew(b, asks=a) for b in value]} for a in (False, True)]})
                case _ if keyword in IN_PLACE:
                    made[keyword] = rewritten(keyword, value, self._way(asks=asks or keyword in ("not", "if"))[1])
                case "required":
                    made[keyword] = self._expected(value, asks=asks)
                case "dependentRequired":
                    made[keyword] = {name: self._expected(names, asks=asks) for name, names in value.items()}
                case "minProperties" | "maxProperties":
                    made[keyword] = value + self.meta
                case "propertyNames":
                    made[keyword] = {"anyOf": [*({"pattern": pattern} for pattern in self.exempt), value]}
                case "const" | "enum":
                    besides.append(self._one_of([value] if keyword == "const" else value))
                case "patternProperties":
                    made[keyword] = {_of_its_own(pattern): below for pattern, below in value.items()}
                case _:
                    made[keyword] = value
        if "additionalProperties" in made or "unevaluatedProperties" in made:
            made["patternProperties"] = {**dict.fromkeys(self.exempt, True), **made.get("patternProperties", {})}
        if besides:
            made["allOf"] = [*made.get("allOf", ()), *besides]
        return made

    def _way(self, *, asks: bool) -> tuple[str, Callable[[Any], Any]]:
        """The name of a way to write schemas anew, and that way."""
        return "asked" if asks else "called", partial(self.anew, asks=asks)

    def _expected(self, names: Iterable[str], *, asks: bool) -> list[str]:
        """The properties that a call must have now."""
        return [name for name in names if name != _RESULT or asks or not self.is_awaited]

    def _one_of(self, values: Iterable[Any]) -> dict[str, Any]:
        """That the parameters are one of some objects; the double `not` keeps it from evaluating properties."""
        shapes = [
            {
                "properties": {name: {"const": item} for name, item in value.items()},
                "required": list(value),
                "patternProperties": dict.fromkeys(self.exempt, True),
                "additionalProperties": False,
            }
            for value in values
            if isinstance(value, dict)
        ]
        return {"not": {"not": {"anyOf": shapes or [False]}}}


def _of_its_own(pattern: str) -> str:
    """A pattern for names that matches a meta-property only if it is one for meta-properties."""
    if speaks_of_meta_properties(pattern) or (pattern[:1] == "^" and pattern[1:2].isalnum() and "|" not in pattern):
        return pattern
    return rf"^(?!_)[\s\S]*?(?:{pattern})"
