"""Checking: everything that can be known before anything runs (SPEC R4.1, R4.2, R6.2, R6.3, R7.1, R10).

All structural errors are found at once. Each check is a function of its own that yields `Problem`s.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..calls.built_in import BUILT_IN, built_in_problems
from ..calls.call import (
    Call,
    Read,
    alias_problems,
    approval_problems,
    asks,
    completed,
    make_call,
    place_in,
    read_expressions,
    shape_problems,
    written_place,
)
from ..calls.declarations import (
    Contract,
    Declared,
    Toolbox,
    UnknownRunner,
    contradictions,
    extended,
    input_misfit,
    is_workflow,
    no_remedy,
    unawaited_problem,
)
from ..calls.meta_properties import AFTER, ALIASES, meta_problems
from ..calls.tools import ANONYMOUS, Executor, Runner, Tool
from ..calls.trust import NOTHING, OperatorTrust, ToolTrust
from ..errors import Problem, Rejected, UnknownName, listed, pointer, segments
from ..limits import FREE_WORK, MOST_READ_IN_TICK, Limits, exceeded
from ..messages import DATA_TYPES, EVERYWHERE, kind_of
from ..paths import MISSING
from ..references import Expression
from ..schemas import conjuncts
from ..schemas.costs import EXCEEDED
from ..state.context import Context
from ..state.labels import marks_of
from .checked_plan import CheckedPlan, Definitions, is_upfront, narrowed_tools, simulated, upfront_problems
from .config import aside_problems, is_simulation
from .graph import Writers
from .lanes import Cycle, Unresolvable, lay_out, runs
from .places import KIND
from .submission import Pointer, Submission, output_problems, workflow_calls
from .support import TrustReach

# Reading calls: the usable part of each, and all that is wrong with it (SPEC R4.1, R4.2, R4.7, R10.1).


def read_calls(
    submission: Submission, toolbox: Toolbox, limits: Limits
) -> tuple[tuple[Call, ...], list[Problem], bool]:
    """Every call whose paths can be read, what is wrong with any, and whether it is known where each writes."""
    calls: list[Call] = []
    problems: list[Problem] = []
    paths_are_known = True
    left = MOST_READ_IN_TICK if submission.is_in_loop else None
    reader = _Reader(toolbox, submission.instances, limits.schema_work, left, is_template=submission.is_template)
    for index, at, raw in submission.numbered:
        call, found = reader.read(index, raw, at)
        problems += found
        if call is not None:
            calls.append(call)
        elif isinstance(raw, dict):
            paths_are_known = False
    return tuple(calls), problems, paths_are_known


@dataclass
class _Reader:
    """Reads the calls of a submission."""

    toolbox: Toolbox
    instances: tuple[str, ...]
    work_left: int
    """The schema work left. The first call that takes more is a problem, and no later one is validated."""
    reads_left: int | None
    """The number of references that further calls may have; None for any number."""
    is_template: bool = False
    """True for the calls of a plan."""
    _by_tool: dict[str, tuple[Runner, Sequence[Problem]]] = field(default_factory=dict)
    """Who runs the calls of a tool that choose no code of their own."""

    @cached_property
    def _instances(self) -> frozenset[str]:
        return frozenset(self.instances)

    def read(self, index: int, raw: Any, at: Pointer) -> tuple[Call | None, list[Problem]]:
        """The usable part of a call, and all that is wrong with it; None where it might write anywhere."""
        shapeless = shape_problems(raw, *at)
        if not isinstance(raw, dict):
            return None, shapeless
        name, tool = ("", None) if shapeless else (raw["_tool"], self.toolbox.tool(raw["_tool"]))
        constants, inputs = (tool.constants, tool.inputs) if tool is not None else ({}, None)
        properties = completed(raw, constants, inputs)
        reads, unparsed = read_expressions(properties if inputs else raw, *at)
        if too_many := self._too_many(reads, at):
            reads, unparsed = (), too_many
        problems = [*meta_problems(properties)]
        unusable = _named_in(problems)
        runner, not_run = (_stand_in(name), ()) if shapeless else self._runner(name, tool, properties)
        usable = raw if name and not unusable else {**_without(raw, unusable), "_tool": name}
        call = make_call(index, usable, _without(constants, unusable), runner, reads, inputs)
        problems += [*not_run, *self._instance_problems(call), *self._latent_problems(call)]
        if not shapeless:
            problems += self.toolbox.refusals(name, runner)
            problems += built_in_problems(call, tool)
            held = {**properties, **call.standing_in()} if unusable else call.standing_in()
            problems += self._schema_problems(tool, runner, held, _named_in(problems), properties)
        found = [*shapeless, *unparsed, *alias_problems(raw, *at), *_placed(problems, raw, at)]
        if "_instance" in unusable:  # wherever it belongs, it may write there; what it reads is not known
            call = replace(call, reads=(), scopes=())
        return None if "_outputPath" in unusable else call, found

    def _too_many(self, reads: Sequence[Read], at: Pointer) -> list[Problem]:
        """The problem of a call that reads too much."""
        if self.reads_left is None:
            return []
        count = sum(len(expression.references) for _, expression in reads)
        if count > self.reads_left:
            text = f"reads {count} places, and the calls of one answer may read {MOST_READ_IN_TICK}: call it later"
            return [Problem(pointer(*at), text)]
        self.reads_left -= count
        return []

    def _runner(self, name: str, tool: Tool | None, properties: Mapping[str, Any]) -> tuple[Runner, Sequence[Problem]]:
        """Who runs a call (SPEC R4.2); where nothing does, a stand-in and the problems."""
        if any(properties.get(key) is not None for key in ("_delegate", "_activity")):
            return self._chosen(name, tool, properties)
        if name not in self._by_tool:
            self._by_tool[name] = self._chosen(name, tool, properties)
        return self._by_tool[name]

    def _chosen(self, name: str, tool: Tool | None, properties: Mapping[str, Any]) -> tuple[Runner, Sequence[Problem]]:
        """Look up who runs a call."""
        delegate, activity = map(properties.get, ("_delegate", "_activity"))
        if tool is None and (not delegate or delegate == ANONYMOUS):
            cause = UnknownName(name, self.toolbox.names)
            is_delegate = self.toolbox.delegates is not None and name in self.toolbox.delegates
            remedy = (
                f': it is a delegate, so write "_delegate": {json.dumps(name)}, too'
                if is_delegate
                else self.toolbox.remedy(name)
            )
            return _stand_in(name), [Problem("/_tool", f"unknown tool {name!r}{remedy}", cause)]
        if not isinstance(delegate, str | None) or not isinstance(activity, str | None):
            return _stand_in(name), []
        if unfit := list(self.toolbox.choice_problems(tool, properties)):
            return _stand_in(name), unfit
        try:
            return self.toolbox.runner(name, delegate, activity), []
        except UnknownRunner as error:
            return _stand_in(name), [Problem("/_delegate" if delegate else "/_activity", str(error), error.cause)]

    def _schema_problems(
        self,
        tool: Tool | None,
        runner: Runner,
        held: Mapping[str, Any],
        known: frozenset[str],
        written: Mapping[str, Any],
    ) -> Iterator[Problem]:
        """Problems by schemas, except of meta-properties that have other problems (`known`)."""
        if self.work_left < 0:
            return
        self.work_left -= max(0, (tool.work(held) if tool is not None else 0) - FREE_WORK)
        if self.work_left < 0:
            yield Problem("", f"{EXCEEDED}: this call and the calls after it were not validated by their tools")
            return
        is_latent, strict_meta = runner.executor is Executor.LATENT, self.toolbox.strict_meta
        how: dict[str, Any] = {"strict_meta": strict_meta, "is_latent": is_latent, "written": written}
        found = tool.problems(held, lenient=True, **how) if tool else []
        found = [one if one.pointer else replace(one, message=f"{tool.name}: {one.message}") for one in found if tool]
        unfit = _named_in(found)
        pinned = self.toolbox.pin_problems(tool, runner, held, written)
        found += [problem for problem in pinned if not _named_in([problem]) & unfit]
        yield from (problem for problem in found if not _named_in([problem]) & known)

    def _instance_problems(self, call: Call) -> Iterator[Problem]:
        """Problems of a call's instance, which must occur in the context (SPEC R10.1)."""
        if call.instance == EVERYWHERE:
            text = "the context has no instances" if not self.instances else "a plan runs in every instance anyway"
            if not self.instances or self.is_template:
                yield Problem("/_instance", f"{text}: leave _instance out")
        elif call.instance is not None and call.instance not in self._instances:
            cause = UnknownName(call.instance, self.instances)
            yield Problem("/_instance", f"instance {call.instance!r} is not in the context", cause)
        if call.gather and not self.instances:
            yield Problem("/_gather", "the context has no instances to read from: leave _gather out")

    def _latent_problems(self, call: Call) -> Iterator[Problem]:
        """Problems of a latent call: one with an output path needs a result, or a model to give it (SPEC R4.7)."""
        is_latent = call.runner.executor is Executor.LATENT
        if call.each and (is_latent or asks(call)):
            text = "a model writes one result for it" if is_latent else "a question is asked once"
            yield Problem("/_each", f"is for activities and delegates: {text}")
        if is_latent and call.output is not None and call.given is MISSING and not self.toolbox.model:
            yield Problem(
                "",
                f"no activity and no delegate runs {call.tool!r}, it has no _output, and no model is configured: "
                "register an activity of that name, or set ACTS_MODEL",
            )


