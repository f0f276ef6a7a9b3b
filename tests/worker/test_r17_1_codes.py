"""Code that changes (SPEC R17), and calls that are given back."""

from __future__ import annotations

import json
import runpy
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from acts_celery import ActivitiesError, Client, DeadLetters, Run
from acts_celery.broker_config import EmbeddedServer, queue_names
from acts_celery.protocol.analysis.deployment import Coming
from acts_celery.protocol.calls.declarations import Contract
from acts_celery.worker.broker.attempts import CallId
from acts_celery.worker.cli.doctor_layers import differences
from acts_celery.worker.client.deployments import Deployments
from acts_celery.worker.limits import MOST_CODES
from acts_celery.worker.registry.activities import Policy, make_activity, version_of
from acts_celery.worker.store.keys import Field, Keys
from acts_celery.worker.store.scripts import ExecutedBy, server_ms
from tests.acceptance.command import Finished

from .backend import DEADLINE_SECONDS, Backend, Meeting, meeting_url, settings_apart, settings_for
from .fixtures import worker_activities
from .test_control_cli import command

# Code that changes (SPEC R17).

# Results say which worker carried out each call, with which version of its code (SPEC R11.9, R17.1).

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
    failing: Json = {"_tool": "pick", "path": "††state.b", "value": 1, "_outputPath": "†state.a"}
    run = near.client.submit_document(
        {"solution": {"calls": [failing, CALLS[0]]}, "config": {"approve": ["versioned"]}}
    )
    while not run.held():
        time.sleep(0.02)
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
    assert [fields[Field.CODE] for _, fields in found if Field.CODE in fields] == [b"0"] * 50
    assert near.redis.hgetall(keys.codes) == {ExecutedBy("near@here", "7").pack().encode(): b"0"}


def test_no_more_are_noted_than_a_run_may_have(near: Backend) -> None:
    run = near.client.submit_document({"solution": {"calls": CALLS[:1]}, "config": {"approve": ["*"]}})
    while not run.held():
        time.sleep(0.02)
    others: Any = {ExecutedBy(f"other{n}", None).pack(): n for n in range(MOST_CODES)}
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


# `acts check --runs` holds the runs under way against code that is not deployed yet (SPEC R17.2).

OLD = """
from acts_celery import activity, delegate

@activity
def reckon(n: int, word: str = "") -> int:
    return 2 * n

@activity
def word_of(n: int) -> str:
    return str(n)

@delegate("sage")
def sage(context: list[dict]) -> int:
    return 42
"""
NEW = """
from acts_celery import Annotated, activity
from pydantic import Field
from typing import Annotated

@activity
def reckon(n: Annotated[int, Field(le=10)], word: Annotated[str, Field(max_length=3)] = "") -> int:
    return 2 * n
"""
CALLS_CHECK_RUNS: list[Json] = [
    {"_tool": "word_of", "n": 1, "_outputPath": "†state.word"},
    {"_tool": "reckon", "n": 11, "_outputPath": "†state.a"},
    {"_tool": "reckon", "n": 3, "word": "†state.word", "_outputPath": "†state.b"},
    {"_tool": "reckon", "n": 4, "word": "ok", "_outputPath": "†state.c"},
    {"_tool": "ask", "_delegate": "sage", "_outputPath": "†state.d"},
    {"_tool": "reckon", "n": "†input.list", "_each": "n", "_outputPath": "†state.e"},
    {"_tool": "reckon", "n": 12},
]


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    folder = tmp_path_factory.mktemp("runs")
    with EmbeddedServer() as server:
        (folder / "old.py").write_text(OLD, encoding="utf-8")
        (folder / "new.py").write_text(NEW.replace("Annotated, activity", "activity"), encoding="utf-8")
        yield Backend(settings_for(server, activities=(str(folder / "old.py"),)), Meeting(meeting_url(server)), folder)


def exits(code: int, finished: Finished) -> Finished:
    assert finished.code == code, finished.stderr
    return finished


