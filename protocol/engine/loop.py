"""The loop: the state machine of a request and its ticks, without I/O (SPEC R13.1, R13.5).

A loop changes only by the events that its log holds, so it can be rebuilt from the log at any moment. `stage` says what
the log has come to, `TRANSITIONS` what may come next; what it may spend is in `LoopLimits`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from ..errors import ProtocolError, json_text
from ..limits import LOOP_REPEATS, MAX_OUTPUT_TOKENS, QUOTES_LEAST_CHARACTERS, QUOTES_MOST
from ..messages import Message
from ..paths import MISSING, lookup
from ..state.operations import read_operation
from ..templates import escaped
from .costs import CURRENCY, Cost, Estimate, dollars_of, nanodollars

# What can happen to a loop, as one event each (SPEC R13.1, R13.5): `Loop.apply` says what each of them means.


@dataclass(frozen=True, slots=True)
class TickError:
    """Why a call of a tick did not run, or failed; without a call it is about the answer as a whole (SPEC R13.2)."""

    type: str
    message: str
    pointer: str
    call: Mapping[str, Any] | None = None
    instance: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The error as JSON."""
        return {
            "call": dict(self.call) if self.call is not None else None,
            "error": {"type": self.type, "message": self.message, "pointer": self.pointer},
        }


@dataclass(frozen=True, slots=True)
class RequestRecorded:
    """The request of the current tick is in the log; the model can be asked."""

    messages: Sequence[Mapping[str, Any]]
    """Chat messages that the request adds to those of the requests before."""
    config: Mapping[str, Any]
    """Settings that are sent to the model."""
    estimate: int
    """Estimated cost in tokens."""
    digest: str
    schema: Any = None
    """Schema of the answer, if it differs from the request before."""
    nanodollars: int | None = None
    """Estimated cost in money, if the price is known."""
    repeats: Mapping[str, Any] | None = None
    """Result of the tick before, as a `digest`, and how many `times` it came in a row; None if that tick had no calls.
    """
    quotes: Sequence[tuple[int, Sequence[Any]]] = ()
    """Contents of messages that name what the log holds instead of writing it once more (see `quoted`)."""


@dataclass(frozen=True, slots=True)
class PartCame:
    """A further part of an answer has come while it is written, and calls of it run (SPEC R13.8)."""

    text: str
    """Text that was added."""
    first: int
    """Index of the first call in the answer."""
    runs: int
    """Number of calls that run so far, over all instances."""


@dataclass(frozen=True, slots=True)
class OutputGrew:
    """A further part of an output that is a text has come while the answer is written (SPEC R13.12)."""

    at: int
    """Position of the added text in the output, in characters: what came before that position stays."""
    text: str


@dataclass(frozen=True, slots=True)
class UsageCame:
    """The provider has reported a usage before the answer is whole (SPEC R13.3)."""

    usage: Mapping[str, Any]
    nanodollars: int | None = None
    """Upper bound for the cost of the request by that usage, if the price is known."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer of the current tick is whole."""

    message: Mapping[str, Any]
    """The message of its solution."""
    first: int
    runs: int
    errors: Sequence[TickError]
    """Errors in the answer."""
    cost: Mapping[str, Any]
    """Cost of the request (see `Cost`)."""
    known: int | None = None
    """Tokens of the request and its answer, if the next request begins with these and goes to the same model."""
    provider_data: str | None = None
    """Further data of the provider, a JSON text that is sent back to the same model and shown to nobody."""


@dataclass(frozen=True, slots=True)
class Planned:
    """The calls of the current tick wait for an approval (SPEC R13.7)."""

    calls: Sequence[Any]
    digest: str


@dataclass(frozen=True, slots=True)
class Approved:
    """The plan of this digest was approved."""

    digest: str


@dataclass(frozen=True, slots=True)
class Started:
    """The calls of an approved plan are in their lanes."""

    first: int
    runs: int
    errors: Sequence[TickError]


@dataclass(frozen=True, slots=True)
class TickClosed:
    """All calls of the current tick have ended."""

    errors: int
    """Number of errors in the tick."""
    set_aside: str | None
    """Why the output was not accepted."""


