"""Activities: their signatures, how they are invoked, and threads that hang."""

from __future__ import annotations

import asyncio
import importlib
import logging
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from time import time as seconds
from types import ModuleType, SimpleNamespace
from typing import Annotated, Any, Final, Literal, NamedTuple, NotRequired
from uuid import UUID

import pytest
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Discriminator,
    Field,
    HttpUrl,
    Json,
    OnErrorOmit,
    PlainValidator,
    PositiveInt,
    RootModel,
    Strict,
    StringConstraints,
    Tag,
    TypeAdapter,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic.dataclasses import dataclass as validated_dataclass
from typing_extensions import TypedDict

from acts_celery import ActivitiesError, Message, Output, activity
from acts_celery.broker_config import EmbeddedServer, Settings
from acts_celery.broker_config import load as load_settings
from acts_celery.protocol import Limits
from acts_celery.protocol.analysis.values import convertible
from acts_celery.protocol.calls.tools import PLAIN, Tool
from acts_celery.protocol.engine.events import Failure, Success
from acts_celery.protocol.schemas import compiled
from acts_celery.protocol.schemas.algebra import Algebra
from acts_celery.worker.broker.attempts import Attempt, CallId, ProgressReports, Result, Retry, enter
from acts_celery.worker.logs import AT_WORK, lane_at_work
from acts_celery.worker.registry.activities import Activity, Delegate, Policy, Registry, make_activity, registry
from acts_celery.worker.registry.loading import load
from acts_celery.worker.runner import calls as threads
from acts_celery.worker.runner.application import make_application
from acts_celery.worker.runner.calls import StuckThreads, Threads, invoke
from acts_celery.worker.runner.checking import Checker

from .backend import Backend, Meeting, settings_apart

# Activities: schemas from signatures, what code is given, and what may come of it (SPEC R4.1a, R4.2, R4.4-R4.6).


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


def of_three(call: dict[str, Any], tool: dict[str, Any], context: dict[str, Any]) -> None: ...


REFUSED = [positional, variadic, underscored, unknown, unknown_inside, indescribable, of_three]


def test_code_sees_the_parameters_that_a_person_has_left_and_no_others() -> None:
    def pay(call: dict[str, Any], context: dict[str, Any]) -> Any:
        return call

    call = {"_tool": "pay", "_instance": "ann", "amount": "†state.sum", "tip": "†state.tip"}
    assert make_activity(pay, None, None, Policy()).bind(call, {"amount": 2}, {})() == {
        "_tool": "pay",
        "_instance": "ann",
        "amount": 2,
    }


@pytest.mark.parametrize("settled", [lambda key: None, "a name", lambda key, call, more: None])
def test_a_function_that_cannot_say_what_became_of_a_call_is_refused(settled: Any) -> None:
    with pytest.raises(ActivitiesError, match="settled"):
        activity(once=True, settled=settled)


@pytest.mark.parametrize("function", REFUSED)
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


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"rate": "10"}, '"10/s"'),
        ({"rate": "0/s"}, '"10/s"'),
        ({"rate": 10}, '"10/s"'),
        ({"rate": "20000/s"}, "at most 10000 calls"),
        ({"rate": "1/1000d"}, "at most 999"),
        ({"rate": "1/s", "key": ""}, "the name of a parameter"),
        ({"rate": "1/s", "key": "custmer"}, "did you mean 'customer'"),
        ({"key": "customer"}, "add rate="),
        ({"retries": 1, "retry_on": ValueError("x")}, "types of exceptions"),
        ({"retries": 1, "no_retry_on": ()}, "types of exceptions"),
        ({"retries": 1, "retry_on": [int]}, "types of exceptions"),
        ({"retry_on": ValueError}, "add retries=3"),
        ({"undo": "unship"}, "once=True"),
        ({"cache_seconds": 60}, "add pure=True"),
        ({"cache_seconds": 60, "pure": True, "queue": "far"}, "leave queue out"),
        ({"cache_seconds": 0.5, "pure": True}, "at least 1"),
        ({"pure": True, "effects": True}, "effects exclude each other"),
        ({"pure": True, "once": True}, "once exclude each other"),
        ({"pure": True, "untrusted": "mail"}, "untrusted exclude each other"),
        ({"total_timeout_seconds": 0}, "more than 0"),
        ({"total_timeout_seconds": "5"}, "a number"),
        ({"total_timeout_seconds": 5, "timeout_seconds": 6}, "at least timeout_seconds"),
    ],
)
def test_an_option_that_cannot_be_kept_is_refused_when_the_decorator_runs(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ActivitiesError, match=re.escape(word)):

        @activity("refused", **options)
        def refused(customer: str) -> None: ...

    assert "refused" not in registry.activities


