"""What a page shows of runs of every kind agrees with their results, on real workers."""

from __future__ import annotations

import secrets
import time
import tracemalloc
from typing import Any

import pytest

from acts_celery import InstanceNotFound, NoLoop, NoSuchTick, OtherFormat, RunNotFound
from acts_celery.worker.errors import BadQuery, NoSuchAnswer, NoSuchCall
from acts_celery.worker.store.keys import Keys
from acts_celery.worker.ui import Page

from .backend import Backend, Meeting
from .loops import Asked, answer
from .pages import Asking, agree


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
    assert "undone" not in str(page.ask("log", instance="b"))


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
        pass
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
