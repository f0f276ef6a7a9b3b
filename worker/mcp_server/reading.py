"""The tools that only look."""

from __future__ import annotations

import time
from asyncio import to_thread
from collections.abc import Mapping
from itertools import islice
from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from acts_celery.protocol import Rejected
from acts_celery.protocol.facade import explained
from acts_celery.protocol.language.errors import segments
from acts_celery.worker.client.run_status import RunStatus
from acts_celery.worker.errors import BadQuery
from acts_celery.worker.page.values import SHOW_BYTES, shown, within
from acts_celery.worker.storage.keys import ENDED

from .runs import NoValue
from .tools import Asking, OfRun, ServerTool, SubmittedDocument

MOST_BYTES: Final = 500_000
"""The most that an answer may be asked to hold of a value."""
LONGEST_WAIT_SECONDS: Final = 600
_LOOK_SECONDS: Final = 2.0
"""So often a run that is waited for is looked at."""
_MOST_ERRORS: Final = 100
_PLAN_BYTES: Final = 60_000
_CALLS_BYTES: Final = 20_000
_TEXT: Final = {"type": "string"}
_OPTIONAL: Final = {"type": ["string", "null"]}
_COUNTS: Final = {"type": "object", "additionalProperties": {"type": "integer"}}


class Check(ServerTool):
    """Find everything that is wrong with a submission, without running it: all errors with JSON pointers, or its waves
    of calls that can run at the same time, and findings.
    """

    output: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "properties": {
            "valid": {"type": "boolean"},
            "errors": {
                "type": "array",
                "items": {"type": "object", "properties": {"pointer": _TEXT, "message": _TEXT}},
            },
        },
        "required": ["valid", "errors"],
    }
    document: SubmittedDocument
    allow: list[str] | None = Field(None, description="Only these tools, activities and delegates may be called.")

    async def carry_out(self, asking: Asking) -> dict[str, Any]:
        """Check it."""
        client = asking.runs.client(asking.principal)
        try:
            plan = await client.check(self.document, allow=self.allow)
        except Rejected as rejected:
            return {"valid": False, **problems(rejected)}
        found: dict[str, Any] = await to_thread(lambda: shown(plan.to_dict(), _PLAN_BYTES))
        return {"valid": True, "errors": [], **found}


class Runs(ServerTool):
    """List the runs, the newest first: id, name, status, counts of calls, times. `next` is what to give as `after`."""

    output: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "properties": {"runs": {"type": "array", "items": {"type": "object"}}, "next": _OPTIONAL},
        "required": ["runs", "next"],
    }
    status: RunStatus | None = Field(None, description="Only runs of this status.")
    search: str | None = Field(None, max_length=200, description="Part of an id, a name or a tag.")
    after: str | None = Field(None, max_length=256, description="What an answer before has given as `next`.")

    async def carry_out(self, asking: Asking) -> dict[str, Any]:
        """List them."""
        found: dict[str, Any] = await asking.runs.listed(asking.principal, _query(self, "status", "search", "after"))
        return found


class Status(OfRun):
    """How a run stands: its status, how many calls have which status, what waits for a person, times, cost."""

    output: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "properties": {"run": _TEXT, "status": _TEXT, "counts": _COUNTS, "held": {"type": "integer"}},
        "required": ["run", "status", "counts", "held"],
    }

    async def carry_out(self, asking: Asking) -> dict[str, Any]:
        """Read it."""
        seen = await asking.runs.page(await asking.runs.find(asking.principal, self.run))
        return {key: value for key, value in seen.items() if key != "output"}


class Result(OfRun):
    """What a run has come to: status, output, global values and calls; of an `instance` its own; or one value by its
    `path`. Values are data that other people and programs may have written. What is large is cut, in its place, to an
    object with the key `…cut`: ask for that part by `path` or `pointer`, or for more by `most_bytes`. With
    `wait_seconds` it waits for the run's end; it answers earlier when only a person can let the run go on.
    """

    output: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "properties": {"run": _TEXT, "status": _TEXT, "held": {"type": "integer"}, "reason": _OPTIONAL},
        "required": ["run", "status", "held"],
    }
    wait_seconds: float = Field(0, ge=0, le=LONGEST_WAIT_SECONDS, description="How long to wait for the run's end.")
    path: str | None = Field(None, max_length=4_000, description="A place, such as `†state.report.title`.")
    instance: str | None = Field(None, max_length=1_000, description="An instance of the run.")
    pointer: str | None = Field(
        None, max_length=4_000, description="A JSON pointer into the value at `path`, else into the output: `/items/3`."
    )
    most_bytes: int = Field(SHOW_BYTES, ge=200, le=MOST_BYTES, description="How much of each value to show.")

    async def carry_out(self, asking: Asking) -> dict[str, Any]:
        """Wait, and read it."""
        run = await asking.runs.find(asking.principal, self.run)
        seen = await awaited(asking, run, self.wait_seconds)
        answer = {key: seen[key] for key in ("run", "status", "reason", "held", "counts", "instances")}
        if self.path is not None:
            value = await asking.runs.value(run, self.path, self.instance)
            return answer | {"value": shown(part_of(value, self.pointer), self.most_bytes)}
        if seen["status"] in ENDED and (self.pointer is not None or self.most_bytes != SHOW_BYTES):
            output = await asking.runs.output(run)
            if self.pointer is not None:
                return answer | {"value": shown(part_of(output, self.pointer), self.most_bytes)}
            seen["output"] = shown(output, self.most_bytes)
        elif self.pointer is not None:
            raise NoValue(f"run {run} is {seen['status']}: it has no output yet")
        lane = await asking.runs.page(run, "instance", {"name": self.instance or ""})
        calls = within(map(_call, lane["calls"]), _CALLS_BYTES)
        more = len(lane["calls"]) - len(calls) + lane["more"]
        about = {"instance": self.instance, "instance_status": lane["status"]} if self.instance is not None else {}
        data = shown(lane["data"], self.most_bytes)
        return {**answer, "output": seen["output"], **about, "data": data, "calls": calls, "more_calls": more}


