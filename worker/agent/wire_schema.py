"""The schema that a provider enforces: wider than the true one where the provider cannot express that, never narrower
(SPEC R12.6).

Where objects have to list all that they may have, other properties go into one more, `_json`, a text that holds a JSON
object; a value that may be anything has `_json` alone. So one open object leaves nothing unenforced but itself, and it
is an `UnenforcedPlace`. `_json` and the nulls for omitted properties are taken out again before anything is validated
(`acts_celery.protocol.requests.reading`).

If a schema is too large for a provider, the optional properties of the largest tools' calls are written in this way,
and where that is not enough, all of these calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from ...protocol.requests.reading import AS_TEXT
from ...protocol.schemas.walk import is_whole_text, reachable, referred, subschemas
from ..limits import WIRE_SCHEMA_MANY
from .prices import Rules

# The size of a schema, by the measures that providers limit (SPEC R12.6). The names are those of `Rules`.

Size = Counter[str]
_MEASURES: Final[Mapping[str, str]] = {
    "properties": "properties",
    "values": "listed values",
    "unions": "unions",
    "optional": "properties that may be left out",
    "characters": "characters of names and listed values",
}


def size_of(schema: Any) -> Size:
    """The size of a schema that `wire_schema` has written, each definition counted once."""
    if not isinstance(schema, dict):
        return Size()
    properties, listed = schema.get("properties", {}), schema.get("enum", ())
    definitions = schema.get("$defs", {})
    own = Size(
        properties=len(properties),
        values=len(listed),
        unions=int("anyOf" in schema or isinstance(schema.get("type"), list)),
        optional=len(properties) - len(schema.get("required", ())),
        characters=sum(map(len, (*properties, *definitions))) + sum(len(str(value)) for value in listed),
    )
    below = (*definitions.values(), *(part for _, part in subschemas(schema)))
    return sum(map(size_of, below), own)


def exceeded(size: Size, rules: Rules) -> list[str]:
    """The measures of a size that are beyond a provider's limits."""
    limits = ((name, getattr(rules, name)) for name in _MEASURES)
    return [name for name, most in limits if most is not None and size[name] > most]


def excess(size: Size, rules: Rules) -> str:
    """The first limit that a size exceeds, in words; empty where it exceeds none."""
    names = exceeded(size, rules)
    return f"{size[names[0]]} {_MEASURES[names[0]]}, where {getattr(rules, names[0])} are allowed" if names else ""


def share_of(size: Size, rules: Rules) -> float:
    """The share of the tightest limit that a size takes, where 1 is all of it."""
    limits = ((name, getattr(rules, name)) for name in _MEASURES)
    return max((size[name] / most for name, most in limits if most is not None), default=0.0)


def depth_of(schema: Any) -> int:
    """The levels of a value below a part that `wire_schema` has written, references not followed."""
    below = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    branches = max(map(depth_of, schema.get("anyOf", ())), default=0)
    return max(branches, 1 + max(map(depth_of, below)) if below else 0)


# Writing the schema that a provider enforces: for each part of the true one its first conjunct that can be expressed.
#
# A schema is a conjunction: its keywords, and each branch of `allOf`, all hold. So each of these conjuncts admits all
# that the whole admits; the others are only validated afterwards.

Schema = dict[str, Any]

_TEXTS: Final = ("title", "description")
_OF_TYPE: Final[Mapping[str, tuple[str, ...]]] = {
    "string": ("pattern",),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": ("minItems", "maxItems"),
}
"""The bounds of each type. Not `format`, which does not bind by the true schema, and would be enforced."""
_NULL: Final = {"type": "null"}
_TEXT: Final = {"type": "string"}
_CLOSE_IT: Final = 'say "additionalProperties": false (pydantic: extra="forbid")'
_SAY_A_TYPE: Final = "give it a type"
_TOO_MUCH: Final = "all tools together are more than the provider enforces"
_FEWER: Final = 'declare fewer tools, or ask with "wire": "tools"'


class Inexpressible(ValueError):
    """A schema that a provider cannot enforce, with the reason."""


@dataclass(frozen=True, slots=True)
class UnenforcedPlace:
    """A place at which the provider does not enforce the schema; the answer is validated all the same."""

    tool: str | None
    """The tool whose calls have the place; None for the output."""
    place: str
    """The property, such as `note` or `customer.address`; empty where it is all of them."""
    reason: str
    remedy: str

    @property
    def where(self) -> str:
        """The tool and the property."""
        return self.place if self.tool is None else f"{self.tool}.{self.place}".rstrip(".")

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


