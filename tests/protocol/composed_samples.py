"""Samples: what a model may answer by a composed schema, drawn from the schema alone (SPEC R12.3, R12.4)."""

from __future__ import annotations

from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from acts_celery.protocol.requests.widening import REFERENCE, TEMPLATE
from acts_celery.protocol.schemas import CompiledSchema, referred

from .schema_strategies import schema_values

TEMPLATES = ("†{state.x}", "a †{input.y || state.x}, ††{†{state}")
READ = ("†state.x", "†input.y || †state.x", "†state.x && †input.y", "†state")
"""Places that are there."""
WRITTEN = ("†data.out", "†data.other.place", "†data.a || †data.b")
"""Places that no sample reads, so that no cycle comes of it."""


@st.composite
def answers(draw: st.DrawFn, composed: dict[str, Any]) -> dict[str, Any]:
    """An answer that the schema admits."""
    schema = CompiledSchema(composed)
    answer = draw(drawn(composed, composed))
    assume(not schema.problems(answer))
    return answer  # type: ignore[no-any-return]  # the schema says that it is an object


@st.composite
def drawn(draw: st.DrawFn, schema: Any, root: Any, name: str = "", depth: int = 0) -> Any:
    """A value that a schema may well admit: not all of its keywords are looked at."""
    if not isinstance(schema, dict) or not schema:
        assume(schema is not False)
        return draw(st.one_of(schema_values, st.sampled_from([*READ, *TEMPLATES])))
    if "$ref" in schema:
        return draw(drawn(referred(schema["$ref"], root), root, name, depth + 1)) if depth < 12 else None
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    if schema == REFERENCE:
        return draw(st.sampled_from(WRITTEN if name == "_outputPath" else READ))
    if schema == TEMPLATE:
        return draw(st.sampled_from(TEMPLATES))
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in schema and ("properties" not in schema or draw(st.booleans())):
            branch = draw(st.sampled_from(schema[keyword]))
            return draw(drawn({**schema, **branch} if _is_object(branch) else branch, root, name, depth + 1))
    if _is_object(schema):
        return draw(_objects(schema, root, depth))
    if "items" in schema or "prefixItems" in schema or schema.get("type") == "array":
        most = min(schema.get("maxItems", 3), 3)
        size = draw(st.integers(min(schema.get("minItems", 0), most), most))
        first = schema.get("prefixItems", [])[:size]
        elements = [*first, *[schema.get("items", True)] * (size - len(first))]
        return [draw(drawn(element, root, "", depth + 1)) for element in elements]
    return draw(st.one_of(schema_values, st.sampled_from([*READ, *TEMPLATES])))


def _is_object(schema: Any) -> bool:
    return isinstance(schema, dict) and ("properties" in schema or schema.get("type") == "object")


@st.composite
def _objects(draw: st.DrawFn, schema: Any, root: Any, depth: int) -> Any:
    required = schema.get("required", ())
    return {
        key: draw(drawn(below, root, key, depth + 1))
        for key, below in schema.get("properties", {}).items()
        if key in required or (below is not False and draw(st.booleans()))
    }