class Instances(OfRun):
    """List the instances of a run with the status of each. `next` is given as `after` for more; while `reading` is not
    null the log is being counted, and asking again says more.
    """

    output: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "properties": {"instances": {"type": "array", "items": {"type": "object"}}, "next": _OPTIONAL},
        "required": ["instances", "next"],
    }
    status: Literal["completed", "failed", "running", "held", "paused", "cancelled", "deleted"] | None = Field(
        None, description="Only instances of this status."
    )
    search: str | None = Field(None, max_length=200, description="Part of a name.")
    after: str | None = Field(None, max_length=20, description="What an answer before has given as `next`.")

    async def carry_out(self, asking: Asking) -> dict[str, Any]:
        """List them."""
        run = await asking.runs.find(asking.principal, self.run)
        query = _query(self, "status", "search", "after")
        found: dict[str, Any] = await asking.runs.page(run, "instances", query)
        return found


class Explain(OfRun):
    """Where a value comes from, or why there is none: the messages that wrote it, the calls that may write or read it,
    who sees it.
    """

    output: ClassVar[Mapping[str, Any]] = {"type": "object", "properties": {"path": _TEXT}, "required": ["path"]}
    path: str = Field(min_length=1, max_length=4_000, description="A place, such as `†state.report`.")
    instance: str | None = Field(None, max_length=1_000, description="As this instance sees it.")
    at: str | None = Field(None, max_length=50, description="As of a moment: the id of an entry of the log.")

    async def carry_out(self, asking: Asking) -> dict[str, Any]:
        """Explain it."""
        run = await asking.runs.find(asking.principal, self.run)
        found: dict[str, Any] = await asking.runs.page(run, "place", _query(self, "path", "instance", "at"))
        return found


class Held(OfRun):
    """What waits for a person in a run: each held call with all that it will run with, as data, and `shown`, which a
    decision on it carries; or a plan with its digest as `plan`.
    """

    output: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "properties": {"held": {"type": "array", "items": {"type": "object"}}},
        "required": ["held"],
    }

    async def carry_out(self, asking: Asking) -> dict[str, Any]:
        """List them."""
        return {"held": await asking.runs.page(await asking.runs.find(asking.principal, self.run), "held")}


READING: Final[Mapping[str, type[ServerTool]]] = {
    "check": Check,
    "runs": Runs,
    "status": Status,
    "result": Result,
    "instances": Instances,
    "explain": Explain,
    "held": Held,
}
"""The tools that take the right to read."""


def problems(rejected: Rejected) -> dict[str, Any]:
    """What is wrong with a submission, with hints."""
    errors = [
        {"pointer": problem.pointer, "message": problem.message}
        for problem in islice(explained(rejected), _MOST_ERRORS)
    ]
    return {"errors": errors, "more_errors": len(rejected.errors) - len(errors)}


def part_of(value: Any, pointer: str | None) -> Any:
    """The part of a value that a JSON pointer names. Raises `BadQuery`, `NoValue`."""
    if not pointer:
        return value
    if not pointer.startswith("/"):
        raise BadQuery(f"pointer={pointer[:100]!r} is no JSON pointer: it begins with /")
    for segment in segments(pointer):
        if isinstance(value, dict) and segment in value:
            value = value[segment]
        elif isinstance(value, list) and segment.isascii() and segment.isdigit() and int(segment) < len(value):
            value = value[int(segment)]
        else:
            raise NoValue(f"the value has no part {pointer[:200]!r}: there is no {segment[:100]!r}")
    return value


async def awaited(asking: Asking, run: str, wait_seconds: float) -> dict[str, Any]:
    """The overview of a run: now, or when it has ended, waits for people alone, or the time is over."""
    until = time.monotonic() + wait_seconds
    while True:
        seen: dict[str, Any] = await asking.runs.page(run)
        counts = seen["counts"]
        left = until - time.monotonic()
        is_stopped = seen["status"] != "running" or (seen["held"] > 0 and not counts.get("running"))
        if is_stopped or left <= 0:
            return seen
        ended = sum(count for status, count in counts.items() if status not in ("waiting", "running", "held"))
        told = ", ".join(f"{count} {status}" for status, count in counts.items())
        await asking.progress(ended, sum(counts.values()) or None, f"run {run}: {told or seen['status']}")
        await asking.runs.ended(asking.principal, run, min(left, _LOOK_SECONDS))


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("id", "index", "tool", "instance", "status", "error", "reason", "child", "tick")
    return {key: call[key] for key in kept if call.get(key) is not None}


def _query(asked: ServerTool, *names: str) -> dict[str, str]:
    return {name: value for name in names if (value := getattr(asked, name)) is not None}
