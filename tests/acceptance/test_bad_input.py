"""Bad input (issue 2): a clear error on one line, exit 2 or 3, no traceback, nothing left in Redis.

`finish` in command.py holds every command run here to "no traceback"; these tests hold them to the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from acts_celery.broker_config import EmbeddedServer

from .backend import server_settings, stored_keys
from .command import ACTIVITIES, AT_ONCE, Finished, acts, assert_refused, at_once, encoded

DEPTH = 10_000
MEGABYTES_2 = "x" * (2 * 1024 * 1024)
TOOLS = {
    "count": {
        "type": "object",
        "properties": {"number": {"type": "integer"}, "of": {}},
        "required": ["number"],
        "additionalProperties": False,
    }
}


def calls(*these: Any, context: Sequence[Any] = ()) -> dict[str, Any]:
    """A submission of these calls over a known tool `count` and the activity `give`."""
    return {"context": list(context), "tools": TOOLS, "solution": {"calls": list(these), "output": None}}


def give(**more: Any) -> dict[str, Any]:
    """A good call, unless more makes it a bad one."""
    return {"_tool": "give", "value": 1, "_outputPath": "†state.x"} | more


def raw(text: str) -> bytes:
    """A submission with this text as one parameter's JSON, as no JSON library would write it."""
    return encoded(calls(give(value="HERE"))).replace(b'"HERE"', text.encode())


def nested(opening: str, closing: str, depth: int = DEPTH) -> str:
    """Valid JSON of this depth."""
    return opening * depth + "1" + closing * depth


@dataclass(frozen=True)
class Bad:
    """A bad submission, the pointers its errors must have (a prefix each), a word it says."""

    content: object
    pointers: tuple[str, ...] = ("",)
    says: str = ""


CYCLE = [
    {"_tool": "give", "value": "†state.b", "_outputPath": "†state.a"},
    {"_tool": "give", "value": "†state.c", "_outputPath": "†state.b"},
    {"_tool": "give", "value": "†state.a", "_outputPath": "†state.c"},
]
CALL = "/solution/calls/0"
STRUCTURE = {
    "empty": Bad(b""),
    "not JSON": Bad(b"context: []"),
    "two documents": Bad(b"{} {}"),
    "invalid UTF-8": Bad(b'{"context": "\xff\xfe"}'),
    "a list": Bad([]),
    "null": Bad(b"null"),
    "no work": Bad({}),
    "duplicate key": Bad(b'{"context": [], "context": [], "solution": {"calls": []}}', says="context"),
    "NaN": Bad(raw("NaN"), says="NaN"),
    "a number beyond floats": Bad(raw("1e999")),
    "an integer beyond 64 bits": Bad(raw("9" * 40)),
    "a lone surrogate": Bad(raw('"\\ud800"')),
    "arrays nested": Bad(nested("[", "]").encode()),
    "objects nested": Bad(nested('{"a":', "}").encode()),
    "arrays nested in a message": Bad(
        encoded(calls(give(), context=[{"type": "data", "data": "HERE"}])).replace(b'"HERE"', nested("[", "]").encode())
    ),
    "objects nested in a parameter": Bad(raw(nested('{"a":', "}"))),
    "a message of 2 MB": Bad(calls(give(), context=[{"type": "data", "data": {"t": MEGABYTES_2}}]), ("/context",)),
    "a parameter of 2 MB": Bad(calls(give(value=MEGABYTES_2)), ("/solution",)),
    "context is no list": Bad({"context": {}, "solution": {"calls": []}}, ("/context",)),
    "a message is no object": Bad({"context": ["hello"], "solution": {"calls": []}}, ("/context/0",)),
    "a message without a type": Bad({"context": [{"data": {}}], "solution": {"calls": []}}, ("/context/0",)),
    "solution is no object": Bad({"context": [], "solution": []}, ("/solution",)),
    "calls are no list": Bad({"context": [], "solution": {"calls": {}}}, ("/solution/calls",)),
    "a call is no object": Bad(calls("give"), (CALL,)),
    "a call without a tool": Bad(calls({"value": 1}), (CALL,)),
    "tools are no object": Bad({"context": [], "tools": "count", "solution": {"calls": []}}, ("/tools",)),
    "a tool is no schema": Bad(calls() | {"tools": {"count": {"type": "nonsense"}}}, ("/tools/count",)),
}

