"""Laws: properties that the protocol promises, so each is tried on more examples than other properties.

Other properties get the profile's number (see `tests/conftest.py`), laws three times as many: 30 before every change,
thousands every night. Their strategies therefore choose among values that are made once (see `strategies`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from hypothesis import settings

from acts_celery.protocol import Conflict, Reference
from acts_celery.protocol.state.fold import Fold

TIMES: Final = 3
PLACES: Final = [
    Reference(kind, path)
    for kind in ("state", "data")
    for path in ((), ("a",), ("a", "b"), ("a", 0), ("a b",), ("b", "0"), (0,))
] + [Reference("error"), Reference("error", ("error", "type"))]
"""Where laws look."""

Test = TypeVar("Test", bound=Callable[..., None])


def law(test: Test) -> Test:
    """A property that is tried on three times as many examples as others."""
    return settings(max_examples=TIMES * settings().max_examples)(test)


def folded(messages: Sequence[Mapping[str, Any]], base: Fold | None = None) -> Fold:
    """A fold that was fed everything before anybody looked."""
    fold = Fold(base)
    for position, message in enumerate(messages):
        fold.append(message, f"message {position}")
    return fold


def shown(fold: Fold) -> Any:
    """All that a reader can learn from a fold."""
    return fold.snapshot(), sorted(map(str, fold.conflicts())), [read(fold, place) for place in PLACES]


def read(fold: Fold, place: Reference) -> Any:
    """The value at a place, or what keeps it from being read."""
    try:
        return fold.value(place)
    except Conflict as conflict:
        return str(conflict)
