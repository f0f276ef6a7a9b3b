"""Drawing: the graph as a Mermaid flowchart (SPEC R6.7).

Activities are boxes, delegates have double sides, latent calls round ends; what is sent and forgotten leans, and an
arrow says which path carries the value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
    for writer, reader, (reads, first) in _arrows(calls, edges):
        arrow, before, after = "-->", "", ""
        places = [place for place in dict.fromkeys(writer.written) if reads.overlap(place)]
        if tells := not places and reads.overlap(_ERRORS):
            places = [_ERRORS]
        if not annotated:  # a branch is marked with a question mark
            after = " ?" if tells or (writer.output and len(writer.output.alternatives) > 1) else ""
        elif tells or not _is_certain(writer, reads):
            arrow, before = "-.->", "if "
        elif not any(map(first.overlap, writer.written)):
            arrow, before = "-.->", "or "
        label = _escaped(", ".join(f"{place}{after}" for place in places))
        lines.append(f'    c{writer.index} {arrow}|"{before}{label}"| c{reader.index}')
    if (left := len(edges) - MOST_ARROWS) > 0:
        lines.append(f"    %% {left} more arrows are not drawn: the edges of the plan list all")
    return "\n".join([*lines, *(_styles(edges) if annotated else ())]) + "\n"


def _styles(edges: Sequence[_Edge]) -> Iterator[str]:
    fanning = [f"c{writer}" for writer, readers in Counter(writer for writer, _ in edges).items() if readers > 1]
    yield "    classDef delegate fill:#e8f0fe,stroke:#3367d6,color:#000"
    yield "    classDef latent fill:#fef7e0,stroke:#b06000,color:#000"
    yield "    classDef background fill:#f1f3f4,stroke:#80868b,color:#000,stroke-dasharray:4 3"
    yield from (f"    style {node} stroke-width:3px" for node in fanning)


def _arrows(
    calls: Sequence[Call], edges: Sequence[_Edge]
) -> Iterator[tuple[Call, Call, tuple[ReadPlaces, ReadPlaces]]]:
    """The writer and the reader of each edge that is drawn, what the reader reads, and what of it comes first."""
    by_index = {call.index: call for call in calls}
    reads: dict[int, tuple[ReadPlaces, ReadPlaces]] = {}
    for writer, reader in edges[:MOST_ARROWS]:
        if reader not in reads:
            call = by_index[reader]
            reads[reader] = ReadPlaces(places_read(call)), ReadPlaces(places_read_first(call))
        yield by_index[writer], by_index[reader], reads[reader]


def _class(call: Call) -> str:
    if call.is_fire_and_forget:
        return ":::background"
    classes = {Executor.DELEGATE: ":::delegate", Executor.LATENT: ":::latent"}
    return classes.get(call.runner.executor, "")


def _is_certain(writer: Call, reads: ReadPlaces) -> bool:
    """Whether the writer brings what is read whichever of its branches it takes."""
    groups = writer.output.alternatives if writer.output else ()
    return all(any(map(reads.overlap, group)) for group in groups)


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
