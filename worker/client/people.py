"""Decisions of people on what waits for them in a run (SPEC R14).

A decision is one step (lua/control.lua): the first one counts, from whichever person and process. It marks the
call's lane, so should the client die after it, the workers' sweep publishes that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ...broker_config import Settings
from ...protocol import Problem, Rejected
from ...protocol.calls.call import Call, call_of, element_index, parameter_problems
from ...protocol.calls.tools import Tool
from ...protocol.engine.events import (
    SETTLING,
    CallHeld,
    RuleGiven,
    RuleRevoked,
    Ruling,
    Snapshot,
    Verdict,
    scope_problems,
)
from ...protocol.errors import pointer, some_of
from ...protocol.limits import MOST_RULES, one_message_problems
from ...protocol.run_rules import RunRule, UserWords, rule_problems
from ...protocol.state.scopes import read_scope
from .. import limits
from ..broker.attempts import CallId
from ..broker.messages import pack
from ..errors import (
    AlreadyDecided,
    BeingAmended,
    HeldAnew,
    NoSuchRule,
    NotHeld,
    PlanChanged,
    RunNotFound,
    RunOver,
    WorkerError,
)
from ..limits import limits_of
from ..store.definition import digest_of_calls
from ..store.entries import Entry
from ..store.held_calls import AuditRecord, HeldCall, audit_record, pack_ruling, read_held
from ..store.keys import ENDED_STATUSES
from ..store.run_list import RunList
from ..store.run_store import RunStore
from ..store.scripts import iso_date
from ..store.state import RunState
from .amendment import Replacement, placed_calls
from .dispatcher import publish_lanes

if TYPE_CHECKING:
    from ..broker.consumer import Publisher
    from .amendment import Amender
    from .control import Control, LoopControl


_INDEX: Final = re.compile(r"([0-9]{1,7})(?:\[([0-9]{1,10})\])?", re.ASCII)
"""A call's index, and the number of an element of it."""


