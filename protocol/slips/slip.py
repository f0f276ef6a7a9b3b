"""Slips: a text that reads as a reference, in whatever system's way, and is none (SPEC R2.2, R12.6b).

In a plan a slip is a finding. In a model's answer it is an error, so only what is certain counts there: not what stands
in brackets, and no place that is not known, but for a reference inside a longer text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Final

from acts_celery.protocol.graph.promises import named_below, parts_of
from acts_celery.protocol.language.errors import shortened
from acts_celery.protocol.language.messages import DATA_TYPES
from acts_celery.protocol.language.references import DAGGER, Path, Reference, expression_in, is_expression

from .embedded import NAME, PATH, STEP, Form, as_template
from .naming import NamedPlaces

_TEMPLATES: Final = tuple(
    re.compile(pattern.replace("PATH", r"([^{}<>$\n]{1,200})"))
    for pattern in (r"\{\{PATH\}\}", r"\$\{PATH\}", r"\$\.?PATH\$?", r"\$\{\{PATH\}\}", r"%\{PATH\}")
)
"""A value as other systems name it: hardly ever anything else."""
_BRACKETS: Final = tuple(
    re.compile(pattern.replace("PATH", r"([^{}<>$\n]{1,200})")) for pattern in (r"\{PATH\}", r"<PATH>", r"\[PATH\]")
)
"""What may be a text as well: it counts where what it names is known."""
_PLACEHOLDER: Final = re.compile(r"\$([1-9][0-9]?)|#E([1-9][0-9]?)|<GENERATED>-([0-9]{1,2})")
"""What other planners write for the result of a step: the first one is 1, 1 and 0."""
_BARE: Final = re.compile(rf"{NAME}{STEP}+")


@dataclass(frozen=True, slots=True)
class Slip:
    """What is said of a text."""

    code: str
    """Of the finding."""
    why: str
    remedy: str
    corrected: str | None
    """The text as it was meant, where that is known."""


def _never(_: Reference) -> bool:
    return False


@dataclass(frozen=True)
class Slips:
    """Tells what is wrong with texts, by the places that there are.

    `is_shown` tells of a place whether whoever carries out the call sees it: then a template of another system may be
    meant for them.
    """

    places: NamedPlaces
    is_shown: Callable[[Reference], bool] = _never
    is_certain: bool = False

    def of(self, text: str) -> Slip | None:
        """The slip that a text is."""
        if is_expression(text) or len(text) <= 2:
            return None
        return self._whole(text) or self._embedded(text)

    def _whole(self, text: str) -> Slip | None:
        """What is said of a text that is nothing but a place."""
        said, stripped = f"has the text {shortened(text)!r}", text.strip()
        blank = expression_in(stripped) if text[:1].isspace() else None
        if blank is not None:
            return _slip("ACT301", f"{said}, and white space before the † makes it a text", str(blank))
        for patterns, is_sign in ((_TEMPLATES, True), *([(_BRACKETS, False)] if not self.is_certain else [])):
            if (name := named_by(stripped, patterns)) is not None:
                why = f"{said}, which other systems replace by a value; here it stays a text"
                if (meant := self.places.meant(name)) is not None:
                    return _slip("ACT302", why, str(meant)) if not self.is_shown(meant) else None
                is_braced = "." in name or stripped.startswith(("{{", "${"))  # `$5` and `$HOME` are texts
                if is_sign and is_braced and re.fullmatch(PATH, name.strip()) and not self.is_certain:
                    return Slip("ACT302", why, "write a reference such as †state.user.name", None)
        meant = self.places.meant(stripped) if _BARE.fullmatch(stripped) else None
        if meant is not None and (not self.is_certain or self._is_path(stripped, meant)):
            why = f"{said}, which names a place and has no †: it stays a text"
            return _slip("ACT301", why, str(meant))
        return None

    def _is_path(self, text: str, place: Reference) -> bool:
        """Whether a text is the path of a place, and not the name of a file or a host by chance: it begins with a kind,
        or something is at this very place.
        """
        kind = re.match(NAME, text)
        return (kind is not None and kind[0] == place.kind) or self.places.is_named(place)

    def _embedded(self, text: str) -> Slip | None:
        """References inside a longer text."""
        if (found := as_template(text, self._read)) is None:
            return None
        why = f"has {found.found[0][0]!r} inside a text, where nothing is read"
        return Slip("ACT305", why, found.remedy, found.corrected)

    def _read(self, name: str, form: Form) -> Reference | None:
        """What is meant to be read inside a text."""
        if form is Form.BRACES and (self.is_certain or "." not in name):
            return None
        place = self.places.meant(name)
        if place is None and form is Form.REFERENCE:
            expression = expression_in(DAGGER + name)
            place = expression.references[0] if expression is not None else None
            is_one = place is not None and place.path and place.kind in (*DATA_TYPES, *self.places.kinds())
            place = place if is_one else None
        return place if place is not None and not self.is_shown(place) else None


def placeholder(text: str, count: int, written: Callable[[int], Sequence[Reference]]) -> Slip | None:
    """The slip that a whole text is which stands for the result of a step in plans of other systems: `$1`, `#E1`,
    `<GENERATED>-0`. `count` calls stand before its own, and `written` gives the places that one of them writes.
    """
    if count == 0 or (match := _PLACEHOLDER.fullmatch(text)) is None:
        return None
    amount, step, task = match.groups()
    at = int(task) if task is not None else int(amount or step) - 1
    if amount is not None and at >= count:
        return None  # a price
    why = f"has the text {text!r}, which other planners replace by the result of a step; here it stays a text"
    places = written(at) if at < count else ()
    if len(places) == 1:
        return _slip("ACT302", why, str(places[0]))
    return Slip("ACT302", why, "write the place that the other call writes, such as †state.found", None)


class Literals:
    """Tells which texts of a value are meant as they stand: what its schema lists, or what has `"_literal": true` at
    its place or above. What the schema says of a place is looked up once, however many texts are there.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema

    @cached_property
    def _root(self) -> _Place | None:
        return _Place(self._schema, [self._schema], {}) if isinstance(self._schema, dict) else None

    def has(self, at: Path, text: str) -> bool:
        """Whether a text at a place is meant."""
        place = self._root
        for segment in at:
            if place is None or place.is_literal:
                break
            place = place.below(segment)
        return place is not None and (place.is_literal or text in place.listed)


