"""The page folds a log to the same state as the core does, at every moment of it (SPEC R3)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Browser, Page

from acts_celery.protocol import Conflict, Reference
from acts_celery.protocol.paths import MISSING
from acts_celery.protocol.references import parse_output_path
from acts_celery.protocol.state.fold import Fold
from tests.protocol.laws import PLACES, law
from tests.protocol.strategies import expressions, log_messages, references

pytestmark = pytest.mark.chromium

SCRIPT: Final = Path(__file__).resolve().parents[2] / "worker" / "page" / "assets" / "fold.js"
AT_EVERY_MOMENT: Final = """([entries, instance, places]) => entries.map((_, last) => {
    const kinds = fold(entries.slice(0, last + 1), instance);
    return [
        snapshot(kinds),
        [...kinds.values()].flatMap((kind) => kind.conflicts.map((conflict) => conflict.sentence)).sort(),
        places.map((place) => valueAt(kinds, placeOf(place))),
    ];
})"""


@pytest.fixture(scope="module")
def folding(browser: Browser) -> Page:
    """A page that holds nothing but the code that folds."""
    page = browser.new_page()
    page.add_script_tag(path=SCRIPT)
    return page


_calls = st.one_of(st.none(), st.integers(0, 2))
_arrivals = st.one_of(
    st.tuples(st.sampled_from([None, "①"]), _calls, log_messages),
    st.tuples(st.sampled_from([None, "①"]), _calls, log_messages),
    st.tuples(st.sampled_from([None, "①"]), _calls, log_messages),
    st.tuples(st.sampled_from([None, "①"]), st.frozensets(st.integers(0, 2), min_size=1), st.none()),
)
"""A message in a lane that a call wrote, or nobody; or that a retry withdraws what some calls have written."""


def entry(number: int, instance: str | None, call: Any, message: Any) -> dict[str, Any]:
    """An entry as the page is given it."""
    if message is None:
        return {"id": f"{number}-0", "instance": instance, "call": None, "message": None, "undone": sorted(call)}
    return {"id": f"{number}-0", "instance": instance, "call": call, "message": message}


@law
@given(arrivals=st.lists(_arrivals, max_size=8), instance=st.sampled_from([None, "①"]))
def test_the_page_folds_as_the_core_does_at_every_moment(
    folding: Page, arrivals: Sequence[tuple[str | None, Any, Any]], instance: str | None
) -> None:
    entries = [entry(number, *arrival) for number, arrival in enumerate(arrivals)]
    shared = Fold()
    reader, expected = shared if instance is None else Fold(shared), list[str]()
    for number, (lane, call, message) in enumerate(arrivals):
        fold = shared if lane is None else reader
        if lane == instance or lane is None:
            if message is None:
                fold.withdraw(call)
            else:
                fold.append(message, f"message {number}-0", call)
        state = [reader.snapshot(), sorted(map(str, reader.conflicts())), [_read(reader, at) for at in PLACES]]
        expected.append(_canonical(state))  # what was read may be changed when the fold goes on
    found = folding.evaluate(AT_EVERY_MOMENT, [entries, instance, [str(place) for place in PLACES]])
    assert list(map(_canonical, found)) == expected


def _read(fold: Fold, place: Reference) -> Any:
    try:
        value = fold.value(place)
    except Conflict as conflict:
        return {"conflict": str(conflict)}
    return {} if value is MISSING else {"value": value}


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@law
@given(reference=references)
def test_a_place_is_read_and_printed_as_the_core_does(folding: Page, reference: Reference) -> None:
    printed = folding.evaluate("(text) => [placeOf(text), printed(placeOf(text))]", str(reference))
    path = [{"key": str(segment), "index": isinstance(segment, int)} for segment in reference.path]
    assert printed == [{"kind": reference.kind, "path": path}, str(reference)]


@law
@given(expression=expressions)
def test_the_places_of_an_output_path_are_those_that_the_core_finds(folding: Page, expression: Any) -> None:
    text = str(expression)
    found = folding.evaluate("(text) => outputPlaces(text).map(printed)", text)
    assert found == [str(place) for place in parse_output_path(text).references]


def test_a_number_that_is_too_large_for_javascript_is_shown_as_it_is_written(folding: Page) -> None:
    text = "[9223372036854775807, 1e3, -9007199254740993, 0.5, 12]"
    written = "parsed(text).map((one) => (one instanceof Exact ? one.source : String(one)))"
    found = folding.evaluate(f"(text) => {written}", text)
    assert found == ["9223372036854775807", "1000", "-9007199254740993", "0.5", "12"]


def test_a_key_that_means_something_in_javascript_is_a_key(folding: Page) -> None:
    message = '{"type": "state", "data": {"__proto__": {"polluted": 1}, "constructor": {"a": 1}}}'
    entries = f'[{{"id": "1-0", "instance": null, "call": null, "message": {message}}}]'
    twice = "fold([...parsed(text), ...parsed(text)], null)"
    found = folding.evaluate(f"(text) => JSON.stringify([snapshot({twice}), {{}}.polluted ?? null])", entries)
    state = {"state": {"__proto__": {"polluted": 1}, "constructor": {"a": 1}}}
    assert json.loads(found) == [state, None]
