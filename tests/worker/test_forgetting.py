"""A client that sends and leaves; runs that were never published."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError

from acts_celery import Client, InfrastructureError, Result, Run
from acts_celery.broker_config import EmbeddedServer, find_server, load
from acts_celery.broker_config.configuration import queue_prefix
from acts_celery.broker_config.tokens import Identity, TokenLimits
from acts_celery.protocol import Plan, Rejected, check_in
from acts_celery.protocol.engine.events import Status
from acts_celery.protocol.plan.checking import Environment
from acts_celery.worker import limits
from acts_celery.worker.broker.attempts import Tokens
from acts_celery.worker.broker.consumer import Publisher
from acts_celery.worker.broker.messages import AttemptRef, Completion, Report, unpack, unpack_task
from acts_celery.worker.broker.transport import ReportQueue
from acts_celery.worker.client import dispatcher
from acts_celery.worker.client import dispatcher as forgetting
from acts_celery.worker.client.dispatcher import InlineFireAndForget
from acts_celery.worker.errors import OverLimit
from acts_celery.worker.recovery.sweep import Sweeper
from acts_celery.worker.registry.activities import Policy, Registry, make_activity
from acts_celery.worker.runner.application import make_client_application
from acts_celery.worker.store.keys import Keys, admission
from tests.protocol.authoring import ACTIVITIES, ANY, EXPLICIT, LATENT, Author
from tests.protocol.driver import Driver
from tests.protocol.test_against_naive import adapted

from .backend import Backend, Meeting, ended, meeting_url, settings_apart, settings_for
from .test_dead_letters import ends_told, wait_until_done, writes_to
from .test_delegates import argument, queued

# What is sent and forgotten, and waits for nothing, has ended with its submission (SPEC R5.1).

Json = dict[str, Any]
NOTE: Json = {"_tool": "note", "name": "sent", "mark": "†state.mark", "_scopes": ["state"]}
ECHO: Json = {"_tool": "echo", "value": 1, "_outputPath": "†state.a"}
TIMES = {b"submitted", b"finished", b"look", b"writer"}
LAWS = 300


@pytest.fixture
def idle(server: EmbeddedServer, meeting: Meeting, tmp_path: Path) -> Iterator[Backend]:
    """A backend that has only the workers that the test starts, and keys of its own."""
    backend = Backend(settings_apart(server, f"forgetting-{tmp_path.name}", publish_window=2), meeting, tmp_path)
    yield backend
    backend.client.close()


def marked(count: int) -> list[Json]:
    return [{"type": "state", "_instance": f"i{n}", "mark": f"i{n}"} for n in range(count)]


def plan(*calls: Json, count: int = 3) -> list[Json]:
    return [{"type": "plan", "calls": list(calls)}, *marked(count)]


def queued_forgetting(backend: Backend, queue: str) -> int:
    length: Any = backend.redis.llen(backend.queue(queue))
    return int(length)


def waits(backend: Backend, run: Run) -> bool:
    """Whether a run's lanes are left to the workers, and nothing is sent yet."""
    keys = Keys(backend.settings.key_prefix, run.id)
    return bool(backend.redis.exists(keys.published)) and not backend.redis.exists(keys.outbox)


def left(backend: Backend, run: Run) -> list[Any]:
    """What a run has left, without its times and what is made of its name."""
    redis, keys = backend.redis, Keys(backend.settings.key_prefix, run.id)
    log: Any = redis.xrange(keys.log)
    names = {id_: number for number, (id_, _) in enumerate(log)}
    state: Any = redis.hgetall(keys.state)
    outbox: Any = redis.hgetall(keys.outbox)
    tasks: Any = redis.hgetall(keys.outbox_tasks)
    lanes: Any = redis.hgetall(keys.lanes)
    told: Any = redis.xrange(keys.statuses)
    return [
        [{name: names.get(value, value) for name, value in fields.items() if name != b"audit"} for _, fields in log],
        {name: value for name, value in state.items() if name not in TIMES},
        redis.hgetall(keys.calls),
        {member: entry.split(b"/")[1] for member, entry in outbox.items()},
        {member: _content(task) for member, task in tasks.items()},
        {lane: (names[last.split(b":")[0]], last.split(b":")[1]) for lane, last in lanes.items()},
        [(names[id_], fields) for id_, fields in told],
        redis.zcard(keys.outbox_due),
        [bool(redis.exists(key)) for key in (keys.published, keys.backlog, keys.leases, keys.parked)],
    ]


