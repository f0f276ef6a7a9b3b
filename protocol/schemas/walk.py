"""Walks: visiting and transforming all parts of a schema (SPEC R4.1).

This module alone knows which keywords hold schemas, and where references lead. `together` finds the schemas that are
applied to one value, `reachable` all that can be applied anywhere, `Walk` answers a question about a schema by the
answers for those inside, and `rewritten` and `Targets` transform a schema. Schemas share what they refer to, and may
refer to themselves: each is visited once, so that a walk is no longer than the schema, and ends.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import lru_cache
from typing import Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import quote, unquote, urljoin

from jsonschema_rs import Draft202012Validator, FancyRegexOptions, ValidationError, ValidationErrorKind

from .. import limits
from ..errors import pointer, segments
from ..paths import copied
from ..references import Path

Schema = dict[str, Any] | bool
T = TypeVar("T")

REFERENCES: Final = ("$ref", "$dynamicRef")
NAMED: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
"""Keywords that hold schemas by name."""
DEFINITIONS: Final = frozenset({"$defs", "definitions"})
"""Keywords that hold schemas by name, and do not apply them."""
LISTED: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
"""Keywords that hold lists of schemas."""
SINGLE: Final = frozenset(
    {"not", "if", "then", "else", "items", "contains", "additionalProperties", "propertyNames"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
"""Keywords that hold one schema."""
IN_PLACE: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
"""Keywords that apply their schemas to the same value."""
VALUES: Final = frozenset({"const", "enum", "default", "examples"})
"""Keywords that hold values, not schemas."""


def value_at(path: Path, root: Any) -> Any:
    """The value at a path of a document, or None. Indexes in the path may be texts."""
    for key in map(str, path):
        if isinstance(root, list) and key.isdecimal() and len(key) < 7 and int(key) < len(root):
            root = root[int(key)]
        elif isinstance(root, dict) and key in root:
            root = root[key]
        else:
            return None
    return root


def referred(reference: Any, root: Any) -> Any:
    """The target of a `$ref` into the same document; None where it leads elsewhere or nowhere."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    return value_at(segments(unquote(reference)), root)


def reference_to(place: Path) -> str:
    """The `$ref` that points at a place of the same document."""
    return "#" + quote(pointer(*place), safe="/~$")


def subschemas(part: dict[str, Any], keywords: Iterable[str] | None = None) -> Iterator[tuple[Path, Any]]:
    """The schemas that a part applies by its keywords or some of them, each with its path in the part."""
    for key in part if keywords is None else filter(part.__contains__, keywords):
        below = part[key]
        if key in NAMED and isinstance(below, dict):
            yield from (((key, name), item) for name, item in below.items())
        elif key in LISTED and isinstance(below, list):
            yield from (((key, index), item) for index, item in enumerate(below))
        elif key in SINGLE:
            yield (key,), below


def in_place(part: dict[str, Any], root: Any, *keywords: str) -> Iterator[Any]:
    """The schemas that a part applies to the same value, by these keywords or by `$ref` into the same document."""
    yield from (below for _, below in subschemas(part, keywords))
    yield from (target for reference in REFERENCES if (target := referred(part.get(reference), root)) is not None)


def spread(
    schemas: Iterable[Any], step: Callable[[dict[str, Any]], Iterable[Any]], *, nearest_first: bool = False
) -> Iterator[Schema]:
    """Schemas, and all that are reached from them step by step, each once; other values are passed over."""
    waiting, seen = deque(schemas), set[int]()
    while waiting:
        part = waiting.popleft()
        if id(part) in seen or not isinstance(part, (dict, bool)):
            continue
        seen.add(id(part))
        yield part
        if isinstance(part, dict):
            waiting.extend(step(part)) if nearest_first else waiting.extendleft([*step(part)][::-1])


def together(schemas: Iterable[Any], root: Any, *keywords: str) -> Iterator[Schema]:
    """Schemas of one place, with those that they apply there by `$ref` into the same document and by keywords.

    Without keywords `allOf` counts, which applies to every value.
    """
    return spread(schemas, lambda part: in_place(part, root, *(keywords or ("allOf",))))


