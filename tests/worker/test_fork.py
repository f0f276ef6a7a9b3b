"""Runs again: forks, moments of the past, tables of values."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from acts_celery import OtherFormat, Run, RunNotFound
from acts_celery.protocol import Context
from acts_celery.worker.broker.messages import unpack
from acts_celery.worker.client.tables import TABLES
from acts_celery.worker.store.definition import FORMAT
from acts_celery.worker.store.keys import Keys, active_runs
from tests.acceptance.command import start

from .backend import Backend, Meeting
from .test_control import alone, echo, first_ended_call, gate, wait_at
from .test_control_cli import command

__all__ = ["alone", "gate"]

# Forks: a new run that begins where another one was (SPEC R11.2).

MARKS = ["①", "②"]


def messages(run: Run) -> list[tuple[str, Any]]:
    return [(entry.id, entry.message) for entry in run.log()]


def ended(backend: Backend, gate: str = "") -> Run:
    """A run with a global call that instances wait for, a failure, and something that was sent."""
    context = [{"type": "state", "_instance": mark, "mark": mark} for mark in MARKS]
    calls = [
        echo(1, "†state.a && †state.b"),
        *(echo("†state.a", "†state.seen", _instance=mark) for mark in MARKS),
        {"_tool": "explode", "_outputPath": "†state.never"},
        echo("†state.never", "†state.after"),
        {"_tool": "note", "name": f"fork {gate}", "seen": "†state.seen", "_instance": "①"},
    ]
    run = backend.client.submit(context, {"calls": calls})
    backend.wait(run.id)
    return run


def outcome(run: Run) -> Any:
    result = run.result()
    return result.status, result.data(), result.instances, [(call.index, call.status) for call in result.calls]


def test_a_fork_from_any_moment_ends_as_the_run_itself_did(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = ended(backend, gate)
    expected = outcome(run)
    meeting.take(f"fork {gate}")
    ids = [event.id for event in run.follow()]
    sent = next(event.id for event in run.follow() if event.status == "sent")
    again = 0
    for at in [None, "0-0", *ids, *(id_ for id_, _ in messages(run))]:
        fork = run.fork(at)
        backend.wait(fork.id)
        assert outcome(fork) == expected, at
        if at is not None and order(at) < order(sent):
            again += 1
            meeting.take(f"fork {gate}")
    assert again
    assert meeting.count(f"fork {gate}") == 0


def order(id_: str) -> tuple[int, int]:
    milliseconds, sequence = id_.split("-")
    return int(milliseconds), int(sequence)


def test_the_past_of_a_fork_is_that_of_its_run(backend: Backend) -> None:
    run = ended(backend)
    at = messages(run)[4][0]
    fork = run.fork(at)
    backend.wait(fork.id)
    past = [message for message in messages(run) if order(message[0]) <= order(at)]
    assert messages(fork)[: len(past)] == past
    assert fork.result(at=at).calls == run.result(at=at).calls
    assert fork.result(at=at).instances == run.result(at=at).instances
    assert fork.status()["forked_from"] == {"run": run.id, "at": at}
    assert outcome(run) == outcome(fork)


def test_an_id_in_the_midst_of_a_result_stands_for_the_moment_before(backend: Backend) -> None:
    run = ended(backend)
    first = next(id_ for id_, message in messages(run) if "_call" in message)
    fork = run.fork(first, paused=True)
    assert fork.status()["calls"] == {"waiting": 6}
    assert fork.result().data() == {}
    fork.resume()
    backend.wait(fork.id)
    assert outcome(fork) == outcome(run)


def test_a_run_at_work_is_forked_as_of_one_moment_and_goes_on_itself(
    backend: Backend, meeting: Meeting, gate: str
) -> None:
    run = backend.client.submit(
        solution={"calls": [echo(1, "†state.first"), wait_at(gate), echo("†state.a", "†state.b")]}
    )
    meeting.take(f"at:{gate}")
    first_ended_call(run)
    fork = run.fork(paused=True)
    assert fork.status()["calls"] == {"done": 1, "waiting": 2}
    fork.resume()
    meeting.take(f"at:{gate}")
    meeting.open_gate(gate)
    for one in (run, fork):
        assert backend.wait(one.id).data()["state"] == {"first": 1, "a": 1, "b": 1}


def test_a_cancelled_run_goes_on_in_its_fork(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = backend.client.submit(solution={"calls": [wait_at(gate), echo("†state.a", "†state.b")]})
    meeting.take(f"at:{gate}")
    run.cancel()
    fork = run.fork()
    meeting.open_gate(gate)
    assert backend.wait(fork.id).status == "completed"
    assert [event.status for event in fork.follow() if event.kind == "run"][-1] == "completed"


def test_a_run_that_is_not_there_cannot_be_forked(backend: Backend) -> None:
    with pytest.raises(RunNotFound):
        backend.client.run_of("nowhere").fork()


def test_workers_publish_a_fork_whose_client_died_before_it_could(alone: Backend) -> None:
    from acts_celery.worker.client.fork import Forker

    run = alone.client.submit(solution={"calls": [echo(1, "†state.a")]})
    fork = Forker(run.id, alone.redis, alone.settings).fork()
    with alone.worker():
        assert alone.wait(fork).data() == {"state": {"a": 1}}


def test_half_a_fork_is_never_executed_and_is_removed(alone: Backend, meeting: Meeting) -> None:
    plan = {"type": "plan", "calls": [echo("†state.n", "†state.a")]}
    many = 3_000
    context = [{"type": "state", "_instance": f"i{n}", "n": n} for n in range(many)]
    run = alone.client.submit([plan, *context])
    prefix = alone.settings.key_prefix
    alone.redis.config_set("notify-keyspace-events", "K$g")
    with alone.redis.pubsub() as written:  # type: ignore[no-untyped-call]  # redis is typed but here
        written.psubscribe(f"__keyspace@0__:{prefix}:*:definition")
        written.get_message(timeout=5)
        env = alone.settings.to_environment() | {"MEETING_URL": meeting.url}
        client = start("fork", run.id, env=env)
        assert written.get_message(timeout=30), "nothing was written"
        os.kill(client.pid, signal.SIGKILL)
        client.communicate()
        runs: Any = alone.redis.zrange(active_runs(prefix), 0, -1)
        (half,) = {name.decode() for name in runs} - {run.id}
        assert not alone.redis.exists(Keys(prefix, half).state)
        with alone.worker():
            alone.run([echo(1, "†state.a")])
            assert alone.keys(half)
            alone.redis.zadd(active_runs(prefix), {half: 1})
            while (event := written.get_message(timeout=30)) is not None and half not in str(event["channel"]):
                pass
            assert event is not None, "it was not removed"
    alone.redis.config_set("notify-keyspace-events", "")
    assert not alone.keys(half)
    assert alone.redis.zscore(active_runs(prefix), half) is None


def test_a_fork_is_made_by_command(backend: Backend) -> None:
    run = ended(backend)
    at = messages(run)[4][0]
    made = command(backend, "fork", run.id, "--at", at, "--paused", "--json")
    assert (made.code, made.json["status"]) == (0, "paused")
    assert made.json["forked_from"] == {"run": run.id, "at": at}
    assert command(backend, "resume", made.json["run"]).code == 0
    backend.wait(made.json["run"])
    told = command(backend, "fork", run.id).stdout.strip()
    assert backend.wait(told).status == "failed"
    assert command(backend, "fork", "nowhere").code == 4


# A run as of any id of its log, held against a replay of the raw streams from the beginning (SPEC R11.2).

FINALS = frozenset({"completed", "failed", "cancelled"})


def echo_time_travel(value: Any, path: str, **meta: Any) -> dict[str, Any]:
    return {"_tool": "echo", "value": value, "_outputPath": path, **meta}


def eventful(backend: Backend, meeting: Meeting, gate: str) -> Run:
    """Instances and global calls, pauses, several paths at once, a conflict, a failure, what is skipped by it."""
    context: list[dict[str, Any]] = [{"type": "state", "n": 1, "items": [1], "text": "a"}]
    context += [{"type": "state", "_instance": mark, "mark": mark} for mark in MARKS]
    calls = [
        {"_tool": "waitAtGate", "gate": gate, "value": 5, "_outputPath": "†state.first"},
        echo_time_travel("†state.first", "†state.left && †data.right && †state.deep.er"),
        {"_tool": "explode", "text": "†state.text", "_outputPath": "†state.never"},
        echo_time_travel("†state.never", "†state.neither"),
        echo_time_travel("†state.left", "†state.items", _outputMethod="push"),
        echo_time_travel("†state.items", "†state.text", _outputMethod="concat"),
        {"_tool": "waitAtGate", "gate": f"{gate} end", "_outputPath": "†state.last"},
    ]
    for mark in MARKS:
        calls.append(echo_time_travel("†state.first", "†state.seen && †state.mark", _instance=mark))
        calls.append(echo_time_travel("†state.seen", "†state.items", _outputMethod="push", _instance=mark))
    run = backend.client.submit(context, {"calls": calls})
    meeting.take(f"at:{gate}")
    run.pause()
    meeting.open_gate(gate)
    next(event for event in run.follow(timeout_seconds=30) if event.index == 0)
    run.resume()
    return run


def ids_of(backend: Backend, run: Run) -> list[str]:
    """Every id of the run's streams, and ids between and beyond them."""
    keys = Keys(backend.settings.key_prefix, run.id)
    found = {id_ for id_, _ in entries(backend, keys.log)}
    between = {f"{id_.split('-')[0]}-{2**40}" for id_ in found}
    return sorted(found | between | {"0-1", f"{10**15}-0"}, key=order_time_travel)


