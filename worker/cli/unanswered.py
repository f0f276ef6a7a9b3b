"""Requests to models that are made again: what `acts status` says of them, and what a command that waits says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from .beside import beside
from .output import escaped
from .rendering import counted

if TYPE_CHECKING:
    from threading import Event

    from acts_celery.worker.client.runs import Run

_LOOK_SECONDS: Final = 1.0
_MOST_SHOWN: Final = 3


def unanswered_lines(told: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Of each request, from `Run.status`, what the model has said and when it is asked again; of many the soonest."""
    for one in told[:_MOST_SHOWN]:
        what = "the request of the loop" if one["call"] is None else f"call {escaped(one['call'])}"
        yield f"the model has not answered {what} ({escaped(one['type'])}: {escaped(one['message'])}): {_when(one)}"
    if len(told) > _MOST_SHOWN:
        yield f"the model has not answered {counted(len(told) - _MOST_SHOWN, 'more request')}: --json lists them"


def unanswered_words(told: Sequence[Mapping[str, Any]]) -> str:
    """The soonest in the few words for which a line of 80 columns has room; nothing where there is none."""
    if not told:
        return ""
    again = told[0]["again_in_seconds"]
    when = f" in {again:.0f} s" if again >= 1 else ""
    return f"{escaped(told[0]['type'])}: try {told[0]['tries'] + 1}{when}"


def watching(run: Run, show: Callable[[Sequence[Mapping[str, Any]]], None]) -> AbstractContextManager[None]:
    """While the block lasts, show now and then which requests of a run are made again."""

    def look(is_over: Event) -> None:
        while not is_over.wait(_LOOK_SECONDS):
            try:
                told = run.status().get("unanswered", [])
            except Exception:  # the command that waits for the run says what is wrong with the server
                return
            if not is_over.is_set():
                show(told)

    return beside(look, "acts-unanswered")


def _when(one: Mapping[str, Any]) -> str:
    again = one["again_in_seconds"]
    when = f"again in {again:.0f} s" if again >= 1 else "it is being asked again"
    return f"asked {counted(one['tries'], 'time')}, {when}"
