"""A step of a lane: the contents of one commit while they are gathered."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import inf
from time import monotonic
from typing import Generic, TypeVar

from ...broker_config import Settings
from ...protocol import Limits
from ...protocol.calls.call import element_of
from ...protocol.engine.events import FanOut, Hold, Outcome, Start
from ...protocol.engine.execution import Execution
from ...protocol.schemas.costs import STEP_WORK, Meter
from ..broker.attempts import Seen
from ..broker.messages import Delivery, TaskMessage
from ..fairness import FairScheduling, FairSemaphore, Quarantine, Turn
from ..limits import BYTES_A_STEP, CLOCKS_DIFFER_SECONDS, HEAVY_AT_ONCE, OUTCOMES_A_STEP, RUNS_KEPT, RUNS_KEPT_BYTES
from ..process import metrics
from ..recovery.heartbeats import Presence
from ..registry.activities import Activity, Registry
from ..registry.models import KnownModels, ProviderLimit
from ..store.commits import Committed, Delegated, Ending, Held, Rest
from ..store.definition import SaidHere
from ..store.entries import CallTiming
from ..store.held_calls import pack_hold
from ..store.lane import RunView
from ..store.log import MessageLog, Opened
from ..store.scripts import ExecutedBy
from ..store.slots import Slots
from .calls import Threads
from .checking import Checker, Validator
from .remote import Children, Remote


@dataclass(slots=True)
class Step:
    """The outcomes of a lane that are to be written, and the calls that are to begin."""

    meter: Meter
    worked: int
    """The meter's reading when the step began."""
    outcomes: list[Outcome] = field(default_factory=list)
    rests: list[Rest] = field(default_factory=list)
    delegated: list[Delegated] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    holds: list[Hold | FanOut] = field(default_factory=list)
    settled: Sequence[int] = ()
    sendings: dict[int, TaskMessage] = field(default_factory=dict)
    """Tasks of fire-and-forget calls: each goes into the outbox with its outcome, and to its queue after that."""
    spent: dict[int, CallTiming] = field(default_factory=dict)
    """How long the calls took that were run, by index."""
    codes: dict[int, ExecutedBy] = field(default_factory=dict)
    """Who has run them, with which version of the code."""
    unknown: dict[int, int] = field(default_factory=dict)
    """The attempts whose end is not known, by call (SPEC R4.11)."""
    seen: dict[int, Seen] = field(default_factory=dict)
    """The moments of the log that delegates, and models, were shown."""
    load: int = 0
    """The bytes of what it holds."""

    @classmethod
    def begin(cls, meter: Meter) -> Step:
        """An empty one."""
        return cls(meter, meter.units)

    def __len__(self) -> int:
        ended = len(self.outcomes) + len(self.rests) + len(self.delegated)
        return ended + len(self.starts) + len(self.holds)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to be written."""
        return not len(self) and not self.settled

    @property
    def is_plain(self) -> bool:
        """Whether only calls that have ended, and calls that begin, are in it."""
        return not (self.rests or self.delegated or self.holds or self.settled or self.unknown)

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be added."""
        return len(self) >= OUTCOMES_A_STEP or self.load >= BYTES_A_STEP or self.meter.units - self.worked >= STEP_WORK

    def endings(self, execution: Execution, waking: Collection[int]) -> list[Ending]:
        """The outcomes, with what is written beside them; for those in `waking` parked lanes wait."""
        return [
            Ending(
                outcome,
                [str(place) for place in execution.missed(outcome)],
                outcome.index in waking,
                self.sendings.get(outcome.index),
                self.spent.get(outcome.index),
                self.codes.get(outcome.index),
                outcome.index not in self.spent,
                self.seen.get(outcome.index),
            )
            for outcome in self.outcomes
        ]

    def held(self) -> list[Held]:
        """The calls that are to wait for a person or a moment, or run for each element."""
        return [
            Held(hold.call.index, pack_hold(hold), hold.elements)
            if isinstance(hold, FanOut)
            else Held(
                hold.call.index,
                pack_hold(hold),
                until_ms=hold.until_ms,
                begun=self.unknown.get(hold.call.index),
                rules=hold.rules,
                rule=hold.rule,
            )
            for hold in self.holds
        ]

    def sent(self, committed: Committed) -> list[TaskMessage]:
        """The messages that the commit put into the outbox."""
        tasks = [self.sendings.get(outcome.index) for outcome in self.outcomes]
        return [task for task, is_ours in zip(tasks, committed.accepted, strict=True) if task is not None and is_ours]


