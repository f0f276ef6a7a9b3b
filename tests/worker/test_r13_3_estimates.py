"""How much of its tokens a loop can use: estimates follow from what the model has reported (SPEC R13.3)."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol.engine.loop import Asked as Request
from acts_celery.worker.store.keys import Keys
from acts_celery.worker.store.log import History

from .backend import Backend, Meeting
from .loops import ADD, Asked, answer, loop_settings

NOTE = {"type": "object", "properties": {"about": {"type": "string"}}}
TOKENS = 200_000


@pytest.fixture(scope="module")
def loops(server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    running = Backend(loop_settings(server, "estimates"), meeting, tmp_path_factory.mktemp("estimates"))
    with running.worker():
        yield running


def note(number: int, text: str) -> dict[str, Any]:
    return {"_tool": "note", "about": f"n{number}", "_output": text, "_outputPath": f"†state.n{number}"}


def asking(backend: Backend, *answers: Mapping[str, Any], **config: Any) -> Asked:
    tools = {"add": ADD, "note": NOTE}
    return Asked(backend, *answers, tools=tools, config={"ticks": 500, "tokens": TOKENS, **config})


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4))
def test_r13_3_a_loop_of_small_requests_uses_nearly_all_of_its_tokens_and_no_more(loops: Backend, seed: int) -> None:
    chosen = random.Random(seed)
    letters = string.ascii_letters + " äöü" * (seed % 2)
    written = ("".join(chosen.choices(letters, k=chosen.randrange(250))) for _ in range(120))
    answers = [answer(note(number, text), usage="counted") for number, text in enumerate(written)]
    result = asking(loops, *answers, max_output_tokens=chosen.choice([300, 700])).result()
    assert "(config.tokens) are left" in (result.reason or "")
    used = [tick.usage["input"] + tick.usage["output"] for tick in result.ticks or () if tick.usage]
    assert len(used) > 20
    assert max(used) <= TOKENS / 20
    assert TOKENS * 0.85 <= sum(used) <= TOKENS


def test_r13_3_what_a_request_is_estimated_to_take_is_never_less_than_what_it_takes(loops: Backend) -> None:
    answers: list[dict[str, Any]] = [
        answer(note(0, "x" * 3_000), usage="counted"),
        {"text": "no JSON at all", "usage": "counted"},
        answer({"_tool": "add", "a": 1, "b": "†state.nowhere", "_outputPath": "†state.sum"}, usage="counted"),
        answer(usage=[10, 10]),  # less than it was
        {"refuses": "I will not"},
        answer(note(6, "ü" * 2_000)),  # usage that is not known
        answer(note(7, "y"), usage="counted"),
        answer(output=7, usage="counted"),
    ]
    asked = asking(loops, *answers)
    result = asked.result()
    assert (result.status, result.output) == ("completed", 7)
    history = History(loops.redis, Keys(loops.settings.key_prefix, asked.run.id))
    events = (event for entry in history.entries() for event in entry.loop)
    estimates = [event.estimate for event in events if isinstance(event, Request)]
    ticks = result.ticks or ()
    for estimate, tick in zip(estimates, ticks, strict=True):
        if tick.usage is not None:
            assert tick.usage["input"] <= estimate - 4_096 or tick.tick == 4, tick  # 4 follows a report that is too low
    assert estimates[3] < estimates[0]  # the schema and the tools do not count by their bytes again
    assert estimates[6] > 2 * estimates[7] - 4_096  # all of it by its bytes, where the usage before is not known