def conjuncts(schemas: Iterable[Any], root: Any) -> list[dict[str, Any]]:
    """The objects among schemas of one place and all that they apply there to every value."""
    return [part for part in together(schemas, root) if isinstance(part, dict)]


def applied(schemas: Iterable[Any], root: Any) -> list[dict[str, Any]]:
    """The objects among schemas of one place and all that they may apply there, depending on the value."""
    return [part for part in together(schemas, root, *IN_PLACE) if isinstance(part, dict)]


def all_of(schemas: Sequence[Any]) -> Any:
    """One schema for several; a single one is returned unchanged."""
    return schemas[0] if len(schemas) == 1 else {"allOf": [*schemas]}


def properties_in(parts: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Property -> its schemas in the parts of a place, in order."""
    found: dict[str, list[Any]] = {}
    for part in parts:
        for name, schema in part.get("properties", {}).items():
            found.setdefault(name, []).append(schema)
    return found


def reachable(document: Any, entry: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The objects that can be applied from an entry on, by keywords and references, each once, with its place."""
    stack = [(entry, value_at(entry, document))]
    seen: set[int] = set()
    while stack:
        place, part = stack.pop()
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        yield place, part
        stack.extend(((*place, *way), below) for way, below in subschemas(part))
        for reference in filter(None, map(part.get, REFERENCES)):
            if (target := referred(reference, document)) is not None:
                stack.append((segments(unquote(reference)), target))


class Walk(Generic[T]):
    """A question about schemas. `judge` answers it for one, by calling the walk for those that it holds or refers to.

    Each schema is judged once; `cyclic` is the answer for one that leads back to itself or is too deep.
    """

    def __init__(self, judge: Callable[[Any], T], cyclic: T, *, deepest: int = limits.WALK_DEEPEST) -> None:
        self._judge = judge
        self._cyclic = cyclic
        self._left = deepest
        self._known: dict[int, tuple[Any, T]] = {}
        """Identity of a schema -> the schema, kept so that no other gets its identity, and the answer."""

    def __call__(self, part: Any) -> T:
        """The answer for a schema of a document that does not change."""
        if not isinstance(part, dict):
            return self._judge(part)
        known = self._known.get(id(part))
        if known is None and not self._left:
            return self._cyclic
        if known is None:
            self._left -= 1
            self._known[id(part)] = part, self._cyclic
            known = self._known[id(part)] = part, self._judge(part)
            self._left += 1
        return known[1]


def rewritten(keyword: str, below: Any, anew: Callable[[Any], Any]) -> Any:
    """The value of a keyword, with each schema in it transformed; other values stay as they are."""
    if keyword in NAMED | DEFINITIONS and isinstance(below, dict):
        return {name: anew(item) for name, item in below.items()}
    if keyword in LISTED and isinstance(below, list):
        return [anew(item) for item in below]
    return anew(below) if keyword in SINGLE else below


class Targets:
    """Transforms the targets of a document's references into definitions, each once for every way of transforming.

    `name` makes a new name for the definition of a reference and a way.
    """

    def __init__(self, document: Any, definitions: MutableMapping[str, Any], name: Callable[[str, Any], str]) -> None:
        self._document = document
        self._definitions = definitions
        self._name = name
        self._names: dict[tuple[str, Hashable], str] = {}
        self._waiting: deque[tuple[str, Any, Callable[[Any], Any]]] = deque()
        self._is_writing = False

    def __call__(self, reference: str, way: Hashable, anew: Callable[[Any], Any]) -> str:
        """The reference to the definition; unchanged where it does not lead into the document."""
        target = referred(reference, self._document)
        if not isinstance(target, (dict, bool)):
            return reference
        if (reference, way) not in self._names:
            name = self._names[reference, way] = self._name(reference, way)
            self._definitions[name] = True  # its place among them
            self._waiting.append((name, target, anew))
            self._write()
        return reference_to(("$defs", self._names[reference, way]))

    def _write(self) -> None:
        """Transform the waiting targets. Those found meanwhile wait, too, so that a long chain is no recursion."""
        if self._is_writing:
            return
        self._is_writing = True
        while self._waiting:
            name, target, anew = self._waiting.popleft()
            self._definitions[name] = anew(target)
        self._is_writing = False


# Patterns: the regular expressions of JSON Schema, ECMA-262 with Unicode (SPEC R4.1), and what they cost (SPEC R7.1).
#
# jsonschema-rs translates most of the dialect. The rest is translated here: `[^]` and `[]`, surrogate pairs, the
# escapes `\0` and, in a class, `\b`, and groups that are referred to by their names.
#
# Most patterns are matched in time linear in the text (Rust's `regex`), those with look-around or backreferences by
# limited backtracking (`fancy-regex`). The engine writes out a counted repetition, so `(a{0,50}){0,50}` has some 2,500
# states. The cost of a pattern is found from its text alone.

OPTIONS: Final = FancyRegexOptions(backtrack_limit=limits.MOST_STEPS_BACK, size_limit=16 * 2**20)
"""How patterns are compiled. One that needs more memory is refused: `\\p{L}{1,255}` fits."""
_LOOKING: Final = frozenset({"(?=", "(?!", "(?<=", "(?<!"})
_PIECE: Final = re.compile(
    r"(?:\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"  # two escapes of one character
    r"|\\(?:[pPu]\{[^}]*+\}?|k<[^>]*+>?|u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|c[A-Za-z]|[1-9][0-9]*|.)"  # an escape
    r"|\[(?:\\.?|[^\]\\])*+\]?"  # a class of characters
    r"|\((?:\?(?:[:=!]|<[=!]|<[^>]++>?))?"  # a group begins
    r"|\{\d+(?:,\d*)?\}\??"  # a repetition that is counted
    r"|.",
    re.DOTALL,
)
"""One piece of a pattern. An unclosed piece takes the rest of the pattern, so that its end is looked for only once."""
_PAIR: Final = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)
_ESCAPES: Final = {r"\0": r"\x00", r"\b": r"\x08"}
_WHOLE: Final = {"[^]": r"[\s\S]", "[]": r"[^\s\S]", r"\b": r"\b"}


