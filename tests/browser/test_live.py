"""The live page: its token, what it may do, what it does, and a server, a run or a connection that goes away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Route, expect

from acts_celery import LogEntry, Run
from tests.ui.sites import CONTROLLER, DECIDER, READER, Site
from tests.worker.backend import Backend

from .chromium import Window, window
from .runs import ORDER, held_run, open_view, orders, shop_run

pytestmark = pytest.mark.chromium


@contextmanager
def entered(browser: Browser, site: Site, token: str) -> Iterator[Window]:
    """A window that came by a link with a token."""
    with window(browser) as opened:
        opened.page.goto(f"{site.url}/#token={token}")
        opened.heading("Runs")
        yield opened
        assert opened.complaints == []


def deeds(run: Run) -> dict[str, LogEntry]:
    """Who did what to a run, by what was done."""
    return {entry.audit.did: entry for entry in run.log(audit=True) if entry.audit is not None}


def confirm(opened: Window, button: str) -> Locator:
    """Press a button of the dialog, and wait until it has closed."""
    dialog = opened.page.get_by_role("dialog")
    dialog.get_by_role("button", name=button, exact=True).click()
    expect(dialog).to_have_count(0)
    return dialog


def test_without_a_token_it_asks_for_one_and_a_wrong_one_is_said(browser: Browser, site: Site) -> None:
    with window(browser) as opened:
        opened.page.goto(f"{site.url}/#token=%zz")
        opened.heading("A token is needed")
        opened.page.evaluate("sessionStorage.clear()")
        opened.page.reload()
        opened.heading("A token is needed")
        token = opened.page.get_by_label("Token")
        token.fill("wrong-0123456789")
        opened.page.get_by_role("button", name="Go on").click()
        expect(opened.page.locator("#detail .notice.error")).to_be_visible()
        opened.page.get_by_label("Token").fill(READER)
        opened.page.get_by_role("button", name="Go on").click()
        opened.heading("Runs")
        expect(opened.page.locator("#foot")).to_contain_text("rea may read")


def test_a_token_stands_in_no_address_and_a_reload_keeps_it(browser: Browser, site: Site, shop: Run) -> None:
    with entered(browser, site, READER) as opened:
        open_view(opened, f"{site.url}/", shop, "call", "1")
        opened.page.reload()
        opened.heading("Call 1: price")
        assert [address for address in opened.asked[1:] if READER in address] == []
        assert READER not in opened.page.url


@pytest.mark.parametrize("question", ["", "/plan"])
def test_nothing_is_shown_of_a_run_that_was_left_before_its_answer_has_come(
    browser: Browser, site: Site, shop: Run, backend: Backend, question: str
) -> None:
    late = backend.run([{"_tool": "echo", "value": 1, "_outputPath": "†state.one"}]).run
    with entered(browser, site, READER) as opened:
        held: list[Route] = []
        address = f"{site.url}/api/runs/{late}{question}"
        opened.page.route(address, lambda route: held.append(route))
        go = "run => void (location.hash = `#/run/${run}`)"
        with opened.page.expect_request(address):
            opened.page.evaluate(go, late)
        opened.page.evaluate(go, shop.id)
        opened.heading("The run")
        with opened.page.expect_request_finished():
            held[0].continue_()
        opened.page.unroute(address)
        shown = "async path => (await ask(path), [followed.run, JSON.parse(mapped.key)[0]])"
        assert opened.page.evaluate(shown, f"runs/{late}{question}") == [shop.id, shop.id]


HOLDING_BACK = """async (path) => {
  const [real, waiting] = [window.fetch, []];
  let [count, second] = [0, null];
  const isAskedAgain = new Promise((resolve) => (second = resolve));
  window.fetch = (url, options) => {
    if (!url.endsWith(path)) return real(url, options);
    if ((count += 1) === 2) second();
    return new Promise((answer) => waiting.push(() => answer(real(url, options))));
  };
  for (let news = 0; news < 3; news += 1) {
    refreshBySelf();
    await ask("me");
  }
  const before = count;
  waiting.shift()();
  await isAskedAgain;
  window.fetch = real;
  for (const answer of waiting) answer();
  return [before, count];
}"""
"""Brings news three times while an answer is waited for; how often it was asked for before it came, and then."""


def test_news_that_come_while_an_answer_is_waited_for_do_not_keep_it_from_being_shown(
    browser: Browser, site: Site, shop: Run
) -> None:
    with entered(browser, site, READER) as opened:
        open_view(opened, f"{site.url}/", shop, "audit")
        assert opened.page.evaluate(HOLDING_BACK, f"/{shop.id}/audit") == [1, 2]


def test_the_list_of_runs_is_searched_and_leads_to_a_run(browser: Browser, site: Site, shop: Run) -> None:
    with entered(browser, site, READER) as opened:
        opened.page.get_by_role("searchbox").fill("november")
        opened.page.get_by_role("button", name="Search").click()
        rows = opened.page.get_by_role("list", name="Runs").locator("> li")
        expect(rows.filter(has_text=shop.id)).to_contain_text("november")
        rows.filter(has_text=shop.id).get_by_role("link").click()
        opened.heading("The run")
        opened.page.goto(f"{site.url}/#/?search=nothing-has-this-name")
        expect(opened.page.locator("#detail")).to_contain_text("No matching runs.")


def test_who_may_only_read_is_shown_commands_and_no_buttons(browser: Browser, site: Site, backend: Backend) -> None:
    run = held_run(backend)
    with entered(browser, site, READER) as opened:
        open_view(opened, f"{site.url}/", run, "held")
        expect(opened.page.locator(".card .command code").first).to_contain_text(f"acts approve {run.id} 0 --shown ")
        expect(opened.page.get_by_role("button", name="Approve as shown")).to_have_count(0)
    with entered(browser, site, DECIDER) as opened:
        open_view(opened, f"{site.url}/", run, "held")
        expect(opened.page.get_by_role("button", name="Approve as shown")).to_be_visible()
        open_view(opened, f"{site.url}/", run)
        expect(opened.page.get_by_role("button", name="Cancel")).to_have_count(0)
    run.cancel()


def test_held_calls_are_approved_changed_shown_less_and_rejected(
    browser: Browser, site: Site, backend: Backend
) -> None:
    run = held_run(backend, 4)
    with entered(browser, site, DECIDER) as opened:
        open_view(opened, f"{site.url}/", run, "held")

        def press(number: int, button: str) -> None:
            card = opened.page.get_by_role("article", name=f"Call {number} greet")
            card.get_by_role("button", name=button).click()

        press(0, "Approve as shown")
        confirm(opened, "Approve")
        press(1, "Change …")
        opened.page.get_by_label("Parameters, as JSON").fill('{"value": 12345678901234567890, }')
        opened.page.get_by_role("button", name="Approve with these").click()
        expect(opened.page.get_by_role("dialog").get_by_role("alert")).to_contain_text("This is not JSON")
        opened.page.get_by_label("Parameters, as JSON").fill('{"value": "Grace"}')
        confirm(opened, "Approve with these")
        press(2, "Show it less")
        opened.page.get_by_role("checkbox", name="state").uncheck()
        confirm(opened, "Approve with these")
        press(3, "Reject …")
        opened.page.get_by_role("button", name="Reject", exact=True).click()
        expect(opened.page.get_by_role("dialog").get_by_role("alert")).to_contain_text("Give a reason")
        opened.page.get_by_label("Reason").fill("not today")
        confirm(opened, "Reject")
        expect(opened.page.locator("#detail")).to_contain_text("Nothing waits for a person.")
    result = backend.wait(run.id)
    assert [call.status for call in result.calls] == ["done", "done", "done", "failed"]
    assert result.data()["data"]["said1"] == "Grace"
    error: Any = result.calls[3].error
    assert (error["type"], error["message"]) == ("Rejected", "not today")
    decided = [entry for entry in run.log(audit=True) if entry.audit is not None and entry.audit.actor.name == "dee"]
    assert len(decided) == 4


def paying(backend: Backend, *payees: str) -> Run:
    """A run whose payments wait for a person, since a mail decides on them."""
    data = {f"p{number}": payee for number, payee in enumerate(payees)}
    context = [{"type": "text", "message": "Pay DE01."}, {"type": "data", "data": data, "_trust": ["mail"]}]
    calls = [
        {"_tool": "echo", "value": f"†data.p{number}", "_outputPath": f"†state.s{number}"}
        for number in range(len(payees))
    ]
    tools = {"echo": {"_trust": {"effects": True}}}
    return backend.client.submit_document({"context": context, "solution": {"calls": calls}, "tools": tools})


def test_calls_that_wait_for_the_same_source_are_answered_together(
    browser: Browser, site: Site, backend: Backend
) -> None:
    run = paying(backend, "DE01", "DE66")
    next(found for _ in run.follow(timeout_seconds=60) if len(found := run.held()) == 2)
    with entered(browser, site, DECIDER) as opened:
        open_view(opened, f"{site.url}/", run, "held")
        question = opened.page.get_by_role("article", name="2 calls of echo")
        expect(question.get_by_role("row")).to_contain_text(["/parameters/value", "DE01", "DE66"])
        question.get_by_role("button", name="Reject 2 calls").click()
        opened.page.get_by_role("button", name="Reject", exact=True).click()
        expect(opened.page.get_by_role("dialog").get_by_role("alert")).to_contain_text("Give a reason")
        confirm(opened, "Leave it")
        question.get_by_role("button", name="Approve 2 calls as shown").click()
        confirm(opened, "Approve")
        expect(opened.page.locator("#detail")).to_contain_text("Nothing waits for a person.")
    assert [call.status for call in backend.wait(run.id).calls] == ["done", "done"]


def test_a_rule_is_given_with_an_approval_and_revoked(browser: Browser, site: Site, backend: Backend) -> None:
    run = paying(backend, "DE01")
    next(found for _ in run.follow(timeout_seconds=60) if (found := run.held()))
    more = {"_tool": "echo", "value": "†data.p0", "_outputPath": "†state.more"}
    with entered(browser, site, CONTROLLER) as opened:
        open_view(opened, f"{site.url}/", run, "held")
        opened.page.get_by_role("button", name="Approve all like it").click()
        opened.page.get_by_label("Rule, as JSON").fill('{"value": {"matches": ".*"}}')
        opened.page.get_by_role("button", name="Approve, and give the rule").click()
        expect(opened.page.get_by_role("dialog").get_by_role("alert")).to_contain_text("must be")
        opened.page.get_by_label("Rule, as JSON").fill('{"value": "words"}')
        confirm(opened, "Approve, and give the rule")
        backend.wait(run.id)
        run.amend([more], add=True)
        backend.wait(run.id)
        open_view(opened, f"{site.url}/", run, "instance")
        call = opened.page.locator("details.call", has_text="echo").last
        call.locator("summary").click()
        expect(call).to_contain_text("Nobody was asked: rule ")
        run.amend([{"_tool": "waitAtGate", "gate": "ruled-page", "value": 1, "_outputPath": "†state.gate"}], add=True)
        open_view(opened, f"{site.url}/", run, "held")
        rule = opened.page.get_by_role("article", name="Rule ")
        expect(rule).to_contain_text("in the user's own words")
        rule.get_by_role("button", name="Revoke").click()
        confirm(opened, "Revoke")
        expect(rule).to_contain_text("revoked by")
    assert run.rules()[0]["revoked_by"] == "con"
    run.amend([more | {"_outputPath": "†state.last"}], add=True)
    (held,) = next(found for _ in run.follow(timeout_seconds=60) if (found := run.held()))
    assert held["index"] == 3
    run.cancel()
    backend.meeting.open_gate("ruled-page")


def test_a_run_that_is_over_is_undone(browser: Browser, site: Site, backend: Backend) -> None:
    run = backend.client.submit((), {"calls": [{"_tool": "book", "seat": "12A", "_outputPath": "†state.seat"}]})
    backend.wait(run.id)
    with entered(browser, site, CONTROLLER) as opened:
        open_view(opened, f"{site.url}/", run)
        opened.page.get_by_role("button", name="Undo …").click()
        confirm(opened, "Undo")
        expect(opened.page.locator("#detail")).to_contain_text(f"{run.id}.undo")
        open_view(opened, f"{site.url}/", run)
        expect(opened.page.locator("#detail").get_by_role("link", name=f"{run.id}.undo")).to_be_visible()
    assert [call.status for call in backend.wait(f"{run.id}.undo").calls] == ["done"]
    assert backend.meeting.take("unbooked")[0] == "12A"


def test_a_run_is_paused_resumed_forked_and_cancelled(browser: Browser, site: Site, backend: Backend) -> None:
    run = held_run(backend)
    with entered(browser, site, CONTROLLER) as opened:
        open_view(opened, f"{site.url}/", run)
        state = opened.page.locator("#top .badge").first
        opened.page.get_by_role("button", name="Pause").click()
        expect(state).to_contain_text("paused")
        opened.page.get_by_role("button", name="Resume").click()
        expect(state).to_contain_text("running")
        opened.page.get_by_role("button", name="Cancel").click()
        confirm(opened, "Cancel")
        expect(state).to_contain_text("cancelled")
        opened.page.get_by_role("button", name="Fork …").click()
        opened.page.get_by_role("dialog").get_by_role("button", name="Fork", exact=True).click()
        expect(opened.page.locator("#detail")).to_contain_text(f"forked from{run.id}")
    assert {"paused", "resumed", "cancelled"} <= deeds(run).keys()


def test_a_deed_that_is_refused_says_why_and_changes_nothing(browser: Browser, site: Site, backend: Backend) -> None:
    run = held_run(backend)
    with entered(browser, site, DECIDER) as opened:
        open_view(opened, f"{site.url}/", run, "held")
        opened.page.get_by_role("button", name="Approve as shown").click()
        run.held()
        run.reject(0, "somebody else was faster")
        opened.page.get_by_role("dialog").get_by_role("button", name="Approve", exact=True).click()
        expect(opened.page.get_by_role("dialog").get_by_role("alert")).to_contain_text("rejected")


def test_a_failed_call_is_taken_as_done_with_a_value(browser: Browser, site: Site, backend: Backend) -> None:
    run = shop_run(backend, 2, [1])
    with entered(browser, site, CONTROLLER) as opened:
        open_view(opened, f"{site.url}/", run, "instance", "order-1")
        opened.page.get_by_role("button", name="Take it as done …").click()
        opened.page.get_by_label("With this value, as JSON").fill("0.5")
        confirm(opened, "Take it as done")
        expect(opened.page.locator("#top .badge").first).to_contain_text("completed")
        expect(opened.page.locator(".failure")).to_have_count(0)
    assert backend.wait(run.id).data("order-1")["data"]["letter"].endswith("comes to 0.50; we have 40.")


def test_what_happens_is_shown_as_it_happens_and_not_over_what_somebody_has_opened(
    browser: Browser, site: Site, backend: Backend
) -> None:
    run = held_run(backend, 2)
    with entered(browser, site, READER) as opened:
        open_view(opened, f"{site.url}/", run)
        counts = opened.page.locator("#map .count")
        expect(counts).to_have_text(["1 held", "1 held"])
        run.held()
        run.approve(0)
        expect(counts).to_have_text(["1 done", "1 held"])
        open_view(opened, f"{site.url}/", run, "global")
        opened.page.locator(".calls summary").first.click()
        run.approve(1)
        opened.page.get_by_role("button", name="Show it as it is now").click()
        expect(opened.page.locator("#top .badge").first).to_contain_text("completed")


def test_a_lost_connection_is_said_and_found_again(browser: Browser, site: Site, backend: Backend) -> None:
    run = held_run(backend)
    with entered(browser, site, READER) as opened:
        open_view(opened, f"{site.url}/", run)
        lost = opened.page.locator("#connection")
        opened.page.route("**/api/**", lambda route: route.abort("connectionrefused"))
        opened.page.reload()
        expect(lost).to_have_text("Connection lost, trying again.")
        expect(opened.page.get_by_role("alert")).to_contain_text("The server does not answer.")
        opened.page.unroute("**/api/**")
        opened.heading("The run")
        expect(lost).to_have_text("")
        opened.complaints.clear()  # of what was refused
    run.cancel()


def test_what_something_between_answers_is_not_taken_for_the_server(browser: Browser, site: Site, shop: Run) -> None:
    with entered(browser, site, READER) as opened:
        body = "<h1>502 Bad Gateway</h1>"
        opened.page.route("**/api/runs/*", lambda route: route.fulfill(status=502, content_type="text/html", body=body))
        open_view(opened, f"{site.url}/", shop)
        expect(opened.page.get_by_role("alert")).to_contain_text("The server answered 502")


def test_a_run_that_is_gone_is_said(browser: Browser, site: Site, backend: Backend) -> None:
    run = shop_run(backend, 1, [])
    with entered(browser, site, READER) as opened:
        open_view(opened, f"{site.url}/", run)
        run.delete()
        expect(opened.page.get_by_role("alert")).to_contain_text("is gone")
        open_view(opened, f"{site.url}/", run, "call", "0")
        expect(opened.page.locator("#detail h2")).to_have_text("Not found")


def test_of_many_rows_at_most_500_are_in_the_page(browser: Browser, site: Site, shop: Run) -> None:
    rows = [{"instance": f"n{number}", "status": "completed", "counts": {"done": 1}} for number in range(1_000)]

    def pages(route: Any) -> None:
        after = int(route.request.url.partition("after=")[2] or 0)
        answer = {
            "instances": rows[after : after + 200],
            "next": str(after + 200) if after < 800 else None,
            "reading": None,
        }
        route.fulfill(status=200, content_type="application/json", body=json.dumps(answer))

    with entered(browser, site, READER) as opened:
        opened.page.route("**/api/runs/*/instances*", pages)
        open_view(opened, f"{site.url}/", shop, "instances")
        shown = opened.page.get_by_role("list", name="Instances").locator("> li")
        more = opened.page.get_by_role("button", name="More", exact=True)
        for count in (400, 500, 500, 500):
            more.click()
            expect(shown).to_have_count(count)
        expect(more).to_have_count(0)
        expect(opened.page.locator("#detail")).to_contain_text("500 earlier rows left out.")
        opened.page.get_by_role("button", name="From the beginning").click()
        expect(shown).to_have_count(200)


def test_a_megabyte_is_cut_folded_and_had_whole(browser: Browser, site: Site, backend: Backend) -> None:
    many = [{"n": number, "text": "x" * 80} for number in range(9_000)]
    calls = [{"_tool": "greet", "value": "hello", "_outputPath": "†state.said"}]
    run = backend.client.submit([{"type": "state", "many": many}], {"calls": calls})
    backend.wait(run.id)
    with entered(browser, site, READER) as opened:
        open_view(opened, f"{site.url}/", run, "value", "†state.many")
        opened.open_all()
        expect(opened.page.locator(".moment")).to_contain_text("kB, of which this is the beginning")
        assert opened.page.evaluate("document.querySelectorAll('*').length") < 2_000
        with opened.page.expect_download() as had:
            opened.page.get_by_role("button", name="Download all of it").first.click()
        assert json.loads(had.value.path().read_text()) == many


def test_a_run_that_is_long_under_way_does_not_make_the_page_grow(
    browser: Browser, site: Site, backend: Backend
) -> None:
    plan = {"type": "plan", "calls": [dict(call) for call in ORDER]}
    run = backend.client.submit([plan, *orders(300, [])])
    with entered(browser, site, READER) as opened:
        open_view(opened, f"{site.url}/", run, "instances")
        expect(opened.page.locator("#top .badge").first).to_contain_text("completed")
        expect(opened.page.get_by_role("list", name="Instances").locator("> li").first).to_contain_text("5 done")
        assert opened.page.locator("#map svg.plan").count() <= 1
