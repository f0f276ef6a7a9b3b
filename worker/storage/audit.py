"""The audit trail: who did what to a run, and from where.

Whatever steers a run from outside leaves an audit record: in the entry of the run's log that says what was done, or in
an entry of its own, written in the same step; and as one line of the logger `acts.audit`, JSON, for who collects logs.
Who it was is `ACTS_ACTOR`, else the user of the operating system: what a client says of itself, and so as true as those
are who may write to the log (docs/security.md).
"""

from __future__ import annotations

import getpass
import json
import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from acts_celery.broker_config import Settings
from acts_celery.worker.wire.packing import pack, unpack

logger = logging.getLogger("acts.audit")


@dataclass(frozen=True, slots=True)
class Actor:
    """Who does something, and on which host."""

    name: str
    host: str

    def __str__(self) -> str:
        return f"{self.name}@{self.host}"

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """This process, under these settings."""
        return cls(settings.actor or _user(), socket.gethostname())


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """What was done to a run: `submitted`, `paused`, `cancelled`, `amended`, `approved` … and by whom."""

    did: str
    actor: Actor
    about: Mapping[str, Any] = field(default_factory=dict)
    """What it was done to, where that is not the whole run: a call, messages."""

    def pack(self) -> bytes:
        """The bytes in an entry (see `fields`)."""
        about = {"about": dict(self.about)} if self.about else {}
        return pack({"did": self.did, "by": self.actor.name, "from": self.actor.host, **about})

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """The inverse of `pack`."""
        fields = unpack(data)
        return cls(fields["did"], Actor(fields["by"], fields["from"]), fields.get("about", {}))

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"did": self.did, "by": self.actor.name, "from": self.actor.host, "about": dict(self.about)}

    def write_line(self, run: str) -> None:
        """Write the line of the logger; call it when the thing is done."""
        logger.info("%s", json.dumps({"run": run, **self.to_dict()}, ensure_ascii=True))


def audit_record(settings: Settings, did: str, **about: Any) -> AuditRecord:
    """What this process does."""
    return AuditRecord(did, Actor.of(settings), about)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may have users without a name
        return f"uid {os.getuid()}"
