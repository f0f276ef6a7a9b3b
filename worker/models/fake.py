"""A model of a test: it gives the answers that it was made with, and keeps what it was asked.

    find = {"_tool": "find", "order": "A-1", "_outputPath": "†state.found"}
    model = acts.model({"calls": [find]}, {"output": "†state.found"})

An answer is a dictionary or any other JSON value, the text as a model would write it, an `Answer` with its `usage`, an
error that is raised (`RateLimited("…")`), or a function of `(messages, schema, config)` that gives one of these; a
coroutine function, too. The answers come in their order, one for each request; a function that stands last answers all
that follow.

A generator function streams its answer in pieces. What stands between two `yield` happens in the midst of the answer:

    async def slowly(messages, schema, config):
        yield '{"calls": [{"_tool": "find", "order": "A-1", "_outputPath": "†state.found"}'
        await found.wait()                  # the call runs before the answer has ended
        yield '], "output": "†state.found"}'
        raise Unreachable("gone")           # or a stream that breaks off
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .errors import BadRequest
from .registered import answer_text
from .request import Answer, ModelRequest


class FakeModel:
    """A model without a network, of a test. `requests` are those that it was asked, the first one first."""

    def __init__(self, answers: Sequence[Any]) -> None:
        self.requests: list[ModelRequest] = []
        self._answers = answers
        self._counting = threading.Lock()

    async def answer(self, messages: Sequence[Mapping[str, Any]], schema: Any, config: Mapping[str, Any]) -> Any:
        """What a registered model gives: an `Answer`, or a generator of its pieces. Raises the error that stands in the
        place of an answer, and `BadRequest` where there is none any more.
        """
        with self._counting:
            self.requests.append(ModelRequest(messages, schema, config))
            number = len(self.requests)
        said = self._answers[min(number, len(self._answers)) - 1]
        if not _is_function(said) and number > len(self._answers):
            raise BadRequest(
                f"the test has given this model {_counted(len(self._answers))}, and it is asked once more: give it "
                "another answer, or a function as the last one"
            )
        if _is_function(said):
            said = await _called(said, messages, schema, config)
        if isinstance(said, Exception):
            raise said
        if isinstance(said, Answer) or inspect.isgenerator(said) or inspect.isasyncgen(said):
            return said
        return Answer(answer_text(said), str(config.get("model", "fake")))


def _counted(answers: int) -> str:
    return "1 answer" if answers == 1 else f"{answers} answers"


def _is_function(said: Any) -> bool:
    return callable(said) and not isinstance(said, type)


async def _called(function: Callable[..., Any], *given: Any) -> Any:
    """What a function answers: a plain one beside the event loop, which it may hold up."""
    said = await asyncio.to_thread(function, *given)
    return await said if inspect.isawaitable(said) else said
