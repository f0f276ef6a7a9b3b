"""The runtime of a worker process: an event loop in a thread of its own, connections, the scheduler.

Tasks are coroutines on this loop (see `pool`). Under a pool of Celery's own a task hands its coroutine to the loop and
waits for it in its own thread.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from celery import Celery, bootsteps, current_app, signals
from celery.worker import WorkController
from celery.worker.consumer import Consumer
from celery.worker.control import inspect_command

from ...broker_config import EXECUTE_ACTIVITY, EXECUTE_BACKGROUND, EXECUTE_DELEGATE, Settings
from ...protocol.engine.events import Failure
from .. import limits
from ..broker import messages
from ..broker.attempts import Attempt, Result
from ..broker.consumer import PublishBuffer, Publisher
from ..broker.remote_control import Cancellations
from ..broker.transport import ReportQueue
from ..fairness import FairScheduling, Quarantine
from ..health_file import Health, remove_dead
from ..outages import Batcher, on_threads, watch_connections
from ..process import Tokens, metrics, problems
from ..recovery.heartbeats import HeartbeatWriter, Presence, report_interval_seconds
from ..recovery.sidecar import LoopWatchdog, Sidecar
from ..registry.activities import Registry, registry
from ..registry.contracts import COMMAND, announcement
from ..registry.models import Answer, ModelError
from ..registry.request_definitions import digest_of_trust, operator_trust
from ..store.connections import connect, connect_async, connect_soon
from ..store.log import LogTerms, MessageLog
from ..store.run_list import FileGone
from ..store.slots import Slots
from .calls import CANCELLED_ITSELF, Threads
from .checking import Checker, Validator
from .deciding import publish_lanes
from .remote import Children, Remote, RemoteExecutor
from .rooms import agent
from .scheduler import Returns, Scheduler
from .step import WorkerContext

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Runtime:
    """One process's loop, and everything that lives on it."""

    def __init__(
        self, app: Celery, settings: Settings, registry: Registry, cancellations: Cancellations, worker: str = "acts"
    ) -> None:
        """`worker` is the name of the worker that the process is, or belongs to."""
        self.settings = settings
        self.worker = worker
        self._cancellations = cancellations
        self.publisher = Publisher(app)
        watch_connections()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="acts-loop", daemon=True)
        self._thread.start()
        self._watchdog = LoopWatchdog(self._loop, most_silent_seconds=settings.lease_seconds / 2)
        self._sees_log = settings.queue_instances in app.amqp.queues.consume_from
        """Whether this is a worker that drives lanes; another one's user may have no access to keys of runs."""
        self.sidecar = Sidecar(settings, worker, sees_log=self._sees_log)
        self._presence: Presence | None = None
        interval = report_interval_seconds(settings)
        queue = ReportQueue(app, settings)
        self._quarantine = Quarantine()
        self.heartbeat = HeartbeatWriter(
            queue,
            interval_seconds=interval,
            watchdog=self._watchdog,
            quarantine=self._quarantine,
            limit_attempts=settings.limit_attempts,
            sidecar=self.sidecar,
        )
        self._publishing = ThreadPoolExecutor(1, thread_name_prefix="acts-publish")
        self._publish_buffer = PublishBuffer(self._publish, self._refuse)
        self.returns = Returns(self._publish_buffer.publish)
        self._refusing: set[asyncio.Task[None]] = set()
        self._delivering = ThreadPoolExecutor(1, thread_name_prefix="acts-deliver")
        self._deliveries = Batcher[messages.Delivery, None](on_threads(self._delivering, self._deliver))
        self._threads = Threads(settings.concurrency)
        self._validator = Validator()
        on_thread = partial(self._threads.run, timeout_seconds=None)
        self.models = agent().make_models(settings, registry, on_thread, self.heartbeat.unanswered, _note_answer)
        allowed, most = registry.limited_to(settings.allow), limits.limits_of(settings)
        operator = operator_trust(settings)
        self.remote = RemoteExecutor(allowed, self.models, most, self._threads, self.deliver, operator, worker)
        # A worker that runs remote calls may be without a log.
        self._log: MessageLog | None = None
        self._scheduler = self._make_scheduler(registry) if settings.effective_redis_url is not None else None

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler, which drives lanes. Raises `broker_config.NotConfigured` in a worker that has no log."""
        if self._scheduler is None:
            self.settings.require_redis()
        assert self._scheduler is not None
        return self._scheduler

    def close(self) -> None:
        """Cancel what is at work, and end the loop and the threads."""
        self.heartbeat.stop()
        if self._presence is not None:
            self._presence.close()
        self.sidecar.close()
        self.run(_cancel_all())
        self.finish()
        self.run(self._validator.close())
        self._publishing.shutdown()
        self._delivering.shutdown()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._threads.close()

    def finish(self) -> None:
        """Close the connections to models, and give back what is to go back, where nothing blocks the loop for long;
        what asks again opens others.
        """
        for last in (self.returns.finish(), self.models.close()):
            with suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(last, self._loop).result(limits.RUNTIME_CLOSING_SECONDS)

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a function on the loop."""
        self._loop.call_soon_threadsafe(function)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, and wait for it here."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _make_scheduler(self, registry: Registry) -> Scheduler:
        settings = self.settings
        redis = connect_async(settings)
        terms = LogTerms(
            published_seconds=limits.PUBLISHED_SECONDS,
            lease_seconds=settings.lease_seconds,
            window=settings.publish_window,
            run_bytes=int(settings.limit_run_bytes),
            run_work=settings.limit_run_schema_work,
            tells=settings.hold_webhook_url is not None,
            most_losses=settings.limit_attempts,
        )
        log = self._log = MessageLog(redis, settings.key_prefix, terms)
        soon = connect_soon(settings, timeout_seconds=settings.lease_seconds / 3)
        presence = self._presence = Presence(
            soon,
            prefix=settings.key_prefix,
            lease_seconds=settings.lease_seconds,
            remote_runs=lambda: self._cancellations.runs if self._sees_log else (),
            on_cancelled=self.cancel,
            watchdog=self._watchdog,
            sidecar=self.sidecar,
        )
        remote = Remote(settings, registry)
        most = limits.limits_of(settings)
        publish = self._publish_buffer.publish
        slots = Slots(redis, prefix=settings.key_prefix, wake=partial(publish_lanes, publish, settings.queue_instances))
        checker = Checker(settings, registry)
        children = Children(connect(settings), settings, checker)
        return Scheduler(
            WorkerContext(
                log,
                settings,
                registry,
                most,
                publish,
                self._threads,
                presence,
                remote,
                slots,
                FairScheduling(),
                checker,
                children,
                self._validator,
                self._quarantine,
                self.worker,
            )
        )

    async def carry_out(self, attempt: Attempt, coroutine: Coroutine[Any, Any, Result]) -> Result | None:
        """Run a remote call's coroutine. Returns None where its run was cancelled."""
        if attempt.seal in self._cancellations:
            coroutine.close()
            return None
        working = asyncio.ensure_future(coroutine)
        with self._cancellations.watching(attempt.id.run, attempt.seal, lambda: self.call_soon(working.cancel)):
            await asyncio.wait([working])
        if working.cancelled():
            return None if attempt.seal in self._cancellations else CANCELLED_ITSELF
        return working.result()

    async def delegate(self, call: messages.DelegateCall) -> Result:
        """Run a delegate's call; the request of a loop's tick is read from the log, where the call only names it."""
        if call.asked:
            try:
                found = await self.scheduler.with_request(call) if self._sees_log else None
            except FileGone as error:
                return Failure("FileGone", str(error))
            if found is None:
                return Failure(messages.NOT_READ, "the request is not in the log that this worker reads")
            call = found
        return await self.remote.delegate(call)

    async def drive(self, lane: messages.LaneCall) -> list[str]:
        """Do what can be done in a lane now, as `Scheduler.drive`, unless the server of its run is away."""
        again = messages.lane_task(lane.run, lane.instance, self.settings.queue_instances, was_lost=lane.was_lost)
        if await self._is_away(lane.run, partial(self._publish_buffer.publish, [again])):
            return []
        how = {"was_lost": lane.was_lost, "is_redelivered": lane.is_redelivered}
        return await self.scheduler.drive(lane.run, lane.instance, **how)

    async def take_result(self, delivery: messages.Delivery) -> None:
        """Commit the result of a remote call, as `Scheduler.deliver`, unless the server of its run is away."""
        if not await self._is_away(delivery.attempt.id.run, partial(self.deliver, delivery)):
            await self.scheduler.deliver(delivery)

    async def _is_away(self, run: str, publish: Callable[[], Awaitable[object]]) -> bool:
        """Whether the server of a run, one of several, is away: then its task is published anew a moment later, so that
        it holds up no tasks of runs on the others.
        """
        if self._log is None or await self._log.reaches(run):
            return False
        await asyncio.sleep(min(limits.SERVER_AWAY_SECONDS, self.settings.lease_seconds / 6))
        await publish()
        return True

    async def deliver(self, delivery: messages.Delivery) -> None:
        """Send the result of a remote call back to its lane; waits minutes for a broker that is away or full.

        Raises `InfrastructureError`.
        """
        await self._deliveries.send(delivery)

    def cancel(self, run: str) -> None:
        """A run was cancelled: stop its drives here, and its remote calls."""
        self._cancellations.cancel_named(run)
        self._loop.call_soon_threadsafe(self.scheduler.cancel, run)

    def leave_after(self, leaving: int) -> None:
        """Begin no call of a lane any more as soon as there is something in a pipe, which other processes see, too."""

        def leave() -> None:
            self._loop.remove_reader(leaving)
            self.returns.leave()
            if self._scheduler is not None:
                self._scheduler.leave()
            text = "stopping: no more calls begin here; running calls have %g s, and a second signal ends them"
            logger.info(text, self.settings.stop_seconds)

        self._loop.call_soon_threadsafe(self._loop.add_reader, leaving, leave)

    @property
    def is_blocked(self) -> bool:
        """Whether a coroutine blocks the loop."""
        return self._watchdog.is_blocked

    def _deliver(self, deliveries: Sequence[messages.Delivery]) -> None:
        queue = self.settings.queue_instances
        self.publisher.deliver([messages.delivery_task(delivery, queue) for delivery in deliveries])

    def _refuse(self, task: messages.TaskMessage, why: str) -> None:
        """Have a call fail whose queue may not be written. A lane's task stays with the sweep."""
        if task.task not in (EXECUTE_ACTIVITY, EXECUTE_DELEGATE, EXECUTE_BACKGROUND):
            return
        attempt = messages.attempt_in(task.body, limits.limits_of(self.settings))
        failure = Failure("QueueRefused", why)
        telling = (
            self.heartbeat.complete(attempt, failure)
            if task.is_forgotten
            else self._fail(messages.Delivery(attempt, failure))
        )
        told = self._loop.create_task(telling, context=Context())
        self._refusing.add(told)
        told.add_done_callback(self._refusing.discard)

    async def _fail(self, delivery: messages.Delivery) -> None:
        await self.scheduler.deliver(delivery)

    async def _publish(self, tasks: Sequence[messages.TaskMessage]) -> None:
        await self._loop.run_in_executor(self._publishing, self.publisher.publish, tasks)


