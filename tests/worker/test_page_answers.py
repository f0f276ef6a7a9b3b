"""What the page asks and is answered, live and as a file."""

from __future__ import annotations

import asyncio
import base64
import errno
import hashlib
import json
import random
import re
import secrets
import time
import tracemalloc
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery import InstanceNotFound, NoLoop, NoSuchTick, OtherFormat, Run, RunNotFound
from acts_celery.broker_config import EXECUTE_DELEGATE, EmbeddedServer
from acts_celery.protocol.engine.events import CallEnded, Failure, Success
from acts_celery.protocol.state.fold import Fold
from acts_celery.worker.broker.attempts import CallId, call_name
from acts_celery.worker.broker.messages import Delivery, TaskMessage, delivery_task, lane_task, unpack_delegate_call
from acts_celery.worker.cli.options import Failed
from acts_celery.worker.cli.source import write_whole
from acts_celery.worker.errors import BadQuery, NoSuchAnswer, NoSuchCall
from acts_celery.worker.limits import MOST_DRAWN, SERVER_MOST_BYTES, SHOW_BYTES, limits_of
from acts_celery.worker.runner.scheduler import Scheduler
from acts_celery.worker.store.entries import id_key
from acts_celery.worker.store.keys import Keys
from acts_celery.worker.store.run_store import RunStore
from acts_celery.worker.ui import Page
from acts_celery.worker.ui.drawing import Node, draw, layers_of, place
from acts_celery.worker.ui.file import document
from acts_celery.worker.ui.opened import CUT, alike, shown, size_of
from tests.acceptance.command import Finished, acts
from tests.few import few

from .backend import Backend, Meeting, status_of
from .loops import Asked, answer
from .pages import Asking, agree
from .test_r13_5_crashes import World

# What a page shows of runs of every kind agrees with their results, on real workers.


def echo(value: Any, path: str, **more: Any) -> dict[str, Any]:
    return {"_tool": "echo", "value": value, "_outputPath": path, **more}


def instances(*names: str) -> list[dict[str, Any]]:
    return [{"type": "state", "_instance": name, "text": f"text of {name}", "name": name} for name in names]


def planned(backend: Backend, calls: list[dict[str, Any]], *names: str, **parts: Any) -> Asking:
    """The page of a plan that runs in these instances, once it has ended."""
    run = backend.client.submit([*instances(*names), {"type": "plan", "calls": calls}], **parts)
    backend.wait(run.id)
    return Asking(backend, run)


def solved(backend: Backend, calls: list[dict[str, Any]], context: Any = ()) -> Asking:
    run = backend.client.submit(context, {"calls": calls})
    backend.wait(run.id)
    return Asking(backend, run)


FAILING = {"_tool": "failFor", "instance": "†state.name", "mark": "b", "_outputPath": "†state.a"}


def test_a_plan_is_shown_once_for_all_instances_with_what_failed_and_why(backend: Backend) -> None:
    page = planned(backend, [FAILING, echo("†state.a", "†state.c"), echo("†state.text", "†state.d")], "a", "b", "c")
    agree(page)
    plan = page.ask("plan")
    assert plan["layers"] == [[0, 2], [1]]
    assert plan["edges"] == [{"from": 0, "to": 1, "path": "†state.a", "kind": "reads"}]
    failed = page.ask("calls/0", status="failed")
    assert [row["instance"] for row in failed["instances"]] == ["b"]
    assert [(group["count"], group["instances"]) for group in failed["errors"]] == [(1, ["b"])]
    assert [one["instance"] for one in page.ask("instances", status="failed")["instances"]] == ["b"]
    overview = page.ask()
    assert overview["counts"] == {"done": 7, "failed": 1, "skipped": 1}
    assert (overview["status"], overview["instances"], overview["loop"]) == ("failed", 3, False)


def test_a_retry_takes_back_what_had_failed(backend: Backend, meeting: Meeting) -> None:
    name = secrets.token_hex(4)
    broken = {"_tool": "failUntilMended", "name": name, "value": 1, "_outputPath": "†state.a"}
    page = planned(backend, [broken, echo("†state.a", "†state.b")], "a", "b")
    agree(page)
    assert page.ask("calls/0")["errors"][0]["count"] == 2
    meeting.redis.set(f"mended:{name}", b"1")
    page.run.retry(instance="a")
    backend.wait(page.run.id)
    agree(page)  # the same page, which has read the log before
    agree(Asking(backend, page.run))
    assert page.ask("calls/0")["errors"][0]["instances"] == ["b"]
    undone = [entry for entry in page.ask("log", instance="a")["entries"] if "undone" in entry]
    assert [entry["undone"] for entry in undone] == [[0, 1]]
    assert "error" not in undone[0]["data"]
    assert "undone" not in str(page.ask("log", instance="b"))


def test_a_branch_that_was_not_taken_is_told_from_what_was_skipped_for_a_failure(backend: Backend) -> None:
    chosen = {"_tool": "pick", "path": "†state.to", "value": 1, "_outputPath": "†state.x || †state.y"}
    calls = [chosen, echo("†state.x", "†state.c"), echo("†state.y", "†state.d"), FAILING, echo("†state.a", "†state.e")]
    context = [
        {"type": "state", "_instance": name, "to": f"†state.{branch}", "name": name}
        for name, branch in (("a", "x"), ("b", "y"), ("c", "y"))
    ]
    run = backend.client.submit([*context, {"type": "plan", "calls": calls}])
    backend.wait(run.id)
    page = Asking(backend, run)
    counts = {call["index"]: call["counts"] for call in page.ask("plan")["calls"]}
    assert counts[1] == {"done": 1, "skipped": 1, "not taken": 1}  # b has a failure, so what it skipped is not judged
    assert counts[2] == {"done": 2, "not taken": 1}
    assert counts[4] == {"done": 2, "skipped": 1}
    assert [row["instance"] for row in page.ask("calls/1", status="not taken")["instances"]] == ["c"]
    assert [call["index"] for call in page.ask("instance", name="b")["calls"] if call.get("not_taken")] == [1]
    run.retry(instance="b", skip=True, value="b")
    backend.wait(run.id)
    for seen in (page, Asking(backend, run)):  # the one has read the log before
        assert {call["index"]: call["counts"] for call in seen.ask("plan")["calls"]}[1] == {"done": 1, "not taken": 2}


