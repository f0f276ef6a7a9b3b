"""Calls: what the keywords of a tool's schema say of a call as a whole (SPEC R4.1, R8.1).

A tool's schema speaks of parameters and of meta-properties at once, at its root and in everything that it applies to
the same value: `allOf`, `oneOf`, `then`, what `$ref` leads to. Wherever a `WholeCall` is what a keyword is applied to,

- what closes or counts an object (`additionalProperties`, `maxProperties`, `const`, …) speaks of parameters; so does a
  pattern for names, unless it begins with `_`;
- `_output` is required of no call: it is what comes of it; but `not` and `if` ask whether it is there.

Calls inside parameters are ordinary objects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from jsonschema.exceptions import ValidationError

_Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]
_RESULT: Final = "_output"


class WholeCall(dict[str, Any]):
    """A call's parameters and meta-properties; shown are the parameters.

    `counted` are meta-properties that count as parameters, `is_finished` says that no `_output` is still to come.
    """

    def __init__(
        self, properties: Mapping[str, Any], *, counted: Collection[str] = (), is_finished: bool = False
    ) -> None:
        super().__init__(properties)
        self.parameters = {key: self[key] for key in self if not key.startswith("_") or key in counted}
        self.is_finished = is_finished or _RESULT in self

    def __repr__(self) -> str:
        return repr(self.parameters)

    @cached_property
    def finished(self) -> WholeCall:
        """The same as it stands there."""
        return self if self.is_finished else WholeCall(self, counted=self.parameters, is_finished=True)


def as_it_stands(instance: Any) -> Any:
    """What a question about what is there is asked of: nothing is still to come."""
    return instance.finished if isinstance(instance, WholeCall) else instance


def speaks_of_meta_properties(pattern: str) -> bool:
    """Whether a pattern for names is one for meta-properties: but for `^` and brackets, it begins with `_`."""
    return pattern.lstrip("^(?:").startswith("_")


def of_calls(keywords: Mapping[str, _Keyword]) -> dict[str, _Keyword]:
    """The keywords, which now also know what they say of a `WholeCall`."""
    own = {**dict.fromkeys(_CLOSING, _of_parameters), **_OWN}
    return dict(keywords) | {name: _on_calls(keywords[name], special) for name, special in own.items()}


_Special = Callable[[_Keyword, Any, Any, WholeCall, Any], Iterator[ValidationError]]
"""What an ordinary keyword, given first, becomes where it is applied to a call."""


def _on_calls(keyword: _Keyword, special: _Special) -> _Keyword:
    def on_calls(validator: Any, limit: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if isinstance(instance, WholeCall):
            yield from special(keyword, validator, limit, instance, schema)
        else:
            yield from keyword(validator, limit, instance, schema) or ()

    return on_calls


def _of_parameters(
    keyword: _Keyword, validator: Any, limit: Any, call: WholeCall, schema: Any
) -> Iterator[ValidationError]:
    yield from keyword(validator, limit, call.parameters, schema) or ()


def _pattern_properties(
    keyword: _Keyword, validator: Any, limit: Any, call: WholeCall, schema: Any
) -> Iterator[ValidationError]:
    of_meta_properties = {pattern: part for pattern, part in limit.items() if speaks_of_meta_properties(pattern)}
    others = {pattern: part for pattern, part in limit.items() if pattern not in of_meta_properties}
    yield from keyword(validator, of_meta_properties, call, schema) or ()
    yield from keyword(validator, others, call.parameters, schema) or ()


def _required(keyword: _Keyword, validator: Any, limit: Any, call: WholeCall, schema: Any) -> Iterator[ValidationError]:
    yield from keyword(validator, _expected(limit, call), call, schema) or ()


def _dependent_required(
    keyword: _Keyword, validator: Any, limit: Any, call: WholeCall, schema: Any
) -> Iterator[ValidationError]:
    there = {name: _expected(names, call) for name, names in limit.items() if name in call}
    yield from keyword(validator, there, call, schema) or ()


def _expected(names: list[str], call: WholeCall) -> list[str]:
    """The properties that a call must have now."""
    return names if call.is_finished else [name for name in names if name != _RESULT]


def _one_of(keyword: _Keyword, validator: Any, limit: Any, call: WholeCall, schema: Any) -> Iterator[ValidationError]:
    """Which one it is may hinge on the result that is still to come."""
    errors = list(keyword(validator, limit, call, schema) or ())
    if errors and not call.is_finished and not any(keyword(validator, limit, call.finished, schema) or ()):
        return
    yield from errors


def _not(keyword: _Keyword, validator: Any, limit: Any, call: WholeCall, schema: Any) -> Iterator[ValidationError]:
    yield from keyword(validator, limit, call.finished, schema) or ()


def _if(keyword: _Keyword, validator: Any, limit: Any, call: WholeCall, schema: Any) -> Iterator[ValidationError]:
    outcome = "then" if validator.evolve(schema=limit).is_valid(call.finished) else "else"
    if outcome in schema:
        yield from validator.descend(call, schema[outcome], schema_path=outcome)


_CLOSING: Final = ("additionalProperties", "propertyNames", "minProperties", "maxProperties", "const", "enum")
"""Keywords that speak of all that an object holds; so does `unevaluatedProperties`, which is our own."""
_OWN: Final[Mapping[str, _Special]] = {
    "patternProperties": _pattern_properties,
    "required": _required,
    "dependentRequired": _dependent_required,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
}
