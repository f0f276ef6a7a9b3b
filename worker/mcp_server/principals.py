"""Who asks, and what that admits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from acts_celery.broker_config.tokens import Identity, Right
from acts_celery.worker.web.refusals import Refused

_LOCAL: Final[tuple[Right, ...]] = ("read", "all")
_WRITING: Final[tuple[Right, ...]] = ("submit", "decide", "control")


def local_rights(*, write: bool) -> frozenset[Right]:
    """The rights of whoever has started the server, whose settings reach all runs; with `write` also to change them."""
    return frozenset((*_LOCAL, *(_WRITING if write else ())))


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who uses the server."""

    name: str
    """As the audit trail has it."""
    rights: frozenset[Right]
    identity: Identity | None = None
    """Who has shown a token, and owns the runs that are submitted here. None: they are nobody's."""

    @property
    def owner(self) -> str | None:
        """Whose the runs are that are submitted here."""
        return self.identity.name if self.identity is not None else None

    @property
    def only(self) -> str | None:
        """The owner whose runs alone are seen; None where all are."""
        return None if "all" in self.rights else self.owner

    def require(self, right: Right, tool: str) -> None:
        """Raise `Refused` where a tool takes a right that is not there."""
        if right not in self.rights:
            has = ", ".join(sorted(self.rights))
            text = f"{tool} takes the right to {right}, and {self.name} has {has}"
            raise Refused(403, "NotAdmitted", f"{text}: `acts mcp --write`, or its token in ACTS_MCP_TOKENS, gives it")
