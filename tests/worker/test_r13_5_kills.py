"""A loop on real workers survives SIGKILL of every worker at every tick (SPEC R13.5)."""

from __future__ import annotations

import pytest

from acts_celery.broker_config import EmbeddedServer

from .backend import Backend, Meeting
from .loops import ADD, Asked, answer, loop_settings

TICKS = 3
WAIT = {"type": "object", "properties": {"gate": {"type": "string"}, "value": {}}}


@pytest.mark.nightly
def test_r13_5_a_loop_survives_the_kill_of_its_worker_while_asking_and_while_calling_at_every_tick(
    server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = loop_settings(server, "kills", lease_seconds=1.5, sweep_interval_seconds=0.2, limit_attempts=20)
    loops = Backend(settings, meeting, tmp_path_factory.mktemp("kills"))
    answers = [
        answer(
            {"_tool": "waitAtGate", "gate": f"call{tick}", "value": tick, "_outputPath": f"†state.v{tick}"},
            {"_tool": "add", "a": tick, "b": 1, "_outputPath": f"†state.sum{tick}"},
            gate=f"answer{tick}",
        )
        for tick in range(TICKS)
    ]
    tools = {"add": ADD, "waitAtGate": WAIT}
    asked = Asked(loops, *answers, answer(output=f"†state.sum{TICKS - 1}"), tools=tools)
    for tick in range(TICKS):
        with loops.worker() as worker:
            asked.wait_until_asked(tick)
            worker.kill()
            worker.wait()
        meeting.open_gate(f"answer{tick}")
        with loops.worker() as worker:
            meeting.take(f"at:call{tick}")
            worker.kill()
            worker.wait()
        meeting.open_gate(f"call{tick}")
    with loops.worker():
        result = asked.result()
    assert (result.status, result.output) == ("completed", TICKS)
    # Each was killed once while it was asked, and asked once more for that; none was asked again for its calls.
    assert asked.asked == {**dict.fromkeys(range(TICKS), 2), TICKS: 1}
    assert [message["tick"] for message in asked.messages("solution")] == list(range(TICKS + 1))
    written = [message["_call"]["_outputPath"] for message in asked.messages("data")]
    assert sorted(written) == sorted(f"†state.{name}{tick}" for tick in range(TICKS) for name in ("v", "sum"))
