"""The real topology from one file and one command runs the example, and Flower sees it."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.security.broker_messages import message, packed

from .topology import EXAMPLES, PROGRAMS, Topology, is_listening, is_running, processes_naming

SUBMISSION = json.loads((EXAMPLES / "reviews.json").read_text(encoding="utf-8"))
REVIEWS = {message["_instance"]: message for message in SUBMISSION["context"] if message["type"] == "state"}
DELEGATE, BACKGROUND = "acts.execute_delegate.summarizer", "acts.execute_background.notify_support"
UNHAPPY = {"②", "④", "⑥", "⑦"}


@pytest.fixture(scope="module")
def topology() -> Iterator[Topology]:
    # Not pytest's own directory: the path of a unix socket has to be short.
    with tempfile.TemporaryDirectory(prefix="acts-") as directory:
        started = Topology(Path(directory))
        try:
            started.start()
            yield started
        finally:
            if started.process is not None:
                started.stop()


@pytest.fixture(scope="module")
def workers(topology: Topology) -> dict[str, Any]:
    """The workers by the name before the @, once Flower receives events from all and has inspected them."""

    def all_alive(answer: dict[str, bool]) -> bool | None:
        return True if sum(answer.values()) == 4 else None

    def all_inspected(answer: dict[str, Any]) -> dict[str, Any] | None:
        named = {name.split("@")[0]: worker for name, worker in answer.items()}
        return named if sum("active_queues" in worker for worker in named.values()) == 4 else None

    topology.ask_flower_until("/api/workers?status=1", all_alive)
    return topology.ask_flower_until("/api/workers?refresh=1", all_inspected)


@pytest.fixture(scope="module")
def run(topology: Topology, workers: dict[str, Any]) -> str:
    """The example, submitted and followed to its end."""
    run = topology.acts("submit", str(EXAMPLES / "reviews.json"))["run"]
    topology.acts("log", run, "--follow")
    return str(run)


@pytest.fixture(scope="module")
def tasks(topology: Topology, run: str) -> list[dict[str, Any]]:
    """The run's tasks as Flower shows them, once none of them is under way any more."""
    expected = {DELEGATE: len(REVIEWS), BACKGROUND: len(UNHAPPY)}

    def all_succeeded(answer: dict[str, Any]) -> list[dict[str, Any]] | None:
        succeeded = Counter(task["name"] for task in answer.values() if task["state"] == "SUCCESS")
        is_over = succeeded.total() == len(answer) and all(succeeded[name] >= expected[name] for name in expected)
        return list(answer.values()) if is_over else None

    return topology.ask_flower_until("/api/tasks", all_succeeded)


@pytest.mark.parametrize("path", ["/", "/api/tasks", "/api/workers", "/workers"])
@pytest.mark.parametrize("password", [None, "", "wrong"])
def test_flower_shows_nothing_without_the_password(topology: Topology, path: str, password: str | None) -> None:
    assert topology.flower(path, password=password)[0] == 401


def test_each_worker_consumes_its_own_queue_alone(workers: dict[str, Any]) -> None:
    assert {name: [queue["name"] for queue in worker["active_queues"]] for name, worker in workers.items()} == {
        "instances-1": ["instances"],
        "instances-2": ["instances"],
        "delegates": ["delegates"],
        "background": ["background"],
    }


def test_the_run_completes_with_the_branches_the_reviews_call_for(topology: Topology, run: str) -> None:
    result = topology.acts("show", run)
    assert result["status"] == "completed"
    verdicts = {name: list(data["state"]["verdict"]) for name, data in result["instances"].items()}
    assert verdicts == {name: ["complaint" if name in UNHAPPY else "praise"] for name in REVIEWS}
    assert Counter(call["status"] for call in result["calls"]) == {"done": 68, "skipped": 16, "sent": 4}


def test_flower_shows_a_task_for_every_instance_delegate_and_fire_and_forget_call(
    tasks: list[dict[str, Any]],
) -> None:
    names = Counter(task["name"] for task in tasks)
    assert names["acts.execute_instance"] >= len(REVIEWS)
    assert names[DELEGATE] >= len(REVIEWS)
    assert names["acts.deliver"] >= len(REVIEWS)
    assert names[BACKGROUND] == len(UNHAPPY)


def test_delegates_and_fire_and_forget_calls_run_on_their_own_workers(tasks: list[dict[str, Any]]) -> None:
    own = [task for task in tasks if task["name"] != "acts.probe"]  # which goes wherever the sweep asks
    where = {(task["name"], str(task["worker"]).split("@")[0].rstrip("-12")) for task in own}
    assert where == {
        ("acts.execute_instance", "instances"),
        ("acts.deliver", "instances"),
        (DELEGATE, "delegates"),
        (BACKGROUND, "background"),
    }


def test_flower_shows_nothing_of_what_the_calls_work_on(
    topology: Topology, tasks: list[dict[str, Any]], workers: dict[str, Any]
) -> None:
    shown = json.dumps([tasks, workers], ensure_ascii=False)
    for review in REVIEWS.values():
        for sentence in review["review"]["text"].split(". "):
            assert sentence not in shown
        for private in review["customer"].values():
            assert private not in shown
    for secret in topology.secrets.values():
        assert secret not in shown
    # Neither as bytes nor in pieces: what there is of arguments is no longer than an identifier or two.
    assert all(len(str(task[field] or "")) <= 120 for task in tasks for field in ("args", "kwargs", "result"))


