"""The facts about this process: its problems, what it has refused, its figures, and the names in these."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from celery import bootsteps
from celery.worker import WorkController

from . import limits

# What is wrong with this process, for `celery inspect stats`, `acts doctor` and `acts health`.
#
# Whatever is done again and again in a thread of its own is watched (`outages`): a thread that has ended, or that has
# not succeeded for long, leaves a worker that takes tasks and does only half of its work.

Problem = Callable[[], str | None]
"""Says what is wrong, where something is: the rest of a sentence that begins with what it concerns."""

_watched: Final[dict[str, Problem]] = {}
_lock: Final = threading.Lock()


def watch(what: str, problem: Problem) -> None:
    """Have something asked from now on, in place of what was watched under that name. May be called from any thread."""
    with _lock:
        _watched[what] = problem


def forget(what: str, problem: Problem) -> None:
    """Stop asking: what was watched was stopped."""
    with _lock:
        if _watched.get(what) == problem:
            del _watched[what]


def problems() -> dict[str, str]:
    """The problems of this process, by the part that they concern."""
    with _lock:
        watched = dict(_watched)
    found = {what: problem() for what, problem in watched.items()}
    return {what: said for what, said in found.items() if said is not None}


# What this process has refused, counted for `celery inspect stats`; each refusal is one line in the log as well.

_counts: Counter[str] = Counter()
_refusals_lock = threading.Lock()


def count_refusal(kind: str, number: int = 1) -> None:
    """Count what was refused; `kind` is one of few words. May be called from any thread."""
    with _refusals_lock:
        _counts[kind] += number


def refusals() -> dict[str, int]:
    """Count what was refused in this process, by kind."""
    with _refusals_lock:
        return dict(_counts)


class RefusalsStep(bootsteps.StartStopStep):  # type: ignore[misc]  # celery has no types
    """Shows the counts among a worker's statistics, as `refused`."""

    def info(self, _: WorkController) -> dict[str, Any]:
        """Called by Celery for `inspect stats`."""
        return {"refused": refusals()}


# What is counted and timed of a process's calls.
#
# The parts of a worker say here what happens, as it happens. A keeper of figures takes the place of `Metrics`, which
# keeps none (`worker.telemetry.process_metrics`, where a port is set). So nothing is loaded and next to nothing done
# where nobody reads figures.


class Tokens(NamedTuple):
    """The tokens of an answer of a model; none is counted twice."""

    input: int
    """Tokens of the request without those that were read from a cache."""
    cached: int
    output: int


class Metrics:
    """Keeps none. Each method may be called from any thread."""

    def call_ended(self, tool: str, status: str) -> None:
        """A call has ended: its outcome was committed here."""

    def attempt_began(self, code: str) -> None:
        """An activity or a delegate in code was called, or a model is asked for a delegate."""

    def attempt_ended(self, code: str, outcome: str, seconds: float) -> None:
        """An activity, a delegate or a model has ended: `done`, `failed`, `retried` or `cancelled`."""

    def progressed(self, code: str) -> None:
        """An attempt has reported its progress, and that is written."""

    def task_taken(self, queue: str) -> None:
        """A task was taken from a queue."""

    def task_answered(self, queue: str) -> None:
        """A task was acknowledged."""

    def waited(self, queue: str, code: str, seconds: float) -> None:
        """A task has lain in a queue for so long; `code` is what runs its call, or nothing."""

    def committed(self, seconds: float) -> None:
        """A step was written to the log."""

    def run_ended(self, status: str) -> None:
        """A run has ended, and was taken from the list of those under way here."""

    def model_answered(self, model: str, tokens: Tokens | None, nanodollars: int | None, seconds: float) -> None:
        """A model has answered; None for what its provider does not report, or no price is known of."""

    def model_failed(self, model: str, error: str) -> None:
        """Count a request to a model that failed with an error of that type."""


_current: list[Metrics] = [Metrics()]


def metrics() -> Metrics:
    """The keeper of this process's figures."""
    return _current[-1]


def keep_metrics(keeper: Metrics) -> None:
    """Set the keeper of this process's figures."""
    _current[:] = [keeper]


# Names that come from outside and become labels of figures: a bounded number of them, of a bounded form.
#
# What keeps figures has a series for each name. A client that submits runs can make up names of tools, so what is
# beyond the bound has no name of its own.

_NAME: Final = re.compile(r"\w[\w.:/@+-]{0,99}")


class BoundedNames:
    """The names that were given out: those that are known beforehand, and the first others that were asked for."""

    def __init__(self, most: int = limits.MOST_NAMES, known: Iterable[str] = ()) -> None:
        self._given = {name for name in known if _NAME.fullmatch(name)}
        self._most = most + len(self._given)

    def bounded(self, name: str) -> str | None:
        """The name, where it is one of those given out; None where it is too long, too odd or one too many."""
        if name in self._given:
            return name
        if len(self._given) >= self._most or not _NAME.fullmatch(name):
            return None
        self._given.add(name)
        return name