def count_ended(outcomes: Sequence[Outcome], committed: Committed, execution: Execution) -> list[Outcome]:
    """Choose the outcomes that are in the log by this commit, and count their calls; an element is no call."""
    taken = zip(outcomes, committed.accepted, strict=False)  # of a run that is gone nothing is said
    ended = [outcome for outcome, is_ours in taken if is_ours]
    for outcome in ended:
        if element_of(outcome.index) is None and (call := execution.call(outcome.index)) is not None:
            metrics().call_ended(call.tool, outcome.status)
    return ended


# The mailbox of a lane runner: what arrives while it does something else.
#
# Results of remote calls are handed in by tasks that wait for their receipt: whether the result is in the log. Others
# say that there is something new in the lane, or that a call that rested is due.


@dataclass(frozen=True, slots=True)
class News:
    """The news for a lane runner."""

    is_told: bool
    """Whether a task says that there is something new in the lane."""
    due: tuple[int, ...]
    """Calls that have rested."""
    deliveries: tuple[Delivery, ...]


class Mailbox:
    """The mailbox of one lane runner."""

    def __init__(self, quarantine: Quarantine | None = None, run: str = "") -> None:
        """Without a `quarantine` no call asks for a turn."""
        self._quarantine = quarantine or Quarantine()
        self._run = run
        self._is_told = False
        self._due: list[int] = []
        self._deliveries: list[Delivery] = []
        self._receipts: list[asyncio.Future[bool]] = []
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._turns: dict[int, Turn] = {}
        """Turns in the quarantine, asked for or come, by the calls that their workers may have died of."""
        self._arrival = asyncio.Event()

    @property
    def resting(self) -> tuple[int, ...]:
        """The calls that will come as due."""
        return (*self._timers, *(index for index, turn in self._turns.items() if turn.is_to_come))

    @property
    def has_news(self) -> bool:
        """Whether something has come since `take`."""
        return self._arrival.is_set()

    async def wait(self) -> None:
        """Wait until something comes."""
        await self._arrival.wait()

    def ring(self) -> None:
        """Wake the waiter without a message."""
        self._arrival.set()

    def look_again(self) -> None:
        """A task says that there is something new in the lane."""
        self._is_told = True
        self.ring()

    def deliver(self, delivery: Delivery) -> asyncio.Future[bool]:
        """Hand in the result of a remote call. The receipt: whether it is in the log, or the runner failed before."""
        receipt: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._deliveries.append(delivery)
        self._receipts.append(receipt)
        self.ring()
        return receipt

    def remind(self, index: int, delay_seconds: float) -> None:
        """Let a call come as due after a delay; of several reminders the last one counts."""
        if (timer := self._timers.pop(index, None)) is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers[index] = loop.call_later(delay_seconds + CLOCKS_DIFFER_SECONDS, self._remember, index)

    def refuse(self, index: int, *, asks: bool) -> None:
        """Take note that a call was not claimed; where it `asks`, it comes as due with its turn in the quarantine."""
        self.end_turns((index,))
        if asks:
            self._turns[index] = self._quarantine.ask(self._run, partial(self._remember, index))

    def has_turn(self, index: int) -> bool:
        """Whether a call has its turn."""
        return index in self._turns and self._turns[index].has_come

    def end_turns(self, indexes: Iterable[int]) -> None:
        """Take note that calls have ended, or do not begin."""
        for index in indexes if self._turns else ():
            if (turn := self._turns.pop(index, None)) is not None:
                turn.cancel()

    def take(self) -> News:
        """Take the news since the last time."""
        news = News(self._is_told, tuple(self._due), tuple(self._deliveries))
        self._is_told, self._due, self._deliveries = False, [], []
        self._arrival.clear()
        return news

    def give_receipts(self, *, committed: bool) -> None:
        """Tell those who handed something in what became of it; what has not been taken yet is not meant."""
        if committed and self._deliveries:
            return
        receipts, self._receipts = self._receipts, []
        for receipt in receipts:
            if not receipt.done():
                receipt.set_result(committed)

    def close(self) -> None:
        """The runner leaves: nothing arrives any more, and what was handed in and is not in the log never will be."""
        for timer in self._timers.values():
            timer.cancel()
        self.end_turns(tuple(self._turns))
        self.give_receipts(committed=False)

    def _remember(self, index: int) -> None:
        self._timers.pop(index, None)
        self._due.append(index)
        self.ring()


# What all lane runners of a process share.

Publish = Callable[[Sequence[TaskMessage]], Awaitable[None]]
"""Publishes tasks that are in the log; never raises (see `broker.consumer`)."""


