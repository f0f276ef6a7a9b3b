"""Plans that were not made for these tests: of the README, of the examples, and of NESTFUL where its data is there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.nestful import evaluator
from tests.nestful.convert import convert
from tests.nestful.source import find_data, load

from .building import ANY

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/*.md", "deploy/examples/*.md")


def of_pages() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every submission that a page shows, and those of the examples; a tool that is not declared admits everything."""
    for pattern in PAGES:
        for page in sorted(ROOT.glob(pattern)):
            for number, block in enumerate(re.findall(r"```json\n(.*?)```", page.read_text("utf-8"), re.DOTALL)):
                yield from _read(f"{page.name} {number}", block)
    for file in sorted(ROOT.glob("deploy/examples/*.json")):
        yield from _read(file.name, file.read_text("utf-8"))


def of_nestful(most: int | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """The flows of NESTFUL that are valid, each by itself; none where the data is not there."""
    folder = find_data()
    data = load(folder) if folder is not None else None
    valid = [flow for flow in data.flows if not evaluator.faults(flow, data.tools)] if data is not None else []
    for flow in valid[:most]:
        assert data is not None
        used = {call.name for call in flow.calls}
        yield flow.instance, convert([flow], {name: tool for name, tool in data.tools.items() if name in used})


def nestful() -> dict[str, Any] | None:
    """All of NESTFUL that is valid, as one submission."""
    folder = find_data()
    if folder is None:
        return None
    data = load(folder)
    return convert([flow for flow in data.flows if not evaluator.faults(flow, data.tools)], data.tools)


def calls_of(value: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls of a submission: those of its solution, else of its plan messages."""
    if "solution" in value:
        return list(value["solution"]["calls"])
    plans = (message for message in value["context"] if message.get("type") == "plan")
    return [call for message in plans for call in message.get("plan", message)["calls"]]


def _read(name: str, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        value = json.loads(text)
    except ValueError:
        return
    is_request = isinstance(value, dict) and "schema" in value  # a model writes its calls
    if isinstance(value, dict) and "context" in value and not is_request:
        yield name, value | {"tools": {call["_tool"]: ANY for call in calls_of(value)} | value.get("tools", {})}
