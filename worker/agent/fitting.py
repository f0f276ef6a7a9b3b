"""Fitting a request to a provider: what is enforced, what is shown, and what is remembered (SPEC R12.6)."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

from ...broker_config import ConfiguredModel
from ...protocol.analysis.findings import Finding, listed
from ...protocol.requests.data_blocks import compact
from ...protocol.requests.tool_texts import REQUIRED, TOOLS, Function, functions_of
from .. import limits
from ..registry.models import ModelRequest
from .prices import Profile, Rules, profile_of
from .wire_schema import Inexpressible, Opening, Size, WireSchema, size_of, wire_schema

# A request's functions as a provider takes them (SPEC R12.6).
#
# A provider that enforces by `strict` does it for each function by itself; what it cannot say of one, or what is more
# than it enforces at once, is left to the validation that each answer gets, with a finding. A function whose parameters
# have names that the provider refuses takes any object, and shows its schema in words.

_SAY_LESS: Final = "let it have fewer parameters, or leave it: each answer is validated"
_FEWER: Final = "declare fewer tools, or leave it: each answer is validated"
_FUNCTIONS_SHOWN: Final = "Its parameters are valid by this JSON Schema: "


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
        if beyond or len(fitted) == limits.MOST_STRICT:
            reason = f"all functions together have {beyond[0] if beyond else f'more than {limits.MOST_STRICT}'}"
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
        [*([function.description] * bool(function.description)), _FUNCTIONS_SHOWN + compact(function.parameters)]
    )
    return replace(function, description=description, parameters={"type": "object", "properties": {}})


def _unfit(function: Function, admitted: str) -> Iterator[str]:
    return (name for name in function.parameters["properties"] if not re.fullmatch(admitted, name))


_SHOWN: Final = "Your whole answer is valid by this JSON Schema: "


@dataclass(frozen=True, slots=True)
class Fitted:
    """A request as a provider takes it."""

    messages: list[dict[str, Any]]
    config: Mapping[str, Any]
    format: dict[str, Any] | None = None
    """The schema that is to be enforced."""
    is_json: bool = False
    """Whether any JSON is to be enforced, where no schema is."""
    is_strict: bool = False
    findings: tuple[str, ...] = ()
    functions: tuple[Function, ...] = ()
    """What the model may call, where its tools go as functions."""
    continues: bool = False
    """Whether the next request will begin with this one."""
    must_call: bool = False
    """Whether it has to call one of them."""
    without: frozenset[str] = frozenset()
    """What the endpoint refuses of what requests have, by the names in `Dialect.refusable`."""

    @property
    def is_plain(self) -> bool:
        """Whether nothing is enforced."""
        is_enforced = self.must_call or any(function.is_strict for function in self.functions)
        return self.format is None and not self.is_json and not is_enforced


class Fitting:
    """Fits the requests to one model; `url` is its provider's own."""

    def __init__(self, configured: ConfiguredModel, url: str) -> None:
        self._enforce = configured.enforce
        self._profile = profile_of(configured, url)
        self._has_json_mode = configured.enforce == "json" or (
            configured.enforce == "auto" and self._profile.has_json_mode
        )
        self._written: OrderedDict[str, WireSchema | str] = OrderedDict()
        """By the schema: what is sent of it, or why nothing is."""

    def fitted(self, request: ModelRequest) -> Fitted:
        """The request as it is sent."""
        if request.schema is None:
            return Fitted([dict(message) for message in request.messages], request.config)
        shown = _shown(request)
        if request.config.get("wire") == TOOLS:
            return self._functions(request, self._written.get(shown))
        written = self._fit(shown, request.schema)
        if not isinstance(written, WireSchema):
            return self._unenforced(request, written, is_json=self._has_json_mode)
        messages = request.messages if self._profile.shows_schema else _telling(request, shown)
        return Fitted(
            [dict(message) for message in messages],
            request.config,
            written.schema,
            is_strict=self._profile.is_strict,
            findings=(open_places(written.openings),) if written.openings else (),
        )

    def weaker(self, request: ModelRequest, sent: Fitted, reason: str) -> Fitted | None:
        """What is sent where the provider may have refused what it should enforce; None where that was nothing."""
        if sent.is_plain:
            return None
        if sent.functions:
            return self._functions(request, reason)
        return self._unenforced(request, reason, is_json=sent.format is not None and self._has_json_mode)

    def note_refusal(self, request: ModelRequest, refused: Fitted, reason: str) -> None:
        """From now on that is not asked for any more: without it the provider takes the request."""
        if refused.is_json:
            self._has_json_mode = False
        else:
            self._remember(_shown(request), reason)

    def _functions(self, request: ModelRequest, refused: WireSchema | str | None) -> Fitted:
        """The request with its tools as functions; `refused` says why nothing is enforced, where it is a text."""
        functions, messages = functions_of(request.schema), [dict(message) for message in request.messages]
        is_enforced = self._enforce == "auto" and not isinstance(refused, str)
        profile = self._profile if is_enforced else replace(self._profile, is_strict=False)
        fitted, openings = fitted_functions(functions, profile)
        findings = (open_places(openings),) if openings else ()
        if isinstance(refused, str):
            findings = (*findings, f"the functions' parameters are not enforced: {refused}")
        must_call = is_enforced and request.config.get("tool_choice") == REQUIRED
        return Fitted(messages, request.config, findings=findings, functions=tuple(fitted), must_call=must_call)

    def _unenforced(self, request: ModelRequest, reason: str, *, is_json: bool) -> Fitted:
        messages = [dict(message) for message in _telling(request, _shown(request))]
        findings = (f"the answer's schema is not enforced: {reason}",) if reason else ()
        return Fitted(messages, request.config, is_json=is_json, findings=findings)

    def _fit(self, shown: str, schema: Any) -> WireSchema | str:
        """What is sent of a schema; or why nothing is, which is nothing where the settings say so."""
        if self._enforce != "auto":
            return ""
        if shown not in self._written:
            self._remember(shown, fit_schema(schema, self._profile))
        return self._written[shown]

    def _remember(self, shown: str, written: WireSchema | str) -> None:
        self._written[shown] = written
        while len(self._written) > limits.MOST_REMEMBERED:
            self._written.popitem(last=False)