def _note_answer(model: str, answer: Answer | ModelError) -> None:
    """Count the result and the time of a request to a model in the figures of this process."""
    if isinstance(answer, ModelError):
        metrics().model_failed(model, type(answer).__name__)
        return
    usage = answer.usage
    tokens = Tokens(max(0, usage.input - usage.cached), usage.cached, usage.output) if usage is not None else None
    metrics().model_answered(model, tokens, answer.nanodollars, answer.duration_seconds)


async def _cancel_all() -> None:
    """Cancel everything on this loop, and wait until it has ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class WorkerNameStep(bootsteps.Step):  # type: ignore[misc]  # celery has no types
    """Says which worker of Celery the runtimes are part of: what it has run is recorded under its name."""

    def __init__(self, worker: Any, **_: Any) -> None:
        worker.app.conf.acts_runtimes.serve(worker.hostname)


class Runtimes:
    """The runtime of the process that asks; a forked pool process gets one of its own."""

    def __init__(self, app: Celery, settings: Settings, registry: Registry) -> None:
        self._app = app
        self._settings = settings
        self.registry = registry
        """The code of its calls."""
        self._lock = threading.Lock()
        self._process = 0
        self._runtime: Runtime | None = None
        self._cancellations = Cancellations()
        self.worker = f"acts@{socket.gethostname()}"
        """The name of the worker that processes of it go by."""
        self._leaving: tuple[int, int] | None = None
        """A pipe that processes of its pool have, too: there is something in it once the worker is to end."""

    def serve(self, worker: str) -> None:
        """This process is a worker of that name, and forks its pool from now on if it has one that does."""
        self.worker = worker
        self._leaving = os.pipe()

    def current(self) -> Runtime:
        """The runtime, made when it is first asked for."""
        if self._runtime is None or self._process != os.getpid():
            with self._lock:
                if self._runtime is None or self._process != os.getpid():
                    self._runtime = Runtime(self._app, self._settings, self.registry, self._cancellations, self.worker)
                    self._process = os.getpid()
                    if self._leaving is not None:
                        self._runtime.leave_after(self._leaving[0])
        return self._runtime

    def close(self) -> None:
        """End this process's runtime, where there is one; this process is no worker any more."""
        if self._runtime is not None and self._process == os.getpid():
            self._runtime.close()
            self._runtime = None
        leaving, self._leaving = self._leaving, None
        for end in leaving or ():
            os.close(end)

    def leave(self) -> None:
        """This worker is to end, and all its processes; see `Runtime.leave_after`."""
        if self._leaving is not None:
            os.write(self._leaving[1], b"\n")

    def finish(self) -> None:
        """Nothing is at work any more; see `Runtime.finish`."""
        if self._runtime is not None and self._process == os.getpid():
            self._runtime.finish()

    @property
    def is_blocked(self) -> bool:
        """Whether a coroutine blocks the loop of the calling process, if it has one."""
        return self._runtime is not None and self._process == os.getpid() and self._runtime.is_blocked

    def cancel(self, key: str) -> None:
        """Nothing of the run to whose seal this is the key is to be run in this process any more."""
        self._cancellations.cancel(key)


