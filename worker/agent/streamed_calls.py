"""Assembles the function calls of a streamed answer, whichever provider's dialect they come in (SPEC R12.6, R13.8).

A call comes in one piece or in many, and the pieces of several calls may be mixed. The index of a piece says which call
it belongs to; where there is none the id does, else the name, and a piece that has nothing of these continues the call
before it. Where that leaves a choice, or a piece belongs to no call, nothing is guessed: the answer is invalid.

The answer has the calls in the order of their indexes. One is written, and so begins, as soon as its arguments are one
whole JSON object and no call before it is missing. Arguments that are `{}` may be a placeholder, which some servers
send before the real ones: they wait until nothing more can come.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain, groupby
from typing import Any, Final

from ...protocol.requests.reading import FunctionAnswer
from ...protocol.requests.tool_texts import OUTPUT, Function
from .. import limits
from ..registry.models import InvalidAnswer

# What comes over the wire: a body of bounded size, whole or as server-sent events.
#
# The SDKs make an object of every event, without a bound on its size; an answer has thousands of events, and the
# server is not trusted.

_DATA: Final = b"data:"
_END: Final = b"[DONE]"
_HALVES: Final = re.compile("[\ud800-\udfff]")
_SECOND: Final = "\udc00"
"""Halves of characters (UTF-16) from here on are second ones."""


class WholeCharacters:
    """Joins the halves of characters (UTF-16) of a text that comes in pieces."""

    def __init__(self) -> None:
        self.half = ""
        """The first half of a character whose second one has not come."""

    def joined(self, piece: str) -> str:
        """A piece with the half that the one before ended with, and without one at its own end."""
        text, self.half = self.half + piece, ""
        if _HALVES.search(text):
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
            self.half = text[-1] if _HALVES.match(text[-1]) and text[-1] < _SECOND else ""
        return text.removesuffix(self.half)


async def bounded(chunks: AsyncIterator[bytes], most_bytes: int) -> AsyncIterator[bytes]:
    """The chunks, as far as they are no more than so many bytes together. Raises `InvalidAnswer`."""
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > most_bytes:
            raise InvalidAnswer(f"the model's server has sent more than {most_bytes} bytes in one answer")
        yield chunk


async def events(chunks: AsyncIterator[bytes]) -> AsyncIterator[Mapping[str, Any]]:
    """The data of server-sent events, each a JSON object, until they end or `[DONE]` comes. Raises `InvalidAnswer`."""
    data: list[bytes] = []
    async for line in _lines(chunks):
        if line.startswith(_DATA):
            data.append(line[len(_DATA) :].strip())
        elif not line and data:
            if data == [_END]:
                return
            yield json_object(b"\n".join(data))
            data = []


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines, and an empty one at the end."""
    begun: list[bytes] = []
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        begun.append(first)
        for other in others:
            yield b"".join(begun).rstrip(b"\r")
            begun = [other]
    for line in (b"".join(begun), b""):
        yield line.rstrip(b"\r")


def json_object(body: bytes) -> Mapping[str, Any]:
    """The JSON object that a body is. Raises `InvalidAnswer`."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        shown = body[: limits.BODY_SHOWN_BYTES].decode(errors="replace")
        raise InvalidAnswer(f"the model's server did not answer with a JSON object: {shown}")
    return value


_TEXT_BEGINS: Final = re.compile(r'\s*\{\s*"output"\s*:\s*(?=")')
"""The text before an output that is a text, in the arguments of its function."""
_EMPTY: Final = re.compile(r"\s*\{\s*\}\s*")
_BRACKET: Final = re.compile(r'["{}\[\]]')
_IN_STRING: Final = re.compile(r'["\\]')


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a function call as a provider sends it; what it does not say is None."""

    index: int | None = None
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    is_whole: bool = False
    """Whether the call did not come in pieces: this is all of it."""
    own: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the provider's own, such as a signature or its reasoning."""


