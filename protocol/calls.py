"""Calls: one use of a tool, read once and kept (SPEC R4, R5).

`read_call` takes a call as a model wrote it and says everything that is wrong with its shape; `Call.resolved` gives
the parameters with their expressions replaced by values, just before execution.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import ExpressionError, Problem, pointer
from .operations import Method
from .paths import MISSING, copied, strings
from .references import DAGGER, Expression, Reference, is_expression, parse, parse_output_path, unescape
from .resolution import Fold
from .scopes import read_scope
from .tools import Executor, Runner


@dataclass(frozen=True)
class Call:
    """A call and what its text means. `index` is its position in the solution or plan."""

    index: int
    raw: Mapping[str, Any]
    properties: Mapping[str, Any]
    """Parameters and meta-properties, with what the tool's schema pins filled in (SPEC R4.1)."""
    runner: Runner
    reads: tuple[tuple[str, Expression], ...]
    """Where in the call (JSON pointer) each expression stands."""
    scopes: tuple[Reference, ...]
    output: Expression | None
    method: Method
    instance: str | None

    @property
    def tool(self) -> str:
        """The name of the tool."""
        return str(self.raw["_tool"])

    @property
    def given(self) -> Any:
        """The result a model wrote into a latent call, or `MISSING` (SPEC R4.7)."""
        return self.raw.get("_output", MISSING) if self.runner.executor is Executor.LATENT else MISSING

    @property
    def is_thought(self) -> bool:
        """A latent call without an output path: not executed, not stored (SPEC R5.2)."""
        return self.runner.executor is Executor.LATENT and self.output is None

    @property
    def is_fire_and_forget(self) -> bool:
        """An explicit call without an output path: sent, and never waited for (SPEC R5.1)."""
        return self.runner.executor is not Executor.LATENT and self.output is None

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters, unresolved."""
        return {key: value for key, value in self.raw.items() if not key.startswith("_")}

    @property
    def slices(self) -> tuple[Reference, ...]:
        """The scopes narrower than a kind: they order calls as reads do (SPEC R8.3a)."""
        return tuple(scope for scope in self.scopes if scope.path)

    def resolved(self, fold: Fold) -> dict[str, Any]:
        """The parameters with every expression replaced by its value (SPEC R2.2-R2.4).

        Values are never parsed again. Raises `Unresolved` or `Conflict`.
        """
        return {key: _resolved(value, fold) for key, value in self.parameters.items()}

    def standing_in(self) -> dict[str, Any]:
        """All properties, with expressions in the parameters as `Expression` objects (SPEC R4.1)."""
        return {key: value if key.startswith("_") else _standing_in(value) for key, value in self.properties.items()}


def expression_problems(value: Any, *at: str | int) -> Iterator[Problem]:
    """The strings inside a parameter that start with `†` and do not parse (SPEC R2.2)."""
    for place, text in strings(value):
        if is_expression(text):
            try:
                parse(text)
            except ExpressionError as error:
                yield Problem(pointer(*at, *place), str(error))


def reads_of(raw: Mapping[str, Any]) -> tuple[tuple[str, Expression], ...]:
    """Every expression in a call's parameters, with its place."""
    return tuple(
        (pointer(key, *place), parse(text))
        for key, value in raw.items()
        if not key.startswith("_")
        for place, text in strings(value)
        if is_expression(text)
    )


def shape_problems(raw: Any, *at: str | int) -> list[Problem]:
    """What is wrong with a call before anything is known of tools and context (SPEC R2.2, R3.2, R8.1)."""
    if not isinstance(raw, dict):
        return [Problem(pointer(*at), "a call must be an object")]
    problems: list[Problem] = []
    if not isinstance(raw.get("_tool"), str) or not raw["_tool"]:
        problems.append(Problem(pointer(*at, "_tool") if "_tool" in raw else pointer(*at), 'a call needs a "_tool"'))
    for name in ("_instance", "_delegate", "_activity", "_outputPath"):
        if raw.get(name) is not None and not isinstance(raw[name], str):
            problems.append(Problem(pointer(*at, name), "must be a string"))
    if "_outputMethod" in raw and raw["_outputMethod"] not in list(Method):
        problems.append(Problem(pointer(*at, "_outputMethod"), f"must be one of {', '.join(Method)}"))
    for key, value in raw.items():
        if not key.startswith("_"):
            problems.extend(expression_problems(value, *at, key))
    return problems


def meta_problems(properties: Mapping[str, Any], *at: str | int) -> list[Problem]:
    """What is wrong with the expressions in a call's meta-properties."""
    problems: list[Problem] = []
    path = properties.get("_outputPath")
    if isinstance(path, str):
        try:
            parse_output_path(path)
        except ExpressionError as error:
            problems.append(Problem(pointer(*at, "_outputPath"), str(error)))
    scopes = properties.get("_scopes", [])
    if not isinstance(scopes, list):
        return [*problems, Problem(pointer(*at, "_scopes"), "must be a list of kinds or references")]
    for index, scope in enumerate(scopes):
        try:
            if not isinstance(scope, str):
                raise ExpressionError(str(scope), 0, "a kind or a reference")
            read_scope(scope)
        except ExpressionError as error:
            problems.append(Problem(pointer(*at, "_scopes", index), str(error)))
    return problems


def completed(raw: Mapping[str, Any], constants: Mapping[str, Any]) -> dict[str, Any]:
    """A call's properties with what its tool pins filled in, and `_imports` under its newer name (SPEC R8.1).

    A meta-property of null counts as left out.
    """
    properties = {
        key: value
        for key, value in raw.items()
        if key != "_imports" and not (value is None and key.startswith("_") and key != "_output")
    }
    if raw.get("_imports") is not None:
        properties.setdefault("_scopes", raw["_imports"])
    return {**constants, **properties}


def make_call(index: int, raw: Mapping[str, Any], constants: Mapping[str, Any], runner: Runner) -> Call:
    """The call, from a text that has no problems."""
    properties = completed(raw, constants)
    path = properties.get("_outputPath")
    return Call(
        index=index,
        raw=raw,
        properties=properties,
        runner=runner,
        reads=reads_of(raw),
        scopes=tuple(map(read_scope, properties.get("_scopes") or ())),
        output=parse_output_path(path) if path is not None else None,
        method=Method(properties.get("_outputMethod") or Method.SET),
        instance=raw.get("_instance"),
    )


def _resolved(value: Any, fold: Fold) -> Any:
    match value:
        case str() if value.startswith(DAGGER):
            return fold.read(parse(value)) if is_expression(value) else unescape(value)
        case dict():
            return {key: _resolved(item, fold) for key, item in value.items()}
        case list():
            return [_resolved(item, fold) for item in value]
    return copied(value)


def _standing_in(value: Any) -> Any:
    match value:
        case str() if value.startswith(DAGGER):
            return parse(value) if is_expression(value) else unescape(value)
        case dict():
            return {key: _standing_in(item) for key, item in value.items()}
        case list():
            return [_standing_in(item) for item in value]
    return value