class PatternCost(NamedTuple):
    """The cost of a pattern: `states` to compile, `ways` followed at once for each character of a text, and whether it
    may go back in the text.
    """

    states: int
    ways: int
    goes_back: bool


class _Item(NamedTuple):
    """A part of a pattern; `is_fixed` where all that it matches has one length."""

    states: int
    ways: int
    is_fixed: bool
    run: int = 1
    """The ways of a repetition of a part of one length: from each place one way leads through it."""

    def repeated(self, low: int, high: int) -> _Item:
        states, ways = (min(limits.MOST_REPEATS, one * max(high, 1)) for one in (self.states, self.ways))
        return _Item(states, ways, self.is_fixed and low == high, ways if self.is_fixed else 1)


_OF_SOME_ENGINES: Final = ("(?", "\\p", "\\P", "\\b", "\\B", "\\k")


def is_whole_text(pattern: str) -> bool:
    """Whether a pattern is for a whole text, `^…$`, and uses only what every regular expression engine has.

    It then means the same whether an engine searches the text or matches all of it.
    """
    pieces, depth = list(_pieces(pattern)), 0
    if len(pieces) < 2 or (pieces[0], pieces[-1]) != ("^", "$"):
        return False
    for piece in pieces[1:-1]:
        depth += (piece[0] == "(") - (piece == ")")
        is_reference = piece[0] == "\\" and piece[1:2] in "123456789"
        if piece in ("^", "$") or (piece == "|" and not depth) or is_reference:
            return False
        if any(each in piece for each in _OF_SOME_ENGINES):
            return False
    return True


def translated(pattern: str) -> str:
    """The pattern as jsonschema-rs takes it. One that looks ahead may refer to groups by their names."""
    return "(?=)" * (r"\k<" in pattern) + "".join(map(_translated, _pieces(pattern)))


