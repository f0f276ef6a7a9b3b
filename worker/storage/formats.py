"""Formats: which versions' runs are read, and how one of an older format becomes ours (see `fields`)."""

from __future__ import annotations

from typing import Final

from acts_celery.worker.errors import OtherFormat
from acts_celery.worker.wire.packing import pack, unpack

FORMAT: Final = 4
"""Raised when a worker of the version before could not read what is written: it leaves such a run to the others."""
_OURS: Final = pack({"format": FORMAT})[1:]
READ: Final = (3, FORMAT)
"""The formats that are read (see `fields`); a run of an older one becomes ours when a worker opens it."""


def require_format(number: int) -> None:
    """Raise `OtherFormat` where a run is of a format that is not read."""
    if number not in READ:
        raise OtherFormat(
            f"the run has format {number} and this version reads {FORMAT}: use the version that submitted it"
        )


def upgraded(data: bytes) -> bytes | None:
    """A definition of an older format as one of ours; None where it is ours, or is not read."""
    if _OURS in data[: 2 * len(_OURS)]:  # its first field
        return None
    fields = unpack(data)
    is_older = fields["format"] in READ and fields["format"] != FORMAT
    return pack(fields | {"format": FORMAT}) if is_older else None
