"""Worker processes, begun by `acts worker` or by Celery."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import kombu
import pytest
from celery import Celery
from kombu import Connection, Queue

from acts_celery import ActivitiesError
from acts_celery.broker_config import EmbeddedServer, NotConfigured, load
from acts_celery.worker.broker.consumer import Publisher, outlive_channel
from acts_celery.worker.broker.messages import TaskMessage
from acts_celery.worker.broker.transport import forget_connections
from acts_celery.worker.cli.doctor_layers import examine_backend
from acts_celery.worker.cli.worker import _quotas, usable_processors
from acts_celery.worker.registry.activities import Registry
from acts_celery.worker.runner.application import make_application, make_client_application
from tests.chaos.server import Server
from tests.environment import without_settings
from tests.few import few

from .backend import (
    ACTIVITIES,
    DEADLINE_SECONDS,
    ROOT,
    Backend,
    Meeting,
    ended,
    ends,
    heard,
    meeting_url,
    settings_apart,
    settings_for,
)

# `celery -A acts_celery worker` with Celery's own options: each has its effect, or the worker does not start.

_numbers = count()
_MINE = """
import os
from celery import shared_task
from acts_celery import activity

@activity
def process() -> int:
    return os.getpid()

def fails(task, app, consumer):
    def handle(*_, **__):
        secret = "what the message holds"
        raise ZeroDivisionError(secret)
    return handle

@shared_task(name="shop.broken", Strategy="mine:fails")
def broken(): ...
"""


@pytest.fixture(scope="module")
def mine_py(tmp_path_factory: pytest.TempPathFactory) -> Path:
    written = tmp_path_factory.mktemp("command") / "mine.py"
    written.write_text(_MINE, encoding="utf-8")
    return written


@pytest.fixture
def mine(server: EmbeddedServer, meeting: Meeting, tmp_path: Path, mine_py: Path) -> Backend:
    settings = settings_apart(server, f"command{next(_numbers)}", activities=(str(mine_py),))
    return Backend(settings, meeting, tmp_path)


def _command(*arguments: str) -> list[str]:
    *own, last = arguments if "worker" in arguments else (*arguments, "")
    return [sys.executable, "-m", "celery", "-A", "acts_celery", *own, *([last] if last else [])]


@contextmanager
def celery_worker(backend: Backend, *arguments: str, **extra: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of Celery's command that is ready."""
    code = Path(backend.settings.activities[0]).parent
    environment = backend.environment(PYTHONPATH=os.pathsep.join((str(code), str(ROOT))), **extra)
    with (
        backend.log.open("ab") as log,
        ended(_command("worker", "-l", "INFO", *arguments), environment, backend.folder, log) as process,
    ):
        heard(backend, "ready.")
        yield process


def pool_process(backend: Backend) -> int:
    """Which process has carried out a call."""
    run = backend.client.submit([], {"calls": [{"_tool": "process", "_outputPath": "†state.pid"}]})
    return int(run.wait(timeout_seconds=DEADLINE_SECONDS).data()["state"]["pid"])


