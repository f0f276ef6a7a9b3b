"""Findings: what is worth knowing about a valid submission and is no error (SPEC R6.7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from .. import limits
from ..calls.call import Call
from ..calls.tools import Executor
from ..errors import pointer, shortened, some_of
from ..messages import ERROR, EVERYWHERE
from ..plan.checked_plan import CheckedPlan
from ..plan.graph import ReadPlaces, places_after, places_read, places_read_first
from ..references import Reference

# The catalogue of all kinds of findings (SPEC R6.7). docs/reference.md explains each.


@dataclass(frozen=True, slots=True)
class FindingKind:
    """A kind of findings, with its severity and the rule that it rests on."""

    code: str
    name: str
    severity: str
    """`warning`: hardly meant so. `info`: worth a look. `note`: no reason to change anything."""
    rule: str


_ENTRIES: Final = (
    # Order and data flow
    FindingKind("ACT101", "unreachable", "warning", "R6.6"),
    FindingKind("ACT103", "race", "warning", "R6.4"),
    FindingKind("ACT104", "depends-on-timing", "warning", "R6.1"),
    FindingKind("ACT105", "unordered-effect", "note", "R6.8"),
    # Values and types
    FindingKind("ACT201", "type-misfit", "warning", "R4.1"),
    FindingKind("ACT202", "value-misfit", "warning", "R4.1"),
    FindingKind("ACT203", "kind-misfit", "warning", "R4.6"),
    FindingKind("ACT204", "unknown-field", "warning", "R4.6"),
    FindingKind("ACT205", "wrong-container", "warning", "R3.5"),
    FindingKind("ACT206", "method-misfit", "warning", "R3.2"),
    FindingKind("ACT207", "delegate-misfit", "info", "R9.2"),
    FindingKind("ACT208", "never-written", "warning", "R4.6"),
    FindingKind("ACT209", "signature-misfit", "warning", "R4.1a"),
    FindingKind("ACT210", "dead-branch", "warning", "R4.12"),
    FindingKind("ACT299", "incomplete", "note", "R6.7"),
    # Texts and slips
    FindingKind("ACT301", "forgotten-dagger", "warning", "R2.2"),
    FindingKind("ACT302", "foreign-template", "warning", "R2.2"),
    FindingKind("ACT303", "misspelt-property", "warning", "R4"),
    FindingKind("ACT304", "foreign-property", "warning", "R4"),
    FindingKind("ACT305", "embedded-reference", "warning", "R2.6"),
    FindingKind("ACT307", "output-path-without-dagger", "warning", "R2.5"),
    FindingKind("ACT308", "forgotten-kind", "warning", "R2.3"),
    FindingKind("ACT309", "dead-alternative", "info", "R2.3"),
    FindingKind("ACT310", "unknown-parameter", "info", "R4.1"),
    # Scopes, tools, settings and messages
    FindingKind("ACT401", "misspelt-scope", "warning", "R8.1"),
    FindingKind("ACT402", "scope-of-an-instance", "warning", "R8.2"),
    FindingKind("ACT403", "wide-scope", "note", "R8.3a"),
    FindingKind("ACT404", "idle-property", "warning", "R4.3"),
    FindingKind("ACT405", "missing-output-path", "warning", "R5.1"),
    FindingKind("ACT406", "wrapped-tool", "warning", "R4.1"),
    FindingKind("ACT407", "hidden-data", "warning", "R1.3"),
    FindingKind("ACT408", "dropped-wait", "note", "R8.3a"),
    FindingKind("ACT409", "advisor-not-asked", "warning", "R15.1"),
    FindingKind("ACT411", "gathered-in-sight", "note", "R8.3b"),
    FindingKind("ACT412", "hidden-input", "info", "R9.2"),
    FindingKind("ACT413", "unenforced", "info", "R12.6"),
    FindingKind("ACT414", "misspelt-type", "warning", "R1.1"),
    FindingKind("ACT415", "uncallable-tool", "warning", "R12.4"),
    # Trust
    FindingKind("ACT601", "untrusted-parameter", "warning", "R16.5"),
    FindingKind("ACT602", "untrusted-choice", "warning", "R16.5"),
    FindingKind("ACT603", "endorsement", "info", "R16.3"),
    FindingKind("ACT604", "declared-harmless", "info", "R16.8"),
)
CATALOGUE: Final = {entry.code: entry for entry in _ENTRIES}
"""Code -> kind of finding."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: a code of the catalogue, a sentence, and what to do about it."""

    code: str
    message: str
    calls: tuple[int, ...] = ()
    """The indexes of the calls concerned."""
    pointer: str | None = None
    """JSON pointer into the submission, where the finding is about one place in it."""
    remedy: str | None = None
    """Advice, with the corrected text where there is one."""
    way: Mapping[str, Any] | None = field(default=None, hash=False)
    """The `source`, the call with the `effect` and the calls between (`way`) of a finding on trust (SPEC R16.5)."""

    @property
    def name(self) -> str:
        """The code in words, such as `race`."""
        return CATALOGUE[self.code].name

    @property
    def severity(self) -> str:
        """`warning`, `info` or `note`."""
        return CATALOGUE[self.code].severity

    @property
    def rule(self) -> str:
        """The rule of the specification, such as `R6.4`."""
        return CATALOGUE[self.code].rule

    def to_dict(self) -> dict[str, Any]:
        """The finding as data."""
        keys = ("code", "name", "severity", "message", "calls", "pointer", "remedy", "rule")
        return {key: getattr(self, key) for key in keys} | {"calls": list(self.calls), **(self.way or {})}


