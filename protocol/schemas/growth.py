"""Growth: a kind's value as a write would leave it, for the kind's schema to judge (SPEC R4.6).

While a workflow is under way, a value comes together piece by piece. What is written as a whole (`set`, an element that
is pushed) has to be right as it is. What is written *into* (everything above the path, and what is merged, assigned,
pushed onto or joined) can still grow: it stands here as one of the `Grown` classes, which hold all that will be there
and say which of it is new. `keywords.GrowingValidator` judges those.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from protocol.language.paths import MISSING
from protocol.state.operations import Method, Operation


class GrownObject(dict[str, Any]):
    """An object that can still grow: what was there, and in it what is `new`.

    `is_sure` asks another question of it: not whether it can still become valid, but whether it is sure to stay so.
    """

    def __init__(self, before: Mapping[str, Any], new: Mapping[str, Any], *, is_sure: bool = False) -> None:
        super().__init__(before)
        self.update(new)
        self.new = new
        self.is_sure = is_sure

    def news(self) -> GrownObject:
        """Only what is new."""
        return GrownObject({}, self.new, is_sure=self.is_sure)

    def whole(self, *, is_sure: bool = False) -> GrownObject:
        """The same with all of it to be judged; what was there before can still grow as well."""
        entries = {key: _whole(item if key in self.new else growing(item), is_sure) for key, item in self.items()}
        return GrownObject({}, entries, is_sure=is_sure)


class GrownList(list[Any]):
    """A list that can still grow; `new` are the indexes of what a write adds or replaces. Of `is_sure`, see above."""

    def __init__(self, items: Iterable[Any], new: Collection[int], *, is_sure: bool = False) -> None:
        super().__init__(items)
        self.new = new
        self.is_sure = is_sure

    def whole(self, *, is_sure: bool = False) -> GrownList:
        """The same with all of it to be judged; what was there before can still grow as well."""
        items = [_whole(item if i in self.new else growing(item), is_sure) for i, item in enumerate(self)]
        return GrownList(items, range(len(items)), is_sure=is_sure)


class GrownText(str):
    """A text that can still grow."""

    is_sure = False

    def whole(self, *, is_sure: bool = False) -> GrownText:
        """The same; what becomes of a text is never sure."""
        text = GrownText(self)
        text.is_sure = is_sure
        return text


Grown = (GrownObject, GrownList, GrownText)


def growing(value: Any) -> Any:
    """The value as something that can still grow, with all that is in it; a text is taken to be finished."""
    if isinstance(value, Grown):
        return value
    if isinstance(value, dict):
        return GrownObject({}, {key: growing(item) for key, item in value.items()})
    if isinstance(value, list):
        return GrownList(map(growing, value), range(len(value)))
    return value


def after(base: Any, operation: Operation, depth: int = 0) -> Any:
    """What an operation that fits makes of its kind's value; what is there is shared and not changed."""
    path = operation.place.path
    if depth == len(path):
        return _combined(base, operation)
    segment = path[depth]
    if base is MISSING:
        base = [] if depth and isinstance(segment, int) else {}
    if isinstance(base, dict):
        key = str(segment)
        return GrownObject(base, {key: after(base.get(key, MISSING), operation, depth + 1)})
    assert isinstance(segment, int)
    below = base[segment] if segment < len(base) else MISSING
    items = [*base[:segment], after(below, operation, depth + 1), *base[segment + 1 :]]
    return GrownList(items, (segment,))


def _combined(base: Any, operation: Operation) -> Any:
    """What a method makes of what is there and a value (SPEC R3.2). The root of a kind can always grow."""
    value = operation.value
    match operation.method:
        case Method.SET:
            return value if operation.place.path else growing(value)
        case Method.PUSH:
            items = [] if base is MISSING else base
            return GrownList([*items, value], (len(items),))
        case Method.CONCAT if isinstance(value, str):
            return GrownText(value if base is MISSING else base + value)
        case Method.CONCAT:
            items = [] if base is MISSING else base
            return GrownList([*items, *value], range(len(items), len(items) + len(value)))
        case Method.ASSIGN:
            return GrownObject({} if base is MISSING else base, value)
        case Method.MERGE:
            return _merged(base, value)


def _merged(base: Any, value: Any) -> Any:
    """Objects deeply; lists and scalars replace."""
    if not isinstance(value, dict) or not isinstance(base, dict):
        return growing(value)
    return GrownObject(base, {key: _merged(base.get(key, MISSING), item) for key, item in value.items()})


def _whole(value: Any, is_sure: bool) -> Any:
    return value.whole(is_sure=is_sure) if isinstance(value, Grown) else value
