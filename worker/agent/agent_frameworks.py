"""Frameworks that agents are written with, and how an agent of each is run with recorded steps.

A *step* is a request to a model, a call of a tool, or the work of a node of a graph. A `Replay` is one time through an
agent from its beginning: each step that has a record gets the result from there, and the first one that has none is
where the agent stops. Each framework says where its steps are; the agents stay as they are.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from typing import Any, Final
from uuid import uuid4

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from .. import limits
from ..errors import ActivitiesError
from ..registry.models import BadRequest

MODEL: Final = ".model"
"""The name of the step that is a request to a model."""
Record = Any
"""The record of a step: `{"step", "result"}`, `{"failed", "reason"}`, or the value that a person has given instead."""
Schemas = Mapping[str, Mapping[str, Any]]
"""Tools by name, with the JSON Schemas of their parameters."""


class Instead(Exception):
    """A text or value that a tool's caller gets although the tool has not run: the reason of a rejection, or the value
    that a person has given.
    """

    def __init__(self, value: Any, *, is_error: bool) -> None:
        super().__init__(value)
        self.value = value
        self.is_error = is_error


class ArgumentsChanged(Exception):
    """A person has changed the arguments of the call of a tool, which has this id."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The step that a replay has stopped at."""

    number: int
    step: str
    value: Any
    """Its arguments, or its result where it was taken."""


class Replay:
    """One time through an agent: it gets what was recorded, and stops at the first step that was not.

    With `given`, a step's name and arguments, that step is taken where it stops; `changed` are arguments in place of
    the model's, by the id of its call.
    """

    def __init__(
        self,
        records: Mapping[int, Record],
        given: tuple[str, Any] | None = None,
        changed: Mapping[str, Any] | None = None,
    ) -> None:
        self.changed = changed or {}
        self._records = records
        self._given = given
        self._count = 0
        self._is_stopping = False
        self._came: asyncio.Future[Stopped] = asyncio.get_running_loop().create_future()

    async def through(self, agent: Awaitable[Any]) -> Stopped | Any:
        """The step where the agent stops, or its output where all its steps are recorded."""
        task = asyncio.ensure_future(agent)
        await asyncio.wait({task, self._came}, return_when=asyncio.FIRST_COMPLETED)
        if not self._came.done():
            return await task
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return self._came.result()

    async def step(
        self, name: str, arguments: Any, take: Callable[[Any], Awaitable[Any]], *, id_: str | None = None
    ) -> Any:
        """The recorded result of a step; the first step without a record never ends. `take` does it with arguments; if
        it can do so only with the model's own, `id_` is the id of the call. Raises `Instead`, `RuntimeError` for a step
        that has failed, and `BadRequest` where the record is that of another one.
        """
        number, self._count = self._count, self._count + 1
        if number in self._records:
            return _result(self._records[number], name)
        if not self._is_stopping:  # others that begin at the same time have their turn when this one is recorded
            self._is_stopping = True
            try:
                self._came.set_result(Stopped(number, name, await self._taken(name, arguments, take, id_)))
            except Exception as error:
                self._came.set_exception(error)
        await asyncio.Event().wait()

    async def _taken(self, name: str, arguments: Any, take: Callable[[Any], Awaitable[Any]], id_: str | None) -> Any:
        if self._given is None:
            return arguments
        expected, given = self._given
        if name != expected:
            raise BadRequest(f"the agent has changed: its next step is {name!r}, and the call is one of {expected!r}")
        if id_ is not None and id_ not in self.changed and given != arguments:
            raise ArgumentsChanged(id_)
        return await take(given)


def _result(record: Record, step: str) -> Any:
    match record:
        case {"step": str(name), "result": result}:
            if name != step:
                raise BadRequest(f"the agent has changed: a step was {name!r}, and is {step!r} now")
            return result
        case {"failed": "Rejected" | "InvalidCall", "reason": str(reason)}:
            raise Instead(reason, is_error=True)
        case {"failed": str(kind), "reason": reason}:
            raise RuntimeError(f"{step}: {kind}: {reason}")
    raise Instead(record, is_error=False)


