"""Meta-properties: what the properties of a call mean whose names begin with `_` (SPEC R2.5, R4, R8.1, R10, R12.4).

`META_PROPERTIES` is the one table. A call is read by it, a tool's schema and a check look a property up in it, a model
is offered and shown its rows, and the graph asks the attributes of a call that it fills.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, auto
from functools import lru_cache, partial
from itertools import count
from typing import Any, Final, Protocol

from .. import limits
from ..errors import ExpressionError, Problem, Speller, UnknownName, pointer, squeezed, unparsed
from ..messages import ERROR, TRUST
from ..paths import type_name
from ..references import Reference, is_expression, parse, parse_output_path
from ..schemas import CompiledSchema
from ..schemas.walk import IN_PLACE, REFERENCES, Targets, applied, matches, rewritten
from ..state.labels import label_problems
from ..state.operations import Method
from ..state.scopes import read_scope


class Role(IntEnum):
    """The purpose of a meta-property, in the order in which a model does best to write them (SPEC R12.4)."""

    TOOL = auto()
    """The tool."""
    RECORD = auto()
    """A text that is kept with the call and given to no code."""
    LANE = auto()
    """In which instances the call reads and writes, and how often it runs."""
    CODE = auto()
    """Which code runs it."""
    SIGHT = auto()
    """The places that it sees: it waits for those who write there before it (SPEC R8.3a)."""
    ORDER = auto()
    """The places whose writers it waits for, without seeing the values (SPEC R6.8)."""
    RESULT = auto()
    """A result that a model gives. The parameters come before it."""
    PLACE = auto()
    """The places that it writes, and how: who reads there waits for it (SPEC R6.1)."""
    LABELS = auto()
    """The sources of who chose the call (SPEC R16.3)."""


class Offer(Protocol):
    """The properties that a request and a tool allow in a tool's calls; their schema is composed from it."""

    @property
    def has_instances(self) -> bool:
        """Whether the context has instances."""

    @property
    def gathers(self) -> bool:
        """Whether a call may read in every instance."""

    @property
    def takes_result(self) -> bool:
        """Whether a model gives the result in the call."""

    @property
    def lists(self) -> tuple[str | list[str], ...]:
        """The values that `_each` may have."""

    @property
    def places(self) -> tuple[str, ...]:
        """The places among which a model chooses for a result that it gives."""

    def data(self, said: Sequence[Any]) -> Any:
        """The tool's own schema of a property, which holds no reference."""

    def reference(self) -> Any:
        """The schema of any reference."""

    def instance(self, said: Sequence[Any]) -> Any:
        """The schema of the names of instances."""

    def path(self, said: Sequence[Any]) -> Any:
        """The schema of output paths, by the tool."""

    def scopes(self, said: Sequence[Any]) -> Any:
        """The schema of scopes that the code admits."""

    def code(self, name: str) -> Sequence[str]:
        """The delegates or activities that may be chosen."""


Check = Callable[..., Iterator[Problem]]
"""Checks a value, given the properties of its call and the value's place."""
Offered = Callable[[Offer, Sequence[Any]], Any]
"""The schema that a model is shown, by what the tool's schema says of the property; None where it is not offered."""


def _text_problems(value: Any, _: Mapping[str, Any], *at: str | int) -> Iterator[Problem]:
    if not isinstance(value, str):
        yield Problem(pointer(*at), "must be a string")


@dataclass(frozen=True, slots=True)
class MetaProperty:
    """One meta-property: how it is checked, read, offered to models and explained to them."""

    name: str
    role: Role
    problems: Check | None = _text_problems
    """Finds what is wrong with a value (SPEC R2.5, R3.2, R8.1)."""
    field: str = ""
    """The attribute of `Call` that holds what a value means; none where nobody asks."""
    parse: Callable[[Any], Any] = str
    """Turns a value without problems into its meaning."""
    offered: Offered | None = None
    is_filled_in: bool = False
    """Whether a tool's schema fills it in where a call leaves it out (SPEC R4.1)."""
    excludes: str = ""
    """A property that a call may not have together with this one."""
    text: str = ""
    """Explanation for models, in requests where a tool has the property (SPEC R12.5)."""
    older: str = ""
    """A name that it had, which is accepted in calls and in tools (SPEC R8.1)."""


def kind_found(value: Any) -> str:
    """Words for an error about a value that should be a text."""
    return f"found: {type_name(value) if value != '' else 'an empty text'}"


def names_of(each: str | Iterable[str]) -> tuple[str, ...]:
    """The parameters that a valid `_each` names."""
    return (each,) if isinstance(each, str) else tuple(each)


