"""The result of a run, folded from its log: the shape that `acts run --json` prints."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from html import escape
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, Generic, Literal, TypeVar, cast

from ...protocol.engine.costs import Cost
from ...protocol.engine.loop import Loop, Stage, Tick
from ...protocol.engine.outcomes import holds_references, output_fault, resolve_output
from ...protocol.errors import Speller, some_of
from ...protocol.paths import MISSING
from ...protocol.plan.config import is_simulation
from ...protocol.references import DAGGER, Reference
from ...protocol.state.fold import Fold
from .. import limits
from ..broker.attempts import CallId
from ..errors import (
    InstanceDeleted,
    InstanceNotFound,
    NotHeld,
    OtherFormat,
    OutputUnfit,
    RunFailed,
    RunNotFound,
    ValueNotFound,
)
from ..store.definition import StoredPlan, unpack_definition
from ..store.entries import Entry, id_key
from ..store.held_calls import HeldCall, read_held
from ..store.keys import ENDED_STATUSES, LOOP, SCHEDULED, Condition
from ..store.run_list import PARENT, Parent, RunList
from ..store.run_store import Background, FirstRead, RunStore
from ..store.scripts import ExecutedBy, iso_date
from ..store.state import RunState
from ..store.waiting import read_progress_of, read_unanswered, read_waiting
from .call_results import CallResult, LaneCalls, present
from .submitting import OutputT, collecting_seldom, output_type, typed
from .tables import Table, place_of, table_of, value_at

# What a notebook shows of a run's result: counts, failures first, values cut. Everything in it is escaped.

_URGENT: Final = ("failed", "unknown", "held", "running", "waiting", "skipped")


def counted(statuses: Iterable[str]) -> str:
    """Count statuses in words: `2 done, 1 failed`."""
    return ", ".join(f"{count} {status}" for status, count in Counter(statuses).items())


def html(document: Mapping[str, Any]) -> str:
    """Write a result (`Result.to_dict`) as two tables in HTML: its calls, and the data of each instance."""
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

_UNDER_WAY: Final = frozenset({"waiting", "running", "held", "unknown"})
"""The statuses of calls that have not ended."""


DELETED: Final = "deleted"
"""The status of an instance whose data was deleted (see `deleting`)."""


def deleted_instances(field: str | None) -> list[str]:
    """Read the instances of a run that were deleted from the field `deleted` of its state."""
    found: list[str] = json.loads(field) if field is not None else []
    return found


def instance_statuses(
    instances: Iterable[str], calls: Iterable[CallResult], status: str, stopped: str | None
) -> dict[str, str]:
    """Work out the status of each instance of a run that has this status.

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
    """Work out the status of an instance from those of its calls and of its run; `stopped` is the status of calls that
    had not ended when the run was.
    """
    if "stopped" in calls and run == "cancelled":
        return "cancelled"
    if calls.isdisjoint(_UNDER_WAY):
        return "failed" if "stopped" in calls or ("failed" in calls and run != "completed") else "completed"
    if run in ("paused", SCHEDULED):
        return run
    waits = not calls.isdisjoint({"held", "unknown"})
    return "held" if waits and "running" not in calls else "running"


# The child runs below a run: which there are, and what in them waits for a person (SPEC R9.3, R14.1).


class Descendants:
    """The child runs that calls of a run wait for, and those below them. Every method raises `RedisError`."""

    def __init__(self, store: RunStore) -> None:
        self._store = store

    def held(self) -> Iterator[HeldCall]:
        """Read their calls that wait for a person."""
        for run in self._holding():
            with suppress(RunNotFound):  # it was deleted meanwhile
                yield from read_held(self._store.redis, self._store.other(run).keys)

    def count_held(self) -> int:
        """Count their calls that wait for a person."""
        return sum(self._holding().values())

    def split(self, call: str | int) -> tuple[str | None, str | int]:
        """The child run that the id of a held call names, and the call's id there; None for a call of the run itself.

        Raises `NotHeld` where the run that is named is none of them.
        """
        run, slash, own = str(call).partition("/")
        if not slash or ":" in run:  # an instance may have a slash in its name
            return None, call
        above: str | None = run
        while above is not None and above != self._store.run:
            parent = self._store.other(above).parent()
            above = parent.call.run if parent is not None else None
        if above is None or run == self._store.run:
            raise NotHeld(
                f"run {run} is no child run of {self._store.run}: see `acts held` for what waits for a person"
            )
        return run, own

    def _holding(self) -> dict[str, int]:
        return RunList(self._store.redis, self._store.keys.prefix).held_below(self._store.run)