class Framework(ABC):
    """An agent with the framework that it is written with."""

    name: str
    """The agent's own name; empty where it has none."""
    tools: Schemas
    """The steps that have a name of their own."""
    approve: tuple[str, ...] = ()
    """The tools of which the agent itself says that a person decides on them."""
    output: Mapping[str, Any]
    """The JSON Schema of the output."""

    @abstractmethod
    async def run(self, replay: Replay, prompt: Any, deps: Any) -> Any:
        """The agent's output for a prompt."""


class PydanticAgent(Framework):
    """An agent of pydantic-ai, run through the interface that it has for engines of durable execution."""

    def __init__(self, agent: Any) -> None:
        found: dict[str, Mapping[str, Any]] = {}
        for toolset in agent.toolsets:
            toolset.apply(lambda each: found.update(_tools_of(each)))
        self._agent = agent
        self.name, self.tools, self.output = agent.name or "", found, agent.output_json_schema()

    async def run(self, replay: Replay, prompt: Any, deps: Any) -> Any:
        """The agent's output for a prompt."""
        _current.set(_PydanticRun(replay))
        return (await self._agent.run(prompt, deps=deps, capabilities=[_durability()()])).output


def _tools_of(toolset: Any) -> Schemas:
    tools = getattr(toolset, "tools", None)
    if not isinstance(tools, dict):
        return {}
    return {name: tool.tool_def.parameters_json_schema for name, tool in tools.items()}


@dataclass
class _PydanticRun:
    replay: Replay
    call: Any = None
    """The call of a tool that comes next."""

    async def step(self, operation: str, body: Callable[[], Awaitable[Any]]) -> Any:
        call, self.call = self.call, None
        try:
            if call is None:
                return await self.replay.step(
                    MODEL if operation.startswith("model.") else operation, {}, lambda _: body()
                )
            return await self.replay.step(call.tool_name, call.args_as_dict(), lambda _: body(), id_=call.tool_call_id)
        except Instead as instead:
            if instead.is_error:
                raise import_module("pydantic_ai").ToolFailed(instead.value) from None
            return {"result": instead.value, "kind": "tool_return"}


_current: Final[ContextVar[_PydanticRun | None]] = ContextVar("acts_agent_run", default=None)


@cache
def _durability() -> Any:
    """The capability of pydantic-ai's that gives each step to the replay."""
    engines: Any = import_module("pydantic_ai.durable_exec")
    backends: Any = engines.JournalCallableOperationBackend
    capabilities: Any = engines.BaseDurabilityCapability

    class Backend(backends):  # type: ignore[misc]  # the package is not followed
        async def execute(self, *, name: str, body: Any, **_: Any) -> Any:
            current = _current.get()
            assert current is not None
            return await current.step(name.partition("__")[2], body)

    class Durability(capabilities):  # type: ignore[misc]  # the package is not followed
        engine_spec = engines.DurabilityEngineSpec(
            engine_name="acts-celery",
            durable_unit_noun="call",
            durable_container_noun="run",
            codec=engines.JSON_CODEC,
            sequential_tools_in_durable_context=True,
        )

        @property
        def in_durable_context(self) -> bool:
            return True

        def get_durable_operation_backend(self) -> Any:
            config = engines.RoleBasedOperationConfig(model=None, event=None, capability=None, tool=None)
            return Backend(agent_name=self.name, config=config)

        def get_default_run_id(self) -> str:
            return "hosted"

        async def wrap_tool_validate(self, ctx: Any, *, call: Any, args: Any, handler: Any, **_: Any) -> Any:
            current = _current.get()
            return await handler(args if current is None else current.replay.changed.get(call.tool_call_id, args))

        async def before_tool_execute(self, ctx: Any, *, call: Any, args: Any, **_: Any) -> Any:
            if (current := _current.get()) is not None:
                current.call = call
            return args

    return Durability


