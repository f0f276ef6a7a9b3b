"""Users of the server, and what each may do."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import redis
from kombu.exceptions import OperationalError
from redis import Redis
from redis.exceptions import AuthenticationError, NoPermissionError

from acts_celery.broker_config import EmbeddedServer, load
from acts_celery.worker.broker.messages import AttemptRef, Report
from acts_celery.worker.broker.transport import ReportQueue
from acts_celery.worker.registry.activities import registry
from acts_celery.worker.runner.application import make_client_application
from acts_celery.worker.store.connections import read_tokens
from acts_celery.worker.store.keys import Keys
from acts_celery.worker.store.living import QueueNotes
from tests.worker.backend import ACTIVITIES, MODEL, Backend, Meeting, meeting_url, settings_for
from tests.worker.figures import metrics_command, page, page_until, value

from .broker_messages import message, packed
from .permissions import PAGE, administered, table, with_table
from .servers import free_port, redis_server
from .test_admission import ECHO, MUTATIONS, mutated
from .users import USERS, Guarded

# deploy/redis/users.acl on a real server: everybody can do their work, and nobody else's (docs/security.md).

WITHOUT_THE_LOG = ("delegates", "background", "flower")
SECRET = "canary-8c2e"


@pytest.fixture(scope="module")
def run(guarded: Guarded) -> str:
    """A run in which everybody has had a part: the id."""
    client = guarded.as_("clients")
    calls = [
        {"_tool": "ask", "_delegate": "showContext", "_scopes": ["state"], "_outputPath": "†data.seen"},
        {"_tool": "remoteAdd", "a": 1, "b": 2, "_outputPath": "†data.sum"},
        {"_tool": "note", "name": "told"},
    ]
    run = client.client.submit([{"type": "state", "word": SECRET}], {"calls": calls})
    result = client.wait(run.id)
    assert result.status == "completed"
    assert result.data()["data"] == {"seen": {"context": [{"type": "state", "word": SECRET}]}, "sum": {"sum": 3}}
    assert guarded.meeting.take("told")["call"]["name"] == "told"
    return run.id


def test_everybody_does_their_work_and_asks_for_nothing_else(guarded: Guarded, run: str) -> None:
    mailboxes = make_client_application(guarded.as_("flower").settings).control.inspect(timeout=2, limit=3).ping()
    assert {name.split("@")[0] for name in mailboxes} == {"instances", "delegates-2", "acts-2"}
    # redis-py greets so and lives with a refusal: Redis 7.0 does not know the command, nor loads a file that grants it.
    asked = {entry["object"] for entry in guarded.admin.acl_log()} - {"client|setinfo"}
    assert asked == set()


def test_the_broker_keeps_no_notes_that_one_role_could_read_of_another(guarded: Guarded, run: str) -> None:
    """kombu's ledger of unacknowledged messages and its tables of bindings: neither is written, nor may it be."""
    assert [key for key in guarded.admin.scan_iter() if key.startswith((b"unacked", b"_kombu"))] == []
    for user in ("instances", "clients", *WITHOUT_THE_LOG):
        for command in (["HGETALL", "unacked"], ["SMEMBERS", "_kombu.binding.x"], ["SADD", "_kombu.binding.x", "y"]):
            assert guarded.admin.acl_dryrun(user, *command) != b"OK"


@pytest.mark.parametrize("user", ["delegates", "background"])
def test_signs_of_life_are_sent_by_all_and_read_where_the_log_is(guarded: Guarded, user: str) -> None:
    sender, reader = guarded.as_(user).settings, guarded.as_("instances").settings
    report = Report(begun=(AttemptRef("none", "", 0, 1),))
    ReportQueue(make_client_application(sender), sender).send(report)
    with redis.Redis.from_url(guarded.url(user)) as connection, pytest.raises(NoPermissionError):
        connection.lrange("reports", 0, -1)
    # The sweep of the worker may have been faster; where no run is under way, the workers' own reports lie there too.
    assert list(chain(*ReportQueue(make_client_application(reader), reader).pages())).count(report) <= 1


