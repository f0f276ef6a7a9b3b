"""The distributed backend: activities and delegates are registered here, submissions handed in, runs followed.

    from worker import Client, Message, Output, activity, delegate, model

`celery -A worker worker` finds the application in `worker.celery`.

A name is loaded when it is first asked for: a module of activities needs neither Redis nor Celery, and `acts` begins
before it has loaded what only some commands use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from .errors import (
    ActivitiesError,
    AlreadyDecided,
    AmbiguousRun,
    BeingAmended,
    CallFailed,
    InfrastructureError,
    InstanceNotFound,
    LetterNotFound,
    NoLoop,
    NoSuchTick,
    NotHeld,
    NothingToRetry,
    OtherFormat,
    PlanChanged,
    RunNotFound,
    RunOver,
    WorkerError,
)

if TYPE_CHECKING:
    from protocol import Message, Output

    from .client.async_client import AsyncClient, AsyncRun
    from .client.authoring import Draft, Ref, ref
    from .client.client import Client
    from .client.local import local
    from .client.log_entries import LogEntry
    from .client.progress import Event
    from .client.results import CallResult, Result
    from .client.runs import Run
    from .messaging.attempts import CurrentCall, current_call
    from .models.request import Answer, Usage
    from .registry.activities import activity, delegate, model
    from .storage.dead_letters import DeadLetter, DeadLetters

__all__ = [
    "ActivitiesError",
    "AlreadyDecided",
    "AmbiguousRun",
    "Answer",
    "AsyncClient",
    "AsyncRun",
    "BeingAmended",
    "CallFailed",
    "CallResult",
    "Client",
    "CurrentCall",
    "DeadLetter",
    "DeadLetters",
    "Draft",
    "Event",
    "InfrastructureError",
    "InstanceNotFound",
    "LetterNotFound",
    "LogEntry",
    "Message",
    "NoLoop",
    "NoSuchTick",
    "NotHeld",
    "NothingToRetry",
    "OtherFormat",
    "Output",
    "PlanChanged",
    "Ref",
    "Result",
    "Run",
    "RunNotFound",
    "RunOver",
    "Usage",
    "WorkerError",
    "activity",
    "current_call",
    "delegate",
    "local",
    "model",
    "ref",
]

_HOMES: Final = {
    "Answer": "worker.models.request",
    "AsyncClient": "worker.client.async_client",
    "AsyncRun": "worker.client.async_client",
    "CallResult": "worker.client.results",
    "Client": "worker.client.client",
    "CurrentCall": "worker.messaging.attempts",
    "DeadLetter": "worker.storage.dead_letters",
    "DeadLetters": "worker.storage.dead_letters",
    "Draft": "worker.client.authoring",
    "Event": "worker.client.progress",
    "LogEntry": "worker.client.log_entries",
    "Message": "protocol",
    "Output": "protocol",
    "Ref": "worker.client.authoring",
    "Result": "worker.client.results",
    "Run": "worker.client.runs",
    "Usage": "worker.models.request",
    "activity": "worker.registry.activities",
    "current_call": "worker.messaging.attempts",
    "delegate": "worker.registry.activities",
    "local": "worker.client.local",
    "model": "worker.registry.activities",
    "ref": "worker.client.authoring",
}
"""Where a name is that is loaded when it is asked for; type checkers see the imports above."""


def __getattr__(name: str) -> Any:
    """A public name that was not asked for before."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(_HOMES[name]), name)
    except ImportError:
        from .hidden import in_the_way

        if (said := in_the_way()) is not None:
            raise ImportError(said) from None
        raise
    globals()[name] = value
    return value
