"""Reading calls: each as far as it can be used, and all that is wrong with it (SPEC R4.1, R4.2, R4.7, R10.1)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from acts_celery.protocol.calls.approvals import asks
from acts_celery.protocol.calls.call import (
    Call,
    Read,
    alias_problems,
    completed,
    make_call,
    meta_problems,
    place_in,
    read_expressions,
    shape_problems,
)
from acts_celery.protocol.calls.toolbox import Toolbox, UnknownRunner
from acts_celery.protocol.calls.tools import ALIASES, ANONYMOUS, Executor, Runner, Tool
from acts_celery.protocol.language.errors import Problem, UnknownName, pointer, segments
from acts_celery.protocol.language.limits import Limits
from acts_celery.protocol.language.messages import EVERYWHERE
from acts_celery.protocol.language.paths import MISSING
from acts_celery.protocol.schemas.work import EXCEEDED

from .submission import Pointer, Submission

_FREE_WORK: Final = 10_000
"""Units that the schema of each call's tool may take before they are counted: several times what most take."""
_MOST_READ_IN_TICK: Final = 20_000
"""References of all calls of one answer: they are parsed in one step, whenever a lane is opened."""


def read_calls(
    submission: Submission, toolbox: Toolbox, limits: Limits
) -> tuple[tuple[Call, ...], list[Problem], bool]:
    """Every call whose paths can be read, what is wrong with any, and whether it is known where each writes."""
    calls: list[Call] = []
    problems: list[Problem] = []
    paths_are_known = True
    left = _MOST_READ_IN_TICK if submission.is_in_loop else None
    reader = _Reader(toolbox, submission.instances, limits.schema_work, left, is_template=submission.is_template)
    for index, at, raw in submission.numbered:
        call, found = reader.read(index, raw, at)
        problems += found
        if call is not None:
            calls.append(call)
        elif isinstance(raw, dict):
            paths_are_known = False
    return tuple(calls), problems, paths_are_known


@dataclass
class _Written:
    """A call as it was written, completed by what its tool's schema fills in."""

    raw: Mapping[str, Any]
    name: str
    """Of its tool; empty where it has no usable shape."""
    tool: Tool | None

    @cached_property
    def constants(self) -> Mapping[str, Any]:
        """What the tool's schema fills in."""
        return self.tool.constants if self.tool is not None else {}

    @cached_property
    def properties(self) -> dict[str, Any]:
        """All of it, filled in."""
        return completed(self.raw, self.constants)

    @cached_property
    def problems(self) -> list[Problem]:
        """What is wrong with its meta-properties."""
        return list(meta_problems(self.properties))

    @cached_property
    def unusable(self) -> frozenset[str]:
        """The meta-properties that are left out for that."""
        return _told(self.problems)

    def usable(self, index: int, runner: Runner, reads: Any) -> Call:
        """The call that is left."""
        is_whole = self.name and not self.unusable
        raw = self.raw if is_whole else {**_without(self.raw, self.unusable), "_tool": self.name}
        return make_call(index, raw, _without(self.constants, self.unusable), runner, reads)

    def held(self, call: Call) -> Mapping[str, Any]:
        """What is held against schemas: with stand-ins for expressions."""
        return {**self.properties, **call.standing_in()} if self.unusable else call.standing_in()


