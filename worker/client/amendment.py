"""Replace the calls of a run that have not begun, while it runs (SPEC R11.1).

The run is paused, so no call begins; calls at work go on, and their outcomes are taken. Every lane is read, the new
calls are checked against the run, and if they fit, each lane is written in one step: its calls that have not begun end
as skipped, and a new record says which calls it has now. The global lane comes first and holds what the lanes share.
Then the run goes on, if it was running.

If the client dies on the way, the run stays paused, and the same amendment can be started again: lanes that have it are
left alone. A run that is amended in part is not resumed.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final

from redis import Redis

from ...broker_config import Settings
from ...protocol import Plan, Problem, Rejected
from ...protocol.calls.call import Call
from ...protocol.engine.outcomes import holds_references, output_fault
from ...protocol.errors import pointer
from ...protocol.plan.additions import SoFar
from .. import limits
from ..backoff import batches
from ..broker.attempts import CallId, lane_token
from ..broker.messages import pack
from ..errors import BeingAmended, RunNotFound, RunOver
from ..store.definition import LaneRecord, StoredPlan, all_places_of, gather_counts, pack_amended_lane, pack_amendment
from ..store.entries import effective_entries
from ..store.held_calls import AuditRecord, audit_record
from ..store.keys import ENDED_STATUSES
from ..store.run_list import PARENT, RunList
from ..store.run_store import RunStore
from ..store.state import LaneState, RunState
from .submitting import admitted

# The steps in which a run is changed in many lanes; from the first to the last of them it is paused (lua/amend.lua). A
# client that begins takes over from one that died on the way, and continues what that has written.


class AmendmentSteps:
    """Takes the steps of one change of one run. All of it raises `RunNotFound`, `RunOver`, `BeingAmended`."""

    def __init__(self, run: str, redis: Redis, settings: Settings) -> None:
        self._run = run
        self._redis = redis
        self._prefix = settings.key_prefix
        self._store = RunStore.open(redis, settings.key_prefix, run)
        self._who = secrets.token_hex(8)
        self._numbers = count(1)

    @contextmanager
    def listed(self, submitted: int) -> Iterator[None]:
        """List a run as under way before and after it is opened again: a sweep that is about to let it expire takes it
        from the list. It was `submitted` at that time.
        """
        runs = RunList(self._redis, self._prefix)
        runs.add(self._run, submitted)
        yield
        runs.add(self._run, submitted)

    def opened(self, refused: str) -> tuple[int, str]:
        """Read when a run was submitted that is to go on, even if it has ended, and which change was written in part.

        Raises `RunOver`, with the text `refused`, if it is cancelled; also if it is imported, or a child run.
        """
        names = ("status", "submitted", "amending:by", "imported", PARENT)
        status, submitted, by, imported, parent = self._store.fields(*names)
        if status is None:
            raise RunNotFound(self._run)
        if imported is not None:
            raise RunOver(f"run {self._run} is imported: it can be read and forked, but not continued")
        if parent is not None:
            raise RunOver(
                f"run {self._run} is a child run, which answers a call of another run: steer that one (`acts status` "
                "names it)"
            )
        if status == "cancelled":
            raise RunOver(f"run {self._run} is cancelled: {refused}; fork it")
        return int(submitted or 0), by or ""

    @contextmanager
    def begun(self, resume: Callable[[], None], *, adds: bool) -> Iterator[dict[str, Any]]:
        """Pause the run while the change is planned in this block; yields how it was. If the block raises, the run is
        as before; `resume` lets it go on.
        """
        found = self.do("begin", adds=adds)
        try:
            yield found
        except BaseException:
            dropped = self.do("drop")
            if dropped["resumes"] and not found["by"]:
                with suppress(RunOver):
                    resume()
            raise

    def end(self, record: AuditRecord, resume: Callable[[], None]) -> None:
        """Take the last step: the run goes on if it did before and was not paused since. No call may be left, so the
        step also says whether the output can be read.
        """
        ended = self.do("end", output_fault=self._output_fault())
        record.write_line(self._run)
        if ended["resumes"]:
            with suppress(RunOver):  # what was left has ended with the change
                resume()

    def _output_fault(self) -> str | None:
        """Read the log for `LaneView.output_fault` of the global lane."""
        history = RunStore.open(self._redis, self._prefix, self._run)
        run = RunState(history.definition(), ())
        if not holds_references(run.definition.output):
            return None
        run.feed(history.lane(None))
        if any(run.shared.end(index) is None for index in run.shared.known):
            return None
        return output_fault(run.definition.output, run.shared.fold, run.definition.schema) or ""

    def do(self, step: str, **request: Any) -> dict[str, Any]:
        """Take one step."""
        [answer] = self._store.amend([self._request(step, request)])
        return self._take(answer)

    def do_all(self, step: str, requests: Iterable[Mapping[str, Any]]) -> None:
        """Take one step for each request, many of them in a round trip."""
        for some in batches(requests, limits.AMENDMENT_AT_ONCE):
            for answer in self._store.amend(self._request(step, request) for request in some):
                self._take(answer)

    def _request(self, step: str, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"step": step, "who": self._who, "number": next(self._numbers), **request}

    def _take(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Pass on the script's answer. Raises if this client may not change the run."""
        if answer["status"] == "gone":
            raise RunNotFound(self._run)
        if answer["status"] in ENDED_STATUSES and not answer["is_ours"]:
            raise RunOver(f"run {self._run} is {answer['status']}: it can no longer be amended")
        if answer["is_streaming"]:
            raise BeingAmended(f"a model is writing calls of run {self._run}: try again when its answer is whole")
        if not answer["is_ours"]:
            raise BeingAmended(f"run {self._run} is being amended by another client; look at it, then try again")
        return answer


