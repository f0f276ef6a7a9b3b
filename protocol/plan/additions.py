"""Additions: data messages for a run under way (SPEC R11.6).

They are checked by the shape of messages, the limits and the run's log: its instances, its values, and the schemas of
kinds, among them those of promises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ..calls.call import Call
from ..calls.outputs import kind_problems
from ..calls.trust import OperatorTrust
from ..errors import Conflict, Problem, Rejected, UnknownName, pointer
from ..limits import Limits, one_message_problems, plain
from ..messages import DATA_TYPES, Message, is_chat
from ..state.context import Context, message_problems
from ..state.operations import read_operation
from .checked_plan import CheckedPlan
from .checking import Environment, RejectedCalls, check_calls
from .submission import read_parts, within_limits

_OF_THE_ENGINE = ("_call", "_chosen", "_date", "_path")


def check_data(value: Any, so_far: Iterable[Message], limits: Limits, instances: Sequence[str]) -> tuple[Message, ...]:
    """The data messages to append: `value` is one or a list of them. Raises `Rejected` with every error, its pointers
    into the value. Each message is checked together with those before it.

    `so_far` are the messages of the run's log, in order: at least the global ones and those of the instances that the
    value names. `instances` are all instances of the run.
    """
    value = plain(value, limits)
    messages = value if isinstance(value, list) else [value]
    places = [(index,) if isinstance(value, list) else () for index in range(len(messages))]
    problems = [p for message, at in zip(messages, places, strict=True) for p in _shape_problems(message, limits, *at)]
    if problems:
        raise Rejected(problems)
    context = Context.trusted(so_far)
    for message, at in zip(messages, places, strict=True):
        found = list(_content_problems(message, context, instances, *at))
        problems += found
        if not found:
            context.append(message)
    if problems:
        raise Rejected(problems)
    return tuple(messages)


def check_user_messages(messages: Sequence[Any], limits: Limits) -> list[Message]:
    """The messages to add to a loop: texts and chat messages of a user. Raises `Rejected` for others."""
    messages = [plain(message, limits) for message in messages]
    problems = [problem for index, message in enumerate(messages) for problem in _user_problems(message, limits, index)]
    if not messages:
        problems.append(Problem("", "there is no message"))
    if problems:
        raise Rejected(problems)
    return messages


def _user_problems(message: Any, limits: Limits, *at: int) -> Iterator[Problem]:
    unfit = list(_message_problems(message, limits, *at))
    yield from unfit
    if unfit:
        return
    if message.get("type") != "text" and not (is_chat(message) and message["role"] == "user"):
        yield Problem(pointer(*at), 'only a text, or a message of "role": "user", can be said; data is sent')
    if "_instance" in message:
        yield Problem(pointer(*at, "_instance"), "a message to a loop is for the whole run: remove it")


def _shape_problems(message: Any, limits: Limits, *at: int) -> Iterator[Problem]:
    """Problems of a data message in any run."""
    unfit = list(_message_problems(message, limits, *at))
    yield from unfit
    if unfit:
        return
    if message.get("type") not in DATA_TYPES:
        yield Problem(pointer(*at), f"only data can be added to a run: a type of {', '.join(sorted(DATA_TYPES))}")
    for key in _OF_THE_ENGINE:
        if key in message:
            yield Problem(pointer(*at, key), "is written by the engine: leave it out")


def _message_problems(message: Any, limits: Limits, *at: int) -> Iterator[Problem]:
    """Problems of any message."""
    yield from list(one_message_problems(message, limits, *at)) or message_problems(message, *at)


def _content_problems(message: Message, context: Context, instances: Sequence[str], *at: int) -> Iterator[Problem]:
    """Problems of a well-formed message in this run."""
    instance = message.get("_instance")
    if instance is not None and instance not in instances:
        cause = UnknownName(instance, tuple(instances))
        yield Problem(pointer(*at, "_instance"), f"instance {instance!r} is not in the run", cause)
        return
    operation = read_operation(message, "the message")
    assert operation is not None
    fold = context.fold(instance)
    try:
        fold.verify(operation)
    except Conflict as conflict:
        yield Problem(pointer(*at), str(conflict))
        return
    for problem in kind_problems(fold, operation):
        where = f" at {problem.pointer}" if problem.pointer else ""
        yield Problem(pointer(*at), f"the schema of {operation.place.kind} forbids it{where}: {problem.message}")


# Amendments: calls that replace those of a run that have not begun, or are added to them (SPEC R11.1, R11.7).
#
# An amendment is `{"calls": […]}` or `{"solution": {"calls": […]}}`, with `tools` and `delegates` as in a submission.
# Its calls are checked like those of a submission whose context is the run's log. Calls at work are writers, and so are
# those that stay where calls are added (an ended run has none). The limits of a submission hold for the amendment; the
# log has its own.

_KEYS: Final = frozenset({"calls", "solution", "tools", "delegates"})


@dataclass(frozen=True)
class SoFar:
    """The state of a run that is amended."""

    messages: Sequence[Message]
    """Every message of its log, in order."""
    begun: Mapping[str | None, Sequence[Call]]
    """The calls at work, by instance."""
    first: int
    """The index of the first new call, after those of the run. What calls have written is in the messages."""
    is_template: bool = False
    """True where calls run once for each instance, as those of a plan."""
    tools: Mapping[str, Any] = field(default_factory=dict)
    """The tools that its calls have named, with their schemas."""
    delegates: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    allow: frozenset[str] | None = None
    """The names that its calls may use (SPEC R4.2a)."""
    kept: Mapping[str | None, Sequence[Call]] = field(default_factory=dict)
    """The calls that have not begun and stay, where calls are added to them (SPEC R11.7), by instance."""
    operator: OperatorTrust = field(default_factory=OperatorTrust)
    """The labels that the operator gave to tools when the run was submitted."""


def check_amendment(value: Any, so_far: SoFar, known: Environment) -> CheckedPlan:
    """The plan of the new calls alone. Raises `Rejected` with every error, its pointers into the amendment."""
    if not isinstance(value, dict) or ("calls" in value) is ("solution" in value):
        raise Rejected([Problem("", 'an amendment must be an object with "calls", or with a "solution" that has them')])
    unknown = [
        Problem(pointer(key), f"unknown property; an amendment has {', '.join(sorted(_KEYS))}")
        for key in value
        if key not in _KEYS
    ]
    handed_in = {
        "solution": value.get("solution", {"calls": value.get("calls")}),
        **{key: value[key] for key in ("tools", "delegates") if key in value},
    }
    try:
        given, problems = within_limits(handed_in, known.limits)
        whole = {
            **given,
            "context": list(so_far.messages),
            "tools": _joined(so_far.tools, given.get("tools")),
            "delegates": _joined(so_far.delegates, given.get("delegates")),
            "config": dict(so_far.config),
        }
        submission, problems = read_parts(whole, known.limits, problems)
        is_in_loop = "tokens" in so_far.config  # which a run has where a model is asked, and no other
        is_template, first = so_far.is_template, so_far.first
        submission = replace(submission, is_template=is_template, first=first, is_in_loop=is_in_loop)
        return check_calls(submission, [*unknown, *problems], _narrowed(known, so_far), begun=_unfinished(so_far))
    except RejectedCalls as rejected:
        raise RejectedCalls((placed(problem, value) for problem in rejected.errors), rejected.plan) from None
    except Rejected as rejected:
        raise Rejected(placed(problem, value) for problem in rejected.errors) from None


def _narrowed(known: Environment, so_far: SoFar) -> Environment:
    """The environment, limited to the names that the run may call (SPEC R4.2a), and what the operator said."""
    known = replace(known, operator=known.operator | so_far.operator)
    if so_far.allow is None:
        return known
    return replace(known, allow=so_far.allow if known.allow is None else so_far.allow & known.allow)


def _unfinished(so_far: SoFar) -> dict[str | None, Sequence[Call]]:
    """Instance -> the calls that may still write: those at work and those that stay."""
    return {
        instance: (*so_far.begun.get(instance, ()), *so_far.kept.get(instance, ()))
        for instance in dict.fromkeys((*so_far.begun, *so_far.kept))
    }


def placed(problem: Problem, value: Mapping[str, Any]) -> Problem:
    """A problem of the submission made from an amendment, at its place in the amendment."""
    return problem if "solution" in value else replace(problem, pointer=problem.pointer.removeprefix("/solution"))


def _joined(own: Mapping[str, Any], given: Any) -> Any:
    """The run's tools or delegates joined with given ones; reading the result finds what is no object."""
    if isinstance(given, list):
        return [dict(own), *given]
    return {**own, **given} if isinstance(given, dict) else dict(own) if given is None else given
