"""Make and admit submissions: their parts, labels, types of output, owners, limits, and plans written in code."""

from __future__ import annotations

import gc
import hashlib
import inspect
import json
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import wraps
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Never, TypedDict, Unpack

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError
from redis import Redis
from redis.exceptions import LockError

from ...broker_config import Settings, load
from ...broker_config.tokens import Identity
from ...protocol import Plan, Problem, Rejected
from ...protocol.calls.built_in import NO_MOMENT, moment_ms
from ...protocol.engine.costs import CURRENCY, dollars_of
from ...protocol.errors import Speller, pointer, segments
from ...protocol.messages import with_changed
from ...protocol.plan.lanes import Unresolvable
from ...protocol.plan.submission import shaped
from ...protocol.references import DAGGER, Reference, parse
from ...protocol.templates import OPENING, bare, escaped
from ..backoff import batches
from ..broker.attempts import TracePlace, current_place
from ..errors import InfrastructureError, OutputUnfit, OverLimit
from ..limits import AT_ONCE, DAY_MS, SUBMITTING_MADE
from ..registry.activities import first_fault
from ..runner.checking import Checker
from ..store.commits import ELEMENTS, ELEMENTS_LEFT, PAID_MONEY, PAID_TOKENS
from ..store.keys import ENDED_STATUSES
from ..store.run_list import OWNER, TRACE, RunList, top_of
from ..store.scripts import server_ms
from .files import File, Given, content_of

if TYPE_CHECKING:
    from .client import Client


# Labels: the id, the name and the tags that a client gives to a run.
#
# The same id twice is one run: the second client gets the first one's run (see `dispatcher.claimed`).


@dataclass(frozen=True, slots=True)
class Label:
    """The id, the name and the tags of a run, and where it belongs in a trace."""

    id: str | None = None
    name: str | None = None
    tags: tuple[str, ...] = ()
    digest: str = ""
    """The digest of the submission, if an id was given: another submission under that id is refused."""
    trace: TracePlace | None = None
    """The span that the run is submitted under."""
    contracts: str = ""
    """The contracts it was checked against, where the code of its activities is elsewhere (see `registry.contracts`).
    """
    at_ms: int | None = None
    """The time at which the run begins. Without one, or if it is past, it begins at once."""
    priority: int = 0
    owner: str | None = None
    """The owner of the run, if it is not the one who submits it."""

    def fields(self) -> dict[str, str]:
        """Make the fields of the run's state."""
        found = {"name": self.name, "tags": "\n".join(self.tags), "digest": self.digest, OWNER: self.owner}
        found |= {"contracts": self.contracts, "priority": str(self.priority or "")}
        found[TRACE] = self.trace.pack() if self.trace is not None else None
        return {key: value for key, value in found.items() if value}


class LabelOptions(TypedDict, total=False):
    """The options of a submission from which its label is made."""

    id: str | None
    name: str | None
    tags: Iterable[str]
    traceparent: str | None
    at: str | datetime | None
    priority: int | None


LATEST: Final = "latest"
"""The text that means the newest run wherever a run is named."""
_OF_IDS: Final = "letters, digits, dots, hyphens and _, beginning with a letter or digit, 128 at most"
ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\Z", re.ASCII)
NO_LABEL: Final = Label()


