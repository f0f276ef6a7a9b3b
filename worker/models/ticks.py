"""The request of a loop's tick: the whole answer, as it was written, and what it has cost (SPEC R13.1, R13.5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from .configured import Models
from .errors import InvalidAnswer, Refused, Truncated
from .request import Answer, ModelRequest, ignore
from .telling import Tell, Telling


async def ask_for_tick(
    models: Models,
    messages: Sequence[Mapping[str, Any]],
    schema: Any,
    config: Mapping[str, Any],
    *,
    tell: Tell | None = None,
) -> dict[str, Any]:
    """`answer` the text, `model` and `usage`; or, where it is of no use, `error` and what has to be paid for it.
    Meanwhile `tell` is told the text up to the last call that is complete, where the model streams (SPEC R13.8).

    Raises `ModelError` where there is no answer.
    """
    try:
        with Telling(tell) if tell is not None else nullcontext(ignore) as heard:
            answer = await models.ask(ModelRequest(messages, schema, config), heard)
    except (InvalidAnswer, Refused, Truncated) as error:
        return {"error": {"type": type(error).__name__, "message": str(error)}, **_paid(error.answer)}
    return {"answer": answer.text, **_paid(answer)}


def _paid(answer: Answer | None) -> dict[str, Any]:
    """Which model has answered, and its usage as far as it says."""
    if answer is None:
        return {}
    return {"model": answer.model, "usage": answer.usage.to_dict() if answer.usage is not None else None}
