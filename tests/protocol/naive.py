"""What must come out, worked out in the plainest way: everything is looked up anew every time, nothing is kept.

It shares no code with the core: a resolver, a graph and an order of its own. Submissions are taken to be valid. It runs
a lane's calls one by one; `is_deterministic` says whether any other order has to give the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

Segment = str | int
Place = tuple[str, tuple[Segment, ...]]
"""A kind and a path."""
Groups = list[list[Place]]
"""Alternatives of places that belong together."""
NOTHING: Any = object()
INDEX = re.compile(r"0|[1-9][0-9]{0,17}")


class Misfit(Exception):
    """An operation does not fit what is there."""


@dataclass(frozen=True)
class To:
    """A function's result for one of the declared paths."""

    path: str
    value: Any


class Wrong(Exception):
    """What a function raises."""


Function = Callable[[Mapping[str, Any], Mapping[str, Any]], Any]


@dataclass
class Verdict:
    """What a submission leaves behind: statuses by lane and index, values by reader and kind."""

    statuses: dict[str | None, dict[int, str]] = field(default_factory=dict)
    data: dict[str | None, dict[str, Any]] = field(default_factory=dict)


# Reading text.


def places(text: str) -> Groups:
    """`†a.b && †c || †d` as places."""
    tokens = re.findall(r'\["(?:[^"\\]|\\.)*"\]|\|\||&&|[^|&\[]+', text)
    groups: list[list[str]] = [[""]]
    for token in tokens:
        if token == "||":
            groups.append([""])
        elif token == "&&":
            groups[-1].append("")
        else:
            groups[-1][-1] += token
    return [[place(part.strip()) for part in group] for group in groups]


@cache
def place(text: str) -> Place:
    """`†state.user["first name"].0` as kind and path; without † inside the state."""
    if not text.startswith("†"):
        text = "†state" + (text if text.startswith("[") else "." + text)
    kind = re.match(r"†[^.\[]*", text)
    assert kind is not None
    path: list[Segment] = []
    for bare, quoted in re.findall(r'\.([^.\[]+)|\[("(?:[^"\\]|\\.)*")\]', text[kind.end() :]):
        path.append(json.loads(quoted) if quoted else int(bare) if INDEX.fullmatch(bare) else bare)
    return kind[0][1:], tuple(path)


def expressions(call: Mapping[str, Any]) -> Iterator[Groups]:
    """Every expression in a call's parameters."""
    for key, value in call.items():
        if not key.startswith("_"):
            yield from _expressions(value)


def _expressions(value: Any) -> Iterator[Groups]:
    if isinstance(value, str) and value.startswith("†") and not value.startswith("††"):
        yield places(value)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _expressions(item)
    elif isinstance(value, list):
        for item in value:
            yield from _expressions(item)


def slices(call: Mapping[str, Any]) -> list[Place]:
    """The narrow scopes of a call."""
    return [place(scope) for scope in call.get("_scopes", []) if scope.startswith("†")]


def outputs(call: Mapping[str, Any]) -> Groups:
    """Where a call may write."""
    return places(call["_outputPath"]) if call.get("_outputPath") is not None else []


def overlap(one: Place, other: Place) -> bool:
    """Whether a place is the other, above it or below it."""
    mine, theirs = [one[0], *map(str, one[1])], [other[0], *map(str, other[1])]
    return all(a == b for a, b in zip(mine, theirs, strict=False))


# Folding.


@dataclass
class Step:
    """One operation: a method at a place."""

    at: Place
    method: str
    value: Any


def step_of(message: Mapping[str, Any]) -> Step | None:
    """What a message of a context does."""
    kind = {"data": message.get("kind", "data")}.get(message.get("type", ""), message.get("type"))
    if message.get("type") not in ("data", "state", "input", "error"):
        return None
    if "data" in message:
        payload = message["data"]
    elif kind in ("state", "input", "error") and kind in message:
        payload = message[kind]
    else:
        reserved = ("type", "kind", "schema", "description", "title")
        payload = {key: item for key, item in message.items() if key not in reserved and not key.startswith("_")}
    return Step((str(kind), ()), "merge", payload)


