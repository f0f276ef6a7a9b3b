"""Ticks that come to the same as the one before: a loop that repeats itself does not get on.

A tick is compared with the one before by the log alone: its calls as they were written, and what has become of each. A
call with references counts as the same where nothing that it may read has changed meanwhile. The places that the engine
gives, another one for each call of the run, count as the same by their order in the tick.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from acts_celery.protocol.engine.loop import Tick
from acts_celery.protocol.engine.solution_output import holds_references
from acts_celery.protocol.requests.own_places import given_places
from acts_celery.protocol.requests.untrusted import told_type
from acts_celery.worker.wire.packing import pack

from .loop_view import Ended, LoopView

_GROWING: Final = ("push", "concat")
_OWN: Final = frozenset({"solution", "error"})
"""The messages that a loop writes itself."""


def repeats_of(view: LoopView) -> dict[str, Any] | None:
    """What the last tick has come to, as a `digest`, and how many `times` in a row; None where it had no calls."""
    tick = view.loop.last
    written = tick.solution["solution"]["calls"] if tick is not None and tick.solution is not None else []
    calls = [call for call in written if isinstance(call, dict)]
    if tick is None or not calls:
        return None
    digest = hashlib.sha256(pack(_in_slots(_given(view, tick), [_written(calls), _ends(view, tick)]))).hexdigest()
    before = tick.repeats or {}
    is_same = before.get("digest") == digest and not _has_moved(view, calls)
    return {"digest": digest, "times": before["times"] + 1 if is_same else 1}


def _written(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls without what the model has thought of them."""
    return [{key: part for key, part in call.items() if key != "_reasoningForCall"} for call in calls]


def _given(view: LoopView, tick: Tick) -> Sequence[str | None]:
    """The places that the engine gave in the tick, of calls that were functions."""
    calls = tick.solution["solution"]["calls"] if tick.solution is not None else ()
    return given_places(view.asks, calls, tick.first) if view.asks is not None else ()


def _in_slots(paths: Sequence[str | None], value: Any) -> Any:
    """A value with these places named by their order."""
    given = [(path, f"{path.rpartition('.')[0]}.slot {at}") for at, path in enumerate(paths) if path is not None]
    keys = {path.rpartition(".")[2]: named.rpartition(".")[2] for path, named in given}

    def renamed(part: Any) -> Any:
        if isinstance(part, dict):
            return {keys.get(key, key): renamed(item) for key, item in part.items()}
        if isinstance(part, list | tuple):
            return list(map(renamed, part))
        if isinstance(part, str):
            return next((named + part[len(path) :] for path, named in given if _leads_to(part, path)), part)
        return part

    return renamed(value) if given else value


def _leads_to(text: str, path: str) -> bool:
    """Whether a text is a reference to a place, or into it."""
    return text.startswith(path) and text[len(path) : len(path) + 1] in ("", ".", "[")


def _ends(view: LoopView, tick: Tick) -> list[Any]:
    """What has become of the calls of the tick, and what was wrong with it."""
    ended = sorted(view.ended.items(), key=lambda pair: (pair[0][1], pair[0][0] or ""))
    wrong = [[error.type, error.message, error.pointer, error.instance] for error in tick.invalid]
    return [
        wrong,
        [[instance, end.status.value, *_said(end, hides=view.hides)] for (instance, _), end in ended],
    ]


def _said(end: Ended, *, hides: bool) -> list[Any]:
    """What a call has ended with; of what its model is not shown, how much that is."""
    data = [message.get("data") for message in end.messages]
    if hides and end.labels:
        return [told_type(end.error["type"]) if end.error is not None else None, [len(pack(each)) for each in data]]
    return [end.error, data]


def _has_moved(view: LoopView, calls: list[dict[str, Any]]) -> bool:
    """Whether something has come that no call of the tick has written, or grows with each of them."""
    new = view.messages[view.rendered :]
    is_told = any("_call" not in message and message.get("type") not in _OWN for message in new)
    return is_told or any(call.get("_outputMethod") in _GROWING and holds_references(call) for call in calls)
