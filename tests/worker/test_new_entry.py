"""What a new kind of entry costs: its type, how it is read, and what it changes in a lane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from acts_celery.protocol.state.fold import Fold
from acts_celery.worker.broker.messages import pack
from acts_celery.worker.store import entries
from acts_celery.worker.store import state as lane_state
from acts_celery.worker.store.entries import read_entry
from acts_celery.worker.store.state import LaneState

ENTRY = {b"l": b"", b"p": b"0-0", b"c": b"2", b"note": b"it is late"}
ENDED = {b"l": b"", b"p": b"1-0", b"c": b"2", b"s": b"done", b"m": pack({"type": "text", "message": "there"})}


@dataclass(frozen=True, slots=True)
class Noted:
    """A call records a note."""

    call: int
    text: str


def lane_of(*read: Any) -> LaneState:
    lane = LaneState(None, Fold())
    for entry in read:
        lane.apply(entry)
    return lane


def test_a_kind_of_entry_takes_one_type_one_line_that_reads_it_and_one_that_takes_it_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes: dict[int, str] = {}
    reads: Any = {b"note": lambda said: Noted(said.call, said.value.decode())}
    takes: Any = {Noted: lambda lane, entry, event: notes.update({event.call: event.text})}
    monkeypatch.setattr(entries, "_EVENTS", {**entries._EVENTS, **reads})
    monkeypatch.setattr(lane_state, "_CHANGES", {**lane_state._CHANGES, **takes})
    entry = read_entry(b"1-0", ENTRY)
    assert entry.event == Noted(2, "it is late")  # type: ignore[comparison-overlap]  # none of the product's
    assert entry.call == 2
    assert lane_of(entry, read_entry(b"2-0", ENDED)).end(2) is not None
    assert notes == {2: "it is late"}


def test_a_kind_of_entry_that_is_not_known_is_passed_over() -> None:
    entry = read_entry(b"1-0", ENTRY)
    assert entry.event is None
    lane = lane_of(entry, read_entry(b"2-0", ENDED))
    assert list(lane.ended) == [2]
    assert lane.last == "2-0"
