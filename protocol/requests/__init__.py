"""Requests to models, and the meaning of their answers (SPEC R12).

`schema`         the one schema of everything that a model may answer
`widening`       a schema that admits a reference in place of every value
`tool_texts`     tools and functions as a model is shown them
`data_blocks`    data as a model is shown it
`texts`          the prompt's own words
`rendering`      the messages of a request, and what follows a tick
`receipts`       how calls ended, one line each
`reading`        the JSON object in the text of an answer
`answers`        the calls, output and errors of an answer
`invalid_calls`  calls of an answer that cannot run, and what depends on them
`streaming`      calls that can begin before the answer is complete
"""

from .answers import Answer, AnswerError, read_answer
from .receipts import Fate
from .rendering import ChatMessage, render, render_tick
from .schema import Request, compose, read_request

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
