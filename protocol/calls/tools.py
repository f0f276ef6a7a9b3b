"""Tools: what their schemas admit and pin (SPEC R4.1, R8.1).

A tool is a JSON Schema. Its properties are parameters; properties starting with `_` are meta-properties and constrain
those of the call, wherever the schema applies to the call as a whole: `call_schema` says what keywords mean there.
At the root meta-properties may also be next to `properties`, as the original documents write them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, partial
from typing import Any, Final

from .. import limits
from ..errors import ExpressionError, Problem, pointer, segments
from ..messages import TRUST
from ..paths import MISSING
from ..references import Expression, Path, parse_output_path
from ..schemas import CompiledSchema, Schema, SchemaError, compiled, conjuncts, excerpt
from ..schemas.walk import all_of, applied, matches, normalized
from ..state.scopes import NamedScopes
from .meta_properties import (
    ALIASES,
    FILLED_IN,
    RESULT,
    WHO,
    WITHHELD,
    call_schema,
    speaks_of_meta_properties,
    spellings,
)
from .pins import Pins
from .trust import ToolTrust

# Output pins: the spellings under which a tool's schema may admit the output path of a call (SPEC R4.1).
#
# A pin speaks of the whole expression or of each of its places. A path that the schema names is that place however a
# call spells it: bare, or in its `†state.` form; a `pattern` speaks of what the call says.

_PLACE: Final = re.compile(r'(?:[^|&"]|"(?:[^"\\]|\\.)*+")++', re.DOTALL)
"""One place of an output path that can be parsed."""


class NamedPaths:
    """The output paths that a schema names."""

    def __init__(self, values: Iterable[Any]) -> None:
        self._named = {path: value for value in values if (path := _parsed(value)) is not None}

    def named(self, path: Any) -> Any:
        """A path as the schema names it, else as it is."""
        expression = _parsed(path)
        return self._named.get(expression, path) if expression is not None else path

    def places(self, path: Any) -> list[str]:
        """Each of its places, where it has several, as the schema names it, else as it is."""
        expression = _parsed(path)
        if expression is None or len(expression.references) < 2:
            return []
        return [self.named(part.strip()) for part in dict.fromkeys(_PLACE.findall(path))]


def _parsed(path: Any) -> Expression | None:
    try:
        return parse_output_path(path) if isinstance(path, str) else None
    except ExpressionError:
        return None


GRANTED: Final = "x-granted"
"""Keyword of `_scopes`: what a call that omits them gets, as an activity's signature asks for (SPEC R4.1a)."""
PLAIN: Final = "x-plain"
"""Keyword of `_output`: it comes from a return annotation and speaks of plain values only (SPEC R4.6). These are what
the activity returns `always`, or `sometimes`, where it may as well choose a path with an `Output` or a `Message`.
"""
_RESULT: Final = ("properties", RESULT)
ANONYMOUS: Final = "anonymous"
"""The delegate that is a fresh empty context for the call's own tool (SPEC R9.1)."""


class Executor(StrEnum):
    """Who runs a call."""

    ACTIVITY = "activity"
    DELEGATE = "delegate"
    LATENT = "latent"


@dataclass(frozen=True, slots=True)
class Runner:
    """Who runs one call, and under which name."""

    executor: Executor
    name: str


RESOURCE: Final = "_resource"
"""The name of a server or another resource outside that a tool reads or changes (SPEC R6.8)."""
SERVERS: Final = "mcp."
"""The beginning of the names of MCP servers as resources."""
ONCE: Final = "_once"
"""Whether a call runs at most once, or a person is asked (SPEC R4.11)."""
BESIDE: Final = (TRUST, RESOURCE, ONCE)
"""Names of what a tool says beside its `properties` and that speaks of no property of a call."""


