"""Requests: what a model is asked, and what its answer means (SPEC R12).

`widening`       a schema in which a reference may stand for every value
`tool_texts`     a tool as a model is shown it
`receipts`       what became of calls, in one line each
`data_blocks`    data as a model is shown it
`rendering`      the messages in which a model is asked, and what follows a tick
`texts`          the engine's own words in them
`answers`        what a model has written, as calls that may run, an output, and errors
`streaming`      which of them can begin, and what such an answer comes to in the end
`invalid_calls`  texts of its calls and its output that read as references and are none
`reading`        the one JSON object that a model has written, whatever stands around it
`schema`         the one schema of everything that a model may answer
"""

from acts_celery.protocol.requests.schema import Request, compose, read_request

from .answers import Answer, AnswerError, read_answer
from .receipts import Fate
from .rendering import ChatMessage, render, render_tick

__all__ = [
    "Answer",
    "AnswerError",
    "ChatMessage",
    "Fate",
    "Request",
    "compose",
    "read_answer",
    "read_request",
    "render",
    "render_tick",
]