class OpenAIAgent(Framework):
    """An agent of the OpenAI Agents SDK, and all that it hands off to: copies whose models and functions are steps."""

    def __init__(self, agent: Any) -> None:
        self._sdk: Any = import_module("agents")
        self._agent = agent
        self.name = agent.name
        found, approve = dict[str, Mapping[str, Any]](), []
        for one in self._reached(agent, {}).values():
            if one.mcp_servers:
                raise ActivitiesError(
                    f"agent {one.name!r}: tools of mcp_servers cannot be recorded: make them functions"
                )
            for tool in one.tools:
                if isinstance(tool, self._sdk.FunctionTool):
                    found[tool.name] = tool.params_json_schema
                    approve += [tool.name] if tool.needs_approval is not False else []
                elif type(tool).__name__ not in _AT_THE_PROVIDER:
                    text = f"{type(tool).__name__} runs here and cannot be recorded: make it a function_tool"
                    raise ActivitiesError(f"agent {one.name!r}: {text}")
        self.tools, self.approve = found, tuple(approve)
        said: Any = None if agent.handoffs else agent.output_type or str
        is_type = said is not None and not isinstance(said, self._sdk.AgentOutputSchemaBase)
        self.output = TypeAdapter(said).json_schema() if is_type else {}

    def _reached(self, agent: Any, found: dict[int, Any]) -> dict[int, Any]:
        """The agent and those that it hands off to, by identity."""
        if id(agent) not in found:
            found[id(agent)] = agent
            for one in agent.handoffs:
                if isinstance(one, self._sdk.Agent):
                    self._reached(one, found)
                elif (behind := getattr(one, "_agent_ref", lambda: None)()) is not None:
                    self._reached(behind, found)
        return found

    async def run(self, replay: Replay, prompt: Any, deps: Any) -> Any:
        """The agent's output for a prompt. Its own tracing is off: each replay would be a trace."""
        config = self._sdk.RunConfig(tracing_disabled=True)
        copied = self._copied(self._agent, replay, {})
        return (
            await self._sdk.Runner.run(copied, prompt, context=deps, max_turns=None, run_config=config)
        ).final_output

    def _copied(self, agent: Any, replay: Replay, made: dict[int, Any]) -> Any:
        if id(agent) in made:
            return made[id(agent)]
        made[id(agent)] = own = copy(agent)
        own.model = _stepped_model()(self._sdk, agent, replay)
        own.tools = [self._function(tool, replay) for tool in agent.tools]
        own.handoffs = [self._handoff(one, replay, made) for one in agent.handoffs]
        return own

    def _handoff(self, one: Any, replay: Replay, made: dict[int, Any]) -> Any:
        if isinstance(one, self._sdk.Agent):
            return self._copied(one, replay, made)

        async def hand_off(*given: Any) -> Any:
            return self._copied(await one.on_invoke_handoff(*given), replay, made)

        return replace(one, on_invoke_handoff=hand_off)

    def _function(self, tool: Any, replay: Replay) -> Any:
        if not isinstance(tool, self._sdk.FunctionTool):
            return tool

        async def invoke(context: Any, written: str) -> Any:
            async def take(given: Any) -> Any:
                text = given if isinstance(given, str) else written if given == arguments else json.dumps(given)
                return to_jsonable_python(await tool.on_invoke_tool(context, text))

            arguments = _read_arguments(written)
            try:
                return await replay.step(tool.name, arguments, take)
            except Instead as instead:
                return instead.value if isinstance(instead.value, str) else json.dumps(instead.value)

        own = copy(tool)
        own.on_invoke_tool, own.needs_approval = invoke, False  # the run holds it (SPEC R14.1)
        return own


_AT_THE_PROVIDER: Final = frozenset(
    {"CodeInterpreterTool", "FileSearchTool", "HostedMCPTool", "ImageGenerationTool", "ToolSearchTool", "WebSearchTool"}
)
"""Tools of OpenAI's that run where the model does: their results are part of its answer."""