class Reduction(IntEnum):
    """The part of a tool's calls that is written as a text, because all tools together are too large."""

    NONE = 0
    OPTIONAL = 1
    """The optional properties."""
    ALL = 2
    """Everything but the tool's name."""


@dataclass
class Writer:
    """Writes one schema."""

    rules: Rules
    definitions: Mapping[str, Any]
    reductions: Mapping[str, Reduction] = field(default_factory=dict)
    """Tool to its reduction."""
    needed: dict[str, Schema | None] = field(default_factory=dict)
    """The definitions that are referred to; None for one that is not written yet."""
    openings: list[UnenforcedPlace] = field(default_factory=list)
    _tools: dict[str, Size] = field(default_factory=dict)
    _at: tuple[str | None, str] = (None, "")
    _from: dict[str, tuple[str | None, str]] = field(default_factory=dict)
    """The place at which each definition is first referred to."""

    def whole(self, schema: Schema, *, is_function: bool) -> Schema:
        """The whole schema with the definitions that it needs. Raises `Inexpressible`."""
        written = self.written(schema, 1)
        properties = written.get("properties", {})
        if written.get("type") != "object" or (AS_TEXT in properties and (len(properties) == 1 or not is_function)):
            raise Inexpressible("it is not the schema of an object that lists its properties")
        while missing := [name for name, definition in self.needed.items() if definition is None]:
            for name in missing:
                self._at = self._from[name]
                self.needed[name] = self.written(self.definitions[name], 2)
        return {**written, **({"$defs": self.needed} if self.needed else {})}

    def sizes(self) -> dict[str, Size]:
        """The size of the calls of each tool, with the definitions that they need."""
        found = dict(self._tools)
        for name, definition in self.needed.items():
            if (tool := self._from[name][0]) in found:
                found[tool] += size_of({"$defs": {name: definition}})
        return found

    def written(self, part: Any, level: int) -> Schema:
        """A part of the schema, as its first conjunct that can be expressed."""
        if isinstance(part, dict):
            texts = {key: part[key] for key in _TEXTS if isinstance(part.get(key), str)}
            has_levels = bool(part.keys() & {"properties", "items", "prefixItems"})
            if self.rules.levels is not None and level >= self.rules.levels and has_levels:
                return {**texts, **self._too_deep(level)}
            before = len(self.openings)
            written = self._expressed(part, level)
            if level + 1 == self.rules.levels and depth_of(written) > 1:  # a text has a property, which lies deeper
                del self.openings[before:]
                return {**texts, **self._too_deep(level)}
            return written if "$ref" in written else {**texts, **written}  # a reference may have no other keywords
        return self._anything()

    def _expressed(self, part: Schema, level: int) -> Schema:
        open_objects = []
        for conjunct in _conjuncts(part):
            if "$ref" in conjunct:
                if (written := self._referred(conjunct["$ref"])) is not None:
                    return written
            elif (values := _listed_in(conjunct)) is not None:
                if (written := self._listed(values)) is not None:
                    return written
            elif "anyOf" in conjunct:
                return self._union(conjunct["anyOf"], level)
            elif isinstance(types := conjunct["type"], list):
                return self._union([{**conjunct, "type": one} for one in types], level)
            elif types == "object":
                if not self.rules.is_closed or _is_closed(conjunct):
                    return self._object(conjunct, level)
                open_objects.append(conjunct)
            elif types == "array":
                return {"type": "array", **self._bounds(conjunct, "array"), **self._items(conjunct, level)}
            else:
                return {"type": types, **self._bounds(conjunct, types)}
        if open_objects:
            return self._object(max(open_objects, key=lambda one: len(one.get("properties", ()))), level)
        return self._anything()

    def _anything(self) -> Schema:
        """A schema of any value: a scalar, or a JSON text of an object or a list."""
        if not self.rules.is_closed:
            return {}
        text = self._as_text("it may be anything", _SAY_A_TYPE)
        return {"anyOf": [_TEXT, {"type": "number"}, {"type": "boolean"}, _NULL, text]}

    def _as_text(self, reason: str, remedy: str) -> Schema:
        """A value that is written as a JSON text."""
        if not self.rules.is_closed:
            return {}
        self._open(reason, remedy)
        return _closed_object({AS_TEXT: {**_TEXT, "description": "The value, as JSON."}})

    def _too_deep(self, level: int) -> Schema:
        return self._as_text(f"it lies {level} levels deep in what is sent", "nest less")

    def _open(self, reason: str, remedy: str) -> None:
        self.openings.append(UnenforcedPlace(*self._at, reason, remedy))

    def _referred(self, reference: str) -> Schema | None:
        """A reference to one of the definitions; None where that cannot be expressed."""
        name = reference.removeprefix("#/$defs/").replace("~1", "/").replace("~0", "~")
        if name == reference or name not in self.definitions:
            return None
        if not self.rules.is_recursive and _is_cyclic(name, self.definitions):
            return self._as_text("it contains itself", "say how deep it may be, with a definition for each level")
        self.needed.setdefault(name, None)
        self._from.setdefault(name, self._at)
        return {"$ref": reference}

    def _listed(self, values: list[Any]) -> Schema | None:
        """A schema of listed values; None where they cannot be listed."""
        if not values or any(isinstance(value, dict | list) for value in values):
            return None
        types = list(dict.fromkeys(map(_type_of, values)))
        type_ = types[0] if len(types) == 1 else types
        most = self.rules.enum_characters
        if most is not None and len(values) > WIRE_SCHEMA_MANY and sum(len(str(value)) for value in values) > most:
            return {"type": type_}
        return {"type": type_, "enum": values}

    def _union(self, branches: Iterable[Any], level: int) -> Schema:
        """A union of several, each once; texts with bounds are left out where any text is admitted."""
        found: list[Schema] = []
        for branch in branches:
            written = self.written(branch, level) if branch is not False else {"anyOf": []}
            found += written["anyOf"] if written.keys() == {"anyOf"} else [written]
        if not found or any(each == {} for each in found):
            return self._anything()
        has_text = _TEXT in found
        kept = [each for place, each in enumerate(found) if each not in found[:place]]
        kept = [each for each in kept if not has_text or each == _TEXT or each.get("type") != "string"]
        kept = _with_calls_joined(self._distinguished(kept) if self.rules.has_own_first_keys else kept)
        return kept[0] if len(kept) == 1 else {"anyOf": kept}

    def _distinguished(self, branches: list[Schema]) -> list[Schema]:
        """The branches; an object that begins as another one does is written as a text."""
        kept: list[Schema] = []
        begun: list[tuple[str, frozenset[str] | None]] = []
        for branch in branches:
            first = self._first_key(branch)
            if first is not None and any(_are_alike(first, other) for other in begun):
                reason = f"of two objects that may stand there the first property is {first[0]}"
                text = self._as_text(reason, f"let each begin with {first[0]}: Literal[…] of its own")
                kept += [] if text in kept else [text]
            else:
                kept.append(branch)
                begun += [] if first is None else [first]
        return kept

    def _first_key(self, branch: Schema) -> tuple[str, frozenset[str] | None] | None:
        """An object's first key, and its values where these are listed; None where the branch is no object."""
        part = referred(branch["$ref"], {"$defs": self.definitions}) if "$ref" in branch else branch
        properties = part.get("properties") if isinstance(part, dict) else None
        if not properties:
            return None
        name, below = next(iter(properties.items()))
        listed = _listed_in(below) if isinstance(below, dict) else None
        return name, None if listed is None else frozenset(map(repr, listed))

    def _object(self, part: Schema, level: int) -> Schema:
        at, tool = self._at, _tool_of(part)
        if tool is None:
            return self._listed_object(part, level)
        self._at = (tool, "")
        reduction = self._reduction
        if reduction is Reduction.OPTIONAL:
            self._open(f"{_TOO_MUCH}, so what may be left out is a text", _FEWER)
        written = self._call_as_text(tool) if reduction is Reduction.ALL else self._listed_object(part, level)
        self._tools[tool] = size_of(written)
        self._at = at
        return written

    @property
    def _reduction(self) -> Reduction:
        """The reduction of the tool that is being written."""
        return self.reductions.get(self._at[0] or "", Reduction.NONE)

    def _listed_object(self, part: Schema, level: int) -> Schema:
        """An object with its properties; other properties go into a text where the object has to be closed."""
        required = set(part.get("required", ()))
        properties: dict[str, Schema] = {}
        owner, path = self._at
        has_more = self.rules.is_closed and (not _is_closed(part) or AS_TEXT in part.get("properties", ()))
        if has_more and not part.get("properties"):
            return self._as_text("it may have any property", _CLOSE_IT)
        if has_more:
            self._open("it may have further properties", _CLOSE_IT)
        for name, below in part.get("properties", {}).items():
            if below is False or (name == AS_TEXT and self.rules.is_closed):
                continue
            if name not in required and self._reduction is Reduction.OPTIONAL and self.rules.is_closed:
                has_more = True
                continue
            self._at = (owner, f"{path}.{name}".lstrip("."))
            written = self.written(below, level + 1)
            is_tag = not properties and self.rules.has_own_first_keys and isinstance(below, dict) and "const" in below
            if name not in required and self.rules.requires_all and not is_tag:
                written = self._union_with_null(written)
            properties[name] = written
        self._at = (owner, path)
        needed = [name for name in properties if self.rules.requires_all or name in required]
        if has_more:
            text = {**_TEXT, "description": "Properties that are not listed here, as a JSON object."}
            properties[AS_TEXT] = self._union_with_null(text) if self.rules.requires_all else text
            needed += [AS_TEXT] if self.rules.requires_all else []
        closed = {"additionalProperties": False} if has_more or _is_closed(part) else self._others(part, level)
        return {"type": "object", "properties": properties, "required": needed, **closed}

    def _others(self, part: Schema, level: int) -> Schema:
        """The rule for properties that are not listed, always written: some providers admit none without it."""
        if part.get("patternProperties") or not isinstance(part.get("additionalProperties"), dict):
            return {"additionalProperties": True}
        return {"additionalProperties": self.written(part["additionalProperties"], level + 1)}

    def _call_as_text(self, tool: str) -> Schema:
        """A call of a tool whose name is followed by a text of everything else."""
        self._open(_TOO_MUCH, _FEWER)
        rest = {**_TEXT, "description": "Everything else of the call, as a JSON object."}
        return _closed_object({"_tool": {**_TEXT, "enum": [tool]}, AS_TEXT: rest})

    def _union_with_null(self, written: Schema) -> Schema:
        texts: Schema = {key: written[key] for key in _TEXTS if key in written}
        own = {key: value for key, value in written.items() if key not in texts}
        branches = own["anyOf"] if own.keys() == {"anyOf"} else [own]
        if any(_admits_null(branch) for branch in branches):
            return written
        return {**texts, "anyOf": [*branches, _NULL]}

    def _items(self, part: Schema, level: int) -> Schema:
        """The `items` of a list: where places have schemas of their own, one of these. None of it where elements may be
        anything and need no schema.
        """
        if part.get("maxItems") == 0:
            return {"items": _NULL}
        places = [*part.get("prefixItems", ())]
        if part.get("maxItems", len(places) + 1) > len(places):
            places.append(part.get("items", True))
        places = [place for place in places if place is not False]
        if not self.rules.is_closed and (not places or any(place in (True, {}) for place in places)):
            return {}
        return {"items": self._union(places or [True], level + 1)}

    def _bounds(self, part: Schema, type_: str) -> Schema:
        kept = {key: part[key] for key in _OF_TYPE.get(type_, ()) if key in part and key in self.rules.keywords}
        if "pattern" in kept and not is_whole_text(kept["pattern"]):
            del kept["pattern"]
        return kept


