"""The core alone: how its cost grows with the log and with the calls, as `python -m tests.benchmarks core`.

Prints, for each thing measured, the processor seconds at every size and by how much they grow from one decade to the
next: about 10 is linear, about 1 is flat, 100 is quadratic. `x json` says how many times as long it takes as writing
the same data as JSON and reading it back, so that machines can be compared. Nothing here is asserted;
`tests/protocol/test_scale.py` and `test_scale.py` count steps and bytes, without a clock.
"""

from __future__ import annotations

import gc
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

from acts_celery.protocol import Context, Plan, Reference, check_submission, references
from acts_celery.protocol.engine.events import Decision, Outcome, Success
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.schemas import validation as compilation
from acts_celery.protocol.state.fold import Fold

Json = Any
Work = Callable[[], object]
Bench = Callable[[int], tuple[Json, Work]]
"""For a size: the data that goes in, and the work to be timed."""

DECADES: Final = (100, 1_000, 10_000)
LOGS: Final = (1_000, 10_000, 100_000)
READS: Final = (10, 1_000, 10_000, 100_000)
_TIMES: Final = 1_000
"""How often what takes microseconds is done for one timing."""
_IMPORTS: Final = 7
_CHUNK: Final = "ten letters"
_DATE: Final = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class Measured:
    """Something measured at several sizes."""

    name: str
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    expected: str
    times_json: float | None

    @property
    def growth(self) -> tuple[float, ...]:
        """Growth from size to size, brought to a decade."""
        points = zip(pairwise(self.sizes), pairwise(self.seconds), strict=True)
        return tuple((later / sooner) ** (1 / _decades(few, many)) for (few, many), (sooner, later) in points)

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "name": self.name,
            "sizes": self.sizes,
            "seconds": self.seconds,
            "growth_per_decade": [round(growth, 2) for growth in self.growth],
            "expected": self.expected,
            "times_json": self.times_json,
        }


def measure(rounds: int, wanted: Sequence[str] = ()) -> Iterator[Measured]:
    """All measurements, or those whose names contain one of some texts; the best of some rounds each."""
    for name, sizes, expected, bench in BENCHES:
        if not wanted or any(text in name for text in wanted):
            yield _measured(name, sizes, expected, bench, rounds)


def constructions(calls: int = 10_000) -> dict[str, int]:
    """How many validators are built and expressions parsed where many calls name one tool and a few places.

    Checked from nothing, checked again, and driven to the end.
    """
    value = _submission([_call(to=f"†state.k{n % 50}", value="†input.x") for n in range(calls)], tools=_STRICT)
    compilation.forget()
    _forget_parsed()
    counts = {"calls": calls}
    with (
        _counted(compilation.CompiledSchema, "__init__") as built,
        _counted(references.Parser, "expression") as parsed,
    ):
        plan = check_submission(value)
        counts |= {"validators, first check": len(built), "expressions parsed, first check": len(parsed)}
        plan = check_submission(value)
        drive(plan)
    return counts | {"validators in all": len(built), "expressions parsed in all": len(parsed)}


def import_ratio() -> float:
    """How many times as long an interpreter takes to start and import `protocol` as to start alone; wall-clock."""
    return round(_start_of("import protocol") / _start_of("pass"), 1)


def table(rows: Iterable[Measured], counts: Mapping[str, int]) -> Iterator[str]:
    """For people, line by line as it is measured."""
    yield f"{'':55}{'size: seconds':66}{'growth per decade':20}{'expected':10}x json"
    for row in rows:
        pairs = zip(row.sizes, row.seconds, strict=True)
        seconds = "".join(f"{size:>6}: {value:<8.4f}" for size, value in pairs)
        growth = "".join(f"{value:<6.1f}" for value in row.growth)
        ratio = f"{row.times_json:.1f}" if row.times_json is not None else ""
        yield f"{row.name:55}{seconds:66}{growth:20}{row.expected:10}{ratio}"
    yield from ("", *(f"{name}: {count}" for name, count in counts.items()))


def _decades(few: int, many: int) -> float:
    return math.log10(many / few)


def _measured(name: str, sizes: tuple[int, ...], expected: str, bench: Bench, rounds: int) -> Measured:
    seconds: list[float] = []
    ratio = None
    for size in sizes:
        timings, yardstick = [], []
        for _ in range(rounds):
            data, work = bench(size)
            timings.append(processor_seconds(work))
            if data is not None and size == sizes[-1]:
                yardstick.append(processor_seconds(lambda: json.loads(json.dumps(data))))  # noqa: B023  # called at once
        seconds.append(min(timings))
        if yardstick:
            ratio = round(min(timings) / min(yardstick), 1)
    return Measured(name, sizes, tuple(seconds), expected, ratio)


