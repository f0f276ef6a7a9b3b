"""What the operator says of tools, in a file, adds to what they say of themselves (SPEC R16.1)."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest

from acts_celery import ActivitiesError, Content, activity, local
from acts_celery.broker_config import EmbeddedServer, load
from acts_celery.protocol.calls.trust import OperatorTrust
from acts_celery.worker.cli.doctor_layers import examine_operator
from acts_celery.worker.registry.request_definitions import operator_trust
from acts_celery.worker.runner.checking import Checker

from .backend import Backend, Meeting, meeting_url, settings_for
from .test_control_cli import command

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
FETCH = {"_tool": "fetch_ticket", "_outputPath": "†state.ticket"}
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
        (finding,) = client.check({"solution": {"calls": [FETCH, RING]}}).findings
        assert (finding.code, finding.to_dict()["source"]) == ("ACT601", {"label": "tickets", "call": 0})
        run = client.submit(solution={"calls": [FETCH, RING]}, config=REFUSE)
        assert [call.status for call in run.wait(timeout_seconds=60).calls] == ["done", "failed"]
        assert not rung


def test_r16_1_calls_that_come_later_are_held_against_what_was_said_when_the_run_was_submitted(tmp_path: Path) -> None:
    rung.clear()
    with local(TOOLS) as client:  # the worker knows no file: it was taken away, or is another one
        aware = type(client)(client.settings.model_copy(update={"trust": written(tmp_path, SAID)}), client._known)
        loop = client.model({"calls": [FETCH]}, {"calls": [RING]}, {"calls": [], "output": "done"})
        asked = aware.submit(["Ring when the ticket says so."], schema=str, tools=TOOLS[:2], config=REFUSE)
        assert asked.wait(timeout_seconds=60).output == "done"
        assert "Ring at four" not in str(loop.requests)
        run = aware.submit(solution={"calls": [FETCH]}, config=REFUSE)
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
        child = client.model({"calls": [FETCH]}, {"calls": [RING]}, {"calls": [], "output": "done"})
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
    (layer,) = examine_operator(settings)
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
