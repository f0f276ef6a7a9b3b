"""A model of a test: its answers, its errors, and what it was asked (`acts.model`)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from acts_celery import (
    Answer,
    BadRequest,
    LocalClient,
    RateLimited,
    Refused,
    Unreachable,
    Usage,
    WorkerError,
    activity,
    local,
    model,
)
from acts_celery.worker.agent.scripted import FakeModel
from acts_celery.worker.registry.activities import registry

SECONDS = 60
ORDERS = {"A-1": 30}


@activity
def fake_find(order: str) -> int:
    """Find the total of an order.

    Args:
        order: Its number.
    """
    return ORDERS[order]


FOUND = {"_tool": "fake_find", "order": "A-1", "_outputPath": "†state.total"}


def answers_of(fake: FakeModel, times: int) -> list[Any]:
    asked = ([{"role": "user", "content": "?"}], None, {"model": "m"})
    return [asyncio.run(fake.answer(*asked)) for _ in range(times)]


def test_answers_come_in_their_order_and_what_was_asked_is_kept(acts: LocalClient) -> None:
    fake = acts.model({"calls": [FOUND]}, {"output": "†state.total"})
    run = acts.submit(["What does A-1 cost?"], schema=int, tools=[fake_find])
    assert run.wait(timeout_seconds=SECONDS).output == 30
    first, second = fake.requests
    assert "What does A-1 cost?" in first.text
    assert "Find the total of an order." in first.text
    assert "30" in second.text.removeprefix(first.text)
    assert first.schema["properties"].keys() == {"calls", "output"}


def test_a_function_sees_the_request_and_the_last_one_answers_all_that_follow(acts: LocalClient) -> None:
    def say(messages: list[dict[str, Any]], schema: Any, config: dict[str, Any]) -> dict[str, Any]:
        return {"output": [len(messages), config["model"]]}

    async def refuse(*_: Any) -> Exception:
        return Refused("no")

    fake = acts.model(refuse, say)
    runs = [acts.submit(["Count."], schema={}, config={"model": "gpt-5"}) for _ in range(3)]
    outputs = [run.wait(timeout_seconds=SECONDS).output for run in runs]
    assert [each[1] for each in outputs] == ["gpt-5"] * 3
    assert len(fake.requests) == 4  # one loop was refused once and asked again


def test_errors_are_raised_and_what_may_pass_is_asked_again(acts: LocalClient) -> None:
    usage = Usage(12, 3)
    fake = acts.model(
        RateLimited("not now", retry_after_seconds=0.01), '{"output": ', Answer('{"output": 1}', "told-1", usage)
    )
    result = acts.submit(["One."], schema={}).wait(timeout_seconds=SECONDS)
    assert (result.status, result.output, len(fake.requests)) == ("completed", 1, 3)
    assert result.ticks is not None
    assert (result.ticks[-1].model, result.ticks[-1].usage) == ("told-1", usage.to_dict())


def test_a_model_that_is_asked_more_often_than_it_has_answers_says_so(acts: LocalClient) -> None:
    acts.model({"calls": []})
    result = acts.submit(["One."], schema=int).wait(timeout_seconds=SECONDS)
    assert result.status == "failed"
    assert "has given this model 1 answer, and" in str(result.reason)


def test_one_with_a_name_stands_in_for_that_model_and_its_fallbacks_are_asked_as_ever() -> None:
    real = {"model": "openai:gpt-5", "api_key": "k"}
    with local(models={"a": {**real, "fallbacks": ["b"]}, "b": real}) as client:
        busy = client.model(RateLimited("busy"), name="a")
        other = client.model({"output": "b"}, name="b")
        run = client.submit(["?"], schema={}, config={"model": "a"})
        assert run.wait(timeout_seconds=SECONDS).output == "b"
        assert (len(busy.requests), len(other.requests)) == (1, 1)
        later = client.model({"output": "later"}, name="a")
        run = client.submit(["?"], schema={}, config={"model": "a"})
        assert run.wait(timeout_seconds=SECONDS).output == "later"
        assert len(later.requests) == 1


def test_it_answers_for_delegates_too_and_is_forgotten_with_the_test(acts: LocalClient) -> None:
    @model("fake_house")
    def house(*_: Any) -> Any:
        raise AssertionError("the test's model is asked")

    before = dict(registry.models)
    fake = acts.model({"output": "Hello"})
    call = {"_tool": "translate", "text": "Привет", "_outputPath": "†state.english"}
    translator = {"context": [{"type": "system", "message": "You translate."}], "schema": {}}
    run = acts.submit(
        [],
        {"calls": [call]},
        tools={"translate": {"type": "object", "properties": {"_delegate": {"const": "translator"}, "text": {}}}},
        delegates={"translator": translator | {"config": {"model": "fake_house"}}},
    )
    assert run.wait(timeout_seconds=SECONDS).data()["state"] == {"english": "Hello"}
    assert "Привет" in fake.requests[0].text
    assert registry.models == before


def test_no_answer_at_all_is_refused(acts: LocalClient) -> None:
    with pytest.raises(ValueError, match="at least one answer"):
        acts.model()


def test_a_function_in_the_midst_answers_once() -> None:
    fake = FakeModel([lambda *_: "a", "b"])
    assert [one.text for one in answers_of(fake, 2)] == ["a", "b"]
    with pytest.raises(BadRequest, match="2 answers"):
        answers_of(fake, 1)


def test_a_recording_is_made_of_the_model_of_the_settings_and_then_answers_without_it(tmp_path: Path) -> None:
    script, file = tmp_path / "script.json", tmp_path / "recorded.jsonl"
    answers = [{"when": "Write", "answer": {"calls": [FOUND]}, "times": 1}, {"when": "Write", "output": "†state.total"}]
    script.write_text(json.dumps(answers), encoding="utf-8")

    def outcome(client: LocalClient) -> Any:
        fake = client.recorded(file)
        run = client.submit(["Write the total of A-1."], schema=int, tools=[fake_find])
        result = run.wait(timeout_seconds=SECONDS)
        return result.output, result.reason, len(fake.requests)

    with local(model=f"scripted:{script}") as client:
        client.records = True
        assert outcome(client) == (30, None, 2)
    with local() as client:
        assert outcome(client) == (30, None, 2)
        ORDERS["A-1"] = 31
        try:
            output, reason, _ = outcome(client)
        finally:
            ORDERS["A-1"] = 30
        assert output is None
        assert "of 2 recorded requests the nearest is number 2" in reason
        with pytest.raises(WorkerError, match=r"nothing is recorded in none.jsonl yet: run pytest --acts-record once"):
            client.recorded("none.jsonl")
        client.records = True
        with pytest.raises(WorkerError, match=r"there is no model to record in .*recorded\.jsonl: set ACTS_MODEL"):
            client.recorded(file)


def test_pytest_has_an_option_by_which_recordings_are_made(pytestconfig: pytest.Config, acts: LocalClient) -> None:
    assert pytestconfig.getoption("--acts-record") is acts.records is False


def test_tools_may_go_as_functions_and_what_was_said_beside_them_is_recorded_too(tmp_path: Path) -> None:
    native = {"model": "openai:gpt-5", "api_key": "k", "wire": "tools"}
    document = {"context": [{"type": "text", "message": "The total of A-1?"}], "tools": ["fake_find"]}
    document |= {"schema": {"type": "integer"}, "config": {"model": "a"}}
    file = tmp_path / "answers.json"
    with local(models={"a": native}) as client:
        first = Answer(json.dumps({"calls": [FOUND]}), "told-1", words="I look it up.")
        fake = client.model(first, {"output": 30})
        run = client.submit_document(document)
        assert run.wait(timeout_seconds=SECONDS).output == 30
        assert "I look it up." in fake.requests[1].text
        assert fake.requests[1].messages[-1]["role"] == "tool"
        file.write_text(run.script(), encoding="utf-8")
        again = client.recorded(file)
        run = client.submit_document(document)
        assert run.wait(timeout_seconds=SECONDS).output == 30
        assert again.requests == fake.requests


def test_it_gives_the_results_of_calls_that_no_code_carries_out(acts: LocalClient) -> None:
    acts.model({"output": "a summary"})
    call = {"_tool": "fake_sum_up", "text": "long", "_outputPath": "†state.sum"}
    run = acts.submit([], {"calls": [call]}, tools={"fake_sum_up": {"type": "object"}})
    assert run.wait(timeout_seconds=SECONDS).data()["state"] == {"sum": "a summary"}


def test_a_call_runs_while_the_rest_of_an_answer_in_pieces_is_held_back(acts: LocalClient) -> None:
    def slowly(*_: Any) -> Iterator[Any]:
        yield json.dumps({"calls": [FOUND]}).removesuffix("]}")
        assert found.wait(SECONDS)
        yield '], "output": "†state.total"}'
        yield Usage(12, 3)

    found = Event()
    acts.model(slowly)
    run = acts.submit(["The total of A-1?"], schema=int, tools=[fake_find])
    for event in run.follow(timeout_seconds=SECONDS):
        if event.kind == "call":
            found.set()
    result = run.result()
    assert result.ticks is not None
    assert (result.output, result.ticks[0].usage) == (30, Usage(12, 3).to_dict())


def test_pieces_of_a_text_are_told_as_they_come(acts: LocalClient) -> None:
    async def slowly(*_: Any) -> AsyncIterator[str]:
        yield '{"output": "Hello'
        await asyncio.to_thread(told.wait, SECONDS)
        yield ', world"}'

    told = Event()
    acts.model(slowly)
    run = acts.submit(["Hi!"], schema=str)
    for event in run.follow(timeout_seconds=SECONDS):
        if event.kind == "text":
            assert event.text == "Hello" or told.is_set()
            told.set()
    assert (told.is_set(), run.result().output) == (True, "Hello, world")


def test_a_stream_that_breaks_off_behind_a_call_is_not_asked_again_and_the_call_counts(acts: LocalClient) -> None:
    async def breaks(*_: Any) -> AsyncIterator[Any]:
        yield json.dumps({"calls": [FOUND]}).removesuffix("]}")
        yield Usage(12, 3)
        await asyncio.to_thread(found.wait, SECONDS)
        raise Unreachable("gone")

    found = Event()
    fake = acts.model(breaks, {"output": "†state.total"})
    run = acts.submit(["The total of A-1?"], schema=int, tools=[fake_find])
    for event in run.follow(timeout_seconds=SECONDS):
        if event.kind == "call":
            found.set()
    result = run.result()
    assert (result.output, len(result.calls), len(fake.requests)) == (30, 1, 2)
    assert result.ticks is not None
    assert result.ticks[0].usage == Usage(12, 3).to_dict()
    assert "the answer broke off: gone" in fake.requests[1].text


def test_a_piece_that_is_no_text_is_the_error_of_its_tick(acts: LocalClient) -> None:
    def odd(*_: Any) -> Iterator[Any]:
        yield {"output": 1}

    fake = acts.model(odd, {"output": 1})
    assert acts.submit(["One?"], schema=int).wait(timeout_seconds=SECONDS).output == 1
    assert "a piece of an answer is a text, or its Usage: dict" in fake.requests[1].text


@pytest.fixture
def _models_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTS_MODEL", "openai:gpt-5")
    monkeypatch.setenv("ACTS_MODELS", json.dumps({"a": {"model": "scripted:nowhere.json"}}))


@pytest.mark.usefixtures("_models_that_cannot_be_had")
def test_the_models_of_the_settings_need_not_be_there_where_others_stand_in(acts: LocalClient) -> None:
    run = acts.submit(["?"], schema={}, config={"model": "a"})
    reason = str(run.wait(timeout_seconds=SECONDS).reason)
    assert "nowhere.json" in reason  # it is said where one is asked
    acts.model({"output": 1}, {"output": 1})
    for config in ({}, {"model": "a"}):
        assert acts.submit(["?"], schema={}, config=config).wait(timeout_seconds=SECONDS).output == 1
