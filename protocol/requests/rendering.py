"""Rendering: the conversation in which a model is asked (SPEC R12.5).

`render` gives the messages of the first request: the engine's text, the tools, the context. `render_tick` gives what is
appended behind a tick: the model's own answer, and what has come of it. Nothing that was sent is ever changed, so the
messages of a tick begin with those of the one before, byte for byte, and providers can cache them. Provenance is in
none of it (SPEC R1.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from acts_celery.protocol.language.errors import Problem, Rejected
from acts_celery.protocol.language.messages import DATA_TYPES, ERROR, TEXT_TYPES, Message, is_chat, is_written, shown
from acts_celery.protocol.language.visible import one_line
from acts_celery.protocol.state.allowance import TooLarge
from acts_celery.protocol.state.labels import marks_of

from . import texts
from .composition import properties_of_calls
from .data_blocks import Budget, compact, cut, identity_blocks, identity_of, written_blocks
from .empty_places import empty_places
from .functions import first_schema
from .receipts import Fate, receipt
from .request import Request
from .tool_messages import ToolMessages, Turn, render_turn
from .tool_texts import output_text, tool_text
from .untrusted import told_of_error

ChatMessage = dict[str, Any]
"""`{"role": "system", "user" or "assistant", "content": text}`; a chat message of the context stays as it is."""
_TEXT_KEYS: Final = ("message", "text", "content")


def render(request: Request) -> list[ChatMessage]:
    """The messages of the first request. What the root request holds as `†input` was written by whoever asks, and may
    instruct; a delegate's parameters, its child run's input, may not. Raises `Rejected` where they are too large.
    """
    tools = [] if request.is_native else [tool_text(request, tool) for tool in request.tools.values()]
    has_instances = bool(request.instances)
    has_lists = any(tool.lists for tool in request.tools.values())
    said = {"has_instances": has_instances, "has_lists": has_lists, "is_lazy": request.is_lazy}
    speaks = request.is_native and request.may_say
    shown = properties_of_calls(first_schema(request))
    text = (
        texts.calling(shown, speaks=speaks, **said)
        if request.is_native
        else texts.opening(tools, output_text(request), shown, **said)
    )
    context = request.submission.context
    data = [message for message in context if message.get("type") in DATA_TYPES and not request.is_child]
    inputs = [message for message in data if identity_of(message) == ("input", None)]
    if inputs and not any(is_written(one) or marks_of(one) for one in inputs):
        text = f"{text}\n\n{texts.ASKER}"
    if request.shows_no_values:
        text = f"{text}\n\n{texts.BY_SCHEMA}"
    if request.hides and request.asked.result:
        text = f"{text}\n\n{texts.OTHERS}"
    try:
        rendered = render_context(context, request.budget(context))
    except TooLarge as error:
        raise Rejected([Problem("/context", str(error))]) from None
    empty = [_chat("user", line) for line in _empty(request, context)]
    return [_chat("system", text), *rendered, *empty]


def render_context(messages: Sequence[Message], budget: Budget | None = None) -> list[ChatMessage]:
    """A context as a model sees it: every data identity once, where its first message stood, with its folded value.

    Raises `TooLarge` as soon as that is more than the budget.
    """
    blocks = identity_blocks(messages, budget or Budget())
    rendered: list[ChatMessage] = []
    for message in messages:
        type_ = message.get("type")
        if type_ in DATA_TYPES:
            if (block := blocks.pop(identity_of(message), None)) is not None:
                rendered.append(_chat("user", block))
        elif type_ in TEXT_TYPES:
            rendered.append(_chat("system" if type_ == "system" else "user", _text_of(message)))
        elif type_ == "plan":
            rendered.append(_chat("user", _plan(_planned(message))))
        elif type_ is None and "role" in message:
            rendered.append(shown(message))
    return rendered


def render_added(request: Request, messages: Sequence[Message]) -> list[ChatMessage]:
    """What was added to a run before its first request: the places that were written, and what was said. Raises
    `TooLarge`.
    """
    blocks = list(written_blocks(messages, request.budget([*request.submission.context, *messages])))
    return [*([_chat("user", "\n\n".join(blocks))] if blocks else []), *render_said(messages)]


def render_said(messages: Iterable[Message]) -> list[ChatMessage]:
    """What was said to a run under way: texts and chat messages."""
    return render_context([each for each in messages if each.get("type") in TEXT_TYPES or is_chat(each)])


def render_answer(answer: Mapping[str, Any]) -> ChatMessage:
    """What a model has answered, as it was taken: its own turn of the conversation."""
    return _chat("assistant", compact(answer))


def render_tick(
    request: Request,
    tick: int,
    answer: Mapping[str, Any],
    fates: Iterable[Fate],
    before: Sequence[Message],
    new: Sequence[Message],
    times: int = 1,
) -> list[ChatMessage]:
    """What follows a tick: the model's answer, a receipt of its calls, the places that were written, every error, the
    places that are still empty, and the plan.

    `before` are the messages of the log as the tick was asked with, `new` those that came since, its errors among them.
    The plan are the calls of the answer, shown where the context holds a plan message (SPEC R13.6). `times` says how
    many ticks in a row have come to the same. Raises `TooLarge`.
    """
    show_bytes = request.config.get("show_bytes")
    lines = [*map(receipt, fates)] or [texts.NO_CALLS]
    parts = ["\n".join([texts.tick_heading(tick), *lines, *([texts.repeated(times)] if times > 1 else [])])]
    parts += written_blocks(new, request.budget([*before, *new]))
    errors = (compact(told_of_error(message, hides=request.hides)) for message in new if message.get("type") == ERROR)
    parts += [f"{texts.ERROR} {cut(error, show_bytes, '†error')}" for error in errors]
    parts += _empty(request, [*before, *new])
    if any(message.get("type") == "plan" for message in request.submission.context):
        parts.append(_plan(answer.get("calls") or ()))
    return [render_answer(answer), _chat("user", "\n\n".join(parts))]


def render_functions(
    request: Request, turn: Turn, fates: Iterable[Fate], before: Sequence[Message], new: Sequence[Message]
) -> list[ChatMessage]:
    """What follows a tick whose calls were functions: the model's turn, a tool message for each call, and the rest. See
    `render_tick`.
    """
    tools = ToolMessages(request, turn, fates, before, new)
    told, heading = tools.messages(), texts.tick_heading(turn.tick)
    parts = [
        *([texts.repeated(turn.times)] if turn.times > 1 else []),
        *tools.others(),
        *_empty(request, [*before, *new]),
    ]
    if any(message.get("type") == "plan" for message in request.submission.context):
        parts.append(_plan(turn.calls))
    if not told and not parts:
        parts = [texts.NO_CALLS]
    return [*render_turn(request, turn), *told, *([_chat("user", "\n\n".join([heading, *parts]))] if parts else [])]


def _empty(request: Request, messages: Sequence[Message]) -> Iterator[str]:
    """The required places of the state that are still empty, each with the tools that write there."""
    if places := empty_places(request, messages):
        yield f"{texts.EMPTY} {'; '.join(places)}"


def _plan(calls: Iterable[Any]) -> str:
    return "\n".join([texts.PLAN, *(list(map(compact, calls)) or [texts.NO_CALLS])])


def _planned(message: Message) -> list[Any]:
    """The calls of a plan message."""
    inside: Any = message
    for key in ("plan", "calls"):
        inside = inside[key] if isinstance(inside, Mapping) and key in inside else inside
    return inside if isinstance(inside, list) else []


def _text_of(message: Message) -> str:
    """The text of a text or system message; the whole message where it has none."""
    keys = (message["type"], *_TEXT_KEYS)
    text = next((message[key] for key in keys if key != "type" and isinstance(message.get(key), str)), None)
    found = text if text is not None else compact(shown(message))
    instance = message.get("_instance")
    return found if instance is None else f"{one_line(instance)}: {found}"


def _chat(role: str, content: str) -> ChatMessage:
    return {"role": role, "content": content}