def folded(steps: Sequence[Step]) -> dict[str, Any]:
    """Kind to value after all steps, each applied to a copy of everything. Raises `Misfit`."""
    values: dict[str, Any] = {}
    for step in steps:
        values = copied(values)
        kind, path = step.at
        values[kind] = changed(values.get(kind, NOTHING), path, step)
    return values


def copied(value: Any) -> Any:
    """A copy that shares nothing."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def changed(base: Any, path: tuple[Segment, ...], step: Step) -> Any:
    """The base with the step applied at a path below it."""
    if not path:
        return combined(base, step.method, copied(step.value))
    segment, rest = path[0], path[1:]
    if base is NOTHING:
        base = [] if isinstance(segment, int) else {}
    if isinstance(base, dict):
        return {**base, str(segment): changed(base.get(str(segment), NOTHING), rest, step)}
    if isinstance(base, list) and isinstance(segment, int) and segment <= len(base):
        below = base[segment] if segment < len(base) else NOTHING
        return [*base[:segment], changed(below, rest, step), *base[segment + 1 :]]
    raise Misfit


def combined(base: Any, method: str, value: Any) -> Any:
    """What a method makes of a base and a value."""
    if method == "set":
        return value
    if method == "push" and (base is NOTHING or isinstance(base, list)):
        return [*([] if base is NOTHING else base), value]
    if method == "concat" and isinstance(value, (list, str)) and (base is NOTHING or type(base) is type(value)):
        return value if base is NOTHING else joined(base, value)
    if method == "assign" and isinstance(value, dict) and (base is NOTHING or isinstance(base, dict)):
        return {**({} if base is NOTHING else base), **value}
    if method == "merge" and not isinstance(value, dict):
        return value
    if method == "merge" and (base is NOTHING or isinstance(base, dict)):
        return merged({} if base is NOTHING else base, value)
    raise Misfit


def joined(base: Any, value: Any) -> Any:
    """Lists, or texts, end to end."""
    return base + value


def merged(base: Any, value: Any) -> Any:
    """Objects deeply; everything else replaces."""
    if not (isinstance(base, dict) and isinstance(value, dict)):
        return value
    return {**base, **{key: merged(base.get(key), item) for key, item in value.items()}}


def found(values: Mapping[str, Any], at: Place) -> Any:
    """The value at a place, or `NOTHING`."""
    value = values.get(at[0], NOTHING)
    for segment in at[1]:
        if isinstance(value, dict):
            value = value.get(str(segment), NOTHING)
        elif isinstance(value, list) and isinstance(segment, int) and segment < len(value):
            value = value[segment]
        else:
            return NOTHING
    return value


def read(values: Mapping[str, Any], groups: Groups) -> Any:
    """What an expression reads, or `NOTHING`."""
    for group in groups:
        each = [found(values, one) for one in group]
        if all(value is not NOTHING for value in each):
            return copied(each[-1])
    return NOTHING


# Running.


@dataclass
class World:
    """A submission under way."""

    submission: Mapping[str, Any]
    functions: Mapping[str, Function]
    written: dict[str | None, list[Step]] = field(default_factory=dict)
    """What calls have written, by instance."""

    @property
    def context(self) -> list[Any]:
        """The messages handed in."""
        return list(self.submission["context"])

    @property
    def instances(self) -> list[str]:
        """The instances that occur."""
        return list(dict.fromkeys(m["_instance"] for m in self.context if "_instance" in m))

    def lanes(self) -> dict[str | None, dict[int, dict[str, Any]]]:
        """The calls of each lane by index."""
        if "solution" in self.submission:
            calls = enumerate(self.submission["solution"]["calls"])
            lanes: dict[str | None, dict[int, dict[str, Any]]] = {None: {}, **{name: {} for name in self.instances}}
            for index, call in calls:
                lanes[call.get("_instance")][index] = call
            return lanes
        template = [call for m in self.context if m.get("type") == "plan" for call in m["calls"]]
        return {
            name: {i: call for i, call in enumerate(template) if call.get("_instance", name) == name}
            for name in (self.instances or (None,))
        }

    def values(self, instance: str | None) -> dict[str, Any]:
        """What a reader sees."""
        own = [] if instance is None else [*self._given(instance), *self.written.get(instance, [])]
        return folded([*self._given(None), *self.written.get(None, []), *own])

    def _given(self, instance: str | None) -> list[Step]:
        steps = [step_of(m) for m in self.context if m.get("_instance") == instance]
        return [step for step in steps if step is not None]


def awaited(index: int, at: Place, visible: Mapping[int, Mapping[str, Any]], initial: Mapping[str, Any]) -> set[int]:
    """The calls that a reader of a place waits for (SPEC R6.1)."""
    writers = {
        other
        for other, call in visible.items()
        if other != index and any(overlap(at, one) for group in outputs(call) for one in group)
    }
    earlier = {other for other in writers if other < index}
    return earlier if earlier or found(initial, at) is not NOTHING else writers


def places_of(call: Mapping[str, Any]) -> list[Place]:
    """Every place a call reads."""
    return [one for groups in expressions(call) for group in groups for one in group] + slices(call)


def evaluate(submission: Mapping[str, Any], functions: Mapping[str, Function]) -> Verdict:
    """Run everything: the global calls first, for they see nothing of the others."""
    world, verdict = World(submission, functions), Verdict()
    lanes = world.lanes()
    for instance in sorted(lanes, key=lambda name: name or ""):
        verdict.statuses[instance] = _run_lane(world, instance, lanes)
    verdict.data = {name: world.values(name) for name in (None, *world.instances)}
    return verdict


def _run_lane(
    world: World, instance: str | None, lanes: Mapping[str | None, Mapping[int, Mapping[str, Any]]]
) -> dict[int, str]:
    own = lanes[instance]
    visible = {**lanes.get(None, {}), **own}
    initial = World(world.submission, {}).values(instance)
    before = {
        index: set().union(*(awaited(index, at, visible, initial) for at in places_of(call))) & own.keys()
        for index, call in own.items()
    }
    statuses: dict[int, str] = {}
    while len(statuses) < len(own):
        index = next(i for i in own if i not in statuses and before[i] <= statuses.keys())
        statuses[index] = _run_call(world, instance, own[index])
    return statuses


def _run_call(world: World, instance: str | None, call: Mapping[str, Any]) -> str:
    values = world.values(instance)
    if any(read(values, groups) is NOTHING for groups in expressions(call)):
        return "skipped"
    parameters = {key: _resolved(value, values) for key, value in call.items() if not key.startswith("_")}
    context = _scoped(values, call)
    groups, methods = outputs(call), [call.get("_outputMethod", "set")]
    try:
        if call["_tool"] == "number" and not _is_integer(parameters.get("value", 0)):
            raise Misfit
        if not groups:
            return "sent"
        result = world.functions[call["_tool"]](parameters, context)
        group = groups[0]
        if isinstance(result, To):
            group = next((g for g in groups if place(result.path) in g), [])
            result = result.value
            if not group:
                raise Misfit
    except Wrong as error:
        if len(groups) < 2:
            return "failed"
        group, result = groups[-1], {"type": "Wrong", "message": "".join(map(str, error.args))}
        methods.append("set")  # an exception is written in any case, if its place allows it at all
    except Misfit:
        return "failed"
    return "done" if any(_written(world, instance, group, method, result) for method in methods) else "failed"


def _written(world: World, instance: str | None, group: Sequence[Place], method: str, value: Any) -> bool:
    """Write to all places of a group, or to none where one does not fit."""
    written = world.written.setdefault(instance, [])
    before = len(written)
    try:
        for one in group:
            written.append(Step(one, method, value))
            world.values(instance)
    except Misfit:
        del written[before:]
        return False
    return True


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _resolved(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, str) and value.startswith("††"):
        return value[1:]
    if isinstance(value, str) and value.startswith("†"):
        return read(values, places(value))
    if isinstance(value, dict):
        return {key: _resolved(item, values) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item, values) for item in value]
    return value


def _scoped(values: Mapping[str, Any], call: Mapping[str, Any]) -> dict[str, Any]:
    """Only slices that lie apart are asked for here."""
    context: dict[str, Any] = {}
    for scope in call.get("_scopes", []):
        at = place(scope if scope.startswith("†") else "†" + scope)
        value = found(values, at)
        if value is not NOTHING:
            nested = value
            for segment in reversed(at[1]):
                nested = {str(segment): nested}
            context[at[0]] = merged(context.get(at[0], {}), nested)
    return context


# Whether it is valid, and whether the order matters.


def faults(submission: Mapping[str, Any]) -> set[str]:
    """What is wrong with the graph: `nothing` can bring a value, or calls wait for each other in a `cycle`."""
    world = World(submission, {})
    wrong: set[str] = set()
    lanes = world.lanes()
    for instance, own in lanes.items():
        visible, initial = {**lanes.get(None, {}), **own}, world.values(instance)
        before: dict[int, set[int]] = {}
        for index, call in own.items():
            for groups in expressions(call):
                if not any(all(_possible(index, at, visible, initial) for at in group) for group in groups):
                    wrong.add("nothing")
            each = [awaited(index, at, visible, initial) for at in places_of(call)]
            before[index] = set().union(*each) & own.keys()
        while free := [index for index in before if not before[index] & before.keys()]:
            for index in free:
                del before[index]
        if before:
            wrong.add("cycle")
    return wrong


def _possible(index: int, at: Place, visible: Mapping[int, Mapping[str, Any]], initial: Mapping[str, Any]) -> bool:
    others = [one for other, call in visible.items() if other != index for group in outputs(call) for one in group]
    return found(initial, at) is not NOTHING or any(overlap(at, one) for one in others)


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
    shown = {index: visible if index in lanes[instance] else lanes.get(None, {}) for index in visible}
    direct = {
        index: {at: awaited(index, at, shown[index], views[index]) for at in places_of(call)}
        for index, call in visible.items()
    }
    sure = {index: _surely_before(call, direct[index]) for index, call in visible.items()}
    ordered = {index: _closure(index, sure, visible) for index in visible}
    for index, call in visible.items():
        for other, writer in visible.items():
            if other == index:
                continue
            written = [one for group in outputs(writer) for one in group]
            writes = [one for group in outputs(call) for one in group]
            if _any_overlap(writes, written) and other not in ordered[index] and index not in ordered[other]:
                return False
            for at in places_of(call):
                if _any_overlap([at], written) and other not in direct[index][at] and index not in ordered[other]:
                    return False
    return True


def _surely_before(call: Mapping[str, Any], direct: Mapping[Place, set[int]]) -> set[int]:
    """The calls that have ended whenever this one starts: those behind a first alternative of a single reference."""
    first = [groups[0][0] for groups in expressions(call) if len(groups[0]) == 1]
    return set().union(*(direct[at] for at in [*first, *slices(call)]))


def _closure(index: int, sure: Mapping[int, set[int]], calls: Mapping[int, Mapping[str, Any]]) -> set[int]:
    """Those before a call, also through calls that read one place only: others may be skipped before all has ended."""
    reached, stack = set(sure[index]), list(sure[index])
    while stack:
        between = stack.pop()
        if len(places_of(calls[between])) == 1:
            new = sure[between] - reached
            reached |= new
            stack += new
    return reached


def _any_overlap(some: Sequence[Place], others: Sequence[Place]) -> bool:
    return any(overlap(one, other) for one in some for other in others)