def _instance_problems(value: Any, properties: Mapping[str, Any], *at: str | int) -> Iterator[Problem]:
    yield from _text_problems(value, properties, *at)
    if value == "":
        yield Problem(pointer(*at), "is empty: name an instance of the context, or leave _instance out")


def _gather_problems(value: Any, properties: Mapping[str, Any], *at: str | int) -> Iterator[Problem]:
    if not isinstance(value, bool):
        yield Problem(pointer(*at), f"must be true or false ({kind_found(value)})")
    elif value and "_instance" in properties:
        yield Problem(pointer(*at), "cannot be combined with _instance: a call with _gather reads every instance")


def _method_problems(value: Any, _: Mapping[str, Any], *at: str | int) -> Iterator[Problem]:
    if value not in tuple(Method):
        yield Problem(pointer(*at), f"must be one of {', '.join(Method)}")


def _label_problems(value: Any, _: Mapping[str, Any], *at: str | int) -> Iterator[Problem]:
    return label_problems(value, *at)


def _scopes(scopes: Iterable[str]) -> tuple[Reference, ...]:
    return tuple(map(read_scope, scopes))


def _awaited_places(places: Iterable[str]) -> tuple[Reference, ...]:
    """The places that a valid `_after` lists."""
    return tuple(parse(text).references[0] for text in places)


def _choice(values: Sequence[Any]) -> Any:
    """The schema of one of some values; None for no values."""
    return {"enum": list(values)} if values else None


def _each_problems(value: Any, properties: Mapping[str, Any], *at: str | int) -> Iterator[Problem]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        yield Problem(pointer(*at), f"must be the name of a parameter, or a list of such names ({kind_found(value)})")
        return
    if properties.get("_gather") is True:
        yield Problem(pointer(*at), "cannot be combined with _gather, which reads an object of instances, not a list")
    if len(set(names)) < len(names):
        yield Problem(pointer(*at), "names a parameter twice")
    for name in names:
        if name.startswith("_") or name not in properties:
            known = UnknownName(name, tuple(key for key in properties if not key.startswith("_")))
            yield Problem(pointer(*at), f"names {name!r}, which is not a parameter of the call", known)
        elif not isinstance(properties[name], str) or not is_expression(properties[name]):
            text = f"names {name!r}, which must be a reference to a list: for values known now, write a call for each"
            yield Problem(pointer(*at), text)


def _path_problems(path: Any, properties: Mapping[str, Any], *at: str | int) -> Iterator[Problem]:
    if not isinstance(path, str):
        yield from _text_problems(path, properties, *at)
        return
    if not path.strip():
        yield Problem(pointer(*at), "is empty: name a place such as †state.result, or leave _outputPath out")
        return
    try:
        places = parse_output_path(path).references
    except ExpressionError as error:
        yield unparsed(error, *at)
        return
    if any(place.kind == ERROR for place in places):
        yield Problem(pointer(*at), "leads to the kind error, which only the engine writes: name another kind")


def _scope_problems(scopes: Any, _: Mapping[str, Any], *at: str | int) -> Iterator[Problem]:
    if not isinstance(scopes, list):
        yield Problem(pointer(*at), "must be a list of kinds or references")
        return
    for index, scope in enumerate(scopes):
        if not isinstance(scope, str) or not scope:
            yield Problem(
                pointer(*at, index),
                f'must be a kind such as "state" or a reference such as "†state.user" ({kind_found(scope)})',
            )
            continue
        try:
            read_scope(scope)
        except ExpressionError as error:
            yield unparsed(error, *at, index)


def _after_problems(places: Any, _: Mapping[str, Any], *at: str | int) -> Iterator[Problem]:
    if not isinstance(places, list):
        yield Problem(pointer(*at), f'must be a list of places, such as ["†state.result"] ({kind_found(places)})')
        return
    for index, text in enumerate(places):
        if not isinstance(text, str) or not is_expression(text):
            yield Problem(pointer(*at, index), f'must be a place such as "†state.result" ({kind_found(text)})')
            continue
        try:
            expression = parse(text)
        except ExpressionError as error:
            yield unparsed(error, *at, index)
            continue
        if len(expression.references) > 1:
            yield Problem(pointer(*at, index), "must be one place: list each place by itself")
        elif expression.references[0].kind == ERROR:
            yield Problem(pointer(*at, index), "is of the kind error, which no call writes: name what the calls write")


