"""Recovery at full size: what is lost, and who is in the way, with real processes and by the clock.

Each of these is held by counts, too, in `test_sweep_script`, `test_liveness` and `test_scheduler`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
from redis import Redis

from acts_celery.broker_config import EXECUTE_ACTIVITY, EXECUTE_BACKGROUND, EmbeddedServer, Settings, load
from acts_celery.worker.broker.attempts import Attempt, CallId
from acts_celery.worker.broker.consumer import Publisher
from acts_celery.worker.broker.messages import ActivityCall, TaskMessage, lane_task, pack_message
from acts_celery.worker.runner.application import make_client_application
from tests.chaos.proxy import Proxy
from tests.chaos.server import Server

from .backend import ACTIVITIES, MODEL, Backend, Meeting, meeting_url, settings_for

pytestmark = pytest.mark.nightly
RECOVERY_SECONDS = 10
NOBODY = CallId("nobody", None, 0)
_ALONE = 7
"""So few calls do not share messages: what is counted here is messages, and how long they take."""


@pytest.fixture
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """A server of our own; every setting at its default."""
    with EmbeddedServer() as server:
        yield Backend(settings_for(server), Meeting(meeting_url(server)), tmp_path_factory.mktemp("recovery"))


class Load:
    """Keeps queues from running empty: tasks of a run that does not exist, which workers are busy with all the same."""

    def __init__(self, backend: Backend) -> None:
        self._publisher = Publisher(make_client_application(backend.settings))
        self._redis: Redis = backend.redis
        self._ended = threading.Event()
        work = pack_message(ActivityCall(Attempt(NOBODY), "takeAWhile", {}, {}, {}))
        self._kinds = {
            "lathe": (TaskMessage(EXECUTE_ACTIVITY, "lathe", work, "-"), 200),
            "background": (TaskMessage(EXECUTE_BACKGROUND, "background", work, "-", is_forgotten=True), 200),
            "instances": (lane_task(NOBODY.run, None, "instances"), 1_000),
        }
        self.shortest = {queue: least for queue, (_, least) in self._kinds.items()}

    def top_up(self) -> None:
        for queue, (task, least) in self._kinds.items():
            length: Any = self._redis.llen(queue)
            self.shortest[queue] = min(self.shortest[queue], length)
            for missing in range(2 * least - length, 0, -_ALONE):
                self._publisher.publish([task] * min(_ALONE, missing))

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Keep it up while the block lasts."""
        self.top_up()
        self.shortest = {queue: least for queue, (_, least) in self._kinds.items()}
        thread = threading.Thread(target=self._go_on)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _go_on(self) -> None:
        while not self._ended.wait(0.02):
            self.top_up()


@pytest.mark.parametrize("queue", ["instances", "lathe", "background"])
def test_what_the_broker_loses_is_found_though_no_queue_runs_empty(backend: Backend, queue: str) -> None:
    calls = [
        {"_tool": "remoteAdd", "a": 1, "b": 2, "_outputPath": "†state.sum"},
        {"_tool": "note", "name": "noted"},
    ]
    with ExitStack() as stack:
        if queue != "instances":
            stack.enter_context(backend.worker("-Q", "instances"))
        run = backend.client.submit(solution={"calls": calls})
        taken: Any = backend.redis.blpop([queue], 30)
        assert taken is not None, "this is the loss"
        load = Load(backend)
        stack.enter_context(load.going_on())
        if queue == "instances":
            stack.enter_context(backend.worker("-Q", "instances"))
        stack.enter_context(backend.worker("-Q", "lathe,background", "--concurrency", "4"))
        backend.meeting.take("noted")
        backend.wait(run.id)
        assert load.shortest[queue] > 0


