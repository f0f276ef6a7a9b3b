"""The audit trail: who did what to a run, and from where.

Whatever steers a run from outside leaves an audit record: in the entry of the run's log that says what was done, or in
an entry of its own, written in the same step; and as one line of the logger `acts.audit`, JSON, for who collects logs.
Who it was is `ACTS_ACTOR`, else the user of the operating system: what a client says of itself. Where a server of ours
has checked a token, it is the name of that, and the record says that it was authenticated: no setting or argument of a
client does. Both are as true as those are who may write to the log (docs/security.md).
"""

from __future__ import annotations

import getpass
import json
import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from acts_celery.broker_config import Settings
from acts_celery.worker.wire.packing import pack, unpack

logger = logging.getLogger("acts.audit")


@dataclass(frozen=True, slots=True)
class Actor:
    """Who does something, and on which host."""

    name: str
    host: str
    is_authenticated: bool = False
    """Whether a token has shown the name; else it is what a client says of itself."""

    def __str__(self) -> str:
        return f"{self.name}@{self.host}"

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """This process, under these settings."""
        host = socket.gethostname()
        if settings.identity is not None:
            return cls(settings.identity.name, host, is_authenticated=True)
        return cls(settings.actor or _user(), host)


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
        shown = {"authenticated": True} if self.actor.is_authenticated else {}
        return pack({"did": self.did, "by": self.actor.name, "from": self.actor.host, **shown, **about})

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """The inverse of `pack`."""
        fields = unpack(data)
        actor = Actor(fields["by"], fields["from"], is_authenticated=fields.get("authenticated") is True)
        return cls(fields["did"], actor, fields.get("about", {}))

    def by(self, name: str | None) -> Self:
        """The same by whom a client says, where it says that; nothing has shown it then."""
        return replace(self, actor=Actor(name, self.actor.host)) if name else self

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        actor = self.actor
        who = {"by": actor.name, "from": actor.host, "authenticated": actor.is_authenticated}
        return {"did": self.did, **who, "about": dict(self.about)}

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
