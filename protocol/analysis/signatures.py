"""Signatures: where a declared tool admits what the activity behind it does not take (SPEC R4.1a, R4.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from protocol.calls.tools import Executor
from protocol.language.spelling import Patience
from protocol.schemas import Schema
from protocol.submission.layout import Layout

from .finding import Finding, on_call

_SCALARS: Final = frozenset({"string", "number", "integer", "boolean"})
_KEPT: Final = ("$ref", "required")
_LISTED: Final = ("anyOf", "allOf", "prefixItems")
_NAMED: Final = ("properties", "$defs", "definitions")
_SINGLE: Final = ("items", "additionalProperties")


def convertible(schema: Schema) -> Schema:
    """The schema of all that may be converted to what a signature says: `"5"` to a number, a number to a date."""
    if not isinstance(schema, dict):
        return schema
    wide: dict[str, Any] = {key: schema[key] for key in _KEPT if key in schema}
    for key, part in schema.items():
        if key in _LISTED or key == "oneOf":  # by conversion it may be several of them
            wide["anyOf" if key == "oneOf" else key] = [convertible(each) for each in part]
        elif key in _NAMED:
            wide[key] = {name: convertible(each) for name, each in part.items()}
        elif key in _SINGLE:
            wide[key] = convertible(part)
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if values and all(value is None or isinstance(value, str) for value in values):
        return {"enum": values}  # these are taken as they are
    declared = schema.get("type", [])
    types = {declared} if isinstance(declared, str) else set(declared)
    if types:
        wide["type"] = sorted(types | _SCALARS if types & _SCALARS or "format" in schema else types)
    return wide


def signature_findings(layout: Layout) -> Iterator[Finding]:
    """Parameters that activities need and calls leave out, or that calls have and activities do not take."""
    patience = Patience()
    for call in layout.calls:
        signature = layout.signatures.get(call.runner.name)
        if signature is None or call.runner.executor is not Executor.ACTIVITY:
            continue
        who = f"does not fit the signature of its activity {call.runner.name!r}"
        for name in signature.get("required", ()):
            if name not in call.parameters:
                remedy = f"add {name}, or give it a default value"
                yield on_call(layout, "ACT209", call, f"{who}, which needs {name!r}", remedy)
        known: Mapping[str, Any] = signature.get("properties", {})
        for name in call.parameters if signature.get("additionalProperties") is False else ():
            if name not in known:
                near = patience.nearest(name, list(known))
                remedy = f"write {near}" if near else "leave it out, or let the function take it"
                yield on_call(layout, "ACT209", call, f"{who}, which takes no {name!r}", remedy, name)
