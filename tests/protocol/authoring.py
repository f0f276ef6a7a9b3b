"""Authoring: submissions as models write them, a few known shapes put together by dice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from acts_celery.protocol import Output
from acts_celery.protocol.engine.events import Failure, Start, Success

from . import naive
from .simulator import Lane
from .strategies import SCHEMAS, TOOLS

Json = dict[str, Any]
INSTANCES = ("①", "②", "③")


def _late(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    raise naive.Wrong("timed out")


EXPLICIT: dict[str, naive.Function] = {**TOOLS, "late": _late}
LATENT: dict[str, naive.Function] = {"think": TOOLS["give"]}
ANY: Json = {"type": "object"}
ACTIVITIES = {**dict.fromkeys((*EXPLICIT, "stamp"), ANY), "number": SCHEMAS["number"]}


def carry_out(start: Start, attempt: int, context: Mapping[str, Any]) -> Success | Failure:
    """What the code of a call gives."""
    if start.call.tool == "stamp":
        return Success({"in": start.parameters["value"], "by": attempt})
    try:
        value = EXPLICIT[start.call.tool](start.parameters, context)
    except naive.Wrong as error:
        return Failure("Wrong", str(error))
    return Success(Output(value.path, value.value) if isinstance(value, naive.To) else value)


class Author:
    """Writes submissions: a few known shapes, in lanes that may read the global ones."""

    def __init__(self, random: Random, instances: Sequence[str] | None = None) -> None:
        self._random = random
        self._instances = INSTANCES[: random.randrange(4)] if instances is None else instances
        self._is_plan = instances is None and random.random() < 0.4
        self._calls: list[Json] = []
        self._known: dict[Lane, list[str]] = {}
        self._lane: Lane = None
        self._places = 0

    def submission(self) -> Json:
        """A valid one, mostly one where no race is possible."""
        random, context = self._random, self._context()
        for _ in range(random.randint(1, 4)):
            self._lane = None if self._is_plan else random.choice((None, *self._instances))
            self._shape()
        if random.random() < 0.1:
            self._race()
        if random.random() < 0.3:
            self._handler()
        if random.random() < 0.3:
            self._add("see", self._place(), _scopes=["state", "data"])
        if self._is_plan:
            context.append({"type": "plan", "calls": self._calls})
            return {"context": context, "tools": {"think": ANY}}
        return {"context": context, "solution": {"calls": self._calls}, "tools": {"think": ANY}}

    def large_submission(self, shapes: int) -> Json:
        """A solution without races that gives every lane so many shapes, the global one first."""
        for lane in (None, *self._instances):
            self._lane = lane
            for _ in range(shapes):
                self._shape()
        return {"context": self._context(), "solution": {"calls": self._calls}, "tools": {"think": ANY}}

    def _context(self) -> list[Json]:
        context: list[Json] = [{"type": "state", "g": 1, "l": [0]}, {"type": "input", "p": {"q": 2}}]
        for name in self._instances:
            context.append({"type": "state", "_instance": name, "mine": {"secret": f"secret {name}"}})
        return context

    def _shape(self) -> None:
        self._random.choice(
            (self._chain, self._chain, self._fan, self._branch, self._failure, self._rescue, self._counter,
             self._thought, self._events, self._list, self._misfit, self._late_writer, self._look)
        )()  # fmt: skip

    def _add(self, tool: str, to: str | None = None, /, **properties: Any) -> None:
        call = {"_tool": tool, **properties}
        if to is not None:
            call["_outputPath"] = to
        if self._lane is not None:
            call["_instance"] = self._lane
        if "_scopes" not in call and self._random.random() < 0.2:
            call["_scopes"] = ["state"]  # whatever is there, seen by the activity and not in its result
        if tool == "stamp":
            call["n"] = len(self._calls)
        self._calls.append(call)

    def _place(self) -> str:
        self._places += 1
        return f"†{self._random.choice(('state', 'state', 'data'))}.k{self._places}"

    def _read(self) -> str:
        """Something that is there or will be, as far as the lane can see."""
        known = [*self._known.get(None, ()), *self._known.get(self._lane, ())]
        given = ["†input.p", "†input.p.q", "†state.g"]
        if self._lane is not None or (self._is_plan and self._instances):
            given += ["†state.mine", "†state.mine.secret"]
        place: str = self._random.choice([*given, *known[-3:], *known[-3:]])
        return place

    def _value(self) -> Any:
        place = self._read()
        template = f"so †{{{place.removeprefix('†')} || state.g}}, ††{{†{{state.g}}"
        several: tuple[Any, ...] = (f"{place} || †state.g", {"in": [place, "††no"]}, f"†state.g && {place}", template)
        return self._random.choice((place, *several, 7))

    def _plain(self) -> str:
        """A stamp tells which attempt its result is from; in a plan the naive evaluator could not say whose."""
        return self._random.choice(("give", "wrap", "list", "echo", "give" if self._is_plan else "stamp"))

    def _make(self, value: Any) -> str:
        place = self._place()
        self._add(self._plain(), place, value=value)
        self._known.setdefault(self._lane, []).append(place)
        return place

    def _chain(self) -> None:
        value = self._value()
        for _ in range(self._random.randint(1, 4)):
            value = self._make(value)

    def _fan(self) -> None:
        """Many beside each other, then one that reads them all; sometimes enough of them for a barrier."""
        parent, width = self._place(), self._random.choice((2, 3, 10))
        for part in range(width):
            self._add(self._plain(), f"{parent}.p{part}", value=self._value())
        for _ in range(self._random.randint(1, 2)):
            self._make(parent)

    def _look(self) -> None:
        """One who sees what is written before it; what is in its scopes need not be there."""
        known = [*self._known.get(None, ()), *self._known.get(self._lane, ())]
        place = self._place()
        self._add("see", place, _scopes=[self._random.choice(["input", "†state.nowhere", *known])])
        self._known.setdefault(self._lane, []).append(place)

    def _branch(self) -> None:
        yes, no = self._place(), self._place()
        self._add("pick", f"{yes} || {no}", where="†" + self._random.choice((yes, no)), value=self._value())
        either = f"{self._make(yes)} || {self._make(no)}"
        self._make(either if self._random.random() < 0.5 else f"{yes} || {no}")

    def _failure(self) -> None:
        place = self._place()
        self._add(self._random.choice(("fail", "late", "stray")), place, value=self._value())
        self._make(place)
        self._make(f"{place} || †state.g")

    def _rescue(self) -> None:
        good, bad, also = self._place(), self._place(), self._place()
        self._add(self._random.choice(("fail", "late", "give")), f"{good} || {bad} && {also}", value=self._value())
        self._make(good)
        self._make(f"{bad}.message")
        self._make(f"{good} || {also}")

    def _counter(self) -> None:
        """One place, read and written again and again."""
        place = self._place()
        self._add("number", place, value="†state.g")
        for _ in range(self._random.randint(1, 4)):
            self._add("number", place, value=place)
        self._make(place)

    def _list(self) -> None:
        """Pushes in a row: each reads the list first."""
        place = self._random.choice((self._place(), "†state.l"))
        if place != "†state.l":
            self._add("give", place, value=[])
        for number in range(self._random.randint(1, 3)):
            self._add("give", place, value=number, seen=place, _outputMethod="push")
        self._make(place)

    def _handler(self) -> None:
        """One who does something where any call before it has failed, or something else where none has."""
        if self._random.random() < 0.5:
            self._add(self._random.choice(("fail", "late", "give")), self._place(), value=self._value())
        place = self._read()
        self._add("give", self._place(), value=f"†error && {place}")
        self._add("give", self._place(), value=f"†error.call && {place} || †state.g", _scopes=[])

    def _misfit(self) -> None:
        """A push that does not fit what is there."""
        place = self._place()
        self._add("give", place, value=1)
        self._add("give", f"{place} || {self._place()}", value=place, _outputMethod="push")
        self._make(f"{place} || †state.g")

    def _thought(self) -> None:
        place, output = self._place(), self._random.randint(0, 9)
        self._add("think", place, value=output, _output=output)
        self._add("think", None, value=self._value())
        self._make(place)

    def _events(self) -> None:
        for _ in range(self._random.randint(1, 2)):
            self._add("give", None, value=self._value(), other=self._read())

    def _late_writer(self) -> None:
        """The reader is listed before the writer."""
        early, late = self._place(), self._place()
        self._add("give", early, value=late)
        self._add(self._random.choice(("give", "give", "fail")), late, value=self._value())
        self._make(f"{early} || †state.g")

    def _race(self) -> None:
        """Several write one place in no order."""
        place = self._place()
        for number in range(3):
            method = self._random.choice(("set", "push", "merge", "concat"))
            self._add("give", place, value=self._random.choice((number, [number], {"a": number})), _outputMethod=method)
        self._make(place)
