"""Task events that arrive, also from a pool of threads.

Celery buffers task events and publishes the buffer from time to time: `EventDispatcher.flush` publishes a copy and then
clears the buffer. What the pool's threads append in between is lost, and Flower shows the task as never ended. Here
what was published is removed, under the dispatcher's own lock, and nothing else. When is decided by the consumer.

The name of a task in events has the activity or delegate behind it, `acts.execute_activity.sendMail`: exporters and
dashboards show figures by the name. A submission can name delegates, so a process gives only so many names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from celery.app.events import Events
from celery.events import Event
from celery.events.dispatcher import EventDispatcher
from celery.events.event import group_from
from celery.utils.time import utcoffset

from acts_celery.broker_config import EXECUTE_ACTIVITY, EXECUTE_BACKGROUND, EXECUTE_DELEGATE
from acts_celery.worker.process.names import BoundedNames

_MOST_BUFFERED: Final = 300
"""How many events are published together at most."""
_WITH_CODE: Final = frozenset({EXECUTE_ACTIVITY, EXECUTE_BACKGROUND, EXECUTE_DELEGATE})
_names: Final = BoundedNames()


class ThreadSafeDispatcher(EventDispatcher):  # type: ignore[misc]  # celery has no types
    """Celery's dispatcher, with a flush that loses nothing, and a larger buffer."""

    def __init__(self, *arguments: Any, buffer_limit: int = _MOST_BUFFERED, **options: Any) -> None:
        super().__init__(*arguments, buffer_limit=buffer_limit, **options)

    def send(self, type: str, *arguments: Any, **fields: Any) -> None:
        """Send an event, or buffer it."""
        if "name" in fields:
            fields["name"] = shown_name(fields["name"], fields.get("args"))
        super().send(type, *arguments, **fields)

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

    def publish_all(self, type_: str, events: Iterable[Mapping[str, Any]], producer: Any) -> None:
        """Publish several events of one type in one message."""
        common = {"hostname": self.hostname, "utcoffset": utcoffset(), "pid": self.pid}
        made = [Event(type_, clock=self.clock.forward(), **common, **fields) for fields in events]
        with self.mutex:
            self._publish(made, producer, f"{group_from(type_)}.multi")


def shown_name(task: str, shown: object) -> str:
    """The name of a task in events; `shown` is what its message shows of its argument, with the code's name last."""
    if task not in _WITH_CODE or not isinstance(shown, str):
        return task
    code = _names.bounded(shown.strip("'").rpartition(" ")[2])
    return task if code is None else f"{task}.{code}"


class ThreadSafeEvents(Events):  # type: ignore[misc]  # as above
    """What the application is configured with."""

    dispatcher_cls = f"{__name__}:ThreadSafeDispatcher"


EVENTS: Final = f"{__name__}:ThreadSafeEvents"
"""Where Celery finds it."""
