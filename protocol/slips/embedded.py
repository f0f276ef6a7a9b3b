"""Embedded references: what was meant to be read in the middle of a text, and the text as a template (SPEC R2.6)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from acts_celery.protocol.language.errors import ExpressionError
from acts_celery.protocol.language.references import DAGGER, Expression, Reference, expression_in, is_expression
from acts_celery.protocol.language.templates import OPENING, Template, bare, meaning

Meant = Callable[[str], Reference | None]
"""The place that a name without a dagger means, if any."""

NAME: Final = r"[^\W\d][\w-]*"
STEP: Final = r"""(?:\.[\w-]+|\[(?:\d+|"[^"]*"|'[^']*')\])"""
PATH: Final = rf"{NAME}{STEP}*"
_EMBEDDED: Final = re.compile(
    rf"(?<!{DAGGER})(?:{DAGGER}?\$?\{{\{{\s*{DAGGER}?({PATH})\s*\}}\}}|{DAGGER}?\{{\s*{DAGGER}({PATH})\s*\}}"
    rf"|\$?\{{({PATH})\}}|{DAGGER}({NAME}(?:\.\w+(?:-\w+)*)+))"
)
"""`{{state.x}}`, `{†state.x}`, `${state.x}` and `†state.x`, also behind a dagger that makes no template of them."""
_MOST_MENDED: Final = 20
_LONGEST: Final = 10_000
"""Of a longer text nothing is guessed."""


def as_template(text: str, meant: Meant) -> tuple[str, str] | None:
    """The first of what was meant to be read in a text, as it stands there, and the text in which all of it is."""
    found: list[str] = []

    def written(match: re.Match[str]) -> str:
        place = meant(next(filter(None, match.groups())))
        if place is None:
            return match[0]
        found.append(match[0])
        return f"{OPENING}{bare(Expression(((place,),)))}}}"

    corrected = _EMBEDDED.sub(written, text) if DAGGER in text or "{" in text else text
    return (found[0], corrected) if found else None


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
    corrected = as_template(text, lambda name: meant(name) or _place(name))
    return _closed(corrected[1]) if corrected is not None else None


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
    """The text without the first fault of its templates: a dagger in braces, or braces that are never closed."""
    before, after = error.text[: error.position], error.text[error.position :]
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
