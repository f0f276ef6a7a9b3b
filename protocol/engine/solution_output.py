"""The output of a solution: references in it are read when all calls have ended, as a global reader (SPEC R4.9)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from protocol.calls.call import Call, evaluated
from protocol.graph.writers import Writers
from protocol.language.errors import ExpressionError, Problem, pointer, unparsed
from protocol.language.paths import strings
from protocol.language.references import DAGGER, Reference, is_expression, parse
from protocol.state.context import Context
from protocol.state.fold import Fold

_NO_CALL = -1


def resolve_output(output: Any, fold: Fold) -> Any:
    """The output with its expressions replaced by their values; `fold` holds the global values at the end.

    Raises `Unresolved` or `Conflict`, naming the reference.
    """
    return evaluated(output, fold)


def holds_references(output: Any) -> bool:
    """Whether an output has to be resolved: it holds expressions, or texts that are escaped (SPEC R2.2)."""
    return any(text.startswith(DAGGER) for _, text in strings(output))


def output_problems(output: Any, context: Context, calls: Iterable[Call], *at: str | int) -> Iterator[Problem]:
    """What keeps an output from being resolved, whatever its calls do: expressions that do not parse, and such as no
    value of the context and no call without an instance can satisfy (SPEC R6.3).
    """
    writers: Writers | None = None
    for place, text in strings(output):
        if not is_expression(text):
            continue
        try:
            expression = parse(text)
        except ExpressionError as error:
            yield unparsed(error, *at, *place)
            continue
        if writers is None:
            writers = Writers(call for call in calls if call.instance is None)
        groups = (all(_may_be(one, context, writers) for one in group) for group in expression.alternatives)
        if not any(groups):
            yield Problem(
                pointer(*at, *place),
                f"unresolvable reference {expression}: it is not in the context and no global call writes it",
            )


def _may_be(place: Reference, context: Context, writers: Writers) -> bool:
    return context.fold().exists(place) or writers.has_other(place, than=_NO_CALL)
