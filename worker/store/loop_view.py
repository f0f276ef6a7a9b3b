"""A run as its loop sees it: the whole of its log, folded into the state of the loop (SPEC R13.1, R13.5).

It is only ever fed from the log, in order, so a loop goes on in any process from where it was.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ...broker_config import Settings
from ...protocol.calls.call import Call
from ...protocol.calls.meta_properties import RECORDS
from ...protocol.engine import loop
from ...protocol.engine.events import Status
from ...protocol.engine.outcomes import holds_references
from ...protocol.messages import digests, sent_bytes
from ...protocol.plan.additions import SoFar
from ...protocol.requests import Request
from ...protocol.requests.data_blocks import shown_error_type
from ...protocol.requests.receipts import given_places
from ...protocol.requests.tool_texts import JSON
from ...protocol.state.context import Context as MessageContext
from ...protocol.state.fold import Fold
from ...protocol.state.labels import TRUSTED, Labels, marks_of
from ..broker.attempts import Tokens
from ..broker.messages import pack
from ..limits import LOOP_PLAN_DIGEST_CHARACTERS, most_of
from .definition import SaidHere, StoredPlan, unpack_definition
from .entries import Entry, moment_ms
from .keys import ENDED_STATUSES
from .lane import RunGone
from .log import MessageLog
from .run_list import Parent, filled
from .state import RunState

_WITHDRAWN: Final = {"type": "withdrawn"}
"""Stands for what a call had written that is run again (SPEC R11.8): the other messages keep their places."""

Where = tuple[str | None, int]
"""A call, by its instance and index."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call of the current tick has ended."""

    status: Status
    error: Mapping[str, Any] | None
    reason: str | None
    messages: tuple[Mapping[str, Any], ...]
    """The messages that it has written."""
    labels: Labels = TRUSTED
    """The sources of all that it hangs on (SPEC R16.2)."""


