"""Which runs there are, how they are named and found, waited for and forgotten (`acts runs|wait|delete`)."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from acts_celery import AmbiguousRun, AsyncClient, Client, RunNotFound, RunOver
from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol import Rejected
from acts_celery.worker.store.keys import Keys, active_runs, ended_runs
from acts_celery.worker.store.run_list import RunList
from acts_celery.worker.store.run_writer import expire_runs

from .backend import Backend, Meeting, settings_for
from .test_control_cli import command

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
    listed = command(backend, "runs", "--name", name, "--json", afresh=True).json_lines
    assert [one["run"] for one in listed] == [second, first]
    assert (listed[1]["name"], listed[1]["tags"]) == (name, ["nightly", f"{name}-tag"])
    assert (listed[1]["status"], listed[1]["calls"]) == ("completed", {"done": 1})
    assert 0 <= listed[1]["duration_seconds"] <= listed[1]["age_seconds"]
    assert [one["run"] for one in command(backend, "runs", "--name", f"{name}-tag", "--json").json_lines] == [first]
    assert len(command(backend, "runs", "--json", "--limit", "1").json_lines) == 1
    line = command(backend, "runs", "--name", name, "--status", "completed").stdout.splitlines()[1]
    assert line.startswith(f"{first}  {name} #nightly #{name}-tag  completed  1 call: 1 done  ")
    assert command(backend, "runs", "--name", name, "--status", "failed").stdout == "no runs\n"


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
    assert "is that of another submission" in refused.error_lines[0]
    with pytest.raises(Rejected, match="stands for the newest run"):
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
    told = command(backend, "wait", run, "--json", afresh=True)
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
    told = command(backend, "delete", run, "--json", afresh=True).json
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
                expire_runs(redis, prefix, [Keys(prefix, run)], 1_000)
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
        expire_runs(Watched.from_url(client.settings.require_redis()), keys.prefix, [keys], 1_000)
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
