"""What a run has come to, folded from its log: the shape that `acts run --json` prints."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from html import escape
from types import MappingProxyType
from typing import Any, Final, Generic, Literal, TypeVar, cast

from redis import Redis
from redis.client import Pipeline

from ...protocol.engine.costs import Cost
from ...protocol.engine.loop import Loop, Stage, Tick
from ...protocol.engine.outcomes import holds_references, output_fault, resolve_output
from ...protocol.paths import MISSING
from ...protocol.state.fold import Fold
from .. import limits
from ..broker.attempts import CallId
from ..errors import NotHeld, OtherFormat, OutputUnfit, RunNotFound
from ..store.definition import Definition, require_format, unpack_definition
from ..store.entries import LOOP, Entry, id_key
from ..store.held_calls import HeldCall, read_held
from ..store.keys import ENDED_STATUSES, Condition, Keys, is_at_work
from ..store.log import History, missing
from ..store.run_list import PARENT, Parent, RunStore
from ..store.scripts import Code, codes_of, read_codes
from ..store.state import RunState
from ..store.waiting import read_unanswered, read_waiting
from .call_results import Background, CallResult, LaneCalls, read_background, read_promised
from .progress import Progress
from .submitting import OutputT, collecting_seldom, output_type, typed

# What a notebook shows of a run's result: counts, failures first, values cut. Everything in it is escaped.

_URGENT: Final = ("failed", "held", "running", "waiting", "skipped")


def counted(statuses: Iterable[str]) -> str:
    """How many calls stand how: `2 done, 1 failed`."""
    return ", ".join(f"{count} {status}" for status, count in Counter(statuses).items())


def html(document: Mapping[str, Any]) -> str:
    """A result, from its document (`Result.to_dict`), as two tables: its calls, and what each instance has come to."""
    calls = sorted(
        document["calls"], key=lambda call: _URGENT.index(call["status"]) if call["status"] in _URGENT else len(_URGENT)
    )
    data = [("", document["global"]), *document["instances"].items()]
    output = [] if document["output"] is None else [f"<p>output: <code>{_shown(document['output'])}</code></p>"]
    why = [f"<p>{escape(document['reason'])}</p>"] if "reason" in document else []
    head = f"<b>{escape(document['status'])}</b> {escape(counted(call['status'] for call in calls))}"
    return "".join(
        [
            f"<p>{head} <small>{escape(document['run'])}</small></p>",
            *why,
            *output,
            _table(
                ("call", "tool", "instance", "status", ""),
                [
                    (
                        call["index"],
                        call["tool"],
                        call["instance"] or "",
                        call["status"],
                        call["reason"] or call["error"],
                    )
                    for call in calls
                ],
            ),
            _table(("instance", "data"), [(name, values) for name, values in data if values]),
        ]
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    more = len(rows) - limits.MOST_ROWS
    left_out = f"<p>and {more} more</p>" if more > 0 else ""
    lines = (_row("td", map(_shown, row)) for row in rows[: limits.MOST_ROWS])
    return f"<table>{_row('th', heads)}{''.join(lines)}</table>{left_out}" if rows else ""


def _row(cell: str, values: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{cell}>{value}</{cell}>" for value in values) + "</tr>"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else "" if value in (None, {}) else json.dumps(value, ensure_ascii=False)
    return escape(text if len(text) <= limits.MOST_CHARACTERS else f"{text[: limits.MOST_CHARACTERS]}…")


# A status for each instance, computed from its calls (SPEC R11.8).

_UNDER_WAY: Final = frozenset({"waiting", "running", "held"})
"""The statuses of calls that have not ended."""


DELETED: Final = "deleted"
"""The status of an instance whose data was deleted (see `deleting`)."""


def deleted_instances(field: str | bytes | None) -> list[str]:
    """The instances of a run that were deleted, by the field `deleted` of its state."""
    found: list[str] = json.loads(field) if field is not None else []
    return found


def instance_statuses(
    instances: Iterable[str], calls: Iterable[CallResult], status: str, stopped: str | None
) -> dict[str, str]:
    """How each instance stands in a run of this status.

    `stopped` is the reason of calls that had not ended when the run was: their instances are `cancelled`, or
    `failed` where a limit has ended the run. What failed in the ticks of a loop counts no more once its output was
    accepted.
    """
    seen: dict[str | None, set[str]] = {instance: set() for instance in instances}
    for call in calls:
        is_stopped = stopped is not None and call.status in ("skipped", "failed") and call.reason == stopped
        seen.setdefault(call.instance, set()).add("stopped" if is_stopped else call.status)
    return {instance: instance_status(seen[instance], status) for instance in instances}


def instance_status(calls: Set[str], run: str) -> str:
    """That of an instance whose calls have these statuses, in a run of this one; `stopped` are those that had not ended
    when the run was.
    """
    if "stopped" in calls and run == "cancelled":
        return "cancelled"
    if calls.isdisjoint(_UNDER_WAY):
        return "failed" if "stopped" in calls or ("failed" in calls and run != "completed") else "completed"
    if run == "paused":
        return "paused"
    return "held" if "held" in calls and "running" not in calls else "running"


# The child runs below a run: which there are, and what in them waits for a person (SPEC R9.3, R14.1).


class Descendants:
    """The child runs that calls of a run wait for, and those below them. All of it raises `RedisError`."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys

    def held(self) -> Iterator[HeldCall]:
        """Their calls that wait for a person."""
        for keys in self._holding():
            with suppress(RunNotFound):  # it was deleted meanwhile
                yield from read_held(self._redis, keys)

    def count_held(self) -> int:
        """How many calls that is."""
        return sum(self._holding().values())

    def split(self, call: str | int) -> tuple[str | None, str | int]:
        """The child run that the id of a held call names, and the call's id there; None for a call of the run itself.

        Raises `NotHeld` where the run that is named is none of them.
        """
        run, slash, own = str(call).partition("/")
        if not slash or ":" in run:  # an instance may have a slash in its name
            return None, call
        above: str | None = run
        while above is not None and above != self._keys.run:
            parent = RunStore(self._redis, self._of(above)).parent()
            above = parent.call.run if parent is not None else None
        if above is None or run == self._keys.run:
            raise NotHeld(f"run {run} is no child run of {self._keys.run}: see `acts held` for what waits for a person")
        return run, own

    def _holding(self) -> dict[Keys, int]:
        """Those with calls that wait for a person, and how many; of one depth the older ones first."""
        found: dict[Keys, int] = {}
        level = [self._keys]
        while level:
            with self._redis.pipeline(transaction=False) as pipeline:
                for keys in level:
                    pipeline.smembers(keys.children)
                    pipeline.zcard(keys.held)
                answers: list[Any] = pipeline.execute()
            found |= {keys: held for keys, held in zip(level, answers[1::2], strict=True) if held}
            level = [self._of(run.decode()) for children in answers[::2] for run in sorted(children)]
        found.pop(self._keys, None)
        return found

    def _of(self, run: str) -> Keys:
        return Keys(self._keys.prefix, run)


