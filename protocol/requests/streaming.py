"""Streaming: which calls of an answer that is still being written can begin, and what the answer comes to in the end
(SPEC R13.8).

A call begins early only where nothing that may still be written changes what it waits for: each place that it reads
is held by the context or written by a call before it that can begin, too, and nothing in its sight by one that cannot;
and no text of it may turn out to name a place (SPEC R12.6b). So a streamed answer runs as it would if it had come
whole; all that differs is when. The other calls wait for the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from ..calls.call import Call
from ..errors import key_repeated
from ..messages import EVERYWHERE, Message
from ..paths import MISSING
from ..plan.checked_plan import CheckedPlan
from ..plan.graph import parameter_places, scope_places, sees
from ..plan.lanes import lay_out
from ..references import DAGGER, Reference
from .answers import Answer, AnswerError, joined_messages, read_answer
from .invalid_calls import may_have_slips, places_written
from .reading import Unreadable, decoded, find_answer
from .schema import Explain, Request, as_they_are

# Growing answers: the calls, and the text output, of an answer whose text is still being written (SPEC R13.8, R13.12).
#
# A call is given as soon as its JSON is complete, so that it can be checked and started while the rest is written; an
# output that is a text is given as far as it is written. What the whole answer means is read from its whole text (see
# `answers`).

_MARK: Final = re.compile(rb'["{}\[\]:,/]')
_IN_STRING: Final = re.compile(rb'["\\]')
_CHARACTERS: Final = re.compile(
    r'(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*"
)
"""The beginning of a JSON string that is whole characters."""
_CALLS: Final = "calls"
_OUTPUT: Final = "output"
_BEFORE: Final = re.compile(rb"\s*(?:```[a-zA-Z]*\r?\n\s*)?")
"""Text that may come before an answer (see `reading`)."""


class GrowingAnswer:
    """Reads a text piece by piece.

    >>> growing = GrowingAnswer()
    >>> growing.feed('{"calls": [{"_tool": "a"}, {"_to')
    [{'_tool': 'a'}]
    >>> growing.feed('ol": "b"}], "output": null}')
    [{'_tool': 'b'}]
    """

    def __init__(self) -> None:
        self._text = bytearray()
        """All that has come, in UTF-8: unlike a text it grows without being copied, however small the pieces are."""
        self._at = 0
        self._open: list[str] = []
        """The objects and lists around the place that is read, outermost first."""
        self._string: int | None = None
        """Where the string begins that is read."""
        self._last: str | None = None
        """The last string that ended in the outermost object: perhaps a key."""
        self._key: str | None = None
        """The key in the outermost object whose value is read."""
        self._began = 0
        """Where the call begins that is read."""
        self._list = 0
        """Where the list of calls begins."""
        self._end = 0
        """Behind the last call that is complete."""
        self._output: int | None = None
        """Where the output begins, behind its quote, where it is a text."""
        self._keys: set[str] = set()

    def feed(self, piece: str) -> list[Any]:
        """Take in what has been written; the calls that are complete now, in order. Raises `Unreadable` where it cannot
        become an answer any more, or where something in `calls` is no object.
        """
        self._text += piece.encode(errors="surrogatepass")
        calls: list[Any] = []
        while (mark := self._next()) is not None:
            if (end := self._take(mark)) is not None:
                calls.append(decoded(self._between(self._began, end), is_lenient=True))
                self._end = end
        return calls

    @property
    def text(self) -> str:
        """All that has come."""
        return self._between(0, None)

    @property
    def text_of_calls(self) -> str:
        """The text so far, up to the last complete call."""
        return self._between(0, self._end)

    @property
    def written(self) -> int:
        """How many bytes of the text have come since a text output began in it."""
        return len(self._text) - self._output if self._output is not None else 0

    @property
    def output(self) -> str:
        """The output as far as it has come, where it is a text; only up to the first †, because the value behind it is
        not known before the calls have ended.
        """
        if self._output is None:
            return ""
        found = _CHARACTERS.match(self._between(self._output, None))
        assert found is not None  # it matches nothing, too
        text: str = json.loads(f'"{found[0]}"')
        return text.partition(DAGGER)[0]

    def _between(self, begin: int | None, end: int | None) -> str:
        return self._text[begin:end].decode(errors="surrogatepass")

    def _next(self) -> int | None:
        """The next character that matters, None where it has not come yet."""
        found = (_MARK if self._string is None else _IN_STRING).search(self._text, self._at)
        if found is None:
            self._at = len(self._text)
            return None
        if found[0] == b"\\" and found.end() == len(self._text):
            self._at = found.start()  # what it escapes has not come yet
            return None
        self._at = found.end() + (found[0] == b"\\")
        return found.start()

    def _take(self, at: int) -> int | None:
        """Step over a character; where a call ends with it, that is behind it."""
        match chr(self._text[at]):
            case '"' if self._string is None:
                self._string = at
                if self._output is None and self._key == _OUTPUT and len(self._open) == 1:
                    self._output = at + 1
            case '"':
                if len(self._open) == 1:
                    self._last = decoded(self._between(self._string, at + 1))
                self._string = None
            case "/" if self._open and self._string is None:
                raise Unreadable("a comment may hold anything: what has one is read when it is whole")
            case ":" if len(self._open) == 1:
                self._begin_value()
            case "," if len(self._open) == 1:
                self._key = None
            case "{" | "[" as opening:
                self._open.append(opening)
                if len(self._open) == 1 and not _BEFORE.fullmatch(self._text, 0, at):
                    raise Unreadable("something precedes it")
                if len(self._open) == 2 and self._is_in_calls:
                    self._list = at + 1
                elif len(self._open) == 3 and self._is_in_calls:
                    self._begin_call(at)
            case "}" | "]" as closing:
                is_call = closing == "}" and len(self._open) == 3 and self._is_in_calls
                if not self._open or self._open.pop() != {"}": "{", "]": "["}[closing]:
                    raise Unreadable(f"a {closing} closes nothing")
                return at + 1 if is_call else None
        return None

    def _begin_call(self, at: int) -> None:
        between = self._text[self._end or self._list : at].split()
        if between != ([b","] if self._end else []):
            raise Unreadable("calls is not a list of calls")
        self._began = at

    def _begin_value(self) -> None:
        self._key = self._last
        if self._key is not None and self._key in self._keys:
            raise Unreadable(key_repeated(self._key))
        self._keys.add(self._key or "")

    @property
    def _is_in_calls(self) -> bool:
        """Whether what is read is an element of `calls`, or in one."""
        return self._key == _CALLS and self._open[:2] == ["{", "["]


def begin_answer(request: Request, text: str, messages: Sequence[Message], *, first: int) -> CheckedPlan:
    """The calls that can begin when only so much of an answer has been written. Raises `Unreadable`.

    `messages` and `first` as in `read_answer`, and the same until the end.
    """
    answer = _read_so_far(request, text, messages, first, as_they_are)
    calls = tuple(_certain(request, answer))
    context = answer.layout.context
    lanes, _ = lay_out(calls, context, instances=request.instances, is_template=False, is_in_loop=True)
    return replace(answer.layout, calls=calls, lanes=lanes)


def end_answer(
    request: Request, text: str, begun: Collection[int], messages: Sequence[Message], *, first: int
) -> Answer:
    """Read the whole answer, when the calls with these indexes have begun. Raises `Unreadable` where it is no answer,
    or where one of those would not run by it.
    """
    find_answer(text, is_lenient=True)
    answer = read_answer(request, text, messages, first=first)
    if not {call.index for call in answer.calls}.issuperset(begun):
        raise Unreadable(joined_messages(answer.errors))
    return answer


def break_answer(request: Request, text: str, messages: Sequence[Message], *, first: int, why: str) -> Answer:
    """Read an answer that broke off behind a call: its calls, and no output."""
    answer = _read_so_far(request, text, messages, first, request.explain)
    errors = [error for error in answer.errors if error.pointer.startswith("/calls/")]
    return replace(answer, errors=(*errors, AnswerError(None, "Truncated", why, "")), findings=())


def _read_so_far(request: Request, text: str, messages: Sequence[Message], first: int, explain: Explain) -> Answer:
    value = {"calls": GrowingAnswer().feed(text), "output": None}
    answer = read_answer(request, value, messages, first=first, explain=explain)
    return replace(answer, solution={"calls": answer.solution["calls"], "output": None})


def _certain(request: Request, answer: Answer) -> Iterator[Call]:
    """The calls that wait, whatever is written behind them, for what they wait for now, and for nothing that waits."""
    there = dict(zip(answer.positions, answer.calls, strict=True))
    writers: list[Call] = []
    open_places: list[Reference] = []
    """The places that uncertain calls write."""
    for position, raw in enumerate(answer.solution["calls"]):
        call = there.get(position)
        if call is not None and _is_certain(call, answer, writers, open_places) and not may_have_slips(request, raw):
            writers.append(call)
            yield call
        else:
            open_places += places_written(request, raw)


def _is_certain(call: Call, answer: Answer, writers: Sequence[Call], open_places: Sequence[Reference]) -> bool:
    if call.gather or call.instance == EVERYWHERE or call.after:
        return False
    read = parameter_places(call)
    if any(place.overlaps(one) for place in (*read, *scope_places(call)) for one in open_places):
        return False
    fold = answer.layout.context.fold(call.instance)
    seen = [one for writer in writers if sees(call, writer) for one in writer.written]
    if call.given is not MISSING and any(place.overlaps(one) for place in read for one in seen):
        return False  # what is written behind it may write there, too (SPEC R4.8a)
    return all(any(map(place.overlaps, seen)) or fold.exists(place) for place in read)
