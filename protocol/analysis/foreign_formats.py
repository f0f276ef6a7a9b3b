"""Foreign formats: tools as other systems declare them, with the schema of their calls inside (SPEC R4.1).

To this protocol a tool is itself that schema. What stands under a keyword that JSON Schema does not know means nothing,
so that any call would fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from protocol.schemas.parts import found

_CALLS: Final = (
    ("parameters",),
    ("input_schema",),
    ("inputSchema",),
    ("function", "parameters"),
)
"""Where the schema of the calls stands elsewhere."""
_RESULTS: Final = ("output_schema", "outputSchema")


def unwrapping(declaration: Mapping[str, Any]) -> Iterator[str]:
    """What stands in a declaration as other systems have it, and where it belongs."""
    if (path := calls_inside(declaration)) is not None:
        yield f"a tool is itself the JSON Schema of its calls, put what is under {path} in its place"
    for key in _RESULTS:
        if isinstance(declaration.get(key), dict) and "_output" not in declaration:
            yield f"the schema of a tool's result is its _output, put what is under {key} there"


def calls_inside(declaration: Mapping[str, Any]) -> str | None:
    """Where in a declaration the schema of the calls stands, if it is not the declaration itself."""
    paths = () if "properties" in declaration else _CALLS
    return next((".".join(path) for path in paths if _is_for_calls(found(path, declaration))), None)


def _is_for_calls(schema: Any) -> bool:
    return isinstance(schema, dict) and ("properties" in schema or schema.get("type") == "object")
