"""What is wrong with this process, for `celery inspect stats`, `acts doctor` and `acts health`.

Whatever is done again and again in a thread of its own is watched (`outages`): a thread that has ended, or that has not
succeeded for long, leaves a worker that takes tasks and does only half of its work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

Problem = Callable[[], str | None]
"""Says what is wrong, where something is: the rest of a sentence that begins with what it concerns."""

_watched: Final[dict[str, Problem]] = {}
_lock: Final = threading.Lock()


def watch(what: str, problem: Problem) -> None:
    """Have something asked from now on, in place of what was watched under that name. May be called from any thread."""
    with _lock:
        _watched[what] = problem


def forget(what: str, problem: Problem) -> None:
    """Ask no more: it was stopped."""
    with _lock:
        if _watched.get(what) == problem:
            del _watched[what]


def problems() -> dict[str, str]:
    """What is wrong in this process, by what it concerns."""
    with _lock:
        watched = dict(_watched)
    found = {what: problem() for what, problem in watched.items()}
    return {what: said for what, said in found.items() if said is not None}
