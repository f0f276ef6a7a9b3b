"""`acts metrics` reads as a user of Redis that may do nothing else: `metrics` of deploy/redis/users.acl."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError

from acts_celery.broker_config import load
from acts_celery.worker.registry.activities import registry
from acts_celery.worker.store.living import QueueNotes
from tests.worker.backend import ACTIVITIES, MODEL, Backend, Meeting
from tests.worker.figures import metrics_command, page, page_until, value

from .servers import free_port, redis_server
from .users import USERS


def test_a_user_of_redis_that_may_only_read_is_enough(tmp_path: Path) -> None:
    (user,) = re.findall(r"^user metrics .*$", USERS.read_text(encoding="utf-8"), re.MULTILINE)
    user = user.replace("#${METRICS_SHA256}", ">PASSWORD")
    for name in registry.queues():
        user = user.replace("%R~background ", f"%R~background %R~{name} ")
    port = free_port()
    with redis_server(tmp_path, f"port {port}", "user default on nopass ~* &* +@all", user):
        everything = f"redis://127.0.0.1:{port}/0"
        settings = load(env_file=None, broker_url=everything, activities=(str(ACTIVITIES),), model=MODEL)
        backend = Backend(settings, Meeting(everything), tmp_path)
        backend.client.submit([], {"calls": [{"_tool": "echo", "value": 1, "_outputPath": "†state.c"}]})
        url = f"redis://metrics:PASSWORD@127.0.0.1:{port}/0"
        reading = Backend(load(env_file=None, broker_url=url, activities=(str(ACTIVITIES),)), backend.meeting, tmp_path)
        with metrics_command(reading) as address:
            found = page(address)
        with Redis.from_url(url) as redis, pytest.raises(NoPermissionError):
            redis.set("acts:x", "y")
        with Redis.from_url(url) as redis:
            for read in (("LRANGE", "instances", 0, -1), ("LINDEX", "instances", 0), ("RPOP", "instances")):
                with pytest.raises(NoPermissionError):
                    redis.execute_command(*read)
        with Redis.from_url(everything) as redis:
            redis.set("odd", "no queue")
            QueueNotes(redis, redis, "acts", "", ["instances", "odd", "delegates"]).note()
            assert set(redis.hkeys("acts:queues")) == {b"instances", b"delegates"}
        with metrics_command(reading) as address:
            noted = page(address)
        assert value(noted, "acts_queue_tasks", queue="instances") == 1
        assert 0 < value(noted, "acts_queue_oldest_seconds", queue="instances") < 60
        assert value(noted, "acts_queue_tasks", queue="delegates") == 0
        with Redis.from_url(everything) as redis, backend.worker(), metrics_command(reading) as address:
            redis.delete("acts:queues")
            backend.client.submit(
                [], {"calls": [{"_tool": "waitAtGate", "gate": "g", "value": 1, "_outputPath": "†state.c"}]}
            )
            page_until(address, lambda _: redis.hexists("acts:queues", "background"))
            backend.meeting.open_gate("g")
    assert value(found, "acts_log_up") == value(found, "acts_broker_up") == 1, found
    assert value(found, "acts_queue_tasks", queue="instances") == value(found, "acts_runs", status="running") == 1
