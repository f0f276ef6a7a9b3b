"""Drawing: the graph as a Mermaid flowchart (SPEC R6.7).

Activities are boxes, delegates have double sides, latent calls round ends; what is sent and forgotten leans, and an
arrow says which path carries the value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.tools import Executor
from acts_celery.protocol.graph.readers import ReadPlaces, places_read, places_read_first
from acts_celery.protocol.language.errors import shortened
from acts_celery.protocol.language.messages import ERROR, EVERYWHERE
from acts_celery.protocol.language.references import Reference

_ERRORS: Final = Reference(ERROR)
MOST_ARROWS: Final = 100_000
"""Beyond this a drawing shows nothing, and where many wait for many there may be millions."""

_ENTITIES: Final = str.maketrans({"#": "#35;", "&": "&amp;", '"': "&quot;", "<": "&lt;", ">": "&gt;", "|": "#124;"})
_Edge = tuple[int, int]


class ArrowKind(StrEnum):
    """When a value comes along an arrow."""

    READS = "reads"
    """Whenever the writer has one."""
    BRANCH = "branch"
    """Only if the writer chooses this branch."""
    ALTERNATIVE = "alternative"
    """Only where nothing else is there that the reader may read."""


@dataclass(frozen=True, slots=True)
class Arrow:
    """Which places of a writer a reader reads."""

    writer: int
    reader: int
    places: tuple[Reference, ...]
    kind: ArrowKind
    is_branch: bool
    """Whether the writer has several branches, or is read for its error."""


_LINES: Final = {
    ArrowKind.READS: ("-->", ""),
    ArrowKind.BRANCH: ("-.->", "if "),
    ArrowKind.ALTERNATIVE: ("-.->", "or "),
}


LEGEND: Final = (
    "%% [box] activity   [[double sides]] delegate   ([round ends]) latent   [/leaning/] sent and not waited for",
    "%% --> what is read   -. if .-> only where the call chooses this branch   -. or .-> where nothing else is there",
    "%% × n instances: runs once in each   bold border: more than one call waits for it",
)


def mermaid(
    calls: Sequence[Call], edges: Sequence[_Edge], instances: Mapping[int, int], *, annotated: bool = False
) -> str:
    """A flowchart of the calls; `instances` says for how many instances each runs.

    Annotated, it has a legend, branches are dashed, and calls for which several wait have a bold border.
    """
    lines = ["flowchart TD", *(f"    {line}" for line in LEGEND if annotated)]
    for call in calls:
        if not call.is_note:
            class_ = _class(call) if annotated else ""
            lines.append(f"    c{call.index}{_shape(call, instances.get(call.index, 1))}{class_}")
    for arrow in arrows(calls, edges):
        after = " ?" if not annotated and arrow.is_branch else ""  # a branch is marked with a question mark
        line, before = _LINES[arrow.kind] if annotated else ("-->", "")
        label = _escaped(", ".join(f"{place}{after}" for place in arrow.places))
        lines.append(f'    c{arrow.writer} {line}|"{before}{label}"| c{arrow.reader}')
    if (left := len(edges) - MOST_ARROWS) > 0:
        lines.append(f"    %% {left} more arrows are not drawn: the edges of the plan list all")
    return "\n".join([*lines, *(_styles(edges) if annotated else ())]) + "\n"


def _styles(edges: Sequence[_Edge]) -> Iterator[str]:
    fanning = [f"c{writer}" for writer, readers in Counter(writer for writer, _ in edges).items() if readers > 1]
    yield "    classDef delegate fill:#e8f0fe,stroke:#3367d6,color:#000"
    yield "    classDef latent fill:#fef7e0,stroke:#b06000,color:#000"
    yield "    classDef background fill:#f1f3f4,stroke:#80868b,color:#000,stroke-dasharray:4 3"
    yield from (f"    style {node} stroke-width:3px" for node in fanning)


def arrows(calls: Sequence[Call], edges: Sequence[_Edge]) -> Iterator[Arrow]:
    """What is drawn for each edge, at most `MOST_ARROWS` of them."""
    by_index = {call.index: call for call in calls}
    read: dict[int, tuple[ReadPlaces, ReadPlaces]] = {}
    for index, reader in edges[:MOST_ARROWS]:
        if reader not in read:
            call = by_index[reader]
            read[reader] = ReadPlaces(places_read(call)), ReadPlaces(places_read_first(call))
        yield _arrow(by_index[index], reader, *read[reader])


def _arrow(writer: Call, reader: int, reads: ReadPlaces, first: ReadPlaces) -> Arrow:
    places = tuple(place for place in dict.fromkeys(writer.written) if reads.overlap(place))
    is_branch = len(writer.alternatives) > 1
    if not places and reads.overlap(_ERRORS):
        return Arrow(writer.index, reader, (_ERRORS,), ArrowKind.BRANCH, is_branch=True)
    if not _is_certain(writer, reads):
        return Arrow(writer.index, reader, places, ArrowKind.BRANCH, is_branch)
    kind = ArrowKind.READS if any(map(first.overlap, writer.written)) else ArrowKind.ALTERNATIVE
    return Arrow(writer.index, reader, places, kind, is_branch)


def _class(call: Call) -> str:
    if call.is_fire_and_forget:
        return ":::background"
    classes = {Executor.DELEGATE: ":::delegate", Executor.LATENT: ":::latent"}
    return classes.get(call.runner.executor, "")


def _is_certain(writer: Call, reads: ReadPlaces) -> bool:
    """Whether the writer brings what is read whichever of its branches it takes."""
    return all(any(map(reads.overlap, group)) for group in writer.alternatives)


def _shape(call: Call, instances: int) -> str:
    label = _escaped(f"{call.index} {call.tool}")
    if call.instance is not None and call.instance != EVERYWHERE:
        label += f"<br/>{_escaped(call.instance)}"
    elif instances > 1:
        label += f"<br/>× {instances} instances"
    if call.is_fire_and_forget:
        return f'[/"{label}"/]'
    match call.runner.executor:
        case Executor.DELEGATE:
            return f'[["{label}"]]'
        case Executor.LATENT:
            return f'(["{label}"])'
        case Executor.ACTIVITY:
            return f'["{label}"]'


def _escaped(text: str) -> str:
    """Text inside a label's quotes: no quotes, no mark-up, no line breaks."""
    line = " ".join(shortened(text, 100).split())
    return line.translate(_ENTITIES)
