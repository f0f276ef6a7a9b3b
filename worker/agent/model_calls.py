"""A delegate without tools, or a latent call, as one request: its messages, its schema, its answer (SPEC R9.3, R12.1).

The answer is an object whose `output` is the result: providers that enforce a schema want an object.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from ...broker_config import ConfiguredModel
from ...protocol.calls.outputs import PATH, chosen
from ...protocol.calls.tools import Tool
from ...protocol.engine.costs import Cost, Estimate
from ...protocol.limits import MAX_OUTPUT_TOKENS
from ...protocol.requests.data_blocks import compact
from ...protocol.requests.reading import Unreadable, find_answer, value_with_texts_read, value_without_nulls
from ...protocol.requests.rendering import delegate_messages
from ...protocol.requests.widening import Definitions, Widening, closed
from ...protocol.schemas import compiled
from .. import limits
from ..broker.attempts import header_to_send
from ..broker.messages import DelegateCall
from ..registry.models import (
    Answer,
    BadRequest,
    InvalidAnswer,
    ModelError,
    ModelRequest,
    ProviderLimit,
    Refused,
    Truncated,
    Unreachable,
)
from ..runner.remote import ABOUT
from ..runner.rooms import SendPart
from .asking import Models, PartialAnswers, writes_texts
from .clients import TRACEPARENT
from .prices import estimate_of, request_tokens

logger = logging.getLogger(__name__)


async def solve(
    models: Models,
    context: Sequence[Mapping[str, Any]],
    schema: Any,
    config: Mapping[str, Any],
    pay: Callable[[Mapping[str, Any]], None],
) -> Any:
    """The result, valid by its schema; if the model chooses among places (`config.choices`), an `Output` for one. `pay`
    is called with the cost of asking, as `Success` has it: unknown usage is charged whole (SPEC R13.3). Raises
    `ModelError`, `TooLarge`.
    """
    request = _asked(context, schema, config)
    try:
        answer = await models.ask(request)
    except ModelError as error:
        if error.answer is not None or isinstance(error, Unreachable):
            pay(_cost(models, request, error.answer))
        raise
    pay(_cost(models, request, answer))
    output = _output(answer, has_texts=any(map(writes_texts, models.with_fallbacks(request.config.get("model")))))
    if schema is None:
        return output
    names: Mapping[str, str] = config.get("choices") or {}
    if names and (choice := chosen(output, names)) is not None:
        if choice.path not in names.values():
            return choice  # a place that was not shown: an error that goes to none of them (SPEC R4.4)
        output = {**output, PATH: next(name for name, path in names.items() if path == choice.path)}
    output = value_without_nulls(schema, output)
    if problems := compiled(schema).problems(output, known=()):
        raise InvalidAnswer(
            "the model's answer is not what the schema demands: " + "; ".join(map(str, problems)), answer=answer
        )
    return chosen(output, names) if names else output


def estimate(call: Mapping[str, Any], asked: Sequence[ConfiguredModel], *, counts_money: bool) -> Estimate:
    """The most that the request of a delegate's call, as its message has it, may cost; the models `asked` may answer it
    (SPEC R13.3). The first time that money counts it loads the prices. Raises `TooLarge`.
    """
    tokens = _most_tokens(_asked(call["context"], call["schema"], call["config"]), asked)
    return estimate_of(asked if counts_money else (), *tokens)


def _asked(context: Sequence[Mapping[str, Any]], schema: Any, config: Mapping[str, Any]) -> ModelRequest:
    messages = list(context) if config.get("is_rendered") else rendered(context, config)
    settings = {key: value for key, value in config.items() if key not in ABOUT}
    return ModelRequest(messages, enveloped(schema), settings)


def rendered(context: Sequence[Mapping[str, Any]], config: Mapping[str, Any] = MappingProxyType({})) -> list[Any]:
    """The messages of a delegate's request: rules for the answer, then the context (SPEC R12.5). Raises `TooLarge`."""
    tools = [Tool(name, declaration) for name, declaration in (config.get("tool") or {}).items()]
    return delegate_messages(context, next(iter(tools), None), config.get("choices") or {})


def _most_tokens(request: ModelRequest, asked: Sequence[ConfiguredModel]) -> tuple[int, int]:
    tokens = request_tokens(request.messages, asked) + len(compact(request.schema).encode())
    return tokens, request.config.get("max_output_tokens", MAX_OUTPUT_TOKENS)


def _cost(models: Models, request: ModelRequest, answer: Answer | None) -> dict[str, Any]:
    asked = models.with_fallbacks(request.config.get("model"))
    estimate = estimate_of(asked, *_most_tokens(request, asked))
    if answer is None:
        return Cost.of_request(None, estimate).pack()
    usage = answer.usage.to_dict() if answer.usage is not None else None
    cost = Cost.of_request(usage, estimate, seconds=answer.duration_seconds, amount=answer.nanodollars)
    return {**cost.pack(), **({"usage": None} if usage is None else {}), "model": answer.model, **_heard(answer)}


