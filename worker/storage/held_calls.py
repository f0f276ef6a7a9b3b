"""Held calls in the log: what waits for a person, with what, and what was decided of it (SPEC R14.2, R14.3)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from redis import Redis

from acts_celery.protocol.calls.approvals import asks
from acts_celery.protocol.engine.decisions import FanOut, Hold
from acts_celery.protocol.engine.holds import Ruling, Snapshot, Verdict
from acts_celery.protocol.language.paths import MISSING
from acts_celery.protocol.trust.effects import Doubt
from acts_celery.worker.batches import batches
from acts_celery.worker.errors import RunNotFound
from acts_celery.worker.wire.attempts import CallId
from acts_celery.worker.wire.packing import pack, unpack

from .clock import iso_date
from .condition import Condition
from .fields import HELD
from .keys import ENDED, Keys

_AT_ONCE: Final = 200
_DIGEST: Final = 20
"""Characters of a digest. It covers the run, the call and its entry, so nobody can choose what has the same one."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a person is shown of a held call."""

    tool: str
    snapshot: Snapshot
    output: Any = MISSING
    """The result that a model has written into the call (SPEC R4.7)."""
    is_question: bool = False
    """Whether the person's answer is its result."""
    elements: int = 0
    """For how many elements it is carried out, where it is for each (SPEC R4.10)."""
    doubt: Doubt | None = None
    """Why it waits, where it is for what others wrote (SPEC R16.4)."""


@dataclass(frozen=True, slots=True)
class HeldCall:
    """A call that waits for a person, and all that it will run with."""

    id: CallId
    entry: str
    """The id of its entry in the log."""
    digest: str
    """Names exactly this: the call of this run, held by this entry, with what it runs with (SPEC R14.4)."""
    shown: Shown
    since_ms: int
    until_ms: int | None
    """When it is rejected where no person has decided (`config.approve_seconds`)."""

    def to_dict(self, run: str | None = None) -> dict[str, Any]:
        """As `acts held --json` of a run prints it; `messages`, `output`, `question` and `untrusted` are there only
        where there are any. In the list of a `run` above its own it has its `run`, and that before its id: `RUN/0`.
        """
        snapshot, is_below = self.shown.snapshot, run not in (None, self.id.run)
        messages = {"messages": [dict(message) for message in snapshot.messages]} if snapshot.messages else {}
        output = {"output": self.shown.output} if self.shown.output is not MISSING else {}
        return {
            "call": f"{self.id.run}/{self.id.name}" if is_below else self.id.name,
            **({"run": self.id.run} if is_below else {}),
            "index": self.id.index,
            "tool": self.shown.tool,
            "instance": self.id.instance,
            "parameters": dict(snapshot.parameters),
            "scopes": dict(snapshot.scopes),
            **messages,
            **output,
            **({"question": True} if self.shown.is_question else {}),
            **({"untrusted": self.shown.doubt.to_dict()} if self.shown.doubt is not None else {}),
            "since": iso_date(self.since_ms),
            "until": iso_date(self.until_ms) if self.until_ms is not None else None,
            "shown": self.digest,
        }


def read_held(redis: Redis, keys: Keys, *, only: str | None = None) -> Iterator[HeldCall]:
    """What waits for a person in a run, longest first, or one call by its `member`; nothing once the run is over.

    Raises `RunNotFound`, `RedisError`.
    """
    fields: Any = redis.hmget(keys.state, "status", "approve_ms")
    if fields[0] is None:
        raise RunNotFound(keys.run)
    if fields[0].decode() in ENDED:
        return
    wait_ms = int(fields[1]) if fields[1] is not None else None
    members: Any = redis.zrange(keys.held, 0, -1, withscores=True) if only is None else _one(redis, keys, only)
    for page in batches(members, _AT_ONCE):
        conditions: Any = redis.hmget(keys.calls, [member for member, _ in page])
        with redis.pipeline(transaction=False) as pipeline:
            for condition in conditions:
                found = Condition.read(condition)
                id_ = found.holder if found is not None and found.holder else "0-0"
                pipeline.xrange(keys.log, id_, id_)
            entries = pipeline.execute()
        for (member, since), entry in zip(page, entries, strict=True):
            if entry and (hold := entry[0][1].get(HELD)) is not None:  # else it was decided on meanwhile
                call = CallId.of_member(keys.run, member.decode())
                until = int(since) + wait_ms if wait_ms is not None else None
                id_ = entry[0][0].decode()
                yield HeldCall(call, id_, _digest(call, id_, hold), unpack_hold(hold), int(since), until)


def _digest(call: CallId, entry: str, hold: bytes) -> str:
    return hashlib.sha256(pack([call.run, call.member, entry, hold])).hexdigest()[:_DIGEST]


def _one(redis: Redis, keys: Keys, member: str) -> list[tuple[bytes, float]]:
    since: Any = redis.zscore(keys.held, member)
    return [] if since is None else [(member.encode(), since)]


def pack_hold(hold: Hold | FanOut) -> bytes:
    """What an entry holds of a call that waits for a person, or is carried out for each element."""
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
    if asks(call):
        fields["question"] = True
    if call.each:
        fields["elements"] = len(snapshot.parameters[call.each[0]])
    if isinstance(hold, Hold) and hold.doubt is not None:
        fields["untrusted"] = hold.doubt.to_dict()
    return pack(fields)


def unpack_hold(data: bytes) -> Shown:
    """What `pack_hold` has written."""
    fields = unpack(data)
    snapshot = Snapshot(fields["parameters"], fields["scopes"], tuple(fields.get("messages", ())))
    output, is_question = fields.get("output", MISSING), fields.get("question", False)
    doubt = Doubt.read(fields["untrusted"]) if "untrusted" in fields else None
    return Shown(fields["tool"], snapshot, output, is_question, fields.get("elements", 0), doubt)


def pack_ruling(ruling: Ruling) -> bytes:
    """What an entry says of what was decided of a held call. The sweep writes the same (see sweep.lua)."""
    fields: dict[str, Any] = {"verdict": ruling.verdict.value}
    if ruling.parameters is not None:
        fields["parameters"] = dict(ruling.parameters)
    if ruling.scopes is not None:
        fields["scopes"] = list(ruling.scopes)
    if ruling.reason:
        fields["reason"] = ruling.reason
    if ruling.verdict is Verdict.ANSWERED:
        fields["answer"] = ruling.answer
    if ruling.amendment is not None:
        fields["amendment"] = dict(ruling.amendment)
    return pack(fields)


def unpack_ruling(data: bytes) -> Ruling:
    """What `pack_ruling` has written."""
    fields = unpack(data)
    given = {name: fields[name] for name in ("parameters", "reason", "answer", "amendment") if name in fields}
    scopes = tuple(fields["scopes"]) if "scopes" in fields else None
    return Ruling(Verdict(fields["verdict"]), scopes=scopes, **given)
