"""Kinds with a schema: results that it forbids, and methods that cannot take a result (SPEC R4.6, R3.4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from protocol.calls.call import Call, place_in
from protocol.graph.lanes import Lane
from protocol.language.paths import MISSING
from protocol.language.references import Path, Reference
from protocol.schemas import CompiledSchema, Schema, compiled, excerpt
from protocol.state.operations import Method
from protocol.submission.layout import Layout

from .algebra import NOTHING, Algebra, Values, is_empty, told, types_of
from .finding import Finding, on_call
from .type_flow import FAILURES, TypeFlow

_TAKEN: Final[dict[Method, Schema]] = {
    Method.ASSIGN: {"type": "object"},
    Method.CONCAT: {"type": ["array", "string"]},
}
"""The results that a method takes; the others take any (SPEC R3.2)."""
_GROWN: Final[dict[Method, set[str]]] = {
    Method.ASSIGN: {"object"},
    Method.MERGE: {"object"},
    Method.CONCAT: {"array", "string"},
}
"""What a method adds to rather than replaces: of that only the type counts."""
_TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")


def kind_findings(layout: Layout, algebra: Algebra, flow: TypeFlow) -> Iterator[Finding]:
    """What calls write and kinds or methods do not admit."""
    kinds = _Kinds(layout, algebra, flow)
    for lane in {id(lane.calls): lane for lane in layout.lanes.values()}.values():
        for call in lane.calls:
            yield from kinds.refused(lane, call)


@dataclass(frozen=True)
class _Kinds:
    """What the schemas of kinds say of results."""

    layout: Layout
    algebra: Algebra
    flow: TypeFlow
    admitted: dict[tuple[CompiledSchema, Path], Values] = field(default_factory=dict)

    def refused(self, lane: Lane, call: Call) -> Iterator[Finding]:
        """The finding on a call whose result can be written nowhere."""
        if call.output is None:
            return
        given = self.flow.result(call)
        at = place_in(call.raw, "_outputPath")
        taken = self.algebra.described_by(_TAKEN.get(call.method, True))
        if not is_empty(given) and not self.algebra.fit(given, taken):
            why = f"writes by {call.method}, which takes {told(taken)}, and gives {told(given)}"
            yield on_call(self.layout, "ACT206", call, why, "change the _outputMethod, or the _output of the tool", *at)
            return
        reasons = [self._reason(lane, call.method, group, given) for group in call.output.alternatives]
        if reasons and all(reasons):
            remedy = "change the path, or one of the two schemas"
            yield on_call(self.layout, "ACT203", call, str(reasons[0]), remedy, *at)

    def _reason(self, lane: Lane, method: Method, group: tuple[Reference, ...], given: Values) -> str | None:
        """Why an alternative is never written, where one of its places does not admit the result."""
        for place in group:
            schema = self.layout.context.fold(lane.instance).schema(place.kind)
            if schema is MISSING or place.kind == FAILURES or not place.path:
                continue
            if not self._admits(compiled(schema), place.path, method, given):
                wanted = self._at(compiled(schema), place.path)
                admitted = "admits nothing there" if is_empty(wanted) else f"admits {told(wanted)}"
                return f"writes {told(given)} to {place}, and the schema of {place.kind} {admitted}"
        return None

    def _admits(self, schema: CompiledSchema, path: Path, method: Method, given: Values) -> bool:
        """Whether a write may be admitted, by what speaks of its place and of nothing above (SPEC R4.6)."""
        types = types_of(given)
        grown = {"array"} if method is Method.PUSH else types & _GROWN.get(method, set())
        if is_empty(given):
            return True
        if any(schema.admits(path, type_) for type_ in grown):
            is_prefixed = any(isinstance(part, dict) and "prefixItems" in part for part in schema.parts(path))
            is_one = method is Method.PUSH and not is_prefixed  # else its place is not known, or not looked at
            return not is_one or self.algebra.fit(given, self._at(schema, (*path, 0)))
        is_other = not grown or (method is Method.MERGE and bool(types - grown))
        return is_other and self.algebra.fit(given, self._at(schema, path))

    def _at(self, schema: CompiledSchema, path: Path) -> Values:
        """What may be written at a path."""
        key = schema, path
        if key not in self.admitted:
            is_closed = not any(schema.admits(path, type_) for type_ in _TYPES)
            parts = {"allOf": schema.parts_at(path)}
            self.admitted[key] = NOTHING if is_closed else self.algebra.made_of(excerpt(parts, schema.document))
        return self.admitted[key]
