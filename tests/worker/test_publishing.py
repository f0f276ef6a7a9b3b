"""Lanes are published where the broker takes them, and by the workers' sweep where it does not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest

from acts_celery import InfrastructureError
from acts_celery.broker_config import Settings
from acts_celery.worker.broker.consumer import Publisher
from acts_celery.worker.client.dispatcher import publish_lanes


class Unreachable:
    """A broker that takes nothing."""

    def publish(self, tasks: Iterable[Any]) -> None:
        raise InfrastructureError("the broker is away")


def test_who_publishes_lanes_hears_that_the_broker_takes_none_unless_the_sweep_is_to_do_it() -> None:
    publisher = cast(Publisher, Unreachable())
    assert not publish_lanes(publisher, Settings(), "r", [""], has="is submitted")
    with pytest.raises(InfrastructureError, match="away"):
        publish_lanes(publisher, Settings(), "r", [""])