class FunctionCall:
    """A function call that is being assembled."""

    def __init__(self, index: int | None, order: tuple[int, int]) -> None:
        self.index = index
        self.order = order
        """Its place in the answer."""
        self.id: str | None = None
        self.name: str | None = None
        self.own: dict[str, Any] = {}
        self.rival: FunctionCall | None = None
        """A call with the same index that is not complete."""
        self.is_ended = False
        """Whether the provider has said that it is complete."""
        self.has_begun = False
        self.is_closed = False
        """Whether the bracket that its arguments begin with is closed."""
        self.is_empty = False
        """Whether that bracket holds nothing."""
        self.may_stream = True
        """Whether its arguments may be an output that is passed on while it is written."""
        self._pieces: list[str] = []
        self._characters = WholeCharacters()
        self._depth = 0
        self._is_string = False
        self._is_escaped = False

    def __lt__(self, other: FunctionCall) -> bool:
        return self.order < other.order

    @property
    def is_open(self) -> bool:
        """Whether more of its arguments is expected."""
        return not self.is_closed and not self.is_ended

    @property
    def arguments(self) -> str:
        """The arguments so far."""
        return "".join(self._pieces) + self._characters.half

    @property
    def can_begin(self) -> bool:
        """Whether nothing that comes can change the call any more."""
        return self.name is not None and (self.is_ended or (self.is_closed and not self.is_empty))

    def end(self, arguments: str) -> None:
        """Take in all of the arguments."""
        self._pieces.append(self._characters.joined(arguments))
        self.is_ended = True

    def add(self, piece: str) -> str:
        """Take in more of the arguments, and return its whole characters. Raises `InvalidAnswer`."""
        if not self.is_open:
            self._verify_nothing(piece)
            return ""
        piece = self._characters.joined(piece)
        self._pieces.append(piece)
        if not self.has_begun and (begin := piece.lstrip()):
            self.has_begun = True
            self._depth = 0 if begin.startswith("{") else -1  # what begins otherwise never is an object
            piece = begin
        if self._depth >= 0 and self.has_begun:
            self._scan(piece)
        return piece

    def _scan(self, piece: str) -> None:
        at = 0
        while at < len(piece):
            if self._is_escaped:
                self._is_escaped, at = False, at + 1
                continue
            found = (_IN_STRING if self._is_string else _BRACKET).search(piece, at)
            if found is None:
                return
            at = found.end()
            if found[0] == "\\":
                self._is_escaped = True
            elif found[0] == '"':
                self._is_string = not self._is_string
            else:
                self._depth += 1 if found[0] in "{[" else -1
                if self._depth <= 0:
                    self._verify_nothing(piece[at:])
                    self.is_closed, self.is_empty = True, _EMPTY.fullmatch(self.arguments) is not None
                    return

    def _verify_nothing(self, piece: str) -> None:
        if piece.strip():
            raise _invalid(f"more came for the call of {self.name or 'a function'} when it was complete")


