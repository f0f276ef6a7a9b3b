"""The diagrams of docs/architecture.md are those of the tables that the engine goes by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from acts_celery.protocol.engine import events as statuses
from acts_celery.protocol.engine import loop

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"


def diagram(first: StrEnum, arrows: Mapping[tuple[str, str], list[str]]) -> str:
    """A mermaid diagram of what leads from state to state."""
    lines = [f"    [*] --> {first}"]
    for (before, after), labels in arrows.items():
        lines.append(f"    {before} --> {after}" + (f": {', '.join(labels)}" if labels else ""))
    return "\n".join(("```mermaid", "stateDiagram-v2", *lines, "```"))


def of_loops() -> str:
    """The stages of a loop. What holds for all that are under way is drawn once."""
    table, ended = loop.TRANSITIONS, loop.Stage.ENDED
    under_way = {stage: dict(row) for stage, row in table.items() if stage is not ended}
    common: set[type[Any]] = set.intersection(*(set(row) for row in under_way.values()))
    arrows: dict[tuple[str, str], list[str]] = {}
    for stage, row in under_way.items():
        for event, following in row.items():
            assert following is not None
            if event in common and following in (stage, ended):
                key = ("every_stage", "every_stage" if following is stage else str(following))
            else:
                key = (str(stage), str(following))
            if event.__name__ not in arrows.setdefault(key, []):
                arrows[key].append(event.__name__)
    for event, following in table[ended].items():
        assert following is None
        arrows.setdefault((str(ended), "every_stage"), []).append(event.__name__)
    common_last = sorted(arrows, key=lambda key: "every_stage" in key)
    return diagram(loop.Stage.NEW, {key: arrows[key] for key in common_last})


def of_calls() -> str:
    """The statuses of a call."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for status, following in statuses.TRANSITIONS.items():
        for after in statuses.Status:
            if after in following:
                arrows[str(status), str(after)] = []
    return diagram(statuses.Status.WAITING, arrows)


@pytest.mark.parametrize("drawn", [of_loops, of_calls])
def test_a_diagram_shows_the_transitions_of_its_table(drawn: Callable[[], str]) -> None:
    assert drawn() in ARCHITECTURE.read_text(encoding="utf-8"), f"put into {ARCHITECTURE.name}:\n{drawn()}"
