"""The page for everybody: keyboard, screen reader, phone, light and dark, less motion."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from acts_celery import Run
from tests.acceptance.command import ROOT

from .chromium import DESK, PHONE, Window, window
from .runs import open_view

pytestmark = pytest.mark.chromium

ASSETS: Final = ROOT / "worker" / "ui" / "assets"

SHOP_VIEWS: Final = ((), ("call", "1", "failed"), ("instances",), ("instance", "order-3"), ("value", "†state.price"))
View = tuple[Any, ...]
"""The address of a file, its run, and the parts of a view's address."""
LEAST_CONTRAST: Final = 4.5
ON_PAGE: Final = (*("ink", "quiet", "link", "done", "failed", "held", "running", "waiting", "sent"),)
"""What is written on the page, and on its panels."""


@pytest.fixture(scope="module")
def views(shop: Run, shop_file: str, loop: Run, loop_file: str, held_file: tuple[Run, str]) -> list[View]:
    """Views of a run that failed, of a loop, and of one that waits for a person."""
    held, file = held_file
    return [
        *((shop_file, shop, *parts) for parts in SHOP_VIEWS),
        (loop_file, loop, "conversation"),
        (file, held, "held"),
        (file, held, "audit"),
    ]


@pytest.mark.parametrize(
    ("size", "theme"),
    [
        pytest.param(DESK, "dark", id="desk-dark"),
        pytest.param(PHONE, "light", id="phone-light"),
        pytest.param(DESK, "light", id="desk-light", marks=pytest.mark.nightly),
        pytest.param(PHONE, "dark", id="phone-dark", marks=pytest.mark.nightly),
    ],
)
def test_axe_finds_nothing_in_any_view_and_no_view_is_wider_than_its_window(
    browser: Browser, views: list[View], size: tuple[int, int], theme: str
) -> None:
    with window(browser, size, theme, reduced_motion="reduce") as opened:
        for file, run, *parts in views:
            open_view(opened, file, run, *parts)
            opened.open_all()
            found: Any = Axe().run(opened.page).response["violations"]
            assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == [], parts
            wide = opened.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, parts
        assert opened.complaints == []


def themes() -> Iterator[tuple[str, dict[str, str]]]:
    """The colours of the style sheet, by theme."""
    css = (ASSETS / "page.css").read_text(encoding="utf-8")
    found = re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", css)
    yield "light", {name: light for name, light, _ in found}
    yield "dark", {name: dark for name, _, dark in found}


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_every_colour_of_text_can_be_read_on_every_ground_in_both_themes() -> None:
    grounds = ("page", "panel", "mark", "failed-panel")
    low = [
        (scheme, text, ground)
        for scheme, colours in themes()
        for text, ground in [*((text, ground) for text in ON_PAGE for ground in grounds), ("on-accent", "accent")]
        if contrast(colours[text], colours[ground]) < LEAST_CONTRAST
    ]
    assert low == []


def test_the_plan_is_gone_through_with_arrows_and_opened_with_enter(desk: Window, shop: Run, shop_file: str) -> None:
    open_view(desk, shop_file, shop)
    page = desk.page
    calls = page.locator("#map [data-call][tabindex='0']")
    expect(calls).to_have_count(1)  # one stop for the Tab key, whatever the number of calls
    calls.focus()
    for key, call in (("ArrowDown", "2"), ("ArrowLeft", "1"), ("ArrowDown", "3"), ("End", "4"), ("Home", "0")):
        page.keyboard.press(key)
        expect(page.locator("#map [data-call]:focus")).to_have_attribute("data-call", call)
    page.keyboard.press("Enter")
    desk.heading("Call 0: readOrder")
    expect(page.locator("#detail h2")).to_be_focused()
    expect(page).to_have_title(re.compile("^Call 0 readOrder"))


def test_the_whole_way_to_the_way_to_mend_it_needs_no_pointer(desk: Window, shop: Run, shop_file: str) -> None:
    open_view(desk, shop_file, shop)
    page = desk.page
    page.locator("#map [data-call='1'][tabindex]").focus()
    page.keyboard.press("Enter")
    desk.heading("Call 1: price")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "order-8":
            break
    page.keyboard.press("Enter")
    desk.heading("Instance order-8")
    while page.evaluate("document.activeElement.textContent") != "Copy":
        page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(page.locator("#news")).to_have_text("Copied")


def test_a_question_mark_shows_the_keys_and_each_does_what_it_says(desk: Window, shop: Run, shop_file: str) -> None:
    open_view(desk, shop_file, shop)
    page = desk.page
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("the instances")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("i")
    desk.heading("Instances")
    page.keyboard.press("h")
    desk.heading("What waits for a person")
    page.keyboard.press("p")
    desk.heading("The run")


def test_the_theme_is_the_systems_until_one_is_chosen_and_is_kept(browser: Browser, shop: Run, shop_file: str) -> None:
    with window(browser, theme="dark") as opened:
        open_view(opened, shop_file, shop)
        ground = "getComputedStyle(document.documentElement).backgroundColor"
        seen = [opened.page.evaluate(ground)]
        button = opened.page.get_by_role("button", name="Theme")
        for _ in range(2):
            button.click()
            seen.append(opened.page.evaluate(ground))
        expect(button).to_have_text("Theme: dark")
        assert [one != other for one, other in pairwise(seen)] == [True, True]
        assert seen[0] == seen[2]
        opened.page.emulate_media(color_scheme="light")
        opened.page.reload()
        assert opened.page.evaluate(ground) == seen[2]


def test_nothing_moves_for_those_who_want_less_motion(browser: Browser, shop: Run, shop_file: str) -> None:
    moves = """() => [...document.querySelectorAll('*')].filter((one) => {
        const style = getComputedStyle(one);
        return style.animationName !== 'none' || style.transitionDuration.split(', ').some((time) => time !== '0s');
    }).length"""
    with window(browser, reduced_motion="reduce") as opened:
        open_view(opened, shop_file, shop)
        opened.page.locator("#main").evaluate("(main) => main.setAttribute('aria-busy', 'true')")
        assert opened.page.evaluate(moves) == 0
        opened.page.emulate_media(reduced_motion="no-preference")
        assert opened.page.evaluate(moves) == 1  # so the question finds what moves