@dataclass(frozen=True, slots=True)
class LoopEnded:
    """An output was accepted, or a limit was reached."""

    status: str
    """Status of the run: `completed` or `failed`."""
    reason: str | None
    output: Any
    lost: int = 0
    """Attempts at the current request whose answers are not known; each may have cost what was estimated."""


@dataclass(frozen=True, slots=True)
class LoopExtended:
    """A loop, even one that has ended, may run this many further ticks (SPEC R13.3)."""

    ticks: int


LoopEvent = (
    RequestRecorded
    | PartCame
    | OutputGrew
    | UsageCame
    | Answered
    | Planned
    | Approved
    | Started
    | TickClosed
    | LoopEnded
    | LoopExtended
)


class BrokenLog(ProtocolError):
    """A log holds an event that cannot follow those before it."""

    code = "broken_log"


class Stage(StrEnum):
    """Stage of the current tick, by the log."""

    NEW = "new"
    """Its request is to be composed."""
    ASKED = "asked"
    """The request is in the log, its answer is not."""
    OPEN = "open"
    """The answer is being written, and calls of it run (SPEC R13.8)."""
    PLANNED = "planned"
    """The solution is in the log, and waits for a person's approval (in lazy mode, SPEC R13.7)."""
    APPROVED = "approved"
    """Its calls may run, and do not yet."""
    RAN = "ran"
    """The solution is in the log, and its calls run."""
    ENDED = "ended"
    """An output was accepted, or a limit was reached."""


_S = Stage
TRANSITIONS: Final[Mapping[Stage, Mapping[type[Any], Stage | None]]] = {
    _S.NEW: {RequestRecorded: _S.ASKED, LoopEnded: _S.ENDED, LoopExtended: _S.NEW},
    _S.ASKED: {
        PartCame: _S.OPEN,
        OutputGrew: _S.ASKED,
        UsageCame: _S.ASKED,
        Answered: _S.RAN,
        LoopEnded: _S.ENDED,
        LoopExtended: _S.ASKED,
    },
    _S.OPEN: {
        PartCame: _S.OPEN,
        OutputGrew: _S.OPEN,
        UsageCame: _S.OPEN,
        Answered: _S.RAN,
        LoopEnded: _S.ENDED,
        LoopExtended: _S.OPEN,
    },
    _S.PLANNED: {Planned: _S.PLANNED, Approved: _S.APPROVED, LoopEnded: _S.ENDED, LoopExtended: _S.PLANNED},
    _S.APPROVED: {Started: _S.RAN, LoopEnded: _S.ENDED, LoopExtended: _S.APPROVED},
    _S.RAN: {Planned: _S.PLANNED, TickClosed: _S.NEW, LoopEnded: _S.ENDED, LoopExtended: _S.RAN},
    _S.ENDED: {LoopExtended: None},
}
"""The stage after an event; None is the stage in which the loop ended. Any other event breaks the log."""

