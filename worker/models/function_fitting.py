"""A request's functions as a provider takes them (SPEC R12.6).

A provider that enforces by `strict` does it for each function by itself; what it cannot say of one, or what is more
than it enforces at once, is left to the validation that each answer gets, with a finding. A function whose parameters
have names that the provider refuses takes any object, and shows its schema in words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from acts_celery.protocol.requests.data_blocks import compact
from acts_celery.protocol.requests.functions import Function

from .profiles import Profile
from .wire_schema import Inexpressible, Opening, wire_schema
from .wire_size import Size, size_of

_MOST_STRICT: Final = 20
"""So many functions Anthropic enforces in one request."""
_SAY_LESS: Final = "let it have fewer parameters, or leave it: each answer is validated"
_FEWER: Final = "declare fewer tools, or leave it: each answer is validated"
_SHOWN: Final = "Its parameters are valid by this JSON Schema: "


def fitted_functions(functions: Sequence[Function], profile: Profile) -> tuple[list[Function], tuple[Opening, ...]]:
    """The functions, and what of them is not enforced."""
    named = [_with_names(function, profile) for function in functions]
    if not profile.is_strict or profile.rules is None:
        return named, ()
    fitted, openings = dict[str, Function](), list[Opening]()
    total, count = Size(), 0
    for function in sorted(named, key=lambda one: one.tool is not None):  # the output first
        try:
            written = wire_schema(function.parameters, profile.rules, is_function=True)
        except Inexpressible as error:
            openings.append(Opening(function.tool, "", str(error), _SAY_LESS))
            continue
        size = total + size_of(written.schema)
        beyond = size.beyond(profile.rules) if profile.limits_all_functions else []
        if beyond or count == _MOST_STRICT:
            reason = f"all functions together have {beyond[0] if beyond else f'more than {count}'}"
            openings.append(Opening(function.tool, "", reason, _FEWER))
        else:
            total, count = size, count + 1
            fitted[function.name] = replace(function, parameters=written.schema, is_strict=True)
            openings += [replace(opening, tool=function.tool) for opening in written.openings]
    return [fitted.get(function.name, function) for function in named], tuple(openings)


def _with_names(function: Function, profile: Profile) -> Function:
    if profile.parameter_names is None or not any(_unfit(function, profile.parameter_names)):
        return function
    description = "\n".join(
        [*([function.description] * bool(function.description)), _SHOWN + compact(function.parameters)]
    )
    return replace(function, description=description, parameters={"type": "object", "properties": {}})


def _unfit(function: Function, admitted: str) -> Iterator[str]:
    return (name for name in function.parameters["properties"] if not re.fullmatch(admitted, name))
