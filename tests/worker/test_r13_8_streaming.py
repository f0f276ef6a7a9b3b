"""Answers that run while they are written, on real workers and a server that streams (SPEC R13.8)."""

from __future__ import annotations

import json
import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from acts_celery import BeingAmended
from acts_celery.worker.broker.attempts import CallId
from acts_celery.worker.store.keys import Keys
from acts_celery.worker.store.run_list import child_id
from tests.acceptance.command import acts
from tests.models.server import Reply, streamed

from .backend import Meeting
from .streaming import (
    ASK,
    SUM,
    TOOLS,
    Streaming,
    answer,
    held,
    settings,
    solutions,
    speaker,
    streaming,
    waiting,
)

__all__ = ["settings", "speaker", "streaming"]  # fixtures


def test_r13_8_a_call_begins_while_the_server_holds_the_rest_of_the_answer_back(
    streaming: Streaming, meeting: Meeting
) -> None:
    hold, gate = Event(), secrets.token_hex(4)
    text = answer(
        waiting(gate, 20), SUM, {**SUM, "a": f"†state.{gate}", "b": "†state.sum", "_outputPath": "†state.all"}
    )
    run, topic = streaming.submit(
        lambda: held(text, f'"†state.{gate}"}}', hold=hold), lambda: streamed(answer(output="†state.all"))
    )
    meeting.take(f"at:{gate}")
    assert solutions(run) == []
    assert run.status()["calls"] == {"running": 1}
    with pytest.raises(BeingAmended, match="try again when its answer is whole"):
        run.amend([SUM], add=True)
    hold.set()
    meeting.open_gate(gate)
    result = streaming.backend.wait(run.id)
    assert (result.status, result.output) == ("completed", 23)
    assert [(call.index, call.tick) for call in result.calls] == [(0, 0), (1, 0), (2, 0)]
    assert streaming.speaker.asked[topic] == [0, 1]
    assert [event.status for event in run.follow() if event.kind == "run"] == ["running", "completed"]
    assert len(solutions(run)) == 2


@pytest.mark.parametrize("is_cut", [True, False])
def test_r13_8_an_answer_that_breaks_off_or_turns_invalid_behind_a_call_counts_as_far_as_it_came(
    streaming: Streaming, meeting: Meeting, *, is_cut: bool
) -> None:
    hold, gate = Event(), secrets.token_hex(4)
    text = answer(waiting(gate), SUM)[: None if is_cut else -1] + ("" if is_cut else ', "output": 1}')

    def cut() -> Reply:
        reply = held(text, f'"†state.{gate}"}}', hold=hold)
        return Reply(reply.chunks[:3], headers=reply.headers, is_cut=True) if is_cut else reply

    run, topic = streaming.submit(cut, lambda: streamed(answer(output=f"†state.{gate}")))
    meeting.take(f"at:{gate}")
    hold.set()
    meeting.open_gate(gate)
    result = streaming.backend.wait(run.id)
    assert (result.status, result.output) == ("completed", 1)
    assert streaming.speaker.asked[topic] == [0, 1]
    assert solutions(run)[0]["solution"] == {"calls": [waiting(gate)], "output": None}
    (error,) = [entry.message["data"]["error"] for entry in run.log() if entry.message["type"] == "error"]
    assert error["type"] == "Truncated"


def test_r13_8_what_stands_behind_an_answer_whose_calls_have_begun_changes_nothing(
    streaming: Streaming, meeting: Meeting
) -> None:
    hold, gate = Event(), secrets.token_hex(4)
    text = f"{answer(waiting(gate))}\n\nDone! Anything else?"
    run, topic = streaming.submit(
        lambda: held(text, f'"†state.{gate}"}}', hold=hold), lambda: streamed(answer(output=f"†state.{gate}"))
    )
    meeting.take(f"at:{gate}")
    hold.set()
    meeting.open_gate(gate)
    result = streaming.backend.wait(run.id)
    assert (result.status, result.output, len(result.calls)) == ("completed", 1, 1)
    assert streaming.speaker.asked[topic] == [0, 1]
    assert [entry for entry in run.log() if entry.message["type"] == "error"] == []
    assert solutions(run)[0]["words"] == "Done! Anything else?"


