"""What is sent and forgotten, and waits for nothing, has ended with its submission (SPEC R5.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from redis.exceptions import NoPermissionError

from acts_celery import InfrastructureError, Run
from acts_celery.broker_config import EmbeddedServer, load
from acts_celery.protocol import Plan, Rejected, check_in
from acts_celery.protocol.engine.events import Status
from acts_celery.protocol.plan.checking import Environment
from acts_celery.worker.broker.attempts import Tokens
from acts_celery.worker.broker.consumer import Publisher
from acts_celery.worker.broker.messages import unpack, unpack_task
from acts_celery.worker.client import dispatcher
from acts_celery.worker.client import dispatcher as forgetting
from acts_celery.worker.client.dispatcher import Forgetting
from acts_celery.worker.registry.activities import Policy, Registry, make_activity
from acts_celery.worker.store.keys import Keys
from tests.protocol.authoring import ACTIVITIES, ANY, EXPLICIT, LATENT, Author
from tests.protocol.driver import Driver
from tests.protocol.test_against_naive import adapted

from .backend import Backend, Meeting, settings_apart

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


def queued(backend: Backend, queue: str) -> int:
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
    assert queued(idle, idle.settings.queue_instances) == 0
    assert queued(idle, idle.settings.queue_background) == 3
    assert [event.status for event in run.follow()] == ["running", *["sent"] * 3, "completed"]


def test_they_are_carried_out_once_and_leave_the_outbox(idle: Backend, meeting: Meeting) -> None:
    run = idle.client.submit(plan(NOTE, count=40))
    keys = Keys(idle.settings.key_prefix, run.id)
    with idle.worker():
        seen = [meeting.take("sent") for _ in range(40)]
        marks = {one["call"]["mark"] for one in seen}
        assert marks == {one["context"]["state"]["mark"] for one in seen} == {f"i{n}" for n in range(40)}
        while idle.redis.exists(keys.outbox):
            pass
    assert meeting.count("sent") == 0
    assert not idle.redis.exists(keys.outbox, keys.outbox_tasks, keys.outbox_due)


@pytest.mark.parametrize("context", [plan(NOTE, {**NOTE, "mark": 5, "_scopes": []}, count=1), marked(1)])
def test_they_leave_what_a_worker_leaves_that_drives_their_lane(
    idle: Backend, context: list[Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    solution = {"calls": [{**NOTE, "mark": n, "_instance": "i0"} for n in range(2)]} if len(context) == 1 else None
    here = idle.client.submit(context, solution)
    monkeypatch.setattr(forgetting, "WINDOWS", 0)
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
    assert queued(idle, idle.settings.queue_background) == 0
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
    ("name", "most", "sent"), [("WINDOWS", 1, 2), ("_MOST_BYTES", 1, 0), ("_MOST_WORK", 0, 0), ("_AT_ONCE", 1, 3)]
)
def test_what_is_sent_at_once_is_bounded_and_the_rest_follows_by_its_lanes(
    idle: Backend, meeting: Meeting, monkeypatch: pytest.MonkeyPatch, name: str, most: int, sent: int
) -> None:
    monkeypatch.setattr(forgetting, name, most)
    run = idle.client.submit(plan(NOTE))
    assert queued(idle, idle.settings.queue_background) == sent
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
    assert list(Forgetting(SETTINGS, registry).decide(plan, "r", TOKENS).lanes) == ["①"]


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
    sent = Forgetting(SETTINGS, _registry(ACTIVITIES)).decide(plan, "r", TOKENS)
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