def test_an_amended_run_shows_the_calls_that_it_has_now_and_those_that_were_dropped(backend: Backend) -> None:
    gate = secrets.token_hex(4)
    waiting = {"_tool": "waitAtGate", "gate": gate, "value": 1, "_outputPath": "†state.a"}
    run = backend.client.submit([], {"calls": [waiting, echo("†state.a", "†state.b")]})
    backend.meeting.take(f"at:{gate}")  # what has not begun would be dropped, too
    page = Asking(backend, run)
    assert page.ask("plan")["calls"][1]["counts"] == {"waiting": 1}
    run.amend({"calls": [echo("†state.a", "†state.c"), echo("†state.c", "†state.d")]})
    backend.meeting.open_gate(gate)
    backend.wait(run.id)
    agree(page)
    assert {call["index"]: call["counts"] for call in page.ask("plan")["calls"]}[1] == {"skipped": 1}
    assert [(edge["from"], edge["to"]) for edge in page.ask("plan")["edges"]] == [(0, 1), (0, 2), (2, 3)]


def test_a_forked_run_names_where_it_comes_from(backend: Backend) -> None:
    page = solved(backend, [echo(1, "†state.a"), echo("†state.a", "†state.b")])
    fork = page.run.fork()
    backend.wait(fork.id)
    agree(Asking(backend, fork))
    assert Asking(backend, fork).ask()["forked_from"]["run"] == page.run.id


def test_gathered_everywhere_and_for_each(backend: Backend) -> None:
    calls = [
        echo("†state.text", "†state.a", _instance="*"),
        echo("†state.a", "†data.all", _gather=True),
        {"_tool": "echo", "value": "†data.list", "_each": "value", "_outputPath": "†data.many"},
    ]
    context = [*instances("a", "b"), {"type": "data", "kind": "data", "data": {"list": [1, 2, 3]}}]
    page = solved(backend, calls, context)
    agree(page)
    plan = page.ask("plan")
    assert [(edge["from"], edge["to"]) for edge in plan["edges"]] == [(0, 1)]
    assert [(call["gather"], call["each"]) for call in plan["calls"]] == [(False, False), (True, False), (False, True)]
    assert page.ask("sent", call="1")["note"].startswith("The call reads in every instance")
    assert page.ask("sent", call="2")["parameters"] == {"value": [1, 2, 3]}
    assert page.ask("sent", call="2")["exact"]


def test_what_runs_and_what_waits_is_counted_and_a_cancelled_run_skips_it(backend: Backend) -> None:
    gate = secrets.token_hex(4)
    waiting = {"_tool": "waitAtGate", "gate": gate, "value": 1, "_outputPath": "†state.a"}
    run = backend.client.submit([], {"calls": [waiting, echo("†state.a", "†state.b")]})
    page = Asking(backend, run)
    backend.meeting.take(f"at:{gate}")
    assert [call["counts"] for call in page.ask("plan")["calls"]] == [{"running": 1}, {"waiting": 1}]
    run.cancel()
    backend.meeting.open_gate(gate)
    agree(page)
    assert page.ask("plan")["calls"][1]["counts"] == {"skipped": 1}


def test_a_held_call_is_counted_and_shown_with_exactly_what_it_will_run_with(backend: Backend) -> None:
    calls = [echo("†data.x", "†state.a"), echo("†state.a", "†state.b")]
    context = [{"type": "data", "kind": "data", "data": {"x": "shown"}}]
    run = backend.client.submit(context, {"calls": calls}, config={"approve": ["†data.x"]})
    for event in run.follow():
        if event.kind == "held":
            break
    page = Asking(backend, run)
    assert page.ask("plan")["calls"][0]["counts"] == {"held": 1}
    assert page.ask()["held"] == 1
    assert page.ask("held") == run.held()
    sent = page.ask("sent", call="0")
    assert (sent["parameters"], sent["scopes"], sent["exact"]) == ({"value": "shown"}, {}, True)
    run.approve("0", parameters={"value": "changed"})
    backend.wait(run.id)
    agree(page)
    assert page.ask("sent", call="0")["parameters"] == {"value": "changed"}
    assert page.ask("held") == []


def test_who_did_what_is_shown_the_newest_first_with_decisions_and_amendments(backend: Backend) -> None:
    run = backend.client.submit([], {"calls": [echo(1, "†state.a")]}, config={"approve": ["echo"]})
    while not run.held():
        time.sleep(0.02)
    for _ in range(30):
        run.pause()
        run.resume()
    run.approve(0, by="ann")
    backend.wait(run.id)
    run.amend([echo(2, "†state.b")], add=True)
    page = Asking(backend, run)
    first = page.ask("audit")
    did = [(order["did"], order["call"], order["by"], order["authenticated"]) for order in first["orders"]]
    assert "added calls" in {order[0] for order in did}
    assert ("approved", 0, "ann", False) in did
    orders = page.all("audit", "orders")
    assert orders[: len(first["orders"])] == first["orders"]
    assert [order["did"] for order in orders[-3:]] == ["resumed", "paused", "submitted"]
    assert len({order["id"] for order in orders}) == len(orders) > 62


def test_a_plan_that_waits_for_its_approval_is_what_is_held_first(backend: Backend) -> None:
    plan = {"type": "plan", "calls": [echo("†state.text", "†state.a")]}
    run = backend.client.submit([*instances("a", "b"), plan], config={"mode": "lazy"})
    page = Asking(backend, run)
    assert page.ask("held") == [run.plan()]
    run.approve_plan(page.ask("held")[0]["plan"])
    backend.wait(run.id)
    agree(page)
    assert page.ask("held") == []


def test_a_loop_is_a_conversation_and_each_tick_a_plan(loops: Backend) -> None:
    sum_ = {"_tool": "add", "a": 1, "b": 2, "_outputPath": "†state.sum"}
    wrong = {"_tool": "add", "_outputPath": "†state.sum"}
    more = {"_tool": "add", "a": "†state.sum", "b": 4, "_outputPath": "†state.more"}
    asked = Asked(loops, answer(sum_, wrong), answer(more), answer(output="†state.more"))
    assert asked.result().output == 7
    page = Asking(loops, asked.run)
    agree(page)
    ticks = page.ask("conversation")["ticks"]
    assert [tick["tick"] for tick in ticks] == [0, 1, 2]
    assert [[call["index"] for call in tick["calls"]] for tick in ticks] == [[0], [1], []]
    assert [len(tick["errors"]) for tick in ticks] == [1, 0, 0]
    assert ticks[2]["answer"]["output"] == "†state.more"
    sent = [message for tick in ticks for message in tick["asked"]]
    assert sent == asked.run.asked(2)["messages"]  # each tick shows what it adds
    assert page.ask("plan", tick="1")["layers"] == [[1]]
    assert page.ask()["ticks"] == 3
    assert page.ask()["output"] == 7
    with pytest.raises(NoSuchTick, match="no tick 9"):
        page.ask("plan", tick="9")
    with pytest.raises(NoSuchTick, match="no tick 9"):
        page.ask("conversation", tick="9")


