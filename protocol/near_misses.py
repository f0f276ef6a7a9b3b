"""Near misses: texts that look like references but are not, and what was probably meant (SPEC R6.7, R12.6b)."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from itertools import islice
from typing import Any, Final, NamedTuple

from . import limits
from .calls.call import Call
from .errors import ExpressionError, Problem, Speller, pointer, shortened, some_of
from .messages import DATA_TYPES
from .paths import MISSING, index_or_key, strings
from .plan.checked_plan import CheckedPlan
from .plan.graph import Writers
from .plan.places import KIND, Places, Promises, WrittenPlaces
from .references import DAGGER, Expression, Path, Reference, expression_in, is_expression
from .schemas.walk import named_below, parts_of
from .templates import OPENING, Template, bare, meaning

# Embedded references: places in the middle of a text, and the text as a template (SPEC R2.6).

Meant = Callable[[str], Reference | None]
"""Finds the place that a name without a dagger means."""


class PlaceForm(Enum):
    """How a place is written in a text."""

    REFERENCE = "†state.x"
    TEMPLATE = "{{state.x}}"
    """Or `${state.x}`, or `$state.x`: hardly ever anything else."""
    BRACES = "{state.x}"
    """A form that may be a text as well."""


NAME: Final = r"[^\W\d][\w-]*"
STEP: Final = r"""(?:\.[\w-]+|\[(?:\d+|"[^"]*"|'[^']*')\])"""
PATH: Final = rf"{NAME}{STEP}*"
_DOTTED: Final = rf"{NAME}(?:\.\w+(?:-\w+)*)+"
_MARK: Final = r"\s*[\u2460-\u2473\u3251-\u325f\u32b1-\u32bf](?!\w)"
"""①, the name of an instance next to its data. No reference has one: a call's `_instance` says whose data is read."""
_EMBEDDED: Final = re.compile(
    rf"(?<!{DAGGER})(?:{DAGGER}?\$?\{{\{{\s*{DAGGER}?({PATH})\s*\}}\}}|{DAGGER}?\{{\s*{DAGGER}({PATH})\s*\}}"
    rf"|\$?\{{({PATH})\}}|{DAGGER}({_DOTTED})(?:{_MARK})?|\$({_DOTTED}))"
)
"""`{{state.x}}`, `{†state.x}`, `${state.x}`, `†state.x` and `$state.x`, also behind a dagger that makes no template of
them.
"""


@dataclass(frozen=True, slots=True)
class Embedded:
    """References that were meant inside a text.

    `found` has them in order, each as it is written and as it should be; `corrected` is the whole text with all of them
    right.
    """

    found: tuple[tuple[str, str], ...]
    corrected: str

    @property
    def remedy(self) -> str:
        """The advice to write the corrected text, or where it is long the references in it."""
        if len(self.corrected) <= limits.NEAR_MISSES_MOST_SHOWN:
            return f"write {self.corrected!r}"
        pairs = list(dict.fromkeys(self.found))
        return f"write {some_of(pairs, limits.NEAR_MISSES_MOST_NAMED, lambda pair: f'{pair[1]} instead of {pair[0]}')}"


def as_template(text: str, meant: Callable[[str, PlaceForm], Reference | None]) -> Embedded | None:
    """The references that were meant inside a text, if there are any."""
    found: list[tuple[str, str]] = []

    def written(match: re.Match[str]) -> str:
        place = meant(next(filter(None, match.groups())), _form(match[0]))
        if place is None:
            return match[0]
        found.append((match[0], f"{OPENING}{bare(Expression(((place,),)))}}}"))
        return found[-1][1]

    corrected = _EMBEDDED.sub(written, text) if any(mark in text for mark in (DAGGER, "{", "$")) else text
    return Embedded(tuple(found), corrected) if found else None


def _form(text: str) -> PlaceForm:
    if DAGGER in text:
        return PlaceForm.REFERENCE
    return PlaceForm.BRACES if text.startswith("{") and not text.startswith("{{") else PlaceForm.TEMPLATE


def instead(text: str, position: int, meant: Meant) -> str | None:
    """Advice about a text that does not parse from a position on, where the meaning can be guessed."""
    if len(text) > limits.NEAR_MISSES_LONGEST:
        return None
    try:
        found = meaning(text)
    except ExpressionError:
        return f"did you mean {mended!r}?" if (mended := _mended(text, position, meant)) is not None else None
    if isinstance(found, Template):  # in a place where none is read
        return f"write {found.expressions[0]}" if len(found.parts) == 1 else "no template is read here"
    return None


def _mended(text: str, position: int, meant: Meant) -> str | None:
    """The template that a text was meant to be which does not parse from a position on."""
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
    for _ in range(limits.NEAR_MISSES_MOST_MENDED):
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


# Naming: which place a text names that has no dagger.

_SEGMENT: Final = re.compile(r"""\.?([^.\[\]"']+)|\[(?:(\d+)|"([^"]*)"|'([^']*)')\]""")
"""A step in a path, as most systems write it: `.name`, `[0]`, `["a name"]`."""


class NamedPlaces(ABC):
    """Places that texts may name."""

    @abstractmethod
    def kinds(self) -> tuple[str, ...]:
        """The kinds that are there, or that a call writes."""

    @abstractmethod
    def has(self, place: Reference) -> bool:
        """Whether a value is at a place, or a call writes there, above it or below it."""

    @abstractmethod
    def is_named(self, place: Reference) -> bool:
        """Whether a value is at a place, or a call writes there or below it.

        A call that writes above the place need not write anything there.
        """

    @cached_property
    def _others(self) -> list[str]:
        return sorted({*self.kinds(), KIND} - {"state"})[: limits.NEAR_MISSES_MOST_KINDS]

    def meant(self, text: str) -> Reference | None:
        """The known place that a text names without a dagger, with or without its kind."""
        path = _path_in(text.strip().removeprefix(DAGGER).removeprefix("."))
        if path is None:
            return None
        own = (Reference(str(path[0]), path[1:]), *(Reference(kind, path) for kind in ("state", *self._others)))
        return next((place for place in own if place.path and self.has(place)), None)


def _path_in(text: str) -> Path | None:
    """The path of a text that is nothing else."""
    path: Path = ()
    position = 0
    while position < len(text):
        match = _SEGMENT.match(text, position)
        if match is None or len(path) == limits.MAX_SEGMENTS:
            return None
        key = next(part for part in match.groups() if part is not None)
        path = (*path, index_or_key(key) if path and not match[3] else key.strip())
        position = match.end()
    return path or None


# Near misses: texts that are references in some system and none in this one (SPEC R2.2, R12.6b).
#
# In a plan a near miss is a finding; it is an error where a reference to a known place is in the middle of a text
# (`embedded_problems`). In a model's answer each is an error, so there it has to be certain: a text in
# brackets is none, nor is an unknown place, except in a reference inside a longer text.

_TEMPLATES: Final = tuple(
    re.compile(pattern.replace("PATH", r"([^{}<>$\n]{1,200})"))
    for pattern in (r"\{\{PATH\}\}", r"\$\{PATH\}", r"\$\.?PATH\$?", r"\$\{\{PATH\}\}", r"%\{PATH\}")
)
"""Templates of other systems, which are hardly ever meant as texts."""
_BRACKETS: Final = tuple(
    re.compile(pattern.replace("PATH", r"([^{}<>$\n]{1,200})")) for pattern in (r"\{PATH\}", r"<PATH>", r"\[PATH\]")
)
"""Templates that may be meant as texts: they count where they name a known place."""
_PLACEHOLDER: Final = re.compile(r"\$([1-9][0-9]?)|#E([1-9][0-9]?)|<GENERATED>-([0-9]{1,2})")
"""Results of steps as other planners write them, counted from 1, 1 and 0."""
_BARE: Final = re.compile(rf"{NAME}{STEP}+")


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A text that was probably meant as a reference."""

    code: str
    """The code of the finding."""
    why: str
    remedy: str
    corrected: str | None
    """The text that was meant, where it is known."""


@dataclass(frozen=True)
class NearMisses:
    """Finds near misses by the known places.

    `is_shown` answers whether the code of the call sees a place: then a template of another system may be meant for it.
    """

    places: NamedPlaces
    is_shown: Callable[[Reference], bool] = lambda _: False
    is_certain: bool = False

    def of(self, text: str) -> NearMiss | None:
        """The near miss that a text is, if it is one."""
        if is_expression(text) or len(text) <= 2:
            return None
        return self._whole(text) or self._embedded(text)

    def _whole(self, text: str) -> NearMiss | None:
        """The near miss of a text that is one place and nothing else."""
        has_text, stripped = f"has the text {shortened(text)!r}", text.strip()
        blank = expression_in(stripped) if text[:1].isspace() else None
        if blank is not None:
            return _slip("ACT301", f"{has_text}, and white space before the † makes it a text", str(blank))
        for patterns, is_sign in ((_TEMPLATES, True), *([(_BRACKETS, False)] if not self.is_certain else [])):
            if (name := named_by(stripped, patterns)) is not None:
                why = f"{has_text}, which other systems replace by a value; here it stays a text"
                if (meant := self.places.meant(name)) is not None:
                    return _slip("ACT302", why, str(meant)) if not self.is_shown(meant) else None
                is_braced = "." in name or stripped.startswith(("{{", "${"))  # `$5` and `$HOME` are texts
                if is_sign and is_braced and re.fullmatch(PATH, name.strip()) and not self.is_certain:
                    return NearMiss("ACT302", why, "write a reference such as †state.user.name", None)
        meant = self.places.meant(stripped) if _BARE.fullmatch(stripped) else None
        if meant is not None and (not self.is_certain or self._is_path(stripped, meant)):
            why = f"{has_text}, which names a place and has no †: it stays a text"
            return _slip("ACT301", why, str(meant))
        return None

    def _is_path(self, text: str, place: Reference) -> bool:
        """Whether a text is the path of a place, and not by chance the name of a file or a host.

        It begins with the kind, or something is at this very place.
        """
        kind = re.match(NAME, text)
        return (kind is not None and kind[0] == place.kind) or self.places.is_named(place)

    def _embedded(self, text: str) -> NearMiss | None:
        """The near miss of references inside a longer text."""
        if (found := as_template(text, self._read)) is None:
            return None
        why = f"has {found.found[0][0]!r} inside a text, where it is not read"
        return NearMiss("ACT305", why, found.remedy, found.corrected)

    def _read(self, name: str, form: PlaceForm) -> Reference | None:
        """The place that is meant by a name inside a text."""
        if form is PlaceForm.BRACES and (self.is_certain or "." not in name):
            return None
        place = self.places.meant(name)
        if place is None and form is PlaceForm.REFERENCE:
            expression = expression_in(DAGGER + name)
            place = expression.references[0] if expression is not None else None
            is_one = place is not None and place.path and place.kind in (*DATA_TYPES, *self.places.kinds())
            place = place if is_one else None
        return place if place is not None and not self.is_shown(place) else None


def placeholder(text: str, count: int, written: Callable[[int], Sequence[Reference]]) -> NearMiss | None:
    """The near miss of a text that is the result of a step in plans of other systems: `$1`, `#E1`, `<GENERATED>-0`.

    `count` calls are listed before its own, and `written` gives the places that one of them writes.
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
    return NearMiss("ACT302", why, "write the place that the other call writes, such as †state.found", None)


class Literals:
    """Finds texts of a value that are meant literally: the schema lists them, or has `"_literal": true` there or above.

    The parts of the schema for a place are looked up once, however many texts are there.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema if isinstance(schema, dict) else {}
        self._parts: dict[Path, _SchemaPart] = {}

    def has(self, at: Path, text: str) -> bool:
        """Whether a text at a place is meant literally."""
        there = self._at(
            tuple(min(segment, limits.MOST_FIRST) if isinstance(segment, int) else segment for segment in at)
        )
        return there.is_literal or text in there.listed

    def _at(self, path: Path) -> _SchemaPart:
        if path not in self._parts:
            above = self._at(path[:-1]) if path else None
            if above is not None and (above.is_literal or not above.parts):
                return above
            below = (
                (one for part in above.parts for one in named_below(part, path[-1]))
                if above is not None
                else [self._schema]
            )
            parts = parts_of(below, self._schema)
            values = [one for part in parts for one in (part.get("const"), *_list(part.get("enum")))]
            is_literal = any(part.get("_literal") is True for part in parts)
            self._parts[path] = _SchemaPart(parts, is_literal, {one for one in values if isinstance(one, str)})
        return self._parts[path]


class _SchemaPart(NamedTuple):
    """The parts of a schema for one place."""

    parts: list[Any]
    is_literal: bool
    listed: set[str]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def named_by(text: str, patterns: Iterable[re.Pattern[str]] = (*_TEMPLATES, *_BRACKETS)) -> str | None:
    """The name inside a text that is a template and nothing else."""
    return next((match[1] for each in patterns if (match := each.fullmatch(text)) is not None), None)


def _slip(code: str, why: str, corrected: str) -> NearMiss:
    return NearMiss(code, why, f"write {corrected}", corrected)


# Known places: those that have a value, or may come to have one, for any reader.


class KnownPlaces(Places, NamedPlaces):
    """The places that the context of a submission holds or its calls write, in any instance."""

    def __init__(self, plan: CheckedPlan, *, most_instances: int = limits.MOST_INSTANCES) -> None:
        context = plan.context
        self._plan = plan
        self._of = {name: context.fold(name) for name in (None, *islice(context.instances, most_instances))}
        self._known: dict[Reference, bool] = {}
        super().__init__(tuple(self._of.values()), [WrittenPlaces(plan.calls)], Speller(likeness=limits.LIKENESS))

    @cached_property
    def _writers(self) -> Writers:
        return Writers(self._plan.calls)

    def has(self, place: Reference) -> bool:
        """Whether a reader finds a value at a place, or a call writes there, above it or below it."""
        if place not in self._known:
            self._known[place] = any(self._writers.lines(place)) or self.is_held(place)
        return self._known[place]

    def is_named(self, place: Reference) -> bool:
        """Whether the context holds a value at a place, or a call writes there or below it."""
        return self._writers.has_inside(place) or self.is_held(place)

    def is_held(self, place: Reference) -> bool:
        """Whether the context holds a value at a place, or promises one, for some reader."""
        return any(fold.exists(place) for fold in self._folds) or is_promised(self._plan, place)

    def holder(self, place: Reference) -> str | None:
        """An instance that has a value, or a call that writes one, at a place where there is no global value."""
        if self._plan.context.fold().exists(place):
            return None
        writers = {index for line in self._writers.lines(place) for index in line.calls[: limits.MOST_INSTANCES]}
        calls = [self._plan.calls[index - self._plan.submission.first] for index in sorted(writers)]
        if any(call.instance is None for call in calls):
            return None
        held = (name for name, fold in self._of.items() if name is not None and fold.exists(place))
        return next(held, calls[0].instance if calls else None)


def embedded_problems(plan: CheckedPlan) -> Iterator[Problem]:
    """Find references in the middle of texts that a value is, or may come to be, behind (SPEC R2.6): a text that is
    given out with them in it was not meant.
    """
    texts = [(call, text) for call in plan.calls if not call.is_thought for text in _inside(call)]
    output = [*_behind(plan.submission.output)]
    if not texts and not output:
        return
    places = KnownPlaces(plan)
    for call, (at, text) in texts:
        if (why := _read_nowhere(text, places, partial(_overlaps, call.scopes))) is not None:
            tool = plan.tools.get(call.tool)
            if tool is None or not Literals(tool.document).has(at, text):
                yield Problem(pointer(*plan.submission.place(call.index), *at), why)
    for at, text in output:
        if (why := _read_nowhere(text, places, lambda _: False)) is not None:
            yield Problem(pointer("solution", "output", *at), why)


def _inside(call: Call) -> Iterator[tuple[Path, str]]:
    """Yield the texts of a call's parameters that have a dagger behind their beginning; a result that is given with the
    call needs none.
    """
    return _behind(call.parameters) if call.given is MISSING else iter(())


def _behind(value: Any) -> Iterator[tuple[Path, str]]:
    """Yield texts with a dagger behind their beginning; white space before a whole reference is a finding (ACT301)."""
    return ((at, text) for at, text in strings(value) if DAGGER in text[1:] and not is_expression(text.lstrip()))


def _overlaps(scopes: Sequence[Reference], place: Reference) -> bool:
    return any(scope.overlaps(place) for scope in scopes)


def _read_nowhere(text: str, places: NamedPlaces, is_shown: Callable[[Reference], bool]) -> str | None:
    """Say what is wrong with a text that has references to known places inside."""

    def known(name: str, form: PlaceForm) -> Reference | None:
        place = _place(name) if form is PlaceForm.REFERENCE else None
        return place if place is not None and places.has(place) and not is_shown(place) else None

    shown = text[: limits.LINT_LONGEST]
    if (found := as_template(shown, known)) is None:
        return None
    miss = NearMisses(places, is_shown).of(shown)
    remedy = miss.remedy if miss is not None else found.remedy
    why = f"has {found.found[0][0]!r} inside a text, where it is not read"
    return f"{why}: {remedy}; a literal † is written ††"


def is_promised(plan: CheckedPlan, place: Reference) -> bool:
    """Whether an input is promised at a place: its schema names the place, or one above (SPEC R6.3)."""
    return place.kind == KIND and Promises(plan.submission.context).name(place)
