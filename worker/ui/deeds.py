"""Deeds: what can be done to a run from its page. Each is a method of the client, and takes a right of the token.

The bodies are read strictly: a key that is not known is refused, so that nothing that was asked for is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from acts_celery.broker_config.tokens import Right
from acts_celery.worker.client.runs import Run
from acts_celery.worker.client.undoing import Retried
from acts_celery.worker.page.opened import Query
from acts_celery.worker.web.refusals import Refused

_NAMED: Final = 100
"""How many calls of each kind an answer names; it counts all."""


class Deed(BaseModel):
    """What is asked for in one request."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    right: ClassVar[Right]

    def carry_out(self, run: Run) -> dict[str, Any]:
        """Do it; return what the answer says besides the status of the run."""
        raise NotImplementedError


class Approve(Deed):
    """Let a held call run, as it was shown, with other parameters or narrower scopes."""

    right = "decide"
    call: int | str
    parameters: dict[str, Any] | None = None
    scopes: list[str] | None = None
    shown: str | None = None

    def carry_out(self, run: Run) -> dict[str, Any]:
        """Approve it."""
        return {"id": run.approve(self.call, parameters=self.parameters, scopes=self.scopes, shown=self.shown)}


class Reject(Deed):
    """End a held call with an error."""

    right = "decide"
    call: int | str
    reason: str
    shown: str | None = None

    def carry_out(self, run: Run) -> dict[str, Any]:
        """Reject it."""
        return {"id": run.reject(self.call, self.reason, shown=self.shown)}


class Answer(Deed):
    """Answer a question: the value is the result of its call."""

    right = "decide"
    call: int | str
    value: Any
    shown: str | None = None

    def carry_out(self, run: Run) -> dict[str, Any]:
        """Answer it."""
        return {"id": run.answer(self.call, self.value, shown=self.shown)}


class ApprovePlan(Deed):
    """Let the calls of a plan run, by its digest."""

    right = "decide"
    plan: str

    def carry_out(self, run: Run) -> dict[str, Any]:
        """Approve it."""
        run.approve_plan(self.plan)
        return {}


class _OnFailed(Deed):
    """Which failed calls are meant."""

    right = "control"
    call: int | None = None
    instance: str | None = None


class Retry(_OnFailed):
    """Carry out failed calls again; `dry` says what would come of it, and changes nothing."""

    downstream: bool = False
    effects: bool = False
    dry: bool = False

    def carry_out(self, run: Run) -> dict[str, Any]:
        """Retry them."""
        if self.effects and not self.downstream:
            raise Refused(400, "BadBody", "effects says what downstream carries out again: give both")
        retry = run.would_retry if self.dry else run.retry
        return _named(retry(call=self.call, instance=self.instance, downstream=self.downstream, effects=self.effects))


class Skip(_OnFailed):
    """Take failed calls as done with a value."""

    value: Any = None

    def carry_out(self, run: Run) -> dict[str, Any]:
        """Skip them."""
        return _named(run.retry(call=self.call, instance=self.instance, skip=True, value=self.value))


class Pause(Deed):
    """Begin no more calls."""

    right = "control"

    def carry_out(self, run: Run) -> dict[str, Any]:
        """Pause the run."""
        run.pause()
        return {}


class Resume(Deed):
    """Go on; with more ticks for a loop."""

    right = "control"
    ticks: int | None = None

    def carry_out(self, run: Run) -> dict[str, Any]:
        """Resume the run."""
        run.resume(ticks=self.ticks)
        return {}


class Cancel(Deed):
    """End the run now."""

    right = "control"

    def carry_out(self, run: Run) -> dict[str, Any]:
        """Cancel the run."""
        run.cancel()
        return {}


class Fork(Deed):
    """A new run that goes on from a moment of this one."""

    right = "control"
    at: str | None = None
    paused: bool = False

    def carry_out(self, run: Run) -> dict[str, Any]:
        """Fork the run."""
        fork = run.fork(Query({"at": self.at or ""}).moment("at"), paused=self.paused)
        return {"run": fork.id, "status": fork.status()["status"]}


DEEDS: Final[Mapping[str, type[Deed]]] = {
    "approve": Approve,
    "reject": Reject,
    "answer": Answer,
    "approve_plan": ApprovePlan,
    "retry": Retry,
    "skip": Skip,
    "pause": Pause,
    "resume": Resume,
    "cancel": Cancel,
    "fork": Fork,
}
"""Every deed, by the last part of its path."""


def read_deed(name: str, body: Any) -> Deed:
    """The deed of a name that a body asks for. Raises `Refused`."""
    try:
        return DEEDS[name].model_validate(body)
    except ValidationError as error:
        wrong = (f"{'/'.join(map(str, each['loc'])) or 'the body'}: {each['msg']}" for each in error.errors())
        raise Refused(400, "BadBody", f"{name} is not asked for in this way: {'; '.join(wrong)}") from None


def _named(done: Retried) -> dict[str, Any]:
    """What a retry has done, or would do."""
    lists = done.to_dict()
    named: dict[str, Any] = {name: calls[:_NAMED] for name, calls in lists.items()}
    return named | {"counts": {name: len(calls) for name, calls in lists.items()}}
