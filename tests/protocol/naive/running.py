"""Running: a lane's calls one by one, each when those it waits for have ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .folding import NOTHING, Misfit, Step, folded, found, merged, read, step_of
from .places import Place, expressions, outputs, overlap, place, places, scopes


@dataclass(frozen=True)
class To:
    """A function's result for one of the declared paths."""

    path: str
    value: Any


class Wrong(Exception):
    """What a function raises."""


class Refused(Exception):
    """A schema forbids what would be there."""


REFUSED = "the schema of"
"""How the message of a refused result begins; the rest is for people."""
TYPES = {"integer": int, "string": str, "array": list, "object": dict}


Function = Callable[[Mapping[str, Any], Mapping[str, Any]], Any]


@dataclass
class Verdict:
    """What a submission leaves behind: statuses by lane and index, values by reader and kind."""

    statuses: dict[str | None, dict[int, str]] = field(default_factory=dict)
    data: dict[str | None, dict[str, Any]] = field(default_factory=dict)


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

    def verify(self, instance: str | None, step: Step) -> None:
        """Whether what a step has left fits the newest schema of its kind: `type`s of keys are all that is understood.

        Raises `Refused`.
        """
        for lane in dict.fromkeys((instance, None)):
            messages = [(step_of(m), m) for m in self.context if m.get("_instance") == lane and "schema" in m]
            schemas = [m["schema"] for its, m in messages if its is not None and its.at[0] == step.at[0]]
            if not schemas:
                continue
            for key, schema in schemas[-1].get("properties", {}).items():
                value = found(self.values(instance), (step.at[0], (key,)))
                is_touched = overlap(step.at, (step.at[0], (key,))) and value is not NOTHING
                if is_touched and (not isinstance(value, TYPES[schema["type"]]) or isinstance(value, bool)):
                    raise Refused
            return

    def _given(self, instance: str | None) -> list[Step]:
        steps = [step_of(m) for m in self.context if m.get("_instance") == instance]
        return [step for step in steps if step is not None]


Calls = Mapping[int, Mapping[str, Any]]


def awaited(index: int, at: Place, visible: Calls, initial: Mapping[str, Any]) -> set[int]:
    """The calls that a reader of a place waits for (SPEC R6.1)."""
    writers = _writers(index, at, visible)
    earlier = {other for other in writers if other < index}
    return earlier if earlier or found(initial, at) is not NOTHING else writers


def seen(own: Calls, visible: Calls, initial: Mapping[str, Any]) -> dict[int, set[int]]:
    """The calls that each waits for by its scopes: one by one, but for those that would close a cycle (SPEC R8.3a)."""
    before = {
        index: set().union(*(awaited(index, at, visible, initial) for at in places_of(call)))
        for index, call in own.items()
    }
    waits: dict[int, set[int]] = {index: set() for index in own}
    for index in sorted(own):
        writers = set().union(*(_writers(index, at, visible) for at in scopes(own[index])))
        for other in sorted(writers):
            if other < index and not _leads(before, other, index):
                before[index].add(other)
                waits[index].add(other)
    return waits


def _writers(index: int, at: Place, visible: Calls) -> set[int]:
    return {
        other
        for other, call in visible.items()
        if other != index and any(overlap(at, one) for group in outputs(call) for one in group)
    }


def _leads(before: Mapping[int, set[int]], start: int, end: int) -> bool:
    """Whether the first waits for the second, also through others."""
    reached, stack = {start}, [start]
    while stack:
        new = before.get(stack.pop(), set()) - reached
        reached |= new
        stack += new
    return end in reached


def places_of(call: Mapping[str, Any]) -> list[Place]:
    """Every place that a call's parameters read."""
    return [one for groups in expressions(call) for group in groups for one in group]


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
    by_scopes = seen(own, visible, initial)
    before = {
        index: by_scopes[index].union(*(awaited(index, at, visible, initial) for at in places_of(call))) & own.keys()
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
        possible = groups
        if isinstance(result, To):
            possible = [g for g in groups if place(result.path) in g][:1]
            result = result.value
            if not possible:
                raise Misfit
        for group in possible:  # the first whose places admit it
            try:
                _write(world, instance, group, methods[0], result)
            except Refused:
                continue
            return "done"
        failure = {"type": "OutputError", "message": REFUSED}
    except Wrong as error:
        failure = {"type": "Wrong", "message": "".join(map(str, error.args))}
    except Misfit:
        return "failed"
    for method in (*methods, "set") if len(groups) > 1 else ():  # set where its own method does not fit an exception
        try:
            _write(world, instance, groups[-1], method, failure)
        except Misfit:
            continue
        except Refused:
            break
        return "done"
    return "failed"


def _write(world: World, instance: str | None, group: Sequence[Place], method: str, value: Any) -> None:
    """Write to all places of a group, or to none where one does not fit. Raises `Misfit`, `Refused`."""
    written = world.written.setdefault(instance, [])
    before = len(written)
    try:
        for one in group:
            written.append(Step(one, method, value))
            world.values(instance)
            world.verify(instance, written[-1])
    except (Misfit, Refused):
        del written[before:]
        raise


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