def _finish(sender: Any, **_: Any) -> None:
    """Called by Celery at the end of a worker, and of each process of its pool, when nothing is at work any more."""
    app = current_app if sender is None else sender.app
    runtimes = app.conf.get("acts_runtimes")
    if runtimes is not None:
        runtimes.finish()


def _leave(**_: Any) -> None:
    """Called by Celery when a worker is to end."""
    if (runtimes := current_app.conf.get("acts_runtimes")) is not None:
        runtimes.leave()


signals.worker_shutting_down.connect(_leave)
signals.worker_shutdown.connect(_finish)
signals.worker_process_shutdown.connect(_finish)


# How a worker process searches for garbage.
#
# Python looks through its objects for circles that nothing holds any more, and again whenever some hundreds have been
# made. Of what a worker has when it starts - modules, tasks, models' SDKs - nothing becomes garbage, and lanes, calls
# and their messages hold each other in no circle: they are freed when they are left. Searched through as often as
# Python does by itself, all that took a seventh of a worker's processor time.


class GarbageStep(bootsteps.Step):  # type: ignore[misc]  # celery has no types
    """Takes part in the making of a worker, so before it has forked anything and before it has taken a task."""

    def __init__(self, parent: WorkController, **options: object) -> None:
        super().__init__(parent, **options)
        gc.freeze()
        gc.set_threshold(limits.YOUNG_OBJECTS, *gc.get_threshold()[1:])


