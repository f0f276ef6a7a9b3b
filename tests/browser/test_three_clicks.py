"""From a run of which one of 5,000 instances has failed to the call, its input, the reason and the way to mend it."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from acts_celery import Run
from tests.ui.sites import CONTROLLER, Site
from tests.worker.backend import Backend

from .chromium import Window, window
from .runs import PRICE, file_of, open_view, shop_run

pytestmark = pytest.mark.chromium

INSTANCES = 5_000
WRONG = 3_117


@pytest.fixture(scope="module")
def failed(backend: Backend) -> Run:
    return shop_run(backend, INSTANCES, [WRONG], [PRICE])


def click_to_the_failure(opened: Window) -> None:
    """Two clicks: on the count at the call, on the instance."""
    page = opened.page
    count = page.locator("#map .count.failed")
    expect(count).to_have_text("1 failed")
    count.click()
    opened.heading("Call 0: price")
    expect(page.locator("#detail")).to_contain_text("an order of -4 pieces of wheel has no price")
    page.get_by_role("list", name="Call 0 price, failed").get_by_role("link", name=f"order-{WRONG}").click()
    opened.heading(f"Instance order-{WRONG}")


def shows_the_reason(opened: Window) -> None:
    failure = opened.page.get_by_role("region", name="Call 0 price has failed")
    expect(failure).to_contain_text("ValueError: an order of -4 pieces of wheel has no price")
    expect(failure).to_contain_text("pieces: -4")
    expect(failure).to_contain_text("part: wheel")


def test_the_file_leads_there_in_two_clicks_and_the_third_copies_the_command(
    desk: Window, backend: Backend, failed: Run, folder: Path
) -> None:
    open_view(desk, file_of(backend, failed, folder), failed)
    click_to_the_failure(desk)
    shows_the_reason(desk)
    command = f"acts retry {failed.id} --call 0 --instance order-{WRONG}"
    desk.page.get_by_role("button", name=f"Copy: {command}", exact=True).click()
    expect(desk.page.locator("#news")).to_have_text("Copied")
    expect(desk.page.locator(".failure .command code")).to_have_text([command, f"{command} --skip VALUE"])


def test_the_live_page_leads_there_in_two_clicks_and_the_third_shows_what_mending_it_does(
    browser: Browser, site: Site, failed: Run
) -> None:
    with window(browser) as desk:
        desk.page.goto(f"{site.url}/#token={CONTROLLER}")
        desk.heading("Runs")
        open_view(desk, f"{site.url}/", failed)
        click_to_the_failure(desk)
        shows_the_reason(desk)
        desk.page.get_by_role("button", name="Do it again …").click()
        dialog = desk.page.get_by_role("dialog")
        expect(dialog).to_contain_text(f"1 call done again: 0:order-{WRONG}")
        dialog.get_by_role("button", name="Do it again").click()
        expect(dialog).to_have_count(0)
        assert any(entry.audit is not None and entry.audit.did == "retried" for entry in failed.log(audit=True))
        assert desk.complaints == []
