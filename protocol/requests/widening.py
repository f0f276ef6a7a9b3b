"""Widening: a schema anew, such that a reference is admitted wherever it takes a value, a template wherever it takes a
text (SPEC R12.4).

A reference is a text `†…`. It is admitted in place of every value at any depth inside of objects and lists, but not
for keys, and not where the schema demands one certain value (`const`). A template is a text with `†{…}`. Several
documents are written into one schema: what the references (`$ref`) of each lead to is written beside, under names of
its own, in the `$defs` they share.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, count
from typing import Any, Final

from ..calls.pins import pins_of
from ..errors import segments, squeezed
from ..paths import type_name
from ..references import is_expression
from ..schemas.walk import DEFINITIONS, REFERENCES, Targets, Walk, conjuncts, reachable, referred, rewritten

REFERENCE: Final = {"type": "string", "pattern": "^†[^†{].*$"}
"""A reference, or an expression of several."""
TEMPLATE: Final = {"type": "string", "pattern": "^([^†]|††|†[^†{])*†\\{([^†]|†)*$"}
"""A text with an opening that is not escaped."""
HOLDING: Final = {
    "anyOf": [
        {"$ref": "#/$defs/reference"},
        {"$ref": "#/$defs/template"},
        {"type": "array", "contains": {"$ref": "#/$defs/holding"}},
        {"type": "object", "not": {"additionalProperties": {"not": {"$ref": "#/$defs/holding"}}}},
    ]
}
"""Schema of what holds a reference or a template at some depth: such a value is not known whole, so checks on whole
values are left for later.
"""
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_.-]")
_SAYS_NOTHING: Final = frozenset({"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"})
"""Keywords that do not affect validation."""
_NOT_OF_TEXTS: Final = _SAYS_NOTHING | {
    *("properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties"),
    *("propertyNames", "dependentRequired", "dependentSchemas", "unevaluatedProperties", "unevaluatedItems"),
    *("items", "prefixItems", "contains", "minContains", "maxContains", "minItems", "maxItems", "uniqueItems"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "type", "anyOf", *DEFINITIONS),
}
"""Keywords that say nothing of a text, and those that `_admits` looks at."""
_ALONE: Final = _SAYS_NOTHING | {
    *("type", "enum", "const", "format", "pattern", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
"""Keywords that mean the same whatever other keywords there are."""
_OF_PARTS: Final = frozenset(
    {"properties", "patternProperties", "items", "prefixItems", "contains", "additionalProperties"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
"""Keywords for the inside of a value that a reference may replace."""


@dataclass
class Definitions:
    """The `$defs` of a schema that is composed of several documents."""

    schemas: dict[str, Any] = field(default_factory=dict)

    def free_name(self, wanted: str) -> str:
        """A name like this one, taken now; every provider takes it, and it is the same in a pointer."""
        name = plain = _UNUSUAL.sub("_", wanted)
        for number in count(2):
            if name not in self.schemas:
                self.schemas[name] = True
                return name
            name = f"{plain}-{number}"
        raise AssertionError

    def reference(self) -> dict[str, Any]:
        """The schema of references."""
        self.schemas.setdefault("reference", REFERENCE)
        return {"$ref": "#/$defs/reference"}

    def template(self) -> dict[str, Any]:
        """The schema of templates."""
        self.schemas.setdefault("template", TEMPLATE)
        return {"$ref": "#/$defs/template"}

    def holding(self) -> dict[str, Any]:
        """The schema of what holds a reference or a template."""
        self.reference()
        self.template()
        self.schemas.setdefault("holding", HOLDING)
        return {"$ref": "#/$defs/holding"}


def closed(properties: Mapping[str, Any], definitions: Definitions | None = None) -> dict[str, Any]:
    """The schema of an object of all these properties and no other."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
        **({"$defs": definitions.schemas} if definitions is not None and definitions.schemas else {}),
    }


