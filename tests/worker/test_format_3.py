"""Runs that the version before has written down, in format 3 of the log: they are read, forked and imported, and those
under way go on.

`fixtures/format_3.json` was recorded from that version: the keys of seven runs as they lay in Redis - one with
instances, an amendment, a held and decided call, `_each`, a retry, a child run and a message sent; a fork of it; that
child; a loop of two ticks; a plan; a solution and a loop that were paused in the middle - and what it said of them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from acts_celery import Client, Result, Run
from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.storage.fields import current
from acts_celery.worker.storage.formats import FORMAT
from acts_celery.worker.storage.keys import Keys

from .backend import FIXTURES, Backend, Meeting, settings_for
from .loops import Asked, answer, loop_settings

RECORDED: dict[str, Any] = json.loads((FIXTURES / "format_3.json").read_text(encoding="utf-8"))
RUNS: dict[str, Any] = RECORDED["runs"]
ENDED = ["ended", "fork", "child", "ticks", "plan"]


def decoded(value: str) -> bytes:
    return base64.b64decode(value)


def restore(redis: Any, key: str, kind: str, value: Any) -> None:
    match kind:
        case "string":
            redis.set(key, decoded(value))
        case "hash":
            redis.hset(key, mapping={decoded(name): decoded(one) for name, one in value})
        case "zset":
            redis.zadd(key, {decoded(member): score for member, score in value})
        case "list":
            redis.rpush(key, *map(decoded, value))
        case "set":
            redis.sadd(key, *map(decoded, value))
        case "stream":
            for id_, fields in value:
                redis.xadd(key, {decoded(name): decoded(one) for name, one in fields}, id=id_)


@pytest.fixture
def upgraded(server: EmbeddedServer, meeting: Meeting, tmp_path_factory: Any) -> Iterator[Backend]:
    """The runs as that version has left them, and no worker yet."""
    found = Backend(
        loop_settings(server, "v3", lease_seconds=1.5, sweep_interval_seconds=0.2),
        meeting,
        tmp_path_factory.mktemp("v3"),
    )
    for recorded in RECORDED["keys"]:
        restore(found.redis, recorded["key"], recorded["type"], recorded["value"])
    yield found
    for key in found.redis.scan_iter("v3*"):
        found.redis.delete(key)


def run_of(backend: Backend, name: str) -> Run:
    return backend.client.run(RUNS[name]["run"])


def counting(result: dict[str, Any]) -> dict[str, Any]:
    """A result as it was recorded, without the errors of calls that were carried out again: that version had them
    count on (SPEC R3.1).
    """
    failed = {(call["instance"], call["tool"]) for call in result["calls"] if call["status"] == "failed"}
    instances = {
        name: {
            kind: value for kind, value in data.items() if kind != "error" or (name, value["call"]["_tool"]) in failed
        }
        for name, data in result["instances"].items()
    }
    return {**result, "instances": instances}


def logged(run: Run) -> list[Any]:
    """What a reader is shown of the log, as it was recorded: by whom was claimed then, and never authenticated."""
    return [
        [
            entry.id,
            entry.instance,
            entry.message,
            former_audit(entry.audit.to_dict()) if entry.audit is not None else None,
            entry.end.to_dict() if entry.end is not None else None,
        ]
        for entry in run.log(audit=True, every=True)
    ]


def former_audit(audit: dict[str, Any]) -> dict[str, Any]:
    assert audit["authenticated"] is False
    return {name: value for name, value in audit.items() if name != "authenticated"}


def added_to(backend: Backend, run: Run, after: str = "0-0") -> list[dict[bytes, bytes]]:
    """What the log has since, as it lies in Redis."""
    found: Any = backend.redis.xrange(Keys("v3", run.id).log, f"({after}")
    return [fields for _, fields in found]


_SINCE = ("worker", "version")
"""What is said of a call since."""


def former(result: Result) -> dict[str, Any]:
    """Of a result what the version before has said of it."""
    said = {name: value for name, value in result.to_dict().items() if name not in ("instance_status", "cost")}
    for tick in said.get("ticks", ()):
        del tick["cost"]
    return said | {"calls": [{name: call[name] for name in call if name not in _SINCE} for call in said["calls"]]}


@pytest.mark.parametrize("name", RUNS)
def test_what_the_version_before_has_written_is_read_as_it_read_it(upgraded: Backend, name: str) -> None:
    run, recorded = run_of(upgraded, name), RUNS[name]
    assert {name: value for name, value in run.status().items() if name != "waiting_for"} == recorded["status"]
    assert former(run.result()) == counting(recorded["result"])
    assert logged(run) == recorded["log"]
    for at, result in recorded["past"].items():
        assert former(run.result(at)) == counting(result)


@pytest.mark.parametrize("name", ["ended", "ticks"])
def test_files_of_the_version_before_are_imported(name: str) -> None:
    recorded = RUNS[name]
    with EmbeddedServer() as server, Client(settings_for(server)) as client:
        run = client.import_run(recorded["export"])
        assert former(run.result()) == counting(recorded["result"])
        assert logged(run)[:-1] == recorded["log"]
        assert former(run.fork(paused=True).result())["calls"] == recorded["result"]["calls"]
        head, *entries = [json.loads(line) for line in run.export()]
        assert len(entries) == len(recorded["export"])  # with who imported it
        again = [json.dumps(line) for line in (head | {"run": "again"}, *entries)]
        assert former(client.import_run(again).result())["calls"] == recorded["result"]["calls"]


@pytest.mark.parametrize("name", ENDED)
def test_a_run_of_the_version_before_is_explained_and_forked(upgraded: Backend, name: str) -> None:
    run, recorded = run_of(upgraded, name), RUNS[name]["result"]
    for kind in recorded["global"]:
        assert run.explain(kind).value == recorded["global"][kind]
        run.explain_absence(f"{kind}.none")
    fork = run.fork(paused=True)
    assert former(fork.result())["calls"] == recorded["calls"]
    early = run.fork(RUNS[name]["log"][0][0], paused=True)
    assert early.result().to_dict()["global"].keys() <= recorded["global"].keys()


def test_a_run_that_was_paused_goes_on_with_workers_of_this_version(upgraded: Backend, meeting: Meeting) -> None:
    run = run_of(upgraded, "paused")
    for gate in ("v3-a", "v3-b"):
        meeting.open_gate(gate)
    run.resume()
    (held,) = run.held()
    run.approve(held["call"], by="Ann")
    with upgraded.worker():
        result = upgraded.wait(run.id)
    assert result.data()["state"] == RUNS["paused"]["result"]["global"]["state"] | {
        "asked": 1,
        "c": 3,
        "last": [3, 1, 2],
    }
    assert [result.data(name)["state"]["end"] for name in "①②"] == [4, 4]
    assert [call.status for call in result.calls if call.index != 8] == ["done"] * 9
    for at, past in RUNS["paused"]["past"].items():  # what came since changes nothing of it
        assert former(run.result(at)) == past
    added = added_to(upgraded, run, RUNS["paused"]["log"][-1][0])
    assert added
    assert [fields for fields in added if current(fields) != fields] == []
    keys = Keys("v3", run.id)
    assert int(upgraded.redis.hget(keys.state, "format") or 0) == FORMAT
    assert run.fork().result().to_dict()["calls"] == run.result().to_dict()["calls"]


def test_a_run_that_has_ended_is_tried_again_and_added_to(upgraded: Backend, meeting: Meeting) -> None:
    run = run_of(upgraded, "ended")
    meeting.redis.set("mended:v3", 1)
    with upgraded.worker():
        run.retry(call=10, instance="②", skip=True, value=5)
        assert upgraded.wait(run.id).data("②")["state"]["never"] == 5
        run.amend([{"_tool": "add", "a": "†state.gate", "b": 9, "_outputPath": "†state.added"}], add=True)
        result = upgraded.wait(run.id)
    assert (result.status, result.data()["state"]["added"]) == ("completed", 10)


def test_a_loop_that_was_paused_goes_on_with_workers_of_this_version(upgraded: Backend, meeting: Meeting) -> None:
    run = run_of(upgraded, "loop")
    sums = answer({"_tool": "add", "a": "†state.sum", "b": 2, "_outputPath": "†state.next"}, output="†state.next")
    meeting.redis.rpush(f"answers:{RECORDED['topic']}", "{}", json.dumps(sums))  # the first was given
    with upgraded.worker():
        run.resume()
        result = upgraded.wait(run.id)
    assert (result.status, result.output) == ("completed", 6)
    assert [tick.tick for tick in result.ticks or ()] == [0, 1]
    assert result.data()["state"] == {"sum": 4, "next": 6}
    assert [fields for fields in added_to(upgraded, run, RUNS["loop"]["log"][-1][0]) if current(fields) != fields] == []


def test_what_this_version_writes_has_the_names_of_its_format(upgraded: Backend) -> None:
    asked = Asked(upgraded, answer({"_tool": "add", "a": 1, "b": 2, "_outputPath": "†state.sum"}, output="†state.sum"))
    run = asked.run
    run.say("a word")
    with upgraded.worker():
        assert asked.result().output == 3
    run.say("another")
    run.cancel()
    for one in (run, run.fork()):
        assert [fields for fields in added_to(upgraded, one) if current(fields) != fields] == []
