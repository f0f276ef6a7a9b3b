"""deploy/redis/users.acl on a real server: everybody can do their work, and nobody else's (docs/security.md)."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.exceptions import AuthenticationError, NoPermissionError

from acts_celery.worker.broker.messages import AttemptRef, Report
from acts_celery.worker.recovery.heartbeats import ReportQueue
from acts_celery.worker.runner.application import make_client_application
from acts_celery.worker.store.keys import Keys

from .permissions import PAGE, administered, table, with_table
from .servers import redis_server
from .users import USERS, Guarded

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
