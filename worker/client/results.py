"""What a run has come to, folded from its log: the shape that `acts run --json` prints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from redis import Redis
from redis.client import Pipeline

from acts_celery.protocol.engine.costs import Cost
from acts_celery.protocol.engine.loop import Loop, Tick
from acts_celery.protocol.engine.solution_output import holds_references, output_fault, resolve_output
from acts_celery.protocol.language.paths import MISSING
from acts_celery.protocol.state.fold import Fold
from acts_celery.worker.errors import OutputUnfit
from acts_celery.worker.storage.codes import Code, codes_of, read_codes
from acts_celery.worker.storage.condition import Condition
from acts_celery.worker.storage.definition import Definition, unpack_definition
from acts_celery.worker.storage.entries import Entry, id_key
from acts_celery.worker.storage.history import History, missing
from acts_celery.worker.storage.keys import ENDED, Keys
from acts_celery.worker.storage.run_state import RunState

from .background import Background, read_background
from .call_results import CallResult, LaneCalls
from .collecting import collecting_seldom
from .display import counted, html
from .instance_status import DELETED, deleted_instances, instance_statuses
from .output_types import OutputT, output_type, typed
from .progress import Progress
from .run_status import RunStatus, run_status

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
        return loop.cost + loop.open_cost if status in ENDED else loop.cost
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
    is_over = status.decode() in ENDED
    if (int(running or 0) or int(between or 0)) and (at is None or is_over):
        at_work, page = history.at_work(is_over=is_over), None  # what ends meanwhile is in the log then
    until = max(at, progress.submitted(), key=id_key) if at is not None else "+"
    assembly.feed(history.entries(until=until, first=page if at is None else None), codes_of(codes))
    if not is_over:
        assembly.feed((), read_codes(redis, keys))  # those of what has ended meanwhile
    if at is not None:
        then = run_status(progress.status_at(at))
        return assembly.result(then, at_work if then in ENDED else {}, waits=waits)
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
    if definition is None or status is None or not page or status.decode() not in ENDED:
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
