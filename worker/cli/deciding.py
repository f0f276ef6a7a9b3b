"""Deciding on held calls from `acts run`: at a terminal the person is asked as soon as a call is held (SPEC R14)."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from acts_celery.worker.errors import AlreadyDecided, HeldAnew, NotHeld

from .failures import Failed
from .output import tell
from .people import held_lines
from .values import value_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acts_celery.worker.client.progress import Event
    from acts_celery.worker.client.runs import Run


class Decider:
    """What `acts run` does about the held calls of its run."""

    def __init__(self, run: Run, *, is_embedded: bool) -> None:
        self._run = run
        self._is_embedded = is_embedded
        self._is_stuck = False
        """Whether a call is held on which nobody can decide."""
        self._left = 0
        """So many calls end at least before nothing is at work any more."""
        self.can_ask = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))

    def note_plan(self) -> None:
        """The run is in mode lazy: ask for its plan as for a call. Raises `Failed` as `note` does."""
        if (plan := self._run.plan()) is None:
            return
        if self.can_ask:
            for line in value_lines({"calls": plan["calls"]}, 2):
                click.echo(line, err=True)
            if _answer("let this plan run? y or n").lower() in ("y", "yes"):
                self._run.approve_plan(plan["plan"])
            else:
                self._run.cancel()
        elif not self._is_embedded:
            tell(f"the plan waits for a person: acts held {self._run.id}, then acts approve, acts amend or acts cancel")
        else:
            raise Failed(
                "the plan waits for a person, and there is no terminal to ask at: run it from one, or on a server with "
                "`acts submit`, `acts held` and `acts approve`"
            )

    def take(self, event: Event) -> None:
        """Of a call that is held ask the person at the terminal, or say where it is decided on.

        Raises `Failed` where that can be done nowhere, once nothing else is at work or a child run has the call.
        """
        is_held = event.kind == "held"
        if self.can_ask or not self._is_embedded:
            if is_held:
                self._note()
            return
        self._is_stuck = self._is_stuck or is_held
        is_own = event.run is None
        self._left -= is_own and event.kind == "call"
        if self._is_stuck and event.kind in ("held", "call") and (self._left <= 0 or (is_held and not is_own)):
            now = self._run.status()
            self._left = now["calls"].get("running", 0)
            if "held_below" not in now and ("running" in now["calls"] or "held" not in now["calls"]):
                return
            raise Failed(
                "a call waits for a person, and there is no terminal to ask at: run it from one, or on a server with "
                "`acts submit`, `acts held` and `acts approve`"
            )

    def _note(self) -> None:
        if self.can_ask:
            self._ask()
        else:
            tell(f"a call waits for a person: acts held {self._run.id}, then acts approve or acts reject")

    def _ask(self) -> None:
        for call in self._run.held():
            for line in held_lines(call):
                click.echo(line, err=True)
            answer = _answer("your answer" if call.get("question") else "let it run? y, or why not")
            try:
                if call.get("question"):
                    self._reply(call, answer)
                elif answer.lower() in ("y", "yes"):
                    self._run.approve(call["call"], shown=call["shown"])
                else:
                    reason = _answer("why not") if answer.lower() in ("n", "no") else answer
                    self._run.reject(call["call"], reason, shown=call["shown"])
            except (AlreadyDecided, HeldAnew, NotHeld) as error:  # somewhere else
                tell(str(error))

    def _reply(self, call: Mapping[str, Any], answer: str) -> None:
        """Answer a question by the text or, where that is refused, the JSON value that it is; ask until one fits."""
        from acts_celery.protocol import Rejected

        while True:
            refusal = ""
            for value in _values(answer):
                try:
                    self._run.answer(call["call"], value, shown=call["shown"])
                except Rejected as rejected:
                    refusal = "; ".join(problem.message for problem in rejected.errors)
                else:
                    return
            tell(refusal)
            answer = _answer("your answer")


def _values(answer: str) -> Iterator[Any]:
    """What a text may mean: itself, or the JSON value that it writes."""
    yield answer
    with suppress(ValueError):
        yield json.loads(answer)


def _answer(prompt: str) -> str:
    """What the person says; not through `input`, which writes to stdout. The end of the input interrupts the run."""
    said = ""
    while not said.strip():
        click.echo(f"  {prompt}: ", nl=False, err=True)
        if not (said := sys.stdin.readline()):
            raise KeyboardInterrupt
    return said.strip()
