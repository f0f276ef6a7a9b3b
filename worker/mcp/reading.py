"""The tools: those that read runs, and those that act on runs."""

from __future__ import annotations

import time
from asyncio import to_thread
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from ...protocol import Plan, Rejected
from ...protocol.errors import segments
from .. import limits
from ..actions import ACTIONS
from ..client.async_client import AsyncRun
from ..client.results import RunStatus
from ..errors import BadQuery
from ..store.keys import ENDED_STATUSES
from ..ui.access import problems
from ..ui.opened import shown, within
from .tools import NoValue, RunTool, ServerTool, SubmittedDocument, ToolContext, described

_TEXT: Final = {"type": "string"}
_INTEGER: Final = {"type": "integer"}
_OPTIONAL: Final = {"type": ["string", "null"]}
_COUNTS: Final = {"type": "object", "additionalProperties": _INTEGER}
_ERRORS: Final = {"type": "array", "items": {"type": "object", "properties": {"pointer": _TEXT, "message": _TEXT}}}
_LIST: Final = {"type": "array", "items": {"type": "object"}}


def answer_schema(*required: str, **properties: Any) -> dict[str, Any]:
    """The schema of an answer with these properties."""
    return {"type": "object", "properties": properties, "required": list(required)}


class Check(ServerTool):
    """Find everything that is wrong with a submission, without running it: all errors with JSON pointers, or its waves
    of calls that can run at the same time, and findings.
    """

    output = answer_schema("valid", "errors", valid={"type": "boolean"}, errors=_ERRORS)
    document: SubmittedDocument
    allow: list[str] | None = Field(None, description="Only these tools, activities and delegates may be called.")

    async def execute(self, context: ToolContext) -> dict[str, Any]:
        """Check the document."""
        try:
            plan = await context.runs.client(context.principal).check(self.document, allow=self.allow)
        except Rejected as rejected:
            return {"valid": False, **problems(rejected)}
        found: dict[str, Any] = await to_thread(lambda: shown(plan.to_dict(), limits.PLAN_BYTES))
        return {"valid": True, "errors": [], **found}


class ListActivities(ServerTool):
    """List what a submission can call: activities, with the schema of their parameters, their results and whether they
    change something outside (`effects`), and the names of delegates. `next` is given as `after` for more.
    """

    output = answer_schema("activities", "delegates", "next", activities=_LIST, next=_OPTIONAL)
    search: str | None = Field(None, max_length=200, description="Part of a name or of a description.")
    after: str | None = Field(None, max_length=256, description="What an answer before has given as `next`.")

    async def execute(self, context: ToolContext) -> dict[str, Any]:
        """Read what is registered here, or what the workers announce."""
        known = await to_thread(lambda: context.runs.client(context.principal).checker.registry)
        part, after = (self.search or "").lower(), self.after or ""
        names = [
            name
            for name, one in sorted(known.activities.items())
            if name > after and part in f"{name} {one.schema.get('description', '')}".lower()
        ]
        listed = within(
            ({"name": name, **asdict(described(known.activities[name].schema))} for name in names), limits.PLAN_BYTES
        )
        delegates = [name for name in sorted(known.delegates) if part in name.lower()]
        more = listed[-1]["name"] if 0 < len(listed) < len(names) else None
        return {"activities": listed, "delegates": delegates, "next": more}


class _PageTool(RunTool):
    """A tool that gives a document of the pages about a run; its other parameters are the page's."""

    page: ClassVar[str]

    async def execute(self, context: ToolContext) -> dict[str, Any]:
        """Read the document."""
        found: dict[str, Any] = await context.runs.page(
            await context.runs.find(context.principal, self.run), self.page, _query(self)
        )
        return found


class Runs(ServerTool):
    """List the runs, the newest first: id, name, status, counts of calls, times. `next` is what to give as `after`."""

    output = answer_schema("runs", "next", runs=_LIST, next=_OPTIONAL)
    status: RunStatus | None = Field(None, description="Only runs of this status.")
    search: str | None = Field(None, max_length=200, description="Part of an id, a name or a tag.")
    after: str | None = Field(None, max_length=256, description="What an answer before has given as `next`.")

    async def execute(self, context: ToolContext) -> dict[str, Any]:
        """Read the list."""
        found: dict[str, Any] = await context.runs.listed(context.principal, _query(self))
        return found


class Status(RunTool):
    """The state of a run: its status, how many calls have which status, what waits for a person, times, cost."""

    output = answer_schema("run", "status", "counts", "held", run=_TEXT, status=_TEXT, counts=_COUNTS, held=_INTEGER)

    async def execute(self, context: ToolContext) -> dict[str, Any]:
        """Read the page of the run."""
        seen = await context.runs.page(await context.runs.find(context.principal, self.run))
        return {key: value for key, value in seen.items() if key != "output"}


