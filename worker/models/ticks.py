"""The request of a loop's tick: the whole answer, as it was written, and what it has cost (SPEC R13.1, R13.5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .configured import Models
from .errors import InvalidAnswer, Refused, Truncated
from .request import Answer, ModelRequest


async def ask_for_tick(
    models: Models, messages: Sequence[Mapping[str, Any]], schema: Any, config: Mapping[str, Any]
) -> dict[str, Any]:
    """`answer` the text, `model` and `usage`; or, where it is of no use, `error` and what has to be paid for it.

    Raises `ModelError` where there is no answer.
    """
    try:
        answer = await models.ask(ModelRequest(messages, schema, config))
    except (InvalidAnswer, Refused, Truncated) as error:
        return {"error": {"type": type(error).__name__, "message": str(error)}, **_paid(error.answer)}
    return {"answer": answer.text, **_paid(answer)}


def _paid(answer: Answer | None) -> dict[str, Any]:
    """Which model has answered, and its usage as far as it says."""
    if answer is None:
        return {}
    return {"model": answer.model, "usage": answer.usage.to_dict() if answer.usage is not None else None}
