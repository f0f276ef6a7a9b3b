"""A call that was checked under another contract than a worker has waits for a worker that fits (SPEC R17.3)."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from acts_celery import DeadLetters, Run
from acts_celery.broker_config import EmbeddedServer, queue_names
from acts_celery.worker.broker.attempts import CallId
from acts_celery.worker.store.keys import GIVEN_BACK, Keys
from acts_celery.worker.store.scripts import server_ms

from .backend import DEADLINE_SECONDS, Backend, Meeting, meeting_url, settings_apart

Json = dict[str, Any]
OLD = """
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
NEW = """
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
DYING = f"""{NEW}
import os, signal

from acts_celery.worker.lanes.deciding import Decider

Decider._given_back = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
"""
RESTING = f"""{NEW}
from acts_celery.worker.wire import giving_back

giving_back._SHORTEST_SECONDS = giving_back._LONGEST_SECONDS = 3600.0
"""
WIDER = (
    OLD.replace("twofold(n: int)", "twofold(n: int, note: str = '')")
    .replace("tripled(n: int)", "tripled(n: int | list[int])")
    .replace('"old"', '"new"')
)
CALLS: list[Json] = [
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
def backend(
    server: EmbeddedServer, code: Path, tmp_path: Path, wait_seconds: float, request: pytest.FixtureRequest
) -> Backend:
    """Its client knows the old code."""
    code.write_text(OLD, encoding="utf-8")
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
        "solution": {"calls": CALLS},
        "tools": tools,
        "config": {"approve": ["jotted"]},  # else the client sends it
    }
    run = backend.client.submit_document(document)
    code.write_text(NEW, encoding="utf-8")
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
            if GIVEN_BACK in fields:
                assert int(fields[b"c"]) not in found, "the log has one note of each"
                found[int(fields[b"c"])] = fields[GIVEN_BACK].decode()
    return found


def approve(run: Run) -> None:
    while not run.held():
        pass
    run.approve(4)


@pytest.mark.parametrize("wait_seconds", [3600.0])
def test_calls_wait_for_a_worker_whose_code_admits_them_and_go_on_when_it_begins(backend: Backend, code: Path) -> None:
    run = submitted(backend, code)
    code.write_text(RESTING, encoding="utf-8")
    with backend.worker("--name", "new@here", *queues(backend)):
        approve(run)
        why = given_back(backend, run, {0, 1, 2, 3})
        jotted = CallId(run.id, None, 4).member
        outbox = Keys(backend.settings.key_prefix, run.id).outbox
        while not cast(bytes, backend.redis.hget(outbox, jotted)).startswith(b"retry"):
            pass
    code.write_text(OLD, encoding="utf-8")
    with backend.worker("--name", "old@here", *queues(backend)):
        result = backend.wait(run.id)
        assert result.data()["state"] == {"a": 2, "b": 3, "c": [2, 4], "d": 42, "e": 4}
        assert {call.version for call in result.calls if call.status == "done"} == {"old"}
        while run.status()["background"]["done"] < 1:
            pass
    assert "contract" in why[0]
    assert "new@here has version new" in why[0]
    assert "times" in why[0]
    assert "new@here has no delegate 'oracle'" in why[3]


@pytest.mark.parametrize("wait_seconds", [1.5])
def test_a_call_fails_when_no_worker_came_and_is_retried_when_the_code_fits(backend: Backend, code: Path) -> None:
    run = submitted(backend, code)
    with backend.worker("--name", "new@here", *queues(backend)):
        approve(run)
        result = backend.wait(run.id)
        statuses = [call.status for call in result.calls]
        assert statuses == ["failed", "failed", "failed", "failed", "sent", "skipped"]
        types = [(call.error or {}).get("type") for call in result.calls]
        assert types == ["ContractChanged"] * 4 + [None, None]
        assert "wrong" not in result.data().get("state", {}), (
            "it is no exception of the code, so no alternative takes it"
        )
        letters = DeadLetters(backend.redis, backend.settings)
        while not letters.count():
            pass
        (letter,) = letters.list(run.id)
        assert letter.error_type == "ContractChanged"
        assert "asks for state" in letter.error_message
    code.write_text(OLD, encoding="utf-8")
    with backend.worker("--name", "old@here", *queues(backend)):
        run.retry()
        letters.resend([letter.id])
        assert backend.wait(run.id).data()["state"] == {"a": 2, "b": 3, "c": [2, 4], "d": 42, "e": 4}
        while run.status()["background"]["done"] < 1:
            pass


@pytest.mark.parametrize("wait_seconds", [60.0])
def test_a_call_that_another_contract_admits_does_not_wait(backend: Backend, code: Path) -> None:
    run = submitted(backend, code)
    code.write_text(WIDER, encoding="utf-8")
    with backend.worker("--name", "new@here", *queues(backend)):
        approve(run)
        result = backend.wait(run.id)
    assert result.data()["state"]["b"] == 3
    assert {call.status for call in result.calls} == {"done", "sent"}
    fields: Any = backend.redis.xrange(Keys(backend.settings.key_prefix, run.id).log)
    assert not any(GIVEN_BACK in found for _, found in fields)


@pytest.mark.parametrize("wait_seconds", [60.0])
def test_while_its_run_is_paused_no_call_waits_for_code(backend: Backend, code: Path) -> None:
    run = backend.client.submit([], {"calls": [{"_tool": "twofold", "n": 1, "_outputPath": "†state.a"}]})
    code.write_text(NEW, encoding="utf-8")
    with backend.worker("--name", "new@here", *queues(backend)):
        given_back(backend, run, {0})
        run.pause()
    redis, wait_ms = backend.redis, 1_500
    paused_ms = server_ms(redis)
    with backend.worker("--name", "later@here", *queues(backend), ACTS_CONTRACT_WAIT_SECONDS=str(wait_ms / 1000)):
        while server_ms(redis) < paused_ms + wait_ms:
            redis.blpop(["never"], timeout=1)
        run.resume()
        result = backend.wait(run.id)
    (call,) = result.calls
    assert (call.error or {}).get("type") == "ContractChanged"
    statuses: Any = redis.xrange(Keys(backend.settings.key_prefix, run.id).statuses)
    moments = {fields[b"s"]: int(id_.partition(b"-")[0]) for id_, fields in statuses}
    assert moments[b"failed"] - moments[b"running"] >= wait_ms, "it has waited since the run went on"


@pytest.mark.nightly
@pytest.mark.parametrize("wait_seconds", [60.0])
def test_a_worker_that_dies_before_it_notes_what_it_gives_back_leaves_it_to_others(
    backend: Backend, code: Path
) -> None:
    run = backend.client.submit_document(
        {"context": [{"type": "input", "n": 1, "many": [1]}], "solution": {"calls": CALLS[:2]}}
    )
    code.write_text(DYING, encoding="utf-8")
    with backend.worker("--name", "new@here", *queues(backend)) as dying:
        assert dying.wait(DEADLINE_SECONDS) == -signal.SIGKILL
    code.write_text(OLD, encoding="utf-8")
    with backend.worker("--name", "old@here", *queues(backend)):
        assert backend.wait(run.id).data()["state"] == {"a": 2, "b": 3}
    fields: Any = backend.redis.xrange(Keys(backend.settings.key_prefix, run.id).log)
    assert not any(GIVEN_BACK in found for _, found in fields)