READS: list[list[Any]] = [
    ["XRANGE", "KEY", "-", "+"],
    ["XREAD", "STREAMS", "KEY", "0"],
    ["XLEN", "KEY"],
    ["GET", "KEY"],
    ["HGETALL", "KEY"],
    ["LRANGE", "KEY", 0, -1],
    ["SMEMBERS", "KEY"],
    ["ZRANGE", "KEY", 0, -1],
    ["TYPE", "KEY"],
    ["EXISTS", "KEY"],
    ["DUMP", "KEY"],
    ["OBJECT", "ENCODING", "KEY"],
    ["SORT", "KEY"],
    ["SORT", "instances", "BY", "nosort", "GET", "KEY"],
    ["COPY", "KEY", "delegates"],
    ["RENAME", "KEY", "delegates"],
    ["LMOVE", "KEY", "delegates", "LEFT", "LEFT"],
    ["SUNIONSTORE", "delegates", "KEY"],
    ["ZUNIONSTORE", "delegates", 1, "KEY"],
    ["BRPOP", "KEY", 1],
    ["WATCH", "KEY"],
    ["EVAL", "return redis.call('XRANGE', KEYS[1], '-', '+')", 1, "KEY"],
    ["EVAL", "return redis.call('GET', ARGV[1])", 0, "KEY"],
    ["EVAL_RO", "return redis.call('GET', KEYS[1])", 1, "KEY"],
    ["FCALL", "any", 1, "KEY"],
    ["MIGRATE", "127.0.0.1", 1, "KEY", 0, 100],
    ["SCAN", 0],
    ["KEYS", "*"],
    ["RANDOMKEY"],
    ["DBSIZE"],
    ["MONITOR"],
    ["PSYNC", "?", -1],
    ["CONFIG", "GET", "*"],
    ["ACL", "LIST"],
    ["CLIENT", "LIST"],
    ["SLOWLOG", "GET"],
]
WRITES: list[list[Any]] = [
    ["DEL", "KEY"],
    ["UNLINK", "KEY"],
    ["SET", "KEY", 1],
    ["XADD", "KEY", "*", "a", "b"],
    ["HSET", "KEY", "status", "completed"],
    ["ZADD", "KEY", 1, "x"],
    ["PEXPIRE", "KEY", 1],
    ["FLUSHALL"],
    ["FLUSHDB"],
    ["SWAPDB", 0, 1],
    ["SHUTDOWN", "NOSAVE"],
    ["SCRIPT", "FLUSH"],
]


@pytest.mark.parametrize("user", WITHOUT_THE_LOG)
def test_who_carries_out_remote_calls_reaches_no_key_of_a_run(guarded: Guarded, run: str, user: str) -> None:
    keys = guarded.as_("clients").keys(run)
    assert len(keys) >= 5
    with redis.Redis.from_url(guarded.url(user)) as connection:
        for key in keys:
            for command in (*READS, *WRITES):
                with pytest.raises(NoPermissionError):
                    connection.execute_command(*(key if part == "KEY" else part for part in command))
    assert guarded.admin.exists(*keys) == len(keys)


@pytest.mark.parametrize("user", WITHOUT_THE_LOG)
def test_who_carries_out_remote_calls_runs_no_script(guarded: Guarded, user: str) -> None:
    known = guarded.admin.script_load("return 1")
    endless = "while true do end"
    with redis.Redis.from_url(guarded.url(user)) as connection:
        for command in (
            ["SCRIPT", "LOAD", endless],
            ["EVAL", endless, 0],
            ["EVAL_RO", endless, 0],
            ["EVALSHA", known, 0],
            ["EVALSHA_RO", known, 0],
            ["FUNCTION", "LOAD", f"#!lua name=held\n{endless}"],
            ["FCALL", "any", 0],
        ):
            with pytest.raises(NoPermissionError):
                connection.execute_command(*command)


CHANGES: list[list[Any]] = [
    *(["DEL"], ["UNLINK"], ["SET", "x"], ["GETDEL"], ["LTRIM", 1, 0], ["LSET", 0, "x"], ["PEXPIRE", 1]),
    *(["LREM", 0, "x"], ["LINSERT", "BEFORE", "x", "y"], ["RPUSH", "x"], ["LRANGE", 0, -1], ["LINDEX", 0], ["RPOP"]),
    *(["LPOP"], ["BRPOP", 1], ["RENAME", "delegates"], ["SETRANGE", 0, "x"], ["APPEND", "x"], ["DUMP"], ["PERSIST"]),
]


@pytest.mark.parametrize("user", ["delegates", "background"])
@pytest.mark.parametrize("queue", ["instances", "reports", "instances9", "reports3"])
def test_to_the_queues_of_others_messages_are_added_and_no_more(guarded: Guarded, user: str, queue: str) -> None:
    with redis.Redis.from_url(guarded.url(user)) as connection:
        for name, *arguments in CHANGES:
            with pytest.raises(NoPermissionError):
                connection.execute_command(name, queue, *arguments)


