"""The schema as a provider enforces it: wider than the truth where it cannot say that, never narrower (SPEC R12.6).

Where objects have to list all that they may have, what they may have besides stands in one more property: `_json`, a
text that holds a JSON object. Of a value that may be anything it is the only one. So one open object leaves nothing
open but itself, and that is an `Opening`. `_json` and the nulls for what was left out are taken out again before
anything is validated (`acts_celery.protocol.requests.reading`).

Of a schema that is too large for a provider, what may be left out of the largest tools' calls is written in that way,
and where that is not enough, all of these calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, Final

from ...protocol.requests.reading import AS_TEXT
from ...protocol.schemas.walk import is_whole_text, reachable, referred, subschemas
from ..limits import WIRE_SCHEMA_MANY
from .prices import Rules

# How large a schema is by the measures that providers limit (SPEC R12.6).

_WORDS: Final[Mapping[str, str]] = {
    "properties": "properties",
    "values": "listed values",
    "unions": "unions",
    "optional": "properties that may be left out",
    "characters": "characters of names and listed values",
}


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a schema as it is sent, each definition counted once. The names are those of `Rules`."""

    properties: int = 0
    values: int = 0
    unions: int = 0
    optional: int = 0
    characters: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def __sub__(self, other: Size) -> Size:
        return Size(*(getattr(self, each.name) - getattr(other, each.name) for each in fields(self)))

    def limits(self, rules: Rules) -> Iterator[tuple[str, int]]:
        """The limits that it exceeds: their names, and how much is allowed."""
        for each in fields(self):
            most = getattr(rules, each.name)
            if most is not None and getattr(self, each.name) > most:
                yield each.name, most

    def share(self, rules: Rules) -> float:
        """How much of the tightest limit it takes, where 1 is all of it."""
        mosts = ((getattr(self, each.name), getattr(rules, each.name)) for each in fields(self))
        return max((size / most for size, most in mosts if most is not None), default=0.0)

    def beyond(self, rules: Rules) -> list[str]:
        """The limits that it exceeds, in words."""
        return [f"{getattr(self, name)} {_WORDS[name]}, where {most} are allowed" for name, most in self.limits(rules)]


def size_of(schema: Any) -> Size:
    """The size of a schema that `wire_schema` has written."""
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


def depth_of(schema: Any) -> int:
    """How many levels of a value lie below what `wire_schema` has written, but for what its references lead to."""
    below = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    beside = max(map(depth_of, schema.get("anyOf", ())), default=0)
    return max(beside, 1 + max(map(depth_of, below)) if below else 0)


# Writing the schema that a provider enforces: each part of the truth as the first thing that can be said of it.
#
# A schema is a conjunction: what stands beside each other in it, and each branch of `allOf`, all hold. So whichever one
# of them is sent admits everything that the whole admits; a keyword that cannot be said is validated afterwards alone.

Schema = dict[str, Any]

_SPOKEN: Final = ("title", "description")
_OF_TYPE: Final[Mapping[str, tuple[str, ...]]] = {
    "string": ("pattern",),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": ("minItems", "maxItems"),
}
"""Not `format`, which says nothing of a value by the truth, and would be enforced."""
_NULL: Final = {"type": "null"}
_TEXT: Final = {"type": "string"}
_CLOSE_IT: Final = 'say "additionalProperties": false (pydantic: extra="forbid")'
_SAY_A_TYPE: Final = "give it a type"
_TOO_MUCH: Final = "all tools together are more than the provider enforces"
_FEWER: Final = 'declare fewer tools, or ask with "wire": "tools"'


class Inexpressible(ValueError):
    """A schema that a provider cannot enforce; the text tells why."""


@dataclass(frozen=True, slots=True)
class Opening:
    """A place at which the provider does not enforce what the schema says; the answer is validated all the same."""

    tool: str | None
    """None where it is in the output."""
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
    """How much of a tool's calls is written as a text, because all of them are too much."""

    NONE = 0
    OPTIONAL = 1
    """What may be left out."""
    ALL = 2
    """Everything but its name."""


