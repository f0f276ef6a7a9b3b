"""The schema of a signature admits what code of the activity's own can make use of (SPEC R4.1a)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
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
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic.dataclasses import dataclass as validated_dataclass
from typing_extensions import TypedDict

from acts_celery.broker_config import Settings
from acts_celery.protocol.analysis.values import convertible
from acts_celery.protocol.schemas import compiled
from acts_celery.protocol.schemas.algebra import Algebra
from acts_celery.worker.registry.activities import Activity, Delegate, Policy, Registry, make_activity
from acts_celery.worker.runner.checking import Checker


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