# The status of a run, and its calls counted by theirs: what `acts status` shows (SPEC R11.1).

RunStatus = Literal["running", "paused", "completed", "failed", "cancelled", "foreign"]
"""The statuses of a run."""
FOREIGN: Final = "foreign"
"""The status of a run that another version wrote down, in a format that this one does not read (SPEC R11.1)."""
_FOREIGN_WAITS: Final = (
    "another version wrote it down: start workers of that version (`acts doctor` says who is there), or delete it "
    "(`acts delete {} --foreign`)"
)
_LEFT: Final = frozenset({"held", "running", "waiting"})
_ASKING: Final = (Stage.ASKED, Stage.OPEN)
"""The stages in which a model is asked."""


def run_status(text: str) -> RunStatus:
    """The status of this text, which the log has."""
    return cast(RunStatus, text)


def read_state(redis: Redis, keys: Keys) -> dict[str, str]:
    """A run's state. Raises `RunNotFound`, `OtherFormat`, `RedisError`."""
    state: Any = redis.hgetall(keys.state)
    if not state:
        raise RunNotFound(keys.run)
    require_format(int(state[b"format"]))
    return {key.decode(): value.decode() for key, value in state.items()}


def status_of(redis: Redis, keys: Keys) -> dict[str, Any]:
    """What `Run.status` says. Raises `RunNotFound`, `RedisError`."""
    try:
        state = read_state(redis, keys)
    except OtherFormat:
        waits = {"call": None, "for": "version", "reason": _FOREIGN_WAITS.format(keys.run)}
        return {"run": keys.run, "status": FOREIGN, "calls": {}, "waiting_for": [waits]}
    is_cut = _is_cut_short(state)
    held: Any = 0 if is_cut else redis.zcard(keys.held)
    asking = not is_cut and _is_asking(redis, keys, state)
    counts = counts_of(state, held=held, asking=asking)
    below = Descendants(redis, keys).count_held() if "running" in counts else 0
    told: dict[str, Any] = {"run": keys.run, "status": state["status"], "calls": counts}
    if below:
        told["held_below"] = below
    if "sent" in state and (background := read_background(redis, keys)) is not None:
        told["background"] = background.to_dict()
    if state["status"] not in ENDED_STATUSES:
        waiting = [*read_waiting(redis, keys), *(read_promised(redis, keys, state) if counts.keys() & _LEFT else ())]
        told |= {"waiting_for": [one.to_dict() for one in waiting]} if waiting else {}
    if state["status"] not in ENDED_STATUSES and (unanswered := read_unanswered(redis, keys)):
        told["unanswered"] = [asdict(one) for one in unanswered]
    if (parent := Parent.read(state.get(PARENT))) is not None:
        told["parent"] = {"run": parent.call.run, "call": parent.call.name}
    if "forked_from" in state:
        told["forked_from"] = {"run": state["forked_from"], "at": state["forked_at"]}
    return told