def test_a_child_run_shows_what_it_was_given_and_its_parent(loops: Backend) -> None:
    topic = secrets.token_hex(4)
    Asked.tell(_Topic(loops, topic), answer(output=5))  # type: ignore[arg-type]  # it uses nothing but these two
    own = [{"type": "text", "message": f"topic: {topic}"}]
    delegate = {"context": own, "schema": {"type": "integer"}, "tools": ["add"]}
    ask = {"_tool": "ask", "_delegate": "asked", "question": "†data.q", "_outputPath": "†state.answer"}
    context = [{"type": "data", "kind": "data", "data": {"q": "2+3", "secret": "not for it"}}]
    run = loops.client.submit(context, {"calls": [ask]}, delegates={"asked": delegate})
    child = loops.wait(run.id).calls[0].child
    page = Asking(loops, run)
    agree(page)
    sent = page.ask("sent", call="0")
    assert (sent["child"], sent["exact"]) == (child, True)
    assert sent["messages"] == [*own, {"type": "input", "question": "2+3"}] or "2+3" in str(sent["messages"])
    assert "not for it" not in str(sent)
    assert page.page.answer(f"runs/{child}")["parent"] == {"run": run.id, "call": "0"}


class _Topic:
    def __init__(self, backend: Backend, topic: str) -> None:
        self._backend = backend
        self.topic = topic


def test_pages_go_on_while_the_run_does(backend: Backend) -> None:
    gate = secrets.token_hex(4)
    names = [f"i{number:03}" for number in range(120)]
    waiting = {"_tool": "waitAtGate", "gate": gate, "value": 1, "_outputPath": "†state.b"}
    calls = [echo("†state.text", "†state.a"), {**waiting, "_instance": names[60]}]
    run = backend.client.submit([*instances(*names), {"type": "plan", "calls": calls}])
    page = Asking(backend, run)
    first = page.ask("calls/0")
    backend.meeting.open_gate(gate)
    backend.wait(run.id)
    rows, after = first["instances"], first["next"]
    while after is not None:
        answer = page.ask("calls/0", after=after)
        rows, after = rows + answer["instances"], answer["next"]
    assert [row["instance"] for row in rows] == names
    assert [one["instance"] for one in page.all("instances", "instances", search="11")] == [
        name for name in names if "11" in name
    ]


def test_a_log_is_counted_a_part_at_a_time(backend: Backend) -> None:
    whole = planned(backend, [echo("†state.text", "†state.a")], *(f"i{number}" for number in range(150)))
    page = Asking(backend, whole.run, reading_seconds=0)
    first = page.ask("plan")
    assert 0 < first["reading"]["read"] < first["reading"]["of"]
    last, seen = first, [first["reading"]["read"]]
    while last["reading"] is not None:
        last = page.ask("plan")
        seen.append((last["reading"] or {"read": seen[-1] + 1})["read"])
    assert seen == sorted(set(seen))  # each answer has come further
    assert last == whole.ask("plan")


def test_pages_of_runs_have_each_once_whatever_their_ids_are(backend: Backend) -> None:
    ids = [f"{number * 37 % 101:03}-paged" for number in range(101)]
    for id_ in ids:
        backend.client.submit([], {"calls": [], "output": 1}, id=id_, tags=["paged"])
    page, after, listed = Page(backend.redis, backend.settings), "", list[str]()
    while True:
        answer = page.answer("runs", {"search": "-paged", "after": after})
        listed += [each["run"] for each in answer["runs"]]
        if (after := answer["next"]) is None:
            break
    assert sorted(listed) == sorted(ids)


def test_runs_are_listed_the_newest_first_and_found_by_name_and_tag(backend: Backend) -> None:
    name = secrets.token_hex(6)
    runs = [backend.client.submit([], {"calls": [echo(1, "†state.a")]}, name=name, tags=["red"]) for _ in range(3)]
    for run in runs:
        backend.wait(run.id)
    page = Page(backend.redis, backend.settings)
    found = page.answer("runs", {"search": name.upper()})["runs"]
    assert {each["run"] for each in found} == {run.id for run in runs}
    assert found == sorted(found, key=lambda each: each["submitted"], reverse=True)
    assert page.answer("runs", {"search": name, "status": "failed"})["runs"] == []
    assert page.answer(f"runs/{name}")["run"] == found[0]["run"]


def test_what_is_not_there_is_refused(backend: Backend) -> None:
    page = planned(backend, [echo("†state.text", "†state.a")], "a")
    for what, query, error in (
        ("calls/7", {}, NoSuchCall),
        ("calls/x", {}, NoSuchAnswer),
        ("nothing", {}, NoSuchAnswer),
        ("instance", {"name": "nobody"}, InstanceNotFound),
        ("place", {}, BadQuery),
        ("place", {"path": "†state.a && "}, BadQuery),
        ("place", {"path": "state.a", "instance": "nobody"}, InstanceNotFound),
        ("place", {"path": "state.a", "at": "yesterday"}, BadQuery),
        ("log", {"after": "1"}, BadQuery),
        ("log", {"instance": "nobody"}, InstanceNotFound),
        ("calls/0", {"status": "sleeping"}, BadQuery),
        ("calls/0", {"after": "-1"}, BadQuery),
        ("sent", {"call": "7"}, NoSuchCall),
        ("sent", {"call": "0:nobody"}, InstanceNotFound),
        ("conversation", {}, NoLoop),
        ("plan", {"tick": "0"}, NoLoop),
    ):
        with pytest.raises(error):
            page.ask(what, **query)
    for address in ("", "runs/no-such-run", "runs/no-such-run/plan", "api", "runs/a/b/c/d"):
        with pytest.raises((NoSuchAnswer, RunNotFound)):
            page.page.answer(address)
    with pytest.raises(BadQuery):
        page.page.answer("runs", {"status": "sleeping"})


def test_a_run_that_is_deleted_is_gone_and_one_of_another_format_is_not_read(backend: Backend) -> None:
    page = planned(backend, [echo("†state.text", "†state.a")], "a")
    page.ask("plan")
    backend.redis.hset(Keys(backend.settings.key_prefix, page.run.id).state, "format", 99)
    for what in ("", "plan", "instance", "log"):
        with pytest.raises(OtherFormat):
            page.ask(what)
    backend.redis.delete(*backend.keys(page.run.id))
    for what in ("", "plan", "instance", "log", "held"):
        with pytest.raises(RunNotFound):
            page.ask(what)