class Result(RunTool):
    """The result of a run: status, output, global values and calls; of an `instance` its own; or one value by its
    `path`. Values are data that other people and programs may have written. What is large is cut, in its place, to an
    object with the key `…cut`: ask for that part by `path` or `pointer`, or for more by `most_bytes`. With
    `wait_seconds` it waits for the run's end; it answers earlier when only a person can let the run go on.
    """

    output = answer_schema("run", "status", "held", run=_TEXT, status=_TEXT, held=_INTEGER, reason=_OPTIONAL)
    wait_seconds: float = Field(
        0, ge=0, le=limits.READING_LONGEST_WAIT_SECONDS, description="How long to wait for the run's end."
    )
    path: str | None = Field(None, max_length=4_000, description="A place, such as `†state.report.title`.")
    instance: str | None = Field(None, max_length=1_000, description="An instance of the run.")
    pointer: str | None = Field(
        None, max_length=4_000, description="A JSON pointer into the value at `path`, else into the output: `/items/3`."
    )
    most_bytes: int = Field(
        limits.SHOW_BYTES, ge=200, le=limits.READING_MOST_BYTES, description="How much of each value to show."
    )

    async def execute(self, context: ToolContext) -> dict[str, Any]:
        """Wait, and read the result."""
        run = await context.runs.find(context.principal, self.run)
        seen = await awaited(context, run, self.wait_seconds)
        answer = {key: seen[key] for key in ("run", "status", "reason", "held", "counts", "instances")}
        if self.path is not None:
            value = await context.runs.value(run, self.path, self.instance)
            return answer | {"value": shown(part_of(value, self.pointer), self.most_bytes)}
        if seen["status"] in ENDED_STATUSES and (self.pointer is not None or self.most_bytes != limits.SHOW_BYTES):
            output = await context.runs.output(run)
            if self.pointer is not None:
                return answer | {"value": shown(part_of(output, self.pointer), self.most_bytes)}
            seen["output"] = shown(output, self.most_bytes)
        elif self.pointer is not None:
            raise NoValue(f"run {run} is {seen['status']}: it has no output yet")
        lane = await context.runs.page(run, "instance", {"name": self.instance or ""})
        calls = within(map(_call, lane["calls"]), limits.CALLS_BYTES)
        more = len(lane["calls"]) - len(calls) + lane["more"]
        about = {"instance": self.instance, "instance_status": lane["status"]} if self.instance is not None else {}
        data = shown(lane["data"], self.most_bytes)
        return {**answer, "output": seen["output"], **about, "data": data, "calls": calls, "more_calls": more}


class Instances(_PageTool):
    """List the instances of a run with the status of each. `next` is given as `after` for more; while `reading` is not
    null the log is being counted, and asking again says more.
    """

    page = "instances"
    output = answer_schema("instances", "next", instances=_LIST, next=_OPTIONAL)
    status: Literal["completed", "failed", "running", "held", "paused", "scheduled", "cancelled", "deleted"] | None = (
        Field(None, description="Only instances of this status.")
    )
    search: str | None = Field(None, max_length=200, description="Part of a name.")
    after: str | None = Field(None, max_length=20, description="What an answer before has given as `next`.")


class Explain(_PageTool):
    """Where a value comes from, or why there is none: the messages that wrote it, the calls that may write or read it,
    who sees it.
    """

    page = "place"
    output = answer_schema("path", path=_TEXT)
    path: str = Field(min_length=1, max_length=4_000, description="A place, such as `†state.report`.")
    instance: str | None = Field(None, max_length=1_000, description="As this instance sees it.")
    at: str | None = Field(None, max_length=50, description="As of a moment: the id of an entry of the log.")


class Held(RunTool):
    """List what waits for a person in a run: each held call with all that it will run with, as data, and `shown`, which
    a decision on it carries; or a plan with its digest as `plan`. `questions` has calls that wait for the same source
    and are decided together by their `calls`: what all have the `same`, and in `rows` what `differs`. `rules` has what
    lets later calls start, in `text` and as data.
    """

    output = answer_schema("held", "questions", "rules", held=_LIST, questions=_LIST, rules=_LIST)

    async def execute(self, context: ToolContext) -> dict[str, Any]:
        """Read the list."""
        run = await context.runs.find(context.principal, self.run)
        return {what: await context.runs.page(run, what) for what in ("held", "questions", "rules")}


READING: Final[Mapping[str, type[ServerTool]]] = {
    "activities": ListActivities,
    "check": Check,
    "runs": Runs,
    "status": Status,
    "result": Result,
    "instances": Instances,
    "explain": Explain,
    "held": Held,
}
"""The tools that take the right to read."""


