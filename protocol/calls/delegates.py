"""Delegates: the context that an isolated sub-request is given, and nothing else (SPEC R9.1, R9.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import Problem
from ..messages import TRUST, Message, is_promise, read_data, render_data, shown
from ..paths import MISSING
from ..schemas import compiled
from ..state.labels import MOST_LABELS, Labels, marks_of
from .call import Call
from .tools import ANONYMOUS, Executor


def delegate_context(
    own: Sequence[Message], scoped: Iterable[Message], parameters: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Its own messages, then the scoped messages of the parent, then the call's parameters as input (SPEC R9.2).

    `scoped` comes from `Execution.scoped_messages`; provenance and routing are in none of it (SPEC R1.4).
    """
    context = [shown(message) for message in own]
    context.extend(dict(message) for message in scoped)
    if parameters:
        context.append(render_data("input", dict(parameters), schema=input_schema(own)))
    return context


def child_context(
    own: Sequence[Message], scoped: Iterable[Message], parameters: Mapping[str, Any], labels: Labels
) -> list[dict[str, Any]]:
    """The same for a run of its own, where each message names its sources: its own what they say, the others `labels`
    and what its own promises say (SPEC R16.2).
    """
    given = labels.union(*(marks_of(message).labels for message in own if is_promise(message)))
    context = delegate_context(own, scoped, parameters)
    for position, message in enumerate(context):
        said = marks_of(own[position]).labels if position < len(own) else given
        if said and read_data(message) is not None:
            message[TRUST] = sorted(said)[:MOST_LABELS]  # that it names any keeps effects from starting
    return context


def declares_tools(definition: Mapping[str, Any]) -> bool:
    """Whether a delegate's definition has tools of its own: it is a loop then, and its answer a run (SPEC R9.3)."""
    context = definition.get("context") or ()
    return bool(definition.get("tools")) or any(message.get("type") == "tool" for message in context)


def unawaited_problem(call: Call, delegates: Mapping[str, Any], *, is_request: bool) -> str | None:
    """What is wrong with a call without an output path whose delegate is answered by a run, or by a model in a request:
    both are counted with their result (SPEC R9.3, R13.3). `delegates` are the definitions.
    """
    if not call.is_fire_and_forget or call.runner.executor is not Executor.DELEGATE:
        return None
    name = call.runner.name
    if declares_tools(delegates.get(name, {})):
        return f"delegate {name!r} has tools, and is a run: give the call an _outputPath"
    if is_request and (name in delegates or name == ANONYMOUS):
        why = "is answered by a model, whose tokens are counted with its result"
        return f"delegate {name!r} {why}: give the call an _outputPath"
    return None


def input_schema(own: Sequence[Message]) -> Any:
    """The schema that a delegate declares for its input: that of its last input message that has one."""
    for message in reversed(own):
        kind = message.get("kind") if message.get("type") == "data" else message.get("type")
        if kind == "input" and "schema" in message:
            return message["schema"]
    return MISSING


def input_misfit(definition: Mapping[str, Any], call: Call) -> list[Problem]:
    """What a delegate's declared input schema says against a call's parameters, expressions standing for any value.

    By default that is no error: the delegate's model bridges the gap. With `config.resolve: "upfront"` it is one
    (SPEC R9.2). The definition is a valid one; the pointers lead into the call.
    """
    schema = input_schema(definition.get("context", ()))
    if schema is MISSING:
        return []
    parameters = {key: value for key, value in call.standing_in().items() if not key.startswith("_")}
    return compiled(schema).problems(parameters, lenient=True)
