"""Output: where a call's result goes and what message it becomes (SPEC R4.3-R4.6).

The result of a call is written to one of its alternatives (`||`), at every path of it (`&&`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..errors import ExpressionError, OutputError, Problem, pointer, segments
from ..messages import TRUST, kind_of, read_data, riders, written_message
from ..paths import MISSING, index_or_key, leaves, lookup, nest, type_name
from ..references import DAGGER, Expression, Path, Reference, parse_output_path
from ..schemas import CompiledSchema, Schema, compiled, excerpt
from ..schemas.walk import parts_at
from ..state.fold import Fold
from ..state.labels import label_problems
from ..state.operations import Method, Operation
from .call import Call
from .tools import Tool

# Partial values: what is written into a kind is held against the kind's schema at its place (SPEC R4.6).
#
# While a workflow is under way a value comes together piece by piece. A write is held against what the schema says of
# the places that it gives a value, and of nothing next to or above them: that siblings are missing there is no error.


def write_problems(schema: CompiledSchema, operation: Operation, root: Any) -> list[Problem]:
    """Problems of an operation by the schema of its kind. Messages do not quote the values written."""
    path = _keyed(operation.place.path, root)
    container = _written_into(operation)
    if container is not None and not schema.admits(path, container):
        return [
            Problem(pointer(*path), f"the schema does not admit an {container} here".replace("an string", "a text"))
        ]
    problems: list[Problem] = []
    for keys, value in _pieces(operation, root):
        named = _named(schema, path, keys)
        found = schema.problems_at((*path, *keys), value, *path, *named, known=path)
        problems += found if len(named) == len(keys) else (Problem(p.pointer, f"below it, {p.message}") for p in found)
    return problems


def _written_into(operation: Operation) -> str | None:
    """Type of the container that a write adds to; None if it replaces what is there."""
    match operation.method, operation.value:
        case ((Method.MERGE | Method.ASSIGN), dict()):
            return "object"
        case (Method.PUSH, _) | (Method.CONCAT, list()):
            return "array"
        case (Method.CONCAT, _):
            return "string"
    return None


def _pieces(operation: Operation, root: Any) -> Iterator[tuple[Path, Any]]:
    """The values that an operation writes, each with its path below the operation's place."""
    value, path = operation.value, operation.place.path
    match operation.method:
        case Method.MERGE:
            yield from leaves(value)
        case Method.SET if not path:  # other parts of the kind may come later
            yield from leaves(value)
        case Method.SET:
            yield (), value
        case Method.ASSIGN:
            yield from (((key,), item) for key, item in value.items())
        case Method.PUSH:
            yield (_length(root, path),), value
        case Method.CONCAT if isinstance(value, list):
            first = _length(root, path)
            yield from (((first + number,), item) for number, item in enumerate(value))


def _keyed(path: Path, root: Any) -> Path:
    """A path with indexes only for lists: digits are a key at the root, and where there is an object (SPEC R3.5)."""
    keyed: list[str | int] = []
    for segment in path:
        keyed.append(segment if keyed and not isinstance(root, dict) else str(segment))
        root = lookup(root, (segment,))
    return tuple(keyed)


def _length(root: Any, path: Path) -> int:
    there = lookup(root, path)
    return 0 if there is MISSING else len(there)


def _named(schema: CompiledSchema, path: Path, keys: Path) -> Path:
    """The first of some keys, as far as the schema names them or they are indexes: others are part of the value."""
    for depth, key in enumerate(keys):
        parts = schema.parts((*path, *keys[:depth]))
        if not isinstance(key, int) and not any(key in part.get("properties", ()) for part in parts):
            return keys[:depth]
    return keys


