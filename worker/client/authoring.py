"""Plans written in code: calls of functions, places as `ref.state.user`, checked as they are added.

    from acts_celery import Draft, ref

    draft = Draft(context=[{"type": "input", "user": "Alex"}])
    verified = draft.call(verify, user=ref.input.user) >> (ref.state.verified | ref.state.unknown)
    draft.call(greet, name=ref.state.verified) >> ref.state.greeting
    print(draft)                       # the submission, as JSON
    client.submit_document(draft.to_dict())

A text is data here, whatever it holds; only a `Ref` is a reference, and an f-string that holds one a template:

    draft.call(send, text=f"Dear {ref.state.user.name}, …")
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Never

from acts_celery.broker_config import load
from acts_celery.protocol import Plan, Problem, Rejected
from acts_celery.protocol.graph.lanes import Unresolvable
from acts_celery.protocol.language.errors import segments
from acts_celery.protocol.language.references import DAGGER, Reference, parse
from acts_celery.protocol.language.templates import OPENING, bare, escaped
from acts_celery.worker.lanes.checking import Checker

from .submitting import Texts, messages_of

if TYPE_CHECKING:
    from .client import Client


_MARK: Final = f"{DAGGER}{secrets.token_hex(8)}{{"
"""What a reference begins with in an f-string. Nothing but a `Ref` can write it: all else that the f-string holds,
texts from elsewhere among it, stays text.
"""


class Ref:
    """A place (`ref.state.user`), or several joined: `a | b` is `a || b`, `a & b` is `a && b`.

    Keys that are no identifiers, and indexes, are written `ref.state["first name"][0]`. An f-string with references in
    it, `f"Dear {ref.state.user.name}"`, is a template; it is made for a draft, and `str(place)` is what people read.
    """

    __slots__ = ("_joined", "_place")

    def __init__(self, place: Reference | None = None, joined: str = "") -> None:
        self._place = place
        self._joined = joined

    def __getattr__(self, key: str) -> Ref:
        if key.startswith("__"):  # what Python itself asks for, to copy or to display
            raise AttributeError(key)
        return self[key]

    def __getitem__(self, key: str | int) -> Ref:
        if self._place is None:
            raise TypeError(f"{self!s} are several places: write the key behind each of them")
        return Ref(Reference(self._place.kind, (*self._place.path, key)))

    def __or__(self, other: Ref) -> Ref:
        return Ref(joined=f"{self!s} || {other!s}")

    def __and__(self, other: Ref) -> Ref:
        if "||" in f"{self!s} {other!s}":
            raise TypeError("&& binds tighter than ||: write a | (b & c)")
        return Ref(joined=f"{self!s} && {other!s}")

    def __iter__(self) -> Never:
        raise TypeError("a reference has no elements before the run: give it to a call as it is")

    def __bool__(self) -> Never:
        raise TypeError("a reference has no value before the run: choose with | or by alternatives of a call's output")

    def __str__(self) -> str:
        return str(self._place) if self._place is not None else self._joined

    def __format__(self, specification: str) -> str:
        if specification:
            raise TypeError(f"a reference has no value before the run: it is put in as it is, not as {specification!r}")
        return f"{_MARK}{bare(parse(str(self))).replace(DAGGER, _IN_JSON)}}}"

    def __repr__(self) -> str:
        return f"<Ref {self!s}>"


_IN_JSON: Final = "\\u2020"
"""A dagger in a quoted key."""


class _Kinds:
    """Makes references: `ref.state`, `ref["my-kind"]`."""

    def __getattr__(self, kind: str) -> Ref:
        if kind.startswith("__"):
            raise AttributeError(kind)
        return Ref(Reference(kind))

    __getitem__ = __getattr__


ref = _Kinds()
"""Where references begin."""


class DraftCall:
    """A call of a draft; `call >> place` says where its result goes, and gives the place."""

    def __init__(self, draft: Draft, index: int) -> None:
        self._draft = draft
        self.index = index

    def __rshift__(self, place: Ref) -> Ref:
        self._draft.amend(self.index, {"_outputPath": str(place)})
        return place

    def __repr__(self) -> str:
        return f"<call {self.index}: {json.dumps(self._draft.calls[self.index], ensure_ascii=False)}>"


class Draft:
    """A solution, or with `is_plan` a plan for every instance, that is being written.

    `context`, `tools` and `delegates` are those of the submission. It is checked as `client` checks; without one by the
    settings of the environment and the activities that are registered here. A call is checked when it is added, except
    for values that later calls may write; `check` checks the whole.
    """

    def __init__(
        self,
        context: str | Mapping[str, Any] | Texts = (),
        *,
        tools: Mapping[str, Any] | None = None,
        delegates: Mapping[str, Any] | None = None,
        is_plan: bool = False,
        client: Client | None = None,
    ) -> None:
        self.context = messages_of(context)
        self.calls: list[dict[str, Any]] = []
        self.output: Any = None
        self._parts = {"tools": tools, "delegates": delegates}
        self._is_plan = is_plan
        self._checker = client.checker if client is not None else Checker(load())

    def call(self, tool: Callable[..., Any] | str, /, **properties: Any) -> DraftCall:
        """Add a call of a tool - an activity's function, or a name - with its parameters, and its meta-properties as
        they are called: `_instance="①"`, `_scopes=[ref.state]`, `_delegate="translator"`, `_outputMethod="push"`.

        Raises `protocol.Rejected` where the call is wrong whatever other calls there are; then it is not added.
        """
        name = tool if isinstance(tool, str) else self._checker.tool_of(tool)
        added = {"_tool": name, **{key: _property(key, value) for key, value in properties.items()}}
        self._require([*self.calls, added])
        self.calls.append(added)
        return DraftCall(self, len(self.calls) - 1)

    def amend(self, index: int, properties: Mapping[str, Any]) -> None:
        """Change properties of a call. Raises `protocol.Rejected`, and then nothing has changed."""
        changed = {**self.calls[index], **properties}
        self._require([*self.calls[:index], changed, *self.calls[index + 1 :]])
        self.calls[index] = changed

    def check(self) -> Plan:
        """The whole, checked. Raises `protocol.Rejected` with everything that is wrong."""
        return self._checker.check(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """The submission."""
        return self._submission(self.calls)

    def __str__(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2)

    def _submission(self, calls: list[dict[str, Any]]) -> dict[str, Any]:
        parts = {key: dict(part) for key, part in self._parts.items() if part is not None}
        if self._is_plan:
            return {"context": [*self.context, {"type": "plan", "calls": calls}], **parts}
        output = None if self.output is None else _written(self.output)
        return {"context": self.context, "solution": {"calls": calls, "output": output}, **parts}

    def _require(self, calls: list[dict[str, Any]]) -> None:
        """Raise `Rejected` for what no other call can mend."""
        try:
            self._checker.check(self._submission(calls))
        except Rejected as rejected:
            if lasting := [problem for problem in rejected.errors if _is_lasting(problem)]:
                raise Rejected(lasting) from None


def _is_lasting(problem: Problem) -> bool:
    return "calls" in segments(problem.pointer) and not isinstance(problem.cause, Unresolvable)


def _property(key: str, value: Any) -> Any:
    """A property of a call; the texts in meta-properties are neither expressions nor escaped."""
    return _with(_as_it_is if key.startswith("_") else _as_parameter, value)


def _written(value: Any) -> Any:
    """A value as it stands in a submission: references as expressions, f-strings of references as templates, all other
    texts escaped (SPEC R2.2, R2.6).
    """
    return _with(_as_parameter, value)


def _with(text_of: Callable[[str], str], value: Any) -> Any:
    if isinstance(value, Ref):
        return str(value)
    if isinstance(value, str):
        return text_of(value)
    if isinstance(value, Mapping):
        return {_as_it_is(key): _with(text_of, each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with(text_of, each) for each in value]
    return value


def _as_parameter(text: str) -> str:
    return escaped(text).replace(escaped(_MARK), OPENING)


def _as_it_is(text: Any) -> Any:
    """A text in which nothing is read. Raises `TypeError` where a reference stands in it."""
    if isinstance(text, str) and _MARK in text:
        raise TypeError("an f-string of references is a value of a parameter: here no text is read")
    return text
