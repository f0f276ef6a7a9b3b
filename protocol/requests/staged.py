"""Staged plans: a tick asks twice, for the tools in order and then for their parameters (SPEC R12.7).

    {"tools": ["weather", "translate"]}
    {"calls": {"s0": {"_tool": "weather", "city": "†input.city"},
               "s1": {"_tool": "translate", "text": "†state.s0.text"}}, "output": null}

The second schema is made for the tools that were chosen. What it admits is a solution without an error: each reference
is one of a list, and leads to what is there or to what an earlier call writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, Final

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.tools import Tool
from acts_celery.protocol.language.errors import Problem, pointer, segments
from acts_celery.protocol.language.messages import Message
from acts_celery.protocol.language.paths import index_or_key, lookup
from acts_celery.protocol.language.references import Reference
from acts_celery.protocol.language.templates import assumed_meaning
from acts_celery.protocol.schemas import CompiledSchema
from acts_celery.protocol.schemas.addresses import normalized
from acts_celery.protocol.schemas.algebra import Algebra
from acts_celery.protocol.schemas.validation import Checker
from acts_celery.protocol.state.context import Context
from acts_celery.protocol.state.fold import Fold

from .answer_texts import ANSWER_KEYS, Unreadable
from .answers import Answer, AnswerError, read_solution, read_value, unreadable
from .asides import compose_asides
from .composition import compose
from .functions import function_schema
from .narrowing import Narrowing
from .offered_places import OfferedPlaces, known_places
from .request import Request
from .slot_schemas import SlotSchema
from .widening import Definitions, closed

SLOTS: Final = 8
"""How many tools a tick may choose at most where `config.slots` does not say."""


def choosable(request: Request) -> list[Tool]:
    """The tools that can be chosen: those whose results have a place."""
    nowhere = OfferedPlaces(Algebra(), ())
    tools = request.tools.values()
    return [tool for tool in tools if SlotSchema(request, tool, Definitions(), nowhere).can_be_chosen]


def first_schema(request: Request) -> dict[str, Any]:
    """The schema of the first request, whether or not its plan is staged."""
    if request.is_staged:
        return compose_choice(request)
    return function_schema(request) if request.is_native else compose(request)


def sample_choice(request: Request) -> list[str]:
    """A choice to show what is asked for one: each of the tools once, in their order, as far as there are slots."""
    return [tool.name for tool in choosable(request)][: request.config.get("slots", SLOTS)]


@lru_cache(maxsize=64)
def compose_choice(request: Request) -> dict[str, Any]:
    """The schema of the first answer: what advises, and the tools in order. It is the same in every tick."""
    definitions = Definitions()
    tools = list(map(_shown, choosable(request)))
    most = request.config.get("slots", SLOTS)
    listed = (
        {"type": "array", "items": {"anyOf": tools}, "maxItems": most} if tools else {"type": "array", "maxItems": 0}
    )
    properties = {**dict(compose_asides(request, definitions)), "tools": listed}
    return closed(properties, definitions)


def _shown(tool: Tool) -> dict[str, Any]:
    return {"const": tool.name, **({"description": tool.description} if tool.description is not None else {})}


@dataclass(frozen=True)
class Choice:
    """The first answer, as it was read."""

    answer: Mapping[str, Any]
    """`tools` and what advises; it goes into the log."""

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools in order."""
        return tuple(self.answer["tools"])


def read_choice(request: Request, answer: str | Mapping[str, Any]) -> Choice | AnswerError:
    """Read the first answer. Never raises for what a model has written."""
    try:
        value = read_value(request, answer, ("tools",))
    except Unreadable as error:
        return unreadable(error, answer)
    if problem := next(iter(CompiledSchema(compose_choice(request)).problems(value)), None):
        return AnswerError(None, "InvalidAnswer", problem.message, problem.pointer)
    return Choice(value)


@dataclass(frozen=True)
class Slots:
    """What the second answer is held against; it goes into the log with the request."""

    schema: Mapping[str, Any]
    tools: tuple[str, ...]
    paths: tuple[str | None, ...]
    """Where the call of each writes, where the engine says so; None where its tool does, or it writes nowhere."""
    first: int
    """The index of the first call, by which the slots are named."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the slots, in order."""
        return tuple(_slot(self.first + position) for position in range(len(self.tools)))

    def shown(self, request: Request) -> list[tuple[str, str, str | None]]:
        """For each slot its name, its tool, and where its call writes, where one place is given."""
        rows = zip(self.names, self.tools, self.paths, strict=True)
        return [(name, tool, path or request.tools[tool].constants.get("_outputPath")) for name, tool, path in rows]

    def to_dict(self) -> dict[str, Any]:
        """All but the schema, as the log has it beside that."""
        return {"tools": self.tools, "paths": self.paths, "first": self.first}

    def call_problems(self, at: int, position: int, call: Any) -> list[Problem]:
        """What the schema says against the call in a slot, which is the solution's call `at`."""
        own = call if self.paths[position] is None else _without_path(call)
        found = self._checker("calls", self.names[position]).problems(own, "solution", "calls", at)
        return [_told(problem, own) for problem in found]

    def output_problems(self, output: Any) -> list[Problem]:
        """What it says against an output."""
        return self._checker("output").problems(output, "solution", "output")

    def _checker(self, *names: str) -> Checker:
        way = [step for name in names for step in ("properties", name)]
        return self._compiled.checker(tuple(way))

    @cached_property
    def _compiled(self) -> CompiledSchema:
        return CompiledSchema(dict(self.schema))


