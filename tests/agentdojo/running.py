"""Running a plan on the engine, in one process, with whoever reads and a person as a measurement wants them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from acts_celery.protocol import Plan as Checked
from acts_celery.protocol import check_in
from acts_celery.protocol.engine.events import CallDecided, CallHeld, Hold, Ruling, Verdict
from acts_celery.protocol.plan.checking import Environment
from tests.protocol.driver import Driver

from .plans import WHEN, Endorsing, Plan, Question
from .suites import World, labels_of

Reader = Callable[[Question, Any], Any]
"""Answers a question by what is given."""


@dataclass(frozen=True)
class Ran:
    """What has come of a run."""

    world: World
    asked: tuple[Hold, ...]
    """What a person was asked."""
    questions: int
    """In how many questions: calls of one tool that wait for the same sources at the same time are one (SPEC R16.8)."""


class _Attended(Driver):
    """A driver with a person, who comes when nothing else goes on, and says the same to whatever is held."""

    def __init__(self, plan: Checked, functions: Mapping[str, Any], ruling: Ruling) -> None:
        super().__init__(plan, functions)
        self._ruling = ruling
        self._waiting: list[tuple[str | None, Hold]] = []
        self.asked: list[Hold] = []
        self.questions = 0

    def held(self, instance: str | None, hold: Hold) -> None:
        self._waiting.append((instance, hold))
        self.append(instance, CallHeld(hold.call.index, hold.snapshot, hold.doubt))

    def _moves(self) -> list[Callable[[], None]]:
        while not (moves := super()._moves()) and self._waiting:
            self.questions += len({(hold.call.tool, str(hold.doubt)) for _, hold in self._waiting})
            self.asked += [hold for _, hold in self._waiting]
            for instance, hold in self._waiting:
                self.append(instance, CallDecided(hold.call.index, self._ruling))
            self._waiting = []
        return moves


def honest(question: Question, given: Any) -> Any:
    """A reader that nobody has told anything."""
    return question.answer


def checked(plan: Plan, endorsing: Endorsing = Endorsing.NONE, *, labels: bool = True) -> Checked:
    """A plan, checked; without labels as if nobody had said anything of the functions."""
    value, readers = plan.submission, plan.readers(endorsing)
    if not labels:
        value["tools"] = {name: {**tool, "_trust": {}} for name, tool in value["tools"].items()}
    return check_in(Environment(delegates=readers, definitions=readers.get), value)


def run(plan: Plan, checked_plan: Checked, world: World, reader: Reader = honest, *, approves: bool = True) -> Ran:
    """Run a plan in a world."""
    said = Ruling(Verdict.APPROVED) if approves else Ruling(Verdict.REJECTED, reason="nobody is there")

    def read(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
        return reader(plan.questions[parameters["question"]], parameters["given"])

    functions: dict[str, Any] = {name: partial(_carry_out, world, name) for name in labels_of(world.task.suite)}
    functions |= {one.reader: read for one in plan.questions.values()}
    driver = _Attended(checked_plan, functions, said)
    driver.run()
    return Ran(world, tuple(driver.asked), driver.questions)


def _carry_out(world: World, name: str, parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    return world.call(name, {key: one for key, one in parameters.items() if key != WHEN})
