"""Runs that the tests look at: real ones, of a real worker."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from acts_celery import Run
from acts_celery.worker.ui import Page
from acts_celery.worker.ui.file import document
from tests.worker.backend import Backend
from tests.worker.loops import Asked, answer

from .chromium import Window

SHOP: Final = Path(__file__).with_name("fixtures") / "shop.py"
ORDER: Final[Sequence[dict[str, Any]]] = (
    {"_tool": "readOrder", "order": "†state.order", "_outputPath": "†state.read"},
    {"_tool": "price", "part": "†state.read.part", "pieces": "†state.read.pieces", "_outputPath": "†state.price"},
    {"_tool": "stock", "part": "†state.read.part", "_outputPath": "†state.stock"},
    {
        "_tool": "writeLetter",
        "customer": "†state.read.customer",
        "total": "†state.price",
        "left": "†state.stock",
        "_outputPath": "†data.letter",
    },
    {"_tool": "sendLetter", "to": "†state.read.customer", "letter": "†data.letter", "_outputPath": "†state.sent"},
)


def orders(count: int, wrong: Sequence[int]) -> list[dict[str, Any]]:
    """Instances of the shop's plan; the wrong ones are orders of less than no piece."""
    return [
        {
            "type": "state",
            "_instance": f"order-{number}",
            "order": {"number": number, "part": "wheel", "pieces": -4 if number in wrong else 1 + number % 7},
        }
        for number in range(count)
    ]


PRICE: Final[Mapping[str, Any]] = {
    "_tool": "price",
    "part": "†state.order.part",
    "pieces": "†state.order.pieces",
    "_outputPath": "†state.price",
}


def shop_run(backend: Backend, count: int, wrong: Sequence[int], calls: Sequence[Mapping[str, Any]] = ORDER) -> Run:
    """A run of the shop's plan that has ended."""
    plan = {"type": "plan", "calls": [dict(call) for call in calls]}
    run = backend.client.submit([plan, *orders(count, wrong)], name="orders", tags=["november"])
    backend.wait(run.id)
    return run


def loop_run(backend: Backend) -> Run:
    """A loop of two ticks that has ended."""
    first = {"_tool": "add", "a": 1, "b": 2, "_outputPath": "†state.three", "_reasoningForCall": "the sum comes first"}
    second = {"_tool": "add", "a": "†state.three", "b": 4, "_outputPath": "†state.seven"}
    asked = Asked(backend, answer(first, second), answer(output=7))
    asked.result()
    return asked.run


def held_run(backend: Backend, calls: int = 1) -> Run:
    """A run whose calls wait for a person."""
    say = {"_tool": "greet", "value": "†state.user", "_scopes": ["state", "input"]}
    context: list[dict[str, Any]] = [
        {"type": "state", "user": {"name": "Ada", "age": 36}},
        {"type": "input", "language": "en"},
    ]
    solution = {"calls": [{**say, "_outputPath": f"†data.said{number}"} for number in range(calls)]}
    run = backend.client.submit(context, solution, config={"approve": ["greet"]}, name="to approve")
    events = (event for event in run.follow() if event.kind == "held")
    assert len(list(islice(events, calls))) == calls
    return run


def file_of(backend: Backend, run: Run, folder: Path) -> str:
    """The address of the file of a run."""
    path = folder / f"{run.id}.html"
    page = Page(backend.redis, backend.settings, reading_seconds=None)
    path.write_text(document(page, run.id), encoding="utf-8")
    return path.as_uri()


def file_with(answers: Sequence[tuple[str, dict[str, str], Any]], template: str, run: str) -> str:
    """The file of a run with other answers in it."""
    before, behind = template.split('<script type="application/json" id="acts-data">')
    data = json.dumps({"run": run, "made": "2026-01-02T03:04:05Z", "sentences": [], "answers": answers})
    data = data.replace("<", "\\u003c")
    return f'{before}<script type="application/json" id="acts-data">{data}{behind[behind.index("</script>") :]}'


def open_view(opened: Window, address: str, run: Run, *parts: str) -> None:
    """Load a view of a run and wait until it is shown."""
    opened.page.goto("about:blank")  # else the view before this one would be found
    route = "/".join(("#", "run", run.id, *parts))
    opened.page.goto(f"{address}{route}")
    opened.page.wait_for_selector("#detail h2")
