"""Which of Celery's remote-control commands a worker takes.

Whoever may write to the broker can send them, and they say nothing of the sender. So those that change a worker - stop
it, take queues from it, revoke its tasks - are taken only where a setting says so. Those that ask about tasks answer
with what events show of them: not with what they work on, nor with their tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from celery.worker import state as worker_state
from celery.worker.consumer.control import Control
from celery.worker.control import Panel

from broker_config import Settings

from .cancellation import COMMAND
from .refusals import count_refusal

logger = logging.getLogger(__name__)

Handler = Callable[..., Any]

_HARMLESS: Final = (
    *("ping", "stats", "active_queues", "registered", "revoked", "conf", "report", "clock"),
    "enable_events",  # Flower sends it every few seconds
)
"""What tells of a worker, and nothing of what its tasks work on."""


def restrict(steps: Iterable[Any], settings: Settings) -> None:
    """Let a consumer, given by its boot steps, take only the commands that the settings allow."""
    for step in steps:
        if isinstance(step, Control):
            step.box.node.handlers = handlers(settings)


def handlers(settings: Settings) -> dict[str, Handler]:
    """The commands that are taken, by name; what stands there for the others refuses them."""
    known: dict[str, Handler] = Panel.data
    taken = known if settings.remote_control else {name: known[name] for name in (*_HARMLESS, COMMAND)}
    return _Handlers({**taken, **_OF_TASKS})


class _Handlers(dict[str, Handler]):
    def __missing__(self, name: str) -> Handler:
        def refuse(_: Any, **__: Any) -> dict[str, str]:
            logger.error("the remote-control command %.100r is refused: see ACTS_REMOTE_CONTROL", name)
            count_refusal("commands")
            return {"error": "refused"}

        return refuse


def _active(_: Any, **__: Any) -> list[Any]:
    return [_shown(request) for request in list(worker_state.active_requests)]


def _reserved(_: Any, **__: Any) -> list[Any]:
    return [_shown(request) for request in list(worker_state.reserved_requests - worker_state.active_requests)]


def _scheduled(_: Any, **__: Any) -> list[Any]:
    return []  # nothing of ours has an ETA


def _query_task(_: Any, ids: Any, **__: Any) -> dict[str, Any]:
    asked = {ids} if isinstance(ids, str) else set(ids)
    found = {request.id: request for request in list(worker_state.reserved_requests) if request.id in asked}
    return {id_: (_state(request), _shown(request)) for id_, request in found.items()}


def _state(request: Any) -> str:
    return "active" if request in worker_state.active_requests else "reserved"


def _shown(request: Any) -> Any:
    return request.info(safe=True)


_OF_TASKS: Final[Mapping[str, Handler]] = {
    "active": _active,
    "reserved": _reserved,
    "scheduled": _scheduled,
    "query_task": _query_task,
}
