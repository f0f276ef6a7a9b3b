"""Requests for one result: what a delegate without tools, and a latent call, ask a model (SPEC R4.4, R8.3, R9, R12.1).

They are rendered as the requests of a loop are, but for the engine's text: the answer has an output and no calls, and
nothing in it is read as a reference. Where the call has several places to write to, the model chooses one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from acts_celery.protocol.calls.alternatives import PATH, VALUE, Alternative, names_of
from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.delegates import delegate_context
from acts_celery.protocol.calls.tools import ANONYMOUS, Executor, Tool
from acts_celery.protocol.language.messages import TEXT_TYPES, Message
from acts_celery.protocol.schemas.addresses import normalized

from . import texts
from .data_blocks import Budget, compact
from .rendering import ChatMessage, render_context
from .tool_texts import text_of
from .widening import Definitions, Widening, closed, joined


@dataclass(frozen=True, slots=True)
class ResultRequest:
    """What is asked for the result of a call."""

    context: Sequence[Message]
    """All that a delegate is given; of a latent call the chat messages."""
    schema: Any
    """Of the result, or of the choice of a place for it; None: anything."""
    choices: Mapping[str, str]
    """The places among which the model chooses, as it names them, each with its path."""
    tool: Tool | None = None
    """The call's own, of which an anonymous delegate is told (SPEC R9.1)."""
    is_rendered: bool = False
    """Whether the context is chat messages."""

    @property
    def messages(self) -> list[ChatMessage]:
        """The chat messages. Raises `TooLarge`."""
        chat: Any = self.context if self.is_rendered else delegate_messages(self.context, self.tool, self.choices)
        return list(chat)


def result_request(
    call: Call,
    parameters: Mapping[str, Any],
    messages: Sequence[Message],
    alternatives: Sequence[Alternative],
    *,
    tool: Tool | None,
    definition: Mapping[str, Any],
    show_bytes: int | None = None,
) -> ResultRequest:
    """What is asked for a call with these parameters. What it is given of the context, and its alternatives, come from
    its `Execution`; the definition is its delegate's. Raises `TooLarge`.
    """
    choices = names_of(alternatives)
    if call.runner.executor is Executor.LATENT:
        schema = result_schema(tool.output_schema if tool is not None else None, alternatives)
        chat = latent_messages(call, parameters, messages, tool, choices, show_bytes=show_bytes)
        return ResultRequest(chat, schema, choices, is_rendered=True)
    schema = definition.get("schema", tool.output_schema if tool is not None else None)
    context = delegate_context(definition.get("context", []), messages, parameters)
    about = tool if call.runner.name in (ANONYMOUS, call.tool) else None
    return ResultRequest(context, result_schema(schema, alternatives), choices, about)


def delegate_messages(
    context: Sequence[Message], tool: Tool | None = None, places: Iterable[str] = ()
) -> list[ChatMessage]:
    """What a delegate is asked of which this is the whole context (SPEC R9.2); an anonymous one is told its `tool`.
    `places` are the names of those among which it chooses. Raises `TooLarge`.
    """
    text = texts.result_opening(_lines(tool), list(places))
    return [_chat("system", text), *render_context(context, Budget(is_answer_data=True))]


def latent_messages(
    call: Call,
    parameters: Mapping[str, Any],
    context: Sequence[Message],
    tool: Tool | None,
    places: Iterable[str] = (),
    *,
    show_bytes: int | None = None,
) -> list[ChatMessage]:
    """What a latent call asks (SPEC R4.7, R8.3): `context` is all that its model sees, what its scopes name last. What
    they do not name is cut where it is longer than `show_bytes`. Raises `TooLarge`.
    """
    kinds = {scope.kind for scope in call.scopes}
    named = [message for message in context if _kind(message) in kinds]
    others = [message for message in context if _kind(message) not in kinds]
    look = [str(scope) for scope in call.scopes if scope.kind not in TEXT_TYPES]
    return [
        _chat("system", texts.result_opening(_lines(tool), list(places), is_call=True)),
        *render_context(others, Budget(show_bytes, is_answer_data=True)),
        *(chat for message in named for chat in render_context([message], Budget(is_answer_data=True))),
        _chat("user", texts.call_to_answer(compact({"_tool": call.tool, **parameters}), look)),
    ]


def result_schema(schema: Any, alternatives: Iterable[Alternative]) -> Any:
    """The schema of a result; where there are alternatives, of the choice of one of them with a result that fits."""
    choices, definitions = [], Definitions()
    for one in alternatives:
        said = [each for each in (schema, *one.schemas) if each not in (None, True, {})]
        documents = map(normalized, said)
        written = [Widening("value", document, definitions).data(document) for document in documents]
        choices.append(closed({PATH: {"const": one.name}, VALUE: joined(written)}))
    if not choices:
        return schema
    return {
        "description": texts.CHOICE,
        "anyOf": choices,
        **({"$defs": definitions.schemas} if definitions.schemas else {}),
    }


def _lines(tool: Tool | None) -> str | None:
    return text_of(tool, tool.compiled_output) if tool is not None else None


def _kind(message: Message) -> Any:
    """What scopes name it by."""
    return message.get("kind", message.get("type"))


def _chat(role: str, content: str) -> ChatMessage:
    return {"role": role, "content": content}
