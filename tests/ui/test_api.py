"""The HTTP API of `acts ui`: submitting, waiting, following and steering, and what is refused."""

from __future__ import annotations

import asyncio
import importlib
import json
import queue
import select
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from acts_celery.worker import limits
from acts_celery.worker.actions import ACTIONS
from acts_celery.worker.ui.access import Reader
from acts_celery.worker.ui.application import EventStream, Following, ViewerEvent
from acts_celery.worker.ui.page import Page
from tests.worker.backend import DEADLINE_SECONDS, Backend

from .sites import CONTROLLER, READER, Site, error_of, served

SAM, FAY, GUS = "sam-0123456789abc", "fay-0123456789abc", "gus-0123456789abc"
ALL = f"sam:submit+decide+control:{SAM},con:decide+control:{CONTROLLER},rea:read:{READER}"
OWN = f"fay:submit+control+own:{FAY}:runs=1,gus:submit+control+decide+own:{GUS}"
STREAMS = 300


def echoing(value: Any = 1) -> dict[str, Any]:
    """A submission that ends at once."""
    return {"solution": {"calls": [{"_tool": "echo", "value": value, "_outputPath": "†state.one"}]}}


def gated(gate: str) -> dict[str, Any]:
    """A submission whose call is at work until a gate opens."""
    call = {"_tool": "waitAtGate", "gate": gate, "value": 1, "_outputPath": "†state.one"}
    return {"solution": {"calls": [call]}}


@pytest.fixture(scope="module")
def api(backend: Backend) -> Iterator[Site]:
    with served(backend, ACTS_UI_TOKENS=ALL) as running:
        yield running


@pytest.fixture(scope="module")
def owned(backend: Backend) -> Iterator[Site]:
    """Pages on which each token sees its own runs alone."""
    with served(backend, ACTS_UI_TOKENS=OWN) as running:
        yield running


def submit(site: Site, document: Any, token: str = SAM, query: str = "", **headers: str) -> httpx.Response:
    return site.post(f"/api/runs{query}", document, token, **headers)


def test_a_workflow_is_found_and_started_by_its_name(backend: Backend, tmp_path: Path, name: str) -> None:
    needs = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    calls = [{"_tool": "echo", "value": "†input.n", "_outputPath": "†state.one"}]
    definition = {"context": [{"type": "input", "schema": needs}], "solution": {"calls": calls, "output": "†state.one"}}
    (tmp_path / "repeat.json").write_text(json.dumps(definition), encoding="utf-8")
    with served(backend, ACTS_UI_TOKENS=f"{ALL},{OWN}", ACTS_DELEGATES=str(tmp_path)) as site:
        (listed,) = site.get("/api/workflows", READER).json()["workflows"]
        assert (listed["name"], listed["needs"]) == ("repeat", ["n"])
        shown = site.get("/api/workflows/repeat", READER).json()
        assert (shown["problems"], shown["needs"]["schema"], shown["costs"]["calls"]) == ([], needs, 1)
        assert error_of(site.post("/api/workflows/repeat", {"n": 4}, READER)) == (403, "NotAdmitted")
        for status in (201, 200):
            begun = site.post("/api/workflows/repeat?tag=a%3D1", {"n": 4}, SAM, **{"Idempotency-Key": name})
            assert (begun.status_code, begun.json()["run"]) == (status, name)
        result = site.get(f"/api/runs/{name}/result?timeout=60", READER).json()
        assert (result["status"], result["output"]) == ("completed", 4)
        (run,) = site.get("/api/runs?tag=a%3D1&name=repeat", READER).json()["runs"]
        assert (run["run"], run["tags"]) == (name, ["a=1"])
        assert site.get("/api/runs?tag=a%3D1&tag=b%3D2", READER).json()["runs"] == []
        assert site.get("/api/runs?tag=a%3D1", FAY).json()["runs"] == []
        refused = site.post("/api/workflows/repeat", {"n": "four"}, SAM)
        assert (error_of(refused)[0], "integer" in refused.json()["detail"]) == (422, True)
        assert "repeat" in site.post("/api/workflows/repeet", {}, SAM).json()["detail"]