def test_fire_and_forget_calls_have_done_their_work(topology: Topology, tasks: list[dict[str, Any]]) -> None:
    lines = topology.outbox.read_text(encoding="utf-8").splitlines()
    senders = sorted(json.loads(line)["from"] for line in lines)
    assert senders == sorted(REVIEWS[name]["customer"]["email"] for name in UNHAPPY)


def test_logs_are_in_a_directory_of_their_own_and_hold_no_password(topology: Topology, run: str) -> None:
    logs = {path.name: path.read_text() for path in (topology.directory / "logs").iterdir()}
    assert {"redis.log", "instances-1.log", "instances-2.log", "delegates.log", "flower.log"} <= set(logs)
    for secret in topology.secrets.values():
        assert not any(secret in text for text in logs.values())


def test_each_process_has_the_password_of_its_own_user_and_those_who_ask_it_the_models_key(
    topology: Topology, workers: dict[str, Any]
) -> None:
    secrets = {**topology.secrets, "the model's key": topology.model_key}
    found = {
        program: {name for name, secret in secrets.items() if secret in topology.environment_of(program)}
        for program in PROGRAMS
        if program != "redis"  # which is there to know them all
    }
    assert found == {
        "instances-1": {"REDIS_PASSWORD_INSTANCES"},
        "instances-2": {"REDIS_PASSWORD_INSTANCES"},
        "delegates": {"REDIS_PASSWORD_DELEGATES", "the model's key"},
        "background": {"REDIS_PASSWORD_BACKGROUND", "the model's key"},
        "flower": {"REDIS_PASSWORD_FLOWER", "FLOWER_PASSWORD"},
        "ui": {"REDIS_PASSWORD_CLIENTS"},
    }


def test_every_worker_is_well_and_redis_has_a_limit_of_memory(topology: Topology, workers: dict[str, Any]) -> None:
    health = topology.acts("health")
    assert sorted(worker["worker"].split("@")[0] for worker in health["workers"]) == sorted(workers)
    assert health["ok"], health
    with redis.Redis.from_url(topology.url("clients")) as connection:
        facts = connection.info("memory")
    assert (facts["maxmemory"], facts["maxmemory_policy"]) == (2**30, "noeviction")


ORDERS = {
    "/api/worker/shutdown/{worker}": b"",
    "/api/worker/pool/shrink/{worker}": b"n=1",
    "/api/worker/queue/cancel-consumer/{worker}": b"queue=instances",
    "/api/task/revoke/{task}": b"terminate=true",
    "/api/task/async-apply/acts.execute_instance": b'{"args": []}',
    "/api/task/send-task/acts.execute_instance": b'{"args": []}',
}


def test_through_flower_nothing_is_changed(
    topology: Topology, workers: dict[str, Any], tasks: list[dict[str, Any]]
) -> None:
    names = topology.ask_flower_until("/api/workers", lambda answer: list(answer))
    worker = next(name for name in names if name.startswith("instances-1@"))
    for path, body in ORDERS.items():
        status, _ = topology.flower(
            path.format(worker=worker, task=tasks[0]["uuid"]), password=topology.secrets["FLOWER_PASSWORD"], post=body
        )
        assert status, path
    assert topology.flower("/broker", password=topology.secrets["FLOWER_PASSWORD"])[0] == 200
    health = topology.acts("health")
    assert (health["ok"], len(health["workers"])) == (True, 4)
    log = (topology.directory / "logs" / "instances-1.log").read_text()
    for command in ("shutdown", "pool_shrink", "cancel_consumer", "revoke"):
        assert f"the remote-control command '{command}' is refused" in log
    with redis.Redis.from_url(topology.url("clients")) as connection:
        assert connection.llen("instances") == 0


def test_what_is_no_event_does_not_blind_flower(topology: Topology, tasks: list[dict[str, Any]]) -> None:
    """Whoever carries out remote calls may publish events, and so anything."""
    odd = [5, [], ["x"], {}, {"type": 5}, [{"type": "task-sent", "clock": "x"}], {"type": "worker-heartbeat"}]
    with redis.Redis.from_url(topology.url("delegates")) as connection:
        for channel in ("/0.celeryev/task.multi", "/0.celeryev/worker.heartbeat", "/0.celeryev/x"):
            for entry in (b"\xff", b"x", b"{}", b"5", *map(message, map(packed, odd))):
                connection.publish(channel, entry)
    run = topology.acts("submit", str(EXAMPLES / "reviews.json"))["run"]
    topology.ask_flower_until(
        "/api/tasks", lambda answer: any(str(task["args"]).startswith(run) for task in answer.values()) or None
    )
    log = (topology.directory / "logs" / "flower.log").read_text()
    assert "Failed to capture events" not in log
    topology.acts("log", run, "--follow")


def test_a_killed_worker_is_started_again(topology: Topology, workers: dict[str, Any]) -> None:
    before = topology.pid_of("delegates")
    os.kill(before, signal.SIGKILL)
    topology.wait_for("exited: delegates")
    topology.wait_for("success: delegates entered RUNNING state")
    assert topology.pid_of("delegates") != before


def test_a_run_outlives_a_restart_of_redis(topology: Topology, run: str) -> None:
    assert "redis: started" in topology.control("restart", "redis")
    assert topology.acts("status", run)["status"] == "completed"


def test_stopping_ends_every_process_and_frees_every_port(topology: Topology) -> None:
    assert topology.stop() == 0
    assert not [pid for pid in topology.pids if is_running(pid)]
    assert not processes_naming(str(topology.directory))
    assert not is_listening(topology.redis_port)
    assert not is_listening(topology.flower_port)