AFTER: Final = "_after"
"""Places for whose writers a call waits, without reading them (SPEC R6.8)."""
REASONING: Final = "_reasoningForCall"
"""Why a model makes a call, in its own words: admitted always, kept in the log, given to no code (SPEC R4.1, R12.4)."""
RESULT: Final = "_output"
"""The result that a model gives (SPEC R4.7): data, in which nothing is a reference."""
_METHOD_TEXT: Final = """\
- "_outputMethod" says how the result joins the value at its place: "set" replaces it (the default), "merge" \
joins objects at every depth, "assign" only at the top, "push" adds an element to a list, "concat" joins lists or \
texts."""
_REASONING_TEXT: Final = f'- "{REASONING}" says in a few words why you make the call. People read it; no tool sees it.'
_SCOPES_TEXT: Final = '- "_scopes" lists references to the data that the tool may see besides its parameters.'
_AFTER_TEXT: Final = f"""\
- "{AFTER}" lists references to places. The call waits until the calls that write there have ended, even if they \
failed. It gets no value from there."""
_RESULT_TEXT: Final = """\
- "_output" is the result of a call that you give yourself. It can build on the "_output" of calls before it. Leave \
it out if it depends on any other value that does not exist yet: you are asked for it later. Nothing in it is read as \
a reference, so write a † only once there."""
META_PROPERTIES: Final = (
    MetaProperty("_tool", Role.TOOL, problems=None),
    MetaProperty(
        "_outputPath", Role.PLACE, problems=_path_problems, field="output", parse=parse_output_path, is_filled_in=True,
        offered=lambda offer, said: _choice(offer.places) or (offer.path(said) if said else offer.reference()),
    ),
    MetaProperty(
        "_outputMethod", Role.PLACE, problems=_method_problems, field="method", parse=Method, is_filled_in=True,
        offered=lambda offer, said: offer.data(said) if said else _choice(list(map(str, Method))), text=_METHOD_TEXT,
    ),
    MetaProperty(REASONING, Role.RECORD, text=_REASONING_TEXT),
    MetaProperty(
        "_scopes", Role.SIGHT, problems=_scope_problems, field="scopes", parse=_scopes, is_filled_in=True,
        offered=lambda offer, said: offer.scopes(said) if said else None, text=_SCOPES_TEXT, older="_imports",
    ),
    MetaProperty(
        AFTER, Role.ORDER, problems=_after_problems, field="after", parse=_awaited_places, is_filled_in=True,
        offered=lambda offer, said: offer.data(said) if said else None, text=_AFTER_TEXT,
    ),
    MetaProperty(
        "_delegate", Role.CODE, is_filled_in=True, offered=lambda offer, _: _choice(offer.code("_delegate")),
        older="_module",
    ),
    MetaProperty(
        "_activity", Role.CODE, is_filled_in=True, offered=lambda offer, _: _choice(offer.code("_activity"))
    ),
    MetaProperty(
        "_instance", Role.LANE, problems=_instance_problems, field="instance", is_filled_in=True,
        offered=lambda offer, said: offer.instance(said) if offer.has_instances else None,
    ),
    MetaProperty(
        "_gather", Role.LANE, problems=_gather_problems, field="gather", parse=bool, is_filled_in=True,
        offered=lambda offer, _: {"const": True} if offer.gathers else None, excludes="_instance",
    ),
    MetaProperty(
        "_each", Role.LANE, problems=_each_problems, field="each", parse=names_of, is_filled_in=True,
        offered=lambda offer, _: _choice(offer.lists), excludes="_gather",
    ),
    MetaProperty(
        RESULT, Role.RESULT, problems=None, text=_RESULT_TEXT,
        offered=lambda offer, said: offer.data(said) if offer.takes_result else None,
    ),
    MetaProperty(TRUST, Role.LABELS, problems=_label_problems, field="prompt_labels", parse=frozenset),
)  # fmt: skip
"""All meta-properties, in the order in which they are explained to a model and filled in."""


def _of(*roles: Role) -> tuple[str, ...]:
    return tuple(one.name for one in META_PROPERTIES if one.role in roles)


BY_NAME: Final[Mapping[str, MetaProperty]] = {one.name: one for one in META_PROPERTIES}
ALIASES: Final[Mapping[str, str]] = {one.older: one.name for one in META_PROPERTIES if one.older}
"""Older names of meta-properties."""


def spellings(name: str) -> tuple[str, ...]:
    """All names of a property: its own, and the older one of a meta-property."""
    return (name, *(older for older, newer in ALIASES.items() if newer == name))


