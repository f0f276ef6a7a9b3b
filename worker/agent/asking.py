"""Asking models until there is an answer, or no time left (SPEC R13.4).

After an error that may pass - 429, 5xx, no connection - a model is asked again after `Retry-After`, else after a wait
that doubles. Where it has fallbacks, each is asked once in their order before each wait.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Final

from ...broker_config import ConfiguredModel, Settings
from ...protocol.analysis.findings import Finding
from ...protocol.limits import MAX_OUTPUT_TOKENS
from ...protocol.plan.config import SAMPLING
from ...protocol.requests.data_blocks import compact
from ...protocol.requests.reading import Unreadable
from ...protocol.requests.streaming import GrowingAnswer
from ...protocol.requests.tool_texts import TOOLS, functions_of
from .. import limits
from ..backoff import Backoff
from ..errors import WorkerError
from ..registry.activities import Registry
from ..registry.models import (
    TOO_LONG,
    Answer,
    BadRequest,
    ContextTooLong,
    FunctionModel,
    InvalidAnswer,
    KnownModels,
    Model,
    ModelError,
    ModelRequest,
    OnText,
    OnThread,
    ProviderLimit,
    Reported,
    Truncated,
    Unreachable,
    Usage,
    Words,
    ignore,
)
from ..runner.rooms import Asked, Failed, SendPart
from .clients import Bounds
from .dialects import AnthropicMessages, OpenAIChat
from .fitting import findings_of, fit_schema, fitted_functions
from .prices import Profile, load_prices, price_of, profile_of
from .pydantic_models import PROVIDER, PydanticModel, looked_up, missing_in, verify_installed
from .scripted import RecordedModel, ScriptedModel
from .sdk_model import Dialect, SdkModel

logger = logging.getLogger(__name__)

_BACKOFF: Final = Backoff(0.5, 20.0, jitter=True)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that may answer, by the name that its provider knows it under."""

    model: Model
    name: str
    is_fallback: bool = False
    configured: ConfiguredModel | None = None
    """The settings of the model, for its price."""

    def billed(self, answer: Answer, request: ModelRequest, began: float, heard: float | None) -> Answer:
        """An answer of the model with its cost, its duration since `began`, and since its first piece was `heard`."""
        cost, now = self.price(answer.usage, request), time.monotonic()
        answer = replace(answer, nanodollars=cost, is_fallback=self.is_fallback, duration_seconds=now - began)
        is_limited = not self.is_fallback and ProviderLimit.of(self.configured) is not None
        return replace(answer, heard_seconds=now - heard) if is_limited and heard is not None else answer

    def price(self, usage: Usage | None, request: ModelRequest) -> int | None:
        """The cost of a request by its usage; if that is not whole, with as much output as there may be."""
        if self.configured is None or usage is None:
            return None
        most = request.config.get("max_output_tokens", MAX_OUTPUT_TOKENS)
        whole = usage if usage.is_whole else replace(usage, output=max(usage.output, most))
        return price_of(self.configured, whole)


async def answered(
    candidates: Sequence[Candidate], request: ModelRequest, on_text: OnText, seconds: float, failed: Failed
) -> Answer:
    """The answer of the first candidate that has one, within so many seconds. Raises `ModelError`.

    Loading an SDK takes none of that time. A request is not repeated once a piece of its answer has come: calls of that
    piece may have begun.
    """
    for candidate in candidates:
        await candidate.model.prepare()
    began = time.monotonic()
    has_begun, deadline = False, asyncio.timeout(seconds)
    heard: float | None = None
    error: ModelError = Unreachable(f"the model has not answered within {seconds:g} seconds (request_seconds)")

    def take(candidate: Candidate, piece: str | Reported) -> None:
        nonlocal has_begun, heard
        heard = time.monotonic() if heard is None else heard
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
                    heard = None
                    try:
                        answer = await candidate.model.ask(own, partial(take, candidate))
                        return candidate.billed(answer, request, began, heard)
                    except ModelError as raised:
                        error = raised
                        if error.answer is not None:
                            error.answer = candidate.billed(error.answer, request, began, heard)
                    if not error.is_transient:
                        raise error
                    if has_begun:
                        raise Truncated(f"the answer broke off: {error}", answer=error.answer) from error
                    if error.retry_after_seconds:  # 0 says that it may be asked again, and not that it helps
                        # Requests that were refused together do not come back together.
                        wait_seconds = error.retry_after_seconds * random.uniform(1.0, limits.ASKING_SPREAD)
                if time.monotonic() - began + wait_seconds >= seconds:
                    raise error
                tries = (attempt + 1) * len(candidates)
                text = "%s: %.500r; try %d, asked again in %.1f s"  # a server's words may have several lines
                logger.warning(text, type(error).__name__, str(error), tries, wait_seconds)
                failed(error, tries, wait_seconds)
                await asyncio.sleep(wait_seconds)
    except TimeoutError:
        if not deadline.expired():
            raise  # a registered function's own
    raise error