def counts_of(state: Mapping[str, str], *, held: int = 0, asking: int = 0) -> dict[str, int]:
    """The calls of a run counted by their statuses, from its state: so many are held, which count as waiting where that
    is not said; `asking` are at work and no calls.
    """
    counts = Counter({key[2:]: int(value) for key, value in state.items() if key.startswith("n:")})
    left = int(state["total"]) - counts.total()
    if _is_cut_short(state):
        begun = int(state.get("running", 0)) + int(state.get("between", 0)) - (_stage(state) in _ASKING)
        begun = min(left, max(0, begun))
        counts["failed"] += begun
        counts["skipped"] += left - begun
    else:
        counts["held"] = held
        counts["running"] = int(state.get("running", 0)) - asking
        counts["waiting"] = max(0, left - counts["running"] - held)
    return {status: number for status, number in counts.items() if number}


def has_begun_calls(state: Mapping[str, str]) -> bool:
    """Whether there may be calls of a run, by its state, that have begun and not ended."""
    return int(state.get("running", 0)) > 0 or int(state.get("between", 0)) > 0


def _is_cut_short(state: Mapping[str, str]) -> bool:
    """Whether the run was ended as it stood: what had not begun in it counts as skipped, what had begun as failed."""
    return state["status"] == "cancelled" or "exceeded" in state


def status_in(result: Result, *, instances: bool) -> dict[str, Any]:
    """The same, as a result has it; with `instances` also how each stands, where it has some."""
    calls = dict(Counter(call.status for call in result.calls))
    told = {"run": result.run, "status": result.status, "calls": calls}
    return told | ({"instance_status": dict(result.instance_status)} if instances and result.instances else {})


def has_few_instances(redis: Redis, keys: Keys) -> bool:
    """Whether a run has instances, and few enough to read its whole log for how they stand. Raises `RedisError`."""
    number: Any = redis.llen(keys.instances)
    return 0 < int(number) <= limits.RESULTS_MOST_INSTANCES


