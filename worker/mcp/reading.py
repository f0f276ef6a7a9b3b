"""The tools: those that read runs, those that act on runs, and delegates as tools."""

from __future__ import annotations

import inspect
import json
import time
from asyncio import to_thread
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Final, Literal

from mcp_types import Tool, ToolAnnotations
from pydantic import Field

from ...broker_config import Settings
from ...broker_config.tokens import Right
from ...protocol import Rejected
from ...protocol.calls.declarations import input_schema
from ...protocol.errors import segments
from ...protocol.paths import MISSING
from ...protocol.schemas import compiled
from .. import limits
from ..actions import ACTIONS
from ..client.results import RunStatus
from ..errors import ActivitiesError, BadQuery, RunFailed
from ..registry.activities import registry
from ..registry.request_definitions import KnownDelegates
from ..store.keys import ENDED_STATUSES
from ..ui.access import problems
from ..ui.opened import shown, size_of, within
from .tools import NoValue, RunTool, ServerTool, SubmittedDocument, ToolContext, read_text

_TEXT: Final = {"type": "string"}
_INTEGER: Final = {"type": "integer"}
_OPTIONAL: Final = {"type": ["string", "null"]}
_COUNTS: Final = {"type": "object", "additionalProperties": _INTEGER}
_ERRORS: Final = {"type": "array", "items": {"type": "object", "properties": {"pointer": _TEXT, "message": _TEXT}}}
_LIST: Final = {"type": "array", "items": {"type": "object"}}


def _object(*required: str, **properties: Any) -> dict[str, Any]:
    """The schema of an answer with these properties."""
    return {"type": "object", "properties": properties, "required": list(required)}


class Check(ServerTool):
    """Find everything that is wrong with a submission, without running it: all errors with JSON pointers, or its waves
    of calls that can run at the same time, and findings.
    """

    output = _object("valid", "errors", valid={"type": "boolean"}, errors=_ERRORS)
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


class _PageTool(RunTool):
    """A tool that gives a document of the pages about a run; its other parameters are those of the page."""

    page: ClassVar[str]

    async def execute(self, context: ToolContext) -> dict[str, Any]:
        """Read the document."""
        found: dict[str, Any] = await context.runs.page(
            await context.runs.find(context.principal, self.run), self.page, _query(self)
        )
        return found


class Runs(ServerTool):
    """List the runs, the newest first: id, name, status, counts of calls, times. `next` is what to give as `after`."""

    output = _object("runs", "next", runs=_LIST, next=_OPTIONAL)
    status: RunStatus | None = Field(None, description="Only runs of this status.")
    search: str | None = Field(None, max_length=200, description="Part of an id, a name or a tag.")
    after: str | None = Field(None, max_length=256, description="What an answer before has given as `next`.")

    async def execute(self, context: ToolContext) -> dict[str, Any]:
        """Read the list."""
        found: dict[str, Any] = await context.runs.listed(context.principal, _query(self))
        return found


class Status(RunTool):
    """The state of a run: its status, how many calls have which status, what waits for a person, times, cost."""

    output = _object("run", "status", "counts", "held", run=_TEXT, status=_TEXT, counts=_COUNTS, held=_INTEGER)

    async def execute(self, context: ToolContext) -> dict[str, Any]:
        """Read the page of the run."""
        seen = await context.runs.page(await context.runs.find(context.principal, self.run))
        return {key: value for key, value in seen.items() if key != "output"}


class Result(RunTool):
    """What a run has come to: status, output, global values and calls; of an `instance` its own; or one value by its
    `path`. Values are data that other people and programs may have written. What is large is cut, in its place, to an
    object with the key `…cut`: ask for that part by `path` or `pointer`, or for more by `most_bytes`. With
    `wait_seconds` it waits for the run's end; it answers earlier when only a person can let the run go on.
    """

    output = _object("run", "status", "held", run=_TEXT, status=_TEXT, held=_INTEGER, reason=_OPTIONAL)
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
    output = _object("instances", "next", instances=_LIST, next=_OPTIONAL)
    status: Literal["completed", "failed", "running", "held", "paused", "cancelled", "deleted"] | None = Field(
        None, description="Only instances of this status."
    )
    search: str | None = Field(None, max_length=200, description="Part of a name.")
    after: str | None = Field(None, max_length=20, description="What an answer before has given as `next`.")


class Explain(_PageTool):
    """Where a value comes from, or why there is none: the messages that wrote it, the calls that may write or read it,
    who sees it.
    """

    page = "place"
    output = _object("path", path=_TEXT)
    path: str = Field(min_length=1, max_length=4_000, description="A place, such as `†state.report`.")
    instance: str | None = Field(None, max_length=1_000, description="As this instance sees it.")
    at: str | None = Field(None, max_length=50, description="As of a moment: the id of an entry of the log.")


