"""Whether the code of this worker fits a call that may have been checked under another contract (SPEC R17.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acts_celery.worker.registry.activities import Activity
from acts_celery.worker.wire.attempts import Retry
from acts_celery.worker.wire.giving_back import given_back, refused_by, unknown_code


def fitting(
    activity: Activity | None,
    name: str,
    worker: str,
    call: Mapping[str, Any],
    parameters: Mapping[str, Any],
    mark: str | None,
) -> Activity | Retry:
    """The activity of that name, as far as it is here and admits a call with the mark of its contract, where one is
    known; else what comes of the attempt: it is given back.
    """
    if activity is None:
        return given_back(unknown_code("activity", name, worker))
    if not mark or activity.contract.is_of(mark):
        return activity
    why = activity.refusal(call, parameters, mark)
    return activity if why is None else given_back(refused_by(worker, why))