def on_call(plan: CheckedPlan, code: str, call: Call, why: str, remedy: str, *at: str | int) -> Finding:
    """The finding on one call, at a place in it."""
    where = pointer(*plan.submission.place(call.index), *at)
    return Finding(code, f"call {call.index} ({call.tool}) {why}", (call.index,), where, remedy)


def listed(items: Iterable[object]) -> str:
    """The first few of several, and how many more there are."""
    return some_of(list(items), limits.MOST_NAMED)


# Drawing: the graph as a Mermaid flowchart (SPEC R6.7).
#
# Activities are boxes, delegates have double sides, latent calls round ends, and calls that are sent and forgotten
# lean. An arrow names the path that carries the value.

_ERRORS: Final = Reference(ERROR)

_ENTITIES: Final = str.maketrans({"#": "#35;", "&": "&amp;", '"': "&quot;", "<": "&lt;", ">": "&gt;", "|": "#124;"})
_Edge = tuple[int, int]


class ArrowKind(StrEnum):
    """The condition under which a value passes along an arrow."""

    READS = "reads"
    """Whenever the writer has one."""
    BRANCH = "branch"
    """Only if the writer chooses this branch."""
    ALTERNATIVE = "alternative"
    """The value is read only where no other value is there."""
    AFTER = "after"
    """Never: the reader only waits until the writer has ended (SPEC R6.8)."""


@dataclass(frozen=True, slots=True)
class Arrow:
    """The places of a writer that a reader reads."""

    writer: int
    reader: int
    places: tuple[Reference, ...]
    kind: ArrowKind
    is_branch: bool
    """True where the writer has several branches, or is read for its error."""


_LINES: Final = {
    ArrowKind.READS: ("-->", ""),
    ArrowKind.BRANCH: ("-.->", "if "),
    ArrowKind.ALTERNATIVE: ("-.->", "or "),
    ArrowKind.AFTER: ("-.->", "after "),
}


_SHAPES: Final = {
    Executor.ACTIVITY: ("[", "]", ""),
    Executor.DELEGATE: ("[[", "]]", ":::delegate"),
    Executor.LATENT: ("([", "])", ":::latent"),
}
_BACKGROUND: Final = ("[/", "/]", ":::background")
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
        if not call.is_thought:
            lines.append(f"    c{call.index}{_node(call, instances.get(call.index, 1), annotated=annotated)}")
    for arrow in arrows(calls, edges):
        after = " ?" if not annotated and arrow.is_branch else ""  # a branch is marked with a question mark
        line, before = _LINES[arrow.kind] if annotated else ("-->", "")
        label = _escaped(", ".join(f"{place}{after}" for place in arrow.places))
        lines.append(f'    c{arrow.writer} {line}|"{before}{label}"| c{arrow.reader}')
    if (left := len(edges) - limits.MOST_ARROWS) > 0:
        lines.append(f"    %% {left} more arrows are not drawn: the edges of the plan list all")
    return "\n".join([*lines, *(_styles(edges) if annotated else ())]) + "\n"


