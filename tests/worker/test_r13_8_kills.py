"""SIGKILL while an answer is written: nothing of it is lost, and no call that has ended runs again (SPEC R13.8)."""

from __future__ import annotations

import secrets
from threading import Event
from typing import Any

import pytest

from tests.models.server import streamed

from .backend import Backend, Meeting
from .test_r13_8_streaming import SUM, Speaker, Streaming, answer, held, settings, solutions, speaker, waiting

__all__ = ["settings", "speaker"]  # fixtures

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("is_asker", [False, True])
def test_r13_8_an_answer_survives_the_kill_of_the_worker_that_runs_its_calls_or_asks_for_it(
    settings: Any, speaker: Speaker, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory, *, is_asker: bool
) -> None:
    backend = Backend(settings, meeting, tmp_path_factory.mktemp("streams"))
    hold, first, second = Event(), secrets.token_hex(4), secrets.token_hex(4)
    meeting.open_gate(first)
    calls = [waiting(first), waiting(second, f"†state.{first}"), SUM]
    text = answer(*calls)
    queues = [settings.queue_instances, settings.queue_delegates]
    with backend.worker("-Q", queues[0]) as driver, backend.worker("-Q", queues[1]) as asker:
        run, topic = Streaming(backend, speaker).submit(
            lambda: held(text, f'"†state.{second}"}}', hold=hold), lambda: streamed(answer(output=f"†state.{second}"))
        )
        meeting.take(f"at:{second}")
        killed = asker if is_asker else driver
        killed.kill()
        killed.wait()
        with backend.worker("-Q", queues[is_asker]):
            if not is_asker:
                meeting.take(f"at:{second}")
            hold.set()
            meeting.open_gate(second)
            result = backend.wait(run.id)
    assert (result.status, result.output) == ("completed", 1)
    assert speaker.asked[topic] == [0, 1]
    assert meeting.count(f"at:{first}") == 1
    assert [message["tick"] for message in solutions(run)] == [0, 1]
    assert solutions(run)[0]["solution"]["calls"] == calls[: 2 if is_asker else 3]
    errors = [entry.message["data"]["error"]["type"] for entry in run.log() if entry.message["type"] == "error"]
    assert errors == (["Truncated"] if is_asker else [])