@dataclass
class Writer:
    """Writes one schema."""

    rules: Rules
    given: Mapping[str, Any]
    reductions: Mapping[str, Reduction] = field(default_factory=dict)
    """By tool."""
    needed: dict[str, Schema | None] = field(default_factory=dict)
    """The definitions that are referred to; None where one is not written yet."""
    openings: list[Opening] = field(default_factory=list)
    _tools: dict[str, Size] = field(default_factory=dict)
    _at: tuple[str | None, str] = (None, "")
    _from: dict[str, tuple[str | None, str]] = field(default_factory=dict)
    """Where each definition is first referred to."""

    def whole(self, schema: Schema, *, is_function: bool) -> Schema:
        """The whole schema with the definitions that it needs. Raises `Inexpressible`."""
        written = self.written(schema, 1)
        properties = written.get("properties", {})
        if written.get("type") != "object" or (AS_TEXT in properties and (len(properties) == 1 or not is_function)):
            raise Inexpressible("it is not the schema of an object that lists its properties")
        while missing := [name for name, definition in self.needed.items() if definition is None]:
            for name in missing:
                self._at = self._from[name]
                self.needed[name] = self.written(self.given[name], 2)
        return {**written, **({"$defs": self.needed} if self.needed else {})}

    def sizes(self) -> dict[str, Size]:
        """How large the calls of each tool are, with the definitions that they need."""
        found = dict(self._tools)
        for name, definition in self.needed.items():
            if (tool := self._from[name][0]) in found:
                found[tool] += size_of({"$defs": {name: definition}})
        return found

    def written(self, part: Any, level: int) -> Schema:
        """A part of the schema: the first of what holds together in it that can be said."""
        if isinstance(part, dict):
            spoken = {key: part[key] for key in _SPOKEN if isinstance(part.get(key), str)}
            if self.rules.levels is not None and level >= self.rules.levels and _is_deep(part):
                return {**spoken, **self._too_deep(level)}
            before = len(self.openings)
            said = self._said(part, level)
            if level + 1 == self.rules.levels and depth_of(said) > 1:  # a text has a property, which lies deeper, too
                del self.openings[before:]
                return {**spoken, **self._too_deep(level)}
            return said if "$ref" in said else {**spoken, **said}  # beside a reference nothing may stand
        return self._anything()

    def _said(self, part: Schema, level: int) -> Schema:
        open_objects = []
        for conjunct in _conjuncts(part):
            if "$ref" in conjunct:
                if (said := self._referred(conjunct["$ref"])) is not None:
                    return said
            elif "const" in conjunct or "enum" in conjunct:
                if (said := self._listed([conjunct["const"]] if "const" in conjunct else conjunct["enum"])) is not None:
                    return said
            elif "anyOf" in conjunct:
                return self._union(conjunct["anyOf"], level)
            elif isinstance(types := conjunct["type"], list):
                return self._union([{**conjunct, "type": one} for one in types], level)
            elif types == "object":
                if not self.rules.is_closed or _is_closed(conjunct):
                    return self._object(conjunct, level)
                open_objects.append(conjunct)
            elif types == "array":
                items = self._items(conjunct, level)
                return {"type": "array", **self._bounds(conjunct, "array"), **({} if items is None else items)}
            else:
                return {"type": types, **self._bounds(conjunct, types)}
        if open_objects:
            return self._object(max(open_objects, key=lambda one: len(one.get("properties", ()))), level)
        return self._anything()

    def _anything(self) -> Schema:
        """Any value, which is a JSON text where it is none of what can be named."""
        if not self.rules.is_closed:
            return {}
        text = self._as_text("it may be anything", _SAY_A_TYPE)
        return {"anyOf": [_TEXT, {"type": "number"}, {"type": "boolean"}, _NULL, text]}

    def _as_text(self, reason: str, remedy: str) -> Schema:
        """A value that is written as a JSON text."""
        if not self.rules.is_closed:
            return {}
        self._open(reason, remedy)
        said = {**_TEXT, "description": "The value, as JSON."}
        return {"type": "object", "properties": {AS_TEXT: said}, "required": [AS_TEXT], "additionalProperties": False}

    def _too_deep(self, level: int) -> Schema:
        return self._as_text(f"it lies {level} levels deep in what is sent", "nest less")

    def _open(self, reason: str, remedy: str) -> None:
        self.openings.append(Opening(*self._at, reason, remedy))

    def _referred(self, reference: str) -> Schema | None:
        """A reference to one of the definitions; None where that cannot be said."""
        name = reference.removeprefix("#/$defs/").replace("~1", "/").replace("~0", "~")
        if name == reference or name not in self.given:
            return None
        if not self.rules.is_recursive and _is_cyclic(name, self.given):
            return self._as_text("it contains itself", "say how deep it may be, with a definition for each level")
        self.needed.setdefault(name, None)
        self._from.setdefault(name, self._at)
        return {"$ref": reference}

    def _listed(self, values: list[Any]) -> Schema | None:
        """One of several values; None where they cannot be listed."""
        if not values or any(isinstance(value, dict | list) for value in values):
            return None
        types = list(dict.fromkeys(map(_type_of, values)))
        type_ = types[0] if len(types) == 1 else types
        most = self.rules.enum_characters
        if most is not None and len(values) > WIRE_SCHEMA_MANY and sum(len(str(value)) for value in values) > most:
            return {"type": type_}
        return {"type": type_, "enum": values}

    def _union(self, branches: Iterable[Any], level: int) -> Schema:
        """Any of several, each once; a text that may be any has what other texts there are in it."""
        found: list[Schema] = []
        for branch in branches:
            written = self.written(branch, level) if branch is not False else {"anyOf": []}
            found += written["anyOf"] if written.keys() == {"anyOf"} else [written]
        if not found or any(each == {} for each in found):
            return self._anything()
        has_text = _TEXT in found
        kept = [each for place, each in enumerate(found) if each not in found[:place]]
        kept = [each for each in kept if not has_text or each == _TEXT or each.get("type") != "string"]
        kept = _with_texts_joined(self._told_apart(kept) if self.rules.has_own_first_keys else kept)
        return kept[0] if len(kept) == 1 else {"anyOf": kept}

    def _told_apart(self, branches: list[Schema]) -> list[Schema]:
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
        """An object's first key, and what it may be where that is listed; None where it is no object."""
        part: Any = branch
        if "$ref" in branch:
            part = self.given[branch["$ref"].removeprefix("#/$defs/").replace("~1", "/").replace("~0", "~")]
        properties = part.get("properties") if isinstance(part, dict) else None
        if not properties:
            return None
        name, said = next(iter(properties.items()))
        said = said if isinstance(said, dict) else {}
        listed = [said["const"]] if "const" in said else said.get("enum")
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
        """How much is a text of what is written now."""
        return self.reductions.get(self._at[0] or "", Reduction.NONE)

    def _listed_object(self, part: Schema, level: int) -> Schema:
        """An object with its properties; what it may have besides stands in a text where it has to be closed."""
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
            tells = not properties and self.rules.has_own_first_keys and isinstance(below, dict) and "const" in below
            if name not in required and self.rules.requires_all and not tells:
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
        """What properties may be that are not listed. Some take it that there are none where nothing is said."""
        if part.get("patternProperties") or not isinstance(part.get("additionalProperties"), dict):
            return {"additionalProperties": True}
        return {"additionalProperties": self.written(part["additionalProperties"], level + 1)}

    def _call_as_text(self, tool: str) -> Schema:
        """A call of a tool of which everything else is a text."""
        self._open(_TOO_MUCH, _FEWER)
        said = {**_TEXT, "description": "Everything else of the call, as a JSON object."}
        properties = {"_tool": {**_TEXT, "enum": [tool]}, AS_TEXT: said}
        return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}

    def _union_with_null(self, written: Schema) -> Schema:
        spoken: Schema = {key: written[key] for key in _SPOKEN if key in written}
        own = {key: value for key, value in written.items() if key not in spoken}
        branches = own["anyOf"] if own.keys() == {"anyOf"} else [own]
        if any(_admits_null(branch) for branch in branches):
            return written
        return {**spoken, "anyOf": [*branches, _NULL]}

    def _items(self, part: Schema, level: int) -> Schema | None:
        """What any element may be; where each place has a schema of its own, one of those. None where it is said
        nowhere and need not be.
        """
        if part.get("maxItems") == 0:
            return {"items": _NULL}
        places = [*part.get("prefixItems", ())]
        if part.get("maxItems", len(places) + 1) > len(places):
            places.append(part.get("items", True))
        places = [place for place in places if place is not False]
        if not self.rules.is_closed and (not places or any(place in (True, {}) for place in places)):
            return None
        return {"items": self._union(places or [True], level + 1)}

    def _bounds(self, part: Schema, type_: str) -> Schema:
        kept = {key: part[key] for key in _OF_TYPE.get(type_, ()) if key in part and key in self.rules.keywords}
        if "pattern" in kept and not is_whole_text(kept["pattern"]):
            del kept["pattern"]
        return kept