@pytest.mark.parametrize(
    ("rate", "limit"),
    [("10/s", (10, 1_000)), ("5/10s", (5, 10_000)), ("7/m", (7, 60_000)), ("1/31d", (1, 2_678_400_000))],
)
def test_a_rate_is_so_many_calls_in_a_time(rate: str, limit: tuple[int, int]) -> None:
    assert Policy(rate=rate).rate_limit == limit


def test_one_value_of_a_key_has_one_limit_however_it_is_given() -> None:
    def ship(customer: int = 1, address: Any = None) -> None: ...

    by_customer = make_activity(ship, None, None, Policy(rate="1/s", key="customer"))
    assert len({by_customer.key_of(given) for given in ({}, {"customer": 1}, {"customer": 1.0})}) == 1
    assert by_customer.key_of({"customer": 2}) != by_customer.key_of({"customer": True}) != by_customer.key_of({})
    by_address = make_activity(ship, None, None, Policy(rate="1/s", key="address"))
    assert by_address.key_of({"address": {"a": 1, "b": 2}}) == by_address.key_of({"address": {"b": 2, "a": 1}})


@pytest.mark.parametrize(
    ("error", "is_retried"),
    [
        (ConnectionResetError(), True),
        (ConnectionRefusedError(), False),
        (ValueError(), False),
        (ExceptionGroup("all", [ConnectionResetError(), ExceptionGroup("in", [ConnectionError()])]), True),
        (ExceptionGroup("some", [ConnectionResetError(), ValueError()]), False),
    ],
)
def test_what_is_tried_again_is_chosen_by_type(error: Exception, is_retried: bool) -> None:
    policy = Policy(retries=3, retry_on=(ConnectionError,), no_retry_on=(ConnectionRefusedError,))

    def fails() -> None:
        raise error

    assert isinstance(attempted(fails, policy, is_async=False), Retry) is is_retried


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
    result = backend.run([{"_tool": "pick", "path": "††state.elsewhere", "value": 1, "_outputPath": "†state.a"}])
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


# The schema of a signature admits what code of the activity's own can make use of (SPEC R4.1a).


def split(value: Any) -> Any:
    return value.split(",") if isinstance(value, str) else value


Split = Annotated[list[str], BeforeValidator(split)]


class Point(NamedTuple):
    x: int
    y: int = 0


class User(BaseModel):
    name: str


