"""Ticks: an answer as calls and errors of its run, and as entries of its log (SPEC R13.1, R13.2, R13.5).

A solution's calls become calls of the lanes that they belong to, in one step with the message of the solution.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from ...broker_config import ConfiguredModel
from ...protocol import Rejected
from ...protocol.calls.call import Call
from ...protocol.engine import loop
from ...protocol.engine.costs import Cost, is_all, reported
from ...protocol.engine.events import Status
from ...protocol.engine.outcomes import judge_output, output_labels
from ...protocol.errors import shortened
from ...protocol.messages import TRUST, digests, error_message, sent_bytes
from ...protocol.plan.checked_plan import CheckedPlan
from ...protocol.plan.config import SAMPLING
from ...protocol.plan.lanes import Lane
from ...protocol.requests import Answer, Fate, Request, read_answer, render, render_tick
from ...protocol.requests.data_blocks import compact, shown_error_type, shown_pictures
from ...protocol.requests.reading import SAYS_NOTHING, Unreadable, find_answer, with_words, words_beside
from ...protocol.requests.receipts import Turn, note_on
from ...protocol.requests.rendering import render_added, render_functions, render_said, unfilled_places
from ...protocol.requests.streaming import begin_answer, break_answer, end_answer
from ...protocol.requests.tool_texts import REQUIRED, TOOLS, first_schema
from ...protocol.state.labels import TRUSTED, Labels
from ...protocol.state.scopes import TooLarge
from ..broker.attempts import lane_token
from ..broker.messages import pack
from ..limits import MOST_SHOWN
from ..registry.models import KnownModels, picture_message
from ..runner.checking import Checker
from ..store.definition import LaneRecord, all_places_of, gather_counts, pack_amended_lane, pack_amendment
from ..store.entries import LoopStep
from ..store.loop_view import LoopView, plan_of, repeats_of
from ..store.scripts import date_now
from .prices import estimate_of, request_tokens


@dataclass(frozen=True, slots=True)
class Solved:
    """An answer as it was read."""

    solution: Mapping[str, Any]
    layout: CheckedPlan | None
    """The plan of the calls that run; None where none does."""
    positions: tuple[int, ...]
    """The position of each of these calls in the solution."""
    errors: tuple[loop.TickError, ...]
    """The errors of the other calls, and of the answer."""

    @property
    def valid_calls(self) -> list[Any]:
        """The calls that run, as they were written."""
        return [self.solution["calls"][position] for position in self.positions]

    @property
    def runs(self) -> int:
        """The number of calls that run, over all instances."""
        return self.layout.size if self.layout is not None else 0


_NOTHING: Final = Solved({"calls": [], "output": None}, None, (), ())


def read_tick(request: Request, reply: Mapping[str, Any], view: LoopView, checker: Checker) -> Solved:
    """The answer to the current request of a tick."""
    if "error" in reply:
        return unanswered(reply["error"])
    try:
        written = with_words(request, reply["answer"], reply.get("words", ""))
    except Unreadable as error:
        return unanswered({"type": "InvalidAnswer", "message": str(error)})
    solved = read_solution(request, written, view, checker)
    is_nothing = not solved.errors and solved.solution == _NOTHING.solution
    return unanswered({"type": "InvalidAnswer", "message": SAYS_NOTHING}) if is_nothing else solved


def read_beyond(reply: Mapping[str, Any], view: LoopView) -> tuple[Solved, str] | None:
    """An answer with more calls than are left of `config.calls`, and the reason why none of them starts; None for any
    other. It is not read any further, since that takes a time that grows with the calls.
    """
    try:
        text = reply.get("answer")
        value = find_answer(text, is_lenient=True) if isinstance(text, str) else text
    except Unreadable:
        return None
    calls = value.get("calls") if isinstance(value, Mapping) else None
    limit = view.limits.call_limit(view.loop, len(calls)) if isinstance(calls, list) else None
    if limit is None or view.loop.stage is loop.Stage.OPEN:
        return None
    return replace(_NOTHING, solution={"calls": calls, "output": None}), limit


def read_solution(request: Request, reply: Any, view: LoopView, checker: Checker) -> Solved:
    """An answer of a model as calls that may run and errors (SPEC R13.2)."""
    answer = read_answer(request, reply, view.messages, first=view.first, begun=view.added or None)
    return _solved(request, answer, checker)


def read_part(request: Request, text: str, view: LoopView, checker: Checker) -> CheckedPlan | None:
    """The calls that run of an answer that is still being written, those at work included (SPEC R13.8).

    None where the part does not count: it does not continue the one before, no call of it can begin, or it would pass
    the limit of calls.
    """
    before = view.loop.tick.text
    if request.is_lazy or len(text) <= len(before) or not text.startswith(before):
        return None
    if view.loop.stage is loop.Stage.ASKED and view.open:
        return None  # calls that a client has added run before it
    try:
        layout = checker.complete(begin_answer(request, text, view.known, first=view.first))
    except (Unreadable, Rejected):
        return None
    return layout if layout.calls and view.limits.call_limit(view.loop, layout.size) is None else None


def read_end(request: Request, reply: Mapping[str, Any], view: LoopView, checker: Checker) -> Solved:
    """An answer of which calls run already: the whole of it, or the part that was taken before it broke off (SPEC
    R13.8).
    """
    text, why, before = reply.get("answer"), reply.get("error", {}).get("message", ""), view.loop.tick.text
    if isinstance(text, str):
        try:
            if not text.startswith(before):
                raise Unreadable("its end does not continue its beginning")
            solved = _solved(request, end_answer(request, text, view.begun, view.known, first=view.first), checker)
            if solved.layout is not None:
                return solved
            why = solved.errors[-1].message
        except Unreadable as error:
            why = str(error)
    text = f"the answer broke off or became invalid, and only the calls before that count: {why}"
    answer = break_answer(request, before, view.known, first=view.first, why=text)
    return _solved(request, answer, checker)


def _solved(request: Request, answer: Answer, checker: Checker) -> Solved:
    errors = tuple(_error(error, answer, request) for error in answer.errors)
    try:
        return Solved(answer.solution, checker.complete(answer.layout), answer.positions, errors)
    except Rejected as rejected:
        refused = (loop.TickError("InvalidCall", problem.message, problem.pointer) for problem in rejected.errors)
        return Solved(answer.solution, None, (), (*errors, *refused))


def unanswered(error: Mapping[str, str]) -> Solved:
    """The result of a request whose answer is of no use (SPEC R13.4)."""
    return replace(_NOTHING, errors=(loop.TickError(error["type"], error["message"], ""),))


def note_part(step: LoopStep, view: LoopView, text: str, layout: CheckedPlan) -> None:
    """Log the next part of an answer, and the calls that begin with it (SPEC R13.8)."""
    step.note(loop.PartCame(text[len(view.loop.tick.text) :], view.first, layout.size))
    if layout.size > len(view.begun):
        write_calls(step, view, layout)


def note_output(step: LoopStep, output: str) -> bool:
    """Log the next part of an output that is a text (SPEC R13.12); false where nothing is new. An output that it does
    not continue is replaced: another attempt has written that.
    """
    before = step.after.tick.output
    if before.startswith(output):
        return False
    at = len(before) if output.startswith(before) else 0
    step.note(loop.OutputGrew(at, output[at:]))
    return True


def note_solution(
    step: LoopStep,
    view: LoopView,
    reply: Mapping[str, Any],
    solved: Solved,
    *,
    cost: Cost,
    limit: str | None,
    is_lazy: bool,
) -> None:
    """Log a model's answer, and its calls: in their lanes, or as a plan to be approved; none of them where a limit is
    reached.
    """
    tick = view.loop.tick
    errors = [*solved.errors, *([loop.TickError("LimitReached", limit, "")] if limit is not None else [])]
    text = reply.get("answer")
    words = reply.get("words") or (words_beside(text) if isinstance(text, str) else "")
    message = {
        "type": "solution",
        "tick": tick.number,
        "solution": dict(solved.solution),
        "model": reply.get("model"),
        "request": tick.digest,
        "usage": reply.get("usage") if is_all(reply.get("usage")) else None,
        **({"words": words} if words else {}),
        "_date": date_now(),
    }
    starts = limit is None and not is_lazy and solved.layout is not None
    runs = solved.runs if starts else len(view.begun)
    own = reply.get("provider_data") if view.asks is not None and view.asks.is_native else None
    step.note(loop.Answered(message, view.first, runs, errors, cost.pack(), known=_known(reply), provider_data=own))
    if limit is not None or solved.layout is None or solved.runs == len(view.begun):
        return
    if is_lazy:
        step.note(plan_of(solved.valid_calls))
    else:
        write_calls(step, view, solved.layout)


def _known(reply: Mapping[str, Any]) -> int | None:
    """The tokens of a request and its answer, where the next one begins with them: the same model has reported them. An
    answer of no use is shown as an empty one, of some bytes.
    """
    counts = reported(reply.get("usage"))
    if counts is None or not is_all(reply["usage"]) or reply.get("is_fallback"):
        return None
    input_, output, _ = counts
    return input_ + (output if "answer" in reply else len(compact(_NOTHING.solution)))


def note_start(step: LoopStep, view: LoopView, solved: Solved) -> None:
    """Write the calls of an approved plan into their lanes (SPEC R13.7)."""
    step.note(loop.Started(view.first, solved.runs, solved.errors))
    if solved.layout is not None and solved.layout.calls:
        write_calls(step, view, solved.layout)


def note_closing(step: LoopStep, view: LoopView, request: Request) -> None:
    """Append the errors of a tick, and judge its output: the loop ends if that is accepted."""
    tick, found = view.loop.tick, errors_of(view)
    assert tick.solution is not None
    output: Any = tick.solution["solution"]["output"]
    unfilled = partial(unfilled_places, request, view.messages)
    verdict = judge_output(output, view.request["schema"], view.fold, [error for error, _ in found], unfilled)
    labels = output_labels(output, view.fold) if verdict.errors else TRUSTED
    found += [(error, labels) for error in verdict.errors]
    date = date_now()
    for error, labels in found:
        step.append(lane_token(error.instance), _message(error, labels, date))
    closed = loop.TickClosed(len(found), verdict.set_aside)
    step.note(closed, *([loop.LoopEnded("completed", None, verdict.output)] if verdict.is_accepted else []))


def write_calls(step: LoopStep, view: LoopView, plan: CheckedPlan) -> None:
    """Write the calls of a solution into their lanes, the global one first: shared calls lie there. Calls that have
    begun, and those that clients have added, stay as they are, so a lane without new calls is left alone.
    """
    plan = _labelled(plan, view.told)
    lanes, begun, added = dict(plan.lanes), view.begun, view.added
    shared = lanes.pop(None, None)
    own = shared.calls if shared is not None else ()
    there = {call.index for call in (*own, *added.get(None, ()))}
    awaited = frozenset(index for lane in lanes.values() for index in lane.awaited) & there

    def record_of(instance: str | None, lane: Lane | None) -> bytes:
        places = all_places_of(lane) if lane is not None else {}
        calls, left = lane.calls if lane is not None else (), view.left_of(instance, added)
        return pack_amended_lane(LaneRecord(calls=calls, **places, tick=view.loop.tick.number, **left))

    step.entries.append(
        ("", ["k", record_of(None, shared), "amendment", pack_amendment(plan, awaited, view.definition)])
    )
    woken = [""] if any(call.index not in begun for call in own) else []
    for instance, lane in lanes.items():
        is_new = any(call.index not in begun for call in lane.calls)
        if is_new or (lane.gathers is not None and lane.gathers.waiting):
            step.entries.append((lane_token(instance), ["k", record_of(instance, lane)]))
            woken.append(lane_token(instance))
    step.woken = woken
    step.added = plan.size - len(begun)
    counts = gather_counts(lane.gathers for lane in plan.lanes.values())
    step.gathers = [(str(index), count) for index, count in counts.items()]


def _labelled(plan: CheckedPlan, labels: Labels) -> CheckedPlan:
    """The calls with the labels of all that the model was shown which wrote them (SPEC R16.3)."""

    def labelled(calls: Iterable[Call]) -> tuple[Call, ...]:
        return tuple(replace(call, prompt_labels=call.prompt_labels | labels) for call in calls)

    if not labels:
        return plan
    lanes = {name: replace(lane, calls=labelled(lane.calls)) for name, lane in plan.lanes.items()}
    return replace(plan, calls=labelled(plan.calls), lanes=lanes)


def errors_of(view: LoopView) -> list[tuple[loop.TickError, Labels]]:
    """The errors of calls of the current tick that did not run, or failed, in the order of the calls (SPEC R13.1), each
    with the labels of all that it may quote.
    """
    placed = [(_position(error.pointer), error, TRUSTED) for error in view.loop.tick.invalid]
    count = len(view.loop.tick.solution["solution"]["calls"]) if view.loop.tick.solution is not None else 0
    for (instance, index), ended in view.ended.items():
        if ended.status is Status.FAILED and ended.error is not None and not ended.messages:
            at = view.position(index)
            pointer = f"/calls/{at}" if 0 <= at < count else "/calls"  # a client has added it
            error = ended.error
            call = view.call((instance, index)).raw
            placed.append((at, loop.TickError(error["type"], error["message"], pointer, call, instance), ended.labels))
    return [(error, labels) for _, error, labels in sorted(placed, key=lambda one: one[0])]


def last_errors(view: LoopView) -> list[str]:
    """The first errors of the tick before the current one: the reason why a loop at its limit has no output."""
    count = view.loop.last.errors if view.loop.last is not None else 0
    shown = [message["data"] for message in view.messages if message.get("type") == "error" and "data" in message]
    errors = [data.get("error") for data in shown[len(shown) - count :] if isinstance(data, dict)]
    texts = [f"{error.get('type')}: {error.get('message')}" for error in errors if isinstance(error, dict)]
    return [shortened(text) for text in texts[:MOST_SHOWN]]


def _message(error: loop.TickError, labels: Labels, date: str) -> dict[str, Any]:
    """The message of an error, at the end of its tick (SPEC R13.2)."""
    trust = {TRUST: sorted(labels)} if labels else {}
    return {**error_message({}, {}, date=date, instance=error.instance), "data": error.to_dict(), **trust}


_WELL: Final = (Status.DONE, Status.SENT, Status.LATENT)


def fates_of(view: LoopView, request: Request) -> Iterator[Fate]:
    """The fates of the calls of the current tick. Where untrusted data may have made them, the reason is only the one
    of a skipped call, and an error only its type, in the engine's words.
    """
    for (instance, index), ended in sorted(view.ended.items(), key=lambda pair: (pair[0][1], pair[0][0] or "")):
        call = view.call((instance, index))
        path = str(call.output) if call.output is not None else None
        reason, type_ = ended.reason, (ended.error or {}).get("type")
        if view.hides and ended.labels:
            reason = reason if ended.status is Status.SKIPPED else None
            type_ = shown_error_type(type_) if type_ is not None else None
        said = reason or type_ or (note_on(request, call) if ended.status in _WELL else None)
        yield Fate(index, call.tool, instance, ended.status.value, path, said, ended.messages)


def _position(pointer: str) -> int:
    """The position of the call that a pointer leads to; -1 where it leads to none."""
    parts = pointer.split("/")
    return int(parts[2]) if len(parts) > 2 and parts[1] == "calls" and parts[2].isdecimal() else -1


def _error(error: Any, answer: Answer, request: Request) -> loop.TickError:
    """An error of an answer, for the call's instance if the context has that one."""
    instance = error.call.get("_instance") if error.call is not None else None
    return loop.TickError(
        error.type, error.message, error.pointer, error.call, instance if instance in request.instances else None
    )


