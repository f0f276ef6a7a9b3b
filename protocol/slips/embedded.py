"""Embedded references: what was meant to be read in the middle of a text, and the text as a template (SPEC R2.6)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from acts_celery.protocol.language.errors import ExpressionError
from acts_celery.protocol.language.references import DAGGER, Expression, Reference, expression_in, is_expression
from acts_celery.protocol.language.templates import OPENING, Template, bare, meaning

Meant = Callable[[str], Reference | None]
"""The place that a name without a dagger means, if any."""


class Form(Enum):
    """How a place is written in a text."""

    REFERENCE = "†state.x"
    TEMPLATE = "{{state.x}}"
    """Or `${state.x}`, or `$state.x`: hardly ever anything else."""
    BRACES = "{state.x}"
    """What may be a text as well."""


NAME: Final = r"[^\W\d][\w-]*"
STEP: Final = r"""(?:\.[\w-]+|\[(?:\d+|"[^"]*"|'[^']*')\])"""
PATH: Final = rf"{NAME}{STEP}*"
_DOTTED: Final = rf"{NAME}(?:\.\w+(?:-\w+)*)+"
_MARK: Final = r"\s*[\u2460-\u2473\u3251-\u325f\u32b1-\u32bf](?!\w)"
"""①, as an instance is called beside its data. No reference has one: a call's `_instance` says whose data is read."""
_EMBEDDED: Final = re.compile(
    rf"(?<!{DAGGER})(?:{DAGGER}?\$?\{{\{{\s*{DAGGER}?({PATH})\s*\}}\}}|{DAGGER}?\{{\s*{DAGGER}({PATH})\s*\}}"
    rf"|\$?\{{({PATH})\}}|{DAGGER}({_DOTTED})(?:{_MARK})?|\$({_DOTTED}))"
)
"""`{{state.x}}`, `{†state.x}`, `${state.x}`, `†state.x` and `$state.x`, also behind a dagger that makes no template of
them.
"""
_MOST_MENDED: Final = 20
_MOST_NAMED: Final = 20
_MOST_SHOWN: Final = 300
"""Characters of a text that is shown as it is to be."""
_LONGEST: Final = 10_000
"""Of a longer text nothing is guessed."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """What was meant to be read in a text: as it stands there, and what to write for it, in order; and the text in
    which all of it is read.
    """

    found: tuple[tuple[str, str], ...]
    corrected: str

    @property
    def remedy(self) -> str:
        """What to write: the text as it is to be, or where it is long what in it."""
        if len(self.corrected) <= _MOST_SHOWN:
            return f"write {self.corrected!r}"
        pairs = list(dict.fromkeys(self.found))
        more = f" and {len(pairs) - _MOST_NAMED} more" if len(pairs) > _MOST_NAMED else ""
        return "write " + ", ".join(f"{new} instead of {old}" for old, new in pairs[:_MOST_NAMED]) + more


def as_template(text: str, meant: Callable[[str, Form], Reference | None]) -> Embedded | None:
    """What was meant to be read in a text, if anything."""
    found: list[tuple[str, str]] = []

    def written(match: re.Match[str]) -> str:
        place = meant(next(filter(None, match.groups())), _form(match[0]))
        if place is None:
            return match[0]
        found.append((match[0], f"{OPENING}{bare(Expression(((place,),)))}}}"))
        return found[-1][1]

    corrected = _EMBEDDED.sub(written, text) if any(mark in text for mark in (DAGGER, "{", "$")) else text
    return Embedded(tuple(found), corrected) if found else None


def _form(text: str) -> Form:
    if DAGGER in text:
        return Form.REFERENCE
    return Form.BRACES if text.startswith("{") and not text.startswith("{{") else Form.TEMPLATE


def instead(text: str, position: int, meant: Meant) -> str | None:
    """What to write instead of a text that does not parse from a position on, as far as it can be guessed."""
    if len(text) > _LONGEST:
        return None
    try:
        found = meaning(text)
    except ExpressionError:
        return f"did you mean {mended!r}?" if (mended := _mended(text, position, meant)) is not None else None
    if isinstance(found, Template):  # it stands where none is read
        return f"write {found.expressions[0]}" if len(found.parts) == 1 else "no template is read here"
    return None


def _mended(text: str, position: int, meant: Meant) -> str | None:
    """The template that such a text was meant to be."""
    if text[1:2].isspace() and text.startswith(DAGGER):  # a dagger that the text begins with
        return _closed(DAGGER + text)
    if is_expression(text) and not (text[position - 1].isspace() and text[position : position + 1] not in "|&"):
        return None
    if (closed := _closed(text)) is not None:
        return closed
    found = as_template(text, lambda name, _: (meant(name) if "." in name else None) or _place(name))
    return _closed(found.corrected) if found is not None else None


def _closed(text: str) -> str | None:
    """The text with the braces of its templates in order, if it parses then."""
    for _ in range(_MOST_MENDED):
        try:
            meaning(text)
        except ExpressionError as error:
            if (mended := _next(error)) is None:
                return None
            text = mended
        else:
            return text
    return None


def _next(error: ExpressionError) -> str | None:
    """The text without its first fault: an instance's mark, a dagger in braces, or braces that are never closed."""
    before, after = error.text[: error.position], error.text[error.position :]
    if (mark := re.match(_MARK, after)) is not None:
        return before.rstrip() + after[mark.end() :]
    if is_expression(error.text):
        return None
    if after.startswith(DAGGER) and before.rstrip().endswith((OPENING, "||", "&&")):
        return before + after[1:]
    if "}" in after.partition(DAGGER)[0] or before.endswith((OPENING, ".", "|", "&")):
        return None
    end = len(before.rstrip().rstrip(",:;!?"))
    return f"{before[:end]}}}{before[end:]}{after}"


def _place(name: str) -> Reference | None:
    expression = expression_in(DAGGER + name) if "." in name else None
    return expression.references[0] if expression is not None else None
