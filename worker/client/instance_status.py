"""A status for each instance, computed from its calls (SPEC R11.8)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Set
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .call_results import CallResult

_UNDER_WAY: Final = frozenset({"waiting", "running", "held"})
"""The statuses of calls that have not ended."""


DELETED: Final = "deleted"
"""The status of an instance whose data was deleted (see `erasure`)."""


def deleted_instances(field: str | bytes | None) -> list[str]:
    """The instances of a run that were deleted, by the field `deleted` of its state."""
    found: list[str] = json.loads(field) if field is not None else []
    return found


def instance_statuses(
    instances: Iterable[str], calls: Iterable[CallResult], status: str, stopped: str | None
) -> dict[str, str]:
    """How each instance stands in a run of this status.

    `stopped` is the reason of calls that had not ended when the run was: their instances are `cancelled`, or
    `failed` where a limit has ended the run. What failed in the ticks of a loop counts no more once its output was
    accepted.
    """
    seen: dict[str | None, set[str]] = {instance: set() for instance in instances}
    for call in calls:
        is_stopped = stopped is not None and call.status in ("skipped", "failed") and call.reason == stopped
        seen.setdefault(call.instance, set()).add("stopped" if is_stopped else call.status)
    return {instance: instance_status(seen[instance], status) for instance in instances}


def instance_status(calls: Set[str], run: str) -> str:
    """That of an instance whose calls have these statuses, in a run of this one; `stopped` are those that had not ended
    when the run was.
    """
    if "stopped" in calls and run == "cancelled":
        return "cancelled"
    if calls.isdisjoint(_UNDER_WAY):
        return "failed" if "stopped" in calls or ("failed" in calls and run != "completed") else "completed"
    if run == "paused":
        return "paused"
    return "held" if "held" in calls and "running" not in calls else "running"
