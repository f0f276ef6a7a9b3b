"""A hint: after some seconds of waiting for a run, which queue that it needs has no worker is said on stderr, or what
else its calls wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Final

from acts_celery.worker.errors import InfrastructureError

from .beside import beside
from .output import tell
from .view import waiting_lines

if TYPE_CHECKING:
    from threading import Event

    from acts_celery.broker_config import Settings
    from acts_celery.protocol import Plan

QUIET_SECONDS: Final = 3.0
_ANSWER_SECONDS: Final = 1.5


def no_worker_hint(
    settings: Settings,
    queues: Callable[[], Sequence[str]],
    waiting: Callable[[], Sequence[Mapping[str, str | None]]] = tuple,
) -> AbstractContextManager[None]:
    """While the block lasts longer than some seconds, ask the workers once which queues they serve, and say which of
    these has none; or what calls wait for, as the status of the run has it.
    """

    def look(is_over: Event) -> None:
        if not is_over.wait(QUIET_SECONDS):
            deserted = _deserted(settings, queues())
            if deserted and not is_over.is_set():
                remedy = f"acts worker --queues {','.join(deserted)}; see `acts doctor`"
                tell(f"no worker is known to serve {', '.join(deserted)}: {remedy}")
            # Whoever waits for the run says so where the log does not answer.
            with suppress(InfrastructureError):
                for line in () if deserted or is_over.is_set() else waiting_lines(waiting()):
                    tell(line.strip())

    return beside(look, "acts-no-worker-hint")


def queues_of(plan: Plan, settings: Settings) -> list[str]:
    """The queues that a plan needs workers on."""
    from acts_celery.worker.registry.activities import registry

    cost = plan.cost
    needed = [settings.queue_instances]
    needed += [settings.queue_delegates] if cost.delegate_requests or cost.model_requests else []
    needed += [settings.queue_background] if cost.background_sends else []
    named = {call.runner.name for call in plan.calls} if cost.queued_activities else set()
    needed += [one.queue for name, one in registry.activities.items() if name in named and one.queue is not None]
    return list(dict.fromkeys(needed))


def _deserted(settings: Settings, queues: Sequence[str]) -> list[str]:
    """The queues that no worker says it serves; none where workers cannot be asked."""
    from acts_celery.worker.app.application import make_client_application

    try:
        answers = make_client_application(settings).control.inspect(timeout=_ANSWER_SECONDS).active_queues() or {}
    except Exception:  # it is a kindness; what is wrong with the broker is said where the run needs it
        return []
    served = {queue["name"] for answer in answers.values() for queue in answer}
    return [queue for queue in queues if queue not in served]
