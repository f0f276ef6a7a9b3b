"""The distributed backend: activities and delegates are registered here, submissions handed in, runs followed.

    from worker import Client, Message, Output, activity, delegate

`celery -A worker worker` finds the application in `worker.celery`.
"""

from protocol import Message, Output

from .client.client import Client
from .client.progress import Event
from .client.results import CallResult, Result
from .client.runs import LogEntry, Run
from .errors import (
    ActivitiesError,
    BeingAmended,
    CallFailed,
    InfrastructureError,
    LetterNotFound,
    OtherFormat,
    RunNotFound,
    RunOver,
    WorkerError,
)
from .messaging.attempts import CurrentCall, current_call
from .registry.activities import activity, delegate
from .storage.dead_letters import DeadLetter, DeadLetters

__all__ = [
    "ActivitiesError",
    "BeingAmended",
    "CallFailed",
    "CallResult",
    "Client",
    "CurrentCall",
    "DeadLetter",
    "DeadLetters",
    "Event",
    "InfrastructureError",
    "LetterNotFound",
    "LogEntry",
    "Message",
    "OtherFormat",
    "Output",
    "Result",
    "Run",
    "RunNotFound",
    "RunOver",
    "WorkerError",
    "activity",
    "current_call",
    "delegate",
]
