"""`celery -A acts_celery worker` with Celery's own options: each has its effect, or the worker does not start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import ModuleType

import pytest
from celery import Celery

from acts_celery import ActivitiesError
from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.cli.doctor_servers import examine_servers
from acts_celery.worker.registry.activities import Registry
from acts_celery.worker.runner.application import make_application

from .backend import DEADLINE_SECONDS, ROOT, Backend, Meeting, ended, heard, settings_apart

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
    [
        ("worker", "--autoscale", "4,1"),
        ("worker", "--time-limit", "4"),
        ("worker", "--soft-time-limit", "4"),
        ("worker", "--max-tasks-per-child", "5"),
        ("worker", "--max-memory-per-child", "100000"),
        ("worker", "-P", "threads", "--time-limit", "4"),
        ("--broker", "redis://127.0.0.1:1/0", "worker"),
    ],
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


@pytest.mark.parametrize("variable", ["BROKER_URL", "CELERY_BROKER_URL", "CELERY_BROKER_READ_URL"])
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
        (workers,) = [layer for layer in examine_servers(mine.settings) if layer.layer == "workers"]
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