# Replacing a held call by other calls (SPEC R14.2): a decision that is written as an amendment.
#
# The calls run in the held call's lane, in its place: they see the data, what calls at work write and each other, and
# what waited for the held call waits for all of them.


@dataclass(frozen=True, slots=True)
class Replacement:
    """The held call that the calls of an amendment replace."""

    call: CallId
    ruling: bytes
    """The packed decision."""
    who: AuditRecord
    refuse: Callable[[], None]
    """Raises if the call does not wait for a person (any more)."""


def placed_calls(value: Mapping[str, Any], instance: str | None) -> dict[str, Any]:
    """Move the calls of an amendment to the instance of the call that they replace.

    Raises `Rejected` if they name another one. All else that is wrong with them is found by the check of the amendment.
    """
    solution = value.get("solution")
    of, at = (solution, ("solution",)) if isinstance(solution, dict) else (value, ())
    calls = of.get("calls")
    if not isinstance(calls, list):
        return dict(value)
    if problems := list(_misplaced(calls, instance, at)):
        raise Rejected(problems)
    own = {} if instance is None else {"_instance": instance}
    moved = {**of, "calls": [{**call, **own} if isinstance(call, dict) else call for call in calls]}
    return {**value, "solution": moved} if at else moved


def _misplaced(calls: list[Any], instance: str | None, at: tuple[str, ...]) -> Iterator[Problem]:
    if not calls:
        yield Problem(pointer(*at, "calls"), "no call would replace the held call: reject it instead")
    for index, call in enumerate(calls):
        if not isinstance(call, dict):
            continue
        if call.get("_gather"):
            yield Problem(
                pointer(*at, "calls", index, "_gather"), "a call that replaces a held call cannot have _gather"
            )
        if call.get("_instance", instance) != instance:
            where = "globally" if instance is None else f"in instance {instance!r}"
            yield Problem(
                pointer(*at, "calls", index, "_instance"),
                f"the held call runs {where}: the calls that replace it must run there, too",
            )


REPLACED: Final = "replaced by an amendment"
"""The reason of a call that is skipped before it has begun."""

Check = Callable[[Any, SoFar], Plan]


@dataclass(frozen=True, slots=True)
class _Lane:
    """A lane that is to be amended."""

    instance: str | None
    record: LaneRecord
    begun: tuple[Call, ...]
    """The calls at work."""
    waiting: tuple[Call, ...]
    """The calls that have not begun."""
    replaced: tuple[Call, ...]
    """The held calls that others replace."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A run that is to be amended, with all its amendments so far."""

    lanes: Sequence[_Lane]
    """The lanes, the global one first."""
    definition: StoredPlan
    messages: Sequence[Mapping[str, Any]]
    next_index: int
    """The first index that no call has ever had."""


