"""Daggers: the output paths that have none, and lie inside `state` although they begin with a kind (SPEC R2.5): as they
stand, or written as in other systems (`{{state.x}}`, `$.state.x`, `state/x`).
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from typing import Final, NamedTuple

from protocol.calls.call import Call
from protocol.language.messages import DATA_TYPES
from protocol.language.references import DAGGER, Reference, expression_in

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
        return  # an operator inside a quoted key: the slip is not made there
    for text, place in zip(written, references, strict=True):
        meant = None if text.strip().startswith(DAGGER) else _meant(text.strip(), place)
        if meant is not None and (meant.kind == "state" or (meant.kind in kinds and meant.path)):
            yield Undaggered(call, place, meant)


def _meant(text: str, place: Reference) -> Reference | None:
    """What a path would be with a dagger, also where it is written as other systems have it."""
    name = text.strip("{$}").strip("./")
    if name.startswith("state/"):
        name = name.replace("/", ".")
    elif name == text:
        return Reference(str(place.path[0]), place.path[1:])
    expression = expression_in(DAGGER + name)
    return expression.references[0] if expression is not None else None