WHO: Final = _of(Role.TOOL, Role.CODE)
"""Names of the meta-properties that say who runs a call."""
_ISOLATING: Final = _of(Role.CODE, Role.SIGHT)
"""Names of the meta-properties that say which code runs a call, and what it sees."""
RECORDS: Final = _of(Role.RECORD)
"""Names of the meta-properties that hold texts for the log."""
WITHHELD: Final = _of(Role.RECORD, Role.LABELS)
"""Names of the meta-properties that are given to no code and admitted by every tool."""
FILLED_IN: Final = tuple(one.name for one in META_PROPERTIES if one.is_filled_in)


def meta_problems(properties: Mapping[str, Any], *at: str | int) -> Iterator[Problem]:
    """Problems of the meta-properties of a completed call."""
    for name, value in properties.items():
        if (one := BY_NAME.get(name)) is not None and one.problems is not None:
            yield from one.problems(value, properties, *at, name)
    yield from misspelt_problems(properties, *at)


def misspelt_problems(names: Iterable[str], *at: str | int) -> Iterator[Problem]:
    """Problems of names that were meant to isolate a call, and are no meta-properties: ignored, they would let the call
    see and do what they were to keep from it (SPEC R4.2, R8.1).
    """
    for name in names:
        if name.startswith("_") and name not in BY_NAME and name not in ALIASES:
            meant = _meant(name)
            if meant is not None:
                yield Problem(pointer(*at, name), f"{name} is no meta-property and would have no effect: write {meant}")


@lru_cache(maxsize=1_024)
def _meant(name: str) -> str | None:
    """The isolating meta-property that an unknown one was meant to be."""
    names = {squeezed(known): ALIASES.get(known, known) for known in (*BY_NAME, *ALIASES)}
    near = Speller(likeness=limits.TEXT_LIKENESS).nearest(squeezed(name), names)
    return names[near] if near is not None and names[near] in _ISOLATING else None


# Call schemas: what a tool's schema says of a call as a whole (SPEC R4.1, R8.1).
#
# A tool's schema speaks of parameters and of meta-properties at once, at its root and in everything that it applies to
# the same value: `allOf`, `oneOf`, `then`, what `$ref` leads to. It is written anew so that there
#
# - what closes or counts an object (`additionalProperties`, `maxProperties`, `const`, …) speaks of parameters; so does
#   a pattern for names, unless it begins with `_`;
# - `_output` is required of no call: it is the call's result; but `not` and `if` ask whether it is there.
#
# Calls inside parameters are ordinary objects: the document stays as it is, and what is rewritten is added to it.

_META: Final = "^_"
"""The pattern of the names of meta-properties."""
_CALL: Final = "(call {})"
"""Name of the definition that holds the schema of a call."""


def call_schema(
    tool: CompiledSchema, call: Mapping[str, Any], closed_to: Collection[str] | None = None
) -> CompiledSchema:
    """Write the schema by which a tool judges calls like this one.

    `closed_to` are patterns for the names of the only meta-properties that do not count as parameters; None where none
    do (see `strict_meta`).
    """
    does_count, does_await = _traits(tool)
    exempt = (_META,) if closed_to is None else tuple(closed_to)
    meta = sum(key.startswith("_") for key in call) if does_count else 0
    return _written(tool, exempt, meta, does_await and RESULT not in call)


@lru_cache(maxsize=1_024)
def speaks_of_meta_properties(pattern: str) -> bool:
    """Whether a pattern for names is one for meta-properties: but for `^` and brackets, it begins with `_`, or it
    matches names of some and none without the `_`.
    """
    names = (*FILLED_IN, *ALIASES)
    named = any(matches(pattern, name) for name in names) and not any(matches(pattern, name[1:]) for name in names)
    return named or pattern.lstrip("^(?:").startswith("_")


@lru_cache(maxsize=1_024)
def _traits(tool: CompiledSchema) -> tuple[bool, bool]:
    """Whether a schema counts the properties of a call, and whether it asks for a result."""
    parts = applied((tool.document,), tool.document)
    asked = [part.get("required", ()) for part in parts]
    asked += [names for part in parts for names in part.get("dependentRequired", {}).values()]
    counting = any("minProperties" in part or "maxProperties" in part for part in parts)
    return counting, any(RESULT in names for names in asked)


@lru_cache(maxsize=1_024)
def _written(tool: CompiledSchema, exempt: tuple[str, ...], meta: int, is_awaited: bool) -> CompiledSchema:
    """Schema of calls with `meta` meta-properties, whose result is still to come or not."""
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
        return [name for name in names if name != RESULT or asks or not self.is_awaited]

    def _one_of(self, values: Iterable[Any]) -> dict[str, Any]:
        """Schema of calls whose parameters are one of some objects; the double `not` keeps it from evaluating
        properties.
        """
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