def entries(backend: Backend, stream: str) -> list[tuple[str, dict[bytes, bytes]]]:
    """What a stream holds, as it lies there."""
    found: Any = backend.redis.xrange(stream)
    return [(id_.decode(), fields) for id_, fields in found]


def order_time_travel(id_: str) -> tuple[int, int]:
    milliseconds, _, sequence = id_.partition("-")
    return int(milliseconds), int(sequence)


def replay(backend: Backend, run: Run, at: str) -> tuple[str, dict[Any, Any], dict[Any, str]]:
    """Status, values and calls by brute force: everything up to the id, folded by the pure core from nothing."""
    keys = Keys(backend.settings.key_prefix, run.id)
    before = [fields for id_, fields in entries(backend, keys.log) if order_time_travel(id_) <= order_time_travel(at)]
    messages = [unpack(fields[b"m"]) for fields in before if b"m" in fields]
    context = Context(messages)
    status = "running"
    ended: dict[Any, str] = {}
    for fields in before:
        if b"c" in fields and b"s" in fields:
            ended[fields[b"l"].decode() or None, int(fields[b"c"])] = fields[b"s"].decode()
        elif b"status" in fields:
            status = fields[b"status"].decode()
    values: dict[Any, Any] = {lane: context.data(lane) for lane in (None, *MARKS)}
    return status, values, ended


