"""Something that a command does beside its own work, in a thread, for as long as a block lasts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def beside(work: Callable[[threading.Event], None], name: str) -> Iterator[None]:
    """While the block lasts, `work` is under way in a thread of that name; the event is set when the block is over."""
    is_over = threading.Event()
    threading.Thread(target=work, args=(is_over,), name=name, daemon=True).start()
    try:
        yield
    finally:
        is_over.set()