def fit_schema(schema: Any, profile: Profile) -> WireSchema | str:
    """What a provider is sent of a schema, or why it is not enforced."""
    if profile.rules is None:
        return "the provider enforces none"
    try:
        return wire_schema(schema, profile.rules)
    except Inexpressible as error:
        return f"the provider cannot say it: {error}"


def open_places(openings: Sequence[Opening]) -> str:
    """What is left open, in one sentence."""
    named = [str(opening) for opening in openings[: limits.FITTING_MOST_NAMED]]
    left = len(openings) - len(named)
    return f"not all of the answer's schema is enforced: {'; '.join(named)}{f'; and {left} more' if left else ''}"


def _telling(request: ModelRequest, shown: str) -> list[Mapping[str, Any]]:
    """The messages with the schema: behind the engine's own text, where it is the same in every tick, so that what was
    sent before is a prefix.
    """
    return [*request.messages[:1], {"role": "system", "content": _SHOWN + shown}, *request.messages[1:]]


def _shown(request: ModelRequest) -> str:
    """The schema as a model is shown it."""
    return json.dumps(request.schema, ensure_ascii=False, separators=(",", ":"))


# What a provider does not enforce of a request's schema, as findings of `acts check` (SPEC R12.6, R12.8).


def findings_of(openings: Sequence[Opening]) -> Iterator[Finding]:
    """One for each place, with its tool; tools of which everything is open are named together."""
    for whole, together in groupby(openings, key=lambda opening: None if opening.place else opening.reason):
        found = list(together)
        named = [listed(opening.tool for opening in found)] if whole is not None else [str(one.where) for one in found]
        for where, opening in zip(named, found, strict=False):
            yield Finding("ACT413", f"not enforced: {where}: {opening.reason}", remedy=opening.remedy)