@pytest.mark.parametrize("end", ["to the end", "cancelled"])
def test_a_run_as_of_any_id_is_what_a_replay_up_to_there_gives(backend: Backend, meeting: Meeting, end: str) -> None:
    run = eventful(backend, meeting, f"travel {end}")
    if end == "cancelled":
        run.cancel()
    meeting.open_gate(f"travel {end} end")
    backend.wait(run.id)
    seen = set()
    for id_ in ids_of(backend, run):
        status, values, ended = replay(backend, run, id_)
        result = run.result(at=id_)
        left = ("skipped", "failed") if status == "cancelled" else ("waiting",)
        assert result.status == status, id_
        assert result.data() == values.pop(None), id_
        assert result.instances == values, id_
        for call in result.calls:
            stands = ended.get((call.instance, call.index))
            assert call.status == stands if stands is not None else call.status in left, (id_, call)
        assert run.status(at=id_) == {
            "run": run.id,
            "status": status,
            "calls": Counter(call.status for call in result.calls),
        }
        seen.add(status)
    assert {"running", "paused"} < seen
    assert seen & FINALS
    now = run.result()
    assert run.result(at=f"{10**15}-0") == now


def test_the_command_shows_the_status_of_that_moment(backend: Backend, meeting: Meeting) -> None:
    run = eventful(backend, meeting, "travel by command")
    meeting.open_gate("travel by command end")
    backend.wait(run.id)
    paused = next(event for event in run.follow() if event.status == "paused")
    told = command(backend, "status", run.id, "--at", paused.id, "--json")
    assert (told.code, told.json) == (0, run.status(at=paused.id, instances=True))
    assert told.json["status"] == "paused"
    assert command(backend, "show", run.id, "--at", paused.id, "--json").json["status"] == "paused"


# Runs as tables of JSON lines, for analysis (`acts export --jsonl`), and many runs as files.

