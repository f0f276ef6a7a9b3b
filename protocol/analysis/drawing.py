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
from acts_celery.protocol.language.references import Reference

MOST_ARROWS: Final = 100_000
"""Beyond this a drawing shows nothing, and where many wait for many there may be millions."""

_Edge = tuple[int, int]


def mermaid(calls: Sequence[Call], edges: Sequence[_Edge], instances: Mapping[int, int]) -> str:
    """A flowchart of the calls; `instances` says for how many instances each runs."""
    lines = ["flowchart TD"]
    lines += [f"    c{call.index}{_shape(call, instances.get(call.index, 1))}" for call in calls if not call.is_thought]
    for writer, reader, (reads, _) in _arrows(calls, edges):
        places = _escaped(", ".join(_carried(writer, reads)))
        lines.append(f'    c{writer.index} -->|"{places}"| c{reader.index}')
    return "\n".join([*lines, *_left_out(edges)]) + "\n"


LEGEND: Final = (
    "%% [box] activity   [[double sides]] delegate   ([round ends]) latent   [/leaning/] sent and not waited for",
    "%% --> what is read   -. if .-> only where the call chooses this branch   -. or .-> where nothing else is there",
    "%% × n instances: runs once in each   bold border: more than one call waits for it",
)


def annotated_mermaid(calls: Sequence[Call], edges: Sequence[_Edge], instances: Mapping[int, int]) -> str:
    """The same with a legend; branches are dashed, and calls for which several wait have a bold border."""
    lines = ["flowchart TD", *(f"    {line}" for line in LEGEND)]
    for call in calls:
        if not call.is_thought:
            lines.append(f"    c{call.index}{_shape(call, instances.get(call.index, 1))}{_class(call)}")
    for writer, reader, (reads, first) in _arrows(calls, edges):
        places = _escaped(", ".join(map(str, _places_carried(writer, reads))))
        if not _is_certain(writer, reads):
            lines.append(f'    c{writer.index} -.->|"if {places}"| c{reader.index}')
        elif not any(map(first.overlap, writer.written)):
            lines.append(f'    c{writer.index} -.->|"or {places}"| c{reader.index}')
        else:
            lines.append(f'    c{writer.index} -->|"{places}"| c{reader.index}')
    lines += _left_out(edges)
    fanning = [f"c{writer}" for writer, readers in Counter(writer for writer, _ in edges).items() if readers > 1]
    lines += ["    classDef delegate fill:#e8f0fe,stroke:#3367d6,color:#000"]
    lines += ["    classDef latent fill:#fef7e0,stroke:#b06000,color:#000"]
    lines += ["    classDef background fill:#f1f3f4,stroke:#80868b,color:#000,stroke-dasharray:4 3"]
    lines += [f"    style {node} stroke-width:3px" for node in fanning]
    return "\n".join(lines) + "\n"


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


def _left_out(edges: Sequence[_Edge]) -> list[str]:
    left = len(edges) - MOST_ARROWS
    return [f"    %% {left} more arrows are not drawn: the edges of the plan list all"] if left > 0 else []


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
    if call.instance is not None:
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


def _carried(writer: Call, reads: ReadPlaces) -> list[str]:
    """The places through which one call feeds the other; a branch is marked with a question mark."""
    branches = writer.output.alternatives if writer.output else ()
    return [f"{place}{' ?' if len(branches) > 1 else ''}" for place in _places_carried(writer, reads)]


def _places_carried(writer: Call, reads: ReadPlaces) -> list[Reference]:
    written = dict.fromkeys(writer.written)
    return [place for place in written if reads.overlap(place)]


def _escaped(text: str) -> str:
    """Text inside a label's quotes: no quotes, no mark-up, no line breaks."""
    line = " ".join(shortened(text, 100).split())
    for character, entity in (
        ("#", "#35;"),
        ("&", "&amp;"),
        ('"', "&quot;"),
        ("<", "&lt;"),
        (">", "&gt;"),
        ("|", "#124;"),
    ):
        line = line.replace(character, entity)
    return line
