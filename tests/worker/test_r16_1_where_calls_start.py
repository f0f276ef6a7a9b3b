"""Trust where calls start (SPEC R16.1), and how it is told."""

from __future__ import annotations

import base64
import json
import logging
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Annotated, Any

import msgpack
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from acts_celery import ActivitiesError, Client, Content, LocalClient, activity, local
from acts_celery.broker_config import EmbeddedServer, load, queue_names
from acts_celery.protocol import Rejected, check_submission
from acts_celery.protocol.calls.trust import OperatorTrust, ToolTrust, tool_trust_of
from acts_celery.protocol.engine.events import WriteEvent, relabelled
from acts_celery.protocol.state.fold import Fold
from acts_celery.protocol.state.labels import TRUSTED, marks_of
from acts_celery.worker.cli.doctor_layers import examined
from acts_celery.worker.cli.people import held_lines
from acts_celery.worker.registry.activities import Registry, registry
from acts_celery.worker.registry.request_definitions import operator_trust
from acts_celery.worker.runner.checking import Checker
from acts_celery.worker.store.waiting import await_background
from tests.protocol.test_r16_trust import LABELLED, Watched, labelled

from .backend import Backend, Meeting, meeting_url, settings_for
from .test_control import echo
from .test_control_cli import command
from .test_r14_people import wait_held

# Trust where calls start (SPEC R16.1).

# Labels are asked for where a call starts: those of the run, of the worker's code and of its operator (SPEC R16.1).

paid: list[str] = []


@activity(untrusted="mail")
def unread_letter() -> dict[str, Any]:
    """The newest letter."""
    return {"iban": "DE66", "list": ["DE66", "DE67"]}


@activity(effects=True)
def remit(iban: str, note: Annotated[str, Content] = "") -> str:
    """Pays."""
    paid.append(iban)
    return "paid"


@activity
def remit_plainly(iban: str) -> str:
    """Pays, and says nothing of it."""
    paid.append(iban)
    return "paid"


@activity
def copied(value: Any) -> Any:
    """The same."""
    return value


CODE: list[Any] = [unread_letter, remit, remit_plainly, copied]
LETTER = {"_tool": "unread_letter", "_outputPath": "†state.letter"}


def pay(iban: Any = "†state.letter.iban", tool: str = "remit", **more: Any) -> dict[str, Any]:
    return {"_tool": tool, "iban": iban, "_outputPath": "†state.paid", **more}


@pytest.fixture
def client() -> Iterator[LocalClient]:
    """Of a worker whose code has the labels."""
    paid.clear()
    with local(CODE) as client:
        yield client


def without_labels(known: Registry) -> Registry:
    """The code as it was before it had labels."""
    older = Registry()
    for one in known.activities.values():
        older.add_activity(replace(one, schema={key: said for key, said in one.schema.items() if key != "_trust"}))
    return older


def beside(client: LocalClient, code: Registry) -> Client:
    """A client of the same backend and models with other code."""
    known = Registry()
    known.activities, known.models = code.activities, client.checker.registry.models
    known.stand_ins = client.checker.registry.stand_ins
    return Client(client.settings, registry=known)


def older(client: LocalClient) -> Client:
    """A client of the same backend, with older code."""
    return beside(client, without_labels(client.checker.registry))


def older_code() -> list[Any]:
    """The activities before they had labels, under the same names."""

    def unread_letter() -> dict[str, Any]:
        return {"iban": "DE66"}

    def remit(iban: str, note: str = "") -> str:
        paid.append(iban)
        return "paid"

    return [unread_letter, remit, copied]


def held_for(run: Any, *labels: str) -> dict[str, Any]:
    """The call that is held for what decides on it; it is rejected, and the run ends."""
    (held,) = next(found for _ in run.follow(children=True, timeout_seconds=60) if (found := run.held()))
    doubt = held["untrusted"]
    assert {*doubt["chosen"], *(one for given in doubt["parameters"].values() for one in given)} == {*labels}
    run.reject(held["call"], reason="no")
    run.wait(timeout_seconds=60)
    assert not paid
    return dict(held)


def test_r16_1_a_client_without_the_operators_file_does_not_switch_it_off(tmp_path: Path) -> None:
    paid.clear()
    file = tmp_path / "trust.json"
    file.write_text(json.dumps({"remit_plainly": {"effects": True}}), "utf-8")
    with local(CODE, trust=str(file)) as client:
        unaware = Client(client.settings.model_copy(update={"trust": None}), registry=client.checker.registry)
        held_for(unaware.submit(solution={"calls": [LETTER, pay(tool="remit_plainly")]}), "mail")


