"""The picture of a run as a Mermaid flowchart: ticks, their calls and how these ended, child runs in their calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final

from .call_results import CallResult
from .results import Result

_MOST: Final = 60
"""Calls that are drawn of one run; instances of one call are one node."""
_STYLES: Final = {
    "failed": "stroke:#c00,stroke-width:2px",
    "held": "stroke:#c80,stroke-width:2px",
    "skipped": "stroke-dasharray:4 4",
}
"""Of the nodes of calls that stand like that, the worst first."""


def draw(result: Result, child: Callable[[str], Result | None] = lambda _: None) -> str:
    """The flowchart of a run; `child` gives the results of child runs, where they can be had."""
    lines = list(_run(result, "r", child))
    classes = {line.rpartition(" ")[2] for line in lines if line.startswith("class ")}
    used = [f"classDef {status} {style}" for status, style in _STYLES.items() if status in classes]
    return "\n".join(["flowchart TD", *(f"  {line}" for line in (*lines, *used))])


def _run(result: Result, name: str, child: Callable[[str], Result | None]) -> Iterator[str]:
    """The nodes of one run; their names begin with its own."""
    before: list[str] = []
    for tick in result.ticks or ():
        node = f"{name}t{tick.tick}"
        yield f'{node}(["tick {tick.tick}: {_text(tick.model or "model")}"])'
        yield from (f"{one} --> {node}" for one in before)
        before = yield from _calls([call for call in result.calls if call.tick == tick.tick], name, node, child)
        before = before or [node]
    if result.ticks is None:
        before = yield from _calls(result.calls, name, None, child)
    end = f"{name}end"
    output = "" if result.output is None else ": " + _text(json.dumps(result.output, ensure_ascii=False))
    yield f'{end}(["{_text(result.status)}{output}"])'
    yield from (f"{one} --> {end}" for one in before)


def _calls(
    calls: Sequence[CallResult], name: str, after: str | None, child: Callable[[str], Result | None]
) -> Generator[str, None, list[str]]:
    """The nodes of calls, those of all instances together; returns their names."""
    indexes = list(dict.fromkeys(call.index for call in calls))[:_MOST]
    nodes = []
    for index in indexes:
        alike = [call for call in calls if call.index == index]
        node = f"{name}c{index}"
        nodes.append(node)
        worst = next((call.status for status in _STYLES for call in alike if call.status == status), alike[0].status)
        where = f" ×{len(alike)}" if len(alike) > 1 else f" {alike[0].instance}" if alike[0].instance else ""
        inside = child(alike[0].child) if alike[0].child is not None else None
        label = f"{index} {_text(alike[0].tool)}{_text(where)}<br/>{worst}"
        if inside is None:
            yield f'{node}["{label}"]'
        else:
            yield f'subgraph {node}["{label}"]'
            yield from _run(inside, f"{node}_", child)
            yield "end"
        if worst in _STYLES:
            yield f"class {node} {worst}"
        if after is not None:
            yield f"{after} --> {node}"
    return nodes


def _text(text: str) -> str:
    """A text that Mermaid takes for one, and short."""
    short = text if len(text) <= 60 else f"{text[:60]}…"
    return "".join(each if each.isalnum() or each in " .:,!?_-×" else f"#{ord(each)};" for each in short)
