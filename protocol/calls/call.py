"""Calls: one use of a tool, read once and kept (SPEC R4, R5).

`read_call` takes a call as a model wrote it and says everything that is wrong with its shape; `Call.resolved` gives
the parameters with their expressions replaced by values, just before execution.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from .. import limits
from ..errors import ExpressionError, Problem, UnknownName, listed, pointer, segments, unparsed
from ..messages import EVERYWHERE
from ..paths import MISSING, strings, type_name
from ..references import DAGGER, Expression, Reference, is_expression, parse
from ..schemas import Schema, excerpt
from ..state.labels import TRUSTED, Labels
from ..state.operations import Method
from ..state.scopes import read_scope
from ..templates import OPENING, Readable, Template, assumed_meaning, evaluated, expressions_in, standing_in
from .meta_properties import ALIASES, META_PROPERTIES, RESULT, kind_found
from .pins import Pins
from .tools import Executor, Runner, Tool

Read = tuple[str, Expression]
"""An expression in a call with its place (JSON pointer), alone or in a template."""


@dataclass(frozen=True)
class Call:
    """A call and what its text means. `index` is its position in the solution or plan."""

    index: int
    raw: Mapping[str, Any]
    properties: Mapping[str, Any]
    """Parameters and meta-properties, with what the tool's schema pins filled in (SPEC R4.1)."""
    runner: Runner
    reads: tuple[Read, ...]
    """Expressions in the call, each with its place (JSON pointer)."""
    scopes: tuple[Reference, ...] = ()
    after: tuple[Reference, ...] = ()
    """Places for whose writers it waits, without reading them (SPEC R6.8)."""
    output: Expression | None = None
    method: Method = Method.SET
    instance: str | None = None
    gather: bool = False
    """Whether the call reads in every instance (SPEC R10.4)."""
    each: tuple[str, ...] = ()
    """Parameters that hold lists; the call runs once for each of their elements (SPEC R4.10)."""
    prompt_labels: Labels = TRUSTED
    """Sources of what the model that wrote the call was shown (SPEC R16.3), or those that the call names itself."""

    @property
    def tool(self) -> str:
        """The name of the tool."""
        return str(self.raw["_tool"])

    @property
    def written(self) -> tuple[Reference, ...]:
        """Places that the call may write to, of all alternatives."""
        return self.output.references if self.output is not None else ()

    @property
    def alternatives(self) -> tuple[tuple[Reference, ...], ...]:
        """The alternatives: groups of places, one of which gets its result (SPEC R4.4)."""
        return self.output.alternatives if self.output is not None else ()

    @property
    def is_everywhere(self) -> bool:
        """Whether the call is one of a solution that runs once in each instance (SPEC R10.1)."""
        return self.instance == EVERYWHERE

    @property
    def given(self) -> Any:
        """The result a model wrote into a latent call, or `MISSING` (SPEC R4.7)."""
        return self.raw.get(RESULT, MISSING) if self.runner.executor is Executor.LATENT else MISSING

    @property
    def is_thought(self) -> bool:
        """A latent call without an output path: not executed, not stored (SPEC R5.2)."""
        return self.runner.executor is Executor.LATENT and self.output is None

    @property
    def is_fire_and_forget(self) -> bool:
        """An explicit call without an output path: sent, and never waited for (SPEC R5.1)."""
        return self.runner.executor is not Executor.LATENT and self.output is None

    @cached_property
    def parameters(self) -> Mapping[str, Any]:
        """The parameters, unresolved, with those that the tool's schema pins filled in."""
        return {key: value for key, value in self.properties.items() if not key.startswith("_")}

    @cached_property
    def meta_properties(self) -> Mapping[str, Any]:
        """Meta-properties, with those that the tool's schema pins filled in."""
        return {key: value for key, value in self.properties.items() if key.startswith("_")}

    @cached_property
    def slices(self) -> tuple[Reference, ...]:
        """The scopes narrower than a kind: they order calls as reads do (SPEC R8.3a)."""
        return tuple(scope for scope in self.scopes if scope.path)

    @cached_property
    def expressions(self) -> tuple[Expression, ...]:
        """The expressions in the parameters, each once."""
        return tuple(dict.fromkeys([expression for _, expression in self.reads])) if self.reads else ()

    @cached_property
    def templates(self) -> Mapping[str, Template]:
        """The parameters, at any depth, that are templates, by their JSON pointers."""
        found = {}
        for place, text in strings(self.parameters) if self.reads else ():
            if OPENING in text and isinstance(template := assumed_meaning(text), Template):
                found[pointer(*place)] = template
        return found

    @property
    def read(self) -> Collection[Reference]:
        """Places that the parameters read, each once."""
        return self._by_place.keys()

    def readers_of(self, place: Reference) -> tuple[Expression, ...]:
        """Expressions that read a place."""
        return self._by_place.get(place, ())

    @cached_property
    def _by_place(self) -> dict[Reference, tuple[Expression, ...]]:
        found: dict[Reference, dict[Expression, None]] = {}
        for expression in self.expressions:
            for place in expression.references:
                found.setdefault(place, {})[expression] = None
        return {place: tuple(expressions) for place, expressions in found.items()}

    def resolved(self, fold: Readable) -> dict[str, Any]:
        """The parameters with every expression and template replaced by its value (SPEC R2.2-R2.6).

        Values are never parsed again. Raises `Unresolved` or `Conflict`.
        """
        return {key: evaluated(value, fold) for key, value in self.parameters.items()}

    def with_parameters(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """All properties, with resolved parameters in the place of its own."""
        return {**self.meta_properties, **parameters}

    def standing_in(self) -> dict[str, Any]:
        """All properties, with expressions and templates in the parameters as objects (SPEC R4.1): also those that do
        not parse.
        """
        return {key: value if key.startswith("_") else standing_in(value) for key, value in self.properties.items()}


def shape_problems(raw: Any, *at: str | int) -> list[Problem]:
    """Problems that keep a call from being read at all."""
    if not isinstance(raw, dict):
        return [Problem(pointer(*at), "a call must be an object")]
    if raw.get("_tool") is None:
        return [Problem(pointer(*at, "_tool") if "_tool" in raw else pointer(*at), 'a call needs a "_tool"')]
    if not isinstance(raw["_tool"], str) or not raw["_tool"]:
        return [
            Problem(pointer(*at, "_tool"), f'a call needs a "_tool", the name of a tool ({kind_found(raw["_tool"])})')
        ]
    return []


def read_expressions(raw: Mapping[str, Any], *at: str | int) -> tuple[tuple[Read, ...], list[Problem]]:
    """Expressions in the parameters, and problems of the strings that do not parse (SPEC R2.2, R2.6)."""
    reads: list[Read] = []
    problems: list[Problem] = []
    for key, value in raw.items():
        if key.startswith("_") or not isinstance(value, (str, dict, list)):
            continue
        for place, text in strings(value, (key,)):
            if DAGGER in text:
                try:
                    found, here = expressions_in(text), pointer(*place)
                    reads += ((here, expression) for expression in found)
                except ExpressionError as error:
                    problems.append(unparsed(error, *at, *place))
    return tuple(reads), problems


def completed(raw: Mapping[str, Any], constants: Mapping[str, Any], inputs: Pins | None = None) -> dict[str, Any]:
    """A call's properties with what its tool pins filled in, and older names replaced by newer ones (SPEC R8.1).

    A meta-property of null counts as left out.
    """
    if inputs:
        raw = inputs.inside.filled(raw)
    if None not in raw.values() and ALIASES.keys().isdisjoint(raw):
        return {**constants, **raw}
    properties = {
        key: value
        for key, value in raw.items()
        if key not in ALIASES and not (value is None and key.startswith("_") and key != RESULT)
    }
    aliased = {name: raw[alias] for alias, name in ALIASES.items() if raw.get(alias) is not None}
    return {**constants, **aliased, **properties}


def place_in(raw: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Path of a property of a completed call in the call as written: under its older name, or, where its
    tool's schema fills it in, nowhere below the call itself.
    """
    if raw.get(key) is not None or key == RESULT:
        return (key,)
    older = next((alias for alias, name in ALIASES.items() if name == key and raw.get(alias) is not None), None)
    return (older,) if older is not None else ()


def written_place(raw: Any, at: str) -> str:
    """The JSON pointer of a part of a completed call in the call as written. What was filled in is not in it, so the
    pointer leads to the object around it.
    """
    path: list[str | int] = []
    for segment in segments(at):
        key = int(segment) if isinstance(raw, list) and segment.isdecimal() else segment
        if not (key in raw if isinstance(raw, dict) else isinstance(raw, list) and isinstance(key, int)):
            break
        raw = raw[key]
        path.append(key)
    return pointer(*path)


def alias_problems(raw: Mapping[str, Any], *at: str | int) -> Iterator[Problem]:
    """A property that is written under both of its names must have one value (SPEC R8.1)."""
    for alias, name in ALIASES.items():
        if alias not in raw:
            continue
        both = raw.get(alias), raw.get(name)
        if None not in both and both[0] != both[1]:
            yield Problem(pointer(*at, alias), f"says something else than {name}, whose older name it is: leave it out")


def make_call(
    index: int,
    raw: Mapping[str, Any],
    constants: Mapping[str, Any],
    runner: Runner,
    reads: tuple[Read, ...] | None = None,
    inputs: Pins | None = None,
) -> Call:
    """The call, from properties without `shape_problems` and `meta_problems`.

    An expression that does not parse is no read. `reads` spares looking for them where they are known.
    """
    properties = completed(raw, constants, inputs)
    meant = {one.field: one.parse(properties[one.name]) for one in _PARSED if one.name in properties}
    return Call(index, raw, properties, runner, read_expressions(properties)[0] if reads is None else reads, **meant)


_PARSED: Final = tuple(one for one in META_PROPERTIES if one.field)


def places_read_by(raw: Mapping[str, Any]) -> Iterator[Expression]:
    """List the expressions of a call as written: its parameters', and the scopes narrower than a kind (SPEC R8.3a)."""
    reads, _ = read_expressions(raw)
    yield from (expression for _, expression in reads)
    for scope in map(read_scope, completed(raw, {}).get("_scopes", ())):
        if scope.path:
            yield Expression(((scope,),))


# Elements: a call with `_each` runs once for each element of the lists it is given (SPEC R4.10).
#
# An element is numbered among the calls of its lane like a call of its own, beyond all calls: claims, leases, tokens
# and results name it by that number as they name a call by its index.


def element_index(call: int, element: int) -> int:
    """The number of an element (from 0) of a call."""
    return (call + 1) * limits.CALL_SPAN + element


def call_of(index: int) -> int:
    """The call that an index means, or whose element it numbers."""
    return index // limits.CALL_SPAN - 1 if index >= limits.CALL_SPAN else index


def element_of(index: int) -> int | None:
    """Which element (from 0) of its call an index numbers; None where it is a call's."""
    return index % limits.CALL_SPAN if index >= limits.CALL_SPAN else None


def elements_of(call: Call, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Parameters of each element, from resolved parameters without `list_problems`."""
    lists = zip(*(parameters[name] for name in call.each), strict=True)
    return [{**parameters, **dict(zip(call.each, values, strict=True))} for values in lists]


def list_problems(call: Call, parameters: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems of the lists that `_each` names: they must be lists of one length."""
    first = parameters.get(call.each[0])
    for name in call.each:
        value = parameters.get(name)
        if not isinstance(value, list):
            yield Problem(pointer(name), f"_each takes a list, and this is {type_name(value)}")
        elif isinstance(first, list) and len(value) != len(first):
            text = f"_each takes lists of one length: {len(value)} here, {len(first)} at {pointer(call.each[0])}"
            yield Problem(pointer(name), text)


def list_schema(schema: Schema, *, with_null: bool = True) -> Schema:
    """The schema of lists of what a schema admits; null is the result of a failed element."""
    items = {"anyOf": [schema, {"type": "null"}]} if with_null else schema
    return excerpt({"type": "array", "items": items}, schema)


def parameter_problems(call: Call, parameters: Mapping[str, Any], tool: Tool) -> Iterator[Problem]:
    """List the problems of resolved parameters by a tool's schema (SPEC R4.1); of a call with `_each`, those of each
    element.
    """
    if call.each and (unfit := list(list_problems(call, parameters))):
        yield from unfit
        return
    for one in elements_of(call, parameters) if call.each else [parameters]:
        yield from tool.problems(call.with_parameters(one), written=call.properties)


# Approvals: which calls a person decides on before they run (SPEC R14.1).
#
# `config.approve` lists tool names, references - calls whose parameters or scopes read there - and `*`. A name holds
# for the tool and for the code that runs a call, so no other tool leads around it (SPEC R4.2).
#
# A call that `ask_human` runs is a question to a person: it is always held, and the answer is its result.

EVERYTHING: Final = "*"
ASK_HUMAN: Final = "ask_human"
"""The code of questions; no activity can be registered under it."""
QUESTION: Final[Mapping[str, Any]] = {
    "type": "object",
    "description": "Asks a person a question and waits for the answer, which is the result. With `options`, it is one "
    "of these.",
    "properties": {"question": {"type": "string"}, "options": {"type": "array"}},
    "required": ["question"],
}
"""The schema of its calls, unless a tool with `"_activity": {"const": "ask_human"}` says more."""


@dataclass(frozen=True, slots=True)
class Approvals:
    """Calls that need a person's approval, by the name of their tool or code and by the places that they read."""

    names: frozenset[str] = frozenset()
    places: tuple[Reference, ...] = ()

    def hold(self, call: Call) -> bool:
        """Whether a call is held when it is ready; a passing thought never is, since it is not executed (SPEC R5.2)."""
        if asks(call):
            return True
        if call.is_thought or not (self.names or self.places):
            return False
        if EVERYTHING in self.names or call.tool in self.names or call.runner.name in self.names:
            return True
        return any(own.overlaps(place) for place in self.places for own in _reads(call))


NONE: Final = Approvals()
"""Nothing is held but questions."""


def asks(call: Call) -> bool:
    """Whether a call is a question to a person."""
    return call.runner.executor is Executor.ACTIVITY and call.runner.name == ASK_HUMAN


def read_approvals(config: Mapping[str, Any]) -> Approvals:
    """Approvals that a valid `config` asks for."""
    entries = config.get("approve") or ()
    return Approvals(
        names=frozenset(entry for entry in entries if not is_expression(entry)),
        places=tuple(parse(entry).references[0] for entry in entries if is_expression(entry)),
    )


def approval_problems(entries: Any, known: Container[str], remedy: Callable[[str], str], *at: str) -> Iterator[Problem]:
    """Entries of `approve` that name no known tool or code, so that no call would be held for them."""
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, str) and entry not in ("", EVERYTHING) and not is_expression(entry) and entry not in known:
            cause = UnknownName(entry, tuple(listed(known)))
            text = remedy(entry) or ": no call would be held for it"
            yield Problem(pointer(*at, index), f"unknown tool {entry!r}{text}", cause)


def _reads(call: Call) -> Iterable[Reference]:
    """The places that a call's parameters and scopes read."""
    yield from call.scopes
    for expression in call.expressions:
        yield from expression.references
