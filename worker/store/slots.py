"""Slots: how many calls of a name may be at work at a time, or begin within a time, over all runs and workers
(lua/slots.lua).

A drive acquires a slot before it claims a call and gives it back when the outcome is in the log. A call that gets none
waits in Redis, not in a worker: its lane is left, and published again when a slot is handed to it. The slot of a rate
is given back when the call is known to have begun, and is free when the window since then is over: whichever process
has heard of that moment last hands it on, and the sweep does what such processes leave. What a worker that died has
left is put right by `reconcile`, which the sweep calls.

The rate of a model's provider is one of requests and tokens a minute. A request takes the tokens that it may have while
it is under way, and counts with those that it has had from when the provider is known to have had it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.exceptions import RedisError

from ...broker_config.limits import MINUTE_MS
from ...protocol.engine.costs import CURRENCY, dollars_of, is_all, reported
from ...protocol.engine.loop import LoopLimits
from ..backoff import batches
from ..broker.attempts import CallId, lane_token
from ..limits import DUE_TICK_SECONDS, SLOTS_AT_ONCE, UNCLAIMED_MS
from .connections import GroupedCommands
from .keys import Condition, Keys, Kind
from .scripts import AsyncScript, Script, readable, server_ms
from .servers import ServerAway, unless_away

logger = logging.getLogger(__name__)

Pair = tuple[str, str]

RATE: Final = "rate:"
"""The beginning of the name of a rate."""
MODEL: Final = "model:"
"""The beginning of the name of the rate of a model's provider."""
KEYED: Final = "\x1f"
"""The part of a name before the key of a call."""


@dataclass(frozen=True, slots=True)
class Rate:
    """So many calls may begin in any time of a length."""

    most: int
    window_ms: int
    tokens: int = 0
    """How many tokens they may take in that time; 0: any number."""


Limit = int | Rate
"""So many calls may be at work, or begin within a time."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The slots that a call needs: the names, with their limits."""

    call: CallId
    limits: Mapping[str, Limit]
    key: str = ""
    """The part after `KEYED` in names that have a key."""
    tokens: int = 0
    """The tokens that it may take, of rates that limit them."""
    lost: bool = False
    """Whether an attempt at it was lost, which may have begun with the slot that it holds, and counts."""


class Taken(NamedTuple):
    """What a request to a model has taken."""

    tokens: int = -1
    """-1 where nobody knows."""
    ago_ms: int = 0
    """For how long its provider has had it, at least."""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Self:
        """Read it of what another process tells of an answer."""
        counts, heard = reported(told.get("usage")), told.get("heard")
        is_whole = is_all(told.get("usage")) and not told.get("estimated")
        ago_ms = min(heard * 1000, MINUTE_MS) if isinstance(heard, int | float) and heard >= 0 else 0
        return cls(sum(counts[:2]) if counts is not None and is_whole else -1, int(ago_ms))


@dataclass(frozen=True, slots=True)
class Slotted:
    """The answer to a request for slots."""

    granted: tuple[bool, ...]
    handed: tuple[CallId, ...]
    """Calls that had waited and hold a slot now: their lanes have to be published."""


