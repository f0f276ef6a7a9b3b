"""Spans to OpenTelemetry's exporter. All settings are OpenTelemetry's own: where to, in which batches, what is sampled.

Its SDK makes spans while something happens, and these are of what has happened. So of the SDK the settings, the sampler
and the exporter are used, and each span is made whole.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points, version
from math import inf
from typing import Any, Final

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from redis import Redis
from redis.exceptions import RedisError

from ..backoff import batches
from ..broker.attempts import TracePlace
from ..errors import InfrastructureError, OtherFormat, RunNotFound, WorkerError
from ..limits import AT_ONCE, DELAY_MS, SENDING_BATCH, SENDING_MOST_BYTES, SENDING_NS, WRITING_MS
from ..store.entries import Entry
from ..store.keys import ENDED_STATUSES
from ..store.run_list import RunList
from ..store.run_store import RunStore
from ..store.scripts import server_ms
from .spans import CHAT, RunSpans, Span, TracedRun

CONTENT_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CONTENT: Final = frozenset({"true", "span_only", "span_and_event"})
_ENDPOINT_REMEDY: Final = (
    "(OTEL_EXPORTER_OTLP_ENDPOINT names what takes OTLP over HTTP, with http:// or https://;"
    " the default is http://localhost:4318)"
)


class NothingToExport(WorkerError):
    """OpenTelemetry's settings say that no spans are exported, or by what is not installed."""


class NotExported(InfrastructureError):
    """The exporter could not hand spans over."""


def shows_content() -> bool:
    """Whether spans show what models and tools are given, and what they answer."""
    return os.environ.get(CONTENT_VARIABLE, "").strip().lower() in _CONTENT


def delay_seconds() -> float:
    """How long after one export the next one is due."""
    return _number("OTEL_BSP_SCHEDULE_DELAY", DELAY_MS) / 1000


class SpanSender:
    """Sends spans in batches, to each exporter that the settings name."""

    def __init__(self) -> None:
        """Raises `NothingToExport`."""
        self._exporters = [_exporter(name) for name in _exporter_names()]
        provider = TracerProvider(shutdown_on_exit=False)
        self._resource = provider.resource
        if str(self._resource.attributes.get("service.name", "")).startswith("unknown_service"):
            self._resource = self._resource.merge(type(self._resource)({"service.name": "acts"}))
        self._sampler = provider.sampler
        self._limits = SpanLimits()
        self._scope = InstrumentationScope("acts-celery", version("acts-celery"))
        self._batch = _number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", SENDING_BATCH)

    def close(self) -> None:
        """Close the exporters' connections."""
        for exporter in self._exporters:
            exporter.shutdown()

    def samples(self, place: TracePlace, above: TracePlace | None) -> bool:
        """Whether a run's trace is recorded: what its caller has decided counts as the sampler says, and where nobody
        has decided, all runs of a trace come to the same.
        """
        parent = None
        if above is not None and above.is_sampled is not None:
            parent = set_span_in_context(NonRecordingSpan(_context(above, above.span, is_remote=True)))
        found = self._sampler.should_sample(parent, int(place.trace, 16), "")
        return found.decision is Decision.RECORD_AND_SAMPLE

    def send(self, spans: Iterable[Span]) -> int:
        """Export spans; how many. Raises `NotExported`."""
        sent, size, batch = 0, 0, list[ReadableSpan]()
        for span in spans:
            attributes = span.all_attributes
            batch.append(self._readable(span, attributes))
            size += sum(len(each) for each in attributes.values() if isinstance(each, str))
            if len(batch) >= self._batch or size >= SENDING_MOST_BYTES:
                self._export(batch)
                sent, size, batch = sent + len(batch), 0, []
        if batch:
            self._export(batch)
        return sent + len(batch)

    def _export(self, batch: list[ReadableSpan]) -> None:
        for exporter in self._exporters:
            with _heard() as lines:
                result = exporter.export(batch)
            if result is not SpanExportResult.SUCCESS:
                why = " ".join(lines[-2:]) or "the exporter does not say why"
                raise NotExported(f"spans are not exported: {why} {_ENDPOINT_REMEDY}")

    def _readable(self, span: Span, attributes: dict[str, Any]) -> ReadableSpan:
        limits, place = self._limits, span.place
        status = Status(StatusCode.ERROR, span.fault.message) if span.fault is not None else Status()
        return ReadableSpan(
            span.name,
            context=_context(place, place.span),
            parent=_context(place, span.above) if span.above is not None else None,
            resource=self._resource,
            attributes=BoundedAttributes(
                limits.max_span_attributes, attributes, max_value_len=limits.max_span_attribute_length
            ),
            kind=SpanKind.CLIENT if span.operation == CHAT else SpanKind.INTERNAL,
            status=status,
            start_time=span.start_ms * SENDING_NS,
            end_time=max(span.end_ms, span.start_ms) * SENDING_NS,
            instrumentation_scope=self._scope,
        )


def _context(place: TracePlace, span: str, *, is_remote: bool = False) -> SpanContext:
    flags = TraceFlags(int(place.is_sampled is not False))
    return SpanContext(int(place.trace, 16), int(span, 16), is_remote, flags)


