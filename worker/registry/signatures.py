"""Signatures: the schemas of what a function takes (SPEC R4.1a) and of what it returns (SPEC R4.6).

A schema is read off the validator that every call of the function goes through. Where code changes a value before - a
validator that runs first, a model that is read under several names - it is described as anything, unless that code says
what it takes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

from docstring_parser import ParseError, parse
from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from ...protocol import Message, Output
from ...protocol.calls.tools import PLAIN
from ...protocol.calls.trust import trust_problems
from ...protocol.errors import segments
from ...protocol.messages import TRUST
from ..errors import ActivitiesError

_LENIENT: Final = ("str_strip_whitespace", "coerce_numbers_to_str")
"""Settings of a model with which its fields take more than they say."""
_SAY_NOTHING: Final = (None, NoneType, Any, object, Output, Message)
_FINDS_NONE: Final = getattr(Enum._missing_, "__func__", None)
"""The code for values that are not listed, of an enumeration that has none of its own."""


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

    `None`, `Any`, `Output`, `Message`, and what pydantic has no schema for, say nothing. In a union with `Output` or
    `Message` the rest counts, and the schema says so (see `PLAIN`).
    """
    try:
        annotation = inspect.get_annotations(function, eval_str=True).get("return")
    except NameError:
        return None
    annotated = _plain(annotation)
    if annotated in _SAY_NOTHING:
        return None
    try:
        schema = TypeAdapter[Any](annotated).json_schema(mode="serialization")
        return {**schema, PLAIN: "always" if annotated is annotation else "sometimes"} if schema else None
    except (PydanticSchemaGenerationError, PydanticUserError, NameError):
        return None


def _plain(annotation: Any) -> Any:
    """The part of an annotation that is about plain values."""
    if get_origin(annotation) not in (Union, UnionType):
        return annotation
    parts = get_args(annotation)
    rest = [part for part in parts if part not in (Output, Message)]
    if len(rest) == len(parts):
        return annotation
    return Union[tuple(rest)] if rest else None  # noqa: UP007  # of parts that are known only now


def _taking(function: Callable[..., Any], parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any]) -> Any:
    """A function that, as far as `inspect` can see, has some of the parameters of another."""

    def taking() -> None: ...

    taking.__module__ = function.__module__  # where names inside its annotations are looked up
    taking.__annotations__ = {each.name: hints[each.name] for each in parameters if each.name in hints}
    taking.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # asked for by `inspect`
    return taking


class _Describing(GenerateJsonSchema):
    """Pydantic's description of what it takes, but for what is not known and what it describes too narrowly."""

    def _code_schema(self, schema: Any) -> JsonSchemaValue:
        """Describe a validator that is code: anything, unless it says what it takes."""
        declared = schema.get("json_schema_input_schema")
        return self.generate_inner(declared) if declared is not None else {}

    function_before_schema = function_wrap_schema = function_plain_schema = _code_schema

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        """Describe a model, as anything where it is not read field by field, each under its one name."""
        return {} if schema.get("custom_init") or _has_own_ways(schema) else super().model_schema(schema)

    def dataclass_schema(self, schema: Any) -> JsonSchemaValue:
        """Describe a dataclass, as anything where it is not read field by field, each under its one name."""
        return {} if _has_own_ways(schema) else super().dataclass_schema(schema)

    def typed_dict_schema(self, schema: Any) -> JsonSchemaValue:
        """Describe a typed dictionary, as anything where it is not read field by field, each under its one name."""
        return {} if _has_own_ways(schema) else super().typed_dict_schema(schema)

    def named_tuple_schema(self, schema: Any) -> JsonSchemaValue:
        """Describe a named tuple: a list, or an object."""
        return {"anyOf": [super().named_tuple_schema(schema), {"type": "object"}]}

    def call_schema(self, schema: Any) -> JsonSchemaValue:
        """Describe a named tuple of older versions, or the function itself."""
        described = super().call_schema(schema)
        return described if described["type"] == "object" else {"anyOf": [described, {"type": "object"}]}

    def tagged_union_schema(self, schema: Any) -> JsonSchemaValue:
        """Describe a union whose branch code or a field chooses: a value may fit other branches, too."""
        described = super().tagged_union_schema(schema)
        return {**{key: part for key, part in described.items() if key != "oneOf"}, "anyOf": described["oneOf"]}

    def str_schema(self, schema: Any) -> JsonSchemaValue:
        """Describe a text; where it is trimmed, its length and pattern are those of the rest, and are left out."""
        if schema.get("coerce_numbers_to_str"):
            return {}
        return {"type": "string"} if schema.get("strip_whitespace") else super().str_schema(schema)

    def enum_schema(self, schema: Any) -> JsonSchemaValue:
        """Describe an enumeration, as anything where code finds a member for values that are not listed."""
        finds = getattr(schema["cls"]._missing_, "__func__", None)
        return super().enum_schema(schema) if finds is _FINDS_NONE else {}

    def generator_schema(self, schema: Any) -> JsonSchemaValue:
        """Describe an iterable, whose elements are validated as they are read."""
        return {"type": ["array", "object", "string"]}

    def default_schema(self, schema: Any) -> JsonSchemaValue:
        """Describe a value with a default, as anything where that replaces an invalid value."""
        return super().default_schema(schema) if schema.get("on_error", "raise") == "raise" else {}

    def complex_schema(self, schema: Any) -> JsonSchemaValue:
        """Describe a complex number: a text such as `1+2j`, or a number."""
        return {"type": ["string", "number"]}

    def kw_arguments_schema(self, arguments: Any, var_kwargs_schema: Any) -> JsonSchemaValue:
        """Describe the parameters; one that is read under several names may be given under any of them."""
        described = super().kw_arguments_schema(
            [each for each in arguments if not isinstance(each.get("alias"), list)], var_kwargs_schema
        )
        for argument in arguments:
            for name, *below in _paths(argument.get("alias")):
                described["properties"][name] = {} if below else self.generate_inner(argument["schema"])
        return described


