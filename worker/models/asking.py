"""Asking until there is an answer, or no time left (SPEC R13.4).

What may pass - 429, 5xx, no connection - is asked again after `Retry-After`, else after a wait that doubles. Where a
model has others to fall back on, each is asked once in their order before anything is waited for.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Final

from acts_celery.broker_config import ConfiguredModel
from acts_celery.protocol.engine.loop_limits import MAX_OUTPUT_TOKENS
from acts_celery.worker.backoff import Backoff

from .errors import ModelError, Truncated, Unreachable
from .prices import price_of
from .request import Answer, Loading, Model, ModelRequest, OnText, Reported, Usage, Words

logger = logging.getLogger(__name__)

_BACKOFF: Final = Backoff(0.5, 20.0, jitter=True)
_SPREAD: Final = 1.1


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that may answer, by the name that its provider knows it under."""

    model: Model
    name: str
    is_fallback: bool = False
    configured: ConfiguredModel | None = None
    """Says what it costs."""

    def priced(self, answer: Answer, request: ModelRequest) -> Answer:
        """An answer of it, with what it cost."""
        return replace(answer, nanodollars=self.price(answer.usage, request), is_fallback=self.is_fallback)

    def price(self, usage: Usage | None, request: ModelRequest) -> int | None:
        """What a request costs by that usage; where that is not all, with as much output as there may be."""
        if self.configured is None or usage is None:
            return None
        most = request.config.get("max_output_tokens", MAX_OUTPUT_TOKENS)
        whole = usage if usage.is_whole else replace(usage, output=max(usage.output, most))
        return price_of(self.configured, whole)


Failed = Callable[[ModelError, int, float], None]
"""Called before a request is made again: why, how many tries have failed so far, and the seconds until the next."""


async def answered(
    candidates: Sequence[Candidate], request: ModelRequest, on_text: OnText, seconds: float, failed: Failed
) -> Answer:
    """The answer of the first candidate that has one, within so many seconds. Raises `ModelError`.

    A request of whose answer a piece has come is not asked again: calls of that piece may have begun.
    """
    began = time.monotonic()
    has_begun, deadline = False, asyncio.timeout(seconds)
    error: ModelError = Unreachable(f"the model has not answered within {seconds:g} seconds (request_seconds)")

    def take(candidate: Candidate, piece: str | Reported) -> None:
        nonlocal has_begun
        if isinstance(piece, Reported):
            piece = replace(piece, nanodollars=candidate.price(piece.usage, request))
        else:
            has_begun = has_begun or (bool(piece) and not isinstance(piece, Words))
        on_text(piece)

    try:
        async with deadline:
            for attempt in count():
                wait_seconds = _BACKOFF.seconds(attempt + 1)
                for candidate in candidates:
                    own = replace(request, config={**request.config, "model": candidate.name})
                    began += await _loaded(candidate.model, deadline)
                    try:
                        answer = await candidate.model.ask(own, partial(take, candidate))
                        return replace(candidate.priced(answer, request), duration_seconds=time.monotonic() - began)
                    except ModelError as raised:
                        error = raised
                        if (part := error.answer) is not None:
                            spent_seconds = time.monotonic() - began
                            error.answer = replace(candidate.priced(part, request), duration_seconds=spent_seconds)
                    if not error.is_transient:
                        raise error
                    if has_begun:
                        raise Truncated(f"the answer broke off: {error}", answer=error.answer) from error
                    if error.retry_after_seconds:  # 0 says that it may be asked again, and not that it helps
                        # Those who were sent away together do not come back together.
                        wait_seconds = error.retry_after_seconds * random.uniform(1.0, _SPREAD)
                if time.monotonic() - began + wait_seconds >= seconds:
                    raise error
                tries = (attempt + 1) * len(candidates)
                said = "%s: %.500r; try %d, asked again in %.1f s"  # a server's words may have several lines
                logger.warning(said, type(error).__name__, str(error), tries, wait_seconds)
                failed(error, tries, wait_seconds)
                await asyncio.sleep(wait_seconds)
    except TimeoutError:
        if not deadline.expired():
            raise  # a registered function's own
    raise error


async def _loaded(model: Model, deadline: asyncio.Timeout) -> float:
    """Have a model load what it takes to ask it, which is not the time of its answer. Returns the seconds it took."""
    if not isinstance(model, Loading):
        return 0.0
    when, began = deadline.when(), time.monotonic()
    deadline.reschedule(None)
    await model.prepare()
    seconds = time.monotonic() - began
    deadline.reschedule(when + seconds if when is not None else None)
    return seconds
