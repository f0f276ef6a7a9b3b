"""The file of what the operator says of tools (`ACTS_TRUST`, SPEC R16.1)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from acts_celery.broker_config import Settings
from acts_celery.protocol.calls.contract import digest_of
from acts_celery.protocol.calls.operator_trust import OperatorTrust, operator_problems
from acts_celery.protocol.language.errors import pointer
from acts_celery.protocol.language.messages import TRUST
from acts_celery.worker.errors import ActivitiesError

from .activities import Registry
from .request_definitions import KnownDelegates

_MOST_BYTES: Final = 64 * 1024
"""It goes with every run."""


def operator_trust(settings: Settings) -> OperatorTrust:
    """What the file says; nothing where none is named. Raises `ActivitiesError`, also where it is not there: labels
    that somebody relies on are not lost in silence.
    """
    if settings.trust is None:
        return OperatorTrust()
    path = Path(settings.trust)
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ActivitiesError(
                f"{path} (ACTS_TRUST) has more than {_MOST_BYTES} bytes: a * at the end of a name helps"
            )
        document = json.loads(content)
    except (OSError, ValueError, RecursionError) as error:
        raise ActivitiesError(f"{path} (ACTS_TRUST) cannot be read as JSON: {error}") from None
    if (problem := next(operator_problems(document), None)) is not None:
        raise ActivitiesError(f"{path} (ACTS_TRUST): {problem}")
    delegates = KnownDelegates(settings, Registry())
    for name in document:
        if (spelled := delegates.spelled(name)) is not None:
            raise ActivitiesError(f"{path} (ACTS_TRUST): {pointer(name)} is written {spelled!r}")
    return OperatorTrust.read(document)


def digest_of_trust(settings: Settings) -> str:
    """What tells one operator's file from another; empty where none is named. Raises `ActivitiesError`."""
    said = operator_trust(settings).to_dict()
    return digest_of(json.dumps(said, sort_keys=True).encode()) if said else ""


def doubts(settings: Settings, registry: Registry) -> Iterator[str]:
    """What of the file may not be meant so. Raises `ActivitiesError`."""
    said, delegates = operator_trust(settings), KnownDelegates(settings, registry)
    for name in said.unknown((*registry.activities, *delegates)):
        yield (
            f"ACTS_TRUST speaks of {name!r}, which is no activity and no delegate here: it counts for tools that "
            "submissions declare under that name"
        )
    for name, activity in registry.activities.items():
        own, here = activity.schema.get(TRUST) or {}, said.of(name)
        lost = [
            one for one in own.get("content", ()) if own.get("effects") and here.effects and one not in here.content
        ]
        if lost:
            yield (
                f"ACTS_TRUST says that {name!r} has effects and does not call {lost[0]!r} content, as its code does: "
                "it decides"
            )
        strange = sorted(here.content - {*own.get("content", ())}) if own.get("effects") else []
        if strange:
            yield (
                f"ACTS_TRUST calls {strange[0]!r} of {name!r} content, and its code does not: it decides all the same, "
                "for nothing takes away what code says"
            )
