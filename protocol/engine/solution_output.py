"""The output of a solution: references in it are read when all calls have ended, as a global reader (SPEC R4.9); that
of a loop's tick is accepted, or set aside (SPEC R13.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from acts_celery.protocol.language.errors import Conflict, ExpressionError, Unresolved
from acts_celery.protocol.language.limits import Limits
from acts_celery.protocol.language.paths import strings
from acts_celery.protocol.language.references import DAGGER
from acts_celery.protocol.language.templates import evaluated, expressions_in
from acts_celery.protocol.schemas import compiled
from acts_celery.protocol.state.allowance import Allowance, TooLarge
from acts_celery.protocol.state.fold import Fold
from acts_celery.protocol.state.labels import TRUSTED, Labels

from .loop_events import TickError

_MOST: Final = Limits()


def resolve_output(output: Any, fold: Fold) -> Any:
    """The output with its expressions and templates replaced by values; `fold` holds the global values at the end.

    It is measured before anything is copied or joined, by the same limits for all who read it. Raises `Unresolved` or
    `Conflict`, naming the reference.
    """
    try:
        return evaluated(output, Allowance(fold, _MOST))
    except TooLarge:
        most = f"{_MOST.call_bytes} bytes, or {_MOST.containers} objects and lists"
        raise Unresolved(f"it comes to more than {most}") from None


def output_fault(output: Any, fold: Fold, schema: Any = None) -> str | None:
    """Why the output cannot be read, naming the reference, or what its schema says against what was read; None where
    all is well. What holds no reference was held against the schema when it was submitted (SPEC R7.1).
    """
    if not holds_references(output):
        return None
    try:
        found = resolve_output(output, fold)
    except (Unresolved, Conflict, ExpressionError) as error:
        return f"the output cannot be read: {error}"
    problems = compiled(schema).problems(found, "output", known=()) if schema is not None else []
    return "the output does not fit its schema: " + "; ".join(map(str, problems)) if problems else None


def holds_references(output: Any) -> bool:
    """Whether an output has to be resolved: it holds expressions, templates, or what may be escaped (SPEC R2.2)."""
    return any(DAGGER in text for _, text in strings(output))


def output_labels(output: Any, fold: Fold) -> Labels:
    """The sources of all that an output reads, where its expressions can be read (SPEC R16.2)."""
    labels = TRUSTED
    for _, text in strings(output):
        with suppress(ExpressionError):
            for expression in expressions_in(text):
                labels = labels.union(*(fold.marks(place).labels for place in expression.references))
    return labels


@dataclass(frozen=True, slots=True)
class OutputVerdict:
    """What an output comes to when its tick's calls have ended: accepted, or set aside for these errors."""

    output: Any = None
    errors: tuple[TickError, ...] = ()
    set_aside: str | None = None

    @property
    def is_accepted(self) -> bool:
        """Whether the run is completed with it."""
        return self.output is not None and self.set_aside is None


def judge_output(output: Any, schema: Any, fold: Fold, errors: Iterable[TickError]) -> OutputVerdict:
    """Look at a solution's output once its calls have ended (SPEC R4.9, R13.1); `fold` holds the global values, and
    `errors` are those of its tick.
    """
    if output is None:
        return OutputVerdict()
    pointers = [error.pointer for error in errors]
    if any(pointer.startswith("/calls") for pointer in pointers):
        return OutputVerdict(output, set_aside="a call that came with it failed, or was not valid")
    if pointers:
        return OutputVerdict(output, set_aside="the answer is not valid")
    try:
        found = resolve_output(output, fold)
    except (Unresolved, Conflict, ExpressionError) as error:
        return _unfit(output, [TickError("InvalidOutput", f"the output cannot be read: {error}", "/output")])
    problems = compiled(schema).problems(found, known=())
    if problems:
        return _unfit(found, [TickError("InvalidOutput", p.message, f"/output{p.pointer}") for p in problems])
    return OutputVerdict(found)


def _unfit(output: Any, errors: list[TickError]) -> OutputVerdict:
    return OutputVerdict(output, tuple(errors), "; ".join(f"{error.pointer}: {error.message}" for error in errors))
