"""The seed "008: Агент/Вывод", example by example."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from .backend import Backend
from .command import ACTIVITIES, Finished, acts, completed, run_embedded, statuses, values

ALEX = {"type": "data", "data": {"user": {"name": "Alex", "status": "active"}}}
UPDATE = {"_tool": "updateUserStatus", "newStatus": "inactive", "_outputPath": "†data.user.status"}
WRITTEN = {"type": "data", "data": {"user": {"status": "inactive"}}, "_call": UPDATE}

DYNAMIC = {"_outputPath": {"type": "string", "description": "Путь для сохранения сводки.", "pattern": "^†"}}
PRESCRIBED = {"_outputPath": {"type": "string", "const": "†data.user.summary"}}


def summarize(properties: dict[str, Any], **meta: str) -> dict[str, Any]:
    """A submission calling a tool of these (meta-)properties with these meta-properties."""
    return {
        "context": [ALEX],
        "tools": {"summarizeUser": {"type": "object", "properties": properties}},
        "solution": {"calls": [{"_tool": "summarizeUser", **meta}], "output": None},
    }


def check(submission: object) -> Finished:
    """Check a submission, the activities at hand."""
    return acts("check", "-", "--json", "--activities", str(ACTIVITIES), stdin=submission)


def test_a_call_with_an_output_path_changes_the_folded_value_and_nothing_beside_it() -> None:
    result = run_embedded({"context": [ALEX], "solution": {"calls": [UPDATE], "output": None}})
    assert values(completed(result)) == {"data": {"user": {"name": "Alex", "status": "inactive"}}}


def test_the_context_after_execution_is_the_one_the_document_shows(backend: Backend) -> None:
    document = completed(backend.run({"context": [ALEX], "solution": {"calls": [UPDATE], "output": None}}))
    first, second = backend.log(document["run"])
    assert (first["instance"], second["instance"]) == (None, None)
    assert first["message"] == ALEX
    date = second["message"].pop("_date")
    assert second["message"] == WRITTEN
    assert datetime.fromisoformat(date).utcoffset() == timedelta(0)


def test_the_newest_message_answers_first_and_older_ones_fill_in_what_it_does_not_say(
    backend: Backend,
) -> None:
    document = completed(
        backend.run(
            {
                "context": [ALEX, {**WRITTEN, "_date": "2025-10-26T12:00:00Z"}],
                "solution": {
                    "calls": [
                        {"_tool": "give", "value": "†data.user.status", "_outputPath": "†state.status"},
                        {"_tool": "give", "value": "†data.user.name", "_outputPath": "†state.name"},
                    ],
                    "output": None,
                },
            }
        )
    )
    assert values(document)["state"] == {"status": "inactive", "name": "Alex"}


def test_a_dynamic_path_may_be_any_that_begins_with_a_dagger() -> None:
    accepted = check(summarize(DYNAMIC, _outputPath="†state.about.user"))
    assert (accepted.code, accepted.json["valid"]) == (0, True)
    refused = check(summarize(DYNAMIC, _outputPath="about.user"))
    assert (refused.code, refused.json["valid"]) == (2, False)
    assert [error["pointer"] for error in refused.json["errors"]] == ["/solution/calls/0/_outputPath"]


def test_a_prescribed_path_is_filled_in_when_the_call_omits_it(backend: Backend) -> None:
    document = completed(backend.run(summarize(PRESCRIBED)))
    user = {"name": "Alex", "status": "active", "summary": "an engineer"}
    assert values(document) == {"data": {"user": user}}


def test_a_path_other_than_the_prescribed_one_is_refused() -> None:
    refused = check(summarize(PRESCRIBED, _outputPath="†data.user.status"))
    assert refused.code == 2
    assert [error["pointer"] for error in refused.json["errors"]] == ["/solution/calls/0/_outputPath"]


def after_each_other(path: str, *writes: tuple[str | None, Any]) -> list[dict[str, Any]]:
    """Calls writing one path in this order: each reads what the one before it wrote, so none overtakes."""
    calls: list[dict[str, Any]] = []
    for method, value in writes:
        call = {"_tool": "give", "value": value, "_outputPath": path}
        if method is not None:
            call["_outputMethod"] = method
        if calls:
            call["after"] = path
        calls.append(call)
    return calls


HISTORIES: dict[str, tuple[list[tuple[str | None, Any]], Any]] = {
    "set: the last one is right": ([("set", 1), ("set", 2)], 2),
    "no method is set": ([(None, 1), (None, 2)], 2),
    "merge": ([("merge", {"a": {"x": 1}}), ("merge", {"a": {"y": 2}})], {"a": {"x": 1, "y": 2}}),
    "push appends one element": ([("push", "a"), ("push", ["b"])], ["a", ["b"]]),
    "concat joins lists": ([("set", ["a"]), ("concat", ["b", "c"])], ["a", "b", "c"]),
    "concat joins strings": ([("concat", "при"), ("concat", "вет")], "привет"),
    "a set in the middle settles what was before it": (
        [("push", "old"), ("push", "older"), ("set", ["x"]), ("push", "y"), ("concat", ["z"])],
        ["x", "y", "z"],
    ),
    "assign merges one level deep": (
        [("set", {"a": {"x": 1}}), ("assign", {"a": {"y": 2}, "b": 3})],
        {"a": {"y": 2}, "b": 3},
    ),
}


def test_the_final_value_is_every_operation_since_the_last_set_in_order(backend: Backend) -> None:
    # One instance for each history: all of them in one run.
    calls = [
        {**call, "_instance": name}
        for name, (writes, _) in HISTORIES.items()
        for call in (
            *after_each_other("†data.journal", *writes),
            {"_tool": "give", "value": "†data.journal", "_outputPath": "†state.read"},
        )
    ]
    context = [{"type": "text", "text": "", "_instance": name} for name in HISTORIES]
    document = completed(backend.run({"context": context, "solution": {"calls": calls, "output": None}}))
    assert {name: values(document, name) for name in HISTORIES} == {
        name: {"data": {"journal": value}, "state": {"read": value}} for name, (_, value) in HISTORIES.items()
    }


def test_the_output_method_stays_with_the_message_it_belongs_to(backend: Backend) -> None:
    call = {"_tool": "give", "value": "a", "_outputPath": "†data.journal", "_outputMethod": "push"}
    document = completed(backend.run({"context": [], "solution": {"calls": [call], "output": None}}))
    (line,) = backend.log(document["run"])
    del line["message"]["_date"]
    # Nested at its path is the call's value, not the list it becomes part of.
    assert line["message"] == {
        "type": "data",
        "data": {"journal": "a"},
        "_call": call,
        "_outputMethod": "push",
    }


def test_a_call_may_work_on_what_a_call_listed_after_it_will_bring(backend: Backend) -> None:
    calls = [
        {"_tool": "greetUser", "userName": "†data.user.name", "_outputPath": "†state.greeting"},
        {"_tool": "give", "value": "Ада", "_outputPath": "†data.user.name"},
    ]
    document = completed(backend.run({"context": [], "solution": {"calls": calls, "output": None}}))
    assert values(document)["state"] == {"greeting": "Привет, Ада!"}


def test_a_chain_hands_each_result_to_the_next_call(backend: Backend) -> None:
    calls = [
        {"_tool": "give", "value": "Ада", "_outputPath": "†state.one"},
        {"_tool": "greetUser", "userName": "†state.one", "_outputPath": "†state.two"},
        {"_tool": "give", "value": {"of": ["†state.two"]}, "_outputPath": "†state.three"},
    ]
    document = completed(backend.run({"context": [], "solution": {"calls": calls, "output": None}}))
    assert values(document)["state"]["three"] == {"of": ["Привет, Ада!"]}


def test_a_latent_call_without_a_path_is_a_thought_that_leaves_nothing(backend: Backend) -> None:
    submission = {
        "context": [ALEX],
        "tools": {"think": {"type": "object", "properties": {"thought": {"type": "string"}}}},
        "solution": {
            "calls": [
                {"_tool": "think", "thought": "Сначала разобраться."},
                {"_tool": "think", "thought": "Потом сделать.", "_output": "понятно"},
                UPDATE,
            ],
            "output": None,
        },
    }
    document = completed(backend.run(submission))
    assert statuses(document) == ["latent", "latent", "done"]
    assert values(document) == {"data": {"user": {"name": "Alex", "status": "inactive"}}}
    assert len(backend.log(document["run"])) == 2


def test_an_explicit_call_without_a_path_is_sent_and_forgotten(backend: Backend) -> None:
    calls = [{"_tool": "greetUser", "userName": "Ада"}, UPDATE]
    document = completed(backend.run({"context": [ALEX], "solution": {"calls": calls, "output": None}}))
    assert statuses(document) == ["sent", "done"]
    assert backend.records.take("greetUser")["userName"] == "Ада"
    assert len(backend.log(document["run"])) == 2


def test_no_call_can_depend_on_one_that_is_forgotten() -> None:
    calls = [
        {"_tool": "give", "value": "lost"},
        {"_tool": "give", "value": "†state.lost", "_outputPath": "†state.found"},
    ]
    refused = check({"context": [], "solution": {"calls": calls}})
    assert refused.code == 2
    assert [error["pointer"] for error in refused.json["errors"]] == ["/solution/calls/1/value"]


def test_an_output_path_writes_to_the_calls_own_instance(backend: Backend) -> None:
    submission = {
        "context": [
            {"type": "data", "_instance": name, "data": {"user": {"name": name, "status": "active"}}} for name in "①②"
        ],
        "solution": {"calls": [{**UPDATE, "_instance": "①"}], "output": None},
    }
    document = completed(backend.run(submission))
    assert values(document, "①") == {"data": {"user": {"name": "①", "status": "inactive"}}}
    assert values(document, "②") == {"data": {"user": {"name": "②", "status": "active"}}}
    assert values(document) == {}
    *_, line = backend.log(document["run"])
    del line["message"]["_date"]
    assert line["instance"] == "①"
    assert line["message"] == {
        "type": "data",
        "data": {"user": {"status": "inactive"}},
        "_call": {**UPDATE, "_instance": "①"},
        "_instance": "①",
    }
