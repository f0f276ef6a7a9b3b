"""Tools: what a call may name, what its schema admits, and which code runs it (SPEC R4.1, R4.2).

A tool is a JSON Schema. Its properties are parameters; properties starting with `_` are meta-properties and constrain
those of the call. Meta-properties may also stand beside `properties`, as the original documents write them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

from jsonschema import SchemaError

from .errors import Problem, pointer, segments, shortened
from .schemas import CompiledSchema, Schema, check_references, compiled, joined
from .schemas.calls import WholeCall, speaks_of_meta_properties
from .schemas.excerpts import excerpt
from .schemas.parts import applied
from .schemas.patterns import matches
from .spelling import Speller

GRANTED: Final = "x-granted"
"""Keyword of `_scopes`: what a call that omits them gets, as an activity's signature asks for (SPEC R4.1a)."""
_FILLED_IN: Final = ("_outputPath", "_outputMethod", "_scopes", "_delegate", "_activity", "_instance")
_DEFINITIONS: Final = ("$defs", "definitions")
ALIASES: Final = {"_imports": "_scopes"}
"""Older names of meta-properties, accepted in calls and in tools (SPEC R8.1)."""
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


@dataclass(frozen=True)
class Tool:
    """A declared tool."""

    name: str
    declaration: Mapping[str, Any]

    @cached_property
    def properties(self) -> dict[str, Any]:
        """Parameters and meta-properties that the tool itself speaks of, each with its schema."""
        beside = {key: value for key, value in self.declaration.items() if key.startswith("_") and value is not None}
        inside = self.declaration.get("properties", {})
        return {key: _as_schema(key, value) for key, value in {**beside, **inside}.items()}

    @cached_property
    def constants(self) -> dict[str, Any]:
        """The meta-properties that a call gets where it omits them: what the schema pins with `const` (SPEC R4.1).

        So it does what `GRANTED` says of `_scopes`.
        """
        pinned: dict[str, Any] = {}
        for keyword in (GRANTED, "const"):
            pinned |= {
                key: part[keyword]
                for key in _FILLED_IN
                for part in map(_keywords, self._said_of(key))
                if part.get(keyword) is not None
            }
        return pinned

    def place_in_declaration(self, path: tuple[str | int, ...]) -> tuple[str | int, ...]:
        """Where a place of the compiled schema stands in the declaration: a meta-property may stand beside
        `properties`.
        """
        if path[:1] == ("properties",) and len(path) > 1 and path[1] not in self.declaration.get("properties", {}):
            return path[1:]
        return path

    def _said_of(self, key: str) -> tuple[Schema, ...]:
        """What the schema says of a meta-property whatever the call is: by name, and in all that it joins."""
        names = {key, *(alias for alias, name in ALIASES.items() if name == key)}
        named = [_keywords(_keywords(part).get("properties")) for part in self.compiled.parts(())]
        root = self.compiled.schema
        return joined((part[name] for part in named for name in names if name in part), root)

    @cached_property
    def output_schema(self) -> Schema | None:
        """The schema of the tool's result, if it has one (SPEC R4.6), together with what it refers to."""
        schema = self.properties.get("_output")
        if not isinstance(schema, dict):
            return schema if isinstance(schema, bool) else None
        return excerpt(schema | self._definitions, {**self.declaration, "properties": self.properties})

    @property
    def _definitions(self) -> dict[str, Any]:
        """What `$ref` can name anywhere in the tool: its own definitions, and those that stand in its `_output`."""
        schemas = (self.properties.get("_output"), self.declaration)
        found: dict[str, Any] = {}
        for schema in schemas:
            for keyword in _DEFINITIONS:
                if isinstance(named := _keywords(schema).get(keyword), dict):
                    found[keyword] = found.get(keyword, {}) | named
        return found

    @cached_property
    def compiled_output(self) -> CompiledSchema | None:
        """The same, ready to be applied."""
        return compiled(self.output_schema) if self.output_schema is not None else None

    @cached_property
    def compiled(self) -> CompiledSchema:
        """The schema a call is held against."""
        schema = {key: value for key, value in self.declaration.items() if not key.startswith("_")} | self._definitions
        return compiled({**schema, "properties": self.properties})

    def problems(
        self,
        properties: Mapping[str, Any],
        *,
        lenient: bool = False,
        strict_meta: bool = False,
        is_secret: bool = False,
    ) -> list[Problem]:
        """What the schema says against a call's parameters and meta-properties.

        A meta-property that the schema does not mention is admitted, unless `strict_meta` is on.
        """
        older = {alias: properties[name] for alias, name in ALIASES.items() if name in properties}
        counted = [key for key in properties if strict_meta and key != "_tool" and not self.mentions(key)]
        call = WholeCall({**properties, **older}, counted=counted)
        return _under_newer_names(self.compiled.problems(call, lenient=lenient, is_secret=is_secret, known=call))

    def mentions(self, key: str) -> bool:
        """Whether the schema speaks of a meta-property, wherever it is applied to a call as a whole."""
        names, patterns = self._mentioned
        return key in names or any(matches(pattern, key) for pattern in patterns)

    @cached_property
    def _mentioned(self) -> tuple[frozenset[str], frozenset[str]]:
        """The properties that the schema speaks of by name, and the patterns by which it speaks of meta-properties."""
        root = self.compiled.schema
        parts = [part for part in applied((root,), root) if isinstance(part, dict)]
        names = {name for part in parts for name in _named(part)}
        patterns = {pattern for part in parts for pattern in part.get("patternProperties", ())}
        return (
            frozenset(names | {ALIASES[name] for name in names & ALIASES.keys()}),
            frozenset(filter(speaks_of_meta_properties, patterns)),
        )