class Named(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str

    @model_validator(mode="before")
    @classmethod
    def from_text(cls, value: Any) -> Any:
        return {"name": value["first"]} if "first" in value else {"name": value}


class Wrapped(BaseModel):
    name: str

    @model_validator(mode="wrap")
    @classmethod
    def from_text(cls, value: Any, handler: Any) -> Any:
        return handler({"name": value})


class Tagged(BaseModel):
    tags: list[str]

    @field_validator("tags", mode="before")
    @classmethod
    def from_text(cls, value: Any) -> Any:
        return split(value)


class EitherName(BaseModel):
    name: str = Field(validation_alias=AliasChoices("first", AliasPath("names", 0)))


class ByName(BaseModel):
    model_config = ConfigDict(validate_by_name=True, extra="forbid")
    name: str = Field(alias="userName")


class Trimmed(BaseModel):
    model_config = ConfigDict(str_strip_whitespace=True)
    code: str = Field(max_length=2)


class OwnInit(BaseModel):
    name: str

    def __init__(self, nick: str) -> None:
        super().__init__(name=nick)


@validated_dataclass
class Range:
    low: int

    @model_validator(mode="before")
    @classmethod
    def from_number(cls, value: Any) -> Any:
        return {"low": value}


@dataclass
class Plain:
    low: int
    name: str = ""


class Level(Enum):
    LOW = "low"

    @classmethod
    def _missing_(cls, value: object) -> Level:
        return cls.LOW


class Small(BaseModel):
    size: int


class Large(BaseModel):
    size: int
    more: int = 0


Sized = Annotated[Annotated[Small, Tag("small")] | Annotated[Large, Tag("large")], Discriminator(lambda value: "small")]


def activity_of(annotation: Any) -> Activity:
    def f(value: Any) -> Any:
        return value

    f.__annotations__ = {"value": annotation}
    return make_activity(f, None, None, Policy())


def is_taken(activity: Activity, **parameters: Any) -> bool:
    try:
        activity.bind({}, parameters, {})()
    except Exception:  # the code of a model raises what it likes
        return False
    return True


def is_admitted(activity: Activity, **parameters: Any) -> bool:
    assert is_taken(activity, **parameters)
    return compiled(dict(activity.schema)).problems(parameters) == []


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Split, "a,b"),
        (Split | None, "a,b"),
        (list[Split], ["a,b"]),
        (dict[str, Split], {"x": "a,b"}),
        (Annotated[int, PlainValidator(lambda value: 1)], "one"),
        (Annotated[int, WrapValidator(lambda value, handler: 1)], "one"),
        (Point, [1, 2]),
        (Point, {"x": 1}),
        (list[Point], [{"x": 1, "y": 2}]),
        (Named, "Alex"),
        (Named, {"first": "Alex"}),
        (Wrapped, "Alex"),
        (Tagged, {"tags": "a,b"}),
        (EitherName, {"first": "Alex"}),
        (EitherName, {"names": ["Alex"]}),
        (ByName, {"name": "Alex"}),
        (ByName, {"userName": "Alex"}),
        (Trimmed, {"code": "  EU  "}),
        (OwnInit, {"nick": "Alex"}),
        (Range, 5),
        (Plain, {"low": 1}),
        (RootModel[Split], "a,b"),
        (Level, "no such level"),
        (Sized, {"size": 1}),
        (Annotated[str, StringConstraints(strip_whitespace=True, pattern="^[A-Z]+$")], " EUR "),
        (Annotated[str, Field(coerce_numbers_to_str=True)], 5),
        (list[OnErrorOmit[int]], [1, "no number"]),
        (ByteSize, "5MB"),
        (complex, 5),
        (complex, "1+2j"),
        (Iterable[int], {"1": "a key"}),
    ],
)
def test_what_an_activity_can_make_use_of_its_schema_admits(annotation: Any, value: Any) -> None:
    assert is_admitted(activity_of(annotation), value=value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (list[int], "a,b"),
        (User, "Alex"),
        (User, {"first": "Alex"}),
        (Plain, {"name": "Alex"}),
        (Point, 5),
        (Literal["a", "b"], "c"),
        (Tagged, {}),
    ],
)
def test_what_it_can_never_make_use_of_is_refused(annotation: Any, value: Any) -> None:
    assert compiled(dict(activity_of(annotation).schema)).problems({"value": value})


def test_what_a_converter_says_that_it_takes_is_described() -> None:
    said = Annotated[list[str], BeforeValidator(split, json_schema_input_type=str)]
    assert activity_of(said).schema["properties"]["value"]["type"] == "string"


