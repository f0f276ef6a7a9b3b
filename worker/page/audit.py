"""Who did what to a run, the newest first, decisions and amendments too. The log is read backwards, for as long as one
answer may take.
"""

from __future__ import annotations

import time
from typing import Any, Final

from acts_celery.worker.storage.clock import iso_date
from acts_celery.worker.storage.entries import moment_ms, read_entry
from acts_celery.worker.storage.fields import AUDIT

from .opened import OpenedRun
from .values import shown

AT_ONCE: Final = 50
_ENTRIES: Final = 200
_SECONDS: Final = 0.5


def audit(run: OpenedRun) -> dict[str, Any]:
    """The answer `runs/RUN/audit`. Raises `BadQuery`."""
    before, until = run.query.moment("after"), time.monotonic() + _SECONDS
    found: list[dict[str, Any]] = []
    while True:
        page: Any = run.redis.xrevrange(run.keys.log, f"({before}" if before is not None else "+", count=_ENTRIES)
        for id_, fields in page:
            before = id_.decode()
            if AUDIT in fields:
                found.append(_order(id_, fields))
            if len(found) == AT_ONCE:
                return {"orders": found, "next": before}
        if len(page) < _ENTRIES:
            return {"orders": found, "next": None}
        if time.monotonic() > until:
            return {"orders": found, "next": before}


def _order(id_: bytes, fields: Any) -> dict[str, Any]:
    entry = read_entry(id_, fields)
    assert entry.audit is not None
    order = entry.audit.to_dict()
    about = {"id": entry.id, "moment": iso_date(moment_ms(entry.id)), "instance": entry.instance, "call": entry.call}
    return {**about, **order, "about": shown(order["about"])}
