"""Deleting what a run that is over holds of some of its instances, such as the data of one person.

Redis marks a deleted entry of a stream and keeps its bytes, in memory and in snapshots. So the log is written anew
without the entries of these instances, and put in the place of the old one in one step (lua/forget.lua). With them go
the files that only they show, their calls in the outbox, their dead letters and child runs. The names of the instances
stay, in the state and in the audit trail: the run says that they were deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from redis import Redis

from acts_celery.broker_config import Settings
from acts_celery.protocol.engine.events import ChildStarted
from acts_celery.protocol.engine.loop_events import Asked
from acts_celery.protocol.language.files import file_parts, pictures_in
from acts_celery.worker.errors import InstanceDeleted, InstanceNotFound, RunNotFound, RunOver
from acts_celery.worker.storage import fields as names
from acts_celery.worker.storage.audit import audit_record
from acts_celery.worker.storage.dead_letters import DeadLetters
from acts_celery.worker.storage.entries import Entry, read_entry
from acts_celery.worker.storage.history import History
from acts_celery.worker.storage.keys import ENDED, Keys
from acts_celery.worker.storage.run_state import RunState
from acts_celery.worker.storage.scripts import Script
from acts_celery.worker.wire.attempts import lane_token

from .deleting import Deleter
from .instance_status import deleted_instances

_AT_ONCE: Final = 200
_KEPT_SECONDS: Final = 86_400
"""For so long a log stays that was written anew in part, by a client that died."""


@dataclass(frozen=True, slots=True)
class Erased:
    """What was deleted of a run."""

    run: str
    instances: tuple[str, ...]
    entries: int
    """Of the log."""
    children: tuple[str, ...]
    """Their child runs."""
    dead_letters: int
    files: int
    remains: tuple[str, ...]
    """What may hold data of theirs and stays, in words."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "run": self.run,
            "instances": list(self.instances),
            "entries": self.entries,
            "children": list(self.children),
            "dead_letters": self.dead_letters,
            "files": self.files,
            "remains": list(self.remains),
        }


class Eraser:
    """Deletes instances of one run. All of it raises `RedisError`."""

    def __init__(self, run: str, redis: Redis, settings: Settings) -> None:
        self._keys = Keys(settings.key_prefix, run)
        self._redis = redis
        self._settings = settings
        self._history = History(redis, self._keys)
        self._letters = DeadLetters(redis, settings)
        self._script = Script(redis, "forget")

    def erase(self, instances: Sequence[str], state: Mapping[str, str]) -> Erased:
        """Delete these instances of the run, whose state this is. If it is interrupted nothing of the log has changed;
        repeat it. Raises `RunOver`, `InstanceNotFound`, `InstanceDeleted`.
        """
        run, chosen = self._keys.run, tuple(dict.fromkeys(instances))
        if state["status"] not in ENDED:
            raise RunOver(f"run {run} is {state['status']}: cancel it before an instance is deleted")
        known = self._history.instances()
        for instance in chosen:
            if instance in deleted_instances(state.get("deleted")):
                raise InstanceDeleted(run, instance)
            if instance not in known:
                raise InstanceNotFound(run, instance, known)
        kept = RunState(self._history.definition())
        children, shown = list[str](), set[str]()
        for _, lane in self._history.lanes(chosen):
            children += [entry.event.run for entry in lane if isinstance(entry.event, ChildStarted)]
            shown |= _files_of(lane)
        pictures: Any = self._redis.hkeys(self._keys.pictures)  # an attempt may have left one that nothing names
        shown |= {digest.decode() for digest in pictures}
        for child in dict.fromkeys(children):
            self._delete_child(child)
        count, last = self._write_anew(frozenset(map(lane_token, chosen)), kept, shown)
        self._put_in_place(chosen, last, sorted(shown), state)
        letters = self._letters.forget_instances(run, frozenset(chosen))
        audit_record(self._settings, "deleted", instances=list(chosen)).write_line(run)
        return Erased(run, chosen, count, tuple(children), letters, len(shown), tuple(_remains(kept)))

    def _delete_child(self, child: str) -> None:
        with suppress(RunNotFound):  # it is kept no longer
            Deleter(self._redis, self._settings).delete_one(child)

    def _write_anew(self, lanes: frozenset[str], kept: RunState, shown: set[str]) -> tuple[int, str]:
        """Write the log without these lanes beside it; returns how many entries that leaves out, and the last one's id.
        Of the files that were shown there, those stay that others show.
        """
        self._redis.unlink(self._keys.log_kept)
        left_out, last, page = 0, "0-0", list[tuple[str, dict[bytes, bytes]]]()
        for id_, fields in self._history.raw():
            last = id_.decode()
            if fields.get(names.LANE, b"").decode() in lanes:
                left_out += 1
                continue
            entry = read_entry(id_, fields)
            if shown:
                shown -= _files_of([entry])
            if entry.instance is None:
                kept.apply(entry)
            page.append((last, fields))
            if len(page) == _AT_ONCE:
                self._append(page)
                page.clear()
        self._append(page)
        return left_out, last

    def _append(self, page: Sequence[tuple[str, dict[bytes, bytes]]]) -> None:
        with self._redis.pipeline(transaction=False) as pipeline:
            for id_, fields in page:
                pipeline.xadd(self._keys.log_kept, fields, id=id_)  # type: ignore[arg-type]  # redis wants it invariant
            pipeline.expire(self._keys.log_kept, _KEPT_SECONDS)
            pipeline.execute()

    def _put_in_place(self, instances: Sequence[str], last: str, files: list[str], state: Mapping[str, str]) -> None:
        lanes = [lane_token(instance) for instance in instances]
        outbox: Any = self._redis.hkeys(self._keys.outbox)
        request = {
            "instances": list(instances),
            "lanes": lanes,
            "last": last,
            "calls": [call for call in outbox if call.decode().rpartition("\x1f")[0] in lanes],
            "files": files,
            "deleted": json.dumps([*deleted_instances(state.get("deleted")), *instances], ensure_ascii=False),
            "who": audit_record(self._settings, "deleted", instances=list(instances)).pack(),
        }
        if not self._script(self._keys, request)["is_done"]:
            self._redis.unlink(self._keys.log_kept)
            raise RunOver(f"run {self._keys.run} goes on: something was added to it meanwhile")


def _files_of(entries: Sequence[Entry]) -> set[str]:
    """The digests of the files that messages show, and of pictures that tools have answered."""
    messages = [message for entry in entries for message in _messages(entry)]
    named = {str(part["digest"]) for part in file_parts(messages) if "digest" in part}
    return named | {digest for _, digest in pictures_in(messages)}


def _messages(entry: Entry) -> Iterator[Any]:
    if entry.message is not None:
        yield entry.message
    for event in entry.loop:
        yield from event.messages if isinstance(event, Asked) else ()


def _remains(run: RunState) -> Iterator[str]:
    """What has read in all instances, or was shown them."""
    for index, call in run.shared.known.items():
        if call.gather and run.shared.end(index) is not None:
            yield f"what call {index} ({call.tool}) has gathered, and what was made of that"
    if run.loop is not None:
        yield "what its model was shown and has answered"