def _read_arguments(written: str) -> Any:
    """The arguments of a call as its model wrote them: the text where that is no object."""
    try:
        value = json.loads(written or "{}")
    except ValueError:
        return written
    return value if isinstance(value, dict) else written


@cache
def _stepped_model() -> Any:
    """A model of the OpenAI Agents SDK whose requests are steps."""
    interface: Any = import_module("agents.models.interface").Model
    answer: Any = import_module("agents").ModelResponse
    answers = TypeAdapter(answer)

    class SteppedModel(interface):  # type: ignore[misc]  # the package is not followed
        def __init__(self, sdk: Any, agent: Any, replay: Replay) -> None:
            self._sdk, self._agent, self._replay = sdk, agent, replay

        async def get_response(self, *given: Any, **named: Any) -> Any:
            async def take(_: Any) -> Any:
                model = self._agent.model
                asked = model if isinstance(model, interface) else self._sdk.MultiProvider().get_model(model)
                return answers.dump_python(await asked.get_response(*given, **named), mode="json")

            return answers.validate_python(await self._replay.step(MODEL, {"agent": self._agent.name}, take))

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    return SteppedModel


class CompiledGraph(Framework):
    """A compiled graph of LangGraph: a copy whose nodes are steps; of a `ToolNode` each call of a tool is one."""

    def __init__(self, graph: Any) -> None:
        if graph.interrupt_before_nodes or graph.interrupt_after_nodes:
            raise ActivitiesError(
                "interrupt_before and interrupt_after need a checkpointer: name the nodes in `approve`"
            )
        self._graph = graph
        self.name = graph.name if graph.name != "LangGraph" else ""
        found: dict[str, Mapping[str, Any]] = {}
        for name, node in self._nodes().items():
            if (tools := _tools_in(node)) is None:
                found[name] = {"type": "object", "properties": {}}
            else:
                found |= {each: tool.tool_call_schema.model_json_schema() for each, tool in tools.items()}
        self.tools, self.output = found, {}

    def _nodes(self) -> Mapping[str, Any]:
        return {name: node for name, node in self._graph.nodes.items() if not name.startswith("__")}

    async def run(self, replay: Replay, prompt: Any, deps: Any) -> Any:
        """The graph's last state for its first one, or for a text that is the first of its `messages`."""
        nodes = {name: self._recorded(name, node, replay) for name, node in self._nodes().items()}
        graph = self._graph.copy({"nodes": {**self._graph.nodes, **nodes}, "checkpointer": False, "cache": None})
        first = (
            {"messages": [{"role": "user", "content": prompt, "id": "input"}]} if isinstance(prompt, str) else prompt
        )
        return await graph.ainvoke(first, {"recursion_limit": limits.HOSTED_STEPS}, context=deps)

    def _recorded(self, name: str, node: Any, replay: Replay) -> Any:
        bound, runnables = node.bound, import_module("langchain_core.runnables")
        if (tools := _tools_in(node)) is not None:
            own = type(bound)(
                [*tools.values()],
                name=bound.name,
                handle_tool_errors=bound._handle_tool_errors,
                messages_key=bound._messages_key,
                awrap_tool_call=partial(_call_tool, replay, bound._awrap_tool_call),
            )
            return node.copy({"bound": own})

        async def work(state: Any, config: Any) -> Any:
            return _load(await replay.step(name, {}, lambda _: _kept(bound.ainvoke(state, config))))

        return node.copy({"bound": runnables.RunnableLambda(work, name=name)})


def _tools_in(node: Any) -> Mapping[str, Any] | None:
    """The tools of a node that calls them; None of another node. Raises `ActivitiesError`."""
    bound = node.bound
    if not isinstance(bound, import_module("langgraph.prebuilt").ToolNode):
        return None
    if bound._wrap_tool_call is not None and bound._awrap_tool_call is None:
        raise ActivitiesError(
            "a ToolNode with wrap_tool_call needs awrap_tool_call, too: its tools run on an event loop"
        )
    tools: Mapping[str, Any] = bound.tools_by_name
    return tools


