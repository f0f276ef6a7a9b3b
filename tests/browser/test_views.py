"""Each view of a run, in its file: what it shows, and where it leads."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from acts_celery import Run
from acts_celery.protocol import parse

from .chromium import Window
from .runs import open_view

pytestmark = pytest.mark.chromium


def test_the_plan_shows_each_call_once_with_folded_counts(desk: Window, shop: Run, shop_file: str) -> None:
    open_view(desk, shop_file, shop)
    calls = desk.page.locator("#map [data-call][tabindex]")
    expect(calls).to_have_count(5)
    expect(calls.nth(1)).to_contain_text("price")
    expect(calls.nth(1).locator(".count")).to_have_text(["2 failed", "10 done"])
    expect(desk.page.locator("#top")).to_contain_text("orders")


def test_a_call_groups_its_errors_and_lists_the_instances_of_a_status(desk: Window, shop: Run, shop_file: str) -> None:
    open_view(desk, shop_file, shop, "call", "1")
    errors = desk.part("Errors")
    expect(errors.locator(".row")).to_have_count(1)
    expect(errors).to_contain_text("2 failed")
    rows = desk.page.get_by_role("list", name="Call 1 price").locator("> li")
    expect(rows).to_have_count(12)
    desk.page.locator(".filter-line").get_by_role("link", name="2 failed").click()
    expect(rows).to_have_count(2)
    expect(desk.page).to_have_url(f"{shop_file}#/run/{shop.id}/call/1/failed")


def test_an_instance_shows_its_calls_values_and_what_was_skipped(desk: Window, shop: Run, shop_file: str) -> None:
    open_view(desk, shop_file, shop, "instance", "order-3")
    calls = desk.page.locator(".calls > li")
    expect(calls).to_have_count(5)
    expect(calls.nth(3)).to_contain_text("skipped")
    calls.nth(1).locator("summary").first.click()
    expect(calls.nth(1)).to_contain_text("attempts1")
    expect(calls.nth(1)).to_contain_text("worker")
    values = desk.part("Values now")
    expect(values).to_contain_text("customer of order 3")


def test_the_slider_folds_the_values_of_any_moment(desk: Window, shop: Run, shop_file: str) -> None:
    open_view(desk, shop_file, shop, "instance", "order-2")
    desk.page.get_by_text("Read the log").click()
    slider = desk.page.get_by_role("slider")
    moment = desk.page.locator(".moment")
    expect(moment).to_contain_text("Dear customer of order 2")
    slider.focus()
    desk.page.keyboard.press("Home")
    expect(moment).to_contain_text("There is no value yet.")
    later = desk.page.get_by_role("button", name="Later")
    later.click()
    expect(moment).to_contain_text("wheel")
    expect(moment).not_to_contain_text("customer of order 2")
    expect(desk.page.locator(".told")).to_contain_text("given")
    later.click()
    expect(moment).to_contain_text("customer of order 2")
    expect(desk.page.locator(".told")).to_contain_text("by call 0 readOrder")


def test_a_value_leads_to_who_writes_and_reads_it(desk: Window, shop: Run, shop_file: str) -> None:
    open_view(desk, shop_file, shop, "call", "1")
    desk.page.get_by_role("link", name="†state.price").click()
    desk.heading("Value †state.price")
    writers = desk.part("Who writes it")
    readers = desk.part("Who reads it")
    expect(writers).to_contain_text("1 price")
    expect(readers).to_contain_text("3 writeLetter")
    expect(desk.page.locator("#detail")).to_contain_text("Nothing is at †state.price for all: it is there in instances")


def test_a_value_that_the_file_does_not_hold_is_folded_from_the_log(desk: Window, shop: Run, shop_file: str) -> None:
    open_view(desk, shop_file, shop, "instance", "order-2")
    desk.page.get_by_role("link", name="letter").click()
    desk.heading("Value †data.letter")
    expect(desk.page.locator("#detail .notice")).to_contain_text("This file does not hold this.")
    expect(desk.page.locator(".moment")).to_contain_text("Dear customer of order 2")
    expect(desk.page.locator(".command code").first).to_contain_text(
        f"acts explain {shop.id} '†data.letter' --instance order-2"
    )


def test_a_loop_is_a_conversation(desk: Window, loop: Run, loop_file: str) -> None:
    open_view(desk, loop_file, loop, "conversation")
    first, second = desk.page.locator(".tick").all()
    expect(first).to_contain_text("†state.three")
    expect(first.get_by_role("link", name="0 add")).to_be_visible()
    expect(second).to_contain_text("0. add: done → †state.three")
    expect(second).to_contain_text("output: 7")
    first.get_by_role("link", name="1 add").click()
    desk.heading("Call 1: add")


def test_the_ticks_of_a_loop_are_drawn_one_at_a_time(desk: Window, loop: Run, loop_file: str) -> None:
    open_view(desk, loop_file, loop, "tick", "0")
    expect(desk.page.locator("#map [data-call][tabindex]")).to_have_count(2)


def test_what_is_held_shows_exactly_what_will_run_and_in_a_file_the_commands(
    desk: Window, held_file: tuple[Run, str]
) -> None:
    run, file = held_file
    open_view(desk, file, run, "held")
    card = desk.page.get_by_role("article")
    expect(card).to_contain_text("Ada")
    expect(card).to_contain_text("language")
    expect(card.locator(".command code").first).to_contain_text(f"acts approve {run.id} 0 --shown ")
    expect(card.get_by_role("button", name="Approve as shown")).to_have_count(0)


def test_who_did_what_is_a_link_away(desk: Window, shop: Run, shop_file: str) -> None:
    open_view(desk, shop_file, shop)
    desk.page.get_by_role("link", name="everything, with decisions and amendments").click()
    desk.heading("Who did what, the newest first")
    expect(desk.page.get_by_role("list", name="Who did what").get_by_role("listitem")).to_contain_text("submitted by")


def test_each_view_has_an_address_and_the_back_button_and_a_reload_lead_to_it(
    desk: Window, shop: Run, shop_file: str
) -> None:
    open_view(desk, shop_file, shop)
    desk.page.locator("#map [data-call='2']").first.click()
    desk.heading("Call 2: stock")
    desk.page.get_by_role("link", name="order-7").first.click()
    desk.heading("Instance order-7")
    desk.page.reload()
    desk.heading("Instance order-7")
    desk.page.go_back()
    desk.heading("Call 2: stock")
    desk.page.go_back()
    desk.heading("The run")


def test_what_the_file_lacks_is_said_with_the_remedy(desk: Window, shop: Run, shop_file: str) -> None:
    open_view(desk, shop_file, shop, "instance", "order-99")
    expect(desk.page.get_by_role("alert")).to_contain_text("acts ui shows everything")


def test_the_file_asks_nobody(desk: Window, shop: Run, shop_file: str) -> None:
    for parts in ((), ("call", "1"), ("instance", "order-3"), ("global",), ("instances",), ("held",)):
        open_view(desk, shop_file, shop, *parts)
    assert {address.partition("#")[0] for address in desk.asked if not address.startswith("data:")} == {shop_file}


def test_numbers_and_keys_that_javascript_would_take_otherwise_are_shown_as_they_are(
    desk: Window, shop: Run, shop_file: str
) -> None:
    open_view(desk, shop_file, shop)
    shown = "(text) => line(parsed(text))"
    text = "[9223372036854775807, 1000, -9007199254740993, 0.5, 12]"
    assert desk.page.evaluate(shown, text) == text
    text = '{"__proto__": {"polluted": 1}, "constructor": {"a": 1}}'
    assert desk.page.evaluate(shown, text) == text
    assert desk.page.evaluate("(text) => [tree(parsed(text)).textContent, {}.polluted ?? null]", text) == [
        '▾object of 2 fields__proto__: {"polluted": 1}constructor: {"a": 1}',
        None,
    ]


@pytest.mark.parametrize("path", ['†state.user["a b"].0', '†data["0"]', '†state["x\\"y].z"].w', "†error"])
def test_a_path_is_taken_apart_and_put_together_as_the_core_does(
    desk: Window, shop: Run, shop_file: str, path: str
) -> None:
    open_view(desk, shop_file, shop)
    reference = parse(path).references[0]
    segments = [[str(segment), isinstance(segment, int)] for segment in reference.path]
    together = "([kind, segments]) => segments.reduce((path, [key, is]) => inside(path, key, is), '†' + kind)"
    assert desk.page.evaluate("keysOf", path) == list(reference.key)
    assert desk.page.evaluate(together, [reference.kind, segments]) == str(reference) == path
