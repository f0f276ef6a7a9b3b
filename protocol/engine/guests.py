"""Guests: what the lane of an instance says of the gather calls that wait in it (SPEC R10.4).

A backend keeps one number for each gather call: the lanes that have not yet found it settled. A lane that finds it so
says it once, beside the commit that made it so; the last one makes the global lane look at the call again
(`Execution.reconsider`), which then reads the folds of all instances, one after the other.
"""

from __future__ import annotations

from acts_celery.protocol.graph.gathering import Gathers
from acts_celery.protocol.language.references import Reference
from acts_celery.protocol.state.fold import Fold

from .readiness import Readiness, verdict


class Guests:
    """The gather calls in one lane. `fold` holds the messages of the log as the lane's reader sees them."""

    def __init__(self, gathers: Gathers, fold: Fold) -> None:
        self.waiting = gathers.waiting
        """The calls that have anything to wait for in the lane."""
        self._calls = {call.index: call for call in gathers.calls}
        self._readiness = Readiness(self._calls, gathers.graph)
        self._promises = dict(gathers.graph.promises)
        self._fold = fold
        self._ended: set[int] = set()

    @property
    def promised(self) -> tuple[Reference, ...]:
        """The promised places that gather calls still wait for in the lane (SPEC R6.3)."""
        return tuple(self._promises.values())

    def end(self, index: int) -> None:
        """Note that a call of the lane, or a global one, has ended; its messages are in the fold."""
        if index not in self._ended:
            self._ended.add(index)
            self._end(index)

    def give_up_promises(self) -> None:
        """Wait no longer for what is promised."""
        for node in list(self._promises):
            self._end_promise(node)

    def is_settled(self, index: int) -> bool:
        """Whether a gather call has nothing to wait for in this lane any more (SPEC R6.5)."""
        for node, place in tuple(self._promises.items()):
            if self._fold.exists(place):
                self._end_promise(node)
        unsettled = self._readiness.unsettled(index)
        verdicts = (verdict(one.alternatives, unsettled, self._fold.exists) for one in self._calls[index].expressions)
        return self._readiness.are_scopes_settled(index) and all(one is not False for one in verdicts)

    def _end_promise(self, node: int) -> None:
        del self._promises[node]
        self._end(node)

    def _end(self, node: int) -> None:
        for _ in self._readiness.end(node):
            pass
