"""Progress: waiting for a run's end, with a live bar on stderr where that is a terminal."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.client.runs import Run


def wait(
    run: Run,
    on_held: Callable[[], None] = lambda: None,
    *,
    timeout_seconds: float | None = None,
    is_quiet: bool = False,
) -> None:
    """Block until the run has ended; `on_held` is called when a call is held for a person. Raises `TimeoutError`."""
    if _is_live() and not is_quiet:
        _wait_with_bar(run, on_held, timeout_seconds)
    else:
        for event in run.follow(timeout_seconds=timeout_seconds):
            if event.kind == "held":
                on_held()


def _is_live() -> bool:
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _wait_with_bar(run: Run, on_held: Callable[[], None], timeout_seconds: float | None) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("calls"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed, {task.fields[skipped]} skipped"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=run.total, failed=0, skipped=0)
        failed = skipped = 0
        for event in run.follow(timeout_seconds=timeout_seconds):
            if event.kind == "held":
                progress.stop()
                on_held()
                progress.start()
            if event.kind == "call":
                failed += event.status == "failed"
                skipped += event.status == "skipped"
                progress.update(bar, advance=1, failed=failed, skipped=skipped)
