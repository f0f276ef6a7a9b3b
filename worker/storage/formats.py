"""Formats: which runs this version reads; one of another format is left to the workers of its version (SPEC R11.1)."""

from __future__ import annotations

from typing import Final

from acts_celery.worker.errors import OtherFormat

FORMAT: Final = 4
"""Raised when a worker of the version before could not read what is written: it leaves such a run to the others."""


def require_format(number: int) -> None:
    """Raise `OtherFormat` where a run is of a format that is not read."""
    if number != FORMAT:
        raise OtherFormat(
            f"the run has format {number} and this version reads {FORMAT}: use the version that submitted it"
        )