class LoopView:
    """The state of one run's loop, and what the next request is made of."""

    counted: tuple[Sequence[Any], int, int] = (), 0, 0
    """How many messages of the last request were counted for which models, and their tokens."""
    trace = ""
    """The run's place in a trace, where it is not the root of its own."""

    def __init__(self, run: str, definition: StoredPlan, tokens: Tokens, limits: loop.LoopLimits) -> None:
        assert definition.request is not None
        self.run = run
        self.state = RunState(definition)
        """The run, as the log has it."""
        self.request = definition.request
        self.tokens = tokens
        self.parent: Parent | None = None
        """The call that it is to answer."""
        self.born = ""
        """When it was submitted, which tells it from another one under its id."""
        self.priority = 0
        self.limits = limits
        self.seen = "0-0"
        self.size = 0
        """The bytes of what was read of it."""
        self.own_seen = "0-0"
        """The last entry of the loop's lane."""
        self.asked: list[Mapping[str, str]] = []
        """The chat messages of the last request."""
        self.digest = ""
        """The digest of that request."""
        self.asked_bytes = self.asked_files_bytes = 0
        """The bytes of its messages, packed, and what their files add when they are sent."""
        self.files = set[str]()
        """The digests of the files that they show."""
        self.wire: str | None = None
        """How the first request was put, `json` or `tools`, and so all others (SPEC R12.6); None before it."""
        self.provider_data: dict[str, str] = {}
        """The providers' own data in the answers, by tick."""
        self.pictures: dict[str, Mapping[str, Any] | None] = {}
        """The pictures of tools, by their digests; None for one that cannot be shown."""
        self.schema: Any = None
        """The schema of the requests, the same in every tick; None before the first."""
        self.asks: Request | None = None
        """The request, once it was read."""
        self.rendered = 0
        """How many messages of the log it shows."""
        self.unshown: dict[str, Mapping[str, Any]] = {}
        """The messages that came since, by their entries."""
        self.context: list[Mapping[str, Any]] = []
        """The messages that the run was submitted with."""
        self.messages = MessageContext()
        """Every message of the log, and what they come to."""
        self.ended: dict[Where, Ended] = {}
        """The calls that have ended in the current tick."""
        self.labels: Labels = TRUSTED
        """The sources of everything that was in the log, also of what counts no more."""
        self._known = self.messages
        """The messages of the log but those of the calls that run meanwhile."""
        self._left = self._set_aside = 0
        """How many calls have not ended, and how many of them wait for a person."""
        self._last_index = -1
        self._ran_ms = 0
        self._running_since: int | None = None
        self._written: list[Mapping[str, Any]] = []
        self._positions: dict[Where, list[int]] = {}
        """The positions in `messages` of what each call has written."""

    @classmethod
    async def open_run(cls, log: MessageLog, run: str, settings: Settings, said_here: SaidHere) -> LoopView:
        """Read all of a run; `said_here` is what this process says of its calls. Raises `RunGone`."""
        shared = await log.shared(run)
        if shared.definition is None:
            raise RunGone(run)
        definition = unpack_definition(shared.definition, said_here)
        view = cls(run, definition, shared.tokens, loop_limits(definition.config, settings))
        view.trace, view.born, view.priority = shared.trace, shared.lane.born, shared.priority
        view.parent = await log.parent(run)
        await view.catch_up(log)
        return view

    async def catch_up(self, log: MessageLog) -> bool:
        """Take in the new entries. Raises `RunGone` where it is of another run under its id."""
        entries, born = await asyncio.gather(log.everything(self.run, self.seen), log.born(self.run))
        if born != self.born:
            raise RunGone(self.run)
        self.feed(entries)
        return True

    async def read_request(self, log: MessageLog) -> list[Mapping[str, Any]]:
        """The chat messages of the last request, with their files. Raises `FileGone`."""
        return filled(self.asked, await log.files(self.run, [*self.files])) if self.files else list(self.asked)

    @property
    def definition(self) -> StoredPlan:
        """The definition, as amended."""
        return self.state.definition

    @property
    def loop(self) -> loop.Loop:
        """The state of the loop."""
        assert self.state.loop is not None
        return self.state.loop

    @property
    def fold(self) -> Fold:
        """The global values."""
        return self.state.shared.fold

    @property
    def global_seen(self) -> str:
        """The last entry of the global lane."""
        return self.state.shared.last

    @property
    def status(self) -> str:
        """The run's status."""
        return self.state.status

    @property
    def is_finished(self) -> bool:
        """Whether the run is over."""
        return self.status in ENDED_STATUSES

    @property
    def first(self) -> int:
        """The index that the first call of an answer gets (SPEC R13.9)."""
        if self.loop.stage is loop.Stage.OPEN:
            return self.loop.tick.first
        return 1 + self._last_index

    @property
    def known(self) -> MessageContext:
        """The messages by which an answer is read: nothing that calls of it have written meanwhile (SPEC R13.8)."""
        return self._known if self.loop.stage is loop.Stage.OPEN else self.messages

    @property
    def hides(self) -> bool:
        """Whether its model is not shown what others wrote (SPEC R16.3)."""
        return self.asks is not None and self.asks.hides_untrusted

    @property
    def told(self) -> Labels:
        """The sources of what its model was shown, and so of the calls that it writes (SPEC R16.3)."""
        return TRUSTED if self.hides else self.labels

    @property
    def begun(self) -> frozenset[int]:
        """The calls of an answer that is being written that are in their lanes."""
        lanes = self.state.lanes.values() if self.loop.stage is loop.Stage.OPEN else ()
        return frozenset(index for lane in lanes for index in lane.known if index >= self.loop.tick.first)

    @property
    def open(self) -> list[Where]:
        """The calls that have not ended."""
        lanes = self.state.lanes.values() if self._left else ()
        return [(lane.instance, index) for lane in lanes for index in lane.open]

    def call(self, where: Where) -> Call:
        """A call that the run has, or had."""
        instance, index = where
        return self.state.lanes[instance].known[index]

    @property
    def added(self) -> dict[str | None, list[Call]]:
        """The calls that clients have added before the answer came and that go on, by instance (SPEC R11.7)."""
        found: dict[str | None, list[Call]] = {}
        for where in sorted(self.open, key=lambda where: where[1]) if self.loop.stage is not loop.Stage.OPEN else ():
            found.setdefault(where[0], []).append(self.call(where))
        return found

    @property
    def has_added_gathers(self) -> bool:
        """Whether one of them reads in every instance: its lanes' records are left as they are until it has ended."""
        return any(self.call(where).gather for where in self.open)

    def left_of(self, instance: str | None, added: Mapping[str | None, Sequence[Call]]) -> dict[str, Any]:
        """The parts of a lane's record that stay when an answer brings calls to it; `added` as above."""
        lane = self.state.lanes.get(instance)
        if not added or lane is None or not lane.records:
            return {}
        record = lane.record
        replaced = (lane.known[index] for index in record.stand_ins)
        kept = record.layers((*replaced, *added.get(instance, ())), self.first)
        return {"kept": kept, "stand_ins": record.stand_ins}

    def so_far(self) -> SoFar:
        """The run as the calls of a plan find it."""
        definition = self.definition
        return SoFar(
            messages=self.messages,
            begun={},
            first=self.first,
            is_template=True,
            tools={name: dict(tool.declaration) for name, tool in definition.tools.items()},
            delegates=definition.delegates,
            config=definition.config,
            allow=definition.allow,
            operator=definition.submitted_with,
        )

    def feed(self, entries: Iterable[Entry]) -> None:
        """Take in entries of the log, the next ones."""
        for entry in entries:
            self.seen = entry.id
            self.size += entry.size
            if entry.run_status is not None and not self.context:
                self.context = [message for message in self.messages if message.get("type") != "solution"]
            if entry.tick is not None:
                self._feed_loop(entry)
            elif entry.is_of_lane:
                self._feed_lane(entry)
            else:
                self.state.apply(entry)
            self._note_time(moment_ms(entry.id))

    def _note_time(self, now_ms: int) -> None:
        """Count the time of the run, which stops while it is paused, and while only people, or moments that
        come, can make it go on (SPEC R13.3).
        """
        only_waits = self.loop.stage is loop.Stage.RAN and self._left == self._set_aside > 0
        is_counting = self.status == "running" and not only_waits
        if is_counting and self._running_since is None:
            self._running_since = now_ms
        elif not is_counting and self._running_since is not None:
            self._ran_ms += now_ms - self._running_since
            self._running_since = None

    def ran_seconds(self, now_ms: int) -> float:
        """How long the run has been running."""
        under_way = now_ms - self._running_since if self._running_since is not None else 0
        return (self._ran_ms + under_way) / 1000

    def _feed_loop(self, entry: Entry) -> None:
        """Take in an entry of the loop's own lane."""
        self.own_seen = entry.id
        for event in entry.loop:
            if isinstance(event, loop.RequestRecorded):
                event = loop.with_quotes(event, self.unshown.get)
                self.unshown.clear()
                self.rendered = len(self.messages)
                self.schema = event.schema if event.schema is not None else self.schema
                self.asked += event.messages
                self.digest = event.digest
                self.asked_bytes += len(pack([*event.messages]))
                self.asked_files_bytes += sent_bytes(event.messages)
                self.files |= {*digests(event.messages)}
                self.wire = event.config.get("wire", JSON)
                self.ended.clear()
            elif isinstance(event, loop.PartCame) and self.loop.stage is not loop.Stage.OPEN:
                self._known = self.messages.copy()
            elif isinstance(event, loop.Answered):
                self.messages.take(event.message)
                self.unshown[entry.id] = event.message
                self._known = self.messages
                if event.provider_data is not None:
                    self.provider_data[str(self.loop.tick.number)] = event.provider_data
        self.state.apply(entry)

    def _feed_lane(self, entry: Entry) -> None:
        """Take in an entry of a lane of calls."""
        lane = self.state.lane(entry.instance)
        left, set_aside = lane.left, lane.set_aside
        entry = self.state.apply(entry)
        self._left += lane.left - left
        self._set_aside += lane.set_aside - set_aside
        if entry.record is not None:
            self._last_index = max(self._last_index, lane.last_index)
        if entry.message is not None:
            if entry.call is not None:
                self._positions.setdefault((entry.instance, entry.call), []).append(len(self.messages))
            self.messages.take(entry.message)
            self.unshown[entry.id] = entry.message
            self.labels |= marks_of(entry.message).labels
            if entry.call is not None:
                self._written.append(entry.message)
            elif self._known is not self.messages:
                self._known.take(entry.message)
        if (end := entry.end) is not None:
            written = tuple(self._written)
            self.ended[entry.instance, end.call] = Ended(end.status, end.error, end.reason, written, end.labels)
            self._written.clear()
        elif entry.undone is not None:
            for index in entry.undone.calls:
                self.ended.pop((entry.instance, index), None)
            where = ((entry.instance, index) for index in entry.undone.calls)
            if undone := [position for each in where for position in self._positions.pop(each, ())]:
                self.messages.replace(_WITHDRAWN, undone)

    def position(self, index: int) -> int:
        """The position of a call in the solution of the current tick."""
        return index - self.loop.tick.first