# Models made from their settings. A client is made when its model is first asked.

_SDKS: Final[Mapping[str, Dialect]] = {"openai": OpenAIChat(), "anthropic": AnthropicMessages()}
"""The providers that are asked over the network, by the name of their extra and of the SDK that it brings."""
PROVIDERS: Final = (*_SDKS, PROVIDER, "scripted")


def make_model(configured: ConfiguredModel, registry: Registry, on_thread: OnThread, bounds: Bounds) -> Model:
    """A model for these settings. Raises `WorkerError` where a provider, a file, an SDK or a key is missing."""
    made = _made(configured, registry, on_thread, bounds)
    return made if configured.recording is None else RecordedModel(made, configured, Path(configured.recording))


def _made(configured: ConfiguredModel, registry: Registry, on_thread: OnThread, bounds: Bounds) -> Model:
    provider = configured.provider
    if provider in registry.models:
        return FunctionModel(registry.models[provider], on_thread)
    if provider == "scripted":
        return ScriptedModel.load(Path(configured.name))
    if provider in _SDKS:
        if find_spec(provider) is None:
            text = f"its Python package is missing: pip install '.[{provider}]' in the clone of acts-celery"
            raise WorkerError(f"model {configured.model}: {text}")
        if lacks_key(configured):
            raise WorkerError(f"model {configured.model}: it has no key: set ACTS_MODEL_API_KEY")
        return SdkModel(_SDKS[provider], configured, bounds)
    if provider == PROVIDER:
        verify_installed(configured)
        return PydanticModel(configured, bounds)
    known = f"{', '.join((*PROVIDERS, *registry.models))}, and functions registered with @model in ACTS_ACTIVITIES"
    raise WorkerError(f"model {configured.model}: unknown provider {provider!r}; there are {known}")


def _profile(configured: ConfiguredModel) -> Profile | None:
    """The profile of a model that is asked over the network; None for any other, which takes all requests."""
    if configured.provider == PROVIDER:
        return profile_of(configured, "")
    dialect = _SDKS.get(configured.provider)
    return profile_of(configured, dialect.url) if dialect is not None else None


def unenforced(configured: ConfiguredModel, schema: Any, *, is_native: bool) -> tuple[str | None, tuple[Finding, ...]]:
    """The reason why a model's provider enforces nothing of a schema, None where it does, and the places at which it
    does not (SPEC R12.8); `is_native` where the tools go as functions.
    """
    profile = _profile(looked_up(configured) if configured.provider == PROVIDER else configured)
    if profile is None or configured.enforce != "auto":
        return None, ()
    if is_native:
        return None, tuple(findings_of(fitted_functions(functions_of(schema), profile)[1]))
    written = fit_schema(schema, profile)
    return (written, ()) if isinstance(written, str) else (None, tuple(findings_of(written.openings)))


def writes_texts(configured: ConfiguredModel) -> bool:
    """Whether a model may be held to a schema with `_json` texts for what that cannot express (SPEC R12.6). A scripted
    one may repeat the answers of such a model.
    """
    if (profile := _profile(configured)) is None:
        return configured.provider == "scripted"
    return configured.enforce == "auto" and profile.rules is not None and profile.rules.is_closed


def writes_nulls(configured: ConfiguredModel) -> bool:
    """Whether a model may be held to a schema in which it writes null for what it leaves out (SPEC R12.6)."""
    profile = _profile(configured) if configured.enforce == "auto" else None
    return profile is not None and profile.rules is not None and profile.rules.requires_all


def most_tools(configured: ConfiguredModel) -> int | None:
    """The most tools that a model can be offered as functions, besides the one of its output (SPEC R12.8); None where
    its tools go otherwise, or its provider names no limit.
    """
    profile = _profile(configured)
    most = profile.most_functions if profile is not None else None
    return most - 1 if most is not None and configured.wire == TOOLS else None


def missing_settings(configured: ConfiguredModel, config: Mapping[str, Any]) -> list[str]:
    """The settings of a `config` that a model's provider does not have. A function gets all of them."""
    return missing_in(configured, config) if configured.provider == PROVIDER else _missing(configured, config)


def _missing(configured: ConfiguredModel, config: Mapping[str, Any]) -> list[str]:
    """The missing settings of a model with a dialect of ours; another one refuses them when it is asked."""
    dialect = _SDKS.get(configured.provider)
    return [key for key in SAMPLING if config.get(key) is not None and dialect and key not in dialect.settings]


def lacks_key(configured: ConfiguredModel) -> bool:
    """Whether the key is missing that the provider asks for; a configured address may need none."""
    return configured.provider in _SDKS and configured.base_url is None and configured.api_key is None