def _with_texts_joined(branches: list[Schema]) -> list[Schema]:
    """The branches; calls of which everything else is a text are one, with the names of all their tools."""
    texts = [
        branch for branch in branches if [*branch.get("properties", ())] == ["_tool", AS_TEXT] == branch["required"]
    ]
    if len(texts) < 2:
        return branches
    tool = texts[0]["properties"]["_tool"]
    names = [name for text in texts for name in text["properties"]["_tool"]["enum"]]
    joined = {**texts[0], "properties": {**texts[0]["properties"], "_tool": {**tool, "enum": names}}}
    return [*(branch for branch in branches if branch not in texts), joined]


def _conjuncts(part: Schema) -> Iterator[Schema]:
    """What holds together in a schema, each enough by itself to be sent; what says most comes first."""
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


def _is_deep(part: Schema) -> bool:
    """Whether there are parts of a value in it that lie deeper."""
    return bool(part.keys() & {"properties", "items", "prefixItems"})


def _is_cyclic(name: str, given: Mapping[str, Any]) -> bool:
    """Whether a definition leads to itself."""
    root = {"$defs": given}
    return any(referred(part.get("$ref"), root) is given[name] for _, part in reachable(root, ("$defs", name)))


def _tool_of(part: Schema) -> str | None:
    """The tool whose call an object is; None where it is none."""
    said = part.get("properties", {}).get("_tool")
    name = said.get("const") if isinstance(said, dict) else None
    return name if isinstance(name, str) else None