def aliased(user: Annotated[str, Field(alias="userName"), BeforeValidator(str)]) -> None: ...
def with_choices(user: Annotated[str, Field(validation_alias=AliasChoices("user", "userName"))]) -> None: ...
def with_a_path(user: Annotated[str, Field(validation_alias=AliasPath("users", 0))]) -> None: ...
def with_a_default(user: Annotated[str, Field(default="Alex")]) -> None: ...
def with_a_name_inside(users: list["User"]) -> None: ...  # noqa: UP037  # a name that only pydantic looks up
def named_like_pydantics_own(json: str, model_config: int, copy: bool = True) -> None: ...


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (aliased, {"userName": "Alex"}),
        (with_choices, {"user": "Alex"}),
        (with_choices, {"userName": "Alex"}),
        (with_a_path, {"users": ["Alex"]}),
        (with_a_default, {}),
        (with_a_name_inside, {"users": [{"name": "Alex"}]}),
        (named_like_pydantics_own, {"json": "{}", "model_config": 1}),
    ],
)
def test_parameters_may_have_any_names_and_annotations(
    function: Callable[..., Any], parameters: dict[str, Any]
) -> None:
    assert is_admitted(make_activity(function, None, None, Policy()), **parameters)


SCALARS: Final = (
    None, True, False, 0, 1, -1, 5.0, 5.5, 1_700_000_000, "", "a", "5", " 5 ", "5.0", "1_0", ".5", "-3", "1e3", "nan",
    "-Inf", "٣", "yes", "true", "2020-01-01", "2020-01-01T00:00:00Z", "12:00", "PT1H", "5MB", "1+2j", "127.0.0.1",
    "10.0.0.0/8", "http://a.b", "12345678-1234-5678-1234-567812345678", "[1]", "a,b", "1/2",
)  # fmt: skip
VALUES: Final = (
    *SCALARS,
    *([value] for value in SCALARS),
    *({key: value} for key in ("x", "name", "first", "nick", "code", "low", "size", "tags", "1") for value in SCALARS),
    *([], {}, [1, 1], [1, "a"], [1, 2, 3], {"x": 1, "y": "2"}, {"name": "a", "more": 1}, {"kind": "cat", "x": "5"}),
)


class Colour(StrEnum):
    RED = "a"


class Grade(IntEnum):
    GOOD = 1


class Cat(BaseModel):
    kind: Literal["cat"]
    x: int = 0


class Dog(BaseModel):
    kind: Literal["dog"]


class Keys(TypedDict):
    x: int
    y: NotRequired[str]


@pytest.mark.parametrize(
    "annotation",
    [
        *(int, float, str, bool, bytes, complex, Decimal, Fraction, date, datetime, time, timedelta, UUID, Path),
        *(IPv4Address, IPv4Network, ByteSize, HttpUrl, Json[list[int]], PositiveInt, Annotated[float, Field(lt=5)]),
        *(Annotated[str, Field(min_length=2)], Annotated[int, Field(multiple_of=2)], Annotated[int, Strict()]),
        *(list[int], set[int], Annotated[set[int], Field(max_length=1)], frozenset[str], tuple[int, str]),
        *(tuple[int, ...], deque[int], Sequence[int], Iterable[int], Annotated[list[int], Field(max_length=2)]),
        *(dict[str, int], dict[int, str], Mapping[str, date], int | None, int | str, list[int] | int, None),
        *(Literal["a", "b"], Literal[1, "a"], Literal[True], Colour, Grade, Level, Any, Keys),
        *(Point, User, Named, Wrapped, Tagged, EitherName, ByName, Trimmed, OwnInit, Range, Plain, Small, Sized),
        *(Split, Split | None, list[Split], Annotated[Cat | Dog, Field(discriminator="kind")]),
    ],
)
def test_what_an_activity_takes_is_never_said_not_to_fit_its_signature(annotation: Any) -> None:
    activity = activity_of(annotation)
    algebra = Algebra()
    admitted = algebra.along(algebra.made_of(convertible(dict(activity.schema))), ("value",))
    taken = [value for value in VALUES if is_taken(activity, value=value)]
    assert taken
    assert [value for value in taken if not algebra.fit(algebra.only(value), admitted)] == []