@pytest.mark.nightly
def test_the_first_answers_about_100_000_instances_come_within_two_seconds(backend: Backend) -> None:
    many = 100_000
    context = ({"type": "state", "_instance": f"i{number}", "text": number} for number in range(many))
    run = backend.client.submit([*context, {"type": "plan", "calls": [echo("†state.text", "†state.a")]}])
    run.wait(timeout_seconds=1_800)
    page = Asking(backend, run, reading_seconds=1)
    tracemalloc.start()
    begun = time.monotonic()
    assert page.ask()["instances"] == many
    plan = page.ask("plan")
    first = time.monotonic() - begun
    while plan["reading"] is not None:
        plan = page.ask("plan")
    whole = time.monotonic() - begun
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(
        f"the first answers took {first:.2f} s, counting all {whole:.2f} s, kept are {kept / many:.0f} bytes for each"
    )
    assert first < 2
    assert kept < 600 * many
    assert plan["calls"][0]["counts"] == {"done": many}
    begun = time.monotonic()
    page.ask("calls/0", status="done", after=str(many - 60))
    page.ask("instances", search="99999")
    page.ask("instance", name="i99999")
    assert time.monotonic() - begun < 2


# What a page says that a delegate, or a model, was sent is what it was sent, whatever is written meanwhile.

PLACES = [f"state.p{number}" for number in range(4)]
INSTANCES = (None, "①", "②")


def submitted(backend: Backend, gate: str, turn: int) -> Run:
    ask = {"_tool": "ask", "_delegate": "showContextAtGate", "gate": gate, "turn": turn, "_scopes": ["state"]}
    calls = [{**ask, "_outputPath": "†data.seen", "_instance": "①"}]
    context = [{"type": "state", "n": 0}, {"type": "state", "_instance": "①", "own": 1}]
    return backend.client.submit(context, {"calls": calls})


def document_page_sent(chance: random.Random) -> dict[str, Any]:
    """Delegates, models and plain calls that write where others read, without waiting for each other."""

    def call() -> dict[str, Any]:
        seeing: dict[str, Any] = {
            "_scopes": chance.sample(["state", "data", "text", "error", "†state.p0", "†state.p1"], 2)
        }
        shape: dict[str, Any] = chance.choice(
            [
                {"_tool": "echo", "value": f"†{chance.choice(PLACES)}"},
                {"_tool": "echo", "value": chance.random()},
                {"_tool": "think", "_output": chance.random()},
                {"_tool": "ask", "_delegate": "showContext", "of": f"†{chance.choice(PLACES)}", **seeing},
                {"_tool": "ask", "_delegate": "showContext", "of": f"is it †{{{chance.choice(PLACES)}}}?", **seeing},
                {"_tool": "think", "of": f"†{chance.choice(PLACES)}", **seeing},
            ]
        )
        instance = chance.choice(INSTANCES)
        where = {"_instance": instance} if instance is not None else {}
        return {**shape, "_outputPath": f"†{chance.choice([*PLACES, 'data.seen'])}", **where}

    state = {place.partition(".")[2]: 0 for place in PLACES}
    context = [
        {"type": "state", **state},
        {"type": "text", "message": "Read this."},
        *({"type": "state", "_instance": name, "p0": name} for name in INSTANCES[1:]),
    ]
    return {
        "context": context,
        "solution": {"calls": [call() for _ in range(14)]},
        "tools": {"think": {"properties": {"of": {}}}},
    }


class SentWorld(World):
    """A world of two processes at a time, which drive the same lanes; its delegates answer anything, and fail; messages
    are lost, and their calls carried out again, while the first attempts may still answer.
    """

    def __init__(self, server: EmbeddedServer, seed: int) -> None:
        self.document = document_page_sent(random.Random(seed))  # type: ignore[misc]  # each has its own
        self.given: dict[tuple[str, int], Any] = {}
        super().__init__(server, seed, deaths=0, disturbs=True)

    async def _process(self, redis: Any) -> None:
        schedulers = [self._scheduler(redis) for _ in range(2)]
        while self.queue:
            count = min(len(self.queue), self.chance.randrange(2, 6))
            tasks = [self.queue.pop(self.chance.randrange(len(self.queue))) for _ in range(count)]
            await asyncio.gather(*(self._do(self.chance.choice(schedulers), task) for task in tasks))

    async def _do(self, scheduler: Scheduler, task: TaskMessage) -> None:
        if task.task != EXECUTE_DELEGATE:
            return await super()._do(scheduler, task)
        call = unpack_delegate_call(task.body, limits_of(self.settings))
        id_, number = call.attempt.id, call.attempt.number
        self.given[id_.name, number] = call
        if self.chance.random() < 0.15:
            self._lose(id_, number)
        is_good = self.chance.random() < 0.8
        result = Success(self.chance.random()) if is_good else Failure("ValueError", "nothing is there")
        self.queue.append(delivery_task(Delivery(call.attempt, result), "instances"))
        return None

    def _lose(self, id_: CallId, number: int) -> None:
        """Count an attempt as lost, as the sweep does, though its result is still to come."""
        entry = self.redis.hget(self.keys.calls, id_.member)
        if entry is None or not entry.startswith(b"sent:%d:" % number):
            return
        self.redis.hset(self.keys.calls, id_.member, b"lost:%d:0:" % number)
        self.redis.zrem(self.keys.leases, id_.member)
        self.queue.append(lane_task(self.run.id, id_.instance, "instances"))

    def _disturb(self) -> None:
        if self.run.status()["status"] == "running":
            instance = self.chance.choice(INSTANCES)
            where = {"_instance": instance} if instance is not None else {}
            self.run.send({"type": "state", f"p{self.chance.randrange(4)}": self.chance.random(), **where})


@pytest.mark.parametrize("seed", few(range(60), 4))
def test_what_is_shown_as_sent_is_what_was_sent_whatever_is_written_meanwhile(
    server: EmbeddedServer, seed: int
) -> None:
    world = SentWorld(server, seed)
    asyncio.run(world.live())
    page, checked = Asking(world, world.run), 0  # type: ignore[arg-type]
    for entry in RunStore(world.redis, world.keys).entries():
        if not isinstance(entry.event, CallEnded):
            assert entry.seen is None
            continue
        name = call_name(entry.event.call, entry.instance)
        call = world.given.get((name, entry.spent.attempts if entry.spent is not None else 1))
        if call is None:  # the end of what is no delegate's costs no byte more
            assert entry.seen is None
            continue
        sent = page.ask("sent", call=name)
        assert sent["exact"] is (call.attempt.seen is not None)
        if sent["exact"]:
            assert json.dumps(sent["messages"]) == json.dumps(list(call.context))
            assert json.dumps(sent["schema"]) == json.dumps(call.schema)
            checked += 1
    assert checked


@pytest.mark.parametrize(("turn", "status"), [(1, "done"), (2, "done"), (3, "failed")])
def test_the_attempt_that_has_ended_is_shown_as_it_was_given_what_it_was(
    backend: Backend, turn: int, status: str
) -> None:
    gate = secrets.token_hex(4)
    run = submitted(backend, gate, turn)
    given = backend.meeting.take(f"given:{gate}")
    run.send({"type": "state", "n": 1})  # both come before the result, and were not given to the first attempt
    run.send({"type": "state", "own": 2, "_instance": "①"})
    backend.meeting.open_gate(gate)
    if turn > 1:
        given = backend.meeting.take(f"given:{gate}")
    assert status_of(backend.wait(run.id), 0, "①") == status
    sent = Asking(backend, run).ask("sent", call="0:①")
    assert sent["exact"]
    assert json.dumps(sent["messages"]) == json.dumps(given)
    assert sent["scopes"]["state"] == ({"n": 0, "own": 1} if turn == 1 else {"n": 1, "own": 2})