def test_flower_only_looks(guarded: Guarded) -> None:
    with redis.Redis.from_url(guarded.url("flower")) as connection:
        adding = [["LPUSH", queue, "x"] for queue in ("instances", "delegates", "background", "reports")]
        for command in (*adding, ["PUBLISH", "/0.celeryev/task.multi", "x"], ["BRPOP", "delegates", "1"]):
            with pytest.raises(NoPermissionError):
                connection.execute_command(*command)


def test_the_table_of_permissions_is_what_the_server_says() -> None:
    page = PAGE.read_text(encoding="utf-8")
    with administered() as admin:
        assert page == with_table(page, table(admin)), "python -m tests.security.permissions"


def test_no_key_of_a_run_carries_the_name_of_an_instance(guarded: Guarded, run: str) -> None:
    assert set(guarded.as_("clients").keys(run)) <= set(Keys("acts", run).all)


@pytest.mark.parametrize("user", ["delegates", "background"])
def test_a_worker_takes_from_its_own_queues_only(guarded: Guarded, user: str) -> None:
    others = {"instances", "delegates", "background", "lathe"} - {user, "lathe" if user == "background" else user}
    with redis.Redis.from_url(guarded.url(user)) as connection:
        for queue in others:
            for command in (["BRPOP", queue, 1], ["RPOP", queue], ["LRANGE", queue, 0, -1]):
                with pytest.raises(NoPermissionError):
                    connection.execute_command(*command)


def test_a_worker_that_may_not_take_from_a_queue_ends_with_one_line(guarded: Guarded) -> None:
    backend = guarded.as_("delegates")
    backend.log = guarded.folder / "forbidden.log"
    with (
        pytest.raises(AssertionError, match="did not get ready"),
        backend.worker("-Q", "delegates,lathe", "-n", "acts"),
    ):
        pass
    log = backend.log.read_text(errors="replace")
    assert "the broker's user may not do what the queues of this worker need" in log
    assert "lathe" in log
    assert "Traceback" not in log
    guarded.admin.acl_log_reset()


@pytest.mark.parametrize(("user", "password"), [(None, None), ("default", ""), ("delegates", "guess")])
def test_nobody_enters_without_a_password(guarded: Guarded, user: str | None, password: str | None) -> None:
    connection = redis.Redis(port=guarded.port, username=user, password=password)
    with connection, pytest.raises(AuthenticationError):
        connection.ping()


