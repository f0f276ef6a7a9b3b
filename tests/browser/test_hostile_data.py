"""Nothing of the data is ever markup: names, values, errors and pictures that try to be."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import expect

from acts_celery import Run
from tests.acceptance.command import ROOT
from tests.worker.backend import Backend

from .chromium import Window
from .runs import file_of, file_with, open_view

pytestmark = pytest.mark.chromium

ASSETS: Final = ROOT / "worker" / "ui" / "assets"

MARKUP: Final = "</script><img src=x onerror=window.hacked=1><script>window.hacked=1</script>"
TURNED: Final = "a\u202eb\u2066c\u0007d\u2028e"
INSTANCE: Final = "<b onmouseover=window.hacked=1>①"
IS_HACKED: Final = (
    "() => window.hacked !== undefined || document.querySelector('img, b, iframe, object, embed') !== null"
)
VIEWS: Final = ((), ("call", "0"), ("call", "1"), ("instances",), ("global",), ("held",))


@pytest.fixture(scope="module")
def hostile(backend: Backend) -> Run:
    """A run whose texts are all markup, and one of whose calls fails with it."""
    wrong = {"_tool": "price", "part": "†state.text", "pieces": -1, "_outputPath": '†state["<i>price"]'}
    calls = [{"_tool": "greet", "value": "†state", "_outputPath": '†data["<s>greet"]'}, wrong]
    context: list[dict[str, Any]] = [
        {"type": "plan", "calls": calls},
        {"type": "state", "_instance": INSTANCE, "data": {"text": MARKUP, MARKUP: [MARKUP, {"constructor": TURNED}]}},
    ]
    run = backend.client.submit(context, name=f"name {MARKUP}", tags=["<u>tag"])
    backend.wait(run.id)
    return run


@pytest.fixture(scope="module")
def hostile_file(backend: Backend, hostile: Run, folder: Path) -> str:
    return file_of(backend, hostile, folder)


def test_a_run_of_markup_is_shown_as_text_in_every_view(desk: Window, hostile: Run, hostile_file: str) -> None:
    for parts in VIEWS:
        open_view(desk, hostile_file, hostile, *parts)
        assert not desk.page.evaluate(IS_HACKED), parts
    expect(desk.page.locator("h1")).to_have_text(f"name {MARKUP}")
    desk.page.get_by_role("link", name="Instances").click()
    desk.page.get_by_role("link", name=INSTANCE).click()
    desk.heading(f"Instance {INSTANCE}")
    expect(desk.page.locator(".failure")).to_contain_text(f"an order of -1 pieces of {MARKUP} has no price")
    desk.open_all()
    expect(desk.page.locator("#detail")).to_contain_text("a⟨U+202E⟩b⟨U+2066⟩c\\u0007d⟨U+2028⟩e")
    assert not desk.page.evaluate(IS_HACKED)


def test_the_command_to_copy_quotes_what_a_shell_would_read(desk: Window, hostile: Run, hostile_file: str) -> None:
    open_view(desk, hostile_file, hostile, "instance", "%3Cb%20onmouseover%3Dwindow.hacked%3D1%3E%E2%91%A0")
    expect(desk.page.locator(".failure .command code").first).to_contain_text(f"--instance '{INSTANCE}'")


PICTURES: Final = {
    "a script": "<script>window.hacked = 1</script>",
    "a listener": '<g onclick="window.hacked = 1" class="call" data-call="0"><text>x</text></g>',
    "a foreign object": '<foreignObject><body xmlns="http://www.w3.org/1999/xhtml"><b>x</b></body></foreignObject>',
    "a link": '<a href="javascript:window.hacked=1"><text>x</text></a>',
    "a style": '<g style="background: url(//evil.test)"/>',
    "a picture from elsewhere": '<image href="//evil.test/x.png"/>',
    "an animation": '<g><animate attributeName="href" values="javascript:1"/></g>',
    "an element of HTML": '<img xmlns="http://www.w3.org/1999/xhtml" src="x" onerror="window.hacked=1"/>',
    "a url elsewhere": '<g><path marker-end="url(//evil.test#x)"/></g>',
    "a use": '<use href="#x"/>',
}


@pytest.mark.parametrize("what", PICTURES)
def test_a_picture_that_holds_more_than_a_plan_is_refused(
    desk: Window, shop: Run, shop_file: str, folder: Path, what: str
) -> None:
    template = Path(shop_file.removeprefix("file://")).read_text(encoding="utf-8")
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="9">{PICTURES[what]}</svg>'
    overview = {"run": shop.id, "name": "x", "status": "completed", "counts": {"done": 1}, "instances": 0, "held": 0}
    plan = {"calls": [{"index": 0}], "svg": svg, "ticks": [], "tick": None, "more": 0, "reading": None}
    answers: Any = [(f"runs/{shop.id}", {}, overview), (f"runs/{shop.id}/plan", {}, plan)]
    path = folder / "hostile-picture.html"
    path.write_text(file_with(answers, template, shop.id), encoding="utf-8")
    open_view(desk, path.as_uri(), shop)
    expect(desk.page.get_by_role("alert")).to_contain_text("which is not shown")
    assert not desk.page.evaluate(IS_HACKED)
    assert all(address.startswith(("file:", "data:")) for address in desk.asked)
    desk.complaints.clear()  # the policy complains of what a picture wants to do even before it is refused


def test_no_script_of_the_page_makes_markup_of_a_text() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in ASSETS.glob("*.js")}
    makers = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|</script|createContextual"
    )
    assert {name: found for name, text in texts.items() if (found := makers.findall(text))} == {}
    shown = re.findall(r'<script src="assets/([\w.]+)"></script>', (ASSETS / "page.html").read_text(encoding="utf-8"))
    assert sorted(shown) == sorted(texts)


def test_no_name_is_declared_in_two_scripts_which_share_them() -> None:
    declared = re.compile(r"^(?:async )?(?:function\*? |const |let |class )(\w+)", re.MULTILINE)
    names = Counter(name for path in ASSETS.glob("*.js") for name in declared.findall(path.read_text(encoding="utf-8")))
    assert [name for name, count in names.items() if count > 1] == []
