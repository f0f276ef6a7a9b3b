"""Partial values: what is written into a kind is held against the kind's schema at its place (SPEC R4.6).

While a workflow is under way a value comes together piece by piece. A write is held against what the schema says of the
places that it gives a value, and of nothing beside or above them: that siblings are missing there is no error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from acts_celery.protocol.language.errors import Problem, pointer
from acts_celery.protocol.language.paths import MISSING, lookup
from acts_celery.protocol.language.references import Path
from acts_celery.protocol.schemas import CompiledSchema
from acts_celery.protocol.state.operations import Method, Operation


def write_problems(schema: CompiledSchema, operation: Operation, root: Any) -> list[Problem]:
    """What a kind's schema says against an operation on the kind's value. The values written are not told."""
    path = _keyed(operation.place.path, root)
    container = _written_into(operation)
    if container is not None and not schema.admits(path, container):
        return [
            Problem(pointer(*path), f"the schema does not admit an {container} here".replace("an string", "a text"))
        ]
    problems: list[Problem] = []
    for keys, value in _pieces(operation, root):
        named = _named(schema, path, keys)
        found = schema.problems_at((*path, *keys), value, *path, *named, known=path)
        problems += found if len(named) == len(keys) else (Problem(p.pointer, f"below it, {p.message}") for p in found)
    return problems


def _written_into(operation: Operation) -> str | None:
    """The type of what a write adds to, where it does not replace it."""
    match operation.method, operation.value:
        case ((Method.MERGE | Method.ASSIGN), dict()):
            return "object"
        case (Method.PUSH, _) | (Method.CONCAT, list()):
            return "array"
        case (Method.CONCAT, _):
            return "string"
    return None


def _pieces(operation: Operation, root: Any) -> Iterator[tuple[Path, Any]]:
    """What is written, each with its place below that of the operation."""
    value, path = operation.value, operation.place.path
    match operation.method:
        case Method.MERGE:
            yield from _leaves(value)
        case Method.SET if not path:  # beside it there is all that is still to come
            yield from _leaves(value)
        case Method.SET:
            yield (), value
        case Method.ASSIGN:
            yield from (((key,), item) for key, item in value.items())
        case Method.PUSH:
            yield (_length(root, path),), value
        case Method.CONCAT if isinstance(value, list):
            first = _length(root, path)
            yield from (((first + number,), item) for number, item in enumerate(value))


def _leaves(value: Any, at: Path = ()) -> Iterator[tuple[Path, Any]]:
    """What stands in an object and is none itself."""
    if not isinstance(value, dict):
        yield at, value
        return
    for key, item in value.items():
        yield from _leaves(item, (*at, key))


def _keyed(path: Path, root: Any) -> Path:
    """A path whose indexes are those of lists: digits are a key at the root, and where an object is (SPEC R3.5)."""
    keyed: list[str | int] = []
    for segment in path:
        keyed.append(segment if keyed and not isinstance(root, dict) else str(segment))
        root = lookup(root, (segment,))
    return tuple(keyed)


def _length(root: Any, path: Path) -> int:
    there = lookup(root, path)
    return 0 if there is MISSING else len(there)


def _named(schema: CompiledSchema, path: Path, keys: Path) -> Path:
    """The first of some keys, as far as the schema names them or they are indexes: others are part of the value."""
    for depth, key in enumerate(keys):
        parts = schema.parts((*path, *keys[:depth]))
        if not isinstance(key, int) and not any(key in part.get("properties", ()) for part in parts):
            return keys[:depth]
    return keys
