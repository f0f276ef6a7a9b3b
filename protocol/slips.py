"""Slips: what stands in a valid submission and was hardly meant so (SPEC R2.5, R3.4, R4.1).

A misspelt meta-property is admitted like any that nobody knows, and does nothing; an output path without `†` lies
inside `state`, also when it begins with a kind; and messages of the context need not fit each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from .calls import META_PROPERTIES, Call, place_in
from .context import Context
from .errors import pointer
from .findings import Finding
from .messages import DATA_TYPES
from .readers import Readers
from .references import DAGGER, Reference
from .spelling import Speller
from .tools import Tool

Place = Sequence[str | int]

_LIKENESS: Final = 0.8
"""Names of our own meta-properties may look like known ones: only what is nearly the same is taken for a slip."""
_OPERATOR: Final = re.compile(r"\|\||&&")


def misspelt_properties(calls: Iterable[Call], places: Sequence[Place], tools: Mapping[str, Tool]) -> Iterator[Finding]:
    """Meta-properties that are unknown and nearly a known one. `places` says where in the submission each call is."""
    spelling = Speller(META_PROPERTIES, likeness=_LIKENESS)
    for call in calls:
        tool = tools.get(call.tool)
        for key in call.raw:
            if not key.startswith("_") or key in META_PROPERTIES or (tool is not None and tool.mentions(key)):
                continue
            if hint := spelling.hint(key):
                yield Finding(
                    "warning",
                    f"call {call.index} ({call.tool}) has the property {key}, which means nothing{hint}",
                    (call.index,),
                    pointer(*places[call.index], key),
                )


def undaggered_paths(
    calls: Iterable[Call], places: Sequence[Place], context: Context, readers: Readers
) -> Iterator[Finding]:
    """Output paths inside `state` whose first key is the name of a kind, and which nobody else speaks of."""
    for call in calls:
        for place, meant in _undaggered(call):
            fold = context.fold(call.instance)
            if readers.has(place, but=call.index) or fold.exists(Reference(place.kind, place.path[:1])):
                continue
            yield Finding(
                "warning",
                f"call {call.index} ({call.tool}) writes to {place}, since a path without † is one inside state, "
                f"did you mean {meant}?",
                (call.index,),
                pointer(*places[call.index], *place_in(call.raw, "_outputPath")),
            )


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


def _undaggered(call: Call) -> Iterator[tuple[Reference, Reference]]:
    """What was written without a dagger, and what it would be with one."""
    written = _OPERATOR.split(str(call.properties.get("_outputPath", "")))
    references = call.output.references if call.output is not None else ()
    if len(written) != len(references):
        return  # an operator inside a quoted key: nobody makes this slip there
    for text, place in zip(written, references, strict=True):
        kind, *path = place.path or ("",)
        if not text.strip().startswith(DAGGER) and (kind == "state" or (kind in DATA_TYPES and path)):
            yield place, Reference(str(kind), tuple(path))