def enveloped(schema: Any) -> dict[str, Any]:
    """The schema of the whole answer, an object with the `output`; the definitions of the given schema move into it."""
    definitions = Definitions()
    output = {} if schema is None else Widening("output", schema, definitions).data(schema)
    return closed({"output": output}, definitions)


def _output(answer: Answer, *, has_texts: bool) -> Any:
    """The output of an answer, which has no calls; it `has_texts` where its model may have to write `_json`. Raises
    `InvalidAnswer`, which quotes nothing of it: a reader of the run's errors may not see all that the delegate saw.
    """
    try:
        solution = find_answer(answer.text, ("output",))
        if solution.get("output") is None:
            raise Unreadable("it has no output")
        if solution.get("calls"):
            raise Unreadable("it has calls, where there are no tools")
    except Unreadable as error:
        logger.debug("an answer that cannot be read begins: %s", answer.text[: limits.SHOWN_CHARACTERS])
        raise InvalidAnswer(f"the model's answer cannot be read: {error}", answer=answer) from None
    if not has_texts:
        return solution["output"]
    output, unread = value_with_texts_read(solution["output"])
    if unread:
        raise InvalidAnswer(f"the model's answer cannot be read: {unread[0]}", answer=answer)
    return output


# The request of a loop's tick: the whole answer, as it was written, and its cost (SPEC R13.1, R13.5).

_HALF: Final = re.compile("[\ud800-\udfff]")


async def ask_for_tick(
    models: Models,
    messages: Sequence[Mapping[str, Any]],
    schema: Any,
    config: Mapping[str, Any],
    parts: PartialAnswers,
    provider_data: Mapping[str, str],
) -> dict[str, Any]:
    """The `answer` as a text, the `words` next to its calls, `model`, `usage` and `seconds`; or, where it is of no use,
    an `error` with all that has to be paid. `parts` sends parts of the answer, where the model streams (SPEC R13.8).
    `provider_data` has the providers' own data of earlier answers, by tick; the result has the data of this answer.

    Raises `ModelError` where there is no answer.
    """
    try:
        with parts as on_text:
            answer = await models.ask(ModelRequest(messages, schema, config, provider_data), on_text)
        if _HALF.search(answer.text + answer.words):
            raise InvalidAnswer("the answer is not valid Unicode: it has half a character", answer=answer)
    except (InvalidAnswer, Refused, Truncated) as error:
        text = _HALF.sub("\ufffd", str(error))  # in a provider's words, of any length
        message = text[: limits.MODEL_CALLS_LONGEST_ERROR]
        return {"error": {"type": type(error).__name__, "message": message}, **_paid(error.answer)}
    return {"answer": answer.text, **({"words": answer.words} if answer.words else {}), **_paid(answer)}


def _paid(answer: Answer | None) -> dict[str, Any]:
    """The model that has answered, its usage and cost as far as they are known."""
    if answer is None:
        return {}
    return {
        "model": answer.model,
        "usage": answer.usage.to_dict() if answer.usage is not None else None,
        "seconds": round(answer.duration_seconds, 3),
        "nanodollars": answer.nanodollars,
        "is_fallback": answer.is_fallback or None,
        "provider_data": answer.provider_data or None,
        **_heard(answer),
    }


def _heard(answer: Answer) -> dict[str, float]:
    """For how long the provider of a model with a limit has had a request, where that is known."""
    return {"heard": round(answer.heard_seconds, 3)} if answer.heard_seconds else {}


_LIMITS: Final = "ACTS_MODEL_REQUESTS_PER_MINUTE, ACTS_MODEL_TOKENS_PER_MINUTE and ACTS_MODELS"


class ModelCalls(Models):
    """The models of a process, which answer the calls of delegates and loops."""

    async def answer(self, call: DelegateCall, send: SendPart, pay: Callable[[Mapping[str, Any]], None]) -> Any:
        """The answer to a call; `send` sends parts of a tick's answer, `pay` is called with the cost of a delegate's.
        Raises `ModelError`.
        """
        TRACEPARENT.set(header_to_send())
        limit = None if call.admitted else ProviderLimit.of(self._known.find(call.config.get("model")))
        if limit is not None:
            raise BadRequest(
                f"{limit.place} has a limit of requests or tokens a minute, which the worker that has sent the request "
                f"does not know: give all workers the same {_LIMITS}, also those that serve only the queue of instances"
            )
        context = [dict(item) for item in call.context]
        if not call.is_tick:
            return await solve(self, context, call.schema, call.config, pay)
        parts = PartialAnswers(send, tells_text=call.streams)
        return await ask_for_tick(self, context, call.schema, call.config, parts, call.provider_data)
