"""Functions registered with `@model`: `(messages, schema, config) -> answer`.

An answer is a value, which becomes its JSON text, a text as the model wrote it, or an `Answer` with its usage. A
coroutine function runs on the event loop, a plain one on a thread.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from acts_celery.worker.registry.activities import RegisteredModel

from .errors import InvalidAnswer
from .request import Answer, ModelRequest, OnText

OnThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a plain function beside the event loop."""


class FunctionModel:
    """A registered function as a model."""

    def __init__(self, registered: RegisteredModel, on_thread: OnThread) -> None:
        self._registered = registered
        self._on_thread = on_thread

    async def ask(self, request: ModelRequest, on_text: OnText) -> Answer:
        """What the function answers. Raises `InvalidAnswer`, and whatever the function raises."""
        function = self._registered.function
        given = ([dict(message) for message in request.messages], request.schema, dict(request.config))
        if self._registered.is_async:
            said = await function(*given)
        else:
            said = await self._on_thread(lambda: function(*given))
        answer = said if isinstance(said, Answer) else Answer(answer_text(said), self._registered.name)
        on_text(answer.text)
        return answer


def answer_text(said: Any) -> str:
    """A text as it is, and any other value as JSON. Raises `InvalidAnswer` where it is none."""
    if isinstance(said, str):
        return said
    try:
        return json.dumps(said, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidAnswer(f"what the model returned is not a JSON value: {error}") from None