_FREE: Final = Cost()
_NO_ESTIMATE: Final = Estimate(0)


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick of a loop, as far as it has come."""

    number: int
    estimate: Estimate = _NO_ESTIMATE
    """Estimated cost of the request, without reported usage (SPEC R13.3)."""
    reported: UsageCame | None = None
    """Usage that was reported while the request was under way."""
    digest: str = ""
    repeats: Mapping[str, Any] | None = None
    """Result of the tick before, as recorded with the request."""
    text: str = ""
    """Part of the answer that has come so far."""
    output: str = ""
    """Part of the output that has come so far, if it is a text."""
    solution: Mapping[str, Any] | None = None
    """The message of its solution."""
    invalid: tuple[TickError, ...] = ()
    """Errors in the solution."""
    plan: Planned | None = None
    """Calls of the tick that wait for an approval, or were approved."""
    cost: Cost = _FREE
    """Cost of the requests of the tick."""
    known: int | None = None
    """Tokens of the last request and its answer, if the next request continues from these (SPEC R13.3)."""
    first: int = 0
    """The index of its first call."""
    runs: int = 0
    """Number of calls that run, over all instances."""
    errors: int = 0
    """Number of errors in the tick."""
    set_aside: str | None = None
    """Why its output was not accepted."""


@dataclass(frozen=True, slots=True)
class Loop:
    """The state of a loop: what its log says, in order."""

    stage: Stage = Stage.NEW
    ticks: tuple[Tick, ...] = (Tick(0),)
    ended: LoopEnded | None = None
    """How it has ended."""
    added_ticks: int = 0
    """Ticks that people have added to the limit."""
    granted: int = 0
    """First tick that people did not add."""
    _before_end: Stage = Stage.NEW
    _delegated: Cost = _FREE
    _delegated_calls: int = 0
    _closed: Cost = _FREE
    """Cost of the ticks before the current one."""
    _closed_calls: int = 0

    @property
    def tick(self) -> Tick:
        """The current tick."""
        return self.ticks[-1]

    @property
    def last(self) -> Tick | None:
        """The tick before the current one."""
        return self.ticks[-2] if len(self.ticks) > 1 else None

    @property
    def name(self) -> str:
        """The stage and the tick, as the run's state has them."""
        return f"{self.stage}:{self.tick.number}"

    @property
    def spent(self) -> int:
        """Tokens that the loop has spent (see `cost`)."""
        return self.cost.tokens

    @property
    def cost(self) -> Cost:
        """Cost of the ticks, and of the models that their calls have asked."""
        return self._delegated + self.own_cost

    @property
    def open_cost(self) -> Cost:
        """Upper bound for the cost of a request that is in the log without its answer."""
        return self._lost(1) if self.is_asking else _FREE

    @property
    def delegated(self) -> tuple[Cost, int]:
        """Cost of the models that calls have asked, and the number of calls that child runs have started."""
        return self._delegated, self._delegated_calls

    @property
    def own_cost(self) -> Cost:
        """Cost of the loop's own requests."""
        return self._closed + self.tick.cost

    @property
    def known(self) -> int | None:
        """The tokens of the last request and its answer, with which the next one begins; None where nobody knows."""
        return self.last.known if self.last is not None else None

    @property
    def claimed(self) -> Cost:
        """Cost of the loop's own requests, with the upper bound for one whose answer is being written."""
        return self.own_cost + (self.open_cost if self.stage is Stage.OPEN else _FREE)

    @property
    def calls(self) -> int:
        """Calls that the solutions have started, with those of the child runs that answered them."""
        return self.own_calls + self._delegated_calls

    @property
    def own_calls(self) -> int:
        """Calls that the solutions have started."""
        return self._closed_calls + self.tick.runs

    @property
    def is_asking(self) -> bool:
        """Whether a request is in the log, and its answer is not."""
        return self.stage in (Stage.ASKED, Stage.OPEN)

    @property
    def request(self) -> int:
        """The index of the current request among the calls of the loop's lane."""
        return self.tick.number

    @property
    def answered(self) -> list[int]:
        """The indexes of all requests whose answers are in the log."""
        return [tick.number for tick in self.ticks if tick.solution is not None]

    def charge(self, cost: Cost, calls: int = 0) -> Loop:
        """Add the cost of a call that asked models: a delegate, or a child run that started `calls` calls."""
        return replace(self, _delegated=self._delegated + cost, _delegated_calls=self._delegated_calls + calls)

    def apply(self, event: LoopEvent) -> Loop:
        """The loop after an event of its log. Raises `BrokenLog` if the event cannot follow those before it."""
        kind, following = type(event), TRANSITIONS[self.stage]
        if kind not in following:
            raise BrokenLog(f"the log of a loop is broken: {kind.__name__} follows where it is {self.name}")
        return replace(_CHANGES[kind](self, event), stage=following[kind] or self._before_end)

    def _in_tick(self, **changes: Any) -> Loop:
        return replace(self, ticks=(*self.ticks[:-1], replace(self.tick, **changes)))

    def _ask(self, event: RequestRecorded) -> Loop:
        estimate = Estimate(event.estimate, event.nanodollars, event.config.get("max_output_tokens", 0))
        return self._in_tick(estimate=estimate, reported=None, repeats=event.repeats, digest=event.digest)

    def _take_part(self, event: PartCame) -> Loop:
        return self._in_tick(text=self.tick.text + event.text, first=event.first, runs=event.runs)

    def _grow(self, event: OutputGrew) -> Loop:
        return self._in_tick(output=self.tick.output[: event.at] + event.text)

    def _answer(self, event: Answered) -> Loop:
        cost = self.tick.cost + Cost.read(event.cost)
        said = {"solution": event.message, "invalid": tuple(event.errors), "cost": cost, "known": event.known}
        return self._in_tick(**said, first=event.first, runs=event.runs)

    def _start(self, event: Started) -> Loop:
        return self._in_tick(first=event.first, runs=event.runs, invalid=(*self.tick.invalid, *event.errors))

    def _close(self, event: TickClosed) -> Loop:
        closed = self._in_tick(errors=event.errors, set_aside=event.set_aside)
        ticks, runs = (*closed.ticks, Tick(self.tick.number + 1)), self.own_calls
        return replace(closed, ticks=ticks, _closed=self.own_cost, _closed_calls=runs)

    def _end(self, event: LoopEnded) -> Loop:
        lost = self._lost(event.lost) if event.lost else _FREE
        return replace(self._in_tick(cost=self.tick.cost + lost), ended=event, _before_end=self.stage)

    def _lost(self, attempts: int) -> Cost:
        """Upper bound for the cost of attempts whose answers are not known."""
        said = self.tick.reported
        usage, amount = (said.usage, said.nanodollars) if said is not None else (None, None)
        return Cost.of_request(usage, self.tick.estimate, attempts - 1, amount=amount)

    def _extend(self, event: LoopExtended) -> Loop:
        ticks = event.ticks
        return replace(self, ended=None, added_ticks=self.added_ticks + ticks, granted=self.tick.number + ticks)


