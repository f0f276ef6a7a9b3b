"""Drawing: the graph as a Mermaid flowchart (SPEC R6.7).

Activities are boxes, delegates have double sides, latent calls round ends; what is sent and forgotten leans, and an
arrow says which path carries the value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from .calls import Call
from .errors import shortened
from .references import Reference
from .tools import Executor


def mermaid(calls: Sequence[Call], edges: Iterable[tuple[int, int]], instances: Mapping[int, int]) -> str:
    """A flowchart of the calls; `instances` says for how many instances each runs."""
    by_index = {call.index: call for call in calls}
    lines = ["flowchart TD"]
    lines += [f"    c{call.index}{_shape(call, instances.get(call.index, 1))}" for call in calls if not call.is_thought]
    for writer, reader in edges:
        places = _carried(by_index[writer], by_index[reader])
        lines.append(f'    c{writer} -->|"{_escaped(", ".join(places))}"| c{reader}')
    return "\n".join(lines) + "\n"


LEGEND: Final = (
    "%% [box] activity   [[double sides]] delegate   ([round ends]) latent   [/leaning/] sent and not waited for",
    "%% --> always carries the value   -. if .-> only where the call chooses this branch",
    "%% × n instances: runs once in each   bold border: more than one call waits for it",
)


def annotated_mermaid(calls: Sequence[Call], edges: Iterable[tuple[int, int]], instances: Mapping[int, int]) -> str:
    """The same with a legend; branches are dashed, and calls for which several wait have a bold border."""
    by_index = {call.index: call for call in calls}
    edges = tuple(edges)
    lines = ["flowchart TD", *(f"    {line}" for line in LEGEND)]
    for call in calls:
        if not call.is_thought:
            lines.append(f"    c{call.index}{_shape(call, instances.get(call.index, 1))}{_class(call)}")
    for writer, reader in edges:
        places = _escaped(", ".join(map(str, _places_carried(by_index[writer], by_index[reader]))))
        if _is_certain(by_index[writer], by_index[reader]):
            lines.append(f'    c{writer} -->|"{places}"| c{reader}')
        else:
            lines.append(f'    c{writer} -.->|"if {places}"| c{reader}')
    fanning = [f"c{writer}" for writer, readers in Counter(writer for writer, _ in edges).items() if readers > 1]
    lines += ["    classDef delegate fill:#e8f0fe,stroke:#3367d6,color:#000"]
    lines += ["    classDef latent fill:#fef7e0,stroke:#b06000,color:#000"]
    lines += ["    classDef background fill:#f1f3f4,stroke:#80868b,color:#000,stroke-dasharray:4 3"]
    lines += [f"    style {node} stroke-width:3px" for node in fanning]
    return "\n".join(lines) + "\n"


def _class(call: Call) -> str:
    if call.is_fire_and_forget:
        return ":::background"
    classes = {Executor.DELEGATE: ":::delegate", Executor.LATENT: ":::latent"}
    return classes.get(call.runner.executor, "")


def _is_certain(writer: Call, reader: Call) -> bool:
    """Whether the writer brings what the reader reads whichever of its branches it takes."""
    read = _read(reader)
    groups = writer.output.alternatives if writer.output else ()
    return all(any(place.overlaps(other) for place in group for other in read) for group in groups)


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


def _carried(writer: Call, reader: Call) -> list[str]:
    """The places through which one call feeds the other; a branch is marked with a question mark."""
    branches = writer.output.alternatives if writer.output else ()
    return [f"{place}{' ?' if len(branches) > 1 else ''}" for place in _places_carried(writer, reader)]


def _places_carried(writer: Call, reader: Call) -> list[Reference]:
    read = _read(reader)
    written = dict.fromkeys(writer.output.references if writer.output else ())
    return [place for place in written if any(place.overlaps(other) for other in read)]


def _read(reader: Call) -> list[Reference]:
    return [reference for _, expression in reader.reads for reference in expression.references] + list(reader.slices)


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
