"""Overlay: an object of one's own on top of a shared one (SPEC R3.6)."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any


class Overlay(dict[str, Any]):
    """An object on top of another, which is neither changed nor copied; keys are added and replaced, never removed."""

    def __init__(self, below: Mapping[str, Any]) -> None:
        super().__init__()
        self.below = below
        """What it is on top of."""

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key) if super().__contains__(key) else self.below[key]

    def get(self, key: str, default: Any = None) -> Any:
        """As of any object."""
        return super().__getitem__(key) if super().__contains__(key) else self.below.get(key, default)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self.below

    def __iter__(self) -> Iterator[str]:
        yield from self.below
        yield from (key for key in super().__iter__() if key not in self.below)

    def __len__(self) -> int:
        return len(self.below) + sum(1 for key in super().__iter__() if key not in self.below)

    def keys(self) -> KeysView[str]:  # type: ignore[override]  # a dict's own views see only what it stores itself
        """As of any object."""
        return KeysView(self)

    def values(self) -> ValuesView[Any]:  # type: ignore[override]  # as above
        """As of any object."""
        return ValuesView(self)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]  # as above
        """As of any object."""
        return ItemsView(self)

    def own(self) -> dict[str, Any]:
        """What it stores itself."""
        return dict(super().items())

    def copy(self) -> dict[str, Any]:
        """As an object of its own."""
        return dict(self.items())

    def __eq__(self, other: object) -> bool:
        return self.copy() == (other.copy() if isinstance(other, Overlay) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None
