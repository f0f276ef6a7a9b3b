"""How often Python searches for garbage while much is made at once.

What a submission or a result is made of holds itself in no circle, so there is nothing to be found in it, and a large
one would be searched through again and again.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

_MADE: Final = 200_000
"""After so many objects more than were freed the young ones are searched through."""
_lock: Final = Lock()
_usual: list[int] = []
"""The threshold that each block under way has found: the first one's is that of the process."""


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Search seldom in a block or a function; not where the process searches as seldom by itself, or not at all."""
    with _lock:
        _usual.append(gc.get_threshold()[0])
        if 0 < _usual[-1] < _MADE:
            gc.set_threshold(_MADE, *gc.get_threshold()[1:])
    try:
        yield
    finally:
        with _lock:
            usual = _usual[0]
            _usual.pop()
            if not _usual and gc.get_threshold()[0] == _MADE:
                gc.set_threshold(usual, *gc.get_threshold()[1:])