class Slots:
    """The slots, as a worker's drives use them. `wake` publishes the lanes of calls that have waited for a rate."""

    def __init__(
        self, redis: AsyncRedis, *, prefix: str, wake: Callable[[Collection[CallId]], Awaitable[None]] | None = None
    ) -> None:
        self._key = slots_key(prefix)
        self._script = AsyncScript(GroupedCommands(redis), "slots")
        self._wake = wake
        self._alarms: dict[int, asyncio.TimerHandle] = {}
        """When to look at what is due, in ticks of the loop's clock."""
        self._waking = set[asyncio.Task[None]]()

    async def acquire(self, wanted: Sequence[Wanted]) -> Slotted:
        """Ask for slots for calls; who gets none waits from now on."""
        calls = [
            {
                "call": _text(one.call),
                "run": one.call.run,
                "key": one.key,
                "lost": one.lost,
                "names": [_named(*pair, one.tokens) for pair in one.limits.items()],
            }
            for one in wanted
        ]
        answers = [await self._ask(acquire=some) for some in batches(calls, SLOTS_AT_ONCE)]
        return Slotted(
            tuple(is_granted for answer in answers for is_granted in answer.granted),
            tuple(call for answer in answers for call in answer.handed),
        )

    async def release(
        self, held: Iterable[tuple[CallId, Iterable[str], bool]], taken: Mapping[CallId, Taken] = MappingProxyType({})
    ) -> Slotted:
        """Give back what calls hold, or would hold, that have ended or rest, and say whether they have begun: of rates
        the window runs from now on, unless it does already. Doing it twice does no harm. A name that ends in `KEYED` is
        the name of the call's key. A request counts with all that it may take, unless it is known what it has `taken`.
        """
        ended = [(call, [*names], has_begun) for call, names, has_begun in held]
        return await self._ask(
            release=[
                (name, _text(call), has_begun, *taken.get(call, Taken()))
                for call, names, has_begun in ended
                for name in names
            ],
            forget=[_text(call) for call, names, _ in ended if any(name.endswith(KEYED) for name in names)],
        )

    async def begin(self, begun: Sequence[tuple[CallId, Iterable[str]]]) -> Slotted:
        """Note that calls have begun, each with the names that limit it: the windows of their rates run from now on."""
        calls = [(_text(call), [*names]) for call, names in begun]
        return await self._ask(
            release=[(name, call, True) for call, names in calls for name in names if name.startswith(RATE)],
            forget=[call for call, names in calls if not any(map(_is_held_for_a_key, names))],
        )

    async def _ask(self, **request: Any) -> Slotted:
        found = await self._script(self._key, _request(**request))
        self._look_in(found["due_ms"])
        return _read(found)

    def _look_in(self, due_ms: int) -> None:
        """Look at what is due in so many milliseconds, or a little later. Whatever is lost here the sweep finds."""
        if due_ms < 0 or self._wake is None:
            return
        loop = asyncio.get_running_loop()
        tick = ceil((loop.time() + due_ms / 1000) / DUE_TICK_SECONDS)
        if tick not in self._alarms:
            self._alarms[tick] = loop.call_at(tick * DUE_TICK_SECONDS, self._ring, tick)

    def _ring(self, tick: int) -> None:
        del self._alarms[tick]
        waking = asyncio.get_running_loop().create_task(self._hand_on_due())
        self._waking.add(waking)
        waking.add_done_callback(self._waking.discard)

    async def _hand_on_due(self) -> None:
        """Hand on what is due, and have the lanes of those calls published."""
        assert self._wake is not None
        try:
            if handed := (await self._ask(due=SLOTS_AT_ONCE)).handed:
                await self._wake(handed)
        except RedisError as error:
            logger.warning("what waits for a rate is left to the sweep: %s", error)