def test_calls_that_will_or_may_be_refused_are_named_with_the_reason(backend: Backend) -> None:
    tools = {"ask": {"type": "object", "properties": {"_delegate": {"const": "sage"}}}}
    context: list[Json] = [{"type": "input", "list": [1, 20]}]
    run = backend.client.submit_document({"context": context, "solution": {"calls": CALLS_CHECK_RUNS}, "tools": tools})
    new = ("--activities", str(backend.folder / "new.py"))
    told = exits(1, command(backend, "check", "--runs", *new, "--gone", "sage", "--json"))
    found = {line["index"]: (line["refused"], line["reason"]) for line in told.json_lines}
    assert {index: refused for index, (refused, _) in found.items()} == {
        1: "will", 2: "may", 4: "will", 5: "will", 6: "will",
    }  # fmt: skip
    assert "/n" in found[1][1]
    assert "/word: the value is string, and only string (length at most 3) is accepted" in found[2][1]
    assert "no code named 'sage'" in found[4][1]
    assert {line["run"] for line in told.json_lines} == {run.id}
    lines = exits(1, command(backend, "check", "--runs", *new)).stdout.splitlines()
    assert any(line.startswith(f"will  run {run.id} call 1 reckon: ") for line in lines)
    assert lines[-1] == "3 calls will be refused, 1 may be; 1 run under way"
    same = ("--activities", str(backend.folder / "old.py"))
    assert (
        exits(0, command(backend, "check", "--runs", *same)).stdout
        == "0 calls will be refused, 0 may be; 1 run under way\n"
    )
    run.cancel()
    assert command(backend, "check", "--runs", *new).stdout == "0 calls will be refused, 0 may be; 0 runs under way\n"


def test_calls_that_labels_of_the_new_code_hold_are_named(backend: Backend) -> None:
    labelled = OLD.replace("@activity\ndef reckon", "@activity(effects=True)\ndef reckon")
    labelled = labelled.replace("@activity\ndef word_of", '@activity(untrusted="mail")\ndef word_of')
    (backend.folder / "labelled.py").write_text(labelled, encoding="utf-8")
    run = backend.client.submit(solution={"calls": CALLS_CHECK_RUNS[:3]})
    other = backend.client.submit(solution={"calls": CALLS_CHECK_RUNS[:2]})
    new = ("--activities", str(backend.folder / "labelled.py"))
    (held,) = exits(0, command(backend, "check", "--runs", *new, "--json")).json_lines
    assert (held["run"], held["index"], held["refused"]) == (run.id, 2, "held")
    assert "'word' comes from mail" in held["reason"]
    line, summary = exits(0, command(backend, "check", "--runs", *new)).stdout.splitlines()
    assert line.startswith(f"held  run {run.id} call 2 reckon: ")
    assert summary == "0 calls will be refused, 0 may be, 1 may be held; 2 runs under way"
    run.cancel()
    other.cancel()


def test_what_was_sent_and_what_a_model_may_still_call_are_among_them(backend: Backend) -> None:
    context: list[Json] = [{"type": "state", "_instance": one} for one in ("①", "②")]
    calls: list[Json] = [{"_tool": "reckon", "n": 12, "_instance": "①"}, {"_tool": "word_of", "n": 1, "_instance": "②"}]
    calls[1]["_outputPath"] = "†state.word"
    sent = backend.client.submit(context, {"calls": calls})
    asked = backend.client.submit(["Reckon."], schema={"type": "integer"}, tools=["word_of"])
    new = ("--activities", str(backend.folder / "new.py"), "--gone", "word_of")
    told = exits(1, command(backend, "check", "--runs", *new, "--json")).json_lines
    found = {(line["run"], line["index"], line["instance"], line["code"], line["refused"]) for line in told}
    assert found == {
        (sent.id, 0, "①", "reckon", "will"),
        (sent.id, 1, "②", "word_of", "will"),
        (asked.id, None, None, "word_of", "may"),
    }
    sent.cancel()
    asked.cancel()


def test_what_a_run_that_has_ended_has_sent_is_among_them(backend: Backend) -> None:
    run = backend.client.submit([], {"calls": [{"_tool": "reckon", "n": 12}]})
    assert run.status()["status"] == "completed"
    new = ("--activities", str(backend.folder / "new.py"))
    line = f"will  run {run.id} call 0 reckon: /n: "
    assert line in exits(1, command(backend, "check", "--runs", *new)).stdout
    keys = Keys(backend.settings.key_prefix, run.id)
    backend.redis.delete(keys.outbox, keys.outbox_tasks)
    assert line not in command(backend, "check", "--runs", *new).stdout


def test_what_cannot_be_asked_is_refused(backend: Backend) -> None:
    bare = replace(backend, settings=backend.settings.model_copy(update={"activities": ()}))
    assert "needs the code" in exits(2, command(bare, "check", "--runs")).stderr
    assert "no FILE" in exits(2, command(backend, "check", "file.json", "--runs")).stderr
    assert "--gone goes with --runs" in exits(2, command(backend, "check", "file.json", "--gone", "x")).stderr
    assert "Missing argument" in exits(2, command(backend, "check")).stderr