class CallAssembler:
    """Writes the answer that the calls are; its methods return what they add to the text that is passed on."""

    def __init__(self, functions: Iterable[Function], *, may_be_text: bool = False) -> None:
        self._answer = FunctionAnswer(list(functions))
        self._may_be_text = may_be_text
        """Whether words are the output if no call follows."""
        self._words: list[str] = []
        self.written: list[FunctionCall] = []
        """The calls that are written, in order."""
        self._text: list[str] = []
        self.size = 0
        """The bytes of the answer so far."""
        self._newest: dict[Hashable, FunctionCall] = {}
        """The newest call of each index, of each index with an id, and of each name."""
        self._last: FunctionCall | None = None
        self._count = 0
        self._open: dict[FunctionCall, None] = {}
        """The calls that are not complete yet."""
        self._waiting: list[FunctionCall] = []
        """The calls that are not written yet, a heap by their order."""
        self._taken: set[int] = set()
        self._next = 0
        """The first index that has not come."""
        self._is_doubtful = False
        """Whether a name came again, with nothing else to tell calls apart, so that another call may have begun."""
        self._others: set[int] = set()
        """The indexes of blocks that are no call."""
        self._streaming: FunctionCall | None = None
        """The output that is a text, once some of it was passed on."""

    @property
    def words(self) -> str:
        """The words next to the calls."""
        return "".join(self._words)

    @property
    def text(self) -> str:
        """The answer, as far as it is written."""
        return "".join(self._text)

    def add_words(self, piece: str) -> str:
        """Take in words. Returns them as a piece of an output, if they can be one: no part of the text."""
        begins = not self._words
        self._words.append(piece)
        if not self._may_be_text:
            return ""
        text = json.dumps(piece)[1:-1]
        return f'{self._answer.before_output}"{text}' if begins else text

    def skip(self, index: int) -> str:
        """Take in that the block with this index is no call."""
        self._others.add(index)
        self._take_index(index)
        return self._write()

    def take(self, piece: Piece) -> str:
        """Take in a piece of a call. Raises `InvalidAnswer` where it belongs to none."""
        call = self._call_of(piece)
        if call is None:
            return ""
        self._last = call
        for key in ((call.index, piece.id), (piece.name,)):
            if key[-1] is not None:
                self._newest[key] = call
        call.id = call.id or piece.id
        call.name = call.name or piece.name
        call.own = {**piece.own, **call.own}
        added = "" if piece.is_whole else call.add(piece.arguments)
        if piece.is_whole:
            call.end(piece.arguments)
        if not call.is_open:
            self._open.pop(call, None)
        return self._write() + self._stream_output(call, added)

    def end(self, index: int) -> str:
        """End the call with this index: nothing more follows."""
        call = self._newest.get(index)
        if call is None or index in self._others:
            return ""
        call.end("" if call.has_begun else "{}")  # Anthropic sends no arguments where there are none
        self._open.pop(call, None)
        return self._write()

    def close(self) -> None:
        """Write the rest: the answer is whole. Raises `InvalidAnswer` where pieces are left that belong to no call."""
        if any(call.name is None for call in self._waiting):
            raise _invalid("a call came without the name of its function")
        while self._waiting:
            self._append(heappop(self._waiting))
        self._add(self._answer.end())

    def _call_of(self, piece: Piece) -> FunctionCall | None:
        """The call that a piece belongs to; None where that is nothing of ours."""
        if piece.is_whole:
            return self._begin(piece)
        if piece.index is not None:
            return self._by_index(piece, piece.index)
        if piece.id is not None:
            return self._by_id(piece)
        last, has_arguments = self._last, bool(piece.arguments.strip())
        if piece.name is not None:
            return self._by_name(piece, piece.name)
        if not has_arguments:
            return None
        if last is None or any(call is not last for call in self._open):
            raise _invalid("a piece of a call does not say which call it belongs to")
        self._verify_one(last, piece)
        return last

    def _by_index(self, piece: Piece, index: int) -> FunctionCall | None:
        call = self._newest.get(index)
        if index in self._others:
            if piece.name is None:
                return None
            self._others.discard(index)
        if call is None:
            return self._begin(piece)
        if piece.id is not None and call.id not in (None, piece.id):
            known = self._newest.get((index, piece.id))
            if known is not None:
                return self._same(known, piece)
            if piece.name is not None:
                return self._begin(piece)
        while call.rival is not None and not call.rival.is_open:
            call.rival = call.rival.rival
        if call.rival is not None and piece.arguments.strip() and piece.id is None:
            raise _invalid(f"two calls have the index {index}, and a piece does not say which it belongs to")
        return self._same(call, piece)

    def _by_id(self, piece: Piece) -> FunctionCall:
        known, last = self._newest.get((None, piece.id)), self._last
        if known is not None:
            return self._same(known, piece)
        is_next = last is not None and last.id is None and last.index is None and last.is_open
        if last is not None and is_next and piece.name in (None, last.name) and len(self._open) == 1:
            return last
        return self._begin(piece)

    def _by_name(self, piece: Piece, name: str) -> FunctionCall:
        if self._last is not None and self._last.name is None:
            return self._last
        call = self._newest.get((name,))
        if call is None or (not call.is_open and piece.arguments.strip()):
            return self._begin(piece)
        self._is_doubtful = self._is_doubtful or call.is_open
        self._verify_one(call, piece)
        return call

    def _verify_one(self, call: FunctionCall, piece: Piece) -> None:
        """Raise `InvalidAnswer` where a piece may be the beginning of another call."""
        is_beginning = call.has_begun and piece.arguments.lstrip().startswith("{")
        if self._is_doubtful and (is_beginning or (piece.name is None and not call.has_begun)):
            raise _invalid(f"two calls of {call.name} are mixed, and a piece does not say which it belongs to")

    def _same(self, call: FunctionCall, piece: Piece) -> FunctionCall:
        """The call, or a new one, where a piece has the name of another function."""
        return self._begin(piece) if piece.name is not None and call.name not in (None, piece.name) else call

    def _begin(self, piece: Piece) -> FunctionCall:
        self._may_be_text = False
        self._count += 1
        index = piece.index
        place = index if index is not None else self._last.order[0] if self._last is not None else 0
        call = FunctionCall(index, (place, self._count))
        if index is not None:
            before = self._newest.get(index)
            call.rival = before if before is None or before.is_open else before.rival
            self._newest[index] = call
            self._take_index(index)
        self._open[call] = None
        heappush(self._waiting, call)
        return call

    def _take_index(self, index: int) -> None:
        self._taken.add(index)
        while self._next in self._taken:
            self._next += 1

    def _write(self) -> str:
        """Write the calls that can begin; no piece of an output is between them."""
        before = len(self._text)
        while self._waiting and (first := self._waiting[0]).can_begin:
            if first.index is not None and first.index > self._next:
                break
            self._append(heappop(self._waiting))
        # An output that was passed on cannot be taken back: what is behind it waits for the whole answer.
        return "" if self._streaming is not None else "".join(self._text[before:])

    def _append(self, call: FunctionCall) -> None:
        self.written.append(call)
        self._add(self._answer.call(call.name or "", call.arguments))

    def _add(self, text: str) -> None:
        self._text.append(text)
        self.size += len(text.encode(errors="replace"))

    def _stream_output(self, call: FunctionCall, piece: str) -> str:
        """The piece to pass on of an output that is a text, while it is written: how the answer goes on if no call
        follows. It is no part of the answer's text.
        """
        is_alone = not self._waiting or self._waiting == [call]
        if call.name != OUTPUT or not call.may_stream or not is_alone or self._streaming not in (None, call):
            return ""
        if self._streaming is call:
            return piece
        before = call.arguments
        if (begins := _TEXT_BEGINS.match(before)) is None:
            call.may_stream = len(before) < limits.LONGEST_BEFORE
            return ""
        self._streaming = call
        return self._answer.before_output + before[begins.end() :]


