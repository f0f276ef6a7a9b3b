"""Two writers of one run: who takes over is not disturbed by the other, and what is sent again is written once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from redis.exceptions import ConnectionError as Unreachable

from acts_celery.protocol import Plan
from acts_celery.worker.store.held_calls import audit_record
from acts_celery.worker.store.keys import Keys, active_runs, due_runs
from acts_celery.worker.store.run_writer import RunWriter, TakenOver

from .backend import Backend

PREFIX = "written"
"""The prefix of these runs: no worker is to see half of one that is so old."""
NOW = 1_790_000_000_000
CALLS = [{"_tool": "echo", "value": "†state.n", "_outputPath": "†state.m"}]


class StallingWriter(RunWriter):
    """Lets something happen before each part that it sends."""

    def __init__(
        self, backend: Backend, before: Callable[[int], object], *, times: int = 1, prefix: str = PREFIX
    ) -> None:
        super().__init__(backend.redis, backend.settings.model_copy(update={"key_prefix": prefix}))
        self._before = before
        self._times = times
        self.parts = 0
        self.words: list[list[int]] = []
        """Of each part the words of each of its commands."""

    def _send(self, keys: Keys, who: str, number: int, part: Sequence[Sequence[str | bytes]]) -> bool:
        if number >= 0:
            self.parts += 1
            self.words.append(list(map(len, part)))
            self._before(number)
        answers = [super(StallingWriter, self)._send(keys, who, number, part) for _ in range(self._times)]
        return all(answers)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acts_celery.worker.limits.VALUES_A_COMMAND", 2)
    monkeypatch.setattr("acts_celery.worker.limits.PART_WORDS", 1)


def plan(backend: Backend) -> Plan:
    context = [{"type": "state", "_instance": f"i{number}", "n": number} for number in range(5)]
    return backend.client.check({"context": [{"type": "plan", "calls": CALLS}, *context]})


def keys(_: Backend, run: str) -> Keys:
    return Keys(PREFIX, run)


def written(backend: Backend, names: Keys) -> dict[str, Any]:
    """What lies in each key of a run, but who has written it, and whether the run is listed."""
    state: dict[bytes, bytes] = cast(Any, backend.redis.hgetall(names.state))
    state.pop(b"writer", None)
    others: dict[str, Any] = {name: backend.redis.dump(name) for name in names.all if name != names.state}
    found = {name.replace(names.run, "run"): value for name, value in others.items() if value is not None}
    listed = [backend.redis.zscore(of(names.prefix), names.run) is not None for of in (active_runs, due_runs)]
    return {**found, "state": state, "listed": listed}


def write(backend: Backend, writer: RunWriter, names: Keys) -> None:
    writer.write(plan(backend), names.run, NOW, audit_record(backend.settings, "submitted"))


def reference(backend: Backend) -> dict[str, Any]:
    names = keys(backend, "plainly-written")
    write(backend, StallingWriter(backend, lambda number: None), names)
    found = written(backend, names)
    backend.redis.unlink(*names.all)
    return found


def test_a_writer_that_stalls_anywhere_leaves_the_run_of_the_one_that_took_over_as_it_is(backend: Backend) -> None:
    expected = reference(backend)
    counting = StallingWriter(backend, lambda number: None)
    write(backend, counting, keys(backend, "counted"))
    assert counting.parts > 5
    for stalled_at in range(counting.parts):
        names = keys(backend, f"taken-over-{stalled_at}")

        def take_over(number: int, at: int = stalled_at, names: Keys = names) -> None:
            if number == at:
                write(backend, StallingWriter(backend, lambda number: None), names)

        with pytest.raises(TakenOver, match=names.run):
            write(backend, StallingWriter(backend, take_over), names)
        assert written(backend, names) == expected, stalled_at


def test_a_part_is_bounded_by_the_words_of_its_commands_and_not_by_their_number(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acts_celery.worker.limits.VALUES_A_COMMAND", 50)
    monkeypatch.setattr("acts_celery.worker.limits.PART_WORDS", 40)
    writer = StallingWriter(backend, lambda number: None)
    write(backend, writer, keys(backend, "bounded"))
    assert max(map(len, writer.words)) > 1, "short commands share a part"
    assert all(sum(part[:-1]) < 40 for part in writer.words)


def test_a_part_that_is_sent_again_is_written_once(backend: Backend) -> None:
    names = keys(backend, "sent-twice")
    write(backend, StallingWriter(backend, lambda number: None, times=2), names)
    assert written(backend, names) == reference(backend)


def test_a_writer_that_fails_leaves_nothing_and_deletes_nothing_of_another(backend: Backend) -> None:
    names, expected = keys(backend, "failed"), reference(backend)

    def fail(number: int) -> None:
        if number == 2:
            raise Unreachable("gone")

    with pytest.raises(Unreachable):
        write(backend, StallingWriter(backend, fail), names)
    assert written(backend, names) == {"state": {}, "listed": [False, False]}

    def fail_late(number: int) -> None:
        if number == 2:
            write(backend, StallingWriter(backend, lambda number: None), names)
            raise Unreachable("gone")

    with pytest.raises(Unreachable):
        write(backend, StallingWriter(backend, fail_late), names)
    assert written(backend, names) == expected
