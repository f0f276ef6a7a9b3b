"""Signatures: the schemas of what a function takes (SPEC R4.1a) and of what it returns (SPEC R4.6).

It is read off the validator that every call of the function goes through. What code has a hand in before - a validator
that runs first, a model that is read under several names - is described as anything, unless that code says what it
takes: nothing else can say so.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

from docstring_parser import ParseError, parse
from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from ...protocol import Message, Output
from ...protocol.calls.tools import PLAIN
from ..errors import ActivitiesError

_LENIENT: Final = ("str_strip_whitespace", "coerce_numbers_to_str")
"""What a model's configuration can ask for, so that its fields take more than they say."""
_SAY_NOTHING: Final = (None, NoneType, Any, object, Output, Message)
_FINDS_NONE: Final = getattr(Enum._missing_, "__func__", None)
"""The code of an enumeration that has none of its own for values that are not listed."""


def parameters_schema(name: str, function: Callable[..., Any], parameters: Sequence[inspect.Parameter]) -> Any:
    """The JSON Schema of those parameters of an activity's function. Raises `ActivitiesError`."""
    try:
        hints = inspect.get_annotations(function, eval_str=True)
    except NameError as error:
        raise ActivitiesError(f"activity {name!r}: an annotation cannot be evaluated: {error}") from error
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise ActivitiesError(f"activity {name!r}: {parameter} cannot be given by name; parameters are")
        if parameter.name.startswith("_"):
            raise ActivitiesError(f"activity {name!r}: {parameter.name} starts with _, as only meta-properties do")
    named = [parameter for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    try:
        schema = TypeAdapter[Any](_taking(function, named, hints)).json_schema(schema_generator=_Describing)
    except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
        reason = str(error).splitlines()[0]
        raise ActivitiesError(f"activity {name!r}: no JSON Schema for its parameters: {reason}") from error
    return {**schema, "additionalProperties": len(named) < len(parameters)}


def returns_schema(function: Callable[..., Any]) -> JsonSchemaValue | None:
    """The JSON Schema of an activity's plain results, as JSON values; None where its annotation says nothing of them.

    That is so for `None`, `Any`, `Output`, `Message`, and for what pydantic has no schema for. Of a union with `Output`
    or `Message` the rest counts, and the schema says so (see `PLAIN`).
    """
    try:
        annotation = inspect.get_annotations(function, eval_str=True).get("return")
    except NameError:
        return None
    said = _plain(annotation)
    if said in _SAY_NOTHING:
        return None
    try:
        schema = TypeAdapter[Any](said).json_schema(mode="serialization")
        return {**schema, PLAIN: "always" if said is annotation else "sometimes"} if schema else None
    except (PydanticSchemaGenerationError, PydanticUserError, NameError):
        return None


def _plain(annotation: Any) -> Any:
    """What an annotation says of plain values."""
    if get_origin(annotation) not in (Union, UnionType):
        return annotation
    parts = get_args(annotation)
    rest = [part for part in parts if part not in (Output, Message)]
    if len(rest) == len(parts):
        return annotation
    return Union[tuple(rest)] if rest else None  # noqa: UP007  # of parts that are known only now


def _taking(function: Callable[..., Any], parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any]) -> Any:
    """A function that has only these of another's parameters, as far as `inspect` can see."""

    def taking() -> None: ...

    taking.__module__ = function.__module__  # where names inside its annotations are looked up
    taking.__annotations__ = {each.name: hints[each.name] for each in parameters if each.name in hints}
    taking.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # asked for by `inspect`
    return taking


