"""Whether a request fits the context of a model, where the operator has said how many tokens that has.

Only the model's own tokenizer knows. In requests as the engine writes them a token has 3.3 to 4 bytes; in a text of
long words 13, and in a row of blanks any number. So a request is kept back only where it cannot fit by any of these.
Where it may not fit, it is sent, since servers refuse what is too long, and a line in the log says so: some cut it
silently.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from acts_celery.broker_config import ConfiguredModel
from acts_celery.protocol.requests.data_blocks import compact

from .errors import TOO_LONG, ContextTooLong
from .request import ModelRequest

logger: Final = logging.getLogger(__name__)

_USUAL_BYTES: Final = 4
"""Of a token; so a request as the engine writes it has as many tokens, or a fifth more."""
_MOST_BYTES: Final = 16
"""Of a token, rows of one character left out."""
_REPEATED: Final = re.compile(rb"(.)\1{3,}", re.DOTALL)


def verify_fits(request: ModelRequest, model: ConfiguredModel) -> None:
    """Raises `ContextTooLong` where the request is too long for the model by any count."""
    if model.context_tokens is None:
        return
    written = compact([list(request.messages), request.schema]).encode()
    if len(written) <= _USUAL_BYTES * model.context_tokens:
        return
    size = (
        f"the request has about {len(written) // _USUAL_BYTES} tokens, and {model.model} reads {model.context_tokens}"
    )
    if len(written) > _MOST_BYTES * model.context_tokens:
        least = len(_REPEATED.sub(rb"\1", written)) // _MOST_BYTES
        if least > model.context_tokens:
            raise ContextTooLong(f"{size} at once (its context_tokens); it is not sent: {TOO_LONG}")
    logger.warning("%s in one request (its context_tokens): it may be refused, or cut off", size)
