"""A result has a status for each instance, computed from its calls (SPEC R11.8)."""

from __future__ import annotations

from typing import Any

import click
import pytest

from acts_celery import CallResult, CallStatus
from acts_celery.worker.cli.progress import View, result_lines
from acts_celery.worker.client.call_results import CANCELLED
from acts_celery.worker.client.results import instance_statuses

from .backend import Backend, Meeting
from .test_control_cli import command

Json = dict[str, Any]


def call(status: CallStatus, reason: str | None = None, instance: str | None = "①") -> CallResult:
    return CallResult("0:①", 0, "t", instance, status, reason=reason)


@pytest.mark.parametrize(
    ("run", "calls", "expected"),
    [
        ("running", [], "completed"),
        ("running", ["done", "skipped", "sent", "latent"], "completed"),
        ("failed", ["done", "failed"], "failed"),
        ("running", ["failed", "waiting"], "running"),
        ("running", ["held", "waiting"], "held"),
        ("running", ["held", "running"], "running"),
        ("paused", ["held", "waiting"], "paused"),
        ("paused", ["done"], "completed"),
        ("completed", ["failed"], "completed"),  # in a tick of a loop whose output was accepted
    ],
)
def test_the_status_of_an_instance_follows_from_its_calls(run: str, calls: list[CallStatus], expected: str) -> None:
    of_others = call("failed", instance="②"), call("running", instance=None)
    assert instance_statuses(["①"], [*map(call, calls), *of_others], run, None) == {"①": expected}


def test_an_instance_that_had_not_ended_when_its_run_did_is_cancelled_or_has_failed() -> None:
    stopped = [call("done"), call("skipped", CANCELLED)]
    assert instance_statuses(["①", "②"], stopped, "cancelled", CANCELLED) == {"①": "cancelled", "②": "completed"}
    assert instance_statuses(["①"], [call("skipped", "a limit")], "failed", "a limit") == {"①": "failed"}


def plan(*calls: Json) -> Json:
    return {"type": "plan", "calls": list(calls)}


CONTEXT = [
    plan(
        {"_tool": "failUnless", "_activity": "choose", "path": "†state.path", "value": 1, "_outputPath": "†state.out"},
        {"_tool": "summary", "_activity": "echo", "value": "†state.out", "_outputPath": "†state.again"},
    ),
    {"type": "state", "shared": {"text": "the same for all"}},
    *({"type": "state", "_instance": f"i{n}", "path": 5 if n < 7 else "†state.out"} for n in range(9)),
]
TOOLS: Json = {
    "failUnless": {"type": "object", "properties": {"_activity": {"const": "choose"}}},
    "summary": {"type": "object", "properties": {"_activity": {"const": "echo"}}},
}


def test_results_status_and_show_have_it(backend: Backend, meeting: Meeting) -> None:
    run = backend.client.submit(CONTEXT, tools=TOOLS)
    result = backend.wait(run.id)
    expected = {f"i{n}": "failed" if n < 7 else "completed" for n in range(9)}
    assert result.instance_status == expected
    assert result.to_dict()["instance_status"] == expected
    assert command(backend, "status", run.id, "--json").json["instance_status"] == expected
    assert command(backend, "show", run.id, "--json").json["instance_status"] == expected
    assert command(backend, "show", run.id, "--instance", "i8", "--json").json["instance_status"] == {"i8": "completed"}
    line = "  9 instances: 2 completed, 7 failed (i0, i1, i2, i3, i4 and 2 more)"
    for name in ("status", "show"):
        assert command(backend, name, run.id).stdout.splitlines()[1] == line


def test_what_is_the_same_in_the_global_values_is_not_printed_for_each_instance(backend: Backend) -> None:
    run = backend.client.submit(CONTEXT, tools=TOOLS)
    backend.wait(run.id)
    shown = command(backend, "show", run.id, "--all").stdout
    assert shown.count("the same for all") == 1
    whole = command(backend, "show", run.id, "--json").json["instances"]
    assert all(data["state"]["shared"] == {"text": "the same for all"} for data in whole.values())


def test_a_header_says_of_how_many_calls_it_counts_some(backend: Backend) -> None:
    run = backend.client.submit(CONTEXT, tools=TOOLS)
    backend.wait(run.id)
    for name in ("status", "show"):
        first = command(backend, name, run.id, "--failed").stdout.splitlines()[0]
        assert first == f"failed  run {run.id}, 7 of 18 calls: 7 failed"


def test_an_instance_that_overrides_a_part_of_a_global_value_shows_that_part() -> None:
    document: Json = {
        "run": "r",
        "status": "completed",
        "output": None,
        "calls": [],
        "global": {"state": {"a": {"b": 1, "c": 2}, "d": [1]}},
        "instances": {
            "①": {"state": {"a": {"b": 1, "c": 3}, "d": [1]}},
            "②": {"state": {"a": {"b": 1}, "d": [1], "e": 1}},
        },
        "instance_status": {"①": "completed", "②": "completed"},
    }
    lines = [click.unstyle(line) for line in result_lines(document, View())]
    assert lines[lines.index("①") :] == [
        "①",
        "  state:",
        "    a:",
        "      c: 3",
        "②",
        "  state:",
        "    a:",
        "      b: 1",
        "    e: 1",
    ]
