"""Execution: the state machine of one lane's calls, without I/O (SPEC R5, R6.4-R6.6, R7.2).

`apply` takes in what the log says; `decide` says what can be done next; `finish` says, given the result of a call,
what is to be appended to the log. An execution changes only by what the log says, so it can be rebuilt from the log at
any moment, and two of them that have read the same log are in the same state.

    execution = Execution.of(plan, lane, fold)
    for decision in execution.decide(date):    # a Start to run, a Hold to write, or an Outcome to append
        ...
    for event in outcome.events:               # once they are in the log, their messages appended to the fold
        execution.apply(event)

Results that end at the same time are finished one after the other, each when the one before is in the fold: what may
be written depends on what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypedDict, Unpack

from ..calls.built_in import UNTIL, chooses, chosen_output, due_ms, moment_ms, unfit_parameters, waits
from ..calls.call import Approvals, Call, call_of, element_of
from ..calls.outputs import Alternative, alternative
from ..calls.tools import Executor
from ..calls.trust import NOTHING as UNSAID
from ..calls.trust import ToolTrust, hosts_among, tool_trust_of
from ..errors import Conflict, OutputError, Problem, ProtocolError, Unresolved, pointer, some_of
from ..limits import MOST_NAMED, Limits
from ..messages import ERROR, TRUST
from ..paths import MISSING, copied
from ..plan.checked_plan import CheckedPlan
from ..plan.config import fails_unknown, is_simulation
from ..plan.graph import Graph
from ..plan.lanes import Lane
from ..references import Expression, Reference
from ..run_rules import RunRules
from ..schemas.costs import METER, STEP_WORK
from ..schemas.validation import OFFLOADED
from ..state.fold import Fold
from ..state.labels import TRUSTED, Labels
from ..state.scopes import Allowance, Gathered, TooLarge, all_messages, scoped, scoped_messages
from ..trust import NOTHING, Doubt, Flow, Flows, MarkedValues, addressing, doubt, endorses, hosts_said
from .call_statuses import CallStatuses, verdict
from .events import (
    FINAL,
    Decision,
    Evidence,
    Failure,
    FanOut,
    Hold,
    Outcome,
    Ruling,
    Snapshot,
    Start,
    Status,
    Success,
    Verdict,
)
from .outcomes import Elements, LaneConfig, invalid_parameters, is_among

Gather = Callable[[Call], Mapping[str, Fold] | None]

RECORDED: Final = "recorded but not run: the run is a simulation"
"""Why a call was skipped in a simulation, where it brings nothing (SPEC R12.10)."""
REJECTED: Final = "Rejected"
"""The type of the error of a call that was rejected (SPEC R14.2)."""
UNKNOWN: Final = "Unknown"
"""The type of the error of a call that was begun and whose end nobody knows or has told in time (SPEC R4.11)."""
UNTRUSTED: Final = "Untrusted"
"""The type of the error of a call with effects that untrusted data would decide on (SPEC R16.4)."""


class _LaneOptions(TypedDict, total=False):
    """Fields of `LaneConfig` that no plan sets."""

    approvals: Approvals
    rules: RunRules
    limits: Limits
    defers_errors: bool


class Execution(CallStatuses):
    """The state of one lane's calls.

    `calls` are the lane's own; calls of the global lane that they wait for are recorded like any other. `fold` holds
    the messages of the log as the lane's reader sees them, and is fed by the caller before `apply`. `gather` gives the
    folds of all instances once each has settled what a gather call of the global lane reads, None before
    (see `GatherWaits`).
    """

    def __init__(
        self, calls: Sequence[Call], graph: Graph, fold: Fold, config: LaneConfig, gather: Gather = lambda call: None
    ) -> None:
        super().__init__(calls, graph, fold)
        self._config = config
        self._gather = gather
        self._ready: dict[int, set[Expression]] = {}
        marks = self._labels, self._deciding, self._choosing
        self._flows = Flows(graph, config.trust_of, *marks, self._by_field)

    @classmethod
    def of(
        cls,
        plan: CheckedPlan,
        lane: Lane,
        fold: Fold,
        gather: Gather = lambda call: None,
        **options: Unpack[_LaneOptions],
    ) -> Execution:
        """The execution of a lane of a checked plan; `options` are the fields of `LaneConfig` that no plan sets."""
        config = LaneConfig(plan.tools, plan.returns, lane.instance, plan.trust, plan.refuses_untrusted, **options)
        settings = plan.submission.config
        if is_simulation(settings) or fails_unknown(settings):
            is_simulated, fails = is_simulation(settings), fails_unknown(settings)
            config = replace(config, is_simulated=is_simulated, fails_unknown=fails)
        return cls(lane.calls, lane.graph, fold, config, gather)

    def decide(self, date: str, *, most: int | None = None) -> list[Decision]:
        """Decide all that can be done now and was not decided before, in the order listed; at most `most` decisions,
        and no more once schemas have taken a step's work.

        `date` (ISO 8601, UTC) goes into the messages of outcomes that need no execution. If a decision depends on
        checks that are made in another process first, it and those after it are left for later.
        """
        self._note_arrivals()
        self._look_again()
        decisions: list[Decision] = []
        here = self._fold
        meter, offloaded = METER.get(), OFFLOADED.get()
        end = meter.units + STEP_WORK if meter is not None else 0
        for index in sorted(self._candidates):
            if len(decisions) == most or (meter is not None and meter.units >= end):
                break
            decision = self._decide(self._calls[index], date, here)
            if offloaded is not None and offloaded.asked:
                break
            del self._candidates[index]
            if isinstance(decision, Outcome):
                decision = self._marked(decision)
            if decision is not None:
                self._decided.add(index)
                decisions.append(decision)
            if isinstance(decision, Outcome) and decision.messages:
                here = Fold(self._fold) if here is self._fold else here  # each outcome finds what those before it leave
                for message in decision.messages:
                    here.append(message, f"result of call {index}")
        return decisions

    @property
    def gathering(self) -> tuple[Call, ...]:
        """Gather calls that the next `decide` looks at: it needs what `gather` gives for them (SPEC R10.4), as does
        `finish` for one that has begun.
        """
        candidates = (self._calls[index] for index in sorted(self._candidates))
        waiting = (call for call in candidates if self.status(call.index) is Status.WAITING)
        return tuple(call for call in waiting if call.gather and call.index not in self._decided)

    def missed(self, outcome: Outcome) -> tuple[Reference, ...]:
        """Promised places that were given up and that a call had to do without (SPEC R11.6): it was skipped for them,
        or its scopes lack what they require.
        """
        if not self._given_up:
            return ()
        call, places = self._calls[outcome.index], self._given_up.values()
        if outcome.status is Status.SKIPPED:
            expressions = [one for one in call.expressions if isinstance(self._verdict(call, one), str)]
            found = (place for one in expressions for place in one.references if place in places)
        else:
            scopes = self._graph.scopes.get(outcome.index, {}).values()
            found = (self._given_up[node] for nodes in scopes for node in nodes if node in self._given_up)
        return tuple(place for place in dict.fromkeys(found) if not self._fold.exists(place))

    def scoped(self, call: Call) -> dict[str, Any]:
        """The call's context argument: kind to folded value (SPEC R8.3)."""
        if call.index in self._snapshots:
            return dict(copied(self._snapshots[call.index].scopes))
        gathered = self._gathered(call) if call.gather else None
        return gathered.scoped(call.scopes) if gathered is not None else scoped(self._fold, call.scopes)

    def scoped_messages(self, call: Call) -> list[dict[str, Any]]:
        """Messages of the context for a delegate (SPEC R9.2); for a latent call all that its model sees, which is the
        whole context with the scopes last (SPEC R8.3).
        """
        if call.index in self._snapshots:
            return [copied(message) for message in self._snapshots[call.index].messages]
        is_latent = call.runner.executor is Executor.LATENT
        if call.gather and (gathered := self._gathered(call)) is not None:
            return gathered.all_messages(call.scopes) if is_latent else gathered.scoped_messages(call.scopes)
        return all_messages(self._fold, call.scopes) if is_latent else scoped_messages(self._fold, call.scopes)

    def alternatives(self, call: Call) -> tuple[Alternative, ...]:
        """The places among which the model that a call asks chooses, where there are several (SPEC R4.4)."""
        groups = call.alternatives
        return tuple(alternative(group, call.method, self._fold) for group in groups) if len(groups) > 1 else ()

    def sees_what_is_there(self, start: Start) -> bool:
        """Whether a call starts with the values as they are now: it was not held before, and nothing that it reads has
        changed since it was decided.
        """
        call = start.call
        if call.index in self._snapshots or call.gather:
            return False
        try:
            return call.resolved(self._fold) == start.parameters
        except ProtocolError:
            return False

    def finish(self, index: int, result: Success | Failure, date: str) -> Outcome:
        """Outcome of a call with this result: the messages to append, or the error (SPEC R4.4-R4.6, R7.2)."""
        result = self._endorsed(self._calls[index], result)
        outcome = self._outcome(self._calls[index], result, date, self._fold)
        if result.cost is not None:
            outcome = replace(outcome, cost=result.cost)
        fields = result.fields if isinstance(result, Success) else frozenset()
        answered = ToolTrust(result=result.labels, fields=fields) if result.labels or fields else UNSAID
        return self._marked(outcome, answered)

    def _endorsed(self, call: Call, result: Success | Failure) -> Success | Failure:
        """The result; a failure where it is endorsed only among values, and is none of them (SPEC R16.8)."""
        trust = self._config.trust_of(call) if self._config.trust else UNSAID
        if not (isinstance(trust.endorses, str) and isinstance(result, Success) and endorses(call, trust)):
            return result
        if is_among(result.value, trust, self._fold):
            return result
        text = f"the answer is none of the values at {trust.endorses} to which nobody else wrote"
        return Failure("OutputError", text, result.cost, labels=result.labels)

    def labels_given(self, call: Call) -> Labels:
        """Sources of all that a call which has begun was given; none if a person has approved it (SPEC R16.4)."""
        own = self._calls[call_of(call.index)]
        return TRUSTED if own.index in self._rulings else self._flows.into(own, self._seen(own), has_begun=True).read

    def trust_of(self, call: Call) -> ToolTrust:
        """Trust of a call, by its tool and its code (SPEC R16.1)."""
        return self._config.trust_of(call)

    def undecided_by(self, start: Start) -> tuple[Flow, frozenset[str]]:
        """Sources of the untrusted values that a call starts with and that decide nothing by the trust known here; the
        worker that runs it may know more of its tool (SPEC R16.1). Nothing if a person has approved the call; a rule
        approves what it knew of alone. And the hosts of its addresses that the log names.
        """
        own = self._calls[call_of(start.call.index)]
        ruling = self._rulings.get(own.index)
        flow = self._flows.into(own, self._seen(own)) if ruling is None or ruling.rule else NOTHING
        trust = self._config.trust_of(own) if flow else None
        if trust is None or not trust.effects:
            return flow, frozenset()
        if (
            trust.hosts and ruling is None and doubt(trust, flow) is not None
        ):  # it has started, so it has no effects there
            return flow, hosts_among(trust.hosts, start.parameters) & hosts_said(self._fold)
        given = {name: labels for name, labels in flow.given.items() if name in trust.free}
        return Flow(TRUSTED, given, TRUSTED.union(*given.values())), frozenset()

    def _marked(self, outcome: Outcome, answered: ToolTrust = UNSAID) -> Outcome:
        """The outcome with the sources of all that it depends on (SPEC R16.2); `answered` names its answer's."""
        call = self._calls[call_of(outcome.index)]
        if outcome.index in self._elements:
            answered = self._elements[outcome.index].answered
        is_said = (
            self._config.trust or self._labels or self._fold.is_marked or call.prompt_labels or call.gather or answered
        )
        if not (is_said or any(TRUST in message for message in outcome.messages)):
            return outcome  # nothing has a source
        flow = self._flows.into(call, self._seen(call), has_begun=True)
        there = TRUSTED.union(*(self._fold.marks(place).labels for place in call.written))
        is_done = outcome.status is Status.DONE and not outcome.is_rescued
        written = self._flows.out_of(call, flow, outcome.said, there, answered, is_done=is_done)
        marked = outcome.marked(written)
        if element_of(outcome.index) is not None:
            return replace(marked, labels=TRUSTED, answered=answered)  # what else its call has read is known there
        return replace(marked, chosen=flow.chosen)

    def _seen(self, call: Call) -> MarkedValues:
        return (self._gathered(call) if call.gather else None) or self._fold

    def _outcome(self, call: Call, result: Success | Failure, date: str, fold: Fold) -> Outcome:
        outcome, elements = self._config.outcome(call, result, date, fold), self._elements.get(call.index)
        is_done = elements is not None and outcome.status is Status.DONE
        return replace(outcome, reason=elements.reason) if elements is not None and is_done else outcome

    def _look_again(self) -> None:
        """Find the calls that can be decided now that places have settled: once for all of them, since one expression
        may have many places.
        """
        for reader, expressions in self._touched.items():
            call, ready = self._calls[reader], self._ready.setdefault(reader, set())
            verdicts = {expression: self._verdict(call, expression) for expression in expressions}
            ready.update(expression for expression, found in verdicts.items() if found is True)
            if len(ready) == len(call.expressions) or any(isinstance(found, str) for found in verdicts.values()):
                self._candidates[reader] = None
        self._touched.clear()

    def _decide(self, call: Call, date: str, here: Fold) -> Decision | None:
        if call.index in self._unknown:
            return self._decide_unknown(call, self._unknown[call.index], date, here)
        if (elements := self._elements.get(call_of(call.index))) is not None:
            return self._decide_elements(call, elements, date, here)
        if call.index in self._decided or self.status(call.index) is not Status.WAITING:
            return None
        if call.is_thought:
            return Outcome(call.index, Status.LATENT)
        if call.index in self._rulings:
            return self._decide_ruled(call, self._rulings[call.index], date, here)
        if call.gather:
            return self._decide_gathering(call, date, here)
        ready = self._ready[call.index] = set()
        for expression in call.expressions:
            found = self._verdict(call, expression)
            if isinstance(found, str):
                return Outcome(call.index, Status.SKIPPED, reason=found)
            if found:
                ready.add(expression)
        if len(ready) < len(call.expressions) or not self._readiness.are_scopes_settled(call.index):
            return None
        return self._start(call, date, here)

    def _decide_ruled(self, call: Call, ruling: Ruling, date: str, here: Fold) -> Decision:
        """Decide a call that a person has decided on: it runs with what was shown, whatever was written since (SPEC
        R14.2).
        """
        if ruling.verdict in (Verdict.REJECTED, Verdict.FAILED):
            is_untold = ruling.verdict is Verdict.REJECTED and call.index in self._asked  # nobody has said it in time
            return self._outcome(call, Failure(UNKNOWN if is_untold else REJECTED, ruling.reason), date, here)
        if ruling.verdict in (Verdict.ANSWERED, Verdict.DONE):
            return self._outcome(call, Success(ruling.answer), date, here)
        if ruling.parameters is None:
            return self._begin(call, self._snapshots[call.index].parameters, date, here)
        return self._config.invalid(call, ruling.parameters, date) or self._begin(call, ruling.parameters, date, here)

    def _decide_unknown(self, call: Call, evidence: Evidence, date: str, here: Fold) -> Decision | None:
        """Have a person asked about a call whose end is not known, with what it was begun with (SPEC R4.11)."""
        if call.index in self._decided or self.status(call.index) is not Status.WAITING:
            return None
        if self._config.fails_unknown:
            return self._outcome(call, Failure(UNKNOWN, evidence.said), date, here)
        begun = self.begun(call.index)
        snapshot = begun.snapshot if begun is not None else self._snapshots.get(call.index)
        if snapshot is None:
            try:
                snapshot = self._snapshot(call, call.resolved(Allowance(self._fold, self._config.limits)))
            except (Conflict, TooLarge, Unresolved) as problem:
                return self._config.failed(call, Failure(UNKNOWN, f"{evidence.said}; {problem}"), date)
        elif element_of(call.index) is not None:
            snapshot = replace(self._snapshots[call.index], parameters=snapshot.parameters)
        return Hold(call, snapshot.parameters, snapshot, evidence=evidence)

    def snapshot(self, start: Start) -> Snapshot:
        """Take the values that a call starts with, for the log; an element has those of its call. Raises `Conflict`."""
        if element_of(start.call.index) is not None:
            return Snapshot(start.parameters, {})
        return self._snapshot(start.call, start.parameters)

    def is_once(self, call: Call) -> bool:
        """Whether a call runs at most once, or a person is asked (SPEC R4.11)."""
        return bool(self._config.trust) and self._config.trust_of(call).once

    def _decide_elements(self, call: Call, elements: Elements, date: str, here: Fold) -> Decision | None:
        """Decide a call with `_each`, or one of its elements (SPEC R4.10)."""
        if element_of(call.index) is None:
            is_over = elements.left or self.status(call.index) is not Status.RUNNING
            return None if is_over else self._outcome(call, elements.result(self._config.limits), date, here)
        if call.index in self._decided or self.status(call.index) is not Status.WAITING:
            return None
        ruling = self._rulings.get(call.index)
        if ruling is not None and ruling.verdict is not Verdict.AGAIN:
            return self._decide_ruled(call, ruling, date, here)
        own = self._calls[call_of(call.index)]
        is_new = tool_trust_of(self._config.added, own.tool, own.runner.name) and own.index not in self._rulings
        given = self._snapshots[own.index].parameters if is_new else {}
        if is_new and (found := self._doubt(own, self._seen(own), given)) is not None:  # all of them would be held
            return self._outcome(call, Failure(UNTRUSTED, str(found)), date, here)
        parameters = copied(elements.parameters(call.index))
        return self._config.invalid(call, parameters, date) or Start(call, parameters)

    def _decide_gathering(self, call: Call, date: str, here: Fold) -> Decision | None:
        """Decide a call that reads in every instance (SPEC R10.4)."""
        gathered = self._gathered(call)
        if gathered is None:
            return None
        try:
            return self._start(call, date, here, gathered)
        except Unresolved as missing:
            return Outcome(call.index, Status.SKIPPED, reason=str(missing))

    def _gathered(self, call: Call) -> Gathered | None:
        """The values that a gather call reads, once every instance has settled them."""
        folds = self._gather(call)
        return Gathered(self._fold, folds, self._config.added_sources) if folds is not None else None

    def _verdict(self, call: Call, expression: Expression) -> bool | str:
        """True: can be read. False: has to wait. A text: can never be read, and why (SPEC R6.5, R6.6)."""
        found = verdict(expression.alternatives, self._readiness.unsettled(call.index), self._fold.exists)
        if found is not None:
            return found
        if any(place in self._given_up.values() for place in expression.references):
            return f"{expression} is not there: it was promised and did not come in time"
        there = self._fold.beside(expression)
        reason = f"{expression} {UNBROUGHT}{self._why(call, expression)}"
        return f"{reason}; {there}" if there else reason

    def _why(self, call: Call, expression: Expression) -> str:
        """How the calls that were to write a value ended, the first few of them."""
        places = [place for place in expression.references if place.kind != ERROR]
        if not places:
            return "" if self._fold.exists(_ERRORS) else ": no call listed before it has failed"
        writers = {index for place in places for index in self._graph.writers(call.index, place)}
        ended = [
            f"call {index} {_FATES[self.status(index)]}" for index in sorted(writers) if self.status(index) in FINAL
        ]
        return f": {some_of(ended, MOST_NAMED)}" if ended else ""

    def _start(self, call: Call, date: str, here: Fold, gathered: Gathered | None = None) -> Decision:
        """Resolve and validate just before execution (SPEC R4.1); a result that is already known is held against
        `here`.
        """
        allowance = Allowance(gathered or self._fold, self._config.limits)
        try:
            parameters = call.resolved(allowance)
            places = gathered.places(call.scopes) if gathered is not None else map(self._fold.value, call.scopes)
            for value in places:
                allowance.take(value)
            if call.runner.executor is Executor.LATENT and self._config.approvals.hold(call):
                for kind in self._fold.kinds():  # all of it goes into the snapshot
                    allowance.take(self._fold.root(kind))
        except (Conflict, TooLarge) as problem:
            return self._config.failed(call, Failure(type(problem).__name__, str(problem)), date)
        if call.reads and (invalid := self._config.invalid(call, parameters, date)) is not None:
            return invalid
        if self._config.records(call):
            return Outcome(call.index, Status.SKIPPED, reason=RECORDED)
        found = self._doubt(call, gathered or self._fold, parameters) if self._config.trust else None
        if found is not None and self._config.refuses_untrusted:
            return self._outcome(call, Failure(UNTRUSTED, str(found)), date, here)
        if self._config.approvals.hold(call):
            return Hold(call, parameters, self._snapshot(call, parameters), found)
        if found is not None:
            rules = self._config.rules
            rule = rules.admitting(call, found, parameters)
            return Hold(call, parameters, self._snapshot(call, parameters), found, rule=rule, rules=rules.last)
        return self._begin(call, parameters, date, here)

    def _doubt(self, call: Call, seen: MarkedValues, parameters: Mapping[str, Any]) -> Doubt | None:
        """Why a call may not start by itself, with the ways on which the sources reach it (SPEC R16.4)."""
        trust = self._config.trust_of(call)
        named = partial(hosts_said, self._fold)
        flow = self._flows.into(call, seen) if trust.effects else NOTHING
        found = doubt(trust, flow, addressing(call, parameters), named)
        if found is None:
            return None
        return replace(found, ways={one: self._flows.way(call, one, self._calls) for one in found.labels})

    def _snapshot(self, call: Call, parameters: Mapping[str, Any]) -> Snapshot:
        """Parameters and scoped values of a call."""
        messages = () if call.runner.executor is Executor.ACTIVITY else self.scoped_messages(call)
        return Snapshot(parameters, self.scoped(call), messages)

    def _begin(self, call: Call, parameters: Mapping[str, Any], date: str, here: Fold) -> Decision:
        """Start a call, or take a result that a model wrote into it (SPEC R4.7) or that needs no code (SPEC R4.12)."""
        if call.given is not MISSING:
            return self._outcome(call, Success(call.given), date, here)
        is_choice = chooses(call) and call.index not in (self._config.simulated or ())
        if is_choice or waits(call):
            if problems := unfit_parameters(call, parameters):
                return self._config.failed(call, invalid_parameters(problems), date)
            return (self._chosen if is_choice else self._waiting)(call, parameters, date, here)
        if not call.each:
            return Start(call, parameters)
        if not parameters[call.each[0]]:
            return self._outcome(call, Success([]), date, here)
        return FanOut(call, parameters, self._snapshot(call, parameters))

    def _chosen(self, call: Call, parameters: Mapping[str, Any], date: str, here: Fold) -> Outcome:
        """The outcome of a call that chooses without code (SPEC R4.12)."""
        try:
            result: Success | Failure = Success(chosen_output(call, parameters))
        except OutputError as error:
            result = Failure(type(error).__name__, str(error))
        return self._outcome(call, result, date, here)

    def _waiting(self, call: Call, parameters: Mapping[str, Any], date: str, here: Fold) -> Decision:
        """Hold a call until its moment; where that is past the call has ended (SPEC R4.12)."""
        try:
            until = due_ms(parameters, date)
        except OutputError as error:
            return self._config.failed(call, invalid_parameters([Problem(pointer(UNTIL), str(error))]), date)
        if until <= (moment_ms(date) or 0) or self._config.simulated is not None:
            return self._outcome(call, Success(date), date, here)
        return Hold(call, parameters, self._snapshot(call, parameters), until_ms=until)


UNBROUGHT: Final = "is missing, and no call can write it any more"
"""Why a call is skipped whose value no call has written: another branch was taken, or a call has failed (SPEC R6.6)."""
_ERRORS: Final = Reference(ERROR)
_FATES = {
    Status.DONE: "did not write it",
    Status.FAILED: "failed",
    Status.SKIPPED: "was skipped",
    Status.SENT: "was sent without waiting for a result",
    Status.LATENT: "is a latent call without an output path",
}
