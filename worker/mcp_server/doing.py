"""The tools that submit, decide (SPEC R14.2) and cancel."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from pydantic import Field

from acts_celery.worker.errors import BadQuery
from acts_celery.worker.page.values import within

from .tools import Asking, OfRun, ServerTool, SubmittedDocument

_FINDINGS_BYTES: Final = 20_000
_TEXT: Final = {"type": "string"}
_SHOWN: Final = "What `held` has shown with the call: the decision is about that and nothing else."
_CALL: Final = "The id of the held call, as `held` has it."


class Submit(ServerTool):
    """Submit a run, and give its id at once; `result` waits for its end. A submission that is wrong is refused whole,
    and nothing runs. With a `key` the same document twice is one run, so a call whose answer was lost can be repeated.
    """

    right = "submit"
    is_destructive = True
    output: ClassVar[Mapping[str, Any]] = {"type": "object", "properties": {"run": _TEXT}, "required": ["run"]}
    document: SubmittedDocument
    key: str | None = Field(None, min_length=1, max_length=200, description="A text of your own for this submission.")
    name: str | None = Field(None, min_length=1, max_length=200, description="What the run is called.")
    tags: list[str] = Field([], max_length=20, description="Texts to find the run by.")
    allow: list[str] | None = Field(None, description="Only these tools, activities and delegates may be called.")

    async def carry_out(self, asking: Asking) -> dict[str, Any]:
        """Submit it."""
        run, plan = await asking.runs.submit(
            asking.principal, self.document, key=self.key, name=self.name, tags=tuple(self.tags), allow=self.allow
        )
        findings = await to_thread(lambda: within((each.to_dict() for each in plan.findings), _FINDINGS_BYTES))
        return {"run": run.id, "findings": findings}


class _Decision(OfRun):
    right = "decide"
    is_destructive = True
    is_idempotent = True
    output: ClassVar[Mapping[str, Any]] = {"type": "object", "properties": {"run": _TEXT}, "required": ["run"]}


class Approve(_Decision):
    """Let a held call run exactly as `held` has shown it, or with other parameters or narrower scopes; or let a plan
    run, by its digest. The same decision twice is one.
    """

    call: str | None = Field(None, max_length=1_000, description=_CALL)
    shown: str | None = Field(None, max_length=100, description=_SHOWN)
    plan: str | None = Field(None, max_length=200, description="The digest of the plan that `held` has shown.")
    parameters: dict[str, Any] | None = Field(None, description="Other parameters, in place of all that were shown.")
    scopes: list[str] | None = Field(None, description="Narrower scopes: kinds and references.")

    async def carry_out(self, asking: Asking) -> dict[str, Any]:
        """Approve it."""
        run = await asking.runs.run(asking.principal, self.run)
        if self.plan is not None:
            if (self.call, self.shown, self.parameters, self.scopes) != (None, None, None, None):
                raise BadQuery("a plan is approved by `plan` alone")
            await run.approve_plan(self.plan)
            return {"run": run.id}
        if self.call is None or self.shown is None:
            raise BadQuery("give `call` and `shown` as `held` has them, or `plan`")
        id_ = await run.approve(self.call, parameters=self.parameters, scopes=self.scopes, shown=self.shown)
        return {"run": run.id, "decision": id_}


class Reject(_Decision):
    """End a held call with the error `Rejected` and a reason. The same decision twice is one."""

    call: str = Field(max_length=1_000, description=_CALL)
    shown: str = Field(max_length=100, description=_SHOWN)
    reason: str = Field(min_length=1, max_length=10_000, description="Why: the run and its model read it.")

    async def carry_out(self, asking: Asking) -> dict[str, Any]:
        """Reject it."""
        run = await asking.runs.run(asking.principal, self.run)
        return {"run": run.id, "decision": await run.reject(self.call, self.reason, shown=self.shown)}


class Answer(_Decision):
    """Answer a held call that is a question: the value is its result. The same answer twice is one."""

    call: str = Field(max_length=1_000, description=_CALL)
    shown: str = Field(max_length=100, description=_SHOWN)
    value: Any = Field(description="The answer; one of the question's options, where it has some.")

    async def carry_out(self, asking: Asking) -> dict[str, Any]:
        """Answer it."""
        run = await asking.runs.run(asking.principal, self.run)
        return {"run": run.id, "decision": await run.answer(self.call, self.value, shown=self.shown)}


class Cancel(OfRun):
    """End a run now: what comes later does not count."""

    right = "control"
    is_destructive = True
    output: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "properties": {"run": _TEXT, "status": _TEXT},
        "required": ["run", "status"],
    }

    async def carry_out(self, asking: Asking) -> dict[str, Any]:
        """Cancel it."""
        run = await asking.runs.run(asking.principal, self.run)
        await run.cancel()
        return {"run": run.id, "status": (await run.status())["status"]}


DOING: Final[Mapping[str, type[ServerTool]]] = {
    "submit": Submit,
    "approve": Approve,
    "reject": Reject,
    "answer": Answer,
    "cancel": Cancel,
}
"""The tools that change something, each by a right of its own."""