def _content(task: bytes) -> tuple[str, str, Any]:
    found = unpack_task(task)
    body = unpack(found.body)
    attempt = {key: value for key, value in body["attempt"].items() if key not in ("token", "seal")}
    return found.task, found.queue, {**body, "attempt": {**attempt, "id": {**attempt["id"], "run": ""}}}


def test_a_run_of_such_calls_has_ended_when_it_is_submitted(idle: Backend) -> None:
    run = idle.client.submit(plan(NOTE))
    status = run.status()
    assert (status["status"], status["calls"]) == ("completed", {"sent": 3})
    assert run.wait(timeout_seconds=5).status == "completed"
    assert queued_forgetting(idle, idle.settings.queue_instances) == 0
    assert queued_forgetting(idle, idle.settings.queue_background) == 3
    assert [event.status for event in run.follow()] == ["running", *["sent"] * 3, "completed"]


def test_they_are_carried_out_once_and_leave_the_outbox(idle: Backend, meeting: Meeting) -> None:
    run = idle.client.submit(plan(NOTE, count=40))
    keys = Keys(idle.settings.key_prefix, run.id)
    with idle.worker():
        seen = [meeting.take("sent") for _ in range(40)]
        marks = {one["call"]["mark"] for one in seen}
        assert marks == {one["context"]["state"]["mark"] for one in seen} == {f"i{n}" for n in range(40)}
        while idle.redis.exists(keys.outbox):
            time.sleep(0.02)
    assert meeting.count("sent") == 0
    assert not idle.redis.exists(keys.outbox, keys.outbox_tasks, keys.outbox_due)


