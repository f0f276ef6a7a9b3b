"""Compilation: a schema is made ready once for all values that it is applied to (SPEC R4.1, R4.6).

One schema is applied in three ways: to a value that is known whole; *leniently*, at submission, while a value holds
expressions; and *at a path*, to what is written into a value that is still under way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any, Final

import jsonschema_rs

from acts_celery.protocol.language.errors import Problem, pointer, shortened
from acts_celery.protocol.language.references import Path

from .addresses import normalized
from .dialects import modern
from .leniency import Said, lenient_problems
from .parts import SchemaError, admits_type, excerpt, parts_at
from .validation import Checker, Document, Known, schema_error
from .walk import REFERENCES, Schema, conjuncts, found, reachable, referred
from .work import EXCEEDED, reading, work_of

_PATHS_KEPT: Final = 1_024
_MOST_BYTES_KEPT: Final = 2**27
"""Of memory that the schemas that are kept may take."""
_BYTES_EACH: Final = 20_000
_KEPT: Final[dict[int | str, tuple[Any, CompiledSchema]]] = {}
"""Compiled schemas by their texts, and by the identity of what they were made of, which is held so that it lasts."""
_bytes_kept = 0
_OWN_SCHEMAS: Final = "https://json-schema.org/draft/2020-12/"
_DIALECT: Final = _OWN_SCHEMAS + "schema"


class CompiledSchema:
    """A schema and its validators, kept. Raises `SchemaError` where the schema itself is wrong.

    `document` is the schema as jsonschema-rs takes it (see `normalized`). `entry` is where in it the part stands
    that is applied, if that is not all of it; then the schema is normalized already. `applied` is that part.
    """

    def __init__(self, schema: Schema, *, entry: Path = ()) -> None:
        if reading(schema).is_too_large():
            raise SchemaError(f"{EXCEEDED}: it is too large to be read")
        try:  # it is read as of this dialect, and no address in it is opened
            schema = schema if entry else modern(schema)
            jsonschema_rs.meta.validate({**schema, "$schema": _DIALECT} if isinstance(schema, dict) else schema)
            self.document = schema if entry else normalized(schema)
            self.applied = found(entry, self.document)
            reached = list(reachable(self.document, entry))
            _check_references(reached, self.document)
            self.work = work_of(reached, self.document)
            self._whole = Checker(Document(self.document), self.work, entry)
        except ValueError as error:
            raise schema_error(error) from None
        self._places = {id(part): place for place, part in reached}
        self._checker = cache(self._whole.at)
        self._said_at = lru_cache(maxsize=_PATHS_KEPT)(self._looked_up)
        self.admits = lru_cache(maxsize=_PATHS_KEPT)(self._admits)

    def problems(self, value: Any, *at: str | int, lenient: bool = False, known: Known = None) -> list[Problem]:
        """What the schema says against a value standing at a place, in a fixed order.

        With `lenient`, expressions inside the value stand for any value.
        """
        if lenient:
            return lenient_problems(self._whole, value, self._said_at, *at)
        return self._whole.problems(value, *at, known=known)

    def problems_at(self, path: Path, value: Any, *at: str | int, known: Known = None) -> list[Problem]:
        """What the parts of the schema that speak of a path say against a value standing there."""
        said = self._said_at(path)
        if isinstance(said, Problem):
            is_above = pointer(*at).startswith(said.pointer)
            return [Problem(said.pointer if is_above else pointer(*at), said.message)]
        return sorted({problem for checker in said for problem in checker.problems(value, *at, known=known)})

    def checker(self, place: Path) -> Checker:
        """The schema that stands at a place of the document, ready to be applied."""
        return self._checker(place)

    def parts(self, path: Path) -> list[dict[str, Any]]:
        """The objects among the parts of the schema that speak of a path, with those that they apply by `allOf`."""
        return conjuncts(self.parts_at(path), self.document)

    def parts_at(self, path: Path) -> list[Schema]:
        """The parts of the schema that speak of a path."""
        return parts_at(self.applied, path, self.document)

    def excerpt_at(self, path: Path) -> dict[str, Any] | None:
        """What the schema says of the value at a path, as a schema of its own; None where it says nothing of it."""
        parts = self.parts_at(path)
        said = [part for part in parts if isinstance(part, dict) and part]
        if not said or False in parts:
            return None
        return excerpt(said[0] if len(said) == 1 else {"allOf": said}, self.document)

    def _admits(self, path: Path, type_: str) -> bool:
        """Whether a value of a type can stand at a path, as far as types say it."""
        is_closed = isinstance(self._said_at(path), Problem)
        return not is_closed and all(admits_type(part, type_) for part in self.parts(path))

    def _looked_up(self, path: Path) -> Said:
        for length, segment in enumerate(path):
            types = ("array", "object") if isinstance(segment, int) else ("object",)
            if not all(admits_type(part, *types) for part in self.parts(path[:length])):
                return Problem(pointer(*path[:length]), f"the schema does not admit an {types[0]} here")
        parts = self.parts_at(path)
        if False in parts:
            return Problem(pointer(*path), "the schema admits nothing here")
        places = dict.fromkeys(self._places[id(part)] for part in parts if isinstance(part, dict))
        return tuple(map(self._checker, places))


def compiled(schema: Schema) -> CompiledSchema:
    """The compiled form of a schema that does not change; equal schemas share one. Raises `SchemaError`."""
    global _bytes_kept
    kept = _KEPT.get(id(schema))
    if kept is not None and kept[0] is schema:
        return kept[1]
    try:
        text = json.dumps(schema, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise SchemaError(str(error)) from None
    equal = _KEPT.get(text) or (text, CompiledSchema(json.loads(text)))
    _bytes_kept += _BYTES_EACH + reading(schema).bytes
    if _bytes_kept > _MOST_BYTES_KEPT:
        forget()
    _KEPT[text] = equal
    _KEPT[id(schema)] = schema, equal[1]
    return equal[1]


def forget() -> None:
    """Forget what was compiled."""
    global _bytes_kept
    _bytes_kept = 0
    _KEPT.clear()


def schema_problem(schema: Any, *at: str | int) -> Problem | None:
    """What is wrong with a schema standing at a place, if anything."""
    if not isinstance(schema, (dict, bool)):
        return Problem(pointer(*at), "must be a JSON Schema: an object, true or false")
    try:
        compiled(schema)
    except SchemaError as error:
        return Problem(pointer(*at, *error.path), f"not a JSON Schema: {shortened(error.message)}")
    return None


def _check_references(parts: Iterable[tuple[Path, dict[str, Any]]], document: Schema) -> None:
    """Raise `SchemaError` where a reference of these parts of a document leads nowhere."""
    for place, part in parts:
        for keyword in REFERENCES:
            reference = part.get(keyword, _OWN_SCHEMAS)
            if not reference.startswith(_OWN_SCHEMAS) and referred(reference, document) is None:
                is_slip = referred("#" + reference, document) is not None
                hint = f", did you mean '#{reference}'?" if is_slip else ""
                raise SchemaError(f"{reference!r} is referred to, and is not in it{hint}", (*place, keyword))
