"""Chromium as the tests drive it: the one that Debian packages, found on PATH."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
REMEDY: Final = "There is no Chromium on PATH. On Debian or Ubuntu: apt install chromium"
PHONE: Final = (320, 640)
DESK: Final = (1280, 900)
OPEN_ALL: Final = """() => {
    for (const one of document.querySelectorAll('details')) one.open = true;
    for (const one of document.querySelectorAll('.toggle[aria-expanded=false]')) one.click();
}"""
_PATIENCE_MS: Final = 30_000

expect.set_options(timeout=_PATIENCE_MS)


def program() -> str:
    """The path of Chromium; the test fails where there is none."""
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None:
        pytest.fail(REMEDY, pytrace=False)
    return found


@contextmanager
def launched() -> Iterator[Browser]:
    """A Chromium without windows. It has no sandbox: containers, and root, do not have what that needs."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Window:
    """A page that is open, and what it complained of."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.page: Page = context.new_page()
        self.page.set_default_timeout(_PATIENCE_MS)
        self.complaints: list[str] = []
        """Errors, and what the content security policy has refused."""
        self.asked: list[str] = []
        """Each address that the page has asked for."""
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._hear)
        self.page.on("request", lambda request: self.asked.append(request.url))

    def _hear(self, message: Any) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def heading(self, text: str) -> None:
        """Wait until a view with this heading is shown."""
        self.page.locator("#detail h2", has_text=text).wait_for()

    def open_all(self) -> None:
        """Open whatever is folded in the view."""
        self.page.evaluate(OPEN_ALL)

    def part(self, title: str) -> Locator:
        """The part of the view under a heading."""
        return self.page.locator("section.part", has=self.page.get_by_role("heading", name=title))


@contextmanager
def window(browser: Browser, size: tuple[int, int] = DESK, theme: str = "light", **options: Any) -> Iterator[Window]:
    """An empty page of a size, in a context of its own."""
    chosen: Any = theme
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=chosen, timezone_id="UTC", locale="en", **options
    )
    try:
        yield Window(context)
    finally:
        context.close()
