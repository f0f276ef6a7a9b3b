"""What can happen to a loop, as one event each (SPEC R13.1, R13.5): `Loop.apply` says what each of them means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


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
class Asked:
    """A request of the current tick was written down; it is asked from now on."""

    messages: Sequence[Mapping[str, Any]]
    """The chat messages that it adds to those of the requests before."""
    config: Mapping[str, Any]
    """The settings that the model is sent."""
    estimate: int
    """What it may cost, in tokens."""
    digest: str
    schema: Any = None
    """Where it is another one than that of the request before."""
    nanodollars: int | None = None
    """What it may cost in money, where the price is known."""
    repeats: Mapping[str, Any] | None = None
    """What the tick before has come to, as a `digest`, and how many `times` in a row; None where it had no calls."""


@dataclass(frozen=True, slots=True)
class PartCame:
    """An answer that is being written has come so far, and calls of it run (SPEC R13.8)."""

    text: str
    """What was added."""
    first: int
    """The index of the call that stands first in it."""
    runs: int
    """How many calls run so far, over all instances."""


@dataclass(frozen=True, slots=True)
class OutputGrew:
    """An output that is a text has come so far in the answer that is being written (SPEC R13.12)."""

    at: int
    """In which place the text stands that was added, in characters: what came before, up to there, stays."""
    text: str


@dataclass(frozen=True, slots=True)
class UsageCame:
    """The provider has reported a usage before the answer is whole (SPEC R13.3)."""

    usage: Mapping[str, Any]
    nanodollars: int | None = None
    """What the request may cost at most by that, where the price is known."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer of the current tick is whole."""

    message: Mapping[str, Any]
    """The message of its solution."""
    first: int
    runs: int
    errors: Sequence[TickError]
    """What is not valid in it."""
    cost: Mapping[str, Any]
    """What the request has cost (see `Cost`)."""
    known: int | None = None
    """The tokens of the request and its answer, where the next request begins with these and goes to the same model."""
    provider_data: str | None = None
    """What the provider said besides, a JSON text that is sent back to the model that said it and shown to nobody."""


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
    """How many there were."""
    set_aside: str | None
    """Why an output was not accepted."""


@dataclass(frozen=True, slots=True)
class LoopEnded:
    """An output was accepted, or a limit was reached."""

    status: str
    """Of the run: `completed` or `failed`."""
    reason: str | None
    output: Any
    lost: int = 0
    """So many attempts at the current request may have cost what it was estimated to: their answers are not known."""


@dataclass(frozen=True, slots=True)
class LoopExtended:
    """A loop, also one that has ended, may ask so many times more (SPEC R13.3)."""

    ticks: int


LoopEvent = (
    Asked
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
