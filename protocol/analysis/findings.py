"""Findings: what is worth knowing of a valid submission and is no error (SPEC R6.7).

What a code means, how severe it is and which rule it rests on is said once, in the `catalogue`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from ..calls.call import Call
from ..calls.tools import Executor
from ..errors import pointer, shortened
from ..messages import ERROR, EVERYWHERE
from ..plan.graph import ReadPlaces, places_read, places_read_first
from ..plan.layout import Layout
from ..references import Reference

# The catalogue: every finding there is, in one table (SPEC R6.7). From it comes the reference page, too.


@dataclass(frozen=True, slots=True)
class Entry:
    """What a code stands for."""

    code: str
    name: str
    severity: str
    """`warning`: what is written can hardly be meant. `info`: worth a look. `note`: no reason to change anything."""
    rule: str
    meaning: str
    remedy: str
    """An example of what to do."""


# fmt: off
_ENTRIES: Final = (
    # Order and data flow
    ("ACT101", "unreachable", "warning", "R6.6",
     "A call can never run: the values that it reads never exist in one and the same run.",
     "Write `||` between values that exclude each other: `†state.refund || †state.order`."),
    ("ACT103", "race", "warning", "R6.4",
     "Two calls write one place, and neither waits for the other: the value of the one that ends last counts.",
     "Let one call read what the other writes."),
    ("ACT104", "depends-on-timing", "warning", "R6.1",
     "A call reads a place where a call listed after it writes. It does not wait for that, so either may be first.",
     "List the reader after the writer."),
    # Values and types
    ("ACT201", "type-misfit", "warning", "R4.1",
     "A call reads a result whose schema never fits its tool or the signature of its activity.",
     "Read another field, or change one of the two schemas."),
    ("ACT202", "value-misfit", "warning", "R4.1",
     "A call reads a value of the context that its tool does not admit.",
     "Change the value, or read another place."),
    ("ACT203", "kind-misfit", "warning", "R4.6",
     "A call writes what the schema of the kind never admits at that place.",
     "Change the path, or one of the two schemas."),
    ("ACT204", "unknown-field", "warning", "R4.6",
     "A call reads a field that the `_output` of its writer does not have, or lists others and not this one.",
     "write †state.var1.name"),
    ("ACT205", "wrong-container", "warning", "R3.5",
     "A path has an index into an object, or where nothing makes a list, or a key into a list or a scalar.",
     "write †state.var1.0.name to read the first element"),
    ("ACT206", "method-misfit", "warning", "R3.2",
     "A result can never be written by its `_outputMethod`: `assign` takes objects, `concat` lists and strings.",
     "Change the `_outputMethod`."),
    ("ACT207", "delegate-misfit", "info", "R9.2",
     "A call gives or reads what never fits the input that its delegate declares: the delegate has to make do with it.",
     "Give or read something else, or change one of the two schemas."),
    ("ACT208", "never-written", "warning", "R4.6",
     "The schema of a kind requires a property that no call writes and the context does not hold.",
     "let a call write †state.total, or do not require it"),
    ("ACT209", "signature-misfit", "warning", "R4.1a",
     "A declared tool admits a call, and the activity behind it needs another parameter or does not take one.",
     "write userId"),
    ("ACT299", "incomplete", "note", "R6.7",
     "The submission is so large that not all of it was examined.",
     "Check it in parts."),
    # Texts and slips
    ("ACT301", "forgotten-dagger", "warning", "R2.2",
     "A parameter is a text that names a known place and has no `†`, or white space before it.",
     "write †state.user.name"),
    ("ACT302", "foreign-template", "warning", "R2.2",
     "A parameter is a template of another system, such as `{{state.x}}`, `$state.x` or `#E1`: it stays a text.",
     "write †state.x"),
    ("ACT303", "misspelt-property", "warning", "R4",
     "A property has nearly the name of a meta-property, such as `_outputpath` or `output_path`, and no effect.",
     "write _outputPath"),
    ("ACT304", "foreign-property", "warning", "R4",
     "A property of another system, such as `_dependsOn` or `_if`, has no effect.",
     "a call waits for what it reads: read what the other call writes"),
    ("ACT305", "embedded-reference", "info", "R2.6",
     "A reference, or a template of another system, stands inside a longer text: only `†{…}` is read there.",
     "write Dear †{input.name}"),
    ("ACT307", "output-path-without-dagger", "warning", "R2.5",
     "An `_outputPath` without `†` begins with a kind: `state.x` leads to `†state.state.x`.",
     "write †state.x"),
    ("ACT308", "forgotten-kind", "warning", "R2.3",
     "An alternative (`||`) lacks its kind: `†var1.x` where `†state.var1.x` is known.",
     "write †state.var1.x"),
    ("ACT309", "dead-alternative", "info", "R2.3",
     "An alternative (`||`) never exists: the context does not hold it and no call writes it.",
     "leave the alternative out"),
    ("ACT310", "unknown-parameter", "info", "R4.1",
     "A parameter that the tool does not name has nearly the name of one that it names and the call leaves out.",
     "write userId"),
    # Scopes, tools, settings and messages
    ("ACT401", "misspelt-scope", "warning", "R8.1",
     "A scope has no value, and nearly the name of one that has.",
     "write †state.user"),
    ("ACT402", "scope-of-an-instance", "warning", "R8.2",
     "A scope has no value for a call without `_instance`: only instances have values there.",
     'give the call "_instance": "①"'),
    ("ACT403", "wide-scope", "note", "R8.3a",
     "A call waits for others only because all of a kind is in its `_scopes`.",
     "list the places that it needs, such as †state.user"),
    ("ACT404", "idle-property", "warning", "R4.3",
     "An `_outputMethod` without `_outputPath`, or an `_output` where code gives the result, has no effect.",
     "add an _outputPath"),
    ("ACT405", "missing-output-path", "warning", "R5.1",
     "A call has no `_outputPath`, and its tool says what that may be, or its code or its delegate gives a result.",
     "add an _outputPath, such as †state.summary"),
    ("ACT406", "wrapped-tool", "warning", "R4.1",
     "A tool has the schema of its calls under `parameters` or `input_schema`, where it has no effect.",
     "replace the declaration by what stands under parameters"),
    ("ACT407", "hidden-data", "warning", "R1.3",
     "A flat message has `title` or `description`: they describe the message and are no data.",
     'put the data under "data"'),
    ("ACT408", "dropped-wait", "note", "R8.3a",
     "A call does not wait for another one that writes in its `_scopes`, since that one waits for it.",
     "list the places that it needs, such as †state.user"),
    ("ACT409", "advisor-not-asked", "info", "R15.1",
     "An advisor is to be asked at another moment than `request`: it is kept, and not asked.",
     'write "on": "request"'),
    ("ACT411", "gathered-in-sight", "note", "R8.3b",
     "What is gathered from all instances lies where `_scopes` of instances' calls read: each sees those of others.",
     "write it to a kind of its own, such as †summary, or list narrower scopes"),
    ("ACT412", "hidden-input", "info", "R9.2",
     "A parameter of a delegate's call has the name of a value in its scoped `input`, and hides that from it.",
     'give the parameter another name, or leave †input.text out of "_scopes"'),
    ("ACT413", "unenforced", "info", "R12.6",
     "The model's provider cannot enforce a part of a tool's schema: what is written there is only validated.",
     'say "additionalProperties": false'),
    ("ACT414", "misspelt-type", "warning", "R1.1",
     "A message has an unknown type, and nearly the name of a known one: it is kept, and nothing reads it.",
     'write "type": "text"'),
    ("ACT415", "uncallable-tool", "warning", "R12.4",
     "The schema of a request's tool admits no call at all, such as `minProperties: 1` in a closed object.",
     "name the parameters that it demands"),
    # Trust
    ("ACT601", "untrusted-parameter", "warning", "R16.5",
     "A call that changes something outside is given a parameter that decides and that others may have written.",
     "let a person approve the call"),
    ("ACT602", "untrusted-choice", "warning", "R16.5",
     "What others may have written has a say in whether a call runs that changes something outside.",
     "let a person approve the call"),
    ("ACT603", "endorsement", "info", "R16.3",
     "A delegate of the operator reads what others wrote, and its answer counts as trusted.",
     "look whether a wrong answer of that delegate would do harm"),
)
# fmt: on

CATALOGUE: Final = {entry[0]: Entry(*entry) for entry in _ENTRIES}
"""Code to entry. ACT1xx: order and data flow; ACT2xx: values and types; ACT3xx: texts and slips; ACT4xx: scopes, tools,
settings and messages; ACT6xx: trust.
"""


_MOST_NAMED: Final = 3


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
    """What to do, with the corrected text where there is one."""
    way: Mapping[str, Any] | None = field(default=None, hash=False)
    """Of a finding on trust the `source`, the call with the `effect`, and the calls between, the `way` (SPEC R16.5)."""

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
        """As JSON."""
        keys = ("code", "name", "severity", "message", "calls", "pointer", "remedy", "rule")
        return {key: getattr(self, key) for key in keys} | {"calls": list(self.calls), **(self.way or {})}


def on_call(layout: Layout, code: str, call: Call, why: str, remedy: str, *at: str | int) -> Finding:
    """The finding on one call, at a place in it."""
    where = pointer(*layout.submission.place(call.index), *at)
    return Finding(code, f"call {call.index} ({call.tool}) {why}", (call.index,), where, remedy)


def listed(items: Iterable[object]) -> str:
    """The first few of several, and how many more there are."""
    words = list(map(str, items))
    more = f" and {len(words) - _MOST_NAMED} more" if len(words) > _MOST_NAMED else ""
    return ", ".join(words[:_MOST_NAMED]) + more


# Drawing: the graph as a Mermaid flowchart (SPEC R6.7).
#
# Activities are boxes, delegates have double sides, latent calls round ends; what is sent and forgotten leans, and an
# arrow says which path carries the value.

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