def _invalid(why: str) -> InvalidAnswer:
    return InvalidAnswer(f"the function calls cannot be put together: {why}; none of them counts: make them again")


def text_of(arguments: Any) -> str:
    """The arguments of a call as a JSON text, also of servers that send them as a value."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments) if isinstance(arguments, dict) else ""


# The provider's own data: fields of answers that are not read, kept to be sent back to their model.
#
# Some models refuse the next request without it: Gemini without the signature of each of its calls, Anthropic and
# OpenRouter without the thoughts that came before a call. It is data of the provider's own. The log has it with the
# answer, as a JSON text; nobody else is shown it, no other model is sent it (SPEC R12.6).

THINKING: Final = "thinking_blocks"
"""The field of a message or a call whose blocks precede it in Anthropic's Messages."""
_NOTHING: Final[tuple[Any, ...]] = (None, "", [], {})
_READ: Final = {"role", "content", "refusal", "tool_calls"}
_OF_ANSWERS_ALONE: Final = {"function_call", "audio", "annotations"}
"""Fields of OpenAI's that an answer has and a request does not."""
_READ_OF_CALLS: Final = {"index", "id", "type", "function"}
_READ_OF_FUNCTIONS: Final = {"name", "arguments"}
_GROWING: Final = ("text", "summary", "data")
"""The fields of an entry of `reasoning_details` (OpenRouter) that come in pieces."""
_CALL_ID: Final = re.compile(r"t(\d{3,9})c(\d{4,9})")
"""An id that `protocol.requests.tool_messages` gives: of which tick, and which of its calls."""

Fields = dict[str, Any]


def of_message(message: Mapping[str, Any]) -> Fields:
    """The fields of a chat message, or of a piece of one, that are not read."""
    return _rest(message, _READ | _OF_ANSWERS_ALONE)


def of_call(call: Mapping[str, Any]) -> Fields:
    """The fields of a function call, or of a piece of one, that are not read."""
    function = call.get("function")
    inside = _rest(function, _READ_OF_FUNCTIONS) if isinstance(function, Mapping) else {}
    return {**_rest(call, _READ_OF_CALLS), **({"function": inside} if inside else {})}


def whole(pieces: Sequence[Mapping[str, Any]]) -> Fields:
    """Fields that came in pieces: texts and lists go on where the piece before ended."""
    found: dict[str, list[Any]] = {}
    for piece in pieces:
        for key, value in piece.items():
            found.setdefault(key, []).append(value)
    return {key: _joined(values) for key, values in found.items()}


