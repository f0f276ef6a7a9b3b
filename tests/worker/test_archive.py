"""A run as one file: written, read without a server, read back elsewhere, and forked there (SPEC R11.5)."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import msgpack
import pytest

from acts_celery import Client, OtherFormat, RunOver
from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol import Rejected
from acts_celery.worker.client.archive import read_whole

from .backend import Backend, Meeting, settings_for
from .test_control_cli import command

CONTEXT: list[dict[str, Any]] = [
    {"type": "state", "_instance": "①", "text": "Привет"},
    {"type": "state", "_instance": "②", "text": "Bonjour"},
]
CALLS: list[dict[str, Any]] = [
    {"_tool": "echo", "value": "†state.text", "_instance": "①", "_outputPath": "†state.copy"},
    {"_tool": "explode", "_instance": "②", "_outputPath": "†state.copy"},
    {"_tool": "echo", "value": "†state.copy", "_instance": "②", "_outputPath": "†state.more"},
    {"_tool": "echo", "value": 5, "_outputPath": "†state.n"},
]


@pytest.fixture(scope="module")
def exported(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    run = backend.client.submit(CONTEXT, {"calls": CALLS}, name="kept", tags=["a", "b"])
    backend.wait(run.id)
    file = tmp_path_factory.mktemp("archive") / "run.jsonl"
    told = command(backend, "export", run.id, "-o", str(file), afresh=True)
    assert (told.code, told.stdout) == (0, "")
    assert list(file.parent.iterdir()) == [file]
    assert file.stat().st_mode & 0o777 == 0o600, "it holds values"
    return run.id, file


def test_the_file_can_be_read_without_anything_of_ours(backend: Backend, exported: tuple[str, Path]) -> None:
    run, file = exported
    head, *entries = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert head["result"] == command(backend, "show", run, "--json").json
    messages = [entry["message"] for entry in entries if "message" in entry]
    assert messages == [line["message"] for line in command(backend, "log", run, "--json").json_lines]
    again = [json.loads(line) for line in command(backend, "export", run).stdout.splitlines()]
    for each in (head, again[0]):
        each["state"].pop("look", None)  # when the sweep looks at it next
    assert again == [head, *entries]


def test_it_is_read_back_elsewhere_as_it_was_and_is_forked(backend: Backend, exported: tuple[str, Path]) -> None:
    run, file = exported
    here = backend.client.run(run)
    with EmbeddedServer() as server, Client(settings_for(server)) as client:
        with file.open("rb") as lines:
            there = client.import_run(lines)
        assert there.id == run
        assert there.result().to_dict() == here.result().to_dict()
        assert [(e.id, e.message) for e in there.log()] == [(e.id, e.message) for e in here.log()]
        assert there.explain("†state.copy", instance="①").value == "Привет"
        past = [entry.id for entry in here.log()][1]
        assert there.result(past).to_dict() == here.result(past).to_dict()
        (summary,) = client.runs()
        assert (summary.run, summary.name, summary.tags, summary.status) == (run, "kept", ("a", "b"), "failed")
        for refused in (there.retry, lambda: there.amend([], add=True), there.resume):
            with pytest.raises(RunOver):
                refused()
        fork = there.fork(paused=True)
        assert fork.result().to_dict()["calls"] == there.result().to_dict()["calls"]
        with file.open("rb") as lines, pytest.raises(Rejected, match="is here already"):
            client.import_run(lines)
        there.delete()
        with file.open("rb") as lines:
            assert client.import_run(lines).id == run


def test_a_run_under_way_is_cancelled_where_it_is_imported(backend: Backend, meeting: Meeting) -> None:
    wait = {"_tool": "waitAtGate", "gate": "archive", "_outputPath": "†state.a"}
    run = backend.client.submit([], {"calls": [wait]})
    meeting.take("at:archive")
    lines = list(run.export())
    with EmbeddedServer() as server, Client(settings_for(server)) as client:
        there = client.import_run(lines)
        assert (there.status()["status"], there.wait(1).calls[0].status) == ("cancelled", "failed")
    meeting.open_gate("archive")


def _entry(message: Any) -> str:
    return json.dumps({"id": "99999999999999-0", "lane": "", "before": "0-0", "message": message})


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


def test_what_is_no_such_file_is_refused_and_nothing_is_written(exported: tuple[str, Path], tmp_path: Path) -> None:
    lines = exported[1].read_text(encoding="utf-8").splitlines()
    head = json.loads(lines[0])
    with EmbeddedServer() as server, Client(settings_for(server)) as client:
        for bad, said in (
            ([], "line 1: not JSON"),
            (["{}"], "line 1: this is no run"),
            ([json.dumps(head | {"run": "a{b}"})], "line 1: this is no run"),
            ([json.dumps(head | {"definition": "%"})], "base64"),
            ([json.dumps(head | {"definition": "AAAA"})], "line 1: its definition, or what had begun, cannot be read"),
            ([json.dumps(head | {"begun": {"\x1f0": "skipped"}})], "what had begun, cannot be read"),
            ([json.dumps(head | {"begun": {"none": "running:1:0:me"}})], "what had begun, cannot be read"),
            ([json.dumps(head | {"instances": [1]})], "line 1: its instances"),
            ([json.dumps(head | {"state": {}})], "line 1: its state lacks"),
            *(
                ([json.dumps(head | {"state": head["state"] | {key: value}})], f"line 1: in its state '{key}' is no")
                for key, value in (("total", "x"), ("submitted", "1e300"), ("finished", "nan"), ("n:failed", "-1"))
            ),
            ([json.dumps(head | {"state": head["state"] | {"forked_from": "a"}})], "line 1: its state has one of"),
            ([*lines[:2], "[]"], "line 3: not an object"),
            ([*lines[:2], '{"id": "x", "lane": ""}'], "line 3: the entry x cannot be read"),
            (
                [*lines[:2], json.dumps({"id": f"{2**64}-0", "lane": ""})],
                "line 3: the entry 18446744073709551616-0 cannot",
            ),
            ([lines[0], lines[2], lines[1]], "line 3: the entry .* stands behind .*: ids only grow"),
            ([*lines[:2], lines[1]], "line 3: the entry .* stands behind"),
            ([*lines[:2], _entry({"type": "data", "data": _nested(400)})], "line 3: .* nested deeper than 264 levels"),
        ):
            with pytest.raises(Rejected, match=said):
                client.import_run(bad)
            assert list(client._redis.scan_iter(f"*{{{exported[0]}}}*")) == [], said
        assert list(client.runs()) == []


ODD: list[Any] = [None, True, -1, 2**70, 1.5, "", "x", "\x00", "999999999999999999", [], [1], {}, {"a": 1}]


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in pairs:
        yield from _places(below, (*at, key))


def _changed(value: Any, at: Sequence[Any], random: Random) -> Any:
    """The value with something else at a place, or nothing."""
    if not at:
        return random.choice(ODD)
    changed = copy.deepcopy(value)
    inner = changed
    for key in at[:-1]:
        inner = inner[key]
    if isinstance(inner, dict) and random.random() < 0.3:
        del inner[at[-1]]
    else:
        inner[at[-1]] = _packed_oddly(inner[at[-1]], random)
    return changed


def _packed_oddly(value: Any, random: Random) -> Any:
    """Another value; of one that is msgpack in base64 mostly msgpack in base64, too."""
    if isinstance(value, str) and random.random() < 0.7:
        with suppress(OverflowError, ValueError, msgpack.UnpackException):
            packed = msgpack.unpackb(base64.b64decode(value, validate=True), strict_map_key=False)
            if isinstance(packed, (dict, list)):
                changed = _changed(packed, random.choice(list(_places(packed))), random)
                return base64.b64encode(msgpack.packb(changed, default=str)).decode()
    return random.choice(ODD)


@pytest.mark.parametrize("seed", range(4))
def test_a_file_that_was_changed_is_refused_or_can_be_read(exported: tuple[str, Path], seed: int) -> None:
    random = Random(seed)
    lines = [json.loads(line) for line in exported[1].read_text(encoding="utf-8").splitlines()]
    with EmbeddedServer() as server, Client(settings_for(server)) as client:
        for _ in range(100):
            number = random.randrange(len(lines))
            changed = list(lines)
            changed[number] = _changed(lines[number], random.choice(list(_places(lines[number]))), random)
            try:
                run = client.import_run([json.dumps(line) for line in changed])
            except (Rejected, OtherFormat):
                assert list(client._redis.scan_iter("*{*}*")) == []
                continue
            read_whole(run)
            (summary,) = client.runs()
            assert summary.run == run.id
            list(run.export())
            run.delete()


def test_more_than_a_run_may_have_is_refused_and_nothing_is_left(exported: tuple[str, Path]) -> None:
    lines = exported[1].read_text(encoding="utf-8").splitlines()
    contents = [bytes([number]) * 100_000 for number in range(40)]
    files = [
        json.dumps({"file": hashlib.sha256(content).hexdigest(), "content": base64.b64encode(content).decode()})
        for content in contents
    ]
    with EmbeddedServer() as server:
        bounds = {"limit_run_bytes": 1_000_000, "limit_submission_bytes": 1_000_000}
        settings = settings_for(server).model_copy(update=bounds)
        with Client(settings) as client:
            with pytest.raises(Rejected, match=r"more than the 2000000 bytes .*ACTS_LIMIT_RUN_BYTES"):
                client.import_run([lines[0], *files, *lines[1:]])
            assert list(client.runs()) == []
            assert client.import_run([lines[0], *files[:10], *lines[1:]]).id == exported[0]


def test_the_commands_go_through_a_pipe(backend: Backend, exported: tuple[str, Path]) -> None:
    with EmbeddedServer() as server:
        aside = Backend(settings_for(server), backend.meeting, backend.folder)
        told = command(aside, "import", "-", stdin=exported[1].read_bytes(), afresh=True)
        assert (told.code, told.stdout) == (0, f"{exported[0]}\n")
        again = command(aside, "import", str(exported[1]), "--json")
        assert (again.code, again.json["status"], "is here already" in again.stderr) == (2, "rejected", True)
        assert command(aside, "import", "/nowhere").code == 2
