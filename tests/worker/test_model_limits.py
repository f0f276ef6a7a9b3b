"""What a model's provider allows in a minute: requests and tokens, over all workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from acts_celery.broker_config import EmbeddedServer, SettingsError, load

from .backend import Backend, Meeting
from .loops import Asked, answer, loop_settings
from .pages import Asking
from .test_slots import wait_until

NAME = "model:told:told"


@pytest.fixture(scope="module")
def workers(server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """Two workers, whose model may be asked twice a minute, and take 12,000 tokens."""
    running = _backend("limits", server, meeting, tmp_path_factory)
    with running.worker(), running.worker():
        yield running


@pytest.fixture
def limited(workers: Backend) -> Iterator[Backend]:
    """The same, in a new minute."""
    yield workers
    wait_until_nothing_is_held(workers)
    workers.redis.delete(*(f"{slots_of(workers)}:{what}:{NAME}" for what in ("begun", "spent")))


def _backend(name: str, server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Backend:
    most = {"model_requests_per_minute": 2, "model_tokens_per_minute": 12_000}
    own = loop_settings(server, name, lease_seconds=1.5, sweep_interval_seconds=0.2, **most)
    return Backend(own, meeting, tmp_path_factory.mktemp(name))


def slots_of(backend: Backend) -> str:
    return f"{backend.settings.key_prefix}:{{slots}}"


def wait_until_nothing_is_held(backend: Backend) -> None:
    """Return when all that is left of slots expires by itself."""

    def is_free() -> bool:
        return all(backend.redis.pttl(name) > 0 for name in backend.redis.scan_iter(f"{slots_of(backend)}*"))

    wait_until(backend, f"{slots_of(backend)}:holders:{NAME}", is_free)


def let_a_minute_pass(backend: Backend) -> None:
    """Let all requests so far have begun a minute ago; a sweep hands on what waits."""
    begun = f"{slots_of(backend)}:begun:{NAME}"
    members: Any = backend.redis.zrange(begun, 0, -1)
    for member in members:
        backend.redis.zadd(begun, {member: 1}, xx=True)
    backend.redis.zadd(f"{slots_of(backend)}:due", {NAME: 1}, xx=True)


def wait_for_a_waiter(backend: Backend, number: int = 1) -> None:
    key = f"{slots_of(backend)}:turns:{NAME}"
    wait_until(backend, key, lambda: backend.redis.llen(key) == number)


def test_requests_beyond_what_a_minute_allows_wait_and_say_so(limited: Backend) -> None:
    loops = [Asked(limited, answer(output=1, usage=[10, 5])) for _ in range(3)]
    wait_for_a_waiter(limited)
    (waiting,) = [one for one in loops if one.run.status().get("waiting_for")]
    (reason,) = waiting.run.status()["waiting_for"]
    assert (reason["call"], reason["for"]) == (None, "rate")
    assert "the limit of the model told:told (2 requests and 12000 tokens a minute)" in reason["reason"]
    waits = Asking(limited, waiting.run).ask()["waiting_for"]
    (shown,) = [one for one in waits if one["for"] in ("slot", "rate")]
    assert "the limit of the model" in shown["reason"]
    delegate = {"context": [{"type": "text", "message": "topic: waiting delegate"}]}
    call = {"_tool": "ask", "_outputPath": "†state.a"}
    run = limited.client.submit_document(
        {"solution": {"calls": [call]}, "tools": {"ask": {"_delegate": "asker"}}, "delegates": {"asker": delegate}}
    )
    wait_for_a_waiter(limited, 2)
    (writer,) = run.explain_absence("†state.a").writers
    assert "the limit of the model" in str(writer.reason)
    run.cancel()
    others = [one for one in loops if one is not waiting]
    assert [one.result().status for one in others] == ["completed"] * 2
    assert waiting.asked == {}
    let_a_minute_pass(limited)
    assert (waiting.result().status, waiting.asked) == ("completed", {0: 1})


def test_ticks_delegates_and_latent_calls_count_with_the_tokens_that_they_have_taken(limited: Backend) -> None:
    told = {"context": [{"type": "text", "message": "topic: limited delegate"}], "schema": {"type": "integer"}}
    limited.meeting.redis.rpush("answers:limited delegate", '{"answer": {"output": 4}, "usage": [70, 7]}')
    asked = Asked(
        limited,
        answer({"_tool": "ask", "_outputPath": "†state.four"}, usage=[100, 20]),
        answer(output="†state.four", usage=[200, 30]),
        tools={"ask": {"_delegate": "asker"}},
        delegates={"asker": told},
    )
    wait_for_a_waiter(limited)
    begun: Any = limited.redis.zrange(f"{slots_of(limited)}:begun:{NAME}", 0, -1)
    assert sorted(int(member.rpartition(b":")[2]) for member in begun) == [77, 120]
    assert int(limited.redis.get(f"{slots_of(limited)}:spent:{NAME}") or 0) == 197
    let_a_minute_pass(limited)
    assert (asked.result().status, asked.result().output) == ("completed", 4)


def test_a_request_larger_than_a_minute_allows_is_refused_and_says_what_to_do(limited: Backend) -> None:
    asked = Asked(limited, answer(output=1), config={"max_output_tokens": 13_000})
    result = asked.result()
    assert result.status == "failed"
    assert "tokens_per_minute" in str(result.to_dict())
    assert asked.asked == {}
    delegate = {"context": [{"type": "text", "message": "x" * 60_000}]}
    call = {"_tool": "ask", "_outputPath": "†state.a"}
    run = limited.client.submit_document(
        {"solution": {"calls": [call]}, "tools": {"ask": {"_delegate": "asker"}}, "delegates": {"asker": delegate}}
    )
    (failed,) = limited.wait(run.id).calls
    assert (failed.error or {})["type"] == "LimitReached"
    assert "max_output_tokens" in (failed.error or {})["message"]


def test_what_waits_when_its_run_is_cancelled_leaves_nothing_behind(limited: Backend) -> None:
    loops = [Asked(limited, answer(output=1, gate="cancelled-and-limited")) for _ in range(3)]
    wait_for_a_waiter(limited)
    for one in loops:
        one.run.cancel()
    limited.meeting.open_gate("cancelled-and-limited")
    wait_until_nothing_is_held(limited)


def test_a_request_whose_worker_is_killed_counts_and_is_asked_again_with_a_slot_of_its_own(
    server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> None:
    mortal = _backend("mortallimits", server, meeting, tmp_path_factory)
    with mortal.worker() as victim:
        asked = Asked(mortal, answer(output=1, gate="lost-and-limited", usage=[10, 5]))
        asked.wait_until_asked(0)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
    meeting.open_gate("lost-and-limited")
    with mortal.worker():
        assert asked.result().status == "completed"
        assert asked.asked == {0: 2}
        begun = f"{slots_of(mortal)}:begun:{NAME}"
        wait_until(mortal, begun, lambda: mortal.redis.zcard(begun) == 2)


def test_a_request_that_was_sent_without_regard_to_the_limit_is_refused_and_says_what_to_set(
    server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> None:
    apart = _backend("apartlimits", server, meeting, tmp_path_factory)
    unaware = {"ACTS_MODEL_REQUESTS_PER_MINUTE": "", "ACTS_MODEL_TOKENS_PER_MINUTE": ""}
    with apart.worker("-Q", "apartlimits-instances", **unaware), apart.worker("-Q", "apartlimits-delegates"):
        result = Asked(apart, answer(output=1)).result()
    assert result.status == "failed"
    assert "ACTS_MODEL_REQUESTS_PER_MINUTE" in str(result.to_dict())


def test_where_no_model_is_limited_nothing_is_asked(loops: Backend) -> None:
    loops.redis.config_resetstat()
    assert Asked(loops, answer(output=1)).result().status == "completed"
    commands: Any = loops.redis.info("commandstats")
    assert "cmdstat_zpopmin" not in commands


# Settings.


def test_models_that_are_asked_at_one_place_have_one_limit() -> None:
    models = '{"a": {"model": "openai:x", "requests_per_minute": 5}, "b": {"model": "openai:x"}}'
    with pytest.raises(SettingsError, match=r"openai:x.*requests_per_minute"):
        load(env_file=None, models=models)
    elsewhere = models.replace('"b": {', '"b": {"base_url": "http://localhost:1/v1", ')
    assert load(env_file=None, models=elsewhere).models["a"].requests_per_minute == 5