# The health of a worker process: shown by `celery inspect stats`, and written to a file that `acts health` reads.
#
# The file is written by the thread that takes messages, so where that hangs, or is without a broker, it gets old. A
# user of the broker that may not ask workers, as those of delegates, can read it all the same.


_starts: Final[deque[float]] = deque(maxlen=limits.STARTS_BEFORE_A_PROBLEM + 1)
"""When this process has begun to take messages, lately. One that begins again and again takes none."""


class HealthStep(bootsteps.StartStopStep):  # type: ignore[misc]  # celery has no types
    """Looks after what a worker should do, as long as it is connected to the broker."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Consumer, **options: object) -> None:
        super().__init__(consumer, **options)
        self._queues = sorted(consumer.app.amqp.queues.consume_from)
        settings: Settings = consumer.app.conf.acts_settings
        self._trust = digest_of_trust(settings)
        self._folder = Path(settings.health_folder) if settings.health_folder is not None else None
        self._timer: Any = None
        self._is_written = True

    def start(self, consumer: Consumer) -> None:
        """Called by the consumer each time it has connected."""
        _starts.append(time.monotonic())
        if self._folder is not None:
            self._write(consumer, tidies=True)
            self._timer = consumer.timer.call_repeatedly(limits.HEALTH_INTERVAL_SECONDS, self._write, (consumer,))

    def stop(self, consumer: Consumer) -> None:
        """Called by the consumer when it has lost its connection, or is stopped."""
        if self._timer is not None:
            self._timer.cancel()

    def shutdown(self, consumer: Consumer) -> None:
        """Called by the consumer at its end."""
        if self._folder is not None:
            with suppress(OSError):
                self._health(consumer).file(self._folder).unlink(missing_ok=True)

    def info(self, consumer: Consumer) -> dict[str, Any]:
        """Called by Celery for `inspect stats`."""
        knows = {"activities": sorted(registry.activities), "delegates": sorted(registry.delegates)}
        code = {
            "activities": {one.name: [one.version, one.contract.digest] for one in registry.activities.values()},
            "delegates": {one.name: [one.version, ""] for one in registry.delegates.values()},
        }
        told = {"queues": self._consumed(consumer), "problems": self._problems(consumer), "knows": knows, "code": code}
        return {"health": {**told, "trust": self._trust}}

    def _write(self, consumer: Consumer, *, tidies: bool = False) -> None:
        """Write the file; where that fails, messages are taken all the same."""
        assert self._folder is not None
        try:
            self._health(consumer).write(self._folder)
            if tidies:
                remove_dead(self._folder)
        except OSError as error:
            if self._is_written:
                logger.warning("the health of this worker cannot be written (ACTS_HEALTH_FOLDER): %s", error)
            self._is_written = False
        else:
            self._is_written = True

    def _health(self, consumer: Consumer) -> Health:
        return Health(consumer.hostname, os.getpid(), self._problems(consumer))

    def _consumed(self, consumer: Consumer) -> list[str]:
        return sorted(queue.name for queue in consumer.task_consumer.queues)

    def _problems(self, consumer: Consumer) -> dict[str, str]:
        found = problems()
        consumed = self._consumed(consumer)
        found |= {f"queue {queue}": "is no longer consumed" for queue in self._queues if queue not in consumed}
        if consumer.app.conf.acts_runtimes.is_blocked:
            found["the event loop"] = "is blocked by an activity"
        if not self._is_written:
            found["its file"] = "cannot be written (ACTS_HEALTH_FOLDER)"
        if (
            len(_starts) > limits.STARTS_BEFORE_A_PROBLEM
            and time.monotonic() - _starts[0] < limits.STARTS_COUNTED_SECONDS
        ):
            found["its connection to the broker"] = (
                f"began anew {limits.STARTS_BEFORE_A_PROBLEM} times within {limits.STARTS_COUNTED_SECONDS:g} s"
            )
        return found


@inspect_command(name=COMMAND)  # type: ignore[untyped-decorator]  # celery has no types
def _announce(state: Any, whole: bool = False, **_: object) -> dict[str, Any]:
    """Say which contracts this worker has (see `registry.contracts`)."""
    return announcement(registry.limited_to(state.app.conf.acts_settings.allow), whole=bool(whole))
