"""A request: what a model is asked, and what its answer is held against (SPEC R12.1, R12.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from acts_celery.protocol.calls.declarations import Declared
from acts_celery.protocol.calls.toolbox import Toolbox
from acts_celery.protocol.calls.tools import Runner, Tool
from acts_celery.protocol.calls.trust import ToolTrust
from acts_celery.protocol.language.errors import Problem, Rejected
from acts_celery.protocol.language.messages import Message
from acts_celery.protocol.schemas.addresses import normalized
from acts_celery.protocol.submission.checking import Environment, asked_of, check_calls, reach_of, toolbox_of
from acts_celery.protocol.submission.shapes import shaped
from acts_celery.protocol.submission.submission import Submission, read_submission
from acts_celery.protocol.trust.effects import shows_untrusted

from .data_blocks import Budget
from .untrusted import StrangePlaces
from .widening import Definitions, Widening

Explain = Callable[[Rejected], Iterable[Problem]]


def as_they_are(rejected: Rejected) -> Iterable[Problem]:
    """The problems, without what to do about them."""
    return rejected.errors


@dataclass(frozen=True, eq=False)
class Request:
    """A submission that is a request for the loop, or a delegate's definition read as one, in its environment.

    It stays the same in every tick of a run: what is composed of it is the same bytes each time (SPEC R12.3). The
    context that it holds is the one it was submitted with; what the run has added since is given beside it.
    """

    submission: Submission
    known: Environment
    explain: Explain = as_they_are
    """What makes the problems of an answer say what to do about them; it needs more than what is known here."""
    is_native: bool = False
    """Whether its tools go as functions of the provider's own tool calling (SPEC R12.6)."""
    has_texts: bool = False
    """Whether its model may be held to a schema in which texts stand for what it cannot say (see `wire`)."""
    is_child: bool = False
    """Whether it is a delegate's: the names at the top of what it is given are the parent's, as its parameters are."""

    @property
    def schema(self) -> Any:
        """The schema of the output; null in an answer means "not yet", whether or not it admits null."""
        return self.submission.schema

    @property
    def config(self) -> Mapping[str, Any]:
        """Its settings."""
        return self.submission.config

    @property
    def instances(self) -> tuple[str, ...]:
        """The instances of its context, a set that is fixed at submission (SPEC R12.4)."""
        return self.submission.instances

    @cached_property
    def is_lazy(self) -> bool:
        """Whether the model only plans (SPEC R13.7): calls that name no instance run once in each."""
        return self.submission.is_lazy

    @cached_property
    def asked(self) -> ToolTrust:
        """What is said of all that its model can call, and of who else writes to its context (SPEC R16.3)."""
        return asked_of(self.submission, self.known)

    @cached_property
    def acting(self) -> frozenset[str]:
        """The tools whose calls change something outside, by all that is said of them and of what is behind them."""
        reach, tools = reach_of(self.submission.delegates, self.known), dict(self.submission.tools)
        return frozenset(name for name in self.tools if reach.of_tools(Declared(tools, {name: ()})).effects)

    @cached_property
    def hides(self) -> bool:
        """Whether its model is not shown what others wrote: it can call what has effects (SPEC R16.3)."""
        return self.asked.effects and not shows_untrusted(self.config)

    @property
    def shows_no_values(self) -> bool:
        """Whether its model is shown data by path, schema and size alone (SPEC R12.5)."""
        return self.config.get("show") == "schema"

    def budget(self, messages: Sequence[Message]) -> Budget:
        """How its data is shown in one message, where the log has these messages (SPEC R16.3)."""
        most = self.config.get("show_bytes"), self.known.limits.call_bytes
        hidden = StrangePlaces(messages, hides_names=not self.is_child) if self.hides else None
        return Budget(*most, hidden=hidden, by_schema=self.shows_no_values)

    @cached_property
    def may_say(self) -> bool:
        """Whether its output may be a text."""
        document = normalized(self.schema)
        return Widening("output", document, Definitions()).may_be_text(document)

    @cached_property
    def tools(self) -> Mapping[str, Tool]:
        """What a model is shown and may call: exactly the tools that the request declares, in that order, as far as
        they are allowed (SPEC R4.2a, R12.2). A bare name has the schema of the activity that is registered under it.
        """
        named = {name: self.toolbox.tool(name) or Tool(name, {}) for name in self.submission.declared}
        return {name: tool for name, tool in named.items() if not any(self.toolbox.refusals(name, self.runner(tool)))}

    @cached_property
    def toolbox(self) -> Toolbox:
        """What its calls may name."""
        return toolbox_of(self.submission, self.known)

    def runner(self, tool: Tool) -> Runner:
        """Who runs the calls of a tool that choose no code of their own (SPEC R4.2). Raises `UnknownRunner`."""
        return self.toolbox.runner(tool.name, tool.constants.get("_delegate"), tool.constants.get("_activity"))


def read_request(value: Any, known: Environment) -> Request:
    """The request that a submission would be without its solution: what a model is asked, before anything runs. One
    without a schema has no output but null. Raises `Rejected` with every structural error.
    """
    document, shape = shaped(value)
    try:
        if not isinstance(document, dict):
            read_submission(document, known.limits)  # raises
        schema = document.get("schema")
        asked = {**document, "schema": False if schema is None else schema, "solution": None}
        submission, problems = read_submission(asked, known.limits)
        check_calls(submission, problems, known)
    except Rejected as rejected:
        raise shape.rejected(rejected.errors) from None
    return Request(submission, known)