class Amender:
    """Amends one run; `check` makes the plan of an amendment, or raises `protocol.Rejected`."""

    def __init__(self, run: str, redis: Redis, settings: Settings, check: Check) -> None:
        self._run = run
        self._redis = redis
        self._settings = settings
        self._history = RunStore.open(redis, settings.key_prefix, run)
        self._check = check
        self._steps = AmendmentSteps(run, redis, settings)

    def add(self, value: Any, *, resume: Callable[[], None]) -> None:
        """Add the calls of an amendment to those of a run, even if it has ended (SPEC R11.7).

        Raises as `amend` does; if the calls do not fit, a run that has ended is not touched.
        """
        submitted, by = self._steps.opened("nothing can be added to it")
        self._planned(value, by, adds=True)
        with self._steps.listed(submitted):
            self.amend(value, resume=resume, adds=True)

    def amend(
        self, value: Any, *, resume: Callable[[], None], adds: bool = False, instead: Replacement | None = None
    ) -> None:
        """Replace the calls that have not begun, or one held call, by those of an amendment; `resume` the run if it was
        running.

        Raises `Rejected` and `OverLimit`, and then the run is as before; `RunNotFound`, `RunOver`, `BeingAmended`.
        """
        with ExitStack() as admission:
            with self._steps.begun(resume, adds=adds) as found:
                run, by, first, plan = self._planned(value, found["by"], adds=adds, instead=instead)
                admission.enter_context(admitted(self._redis, self._settings, plan.size, more_of=self._run))
            order = audit_record(self._settings, "added calls" if adds else "amended", calls=len(plan.calls))
            keeps = adds or instead is not None
            self._steps.do("plan", by=by, adds=keeps, deed=order.pack())
            self._write(run, plan, by, first if keeps else None, instead)
            self._steps.end(order if instead is None else instead.who, resume)

    def _planned(
        self, value: Any, before: str, *, adds: bool, instead: Replacement | None = None
    ) -> tuple[_Found, str, int, Plan]:
        """Read the run and plan the amendment: returns also the amendment's name, and its first call's index.

        Raises `Rejected`. Nothing is written.
        """
        run = self._read()
        by, first = _identity(value if instead is None else [instead.call.member, value], before, run.next_index)
        if instead is not None and by != before:
            instead.refuse()
        keeps = adds or instead is not None
        is_loop = run.definition.request is not None
        if keeps and (is_loop or instead is not None) and _gathering(run.lanes, first):
            text = "the run has a _gather call that has not begun: add calls when it has, or replace it"
            raise Rejected([Problem("", text)])
        so_far = _so_far(run, first, keeps=keeps)
        if instead is not None:
            others = {instance: calls for instance, calls in so_far.kept.items() if instance != instead.call.instance}
            so_far = replace(so_far, kept=others, is_template=False)
        return run, by, first, self._check(value, so_far)

    def _read(self) -> _Found:
        definition, begun = self._history.definition(), self._history.open_calls()
        run = RunState(definition, self._history.instances())
        entries = list(self._history.entries())
        run.feed(entries)
        messages = [entry.message for entry in effective_entries(entries) if entry.message is not None]
        lanes = [_lane(run.definition, lane, begun) for lane in run.lanes.values()]
        return _Found(
            lanes, run.definition, messages, 1 + max(max(lane.known, default=-1) for lane in run.lanes.values())
        )

    def _write(self, run: _Found, plan: Plan, by: str, added: int | None, instead: Replacement | None) -> None:
        """Write the lanes that have not been written, the global one before the others. If calls are `added`, from that
        index on, those that have not begun stay, including the one that is replaced.
        """
        lanes, definition = run.lanes, run.definition
        is_shared_written = lanes[0].record.amendment == by
        version = len(definition.versions) - is_shared_written
        keeps_records = added is not None and _gathering(lanes, added)
        requests = [
            request
            for lane in lanes
            if lane.record.amendment != by
            and (request := _request(lane, plan, version, by, added, instead, keeps_record=keeps_records)) is not None
        ]
        for request in requests:
            self._skip_many(request)
        if not is_shared_written:
            counts = gather_counts(lane.gathers for lane in plan.lanes.values())
            gathers = [(str(index), count) for index, count in counts.items()]
            awaited = _awaited(lanes[0], plan)
            if instead is not None and instead.call.index in definition.awaited:
                awaited |= {call.index for call in plan.calls}
            shared = pack_amendment(plan, awaited)
            self._steps.do("lane", **requests.pop(0), shared=shared, gathers=gathers)
        self._steps.do_all("lane", (request | {"shared": b"", "gathers": []} for request in requests))

    def _skip_many(self, request: dict[str, Any]) -> None:
        """Skip dropped calls of a lane before its own step if they are too many for one script."""
        while len(dropped := request["dropped"]) > limits.DROPPED_AT_ONCE:
            part = {"lane": request["lane"], "dropped": dropped[: limits.DROPPED_AT_ONCE], "detail": request["detail"]}
            self._steps.do("skip", **part)
            request["dropped"] = dropped[limits.DROPPED_AT_ONCE :]


