"""Narrowing: a schema anew, such that only listed references are admitted, each where it provably fits (SPEC R12.7).

The counterpart of `widening`. A text that is no listed reference is literal: it begins with no `†`, or with two, and is
no template. Where it is not plain how to say so of what is inside of a value, nothing in there is a reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from acts_celery.protocol.language.paths import strings
from acts_celery.protocol.language.templates import assumed_meaning
from acts_celery.protocol.schemas.walk import DEFINITIONS, referred

from .widening import Definitions, Widening

LITERAL: Final = "^($|([^†]|††)([^†]|††|†[^†{])*†?$)"
"""What a text looks like that is neither an expression nor a template (SPEC R2.2, R2.6)."""
PLAIN: Final = {
    "anyOf": [
        {"type": ["null", "boolean", "number"]},
        {"type": "string", "pattern": LITERAL},
        {"type": "array", "items": {"$ref": "#/$defs/plain"}},
        {"type": "object", "additionalProperties": {"$ref": "#/$defs/plain"}},
    ]
}
"""A value in which nothing is an expression."""
_TYPES: Final = frozenset({"null", "boolean", "number", "integer", "string", "array", "object"})
_SPOKEN: Final = ("title", "description")
_SAYS_NOTHING: Final = DEFINITIONS | {*_SPOKEN, "default", "examples", "deprecated", "readOnly", "writeOnly", "format"}
_SHAPING: Final = frozenset(
    {"type", "properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties"}
    | {"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "minLength", "maxLength", "pattern"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
)
"""Keywords beside which it can be said of each place inside of a value what may be there."""


@dataclass(kw_only=True)
class Narrowing(Widening):
    """Writes the schemas of one document anew; `offered` are the references that fit one of its parts."""

    offered: Callable[[Any], Sequence[str]]

    def value(self, part: Any) -> Any:
        """A schema, or one of the references that fit it; and the same inside of it."""
        made = self.closed(part)
        offered = () if self._is_certain(part) or self._is_empty(part) else self.offered(part)
        if not offered:
            return made
        spoken = {key: made.pop(key) for key in _SPOKEN if key in made}
        branches = made["anyOf"] if made.keys() == {"anyOf"} else [made]
        return {**spoken, "anyOf": [*branches, listed(self.definitions, offered)]}

    def closed(self, part: Any) -> Any:
        """A schema, with references for values inside of what it speaks of, but not for all of it."""
        if not isinstance(part, dict):
            return plain(self.definitions) if part is True else part
        spoken = {key: part[key] for key in _SPOKEN if key in part}
        said = {key for key in part if key not in _SAYS_NOTHING and not key.startswith(("x-", "$comment"))}
        match sorted(said):
            case []:
                return {**spoken, **plain(self.definitions)}
            case ["$ref"] if referred(part["$ref"], self.document) is not None:
                return {**spoken, "$ref": self._targets(part["$ref"], "closed", self.closed)}
            case ["anyOf" | "allOf" as keyword]:
                return {**spoken, keyword: list(map(self.closed, part[keyword]))}
            case ["oneOf"] if all(self._are_apart(*pair) for pair in combinations(part["oneOf"], 2)):
                return {**spoken, "anyOf": list(map(self.closed, part["oneOf"]))}
            case ["enum"] | ["enum", "type"]:
                return {**self.data(part), "enum": list(filter(_is_plain, part["enum"]))}
            case ["const"] | ["const", "type"] if _is_plain(part["const"]):
                return self.data(part)
        return self._shape(part) if said <= _SHAPING else self._without(part)

    def _shape(self, part: dict[str, Any]) -> Any:
        """A schema of values that it describes place by place."""
        declared = part.get("type", list(_TYPES))
        types = {declared} if isinstance(declared, str) else set(declared)
        made: dict[str, Any] = self.inside(part)
        if "object" in types and "additionalProperties" not in part:
            made["additionalProperties"] = plain(self.definitions)
        if "array" in types and "items" not in part:
            made["items"] = plain(self.definitions)
        if "string" in types:
            made |= {"allOf": [{"pattern": LITERAL}]} if "pattern" in part else {"pattern": LITERAL}
        return made

    def _widened(self, keyword: str, below: Any) -> Mapping[str, Any]:
        # Two references to one place are one value: a list whose elements are to differ names a place once.
        return self._kept(keyword, below) if keyword == "uniqueItems" else super()._widened(keyword, below)

    def _without(self, part: dict[str, Any]) -> Any:
        """A schema of values that hold no reference."""
        spoken = {key: part[key] for key in _SPOKEN if key in part}
        return {**spoken, "allOf": [self.data(part), plain(self.definitions)]}


def _is_plain(value: Any) -> bool:
    """Whether every text in a value stands for itself."""
    return all(assumed_meaning(text) == text for _, text in strings(value))


def plain(definitions: Definitions) -> dict[str, Any]:
    """The schema of what holds no reference."""
    definitions.schemas.setdefault("plain", PLAIN)
    return {"$ref": "#/$defs/plain"}


def listed(definitions: Definitions, references: Sequence[str]) -> dict[str, Any]:
    """The schema of one of these references; the same ones share a definition."""
    schema = {"enum": list(references)}
    known = (name for name, said in definitions.schemas.items() if said == schema)
    name = next(known, None)
    if name is None:
        name = definitions.free_name("places")
        definitions.schemas[name] = schema
    return {"$ref": f"#/$defs/{name}"}