class _Describing(GenerateJsonSchema):
    """Pydantic's description of what it takes, but for what is not known and what it describes too narrowly."""

    def function_before_schema(self, schema: Any) -> JsonSchemaValue:
        """A validator that runs before the others: anything, unless it says what it takes."""
        return self._said_of(schema)

    def function_wrap_schema(self, schema: Any) -> JsonSchemaValue:
        """A validator around the others: likewise."""
        return self._said_of(schema)

    def function_plain_schema(self, schema: Any) -> JsonSchemaValue:
        """A validator instead of others: likewise."""
        return self._said_of(schema)

    def _said_of(self, schema: Any) -> JsonSchemaValue:
        return self.generate_inner(said) if (said := schema.get("json_schema_input_schema")) is not None else {}

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        """A model, described as anything where it is not read field by field, each under its one name."""
        return {} if schema.get("custom_init") or _has_own_ways(schema) else super().model_schema(schema)

    def dataclass_schema(self, schema: Any) -> JsonSchemaValue:
        """A dataclass: likewise."""
        return {} if _has_own_ways(schema) else super().dataclass_schema(schema)

    def typed_dict_schema(self, schema: Any) -> JsonSchemaValue:
        """A typed dictionary: likewise."""
        return {} if _has_own_ways(schema) else super().typed_dict_schema(schema)

    def named_tuple_schema(self, schema: Any) -> JsonSchemaValue:
        """A named tuple: a list, or an object."""
        return {"anyOf": [super().named_tuple_schema(schema), {"type": "object"}]}

    def call_schema(self, schema: Any) -> JsonSchemaValue:
        """A named tuple of older versions, or the function itself."""
        described = super().call_schema(schema)
        return described if described["type"] == "object" else {"anyOf": [described, {"type": "object"}]}

    def tagged_union_schema(self, schema: Any) -> JsonSchemaValue:
        """One of several, told apart by code or a field: what else a value would fit does not matter."""
        described = super().tagged_union_schema(schema)
        return {**{key: part for key, part in described.items() if key != "oneOf"}, "anyOf": described["oneOf"]}

    def str_schema(self, schema: Any) -> JsonSchemaValue:
        """A text; where it is trimmed, its length and pattern are those of what is left."""
        if schema.get("coerce_numbers_to_str"):
            return {}
        return {"type": "string"} if schema.get("strip_whitespace") else super().str_schema(schema)

    def enum_schema(self, schema: Any) -> JsonSchemaValue:
        """Some values; anything where code finds one for those that are not listed."""
        finds = getattr(schema["cls"]._missing_, "__func__", None)
        return super().enum_schema(schema) if finds is _FINDS_NONE else {}

    def generator_schema(self, schema: Any) -> JsonSchemaValue:
        """Whatever can be gone through, which is looked at on the way."""
        return {"type": ["array", "object", "string"]}

    def default_schema(self, schema: Any) -> JsonSchemaValue:
        """What has a default; anything where that stands in for what is wrong."""
        return super().default_schema(schema) if schema.get("on_error", "raise") == "raise" else {}

    def complex_schema(self, schema: Any) -> JsonSchemaValue:
        """A complex number: a text such as `1+2j`, or a number."""
        return {"type": ["string", "number"]}

    def kw_arguments_schema(self, arguments: Any, var_kwargs_schema: Any) -> JsonSchemaValue:
        """The parameters; one that is read under several names may be given under any of them."""
        described = super().kw_arguments_schema(
            [each for each in arguments if not isinstance(each.get("alias"), list)], var_kwargs_schema
        )
        for argument in arguments:
            for name, *below in _paths(argument.get("alias")):
                described["properties"][name] = {} if below else self.generate_inner(argument["schema"])
        return described


def _paths(alias: Any) -> list[list[Any]]:
    """The places a value is looked for at, where there are several or it is not a parameter of its own."""
    if not isinstance(alias, list):
        return []
    return alias if isinstance(alias[0], list) else [alias]


def _has_own_ways(schema: Any) -> bool:
    """Whether a class takes more than its fields say, each under its one name."""
    inside, asks = schema.get("schema", schema), schema.get("config", {}).get
    fields = inside.get("fields", ())
    aliases = [each.get("validation_alias") for each in (fields.values() if isinstance(fields, dict) else fields)]
    return (
        inside["type"] == "function-before"
        or any(isinstance(alias, list) for alias in aliases)
        or bool(asks("validate_by_name") and any(aliases))
        or any(map(asks, _LENIENT))
    )


# Docstrings: what a function says of itself and of its parameters, for those who are to call it (SPEC R12.2a).

_SECTIONS = (":", "Args:", "Arguments:", "Parameters", "Returns:", "Raises:", "@param")
"""How a docstring begins that says nothing of the whole."""


def described(function: Callable[..., Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a function's parameters, with what its docstring says: its first paragraph of the whole, its
    sections (of Google, NumPy, Sphinx or Epydoc) of each parameter that has no description yet.
    """
    doc = inspect.getdoc(function) or ""
    first = " ".join(doc.partition("\n\n")[0].split())
    found = {"description": first} if first and not doc.startswith(_SECTIONS) else {}
    said = _said_of_parameters(doc)
    properties = {
        name: {**part, "description": said[name]}
        if name in said and isinstance(part, dict) and "description" not in part
        else part
        for name, part in schema.get("properties", {}).items()
    }
    return {**schema, **found, **({"properties": properties} if properties else {})}


def _said_of_parameters(doc: str) -> dict[str, str]:
    try:
        parameters = parse(doc).params
    except ParseError:
        return {}
    return {each.arg_name: " ".join(each.description.split()) for each in parameters if each.description}
