"""`local()`: a server and a worker for a test or a notebook, gone when the block ends.

The server is a process of its own; the worker is a thread of this one, so it knows functions that are defined here, in
a test or in a notebook's cell, and a debugger stops in them. For everything else there is `acts worker`.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from os import PathLike, fspath
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, ClassVar, Final

from ..__main__ import own_command
from ..broker_config import EmbeddedServer, GuardedProcess, Settings, load, queue_names
from ..protocol import Plan
from . import limits
from .agent.asking import bounds_of, make_model
from .agent.scripted import FakeModel, ScriptedModel
from .client.client import Client
from .client.run import Run
from .client.submitting import Label, with_named_options
from .errors import ActivitiesError, InfrastructureError, WorkerError
from .registry.activities import Policy, RegisteredModel, Registry, make_activity, registry
from .registry.loading import load as load_module
from .registry.mcp_tools import register_tools
from .registry.models import Answer, KnownModels, Model, ModelRequest, ignore
from .store.waiting import await_background

Activities = Iterable[Callable[..., Any] | ModuleType | str | PathLike[str]]

_in_use: Final = threading.Lock()
"""Celery keeps the state of a worker in its modules: there is one in a process."""


class Local:
    """A server and a worker of this process: for a `with` block, or from `start()` to `stop()`."""

    _started: ClassVar[Local | None] = None

    def __init__(self, activities: Activities, settings: dict[str, Any], *, verifies_models: bool = True) -> None:
        """A test gives its own models: whether those of the settings can be had is not verified then."""
        self._verifies_models = verifies_models
        self._running: AbstractContextManager[LocalClient] | None = None
        self._activities = tuple(activities)
        self._settings = settings

    def __enter__(self) -> LocalClient:
        self._running = _running(_known(self._activities), self._settings, verifies_models=self._verifies_models)
        return self._running.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.__exit__(kind, error, traceback)

    def start(self) -> LocalClient:
        """Begin, for the cells of a notebook: what another `start()` has begun is stopped before."""
        if Local._started is not None:
            Local._started.stop()
        client = self.__enter__()
        Local._started = self
        return client

    def stop(self) -> None:
        """End what `start()` has begun; done again, it does nothing."""
        if Local._started is self:
            Local._started = None
        self.__exit__(None, None, None)


def local(activities: Activities = (), **settings: Any) -> Local:
    """A client of a server and a worker that exist for the time of a block, or from one cell to another.

        with local([greet]) as client:
            print(client.submit(solution={"calls": [...]}).wait().data())

        backend = local([greet])
        client = backend.start()
        ...
        backend.stop()

    `activities` are functions - plain ones count as if they were marked with `@activity` - modules, or names of modules
    and files. What is registered is known as well, also what is registered later: an activity that is defined again,
    as by a cell that is run twice, takes the place of the former. `settings` are those of `broker_config.Settings`, by
    name (`model="scripted:answers.json"`, `limit_attempts=1`). Leaving the block waits for what was sent and not
    awaited; an exception leaves at once.
    Raises `ActivitiesError`, `InfrastructureError`, and `WorkerError` where the process has another of these at work.
    """
    if isinstance(activities, str | bytes | PathLike | ModuleType) or callable(activities):
        raise TypeError(
            f"local() takes a list of activities: write local([{getattr(activities, '__name__', activities)}])"
        )
    return Local(activities, settings)


@with_named_options
class LocalClient(Client):
    """A client of a worker in this process, as `local()` and the fixture `acts` give it.

    The worker's queues are those of the activities that were registered when it began.
    """

    def __init__(self, settings: Settings, registry: Registry) -> None:
        super().__init__(settings, registry=registry)
        self.records = False
        """Whether `recorded` asks the model of the settings for what its file does not have."""
        self._known = registry
        self._served = frozenset(registry.queues())

    def submit_plan(self, plan: Plan, label: Label | None = None, files: Mapping[str, bytes] | None = None) -> Run:
        """Submit a plan (see `Client`). Raises `InfrastructureError` too for a call whose queue has no worker."""
        for name in {call.runner.name for call in plan.calls} & plan.queued:
            if (queue := self._known.activities[name].queue) not in self._served:
                raise InfrastructureError(
                    f"nobody takes from the queue {queue!r} of activity {name!r}, which came after the worker had "
                    "begun: begin again"
                )
        return super().submit_plan(plan, label, files)

    def model(self, *answers: Any, name: str | None = None) -> FakeModel:
        """A model that gives these answers, in this order, instead of the model of that name; without a `name`
        instead of every model, so that none is asked over a network. A later one replaces an earlier one.

        An answer is a value (`{"calls": […], "output": …}`), the text as a model would write it, an `Answer` with its
        `usage`, an error such as `RateLimited("…")`, or a function of `(messages, schema, config)` that gives one of
        these; a generator function streams its answer in pieces. A function at the end answers all that follow.
        Raises `ValueError` where there is no answer.
        """
        if not answers:
            raise ValueError('give at least one answer, such as acts.model({"output": "tea"})')
        return self._stand_in(FakeModel(answers), name)

    def recorded(self, file: str | PathLike[str], *, name: str | None = None) -> FakeModel:
        """A model as `model` makes it, whose answers come from a file: each the one that was recorded for the same
        messages, schema and settings. What was not recorded fails, and the error says how the nearest differs.

        With `records` the model of the settings is asked what is not there, and its answers are added; so it is under
        `pytest --acts-record`. Raises `WorkerError` for a file that cannot be read.
        """
        path = Path(file)
        if not self.records and not path.exists():
            raise WorkerError(f"nothing is recorded in {path} yet: run pytest --acts-record once, with ACTS_MODEL set")
        model = self._recording(path, name) if self.records else ScriptedModel.load(path)

        async def answer(*asked: Any) -> Answer:
            return await model.ask(ModelRequest(*asked), ignore)

        return self._stand_in(FakeModel([answer]), name)

    def _recording(self, path: Path, name: str | None) -> Model:
        configured = KnownModels(self.settings, self._known).of_settings(name)
        if configured is None:
            raise WorkerError(f"there is no model to record in {path}: set ACTS_MODEL, and its key")
        kept = configured.model_copy(update={"recording": str(path)})
        return make_model(kept, self._known, asyncio.to_thread, bounds_of(self.settings))

    def _stand_in(self, made: FakeModel, name: str | None) -> FakeModel:
        registered = f"fake-{len(self._known.models)}"
        self._known.add_model(RegisteredModel(registered, made.answer))
        self._known.stand_ins[name] = registered
        return made


@contextmanager
def _running(known: Registry, settings: dict[str, Any], *, verifies_models: bool) -> Iterator[LocalClient]:
    if not _in_use.acquire(blocking=False):
        raise InfrastructureError("local() is in use in this process already: use that client, or leave its block")
    from .broker.consumer import decoding_restored

    try:
        with EmbeddedServer() as server:
            urls = {"broker_url": server.broker_url, "redis_url": server.redis_url}
            own = load(**({"sweep_interval_seconds": 0.2, "contract_wait_seconds": 0} | settings | urls))
            if "metrics_port" not in settings:  # the environment's port belongs to the workers of this machine
                own = own.model_copy(update={"metrics_port": None})
            register_tools(own, known)
            worker = _worker(own, known, verifies_models=verifies_models)
            with decoding_restored(), worker, LocalClient(own, registry=known) as client:
                yield client
                await_background(own, time.monotonic() + limits.LOCAL_LONGEST_WAIT_SECONDS)
    finally:
        _in_use.release()


def _known(activities: Activities) -> Registry:
    """The registry of what is registered, now and later, with these activities before it."""
    given = Registry()
    for one in activities:
        if isinstance(one, ModuleType):
            _require_registered(one)
        elif not callable(one):
            load_module(fspath(one))
        elif not any(one is activity.function for activity in registry.activities.values()):
            given.add_activity(make_activity(one, None, None, Policy()))
    known = Registry()
    known.activities = ChainMap(given.activities, registry.activities)
    known.delegates = registry.delegates
    known.models = ChainMap({}, registry.models)
    return known


def _require_registered(module: ModuleType) -> None:
    """Raise `ActivitiesError` for a module that has registered nothing when it was imported."""
    known = (registry.activities, registry.delegates, registry.models)
    if not any(one.function.__module__ == module.__name__ for kind in known for one in kind.values()):
        raise ActivitiesError(f"{module.__name__} registers no activity: put @activity above its functions")


@contextmanager
def _worker(settings: Settings, known: Registry, *, verifies_models: bool) -> Iterator[None]:
    """A worker in a thread of this process, ready to take tasks."""
    from celery import _state
    from celery.app import trace
    from celery.worker import WorkController, state

    from .broker.transport import forget_connections
    from .runner.application import ConnectionsStep, make_application
    from .runner.runtime import GarbageStep

    app = make_application(settings, known, verifies_models=verifies_models)
    # What is in this process is not all the worker's, and kombu has one limit of connections for all of it.
    for step in (GarbageStep, ConnectionsStep):
        app.steps["worker"].discard(step)
    app.conf.broker_transport_options = {**app.conf.broker_transport_options, "polling_interval": limits.POLL_SECONDS}
    ready = threading.Event()
    controller = WorkController(
        app=app,
        hostname="acts@local",
        pool=app.conf.worker_pool,
        concurrency=settings.concurrency,
        queues=list(dict.fromkeys((*queue_names(settings), *known.queues()))),
        ready_callback=lambda _: ready.set(),
        without_gossip=True,
        without_mingle=True,
    )

    before = _state.default_app

    def work() -> None:
        try:
            trace.setup_worker_optimizations(app, controller.hostname)  # its threads find the tasks of our application
            controller.start()
        finally:
            ready.set()

    thread = threading.Thread(target=work, name="acts-local-worker", daemon=True)
    thread.start()
    try:
        if not ready.wait(limits.READY_SECONDS) or not thread.is_alive():
            raise InfrastructureError("the worker of local() did not start: its log says why")
        yield
        state.should_stop = 0
    except BaseException:
        state.should_terminate = 0
        raise
    finally:
        thread.join()
        state.should_stop = state.should_terminate = None
        trace.reset_worker_optimizations(app)
        _state.set_default_app(before)
        app.conf.acts_runtimes.close()
        forget_connections(app.connection_for_write())


# The local backend: an own server and an own worker for the time of a `with` block (`acts run` without a broker).
#
# Nothing is left behind however we end (`broker_config.GuardedProcess`), and no call is lost when the worker dies: as
# long as it had become ready, another takes its place and finds its calls by their leases (see `recovery.sweep`). What
# was sent and not awaited (SPEC R5.1) is done before the block is left in peace; an exception leaves at once.

READY: Final = "is ready"
"""The words in the worker's log once it has started."""

