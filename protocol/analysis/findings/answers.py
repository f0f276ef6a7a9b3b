"""Answers: calls that no answer can be right for (SPEC R4.6, R9.3).

What an activity gives is held against its tool's `_output`; what a delegate answers against the delegate's schema, and
then, as the result of the call, against the tool's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from protocol.calls.call import Call
from protocol.calls.tools import Runner, Tool
from protocol.language.paths import MISSING
from protocol.schemas import Schema

from .cases import shape_at
from .effects import delegate_schema
from .finding import Finding
from .fitting import misfit


def answer_findings(
    calls: Iterable[Call], tools: Mapping[str, Tool], delegates: Mapping[str, Any]
) -> Iterator[Finding]:
    """The calls that can never succeed whatever they are answered; an exception may be an answer (SPEC R4.4)."""
    known: dict[tuple[str, Runner], str | None] = {}
    for call in calls:
        if call.output is None or len(call.output.alternatives) > 1 or call.given is not MISSING:
            continue
        asked = call.tool, call.runner
        if asked not in known:
            tool = tools.get(call.tool)
            known[asked] = _why(
                call, tool.output_schema if tool is not None else None, delegate_schema(call, delegates)
            )
        if (why := known[asked]) is not None:
            yield Finding(
                "warning",
                f"call {call.index} ({call.tool}) can never succeed: no answer can be right, as {why}; change one of "
                "the schemas",
                (call.index,),
                lost=call.index,
            )


def _why(call: Call, promised: Schema | None, answered: Schema | None) -> str | None:
    if promised is not None and shape_at(promised).is_impossible:
        return "its tool's _output admits nothing"
    if answered is None:
        return None
    if shape_at(answered).is_impossible:
        return f"the schema of delegate {call.runner.name!r} admits nothing"
    why = misfit(shape_at(answered), shape_at(promised)) if promised is not None else None
    return (
        f"the schema of delegate {call.runner.name!r} and the tool's _output exclude each other: {why}" if why else None
    )
