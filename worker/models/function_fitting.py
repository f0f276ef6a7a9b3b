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

from .profiles import Profile, Rules
from .wire_schema import Inexpressible, Opening, WireSchema, wire_schema
from .wire_size import Size, size_of

_MOST_STRICT: Final = 20
"""So many functions Anthropic enforces in one request."""
_SAY_LESS: Final = "let it have fewer parameters, or leave it: each answer is validated"
_FEWER: Final = "declare fewer tools, or leave it: each answer is validated"
_SHOWN: Final = "Its parameters are valid by this JSON Schema: "


def fitted_functions(functions: Sequence[Function], profile: Profile) -> tuple[list[Function], tuple[Opening, ...]]:
    """The functions, and what of them is not enforced."""
    named = [_with_names(function, profile) for function in functions]
    if not profile.is_strict or (rules := profile.rules) is None:
        return named, ()
    fitted, openings, sayable = dict[str, Function](), list[Opening](), list[tuple[Function, WireSchema, Size]]()
    for function in named:
        try:
            written = wire_schema(function.parameters, rules, is_function=True)
        except Inexpressible as error:
            openings.append(Opening(function.tool, "", str(error), _SAY_LESS))
        else:
            sayable.append((function, written, size_of(written.schema)))
    total = Size()
    for function, written, own in sorted(sayable, key=lambda one: _cost(one[0], one[2], rules)):
        size = total + own
        beyond = size.beyond(rules) if profile.limits_all_functions else []
        if beyond or len(fitted) == _MOST_STRICT:
            reason = f"all functions together have {beyond[0] if beyond else f'more than {_MOST_STRICT}'}"
            openings.append(Opening(function.tool, "", reason, _FEWER))
        else:
            total = size
            fitted[function.name] = replace(function, parameters=written.schema, is_strict=True)
            openings += [replace(opening, tool=function.tool) for opening in written.openings]
    return [fitted.get(function.name, function) for function in named], tuple(openings)


def _cost(function: Function, size: Size, rules: Rules) -> tuple[bool, float]:
    """By what it is decided which functions are enforced, the least first: the output, then those that take the least
    of what all together may have, so that they are many.
    """
    return function.tool is not None, size.share(rules)


def _with_names(function: Function, profile: Profile) -> Function:
    if profile.parameter_names is None or not any(_unfit(function, profile.parameter_names)):
        return function
    description = "\n".join(
        [*([function.description] * bool(function.description)), _SHOWN + compact(function.parameters)]
    )
    return replace(function, description=description, parameters={"type": "object", "properties": {}})


def _unfit(function: Function, admitted: str) -> Iterator[str]:
    return (name for name in function.parameters["properties"] if not re.fullmatch(admitted, name))
