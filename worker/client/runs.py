"""A run, from outside: its status, its result, its log, waiting for its end, and orders to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from redis import Redis
from redis.client import Pipeline

from broker_config import Settings
from protocol.analysis.provenance import Explanation, Logged, explain
from protocol.state.scopes import read_scope
from worker.errors import InstanceNotFound, RunNotFound, RunOver
from worker.messaging.attempts import lane_token
from worker.storage.connections import redis_errors
from worker.storage.definition import unpack_definition
from worker.storage.keys import Keys
from worker.storage.lane import id_key
from worker.storage.log import Entry, read_entry, read_running

from .control import Control
from .progress import Event, Progress
from .results import LaneHistory, Result, assemble

if TYPE_CHECKING:
    from worker.messaging.publisher import Publisher

    from .amendment import Check

_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One message of the log."""

    id: str
    instance: str | None
    message: Mapping[str, Any]


class Run:
    """A submission under way or ended. Get one from `Client.submit` or `Client.run`."""

    def __init__(
        self, run: str, redis: Redis, settings: Settings, publisher: Callable[[], Publisher], check: Check
    ) -> None:
        self.id = run
        self._redis = redis
        self._settings = settings
        self._keys = Keys(settings.key_prefix, run)
        self._publisher = publisher
        self._check = check
        self._progress = Progress(run, redis, settings)
        self._control = Control(run, redis, settings, publisher)

    def status(self, at: str | None = None) -> dict[str, Any]:
        """The run's status and its calls counted by theirs, now or as of a past id: `acts status --json`."""
        if at is not None:
            past = self.result(at)
            return {"run": self.id, "status": past.status, "calls": dict(Counter(call.status for call in past.calls))}
        state = self._state()
        counts = Counter({key[2:]: int(value) for key, value in state.items() if key.startswith("n:")})
        left = int(state["total"]) - counts.total()
        if state["status"] == "cancelled":
            counts["skipped"] += left
        else:
            counts["running"] = int(state.get("running", 0))
            counts["waiting"] = left - counts["running"]
        told = {"run": self.id, "status": state["status"], "calls": {k: n for k, n in counts.items() if n}}
        if "forked_from" in state:
            told["forked_from"] = {"run": state["forked_from"], "at": state["forked_at"]}
        return told

    def pause(self) -> None:
        """Begin no more calls; those at work end, and their outcomes are taken. Raises `RunOver`."""
        self._control.pause()

    def resume(self) -> None:
        """Go on where the run was paused. Raises `RunOver`."""
        self._control.resume()

    def cancel(self) -> None:
        """End the run as it stands: nothing that ends later is taken. Raises `RunOver`."""
        self._control.cancel()

    def fork(self, at: str | None = None, *, paused: bool = False) -> Run:
        """A new run that goes on from where this one was at an id, or is now (SPEC R11.2). Raises `RunNotFound`.

        What had ended then is not done again, nor what was sent and forgotten; all else is done anew.
        """
        from .fork import Forker

        with redis_errors(self._settings):
            run = Forker(self.id, self._redis, self._settings).fork(at, is_paused=paused)
        fork = Run(run, self._redis, self._settings, self._publisher, self._check)
        if not paused:
            with suppress(RunOver):  # nothing was left to do, or it is done already
                fork.resume()
        return fork

    def amend(self, amendment: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Put other calls in place of those that have not begun, which end as skipped; the run goes on with them.

        `amendment` is a list of calls, or an object of `calls` and, where needed, `tools` and `delegates`. Raises
        `protocol.Rejected` with everything that is wrong with it, and then nothing has changed; `RunOver`,
        `BeingAmended`.
        """
        from .amendment import Amender

        value = {"calls": list(amendment)} if isinstance(amendment, Sequence) else amendment
        with redis_errors(self._settings):
            Amender(self.id, self._redis, self._settings, self._check).amend(value, resume=self.resume)

    @property
    def total(self) -> int:
        """How many calls the run has, over all instances."""
        return int(self._state()["total"])

    def wait(self, timeout_seconds: float | None = None) -> Result:
        """Block until the run has ended. Raises `TimeoutError`; the run goes on then."""
        newest = self._progress.newest()
        if not newest.is_end:
            for _ in self._progress.after(newest.id, timeout_seconds=timeout_seconds):
                pass
        return self.result()

    def follow(self, *, timeout_seconds: float | None = None) -> Iterator[Event]:
        """Every event from the beginning, as it happens, until the run has ended. Raises `TimeoutError`."""
        self._state()
        yield from self._progress.after("0-0", timeout_seconds=timeout_seconds)

    def result(self, at: str | None = None) -> Result:
        """What the run has come to, now or as of a past id (SPEC R11.2).

        Ids are those of messages and events. A call whose result is several messages has ended with the last of them;
        what was under way at a past moment is not in the log, and counts as waiting.
        """
        keys = self._keys
        with redis_errors(self._settings):
            with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.hget(keys.state, "status")
                pipeline.get(keys.definition)
                pipeline.lrange(keys.instances, 0, -1)
                _read_lane(pipeline, keys, None)
                status, definition, instances, entries, ledger = pipeline.execute()
            if status is None or definition is None:
                raise RunNotFound(self.id)
            shared = LaneHistory(None, _entries(entries), read_running(ledger))
            lanes = self._histories([instance.decode() for instance in instances])
            status = status.decode() if at is None else self._progress.status_at(at)
            return assemble(self.id, status, unpack_definition(definition), shared, lanes, at=at)

    def explain(self, path: str, *, instance: str | None = None, at: str | None = None) -> Explanation:
        """Which messages a value came from, as a reader in the instance sees it, now or as of a past id.

        Raises `protocol.ExpressionError` where the path is not one reference, `InstanceNotFound`.
        """
        reference = read_scope(path)
        self._state()
        self._hold(instance)
        with redis_errors(self._settings):
            logged = [
                Logged(entry.id, entry.message, entry.call)
                for lane in dict.fromkeys((None, instance))
                for entry in _entries(self._journal(lane, until=at))
                if entry.message is not None
            ]
        return explain(reference, sorted(logged, key=lambda one: id_key(one.id)), instance=instance)

    def log(self, *, instance: str | None = None, follow: bool = False) -> Iterator[LogEntry]:
        """The messages in order, of one instance or of all; with `follow`, also those to come until the run ends.

        Raises `InstanceNotFound`.
        """
        self._state()
        self._hold(instance)
        seen: dict[str | None, tuple[int, int]] = {}
        for entry in self._messages(instance):
            seen[entry.instance] = id_key(entry.id)
            yield entry
        if not follow:
            return
        for event in self.follow():
            is_wanted = event.messages > 0 and instance in (None, event.instance)
            shown = seen.get(event.instance, (0, -1))
            if is_wanted and id_key(event.id) > shown:
                yield from self._messages_of(event, shown)

    def _journal(self, instance: str | None, until: str | None) -> Any:
        return self._redis.xrange(self._keys.journal(lane_token(instance)), max=until or "+")

    def _messages(self, instance: str | None) -> list[LogEntry]:
        """The messages that are there now."""
        lanes = [None, *self._instances()] if instance is None else [instance]
        with redis_errors(self._settings):
            entries = [
                LogEntry(entry.id, history.instance, entry.message)
                for history in self._histories(lanes)
                for entry in history.entries
                if entry.message is not None
            ]
        return sorted(entries, key=lambda entry: id_key(entry.id))

    def _messages_of(self, event: Event, seen: tuple[int, int]) -> Iterator[LogEntry]:
        """The messages of one commit: the last of them has the event's id."""
        stream = self._keys.journal(lane_token(event.instance))
        with redis_errors(self._settings):
            found: Any = self._redis.xrevrange(stream, max=event.id, count=event.messages)
        for id_, fields in reversed(found):
            entry = read_entry(id_, fields)
            if entry.message is not None and id_key(entry.id) > seen:
                yield LogEntry(entry.id, event.instance, entry.message)

    def _state(self) -> dict[str, str]:
        with redis_errors(self._settings):
            state: Any = self._redis.hgetall(self._keys.state)
        if not state:
            raise RunNotFound(self.id)
        return {key.decode(): value.decode() for key, value in state.items()}

    def _instances(self) -> list[str]:
        with redis_errors(self._settings):
            instances: Any = self._redis.lrange(self._keys.instances, 0, -1)
        return [instance.decode() for instance in instances]

    def _hold(self, instance: str | None) -> None:
        """Raise `InstanceNotFound` for an instance that the run does not have."""
        if instance is not None and instance not in (known := self._instances()):
            raise InstanceNotFound(self.id, instance, known)

    def _histories(self, lanes: Sequence[str | None]) -> Iterator[LaneHistory]:
        """The journals and ledgers of lanes, a few hundred at a time."""
        remaining = iter(lanes)
        while batch := list(islice(remaining, _AT_ONCE)):
            with self._redis.pipeline(transaction=False) as pipeline:
                for instance in batch:
                    _read_lane(pipeline, self._keys, instance)
                found = pipeline.execute()
            for instance, entries, ledger in zip(batch, found[::2], found[1::2], strict=True):
                yield LaneHistory(instance, _entries(entries), read_running(ledger))


def _read_lane(pipeline: Pipeline, keys: Keys, instance: str | None) -> None:
    """Ask for a lane's journal and its ledger."""
    pipeline.xrange(keys.journal(lane_token(instance)))
    pipeline.hgetall(keys.ledger(lane_token(instance)))


def _entries(found: Sequence[Any]) -> list[Entry]:
    return [read_entry(id_, fields) for id_, fields in found]