def _stand_in(name: str) -> Runner:
    """A runner for a call of an unknown tool."""
    return Runner(Executor.ACTIVITY, name)


def _named_in(problems: Collection[Problem]) -> frozenset[str]:
    """The meta-properties that problems of a completed call point at."""
    if not problems:
        return frozenset()
    keys = (segments(problem.pointer)[0] for problem in problems if problem.pointer)
    return frozenset(key for key in keys if key.startswith("_"))


def _without(properties: Mapping[str, Any], unusable: Collection[str]) -> dict[str, Any]:
    """The properties without the unusable ones, whichever of their names they are written under."""
    if not unusable:
        return dict(properties)
    return {key: value for key, value in properties.items() if ALIASES.get(key, key) not in unusable}


def _placed(problems: Iterable[Problem], raw: Mapping[str, Any], at: Pointer) -> Iterator[Problem]:
    """The problems of a completed call at their places in the submission.

    A value that the tool's schema filled in has no place there, so its problem is placed at the call.
    """
    for problem in problems:
        key, *below = segments(problem.pointer) or ("",)
        if not key.startswith("_"):
            yield replace(problem, pointer=pointer(*at) + written_place(raw, problem.pointer))
        elif written := place_in(raw, key):
            yield replace(problem, pointer=pointer(*at, *written, *below))
        else:
            message = f"{key}, which its tool's schema fills in: {problem.message}"
            yield replace(problem, pointer=pointer(*at), message=message)


