"""Activities: the code that implements tools, and how it is registered (SPEC R4.1a, R4.2).

    @activity
    async def greetUser(userName: str) -> str: ...

A function's parameters become the tool's schema. Keyword-only parameters named like a kind (`state`, `input`, `data`,
`error`) receive the call's scopes. A function of exactly `(call, context)` gets the call as a dict and its scopes as a
dict of kind to value, and admits any parameters.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import time
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property, lru_cache, partial, wraps
from pathlib import Path
from types import CodeType
from typing import Any, Final, TypedDict, TypeVar, Unpack, overload

from pydantic import ConfigDict, ValidationError, validate_call

from ...protocol.calls.built_in import BUILT_IN
from ...protocol.calls.call import ASK_HUMAN, Call
from ...protocol.calls.declarations import Contract, digest_of
from ...protocol.calls.meta_properties import WITHHELD
from ...protocol.calls.tools import GRANTED, ONCE, Executor
from ...protocol.errors import Problem, Speller
from ...protocol.limits import has_control_characters
from ...protocol.messages import DATA_TYPES
from .. import limits
from ..errors import ActivitiesError, InvalidParameters
from .signatures import Untrusted, declared_trust, parameters_schema, returns_schema, takes, with_descriptions

# The version of registered code: given to its decorator, else a digest of its module's source (SPEC R17.1).


def require_version(version: Any) -> None:
    """Raise `ActivitiesError` for a version that is no short printable text."""
    is_one = isinstance(version, str) and 0 < len(version) <= limits.LONGEST_VERSION and version.isprintable()
    if version is not None and not is_one:
        text = f'version is {version!r}: a text of at most {limits.LONGEST_VERSION} characters, such as version="2"'
        raise ActivitiesError(text)


def version_of(function: Callable[..., Any]) -> str:
    """A digest of the source of the function's module, 12 hexadecimal digits; where that is no file, as in a notebook,
    a digest of the function's compiled code.
    """
    plain: Any = inspect.unwrap(function)
    while isinstance(plain, partial):
        plain = inspect.unwrap(plain.func)
    if not inspect.isfunction(plain := getattr(plain, "__func__", plain)):
        plain = inspect.unwrap(type(plain).__call__)
    path: Any = getattr(plain, "__globals__", {}).get("__file__")
    try:
        found = Path(path).stat()
        return _of_file(path, found.st_mtime_ns, found.st_size)
    except (OSError, TypeError, ValueError):
        return digest_of(_compiled(getattr(plain, "__code__", None)))


@lru_cache(1_000)
def _of_file(path: str, _changed_ns: int, _size: int) -> str:
    return digest_of(Path(path).read_bytes())


def _compiled(code: Any) -> bytes:
    """Bytes that tell compiled code apart, the same in each process."""
    if not isinstance(code, CodeType):
        return b""
    constants = b"".join(
        _compiled(one) or repr(one).encode() for one in code.co_consts if not isinstance(one, frozenset)
    )
    return code.co_code + " ".join(code.co_names).encode() + constants


Function = Callable[..., Any]
F = TypeVar("F", bound=Function)
R = TypeVar("R", bound="Registered")

_CONFIG: Final = ConfigDict(arbitrary_types_allowed=True)
_RATE: Final = re.compile(r"([1-9][0-9]{0,6})/([1-9][0-9]{0,2})?([smhd])", re.ASCII)
_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NUMBERS: Final = (
    ("retries", int, "a whole number"),
    ("max_concurrency", int, "a whole number"),
    ("timeout_seconds", (int, float), "a number"),
    ("total_timeout_seconds", (int, float), "a number"),
    ("cache_seconds", (int, float), "a number"),
    ("backoff_seconds", (int, float), "a number"),
    ("backoff_max_seconds", (int, float), "a number"),
)


@dataclass(frozen=True)
class Policy:
    """The attempts of a call, their time and the waits between them, and over all workers the calls at work at a time,
    and those that begin within a time.

    Waits between attempts double from `backoff_seconds`, with jitter. Raises `ActivitiesError`.
    """

    retries: int = 0
    timeout_seconds: float | None = None
    backoff_seconds: float = 0.5
    backoff_max_seconds: float = 30.0
    max_concurrency: int | None = None
    _: KW_ONLY
    rate: Any = None
    """A text such as `10/s`."""
    key: Any = None
    """The parameter by whose value `rate` and `max_concurrency` hold separately."""
    retry_on: tuple[type[BaseException], ...] | None = None
    """The only errors after which there is another attempt."""
    no_retry_on: tuple[type[BaseException], ...] = ()
    once: bool = False
    """Whether a call runs at most once (SPEC R4.11)."""
    total_timeout_seconds: float | None = None
    """The time of all attempts and the waits between them, from when the first begins."""
    cache_seconds: float | None = None
    """How long a result is kept for calls that are given the same; None where none is."""

    def of(self, *, once: bool) -> Policy:
        """The policy of a call, of which more may be known."""
        return self if once is self.once else replace(self, once=once)

    def within(self, seconds: float) -> Policy:
        """The policy of an attempt that has so many seconds at most."""
        own = (self.timeout_seconds, self.total_timeout_seconds)
        return replace(self, timeout_seconds=min(seconds, *filter(None, own)))

    def __post_init__(self) -> None:
        for name, kinds, noun in _NUMBERS:
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, kinds)):
                raise ActivitiesError(f"{name} is {value!r}: {noun}, such as {name}=3")
        if self.max_concurrency is not None and self.max_concurrency < 1:
            raise ActivitiesError(f"max_concurrency is {self.max_concurrency}: at least 1, or nothing for no limit")
        for name in ("timeout_seconds", "total_timeout_seconds"):
            if (seconds := getattr(self, name)) is not None and seconds <= 0:
                raise ActivitiesError(f"{name} is {seconds}: more than 0, or nothing for no limit")
        if self.cache_seconds is not None and not 1 <= self.cache_seconds <= limits.LONGEST_RETRY_DELAY_SECONDS:
            raise ActivitiesError(f"cache_seconds is {self.cache_seconds}: at least 1, and at most a year")
        if (total := self.total_timeout_seconds) is not None and total < (self.timeout_seconds or 0):
            raise ActivitiesError(f"total_timeout_seconds is {total}: at least timeout_seconds, {self.timeout_seconds}")
        for name in ("retries", "backoff_seconds", "backoff_max_seconds"):
            if getattr(self, name) < 0:
                raise ActivitiesError(f"{name} is {getattr(self, name)}: at least 0")
        self._check_rate()
        if not self.retries and (self.retry_on is not None or self.no_retry_on):
            raise ActivitiesError("retry_on and no_retry_on need retries: add retries=3")

    def _check_rate(self) -> None:
        if self.rate is not None and self.rate_limit is None:
            text = f'such as rate="10/s", "100/m", "5/10s", "1000/d", at most {limits.MOST_A_RATE} calls'
            raise ActivitiesError(f"rate is {self.rate!r}: {text}, in at most 999 of s, m, h or d")
        if self.key is None:
            return
        if not (isinstance(self.key, str) and self.key):
            raise ActivitiesError(f'key is {self.key!r}: the name of a parameter, such as key="customer"')
        if self.rate is None and self.max_concurrency is None:
            raise ActivitiesError(
                f'key is {self.key!r}, and nothing is limited by it: add rate="10/s", or max_concurrency=1'
            )

    @cached_property
    def rate_limit(self) -> tuple[int, int] | None:
        """How many calls may begin in how many ms; None where there is no rate, or none that can be kept."""
        found = _RATE.fullmatch(self.rate) if isinstance(self.rate, str) else None
        if found is None:
            return None
        most, window_ms = int(found[1]), int(found[2] or 1) * _UNITS_MS[found[3]]
        return (most, window_ms) if most <= limits.MOST_A_RATE else None

    def may_retry(self, error: BaseException) -> bool:
        """Whether there may be another attempt after an error; after a group, where that is so for all in it."""
        if isinstance(error, self.no_retry_on):
            return False
        if self.retry_on is not None and isinstance(error, self.retry_on):
            return True
        if isinstance(error, BaseExceptionGroup):
            return all(map(self.may_retry, error.exceptions))
        return self.retry_on is None


@dataclass(frozen=True)
class Registered:
    """A function that is registered under a name."""

    name: str
    function: Function
    given_version: str | None = field(default=None, kw_only=True)
    """The version that its decorator names."""

    def __post_init__(self) -> None:
        """Raises `ActivitiesError`."""
        require_version(self.given_version)

    @cached_property
    def version(self) -> str:
        """The version of the code (SPEC R17.1)."""
        return self.given_version or version_of(self.function)

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function."""
        return inspect.iscoroutinefunction(self.function)


