"""Instances: in which of them a finding holds (SPEC R10.2).

Each instance runs the calls of a plan on data of its own: what can never be in one may well be in another. So lanes are
looked at one by one, the first of them. What holds in all that run a call is told of the call, all else of instances.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from protocol.calls.call import Call
from protocol.graph.lanes import Lane

from .finding import Finding
from .order import MOST_CALLS

MOST_TOLD: Final = 100
"""Findings of one kind."""
_MOST_CALLS: Final = 50_000
"""So many calls are looked at, over all lanes."""
_PER_CALL: Final = 4
"""As many places, that a call reads, sees or writes, are looked at in the time that a call takes."""
_PER_LANE: Final = 4
"""As many calls are looked at in the time that a lane takes besides."""
_SHARED: Final = 8
"""As many global calls, which each instance sees beside its own, take as long as one of its own."""
_NAMED: Final = 3


def looked_at(lanes: Mapping[str | None, Lane]) -> list[Lane]:
    """The global lane, and those of the first instances, which see the global calls too."""
    found: list[Lane] = []
    left = _MOST_CALLS
    shared = _weight(lanes[None].calls) if None in lanes else 0
    for lane in sorted(lanes.values(), key=lambda lane: lane.instance is not None):
        left -= _PER_LANE + _weight(lane.calls) + (shared // _SHARED if lane.instance is not None else 0)
        if left < 0 and found:
            break
        found.append(lane)
    return found


def not_looked_at(lanes: Mapping[str | None, Lane], first: Sequence[Lane]) -> Iterator[Finding]:
    """That only the first lanes were looked at, where there are others, and some not for the order of their calls."""
    shared = len(lanes[None].calls) if None in lanes else 0
    if any(len(lane.calls) + (shared if lane.instance is not None else 0) > MOST_CALLS for lane in first):
        yield Finding(
            "info",
            f"more than {MOST_CALLS} calls in one lane: what happens to them in no certain order was not looked at",
        )
    if len(first) < len(lanes):
        is_shared = None in lanes
        yield Finding(
            "info",
            f"only the first {len(first) - is_shared} of {len(lanes) - is_shared} instances were looked at: what is "
            "wrong in others alone is not told",
        )


def _weight(calls: Iterable[Call]) -> int:
    """How many calls of few places are looked at in the time that these take."""
    return sum(max(1, _places(call) // _PER_CALL) for call in calls)


def _places(call: Call) -> int:
    """How many places a call reads, sees and writes, as often as it does."""
    return sum(len(expression.references) for _, expression in call.reads) + len(call.scopes) + len(call.written)


class Tally:
    """The findings of one kind about many lanes, each told once.

    `calls` are those of the submission. A call without an instance runs in `lanes` lanes, one with an instance in one.
    """

    def __init__(self, calls: Sequence[Call], lanes: int) -> None:
        self._calls = calls
        self._lanes = lanes
        self._holders: dict[Finding, list[str | None]] = {}

    def add(self, instance: str | None, findings: Iterable[Finding]) -> None:
        """Note what was found in one lane: only as much as would be told of it alone."""
        for finding in dict.fromkeys(islice(findings, MOST_TOLD + 1)):
            self._holders.setdefault(finding, []).append(instance)

    def findings(self) -> Iterator[Finding]:
        """What was found, with the instances it holds in where it does not hold in all that run the calls."""
        for finding, holders in self._holders.items():
            is_everywhere = len(holders) >= self._running(finding.calls)
            yield finding if is_everywhere else replace(finding, message=f"{_where(holders)}, {finding.message}")

    def _running(self, calls: Iterable[int]) -> int:
        """How many lanes run all of some calls."""
        return self._lanes if all(self._calls[index].instance is None for index in calls) else 1


def _where(instances: Sequence[str | None]) -> str:
    names = [repr(instance) for instance in instances[:_NAMED]]
    if len(instances) > _NAMED:
        names.append(f"{len(instances) - _NAMED} more")
    listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return f"in instance{'s' if len(instances) > 1 else ''} {listed}"