@dataclass
class Widening:
    """Writes the schemas of one document anew. `owner` begins the names of its definitions."""

    owner: str
    document: Any
    definitions: Definitions
    is_offer: bool = True
    """True for the schema that a model is offered; the one that answers are held to lacks the conditions that a
    reference may turn out to meet.
    """

    def __post_init__(self) -> None:
        self._has_pins = any(pins_of(part) for _, part in reachable(self.document))
        self._is_empty = Walk(self._takes_nothing, cyclic=False)
        self._admits = Walk(self._takes_every_text, cyclic=False)
        self.may_be_text = Walk(self._takes_some_text, cyclic=False)
        self._target = Walk[Any](self._led_to, cyclic=None)
        self._targets = Targets(self.document, self.definitions.schemas, self._free_name)

    def value(self, part: Any) -> Any:
        """A schema, or a reference or a template in place of the value; and the same inside of it. Where it prescribes
        expressions, these alone: what else it says is of the value (SPEC R4.1).
        """
        if (prescribed := self._prescribed(part)) is not None:
            return prescribed
        if self._is_certain(part) or self._is_empty(part):
            return self.data(part)
        made = self.inside(part)
        if self._admits(part):
            return made
        spoken = {key: made.pop(key) for key in ("title", "description") if key in made}
        branches = made["anyOf"] if made.keys() == {"anyOf"} else [made]
        template = [self.definitions.template()] if self.may_be_text(part) else []
        return {**spoken, "anyOf": [*branches, self.definitions.reference(), *template]}

    def _prescribed(self, part: Any) -> dict[str, Any] | None:
        """The schema of the expressions that a schema prescribes, itself or by each of its choices; None if it takes
        others, too. Choices inside of choices are not looked into: they may be shared, and so very many.
        """
        if not self._has_pins or not isinstance(part, dict):
            return None
        parts = conjuncts((part,), self.document)
        found = list(filter(None, map(pins_of, parts)))
        for branches in (one[keyword] for one in parts for keyword in ("anyOf", "oneOf") if keyword in one):
            each = [list(filter(None, map(pins_of, conjuncts((branch,), self.document)))) for branch in branches]
            found += [{"anyOf": list(map(joined, each))}] if each and all(each) else []
        described = next((one["description"] for one in parts if "description" in one), None)
        said = {} if described is None else {"description": described}
        return {**said, **joined(found)} if found else None

    def inside(self, part: Any) -> Any:
        """A schema that admits references inside its value, but not in place of the whole value."""
        return self._written(part, self._widened)

    def data(self, part: Any) -> Any:
        """A schema without references: its value is data."""
        return self._written(part, self._kept)

    def _written(self, part: Any, keyword_anew: Callable[[str, Any], Mapping[str, Any]]) -> Any:
        if not isinstance(part, dict):
            return part
        made: dict[str, Any] = {}
        for keyword, below in part.items():
            if keyword in DEFINITIONS or keyword.startswith(("x-", "_", "$comment")):
                continue
            for key, value in keyword_anew(keyword, below).items():
                if key in made:  # both count
                    made.setdefault("allOf", [])
                    made["allOf"] = [*made["allOf"], *(value if key == "allOf" else [{key: value}])]
                else:
                    made[key] = value
        return made

    def _widened(self, keyword: str, below: Any) -> Mapping[str, Any]:
        """A keyword with what it holds."""
        below = untitled(below) if keyword == "properties" else below
        match keyword:
            case _ if keyword in REFERENCES:
                return {keyword: self._targets(below, "inside", self.inside)}
            case _ if keyword in _OF_PARTS:
                return {keyword: rewritten(keyword, below, self.value)}
            case _ if keyword in _BY_VALUES and not self.is_offer:
                return {"anyOf": rewritten(keyword, below, self.inside)} if keyword == "oneOf" else {}
            case "allOf" | "anyOf" | "then" | "else" | "dependentSchemas":
                return {keyword: rewritten(keyword, below, self.inside)}
            case "oneOf":
                return self._one_of(below)
            case "uniqueItems" if below is True:
                return {"anyOf": [{keyword: below}, self.definitions.holding()]}
        return self._kept(keyword, below)

    def _kept(self, keyword: str, below: Any) -> Mapping[str, Any]:
        """A keyword with its value, unchanged."""
        below = untitled(below) if keyword == "properties" else below
        if keyword in REFERENCES:
            return {keyword: self._targets(below, "data", self.data)}
        return {keyword: rewritten(keyword, below, self.data)}

    def _one_of(self, branches: list[Any]) -> Mapping[str, Any]:
        """Rewrite `oneOf`. If no value fits two branches it becomes `anyOf`; else `oneOf` holds only for values that
        are known whole, since a reference may turn out to be what tells the branches apart.
        """
        widened = list(map(self.inside, branches))
        if all(self._are_apart(one, other) for one, other in combinations(branches, 2)):
            return {"anyOf": widened}
        once = {"oneOf": list(map(self.data, branches))}
        return {"allOf": [{"anyOf": widened}, {"anyOf": [once, self.definitions.holding()]}]}

    def _free_name(self, reference: str, way: str) -> str:
        """A name for what a reference leads to, written anew in a way."""
        last = (segments(reference) or ("whole",))[-1]
        return self.definitions.free_name(f"{self.owner}.{last}{'-data' if way == 'data' else ''}")

    def _is_certain(self, part: Any) -> bool:
        """Whether a schema demands one certain value."""
        return isinstance(part, dict) and ("const" in part or self._is_certain(self._target(part)))

    def _takes_nothing(self, part: Any) -> bool:
        """Whether a schema plainly takes no value at all."""
        if not isinstance(part, dict):
            return part is False
        several = (part[keyword] for keyword in ("anyOf", "oneOf") if keyword in part)
        return (
            any(all(map(self._is_empty, branches)) for branches in several)
            or any(map(self._is_empty, part.get("allOf", ())))
            or ("$ref" in part and self._is_empty(referred(part["$ref"], self.document)))
        )

    def _takes_every_text(self, part: Any) -> bool:
        """Whether a schema plainly admits every text, so that references need no words of their own."""
        if not isinstance(part, dict):
            return part is True
        if set(part) - _SAYS_NOTHING == {"$ref"}:
            return self._admits(self._target(part))
        types = part.get("type", "string")
        if "string" not in ([types] if isinstance(types, str) else types):
            return False
        branches = part.get("anyOf", [True])
        return part.keys() <= _NOT_OF_TEXTS and any(map(self._admits, branches))

    def _takes_some_text(self, part: Any) -> bool:
        """Whether a schema may admit a text."""
        if not isinstance(part, dict):
            return part is not False
        types = part.get("type", "string")
        several = [part[keyword] for keyword in ("anyOf", "oneOf") if keyword in part]
        targets = (referred(part.get(keyword), self.document) for keyword in REFERENCES)
        return (
            "string" in ([types] if isinstance(types, str) else types)
            and not pins_of(part)
            and any(isinstance(value, str) and not is_expression(value) for value in part.get("enum", [""]))
            and isinstance(part.get("const", ""), str)
            and all(any(map(self.may_be_text, branches)) for branches in several)
            and all(map(self.may_be_text, part.get("allOf", ())))
            and all(self.may_be_text(target) for target in targets if target is not None)
        )

    def _led_to(self, part: Any) -> Any:
        """Target of a schema that is a reference and no more; None for any other."""
        if not isinstance(part, dict) or set(part) - _SAYS_NOTHING != {"$ref"}:
            return None
        target = referred(part["$ref"], self.document)
        return self._target(target) if isinstance(target, dict) and "$ref" in target else target

    def _are_apart(self, one: Any, other: Any) -> bool:
        """Whether no value can fit both schemas: they are of other types, or of objects that demand a property with
        other values.
        """
        mine, theirs = self._followed(one), self._followed(other)
        if not mine or not theirs:
            return False
        types = [_types(schema) for schema in (mine, theirs)]
        if all(types) and not (types[0] & types[1]) and not ({"integer", "number"} <= types[0] | types[1]):
            return True
        if types != [{"object"}, {"object"}]:
            return False
        return any(
            not (set(map(repr, a)) & set(map(repr, b)))
            for key in set(mine.get("required", ())) & set(theirs.get("required", ()))
            if (a := _named_values(self._followed(mine.get("properties", {}).get(key))))
            and (b := _named_values(self._followed(theirs.get("properties", {}).get(key))))
        )

    def _followed(self, part: Any) -> Mapping[str, Any]:
        """A schema, or what it leads to where it is a reference and no more."""
        target = self._target(part)
        found = part if target is None else target
        return found if isinstance(found, dict) else {}


