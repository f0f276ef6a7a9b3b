"""Order: what comes out differently, or never, by how calls are ordered (SPEC R6.1, R6.4-R6.6).

Asked of the `worlds` of each view: which calls run in none of them, whose result is read in none, and what depends on
which call ends first (`order_races`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Final

from acts_celery.protocol.graph.readers import places_read_first
from acts_celery.protocol.language.messages import ERROR
from acts_celery.protocol.schemas.algebra import Algebra
from acts_celery.protocol.slips.known_places import is_promised
from acts_celery.protocol.submission.layout import Layout

from .finding import Finding, listed
from .lane_views import View, views_of
from .order_races import Races
from .order_switches import refusals_of
from .worlds import Worlds, choices_of

_MOST_CALLS: Final = 50_000
"""So many calls are looked at, over all views."""
_MOST_PROVED: Final = 20
"""Of calls that run in none of the worlds that were tried so many are looked at by themselves."""


def order_findings(layout: Layout) -> Iterator[Finding]:
    """The findings about the order of calls, with the instances that they hold in where that is not all of them."""
    algebra = Algebra()
    holders: dict[Finding, list[str | None]] = {}
    running: dict[int, int] = defaultdict(int)
    left = _MOST_CALLS
    for number, view in enumerate(views_of(layout)):
        left -= len(view.calls)
        if left < 0 and number:
            yield Finding(
                "ACT299", "there are too many instances: the order of calls was examined in the first ones only"
            )
            break
        for index in view.own:
            running[index] += len(view.lanes)
        for finding in _Order(view, layout, algebra).findings():
            holders.setdefault(finding, []).extend(lane.instance for lane in view.lanes)
    for finding, instances in holders.items():
        is_everywhere = len(instances) >= min(running[index] for index in finding.calls)
        where = f"in instance{'s' * (len(instances) > 1)} {listed(instances)}: "
        yield finding if is_everywhere else replace(finding, message=where + finding.message)


class _Order:
    """One view, and what its worlds say."""

    def __init__(self, view: View, layout: Layout, algebra: Algebra) -> None:
        self._view = view
        self._layout = layout
        self._refusals, self._is_exact = refusals_of(view, layout.tools, algebra)
        self._worlds = Worlds(view, choices_of(view, self._refusals, is_exact=self._is_exact))

    def findings(self) -> Iterator[Finding]:
        """What is found, calls that never run first."""
        yield from self._unreachable()
        if not any(call.gather for call in self._view.calls.values()):  # which waits for calls that are not in view
            yield from Races(self._view, self._worlds, self._layout).findings()

    def _unreachable(self) -> Iterator[Finding]:
        never = {missing.call for missing in self._view.lanes[0].unsatisfiable}
        position = self._view.position
        own = (self._view.calls[index] for index in self._view.own)
        idle = {
            call.index for call in own if call.expressions and not call.is_note and not self._worlds.ran[call.index]
        }
        for index in sorted(idle - never, key=position.__getitem__)[:_MOST_PROVED]:
            graph = self._view.graph_of[index]
            if never.isdisjoint(graph.before(index)) and self._is_proved(index):
                call = self._view.calls[index]
                read = ", ".join(dict.fromkeys(str(place) for place in places_read_first(call)))
                yield Finding(
                    "ACT101",
                    f"call {index} ({call.tool}) can never run: the values that it reads never exist in one and the "
                    f"same run: {read}",
                    (index,),
                    remedy="write || between values that exclude each other, or make two calls of it",
                )
            never.add(index)

    def _is_proved(self, index: int) -> bool:
        """Whether a call that ran in no world can run in none at all: whatever it hangs on has been gone through."""
        view, alone = self._view, self._view.behind(index)
        for reader, call in alone.calls.items():
            for place in chain.from_iterable(each.references for each in call.expressions):
                is_open = place.kind == ERROR or view.late_writers(reader, place) or is_promised(self._layout, place)
                if is_open and not view.holds(reader, place):
                    return False
        if self._worlds.is_exhaustive:
            return True
        refusals = [tuple(dict.fromkeys(way & alone.calls.keys() for way in ways)) for ways in self._refusals]
        worlds = Worlds(alone, choices_of(alone, refusals, is_exact=self._is_exact))
        return worlds.is_exhaustive and not worlds.ran[index]
