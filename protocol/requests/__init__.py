"""Requests: what a model is asked, and what its answer means (SPEC R12).

`request`       a request, and what its answer is held against
`composition`   the composed schema: everything that a model may answer
`call_schemas`  the part of it that is one tool's
`asides`        the parts of it that are asked for beside calls and an output, and what is wrong with them
`widening`      a schema in which a reference may stand for every value
`tool_texts`    a tool as a model is shown it
`type_texts`    a type as a model is shown it
`untrusted`     what is told of data that others wrote
`functions`     the tools and the output as functions of a provider's own tool calling
`function_answers`  calls of these as an answer
`own_places`    where the result of such a call goes that names no place
`tool_messages`  what is told of such calls
`receipts`      what became of calls, in one line each
`data_blocks`   data as a model is shown it
`empty_places`  what the state requires and is not there yet
`results`       a request for the result of one call alone
`rendering`     the messages in which a model is asked, and what follows a tick
`texts`         the engine's own words in them
`answer_texts`  the object that a text has as its answer, whatever stands around it
`answers`       what a model has written, as calls that may run, an output, and errors
`answer_slips`  texts in it that read as references and are none
`early_results`  results that a model has written before what their calls refer to is there
`growing`       the calls of an answer whose text is still being written
`streaming`     which of them can begin, and what such an answer comes to in the end
`dependents`    calls that cannot run because those that were to write what they need do not
`unfit_parts`   the parts of an answer that cannot be kept, each by itself
`wire`          what only a provider's format requires, dropped again
"""

from .answers import Answer, AnswerError, read_answer
from .composition import compose
from .receipts import Fate
from .rendering import ChatMessage, render, render_tick
from .request import Request, read_request

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
