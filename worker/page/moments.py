"""The log as one reader sees it, message by message: what a page folds to show the values of any moment."""

from __future__ import annotations

from typing import Any, Final

from acts_celery.protocol.engine.events import CallsUndone
from acts_celery.worker.storage.clock import iso_date
from acts_celery.worker.storage.entries import Entry, id_key, moment_ms

from .opened import OpenedRun
from .values import SHOW_BYTES, shown, size_of

AT_ONCE: Final = 500
_PAGE_BYTES: Final = 500_000


def log(run: OpenedRun) -> dict[str, Any]:
    """The answer `runs/RUN/log`: the messages that an instance sees, or without one the global ones, oldest first.

    Raises `BadQuery`, `InstanceNotFound`.
    """
    instance, after = run.query.text("instance"), run.query.moment("after")
    run.require_instance(instance)
    found: list[dict[str, Any]] = []
    size = 0
    for entry in run.entries(None, instance):
        is_one = entry.message is not None or isinstance(entry.event, CallsUndone)
        if not is_one or (after is not None and id_key(entry.id) <= id_key(after)):
            continue
        if len(found) == AT_ONCE or size > _PAGE_BYTES:
            return {"entries": found, "next": found[-1]["id"]}
        found.append(_entry(entry))
        size += min(found[-1]["bytes"], SHOW_BYTES)
    return {"entries": found, "next": None}


def _entry(entry: Entry) -> dict[str, Any]:
    about = {
        "id": entry.id,
        "moment": iso_date(moment_ms(entry.id)),
        "instance": entry.instance,
        "call": entry.call if entry.message is not None else None,
    }
    if isinstance(entry.event, CallsUndone):
        return about | {"message": None, "bytes": 0, "undone": list(entry.event.calls)}
    size = size_of(entry.message)
    cut = {"cut": True} if size > SHOW_BYTES else {}
    return about | {"message": shown(entry.message), "bytes": size, **cut}
