"""What a sweep judges by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from acts_celery.broker_config import Settings
from acts_celery.worker.liveness.heartbeats import report_interval_seconds
from acts_celery.worker.storage.due import PUBLISHED_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """How long what may be silent in one sweep, in milliseconds; the fields are those of the scripts' requests."""

    lease_ms: int
    """A call at work, or the driver of a lane."""
    published_ms: int
    """A published task, before it counts as lost where its queue has been consumed."""
    heard_ms: int
    """A worker that has taken a remote call's message, until it reports that."""
    report_ms: int
    """A worker between two reports that a sweep reads."""
    soon_ms: int
    """The time until the next sweep."""
    consumed_until: Mapping[str, int] = field(default_factory=dict)
    """For each queue the time before which everything published there was taken: a probe came out."""
    suspended: bool = False
    """Heartbeats may have been missed: nothing at work is declared lost."""

    @classmethod
    def of(cls, settings: Settings) -> Thresholds:
        """Those that follow from the settings."""
        lease, soon = settings.lease_seconds, settings.sweep_interval_seconds
        return cls(
            lease_ms=_ms(lease),
            published_ms=_ms(PUBLISHED_SECONDS),
            heard_ms=_ms(lease * 2 / 3),
            report_ms=_ms(report_interval_seconds(settings) + soon),
            soon_ms=_ms(soon),
        )


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
