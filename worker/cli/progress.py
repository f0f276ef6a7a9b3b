"""Progress: waiting for a run's end, with a live bar on stderr where that is a terminal."""

from __future__ import annotations

import os
import sys
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

from .output import escaped, tell
from .unanswered import unanswered_lines, unanswered_words, watching

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from acts_celery.worker.client.progress import Event
    from acts_celery.worker.client.runs import Run

_SHOWN: Final = 60
"""So many characters are shown of a text that is being written."""
_QUIET_SECONDS: Final = 15.0
"""So long nothing more is told of requests to models, where there is no bar."""


def wait(
    run: Run,
    on_event: Callable[[Event], None] = lambda event: None,
    *,
    timeout_seconds: float | None = None,
    is_quiet: bool = False,
) -> None:
    """Block until the run has ended; `on_event` is told of each event. Raises `TimeoutError`, and what that raises."""
    if is_live() and not is_quiet:
        _wait_with_bar(run, on_event, timeout_seconds)
    else:
        with nullcontext() if is_quiet else watching(run, _Teller()):
            for event in run.follow(children=True, timeout_seconds=timeout_seconds):
                on_event(event)


class Elements:
    """Counts the elements of the calls with `_each` that are under way, from the events of their run."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str | None, int | None], tuple[int, int]] = {}

    @property
    def text(self) -> str:
        """`3 of 10,000 elements`, nothing where there is no such call."""
        ended, total = (sum(counts) for counts in zip(*self._calls.values(), strict=True)) if self._calls else (0, 0)
        return f"{ended:,} of {total:,} elements" if total else ""

    def take(self, event: Event) -> bool:
        """Take in an event; says whether it has changed anything."""
        call = event.instance, event.index
        if event.run is not None:
            return False
        if event.kind == "each":
            self._calls[call] = 0, event.elements or 0
            return True
        if call not in self._calls or event.kind not in ("element", "call"):
            return False
        ended, total = self._calls.pop(call)
        if event.kind == "element":
            self._calls[call] = ended + 1, total
        return True


class Ticks:
    """What the loop of a run is at, from its events: its tick, and the end of the text that is being written."""

    def __init__(self) -> None:
        self._text = ""
        self.line = ""
        """`tick 2 asked`, `tick 2: … the last words of a text`; nothing where there is no loop."""

    def take(self, event: Event) -> bool:
        """Take in an event; says whether it has changed anything."""
        if event.run is not None:
            return False
        if event.kind == "text":
            self._text = self._text[: event.at] + (event.text or "")
            words = escaped(" ".join(self._text.split())[-_SHOWN:])
            self.line = f"tick {event.tick}: {words}"
        elif event.kind == "tick":
            self._text, self.line = "", f"tick {event.tick} {event.status}"
        return event.kind in ("text", "tick")


class _Teller:
    """Tells of requests to models that are made again, not too often."""

    def __init__(self) -> None:
        self._quiet_until = 0.0

    def __call__(self, told: Sequence[Mapping[str, Any]]) -> None:
        if told and time.monotonic() >= self._quiet_until:
            self._quiet_until = time.monotonic() + _QUIET_SECONDS
            for line in unanswered_lines(told):
                tell(line)


def is_live() -> bool:
    """Whether a bar can be shown."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _wait_with_bar(run: Run, on_event: Callable[[Event], None], timeout_seconds: float | None) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("calls"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed, {task.fields[skipped]} skipped"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[elements]}"),
        TextColumn("{task.fields[loop]}", markup=False),
        TextColumn("{task.fields[unanswered]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        # How many calls a loop will have is not known when it begins.
        bar = progress.add_task("", total=run.total or None, failed=0, skipped=0, elements="", loop="", unanswered="")
        failed = skipped = 0
        elements, ticks = Elements(), Ticks()
        with watching(run, lambda told: progress.update(bar, unanswered=unanswered_words(told))):
            for event in run.follow(children=True, timeout_seconds=timeout_seconds):
                if event.kind == "held":  # a person may be asked
                    progress.stop()
                    on_event(event)
                    progress.start()
                else:
                    on_event(event)
                if elements.take(event):
                    progress.update(bar, elements=elements.text)
                if ticks.take(event):
                    progress.update(bar, loop=ticks.line)
                if event.kind == "call" and event.run is None:
                    failed += event.status == "failed"
                    skipped += event.status == "skipped"
                    progress.update(bar, advance=1, failed=failed, skipped=skipped)