def _no_definition(_: str) -> None:
    return None


@dataclass(frozen=True)
class Environment:
    """The knowledge with which a backend checks a submission; the defaults are for planning without a backend."""

    activities: Mapping[str, Mapping[str, Any]] | None = None
    """The schemas of the registered activities by name."""
    delegates: Container[str] | None = None
    """The names of the registered delegates."""
    model: bool = True
    """Whether a model is configured."""
    strict_meta: bool = False
    limits: Limits = field(default_factory=Limits)
    allow: frozenset[str] | None = None
    """The names of the tools and the code that calls may use, whatever a document declares (SPEC R4.2a)."""
    approved: tuple[str, ...] = ()
    """Names that `config.approve` may hold besides those known here: a child run's parent has named them."""
    definitions: Definitions = _no_definition
    """The definition of a registered delegate, where it is not code."""
    operator: OperatorTrust = field(default_factory=OperatorTrust)
    """The operator's trust in tools (SPEC R16.1)."""
    remedy: Callable[[str], str] = no_remedy
    """The advice about an unknown tool, beginning with a colon; may be empty."""
    spelled: Callable[[str], str | None] = _no_definition
    """The name of the delegate that another spelling leads to."""
    _read: dict[str, Contract] = field(default_factory=dict, compare=False, repr=False)
    """The contracts of activities that were looked up; kept by `dataclasses.replace`."""

    @property
    def code(self) -> Mapping[str, Mapping[str, Any]] | None:
        """The schemas of all activities by name, those that are built in among them (SPEC R4.12)."""
        return {**BUILT_IN, **self.activities} if self.activities is not None else None

    def activity(self, name: str) -> Tool | None:
        """The tool that an activity is: read and compiled once."""
        contract = self.contract(name)
        return contract.tool if contract is not None else None

    def contract(self, name: str) -> Contract | None:
        """The contract of an activity (SPEC R17.1)."""
        schema, contract = (self.activities or {}).get(name, BUILT_IN.get(name)), self._read.get(name)
        if schema is None:
            return None
        if contract is None or contract.schema is not schema:
            contract = self._read[name] = Contract(name, schema)
        return contract


