"""The models of a process: asking the one that a request names, and those that it falls back on (SPEC R13.11)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from acts_celery.broker_config import ConfiguredModel, Settings
from acts_celery.worker.registry.activities import Registry

from .asking import Candidate, Failed, answered
from .errors import BadRequest, ContextTooLong, ModelError
from .http_client import Bounds
from .known import KnownModels
from .prices import load_prices
from .providers import make_model, missing_settings
from .registered import OnThread
from .request import Answer, Listing, Model, ModelRequest, OnText, ignore
from .window import verify_fits

logger = logging.getLogger(__name__)

Asked = Callable[[str, Answer | ModelError], None]
"""Called with what came of a request to the model of a name."""


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
        """The answer of the model that `config.model` names, else of `ACTS_MODEL`, or of a fallback of it.

        Raises `ModelError`, and whatever a function raises that is registered as a model.
        """
        name = request.config.get("model")
        configured = self._known.find(name)
        if configured is None:
            what = "no model is configured" if name is None else f"no model {name!r} is configured"
            raise BadRequest(f"{what} on this worker: see ACTS_MODEL and ACTS_MODELS")
        models = self._known.asked(name)
        for each in models:
            if missing := missing_settings(each, request.config):
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

    def asked(self, name: str | None) -> tuple[ConfiguredModel, ...]:
        """Those that may answer a request to a model of that name."""
        return self._known.asked(name)

    async def close(self) -> None:
        """Close the connections to all of them."""
        for model in self._made.values():
            if isinstance(model, Listing):
                await model.close()

    def _candidates(self, request: ModelRequest, models: Iterable[ConfiguredModel]) -> list[Candidate]:
        """Those of the models whose context the request may fit, one at least. Raises `ContextTooLong`."""
        found, refused = list[Candidate](), list[ContextTooLong]()
        for place, each in enumerate(models):
            try:
                verify_fits(request, each)
                found.append(self._candidate(each, is_fallback=place > 0))
            except ContextTooLong as error:
                refused.append(error)
        if not found:
            raise refused[0]
        return found

    def _candidate(self, configured: ConfiguredModel, *, is_fallback: bool) -> Candidate:
        if configured not in self._made:
            self._made[configured] = make_model(configured, self._registry, self._on_thread, self._bounds)
        return Candidate(self._made[configured], configured.name, is_fallback, configured)


def verify_models(settings: Settings, registry: Registry) -> None:
    """Make every configured model and ask none. Raises `WorkerError` for one that cannot be had."""

    async def nowhere(_: Any) -> Any:
        raise AssertionError("a model is verified, not asked")

    for configured in KnownModels(settings, registry).configured():
        make_model(configured, registry, nowhere, bounds_of(settings))


def bounds_of(settings: Settings) -> Bounds:
    """How much a process takes from providers."""
    return Bounds(int(settings.limit_message_bytes), settings.concurrency)