# Each death costs the calls in hand one of their attempts, so a call that kills its worker ends as failed. A worker
# that dies for a reason of its own must not be started for ever.
_LOG_NAME: Final = "worker.log"


@contextmanager
def embedded_backend(
    settings: Settings, *, worker_log: Path | None = None, deadline: float | None = None
) -> Iterator[Settings]:
    """Yield `settings` pointed at a server and a worker that exist for the time of the block.

    The server answers when the block begins; the worker is still starting, and takes up what is submitted as soon as
    it can. Leaving the block waits for what was sent and not awaited, until `deadline` (of `time.monotonic`). The
    worker's log goes to `worker_log`, by default to a file that is removed with the server. Raises
    `InfrastructureError` where either cannot be had or the worker ends for good.
    """
    with EmbeddedServer() as server:
        urls = settings.with_embedded(broker_url=server.broker_url, redis_url=server.redis_url)
        interval = min(settings.sweep_interval_seconds, limits.LOCAL_SWEEP_SECONDS)
        # The port of figures belongs to the workers of this machine; this worker is gone after a run.
        # No other worker will come, so no call waits for one whose code admits it.
        alone = {"sweep_interval_seconds": interval, "metrics_port": None, "contract_wait_seconds": 0}
        own = urls.model_copy(update=alone)
        worker = _Worker(own, server, worker_log or server.directory / _LOG_NAME)
        try:
            yield own
            worker.drain()
            from .store.waiting import await_background

            await_background(own, deadline)
        except Exception as error:
            if worker.failure is not None and _is_of_infrastructure(error):
                raise worker.failure from error
            raise
        finally:
            worker.stop()