def processor_seconds(work: Work) -> float:
    """The time that a piece of work takes, with what its own garbage costs, and not what all that was there before."""
    gc.collect()
    gc.freeze()
    try:
        start = time.process_time()
        work()
        return time.process_time() - start
    finally:
        gc.unfreeze()


def _start_of(program: str) -> float:
    """The seconds that a new interpreter takes for a program, the median of some."""
    timings = []
    for _ in range(_IMPORTS):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True)
        timings.append(time.perf_counter() - start)
    return statistics.median(timings)


def _forget_parsed() -> None:
    """So that small sizes are not spared what the large ones have to do."""
    references.parse.cache_clear()
    references.parse_output_path.cache_clear()


@contextmanager
def _counted(owner: type, method: str) -> Iterator[list[None]]:
    """How often a method is called, as the length of a list."""
    plain, calls = getattr(owner, method), list[None]()

    def counted(*arguments: Any, **more: Any) -> Any:
        calls.append(None)
        return plain(*arguments, **more)

    setattr(owner, method, counted)
    try:
        yield calls
    finally:
        setattr(owner, method, plain)


# Messages and logs.


def _written(path: str, data: Json, method: str = "set", instance: str | None = None) -> dict[str, Any]:
    message: dict[str, Any] = {"type": "state", "data": data, "_outputMethod": method, "_call": {"_outputPath": path}}
    return message if instance is None else message | {"_instance": instance}


@lru_cache(maxsize=1)
def _wide_log(number: int) -> list[Json]:
    return [_written(f"†state.wide.k{n}", {"wide": {f"k{n}": n}}) for n in range(number)]


def _below_log(number: int) -> list[Json]:
    return [_written(f"†state.all.k{n % 5_000}.n{n}", {"all": {f"k{n % 5_000}": {f"n{n}": n}}}) for n in range(number)]


def _push_log(number: int) -> list[Json]:
    return [_written("†state.list", {"list": n}, "push") for n in range(number)]


def _concat_log(number: int) -> list[Json]:
    return [_written("†state.text", {"text": _CHUNK}, "concat") for _ in range(number)]


def _two_texts_log(number: int) -> list[Json]:
    texts = [_written(f"†state.text{n % 2}", {f"text{n % 2}": _CHUNK}, "concat") for n in range(number)]
    return [_written("†state.n", {"n": n}) if n % 3 == 2 else text for n, text in enumerate(texts)]


def _merge_log(number: int) -> list[Json]:
    return [{"type": "state", "a": {"b": {f"c{n % 100}": {f"d{n}": n, "last": n}}}} for n in range(number)]


def _overwritten_log(number: int) -> list[Json]:
    return [_written("†state.n", {"n": n}) for n in range(number)]


def _fold(messages: list[Json]) -> Fold:
    fold = Fold()
    for message in messages:
        fold.append(message, "a message")
    return fold


def _cold(log: Callable[[int], list[Json]]) -> Bench:
    """Folding a log from nothing, to the first value read."""

    def bench(number: int) -> tuple[Json, Work]:
        messages = log(number)
        _forget_parsed()
        return messages, lambda: _fold(messages).kinds()

    return bench


def _warm_read(number: int) -> tuple[Json, Work]:
    """A thousand readings of one path."""
    fold, place = _fold(_wide_log(number)), Reference("state", ("wide", "k7"))
    fold.value(place)

    def work() -> None:
        for _ in range(_TIMES):
            fold.value(place)

    return None, work


def _warm_append(number: int) -> tuple[Json, Work]:
    """A thousand times one more message, and reading a path."""
    fold, place = _fold(_wide_log(number)), Reference("state", ("wide", "k7"))
    more = [_written(f"†state.wide.more{n}", {"wide": {f"more{n}": n}}) for n in range(_TIMES)]
    fold.value(place)

    def work() -> None:
        for message in more:
            fold.append(message, "a message")
            fold.value(place)

    return None, work


