"""While a client makes much at once, Python searches for garbage seldom; then as often as before."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from threading import Event, Thread

import pytest

from acts_celery.worker.client.submitting import collecting_seldom

USUAL = 700


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(USUAL, *before[1:])
    yield
    gc.set_threshold(*before)


def threshold() -> int:
    return gc.get_threshold()[0]


def test_it_is_seldom_within_and_as_before_afterwards() -> None:
    with collecting_seldom():
        assert threshold() > USUAL
    assert threshold() == USUAL


def test_it_is_as_before_after_an_error() -> None:
    with pytest.raises(LookupError), collecting_seldom():
        raise LookupError
    assert threshold() == USUAL


@pytest.mark.parametrize("own", [0, 1_000_000])
def test_what_a_process_has_set_to_search_as_seldom_or_never_stays(own: int) -> None:
    gc.set_threshold(own)
    with collecting_seldom():
        assert threshold() == own
    assert threshold() == own


def test_what_a_process_sets_meanwhile_stays() -> None:
    with collecting_seldom():
        gc.set_threshold(5_000)
    assert threshold() == 5_000


def test_it_is_as_before_when_the_last_of_several_threads_is_done() -> None:
    is_in, may_go = Event(), Event()

    def other() -> None:
        with collecting_seldom():
            is_in.set()
            may_go.wait()

    thread = Thread(target=other)
    with collecting_seldom():
        thread.start()
        is_in.wait()
    assert threshold() > USUAL
    may_go.set()
    thread.join()
    assert threshold() == USUAL
