"""Whether one tenant holds up another: `make bench ARGS=hostile` or `python -m tests.benchmarks hostile`.

A worker as it is started by default serves a run of each kind that wants everything for itself. Beside it small runs of
three calls, one behind the other, are submitted and waited for, for half a minute. Of each kind is printed the longest
that a small run took, by how much memory the worker's processes grew, and how the hostile run ended: by itself, or
because it was cancelled. The goals are 5 s, 600 MB, and an end of each. A row is of a visitor of `acts mcp --http` who
has large documents checked; there another one asks for /health. Beside that, and beside answers full of mistakes, the
goal is 3 s.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from acts_celery import Client, Run
from acts_celery.broker_config import EmbeddedServer, load
from acts_celery.protocol import Rejected
from tests.benchmarks.surroundings import family, ready_worker

GOAL_SECONDS: Final = 5.0
GOAL_SOON_SECONDS: Final = 3.0
"""Where a neighbour waits for what is read."""
GOAL_BYTES: Final = 600_000_000
_DOCUMENTS: Final = "large documents"
_TOKEN: Final = "hostile-0123456789abcdef"  # of a server that only this measurement has
_ACTIVITIES: Final = Path(__file__).with_name("hostile_activities.py")
_SMALL_RUNS: Final = 5
_SECONDS: Final = 30.0
"""So long small runs are submitted at least: what a hostile run has begun comes back later."""
_HEAD_START_SECONDS: Final = 2.0
_PATIENCE_SECONDS: Final = 60.0
_END_SECONDS: Final = 30.0
"""So long a run that was cancelled may take to end."""
_NO_END: Final = "does not end"
_SMALL: Final = (
    {"_tool": "add_one", "number": 1, "_outputPath": "†state.a"},
    {"_tool": "add_one_plain", "number": "†state.a", "_outputPath": "†state.b"},
    {"_tool": "add_one", "number": "†state.b", "_outputPath": "†state.c"},
)


@dataclass(frozen=True)
class Hostility:
    """A kind of run that may hold up others."""

    name: str
    document: Callable[[], dict[str, Any]]
    goal_seconds: float = GOAL_SECONDS


@dataclass(frozen=True)
class Measured:
    """How long the small runs took beside it, in seconds; those that did not end count as the patience."""

    name: str
    seconds: Sequence[float]
    grown_bytes: int
    end: str
    goal_seconds: float = GOAL_SECONDS

    @property
    def worst(self) -> float:
        """The longest."""
        return max(self.seconds)

    @property
    def is_within_goals(self) -> bool:
        """Whether it harmed nobody."""
        return self.worst <= self.goal_seconds and self.grown_bytes <= GOAL_BYTES and not self.end.startswith(_NO_END)


def plan(instances: int, *calls: Mapping[str, Any], context: Sequence[Any] = (), **more: Any) -> dict[str, Any]:
    """A submission in which each instance runs the calls."""
    lanes = [{"type": "state", "_instance": f"i{number}", "n": number} for number in range(instances)]
    return {"context": [{"type": "plan", "calls": list(calls)}, *context, *lanes], **more}


def _schemas() -> dict[str, Any]:
    """Results of thousands of texts, each held against hundreds of schemas."""
    heavy = {"items": {"anyOf": [{"pattern": f"(a|b)*{'[ab]' * 12}c{number}"} for number in range(300)] + [{}]}}
    tools = {"repeat": {"type": "object", "properties": {"_activity": {}}, "_output": heavy}}
    call = {"_tool": "repeat", "text": "ab" * 20, "times": 2_000, "_outputPath": "†data.r"}
    return plan(400, call, tools=tools)


def _long_plain() -> dict[str, Any]:
    """Functions that hold a thread each."""
    return plan(2_000, {"_tool": "rest_plain", "_outputPath": "†state.r"})


def _long() -> dict[str, Any]:
    """Coroutines that hold a place each."""
    return plan(2_000, {"_tool": "rest", "_outputPath": "†state.r"})


def _fan_out() -> dict[str, Any]:
    """Many instances, and many calls in each."""
    calls = [{"_tool": "add_one", "number": "†state.n", "_outputPath": f"†state.p{number}"} for number in range(50)]
    return plan(20_000, *calls)


def _large_values() -> dict[str, Any]:
    """Calls that are given as much as one may be given."""
    big = {"type": "data", "data": {"big": [["x" * 20] * 3 for _ in range(11_000)]}}
    reads = {f"p{number}": "†data.big" for number in range(20)}
    return plan(1_000, {"_tool": "take", **reads, "_outputPath": "†state.r"}, context=[big])


def _large_messages() -> dict[str, Any]:
    """The same, sent to a queue."""
    big = {"type": "data", "data": {"big": "x" * 700_000}}
    reads = {f"p{number}": "†data.big" for number in range(20)}
    return plan(1_000, {"_tool": "take_far", **reads, "_outputPath": "†state.r"}, context=[big])


def _large_results() -> dict[str, Any]:
    """Results as large as one may be, as many as there is room for."""
    calls = [
        {"_tool": "repeat", "text": "x" * 1_000, "times": 1_000, "_outputPath": f"†data.r{number}"}
        for number in range(20)
    ]
    return plan(1_000, *calls)


def _patterns() -> dict[str, Any]:
    """Six hundred bytes of patterns that take gigabytes to compile."""
    heavy = {"allOf": [{"pattern": f"(\\p{{L}}{{1,300}}){{1,5}}y{number}|a"} for number in range(10)]}
    tools = {"repeat": {"type": "object", "properties": {"_activity": {}, "text": heavy, "times": {}}}}
    return plan(1, {"_tool": "repeat", "text": "a", "times": 1, "_outputPath": "†data.r"}, tools=tools)


def _unique_items() -> dict[str, Any]:
    """A result whose elements are compared with each other a thousand times."""
    heavy = {"allOf": [{"uniqueItems": True}] * 1_000}
    tools = {"floats": {"type": "object", "properties": {"_activity": {}, "_output": heavy}}}
    return plan(50, {"_tool": "floats", "count": 100_000, "_outputPath": "†data.r"}, tools=tools)


def _large_prompts() -> dict[str, Any]:
    """A request that shows each of many instances what all of them see."""
    lanes = [{"type": "state", "_instance": f"i{number}", "n": number} for number in range(300)]
    big = {"type": "state", "big": "x" * 900_000}
    return {"context": [big, *lanes], "schema": {"type": "string"}, "config": {"model": "terse"}}


def _large_answers() -> dict[str, Any]:
    """A model that answers with thousands of calls, the first of which waits for all others."""
    context = [{"type": "text", "message": "Say much."}]
    return {"context": context, "tools": ["add_one"], "schema": {}, "config": {"model": "chatty", "calls": 10}}


def _odd_answers() -> dict[str, Any]:
    """A model whose answers cannot be read."""
    context = [{"type": "text", "message": "Say anything."}]
    return {"context": context, "tools": ["add_one"], "schema": {}, "config": {"model": "odd"}}


def _slips() -> dict[str, Any]:
    """A model whose answer is full of texts that were meant as references."""
    return _faulty("slips")


def _templates() -> dict[str, Any]:
    """A model whose answer is one text of as many templates as there is room for."""
    return _faulty("templates")


def _faulty(kind: str) -> dict[str, Any]:
    context = [{"type": "text", "message": f"Answer with {kind}."}, {"type": "state", "a": 1}]
    return {"context": context, "tools": ["same"], "schema": {}, "config": {"model": kind, "tokens": 10**9, "ticks": 5}}


def _forgotten_models() -> dict[str, Any]:
    """Requests to a model, one for each element, that are sent and forgotten."""
    delegates = {"writer": {"context": [{"type": "system", "message": "Write."}], "schema": {"type": "string"}}}
    tools = {"write": {"type": "object", "properties": {"_delegate": {"const": "writer"}, "_each": {}, "n": {}}}}
    context = [{"type": "data", "data": {"n": [*range(1_000)]}}]
    config = {"model": "forgetful", "tokens": 1_000_000, "ticks": 3}
    return {"context": context, "tools": tools, "delegates": delegates, "schema": {}, "config": config}


def _full_log() -> dict[str, Any]:
    """A megabyte that is written again and again."""
    calls = [{"_tool": "same", "value": "†data.big", "_outputPath": f"†data.r{number}"} for number in range(40)]
    return plan(300, *calls, context=[{"type": "data", "data": {"big": "x" * 850_000}}])


def _long_names() -> dict[str, Any]:
    """An instance whose name is as long as a message, and calls that fail in it."""
    name = "i" * 100_000
    call = {"_tool": "add_one", "number": "†state.n", "_instance": name, "_outputPath": "†state.r"}
    return {"context": [{"type": "state", "_instance": name, "n": "no number"}], "solution": {"calls": [call] * 50}}


HOSTILITIES: Final = (
    Hostility("large schemas", _schemas),
    Hostility("long functions", _long_plain),
    Hostility("long coroutines", _long),
    Hostility("wide fan-out", _fan_out),
    Hostility("large values", _large_values),
    Hostility("large messages", _large_messages),
    Hostility("large results", _large_results),
    Hostility("patterns", _patterns),
    Hostility("unique items", _unique_items),
    Hostility("large prompts", _large_prompts),
    Hostility("large answers", _large_answers),
    Hostility("odd answers", _odd_answers),
    Hostility("slips in answers", _slips, GOAL_SOON_SECONDS),
    Hostility("templates", _templates, GOAL_SOON_SECONDS),
    Hostility("forgotten models", _forgotten_models),
    Hostility("full log", _full_log),
    Hostility("long names", _long_names),
)


def measure(only: Sequence[str] = (), *, small_runs: int = _SMALL_RUNS) -> Iterator[Measured]:
    """Each kind in turn, on a server and workers of its own."""
    for hostility in HOSTILITIES:
        if not only or hostility.name in only:
            yield _measured(hostility, small_runs)
    if not only or _DOCUMENTS in only:
        yield _measured_documents()


def _measured_documents() -> Measured:
    """A visitor of `acts mcp --http` who has one large document after the other checked, and then many at once."""
    calls = [{"_tool": "same", "value": 1, "_outputPath": "†state.r0"}]
    calls += [{"_tool": "same", "value": f"†state.r{n - 1}", "_outputPath": f"†state.r{n}"} for n in range(1, 30_000)]
    chain = {"context": [], "solution": {"calls": calls}}
    wide = plan(20_000, *({"_tool": "same", "value": "†state.n", "_outputPath": f"†state.p{n}"} for n in range(20)))
    large = {"context": [{"type": "text", "message": "x" * 60}] * 330_000}
    with EmbeddedServer() as server:
        given = {"broker_url": server.broker_url, "redis_url": server.redis_url, "activities": (str(_ACTIVITIES),)}
        settings = load(env_file=None, mcp_tokens=f"hostile:read:{_TOKEN}", **given)
        command = [sys.executable, "-m", "acts_celery", "mcp", "--http", "--json", "--port", "0"]
        environment = {**os.environ, **settings.to_environment()}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            try:
                assert process.stdout is not None
                url = json.loads(process.stdout.readline())["url"]
                health = url.removesuffix("/mcp") + "/health"
                _asked(health)
                before, seconds = _most_memory(process.pid), list[float]()
                statuses = set[int]()
                with ThreadPoolExecutor(20) as visitor:
                    for batch in ([chain], [wide], [large] * 20):
                        answers = [visitor.submit(_checked, url, body) for body in map(_message, batch)]
                        while not all(answer.done() for answer in answers):
                            seconds.append(_asked(health))
                        statuses |= {answer.result() for answer in answers}
                    end = "checked" if statuses == {200, 429} else f"answered with {sorted(statuses)}"
                grown = _most_memory(process.pid) - before
            finally:
                process.terminate()
    return Measured(_DOCUMENTS, seconds, grown, end, GOAL_SOON_SECONDS)


def _message(document: Any) -> bytes:
    called = {"name": "check", "arguments": {"document": document}}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": called}).encode()


def _checked(url: str, body: bytes) -> int:
    """The status of HTTP of a check."""
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    request = urllib.request.Request(url, body, {**headers, "Authorization": f"Bearer {_TOKEN}"})
    try:
        with urllib.request.urlopen(request) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 429  # it was answered, and the connection closed, before all of the body was sent


def _asked(url: str) -> float:
    """How long an answer takes to come."""
    begun = time.monotonic()
    with urllib.request.urlopen(url) as answer:
        answer.read()
    return time.monotonic() - begun


def _measured(hostility: Hostility, small_runs: int) -> Measured:
    with EmbeddedServer() as server:
        given = {
            "broker_url": server.broker_url,
            "redis_url": server.redis_url,
            "activities": (str(_ACTIVITIES),),
            "model": "terse:any",
        }
        settings = load(env_file=None, **given)
        command = [sys.executable, "-m", "acts_celery", "worker", "--json"]
        environment = {**os.environ, **settings.to_environment()}
        with (
            Path(os.devnull).open("wb") as log,
            ready_worker(command, environment, log=log) as worker,
            Client(settings) as client,
        ):
            _small(client)  # what is loaded at first is not measured
            before = _most_memory(worker.pid)
            run = _submitted(client, hostility)
            time.sleep(_HEAD_START_SECONDS)
            seconds, until = list[float](), time.monotonic() + _SECONDS
            while len(seconds) < small_runs or time.monotonic() < until:
                seconds.append(_small(client))
            grown = _most_memory(worker.pid) - before
            return Measured(hostility.name, seconds, grown, _end(run), hostility.goal_seconds)


def _submitted(client: Client, hostility: Hostility) -> Run | None:
    try:
        return client.submit_document(hostility.document())
    except Rejected:
        return None


def _end(run: Run | None) -> str:
    """How the hostile run has ended, or ends when it is cancelled."""
    if run is None:
        return "refused"
    status = str(run.status()["status"])
    if status != "running":
        return status
    run.cancel()
    try:
        run.wait(timeout_seconds=_END_SECONDS)
    except TimeoutError:
        return f"{_NO_END} within {_END_SECONDS:g} s of being cancelled"
    return "cancelled"


def _most_memory(pid: int) -> int:
    """The most that a worker's processes had in memory so far, in bytes. Linux only."""
    found = 0
    for member in family(pid):
        try:
            status = Path(f"/proc/{member}/status").read_text(encoding="utf-8")
        except OSError:
            continue  # it has just ended
        found += sum(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    return found


def _small(client: Client) -> float:
    begun = time.monotonic()
    run = client.submit(solution={"calls": list(_SMALL)})
    try:
        result = run.wait(timeout_seconds=_PATIENCE_SECONDS)
    except TimeoutError:
        return _PATIENCE_SECONDS
    assert result.data()["state"] == {"a": 2, "b": 3, "c": 4}
    return time.monotonic() - begun


def lines_of(rows: Sequence[Measured]) -> Iterator[str]:
    """What is printed."""
    yield "three calls beside a run that wants everything: seconds, the longest of each kind; memory; how that run ends"
    for row in rows:
        yield (
            f"  {row.name:16} {row.worst:7.2f}   of {len(row.seconds)}, the median {median(row.seconds):.2f}"
            f"   {row.grown_bytes / 1e6:+7.0f} MB   {row.end}"
        )
    beyond = [row.name for row in rows if not row.is_within_goals]
    goals = f"{GOAL_SECONDS:g} s ({GOAL_SOON_SECONDS:g} s for what is read), {GOAL_BYTES / 1e6:g} MB and an end"
    yield f"the goals, {goals}, are " + (f"not reached by: {', '.join(beyond)}" if beyond else "reached by all")