def _gathering(lanes: Iterable[_Lane], before: int) -> bool:
    """Tell whether a gather call with a lower index has not begun."""
    return any(call.gather and call.index < before for lane in lanes for call in lane.waiting)


def _lane(definition: StoredPlan, lane: LaneState, begun: Collection[tuple[str | None, int]]) -> _Lane:
    calls = definition.lane_calls(lane.record, lane.instance)
    left = [call for call in calls if lane.end(call.index) is None]
    return _Lane(
        instance=lane.instance,
        record=lane.record,
        begun=tuple(call for call in left if (lane.instance, call.index) in begun),
        waiting=tuple(call for call in left if (lane.instance, call.index) not in begun),
        replaced=tuple(call for call in calls if call.index in lane.record.stand_ins),
    )


def _identity(value: Any, before: str, first: int) -> tuple[str, int]:
    """Make the name of an amendment, with its first call's index; `before` is the name if it was written in part."""
    digest = hashlib.sha256(pack(value)).hexdigest()[:16]
    if before.startswith(digest):
        return before, int(before.partition(":")[2])
    return f"{digest}:{first}", first


def _so_far(run: _Found, first: int, *, keeps: bool) -> SoFar:
    kept = {lane.instance: [call for call in lane.waiting if call.index < first] for lane in run.lanes if keeps}
    definition = run.definition
    return SoFar(
        messages=run.messages,
        begun={lane.instance: lane.begun for lane in run.lanes if lane.begun},
        kept={instance: calls for instance, calls in kept.items() if calls},
        first=first,
        is_template=definition.is_template,
        tools={name: dict(tool.declaration) for name, tool in definition.tools.items()},
        delegates=definition.delegates,
        config=definition.config,
        allow=definition.allow,
        operator=definition.submitted_with,
    )


def _request(
    lane: _Lane,
    plan: Plan,
    version: int,
    by: str,
    added: int | None,
    instead: Replacement | None,
    *,
    keeps_record: bool,
) -> dict[str, Any] | None:
    """Make the step that writes a lane; None for an instance's lane that has nothing left to do."""
    own = instead if instead is not None and instead.call.instance == lane.instance else None
    new = plan.lanes.get(lane.instance)
    calls = new.calls if new is not None else ()
    is_gathered = new is not None and new.gathers is not None
    if lane.instance is not None and not (calls or lane.begun or lane.waiting or is_gathered):
        return None
    is_template = plan.submission.is_template and new is not None
    kept = lane.record.layers((*lane.replaced, *lane.waiting), added) if added is not None else ()
    dropped = [call.index for call in lane.waiting] if added is None else []
    reason, stand_ins = REPLACED, lane.record.stand_ins if added is not None else {}
    if own is not None:
        dropped, stand_ins = [own.call.index], {**stand_ins, own.call.index: tuple(call.index for call in calls)}
        reason = f"replaced by call{'s' * (len(calls) > 1)} {', '.join(str(call.index) for call in calls)}"
    record = LaneRecord(
        calls=lane.begun if is_template else (*lane.begun, *calls),
        **(all_places_of(new) if new is not None else {}),
        version=version if is_template else None,
        begun=frozenset(call.index for call in lane.begun),
        amendment=by,
        tick=lane.record.tick if lane.begun or lane.waiting else None,
        kept=kept,
        stand_ins=stand_ins,
        unseen=frozenset(call.index for layer in kept for call in layer.calls) if own is not None else frozenset(),
        before=(lane.record.data or pack_amended_lane(lane.record)) if keeps_record else b"",
    )
    return {
        "lane": lane_token(lane.instance),
        "dropped": dropped,
        "detail": pack({"reason": reason}),
        "ruling": own.ruling if own is not None else None,
        "decided": own.who.pack() if own is not None else None,
        "record": pack_amended_lane(record),
        "added": len(calls),
    }


def _awaited(shared: _Lane, plan: Plan) -> frozenset[int]:
    """List the global calls, new or old, that new calls of instances wait for."""
    own = plan.lanes[None].calls if None in plan.lanes else ()
    waited_for = {index for lane in plan.lanes.values() if lane.instance is not None for index in lane.awaited}
    return frozenset(call.index for call in (*shared.begun, *shared.waiting, *own) if call.index in waited_for)