def at_gate(backend: Backend, site: Site, name: str) -> str:
    """The id of a run that was submitted and whose call is at work."""
    run = str(submit(site, gated(name)).json()["run"])
    backend.meeting.take(f"at:{name}")
    return run


def events(site: Site, run: str, *, after: str | None = None, most: int | None = None) -> list[dict[str, Any]]:
    """The events of a run until its end, or until so many have come and the connection is closed."""
    headers = {"Last-Event-ID": after} if after is not None else {}
    found: list[dict[str, Any]] = []
    with site.client(READER, **headers) as client, client.stream("GET", f"/api/runs/{run}/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        id_ = ""
        for line in response.iter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                id_ = value
            elif name == "data":
                found.append(json.loads(value))
                assert found[-1]["id"] == id_
                if len(found) == most:
                    break
    return found


def test_a_run_is_submitted_for_a_time_and_begun_before_it(api: Site) -> None:
    run = submit(api, echoing(), query="?at=2031-01-01T00:00:00Z").json()
    assert run["status"] == "scheduled"
    assert api.get(f"/api/runs/{run['run']}", READER).json()["at"] == "2031-01-01T00:00:00.000Z"
    assert run["run"] in {one["run"] for one in api.get("/api/runs?status=scheduled", READER).json()["runs"]}
    assert api.post(f"/api/runs/{run['run']}/resume", token=CONTROLLER).json()["status"] in ("running", "completed")
    assert api.get(f"/api/runs/{run['run']}/result?timeout=60", READER).json()["status"] == "completed"
    assert error_of(submit(api, echoing(), query="?at=soon")) == (422, "Rejected")


def test_the_progress_of_a_call_comes_as_an_event_and_is_in_the_overview(backend: Backend, api: Site) -> None:
    call = {"_tool": "reportAtGate", "gate": "api-progress", "_outputPath": "†state.one"}
    run = submit(api, {"solution": {"calls": [call]}}).json()["run"]
    event = events(api, run, most=2)[-1]
    assert {name: event[name] for name in ("kind", "index", "done", "total")} == {
        "kind": "progress",
        "index": 0,
        "done": 3,
        "total": 10,
    }
    [shown] = api.get(f"/api/runs/{run}", READER).json()["progress"]
    assert (shown["call"], shown["done"]) == ("0", 3)
    backend.meeting.open_gate("api-progress")


# A client that a generator makes from the document, as any user's would be.


@pytest.fixture(scope="module")
def made(api: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The functions and models of a client made from `/api/openapi.json`."""
    pytest.importorskip("openapi_python_client")
    folder = tmp_path_factory.mktemp("made")
    (folder / "openapi.json").write_text(api.get("/api/openapi.json", READER).text)
    (folder / "config.yml").write_text(
        "project_name_override: acts\npackage_name_override: acts_http\npost_hooks: []\n"
    )
    generator = Path(sys.executable).with_name("openapi-python-client")
    options = ["--path", "openapi.json", "--config", "config.yml", "--meta", "none", "--output-path", "acts_http"]
    told = subprocess.run([generator, "generate", *options], cwd=folder, capture_output=True, text=True, check=True)
    assert "WARNING" not in told.stdout.upper(), told.stdout
    sys.path.insert(0, str(folder))
    try:
        names = ("submit", "get_run", "get_result", "list_runs", "list_held", "approve", "cancel", "follow")
        ruling = ("list_questions", "approve_together", "list_rules", "revoke")
        functions = {name: importlib.import_module(f"acts_http.api.runs.{name}") for name in (*names, *ruling)}
        client = importlib.import_module("acts_http").AuthenticatedClient(base_url=api.url, token=SAM)
        yield SimpleNamespace(**functions, client=client, models=importlib.import_module("acts_http.models"))
        client.get_httpx_client().close()
    finally:
        sys.path.remove(str(folder))


def test_a_client_made_from_the_document_submits_waits_decides_streams_and_cancels(
    backend: Backend, made: Any, name: str
) -> None:
    client, models = made.client, made.models
    held = models.Submission.from_dict(echoing() | {"config": {"approve": ["*"]}})
    answer = made.submit.sync_detailed(client=client, body=held, name="by hand", tag=["tried"], idempotency_key=name)
    assert (answer.status_code, answer.parsed.run) == (201, name)
    going = made.get_result.sync(name, client=client)
    assert (type(going), going.run) == (models.RunProgress, name)
    next(event for event in backend.client.run(name).follow(timeout_seconds=60) if event.kind == "held")
    (call,) = made.list_held.sync(name, client=client)
    assert (call.tool, call.parameters.to_dict()) == ("echo", {"value": 1})
    decision = models.Approve(call=call.call, shown=call.shown)
    assert made.approve.sync(name, client=client, body=decision).run == name
    result = made.get_result.sync(name, client=client, timeout=60)
    assert (result.status, result.global_.to_dict()) == ("completed", {"state": {"one": 1}})
    assert [run.run for run in made.list_runs.sync(client=client, name="by hand", tag=["tried"], limit=1).runs] == [
        name
    ]
    streamed = made.follow.sync(name, client=client)
    kinds = [line.removeprefix("event: ") for line in streamed.splitlines() if line.startswith("event: ")]
    assert kinds == ["run", "held", "decided", "call", "run"]
    other = made.submit.sync(client=client, body=models.Submission.from_dict(gated(name))).run
    assert made.cancel.sync(other, client=client, body=models.Cancel()).status == "cancelled"
    refused = made.get_run.sync("none", client=client)
    assert (refused.status, refused.code) == (404, "run_not_found")
    backend.meeting.open_gate(name)


def test_a_client_made_from_the_document_answers_a_question_and_gives_and_revokes_a_rule(
    backend: Backend, made: Any, name: str
) -> None:
    client, models = made.client, made.models
    mail = {"type": "data", "data": {"to": "DE02"}, "_trust": ["mail"]}
    paying = [{"_tool": "echo", "value": "†data.to", "_outputPath": f"†state.{place}"} for place in "abc"]
    document = {"context": [mail], "solution": {"calls": paying}, "tools": {"echo": {"_trust": {"effects": True}}}}
    made.submit.sync(client=client, body=models.Submission.from_dict(document), idempotency_key=name)
    run = backend.client.run(name)
    next(found for _ in run.follow(timeout_seconds=60) if len(found := run.held()) == 3)
    first = made.list_held.sync(name, client=client)[0]
    ruling = models.Approve.from_dict({"call": first.call, "shown": first.shown, "rule": {"value": "shown"}})
    assert made.approve.sync(name, client=client, body=ruling).run == name
    (rule,) = made.list_rules.sync(name, client=client)
    assert (rule.call, rule.by, rule.revoked, rule.calls) == (first.call, "sam", None, [])
    assert made.revoke.sync(name, client=client, body=models.Revoke(rule=rule.rule)).run == name
    assert made.list_rules.sync(name, client=client)[0].revoked_by == "sam"
    (question,) = made.list_questions.sync(name, client=client)
    assert question.same.to_dict()["/parameters"] == {"value": "DE02"}
    assert {row.call: row.shown for row in question.rows} == question.calls.to_dict()
    answer = models.ApproveTogether.from_dict({"calls": question.calls.to_dict()})
    done = made.approve_together.sync(name, client=client, body=answer)
    assert (set(done.decisions.to_dict()), done.left.to_dict()) == (set(question.calls.to_dict()), {})
    assert made.get_result.sync(name, client=client, timeout=60).status == "completed"
    assert made.list_questions.sync(name, client=client) == []


def test_the_document_has_an_address_for_each_action_and_every_refusal_is_a_problem(api: Site) -> None:
    document = api.get("/api/openapi.json", READER).json()
    posted = {path.rpartition("/")[2] for path, methods in document["paths"].items() if "post" in methods}
    assert posted == {"runs", "{name}", *ACTIONS}
    for operation in (each for path in document["paths"].values() for each in path.values()):
        assert list(operation["responses"]["default"]["content"]) == ["application/problem+json"]
        assert operation["security"]
    assert error_of(api.get("/api/openapi.json", None)) == (401, "NoToken")


# Submitting.


def test_the_same_document_under_a_key_is_one_run_however_many_send_it(backend: Backend, api: Site, name: str) -> None:
    key = {"Idempotency-Key": name}
    with ThreadPoolExecutor(8) as pool:
        answers = [*pool.map(lambda _: submit(api, echoing(), **key), range(8))]
    assert sorted(answer.status_code for answer in answers) == [*[200] * 7, 201]
    assert {answer.json()["run"] for answer in answers} == {name}
    assert answers[0].headers["location"] == f"/api/runs/{name}"
    for other in (submit(api, echoing(2), **key), submit(api, echoing(), query="?allow=echo", **key)):
        assert error_of(other) == (409, "IdTaken")
    assert backend.wait(name).data()["state"] == {"one": 1}
    audited = [entry.audit for entry in backend.client.run(name).log(audit=True) if entry.audit]
    assert [(one.did, one.actor.name) for one in audited] == [("submitted", "sam")]


def test_a_submission_that_is_wrong_is_refused_with_every_error_and_its_place(api: Site) -> None:
    wrong = {"solution": {"calls": [{"_tool": "ech", "value": 1}, {"_tool": "echo", "value": "†state.none"}]}}
    answer = submit(api, wrong)
    assert error_of(answer) == (422, "Rejected")
    errors = {error["pointer"]: error["message"] for error in answer.json()["errors"]}
    assert set(errors) >= {"/solution/calls/0/_tool", "/solution/calls/1/value"}
    assert errors["/solution/calls/0/_tool"].count("echo") == 1
    large = submit(api, wrong | {"context": [{"type": "input", "text": "x" * 20_000}]})
    assert (error_of(large), large.json()["errors"]) == ((422, "Rejected"), answer.json()["errors"])
    narrow = submit(api, echoing(), query="?allow=add")
    assert error_of(narrow) == (422, "Rejected")
    assert "echo" in narrow.json()["detail"]


@pytest.mark.parametrize(
    ("query", "headers", "content", "expected"),
    [
        ("", {}, b"{", (400, "BadBody")),
        ("", {}, b"[" * 100_000, (400, "BadBody")),
        ("", {}, b'{"solution": {"calls": [], "calls": []}}', (400, "BadBody")),
        ("", {}, b"", (400, "BadBody")),
        ("", {}, b"5", (422, "Rejected")),
        ("", {"Content-Type": "text/plain"}, b"{}", (415, "NotJson")),
        ("", {"Origin": "http://evil.example"}, b"{}", (403, "WrongOrigin")),
        ("", {"Host": "evil.example"}, b"{}", (421, "WrongHost")),
        ("", {"Idempotency-Key": "a b"}, b"[]", (422, "Rejected")),
        ("?no_such_option=1", {}, b"{}", (400, "BadQuery")),
        ("?name=" + "x" * 300, {}, b"{}", (400, "BadQuery")),
    ],
)
def test_what_is_no_submission_is_refused(
    api: Site, query: str, headers: dict[str, str], content: bytes, expected: tuple[int, str]
) -> None:
    with api.client(SAM, **{"Content-Type": "application/json"} | headers) as client:
        assert error_of(client.post(f"/api/runs{query}", content=content)) == expected


def test_submitting_takes_its_right(api: Site) -> None:
    assert error_of(submit(api, echoing(), CONTROLLER)) == (403, "NotAdmitted")
    assert error_of(submit(api, echoing(), READER)) == (403, "NotAdmitted")
    assert error_of(submit(api, echoing(), "x" * 20)) == (401, "WrongToken")


def test_a_submission_that_is_too_large_is_refused_before_it_is_read_whole(backend: Backend) -> None:
    tokens = {"ACTS_UI_TOKENS": ALL}
    with served(backend, ACTS_LIMIT_SUBMISSION_BYTES="100KB", **tokens) as site:
        head = f"POST /api/runs HTTP/1.1\r\nHost: {site.host}\r\nContent-Type: application/json\r\n"
        promised = f"Authorization: Bearer {SAM}\r\nContent-Length: 1000000000\r\n\r\n" + "x" * 200_000
        with site.raw((head + promised).encode()) as connection:
            assert connection.recv(100).startswith(b"HTTP/1.1 413 ")
        assert submit(site, echoing("x" * 50_000)).status_code == 201


def test_a_submission_names_no_file_of_the_server(api: Site, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("a secret")
    shown = {"role": "user", "content": [{"type": "file", "file": str(secret)}]}
    answer = submit(api, {"context": [shown], "schema": {"type": "string"}})
    assert error_of(answer) == (422, "Rejected")
    assert answer.json()["errors"][0]["pointer"] == "/context"
    assert "a secret" not in answer.text


# Waiting and following.


def test_a_result_is_waited_for_by_many_without_a_thread_for_each(backend: Backend, api: Site, name: str) -> None:
    run = at_gate(backend, api, name)
    going = api.get(f"/api/runs/{run}/result", READER)
    assert (going.status_code, going.json()["status"]) == (202, "running")
    assert api.get(f"/api/runs/{run}/result?timeout=0.2", READER).status_code == 202
    waiting = 3 * limits.ACCESS_THREADS // 2
    with ThreadPoolExecutor(waiting) as pool:
        asked = [pool.submit(api.get, f"/api/runs/{run}/result?timeout=60", SAM) for _ in range(waiting)]
        while backend.redis.info("clients")["blocked_clients"] < waiting:
            pass
        assert api.get(f"/api/runs/{run}", READER).json()["status"] == "running"
        backend.meeting.open_gate(name)
        answers = [each.result() for each in asked]
    assert {answer.status_code for answer in answers} == {200}
    result = backend.wait(run)
    assert answers[0].json() == json.loads(json.dumps(result.to_dict()))
    assert error_of(api.get(f"/api/runs/{run}/result?timeout=1000")) == (400, "BadQuery")


def test_a_stream_that_was_cut_off_goes_on_behind_its_last_event(backend: Backend, api: Site, name: str) -> None:
    first = {"_tool": "echo", "value": 1, "_outputPath": "†state.first"}
    second = {"_tool": "waitAtGate", "gate": name, "value": "†state.first", "_outputPath": "†state.second"}
    run = submit(api, {"solution": {"calls": [first, second]}}).json()["run"]
    before = events(api, run, most=2)
    assert [(event["kind"], event["status"]) for event in before] == [("run", "running"), ("call", "done")]
    backend.meeting.open_gate(name)
    rest = events(api, run, after=before[-1]["id"])
    assert [event["id"] for event in before + rest] == [event["id"] for event in events(api, run)]
    assert (rest[-1]["kind"], rest[-1]["status"]) == ("run", "completed")
    assert events(api, run, after=rest[-1]["id"]) == []
    wrong = api.get(f"/api/runs/{run}/events", READER, **{"Last-Event-ID": "yesterday"})
    assert error_of(wrong) == (400, "BadQuery")


def test_a_stream_in_which_nothing_happens_is_kept_alive_and_ends_with_its_client(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEARTBEAT_SECONDS", 0.01)

    async def nothing() -> AsyncGenerator[ViewerEvent, None]:
        yield ViewerEvent("run", b"{}", id="1-0")
        await asyncio.Event().wait()

    async def look() -> list[bytes]:
        reader = Reader(Page(backend.redis, backend.settings))
        following = Following(backend.settings, reader)
        bodies: list[bytes] = []
        gone = asyncio.Event()

        async def send(message: Any) -> None:
            bodies.append(message.get("body", b""))
            if bodies.count(b": alive\n\n") == 2:
                gone.set()

        async def receive() -> dict[str, str]:
            await gone.wait()
            return {"type": "http.disconnect"}

        stream = EventStream(following, following.read("ann", nothing()))
        await asyncio.wait_for(stream({"type": "http"}, receive, send), DEADLINE_SECONDS)
        await following.close()
        reader.close()
        return bodies

    found = asyncio.run(look())
    assert found[1] == b"id: 1-0\nevent: run\ndata: {}\n\n"
    assert found.count(b": alive\n\n") >= 2


def test_hundreds_of_idle_streams_take_no_threads_and_give_their_places_back(backend: Backend, name: str) -> None:
    tokens = {"ACTS_UI_TOKENS": f"sam:submit+control:{SAM}", "ACTS_UI_VIEWERS": str(STREAMS)}
    with served(backend, **tokens) as site, ExitStack() as stack:
        run = at_gate(backend, site, name)
        asked = f"GET /api/runs/{run}/events HTTP/1.1\r\nHost: {site.host}\r\nAuthorization: Bearer {SAM}\r\n\r\n"
        streams = [stack.enter_context(site.raw(asked.encode())) for _ in range(STREAMS)]
        for each in streams:
            assert each.recv(15).startswith(b"HTTP/1.1 200")
        assert error_of(site.get(f"/api/runs/{run}/events", SAM)) == (503, "TooManyViewers")
        assert error_of(site.get(f"/api/runs/{run}/result?timeout=5", SAM)) == (503, "TooManyViewers")
        assert site.get(f"/api/runs/{run}", SAM).status_code == 200
        threads = len([*Path(f"/proc/{site.process.pid}/task").iterdir()])
        assert threads < 60
        for each in streams[: STREAMS // 2]:
            each.close()
        with site.client(SAM) as client:
            while (answer := client.get(f"/api/runs/{run}/result?timeout=0.01")).status_code == 503:
                pass
        assert answer.status_code == 202
        backend.meeting.open_gate(name)
        for each in streams[STREAMS // 2 :]:
            assert _until_end(each).rstrip().endswith(b"0")


def _until_end(connection: socket.socket) -> bytes:
    """What comes until the last chunk of a response."""
    found = b""
    while not found.endswith(b"0\r\n\r\n"):
        piece = connection.recv(65_536)
        assert piece, found
        found += piece
    return found


@contextmanager
def proxied(*sites: Site) -> Iterator[Site]:
    """A proxy that hands each connection to the next of some servers."""
    listening = socket.create_server(("127.0.0.1", 0))
    turn = cycle(sites)

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            server = socket.create_connection(next(turn).place)
            threading.Thread(target=_exchange, args=(client, server), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield replace(sites[0], place=listening.getsockname()[:2])
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def _exchange(client: socket.socket, server: socket.socket) -> None:
    with closing(client), closing(server):
        while True:
            for ready in select.select([client, server], [], [])[0]:
                try:
                    data = ready.recv(65_536)
                    (server if ready is client else client).sendall(data)
                except OSError:
                    return
                if not data:
                    return


def test_two_servers_behind_a_proxy_show_the_same(backend: Backend, api: Site, name: str) -> None:
    with served(backend, ACTS_UI_TOKENS=ALL) as other, proxied(api, other) as both:
        document = gated(name)
        answers = [submit(both, document, **{"Idempotency-Key": name}) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [201, 200, 200, 200]
        backend.meeting.take(f"at:{name}")
        looked = [both.get(f"/api/runs/{name}", READER).json() for _ in range(2)]
        assert looked[0]["counts"] == looked[1]["counts"] == {"running": 1}
        first = events(both, name, most=1)
        told: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=lambda: told.put(events(both, name, after=first[0]["id"])), daemon=True).start()
        assert both.post(f"/api/runs/{name}/pause", {}, SAM).json()["status"] == "paused"
        assert both.post(f"/api/runs/{name}/resume", {}, SAM).json()["status"] == "running"
        backend.meeting.open_gate(name)
        statuses = [event["status"] for event in told.get(timeout=DEADLINE_SECONDS) if event["kind"] == "run"]
        assert statuses == ["paused", "running", "completed"]
        results = [both.get(f"/api/runs/{name}/result?timeout=30", READER).json() for _ in range(2)]
        assert results[0] == results[1]


# Whose runs, and what may be done to them.


def test_another_neither_sees_nor_touches_a_run_that_was_submitted_here(
    backend: Backend, owned: Site, name: str
) -> None:
    run = submit(owned, gated(name), FAY, **{"Idempotency-Key": name}).json()["run"]
    for path in ("", "/result", "/result?timeout=5", "/events", "/changes"):
        assert error_of(owned.get(f"/api/runs/{run}{path}", GUS)) == (404, "RunNotFound")
    for action in ("cancel", "delete", "pause"):
        assert error_of(owned.post(f"/api/runs/{run}/{action}", {}, GUS)) == (404, "RunNotFound")
    assert owned.get("/api/runs", GUS).json()["runs"] == []
    taken = submit(owned, gated(name), GUS, **{"Idempotency-Key": name})
    assert error_of(taken) == (409, "IdTaken"), "the same document, but not the same owner"
    assert "running" not in taken.text
    assert error_of(submit(owned, echoing(), FAY)) == (429, "OverLimit")
    assert submit(owned, gated(name), FAY, **{"Idempotency-Key": name}).status_code == 200
    backend.meeting.open_gate(name)
    assert owned.get(f"/api/runs/{run}/result?timeout=60", FAY).json()["status"] == "completed"


def test_calls_are_added_and_refused_and_a_run_is_deleted(backend: Backend, api: Site, name: str) -> None:
    run = submit(api, echoing(), query="?allow=echo", **{"Idempotency-Key": name}).json()["run"]
    backend.wait(run)
    more = {"calls": [{"_tool": "echo", "value": 2, "_outputPath": "†state.two"}]}
    assert error_of(api.post(f"/api/runs/{run}/amend", {"amendment": more, "add": True}, CONTROLLER))[0] == 403
    assert api.post(f"/api/runs/{run}/amend", {"amendment": more, "add": True}, SAM).status_code == 200
    assert backend.wait(run).data()["state"] == {"one": 1, "two": 2}
    other = {"calls": [{"_tool": "add", "a": 2, "_outputPath": "†state.three"}]}
    refused = api.post(f"/api/runs/{run}/amend", {"amendment": other, "add": True}, SAM)
    assert error_of(refused) == (422, "Rejected"), "the run allows echo alone"
    assert refused.json()["errors"][0]["pointer"]
    for wrong in ({"messages": 5}, {"messages": ["x"]}):
        assert error_of(api.post(f"/api/runs/{run}/send", wrong, SAM)) == (400, "BadBody")
    assert error_of(api.post(f"/api/runs/{run}/say", {"message": "go on"}, SAM)) == (404, "NoLoop")
    assert error_of(api.post(f"/api/runs/{run}/delete", {"instances": []}, SAM)) == (400, "BadBody"), (
        "not the whole run"
    )
    assert api.post(f"/api/runs/{run}/delete", {}, SAM).json()["run"] == run
    assert error_of(api.get(f"/api/runs/{run}", READER)) == (404, "RunNotFound")
