"""The seed "008: Agent/Output", the plain English edition: what it says in words of its own."""

from __future__ import annotations

from typing import Any

from .backend import Backend
from .command import completed, statuses, values

ALEX = {"type": "data", "data": {"user": {"name": "Alex", "status": "active"}}}
UPDATE = {"_tool": "updateUserStatus", "newStatus": "inactive", "_outputPath": "†data.user.status"}


def note(value: Any, method: str, **more: Any) -> dict[str, Any]:
    """A note on the whiteboard."""
    return {"_tool": "give", "value": value, "_outputPath": "†data.note", "_outputMethod": method, **more}


def test_the_whiteboard_after_holds_both_messages_and_both_values(backend: Backend) -> None:
    calls = [
        UPDATE,
        {"_tool": "give", "value": "†data.user.status", "_outputPath": "†state.status"},
        {"_tool": "give", "value": "†data.user.name", "_outputPath": "†state.name"},
    ]
    document = completed(backend.run({"context": [ALEX], "solution": {"calls": calls, "output": None}}))
    assert values(document) == {
        "data": {"user": {"name": "Alex", "status": "inactive"}},
        "state": {"status": "inactive", "name": "Alex"},
    }


def test_the_history_can_be_read_as_of_every_note(backend: Backend) -> None:
    calls = [
        note({"a": 1}, "set"),
        note({"b": 2}, "merge", after="†data.note"),
        note("final", "set", after="†data.note.b"),
    ]
    document = completed(backend.run({"context": [ALEX], "solution": {"calls": calls, "output": None}}))
    lines = backend.log(document["run"])
    assert lines[0]["message"] == ALEX
    asked = [backend.acts("show", document["run"], "--at", line["id"], "--json") for line in lines]
    past = [values(show.json)["data"].get("note") for show in asked]
    assert past == [None, {"a": 1}, {"a": 1, "b": 2}, "final"]


def test_the_hidden_notes_are_in_the_log_and_not_in_what_a_tool_sees(backend: Backend) -> None:
    calls = [
        UPDATE,
        {"_tool": "reveal", "_scopes": ["data"], "after": "†data.user.status", "_outputPath": "†state.seen"},
    ]
    document = completed(backend.run({"context": [ALEX], "solution": {"calls": calls, "output": None}}))
    assert values(document)["state"]["seen"] == {"data": {"user": {"name": "Alex", "status": "inactive"}}}
    message = backend.log(document["run"])[1]["message"]
    assert set(message) == {"type", "data", "_call", "_date"}


def test_a_tool_can_be_set_up_before_its_information_exists(backend: Backend) -> None:
    calls = [
        {"_tool": "greetUser", "userName": "†data.user.name", "_outputPath": "†state.greeting"},
        {"_tool": "give", "value": "Alex", "_outputPath": "†data.user.name"},
    ]
    document = completed(backend.run({"context": [], "solution": {"calls": calls, "output": None}}))
    assert values(document)["state"] == {"greeting": "Привет, Alex!"}
    written = [line["message"]["_call"]["_tool"] for line in backend.log(document["run"])]
    assert written == ["give", "greetUser"]


def test_fire_and_forget_does_its_job_and_leaves_no_note(backend: Backend) -> None:
    calls = [{"_tool": "logEvent", "eventName": "opened"}, {"_tool": "think", "about": "what next"}]
    submission = {
        "context": [ALEX],
        "tools": {"think": {"type": "object"}},
        "solution": {"calls": calls, "output": None},
    }
    document = completed(backend.run(submission))
    assert statuses(document) == ["sent", "latent"]
    assert backend.records.take("logEvent")["eventName"] == "opened"
    assert [line["message"] for line in backend.log(document["run"])] == [ALEX]


def test_the_result_may_be_sent_to_different_places(backend: Backend) -> None:
    calls = [
        {"_tool": "give", "value": 1, "_outputPath": "†state.one && †data.copy"},
        {"_tool": "fail", "_outputPath": "†state.fine || †state.trouble"},
    ]
    document = completed(backend.run({"context": [], "solution": {"calls": calls, "output": None}}))
    assert values(document) == {
        "state": {"one": 1, "trouble": {"type": "ValueError", "message": "it cannot be done"}},
        "data": {"copy": 1},
    }


def test_every_copy_of_a_task_writes_on_its_own_whiteboard(backend: Backend) -> None:
    context = [{"type": "data", "_instance": name, "data": {"who": name}} for name in ("a", "b", "c")]
    calls = [
        {"_tool": "give", "value": "†data.who", "_outputPath": "†state.me", "_instance": name} for name in ("a", "b")
    ]
    document = completed(backend.run({"context": context, "solution": {"calls": calls, "output": None}}))
    assert {name: values(document, name).get("state") for name in ("a", "b", "c")} == {
        "a": {"me": "a"},
        "b": {"me": "b"},
        "c": None,
    }
