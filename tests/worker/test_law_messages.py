"""Laws of a worker: messages between processes, and slots."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any, Final

import msgpack
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol import Limits
from acts_celery.protocol.engine.events import Failure, Progress, Success
from acts_celery.worker.broker.attempts import Attempt, CallId, Retry, pack_progress
from acts_celery.worker.broker.messages import (
    ActivityCall,
    AttemptRef,
    Completion,
    DelegateCall,
    Delivery,
    Envelope,
    LaneCall,
    Probe,
    Progressed,
    Report,
    Unanswered,
    pack,
    pack_delivery,
    pack_envelope,
    pack_lane_call,
    pack_message,
    pack_report,
    tick_answer,
    unpack,
    unpack_activity_call,
    unpack_delegate_call,
    unpack_delivery,
    unpack_envelope,
    unpack_lane_call,
    unpack_probe,
    unpack_report,
)
from acts_celery.worker.errors import MalformedMessage
from acts_celery.worker.store.connections import connect_async
from acts_celery.worker.store.slots import Slots, Slotted, Wanted

from .backend import settings_for

# Every field that comes from another process has a type and a bound: any value at any field is read or refused.

TICK: Final = ("written", "answer", "error", "model", "usage", "type", "message", "input", "output", "cached")
LIMITS: Final = Limits()
ATTEMPT: Final = Attempt(CallId("run", "①", 3), 2, 1, True, "token", "seal", 5)
REF: Final = AttemptRef("run", "①", 3, 2, "token", "seal")
COST: Final = {"tokens": 3, "calls": 1, "model": "m", "usage": {"input": 1, "output": 2, "cached": 0}, "seconds": 0.5}
PROGRESS: Final = pack_progress(Progress(1, 2.5, "text", {"at": 7}))
REPORT: Final = Report(
    (REF,), (REF,), (Completion(REF, ("Error", "why"), 1.5),), (REF,), (Probe("q", 5, "t"),),
    (Unanswered(REF, "type", "why", 2, 500),), (Progressed(REF, PROGRESS),),
)  # fmt: skip
KINDS: Final[dict[str, tuple[bytes, Callable[[object, Limits], Any]]]] = {
    "an activity's call": (pack_message(ActivityCall(ATTEMPT, "a", {}, {"x": 1}, {})), unpack_activity_call),
    "a delegate's call": (
        pack_message(DelegateCall(ATTEMPT, "d", [{}], {}, {"tokens": 5}, True)),
        unpack_delegate_call,
    ),
    "a value": (pack_delivery(Delivery(ATTEMPT, Success(1, COST), "child")), unpack_delivery),
    "an error": (pack_delivery(Delivery(ATTEMPT, Failure("Type", "message", COST))), unpack_delivery),
    "another attempt": (
        pack_delivery(Delivery(ATTEMPT, Retry(Failure("Type", "message"), 1.5, progress=PROGRESS))),
        unpack_delivery,
    ),
    "a report": (pack_report(REPORT), unpack_report),
    "a probe": (pack(REPORT.probes[0]), unpack_probe),
    "a lane": (pack_lane_call(LaneCall("run", "①", True)), unpack_lane_call),
    "an envelope": (pack_envelope(Envelope(0, [(b"body", "shown")])), unpack_envelope),
}
HUGE: Final = "x" * 100_000
VALUES: Final = st.one_of(
    st.sampled_from([None, True, -1, 2**53, 2**63, 2**64 - 1, 1e300, -0.5, math.inf, math.nan, "", HUGE, b"", b"\xff"]),
    st.sampled_from([[], {}, [[[]]], {"": 0}, [HUGE], {HUGE: HUGE}]),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(max_size=5),
)
AS_LONG_AS_A_MESSAGE: Final = {("activity",), ("delegate",), ("result", "message"), ("closed", 0, 1, 1), (1, 0, 1)}
"""Where a text may have all the bytes of its message: names as submissions have them, what errors say and is shown."""
FREE: Final = frozenset({"call", "parameters", "context", "schema", "config", "value", "body"})
"""What is data, and bounded as such: in bytes, depth and number."""


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a message that is not data."""
    yield at
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inside:
        if key not in FREE:
            yield from places(part, (*at, key))