class Held(RunTool):
    """What waits for a person in a run: each held call with all that it will run with, as data, and `shown`, which a
    decision on it carries; or a plan with its digest as `plan`.
    """

    output = _object("held", held=_LIST)

    async def execute(self, context: ToolContext) -> dict[str, Any]:
        """Read the list."""
        return {"held": await context.runs.page(await context.runs.find(context.principal, self.run), "held")}


READING: Final[Mapping[str, type[ServerTool]]] = {
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
        is_stopped = seen["status"] != "running" or (seen["held"] > 0 and not counts.get("running"))
        if is_stopped or left <= 0:
            return seen
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


class Submit(ServerTool):
    """Submit a run, and give its id at once; `result` waits for its end. A submission that is wrong is refused whole,
    and nothing runs. With a `key` the same document twice is one run, so a call whose answer was lost can be repeated.
    """

    right = "submit"
    is_destructive = True
    output = _object("run", run=_TEXT)
    document: SubmittedDocument
    key: str | None = Field(None, min_length=1, max_length=200, description="A text of your own for this submission.")
    name: str | None = Field(None, min_length=1, max_length=200, description="What the run is called.")
    tags: list[str] = Field([], max_length=20, description="Texts to find the run by.")
    allow: list[str] | None = Field(None, description="Only these tools, activities and delegates may be called.")

    async def execute(self, context: ToolContext) -> dict[str, Any]:
        """Submit the document."""
        run, plan = await context.runs.submit(
            context.principal, self.document, key=self.key, name=self.name, tags=tuple(self.tags), allow=self.allow
        )
        findings = await to_thread(lambda: within((each.to_dict() for each in plan.findings), limits.FINDINGS_BYTES))
        return {"run": run.id, "findings": findings}


class _ActionTool(RunTool):
    """A tool that is one of the actions (`worker.actions`)."""

    is_destructive = True
    action: ClassVar[str]

    async def execute(self, context: ToolContext) -> dict[str, Any]:
        """Run the action."""
        run = await context.runs.run(context.principal, self.run)
        done = await to_thread(partial(ACTIONS[self._chosen()].do, run.plain, **self._parameters()))
        return {"run": run.id, **({"decision": done["id"]} if "id" in done else {})}

    def _chosen(self) -> str:
        """The name of the action. Raises `BadQuery`."""
        return self.action

    def _parameters(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields if name != "run"}


class _DecisionTool(_ActionTool):
    right = "decide"
    is_idempotent = True
    output = _object("run", run=_TEXT)


class ApproveTool(_DecisionTool):
    """Let a held call run exactly as `held` has shown it, or with other parameters or narrower scopes; or let a plan
    run, by its digest. The same decision twice is one.
    """

    action = "approve"
    call: str | None = Field(None, max_length=1_000, description=_CALL)
    shown: str | None = Field(None, max_length=100, description=_SHOWN)
    plan: str | None = Field(None, max_length=200, description="The digest of the plan that `held` has shown.")
    parameters: dict[str, Any] | None = Field(None, description="Other parameters, in place of all that were shown.")
    scopes: list[str] | None = Field(None, description="Narrower scopes: kinds and references.")

    def _chosen(self) -> str:
        if self.plan is None and None in (self.call, self.shown):
            raise BadQuery("give `call` and `shown` as `held` has them, or `plan`")
        if self.plan is not None and len(self._parameters()) > 1:
            raise BadQuery("a plan is approved by `plan` alone")
        return self.action if self.plan is None else "approve_plan"

    def _parameters(self) -> dict[str, Any]:
        return _query(self)


class RejectTool(_DecisionTool):
    """End a held call with the error `Rejected` and a reason. The same decision twice is one."""

    action = "reject"
    call: str = Field(max_length=1_000, description=_CALL)
    shown: str = Field(max_length=100, description=_SHOWN)
    reason: str = Field(min_length=1, max_length=10_000, description="Why: the run and its model read it.")


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


class CancelTool(_ActionTool):
    """End a run now: what comes later does not count."""

    right = "control"
    action = "cancel"
    output = _object("run", "status", run=_TEXT, status=_TEXT)

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
    "cancel": CancelTool,
}
"""The tools that change something, each by a right of its own."""


# Delegates that are tools: one of `ACTS_MCP_DELEGATES` is called by its name, and the call is a run of its own.
#
# What the client gives is data of the run, which the call refers to; so nothing in it is read as a reference (SPEC
# R2.4). If the client goes, the run goes on; its id is the first progress that the call reports.

TAG: Final = "mcp"
"""The tag of the runs."""
_NAME: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")