# Calls with one fault each, all in one submission: its pointer below the call, and a word its error says.
FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "an unknown tool": (give(_tool="nobody"), "/_tool", "nobody"),
    "an unknown delegate": ({"_tool": "ask", "_delegate": "no one"}, "/_delegate", "no one"),
    "a delegate that its tool does not name": (give(_delegate="no one"), "/_delegate", "does not name _delegate"),
    "an unknown instance": (give(_instance="⑨"), "/_instance", "⑨"),
    "a bad reference": (give(value="†state..x"), "/value", "†state..x"),
    "half an expression": (give(value="†state.x ||"), "/value", "†state.x ||"),
    "a bad one deep inside": (give(value={"a/b": [0, {"~": "† state"}]}), "/value/a~1b/1/~0", "† state"),
    "a bad output path": (give(_outputPath="†state.x &&"), "/_outputPath", "†state.x &&"),
    "a wrong type": ({"_tool": "count", "number": "one"}, "/number", "integer"),
    "a missing parameter": ({"_tool": "count"}, "", "number"),
    "a parameter too many": ({"_tool": "count", "number": 1, "extra": 1}, "", "extra"),
    "an output path of a wrong type": (give(_outputPath=1), "/_outputPath", ""),
    "an unknown output method": (give(_outputMethod="shuffle"), "/_outputMethod", "concat"),
    "scopes of a wrong type": (give(_scopes=7), "/_scopes", ""),
    "an instance of a wrong type": (give(_instance=["①"]), "/_instance", ""),
}
GRAPH = {
    "a cycle": Bad(calls(*CYCLE), ("/solution/calls",)),
    "a call reading only what it writes": Bad(calls(give(value="†state.x")), (CALL,)),
    "a bad call of a plan": Bad(
        {"context": [{"type": "plan", "calls": [give(), give(_tool="nobody")]}]}, ("/context/0/",), "nobody"
    ),
    "a reference to nothing beside a wrong type": Bad(
        calls(give(value="†input.nothing"), {"_tool": "count", "number": "one"}),
        (f"{CALL}/value", "/solution/calls/1/number"),
        "†input.nothing",
    ),
    "many at once": Bad(
        calls(*(call for call, _, _ in FAULTS.values())),
        tuple(f"/solution/calls/{index}{at}" for index, (_, at, _) in enumerate(FAULTS.values())),
    ),
}


BAD = STRUCTURE | GRAPH
OPTIONS = ("--json", "--activities", str(ACTIVITIES))


@pytest.fixture(scope="module")
def untouched_server() -> Iterator[EmbeddedServer]:
    """A server that nothing but these submissions has reached."""
    with EmbeddedServer() as server:
        yield server


@pytest.fixture(scope="module")
def refusals(untouched_server: EmbeddedServer) -> Iterator[dict[str, Future[Finished]]]:
    """What `acts submit` says to each bad submission, a few at a time."""
    submit = partial(acts, "submit", "-", *OPTIONS, env=server_settings(untouched_server))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(submit, stdin=bad.content) for name, bad in BAD.items()}


@pytest.fixture(scope="module")
def checks() -> dict[str, Finished]:
    """What `acts check` said to some of them."""
    names = ("not JSON", "a list", "objects nested", "a message of 2 MB", "a cycle", "many at once")
    finished = at_once(partial(acts, "check", "-", *OPTIONS, stdin=BAD[name].content) for name in names)
    return dict(zip(names, finished, strict=True))


@pytest.mark.parametrize("name", BAD)
def test_a_bad_submission_is_refused_with_one_line_for_each_error(
    name: str, refusals: dict[str, Future[Finished]]
) -> None:
    bad, result = BAD[name], refusals[name].result()
    assert_refused(result)
    assert len(result.error_lines) == len(bad.pointers), result
    for line, pointer in zip(result.error_lines, bad.pointers, strict=True):
        assert pointer in line, result
    assert bad.says in result.stderr


def test_every_fault_is_reported_with_what_is_wrong(checks: dict[str, Finished]) -> None:
    errors = checks["many at once"].json["errors"]
    told = [(error["pointer"], fault) for error, fault in zip(errors, FAULTS, strict=True)]
    assert told == [(f"/solution/calls/{index}{at}", fault) for index, (fault, (_, at, _)) in enumerate(FAULTS.items())]
    assert [
        word for error, (_, _, word) in zip(errors, FAULTS.values(), strict=True) if word not in error["message"]
    ] == []


def test_refusals_leave_nothing_in_redis(
    refusals: dict[str, Future[Finished]], untouched_server: EmbeddedServer
) -> None:
    wait(refusals.values())
    assert stored_keys(untouched_server.redis_url) == set()


def test_check_gives_the_same_errors_to_machines(checks: dict[str, Finished]) -> None:
    for name, result in checks.items():
        assert_refused(result)
        assert result.json["valid"] is False
        errors = result.json["errors"]
        assert len(errors) == len(BAD[name].pointers), result
        for error, pointer in zip(errors, BAD[name].pointers, strict=True):
            assert error["pointer"].startswith(pointer), result
            assert isinstance(error["message"], str)
            assert error["message"]


def test_a_cycle_is_reported_by_its_calls_in_order(checks: dict[str, Finished]) -> None:
    (error,) = checks["a cycle"].json["errors"]
    # 0 reads what 1 writes, 1 what 2 writes, 2 what 0 writes: named around the circle, back to where it began.
    told = [int(index) for index in re.findall(r"\bcall (\d+)", error["message"])]
    assert told in ([0, 1, 2, 0], [1, 2, 0, 1], [2, 0, 1, 2]), error


def test_a_rejected_run_starts_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    result = acts("run", "-", "--json", stdin=b"not JSON", env={"TMPDIR": str(tmp_path)})
    assert_refused(result)
    assert len(result.error_lines) == 1
    assert list(tmp_path.iterdir()) == []


def test_errors_are_printed_once_and_only_on_stderr_without_json() -> None:
    result = acts("check", "-", "--activities", str(ACTIVITIES), stdin=calls(give(_tool="nobody")))
    assert result.code == 2
    (line,) = [line for line in result.error_lines if "/solution/calls/0/_tool" in line]
    assert "nobody" in line
    assert "nobody" not in result.stdout