@pytest.mark.parametrize("instances", [2_000, pytest.param(100_000, marks=pytest.mark.nightly)])
def test_many_live_calls_are_held_against_a_contract_in_seconds(backend: Backend, instances: int) -> None:
    context = [{"type": "state", "_instance": f"i{n}", "n": n} for n in range(instances)]
    plan = {"type": "plan", "calls": [{"_tool": "reckon", "n": "†state.n", "_outputPath": "†state.a"}]}
    run = backend.client.submit([plan, *context])
    schema = json.loads(json.dumps(backend.client.checker.registry.activities["reckon"].schema))
    schema["properties"]["n"]["maximum"] = instances - 11
    began = time.process_time()
    deployments = Deployments(backend.redis, "acts", Coming({"reckon": Contract("reckon", schema)}), lambda *_: {})
    found = list(deployments.refusals())
    took = time.process_time() - began
    run.cancel()
    assert len(found) == 10
    assert all(one.refusal.is_certain for one in found)
    assert took < max(1.0, instances / 10_000), took  # 100,000 in 10 s


# The version of registered code: given, else a digest of its module's source (SPEC R17.1).

SOURCE = "def add(a: int) -> int:\n    return a + {}\n"


def defined(path: Path, text: str) -> Callable[..., Any]:
    path.write_text(text, encoding="utf-8")
    function: Callable[..., Any] = runpy.run_path(str(path))["add"]
    return function


def test_it_is_a_digest_of_the_source_of_the_module(tmp_path: Path) -> None:
    first = version_of(defined(tmp_path / "a.py", SOURCE.format(1)))
    assert (len(first), int(first, 16) > 0) == (12, True)
    assert version_of(defined(tmp_path / "other.py", SOURCE.format(1))) == first
    assert version_of(defined(tmp_path / "a.py", SOURCE.format(10))) != first


def test_without_a_file_it_is_a_digest_of_what_was_compiled() -> None:
    def of(text: str) -> str:
        names: dict[str, Any] = {}
        exec(text, names)
        return version_of(names["add"])

    assert of(SOURCE.format(1)) == of(SOURCE.format(1)) != of(SOURCE.format(2))


def test_what_wraps_a_function_has_its_version(tmp_path: Path) -> None:
    add = defined(tmp_path / "a.py", SOURCE.format(1))

    class Adding:
        def __call__(self, a: int) -> int:
            return a

    assert version_of(partial(add, 1)) == version_of(add)
    assert version_of(Adding()) == version_of(Adding.__call__) == version_of(test_what_wraps_a_function_has_its_version)


@pytest.mark.parametrize("wrong", ["", 2, "x" * 101, "a\nb"])
def test_a_version_is_a_short_text(wrong: Any) -> None:
    from acts_celery import activity, delegate

    for register in (activity("versioned", version=wrong), delegate("versioned", version=wrong)):
        with pytest.raises(ActivitiesError, match='such as version="2"'):
            register(lambda context: None)


def test_an_activity_has_the_digest_where_none_is_given(tmp_path: Path) -> None:
    add = defined(tmp_path / "a.py", SOURCE.format(1))
    assert make_activity(add, None, None, Policy()).version == version_of(add)


# A call that was checked under another contract than a worker has waits for a worker that fits (SPEC R17.3).

