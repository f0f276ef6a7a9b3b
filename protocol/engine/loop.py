"""The loop: the state machine of a request, its ticks and its limits, without I/O (SPEC R13.1-R13.3, R13.5).

A loop changes only by what the log says, so it can be rebuilt from the log at any moment. `stage` says what the log has
come to, `limits` and what was spent whether another request may begin:

    new      tick n is to be composed: its request is not in the log yet
    choosing of a staged tick (SPEC R12.7) the first request is in the log, which asks for tools; the answer is not
    chosen   its answer is in the log; the second request is to be composed
    asked    its request is in the log, the answer is not
    open     the answer is being written, and calls of it run (SPEC R13.8)
    planned  its solution is in the log, and waits for a person's approval (in lazy mode, SPEC R13.7)
    approved its calls may run, and do not yet
    ran      its solution is in the log, and its calls run
    ended    an output was accepted, or a limit was reached
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from acts_celery.protocol.language.errors import Conflict, ExpressionError, Unresolved
from acts_celery.protocol.language.limits import MOST
from acts_celery.protocol.schemas import compiled
from acts_celery.protocol.state.fold import Fold

from .solution_output import resolve_output

TICKS: Final = 8
CALLS: Final = 200
REPEATS: Final = 3
"""So many ticks, one after the other, with the same calls and the same results end a loop: it does not get on."""
MAX_OUTPUT_TOKENS: Final = 4_096
"""What a request asks for at most where `config` does not say: it is always sent (SPEC R13.3)."""


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """What a loop may spend (SPEC R13.3); None is no limit."""

    ticks: int = TICKS
    calls: int = CALLS
    tokens: int | None = None
    seconds: float | None = None
    request_seconds: float | None = None
    max_output_tokens: int = MAX_OUTPUT_TOKENS

    @classmethod
    def of(cls, config: Mapping[str, Any], most: Mapping[str, Any] = MappingProxyType({})) -> LoopLimits:
        """The limits that a valid `config` sets, where an operator allows at `most` so much (SPEC R4.2a)."""
        limits = cls(**{name: config[name] for name in cls.__slots__ if config.get(name) is not None})
        own = {name: getattr(limits, name) for name in most}
        tightest: dict[str, Any] = {
            name: min((n for n in (own[name], most[name]) if n is not None), default=None) for name in most
        }
        return replace(limits, **tightest)


class Stage(StrEnum):
    """What the log has come to in the current tick."""

    NEW = "new"
    CHOOSING = "choosing"
    CHOSEN = "chosen"
    ASKED = "asked"
    OPEN = "open"
    PLANNED = "planned"
    APPROVED = "approved"
    RAN = "ran"
    ENDED = "ended"


_CHOOSING_FROM: Final = 1_000_000
"""The indexes of the requests that ask for tools begin here; those of all others are the numbers of their ticks."""


def request_index(stage: Stage, tick: int) -> int:
    """The index of a tick's request among the calls of the loop's lane."""
    return tick + _CHOOSING_FROM if stage is Stage.CHOOSING else tick


@dataclass(frozen=True, slots=True)
class TickError:
    """Why a call of a tick did not run, or failed; without a call it is about the answer as a whole (SPEC R13.2)."""

    type: str
    message: str
    pointer: str
    call: Mapping[str, Any] | None = None
    instance: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "call": dict(self.call) if self.call is not None else None,
            "error": {"type": self.type, "message": self.message, "pointer": self.pointer},
        }


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick of a loop, as far as it has come."""

    number: int
    estimate: int = 0
    """What its request may cost, in tokens, reported usage aside (SPEC R13.3)."""
    digest: str = ""
    solution: Mapping[str, Any] | None = None
    """The message of its solution."""
    charged: int = 0
    """What it has cost, in tokens."""
    has_chosen: bool = False
    """Whether its tools were chosen."""
    first: int = 0
    """The index of its first call."""
    runs: int = 0
    """How many of them run, over all instances."""
    errors: int = 0
    """How many errors it has caused."""


