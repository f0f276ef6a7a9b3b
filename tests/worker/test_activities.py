"""Activities: schemas from signatures, what code is given, and what may come of it (SPEC R4.1a, R4.2, R4.4-R4.6)."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, BeforeValidator, Field

from acts_celery import ActivitiesError, Message, Output
from acts_celery.broker_config import EmbeddedServer
from acts_celery.broker_config import load as load_settings
from acts_celery.protocol.calls.tools import PLAIN, Tool
from acts_celery.worker.registry.activities import Policy, Registry, make_activity, registry
from acts_celery.worker.registry.loading import load
from acts_celery.worker.runner.application import make_application
from acts_celery.worker.runner.checking import Checker

from .backend import Backend, Meeting, settings_apart


class Address(BaseModel):
    street: str
    number: int = 1


def schema(function: Any) -> Any:
    return make_activity(function, None, None, Policy()).schema


def test_parameters_become_properties_and_those_without_a_default_are_required() -> None:
    def f(a: int, b: str = "x", *, c: float, d: bool = True) -> None: ...

    found = schema(f)
    assert {name: part["type"] for name, part in found["properties"].items()} == {
        "a": "integer", "b": "string", "c": "number", "d": "boolean"
    }  # fmt: skip
    assert found["required"] == ["a", "c"]
    assert found["properties"]["b"]["default"] == "x"
    assert found["additionalProperties"] is False


def test_optional_literal_and_described_parameters() -> None:
    def f(
        a: int | None = None,
        b: Literal["x", "y"] = "x",
        c: Annotated[str, Field(description="The city", min_length=2)] = "Rome",
        d: Any = None,
    ) -> None: ...

    properties = schema(f)["properties"]
    assert [part["type"] for part in properties["a"]["anyOf"]] == ["integer", "null"]
    assert properties["b"]["enum"] == ["x", "y"]
    assert (properties["c"]["description"], properties["c"]["minLength"]) == ("The city", 2)


def test_of_a_parameter_that_code_converts_nothing_is_known() -> None:
    def f(tags: Annotated[list[str], Field(description="Tags"), BeforeValidator(str)], n: int) -> None: ...

    properties = schema(f)["properties"]
    assert properties["tags"] == {"title": "Tags", "description": "Tags"}
    assert properties["n"]["type"] == "integer"


def test_models_are_described_in_place() -> None:
    def f(home: Address, others: list[Address]) -> None: ...

    found = schema(f)
    assert found["properties"]["home"] == {"$ref": "#/$defs/Address"}
    assert found["$defs"]["Address"]["required"] == ["street"]


def test_a_function_that_takes_any_keywords_admits_any_parameters() -> None:
    def f(a: int, **rest: Any) -> None: ...

    assert schema(f)["additionalProperties"] is True
    assert "rest" not in schema(f)["properties"]


def test_keyword_only_parameters_named_like_kinds_are_scopes() -> None:
    def f(a: int, *, state: dict[str, Any], input: dict[str, Any], other: int = 1) -> None: ...

    activity = make_activity(f, None, None, Policy())
    assert activity.scopes == ("state", "input")
    assert set(activity.schema["properties"]) == {"a", "other", "_scopes"}
    assert activity.schema["properties"]["_scopes"]["items"] == {"enum": ["state", "input"]}
    assert activity.schema["properties"]["_scopes"]["x-granted"] == ["state", "input"]
    tool = Tool("f", activity.schema)
    assert tool.problems({"a": 1, "_scopes": ["state", "†state", "†input.a", '†state["a"]']}) == []
    for other in ("data", "†data", "†stately", "†statesman.x"):
        assert tool.problems({"a": 1, "_scopes": [other]}) != []


def test_a_positional_parameter_named_like_a_kind_is_an_ordinary_one() -> None:
    def f(state: str) -> None: ...

    assert "state" in schema(f)["properties"]


def test_a_function_of_call_and_context_declares_nothing() -> None:
    def f(call: Any, context: Any) -> None: ...

    activity = make_activity(f, "named", "io", Policy())
    assert (activity.name, activity.queue, activity.takes_call, activity.schema) == (
        "named", "io", True, {"type": "object"}
    )  # fmt: skip


def test_r12_4_why_a_model_calls_it_is_given_to_no_code() -> None:
    def f(call: Any, context: Any) -> Any:
        return call

    bound = make_activity(f, None, None, Policy()).bind({"_tool": "f", "_reasoningForCall": "I must"}, {"a": 1}, {})
    assert bound() == {"_tool": "f", "a": 1}


def positional(a: int, /) -> None: ...
def variadic(*a: int) -> None: ...
def underscored(_a: int) -> None: ...
def unknown(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821  # that is the point
def unknown_inside(a: list["Nowhere"]) -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037  # likewise
def indescribable(a: object = object(), b: type[Registry] | Registry = Registry) -> None: ...


@pytest.mark.parametrize("function", [positional, variadic, underscored, unknown, unknown_inside, indescribable])
def test_a_signature_that_cannot_be_called_by_name_or_described_is_refused(function: Any) -> None:
    with pytest.raises(ActivitiesError, match=function.__name__):
        schema(function)


@pytest.mark.parametrize(
    "policy", [{"retries": -1}, {"timeout_seconds": 0}, {"backoff_seconds": -0.5}, {"backoff_max_seconds": -1}]
)
def test_a_policy_that_cannot_be_kept_is_refused(policy: dict[str, Any]) -> None:
    (name,) = policy
    with pytest.raises(ActivitiesError, match=f"{name} is -?[0-9.]+: "):
        Policy(**policy)


def test_two_functions_cannot_have_one_name_but_one_may_be_registered_twice() -> None:
    registry = Registry()
    first = make_activity(positional_free, "same", None, Policy())
    registry.add_activity(first)
    registry.add_activity(first)
    with pytest.raises(ActivitiesError, match="'same'"):
        registry.add_activity(make_activity(another_free, "same", None, Policy()))


def test_a_file_of_activities_may_also_be_imported_as_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "shop_imported_and_loaded"
    (tmp_path / f"{name}.py").write_text(
        "from acts_celery import activity\n\n@activity\ndef sold_once() -> None: ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module(name)
    load(str(tmp_path / f"{name}.py"))
    assert "sold_once" in registry.activities


def positional_free(a: int) -> None: ...
def another_free(a: int) -> None: ...


def test_scopes_that_a_call_leaves_out_are_those_of_the_signature(backend: Backend) -> None:
    context: list[Any] = [{"type": "state", "s": 1}, {"type": "input", "i": 2}, {"type": "data", "data": {"d": 3}}]
    result = backend.run([{"_tool": "countWords", "text": "one two", "_outputPath": "†data.r"}], context)
    assert result.data()["data"]["r"] == {"words": 2, "state": {"s": 1}, "input": {"i": 2}}


def test_scopes_of_a_call_narrow_those_of_the_signature(backend: Backend) -> None:
    context = [{"type": "state", "s": 1}, {"type": "input", "i": 2}]
    call = {"_tool": "countWords", "text": "one", "_scopes": ["input"], "_outputPath": "†data.r"}
    assert backend.run([call], context).data()["data"]["r"] == {"words": 1, "state": {}, "input": {"i": 2}}


def test_parameters_are_made_what_the_annotations_say(backend: Backend) -> None:
    call = {"_tool": "movePoint", "point": "†state.p", "by": {"x": 1, "y": 1}, "_outputPath": "†state.q"}
    result = backend.run([call], [{"type": "state", "p": {"x": 1}}])
    assert result.data()["state"]["q"] == {"x": 2, "y": 1}


def produce(backend: Backend, what: str) -> Any:
    result = backend.run([{"_tool": "produce", "what": what, "_outputPath": "†state.r"}])
    (call,) = result.calls
    return result.data()["state"]["r"] if call.error is None else call.error


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("model", {"x": 1, "y": 0}),
        ("dataclass", {"left": 1, "right": 2}),
        ("datetime", "2026-11-21T01:02:03Z"),
        ("tuple", [1, [2, 3]]),
        ("set", [7]),
        ("integer keys", {"1": "one"}),
    ],
)
def test_a_result_travels_as_json_values(backend: Backend, what: str, value: Any) -> None:
    assert produce(backend, what) == value


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("nan", "finite"),
        ("huge", "64 bits"),
        ("circular", "circle"),
        ("large", "bytes"),
        ("object", "serialize"),
        ("surrogate", "Unicode"),
    ],
)
def test_a_result_that_cannot_travel_fails_the_call_and_says_why(backend: Backend, what: str, reason: str) -> None:
    error = produce(backend, what)
    assert error["type"] == "CallFailed"
    assert reason in error["message"]
    assert len(error["message"]) < 500


def test_a_path_that_was_not_declared_fails_the_call(backend: Backend) -> None:
    result = backend.run([{"_tool": "choose", "path": "††state.elsewhere", "value": 1, "_outputPath": "†state.a"}])
    error = result.calls[0].error
    assert error is not None
    assert "not declared" in error["message"]


@pytest.mark.parametrize("tool", ["writeWhole", "writeWholeFar"])
def test_a_whole_message_may_be_returned_and_stays_in_the_calls_instance(backend: Backend, tool: str) -> None:
    message = {"type": "state", "_instance": "②", "a": {"b": 1}}
    context = [{"type": "state", "_instance": mark, "mark": mark} for mark in "①②"]
    result = backend.run([{"_tool": tool, "content": message, "_instance": "①", "_outputPath": "†state.a"}], context)
    assert result.data("①")["state"] == {"mark": "①", "a": {"b": 1}}
    assert result.data("②")["state"] == {"mark": "②"}


def test_a_plain_object_is_a_value_whatever_its_keys_are(backend: Backend) -> None:
    message = {"type": "state", "a": {"b": 1}}
    result = backend.run([{"_tool": "echo", "value": message, "_outputPath": "†state.a"}])
    assert result.data()["state"] == {"a": message}


def test_the_return_annotation_holds_for_the_result_where_no_output_schema_is_given(backend: Backend) -> None:
    activity: Any = {"_activity": {"const": "countLetters"}}
    tools = {"silent": {"properties": activity}, "admits": {"properties": {**activity, "_output": {}}}}
    calls: list[dict[str, Any]] = [
        {"_tool": tool, "text": value, "_outputPath": f"†state.{tool}{number} || †state.{tool}{number}failed"}
        for tool in ("countLetters", "silent", "admits")
        for number, value in enumerate(("abc", ["abc"]))
    ]
    state = backend.run(calls, tools=tools).data()["state"]
    assert state["countLetters0"] == state["silent0"] == state["admits0"] == 3
    assert state["admits1"] == ["abc"]
    for tool in ("countLetters", "silent"):
        assert state[f"{tool}1failed"]["type"] == "OutputError"


def test_what_an_activity_is_annotated_to_return_is_its_tools_output() -> None:
    def plain(a: int) -> int:
        return a

    def choosing(a: int) -> int | Output | Message:
        return a

    def silent(a: int) -> None: ...
    def anything(a: int) -> Any: ...
    def unwritten(a: int): ...  # type: ignore[no-untyped-def]  # noqa: ANN202  # that is the point
    def whole(a: int) -> Message:
        return Message({"a": a})

    def raw(call: Any, context: Any) -> list[Address]:
        return []

    assert schema(plain)["properties"]["_output"] == {"type": "integer", PLAIN: "always"}
    assert schema(choosing)["properties"]["_output"] == {"type": "integer", PLAIN: "sometimes"}
    others: list[Any] = [silent, anything, unwritten, whole]
    for function in others:
        assert "_output" not in schema(function)["properties"]
    described = schema(raw)["properties"]["_output"]
    assert (described["type"], described["items"]) == ("array", {"$ref": "#/$defs/Address"})


def test_a_tools_output_schema_holds_for_the_result(backend: Backend) -> None:
    tools = {"echo": {"type": "object", "properties": {"value": {}, "_output": {"type": "integer"}}}}
    calls: list[dict[str, Any]] = [
        {"_tool": "echo", "value": value, "_outputPath": f"†state.{name}"} for name, value in (("a", 1), ("b", "x"))
    ]
    result = backend.run(calls, tools=tools)
    assert [call.status for call in result.calls] == ["done", "failed"]


def test_a_worker_carries_out_what_it_is_allowed_and_nothing_else(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path
) -> None:
    narrow = Backend(settings_apart(server, "narrow", allow=("echo",), contract_wait_seconds=0), meeting, tmp_path)
    calls: list[dict[str, Any]] = [
        {"_tool": "echo", "value": 1, "_outputPath": "†state.a"},
        {"_tool": "countLetters", "text": "abc", "_outputPath": "†state.c"},
        {"_tool": "ask", "_delegate": "showContext", "_outputPath": "†state.e"},
    ]
    with narrow.worker():
        result = narrow.run(calls, tools={"ask": {"_delegate": {}}})
    assert result.data()["state"] == {"a": 1}
    refused = {call.tool: (call.error or {}).get("type") for call in result.calls if call.status == "failed"}
    assert refused == {"countLetters": "ContractChanged", "ask": "ContractChanged"}


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("background", "ACTS_QUEUE_BACKGROUND"),
        ("delegates", "ACTS_QUEUE_DELEGATES"),
        ("instances", "ACTS_QUEUE_INSTANCES"),
        ("reports", "ACTS_QUEUE_REPORTS"),
        ("acts:due", "ACTS_KEY_PREFIX"),
        ("_kombu.binding.instances", "Celery"),
    ],
)
def test_a_queue_that_is_another_ones_is_refused_by_workers_and_clients(name: str, owner: str) -> None:
    settings = load_settings(env_file=None, broker_url="redis://127.0.0.1:1/0", queue_reports="reports")
    taken = Registry()
    taken.add_activity(make_activity(schema, "greet", name, Policy()))
    for meet in (lambda: make_application(settings, taken), lambda: Checker(settings, taken)):
        with pytest.raises(ActivitiesError, match=owner):
            meet()


@pytest.mark.parametrize("name", ["", " ", "a\nb"])
def test_a_queue_without_a_name_is_refused_where_the_function_is_registered(name: str) -> None:
    with pytest.raises(ActivitiesError, match="queue"):
        make_activity(schema, "greet", name, Policy())
