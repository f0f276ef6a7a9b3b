"""Laws of holdings (SPEC R3.6, R6.1): which places each of many instances holds is what looking up each place says."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from acts_celery.protocol import Reference
from acts_celery.protocol.plan.places import Holdings
from acts_celery.protocol.state.fold import Fold

from .laws import PLACES, folded, law
from .strategies import log_messages, logs, small_paths

places = st.lists(
    st.sampled_from(PLACES) | st.builds(Reference, st.sampled_from(["state", "data"]), small_paths), max_size=8
)


@law
@given(places, logs, st.lists(st.lists(log_messages, max_size=4), max_size=3), st.sampled_from([0, 32]))
def test_an_instance_holds_what_looking_up_each_place_finds(
    asked: list[Reference], all_see: list[Any], own: list[list[Any]], most_copied: int
) -> None:
    with patch(
        "acts_celery.protocol.state.kinds._MOST_COPIED", most_copied
    ):  # with 0, objects are overlaid however small
        shared = folded(all_see)
        holdings = Holdings(asked, shared)
        for fold in [shared, Fold(shared), *(folded(messages, shared) for messages in own)]:
            assert holdings.of(fold) == {place for place in asked if fold.exists(place)}
