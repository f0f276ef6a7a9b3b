"""How a checked plan is written down, so that any worker can go on with any of its lanes.

The *definition* of a run is what all lanes share: tools, delegates and, for a plan, its templates. What is a lane's own
(the calls of a solution, and which places the initial context held) is in the lane's first entry, so loading a
lane costs nothing for the others.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Final

from ...protocol import Plan
from ...protocol.calls.call import Approvals, Call, make_call, read_approvals
from ...protocol.calls.declarations import merged
from ...protocol.calls.tools import Executor, Runner, Tool
from ...protocol.calls.trust import ENDORSES, NOTHING, OperatorTrust, ToolTrust, endorsement_problems, tool_trust_of
from ...protocol.messages import EVERYWHERE
from ...protocol.plan.checked_plan import CheckedPlan
from ...protocol.plan.config import is_simulation
from ...protocol.plan.graph import Graph, Writers
from ...protocol.plan.lanes import Lane
from ...protocol.plan.waits import Gathers, Waits
from ...protocol.references import Reference, parse
from ...protocol.trust import refuses_untrusted
from .. import limits
from ..broker.messages import pack, unpack
from ..errors import IsSimulation, OtherFormat

# Formats: which runs this version reads; one of another format is left to the workers of its version (SPEC R11.1).

FORMAT: Final = 5
"""Raised when a worker of the version before could not read what is written: it leaves such a run to the others."""


def require_format(number: int) -> None:
    """Raise `OtherFormat` where a run is of a format that is not read."""
    if number != FORMAT:
        raise OtherFormat(
            f"the run has format {number} and this version reads {FORMAT}: use the version that submitted it"
        )


def require_readable(definition: Mapping[str, Any]) -> None:
    """Raise `OtherFormat` where a run's definition is not read: of another format, or with a staged plan."""
    require_format(definition["format"])
    if "plan" in definition["config"]:  # the log of its loop has events that nothing follows
        raise OtherFormat("the run has a staged plan, which this version does not have: use the one that submitted it")


# Calls, tools and places as a definition and the records of lanes hold them.

BUDGET: Final = ("calls", "tokens", "money")
"""Limits in a loop's `config` that hold for workflows below it, too; a plan by itself has none of them."""
PLACES: Final = ("held", "promised", "required")
"""The fields of a record about the context (see `Lane`)."""


def pack_tools(tools: Mapping[str, Tool]) -> dict[str, Any]:
    """Tools by name, as they are declared."""
    return {name: dict(tool.declaration) for name, tool in tools.items()}


def unpack_tools(declarations: Mapping[str, Any]) -> dict[str, Tool]:
    """Read what `pack_tools` has written."""
    return {name: Tool(name, declaration) for name, declaration in declarations.items()}


def pack_calls(calls: Sequence[Call]) -> list[Any]:
    """Calls, each as index, text, executor, name, and the sources that its model was shown, where there are any."""
    return [[call.index, dict(call.raw), call.runner.executor.value, call.runner.name, *_told(call)] for call in calls]


def unpack_calls(calls: Sequence[Any], tools: Mapping[str, Tool]) -> tuple[Call, ...]:
    """Read what `pack_calls` has written; `tools` are those that the calls name."""
    return tuple(_call(tools, *packed) for packed in calls)


def _told(call: Call) -> list[list[str]]:
    return [sorted(call.prompt_labels)] if call.prompt_labels else []


def _call(
    tools: Mapping[str, Tool], index: int, raw: Mapping[str, Any], executor: str, name: str, told: Sequence[str] = ()
) -> Call:
    tool = tools.get(raw["_tool"])
    constants, inputs = (tool.constants, tool.inputs) if tool is not None else ({}, None)
    call = make_call(index, raw, constants, Runner(Executor(executor), name), inputs=inputs)
    return replace(call, prompt_labels=frozenset(told)) if told else call


def all_places_of(lane: Lane) -> dict[str, Any]:
    """The places that the context held or promised when a lane was laid out, as its record has them."""
    return {**_places_of(lane), "gathers": _places_of(lane.gathers) if lane.gathers is not None else None}