def test_a_file_that_was_not_filled_in_admits_nobody(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ACL"), redis_server(tmp_path, "port 0", f"aclfile {USERS}"):
        pass


# Celery's remote control: whoever reaches the broker may ask how workers are, and no more (docs/security.md).

ECHO_REMOTE_CONTROL = {"_tool": "echo", "value": 1, "_outputPath": "†state.a"}
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
    assert client.run([ECHO_REMOTE_CONTROL]).status == "completed"
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


# Whatever is published in the channel of remote control: one line, one count, and the worker goes on.

CHANNEL = "/0.celery.pidbox"
ID = "01234567-89ab-cdef-0123-456789abcdef"
ASKER = {"exchange": "reply.celery.pidbox", "routing_key": ID}
SECRET_REMOTE_CONTROL_MESSAGES = "canary-41c7"
PING: dict[str, Any] = {"method": "ping", "arguments": {}, "destination": None, "pattern": None, "matcher": None}

REFUSED: dict[str, object] = {
    "a number": 5,
    "a list": [SECRET_REMOTE_CONTROL_MESSAGES],
    "no command": {"arguments": {}},
    "a list for a command": {"method": ["ping"]},
    "a part that there is not": {**PING, f"\x1b[31m{SECRET_REMOTE_CONTROL_MESSAGES}": 1},
    "a number for a destination": {**PING, "destination": 5},
    "a text for a destination": {**PING, "destination": SECRET_REMOTE_CONTROL_MESSAGES},
    "a pattern": {**PING, "pattern": "(a+)+$", "matcher": "pcre"},
    "a list for arguments": {**PING, "arguments": [SECRET_REMOTE_CONTROL_MESSAGES]},
    "a number for the name of an argument": {**PING, "arguments": {5: 1}},
    "an argument that there is not": {
        **PING,
        "method": "acts_cancel",
        "arguments": {SECRET_REMOTE_CONTROL_MESSAGES: 1},
    },
    "a ticket of bytes": {**PING, "ticket": b"x" * 100},
    "an answer into a queue": {**PING, "ticket": ID, "reply_to": {"exchange": "", "routing_key": "delegates"}},
    "an answer to a text": {**PING, "ticket": ID, "reply_to": SECRET_REMOTE_CONTROL_MESSAGES},
    "an answer to no process": {**PING, "ticket": ID, "reply_to": {**ASKER, "routing_key": "instances"}},
    "tasks of a number": {**PING, "method": "query_task", "arguments": {"ids": 5}},
}
NO_MESSAGES: dict[str, bytes] = {
    "no bytes": b"\xff",
    "no JSON": SECRET_REMOTE_CONTROL_MESSAGES.encode(),
    "a number": b"5",
    "a list": b"[]",
    "nothing in it": b"{}",
    "no properties": json.dumps({"body": SECRET_REMOTE_CONTROL_MESSAGES}).encode(),
}


@pytest.fixture(scope="module")
def backend_remote_control_messages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with EmbeddedServer() as server:
        yield Backend(settings_for(server), Meeting(meeting_url(server)), tmp_path_factory.mktemp("channel"))


def refused(backend: Backend) -> dict[str, int]:
    """What the worker has counted; asked until it answers, for one that has just said that it is ready may hear a
    moment later.
    """
    inspect = make_client_application(backend.settings).control.inspect(timeout=1, limit=1)
    (stats,) = next(found for _ in range(20) if (found := inspect.stats())).values()
    counted: dict[str, int] = stats["refused"]
    return counted


def test_what_is_no_command_of_celerys_is_refused_in_one_line_each(backend_remote_control_messages: Backend) -> None:
    with backend_remote_control_messages.worker() as process:
        refused(backend_remote_control_messages)
        for content in REFUSED.values():
            backend_remote_control_messages.redis.publish(CHANNEL, message(packed(content)))
        backend_remote_control_messages.redis.publish(CHANNEL, message(b"\xc1"))
        backend_remote_control_messages.redis.publish(
            CHANNEL, message(b"x", content_type="application/x-python-serialize")
        )
        for entry in NO_MESSAGES.values():
            backend_remote_control_messages.redis.publish(CHANNEL, entry)
        counted = refused(backend_remote_control_messages)
        assert process.poll() is None
        assert backend_remote_control_messages.redis.llen("delegates") == 0
    assert counted == {"commands": len(REFUSED) + 2, "entries": len(NO_MESSAGES)}
    lines = backend_remote_control_messages.log.read_text(errors="replace").splitlines()
    said = [line for line in lines if "refused" in line or "dropped" in line or "fails" in line]
    assert len(said) == len(REFUSED) + 2 + len(NO_MESSAGES)
    assert all(line.isprintable() for line in said)
    assert not any("Traceback" in line for line in lines)


def test_any_change_of_a_commands_bytes_leaves_the_worker_answering(backend_remote_control_messages: Backend) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    bodies: list[Any] = [packed({**PING, "ticket": ID, "reply_to": ASKER}), *map(packed, REFUSED.values())]
    with backend_remote_control_messages.worker() as process:
        refused(backend_remote_control_messages)
        for number in range(MUTATIONS):
            body = chance.choice(bodies)
            made = message(mutated(body, chance)) if number % 2 else mutated(message(body), chance)
            backend_remote_control_messages.redis.publish(CHANNEL, made)
        assert sum(refused(backend_remote_control_messages).values()) > 0, seed
        assert backend_remote_control_messages.run([ECHO]).status == "completed", seed
        assert process.poll() is None, seed
    log = backend_remote_control_messages.log.read_text(errors="replace")
    assert "Unrecoverable" not in log, seed
    assert "Traceback" not in log, seed


# `acts metrics` reads as a user of Redis that may do nothing else: `metrics` of deploy/redis/users.acl.


def test_a_user_of_redis_that_may_only_read_is_enough(tmp_path: Path) -> None:
    (user,) = re.findall(r"^user metrics .*$", USERS.read_text(encoding="utf-8"), re.MULTILINE)
    user = user.replace("#${METRICS_SHA256}", ">PASSWORD")
    for name in registry.queues():
        user = user.replace("%R~background ", f"%R~background %R~{name} %R~{name}??[369] ")
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