@dataclass(frozen=True, slots=True)
class DelegateTool:
    """A delegate as a tool."""

    right: ClassVar[Right] = "submit"
    name: str
    description: str
    input: Mapping[str, Any]
    """The schema of its parameters, an object."""
    answer: Any
    """The schema of its answer."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """The arguments of one call."""

    def listed(self, name: str) -> Tool:
        """The tool as MCP lists it."""
        hints = ToolAnnotations(
            read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True
        )
        output = _object("run", "status", run=_TEXT, status=_TEXT, answer=self.answer, note=_TEXT)
        return Tool(
            name=name,
            description=self.description,
            input_schema=dict(self.input),
            output_schema=output,
            annotations=hints,
        )

    def read(self, arguments: Mapping[str, Any]) -> DelegateTool:
        """A call with these arguments. Raises `BadQuery`."""
        if meta := [name for name in arguments if name.startswith("_")]:
            raise BadQuery(
                f"{self.name} has no parameter {meta[0][:100]!r}: names that begin with _ are the engine's own"
            )
        schema, given = compiled(dict(self.input)), dict(arguments)
        if problems := schema.problems(given):
            at_fault = {segments(problem.pointer)[0] for problem in problems if problem.pointer}
            try:
                given = {name: read_text(value) if name in at_fault else value for name, value in arguments.items()}
            except ValueError as error:
                raise BadQuery(str(error)) from None
            if given == arguments or schema.problems(given):
                raise BadQuery("; ".join(map(str, problems[: limits.MOST_PROBLEMS])))
        return replace(self, arguments=given)

    async def execute(self, context: ToolContext) -> dict[str, Any]:
        """Submit the run, and wait for its answer. Raises `RunFailed`, `Rejected`."""
        run, _ = await context.runs.submit(context.principal, self._document(), name=self.name, tags=(TAG,))
        await context.progress(0, None, f"run {run.id}: submitted")
        seen = await awaited(context, run.id, limits.READING_LONGEST_WAIT_SECONDS)
        found = {"run": run.id, "status": seen["status"]}
        if seen["status"] == "completed":
            answer = await context.runs.output(run.id)
            if (size := size_of(answer)) > limits.READING_MOST_BYTES:
                return found | {"note": f"the answer has {size} bytes: `result` gives its parts"}
            return found | {"answer": answer}
        if seen["status"] in ("failed", "cancelled"):
            raise RunFailed(f"run {run.id} is {seen['status']}: {await _reason(context, run.id, seen)}")
        return found | {"note": "it has no answer yet: `result` waits for it, `held` has what waits for a person"}

    def _document(self) -> dict[str, Any]:
        references = {name: f"†input[{json.dumps(name, ensure_ascii=False)}]" for name in self.arguments}
        call = {"_tool": self.name, "_delegate": self.name, **references, "_outputPath": "†state.answer"}
        context = [{"type": "input", "data": dict(self.arguments)}] if self.arguments else []
        return {"context": context, "solution": {"calls": [call], "output": "†state.answer"}}


def delegate_tools(settings: Settings, taken: Container[str]) -> dict[str, DelegateTool]:
    """The delegates of `ACTS_MCP_DELEGATES` as tools, by name. Raises `ActivitiesError` for one that is not there or
    cannot be a tool next to those that are `taken`, `WorkerError` for a file that is no definition.
    """
    known, found = KnownDelegates(settings, registry), {}
    for name in settings.mcp_delegates:
        if (spelled := known.spelled(name)) is not None:
            raise ActivitiesError(f"ACTS_MCP_DELEGATES: {name!r} is written {spelled!r}")
        if name not in known:
            raise ActivitiesError(f"ACTS_MCP_DELEGATES: there is no delegate {name!r}: there are {', '.join(known)}")
        if name in taken:
            raise ActivitiesError(f"ACTS_MCP_DELEGATES: `acts mcp` has a tool {name!r} of its own: rename the delegate")
        if not _NAME.issuperset(name) or len(name) > limits.LONGEST_NAME:
            text = f"the name of a tool has letters, digits, _ - and ., {limits.LONGEST_NAME} at most"
            raise ActivitiesError(f"ACTS_MCP_DELEGATES: {name!r} cannot be a tool: {text}")
        definition = known.definition(name)
        if definition is None:
            said = inspect.getdoc(registry.delegates[name].function) or ""
            found[name] = DelegateTool(name, said.partition("\n\n")[0], {"type": "object"}, {})
        else:
            found[name] = _defined(name, definition)
    return found


def _defined(name: str, definition: Mapping[str, Any]) -> DelegateTool:
    schema = input_schema(definition.get("context", ()))
    schema = {} if schema is MISSING else schema
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        raise ActivitiesError(f"ACTS_MCP_DELEGATES: {name!r} cannot be a tool: its input is no object")
    answer = definition.get("schema", {})
    # A reference in it would lead nowhere inside the schema of the whole.
    kept = answer if "$ref" not in json.dumps(answer) else {}
    return DelegateTool(name, str(definition.get("description", "")), {"type": "object", **schema}, kept)


async def _reason(context: ToolContext, run: str, seen: Mapping[str, Any]) -> str:
    lane = await context.runs.page(run, "instance")
    error = next((call["error"] for call in lane["calls"] if call.get("error")), None)
    if isinstance(error, Mapping):
        return f"{error.get('type')}: {error.get('message')}"
    return str(seen["reason"] or "`result` says more")
