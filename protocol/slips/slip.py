"""Slips: a text that reads as a reference, in whatever system's way, and is none, with what was meant (SPEC R2.2)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from acts_celery.protocol.language.errors import shortened
from acts_celery.protocol.language.references import Reference, expression_in, is_expression

from .embedded import NAME, PATH, STEP, as_template

_TEMPLATES: Final = tuple(
    re.compile(pattern.replace("PATH", r"([^{}<>$\n]{1,200})"))
    for pattern in (r"\{\{PATH\}\}", r"\$\{PATH\}", r"\$\.?PATH\$?", r"\$\{\{PATH\}\}", r"%\{PATH\}")
)
"""A value as other systems name it: hardly ever anything else."""
_BRACKETS: Final = tuple(
    re.compile(pattern.replace("PATH", r"([^{}<>$\n]{1,200})")) for pattern in (r"\{PATH\}", r"<PATH>", r"\[PATH\]")
)
"""What may be a text as well: it counts where what it names is known."""
ANY_TEMPLATE: Final = (*_TEMPLATES, *_BRACKETS)
_BARE: Final = re.compile(rf"{NAME}{STEP}+")


class Named(Protocol):
    """Places by the names that texts have for them."""

    def meant(self, text: str) -> Reference | None:
        """The known place with a path that a text names without a dagger, with or without its kind."""
        ...


@dataclass(frozen=True, slots=True)
class Slip:
    """What is said of a text: the code of the finding, what it says, and the remedy."""

    code: str
    why: str
    remedy: str


def slip_in(text: str, places: Named, is_shown: Callable[[Reference], bool]) -> Slip | None:
    """The slip that a text is. `is_shown` tells of a place whether whoever carries out the call sees it: then a
    template of another system may be meant for them.
    """
    if is_expression(text) or len(text) <= 2:
        return None
    return _whole(text, places, is_shown) or _embedded(text, places, is_shown)


def named_by(text: str, patterns: Iterable[re.Pattern[str]] = ANY_TEMPLATE) -> str | None:
    """What a text names that is a template from end to end."""
    return next((match[1] for each in patterns if (match := each.fullmatch(text)) is not None), None)


def _whole(text: str, places: Named, is_shown: Callable[[Reference], bool]) -> Slip | None:
    """What is said of a text that is nothing but a place."""
    said = f"has the text {shortened(text)!r}"
    blank = expression_in(text.strip()) if text[:1].isspace() else None
    if blank is not None:
        return Slip("ACT301", f"{said}, and white space before the † makes it a text", f"write {blank}")
    stripped = text.strip()
    for patterns, is_certain in ((_TEMPLATES, True), (_BRACKETS, False)):
        if (name := named_by(stripped, patterns)) is not None:
            meant = places.meant(name)
            if meant is not None and is_shown(meant):
                return None
            is_braced = "." in name or stripped.startswith(("{{", "${"))  # `$5` and `$HOME` are texts
            if meant is not None or (is_certain and is_braced and re.fullmatch(PATH, name.strip())):
                why = f"{said}, which other systems replace by a value; here it stays a text"
                return Slip("ACT302", why, f"write {meant}" if meant else "write a reference such as †state.user.name")
    meant = places.meant(stripped) if _BARE.fullmatch(stripped) else None
    if meant is not None:
        why = f"{said}, which names a place and has no †: it stays a text"
        return Slip("ACT301", why, f"write {meant}")
    return None


def _embedded(text: str, places: Named, is_shown: Callable[[Reference], bool]) -> Slip | None:
    """References inside a longer text."""

    def meant(name: str) -> Reference | None:
        place = places.meant(name) if "." in name else None
        return place if place is not None and not is_shown(place) else None

    if (found := as_template(text, meant)) is None:
        return None
    first, corrected = found
    why = f"has {first!r} inside a text, where nothing is read"
    return Slip("ACT305", why, f"write {shortened(corrected)!r}")
