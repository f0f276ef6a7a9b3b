"""What a program reads of a run that has ended: values, a table, failures."""

from __future__ import annotations

import asyncio
import csv
import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import acts_celery
from acts_celery import (
    AsyncClient,
    InstanceNotFound,
    LocalClient,
    Output,
    Result,
    RunFailed,
    RunTimeout,
    ValueNotFound,
    activity,
    local,
)

SECONDS = 60
GREET = {"_tool": "resultsGreet", "name": "†input.name", "_outputPath": "†state.greeting"}
PLAN = {"type": "plan", "calls": [GREET]}


@activity("resultsGreet")
def greet(name: str) -> str:
    if name.startswith("Bad"):
        raise ConnectionError("crm is down")
    return f"Hello {name}"


@activity("resultsNever")
async def never() -> None:
    await asyncio.Event().wait()


@activity("resultsTurns")
def turns() -> Output:
    raise ValueError("to the side")


@activity("resultsChoose")
def choose() -> Output:
    return Output("†state.short", "Ann")


@pytest.fixture(scope="module")
def client() -> Iterator[LocalClient]:
    with local([greet, never, turns, choose]) as running:
        yield running


def people(*names: str) -> list[dict[str, Any]]:
    return [{"type": "input", "_instance": name, "name": name, "size": len(name)} for name in names]


def greeted(client: LocalClient, *names: str) -> Result:
    return client.submit([*people(*names), PLAN]).wait(timeout_seconds=SECONDS)


def test_a_value_is_read_by_its_place(client: LocalClient) -> None:
    result = client.submit([*people("Ann", "Bob"), PLAN]).result(timeout_seconds=SECONDS)
    assert result.value("†state.greeting", instance="Ann") == result.value("state.greeting", instance="Ann")
    assert result.value("†state.greeting", instance="Bob") == "Hello Bob"
    assert result.errors == ()


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        (lambda result: result.value("†state.greeting"), 'instance="Ann"'),
        (lambda result: result.value("†state.greting", instance="Ann"), "'†state.greeting'"),
        (lambda result: result.value("†query.text", instance="Ann"), "acts explain"),
        (lambda result: result.data()["state"], 'instance="Ann"'),
        (lambda result: result.data("Ann")["stat"], "'†state'"),
        (lambda result: result.data("Anne"), "'Ann'"),
    ],
)
def test_what_is_not_there_says_what_is(client: LocalClient, asked: Any, word: str) -> None:
    with pytest.raises((ValueNotFound, InstanceNotFound), match=re.escape(word)) as missing:
        asked(greeted(client, "Ann", "Bob"))
    assert isinstance(missing.value, KeyError), "what caught that goes on to"


def test_a_failed_run_raises_its_first_failures_where_its_result_is_asked_for(client: LocalClient) -> None:
    run = client.submit([*people("Ann", *(f"Bad{number}" for number in range(5))), PLAN])
    with pytest.raises(RunFailed, match="crm is down") as failed:
        run.result(timeout_seconds=SECONDS)
    text = str(failed.value)
    assert len(text.splitlines()) == 1
    assert all(word in text for word in (run.id, "resultsGreet: ConnectionError", "Bad0", "and 2 more"))
    assert f"acts status {run.id} --failed" in text
    result = run.wait(timeout_seconds=SECONDS)
    assert (result.status, len(result.errors)) == ("failed", 5), "`wait` does not raise"
    assert result.errors[0].to_dict() == failed.value.result.errors[0].to_dict() == {
        "index": 0,
        "tool": "resultsGreet",
        "instance": "Bad0",
        "type": "ConnectionError",
        "message": "crm is down",
    }  # fmt: skip
    with pytest.raises(ValueNotFound, match="crm is down"):
        result.data("Bad0")["state"]


def test_an_error_that_went_to_an_alternative_is_none(client: LocalClient) -> None:
    call = {"_tool": "resultsTurns", "_outputPath": "†state.one || †state.error"}
    result = client.submit([], {"calls": [call]}).wait(timeout_seconds=SECONDS)
    assert [(error.tool, error.type) for error in result.errors] == (
        [] if result.status == "completed" else [("resultsTurns", "ValueError")]
    )


def test_a_run_that_goes_on_has_no_result_yet(client: LocalClient) -> None:
    run = client.submit([], {"calls": [{"_tool": "resultsNever", "_outputPath": "†state.x"}]})
    with pytest.raises(RunTimeout, match=f"acts status {run.id}"):
        run.result(timeout_seconds=0.05)
    with pytest.raises(TimeoutError):
        run.wait(timeout_seconds=0.05)
    with pytest.raises(ValueNotFound, match="running"):
        run.result().value("†state.x")
    with pytest.raises(TypeError, match="at"):
        run.result("0-1", timeout_seconds=1)
    run.cancel()
    with pytest.raises(RunFailed, match="was cancelled"):
        run.result(timeout_seconds=SECONDS)


