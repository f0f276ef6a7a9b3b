"""The distributed backend: activities and delegates are registered here, submissions handed in, runs followed.

    from worker import Client, Output, activity, delegate

`celery -A worker worker` finds the application in `worker.celery`.
"""

from protocol import Output

from .activities import activity, delegate
from .attempts import CurrentCall, current_call
from .client import Client
from .dead_letters import DeadLetter, DeadLetters
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
from .progress import Event
from .results import CallResult, Result
from .runs import LogEntry, Run

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