# The status of a run, and its calls counted by theirs: what `acts status` shows (SPEC R11.1).

RunStatus = Literal["scheduled", "running", "paused", "completed", "failed", "cancelled", "foreign"]
"""The statuses of a run."""
FOREIGN: Final = "foreign"
"""The status of a run that another version wrote down, in a format that this one does not read (SPEC R11.1)."""
_FOREIGN_WAITS: Final = (
    "another version wrote it down: start workers of that version (`acts doctor` says who is there), or delete it "
    "(`acts delete {} --foreign`)"
)
_ASKING: Final = (Stage.ASKED, Stage.OPEN)
"""The stages in which a model is asked."""


def run_status(text: str) -> RunStatus:
    """The status of this text, which the log has."""
    return cast(RunStatus, text)


def status_of(store: RunStore) -> dict[str, Any]:
    """The answer of `Run.status`. Raises `RunNotFound`, `RedisError`."""
    run = store.run
    try:
        state = store.require_state()
    except OtherFormat:
        waits = {"call": None, "for": "version", "reason": _FOREIGN_WAITS.format(run)}
        return {"run": run, "status": FOREIGN, "calls": {}, "waiting_for": [waits]}
    is_cut = is_cut_short(state)
    asking = not is_cut and _is_asking(store, state)
    counts = counts_of(state, held=0 if is_cut else store.count_held(), asking=asking)
    status: dict[str, Any] = {"run": run, "status": state["status"], "calls": counts}
    if "running" in counts and (below := Descendants(store).count_held()):
        status["held_below"] = below
    if "sent" in state and (background := store.background()) is not None:
        status["background"] = background.to_dict()
    if state["status"] not in ENDED_STATUSES:
        if waiting := read_waiting(store):
            status["waiting_for"] = [one.to_dict() for one in waiting]
        if unanswered := read_unanswered(store):
            status["unanswered"] = unanswered
        if reported := read_progress_of(store):
            status["progress"] = reported
    if rules := sum(name.startswith("rule:") for name in state):
        status["rules"] = rules
    if (parent := Parent.read(state.get(PARENT))) is not None:
        status["parent"] = {"run": parent.call.run, "call": parent.call.name}
    if "contracts" in state:
        status["contracts"] = state["contracts"]
    if state["status"] == SCHEDULED:
        status["at"] = iso_date(int(state["at"]))
    if "priority" in state:
        status["priority"] = int(state["priority"])
    if "simulation" in state:
        status["simulation"] = True
    if "forked_from" in state:
        status["forked_from"] = {"run": state["forked_from"], "at": state["forked_at"]}
    return status


def counts_of(state: Mapping[str, str], *, held: int = 0, asking: int = 0) -> dict[str, int]:
    """Count the calls of a run by status, from its state. `held` counts what waits for a person, also elements of calls
    and calls whose end is not known; held calls count as waiting where no number is passed. `asking` counts
    requests to models, which are at work and no calls.
    """
    counts = Counter({key[2:]: int(value) for key, value in state.items() if key.startswith("n:")})
    left = int(state["total"]) - counts.total()
    unknown = int(state.get("unknown", 0))
    if is_cut_short(state):
        begun = int(state.get("running", 0)) + int(state.get("between", 0)) - (_stage(state) in _ASKING) + unknown
        begun = min(left, max(0, begun))
        counts["failed"] += begun
        counts["skipped"] += left - begun
    else:
        counts["unknown"] = unknown
        counts["held"] = max(0, held - unknown - int(state.get("unknown:each", 0)))
        counts["running"] = int(state.get("running", 0)) - asking
        counts["waiting"] = max(0, left - counts["running"] - counts["held"] - unknown)
    return {status: number for status, number in counts.items() if number}


def is_cut_short(state: Mapping[str, str]) -> bool:
    """Whether the run was ended before its calls: those that had not begun count as skipped, the others as failed."""
    return state["status"] == "cancelled" or "exceeded" in state


