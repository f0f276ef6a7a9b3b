"""The seed "013: Агент/Области видимости", example by example."""

from __future__ import annotations

from typing import Any

from .backend import Backend
from .command import FIXTURES, acts, completed, run_embedded, statuses, values
from .records import Records

AMBIGUOUS: list[dict[str, Any]] = [
    {"type": "state", "currentUser": {"id": "user_A", "name": "Алиса"}},
    {
        "type": "input",
        "mentionedUser": {"id": "user_B", "name": "Борис"},
        "instruction": "Отправь приветственное сообщение упомянутому выше пользователю.",
    },
]
SEND = {
    "_tool": "sendMessage",
    "_scopes": ["input"],
    "recipientId": "user_B",
    "message": "Добро пожаловать, Борис!",
}
LOG_EVENT = {"_tool": "logEvent", "_scopes": ["state"], "eventName": "user_login"}
SESSION: list[dict[str, Any]] = [
    {"type": "state", "userId": "user_A"},
    {"type": "input", "password": "never to be seen"},
]

ARTICLE = {"type": "state", "articleText": "Длинная и сложная статья..."}
SUMMARIZE = {"_tool": "summarizeArticle", "_delegate": "SummarizerAgent", "_scopes": ["state"]}
SUMMARIZER = {"type": "system", "message": "Ты — эксперт в составлении кратких summarizing."}

TEXTS = {"①": "Привет", "②": "Bonjour"}
PARENT: list[dict[str, Any]] = [{"type": "state", "_instance": name, "text": text} for name, text in TEXTS.items()]
TRANSLATE = [
    {"_tool": "translate", "_delegate": "translatorDelegate", "_instance": name, "_scopes": ["state"]} for name in TEXTS
]
TRANSLATOR = {"type": "system", "message": "Ты — переводчик."}

SEEN = "†data.seen"
STATE_AND_INPUT: list[dict[str, Any]] = [
    {"type": "state", "userId": "user_A", "user": {"name": "Алиса"}},
    {"type": "input", "query": "что нового"},
]


def solution(*calls: dict[str, Any], context: list[dict[str, Any]]) -> dict[str, Any]:
    """A submission of these calls, without `output` as the seed writes it."""
    return {"context": context, "solution": {"calls": list(calls)}}