def test_r13_8_the_command_that_follows_a_run_shows_it_to_its_end_though_its_calls_begin_early(
    streaming: Streaming, meeting: Meeting, tmp_path: Path
) -> None:
    topic, gate, hold = secrets.token_hex(4), secrets.token_hex(4), Event()
    text = answer(waiting(gate), SUM, output=f"†state.{gate}")
    streaming.speaker.replies[topic] = [lambda: held(text, f'"†state.{gate}"}}', hold=hold)]
    context = [{"type": "text", "message": f"topic: {topic}"}]
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"context": context, "schema": {"type": "integer"}, "tools": TOOLS}))
    with ThreadPoolExecutor(1) as pool:
        command = pool.submit(acts, "run", str(request), "--json", env=streaming.backend.settings.to_environment())
        meeting.take(f"at:{gate}")
        hold.set()
        meeting.open_gate(gate)
        ended = command.result()
    assert ended.code == 0, ended.stderr
    assert json.loads(ended.stdout)["output"] == 1


def test_r13_8_a_call_of_a_child_run_begins_while_both_answers_are_held_back(
    streaming: Streaming, meeting: Meeting
) -> None:
    gate, hold = secrets.token_hex(4), Event()
    inner = answer(waiting(gate, 20), {**SUM, "a": f"†state.{gate}"})
    child = streaming.delegate(
        lambda: held(inner, f'"†state.{gate}"}}', hold=hold), lambda: streamed(answer(output="†state.sum"))
    )
    outer = answer(ASK, {**SUM, "a": "†state.asked", "b": "†state.asked"})
    run, _ = streaming.submit(
        lambda: held(outer, '"†state.asked"}', hold=hold), lambda: streamed(answer(output="†state.sum")), **child
    )
    meeting.take(f"at:{gate}")
    below = streaming.backend.client.run(child_id(CallId(run.id, None, 0)))
    assert (solutions(run), solutions(below)) == ([], [])
    assert (run.status()["calls"], below.status()["calls"]) == ({"running": 1}, {"running": 1})
    hold.set()
    meeting.open_gate(gate)
    result = streaming.backend.wait(run.id)
    assert (result.status, result.output) == ("completed", 44)
    assert [call.cost and call.cost["calls"] for call in result.calls] == [2, None]
    drawn: Any = streaming.backend.redis.hget(Keys(streaming.backend.settings.key_prefix, run.id).budget, "=calls")
    assert int(drawn) == 4


@pytest.mark.parametrize("is_child_first", [True, False])
def test_r13_3_streams_of_a_loop_and_its_child_run_begin_no_more_calls_than_both_may(
    streaming: Streaming, meeting: Meeting, *, is_child_first: bool
) -> None:
    own, first, second = (secrets.token_hex(4) for _ in range(3))
    hold, inner_hold = Event(), Event()
    inner = answer(waiting(first), waiting(second))
    child = streaming.delegate(lambda: held(inner, f'"†state.{first}"}}', hold=inner_hold))
    outer = answer(ASK, waiting(own))
    run, _ = streaming.submit(
        lambda: held(outer, '"†state.asked"}', hold=hold),
        lambda: streamed(answer(output=7)),
        **child,
        config={"calls": 3},
    )
    meeting.take(f"at:{first}")
    says = f"0 calls are left of those that run {run.id} and its child runs may start together (config.calls)"
    if is_child_first:
        inner_hold.set()
        meeting.take(f"at:{second}")
        hold.set()
        result = streaming.backend.wait(run.id)
        assert (result.status, result.reason) == ("failed", says)
    else:
        hold.set()
        meeting.take(f"at:{own}")
        inner_hold.set()
        meeting.open_gate(own)
        result = streaming.backend.wait(run.id)
        assert (result.status, result.output) == ("completed", 7)
        assert says in (result.calls[0].error or {})["message"]
    for gate in (own, first, second):
        meeting.open_gate(gate)
    assert meeting.count(f"at:{own if is_child_first else second}") == 0


def test_r13_8_what_would_pass_the_limit_of_calls_does_not_begin_and_ends_the_run(
    streaming: Streaming, meeting: Meeting
) -> None:
    hold, gate = Event(), secrets.token_hex(4)
    text = answer(waiting(gate), SUM)
    run, _ = streaming.submit(lambda: held(text, f'"†state.{gate}"}}', hold=hold), config={"calls": 1})
    meeting.take(f"at:{gate}")
    hold.set()
    result = streaming.backend.wait(run.id)
    meeting.open_gate(gate)
    assert result.status == "failed"
    assert result.reason == "2 calls, where 1 (config.calls) are allowed: 1 of the last solution were started"
    assert [call.index for call in result.calls] == [0]