@dataclass(frozen=True)
class Toolbox:
    """Everything a call may name: tools, activities by name with their schemas, delegates.

    `activities` or `delegates` of None means that nobody has said which there are: then every declared tool counts as
    backed by an activity of its name, and every delegate as registered (planning without a backend).
    """

    tools: Mapping[str, Tool]
    activities: Mapping[str, Mapping[str, Any]] | None = None
    delegates: Container[str] | None = None
    model: bool = True
    strict_meta: bool = False

    def tool(self, name: str) -> Tool | None:
        """The tool of that name: declared, else that of the activity registered under it (SPEC R4.2)."""
        if name in self.tools:
            return self.tools[name]
        if self.activities is not None and name in self.activities:
            return Tool(name, self.activities[name])
        return None

    def runner(self, tool: str, delegate: str | None, activity: str | None) -> Runner:
        """Who runs a call of a tool that names these (SPEC R4.2). Raises `LookupError` with the reason."""
        if delegate:
            if delegate != ANONYMOUS and self.delegates is not None and delegate not in self.delegates:
                raise LookupError(f"unknown delegate {delegate!r}{self._delegate_names.hint(delegate)}")
            return Runner(Executor.DELEGATE, delegate)
        if activity:
            if self.activities is not None and activity not in self.activities:
                raise LookupError(f"unknown activity {activity!r}{self._activity_names.hint(activity)}")
            return Runner(Executor.ACTIVITY, activity)
        if self.activities is None or tool in self.activities:
            return Runner(Executor.ACTIVITY, tool)
        return Runner(Executor.LATENT, tool)

    @cached_property
    def names(self) -> Speller:
        """The names of all known tools, for hints."""
        return Speller(dict.fromkeys((*self.tools, *(self.activities or ()))))

    @cached_property
    def _delegate_names(self) -> Speller:
        return Speller(listed(self.delegates))

    @cached_property
    def _activity_names(self) -> Speller:
        return Speller(self.activities or ())


def listed(names: object) -> Iterable[str]:
    """The names in a container, where it can tell them."""
    return names if isinstance(names, Iterable) else ()


def read_tools(context: Any, shorthand: Any) -> tuple[dict[str, Tool], list[Problem]]:
    """The tools declared by a context's messages and by the shorthand beside it; the last of a name wins."""
    tools: dict[str, Tool] = {}
    problems: list[Problem] = []
    sources: list[tuple[tuple[str | int, ...], Any]] = [
        (("context", index, "tool"), message.get("tool"))
        for index, message in enumerate(context)
        if isinstance(message, dict) and message.get("type") == "tool"
    ]
    if shorthand is not None:
        sources.append((("tools",), shorthand))
    for at, declarations in sources:
        if declarations is None:
            problems.append(Problem(pointer(*at[:-1]), 'a tool message needs "tool": tool name to JSON Schema'))
            continue
        if not isinstance(declarations, dict):
            problems.append(Problem(pointer(*at), "must be an object of tool name to JSON Schema"))
            continue
        for name, declaration in declarations.items():
            tool = Tool(name, declaration)
            problem = _declaration_problem(tool, *at, name)
            if problem is not None:
                problems.append(problem)
                tool = Tool(name, {})  # so that its calls are not called unknown as well
            tools[name] = tool
    return tools, problems


def _keywords(schema: Any) -> dict[str, Any]:
    """The keywords of a schema; `true` and `false` have none."""
    return schema if isinstance(schema, dict) else {}


def _named(schema: Mapping[str, Any]) -> Iterator[str]:
    """The properties that a schema's own keywords speak of by name."""
    for keyword in ("properties", "required", "dependentSchemas", "dependentRequired"):
        yield from schema.get(keyword, ())
    for names in schema.get("dependentRequired", {}).values():
        yield from names


def _under_newer_names(problems: Iterable[Problem]) -> list[Problem]:
    """The problems, each at the newer name of what it speaks of; what is said under both names, once."""
    told: dict[Problem, None] = {}
    for problem in problems:
        key, *below = segments(problem.pointer) or ("",)
        newer = Problem(pointer(ALIASES[key], *below), problem.message) if key in ALIASES else problem
        told[newer] = None
    return list(told)


def _as_schema(key: str, value: Any) -> Any:
    """A meta-property may be pinned by writing its value: `"_activity": "logEvent"`."""
    return value if isinstance(value, (dict, bool)) or not key.startswith("_") else {"const": value}


def _declaration_problem(tool: Tool, *at: str | int) -> Problem | None:
    declaration: Any = tool.declaration
    if not isinstance(declaration, dict):
        return Problem(pointer(*at), "a tool must be a JSON Schema object")
    if not isinstance(declaration.get("properties", {}), dict):
        return Problem(pointer(*at, "properties"), "must be an object")
    required = declaration.get("required", [])
    if not isinstance(required, list) or not all(isinstance(key, str) for key in required):
        return Problem(pointer(*at, "required"), "must be a list of strings")
    try:
        check_references(tool.compiled.schema)
    except SchemaError as error:
        place = tool.place_in_declaration(tuple(error.absolute_path))
        return Problem(pointer(*at, *place), f"not a JSON Schema: {shortened(error.message)}")
    return None
