"""The toolbox: what a call may name, and which code runs it (SPEC R4.2, R4.2a)."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from acts_celery.protocol.language.errors import Problem, UnknownName
from acts_celery.protocol.schemas.leniency import holds_expression
from acts_celery.protocol.schemas.work import EXCEEDED

from .tools import ANONYMOUS, WHO, Executor, Runner, Tool

DEFINED: Final = 'define it under "delegates", as {NAME: {"context": [MESSAGES]}}, or in code with @delegate'
"""What to do about a delegate that is not there."""


def no_remedy(name: str) -> str:
    """What there is to do about a tool that nothing is known of."""
    return ""


class UnknownRunner(LookupError):
    """A call names an activity or a delegate that is not registered; `cause` lists those that are."""

    def __init__(
        self, what: str, name: str, known: Iterable[str], remedy: str = "", spelled: str | None = None
    ) -> None:
        super().__init__(f"unknown {what} {name!r}{f': it is written {spelled!r}' if spelled is not None else ''}")
        self.cause = UnknownName(name, tuple(known), remedy)


@dataclass(frozen=True)
class Toolbox:
    """Everything a call may name: tools, activities by name with their schemas, delegates.

    `activities` or `delegates` of None means that it is not known which there are: then every declared tool counts as
    backed by an activity of its name, and every delegate as registered (planning without a backend). `allow` holds the
    names of the tools and the code that calls may use; None allows all.
    """

    tools: Mapping[str, Tool]
    activities: Mapping[str, Mapping[str, Any]] | None = None
    delegates: Container[str] | None = None
    model: bool = True
    strict_meta: bool = False
    allow: Container[str] | None = None
    derived: Callable[[str], Tool | None] = lambda name: None
    """The tool that an activity is."""
    remedy: Callable[[str], str] = no_remedy
    """What to do about a tool that is not known."""
    spelled: Callable[[str], str | None] = lambda name: None
    """The name of the delegate that another spelling leads to."""

    def tool(self, name: str) -> Tool | None:
        """The tool of that name: declared, else that of the activity registered under it (SPEC R4.2)."""
        return self.tools.get(name) or self.derived(name)

    def runner(self, tool: str, delegate: str | None, activity: str | None) -> Runner:
        """Who runs a call of a tool that names these (SPEC R4.2). Raises `UnknownRunner`."""
        if delegate:
            if delegate != ANONYMOUS and self.delegates is not None and delegate not in self.delegates:
                raise UnknownRunner("delegate", delegate, listed(self.delegates), DEFINED, self.spelled(delegate))
            return Runner(Executor.DELEGATE, delegate)
        if activity:
            if self.activities is not None and activity not in self.activities:
                raise UnknownRunner("activity", activity, self.activities)
            return Runner(Executor.ACTIVITY, activity)
        if self.activities is None or tool in self.activities:
            return Runner(Executor.ACTIVITY, tool)
        return Runner(Executor.LATENT, tool)

    def choice_problems(self, tool: Tool | None, properties: Mapping[str, Any]) -> Iterator[Problem]:
        """What is wrong with a completed call's choice of its code: its tool's schema has to name the property by which
        it chooses, and it chooses once (SPEC R4.2, R4.2a).
        """
        chosen = [key for key in ("_activity", "_delegate") if properties.get(key)]
        if tool is not None:
            for key in chosen:
                if not tool.names(key):
                    yield Problem(
                        f"/{key}",
                        f"the schema of tool {tool.name!r} does not name {key}, so no call of it may carry one",
                    )
        if len(chosen) > 1:
            yield Problem("/_delegate", "_activity and _delegate cannot stand together: leave one out")

    def pin_problems(self, tool: Tool | None, runner: Runner, properties: Mapping[str, Any]) -> Iterator[Problem]:
        """What the tools of the code that runs a completed call, other than the call's own, say against its
        meta-properties: no other name leads around what they pin (SPEC R4.2).
        """
        for behind in self.behind(tool, runner):
            if behind.pins or self.strict_meta:
                parameters = {key: value for key, value in properties.items() if not key.startswith("_")}
                pinned = {key: value for key, value in properties.items() if key not in (*WHO, "_output")}
                found = behind.problems(pinned, lenient=True, strict_meta=self.strict_meta)
                anyway = set(behind.problems(parameters, lenient=True)) if found else set()
                anyway = {problem for problem in anyway if EXCEEDED not in problem.message}
                anyway |= set(tool.problems(pinned, lenient=True)) if found and tool is not None else set()
                if behind.pins_by_parameters and holds_expression(parameters):
                    yield Problem(
                        "",
                        f"the schema of {behind.name!r}, whose code runs the call, needs parameters that are not "
                        f"known yet to decide on meta-properties: call the tool {behind.name!r} itself",
                    )
                for problem in found:
                    if problem not in anyway and (not problem.pointer or problem.pointer.startswith("/_")):
                        message = f"{problem.message} (by the schema of {behind.name!r}, whose code runs the call)"
                        yield Problem(problem.pointer, message)

    def refusals(self, tool: str, runner: Runner) -> Iterator[Problem]:
        """What of a call is not allowed: its tool, or its code where that has another name (SPEC R4.2a)."""
        if self.allow is None:
            return
        if tool not in self.allow:
            yield Problem("/_tool", f"tool {tool!r} is not allowed here")
        if runner.name != tool and runner.name not in self.allow:
            yield Problem(f"/_{runner.executor}", f"{runner.executor} {runner.name!r} is not allowed here")

    def behind(self, tool: Tool | None, runner: Runner) -> Iterator[Tool]:
        """The tools of the code that runs a call, but for the call's own: declared, and the activity itself."""
        declared = self.tools.get(runner.name)
        if declared is not None and declared is not tool and runner.name != ANONYMOUS:
            yield declared
        derived = self.derived(runner.name) if runner.executor is Executor.ACTIVITY else None
        if derived is not None and derived is not tool:
            yield derived

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all known tools."""
        return tuple(dict.fromkeys((*self.tools, *(self.activities or ()))))


def listed(names: object) -> Iterable[str]:
    """The names in a container, where it can list them."""
    return names if isinstance(names, Iterable) else ()
