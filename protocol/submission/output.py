"""The output of a solution, before anything runs: what its schema forbids, and what can never be read in it
(SPEC R4.9, R7.1); and schemas that no output fits (SPEC R12.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.graph.lanes import Unresolvable
from acts_celery.protocol.graph.writers import Writers
from acts_celery.protocol.language.errors import ExpressionError, Problem, pointer, unparsed
from acts_celery.protocol.language.paths import strings
from acts_celery.protocol.language.references import Reference
from acts_celery.protocol.language.templates import expressions_in, standing_in
from acts_celery.protocol.schemas import compiled
from acts_celery.protocol.schemas.algebra import Algebra, types_of
from acts_celery.protocol.state.context import Context

_NO_CALL: Final = -1


def misfit_problems(output: Any, schema: Any, *at: str | int) -> Iterator[Problem]:
    """What a valid schema says against the output, references in it standing for any value; null is no output."""
    if output is not None:
        for problem in compiled(schema).problems(standing_in(output), lenient=True):
            yield Problem(pointer(*at) + problem.pointer, problem.message, problem.cause)


def null_problems(schema: Any, *at: str | int) -> Iterator[Problem]:
    """That a valid schema admits null alone: that is no output, so no answer ends its request (SPEC R12.3)."""
    if not compiled(schema).problems(None) and types_of(Algebra().made_of(schema)) == {"null"}:
        yield Problem(pointer(*at), "admits null alone, which means that there is no output yet: admit other values")


def output_problems(
    output: Any, context: Context, calls: Iterable[Call], *at: str | int, is_in_loop: bool = False
) -> Iterator[Problem]:
    """What keeps an output from being resolved, whatever its calls do: expressions that do not parse, and such as no
    value of the context and no call without an instance can satisfy (SPEC R6.3). In a loop no call brings an error in
    time (SPEC R13.1).
    """
    writers: Writers | None = None
    for place, text in strings(output):
        try:
            expressions = expressions_in(text)
        except ExpressionError as error:
            yield unparsed(error, *at, *place)
            continue
        for expression in expressions:
            if writers is None:
                own = [call for call in calls if call.instance is None]
                writers = Writers(own, failing=() if is_in_loop else own)
            if not any(all(_may_be(one, context, writers) for one in group) for group in expression.alternatives):
                yield Problem(
                    pointer(*at, *place),
                    f"unresolvable reference {expression}: it is not in the context and no global call writes it",
                    Unresolvable(_NO_CALL, pointer(*place), expression, None),
                )


def _may_be(place: Reference, context: Context, writers: Writers) -> bool:
    return context.fold().exists(place) or next(writers.lines(place), None) is not None
