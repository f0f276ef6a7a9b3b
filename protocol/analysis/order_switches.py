"""Switches: values of which each reader takes others, so that they decide which of these can run (SPEC R4.1).

That is how a model writes `switch`: a call says which it is, and of several others each takes some of the answers, by
what its tool admits: an `enum`, a type, a range.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from itertools import combinations
from typing import Final, NamedTuple

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.tools import Tool
from acts_celery.protocol.language.messages import ERROR
from acts_celery.protocol.language.references import Expression, Path, Reference
from acts_celery.protocol.schemas.algebra import EVERYTHING, Algebra, Values

from .lane_views import View
from .type_flow import path_of

_MOST_KINDS: Final = 32
"""A value with more kinds of readers decides nothing, as far as is looked."""
_MOST_WAYS: Final = 64


class _Kind(NamedTuple):
    """Readers of a value that take the same of it."""

    expression: Expression
    tool: str
    path: Path

    @property
    def place(self) -> Reference:
        """What is read if it is there."""
        return self.expression.alternatives[0][-1]


def refusals_of(
    view: View, tools: Mapping[str, Tool], algebra: Algebra
) -> tuple[list[tuple[frozenset[int], ...]], bool]:
    """For each value that decides the ways it can: the readers that are refused; and whether these are all ways."""
    values: dict[Hashable, dict[_Kind, list[int]]] = {}
    for call in view.calls.values():
        for at, expression in call.reads if not call.is_note and call.tool in tools else ():
            if at not in call.templates and _is_settled(view, call, expression):
                near = values.setdefault((id(view.graph_of[call.index]), expression.alternatives[0][-1].key[:2]), {})
                near.setdefault(_Kind(expression, call.tool, path_of(call, at)), []).append(call.index)
    found, is_exact = [], True
    for kinds in values.values():
        taken = {kind: algebra.along(algebra.described_by(tools[kind.tool].document), kind.path) for kind in kinds}
        picky = [kind for kind in kinds if taken[kind] != EVERYTHING] if len(kinds) > 1 else []
        apart = [pair for pair in combinations(picky[:_MOST_KINDS], 2) if _are_apart(*pair, taken, algebra)]
        ways = _ways(kinds, apart) if apart else []
        is_exact = is_exact and len(picky) <= _MOST_KINDS and len(ways) <= _MOST_WAYS
        if ways:
            found.append(tuple(dict.fromkeys(ways[:_MOST_WAYS])))
    return found, is_exact


def _is_settled(view: View, call: Call, expression: Expression) -> bool:
    """Whether a call waits for all who write what it reads, so that another call that does so reads the same."""
    for place in expression.references:
        lines = list(view.writers.lines(place))
        are_earlier = all(line.calls[-1] < call.index for line in lines)
        are_later = all(line.calls[0] > call.index for line in lines) and not view.holds(call.index, place)
        if place.kind == ERROR or not (are_earlier or are_later):
            return False
    return True


def _are_apart(one: _Kind, other: _Kind, taken: Mapping[_Kind, Values], algebra: Algebra) -> bool:
    """Whether no value is taken by both. A part of a value is there only where the value itself is."""
    several = {kind: len(kind.expression.alternatives) > 1 for kind in (one, other)}  # another is read where it is not
    upper, lower = sorted((one, other), key=lambda kind: (len(kind.place.path), not several[kind]))
    if lower.place.path[: len(upper.place.path)] != upper.place.path:
        return False
    is_alone = not several[lower] and (not several[upper] or len(upper.expression.alternatives[0]) == 1)
    if not is_alone and one.expression != other.expression:
        return False
    return not algebra.fit(algebra.along(taken[upper], lower.place.path[len(upper.place.path) :]), taken[lower])


def _ways(kinds: Mapping[_Kind, list[int]], apart: list[tuple[_Kind, _Kind]]) -> list[frozenset[int]]:
    """The readers that are refused where as many kinds as possible take the value, for each set of such kinds."""
    excluded: dict[_Kind, set[_Kind]] = {kind: set() for pair in apart for kind in pair}
    for one, other in apart:
        excluded[one].add(other)
        excluded[other].add(one)
    found = []
    for taking in _together(set(), list(excluded), set(), excluded):
        refused = excluded.keys() - taking
        found.append(frozenset(index for kind in refused for index in kinds[kind]))
        if len(found) > _MOST_WAYS:
            break
    return found


def _together(
    taking: set[_Kind], left: list[_Kind], done: set[_Kind], apart: Mapping[_Kind, set[_Kind]]
) -> Iterator[set[_Kind]]:
    """Every largest set of kinds of which no two are apart (the algorithm of Bron and Kerbosch)."""
    if not left and not done:
        yield taking
    for number, kind in enumerate(left):
        others = left[number + 1 :]
        passed = done | set(left[:number])
        away = apart[kind]
        yield from _together({*taking, kind}, [k for k in others if k not in away], passed - away, apart)
