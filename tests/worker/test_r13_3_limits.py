"""The limits of a loop on real workers, and going on beyond one (SPEC R13.3)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from acts_celery import Client, NoLoop, RunOver
from acts_celery.broker_config import EmbeddedServer
from acts_celery.broker_config.tokens import Identity, TokenLimits
from acts_celery.protocol import Rejected
from acts_celery.worker.errors import OverLimit

from .backend import Backend, Meeting
from .loops import Asked, answer, loop_settings

SUM = {"_tool": "add", "a": 1, "b": 2, "_outputPath": "†state.sum"}


@pytest.fixture(scope="module")
def loops(server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    settings = loop_settings(server, "limits", limit_ticks=20)
    running = Backend(settings, meeting, tmp_path_factory.mktemp("limits"))
    with running.worker():
        yield running


def test_r13_3_the_reason_of_a_limit_names_first_what_was_wrong_in_the_last_tick(loops: Backend) -> None:
    wrong = {"_tool": "add", "a": "no number", "_outputPath": "†state.sum"}
    result = Asked(loops, answer(wrong), answer({**wrong, "_tool": "nothing"}), config={"ticks": 2}).result()
    assert (result.reason or "").startswith("InvalidCall: the request declares no tool 'nothing'")
    assert (result.reason or "").endswith("the limit of 2 ticks (config.ticks) is reached without an output")


def test_r13_3_a_loop_that_has_asked_so_often_fails_and_goes_on_with_more_ticks(loops: Backend) -> None:
    asked = Asked(loops, answer(SUM), answer(), answer(), answer(output="†state.sum"), config={"ticks": 2})
    result = asked.result()
    assert result.status == "failed"
    assert (result.reason or "").endswith("; the limit of 2 ticks (config.ticks) is reached without an output")
    assert asked.asked == {0: 1, 1: 1}
    asked.run.resume(ticks=1)
    assert asked.result().status == "failed"
    asked.run.resume(ticks=4)
    result = asked.result()
    assert (result.status, result.output, result.reason) == ("completed", 3, None)
    assert asked.asked == {0: 1, 1: 1, 2: 1, 3: 1}
    with pytest.raises(RunOver):
        asked.run.resume(ticks=1)


def test_r13_3_no_more_ticks_are_added_than_the_operator_allows_in_all(loops: Backend) -> None:
    asked = Asked(loops, *[answer(output="no number")] * 25, config={"ticks": 2})
    asked.result()
    with pytest.raises(OverLimit, match=r"18 ticks can be added .*20 times in all \(ACTS_LIMIT_TICKS\)"):
        asked.run.resume(ticks=19)
    assert len(asked.asked) == 2
    with Client(loops.settings.model_copy(update={"limit_ticks": None})) as unaware:
        unaware.run(asked.run.id).resume(ticks=1_000_000)
    result = asked.result()
    assert (len(asked.asked), "the limit of 20 ticks (ACTS_LIMIT_TICKS)" in (result.reason or "")) == (20, True)
    with pytest.raises(OverLimit, match="0 ticks can be added"):
        asked.run.say("Go on.")


def test_r13_3_what_a_token_has_spent_is_asked_before_a_loop_of_its_goes_on(loops: Backend) -> None:
    with Client(loops.settings.acting_for("sue", Identity("sue", TokenLimits(runs=1, tokens=10)))) as sue:
        asked = Asked(loops, answer(SUM), answer(output=3), client=sue, config={"ticks": 1})
        assert asked.result().status == "failed"
        with pytest.raises(OverLimit, match=r"sue has begun today have taken \d+ tokens, and its limit is 10"):
            asked.run.resume(ticks=60)
        with pytest.raises(OverLimit, match="tokens=10, behind its token"):
            asked.run.say("Go on.")
        assert (asked.asked, asked.run.status()["status"]) == ({0: 1}, "failed")
    loops.client.run(asked.run.id).resume(ticks=1)
    assert asked.result().output == 3


def test_r13_3_eight_ticks_are_the_default(loops: Backend) -> None:
    asked = Asked(loops, *[answer()] * 9)
    assert asked.result().status == "failed"
    assert sorted(asked.asked) == list(range(8))


def test_r13_3_a_solution_that_would_pass_the_calls_starts_none(loops: Backend) -> None:
    calls = [{**SUM, "_outputPath": f"†state.s{n}"} for n in range(3)]
    asked = Asked(loops, answer(*calls[:2]), answer(*calls), answer(output=1), config={"calls": 4})
    result = asked.result()
    assert result.status == "failed"
    assert result.reason is not None
    assert "5 calls, where 4 (config.calls) are allowed" in result.reason
    assert len(result.calls) == 2
    asked.run.resume(ticks=1)
    assert asked.result().output == 1
    assert "LimitReached" in asked.requests[2]["messages"][-1]["content"]


def test_r13_3_an_answer_with_more_calls_than_are_left_is_not_read_any_further(loops: Backend) -> None:
    wrong = [{"_tool": "nothing"}] * 11  # invalid calls do not run, and are looked at where they may be
    result = Asked(loops, answer(*wrong), config={"calls": 10}).result()
    assert result.status == "failed"
    assert result.reason == "11 calls, where 10 (config.calls) are allowed: none of the last solution was started"


def test_r12_5_a_request_that_grows_too_large_ends_the_run_and_is_not_sent(loops: Backend) -> None:
    unseen = "\x01" * 900_000  # each is shown in six letters
    context = [{"type": "state", "_instance": f"i{number}", "big": unseen} for number in range(4)]
    asked = Asked(loops, answer(output="x"), context=context)
    result = asked.result()
    assert result.status == "failed"
    assert (result.reason or "").startswith("TooLarge: ")
    assert "a model would see more than 16777216 bytes" in (result.reason or "")
    assert asked.asked == {}


def test_r13_3_no_request_begins_that_may_take_more_tokens_than_are_left(loops: Backend) -> None:
    config = {"tokens": 100_000, "max_output_tokens": 10_000}
    asked = Asked(loops, answer(SUM, usage=[85_000, 5_000]), answer(output=1), config=config)
    result = asked.result()
    assert result.status == "failed"
    assert result.reason is not None
    assert "10000 of 100000 (config.tokens) are left" in result.reason
    assert asked.asked == {0: 1}
    assert [call.status for call in result.calls] == ["done"]


def test_r13_3_what_is_billed_beyond_the_tokens_is_recorded_and_ends_the_run(loops: Backend) -> None:
    config = {"tokens": 20_000, "max_output_tokens": 1_000}
    asked = Asked(loops, answer(SUM, usage=[30_000, 5_000]), answer(output=1), config=config)
    result = asked.result()
    assert result.status == "failed"
    assert result.reason is not None
    assert "35000 tokens were billed" in result.reason
    (tick,) = result.to_dict()["ticks"]
    assert tick["usage"] == {"input": 30_000, "output": 5_000, "cached": 0}


def test_r13_3_unknown_usage_is_charged_whole(loops: Backend) -> None:
    config = {"tokens": 30_000, "max_output_tokens": 16_000}
    asked = Asked(loops, answer(), answer(output=1), config=config)
    assert asked.result().status == "failed"
    assert asked.asked == {0: 1}


def test_r13_3_the_most_tokens_of_an_answer_are_always_sent(loops: Backend) -> None:
    asked = Asked(loops, answer(output=1))
    asked.result()
    assert asked.requests[0]["config"]["max_output_tokens"] == 4_096


def test_r13_3_a_loop_whose_time_is_over_fails_though_a_call_is_at_work(loops: Backend) -> None:
    wait = {"_tool": "waitAtGate", "gate": "r13.3 never", "_outputPath": "†state.x"}
    asked = Asked(loops, answer(wait), tools=["waitAtGate"], config={"seconds": 1})
    result = asked.result()
    assert (result.status, result.reason) == ("failed", "the limit of 1 seconds (config.seconds) is reached")
    loops.meeting.open_gate("r13.3 never")


def test_r13_3_the_time_of_a_loop_stands_still_while_it_is_paused(loops: Backend) -> None:
    wait = {"_tool": "waitAtGate", "gate": "r13.3 later", "_outputPath": "†state.x"}
    asked = Asked(loops, answer(wait), answer(output=1), tools=["waitAtGate"], config={"seconds": 5})
    loops.meeting.take("at:r13.3 later")
    asked.run.pause()
    # The time of the run is over by the clock, and another loop's, submitted later, ends for that.
    other = Asked(loops, answer({**wait, "gate": "r13.3 too"}), tools=["waitAtGate"], config={"seconds": 5})
    assert other.result().status == "failed"
    loops.meeting.open_gate("r13.3 too")
    asked.run.resume()
    loops.meeting.open_gate("r13.3 later")
    assert asked.result().status == "completed"


def test_r4_2a_a_config_can_only_tighten_what_the_operator_has_set(loops: Backend) -> None:
    with pytest.raises(Rejected, match="/config/ticks: 21, where at most 20 are allowed"):
        Asked(loops, config={"ticks": 21})


def test_r13_3_a_run_without_a_loop_has_no_ticks(loops: Backend) -> None:
    run = loops.run([SUM])
    with pytest.raises(NoLoop):
        loops.client.run(run.run).resume(ticks=1)


def test_r13_1_a_loop_that_repeats_itself_is_reported_so_and_ends_before_its_ticks(loops: Backend) -> None:
    asked = Asked(loops, *[answer(SUM)] * 3, answer(output=1), answer(SUM), answer(output=2))
    result = asked.result()
    assert result.status == "failed"
    assert "the last 3 ticks were the same" in (result.reason or "")
    assert asked.asked == {0: 1, 1: 1, 2: 1}
    shown = [request["messages"][-1]["content"] for request in asked.requests]
    assert ["in a row" in text for text in shown] == [False, False, True]
    asked.run.resume(ticks=1)
    assert asked.result().output == 1
    assert "3 times in a row" in asked.requests[3]["messages"][-1]["content"]


def test_r13_1_what_differs_from_tick_to_tick_is_no_repetition(loops: Backend) -> None:
    other = {**SUM, "a": 5}
    growing = {"_tool": "add", "a": "†state.sum", "b": 1, "_outputPath": "†state.sum"}
    ticks = [SUM, other, SUM, other, growing, growing, growing, {**SUM, "a": "x"}, {**SUM, "a": "x"}]
    asked = Asked(loops, *[answer(call) for call in ticks], answer(output="†state.sum"), config={"ticks": 10})
    result = asked.result()
    assert (result.status, result.output) == ("completed", 10)
    assert ["in a row" in request["messages"][-1]["content"] for request in asked.requests] == [False] * 9 + [True]


def test_r13_1_what_a_person_says_makes_the_same_calls_new(loops: Backend) -> None:
    asked = Asked(loops, *[answer(SUM)] * 3, answer(SUM), answer(output=1))
    assert asked.result().status == "failed"
    asked.run.say("once more")
    assert asked.result().output == 1
