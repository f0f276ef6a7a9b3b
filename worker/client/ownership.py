"""Ownership: whose a run is, where somebody submitted, forked or imported it with a token. It stands in the run's
state, for as long as the run is kept; ids are no rights.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from acts_celery.broker_config import Settings
from acts_celery.worker.storage.owned_runs import OWNER

_DIGITS: Final = 32


def owner_fields(settings: Settings) -> dict[str, Any]:
    """The fields of the state of a run that begins under these settings: it belongs to who has shown a token."""
    return {OWNER: settings.identity.name} if settings.identity is not None else {}


def id_of_key(owner: str | None, key: str) -> str:
    """The id of the run that an owner submits under a key of its own: nobody else's key leads there."""
    return hashlib.sha256(json.dumps([owner, key]).encode()).hexdigest()[:_DIGITS]