def label_of(value: Any, **options: Unpack[LabelOptions]) -> Label:
    """Make the label of a submission; without a `traceparent` it is under OpenTelemetry's current span, if any. Raises
    `protocol.Rejected` for an id that no run can have, an invalid `traceparent`, and an `at` that is no moment.
    """
    id, traceparent, at = options.get("id"), options.get("traceparent"), options.get("at")
    trace = current_place() if traceparent is None else TracePlace.read_header(traceparent)
    at_ms = moment_ms(at.isoformat() if isinstance(at, datetime) else str(at))
    problem = None
    if traceparent is not None and trace is None:
        problem = f"{traceparent!r} is no traceparent: give one as W3C Trace Context has it, 00-TRACE-SPAN-01, or none"
    elif at is not None and at_ms is None:
        problem = f"at={str(at)[:80]!r} {NO_MOMENT}"
    elif id == LATEST:
        problem = f"{id!r} cannot be a run's id: it means the newest run"
    elif id is not None and not ID.match(id):
        problem = f"{id!r} cannot be the id of a run: {_OF_IDS}"
    if problem is not None:
        raise Rejected([Problem("", problem)])
    name, tags, digest = options.get("name"), tuple(options.get("tags", ())), "" if id is None else _digest(value)
    return Label(id, name, tags, digest, trace, "", at_ms, options.get("priority") or 0)


def _digest(value: Any) -> str:
    """Make the digest of a submission that was checked; the order of an object's keys does not matter."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


# The type of a run's output: a class that was submitted as its schema.

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from .results import Result

    OutputT = TypeVar("OutputT", default=Any, covariant=True)
    """The type of a run's output; anything for a plain `Run`."""
else:
    from typing import TypeVar

    OutputT = TypeVar("OutputT", covariant=True)


@dataclass(frozen=True)
class OutputType:
    """The type of a run's output, and what validates values of it."""

    type: Any
    adapter: TypeAdapter[Any]


def typed(result: Result, kind: OutputType | None) -> Result:
    """Convert the output of a completed run to a value of its type. Raises `OutputUnfit`."""
    if kind is None or result.status != "completed":
        return result
    try:
        return replace(result, output=kind.adapter.validate_python(result.output), plain_output=result.output)
    except ValidationError as error:
        name = getattr(kind.type, "__name__", kind.type)
        raise OutputUnfit(
            f"run {result.run} has completed, and {name} refuses its output: {first_fault(error)}; "
            "`client.run(ID).result().output` is the output as JSON"
        ) from error


def output_type(schema: Any) -> OutputType | None:
    """Read a type given as a schema; None for a JSON Schema. Raises `protocol.Rejected` if the type has no schema."""
    if schema is None or isinstance(schema, bool | Mapping):
        return None
    try:
        found = OutputType(schema, TypeAdapter(schema))
        found.adapter.json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
        reason = str(error).splitlines()[0]
        text = f"{schema!r} is no JSON Schema and has none: {reason}"
        raise Rejected([Problem(pointer("schema"), text)]) from error
    return found


Texts = Iterable[str | Mapping[str, Any] | File | Path | bytes]
"""Messages; a text is one of type `text`, a file one that shows it."""
Context = str | Mapping[str, Any] | File | Path | bytes | Texts
"""The context of a submission: one message, or several."""
Tool = Callable[..., Any] | str | Mapping[str, Any]
"""An activity's function, the name of an activity, or an object of tool name to JSON Schema."""

_ADDED: Final = ("delegates", "config")
"""The parts whose entries are added to the document's own."""
_PARTS: Final = ("tools", "schema", *_ADDED)


class OtherOptions(LabelOptions, total=False):
    """The options of a submission, without its schema."""

    tools: Tool | Sequence[Tool] | None
    delegates: Mapping[str, Any] | None
    config: Mapping[str, Any] | None
    allow: Iterable[str] | None
    files: Mapping[str, Given] | None
    state_of: str | None


class SubmissionOptions(OtherOptions, total=False):
    """The options of a submission; `schema` is a JSON Schema, or a type that pydantic has a schema of."""

    schema: Any


def document_of(context: Submitted, solution: Mapping[str, Any] | None) -> Any:
    """Make a submission from a context and a solution; a draft, a document and a list with calls in it are whole ones.
    Raises `TypeError` for a solution beside a draft.
    """
    if isinstance(context, Draft):
        if solution is not None:
            raise TypeError("a draft has its calls: submit it alone, or give its context and the solution")
        return context.to_dict()
    if solution is None and _is_whole(context):
        return context
    document: dict[str, Any] = {"context": messages_of(context)}
    return document if solution is None else {**document, "solution": solution}


