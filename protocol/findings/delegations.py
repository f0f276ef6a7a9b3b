"""Delegations: calls whose delegate can never give what it has to (SPEC R4.6, R9.3).

A delegate's answer is held against the delegate's schema and then, as the result of the call, against the tool's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from protocol.calls import Call
from protocol.tools import Tool

from .cases import shape_at
from .effects import delegate_schema
from .finding import Finding
from .fitting import misfit


def delegate_findings(
    calls: Iterable[Call], tools: Mapping[str, Tool], delegates: Mapping[str, Any]
) -> Iterator[Finding]:
    """The calls to delegates of the submission of whose answers none can be right."""
    for call in calls:
        schema, tool = delegate_schema(call, delegates), tools.get(call.tool)
        if schema is None:
            continue
        answer = shape_at(schema)
        promised = shape_at(tool.output_schema) if tool is not None and tool.output_schema is not None else None
        why = misfit(answer, promised) if promised is not None else None
        if answer.is_impossible:
            why = "its schema admits nothing"
        elif why is not None:
            why = f"its schema and the tool's _output exclude each other: {why}"
        if why is not None:
            yield Finding(
                "warning",
                f"call {call.index} ({call.tool}) can never succeed: of what delegate {call.runner.name!r} answers "
                f"nothing can be right, as {why}; change one of the schemas",
                (call.index,),
            )