@lru_cache(maxsize=4_096)
def cost_of(pattern: str) -> PatternCost:
    """The most that a pattern can cost."""
    groups: list[list[_Item]] = [[]]
    goes_back = False
    for piece in _pieces(pattern):
        group = groups[-1]
        if piece[0] == "(":
            groups.append([])
            goes_back = goes_back or piece in _LOOKING
        elif piece == ")" and len(groups) > 1:
            groups.pop()
            groups[-1].append(_together(group))
        elif piece[0] == "{" and len(piece) > 1 and group:
            low, _, high = piece.strip("{}?").partition(",")
            group[-1] = group[-1].repeated(int(low[:9]), int((high or low)[:9]))
        elif piece in ("*", "+", "?", "|"):
            group.append(_Item(0, 0, is_fixed=False))
        elif piece not in ("^", "$"):
            goes_back = goes_back or (piece[0] == "\\" and piece[1:2] in "123456789k")
            group.append(_Item(_states(piece), 1, is_fixed=True))
    whole = _together(item for group in groups for item in group)
    is_anchored = pattern.startswith("^") and "|" not in pattern
    longest = max((item.run for item in groups[0]), default=1) if is_anchored else 1
    return PatternCost(whole.states, whole.ways + 1 - longest, goes_back)


@lru_cache(maxsize=256)
def matches(pattern: str, text: str) -> bool | None:
    """Whether a pattern occurs in a text; None where it goes back too often. An invalid pattern occurs nowhere."""
    try:
        _validator(pattern).validate(text)
    except ValidationError as error:
        return False if isinstance(error.kind, (ValidationErrorKind.Pattern, ValidationErrorKind.Format)) else None
    except UnicodeEncodeError:  # a lone surrogate: no pattern speaks of those
        return False
    return True


@lru_cache(maxsize=64)
def _validator(pattern: str) -> Draft202012Validator:
    return Draft202012Validator({"pattern": translated(pattern)}, pattern_options=OPTIONS)


def _pieces(pattern: str) -> Iterator[str]:
    """The parts of a pattern, in order: characters, classes, repetitions, and where groups begin and end."""
    return (match.group() for match in _PIECE.finditer(pattern))


def _translated(piece: str) -> str:
    if len(piece) == 1 or piece[0] not in "\\[":
        return piece
    paired = _PAIR.sub(lambda pair: str(json.loads(f'"{pair.group()}"')), piece)
    return _WHOLE.get(piece) or _ESCAPED.sub(lambda escape: _ESCAPES.get(escape.group(), escape.group()), paired)


def _together(items: Iterable[_Item]) -> _Item:
    states, ways, fixed, _ = zip((0, 0, True, 1), *items, strict=True)
    return _Item(min(limits.MOST_REPEATS, sum(states)), min(limits.MOST_REPEATS, sum(ways)), all(fixed))


def _states(piece: str) -> int:
    """How large one character or class is, in tenths of microseconds."""
    if "\\p{" in piece or "\\P{" in piece:
        return 3_000
    return 60 if piece[0] in "[\\." or not piece.isascii() else 5


# Parts: the schemas inside a schema that apply to a path of a value (SPEC R4.1, R4.6).
#
# An *excerpt* is a part as a schema of its own, with the targets of its references.


class SchemaError(ValueError):
    """The schema is invalid, or cannot be applied; `path` is the place in it."""

    def __init__(self, message: str, path: Path = ()) -> None:
        super().__init__(message)
        self.message = message
        self.path = path


def parts_at(schema: Schema, path: Path, root: Schema | None = None) -> list[Schema]:
    """The parts of a schema that the value at a path has to satisfy.

    An index is one of a list. References lead into the root, which is the schema itself unless given.
    """
    root = schema if root is None else root
    parts = [schema]
    for segment in path:
        here = [*together(parts, root)]
        parts = [below for part in here for below in _below(part, segment)] or _left_over(here, segment, root)
    return parts


