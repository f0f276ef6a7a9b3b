"""Formats: which runs this version reads; one of another format is left to the workers of its version (SPEC R11.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from acts_celery.worker.errors import OtherFormat

FORMAT: Final = 4
"""Raised when a worker of the version before could not read what is written: it leaves such a run to the others."""


def require_format(number: int) -> None:
    """Raise `OtherFormat` where a run is of a format that is not read."""
    if number != FORMAT:
        raise OtherFormat(
            f"the run has format {number} and this version reads {FORMAT}: use the version that submitted it"
        )


def require_readable(definition: Mapping[str, Any]) -> None:
    """Raise `OtherFormat` where a run's definition is not read: of another format, or with a staged plan."""
    require_format(definition["format"])
    if "plan" in definition["config"]:  # the log of its loop has events that nothing follows
        raise OtherFormat("the run has a staged plan, which this version does not have: use the one that submitted it")
