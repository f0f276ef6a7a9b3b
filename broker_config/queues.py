"""Names of the tasks, and which queue each goes to.

Only workers on the `instances` queue touch the log. Delegates and fire-and-forget calls have queues of their
own, so that neither can hold up the others; an activity may name a queue of its own, which is created when it
is used.

kombu is loaded with the first queue, since `acts check` needs the names alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acts_celery.broker_config.settings import Settings

if TYPE_CHECKING:
    from kombu import Queue

__all__ = [
    "DELIVER",
    "EXECUTE_ACTIVITY",
    "EXECUTE_BACKGROUND",
    "EXECUTE_DELEGATE",
    "EXECUTE_INSTANCE",
    "PROBE",
    "SEVERAL",
    "owner_of",
    "queue",
    "queue_names",
    "queues",
    "reports_queue",
    "routes",
]

EXECUTE_INSTANCE = "acts.execute_instance"
"""Runs the calls of one instance that are ready."""

PROBE = "acts.probe"
"""Proves, when it is taken from the queue of the instances, that what was published before it was taken too."""

DELIVER = "acts.deliver"
"""Brings the result of a call that ran elsewhere back to its instance."""

EXECUTE_DELEGATE = "acts.execute_delegate"
"""Runs one delegate on its snapshot of the context (SPEC R9)."""

EXECUTE_ACTIVITY = "acts.execute_activity"
"""Runs one activity that has a queue of its own; the sender names the queue."""

EXECUTE_BACKGROUND = "acts.execute_background"
"""Runs one fire-and-forget call (SPEC R5)."""

SEVERAL = ".several"
"""Ends the name of what is no task but a message that carries several tasks of the name before it."""


def queue_names(settings: Settings) -> tuple[str, ...]:
    """Return the queues a worker serves unless told otherwise, each once."""
    return tuple(dict.fromkeys((settings.queue_instances, settings.queue_delegates, settings.queue_background)))


_OF_KOMBU = ("_kombu.", "unacked", "celeryev", "celery.pidbox", "reply.celery.pidbox")


def owner_of(name: str, settings: Settings) -> str | None:
    """Return whose queue, or key of the same server, has that name, where it is none for an activity."""
    for field in ("queue_instances", "queue_delegates", "queue_background", "queue_reports"):
        if name == getattr(settings, field):
            return f"the engine (ACTS_{field.upper()})"
    if name.startswith(f"{settings.key_prefix}:"):
        return "the log, whose keys begin so (ACTS_KEY_PREFIX)"
    return "Celery's transport" if name.startswith(_OF_KOMBU) else None


def queue(name: str, settings: Settings) -> Queue:
    """Return the durable queue of that name on an exchange of that name, as Celery itself would make it."""
    from kombu import Exchange, Queue

    return Queue(name, Exchange(name, type="direct"), routing_key=name, queue_arguments=_arguments(settings))


def queues(settings: Settings) -> tuple[Queue, ...]:
    """Return the queues of `queue_names` for kombu."""
    return tuple(queue(name, settings) for name in queue_names(settings))


def reports_queue(settings: Settings) -> Queue:
    """Return the queue of the signs of life. No worker consumes it: the sweep reads it."""
    from kombu import Exchange, Queue

    name = settings.queue_reports
    return Queue(name, Exchange(""), routing_key=name, queue_arguments=_arguments(settings))


def _arguments(settings: Settings) -> dict[str, str] | None:
    """What a RabbitMQ is told of a queue; a classic one is told nothing, as ever, so that those that are there fit."""
    return {"x-queue-type": settings.queue_type} if settings.queue_type != "classic" else None


def routes(settings: Settings) -> dict[str, dict[str, str]]:
    """Return Celery's `task_routes`. `EXECUTE_ACTIVITY` has none: its queue is the activity's."""
    return {
        EXECUTE_INSTANCE: {"queue": settings.queue_instances},
        PROBE: {"queue": settings.queue_instances},
        DELIVER: {"queue": settings.queue_instances},
        EXECUTE_DELEGATE: {"queue": settings.queue_delegates},
        EXECUTE_BACKGROUND: {"queue": settings.queue_background},
    }