def part_of(value: Any, pointer: str | None) -> Any:
    """The part of a value that a JSON pointer names. Raises `BadQuery`, `NoValue`."""
    if not pointer:
        return value
    if not pointer.startswith("/"):
        raise BadQuery(f"pointer={pointer[:100]!r} is no JSON pointer: it begins with /")
    for segment in segments(pointer):
        if isinstance(value, dict) and segment in value:
            value = value[segment]
        elif isinstance(value, list) and segment.isascii() and segment.isdigit() and int(segment) < len(value):
            value = value[int(segment)]
        else:
            raise NoValue(f"the value has no part {pointer[:200]!r}: there is no {segment[:100]!r}")
    return value


async def awaited(context: ToolContext, run: str, wait_seconds: float) -> dict[str, Any]:
    """The overview of a run: now, or when it has ended, waits for people alone, or the time is over."""
    until = time.monotonic() + wait_seconds
    while True:
        seen: dict[str, Any] = await context.runs.page(run)
        counts, left = seen["counts"], until - time.monotonic()
        if seen["status"] != "running" or left <= 0:
            return seen
        if seen["held"] > 0 and not counts.get("running") and await context.runs.page(run, "held"):
            return seen  # nobody has decided yet: what was decided on counts as held until a worker takes it up
        ended = sum(count for status, count in counts.items() if status not in ("waiting", "running", "held"))
        shown = ", ".join(f"{count} {status}" for status, count in counts.items()) or seen["status"]
        await context.progress(ended, sum(counts.values()) or None, f"run {run}: {shown}")
        await context.runs.ended(context.principal, run, min(left, limits.READING_LOOK_SECONDS))


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("id", "index", "tool", "instance", "status", "error", "reason", "child", "tick")
    return {key: call[key] for key in kept if call.get(key) is not None}


def _query(call: ServerTool) -> dict[str, str]:
    """The parameters of a call that are set, but for the run."""
    return {
        name: value for name in type(call).model_fields if name != "run" and (value := getattr(call, name)) is not None
    }


# The tools that submit, decide (SPEC R14.2) and cancel.

_SHOWN: Final = "What `held` has shown with the call: the decision is about that and nothing else."
_CALL: Final = "The id of the held call, as `held` has it."
_RULE: Final = (
    "Also let later calls like it start: what each parameter that others decide may be, as `shown`, `words` (in the "
    'user\'s own words), `any`, {"one_of": […]} or {"at_most": 50}.'
)
_CALLS: Final = "Instead of one call: `calls` of a question of `held`, which is all that was shown there."


class Submit(ServerTool):
    """Submit a run, and give its id at once; `result` waits for its end. A submission that is wrong is refused whole,
    and nothing runs. With a `key` the same document twice is one run, so a call whose answer was lost can be repeated.
    """

    right = "submit"
    is_destructive = True
    output = answer_schema("run", run=_TEXT)
    document: SubmittedDocument
    key: str | None = Field(None, min_length=1, max_length=200, description="A text of your own for this submission.")
    name: str | None = Field(None, min_length=1, max_length=200, description="What the run is called.")
    tags: list[str] = Field([], max_length=20, description="Texts to find the run by.")
    allow: list[str] | None = Field(None, description="Only these tools, activities and delegates may be called.")

    async def start(self, context: ToolContext) -> str:
        """Submit the document, and return the run's id."""
        run, _ = await self._submitted(context)
        return run.id

    async def execute(self, context: ToolContext) -> dict[str, Any]:
        """Submit the document."""
        run, plan = await self._submitted(context)
        findings = await to_thread(lambda: within((each.to_dict() for each in plan.findings), limits.FINDINGS_BYTES))
        return {"run": run.id, "findings": findings}

    async def _submitted(self, context: ToolContext) -> tuple[AsyncRun, Plan]:
        return await context.runs.submit(
            context.principal, self.document, key=self.key, name=self.name, tags=tuple(self.tags), allow=self.allow
        )


_TOLD: Final[Mapping[str, str]] = {
    "decision": "id",
    **{name: name for name in ("decisions", "left", "undo", "undone", "not_undone")},
}
"""The property of an action's answer besides its run, by the action's own name for it."""


class _ActionTool(RunTool):
    """A tool that is one of the actions (`worker.actions`)."""

    is_destructive = True
    action: ClassVar[str]

    async def execute(self, context: ToolContext) -> dict[str, Any]:
        """Run the action."""
        run = await context.runs.run(context.principal, self.run)
        done = await to_thread(partial(ACTIONS[self._chosen()].do, run.plain, **self._parameters()))
        told = {name: done[field] for name, field in _TOLD.items() if field in done}
        return {"run": run.id, **told}

    def _chosen(self) -> str:
        """The name of the action. Raises `BadQuery`."""
        return self.action

    def _parameters(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields if name != "run"}


_TOGETHER: Final = {"approve": "approve_together", "reject": "reject_together"}
"""The actions that decide on several calls, by those that decide on one."""


