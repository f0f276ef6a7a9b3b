"""Results say which worker carried out each call, with which version of its code (SPEC R11.9, R17.1)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from acts_celery import Client
from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.cli.doctor_servers import differences
from acts_celery.worker.registry.activities import version_of
from acts_celery.worker.store.keys import CODE, Keys
from acts_celery.worker.store.scripts import MOST_CODES, Code

from .backend import Backend, Meeting, meeting_url, settings_for
from .fixtures import worker_activities
from .test_control_cli import command

Json = dict[str, Any]
DIGEST = version_of(worker_activities.versioned)


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """A server of our own; two workers, one of them for the queue `lathe` and delegates alone."""
    with EmbeddedServer() as server:
        backend = Backend(settings_for(server), Meeting(meeting_url(server)), tmp_path_factory.mktemp("codes"))
        lanes, others = (
            ("--name", "near@here", "-Q", "instances,background"),
            ("--name", "far@there", "-Q", "lathe,delegates"),
        )
        with backend.worker(*lanes), backend.worker(*others):
            yield backend


CALLS: list[Json] = [
    {"_tool": "versioned", "value": 1, "_outputPath": "†state.a"},
    {"_tool": "add", "a": "†state.a", "b": 1, "_outputPath": "†state.b"},
    {"_tool": "remoteAdd", "a": 1, "b": 2, "_outputPath": "†state.c"},
    {"_tool": "d", "_delegate": "showContext", "_outputPath": "†state.d"},
    {"_tool": "echo", "value": "†input.list", "_each": "value", "_outputPath": "†state.e"},
    {"_tool": "echo", "value": "†state.none || †state.a", "_outputPath": "†state.f"},
    {"_tool": "note", "name": "unseen"},
]
EXPECTED = [
    ("near@here", "7"),
    ("near@here", DIGEST),
    ("far@there", DIGEST),
    ("far@there", DIGEST),
    ("near@here", DIGEST),
    ("near@here", DIGEST),
    (None, None),
]


def codes(calls: Any) -> list[Any]:
    return [(call["worker"], call["version"]) for call in calls]


def test_each_call_names_its_worker_and_the_version_of_its_code(near: Backend) -> None:
    result = near.run(CALLS, [{"type": "input", "list": [1, 2]}])
    assert [(call.worker, call.version) for call in result.calls] == EXPECTED
    assert codes(command(near, "show", result.run, "--json").json["calls"]) == EXPECTED
    ends = [line["end"] for line in command(near, "log", result.run, "--all", "--json").json_lines if "end" in line]
    assert {end["index"]: (end.get("worker"), end.get("version")) for end in ends if end["index"] != 4} == {
        index: code for index, code in enumerate(EXPECTED) if index != 4
    }


def test_a_fork_and_an_imported_run_say_it_too(near: Backend) -> None:
    result = near.run(CALLS[:6], [{"type": "input", "list": [1, 2]}])
    run = near.client.run(result.run)
    assert codes(run.fork(paused=True).result().to_dict()["calls"]) == EXPECTED[:6]
    with EmbeddedServer() as server, Client(settings_for(server)) as client:
        assert codes(client.import_run(run.export()).result().to_dict()["calls"]) == EXPECTED[:6]


def test_a_call_that_failed_names_them_and_one_that_a_person_rejected_names_none(near: Backend) -> None:
    failing: Json = {"_tool": "choose", "path": "††state.b", "value": 1, "_outputPath": "†state.a"}
    run = near.client.submit_document(
        {"solution": {"calls": [failing, CALLS[0]]}, "config": {"approve": ["versioned"]}}
    )
    while not run.held():
        pass
    run.reject(1, "no")
    result = near.wait(run.id)
    assert [(call.status, call.worker) for call in result.calls] == [("failed", "near@here"), ("failed", None)]


def test_what_a_call_holds_of_it_is_a_small_number(near: Backend) -> None:
    context = [{"type": "state", "_instance": f"i{n}", "n": n} for n in range(50)]
    plan = {"type": "plan", "calls": [{"_tool": "versioned", "value": "†state.n", "_outputPath": "†state.a"}]}
    run = near.client.submit([plan, *context])
    assert {(call.worker, call.version) for call in near.wait(run.id).calls} == {("near@here", "7")}
    keys = Keys("acts", run.id)
    found: Any = near.redis.xrange(keys.log)
    assert [fields[CODE] for _, fields in found if CODE in fields] == [b"0"] * 50
    assert near.redis.hgetall(keys.codes) == {Code("near@here", "7").pack().encode(): b"0"}


def test_no_more_are_noted_than_a_run_may_have(near: Backend) -> None:
    run = near.client.submit_document({"solution": {"calls": CALLS[:1]}, "config": {"approve": ["*"]}})
    while not run.held():
        pass
    others: Any = {Code(f"other{n}", None).pack(): n for n in range(MOST_CODES)}
    near.redis.hset(Keys("acts", run.id).codes, mapping=others)
    run.approve(0)
    (call,) = near.wait(run.id).calls
    assert (call.status, call.worker, call.version) == ("done", None, None)


def test_two_versions_of_the_code_of_a_tool_are_told_of(tmp_path: Path) -> None:
    source = (
        "from acts_celery import activity\n\n@activity(version={!r})\ndef twice(n: int) -> int:\n    return 2 * n\n"
    )
    with EmbeddedServer() as server:
        settings = settings_for(server, activities=(str(tmp_path / "code.py"),))
        backend = Backend(settings, Meeting(meeting_url(server)), tmp_path)
        plan = {"type": "plan", "calls": [{"_tool": "twice", "n": "†state.n", "_outputPath": "†state.m"}]}
        tools: Json = {"twice": {"type": "object", "properties": {"n": {"type": "integer"}}}}
        run = None
        for number, version in enumerate(("old", "new")):
            (tmp_path / "code.py").write_text(source.format(version), encoding="utf-8")
            with backend.worker("--name", f"w{number}@here"):
                if run is None:
                    document = {"context": [plan, {"type": "state", "_instance": "①", "n": 1}], "tools": tools}
                    run = backend.client.submit_document(document)
                    backend.wait(run.id)
                else:
                    run.amend([{**plan["calls"][0], "_instance": "①"}], add=True)  # type: ignore[dict-item]
                    backend.wait(run.id)
        assert run is not None
        assert [(call.worker, call.version) for call in run.result().calls] == [("w0@here", "old"), ("w1@here", "new")]
        lines = command(backend, "show", run.id).stdout.splitlines()
        assert "  2 versions of twice: old (w0@here), new (w1@here)" in lines
        assert json.loads(command(backend, "show", run.id, "--json").stdout)["calls"][1]["version"] == "new"


@pytest.mark.parametrize(("parameter", "what"), [("n: int", "versions"), ("n: str", "contracts")])
def test_doctor_names_workers_with_different_code(tmp_path: Path, parameter: str, what: str) -> None:
    source = "from acts_celery import activity\n\n@activity(version={!r})\ndef twice({}) -> int:\n    return 2 * n\n"
    with EmbeddedServer() as server, ExitStack() as workers:
        path = tmp_path / "code.py"
        backend = Backend(settings_for(server, activities=(str(path),)), Meeting(meeting_url(server)), tmp_path)
        for number, (version, taken) in enumerate((("old", "n: int"), ("new", parameter))):
            path.write_text(source.format(version, taken), encoding="utf-8")
            workers.enter_context(backend.worker("--name", f"w{number}@here"))
        told = command(backend, "doctor").stdout
    assert f"workers have different {what} of twice: old (w0@here), new (w1@here)" in told
    assert "start all workers with the same code" in told


def test_few_of_many_differences_are_named() -> None:
    code = {f"w{n}": {"activities": {f"a{m}": [str(n), ""] for m in range(7)}, "delegates": {}} for n in range(2)}
    told = list(differences(code))
    assert told[0] == "workers have different versions of a0: 0 (w0), 1 (w1)"
    assert told[-1] == "workers have different code of 2 more"
    assert not list(differences({"w0": code["w0"], "w1": code["w0"], "old": {}}))