def _paths(alias: Any) -> list[list[Any]]:
    """The paths that a value is read from, where there are several or it is not a parameter of its own."""
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


# Docstrings: the descriptions of a function and of its parameters, for its callers (SPEC R12.2a).

_SECTIONS = (":", "Args:", "Arguments:", "Parameters", "Returns:", "Raises:", "@param")
"""The beginnings of a docstring that has no text about the whole function."""


def with_descriptions(function: Callable[..., Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a function's parameters with the texts of its docstring: the first paragraph describes the whole,
    a section (as Google, NumPy, Sphinx or Epydoc have it) each parameter that has no description yet.
    """
    doc = inspect.getdoc(function) or ""
    first = " ".join(doc.partition("\n\n")[0].split())
    found = {"description": first} if first and not doc.startswith(_SECTIONS) else {}
    texts = _parameter_texts(doc)
    properties = {
        name: {**part, "description": texts[name]}
        if name in texts and isinstance(part, dict) and "description" not in part
        else part
        for name, part in schema.get("properties", {}).items()
    }
    return {**schema, **found, **({"properties": properties} if properties else {})}


def _parameter_texts(doc: str) -> dict[str, str]:
    try:
        parameters = parse(doc).params
    except ParseError:
        return {}
    return {each.arg_name: " ".join(each.description.split()) for each in parameters if each.description}


def takes(function: Any, number: int) -> bool:
    """Tell whether something can be called with so many positional arguments."""
    try:
        inspect.signature(function).bind(*range(number))
    except (TypeError, ValueError):  # not callable, or with other parameters
        return False
    return True


# Trust: an activity's `_trust` as its decorator and its signature declare it (SPEC R16.1).


class Content:
    """A parameter that decides nothing: `note: Annotated[str, Content]` may come from anybody (SPEC R16.1)."""


class Proof:
    """A parameter that may come from anybody, since it only completes a call that is trusted itself, and decides
    nothing else: `code: Annotated[str, Proof]` (SPEC R16.8).
    """


Untrusted = str | Sequence[str] | Mapping[str, str | Sequence[str]]
"""Sources of an activity's results: one, several, or for fields by their paths (SPEC R16.8)."""


def declared_trust(
    function: Callable[..., Any], *, effects: bool, untrusted: Untrusted, hosts: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """The `_trust` of an activity's schema, empty where nothing is declared. Raises `ActivitiesError`."""
    sources: Any
    if isinstance(untrusted, Mapping):
        sources = {path: _several(one) for path, one in untrusted.items()}
    else:
        sources = _several(untrusted)
    marked = {"content": list(_marked(function, Content)), "proof": list(_marked(function, Proof))}
    declared = {"effects": effects, "result": sources, **marked, "hosts": hosts}
    trust = {name: value for name, value in declared.items() if value}
    if (problem := next(trust_problems(trust), None)) is not None:
        name, *path = segments(problem.pointer) or [TRUST]
        argument = " of ".join([*map(repr, path), "untrusted" if name == "result" else name])
        raise ActivitiesError(f"activity {function.__name__!r}: {argument} {problem.message}")
    return {TRUST: trust} if trust else {}


def _several(sources: str | Sequence[str]) -> list[str]:
    return [sources] if isinstance(sources, str) else list(sources)


def _marked(function: Callable[..., Any], mark: type[Content | Proof]) -> Iterator[str]:
    """The parameters that are annotated with a mark."""
    try:
        hints = inspect.get_annotations(function, eval_str=True)
    except NameError:
        return  # reading the signature reports it
    for name, hint in hints.items():
        if any(one is mark or isinstance(one, mark) for one in getattr(hint, "__metadata__", ())):
            yield name
