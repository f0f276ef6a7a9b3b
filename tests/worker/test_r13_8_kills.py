"""SIGKILL while an answer is written: nothing of it is lost, and no call that has ended runs again (SPEC R13.8)."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from threading import Event
from typing import Any

import pytest

from tests.models.server import Reply, streamed

from .backend import DEADLINE_SECONDS, Backend, Meeting
from .streaming import SUM, Speaker, Streaming, answer, held, settings, solutions, speaker, waiting

__all__ = ["settings", "speaker"]  # fixtures

pytestmark = pytest.mark.nightly

SEEN: dict[str, Callable[[Any], bool]] = {
    "after the last part": lambda message: message.get("_call") == SUM,
    "after the answer": lambda message: message["type"] == "solution",
}
"""What the log has come to when a worker is killed."""


@pytest.mark.parametrize("is_asker", [False, True])
@pytest.mark.parametrize("at", ["before the first part", "between parts", "after the last part", "after the answer"])
def test_r13_8_an_answer_survives_the_kill_of_the_worker_that_runs_its_calls_or_asks_for_it(
    settings: Any,
    speaker: Speaker,
    meeting: Meeting,
    tmp_path_factory: pytest.TempPathFactory,
    at: str,
    *,
    is_asker: bool,
) -> None:
    backend = Backend(settings, meeting, tmp_path_factory.mktemp("streams"))
    arrived, hold, first, second = Event(), Event(), secrets.token_hex(4), secrets.token_hex(4)
    meeting.open_gate(first)
    calls = [waiting(first), waiting(second, f"†state.{first}"), SUM]
    text = answer(*calls)
    marks = {"between parts": f'"†state.{second}"}}', "after the last part": '"†state.sum"}'}

    def reply() -> Reply:
        arrived.set()
        return held(text, marks.get(at, "{"), hold=hold)

    queues = [settings.queue_instances, settings.queue_delegates]
    with backend.worker("-Q", queues[0]) as driver, backend.worker("-Q", queues[1]) as asker:
        run, topic = Streaming(backend, speaker).submit(reply, lambda: streamed(answer(output=f"†state.{second}")))
        assert arrived.wait(DEADLINE_SECONDS)
        if at == "after the answer":
            hold.set()
        if at != "before the first part":
            meeting.take(f"at:{second}")
        if at in SEEN:
            next(entry for entry in run.log(follow=True) if SEEN[at](entry.message))
        killed = asker if is_asker else driver
        killed.kill()
        killed.wait()
        hold.set()  # where the driver is dead, the rest of the answer comes while there is none
        meeting.open_gate(second)
        with backend.worker("-Q", queues[is_asker]):
            result = backend.wait(run.id)
    is_broken = is_asker and at in ("between parts", "after the last part")
    assert (result.status, result.output) == ("completed", 1)
    assert speaker.asked[topic] == ([0, 0, 1] if is_asker and at == "before the first part" else [0, 1])
    assert meeting.count(f"at:{first}") == 1
    assert [message["tick"] for message in solutions(run)] == [0, 1]
    assert solutions(run)[0]["solution"]["calls"] == calls[: 2 if is_asker and at == "between parts" else 3]
    errors = [entry.message["data"]["error"]["type"] for entry in run.log() if entry.message["type"] == "error"]
    assert errors == (["Truncated"] if is_broken else [])
    written = [entry.message["_call"]["_outputPath"] for entry in run.log() if "_call" in entry.message]
    assert len(written) == len(set(written)) == len(solutions(run)[0]["solution"]["calls"])
