"""The spans of a loop: each tick's plan, and what a model was asked for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from acts_celery.protocol.engine.costs import reported
from acts_celery.protocol.engine.loop_events import Answered, Asked, LoopEnded
from acts_celery.worker.storage.entries import Entry, moment_ms
from acts_celery.worker.storage.loop_entries import LOOP
from acts_celery.worker.wire.attempts import CallId
from acts_celery.worker.wire.traces import TracePlace, call_span, part_span

from .spans import (
    AGENT_NAME,
    CHAT,
    CONVERSATION,
    PLAN,
    RUN,
    Fault,
    Span,
    as_json,
    request_attributes,
    shown_messages,
    usage_attributes,
)

TICK: Final = "acts.tick"


class _Open(NamedTuple):
    """A request that was asked and not answered."""

    since_ms: int
    request: int
    """Its index among the calls of the loop's lane."""
    asked: Asked


class LoopSpans:
    """The spans of one run's loop; fed in order."""

    def __init__(self, place: TracePlace, run: str, agent: str | None, *, shows_content: bool) -> None:
        """`place` is the span of the loop."""
        self.end: LoopEnded | None = None
        """How the loop has ended."""
        self.used = Counter[str]()
        """The tokens of its requests, as `usage`."""
        self._place = place
        self._run = run
        self._agent = agent
        self._shows_content = shows_content
        self._model: Any = None
        """Which model was asked before: a request that was not answered goes to the same."""
        self._open: _Open | None = None
        self._plan_since_ms: int | None = None
        self._times = Counter[int]()
        """How often the request of an index has ended."""
        self._plans = Counter[int]()
        """How often the plan of a tick has."""

    def take(self, entry: Entry) -> Iterator[Span]:
        """The spans that end with an entry of the loop's lane."""
        now_ms, tick = moment_ms(entry.id), entry.tick or 0
        for event in entry.loop:
            match event:
                case Asked():
                    self._open = _Open(now_ms, tick, event)
                    self._plan_since_ms = now_ms if self._plan_since_ms is None else self._plan_since_ms
                case Answered(message):
                    usage = (event.cost or {}).get("usage") or message.get("usage")
                    fault = next((Fault(each.type, each.message) for each in event.errors if each.call is None), None)
                    yield from self._answered(tick, now_ms, message.get("model"), usage, message.get("solution"), fault)
                    yield from self._planned(tick, now_ms, fault)
                case LoopEnded():
                    self.end = event
                    fault = Fault("_OTHER", event.reason)
                    yield from self._answered(tick, now_ms, None, None, None, fault)
                    yield from self._planned(tick, now_ms, fault)

    def _answered(
        self, tick: int, now_ms: int, model: Any, usage: Any, answer: Any, fault: Fault | None = None
    ) -> Iterator[Span]:
        """The request that is under way, where one is."""
        if (open_ := self._open) is None:
            return
        self._open = None
        member = CallId(self._run, LOOP, open_.request).member
        place = self._place.at(call_span(self._run, member, self._times[open_.request]))
        sent = request_attributes(open_.asked.config)
        content = {}
        if self._shows_content:
            said = [{"role": "assistant", "content": as_json(answer)}] if answer is not None else []
            content = {
                "gen_ai.input.messages": shown_messages(open_.asked.messages),
                "gen_ai.output.messages": shown_messages(said),
            }
        if (counts := reported(usage)) is not None:
            self.used.update(dict(zip(("input", "output", "cached"), counts, strict=True)))
        name = self._model = sent.get("gen_ai.request.model") or model or self._model
        attributes = {
            **self._own(tick),
            "gen_ai.request.model": name,
            **sent,
            "gen_ai.response.model": model,
            **usage_attributes(usage),
            **content,
        }
        yield Span(CHAT, name, place, self._plan(tick), open_.since_ms, now_ms, fault, attributes)
        self._times[open_.request] += 1

    def _planned(self, tick: int, now_ms: int, fault: Fault | None) -> Iterator[Span]:
        """The plan that is being made, where one is: it has ended."""
        if self._plan_since_ms is None:
            return
        since_ms, self._plan_since_ms = self._plan_since_ms, None
        place = self._place.at(self._plan(tick))
        self._plans[tick] += 1
        own = {**self._own(tick), AGENT_NAME: self._agent}
        yield Span(PLAN, self._agent, place, self._place.span, since_ms, now_ms, fault, own)

    def _plan(self, tick: int) -> str:
        """The span of a tick's plan. A loop that goes on after it had failed while asking plans the tick once more."""
        return part_span(self._place.span, f"{PLAN} {tick} {self._plans[tick]}")

    def _own(self, tick: int) -> Mapping[str, Any]:
        return {RUN: self._run, CONVERSATION: self._run, TICK: tick}