class _Worker:
    """A worker process that is started again when it dies; a thread waits for its end."""

    def __init__(self, settings: Settings, server: EmbeddedServer, log: Path) -> None:
        self.failure: InfrastructureError | None = None
        self._settings = settings
        self._server = server
        self._log = log
        self._lock = threading.Lock()
        self._may_restart = True
        self._is_stopping = False
        self._process = self._start()
        self._watcher = threading.Thread(target=self._watch, name="acts-embedded-worker", daemon=True)
        self._watcher.start()

    def drain(self) -> None:
        """From now on a dead worker is the end: a call that is not awaited shall not kill one after the other."""
        with self._lock:
            self._may_restart = False

    def stop(self) -> None:
        """End the process, gracefully if it ends in time."""
        with self._lock:
            self._is_stopping = True
        self._process.stop()
        self._watcher.join()

    def _start(self) -> GuardedProcess:
        self._begins_at = self._log.stat().st_size if self._log.exists() else 0
        command = own_command("worker", "--processes", "1", "--name", "embedded", "--log-level", "INFO")
        try:
            with self._log.open("ab") as log:
                return GuardedProcess(
                    command,
                    env={**os.environ, **self._settings.to_environment(), "PYTHONUNBUFFERED": "1"},
                    grace_seconds=limits.LOCAL_GRACE_SECONDS,
                    stdout=log,
                    stderr=log,
                )
        except OSError as error:
            raise InfrastructureError(f"the embedded worker cannot be started: {error}") from error

    def _watch(self) -> None:
        for start in range(1, limits.LOCAL_MOST_STARTS + 1):
            code = self._process.wait()
            with self._lock:
                if self._is_stopping:
                    return
                if self._is_replaced(start):
                    continue
                self.failure = InfrastructureError(self._last_words(code))
            # A client that waits for an answer gets an error now, instead of waiting for a worker that never comes.
            self._server.stop()
            return

    def _is_replaced(self, start: int) -> bool:
        """Start another worker, if that promises anything."""
        try:
            if self._may_restart and self._was_ready() and start < limits.LOCAL_MOST_STARTS:
                self._process = self._start()
                return True
        except (InfrastructureError, OSError):
            pass  # the server's directory is gone as well
        return False

    def _was_ready(self) -> bool:
        return READY.encode() in self._written()

    def _last_words(self, code: int) -> str:
        lines = [line.strip() for line in self._written().decode(errors="replace").splitlines() if line.strip()]
        told = lines[-1:] if lines and lines[-1].startswith("acts: ") else lines[-limits.LAST_LOG_LINES :]
        said = " / ".join(line.removeprefix("acts: ") for line in told) or "it logged nothing"
        return f"the embedded worker ended (exit code {code}): {said}"

    def _written(self) -> bytes:
        """The log of the latest process."""
        try:
            with self._log.open("rb") as log:
                log.seek(self._begins_at)
                return log.read()
        except OSError:  # it went with the server's directory
            return b""


def _is_of_infrastructure(error: Exception) -> bool:
    """Whether an error may have been caused by a server that is gone."""
    from kombu.exceptions import OperationalError
    from redis.exceptions import RedisError

    return isinstance(error, (InfrastructureError, RedisError, OperationalError, OSError))
