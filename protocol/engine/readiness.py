"""Readiness: counting down what each call still waits for, and whether it can be read (SPEC R6.1, R6.4-R6.6).

A place is *settled* for a call when everything it waits for there has ended, however it ended. Noting that a call has
ended costs as much as it has readers, not as much as they read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator

from acts_celery.protocol.graph.graph import Graph
from acts_celery.protocol.language.references import Reference


def verdict(
    alternatives: Iterable[Iterable[Reference]],
    unsettled: Container[Reference],
    exists: Callable[[Reference], bool],
) -> bool | None:
    """Whether an expression can be read (SPEC R6.5, R6.6). True: now. False: it has to wait. None: never.

    The first alternative counts of which no settled place is missing. `exists` is asked about settled places only.
    """
    for group in alternatives:
        waits = False
        for place in group:
            if place in unsettled:
                waits = True
            elif not exists(place):
                break
        else:
            return not waits
    return None


class Readiness:
    """Which places are settled for which calls of a lane."""

    def __init__(self, calls: Iterable[int], graph: Graph) -> None:
        self._unsettled: dict[int, dict[Reference, int]] = {}
        self._scopes: dict[int, int] = {}
        self._barriers = {barrier: len(before) for barrier, before in graph.barriers.items()}
        self._readers: dict[int, list[tuple[int, Reference | None]]] = defaultdict(list)
        self._behind: dict[int, list[int]] = defaultdict(list)
        for call in calls:
            places = graph.waits.get(call, {})
            self._unsettled[call] = {place: len(nodes) for place, nodes in places.items() if nodes}
            for place, nodes in places.items():
                for node in nodes:
                    self._readers[node].append((call, place))
            if call in graph.scopes:
                behind = [node for nodes in graph.scopes[call].values() for node in nodes]
                self._scopes[call] = len(behind)
                for node in behind:
                    self._readers[node].append((call, None))
        for barrier, before in graph.barriers.items():
            for node in before:
                self._behind[node].append(barrier)

    def is_settled(self, call: int, place: Reference) -> bool:
        """Whether everything that the call waits for at the place has ended."""
        return place not in self._unsettled[call]

    def unsettled(self, call: int) -> Container[Reference]:
        """The places that are not settled for a call; it changes as calls end."""
        return self._unsettled[call]

    def are_scopes_settled(self, call: int) -> bool:
        """Whether everything that the call waits for by its scopes has ended (SPEC R8.3a)."""
        return not self._scopes.get(call)

    def end(self, call: int) -> Iterator[tuple[int, Reference | None]]:
        """Note that a call has ended, once; yields the readers and places that settle by it, None for their scopes."""
        ended = [call]
        while ended:
            node = ended.pop()
            for barrier in self._behind.pop(node, ()):
                self._barriers[barrier] -= 1
                if not self._barriers[barrier]:
                    ended.append(barrier)
            for reader, place in self._readers.pop(node, ()):
                if place is None:
                    self._scopes[reader] -= 1
                    if not self._scopes[reader]:
                        yield reader, None
                    continue
                unsettled = self._unsettled[reader]
                unsettled[place] -= 1
                if not unsettled[place]:
                    del unsettled[place]
                    yield reader, place
