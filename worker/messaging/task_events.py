"""Task events that arrive, also from a pool of threads.

Celery buffers task events and publishes the buffer from time to time: `EventDispatcher.flush` publishes a copy and then
clears the buffer. What the pool's threads append in between is lost, and Flower shows the task as never ended. Here
what was published is removed, under the dispatcher's own lock, and nothing else.
"""

from __future__ import annotations

from typing import Final

from celery.app.events import Events
from celery.events.dispatcher import EventDispatcher


class ThreadSafeDispatcher(EventDispatcher):  # type: ignore[misc]  # celery has no types
    """Celery's dispatcher, with a flush that loses nothing."""

    def flush(self, errors: bool = True, groups: bool = True) -> None:
        """Publish what is buffered."""
        super().flush(errors=errors, groups=False)
        if not groups:
            return
        with self.mutex:
            for group, events in self._group_buffer.items():
                published = events[:]
                if published:
                    self._publish(published, self.producer, f"{group}.multi")
                    del events[: len(published)]


class ThreadSafeEvents(Events):  # type: ignore[misc]  # as above
    """What the application is configured with."""

    dispatcher_cls = f"{__name__}:ThreadSafeDispatcher"


EVENTS: Final = f"{__name__}:ThreadSafeEvents"
"""Where Celery finds it."""