class RejectedCalls(Rejected):
    """A rejected submission whose calls could be laid out all the same: hints are made from its `plan`."""

    def __init__(self, errors: Iterable[Problem], plan: CheckedPlan) -> None:
        super().__init__(errors)
        self.plan = plan


def check_calls(
    submission: Submission,
    problems: list[Problem],
    known: Environment,
    *,
    begun: Mapping[str | None, Sequence[Call]] | None = None,
) -> CheckedPlan:
    """Check the calls of a submission that was read with these problems.

    `begun` are calls at work that may still write in their lanes. Raises `Rejected`.
    """
    toolbox = toolbox_of(submission, known)
    limits = known.limits
    where: dict[str, Any] = {"instances": submission.instances, "is_template": submission.is_template}
    is_in_loop = submission.is_in_loop
    calls, call_problems, paths_are_known = read_calls(submission, toolbox, limits)
    problems += call_problems
    problems += (*_bare_problems(submission, known), *_simulation_problems(submission, toolbox))
    if submission.is_request:
        problems += (*aside_problems(submission.context), *_goal_problems(submission))
        problems += _code_problems(submission, toolbox)
        problems += _contradictions(submission, known)
    if is_upfront(submission):
        problems += upfront_problems(submission, known.definitions)
        problems += _misfits(submission, calls, [*problems], toolbox)
    if not any(problem.pointer.startswith("/delegates") for problem in problems):
        problems += delegate_problems(submission, calls)
    if begun is None:  # the tools of a run that an amendment finds are those that its calls have named
        problems += _approval_problems(submission, toolbox, calls, known)
    if not submission.is_whole or not paths_are_known:
        # Without these messages, or with a call that may write anywhere, the graph would be another one.
        raise Rejected(_ordered(problems))
    if (size := runs(calls, **where)) > limits.calls:
        raise Rejected(
            _ordered([*problems, Problem("", exceeded(f"{size} calls over all instances", limits, "calls"))])
        )
    context = Context.of(submission.context)
    is_partial = submission.config.get("partial") is True
    lanes, obstacles = lay_out(calls, context, is_partial=is_partial, is_in_loop=is_in_loop, begun=begun, **where)
    obstacles += _awaited_in_vain(calls, context, submission, begun or {})
    problems += [_obstacle_problem(obstacle, submission) for obstacle in obstacles]
    writing = (*calls, *(begun or {}).get(None, ()))
    problems += output_problems(submission.output, context, writing, "solution", "output", is_in_loop=is_in_loop)
    behind_declared = {call.runner.name for call in calls if call.tool in submission.tools}
    layout = CheckedPlan(
        submission=submission,
        context=context,
        calls=calls,
        lanes=lanes,
        tools={call.tool: tool for call in calls if (tool := toolbox.tool(call.tool)) is not None},
        allow=known.allow,
        signatures={name: tool for name in sorted(behind_declared) if (tool := known.activity(name)) is not None},
        reach=_reached(submission, calls, known),
        contracts=_marks(calls, known),
        asked=asked_of(submission, known) if submission.is_request or is_in_loop else NOTHING,
        operator=known.operator,
    )
    if problems:
        raise RejectedCalls(_ordered(problems), layout)
    return simulated(layout, known.definitions) if is_simulation(submission.config) else layout