def test_r16_1_a_client_with_older_code_does_not_switch_off_what_the_workers_code_says(client: LocalClient) -> None:
    plan = {"calls": [LETTER, pay()]}
    run = older(client).submit(solution=plan, config={"trust": {"otherwise": "refuse"}})
    assert [call.status for call in run.wait(timeout_seconds=60).calls] == ["done", "failed"]
    assert not paid
    held_for(older(client).submit(solution=plan), "mail")


def test_r16_1_an_archive_without_labels_is_forked_with_those_of_the_worker(client: LocalClient) -> None:
    run = client.submit(solution={"calls": [LETTER, pay()]}, config={"trust": {"otherwise": "refuse"}})
    run.wait(timeout_seconds=60)
    first = next(iter(run.log())).id
    head, *entries = (json.loads(line) for line in run.export())
    definition = msgpack.unpackb(base64.b64decode(head["definition"]))
    for field in ("trust", "contracts"):
        del definition[field]
    definition["config"] = {}
    head["definition"] = base64.b64encode(msgpack.packb(definition)).decode()
    run.delete()
    fork = client.import_run([json.dumps(line) for line in (head, *entries)]).fork(at=first)
    held_for(fork, "mail")


@pytest.mark.parametrize(
    ("changed", "is_held"),
    [({}, False), ({"schema": {"type": "string"}}, True), ({"_endorses": False}, True)],
    ids=["as it was", "any text", "not said"],
)
def test_r16_3_an_archive_endorses_only_by_a_definition_with_an_answer_of_few_values(
    tmp_path: Path, changed: dict[str, Any], is_held: bool
) -> None:
    paid.clear()
    judge = {"schema": {"enum": ["DE66", "DE67"]}, "context": [], "_endorses": True}
    (tmp_path / "judge.json").write_text(json.dumps(judge), "utf-8")
    ask = {"_tool": "ask", "_delegate": "judge", "text": "†state.letter", "_outputPath": "†state.iban"}
    tools: dict[str, Any] = {"ask": {"properties": {"_delegate": {}, "text": {}}}, "unread_letter": {}, "remit": {}}
    with local(CODE, delegates=(str(tmp_path),)) as client:
        client.model(*[{"output": "DE66"}] * 2)
        run = client.submit(solution={"calls": [LETTER, ask, pay("†state.iban")]}, tools=tools)
        assert run.wait(timeout_seconds=60).status == "completed"
        first = next(iter(run.log())).id
        head, *entries = (json.loads(line) for line in run.export())
        definition = msgpack.unpackb(base64.b64decode(head["definition"]))
        assert definition["trust"]["judge"] == {"endorses": True}
        definition["delegates"]["judge"] |= changed
        head["definition"] = base64.b64encode(msgpack.packb(definition)).decode()
        run.delete()
        assert paid == ["DE66"]
        paid.clear()
        fork = client.import_run([json.dumps(line) for line in (head, *entries)]).fork(at=first)
        if is_held:
            held_for(fork, "mail")
        else:
            fork.wait(timeout_seconds=60)
        assert paid == ([] if is_held else ["DE66"])


def test_r16_1_what_was_done_before_code_had_labels_has_them_in_calls_that_start_later() -> None:
    """Also what was made of it meanwhile. Of the runs of an installation before, here by an archive."""
    paid.clear()
    calls = [
        LETTER,
        {"_tool": "copied", "value": ["†state.letter.iban"], "_outputPath": "†state.ibans"},
        {"_tool": "copied", "value": "go", "_outputPath": "†state.go"},
        pay("†state.ibans.0", note="†state.go"),
    ]
    with local(older_code()) as before:
        run = before.submit(solution={"calls": calls})
        assert run.wait(timeout_seconds=60).data()["state"]["paid"] == "paid"
        moment = next(one.id for one in run.log() if one.message["_call"]["_outputPath"] == "†state.ibans")
        lines = list(run.export())
    assert paid == ["DE66"]
    paid.clear()
    with local(CODE) as client:
        fork = client.import_run(lines).fork(at=moment)
        assert held_for(fork, "mail")["untrusted"]["parameters"] == {"iban": ["mail"]}