def replaced(value: Any, at: tuple[Any, ...], other: Any) -> Any:
    """The message with something else at a place."""
    if not at:
        return other
    if isinstance(value, dict):
        return {**value, at[0]: replaced(value[at[0]], at[1:], other)}
    return [replaced(part, at[1:], other) if index == at[0] else part for index, part in enumerate(value)]


def plain(value: Any) -> Any:
    """What was read, as msgpack has it."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items() if key not in FREE}
    return [plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def leaves(value: Any) -> Iterator[Any]:
    """Every text and number of a message."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    if parts is None:
        yield value
    else:
        for part in parts:
            yield from leaves(part)


@pytest.mark.parametrize("kind", KINDS)
@given(number=st.integers(0, 2**16), other=VALUES)
def test_any_value_at_any_field_is_read_within_its_bounds_or_refused(kind: str, number: int, other: Any) -> None:
    packed, read = KINDS[kind]
    message = unpack(packed)
    at = (all_places := list(places(message)))[number % len(all_places)]
    bytes_ = msgpack.packb(replaced(message, at, other), use_bin_type=True)
    try:
        found = plain(read(bytes_, LIMITS))
    except MalformedMessage:
        return
    for one in leaves(found):
        if isinstance(one, (int, float)):
            assert math.isfinite(one)
            assert 0 <= one < 2**53
        elif isinstance(one, str) and at not in AS_LONG_AS_A_MESSAGE:
            assert len(one) <= 1_000 or len(HUGE) != len(one)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_packed_is_read(kind: str) -> None:
    packed, read = KINDS[kind]
    assert read(packed, LIMITS)


@given(st.recursive(VALUES, lambda inner: st.dictionaries(st.sampled_from([*TICK, "x"]), inner)))
@example({"answer": "x", "error": {"type": "a", "message": "b"}})
@example({"answer": "x", "usage": {"input": 2**63, "output": 1}})
@example({"answer": {}, "usage": None})
@example({"model": "m"})
def test_whatever_a_delegate_worker_says_of_a_tick_is_an_answer_or_an_error(value: Any) -> None:
    said = tick_answer(value)
    (kind,) = said.keys() & {"written", "answer", "error"}
    if kind == "error":
        assert all(isinstance(said["error"][key], str) for key in ("type", "message"))
    else:
        assert isinstance(said[kind], str)
    usage = said.get("usage") or {}
    assert all(isinstance(count, int) and 0 <= count <= 10**9 for count in usage.values())


def test_the_answers_of_ticks_are_taken_as_they_are() -> None:
    usage = {"input": 3, "output": 4, "cached": 0}
    for said in (
        {"answer": "{}", "model": "m", "usage": usage},
        {"error": {"type": "Refused", "message": "no"}, "model": "m"},
        {"error": {"type": "Truncated", "message": "cut"}},
        {"written": "{"},
    ):
        assert tick_answer(said) == said


# Whatever calls come and go, slots are neither exceeded nor left idle while somebody waits, and everybody gets one.

Step = tuple[str, Any, Any]
NAMES = {"activity:a": 1, "activity:b": 2, "delegate:c": 3}
RUNS = {"x": 2, "y": 4}
_ENOUGH = 200
"""Steps within which all that have come can have gone."""
LIMITS_LAWS_OF_SLOTS = NAMES | {f"run:{run}": limit for run, limit in RUNS.items()}


def _holder(call: CallId) -> str:
    """How a call is named among those that hold a slot."""
    return f"{call.run}\x1f{call.member}"


