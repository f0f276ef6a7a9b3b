"""Outcomes: what the result of a call means: the messages to append, or the error (SPEC R4.4-R4.6, R4.10, R7.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from acts_celery.protocol.calls.approvals import NONE, Approvals
from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.elements import element_of
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
from acts_celery.protocol.calls.trust import ToolTrust, said_of
from acts_celery.protocol.language.errors import Conflict, OutputError, shortened
from acts_celery.protocol.language.limits import Limits
from acts_celery.protocol.language.messages import error_message
from acts_celery.protocol.language.references import Expression
from acts_celery.protocol.state.fold import Fold
from acts_celery.protocol.state.labels import TRUSTED, Labels
from acts_celery.protocol.state.operations import Method

from .decisions import Failure, Outcome, Success
from .elements import unfit
from .statuses import Status

_DEFAULT: Final = Limits()


@dataclass(frozen=True)
class Terms:
    """What the calls of a lane are carried out by, beside what they wait for."""

    tools: Mapping[str, Tool]
    returns: Mapping[str, Tool] = field(default_factory=dict)
    """The tools that activities are, by name: what those say of results counts where a call's own tool says nothing."""
    instance: str | None = None
    trust: Mapping[str, ToolTrust] = field(default_factory=dict)
    """What is said of tools and code, by name (SPEC R16.1)."""
    refuses_untrusted: bool = False
    """Whether a call with effects fails where others would decide, and is not held (SPEC R16.4)."""
    added: Mapping[str, ToolTrust] = field(default_factory=dict)
    """What of `trust` was not said when the run was submitted: calls may have begun without it."""
    added_sources: Labels = TRUSTED
    """Of results in any lane, by what was not said when the run was submitted: the log may not name them."""
    approvals: Approvals = NONE
    """Which calls are held."""
    limits: Limits = _DEFAULT
    """What one call is given at most."""
    defers_errors: bool = False
    """Whether what a failed call says is in its outcome alone: in a loop the message comes at the end of the tick
    (SPEC R13.1).
    """

    def trust_of(self, call: Call) -> ToolTrust:
        """What is said of a call, by its tool and by its code."""
        return said_of(self.trust, call.tool, call.runner.name)

    def outcome(self, call: Call, result: Success | Failure, date: str, fold: Fold) -> Outcome:
        """What a result means where a fold says what is there."""
        if isinstance(result, Failure) and result.is_for_no_alternative:
            return self.failed(call, result, date)
        if element_of(call.index) is not None:
            return self._element_outcome(call, result, date)
        if call.output is None:
            return Outcome(call.index, Status.SENT) if isinstance(result, Success) else self.failed(call, result, date)
        if isinstance(result, Failure):
            return self._rescued(call, call.output, result, date, fold)
        try:
            possible = possible_writes(call.output, result.value)
        except OutputError as problem:
            return self.failed(call, Failure("OutputError", str(problem)), date)
        try:
            self._verify_result(call, result, possible[0])
            return self._done(call, admitted_writes(call, possible, fold), date)
        except OutputError as problem:
            return self._rescued(call, call.output, Failure("OutputError", str(problem)), date, fold)
        except Conflict as problem:
            return self.failed(call, Failure("Conflict", str(problem)), date)

    def failed(self, call: Call, failure: Failure, date: str) -> Outcome:
        """The outcome of a call, or an element, that has failed."""
        error = _error(failure)
        if (element := element_of(call.index)) is not None:
            error["element"] = element
        message = error_message(call.raw, error, date=date, instance=self.instance)
        return Outcome(call.index, Status.FAILED, () if self.defers_errors else (message,), error=error)

    def invalid(self, call: Call, parameters: Mapping[str, Any], date: str) -> Outcome | None:
        """How a call ends whose resolved parameters its tool refuses, or which cannot be carried out for each element
        of them.
        """
        if call.each and element_of(call.index) is None:
            failure = unfit(call, parameters, self.limits)
            return self.failed(call, failure, date) if failure is not None else None
        tool = self.tools.get(call.tool)
        if tool is None:
            return None
        is_latent = call.runner.executor is Executor.LATENT
        problems = tool.problems(call.with_parameters(parameters), is_secret=True, is_latent=is_latent)
        if not problems:
            return None
        return self.failed(call, Failure("InvalidParameters", "; ".join(map(str, problems))), date)

    def _element_outcome(self, call: Call, result: Success | Failure, date: str) -> Outcome:
        """What the result of an element means: it is written with those of the others."""
        if isinstance(result, Failure) or call.output is None:
            return self.failed(call, result, date) if isinstance(result, Failure) else Outcome(call.index, Status.SENT)
        if isinstance(result.value, (Output, Message)):
            text = f"an element of _each gives a value, and no {type(result.value).__name__}"
            return self.failed(call, Failure("OutputError", text), date)
        try:
            self._verify_result(call, result, [Write(call.written[0], result.value)])
        except OutputError as problem:
            return self.failed(call, Failure("OutputError", str(problem)), date)
        return Outcome(call.index, Status.DONE, value=result.value)

    def _verify_result(self, call: Call, result: Success, writes: list[Write]) -> None:
        """Hold a value against what its tool promises, or the activity's annotation (SPEC R4.6): of a call with
        `_each` each element of it.

        Raises `OutputError`.
        """
        tool = self.tools.get(call.tool)
        if (tool is None or tool.compiled_output is None) and call.runner.executor is Executor.ACTIVITY:
            tool = self.returns.get(call.runner.name)
        if call.each and element_of(call.index) is None:
            writes = list(element_writes(writes[0]))
        if tool is not None:
            verify_result(tool, result.value, writes)

    def _rescued(self, call: Call, output: Expression, failure: Failure, date: str, fold: Fold) -> Outcome:
        """An exception as the result of the last of several alternatives, if its place admits it (SPEC R4.4)."""
        writes = failure_writes(output, _error(failure))
        if not writes:
            return self.failed(call, failure, date)
        try:
            call = _fitting(call, writes, fold)
            verify_writes(call, writes, fold)
        except (OutputError, Conflict):
            return self.failed(call, failure, date)
        return replace(self._done(call, writes, date), is_rescued=True)

    def _done(self, call: Call, writes: list[Write], date: str) -> Outcome:
        return Outcome(call.index, Status.DONE, written_messages(call, writes, date=date, instance=self.instance))


def _fitting(call: Call, writes: list[Write], fold: Fold) -> Call:
    """The call as it writes an exception: by `set` where its own method does not fit one (SPEC R4.4)."""
    try:
        verify_writes(call, writes, fold)
    except Conflict:
        properties = {key: value for key, value in call.properties.items() if key != "_outputMethod"}
        return replace(call, method=Method.SET, properties=properties)
    return call


def _error(failure: Failure) -> dict[str, Any]:
    """The error as readers see it: bounded, and fit to be stored, for an exception's text may hold anything."""
    return {"type": _printable(failure.type), "message": _printable(shortened(failure.message, 4_000))}


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