@dataclass(frozen=True)
class Activity(Registered):
    """A registered activity. `queue` of None means that it runs in line, in the instance's own task."""

    schema: Mapping[str, Any]
    scopes: tuple[str, ...]
    takes_call: bool
    queue: str | None = None
    policy: Policy = field(default_factory=Policy)
    settled: Callable[[str, dict[str, Any]], Any] | None = None
    """The function that says how a call has ended that was begun and whose end is not known (SPEC R4.11)."""
    undo: str | None = None
    """The activity that undoes a call (see `client.undoing`)."""

    def __post_init__(self) -> None:
        """Raises `ActivitiesError` for a key that is no parameter."""
        super().__post_init__()
        names = [name for name in self.schema.get("properties", {}) if not name.startswith("_")]
        if self.policy.key is not None and not self.takes_call and self.policy.key not in names:
            hint = Speller().hint(self.policy.key, names) or f"; there are {', '.join(names) or 'none'}"
            raise ActivitiesError(f"activity {self.name!r}: key is {self.policy.key!r}, which is no parameter{hint}")

    def key_of(self, parameters: Mapping[str, Any]) -> str:
        """A digest of the value of the parameter that the policy's `key` names, as it is, or by default; a whole number
        has one, however it is written.
        """
        key = self.policy.key or ""
        value = parameters.get(key, self.schema.get("properties", {}).get(key, {}).get("default"))
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return digest_of(json.dumps(value, sort_keys=True, default=str).encode())

    @cached_property
    def contract(self) -> Contract:
        """The digests and rules of its parameters and results (SPEC R17.1)."""
        return Contract(self.name, self.schema)

    def misfits(self, call: Mapping[str, Any], parameters: Mapping[str, Any], mark: str) -> list[Problem]:
        """The objections of its contract to a call that was checked under the contract of `mark` (SPEC R17.3). A
        parameter that the function's own validation converts, such as a text to a number, is no objection.
        """
        problems = self.contract.problems({**call, **parameters}, mark)
        if problems and not self.takes_call and not any(problem.pointer.startswith("/_") for problem in problems):
            try:
                self._validated(**parameters, **{kind: {} for kind in self.scopes})
            except (ValidationError, TypeError):
                return problems
            return []
        return problems

    def refusal(self, call: Mapping[str, Any], parameters: Mapping[str, Any], mark: str) -> str | None:
        """The objections as the text of a call's error, which names both contracts; None for no objections."""
        if not (problems := self.misfits(call, parameters, mark)):
            return None
        own, before = f"contract {self.contract.digest}", f"contract {mark.partition(' ')[0]}"
        text = f"version {self.version} of {self.name!r}, {own}, which does not admit the call, checked under {before}"
        return f"{text}: {'; '.join(map(str, problems))}"

    @property
    def is_settled_async(self) -> bool:
        """Whether `settled` is a coroutine function."""
        return inspect.iscoroutinefunction(self.settled)

    def bind_settled(self, key: str, call: Mapping[str, Any], parameters: Mapping[str, Any]) -> Callable[[], Any]:
        """The function that says how a call with this idempotency key has ended: `["done", VALUE]`, `["not done"]` or
        `["unknown"]`.
        """
        assert self.settled is not None
        ask = partial(self.settled, key, _as_given(call, parameters))
        if not self.is_settled_async:
            return lambda: _as_told(ask())

        async def asked() -> list[Any]:
            return _as_told(await ask())

        return asked

    def bind(
        self, call: Mapping[str, Any], parameters: Mapping[str, Any], context: Mapping[str, Any]
    ) -> Callable[[], Any]:
        """The function with its arguments, to be called once."""
        if self.takes_call:
            return lambda: self.function(_as_given(call, parameters), dict(context))
        given = {kind: context.get(kind, {}) for kind in self.scopes}

        def function() -> Any:
            try:
                ready = self._validated(**parameters, **given)
            except ValidationError as error:
                raise InvalidParameters(first_fault(error)) from None
            return ready()

        return function

    @cached_property
    def _validated(self) -> Callable[..., Callable[[], Any]]:
        """Pydantic's validation of the arguments, which makes a date of a text: it gives the function, ready to run."""

        @wraps(self.function)
        def ready(*positional: Any, **named: Any) -> Callable[[], Any]:
            return partial(self.function, *positional, **named)

        return validate_call(config=_CONFIG)(ready)


