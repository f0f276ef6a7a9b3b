"""Reach: what is said of all that a model can call, by a request or by a delegate with tools (SPEC R16.1, R16.3).

Who gives such a delegate data that others wrote lets them talk to its model. So it counts as the most of what it can
call: where any tool has effects, it has; where others write to any result, they write to its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from acts_celery.protocol.calls.declarations import Declared, read_tools
from acts_celery.protocol.calls.operator_trust import OperatorTrust
from acts_celery.protocol.calls.tools import Tool
from acts_celery.protocol.calls.trust import ENDORSES, ToolTrust
from acts_celery.protocol.state.labels import marks_of

Definition = Mapping[str, Any]


@dataclass
class Reach:
    """What can be called, and by whom it is run; each delegate is looked into once."""

    activities: Iterable[str]
    """All that there are, as far as that is known."""
    activity: Callable[[str], Tool | None]
    definition: Callable[[str], Definition | None]
    """Of a delegate that is not code."""
    delegates: Iterable[str]
    """All that there are, as far as that is known."""
    operator: OperatorTrust
    """What the operator says of any of them."""
    _seen: set[str] = field(default_factory=set)

    def of_tools(self, declared: Declared) -> ToolTrust:
        """What is said of the tools that a request declares, and of all behind them; what decides is no matter here."""
        return _most(said for name in declared.places for said in self._of_tool(name, declared.tools.get(name)))

    def of_delegate(self, name: str) -> ToolTrust:
        """The same of a delegate's definition."""
        most = _most(self._of_delegate(name))
        definition = self.definition(name)
        return replace(most, endorses=True) if definition is not None and definition.get(ENDORSES) is True else most

    def _of_tool(self, name: str, tool: Tool | None) -> Iterator[ToolTrust]:
        code = [name]
        if tool is not None:
            yield tool.trust
            if tool.names("_activity"):
                code += tool.choices("_activity") or self.activities
            if tool.names("_delegate"):
                for delegate in tool.choices("_delegate") or self.delegates:
                    yield from self._of_delegate(delegate)
        for one in code:
            yield self.operator.of(one)
            if (known := self.activity(one)) is not None:
                yield known.trust

    def _of_delegate(self, name: str) -> Iterator[ToolTrust]:
        definition = self.definition(name) if name not in self._seen else None
        self._seen.add(name)
        yield self.operator.of(name)
        if definition is not None:
            context = definition.get("context")
            context = [message for message in context if isinstance(message, dict)] if isinstance(context, list) else []
            yield from (ToolTrust(result=marks_of(message).labels) for message in context)
            declared, _ = read_tools(context, definition.get("tools"))
            for tool, said in ((tool, declared.tools.get(tool)) for tool in declared.places):
                yield from self._of_tool(tool, said)


def _most(said: Iterable[ToolTrust]) -> ToolTrust:
    together = ToolTrust.together(said)
    return ToolTrust(together.effects, together.result)
