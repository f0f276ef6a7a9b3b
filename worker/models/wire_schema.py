"""The schema as a provider enforces it: wider than the truth where it cannot say that, never narrower (SPEC R12.6).

Where objects have to list all that they may have, what they may have besides stands in one more property: `_json`, a
text that holds a JSON object. Of a value that may be anything it is the only one. So one open object leaves nothing
open but itself, and that is an `Opening`. `_json` and the nulls for what was left out are taken out again before
anything is validated (`acts_celery.protocol.requests.wire`).

Of a schema that is too large for a provider, what may be left out of the largest tools' calls is written in that way,
and where that is not enough, all of these calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .profiles import Rules
from .wire_size import Size, size_of
from .wire_writer import Inexpressible, Opening, Reduction, Schema, Writer

__all__ = ["Inexpressible", "Opening", "WireSchema", "wire_schema"]


@dataclass(frozen=True, slots=True)
class WireSchema:
    """What is sent."""

    schema: Schema
    openings: tuple[Opening, ...] = ()


def wire_schema(schema: Any, rules: Rules, *, is_function: bool = False) -> WireSchema:
    """The schema for the wire: of an answer, or of a function's parameters, which are part of one and may be open
    themselves. Raises `Inexpressible` where nothing can be enforced.
    """
    if not isinstance(schema, dict):
        raise Inexpressible("it admits any value")
    whole, writer = _written(schema, rules, {}, is_function=is_function)
    reductions = dict.fromkeys(writer.sizes(), Reduction.NONE)
    if reductions and size_of(whole).beyond(rules):
        sizes = {
            reduction: _written(schema, rules, dict.fromkeys(reductions, reduction))[1].sizes()
            for reduction in Reduction
        }
        while beyond := size_of(whole).beyond(rules):
            if not _reduce(reductions, sizes, size_of(whole), rules):
                raise Inexpressible(f"it has {beyond[0]}")
            whole, writer = _written(schema, rules, reductions)
    if beyond := size_of(whole).beyond(rules):
        raise Inexpressible(f"it has {beyond[0]}")
    return WireSchema(whole, tuple(dict.fromkeys(writer.openings)))


def _written(
    schema: Schema, rules: Rules, reductions: Mapping[str, Reduction], *, is_function: bool = False
) -> tuple[Schema, Writer]:
    writer = Writer(rules, schema.get("$defs", {}), reductions)
    own = {key: value for key, value in schema.items() if key != "$defs"}
    return writer.whole(own, is_function=is_function), writer


def _reduce(
    reductions: dict[str, Reduction], sizes: Mapping[Reduction, Mapping[str, Size]], whole: Size, rules: Rules
) -> bool:
    """Reduce as many tools as it takes for the whole to be small enough, those first by which most is won, and no tool
    further than the others before it has to be; false where none can be.
    """
    left, has_reduced = whole, False
    while (limits := dict(left.limits(rules))) and (reduction := min(reductions.values())) is not Reduction.ALL:
        further = Reduction(reduction + 1)
        won = {
            name: sizes[reduction][name] - sizes[further][name] for name in reductions if reductions[name] is reduction
        }
        name = max(won, key=lambda name: max(getattr(won[name], measure) for measure in limits))
        left, reductions[name], has_reduced = left - won[name], further, True
    return has_reduced
