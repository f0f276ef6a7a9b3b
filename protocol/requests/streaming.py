"""Streaming: which calls of an answer that is still being written can begin, and what the answer comes to in the end
(SPEC R13.8).

A call begins early only where nothing that may still be written changes what it waits for: each place that it reads
is held by the context or written by a call before it that can begin, too, and nothing in its sight by one that cannot;
and no text of it may turn out to name a place (SPEC R12.6b). So a streamed answer runs as it would if it had come
whole; all that differs is when. The other calls wait for the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.graph.lanes import lay_out
from acts_celery.protocol.graph.readers import parameter_places, scope_places, sees
from acts_celery.protocol.language.messages import EVERYWHERE, Message
from acts_celery.protocol.language.paths import MISSING
from acts_celery.protocol.language.references import Reference
from acts_celery.protocol.submission.layout import Layout

from .answer_slips import may_have_slips
from .answer_texts import Unreadable, find_answer
from .answers import Answer, AnswerError, joined_messages, read_answer
from .dependents import places_written
from .growing import GrowingAnswer
from .request import Explain, Request, as_they_are


def begin_answer(request: Request, text: str, messages: Sequence[Message], *, first: int) -> Layout:
    """The calls that can begin of an answer of which only so much has been written. Raises `Unreadable`.

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
    """The whole answer, of which the calls with these indexes have begun. Raises `Unreadable` where it is none, or
    where one of those would not run by it.
    """
    find_answer(text, is_lenient=True)
    answer = read_answer(request, text, messages, first=first)
    if not {call.index for call in answer.calls}.issuperset(begun):
        raise Unreadable(joined_messages(answer.errors))
    return answer


def break_answer(request: Request, text: str, messages: Sequence[Message], *, first: int, why: str) -> Answer:
    """What an answer comes to that ends behind a call, though it was to go on: its calls, and no output."""
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
    """What is written by calls that are not certain."""
    for position, raw in enumerate(answer.solution["calls"]):
        call = there.get(position)
        if call is not None and _is_certain(call, answer, writers, open_places) and not may_have_slips(request, raw):
            writers.append(call)
            yield call
        else:
            open_places += places_written(request, raw)


def _is_certain(call: Call, answer: Answer, writers: Sequence[Call], open_places: Sequence[Reference]) -> bool:
    if call.gather or call.instance == EVERYWHERE:
        return False
    read = parameter_places(call)
    if any(place.overlaps(one) for place in (*read, *scope_places(call)) for one in open_places):
        return False
    fold = answer.layout.context.fold(call.instance)
    seen = [one for writer in writers if sees(call, writer) for one in writer.written]
    if call.given is not MISSING and any(place.overlaps(one) for place in read for one in seen):
        return False  # what is written behind it may write there, too (SPEC R4.8a)
    return all(any(map(place.overlaps, seen)) or fold.exists(place) for place in read)
