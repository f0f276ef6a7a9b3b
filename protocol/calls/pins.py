"""Pins of inputs: the expressions that a tool prescribes for its parameters (SPEC R4.1).

A `const`, a member of an `enum`, or a `pattern` that speaks of texts beginning with one `†` speaks of the expression as
it is written, and all else in a schema of the value that was read. So a tool's schema is written anew for each call:
every pin becomes true or false by the text of the call, wherever it is in the schema, and what is left is an ordinary
schema of values. A `const` that holds for every call is filled in where the call omits it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Final

from .. import limits
from ..errors import ExpressionError, Problem, pointer, unparsed
from ..paths import strings
from ..references import DAGGER, Expression, Path, expression_in, is_expression, parse
from ..schemas import walk

_BEGINNING: Final = "^" + DAGGER
_NO_PIN: Final = (_BEGINNING + DAGGER, _BEGINNING + "{", _BEGINNING + "\\{")
"""Beginnings of patterns for texts that are no expressions."""
_UNKNOWN: Final = object()
"""In place of the text of what is not written in the call: it is inside of a value that is read, or left out."""
_OPPOSED: Final = ("not", "if", "then", "else")
"""Keywords that say nothing where all pins count as true."""


def _is_pattern(pattern: Any) -> bool:
    """Whether a `pattern` is for expressions."""
    return isinstance(pattern, str) and pattern.startswith(_BEGINNING) and not pattern.startswith(_NO_PIN)


def prescribes(part: Mapping[str, Any]) -> bool:
    """Whether a schema by its own keywords admits certain expressions and nothing else."""
    listed = part.get("enum")
    return (
        is_expression(part.get("const"))
        or (isinstance(listed, list) and bool(listed) and all(map(is_expression, listed)))
        or _is_pattern(part.get("pattern"))
    )


def pins_of(part: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords by which a schema admits certain expressions and nothing else."""
    return {key: part[key] for key in ("const", "enum", "pattern") if key in part and prescribes({key: part[key]})}


def _is_meta(path: Path) -> bool:
    """Whether a path in the schema of calls leads to a meta-property."""
    return path[0] == "properties" and str(path[1]).startswith("_")


def _has_pin(part: Mapping[str, Any]) -> bool:
    return prescribes(part) or any(map(is_expression, part.get("enum", ())))


def _is_same(written: Any, pin: str) -> bool:
    """Whether a call writes an expression, however it spells it."""
    return written == pin or (
        is_expression(written) and (meant := expression_in(written)) is not None and meant == expression_in(pin)
    )


