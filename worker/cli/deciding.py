"""Deciding on held calls from `acts run`: at a terminal the person is asked as soon as a call is held (SPEC R14)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from worker.cli.failures import Failed
from worker.cli.output import tell
from worker.cli.people import held_lines
from worker.errors import AlreadyDecided, NotHeld

if TYPE_CHECKING:
    from worker.client.runs import Run


class Decider:
    """What `acts run` does about the held calls of its run."""

    def __init__(self, run: Run, *, is_embedded: bool) -> None:
        self._run = run
        self._is_embedded = is_embedded
        self.can_ask = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))

    def note(self) -> None:
        """A call is held: ask the person at the terminal, or say where it is decided on.

        Raises `Failed` where that can be done nowhere, and nothing else is at work.
        """
        if self.can_ask:
            self._ask()
            return
        if not self._is_embedded:
            tell(f"a call waits for a person: acts held {self._run.id}, then acts approve or acts reject")
        elif not self._run.status()["calls"].keys() & {"running", "waiting"}:
            raise Failed(
                "a call waits for a person, and there is no terminal to ask at: run it from one, or on a server with "
                "`acts submit`, `acts held` and `acts approve`"
            )

    def _ask(self) -> None:
        for call in self._run.held():
            for line in held_lines(call):
                click.echo(line, err=True)
            answer = _answer()
            try:
                if answer.lower() in ("y", "yes"):
                    self._run.approve(call["call"])
                else:
                    self._run.reject(call["call"], answer)
            except (AlreadyDecided, NotHeld) as error:  # somewhere else
                tell(str(error))


def _answer() -> str:
    """What the person says; not through `input`, which writes to stdout. The end of the input interrupts the run."""
    said = ""
    while not said.strip():
        click.echo("  let it run? y, or why not: ", nl=False, err=True)
        if not (said := sys.stdin.readline()):
            raise KeyboardInterrupt
    return said.strip()
