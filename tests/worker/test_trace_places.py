"""Where runs and calls stand in a trace: the header of W3C Trace Context, and ids that follow from run and call."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery.protocol import Limits
from acts_celery.worker.broker.attempts import Attempt, CallId, TracePlace, call_span, place_of_run
from acts_celery.worker.broker.messages import ActivityCall, pack_message, unpack_activity_call
from acts_celery.worker.errors import MalformedMessage

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("header", "is_sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like", True),
        (f"cc-{TRACE}-{SPAN}-01", True),
    ],
)
def test_a_traceparent_is_read(header: str, is_sampled: bool) -> None:
    assert TracePlace.read_header(header) == TracePlace(TRACE, SPAN, is_sampled)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-1",
        f"cc-{TRACE}-{SPAN}-01.what",
        f"00-{TRACE}-{SPAN}-01\n",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{'٣' * 32}-{SPAN}-01",
    ],
)
def test_what_is_none_is_not(header: str) -> None:
    assert TracePlace.read_header(header) is None


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=8, max_size=8), st.sampled_from([None, True, False]))
def test_a_place_travels_as_it_is(trace: bytes, span: bytes, is_sampled: bool | None) -> None:
    place = TracePlace(trace.hex(), span.hex(), is_sampled)
    assert TracePlace.unpack(place.pack()) == place
    if any(trace) and any(span):
        read = TracePlace.read_header(place.header)
        assert read == TracePlace(place.trace, place.span, is_sampled is not False)


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20), st.integers(0, 99), st.integers(0, 9))
def test_each_run_call_and_repetition_has_a_span_of_its_own(run: str, lane: str, index: int, again: int) -> None:
    member = CallId(run, lane, index).member
    spans = {place_of_run(run).span, call_span(run, member, again), call_span(run, member, again + 1)}
    spans.add(call_span(run, CallId(run, None, index).member, again))
    assert len(spans) == 4
    assert all(re.fullmatch("[0-9a-f]{16}", span) for span in spans)
    assert call_span(run, member, again) == call_span(run, member, again)


def test_an_attempt_has_the_span_of_its_call_in_the_trace_of_its_run() -> None:
    id_ = CallId("r", "①", 3)
    above = TracePlace(TRACE, SPAN, is_sampled=False)
    under = Attempt(id_, trace=place_of_run("r", above).pack())
    assert under.place.header == f"00-{TRACE}-{call_span('r', id_.member)}-00"
    assert Attempt(id_, again=1).place == place_of_run("r").at(call_span("r", id_.member, 1))


@pytest.mark.parametrize("trace", ["x", f"{TRACE}-{SPAN}-02", f"{TRACE}-{SPAN}-01\n", f"{TRACE}-{SPAN}"])
def test_a_message_with_a_place_that_is_none_is_refused(trace: str) -> None:
    good = ActivityCall(Attempt(CallId("r", None, 0), trace=f"{TRACE}-{SPAN}-01"), "a", {}, {}, {})
    assert unpack_activity_call(pack_message(good), Limits()) == good
    bad = ActivityCall(Attempt(CallId("r", None, 0), trace=trace), "a", {}, {}, {})
    with pytest.raises(MalformedMessage):
        unpack_activity_call(pack_message(bad), Limits())
