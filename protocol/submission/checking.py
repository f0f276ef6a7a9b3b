"""Checking: everything that can be known before anything runs (SPEC R4.1, R4.2, R6.2, R6.3, R7.1, R10).

All structural errors are found at once. Each check is a function of its own that yields `Problem`s.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

from acts_celery.protocol.calls.approvals import approval_problems
from acts_celery.protocol.calls.call import (
    Call,
)
from acts_celery.protocol.calls.contract import Contract
from acts_celery.protocol.calls.declarations import Declared
from acts_celery.protocol.calls.delegates import input_misfit, unawaited_problem
from acts_celery.protocol.calls.extending import contradictions, extended
from acts_celery.protocol.calls.operator_trust import OperatorTrust
from acts_celery.protocol.calls.toolbox import Toolbox, UnknownRunner, listed, no_remedy
from acts_celery.protocol.calls.tools import ANONYMOUS, Executor, Tool
from acts_celery.protocol.calls.trust import NOTHING, ToolTrust
from acts_celery.protocol.graph.lanes import Cycle, Unresolvable, lay_out, runs
from acts_celery.protocol.language.errors import Problem, Rejected, UnknownName, pointer
from acts_celery.protocol.language.limits import Limits, exceeded
from acts_celery.protocol.state.context import Context
from acts_celery.protocol.state.labels import TRUSTED, marks_of

from .asides import aside_problems
from .layout import Layout
from .output import output_problems
from .reading_calls import read_calls
from .submission import Submission
from .tool_reach import Reach
from .upfront import Definitions, is_upfront, narrowed_tools, upfront_problems


def _no_definition(_: str) -> None:
    return None


@dataclass(frozen=True)
class Environment:
    """What a submission is held against besides itself; the defaults are for planning without a backend."""

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
    """What the operator says of tools (SPEC R16.1)."""
    remedy: Callable[[str], str] = no_remedy
    """What to do about a tool that is not known, behind a colon; empty where there is nothing to say."""
    spelled: Callable[[str], str | None] = _no_definition
    """The name of the delegate that another spelling leads to."""
    _read: dict[str, Contract] = field(default_factory=dict, compare=False, repr=False)
    """The contracts of activities, as far as they were asked for; kept by `dataclasses.replace`."""

    def activity(self, name: str) -> Tool | None:
        """The tool that an activity is: read and compiled once."""
        contract = self.contract(name)
        return contract.tool if contract is not None else None

    def contract(self, name: str) -> Contract | None:
        """The contract of an activity (SPEC R17.1)."""
        schema, contract = (self.activities or {}).get(name), self._read.get(name)
        if schema is None:
            return None
        if contract is None or contract.schema is not schema:
            contract = self._read[name] = Contract(name, schema)
        return contract


class RejectedCalls(Rejected):
    """A rejected submission whose calls could be laid out all the same: hints are made of its `layout`."""

    def __init__(self, errors: Iterable[Problem], layout: Layout) -> None:
        super().__init__(errors)
        self.layout = layout


def check_calls(
    submission: Submission,
    problems: list[Problem],
    known: Environment,
    *,
    begun: Mapping[str | None, Sequence[Call]] | None = None,
) -> Layout:
    """Check the calls of a submission that was read with these problems.

    `begun` are calls at work that may still write in their lanes. Raises `Rejected`.
    """
    toolbox = toolbox_of(submission, known)
    limits = known.limits
    where: _Where = {"instances": submission.instances, "is_template": submission.is_template}
    is_in_loop = submission.is_in_loop
    calls, call_problems, paths_are_known = read_calls(submission, toolbox, limits)
    problems += call_problems
    problems += _bare_problems(submission, known)
    if submission.is_request:
        problems += aside_problems(submission.context)
        problems += _code_problems(submission, toolbox)
        problems += _contradictions(submission, known)
    if is_upfront(submission):
        problems += upfront_problems(submission, known.definitions)
        problems += _misfits(submission, calls, [*problems], toolbox)
    if not any(problem.pointer.startswith("/delegates") for problem in problems):
        problems += unawaited_problems(submission, calls)
    if begun is None:  # the tools of a run that an amendment finds are those that its calls have named
        problems += _approval_problems(submission, toolbox, calls, known)
    if not submission.is_whole or not paths_are_known:
        # Without these messages, or with a call that may write anywhere, the graph would be another one.
        raise Rejected(_ordered(problems))
    if (size := runs(calls, **where)) > limits.calls:
        raise Rejected(
            _ordered([*problems, Problem("", exceeded(f"{size} calls over all instances", limits, "calls"))])
        )
    context = Context.trusted(submission.context)
    is_partial = submission.config.get("partial") is True
    lanes, obstacles = lay_out(calls, context, is_partial=is_partial, is_in_loop=is_in_loop, begun=begun, **where)
    problems += [_obstacle_problem(obstacle, submission) for obstacle in obstacles]
    writing = _writing(calls, begun)
    problems += output_problems(submission.output, context, writing, "solution", "output", is_in_loop=is_in_loop)
    behind_declared = {call.runner.name for call in calls if call.tool in submission.tools}
    layout = Layout(
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
    return layout


def _marks(calls: Iterable[Call], known: Environment) -> dict[str, str]:
    """The marks of the contracts under which calls are checked (SPEC R17.2)."""
    names = sorted({call.runner.name for call in calls if call.runner.executor is Executor.ACTIVITY})
    return {name: contract.mark for name in names if (contract := known.contract(name)) is not None}


def _reached(submission: Submission, calls: Iterable[Call], known: Environment) -> dict[str, ToolTrust]:
    """What is said of the delegates of calls, and of the code that they, or the model of a request, may have called."""
    reach, delegates = reach_of(submission.delegates, known), dict.fromkeys(_delegates_of(calls))
    code = reach.of_code(_declared(submission) if submission.is_request else Declared(), delegates)
    return {**code, **{name: reach.of_delegate(name) for name in delegates}}


def reach_of(own: Mapping[str, Any], known: Environment) -> Reach:
    """What can be called of what a submission's or a run's own delegates and a backend know."""
    delegates = {**dict.fromkeys(listed(known.delegates)), **own}

    def definition(name: str) -> Mapping[str, Any] | None:
        """None for one that is no object, too: it is a problem of the submission, found elsewhere."""
        found = own.get(name) or known.definitions(name)
        return found if isinstance(found, Mapping) else None

    return Reach(
        tuple(known.activities or ()),
        known.activity,
        definition,
        tuple(delegates),
        known.operator,
    )


def _declared(submission: Submission) -> Declared:
    return Declared(dict(submission.tools), dict(submission.declared))


def asked_of(submission: Submission, known: Environment) -> ToolTrust:
    """What is said of all that the model of a loop can call, and of who else writes to what it is shown."""
    written = TRUSTED.union(*(marks_of(message).labels for message in submission.context))
    reach = reach_of(submission.delegates, known)
    return ToolTrust.together((reach.of_tools(_declared(submission)), ToolTrust(result=written)))


def toolbox_of(submission: Submission, known: Environment) -> Toolbox:
    """Everything that the calls of a submission may name."""
    delegates = _Either(submission.delegates, known.delegates) if known.delegates is not None else None
    tools = narrowed_tools(submission, known.definitions) if is_upfront(submission) else submission.tools
    if submission.is_request:  # a model is shown all that the code takes
        registered = {name: signature for name in tools if (signature := known.activity(name)) is not None}
        tools = {**tools, **{name: extended(tools[name], signature) for name, signature in registered.items()}}
    has_model = known.model or submission.config.get("model") is not None
    own = known.activities, delegates, has_model, known.strict_meta, known.allow, known.activity, known.remedy
    return Toolbox(tools, *own, known.spelled)


def _bare_problems(submission: Submission, known: Environment) -> Iterator[Problem]:
    """Tools that are declared by name alone, and no activity has the name (SPEC R12.2)."""
    if known.activities is None:
        return
    for name, at in submission.declared.items():
        if name not in submission.tools and name not in known.activities:
            cause = UnknownName(name, tuple(known.activities))
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


def _code_problems(submission: Submission, toolbox: Toolbox) -> Iterator[Problem]:
    """Code that the tools of a request pin or offer, and that is not registered: a model is not to be shown it."""
    for name, tool in submission.tools.items():
        for key in ("_delegate", "_activity"):
            for chosen in tool.choices(key):
                try:
                    toolbox.runner(name, **{"delegate": None, "activity": None, key[1:]: chosen})
                except UnknownRunner as error:
                    place = tool.place_in_declaration(("properties", key))
                    yield Problem(pointer(*submission.declared[name], *place), str(error), error.cause)


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


def unawaited_problems(submission: Submission, calls: Iterable[Call]) -> Iterator[Problem]:
    """Calls without an output path that need one, as far as the submission holds the definitions of their delegates."""
    is_request = submission.is_request or submission.is_in_loop
    for call in calls:
        text = unawaited_problem(call, submission.delegates, is_request=is_request)
        if text is not None:
            yield Problem(pointer(*submission.place(call.index)), text)


def _writing(calls: Iterable[Call], begun: Mapping[str | None, Sequence[Call]] | None) -> Iterator[Call]:
    """The calls that may write what a global reader reads."""
    yield from calls
    yield from (begun or {}).get(None, ())


class _Where(TypedDict):
    instances: tuple[str, ...]
    is_template: bool


def _obstacle_problem(obstacle: Unresolvable | Cycle, submission: Submission) -> Problem:
    """What keeps calls from running, at its place in the submission (SPEC R6.2, R6.3)."""
    if isinstance(obstacle, Unresolvable):
        return Problem(pointer(*submission.place(obstacle.call)) + obstacle.at, str(obstacle), obstacle)
    return Problem(pointer(*submission.place(obstacle.calls[0])), str(obstacle), obstacle)


@dataclass(frozen=True)
class _Either(Container[str]):
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
    """Once each, in the order of the submission."""
    return sorted(dict.fromkeys(problems), key=lambda problem: [_natural(part) for part in problem.pointer.split("/")])


def _natural(part: str) -> tuple[int, int, str]:
    return (0, int(part), "") if part.isdecimal() and len(part) < 19 else (1, 0, part)
