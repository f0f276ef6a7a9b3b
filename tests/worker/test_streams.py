"""Reading the log of a run and those of its child runs at once, without a server."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery.worker.client import progress as streams
from acts_celery.worker.client.progress import Streams, read_streams
from acts_celery.worker.store.keys import Keys

OWN = Keys("acts", "top")
Log = list[tuple[str, dict[bytes, bytes]]]


def entry(number: int, **fields: bytes) -> tuple[str, dict[bytes, bytes]]:
    return f"{number}-0", {name.encode(): value for name, value in fields.items()}


def log_of(children: list[str], ends: bool = True) -> Log:
    """A log that tells of child runs, and of an end."""
    told = [entry(2 + at, l=b"", p=b"0-0", c=b"0", child=name.encode()) for at, name in enumerate(children)]
    return [entry(1, status=b"running"), *told, *([entry(99, status=b"completed")] if ends else [])]


def read(logs: dict[str, Log], seen: dict[str, str], count: int) -> list[Any]:
    """What XREAD would answer."""
    found = []
    for name, after in seen.items():
        rest = [each for each in logs.get(name, []) if int(each[0][:-2]) > int(after[:-2])][:count]
        if rest:
            found.append([name.encode(), [(id_.encode(), fields) for id_, fields in rest]])
    return found


trees = st.recursive(st.just(()), lambda below: st.lists(below, max_size=3).map(tuple), max_leaves=12)


def logs_of(tree: Any, name: str, logs: dict[str, Log]) -> dict[str, Log]:
    names = [f"{name}.{at}" for at in range(len(tree))]
    logs[Keys("acts", name).log] = log_of(names)
    for below, child in zip(tree, names, strict=True):
        logs_of(below, child, logs)
    return logs


@given(trees, st.integers(1, 4), st.booleans(), st.integers(1, 5))
def test_each_entry_of_all_runs_is_given_once_and_in_the_order_of_its_run(
    tree: Any, count: int, is_cluster: bool, most: int
) -> None:
    logs = logs_of(tree, "top", {})
    before, streams._MOST = streams._MOST, most + 1  # type: ignore[misc]  # of one law
    try:
        reading = Streams(OWN, OWN.log, "0-0", has_children=True, is_cluster=is_cluster)
        given: dict[str | None, list[str]] = {}
        while any(found := [read_streams(read(logs, seen, count)) for seen, _ in reading.readings(None)]):
            for page in found:
                assert len(page) <= most + 1
                for run, one in reading.take(page):
                    given.setdefault(run, []).append(one.id)
    finally:
        streams._MOST = before  # type: ignore[misc]  # as above
    expected = {name: [id_ for id_, _ in log] for name, log in logs.items()}
    found_in = {Keys("acts", run or "top").log: ids for run, ids in given.items()}
    assert found_in == expected


def test_without_children_nothing_else_is_read() -> None:
    reading = Streams(OWN, OWN.log, "0-0")
    assert [run for run, _ in reading.take(read_streams(read({OWN.log: log_of(["a"])}, {OWN.log: "0-0"}, 9)))] == [
        None
    ] * 3
    assert list(reading.readings(7)) == [({OWN.log: "99-0"}, 7)]


def test_on_a_cluster_streams_are_read_one_by_one_and_the_runs_own_is_waited_at() -> None:
    reading = Streams(OWN, OWN.log, "0-0", has_children=True, is_cluster=True)
    assert list(reading.readings(5_000)) == [({OWN.log: "0-0"}, 5_000)]
    list(reading.take(read_streams(read({OWN.log: log_of(["a"], ends=False)}, {OWN.log: "0-0"}, 9))))
    child = Keys("acts", "a").log
    assert list(reading.readings(5_000)) == [({OWN.log: "2-0"}, None), ({child: "0-0"}, None), ({OWN.log: "2-0"}, 500)]
    reading.leave_own()
    assert list(reading.readings(None)) == [({child: "0-0"}, None)]
    assert not reading.is_over


@pytest.mark.parametrize("after", ["", "garbage", "$", "+", "5-x", "1-1-1", "-1", "9" * 20, "1\n", "é"])
def test_what_is_no_id_of_an_event_is_refused(after: str) -> None:
    with pytest.raises(ValueError, match="is no id of an event"):
        Streams(OWN, OWN.log, after)