# Requests and the context of a model, where the operator has said how many tokens that has.
#
# Only the model's own tokenizer counts exactly. In requests as the engine writes them a token has 3.3 to 4 bytes;
# in a text of long words 13, and in a row of blanks any number. So a request is kept back only where it cannot fit by
# any of these. Where it may not fit, it is sent, since servers refuse a request that is too long, and a line in the log
# says so: some cut it silently.


_REPEATED: Final = re.compile(rb"(.)\1{3,}", re.DOTALL)


def verify_fits(request: ModelRequest, model: ConfiguredModel) -> None:
    """Raise `ContextTooLong` where the request is too long for the model by any count."""
    if model.context_tokens is None:
        return
    written = compact([list(request.messages), request.schema]).encode()
    if len(written) <= limits.USUAL_BYTES * model.context_tokens:
        return
    tokens = len(written) // limits.USUAL_BYTES
    size = f"the request has about {tokens} tokens, and {model.model} reads {model.context_tokens}"
    if len(written) > limits.ASKING_MOST_BYTES * model.context_tokens:
        least = len(_REPEATED.sub(rb"\1", written)) // limits.ASKING_MOST_BYTES
        if least > model.context_tokens:
            raise ContextTooLong(f"{size} at once (its context_tokens); it is not sent: {TOO_LONG}")
    logger.warning("%s in one request (its context_tokens): it may be refused, or cut off", size)


# The models of a process: asking the one that a request names, and its fallbacks (SPEC R13.11).