def whole(value: Any) -> Any:
    """A whole submission: a draft's, or the value as it is."""
    return value.to_dict() if isinstance(value, Draft) else value


def _is_whole(context: Submitted) -> bool:
    """Tell a document from a message, and a list of messages from one that has calls beside messages."""
    if isinstance(context, Mapping):
        return not context.keys() & {"type", "role"}
    return isinstance(context, list | tuple) and any(isinstance(each, Mapping) and "_tool" in each for each in context)


def messages_of(context: Context) -> list[dict[str, Any]]:
    """Make the messages of a context, or of one message: texts become messages of type `text`, files are the user's."""
    messages = (context,) if isinstance(context, str | Mapping | File | Path | bytes) else context
    return [_message_of(each) for each in messages]


def _message_of(each: str | Mapping[str, Any] | File | Path | bytes) -> dict[str, Any]:
    if isinstance(each, str):
        return {"type": "text", "message": each}
    if isinstance(each, Mapping):
        return dict(with_changed(each, content_of))
    return {"role": "user", "content": [content_of(each)]}


def with_parts(value: Any, options: SubmissionOptions, tool_of: Callable[[Callable[..., Any]], str]) -> Any:
    """Add tools, delegates and settings to a submission, in place of its own of the same name, and set its schema. A
    value that is no object is returned as it is, for the check to refuse it.

    `tool_of` gives the tool of an activity's function. Raises `protocol.Rejected`.
    """
    document, _ = shaped(value)
    if not isinstance(document, Mapping) or all(options.get(part) is None for part in _PARTS):
        return value
    whole = dict(document)
    for key in _ADDED:
        given: Any = options.get(key)
        if given is not None:
            own = whole.get(key, {})
            whole[key] = {**own, **given} if isinstance(own, Mapping) and isinstance(given, Mapping) else given
    if (tools := options.get("tools")) is not None:
        own = whole.get("tools") or {}
        if isinstance(tools, Mapping) and isinstance(own, Mapping):
            whole["tools"] = {**own, **tools}
        else:
            listed = [tool_of(tool) if callable(tool) else tool for tool in _listed(tools)]
            whole["tools"] = [*(_listed(own) if own else ()), *listed]
    if (schema := options.get("schema")) is not None:
        kind = output_type(schema)
        whole["schema"] = schema if kind is None else kind.adapter.json_schema()
    return whole


def with_state(value: Any, state: Sequence[Mapping[str, Any]]) -> Any:
    """Put messages of a state before the context of a submission, whose own messages add to it. A value of no known
    shape is returned as it is, for the check to refuse it.
    """
    document, _ = shaped(value)
    context = document.get("context", []) if isinstance(document, Mapping) else None
    return {**document, "context": [*state, *context]} if isinstance(context, list) else value