@dataclass(frozen=True)
class Inside:
    """The expressions that are filled in inside an object or a list, and inside its parts."""

    properties: Mapping[str, str | Inside] = field(default_factory=dict)
    elements: Inside | None = None
    is_made: bool = False
    """Whether the whole object is filled in: the schema around it requires it, and it requires nothing else."""

    @cached_property
    def texts(self) -> dict[str, str]:
        """The properties that are filled in as a whole, with their expressions."""
        return {name: pin for name, pin in self.properties.items() if isinstance(pin, str)}

    @cached_property
    def deeper(self) -> dict[str, Inside]:
        """The properties that have something filled in inside."""
        return {name: pin for name, pin in self.properties.items() if isinstance(pin, Inside)}

    @cached_property
    def given(self) -> frozenset[str]:
        """The properties that are there whether or not they are written."""
        return frozenset({*self.texts, *(name for name, pin in self.deeper.items() if pin.is_made)})

    def filled(self, value: Any) -> Any:
        """A value with what it omits."""
        if isinstance(value, list) and self.elements is not None:
            return [self.elements.filled(item) for item in value]
        if not isinstance(value, dict):
            return value
        below = {
            name: pin.filled(value.get(name, {})) for name, pin in self.deeper.items() if name in value or pin.is_made
        }
        return {**self.texts, **value, **below}

    def unasked(self, value: Any) -> Any:
        """A value without what would be filled in anyway."""
        if isinstance(value, list) and self.elements is not None:
            return [self.elements.unasked(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {
            name: self.deeper[name].unasked(item) if name in self.deeper else item
            for name, item in value.items()
            if name not in self.texts or not _is_same(item, self.texts[name])
        }

    def listed(self, *at: str) -> Iterator[tuple[str, str]]:
        """The places that are filled in, with dots between their segments, and their expressions."""
        yield from ((".".join((*at, name)), text) for name, text in self.texts.items())
        for name, pin in self.deeper.items():
            yield from pin.listed(*at, name)
        if self.elements is not None:
            yield from self.elements.listed(*at, "*")


NOTHING: Final = Inside()


class Pins:
    """The pins of one tool, by its document (see `Tool.document`)."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._around: set[int] = set()
        """Identities of the schemas that are being visited."""
        self._left = limits.PINS_FILLED_IN

    def __bool__(self) -> bool:
        return self._are_there

    @cached_property
    def _are_there(self) -> bool:
        if not any(DAGGER in text for _, text in strings(self._document)):
            return False
        calls = walk.applied((self._document,), self._document)
        inside = (
            one
            for part in calls
            for path, one in walk.subschemas(part)
            if path[0] not in walk.IN_PLACE and not _is_meta(path)
        )
        return any(map(self._holds, inside))

    def _holds(self, part: Any) -> bool:
        """Whether a schema of the document has pins, or leads to one that has."""
        return id(part) in self._holders

    @cached_property
    def _holders(self) -> frozenset[int]:
        """Identities of the schemas that have pins, or lead to one that has."""
        parts = [part for _, part in walk.reachable(self._document)]
        led_from: dict[int, list[int]] = {}
        for part in parts:
            targets = (walk.referred(part.get(keyword), self._document) for keyword in walk.REFERENCES)
            for below in (*(one for _, one in walk.subschemas(part)), *targets):
                led_from.setdefault(id(below), []).append(id(part))
        found = {id(part) for part in parts if _has_pin(part)}
        waiting = list(found)
        while waiting:
            new = {one for one in led_from.get(waiting.pop(), ()) if one not in found}
            found |= new
            waiting += new
        return frozenset(found)

    @cached_property
    def inside(self) -> Inside:
        """The expressions that are filled in inside calls."""
        return self._inside((self._document,), is_call=True) if self else NOTHING

    @cached_property
    def parameters(self) -> frozenset[str]:
        """The parameters with expressions that the tool prescribes, for all or for a part of them."""
        parts = walk.applied((self._document,), self._document) if self else ()
        named = ((name, below) for part in parts for name, below in part.get("properties", {}).items())
        return frozenset(name for name, below in named if not name.startswith("_") and self._holds(below))

    @cached_property
    def of_values(self) -> dict[str, Any]:
        """The document as it speaks of values, whatever is written."""
        return (
            _Specialization(self._document, self._holds, is_met=True).document(_UNKNOWN)
            if self
            else dict(self._document)
        )

    def specialized(self, written: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
        """The document as it speaks of the values of a call with this text, and the problems of the text itself."""
        writing = _Specialization(self._document, self._holds, is_met=False)
        return writing.document(written), writing.problems

    def problems(self, written: Mapping[str, Any]) -> list[Problem]:
        """The problems of the text of a call in which nothing is filled in."""
        return self.specialized(self.inside.filled(written))[1] + [
            Problem("", f"{name} has to be {text}") for name, text in self.inside.texts.items() if name not in written
        ]

    def unasked(self, call: Mapping[str, Any]) -> Any:
        """A call without what would be filled in anyway, its parameters spelled as the tool prescribes them."""
        spelled = {key: value if key.startswith("_") else self._respelled(value) for key, value in call.items()}
        return self.inside.unasked(spelled)

    def _respelled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._respelled(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._respelled(item) for item in value]
        return self._spellings.get(expression_in(value), value) if is_expression(value) else value

    @cached_property
    def _spellings(self) -> dict[Expression | None, str]:
        """The expressions that the document names, each as it spells it first."""
        found: dict[Expression | None, str] = {}
        for _, part in walk.reachable(self._document):
            for text in filter(is_expression, (part.get("const"), *part.get("enum", ()))):
                if (expression := expression_in(text)) is not None:
                    found.setdefault(expression, text)
        return found

    def conditions(self, part: Mapping[str, Any], inside: Inside) -> dict[str, Any]:
        """The keywords of a schema of a call, or of an object in which something is filled in, that depend on what is
        written there; without those that speak of what is filled in, unless they only require it.
        """
        said = {keyword: part[keyword] for keyword in _CONDITIONS if keyword in part}
        if not inside.given or not self._speak_of(inside.given, said):
            return said
        said = _with(inside.given, said)
        return {} if self._speak_of(inside.given, said) else said

    def _speak_of(self, given: frozenset[str], said: Mapping[str, Any]) -> bool:
        return any(not given.isdisjoint(_names_in(part)) for part in walk.applied((said,), self._document))

    def unparsed(self) -> Iterator[Problem]:
        """Problems of expressions that are prescribed and do not parse, each at its place in the document."""
        for place, part in walk.reachable(self._document) if self else ():
            if any(str(name).startswith("_") for key, name in pairwise(place) if key == "properties"):
                continue
            named: list[tuple[Path, Any]] = [(("const",), part.get("const"))]
            named += [(("enum", index), value) for index, value in enumerate(part.get("enum", ()))]
            for where, text in named:
                if is_expression(text):
                    try:
                        parse(text)
                    except ExpressionError as error:
                        yield unparsed(error, *place, *where)

    def offered(self, schema: Any, inside: Inside) -> Any:
        """A schema of a parameter without what is filled in inside of it."""
        if not isinstance(schema, dict):
            return schema
        parts = [self._offered_part(part, inside) for part in walk.conjuncts((schema,), self._document)]
        return {**parts[0], "allOf": parts[1:]} if len(parts) > 1 else parts[0]

    def _offered_part(self, part: Mapping[str, Any], inside: Inside) -> dict[str, Any]:
        left_out = (*walk.REFERENCES, "allOf", *_CONDITIONS)
        made = {keyword: below for keyword, below in part.items() if keyword not in left_out}
        made |= self.conditions(part, inside)
        if "properties" in part:
            left = {name: below for name, below in part["properties"].items() if name not in inside.texts}
            deeper = {name: self.offered(left[name], pin) for name, pin in inside.deeper.items() if name in left}
            made["properties"] = {**left, **deeper}
        if "required" in part:
            made["required"] = [name for name in part["required"] if name not in inside.given]
        if "items" in part and inside.elements is not None:
            made["items"] = self.offered(part["items"], inside.elements)
        return made

    def _inside(self, schemas: tuple[Any, ...], *, is_call: bool = False, is_required: bool = False) -> Inside:
        """The pins that hold inside every value of these schemas."""
        parts = [part for part in walk.conjuncts(schemas, self._document) if id(part) not in self._around]
        found: dict[str, list[Any]] = {}
        for part in parts:
            for name, below in part.get("properties", {}).items():
                if not (is_call and name.startswith("_")):
                    found.setdefault(name, []).append(below)
        required = {name for part in parts for name in part.get("required", ())}
        own = set(map(id, parts))
        self._around |= own
        try:
            pins = {name: self._pin(tuple(below), is_required=name in required) for name, below in found.items()}
            lists = tuple(part["items"] for part in parts if "items" in part and not is_call)
            elements = self._inside(lists) if any(map(self._holds, lists)) else NOTHING
        finally:
            self._around -= own
        kept = {name: pin for name, pin in pins.items() if pin is not None}
        made = {name for name, pin in kept.items() if isinstance(pin, str) or pin.is_made}
        is_made = is_required and bool(made) and required <= made
        return Inside(kept, elements if elements != NOTHING else None, is_made)

    def _pin(self, schemas: tuple[Any, ...], *, is_required: bool) -> str | Inside | None:
        if not any(map(self._holds, schemas)) or self._left <= 0:
            return None
        self._left -= 1
        for part in walk.conjuncts(schemas, self._document):
            if is_expression(part.get("const")):
                return str(part["const"])
        below = self._inside(schemas, is_required=is_required)
        return below if below != NOTHING else None


class _Specialization:
    """Writes a tool's document anew, each pin as true or false by the text of a call. Those of what is not in the text
    are all true if `is_met`, and false otherwise.
    """

    def __init__(self, document: Mapping[str, Any], holds: Callable[[Any], bool], *, is_met: bool) -> None:
        self.problems: list[Problem] = []
        """Problems of the text by pins that hold for every call."""
        self._document = document
        self._holds = holds
        self._is_met = is_met
        self._definitions: dict[str, Any] = {}
        self._targets = walk.Targets(document, self._definitions, lambda reference, _: f"(values) {reference}")
        self._depth = 0
        self._followed: dict[tuple[int, Path, bool], str | None] = {}
        """Target of a reference, place and certainty -> the definition of it there; None while it is written."""

    def document(self, written: Any) -> dict[str, Any]:
        """The whole document, by the text of a call, or `_UNKNOWN`."""
        made = self._anew(self._document, written, (), is_certain=True, is_call=True)
        whole = {**self._document, "$defs": {**self._document.get("$defs", {}), **self._definitions}}
        return {"properties": {}, **walk.excerpt(made if isinstance(made, dict) else {"not": {}}, whole)}

    def _value(self, part: Any, written: Any, at: Path, *, is_certain: bool, is_call: bool = False) -> Any:
        if not isinstance(part, dict) or not self._holds(part):
            return part
        return self._anew(part, written, at, is_certain=is_certain, is_call=is_call)

    def _unwritten(self, part: Any) -> Any:
        return self._value(part, _UNKNOWN, (), is_certain=False)

    def _anew(self, part: Mapping[str, Any], written: Any, at: Path, *, is_certain: bool, is_call: bool) -> Any:
        """A schema of the value at a place of the call, or of the call itself."""
        made: dict[str, Any] = {}
        besides: list[Any] = []
        for keyword, below in part.items():
            if keyword in _PINNING and not is_call and _has_pin({keyword: below}):
                values = [one for one in below if not is_expression(one)] if keyword == "enum" else []
                if self._is_met_by(keyword, below, written):
                    continue
                if values:
                    made[keyword] = values
                elif is_certain and written is not _UNKNOWN:
                    self.problems.append(Problem(pointer(*at), _said(keyword, below)))
                else:
                    return False
            elif keyword in walk.REFERENCES and self._holds(walk.referred(below, self._document)):
                if written is _UNKNOWN and not is_call:
                    made[keyword] = self._targets(below, None, self._unwritten)
                else:
                    besides += self._led_to(below, written, at, is_certain=is_certain, is_call=is_call)
            elif keyword == "allOf":
                besides += [self._value(one, written, at, is_certain=is_certain, is_call=is_call) for one in below]
            elif keyword in walk.IN_PLACE and self._is_met and self._is_in(keyword, below) and keyword in _OPPOSED:
                continue
            elif keyword in walk.IN_PLACE:
                anew = partial(self._value, written=written, at=at, is_certain=False, is_call=is_call)
                several = walk.rewritten(keyword, below, anew)
                if keyword == "not" and several in ({}, True) and several != below:
                    if not is_certain or written is _UNKNOWN:
                        return False
                    self.problems.append(Problem(pointer(*at), f"the tool does not admit {written} here"))
                elif keyword == "oneOf" and self._is_met and several != below:
                    besides.append({"anyOf": several})  # their pins told them apart
                else:
                    made[keyword] = several
            elif keyword in _INSIDE:
                made[keyword], more = self._parts(part, keyword, written, at, is_certain=is_certain, is_call=is_call)
                besides += more
            else:
                made[keyword] = walk.rewritten(keyword, below, self._unwritten) if keyword in walk.SINGLE else below
        return {**made, "allOf": besides} if besides else made

    def _is_in(self, keyword: str, below: Any) -> bool:
        """Whether what a keyword holds has pins."""
        return any(self._holds(one) for _, one in walk.subschemas({keyword: below}))

    def _is_met_by(self, keyword: str, said: Any, written: Any) -> bool:
        """Whether the text of a call is what a pin asks for."""
        if written is _UNKNOWN:
            return self._is_met
        if keyword == "pattern":
            return is_expression(written) and walk.matches(said, written) is True
        named = [said] if keyword == "const" else filter(is_expression, said)
        return any(_is_same(written, one) for one in named)

    def _led_to(self, reference: Any, written: Any, at: Path, **how: bool) -> list[Any]:
        """The schemas that a reference leads to, unless it is being written for this place already."""
        target = walk.referred(reference, self._document)
        key = id(target), at, how["is_certain"]
        if key not in self._followed:
            if self._depth > limits.WALK_DEEPEST:
                return [False]
            self._followed[key] = None
            self._depth += 1
            made, name = self._value(target, written, at, **how), f"(values {len(self._definitions)})"
            self._depth -= 1
            self._definitions[name] = made
            self._followed[key] = name
        name_there = self._followed[key]
        return [{"$ref": walk.reference_to(("$defs", name_there))}] if name_there is not None else []

    def _parts(
        self, part: Mapping[str, Any], keyword: str, written: Any, at: Path, *, is_certain: bool, is_call: bool
    ) -> tuple[Any, list[Any]]:
        """The value of a keyword for the inside of a value, and further schemas for single parts of it."""
        said = part[keyword]
        if is_expression(written) and not is_call and self._is_in(keyword, said):
            if is_certain:
                self.problems.append(Problem(pointer(*at), _WRITE_OUT))
            written = _UNKNOWN

        def below(schema: Any, key: str | int) -> Any:
            if is_call and str(key).startswith("_"):
                return schema
            return self._value(schema, _part_of(written, key), (*at, key), is_certain=is_certain)

        if keyword == "properties":
            return {name: below(one, name) for name, one in said.items()}, []
        if keyword == "prefixItems":
            return [below(one, index) for index, one in enumerate(said)], []
        if not self._is_in(keyword, said):
            return said, []
        if keyword == "items":
            if not isinstance(written, list):
                return self._unwritten(said), []
            first = len(part.get("prefixItems", ()))
            others = [below(said, index) for index in range(first, len(written))]
            if all(one == others[0] for one in others):
                return others[0] if others else True, []
            return True, [{"prefixItems": [*[True] * first, *others]}]
        if not isinstance(written, dict):
            return walk.rewritten(keyword, said, self._unwritten), []
        patterns = part.get("patternProperties", {})
        if keyword == "patternProperties":
            found = [
                {"properties": {key: below(one, key)}}
                for pattern, one in said.items()
                for key in written
                if walk.matches(pattern, key)
            ]
            return dict.fromkeys(said, True), found
        named = {key for key in written if any(walk.matches(pattern, key) for pattern in patterns)}
        left = [key for key in written if key not in part.get("properties", ()) and key not in named]
        return True, [{"properties": {key: below(said, key)}} for key in left if not (is_call and key.startswith("_"))]


def _names_in(part: Mapping[str, Any]) -> Iterator[str]:
    """The properties that the keywords of a schema name."""
    yield from part.get("required", ())
    for keyword in ("properties", "dependentSchemas", "dependentRequired"):
        yield from part.get(keyword, ())
    for names in part.get("dependentRequired", {}).values():
        yield from names


def _with(given: frozenset[str], part: Any) -> Any:
    """A schema that takes some properties to be there."""
    if not isinstance(part, dict):
        return part
    anew = partial(_with, given)
    made = {key: walk.rewritten(key, below, anew) if key in walk.IN_PLACE else below for key, below in part.items()}
    if "required" in part:
        made["required"] = [name for name in part["required"] if name not in given]
    if "dependentRequired" in part:
        asked = part["dependentRequired"].items()
        made["dependentRequired"] = {key: [name for name in names if name not in given] for key, names in asked}
    return made


_CONDITIONS: Final = ("anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependentRequired")
"""Keywords that speak of an object as a whole, by what it holds."""
_PINNING: Final = ("const", "enum", "pattern")
_INSIDE: Final = ("properties", "patternProperties", "additionalProperties", "items", "prefixItems")
_WRITE_OUT: Final = (
    "is one reference, and the tool prescribes a reference inside of it: write it as an object or a list"
)


def _part_of(written: Any, key: str | int) -> Any:
    """The text of a part of a value, or `_UNKNOWN`."""
    if isinstance(key, int):
        return written[key] if isinstance(written, list) and key < len(written) else _UNKNOWN
    return written.get(key, _UNKNOWN) if isinstance(written, dict) else _UNKNOWN


def _said(keyword: str, said: Any) -> str:
    """The message where a call writes something else than is prescribed."""
    if keyword == "pattern":
        return f"the tool prescribes a reference that matches {said}"
    if keyword == "const":
        return f"the tool prescribes {said}: leave it out"
    return f"the tool prescribes one of {', '.join(map(str, said))}"
