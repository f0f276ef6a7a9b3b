"""Running: a lane's calls one by one, each when those it waits for have ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from .folding import NOTHING, Misfit, Step, folded, found, merged, read, step_of
from .places import (
    ERROR,
    Groups,
    Place,
    afters,
    expressions,
    is_expression,
    outputs,
    overlap,
    parts,
    place,
    places,
    scopes,
)


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
ALL_FAILED = "elements failed"
"""How it is told that all elements have; the rest is for people."""
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
    texts: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = field(default_factory=list)
    """Calls in which a tool fills in what it pins, and how they were handed in."""

    @property
    def context(self) -> list[Any]:
        """The messages handed in."""
        return list(self.submission["context"])

    @property
    def instances(self) -> list[str]:
        """The instances that occur."""
        return list(dict.fromkeys(m["_instance"] for m in self.context if "_instance" in m))

    def lanes(self) -> dict[str | None, dict[int, dict[str, Any]]]:
        """The calls of each lane by index, with what their tools pin (SPEC R4.1)."""
        lanes = self._as_handed_in()
        return {name: {index: self._completed(call) for index, call in own.items()} for name, own in lanes.items()}

    def handed_in(self, call: Mapping[str, Any]) -> Mapping[str, Any]:
        """A call without what its tool pins."""
        return next((raw for made, raw in self.texts if made is call), call)

    def _completed(self, call: dict[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = pinned(self.submission.get("tools", {}).get(call["_tool"], {}), call)
        if made != call:
            self.texts.append((made, call))
        return made

    def _as_handed_in(self) -> dict[str | None, dict[int, dict[str, Any]]]:
        if "solution" in self.submission:
            calls = enumerate(self.submission["solution"]["calls"])
            lanes: dict[str | None, dict[int, dict[str, Any]]] = {None: {}, **{name: {} for name in self.instances}}
            for index, call in calls:
                everywhere = call.get("_instance") == "*"
                for name in self.instances if everywhere else [call.get("_instance")]:
                    lanes[name][index] = call
            return lanes
        template = [call for m in self.context if m.get("type") == "plan" for call in m["calls"]]
        lanes = {
            name: {i: call for i, call in enumerate(template) if call.get("_instance", name) == name}
            for name in (self.instances or (None,))
        }
        gathering = {i: call for i, call in enumerate(template) if call.get("_gather")}
        if not gathering:
            return lanes
        each = {name: {i: call for i, call in own.items() if i not in gathering} for name, own in lanes.items()}
        return {None: gathering, **each}

    def values(self, instance: str | None) -> dict[str, Any]:
        """What a reader sees."""
        own = [] if instance is None else [*self._given(instance), *self.written.get(instance, [])]
        return folded([*self._given(None), *self.written.get(None, []), *own])

    def has_own(self, instance: str, at: Place) -> bool:
        """Whether what an instance has of its own makes a value at a place, above it or below it."""
        for step in [*self._given(instance), *self.written.get(instance, [])]:
            below = at[1][len(step.at[1]) :]
            if overlap(step.at, at) and (
                step.method not in ("merge", "assign") or found({"": step.value}, ("", below)) is not NOTHING
            ):
                return True
        return False

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


def pinned(schema: Mapping[str, Any], value: Any) -> Any:
    """A value with the expressions that a schema pins and that it leaves out: only `properties` is understood."""
    if not isinstance(value, dict):
        return value
    made = dict(value)
    for name, below in schema.get("properties", {}).items():
        if name in made:
            made[name] = pinned(below, made[name])
        elif not name.startswith("_") and is_expression(below.get("const")):
            made[name] = below["const"]
    return made


Calls = Mapping[int, Mapping[str, Any]]


def awaited(index: int, at: Place, own: Calls, visible: Calls, initial: Mapping[str, Any]) -> set[int]:
    """The calls that a reader of a place waits for (SPEC R6.1); of an error those of its lane before it (SPEC R3.1)."""
    writers = _writers(index, at, own, visible)
    earlier = {other for other in writers if other < index}
    return earlier if earlier or found(initial, at) is not NOTHING else writers


def seen(readers: Calls, own: Calls, visible: Calls, initial: Mapping[str, Any]) -> dict[int, set[int]]:
    """The calls that each waits for by its scopes: one by one, but for those that would close a cycle (SPEC R8.3a).
    `own` are all of their lane.
    """
    before = {
        index: set().union(*(awaited(index, at, own, visible, initial) for at in places_of(call)))
        | around(index, call, visible)
        for index, call in readers.items()
    }
    waits: dict[int, set[int]] = {index: set() for index in readers}
    for index in sorted(readers):
        writers = set().union(*(_writers(index, at, own, visible) for at in scopes(readers[index])))
        for other in sorted(writers):
            if other < index and not _leads(before, other, index):
                before[index].add(other)
                waits[index].add(other)
    return waits


def around(index: int, call: Mapping[str, Any], visible: Calls) -> set[int]:
    """The calls that write where a call says that it comes after them, wherever they are listed (SPEC R6.8)."""
    return set().union(*(_writers(index, at, {}, visible) for at in afters(call)))


def _writers(index: int, at: Place, own: Calls, visible: Calls) -> set[int]:
    if at[0] == "error":
        return {other for other in own if other < index}
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
    before = waits_of(world, lanes)
    ended: set[Place_] = set()
    verdict.statuses = {instance: {} for instance in lanes}
    order = [(name, i) for name in sorted(lanes, key=lambda name: name or "") for i in lanes[name]]
    while len(ended) < len(order):
        instance, index = next(one for one in order if one not in ended and before[one] <= ended)
        verdict.statuses[instance][index] = _run_call(world, instance, lanes[instance][index])
        ended.add((instance, index))
    verdict.data = {name: world.values(name) for name in (None, *world.instances)}
    return verdict


Place_ = tuple[str | None, int]
"""A call in its lane."""


def waits_of(world: World, lanes: Mapping[str | None, Calls]) -> dict[Place_, set[Place_]]:
    """What each call waits for; one that gathers for what it would in every instance (SPEC R10.4)."""
    before: dict[Place_, set[Place_]] = {}
    shared = lanes.get(None, {})
    gathering = {index: call for index, call in shared.items() if call.get("_gather")}
    for instance in (None, *world.instances):
        own = lanes.get(instance, {})
        plain = {index: call for index, call in own.items() if index not in gathering}
        visible, initial = {**shared, **own}, World(world.submission, {}).values(instance)
        for calls, reader in ((plain, instance), (gathering if instance is not None else {}, None)):
            mine = own if reader == instance else visible  # what gathers reads errors of both
            by_scopes = seen(calls, mine, visible, initial)
            for index, call in calls.items():
                direct = (awaited(index, at, mine, visible, initial) for at in places_of(call))
                waited = by_scopes[index].union(around(index, call, visible), *direct)
                found = {(instance if other in own else None, other) for other in waited}
                before.setdefault((reader, index), set()).update(found)
    return before


def _run_call(world: World, instance: str | None, call: Mapping[str, Any]) -> str:
    """Run a call; where it fails that is an error of its instance (SPEC R7.2)."""
    status = _ended(world, instance, call)
    if status == "failed":
        _note_error(world, instance, call)
    return status


def _note_error(world: World, instance: str | None, call: Mapping[str, Any]) -> None:
    """Only whose error it is: the naive evaluator has no words for most."""
    world.written.setdefault(instance, []).append(Step(ERROR, "set", {"call": world.handed_in(call)}))


def _ended(world: World, instance: str | None, call: Mapping[str, Any]) -> str:
    values = world.values(instance)
    reads: Reads = partial(_gathered, world) if call.get("_gather") else partial(read, values)
    if any(reads(groups) is NOTHING for groups in expressions(call)):
        return "skipped"
    parameters = {key: _resolved(value, reads) for key, value in call.items() if not key.startswith("_")}
    context = _all_scoped(world, call) if call.get("_gather") else _scoped(values, call)
    groups, methods = outputs(call), [call.get("_outputMethod", "set")]
    function: Function = partial(_carried_out, world, call)
    try:
        if "_each" in call:
            elements = _elements(call, parameters)
            result: Any = _of_each(function, elements, context, partial(_note_error, world, instance, call))
        else:
            result = function(parameters, context)
        if not groups:
            return "sent"
        possible = [groups[_case(call, parameters)]] if call["_tool"] == "choose" else groups
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
        text = "".join(map(str, error.args))
        failure = {"type": "ElementsFailed" if text == ALL_FAILED else "Wrong", "message": text}
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


def _carried_out(
    world: World, call: Mapping[str, Any], parameters: Mapping[str, Any], context: Mapping[str, Any]
) -> Any:
    if call["_tool"] == "number" and not _is_integer(parameters.get("value", 0)):
        raise Misfit
    if call["_tool"] == "choose":
        return parameters["value"]
    if call["_tool"] == "wait":
        if not _is_moment(parameters):
            raise Misfit
        return "now"
    definition = world.submission.get("delegates", {}).get(call.get("_delegate"))
    if definition is not None:
        return _of_workflow(world, definition, parameters, context)
    return world.functions[call["_tool"]](parameters, context) if outputs(call) else None


def _of_workflow(
    world: World, definition: Mapping[str, Any], parameters: Mapping[str, Any], context: Mapping[str, Any]
) -> Any:
    """What the calls of a workflow come to (SPEC R9.4): its output, else its state. Raises `Wrong` where one fails."""
    given = [{"type": "data", "kind": kind, "data": value} for kind, value in context.items()]
    given += [{"type": "data", "kind": "input", "data": parameters}] if parameters else []
    own = {"context": [*definition.get("context", []), *given], "delegates": world.submission["delegates"]}
    own |= {"solution": definition["solution"]} if "solution" in definition else {}
    verdict = evaluate(own, world.functions)
    if any(status == "failed" for lane in verdict.statuses.values() for status in lane.values()):
        raise Wrong("ChildFailed")
    output = definition.get("solution", {}).get("output")
    if output is None:
        return verdict.data[None].get("state", {})
    return _resolved(output, partial(read, verdict.data[None]))


def _is_moment(parameters: Mapping[str, Any]) -> bool:
    """Whether parameters say when a wait ends; moments in texts are told by how they begin (SPEC R4.12)."""
    if "until" in parameters:
        return isinstance(parameters["until"], str) and parameters["until"].startswith("1970-")
    seconds = parameters["seconds"]
    return isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and seconds >= 0


def _case(call: Mapping[str, Any], parameters: Mapping[str, Any]) -> int:
    """The alternative whose case admits the value; `type` and `const` are all that is understood (SPEC R4.12)."""
    value, last = parameters["value"], len(outputs(call)) - 1
    for number, case in enumerate(call["cases"][:last]):
        fits = value == case["const"] if "const" in case else isinstance(value, TYPES[case["type"]])
        if fits and not isinstance(value, bool):
            return number
    return last


def _elements(call: Mapping[str, Any], parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parameters of each element. Raises `Misfit`."""
    each = [call["_each"]] if isinstance(call["_each"], str) else call["_each"]
    lists = {name: parameters[name] for name in each}
    if not all(isinstance(value, list) for value in lists.values()) or len({*map(len, lists.values())}) > 1:
        raise Misfit
    size = len(next(iter(lists.values())))
    return [{**parameters, **{name: value[n] for name, value in lists.items()}} for n in range(size)]


