"""What this process has refused, counted for `celery inspect stats`; each refusal is one line in the log as well."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from celery import bootsteps
from celery.worker import WorkController

_counts: Counter[str] = Counter()
_lock = threading.Lock()


def count_refusal(kind: str, number: int = 1) -> None:
    """Count what was refused; `kind` is one of few words. May be called from any thread."""
    with _lock:
        _counts[kind] += number


def refusals() -> dict[str, int]:
    """How much of each kind was refused in this process."""
    with _lock:
        return dict(_counts)


class RefusalsStep(bootsteps.StartStopStep):  # type: ignore[misc]  # celery has no types
    """Shows the counts among a worker's statistics, as `refused`."""

    def info(self, _: WorkController) -> dict[str, Any]:
        """Called by Celery for `inspect stats`."""
        return {"refused": refusals()}
