"""Drawing: the graph as a Mermaid flowchart (SPEC R6.7).

Activities are boxes, delegates have double sides, latent calls round ends; what is sent and forgotten leans, and an
arrow says which path carries the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .calls import Call
from .errors import shortened
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
    read = [reference for _, expression in reader.reads for reference in expression.references] + list(reader.slices)
    branches = writer.output.alternatives if writer.output else ()
    return [
        f"{place}{' ?' if len(branches) > 1 else ''}"
        for place in dict.fromkeys(place for group in branches for place in group)
        if any(place.overlaps(other) for other in read)
    ]


def _escaped(text: str) -> str:
    """Text inside a label's quotes: no quotes, no mark-up, no line breaks."""
    line = " ".join(shortened(text, 100).split())
    for character, entity in (("#", "#35;"), ("&", "&amp;"), ('"', "&quot;"), ("<", "&lt;"), (">", "&gt;")):
        line = line.replace(character, entity)
    return line