@dataclass
class House:
    """The slots, and what they are to be: who works, who waits, whom nobody has woken yet."""

    redis: Redis
    prefix: str
    slots: Slots
    working: dict[CallId, Mapping[str, int]] = field(default_factory=dict)
    waiting: dict[CallId, Mapping[str, int]] = field(default_factory=dict)
    woken: list[CallId] = field(default_factory=list)

    async def come(self, call: CallId, limits: Mapping[str, int]) -> None:
        if call in self.working:
            return
        self.woken = [woken for woken in self.woken if woken != call]
        slotted = await self.slots.acquire([Wanted(call, limits)])
        (is_granted,) = slotted.granted
        self.waiting.pop(call, None)
        (self.working if is_granted else self.waiting)[call] = limits
        self.take(slotted)

    async def go(self, call: CallId) -> None:
        self.take(await self.slots.release([(call, self.working.pop(call), True)]))

    async def answer(self, position: int) -> None:
        """A lane that was published comes."""
        call = self.woken[position % len(self.woken)]
        await self.come(call, self.waiting[call])

    def take(self, slotted: Slotted) -> None:
        assert all(call in self.waiting for call in slotted.handed)
        self.woken.extend(slotted.handed)

    async def verify(self) -> None:
        key = f"{self.prefix}:{{slots}}"
        async with self.redis.pipeline(transaction=False) as pipeline:
            for name in LIMITS_LAWS_OF_SLOTS:
                pipeline.zrange(f"{key}:holders:{name}", 0, -1)
                pipeline.exists(f"{key}:turns:{name}")
            found = await pipeline.execute()
        for (name, limit), members, waits in zip(LIMITS_LAWS_OF_SLOTS.items(), found[::2], found[1::2], strict=True):
            held = {member.decode() for member in members}
            at_work = {_holder(call) for call, limits in self.working.items() if name in limits}
            assert at_work <= held <= at_work | set(map(_holder, self.woken))
            assert len(held) <= limit, "more than are allowed"
            assert not waits or len(held) == limit, "a slot is idle though somebody waits"


calls = st.builds(
    CallId, st.sampled_from(sorted(RUNS)), st.none() | st.sampled_from(["①", "a\x1fb"]), st.integers(0, 5)
)
limits = st.tuples(st.booleans(), st.sampled_from([None, *NAMES])).filter(any)
steps = st.lists(
    st.tuples(st.just("come"), calls, limits)
    | st.tuples(st.just("go"), st.integers(0, 99), st.none())
    | st.tuples(st.just("answer"), st.integers(0, 99), st.none()),
    min_size=20,
    max_size=50,
)


@settings(max_examples=settings().max_examples // 5)
@given(steps)
def test_slots_are_never_exceeded_never_idle_and_no_call_waits_for_ever(
    server: EmbeddedServer, taken: list[Step]
) -> None:
    asyncio.run(_live_through(server, taken))


async def _live_through(server: EmbeddedServer, taken: list[Step]) -> None:
    prefix = f"law.{secrets.token_hex(6)}"
    known: dict[CallId, Mapping[str, int]] = {}
    async with connect_async(settings_for(server, key_prefix=prefix)) as redis:
        house = House(redis, prefix, Slots(redis, prefix=prefix))
        for what, which, how in taken:
            if what == "come":
                in_run, name = how
                wanted = ({f"run:{which.run}": LIMITS_LAWS_OF_SLOTS[f"run:{which.run}"]} if in_run else {}) | (
                    {name: NAMES[name]} if name else {}
                )
                await house.come(which, known.setdefault(which, wanted))
            elif what == "go" and house.working:
                await house.go([*house.working][which % len(house.working)])
            elif what == "answer" and house.woken:
                await house.answer(which)
            await house.verify()
        for _ in range(_ENOUGH):
            if house.woken:
                await house.answer(0)
            elif house.working:
                await house.go(next(iter(house.working)))
            await house.verify()
            if not (house.woken or house.working):
                break
        assert house.waiting == {}
        assert [key async for key in redis.scan_iter(f"{prefix}*")] == []
