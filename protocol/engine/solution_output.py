"""The output of a solution: references in it are read when all calls have ended, as a global reader (SPEC R4.9)."""

from __future__ import annotations

from typing import Any

from acts_celery.protocol.calls.call import evaluated
from acts_celery.protocol.language.errors import Conflict, ExpressionError, Unresolved
from acts_celery.protocol.language.paths import strings
from acts_celery.protocol.language.references import DAGGER
from acts_celery.protocol.state.fold import Fold


def resolve_output(output: Any, fold: Fold) -> Any:
    """The output with its expressions replaced by their values; `fold` holds the global values at the end.

    Raises `Unresolved` or `Conflict`, naming the reference.
    """
    return evaluated(output, fold)


def output_fault(output: Any, fold: Fold) -> str | None:
    """Why the output cannot be read, naming the reference; None where it can."""
    if not holds_references(output):
        return None
    try:
        resolve_output(output, fold)
    except (Unresolved, Conflict, ExpressionError) as error:
        return f"the output cannot be read: {error}"
    return None


def holds_references(output: Any) -> bool:
    """Whether an output has to be resolved: it holds expressions, or texts that are escaped (SPEC R2.2)."""
    return any(text.startswith(DAGGER) for _, text in strings(output))