def _places_of(laid_out: Lane | Gathers) -> dict[str, frozenset[str]]:
    return {name: frozenset(map(str, getattr(laid_out, name))) for name in PLACES}


def pack_all_places(places: Mapping[str, Any]) -> dict[str, Any]:
    """Pack what `all_places_of` returns."""
    gathers = places["gathers"]
    return pack_places(places) | ({} if gathers is None else {"gathers": pack_places(gathers)})


def pack_places(places: Mapping[str, Any]) -> dict[str, list[str]]:
    """The places of a record, or of what it keeps."""
    return {name: sorted(places[name]) for name in PLACES if places[name] or name == "held"}


def unpack_gathers(fields: Mapping[str, Any] | None) -> Mapping[str, frozenset[str]] | None:
    """The places as the gather calls of the global lane saw them."""
    return None if fields is None else {name: frozenset(fields.get(name, ())) for name in PLACES}


# Trust: what a stored plan says of tools and code that decides what may be trusted (SPEC R16.1).

Trusts = Mapping[str, ToolTrust]
"""The trust in tools and code, by name."""
SaidHere = Callable[[Iterable[Call], Mapping[str, Any]], Trusts]
"""Finds the trust that this process' code and operator give calls, by the names of their tools and code; it gets the
definitions of the run's delegates, too.
"""


@dataclass(frozen=True, slots=True)
class Said:
    """The trust of calls by all who may define it: the run, this process's code and its operator (SPEC R16.1)."""

    all: Trusts
    added: Trusts
    """The part that the run does not have: calls may have begun, or ended, without it."""

    @property
    def relabels(self) -> bool:
        """Whether what the log holds of calls gets sources that it does not name."""
        return any(one.result for one in self.added.values())


def pack_trust(said: Trusts) -> dict[str, Any]:
    """Its field, unless it is empty."""
    return {"trust": {name: one.to_dict() for name, one in said.items()}} if said else {}


def unpack_trust(fields: Mapping[str, Any]) -> Trusts:
    """Read what `pack_trust` has written.

    A delegate endorses only if the definition beside it says so, with an answer of few values: a file that was imported
    may say more (SPEC R16.3).
    """
    said = {name: ToolTrust.read(one) for name, one in fields.get("trust", {}).items()}
    for name in [name for name, one in said.items() if one.endorses]:
        definition = fields["delegates"].get(name, {})
        if definition.get(ENDORSES) != said[name].endorses or any(endorsement_problems(definition)):
            said[name] = replace(said[name], endorses=False)
    return said


def both(before: Trusts, added: Trusts, defined: Collection[str] = ()) -> Trusts:
    """Join the trust of a run with an amendment's or a worker's: each can only add. A delegate that the
    amendment has `defined` endorses only if it says so: another definition may have answered before.
    """
    if not added and not defined:
        return before
    before = {name: replace(said, endorses=name not in defined and said.endorses) for name, said in before.items()}
    names = (*before, *(name for name in added if name not in before))
    return {name: ToolTrust.together(said[name] for said in (before, added) if name in said) for name in names}


@dataclass(frozen=True)
class AmendmentLayer:
    """Calls of a lane that had not begun when others were added (SPEC R11.7): they wait for none of those."""

    calls: tuple[Call, ...]
    before: int
    """The index of the first call that was added."""
    held: frozenset[str]
    promised: frozenset[str]
    required: frozenset[str]
    """The places as the lane's record had them until then."""
    unseen: frozenset[int] = frozenset()
    """Other calls of the lane that they wait for neither, as in the record."""