class _Place:
    """What a document says of some place, by the schemas that apply there; `known` are the places looked up so far."""

    def __init__(self, root: Any, schemas: list[Any], known: dict[tuple[int, ...], _Place]) -> None:
        self._root, self._known = root, known
        self._parts = parts_of(schemas, root)
        self._below: dict[str | int, _Place | None] = {}
        self.is_literal = any(part.get("_literal") is True for part in self._parts)
        enums = (part["enum"] for part in self._parts if isinstance(part.get("enum"), list))
        consts = (part.get("const") for part in self._parts)
        self.listed = {one for one in (*chain.from_iterable(enums), *consts) if isinstance(one, str)}
        prefixes = (part["prefixItems"] for part in self._parts if isinstance(part.get("prefixItems"), list))
        self._first = max(map(len, prefixes), default=0)
        properties = (part["properties"] for part in self._parts if isinstance(part.get("properties"), dict))
        self._named = frozenset(chain.from_iterable(properties))

    def below(self, segment: str | int) -> _Place | None:
        """The place one step down; None where nothing is said of it."""
        if str(segment) in self._named or (isinstance(segment, int) and segment < self._first):
            key: str | int = segment
        elif isinstance(segment, int):
            key = -1  # of all other elements the same is said
        else:
            return None
        if key not in self._below:
            self._below[key] = self._looked_up([one for part in self._parts for one in named_below(part, segment)])
        return self._below[key]

    def _looked_up(self, schemas: list[Any]) -> _Place | None:
        if not schemas:
            return None
        same = tuple(map(id, schemas))
        if same not in self._known:
            self._known[same] = _Place(self._root, schemas, self._known)
        return self._known[same]


def named_by(text: str, patterns: Iterable[re.Pattern[str]] = (*_TEMPLATES, *_BRACKETS)) -> str | None:
    """What a text names that is a template from end to end."""
    return next((match[1] for each in patterns if (match := each.fullmatch(text)) is not None), None)


def _slip(code: str, why: str, corrected: str) -> Slip:
    return Slip(code, why, f"write {corrected}", corrected)
