"""What a worker's log says of a server that is away for a while."""

from __future__ import annotations

import logging

import pytest

from acts_celery.worker.outages import Outage


def test_an_outage_costs_two_lines_however_long_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(logging.getLogger("worker"), "the sweep")
    outage.succeeded()
    for _ in range(2):
        for _ in range(100):
            outage.failed(OSError("no answer"))
        outage.succeeded()
        outage.succeeded()
    failed, again = "the sweep failed and will be tried again until it succeeds: no answer", "the sweep succeeds again"
    assert caplog.messages == [failed, again] * 2