def _warm_instance(number: int) -> tuple[Json, Work]:
    """The same in an instance on top of a large global value."""
    base, place = _fold(_wide_log(number)), Reference("state", ("wide", "k7"))
    fold = Fold(base)
    more = [_written(f"†state.wide.more{n}", {"wide": {f"more{n}": n}}) for n in range(_TIMES + 1)]
    fold.append(more.pop(), "a message")
    fold.value(place)

    def work() -> None:
        for message in more:
            fold.append(message, "a message")
            fold.value(place)

    return None, work


# Instances.


def _overlay(large: Json) -> Bench:
    """Instances that each lay an input of their own over a global one of a megabyte, and read both."""

    def bench(instances: int) -> tuple[Json, Work]:
        own = [{"type": "input", "_instance": f"i{n}", "all": {"name": f"i{n}"}} for n in range(instances)]
        messages = [{"type": "input", "all": large}, *own]

        def work() -> None:
            context = Context(messages)
            for n in range(instances):
                fold = context.fold(f"i{n}")
                assert fold.value(Reference("input", ("all", "name"))) == f"i{n}"
                assert fold.exists(Reference("input", ("all", "k7")))

        return messages, work

    return bench


_LARGE_WIDE: Final = {f"k{n}": "x" * 80 for n in range(11_000)}
_LARGE_DEEP: Final = {f"k{n}": {f"n{m}": "x" * 80 for m in range(110)} for n in range(100)}