@dataclass(frozen=True)
class LaneRecord:
    """A lane's own part, as it was submitted or amended last."""

    calls: tuple[Call, ...] = ()
    held: frozenset[str] = frozenset()
    """The places that the context held then, of those that make a difference."""
    promised: frozenset[str] = frozenset()
    """The places that its calls read and that were only promised then."""
    required: frozenset[str] = frozenset()
    """The places that promises required then and that its scopes cover."""
    version: int | None = None
    """The version of the templates that the lane has besides its own calls."""
    gathers: Mapping[str, frozenset[str]] | None = None
    """The places, by the names above, as the gather calls of the global lane saw them here (SPEC R10.4)."""
    begun: frozenset[int] = frozenset()
    """Calls that were at work when the lane was amended: they wait for no other call."""
    amendment: str | None = None
    """Which amendment it was."""
    tick: int | None = None
    """Which tick of a loop brought its calls: their errors are appended when that tick is over (SPEC R13.1)."""
    kept: tuple[AmendmentLayer, ...] = ()
    stand_ins: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """For calls that a person has replaced, which are in `kept`, the calls that stand in for them (SPEC R14.2)."""
    unseen: frozenset[int] = frozenset()
    """Calls in `kept` that those of the record do not wait for: they stand in for one that had nothing to wait for."""
    before: bytes = b""
    """The record before it, where calls were added while a gather call waited: that goes on waiting by it."""
    data: bytes = field(default=b"", compare=False, repr=False)
    """The record as it was read."""

    def layers(self, calls: Iterable[Call], before: int) -> tuple[AmendmentLayer, ...]:
        """Choose the calls that stay where others are added, from that index on: each with what the context held when
        it came. What was at work then goes on waiting for no call.
        """
        left = {call.index: call for call in calls}
        layers = [
            replace(layer, calls=tuple(left.pop(call.index) for call in layer.calls if call.index in left))
            for layer in self.kept
        ]
        begun = tuple(left.pop(index) for index in sorted(self.begun & left.keys()))
        places = self.held, self.promised, self.required, self.unseen
        layers += [AmendmentLayer(begun, 0, *places), AmendmentLayer(tuple(left.values()), before, *places)]
        return tuple(layer for layer in layers if layer.calls)


