"""Early results: latent calls that a model has answered together with what they refer to (SPEC R4.8a, R12.4).

Whoever writes a call with its result knows what calls with results listed before it write, and nothing else that is
not there yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.graph.readers import sees
from acts_celery.protocol.graph.writers import Writers
from acts_celery.protocol.language.errors import Problem, pointer
from acts_celery.protocol.language.messages import EVERYWHERE
from acts_celery.protocol.language.paths import MISSING
from acts_celery.protocol.language.references import Reference
from acts_celery.protocol.submission.layout import Layout

_MOST_INSTANCES: Final = 100
"""Of the instances of a call that runs in all so many are looked at."""


def premature(layout: Layout) -> Iterator[Problem]:
    """Latent calls whose result was written before what they refer to is there."""
    answered = [call for call in layout.calls if call.given is not MISSING]
    others = _Sight([call for call in layout.calls if call.given is MISSING])
    known = _Sight(answered)
    for call in answered:
        instances = layout.context.instances[:_MOST_INSTANCES] if call.instance == EVERYWHERE else (call.instance,)
        folds = [layout.context.fold(instance) for instance in instances]
        for place in call.read:
            mine, theirs = known.writing(place, call), others.writing(place, call)
            if not (mine or theirs):
                continue
            is_before = any(one < call.index for one in (*mine, *theirs))
            does_wait = is_before or not all(fold.exists(place) for fold in folds)
            if does_wait and theirs:
                text = f"its result was written before call {theirs[0]}, which it refers to, has run: leave _output out"
            elif does_wait and mine and mine[0] > call.index:
                text = f"it refers to the result of call {mine[0]}, which has to be listed before it"
            else:
                continue
            yield Problem(pointer(*layout.submission.place(call.index), "_output"), text)
            break


class _Sight:
    """Which of some calls write at a place that another reads."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls
        self._writers: dict[str | None, Writers] = {}

    def writing(self, place: Reference, reader: Call) -> list[int]:
        """The first of those at, below and above the place, in the order listed."""
        at = reader.instance
        if at not in self._writers:
            self._writers[at] = Writers(call for call in self._calls if sees(reader, call))
        lines = self._writers[at].lines(place)
        return sorted(one for line in lines for one in line.calls[:2] if one != reader.index)
