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
    ContractsError,
    HeldAnew,
    InfrastructureError,
    InstanceDeleted,
    InstanceNotFound,
    InvalidParameters,
    InvalidProgress,
    IsSimulation,
    LetterNotFound,
    NoLoop,
    NoSuchCall,
    NoSuchRule,
    NoSuchTick,
    NotHeld,
    NothingToRetry,
    NotPossibleNow,
    NotThere,
    OtherFormat,
    OutputUnfit,
    OverLimit,
    PlanChanged,
    PlanWaits,
    QueueRefused,
    RunBroken,
    RunFailed,
    RunNotFound,
    RunOver,
    RunTimeout,
    ValueNotFound,
    WorkerError,
)
from .worker.runner.rooms import AGENT, WORKER_STEPS, register

if TYPE_CHECKING:
    from acts_celery.protocol.engine.events import CallStatus, Progress
    from acts_celery.worker.agent.hosted_agents import HostedAgent, host_agent
    from acts_celery.worker.agent.scripted import random_answers
    from acts_celery.worker.broker.attempts import CurrentCall, current_call
    from acts_celery.worker.client.call_results import LogEntry
    from acts_celery.worker.client.results import RunStatus
    from acts_celery.worker.client.run import Run
    from acts_celery.worker.client.submitting import Draft, Ref, ref
    from acts_celery.worker.registry.activities import Done
    from acts_celery.worker.registry.models import (
        Answer,
        BadRequest,
        ContextTooLong,
        InvalidAnswer,
        ModelError,
        RateLimited,
        Refused,
        Truncated,
        Unreachable,
        Usage,
    )
    from acts_celery.worker.registry.signatures import Content, Proof
    from acts_celery.worker.store.waiting import DeadLetter, DeadLetters

    from .broker_config import BrokerConfigError, NotConfigured, ServerUnavailable, SettingsError
    from .protocol import (
        Conflict,
        ExpressionError,
        Message,
        Output,
        OutputError,
        Problem,
        ProtocolError,
        Rejected,
        Unresolved,
    )
    from .protocol.engine.costs import Cost
    from .worker.client.async_client import AsyncClient, AsyncRun
    from .worker.client.call_results import CallResult
    from .worker.client.client import Client
    from .worker.client.dispatcher import IdTaken
    from .worker.client.files import File
    from .worker.client.progress import Event
    from .worker.client.results import Result
    from .worker.client.tables import Table
    from .worker.local import LocalClient, local
    from .worker.registry.activities import activity, delegate, model

__all__ = [
    "ActivitiesError",
    "AlreadyDecided",
    "AmbiguousRun",
    "Answer",
    "AsyncClient",
    "AsyncRun",
    "BadRequest",
    "BeingAmended",
    "BrokerConfigError",
    "CallFailed",
    "CallResult",
    "CallStatus",
    "Client",
    "Conflict",
    "Content",
    "ContextTooLong",
    "ContractsError",
    "Cost",
    "CurrentCall",
    "DeadLetter",
    "DeadLetters",
    "Done",
    "Draft",
    "Event",
    "ExpressionError",
    "File",
    "HeldAnew",
    "HostedAgent",
    "IdTaken",
    "InfrastructureError",
    "InstanceDeleted",
    "InstanceNotFound",
    "InvalidAnswer",
    "InvalidParameters",
    "InvalidProgress",
    "IsSimulation",
    "LetterNotFound",
    "LocalClient",
    "LogEntry",
    "Message",
    "ModelError",
    "NoLoop",
    "NoSuchCall",
    "NoSuchRule",
    "NoSuchTick",
    "NotConfigured",
    "NotHeld",
    "NotPossibleNow",
    "NotThere",
    "NothingToRetry",
    "OtherFormat",
    "Output",
    "OutputError",
    "OutputUnfit",
    "OverLimit",
    "PlanChanged",
    "PlanWaits",
    "Problem",
    "Progress",
    "Proof",
    "ProtocolError",
    "QueueRefused",
    "RateLimited",
    "Ref",
    "Refused",
    "Rejected",
    "Result",
    "Run",
    "RunBroken",
    "RunFailed",
    "RunNotFound",
    "RunOver",
    "RunStatus",
    "RunTimeout",
    "ServerUnavailable",
    "SettingsError",
    "Table",
    "Truncated",
    "Unreachable",
    "Unresolved",
    "Usage",
    "ValueNotFound",
    "WorkerError",
    "activity",
    "current_call",
    "delegate",
    "host_agent",
    "local",
    "model",
    "random_answers",
    "ref",
]