@dataclass(frozen=True)
class StoredPlan:
    """The definition of a run, which its lanes share."""

    tools: Mapping[str, Tool]
    returns: Mapping[str, Tool]
    """The activities whose annotations count for results."""
    delegates: Mapping[str, Any]
    versions: tuple[tuple[Call, ...], ...]
    """A plan's templates, and those that amendments have put in their place."""
    awaited: frozenset[int]
    """The global calls that calls of instances wait for."""
    output: Any
    config: Mapping[str, Any]
    schema: Any = None
    """The schema of the output, where the solution was submitted with one."""
    allow: frozenset[str] | None = None
    """The names that its calls may use, also those of amendments; None allows all."""
    request: Mapping[str, Any] | None = None
    """The request that a model gets in each tick, where the run is a loop: `schema` and `tools`, as in a submission
    (SPEC R12.1).
    """

    is_lazy: bool = False
    """Whether nothing of it runs before its plan is approved (SPEC R10.2)."""
    contracts: Mapping[str, str] = field(default_factory=dict)
    """The marks of the contracts of activities that its calls were checked under (SPEC R17.2), by name."""
    trust: Trusts = field(default_factory=dict)
    """The trust in the tools and code of its calls, by name (SPEC R16.1)."""
    operator: OperatorTrust = field(default_factory=OperatorTrust)
    """The operator's trust in tools when it was submitted, which holds for later calls, too."""
    said_here: SaidHere | None = None
    """Finds the trust that this process adds; None where no call is started from here."""

    @property
    def has_budget(self) -> bool:
        """Whether its calls draw on a budget: those of a loop, and of a workflow below one (SPEC R9.4, R13.3)."""
        return self.request is not None or any(key in self.config for key in BUDGET)

    @property
    def refuses_untrusted(self) -> bool:
        """Whether a call with effects fails where others would decide on it, and is not held (SPEC R16.4)."""
        return refuses_untrusted(self.config)

    def said_of(self, calls: Iterable[Call]) -> Said:
        """Look up the trust of calls."""
        said = both(self.trust, self.said_here(calls, self.delegates)) if self.said_here is not None else self.trust
        if said is self.trust:
            return Said(said, {})
        return Said(said, {name: one for name, one in said.items() if one != self.trust.get(name, NOTHING)})

    @cached_property
    def submitted_with(self) -> OperatorTrust:
        """The trust in tools at its submission, for ticks, amendments and child runs; it endorses nothing."""
        by_name = {name: replace(said, endorses=False) for name, said in self.trust.items()}
        return self.operator | OperatorTrust(by_name)

    def has_effects(self, call: Call) -> bool:
        """Whether a call changes something outside: it says so, or that it runs at most once."""
        trust = self.trust_of(call)
        return trust.effects or trust.once

    def trust_of(self, call: Call) -> ToolTrust:
        """The trust in a call that the run was submitted with, or amended."""
        return tool_trust_of(self.trust, call.tool, call.runner.name)

    @cached_property
    def is_template(self) -> bool:
        """Whether its calls run once for each instance, as a plan's do."""
        return not all(call.is_everywhere for call in self.versions[0])

    @cached_property
    def approvals(self) -> Approvals:
        """Which calls a person decides on (SPEC R14.1)."""
        return read_approvals(self.config)

    def lane_calls(self, record: LaneRecord, instance: str | None) -> tuple[Call, ...]:
        """The calls of a lane: its own, or the templates that are not pinned to another instance."""
        if record.kept:
            kept = tuple(call for layer in record.kept for call in layer.calls)
            return (*kept, *self.lane_calls(replace(record, kept=()), instance))
        if record.version is None:
            return record.calls
        templates = self.versions[record.version]
        if instance is None and any(call.gather for call in templates):
            return (*record.calls, *(call for call in templates if call.gather))
        own = (call for call in templates if call.instance in (None, EVERYWHERE, instance) and not call.gather)
        return (*record.calls, *own)

    def require_real(self, run: str) -> None:
        """Raise `IsSimulation` for the definition of a simulation: no other run goes on from it (SPEC R12.10)."""
        if is_simulation(self.config):
            raise IsSimulation(run)

    def are_same_everywhere(self, record: LaneRecord) -> bool:
        """Whether all instances with this record have the same calls."""
        if record.version is None or record.calls or record.kept:
            return False
        return all(call.instance in (None, EVERYWHERE) for call in self.versions[record.version])

    def amended(self, data: bytes) -> StoredPlan:
        """The definition as an amendment leaves it (see `pack_amendment`)."""
        fields = unpack(data)
        tools = {**self.tools, **unpack_tools(fields["tools"])}
        return replace(
            self,
            tools=tools,
            returns={**self.returns, **unpack_tools(fields.get("returns", {}))},
            delegates={**self.delegates, **fields["delegates"]},
            versions=(*self.versions, unpack_calls(fields["templates"], tools)),
            awaited=self.awaited | frozenset(fields["awaited"]),
            contracts=merged(self.contracts, fields.get("contracts", {})),
            trust=both(self.trust, unpack_trust(fields), fields["delegates"]),
        )

    def graph(self, calls: Sequence[Call], record: LaneRecord, shared: Sequence[Call]) -> Graph:
        """The graph of the lane's calls; `shared` are the global calls it can see."""
        kept = {call.index for layer in record.kept for call in layer.calls}
        own = [call for call in calls if call.index not in record.begun and call.index not in kept]
        seen = [call for call in calls if call.index not in record.unseen]
        graph = _graph(own, writers_of(seen, shared, self.failing(seen)), record)
        for layer in record.kept:
            own, others = ([call for call in seen if call.index < layer.before] for seen in (calls, shared))
            own = [call for call in own if call.index not in layer.unseen]
            graph = graph.beside(_graph(layer.calls, writers_of(own, others, self.failing(own)), layer))
        return graph

    def failing(self, calls: Iterable[Call]) -> Iterable[Call]:
        """Choose the calls whose errors others wait for: none in a loop (SPEC R3.1, R13.1)."""
        return calls if self.request is None else ()


def digest_of_calls(calls: Iterable[Call], tools: Mapping[str, Tool], delegates: Mapping[str, Any]) -> str:
    """The digest of a plan by its calls and everything that they name: what people approve (SPEC R9.5, R10.2)."""
    raw = {call.index: dict(call.raw) for call in calls}
    declared = dict(sorted(pack_tools(tools).items()))
    return hashlib.sha256(pack([[raw[index] for index in sorted(raw)], declared, dict(delegates)])).hexdigest()