_names = count()
COLUMNS: dict[str, set[str]] = {
    "runs": {
        "run name tags status reason submitted finished seconds instances calls_done calls_failed calls_skipped "
        "calls_sent calls_latent calls_waiting calls_running parent delegate forked_from requests input_tokens "
        "output_tokens cached_tokens model_seconds money"
    },
    "calls": {
        "run instance call tick tool status error_type error_message reason began ended seconds waited_seconds "
        "attempts worker version child elements stale requests input_tokens output_tokens cached_tokens model_seconds "
        "money"
    },
    "ticks": {
        "run tick model calls errors set_aside requests input_tokens output_tokens cached_tokens model_seconds money"
    },
    "messages": {"run id written instance kind call tick counts bytes message"},
}


@pytest.fixture
def name() -> str:
    return f"tables{next(_names)}"


def read(folder: Path) -> dict[str, list[dict[str, Any]]]:
    found = {path.stem: [json.loads(line) for line in path.read_text().splitlines()] for path in folder.iterdir()}
    assert found.keys() == set(TABLES)
    for table, rows in found.items():
        assert {" ".join(row) for row in rows} <= COLUMNS[table]
        for column in rows[0] if rows else ():
            kinds = {type(row[column]) for row in rows} - {type(None)}
            assert len(kinds - {int}) + (kinds == {int}) <= 1, (table, column, kinds)
    return found


def test_every_call_and_message_of_the_runs_that_are_meant_is_one_flat_row(
    backend: Backend, tmp_path: Path, name: str
) -> None:
    context = [{"type": "state", "_instance": mark, "mark": mark} for mark in "①②③"]
    plan = {
        "type": "plan",
        "calls": [
            {"_tool": "echo", "value": "†state.mark", "_outputPath": "†state.copy"},
            {"_tool": "explode", "_outputPath": "†state.broken"},
            {"_tool": "echo", "value": "†state.broken", "_outputPath": "†state.never"},
        ],
    }
    run = backend.client.submit_document({"context": [*context, plan]}, name=name, tags=["nightly"])
    backend.wait(run.id)
    other = backend.client.submit(solution={"calls": []}).id
    told = command(backend, "export", "--name", name, "--jsonl", str(tmp_path / "out"))
    assert (told.code, told.stdout) == (0, ""), told
    assert told.error_lines == [f"acts: 1 run, 9 calls, 0 ticks, 10 messages in {tmp_path / 'out'}"]
    tables = read(tmp_path / "out")
    (row,) = tables["runs"]
    assert (row["run"], row["name"], row["status"], row["instances"]) == (run.id, name, "failed", 3)
    assert (row["calls_done"], row["calls_failed"], row["calls_skipped"]) == (3, 3, 3)
    expected = {(call["index"], call["instance"]): call for call in run.result(waits=True).to_dict()["calls"]}
    assert len(tables["calls"]) == len(expected)
    for call in tables["calls"]:
        was = expected[call["call"], call["instance"]]
        assert (call["status"], call["tool"], call["reason"]) == (was["status"], was["tool"], was["reason"])
        assert call["error_message"] == (was["error"]["message"] if was["error"] else None)
        assert (call["began"], call["waited_seconds"]) == (was["timing"]["began"], was["timing"]["waited_seconds"])
    logged = {entry.id: dict(entry.message) for entry in run.log()}
    assert {message["id"]: json.loads(message["message"]) for message in tables["messages"]} == logged
    assert {message["call"] for message in tables["messages"]} == {None, 0, 1}
    whole = command(backend, "export", "--all", "--jsonl", "-").json_lines
    assert {run.id, other} <= {line["run"] for line in whole if line["table"] == "runs"}
    one = command(backend, "export", other, "--jsonl", "-").json_lines
    assert [(line["table"], line["run"]) for line in one] == [("runs", other)]


def test_what_a_retry_has_withdrawn_is_a_message_that_does_not_count(
    backend: Backend, tmp_path: Path, name: str
) -> None:
    run = backend.client.submit(solution={"calls": [{"_tool": "explode", "_outputPath": "†state.a"}]}, name=name)
    backend.wait(run.id)
    run.retry()
    backend.wait(run.id)
    rows = list(backend.client.export_rows(run=run.id))
    assert [row["counts"] for table, row in rows if table == "messages"] == [False, True]
    assert [row["status"] for table, row in rows if table == "calls"] == ["failed"]