@dataclass(frozen=True)
class Tool:
    """A declared tool."""

    name: str
    declaration: Mapping[str, Any]
    is_held: bool = True
    """Whether results are held against what the tool promises of them."""

    @cached_property
    def document(self) -> dict[str, Any]:
        """The tool as one schema: all that it speaks of in `properties`, and references as pointers from its root."""
        beside = {
            key: value
            for key, value in self.declaration.items()
            if key.startswith("_") and key not in BESIDE and value is not None
        }
        inside = self.declaration.get("properties", {})
        properties = {key: _as_schema(key, value) for key, value in {**beside, **inside}.items()}
        rest = {key: value for key, value in self.declaration.items() if not key.startswith("_")}
        document: dict[str, Any] = normalized({**rest, "properties": properties}, _readings)
        return document

    @cached_property
    def description(self) -> str | None:
        """Description from the declaration, else from the signature that the declaration adds to."""
        parts = conjuncts((self.document,), self.document)
        return next((said for part in parts if isinstance(said := part.get("description"), str)), None)

    @cached_property
    def trust(self) -> ToolTrust:
        """Trust that the tool declares for itself, and whether it runs at most once (SPEC R4.11, R16.1)."""
        trust = ToolTrust.read(self.declaration.get(TRUST))
        return replace(trust, once=True) if self.declaration.get(ONCE) is True else trust

    @property
    def resource(self) -> str | None:
        """The name of the outside resource that the tool reads or changes, if it names one (SPEC R6.8)."""
        name = self.declaration.get(RESOURCE)
        return name if isinstance(name, str) else None

    @property
    def is_of_server(self) -> bool:
        """Whether an MCP server has the tool: it has effects unless somebody says that it only reads (SPEC R16.8)."""
        return (self.resource or "").startswith(SERVERS)

    @cached_property
    def compiled(self) -> CompiledSchema:
        """The schema a call is held against."""
        return compiled(self.document)

    @cached_property
    def inputs(self) -> Pins:
        """Expressions that the tool prescribes for its parameters (SPEC R4.1)."""
        return Pins(self.document)

    @cached_property
    def of_values(self) -> dict[str, Any]:
        """The document as it speaks of values, whatever expressions it prescribes."""
        return self.inputs.of_values if self.inputs else self.document

    @cached_property
    def constants(self) -> dict[str, Any]:
        """The meta-properties that a call gets where it omits them: what the schema pins with `const` (SPEC R4.1).

        `_scopes` also gets what `GRANTED` lists. Both count only if they apply by name to every call.
        """
        pinned: dict[str, Any] = {}
        for keyword in (GRANTED, "const"):
            for key in FILLED_IN:
                for part in conjuncts(self._schemas_for(key), self.document):
                    if part.get(keyword) is not None:
                        pinned[key] = part[keyword]
        return pinned

    @cached_property
    def pinned_places(self) -> tuple[str, ...]:
        """The alternatives of the place that it pins, where there are several: the model chooses (SPEC R12.4)."""
        try:
            pinned = parse_output_path(self.constants.get("_outputPath") or "")
        except (ExpressionError, TypeError):
            return ()
        groups = pinned.alternatives
        return tuple(" && ".join(map(str, group)) for group in groups) if len(groups) > 1 else ()

    def choices(self, key: str) -> tuple[str, ...]:
        """The names that the schema lists for a meta-property of every call: by `const`, or by `enum`."""
        parts = conjuncts(self._schemas_for(key), self.document)
        named = [value for part in parts for value in (*part.get("enum", ()), part.get("const"))]
        return tuple(dict.fromkeys(value for value in named if isinstance(value, str) and value))

    @cached_property
    def lists(self) -> tuple[str | list[str], ...]:
        """The values that the schema lists for `_each`, by `const` or by `enum`: one parameter, or several at once (see
        SPEC R4.10).
        """
        parts = conjuncts(self._schemas_for("_each"), self.document)
        said = [value for part in parts for value in (*part.get("enum", ()), part.get("const"))]
        named = [value for value in said if value and all(isinstance(one, str) for one in value)]
        return tuple(value for at, value in enumerate(named) if value not in named[:at])

    @cached_property
    def output_schema(self) -> Schema | None:
        """The schema of the tool's result, if it has one (SPEC R4.6), together with what it refers to.

        It is what holds for every call; `anyOf`, `if` and the like speak of single calls only.
        """
        return self._promised(None, "always")

    @cached_property
    def compiled_output(self) -> CompiledSchema | None:
        """Schema of plain results, compiled; None if the tool promises nothing of them."""
        schema = self._promised(None, "always", "sometimes")
        return compiled(schema) if schema is not None else None

    @cached_property
    def compiled_choice(self) -> CompiledSchema | None:
        """Schema of results that an `Output` or a `Message` binds to a path, compiled; None if the tool promises
        nothing of them.
        """
        schema = self._promised(None)
        return compiled(schema) if schema is not None else None

    @property
    def gives_result(self) -> bool:
        """Whether the tool promises results other than null."""
        said = self.compiled_output.document if self.compiled_output is not None else None
        return isinstance(said, dict) and said.get("type") != "null" and said.get("const", MISSING) is not None

    def _promised(self, *plain: str | None) -> Schema | None:
        """Schema of results from those parts of `_output` that are marked in one of the given ways (see `PLAIN`)."""
        said = self._schemas_for(RESULT) if self.is_held else []
        promises = [part for part in said if (part.get(PLAIN) if isinstance(part, dict) else None) in plain]
        promise = all_of(promises) if promises else None
        return excerpt(promise, self.document) if isinstance(promise, dict) else promise

    def place_in_declaration(self, path: tuple[str | int, ...]) -> tuple[str | int, ...]:
        """Path in the declaration of a place in the document: a meta-property may be next to `properties`."""
        if path[:1] == ("properties",) and len(path) > 1 and path[1] not in self.declaration.get("properties", {}):
            return path[1:]
        return path

    def _schemas_for(self, key: str) -> list[Schema]:
        """Schemas that the tool applies to a meta-property of every call, under its current and older name."""
        parts = conjuncts((self.document,), self.document)
        named = ((part.get("properties", {}), name) for part in parts for name in spellings(key))
        return [properties[name] for properties, name in named if name in properties]

    def problems(
        self,
        properties: Mapping[str, Any],
        *,
        lenient: bool = False,
        strict_meta: bool = False,
        is_secret: bool = False,
        is_latent: bool = False,
        written: Mapping[str, Any] | None = None,
    ) -> list[Problem]:
        """List the problems of a call's parameters and meta-properties by the schema.

        A meta-property that the schema does not mention is admitted, unless `strict_meta` is on. Scopes may be narrower
        than those that it admits (SPEC R8.1). A latent call may write to any one of the alternatives that it pins.
        `written` is the completed call, of which the pins of parameters speak; without it they are not looked at.
        """
        if is_latent and NamedPaths(self.pinned_places).named(properties.get("_outputPath")) in self.pinned_places:
            properties = {**properties, "_outputPath": self.constants["_outputPath"]}
        schema, unfit = self._as_written(written)
        said: dict[str, Any] = {"lenient": lenient, "strict_meta": strict_meta, "is_secret": is_secret}
        return [*unfit, *self._value_problems(partial(self._spelt_problems, schema, **said), properties)]

    def _value_problems(
        self, problems_of: Callable[[Mapping[str, Any]], list[Problem]], properties: Mapping[str, Any]
    ) -> list[Problem]:
        """The problems of a call with the scopes that the schema admits (SPEC R8.1)."""
        given = properties.get("_scopes", MISSING)
        if given is MISSING:
            return problems_of(properties)
        likely = self._named_scopes.nearest(given)
        if likely != given and not problems_of({**properties, "_scopes": likely}):
            return []
        problems = problems_of(properties)
        if problems:
            for wider in self._named_scopes.wider(given):
                others = problems_of({**properties, "_scopes": wider})
                if len(others) < len(problems) and not any(one.pointer.startswith("/_scopes") for one in others):
                    return others
        return problems

    def _as_written(self, written: Mapping[str, Any] | None) -> tuple[CompiledSchema, list[Problem]]:
        """The schema of the values of a call with this text, and the problems of the text itself."""
        if not self.inputs:
            return self.compiled, []
        if written is None:
            return compiled(self.of_values), []
        document, problems = self.inputs.specialized(written)
        try:
            return compiled(document), problems
        except SchemaError as error:  # it is too large for one call
            return compiled(self.of_values), [*problems, Problem("", error.message)]

    def _spelt_problems(self, schema: CompiledSchema, properties: Mapping[str, Any], **options: bool) -> list[Problem]:
        """The problems of all of an output path, as the schema names it; or, where they are fewer, of each place."""
        problems = self._problems(schema, properties, **options)
        path = properties.get("_outputPath")
        if not problems or not self.names("_outputPath"):
            return problems
        if (named := self._named_paths.named(path)) != path:
            problems = min(problems, self._problems(schema, {**properties, "_outputPath": named}, **options), key=len)
        found: dict[Problem, None] = {}
        for place in self._named_paths.places(path):
            found.update(dict.fromkeys(self._problems(schema, {**properties, "_outputPath": place}, **options)))
            if len(found) >= len(problems):
                return problems
        return list(found) if self._named_paths.places(path) else problems

    def _problems(
        self,
        schema: CompiledSchema,
        properties: Mapping[str, Any],
        *,
        lenient: bool,
        strict_meta: bool,
        is_secret: bool,
    ) -> list[Problem]:
        older = {alias: properties[name] for alias, name in ALIASES.items() if name in properties}
        call = {**properties, **older} if older else properties
        whole = call_schema(schema, call, self._meta_mentioned if strict_meta else None)
        problems = whole.problems(call, lenient=lenient, known=call if is_secret else None)
        return _under_newer_names(problems) if problems else []

    def spellings(self, path: Any) -> list[Any]:
        """An output path as the schema names it, and each of its places; none where the schema says nothing of it."""
        is_said = isinstance(path, str) and self.names("_outputPath")
        return [self._named_paths.named(path), *self._named_paths.places(path)] if is_said else []

    def work(self, properties: Mapping[str, Any]) -> int:
        """The units of work that it can take to hold a call against the schema, and to list what is wrong with it.

        None where that is no more than it takes to read the call.
        """
        work = self.compiled.work
        places = self._named_paths.places(properties.get("_outputPath")) if self.names("_outputPath") else ()
        ways = 1 + len(places)
        return ways * work.listing(properties) if ways * work.applications > limits.TOOLS_CHEAP else 0

    @cached_property
    def _named_paths(self) -> NamedPaths:
        """The output paths that the schema names wherever it speaks of `_outputPath`."""
        said = [part.get("properties", {}).get("_outputPath") for part in self._applied]
        return NamedPaths(value for part in applied(said, self.document) for value in _values_of(part))

    @cached_property
    def _named_scopes(self) -> NamedScopes:
        """The scopes, and lists of scopes, that the schema names wherever it speaks of `_scopes`."""
        said = [part.get("properties", {}).get(name) for part in self._applied for name in spellings("_scopes")]
        lists = applied(said, self.document)
        elements = applied((part.get("items") for part in lists), self.document)
        return NamedScopes(value for part in (*lists, *elements) for value in _values_of(part))

    def names(self, key: str) -> bool:
        """Whether the schema speaks of a property by one of its names, wherever it is applied to a call as a whole."""
        return any(name in part.get("properties", ()) for part in self._applied for name in spellings(key))

    @property
    def hidden(self) -> str | None:
        """Name of `_trust` or `_once` where it is in `properties`, or in a part of the schema, where nothing reads it
        (SPEC R4.11, R16.1).
        """
        said = (TRUST, ONCE)
        return next((key for key in said if self.names(key) or any(key in part for part in self._applied)), None)

    @cached_property
    def pins(self) -> bool:
        """Whether the schema speaks of meta-properties beyond those that say who runs the call."""
        return any(map(_pins, self._applied))

    @cached_property
    def pins_by_parameters(self) -> bool:
        """Whether the pins of meta-properties depend on parameters: they are in `anyOf`, `if` and the like."""
        always = {id(part) for part in conjuncts((self.document,), self.document)}
        return any(_pins(part) for part in self._applied if id(part) not in always)

    def mentions(self, key: str) -> bool:
        """Whether the schema speaks of a property, wherever it is applied to a call as a whole."""
        names, patterns = self._mentioned
        return key in names or any(
            matches(pattern, key) for pattern in patterns if speaks_of_meta_properties(pattern) == key.startswith("_")
        )

    @property
    def named(self) -> tuple[str, ...]:
        """The properties that the schema speaks of by name, wherever it is applied to a call as a whole."""
        return tuple(sorted(self._mentioned[0]))

    @cached_property
    def _meta_mentioned(self) -> tuple[str, ...]:
        """Patterns for the names of the meta-properties that the schema speaks of, wherever it is applied to a call."""
        names, patterns = self._mentioned
        named = "|".join(re.escape(name) for name in sorted({*names, "_tool", *WITHHELD}) if name.startswith("_"))
        return (f"^(?:{named})$", *sorted(filter(speaks_of_meta_properties, patterns)))

    @cached_property
    def _applied(self) -> list[dict[str, Any]]:
        """The schemas that are applied to a call as a whole."""
        return applied((self.document,), self.document)

    @cached_property
    def _mentioned(self) -> tuple[frozenset[str], frozenset[str]]:
        """The properties that the schema speaks of by name, and the patterns by which it speaks of others."""
        names = {name for part in self._applied for name in _named(part)}
        patterns = {pattern for part in self._applied for pattern in part.get("patternProperties", ())}
        newer = {ALIASES.get(name, name) for name in names}
        return frozenset(each for name in newer for each in spellings(name)), frozenset(patterns)