def digest_of_plan(plan: CheckedPlan) -> str:
    """The digest of a plan that is about to be run."""
    calls = (call for lane in plan.lanes.values() for call in lane.calls)
    return digest_of_calls(calls, plan.tools, plan.submission.delegates)


def pack_definition(plan: Plan) -> bytes:
    """The definition of a plan's run."""
    submission = plan.submission
    return pack(
        {
            "format": FORMAT,
            "tools": pack_tools(plan.tools),
            "returns": pack_tools(plan.returns),
            "delegates": dict(submission.delegates),
            "templates": pack_calls([call for call in plan.calls if submission.is_template or call.is_everywhere]),
            "awaited": sorted(plan.awaited),
            "output": submission.output,
            "schema": None if submission.is_request else submission.schema,
            "config": dict(submission.config),
            "allow": None if plan.allow is None else sorted(plan.allow),
            **({"request": _request(plan)} if submission.is_request else {}),
            **_pack_contracts(plan),
            **pack_trust(plan.trust),
            **({"operator": plan.operator.to_dict()} if plan.operator else {}),
            **({"lazy": True} if plan.waits_for_approval else {}),
        }
    )


def _pack_contracts(plan: CheckedPlan) -> dict[str, Any]:
    return {"contracts": dict(plan.contracts)} if plan.contracts else {}


def _request(plan: Plan) -> dict[str, Any]:
    """The request as it was submitted, but for its context: that is in the log."""
    tools, declared = plan.submission.tools, plan.submission.declared
    return {
        "schema": plan.submission.schema,
        "tools": [{name: dict(tools[name].declaration)} if name in tools else name for name in declared],
    }


def unpack_definition(data: bytes, said_here: SaidHere | None = None) -> StoredPlan:
    """The definition, from its bytes; to be read only. Runs of one kind have the same bytes, and share what is compiled
    of them. Raises `OtherFormat`.
    """
    read = _kept_definition if len(data) <= limits.KEPT_PLAN_BYTES else _read_definition
    return read(data, said_here)


@lru_cache(limits.PLANS_KEPT)
def _kept_definition(data: bytes, said_here: SaidHere | None) -> StoredPlan:
    return _read_definition(data, said_here)


def _read_definition(data: bytes, said_here: SaidHere | None = None) -> StoredPlan:
    fields = unpack(data)
    require_readable(fields)
    tools = unpack_tools(fields["tools"])
    return StoredPlan(
        tools=tools,
        returns=unpack_tools(fields.get("returns", {})),
        delegates=fields["delegates"],
        versions=(unpack_calls(fields["templates"], tools),),
        awaited=frozenset(fields["awaited"]),
        output=fields["output"],
        schema=fields.get("schema"),
        config=fields["config"],
        allow=None if fields.get("allow") is None else frozenset(fields["allow"]),
        request=fields.get("request"),
        contracts=fields.get("contracts", {}),
        trust=unpack_trust(fields),
        operator=OperatorTrust.read(fields.get("operator", {})),
        said_here=said_here,
        is_lazy=fields.get("lazy", False),
    )


def pack_lane(lane: Lane, *, is_template: bool) -> bytes:
    """The record in the first entry of a lane; null for calls means a plan's templates, a version besides them a
    solution's calls that run in every instance.
    """
    calls = None if is_template else [call for call in lane.calls if not call.is_everywhere]
    version = {"version": 0} if calls is not None and len(calls) < len(lane.calls) else {}
    packed = None if calls is None else pack_calls(calls)
    return pack({"calls": packed, **version, **pack_all_places(all_places_of(lane))})