@pytest.mark.parametrize("after", ["letter", "ibans"])
@pytest.mark.parametrize("is_plan", [True, False])
def test_r16_1_what_instances_had_before_code_had_labels_has_them_when_it_is_gathered(
    after: str, is_plan: bool
) -> None:
    """Whether it was gathered before or is gathered since."""
    paid.clear()
    gather = {"_tool": "copied", "value": "†state.letter.iban", "_gather": True, "_outputPath": "†data.ibans"}
    context = [{"type": "state", "_instance": name, "n": 1} for name in "ab"]
    rest = [gather, pay("†data.ibans.a", _instance="a")]
    letters = [LETTER] if is_plan else [{**LETTER, "_instance": name} for name in "ab"]
    plan = {"type": "plan", "calls": [*letters, *rest]}
    with local(older_code()) as before:
        run = before.submit([plan, *context]) if is_plan else before.submit(context, {"calls": plan["calls"]})
        assert run.wait(timeout_seconds=60).data("a")["state"]["paid"] == "paid"
        moment = [one.id for one in run.log() if after in one.message.get("_call", {}).get("_outputPath", "")][-1]
        lines = list(run.export())
    assert paid == ["DE66"]
    paid.clear()
    with local(CODE) as client:
        fork = client.import_run(lines).fork(at=moment)
        assert held_for(fork, "mail")["untrusted"]["parameters"] == {"iban": ["mail"]}


def test_r16_1_a_loop_of_a_client_with_older_code_is_not_shown_a_letter(client: LocalClient) -> None:
    model = client.model({"calls": [LETTER]}, {"calls": [pay("DE66")]}, {"calls": [pay()]}, {"output": "done"})
    asked = older(client).submit(["Pay what is due."], schema=str, tools=["unread_letter", "remit"])
    held = next(found for _ in asked.follow(timeout_seconds=60) if (found := asked.held()))
    assert [one["untrusted"]["parameters"] for one in held] == [{"iban": ["mail"]}]
    asked.reject(held[0]["call"], reason="no")
    asked.wait(timeout_seconds=60)
    assert "DE66" not in str(model.requests[:2])
    assert paid == ["DE66"]  # the model made that up; nobody has told it


def test_r16_1_a_loop_of_a_client_with_newer_code_is_not_shown_a_letter_by_older_workers() -> None:
    paid.clear()
    with local(older_code()) as worker:
        newer = beside(worker, registry)
        model = worker.model({"calls": [LETTER]}, {"calls": [pay()]}, {"output": "done"})
        run = newer.submit(["Pay what is due."], schema=str, tools=["unread_letter", "remit"])
        held_for(run, "mail")
        assert "DE66" not in str(model.requests)


def test_r16_1_a_child_run_keeps_the_labels_of_a_client_with_newer_code() -> None:
    paid.clear()
    payer = {"context": [], "schema": {"type": "string"}, "tools": ["unread_letter", "remit"]}
    tools = {"ask": {"type": "object", "properties": {"_delegate": {"const": "payer"}}}}
    call = {"_tool": "ask", "_delegate": "payer", "_outputPath": "†state.said"}
    with local(older_code()) as worker:
        newer = beside(worker, registry)
        model = worker.model({"calls": [LETTER]}, {"calls": [pay()]}, {"output": "done"})
        run = newer.submit(solution={"calls": [call]}, tools=tools, delegates={"payer": payer})
        held_for(run, "mail")
        assert "DE66" not in str(model.requests)


@pytest.mark.parametrize("iban", ["†input.iban", "†state.letter.iban"])
def test_r16_1_what_is_sent_and_forgotten_is_not_sent_by_an_older_client(client: LocalClient, iban: str) -> None:
    """Where it waits for nothing the client sends it by itself, and the worker that takes it looks."""
    letter = {"type": "input", "iban": "DE66", "_trust": ["mail"]}
    call = {"_tool": "remit", "iban": iban}
    run = older(client).submit([letter], {"calls": [LETTER, call] if "state" in iban else [call]})
    if "state" in iban:
        held_for(run, "mail")
        return
    run.wait(timeout_seconds=60)
    (dead,) = await_background(client.settings, time.monotonic() + 60)
    assert dead.error_type == "Untrusted"
    assert not paid


