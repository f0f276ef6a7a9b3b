"""Every row of ours runs and gives right results, at a size that says nothing about time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from redis import Redis

from tests.benchmarks import engine, rows
from tests.benchmarks.contests import Bench, Contest, Goal, Line
from tests.benchmarks.jobs import rate
from tests.benchmarks.report import lines_of, surroundings
from tests.benchmarks.sides import OURS, Running, Side, SideFailed, running
from tests.benchmarks.surroundings import server
from tests.benchmarks.wire import Wire
from tests.few import few

BROKEN = replace(OURS, name="broken", worker=("acts", "worker", "--no-such-option"))


class OneForAll(Bench):
    """Our side is started once and serves every row that starts it as it is: a start takes longer than a row."""

    def __init__(self, ours: Running) -> None:
        super().__init__(rounds=1, has_peers=False, is_full=True, most=2, say=lambda text: None)
        self.ours = ours

    @contextmanager
    def warm(self, side: Side, job: str, size: int, *, delay_seconds: float = 0.0) -> Iterator[Running]:
        if side == OURS and not delay_seconds:
            yield self.ours
        else:
            with super().warm(side, job, size, delay_seconds=delay_seconds) as up:
                yield up


@pytest.fixture(scope="module")
def ours() -> Iterator[Running]:
    with running(OURS) as up:
        yield up


@pytest.fixture
def small(ours: Running) -> Bench:
    return OneForAll(ours)


@pytest.mark.parametrize("name", few(engine.NAMES, 2))
def test_a_row_runs_without_peers(small: Bench, name: str) -> None:
    (row,) = engine.measure(small, [name])
    assert [line.failure for line in row.lines] == [""] * len(row.lines)
    assert all(line.ours is not None for line in row.lines)
    assert any(row.title in line for line in lines_of(surroundings("a command"), [row], 1))


def test_a_peer_that_fails_says_why_and_our_figures_stay(small: Bench) -> None:
    small.has_peers = True
    (line,) = Contest("one_call", 2, [(BROKEN, "per second", Goal(1))])(small)
    assert line.ours is not None
    assert (line.theirs, line.is_reached) == (None, False)
    assert "not ready" in line.failure


def test_a_row_in_which_we_fail_says_why_and_the_next_is_measured(
    small: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(bench: Bench) -> Iterator[Line]:
        raise SideFailed("no luck")

    failing = replace(rows.ROWS[0], name="failing", measure=fail)
    monkeypatch.setattr(engine, "ROWS", (failing, replace(failing, measure=lambda bench: iter([Line("", "s", 1.0)]))))
    first, second = engine.measure(small)
    assert [line.failure for line in (*first.lines, *second.lines)] == ["SideFailed: no luck", ""]


def test_a_job_that_does_not_exist_is_an_error_and_the_client_lives_on(ours: Running) -> None:
    with pytest.raises(SideFailed, match="nothing"):
        ours.do("nothing", 1)
    assert ours.do("one_call", 1)["per second"] > 0


def test_a_figure_counts_only_with_right_results() -> None:
    with pytest.raises(ValueError, match="wrong results"):
        rate(1, lambda: [1], [2])


@pytest.mark.parametrize(
    ("line", "is_reached"),
    [
        (Line("", "/s", 300, "peer", 100, Goal(3)), True),
        (Line("", "/s", 299, "peer", 100, Goal(3)), False),
        (Line("", "ms", 50, "peer", 100, Goal(2)), True),
        (Line("", "/s", 100, "peer", 100, Goal(1, is_strict=True)), False),
        (Line("", "bytes", 600, goal=Goal(600, is_most=True)), True),
        (Line("", "bytes", 601, goal=Goal(600, is_most=True)), False),
        (Line("", "/s", 100), None),
    ],
)
def test_a_goal_is_reached_by_the_ratio_or_without_a_peer_by_the_figure(line: Line, is_reached: bool | None) -> None:
    assert line.is_reached is is_reached


def test_a_wire_delays_and_counts() -> None:
    with server() as port, Wire(port, delay_seconds=0.02) as wire, Redis(port=wire.port) as redis:
        redis.ping()
        sent, received = wire.sent_bytes, wire.received_bytes
        start = time.monotonic()
        assert redis.echo("x" * 200_000) == b"x" * 200_000
        assert time.monotonic() - start >= 0.02
        assert 200_000 <= wire.sent_bytes - sent < 200_100
        assert 200_000 <= wire.received_bytes - received < 200_100