class Loop:
    """The state of a loop: what its log says, in order."""

    def __init__(self, limits: LoopLimits) -> None:
        self.limits = limits
        self.stage = Stage.NEW
        self.ticks: list[Tick] = [Tick(0)]
        self._before_end: Stage | None = None
        self._delegated_tokens = self._delegated_calls = 0
        self._granted = 0
        """Ticks below that one were added by a person."""

    @property
    def tick(self) -> Tick:
        """The current tick."""
        return self.ticks[-1]

    @property
    def name(self) -> str:
        """The stage and the tick, as the run's state has them."""
        return f"{self.stage}:{self.tick.number}"

    @property
    def spent(self) -> int:
        """The tokens that the ticks before and this one have cost, and what their calls have asked for."""
        return self.own_tokens + self._delegated_tokens

    @property
    def own_tokens(self) -> int:
        """The tokens that its own requests have cost."""
        return sum(tick.charged for tick in self.ticks)

    @property
    def calls(self) -> int:
        """How many calls its solutions have started, and those of the child runs that have answered them."""
        return self.own_calls + self._delegated_calls

    @property
    def own_calls(self) -> int:
        """How many calls its solutions have started."""
        return sum(tick.runs for tick in self.ticks)

    @property
    def is_asking(self) -> bool:
        """Whether a request is in the log, and its answer is not."""
        return self.stage in (Stage.CHOOSING, Stage.ASKED, Stage.OPEN)

    @property
    def request(self) -> int:
        """The index of the current request among the calls of the loop's lane."""
        return request_index(self.stage, self.tick.number)

    @property
    def answered(self) -> list[int]:
        """The indexes of all requests whose answers are in the log."""
        chosen = [request_index(Stage.CHOOSING, tick.number) for tick in self.ticks if tick.has_chosen]
        return [*chosen, *(tick.number for tick in self.ticks if tick.solution is not None)]

    def charge(self, tokens: int, calls: int = 0) -> None:
        """A call has ended for which models were asked: by a delegate, or by a child run that started so many calls."""
        self._delegated_tokens += tokens
        self._delegated_calls += calls

    def ask(self, estimate: int, digest: str, *, for_tools: bool = False) -> None:
        """A request of the current tick is in the log."""
        self.stage = Stage.CHOOSING if for_tools else Stage.ASKED
        self.ticks[-1] = replace(self.tick, estimate=estimate, digest=digest)

    def choose(self, *, charged: int) -> None:
        """The tools of the current tick are in the log."""
        self.stage = Stage.CHOSEN
        self.ticks[-1] = replace(self.tick, charged=charged, has_chosen=True)

    def open(self, *, first: int, runs: int) -> None:
        """So many calls of the current tick run, and its answer is not whole yet."""
        self.stage = Stage.OPEN
        self.ticks[-1] = replace(self.tick, first=first, runs=runs)

    def answer(self, solution: Mapping[str, Any], *, charged: int, first: int, runs: int) -> None:
        """The solution of the current tick is in the log."""
        self.stage = Stage.RAN
        charged += self.tick.charged
        self.ticks[-1] = replace(self.tick, solution=solution, charged=charged, first=first, runs=runs)

    def plan(self) -> None:
        """The calls of the solution wait for an approval."""
        self.stage = Stage.PLANNED

    def approve(self) -> None:
        """They may run."""
        self.stage = Stage.APPROVED

    def start(self, *, first: int, runs: int) -> None:
        """They are in their lanes."""
        self.stage = Stage.RAN
        self.ticks[-1] = replace(self.tick, first=first, runs=runs)

    def close(self, errors: int) -> None:
        """The current tick is over; the next one is to be composed."""
        self.ticks[-1] = replace(self.tick, errors=errors)
        self.stage = Stage.NEW
        self.ticks.append(Tick(self.tick.number + 1))

    def end(self, errors: int | None = None) -> None:
        """The loop is over; with its current tick where that one has caused so many errors."""
        if errors is not None:
            self.close(errors)
        self._before_end, self.stage = self.stage, Stage.ENDED

    def extend(self, ticks: int) -> None:
        """A loop, also one that has reached a limit, may ask so many times more (SPEC R13.3)."""
        self.limits = replace(self.limits, ticks=self.limits.ticks + ticks)
        self._granted = self.tick.number + ticks
        self.stage, self._before_end = self._before_end or self.stage, None

    def tick_limit(self) -> str | None:
        """Why the current tick may not be asked, where the limit of ticks is reached."""
        if self.tick.number < self.limits.ticks:
            return None
        return f"the limit of {self.limits.ticks} ticks (config.ticks) is reached without an output"

    def repeat_limit(self, times: int) -> str | None:
        """Why the current tick may not be asked, where so many before it were the same, one after the other. Ticks that
        a person has added are asked all the same.
        """
        if times < REPEATS or self.tick.number < self._granted:
            return None
        return (
            f"the last {times} ticks were the same: the same calls, with the same results. Say something that helps "
            "(acts say), or let it go on (acts resume --ticks)"
        )

    def token_limit(self, estimate: int, losses: int = 0) -> str | None:
        """Why a request of this estimate may not begin, where its tokens do not fit what is left.

        `losses` are the attempts at the same request whose answers were lost: each is charged whole.
        """
        if self.limits.tokens is None:
            return None
        left = self.limits.tokens - self.spent - losses * estimate
        if estimate <= left:
            return None
        return (
            f"the next request may take {estimate} tokens and {max(left, 0)} of {self.limits.tokens} (config.tokens) "
            "are left"
        )

    def call_limit(self, runs: int) -> str | None:
        """Why a solution of so many calls may not start, or not go on where some of it has begun (SPEC R13.8)."""
        calls = self.calls - self.tick.runs + runs
        if calls <= self.limits.calls:
            return None
        started = (
            f"{self.tick.runs} of the last solution were started"
            if self.tick.runs
            else "none of the last solution was started"
        )
        return f"{calls} calls, where {self.limits.calls} (config.calls) are allowed: {started}"

    def spending_limit(self, charged: int) -> str | None:
        """Why the loop ends with an answer that has cost so much: more than was left."""
        if self.limits.tokens is None or self.spent + charged <= self.limits.tokens:
            return None
        return f"{self.spent + charged} tokens were billed, where {self.limits.tokens} (config.tokens) are allowed"

    def time_limit(self, seconds: float) -> str | None:
        """Why a loop that has run for so long may not go on."""
        if self.limits.seconds is None or seconds < self.limits.seconds:
            return None
        return f"the limit of {self.limits.seconds:g} seconds (config.seconds) is reached"


