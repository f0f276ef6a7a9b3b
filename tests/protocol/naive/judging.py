"""Judging: whether a graph is valid, and whether the order of its calls can matter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .folding import NOTHING, found
from .places import (
    ERROR,
    Place,
    afters,
    expressions,
    is_expression,
    may_fail,
    overlap,
    place,
    places_seen,
    scopes,
    written,
)
from .running import Calls, World, around, awaited, places_of, seen

_INSIDE = re.compile(r"(?<!†)†([^\W\d][\w-]*)((?:\.\w+)+)")


def faults(submission: Mapping[str, Any]) -> set[str]:
    """What is wrong with the graph: `nothing` can bring a value, or calls wait for each other in a `cycle`; and a text
    has a reference `inside` to what may be there.
    """
    world = World(submission, {})
    wrong: set[str] = set()
    lanes = world.lanes()
    if any(
        _is_somewhere(-1, at, world, lanes) for own in lanes.values() for call in own.values() for at in _inside(call)
    ):
        wrong.add("inside")
    for instance, own in lanes.items():
        visible, initial = {**lanes.get(None, {}), **own}, world.values(instance)
        before: dict[int, set[int]] = {}
        for index, call in own.items():
            for groups in expressions(call):
                if not any(all(_possible(index, at, own, visible, initial) for at in group) for group in groups):
                    wrong.add("nothing")
            if not all(_is_somewhere(index, at, world, lanes) for at in afters(call)):
                wrong.add("nothing")
            each = [awaited(index, at, own, visible, initial) for at in places_of(call)]
            before[index] = set().union(around(index, call, visible), *each) & own.keys()
        while free := [index for index in before if not before[index] & before.keys()]:
            for index in free:
                del before[index]
        if before:
            wrong.add("cycle")
    return wrong


def _inside(value: Any) -> Iterator[Place]:
    """The places that texts name with a dagger that they do not begin with."""
    if isinstance(value, str) and not is_expression(value):
        for kind, path in _INSIDE.findall(value):
            yield place(f"†{kind}{path}")
    for below in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if not str(below[0]).startswith("_"):
            yield from _inside(below[1])


def _possible(index: int, at: Place, own: Calls, visible: Calls, initial: Mapping[str, Any]) -> bool:
    if at[0] == "error":
        return found(initial, at) is not NOTHING or any(other < index for other in own)
    others = [one for other, call in visible.items() if other != index for one in written(call)]
    return found(initial, at) is not NOTHING or any(overlap(at, one) for one in others)


def _is_somewhere(index: int, at: Place, world: World, lanes: Mapping[str | None, Calls]) -> bool:
    """Whether anybody has a value at a place that a call comes after, or another call writes there."""
    others = [one for own in lanes.values() for other, call in own.items() if other != index for one in written(call)]
    held = (found(world.values(instance), at) is not NOTHING for instance in (None, *world.instances))
    return any(overlap(at, one) for one in others) or any(held)


def is_deterministic(submission: Mapping[str, Any]) -> bool:
    """Whether every order that the rules allow must give the same: whoever writes where another reads or writes has an
    order with that one which no early end can undo.
    """
    world = World(submission, {})
    lanes = world.lanes()
    return all(_is_lane_deterministic(world, instance, lanes) for instance in lanes)


def _is_lane_deterministic(
    world: World, instance: str | None, lanes: Mapping[str | None, Mapping[int, Mapping[str, Any]]]
) -> bool:
    visible = {**lanes.get(None, {}), **lanes[instance]}
    views = {index: world.values(instance if index in lanes[instance] else None) for index in visible}
    shared, own = lanes.get(None, {}), lanes[instance]
    mine = {index: own if index in own else shared for index in visible}
    shown = {index: visible if index in own else shared for index in visible}
    direct = {
        index: {at: awaited(index, at, mine[index], shown[index], views[index]) for at in places_of(call)}
        for index, call in visible.items()
    }
    looked = seen(shared, shared, shared, world.values(None)) | seen(own, own, visible, world.values(instance))
    is_told = any(at[0] == "error" for call in visible.values() for at in places_seen(call))
    which = [at for call in visible.values() for groups in expressions(call) for group in groups for at in group[-1:]]
    which += [at for call in visible.values() for at in scopes(call)]
    is_told_which = any(at[0] == "error" for at in which)  # and not only whether there is one
    sure = {
        index: _surely_before(call, direct[index]) | looked[index] | around(index, call, shown[index])
        for index, call in visible.items()
    }
    ordered = {index: _closure(index, sure, visible) for index in visible}
    has_schema = any("schema" in message for message in world.context)

    def _left(call: Mapping[str, Any]) -> list[Place]:
        """Where a call may leave something: what it writes, and its error where errors are read."""
        return [*written(call), *([ERROR] if is_told and (has_schema or may_fail(call)) else [])]

    for index, call in visible.items():
        for other, writer in visible.items():
            if other == index:
                continue
            wrote, writes = _left(writer), _left(call)
            compete = [at for at in writes if at != ERROR or is_told_which]
            if _any_overlap(compete, wrote) and other not in ordered[index] and index not in ordered[other]:
                return False
            for at in places_of(call):
                if _any_overlap([at], wrote) and other not in direct[index][at] and index not in ordered[other]:
                    return False
            is_seen = call["_tool"].lower().endswith("see") and _any_overlap(
                scopes(call), wrote
            )  # others make nothing of it
            if is_seen and other not in looked[index] and index not in ordered[other]:
                return False
    return True


def _surely_before(call: Mapping[str, Any], direct: Mapping[Place, set[int]]) -> set[int]:
    """The calls that have ended whenever this one starts: those behind a first alternative of a single reference."""
    first = [groups[0][0] for groups in expressions(call) if len(groups[0]) == 1]
    return set().union(*(direct[at] for at in first))


def _closure(index: int, sure: Mapping[int, set[int]], calls: Mapping[int, Mapping[str, Any]]) -> set[int]:
    """Those before a call, also through calls that are not skipped before all that they wait for has ended: those with
    one parameter's place and nothing else, with scopes only, or with `_after` only.
    """
    reached, stack = set(sure[index]), list(sure[index])
    while stack:
        between = stack.pop()
        call = calls[between]
        if len(places_of(call)) + bool(scopes(call)) + bool(afters(call)) <= 1:
            new = sure[between] - reached
            reached |= new
            stack += new
    return reached


def _any_overlap(some: Sequence[Place], others: Sequence[Place]) -> bool:
    return any(overlap(one, other) for one in some for other in others)