@pytest.mark.parametrize(
    "arguments",
    few(
        [
            ("worker", "--autoscale", "4,1"),
            ("worker", "--time-limit", "4"),
            ("worker", "--soft-time-limit", "4"),
            ("worker", "--max-tasks-per-child", "5"),
            ("worker", "--max-memory-per-child", "100000"),
            ("worker", "-P", "threads", "--time-limit", "4"),
            ("--broker", "redis://127.0.0.1:1/0", "worker"),
        ],
        2,
    ),
    ids=lambda arguments: "".join(option for option in arguments if option.startswith("--")),
)
def test_an_option_without_effect_is_refused_at_the_start_in_one_line(
    mine: Backend, arguments: tuple[str, ...]
) -> None:
    command, environment = _command(*arguments), mine.environment()
    said = subprocess.run(
        command, env=environment, cwd=mine.folder, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    assert said.returncode == 2, said.stderr
    (line,) = [line for line in said.stderr.splitlines() if line.startswith("acts: ")]
    assert next(option for option in arguments if option.startswith("--")) in line


def test_without_options_coroutines_run_and_typed_prefork_forks_and_may_scale(mine: Backend) -> None:
    with celery_worker(mine, "-c", "2") as process:
        assert pool_process(mine) == process.pid
    mine.log.unlink()
    with celery_worker(mine, "-P", "prefork", "--autoscale", "3,1", "--time-limit", "60") as process:
        assert "-P prefork: a pool of processes" in mine.log.read_text()
        assert pool_process(mine) != process.pid


@pytest.mark.parametrize("variable", few(["BROKER_URL", "CELERY_BROKER_URL", "CELERY_BROKER_READ_URL"], 1))
def test_a_broker_in_the_environment_of_another_application_is_not_taken(mine: Backend, variable: str) -> None:
    elsewhere = {variable: "redis://127.0.0.1:1/0", "CELERY_RESULT_BACKEND": "redis://127.0.0.1:1/0"}
    with celery_worker(mine, "-c", "2", **elsewhere) as process:
        assert "ACTS_BROKER_URL" in mine.log.read_text()
        assert pool_process(mine) == process.pid


def test_an_error_of_the_consumer_has_a_traceback_and_a_count_and_the_doctor_tells(mine: Backend) -> None:
    sender = Celery("sending", broker=mine.settings.require_broker(), set_as_current=False)
    sender.conf.broker_transport_options = {"global_keyprefix": f"{mine.settings.key_prefix}:broker:"}
    with celery_worker(mine, "-Q", f"{mine.settings.queue_instances},shop"):
        sender.send_task("shop.broken", [], queue="shop", serializer="msgpack")
        heard(mine, "taking a task of 'shop' fails: ZeroDivisionError")
        heard(mine, "in handle")
        sender.send_task("shop.nowhere", [], queue="shop", serializer="msgpack")
        heard(mine, "shop.nowhere")
        (workers,) = [layer for layer in examine_backend(mine.settings) if layer.layer == "workers"]
    assert not workers.ok
    assert "failed to take 1 task" in workers.detail
    assert "refused 1 messages" in workers.detail
    assert "what the message holds" not in mine.log.read_text()


def test_a_neighbour_that_starts_is_no_error(mine: Backend) -> None:
    with celery_worker(mine, "-n", "one@here"), celery_worker(mine, "-n", "two@here"):
        heard(mine, "two@here ready.")
    assert "ERROR" not in mine.log.read_text()


@pytest.mark.parametrize(
    ("library", "asked", "threads"),
    [("gevent.monkey", "is_module_patched", "threading"), ("eventlet.patcher", "is_monkey_patched", "thread")],
)
def test_a_process_whose_sockets_are_patched_and_its_threads_not_makes_no_worker(
    library: str, asked: str, threads: str, mine: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    patched = {"socket"}
    module = ModuleType(library)
    setattr(module, asked, patched.__contains__)
    monkeypatch.setitem(sys.modules, library, module)
    with pytest.raises(ActivitiesError, match="patch"):
        make_application(mine.settings, Registry())
    patched.add(threads)
    make_application(mine.settings, Registry())


# `acts worker` with several processes: started, kept running and stopped by one command.


class Workers:
    """The command, what it has announced, and what it has said on stderr so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.announced = json.loads(process.stdout.readline() or "{}")

    @property
    def pids(self) -> list[int]:
        return [process["pid"] for process in self.announced["processes"]]

    def wait_for(self, text: str) -> str:
        """The next line on stderr that holds a text."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if text in line:
                return line
        raise AssertionError(f"it ended and never said {text!r}")

    def stop(self) -> int:
        """Ask it to end; returns its exit code."""
        self.process.terminate()
        return self.process.wait(DEADLINE_SECONDS)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """A server of our own, so that nobody else serves these queues."""
    with EmbeddedServer() as server:
        yield Backend(settings_for(server), Meeting(meeting_url(server)), tmp_path_factory.mktemp("processes"))


@contextmanager
def workers(backend: Backend, *arguments: str, **environment: str) -> Iterator[Workers]:
    command = [sys.executable, "-m", "acts_celery", "worker", "--json", *arguments]
    with subprocess.Popen(
        command,
        env=backend.environment(**environment),
        cwd=backend.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Workers(process)
        finally:
            process.kill()


def waiting(gate: str) -> dict[str, Any]:
    return {"_tool": "waitAtGate", "gate": gate, "_outputPath": f"†state.{gate}"}


def test_one_line_announces_all_processes_and_each_takes_tasks(own: Backend) -> None:
    context = [{"type": "state", "_instance": f"i{number}", "n": number} for number in range(2)]
    calls = [{**waiting("both"), "_instance": f"i{number}"} for number in range(2)]
    # One task at a time in each process: two calls at once take two.
    with workers(own, "--processes", "2", "--concurrency", "1", "--name", "crew") as crew:
        names = [process["worker"] for process in crew.announced["processes"]]
        assert [name.partition("@")[0] for name in names] == ["crew", "crew-2"]
        assert crew.announced["worker"] == names[0]
        assert crew.announced["queues"][:3] == ["instances", "delegates", "background"]
        assert crew.announced["pid"] == crew.process.pid
        run = own.client.submit(context, {"calls": calls})
        assert {own.meeting.take("at:both") for _ in calls} == set(crew.pids)
        own.meeting.open_gate("both")
        assert own.wait(run.id).status == "completed"
        assert crew.stop() == 0
    assert all(ends(pid) for pid in crew.pids)


@pytest.mark.nightly
def test_a_process_that_dies_is_started_again_and_said_so(own: Backend) -> None:
    with workers(own, "--processes", "2") as crew:
        os.kill(crew.pids[1], signal.SIGKILL)
        assert "SIGKILL" in crew.wait_for("ended by itself")
        line = crew.wait_for("is ready")
        assert crew.announced["processes"][1]["worker"] not in line
        assert crew.stop() == 0


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_second_signal_stops_what_the_first_lets_end(own: Backend, number: signal.Signals, processes: str) -> None:
    name = f"{number.name}{processes}"
    with workers(own, "--processes", processes) as crew:
        call = {"_tool": "waitForCancellation", "name": name, "_outputPath": "†state.x"}
        run = own.client.submit(solution={"calls": [call]})
        own.meeting.take(f"waiting:{name}")
        crew.process.send_signal(number)
        for _ in range(int(processes)):
            crew.wait_for("arm shutdown")
        crew.process.send_signal(number)
        assert crew.process.wait(DEADLINE_SECONDS) == 0
    run.cancel()


@pytest.mark.nightly
def test_the_processes_end_with_what_started_them(own: Backend) -> None:
    with workers(own, "--processes", "2") as crew:
        crew.process.kill()
        assert all(ends(pid) for pid in crew.pids)


def test_what_is_wrong_with_the_activities_is_reported_once(own: Backend, tmp_path: Path) -> None:
    with workers(own, "--processes", "3", "--activities", str(tmp_path / "missing.py")) as crew:
        stderr = crew.process.communicate()[1]
        assert crew.process.returncode == 2
    assert [line for line in stderr.splitlines() if "missing.py" in line] == stderr.splitlines()
    assert len(stderr.splitlines()) == 1


@pytest.mark.parametrize("around", ["if True:", "try:"])
def test_a_signal_that_comes_while_activities_are_loaded_ends_it(own: Backend, tmp_path: Path, around: str) -> None:
    """Also where their code catches whatever is raised in it."""
    caught = "except BaseException:\n    pass\n" if around == "try:" else ""
    module = tmp_path / "asks_to_end.py"
    module.write_text(f"import os, signal\n{around}\n    os.kill(os.getpid(), signal.SIGTERM)\n{caught}")
    with workers(own, "--processes", "1", ACTS_ACTIVITIES=str(module)) as found:
        assert found.process.wait(DEADLINE_SECONDS) == 143
        assert found.process.stderr is not None
        assert found.process.stderr.read().splitlines()[-1] == "acts: terminated"


def test_a_process_is_started_for_each_processor_that_may_be_used(own: Backend) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    try:
        os.sched_setaffinity(0, allowed[:1])
        assert usable_processors() == 1
        with workers(own) as alone:  # it inherits the affinity
            assert "processes" not in alone.announced
            assert alone.announced["pid"] == alone.process.pid
            assert alone.stop() == 0
    finally:
        os.sched_setaffinity(0, allowed)


def test_a_control_group_and_those_above_it_grant_processors(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("12:cpu:/elsewhere\n0::/outer/inner\n")
    (tmp_path / "outer" / "inner").mkdir(parents=True)
    (tmp_path / "outer" / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "outer" / "inner" / "cpu.max").write_text("max 100000\n")
    assert list(_quotas(tmp_path, tmp_path / "own")) == [1.5]
    assert list(_quotas(tmp_path, tmp_path / "none")) == []


def test_two_processes_get_along_on_a_server_that_takes_few_connections(tmp_path: Path) -> None:
    server = Server(tmp_path / "server")
    server.start()
    try:
        settings = load(env_file=None, broker_url=server.url, redis_url=server.url, activities=(str(ACTIVITIES),))
        backend = Backend(settings, Meeting(server.url), tmp_path)
        backend.redis.config_set("maxclients", 30)
        instances = [f"i{n}" for n in range(40)]
        context = [{"type": "state", "_instance": name} for name in instances]
        calls = [
            {"_tool": tool, **given, "_instance": name, "_outputPath": f"†state.{tool}"}
            for tool, given in (("echoPlain", {"value": 1}), ("remoteAdd", {"a": 1, "b": 2}))
            for name in instances
        ]
        with backend.worker("--processes", "2"):
            runs = [backend.client.submit(context, {"calls": calls}) for _ in range(5)]
            assert [backend.wait(run.id).status for run in runs] == ["completed"] * 5
        (broker,) = (layer for layer in examine_backend(settings) if layer.layer == "broker")
        assert "connections" not in broker.detail
        backend.redis.config_set("maxclients", few := int(backend.redis.info("clients")["connected_clients"]) + 2)
        (broker,) = (layer for layer in examine_backend(settings) if layer.layer == "broker")
        assert f"of its {few} connections are in use" in broker.detail
    finally:
        server.stop()


# A worker outlives what has become of its connections (the rest of the consumer: `test_content`).


@pytest.fixture
def message(server: EmbeddedServer) -> Iterator[Any]:
    """A message of a channel as it is left where it could not be closed: without connections, and no way to others."""
    with Connection(server.broker_url) as connection:
        channel = connection.channel()
        queue = Queue("left")(channel)
        queue.declare()
        connection.Producer().publish({}, routing_key="left", exchange="")
        message = queue.get(no_ack=False)
        queue.delete()
        channel._disconnect_pools()
        connection.transport.client = None
        yield message
        connection.transport.client = connection


# As Celery's requests call them.
@pytest.mark.parametrize(("answer", "how"), [("ack_log_error", ()), ("reject_log_error", (True,))])
def test_an_answer_to_a_message_of_a_dead_channel_is_reported_and_ends_nothing(
    message: Any, answer: str, how: tuple[bool, ...], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(AttributeError):
        getattr(message, answer)(logging.getLogger(), (), *how)
    outlive_channel(message)
    getattr(message, answer)(logging.getLogger(), (), *how)
    assert "Couldn't" in caplog.text


def test_a_place_that_is_given_back_is_taken_at_once(server: EmbeddedServer, meeting: Meeting, tmp_path: Path) -> None:
    backend = Backend(settings_apart(server, "few"), meeting, tmp_path)
    context = [{"type": "input", "_instance": f"i{number}", "n": number} for number in range(8)]
    plan = {"type": "plan", "calls": [{"_tool": "rest", "mark": "†input.n", "_outputPath": "†state.n"}]}
    with backend.worker("--concurrency", "1"):
        run = backend.client.submit([*context, plan])
        assert backend.wait(run.id).status == "completed"
    ends = sorted(int(entry.id.partition("-")[0]) for entry in run.log() if "_call" in entry.message)
    assert len(ends) == len(context)
    assert sum(after - before > 600 for before, after in pairwise(ends)) < 3  # of 7, where each waits for a second


def test_where_kombu_is_old_clients_publish_one_by_one_and_no_worker_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedServer() as server, monkeypatch.context() as old:
        old.delattr(kombu.Producer, "batch")
        app = make_client_application(settings_for(server))
        Publisher(app).publish([TaskMessage("acts.probe", "old", b"", "-") for _ in range(3)])
        assert Publisher(app).waiting("old") == 3
        forget_connections(app.connection_for_write())
    monkeypatch.setattr(kombu, "VERSION", kombu.VERSION._replace(minor=5))
    with pytest.raises(NotConfigured, match=r"workers need kombu 5\.7"):
        make_application(load(broker_url="redis://localhost"), Registry())


def test_what_celerys_command_cannot_begin_without_is_said_in_one_line(tmp_path: Path) -> None:
    nothing = {name: value for name, value in without_settings().items() if not name.startswith("CELERY")}
    command = [sys.executable, "-m", "celery", "-A", "acts_celery", "worker"]
    environment = {**nothing, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS
    )
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("acts: no broker is configured: set ACTS_BROKER_URL")