def status_in(result: Result, *, instances: bool) -> dict[str, Any]:
    """The answer of `Run.status`, from a result; with `instances` also the status of each."""
    calls = dict(Counter(call.status for call in result.calls))
    status = {"run": result.run, "status": result.status, "calls": calls}
    return status | ({"instance_status": dict(result.instance_status)} if instances and result.instances else {})


def _stage(state: Mapping[str, str]) -> str:
    """The stage of the run's loop; nothing where it has none."""
    return state.get("loop", "").partition(":")[0]


def _is_asking(store: RunStore, state: Mapping[str, str]) -> bool:
    """Whether a model is being asked, which is no call of the run."""
    tick = state.get("loop", "").partition(":")[2]
    return _stage(state) in _ASKING and store.is_at_work(CallId(store.run, LOOP, int(tick)))


# What went wrong in a run, for the program that asked for its result.


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A call that has failed: which one, and its error."""

    index: int
    tool: str
    instance: str | None
    type: str
    message: str

    def __str__(self) -> str:
        return f"{self.tool}: {self.type}: {self.message}" if self.message else f"{self.tool}: {self.type}"

    def to_dict(self) -> dict[str, Any]:
        """Write the call and its error as JSON."""
        return asdict(self)


def completed(result: Result[OutputT]) -> Result[OutputT]:
    """The result of a run that has completed. Raises `RunFailed` for any other."""
    if result.status != "completed":
        raise failure(result)
    return result


def require_now(at: str | None, *, waits: bool) -> None:
    """Raise `TypeError` for a result of the past, or with waits, that is to be waited for."""
    if at is not None or waits:
        raise TypeError("result(timeout_seconds=…) waits for the end: give neither `at` nor `waits` with it")


def failure(result: Result) -> RunFailed:
    """Make the error of a run that has not completed: its first failures, alike ones together, and what shows more."""
    what = "was cancelled" if result.status == "cancelled" else result.status
    alike = defaultdict[tuple[int, str], list[str]](list)
    for error in result.errors:
        alike[error.index, str(error)].append(error.instance or "")
    told = [_told(index, text, names) for (index, text), names in islice(alike.items(), limits.FAILURES_TOLD)]
    if len(alike) > len(told):
        told.append(f"and {len(alike) - len(told)} more")
    why = "; ".join([*([result.reason] if result.reason is not None else []), *told])
    more = f"acts status {result.run} --failed" if told else f"acts show {result.run}"
    return RunFailed(f"run {result.run} {what}{f': {why}' if why else ''} (see `{more}`)", result)


def _told(index: int, text: str, instances: Sequence[str]) -> str:
    named = some_of([name for name in instances if name], limits.FAILURES_TOLD)
    where = f" of {named}" if named else ""
    return f"call {index}{where}, {text}"


class _Data(dict[str, Any]):
    """The values of each kind, as a reader sees them. A kind that is not there says why, as `Result.value` does."""

    def __init__(self, data: Mapping[str, Any], result: Result, instance: str | None) -> None:
        super().__init__(data)
        self._asked = result, instance

    def __missing__(self, kind: str) -> Any:
        result, instance = self._asked
        raise absent(result, Reference(str(kind)), instance)


def absent(result: Result, place: Reference, instance: str | None) -> ValueNotFound:
    """Make the error of a value that a result does not have, with why that is as far as the result tells."""
    where = f" for instance {instance!r}" if instance is not None else ""
    text = f"run {result.run} has no {place}{where}"
    if result.status not in ENDED_STATUSES:
        return ValueNotFound(f"{text}: it is {result.status}; run.result(timeout_seconds=…) waits for its end")
    if result.status != "completed":
        return ValueNotFound(f"{text}: {failure(result)}")
    having = [name for name, data in result.instances.items() if value_at(data, place) is not MISSING]
    if instance is None and having:
        some = some_of(having, limits.FAILURES_TOLD)
        return ValueNotFound(f'{text}, but its instances do ({some}): write instance="{having[0]}"')
    seen = result.data(instance)
    known = {f"{DAGGER}{kind}" for kind in seen}
    known |= {str(Reference(kind, (key,))) for kind, value in seen.items() if isinstance(value, dict) for key in value}
    hint = Speller().hint(str(place), known) or f": `acts explain {result.run} '{place}'` says why"
    return ValueNotFound(text + hint)


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
    """The cost of its requests (SPEC R13.12)."""

    def to_dict(self) -> dict[str, Any]:
        """Write the tick as JSON; `set_aside` is there only where there is a reason."""
        always = {
            "tick": self.tick,
            "model": self.model,
            "usage": dict(self.usage) if self.usage is not None else None,
            "calls": list(self.calls),
            "errors": self.errors,
        }
        cost = self.cost.to_dict() if self.cost is not None else None
        return always | present(cost=cost, set_aside=self.set_aside)


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
    """The status of each instance (SPEC R11.8): completed, failed, running, held, paused,
    scheduled or cancelled.
    """
    conflicts: Sequence[str] = field(default=())
    """Operations that could not be applied (SPEC R3.4), as text."""
    reason: str | None = None
    """Why the run has failed although no call did: its output cannot be read (SPEC R4.9), what was promised has not
    come (SPEC R11.6), or its loop has reached a limit (SPEC R13.3).
    """
    ticks: Sequence[TickResult] | None = None
    """The ticks of its loop that were answered, where it is a request."""
    cost: Cost | None = None
    """The total cost of asking models: its loop, its calls and their child runs (SPEC R13.12)."""
    background: Background | None = None
    """The calls that it has sent and not awaited (SPEC R5.1); None for no such calls, or at a past moment."""
    is_simulation: bool = False
    """Whether models have answered its calls, and no code has run (SPEC R12.10)."""
    plain_output: Any = MISSING
    """The output as JSON, where `output` is an object of the class that was submitted as the schema."""

    def data(self, instance: str | None = None) -> Mapping[str, Any]:
        """Kind to folded value, as a reader in the instance (or a global one) sees it. Raises `InstanceNotFound`; a
        kind that is not there raises `ValueNotFound` when it is read. Both are a `KeyError`, too.
        """
        if instance is not None and instance not in self.instances:
            if self.instance_status.get(instance) == DELETED:
                raise InstanceDeleted(self.run, instance)
            raise InstanceNotFound(self.run, instance, list(self.instances))
        return _Data(self.global_data if instance is None else self.instances[instance], self, instance)

    def value(self, path: str, *, instance: str | None = None) -> Any:
        """The value at a place (`"†state.greeting"`; the dagger may be left out), as a reader in the instance (or a
        global one) sees it. Raises `ValueNotFound`, which says why there is none; `InstanceNotFound`;
        `protocol.ExpressionError` where the path is not one place.
        """
        place = place_of(path)
        found = value_at(self.data(instance), place)
        if found is MISSING:
            raise absent(self, place, instance)
        return found

    def table(self, *paths: str) -> Table:
        """The values at some places as a list of dictionaries, one for each instance: `instance`, a column for each
        place, `status`, `error`. A column has the name of the place's last key, or of the whole place where two end
        alike; a value that is not there is None. `.to_csv(path)` writes the table; pandas and polars take it as it is.

        A run without instances has one row, of what is global. Raises `protocol.ExpressionError`.
        """
        return table_of(self, paths)

    @property
    def errors(self) -> tuple[FailedCall, ...]:
        """The calls that have failed, in the order of `calls`, but for those whose error went to an alternative."""
        return tuple(
            FailedCall(
                call.index, call.tool, call.instance, str(call.error.get("type")), str(call.error.get("message", ""))
            )
            for call in self.calls
            if call.status == "failed" and call.error is not None
        )

    def output_as(self, kind: type[T]) -> T:
        """The output of a completed run as a value of a type that pydantic has a schema of, whatever schema it was
        submitted with. Raises `OutputUnfit`.
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
        always = {
            "run": self.run,
            "status": self.status,
            "output": self.output if self.plain_output is MISSING else self.plain_output,
            "global": dict(self.global_data),
            "instances": {instance: dict(data) for instance, data in self.instances.items()},
            "instance_status": dict(self.instance_status),
            "calls": [call.to_dict() for call in self.calls],
        }
        return always | present(
            ticks=[tick.to_dict() for tick in self.ticks] if self.ticks is not None else None,
            cost=self.cost.to_dict() if self.cost is not None else None,
            background=self.background.to_dict() if self.background is not None else None,
            conflicts=list(self.conflicts) or None,
            reason=self.reason,
            simulation=self.is_simulation or None,
        )