def test_a_call_that_was_cancelled_while_it_ran_is_not_shown_as_exactly_what_it_was_given(backend: Backend) -> None:
    gate = secrets.token_hex(4)
    run = submitted(backend, gate, 1)
    backend.meeting.take(f"given:{gate}")
    run.cancel()
    backend.meeting.open_gate(gate)
    sent = Asking(backend, run).ask("sent", call="0:①")
    assert not sent["exact"]
    assert "has not ended" in sent["note"]


# A value on the page of a run: what it is and was, who wrote it, who reads it, and that no instance sees another's.

TEXTS = st.text(max_size=300)
JSON = st.recursive(
    st.none() | st.integers() | TEXTS | TEXTS.map(lambda text: text * 20),
    lambda parts: st.lists(parts, max_size=30) | st.dictionaries(TEXTS, parts, max_size=12),
    max_leaves=40,
)


def instances_page_values(*names: str) -> list[dict[str, Any]]:
    return [{"type": "state", "_instance": name, "name": name, "text": f"secret of {name}"} for name in names]


def planned_page_values(backend: Backend, calls: list[dict[str, Any]], *names: str, context: Any = ()) -> Asking:
    run = backend.client.submit([*context, *instances_page_values(*names), {"type": "plan", "calls": calls}])
    backend.wait(run.id)
    return Asking(backend, run)


CALLS = [
    {"_tool": "failFor", "instance": "†state.name", "mark": "b", "_outputPath": "†state.a"},
    echo("†state.text", "†state.log", _outputMethod="push"),
    echo("†state.a", "†state.log", _outputMethod="push"),
    {"_tool": "seeScopes", "_scopes": ["state"]},
]


def test_a_value_has_its_writers_its_readers_and_whoever_sees_it(backend: Backend) -> None:
    page = planned_page_values(backend, [*CALLS, echo("†state.log", "†state.seen")], "a")
    place = page.ask("place", path="state.log", instance="a")
    assert place["value"] == page.run.result().data("a")["state"]["log"]
    assert [(writer["index"], writer["method"]) for writer in place["writers"]] == [(1, "push"), (2, "push")]
    assert [reader["index"] for reader in place["readers"]] == [4]
    assert {(one["index"], one["derived"]) for one in place["seen_by"]} == {(3, False), (4, False)}
    assert [origin["effect"] for origin in place["provenance"]] == ["contributes", "contributes"]
    reads = place["provenance"][0]["reads"]
    assert reads == [{"path": "†state.text", "value": "secret of a", "sources": []}]


def test_a_value_that_is_missing_says_which_call_was_to_write_it_and_why_it_did_not(backend: Backend) -> None:
    page = planned_page_values(backend, CALLS, "a", "b")
    missing = page.ask("place", path="†state.a", instance="b")["missing"]
    assert missing["sentence"] == "Nothing is at †state.a: call 0 (failFor) was to write it, and is failed."
    assert missing["why"][0]["error"] == {"type": "ValueError", "message": "not for b"}
    assert page.ask("place", path="state.textt", instance="b")["missing"]["near"] == "†state.text"
    assert "value" not in page.ask("place", path="state.a")  # it is there in an instance only


def test_at_each_moment_the_log_has_the_values_that_a_reader_saw(backend: Backend) -> None:
    page = planned_page_values(backend, CALLS, "a", "b")
    logged = [*page.run.log(instance="a"), *(entry for entry in page.run.log() if entry.instance is None)]
    messages = {entry.id: entry for entry in logged}
    shared = Fold()
    own = Fold(shared)
    entries = page.all("log", "entries", instance="a")
    for entry in entries:
        one = messages[entry["id"]]
        (shared if one.instance is None else own).append(one.message, one.id)
        assert entry["data"] == own.snapshot()
        assert page.ask("log", instance="a", at=entry["id"])["entries"] == [entry]
        place = page.ask("place", path="state.log", instance="a", at=entry["id"])
        assert place.get("value") == entry["data"].get("state", {}).get("log")
    assert entries[-1]["data"] == page.run.result().data("a")


def test_a_message_that_does_not_fit_leaves_the_value_before_it_and_says_where(backend: Backend) -> None:
    context: list[dict[str, Any]] = [
        {"type": "state", "count": 1},
        {"type": "state", "count": 2, "_path": "†state.count", "_outputMethod": "push"},
    ]
    run = backend.client.submit(context, {"calls": [echo(1, "†state.one")]})
    backend.wait(run.id)
    last = Asking(backend, run).ask("log")["entries"][-1]
    assert last["data"]["state"] == {"count": 1, "one": 1}
    assert [one["place"] for one in last["conflicts"]] == [["state", "count"]]
    assert "cannot push" in last["conflicts"][0]["message"]


def test_what_a_call_was_given_is_made_again_from_the_log(backend: Backend) -> None:
    delegate = {"context": [{"type": "system", "message": "You are brief."}], "schema": {"type": "string"}}
    ask = {"_tool": "ask", "_delegate": "brief", "question": "†data.q", "_scopes": ["state"], "_outputPath": "†state.a"}
    context: list[dict[str, Any]] = [
        {"type": "data", "kind": "data", "data": {"q": "why?", "secret": "not for it"}},
        {"type": "state", "known": "for it"},
    ]
    run = backend.client.submit(context, {"calls": [ask]}, delegates={"brief": delegate})
    backend.wait(run.id)
    sent = Asking(backend, run).ask("sent", call="0")
    assert (sent["parameters"], sent["scopes"], sent["exact"]) == (
        {"question": "why?"},
        {"state": {"known": "for it"}},
        True,
    )
    assert "You are brief." in str(sent["messages"])
    assert "for it" in str(sent["messages"])
    assert "not for it" not in str(sent)


def test_no_answer_about_an_instance_has_anything_of_another(backend: Backend) -> None:
    names = [f"instance-{secrets.token_hex(8)}" for _ in range(3)]
    page = planned_page_values(backend, CALLS, *names)
    for name in names:
        questions: list[tuple[str, dict[str, str]]] = [
            ("instance", {"name": name}),
            ("log", {"instance": name}),
            *(
                ("place", {"path": path, "instance": name})
                for path in ("state.log", "state.a", "state.nothing", "error")
            ),
            *(("sent", {"call": f"{index}:{name}"}) for index in range(4)),
        ]
        for what, query in questions:
            text = json.dumps(page.ask(what, **query))
            assert all(other not in text for other in names if other != name), (what, query)
    for what, query in (("instance", {}), ("log", {}), ("place", {"path": "state.text"}), ("", {}), ("plan", {})):
        text = json.dumps(page.ask(what, **query))
        assert "secret of" not in text
    assert all("secret of" not in json.dumps(page.ask(what)) for what in ("calls/1", "instances"))