def test_r5_1_check_warns_where_what_a_delegate_in_code_gives_goes_nowhere() -> None:
    def summary(context: list[dict[str, Any]]) -> dict[str, int]:
        return {}

    def log(context: list[dict[str, Any]]) -> None: ...

    def either(context: list[dict[str, Any]]) -> Any: ...

    registry = Registry()
    for function in (summary, log, either):
        registry.add_delegate(Delegate(function.__name__, function))
    calls = [{"_tool": "t", "_delegate": name} for name in registry.delegates]
    plan = Checker(Settings(), registry).check({"context": [], "solution": {"calls": calls}})
    assert [(finding.code, finding.calls) for finding in plan.findings] == [("ACT405", (0,))]


def test_r12_2a_a_docstring_says_what_a_tool_and_its_parameters_are() -> None:
    def refund(
        order_id: str, amount: Annotated[float, Field(description="In euros.")], card: dict[str, Any] | None = None
    ) -> str:
        """Refund an order.
        Cannot be undone.

        Not shown to anybody.

        Args:
            order_id: As the shop
                writes it.
            amount: Not this.
            card: Where it goes.
        """
        return order_id

    schema = make_activity(refund, None, None, Policy()).schema
    assert schema["description"] == "Refund an order. Cannot be undone."
    said = {name: part.get("description") for name, part in schema["properties"].items() if not name.startswith("_")}
    assert said == {"order_id": "As the shop writes it.", "amount": "In euros.", "card": "Where it goes."}


@pytest.mark.parametrize(
    "doc", [None, "", "   ", "Args:\n    a: it", ":param a: it", "Parameters\n----------\na : int\n    it"]
)
def test_r12_2a_a_docstring_that_says_nothing_of_the_whole_is_no_description(doc: str | None) -> None:
    def take(a: int) -> None: ...

    take.__doc__ = doc
    assert "description" not in make_activity(take, None, None, Policy()).schema


# What the worker's log says of an attempt that failed (SPEC R7.2).

SECOND = Attempt(CallId("r1", "①", 4), number=2, failures=1)


def attempted(function: Callable[[], Any], policy: Policy, *, is_async: bool = True, of: Attempt = SECOND) -> Result:
    async def attempt() -> Result:
        return await invoke(
            function, of, name="charge", is_async=is_async, policy=policy, limits=Limits(), threads=Threads(1)
        )

    return asyncio.run(attempt())


def test_the_last_attempt_ends_with_the_time_of_all_and_what_would_begin_later_does_not() -> None:
    policy = Policy(retries=3, timeout_seconds=30, total_timeout_seconds=60)
    begun = list[int]()

    async def hangs() -> None:
        begun.append(1)
        await asyncio.Event().wait()

    cut = attempted(hangs, policy, of=replace(SECOND, ends_ms=int(seconds() * 1000) + 500))
    late = attempted(hangs, policy, of=replace(SECOND, ends_ms=int(seconds() * 1000) - 1))
    assert isinstance(cut, Failure)
    assert isinstance(late, Failure)
    assert cut.message.startswith("took longer than 0.")
    assert [(one.type, "(total_timeout_seconds=60)" in one.message) for one in (cut, late)] == [
        ("TimeoutError", True)
    ] * 2
    assert len(begun) == 1


