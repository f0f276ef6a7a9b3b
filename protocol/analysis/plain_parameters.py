"""Plain parameters: those of a call that are one reference each, of a contract that speaks of each parameter by itself.

Most calls of most plans are so. The rest of such a call is held against the contract once, for all instances; then a
value in an instance costs one validation (SPEC R17.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.contract import Contract
from acts_celery.protocol.language.errors import Conflict, Unresolved
from acts_celery.protocol.language.references import Expression
from acts_celery.protocol.language.templates import assumed_meaning
from acts_celery.protocol.schemas import compiled
from acts_celery.protocol.schemas.leniency import holds_expression
from acts_celery.protocol.schemas.validation import Checker
from acts_celery.protocol.state.fold import Fold

_KEYWORDS: Final = frozenset(
    ("$defs", "$schema", "_trust", "additionalProperties", "description", "properties", "required", "title", "type")
)


def is_plain(contract: Contract) -> bool:
    """Whether a contract speaks of each parameter by itself."""
    return contract.schema.keys() <= _KEYWORDS


@dataclass(frozen=True, slots=True)
class PlainParameters:
    """The references of a call that its contract admits but for their values."""

    references: Mapping[str, tuple[Expression, Checker | None]]
    """By the parameter: what is read, and what it has to fit."""

    @classmethod
    def of(cls, call: Call, contract: Contract, mark: str) -> Self | None:
        """Those of a call; None where they do not say it all."""
        if call.each or call.gather or not is_plain(contract):
            return None
        read: dict[str, tuple[Expression, Checker | None]] = {}
        for key, value in call.parameters.items():
            found = assumed_meaning(value) if isinstance(value, str) else value
            if isinstance(found, Expression) and found.alternatives:
                wanted = contract.tool.compiled.excerpt_at((key,))
                read[key] = found, compiled(wanted).checker(()) if wanted is not None else None
            elif not isinstance(found, str) and holds_expression(call.standing_in()[key]):
                return None
        return None if contract.problems(call.standing_in(), mark, lenient=True) else cls(read)

    def misfit(self, fold: Fold, is_known: Callable[[Expression], bool]) -> str | None:
        """The first parameter whose value does not fit; nothing where all do, and None where one is not known yet."""
        first = ""
        try:
            for key, (expression, wanted) in self.references.items():
                if not is_known(expression):
                    return None
                value = fold.peek(expression)
                if not first and wanted is not None and not wanted.is_valid(value):
                    first = key
        except (Unresolved, Conflict, ValueError):
            return None
        return first
