"""The work of other rooms for the core, which imports none of them: the package names them when it is imported.

Each is loaded when it is first needed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    import asyncio

    from ...broker_config import ConfiguredModel, Settings
    from ...protocol.analysis.findings import Finding
    from ...protocol.engine.costs import Estimate
    from ..broker.messages import DelegateCall, Delivery
    from ..registry.activities import Registry
    from ..registry.models import Answer, ModelError, OnThread, Reported, Usage
    from ..store.loop_view import LoopView
    from .step import WorkerContext

AGENT: Final = "agent"
"""The room that asks models and runs loops: an `Agent`."""
WORKER_STEPS: Final = "worker steps"
"""Parts of Celery's worker, each a class of bootsteps."""

_homes: Final[dict[str, list[str]]] = {AGENT: [], WORKER_STEPS: []}


def register(kind: str, home: str) -> None:
    """Name what a room has for the core, as `module` or `module:attribute`."""
    _homes[kind].append(home)


def worker_steps() -> Iterator[Any]:
    """Parts of Celery's worker that other rooms have."""
    return map(resolve_name, _homes[WORKER_STEPS])


@cache
def agent() -> Agent:
    """The agent, which asks models and runs loops."""
    found: Agent = resolve_name(_homes[AGENT][-1])
    return found


Failed = Callable[["ModelError", int, float], None]
"""Called before a request is made again: why, how many tries have failed so far, and the seconds until the next."""
Asked = Callable[[str, "Answer | ModelError"], None]
"""Called with the result of a request to a model, and the model's name."""
SendPart = Callable[[str, "Reported | None"], Awaitable[None]]
"""Sends the text of an answer so far, and what was reported of its usage."""


class AskedModels(Protocol):
    """The models of a process. To be used on one event loop."""

    async def answer(self, call: DelegateCall, send: SendPart, pay: Callable[[Mapping[str, Any]], None]) -> Any:
        """The answer to a delegate's call or a loop's tick. `pay` is called with what a delegate's has cost. Raises
        `ModelError`.
        """

    async def close(self) -> None:
        """Close the connections to all of them."""


class LoopDriver(Protocol):
    """One process's time with one run's loop."""

    gets_on: asyncio.Event | None
    """To be set when something was committed: the loop is not what its last worker died of."""
    failed: list[str]

    @property
    def next_lane(self) -> str | None:
        """The lane that goes on when this one is left, in the same task."""

    @property
    def view(self) -> LoopView:
        """The loop as it was read."""

    def deliver(self, delivery: Delivery) -> asyncio.Future[bool]:
        """Hand in an answer. The receipt: whether it is in the log, or the runner failed before."""

    def look_again(self) -> None:
        """A task says that there is something new."""

    def stop(self) -> None:
        """The run was cancelled: leave."""

    async def run(self) -> LoopView:
        """Go on until nothing more can be done here. Returns the loop as the log has it then."""


class Agent(Protocol):
    """Knows models and their providers, asks them, and runs loops."""

    def verify_models(self, settings: Settings, registry: Registry) -> None:
        """Make every configured model and ask none. Raises `WorkerError` for one that cannot be had."""

    def lacks_key(self, configured: ConfiguredModel) -> bool:
        """Whether a model's provider asks for a key that is not set."""

    def missing_settings(self, configured: ConfiguredModel, config: Mapping[str, Any]) -> list[str]:
        """The settings of a `config` that a model's provider does not have."""

    def most_tools(self, configured: ConfiguredModel) -> int | None:
        """How many tools a model can be offered as functions; None for no limit (SPEC R12.8)."""

    def writes_texts(self, configured: ConfiguredModel) -> bool:
        """Whether a model may write `_json` texts for what its schema cannot say (SPEC R12.6)."""

    def writes_nulls(self, configured: ConfiguredModel) -> bool:
        """Whether a model may write null for what it leaves out (SPEC R12.6)."""

    def unenforced(
        self, configured: ConfiguredModel, schema: Any, *, is_native: bool
    ) -> tuple[str | None, tuple[Finding, ...]]:
        """Why a provider enforces nothing of a schema, or the places at which it does not (SPEC R12.8)."""

    def price_of(self, model: ConfiguredModel, usage: Usage) -> int | None:
        """The price of a request with this usage, in nanodollars; None where no price is known."""

    def estimate(self, call: Mapping[str, Any], asked: Sequence[ConfiguredModel], *, counts_money: bool) -> Estimate:
        """Estimate the most that the request of a delegate's call can cost (SPEC R13.3). Raises `TooLarge`."""

    def make_models(
        self, settings: Settings, registry: Registry, on_thread: OnThread, failed: Failed, asked: Asked
    ) -> AskedModels:
        """The models of this process."""

    def make_driver(self, services: WorkerContext, view: LoopView) -> LoopDriver:
        """Make the runner of a loop in this process."""
