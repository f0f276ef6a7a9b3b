"""The services of the Compose file at work as processes of this machine, with the commands and users that it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis

from acts_celery.broker_config import find_server
from tests.worker.backend import ended
from tests.worker.figures import page, value

from .files import DEPLOY, NAMES, ROOT, SERVICES, interpolated, service_commands
from .topology import EXAMPLES, free_ports

DEADLINE_SECONDS = 60
GIVEN = {name: f"{name.replace('_', '-').lower()}-5ecret" for name in NAMES} | {"ACTS_MODEL_API_KEY": "model-5ecret"}
WORKERS = ("instances", "delegates", "background")


class Composed:
    """What Compose would start, without it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.figures, *ports = free_ports(2 + len(WORKERS))
        self.ports = dict(zip(WORKERS, ports, strict=True))
        self.outbox = folder / "outbox.jsonl"

    def environment(self, service: str) -> dict[str, str]:
        """What a container of the service is given; the server is on this machine."""
        given = {name: interpolated(value, GIVEN) for name, value in SERVICES[service]["environment"].items()}
        return {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "REVIEWS_OUTBOX": str(self.outbox),
            "ACTS_HEALTH_FOLDER": str(self.folder / service),
            **{name: value.replace("@redis:6379", f"@127.0.0.1:{self.port}") for name, value in given.items()},
            "ACTS_METRICS_HOST": "127.0.0.1",
            "ACTS_METRICS_PORT": str(self.ports.get(service, "")),
        }

    def server(self) -> list[str]:
        """What the container of Redis executes; the binary of its name is told where to listen and to write."""
        program = self.folder / "valkey-server"
        program.write_text(f'#!/bin/sh\nexec "{find_server()}" "$@" --port {self.port} --bind 127.0.0.1\n')
        program.chmod(0o700)
        return [word.replace("/redis/", f"{DEPLOY}/redis/") for word in SERVICES["redis"]["command"]]

    def acts(self, service: str, *arguments: str) -> Any:
        """The output of the command line in a container of the service."""
        finished = subprocess.run(
            [sys.executable, "-m", "acts_celery", *arguments, "--json"],
            capture_output=True,
            cwd=EXAMPLES,
            env=self.environment(service),
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        assert finished.returncode == 0, f"{finished.stdout.decode()}{finished.stderr.decode()}\n{self.logs()}"
        return json.loads(finished.stdout.splitlines()[-1])

    def logs(self) -> str:
        """The ends of all logs."""
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in self.folder.glob("*.log"))


@pytest.fixture(scope="module")
def composed() -> Iterator[Composed]:
    with tempfile.TemporaryDirectory(prefix="acts-") as name, ExitStack() as stack:
        composed = Composed(Path(name))
        environment = composed.environment("redis") | {"REDIS_USERS": str(DEPLOY / "redis" / "users.acl")}
        log = stack.enter_context((composed.folder / "redis.log").open("wb"))
        server = stack.enter_context(ended(composed.server(), environment, composed.folder, log))
        assert server.stdout is not None
        assert any(b"eady to accept connections" in line for line in server.stdout), composed.logs()
        for service in WORKERS:
            log = stack.enter_context((composed.folder / f"{service}.log").open("wb"))
            command = [sys.executable, "-m", "acts_celery", *service_commands()[service][1:], "--json"]
            worker = stack.enter_context(ended(command, composed.environment(service), EXAMPLES, log))
            assert worker.stdout is not None
            assert worker.stdout.readline(), composed.logs()
        yield composed


def test_a_run_with_every_kind_of_call_completes_under_the_users_of_the_services(composed: Composed) -> None:
    run = composed.acts("cli", "submit", "reviews.json")["run"]
    composed.acts("cli", "log", run, "--follow")
    result = composed.acts("cli", "show", run)
    assert (result["status"], len(result["instances"])) == ("completed", 8), composed.logs()
    logs = composed.logs()
    assert "NOPERM" not in logs
    assert "ermission" not in logs


def test_each_container_finds_itself_well_without_asking_redis(composed: Composed) -> None:
    for service in WORKERS:
        health = composed.acts(service, "health")
        assert health["ok"], health
        assert [worker["worker"].split("@")[0] for worker in health["workers"]] == ["acts"]


def test_each_worker_and_the_user_of_figures_show_them(composed: Composed) -> None:
    options = ["--port", str(composed.figures), "--json"]
    assert service_commands()["metrics"][:2] == ["acts", "metrics"]
    command = [sys.executable, "-m", "acts_celery", "metrics", *options]
    with (
        (composed.folder / "metrics.log").open("wb") as log,
        ended(command, composed.environment("metrics"), EXAMPLES, log) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline(), composed.logs()
        found = page(f"http://127.0.0.1:{composed.figures}/metrics")
    assert value(found, "acts_log_up") == value(found, "acts_broker_up") == 1, found
    for name, port in composed.ports.items():
        assert value(page(f"http://127.0.0.1:{port}/metrics"), "acts_serves_queue", queue=name) == 1


def test_redis_has_its_limit_and_admits_no_process_without_a_password(composed: Composed) -> None:
    url = composed.environment("cli")["ACTS_BROKER_URL"]
    with redis.Redis.from_url(url) as connection:
        facts = connection.info()
    assert (facts["maxmemory"], facts["maxmemory_policy"], facts["aof_enabled"]) == (2**30, "noeviction", 1)
    with redis.Redis(port=composed.port) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()


@pytest.mark.parametrize("password", ["", None])
def test_redis_does_not_start_where_a_user_has_no_password(password: str | None) -> None:
    given = dict.fromkeys(NAMES, "any") | {
        "REDIS_USERS": str(DEPLOY / "redis" / "users.acl"),
        "REDIS_MEMORY": "1gb",
    }
    del given["REDIS_PASSWORD_METRICS"]
    given |= {"REDIS_PASSWORD_METRICS": password} if password is not None else {}
    command = ["sh", str(DEPLOY / "redis" / "start.sh")]
    refused = subprocess.run(command, env=given | {"PATH": os.environ["PATH"]}, capture_output=True, check=False)
    assert (refused.returncode, refused.stderr.split(b":")[0]) == (2, b"set REDIS_PASSWORD_METRICS")