def _of_each(
    function: Function,
    elements: Sequence[Mapping[str, Any]],
    context: Mapping[str, Any],
    note_error: Callable[[], None],
) -> list[Any]:
    """The results in order, None for those that failed, each with an error. Raises `Wrong` where all have."""
    results: list[Any] = []
    failed = 0
    for parameters in elements:
        try:
            result = function(parameters, context)
            if isinstance(result, To):
                raise Misfit
            results.append(result)
        except (Wrong, Misfit):
            results.append(None)
            failed += 1
            note_error()
    if elements and failed == len(elements):
        raise Wrong(ALL_FAILED)
    return results


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


Reads = Callable[[Groups], Any]


def _gathered(world: World, groups: Groups) -> Any:
    """What an expression reads in every instance: by instance, or globally where none has anything of its own there."""
    chosen = {}
    for name in world.instances:
        values = world.values(name)
        there = (group for group in groups if all(found(values, at) is not NOTHING for at in group))
        chosen[name] = next(there, [])
    if not any(world.has_own(name, at) for name, group in chosen.items() for at in group):
        return read(world.values(None), groups)
    each = {name: read(world.values(name), groups) for name in world.instances}
    return {name: value for name, value in each.items() if value is not NOTHING} or NOTHING


def _all_scoped(world: World, call: Mapping[str, Any]) -> dict[str, Any]:
    """The same of scopes, kind by kind."""
    context: dict[str, Any] = {}
    for kind in dict.fromkeys(at[0] for at in scopes(call)):
        named = [scope for scope in call["_scopes"] if scope.removeprefix("†").split(".")[0] == kind]
        part = {"_scopes": named}
        if any(world.has_own(name, at) for name in world.instances for at in scopes(part)):
            each = {name: _scoped(world.values(name), part) for name in world.instances}
            context[kind] = {name: values[kind] for name, values in each.items() if kind in values}
        else:
            context |= _scoped(world.values(None), part)
    return context


def _resolved(value: Any, reads: Reads) -> Any:
    if isinstance(value, str):
        return reads(places(value)) if is_expression(value) else "".join(_text(part, reads) for part in parts(value))
    if isinstance(value, dict):
        return {key: _resolved(item, reads) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item, reads) for item in value]
    return value


def _text(part: str | Groups, reads: Reads) -> str:
    value = part if isinstance(part, str) else reads(part)
    return (
        value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    )


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
