"""Additions: data messages for a run under way (SPEC R11.6).

They are held against the shape of messages, the limits, and what the run's log says already: which instances there are,
what is there, and the schema of their kind, which is that of a promise where one is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from acts_celery.protocol.calls.outputs import kind_problems
from acts_celery.protocol.language.errors import Conflict, Problem, Rejected, UnknownName, pointer
from acts_celery.protocol.language.limits import Limits, one_message_problems, plain
from acts_celery.protocol.language.messages import DATA_TYPES, Message, is_chat
from acts_celery.protocol.state.context import Context
from acts_celery.protocol.state.operations import read_operation
from acts_celery.protocol.state.shapes import message_problems

_OF_THE_ENGINE = ("_call", "_chosen", "_date", "_path")


def check_data(value: Any, so_far: Iterable[Message], limits: Limits, instances: Sequence[str]) -> tuple[Message, ...]:
    """The data messages to append: `value` is one or a list of them. Raises `Rejected` with every error, its pointers
    into the value. Each is held against those before it as well.

    `so_far` are the messages of the run's log, in order: at least the global ones and those of the instances that the
    value names. `instances` are all that the run has.
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


def check_said(messages: Sequence[Any], limits: Limits) -> list[Message]:
    """The messages to add to a loop: texts and chat messages of a user. Raises `Rejected` for others."""
    messages = [plain(message, limits) for message in messages]
    problems = [problem for index, message in enumerate(messages) for problem in _said_problems(message, limits, index)]
    if not messages:
        problems.append(Problem("", "there is no message"))
    if problems:
        raise Rejected(problems)
    return messages


def _said_problems(message: Any, limits: Limits, *at: int) -> Iterator[Problem]:
    unfit = list(_message_problems(message, limits, *at))
    yield from unfit
    if unfit:
        return
    if message.get("type") != "text" and not (is_chat(message) and message["role"] == "user"):
        yield Problem(pointer(*at), 'only a text, or a message of "role": "user", can be said; data is sent')
    if "_instance" in message:
        yield Problem(pointer(*at, "_instance"), "what is said is for the whole run: leave it out")


def _shape_problems(message: Any, limits: Limits, *at: int) -> Iterator[Problem]:
    """What is wrong with a message whatever the run is."""
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
    """What no message may be."""
    yield from list(one_message_problems(message, limits, *at)) or message_problems(message, *at)


def _content_problems(message: Message, context: Context, instances: Sequence[str], *at: int) -> Iterator[Problem]:
    """What the run's log says against a message of the right shape."""
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