_CHANGES: Final[Mapping[type[Any], Callable[[Loop, Any], Loop]]] = {
    RequestRecorded: Loop._ask,
    PartCame: Loop._take_part,
    OutputGrew: Loop._grow,
    UsageCame: lambda loop, event: loop._in_tick(reported=event),
    Answered: Loop._answer,
    Planned: lambda loop, event: loop._in_tick(plan=event),
    Approved: lambda loop, _: loop,
    Started: Loop._start,
    TickClosed: Loop._close,
    LoopEnded: Loop._end,
    LoopExtended: Loop._extend,
}


# What a loop may spend, and why it may not go on where that is spent (SPEC R13.3).

TICKS: Final = 8
CALLS: Final = 200
PRICE_REMEDY: Final = (
    'set its price, as {"input": …, "output": …} in US dollars for a million tokens, in ACTS_MODEL_PRICE or ACTS_MODELS'
)
"""Advice for a model without a price."""


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """The limits of a loop; None is no limit. The methods say why the loop may not go on, or None where it may."""

    ticks: int = TICKS
    calls: int = CALLS
    tokens: int | None = None
    seconds: float | None = None
    max_output_tokens: int = MAX_OUTPUT_TOKENS
    money: int | None = None
    """In nanodollars."""
    all_ticks: int | None = None
    """Ticks that an operator allows in all, with those that people add."""

    @classmethod
    def of(cls, config: Mapping[str, Any], most: Mapping[str, Any] = MappingProxyType({})) -> LoopLimits:
        """Limits that a valid `config` sets, each at most what an operator allows in `most` (SPEC R4.2a)."""
        own_names = (name for name in cls.__slots__ if name != "all_ticks")
        limits = cls(**{name: config[name] for name in own_names if config.get(name) is not None})
        if limits.money is not None:
            limits = replace(limits, money=nanodollars(limits.money))
        own = {name: getattr(limits, name) for name in most}
        tightest: dict[str, Any] = {
            name: min((n for n in (own[name], most[name]) if n is not None), default=None) for name in most
        }
        return replace(limits, **tightest, all_ticks=most.get("ticks"))

    def tick_limit(self, loop: Loop) -> str | None:
        """Why the current tick may not be asked, where the limit of ticks is reached."""
        most, where = self.ticks + loop.added_ticks, "config.ticks"
        if self.all_ticks is not None and self.all_ticks <= most:
            most, where = self.all_ticks, "ACTS_LIMIT_TICKS"
        if loop.tick.number < most:
            return None
        return f"the limit of {most} ticks ({where}) is reached without an output"

    def ticks_to_add(self, loop: Loop) -> int | None:
        """How many ticks may be added to those that a loop may ask; None is any number."""
        return None if self.all_ticks is None else max(0, self.all_ticks - self.ticks - loop.added_ticks)

    def repeat_limit(self, loop: Loop, times: int) -> str | None:
        """Why the current tick may not be asked, if the last `times` ticks were the same. Ticks that a person has added
        are asked all the same.
        """
        if times < LOOP_REPEATS or loop.tick.number < loop.granted:
            return None
        return (
            f"the last {times} ticks were the same: the same calls, with the same results. Give it a hint "
            "(acts say), or let it continue (acts resume --ticks)"
        )

    @property
    def counts_spending(self) -> bool:
        """Whether what requests cost is limited."""
        return self.tokens is not None or self.money is not None

    def request_limit(self, loop: Loop, estimate: Estimate, losses: int = 0) -> str | None:
        """Why a request of this estimate may not begin, where it does not fit what is left of tokens or money.

        `losses` are the attempts at the same request whose answers were lost: each is charged whole.
        """
        spent = loop.cost
        if self.tokens is not None:
            left = self.tokens - spent.tokens - losses * estimate.tokens
            if estimate.tokens > left:
                next_ = f"the next request may take {estimate.tokens} tokens"
                return f"{next_} and {max(left, 0)} of {self.tokens} (config.tokens) are left"
        if self.money is not None:
            if estimate.nanodollars is None:
                return f"no price is known of the model, which config.money needs: {PRICE_REMEDY}"
            left = self.money - spent.nanodollars - losses * estimate.nanodollars
            if estimate.nanodollars > left:
                next_ = f"the next request may cost {_amount(estimate.nanodollars)}"
                return f"{next_} and {_amount(max(left, 0))} of {_amount(self.money)} (config.money) are left"
        return None

    def call_limit(self, loop: Loop, runs: int) -> str | None:
        """Why a solution of `runs` calls may not start, or not go on if some of it has begun (SPEC R13.8)."""
        begun = loop.tick.runs
        calls = loop.calls - begun + runs
        if calls <= self.calls:
            return None
        started = f"{begun} of the last solution were started" if begun else "none of the last solution was started"
        return f"{calls} calls, where {self.calls} (config.calls) are allowed: {started}"

    def spending_limit(self, loop: Loop, cost: Cost) -> str | None:
        """Why the loop ends with an answer that has cost so much: more than was left."""
        spent = loop.cost + cost
        if self.tokens is not None and spent.tokens > self.tokens:
            return f"{spent.tokens} tokens were billed, where {self.tokens} (config.tokens) are allowed"
        if self.money is not None and spent.nanodollars > self.money:
            return f"{_amount(spent.nanodollars)} were billed, where {_amount(self.money)} (config.money) are allowed"
        return None

    def time_limit(self, seconds: float) -> str | None:
        """Why a loop that has run for so long may not go on."""
        if self.seconds is None or seconds < self.seconds:
            return None
        return f"the limit of {self.seconds:g} seconds (config.seconds) is reached"