def _pins(part: Mapping[str, Any]) -> bool:
    """Whether a schema's own keywords speak of meta-properties beyond those that say who runs the call."""
    return any(name.startswith("_") and ALIASES.get(name, name) not in WHO for name in _named(part)) or any(
        map(speaks_of_meta_properties, part.get("patternProperties", ()))
    )


def _values_of(schema: Schema) -> Iterator[Any]:
    """The values that a schema names."""
    if isinstance(schema, dict):
        yield from [schema["const"]] if "const" in schema else []
        yield from schema.get("enum", ())


def _named(schema: Mapping[str, Any]) -> Iterator[str]:
    """The properties that a schema's own keywords speak of by name."""
    for keyword in ("properties", "required", "dependentSchemas", "dependentRequired"):
        yield from schema.get(keyword, ())
    for names in schema.get("dependentRequired", {}).values():
        yield from names


def _under_newer_names(problems: Iterable[Problem]) -> list[Problem]:
    """The problems, each under the newer name of its property; a problem under both names counts once."""
    told: dict[Problem, None] = {}
    for problem in problems:
        key, *below = segments(problem.pointer) or ("",)
        newer = Problem(pointer(ALIASES[key], *below), problem.message) if key in ALIASES else problem
        told[newer] = None
    return list(told)


def _readings(place: Path, path: Path) -> Iterator[Path]:
    """Yield the paths that a pointer at a place may mean: in the tool's `_output` the document may be its own, and
    anywhere a meta-property may be named as if it were next to `properties`.
    """
    if place[:2] == _RESULT:
        yield (*_RESULT, *path)
    yield path
    if path and str(path[0]).startswith("_"):
        yield ("properties", *path)


def _as_schema(key: str, value: Any) -> Any:
    """A meta-property may be pinned by writing its value: `"_activity": "logEvent"`."""
    return value if isinstance(value, (dict, bool)) or not key.startswith("_") else {"const": value}
