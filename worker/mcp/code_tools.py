"""Code as tools: an activity of `ACTS_MCP_ACTIVITIES`, or a delegate or workflow of `ACTS_MCP_DELEGATES`, is called by
its name, and the call is a run of its own.

What the client gives is data of the run, which the call refers to; so nothing in it is read as a reference (SPEC R2.4).
If the client goes, the run goes on; its id is the first progress that the call reports.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from mcp_types import Tool, ToolAnnotations

from ...broker_config import Settings
from ...broker_config.tokens import Right
from ...protocol.calls.declarations import input_schema
from ...protocol.errors import segments
from ...protocol.paths import MISSING
from ...protocol.schemas import compiled
from .. import limits
from ..errors import ActivitiesError, BadQuery, RunFailed
from ..registry.activities import Activity, registry
from ..registry.request_definitions import KnownDelegates
from ..ui.opened import size_of
from .reading import answer_schema, awaited
from .tools import ToolContext, described, read_text

TAG: Final = "mcp"
"""The tag of the runs."""
ALL: Final = "*"
"""Every registered activity, in `ACTS_MCP_ACTIVITIES`."""
_NAME: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
_TEXT: Final = {"type": "string"}


@dataclass(frozen=True, slots=True)
class CodeTool:
    """An activity, a delegate or a workflow as a tool."""

    right: ClassVar[Right] = "submit"
    name: str
    description: str
    input: Mapping[str, Any]
    """The schema of its parameters, an object."""
    answer: Any
    """The schema of its answer."""
    is_delegate: bool = True
    has_effects: bool = True
    """True where it may change something outside of the run, as each delegate may."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """The arguments of one call."""

    def listed(self, name: str) -> Tool:
        """The tool as MCP lists it."""
        hints = ToolAnnotations(
            read_only_hint=False, destructive_hint=self.has_effects, idempotent_hint=False, open_world_hint=True
        )
        output = answer_schema("run", "status", run=_TEXT, status=_TEXT, answer=self.answer, note=_TEXT)
        return Tool(
            name=name,
            description=self.description,
            input_schema=dict(self.input),
            output_schema=output,
            annotations=hints,
        )

    def read(self, arguments: Mapping[str, Any]) -> CodeTool:
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

    async def start(self, context: ToolContext) -> str:
        """Submit the run, and return its id. Raises `Rejected`."""
        run, _ = await context.runs.submit(context.principal, self._document(), name=self.name, tags=(TAG,))
        return run.id

    async def execute(self, context: ToolContext) -> dict[str, Any]:
        """Submit the run, and wait for its answer. Raises `RunFailed`, `Rejected`."""
        run = await self.start(context)
        await context.progress(0, None, f"run {run}: submitted")
        return await outcome(context, await awaited(context, run, limits.READING_LONGEST_WAIT_SECONDS))

    def _document(self) -> dict[str, Any]:
        references = {name: f"†input[{json.dumps(name, ensure_ascii=False)}]" for name in self.arguments}
        runner = {"_delegate": self.name} if self.is_delegate else {}
        call = {"_tool": self.name, **runner, **references, "_outputPath": "†state.answer"}
        context = [{"type": "input", "data": dict(self.arguments)}] if self.arguments else []
        return {"context": context, "solution": {"calls": [call], "output": "†state.answer"}}


async def outcome(context: ToolContext, seen: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a call by the overview of its run. Raises `RunFailed` for a run that has failed."""
    run, status = seen["run"], seen["status"]
    found = {"run": run, "status": status}
    if status == "completed":
        answer = await context.runs.output(run)
        if (size := size_of(answer)) > limits.READING_MOST_BYTES:
            return found | {"note": f"the answer has {size} bytes: `result` gives its parts"}
        return found | {"answer": answer}
    if status in ("failed", "cancelled"):
        raise RunFailed(f"run {run} is {status}: {await _reason(context, seen)}")
    return found | {"note": "it has no answer yet: `result` waits for it, `held` has what waits for a person"}


async def _reason(context: ToolContext, seen: Mapping[str, Any]) -> str:
    lane = await context.runs.page(seen["run"], "instance")
    error = next((call["error"] for call in lane["calls"] if call.get("error")), None)
    if isinstance(error, Mapping):
        return f"{error.get('type')}: {error.get('message')}"
    return str(seen["reason"] or "`result` says more")


def code_tools(settings: Settings, taken: Collection[str]) -> dict[str, CodeTool]:
    """The activities of `ACTS_MCP_ACTIVITIES` and the delegates and workflows of `ACTS_MCP_DELEGATES` as tools, by
    name. Raises `ActivitiesError` for one that is not there or cannot be a tool next to those that are `taken`,
    `WorkerError` for a file that is no definition.
    """
    found: dict[str, CodeTool] = {}
    for setting, tools in (
        ("ACTS_MCP_ACTIVITIES", _activities(settings)),
        ("ACTS_MCP_DELEGATES", _delegates(settings)),
    ):
        for tool in tools:
            if tool.name in taken:
                raise ActivitiesError(f"{setting}: `acts mcp` has a tool {tool.name!r} of its own: use another name")
            if tool.name in found:
                raise ActivitiesError(f"{setting}: {tool.name!r} is the name of an activity, too: use another name")
            if not _NAME.issuperset(tool.name) or len(tool.name) > limits.LONGEST_NAME:
                text = f"the name of a tool has letters, digits, _ - and ., {limits.LONGEST_NAME} at most"
                raise ActivitiesError(f"{setting}: {tool.name!r} cannot be a tool: {text}")
            found[tool.name] = tool
    return found


def _activities(settings: Settings) -> Iterator[CodeTool]:
    known = registry.activities
    for name in known if ALL in settings.mcp_activities else settings.mcp_activities:
        if name not in known:
            there = ", ".join(sorted(known)) or "none: set ACTS_ACTIVITIES"
            raise ActivitiesError(f"ACTS_MCP_ACTIVITIES: there is no activity {name!r}: there are {there}")
        yield _activity(known[name])


def _activity(activity: Activity) -> CodeTool:
    about = described(activity.schema)
    return CodeTool(
        activity.name,
        about.description,
        about.parameters,
        _alone(about.result),
        is_delegate=False,
        has_effects=about.effects,
    )


def _delegates(settings: Settings) -> Iterator[CodeTool]:
    known = KnownDelegates(settings, registry)
    for name in settings.mcp_delegates:
        if (spelled := known.spelled(name)) is not None:
            raise ActivitiesError(f"ACTS_MCP_DELEGATES: {name!r} is written {spelled!r}")
        if name not in known:
            raise ActivitiesError(f"ACTS_MCP_DELEGATES: there is no delegate {name!r}: there are {', '.join(known)}")
        definition = known.definition(name)
        if definition is None:
            said = inspect.getdoc(registry.delegates[name].function) or ""
            yield CodeTool(name, said.partition("\n\n")[0], {"type": "object"}, {})
        else:
            yield _defined(name, definition)


def _defined(name: str, definition: Mapping[str, Any]) -> CodeTool:
    schema = input_schema(definition.get("context", ()))
    schema = {} if schema is MISSING else schema
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        raise ActivitiesError(f"ACTS_MCP_DELEGATES: {name!r} cannot be a tool: its input is no object")
    answer = _alone(definition.get("schema", {}))
    return CodeTool(name, str(definition.get("description", "")), {"type": "object", **schema}, answer)


def _alone(schema: Any) -> Any:
    """A schema as a part of another one; anything where it has a reference, which would lead nowhere there."""
    return schema if "$ref" not in json.dumps(schema) else {}
