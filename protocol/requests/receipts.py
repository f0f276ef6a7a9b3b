"""Receipts: how the calls of a tick ended, as a model is shown it (SPEC R12.5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from typing import Any, Final

from ..calls.call import Call
from ..calls.tools import Executor
from ..errors import one_line
from ..messages import ERROR, Message, kind_of
from ..paths import MISSING
from ..schemas import CompiledSchema
from . import texts
from .data_blocks import compact, cut, shown_error, written_blocks
from .reading import ARGUMENTS, is_forgotten
from .schema import Request, compose
from .tool_texts import OUTPUT, function_name, result_of, wire_names


@dataclass(frozen=True, slots=True)
class Fate:
    """How a call of a tick ended; `path` is where it has written, or was to write."""

    index: int
    tool: str
    instance: str | None
    fate: str
    path: str | None = None
    reason: str | None = None
    messages: tuple[Mapping[str, Any], ...] = ()
    """Messages that the call wrote."""


def receipt(fate: Fate) -> str:
    """One line: index, tool, instance, fate, path, reason."""
    instance = f" {one_line(fate.instance)}" if fate.instance is not None else ""
    return f"{fate.index}. {one_line(fate.tool)}{instance}: {ended(fate)}"


def ended(fate: Fate) -> str:
    """Words for how the call ended: fate, path, reason."""
    path = f" → {one_line(fate.path)}" if fate.path is not None else ""
    reason = f" ({one_line(fate.reason)})" if fate.reason else ""
    return f"{fate.fate}{path}{reason}"


def note_on(request: Request, call: Call) -> str | None:
    """The note in the receipt of a call that has ended well whose known result is not kept (SPEC R12.4)."""
    if call.output is not None:
        return None
    tool = request.tools.get(call.tool)
    result = result_of(request, tool) if tool is not None else None
    said = result.document if result is not None else _definition(request, call).get("schema", False)
    has_none = said is False or (isinstance(said, dict) and said.get("type") == "null")
    return texts.NOT_KEPT if call.given is not MISSING or not has_none else None


def _definition(request: Request, call: Call) -> Mapping[str, Any]:
    """The request definition of a call's delegate; empty where it has none."""
    is_delegate = call.runner.executor is Executor.DELEGATE
    return request.submission.delegates.get(call.runner.name, {}) if is_delegate else {}


# Own places: where the result of a call goes that a model has made as a function, and has given no place (SPEC R12.4).
#
# A model that calls a function expects its result. So such a call is not fire-and-forget: its result is written to
# `†result.c3`, for the call with the index 3, and shown to the model under that name. A tool that pins its places keeps
# them; a call whose `_outputPath` is null says that nobody wants its result.

_KIND: Final = "result"


def own_place(request: Request, index: int) -> str:
    """The place that is given to the call with this index in its run."""
    return f"†{_kind(request)}.c{index}"


def with_places(request: Request, answer: Mapping[str, Any], first: int) -> Mapping[str, Any]:
    """An answer in which each call that needs one has a place; `first` is the index of its first call."""
    calls = answer.get("calls")
    if not request.is_native or not isinstance(calls, list):
        return answer
    given = [
        {**call, "_outputPath": own_place(request, index)} if _needs_one(request, call) else call
        for index, call in enumerate(calls, first)
    ]
    return {**answer, "calls": given}


def given_places(request: Request, calls: Sequence[Any], first: int) -> list[str]:
    """The places that calls were given, in their order; `first` is the index of the first of them."""
    indexed = enumerate(calls, first)
    return [own_place(request, index) for index, call in indexed if as_written(request, call, index) is not call]


def as_written(request: Request, call: Any, index: int) -> Any:
    """A call without the place that it was given."""
    if not isinstance(call, Mapping) or not request.is_native or call.get("_outputPath") != own_place(request, index):
        return call
    return {key: part for key, part in call.items() if key != "_outputPath"}


def _needs_one(request: Request, call: Any) -> bool:
    is_call = isinstance(call, dict) and isinstance(call.get("_tool"), str)
    has_none = is_call and call.get("_outputPath") is None and not is_forgotten(request, call)
    return has_none and call["_tool"] in free_tools(request)


@lru_cache(maxsize=16)
def free_tools(request: Request) -> frozenset[str]:
    """Tools whose results may be written to an own place."""
    composed, place = compose(request), own_place(request, 0)
    schema, found = CompiledSchema(composed), set()
    for index, name in enumerate(request.tools):
        at = ("properties", "calls", "items", "anyOf", index)
        shown = composed["properties"]["calls"]["items"]["anyOf"][index]["properties"]
        if "_outputPath" in shown and not schema.checker((*at, "properties", "_outputPath")).problems(place):
            found.add(name)
    return frozenset(found)


@lru_cache(maxsize=16)
def _kind(request: Request) -> str:
    """A kind that does not occur in the context."""
    taken = {kind_of(message) for message in request.submission.context if "type" in message}
    names = (f"{_KIND}{number if number > 1 else ''}" for number in count(1))
    return next(name for name in names if name not in taken)


# Tool messages: what follows a tick whose calls were functions, in the shape of OpenAI's chats (SPEC R12.5, R12.6).
#
#     {"role": "assistant", "content": null, "tool_calls": [{"id": "t000c0000", "type": "function", "function": {…}}]}
#     {"role": "tool", "tool_call_id": "t000c0000", "content": "done\n## Data: †state.hotel\n{…}"}
#
# Each call has exactly one, whatever has become of it; the rest of what the tick has brought follows as role user. The
# ids are made of tick and place, so the same log gives the same bytes; nine letters and digits are an id to every
# provider.

