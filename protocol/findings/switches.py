"""Switches: places of which the one value that comes there decides who of its readers can run (SPEC R4.1).

That is how a model writes `switch`: a call says which it is, and of several others each takes one of the answers, by
the `enum` or `const` of its tool.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from protocol.calls import Call
from protocol.references import Reference
from protocol.writers import Writers

from .demands import Demand, parameter_at
from .finding import FAILURES
from .memory import Memory

_MOST_VALUES: Final = 64

Switches = Mapping[Reference, tuple[frozenset[int], ...]]
"""Place -> for each value that can decide there the readers that are refused."""


def read_switches(calls: Iterable[Call], writers: Writers, memory: Memory) -> Switches:
    """The switches among some calls: where one call alone writes, so that all readers find the same."""
    readers: defaultdict[Reference, dict[int, tuple[Demand, ...]]] = defaultdict(dict)
    for call in calls:
        for at, expression in call.reads if not call.is_thought else ():
            place = expression.references[0]
            if len(expression.references) == 1 and place.kind != FAILURES:
                demands = memory.demands(parameter_at(call, at))
                if any(demand.admitted.values is not None for demand in demands):
                    readers[place][call.index] = demands
    found = {place: _refused(demands) for place, demands in readers.items() if _has_one_writer(place, writers)}
    return {place: refused for place, refused in found.items() if any(refused)}


def _refused(readers: Mapping[int, tuple[Demand, ...]]) -> tuple[frozenset[int], ...]:
    values: list[Any] = [
        value for demands in readers.values() for demand in demands for value in demand.admitted.values or ()
    ]
    if len(readers) < 2 or len(values) > _MOST_VALUES:
        return ()
    return tuple(
        dict.fromkeys(
            frozenset(
                index
                for index, demands in readers.items()
                if not all(demand.admitted.admits(value) for demand in demands)
            )
            for value in values
        )
    )


def _has_one_writer(place: Reference, writers: Writers) -> bool:
    return len({index for line in writers.lines(place) for index in line.calls[:2]}) == 1