async def _call_tool(replay: Replay, wrap: Any, request: Any, execute: Any) -> Any:
    """The message that a call of a tool in a `ToolNode` gives."""
    call = request.tool_call

    def take(given: Any) -> Awaitable[Any]:
        own = request.override(tool_call={**call, "args": given})
        return _kept(execute(own) if wrap is None else wrap(own, execute))

    try:
        return _load(await replay.step(call["name"], call["args"], take))
    except Instead as instead:
        text = instead.value if isinstance(instead.value, str) else json.dumps(instead.value)
        status = "error" if instead.is_error else "success"
        made = import_module("langchain_core.messages").ToolMessage
        return made(text, name=call["name"], tool_call_id=call["id"], status=status, id=f"instead-{call['id']}")


async def _kept(result: Awaitable[Any]) -> Any:
    """The result of a node as a JSON value. Raises `TypeError` where that cannot be had back from it."""
    try:
        value = await result
    except import_module("langgraph.errors").GraphInterrupt:
        raise TypeError("interrupt() needs a checkpointer: name the node or tool in `approve` instead") from None
    with suppress(Exception):  # whatever the serializer raises
        kept = _dump(value)
        if _dump(_load(kept)) == kept:
            return kept
    raise TypeError("a node has returned an object that cannot be kept: return JSON values and messages")


_MESSAGE: Final = "_message"
_PACKED: Final = "_packed"


def _dump(value: Any) -> Any:
    """A value as JSON: messages as LangChain writes them, other objects packed by LangGraph's own serializer."""
    messages: Any = import_module("langchain_core.messages")
    if isinstance(value, messages.BaseMessage):
        value.id = value.id or str(uuid4())  # else each replay would give it another one
        return {_MESSAGE: _dump(messages.message_to_dict(value))}
    if type(value) is dict and all(isinstance(key, str) and key not in (_MESSAGE, _PACKED) for key in value):
        return {key: _dump(part) for key, part in value.items()}
    if type(value) in (list, tuple):
        return [_dump(part) for part in value]
    if value is None or type(value) in (bool, int, float, str):
        return value
    type_, packed = _serializer().dumps_typed(value)
    return {_PACKED: [type_, b64encode(packed).decode()]}


def _load(kept: Any) -> Any:
    if isinstance(kept, list):
        return [_load(part) for part in kept]
    if not isinstance(kept, dict):
        return kept
    if kept.keys() == {_MESSAGE}:
        return import_module("langchain_core.messages").messages_from_dict([_load(kept[_MESSAGE])])[0]
    if kept.keys() == {_PACKED}:
        type_, packed = kept[_PACKED]
        return _serializer().loads_typed((type_, b64decode(packed)))
    return {key: _load(part) for key, part in kept.items()}


@cache
def _serializer() -> Any:
    """A serializer that makes objects of LangGraph's list of safe types alone."""
    return import_module("langgraph.checkpoint.serde.jsonplus").JsonPlusSerializer(allowed_msgpack_modules=None)


def framework_of(agent: Any) -> Framework:
    """The framework of an agent. Raises `ActivitiesError` for what is no agent of one of them."""
    for kind in type(agent).__mro__:
        if (framework := _FRAMEWORKS.get((kind.__module__, kind.__name__))) is not None:
            return framework(agent)
    raise ActivitiesError(
        "host_agent takes an agent of pydantic-ai or of the OpenAI Agents SDK, or a compiled graph of LangGraph: "
        f"{type(agent).__name__} is none"
    )


_FRAMEWORKS: Final[Mapping[tuple[str, str], Callable[[Any], Framework]]] = {
    ("pydantic_ai.agent.abstract", "AbstractAgent"): PydanticAgent,
    ("agents.agent", "Agent"): OpenAIAgent,
    ("langgraph.pregel.main", "Pregel"): CompiledGraph,
}
