"""Labels: the id, the name and the tags that a client gives to a run.

The same id twice is one run: the second client gets that of the first. The first client claims the id for as long as it
writes the run down, so two at a time do not write one run.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypedDict

from redis import Redis

from acts_celery.protocol import Problem, Rejected
from acts_celery.worker.errors import InfrastructureError, RunBroken
from acts_celery.worker.process.open_telemetry import current_place
from acts_celery.worker.storage.child_links import TRACE
from acts_celery.worker.storage.history import missing
from acts_celery.worker.storage.keys import Keys, claim
from acts_celery.worker.wire.traces import TracePlace

_CLAIM_SECONDS: Final = 120
_LOOK_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Label:
    """What a run is called."""

    id: str | None = None
    name: str | None = None
    tags: tuple[str, ...] = ()
    digest: str = ""
    """Of the submission, where the id was given: another one under the same id is refused."""
    trace: TracePlace | None = None
    """The span that it is submitted under."""

    def fields(self) -> dict[str, str]:
        """The fields of the run's state."""
        trace = self.trace.pack() if self.trace is not None else None
        found = {
            "name": self.name,
            "tags": "\n".join(self.tags),
            "digest": self.digest,
            TRACE: trace,
        }
        return {key: value for key, value in found.items() if value}


class LabelOptions(TypedDict, total=False):
    """What a client says of it."""

    id: str | None
    name: str | None
    tags: Iterable[str]
    traceparent: str | None


LATEST: Final = "latest"
"""Stands for the newest run wherever one is asked for."""
ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\Z", re.ASCII)
NO_LABEL: Final = Label()


def label_of(
    value: Any,
    *,
    id: str | None = None,  # the option's name everywhere
    name: str | None = None,
    tags: Iterable[str] = (),
    traceparent: str | None = None,
) -> Label:
    """The label of a submission; without a `traceparent` it is under OpenTelemetry's current span, where there is one.
    Raises `protocol.Rejected` for an id that no run can have, and for what is no `traceparent`.
    """
    trace = current_place() if traceparent is None else TracePlace.read_header(traceparent)
    if traceparent is not None and trace is None:
        text = f"{traceparent!r} is no traceparent: give one as W3C Trace Context has it, 00-TRACE-SPAN-01, or none"
        raise Rejected([Problem("", text)])
    if id is None:
        return Label(name=name, tags=tuple(tags), trace=trace)
    if id == LATEST:
        text = f"{id!r} cannot be the id of a run: it stands for the newest run wherever one is asked for"
        raise Rejected([Problem("", text)])
    if not ID.match(id):
        shape = "letters, digits, dots, hyphens and _, beginning with a letter or digit, 128 at most"
        raise Rejected([Problem("", f"{id!r} cannot be the id of a run: {shape}")])
    return Label(id, name, tuple(tags), _digest(value), trace)


def _digest(value: Any) -> str:
    """The digest of a submission that was checked. The order of an object's keys says nothing, in JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def claimed(redis: Redis, keys: Keys, label: Label) -> bool:
    """Whether the id is ours to write a run under; else a run has it, and is there now.

    Raises `protocol.Rejected` where that run is another submission's, `RunBroken` where the server has lost a part of
    it, `InfrastructureError` where the client that has
    claimed the id does not get on, `RedisError`.
    """
    until = time.monotonic() + _CLAIM_SECONDS
    while time.monotonic() < until:
        digest, status, is_whole = _found(redis, keys)
        if status is not None:
            if digest != label.digest:
                text = (
                    f"the id {keys.run!r} is that of another submission: give another id, or submit the same document"
                )
                raise Rejected([Problem("", text)])
            if is_whole:
                return False
            if isinstance(error := missing(redis, keys), RunBroken):
                raise error
            continue
        if redis.set(claim(keys.prefix, keys.run), label.digest, nx=True, ex=_CLAIM_SECONDS):
            if _found(redis, keys).status is None:
                return True
            release(redis, keys, label)
            continue
        time.sleep(_LOOK_SECONDS)
    raise InfrastructureError(
        f"the id {keys.run!r} is being submitted by another client, which has not finished; try again"
    )


def release(redis: Redis, keys: Keys, label: Label) -> None:
    """Give the claim back."""
    if label.id is not None:
        redis.delete(claim(keys.prefix, keys.run))


class _Holder(NamedTuple):
    """The run that has an id."""

    digest: str
    status: str | None
    """None where there is no such run."""
    is_whole: bool
    """Whether everything is there without which it never runs."""


def _found(redis: Redis, keys: Keys) -> _Holder:
    parts = (keys.definition, keys.log, keys.statuses)
    with redis.pipeline(transaction=False) as pipeline:
        pipeline.hmget(keys.state, "digest", "status")
        pipeline.exists(*parts)
        (digest, status), found = pipeline.execute()
    return _Holder((digest or b"").decode(), status.decode() if status is not None else None, found == len(parts))
