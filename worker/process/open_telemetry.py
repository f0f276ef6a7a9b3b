"""OpenTelemetry, where the code around us uses it: the span that a submission is under, the one that code runs in.

It is in use where a provider of tracers is set: by an application, by an activity's module or by
`opentelemetry-instrument`. Nothing here loads it.
"""

from __future__ import annotations

import sys
from typing import Any

from acts_celery.worker.wire.attempts import Attempt, current_attempt
from acts_celery.worker.wire.traces import TracePlace


def current_place() -> TracePlace | None:
    """The current span, where there is one."""
    if (api := _api()) is None:
        return None
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return TracePlace(f"{context.trace_id:032x}", f"{context.span_id:016x}", context.trace_flags.sampled)


def enter_place(attempt: Attempt) -> None:
    """Spans that are begun in this context from now on are below the span of the attempt's call."""
    if (api := _api()) is None or not _is_in_use(api):
        return
    from opentelemetry.context import attach

    place = attempt.place
    is_sampled = _is_sampled(api, place) if place.is_sampled is None else place.is_sampled
    context = api.SpanContext(int(place.trace, 16), int(place.span, 16), True, api.TraceFlags(int(is_sampled)))
    attach(api.set_span_in_context(api.NonRecordingSpan(context)))


def header_to_send() -> str | None:
    """The `traceparent` of a request that the current call makes; None where nobody has asked for a trace."""
    attempt = current_attempt()
    api = _api()
    if attempt is None or not (attempt.trace or (api is not None and _is_in_use(api))):
        return None
    return (current_place() or attempt.place).header


def _is_in_use(api: Any) -> bool:
    return not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider)


def _is_sampled(api: Any, place: TracePlace) -> bool:
    """Whether this process's sampler records a trace that nobody has decided on."""
    sampler = getattr(api.get_tracer_provider(), "sampler", None)
    if sampler is None:
        return True
    sampled: bool = sampler.should_sample(None, int(place.trace, 16), "").decision.is_sampled()
    return sampled


def _api() -> Any:
    return sys.modules.get("opentelemetry.trace")