def _amount(amount: int) -> str:
    return f"{dollars_of(amount)} {CURRENCY}"


# Quotes: what a request shows of its run's log, named there and not written once more (SPEC R13.5).
#
#     {"role": "user", "content": null} and beside it ["# Tick 3: …\n", ["1795913130066-0", ["data", "p3"]], "\n…"]
#
# A quote names an entry of the log and a part of its message. A text is shown as it is, any other part as JSON, with
# each † of data as two: as requests show them (`protocol.requests.data_blocks`). Whatever a request shows in another
# way, such as a value that was cut, is written out. An entry that a request quotes goes with its instance alone, when
# that is deleted from a run that is over.

Quote = tuple[str, tuple[str, ...]]
"""An entry, and the path of a part of its message."""
Content = tuple[int, Sequence[str | Quote]]
"""The position of a message of a request, and its content: texts, and quotes between them."""

_TEXTS: Final = ("message", "text", "content")
"""The properties of messages that are shown as they are."""
_SOLUTION: Final = "solution"
_DATA: Final = "data"
_GONE: Final = "[deleted]"


def quoted(messages: Iterable[Message], known: Mapping[str, Message]) -> tuple[list[Message], tuple[Content, ...]]:
    """Chat messages without the contents that have parts of known messages, which are given by their entries; and these
    contents.
    """
    found = [one for id_, message in known.items() for one in _parts(id_, message)]
    longest = sorted(found, key=lambda one: -len(one[1]))[:QUOTES_MOST]
    left, contents = list[Message](), list[Content]()
    for number, message in enumerate(messages):
        content = message.get("content")
        parts = _split(content, longest) if isinstance(content, str) else []
        if any(not isinstance(part, str) for part in parts):
            contents.append((number, parts))
            message = {**message, "content": None}
        left.append(message)
    return left, tuple(contents)


