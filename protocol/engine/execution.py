"""Execution: the state machine of one lane's calls, without I/O (SPEC R5, R6.4-R6.6, R7.2).

`apply` takes in what the log says; `decide` says what can be done next; `finish` says, given the result of a call,
what is to be appended to the log. An execution changes only by what the log says, so it can be rebuilt from the log at
any moment, and two of them that have read the same log are in the same state.

    execution = Execution(lane.calls, lane.graph, fold, plan.tools, instance=lane.instance)
    for decision in execution.decide(date):    # a Start to carry out, a Hold to write down, or an Outcome to append
        ...
    for event in outcome.events:               # once they are in the log, their messages appended to the fold
        execution.apply(event)

Results that end at the same time are finished one after the other, each when the one before is in the fold: what may
be written hangs on what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from acts_celery.protocol.calls.approvals import NONE, Approvals
from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.elements import call_of, element_of
from acts_celery.protocol.calls.outputs import (
    Message,
    Output,
    Write,
    admitted_writes,
    element_writes,
    failure_writes,
    possible_writes,
    verify_result,
    verify_writes,
    written_messages,
)
from acts_celery.protocol.calls.tools import Executor, Tool
from acts_celery.protocol.graph.graph import Graph
from acts_celery.protocol.language.errors import Conflict, OutputError, Unresolved, shortened
from acts_celery.protocol.language.limits import Limits
from acts_celery.protocol.language.messages import error_message
from acts_celery.protocol.language.paths import MISSING, copied
from acts_celery.protocol.language.references import Expression, Reference
from acts_celery.protocol.schemas.elsewhere import OFFLOADED
from acts_celery.protocol.schemas.work import METER, STEP_WORK
from acts_celery.protocol.state.allowance import Allowance, TooLarge
from acts_celery.protocol.state.fold import Fold
from acts_celery.protocol.state.gathered import Gathered
from acts_celery.protocol.state.operations import Method
from acts_celery.protocol.state.scopes import scoped, scoped_messages

from .decisions import Failure, Hold, Outcome, Spread, Start, Success
from .elements import Elements, unfit
from .events import (
    CallDecided,
    CallEnded,
    CallHeld,
    ElementEnded,
    Event,
    FanOutBegun,
    MessageAdded,
    PromisesGivenUp,
)
from .holds import Ruling, Snapshot, Verdict
from .readiness import Readiness, verdict
from .statuses import FINAL, TRANSITIONS, Status

_DEFAULT: Final = Limits()

__all__ = ["FINAL", "TRANSITIONS", "Execution", "Failure", "Hold", "Outcome", "Spread", "Start", "Status", "Success"]

REJECTED: Final = "Rejected"
"""The type of the error of a call that was rejected (SPEC R14.2)."""


class Execution:
    """The state of one lane's calls.

    `calls` are the lane's own; calls of the global lane that they wait for are recorded like any other. `fold` holds
    the messages of the log as the lane's reader sees them, and is fed by the caller before `apply`. `returns` are the
    tools that activities are, by name: what those say of results counts where a call's own tool says nothing. `gather`
    gives the folds of all instances once each has settled what a gather call of the global lane reads, None before;
    see `guests`. `limits` bound what one call is given. With `defers_errors` what a failed call says is in its outcome
    alone: in a loop the message comes at the end of the tick (SPEC R13.1). `approvals` says which calls are held.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        graph: Graph,
        fold: Fold,
        tools: Mapping[str, Tool],
        *,
        instance: str | None = None,
        gather: Callable[[Call], Mapping[str, Fold] | None] | None = None,
        returns: Mapping[str, Tool] | None = None,
        defers_errors: bool = False,
        limits: Limits = _DEFAULT,
        approvals: Approvals = NONE,
    ) -> None:
        self._calls = {call.index: call for call in calls}
        self._graph = graph
        self._fold = fold
        self._tools = tools
        self._returns = returns or {}
        self._instance = instance
        self._gather = gather
        self._defers_errors = defers_errors
        self._limits = limits
        self._status: dict[int, Status] = {}
        self._left = len(self._calls)
        self._readiness = Readiness(self._calls, graph)
        self._promises = dict(graph.promises)
        self._given_up: dict[int, Reference] = {}
        self._may_have_come = True
        self._ready: dict[int, set[Expression]] = {}
        self._touched: dict[int, dict[Expression, None]] = {}
        self._candidates: dict[int, None] = dict.fromkeys(self._calls)
        self._decided: set[int] = set()
        self._approvals = approvals
        self._snapshots: dict[int, Snapshot] = {}
        self._rulings: dict[int, Ruling] = {}
        self._elements: dict[int, Elements] = {}

    @property
    def statuses(self) -> dict[int, Status]:
        """The status of each of the lane's own calls."""
        return {index: self.status(index) for index in self._calls if element_of(index) is None}

    def call(self, index: int) -> Call | None:
        """The call of the lane, or the element of one that is carried out for each, of that number."""
        return self._calls.get(index)

    @property
    def unended(self) -> list[int]:
        """The numbers of all that have not ended."""
        return [index for index in self._calls if self.status(index) not in FINAL]

    def status(self, index: int) -> Status:
        """The status of a call, also of one of the global lane."""
        return self._status.get(index, Status.WAITING)

    @property
    def is_finished(self) -> bool:
        """Whether every call of the lane has ended."""
        return self._left == 0

    def record(self, index: int, status: Status) -> bool:
        """Take note of a call's status, from the log or of what is under way; says whether that was news.

        What the transitions do not allow is a duplicate or came late, and changes nothing.
        """
        if status not in TRANSITIONS[self.status(index)]:
            return False
        self._status[index] = status
        if status is Status.WAITING:
            self.reconsider(index)
        elif status in FINAL:
            self._left -= index in self._calls
            self._may_have_come = True  # it may have written what was promised
            for reader, place in self._readiness.end(index):
                self._settle(reader, place)
        return True

    def apply(self, event: Event) -> bool:
        """Take in what an entry of the log says, its message appended to the fold; says whether that was news."""
        take = _TAKES.get(type(event))
        return take is not None and take(self, event)

    def _end(self, event: CallEnded) -> bool:
        return self.record(event.call, event.status)

    def _end_element(self, event: ElementEnded) -> bool:
        if event.element not in self._calls or not self.record(event.element, event.status):
            return False
        elements = self._elements[event.call]
        elements.end(event.element, event.status, event.value, event.error)
        if not elements.left:
            self.reconsider(event.call)
        return True

    def _hold(self, event: CallHeld) -> bool:
        is_news = self.record(event.call, Status.HELD)
        if is_news:
            self._snapshots[event.call] = event.snapshot
            self._rulings.pop(event.call, None)
        return is_news

    def _let_go(self, event: CallDecided) -> bool:
        if self.status(event.call) is not Status.HELD:
            return False
        self._rulings[event.call] = event.ruling
        return self.record(event.call, Status.WAITING)

    def _fan_out(self, event: FanOutBegun) -> bool:
        index = event.call
        if index not in self._calls or index in self._elements or not self.record(index, Status.RUNNING):
            return False
        elements = self._elements[index] = Elements.of(self._calls[index], event.snapshot.parameters)
        self._calls |= elements.calls
        self._left += len(elements.calls)
        self._snapshots |= dict.fromkeys((index, *elements.calls), event.snapshot)
        self._candidates |= dict.fromkeys(elements.calls)
        return True

    def _give_up_promises(self, _: PromisesGivenUp) -> bool:
        """What is promised counts as something that no call brings, and `||` falls back."""
        self._given_up |= self._promises
        for node in (given_up := list(self._promises)):
            self._end_promise(node)
        return bool(given_up)

    def _receive(self, _: MessageAdded) -> bool:
        self.receive()
        return True

    def receive(self) -> None:
        """Note that the fold has grown elsewhere: what was promised may have come (SPEC R11.6)."""
        self._may_have_come = True

    def decide(self, date: str, *, most: int | None = None) -> list[Start | Outcome]:
        """Everything that can be done now and was not decided before, in the order listed; at most so many, and no more
        once schemas have taken a step's work.

        `date` (ISO 8601, UTC) goes into the messages of outcomes that need no execution. Where a decision hangs on
        offloaded that are to be found first, it and those behind it are left for later.
        """
        self._note_arrivals()
        self._look_again()
        decisions: list[Start | Outcome] = []
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
            if decision is not None:
                self._decided.add(index)
                decisions.append(decision)
            if isinstance(decision, Outcome) and decision.messages:
                here = Fold(self._fold) if here is self._fold else here  # each outcome finds what those before it leave
                for message in decision.messages:
                    here.append(message, f"result of call {index}")
        return decisions

    def reconsider(self, index: int) -> None:
        """Decide anew about a call of the lane whose last decision was not carried out."""
        self._decided.discard(index)
        if index in self._calls and self.status(index) not in FINAL:
            self._candidates[index] = None

    @property
    def gathering(self) -> tuple[Call, ...]:
        """The gather calls that the next `decide` looks at: it needs what `gather` gives for them (SPEC R10.4)."""
        candidates = (self._calls[index] for index in sorted(self._candidates))
        return tuple(
            call for call in candidates if call.gather and call.index not in self._decided and self._is_open(call.index)
        )

    def _is_open(self, index: int) -> bool:
        """Whether nothing was decided of a call yet, neither here nor by a person."""
        return self.status(index) is Status.WAITING and index not in self._rulings

    @property
    def promised(self) -> tuple[Reference, ...]:
        """The promised places that calls of the lane wait for (SPEC R6.3)."""
        return tuple(self._promises.values())

    def missed(self, outcome: Outcome) -> tuple[Reference, ...]:
        """The promised places that were given up and that a call had to do without (SPEC R11.6): it was skipped for
        them, or its scopes lack what they require.
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
        """The parent's part of a delegate's context (SPEC R9.2)."""
        if call.index in self._snapshots:
            return [copied(message) for message in self._snapshots[call.index].messages]
        gathered = self._gathered(call) if call.gather else None
        return (
            gathered.scoped_messages(call.scopes) if gathered is not None else scoped_messages(self._fold, call.scopes)
        )

    def finish(self, index: int, result: Success | Failure, date: str) -> Outcome:
        """What a call's result means: the messages to append, or the error (SPEC R4.4-R4.6, R7.2)."""
        return replace(self._outcome(self._calls[index], result, date, self._fold), cost=result.cost)

    def _outcome(self, call: Call, result: Success | Failure, date: str, fold: Fold) -> Outcome:
        """What a result means where a fold says what is there."""
        if element_of(call.index) is not None:
            return self._element_outcome(call, result, date)
        if call.output is None:
            return Outcome(call.index, Status.SENT) if isinstance(result, Success) else self._failed(call, result, date)
        if isinstance(result, Failure):
            return self._rescued(call, call.output, result, date, fold)
        try:
            possible = possible_writes(call.output, result.value)
        except OutputError as problem:
            return self._failed(call, Failure("OutputError", str(problem)), date)
        try:
            self._verify_result(call, result, possible[0])
            return self._done(call, admitted_writes(call, possible, fold), date)
        except OutputError as problem:
            return self._rescued(call, call.output, Failure("OutputError", str(problem)), date, fold)
        except Conflict as problem:
            return self._failed(call, Failure("Conflict", str(problem)), date)

    def _element_outcome(self, call: Call, result: Success | Failure, date: str) -> Outcome:
        """What the result of an element means: it is written with those of the others."""
        if isinstance(result, Failure) or call.output is None:
            return self._failed(call, result, date) if isinstance(result, Failure) else Outcome(call.index, Status.SENT)
        if isinstance(result.value, (Output, Message)):
            text = f"an element of _each gives a value, and no {type(result.value).__name__}"
            return self._failed(call, Failure("OutputError", text), date)
        try:
            self._verify_result(call, result, [Write(call.written[0], result.value)])
        except OutputError as problem:
            return self._failed(call, Failure("OutputError", str(problem)), date)
        return Outcome(call.index, Status.DONE, value=result.value)

    def _verify_result(self, call: Call, result: Success, writes: list[Write]) -> None:
        """Hold a value against what its tool promises, or the activity's annotation (SPEC R4.6): of a call with
        `_each` each element of it.

        Raises `OutputError`.
        """
        tool = self._tools.get(call.tool)
        if (tool is None or tool.compiled_output is None) and call.runner.executor is Executor.ACTIVITY:
            tool = self._returns.get(call.runner.name)
        if call.each and element_of(call.index) is None:
            writes = list(element_writes(writes[0]))
        if tool is not None:
            verify_result(tool, result.value, writes)

    def _rescued(self, call: Call, output: Expression, failure: Failure, date: str, fold: Fold) -> Outcome:
        """An exception as the result of the last of several alternatives, if its place admits it (SPEC R4.4)."""
        writes = failure_writes(output, _error(failure))
        if not writes:
            return self._failed(call, failure, date)
        try:
            call = _fitting(call, writes, fold)
            verify_writes(call, writes, fold)
        except (OutputError, Conflict):
            return self._failed(call, failure, date)
        return self._done(call, writes, date)

    def _done(self, call: Call, writes: list[Write], date: str) -> Outcome:
        messages = written_messages(call, writes, date=date, instance=self._instance)
        elements = self._elements.get(call.index)
        return Outcome(call.index, Status.DONE, messages, reason=elements.reason if elements is not None else None)

    def _settle(self, reader: int, place: Reference | None) -> None:
        """Note that a place, or all of its scopes, settled which can make a difference to a call: see `_look_again`."""
        if reader in self._candidates or reader in self._decided or self.status(reader) is not Status.WAITING:
            return
        touched = self._touched.setdefault(reader, {})
        touched.update(dict.fromkeys(self._calls[reader].readers_of(place) if place is not None else ()))

    def _note_arrivals(self) -> None:
        """Find the promised values that have come."""
        for node, place in tuple(self._promises.items()) if self._may_have_come else ():
            if self._fold.exists(place):
                self._end_promise(node)
        self._may_have_come = False

    def _end_promise(self, node: int) -> None:
        del self._promises[node]
        for reader, place in self._readiness.end(node):
            self._settle(reader, place)

    def _look_again(self) -> None:
        """Find the calls that can be decided by what has settled: once for all of it, since many places may stand in
        one expression.
        """
        for reader, expressions in self._touched.items():
            call, ready = self._calls[reader], self._ready.setdefault(reader, set())
            offloaded = {expression: self._verdict(call, expression) for expression in expressions}
            ready.update(expression for expression, verdict in offloaded.items() if verdict is True)
            if len(ready) == len(call.expressions) or any(isinstance(verdict, str) for verdict in offloaded.values()):
                self._candidates[reader] = None
        self._touched.clear()

    def _decide(self, call: Call, date: str, here: Fold) -> Start | Outcome | None:
        if (elements := self._elements.get(call_of(call.index))) is not None:
            return self._decide_spread(call, elements, date, here)
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

    def _decide_ruled(self, call: Call, ruling: Ruling, date: str, here: Fold) -> Start | Outcome:
        """Of a call that was held and decided on: what was shown is what runs, whatever came since (SPEC R14.2)."""
        if ruling.verdict is Verdict.REJECTED:
            return self._outcome(call, Failure(REJECTED, ruling.reason), date, here)
        if ruling.verdict is Verdict.ANSWERED:
            return self._outcome(call, Success(ruling.answer), date, here)
        if ruling.parameters is None:
            return self._begin(call, self._snapshots[call.index].parameters, date, here)
        return self._invalid(call, ruling.parameters, date) or self._begin(call, ruling.parameters, date, here)

    def _decide_spread(self, call: Call, elements: Elements, date: str, here: Fold) -> Start | Outcome | None:
        """Of a call that is carried out for each element, or of an element (SPEC R4.10)."""
        if element_of(call.index) is None:
            is_over = elements.left or self.status(call.index) is not Status.RUNNING
            return None if is_over else self._outcome(call, elements.result(self._limits), date, here)
        if call.index in self._decided or self.status(call.index) is not Status.WAITING:
            return None
        parameters = copied(elements.parameters(call.index))
        return self._invalid(call, parameters, date) or Start(call, parameters)

    def _decide_gathering(self, call: Call, date: str, here: Fold) -> Start | Outcome | None:
        """Of a call that reads in every instance (SPEC R10.4)."""
        gathered = self._gathered(call)
        if gathered is None:
            return None
        try:
            return self._start(call, date, here, gathered)
        except Unresolved as missing:
            return Outcome(call.index, Status.SKIPPED, reason=str(missing))

    def _gathered(self, call: Call) -> Gathered | None:
        """What a gather call reads, where every instance has settled it."""
        folds = self._gather(call) if self._gather is not None else None
        return Gathered(self._fold, folds) if folds is not None else None

    def _verdict(self, call: Call, expression: Expression) -> bool | str:
        """True: can be read. False: has to wait. A text: can never be read, and why (SPEC R6.5, R6.6)."""
        found = verdict(expression.alternatives, self._readiness.unsettled(call.index), self._fold.exists)
        if found is not None:
            return found
        if any(place in self._given_up.values() for place in expression.references):
            return f"{expression} is not there: it was promised and did not come in time"
        return f"{expression} is not there and no call can bring it any more{self._why(call, expression)}"

    def _why(self, call: Call, expression: Expression) -> str:
        """What became of the calls that were to bring a value, the first few of them."""
        writers = {index for place in expression.references for index in self._graph.writers(call.index, place)}
        ended = [
            f"call {index} {_FATES[self.status(index)]}" for index in sorted(writers) if self.status(index) in FINAL
        ]
        more = f" and {len(ended) - _MOST_NAMED} more" if len(ended) > _MOST_NAMED else ""
        return f": {', '.join(ended[:_MOST_NAMED])}{more}" if ended else ""

    def _start(self, call: Call, date: str, here: Fold, gathered: Gathered | None = None) -> Start | Outcome:
        """Resolve and validate just before execution (SPEC R4.1); `here` is what a result finds that is known."""
        allowance = Allowance(gathered or self._fold, self._limits)
        try:
            parameters = call.resolved(allowance)
            places = gathered.places(call.scopes) if gathered is not None else map(self._fold.value, call.scopes)
            for value in places:
                allowance.take(value)
        except (Conflict, TooLarge) as problem:
            return self._failed(call, Failure(type(problem).__name__, str(problem)), date)
        if call.reads and (invalid := self._invalid(call, parameters, date)) is not None:
            return invalid
        if self._approvals.hold(call):
            return Hold(call, parameters, self._snapshot(call, parameters))
        return self._begin(call, parameters, date, here)

    def _snapshot(self, call: Call, parameters: Mapping[str, Any]) -> Snapshot:
        """All that a call is carried out with."""
        messages = () if call.runner.executor is Executor.ACTIVITY else self.scoped_messages(call)
        return Snapshot(parameters, self.scoped(call), messages)

    def _begin(self, call: Call, parameters: Mapping[str, Any], date: str, here: Fold) -> Start | Outcome:
        """Start a call, or take the result that a model wrote into it (SPEC R4.7)."""
        if call.given is not MISSING:
            return self._outcome(call, Success(call.given), date, here)
        if not call.each:
            return Start(call, parameters)
        if not parameters[call.each[0]]:
            return self._outcome(call, Success([]), date, here)
        return Spread(call, parameters, self._snapshot(call, parameters))

    def _invalid(self, call: Call, parameters: Mapping[str, Any], date: str) -> Outcome | None:
        """How a call ends whose resolved parameters its tool refuses, or which cannot be carried out for each element
        of them.
        """
        if call.each and element_of(call.index) is None:
            failure = unfit(call, parameters, self._limits)
            return self._failed(call, failure, date) if failure is not None else None
        tool = self._tools.get(call.tool)
        if tool is None:
            return None
        is_latent = call.runner.executor is Executor.LATENT
        problems = tool.problems({**call.meta_properties, **parameters}, is_secret=True, is_latent=is_latent)
        if not problems:
            return None
        return self._failed(call, Failure("InvalidParameters", "; ".join(map(str, problems))), date)

    def _failed(self, call: Call, failure: Failure, date: str) -> Outcome:
        error = _error(failure)
        if (element := element_of(call.index)) is not None:
            error["element"] = element
        message = error_message(call.raw, error, date=date, instance=self._instance)
        return Outcome(call.index, Status.FAILED, () if self._defers_errors else (message,), error=error)