def test_a_loop_has_a_row_for_each_tick_with_what_it_cost(backend: Backend, name: str) -> None:
    run = backend.client.submit(["A latent topic."], schema={"type": "string"}, name=name)
    backend.wait(run.id)
    found = defaultdict[str, list[dict[str, Any]]](list)
    for table, row in backend.client.export_rows(name=name):
        found[table].append(row)
    result = run.result()
    assert [tick["tick"] for tick in found["ticks"]] == [tick.tick for tick in result.ticks or ()]
    assert found["runs"][0]["requests"] == sum(tick["requests"] for tick in found["ticks"])
    assert "solution" in {message["kind"] for message in found["messages"]}


def test_many_runs_are_each_a_file_that_can_be_imported(backend: Backend, tmp_path: Path, name: str) -> None:
    runs = [backend.client.submit(solution={"calls": []}, name=name).id for _ in range(2)]
    told = command(backend, "export", "--name", name, "-o", str(tmp_path / "archive"))
    assert (told.code, told.error_lines) == (0, [f"acts: 2 runs written to {tmp_path / 'archive'}"])
    assert {path.name for path in (tmp_path / "archive").iterdir()} == {f"{run}.jsonl" for run in runs}
    backend.client.run(runs[0]).delete()
    assert command(backend, "import", str(tmp_path / "archive" / f"{runs[0]}.jsonl")).code == 0


@pytest.mark.parametrize("form", ["--jsonl", "-o"])
def test_runs_of_another_version_are_left_out_and_named(backend: Backend, tmp_path: Path, name: str, form: str) -> None:
    foreign, ours = (backend.client.submit([], {"calls": [], "output": 1}, name=name).id for _ in range(2))
    state = Keys(backend.settings.key_prefix, foreign).state
    backend.redis.hset(state, "format", 99)
    told = command(backend, "export", "--name", name, form, str(tmp_path / "out"))
    assert told.code == 1
    assert told.error_lines[0].startswith(f"acts: left out: run {foreign}: the run has format 99")
    files = "".join(path.read_text() for path in (tmp_path / "out").iterdir())
    assert (ours in files, foreign in files) == (True, False)
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".jsonl"}
    if form == "--jsonl":
        assert command(backend, "export", "--name", name, "--jsonl", "-").code == 1
        assert command(backend, "export", foreign, "--jsonl", "-").code == 4
        with pytest.raises(OtherFormat):
            list(backend.client.export_rows(name=name))
    backend.redis.hset(state, "format", FORMAT)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name a run, or say which"),
        (("latest", "--all"), "name a run, or say which"),
        (("--all",), "many runs are written as tables (--jsonl), or each as a file in a folder"),
        (("--all", "--jsonl", "-", "-o", "x"), "give no --output with it"),
        (("latest", "--plan", "--jsonl", "-"), "give one of --script, --plan and --jsonl"),
    ],
)
def test_what_does_not_go_together_is_refused(backend: Backend, arguments: tuple[str, ...], said: str) -> None:
    told = command(backend, "export", *arguments)
    assert (told.code, said in told.stderr) == (2, True), told.stderr


def test_a_folder_that_cannot_be_written_is_an_error_and_leaves_no_half_of_it(backend: Backend, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = command(backend, "export", "--all", "--jsonl", str(tmp_path / "file"))
    assert (told.code, f"{tmp_path / 'file'}: " in told.stderr) == (3, True)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.nightly
def test_the_memory_that_it_takes_does_not_grow_with_the_instances(backend: Backend) -> None:
    def peak_kilobytes(instances: int) -> int:
        context = [{"type": "state", "_instance": f"i{number}", "n": number} for number in range(instances)]
        calls = [{"_tool": "add", "a": "†state.n", "_outputPath": "†state.m"}] * 2
        run = backend.client.submit_document({"context": [*context, {"type": "plan", "calls": calls}]})
        run.cancel()
        command = [sys.executable, "-m", "acts_celery", "export", run.id, "--jsonl", "-"]
        with subprocess.Popen(command, env=backend.environment(), stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            # Two calls and a message of each, and what calls wrote before they were cancelled; the plan, the run.
            assert sum(1 for _ in process.stdout) >= 3 * instances + 2
            _, status, usage = os.wait4(process.pid, 0)
            assert status == 0
        return usage.ru_maxrss

    assert peak_kilobytes(30_000) - peak_kilobytes(300) < 60_000