def schemas_at(root: Any, path: Path) -> list[Any]:
    """The parts of a schema for a path, by the properties and items that it names."""
    found = parts_of([root], root)
    for segment in path:
        found = parts_of((below for schema in found for below in named_below(schema, segment)), root)
    return found


def named_below(schema: Any, segment: str | int) -> Iterator[Any]:
    """The parts of a schema for one step down, by the properties and items that it names."""
    properties = schema.get("properties")
    if isinstance(properties, dict) and str(segment) in properties:
        yield properties[str(segment)]
    if isinstance(segment, int):
        first = schema.get("prefixItems")
        if isinstance(first, list) and segment < len(first):
            yield first[segment]
        elif isinstance(schema.get("items"), dict):
            yield schema["items"]


def parts_of(schemas: Iterable[Any], root: Any) -> list[Any]:
    """Schemas of one place, with those that they refer to or combine, each once."""
    parts = together(schemas, root, "allOf", "anyOf", "oneOf")
    return [{} if part is True else part for part in parts if part is not False]


def admits_type(schema: Schema, *types: str) -> bool:
    """Whether a schema's own `type` admits one of these."""
    declared = schema.get("type") if isinstance(schema, dict) else None
    admitted = [declared] if isinstance(declared, str) else declared
    return not isinstance(admitted, list) or any(type_ in admitted for type_ in types)


def admits_name(parts: Iterable[Mapping[str, Any]], name: str) -> bool:
    """Whether all schemas of a place admit a property of this name."""
    return not any(
        part.get("additionalProperties") is False
        and name not in part.get("properties", ())
        and not any(matches(pattern, name) for pattern in part.get("patternProperties", ()))
        for part in parts
    )


def excerpt(part: Mapping[str, Any], document: Schema) -> dict[str, Any]:
    """A schema made of parts of a document, with the targets of its references, which have to be pointers."""
    definitions: dict[str, Any] = {}

    def named(reference: str, _: object) -> str:
        return f"{reference.rpartition('/')[2].strip('#') or 'whole'}-{len(definitions)}"

    def moved(below: Any) -> Any:
        if not isinstance(below, dict):
            return below
        return {
            key: targets(item, None, moved) if key in REFERENCES else rewritten(key, item, moved)
            for key, item in below.items()
        }

    targets = Targets(document, definitions, named)
    alone: dict[str, Any] = moved({key: item for key, item in part.items() if key not in DEFINITIONS})
    return {**alone, "$defs": definitions} if definitions else alone


def _left_over(parts: Iterable[Schema], segment: str | int, root: Schema) -> list[Schema]:
    """The schemas for unevaluated properties or elements, where these apply whatever the value is."""
    keyword = "unevaluatedItems" if isinstance(segment, int) else "unevaluatedProperties"
    left = [part[keyword] for part in parts if isinstance(part, dict) and keyword in part]
    return [] if left and any(_below(part, segment) or "contains" in part for part in applied(parts, root)) else left


def _below(schema: Schema, segment: str | int) -> list[Schema]:
    """The parts of a schema for one property or element."""
    if not isinstance(schema, dict):
        return [] if schema else [False]
    if isinstance(segment, int) and admits_type(schema, "array"):
        elements = [*schema.get("prefixItems", ())[segment : segment + 1], *_given("items", schema)]
        return elements[:1]
    key = str(segment)
    named = [schema["properties"][key]] if key in schema.get("properties", ()) else []
    for pattern, below in schema.get("patternProperties", {}).items():
        is_match = matches(pattern, key)
        if is_match is not False:  # of a name on which a pattern is given up the schemas are unknown
            named.append(below if is_match else False)
    return named or _given("additionalProperties", schema)


def _given(keyword: str, schema: dict[str, Any]) -> list[Schema]:
    return [schema[keyword]] if keyword in schema else []


# Dialects: schemas of older drafts written as ones of 2020-12, the only draft that is read here (SPEC R4.1).
#
# A schema of draft-04, 06, 07 or 2019-09, by its `$schema`, is translated to the keywords of 2020-12: a list of `items`
# becomes `prefixItems`, and so on. Those drafts, except the last, ignore other keywords next to a `$ref`.