def packed(model: str, message: Fields, calls: Iterable[tuple[bool, str | None, Fields]], most_bytes: int) -> str:
    """The provider's own data as a text for the log; empty for none, or too much. `model` is the
    one that it is sent back to; each of `calls` is whether it is the output, the provider's id and its fields.
    """
    shown = json.dumps(message)
    kept: list[Fields] = []
    data: Fields = {"model": model, "message": message, "calls": kept}
    for is_output, id_, own in calls:
        own = {**own, **({"id": id_} if id_ is not None and json.dumps(id_) in shown else {})}
        if is_output:
            data.setdefault(OUTPUT, own)
        else:
            kept.append(own)
    if not (message or any(kept) or data.get(OUTPUT)):
        return ""
    try:
        text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    except ValueError:  # a number that no JSON has
        return ""
    return text if len(text) <= most_bytes else ""


def restored(messages: Sequence[Mapping[str, Any]], data: Mapping[str, str], model: str) -> list[dict[str, Any]]:
    """Messages with the provider's own data that their model sent with them; `data` are the log's texts by tick."""
    read = {tick: _read(text, model) for tick, text in data.items() if tick.isdecimal()}
    sent = {int(tick): own for tick, own in read.items() if own is not None}
    ids: dict[str, str] = {}
    return [_restored(message, sent, ids) if sent else dict(message) for message in messages]


def _restored(message: Mapping[str, Any], sent: Mapping[int, Fields], ids: dict[str, str]) -> dict[str, Any]:
    """A message, with the ids of calls as their provider gave them, where it refers to them."""
    if message.get("role") == "tool":
        id_ = message.get("tool_call_id")
        return {**message, "tool_call_id": ids.get(str(id_), id_)}
    calls = message.get("tool_calls")
    places = [_CALL_ID.fullmatch(str(call.get("id"))) for call in calls] if isinstance(calls, list) else []
    own = sent.get(int(places[0][1])) if places and places[0] is not None else None
    if own is None or calls is None:
        return dict(message)
    found = []
    for call, place in zip(calls, places, strict=True):
        kept = own["calls"]
        is_output = call["function"]["name"] == OUTPUT
        at = int(place[2]) if place is not None else len(kept)
        fields = own.get(OUTPUT, {}) if is_output else kept[at] if at < len(kept) else {}
        given = fields.get("id")
        if isinstance(given, str) and given not in ids.values():
            ids[call["id"]] = given
        found.append({**_merged(fields, call), "id": ids.get(call["id"], call["id"])})
    return {**_merged(own["message"], message), "tool_calls": found}


def _merged(fields: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Both, one level of objects inside merged; the engine's `own` fields win."""
    both = {key for key in fields.keys() & own.keys() if isinstance(fields[key], dict) and isinstance(own[key], dict)}
    return {**fields, **own, **{key: {**fields[key], **own[key]} for key in both}}


def _read(text: str, model: str) -> Fields | None:
    """The data that the log has, where it is this model's."""
    with suppress(ValueError, RecursionError):
        data = json.loads(text)
        if isinstance(data, dict) and data.get("model") == model:
            calls, message, output = data.get("calls"), data.get("message"), data.get(OUTPUT, {})
            parts = [message, output, *(calls if isinstance(calls, list) else [None])]
            return data if all(isinstance(part, dict) for part in parts) else None
    return None


def _rest(data: Mapping[str, Any], read: set[str]) -> Fields:
    return {key: value for key, value in data.items() if key not in read and value not in _NOTHING}


def _joined(values: list[Any]) -> Any:
    if all(isinstance(value, str) for value in values):
        return "".join(values)
    if all(isinstance(value, list) for value in values):
        return list(_entries(chain.from_iterable(values)))
    if all(isinstance(value, dict) for value in values):
        return whole(values)
    return values[-1]


def _entries(values: Iterable[Any]) -> Iterator[Any]:
    """The entries of a list that came in pieces; the pieces of one entry share its index and type."""
    for key, group in groupby(values, _key):
        if key is None:
            yield from group
            continue
        pieces: list[Fields] = list(group)
        entry = {name: value for piece in pieces for name, value in piece.items() if value is not None}
        for name in _GROWING:
            if texts := [piece[name] for piece in pieces if isinstance(piece.get(name), str)]:
                entry[name] = "".join(texts)
        yield entry


def _key(entry: Any) -> tuple[int, Any, Any] | None:
    index = entry.get("index") if isinstance(entry, dict) else None
    return (index, str(entry.get("type")), str(entry.get("id"))) if isinstance(index, int) else None