class _DecisionTool(_ActionTool):
    right = "decide"
    is_idempotent = True
    output = answer_schema("run", run=_TEXT)


class ApproveTool(_DecisionTool):
    """Let a held call run exactly as `held` has shown it, or with other parameters or narrower scopes; let the calls of
    a question run as it has shown them; or let a plan run, by its digest. The same decision twice is one.
    """

    action = "approve"
    call: str | None = Field(None, max_length=1_000, description=_CALL)
    shown: str | None = Field(None, max_length=100, description=_SHOWN)
    calls: dict[str, str] | None = Field(None, description=_CALLS)
    plan: str | None = Field(None, max_length=200, description="The digest of the plan that `held` has shown.")
    parameters: dict[str, Any] | None = Field(None, description="Other parameters, in place of all that were shown.")
    scopes: list[str] | None = Field(None, description="Narrower scopes: kinds and references.")
    rule: dict[str, Any] | None = Field(None, description=_RULE)

    def _chosen(self) -> str:
        if self.plan is None and self.calls is None and None in (self.call, self.shown):
            raise BadQuery("give `call` and `shown` as `held` has them, or `calls`, or `plan`")
        if (self.plan is not None or self.calls is not None) and len(self._parameters()) > 1:
            raise BadQuery("a plan is approved by `plan` alone, and several calls by `calls` alone")
        return (
            "approve_plan"
            if self.plan is not None
            else _TOGETHER[self.action]
            if self.calls is not None
            else self.action
        )

    def _parameters(self) -> dict[str, Any]:
        return _query(self)


class RejectTool(_DecisionTool):
    """End a held call, or all calls of a question, with the error `Rejected` and a reason. The same decision twice is
    one.
    """

    action = "reject"
    call: str | None = Field(None, max_length=1_000, description=_CALL)
    shown: str | None = Field(None, max_length=100, description=_SHOWN)
    calls: dict[str, str] | None = Field(None, description=_CALLS)
    reason: str = Field(min_length=1, max_length=10_000, description="Why: the run and its model read it.")

    def _chosen(self) -> str:
        given = [name for name in ("call", "shown", "calls") if getattr(self, name) is not None]
        if given not in (["call", "shown"], ["calls"]):
            raise BadQuery("give either `call` and `shown`, or `calls`, as `held` has them")
        return self.action if self.calls is None else _TOGETHER[self.action]

    def _parameters(self) -> dict[str, Any]:
        return _query(self)


class AnswerTool(_DecisionTool):
    """Answer a held call that is a question: the value is its result. The same answer twice is one."""

    action = "answer"
    call: str = Field(max_length=1_000, description=_CALL)
    shown: str = Field(max_length=100, description=_SHOWN)
    value: Any = Field(description="The answer; one of the question's options, where it has some.")


class SettleTool(_DecisionTool):
    """Say how a held call has ended that was begun and whose end is not known (`held` has `unknown` of it): done, with
    a value, or failed, for a reason; or have it begin again. The same decision twice is one.
    """

    action = "settle"
    call: str = Field(max_length=1_000, description=_CALL)
    shown: str = Field(max_length=100, description=_SHOWN)
    outcome: Literal["done", "again", "failed"] = Field(description="What has become of it, or `again`.")
    value: Any = Field(None, description="With `done`: its result.")
    reason: str = Field("", max_length=10_000, description="With `failed`: why.")


class RevokeTool(_DecisionTool):
    """Revoke a rule of a run, by its id in the `rules` of `held`: calls like it are held again. Twice is one."""

    action = "revoke"
    rule: str = Field(max_length=100, description="The id of the rule.")


class CancelTool(_ActionTool):
    """End a run now: what comes later does not count. With `undo` its finished calls are undone by another run, which
    the answer names; `not_undone` lists the calls that are not undone. No call is undone twice.
    """

    right = "control"
    action = "cancel"
    undo: bool = Field(False, description="Also undo its finished calls; the run may be over.")
    output = answer_schema(
        *("run", "status"),
        run=_TEXT,
        status=_TEXT,
        undo={"type": ["string", "null"]},
        undone={"type": "integer"},
        not_undone={"type": "array", "items": _TEXT},
    )

    async def execute(self, context: ToolContext) -> dict[str, Any]:
        """Cancel the run, and read its status."""
        done = await super().execute(context)
        run = await context.runs.run(context.principal, self.run)
        return {**done, "status": (await run.status())["status"]}


DOING: Final[Mapping[str, type[ServerTool]]] = {
    "submit": Submit,
    "approve": ApproveTool,
    "reject": RejectTool,
    "answer": AnswerTool,
    "settle": SettleTool,
    "revoke": RevokeTool,
    "cancel": CancelTool,
}
"""The tools that change something, each by a right of its own."""
