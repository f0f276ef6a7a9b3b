"""Reach: what is said of all that a model can call, by a request or by a delegate with tools (SPEC R16.1, R16.3).

Who gives such a delegate data that others wrote lets them talk to its model. So it counts as the most of what it can
call: where any tool has effects, it has; where others write to any result, they write to its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from acts_celery.protocol.calls.declarations import Declared, read_tools
from acts_celery.protocol.calls.operator_trust import OperatorTrust
from acts_celery.protocol.calls.tools import Tool
from acts_celery.protocol.calls.trust import ENDORSES, ToolTrust
from acts_celery.protocol.state.labels import marks_of

Definition = Mapping[str, Any]


@dataclass(frozen=True)
class Reach:
    """What can be called, and by whom it is run; for one question each delegate is looked into once."""

    activities: Iterable[str]
    """All that there are, as far as that is known."""
    activity: Callable[[str], Tool | None]
    definition: Callable[[str], Definition | None]
    """Of a delegate that is not code."""
    delegates: Iterable[str]
    """All that there are, as far as that is known."""
    operator: OperatorTrust
    """What the operator says of any of them."""

    def of_tools(self, declared: Declared) -> ToolTrust:
        """What is said of the tools that a request declares, and of all behind them; what decides is no matter here."""
        seen: set[str] = set()
        return _most(said for name in declared.places for said in self._of_tool(name, declared.tools.get(name), seen))

    def of_delegate(self, name: str) -> ToolTrust:
        """The same of a delegate's definition."""
        most = _most(self._of_delegate(name, set()))
        definition = self.definition(name)
        return replace(most, endorses=True) if definition is not None and definition.get(ENDORSES) is True else most

    def of_code(self, declared: Declared, delegates: Iterable[str]) -> dict[str, ToolTrust]:
        """What the activities say of themselves that may run a call of the tools that a request declares, or of those
        of some delegates; by their names.
        """
        seen: set[str] = set()
        names = [one for name in declared.places for one in self._code_of(name, declared.tools.get(name), seen)]
        names += [one for name in delegates for one in self._code_behind(name, seen)]
        known = {name: self.activity(name) for name in names}
        return {name: one.trust for name, one in known.items() if one is not None}

    def _of_tool(self, name: str, tool: Tool | None, seen: set[str]) -> Iterator[ToolTrust]:
        if tool is not None:
            yield tool.trust
        for delegate in self._delegates_of(tool):
            yield from self._of_delegate(delegate, seen)
        for one in self._activities_of(name, tool):
            yield self.operator.of(one)
            if (known := self.activity(one)) is not None:
                yield known.trust

    def _of_delegate(self, name: str, seen: set[str]) -> Iterator[ToolTrust]:
        yield self.operator.of(name)
        if name not in seen and (definition := self.definition(name)) is not None:
            yield from (ToolTrust(result=marks_of(message).labels) for message in _context_of(definition))
        for tool, said in self._tools_of(name, seen):
            yield from self._of_tool(tool, said, seen)

    def _code_of(self, name: str, tool: Tool | None, seen: set[str]) -> Iterator[str]:
        yield from self._activities_of(name, tool)
        for delegate in self._delegates_of(tool):
            yield from self._code_behind(delegate, seen)

    def _code_behind(self, delegate: str, seen: set[str]) -> Iterator[str]:
        for tool, said in self._tools_of(delegate, seen):
            yield from self._code_of(tool, said, seen)

    def _activities_of(self, name: str, tool: Tool | None) -> Iterable[str]:
        """The activities that may run the calls of a tool."""
        chosen = tool.choices("_activity") or self.activities if tool is not None and tool.names("_activity") else ()
        return (name, *chosen)

    def _delegates_of(self, tool: Tool | None) -> Iterable[str]:
        """The delegates that may."""
        return tool.choices("_delegate") or self.delegates if tool is not None and tool.names("_delegate") else ()

    def _tools_of(self, delegate: str, seen: set[str]) -> list[tuple[str, Tool | None]]:
        """The tools that a delegate's definition declares; none where it was `seen` before."""
        definition = self.definition(delegate) if delegate not in seen else None
        seen.add(delegate)
        if definition is None:
            return []
        declared, _ = read_tools(_context_of(definition), definition.get("tools"))
        return [(name, declared.tools.get(name)) for name in declared.places]


def _context_of(definition: Definition) -> list[dict[str, Any]]:
    context = definition.get("context")
    return [message for message in context if isinstance(message, dict)] if isinstance(context, list) else []


def _most(said: Iterable[ToolTrust]) -> ToolTrust:
    together = ToolTrust.together(said)
    return ToolTrust(together.effects, together.result)