def estimate_tokens(request_bytes: int, max_output_tokens: int) -> int:
    """What a request may take at most: a token has a byte at least (SPEC R13.3)."""
    return request_bytes + max_output_tokens


def charge_tokens(usage: Any, estimate: int, losses: int) -> int:
    """What a tick has cost: what was reported, or the estimate; attempts that were lost before are charged whole."""
    reported = [usage.get(key) for key in ("input", "output")] if isinstance(usage, Mapping) else []
    counts = [count for count in reported if isinstance(count, int) and 0 <= count <= MOST]  # none gives tokens back
    return losses * estimate + (sum(counts) if len(counts) == 2 else estimate)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an output comes to when its tick's calls have ended: accepted, or set aside for these errors."""

    output: Any = None
    errors: tuple[TickError, ...] = ()
    set_aside: str | None = None

    @property
    def is_accepted(self) -> bool:
        """Whether the run is completed with it."""
        return self.output is not None and self.set_aside is None


def judge_output(output: Any, schema: Any, fold: Fold, errors: Iterable[TickError]) -> Verdict:
    """Look at a solution's output once its calls have ended (SPEC R4.9, R13.1); `fold` holds the global values, and
    `errors` are those of its tick.
    """
    if output is None:
        return Verdict()
    pointers = [error.pointer for error in errors]
    if any(pointer.startswith("/calls") for pointer in pointers):
        return Verdict(output, set_aside="a call that came with it failed, or was not valid")
    if pointers:
        return Verdict(output, set_aside="the answer is not valid")
    try:
        found = resolve_output(output, fold)
    except (Unresolved, Conflict, ExpressionError) as error:
        return _unfit(output, [TickError("InvalidOutput", f"the output cannot be read: {error}", "/output")])
    problems = compiled(schema).problems(found, known=())
    if problems:
        return _unfit(found, [TickError("InvalidOutput", p.message, f"/output{p.pointer}") for p in problems])
    return Verdict(found)


def _unfit(output: Any, errors: list[TickError]) -> Verdict:
    return Verdict(output, tuple(errors), "; ".join(f"{error.pointer}: {error.message}" for error in errors))