def _are_alike(one: tuple[str, frozenset[str] | None], other: tuple[str, frozenset[str] | None]) -> bool:
    """Whether objects that begin so cannot be told apart by their first property."""
    return one[0] == other[0] and (one[1] is None or other[1] is None or bool(one[1] & other[1]))


def _admits_null(written: Schema) -> bool:
    types = written.get("type", ())
    return types == "null" or (isinstance(types, list) and "null" in types) or written == {}


def _type_of(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    return names[type(value)]


__all__ = ["Inexpressible", "Opening", "WireSchema", "wire_schema"]


@dataclass(frozen=True, slots=True)
class WireSchema:
    """What is sent."""

    schema: Schema
    openings: tuple[Opening, ...] = ()


def wire_schema(schema: Any, rules: Rules, *, is_function: bool = False) -> WireSchema:
    """The schema for the wire: of an answer, or of a function's parameters, which are part of one and may be open
    themselves. Raises `Inexpressible` where nothing can be enforced.
    """
    if not isinstance(schema, dict):
        raise Inexpressible("it admits any value")
    whole, writer = _written(schema, rules, {}, is_function=is_function)
    reductions = dict.fromkeys(writer.sizes(), Reduction.NONE)
    if reductions and size_of(whole).beyond(rules):
        sizes = {
            reduction: _written(schema, rules, dict.fromkeys(reductions, reduction))[1].sizes()
            for reduction in Reduction
        }
        while beyond := size_of(whole).beyond(rules):
            if not _reduce(reductions, sizes, size_of(whole), rules):
                raise Inexpressible(f"it has {beyond[0]}")
            whole, writer = _written(schema, rules, reductions)
    if beyond := size_of(whole).beyond(rules):
        raise Inexpressible(f"it has {beyond[0]}")
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
    """Reduce as many tools as it takes for the whole to be small enough, those first by which most is won, and no tool
    further than the others before it has to be; false where none can be.
    """
    left, has_reduced = whole, False
    while (limits := dict(left.limits(rules))) and (reduction := min(reductions.values())) is not Reduction.ALL:
        further = Reduction(reduction + 1)
        won = {
            name: sizes[reduction][name] - sizes[further][name] for name in reductions if reductions[name] is reduction
        }
        name = max(won, key=lambda name: max(getattr(won[name], measure) for measure in limits))
        left, reductions[name], has_reduced = left - won[name], further, True
    return has_reduced