def test_an_attempt_that_failed_is_reported_with_its_call_and_its_number(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise ConnectionError("the bank is closed")

    with caplog.at_level(logging.WARNING, "acts_celery.worker.runner.calls"):
        result = attempted(fails, Policy(retries=3))
        last = attempted(fails, Policy(retries=1))
    assert isinstance(result, Retry)
    assert isinstance(last, Failure)
    again, ended = caplog.records
    assert again.getMessage() == "charge failed: ConnectionError (the bank is closed), call r1:4:①, attempt 2 of 4"
    assert again.exc_info is None, "one that is tried again is one line"
    assert ended.getMessage() == "charge failed: ConnectionError (the bank is closed), call r1:4:①, attempt 2 of 2"
    assert ended.exc_info is not None
    assert (again.levelname, ended.levelname) == ("WARNING", "ERROR")


def test_the_traceback_of_an_error_at_one_place_is_in_the_log_once_or_each_time_for_debugging(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def breaks() -> None:
        raise ZeroDivisionError("again")

    with caplog.at_level(logging.WARNING, "acts_celery.worker.runner.calls"):
        attempted(breaks, Policy())
        attempted(breaks, Policy())
    with caplog.at_level(logging.DEBUG, "acts_celery.worker.runner.calls"):
        attempted(breaks, Policy())
    assert [record.exc_info is not None for record in caplog.records] == [True, False, True]
    assert len({record.getMessage() for record in caplog.records}) == 1


def parses(count: int) -> int:
    return TypeAdapter(int).validate_python("not " * count)


def test_what_an_activity_itself_finds_invalid_is_its_own_error_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    function = make_activity(parses, None, None, Policy()).bind({}, {"count": 1}, {})
    result = attempted(function, Policy(retries=3), is_async=False)
    assert isinstance(result, Retry)
    assert result.failure.type == "ValidationError"
    assert "not" not in result.failure.message
    (record,) = caplog.records
    assert "not" not in record.getMessage()


def test_parameters_that_do_not_fit_end_the_attempts() -> None:
    function = make_activity(parses, None, None, Policy()).bind({}, {"count": "many"}, {})
    result = attempted(function, Policy(retries=3), is_async=False)
    assert isinstance(result, Failure)
    assert result.type == "InvalidParameters"
    assert result.message.startswith("count: Input should be a valid integer")


class Cash(BaseModel):
    kind: Literal["cash"]


class Card(BaseModel):
    kind: Literal["card"]
    number: int


def pays(
    rates: dict[str, int] | None = None,
    rows: list[list[int]] | None = None,
    by: Annotated[Cash | Card, Field(discriminator="kind")] | None = None,
) -> None: ...


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rates": {"123-45": "x"}}, "rates, below it: Input should be a valid integer"),
        ({"rows": [[1], ["123-45"]]}, "rows.1.0: Input should be a valid integer"),
        ({"by": {"kind": "123-45"}}, "by: its tag is not one of those expected"),
        ({"by": {"kind": "card", "number": "123-45"}}, "by, below it: Input should be a valid integer"),
    ],
)
def test_what_is_said_of_parameters_holds_nothing_of_their_values(parameters: dict[str, Any], message: str) -> None:
    result = attempted(make_activity(pays, None, None, Policy()).bind({}, parameters, {}), Policy(), is_async=False)
    assert isinstance(result, Failure)
    assert result.message.startswith(message)
    assert "123-45" not in result.message


def test_a_timeout_is_reported_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "acts_celery.worker.runner.calls"):
        result = attempted(asyncio.Event().wait, Policy(retries=1, timeout_seconds=0.001))
    (record,) = caplog.records
    assert result == Failure("TimeoutError", "took longer than 0.001 seconds")
    assert (
        record.getMessage()
        == "charge failed: TimeoutError (took longer than 0.001 seconds), call r1:4:①, attempt 2 of 2"
    )
    assert record.exc_info is None


def test_an_attempt_that_is_followed_by_another_is_one_line_and_the_last_has_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def breaks() -> None:
        raise OSError("away")

    for retries, is_last in ((5, False), (0, True)):
        caplog.clear()
        attempted(breaks, Policy(retries=retries), is_async=False)
        (record,) = caplog.records
        assert (record.exc_info is not None) == is_last
        assert "OSError (away)" in record.getMessage()