DEPLOYED = """
from pathlib import Path

from acts_celery import activity

@activity(untrusted="mail", queue="apart")
def fetched() -> str:
    return "DE66"

@activity(untrusted={"iban": "mail", "*": []}, queue="apart")
def fetched_one(number: int) -> dict[str, object]:
    return {"iban": "DE66", "id": f"no. {number}"}

@activity(effects=True, queue="apart")
def wired(iban: str) -> None:
    Path("wired").touch()

@activity(effects=True, retries=1, backoff_seconds=4)
def wired_at_last(iban: str) -> None:
    if not Path("tried").exists():
        Path("tried").touch()
        raise ConnectionError("not yet")
    Path("wired").touch()

@activity
def signed() -> int:
    return 1
"""
FETCH = {"_tool": "fetched", "_outputPath": "†state.iban"}
SIGN = {"_tool": "signed", "_outputPath": "†state.signed"}
WIRE = {"_tool": "wired", "iban": "†state.iban", "_outputPath": "†state.wired"}


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What this process has loaded once, and workers load as it is when they start."""
    return tmp_path_factory.mktemp("code") / "code.py"


@pytest.fixture
def deployed(tmp_path: Path, code: Path) -> Iterator[Backend]:
    """A backend whose code has no labels yet."""
    code.write_text(re.sub(r'untrusted=(\{.*\}|"mail"), |effects=True, ', "", DEPLOYED), "utf-8")
    with EmbeddedServer() as server:
        yield Backend(settings_for(server, activities=(str(code),)), Meeting(meeting_url(server)), tmp_path)


def test_r16_1_a_worker_of_a_queue_looks_at_what_those_of_runs_do_not_know(deployed: Backend, code: Path) -> None:
    instances = ",".join(queue_names(deployed.settings))
    letter = {"type": "input", "iban": "DE66", "_trust": ["mail"]}
    with deployed.worker("-Q", instances):
        run = deployed.client.submit([letter], {"calls": [FETCH, {**WIRE, "iban": "†input.iban"}]})
        code.write_text(DEPLOYED, "utf-8")
        with deployed.worker("-Q", "apart"):
            result = deployed.wait(run.id)
    error = result.calls[1].error
    assert error is not None
    assert (error["type"], "iban comes from mail" in error["message"]) == ("Untrusted", True)
    assert "ACTS_TRUST" in error["message"]
    assert [entry.message["_trust"] for entry in run.log() if "state" in str(entry.message.get("kind"))] == [["mail"]]
    assert not (deployed.folder / "wired").exists()


def test_r16_2_labels_that_a_worker_of_a_queue_adds_to_elements_are_those_of_the_list(
    deployed: Backend, code: Path
) -> None:
    each = {"_tool": "fetched_one", "number": "†input.n", "_each": "number", "_outputPath": "†state.l"}
    wires = [{**WIRE, "iban": f"†state.l.1.{field}", "_outputPath": f"†data.{field}"} for field in ("iban", "id")]
    with deployed.worker("-Q", ",".join(queue_names(deployed.settings))):
        run = deployed.client.submit([{"type": "input", "n": [1, 2]}], {"calls": [each, *wires]})
        code.write_text(DEPLOYED, "utf-8")
        with deployed.worker("-Q", "apart"):
            result = deployed.wait(run.id)
    assert [call.status for call in result.calls] == ["done", "failed", "done"]
    assert (result.calls[1].error or {})["type"] == "Untrusted"


def test_r16_1_labels_that_a_deployment_adds_hold_in_runs_under_way(deployed: Backend, code: Path) -> None:
    calls = [FETCH, SIGN, {**WIRE, "_scopes": ["†state.signed"]}]
    with deployed.worker("-Q", ",".join((*queue_names(deployed.settings), "apart"))):
        run = deployed.client.submit([], {"calls": calls}, config={"approve": ["signed"]})
        while not run.held() or run.status()["calls"].get("done") != 1:
            time.sleep(0.02)
    code.write_text(DEPLOYED, "utf-8")
    run.approve(1)
    with deployed.worker("-Q", ",".join((*queue_names(deployed.settings), "apart"))):
        held_for(run, "mail")
    assert not (deployed.folder / "wired").exists()


def test_r16_1_a_call_between_two_attempts_is_held_by_labels_that_a_deployment_adds(
    deployed: Backend, code: Path
) -> None:
    queues = ",".join((*queue_names(deployed.settings), "apart"))
    with deployed.worker("-Q", queues):
        run = deployed.client.submit([], {"calls": [FETCH, {**WIRE, "_tool": "wired_at_last"}]})
        while "attempt" not in [one["for"] for one in run.status().get("waiting_for", [])]:
            time.sleep(0.02)
    code.write_text(DEPLOYED, "utf-8")
    with deployed.worker("-Q", queues):
        (held,) = next(found for _ in run.follow(timeout_seconds=60) if (found := run.held()))
        assert not (deployed.folder / "wired").exists()
        run.approve(held["call"])
        assert deployed.wait(run.id).status == "completed"
    assert (deployed.folder / "wired").exists()
    assert run.status()["calls"] == {"done": 2}


@settings(max_examples=settings().max_examples // 2)
@given(labelled(), st.integers(0, 2**32))
def test_r16_1_what_a_log_without_labels_holds_gets_all_that_it_would_have_had(
    submission: dict[str, Any], seed: int
) -> None:
    """In whatever order calls end."""
    tools = {**LABELLED, "act": {"type": "object"}}
    bare = {**tools, "fetch": {"type": "object"}}
    try:
        plans = [check_submission({**submission, "tools": one, "config": {}}) for one in (tools, bare)]
    except Rejected:
        assume(False)
        raise
    runs = [Watched(plan, {"k": 1}, random=Random(seed)) for plan in plans]
    for run in runs:
        run.run()
    added = frozenset({"mail"})
    trust = {"fetch": ToolTrust(result=added)}
    shared = Fold()
    folds = {lane: Fold(shared) if lane is not None else shared for lane in plans[1].lanes}
    for message in submission["context"]:
        folds.setdefault(message.get("_instance"), Fold(shared)).append(message, "context")
    known = {(lane, call.index): call for lane, one in plans[1].lanes.items() for call in one.calls}
    for (lane, full), (_, event) in zip(runs[0].events, runs[1].events, strict=True):
        if isinstance(event, WriteEvent) and isinstance(full, WriteEvent) and event.call is not None:
            call = known[lane, event.call]
            found = relabelled(event, call, tool_trust_of(trust, call.tool, call.runner.name), folds[lane], added)
            had, has = marks_of(full.message or {}), marks_of(found.message or {})
            assert (had.labels <= has.labels, had.chosen <= has.chosen) == (True, True)
            assert getattr(full, "labels", TRUSTED) <= getattr(found, "labels", TRUSTED)
            if found.message is not None:
                folds[lane].append(found.message, "result", event.call)


# What the operator says of tools, in a file, adds to what they say of themselves (SPEC R16.1).

rung: list[str] = []


@activity
def fetch_ticket() -> str:
    """Fetches a ticket."""
    return "Ring at four."


@activity
def ring_bell(at: str) -> str:
    """Rings."""
    rung.append(at)
    return "rung"


@activity(effects=True)
def ring_twice(at: str, note: Annotated[str, Content] = "", by: str = "") -> str:
    """Rings twice."""
    rung.append(at)
    return "rung"


TOOLS: list[Any] = [fetch_ticket, ring_bell, ring_twice]
SAID = {"fetch_*": {"untrusted": ["tickets"]}, "ring_bell": {"effects": True}}
FETCH_OPERATOR = {"_tool": "fetch_ticket", "_outputPath": "†state.ticket"}
RING = {"_tool": "ring_bell", "at": "†state.ticket", "_outputPath": "†state.rung"}
REFUSE = {"trust": {"otherwise": "refuse"}}


def written(folder: Path, said: Any) -> str:
    path = folder / "trust.json"
    path.write_text(said if isinstance(said, str) else json.dumps(said), "utf-8")
    return str(path)


def test_r16_1_what_the_operator_says_is_checked_and_goes_with_a_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rung.clear()
    said = {**SAID, "bel*": {"effects": True}}
    with caplog.at_level(logging.WARNING), local(TOOLS, trust=written(tmp_path, said)) as client:
        assert "ACTS_TRUST speaks of 'bel*', which is no activity and no delegate here" in caplog.text
        (finding,) = client.check({"solution": {"calls": [FETCH_OPERATOR, RING]}}).findings
        assert (finding.code, finding.to_dict()["source"]) == ("ACT601", {"label": "tickets", "call": 0})
        run = client.submit(solution={"calls": [FETCH_OPERATOR, RING]}, config=REFUSE)
        assert [call.status for call in run.wait(timeout_seconds=60).calls] == ["done", "failed"]
        assert not rung


def test_r16_1_calls_that_come_later_are_held_against_what_was_said_when_the_run_was_submitted(tmp_path: Path) -> None:
    rung.clear()
    with local(TOOLS) as client:  # the worker knows no file: it was taken away, or is another one
        aware = type(client)(client.settings.model_copy(update={"trust": written(tmp_path, SAID)}), client._known)
        loop = client.model({"calls": [FETCH_OPERATOR]}, {"calls": [RING]}, {"calls": [], "output": "done"})
        asked = aware.submit(["Ring when the ticket says so."], schema=str, tools=TOOLS[:2], config=REFUSE)
        assert asked.wait(timeout_seconds=60).output == "done"
        assert "Ring at four" not in str(loop.requests)
        run = aware.submit(solution={"calls": [FETCH_OPERATOR]}, config=REFUSE)
        run.wait(timeout_seconds=60)
        client.find(run.id).amend({"calls": [RING]}, add=True)
        assert [call.status for call in run.wait(timeout_seconds=60).calls] == ["done", "failed"]
    assert not rung


def test_r16_1_a_delegate_that_has_tools_is_held_against_what_was_said_when_its_run_was_submitted(
    tmp_path: Path,
) -> None:
    rung.clear()
    reader = {
        "context": [{"type": "text", "text": "Ring when it says so."}],
        "schema": {"type": "string"},
        "tools": ["fetch_ticket", "ring_bell"],
    }
    ask = {"_tool": "ask", "_delegate": "ringer", "_outputPath": "†state.said"}
    tools = {"ask": {"type": "object", "properties": {"_delegate": {"const": "ringer"}}}}
    with local(TOOLS) as client:  # the worker knows no file
        aware = type(client)(client.settings.model_copy(update={"trust": written(tmp_path, SAID)}), client._known)
        child = client.model({"calls": [FETCH_OPERATOR]}, {"calls": [RING]}, {"calls": [], "output": "done"})
        run = aware.submit(solution={"calls": [ask]}, tools=tools, delegates={"ringer": reader})
        (held,) = next(found for _ in run.follow(children=True, timeout_seconds=60) if (found := run.held()))
        assert (held["tool"], held["untrusted"]["parameters"]) == ("ring_bell", {"at": ["tickets"]})
        run.reject(held["call"], reason="who says so")
        result = run.wait(timeout_seconds=60)
    assert result.data()["state"]["said"] == "done"
    assert "Ring at four" not in str(child.requests)
    assert not rung


def test_r16_1_the_operator_of_who_asks_a_model_speaks_of_its_definition(tmp_path: Path) -> None:
    reader = {"context": [{"type": "text", "text": "Bonjour"}], "schema": {"type": "string"}}
    calls = [{"_tool": "ask", "_delegate": "reader", "_outputPath": "†state.said"}]
    with EmbeddedServer() as server:
        backend = Backend(settings_for(server), Meeting(meeting_url(server)), tmp_path)
        there = written(tmp_path, {"read*": {"untrusted": ["mail"]}})
        lanes, delegates = backend.settings.queue_instances, backend.settings.queue_delegates
        with backend.worker("-Q", lanes), backend.worker("-Q", delegates, ACTS_TRUST=there):
            run = backend.client.submit(solution={"calls": calls}, delegates={"reader": reader})
            assert backend.wait(run.id).data() == {"state": {"said": "Hello"}}
        assert [one.message["_trust"] for one in run.log()] == [["mail"]]


def test_r16_1_the_operator_takes_nothing_away_and_the_doctor_says_what_counts(tmp_path: Path) -> None:
    said = {"ring_twice": {"effects": True, "content": ["by"]}, "gong": {"effects": True}}
    settings = load(env_file=None, trust=written(tmp_path, said))
    with local(TOOLS) as client:
        checker = Checker(settings, client._known)
        for name in ("by", "note"):
            calls = [{"_tool": "ring_twice", "at": "4", name: "†input.page", "_outputPath": "†state.rung"}]
            context = [{"type": "input", "page": "x", "_trust": ["web"]}]
            found = checker.check({"context": context, "solution": {"calls": calls}}).findings
            assert [finding.code for finding in found] == ["ACT601"], name
    layer = examined("trust", settings)
    assert layer.ok
    for text in ("speaks of 'gong'", "does not call 'note' content", "calls 'by' of 'ring_twice' content"):
        assert text in layer.detail, text


def test_r16_1_the_doctor_names_workers_with_another_file(tmp_path: Path) -> None:
    with EmbeddedServer() as server:
        backend = Backend(settings_for(server), Meeting(meeting_url(server)), tmp_path)
        there = written(tmp_path, {"fetch": {"untrusted": ["mail"]}, "pay": {"effects": True}})
        with backend.worker("--name", "w0@here", ACTS_TRUST=there):
            assert "ACTS_TRUST says something else at w0@here than here" in command(backend, "doctor").stdout
            (tmp_path / "same.json").write_text('{"pay":{"effects":true},"fetch":{"untrusted":["mail"]}}', "utf-8")
            here = replace(backend, settings=backend.settings.model_copy(update={"trust": str(tmp_path / "same.json")}))
            assert "says something else" not in command(here, "doctor").stdout


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("{", "cannot be read as JSON"),
        ([], "must be an object"),
        ({"a*b": {}}, "/a*b must be a name"),
        ({"a": {"result": ["mail"]}}, "unknown key 'result'"),
        ({"a": {"untrusted": "mail"}}, "/a/untrusted must be a list"),
        ({"a": {"content": ["note"]}}, '/a/content says what of a call with effects decides nothing: add "effects"'),
        ({"a": {"effects": False}}, "/a/effects: has no effect here"),
        ({"a" * 70_000: {}}, "has more than 65536 bytes"),
    ],
)
def test_r16_1_a_file_that_says_something_else_is_refused(tmp_path: Path, said: Any, text: str) -> None:
    with pytest.raises(ActivitiesError) as refused:
        operator_trust(load(env_file=None, trust=written(tmp_path, said)))
    assert text in str(refused.value).replace(": must", " must").replace(": says", " says")


def test_r16_1_a_file_that_is_not_there_keeps_clients_from_starting(tmp_path: Path) -> None:
    with pytest.raises(ActivitiesError, match="cannot be read"):
        Checker(load(env_file=None, trust=str(tmp_path / "none.json")))


def test_r16_1_what_two_operators_say_is_joined_and_survives_a_round_trip() -> None:
    one = OperatorTrust.read({"a": {"effects": True, "content": ["x", "y"]}, "b*": {"untrusted": ["mail"]}})
    two = OperatorTrust.read({"a": {"effects": True, "content": ["y"]}, "bc": {"effects": True}})
    both = OperatorTrust.read((one | two).to_dict())
    assert both == one | two
    assert both.of("a").content == {"y"}
    assert (both.of("bc").effects, both.of("bc").result) == (True, frozenset({"mail"}))
    assert list(both.unknown(["a", "bx"])) == ["bc"]


# What others wrote starts no effect, on real workers (SPEC R16.1, R16.2, R16.4).

TOOLS_TRUST = {
    "echo": {"type": "object", "_trust": {"result": ["mail"]}},
    "add": {"type": "object", "_trust": {"effects": True, "content": ["b"]}},
}
PAY = {"_tool": "add", "a": "†state.amount", "b": 0, "_outputPath": "†state.paid"}


def test_r16_4_a_call_that_others_would_decide_is_held_with_the_way_and_runs_when_it_is_approved(
    backend: Backend,
) -> None:
    calls = [echo(3, "†state.amount"), PAY]
    run = backend.client.submit(solution={"calls": calls}, tools=TOOLS_TRUST)
    (held,) = wait_held(run)
    assert held["untrusted"] == {"chosen": [], "parameters": {"a": ["mail"]}, "ways": {"mail": [0]}}
    assert held["parameters"] == {"a": 3, "b": 0}
    assert "  others would decide: a comes from mail; mail → call 0" in held_lines(held)
    run.approve(1)
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]["paid"]) == ("completed", 3)
    assert [entry.message.get("_trust") for entry in run.log()] == [["mail"], ["mail"]]


def test_r16_4_in_every_instance_and_through_a_global_call(backend: Backend) -> None:
    context: list[dict[str, Any]] = [{"type": "state", "_instance": mark, "own": 1} for mark in "①②"]
    context[1]["_trust"] = ["page"]
    calls = [
        echo(3, "†data.amount"),
        *({**PAY, "a": "†data.amount || †state.own", "_instance": mark} for mark in "①②"),
        *({**PAY, "a": "†state.own", "_outputPath": "†state.b", "_instance": mark} for mark in "①②"),
    ]
    config = {"trust": {"otherwise": "refuse"}}
    run = backend.client.submit(context, {"calls": calls}, tools=TOOLS_TRUST, config=config)
    result = backend.wait(run.id)
    refused = [(call.index, call.instance) for call in result.calls if call.status == "failed"]
    assert refused == [(1, "①"), (2, "②"), (4, "②")]
    assert {call.error["type"] for call in result.calls if call.error is not None} == {"Untrusted"}


def test_r16_2_what_a_gather_call_gives_has_the_sources_of_all_instances(backend: Backend) -> None:
    context: list[dict[str, Any]] = [{"type": "state", "_instance": mark, "own": 1} for mark in "①②"]
    context[1]["_trust"] = ["page"]
    tools = {**TOOLS_TRUST, "echo": {"type": "object"}}
    gather = {**echo("†state.own", "†data.all"), "_gather": True}
    pay = {**PAY, "a": "†data.all.①"}
    run = backend.client.submit(context, {"calls": [gather, pay]}, tools=tools)
    (held,) = wait_held(run)
    assert held["untrusted"] == {"chosen": [], "parameters": {"a": ["page"]}, "ways": {"page": [0]}}
    run.reject(1, reason="no")
    backend.wait(run.id)


def test_r16_4_what_is_sent_and_forgotten_is_held_as_well(backend: Backend) -> None:
    sent = {"_tool": "add", "a": "†input.page", "b": 1}
    context = [{"type": "input", "page": 5, "_trust": ["web"]}]
    run = backend.client.submit(context, {"calls": [sent]}, tools=TOOLS_TRUST)
    (held,) = wait_held(run)
    assert held["untrusted"]["parameters"] == {"a": ["web"]}
    run.reject(0, reason="no")
    assert backend.wait(run.id).calls[0].status == "failed"


def test_r16_1_data_that_is_sent_names_its_sources(backend: Backend) -> None:
    promise = {"type": "input", "schema": {"properties": {"page": {"type": "integer"}}, "required": ["page"]}}
    config = {"promise_seconds": 60, "trust": {"otherwise": "refuse"}}
    pay = {**PAY, "a": "†input.page"}
    run = backend.client.submit([promise], {"calls": [pay]}, tools=TOOLS_TRUST, config=config)
    run.send({"type": "input", "page": 5, "_trust": ["web"]})
    (call,) = backend.wait(run.id).calls
    assert call.error is not None
    assert (call.error["type"], call.error["message"]) == ("Untrusted", "a comes from web")
    with pytest.raises(Rejected, match="must be a list of names of sources"):
        backend.client.submit([{"type": "input", "page": 5, "_trust": "web"}], {"calls": [pay]}, tools=TOOLS_TRUST)


LABELS = st.sets(st.sampled_from(["mail", "web"])).map(sorted)
WAYS = st.lists(st.sampled_from(["given", "constant", "letter", "pays"]), min_size=1, max_size=3)


def inside(way: str, below: str | None) -> dict[str, Any]:
    """A workflow that gives what it was given, a constant, or a letter; one `below` it is called first."""
    first = [] if below is None else [{"_tool": below, "_delegate": below, "a": "†input.a", "_outputPath": "†state.b"}]
    calls = {
        "given": {"_tool": "copied", "value": "†input.a", "_outputPath": "†state.x"},
        "constant": {"_tool": "copied", "value": "DE1", "_outputPath": "†state.x"},
        "letter": {"_tool": "unread_letter", "_outputPath": "†state.x"},
        "pays": pay("†input.a", _outputPath="†state.x"),
    }
    schema = {"type": "object", "properties": {"a": {}}}
    return {"context": [{"type": "input", "schema": schema}], "solution": {"calls": [*first, calls[way]]}}


@settings(max_examples=min(settings().max_examples, 200), suppress_health_check=[*HealthCheck], deadline=None)
@given(ways=WAYS, labels=LABELS)
def test_r16_2_law_labels_go_into_workflows_and_come_out_of_them(
    client: LocalClient, ways: list[str], labels: list[str]
) -> None:
    paid.clear()
    names = [f"w{number}" for number in range(len(ways))]
    delegates = {name: inside(way, below) for name, way, below in zip(names, ways, [*names[1:], None], strict=True)}
    calls = [
        {"_tool": "w0", "_delegate": "w0", "a": "†input.a", "_outputPath": "†state.out"},
        {"_tool": "copied", "value": "†state.out", "_outputPath": "†state.copy"},
        pay("†{state.copy}"),
    ]
    context = [{"type": "input", "a": "DE1", **({"_trust": labels} if labels else {})}]
    run = client.submit_document({"context": context, "delegates": delegates, "solution": {"calls": calls}})
    is_held_whole = "pays" in ways and bool(labels)
    expected = {*labels} if is_held_whole else {*labels, *(["mail"] if "letter" in ways else [])}
    if expected:
        wait_held(run, 1)
    else:
        run.wait(timeout_seconds=60)
    assert [call["call"] for call in run.held()] == (["0" if is_held_whole else "2"] if expected else [])
    for call in run.held():
        assert {one for given in call["untrusted"]["parameters"].values() for one in given} == expected
        run.reject(call["call"], reason="no")
        run.wait(timeout_seconds=60)
    assert len(paid) == (0 if is_held_whole else ways.count("pays")) + (not expected)
