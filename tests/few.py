"""Parameters of which the first are tried before a change lands, and the others at night."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def few(values: Iterable[Any], count: int) -> list[Any]:
    """`values` as parameters of a test; those behind the first `count` only in `make nightly`."""
    return [pytest.param(value, marks=[pytest.mark.nightly] * (number >= count)) for number, value in enumerate(values)]
