"""Near misses of a model: texts of its calls and its output that look like references but are not (SPEC R12.6b).

A call with one does not run: what it would do with the text cannot be taken back. A text it is where each dagger is
written `††`, or the tool says of the parameter `"_literal": true`.
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any, Final

from ..calls.call import Call, completed, read_expressions
from ..errors import ExpressionError, Problem, pointer, shortened
from ..limits import (
    INVALID_CALLS_MOST_LISTED,
    MOST_DEPENDENT_INSTANCES,
    MOST_INSTANCES,
    MOST_PLACES_LOOKED_UP,
    Limits,
    scalar_problem,
    value_problems,
)
from ..messages import DATA_TYPES, EVERYWHERE
from ..near_misses import Literals, NamedPlaces, NearMiss, NearMisses, named_by, placeholder
from ..paths import strings
from ..plan.graph import PlaceIndex
from ..plan.places import Promises
from ..references import DAGGER, Expression, Reference, expression_in, parse_output_path
from ..state.context import Context
from ..state.fold import Fold
from .reading import Unreadable, decoded
from .schema import Request
from .tool_texts import wire_names

# Dependents: calls that cannot run because those that were to write what they need do not (SPEC R12.6, R13.2).

Key = tuple[str | int, ...]
"""The segments of a place, its kind first."""


def dependents(
    request: Request, context: Context, calls: Mapping[int, Any], refused: Mapping[int, Any]
) -> Iterator[Problem]:
    """Problems of the calls, by position, that need a value which only refused calls were to write, or that depend on
    such calls. Some are left for the graph to find; none is named wrongly.

    A call is looked at again only when the last call that was to write something it reads is gone: the work grows with
    the calls, in whatever order they are listed.
    """
    gone, there = CountedPlaces(), CountedPlaces()
    causes = PlaceIndex[str]()
    for position, call in refused.items():
        gone.add(written := tuple(places_written(request, call)))
        for place in written:
            causes.add(place, pointer("calls", position))
    places = {position: tuple(places_written(request, call)) for position, call in calls.items()}
    for one in places.values():
        there.add(one)
    left = {
        position: read_expressions(_completed(request, call))[0]
        for position, call in calls.items()
        if isinstance(call, dict) and isinstance(call.get("_instance"), str | None)
    }
    readers = _Readers(left)
    waiting = deque(left)
    while waiting:
        position = waiting.popleft()
        if position not in left:
            continue
        instance = calls[position].get("_instance")
        folds = [
            context.fold(one)
            for one in (context.instances[:MOST_DEPENDENT_INSTANCES] if instance == EVERYWHERE else (instance,))
        ]
        for at, expression in left[position]:
            if all(any(gone.has(one) and not there.has(one) and not _is_held(folds, one) for one in group)
                   for group in expression.alternatives):  # fmt: skip
                root = next((cause for one in expression.references for cause in causes.at(one)), "the other calls")
                text = f"no call that can run writes {expression}: correct {root} first"
                yield Problem(pointer("solution", "calls", position) + at, text)
                del left[position]
                gone.add(places[position])
                for place in places[position]:
                    causes.add(place, root)
                for emptied in there.remove(places[position]):
                    waiting.extend(readers.of(emptied))
                break


def _is_held(folds: Iterable[Fold], place: Reference) -> bool:
    return any(fold.exists(place) for fold in folds)


class CountedPlaces:
    """Counts the calls that write at a place, above it and below it."""

    def __init__(self) -> None:
        self._at: Counter[Key] = Counter()
        self._above: Counter[Key] = Counter()

    def add(self, places: Iterable[Reference]) -> None:
        """Add the places of a call."""
        for place in places:
            self._at[place.key] += 1
            for length in range(1, len(place.key) + 1):
                self._above[place.key[:length]] += 1

    def remove(self, places: Iterable[Reference]) -> Iterator[tuple[Key, bool]]:
        """Remove places; yield each key at which nothing is left, and each (with True) below which nothing is."""
        for place in places:
            self._at[place.key] -= 1
            if not self._at[place.key]:
                yield place.key, True
            for length in range(1, len(place.key) + 1):
                self._above[place.key[:length]] -= 1
                if not self._above[place.key[:length]]:
                    yield place.key[:length], False

    def kinds(self) -> list[str]:
        """The kinds of the places."""
        return [str(key[0]) for key, count in self._above.items() if len(key) == 1 and count]

    def has_inside(self, place: Reference) -> bool:
        """Whether one of the places is the given one or below it."""
        return self._above[place.key] > 0

    def has(self, place: Reference) -> bool:
        """Whether one of the places is the given one, above it or below it."""
        key = place.key
        return self.has_inside(place) or any(self._at[key[:length]] > 0 for length in range(1, len(key)))


class _Readers:
    """Calls, by position, by the places that they read."""

    def __init__(self, read: Mapping[int, Iterable[tuple[str, Expression]]]) -> None:
        self._at: dict[Key, list[int]] = {}
        self._below: dict[Key, list[int]] = {}
        for position, expressions in read.items():
            for key in {reference.key for _, expression in expressions for reference in expression.references}:
                self._at.setdefault(key, []).append(position)
                for length in range(1, len(key)):
                    self._below.setdefault(key[:length], []).append(position)

    def of(self, emptied: tuple[Key, bool]) -> Iterable[int]:
        """Calls that lack something once a key is empty (see `CountedPlaces.remove`)."""
        key, is_written_whole = emptied
        return (self._below if is_written_whole else self._at).get(key, ())


def _completed(request: Request, call: Mapping[str, Any]) -> dict[str, Any]:
    """A call with what its tool pins."""
    tool = request.tools.get(call["_tool"]) if isinstance(call.get("_tool"), str) else None
    return completed(call, tool.constants, tool.inputs) if tool is not None else completed(call, {})


def places_written(request: Request, call: Any) -> Iterator[Reference]:
    """The places that a call was to write, as far as they can be read."""
    if not isinstance(call, dict):
        return
    path = _completed(request, call).get("_outputPath")
    try:
        written = parse_output_path(path) if isinstance(path, str) else Expression(())
    except ExpressionError:
        return
    yield from written.references


_OPERATORS: Final = re.compile(r"(\s*(?:\|\||&&)\s*)")
_AROUND: Final = re.compile(r"</?\|?/?tool_calls?\|?>|\[/?TOOL_CALLS\]|<\|python_tag\|>|```(?:json)?")
"""Marks that open models write around their calls."""
_FUNCTION: Final = re.compile(r"\s*<function=([^\s>]{1,200})>.*</function>\s*", re.DOTALL)
_VISIBLE: Final = re.compile(r"\S")
_DECODER: Final = json.JSONDecoder()


class _TooMany(Exception):
    """The answer has more texts that may name a place than are checked."""


def slips_in(
    request: Request, context: Context, calls: Mapping[int, Any], output: Any, begun: Iterable[Call] = ()
) -> Iterator[Problem]:
    """Find texts that were meant as references, in the calls of an answer by position, and in its output.

    `begun` are calls at work that may still write.
    """
    slips = NearMisses(_AnswerPlaces(request, context, calls.values(), begun), is_certain=True)
    listed = 0
    parts = [(("calls", at), *_read_of(request, call)) for at, call in calls.items()]
    for where, schema, value in (*parts, (("output",), request.schema, output)):
        literals = Literals(schema)
        for at, text in strings(value):
            try:
                slip = slips.of(text) or _placeholder(request, calls, where, text)
            except _TooMany:
                text = f"not checked: the answer has more than {MOST_PLACES_LOOKED_UP} texts that may name a place"
                yield Problem(pointer("solution", *where, *at), text)
                break
            if slip is None or literals.has(at, text):
                continue
            listed += 1
            is_last = listed >= INVALID_CALLS_MOST_LISTED
            escape = "; a literal † is written ††" if DAGGER in text else ""
            more = "; later texts may have the same error and are not listed" if is_last else ""
            yield Problem(pointer("solution", *where, *at), f"{slip.why}: {slip.remedy}{escape}{more}")
            if is_last:
                break  # the call does not run by one of them


def path_slips(request: Request, calls: Mapping[int, Any]) -> Iterator[Problem]:
    """Output paths of an answer without a dagger that begin with a kind, and so would lead into the state; unless their
    tools name them.
    """
    for position, call in calls.items():
        match call:
            case {"_tool": str(name), "_outputPath": str(text)} if (tool := request.tools.get(name)) is not None:
                if text in tool.choices("_outputPath"):
                    continue
            case _:
                continue
        for part in map(str.strip, _OPERATORS.split(text)[::2]):
            if named_by(part) is not None or part.partition(".")[0] in DATA_TYPES:
                why = f"without †, {shortened(part)} is a place in the state"
                yield Problem(pointer("solution", "calls", position, "_outputPath"), why)
                break


def _placeholder(request: Request, calls: Mapping[int, Any], where: Sequence[str | int], text: str) -> NearMiss | None:
    """The slip in a text that means the result of an earlier call; only in a call with effects."""
    match where:
        case ("calls", int(position)) if slip := placeholder(
            text, position, lambda at: tuple(places_written(request, calls.get(at)))
        ):
            name = calls[position].get("_tool")
            return slip if name in request.effectful else None
    return None


def may_have_slips(request: Request, call: Any) -> bool:
    """Whether a text of a call would be a slip if the places were there that it may name."""
    schema, value = _read_of(request, call)
    slips, literals = NearMisses(_AnyPlace(), is_certain=True), Literals(schema)
    return any(slips.of(text) is not None and not literals.has(at, text) for at, text in strings(value))


def with_reference_meant(call: Mapping[str, Any], at: Sequence[str]) -> tuple[Mapping[str, Any], str] | None:
    """Find a text in a call that only lacks the dagger of the reference that it has to be: return the call as it was
    meant, and the error text. Only references may be an output path, and among scopes.
    """
    match list(at), call:
        case ["_outputPath"], {"_outputPath": str() as text}:
            meant = _as_reference(text, inside="state.")
            mended = {**call, "_outputPath": meant}
        case ["_scopes", place], {"_scopes": [*scopes]} if isinstance(text := scopes[int(place)], str):
            meant = scopes[int(place)] = _as_reference(text)
            mended = {**call, "_scopes": scopes}
        case _:
            return None
    why = f"has the text {shortened(text)!r}, where only a reference is allowed: write {meant}"
    return (mended, why) if meant is not None else None


def with_json_meant(value: Any, at: Sequence[str]) -> tuple[Any, str] | None:
    """Find a text that holds an object or a list as JSON: return the value with that in its place, and the error."""
    if not at:
        if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
            return None
        with suppress(Unreadable):
            held = decoded(value)
            kind = "object" if isinstance(held, dict) else "list"
            return held, f"is a text that holds JSON: write the {kind} itself, without the quotes around it"
        return None
    key, rest = at[0], at[1:]
    if isinstance(value, dict) and key in value:
        found = with_json_meant(value[key], rest)
        return ({**value, key: found[0]}, found[1]) if found is not None else None
    if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
        found = with_json_meant(value[int(key)], rest)
        return ([*value[: int(key)], found[0], *value[int(key) + 1 :]], found[1]) if found is not None else None
    return None


def call_in_text(request: Request, text: str) -> Iterator[Problem]:
    """Problem of an output that is nothing but calls as a text, which some servers leak."""
    if not request.is_native or not text.lstrip().startswith(("{", "[", "<", "`")):
        return
    names = {name: tool for tool, name in wire_names(request.tools).items()} | {tool: tool for tool in request.tools}
    written = _FUNCTION.fullmatch(text)
    called = iter([written[1]]) if written is not None else map(_called, _values(_AROUND.sub(" ", text)))
    first = tool = names.get(next(called, ""))
    while tool is not None and (name := next(called, None)) is not None:
        tool = names.get(name)
    if tool is not None and not Literals(request.schema).has((), text):
        why = f"the text is a call of {first}, which has not run: call the function instead of writing a text"
        yield Problem(pointer("solution", "output"), why)


def _values(text: str) -> Iterator[Any]:
    """The values of a text that is nothing but JSON, those of a list one by one; else nothing that is a call."""
    at = 0
    while (begins := _VISIBLE.search(text, at)) is not None:
        try:
            value, at = _DECODER.raw_decode(text, begins.start())
        except (ValueError, RecursionError):
            value, at = None, len(text)
        yield from value if isinstance(value, list) else [value]


def _called(value: Any) -> str:
    """The tool of a call that is written as JSON; empty where the value is no call."""
    match value:
        case {"name": str(name), "arguments": dict() | str()} | {"name": str(name), "parameters": dict()}:
            return name
        case {"type": "function", "function": {"name": str(name)}} | {"_tool": str(name)}:
            return name
    return ""


def _as_reference(text: str, inside: str = "") -> str | None:
    """A text as the expression that only lacks its daggers; a path that begins with no kind is inside of another."""
    plain = text.strip().removeprefix(DAGGER)
    parts = _OPERATORS.split(named_by(plain) or plain)
    for at in range(0, len(parts), 2):
        name = parts[at].strip().removeprefix(DAGGER)
        parts[at] = f"{DAGGER}{'' if name.partition('.')[0] in DATA_TYPES else inside}{name}"
    expression = expression_in("".join(parts))
    return str(expression) if expression is not None and str(expression) != text else None


def _read_of(request: Request, call: Any) -> tuple[Any, Any]:
    """Schema of a call's tool, and the call's parameters."""
    if not isinstance(call, dict):
        return None, None
    name = call.get("_tool")
    tool = request.tools.get(name) if isinstance(name, str) else None
    parameters = {key: value for key, value in call.items() if not key.startswith("_")}
    return tool.document if tool is not None else None, parameters


class _AnswerPlaces(NamedPlaces):
    """The places that the context holds, and those that calls of the answer were to write, whether they may or not."""

    def __init__(self, request: Request, context: Context, calls: Iterable[Any], begun: Iterable[Call]) -> None:
        self._folds = [context.fold(), *map(context.fold, islice(context.instances, MOST_INSTANCES))]
        self._promises = Promises(context)
        self._written = CountedPlaces()
        for call in calls:
            self._written.add(places_written(request, call))
        for one in begun:
            self._written.add(one.written)
        self._known: dict[Reference, bool] = {}

    def kinds(self) -> tuple[str, ...]:
        return self._kinds

    @cached_property
    def _kinds(self) -> tuple[str, ...]:
        held = (kind for fold in self._folds for kind in fold.kinds())
        return tuple(dict.fromkeys((*held, *self._written.kinds())))

    def has(self, place: Reference) -> bool:
        return self._written.has(place) or self._is_held(place)

    def is_named(self, place: Reference) -> bool:
        return self._written.has_inside(place) or self._is_held(place)

    def _is_held(self, place: Reference) -> bool:
        if place not in self._known:
            if len(self._known) >= MOST_PLACES_LOOKED_UP:
                raise _TooMany
            held = any(fold.exists(place) for fold in self._folds)
            self._known[place] = held or self._promises.name(place)
        return self._known[place]


class _AnyPlace(NamedPlaces):
    """Places before anything is known: any of them may come to exist."""

    def kinds(self) -> tuple[str, ...]:
        return ()

    def has(self, place: Reference) -> bool:
        return True

    def is_named(self, place: Reference) -> bool:
        return True


# Parts of an answer that cannot be stored are taken out one by one: one call is refused, the others run.
#
# An integer beyond 64 bits, a value of too many levels, NaN (SPEC R4.1, R13.2). The log and the model see a likeness.


def with_likenesses(value: Mapping[str, Any], limits: Limits) -> tuple[Mapping[str, Any], list[Problem]]:
    """The solution with a readable substitute for each call, and for an output, that cannot be stored, and the problems
    of those: an integer beyond 64 bits, too many levels.
    """
    if next(value_problems(value, limits), None) is None:
        return value, []
    calls, problems = value.get("calls"), list[Problem]()

    def kept(part: Any, *where: str | int) -> Any:
        inside = [part] if len(where) == 1 else [[part]]  # as deep as in the answer
        if (unfit := next(value_problems(inside, limits), None)) is None:
            return part
        problems.append(replace(unfit, pointer=pointer("solution", *where) + unfit.pointer[2 * len(where) :]))
        likeness = _likeness(part, limits.depth - len(where))
        if next(value_problems(likeness, limits), None) is None:
            return likeness
        tool = _likeness(part.get("_tool"), 0) if isinstance(part, dict) else None
        return {"_tool": tool}

    found = {**value, **({"output": kept(value["output"], "output")} if "output" in value else {})}
    if isinstance(calls, list):
        found["calls"] = [kept(call, "calls", at) for at, call in enumerate(calls)]
    return found, problems


def _likeness(value: Any, levels: int) -> Any:
    """The value with a text for each part that cannot be stored."""
    if isinstance(value, dict):
        pairs = ((str(key).encode(errors="replace").decode(), part) for key, part in value.items())
        return {key: _likeness(part, levels - 1) for key, part in pairs} if levels > 0 else "{…}"
    if isinstance(value, list):
        return [_likeness(part, levels - 1) for part in value] if levels > 0 else "[…]"
    return value if scalar_problem(value) is None else shortened(str(value).encode(errors="replace").decode())