@dataclass(frozen=True)
class Done:
    """The answer of an activity's `settled` function for a call that has happened: its result (SPEC R4.11)."""

    value: Any = None


def _as_given(call: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The call as its code sees it: a person who approved it may have changed or removed parameters."""
    meta = {name: value for name, value in call.items() if name.startswith("_") and name not in WITHHELD}
    return {**meta, **parameters}


def _as_told(answer: Any) -> list[Any]:
    if isinstance(answer, Done):
        return ["done", answer.value]
    if answer is None or answer is False:
        return ["unknown"] if answer is None else ["not done"]
    raise TypeError(f"settled returned {type(answer).__name__}: Done(VALUE), False or None says what it knows")


@dataclass(frozen=True)
class Delegate(Registered):
    """A delegate in code, which receives its whole context as a list of messages, and nothing else (SPEC R9)."""

    policy: Policy = field(default_factory=Policy)

    @cached_property
    def gives_result(self) -> bool:
        """Whether its annotation describes its results."""
        return bool(returns_schema(self.function))


@dataclass(frozen=True)
class RegisteredModel(Registered):
    """A function that answers requests: `(messages, schema, config) -> answer` (SPEC R12)."""


class Registry:
    """The activities, delegates and models of a process, by name."""

    def __init__(self) -> None:
        self.activities: MutableMapping[str, Activity] = {}
        self.delegates: MutableMapping[str, Delegate] = {}
        self.models: MutableMapping[str, RegisteredModel] = {}
        self.stand_ins: MutableMapping[str | None, str] = {}
        """The models that are asked instead of those with these names; under None the one instead of all others."""
        self.origin = ""
        """Where its contracts were read, such as `tools.json`; nothing where the code is here (see `contracts`)."""
        self.missing = ""
        """Advice for a name that is not in it, as the end of a message."""

    def schemas(self) -> dict[str, Mapping[str, Any]]:
        """Activity name to the schema of its tool."""
        return {name: activity.schema for name, activity in self.activities.items()}

    def policy_of(self, call: Call) -> Policy | None:
        """The policy of the code that runs a call; None where none is known here."""
        known = self.activities if call.runner.executor is Executor.ACTIVITY else self.delegates
        code = known.get(call.runner.name)
        return code.policy if code is not None else None

    def total_seconds(self, call: Call) -> float | None:
        """How long all attempts at a call may take together; None for no limit."""
        return policy.total_timeout_seconds if (policy := self.policy_of(call)) is not None else None

    def ends_ms(self, call: Call) -> int:
        """When the time of all attempts at a call that is sent now is over, in ms since 1970; 0 for no limit."""
        total = self.total_seconds(call)
        return int((time.time() + total) * 1000) if total is not None else 0

    def queues(self) -> tuple[str, ...]:
        """The queues of activities that run in tasks of their own."""
        return tuple(dict.fromkeys(a.queue for a in self.activities.values() if a.queue is not None))

    def limited_to(self, names: Collection[str]) -> Registry:
        """A registry of the activities and delegates of these names; of all where there is no name (`ACTS_ALLOW`)."""
        if not names:
            return self
        limited = Registry()
        limited.models, limited.stand_ins = self.models, self.stand_ins
        limited.activities = {name: known for name, known in self.activities.items() if name in names}
        limited.delegates = {name: known for name, known in self.delegates.items() if name in names}
        return limited

    def add_activity(self, activity: Activity) -> None:
        """Register an activity. Raises `ActivitiesError` where another function, or the engine, has the name."""
        if activity.name == ASK_HUMAN:
            raise ActivitiesError(f"{ASK_HUMAN!r} asks a person (SPEC R14): register the activity under another name")
        if activity.name in BUILT_IN:
            text = (
                f"{activity.name!r} is a tool that needs no code (SPEC R4.12): register the activity under another name"
            )
            raise ActivitiesError(text)
        _add(self.activities, activity, "activity")

    def add_delegate(self, delegate: Delegate) -> None:
        """Register a delegate. Raises `ActivitiesError` where another function has the name."""
        _add(self.delegates, delegate, "delegate")

    def add_model(self, model: RegisteredModel) -> None:
        """Register a model. Raises `ActivitiesError` where another function has the name."""
        _add(self.models, model, "model")


def _add(known: MutableMapping[str, R], new: R, what: str) -> None:
    before = known.get(new.name)
    if before is not None and _source(before.function) != _source(new.function):
        both = f"{_source(before.function)} and {_source(new.function)}"
        raise ActivitiesError(f"two functions are registered as {what} {new.name!r}: {both}")
    known[new.name] = new


registry: Final = Registry()
"""The registry of `@activity`, `@delegate` and `@model`."""


Errors = type[BaseException] | Sequence[type[BaseException]]
"""A type of exceptions, or several."""


class RetryOptions(TypedDict, total=False):
    """Options for the waits between attempts (first 0.5 s, longest 30 s), what is tried again, and for how long."""

    total_timeout_seconds: float | None
    backoff_seconds: float
    backoff_max_seconds: float
    retry_on: Errors
    no_retry_on: Errors


class ActivityOptions(RetryOptions, total=False):
    """Further options of `@activity`: for trust, and for how often calls begin, one of them and all."""

    effects: bool
    untrusted: Untrusted
    hosts: Mapping[str, Sequence[str]]
    rate: str
    key: str
    once: bool
    settled: Callable[[str, dict[str, Any]], Any] | None
    undo: str
    pure: bool
    cache_seconds: float | None


def _policy(
    retries: int, timeout_seconds: float | None, max_concurrency: int | None, options: Mapping[str, Any]
) -> Policy:
    """Raises `ActivitiesError`."""
    names = ("backoff_seconds", "backoff_max_seconds", "total_timeout_seconds", "cache_seconds", "rate", "key", "once")
    own = {name: options[name] for name in names if name in options}
    for name in ("retry_on", "no_retry_on"):
        if name in options:
            given = options[name]
            own[name] = (given,) if isinstance(given, type) else tuple(given) if isinstance(given, Sequence) else given
            are_types = isinstance(own[name], tuple) and own[name] and all(map(_is_error_type, own[name]))
            if not are_types:
                raise ActivitiesError(f"{name} is {given!r}: types of exceptions, such as {name}=(ConnectionError,)")
    return Policy(retries, timeout_seconds, max_concurrency=max_concurrency, **own)


def _check_pure(queue: str | None, options: Mapping[str, Any]) -> None:
    """Raise `ActivitiesError` where an activity that has to be pure is not."""
    others = [name for name in ("effects", "once", "untrusted") if options.get(name)]
    if options.get("pure") and others:
        raise ActivitiesError(f"pure=True and {others[0]} exclude each other: leave one of them out")
    if options.get("cache_seconds") is not None and not options.get("pure"):
        raise ActivitiesError("cache_seconds is for results that depend on what is given alone: if so, add pure=True")
    if options.get("cache_seconds") is not None and queue is not None:
        raise ActivitiesError("cache_seconds is for activities that run in line: leave queue out")


def _is_error_type(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


@overload
def activity(function: F, /) -> F: ...
@overload
def activity(
    name: str | None = None,
    /,
    *,
    queue: str | None = None,
    retries: int = 0,
    timeout_seconds: float | None = None,
    max_concurrency: int | None = None,
    version: str | None = None,
    **options: Unpack[ActivityOptions],
) -> Callable[[F], F]: ...
def activity(
    name: Any = None,
    /,
    *,
    queue: str | None = None,
    retries: int = 0,
    timeout_seconds: float | None = None,
    max_concurrency: int | None = None,
    version: str | None = None,
    **options: Unpack[ActivityOptions],
) -> Any:
    """Register a function as an activity; its name is the tool's unless another is given.

    With a `queue` of its own it runs in a task of its own on the workers of that queue, else in the instance's task.
    `retries` are attempts after the first, `timeout_seconds` bounds one attempt, `total_timeout_seconds` all of them
    and the waits between them, `max_concurrency` how many calls are at work at a time, over all workers. With `rate`,
    such as "10/s", at most so many calls begin in any such time, over all workers; with `key` it holds for each value
    of this parameter, and so does `max_concurrency`. The first wait between attempts takes `backoff_seconds` (0.5),
    each next one twice as long, at most `backoff_max_seconds` (30). `retry_on` names the only exceptions after which
    there is another attempt, `no_retry_on` those after which there is none. With `effects` a call changes something
    outside: it starts by itself only if nothing that others wrote decides on it, but for parameters that are
    `Annotated[str, Content]`, and `acts retry --downstream` does it again only with `--effects`. Its results are
    `untrusted` where others write to such sources: a name, several, or names by field (SPEC R16). With `once` a call
    runs at most once (SPEC R4.11): one that was begun, and whose end is not known, waits for a person (`acts settle`).
    `settled(key, call)` is asked before: it returns `Done(VALUE)` if what the call does under this idempotency key has
    happened, False if it has not, and None if that cannot be said; in the first two cases nobody is asked. `undo` names
    the activity by which `acts cancel --undo` takes back what such a call has done: it gets those of the call's
    parameters that it names, and `result` and `key`, the idempotency key. `pure` says that the result depends on
    nothing but what the call is given, and that the call changes nothing; then with `cache_seconds` a result is kept
    for so long, and a call of the same owner that is given the same has it without being run. Results name the
    `version` of the code that ran a call: this text, else a digest of its module's source.
    """
    _require_known("activity", options, ("queue", *_USUAL), ActivityOptions)
    policy = _policy(retries, timeout_seconds, max_concurrency, options)
    effects, untrusted = options.get("effects", False), options.get("untrusted", ())
    once, settled, undo = options.get("once", False), options.get("settled"), options.get("undo")
    _check_pure(queue, options)
    if undo is not None and not (once and isinstance(undo, str)):
        raise ActivitiesError("undo names the activity that takes back a call with once=True: add that")
    if settled is not None and not (once and takes(settled, 2)):
        raise ActivitiesError("settled is a function of (key, call), and says what became of a call with once=True")

    def register(function: Any) -> Any:
        made = make_activity(function, name if isinstance(name, str) else None, queue, policy)
        trust = declared_trust(function, effects=effects, untrusted=untrusted, hosts=options.get("hosts", {}))
        schema = {**made.schema, **trust, **({ONCE: True} if once else {})}
        registry.add_activity(replace(made, schema=schema, given_version=version, settled=settled, undo=undo))
        return function

    return register(name) if callable(name) else register


def delegate(
    name: str,
    /,
    *,
    retries: int = 0,
    timeout_seconds: float | None = None,
    max_concurrency: int | None = None,
    version: str | None = None,
    **options: Unpack[RetryOptions],
) -> Callable[[F], F]:
    """Register a function as a delegate: it is given its context, a list of messages, and returns the call's result.

    The options for its attempts are those of `activity`. Results name the `version` of the code that ran a call: this
    text, else a digest of its module's source.
    """
    _require_name(name, "delegate")
    _require_known("delegate", options, _USUAL, RetryOptions)
    policy = _policy(retries, timeout_seconds, max_concurrency, options)

    def register(function: F) -> F:
        registry.add_delegate(Delegate(name, function, policy, given_version=version))
        return function

    return register


def model(name: str, /) -> Callable[[F], F]:
    """Register a function as a model: `(messages, schema, config) -> answer`, an answer's text or its value; a
    generator function yields pieces of the text.

    `ACTS_MODEL=NAME:ANYTHING` makes it the one that is asked, and `config.model` names it.
    """
    _require_name(name, "model")

    def register(function: F) -> F:
        registry.add_model(RegisteredModel(name, function))
        return function

    return register


_USUAL: Final = ("retries", "timeout_seconds", "max_concurrency", "version")


def _require_known(what: str, options: Mapping[str, Any], named: Sequence[str], others: type) -> None:
    """Raise `TypeError` for an option that there is not."""
    if unknown := options.keys() - (more := others.__annotations__).keys():
        known = (*named, *more)
        hint = Speller().hint(min(unknown), known) or f"; it takes a name first, and {', '.join(known)}"
        raise TypeError(f"{what}() has no argument {min(unknown)!r}{hint}")


def _require_name(name: object, what: str) -> None:
    if not isinstance(name, str):
        raise ActivitiesError(f'a {what} has a name of its own: write @{what}("NAME") above the function')


def make_activity(function: Function, name: str | None, queue: str | None, policy: Policy) -> Activity:
    """An activity from a function: its schema comes from the signature, the descriptions in it from the docstring.
    Raises `ActivitiesError`.
    """
    parameters = inspect.signature(function).parameters
    name = name or function.__name__
    if queue is not None and (not queue.strip() or has_control_characters(queue)):
        raise ActivitiesError(f"activity {name!r}: queue is {queue!r}: a name, or nothing for the instances' own queue")
    if name == "<lambda>":
        raise ActivitiesError('a lambda has no name: write activity("NAME")(lambda …)')
    if inspect.isasyncgenfunction(function):
        raise ActivitiesError(f"activity {name!r}: it yields asynchronously, and has no result: return a list")
    if tuple(parameters) == ("call", "tool", "context"):
        text = "code is not given the tool's schema, so leave tool out: (call, context)"
        raise ActivitiesError(f"activity {name!r}: {text}")
    result = returns_schema(function)
    returned = {"_output": result} if result else {}
    if tuple(parameters) == ("call", "context"):
        anything = {"type": "object", **({"properties": returned} if returned else {})}
        schema = with_descriptions(function, anything)
        return Activity(name, function, schema, (), takes_call=True, queue=queue, policy=policy)
    scopes = tuple(p.name for p in parameters.values() if p.kind is p.KEYWORD_ONLY and p.name in DATA_TYPES)
    taken = [p for p in parameters.values() if p.name not in scopes]
    schema = with_descriptions(function, parameters_schema(name, function, taken))
    if scopes:
        schema["properties"]["_scopes"] = {"type": "array", "items": {"enum": list(scopes)}, GRANTED: list(scopes)}
    schema["properties"] = {**schema["properties"], **returned}
    return Activity(name, function, schema, scopes, takes_call=False, queue=queue, policy=policy)


def first_fault(error: ValidationError) -> str:
    """The first error that pydantic found, without values: names below a parameter may be keys of one, and a message
    about a tag quotes it.
    """
    first = error.errors(include_url=False, include_input=False)[0]
    name, *inside = first["loc"] or ("",)
    where = ".".join(map(str, (name, *(part for part in inside if isinstance(part, int)))))
    what = first["msg"] if "tag" not in first.get("ctx", {}) else "its tag is not one of those expected"
    below = ", below it" if any(isinstance(part, str) for part in inside) else ""
    return f"{where}{below}: {what}".removeprefix(": ")


def _source(function: Function) -> str:
    """The file and name of a function: equal for a file that is loaded twice, as a module and by its path, and for a
    cell of a notebook that is run again.
    """
    if function.__module__ == "__main__" and not hasattr(sys.modules["__main__"], "__file__"):
        return f"__main__:{function.__qualname__}"
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{Path(code.co_filename).resolve() if code else function.__module__}:{function.__qualname__}"
