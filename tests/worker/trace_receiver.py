"""Who takes spans over OTLP (HTTP, protobuf), and reads them by OpenTelemetry's own classes."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass
class Seen:
    """One span as it came."""

    name: str
    trace: str
    span: str
    above: str
    start_ms: int
    end_ms: int
    kind: int
    is_error: bool
    message: str
    attributes: dict[str, Any]


@dataclass
class Receiver:
    """What has come."""

    url: str
    requests: list[int] = field(default_factory=list)
    """How many spans each request had."""
    spans: list[Seen] = field(default_factory=list)
    resource: dict[str, Any] = field(default_factory=dict)
    refuses: int | None = None
    """The status with which what comes is refused."""

    @property
    def by_id(self) -> dict[tuple[str, str], Seen]:
        return {(span.trace, span.span): span for span in self.spans}

    def named(self, name: str) -> list[Seen]:
        return [span for span in self.by_id.values() if span.name == name]

    def above(self, span: Seen) -> Seen | None:
        return self.by_id.get((span.trace, span.above))

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        count = 0
        for resource in request.resource_spans:
            self.resource = _values(resource.resource.attributes)
            for scope in resource.scope_spans:
                count += len(scope.spans)
                self.spans += map(_seen, scope.spans)
        self.requests.append(count)


def _seen(span: Any) -> Seen:
    return Seen(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano // 1_000_000,
        span.end_time_unix_nano // 1_000_000,
        span.kind,
        span.status.code == span.status.STATUS_CODE_ERROR,
        span.status.message,
        _values(span.attributes),
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver at an address of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if self.path != "/v1/traces" or self.headers["Content-Type"] != "application/x-protobuf":
                self.send_error(404)
                return
            if receiver.refuses is not None:
                self.send_error(receiver.refuses)
                return
            receiver.take(body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver = Receiver(f"http://127.0.0.1:{server.server_port}")
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