_OLDER: Final = re.compile(r"https?://json-schema\.org/(?:draft-0([4-7])|draft/2019-09)/(?:hyper-)?schema#?")
_LAST_NUMBERED: Final = 7
_TEXTS: Final = frozenset({"title", "description", "$comment"})
_FLAGS: Final = frozenset({"deprecated", "readOnly", "writeOnly"})
_ANNOTATIONS: Final = _TEXTS | _FLAGS | {"examples", "default"}
_TYPES: Final = {**dict.fromkeys(_TEXTS, str), **dict.fromkeys(_FLAGS, bool), "examples": list}
_BOUNDS: Final = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))


def modern(document: Any) -> Any:
    """The document translated to 2020-12, where its `$schema` is an older draft; otherwise the document itself."""
    dialect = document.get("$schema") if isinstance(document, dict) else None
    draft = _OLDER.fullmatch(dialect) if isinstance(dialect, str) else None
    if draft is None:
        return document
    number = int(draft[1]) if draft[1] else _LAST_NUMBERED + 1
    written = copied(document)
    for *_, part in _schemas(written):
        _translate(part, number, document)
    del written["$schema"]
    return written


def misfits(document: Any) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The annotations of a document that have a wrong type: pointer, schema and name. They do not affect validation."""
    for place, _, part in _schemas(document):
        for name, type_ in _TYPES.items():
            if name in part and not isinstance(part[name], type_):
                yield pointer(*place, name), part, name


def _translate(part: dict[str, Any], number: int, document: Any) -> None:
    """Translate a schema of a draft of that number in place; the schemas in it come after."""
    if isinstance(reference := part.get("$ref"), str):
        part["$ref"] = _moved(reference, document)
        if number <= _LAST_NUMBERED:
            for keyword in part.keys() - {"$ref", "$schema"} - DEFINITIONS - _ANNOTATIONS:
                del part[keyword]
    if number == limits.WITHOUT_NUMBERS:
        _number_bounds(part)
        if isinstance(part.get("id"), str):
            part["$id"] = part.pop("id")
    if number <= _LAST_NUMBERED and str(part.get("$id", "")).startswith("#"):
        part["$anchor"] = part.pop("$id")[1:]
    if part.pop("$recursiveAnchor", None) is not None or "$recursiveRef" in part:
        part |= {"$ref": part.pop("$recursiveRef")} if "$recursiveRef" in part else {}
    rest = part.pop("additionalItems", None)
    if isinstance(part.get("items"), list):
        first = part.pop("items")
        part |= {"prefixItems": first} if first else {}
        part |= {"items": rest} if rest is not None else {}
    if isinstance(dependencies := part.get("dependencies"), dict):
        del part["dependencies"]
        names = {name: one for name, one in dependencies.items() if isinstance(one, list)}
        schemas = {name: one for name, one in dependencies.items() if not isinstance(one, list)}
        part |= {"dependentRequired": names} if names else {}
        part |= {"dependentSchemas": schemas} if schemas else {}


def _number_bounds(part: dict[str, Any]) -> None:
    for exclusive, bound in _BOUNDS:
        if isinstance(part.get(exclusive), bool) and part.pop(exclusive) and bound in part:
            part[exclusive] = part.pop(bound)


def _moved(reference: str, document: Any) -> str:
    """A reference into the document, changed to the place of its target after translation."""
    if not reference.startswith("#/"):
        return reference
    place, path = list[Any](), segments(unquote(reference))
    for index, segment in enumerate(path):
        above, name = value_at(path[:index], document), str(segment)
        is_schema = not place or str(place[-1]) not in ("properties", "patternProperties", *DEFINITIONS)
        if isinstance(above, dict) and is_schema and isinstance(above.get("items"), list):
            name = {"items": "prefixItems", "additionalItems": "items"}.get(name, name)
        if isinstance(above, dict) and is_schema and name == "dependencies":
            name = "dependentSchemas"
        place.append(name)
    return reference_to(tuple(place)) if place != [str(one) for one in path] else reference


# Addresses: references of a document as pointers from its root (draft 2020-12, core 8 and 9).
#
# A reference may name its target by an `$anchor`, or by the `$id` of a schema around it. Once all references are
# pointers, these names are not needed any more.

_NAMES: Final = ("$id", "$anchor", "$dynamicAnchor")
Readings = Callable[[Path, Path], Iterable[Path]]
"""The places that a pointer may mean, given its own place and its target; the first that exists counts."""


def normalized(document: Any, readings: Readings = lambda _, path: (path,)) -> Any:
    """The document as jsonschema-rs takes it: of 2020-12, without names, and with patterns translated.

    Every reference into the document becomes a pointer from its root. References that lead elsewhere or nowhere stay,
    and so do all where a `$dynamicRef` has several `$id` to choose among.
    """
    document = copied(modern(document))
    schemas = list(_schemas(document))
    has_bases = any(place and isinstance(part.get("$id"), str) for place, _, part in schemas)
    is_open = has_bases and any("$dynamicRef" in part for *_, part in schemas)
    names = _names(schemas)
    for place, base, part in schemas if not is_open else ():
        for keyword in filter(part.__contains__, REFERENCES):
            target = _target(part[keyword], base, names)
            meant = readings(place, target) if target is not None else ()
            path = next((path for path in meant if value_at(path, document) is not None), None)
            if path is not None:
                del part[keyword]
                part["$ref" if "$ref" not in part else keyword] = reference_to(path)
    if isinstance(document, dict):
        document.pop("$schema", None)  # whatever it is: the document is read as of this dialect
    for *_, part in schemas:
        for name in ("$schema", *(() if is_open else _NAMES)):
            if isinstance(part.get(name), str):
                del part[name]
        if isinstance(pattern := part.get("pattern"), str):
            part["pattern"] = translated(pattern)
        if isinstance(named := part.get("patternProperties"), dict):
            part["patternProperties"] = {translated(pattern): below for pattern, below in named.items()}
    return document


def _schemas(document: Any) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """The objects that may be applied as schemas, each with its place and the base address there.

    Outer ones come first; a caller may change one before those in it are visited. Objects inside values are no schemas.
    Others that no keyword applies are included, as references may lead to them.
    """
    stack: list[tuple[Path, str, Any]] = [((), "", document)]
    while stack:
        place, base, part = stack.pop()
        if isinstance(part, list):
            stack.extend(((*place, index), base, below) for index, below in enumerate(part))
        if isinstance(part, dict):
            if isinstance(own := part.get("$id"), str):
                base = _address(base, own) or base
            yield place, base, part
            for key, below in part.items():
                if key in NAMED | DEFINITIONS and isinstance(below, dict):
                    stack.extend(((*place, key, name), base, item) for name, item in below.items())
                elif key not in VALUES:
                    stack.append(((*place, key), base, below))


def _names(schemas: Iterable[tuple[Path, str, dict[str, Any]]]) -> dict[str, Path]:
    """Name by which a reference can lead to a schema -> the place of the schema."""
    names: dict[str, Path] = {"": ()}
    for place, base, part in schemas:
        if not place or isinstance(part.get("$id"), str):
            names.setdefault(base, place)
        for name in filter(None, map(part.get, _NAMES[1:])):
            names.setdefault(f"{base}#{name}", place)
    return names


def _target(reference: Any, base: str, names: Mapping[str, Path]) -> Path | None:
    """The place to which a reference leads, which need not exist; None where it leads out of the document."""
    if not isinstance(reference, str):
        return None
    address, _, fragment = reference.partition("#")
    document = _address(base, address) if address else base
    fragment = unquote(fragment)
    if document is None or document not in names:
        return None
    is_pointer = not fragment or fragment.startswith("/")
    return (*names[document], *segments(fragment)) if is_pointer else names.get(f"{document}#{fragment}")


def _address(base: str, address: str) -> str | None:
    """An address resolved against a base, without an empty fragment; None where it is invalid."""
    try:
        return urljoin(base, address).removesuffix("#")
    except ValueError:
        return None
