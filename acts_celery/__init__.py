"""The distributed backend for what a language model decides to call: activities and delegates are registered here,
submissions handed in, runs followed.

    from acts_celery import Client, Message, Output, activity, delegate, model

`acts_celery.protocol` is the pure core, and usable alone; `acts_celery.broker_config` has the settings, and
`acts_celery.worker` everything that touches the world. `celery -A acts_celery worker` finds the application in
`acts_celery.celery`.

A name is loaded when it is first asked for: a module of activities needs neither Redis nor Celery, and `acts` begins
before it has loaded what only some commands use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from .worker.errors import (
    ActivitiesError,
    AlreadyDecided,
    AmbiguousRun,
    BeingAmended,
    CallFailed,
    HeldAnew,
    InfrastructureError,
    InstanceNotFound,
    LetterNotFound,
    NoLoop,
    NoSuchTick,
    NotHeld,
    NothingToRetry,
    OtherFormat,
    OutputUnfit,
    PlanChanged,
    PlanWaits,
    RunBroken,
    RunNotFound,
    RunOver,
    WorkerError,
)

if TYPE_CHECKING:
    from .protocol import Message, Output
    from .protocol.engine.costs import Cost
    from .protocol.engine.statuses import CallStatus
    from .worker.client.async_client import AsyncClient, AsyncRun
    from .worker.client.authoring import Draft, Ref, ref
    from .worker.client.call_results import CallResult
    from .worker.client.client import Client
    from .worker.client.files import File
    from .worker.client.local import LocalClient, local
    from .worker.client.log_entries import LogEntry
    from .worker.client.progress import Event
    from .worker.client.results import Result
    from .worker.client.run_status import RunStatus
    from .worker.client.runs import Run
    from .worker.models.errors import (
        BadRequest,
        ContextTooLong,
        InvalidAnswer,
        ModelError,
        RateLimited,
        Refused,
        Truncated,
        Unreachable,
    )
    from .worker.models.random_answers import random_answers
    from .worker.models.request import Answer, Usage
    from .worker.registry.activities import activity, delegate, model
    from .worker.registry.trust import Content
    from .worker.storage.dead_letters import DeadLetter, DeadLetters
    from .worker.wire.attempts import CurrentCall, current_call

__all__ = [
    "ActivitiesError",
    "AlreadyDecided",
    "AmbiguousRun",
    "Answer",
    "AsyncClient",
    "AsyncRun",
    "BadRequest",
    "BeingAmended",
    "CallFailed",
    "CallResult",
    "CallStatus",
    "Client",
    "Content",
    "ContextTooLong",
    "Cost",
    "CurrentCall",
    "DeadLetter",
    "DeadLetters",
    "Draft",
    "Event",
    "File",
    "HeldAnew",
    "InfrastructureError",
    "InstanceNotFound",
    "InvalidAnswer",
    "LetterNotFound",
    "LocalClient",
    "LogEntry",
    "Message",
    "ModelError",
    "NoLoop",
    "NoSuchTick",
    "NotHeld",
    "NothingToRetry",
    "OtherFormat",
    "Output",
    "OutputUnfit",
    "PlanChanged",
    "PlanWaits",
    "RateLimited",
    "Ref",
    "Refused",
    "Result",
    "Run",
    "RunBroken",
    "RunNotFound",
    "RunOver",
    "RunStatus",
    "Truncated",
    "Unreachable",
    "Usage",
    "WorkerError",
    "activity",
    "current_call",
    "delegate",
    "local",
    "model",
    "random_answers",
    "ref",
]

_HOMES: Final = {
    "Answer": "acts_celery.worker.models.request",
    "AsyncClient": "acts_celery.worker.client.async_client",
    "AsyncRun": "acts_celery.worker.client.async_client",
    "BadRequest": "acts_celery.worker.models.errors",
    "CallResult": "acts_celery.worker.client.call_results",
    "CallStatus": "acts_celery.protocol.engine.statuses",
    "Client": "acts_celery.worker.client.client",
    "Content": "acts_celery.worker.registry.trust",
    "ContextTooLong": "acts_celery.worker.models.errors",
    "Cost": "acts_celery.protocol.engine.costs",
    "CurrentCall": "acts_celery.worker.wire.attempts",
    "DeadLetter": "acts_celery.worker.storage.dead_letters",
    "DeadLetters": "acts_celery.worker.storage.dead_letters",
    "Draft": "acts_celery.worker.client.authoring",
    "Event": "acts_celery.worker.client.progress",
    "File": "acts_celery.worker.client.files",
    "InvalidAnswer": "acts_celery.worker.models.errors",
    "LocalClient": "acts_celery.worker.client.local",
    "LogEntry": "acts_celery.worker.client.log_entries",
    "Message": "acts_celery.protocol",
    "ModelError": "acts_celery.worker.models.errors",
    "Output": "acts_celery.protocol",
    "RateLimited": "acts_celery.worker.models.errors",
    "Ref": "acts_celery.worker.client.authoring",
    "Refused": "acts_celery.worker.models.errors",
    "Result": "acts_celery.worker.client.results",
    "Run": "acts_celery.worker.client.runs",
    "RunStatus": "acts_celery.worker.client.run_status",
    "Truncated": "acts_celery.worker.models.errors",
    "Unreachable": "acts_celery.worker.models.errors",
    "Usage": "acts_celery.worker.models.request",
    "activity": "acts_celery.worker.registry.activities",
    "current_call": "acts_celery.worker.wire.attempts",
    "delegate": "acts_celery.worker.registry.activities",
    "local": "acts_celery.worker.client.local",
    "model": "acts_celery.worker.registry.activities",
    "random_answers": "acts_celery.worker.models.random_answers",
    "ref": "acts_celery.worker.client.authoring",
}
"""Where a name is that is loaded when it is asked for; type checkers see the imports above."""


def __getattr__(name: str) -> Any:
    """A public name that was not asked for before."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
