"""Support: what the rules allow in a submission and a backend of this version cannot do yet (SPEC R7.1).

`check` accepts it, so that it can be written, drawn and simulated. A run of it is refused: a setting that cannot be
honoured is never ignored.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, replace
from json import dumps
from typing import Any, Final

from ..calls.declarations import Declared, declares_tools, is_workflow, read_tools
from ..calls.tools import Executor, Runner, Tool
from ..calls.trust import ENDORSES, NOTHING, OperatorTrust, ToolTrust, endorsement_of
from ..errors import Problem, pointer
from ..messages import Message
from ..paths import nest
from ..state.labels import marks_of
from ..trust import shows_untrusted
from .checked_plan import CheckedPlan, Promised
from .config import SETTINGS, settings_of
from .submission import workflow_calls

_WORD: Final = re.compile(r"\S{1,64}")


def unsupported(plan: CheckedPlan, *, is_new: bool = True) -> list[Problem]:
    """The parts of a valid submission that a backend of this version cannot do.

    The settings are looked at only where `is_new`: those of a run were looked at when it was submitted.
    """
    settings = (*_settings(plan), *_shown(plan)) if is_new else ()
    return [*settings, *_delegate_settings(plan), *_promises(plan)]


def _settings(plan: CheckedPlan) -> Iterator[Problem]:
    """Settings of later versions (SPEC R13, R14)."""
    for key in settings_of(plan.submission.config):
        if not (SETTINGS[key].in_submission or (SETTINGS[key].in_request and plan.submission.is_request)):
            yield _unsupported(key, "config", key)


def _shown(plan: CheckedPlan) -> Iterator[Problem]:
    """Settings about what a model is shown of others' data, where they cannot be honoured (SPEC R16.3)."""
    config, is_request = plan.submission.config, plan.submission.is_request
    if not is_request and "show" in (config.get("trust") or {}):
        text = "decides what a request's model sees, and this is not a request: remove it"
        yield Problem(pointer("config", "trust", "show"), text)
    hides = plan.asked.effects and plan.asked.result and not shows_untrusted(config)
    if is_request and hides:
        yield from unsafe_names(plan.submission.context, "context")


def unsafe_names(messages: Sequence[Message], *at: str | int) -> Iterator[Problem]:
    """Names of instances and kinds that only others' data has and that may be sentences: a model reads the names also
    where it is not shown the data (SPEC R16.3).
    """
    for key, what in (("_instance", "an instance"), ("kind", "a kind")):
        own = {message.get(key) for message in messages if not marks_of(message)}
        for position, message in enumerate(messages):
            name = message.get(key)
            if isinstance(name, str) and name not in own and not _WORD.fullmatch(name):
                text = f"models see the name of {what}, even if the data is hidden: make it one word"
                yield Problem(pointer(*at, position, key), text)


def _delegate_settings(plan: CheckedPlan) -> Iterator[Problem]:
    """Settings of later versions in the definitions of delegates."""
    for name, definition in plan.submission.delegates.items():
        config: Mapping[str, Any] | None = definition.get("config")
        is_loop, has_calls = declares_tools(definition), is_workflow(definition)
        for key in settings_of(config):
            own, is_known = SETTINGS[key], SETTINGS[key].in_definition
            if not (own.in_submission if has_calls else is_known or (own.in_request and is_loop)):
                yield _unsupported(key, "delegates", name, "config", key)


def _promises(plan: CheckedPlan) -> Iterator[Problem]:
    """Promised values that are missing, where no setting says how long a run waits for them (SPEC R6.3)."""
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


# Trust of all that a model can call, by a request or by a delegate with tools (SPEC R16.1, R16.3).
#
# Who gives such a delegate data that others wrote lets them talk to its model. So it has the sum of the labels of what
# it can call: effects where any tool has effects, and the labels of every result.

Definition = Mapping[str, Any]