def with_quotes(request: RequestRecorded, find: Callable[[str], Message | None]) -> RequestRecorded:
    """A request with all that it shows; `find` gives the message of an entry."""
    if not request.quotes:
        return request
    messages = [*request.messages]
    for number, parts in request.quotes:
        content = "".join(part if isinstance(part, str) else _shown(part, find) for part in parts)
        messages[number] = {**messages[number], "content": content}
    return replace(request, messages=messages, quotes=())


def entries_quoted(request: RequestRecorded) -> Iterator[str]:
    """The entries that a request quotes."""
    return (part[0] for _, parts in request.quotes for part in parts if not isinstance(part, str))


def read_quotes(packed: Sequence[Any], count: int) -> tuple[Content, ...]:
    """Read the quotes of a request with so many messages. Raises `ValueError` where they are no such thing, or too
    many: a log may be imported.
    """
    contents = tuple((_number(number, count), [_read_part(part) for part in parts]) for number, parts in packed)
    if sum(not isinstance(part, str) for _, parts in contents for part in parts) > QUOTES_MOST:
        raise ValueError(len(contents))
    return contents


def _number(number: Any, count: int) -> int:
    if not isinstance(number, int) or not 0 <= number < count:
        raise ValueError(number)
    return number


def _read_part(part: Any) -> str | Quote:
    match part:
        case str():
            return part
        case [str(id_), [str(first), *path]] if all(isinstance(name, str) for name in path):
            return id_, (first, *path)
    raise ValueError(part)


def _parts(id_: str, message: Message) -> Iterator[tuple[Quote, str]]:
    """The parts of a message that are worth to be quoted, each as it is shown."""
    paths: list[tuple[str, ...]] = [(key,) for key in (*_TEXTS, _SOLUTION)]
    if _DATA in message and (operation := read_operation(message, id_)) is not None:
        paths.append((_DATA, *map(str, operation.place.path)))
    for path in paths:
        text = _text_of(path, lookup(message, path))
        if len(text) >= QUOTES_LEAST_CHARACTERS:
            yield (id_, path), text


def _split(content: str, parts: list[tuple[Quote, str]]) -> list[str | Quote]:
    """A content as texts and quotes; a part that is quoted is taken out of those that may be."""
    found: list[str | Quote] = [content]
    for part in [*parts]:
        quote, text = part
        for at, one in enumerate(found):
            if isinstance(one, str) and (begin := one.find(text)) >= 0:
                around = one[:begin], quote, one[begin + len(text) :]
                found[at : at + 1] = [each for each in around if each]
                parts.remove(part)
                break
    return found


def _shown(quote: Quote, find: Callable[[str], Message | None]) -> str:
    id_, path = quote
    part = lookup(find(id_) or {}, path)
    return _GONE if part is MISSING else _text_of(path, part)


def _text_of(path: Sequence[str], part: Any) -> str:
    """A part of a message as requests show it; empty where there is none."""
    if part is MISSING or path[0] in _TEXTS:
        return part if isinstance(part, str) else ""
    text = json_text(part, separators=(",", ":"))
    return escaped(text) if path[0] == _DATA else text
