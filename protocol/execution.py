"""Execution: the state machine of one lane's calls, without I/O (SPEC R5, R6.4-R6.6, R7.2).

It is told what the log says (`record`) and says what can be done next (`decide`); given the result of a call
(`finish`), it says what is to be appended to the log. It changes only by what the log says, so it can be rebuilt from
the log at any moment and two of them that have read the same log are in the same state.

    execution = Execution(lane, fold, tools)
    for decision in execution.decide():        # a Start to carry out, or an Outcome to append
        ...
    execution.record(index, status)            # once it is in the log, its messages appended to the fold
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from .calls import Call
from .errors import Conflict, OutputError
from .graph import Graph
from .messages import error_message
from .outputs import (
    Output,
    chosen_writes,
    failure_writes,
    verify_result,
    verify_writes,
    written_messages,
)
from .paths import MISSING
from .references import Expression, Reference
from .resolution import Fold
from .scopes import scoped, scoped_messages
from .tools import Tool


class Status(StrEnum):
    """The statuses of a call."""

    WAITING = "waiting"
    HELD = "held"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    SENT = "sent"
    LATENT = "latent"


TRANSITIONS: Final[Mapping[Status, frozenset[Status]]] = {
    Status.WAITING: frozenset(
        {Status.HELD, Status.RUNNING, Status.DONE, Status.FAILED, Status.SKIPPED, Status.SENT, Status.LATENT}
    ),
    Status.HELD: frozenset({Status.WAITING, Status.RUNNING, Status.FAILED, Status.SKIPPED}),
    Status.RUNNING: frozenset({Status.WAITING, Status.DONE, Status.FAILED, Status.SENT}),
    Status.DONE: frozenset(),
    Status.FAILED: frozenset(),
    Status.SKIPPED: frozenset(),
    Status.SENT: frozenset(),
    Status.LATENT: frozenset(),
}
FINAL: Final = frozenset(status for status, following in TRANSITIONS.items() if not following)


@dataclass(frozen=True, slots=True)
class Success:
    """A call's executor returned a value: plain, an `Output`, or a whole data message."""

    value: Any


@dataclass(frozen=True, slots=True)
class Failure:
    """A call's executor raised or timed out. `type` and `message` are for readers: no secrets, no traceback."""

    type: str
    message: str