class People:
    """Decisions on the held calls of one run. `publisher` is asked for when something is to be published.

    All of it raises `RunNotFound`, `RedisError`.
    """

    def __init__(self, store: RunStore, settings: Settings, publisher: Callable[[], Publisher]) -> None:
        self._store = store
        self._settings = settings
        self._publisher = publisher

    def held(self) -> Iterator[HeldCall]:
        """The calls that wait for a person, those that wait longest first; none once the run is over."""
        return read_held(self._store.redis, self._store.keys)

    def approve(
        self,
        call: str | int,
        *,
        parameters: Mapping[str, Any] | None = None,
        scopes: Sequence[str] | None = None,
        by: str | None = None,
        shown: str | None = None,
        rule: Mapping[str, Any] | None = None,
    ) -> str:
        """Let a held call run as it was shown, with other parameters or narrower scopes; with a `rule` also all calls
        like it that come later (SPEC R16.8). Returns the id of the decision in the log.

        `shown` is the digest of what was seen (SPEC R14.4). Raises `HeldAnew` where something else waits under the id
        by now; `Rejected` without a digest, where its tool refuses the parameters, the scopes are no narrower ones, the
        rule is none or too wide, or it is a question; `NotHeld`, `AlreadyDecided`, `RunOver`, `BeingAmended`.
        """
        id_ = self._find(call)
        if (found := self._seen(id_, shown, begun=False)) is not None and found.shown.is_question:
            raise Rejected([Problem("", f"call {id_.name} is a question: answer it (`acts answer`), or reject it")])
        if rule is not None and (parameters is not None or scopes is not None):
            raise Rejected([Problem("/rule", "goes with what was shown, unchanged: leave out parameters and scopes")])
        if parameters is None and scopes is None:
            made = self._rule(id_, rule, shown or "") if rule is not None else None
            return self._decide(id_, Ruling(Verdict.APPROVED), by, found, rule=made)
        known, tool, snapshot, _ = self._call(id_)
        given = dict(parameters) if parameters is not None else None
        problems = list(self._misfits(given, known, tool, snapshot)) if given is not None else []
        if problems := [*problems, *(scope_problems(scopes, known, snapshot) if scopes is not None else ())]:
            raise Rejected(problems)
        chosen = dict.fromkeys(map(read_scope, scopes)) if scopes is not None else None
        ruling = Ruling(
            Verdict.APPROVED,
            given if given != snapshot.parameters else None,
            tuple(map(str, chosen)) if chosen is not None and chosen != dict.fromkeys(known.scopes) else None,
        )
        return self._decide(id_, ruling, by, found)

    def _rule(self, id_: CallId, said: Mapping[str, Any], shown: str) -> RunRule:
        """Make a rule of a call that is held, or was. Raises `Rejected` where it is none or too wide, `NotHeld`."""
        run = self._read(id_)
        call, event = self._held_call(run, id_)
        words = run.rules.words if self._store.parent() is None else UserWords()  # a child run has no words of the user
        found = rule_problems(said, call, event.doubt, event.snapshot.parameters, words)
        problems = list(self._unfit(said)) or list(found)
        if run.definition.approvals.hold(call):
            problems.append(Problem("", "config.approve holds calls like it in any case: approve each"))
        if len(run.rules.given) >= MOST_RULES:
            problems.append(Problem("", f"the run has {MOST_RULES} rules: revoke one first"))
        if problems or event.doubt is None:
            raise Rejected([Problem(f"/rule{problem.pointer}", problem.message) for problem in problems])
        made = RunRule.of(said, call, event.doubt, event.snapshot.parameters)
        return replace(made, call=id_.name, shown=shown)

    def rules(self) -> list[dict[str, Any]]:
        """The rules that were given, the oldest first, each with what it says, who gave it and when, who revoked it and
        when (None where it is in force), and the `calls` that it let start.
        """
        found = dict[str, dict[str, Any]]()
        for entry in self._store.entries() if self._store.fields("rules") != [None] else ():
            event, audit, date = entry.event, entry.audit, _date(entry)
            by = audit.actor.name if audit is not None else None
            if isinstance(event, RuleGiven):
                about = {"rule": entry.id, "text": str(event.rule), **event.rule.to_dict()}
                found[entry.id] = about | {"given": date, "by": by, "revoked": None, "revoked_by": None, "calls": []}
            elif isinstance(event, RuleRevoked) and event.revoked in found:
                found[event.revoked] |= {"revoked": date, "revoked_by": by}
            elif isinstance(event, CallHeld) and event.rule in found:
                found[event.rule]["calls"].append(CallId(self._store.run, entry.instance, event.call).name)
        return list(found.values())

    def revoke(self, rule: str, *, by: str | None = None) -> None:
        """Have a rule let no call start from now on. Revoking it twice is one. Raises `NoSuchRule`, `RunOver`."""
        done = audit_record(self._settings, "revoked", rule=rule).by(by)
        answer = self._store.revoke(rule, done)
        if answer["status"] == "gone":
            raise RunNotFound(self._store.run)
        if answer["status"] in ENDED_STATUSES:
            raise RunOver(f"run {self._store.run} is {answer['status']}: no call starts in it any more")
        if "id" in answer:
            done.write_line(self._store.run)
        elif not any(one["rule"] == rule for one in self.rules()):
            raise NoSuchRule(f"run {self._store.run} has no rule {rule}: see `acts rules {self._store.run}`")

    def answer(self, call: str | int, value: Any, *, by: str | None = None, shown: str | None = None) -> str:
        """Answer a question: the value is the call's result. Returns the id of the answer in the log.

        Raises what `approve` raises; `Rejected` where the call's tool, or its `options`, refuse the value.
        """
        id_ = self._find(call)
        if problems := list(self._unfit(value)):
            raise Rejected(problems)
        if (found := self._seen(id_, shown, begun=False)) is not None:
            if not found.shown.is_question:
                text = f"call {id_.name} is no question: approve it, or reject it"
                raise Rejected([Problem("", text)])
            options = found.shown.snapshot.parameters.get("options")
            if options and value not in options:
                raise Rejected(
                    [Problem("", f"the answer is not one of the options: {json.dumps(options)[: limits.SHOWN]}")]
                )
            _, tool, _, _ = self._call(id_)
            schema = tool.compiled_output if tool is not None else None
            if schema is not None and (problems := list(schema.problems(value))):
                raise Rejected(problems)
        return self._decide(id_, Ruling(Verdict.ANSWERED, answer=value), by, found)

    def reject(self, call: str | int, reason: str, *, by: str | None = None, shown: str | None = None) -> str:
        """Have a held call end with the error `Rejected`. Returns the id of the decision in the log.

        Raises what `approve` raises; `Rejected` without a reason, or with too long a one.
        """
        if not reason.strip():
            raise Rejected([Problem("", "a rejection needs a reason")])
        if problems := list(self._unfit(reason)):
            raise Rejected(problems)
        id_ = self._find(call)
        return self._decide(id_, Ruling(Verdict.REJECTED, reason=reason), by, self._seen(id_, shown, begun=False))

    def settle(
        self,
        call: str | int,
        outcome: str,
        *,
        value: Any = None,
        reason: str = "",
        by: str | None = None,
        shown: str | None = None,
    ) -> str:
        """Say of a call whose end is not known (SPEC R4.11) that it is `done`, with a value, or has `failed`, for a
        reason; or have it begin `again`. Returns the id of the decision in the log.

        Raises what `approve` raises; `Rejected` where the call's tool refuses the value, or a reason is missing.
        """
        id_ = self._find(call)
        problems = list(self._unfit([value, reason]))
        if outcome not in SETTLING:
            problems.append(Problem("/outcome", f"must be one of {', '.join(sorted(SETTLING))}"))
        elif (outcome == Verdict.FAILED) is not bool(reason.strip()):
            text = "a failure needs a reason" if outcome == Verdict.FAILED else "a reason is for outcome failed alone"
            problems.append(Problem("/reason", text))
        if value is not None and outcome != Verdict.DONE:
            problems.append(Problem("/value", "a value is for outcome done alone"))
        if problems:
            raise Rejected(problems)
        found = self._seen(id_, shown, begun=True)
        if found is not None and outcome == Verdict.DONE and (misfits := list(self._results_misfits(id_, value))):
            raise Rejected(misfits)
        return self._decide(id_, Ruling(Verdict(outcome), answer=value, reason=reason), by, found)

    def _results_misfits(self, id_: CallId, value: Any) -> Iterator[Problem]:
        """List what the promises of a call's tool, or of its code, say against a value as its result."""
        _, tool, _, returns = self._call(id_)
        schema = tool.compiled_output if tool is not None else None
        schema = schema or (returns.compiled_output if returns is not None else None)
        return iter(schema.problems(value, "value") if schema is not None else ())

    def replace(
        self,
        call: str | int,
        amendment: Mapping[str, Any],
        amender: Amender,
        *,
        by: str | None = None,
        shown: str | None = None,
        resume: Callable[[], None],
    ) -> str:
        """Put other calls in place of a held one, checked as an amendment. Returns the id of the decision in the log.

        Raises what `approve` raises; `Rejected` with everything that is wrong with them.
        """
        id_ = self._find(call)
        value = placed_calls(amendment, id_.instance)
        ruling = Ruling(Verdict.REPLACED, amendment=value)

        def refuse() -> None:
            if self._seen(id_, shown, begun=False) is None:
                raise NotHeld(_not_held(id_))

        if self._seen(id_, shown, begun=False) is None:
            decision, fields = self._same(id_, ruling), self._store.fields("amending:by")
            if fields == [None]:
                return decision
        instead = Replacement(id_, pack_ruling(ruling), self._audited(id_, ruling, by), refuse)
        with suppress(NotHeld):  # it was decided on a moment ago: that may be the same
            amender.amend(value, resume=resume, instead=instead)
        return self._same(id_, ruling)

    def move(self, call: str | int, until_ms: int, *, by: str | None = None) -> str:
        """Change the moment that a call waits for. Returns the id of the change in the log.

        Raises `NotHeld` where it waits for none, `RunOver`, `BeingAmended`.
        """
        id_ = self._find(call, is_waiting=True)
        done = audit_record(self._settings, "moved", call=id_.name).by(by)
        answer = self._store.move(id_, until_ms, done)
        if answer["status"] == "gone":
            raise RunNotFound(self._store.run)
        if answer["is_amended"]:
            raise BeingAmended(f"run {self._store.run} is being amended; move it when that is finished")
        if answer["status"] in ENDED_STATUSES:
            raise RunOver(f"run {id_.run} is {answer['status']}: nothing waits in it now")
        if "id" not in answer:
            raise NotHeld(f"call {id_.name} of run {id_.run} waits for no moment: see `acts status`")
        done.write_line(self._store.run)
        return str(answer["id"])

    def _held(self, id_: CallId) -> HeldCall | None:
        """Read a call that waits for a person; None where it does not."""
        return next(read_held(self._store.redis, self._store.keys, only=id_.member), None)

    def _seen(self, id_: CallId, shown: str | None, *, begun: bool) -> HeldCall | None:
        """The call, where it waits for a person and is what was shown; None where it does not wait.

        Raises `HeldAnew` where something else waits under the id; `Rejected` where nothing says what was shown, or the
        decision is for a call that has `begun`, and its end is not known, or for one that has not.
        """
        if (found := self._held(id_)) is not None:
            if shown is None:
                raise Rejected(
                    [
                        Problem(
                            "",
                            f"nothing says what was shown of call {id_.name} of run {id_.run}: look at it first "
                            "(`acts held`, `run.held()`), and give `shown` as it is there",
                        )
                    ]
                )
            if found.digest != shown:
                raise _anew(id_)
            if begun is not (found.shown.evidence is not None):
                text = (
                    "has not begun: approve it, answer it, or reject it"
                    if begun
                    else "has begun, and its end is not known: say whether it is done, has failed or begins again "
                    "(`acts settle`)"
                )
                raise Rejected([Problem("", f"call {id_.name} of run {id_.run} {text}")])
        return found

    def _unfit(self, value: Any) -> Iterator[Problem]:
        """List what is wrong with a value that a person has given, whatever it is for."""
        return one_message_problems(value, limits_of(self._settings))

    def _decide(
        self, id_: CallId, ruling: Ruling, by: str | None, seen: HeldCall | None, *, rule: RunRule | None = None
    ) -> str:
        done = self._audited(id_, ruling, by)
        given = pack(rule.to_dict()) if rule is not None else None
        shown = seen.entry if seen is not None else ""
        answer = self._store.decide(id_, pack_ruling(ruling), done, shown=shown, rule=given)
        if answer["status"] == "gone":
            raise RunNotFound(self._store.run)
        if answer["is_amended"]:
            raise BeingAmended(f"run {self._store.run} is being amended; decide when that is finished")
        if "id" not in answer:
            if self._held(id_) is not None:
                raise _anew(id_)
            decision = self._same(id_, ruling)
            if rule is not None and not any(rule == one for one in self._rules_given()):
                text = f"call {id_.name} of run {id_.run} was approved before, without this rule: no rule was given"
                raise AlreadyDecided(f"{text}; give it with the next call that is held")
            return decision
        done.write_line(self._store.run)
        if answer["is_published"]:
            lanes, priority = [id_.instance or ""], self._store.priority()
            has = "has the decision"
            publish_lanes(self._publisher(), self._settings, id_.run, lanes, has=has, priority=priority)
        return str(answer["id"])

    def _rules_given(self) -> Iterator[RunRule]:
        return (entry.event.rule for entry in self._store.lane(None) if isinstance(entry.event, RuleGiven))

    def _audited(self, id_: CallId, ruling: Ruling, by: str | None) -> AuditRecord:
        return audit_record(self._settings, ruling.verdict.value, call=id_.name).by(by)

    def _same(self, id_: CallId, ruling: Ruling) -> str:
        """Find the id of an equal decision that was made before. Raises why this one cannot be made."""
        name = id_.name
        status = self._store.status()
        entries = self._store.lane(id_.instance)
        decided = [(entry, made) for entry in entries if entry.call == id_.index and (made := entry.ruling)]
        if not decided and status in ENDED_STATUSES:
            raise RunOver(f"run {id_.run} is {status}: nothing can be decided in it now")
        if not decided:
            raise NotHeld(_not_held(id_))
        entry, found = decided[-1]
        if found == ruling:
            return entry.id
        by = f" by {entry.audit.actor.name}" if entry.audit is not None else ""
        by = f" by rule {found.rule}" if found.rule else by
        reason = f" ({found.reason})" if found.reason else ""
        changed = " with other parameters" if found.parameters is not None else ""
        changed += f" with the scopes {', '.join(found.scopes) or 'none'}" if found.scopes is not None else ""
        raise AlreadyDecided(
            f"call {name} of run {id_.run} was {found.verdict}{changed}{by} at {_date(entry)}{reason}; that "
            "stays, and nothing has changed"
        )

    def _find(self, call: str | int, *, is_waiting: bool = False) -> CallId:
        """Find the call, or element, of an id or index: a held one, else one that was decided on. With `is_waiting`,
        find one that waits for a moment. Raises `NotHeld`.
        """
        name, _, instance = str(call).partition(":")
        said = _INDEX.fullmatch(name)
        if said is None:
            raise NotHeld(
                f"{call!r} is neither a call's id nor its index: see `acts {'status' if is_waiting else 'held'}`"
            )
        number = int(said[1])
        index = element_index(number, int(said[2])) if said[2] is not None else number
        if instance:
            return CallId(self._store.run, instance, index)
        for found in self._groups(is_waiting=is_waiting):
            ids = dict.fromkeys(id_ for id_ in found if id_.index == index)
            if len(ids) == 1:
                return next(iter(ids))
            if ids:
                names = [id_.name for id_ in ids]
                some = some_of(names, limits.PEOPLE_NAMED)
                raise NotHeld(f"several calls have the index {name}: say which, {some}")
        return CallId(self._store.run, None, index)

    def _groups(self, *, is_waiting: bool) -> Iterator[Iterable[CallId]]:
        """Read the calls that an index may mean, those that it rather means first."""
        if is_waiting:
            yield (id_ for id_, _ in self._store.waits())
        else:
            yield self._store.held()
            yield self._decided_ids()

    def _decided_ids(self) -> Iterator[CallId]:
        for entry in self._store.entries():
            if entry.ruling is not None and entry.call is not None:
                yield CallId(self._store.run, entry.instance, entry.call)

    def _call(self, id_: CallId) -> tuple[Call, Tool | None, Snapshot, Tool | None]:
        """A held call, its tool, what it is held with, and what its code promises. Raises `NotHeld`."""
        run = self._read(id_)
        call, event = self._held_call(run, id_)
        definition = run.definition
        return call, definition.tools.get(call.tool), event.snapshot, definition.returns.get(call.runner.name)

    def _read(self, id_: CallId) -> RunState:
        """Read the global lane, and that of a call."""
        run = RunState(self._store.definition())
        run.feed(self._store.lane(None))
        if id_.instance is not None:
            run.feed(self._store.lane(id_.instance))
        return run

    def _held_call(self, run: RunState, id_: CallId) -> tuple[Call, CallHeld]:
        """A call that is held, or was, and what the log says of that. Raises `NotHeld`."""
        events = (entry.event for entry in self._store.lane(id_.instance) if entry.call == id_.index)
        held = [event for event in events if isinstance(event, CallHeld) and event.until_ms is None]
        call = run.lane(id_.instance).known.get(call_of(id_.index))
        if call is None or not held:
            raise NotHeld(_not_held(id_))
        return call, held[-1]

    def _misfits(
        self, parameters: Mapping[str, Any], call: Call, tool: Tool | None, shown: Snapshot
    ) -> Iterator[Problem]:
        """List what is wrong with other parameters for a call (SPEC R4.1): they are values, without references, so
        those of which its tool prescribes where they come from stay as they were shown.
        """
        if unfit := list(self._unfit(parameters)):
            yield from unfit
            return
        meta = [key for key in parameters if key.startswith("_")]
        yield from (Problem(pointer(key), "is no parameter: only these can be changed") for key in meta)
        pinned = sorted(tool.inputs.parameters) if tool is not None else ()
        for name in (one for one in pinned if parameters.get(one) != shown.parameters.get(one)):
            at = pointer(name) if name in parameters else ""
            yield Problem(
                at, f"the tool prescribes where {name} comes from: leave it as it was shown, or reject the call"
            )
        if tool is not None and not meta:
            yield from parameter_problems(call, parameters, tool)