_BY_VALUES: Final = ("oneOf", "not", "if", "then", "else", "dependentSchemas")
"""Keywords by which a value may be refused for what it fits."""


def joined(said: Sequence[Any]) -> Any:
    """Join several schemas of one value: flat if each keyword means the same beside the others, since providers support
    few `allOf`s. Of annotations the first counts.
    """
    if len(said) == 1:
        return said[0]
    made: dict[str, Any] = {}
    for part in said:
        if not isinstance(part, dict) or not part.keys() <= _ALONE:
            return {"allOf": list(said)} if said else {}
        for keyword, value in part.items():
            if made.setdefault(keyword, value) == value or keyword in _SAYS_NOTHING:
                continue
            types = _common_types(made[keyword], value) if keyword == "type" else []
            if not types:
                return {"allOf": list(said)}
            made[keyword] = types[0] if len(types) == 1 else types
    return made


def _common_types(one: Any, other: Any) -> list[str]:
    """The types that are among both; an integer is a number."""
    mine, theirs = ({each} if isinstance(each, str) else set(each) for each in (one, other))
    narrow = {"integer"} if {"integer", "number"} <= mine | theirs and "number" not in mine & theirs else set()
    return sorted((mine & theirs) | narrow)


def untitled(properties: Any) -> Any:
    """Properties without the titles that repeat their names."""
    if not isinstance(properties, dict):
        return properties
    return {
        name: {key: value for key, value in part.items() if key != "title"}
        if isinstance(part, dict) and squeezed(str(part.get("title"))) == squeezed(name)
        else part
        for name, part in properties.items()
    }


def _types(schema: Mapping[str, Any]) -> set[str]:
    """The types of JSON that a schema is of, as far as it says so; a list is an array here."""
    values = schema["enum"] if "enum" in schema else _named_values(schema)
    if values:
        return {"array" if isinstance(value, list) else type_name(value) for value in values}
    declared = schema.get("type", ())
    return {declared} if isinstance(declared, str) else set(declared)


def _named_values(schema: Mapping[str, Any]) -> Iterable[Any]:
    """The values that a schema demands one of, where that is by `const`: a reference is not admitted there."""
    return [schema["const"]] if "const" in schema else []
