"""The workload: submissions written from a seed, and what must come of them.

A submission mixes what the backend can do: chains in line, fans, branches, delegates in code and for a model,
activities with a queue of their own, calls sent and forgotten, latent calls, calls that fail at first or for good,
global calls that instances wait for. Every call has a `mark` that is found again in the records of executions. No order
of execution that the rules allow gives other values, so the independent evaluator says what they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.protocol import naive

from .limited import LANES, LIMITS, WORDS

Json = dict[str, Any]
CallKey = tuple[str | None, int]
"""The instance and the index of a call."""

ACTIVITIES: Final = Path(__file__).with_name("activities.py")
LIMITED: Final = Path(__file__).with_name("limited.py")
BASE: Final = 100
SIZES: Final = ((1, 3), (1, 6), (4, 3), (12, 2), (30, 2))
"""Instances, and shapes in each."""
SECONDS: Final = (0.0, 0.0, 0.005, 0.02, 0.05, 0.3, 1.0)
"""How long calls take."""
UNCOUNTED: Final = frozenset({"translate", "interpret"})
"""A scripted model's calls leave no records."""
STEPS: Final = ("step", "step", "stepPlain", "stepElsewhere")
"""What chains are made of."""


@dataclass(frozen=True)
class Expectation:
    """What must come of a submission."""

    statuses: Mapping[CallKey, str]
    values: Mapping[str | None, Mapping[str, Any]]
    marks: Mapping[str, CallKey]
    """The calls that leave records when they are executed, by their marks."""


@dataclass(frozen=True)
class Submission:
    """One of the workload's submissions."""

    number: int
    document: Json

    @property
    def instances(self) -> list[str]:
        return list(dict.fromkeys(m["_instance"] for m in self.document["context"] if "_instance" in m))

    @cached_property
    def expected(self) -> Expectation:
        """Worked out by the evaluator that shares no code with the core, instance by instance."""
        statuses: dict[CallKey, str] = {}
        values: dict[str | None, Mapping[str, Any]] = {}
        for instance in self.instances:
            part, indexes = self._part(instance)
            assert naive.is_deterministic(part), f"submission {self.number} is a race"
            verdict = naive.evaluate(part, FUNCTIONS)
            values |= {reader: without_errors(data) for reader, data in verdict.data.items()}
            for lane, by_index in verdict.statuses.items():
                statuses |= {(lane, indexes[index]): status for index, status in by_index.items()}
        return Expectation(statuses, values, dict(self._marks(statuses)))

    def tool(self, call: CallKey) -> str:
        """The tool that a call uses."""
        name: str = self._calls[call[1]]["_tool"]
        return name

    def limited_by(self, call: CallKey) -> tuple[str, str]:
        """The tool of a call, and the value of its limits' key."""
        return self.tool(call), self._calls[call[1]].get("lane", "")

    @property
    def _calls(self) -> list[Json]:
        if "solution" in self.document:
            calls: list[Json] = self.document["solution"]["calls"]
            return calls
        return [call for message in self.document["context"] if message["type"] == "plan" for call in message["calls"]]

    def _part(self, instance: str) -> tuple[Json, list[int]]:
        """What an instance can see, with the indexes its calls have in the whole."""
        context = [message for message in self.document["context"] if message.get("_instance", instance) == instance]
        if "solution" not in self.document:
            return {"context": context}, list(range(len(self._calls)))
        indexes = [index for index, call in enumerate(self._calls) if call.get("_instance", instance) == instance]
        return {"context": context, "solution": {"calls": [self._calls[index] for index in indexes]}}, indexes

    def _marks(self, statuses: Mapping[CallKey, str]) -> Iterator[tuple[str, CallKey]]:
        for call, status in statuses.items():
            if status != "skipped" and self.tool(call) not in UNCOUNTED:
                yield mark(self.number, *call), call


def submission(
    seed: int, number: int, *, size: tuple[int, int] | None = None, steps: Sequence[str] = STEPS
) -> Submission:
    """The submission of this number; the same for the same seed. Its chains are made of these `steps`."""
    random = Random(f"{seed} {number}")
    instances, shapes = size or random.choice(SIZES)
    author = _Author(number, [f"i{index}" for index in range(instances)], random, steps)
    return Submission(number, author.plan(shapes) if random.random() < 0.25 else author.solution(shapes))


def mark(number: int, instance: str | None, index: int) -> str:
    """How a call is named in the records of executions."""
    return f"{number}/{instance or '-'}/{index}"


def write_model(path: Path) -> str:
    """Write the scripted model's answers; the value of `ACTS_MODEL`."""
    path.write_text(json.dumps([{"when": word, "output": answer} for word, answer in WORDS.items()]), "utf-8")
    return f"scripted:{path}"


def without_errors(data: Mapping[str, Any]) -> Json:
    """Values without the error messages, whose texts are not foretold."""
    return {kind: value for kind, value in data.items() if kind != "error"}