def decided_each(calls: Mapping[str, Any], decide: Callable[[str, str], str]) -> dict[str, dict[str, str]]:
    """Decide on calls one by one: `calls` are a question, or ids with what was shown of each. Each is a decision of its
    own, so sending all of them again finishes what was not done.
    """
    if not isinstance(calls, Mapping):
        raise TypeError("give a question, or an object of ids, each with what was shown of it")
    decisions, left = dict[str, str](), dict[str, WorkerError]()
    for call, shown in calls.get("calls", calls).items():
        try:
            decisions[call] = decide(call, shown)
        except (AlreadyDecided, HeldAnew, NotHeld) as error:
            left[call] = error
    if left and not decisions:
        raise next(iter(left.values()))
    return {"decisions": decisions, "left": {call: error.code for call, error in left.items()}}


def meant_of(names: Iterable[str], call: str | int) -> str | None:
    """The id among those of held calls that an id or an index means; None where it means none, or several."""
    alike = [name for name in names if str(call) in (name, name.partition(":")[0])]
    return str(call) if str(call) in alike else alike[0] if len(alike) == 1 else None


def _anew(id_: CallId) -> HeldAnew:
    return HeldAnew(
        f"call {id_.name} of run {id_.run} is another call than the one that was shown: nothing was decided; "
        "see `acts held`"
    )


