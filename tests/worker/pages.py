"""Questions to the page of a run, and what its answers must agree with: the result of the same run."""

from __future__ import annotations

from collections import Counter
from typing import Any

from acts_celery import Run
from acts_celery.worker.ui import Page
from acts_celery.worker.ui.drawing import NOT_TAKEN
from acts_celery.worker.ui.file import document

from .backend import Backend


class Asking:
    """The page of one run."""

    def __init__(self, backend: Backend, run: Run, *, reading_seconds: float | None = None) -> None:
        self.run = run
        self.redis, self.settings = backend.redis, backend.settings
        self.page = Page(backend.redis, backend.settings, reading_seconds=reading_seconds)

    def ask(self, what: str = "", **query: str) -> Any:
        """The answer to a question about the run."""
        return self.page.answer(f"runs/{self.run.id}/{what}".rstrip("/"), query)

    def all(self, what: str, key: str, **query: str) -> list[Any]:
        """What a list has on all of its pages."""
        found, after = [], ""
        while True:
            answer = self.ask(what, **query, after=after)
            found += answer[key]
            if (after := answer["next"]) is None:
                return found

    def plans(self) -> list[dict[str, Any]]:
        """The calls as the plan lists them, of all ticks."""
        plan = self.ask("plan")
        ticks = [self.ask("plan", tick=str(tick)) for tick in plan["ticks"]] or [plan]
        return [call for each in ticks for call in each["calls"]]


def agree(asking: Asking) -> None:
    """What the page says of the run's calls and values is what its result says; and it is written as a file."""
    result = asking.run.result()
    by_index: dict[int, Counter[str]] = {}
    for call in result.calls:
        by_index.setdefault(call.index, Counter())[call.status] += 1
    assert {call["index"]: _plain(call["counts"]) for call in asking.plans()} == by_index
    instances = asking.all("instances", "instances")
    assert {one["instance"]: one["status"] for one in instances} == dict(result.instance_status)
    for index, counts in by_index.items():
        rows = asking.all(f"calls/{index}", "instances")
        of_call = {call.instance: call for call in result.calls if call.index == index}
        statuses = {row["instance"]: row["status"].replace(NOT_TAKEN, "skipped") for row in rows}
        assert statuses == {name: one.status for name, one in of_call.items()}
        assert {row["instance"]: row["error"] for row in rows} == {name: one.error for name, one in of_call.items()}
        errors = asking.ask(f"calls/{index}")["errors"]
        assert sum(group["count"] for group in errors) == counts["failed"]
    for name in (None, *result.instances):
        answer = asking.ask("instance", name=name or "")
        assert answer["data"] == result.data(name)
        own = [call for call in result.calls if call.instance == name]
        assert [(call["index"], call["status"]) for call in answer["calls"]] == [(one.index, one.status) for one in own]
    whole = Page(asking.redis, asking.settings, reading_seconds=None)
    assert f'"runs/{asking.run.id}/plan"' in document(whole, asking.run.id)


def _plain(counts: dict[str, int]) -> Counter[str]:
    """Counts by the statuses of results, which call skipped what was not taken."""
    found = Counter(counts)
    found["skipped"] += found.pop(NOT_TAKEN, 0)
    return +found
