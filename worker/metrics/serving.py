"""A page of figures on a port, as Prometheus reads it. It is prometheus-client's own, on a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from acts_celery.worker.errors import WorkerError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


def new_registry() -> CollectorRegistry:
    """A registry with nothing in it. Raises `WorkerError` where prometheus-client is not installed."""
    try:
        import prometheus_client
    except ImportError as error:
        raise WorkerError(
            "figures need prometheus-client, which is not installed: pip install 'acts-celery[metrics]'"
        ) from error
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # it has none
    return prometheus_client.CollectorRegistry()


def serve(registry: CollectorRegistry, host: str, port: int) -> tuple[int, Callable[[], None]]:
    """Show a registry on a port, 0 for any that is free; returns which it is, and what ends that. Raises
    `WorkerError`.
    """
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise WorkerError(
            f"figures cannot be shown on {host}:{port} ({error.strerror or error}): name another port or address "
            "(ACTS_METRICS_PORT, ACTS_METRICS_HOST; each further process of a worker takes the next port)"
        ) from error

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return int(server.server_address[1]), stop