def test_a_large_value_is_cut_everywhere_and_its_size_is_said(backend: Backend) -> None:
    large = "x" * 300_000 + "END"
    context = [{"type": "data", "kind": "data", "data": {"large": large}}]
    page = planned_page_values(backend, [echo("†data.large", "†state.copy")], "a", context=context)
    answers = [
        page.ask("instance", name="a"),
        page.ask("place", path="state.copy", instance="a"),
        page.ask("log", instance="a"),
        page.ask("sent", call="0:a"),
    ]
    for one_answer in answers:
        text = json.dumps(one_answer, ensure_ascii=False)
        assert len(text) < 4 * SHOW_BYTES
        assert CUT in text
    cut = page.ask("place", path="state.copy", instance="a")["value"][CUT]
    assert cut["bytes"] == len(large) + 2
    assert cut["tail"].endswith("END")


def test_what_is_small_stays_whole_beside_what_is_cut() -> None:
    value = {"big": {"list": ["y" * 50_000, 1], "name": "Ada"}, "text": "z" * 30_000, "n": 7}
    cut = shown(value)
    assert (cut["n"], cut["big"]["name"], cut["big"]["list"][1]) == (7, "Ada", 1)
    assert cut["text"][CUT]["bytes"] == 30_002
    assert cut["big"]["list"][0][CUT]["bytes"] == 50_002
    assert shown({"a": [1, {"b": None}]}) == {"a": [1, {"b": None}]}


@given(JSON, st.integers(200, 2_000))
def test_law_what_is_shown_is_bounded_and_a_value_that_fits_is_not_changed(value: Any, most: int) -> None:
    found = shown(value, most)
    assert (found == value) if size_of(value) <= most else size_of(found) <= 3 * most + 500


def test_what_the_log_has_no_room_for_is_asked_for_by_its_moment(backend: Backend) -> None:
    calls = [echo("y" * 15_000, f"†state.v{number}") for number in range(20)]
    page = planned_page_values(backend, calls, "a")
    answer = page.ask("log", instance="a")
    assert len(json.dumps(answer)) < 1_000_000
    both = [*page.run.log(instance="a"), *(entry for entry in page.run.log() if entry.instance is None)]
    assert [entry["id"] for entry in answer["entries"]] == sorted({entry.id for entry in both}, key=id_key)
    assert ["data" in entry for entry in answer["entries"]][::21] == [True, False]
    (last,) = page.ask("log", instance="a", at=answer["entries"][-1]["id"])["entries"]
    assert last["data"] == page.ask("instance", name="a")["data"]


def test_a_long_log_has_pages(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    page = planned_page_values(backend, CALLS, "a")
    whole = page.ask("log", instance="a")
    monkeypatch.setattr("acts_celery.worker.limits.MOMENTS_AT_ONCE", 2)
    first = page.ask("log", instance="a")
    assert (len(first["entries"]), first["next"]) == (2, first["entries"][-1]["id"])
    assert page.all("log", "entries", instance="a") == whole["entries"]


def test_no_answer_is_much_above_a_megabyte(backend: Backend) -> None:
    calls = [echo("†data.large", f"†state.{'v' * 100}{number}") for number in range(150)]
    context = [{"type": "data", "kind": "data", "data": {"large": "x" * 6_000}}]
    page = planned_page_values(backend, calls, "a", context=context)
    for what, query in (
        ("instance", {"name": "a"}),
        ("plan", {}),
        ("calls/0", {}),
        ("place", {"path": "state", "instance": "a"}),
        ("log", {"instance": "a"}),
    ):
        answer = page.ask(what, **query)
        assert size_of(answer) < 1_200_000, what
    shown_calls = page.ask("instance", name="a")
    assert len(shown_calls["calls"]) + shown_calls["more"] == 150
    assert shown_calls["more"] > 0


# The drawing of a plan: layers, where boxes stand, folding, and that nothing of the data is ever markup.

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "]]></text></svg><script>",
    "</script><!--",
    "&lt;b&gt;&#x41;",
    "\x00\x01\x1b[31m\x7f\x9b",
    "\u202egnp.exe\u2066\u200b\ufeff",
    "\u2028\u2029\r\n",
    "' onmouseover='alert(1)",
    "\ud800 alone",
    "javascript:alert(1)",
)
GRAPHS = st.integers(1, 30).flatmap(
    lambda number: st.tuples(
        st.just(number), st.sets(st.tuples(st.integers(0, number - 1), st.integers(0, number - 1)), max_size=60)
    )
)


def node(index: int, tool: str = "look", kind: str = "activity", **counts: int) -> Node:
    return Node(index, tool, kind, counts, sum(counts.values()), ())


def edge(writer: int, reader: int, path: str = "†state.a", kind: str = "reads") -> dict[str, Any]:
    return {"from": writer, "to": reader, "path": path, "kind": kind}


@given(GRAPHS)
def test_law_each_call_is_in_one_layer_and_below_all_that_it_waits_for(graph: tuple[int, set[tuple[int, int]]]) -> None:
    number, pairs = graph
    forward = {pair for pair in pairs if pair[0] < pair[1]}
    layers = layers_of(range(number), forward)
    assert sorted(index for layer in layers for index in layer) == list(range(number))
    level = {index: at for at, layer in enumerate(layers) for index in layer}
    assert all(level[writer] < level[reader] for writer, reader in forward)
    for index in range(number):  # and no deeper than it must be
        before = [level[writer] for writer, reader in forward if reader == index]
        assert level[index] == max(before, default=-1) + 1


@given(GRAPHS)
def test_law_a_circle_harms_nothing(graph: tuple[int, set[tuple[int, int]]]) -> None:
    number, pairs = graph
    layers = layers_of(range(number), pairs)
    assert sorted(index for layer in layers for index in layer) == list(range(number))
    ElementTree.fromstring(
        draw(layers, {index: node(index) for index in range(number)}, [edge(*pair) for pair in pairs])
    )


@given(GRAPHS)
def test_law_boxes_of_one_row_do_not_overlap(graph: tuple[int, set[tuple[int, int]]]) -> None:
    number, pairs = graph
    forward = {pair for pair in pairs if pair[0] < pair[1]}
    widths = {index: 50.0 + index for index in range(number)}
    rows, placed = place(layers_of(range(number), forward), forward, widths)
    for row in rows:
        for one, other in pairwise(row):
            needed = sum(widths[member] / 2 for member in (one, other) if isinstance(member, int))
            assert placed.across[other] - placed.across[one] >= needed
    assert all(0 <= x <= placed.width for x in placed.across.values())