@dataclass(frozen=True)
class WorkerContext:
    """The services that all lane runners of a process share."""

    log: MessageLog
    settings: Settings
    registry: Registry
    limits: Limits
    publish: Publish
    threads: Threads
    presence: Presence
    remote: Remote
    slots: Slots
    turns: FairScheduling
    checker: Checker
    """Checks the calls of a loop's solutions."""
    children: Children
    """Starts the runs of delegates that have tools."""
    validator: Validator
    """Makes the heavy checks of results and parameters."""
    quarantine: Quarantine = field(default_factory=Quarantine)
    """Where calls wait that their workers may have died of."""
    worker: str = "acts"
    """The name of the worker that this process is, or belongs to."""
    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when this process is to end: no call begins here any more."""
    heavy: FairSemaphore = field(default_factory=lambda: FairSemaphore(HEAVY_AT_ONCE))
    """For what is large on its way to the servers: what is small does not wait behind it, and runs take turns."""

    @cached_property
    def models(self) -> KnownModels:
        """The models by their names."""
        return KnownModels(self.settings, self.checker.registry)

    @cached_property
    def limited_models(self) -> KnownModels | None:
        """The models, where the provider of one allows only so much in a minute."""
        return self.models if any(map(ProviderLimit.of, self.models.configured())) else None

    def activity(self, name: str) -> Activity | None:
        """The activity that this worker runs under the name (`ACTS_ALLOW`)."""
        is_allowed = not self.settings.allow or name in self.settings.allow
        return self.registry.activities.get(name) if is_allowed else None


# What was used last and is kept for a while: so many things, of so many bytes, for so long.

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values by key. What was put first goes first."""

    def __init__(self, most: int, *, most_bytes: int, longest_seconds: float = inf) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._longest_seconds = longest_seconds
        self._values: OrderedDict[K, tuple[float, int, V]] = OrderedDict()
        """Each with the time when it was put, and its bytes then."""
        self._bytes = 0

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def get(self, key: K) -> V | None:
        """The value that is kept under a key."""
        found = self._values.get(key)
        return found[2] if found is not None else None

    def put(self, key: K, value: V, size: int) -> None:
        """Keep a value that has so many bytes now, as the one that was used last."""
        self.pop(key)
        self._values[key] = monotonic(), size, value
        self._bytes += size
        while self._values and self._is_one_to_go():
            self.pop(next(iter(self._values)))

    def pop(self, key: K) -> V | None:
        """Keep a value no longer; returns it, where there is one."""
        if (found := self._values.pop(key, None)) is None:
            return None
        self._bytes -= found[1]
        return found[2]

    def _is_one_to_go(self) -> bool:
        since, _, _ = next(iter(self._values.values()))
        too_many = len(self._values) > self._most or self._bytes > self._most_bytes
        return too_many or monotonic() - since > self._longest_seconds


# The runs that this process has open: their shared parts are read once, not once for each lane.


class Views:
    """The most recently used runs' views."""

    def __init__(self, log: MessageLog, limits: Limits, said_here: SaidHere) -> None:
        """`said_here` is what this process says of the calls of all runs (SPEC R16.1)."""
        self._log = log
        self._limits = limits
        self._said_here = said_here
        self._views = Recent[str, asyncio.Future[RunView]](RUNS_KEPT, most_bytes=RUNS_KEPT_BYTES)

    async def run(self, run: str) -> RunView:
        """The view of a run; those who ask at the same time wait for one reading. Raises `RunGone`."""
        return (await self.lane(run, None))[0]

    async def lane(self, run: str, instance: str | None) -> tuple[RunView, Opened | None]:
        """The view of a run, and a lane of it where that was read with the view. Raises `RunGone`."""
        read: list[Opened] = []
        opening = self._views.get(run)
        if opening is None:
            opening = asyncio.ensure_future(self._open(run, instance, read))
            self._views.put(run, opening, 0)
        try:
            view = await asyncio.shield(opening)
        except Exception:
            self._views.pop(run)
            raise
        self._views.put(run, opening, min(view.size, RUNS_KEPT_BYTES))  # the largest one is kept while it is in use
        return view, read[0] if read else None

    def forget(self, run: str) -> None:
        """Keep the view of a run no longer."""
        self._views.pop(run)

    async def _open(self, run: str, instance: str | None, read: list[Opened]) -> RunView:
        view, lane = await RunView.open(self._log, run, self._limits, instance, self._said_here)
        read.append(lane)
        return view