def test_a_table_has_a_row_for_each_instance(client: LocalClient, tmp_path: Path) -> None:
    result = greeted(client, "Ann", "Bad")
    table = result.table("†state.greeting", "input.size")
    assert table == [
        {"instance": "Ann", "greeting": "Hello Ann", "size": 3, "status": "completed", "error": None},
        {
            "instance": "Bad",
            "greeting": None,
            "size": 3,
            "status": "failed",
            "error": "resultsGreet: ConnectionError: crm is down",
        },
    ]
    table.to_csv(tmp_path / "table.csv")
    with (tmp_path / "table.csv").open(encoding="utf-8", newline="") as file:
        header, ann, bad = csv.reader(file)
    assert header == ["instance", "greeting", "size", "status", "error"]
    assert (ann, bad[1:3]) == (["Ann", "Hello Ann", "3", "completed", ""], ["", "3"])


def test_columns_that_end_alike_have_the_name_of_their_place(client: LocalClient) -> None:
    (row,) = greeted(client, "Ann").table("†input.name", "†state.greeting.name", "†input.status")
    assert row == {
        "instance": "Ann",
        "input.name": "Ann",
        "state.greeting.name": None,
        "input.status": None,
        "status": "completed",
        "error": None,
    }


def test_a_run_without_instances_has_one_row(client: LocalClient) -> None:
    call = {"_tool": "resultsGreet", "name": "Ann", "_outputPath": "†state.greeting"}
    (row,) = client.submit([], {"calls": [call]}).result(timeout_seconds=SECONDS).table("†state.greeting")
    assert row == {"instance": None, "greeting": "Hello Ann", "status": "completed", "error": None}


def test_the_same_is_awaited(client: LocalClient) -> None:
    async def awaited() -> Any:
        async with AsyncClient(client.settings) as other:
            run = await other.submit([*people("Ann"), PLAN])
            bad = await other.submit([*people("Bad"), PLAN])
            with pytest.raises(RunFailed, match="crm is down"):
                await bad.result(timeout_seconds=SECONDS)
            return (await run.result(timeout_seconds=SECONDS)).value("state.greeting", instance="Ann")

    assert asyncio.run(awaited()) == "Hello Ann"


def test_a_branch_that_was_not_taken_is_told_from_what_was_skipped_for_a_failure(client: LocalClient) -> None:
    def greets(name: str, to: str, **more: Any) -> dict[str, Any]:
        return {"_tool": "resultsGreet", "name": name, "_outputPath": f"†state.{to}", **more}

    calls = [
        {"_tool": "resultsChoose", "_outputPath": "†state.short || †state.long"},
        greets("†state.long", "a"),
        greets("†state.a", "b"),
        greets("Bad", "c"),
        greets("†state.c", "d"),
        greets("†{state.long} †{state.d}", "e"),
        greets("†state.b", "f", _instance="Bob"),
        greets("†state.d", "g", _instance="Bob"),
    ]
    result = client.submit(people("Bob"), {"calls": calls}).wait(timeout_seconds=SECONDS)
    calls_by_index = {call.index: call for call in result.calls}
    assert [index for index, call in calls_by_index.items() if call.not_taken] == [1, 2, 6]
    assert [index for index, call in calls_by_index.items() if call.status == "skipped"] == [1, 2, 4, 5, 6, 7]
    assert calls_by_index[6].to_dict()["not_taken"] is True
    assert "not_taken" not in calls_by_index[7].to_dict()


def test_all_that_is_read_of_a_run_can_be_written_as_json(client: LocalClient) -> None:
    run = client.submit([*people("Ann", "Bad"), PLAN])
    events = [json.loads(json.dumps(event.to_dict())) for event in run.follow(timeout_seconds=SECONDS)]
    failed = next(event for event in events if event["kind"] == "call" and event["status"] == "failed")
    assert (failed["instance"], failed["index"], failed["tool"]) == ("Bad", 0, "resultsGreet")
    assert "tick" not in failed, "what an event does not say is left out"
    late = [*run.follow(after=failed["id"], timeout_seconds=SECONDS)]
    assert [event.to_dict() for event in late] == events[events.index(failed) + 1 :], "also where it began before"
    entries = [json.loads(json.dumps(entry.to_dict())) for entry in run.log(audit=True, every=True)]
    assert {"Ann", "Bad"} <= {entry["instance"] for entry in entries}
    made = {"Answer", "Done", "File", "HostedAgent", "Message", "Output"}
    """What programs make, and do not read."""
    records = {name: one for name in acts_celery.__all__ if dataclasses.is_dataclass(one := getattr(acts_celery, name))}
    assert made == {name for name, one in records.items() if not hasattr(one, "to_dict")}
