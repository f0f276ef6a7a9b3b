"""Support: what a submission may ask for by the rules, and a backend of this version cannot do yet (SPEC R7.1).

`check` takes it, so that it can be written, drawn and simulated; making a run of it is refused: a setting that
cannot be honoured is never ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from json import dumps
from typing import Any, Final

from ..calls.declarations import Declared, declares_tools, read_tools
from ..calls.tools import Tool
from ..calls.trust import ENDORSES, OperatorTrust, ToolTrust
from ..errors import Problem, pointer
from ..messages import Message
from ..paths import nest
from ..state.labels import marks_of
from ..trust import shows_untrusted
from .checked_plan import CheckedPlan, Promised
from .config import SETTINGS, settings_of

_WORD: Final = re.compile(r"\S{1,64}")


def unsupported(plan: CheckedPlan, *, is_new: bool = True) -> list[Problem]:
    """What a backend of this version cannot do of a valid submission, each at its place in it.

    The settings of a run were looked at when it was new.
    """
    settings = (*_settings(plan), *_shown(plan)) if is_new else ()
    return [*settings, *_delegate_settings(plan), *_promises(plan)]


def _settings(plan: CheckedPlan) -> Iterator[Problem]:
    """Settings of later versions (SPEC R13, R14)."""
    for key in settings_of(plan.submission.config):
        if not (SETTINGS[key].in_submission or (SETTINGS[key].in_request and plan.submission.is_request)):
            yield _unsupported(key, "config", key)


def _shown(plan: CheckedPlan) -> Iterator[Problem]:
    """What a model is shown of what others write, where that cannot be as it is asked (SPEC R16.3)."""
    config, is_request = plan.submission.config, plan.submission.is_request
    if not is_request and "show" in (config.get("trust") or {}):
        text = "says what a request's model is shown, and this is none: leave it out"
        yield Problem(pointer("config", "trust", "show"), text)
    hides = plan.asked.effects and plan.asked.result and not shows_untrusted(config)
    if is_request and hides:
        yield from told_names(plan.submission.context, "context")


def told_names(messages: Sequence[Message], *at: str | int) -> Iterator[Problem]:
    """The names of instances and kinds that only data of others has, and that may be sentences: a model is told them
    that is not shown the data (SPEC R16.3).
    """
    for key, what in (("_instance", "an instance"), ("kind", "a kind")):
        own = {message.get(key) for message in messages if not marks_of(message)}
        for position, message in enumerate(messages):
            name = message.get(key)
            if isinstance(name, str) and name not in own and not _WORD.fullmatch(name):
                text = f"a model is told the name of {what}, also where it is not shown the data: write it as one word"
                yield Problem(pointer(*at, position, key), text)


def _delegate_settings(plan: CheckedPlan) -> Iterator[Problem]:
    """The same of the definitions of delegates."""
    for name, definition in plan.submission.delegates.items():
        config: Mapping[str, Any] | None = definition.get("config")
        for key in settings_of(config):
            if not (SETTINGS[key].in_definition or (SETTINGS[key].in_request and declares_tools(definition))):
                yield _unsupported(key, "delegates", name, "config", key)


def _promises(plan: CheckedPlan) -> Iterator[Problem]:
    """What is promised and not given, where nothing says how long a run is to wait for it (SPEC R6.3)."""
    for promised in plan.promised if "promise_seconds" not in plan.submission.config else ():
        if promised.needed:
            where = f" of instance {promised.instance!r}" if promised.instance is not None else ""
            message = dumps(_message(promised), ensure_ascii=False)
            yield Problem(
                pointer("context", promised.at),
                f"{promised.place}{where} is promised and has no value: add a message such as {message} to the "
                f"context, or set config.promise_seconds, for which the run waits for it",
            )


def _message(promised: Promised) -> dict[str, Any]:
    instance = {} if promised.instance is None else {"_instance": promised.instance}
    return {"type": "input", **instance, "input": nest("…", promised.place.path)}


def _unsupported(key: str, *at: str) -> Problem:
    return Problem(pointer(*at), f"config.{key} is not supported by this version: leave it out")


# Reach: what is said of all that a model can call, by a request or by a delegate with tools (SPEC R16.1, R16.3).
#
# Who gives such a delegate data that others wrote lets them talk to its model. So it counts as the most of what it can
# call: where any tool has effects, it has; where others write to any result, they write to its answer.

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
