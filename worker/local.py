"""`local()`: a server and a worker for a test or a notebook, gone when the block ends.

The server is a process of its own; the worker is a thread of this one, so it knows functions that are defined here, in
a test or in a notebook's cell, and a debugger stops in them. For everything else there is `acts worker`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from os import PathLike, fspath
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, ClassVar, Final

from ..broker_config import EmbeddedServer, Settings, load, queue_names
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