def test_what_a_worker_has_taken_and_not_begun_is_not_lost(backend: Backend) -> None:
    calls = [{"_tool": "waitFar", "gate": f"held-{n}", "_outputPath": f"†state.p{n}"} for n in range(4)]
    with backend.worker("-Q", "instances"), greedy_worker(backend, "far"):
        run = backend.client.submit(solution={"calls": calls})
        backend.meeting.take("at:held-0")
        for _ in range(20):
            assert wait_for_sweep(backend)
        for n in range(4):
            backend.meeting.open_gate(f"held-{n}")
        assert backend.wait(run.id).status == "completed"
    assert [backend.meeting.count(f"at:held-{n}") for n in range(4)] == [0, 1, 1, 1]


@contextmanager
def greedy_worker(backend: Backend, queue: str) -> Iterator[None]:
    """A worker of Celery's own command, with one thread, that takes four messages at a time."""
    command = [sys.executable, "-m", "celery", "-A", "acts_celery", "worker", "--pool", "threads", "--concurrency", "1"]
    command += ["-Q", queue, "--prefetch-multiplier", "4", "--without-mingle"]
    with backend.log.open("ab") as log:
        process = subprocess.Popen(command, env=backend.environment(), cwd=backend.folder, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


def wait_for_sweep(backend: Backend) -> bool:
    """Wait until a sweep has looked after the runs once more."""
    backend.redis.config_set("notify-keyspace-events", "Kh")
    with backend.redis.pubsub() as writes:  # type: ignore[no-untyped-call]  # redis is typed but here
        writes.subscribe("__keyspace@0__:acts:recovery")
        return all(writes.get_message(timeout=20) is not None for _ in range(2))


@pytest.mark.parametrize("trouble", ["holds its interpreter", "is stopped", "has lost its connection"])
def test_a_worker_in_trouble_keeps_no_other_workers_recovery_waiting(
    trouble: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("trouble")
    served = "instances,delegates,far"
    with ExitStack() as stack:
        server = Server(folder / "server")
        stack.callback(server.stop)
        server.start()
        meeting = Meeting(f"{server.url.removesuffix('/0')}/1")
        backend = Backend(settings_at(server.url), meeting, folder)
        victim = stack.enter_context(backend.worker("-Q", served))
        elsewhere = hanging("elsewhere", "ask", _delegate="hangOnceElsewhere")
        calls = [hanging("inline"), hanging("far", "hangOnceFar"), elsewhere]
        run = backend.client.submit(solution={"calls": calls})
        for call in calls:
            assert meeting.take(f"hanging:{call['name']}") == victim.pid
        network = stack.enter_context(suppressed(Proxy(server.port)))
        afar = Backend(settings_at(network.url), meeting, folder)
        troubled = stack.enter_context(afar.worker("-Q", "instances,hog"))
        stack.enter_context(backend.worker("-Q", served))
        match trouble:
            case "holds its interpreter":
                hold = [{"_tool": "holdInterpreter", "gate": "enough", "_outputPath": "†state.a"}]
                backend.client.submit(solution={"calls": hold})
                meeting.take("holding:enough")
            case "is stopped":
                os.kill(troubled.pid, signal.SIGSTOP)
                stack.callback(os.kill, troubled.pid, signal.SIGCONT)
            case _:
                network.__exit__()
        os.kill(victim.pid, signal.SIGKILL)
        killed = time.monotonic()
        for call in calls:
            meeting.take(f"hanging:{call['name']}")
        seconds = time.monotonic() - killed
        meeting.open_gate("enough")
        assert backend.wait(run.id).data() == {"state": {"inline": 2, "far": 2, "elsewhere": 2}}
        assert seconds < RECOVERY_SECONDS


def hanging(name: str, tool: str = "hangOnce", **meta: Any) -> dict[str, Any]:
    return {"_tool": tool, "name": name, "_outputPath": f"†state.{name}", **meta}


@contextmanager
def suppressed(proxy: Proxy) -> Iterator[Proxy]:
    """A network that may have ended when the block does."""
    proxy.__enter__()
    yield proxy
    with suppress(RuntimeError):
        proxy.__exit__()


def settings_at(url: str) -> Settings:
    """Default settings, the server being reached at that address."""
    return load(env_file=None, broker_url=url, redis_url=url, activities=(str(ACTIVITIES),), model=MODEL)
