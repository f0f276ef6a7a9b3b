"""Compilation: a schema is made ready once for all values that it is applied to (SPEC R4.1, R4.6).

One schema is applied in three ways: to a value that is known whole; *leniently*, at submission, while a value holds
expressions; and *at a path*, to what is written into a value that is still under way.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import cached_property, lru_cache
from typing import Any, Final

import jsonschema_rs
from jsonschema_rs import Registry, ValidationError

from protocol.language.errors import Problem, pointer, shortened
from protocol.language.references import Path

from .addresses import settled
from .dialect import translated
from .leniency import Said, lenient_problems
from .parts import NAMED, REFERENCES, VALUES, Schema, admits_type, found, joined, parts_at, reachable, referred
from .validation import ADDRESS, Checker, Document, SchemaError
from .wording import worded
from .work import Unbounded, Work, reading, work_of

_PATHS_KEPT: Final = 1_024
_LARGE: Final = 1_000_000
"""Units of work to read a schema from which few are kept: its patterns may hold megabytes."""
_MOST_SEEN: Final = 1_024
_SEEN: Final[dict[int, tuple[Any, CompiledSchema]]] = {}
"""Compiled schemas by the identity of what they were made of, which is held so that it stays one."""
_OWN_SCHEMAS: Final = "https://json-schema.org/draft/2020-12/"


class CompiledSchema:
    """A schema and its validators, kept. Raises `SchemaError` where the schema itself is wrong.

    `document` is the schema as jsonschema-rs takes it: patterns translated, references as pointers. `entry` is where in
    it the part stands that is applied, if that is not all of it.
    """

    def __init__(self, schema: Schema, *, entry: Path = (), is_ready: bool = False) -> None:
        self.schema = schema
        self._entry = entry
        try:
            jsonschema_rs.meta.validate(_of_this_dialect(schema))
            self.document = schema if is_ready else _ready_document(schema)
            self._check_references()
            work = work_of(self.document, found(entry, self.document))
            registry = Registry([(ADDRESS, self.document)])
        except Unbounded as unbounded:
            raise SchemaError(str(unbounded), self._places[id(unbounded.part)]) from None
        except ValidationError as error:
            raise SchemaError(worded(error), tuple(error.instance_path)) from None
        except SchemaError:
            raise
        except ValueError as error:
            raise SchemaError(str(error)) from None
        self._document = Document(self.document, work, registry)
        self._whole = Checker(self._document, entry)
        self._checkers: dict[Path, Checker] = {entry: self._whole}
        self._said: dict[Path, Said] = {}
        self._admitted: dict[tuple[str, Path], bool] = {}

    @property
    def work(self) -> Work:
        """What it can take."""
        return self._document.work

    def problems(
        self,
        value: Any,
        *at: str | int,
        lenient: bool = False,
        is_secret: bool = False,
        known: Collection[object] = (),
    ) -> list[Problem]:
        """What the schema says against a value standing at a place, in a fixed order.

        With `lenient`, expressions inside the value stand for any value. What is said of a secret value holds nothing
        of it but those of its names that are `known` anyway.
        """
        if lenient:
            return lenient_problems(self._whole, value, self._said_at, *at)
        return self._whole.problems(value, *at, is_secret=is_secret, known=known)

    def problems_at(
        self, path: Path, value: Any, *at: str | int, is_secret: bool = False, known: Collection[object] = ()
    ) -> list[Problem]:
        """What the parts of the schema that speak of a path say against a value standing there."""
        said = self._said_at(path)
        if isinstance(said, Problem):
            is_above = pointer(*at).startswith(said.pointer)
            return [Problem(said.pointer if is_above else pointer(*at), said.message)]
        found = [checker.problems(value, *at, is_secret=is_secret, known=known) for checker in said]
        return sorted({problem for problems in found for problem in problems})

    def parts(self, path: Path) -> tuple[Schema, ...]:
        """The parts of the schema that speak of a path, with those that they join by `$ref` and `allOf`."""
        return joined(self.parts_at(path), self.document)

    def parts_at(self, path: Path) -> list[Schema]:
        """The parts of the schema that speak of a path."""
        return parts_at(found(self._entry, self.document), path, self.document)

    def admits(self, path: Path, type_: str) -> bool:
        """Whether a value of a type can stand at a path, as far as types say it."""
        key = type_, path
        if key not in self._admitted:
            if len(self._admitted) >= _PATHS_KEPT:
                self._admitted.clear()
            is_closed = isinstance(self._said_at(path), Problem)
            self._admitted[key] = not is_closed and all(admits_type(part, type_) for part in self.parts(path))
        return self._admitted[key]

    def _said_at(self, path: Path) -> Said:
        said = self._said.get(path)
        if said is None:
            if len(self._said) >= _PATHS_KEPT:
                self._said.clear()
            said = self._said[path] = self._looked_up(path)
        return said

    def _looked_up(self, path: Path) -> Said:
        for length in range(len(path)):
            types = ("array", "object") if isinstance(path[length], int) else ("object",)
            if not all(admits_type(part, *types) for part in self.parts(path[:length])):
                return Problem(pointer(*path[:length]), f"the schema does not admit an {types[0]} here")
        parts = self.parts_at(path)
        if any(part is False for part in parts):
            return Problem(pointer(*path), "the schema admits nothing here")
        places = dict.fromkeys(self._places[id(part)] for part in parts if isinstance(part, dict))
        return tuple(map(self._checker, places))

    def _checker(self, place: Path) -> Checker:
        if place not in self._checkers:
            self._checkers[place] = Checker(self._document, place)
        return self._checkers[place]

    def _check_references(self) -> None:
        """Raise `SchemaError` where a reference leads nowhere."""
        for place, part in reachable(self.document):
            for reference in (part[keyword] for keyword in REFERENCES if isinstance(part.get(keyword), str)):
                if referred(reference, self.document) is None and not reference.startswith(_OWN_SCHEMAS):
                    is_slip = referred("#" + reference, self.document) is not None
                    hint = f", did you mean '#{reference}'?" if is_slip else ""
                    raise SchemaError(f"{reference!r} is referred to, and is not in it{hint}", (*place, "$ref"))

    @cached_property
    def _places(self) -> dict[int, Path]:
        """Where each part of the document stands, by its identity."""
        return {id(part): place for place, part in reachable(self.document)}


def compiled(schema: Schema) -> CompiledSchema:
    """The compiled form of a schema that does not change; equal schemas share one. Raises `SchemaError`."""
    seen = _SEEN.get(id(schema))
    if seen is not None and seen[0] is schema:
        return seen[1]
    try:
        text = json.dumps(schema, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise SchemaError(str(error)) from None
    made = (_large if reading(schema) > _LARGE else _small)(text)
    if len(_SEEN) >= _MOST_SEEN:
        _SEEN.clear()
    _SEEN[id(schema)] = schema, made
    return made


@lru_cache(maxsize=2_048)
def _small(text: str) -> CompiledSchema:
    return CompiledSchema(json.loads(text))


@lru_cache(maxsize=16)
def _large(text: str) -> CompiledSchema:
    return CompiledSchema(json.loads(text))


def forget() -> None:
    """Forget what was compiled."""
    _SEEN.clear()
    _small.cache_clear()
    _large.cache_clear()


def schema_problem(schema: Any, *at: str | int) -> Problem | None:
    """What is wrong with a schema standing at a place, if anything."""
    if not isinstance(schema, (dict, bool)):
        return Problem(pointer(*at), "must be a JSON Schema: an object, true or false")
    try:
        compiled(schema)
    except SchemaError as error:
        return Problem(pointer(*at, *error.path), f"not a JSON Schema: {shortened(error.message)}")
    return None


def _of_this_dialect(schema: Any) -> Any:
    """The schema without `$schema`: it is read as draft 2020-12 (SPEC R4.1), and no address in it is opened."""
    if not isinstance(schema, dict) or "$schema" not in schema:
        return schema
    return {key: value for key, value in schema.items() if key != "$schema"}


def _ready_document(schema: Any) -> Any:
    """The schema as jsonschema-rs takes it: patterns translated, references put as pointers, no other dialect."""
    ready = _ready(schema)
    return settled(ready, lambda _, path: (path,)) if isinstance(ready, dict) else ready


def _ready(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_ready(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    ready: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "patternProperties" and isinstance(value, dict):
            ready[key] = {translated(pattern): _ready(part) for pattern, part in value.items()}
        elif key in (*NAMED, "definitions") and isinstance(value, dict):
            ready[key] = {name: _ready(part) for name, part in value.items()}
        elif key == "pattern" and isinstance(value, str):
            ready[key] = translated(value)
        elif key != "$schema":
            ready[key] = value if key in VALUES else _ready(value)
    return ready