def _exporter_names() -> list[str]:
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        raise NothingToExport("OTEL_SDK_DISABLED is true: no span is exported; unset it")
    names = [name.strip() for name in os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(",") if name.strip()]
    if names in ([], ["none"]):
        raise NothingToExport("OTEL_TRACES_EXPORTER names no exporter: set it to otlp, or unset it")
    return names


def _exporter(name: str) -> SpanExporter:
    """The exporter of a name, as packages that are installed offer it."""
    offered = name
    if name == "otlp":
        general = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or general or "http/protobuf"
        offered = f"otlp_proto_{protocol.partition('/')[0]}"
    for found in entry_points(group="opentelemetry_traces_exporter", name=offered):
        made: SpanExporter = found.load()()
        return made
    raise NothingToExport(
        f"no package that is installed has the exporter {offered} (OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_PROTOCOL): "
        "the extra `otel` brings otlp over http/protobuf"
    )


def _number(name: str, otherwise: int) -> int:
    text = os.environ.get(name, "").strip()
    if not text:
        return otherwise
    if not text.isdecimal() or int(text) == 0:
        raise NothingToExport(f"{name} should be a number above 0, and is {text!r}")
    return int(text)


@contextmanager
def _heard() -> Iterator[list[str]]:
    """Collect the lines that exporters log: they say why an export failed."""
    lines: list[str] = []

    class Hearing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(" ".join(record.getMessage().split()))

    logger, hearing = logging.getLogger("opentelemetry"), Hearing(logging.WARNING)
    before, logger.propagate = logger.propagate, False
    logger.addHandler(hearing)
    try:
        yield lines
    finally:
        logger.removeHandler(hearing)
        logger.propagate = before


# Which runs are exported: each once it has ended, and again where it has gone on and ended anew.
#
# A run's state says with which end it was exported, so an exporter that is started again goes on where it was. Child
# runs are in the list of runs like all others. What is exported twice has the same ids.


@dataclass(frozen=True, slots=True)
class Exported:
    """The export of one run."""

    run: str
    trace: str
    spans: int
    """How many spans were sent; none of a run that the sampler leaves out."""
    has_ended: bool
    children: tuple[str, ...] = ()
    fault: str | None = None
    """Why it could not be exported, where its log is broken."""


class TraceExport:
    """Exports the runs of a backend. Every method raises `RedisError` and `NotExported`."""

    def __init__(self, redis: Redis, prefix: str, sender: SpanSender) -> None:
        self._redis = redis
        self._prefix = prefix
        self._sender = sender
        self._runs = RunList(redis, prefix)
        self._watched: set[str] = set()
        """The runs that were under way when the lists were read."""
        self._since_ms = -inf
        """Runs that are new since then were submitted later than that."""

    def export(self, run: str) -> Exported:
        """Export a run as far as it has come. Raises `RunNotFound`, `OtherFormat`."""
        store = RunStore.open(self._redis, self._prefix, run)
        state = store.require_state()
        traced = TracedRun.read(run, state)
        children: list[str] = []
        sent = 0
        if self._sender.samples(traced.place, traced.above):
            spans = RunSpans(traced, store.definition(), store.codes, shows_content=shows_content())
            entries = store.whole(store.entries()) if shows_content() else store.entries()
            sent = self._sender.send(_spans(spans, entries, children.append))
        return Exported(run, traced.place.trace, sent, state["status"] in ENDED_STATUSES, tuple(children))

    def export_ended(self) -> Iterator[Exported]:
        """Export every run that has ended and was not exported. The first time all runs that are kept are looked at,
        later those that were under way, or are new.
        """
        now_ms = server_ms(self._redis)
        under_way = set(self._runs.under_way())
        for run, end in self._due(self._watched | under_way | {*self._runs.ended_since(self._since_ms)}):
            try:
                exported = self.export(run)
            except (RunNotFound, OtherFormat):  # it is gone meanwhile, or another version's to export
                continue
            except (RedisError, InfrastructureError):
                raise
            except Exception as error:  # a log that is broken keeps no other run from being exported
                exported = Exported(run, "", 0, True, fault=f"{type(error).__name__}: {error}")
            self._runs.note_traced(run, end)
            yield exported
        self._watched = under_way
        self._since_ms = now_ms - WRITING_MS

    def _due(self, runs: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield the runs that are to be exported, each with the time of its end."""
        for page in batches(sorted(runs), AT_ONCE):
            states = self._runs.fields(page, "status", "finished", "traced")
            for run, (status, finished, traced) in zip(page, states, strict=True):
                if status in ENDED_STATUSES and finished is not None and finished != traced:
                    yield run, finished


def _spans(spans: RunSpans, entries: Iterable[Entry], note_child: Callable[[str], None]) -> Iterator[Span]:
    """Yield the spans of a log, and note the child runs that it names."""
    for entry in entries:
        if entry.child is not None:
            note_child(entry.child)
        yield from spans.take(entry)
    yield from spans.close()
