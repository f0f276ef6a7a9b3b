"""What is counted and timed of a process's calls.

The parts of a worker say here what happens, as it happens. Who keeps figures takes the place of `Figures`, which keeps
none (`worker.metrics.process_figures`, where a port is set). So nothing is loaded and next to nothing done for figures
that nobody reads.
"""

from __future__ import annotations

from typing import NamedTuple


class Tokens(NamedTuple):
    """What an answer of a model took; none of them is counted twice."""

    input: int
    """Of the request, but for those that were read from a cache."""
    cached: int
    output: int


class Figures:
    """Keeps none. Each method may be called from any thread."""

    def call_ended(self, tool: str, status: str) -> None:
        """A call has ended: its outcome was committed here."""

    def attempt_began(self, code: str) -> None:
        """An activity or a delegate in code was called, or a model is asked for a delegate."""

    def attempt_ended(self, code: str, outcome: str, seconds: float) -> None:
        """That is over: `done`, `failed`, `retried` or `cancelled`."""

    def task_taken(self, queue: str) -> None:
        """A task was taken from a queue."""

    def task_answered(self, queue: str) -> None:
        """It is done with, and the broker knows."""

    def waited(self, queue: str, code: str, seconds: float) -> None:
        """A task has lain in a queue for so long; `code` is what carries its call out, or nothing."""

    def committed(self, seconds: float) -> None:
        """A step was written to the log."""

    def run_ended(self, status: str) -> None:
        """A run has ended, and was taken from the list of those under way here."""

    def model_answered(self, model: str, tokens: Tokens | None, nanodollars: int | None, seconds: float) -> None:
        """A model has answered; None for what its provider does not report, or no price is known of."""

    def model_failed(self, model: str, error: str) -> None:
        """A model was asked, and failed with an error of that type."""


_current: list[Figures] = [Figures()]


def figures() -> Figures:
    """Who keeps the figures of this process."""
    return _current[-1]


def keep_figures(keeper: Figures) -> None:
    """Have somebody keep them from now on."""
    _current[:] = [keeper]