class SlotKeeper:
    """Puts right what workers that died have left behind."""

    def __init__(self, redis: Redis, *, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix
        self._key = slots_key(prefix)
        self._script = Script(redis, "slots")

    def reconcile(self) -> set[str]:
        """Take slots from calls that have ended, hand on rates that are due, and see to it that what was handed over
        is taken.

        A lane to be published is marked as a lost one; the sweep publishes it, when it looks at the runs that are
        returned. One command where nothing is limited.
        """
        marked: set[str] = set()
        while self._reconcile_once(marked):
            pass
        return marked

    def _reconcile_once(self, marked: set[str]) -> bool:
        """One round; says whether slots were handed on, maybe to calls that have ended too."""
        found: Any = self._redis.hkeys(self._key)
        names = [*readable(self._key, found, bytes.decode, lambda name: self._redis.hdel(self._key, name))]
        if not names:
            return False
        with self._redis.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.zrange(f"{self._key}:holders:{name}", 0, -1, withscores=True)
                pipeline.lrange(f"{self._key}:turns:{name}", 0, -1)
            answers = pipeline.execute()
        holders = {
            (name, call): since
            for name, calls in zip(names, answers[::2], strict=True)
            for call, since in self._holders(name, dict(calls))
        }
        turns = [
            (name, run) for name, runs in zip(names, answers[1::2], strict=True) for run in self._turns(name, runs)
        ]
        statuses = self._run_statuses({call.run for _, call in holders} | {run for _, run in turns})
        holders = {holder: since for holder, since in holders.items() if holder[1].run in statuses}
        drop = [pair for pair in turns if statuses.get(pair[1], b"running") != b"running"]
        self._put_back([pair for pair in drop if statuses[pair[1]] == b"paused"])
        judged = self._judge(holders, statuses)
        self._mark(judged.late)
        marked.update(call.run for call in judged.late)
        is_rated = any(name.startswith((RATE, MODEL)) for name in names)
        if not drop and not judged.release and not is_rated:
            return False
        request = {"drop": drop, "release": judged.release, "forget": judged.forget}
        handed = _read(self._script(self._key, _request(**request, due=SLOTS_AT_ONCE * is_rated))).handed
        self._mark(handed)
        marked.update(call.run for call in handed)
        return bool(handed)

    def _holders(self, name: str, calls: Mapping[bytes, float]) -> Iterator[tuple[CallId, float]]:
        key = f"{self._key}:holders:{name}"
        return readable(
            key, calls, lambda call: (slot_call(call.decode()), calls[call]), partial(self._redis.zrem, key)
        )

    def _turns(self, name: str, runs: Iterable[bytes]) -> Iterator[str]:
        key = f"{self._key}:turns:{name}"
        return readable(key, runs, bytes.decode, partial(self._redis.lrem, key, 0))

    def _run_statuses(self, runs: Iterable[str]) -> dict[str, bytes | None]:
        """Read the statuses of runs, without those whose server, one of several, is away."""
        names = list(runs)
        with self._redis.pipeline(transaction=False) as pipeline:
            for run in names:
                pipeline.hget(Keys(self._prefix, run).state, "status")
            found = zip(names, pipeline.execute(raise_on_error=False), strict=True)
        return {run: _found(status) for run, status in found if not isinstance(status, ServerAway)}

    def _judge(self, holders: Mapping[tuple[str, CallId], float], statuses: Mapping[str, bytes | None]) -> _Judged:
        """Look whether the calls that hold slots are at work, or will be."""
        calls = list(dict.fromkeys(call for _, call in holders))
        with self._redis.pipeline(transaction=False) as pipeline:
            for call in calls:
                pipeline.hget(Keys(self._prefix, call.run).calls, call.member)
            entries = map(_found, pipeline.execute(raise_on_error=False))
        now_ms = server_ms(self._redis)
        found = dict(zip(calls, entries, strict=True))
        judged = _Judged([], [], [])
        keyed = {call for name, call in holders if _is_held_for_a_key(name)}
        for (name, call), since in holders.items():
            condition, status = Condition.read(found[call]), statuses[call.run]
            is_at_work = condition is not None and condition.is_at_work
            begins = found[call] is None or (condition is not None and condition.kind in (Kind.LOST, Kind.RETRY))
            was_lost = condition is not None and condition.kind is Kind.LOST
            # One that was taken in the future was taken before the clock was set back.
            is_late = not 0 <= now_ms - since <= UNCLAIMED_MS and not is_at_work
            has_ended = not (is_at_work or begins) or status not in (b"running", b"paused")
            # A process notes itself what it has begun in line, unless it dies before: then the attempt may have begun.
            has_begun = (condition is not None and condition.is_reported) or (is_late and was_lost)
            if has_ended or (is_late and status == b"paused"):
                judged.release.append((name, _text(call), has_ended or was_lost))
                judged.forget.append(_text(call))
            elif has_begun and name.startswith(RATE):
                judged.release.append((name, _text(call), True))
                judged.forget.extend([_text(call)] if call not in keyed else [])
            if is_late and not has_ended:
                judged.late.append(call)
        return judged

    def _mark(self, calls: Iterable[CallId]) -> None:
        """Have the sweep publish the calls' lanes, unless their tasks are on the way."""
        with self._redis.pipeline(transaction=False) as pipeline:
            for call in calls:
                pipeline.zadd(Keys(self._prefix, call.run).published, {lane_token(call.instance): 0}, nx=True)
            unless_away(pipeline.execute(raise_on_error=False))

    def _put_back(self, paused: Iterable[Pair]) -> None:
        """Let lanes of paused runs that wait for a slot wait for their run's going on instead."""
        for name, run in paused:
            waiting: Any = self._redis.zrange(f"{self._key}:waiting:{name}\x1f{run}", 0, -1)
            lanes = list(dict.fromkeys(lane_token(slot_call(call.decode()).instance) for call in waiting))
            for some in batches(lanes, SLOTS_AT_ONCE):
                self._redis.rpush(Keys(self._prefix, run).backlog, *some)


@dataclass(frozen=True, slots=True)
class _Judged:
    """The slots to be taken back, as a request has them."""

    release: list[tuple[str, str, bool]]
    forget: list[str]
    """Calls that hold no slot of a key any more."""
    late: list[CallId]
    """Calls that were given a slot long ago and have not begun."""


def count_waiting(redis: Redis, prefix: str) -> Counter[str]:
    """Count the calls that wait for slots: of rates, activities and delegates by the name without a key, and of all
    runs together as `run`. Raises `RedisError`.
    """
    slots = slots_key(prefix)
    found: Any = redis.hkeys(slots)
    names = [name.decode("utf-8", "replace") for name in found]
    with redis.pipeline(transaction=False) as pipeline:
        for name in names:
            pipeline.lrange(f"{slots}:turns:{name}", 0, -1)
        turns = [
            (name, run.decode("utf-8", "replace"))
            for name, runs in zip(names, pipeline.execute(), strict=True)
            for run in runs
        ]
        for name, run in turns:
            pipeline.zcard(f"{slots}:waiting:{name}\x1f{run}")
        counts = pipeline.execute()
    waiting = Counter[str]()
    for (name, _), count in zip(turns, counts, strict=True):
        waiting["run" if name.startswith("run:") else name.partition(KEYED)[0]] += count
    return waiting


def _found(answer: Any) -> Any:
    """An answer; nothing where a run's keys are broken. Raises what is wrong with the server."""
    if isinstance(answer, Exception):
        if "WRONGTYPE" not in str(answer):
            raise answer
        return None
    return answer


def slots_key(prefix: str) -> str:
    """The key of the slots, with which those beside it begin."""
    return prefix + ":{slots}"


def model_slots(place: str, requests: int | None, tokens: int | None) -> dict[str, Limit]:
    """The slots of a model, by their name, with what its provider allows in a minute; each request takes a token."""
    return {MODEL + place: Rate(requests or tokens or 0, MINUTE_MS, tokens or 0)}


def _is_held_for_a_key(name: str) -> bool:
    """Whether a call of a key holds the slot of that name until it ends."""
    return KEYED in name and not name.startswith(RATE)


def _text(call: CallId) -> str:
    """How holders and waiters are named."""
    return f"{call.run}\x1f{call.member}"


def budget_member(call: CallId, again: int) -> str:
    """A call as a budget has it. What it has taken before it was run again stays."""
    return _text(call) + (f"\x1f{again}" if again else "")


def slot_call(text: str) -> CallId:
    """The call that holds a slot, or waits for one."""
    run, member = text.split("\x1f", 1)
    return CallId.of_member(run, member)


def _request(**parts: Any) -> dict[str, Any]:
    request: dict[str, Any] = {"drop": (), "release": (), "forget": (), "acquire": (), "due": 0}
    return request | parts


def _named(name: str, limit: Limit, tokens: int) -> tuple[str, str, int]:
    """A name with its limit as the script has it, and the tokens that a call takes of it."""
    if not isinstance(limit, Rate):
        return name, str(limit), 0
    text = f"{limit.most}/{limit.window_ms}"
    return (name, f"{text}/{limit.tokens}", tokens) if limit.tokens else (name, text, 0)


def _read(found: Mapping[str, Any]) -> Slotted:
    return Slotted(tuple(found["granted"]), tuple(map(slot_call, found["handed"])))


# Budgets: what the child runs of a loop, and its calls that ask a model, may take together (SPEC R13.3).
#
# A loop and everything below it share the budget of the outermost run. What a request may cost is reserved
# there before it begins, and what it has cost is put in its place (lua/budget.lua). A child has limits of its own
# besides, since its `config` may tighten: so a reservation counts in the sums of every loop above it, in the same hash
# and step. What a loop's own requests have cost is in its log; while its calls run it grows by no more than what the
# one may take whose answer is being written (SPEC R13.8), so both are taken off once: when a child begins. Its own
# calls a loop reserves, too.

SPENT: Final = ("loop:tokens", "loop:money")
"""The fields of a run's state that say what the requests of its loop have cost: tokens and nanodollars."""
_SUMS: Final = ("=tokens", "=open", "=calls", "=money", "=open_money")


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of all that is below one loop; None is no limit."""

    run: str
    tokens: int | None
    calls: int | None
    money: int | None = None
    """In nanodollars."""

    @classmethod
    def of(cls, run: str, limits: LoopLimits, tokens: int, money: int) -> Self:
        """The budget of a loop of those limits, whose own requests have taken so many tokens, and nanodollars."""
        return cls(run, _left(limits.tokens, tokens), limits.calls, _left(limits.money, money))


Budgets = Sequence[Budget]
"""The budgets that a run draws on, the nearest first: the last is the one of the outermost run."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Why nothing was reserved."""

    text: str
    may_pass: bool
    """Whether others have reserved what they may not need."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """How much a member has taken in all: a run, or a call that asks a model."""

    member: str
    tokens: int | None = None
    """None leaves them as they are, as for `calls`."""
    open: int = 0
    """How many of the tokens are only reserved."""
    calls: int | None = None
    tick: int = 0
    """The tick of the member's loop: only a later one lowers its calls."""
    money: int = 0
    """In nanodollars; it counts where `tokens` are given, too."""
    open_money: int = 0

    def to_request(self, budgets: Budgets) -> dict[str, Any]:
        """The script's request. What was billed is recorded, also beyond what is left."""
        return {
            "member": self.member,
            "tokens": self.tokens,
            "open": self.open,
            "money": None if self.tokens is None else self.money,
            "open_money": self.open_money,
            "calls": self.calls,
            "tick": self.tick,
            "limits": [
                {
                    "sums": sums,
                    "is_own": budget.run == self.member,
                    "tokens": budget.tokens if self.open else None,
                    "calls": budget.calls,
                    "money": budget.money if self.open_money else None,
                }
                for budget, sums in zip(budgets, _sums(budgets), strict=True)
            ],
        }

    def shortfall(self, budgets: Budgets, answer: Mapping[str, Any]) -> Shortfall | None:
        """The shortfall in the script's answer, if there is one."""
        if answer["is_drawn"]:
            return None
        if answer["is_over"]:
            return Shortfall(f"run {budgets[-1].run}, which it is to answer, is over", may_pass=False)
        left, run = answer["left"], budgets[answer["limit"]].run
        if answer["what"] == "calls":
            text = f"{left} calls are left of those that run {run} and its child runs may start together (config.calls)"
            return Shortfall(text, may_pass=False)
        if answer["what"] == "money":
            next_ = f"the next request may cost {dollars_of(self.open_money)} {CURRENCY}"
            text = f"{next_}, and {dollars_of(left)} are left of what run {run}"
        else:
            text = f"the next request may take {self.open} tokens, and {left} are left of those that run {run}"
        return Shortfall(f"{text} and its child runs may take together (config.{answer['what']})", answer["open"] > 0)


def sum_fields(budgets: Budgets) -> list[str]:
    """The fields of the outermost run's hash that say what was taken."""
    return [field for sums in _sums(budgets) for field in sums]


def left_of(budgets: Budgets, found: Iterable[Any]) -> dict[str, int]:
    """The amounts left for a child that begins now, by the keys of `config`, money in nanodollars; `found` are the
    values of `sum_fields`.

    What others have only reserved may be given back: the child waits for it, as any request does.
    """
    numbers = [int(number or 0) for number in found]
    left: dict[str, int] = {}
    for at, budget in enumerate(budgets):
        tokens, reserved, calls, money, reserved_money = numbers[len(_SUMS) * at : len(_SUMS) * (at + 1)]
        for key, most, taken in (
            ("tokens", budget.tokens, tokens - reserved),
            ("calls", budget.calls, calls),
            ("money", budget.money, money - reserved_money),
        ):
            if most is not None:
                left[key] = min(max(most - taken, 0), left.get(key, most))
    return left


def _left(most: int | None, spent: int) -> int | None:
    return None if most is None else max(most - spent, 0)


def _sums(budgets: Budgets) -> list[list[str]]:
    """The fields with the sums of each: the outermost one's are plain, the others' have the run's name."""
    outer = budgets[-1].run
    return [[name if budget.run == outer else f"{name}:{budget.run}" for name in _SUMS] for budget in budgets]
