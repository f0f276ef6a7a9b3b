"""One Chromium for the whole folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from .chromium import Window, launched, window


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with launched() as running:
        yield running


@pytest.fixture
def desk(browser: Browser) -> Iterator[Window]:
    """A wide window."""
    with window(browser) as opened:
        yield opened
