"""Alternatives: the places among which a model chooses where its result goes (SPEC R4.4).

A model answers `{"path": PLACE, "value": RESULT}`. Places are written without their daggers there, for in a solution's
output a text that begins with one is a reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from acts_celery.protocol.language.paths import MISSING
from acts_celery.protocol.language.references import DAGGER, Path, Reference
from acts_celery.protocol.schemas import Schema, compiled, excerpt
from acts_celery.protocol.schemas.parts import parts_at
from acts_celery.protocol.state.fold import Fold
from acts_celery.protocol.state.operations import Method

from .outputs import Output

PATH: Final = "path"
VALUE: Final = "value"
_INSIDE: Final[dict[Method, Path]] = {Method.SET: (), Method.PUSH: (0,)}
"""Where below a place a result stands as it is, by the method that writes it there."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of several places, or groups of them."""

    places: tuple[Reference, ...]
    schemas: tuple[Schema, ...] = ()
    """What the schemas of its kinds say of a result there (SPEC R4.6)."""

    @property
    def name(self) -> str:
        """As a model names it."""
        return " && ".join(str(place).removeprefix(DAGGER) for place in self.places)


def alternative(places: Sequence[Reference], method: Method, fold: Fold) -> Alternative:
    """An alternative of a call that writes by this method, with what is known of results there."""
    said: list[Schema] = []
    for place in places if method in _INSIDE else ():
        schema = fold.schema(place.kind)
        if schema is not MISSING:
            document = compiled(schema).document
            parts = parts_at(document, (*place.path, *_INSIDE[method]))
            said += [excerpt(part, document) if isinstance(part, dict) else part for part in parts]
    return Alternative(tuple(places), tuple(said))


def names_of(alternatives: Iterable[Alternative]) -> dict[str, str]:
    """The places as a model names them, each with the path that it stands for."""
    return {one.name: " && ".join(map(str, one.places)) for one in alternatives}


def chosen(value: Any, names: Mapping[str, str]) -> Output | None:
    """The choice that a model has written, None where it is none: a place may be written with its daggers, too. One
    that was not shown stays as it is, and the engine refuses it.
    """
    if not isinstance(value, dict) or value.keys() != {PATH, VALUE} or not isinstance(value[PATH], str):
        return None
    path: str = value[PATH]
    return Output(names.get(path) or names.get(path.replace(DAGGER, ""), path), value[VALUE])