class Assembly:
    """A result in the making: fed with the log of a run, now or as of a past id, it keeps no entry.

    What was under way at a past moment is not in the log: such calls count as waiting. Those that were when the run was
    ended are known for good.
    """

    def __init__(self, run: str, definition: StoredPlan, instances: Iterable[str], *, at: str | None = None) -> None:
        self._run = run
        self._state = RunState(definition, instances, at=at)
        self._codes: Mapping[int, ExecutedBy] = {}

    def feed(self, entries: Iterable[Entry], codes: Mapping[int, ExecutedBy]) -> None:
        """Take in the next entries; `codes` are the workers that have run calls, by number."""
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
            is_simulation=is_simulation(definition.config),
        )


def _cost(run: RunState, status: str) -> Cost | None:
    """Add up what models have cost. A request that was under way when the run ended counts as it was estimated."""
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


def _output(definition: StoredPlan, status: str, fold: Fold) -> tuple[Any, str | None]:
    """The output, its references resolved when all calls have ended, and why it cannot be had (SPEC R4.9)."""
    output = definition.output
    if status not in ("completed", "failed"):
        return (None if holds_references(output) else output), None
    reason = output_fault(output, fold, definition.schema)
    return (resolve_output(output, fold) if reason is None else None), reason


@collecting_seldom()
def read_result(store: RunStore, *, at: str | None = None, waits: bool = False) -> Result:
    """The answer of `Run.result`. Raises `RunNotFound`, `RunBroken`, `RedisError`."""
    first = store.first_read()
    if first.status is None or first.definition is None:
        raise store.missing()
    assembly = Assembly(store.run, unpack_definition(first.definition), store.instances(first.instances), at=at)
    at_work: Mapping[tuple[str | None, int], Condition] = {}
    page, is_over = first.entries if at is None else None, first.status in ENDED_STATUSES
    if first.has_begun_calls and (at is None or is_over):
        at_work, page = store.at_work(is_over=is_over), None  # what ends meanwhile is in the log then
    until = "+"
    if at is not None:
        if (span := store.span()) is None:
            raise store.missing()
        until = max(at, span[0], key=id_key)
    assembly.feed(store.entries(until=until, first=page), first.codes)
    if not is_over:
        assembly.feed((), store.codes())  # those of what has ended meanwhile
    if at is not None:
        then = run_status(store.status_at(at))
        return assembly.result(then, at_work if then in ENDED_STATUSES else {}, waits=waits)
    return _completed(assembly.result(run_status(first.status), at_work, waits=waits), store, first)


