"""The errors of the backend: the caller's fault, an activity's, or the infrastructure's.

The text of each error is one line that says what is wrong and what to do; the command line prints it as it is.
A submission that is wrong raises `protocol.Rejected`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from . import limits


class WorkerError(Exception):
    """Root of the backend's errors."""

    code: ClassVar[str] = "worker_error"
    """Names the kind of error for programs; it does not change between versions."""


class Terminated(SystemExit):
    """SIGTERM, as a command hears it: whatever is under way unwinds, as for Ctrl-C."""


class ActivitiesError(WorkerError):
    """A module of activities that cannot be loaded, or an activity that cannot be registered."""

    code = "activities_error"


class ContractsError(ActivitiesError):
    """Contracts of activities that cannot be read: of a file, or of a worker of another version."""

    code = "contracts_error"


class NotPossibleNow(WorkerError):
    """Root of what cannot be done as things stand: there is no such run or call, or it is not in the state for it."""

    code = "not_possible_now"


class OverLimit(NotPossibleNow):
    """More would begin than is allowed: by the limits of a token, or by the operator's for every run."""

    code = "over_limit"


class RunNotFound(NotPossibleNow):
    """No run has that id: it never existed, or its retention is over."""

    code = "run_not_found"

    def __init__(self, run: str, meant: str = "") -> None:
        """Make the error; `meant` is a hint at a run of a similar name, appended to the text."""
        super().__init__(f"no run {run}{meant or ': it never was in this log, or its retention is over'}")


class RunBroken(NotPossibleNow):
    """A run that has lost a part of its log: the server evicted keys, or somebody deleted them."""

    code = "run_broken"

    def __init__(self, run: str, lost: Sequence[str]) -> None:
        super().__init__(
            f"run {run} is BROKEN, its {' and '.join(lost)} is gone: the server of the log has thrown keys away, or "
            "somebody has deleted them. Set its maxmemory-policy to noeviction (see `acts doctor`); cancel the run, "
            "delete it and submit it again"
        )


class AmbiguousRun(NotPossibleNow):
    """A name, or the beginning of an id, that several runs share."""

    code = "ambiguous_run"


class NotThere(NotPossibleNow, KeyError):
    """Root of errors about a name that a result does not have."""

    code = "not_there"

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError would show its representation


class InstanceNotFound(NotThere):
    """The run has no such instance; `known` are its instances."""

    code = "instance_not_found"

    def __init__(self, run: str, instance: str, known: Sequence[str]) -> None:
        from ..protocol.errors import Speller, some_of

        some = some_of(known, limits.INSTANCES_NAMED)
        meant = Speller().hint(instance, known) or f"; it has {some or 'none'}"
        super().__init__(f"run {run} has no instance {instance!r}{meant}")


class InstanceDeleted(NotThere):
    """An instance that a run had, and that was deleted."""

    code = "instance_deleted"

    def __init__(self, run: str, instance: str) -> None:
        super().__init__(f"instance {instance!r} of run {run} was deleted: see `acts log {run} --audit`")


class ValueNotFound(NotThere):
    """A place of a run's data without a value; the text says why, as far as the result tells."""

    code = "value_not_found"


class RunFailed(NotPossibleNow):
    """A run that has failed or was cancelled, where its result was asked for. `result` is what there is of it, and
    `result.errors` are the calls that failed.
    """

    code = "run_failed"

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message)
        self.result = result


class RunTimeout(WorkerError, TimeoutError):
    """A run that did not end while you waited for it; it goes on."""

    code = "run_timeout"


class RunOver(NotPossibleNow):
    """A run that has ended and cannot be changed any more."""

    code = "run_over"


class NoLoop(NotPossibleNow):
    """A run without a loop: no model is asked in it."""

    code = "no_loop"


class IsSimulation(NotPossibleNow):
    """A simulation: no other run can go on from it."""

    code = "is_simulation"

    def __init__(self, run: str) -> None:
        super().__init__(
            f"run {run} is a simulation (config.latent): its values come from a model, so no other run can use them; "
            "submit its document again without config.latent"
        )


class PlanChanged(NotPossibleNow):
    """Another plan waits for an approval, or none."""

    code = "plan_changed"


class PlanWaits(NotPossibleNow):
    """A run that waits for the approval of its plan."""

    code = "plan_waits"

    def __init__(self, run: str) -> None:
        super().__init__(f"the plan of run {run} is to be approved: see `acts held`, then `acts approve`")


class NoSuchTick(NotPossibleNow):
    """A tick that a loop has not asked."""

    code = "no_such_tick"


class NoSuchCall(NotPossibleNow):
    """A call that a run does not have."""

    code = "no_such_call"


class NoSuchAnswer(NotPossibleNow):
    """An address at which a page finds nothing."""

    code = "no_such_answer"


class BadQuery(WorkerError):
    """A question to a page that lacks something, or has a value that is not allowed."""

    code = "bad_query"


class BadBody(BadQuery):
    """An action that is asked for with parameters that it does not take, or that do not go together."""

    code = "bad_body"


class NothingToRetry(NotPossibleNow):
    """None of the calls that were asked for has failed."""

    code = "nothing_to_retry"


class OutputUnfit(WorkerError):
    """An output that fits the schema of a run, and that the type given as this schema refuses."""

    code = "output_unfit"


class NotHeld(NotPossibleNow):
    """A call that does not wait for a person, so there is nothing to decide."""

    code = "not_held"


class NoSuchRule(NotPossibleNow):
    """A rule that the run was not given."""

    code = "no_such_rule"


class HeldAnew(NotPossibleNow):
    """Something else waits under the id than what was shown: nothing was decided. Look at what is held now."""

    code = "held_anew"


class AlreadyDecided(NotPossibleNow):
    """A held call that was already decided otherwise: the first decision counts."""

    code = "already_decided"


class BeingAmended(NotPossibleNow):
    """A run whose amendment was interrupted: repeat that first."""

    code = "being_amended"


class OtherFormat(NotPossibleNow):
    """A run that another version wrote, in a format that this one does not read."""

    code = "other_format"


class LetterNotFound(NotPossibleNow):
    """No dead letter has that id: it never existed, was dropped, or was sent again."""

    code = "letter_not_found"


class InfrastructureError(WorkerError):
    """A server that does not answer, is full, or refuses."""

    code = "infrastructure_error"


class QueueRefused(InfrastructureError):
    """This process's user may not write to a queue, or the key is no queue: trying again does not help.

    `tasks` are those that were not published for it; all others were.
    """

    code = "queue_refused"

    def __init__(self, text: str, tasks: Sequence[object] = ()) -> None:
        super().__init__(text)
        self.tasks = tasks


class MalformedMessage(WorkerError):
    """The argument of a task that no process of ours has sent: nothing is done about it.

    What is said of it may name a part of it, which must not forge a line of a log.
    """

    code = "malformed_message"

    def __init__(self, problem: str) -> None:
        super().__init__((problem if problem.isprintable() else ascii(problem))[:300])


class CallFailed(WorkerError):
    """Raised by an activity to fail its call with a message for readers; `retry` of False ends the attempts."""

    code = "call_failed"

    def __init__(self, message: str, *, retry: bool = True) -> None:
        super().__init__(message)
        self.retry = retry


class InvalidProgress(WorkerError):
    """Raised in an activity by what it reports of its progress: it is no JSON, or too large."""

    code = "invalid_progress"


class InvalidParameters(CallFailed):
    """Parameters that an activity's signature does not take; another attempt would not help."""

    code = "invalid_parameters"

    def __init__(self, message: str) -> None:
        super().__init__(message, retry=False)