OLD_GIVEN_BACK = """
from acts_celery import activity, delegate

@activity(version="old")
def twofold(n: int) -> int:
    return 2 * n

@activity(version="old", queue="apart")
def tripled(n: int) -> int:
    return 3 * n

@activity(version="old")
def jotted(n: int) -> None: ...

@delegate("oracle", version="old")
def oracle(context: list[dict]) -> int:
    return 42
"""
NEW_GIVEN_BACK = """
from acts_celery import activity

@activity(version="new")
def twofold(n: int, times: int) -> int:
    return n * times

@activity(version="new", queue="apart")
def tripled(n: list[int]) -> int:
    return 3 * sum(n)

@activity(version="new")
def jotted(n: int, *, state: dict) -> None: ...
"""
DYING = f"""{NEW_GIVEN_BACK}
import os, signal

from acts_celery.worker.runner.deciding import Decider

Decider._given_back = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
"""
RESTING = f"""{NEW_GIVEN_BACK}
from acts_celery.worker.broker import messages

messages.SHORTEST_REST_SECONDS = messages.LONGEST_REST_SECONDS = 3600.0
"""
WIDER = (
    OLD_GIVEN_BACK.replace("twofold(n: int)", "twofold(n: int, note: str = '')")
    .replace("tripled(n: int)", "tripled(n: int | list[int])")
    .replace('"old"', '"new"')
)
CALLS_GIVEN_BACK: list[Json] = [
    {"_tool": "twofold", "n": "†input.n", "_outputPath": "†state.a || †state.wrong"},
    {"_tool": "tripled", "n": "†input.n", "_outputPath": "†state.b || †state.wrong"},
    {"_tool": "twofold", "n": "†input.many", "_each": "n", "_outputPath": "†state.c"},
    {"_tool": "ask", "_delegate": "oracle", "_outputPath": "†state.d"},
    {"_tool": "jotted", "n": "†input.n"},
    {"_tool": "twofold", "n": "†state.a", "_outputPath": "†state.e"},
]


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as server:
        yield server


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the client has loaded once, and workers load as it is when they start."""
    return tmp_path_factory.mktemp("code") / "code.py"


@pytest.fixture
def backend_given_back(
    server: EmbeddedServer, code: Path, tmp_path: Path, wait_seconds: float, request: pytest.FixtureRequest
) -> Backend:
    """Its client knows the old code."""
    code.write_text(OLD_GIVEN_BACK, encoding="utf-8")
    settings = settings_apart(
        server, f"a{abs(hash(request.node.name))}", activities=(str(code),), contract_wait_seconds=wait_seconds
    )
    return Backend(settings, Meeting(meeting_url(server)), tmp_path)


def queues(backend: Backend) -> tuple[str, str]:
    return "-Q", ",".join((*queue_names(backend.settings), "apart"))


def submitted(backend: Backend, code: Path) -> Run:
    tools = {"ask": {"type": "object", "properties": {"_delegate": {"const": "oracle"}}}}
    document = {
        "context": [{"type": "input", "n": 1, "many": [1, 2]}],
        "solution": {"calls": CALLS_GIVEN_BACK},
        "tools": tools,
        "config": {"approve": ["jotted"]},  # else the client sends it
    }
    run = backend.client.submit_document(document)
    code.write_text(NEW_GIVEN_BACK, encoding="utf-8")
    return run


def given_back(backend: Backend, run: Run, calls: set[int]) -> dict[int, str]:
    """Wait until the log says of these calls that they were given back; what it says of each."""
    found: dict[int, str] = {}
    last = "0-0"
    rounds = iter(range(12))
    while not calls <= found.keys():
        entries: Any = backend.redis.xread({Keys(backend.settings.key_prefix, run.id).log: last}, block=3_000)
        if not entries:
            assert next(rounds, None) is not None, f"given back: {sorted(found)}"
            continue
        for id_, fields in entries[0][1]:
            last = id_.decode()
            if Field.GIVEN_BACK in fields:
                assert int(fields[b"c"]) not in found, "the log has one note of each"
                found[int(fields[b"c"])] = fields[Field.GIVEN_BACK].decode()
    return found


def approve(run: Run) -> None:
    while not run.held():
        time.sleep(0.02)
    run.approve(4)


@pytest.mark.parametrize("wait_seconds", [3600.0])
def test_calls_wait_for_a_worker_whose_code_admits_them_and_go_on_when_it_begins(
    backend_given_back: Backend, code: Path
) -> None:
    run = submitted(backend_given_back, code)
    code.write_text(RESTING, encoding="utf-8")
    with backend_given_back.worker("--name", "new@here", *queues(backend_given_back)):
        approve(run)
        why = given_back(backend_given_back, run, {0, 1, 2, 3})
        jotted = CallId(run.id, None, 4).member
        outbox = Keys(backend_given_back.settings.key_prefix, run.id).outbox
        while not cast(bytes, backend_given_back.redis.hget(outbox, jotted)).startswith(b"retry"):
            time.sleep(0.02)
    code.write_text(OLD_GIVEN_BACK, encoding="utf-8")
    with backend_given_back.worker("--name", "old@here", *queues(backend_given_back)):
        result = backend_given_back.wait(run.id)
        assert result.data()["state"] == {"a": 2, "b": 3, "c": [2, 4], "d": 42, "e": 4}
        assert {call.version for call in result.calls if call.status == "done"} == {"old"}
        while run.status()["background"]["done"] < 1:
            time.sleep(0.02)
    assert "contract" in why[0]
    assert "new@here has version new" in why[0]
    assert "times" in why[0]
    assert "new@here has no delegate 'oracle'" in why[3]


@pytest.mark.parametrize("wait_seconds", [1.5])
def test_a_call_fails_when_no_worker_came_and_is_retried_when_the_code_fits(
    backend_given_back: Backend, code: Path
) -> None:
    run = submitted(backend_given_back, code)
    with backend_given_back.worker("--name", "new@here", *queues(backend_given_back)):
        approve(run)
        result = backend_given_back.wait(run.id)
        statuses = [call.status for call in result.calls]
        assert statuses == ["failed", "failed", "failed", "failed", "sent", "skipped"]
        types = [(call.error or {}).get("type") for call in result.calls]
        assert types == ["ContractChanged"] * 4 + [None, None]
        assert "wrong" not in result.data().get("state", {}), (
            "it is no exception of the code, so no alternative takes it"
        )
        letters = DeadLetters(backend_given_back.redis, backend_given_back.settings)
        while not letters.count():
            time.sleep(0.02)
        (letter,) = letters.list(run.id)
        assert letter.error_type == "ContractChanged"
        assert "asks for state" in letter.error_message
    code.write_text(OLD_GIVEN_BACK, encoding="utf-8")
    with backend_given_back.worker("--name", "old@here", *queues(backend_given_back)):
        run.retry()
        letters.resend([letter.id])
        assert backend_given_back.wait(run.id).data()["state"] == {"a": 2, "b": 3, "c": [2, 4], "d": 42, "e": 4}
        while run.status()["background"]["done"] < 1:
            time.sleep(0.02)


@pytest.mark.parametrize("wait_seconds", [60.0])
def test_a_call_that_another_contract_admits_does_not_wait(backend_given_back: Backend, code: Path) -> None:
    run = submitted(backend_given_back, code)
    code.write_text(WIDER, encoding="utf-8")
    with backend_given_back.worker("--name", "new@here", *queues(backend_given_back)):
        approve(run)
        result = backend_given_back.wait(run.id)
    assert result.data()["state"]["b"] == 3
    assert {call.status for call in result.calls} == {"done", "sent"}
    fields: Any = backend_given_back.redis.xrange(Keys(backend_given_back.settings.key_prefix, run.id).log)
    assert not any(Field.GIVEN_BACK in found for _, found in fields)


@pytest.mark.parametrize("wait_seconds", [60.0])
def test_while_its_run_is_paused_no_call_waits_for_code(backend_given_back: Backend, code: Path) -> None:
    run = backend_given_back.client.submit([], {"calls": [{"_tool": "twofold", "n": 1, "_outputPath": "†state.a"}]})
    code.write_text(NEW_GIVEN_BACK, encoding="utf-8")
    with backend_given_back.worker("--name", "new@here", *queues(backend_given_back)):
        given_back(backend_given_back, run, {0})
        run.pause()
    redis, wait_ms = backend_given_back.redis, 1_500
    paused_ms = server_ms(redis)
    with backend_given_back.worker(
        "--name", "later@here", *queues(backend_given_back), ACTS_CONTRACT_WAIT_SECONDS=str(wait_ms / 1000)
    ):
        while server_ms(redis) < paused_ms + wait_ms:
            redis.blpop(["never"], timeout=1)
        run.resume()
        result = backend_given_back.wait(run.id)
    (call,) = result.calls
    assert (call.error or {}).get("type") == "ContractChanged"
    statuses: Any = redis.xrange(Keys(backend_given_back.settings.key_prefix, run.id).statuses)
    moments = {fields[b"s"]: int(id_.partition(b"-")[0]) for id_, fields in statuses}
    assert moments[b"failed"] - moments[b"running"] >= wait_ms, "it has waited since the run went on"


@pytest.mark.nightly
@pytest.mark.parametrize("wait_seconds", [60.0])
def test_a_worker_that_dies_before_it_notes_what_it_gives_back_leaves_it_to_others(
    backend_given_back: Backend, code: Path
) -> None:
    run = backend_given_back.client.submit_document(
        {"context": [{"type": "input", "n": 1, "many": [1]}], "solution": {"calls": CALLS_GIVEN_BACK[:2]}}
    )
    code.write_text(DYING, encoding="utf-8")
    with backend_given_back.worker("--name", "new@here", *queues(backend_given_back)) as dying:
        assert dying.wait(DEADLINE_SECONDS) == -signal.SIGKILL
    code.write_text(OLD_GIVEN_BACK, encoding="utf-8")
    with backend_given_back.worker("--name", "old@here", *queues(backend_given_back)):
        assert backend_given_back.wait(run.id).data()["state"] == {"a": 2, "b": 3}
    fields: Any = backend_given_back.redis.xrange(Keys(backend_given_back.settings.key_prefix, run.id).log)
    assert not any(Field.GIVEN_BACK in found for _, found in fields)
