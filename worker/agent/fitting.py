"""Fitting requests to a provider: the schema that it enforces, else shows, and what it has refused (SPEC R12.6)."""

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
from .prices import Profile, profile_of
from .wire_schema import Inexpressible, Size, UnenforcedPlace, WireSchema, excess, share_of, size_of, wire_schema

# The functions of a request as a provider takes them (SPEC R12.6).
#
# A provider that enforces by `strict` does so for each function by itself. A schema that it cannot express, or
# functions beyond its limits, are left to the validation that each answer gets, with a finding. A function whose
# parameters have names that the provider refuses takes any object, and shows its schema in words.

_SAY_LESS: Final = "let it have fewer parameters, or leave it: each answer is validated"
_FEWER: Final = "declare fewer tools, or leave it: each answer is validated"
_FUNCTIONS_SHOWN: Final = "The parameters must match this JSON Schema: "


def fitted_functions(
    functions: Sequence[Function], profile: Profile
) -> tuple[list[Function], tuple[UnenforcedPlace, ...]]:
    """The functions, and the places in them that are not enforced."""
    named = [_with_names(function, profile) for function in functions]
    if not profile.is_strict or (rules := profile.rules) is None:
        return named, ()
    fitted, openings = dict[str, Function](), list[UnenforcedPlace]()
    expressible = list[tuple[Function, WireSchema, Size]]()
    for function in named:
        try:
            written = wire_schema(function.parameters, rules, is_function=True)
        except Inexpressible as error:
            openings.append(UnenforcedPlace(function.tool, "", str(error), _SAY_LESS))
        else:
            expressible.append((function, written, size_of(written.schema)))
    total = Size()
    # First the output, then the functions that take the least of the limits for all together, so that they are many.
    for function, written, own in sorted(
        expressible, key=lambda one: (one[0].tool is not None, share_of(one[2], rules))
    ):
        size = total + own
        beyond = excess(size, rules) if profile.limits_all_functions else ""
        if beyond or len(fitted) == limits.MOST_STRICT:
            reason = f"all functions together have {beyond or f'more than {limits.MOST_STRICT}'}"
            openings.append(UnenforcedPlace(function.tool, "", reason, _FEWER))
        else:
            total = size
            fitted[function.name] = replace(function, parameters=written.schema, is_strict=True)
            openings += [replace(opening, tool=function.tool) for opening in written.openings]
    return [fitted.get(function.name, function) for function in named], tuple(openings)


def _with_names(function: Function, profile: Profile) -> Function:
    pattern = profile.parameter_names
    if pattern is None or all(re.fullmatch(pattern, name) for name in function.parameters["properties"]):
        return function
    description = "\n".join(filter(None, (function.description, _FUNCTIONS_SHOWN + compact(function.parameters))))
    return replace(function, description=description, parameters={"type": "object", "properties": {}})


_SHOWN: Final = "Your whole answer must match this JSON Schema: "


@dataclass(frozen=True, slots=True)
class Fitted:
    """A request in the form that a provider takes."""

    messages: list[dict[str, Any]]
    config: Mapping[str, Any]
    format: dict[str, Any] | None = None
    """The schema to enforce."""
    is_json: bool = False
    """Whether to enforce any JSON, where no schema is."""
    is_strict: bool = False
    findings: tuple[str, ...] = ()
    functions: tuple[Function, ...] = ()
    """The functions that the model may call, where its tools go as functions."""
    continues: bool = False
    """Whether the next request will begin with this one."""
    must_call: bool = False
    """Whether the model has to call a function."""
    without: frozenset[str] = frozenset()
    """The parts of requests that the endpoint refuses, by the names in `Dialect.refusable`."""

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
        """Schema to the one that is sent, or the reason why none is."""

    def fitted(self, request: ModelRequest) -> Fitted:
        """The request in the form in which it is sent."""
        if request.schema is None:
            return Fitted([dict(message) for message in request.messages], request.config)
        shown = _shown(request)
        if request.config.get("wire") == TOOLS:
            return self._functions(request, self._written.get(shown))
        written = self._fit(shown, request.schema)
        if not isinstance(written, WireSchema):
            return self._unenforced(request, written, is_json=self._has_json_mode)
        messages = request.messages if self._profile.shows_schema else _with_schema(request, shown)
        return Fitted(
            [dict(message) for message in messages],
            request.config,
            written.schema,
            is_strict=self._profile.is_strict,
            findings=(open_places(written.openings),) if written.openings else (),
        )

    def weaker(self, request: ModelRequest, sent: Fitted, reason: str) -> Fitted | None:
        """The request without the schema that the provider may have refused to enforce; None where it had none."""
        if sent.is_plain:
            return None
        if sent.functions:
            return self._functions(request, reason)
        return self._unenforced(request, reason, is_json=sent.format is not None and self._has_json_mode)

    def note_refusal(self, request: ModelRequest, refused: Fitted, reason: str) -> None:
        """Note that the provider takes the request only without what it should enforce: it is not asked for again."""
        if refused.is_json:
            self._has_json_mode = False
        else:
            self._remember(_shown(request), reason)

    def _functions(self, request: ModelRequest, refused: WireSchema | str | None) -> Fitted:
        """The request with its tools as functions; `refused` is the reason why nothing is enforced, if it is a text."""
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
        messages = [dict(message) for message in _with_schema(request, _shown(request))]
        findings = (f"the answer's schema is not enforced: {reason}",) if reason else ()
        return Fitted(messages, request.config, is_json=is_json, findings=findings)

    def _fit(self, shown: str, schema: Any) -> WireSchema | str:
        """The schema to send; or the reason why none is sent, which is empty where the settings say so."""
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
    """The schema to send to a provider, or the reason why it is not enforced."""
    if profile.rules is None:
        return "the provider enforces none"
    try:
        return wire_schema(schema, profile.rules)
    except Inexpressible as error:
        return f"the provider cannot say it: {error}"


def open_places(openings: Sequence[UnenforcedPlace]) -> str:
    """The unenforced places in one sentence."""
    named = [str(opening) for opening in openings[: limits.FITTING_MOST_NAMED]]
    left = len(openings) - len(named)
    return f"not all of the answer's schema is enforced: {'; '.join(named)}{f'; and {left} more' if left else ''}"


def _with_schema(request: ModelRequest, shown: str) -> list[Mapping[str, Any]]:
    """The messages with the schema: behind the engine's own text, which no tick changes, so that the messages of the
    request before are a prefix.
    """
    return [*request.messages[:1], {"role": "system", "content": _SHOWN + shown}, *request.messages[1:]]


def _shown(request: ModelRequest) -> str:
    """The schema as the model sees it."""
    return json.dumps(request.schema, ensure_ascii=False, separators=(",", ":"))


def findings_of(openings: Sequence[UnenforcedPlace]) -> Iterator[Finding]:
    """The findings of `acts check`, one for each place; tools that are not enforced at all are named together."""
    for whole, together in groupby(openings, key=lambda opening: None if opening.place else opening.reason):
        found = list(together)
        named = [listed(opening.tool for opening in found)] if whole is not None else [str(one.where) for one in found]
        for where, opening in zip(named, found, strict=False):
            yield Finding("ACT413", f"not enforced: {where}: {opening.reason}", remedy=opening.remedy)