def _simulation_problems(submission: Submission, toolbox: Toolbox) -> Iterator[Problem]:
    if not is_simulation(submission.config):
        return
    if submission.is_request:
        text = "simulates a plan, and here a model writes the calls: give a solution or a plan, or leave it out"
        yield Problem(pointer("config", "latent"), text)
    elif not toolbox.model:
        text = "needs a model, and none is configured: set ACTS_MODEL, or config.model"
        yield Problem(pointer("config", "latent"), text)


def _marks(calls: Iterable[Call], known: Environment) -> dict[str, str]:
    """Activity -> the mark of the contract under which its calls are checked (SPEC R17.2)."""
    names = sorted({call.runner.name for call in calls if call.runner.executor is Executor.ACTIVITY} - {*BUILT_IN})
    return {name: contract.mark for name in names if (contract := known.contract(name)) is not None}


def _reached(submission: Submission, calls: Iterable[Call], known: Environment) -> dict[str, ToolTrust]:
    """The trust of the delegates of calls, and of the activities that these or a request's model may call."""
    reach, delegates = reach_of(submission.delegates, known), dict.fromkeys(_delegates_of(calls))
    code = reach.of_code(_declared(submission) if submission.is_request else Declared(), delegates)
    return {**code, **{name: reach.of_delegate(name) for name in delegates}}


def reach_of(own: Mapping[str, Any], known: Environment) -> TrustReach:
    """The trust of all that can be called, given a submission's or a run's own delegates and a backend."""
    delegates = {**dict.fromkeys(listed(known.delegates)), **own}

    def definition(name: str) -> Mapping[str, Any] | None:
        """None for one that is no object, too: it is a problem of the submission, found elsewhere."""
        found = own.get(name) or known.definitions(name)
        return found if isinstance(found, Mapping) else None

    return TrustReach(tuple(known.activities or ()), known.activity, definition, tuple(delegates), known.operator)


def _declared(submission: Submission) -> Declared:
    return Declared(dict(submission.tools), dict(submission.declared))


def asked_of(submission: Submission, known: Environment) -> ToolTrust:
    """The trust of all that the model of a loop can call, with the labels of the context that it is shown."""
    written = Context.of(submission.context).marks.labels
    reach = reach_of(submission.delegates, known)
    return ToolTrust.together((reach.of_tools(_declared(submission)), ToolTrust(result=written)))


def toolbox_of(submission: Submission, known: Environment) -> Toolbox:
    """All tools and code that the calls of a submission may name."""
    delegates = CombinedDelegates(submission.delegates, known.delegates) if known.delegates is not None else None
    tools = narrowed_tools(submission, known.definitions) if is_upfront(submission) else submission.tools
    if submission.is_request:  # a model is shown all that the code takes
        registered = {name: signature for name in tools if (signature := known.activity(name)) is not None}
        tools = {**tools, **{name: extended(tools[name], signature) for name, signature in registered.items()}}
    has_model = known.model or submission.config.get("model") is not None
    own = known.code, delegates, has_model, known.strict_meta, known.allow, known.activity, known.remedy
    return Toolbox(tools, *own, known.spelled)


