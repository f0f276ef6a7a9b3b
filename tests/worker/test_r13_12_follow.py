"""What a follower of a loop is told: its ticks, and its text as it is written (SPEC R13.12)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Event as Gate
from typing import Any

import pytest

from acts_celery import AsyncClient, Event, Run
from acts_celery.worker.cli.progress import Ticks
from tests.acceptance.command import acts, finish, start
from tests.models.server import Reply, delta, streamed

from .backend import Backend, Meeting
from .streaming import ASK, SUM, Streaming, answer, held, settings, speaker, streaming, waiting
from .test_control_cli import command

__all__ = ["settings", "speaker", "streaming"]  # fixtures

TEXT = {"type": "string"}


def stepwise(text: str, *cuts: str) -> tuple[Callable[[], Reply], list[Gate]]:
    """A reply that stops behind each of these, until its gate opens."""
    whole, gates, before = streamed("", pieces=1), [Gate() for _ in cuts], 0
    chunks = list[bytes | Gate]()
    for cut, gate in zip(cuts, gates, strict=True):
        at = text.index(cut) + len(cut)
        chunks += [delta(content=text[before:at]), gate]
        before = at
    chunks = [whole.chunks[0], *chunks, delta(content=text[before:]), *whole.chunks[1:]]
    return lambda: Reply(chunks, headers=whole.headers), gates


def shown(events: list[Event]) -> str:
    """What a page shows that has these events."""
    text = ""
    for event in events:
        if event.kind == "text":
            text = text[: event.at] + (event.text or "")
    return text


def ticks(events: list[Event]) -> list[tuple[Any, ...]]:
    return [(event.tick, event.status, event.calls, event.errors) for event in events if event.kind == "tick"]


def test_r13_12_a_text_is_told_while_it_is_written_and_a_late_reader_gets_the_same(streaming: Streaming) -> None:
    reply, gates = stepwise(answer(output="Hello, dear \u00e9 world"), "Hello", "dear")
    run, _ = streaming.submit(reply, schema=TEXT)
    events = list[Event]()
    late = list[Event]()
    for event in run.follow(timeout_seconds=60):
        events.append(event)
        if shown(events) == "Hello":
            gates[0].set()
        elif shown(events) == "Hello, dear":
            if not gates[1].is_set():
                late = [one for _, one in zip(events, run.follow(timeout_seconds=60), strict=False)]
                assert late == events
            gates[1].set()
    assert late
    assert shown(events) in "Hello, dear \u00e9 world"
    assert ticks(events) == [(0, "asked", None, None), (0, "answered", 0, 0), (0, "ended", None, 0)]
    (ended,) = (event for event in events if event.status == "ended")
    assert ended.output == run.result().output == "Hello, dear \u00e9 world"
    for number, event in enumerate(events):
        assert list(run.follow(after=event.id, timeout_seconds=60)) == events[number + 1 :]
    assert len({event.id for event in events}) == len(events)
    assert list(run.follow()) == asyncio.run(followed(streaming.backend, run)) == events


def test_a_terminal_shows_the_tick_and_the_end_of_the_text() -> None:
    ticks, long = Ticks(), "a\tb " * 40
    told = [Event("1-0", "tick", "asked", tick=2), Event("2-0", "text", "written", tick=2, text=long + "\x1b[1m", at=0)]
    lines = [ticks.line for event in [*told, Event("3-0", "tick", "ended", tick=2)] if ticks.take(event)]
    assert (lines[0], lines[2]) == ("tick 2 asked", "tick 2 ended")
    assert lines[1].startswith("tick 2: ")
    assert lines[1].endswith("a b a b \\x1b[1m")
    assert len(lines[1]) < 80


async def followed(backend: Backend, run: Run, **how: Any) -> list[Event]:
    async with AsyncClient(backend.settings) as client:
        return [event async for event in client.run_of(run.id).follow(**how)]


def test_r13_12_ticks_tell_their_calls_usage_and_errors(streaming: Streaming) -> None:
    wrong = {"_tool": "nothing"}
    run, _ = streaming.submit(
        lambda: streamed(answer(SUM, wrong)),
        lambda: streamed(answer({**SUM, "a": "x"}, output=1)),
        lambda: streamed(answer(output=3)),
    )
    events = [event for event in run.follow(timeout_seconds=60) if event.kind == "tick"]
    assert ticks(events) == [
        (0, "asked", None, None),
        (0, "answered", 2, 1),
        (0, "ended", None, 1),
        (1, "asked", None, None),
        (1, "answered", 1, 0),
        (1, "ended", None, 1),
        (2, "asked", None, None),
        (2, "answered", 0, 0),
        (2, "ended", None, 0),
    ]
    answered = [event for event in events if event.status == "answered"]
    assert all(event.model and event.usage is not None for event in answered)
    assert [event.reason is not None for event in events if event.status == "ended"] == [False, True, False]
    assert events[-1].output == 3


def test_r13_12_a_log_that_is_followed_tells_of_each_tick_as_it_comes(streaming: Streaming) -> None:
    hold = Gate()
    bad = {"_tool": "nothing"}
    run, _ = streaming.submit(
        lambda: held(answer(SUM, bad), "{", hold=hold), lambda: streamed(answer(output="†state.sum"))
    )
    env = streaming.backend.settings.to_environment()
    following = start("log", run.id, "--follow", env=env)
    assert following.stdout is not None
    first = ""
    while "tick 0 asked" not in first:  # the answer is held back until it was told that it is asked for
        first = following.stdout.readline().decode()
        assert first
    hold.set()
    told = finish(following)
    words = [line.split("  ")[2] for line in told.stdout.splitlines() if "  tick " in line]
    assert words == ["tick 0 ended, 1 error", "tick 1 asked", "tick 1 ended"]
    assert '"type": "solution", "tick": 0' in told.stdout
    everything = command(streaming.backend, "log", run.id, "--follow", "--json").json_lines
    found = [(line["tick"]["tick"], line["tick"]["status"]) for line in everything if "tick" in line]
    assert found == [(tick, status) for tick in (0, 1) for status in ("asked", "answered", "ended")]
    (answered,) = (line for line in everything if line.get("tick", {}).get("calls") == 2)
    assert (answered["message"]["type"], answered["tick"]["errors"]) == ("solution", 1)
    plain = command(streaming.backend, "log", run.id, "--json").json_lines
    assert all(line["message"] and "tick" not in line for line in plain)


def test_r13_12_calls_begin_while_the_text_behind_them_is_written(streaming: Streaming, meeting: Meeting) -> None:
    gate = secrets.token_hex(4)
    said = "It is 1, and \u2020{state." + gate + "}."
    reply, gates = stepwise(answer(waiting(gate), output=said), "It is 1", "and")
    run, _ = streaming.submit(reply, schema=TEXT)
    meeting.take(f"at:{gate}")
    meeting.open_gate(gate)
    events = list[Event]()
    for event in run.follow(timeout_seconds=60):
        events.append(event)
        if event.kind == "call":
            gates[0].set()
        if shown(events) == "It is 1, and":
            gates[1].set()
    assert shown(events) in ("It is 1, and", "It is 1, and ")  # what the template stands for is not known before
    assert run.result().output == "It is 1, and 1."
    assert streaming.backend.wait(run.id).status == "completed"


def test_r13_12_an_output_that_is_no_text_and_one_that_is_a_reference_have_no_pieces(streaming: Streaming) -> None:
    for schema, output, comes in ((TEXT, "\u2020state.word", "there"), ({"type": "array"}, ["a", "b"], ["a", "b"])):
        topic = secrets.token_hex(4)
        streaming.speaker.replies[topic] = [partial(streamed, answer(output=output))]
        context = [{"type": "text", "message": f"topic: {topic}"}, {"type": "state", "word": "there"}]
        run = streaming.backend.client.submit(context, schema=schema)
        events = list(run.follow(timeout_seconds=60))
        assert not [event for event in events if event.kind == "text"]
        assert events[-2].output == comes


def test_r13_12_a_text_that_breaks_off_is_replaced_by_that_of_the_next_tick(streaming: Streaming) -> None:
    reply, gates = stepwise(answer(output="First try"), "First")
    whole = reply()

    def cut() -> Reply:
        return Reply(whole.chunks[:3], headers=whole.headers, is_cut=True)

    run, _ = streaming.submit(cut, lambda: streamed(answer(output="Second")), schema=TEXT)
    events = list[Event]()
    for event in run.follow(timeout_seconds=60):
        events.append(event)
        if event.kind == "text":
            gates[0].set()
    pieces = [(event.tick, event.at, event.text) for event in events if event.kind == "text"]
    assert pieces[0] == (0, 0, "First")
    assert all(at == 0 for _, at, _ in pieces[1:2])
    assert run.result().output == "Second"


def test_r13_12_a_long_text_makes_few_entries(streaming: Streaming) -> None:
    words = " ".join(str(number) for number in range(4_000))
    run, _ = streaming.submit(lambda: streamed(answer(output=words), pieces=2_000), schema=TEXT)
    events = list(run.follow(timeout_seconds=60))
    pieces = [event for event in events if event.kind == "text"]
    assert len(pieces) < 200
    assert words.startswith(shown(events))
    assert run.result().output == words


def test_r13_9_who_follows_with_children_is_told_of_them_before_the_end(streaming: Streaming) -> None:
    told = streaming.delegate(lambda: streamed(answer(SUM)), lambda: streamed(answer(output=3)))
    run, _ = streaming.submit(lambda: streamed(answer(ASK)), lambda: streamed(answer(output="†state.asked")), **told)
    events = list(run.follow(children=True, timeout_seconds=60))
    (child,) = (event.child for event in events if event.kind == "child")
    of_child = [replace(event, run=None) for event in events if event.run is not None]
    assert {event.run for event in events} == {None, child}
    assert of_child == list(streaming.backend.client.run(child or "").follow())
    assert [event for event in events if event.run is None] == list(run.follow())
    assert [event.is_end for event in events].index(True) == len(events) - 1
    assert asyncio.run(followed(streaming.backend, run, children=True))[-1] == events[-1]
    assert len(list(run.follow(children=True))) == len(events)


def test_r14_1_acts_wait_and_acts_run_tell_that_a_child_run_holds_a_call(streaming: Streaming) -> None:
    told = streaming.delegate(lambda: streamed(answer(SUM)), lambda: streamed(answer(output="†state.sum")))
    document: dict[str, Any] = {**told, "context": [], "solution": {"calls": [ASK]}, "config": {"approve": ["add"]}}
    run = streaming.backend.client.submit_document(document)
    next(event for event in run.follow(children=True, timeout_seconds=60) if event.kind == "held")
    waited = command(streaming.backend, "wait", run.id, "--timeout", "1")
    assert (waited.code, f"acts held {run.id}" in waited.stderr) == (3, True)
    (held,) = run.held()
    run.approve(held["call"])
    assert command(streaming.backend, "wait", run.id).code == 0


@pytest.mark.nightly
def test_r14_1_a_backend_that_goes_with_the_command_does_not_wait_for_a_person_of_a_child_run(
    streaming: Streaming,
) -> None:
    told = streaming.delegate(lambda: streamed(answer(SUM)))
    document = {**told, "context": [], "solution": {"calls": [ASK]}, "config": {"approve": ["add"]}}
    apart = ("BROKER", "REDIS", "QUEUE", "PREFIX")
    known = streaming.backend.settings.to_environment() | {"MEETING_URL": streaming.backend.meeting.url}
    env = {name: value for name, value in known.items() if not any(part in name for part in apart)}
    ran = acts("run", "-", stdin=document, env=env)
    assert (ran.code, "there is no terminal to ask at" in ran.stderr) == (3, True), ran