def _closed_object(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _with_calls_joined(branches: list[Schema]) -> list[Schema]:
    """The branches; calls that are a name and a text are one branch, with the names of all their tools."""
    calls = [each for each in branches if [*each.get("properties", ())] == ["_tool", AS_TEXT] == each["required"]]
    if len(calls) < 2:
        return branches
    properties = calls[0]["properties"]
    names = [name for call in calls for name in call["properties"]["_tool"]["enum"]]
    joined = {**calls[0], "properties": {**properties, "_tool": {**properties["_tool"], "enum": names}}}
    return [*(branch for branch in branches if branch not in calls), joined]


def _listed_in(part: Schema) -> list[Any] | None:
    """The values that a `const` or an `enum` of a schema lists; None where it has neither."""
    return [part["const"]] if "const" in part else part.get("enum")


def _conjuncts(part: Schema) -> Iterator[Schema]:
    """The conjuncts of a schema, each of which may be sent alone; the narrowest come first."""
    if part.keys() & {"const", "enum"}:
        yield {key: part[key] for key in ("const", "enum") if key in part}
    own = {key: value for key, value in part.items() if key not in ("$ref", "anyOf", "oneOf", "allOf", "const", "enum")}
    if "type" in own:
        yield own
    if "$ref" in part:
        yield {"$ref": part["$ref"]}
    for keyword in ("anyOf", "oneOf"):
        if keyword in part:
            yield {"anyOf": part[keyword]}
    for each in part.get("allOf", ()):
        if isinstance(each, dict):
            yield from _conjuncts(each)


def _is_closed(part: Schema) -> bool:
    return part.get("additionalProperties") is False and not part.get("patternProperties")


def _is_cyclic(name: str, given: Mapping[str, Any]) -> bool:
    """Whether a definition leads to itself."""
    root = {"$defs": given}
    return any(referred(part.get("$ref"), root) is given[name] for _, part in reachable(root, ("$defs", name)))


def _tool_of(part: Schema) -> str | None:
    """The tool whose call an object is; None where it is no call."""
    match part.get("properties"):
        case {"_tool": {"const": str(name)}}:
            return name
    return None


def _are_alike(one: tuple[str, frozenset[str] | None], other: tuple[str, frozenset[str] | None]) -> bool:
    """Whether two objects cannot be told apart by their first keys."""
    return one[0] == other[0] and (one[1] is None or other[1] is None or bool(one[1] & other[1]))


def _admits_null(written: Schema) -> bool:
    types = written.get("type", ())
    return types == "null" or (isinstance(types, list) and "null" in types) or written == {}


def _type_of(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    return names[type(value)]


__all__ = ["Inexpressible", "UnenforcedPlace", "WireSchema", "wire_schema"]


@dataclass(frozen=True, slots=True)
class WireSchema:
    """A schema to send, and the places that it leaves unenforced."""

    schema: Schema
    openings: tuple[UnenforcedPlace, ...] = ()


def wire_schema(schema: Any, rules: Rules, *, is_function: bool = False) -> WireSchema:
    """The schema to send for an answer, or for a function's parameters, which may be an open object. Raises
    `Inexpressible` where nothing can be enforced.
    """
    if not isinstance(schema, dict):
        raise Inexpressible("it admits any value")
    whole, writer = _written(schema, rules, {}, is_function=is_function)
    reductions = dict.fromkeys(writer.sizes(), Reduction.NONE)
    if reductions and excess(size_of(whole), rules):
        sizes = {
            reduction: _written(schema, rules, dict.fromkeys(reductions, reduction))[1].sizes()
            for reduction in Reduction
        }
        while excess(size_of(whole), rules) and _reduce(reductions, sizes, size_of(whole), rules):
            whole, writer = _written(schema, rules, reductions)
    if text := excess(size_of(whole), rules):
        raise Inexpressible(f"it has {text}")
    return WireSchema(whole, tuple(dict.fromkeys(writer.openings)))


def _written(
    schema: Schema, rules: Rules, reductions: Mapping[str, Reduction], *, is_function: bool = False
) -> tuple[Schema, Writer]:
    writer = Writer(rules, schema.get("$defs", {}), reductions)
    own = {key: value for key, value in schema.items() if key != "$defs"}
    return writer.whole(own, is_function=is_function), writer


def _reduce(
    reductions: dict[str, Reduction], sizes: Mapping[Reduction, Mapping[str, Size]], whole: Size, rules: Rules
) -> bool:
    """Reduce as many tools as it takes for the whole to be small enough, first those that save most, and none further
    than the others before it has to be; false where none can be reduced.
    """
    left, has_reduced = whole, False
    while (measures := exceeded(left, rules)) and (reduction := min(reductions.values())) is not Reduction.ALL:
        further = Reduction(reduction + 1)
        names = [name for name in reductions if reductions[name] is reduction]
        saved = {name: sizes[reduction][name] - sizes[further][name] for name in names}
        name = max(saved, key=lambda name: max(saved[name][measure] for measure in measures))
        left, reductions[name], has_reduced = left - saved[name], further, True
    return has_reduced
