"""Delegates that are tools: one of `ACTS_MCP_DELEGATES` is called by its name, and the call is a run of its own.

What the client gives is data of the run, which the call refers to; so nothing in it is read as a reference (SPEC R2.4).
If the client goes, the run goes on; its id is the first progress that the call tells.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from mcp_types import Tool, ToolAnnotations

from acts_celery.broker_config import Settings
from acts_celery.broker_config.tokens import Right
from acts_celery.protocol.calls.delegates import input_schema
from acts_celery.protocol.language.errors import segments
from acts_celery.protocol.language.paths import MISSING
from acts_celery.protocol.schemas import compiled
from acts_celery.worker.errors import ActivitiesError, BadQuery, NotPossibleNow
from acts_celery.worker.page.values import size_of
from acts_celery.worker.registry.activities import registry
from acts_celery.worker.registry.request_definitions import KnownDelegates

from .reading import LONGEST_WAIT_SECONDS, MOST_BYTES, awaited
from .tools import Asking, read_text

TAG: Final = "mcp"
"""The tag of the runs."""
_MOST_PROBLEMS: Final = 5
_NAME: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
_LONGEST_NAME: Final = 128


class RunFailed(NotPossibleNow):
    """The run of a call has ended without an answer."""


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

    def tool(self, name: str) -> Tool:
        """As MCP lists it."""
        text = {"type": "string"}
        output = {
            "type": "object",
            "properties": {"run": text, "status": text, "answer": self.answer, "note": text},
            "required": ["run", "status"],
        }
        hints = ToolAnnotations(
            read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True
        )
        return Tool(
            name=name,
            description=self.description,
            input_schema=dict(self.input),
            output_schema=output,
            annotations=hints,
        )

    def read(self, arguments: Mapping[str, Any]) -> DelegateCall:
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
                raise BadQuery("; ".join(map(str, problems[:_MOST_PROBLEMS])))
        return DelegateCall(self.name, given)


@dataclass(frozen=True, slots=True)
class DelegateCall:
    """One call of it."""

    name: str
    arguments: Mapping[str, Any]

    async def carry_out(self, asking: Asking) -> dict[str, Any]:
        """Submit the run, and wait for its answer. Raises `RunFailed`, `Rejected`."""
        run, _ = await asking.runs.submit(
            asking.principal, self._document(), key=None, name=self.name, tags=(TAG,), allow=None
        )
        await asking.progress(0, None, f"run {run.id}: submitted")
        seen = await awaited(asking, run.id, LONGEST_WAIT_SECONDS)
        found = {"run": run.id, "status": seen["status"]}
        if seen["status"] == "completed":
            answer = await asking.runs.output(run.id)
            if (size := size_of(answer)) > MOST_BYTES:
                return found | {"note": f"the answer has {size} bytes: `result` gives its parts"}
            return found | {"answer": answer}
        if seen["status"] in ("failed", "cancelled"):
            raise RunFailed(f"run {run.id} is {seen['status']}: {await _reason(asking, run.id, seen)}")
        return found | {"note": "it has no answer yet: `result` waits for it, `held` has what waits for a person"}

    def _document(self) -> dict[str, Any]:
        references = {name: f"†input[{json.dumps(name, ensure_ascii=False)}]" for name in self.arguments}
        call = {"_tool": self.name, "_delegate": self.name, **references, "_outputPath": "†state.answer"}
        context = [{"type": "input", "data": dict(self.arguments)}] if self.arguments else []
        return {"context": context, "solution": {"calls": [call], "output": "†state.answer"}}


def delegate_tools(settings: Settings, taken: Container[str]) -> dict[str, DelegateTool]:
    """The delegates of `ACTS_MCP_DELEGATES` as tools, by name. Raises `ActivitiesError` for one that is not there or
    cannot be a tool beside those that are `taken`, `WorkerError` for a file that is no definition.
    """
    known, found = KnownDelegates(settings, registry), {}
    for name in settings.mcp_delegates:
        if (spelled := known.spelled(name)) is not None:
            raise ActivitiesError(f"ACTS_MCP_DELEGATES: {name!r} is written {spelled!r}")
        if name not in known:
            raise ActivitiesError(f"ACTS_MCP_DELEGATES: there is no delegate {name!r}: there are {', '.join(known)}")
        if name in taken:
            raise ActivitiesError(f"ACTS_MCP_DELEGATES: `acts mcp` has a tool {name!r} of its own: rename the delegate")
        if not _NAME.issuperset(name) or len(name) > _LONGEST_NAME:
            text = f"the name of a tool has letters, digits, _ - and ., {_LONGEST_NAME} at most"
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


async def _reason(asking: Asking, run: str, seen: Mapping[str, Any]) -> str:
    lane = await asking.runs.page(run, "instance")
    error = next((call["error"] for call in lane["calls"] if call.get("error")), None)
    if isinstance(error, Mapping):
        return f"{error.get('type')}: {error.get('message')}"
    return str(seen["reason"] or "`result` says more")
