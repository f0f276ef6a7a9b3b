"""Daggers: the output paths that have none, and lie inside `state` although they begin with a kind (SPEC R2.5)."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from typing import Final, NamedTuple

from .calls import Call
from .messages import DATA_TYPES
from .references import DAGGER, Reference

_OPERATOR: Final = re.compile(r"\|\||&&")


class Undaggered(NamedTuple):
    """A path without `†` that begins with a kind: where it leads, and where it would with one."""

    call: Call
    place: Reference
    meant: Reference

    def __str__(self) -> str:
        return (
            f"call {self.call.index} ({self.call.tool}) writes to {self.place}, since a path without † is one inside "
            f"state, did you mean {self.meant}?"
        )


def undaggered(call: Call, kinds: Container[str] = DATA_TYPES) -> Iterator[Undaggered]:
    """The output paths of a call that begin with the name of one of some kinds, and have no dagger."""
    written = _OPERATOR.split(str(call.properties.get("_outputPath", "")))
    references = call.written
    if len(written) != len(references):
        return  # an operator inside a quoted key: nobody makes this slip there
    for text, place in zip(written, references, strict=True):
        kind, *path = place.path or ("",)
        if not text.strip().startswith(DAGGER) and (kind == "state" or (kind in kinds and path)):
            yield Undaggered(call, place, Reference(str(kind), tuple(path)))