@pytest.mark.parametrize("context", [plan(NOTE, {**NOTE, "mark": 5, "_scopes": []}, count=1), marked(1)])
def test_they_leave_what_a_worker_leaves_that_drives_their_lane(
    idle: Backend, context: list[Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    solution = {"calls": [{**NOTE, "mark": n, "_instance": "i0"} for n in range(2)]} if len(context) == 1 else None
    here = idle.client.submit(context, solution)
    monkeypatch.setattr(limits, "DISPATCHER_WINDOWS", 0)
    with idle.worker("-Q", idle.settings.queue_instances):
        there = idle.client.submit(context, solution)
        there.wait(timeout_seconds=30)
    assert left(idle, here) == left(idle, there)


def test_a_client_that_dies_before_it_publishes_loses_nothing(
    idle: Backend, meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Publisher, "publish", die)
    with pytest.raises(KeyboardInterrupt):
        idle.client.submit(plan(NOTE), id="dead")
    monkeypatch.undo()
    assert idle.client.run("dead").status()["calls"] == {"sent": 3}
    assert queued_forgetting(idle, idle.settings.queue_background) == 0
    with idle.worker():
        assert {meeting.take("sent")["call"]["mark"] for _ in range(3)} == {"i0", "i1", "i2"}


@pytest.mark.nightly
def test_a_broker_that_takes_nothing_does_not_fail_the_submission(
    idle: Backend, meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise InfrastructureError("the broker does not take tasks")

    monkeypatch.setattr(Publisher, "publish", refuse)
    run = idle.client.submit(plan(NOTE))
    monkeypatch.undo()
    assert run.status()["status"] == "completed"
    with idle.worker():
        assert {meeting.take("sent")["call"]["mark"] for _ in range(3)} == {"i0", "i1", "i2"}


def test_a_client_that_may_not_read_the_secret_leaves_them_to_the_workers(
    idle: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: Any) -> None:
        raise NoPermissionError("this user has no permissions to access one of the keys")

    monkeypatch.setattr(dispatcher, "read_tokens", denied)
    assert waits(idle, idle.client.submit(plan(NOTE)))


@pytest.mark.parametrize(
    ("name", "most", "sent"),
    [("DISPATCHER_WINDOWS", 1, 2), ("DISPATCHER_MOST_BYTES", 1, 0), ("_MOST_WORK", 0, 0), ("DISPATCHER_AT_ONCE", 1, 3)],
)
def test_what_is_sent_at_once_is_bounded_and_the_rest_follows_by_its_lanes(
    idle: Backend, meeting: Meeting, monkeypatch: pytest.MonkeyPatch, name: str, most: int, sent: int
) -> None:
    monkeypatch.setattr(limits if hasattr(limits, name) else forgetting, name, most)
    run = idle.client.submit(plan(NOTE))
    assert queued_forgetting(idle, idle.settings.queue_background) == sent
    assert run.status()["calls"].get("sent", 0) == sent
    with idle.worker():
        assert {meeting.take("sent")["call"]["mark"] for _ in range(3)} == {"i0", "i1", "i2"}
        assert idle.wait(run.id).status == "completed"
    assert run.status()["calls"] == {"sent": 3}


@pytest.mark.parametrize(
    ("calls", "more"),
    [
        ([NOTE, ECHO], {}),
        ([{**ECHO, "_outputPath": "†state.later"}, {**NOTE, "mark": "†state.later"}], {}),
        ([NOTE], {"config": {"approve": ["note"]}}),
        ([{"_tool": "ask", "_delegate": "showContext", "question": "why"}], {}),
        ([{**NOTE, "mark": "†state.marks", "_each": "mark"}], {}),
    ],
)
def test_a_lane_with_anything_else_to_do_is_left_to_the_workers(idle: Backend, calls: list[Json], more: Json) -> None:
    context = [{"type": "plan", "calls": calls}, *({**message, "marks": [1, 2]} for message in marked(2))]
    assert waits(idle, idle.client.submit_document({"context": context, **more}))


def test_what_others_wait_for_is_left_to_the_workers(idle: Backend) -> None:
    """The global lane says whether the output can be read, and gather calls wait in the lane of each instance."""
    note = {**NOTE, "mark": 1, "_scopes": []}
    read = idle.client.submit([{"type": "state", "g": 1}], {"calls": [note], "output": "†state.g"})
    assert waits(idle, read)
    gather = {"_tool": "echo", "value": "†state.mark", "_gather": True, "_outputPath": "†data.all"}
    assert waits(idle, idle.client.submit(plan(NOTE, gather)))


def test_an_activity_with_a_queue_of_its_own_is_left_to_the_workers() -> None:
    """Who submits may have no right to that queue."""
    plan, registry = _checked([{"_tool": "far"}, {"_tool": "near", "_instance": "①"}])
    assert list(InlineFireAndForget(SETTINGS, registry).decide(plan, "r", TOKENS).lanes) == ["①"]


SETTINGS = load(env_file=None)
TOKENS = Tokens(b"secret")


def _registry(names: Iterable[str]) -> Registry:
    registry = Registry()
    for name in names:
        queue = "elsewhere" if name == "far" else None
        registry.add_activity(make_activity(lambda call, context: None, name, queue, Policy()))
    return registry


def _checked(calls: list[Json]) -> tuple[Plan, Registry]:
    registry = _registry(("near", "far"))
    context = [{"type": "state", "_instance": "①", "n": 1}]
    environment = Environment(activities=dict.fromkeys(registry.activities, ANY))
    return check_in(environment, {"context": context, "solution": {"calls": calls}}), registry


def test_what_is_sent_is_what_any_order_of_execution_sends() -> None:
    """Of random submissions some of whose lanes have no output path: whatever order the others run in, these calls are
    sent with the same parameters and the same context, and nothing else of their lanes happens.
    """
    assert sum(_lanes_sent(Random(number)) for number in range(LAWS)) > LAWS / 6


def _lanes_sent(random: Random) -> int:
    """How many lanes of a random submission are sent, as the law says."""
    submission = Author(random).submission()
    calls = submission.get("solution", submission["context"][-1])["calls"]
    shared = [call["_outputPath"] for call in calls if "_outputPath" in call and "_instance" not in call]
    silent = {name for name in (None, "①", "②", "③") if random.random() < 0.5}
    for call in calls:
        if call["_tool"] not in LATENT and call.get("_instance") in silent:
            call.pop("_outputPath", None)
            call["value"] = random.choice(("†input.p.q", "†state.g", {"in": "†state.l"}, 7, *shared[:1]))
    try:
        plan = check_in(Environment(activities=ACTIVITIES, model=True), submission)
    except Rejected:
        return 0
    sent = InlineFireAndForget(SETTINGS, _registry(ACTIVITIES)).decide(plan, "r", TOKENS)
    given = {**EXPLICIT, **LATENT, "stamp": lambda parameters, context: 0}
    functions = {name: adapted(function) for name, function in given.items()}
    result = Driver(plan, functions, random=random).run()
    bodies = [unpack(task.body) for calls in sent.lanes.values() for _, task in calls]
    ours = {(body["attempt"]["id"]["instance"], body["attempt"]["id"]["index"]): body for body in bodies}
    theirs = {(one.lane, one.index): one for one in result.sent if one.lane in sent.lanes}
    assert ours.keys() == theirs.keys()
    for key, one in theirs.items():
        assert (ours[key]["parameters"], ours[key]["context"]) == (one.parameters, one.context)
    assert all(set(result.statuses[lane].values()) == {Status.SENT} for lane in sent.lanes)
    return len(sent.lanes)


# A submission that is rejected, or cannot be written down whole, leaves no key of ours (SPEC R7.1).


@pytest.fixture(scope="module")
def own_server() -> Iterator[EmbeddedServer]:
    """A server that these tests may fill up."""
    with EmbeddedServer() as running:
        yield running


@pytest.fixture
def redis(own_server: EmbeddedServer) -> Iterator[Redis]:
    with Redis.from_url(own_server.redis_url) as connection:
        connection.flushall()
        yield connection
        connection.config_set("maxmemory", 0)


def our_keys(redis: Redis) -> list[bytes]:
    return list(redis.scan_iter("*"))


def echo(value: Any, **meta: Any) -> dict[str, Any]:
    return {"_tool": "echo", "value": value, "_outputPath": "†state.a", **meta}


@pytest.mark.parametrize(
    "submission",
    [
        None,
        [],
        {},
        {"solution": 5},
        {"solution": {"calls": [{"_tool": "unknown"}]}},
        {"solution": {"calls": [echo("†state.nothing")]}},
        {"solution": {"calls": [echo("†state.")]}},
        {"solution": {"calls": [echo(1, _instance="①")]}},
        {"solution": {"calls": [{"_tool": "add", "a": "one", "_outputPath": "†state.a"}]}},
        {"solution": {"calls": [echo("x" * 2_000_000)]}},
        {"solution": {"calls": [echo("†state.b"), {**echo("†state.a"), "_outputPath": "†state.b"}]}},
        {"solution": {"calls": [echo(1)]}, "config": "text"},
        {"solution": {"calls": [echo(1)]}, "config": [1]},
        {"solution": {"calls": [echo(1)]}, "config": {"ticks": 8}},
        {"context": [{"type": "state", "_instance": "①"}], "solution": {"calls": [echo(2**70)]}},
    ],
)
def test_a_rejected_submission_leaves_nothing(own_server: EmbeddedServer, redis: Redis, submission: Any) -> None:
    with Client(settings_for(own_server)) as client, pytest.raises(Rejected):
        client.submit_document(submission)
    assert our_keys(redis) == []


def test_a_submission_that_calls_what_is_not_allowed_leaves_nothing(own_server: EmbeddedServer, redis: Redis) -> None:
    with Client(settings_for(own_server)) as client, pytest.raises(Rejected, match="'echo' is not allowed here"):
        client.submit(solution={"calls": [echo(1)]}, allow=["add"])
    assert our_keys(redis) == []


def test_a_server_that_is_full_leaves_nothing(own_server: EmbeddedServer, redis: Redis) -> None:
    redis.config_set("maxmemory", 1)
    with Client(settings_for(own_server)) as client, pytest.raises(InfrastructureError, match="is full"):
        client.submit(solution={"calls": [echo(1)]})
    redis.config_set("maxmemory", 0)
    assert our_keys(redis) == []


def test_a_server_that_gets_full_in_the_middle_leaves_nothing(own_server: EmbeddedServer, redis: Redis) -> None:
    memory: Any = redis.info("memory")
    redis.config_set("maxmemory", memory["used_memory"] + 4_000_000)
    context = [{"type": "state", "_instance": f"i{n}", "text": "x" * 10_000} for n in range(1_200)]
    with Client(settings_for(own_server)) as client, pytest.raises(InfrastructureError, match="is full"):
        client.submit(context, {"calls": [echo("†state.text", _instance="i0")]})
    redis.config_set("maxmemory", 0)
    assert our_keys(redis) == []


def test_a_submission_that_cannot_be_published_is_a_run_that_the_sweep_publishes(
    own_server: EmbeddedServer, redis: Redis
) -> None:
    away = settings_for(own_server, broker_url="redis://127.0.0.1:1/0")
    with Client(away) as client:
        run = client.submit(solution={"calls": [echo(1)]})
    settings = settings_for(own_server)
    app = make_client_application(settings)
    assert redis.llen(settings.queue_instances) == 0
    Sweeper(redis, Publisher(app), ReportQueue(app, settings), settings).sweep()
    assert redis.llen(settings.queue_instances) == 1
    assert run.status()["status"] == "running"


def test_a_log_that_does_not_answer_leaves_no_task(own_server: EmbeddedServer, redis: Redis) -> None:
    settings = settings_for(own_server, redis_url="redis://127.0.0.1:1/0")
    with Client(settings) as client, pytest.raises(InfrastructureError):
        client.submit(solution={"calls": [echo(1)]})
    assert our_keys(redis) == []


# Who has shown a token begins no more than its limits admit, whoever else submits at the same moment.

TWO: dict[str, Any] = {"calls": [{"_tool": "echo", "value": 1, "_outputPath": f"†state.{name}"} for name in "ab"]}


def acting(own: Backend, name: str, **limits: Any) -> Client:
    """What a server does for somebody who has shown a token with limits."""
    return Client(own.settings.acting_for(name, Identity(name, TokenLimits(**limits))))


def is_begun(submit: Callable[[], object]) -> bool:
    try:
        submit()
    except OverLimit:
        return False
    return True


def test_runs_under_way_are_counted_by_their_states_and_nothing_leaks(own: Backend) -> None:
    with acting(own, "kim", runs=1) as kim, acting(own, "lea", runs=1) as lea:
        first = kim.submit([], TWO, id="kims")
        assert kim.submit([], TWO, id="kims").id == first.id, "it is the same run"
        with pytest.raises(OverLimit, match=r"kim has 1 runs under way, and its limit is 1 \(runs=1.*cancel one"):
            kim.submit([], TWO)
        with pytest.raises(OverLimit):
            kim.run(first.id).fork()
        assert lea.submit([], TWO).status()["status"] == "running"
        first.cancel()
        second = kim.submit([], TWO)
        own.redis.delete(*Keys(own.settings.key_prefix, second.id).all)  # as where its time is over
        kim.submit([], TWO)
    assert own.redis.exists(admission(own.settings.key_prefix, "kim")) == 0


def test_of_many_that_are_submitted_together_as_many_begin_as_are_admitted(own: Backend) -> None:
    with acting(own, "max", runs=3) as mac, ThreadPoolExecutor(8) as threads:
        begun = list(threads.map(is_begun, [lambda: mac.submit([], TWO)] * 12))
    assert sum(begun) == 3


def test_the_calls_of_a_day_are_those_of_the_runs_that_were_begun_on_it(own: Backend) -> None:
    with acting(own, "ned", calls=5) as ned:
        runs = [ned.submit([], TWO), ned.submit([], TWO)]
        with pytest.raises(OverLimit, match=r"have taken 4 calls, this one has 2 more, and its limit is 5 a day"):
            ned.submit([], TWO)
        with pytest.raises(OverLimit):
            runs[0].fork()
        ned.submit([], {"calls": TWO["calls"][:1]})
        index = f"{own.settings.key_prefix}:owned:ned"
        own.redis.zadd(index, {runs[0].id: 1})  # it was begun long ago
        ned.submit([], TWO)


def test_a_retry_and_calls_that_are_added_are_held_to_the_limits_too(own: Backend) -> None:
    with acting(own, "quin", runs=1, calls=4) as quin:
        ended = quin.submit([], {"calls": [], "output": "tea"})
        failing = quin.submit(
            [], {"calls": [*TWO["calls"], {"_tool": "failUntilMended", "name": "quin", "_outputPath": "†state.c"}]}
        )
        with pytest.raises(OverLimit, match=r"runs=1, behind its token"):
            ended.amend(TWO["calls"], add=True)
        assert ended.status()["status"] == "completed"
        with pytest.raises(OverLimit, match=r"have taken 3 calls, this one has 2 more, and its limit is 4 a day"):
            failing.amend(TWO["calls"], add=True)
        assert failing.status()["status"] == "running"
        failing.amend(TWO["calls"][:1], add=True)
        with own.worker():
            own.wait(failing.id)
        with pytest.raises(OverLimit, match=r"have taken 4 calls, and its limit is 4 a day"):
            failing.retry()
        own.client.run(failing.id).retry()


def test_elements_count_as_they_begin_and_no_more_of_them_begin_than_are_left(own: Backend) -> None:
    each = {"_tool": "echo", "_each": ["value"], "value": "†input.values", "_outputPath": "†state.a"}

    def spread(client: Client, number: int) -> Result:
        return own.wait(client.submit([{"type": "input", "values": list(range(number))}], {"calls": [each]}).id)

    with acting(own, "rex", calls=10) as rex, own.worker():
        many = spread(rex, 5_000)
        assert (many.status, "5000 elements" in (many.reason or "")) == ("failed", True), many.reason
        assert own.redis.hget(Keys(own.settings.key_prefix, many.run).state, "elements") is None
        assert spread(rex, 6).status == "completed"
        with pytest.raises(OverLimit, match=r"have taken 8 calls, this one has 3 more, and its limit is 10 a day"):
            rex.submit([], {"calls": [{**TWO["calls"][0], "_outputPath": f"†state.{name}"} for name in "abc"]})
        assert spread(own.client, 20).status == "completed"


def test_an_import_has_taken_nothing_here(own: Backend) -> None:
    with acting(own, "ora", calls=2) as ora:
        lines = list(own.client.submit([], TWO).export())
        own.redis.flushdb()
        ora.import_run(lines)
        ora.submit([], TWO)


def test_a_client_that_dies_while_it_submits_keeps_others_waiting_for_a_while_only(own: Backend) -> None:
    with acting(own, "pia", runs=1) as pia:
        key = admission(own.settings.key_prefix, "pia")
        own.redis.set(key, "somebody", px=300)
        pia.submit([], TWO)
        assert own.redis.exists(key) == 0


# Fire and forget: sent once with its parameters resolved, stored nowhere, waited for by nobody (SPEC R5.1).


def test_a_call_without_an_output_path_is_sent_with_its_parameters_resolved(backend: Backend, meeting: Meeting) -> None:
    result = backend.run(
        [
            {"_tool": "add", "a": 1, "_instance": "①", "_outputPath": "†state.n"},
            {"_tool": "note", "name": "sent", "n": "†state.n", "_instance": "①", "_scopes": ["state"]},
        ],
        [{"type": "state", "_instance": "①", "who": "me"}, {"type": "input", "hidden": True}],
    )
    assert [call.status for call in result.calls] == ["done", "sent"]
    seen = meeting.take("sent")
    assert (seen["call"]["n"], seen["call"]["name"], seen["call"]["_instance"]) == (2, "sent", "①")
    assert seen["context"] == {"state": {"who": "me", "n": 2}}


def test_it_is_sent_exactly_once_and_leaves_no_message(backend: Backend, meeting: Meeting) -> None:
    marks = [f"i{n}" for n in range(40)]
    plan = {"type": "plan", "calls": [{"_tool": "note", "name": "once", "mark": "†state.mark"}]}
    run = backend.client.submit([plan, *({"type": "state", "_instance": m, "mark": m} for m in marks)])
    result = backend.wait(run.id)
    assert run.status()["calls"] == {"sent": 40}
    assert result.status == "completed"
    assert sorted(meeting.take("once")["call"]["mark"] for _ in marks) == sorted(marks)
    assert meeting.count("once") == 0
    assert len(list(run.log())) == 41


def test_its_failure_does_not_affect_the_run(backend: Backend, meeting: Meeting) -> None:
    calls = [{"_tool": "noteAndFail", "name": "lost"}, {"_tool": "echo", "value": 1, "_outputPath": "†state.a"}]
    run = backend.client.submit(solution={"calls": calls})
    result = backend.wait(run.id)
    assert meeting.take("lost") == "failing"
    assert result.status == "completed"
    assert [call.status for call in run.result().calls] == ["sent", "done"]
    assert "error" not in run.result().data()


def test_a_delegate_without_an_output_path_is_sent_to_the_background(aside: Backend) -> None:
    aside.redis.delete(aside.queue("aside-background"))
    result = aside.run([{"_tool": "ask", "_delegate": "showContext", "question": "why"}])
    assert (result.status, [call.status for call in result.calls]) == ("completed", ["sent"])
    message = queued(aside, "aside-background")
    assert argument(message)["context"] == [{"type": "input", "question": "why"}]
    assert argument(message)["awaited"] is False
    assert message["headers"]["ignore_result"] is True


def test_the_run_does_not_wait_for_it_and_its_message_asks_for_no_result(aside: Backend) -> None:
    aside.redis.delete(aside.queue("aside-background"))
    result = aside.run([{"_tool": "note", "name": "never-run"}])
    assert result.status == "completed"
    message = queued(aside, "aside-background")
    assert message["headers"]["ignore_result"] is True
    assert aside.redis.llen(aside.queue("aside-background")) == 1


@pytest.fixture
def with_results(server: EmbeddedServer, meeting: Meeting, tmp_path: Path) -> Iterator[Backend]:
    """A worker with a result backend, a server of its own (Celery cannot use one behind a unix socket)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    command = [str(find_server()), "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    with ended(command, os.environ, tmp_path, None) as process:
        assert process.stdout is not None
        assert any(b"eady to accept" in line for line in process.stdout)
        settings = settings_for(
            server,
            key_prefix="results",
            queue_instances="results-instances",
            queue_background="results-background",
            result_backend_url=f"redis://127.0.0.1:{port}/0",
        )
        running = Backend(settings, meeting, tmp_path)
        with running.worker("-Q", "results-instances,results-background"):
            yield running


def test_nothing_is_stored_in_a_configured_result_backend(with_results: Backend, meeting: Meeting) -> None:
    result = with_results.run(
        [{"_tool": "note", "name": "no-result"}, {"_tool": "echo", "value": 1, "_outputPath": "†state.a"}]
    )
    assert result.status == "completed"
    meeting.take("no-result")
    url = with_results.settings.result_backend_url
    assert url is not None
    with Redis.from_url(url.get_secret_value()) as results:
        stored = [str(results.get(key)) for key in results.scan_iter("celery-task-meta-*")]
    assert [value for value in stored if "background" in value] == []
    assert len(stored) <= 1, "at most the lane's own task has a result"


def test_what_is_reported_of_an_end_never_expires(server: EmbeddedServer) -> None:
    settings = settings_apart(server, "lasting")
    reports = ReportQueue(make_client_application(settings), settings)
    sign = AttemptRef("r", "", 0, 1)
    for report in (Report(begun=(sign,)), Report(completed=(Completion(sign),))):
        reports.send(report)
    with Redis.from_url(server.redis_url) as redis:
        found: Any = redis.lrange(f"{queue_prefix(settings)}lasting-reports", 0, -1)
        lasts = ["expiration" not in json.loads(item)["properties"] for item in found]
    assert lasts == [True, False], "the newest first"


@pytest.mark.parametrize("count", [120, pytest.param(1_000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("killed", ["who reads of ends", "who carries out"])
def test_a_worker_that_is_killed_while_ends_are_reported_makes_only_what_was_at_work_run_twice(
    tmp_path: Path, killed: str, count: int
) -> None:
    threads = 4
    with EmbeddedServer() as server:
        backend = Backend(settings_for(server), Meeting(meeting_url(server)), tmp_path)
        run = backend.client.submit(solution={"calls": [{"_tool": "note", "name": "told"} for _ in range(count)]})
        keys = Keys("acts", run.id)
        with (
            writes_to(backend, keys.outbox) as writes,
            backend.worker("-Q", "instances") as reader,
            backend.worker("-Q", "background", "--concurrency", str(threads)) as doer,
        ):
            while not ends_told(backend, keys):
                next(writes)
            os.kill((reader if killed == "who reads of ends" else doer).pid, signal.SIGKILL)
            with backend.worker("-Q", "instances,background"):
                assert backend.wait(run.id).status == "completed"
                wait_until_done(backend, run.id)  # while the run goes on, what is sent may be done before more is
        at_work = threads if killed == "who carries out" else 0
        assert count <= backend.meeting.count("told") <= count + at_work