def plan_of(calls: Sequence[Any]) -> loop.Planned:
    """Calls as a plan to be approved, with the digest that names it (SPEC R13.7)."""
    return loop.Planned(list(calls), hashlib.sha256(pack(list(calls))).hexdigest()[:LOOP_PLAN_DIGEST_CHARACTERS])


def loop_limits(config: Mapping[str, Any], settings: Settings) -> loop.LoopLimits:
    """The limits of a run's loop: its config can only tighten what the operator has set (SPEC R4.2a, R13.3)."""
    limits = loop.LoopLimits.of(config, most_of(settings))
    model = settings.find_model(config.get("model"))
    if model is None or config.get("max_output_tokens") is not None:
        return limits
    return replace(limits, max_output_tokens=model.max_output_tokens or limits.max_output_tokens)


# Ticks that come to the same as the one before: a loop that repeats itself does not get on.
#
# A tick is compared with the one before by the log alone: its calls as they were written, and what has become of each.
# A call with references counts as the same where nothing that it may read has changed meanwhile. The places that the
# engine gives, another one for each call of the run, count as the same by their order in the tick.

_GROWING: Final = ("push", "concat")
_OWN: Final = frozenset({"solution", "error"})
"""The messages that a loop writes itself."""


def repeats_of(view: LoopView) -> dict[str, Any] | None:
    """The result of the last tick, as a `digest`, and how many `times` it came in a row; None where it had no calls."""
    tick = view.loop.last
    written = tick.solution["solution"]["calls"] if tick is not None and tick.solution is not None else []
    calls = [call for call in written if isinstance(call, dict)]
    if tick is None or not calls:
        return None
    digest = hashlib.sha256(pack(_in_slots(_given(view, tick), [_written(calls), _ends(view, tick)]))).hexdigest()
    before = tick.repeats or {}
    is_same = before.get("digest") == digest and not _has_moved(view, calls)
    return {"digest": digest, "times": before["times"] + 1 if is_same else 1}


