"""The functions behind NESTFUL's tools, by tool name; `tools` registers them as activities.

Tools that are HTTP endpoints are coroutines, the others plain functions: a run mixes both.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from .answers import answer
from .source import RESULT_TOOL, Tool, find_data, load

_Json = dict[str, Any]
Implementation = Callable[[_Json, _Json], _Json | Awaitable[_Json]]


def implementations() -> dict[str, Implementation]:
    """One function `(call, context)` for each tool of the specs, and the one that collects results.

    Raises:
        FileNotFoundError: if there is no data to read the specs from.
    """
    folder = find_data()
    if folder is None:
        raise FileNotFoundError("no NESTFUL data: name its folder in ACTS_NESTFUL")
    tools = load(folder).tools.values()
    named = {tool.name: remote(tool) if tool.remote else local(tool) for tool in tools}
    return {**named, RESULT_TOOL: collect}


def remote(tool: Tool) -> Implementation:
    """Make a coroutine function that answers as `tool` would."""

    async def call_endpoint(call: _Json, context: _Json) -> _Json:
        return answer(tool, parameters_of(call))

    return call_endpoint


def local(tool: Tool) -> Implementation:
    """Make a plain function that answers as `tool` would."""

    def call_function(call: _Json, context: _Json) -> _Json:
        return answer(tool, parameters_of(call))

    return call_function


def collect(call: _Json, context: _Json) -> _Json:
    """Return the final values, which are `var_result`'s parameters themselves."""
    return parameters_of(call)


def parameters_of(call: _Json) -> _Json:
    """Leave out the call's meta-properties."""
    return {name: value for name, value in call.items() if not name.startswith("_")}
