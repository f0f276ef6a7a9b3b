"""A run as its log tells it: its status, its result, its log, waiting for its end (SPEC R11.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic

from redis import Redis

from acts_celery.broker_config import Settings, is_cluster
from acts_celery.protocol.analysis.provenance import Explanation, Logged, explain
from acts_celery.protocol.engine.costs import Cost
from acts_celery.protocol.language.references import DAGGER, Reference
from acts_celery.protocol.state.scopes import read_scope
from acts_celery.worker.errors import InstanceDeleted, InstanceNotFound, RunNotFound
from acts_celery.worker.storage.connections import PASSING, redis_errors
from acts_celery.worker.storage.history import History, missing
from acts_celery.worker.storage.keys import ENDED, Keys
from acts_celery.worker.storage.run_state import RunState

from .instance_status import deleted_instances
from .log_entries import LogEntry, LogReading
from .output_types import OutputT, OutputType, typed
from .progress import Event, Progress
from .results import Result, read_end, read_result
from .run_status import FOREIGN, has_few_instances, read_state, status_in, status_of
from .streams import Deadline

if TYPE_CHECKING:
    from acts_celery.worker.broker.publisher import Publisher

    from .absence import Absence

    Opened = Callable[[], Publisher]
    """What publishes, opened when it is first needed."""


class ReadableRun(Generic[OutputT]):
    """A run as its log tells it."""

    def __init__(self, run: str, redis: Redis, settings: Settings, since: str | None = None) -> None:
        """`since` is the id of the status that a run had when it was submitted here."""
        self.id = run
        self.output_type: OutputType | None = None  # where it was submitted here with one as its schema
        self._since = since
        self._redis = redis
        self._settings = settings
        self._keys = Keys(settings.key_prefix, run)
        self._progress = Progress(run, redis, settings)

    @cached_property
    def _history(self) -> History:
        return History(self._redis, self._keys)

    def status(self, at: str | None = None, *, instances: bool = False) -> dict[str, Any]:
        """The run's status, and how many calls have which status, now or at an id of the log: `acts status --json`.
        With `instances` it reads the log of a run that has some, 1,000 at most, for its `instance_status`.

        `held_below` is there while calls of child runs wait for a person, and says how many; `unanswered` while models
        are asked again: of each request the `call` (None: the loop's own), the error's `type` and `message`, how many
        `tries` there were, `again_in_seconds`; `waiting_for` while calls wait for what is no call, of a few of them the
        `call` (None: the whole run), `for` what (`queue`, `code`, `slot`, `attempt`, `worker`, `person`, `promise`,
        `resume`, `version`), and the `reason`.
        """
        if at is not None:
            return status_in(self.result(at), instances=instances)
        with redis_errors(self._settings):
            told = status_of(self._redis, self._keys)
            has_few = instances and told["status"] != FOREIGN and has_few_instances(self._redis, self._keys)
        return told | ({"instance_status": dict(self.result().instance_status)} if has_few else {})

    def result(self, at: str | None = None, *, waits: bool = False) -> Result[OutputT]:
        """Status, values and calls of the run, now or at an id of the log (SPEC R11.2); with `waits` its calls'
        `timing` says for how long each could have run and had not begun, which takes longer to find out.

        Ids are those of messages and events. A call whose result is several messages has ended with the last of them;
        what was under way at a past moment is not in the log, and counts as waiting. Raises `OutputUnfit` where the
        class that was submitted as the schema refuses the output for what no schema says.
        """
        with redis_errors(self._settings):
            result = read_result(self._redis, self._keys, self._progress, at=at, waits=waits)
            if at is None and result.status != "completed":
                result = _with_open_children(result, self._redis, self._settings)
        return typed(result, self.output_type)

    def ended(self, timeout_seconds: float | None = None) -> None:
        """As `wait`, and read nothing of what it has come to."""
        self._progress.wait(Deadline(self.id, timeout_seconds))

    def wait(self, timeout_seconds: float | None = None) -> Result[OutputT]:
        """Block until the run has ended. Raises `TimeoutError`; the run goes on then. `OutputUnfit` as `result`."""
        deadline = Deadline(self.id, timeout_seconds)
        since, self._since = self._since, None
        if since is not None and not is_cluster(self._settings.require_redis()):
            with redis_errors(self._settings), suppress(TimeoutError, *PASSING):
                if (result := read_end(self._redis, self._keys, since, deadline.block_ms())) is not None:
                    if result.status != "completed":
                        result = _with_open_children(result, self._redis, self._settings)
                    return typed(result, self.output_type)
        try:
            self._progress.wait(deadline)
        except RunNotFound:
            self._state()  # it may be one of another format
            with redis_errors(self._settings):
                raise missing(self._redis, self._keys) from None
        return self.result()

    def follow(
        self, *, after: str = "0-0", children: bool = False, timeout_seconds: float | None = None
    ) -> Iterator[Event]:
        """Every event from the beginning, or behind the one of an id, as it happens, until the run has ended; with
        `children` also those of child runs that begin behind it, which have their `run`. Raises `TimeoutError`,
        `ValueError` for what is no id.
        """
        self._state()
        yield from self._progress.events(after, has_children=children, timeout_seconds=timeout_seconds)

    def explain(self, path: str, *, instance: str | None = None, at: str | None = None) -> Explanation:
        """Which messages a value came from, as a reader in the instance sees it, now or at an id of the log.

        The path may lack its dagger. Raises `protocol.ExpressionError` where it is not one reference,
        `InstanceNotFound`.
        """
        reference = self._place(path, instance)
        with redis_errors(self._settings):
            seen = self._history.seen(instance, at)
        logged = [Logged(entry.id, entry.message or {}, entry.call) for entry in seen]
        return explain(reference, logged, instance=instance)

    def explain_absence(self, path: str, *, instance: str | None = None, at: str | None = None) -> Absence:
        """Why there is no value: the calls that may write it, how they ended, and which place was probably meant.
        Raises as `explain`."""
        from .absence import absence

        reference = self._place(path, instance)
        with redis_errors(self._settings):
            return absence(self._history.definition(), self._history, reference, instance=instance, at=at)

    def log(
        self,
        *,
        instance: str | None = None,
        follow: bool = False,
        audit: bool = False,
        every: bool = False,
        ticks: bool = False,
    ) -> Iterator[LogEntry]:
        """The messages in order, of one instance or of all; with `follow`, also those to come until the run ends.

        With `audit` also who did what to the run (see `worker.storage.audit`); with `every` also the ends of calls that
        left no message: sent and forgotten, skipped, notes of a model; with `ticks` also when each tick of a loop was
        asked and has ended. Raises `InstanceNotFound`.
        """
        reading = self.reading(instance, audit=audit, every=every, ticks=ticks)
        with redis_errors(self._settings):
            yield from reading.past()
        for entry in self._progress.entries(reading.seen) if follow else ():
            yield from reading.shown(entry)

    def reading(self, instance: str | None, *, audit: bool, every: bool, ticks: bool) -> LogReading:
        """What reads the log for `log`. Raises `RunNotFound`, `InstanceNotFound`."""
        self._hold(instance)
        with redis_errors(self._settings):
            return LogReading(self._history, instance, audit=audit, every=every, ticks=ticks)

    def export(self) -> Iterator[str]:
        """The run as the lines of a file: its log, definition and result (see `archive`)."""
        from .archive import export_lines

        result = self.result(waits=True).to_dict()
        with redis_errors(self._settings):
            yield from export_lines(self._redis, self._keys, result)

    def export_plan(self, tick: int | None = None, *, warn: Callable[[str], None] | None = None) -> dict[str, Any]:
        """The run's calls as a submission of one plan message, with the tools and delegates that they name, to be run
        again with other data; of a `tick` of its loop alone, where one is given. `warn` is given a line about calls
        that the plan runs more often than this run has. Raises `NoLoop`, `NoSuchTick`.
        """
        from .archive import plan_of

        self._state()
        with redis_errors(self._settings):
            run = RunState(self._history.definition(), self._history.instances())
            run.feed(self._history.entries())
        return plan_of(run, tick, warn)

    def script(self) -> str:
        """What the run's model has answered, as a file for the scripted model. Raises `NoLoop`."""
        from .archive import script_of

        self._state()
        with redis_errors(self._settings):
            return script_of(self._history)

    def require(self) -> None:
        """Raise `RunNotFound`, or `OtherFormat` for a run that no version like this one has written."""
        self._state()

    @property
    def total(self) -> int:
        """How many calls the run has, over all instances."""
        return int(self._state()["total"])

    def _place(self, path: str, instance: str | None) -> Reference:
        """The place of a path, which may lack its dagger, in a run that is there, and an instance of it."""
        reference = read_scope(path if path.startswith(DAGGER) else DAGGER + path)
        self._hold(instance)
        return reference

    def _state(self) -> dict[str, str]:
        with redis_errors(self._settings):
            return read_state(self._redis, self._keys)

    def _hold(self, instance: str | None) -> None:
        """Raise `RunNotFound`, or `InstanceNotFound` for an instance that the run does not have."""
        state = self._state()
        with redis_errors(self._settings):
            if instance is not None and instance not in (known := self._history.instances()):
                if instance in deleted_instances(state.get("deleted")):
                    raise InstanceDeleted(self.id, instance)
                raise InstanceNotFound(self.id, instance, known)


def _with_open_children(result: Result, redis: Redis, settings: Settings) -> Result:
    """The result of a run that has ended, its cost with that of the child runs whose calls had not ended then. Raises
    `RedisError`.
    """
    cost = result.cost
    for call in result.calls if result.status in ENDED else ():
        if call.child is None or call.cost is not None:
            continue
        progress = Progress(call.child, redis, settings)
        with suppress(RunNotFound):  # it is kept no longer
            child = read_result(redis, Keys(settings.key_prefix, call.child), progress, at=None, waits=False)
            cost = (cost or Cost()) + (_with_open_children(child, redis, settings).cost or Cost())
    return replace(result, cost=cost)