def _bare_problems(submission: Submission, known: Environment) -> Iterator[Problem]:
    """Tools that are declared by name alone, and no activity has the name (SPEC R12.2)."""
    code = known.code
    if code is None:
        return
    for name, at in submission.declared.items():
        if name not in submission.tools and name not in code:
            cause = UnknownName(name, tuple(code))
            remedy = known.remedy(name) or ": register one, or give the tool a schema"
            yield Problem(pointer(*at), f"no activity is registered under {name!r}{remedy}", cause)


def _contradictions(submission: Submission, known: Environment) -> Iterator[Problem]:
    """Declarations that the signatures of their activities rule out (SPEC R12.2)."""
    for name, tool in submission.tools.items():
        signature = known.activity(name)
        if signature is not None and extended(tool, signature) is not tool:
            for problem in contradictions(tool, signature):
                yield replace(problem, pointer=pointer(*submission.declared[name]) + problem.pointer)


def _approval_problems(
    submission: Submission, toolbox: Toolbox, calls: Sequence[Call], known: Environment
) -> Iterator[Problem]:
    """Entries of `config.approve` that name what neither the run nor a child of it can call (SPEC R14.1)."""
    delegates = set(_delegates_of(calls))
    if delegates - submission.delegates.keys() - {ANONYMOUS}:
        return  # what their definitions declare is not known here
    called = (name for call in calls for name in (call.tool, call.runner.name))
    declared = (name for one in submission.delegates.values() for name in _declared_by(one))
    names = dict.fromkeys((*toolbox.names, *listed(toolbox.delegates), *called, *declared, *known.approved))
    yield from approval_problems(submission.config.get("approve"), tuple(names), known.remedy, "config", "approve")


def _delegates_of(calls: Iterable[Call]) -> Iterator[str]:
    return (call.runner.name for call in calls if call.runner.executor is Executor.DELEGATE)


def _declared_by(definition: Any) -> Iterator[str]:
    """The names of the tools of a request definition, of whatever shape it is."""
    if not isinstance(definition, dict):
        return
    context = definition.get("context")
    messages = [one for one in context if isinstance(one, dict)] if isinstance(context, list) else []
    for tools in (definition.get("tools"), *(one.get("tool") for one in messages)):
        for part in tools if isinstance(tools, list) else [tools]:
            yield from part if isinstance(part, dict) else [part] if isinstance(part, str) else []
    yield from (name for call in workflow_calls(definition) if isinstance(name := call.get("_tool"), str))


def _code_problems(submission: Submission, toolbox: Toolbox) -> Iterator[Problem]:
    """Code that the tools of a request pin or offer and that is not registered: no model may be shown it."""
    for name, tool in submission.tools.items():
        for key in ("_delegate", "_activity"):
            for chosen in tool.choices(key):
                try:
                    toolbox.runner(name, **{"delegate": None, "activity": None, key[1:]: chosen})
                except UnknownRunner as error:
                    place = tool.place_in_declaration(("properties", key))
                    yield Problem(pointer(*submission.declared[name], *place), str(error), error.cause)


def _goal_problems(submission: Submission) -> Iterator[Problem]:
    """The problem of a request whose goal is the state, where nobody who may instruct has said what the state requires
    (SPEC R12.5).
    """
    if submission.config.get("goal") is None or not submission.is_whole:
        return
    states = [one for one in submission.context if one.get("type") in DATA_TYPES and kind_of(one) == "state"]
    schemas = [one["schema"] for one in states if isinstance(one.get("schema"), dict) and not marks_of(one)]
    if not schemas or not any(part.get("required") for part in conjuncts((schemas[-1],), schemas[-1])):
        example = '{"type": "state", "schema": {"type": "object", "required": ["answer"]}}'
        text = f"needs a state whose schema requires something: add a message such as {example} to the context"
        yield Problem(pointer("config", "goal"), text)


