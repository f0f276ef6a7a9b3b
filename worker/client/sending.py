"""Sending: data messages for a run under way (SPEC R11.6).

They are held against what the log says of the lanes that they go to, and appended in one step (lua/send.lua), which
also marks the lanes that may read them: should the client die after it, the workers' sweep publishes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from redis import Redis

from acts_celery.broker_config import Settings
from acts_celery.protocol import Problem, Rejected
from acts_celery.protocol.state.labels import marks_of
from acts_celery.protocol.submission.additions import check_data
from acts_celery.protocol.submission.support import told_names
from acts_celery.worker.errors import BeingAmended, RunNotFound, RunOver
from acts_celery.worker.process.limits import limits_of
from acts_celery.worker.storage.audit import AuditRecord, audit_record
from acts_celery.worker.storage.due import PUBLISHED_MS, DueRuns
from acts_celery.worker.storage.entries import id_key
from acts_celery.worker.storage.history import History
from acts_celery.worker.storage.keys import ENDED, Keys
from acts_celery.worker.storage.scripts import Script
from acts_celery.worker.storage.withdrawn import counting
from acts_celery.worker.wire.attempts import lane_token
from acts_celery.worker.wire.packing import pack

from .publishing import publish_lanes

if TYPE_CHECKING:
    from acts_celery.worker.broker.publisher import Publisher


class Sender:
    """Adds messages to one run. `publisher` is asked for when something is to be published."""

    def __init__(self, run: str, redis: Redis, settings: Settings, publisher: Callable[[], Publisher]) -> None:
        self._settings = settings
        self._keys = Keys(settings.key_prefix, run)
        self._history = History(redis, self._keys)
        self._publisher = publisher
        self._due = DueRuns(redis, settings.key_prefix)
        self._script = Script(redis, "send")

    def send(self, value: Any, instances: Sequence[str]) -> tuple[str, ...]:
        """Append messages, `value` being one or a list of them; returns their ids in the log.

        `instances` are those that the run has. Raises `Rejected`, and then nothing was appended; `RunNotFound`,
        `RunOver`, `BeingAmended`, `RedisError`.
        """
        messages = check_data(value, self._so_far(value, instances), limits_of(self._settings), instances)
        if not messages:
            return ()
        if (
            any(map(marks_of, messages))
            and self._history.definition().request is not None
            and (problems := list(told_names([{**message, "_instance": None} for message in messages])))
        ):
            raise Rejected(problems)
        run = self._keys.run
        self._due.note_until(run, PUBLISHED_MS)
        order = audit_record(self._settings, "sent")
        answer = self._append(messages, order)
        if answer["status"] == "gone":
            raise RunNotFound(run)
        if answer["status"] in ENDED:
            raise RunOver(f"run {run} is {answer['status']}: nothing can be added to it any more")
        if answer["is_amended"]:
            raise BeingAmended(f"run {run} is being amended; send the messages when that is finished")
        if answer["is_full"]:
            raise Rejected([beyond(answer["bytes"], self._settings)])
        order.write_line(run)
        publish_lanes(self._publisher(), self._settings, self._keys.run, answer["lanes"], has="has the messages")
        return tuple(answer["ids"])

    def _so_far(self, value: Any, instances: Sequence[str]) -> list[Mapping[str, Any]]:
        """The messages of the lanes that the value names, and the global ones, in the order of the log."""
        sent = value if isinstance(value, list) else [value]
        named = {message.get("_instance") for message in sent if isinstance(message, dict)}
        lanes = (None, *(instance for instance in instances if instance in named))
        entries = (entry for lane in lanes for entry in self._history.lane(lane))
        found = counting(sorted(entries, key=lambda entry: id_key(entry.id)))
        return [entry.message for entry in found if entry.message is not None]

    def _append(self, messages: Sequence[Mapping[str, Any]], order: AuditRecord) -> dict[str, Any]:
        """Run the script (see send.lua)."""
        request = {
            "messages": [(lane_token(message.get("_instance")), pack(message)) for message in messages],
            "who": order.pack(),
            "published_ms": PUBLISHED_MS,
            "window": self._settings.publish_window,
            "most_bytes": int(self._settings.limit_run_bytes),
        }
        return self._script(self._keys, request)


def beyond(written: int, settings: Settings) -> Problem:
    """Why nothing more may be written to a run."""
    most = int(settings.limit_run_bytes)
    return Problem(
        "", f"{written} bytes have been written to the run: with this, more than {most} (ACTS_LIMIT_RUN_BYTES)"
    )
