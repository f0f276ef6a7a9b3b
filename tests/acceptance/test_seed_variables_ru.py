"""The seed "008: Агент/Переменные", example by example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .backend import Backend
from .command import acts, completed, run_embedded, statuses, values

ADA = {"type": "input", "userName": "Ада"}
GREET = {"_tool": "greetUser", "userName": "†input.userName"}
VERIFY = {
    "_tool": "verifyUser",
    "userId": "perfect-stranger",
    "_outputPath": "†state.user.verified || †state.user.failed",
}
SUMMARY = {
    "_tool": "generateSummary",
    "text": "Длинный текст здесь...",
    "_outputPath": "†state.user.summary && †state.audit.summary",
}
FOLLOW_UPS = [
    {"_tool": "give", "value": "†state.user.verified", "_outputPath": "†state.welcome"},
    {"_tool": "give", "value": "†state.user.failed", "_outputPath": "†state.apology"},
]


def solution(*calls: dict[str, Any], context: Sequence[Any] = ()) -> dict[str, Any]:
    """A submission of these calls."""
    return {"context": list(context), "solution": {"calls": list(calls), "output": None}}


def test_a_reference_hands_the_activity_what_the_input_holds(backend: Backend) -> None:
    document = completed(backend.run(solution(GREET, context=[ADA])))
    assert backend.records.take("greetUser")["userName"] == "Ада"
    assert statuses(document) == ["sent"]
    assert values(document) == {"input": {"userName": "Ада"}}


def test_the_greeting_can_be_kept_under_an_output_path(backend: Backend) -> None:
    document = completed(backend.run(solution({**GREET, "_outputPath": "†state.greeting"}, context=[ADA])))
    assert values(document) == {"input": {"userName": "Ада"}, "state": {"greeting": "Привет, Ада!"}}


SHAPES: dict[str, dict[str, Any]] = {
    "own properties": {"type": "input", "userName": "Ада"},
    "named like the type": {"type": "input", "input": {"userName": "Ада"}},
    "data": {"type": "input", "data": {"userName": "Ада"}},
    "kind": {"type": "data", "kind": "input", "data": {"userName": "Ада"}},
}


def test_the_shapes_of_an_input_message_mean_the_same(backend: Backend) -> None:
    context = [{**message, "_instance": shape} for shape, message in SHAPES.items()]
    calls = [{**GREET, "_outputPath": "†state.greeting", "_instance": shape} for shape in SHAPES]
    document = completed(backend.run(solution(*calls, context=context)))
    for shape in SHAPES:
        assert values(document, shape) == {"input": {"userName": "Ада"}, "state": {"greeting": "Привет, Ада!"}}


def test_the_call_in_the_log_keeps_its_reference_unresolved(backend: Backend) -> None:
    call = {**GREET, "_outputPath": "†state.greeting"}
    document = completed(backend.run(solution(call, context=[ADA])))
    first, second = (line["message"] for line in backend.log(document["run"]))
    del second["_date"]
    assert first == ADA
    assert second == {"type": "data", "kind": "state", "data": {"greeting": "Привет, Ада!"}, "_call": call}


def test_text_that_came_out_of_a_reference_is_not_read_as_a_reference(backend: Backend) -> None:
    context = [{"type": "input", "userName": "†state.secret"}, {"type": "state", "secret": "42"}]
    document = completed(backend.run(solution({**GREET, "_outputPath": "†data.greeting"}, context=context)))
    assert values(document)["data"] == {"greeting": "Привет, †state.secret!"}


def test_two_daggers_are_the_text_with_one(backend: Backend) -> None:
    call = {"_tool": "give", "value": "††input.userName", "_outputPath": "†state.text"}
    assert values(completed(backend.run(solution(call, context=[ADA]))))["state"] == {"text": "†input.userName"}


def test_input_that_is_missing_is_reported_before_anything_runs(backend: Backend) -> None:
    refused = backend.acts("check", "-", "--json", stdin=solution(GREET))
    assert refused.code == 2
    assert [error["pointer"] for error in refused.json["errors"]] == ["/solution/calls/0/userName"]


def test_a_stranger_is_written_to_the_failed_path_and_only_that_branch_runs() -> None:
    document = completed(run_embedded(solution(VERIFY, *FOLLOW_UPS)))
    reason = {"reason": "unknown"}
    assert statuses(document) == ["done", "skipped", "done"]
    assert values(document) == {"state": {"user": {"failed": reason}, "apology": reason}}
    skipped = next(call for call in document["calls"] if call["status"] == "skipped")
    assert skipped["reason"]
    assert skipped["error"] is None


def test_a_known_user_is_written_to_the_verified_path_and_only_that_branch_runs(backend: Backend) -> None:
    document = completed(backend.run(solution({**VERIFY, "userId": "ada"}, *FOLLOW_UPS)))
    assert statuses(document) == ["done", "done", "skipped"]
    assert values(document) == {"state": {"user": {"verified": {"id": "ada"}}, "welcome": {"id": "ada"}}}


def test_an_exception_goes_to_the_last_alternative_and_is_no_failure(backend: Backend) -> None:
    document = completed(backend.run(solution({**VERIFY, "userId": "banned"}, *FOLLOW_UPS)))
    error = {"type": "LookupError", "message": "no such user"}
    assert statuses(document) == ["done", "skipped", "done"]
    assert values(document) == {"state": {"user": {"failed": error}, "apology": error}}


def test_the_branches_meet_again_where_either_is_read(backend: Backend) -> None:
    meet = {
        "_tool": "give",
        "value": "†state.user.verified || †state.user.failed",
        "_outputPath": "†state.verdict",
    }
    document = completed(backend.run(solution(VERIFY, meet)))
    assert values(document)["state"]["verdict"] == {"reason": "unknown"}


def test_a_path_that_was_not_declared_is_an_error_of_the_call(backend: Backend) -> None:
    result = backend.run(solution({**VERIFY, "userId": "lost", "_outputPath": "†state.user.verified"}))
    assert result.code == 1
    assert (result.json["status"], statuses(result.json)) == ("failed", ["failed"])
    assert "state" not in values(result.json)


def test_one_result_is_written_to_several_places_at_once(backend: Backend) -> None:
    document = completed(backend.run(solution(SUMMARY)))
    text = "Длинный текст"
    assert values(document) == {"state": {"user": {"summary": text}, "audit": {"summary": text}}}
    messages = [line["message"] for line in backend.log(document["run"])]
    dates = {message.pop("_date") for message in messages}
    # Which of several paths a message was written to cannot be read off its call, so a log may say it.
    assert [message.pop("_path", None) for message in messages] in ([None] * 2, SUMMARY["_outputPath"].split(" && "))
    assert messages == [
        {"type": "data", "kind": "state", "data": {"user": {"summary": text}}, "_call": SUMMARY},
        {"type": "data", "kind": "state", "data": {"audit": {"summary": text}}, "_call": SUMMARY},
    ]
    assert len(dates) == 1


def test_the_flexible_and_the_fixed_path_are_enforced_by_the_tools_schema() -> None:
    flexible = {"_outputPath": {"type": "string", "pattern": "^†"}}
    fixed = {"_outputPath": {"type": "string", "const": "†state.user.summary"}}
    tools = {name: {"type": "object", "properties": paths} for name, paths in (("free", flexible), ("set", fixed))}
    calls = [
        {"_tool": "free", "_output": "", "_outputPath": "†state.anything.at_all"},
        {"_tool": "free", "_output": "", "_outputPath": "state.user.summary"},
        {"_tool": "set", "_output": ""},
        {"_tool": "set", "_output": "", "_outputPath": "†state.user.summary"},
        {"_tool": "set", "_output": "", "_outputPath": "†state.user.other"},
    ]
    result = acts("check", "-", "--json", stdin=solution(*calls) | {"tools": tools})
    assert result.code == 2
    pointers = [error["pointer"] for error in result.json["errors"]]
    assert pointers == ["/solution/calls/1/_outputPath", "/solution/calls/4/_outputPath"]


def test_a_plan_is_one_scheme_run_for_every_instance(backend: Backend) -> None:
    submission = {
        "context": [
            {"type": "input", "_instance": "①", "userName": "Ада"},
            {"type": "input", "_instance": "②", "userName": "Борис"},
            {"type": "plan", "calls": [{**GREET, "_outputPath": "†state.greeting"}]},
        ]
    }
    document = completed(backend.run(submission))
    assert values(document, "①")["state"] == {"greeting": "Привет, Ада!"}
    assert values(document, "②")["state"] == {"greeting": "Привет, Борис!"}
    ran = sorted((call["index"], call["instance"], call["status"]) for call in document["calls"])
    assert ran == [(0, "①", "done"), (0, "②", "done")]
