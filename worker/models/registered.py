"""Functions registered with `@model`: `(messages, schema, config) -> answer`.

An answer is a value, which becomes its JSON text, a text as the model wrote it, or an `Answer` with its usage. A
coroutine function runs on the event loop, a plain one on a thread. A generator, of either kind, streams its answer: it
yields pieces of the text, and its `Usage` where that is known; what it raises behind a piece breaks the answer off.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from acts_celery.protocol import Limits, Rejected
from acts_celery.protocol.language.limits import plain, plain_scalar
from acts_celery.worker.registry.activities import RegisteredModel

from .errors import InvalidAnswer, ModelError
from .request import Answer, ModelRequest, OnText, Usage

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
        pieces: Any = self._beside(said) if inspect.isgenerator(said) else said
        if inspect.isasyncgen(pieces):
            return await self._streamed(pieces, on_text)
        answer = said if isinstance(said, Answer) else Answer(answer_text(said), self._registered.name)
        on_text(answer.text)
        return answer

    async def _beside(self, pieces: Iterator[Any]) -> AsyncGenerator[Any, None]:
        """What a plain generator yields, each piece on a thread."""
        over = object()
        while (piece := await self._on_thread(lambda: next(pieces, over))) is not over:
            yield piece

    async def _streamed(self, pieces: Any, on_text: OnText) -> Answer:
        """The answer that pieces come to. Raises `InvalidAnswer`, and what the generator raises."""
        so_far = Answer("", self._registered.name)
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    if isinstance(piece, Usage):
                        so_far = replace(so_far, usage=piece)
                    elif isinstance(piece, str):
                        text = plain_scalar(piece)
                        so_far = replace(so_far, text=so_far.text + text)
                        on_text(text)
                    else:
                        raise InvalidAnswer(f"a piece of an answer is a text, or its Usage: {type(piece).__name__}")
        except ModelError as error:
            error.answer = error.answer or (so_far if so_far.text or so_far.usage else None)
            raise
        return so_far


def answer_text(said: Any) -> str:
    """A text as it is, and any other value as JSON. Raises `InvalidAnswer` where it is none."""
    try:
        value = plain(said, Limits())
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError, Rejected) as error:
        raise InvalidAnswer(f"what the model returned is not a JSON value: {error}") from None
