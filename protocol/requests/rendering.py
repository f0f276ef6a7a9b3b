"""Rendering: the conversation in which a model is asked (SPEC R12.5).

`render` gives the messages of the first request: the engine's text, the tools, the context. `render_tick` gives what is
appended behind a tick: the model's own answer, and what has come of it. Nothing that was sent is ever changed, so the
messages of a tick begin with those of the one before, byte for byte, and providers can cache them. Provenance is in
none of it (SPEC R1.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .. import limits
from ..calls.call import Call
from ..calls.declarations import delegate_context
from ..calls.outputs import PATH, VALUE, Alternative, names_of
from ..calls.tools import ANONYMOUS, Executor, Tool
from ..errors import ExpressionError, Problem, Rejected, one_line
from ..messages import DATA_TYPES, ERROR, TEXT_TYPES, Message, is_chat, is_written, kind_of, shown
from ..references import Reference, parse_output_path
from ..schemas import conjuncts
from ..schemas.walk import normalized
from ..state.context import Context
from ..state.labels import marks_of
from ..state.scopes import TooLarge
from . import texts
from .data_blocks import Budget, compact, cut, identity_blocks, identity_of, shown_error, written_blocks
from .receipts import Fate, ToolMessages, Turn, receipt, render_turn
from .schema import Request, properties_of_calls
from .tool_texts import first_schema, output_text, text_of, tool_text
from .widening import Definitions, Widening, closed, joined

# Empty places: what the state's schema requires and is not there yet, with the tools that write it (SPEC R12.5).

STATE: Final = "state"


def empty_places(request: Request, messages: Sequence[Message]) -> list[str]:
    """Each place that is empty somewhere: its reference, the tools that are pinned to it, and where instances differ in
    how many of them.
    """
    context = Context.of(messages)
    said = (one["schema"] for _, one in reversed(context.declaring) if _says_what_state_is(one, request))
    if (schema := next(said, None)) is None:
        return []
    readers: Sequence[str | None] = request.instances or (None,)
    found: list[str] = []
    for place in _required(schema, schema, ()):
        missing = sum(not context.fold(reader).exists(place) for reader in readers)
        if missing:
            tools = ", ".join(one_line(tool.name) for tool in request.tools.values() if _writes(tool, place))
            where = f" in {missing} of {len(readers)} instances" if len(readers) > missing else ""
            found.append(f"{one_line(str(place))}{f' ({tools})' if tools else ''}{where}")
        if len(found) == limits.RENDERING_MOST:
            return [*found, "…"]
    return found


def unfilled_places(request: Request, messages: Sequence[Message]) -> list[str]:
    """Places that are still empty, of a request whose goal is the state: no output is accepted before they are filled
    (SPEC R12.5).
    """
    return empty_places(request, messages) if request.config.get("goal") == STATE else []


def _says_what_state_is(message: Message, request: Request) -> bool:
    is_untrusted = request.hides_untrusted and bool(marks_of(message))  # its names may be theirs
    is_data = message.get("type") in DATA_TYPES and kind_of(message) == STATE
    return is_data and "schema" in message and not (is_written(message) or is_untrusted)


def _required(schema: Any, document: Any, path: tuple[str, ...]) -> Iterator[Reference]:
    """The places that a schema requires, those inside of others instead of these."""
    parts = conjuncts((schema,), document) if isinstance(schema, Mapping) else []
    required = dict.fromkeys(name for part in parts for name in part.get("required", ()))
    for name in required:
        below = [part["properties"][name] for part in parts if name in part.get("properties", {})]
        inside = (
            [one for each in below for one in _required(each, document, (*path, name))]
            if len(path) < limits.DEEPEST
            else []
        )
        yield from inside or [Reference(STATE, (*path, name))]


def _writes(tool: Tool, place: Reference) -> bool:
    """Whether a tool is pinned to a place there."""
    for text in tool.choices("_outputPath"):
        try:
            if any(place.overlaps(one) for one in parse_output_path(text).references):
                return True
        except ExpressionError:
            continue
    return False


ChatMessage = dict[str, Any]
"""`{"role": "system", "user" or "assistant", "content": text}`; a chat message of the context stays as it is."""
_TEXT_KEYS: Final = ("message", "text", "content")


def render(request: Request) -> list[ChatMessage]:
    """The messages of the first request. What the root request holds as `†input` was written by the user, and may
    instruct; a delegate's parameters, its child run's input, may not. Raises `Rejected` where they are too large.
    """
    has_lists = any(tool.lists for tool in request.tools.values())
    topics = {"has_instances": bool(request.instances), "has_lists": has_lists, "is_lazy": request.is_lazy}
    shown = properties_of_calls(first_schema(request))
    if request.is_native:
        text = texts.calling(shown, speaks=request.may_be_text, forgets=request.may_say_null, **topics)
    else:
        tools = [tool_text(request, tool) for tool in request.tools.values()]
        text = texts.opening(tools, output_text(request), shown, **topics)
    context = request.submission.context
    data = [message for message in context if message.get("type") in DATA_TYPES and not request.is_child]
    inputs = [message for message in data if identity_of(message) == ("input", None)]
    if inputs and not any(is_written(one) or marks_of(one) for one in inputs):
        text = f"{text}\n\n{texts.ASKER}"
    if request.shows_no_values:
        text = f"{text}\n\n{texts.BY_SCHEMA}"
    if request.hides_untrusted and request.model_trust.result:
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
    """Chat messages for what was added to a run before its first request: the places that were written, and what was
    said. Raises `TooLarge`.
    """
    blocks = list(written_blocks(messages, request.budget([*request.submission.context, *messages])))
    return [*([_chat("user", "\n\n".join(blocks))] if blocks else []), *render_said(messages)]


def render_said(messages: Iterable[Message]) -> list[ChatMessage]:
    """Chat messages for what was said to a run under way: texts and chat messages."""
    return render_context([each for each in messages if each.get("type") in TEXT_TYPES or is_chat(each)])


def render_tick(
    request: Request,
    tick: int,
    answer: Mapping[str, Any],
    fates: Iterable[Fate],
    messages: Sequence[Message],
    new: Sequence[Message],
    times: int = 1,
) -> list[ChatMessage]:
    """Chat messages after a tick: the model's answer, a receipt of its calls, the places that were written, every
    error, the places that are still empty, and the plan.

    `messages` are those of the log, `new` the last of them, which the tick was not asked with, its errors among
    them. The plan are the calls of the answer, shown if the context holds a plan message (SPEC R13.6). `times` is the
    number of consecutive ticks with the same result. Raises `TooLarge`.
    """
    show_bytes = request.config.get("show_bytes")
    lines = [*map(receipt, fates)] or [texts.NO_CALLS]
    parts = ["\n".join([texts.tick_heading(tick), *lines, *([texts.repeated(times)] if times > 1 else [])])]
    parts += written_blocks(new, request.budget(messages))
    errors = (
        compact(shown_error(message, hides=request.hides_untrusted)) for message in new if message.get("type") == ERROR
    )
    parts += [f"{texts.ERROR} {cut(error, show_bytes, '†error')}" for error in errors]
    parts += _state_and_plan(request, messages, answer.get("calls") or ())
    return [_chat("assistant", compact(answer)), _chat("user", "\n\n".join(parts))]


def render_functions(
    request: Request, turn: Turn, fates: Iterable[Fate], messages: Sequence[Message], new: Sequence[Message]
) -> list[ChatMessage]:
    """Chat messages after a tick whose calls were functions: the model's turn, a tool message for each call, and the
    rest (see `render_tick`).
    """
    tools = ToolMessages(request, turn, fates, messages, new)
    told, heading = tools.messages(), texts.tick_heading(turn.tick)
    parts = [
        *([texts.repeated(turn.times)] if turn.times > 1 else []),
        *tools.others(),
        *_state_and_plan(request, messages, turn.calls),
    ]
    if not told and not parts:
        parts = [texts.NO_CALLS]
    return [*render_turn(request, turn), *told, *([_chat("user", "\n\n".join([heading, *parts]))] if parts else [])]


def _empty(request: Request, messages: Sequence[Message]) -> Iterator[str]:
    """The required places of the state that are still empty, each with the tools that write there."""
    if places := empty_places(request, messages):
        yield f"{texts.EMPTY} {'; '.join(places)}"


def _state_and_plan(request: Request, messages: Sequence[Message], calls: Iterable[Any]) -> Iterator[str]:
    """The empty places of the state after a tick, and the plan if the context holds one (SPEC R13.6)."""
    yield from _empty(request, messages)
    if any(message.get("type") == "plan" for message in request.submission.context):
        yield _plan(calls)


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


# Requests for one result: what a delegate without tools, and a latent call, ask a model (SPEC R4.4, R8.3, R9, R12.1).
#
# They are rendered as the requests of a loop are, but for the engine's text: the answer has an output and no calls, and
# nothing in it is read as a reference. Where the call has several places to write to, the model chooses one.


@dataclass(frozen=True, slots=True)
class ResultRequest:
    """A request for the result of one call."""

    context: Sequence[Message]
    """Context of a delegate; for a latent call its chat messages."""
    schema: Any
    """Schema of the result, or of the choice of a place with its result; None admits anything."""
    choices: Mapping[str, str]
    """The places among which the model chooses, as it names them, each with its path."""
    tool: Tool | None = None
    """The call's tool, which an anonymous delegate is shown (SPEC R9.1)."""
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
    """Make the request for the result of a call. `messages` and `alternatives` come from its `Execution`; `definition`
    is its delegate's. Raises `TooLarge`.
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
    """Chat messages for a delegate with this context (SPEC R9.2); an anonymous one is shown its `tool`. `places` are
    the names of those among which it chooses. Raises `TooLarge`.
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
    """Chat messages for a latent call (SPEC R4.7, R8.3): `context` is all that its model sees, with what its scopes
    name last. What they do not name is cut if it is longer than `show_bytes`. Raises `TooLarge`.
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
    """Name of a message in scopes: its kind, or its type."""
    return message.get("kind", message.get("type"))