# The requests of a loop, made from the log alone (SPEC R12.5, R13.3, R13.5).

_SENT = ("model", *SAMPLING, "request_seconds")
"""The settings that a model is sent."""


class PicturesUnknown(Exception):
    """A request that shows pictures of tools, by these digests, which its view has not read yet."""

    def __init__(self, digests: Sequence[str]) -> None:
        super().__init__()
        self.digests = digests


def request_of(view: LoopView, checker: Checker) -> Request:
    """The request that every tick of a loop repeats, read once for a view. Raises `protocol.Rejected`."""
    if view.asks is None:
        config = view.definition.config
        whole = {"context": view.context, **view.request, "delegates": view.definition.delegates, "config": config}
        approved, operator = config.get("approve", ()), view.definition.submitted_with
        allow = view.definition.allow
        request = checker.request(whole, allow=allow, approved=approved, operator=operator, wire=view.wire)
        view.asks = replace(request, is_child=view.parent is not None)
    return view.asks


def next_request(view: LoopView, request: Request, models: KnownModels) -> loop.RequestRecorded:
    """The next request as the log has it: the messages that it adds to those of the one before, so that it begins with
    them byte for byte, and the schema if that is another one. Raises `Rejected` where the first request is too large,
    `TooLarge` for another, and `PicturesUnknown`.
    """
    config, most_bytes = config_of(view, request), request.known.limits.call_bytes
    repeats = repeats_of(view)
    added = _added(view, request, repeats)
    if models.see_pictures(config.get("model")):
        added += _pictures(view, request, most_bytes // 2)
    schema = view.schema if view.schema is not None else first_schema(request)
    size = view.asked_bytes + len(pack(added)) + len(pack(schema)) + sum(map(len, view.provider_data.values()))
    if (sent := size + view.asked_files_bytes + sent_bytes(added)) > most_bytes:
        raise TooLarge(f"the request would have {sent} bytes, where {most_bytes} may be sent (ACTS_LIMIT_CALL_BYTES)")
    most = view.limits.max_output_tokens
    asked = models.with_fallbacks(config.get("model"))
    tokens = _estimate(view, added, schema, asked)
    estimate = estimate_of(asked if view.limits.money is not None else (), tokens, most)
    messages, quotes = loop.quoted(added, view.unshown)
    return loop.RequestRecorded(
        messages=messages,
        config=config,
        estimate=estimate.tokens,
        nanodollars=estimate.nanodollars,
        digest=hashlib.sha256(pack([view.digest, added, schema, config])).hexdigest(),
        schema=schema if schema != view.schema else None,
        repeats=repeats,
        quotes=quotes,
    )


def _pictures(view: LoopView, request: Request, most_bytes: int) -> list[dict[str, Any]]:
    """The message that shows the new pictures of tools, if there are any; all files of the request have at most so many
    bytes. Raises `PicturesUnknown`.
    """
    shown = list(shown_pictures(view.messages[view.rendered :], request.budget(view.messages)))
    if not shown:
        return []
    if unknown := [digest for _, digest in shown if digest not in view.pictures]:
        raise PicturesUnknown(unknown)
    before = set(digests(view.asked))
    new = [(place, digest) for place, digest in shown if digest not in before]
    message = picture_message(new, view.pictures, most_bytes - sent_bytes(view.asked))
    return [message] if message is not None else []


def _estimate(view: LoopView, added: Sequence[Mapping[str, Any]], schema: Any, asked: Sequence[ConfiguredModel]) -> int:
    """The tokens that the next request may have (SPEC R13.3). If those of the request before and of its answer, which
    is the first of the `added` messages, are known, only new messages count by their bytes.
    """
    known = view.loop.known
    if known is None:
        return _asked_tokens(view, asked) + request_tokens(added, asked) + len(pack(schema))
    is_answer = [place == 0 and message.get("role") == "assistant" for place, message in enumerate(added)]
    new = [dict.fromkeys(each) if is_ else each for each, is_ in zip(added, is_answer, strict=True)]
    return known + request_tokens(new, asked) + (len(pack(schema)) if schema != view.schema else 0)


def _asked_tokens(view: LoopView, models: Sequence[ConfiguredModel]) -> int:
    """The tokens that the messages of the request before have in this one; each is counted once for a view."""
    before, count, tokens = view.counted
    if before != tuple(models):
        count, tokens = 0, 0
    if new := view.asked[count:]:
        tokens += request_tokens(new, models) - 1  # of the brackets around a list there is only a comma
    view.counted = tuple(models), len(view.asked), tokens
    return tokens


def config_of(view: LoopView, request: Request) -> dict[str, Any]:
    """The settings that are sent to a loop's model."""
    return sent_config(request, view.definition.config, view.limits)


def sent_config(request: Request, config: Mapping[str, Any], limits: loop.LoopLimits) -> dict[str, Any]:
    """The settings that are sent to a model by a loop's `config`: always the most tokens of an answer, and the way in
    which functions are offered.
    """
    own = {key: config[key] for key in _SENT if key in config}
    put = {"wire": TOOLS, "tool_choice": "auto" if request.may_be_text else REQUIRED} if request.is_native else {}
    return {**own, "max_output_tokens": limits.max_output_tokens, **put}


def _added(view: LoopView, request: Request, repeats: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    tick = view.loop.last
    if tick is None:
        first = render(request)
        return [*first, *render_added(request, view.messages[len(view.context) :])]
    assert tick.solution is not None
    new = view.messages[view.rendered :]
    answer = tick.solution["solution"]
    times = repeats["times"] if repeats is not None else 1
    if request.is_native:
        turn = Turn(tick.number, answer, tick.first, tick.solution.get("words", ""), tick.set_aside, times)
        return [*render_functions(request, turn, fates_of(view, request), view.messages, new), *render_said(new)]
    fates = fates_of(view, request)
    return [*render_tick(request, tick.number, answer, fates, view.messages, new, times), *render_said(new)]