@dataclass
class _Reader:
    """Reads calls against what is known."""

    toolbox: Toolbox
    instances: tuple[str, ...]
    work_left: int
    """What the schemas may still take. The first call that takes more is a problem, and no later one is looked at."""

    reads_left: int | None
    """How many references further calls may have, where all of them together are limited."""
    is_template: bool = False
    """Whether they are a plan's."""
    _by_tool: dict[str, tuple[Runner, Sequence[Problem]]] = field(default_factory=dict)
    """Who runs the calls of a tool that choose no code of their own."""

    @cached_property
    def _instances(self) -> frozenset[str]:
        return frozenset(self.instances)

    def read(self, index: int, raw: Any, at: Pointer) -> tuple[Call | None, list[Problem]]:
        """The call, with what is usable of it, and what is wrong with it; no call where it may write anywhere."""
        shapeless = shape_problems(raw, *at)
        if not isinstance(raw, dict):
            return None, shapeless
        reads, unparsed = read_expressions(raw, *at)
        if too_many := self._too_many(reads, at):
            reads, unparsed = (), too_many
        name = "" if shapeless else raw["_tool"]
        written = _Written(raw, name, None if shapeless else self.toolbox.tool(name))
        runner, not_run = (_stand_in(name), ()) if shapeless else self._runner(written)
        call = written.usable(index, runner, reads)
        problems = [*written.problems, *not_run, *self._instance_problems(call), *self._latent_problems(call)]
        if not shapeless:
            problems += self.toolbox.refusals(name, runner)
            problems += self._schema_problems(written.tool, runner, written.held(call), _told(problems))
        found = [*shapeless, *unparsed, *alias_problems(raw, *at), *_placed(problems, raw, at)]
        if "_instance" in written.unusable:  # wherever it belongs, it may write there; what it reads is not known
            call = replace(call, reads=(), scopes=())
        return None if "_outputPath" in written.unusable else call, found

    def _too_many(self, reads: Sequence[Read], at: Pointer) -> list[Problem]:
        """Why a call may not read as much as it does, if so."""
        if self.reads_left is None:
            return []
        count = sum(len(expression.references) for _, expression in reads)
        if count > self.reads_left:
            text = f"reads {count} places, and the calls of one answer may read {_MOST_READ_IN_TICK}: call it later"
            return [Problem(pointer(*at), text)]
        self.reads_left -= count
        return []

    def _runner(self, written: _Written) -> tuple[Runner, Sequence[Problem]]:
        """Who runs a call (SPEC R4.2); where nothing does, a stand-in and the problem."""
        if any(written.properties.get(key) is not None for key in ("_delegate", "_activity")):
            return self._chosen(written)
        if written.name not in self._by_tool:
            self._by_tool[written.name] = self._chosen(written)
        return self._by_tool[written.name]

    def _chosen(self, written: _Written) -> tuple[Runner, Sequence[Problem]]:
        """The same, looked up."""
        name, delegate, activity = written.name, *map(written.properties.get, ("_delegate", "_activity"))
        if written.tool is None and (not delegate or delegate == ANONYMOUS):
            cause = UnknownName(name, self.toolbox.names)
            is_delegate = self.toolbox.delegates is not None and name in self.toolbox.delegates
            remedy = (
                f': it is a delegate, so write "_delegate": {json.dumps(name)}, too'
                if is_delegate
                else self.toolbox.remedy(name)
            )
            return _stand_in(name), [Problem("/_tool", f"unknown tool {name!r}{remedy}", cause)]
        if not isinstance(delegate, str | None) or not isinstance(activity, str | None):
            return _stand_in(name), []
        if unfit := list(self.toolbox.choice_problems(written.tool, written.properties)):
            return _stand_in(name), unfit
        try:
            return self.toolbox.runner(name, delegate, activity), []
        except UnknownRunner as error:
            return _stand_in(name), [Problem("/_delegate" if delegate else "/_activity", str(error), error.cause)]

    def _schema_problems(
        self, tool: Tool | None, runner: Runner, held: Mapping[str, Any], told: frozenset[str]
    ) -> Iterator[Problem]:
        """What schemas say against a call, but of meta-properties of which something is said already."""
        if self.work_left < 0:
            return
        self.work_left -= max(0, (tool.work(held) if tool is not None else 0) - _FREE_WORK)
        if self.work_left < 0:
            yield Problem("", f"{EXCEEDED}: this call and the calls after it were not validated by their tools")
            return
        is_latent, strict_meta = runner.executor is Executor.LATENT, self.toolbox.strict_meta
        found = tool.problems(held, lenient=True, strict_meta=strict_meta, is_latent=is_latent) if tool else []
        found = [one if one.pointer else replace(one, message=f"{tool.name}: {one.message}") for one in found if tool]
        unfit = _told(found)
        pinned = self.toolbox.pin_problems(tool, runner, held)
        found += [problem for problem in pinned if not _told([problem]) & unfit]
        yield from (problem for problem in found if not _told([problem]) & told)

    def _instance_problems(self, call: Call) -> Iterator[Problem]:
        """A call's instance must occur in the context (SPEC R10.1)."""
        if call.instance == EVERYWHERE:
            text = "the context has no instances" if not self.instances else "a plan runs in every instance anyway"
            if not self.instances or self.is_template:
                yield Problem("/_instance", f"{text}: leave _instance out")
        elif call.instance is not None and call.instance not in self._instances:
            cause = UnknownName(call.instance, self.instances)
            yield Problem("/_instance", f"instance {call.instance!r} is not in the context", cause)
        if call.gather and not self.instances:
            yield Problem("/_gather", "the context has no instances to read from: leave _gather out")

    def _latent_problems(self, call: Call) -> Iterator[Problem]:
        """A latent call with an output path needs a result or a model to give it (SPEC R4.7)."""
        is_latent = call.runner.executor is Executor.LATENT
        if call.each and (is_latent or asks(call)):
            text = "a model writes one result for it" if is_latent else "a question is asked once"
            yield Problem("/_each", f"is for activities and delegates: {text}")
        if is_latent and call.output is not None and call.given is MISSING and not self.toolbox.model:
            yield Problem(
                "",
                f"no activity and no delegate runs {call.tool!r}, it has no _output, and no model is configured: "
                "register an activity of that name, or set ACTS_MODEL",
            )


def _stand_in(name: str) -> Runner:
    """Stands for what would run a call of an unknown tool."""
    return Runner(Executor.ACTIVITY, name)


def _told(problems: Collection[Problem]) -> frozenset[str]:
    """The meta-properties that problems of a completed call speak of."""
    if not problems:
        return frozenset()
    keys = (segments(problem.pointer)[0] for problem in problems if problem.pointer)
    return frozenset(key for key in keys if key.startswith("_"))


def _without(properties: Mapping[str, Any], unusable: Collection[str]) -> dict[str, Any]:
    """The properties but these, whichever of their names they are written under."""
    if not unusable:
        return dict(properties)
    return {key: value for key, value in properties.items() if ALIASES.get(key, key) not in unusable}


def _placed(problems: Iterable[Problem], raw: Mapping[str, Any], at: Pointer) -> Iterator[Problem]:
    """The problems of a completed call, each at what the author wrote: a value that the tool's schema filled in stands
    nowhere in the submission, so it is placed at the call.
    """
    for problem in problems:
        key, *below = segments(problem.pointer) or ("",)
        if not key.startswith("_"):
            yield replace(problem, pointer=pointer(*at) + problem.pointer)
        elif written := place_in(raw, key):
            yield replace(problem, pointer=pointer(*at, *written, *below))
        else:
            message = f"{key}, which its tool's schema fills in: {problem.message}"
            yield replace(problem, pointer=pointer(*at), message=message)