@dataclass(frozen=True, slots=True)
class Start:
    """A call that can be carried out now, with its parameters resolved."""

    call: Call
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended, and the messages that say so; to be appended together, once."""

    index: int
    status: Status
    messages: tuple[Mapping[str, Any], ...] = ()
    error: Mapping[str, Any] | None = None
    reason: str | None = None


class Execution:
    """The state of one lane's calls.

    `calls` are the lane's own; calls of the global lane that they wait for are recorded like any other. `fold` holds
    the messages of the log as the lane's reader sees them, and is fed by the caller before `record`.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        graph: Graph,
        fold: Fold,
        tools: Mapping[str, Tool],
        *,
        instance: str | None = None,
    ) -> None:
        self._calls = {call.index: call for call in calls}
        self._fold = fold
        self._tools = tools
        self._instance = instance
        self._status: dict[int, Status] = {}
        self._candidates: dict[int, None] = dict.fromkeys(self._calls)
        self._unsettled: dict[int, dict[Reference, int]] = {}
        self._readers: dict[int, list[tuple[int, Reference]]] = defaultdict(list)
        for index in self._calls:
            waits = graph.waits.get(index, {})
            self._unsettled[index] = {place: len(writers) for place, writers in waits.items()}
            for place, writers in waits.items():
                for writer in writers:
                    self._readers[writer].append((index, place))

    @property
    def statuses(self) -> dict[int, Status]:
        """The status of each of the lane's own calls."""
        return {index: self._status.get(index, Status.WAITING) for index in self._calls}

    @property
    def is_finished(self) -> bool:
        """Whether every call of the lane has ended."""
        return all(self._status.get(index) in FINAL for index in self._calls)

    def record(self, index: int, status: Status) -> bool:
        """Take note of what the log says of a call; says whether that was news.

        What the transitions do not allow is a duplicate or came late, and changes nothing.
        """
        before = self._status.get(index, Status.WAITING)
        if status not in TRANSITIONS[before]:
            return False
        self._status[index] = status
        if status is Status.WAITING:
            self._candidates[index] = None
        if status in FINAL:
            for reader, place in self._readers.pop(index, ()):
                self._unsettled[reader][place] -= 1
                self._candidates[reader] = None
        return True

    def decide(self, date: str) -> list[Start | Outcome]:
        """Everything that can be done now and was not decided before, in the order listed.

        `date` (ISO 8601, UTC) goes into the messages of outcomes that need no execution.
        """
        decisions = []
        for index in sorted(self._candidates):
            decision = self._decide(self._calls[index], date)
            if decision is not None:
                decisions.append(decision)
        self._candidates.clear()
        return decisions

    def reconsider(self, index: int) -> None:
        """Decide anew about a call whose last decision was not carried out."""
        if self._status.get(index, Status.WAITING) not in FINAL:
            self._candidates[index] = None

    def scoped(self, call: Call) -> dict[str, Any]:
        """The call's context argument: kind to folded value (SPEC R8.3)."""
        return scoped(self._fold, call.scopes)

    def scoped_messages(self, call: Call) -> list[dict[str, Any]]:
        """The parent's part of a delegate's context (SPEC R9.2)."""
        return scoped_messages(self._fold, call.scopes)

    def finish(self, index: int, result: Success | Failure, date: str) -> Outcome:
        """What a call's result means: the messages to append, or the error (SPEC R4.4-R4.6, R7.2)."""
        call = self._calls[index]
        if call.output is None:
            return self._finish_unwritten(call, result, date)
        try:
            if isinstance(result, Failure):
                error = {"type": result.type, "message": result.message}
                writes = failure_writes(call.output, error)
                if not writes:
                    return self._failed(call, error, date)
            else:
                writes = chosen_writes(call.output, result.value)
                verify_result(self._output_schema(call), writes[0].value)
            verify_writes(call, writes, self._fold)
        except (OutputError, Conflict) as problem:
            return self._failed(call, {"type": type(problem).__name__, "message": str(problem)}, date)
        messages = written_messages(call, writes, date=date, instance=self._instance)
        return Outcome(index, Status.DONE, messages)

    def _decide(self, call: Call, date: str) -> Start | Outcome | None:
        if self._status.get(call.index, Status.WAITING) is not Status.WAITING:
            return None
        if call.is_thought:
            return Outcome(call.index, Status.LATENT)
        unsettled = self._unsettled[call.index]
        verdicts = [self._readiness(expression, unsettled) for _, expression in call.reads]
        missing = next((verdict for verdict in verdicts if isinstance(verdict, str)), None)
        if missing is not None:
            return Outcome(call.index, Status.SKIPPED, reason=missing)
        if not all(verdicts) or any(map(unsettled.get, call.slices)):
            return None
        return self._start(call, date)

    def _readiness(self, expression: Expression, unsettled: Mapping[Reference, int]) -> bool | str:
        """True: can be read. False: has to wait. A text: can never be read, and why (SPEC R6.5, R6.6)."""
        for group in expression.alternatives:
            settled = [not unsettled.get(place) for place in group]
            if all(self._fold.exists(place) for place, done in zip(group, settled, strict=True) if done):
                return all(settled)
        return f"{expression} is not there and no call can bring it any more"

    def _start(self, call: Call, date: str) -> Start | Outcome:
        """Resolve and validate just before execution (SPEC R4.1)."""
        try:
            parameters = call.resolved(self._fold)
        except Conflict as conflict:
            return self._failed(call, {"type": "Conflict", "message": str(conflict)}, date)
        tool = self._tools.get(call.tool)
        if tool is not None and call.reads:
            meta = {key: value for key, value in call.properties.items() if key.startswith("_")}
            problems = tool.problems({**meta, **parameters})
            if problems:
                message = "; ".join(map(str, problems))
                return self._failed(call, {"type": "InvalidParameters", "message": message}, date)
        if call.given is not MISSING:
            return self.finish(call.index, Success(Output(str(_first(call)), call.given)), date)
        return Start(call, parameters)

    def _finish_unwritten(self, call: Call, result: Success | Failure, date: str) -> Outcome:
        if isinstance(result, Failure):
            return self._failed(call, {"type": result.type, "message": result.message}, date)
        return Outcome(call.index, Status.SENT)

    def _failed(self, call: Call, error: Mapping[str, Any], date: str) -> Outcome:
        message = error_message(call.raw, error, date=date, instance=self._instance)
        return Outcome(call.index, Status.FAILED, (message,), error=error)

    def _output_schema(self, call: Call) -> Any:
        tool = self._tools.get(call.tool)
        return tool.output_schema if tool is not None else None


def _first(call: Call) -> Reference:
    assert call.output is not None
    return call.output.alternatives[0][0]