def _misfits(
    submission: Submission, calls: Iterable[Call], problems: Sequence[Problem], toolbox: Toolbox
) -> list[Problem]:
    """Parameters that do not fit the input that a delegate of the submission declares, where the tool is not narrowed
    by it (SPEC R9.2).
    """
    if any(problem.pointer.startswith("/delegates") for problem in problems):
        return []
    return [
        replace(problem, pointer=pointer(*submission.place(call.index)) + problem.pointer)
        for call in calls
        if call.runner.executor is Executor.DELEGATE
        and call.runner.name in submission.delegates
        and toolbox.tools.get(call.tool) is submission.tools.get(call.tool)
        for problem in input_misfit(submission.delegates[call.runner.name], call)
    ]


def delegate_problems(submission: Submission, calls: Iterable[Call]) -> Iterator[Problem]:
    """Calls without an output path that need one, and calls of workflows that do not fit their input (SPEC R9.4), as
    far as the submission holds the definitions of their delegates.
    """
    for call in calls:
        at = pointer(*submission.place(call.index))
        text = unawaited_problem(call, submission.delegates)
        if text is not None:
            yield Problem(at, text)
        if call.runner.executor is not Executor.DELEGATE or call.runner.name not in submission.delegates:
            continue
        definition = submission.delegates[call.runner.name]
        may_be_scoped = any(scope.kind == KIND for scope in call.scopes)
        is_held_here = is_workflow(definition) and not is_upfront(submission)
        for problem in input_misfit(definition, call) if is_held_here else ():
            if problem.pointer or not may_be_scoped:  # what is missing may come with a scoped input
                text = f"{problem.message} (by the input that the workflow {call.runner.name!r} declares)"
                yield Problem(at + problem.pointer, text, problem.cause)


def _awaited_in_vain(
    calls: Sequence[Call], context: Context, submission: Submission, begun: Mapping[str | None, Sequence[Call]]
) -> Iterator[Unresolvable]:
    """The places of `_after` that hold nothing and that no other call writes: so waiting is useless (SPEC R6.8)."""
    waiting = [call for call in calls if call.after]
    writers = Writers((*calls, *(call for lane in begun.values() for call in lane))) if waiting else None
    for call in waiting:
        is_in_one = call.instance is not None and not call.is_everywhere
        readers = (call.instance,) if is_in_one else (None, *submission.instances)
        for number, place in enumerate(call.after):
            is_written = writers is not None and writers.has_other(place, than=call.index)
            if not is_written and not any(context.fold(reader).exists(place) for reader in readers):
                written = place_in(call.raw, AFTER)
                at = pointer(*written, number) if written else ""
                yield Unresolvable(call.index, at, Expression(((place,),)), call.instance, submission.is_in_loop)


def _obstacle_problem(obstacle: Unresolvable | Cycle, submission: Submission) -> Problem:
    """The problem of calls that cannot run, at its place in the submission (SPEC R6.2, R6.3)."""
    if isinstance(obstacle, Unresolvable):
        at, raw = submission.place(obstacle.call), submission.text(obstacle.call)
        return Problem(pointer(*at) + written_place(raw, obstacle.at), str(obstacle), obstacle)
    return Problem(pointer(*submission.place(obstacle.calls[0])), str(obstacle), obstacle)


@dataclass(frozen=True)
class CombinedDelegates(Container[str]):
    """The delegates of a submission and those registered."""

    own: Mapping[str, Any]
    registered: Container[str]

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self.registered

    def __iter__(self) -> Iterator[str]:
        """The names, as far as they can be listed."""
        yield from self.own
        yield from listed(self.registered)


def _ordered(problems: Iterable[Problem]) -> list[Problem]:
    """The problems, each once, in the order of the submission."""
    return sorted(dict.fromkeys(problems), key=lambda problem: [_natural(part) for part in problem.pointer.split("/")])


def _natural(part: str) -> tuple[int, int, str]:
    return (0, int(part), "") if part.isdecimal() and len(part) < 19 else (1, 0, part)