@pytest.mark.parametrize("is_async", [True, False])
def test_what_no_coroutine_can_raise_is_named_as_it_was_raised(is_async: bool) -> None:
    def plain() -> Any:
        raise StopIteration("nothing left")

    async def coroutine() -> Any:
        raise StopIteration("nothing left")

    result = attempted(coroutine if is_async else plain, Policy(), is_async=is_async)
    assert result == Failure("StopIteration", "nothing left")


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A Django that is set up, and the threads in which old connections were closed."""
    threads: list[str] = []
    executor = ThreadPoolExecutor(1, "queries-of-coroutines")

    def sync_to_async(function: Callable[[], Any]) -> Callable[[], Any]:
        async def run() -> Any:
            return await asyncio.get_running_loop().run_in_executor(executor, function)

        return run

    parts: dict[str, dict[str, Any]] = {
        "django.conf": {"settings": SimpleNamespace(configured=True)},
        "django.db": {"close_old_connections": lambda: threads.append(threading.current_thread().name)},
        "asgiref.sync": {"sync_to_async": sync_to_async},
    }
    for name, held in parts.items():
        module = ModuleType(name)
        vars(module).update(held)
        monkeypatch.setitem(sys.modules, name, module)
    yield threads
    executor.shutdown()


def test_where_django_is_set_up_a_functions_thread_closes_old_connections_around_each_attempt(
    closed: list[str],
) -> None:
    def fails() -> None:
        closed.append("at work")
        raise OSError

    attempted(fails, Policy(), is_async=False)
    assert closed == ["acts-activity", "at work", "acts-activity"]


def test_around_a_coroutine_they_are_closed_where_django_runs_its_queries(closed: list[str]) -> None:
    async def works() -> int:
        closed.append("at work")
        return 1

    async def attempt() -> None:
        options: Any = {"is_async": True, "policy": Policy(), "limits": Limits(), "threads": Threads(1)}
        assert await invoke(works, SECOND, name="works", **options) == Success(1)
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

    asyncio.run(attempt())
    assert [name.partition("_")[0] for name in closed] == ["queries-of-coroutines", "at work", "queries-of-coroutines"]


def test_where_django_is_imported_and_not_set_up_nothing_of_it_is_called(closed: list[str]) -> None:
    sys.modules["django.conf"].settings.configured = False
    assert attempted(int, Policy(), is_async=False) == Success(0)
    assert not closed


def test_a_group_of_exceptions_names_the_first_of_what_failed() -> None:
    async def fails() -> None:
        raise ExceptionGroup("unhandled", [ExceptionGroup("inner", [ValueError("no such item")]), OSError("away")])

    result = attempted(fails, Policy())
    assert isinstance(result, Failure)
    assert result.type == "ExceptionGroup"
    assert result.message == "unhandled (2 sub-exceptions), first ValueError: no such item"


# Threads of plain functions: those that hang are counted, told of, and bounded.


def test_functions_that_outlive_their_calls_are_told_of_and_so_many_are_the_last(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(threads, "THREADS_LEFT_BEHIND", 3)
    caplog.set_level(logging.WARNING)

    async def running() -> None:
        hung, pool = threading.Event(), Threads(2)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await pool.run(hung.wait, timeout_seconds=0.01)
        with pytest.raises(StuckThreads, match=r"3 functions that outlived their calls .* restart the worker"):
            await pool.run(int, timeout_seconds=1)
        hung.set()
        while True:
            try:
                assert await pool.run(int, timeout_seconds=1) == 0
                break
            except StuckThreads:
                await asyncio.sleep(0)  # until they have ended
        pool.close()

    asyncio.run(running())
    assert [record.getMessage().split()[0] for record in caplog.records] == ["1", "2"]


# The worker's log says of each line which run, instance and call it is about.

TEXT = "marigold"


def lines_with(backend: Backend, text: str) -> list[str]:
    """What stands behind the level in the log's lines that hold a text."""
    lines = backend.log.read_text(encoding="utf-8").splitlines()
    return [re.sub(r"^\[.*?: \w+/\w+\] ", "", line) for line in lines if text in line]


def saying(tool: str, number: int, **meta: Any) -> dict[str, Any]:
    return {"_tool": tool, "text": TEXT, "_outputPath": f"†state.s{number}", **meta}


