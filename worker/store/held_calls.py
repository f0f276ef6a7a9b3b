"""Held calls in the log: what waits for a person, with what, and what was decided of it (SPEC R14.2, R14.3)."""

from __future__ import annotations

import getpass
import hashlib
import json
import logging
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, Self

from redis import Redis

from ...broker_config import Settings
from ...protocol.calls.call import asks, element_of
from ...protocol.engine.events import Evidence, FanOut, Hold, Ruling, Snapshot, Verdict
from ...protocol.errors import pointer
from ...protocol.paths import MISSING
from ...protocol.trust import Doubt
from .. import limits
from ..backoff import batches
from ..broker.attempts import CallId
from ..broker.messages import pack, unpack
from ..errors import RunNotFound
from .keys import ENDED_STATUSES, Condition, Field, Keys
from .scripts import iso_date


@dataclass(frozen=True, slots=True)
class Shown:
    """The parts of a held call that a person is shown."""

    tool: str
    snapshot: Snapshot
    output: Any = MISSING
    """The result that a model has written into the call (SPEC R4.7)."""
    is_question: bool = False
    """Whether the person's answer is its result."""
    elements: int = 0
    """For how many elements it runs, where it runs for each (SPEC R4.10)."""
    doubt: Doubt | None = None
    """Why it waits, where it is for what others wrote (SPEC R16.4)."""
    until_ms: int | None = None
    """The moment that it waits for, where it waits for no person (SPEC R4.12)."""
    evidence: Evidence | None = None
    """The evidence, where it was begun and its end is not known (SPEC R4.11)."""


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
        """The JSON that `acts held --json` prints; `messages`, `output`, `question`, `untrusted`, `unknown` only
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
            **({"unknown": _shown_evidence(self.shown.evidence)} if self.shown.evidence is not None else {}),
            "since": iso_date(self.since_ms),
            "until": iso_date(self.until_ms) if self.until_ms is not None else None,
            "shown": self.digest,
        }


def _shown_evidence(evidence: Evidence) -> dict[str, Any]:
    said = evidence.to_dict()
    since = said.pop("since_ms", None)
    return said if since is None else {**said, "since": iso_date(since)}


def read_held(redis: Redis, keys: Keys, *, only: str | None = None) -> Iterator[HeldCall]:
    """Read what waits for a person in a run, longest first, or one call by its `member`; nothing once the run is over.

    Raises `RunNotFound`, `RedisError`.
    """
    fields: Any = redis.hmget(keys.state, "status", "approve_ms")
    if fields[0] is None:
        raise RunNotFound(keys.run)
    if fields[0].decode() in ENDED_STATUSES:
        return
    wait_ms = int(fields[1]) if fields[1] is not None else None
    members: Any = redis.zrange(keys.held, 0, -1, withscores=True) if only is None else _one(redis, keys, only)
    for page in batches(members, limits.HELD_CALLS_AT_ONCE):
        conditions: Any = redis.hmget(keys.calls, [member for member, _ in page])
        with redis.pipeline(transaction=False) as pipeline:
            for condition in conditions:
                found = Condition.read(condition)
                id_ = found.holder if found is not None and found.holder else "0-0"
                pipeline.xrange(keys.log, id_, id_)
            entries = pipeline.execute()
        for (member, since), entry in zip(page, entries, strict=True):
            if entry and (hold := entry[0][1].get(Field.HELD)) is not None:  # else it was decided on meanwhile
                call = CallId.of_member(keys.run, member.decode())
                until = int(since) + wait_ms if wait_ms is not None else None
                id_ = entry[0][0].decode()
                yield HeldCall(call, id_, _digest(call, id_, hold), unpack_hold(hold), int(since), until)


def _digest(call: CallId, entry: str, hold: bytes) -> str:
    return hashlib.sha256(pack([call.run, call.member, entry, hold])).hexdigest()[: limits.HELD_CALL_DIGEST_CHARACTERS]


def _one(redis: Redis, keys: Keys, member: str) -> list[tuple[bytes, float]]:
    since: Any = redis.zscore(keys.held, member)
    return [] if since is None else [(member.encode(), since)]


# Questions: held calls of one run, of one tool and for the same sources, asked about together (SPEC R16.8).

_SAME_SOURCES: Final = ("chosen", "parameters")
_COMPARED: Final = ("parameters", "scopes", "messages", "output")


@dataclass(frozen=True, slots=True)
class HeldQuestion:
    """Several held calls that one answer may decide: exactly those that were shown."""

    calls: Sequence[HeldCall]
    """In the order in which they were held, so a call that is held later comes after those that were shown."""

    @property
    def digest(self) -> str:
        """Names exactly these calls, as they were shown."""
        return next(digest for number, digest in self._digests() if number == len(self.calls))

    def first(self, digest: str) -> HeldQuestion | None:
        """The first calls, which are what the digest names; None where it does not name the beginning of these."""
        numbers = (number for number, found in self._digests() if found == digest and number > 1)
        number = next(numbers, None)
        return HeldQuestion(self.calls[:number]) if number is not None else None

    def to_dict(self, run: str | None = None) -> dict[str, Any]:
        """The JSON of `Run.questions`: what all of the calls have the `same`, and in `rows` what `differs`, each by its
        JSON pointer into what `HeldCall.to_dict` gives.
        """
        calls = [call.to_dict(run) for call in self.calls]
        compared = [{key: call[key] for key in _COMPARED if key in call} for call in calls]
        parts = [{**part, "ways": call["untrusted"]["ways"]} for part, call in zip(compared, calls, strict=True)]
        same: dict[str, Any] = {}
        columns: dict[str, Sequence[Any]] = {}
        for at, values in _columns("", parts):
            if _are_same(values):
                same[at] = values[0]
            else:
                columns[at] = values
        return {
            "question": self.digest,
            "tool": calls[0]["tool"],
            "untrusted": {key: calls[0]["untrusted"][key] for key in _SAME_SOURCES},
            "same": same,
            "columns": list(columns),
            "rows": [
                {
                    "call": call["call"],
                    "instance": call["instance"],
                    "differs": {at: found for at, values in columns.items() if (found := values[row]) is not MISSING},
                    "shown": call["shown"],
                }
                for row, call in enumerate(calls)
            ],
            "calls": {call["call"]: call["shown"] for call in calls},
        }

    def _digests(self) -> Iterator[tuple[int, str]]:
        """The digests of the first calls, by how many they are."""
        found = hashlib.sha256()
        for number, call in enumerate(self.calls, 1):
            found.update(pack([call.id.run, call.id.member, call.digest]))
            yield number, found.hexdigest()[: limits.HELD_CALL_DIGEST_CHARACTERS]


def questions(calls: Iterable[HeldCall]) -> list[HeldQuestion]:
    """Group held calls into questions: those of one run and tool that wait for the same sources. A call that waits
    for something else, or alone, is in none.
    """
    alike = dict[Any, list[HeldCall]]()
    for call in calls:
        if (doubt := call.shown.doubt) is not None:
            given = tuple(sorted((name, *sorted(labels)) for name, labels in doubt.given.items()))
            alike.setdefault((call.id.run, call.shown.tool, doubt.chosen, given), []).append(call)
    return [HeldQuestion(sorted(found, key=_order)) for found in alike.values() if len(found) > 1]


def _order(call: HeldCall) -> tuple[int, ...]:
    return tuple(map(int, call.entry.split("-")))


def _columns(at: str, values: Sequence[Any]) -> Iterator[tuple[str, Sequence[Any]]]:
    """Compare values of several calls: yields the places, and what each call has there."""
    if (at and _are_same(values)) or not all(isinstance(value, Mapping) for value in values):
        yield at, values
        return
    for key in dict.fromkeys(key for value in values for key in value):
        yield from _columns(at + pointer(key), [value.get(key, MISSING) for value in values])


def _are_same(values: Sequence[Any]) -> bool:
    first, *others = map(_written, values)
    return all(other == first for other in others)


def _written(value: Any) -> Any:
    """A value as it can be compared: `true` is not 1."""
    return value if value is MISSING else json.dumps(value, sort_keys=True)


def _pack_snapshot(tool: str, snapshot: Snapshot) -> dict[str, Any]:
    fields: dict[str, Any] = {"tool": tool, "parameters": dict(snapshot.parameters), "scopes": dict(snapshot.scopes)}
    if snapshot.messages:
        fields["messages"] = [dict(message) for message in snapshot.messages]
    return fields


def pack_begun(tool: str, snapshot: Snapshot, key: str, worker: str) -> bytes:
    """Pack the beginning of a call that runs at most once; the script adds the attempt."""
    return pack(_pack_snapshot(tool, snapshot) | {"unknown": {"said": "", "key": key, "worker": worker}})


def pack_hold(hold: Hold | FanOut) -> bytes:
    """Pack a call that waits for a person, or runs for each element."""
    call, snapshot = hold.call, hold.snapshot
    fields = _pack_snapshot(call.tool, snapshot)
    if call.given is not MISSING:
        fields["output"] = call.given
    if asks(call):
        fields["question"] = True
    if call.each and element_of(call.index) is None:
        fields["elements"] = len(snapshot.parameters[call.each[0]])
    if isinstance(hold, Hold) and hold.doubt is not None:
        fields["untrusted"] = hold.doubt.to_dict()
    if isinstance(hold, Hold) and hold.until_ms is not None:
        fields["until"] = hold.until_ms
    if isinstance(hold, Hold) and hold.evidence is not None:
        fields["unknown"] = hold.evidence.to_dict()
    return pack(fields)


def unpack_hold(data: bytes) -> Shown:
    """Unpack what `pack_hold`, or `pack_begun`, has written."""
    fields = unpack(data)
    snapshot = Snapshot(fields["parameters"], fields["scopes"], tuple(fields.get("messages", ())))
    output, is_question = fields.get("output", MISSING), fields.get("question", False)
    doubt = Doubt.read(fields["untrusted"]) if "untrusted" in fields else None
    evidence = Evidence.read(fields["unknown"]) if "unknown" in fields else None
    about = fields.get("elements", 0), doubt, fields.get("until"), evidence
    return Shown(fields["tool"], snapshot, output, is_question, *about)


def pack_ruling(ruling: Ruling) -> bytes:
    """Pack the decision on a held call. The sweep writes it in the same way (see sweep.lua)."""
    fields: dict[str, Any] = {"verdict": ruling.verdict.value}
    if ruling.parameters is not None:
        fields["parameters"] = dict(ruling.parameters)
    if ruling.scopes is not None:
        fields["scopes"] = list(ruling.scopes)
    if ruling.reason:
        fields["reason"] = ruling.reason
    if ruling.verdict in (Verdict.ANSWERED, Verdict.DONE):
        fields["answer"] = ruling.answer
    if ruling.amendment is not None:
        fields["amendment"] = dict(ruling.amendment)
    return pack(fields)  # of a rule the entry says it (see `Field.RULED`)


def unpack_ruling(data: bytes) -> Ruling:
    """Unpack what `pack_ruling` has written."""
    fields = unpack(data)
    given = {name: fields[name] for name in ("parameters", "reason", "answer", "amendment") if name in fields}
    scopes = tuple(fields["scopes"]) if "scopes" in fields else None
    return Ruling(Verdict(fields["verdict"]), scopes=scopes, **given)


# The audit trail: who did what to a run, and from where.
#
# Whatever steers a run from outside leaves an audit record: in the entry of the run's log that says what was done, or
# in an entry of its own, written in the same step; and as one line of the logger `acts.audit`, JSON, for who collects
# logs. Who it was is `ACTS_ACTOR`, else the user of the operating system: what a client says of itself. Where a server
# of ours has checked a token, it is the token's name, and the record says that it was authenticated: no setting or
# argument of a client does. Both are as true as those are who may write to the log (docs/security.md).

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
    """A record of an action on a run: `submitted`, `paused`, `cancelled`, `amended`, `approved` … and by whom."""

    did: str
    actor: Actor
    about: Mapping[str, Any] = field(default_factory=dict)
    """The object of the action, where that is not the whole run: a call, messages."""

    def pack(self) -> bytes:
        """The bytes in an entry (see `fields`)."""
        about = {"about": dict(self.about)} if self.about else {}
        shown = {"authenticated": True} if self.actor.is_authenticated else {}
        return pack({"did": self.did, "by": self.actor.name, "from": self.actor.host, **shown, **about})

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Read what `pack` has written."""
        fields = unpack(data)
        actor = Actor(fields["by"], fields["from"], is_authenticated=fields.get("authenticated") is True)
        return cls(fields["did"], actor, fields.get("about", {}))

    def by(self, name: str | None) -> Self:
        """The record with the actor that a client names, where it does; no token has shown that name."""
        return replace(self, actor=Actor(name, self.actor.host)) if name else self

    def to_dict(self) -> dict[str, Any]:
        """The record in JSON."""
        actor = self.actor
        who = {"by": actor.name, "from": actor.host, "authenticated": actor.is_authenticated}
        return {"did": self.did, **who, "about": dict(self.about)}

    def write_line(self, run: str) -> None:
        """Write the line of the logger; call it when the thing is done."""
        logger.info("%s", json.dumps({"run": run, **self.to_dict()}, ensure_ascii=True))


def audit_record(settings: Settings, did: str, **about: Any) -> AuditRecord:
    """Make the record of an action of this process."""
    return AuditRecord(did, Actor.of(settings), about)


@cache
def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may have users without a name
        return f"uid {os.getuid()}"