class Models:
    """Asks models by their names. To be used on one event loop."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        on_thread: OnThread,
        failed: Failed = lambda *_: None,
        asked: Asked = lambda *_: None,
    ) -> None:
        self._known = KnownModels(settings, registry)
        self._registry = registry
        self._on_thread = on_thread
        self._failed = failed
        self._asked = asked
        self._bounds = bounds_of(settings)
        self._longest_seconds = settings.model_request_seconds
        self._made: dict[ConfiguredModel, Model] = {}

    async def ask(self, request: ModelRequest, on_text: OnText = ignore) -> Answer:
        """The answer of the model that `config.model` names, else of `ACTS_MODEL`, or of a fallback.

        Raises `ModelError`, and all that a function raises that is registered as a model.
        """
        name = request.config.get("model")
        configured = self._known.find(name)
        if configured is None:
            what = "no model is configured" if name is None else f"no model {name!r} is configured"
            raise BadRequest(f"{what} on this worker: see ACTS_MODEL and ACTS_MODELS")
        models = self._known.with_fallbacks(name)
        for each in models:
            if missing := _missing(each, request.config):
                raise BadRequest(f"{each.model} has no {', '.join(missing)}: leave it out of config")
        if (own := configured.max_output_tokens) is not None:  # of fallbacks, too: it is part of the estimate
            request = replace(request, config={"max_output_tokens": own, **request.config})
        candidates = self._candidates(request, models)
        await load_prices(models)
        seconds = min(self._longest_seconds, request.config.get("request_seconds") or self._longest_seconds)
        try:
            answer = await answered(candidates, request, on_text, seconds, self._failed)
        except ModelError as error:
            self._asked(configured.name, error)
            raise
        self._asked(answer.model, answer)
        logger.info("%s answered in %.1f s, usage %s", answer.model, answer.duration_seconds, answer.usage)
        for finding in answer.findings:
            logger.warning("%s: %s", answer.model, finding)
        return answer

    def with_fallbacks(self, name: str | None) -> tuple[ConfiguredModel, ...]:
        """The models that may answer a request to a model of that name."""
        return self._known.with_fallbacks(name)

    async def close(self) -> None:
        """Close the connections to all models."""
        for model in self._made.values():
            await model.close()

    def _candidates(self, request: ModelRequest, models: Iterable[ConfiguredModel]) -> list[Candidate]:
        """The models whose context the request may fit, one at least. Raises `ContextTooLong`."""
        found, refused = list[Candidate](), list[ContextTooLong]()
        for place, each in enumerate(models):
            try:
                verify_fits(request, each)
            except ContextTooLong as error:
                refused.append(error)
                continue
            if each not in self._made:
                self._made[each] = make_model(each, self._registry, self._on_thread, self._bounds)
            found.append(Candidate(self._made[each], each.name, place > 0, each))
        if not found:
            raise refused[0]
        return found


def verify_models(settings: Settings, registry: Registry) -> None:
    """Make every configured model and ask none. Raises `WorkerError` for one that cannot be had."""
    for configured in KnownModels(settings, registry).configured():
        make_model(configured, registry, _nowhere, bounds_of(settings))


def bounds_of(settings: Settings) -> Bounds:
    """The limits of a process on what it takes from providers."""
    return Bounds(int(settings.limit_message_bytes), settings.concurrency)


# Parts of an answer, sent while it is written: its text, when more of its calls are complete, or an output that is a
# text has grown (SPEC R13.8, R13.12), and the usage that the provider reports (SPEC R13.3).
#
# One part is under way at a time, and the next one holds all that has come meanwhile; a slow broker makes them fewer.
# Each has the whole text so far: it may come twice, late or not at all. The log keeps each, so not every call of a long
# answer makes a part: from the eighth on, each part has a quarter more calls than the one before. An output makes at
# most ten parts in a second, each a thirty-second longer than the one before.


_BEGIN: Final = '{"'
"""The beginning of words, which is nowhere else in them, since each quote is escaped."""


class PartialAnswers:
    """Sends the parts of an answer while the context is entered; `send` is called on the event loop. Without
    `tells_text` they have only the reported usage.
    """

    def __init__(self, send: SendPart, *, tells_text: bool = True) -> None:
        self._send = send
        self._tells_text = tells_text
        self._reported: Reported | None = None
        """The usage that was reported last: each part has it, since one may be lost."""
        self._is_sent = True
        """Whether a part had that usage."""
        self._growing = GrowingAnswer()
        self._calls = 0
        self._next = 1
        """The number of calls with which the next part is sent."""
        self._next_written = 1
        """The bytes of an output with which the next part is sent."""
        self._output = ""
        """The output as far as it was sent."""
        self._has_words = False
        """Whether the pieces are words next to calls."""
        self._working: asyncio.Task[None] | None = None
        self._is_over = False

    def __enter__(self) -> OnText:
        return self._take

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        if self._working is not None:
            self._working.cancel()

    def _take(self, piece: str | Reported) -> None:
        """Take in a piece of the answer, or its usage so far."""
        if self._is_over:
            return
        if isinstance(piece, Reported):
            self._reported, self._is_sent = piece, False
        elif self._tells_text:
            self._read(piece)
        if self._is_due and self._working is None:
            self._working = asyncio.get_running_loop().create_task(self._work())

    def _read(self, piece: str) -> None:
        """Read a piece of the text."""
        has_words, self._has_words = self._has_words, isinstance(piece, Words)
        if has_words and (not self._has_words or piece.startswith(_BEGIN)):  # calls follow, or it was asked again
            self._growing, self._next_written, self._output = GrowingAnswer(), 1, ""
        try:
            self._calls += len(self._growing.feed(piece))
        except Unreadable:  # reading the whole answer reports the error
            self._is_over = True

    @property
    def _is_due(self) -> bool:
        return not self._is_sent or self._calls >= self._next or self._growing.written >= self._next_written

    async def _work(self) -> None:
        try:
            while self._is_due:
                growing = self._growing
                has_calls = self._calls >= self._next
                if has_calls:
                    self._next = self._calls + max(1, self._calls // 4)
                self._next_written = growing.written + max(1, growing.written // limits.ASKING_SHARE)
                output, before = growing.output, self._output
                is_sent, self._is_sent = self._is_sent, True
                if len(output) > len(before):
                    self._output = output
                    await self._send(growing.text, self._reported)
                    await asyncio.sleep(limits.ASKING_PAUSE_SECONDS)
                elif has_calls:
                    await self._send(growing.text_of_calls, self._reported)
                elif not is_sent:
                    await self._send("", self._reported)
        except WorkerError as error:
            logger.warning("the parts of an answer wait for its end: %s", error)
            self._is_over = True
        finally:
            self._working = None


# Probing a model: whether it can be made, and answers, without a request that costs.

_BOUNDS: Final = Bounds(answer_bytes=1_000_000, connections=1)


async def probed(configured: ConfiguredModel, registry: Registry) -> str:
    """A sentence about the model after probing it. Raises `WorkerError` where it cannot be made, or reached."""
    model = make_model(configured, registry, _nowhere, _BOUNDS)
    names: list[str] | None = []
    try:
        names = await model.names(limits.ASKING_SECONDS)
    except TimeoutError:
        raise Unreachable(f"{configured.model} has not answered within {limits.ASKING_SECONDS:g} s") from None
    except InvalidAnswer:
        pass
    except BadRequest as error:
        if error.status not in (404, 405):  # it only has no list
            raise
    finally:
        await model.close()
    if names is None:
        return f"{configured.model} can be loaded"
    if names and configured.name not in names:
        shown = ", ".join(names[: limits.MODELS_NAMED]) + (" …" if len(names) > limits.MODELS_NAMED else "")
        return f"{configured.model} answers, and lists no model {configured.name}, but {shown}"
    return f"{configured.model} answers"


async def _nowhere(_: Any) -> Any:
    raise AssertionError("a model is only made, not asked")