def _stage(state: Mapping[str, str]) -> str:
    """The stage of the run's loop; nothing where it has none."""
    return state.get("loop", "").partition(":")[0]


def _is_asking(redis: Redis, keys: Keys, state: Mapping[str, str]) -> bool:
    """Whether a model is being asked, which is no call of the run."""
    stage, tick = _stage(state), state.get("loop", "").partition(":")[2]
    if stage not in _ASKING:
        return False
    entry: Any = redis.hget(keys.calls, CallId(keys.run, LOOP, int(tick)).member)
    return is_at_work(entry)


T = TypeVar("T")
_NONE: Final[Mapping[Any, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TickResult:
    """The result of one tick of a loop (SPEC R13.5)."""

    tick: int
    model: str | None = None
    usage: Mapping[str, Any] | None = None
    calls: tuple[int, ...] = ()
    """The indexes of the calls that it brought."""
    errors: int = 0
    set_aside: str | None = None
    """Why its output was not accepted."""
    cost: Cost | None = None
    """What its requests have cost (SPEC R13.12)."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON; `set_aside` is there only where there is a reason."""
        return {
            "tick": self.tick,
            "model": self.model,
            "usage": dict(self.usage) if self.usage is not None else None,
            "calls": list(self.calls),
            "errors": self.errors,
            **({"cost": self.cost.to_dict()} if self.cost is not None else {}),
            **({"set_aside": self.set_aside} if self.set_aside is not None else {}),
        }


@dataclass(frozen=True, repr=False)
class Result(Generic[OutputT]):
    """A run's status, values and calls at some moment. `output` is a value of the class that was submitted as the
    schema (`OutputT`), else JSON; None where the run has not completed.
    """

    run: str
    status: RunStatus
    output: OutputT
    global_data: Mapping[str, Any]
    instances: Mapping[str, Mapping[str, Any]]
    calls: Sequence[CallResult]
    instance_status: Mapping[str, str] = field(default_factory=dict)
    """How each instance stands (SPEC R11.8): completed, failed, running, held, paused or cancelled."""
    conflicts: Sequence[str] = field(default=())
    """Operations that could not be applied (SPEC R3.4), as text."""
    reason: str | None = None
    """Why the run has failed although no call did: its output cannot be read (SPEC R4.9), what was promised has not
    come (SPEC R11.6), or its loop has reached a limit (SPEC R13.3).
    """
    ticks: Sequence[TickResult] | None = None
    """The ticks of its loop that were answered, where it is a request."""
    cost: Cost | None = None
    """What asking models has cost in all, by its loop, its calls and their child runs (SPEC R13.12)."""
    background: Background | None = None
    """How what it has sent and not awaited stands (SPEC R5.1); None where that is nothing, or at a past moment."""
    plain_output: Any = MISSING
    """The output as JSON, where `output` is an object of the class that was submitted as the schema."""

    def data(self, instance: str | None = None) -> Mapping[str, Any]:
        """Kind to folded value, as a reader in the instance (or a global one) sees it. Raises `KeyError`."""
        return self.global_data if instance is None else self.instances[instance]

    def output_as(self, kind: type[T]) -> T:
        """The output of a completed run as a value of a type that pydantic has a schema of, whoever submitted it and
        with whichever schema. Raises `OutputUnfit`.
        """
        plain = self.output if self.plain_output is MISSING else self.plain_output
        if self.status != "completed":
            raise OutputUnfit(f"run {self.run} is {self.status}: it has no output")
        found: T = typed(replace(self, output=plain), output_type(kind)).output
        return found

    def __repr__(self) -> str:
        return f"<Result of {self.run}: {self.status}, {counted(call.status for call in self.calls) or 'no calls'}>"

    def _repr_html_(self) -> str:
        return html(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """The shape of `acts run --json`; `ticks`, `cost`, `background`, `conflicts` and `reason` are there only where
        there are any.
        """
        ticks = {"ticks": [tick.to_dict() for tick in self.ticks]} if self.ticks is not None else {}
        background = {"background": self.background.to_dict()} if self.background is not None else {}
        conflicts = {"conflicts": list(self.conflicts)} if self.conflicts else {}
        reason = {"reason": self.reason} if self.reason is not None else {}
        return {
            "run": self.run,
            "status": self.status,
            "output": self.output if self.plain_output is MISSING else self.plain_output,
            "global": dict(self.global_data),
            "instances": {instance: dict(data) for instance, data in self.instances.items()},
            "instance_status": dict(self.instance_status),
            "calls": [call.to_dict() for call in self.calls],
            **ticks,
            **({"cost": self.cost.to_dict()} if self.cost is not None else {}),
            **background,
            **conflicts,
            **reason,
        }


class Assembly:
    """A result in the making: it is fed with a run's log, now or as of a past id, and keeps no entry.

    What was under way at a past moment is not in the log: such calls count as waiting. Those that were when the run was
    ended are known for good.
    """

    def __init__(self, run: str, definition: Definition, instances: Iterable[str], *, at: str | None = None) -> None:
        self._run = run
        self._state = RunState(definition, instances, at=at)
        self._codes: Mapping[int, Code] = {}

    def feed(self, entries: Iterable[Entry], codes: Mapping[int, Code]) -> None:
        """Take in entries, the next ones; `codes` say who has carried calls out, by number."""
        self._state.feed(entries)
        self._codes = codes

    def result(
        self, status: RunStatus, at_work: Mapping[tuple[str | None, int], Condition] = _NONE, *, waits: bool = False
    ) -> Result:
        """The result, where the run has this status and these calls, by instance and index, are at work, each in that
        condition. With `waits` it says for how long calls waited for a worker.
        """
        run, definition = self._state, self._state.definition
        shared = run.shared.fold
        folds = {instance: lane.fold for instance, lane in run.lanes.items()}
        conflicts = [str(conflict) for fold in folds.values() for conflict in fold.conflicts()]
        output, reason = _output(definition, status, shared)
        if run.loop is not None and (end := run.loop.ended) is not None:
            output, reason = end.output, end.reason
        if run.missed and status in ("completed", "failed"):
            seconds = definition.config["promise_seconds"]
            reason = f"{', '.join(run.missed)}: promised, and not there within {seconds:g} s"
        reason = run.exceeded or reason
        found = LaneCalls(run, self._codes, status, at_work, waits=waits)
        calls = sorted((call for lane in run.lanes for call in found.of(lane)), key=lambda call: call.index)
        instances = {instance: fold.snapshot() for instance, fold in folds.items() if instance is not None}
        return Result(
            run=self._run,
            status="failed" if reason is not None else status,
            output=output,
            reason=reason,
            global_data=shared.snapshot(),
            instances=instances,
            calls=calls,
            instance_status=instance_statuses(instances, calls, status, found.stop_reason),
            conflicts=tuple(dict.fromkeys(conflicts)),
            ticks=_ticks(run.loop, calls) if run.loop is not None else None,
            cost=_cost(run, status),
        )


def _cost(run: RunState, status: str) -> Cost | None:
    """What asking models has cost in all. One that was under way when the run ended counts as it was estimated."""
    if (loop := run.loop) is not None:
        return loop.cost + loop.open_cost if status in ENDED_STATUSES else loop.cost
    costs = [Cost.read(call.cost) for lane in run.lanes.values() for call in lane.calls.values() if call.cost]
    return sum(costs, Cost()) if costs else None


def _ticks(loop: Loop, calls: Iterable[CallResult]) -> tuple[TickResult, ...]:
    """The ticks that were answered."""
    brought = defaultdict[int | None, list[int]](list)
    for call in calls:
        brought[call.tick].append(call.index)
    answered = (tick for tick in loop.ticks if tick.solution is not None)
    return tuple(_tick_result(tick, dict.fromkeys(brought[tick.number])) for tick in answered)


def _tick_result(tick: Tick, calls: Iterable[int]) -> TickResult:
    assert tick.solution is not None
    paid = {key: tick.solution[key] for key in ("model", "usage")} | {"cost": tick.cost}
    return TickResult(tick.number, **paid, calls=tuple(calls), errors=tick.errors, set_aside=tick.set_aside)


def _output(definition: Definition, status: str, fold: Fold) -> tuple[Any, str | None]:
    """The output with its references read when all calls have ended, and what stands against it (SPEC R4.9)."""
    output = definition.output
    if status not in ("completed", "failed"):
        return (None if holds_references(output) else output), None
    reason = output_fault(output, fold, definition.schema)
    return (resolve_output(output, fold) if reason is None else None), reason


@collecting_seldom()
def read_result(redis: Redis, keys: Keys, progress: Progress, *, at: str | None, waits: bool) -> Result:
    """What `Run.result` says. Raises `RunNotFound`, `RunBroken`, `RedisError`."""
    history = History(redis, keys)
    with redis.pipeline(transaction=False) as pipeline:
        _ask(pipeline, keys, history)
        (status, running, between, sent, deleted), definition, instances, page, codes = pipeline.execute()
    if status is None or definition is None:
        raise missing(redis, keys)
    assembly = Assembly(keys.run, unpack_definition(definition), history.instances(instances), at=at)
    at_work: Mapping[tuple[str | None, int], Condition] = {}
    is_over = status.decode() in ENDED_STATUSES
    if (int(running or 0) or int(between or 0)) and (at is None or is_over):
        at_work, page = history.at_work(is_over=is_over), None  # what ends meanwhile is in the log then
    until = max(at, progress.submitted(), key=id_key) if at is not None else "+"
    assembly.feed(history.entries(until=until, first=page if at is None else None), codes_of(codes))
    if not is_over:
        assembly.feed((), read_codes(redis, keys))  # those of what has ended meanwhile
    if at is not None:
        then = run_status(progress.status_at(at))
        return assembly.result(then, at_work if then in ENDED_STATUSES else {}, waits=waits)
    result = assembly.result(run_status(status.decode()), at_work, waits=waits)
    result = _with_deleted(result, deleted)
    return _with_background(result, redis, keys) if sent is not None else result


def _with_deleted(result: Result, deleted: bytes | None) -> Result:
    """The result with the instances that were deleted, by that field of the state."""
    gone = dict.fromkeys(deleted_instances(deleted), DELETED)
    return replace(result, instance_status={**result.instance_status, **gone}) if gone else result


def _with_background(result: Result, redis: Redis, keys: Keys) -> Result:
    return replace(result, background=read_background(redis, keys))


def read_end(redis: Redis, keys: Keys, since: str, block_ms: int) -> Result | None:
    """The result of a run that ends with the change of its status behind an id, or has ended; None where that has not
    come in time, or goes on. Raises `RedisError`.
    """
    history = History(redis, keys)
    with redis.pipeline(transaction=False) as pipeline:
        pipeline.xread({keys.statuses: since}, block=block_ms, count=1)
        _ask(pipeline, keys, history)
        _, (status, running, between, sent, _deleted), definition, instances, page, codes = pipeline.execute()
    if definition is None or status is None or not page or status.decode() not in ENDED_STATUSES:
        return None
    if int(running or 0) or int(between or 0):
        return None
    with collecting_seldom():
        assembly = Assembly(keys.run, unpack_definition(definition), history.instances(instances))
        assembly.feed(history.entries(first=page), codes_of(codes))
        result = assembly.result(run_status(status.decode()))
    return _with_background(result, redis, keys) if sent is not None else result


def _ask(pipeline: Pipeline, keys: Keys, history: History) -> None:
    pipeline.hmget(keys.state, "status", "running", "between", "sent", "deleted")
    pipeline.get(keys.definition)
    history.ask_first(pipeline)
    pipeline.hgetall(keys.codes)
