"""Payloads: what the messages of a context hold and nobody can read (SPEC R1.2, R1.3, R2, R3.4).

Messages need not fit each other; a kind need not be one that a reference can name; and what stands beside the property
that holds the payload is kept, and is no part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from protocol.calls.call import Call
from protocol.graph.readers import Reads, places_read
from protocol.language.errors import ExpressionError, pointer
from protocol.language.messages import DATA_TYPES, Message, is_reserved, is_written, kind_of, riders
from protocol.language.references import Reference
from protocol.state.context import Context
from protocol.state.scopes import read_scope

from .finding import Finding

_SPREAD_OUT: Final = frozenset({"state", "input"})
"""Types whose messages mostly hold their payload property by property: beside `data` nothing is expected there."""


def unfit_messages(context: Context) -> Iterator[Finding]:
    """Messages of the context that do not fit those before them, so that nobody can read there (SPEC R3.4)."""
    for index, conflict in context.conflicts().items():
        yield Finding(
            "warning",
            f"{conflict}; whoever reads there fails, until something replaces it: leave the message out, or set the "
            "value anew",
            (),
            pointer("context", index),
        )


def unnameable_kinds(context: Context) -> Iterator[Finding]:
    """Kinds that no reference and no scope can name (SPEC R2); each is told once."""
    kinds: dict[str, int] = {}
    for index, message in enumerate(context.messages):
        if message.get("type") in DATA_TYPES:
            kinds.setdefault(kind_of(message), index)
    for kind, index in kinds.items():
        if not _is_nameable(kind):
            yield Finding(
                "info",
                f"no reference and no scope can name the kind {kind!r}, so no call is shown what is of it: name it by "
                "letters, digits, _ and -, a letter first",
                (),
                pointer("context", index, "kind"),
            )


def left_out_properties(context: Context, calls: Iterable[Call]) -> Iterator[Finding]:
    """Properties beside the one that holds the payload: where somebody reads them, or the type is one that mostly has
    no such property. Messages that leave out the same are told once.
    """
    read = Reads(place for call in calls for place in places_read(call) if place.path)
    told = set[tuple[str, str, tuple[str, ...]]]()
    for index, message in enumerate(context.messages):
        left_out = _left_out(message)
        if not left_out or (shape := (message["type"], kind_of(message), left_out)) in told:
            continue
        told.add(shape)
        is_read = any(read.overlap(Reference(kind_of(message), (name,))) for name in left_out)
        if is_read or message["type"] in _SPREAD_OUT:
            holder = "data" if "data" in message else kind_of(message)
            yield Finding(
                "warning" if is_read else "info",
                f"{', '.join(left_out)}: no part of the message's value, which is what its property {holder} holds; to "
                f"have {'it' if len(left_out) == 1 else 'them'} read, put all of the value inside data",
                (),
                pointer("context", index, left_out[0]),
            )


def _left_out(message: Message) -> tuple[str, ...]:
    """The properties of a message that anybody might take for a part of its value, and that are none."""
    if message.get("type") not in DATA_TYPES or is_written(message):
        return ()
    return tuple(name for name in riders(message) if not is_reserved(name))


def _is_nameable(kind: str) -> bool:
    try:
        return read_scope(kind) == Reference(kind)
    except ExpressionError:
        return False
