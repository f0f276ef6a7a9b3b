"""Held calls in the log: what a call is held with, and what was decided of it, as bytes (SPEC R14.2, R14.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from protocol.engine.execution import Hold
from protocol.engine.holds import Ruling, Snapshot, Verdict
from protocol.language.paths import MISSING
from worker.messaging.packing import pack, unpack


@dataclass(frozen=True, slots=True)
class Shown:
    """What a person is shown of a held call."""

    tool: str
    snapshot: Snapshot
    output: Any = MISSING
    """The result that a model has written into the call (SPEC R4.7)."""


def pack_hold(hold: Hold) -> bytes:
    """The field `h` of an entry."""
    call, snapshot = hold.call, hold.snapshot
    fields: dict[str, Any] = {
        "tool": call.tool,
        "parameters": dict(snapshot.parameters),
        "scopes": dict(snapshot.scopes),
    }
    if snapshot.messages:
        fields["messages"] = [dict(message) for message in snapshot.messages]
    if call.given is not MISSING:
        fields["output"] = call.given
    return pack(fields)


def unpack_hold(data: bytes) -> Shown:
    """What `pack_hold` has written."""
    fields = unpack(data)
    snapshot = Snapshot(fields["parameters"], fields["scopes"], tuple(fields.get("messages", ())))
    return Shown(fields["tool"], snapshot, fields.get("output", MISSING))


def pack_ruling(ruling: Ruling) -> bytes:
    """The field `j` of an entry: what was decided of a held call. The sweep writes the same (see sweep.lua)."""
    fields: dict[str, Any] = {"verdict": ruling.verdict.value}
    if ruling.parameters is not None:
        fields["parameters"] = dict(ruling.parameters)
    if ruling.reason:
        fields["reason"] = ruling.reason
    return pack(fields)


def unpack_ruling(data: bytes) -> Ruling:
    """What `pack_ruling` has written."""
    fields = unpack(data)
    return Ruling(Verdict(fields["verdict"]), fields.get("parameters"), fields.get("reason", ""))