def test_arrows_that_need_not_cross_do_not() -> None:
    pairs = {(0, 5), (1, 4), (2, 3)}
    rows, _ = place([[0, 1, 2], [3, 4, 5]], pairs, dict.fromkeys(range(6), 100.0))
    assert [{0: 5, 1: 4, 2: 3}[member] for member in rows[0] if isinstance(member, int)] == rows[1]


def test_an_arrow_past_a_layer_goes_around_its_boxes() -> None:
    pairs = {(0, 1), (1, 2), (0, 2)}
    rows, placed = place([[0], [1], [2]], pairs, dict.fromkeys(range(3), 100.0))
    assert placed.ways[0, 2] == (0, (0, 1), 2)
    assert abs(placed.across[0, 1] - placed.across[1]) >= 50
    assert (0, 1) in rows[1]


def test_counts_stand_in_their_call_what_failed_first() -> None:
    drawn = ElementTree.fromstring(draw([[0]], {0: node(0, done=99_980, failed=20, held=3)}, []))
    call = drawn.find(f"{SVG}g[@data-call='0']")
    assert call is not None
    assert call.get("aria-label") == "call 0, look, activity, 100,003 instances: 20 failed, 3 held, 99,980 done"
    counts = [(each.get("data-status"), each.findtext(f"{SVG}text")) for each in call.findall(f"{SVG}g")]
    assert counts == [("failed", "20 failed"), ("held", "3 held"), ("done", "99,980 done")]


def test_branches_and_alternatives_are_dashed_and_a_place_that_many_read_is_written_once() -> None:
    edges = [edge(0, 1), edge(0, 2), edge(0, 3, kind="branch"), edge(0, 4, "†state.b", "alternative")]
    drawn = ElementTree.fromstring(draw([[0], [1, 2, 3, 4]], {index: node(index) for index in range(5)}, edges))
    arrows = [each for each in drawn.findall(f"{SVG}g") if "edge" in each.get("class", "")]
    paths = [each.find(f"{SVG}path") for each in arrows]
    assert ["stroke-dasharray" in path.attrib for path in paths if path is not None] == [False, False, True, True]
    assert [each.text for each in drawn.iter(f"{SVG}text") if each.get("class") == "label"] == ["†state.a", "†state.b"]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_in_a_name_or_a_place_is_markup_and_nothing_is_hidden(text: str) -> None:
    svg = draw([[0], [1]], {0: node(0, text, done=1), 1: node(1, "x")}, [edge(0, 1, text)])
    drawn = ElementTree.fromstring(svg)
    known = {"svg", "g", "rect", "path", "text", "title", "defs", "marker"}
    assert {each.tag.removeprefix(SVG) for each in drawn.iter()} <= known
    assert not any(name.startswith("on") or name in ("style", "href") for each in drawn.iter() for name in each.attrib)
    assert re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]", svg) is None
    svg.encode()


def test_200_calls_are_all_drawn_and_3_000_are_folded_with_a_sentence_in_little_time() -> None:
    layers = [list(range(start, start + 20)) for start in range(0, 200, 20)]
    edges = [edge(index, index + 20) for index in range(180)]
    drawn = ElementTree.fromstring(draw(layers, {index: node(index, done=1) for index in range(200)}, edges))
    assert len([each for each in drawn.findall(f"{SVG}g") if each.get("data-call")]) == 200
    layers = [list(range(start, start + 100)) for start in range(0, 3_000, 100)]
    edges = [edge(index, index + 100) for index in range(2_900)]
    nodes = {index: node(index, f"tool{index % 4}", done=1) for index in range(3_000)}
    begun = time.process_time()
    svg = draw(layers, nodes, edges)
    assert time.process_time() - begun < 5
    assert "3,000 calls are drawn as 120 boxes" in svg
    boxes = [each for each in ElementTree.fromstring(svg).findall(f"{SVG}g") if each.get("data-call")]
    assert len(boxes) == 120 < MOST_DRAWN
    assert [each.text for each in boxes[0].iter(f"{SVG}text")] == ["tool0", "25 calls", "25 done"]
    different = {index: node(index, f"tool{index}", done=1) for index in range(3_000)}
    assert "3,000 calls, 400 of 3,000 kinds are drawn" in draw(layers, different, edges)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no page 17 of order-4711", "no page 3 of order-12"),
        ("timed out after 30 s", "timed out after 31.5 s"),
        ("no user 550e8400-e29b-41d4-a716-446655440000", "no user 123e4567-e89b-12d3-a456-426614174000"),
        ("https://shop.example/items/7 answers 404", "https://shop.example/items/8 answers 404"),
        ("a is missing", "b is missing"),
    ],
)
def test_errors_that_differ_in_numbers_ids_and_instances_are_one_group(one: str, other: str) -> None:
    assert alike(one, "a") == alike(other, "b")


def test_errors_that_differ_in_words_are_not() -> None:
    assert alike("no such page", "a") != alike("no such order", "a")
    assert alike("shop 12 answers 404", "a") != alike("shop 13 answers 503", "a")
    # The name of an instance counts as a word only.
    assert [alike(text, "a") for text in ("abandoned", "aa, baa", "a is a")] == ["abandoned", "aa, baa", "# is #"]


# `acts show RUN --html FILE`: one file, bounded, written whole, in which nothing of the data is markup.