def test_what_activities_log_and_print_names_their_call(backend: Backend) -> None:
    context = [{"type": "state", "_instance": "①", "n": 1}]
    calls = [
        saying("say", 0, _instance="①"),
        saying("sayPlain", 1),
        saying("sayFar", 2, _instance="①"),
        {"_tool": "ask", "_delegate": "sayElsewhere", "_outputPath": "†state.s3"},
        {"_tool": "explode", "text": "no luck", "_outputPath": "†state.s4"},
    ]
    result = backend.run(calls, context)
    at = f"run={result.run} instance=① call=0 "
    assert sorted(lines_with(backend, TEXT)) == sorted(
        [
            *(f"{at}logged {TEXT}", f"{at}printed {TEXT}", f"{at}beside {TEXT}"),
            f"run={result.run} call=1 logged {TEXT}",
            f"run={result.run} instance=① call=2 logged {TEXT}",
        ]
    )
    assert lines_with(backend, "logged elsewhere") == [f"run={result.run} call=3 logged elsewhere"]
    (failed,) = [line for line in lines_with(backend, "explode failed") if result.run in line]
    assert failed.startswith(f"run={result.run} call=4 explode failed")
    assert not any(line.startswith("run=") for line in lines_with(backend, " ready"))


@pytest.fixture
def shown() -> list[str]:
    return []


@pytest.fixture
def own_logger(shown: list[str]) -> Iterator[logging.Logger]:
    """A logger with a handler that is labelled as the worker's are."""
    handler = logging.Handler()
    handler.addFilter(AT_WORK)
    handler.setFormatter(logging.Formatter("%(at_work)s%(message)s"))
    handler.emit = lambda record: shown.append(handler.format(record))  # type: ignore[method-assign]
    logger = logging.getLogger("tests.log_context")
    logger.addHandler(handler)
    yield logger
    logger.removeHandler(handler)


def test_a_lane_is_named_while_it_is_at_work_and_no_longer(own_logger: logging.Logger, shown: list[str]) -> None:
    own_logger.warning("before")
    with lane_at_work("r", None):
        own_logger.warning("global")
        with lane_at_work("r", "①"):
            own_logger.warning("own", extra={"call": "the caller's word"})
    own_logger.warning("after")
    assert shown == ["before", "run=r global", "run=r instance=① own", "after"]


async def _attempt(own_logger: logging.Logger, instance: str) -> None:
    attempt = Attempt(CallId("r", instance, 7))
    enter(attempt, "name", ProgressReports(attempt, list))
    own_logger.warning("said")


@pytest.mark.parametrize(
    ("instance", "told"),
    [("a-b", "a-b"), ("a b", '"a b"'), ("a\n[forged]", r'"a\n[forged]"'), ('a"', r'"a\""'), ("a\u2028", r'"a\u2028"')],
)
def test_no_name_of_an_instance_forges_a_line(
    own_logger: logging.Logger, shown: list[str], instance: str, told: str
) -> None:
    asyncio.run(_attempt(own_logger, instance))
    assert shown == [f"run=r instance={told} call=7 said"]


def test_a_line_of_ours_is_one_line_and_of_bounded_length(own_logger: logging.Logger, shown: list[str]) -> None:
    ours = logging.getLogger("acts_celery.worker.tests.log_context")
    ours.addHandler(own_logger.handlers[0])
    try:
        ours.error("refused: %s", "a\n[2026-11-22: CRITICAL] forged \x1b[2J")
        ours.error("refused: %s", "x" * 100_000)
    finally:
        ours.removeHandler(own_logger.handlers[0])
    own_logger.error("two\nlines of an activity")
    forged, long, foreign = shown
    assert forged == r"refused: a\n[2026-11-22: CRITICAL] forged \x1b[2J"
    assert long.endswith("x … (100009 characters)")
    assert len(long) < 2_100
    assert foreign == "two\nlines of an activity"
