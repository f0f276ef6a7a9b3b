"""What a model is asked, and what its answer means (SPEC R12).

`schema`         the one schema of everything that a model may answer
`widening`       a schema in which a reference may stand for every value
`tool_texts`     tools and functions as a model is shown them
`data_blocks`    data as a model is shown it
`texts`          the prompt's own words
`rendering`      the messages of a request, and what follows a tick
`receipts`       what became of calls, one line each
`reading`        the JSON object in an answer, whatever surrounds it
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
