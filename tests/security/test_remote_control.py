"""Celery's remote control: whoever reaches the broker may ask how workers are, and no more (docs/security.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from kombu.exceptions import OperationalError

from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.runner.application import make_client_application
from acts_celery.worker.store.connections import read_tokens
from acts_celery.worker.store.keys import Keys
from tests.worker.backend import Backend, Meeting, meeting_url, settings_for

from .users import Guarded

ECHO = {"_tool": "echo", "value": 1, "_outputPath": "†state.a"}
FAR = {"_tool": "waitFar", "gate": "waiting", "_outputPath": "†state.far"}
CHANGING: list[tuple[str, dict[str, Any]]] = [
    ("shutdown", {}),
    ("cancel_consumer", {"queue": "instances"}),
    ("add_consumer", {"queue": "reports"}),
    ("revoke", {"task_id": "any", "terminate": True}),
    ("rate_limit", {"task_name": "acts.execute_instance", "rate_limit": "1/h"}),
    ("time_limit", {"task_name": "acts.execute_instance", "hard": 1}),
    ("pool_shrink", {"n": 200}),
    ("pool_restart", {}),
    ("disable_events", {}),
    ("memdump", {}),
    ("objgraph", {}),
]


def test_no_worker_is_changed_by_who_may_write_to_the_broker(guarded: Guarded) -> None:
    for user in ("delegates", "background"):
        with pytest.raises(OperationalError, match=r"(?i)permission"):
            make_client_application(guarded.as_(user).settings).control.broadcast("shutdown")
    control = make_client_application(guarded.as_("flower").settings).control
    for command, arguments in CHANGING:
        control.broadcast(command, arguments=arguments)
    greeted = control.broadcast("hello", arguments={"from_node": "any", "revoked": {"any": 1}}, reply=True, timeout=5)
    assert [*greeted[0].values()] == [{}], "neighbours that start ask, and nothing is taken over from them"
    control.broadcast("heartbeat")  # Flower sends it when it starts
    client = guarded.as_("clients")
    assert client.run([ECHO]).status == "completed"
    inspect = make_client_application(guarded.as_("flower").settings).control.inspect(timeout=5, limit=3)
    queues = {of_worker["name"] for queues in inspect.active_queues().values() for of_worker in queues}
    assert queues == {"instances", "delegates", "background", "lathe"}
    log = (guarded.folder / "instances.log").read_text(errors="replace")
    for command, _ in CHANGING:
        assert f"the remote-control command '{command}' is refused" in log
    assert "'heartbeat'" not in log
    assert "Traceback" not in log


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with EmbeddedServer() as server:
        yield Backend(settings_for(server), Meeting(meeting_url(server)), tmp_path_factory.mktemp("control"))


def test_a_cancellation_is_believed_only_with_the_runs_key(backend: Backend) -> None:
    control = make_client_application(backend.settings).control
    with backend.worker("-Q", "instances,far"):
        run = backend.client.submit(solution={"calls": [FAR]})
        assert backend.meeting.take("at:waiting")
        born: Any = backend.redis.hget(Keys("acts", run.id).state, "submitted")
        tokens = read_tokens(backend.redis, "acts").of_run(born.decode())
        right, others = tokens.cancelling(run.id), tokens.cancelling("another")
        before = tokens.of_run("1").cancelling(run.id)  # of a run that had the id before
        for key in ("", run.id, others, before, right[:-1]):
            control.broadcast("acts_cancel", arguments={"key": key})
        shown = control.inspect(timeout=5, limit=1).active()
        backend.meeting.open_gate("waiting")
        result = backend.wait(run.id)
    assert result.status == "completed"
    assert backend.meeting.count("at:waiting") == 0, "it was carried out once"
    assert right not in str(shown)


def test_what_workers_tell_of_their_tasks_holds_nothing_that_these_work_on(backend: Backend) -> None:
    inspect = make_client_application(backend.settings).control.inspect(timeout=5, limit=1)
    with backend.worker("-Q", "instances,far"):
        run = backend.client.submit([{"type": "input", "secret": "canary-77"}], {"calls": [FAR | {"gate": "shown"}]})
        assert backend.meeting.take("at:shown")
        asked = [inspect.active(), inspect.reserved(), inspect.scheduled()]
        ids = [task["id"] for task in next(iter(asked[0].values()))]
        asked.append(inspect.query_task(ids))
        backend.meeting.open_gate("shown")
        assert backend.wait(run.id).status == "completed"
    (tasks,) = asked[0].values()
    assert any(task["args"].startswith(f"{run.id} - 0 waitFar") for task in tasks)
    assert not re.search(r"\bb'", str(asked))  # no bytes: an id may end with a b
