"""Runs in lists: the newest, those of an owner, dead letters, who has done what."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from acts_celery import AmbiguousRun, AsyncClient, Client, DeadLetter, RunNotFound, RunOver
from acts_celery.broker_config import EmbeddedServer
from acts_celery.broker_config.tokens import Identity
from acts_celery.protocol import Rejected
from acts_celery.protocol.messages import Message
from acts_celery.worker.broker.attempts import CallId
from acts_celery.worker.broker.messages import TaskMessage, pack
from acts_celery.worker.client.deployments import RunFilter, RunIndex
from acts_celery.worker.store.held_calls import Actor, AuditRecord
from acts_celery.worker.store.keys import Keys, active_runs, ended_runs, owned_runs
from acts_celery.worker.store.run_list import RunList, owner_of
from acts_celery.worker.store.run_writer import expire_runs
from acts_celery.worker.store.scripts import date_now
from acts_celery.worker.ui import Page

from .backend import Backend, Meeting, settings_for
from .test_control_cli import command, gate
from .test_r14_people import wait_held

__all__ = ["gate"]

# Which runs there are, how they are named and found, waited for and forgotten (`acts runs|wait|delete`).

ECHO: dict[str, Any] = {"solution": {"calls": [{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}]}}
_names = count()


@pytest.fixture
def name() -> str:
    return f"overview{next(_names)}"


def submitted(backend: Backend, *options: str, value: Any = ECHO) -> str:
    told = command(backend, "submit", "-", "--json", *options, stdin=value)
    assert told.code == 0, told
    return str(told.json["run"])


def test_runs_lists_the_newest_first_with_name_tags_status_and_times(backend: Backend, name: str) -> None:
    first = submitted(backend, "--name", name, "--tag", "nightly", "--tag", f"{name}-tag")
    second = submitted(backend, "--name", name)
    for run in (first, second):
        backend.wait(run)
    listed = command(backend, "runs", "--name", name, "--json").json_lines
    assert [one["run"] for one in listed] == [second, first]
    assert (listed[1]["name"], listed[1]["tags"]) == (name, ["nightly", f"{name}-tag"])
    assert (listed[1]["status"], listed[1]["calls"]) == ("completed", {"done": 1})
    assert 0 <= listed[1]["duration_seconds"] <= listed[1]["age_seconds"]
    assert [one["run"] for one in command(backend, "runs", "--name", f"{name}-tag", "--json").json_lines] == [first]
    assert len(command(backend, "runs", "--json", "--limit", "1").json_lines) == 1
    line = command(backend, "runs", "--name", name, "--status", "completed").stdout.splitlines()[1]
    assert line.startswith(f"{first}  {name} #nightly #{name}-tag  completed  1 call: 1 done  ")
    assert command(backend, "runs", "--name", name, "--status", "failed").stdout == "no runs\n"


def test_runs_are_found_by_several_tags_at_once(backend: Backend, name: str) -> None:
    customer, region = f"customer={name}", "region=eu"
    one = submitted(backend, "--tag", customer, "--tag", region)
    other = submitted(backend, "--tag", customer, "--tag", "region=us", "--name", name)
    for run in (one, other):
        backend.wait(run)
    assert [run.run for run in backend.client.runs(tags=[customer])] == [other, one]
    assert [run.run for run in backend.client.runs(tags=[region, customer])] == [one]
    assert [run.run for run in backend.client.runs(tags=[customer], name=name)] == [other]
    assert [*backend.client.runs(tags=[customer, region], status="failed")] == []
    listed = command(backend, "runs", "--tag", customer, "--tag", region, "--json").json_lines
    assert [run["run"] for run in listed] == [one]
    page = Page(backend.redis, backend.settings)
    assert [run["run"] for run in page.answer("runs", {"search": f"{customer} EU"})["runs"]] == [one]
    backend.client.run(one).delete()
    assert [run.run for run in backend.client.runs(tags=[customer])] == [other]


def test_a_run_is_found_by_its_name_the_beginning_of_its_id_and_as_the_latest(backend: Backend, name: str) -> None:
    run = submitted(backend, "--name", name)
    backend.wait(run)
    for text in (run, run[:-2], name, "latest"):
        assert command(backend, "status", text, "--json").json["run"] == run
    with pytest.raises(RunNotFound, match=f"no run {name}x, did you mean '{name}'"):
        backend.client.find(f"{name}x")
    other = submitted(backend, "--id", f"{name}.a"), submitted(backend, "--id", f"{name}.b")
    with pytest.raises(AmbiguousRun, match="2 runs begin with"):
        backend.client.find(f"{name}.")
    assert backend.client.find(other[0]).id == other[0]
    told = command(backend, "status", f"{name}.")
    assert (told.code, told.error_lines[0].startswith("acts: 2 runs begin with")) == (4, True)


def test_the_latest_of_no_runs_is_none_yet(backend: Backend, name: str) -> None:
    with (
        Client(backend.settings.model_copy(update={"key_prefix": name})) as client,
        pytest.raises(RunNotFound, match="no run latest: there is none yet"),
    ):
        client.find("latest")


def test_an_address_that_would_not_count_is_refused(backend: Backend) -> None:
    url: Any = backend.settings.require_redis()
    for positional, named in ((url, {}), (backend.settings, {"broker": url})):
        with pytest.raises(TypeError, match=r"Client\(broker=URL, redis=URL\)"):
            Client(positional, **named)


def test_the_same_id_twice_is_one_run_and_another_document_is_refused(backend: Backend, name: str) -> None:
    note = {"solution": {"calls": [{"_tool": "add", "a": 1, "_outputPath": "†state.a"}]}}
    assert submitted(backend, "--id", name, value=note) == name
    assert submitted(backend, "--id", name, value=note) == name
    backend.wait(name)
    assert submitted(backend, "--id", name, value=note) == name
    assert len(list(backend.client.run(name).log())) == 1
    refused = command(backend, "submit", "-", "--json", "--id", name, stdin=ECHO)
    assert (refused.code, refused.json["status"]) == (2, "rejected")
    assert "belongs to another submission" in refused.error_lines[0]
    with pytest.raises(Rejected, match="means the newest run"):
        backend.client.submit([], {"calls": []}, id="latest")
    in_other_order = {"calls": [dict(reversed(call.items())) for call in note["solution"]["calls"]]}
    assert backend.client.submit([], in_other_order, id=f"{name}-order").id == f"{name}-order"
    assert backend.client.submit([], note["solution"], id=f"{name}-order").id == f"{name}-order"
    assert backend.client.submit([], note["solution"], id=f"{name}-2", name="n", tags=["t"]).id == f"{name}-2"


def test_a_fork_of_a_run_that_has_ended_has_ended_too(backend: Backend) -> None:
    run = backend.client.submit_document(ECHO)
    backend.wait(run.id)
    fork = run.fork()
    (summary,) = [one for one in backend.client.runs() if one.run == fork.id]
    assert (summary.status, summary.finished is not None) == ("completed", True)
    assert summary.duration_seconds == 0


def test_wait_prints_the_result_and_tells_by_its_code(backend: Backend, meeting: Meeting, name: str) -> None:
    waits = {"solution": {"calls": [{"_tool": "waitAtGate", "gate": name, "value": 1, "_outputPath": "†state.a"}]}}
    run = submitted(backend, value=waits)
    late = command(backend, "wait", run, "--timeout", "0.2")
    assert (late.code, f"run {run} is not over in time" in late.stderr) == (3, True)
    meeting.open_gate(name)
    told = command(backend, "wait", run, "--json")
    assert (told.code, told.json["global"]["state"]) == (0, {"a": 1})
    failed = submitted(backend, value={"solution": {"calls": [{"_tool": "explode", "_outputPath": "†state.a"}]}})
    assert command(backend, "wait", failed, "--quiet").code == 1


def test_delete_forgets_a_run_that_has_ended_and_no_other(backend: Backend, meeting: Meeting, name: str) -> None:
    waits = {"solution": {"calls": [{"_tool": "waitAtGate", "gate": name, "value": 1, "_outputPath": "†state.a"}]}}
    run = submitted(backend, value=waits)
    refused = command(backend, "delete", run)
    assert (refused.code, "cancel it before it is deleted" in refused.stderr) == (4, True)
    with pytest.raises(RunOver):
        backend.client.run(run).delete()
    meeting.open_gate(name)
    backend.wait(run)
    told = command(backend, "delete", run, "--json").json
    assert (told["run"], told["deleted"], told["bytes"] > 0) == (run, True, True)
    assert backend.keys(run) == set()
    assert command(backend, "status", run).code == 4


def test_messages_of_other_files_join_the_context(backend: Backend, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"type": "state", "_instance": "①", "n": 1}\n\n{"type": "state", "_instance": "②", "n": 2}\n')
    plan = {"type": "plan", "calls": [{"_tool": "add", "a": "†state.n", "_outputPath": "†state.m"}]}
    told = command(backend, "run", "-", "--json", "--context", str(rows), stdin={"context": [plan]})
    assert told.code == 0, told
    assert {name: data["state"]["m"] for name, data in told.json["instances"].items()} == {"①": 2, "②": 3}
    rows.write_text('{"type": "state"}\n[]\n')
    refused = command(backend, "check", "-", "--context", str(rows), stdin={"context": [plan]})
    assert (refused.code, f"{rows}:2: a line must be one message" in refused.error_lines[0]) == (2, True)
    rows.write_text("{\n")
    assert f"{rows}:1: not JSON" in command(backend, "submit", "-", "--context", str(rows), stdin=ECHO).stderr


def test_ended_runs_are_listed_as_long_as_they_are_kept() -> None:
    with EmbeddedServer() as server:
        settings = settings_for(server)
        with Client(settings) as client:
            redis, prefix = client._redis, settings.key_prefix
            ids = [client.submit([], {"calls": []}).id for _ in range(3)]
            for run in ids:
                expire_runs(redis, prefix, [run], 1_000)
            assert redis.zcard(active_runs(prefix)) == 0
            assert {summary.run for summary in client.runs()} == set(ids)
            redis.unlink(*Keys(prefix, ids[0]).all)  # its time is over
            assert {summary.run for summary in client.runs()} == {ids[2], ids[1]}
            RunList(redis, prefix).note_ended({ids[2]: 1})
            assert redis.zcard(ended_runs(prefix)) == 2


def test_a_run_is_found_at_every_moment_of_its_end() -> None:
    looked = list[str]()

    class Watched(Redis):
        def execute_command(self, *args: Any, **options: Any) -> Any:
            result: Any = super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
            assert client.find("ending").id == run.id, args
            looked.append(str(args[0]))
            return result

    with EmbeddedServer() as server, Client(settings_for(server)) as client:
        run = client.submit([], {"calls": []}, name="ending")
        keys = Keys(client.settings.key_prefix, run.id)
        expire_runs(Watched.from_url(client.settings.require_redis()), keys.prefix, [run.id], 1_000)
        assert (client._redis.zscore(active_runs(keys.prefix), run.id), looked.count("ZREM")) == (None, 2)


def test_runs_that_end_while_all_are_listed_hide_no_other() -> None:
    with EmbeddedServer() as server, Client(settings_for(server)) as client:
        redis, prefix = client._redis, client.settings.key_prefix
        ids = [f"r{number:04}" for number in range(1_000)]
        with redis.pipeline() as pipeline:
            for number, run in enumerate(ids):
                pipeline.hset(Keys(prefix, run).state, "status", "running")
                pipeline.zadd(active_runs(prefix), {run: number // 300})  # more at one time than a page has
            pipeline.execute()
        found = list[str]()
        for run, _ in RunList(redis, prefix).newest():
            found.append(run)
            redis.zrem(active_runs(prefix), run)
        assert sorted(found) == ids


def test_an_asyncio_program_names_finds_and_forgets_runs_too(backend: Backend, name: str) -> None:
    async def act() -> None:
        async with AsyncClient(backend.settings) as client:
            run = await client.submit([], {"calls": []}, id=name, name=f"{name} of asyncio", tags=["t"])
            found = await client.find(f"{name} of asyncio")
            assert (run.id, found.id) == (name, name)
            await found.delete()
            with pytest.raises(RunNotFound):
                await client.run(name)

    asyncio.run(act())


# Runs belong to who has submitted, forked or imported them with a token; an index of each owner finds them.

ENDED: dict[str, Any] = {"calls": [], "output": "tea"}


def acting(own: Backend, name: str) -> Client:
    """What a server does for somebody who has shown a token."""
    return Client(own.settings.acting_for(name, Identity(name)))


def listed(own: Backend, owner: str) -> list[str]:
    """The runs of an owner, the newest first."""
    return [run.run for run in RunIndex(own.redis, own.settings.key_prefix, owner=owner).runs()]


def test_a_run_a_fork_and_an_import_belong_to_who_has_shown_a_token(own: Backend) -> None:
    with acting(own, "fay") as fay, acting(own, "gus") as gus:
        run = fay.submit([], ENDED)
        fork = gus.run(run.id).fork(paused=True)
        lines = list(run.export())
        assert listed(own, "fay") == [run.id]
        assert listed(own, "gus") == [fork.id]
        run.delete()
        assert gus.import_run(lines).id == run.id
        assert (listed(own, "fay"), set(listed(own, "gus"))) == ([], {run.id, fork.id})
        gus.run(run.id).delete()
    assert own.client.import_run(lines).id == run.id
    assert own.client.run(run.id).fork(paused=True).id not in listed(own, "gus")
    assert owner_of(own.redis, own.settings.key_prefix, run.id) is None


def test_an_owner_finds_nothing_of_others_whatever_stands_in_the_index(own: Backend) -> None:
    with acting(own, "hal") as hal, acting(own, "ida") as ida:
        his, hers = (who.submit([], ENDED, name="one", tags=["a=1"]) for who in (hal, ida))
    own.redis.zadd(owned_runs(own.settings.key_prefix, "hal"), {hers.id: 2**52, "never-was": 2**52})
    found = RunIndex(own.redis, own.settings.key_prefix, owner="hal")
    assert [run.run for run in found.runs()] == [his.id]
    assert [run.run for run in found.runs(RunFilter(name="one", tags=frozenset({"a=1"})))] == [his.id]
    assert found.find("one") == found.find("latest") == his.id
    with pytest.raises(RunNotFound):
        found.find(hers.id)


def test_the_index_forgets_runs_that_are_gone_and_keeps_one_that_is_written(own: Backend) -> None:
    index = owned_runs(own.settings.key_prefix, "jon")
    with acting(own, "jon") as jon:
        gone, kept = jon.submit([], ENDED), jon.submit([], ENDED)
        gone.delete()
        own.redis.zadd(index, {"begun": 0})
        own.redis.zadd(f"{own.settings.key_prefix}:runs", {"begun": 0})
        last = jon.submit([], ENDED)
    assert set(own.redis.zrange(index, 0, -1)) == {b"begun", kept.id.encode(), last.id.encode()}


# The audit trail: who did what to a run, in its log, in the lines of a logger, and on the command line.

ECHO_AUDIT = {"_tool": "echo", "value": 1, "_outputPath": "†state.a"}
INPUT: Message = {"type": "input", "input": {"name": "Ann"}}


@pytest.fixture
def alice(backend: Backend) -> Client:
    """A client of somebody who has a name."""
    return Client(backend.settings.model_copy(update={"actor": "alice"}))


def deeds(client: Client, run: str) -> list[tuple[str, str]]:
    return [(entry.audit.did, entry.audit.actor.name) for entry in client.run(run).log(audit=True) if entry.audit]


def test_whatever_steers_a_run_leaves_who_did_it(
    alice: Client, meeting: Meeting, gate: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "acts.audit")
    calls = [{"_tool": "waitAtGate", "gate": gate, "_outputPath": "†state.g"}, {**ECHO_AUDIT, "value": "†state.g"}]
    run = alice.submit([], {"calls": calls})
    meeting.take(f"at:{gate}")
    run.pause()
    run.send(INPUT)
    run.amend([ECHO_AUDIT])
    fork = run.fork(paused=True)
    run.resume()
    run.amend([{**ECHO_AUDIT, "_outputPath": "†state.b"}], add=True)
    run.cancel()
    run.cancel()
    done = ["submitted", "paused", "sent", "amended", "resumed", "added calls", "cancelled"]
    assert deeds(alice, run.id) == [(did, "alice") for did in done]
    assert deeds(alice, fork.id) == [(did, "alice") for did in (*done[:4], "forked")]
    fork.cancel()
    told = [json.loads(record.message) for record in caplog.records if record.name == "acts.audit"]
    assert [line["did"] for line in told if line["run"] == run.id] == done
    assert {(line["by"], line["from"]) for line in told} == {("alice", socket.gethostname())}


def test_who_decides_and_retries_is_noted(alice: Client) -> None:
    held = alice.submit_document(
        {
            "context": [],
            "solution": {"calls": [ECHO_AUDIT, {"_tool": "explode", "_outputPath": "†state.b"}]},
            "config": {"approve": ["echo"]},
        }
    )
    wait_held(held)
    held.reject(0, "no")
    held.wait(timeout_seconds=60)
    held.retry(call=1)
    held.wait(timeout_seconds=60)
    assert deeds(alice, held.id) == [(did, "alice") for did in ("submitted", "rejected", "retried")]


def test_who_gives_an_outcome_by_hand_is_noted(alice: Client) -> None:
    run = alice.submit([], {"calls": [{"_tool": "explode", "_outputPath": "†state.b"}]})
    run.wait(timeout_seconds=60)
    run.retry(skip=True, value=7)
    assert deeds(alice, run.id)[:2] == [("submitted", "alice"), ("given by hand", "alice")]
    assert [entry.audit.about for entry in run.log(audit=True) if entry.audit][1] == {"calls": ["0"]}


def test_who_deletes_and_who_imports_a_run_is_noted(
    alice: Client, backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "acts.audit")
    run = alice.submit([], {"calls": [ECHO_AUDIT]})
    run.wait(timeout_seconds=60)
    lines = list(run.export())
    run.delete()
    assert backend.keys(run.id) == set(), "the line of the logger is all that is left"
    bob = Client(backend.settings.model_copy(update={"actor": "bob"}))
    with pytest.raises(Rejected):
        bob.import_run([*lines[:1], "no entry"])
    assert bob.import_run(lines).id == run.id
    assert deeds(bob, run.id) == [("submitted", "alice"), ("imported", "bob")]
    assert bob.run(run.id).result().data() == {"state": {"a": 1}}
    told = [json.loads(record.message) for record in caplog.records if record.name == "acts.audit"]
    ours = [(line["did"], line["by"], line["from"]) for line in told if line["run"] == run.id]
    host = socket.gethostname()
    assert ours == [("submitted", "alice", host), ("deleted", "alice", host), ("imported", "bob", host)]


def test_the_log_without_it_is_the_messages_and_nothing_else(alice: Client) -> None:
    run = alice.submit([{"type": "text", "text": "hello"}], {"calls": [ECHO_AUDIT]})
    run.wait(timeout_seconds=60)
    assert [entry.message["type"] for entry in run.log()] == ["text", "data"]
    assert [entry.message["type"] for entry in run.log(audit=True) if entry.message] == ["text", "data"]


def test_who_resends_and_drops_dead_letters_is_noted_in_their_runs(alice: Client) -> None:
    run = alice.submit([], {"calls": [ECHO_AUDIT]})
    run.wait(timeout_seconds=60)
    letters = alice.dead_letters()
    task = TaskMessage("acts.execute_background", "nobody-takes-from-here", pack({"attempt": {}}), "-", True)
    for act in (letters.resend, letters.drop):
        letters.add(DeadLetter(CallId(run.id, None, 0), task, "ValueError", "no", 1, date_now()))
        act([f"{run.id}:0"])
    assert deeds(alice, run.id) == [(did, "alice") for did in ("submitted", "resent", "dropped")]
    assert run.result().status == "completed"


def test_a_dead_letter_of_a_run_that_is_forgotten_brings_no_log_back(alice: Client, backend: Backend) -> None:
    letters = alice.dead_letters()
    task = TaskMessage("acts.execute_background", "nobody-takes-from-here", pack({"attempt": {}}), "-", True)
    letters.add(DeadLetter(CallId("forgotten", None, 0), task, "ValueError", "no", 1, date_now()))
    letters.drop(["forgotten:0"])
    assert backend.keys("forgotten") == set()


def test_the_command_line_shows_it(backend: Backend) -> None:
    run = backend.client.submit([], {"calls": [ECHO_AUDIT]})
    backend.wait(run.id)
    (line,) = command(backend, "log", run.id, "--audit", "--json").json_lines
    actor = Actor.of(backend.settings)
    assert line["audit"] == {
        "did": "submitted",
        "by": actor.name,
        "from": actor.host,
        "authenticated": False,
        "about": {},
    }
    assert f"submitted by {actor.name} from {actor.host}" in command(backend, "log", run.id, "--audit").stdout
    assert all("message" in line for line in command(backend, "log", run.id, "--json").json_lines)


@pytest.mark.parametrize("is_authenticated", [False, True])
def test_what_a_deed_is_about_comes_back(is_authenticated: bool) -> None:
    deed = AuditRecord("approved", Actor("bob", "here", is_authenticated), {"call": 3})
    assert AuditRecord.unpack(deed.pack()) == deed


def test_who_has_shown_a_token_is_authenticated_and_nobody_else_whatever_he_says(backend: Backend) -> None:
    tom = Client(backend.settings.acting_for("tom", Identity("tom")))
    run = tom.submit_document({"solution": {"calls": [ECHO_AUDIT, ECHO_AUDIT]}, "config": {"approve": ["echo"]}})
    wait_held(run)
    run.approve(0)
    run.approve(1, by="ann")
    run.wait(timeout_seconds=60)
    Client(backend.settings.model_copy(update={"actor": "tom"})).run(run.id).fork(paused=True)
    records = [entry.audit for entry in tom.run(run.id).log(audit=True) if entry.audit]
    shown = [(record.did, record.actor.name, record.actor.is_authenticated) for record in records]
    assert shown == [("submitted", "tom", True), ("approved", "tom", True), ("approved", "ann", False)]
    text = command(backend, "log", run.id, "--audit").stdout
    assert "submitted by tom (authenticated) from " in text
    assert "approved by ann from " in text
    lines = list(run.export())
    run.delete()
    imported = backend.client.import_run(lines)
    assert [entry.audit.actor.is_authenticated for entry in imported.log(audit=True) if entry.audit] == [False] * 4