ChatMessage = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """A model's answer in a tick, with the tick's verdict on it."""

    tick: int
    answer: Mapping[str, Any]
    first: int
    """The index of its first call."""
    words: str = ""
    """Text of the model besides its calls."""
    set_aside: str | None = None
    """Why the output was not accepted."""
    times: int = 1
    """Number of consecutive ticks with the same result."""

    @property
    def calls(self) -> Sequence[Any]:
        """Its calls."""
        return self.answer.get("calls") or ()

    @property
    def has_output(self) -> bool:
        """Whether the function of the output was called."""
        return self.answer.get(OUTPUT) is not None or ARGUMENTS in self.answer

    def id(self, position: int) -> str:
        """Id of a call by position; the output comes after the calls."""
        return f"t{self.tick:03}c{position:04}"


def render_turn(request: Request, turn: Turn) -> list[ChatMessage]:
    """The model's own turn of the conversation; none where it has neither called anything nor said anything."""
    names = wire_names(request.tools)
    made = [
        (_name(names, call), _arguments(as_written(request, call, index)))
        for index, call in enumerate(turn.calls, turn.first)
    ]
    if turn.has_output:
        key = ARGUMENTS if ARGUMENTS in turn.answer else OUTPUT
        made.append((OUTPUT, {key: turn.answer[key]}))
    calls = [
        {"id": turn.id(at), "type": "function", "function": {"name": name, "arguments": compact(arguments)}}
        for at, (name, arguments) in enumerate(made)
    ]
    if not calls and not turn.words.strip():
        return []
    said = {"role": "assistant", "content": turn.words if turn.words.strip() else None}
    return [{**said, "tool_calls": calls} if calls else said]


class ToolMessages:
    """Writes a tool message for each call of a turn. `messages` are those of the log, `new` the last of them, which the
    request was not made with.
    """

    def __init__(
        self, request: Request, turn: Turn, fates: Iterable[Fate], messages: Sequence[Message], new: Sequence[Message]
    ) -> None:
        self._turn = turn
        self._budget = request.budget(messages)
        self._fates: dict[int, list[Fate]] = {}
        for fate in fates:
            self._fates.setdefault(fate.index - turn.first, []).append(fate)
        self._new = new
        self._errors = [message for message in new if message.get("type") == ERROR]

    def messages(self) -> list[ChatMessage]:
        """One for each id of the turn. Raises `TooLarge`."""
        count = len(self._turn.calls)
        told = [(at, "\n".join(self._result_lines(at))) for at in range(count)]
        if self._turn.has_output:
            told.append((count, "\n".join(self._output_lines())))
        return [{"role": "tool", "tool_call_id": self._turn.id(at), "content": text} for at, text in told]

    def others(self) -> list[str]:
        """Further parts for the model: calls that others have added, what those have sent, errors of the answer as a
        whole.
        """
        count = len(self._turn.calls)
        parts = [receipt(fate) for at, fates in self._fates.items() if at not in range(count) for fate in fates]
        own = {id(message) for at in range(count) for fate in self._fates.get(at, ()) for message in fate.messages}
        parts += written_blocks([each for each in self._new if id(each) not in own], self._budget)
        return [*parts, *(self._error(message, "call") for message in self._errors if self._is_other(message))]

    def _result_lines(self, at: int) -> Iterator[str]:
        fates = self._fates.get(at, [])
        errors = [message for message in self._errors if _about(message) == at]
        if not fates:
            yield texts.INVALID if errors else texts.NOT_RUN
        for fate in fates:
            told = replace(fate, path=None) if fate.messages else fate  # the value's heading names it
            yield f"{'' if fate.instance is None else f'{one_line(fate.instance)}: '}{ended(told)}"
        yield from written_blocks([message for fate in fates for message in fate.messages], self._budget)
        yield from (self._error(message) for message in errors)

    def _output_lines(self) -> Iterator[str]:
        errors = [self._error(message) for message in self._errors if _about(message) == OUTPUT]
        yield texts.output_fate(self._turn.set_aside, has_errors=bool(errors))
        yield from errors

    def _is_other(self, message: Message) -> bool:
        about = _about(message)
        if isinstance(about, int):
            return about >= len(self._turn.calls)
        return about != OUTPUT or not self._turn.has_output

    def _error(self, message: Message, *parts: str) -> str:
        said = shown_error(message, *parts, "error", hides=self._budget.hidden is not None)
        return f"{texts.ERROR} {cut(compact(said), self._budget.show_bytes, '†error')}"


def _about(message: Message) -> int | str | None:
    """Position of the call that an error is about, or the output; None for neither."""
    data = message.get("data")
    error = data.get("error") if isinstance(data, Mapping) else None
    at = str(error.get("pointer")).split("/")[1:] if isinstance(error, Mapping) else []
    if len(at) > 1 and at[0] == "calls" and at[1].isdecimal():
        return int(at[1])
    return OUTPUT if at and at[0] in (OUTPUT, ARGUMENTS) else None


def _name(names: Mapping[str, str], call: Any) -> str:
    tool = call.get("_tool") if isinstance(call, Mapping) else None
    return names.get(str(tool)) or function_name(str(tool))


def _arguments(call: Any) -> Any:
    return {key: part for key, part in call.items() if key != "_tool"} if isinstance(call, Mapping) else {}
