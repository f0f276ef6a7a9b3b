"""What a program submits as it has it: functions as tools, texts as messages, a class as the schema (INTERFACE)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, assert_type, get_args

import pytest
from pydantic import AfterValidator, BaseModel
from typing_extensions import TypedDict

from acts_celery import CallStatus, Client, Draft, OutputUnfit, RunStatus, local, ref
from acts_celery.broker_config import load
from acts_celery.protocol import Rejected
from acts_celery.protocol.engine.events import Status
from acts_celery.worker.client.submitting import messages_of, with_parts
from acts_celery.worker.runner.checking import Checker
from acts_celery.worker.store.keys import ENDED_STATUSES

SECONDS = 30


def price(item: str) -> int:
    return {"tea": 3, "coffee": 5}[item]


def order(item: str, pieces: int) -> str:
    return f"{pieces} {item}"


def _even(total: int) -> int:
    if total % 2:
        raise ValueError("must be even")
    return total


class Line(BaseModel):
    item: str
    pieces: int


class Invoice(BaseModel):
    lines: list[Line]
    total: int


class EvenInvoice(BaseModel):
    total: Annotated[int, AfterValidator(_even)]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    script: Path = tmp_path_factory.mktemp("model") / "answers.json"
    bought = {"lines": [{"item": "tea", "pieces": 3}], "total": 9}
    first = {"calls": [{"_tool": "price", "item": "tea", "_outputPath": "†state.tea"}]}
    entries = [
        {"when": "an odd one", "answer": {"calls": [], "output": {"total": 9}}},
        {"when": "Order three", "times": 1, "answer": first},
        {"when": "Order three", "answer": {"calls": [], "output": bought}},
    ]
    script.write_text(json.dumps(entries), encoding="utf-8")
    with local([price, order], model=f"scripted:{script}") as found:
        yield found


def test_a_request_is_written_with_functions_texts_and_a_class(client: Client) -> None:
    context = ["Order three of whatever is cheaper."]
    run = client.submit(context, schema=Invoice, tools=[price, order], config={"ticks": 4}, name="tea")
    result = run.wait(timeout_seconds=SECONDS)
    assert result.output == Invoice(lines=[Line(item="tea", pieces=3)], total=9)
    assert result.to_dict()["output"] == {"lines": [{"item": "tea", "pieces": 3}], "total": 9}
    assert run.result().output == result.output
    assert [call.status for call in result.calls] == ["done"]
    shown = json.dumps(run.asked(0), ensure_ascii=False)
    assert context[0] in shown
    assert "pieces" in shown
    assert client.run(run.id).result().output == result.to_dict()["output"]
    assert list(run.export())


def test_an_asyncio_program_gets_an_object_of_the_class_too(client: Client) -> None:
    from acts_celery import AsyncClient

    async def scene() -> Any:
        async with AsyncClient(client.settings, registry=client._registry) as twin:
            run = await twin.submit("Give me an odd one, as a number", schema=Line | EvenInvoice | dict[str, int])
            return (await run.wait(timeout_seconds=SECONDS)).output

    assert asyncio.run(scene()) == {"total": 9}


def test_what_the_class_refuses_beyond_its_schema_is_told_with_where_the_output_is(client: Client) -> None:
    run = client.submit("an odd one", schema=EvenInvoice)
    with pytest.raises(OutputUnfit, match=r"EvenInvoice refuses its output: total: .*must be even.*result\(\)\.output"):
        run.wait(timeout_seconds=SECONDS)
    assert client.run(run.id).result().output == {"total": 9}


class Bought(TypedDict):
    lines: list[Line]
    total: int


@dataclass
class Sum:
    total: int


def test_the_output_is_had_as_any_type_also_where_the_run_was_submitted_elsewhere(client: Client) -> None:
    run = client.submit("Order three of whatever is cheaper.", schema=Bought, tools=[price, order])
    result = run.wait(timeout_seconds=SECONDS)
    assert result.output == {"lines": [Line(item="tea", pieces=3)], "total": 9}
    for found in (result, client.run(run.id).result()):
        invoice = found.output_as(Invoice)
        assert_type(invoice, Invoice)
        assert_type(found.output_as(Bought)["lines"][0].item, str)
        assert invoice == Invoice(lines=[Line(item="tea", pieces=3)], total=9)
        assert found.output_as(Sum).total == 9
    with pytest.raises(OutputUnfit, match="EvenInvoice refuses its output"):
        result.output_as(EvenInvoice)
    with pytest.raises(OutputUnfit, match="is failed: it has no output"):
        client.submit("what no answer is there for", schema=Invoice).wait(timeout_seconds=SECONDS).output_as(Invoice)


def test_a_draft_with_an_output_and_a_class_gives_an_object_of_it(client: Client) -> None:
    draft = Draft(client=client)
    draft.output = {"total": draft.call(price, item="tea") >> ref.state.price}
    run = client.submit_document(draft.to_dict(), schema=EvenInvoice)
    with pytest.raises(OutputUnfit, match="must be even"):
        run.wait(timeout_seconds=SECONDS)
    result = client.submit_document(draft.to_dict(), schema=Sum).wait(timeout_seconds=SECONDS)
    assert result.output == Sum(total=3)


def test_a_run_that_has_not_completed_has_no_object_and_says_so_by_its_status(client: Client) -> None:
    run = client.submit("what no answer is there for", schema=Invoice)
    result = run.wait(timeout_seconds=SECONDS)
    assert result.status == "failed"
    assert result.output is None


def test_what_this_backend_lacks_is_told_at_its_place_in_a_list_of_calls(tmp_path: Path) -> None:
    (tmp_path / "judge.json").write_text('{"context": [], "schema": {"type": "string"}}', encoding="utf-8")
    checker = Checker(load(env_file=None, delegates=[str(tmp_path)], models={"small": {"model": "scripted:x.json"}}))
    call = {"_tool": "t", "_delegate": "judge", "_outputPath": "†state.a"}
    with pytest.raises(Rejected, match="/1/_delegate: delegate 'judge' needs a model, and none is configured"):
        checker.check([{"type": "input", "a": 1}, call])
    checker.check({"solution": {"calls": [call]}, "config": {"model": "small"}})  # one that is named will do
    (tmp_path / "judge.json").write_text(
        '{"context": [], "schema": {}, "config": {"model": "small"}}', encoding="utf-8"
    )
    checker.check([call])


def test_a_function_that_is_no_activity_is_refused_by_its_name(client: Client) -> None:
    def unmarked(item: str) -> None: ...

    with pytest.raises(Rejected, match="unmarked"):
        client.submit("x", schema=Invoice, tools=[unmarked])


def test_a_type_without_a_schema_is_refused(client: Client) -> None:
    with pytest.raises(Rejected, match=r"/schema: .* has none"):
        client.submit("x", schema=Iterator[object()])  # type: ignore[misc]  # no type


@pytest.mark.parametrize(("part", "value"), [("config", ["ticks"]), ("delegates", 3), ("tools", [3])])
def test_a_part_of_the_wrong_type_is_refused_at_its_place(client: Client, part: str, value: Any) -> None:
    options: Any = {part: value}
    with pytest.raises(Rejected, match=f"/{part}"):
        client.submit("x", schema=Invoice, **options)


def test_tools_of_both_places_are_declared() -> None:
    def tool_of(function: Any) -> str:
        return str(function.__name__)

    own, given = {"a": {"type": "object"}}, {"b": {"type": "object"}}
    assert with_parts({"tools": own}, {"tools": given}, tool_of)["tools"] == {**own, **given}
    assert with_parts({"tools": ["a"]}, {"tools": [price, "b"]}, tool_of)["tools"] == ["a", "price", "b"]
    assert with_parts({}, {"tools": given}, tool_of)["tools"] == given
    assert with_parts({"tools": own}, {"tools": price}, tool_of)["tools"] == [own, "price"]
    assert with_parts({"tools": own}, {"tools": "b"}, tool_of)["tools"] == [own, "b"]


def test_one_text_or_one_message_is_a_context() -> None:
    assert messages_of("Hi") == [{"type": "text", "message": "Hi"}]
    assert messages_of({"type": "input", "a": 1}) == [{"type": "input", "a": 1}]
    assert Draft("Hi").context == messages_of(["Hi"])


def test_the_types_of_statuses_name_each_of_them(client: Client) -> None:
    assert set(get_args(CallStatus)) == set(Status)
    assert set(get_args(RunStatus)) > ENDED_STATUSES
    result = client.submit(solution={"calls": []}).wait(timeout_seconds=SECONDS)
    assert_type(result.status, RunStatus)
    assert_type([call.status for call in result.calls], list[CallStatus])