def _not_held(id_: CallId) -> str:
    return f"call {id_.name} of run {id_.run} is not held: see `acts held` for what waits for a person"


def _date(entry: Entry) -> str:
    return iso_date(int(entry.id.partition("-")[0]))


# The plan of a run in mode lazy: nothing of it runs before its digest is approved (SPEC R10.2, R13.7).
#
# The plan is what the log says is to be done. That no amendment comes in between is seen by the field `amended` of the
# run's state, which is read before the log; lua/control.lua compares it.


class PlanControl:
    """The plan of one run; those of a loop are its `loop`'s."""

    def __init__(self, store: RunStore, settings: Settings, loop: LoopControl, control: Control) -> None:
        self._store = store
        self._settings = settings
        self._loop = loop
        self._control = control

    def plan(self) -> dict[str, Any] | None:
        """The plan that waits: `plan` its digest, `tick` (of a loop), `calls`, and the whole digest as `sha256`, but
        for a loop's; None where none does.

        Raises `RedisError`.
        """
        is_loop, is_waiting = self._store.fields("loop", "plan")
        if is_loop is not None:
            return self._loop.plan()
        if is_waiting is None:
            return None
        run = self._read()
        return _plan_of(run) if run.waits_for_approval and run.status not in ENDED_STATUSES else None

    def approve(self, digest: str, *, by: str | None = None, for_all: bool = False) -> None:
        """Let the calls of the plan of this digest run. The same approval twice is one. With `for_all` all runs of the
        plan that come later need none (SPEC R9.5).

        Raises `PlanChanged` where another plan waits, or none; `Rejected` with `for_all` for the plan of a loop's tick;
        `RunNotFound`, `RunOver`, `BeingAmended`, `RedisError`.
        """
        if self._store.fields("loop") != [None]:
            if for_all:
                text = "a model makes a new plan in each tick: approve this one, or export it and run the export"
                raise Rejected([Problem("", text)])
            self._loop.approve(digest, by=by)
            with suppress(RunOver):  # it was approved before, and has ended since
                self._control.resume()
            return
        about = {"plan": digest, **({"for_all": True} if for_all else {})}
        done = audit_record(self._settings, "approved", **about).by(by)
        while True:
            [amended] = self._store.fields("amended")
            run = self._read()
            if run.status in ENDED_STATUSES:
                raise RunOver(f"run {self._store.run} is {run.status}: it can no longer be approved")
            if not run.waits_for_approval and digest in self._approved():
                return
            plan = _plan_of(run)
            waiting = plan["plan"] if run.waits_for_approval else None
            if waiting != digest:
                known = f"the plan {waiting}" if waiting else "no plan"
                raise PlanChanged(
                    f"run {self._store.run} has {known} to be approved, and not {digest}: see `acts held`"
                )
            if for_all:
                RunList(self._store.redis, self._settings.key_prefix).approve_plan(plan["sha256"], done.pack())
            if self._control.approve(amended or "", done):
                return

    def _read(self) -> RunState:
        run = RunState(self._store.definition(), self._store.instances())
        run.feed(self._store.entries())
        if not run.status:
            raise RunNotFound(self._store.run)
        return run

    def _approved(self) -> set[Any]:
        """The digests of the plans that were approved."""
        records = (entry.audit for entry in self._store.entries() if entry.audit is not None)
        return {record.about.get("plan") for record in records if record.did == "approved"}


def _plan_of(run: RunState) -> dict[str, Any]:
    """Describe the calls of a run that has not begun. The digest is of the calls, and of everything that they name."""
    lanes = run.lanes.values()
    left = {index: call for lane in lanes for index, call in lane.known.items() if lane.end(index) is None}
    calls = [dict(left[index].raw) for index in sorted(left)]
    digest = digest_of_calls(left.values(), run.definition.tools, run.definition.delegates)
    return {"plan": digest[: limits.PEOPLE_DIGEST], "tick": None, "calls": calls, "sha256": digest}
