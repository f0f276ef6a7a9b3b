"""Giving back: a call that the code here does not admit is left to a worker whose code does (SPEC R17.3).

It is not begun, so it costs no attempt. It rests, and whoever is free then takes it: the waits grow with the time since
the log's first note of it, so a deployment of minutes costs a few tries. A worker that begins reports that, and what
rests in the runs of the index `awaiting_code` is due at once (lua/code_came.lua). When the first note is too long ago
the call fails.
"""

from __future__ import annotations

import random
from typing import Final

from acts_celery.protocol.calls.contract import CONTRACT_CHANGED
from acts_celery.protocol.engine.decisions import Failure
from acts_celery.protocol.language.errors import shortened

from .attempts import Retry

_SHORTEST_SECONDS: Final = 1.0
_LONGEST_SECONDS: Final = 30.0
_LONGEST_REASON: Final = 1_000
"""Characters."""


def given_back(reason: str) -> Retry:
    """What comes of an attempt that is given back, for that reason."""
    return Retry(Failure(CONTRACT_CHANGED, shortened(reason, _LONGEST_REASON)), 0.0, is_given_back=True)


def unknown_code(what: str, name: str, worker: str) -> str:
    """Why a call is given back whose code is not here."""
    return f"{worker} has no {what} {name!r}, or its ACTS_ALLOW leaves it out: see ACTS_ACTIVITIES"


def refused_by(worker: str, why: str) -> str:
    """Why a call is given back whose code here has another contract (see `Activity.refusal`)."""
    return f"{worker} has {why}"


def rest_of(failure: Failure, since_ms: int, now_ms: int, wait_seconds: float, *, code_came_ms: int) -> float | Failure:
    """For how many seconds a call rests that is given back since then; or the failure, where it has waited enough.

    When a worker has begun, the waits are short again: another one may take the call before it does.
    """
    waited = max(0.0, (now_ms - since_ms) / 1000)
    if waited >= wait_seconds:
        text = f"for {waited:.0f} s no worker took it (ACTS_CONTRACT_WAIT_SECONDS): {failure.message}"
        return Failure(CONTRACT_CHANGED, text, is_for_no_alternative=True)
    tried = min(waited, (now_ms - code_came_ms) / 1000)
    rest = min(max(tried / 4, _SHORTEST_SECONDS), _LONGEST_SECONDS) * random.uniform(0.75, 1.25)
    return min(rest, wait_seconds - waited)