def pack_amendment(plan: CheckedPlan, awaited: frozenset[int], before: StoredPlan | None = None) -> bytes:
    """Pack the part of an amendment that lanes share, for the global lane. Tools that the run has had `before` are left
    out.
    """
    tools, returns = (before.tools, before.returns) if before is not None else ({}, {})
    return pack(
        {
            "tools": pack_tools(_new_tools(plan.tools, tools)),
            "returns": pack_tools(_new_tools(plan.returns, returns)),
            "delegates": dict(plan.submission.delegates),
            "templates": pack_calls(plan.calls) if plan.submission.is_template else [],
            "awaited": sorted(awaited),
            **_pack_contracts(plan),
            **pack_trust(plan.trust),
        }
    )


def _new_tools(tools: Mapping[str, Tool], before: Mapping[str, Tool]) -> dict[str, Tool]:
    """Choose the tools that are not the same already."""
    kept = {name for name, tool in tools.items() if name in before and before[name].declaration == tool.declaration}
    return {name: tool for name, tool in tools.items() if name not in kept}


def pack_amended_lane(record: LaneRecord) -> bytes:
    """Pack a lane's own part of an amendment."""
    stand_ins = [[index, *found] for index, found in record.stand_ins.items()]
    return pack(
        {
            "calls": pack_calls(record.calls),
            **pack_all_places({name: getattr(record, name) for name in (*PLACES, "gathers")}),
            "version": record.version,
            "begun": sorted(record.begun),
            "amendment": record.amendment,
            **({"tick": record.tick} if record.tick is not None else {}),
            **({"kept": [_pack_layer(layer) for layer in record.kept]} if record.kept else {}),
            **({"stand_ins": stand_ins} if stand_ins else {}),
            **({"unseen": sorted(record.unseen)} if record.unseen else {}),
            **({"before": record.before} if record.before else {}),
        }
    )


def unpack_lane(data: bytes, tools: Mapping[str, Tool]) -> LaneRecord:
    """The lane's own part, from its bytes."""
    fields = unpack(data)
    calls = fields["calls"]
    return LaneRecord(
        calls=unpack_calls(calls or (), tools),
        held=frozenset(fields["held"]),
        promised=frozenset(fields.get("promised", ())),
        required=frozenset(fields.get("required", ())),
        gathers=unpack_gathers(fields.get("gathers")),
        version=fields.get("version", 0 if calls is None else None),
        begun=frozenset(fields.get("begun", ())),
        amendment=fields.get("amendment"),
        tick=fields.get("tick"),
        kept=tuple(_unpack_layer(layer, tools) for layer in fields.get("kept", ())),
        stand_ins={index: tuple(found) for index, *found in fields.get("stand_ins", ())},
        unseen=frozenset(fields.get("unseen", ())),
        before=fields.get("before", b""),
        data=data,
    )


def gather_counts(lanes: Iterable[Gathers | None]) -> Counter[int]:
    """Count for each gather call the lanes in which it has to wait for something; see commit.lua."""
    return Counter(index for gathers in lanes if gathers is not None for index in gathers.waiting)


def _pack_layer(layer: AmendmentLayer) -> dict[str, Any]:
    places = pack_places({name: getattr(layer, name) for name in PLACES})
    unseen = {"unseen": sorted(layer.unseen)} if layer.unseen else {}
    return {"calls": pack_calls(layer.calls), "before": layer.before, **places, **unseen}


def _unpack_layer(fields: Mapping[str, Any], tools: Mapping[str, Tool]) -> AmendmentLayer:
    places = {name: frozenset(fields.get(name, ())) for name in (*PLACES, "unseen")}
    return AmendmentLayer(unpack_calls(fields["calls"], tools), fields["before"], **places)


def _graph(calls: Sequence[Call], writers: Writers, places: LaneRecord | AmendmentLayer) -> Graph:
    return Waits(calls, writers).graph(*map(places_in, (places.held, places.promised, places.required)))


def writers_of(calls: Sequence[Call], shared: Sequence[Call], failing: Iterable[Call]) -> Writers:
    """The writers among a lane's calls and the global ones, each once, and those whose errors are read."""
    return Writers({call.index: call for call in (*calls, *shared)}.values(), failing=failing)


def places_in(texts: Iterable[str]) -> set[Reference]:
    """The places that a record names."""
    return {parse(text).references[0] for text in texts}