@contextmanager
def counted_behind(state: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """Let the errors of a block point into the context as it was before messages of a state were put before it."""
    try:
        yield
    except Rejected as rejected:
        rejected.errors = tuple(replace(one, pointer=_behind(one.pointer, len(state))) for one in rejected.errors)
        raise


def _behind(at: str, count: int) -> str:
    first, *below = segments(at) or ("",)
    is_message = first == "context" and below and below[0].isdecimal() and int(below[0]) >= count
    return pointer(first, str(int(below[0]) - count), *below[1:]) if is_message else at


def label_options(options: SubmissionOptions) -> LabelOptions:
    """Pick the options from which a label is made."""
    return {key: options[key] for key in LabelOptions.__annotations__ if key in options}  # type: ignore[literal-required, return-value]  # the keys are its own


def _listed(tools: Any) -> Sequence[Any]:
    """Make a list of one tool, or of several."""
    return tools if isinstance(tools, list | tuple) else [tools]


# Ownership: a run that was submitted, forked or imported with a token belongs to the token's owner. The run's state
# says so for as long as it is kept; to know an id gives no right to the run.

# How often Python searches for garbage while much is made at once.
#
# What a submission or a result is made of holds itself in no circle, so there is nothing to be found in it, and a large
# one would be searched through again and again.

_lock: Final = Lock()
_usual: list[int] = []
"""The threshold that each block under way has found; the first is the process's own."""


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Search for garbage seldom in a block or a function, unless the process does so itself, or never searches."""
    with _lock:
        _usual.append(gc.get_threshold()[0])
        if 0 < _usual[-1] < SUBMITTING_MADE:
            gc.set_threshold(SUBMITTING_MADE, *gc.get_threshold()[1:])
    try:
        yield
    finally:
        with _lock:
            usual = _usual[0]
            _usual.pop()
            if not _usual and gc.get_threshold()[0] == SUBMITTING_MADE:
                gc.set_threshold(usual, *gc.get_threshold()[1:])


# Admission: the gate for everything that begins work - a run, a fork, calls that are added or retried, more ticks, a
# message to a loop - by the limits of the token that was shown.
#
# There are no counters: what an owner uses is read from the states of the runs in its index, so nothing can leak, and a
# deleted run no longer counts. One run of an owner with limits is written at a time, so two that come together are not
# both the last one that fits. What models take is known when they have answered: an owner that has spent more than its
# limit begins nothing more on that day. Elements of an `_each` call count as they begin; a run that would begin more of
# them than were left when it was admitted fails (see lua/commit.lua).

_FIELDS: Final = (OWNER, "imported", "total", ELEMENTS, "loop:cost", PAID_TOKENS, PAID_MONEY)


@contextmanager
def admitted(redis: Redis, settings: Settings, calls: int = 0, *, more_of: str = "") -> Iterator[dict[str, Any]]:
    """Begin work of so many calls in this block: a new run, or `more_of` one. Yields fields for the state of a new run.

    Raises `OverLimit` if the token's owner may not begin it, `InfrastructureError` if another client of the owner
    holds the lock for too long, `RedisError`.
    """
    identity = settings.identity
    if identity is None or (identity.limits.runs is None and not identity.limits.are_of_a_day):
        yield {}
        return
    runs = RunList(redis, settings.key_prefix)
    lock = runs.admission(identity.name)
    if not lock.acquire():
        raise InfrastructureError(f"another run of {identity.name} is being written down; try again")
    try:
        _refuse_runs(runs, identity, top_of(redis, settings.key_prefix, more_of) if more_of else "")
        left = _refuse_day(runs, server_ms(redis), identity, calls)
        yield {} if left is None else {ELEMENTS_LEFT: left}
    finally:
        with suppress(LockError):  # its time was over
            lock.release()


def _refuse_runs(runs: RunList, identity: Identity, but: str) -> None:
    most = identity.limits.runs
    if most is not None and (found := _under_way(runs, identity.name, but)) >= most:
        raise OverLimit(
            f"{identity.name} has {found} runs under way, and its limit is {most} (runs={most}, behind its token): "
            "wait until one ends or cancel one, or have it raised"
        )


def _refuse_day(runs: RunList, now_ms: int, identity: Identity, calls: int) -> int | None:
    """Raise `OverLimit`, or say how many calls are left for elements; None is any number."""
    limits = identity.limits
    if not limits.are_of_a_day:
        return None
    spent = _spent_since(runs, identity.name, now_ms - now_ms % DAY_MS)
    for name, taken in spent.items():
        most, added, unit = (
            getattr(limits, name),
            calls if name == "calls" else 0,
            CURRENCY if name == "money" else name,
        )
        if most is not None and (taken + added > most or taken >= most):
            more = f", this one has {added} more" if added else ""
            raise OverLimit(
                f"the runs that {identity.name} has begun today have taken {taken:f} {unit}{more}, and its limit is "
                f"{Decimal(most):f} a day ({name}={Decimal(most):f}, behind its token): begin it after midnight UTC, "
                "or have it raised"
            )
    return None if limits.calls is None else limits.calls - int(spent["calls"]) - calls


def _under_way(runs: RunList, owner: str, but: str) -> int:
    """Count the runs of an owner that are under way, without one."""
    found = 0
    for page in batches(runs.owned(owner), AT_ONCE):
        states = runs.fields([run for run in runs.submitted(page) if run != but], OWNER, "status")
        found += sum(whose == owner and status is not None and status not in ENDED_STATUSES for whose, status in states)
    return found


def _spent_since(runs: RunList, owner: str, since_ms: int) -> dict[str, Decimal]:
    """Sum up what the runs have taken that an owner has begun since a time. The cost of a child run is in the run above
    it, its calls are not.
    """
    calls, tokens, money = 0, 0, Decimal(0)
    for some in batches(runs.owned(owner, since_ms=since_ms), AT_ONCE):
        for whose, imported, total, elements, cost, paid_tokens, paid_money in runs.fields(some, *_FIELDS):
            if whose != owner or imported:  # what an import has taken was taken elsewhere
                continue
            loop = json.loads(cost) if cost is not None else {}  # it has what its calls have cost, too
            calls += int(total or 0) + int(elements or 0)
            tokens += loop.get("tokens", 0) if loop else int(paid_tokens or 0)
            money += Decimal(loop.get("money") or 0) if loop else Decimal(dollars_of(int(paid_money or 0)))
    for some in batches(runs.owned_children(owner, since_ms=since_ms), AT_ONCE):
        for counts in runs.fields(some, "total", ELEMENTS):
            calls += sum(int(count or 0) for count in counts)
    return {"calls": Decimal(calls), "tokens": Decimal(tokens), "money": money}


# Options by name: a method takes those of its signature, and says which one is meant by any other.

C = TypeVar("C", bound=type)
_TEXTS: Final = "Iterable[str]"
"""The annotation of an option that takes several texts."""


def with_named_options(cls: C) -> C:
    """Have each public method of a class refuse an option that it does not have, with the nearest that it has, and one
    text where several are meant. A bundle of options (`**options: Unpack[…]`) is written out in its signature.
    """
    for name, method in [*vars(cls).items()]:
        if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")):
            setattr(cls, name, _careful(method, cls.__name__ if name == "__init__" else name))
    return cls


def _careful(method: Callable[..., Any], called: str) -> Callable[..., Any]:
    signature = _written_out(inspect.signature(method))
    parameters = list(signature.parameters.values())
    known = {one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
    several = {one.name: place for place, one in enumerate(parameters) if _TEXTS in str(one.annotation)}

    def require(given: Sequence[Any], named: Mapping[str, Any]) -> None:
        if not (takes_any or named.keys() <= known):
            raise TypeError(_no_option(called, next(name for name in named if name not in known), known - {"self"}))
        for name, place in several.items():
            value = named.get(name, given[place] if place < len(given) else None)
            if isinstance(value, str | bytes):
                raise TypeError(f"{called}() takes several texts as {name!r}: write {name}=[{value!r}]")

    # A coroutine function and an asynchronous generator function stay what they are for `inspect`.
    careful: Callable[..., Any]
    if inspect.iscoroutinefunction(method):

        async def careful(*given: Any, **named: Any) -> Any:
            require(given, named)
            return await method(*given, **named)

    elif inspect.isasyncgenfunction(method):

        async def careful(*given: Any, **named: Any) -> Any:
            require(given, named)
            async with aclosing(method(*given, **named)) as values:
                async for value in values:
                    yield value

    else:

        def careful(*given: Any, **named: Any) -> Any:
            require(given, named)
            return method(*given, **named)

    shown = wraps(method)(careful)
    shown.__signature__ = signature  # type: ignore[attr-defined]  # asked for by `inspect`
    return shown


def _written_out(signature: inspect.Signature) -> inspect.Signature:
    """The signature with the options of a bundle, those of a label last."""
    parameters = [*signature.parameters.values()]
    bundles = {f"Unpack[{bundle.__name__}]": bundle for bundle in (SubmissionOptions, OtherOptions)}
    bundle = bundles.get(str(parameters[-1].annotation)) if parameters else None
    if bundle is None:
        return signature
    last = parameters.pop()
    for name, kind in sorted(bundle.__annotations__.items(), key=lambda one: one[0] in LabelOptions.__annotations__):
        annotation, default = getattr(kind, "__forward_arg__", kind), () if name == "tags" else None
        parameters.append(inspect.Parameter(name, last.KEYWORD_ONLY, default=default, annotation=annotation))
    return signature.replace(parameters=parameters)


def _no_option(called: str, name: str, known: Collection[str]) -> str:
    last = name.rpartition("_")[2]
    hint = f", did you mean {last!r}?" if last in known else Speller(likeness=0.63).hint(name, known)
    return f"{called}() has no option {name!r}{hint or '; it has ' + (', '.join(sorted(known)) or 'none')}"


# Plans written in code: calls of functions, places as `ref.state.user`, checked as they are added.
#
#     from acts_celery import Draft, ref
#
#     draft = Draft(context=[{"type": "input", "user": "Alex"}])
#     verified = draft.call(verify, user=ref.input.user) >> (ref.state.verified | ref.state.unknown)
#     draft.call(greet, name=ref.state.verified) >> ref.state.greeting
#     print(draft)                       # the submission, as JSON
#     client.submit(draft)
#
# A text is data here, whatever it holds; only a `Ref` is a reference, and an f-string that holds one a template:
#
#     draft.call(send, text=f"Dear {ref.state.user.name}, …")

_MARK: Final = f"{DAGGER}{secrets.token_hex(8)}{{"
"""The beginning of a reference in an f-string. Nothing but a `Ref` can write it: everything else in the f-string, even
a text from elsewhere, stays text.
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
"""The beginning of every reference: `ref.state.user`."""


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


@with_named_options
class Draft:
    """A solution, or with `is_plan` a plan for every instance, that is being written.

    `context`, `tools` and `delegates` are the submission's. It is checked as `client` checks; without one by the
    settings of the environment and the activities that are registered here. A call is checked when it is added, except
    for values that later calls may write; `check` checks the whole.
    """

    def __init__(
        self,
        context: Context = (),
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
        """Check the whole submission. Raises `protocol.Rejected` with everything that is wrong."""
        return self._checker.check(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Make the submission."""
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
        """Raise `Rejected` for problems that no other call can solve."""
        try:
            self._checker.check(self._submission(calls))
        except Rejected as rejected:
            if lasting := [problem for problem in rejected.errors if _is_lasting(problem)]:
                raise Rejected(lasting) from None


def _is_lasting(problem: Problem) -> bool:
    return "calls" in segments(problem.pointer) and not isinstance(problem.cause, Unresolvable)


def _property(key: str, value: Any) -> Any:
    """Write a property of a call; the texts in meta-properties are neither expressions nor escaped."""
    return _with(_as_it_is if key.startswith("_") else _as_parameter, value)


def _written(value: Any) -> Any:
    """Write a value for a submission: references as expressions, f-strings of references as templates, all other texts
    escaped (SPEC R2.2, R2.6).
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
    """Pass on a text in which nothing is read. Raises `TypeError` if it holds a reference."""
    if isinstance(text, str) and _MARK in text:
        raise TypeError("an f-string of references is a value of a parameter: here no text is read")
    return text


Submitted = Draft | Context
"""The first argument of `submit`: a draft, a document, or the context."""