def _fitting(call: Call, writes: list[Write], fold: Fold) -> Call:
    """The call as it writes an exception: by `set` where its own method does not fit one (SPEC R4.4)."""
    try:
        verify_writes(call, writes, fold)
    except Conflict:
        properties = {key: value for key, value in call.properties.items() if key != "_outputMethod"}
        return replace(call, method=Method.SET, properties=properties)
    return call


_TAKES: Final[Mapping[type, Callable[[Execution, Any], bool]]] = {
    MessageAdded: Execution._receive,
    CallEnded: Execution._end,
    ElementEnded: Execution._end_element,
    CallHeld: Execution._hold,
    CallDecided: Execution._let_go,
    FanOutBegun: Execution._fan_out,
    PromisesGivenUp: Execution._give_up_promises,
}
"""What each event changes; the others change nothing that can be done."""

_MOST_NAMED = 3
_FATES = {
    Status.DONE: "did not write it",
    Status.FAILED: "failed",
    Status.SKIPPED: "was skipped",
    Status.SENT: "was sent without waiting for a result",
    Status.LATENT: "is a latent call without an output path",
}


def _error(failure: Failure) -> dict[str, Any]:
    """The error as readers see it: bounded, and fit to be stored, for an exception's text may hold anything."""
    return {"type": _printable(failure.type), "message": _printable(shortened(failure.message, 4_000))}


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