_HOMES: Final = {
    "Answer": "acts_celery.worker.registry.models",
    "AsyncClient": "acts_celery.worker.client.async_client",
    "AsyncRun": "acts_celery.worker.client.async_client",
    "BadRequest": "acts_celery.worker.registry.models",
    "BrokerConfigError": "acts_celery.broker_config",
    "CallResult": "acts_celery.worker.client.call_results",
    "CallStatus": "acts_celery.protocol.engine.events",
    "Client": "acts_celery.worker.client.client",
    "Conflict": "acts_celery.protocol",
    "Content": "acts_celery.worker.registry.signatures",
    "ContextTooLong": "acts_celery.worker.registry.models",
    "Cost": "acts_celery.protocol.engine.costs",
    "CurrentCall": "acts_celery.worker.broker.attempts",
    "DeadLetter": "acts_celery.worker.store.waiting",
    "DeadLetters": "acts_celery.worker.store.waiting",
    "Done": "acts_celery.worker.registry.activities",
    "Draft": "acts_celery.worker.client.submitting",
    "Event": "acts_celery.worker.client.progress",
    "ExpressionError": "acts_celery.protocol",
    "File": "acts_celery.worker.client.files",
    "HostedAgent": "acts_celery.worker.agent.hosted_agents",
    "IdTaken": "acts_celery.worker.client.dispatcher",
    "InvalidAnswer": "acts_celery.worker.registry.models",
    "LocalClient": "acts_celery.worker.local",
    "LogEntry": "acts_celery.worker.client.call_results",
    "Message": "acts_celery.protocol",
    "ModelError": "acts_celery.worker.registry.models",
    "NotConfigured": "acts_celery.broker_config",
    "Output": "acts_celery.protocol",
    "OutputError": "acts_celery.protocol",
    "Problem": "acts_celery.protocol",
    "Progress": "acts_celery.protocol.engine.events",
    "Proof": "acts_celery.worker.registry.signatures",
    "ProtocolError": "acts_celery.protocol",
    "RateLimited": "acts_celery.worker.registry.models",
    "Ref": "acts_celery.worker.client.submitting",
    "Refused": "acts_celery.worker.registry.models",
    "Rejected": "acts_celery.protocol",
    "Result": "acts_celery.worker.client.results",
    "Run": "acts_celery.worker.client.run",
    "RunStatus": "acts_celery.worker.client.results",
    "ServerUnavailable": "acts_celery.broker_config",
    "SettingsError": "acts_celery.broker_config",
    "Table": "acts_celery.worker.client.tables",
    "Truncated": "acts_celery.worker.registry.models",
    "Unreachable": "acts_celery.worker.registry.models",
    "Unresolved": "acts_celery.protocol",
    "Usage": "acts_celery.worker.registry.models",
    "activity": "acts_celery.worker.registry.activities",
    "current_call": "acts_celery.worker.broker.attempts",
    "delegate": "acts_celery.worker.registry.activities",
    "host_agent": "acts_celery.worker.agent.hosted_agents",
    "local": "acts_celery.worker.local",
    "model": "acts_celery.worker.registry.activities",
    "random_answers": "acts_celery.worker.agent.scripted",
    "ref": "acts_celery.worker.client.submitting",
}
"""The module of each name, which is loaded when the name is used; type checkers see the imports above."""


register(AGENT, "acts_celery.worker.agent.room")
register(WORKER_STEPS, "acts_celery.worker.telemetry.worker_step:MetricsStep")


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