def read_end(store: RunStore, since: str, block_ms: int) -> Result | None:
    """The result of a run that ends with the change of its status behind an id, or has ended; None where that has not
    come in time, or goes on. Raises `RedisError`.
    """
    first = store.first_read(after_status=since, block_ms=block_ms)
    if first.definition is None or not first.entries or first.status not in ENDED_STATUSES or first.has_begun_calls:
        return None
    with collecting_seldom():
        assembly = Assembly(store.run, unpack_definition(first.definition), store.instances(first.instances))
        assembly.feed(store.entries(first=first.entries), first.codes)
        result = assembly.result(run_status(first.status))
    return _completed(result, store, first)


def _completed(result: Result, store: RunStore, first: FirstRead) -> Result:
    """The result with what is in no log: the instances that were deleted, and the calls that are not waited for."""
    if gone := dict.fromkeys(deleted_instances(first.deleted), DELETED):
        result = replace(result, instance_status={**result.instance_status, **gone})
    return replace(result, background=store.background()) if first.has_sent else result


def with_open_children(result: Result, store: RunStore) -> Result:
    """The result of a run that has ended; its cost includes child runs whose calls had not ended then. Raises
    `RedisError`.
    """
    cost = result.cost
    for call in result.calls if result.status in ENDED_STATUSES else ():
        if call.child is None or call.cost is not None:
            continue
        with suppress(RunNotFound):  # it is kept no longer
            child = store.other(call.child)
            cost = (cost or Cost()) + (with_open_children(read_result(child), child).cost or Cost())
    return replace(result, cost=cost)