def _styles(edges: Sequence[_Edge]) -> Iterator[str]:
    fanning = [f"c{writer}" for writer, readers in Counter(writer for writer, _ in edges).items() if readers > 1]
    yield "    classDef delegate fill:#e8f0fe,stroke:#3367d6,color:#000"
    yield "    classDef latent fill:#fef7e0,stroke:#b06000,color:#000"
    yield "    classDef background fill:#f1f3f4,stroke:#80868b,color:#000,stroke-dasharray:4 3"
    yield from (f"    style {node} stroke-width:3px" for node in fanning)


def arrows(calls: Sequence[Call], edges: Sequence[_Edge]) -> Iterator[Arrow]:
    """The arrows for edges, at most `limits.MOST_ARROWS` of them."""
    by_index = {call.index: call for call in calls}
    read: dict[int, tuple[ReadPlaces, ReadPlaces]] = {}
    after: dict[int, ReadPlaces] = {}
    for index, reader in edges[: limits.MOST_ARROWS]:
        if reader not in read:
            call = by_index[reader]
            read[reader] = ReadPlaces(places_read(call)), ReadPlaces(places_read_first(call))
            after[reader] = ReadPlaces(places_after(call))
        found = _arrow(by_index[index], reader, *read[reader])
        if not found.places and (places := tuple(filter(after[reader].overlap, by_index[index].written))):
            found = Arrow(index, reader, places, ArrowKind.AFTER, is_branch=False)
        yield found


def _arrow(writer: Call, reader: int, reads: ReadPlaces, first: ReadPlaces) -> Arrow:
    places = tuple(place for place in dict.fromkeys(writer.written) if reads.overlap(place))
    is_branch = len(writer.alternatives) > 1
    if not places and reads.overlap(_ERRORS):
        return Arrow(writer.index, reader, (_ERRORS,), ArrowKind.BRANCH, is_branch=True)
    if not _is_certain(writer, reads):
        return Arrow(writer.index, reader, places, ArrowKind.BRANCH, is_branch)
    kind = ArrowKind.READS if any(map(first.overlap, writer.written)) else ArrowKind.ALTERNATIVE
    return Arrow(writer.index, reader, places, kind, is_branch)


def _is_certain(writer: Call, reads: ReadPlaces) -> bool:
    """Whether every branch of the writer writes something that is read."""
    return all(any(map(reads.overlap, group)) for group in writer.alternatives)


def _node(call: Call, instances: int, *, annotated: bool) -> str:
    label = _escaped(f"{call.index} {call.tool}")
    if call.instance is not None and call.instance != EVERYWHERE:
        label += f"<br/>{_escaped(call.instance)}"
    elif instances > 1:
        label += f"<br/>× {instances} instances"
    before, after, class_ = _BACKGROUND if call.is_fire_and_forget else _SHAPES[call.runner.executor]
    return f'{before}"{label}"{after}{class_ if annotated else ""}'


def _escaped(text: str) -> str:
    """Text inside a label's quotes: no quotes, no mark-up, no line breaks."""
    line = " ".join(shortened(text, 100).split())
    return line.translate(_ENTITIES)


def is_ignored(finding: Finding, ignored: Container[str]) -> bool:
    """Whether a finding is left out, by its code or its name."""
    return finding.code in ignored or finding.name in ignored


def ignored_in(config: object) -> frozenset[str]:
    """The codes and names in `config.ignore`."""
    named = config.get("ignore") if isinstance(config, dict) else None
    return frozenset(name for name in named if isinstance(name, str)) if isinstance(named, list) else frozenset()