def _written(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls without what the model has thought of them."""
    return [{key: part for key, part in call.items() if key not in RECORDS} for call in calls]


def _given(view: LoopView, tick: loop.Tick) -> Sequence[str | None]:
    """The places that the engine gave in the tick, of calls that were functions."""
    calls = tick.solution["solution"]["calls"] if tick.solution is not None else ()
    return given_places(view.asks, calls, tick.first) if view.asks is not None else ()


def _in_slots(paths: Sequence[str | None], value: Any) -> Any:
    """A value with these places named by their order."""
    given = [(path, f"{path.rpartition('.')[0]}.slot {at}") for at, path in enumerate(paths) if path is not None]
    keys = {path.rpartition(".")[2]: named.rpartition(".")[2] for path, named in given}

    def renamed(part: Any) -> Any:
        if isinstance(part, dict):
            return {keys.get(key, key): renamed(item) for key, item in part.items()}
        if isinstance(part, list | tuple):
            return list(map(renamed, part))
        if isinstance(part, str):
            return next((named + part[len(path) :] for path, named in given if _leads_to(part, path)), part)
        return part

    return renamed(value) if given else value


def _leads_to(text: str, path: str) -> bool:
    """Whether a text is a reference to a place, or into it."""
    return text.startswith(path) and text[len(path) : len(path) + 1] in ("", ".", "[")


def _ends(view: LoopView, tick: loop.Tick) -> list[Any]:
    """The ends of the calls of the tick, and the errors of its answer."""
    ended = sorted(view.ended.items(), key=lambda pair: (pair[0][1], pair[0][0] or ""))
    wrong = [[error.type, error.message, error.pointer, error.instance] for error in tick.invalid]
    return [wrong, [[instance, end.status.value, *_said(end, hides=view.hides)] for (instance, _), end in ended]]


def _said(end: Ended, *, hides: bool) -> list[Any]:
    """The end of a call; where its model is not shown the values, only their sizes."""
    data = [message.get("data") for message in end.messages]
    if hides and end.labels:
        return [
            shown_error_type(end.error["type"]) if end.error is not None else None,
            [len(pack(each)) for each in data],
        ]
    return [end.error, data]


def _has_moved(view: LoopView, calls: list[dict[str, Any]]) -> bool:
    """Whether something has come that no call of the tick has written, or grows with each of them."""
    new = view.messages[view.rendered :]
    is_told = any("_call" not in message and message.get("type") not in _OWN for message in new)
    return is_told or any(call.get("_outputMethod") in _GROWING and holds_references(call) for call in calls)