Group = tuple[Reference, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """A result of an activity that chooses one of the declared alternatives: `Output("†state.failed", reason)`."""

    path: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class Message:
    """A whole data message that an activity returns instead of a value: `Message({"type": "state", "page": …})`.

    Its kind and path must be among those the call declares; it becomes one of the call's own instance (SPEC R4.5).
    """

    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Write:
    """One value at one place, and what else a message that the activity returned carries (SPEC R4.5)."""

    place: Reference
    value: Any
    riders: Mapping[str, Any] = field(default_factory=dict)


def possible_writes(output: Expression, result: Any) -> list[list[Write]]:
    """The writes that a returned value may mean, the preferred first (SPEC R4.4, R4.5). Raises `OutputError`.

    An `Output` goes to the alternative it names, a `Message` to the declared paths that it carries. A plain value,
    whatever its keys are, may go to any alternative.
    """
    if isinstance(result, Output):
        return [[Write(place, result.value) for place in _alternative(output, result.path)]]
    if isinstance(result, Message):
        return [_carried_writes(output, result.content)]
    return [[Write(place, result) for place in group] for group in output.alternatives]


def admitted_writes(call: Call, possible: list[list[Write]], fold: Fold) -> list[Write]:
    """The first of the possible writes that the schemas of their places admit, else the first (SPEC R4.4, R4.6).

    Raises `OutputError` where the schemas forbid the first and all others, `Conflict` where the values do not fit what
    is there.
    """
    refused: OutputError | None = None
    for writes in possible:
        try:
            verify_writes(call, writes, fold)
        except OutputError as error:
            refused = refused or error
        else:
            return writes
    assert refused is not None
    raise refused


def failure_writes(output: Expression | None, error: Mapping[str, Any]) -> list[Write]:
    """Where an exception goes: to the last alternative when there are two or more, else nowhere (SPEC R4.4)."""
    if output is None or len(output.alternatives) < 2:
        return []
    return [Write(place, dict(error)) for place in output.alternatives[-1]]


def written_messages(call: Call, writes: list[Write], *, date: str, instance: str | None) -> tuple[dict[str, Any], ...]:
    """One message for each path written (SPEC R4.3).

    Where the call declares several paths that could be mistaken for one another, the message says which it is.
    """
    messages = []
    for write in writes:
        message = written_message(
            write.place.kind,
            nest(write.value, write.place.path),
            call=call.raw,
            date=date,
            method=call.properties.get("_outputMethod"),
            instance=instance,
        )
        declared = call.written
        if len(declared) > 1 or call.raw.get("_outputPath") != call.properties.get("_outputPath"):
            message["_path"] = str(write.place)
        messages.append({**message, **write.riders})
    return tuple(messages)


def verify_writes(call: Call, writes: list[Write], fold: Fold) -> None:
    """Hold the values against the state's schema and what is there (SPEC R4.6, R3.4).

    Raises `OutputError`, `Conflict`.
    """
    here = Fold(fold) if len(writes) > 1 else fold  # of our own: each write finds what those before it leave
    for write in writes:
        operation = Operation(write.place, call.method, write.value, f"result of {call.tool}, call {call.index}")
        here.verify(operation)
        problems = kind_problems(here, operation)
        if problems:
            raise OutputError(
                f"the schema of {write.place.kind} forbids the value at {write.place}: {_joined(problems)}"
            )
        if here is not fold:
            here.apply(operation)


def verify_result(tool: Tool, result: Any, writes: list[Write]) -> None:
    """Hold a result, as these writes, against the tool's `_output` schema (SPEC R4.6). Raises `OutputError`.

    What comes from an annotation speaks of plain values only.
    """
    schema = tool.compiled_choice if isinstance(result, (Output, Message)) else tool.compiled_output
    if schema is None:
        return
    for value in {id(write.value): write.value for write in writes}.values():
        problems = schema.problems(value, known=())
        if problems:
            declared = tool.compiled_choice
            is_declared = declared is not None and declared.problems(value, known=())
            who = "the tool's _output" if is_declared else "the function's return annotation"
            part = lookup(value, tuple(map(index_or_key, segments(problems[0].pointer))))
            told = f"{_joined(problems)}; it is of type {type_name(value if part is MISSING else part)}"
            raise OutputError(f"the result is not what {who} promises: {told}")


def element_writes(whole: Write) -> Iterator[Write]:
    """The result of a call with `_each`, element by element; those that failed are null (SPEC R4.10).

    Raises `OutputError` where it is no list.
    """
    if not isinstance(whole.value, list):
        raise OutputError(f"the result of a call with _each is a list, and this is {type_name(whole.value)}")
    return (Write(whole.place, value) for value in whole.value if value is not None)


def kind_problems(fold: Fold, operation: Operation) -> list[Problem]:
    """Problems of an operation by the schema of its kind, if it has one (SPEC R4.6)."""
    schema = fold.schema(operation.place.kind)
    if schema is MISSING:
        return []
    return write_problems(compiled(schema), operation, fold.root(operation.place.kind))


def _alternative(output: Expression, path: str) -> Group:
    """The declared alternative that a path names."""
    if not isinstance(path, str):
        raise OutputError(f"the result names a path that is no string but {type_name(path)}; declared: {output}")
    try:
        named = parse_output_path(path)
    except ExpressionError as error:
        raise OutputError(f"the result names a path that does not parse: {error}") from error
    if len(named.alternatives) == 1:
        wanted = set(named.alternatives[0])
        fitting = [group for group in output.alternatives if wanted <= set(group)]
        if fitting:
            return next((group for group in fitting if wanted == set(group)), fitting[0])
    raise OutputError(f"the result names the path {path}, which is not declared; declared: {output}")


def _carried_writes(output: Expression, message: Any) -> list[Write]:
    """The declared paths that a returned message carries values for; it may carry no others.

    Whatever else it says rides along, in the message of each path; a schema, too, which counts for nothing: what a call
    returns chooses no schema.
    """
    is_message = isinstance(message, Mapping) and isinstance(message.get("type"), str)
    data = read_data(message) if is_message and isinstance(kind_of(message), str) else None
    if data is None:
        raise OutputError(f"the result is a Message that is no data message; declared: {output}")
    said = message.get(TRUST)
    if said is not None and (problem := next(label_problems(said), None)) is not None:
        raise OutputError(f"the result is a Message whose {TRUST} {problem.message}")
    beside = {**riders(message), **({TRUST: list(said)} if said else {})}
    for group in output.alternatives:
        writes = [
            Write(place, value, beside)
            for place in group
            if place.kind == data.kind and (value := lookup(data.payload, place.path)) is not MISSING
        ]
        if _covers(data.payload, [write.place.path for write in writes]):
            return writes
    raise OutputError(
        f"the result is a message of kind {data.kind} whose place is not a declared path; declared: {output}"
    )


def _covers(payload: Any, paths: list[tuple[str | int, ...]]) -> bool:
    """Whether every part of the payload lies at or below one of the paths."""
    if any(not path for path in paths):
        return True
    if not paths or not isinstance(payload, dict):
        return False
    return all(_covers(value, [path[1:] for path in paths if str(path[0]) == key]) for key, value in payload.items())


def _joined(problems: list[Problem]) -> str:
    return "; ".join(
        f"{problem.pointer}: {problem.message}" if problem.pointer else problem.message for problem in problems
    )


# Alternatives: the places among which a model chooses where its result goes (SPEC R4.4).
#
# A model answers `{"path": PLACE, "value": RESULT}`. Places are written without their daggers there, for in a
# solution's output a text that begins with one is a reference.

PATH: Final = "path"
VALUE: Final = "value"
_INSIDE: Final[dict[Method, Path]] = {Method.SET: (), Method.PUSH: (0,)}
"""Path below a place at which a result is unchanged, by method."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of several places, or groups of them."""

    places: tuple[Reference, ...]
    schemas: tuple[Schema, ...] = ()
    """The parts of its kinds' schemas that hold for a result there (SPEC R4.6)."""

    @property
    def name(self) -> str:
        """Name of the alternative for a model: its places without daggers."""
        return " && ".join(str(place).removeprefix(DAGGER) for place in self.places)


def alternative(places: Sequence[Reference], method: Method, fold: Fold) -> Alternative:
    """An alternative of a call that writes by this method, with what is known of results there."""
    said: list[Schema] = []
    for place in places if method in _INSIDE else ():
        schema = fold.schema(place.kind)
        if schema is not MISSING:
            document = compiled(schema).document
            parts = parts_at(document, (*place.path, *_INSIDE[method]))
            said += [excerpt(part, document) if isinstance(part, dict) else part for part in parts]
    return Alternative(tuple(places), tuple(said))


def names_of(alternatives: Iterable[Alternative]) -> dict[str, str]:
    """The places as a model names them, each with its path."""
    return {one.name: " && ".join(map(str, one.places)) for one in alternatives}


def chosen(value: Any, names: Mapping[str, str]) -> Output | None:
    """The choice that a model has written, or None: a place may be written with its daggers, too. One
    that was not shown stays as it is, and the engine refuses it.
    """
    if not isinstance(value, dict) or value.keys() != {PATH, VALUE} or not isinstance(value[PATH], str):
        return None
    path: str = value[PATH]
    return Output(names.get(path) or names.get(path.replace(DAGGER, ""), path), value[VALUE])