def compose_slots(
    request: Request, tools: Sequence[str], messages: Sequence[Message] | None = None, first: int = 0
) -> Slots:
    """The schema of the second answer, for tools in order; see `read_answer` for `messages` and `first`."""
    messages = request.submission.context if messages is None else messages
    return _Slots(request, [request.tools[name] for name in tools], Context.trusted(messages), first).composed()


def read_slots(
    request: Request,
    choice: Choice,
    slots: Slots,
    answer: str | Mapping[str, Any],
    messages: Sequence[Message] | None = None,
    *,
    first: int = 0,
    begun: Mapping[str | None, Sequence[Call]] | None = None,
) -> Answer:
    """Read the second answer, and make an ordinary solution of both; see `read_answer`."""
    asides = {key: part for key, part in choice.answer.items() if key != "tools"}
    errors, calls, positions, output = [], [], [], None
    try:
        value = read_value(request, answer)
        errors = [AnswerError(None, "InvalidAnswer", text, at) for text, at in _misshapen(value, slots.names)]
        given = value.get("calls")
        for position, name in enumerate(slots.names):
            if isinstance(given, dict) and name in given:
                path = slots.paths[position]
                own = {"_outputPath": path} if path is not None else {}
                calls.append({**given[name], **own} if isinstance(given[name], dict) else given[name])
                positions.append(position)
        output = value.get("output")
    except Unreadable as error:
        errors = [unreadable(error, answer)]
    held = _Held(slots, positions)
    solution = {**asides, "calls": calls, "output": output}
    return read_solution(request, solution, messages, errors, first=first, begun=begun, truth=held)


def emptied(slots: Mapping[str, Any], solution: Mapping[str, Any]) -> dict[str, Any]:
    """The second answer that a solution comes of; `slots` as the log has them."""
    calls = enumerate(zip(slots["paths"], solution["calls"], strict=False))
    named = {_slot(slots["first"] + at): _without_path(call) if path else call for at, (path, call) in calls}
    return {"calls": named, "output": solution["output"]}


def _told(problem: Problem, call: Any) -> Problem:
    """A problem in words of its own, where it is about a reference or a template."""
    value = lookup(call, tuple(map(index_or_key, segments(problem.pointer)[3:])))
    if not isinstance(value, str) or isinstance(assumed_meaning(value), str):
        return problem
    return replace(problem, message=f"{value} cannot be referred to here, where only what the schema lists can be")


def _without_path(call: Mapping[str, Any]) -> dict[str, Any]:
    return {key: part for key, part in call.items() if key != "_outputPath"}


@dataclass(frozen=True)
class _Held:
    """The slots as what the calls of a solution are held against."""

    slots: Slots
    positions: Sequence[int]

    def call_problems(self, index: int, call: Any) -> list[Problem]:
        return self.slots.call_problems(index, self.positions[index], call)

    def output_problems(self, output: Any) -> list[Problem]:
        return self.slots.output_problems(output)


def _misshapen(value: Mapping[str, Any], names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What is wrong with the second answer as a whole, and where."""
    for key in value.keys() - set(ANSWER_KEYS):
        yield "unknown property; an answer has calls, output", pointer(key)
    calls = value.get("calls", {})
    if not isinstance(calls, dict):
        yield "must be an object with a call for each tool that was chosen", pointer("calls")
        return
    for name in calls.keys() - set(names):
        yield f"there is no such call; there are: {', '.join(names) or 'none'}", pointer("calls", name)
    for name in names:
        if name not in calls:
            yield f"the call {name!r} is missing", pointer("calls")


@dataclass(frozen=True)
class _Slots:
    """Composes the schema of the second answer."""

    request: Request
    tools: Sequence[Tool]
    context: Context
    first: int
    algebra: Algebra = field(default_factory=Algebra)
    definitions: Definitions = field(default_factory=Definitions)

    def composed(self) -> Slots:
        known = self._known([self.context.fold(instance) for instance in self.request.instances or (None,)])
        places, shown, paths = known, {}, []
        for position, slot in enumerate(self._slots):
            name = _slot(self.first + position)
            path = slot.path(name, self._readers, self._pinned)
            shown[name] = slot.at(places).variants(known)
            others = (other.pinned for other in self._slots if other is not slot)
            places = places.with_results(slot.written(path, list(chain.from_iterable(others))))
            paths.append(path)
        schema = closed({"calls": closed(shown), "output": self._output(places)}, self.definitions)
        return Slots(schema, tuple(tool.name for tool in self.tools), tuple(paths), self.first)

    def _output(self, places: OfferedPlaces) -> dict[str, Any]:
        """The request's schema, in which references that are listed may stand for values, or null: not yet."""
        if self.request.schema is False:
            return {"type": "null"}
        if self.request.instances:  # a global reader does not see what they write
            places = self._known([self.context.fold()])
        document = normalized(self.request.schema)
        narrowing = Narrowing("output", document, self.definitions, offered=lambda part: places.fitting(part, document))
        return {"anyOf": [narrowing.value(document), {"type": "null"}]}

    def _known(self, readers: Sequence[Fold]) -> OfferedPlaces:
        return OfferedPlaces(self.algebra, known_places(readers, self._pinned))

    @cached_property
    def _readers(self) -> list[Fold]:
        return [self.context.fold(instance) for instance in (None, *self.request.instances)]

    @cached_property
    def _pinned(self) -> list[Reference]:
        """All places that the calls may write to by their tools."""
        return list(chain.from_iterable(slot.pinned for slot in self._slots))

    @cached_property
    def _slots(self) -> list[SlotSchema]:
        nowhere = OfferedPlaces(self.algebra, ())
        return [SlotSchema(self.request, tool, self.definitions, nowhere) for tool in self.tools]


def _slot(index: int) -> str:
    return f"s{index}"
