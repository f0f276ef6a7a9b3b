"""Sample values: the simplest value that a JSON Schema describes, always the same one (SPEC R6.7).

The value is what the schema pins, lists or gives as an example, otherwise something of its types. It need not fit a
schema that asks for more (a `pattern`, a `not`): it is validated where that matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from itertools import chain, islice
from math import floor, isfinite
from typing import Any, Final

from .. import limits
from ..calls.call import Call, list_schema
from ..calls.outputs import Write, verify_writes
from ..calls.tools import Executor
from ..errors import Conflict, OutputError
from ..paths import MISSING, copied, lookup, nest
from ..plan.checked_plan import CheckedPlan
from ..references import Path, Reference
from ..schemas import compiled, referred
from ..schemas.walk import spread
from ..state.fold import Fold
from ..state.operations import Method
from .type_flow import path_of

PLACEHOLDER: Final = "…"
"""The sample of a value that no schema describes."""
_KEYWORDS: Final = {
    "object": ("properties", "required"),
    "array": ("items", "prefixItems"),
    "number": ("minimum", "maximum"),
}
_FORMATS: Final = {
    "date-time": "2026-01-01T00:00:00Z",
    "date": "2026-01-01",
    "time": "00:00:00Z",
    "email": "someone@example.org",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def sample(schema: Any) -> Any:
    """The simplest value for a schema."""
    return _Maker(schema).value(schema, 0)


class _Maker:
    """Makes up one value; a schema that asks for very much, or for itself without end, gets a part of it."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._left = limits.MOST_PARTS

    def value(self, schema: Any, depth: int) -> Any:
        """A value for a part of the schema."""
        self._left -= 1
        if depth > limits.SAMPLE_VALUES_DEPTH or self._left < 0:
            return None
        if not isinstance(schema, Mapping):
            return PLACEHOLDER
        schema = self._merged(schema)
        for keyword in ("const", "default"):
            if keyword in schema:
                return copied(schema[keyword])
        for keyword in ("enum", "examples"):
            if isinstance(schema.get(keyword), list) and schema[keyword]:
                return copied(schema[keyword][0])
        match _type(schema):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "integer" | "number" as name:
                return _number(schema, name)
            case "boolean":
                return True
            case "null":
                return None
        return _text(schema)

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        value = {key: self.value(part, depth + 1) for key, part in properties.items() if part is not False}
        also = schema.get("dependentRequired", {})
        missing = [*schema.get("required", ()), *(name for key in value for name in also.get(key, ()))]
        missing += map(
            str, range(min(int(schema.get("minProperties", 0)), limits.MOST_ITEMS) - len({*value, *missing}))
        )
        for key in missing:
            value.setdefault(key, self.value(schema.get("additionalProperties"), depth + 1))
        return value

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        items = [self.value(part, depth + 1) for part in schema.get("prefixItems", ())]
        length = min(
            max(int(schema.get("minItems", 0)), 1), int(schema.get("maxItems", 1)), limits.SAMPLE_VALUES_MOST_REQUIRED
        )
        length = max(length, min(int(schema.get("minItems", 0)), limits.SAMPLE_VALUES_MOST_REQUIRED))
        while len(items) < length and schema.get("items") is not False:
            items.append(self.value(schema.get("items"), depth + 1))
        if "contains" in schema:
            number = min(int(schema.get("minContains", 1)), limits.MOST_ITEMS)
            items[max(len(items) - number, 0) :] = [self.value(schema["contains"], depth + 1) for _ in range(number)]
        return items

    def _merged(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """The schema joined with what it refers to and combines; only the first of alternatives."""
        merged: dict[str, Any] = {}
        for part in islice(spread([schema], self._combined, nearest_first=True), limits.MOST_COMBINED):
            for key, value in part.items() if isinstance(part, dict) else ():
                if key == "properties":
                    merged["properties"] = {**value, **merged.get("properties", {})}
                elif key == "required":
                    merged["required"] = [*merged.get("required", []), *value]
                else:
                    merged.setdefault(key, value)
        return merged

    def _combined(self, part: Mapping[str, Any]) -> Iterator[Any]:
        yield from part.get("allOf", ())
        yield from (_first(part[key]) for key in ("anyOf", "oneOf") if part.get(key))
        yield from (part["if"], part.get("then")) if "if" in part else ()
        yield referred(part.get("$ref"), self._root)


def _first(branches: list[Any]) -> Any:
    """The first of several branches that is more than null."""
    return next((branch for branch in branches if branch != {"type": "null"}), branches[0])


def _type(schema: Mapping[str, Any]) -> str:
    """The simplest of the schema's types; where it names none, the type that its other keywords are for."""
    declared = schema.get("type")
    if isinstance(declared, str):
        return declared
    if isinstance(declared, list) and declared:
        return str(min(declared, key="null".__eq__))
    spoken_of = (name for name, keywords in _KEYWORDS.items() if any(keyword in schema for keyword in keywords))
    return next(spoken_of, "string")


def _number(schema: Mapping[str, Any], name: str) -> float:
    """The least number in the range that is at least 1, or the largest where only that is limited."""
    step: float = schema.get("multipleOf", 1)
    if name == "number" and "multipleOf" not in schema and {"exclusiveMinimum", "exclusiveMaximum"} <= schema.keys():
        step = (schema["exclusiveMaximum"] - schema["exclusiveMinimum"]) / 4
    low = max(_bounds(schema, "minimum", "exclusiveMinimum", step), default=None)
    high = min(_bounds(schema, "maximum", "exclusiveMaximum", -step), default=None)
    value: float = low if low is not None else 1 if high is None else min(1, high)
    if "multipleOf" in schema and value % step and isfinite(multiple := value / step):
        value = (floor(multiple) + (high is None or value + step <= high)) * step
    return int(value) if name == "integer" or float(value).is_integer() else value


def _bounds(schema: Mapping[str, Any], inclusive: str, exclusive: str, step: float) -> list[float]:
    """The numbers at an inclusive bound, and a step inside of an exclusive one."""
    bounds = [schema[inclusive]] if inclusive in schema else []
    return bounds + ([schema[exclusive] + step] if exclusive in schema else [])


def _text(schema: Mapping[str, Any]) -> str:
    text = _FORMATS.get(str(schema.get("format")), PLACEHOLDER)
    least = int(schema.get("minLength", 0))
    most = max(int(schema.get("maxLength", max(least, len(text)))), least)
    return (text + PLACEHOLDER * min(max(least - len(text), 0), limits.MOST_LETTERS))[:most]


# Demanded shapes: made-up results that their own schemas admit and their readers can take (SPEC R6.7).
#
# A result should fit the `_output` of its tool, the schema of the kind it is written to and the tools of its readers,
# and others should be able to write into it. Where no value has all of this, the first two count most.

_ADDED_TO: Final = {Method.MERGE: "object", Method.ASSIGN: "object", Method.PUSH: "array"}
"""The type that a value must have for a method to add to it."""

Key = tuple[str, ...]
_Read = tuple[Call, Reference, Path]
"""A call, a place it reads, and the path of the parameter that reads it (empty for a scope or a text)."""
Needs = dict[Path, list[Any]]
"""Path inside a result -> the schemas of what is read there; None where any value will do."""


class DemandedShapes:
    """Makes up the results of the calls of one plan."""

    def __init__(self, plan: CheckedPlan) -> None:
        self._plan = plan
        self._bases = _bases(plan)
        self._reads = _reads_of(plan)

    def value(self, call: Call, chosen: tuple[Reference, ...], here: Fold, declared: Any) -> Any:
        """A result for a call that writes it to one of its alternatives; `declared` is the tool's `_output`, if any."""
        in_list = call.method is Method.PUSH or (call.method is Method.CONCAT and _is_list(chosen, here))
        joins = call.method in (Method.MERGE, Method.ASSIGN)
        wraps = in_list and call.method is Method.CONCAT
        own = [part for part in (declared, self._delegated(call)) if part is not None]
        places = ((place, (*place.path, *([0] if in_list else ()))) for place in chosen if place.path)
        of_kinds = [part for place in places if (part := _kind_schema(*place, here)) is not None]
        own += of_kinds if not joins and not (wraps and own) else []

        def admits(value: Any) -> bool:
            whole = [value] if wraps and not (declared is not None and isinstance(value, list)) else value
            fits = declared is None or not compiled(declared).problems(whole)
            return fits and _can_be_written(call, chosen, whole, here)

        value = self._example(own, {} if joins else PLACEHOLDER)
        if wraps and declared is not None and isinstance(value, list):
            return value
        for path, schemas in sorted(self._needs(call, chosen, in_list).items(), key=lambda need: len(need[0])):
            demanded = [schema for schema in schemas if schema is not None]
            there = lookup(value, path)
            if there is not MISSING and (not demanded or (there != PLACEHOLDER and _fits(there, demanded))):
                continue
            also = [part for schema in (*own, *of_kinds) if (part := compiled(schema).excerpt_at(path)) is not None]
            wishes = (self._example([*wished, *also], PLACEHOLDER) for wished in (demanded, demanded[:1], ()))
            wanted = (_put(copied(value), path, example) for example in wishes)
            value = next(filter(admits, wanted), value)
        is_of_a_set = in_list and any(self._is_set(call, target, here) for target in chosen)
        if (is_of_a_set or not admits(value)) and admits(other := _numbered(value, call.index)):
            value = other
        return [value] if wraps else value

    def _example(self, schemas: list[Any], otherwise: Any) -> Any:
        """A value that fits all of some schemas, otherwise a sample of the first."""
        schemas = [schema for schema in schemas if schema not in (True, {})]
        if not schemas:
            return otherwise
        samples = [sample(schema) for schema in schemas]
        return next((each for each in (reduce(_joined, samples), *samples, [], {}) if _fits(each, schemas)), samples[0])

    def _delegated(self, call: Call) -> Any:
        """The schema of a delegate's result."""
        is_one = call.runner.executor is Executor.DELEGATE
        definition = self._plan.submission.delegates.get(call.runner.name) if is_one else None
        schema = (definition.get("schema") or None) if isinstance(definition, Mapping) else None
        return list_schema(schema) if schema is not None and call.each else schema

    def _is_set(self, call: Call, target: Reference, here: Fold) -> bool:
        """Whether no two elements of a list may be alike, for its kind or for who reads it."""
        schemas = [
            _kind_schema(target, target.path, here),
            *(part for at, part in self._read(call, target) if at == target),
        ]
        return any(isinstance(part, dict) and part.get("uniqueItems") is True for part in schemas)

    def _needs(self, call: Call, chosen: Iterable[Reference], in_list: bool) -> Needs:
        """The paths of a result (or of an element that it adds to a list) that others read or write."""
        needs: Needs = {}
        for target in chosen:
            at = (*target.path, 0) if in_list else target.path
            for place, schema in self._read(call, target):
                if len(place.path) >= len(at) and (not in_list or isinstance(place.path[len(at) - 1], int)):
                    needs.setdefault(place.path[len(at) :], []).append(schema)
                elif schema is not None and len(place.path) < len(at):
                    part = compiled(schema).excerpt_at(at[len(place.path) :])
                    needs.setdefault((), []).extend([] if part is None else [part])
            for path, type_ in self._bases.get(target.key, {}).items() if not in_list else ():
                needs.setdefault(path, []).append({"type": type_})
        return needs

    def _read(self, call: Call, target: Reference) -> Iterator[tuple[Reference, Any]]:
        """The places that overlap a target and are read by others, and what the readers' tools take there."""
        readers = self._plan.readers.get(call.index, frozenset())
        key = target.key
        above = (self._reads.get((key[:length], True), ()) for length in range(1, len(key)))
        for reader, place, path in islice(chain(self._reads.get((key, False), ()), *above), limits.MOST_READS):
            if reader.index in readers:
                tool = self._plan.tools.get(reader.tool) if path else None
                taken: Any = compiled(tool.of_values).excerpt_at(path) if tool is not None else None
                if path and path[0] in reader.each:
                    taken = list_schema(True if taken is None else taken, with_null=False)
                yield place, taken


def _reads_of(plan: CheckedPlan) -> dict[tuple[Key, bool], list[_Read]]:
    """Place -> what is read exactly there (True), and what is read there or below (False)."""
    found: dict[tuple[Key, bool], list[_Read]] = {}
    for call in plan.calls:
        longer = {at for at, template in call.templates.items() if len(template.parts) > 1}
        paths = [(each, () if at in longer else path_of(call, at)) for at, each in call.reads]
        reads = {(place, path): None for each, path in paths for place in each.references}
        for place, path in chain(reads, ((scope, ()) for scope in call.slices)):
            found.setdefault((place.key, True), []).append((call, place, path))
            for length in range(1, len(place.key) + 1):
                found.setdefault((place.key[:length], False), []).append((call, place, path))
    return found


def _bases(plan: CheckedPlan) -> dict[Key, dict[Path, str]]:
    """Place -> where at and below it others add to what is there, and the type that has to be there."""
    found: dict[Key, dict[Path, str]] = {}
    for call in plan.calls:
        for place in call.written:
            for length in range(len(place.key)):
                below, bases = place.path[length:], found.setdefault(place.key[: length + 1], {})
                if below:
                    bases.setdefault(below[:-1], "array" if isinstance(below[-1], int) else "object")
                if call.method in _ADDED_TO:
                    bases[below] = _ADDED_TO[call.method]
    return found


def _kind_schema(place: Reference, path: Path, here: Fold) -> Any:
    """The part of the kind's schema for a path, or None."""
    schema = here.schema(place.kind)
    return compiled(schema).excerpt_at(path) if schema is not MISSING else None


def _is_list(places: Iterable[Reference], here: Fold) -> bool:
    return any(isinstance(lookup(here.root(place.kind), place.path), list) for place in places)


def _can_be_written(call: Call, places: Iterable[Reference], value: Any, here: Fold) -> bool:
    try:
        verify_writes(call, [Write(place, value) for place in places], here)
    except (OutputError, Conflict):
        return False
    return True


def _fits(value: Any, schemas: Iterable[Any]) -> bool:
    return not any(compiled(schema).problems(value) for schema in schemas)


def _joined(value: Any, other: Any) -> Any:
    """Two values in one: the second fills in what the first leaves out."""
    if isinstance(value, dict) and isinstance(other, dict):
        return {**other, **{key: _joined(part, other.get(key, part)) for key, part in value.items()}}
    if isinstance(value, list) and isinstance(other, list):
        both = [_joined(*pair) for pair in zip(value, other, strict=False)]
        return [*both, *value[len(both) :], *other[len(both) :]]
    return other if value == PLACEHOLDER else value


def _put(value: Any, path: Path, leaf: Any) -> Any:
    """The value with a leaf at a path; what is in the way is replaced."""
    if not path:
        return _joined(leaf, value) if isinstance(value, dict) else leaf
    segment, rest = path[0], path[1:]
    if isinstance(value, dict):
        value[str(segment)] = _put(value.get(str(segment), MISSING), rest, leaf)
    elif isinstance(value, list) and isinstance(segment, int) and segment <= len(value):
        value[segment : segment + 1] = [_put(value[segment] if segment < len(value) else MISSING, rest, leaf)]
    else:
        return nest(leaf, path)
    return value


def _numbered(value: Any, number: int) -> Any:
    """A value with a number in each of its texts and numbers, which makes it differ from those of other calls."""
    if isinstance(value, dict):
        return {key: _numbered(item, number) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbered(item, number) for item in value]
    if isinstance(value, str):
        return f"{value}{number}"
    return value + number if isinstance(value, (int, float)) and not isinstance(value, bool) else value
