"""The wire: what only a provider's format requires is taken out again (SPEC R12.6).

Strict formats want every property of an object there, so that one which is optional is sent as null. Such a null is
dropped: where a property may be left out, and what the request says of it admits no null. A value that would be made
wrong by that stays as it is.

They know no object whose properties they are not told. What it has besides those stands in one more, `_json`, as the
text of a JSON object; where nothing else is there, the text may be of any value, which stands in the object's place.
Such a format writes every `_json`; in an answer by any other it is a property like all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from acts_celery.protocol.calls.tools import ALIASES
from acts_celery.protocol.language.errors import Problem, pointer
from acts_celery.protocol.language.paths import parts_of
from acts_celery.protocol.schemas import compiled, excerpt
from acts_celery.protocol.schemas.addresses import normalized
from acts_celery.protocol.schemas.parts import parts_at
from acts_celery.protocol.schemas.walk import Schema, applied

from .answer_texts import Unreadable, decoded
from .request import Request

AS_TEXT: Final = "_json"
"""The property whose text holds what a strict format cannot say."""
_MOST_LOOKED_UP: Final = 100_000
"""Schemas that are asked for what they say of a property or an element: beyond, nulls stay."""


def with_texts_read(answer: Mapping[str, Any], *at: str | int) -> tuple[dict[str, Any], list[Problem]]:
    """An answer with what its `_json` texts hold, and what is wrong with those; `at` is where it stands. What is in
    such a text is taken as it is.
    """
    read = {key: value_with_texts_read(value, *at, key) for key, value in answer.items()}
    return {key: value for key, (value, _) in read.items()}, [each for _, found in read.values() for each in found]


def value_with_texts_read(value: Any, *at: str | int) -> tuple[Any, list[Problem]]:
    """A value in the same way."""
    if isinstance(value, list):
        items = [value_with_texts_read(item, *at, index) for index, item in enumerate(value)]
        return [item for item, _ in items], [problem for _, found in items for problem in found]
    if not isinstance(value, dict):
        return value, []
    beside, problems = with_texts_read({key: item for key, item in value.items() if key != AS_TEXT}, *at)
    text = value.get(AS_TEXT)
    if text is None:
        return beside, problems
    try:
        return _joined(beside, text), problems
    except Unreadable as error:
        return beside, [*problems, Problem(pointer(*at, AS_TEXT), f"it should hold JSON as a text: {error}")]


def _joined(beside: dict[str, Any], text: Any) -> Any:
    """What a `_json` text holds, with what stands beside it. Raises `Unreadable`."""
    held = decoded(text) if isinstance(text, str) else text
    if not beside:
        return held
    if not isinstance(held, dict):
        raise Unreadable("other properties stand beside it, so it has to be of an object")
    if twice := beside.keys() & held.keys():
        raise Unreadable(f"{min(twice)!r} stands in it and beside it")
    return {**beside, **held}


def without_nulls(request: Request, answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer without the nulls that stand for what was left out."""
    cleaned = dict(answer)
    if isinstance(calls := answer.get("calls"), list):
        cleaned["calls"] = [_call_without(request, call) for call in calls]
    if "output" in answer:
        cleaned["output"] = value_without_nulls(request.schema, answer["output"])
    return cleaned


def value_without_nulls(schema: Any, value: Any) -> Any:
    """A value that a schema speaks of, in the same way."""
    if not isinstance(value, (dict, list)):
        return value
    return _cleaned(value, normalized(schema))


def _call_without(request: Request, call: Any) -> Any:
    """A call; its meta-properties are never null but for `_output`."""
    tool = request.tools.get(call["_tool"]) if isinstance(call, dict) and isinstance(call.get("_tool"), str) else None
    if tool is None:
        return call
    kept = {
        key: value
        for key, value in call.items()
        if value is not None or not (key.startswith("_") or key in ALIASES) or key in ("_tool", "_output")
    }
    return _cleaned(kept, tool.document)


def _cleaned(value: Any, schema: Schema) -> Any:
    """A value without such nulls; as it is, where it fits the schema with them alone (`const`, `minProperties`)."""
    if all(part is not None for part in parts_of(value)):
        return value
    cleaned = _Places(schema).without(value)
    if cleaned == value:
        return value
    fitting = compiled(schema)
    return value if fitting.problems(cleaned) and not fitting.problems(value) else cleaned


class _Places:
    """What a document says of the places of a value, each looked up once; of so many at most."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._known: dict[tuple[int, ...], _Place] = {}
        self._left = _MOST_LOOKED_UP

    def without(self, value: Any) -> Any:
        """A value that the document speaks of, without nulls that stand for what was left out."""
        return self._without(value, self._of([self._root]))

    def _without(self, value: Any, place: _Place) -> Any:
        if isinstance(value, list):
            most = place.prefixed
            return [self._without(item, self._below(place, min(index, most))) for index, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        kept = {}
        for key, item in value.items():
            below = self._below(place, key)
            if item is not None or key in place.required or not below.schemas or self._admits_null(below):
                kept[key] = self._without(item, below)
        return kept

    def _of(self, schemas: Sequence[Schema]) -> _Place:
        """The place of which these schemas speak."""
        key = tuple(map(id, schemas))
        if key not in self._known:
            self._known[key] = _Place(schemas, applied(schemas, self._root))
        return self._known[key]

    def _below(self, place: _Place, segment: str | int) -> _Place:
        """The place of a property or an element; beyond what may be looked up one of which nothing is said."""
        if segment not in place.below:
            self._left -= len(place.parts)
            parts = place.parts if self._left >= 0 else ()
            place.below[segment] = self._of(
                [below for part in parts for below in parts_at(part, (segment,), self._root)]
            )
        return place.below[segment]

    def _admits_null(self, place: _Place) -> bool:
        """Whether a place may be null."""
        if place.admits_null is None:
            place.admits_null = any(map(self._admits, place.schemas))
        return place.admits_null

    def _admits(self, schema: Schema) -> bool:
        return schema is True or (isinstance(schema, dict) and not compiled(excerpt(schema, self._root)).problems(None))


class _Place:
    """What is said of one place."""

    def __init__(self, schemas: Sequence[Schema], parts: Sequence[dict[str, Any]]) -> None:
        self.schemas, self.parts = schemas, parts
        self.required = {name for part in parts for name in part.get("required", ())}
        self.prefixed = max((len(part.get("prefixItems", ())) for part in parts), default=0)
        """How many elements a schema of their own may speak of; of all others the same is said."""
        self.below: dict[str | int, _Place] = {}
        self.admits_null: bool | None = None