def _globals_between(kind: str) -> Bench:
    """An instance writes and reads in turns with global messages."""

    def bench(number: int) -> tuple[Json, Work]:
        shared = [_written(f"†{kind}.g{n}", {f"g{n}": n}) | {"type": "data", "kind": kind} for n in range(number // 2)]
        own = [_written(f"†state.k{n}", {f"k{n}": n}) for n in range(number // 2)]

        def work() -> None:
            base = Fold()
            fold = Fold(base)
            for n, (above, below) in enumerate(zip(own, shared, strict=True)):
                base.append(below, "a message")
                fold.append(above, "a message")
                assert fold.value(Reference(kind, (f"g{n}",))) == n

        return [*shared, *own], work

    return bench


# Calls.


_ANY: Final = {"echo": {"type": "object"}}
_STRICT: Final = {
    "echo": {"type": "object", "properties": {"value": {}, "_outputPath": {"type": "string"}}, "required": ["value"]}
}


def _call(to: str | None = None, **properties: Json) -> Json:
    return {"_tool": "echo", **properties, **({} if to is None else {"_outputPath": to})}


def _submission(calls: list[Json], context: tuple[Json, ...] = (), tools: Json = _ANY) -> Json:
    given = [{"type": "input", "x": 1}, *context]
    return {"context": given, "solution": {"calls": calls}, "tools": tools}


def chain(number: int) -> Json:
    """A submission of calls each of which reads what the one before has written."""
    return _submission([_call(f"†state.k{n}", value=f"†state.k{n - 1}" if n else 0) for n in range(number)])


def independent(number: int) -> Json:
    """One of calls that read nothing."""
    return _submission([_call(f"†state.k{n}", value=n) for n in range(number)], tools=_STRICT)


def _fan_in(number: int) -> Json:
    whole = _call("†data.all", value="†state")
    each = _call("†data.each", value=[f"†state.k{n}" for n in range(number)])
    return _submission([*(_call(f"†state.k{n}", value=n) for n in range(number)), whole, each])


def _shared_read(number: int) -> Json:
    return _submission([_call(f"†state.k{n}", value="†input.x") for n in range(number)], tools=_STRICT)


def _one_written(number: int) -> Json:
    return _submission([_call("†state.x", value=1), *(_call(f"†data.k{n}", value="†state.x") for n in range(number))])


def _read_modify_write(number: int) -> Json:
    return _submission([_call("†state.n", value="†state.n") for _ in range(number)], ({"type": "state", "n": 0},))


def _branches(number: int) -> Json:
    calls = []
    for n in range(number // 4):
        calls.append(_call(f"†state.yes{n} || †state.no{n}", value=f"†state.end{n - 1}" if n else 0))
        calls.append(_call(f"†state.then{n}", value=f"†state.yes{n}"))
        calls.append(_call(f"†state.else{n}", value=f"†state.no{n}"))
        calls.append(_call(f"†state.end{n}", value=f"†state.then{n} || †state.else{n}"))
    return _submission(calls)


def _texts(number: int) -> Json:
    return _submission([_call("†state.text", value=_CHUNK, _outputMethod="concat") for _ in range(number)])


def _instances(number: int) -> Json:
    """A plan of five calls; the size is the number of instances."""
    context = [{"type": "input", "_instance": f"i{n}", "value": n} for n in range(number)]
    places = ["†input.value", *(f"†state.k{n}" for n in range(5))]
    calls = [_call(target, value=source) for source, target in pairwise(places)]
    return {"context": [*context, {"type": "plan", "calls": calls}], "tools": _ANY}


# Calls that schemas speak of.


_BOOKING: Final = {
    "type": "object",
    "properties": {
        "customer": {"type": "string", "minLength": 1, "maxLength": 80},
        "reference": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4,8}$"},
        "channel": {"enum": ["web", "phone", "agent", "partner"]},
        "quantity": {"type": "integer", "minimum": 1, "maximum": 100},
        "price": {"type": "number", "exclusiveMinimum": 0},
        "gift": {"type": "boolean"},
        "notes": {"type": "array", "items": {"type": "string"}, "maxItems": 20},
        "address": {
            "type": "object",
            "properties": {
                "street": {"type": "string"},
                "city": {"type": "string"},
                "country": {"type": "string", "pattern": "^[A-Z]{2}$"},
            },
            "required": ["city", "country"],
            "additionalProperties": False,
        },
        "previous": {"type": ["object", "null"]},
        "_outputPath": {"type": "string"},
        "_output": {
            "type": "object",
            "properties": {
                "id": {"type": "string"},
                "total": {"type": "number", "minimum": 0},
                "state": {"enum": ["open", "done"]},
            },
            "required": ["id", "total"],
        },
    },
    "required": ["customer", "reference", "channel", "quantity", "address"],
    "additionalProperties": False,
}
"""A tool of nine parameters, with what real ones have: an enumeration, a nested object, patterns and a result."""
_BOOKED: Final = {"id": "B-1", "total": 12.5, "state": "done"}
_LINKS: Final = 5


def _booking(link: int) -> Json:
    return {
        "_tool": "book",
        "_outputPath": f"†state.booking{link}",
        "customer": "†input.customer",
        "reference": "ABC-12345",
        "channel": "web",
        "quantity": 2,
        "price": 6.25,
        "gift": False,
        "notes": ["by the door", "†input.note"],
        "address": {"street": "Main street 5", "city": "†input.city", "country": "GB"},
        "previous": f"†state.booking{link - 1}" if link else None,
    }


def _bookings() -> Json:
    booked = _BOOKING["properties"]["_output"]  # type: ignore[index]  # a schema of our own
    state = {"type": "object", "properties": {"known": {"type": "array"}}, "additionalProperties": booked}
    return {
        "context": [
            {"type": "input", "customer": "Ann", "note": "ring twice", "city": "London"},
            {"type": "state", "schema": state, "known": []},
        ],
        "solution": {"calls": [_booking(link) for link in range(_LINKS)]},
        "tools": {"book": _BOOKING},
    }


def _chain_of_five(calls: int) -> tuple[Json, Work]:
    """The engine alone, from the plan to the last result: the size is the number of calls, in chains of five."""
    plan = check_submission(_bookings())
    drive(plan, _BOOKED)

    def work() -> None:
        for _ in range(calls // _LINKS):
            drive(plan, _BOOKED)

    return None, work


def _writes_into(keys: int) -> tuple[Json, Work]:
    """A thousand results into a state that has a schema and so many keys; the engine's `finish` and the fold alone."""
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    state = {"type": "state", "schema": schema, "state": {f"old{n}": n for n in range(keys)}}
    plan = check_submission(_submission([_call(f"†state.k{n}", value=n) for n in range(_TIMES)], (state,)))
    (lane,) = plan.lanes.values()
    fold = plan.context.fold(None)
    fold.kinds()
    execution = Execution.of(plan, lane, fold)
    started = execution.decide(_DATE)

    def work() -> None:
        for decision in started:
            outcome = _outcome(execution, decision)
            for message in outcome.messages:
                fold.append(message, "a result")
            execution.record(outcome.index, outcome.status)

    return None, work


def _planning(shape: Callable[[int], Json]) -> Bench:
    """Validating, planning and readiness: from the submission to the first calls that can start."""

    def bench(number: int) -> tuple[Json, Work]:
        value = shape(number)
        _forget_parsed()

        def work() -> None:
            plan = check_submission(value)
            for name, lane in plan.lanes.items():
                fold = plan.context.fold(name)
                Execution.of(plan, lane, fold).decide(_DATE)

        return value, work

    return bench


def _driving(shape: Callable[[int], Json]) -> Bench:
    """The engine, from a plan to the end of its last call."""

    def bench(number: int) -> tuple[Json, Work]:
        value = shape(number)
        plan = check_submission(value)
        return value, lambda: drive(plan)

    return bench


def drive(plan: Plan, result: Json = None) -> None:
    """Carry out a plan to its end, each call with its parameter `value` as its result, or with this one."""
    for name, lane in plan.lanes.items():
        fold = plan.context.fold(name)
        execution = Execution.of(plan, lane, fold)
        while decisions := execution.decide(_DATE):
            for decision in decisions:
                outcome = _outcome(execution, decision, result)
                for message in outcome.messages:
                    fold.append(message, "a result")
                execution.record(outcome.index, outcome.status)
        assert execution.is_finished


def _outcome(execution: Execution, decision: Decision, result: Json = None) -> Outcome:
    """What becomes of a call that returns this, or else its parameter `value` where that is a scalar."""
    if isinstance(decision, Outcome):
        return decision
    value = result if result is not None else decision.parameters["value"]
    returned = None if result is None and isinstance(value, (dict, list)) else value
    outcome = execution.finish(decision.call.index, Success(returned), _DATE)
    assert outcome.error is None, outcome.error
    return outcome


BENCHES: Final[tuple[tuple[str, tuple[int, ...], str, Bench], ...]] = (
    ("1,000 readings of a path, by messages in the log", READS, "flat", _warm_read),
    ("1,000 x one more message and a reading, by messages", READS, "flat", _warm_append),
    ("the same in an instance over that log, by messages", READS, "flat", _warm_instance),
    ("chain of five with schemas, by calls", (1_000,), "", _chain_of_five),
    ("1,000 writes into a state with a schema, by its keys", (1_000, 4_000, 16_000), "flat", _writes_into),
    ("cold fold: one path over and over", LOGS, "linear", _cold(_overwritten_log)),
    ("cold fold: keys of one wide object", LOGS, "linear", _cold(_wide_log)),
    ("cold fold: keys below 5,000 objects", LOGS, "linear", _cold(_below_log)),
    ("cold fold: push onto one list", LOGS, "linear", _cold(_push_log)),
    ("cold fold: concat of one text", LOGS, "linear", _cold(_concat_log)),
    ("cold fold: two texts and a counter in turns", LOGS, "linear", _cold(_two_texts_log)),
    ("cold fold: deep merges", LOGS, "linear", _cold(_merge_log)),
    ("instances over 1 MB of global input, wide", (20, 200, 2_000), "linear", _overlay(_LARGE_WIDE)),
    ("instances over 1 MB of global input, nested", (20, 200, 2_000), "linear", _overlay(_LARGE_DEEP)),
    ("an instance and globals in turns, other kind", DECADES, "linear", _globals_between("data")),
    ("an instance and globals in turns, same kind", DECADES, "linear", _globals_between("state")),
    ("check + first decisions: chain", DECADES, "linear", _planning(chain)),
    ("check + first decisions: independent", DECADES, "linear", _planning(independent)),
    ("check + first decisions: all into one", DECADES, "linear", _planning(_fan_in)),
    ("check + first decisions: all read one input", DECADES, "linear", _planning(_shared_read)),
    ("check + first decisions: all read one result", DECADES, "linear", _planning(_one_written)),
    ("check + first decisions: read-modify-write", DECADES, "linear", _planning(_read_modify_write)),
    ("check + first decisions: if and else", DECADES, "linear", _planning(_branches)),
    ("check + first decisions: instances x 5 calls", DECADES, "linear", _planning(_instances)),
    ("to the end: chain", DECADES, "linear", _driving(chain)),
    ("to the end: independent", DECADES, "linear", _driving(independent)),
    ("to the end: all into one", DECADES, "linear", _driving(_fan_in)),
    ("to the end: all read one result", DECADES, "linear", _driving(_one_written)),
    ("to the end: read-modify-write", DECADES, "linear", _driving(_read_modify_write)),
    ("to the end: if and else", DECADES, "linear", _driving(_branches)),
    ("to the end: concat of one text", DECADES, "linear", _driving(_texts)),
    ("to the end: instances x 5 calls", DECADES, "linear", _driving(_instances)),
)
