"""Moulds: the shape that the readers of a result ask for (SPEC R6.7).

Where nothing is said of a call's result, what is made up for it has something wherever others read, and of the type
that they take.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from .calls import Call
from .errors import segments
from .paths import MISSING, nest
from .plan import Plan
from .references import Path, Reference
from .samples import PLACEHOLDER, sample

Mould = list[tuple[Path, Any]]
"""Where inside a result others read, and the schema of the parameter that does, None where there is none."""

Key = tuple[str, ...]


def moulds_of(plan: Plan) -> dict[int, list[Mould]]:
    """What is read of each call's result, for each place it writes to."""
    read: dict[Key, dict[int, list[tuple[Reference, Any]]]] = {}
    for call in plan.calls:
        places = [
            (place, _parameter_schema(plan, call, at))
            for at, expression in call.reads
            for place in expression.references
        ]
        for place, wanted in (*places, *((scope, None) for scope in call.slices)):
            for length in range(1, len(place.key) + 1):
                read.setdefault(place.key[:length], {}).setdefault(call.index, []).append((place, wanted))
    found: dict[int, list[Mould]] = {}
    alike: dict[tuple[Reference, frozenset[int]], Mould] = {}
    for call in plan.calls:
        readers = frozenset(plan.readers.get(call.index, ()))
        for target in call.output.references if call.output is not None and readers else ():
            if (target, readers) not in alike:
                alike[target, readers] = _mould(target, readers, read.get(target.key, {}))
            found.setdefault(call.index, []).append(alike[target, readers])
    return found


def cast(value: Any, mould: Mould) -> Any:
    """The value with something at each place of a mould; a value that may be changed in place."""
    for path, wanted in mould:
        value = _with(value, path, sample(wanted) if wanted is not None else PLACEHOLDER)
    return value


def _mould(target: Reference, readers: Set[int], read: Mapping[int, list[tuple[Reference, Any]]]) -> Mould:
    """What these readers read at and below a place, each path once, with the first schema asked for there."""
    found: dict[Path, Any] = {}
    for reader in sorted(readers):
        for place, wanted in read.get(reader, ()):
            path = place.path[len(target.path) :]
            if found.get(path) is None:
                found[path] = wanted
    return list(found.items())


def _parameter_schema(plan: Plan, call: Call, at: str) -> Any:
    """What the call's tool says of the place of an expression; None where it says nothing that stands by itself."""
    tool = plan.tools.get(call.tool)
    path: Path = tuple(int(key) if key.isdecimal() else key for key in segments(at))
    parts = tool.compiled.parts(path) if tool is not None else ()
    return next((part for part in parts if isinstance(part, Mapping) and part and "$ref" not in str(part)), None)


def _with(value: Any, path: Path, leaf: Any) -> Any:
    """The value with a leaf at a path, unless there is one already; what is in the way makes room."""
    if not path:
        return leaf if value in (MISSING, PLACEHOLDER) else value
    if not isinstance(value, dict):
        return nest(leaf, path)
    key = str(path[0])
    value[key] = _with(value.get(key, MISSING), path[1:], leaf)
    return value