class _Author:
    """Writes one submission, lane by lane; the current lane is `None` for the global one."""

    def __init__(self, number: int, instances: Sequence[str], random: Random, steps: Sequence[str]) -> None:
        self._number = number
        self._instances = instances
        self._random = random
        self._steps = steps
        self._lane: str | None = None
        self._is_plan = False
        self._calls: list[Json] = []
        self._shared = ["†state.base"]
        self._places = 0

    def solution(self, shapes: int) -> Json:
        """A few global calls, then so many shapes for each instance, which read global results too."""
        for _ in range(2):
            self._shared.append(self._chain("†state.base", length=2))
        for instance in self._instances:
            self._lane = instance
            self._shapes(shapes)
        return {**self._frame(self._context()), "solution": {"calls": self._calls}}

    def plan(self, shapes: int) -> Json:
        """A template that runs once for each instance; marks differ by instance, so the context holds them."""
        self._is_plan = True
        self._shapes(shapes)
        context = self._context()
        for message in context:
            if "_instance" in message:
                name = message["_instance"]
                message["marks"] = {f"m{index}": mark(self._number, name, index) for index in range(len(self._calls))}
        return self._frame([*context, {"type": "plan", "calls": self._calls}])

    def _frame(self, context: list[Json]) -> Json:
        interpreter = {"context": [{"type": "system", "message": "Translate."}], "schema": {"type": "string"}}
        return {
            "context": context,
            "tools": {"translate": {"type": "object"}, "interpret": {"_delegate": "interpreter"}},
            "delegates": {"interpreter": interpreter},
        }

    def _context(self) -> list[Json]:
        own = [
            {"type": "state", "_instance": name, "own": self._random.randrange(1000), "name": name}
            for name in self._instances
        ]
        return [{"type": "input", "number": self._number}, {"type": "state", "base": BASE}, *own]

    def _shapes(self, count: int) -> None:
        for _ in range(count):
            self._random.choice(
                (self._chains, self._fan, self._branch, self._delegate, self._words, self._event, self._trouble)
            )()

    def _add(self, tool: str, to: str | None, /, **properties: Any) -> str:
        index = len(self._calls)
        given = f"†state.marks.m{index}" if self._is_plan else mark(self._number, self._lane, index)
        call = {"_tool": tool, "mark": given, **properties}
        if to is not None:
            call["_outputPath"] = to
        if self._lane is not None:
            call["_instance"] = self._lane
        self._calls.append(call)
        return to or ""

    def _place(self) -> str:
        self._places += 1
        return f"†state.k{self._places}"

    def _given(self) -> str:
        return self._random.choice([*self._shared, "†state.own"])

    def _seconds(self) -> float:
        return self._random.choice(SECONDS)

    def _step(self, value: str, to: str) -> str:
        tool = self._random.choice(self._steps)
        lane = {"lane": self._random.choice(LANES)} if tool in LIMITS else {}
        return self._add(tool, to, value=value, seconds=self._seconds(), **lane)

    def _chain(self, value: str, length: int) -> str:
        for _ in range(length):
            value = self._step(value, self._place())
        return value

    def _chains(self) -> None:
        self._chain(self._given(), self._random.randint(2, 5))

    def _fan(self) -> None:
        parent = self._place()
        for part in range(self._random.choice((2, 3, 6))):
            self._step(self._given(), f"{parent}.p{part}")
        self._chain(self._add("total", self._place(), parts=parent), 1)

    def _branch(self) -> None:
        even, odd = self._place(), self._place()
        value = self._chain(self._given(), 1)
        self._add("parity", f"{even} || {odd}", value=value, even=f"†{even}", odd=f"†{odd}")  # †† is no expression
        self._chain(f"{self._chain(even, 1)} || {self._chain(odd, 1)}", 1)

    def _delegate(self) -> None:
        of_code = {"_delegate": "addUp", "_scopes": ["†state.base"]}
        place = self._add("addUp", self._place(), value=self._given(), seconds=self._seconds(), **of_code)
        self._chain(place, self._random.randint(1, 2))

    def _words(self) -> None:
        word = self._random.choice(list(WORDS))
        self._add("translate", self._place(), word=word)
        self._add("interpret", self._place(), word=word, _delegate="interpreter")

    def _event(self) -> None:
        self._add("announce", None, value=self._chain(self._given(), 1))

    def _trouble(self) -> None:
        self._chain(self._add("flaky", self._place(), value=self._given()), 1)
        if self._random.random() < 0.3:
            lost = self._add("failing", self._place())
            self._chain(lost, 1)
            self._chain(f"{lost} || †state.base", 1)


def _next(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    return parameters["value"] + 1


def _total(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    return sum(parameters["parts"].values())


def _parity(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    return naive.To(parameters["odd" if parameters["value"] % 2 else "even"], parameters["value"])


def _failing(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    raise naive.Wrong("never")


def _add_up(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    return context["state"]["base"] + parameters["value"]


def _word(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    return WORDS[parameters["word"]]


FUNCTIONS: Final[Mapping[str, naive.Function]] = {
    **dict.fromkeys((*STEPS, *LIMITS, "flaky"), _next),
    **dict.fromkeys(("translate", "interpret"), _word),
    "total": _total,
    "parity": _parity,
    "failing": _failing,
    "addUp": _add_up,
}
"""What the activities do, for the evaluator."""
