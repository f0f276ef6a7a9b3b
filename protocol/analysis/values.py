"""Values: what a call reads and its tool can never take (SPEC R4.1, R3.5, R4.6).

A call with references is a schema: what its references read is what their writers promise. Where that and what the tool
admits have nothing in common, the call is sure to fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from protocol.calls.call import Call
from protocol.calls.delegates import input_schema
from protocol.calls.tools import Executor
from protocol.graph.lanes import Lane
from protocol.language.errors import pointer
from protocol.language.paths import MISSING, type_name
from protocol.language.references import Expression, Path, Reference
from protocol.submission.layout import Layout

from .algebra import EVERYTHING, Algebra, Values, is_empty, told
from .fields import Fields
from .finding import Finding
from .kind_schemas import kind_findings
from .signatures import convertible, signature_findings
from .type_flow import LaneFlow, Source, TypeFlow, flows, path_of

_MOST_NAMED: Final = 3


def value_findings(layout: Layout) -> Iterator[Finding]:
    """Everything that follows from schemas and values."""
    algebra = Algebra()
    flow = TypeFlow(layout, algebra)
    yield from _Reads(layout, algebra, flow).findings()
    yield from kind_findings(layout, algebra, flow)
    yield from signature_findings(layout)
    if not algebra.is_complete:
        yield Finding(
            "ACT299",
            "the schemas are so large or so many that not all of them were compared",
            remedy="check the submission in parts to have all of it looked at",
        )


@dataclass(frozen=True, slots=True)
class _Demand:
    """What is admitted where an expression stands, and by whom."""

    code: str
    whose: str
    values: Values


@dataclass
class _Group:
    """Findings that say the same, of the calls of two tools or of many instances: the first stands for all."""

    first: Finding
    calls: dict[tuple[int, ...], None] = field(default_factory=dict)
    instances: dict[str | None, None] = field(default_factory=dict)

    def merged(self) -> Finding:
        """The finding for all of them."""
        names = [name for name in self.instances if name is not None]
        more = f"; the same of {len(self.calls) - 1} more calls of these tools" if len(self.calls) > 1 else ""
        if len(self.calls) == 1 and len(names) > 1:
            listed = ", ".join(map(repr, names[:_MOST_NAMED])) + ", …" * (len(names) > _MOST_NAMED)
            more = f" (in {len(names)} instances: {listed})"
        return replace(self.first, message=self.first.message + more)


class _Reads:
    """Looks at every reference of every call."""

    def __init__(self, layout: Layout, algebra: Algebra, flow: TypeFlow) -> None:
        self._layout = layout
        self._algebra = algebra
        self._flow = flow
        self._fields = Fields(layout, algebra, flow)
        self._signatures = {name: convertible(dict(schema)) for name, schema in layout.signatures.items()}
        self._demanded: dict[tuple[str, str, Path], list[_Demand]] = {}
        self._groups: dict[tuple[Any, ...], _Group] = {}

    def findings(self) -> Iterator[Finding]:
        """One finding for each pair of tools and parameter that do not fit."""
        for flow, lanes in flows(self._layout, self._flow):
            for call in flow.lane.calls:
                if call.gather:
                    continue  # it reads objects of instances, or plain values (SPEC R10.4)
                for at, expression in call.reads if not call.is_thought else ():
                    self._look(flow, lanes, call, at, expression)
        yield from (group.merged() for group in self._groups.values())

    def _look(self, flow: LaneFlow, lanes: Sequence[Lane], call: Call, at: str, expression: Expression) -> None:
        for group in expression.alternatives:
            for place in group:
                # Of several places joined by && the last gives the value; the others need only be there.
                wanted = self._demands(call, at) if place == group[-1] else []
                for lane in lanes:
                    sources = flow.sources(call, place, self._layout.context.fold(lane.instance))
                    self._judge(lane, call, at, place, sources, wanted)
                    if all(source.value is MISSING for source in sources):
                        break  # it is the same in all of them

    def _judge(
        self, lane: Lane, call: Call, at: str, place: Reference, sources: Sequence[Source], wanted: list[_Demand]
    ) -> None:
        faults = [self._fields.fault(call, place, source) for source in sources]
        if faults and all(fault is not None for fault in faults):
            fault = faults[0]
            assert fault is not None
            why = f"{_reads(call, place, at)}, and {fault.why}"
            self._note(fault.code, why, fault.instead, lane, call, at, sources)
            return
        for demand in wanted:
            if sources and not any(self._fits(source, demand) for source in sources):
                given, takes = sources[0], f"{demand.whose} {told(demand.values)}"
                who = f"call {given.writer.index} ({given.writer.tool})" if given.writer is not None else "the input"
                code, why = demand.code, f"{who} promises {told(given.values)}, and {takes}"
                advice = f"read another field, or change what {who} promises or what {demand.whose}"
                if given.value is not MISSING:
                    code, advice = "ACT202", "change the value, or read another place"
                    why = f"the context holds a {type_name(given.value)} that does not fit: {takes}"
                self._note(code, f"{_reads(call, place, at)}, where {why}", advice, lane, call, at, sources)
                return

    def _note(
        self, code: str, why: str, remedy: str, lane: Lane, call: Call, at: str, sources: Sequence[Source]
    ) -> None:
        writers = [source.writer for source in sources if source.writer is not None]
        calls = tuple(sorted({call.index, *(writer.index for writer in writers)}))
        same = (writers[0].tool, call.tool, at) if writers else (None, call.tool, at)
        finding = Finding(code, why, calls, pointer(*self._layout.submission.place(call.index)) + at, remedy)
        group = self._groups.setdefault((code, *same), _Group(finding))
        group.calls[calls] = None
        group.instances[lane.instance] = None

    def _fits(self, source: Source, demand: _Demand) -> bool:
        given = source.values if source.value is MISSING else self._algebra.only(source.value)
        if is_empty(given):
            return True  # that is a fault of the path
        return self._algebra.fit(given, demand.values)

    def _demands(self, call: Call, at: str) -> list[_Demand]:
        """What is admitted where an expression stands: by the tool, the signature of its activity, its delegate."""
        path = path_of(call, at)
        key = (call.tool, call.runner.name, path)
        if key not in self._demanded:
            made = ((each, self._algebra.along(each.values, path)) for each in self._whole(call))
            self._demanded[key] = [replace(each, values=part) for each, part in made if part != EVERYTHING]
        return self._demanded[key]

    def _whole(self, call: Call) -> Iterator[_Demand]:
        submission, name = self._layout.submission, call.runner.name
        if (tool := self._layout.tools.get(call.tool)) is not None:
            yield _Demand("ACT201", f"{call.tool} takes", self._algebra.described_by(tool.document))
        if call.runner.executor is Executor.ACTIVITY and name in self._signatures:
            whose = f"the signature of its activity {name} takes"
            yield _Demand("ACT201", whose, self._algebra.described_by(self._signatures[name]))
        if call.runner.executor is Executor.DELEGATE and name in submission.delegates:
            schema = input_schema(submission.delegates[name].get("context", ()))
            schema = True if schema is MISSING else schema
            yield _Demand("ACT207", f"its delegate {name} declares", self._algebra.described_by(schema))


def _reads(call: Call, place: Reference, at: str) -> str:
    return f"call {call.index} ({call.tool}) reads {place} at {at}"