@dataclass(frozen=True)
class TrustReach:
    """The trust of all that tools and delegates lead to. Each method looks into each delegate once."""

    activities: Iterable[str]
    """The names of all activities, as far as they are known."""
    activity: Callable[[str], Tool | None]
    definition: Callable[[str], Definition | None]
    """The definition of a delegate that is not code."""
    delegates: Iterable[str]
    """The names of all delegates, as far as they are known."""
    operator: OperatorTrust
    """The labels that the operator gives to any of them."""

    def of_tools(self, declared: Declared) -> ToolTrust:
        """The effects and labels of the tools that a request declares, with all behind them."""
        return self._sum(self._behind_tools(declared, set()))

    def of_delegate(self, name: str) -> ToolTrust:
        """The effects and labels of a delegate with all behind it, and whether its answer endorses what it read."""
        definition = self.definition(name)
        endorses = endorsement_of((definition or {}).get(ENDORSES))
        return replace(self._sum(self._behind_delegates([name], set())), endorses=endorses)

    def of_code(self, declared: Declared, delegates: Iterable[str]) -> dict[str, ToolTrust]:
        """Activity -> its own trust, for those that may run a call of declared tools or of some delegates' tools."""
        seen: set[str] = set()
        reached = [*self._behind_tools(declared, seen)]
        reached += self._behind_delegates(delegates, seen)
        names = [one.name for one in reached if isinstance(one, Runner) and one.executor is Executor.ACTIVITY]
        return {name: tool.trust for name in names if (tool := self.activity(name)) is not None}

    def _behind_tools(self, declared: Declared, seen: set[str]) -> Iterator[Tool | Runner]:
        """Tools, and all activities and delegates that may run their calls, one through another."""
        delegates = list[str]()
        yield from self._named_by_tools(declared, delegates)
        yield from self._behind_delegates(delegates, seen)

    def _behind_delegates(self, names: Iterable[str], seen: set[str]) -> Iterator[Tool | Runner]:
        """Delegates with all behind them; those in `seen` are not visited again."""
        left = deque(names)
        while left:
            name = left.popleft()
            yield Runner(Executor.DELEGATE, name)
            definition = self.definition(name) if name not in seen else None
            seen.add(name)
            if definition is None:
                continue
            context = _context_of(definition)
            declared, _ = read_tools(context, definition.get("tools"))
            yield from self._named_by_tools(declared, left)
            if is_workflow({**definition, "context": context}):
                yield from self._named_by_calls(workflow_calls(definition), left)

    def _named_by_tools(self, declared: Declared, left: MutableSequence[str]) -> Iterator[Tool | Runner]:
        """Tools, and the activities that may run their calls; the delegates that may go to `left`."""
        for name in declared.places:
            activities, delegates = [name], list[str]()
            if (tool := declared.tools.get(name)) is not None:
                yield tool
                activities += (tool.choices("_activity") or self.activities) if tool.names("_activity") else ()
                delegates += (tool.choices("_delegate") or self.delegates) if tool.names("_delegate") else ()
            yield from (Runner(Executor.ACTIVITY, one) for one in activities)
            left.extend(delegates)

    def _named_by_calls(
        self, calls: Iterable[Mapping[str, Any]], left: MutableSequence[str]
    ) -> Iterator[Tool | Runner]:
        """The activities that may run the calls of a workflow (SPEC R9.4); the delegates go to `left`."""
        for call in calls:
            names = [call[key] for key in ("_tool", "_activity") if isinstance(call.get(key), str)]
            yield from (Runner(Executor.ACTIVITY, name) for name in names)
            if isinstance(delegate := call.get("_delegate"), str):
                left.append(delegate)

    def _sum(self, reached: Iterable[Tool | Runner]) -> ToolTrust:
        together = ToolTrust.together(trust for one in reached for trust in self._trusts(one))
        return ToolTrust(together.effects, together.result)

    def _trusts(self, one: Tool | Runner) -> Iterator[ToolTrust]:
        if isinstance(one, Tool):
            yield one.trust
            return
        yield self.operator.of(one.name)
        if one.executor is Executor.ACTIVITY:
            activity = self.activity(one.name)
            yield activity.trust if activity is not None else NOTHING
        elif (definition := self.definition(one.name)) is not None:
            yield from (ToolTrust(result=marks_of(message).labels) for message in _context_of(definition))


def _context_of(definition: Definition) -> list[dict[str, Any]]:
    context = definition.get("context")
    return [message for message in context if isinstance(message, dict)] if isinstance(context, list) else []
