"""How workers are watched: task events, health, figures."""

from __future__ import annotations

from pydantic import Field

from acts_celery.broker_config.addresses import FOUND, AddressSettings


class WatchingSettings(AddressSettings):
    """The settings that say what workers show of themselves, and where."""

    send_events: bool = Field(
        True, description="Send Celery's task events. Flower and exporters read them.", json_schema_extra=FOUND
    )
    health_folder: str | None = Field(
        None,
        description="Folder in which each worker of this machine writes its state for `acts health`. Unset: none.",
    )
    metrics_port: int | None = Field(
        None,
        gt=0,
        lt=65_536,
        description="Port on which a worker shows the figures of its process to Prometheus (extra `metrics`); of "
        "several processes each takes the next one. Unset: none are kept.",
    )
    metrics_host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address on which it listens, and `acts metrics` too. Whoever reaches it reads the names of tools, "
        "queues and models.",
    )
