"""Checking: everything that can be known before anything runs (SPEC R4.1, R4.2, R6.2, R6.3, R7.1, R10).

All structural errors are found at once. Each check is a function of its own that yields `Problem`s.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .calls import Call, completed, make_call, meta_problems, shape_problems
from .context import Context
from .errors import Problem, Rejected, pointer
from .graph import Graph, Writers, build_graph, uncertain_places, unsatisfiable
from .limits import Limits
from .messages import Message
from .paths import MISSING
from .plan import Finding, Lane, Plan
from .references import Reference
from .submission import Pointer, Submission, read_submission
from .tools import ANONYMOUS, Executor, Runner, Tool, Toolbox, nearest


def check(
    context: Context | Iterable[Message],
    solution: Mapping[str, Any] | None = None,
    *,
    tools: Mapping[str, Any] | None = None,
    activities: Mapping[str, Mapping[str, Any]] | None = None,
    delegates: Container[str] | None = None,
    model: bool = True,
    strict_meta: bool = False,
    limits: Limits | None = None,
) -> Plan:
    """Check a solution, or the plan messages of a context, against the context.

    `activities` maps the names of registered activities to their schemas, `delegates` holds the names of registered
    delegates, `model` says whether one is configured; leave them out to plan without a backend. Raises `Rejected`
    with every structural error.
    """
    messages = list(context.messages if isinstance(context, Context) else context)
    submission: dict[str, Any] = {"context": messages}
    if solution is not None:
        submission["solution"] = dict(solution)
    if tools is not None:
        submission["tools"] = dict(tools)
    return check_submission(
        submission,
        activities=activities,
        delegates=delegates,
        model=model,
        strict_meta=strict_meta,
        limits=limits,
    )


def check_submission(
    value: Any,
    *,
    activities: Mapping[str, Mapping[str, Any]] | None = None,
    delegates: Container[str] | None = None,
    model: bool = True,
    strict_meta: bool = False,
    limits: Limits | None = None,
) -> Plan:
    """Check a whole submission as it was handed in; see `check`."""
    limits = limits or Limits()
    submission, problems = read_submission(value, limits)
    known = _Either(submission.delegates, delegates) if delegates is not None else None
    toolbox = Toolbox(submission.tools, activities, known, model, strict_meta)
    calls, call_problems = _read_calls(submission, toolbox)
    problems += call_problems
    if problems and (len(calls) < len(submission.calls) or len(submission.context) < len(value.get("context", ()))):
        raise Rejected(_ordered(problems))  # without these calls and messages the graph would be another one
    context = Context(submission.context)
    lanes, lane_problems = _lay_out(submission, context, calls)
    problems += lane_problems
    size = sum(len(lane.calls) for lane in lanes.values())
    if size > limits.calls:
        problems.append(Problem("", f"{size} calls over all instances, where {limits.calls} are allowed"))
    if problems:
        raise Rejected(_ordered(problems))
    return Plan(
        submission=submission,
        context=context,
        calls=calls,
        lanes=lanes,
        findings=tuple(_scope_findings(calls, lanes.values())),
        tools={call.tool: tool for call in calls if (tool := toolbox.tool(call.tool)) is not None},
    )


@dataclass(frozen=True)
class _Either(Container[str]):
    """The delegates of a submission and those registered."""

    own: Mapping[str, Any]
    registered: Container[str]

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self.registered


def _read_calls(submission: Submission, toolbox: Toolbox) -> tuple[tuple[Call, ...], list[Problem]]:
    """Every call that has no problems, and the problems of the others."""
    calls: list[Call] = []
    problems: list[Problem] = []
    instances = dict.fromkeys(submission.instances)
    for index, (at, raw) in enumerate(submission.calls):
        found = shape_problems(raw, *at)
        if not found:
            call, found = _read_call(index, raw, at, toolbox)
            instance = raw.get("_instance")
            if instance is not None and instance not in instances:
                hint = nearest(instance, instances)
                found.append(Problem(pointer(*at, "_instance"), f"instance {instance!r} is not in the context{hint}"))
            if call is not None:
                calls.append(call)
        problems += found
    return tuple(calls), problems


def _read_call(index: int, raw: Mapping[str, Any], at: Pointer, toolbox: Toolbox) -> tuple[Call | None, list[Problem]]:
    """The call, also where nobody can run it - its paths still belong to the graph - and what is wrong with it."""
    tool = toolbox.tool(raw["_tool"])
    constants = tool.constants if tool is not None else {}
    properties = completed(raw, constants)
    problems = meta_problems(properties, *at)
    if problems:
        return None, problems
    try:
        runner = _runner(raw["_tool"], tool, properties, toolbox)
    except _Nobody as nobody:
        problems.append(Problem(pointer(*at, nobody.property), str(nobody)))
        runner = Runner(Executor.ACTIVITY, raw["_tool"])
    call = make_call(index, raw, constants, runner)
    if tool is not None:
        problems += tool.problems(call.standing_in(), *at, lenient=True, strict_meta=toolbox.strict_meta)
    problems += _latent_problems(call, at, toolbox)
    return call, problems


class _Nobody(LookupError):
    """Nobody runs the call; `property` is the one that names an unknown."""

    def __init__(self, property_: str, message: str) -> None:
        super().__init__(message)
        self.property = property_


def _runner(name: str, tool: Tool | None, properties: Mapping[str, Any], toolbox: Toolbox) -> Runner:
    """Who runs a call (SPEC R4.2). Raises `_Nobody`."""
    delegate = properties.get("_delegate")
    if tool is None and (not delegate or delegate == ANONYMOUS):
        raise _Nobody("_tool", f"unknown tool {name!r}{nearest(name, toolbox.known())}")
    try:
        return toolbox.runner(name, delegate, properties.get("_activity"))
    except LookupError as error:
        raise _Nobody("_delegate" if delegate else "_activity", str(error)) from error


def _latent_problems(call: Call, at: Pointer, toolbox: Toolbox) -> Iterator[Problem]:
    """A latent call with an output path needs a result or a model to give it (SPEC R4.7)."""
    if (
        call.runner.executor is Executor.LATENT
        and call.output is not None
        and call.given is MISSING
        and not toolbox.model
    ):
        yield Problem(
            pointer(*at),
            f"no activity and no delegate runs {call.tool!r}, it has no _output, and no model is configured: "
            "register an activity of that name, or set ACTS_MODEL",
        )


def _lay_out(
    submission: Submission, context: Context, calls: tuple[Call, ...]
) -> tuple[dict[str | None, Lane], list[Problem]]:
    """The lanes: a plan's calls once for each instance, a solution's where each says (SPEC R10.1, R10.2)."""
    own: dict[str | None, list[Call]] = {}
    if submission.is_template and submission.instances:
        shared = list(calls)
        pinned = any(call.instance is not None for call in calls)
        for instance in submission.instances:
            own[instance] = [c for c in calls if c.instance in (None, instance)] if pinned else shared
    else:
        for call in calls:
            own.setdefault(call.instance, []).append(call)
    places = {index: at for index, (at, _) in enumerate(submission.calls)}
    builder = _LaneBuilder(context, own.get(None, []), places)
    lanes = {instance: builder.lane(instance, members) for instance, members in own.items()}
    return lanes, list(builder.problems)


class _LaneBuilder:
    """Builds lanes; those of the same calls, whose contexts hold the same places, share one graph."""

    def __init__(self, context: Context, shared: list[Call], places: Mapping[int, Pointer]) -> None:
        self.problems: dict[Problem, None] = {}
        self._context = context
        self._shared = shared
        self._places = places
        self._writers: dict[tuple[int, ...], tuple[tuple[Call, ...], Writers, tuple[Reference, ...]]] = {}
        self._graphs: dict[tuple[tuple[int, ...], tuple[bool, ...]], Graph] = {}

    def lane(self, instance: str | None, members: list[Call]) -> Lane:
        """The lane of an instance."""
        indexes = tuple(call.index for call in members)
        if indexes not in self._writers:
            visible = members if instance is None else sorted([*members, *self._shared], key=lambda call: call.index)
            writers = Writers(visible)
            self._writers[indexes] = (tuple(members), writers, uncertain_places(members, writers))
        calls, writers, uncertain = self._writers[indexes]
        fold = self._context.fold(instance)
        held = tuple(map(fold.exists, uncertain))
        if (indexes, held) not in self._graphs:
            holds = {place for place, is_held in zip(uncertain, held, strict=True) if is_held}.__contains__
            self._graphs[indexes, held] = graph = build_graph(calls, writers, holds)
            self._note(self._unsatisfiable(instance, calls, writers, holds))
            self._note(self._cycle(graph, {call.index: call for call in calls}))
        places = frozenset(place for place, is_held in zip(uncertain, held, strict=True) if is_held)
        return Lane(instance, calls, self._graphs[indexes, held], places)

    def _note(self, problems: Iterable[Problem]) -> None:
        self.problems.update(dict.fromkeys(problems))

    def _unsatisfiable(
        self, instance: str | None, calls: Iterable[Call], writers: Writers, holds: Any
    ) -> Iterator[Problem]:
        where = f" in instance {instance!r}" if instance is not None else ""
        for call in calls:
            for at, expression in unsatisfiable(call, writers, holds):
                yield Problem(
                    pointer(*self._places[call.index]) + at,
                    f"nothing can bring {expression}: the context does not hold it{where} and no other call writes it",
                )

    def _cycle(self, graph: Graph, calls: Mapping[int, Call]) -> Iterator[Problem]:
        cycle = graph.cycle()
        if cycle is not None:
            chain = " waits for ".join(f"call {index} ({calls[index].tool})" for index in (*cycle, cycle[0]))
            yield Problem(pointer(*self._places[cycle[0]]), f"the calls wait for each other in a cycle: {chain}")


def _scope_findings(calls: Iterable[Call], lanes: Iterable[Lane]) -> Iterator[Finding]:
    """Whole kinds in a scope that an earlier call writes to without an order between the two (SPEC R8.3a)."""
    graph = next(iter({id(lane.graph): lane.graph for lane in lanes}.values()), Graph({}))
    earlier: dict[str, list[Call]] = {}
    for call in calls:
        for scope in call.scopes:
            unordered = [
                writer.index
                for writer in earlier.get(scope.kind, ())
                if not scope.path
                and writer.instance in (None, call.instance)
                and writer.index not in graph.before(call.index)
            ]
            if unordered:
                yield Finding(
                    "warning",
                    f"what call {call.index} ({call.tool}) sees of {scope.kind} depends on timing: "
                    f"{'call' if len(unordered) == 1 else 'calls'} {', '.join(map(str, unordered))} may or may not have "
                    f"written there; name the place in _scopes (†{scope.kind}.…) to wait for it",
                    (*unordered, call.index),
                )
        for kind in {reference.kind for reference in call.output.references} if call.output else ():
            earlier.setdefault(kind, []).append(call)


def _ordered(problems: Iterable[Problem]) -> list[Problem]:
    """Once each, in the order of the submission."""
    return sorted(dict.fromkeys(problems), key=lambda problem: [_natural(part) for part in problem.pointer.split("/")])


def _natural(part: str) -> tuple[int, int, str]:
    return (0, int(part), "") if part.isdecimal() else (1, 0, part)
