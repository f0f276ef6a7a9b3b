"""The request of a loop's tick: the whole answer, as it was written, and what it has cost (SPEC R13.1, R13.5)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .configured import Models
from .errors import InvalidAnswer, Refused, Truncated
from .partial_answers import PartialAnswers
from .request import Answer, ModelRequest

_HALF: Final = re.compile("[\ud800-\udfff]")
_LONGEST_ERROR: Final = 900


async def ask_for_tick(
    models: Models,
    messages: Sequence[Mapping[str, Any]],
    schema: Any,
    config: Mapping[str, Any],
    parts: PartialAnswers,
    provider_data: Mapping[str, str],
) -> dict[str, Any]:
    """`answer` the text, `words` what was said beside it, `model`, `usage` and `seconds`; or, where it is of no use,
    `error` and what has to be paid for it. `parts` sends on what comes meanwhile, where the model streams (SPEC R13.8).
    `provider_data` is what providers said beside earlier answers, by tick; the result has that of this one.

    Raises `ModelError` where there is no answer.
    """
    try:
        with parts as on_text:
            answer = await models.ask(ModelRequest(messages, schema, config, provider_data), on_text)
        if _HALF.search(answer.text + answer.words):
            raise InvalidAnswer("the answer is not valid Unicode: it has half a character", answer=answer)
    except (InvalidAnswer, Refused, Truncated) as error:
        text = _HALF.sub("\ufffd", str(error))[:_LONGEST_ERROR]  # in a provider's words, of any length
        return {"error": {"type": type(error).__name__, "message": text}, **_paid(error.answer)}
    return {"answer": answer.text, **({"words": answer.words} if answer.words else {}), **_paid(answer)}


def _paid(answer: Answer | None) -> dict[str, Any]:
    """Which model has answered, and its usage as far as it says."""
    if answer is None:
        return {}
    return {
        "model": answer.model,
        "usage": answer.usage.to_dict() if answer.usage is not None else None,
        "seconds": round(answer.duration_seconds, 3),
        "nanodollars": answer.nanodollars,
        "is_fallback": answer.is_fallback or None,
        "provider_data": answer.provider_data or None,
    }