def reveal(properties: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    """A submission whose one call answers with the context its activity received."""
    submission = solution({"_tool": "reveal", "_outputPath": SEEN, **meta}, context=STATE_AND_INPUT)
    if properties is not None:
        submission["tools"] = {"reveal": {"type": "object", "properties": properties}}
    return submission


def seen(document: Any) -> Any:
    """What the revealing call saw."""
    return values(document)["data"]["seen"]


# --- hints for a latent call ---


def test_the_scope_of_a_latent_call_is_a_hint_and_the_call_runs_nothing(backend: Backend) -> None:
    submission = solution(SEND, context=AMBIGUOUS)
    submission["tools"] = {
        "sendMessage": {
            "type": "object",
            "properties": {"recipientId": {"type": "string"}, "message": {"type": "string"}},
            "required": ["recipientId", "message"],
        }
    }
    document = completed(backend.run(submission))
    assert statuses(document) == ["latent"]
    assert values(document) == {
        "state": {"currentUser": {"id": "user_A", "name": "Алиса"}},
        "input": {key: value for key, value in AMBIGUOUS[1].items() if key != "type"},
    }
    assert [line["message"] for line in backend.log(document["run"])] == AMBIGUOUS


# --- context for an activity ---


def test_a_fire_and_forget_activity_receives_exactly_its_scope(records: Records) -> None:
    document = completed(run_embedded(solution(LOG_EVENT, context=SESSION), env=records.env))
    assert statuses(document) == ["sent"]
    assert records.take("logEvent") == {
        "name": "logEvent",
        "eventName": "user_login",
        "userId": "user_A",
        "context": {"state": {"userId": "user_A"}},
    }


def test_the_older_name_of_scopes_means_the_same(backend: Backend) -> None:
    call = {"_tool": "logEvent", "_imports": ["state"], "eventName": "user_login"}
    assert statuses(completed(backend.run(solution(call, context=SESSION)))) == ["sent"]
    assert backend.records.take("logEvent")["context"] == {"state": {"userId": "user_A"}}


def test_a_keyword_named_like_a_kind_receives_its_scope(backend: Backend) -> None:
    call = {**LOG_EVENT, "_tool": "trackEvent"}
    completed(backend.run(solution(call, context=SESSION)))
    record = backend.records.take("trackEvent")
    assert (record["eventName"], record["state"]) == ("user_login", {"userId": "user_A"})


def test_without_scopes_there_is_no_context(backend: Backend) -> None:
    assert seen(completed(backend.run(reveal()))) == {}


def test_each_scope_is_one_kind_by_name(backend: Backend) -> None:
    document = completed(backend.run(reveal(_scopes=["state", "input"])))
    assert seen(document) == {
        "state": {"userId": "user_A", "user": {"name": "Алиса"}},
        "input": {"query": "что нового"},
    }


def test_a_reference_is_a_narrower_scope(backend: Backend) -> None:
    assert seen(completed(backend.run(reveal(_scopes=["†state.user"])))) == {"state": {"user": {"name": "Алиса"}}}


def test_static_scopes_are_given_although_the_call_does_not_ask(backend: Backend) -> None:
    document = completed(backend.run(reveal({"_scopes": {"const": ["input"]}})))
    assert seen(document) == {"input": {"query": "что нового"}}


def test_scopes_asked_for_are_held_to_the_tools_schema() -> None:
    static = {"_scopes": {"const": ["input"]}}
    dynamic = {"_scopes": {"type": "array", "items": {"enum": ["state", "input"]}}}
    calls = [
        {"_tool": "static", "_scopes": ["input"]},
        {"_tool": "static", "_scopes": ["state"]},
        {"_tool": "dynamic", "_scopes": ["state"]},
        {"_tool": "dynamic", "_scopes": ["state", "input"]},
        {"_tool": "dynamic", "_scopes": ["input", "data"]},
    ]
    submission = solution(*calls, context=STATE_AND_INPUT)
    schemas = {"static": static, "dynamic": dynamic}
    submission["tools"] = {name: {"type": "object", "properties": scopes} for name, scopes in schemas.items()}
    result = acts("check", "-", "--json", stdin=submission)
    assert result.code == 2
    pointers = [error["pointer"] for error in result.json["errors"]]
    assert pointers == ["/solution/calls/1/_scopes", "/solution/calls/4/_scopes/1"]


def test_scopes_know_the_instance(backend: Backend) -> None:
    context = [*PARENT, {"type": "state", "tenant": "shared"}]
    calls = [{"_tool": "reveal", "_scopes": ["state"], "_outputPath": SEEN, "_instance": name} for name in TEXTS]
    document = completed(backend.run(solution(*calls, context=context)))
    for name, text in TEXTS.items():
        shown = values(document, name)["data"]["seen"]
        assert shown == {"state": {"tenant": "shared", "text": text}}


# --- context for a delegate ---


def run_in_code(submission: dict[str, Any], records: Records) -> Any:
    """A run whose delegates are code."""
    activities = FIXTURES / "seed_delegates.py"
    return completed(run_embedded(submission, activities=activities, env=records.env))


def test_delegates_in_code_receive_only_their_instances_state(records: Records) -> None:
    document = run_in_code(solution(*TRANSLATE, context=PARENT), records)
    assert statuses(document) == ["sent", "sent"]
    received = [records.take("translatorDelegate")["context"] for _ in TEXTS]
    assert sorted(received, key=str) == sorted([[{"type": "state", "text": text}] for text in TEXTS.values()], key=str)


def test_a_delegate_in_code_receives_the_scoped_messages_then_its_parameters_and_nothing_else(
    records: Records,
) -> None:
    context = [ARTICLE, {"type": "input", "secret": "not in scope"}, {"type": "text", "text": "nor this"}]
    article = ARTICLE["articleText"]
    asked = {**SUMMARIZE, "language": "ru", "of": "†state.articleText", "_outputPath": "†data.summary"}
    document = run_in_code(solution(SUMMARIZE, asked, context=context), records)
    assert statuses(document) == ["sent", "done"]
    received = [records.take("SummarizerAgent")["context"] for _ in range(2)]
    assert sorted(received, key=len) == [
        [ARTICLE],
        [ARTICLE, {"type": "input", "language": "ru", "of": article}],
    ]
    assert values(document)["data"]["summary"] == {"messages": 2}


def test_a_delegate_defined_as_a_request_is_solved_with_its_own_messages_and_the_scope(backend: Backend) -> None:
    # The model's script answers only where the delegate's own message and the scoped one are both there, and
    # says so where it sees more than that.
    context = [ARTICLE, {"type": "input", "secret": "not in scope"}]
    submission = solution({**SUMMARIZE, "_outputPath": "†state.summary"}, context=context)
    submission["delegates"] = {"SummarizerAgent": {"context": [SUMMARIZER], "schema": {"type": "string"}}}
    assert values(completed(backend.run(submission)))["state"]["summary"] == "Коротко."


def test_parallel_delegates_defined_as_requests_see_one_instance_each(backend: Backend) -> None:
    calls = [{**call, "_outputPath": "†state.english"} for call in TRANSLATE]
    submission = solution(*calls, context=[*PARENT, {"type": "input", "secret": "not in scope"}])
    submission["delegates"] = {"translatorDelegate": {"context": [TRANSLATOR], "schema": {}}}
    document = completed(backend.run(submission))
    assert values(document, "①")["state"] == {"text": "Привет", "english": "Hello"}
    assert values(document, "②")["state"] == {"text": "Bonjour", "english": "Good day"}
    assert values(document) == {"input": {"secret": "not in scope"}}


def test_a_delegate_whose_result_its_schema_forbids_fails_the_call(backend: Backend) -> None:
    submission = solution({**SUMMARIZE, "_outputPath": "†state.summary"}, context=[ARTICLE])
    submission["delegates"] = {"SummarizerAgent": {"context": [SUMMARIZER], "schema": {"type": "integer"}}}
    result = backend.run(submission)
    assert (result.code, statuses(result.json)) == (1, ["failed"])
    assert values(result.json)["state"] == {"articleText": ARTICLE["articleText"]}


def test_the_seeds_own_calls_to_delegates_are_sent_and_forgotten(backend: Backend) -> None:
    submission = solution(*TRANSLATE, context=PARENT)
    submission["delegates"] = {"translatorDelegate": {"context": [TRANSLATOR], "schema": {}}}
    document = completed(backend.run(submission))
    assert statuses(document) == ["sent", "sent"]
    assert values(document, "①") == {"state": {"text": "Привет"}}