class Parts(HTMLParser):
    """The elements of a page, and the texts of its scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.blocks: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.blocks.append((tag, dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] in ("script", "style") and self.blocks[-1][2] == "":
            self.blocks[-1] = (*self.blocks[-1][:2], data)

    @property
    def data(self) -> dict[str, Any]:
        """What the page shows."""
        found: dict[str, Any] = json.loads(
            next(text for _, attributes, text in self.blocks if attributes.get("id") == "acts-data")
        )
        return found

    @property
    def answers(self) -> dict[str, Any]:
        """Its answers, by path and query."""
        return {f"{path} {json.dumps(query, sort_keys=True)}": answer for path, query, answer in self.data["answers"]}

    @property
    def policy(self) -> str:
        """What it may load and run."""
        metas = [attributes for tag, attributes in self.elements if tag == "meta"]
        found = next(each["content"] for each in metas if each.get("http-equiv") == "Content-Security-Policy")
        assert found is not None
        return found


def written(backend: Backend, run: Run) -> str:
    return document(Page(backend.redis, backend.settings, reading_seconds=None), run.id)


def command(backend: Backend, *arguments: str) -> Finished:
    return acts(*arguments, env=backend.settings.to_environment())


def failed(backend: Backend, number: int = 5, **parts: Any) -> Run:
    context = [{"type": "state", "_instance": f"i{at}", "name": f"i{at}"} for at in range(number)]
    calls = [{"_tool": "failFor", "instance": "†state.name", "mark": "i3", "_outputPath": "†state.a"}]
    run = backend.client.submit([*context, {"type": "plan", "calls": calls}], **parts)
    backend.wait(run.id)
    return run


def test_the_file_holds_the_answers_of_the_page(backend: Backend) -> None:
    run = failed(backend)
    parts, asking = Parts(written(backend, run)), Asking(backend, run)
    assert parts.data["run"] == run.id
    assert parts.data["sentences"] == []
    answers = parts.answers
    for what, query in (
        ("", {}),
        ("plan", {}),
        ("calls/0", {}),
        ("calls/0", {"status": "failed"}),
        ("instances", {"status": "failed"}),
        ("instance", {"name": "i3"}),
        ("instance", {}),
        ("log", {"instance": "i3"}),
        ("held", {}),
        ("questions", {}),
        ("rules", {}),
    ):
        key = f"runs/{run.id}/{what}".rstrip("/") + f" {json.dumps(query, sort_keys=True)}"
        now = asking.ask(what, **query)
        assert {**_lasting(answers[key])} == {**_lasting(now)} if isinstance(now, dict) else answers[key] == now


def _lasting(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in ("expires", "duration_seconds")}


def test_the_file_runs_and_loads_nothing_but_what_stands_in_it(backend: Backend) -> None:
    parts = Parts(written(backend, failed(backend)))
    policy = dict(each.strip().split(" ", 1) for each in parts.policy.split(";"))
    assert policy["default-src"] == "'none'"
    for tag in ("script", "style"):
        own = [text for name, attributes, text in parts.blocks if name == tag and attributes.get("type") is None]
        digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in own]
        assert policy[f"{tag}-src"].split() == [f"'sha256-{digest}'" for digest in digests]
        assert own
    assert "unsafe" not in parts.policy
    for tag, attributes in parts.elements:
        assert "src" not in attributes
        assert (attributes.get("href") or "#")[0] == "#" or attributes["href"] == "data:,"
        assert "style" not in attributes
        assert tag not in ("iframe", "object", "embed", "base")


def test_nothing_in_any_text_of_a_run_is_markup(backend: Backend) -> None:
    plain = Parts(written(backend, failed(backend)))
    texts = [text for text in HOSTILE if "\ud800" not in text]
    names = [text for text in texts if not re.search("[\x00-\x1f\x7f-\x9f]", text)]  # those of instances hold none
    context: list[dict[str, Any]] = [
        {"type": "state", "_instance": name, "name": name, "texts": {text: text for text in texts}} for name in names
    ]
    calls: list[dict[str, Any]] = [
        {"_tool": "failFor", "instance": "†state.name", "mark": name, "_outputPath": f"†state.v{at}"}
        for at, name in enumerate(names)
    ]
    calls += [
        {"_tool": "echo", "value": {text: [text]}, "_outputPath": "†state.e", "_reasoningForCall": text}
        for text in texts
    ]
    run = backend.client.submit([*context, {"type": "plan", "calls": calls}], name="</script><b>x", tags=["<i>", "-->"])
    assert backend.wait(run.id).status == "failed"
    html = written(backend, run)
    parts = Parts(html)
    assert [tag for tag, _ in parts.elements] == [tag for tag, _ in plain.elements]
    assert [text for _, attributes, text in parts.blocks if "id" not in attributes] == [
        text for _, attributes, text in plain.blocks if "id" not in attributes
    ]
    data = html[html.index('id="acts-data">') + len('id="acts-data">') :]
    data = data[: data.index("</script>")]
    assert re.search("[<>&\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]", data) is None
    answers = parts.answers
    for name in names:
        found = answers[f"runs/{run.id}/instance {json.dumps({'name': name})}"]
        assert found["data"]["state"]["texts"] == {text: text for text in texts}  # and it is all there


def test_the_file_is_bounded_and_says_what_it_leaves_out(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acts_celery.worker.limits.SERVER_MOST_BYTES", 700_000)
    context = [{"type": "state", "_instance": f"i{at:03}", "text": "x" * 1_500} for at in range(230)]
    calls = [{"_tool": "echo", "value": "†state.text", "_outputPath": f"†state.c{at}"} for at in range(2)]
    run = backend.client.submit([*context, {"type": "plan", "calls": calls}])
    backend.wait(run.id)
    html = written(backend, run)
    assert 300_000 < len(html.encode()) < 700_000
    said = " ".join(Parts(html).data["sentences"])
    assert re.search(r"This file holds \d+ of 230 instances", said)
    assert "did not fit" in said
    assert f"runs/{run.id}/plan {{}}" in Parts(html).answers
    monkeypatch.undo()
    whole = written(backend, run)
    assert len(whole.encode()) < SERVER_MOST_BYTES
    assert "This file holds 200 of 230 instances" in " ".join(Parts(whole).data["sentences"])


def test_the_command_writes_the_file_whole_or_not_at_all(backend: Backend, tmp_path: Path) -> None:
    run, file = failed(backend), tmp_path / "run.html"
    done = command(backend, "show", run.id, "--html", str(file))
    assert (done.code, done.stdout.strip()) == (0, f"run {run.id} is in {file}")
    assert Parts(file.read_text()).data["run"] == run.id
    assert [path.name for path in tmp_path.iterdir()] == ["run.html"]
    printed = command(backend, "show", run.id, "--html", "-")
    assert Parts(printed.stdout).data["run"] == run.id
    told = command(backend, "show", run.id, "--html", str(file), "--json")
    assert json.loads(told.stdout) == {"run": run.id, "file": str(file)}
    before = file.read_text()
    for arguments, code in (
        (("show", run.id, "--html", str(tmp_path)), 2),
        (("show", run.id, "--html", str(tmp_path / "no" / "such" / "folder.html")), 3),
        (("show", "no-such-run", "--html", str(file)), 4),
        (("show", run.id, "--html", str(file), "--instance", "i3"), 2),
        (("show", run.id, "--html", str(file), "--mermaid"), 2),
        (("show", run.id, "--html", "-", "--json"), 2),
    ):
        assert command(backend, *arguments).code == code, arguments
    assert file.read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["run.html"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_what_was_in_the_file_stays_where_the_new_one_cannot_be_finished(tmp_path: Path, error: BaseException) -> None:
    file = tmp_path / "run.html"
    file.write_text("the one before")

    def parts() -> Iterator[str]:
        yield "<!doctype html>"
        raise error

    with pytest.raises((KeyboardInterrupt, Failed)):
        write_whole(file, parts())
    assert file.read_text() == "the one before"
    assert list(tmp_path.iterdir()) == [file]
