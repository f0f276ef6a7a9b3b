"""What must come out, worked out from the original files in the plainest way: flow by flow, call by call.

It knows nothing of the converted submission, of JSON Schema libraries or of the product. `faults` says why
a flow must be rejected before anything runs (SPEC R4.1, R6.3, R7.1); `evaluate` gives the final state and
every call's status of a flow that is accepted: a parameter that turns out to have the wrong type fails the
call (R4.1, R7.2), and a call whose value never arrives is skipped (R6.6).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .answers import answer
from .source import RESULT_KEY, RESULT_TOOL, Call, Flow, Tool

Reason = Literal[
    "unknown tool",
    "missing required parameter",
    "wrong type",
    "outside enum",
    "outside range",
    "dangling reference",
]
Status = Literal["done", "failed", "skipped"]
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a call cannot be accepted, and where in its arguments; an empty `path` is the call itself."""

    position: int
    reason: Reason
    path: Path
    detail: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What becomes of one call, and why if it is not done."""

    status: Status
    why: str


@dataclass(frozen=True, slots=True)
class Expectation:
    """What an accepted flow leaves behind: the final state, and the outcome of each call in order."""

    state: Mapping[str, Any]
    outcomes: tuple[Outcome, ...]


class Unresolved(LookupError):
    """A reference names a value that is not there."""


def faults(flow: Flow, tools: Mapping[str, Tool]) -> list[Fault]:
    """Everything wrong with the flow that can be known without running it; nothing if it must be accepted."""
    found: list[Fault] = []
    for position, call in enumerate(flow.calls):
        found += [Fault(position, *what) for what in _wrong_call(call, tools)]
        # A forward reference would be legal (SPEC R6.1), one to the call itself would not.
        written = {other.label for other in flow.calls if other is not call}
        found += [
            Fault(position, "dangling reference", path, text)
            for path, text in _references(call.arguments)
            if _steps(text)[0] not in written
        ]
    return found


def evaluate(flow: Flow, tools: Mapping[str, Tool]) -> Expectation:
    """Run a flow that has no faults, in order."""
    state: dict[str, Any] = {}
    outcomes: list[Outcome] = []
    for call in flow.calls:
        outcome, value = _run(call, state, tools)
        if outcome.status == "done":
            state[call.label or RESULT_KEY] = value
        outcomes.append(outcome)
    return Expectation(state, tuple(outcomes))


def _run(call: Call, state: Mapping[str, Any], tools: Mapping[str, Tool]) -> tuple[Outcome, Any]:
    try:
        parameters = {name: _resolve(value, state) for name, value in call.arguments.items()}
    except Unresolved as missing:
        return Outcome("skipped", f"{missing} never arrives"), None
    if call.name == RESULT_TOOL:
        return Outcome("done", ""), parameters
    tool = tools[call.name]
    for reason, path, detail in _wrong_object(parameters, tool.parameters, (), resolved=True):
        return Outcome("failed", f"{reason} at {path}: {detail}"), None
    return Outcome("done", ""), answer(tool, parameters)


# References, read from the original notation.


def _steps(text: str) -> list[str]:
    return text[1:-1].replace("[", ".").replace("]", "").split(".")


def _is_reference(value: Any) -> bool:
    """One reference from end to end: "$var1.x$", but not "$var1.x$ - $var2.x$" or "$100-$200"."""
    if not isinstance(value, str) or len(value) < 3 or value[0] != "$" or value[-1] != "$" or "$" in value[1:-1]:
        return False
    return _steps(value)[0].isidentifier()


def _references(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    if _is_reference(value):
        yield path, value
    for key, inner in _entries(value):
        yield from _references(inner, (*path, key))


def _entries(value: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list) else []


def _resolve(value: Any, state: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: _resolve(inner, state) for key, inner in value.items()}
    if isinstance(value, list):
        return [_resolve(inner, state) for inner in value]
    return _look_up(value, state) if _is_reference(value) else value


def _look_up(text: str, state: Mapping[str, Any]) -> Any:
    found: Any = state
    for step in _steps(text):
        if isinstance(found, Mapping) and step in found:
            found = found[step]
        elif isinstance(found, list) and step.isdigit() and int(step) < len(found):
            found = found[int(step)]
        else:
            raise Unresolved(text)
    return found


# Parameters against the original specs. Before the run a reference may be anything; in it, it is its value.

_Wrong = tuple[Reason, Path, str]


def _wrong_call(call: Call, tools: Mapping[str, Tool]) -> Iterator[_Wrong]:
    if call.name == RESULT_TOOL:
        return
    if call.name not in tools:
        yield "unknown tool", (), call.name
        return
    yield from _wrong_object(call.arguments, tools[call.name].parameters, (), resolved=False)


def _wrong_object(
    values: Mapping[str, Any],
    declared: Mapping[str, Any],
    path: Path,
    *,
    resolved: bool,
    also: Sequence[str] = (),
) -> Iterator[_Wrong]:
    for name, one in declared.items():
        if name in values:
            yield from _wrong_value(values[name], one, (*path, name), resolved=resolved)
        elif one.get("required") is True or name in also:
            yield "missing required parameter", path, name


def _wrong_value(value: Any, declared: Mapping[str, Any], path: Path, *, resolved: bool) -> Iterator[_Wrong]:
    if not resolved and _is_reference(value):
        return
    if not _has_type(value, declared["type"].lower()):
        yield "wrong type", path, f"{value!r} is not {declared['type']}"
        return
    allowed = declared.get("enum") or declared.get("allowed_values") or declared.get("possible_values")
    if isinstance(allowed, list) and value not in allowed:
        yield "outside enum", path, f"{value!r} is not in {allowed}"
    if isinstance(allowed, str):  # "1-100"
        low, high = allowed.split("-")
        if not int(low) <= value <= int(high):
            yield "outside range", path, f"{value!r} is not in {allowed}"
    if isinstance(value, list) and "items" in declared:
        for index, inner in enumerate(value):
            yield from _wrong_value(inner, declared["items"], (*path, index), resolved=resolved)
    if isinstance(value, dict) and "properties" in declared:
        needed = declared["required"] if isinstance(declared.get("required"), list) else []
        yield from _wrong_object(value, declared["properties"], path, resolved=resolved, also=needed)


def _has_type(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    match name:
        case "number" | "float":
            return isinstance(value, int | float)
        case "integer":
            return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
        case "string" | "enum" | "file" | "date (yyyy-mm-dd)":
            return isinstance(value, str)
        case "boolean":
            return False
    raise ValueError(f"the specs have no type {name!r}")
