"""A checked plan: the calls of a valid submission as they will run: in which lanes, in what order (SPEC R6.7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, Final

from .. import limits
from ..calls.built_in import is_built_in
from ..calls.call import Call, asks, completed, read_approvals
from ..calls.declarations import has_own_run, input_schema
from ..calls.tools import ANONYMOUS, Executor, Runner, Tool
from ..calls.trust import NOTHING, OperatorTrust, ToolTrust, tool_trust_of
from ..errors import Problem, pointer
from ..paths import MISSING, parts_of
from ..references import Reference
from ..state.context import Context
from ..trust import refuses_untrusted
from .graph import Graph, ReadPlaces
from .lanes import Lane, Unresolvable
from .places import KIND, Promises
from .submission import Submission
from .waits import CrossLaneGraph


@dataclass(frozen=True, slots=True)
class Promised:
    """A place that a promise names and that has no value yet (SPEC R6.3)."""

    place: Reference
    instance: str | None
    """The instance in which the value is missing, None for all."""
    schema: Any
    needed: bool
    """True where a call waits for the value, or its promise requires it."""
    at: int
    """The position of the promise in the context."""

    def to_dict(self) -> dict[str, Any]:
        """The promised property as data."""
        return {"place": str(self.place), "instance": self.instance, "schema": self.schema, "needed": self.needed}


@dataclass(frozen=True)
class CheckedPlan:
    """The result of a check; everything else that is known before a run follows from it."""

    submission: Submission
    context: Context
    calls: tuple[Call, ...]
    lanes: Mapping[str | None, Lane]
    tools: Mapping[str, Tool] = field(default_factory=dict)
    """Every tool that a call names, declared or derived from an activity."""
    signatures: Mapping[str, Tool] = field(default_factory=dict)
    """The tools that activities are by their signatures, as far as a backend knows them."""
    contracts: Mapping[str, str] = field(default_factory=dict)
    """Activity -> the mark of the contract that its calls were checked under (SPEC R17.2)."""
    allow: frozenset[str] | None = None
    """The only names that its calls may use; None for any."""
    queued: frozenset[str] = frozenset()
    """The activities with a queue of their own, as far as a backend knows them."""
    giving: frozenset[str] = frozenset()
    """The delegates in code that declare their result, as far as a backend knows them."""
    reach: Mapping[str, ToolTrust] = field(default_factory=dict)
    """Delegate or activity -> its trust. A delegate's includes the trust of all it can call (R16.3). Activities are
    those that delegates, or the model of a request, may call.
    """
    asked: ToolTrust = NOTHING
    """The trust of all that the model of a loop can call, with the labels of the context."""
    operator: OperatorTrust = field(default_factory=OperatorTrust)
    """The labels that the operator gives to tools, kept with the run."""
    is_approved: bool = False
    """Whether its digest was approved before, for all runs of it (SPEC R9.5)."""

    @cached_property
    def returns(self) -> Mapping[str, Tool]:
        """The activities, as tools, of calls whose own tools do not declare a result (SPEC R4.6)."""
        silent = {name for name, tool in self.tools.items() if tool.compiled_output is None}
        names = {call.runner.name for call in self.calls if call.tool in silent} & self.signatures.keys()
        return {name: tool for name in sorted(names) if (tool := self.signatures[name]).compiled_output}

    @cached_property
    def trust(self) -> Mapping[str, ToolTrust]:
        """Tool, activity or delegate that calls name or may name -> its trust, where it has any (SPEC R16.1)."""
        names = dict.fromkeys((*(name for call in self.calls for name in (call.tool, call.runner.name)), *self.reach))
        trusts = {name: ToolTrust.together(self._tool_trust_of(name)) for name in names}
        return {name: trust for name, trust in trusts.items() if trust}

    @property
    def refuses_untrusted(self) -> bool:
        """Whether a call with effects fails where others would decide on it, and is not held (SPEC R16.4)."""
        return refuses_untrusted(self.submission.config)

    def _tool_trust_of(self, name: str) -> Iterator[ToolTrust]:
        for tools in (self.tools, self.signatures, self.submission.tools):
            if (tool := tools.get(name)) is not None:
                yield tool.trust
        yield self.reach.get(name, NOTHING)
        yield self.operator.of(name)

    def resources_of(self, call: Call) -> set[str]:
        """The names of what a call reads or changes outside, by its tool and its code (SPEC R6.8)."""
        tools = self.tools.get(call.tool), self.signatures.get(call.runner.name)
        return {tool.resource for tool in tools if tool is not None and tool.resource is not None}

    @property
    def held(self) -> tuple[int, ...]:
        """The calls that a person has to approve before they run (SPEC R14.1)."""
        approvals = read_approvals(self.submission.config)
        return tuple(call.index for call in self.calls if approvals.hold(call))

    @property
    def size(self) -> int:
        """The number of calls that will run, over all instances."""
        return sum(len(lane.calls) for lane in self.lanes.values())

    @property
    def waits_for_approval(self) -> bool:
        """Whether nothing of it runs before somebody has approved it (SPEC R10.2); of a loop each tick's plan waits."""
        is_lazy = self.submission.is_lazy and not self.submission.is_request and self.size > 0
        return is_lazy and not self.is_approved

    @cached_property
    def graphs(self) -> tuple[Graph, ...]:
        """The graphs of the lanes, each once."""
        return tuple({id(lane.graph): lane.graph for lane in self.lanes.values()}.values())

    @cached_property
    def dropped_waits(self) -> tuple[tuple[int, int], ...]:
        """Pairs (reader, writer) of scope waits that would close a cycle and are left out, over all lanes, the first
        thousand (SPEC R8.3a).
        """
        pairs = (pair for graph in self.graphs for left_out in graph.left_out for pair in left_out)
        return tuple(dict.fromkeys(islice(pairs, limits.MOST_DROPPED)))

    @cached_property
    def promised(self) -> tuple[Promised, ...]:
        """The places that the promises of the context name and that have no value yet (SPEC R6.3)."""
        found: dict[tuple[Reference, int, str | None], Promised] = {}
        shared = self.context.fold()
        for promise in Promises(self.submission.context).all:
            alike: set[int] = set()
            for instance, waited_for, graph in self._readers_of_promises:
                if promise.instance not in (None, instance):
                    continue
                fold = self.context.fold(instance)
                if fold.root(KIND) is shared.root(KIND):  # the same is missing there as in the lanes before
                    if graph in alike:
                        continue
                    alike.add(graph)
                needed = ReadPlaces((*promise.required(fold), *filter(promise.names, waited_for)))
                for place in promise.missing(fold):
                    everywhere = promise.instance is None and not shared.exists(place)
                    key = place, promise.at, None if everywhere else instance
                    is_needed = needed.overlap(place)
                    if key not in found or is_needed:
                        found[key] = Promised(place, key[2], promise.schema_of(place), is_needed, promise.at)
        return tuple(found.values())

    @property
    def _readers_of_promises(self) -> Iterator[tuple[str | None, tuple[Reference, ...], int]]:
        """For each lane its instance, the promised places that it waits for, and a number that like lanes share.

        The lanes of a request are not known yet: its calls may be in any instance.
        """
        if self.submission.is_request:
            yield from ((instance, (), 0) for instance in self.submission.instances or (None,))
        for lane in self.lanes.values():
            yield lane.instance, lane.promised_places, id(lane.graph)

    @cached_property
    def skipped(self) -> tuple[Unresolvable, ...]:
        """The expressions that calls can never read in an instance, so that they are skipped there (SPEC R6.3a)."""
        return tuple(
            replace(found, instance=lane.instance) for lane in self.lanes.values() for found in lane.unsatisfiable
        )

    @cached_property
    def readers(self) -> Mapping[int, Set[int]]:
        """Call -> the calls that wait for it, over all lanes; see `edges`."""
        found: dict[int, Set[int]] = {}
        seen: set[int] = set()
        gathering = {id(lane.gathers): lane.gathers.graph for lane in self.lanes.values() if lane.gathers is not None}
        for graph in (*self.graphs, *gathering.values()):
            for writer, readers in graph.readers_among(_unseen(graph, seen)).items():
                found[writer] = found[writer] | readers if writer in found else readers
        return found

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Pairs (writer, reader) of call indexes, over all lanes.

        Where a call waits for more than a few at one place, those that follow from the nearest are left out.
        """
        return tuple((writer, reader) for writer in sorted(self.readers) for reader in sorted(self.readers[writer]))

    @cached_property
    def awaited(self) -> frozenset[int]:
        """The global calls that calls of instances wait for."""
        shared = {call.index for call in self.lanes[None].calls} if None in self.lanes else set()
        own = {id(lane.graph): lane.graph for lane in self.lanes.values() if lane.instance is not None}
        own |= {id(lane.gathers): lane.gathers.graph for lane in self.lanes.values() if lane.gathers is not None}
        return frozenset({index for graph in own.values() for index in graph.awaited} & shared)

    @property
    def is_joined(self) -> bool:
        """Whether gather calls join the lanes (SPEC R10.4)."""
        return any(call.gather for call in self.calls)

    @cached_property
    def joined_levels(self) -> dict[int, int] | None:
        """Call -> the length of the longest chain of calls before it; None where no lanes are joined."""
        if not self.is_joined:
            return None
        shared = {call.index for call in self.lanes[None].calls}
        return CrossLaneGraph(((lane.graph, lane.gathers) for lane in self.lanes.values()), shared).levels()

    @cached_property
    def waves(self) -> tuple[tuple[int, ...], ...]:
        """Call indexes that can run at the same time, in order; passing thoughts do not run (SPEC R6.7)."""
        levels = self.joined_levels
        if levels is None:
            known = self.lanes[None].graph.levels({}) if None in self.lanes else {}
            levels = dict(known)
            for graph in self.graphs:
                for index, level in graph.levels(known).items():
                    levels[index] = max(levels.get(index, 0), level)
        waves: dict[int, list[int]] = {}
        for call in self.calls:
            if call.index in levels and not call.is_thought:
                waves.setdefault(levels[call.index], []).append(call.index)
        return tuple(tuple(waves[level]) for level in sorted(waves))


def _unseen(graph: Graph, seen: set[int]) -> list[int]:
    """The calls whose waits are not the same object as in a graph seen before.

    Calls behind barriers, with scopes or with `_after` are always among them: their nearest writers may differ between
    graphs.
    """
    waits = list(map(id, graph.waits.values()))
    calls = [
        index
        for index, own in zip(graph.waits, waits, strict=True)
        if graph.barriers or index in graph.scopes or index in graph.after or own not in seen
    ]
    seen.update(waits)
    return calls


# Resolution upfront: what delegates declare of input and output is part of their tools (SPEC R9.2).
#
# With `config.resolve: "upfront"` a tool that pins its `_delegate`, and one whose calls all name the same delegate, is
# narrowed by the definition of that delegate: a call must fit the input that the definition declares, and its result
# must fit the definition's schema. Models are shown the narrowed tools.

Definitions = Callable[[str], Mapping[str, Any] | None]
"""The definition of a registered delegate, where it is not code."""

_MERGED: Final = frozenset({"type", "properties", "required", "additionalProperties"})
_REFERRING: Final = frozenset({"$ref", "$dynamicRef", "$id"})
_WORDS: Final = frozenset({"title", "description", "$schema", "$comment", "examples", "default"})


def is_upfront(submission: Submission) -> bool:
    """Whether a submission asks for the resolution of delegates upfront."""
    return submission.config.get("resolve") == "upfront"


def narrowed_tools(submission: Submission, definitions: Definitions) -> Mapping[str, Tool]:
    """The tools of a submission, narrowed by the definitions of their delegates."""
    tools = dict(submission.tools)
    for name, delegate in _delegates(submission):
        definition = _definition(submission, delegate, definitions)
        if definition is not None and not any(_references(definition)):
            pinned = {"type": "object", "properties": {"_delegate": {"const": delegate}}}
            declaration = tools[name].declaration if name in tools else pinned
            tools[name] = Tool(name, _narrowed(declaration, definition))
    return tools


def upfront_problems(submission: Submission, definitions: Definitions) -> Iterator[Problem]:
    """Definitions that cannot be merged into their tools."""
    for _, delegate in _delegates(submission):
        definition = _definition(submission, delegate, definitions)
        for key in _references(definition or {}):
            where = pointer("delegates", delegate) if delegate in submission.delegates else pointer("config", "resolve")
            yield Problem(where, f"its {key} has a $ref, which cannot be merged into the tool: write the schema out")


def _delegates(submission: Submission) -> Iterator[tuple[str, str]]:
    """The tools that lead to one delegate each, with the name of the delegate."""
    named: dict[str, set[Any]] = {}
    for _, raw in submission.calls:
        if isinstance(raw, dict) and isinstance(raw.get("_tool"), str):
            delegate = completed(raw, {}).get("_delegate")
            named.setdefault(raw["_tool"], set()).add(delegate if isinstance(delegate, str) else None)
    for name, tool in submission.tools.items():
        if (pinned := tool.constants.get("_delegate")) is not None:
            named[name] = {pinned} if isinstance(pinned, str) else set()
    for name, delegates in named.items():
        if len(delegates) == 1 and not delegates & {None, ANONYMOUS}:
            yield name, next(iter(delegates))


def _definition(submission: Submission, delegate: str, definitions: Definitions) -> Mapping[str, Any] | None:
    own = submission.delegates.get(delegate)
    return own if isinstance(own, Mapping) else definitions(delegate)


def _references(definition: Mapping[str, Any]) -> Iterator[str]:
    """The schemas of a definition with a `$ref`, which would lead elsewhere inside a tool."""
    for key, schema in (
        ("input schema", input_schema(definition.get("context", ()))),
        ("schema", definition.get("schema")),
    ):
        if any(isinstance(part, dict) and part.keys() & _REFERRING for part in parts_of(schema)):
            yield key


def _narrowed(declaration: Mapping[str, Any], definition: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's schema joined with the input and output that a definition declares; idempotent."""
    narrowed = dict(declaration)
    schema = input_schema(definition.get("context", ()))
    if isinstance(schema, Mapping):
        own = dict(narrowed.get("properties") or {})
        for name, part in (schema.get("properties") or {}).items():
            own[name] = _both(own.get(name, MISSING), part)
        narrowed["properties"] = own
        if required := [*dict.fromkeys((*narrowed.get("required", ()), *schema.get("required", ())))]:
            narrowed["required"] = required
        if schema.get("additionalProperties") is False:
            narrowed["additionalProperties"] = False
        rest = {key: value for key, value in schema.items() if key not in _MERGED | _WORDS}
        if rest and rest not in (parts := narrowed.get("allOf", [])):
            narrowed["allOf"] = [*parts, rest]
    if definition.get("schema") not in (None, {}, True):
        inside = narrowed.get("properties") or {}
        if "_output" in inside:
            narrowed["properties"] = {**inside, "_output": _both(inside["_output"], definition["schema"])}
        else:
            narrowed["_output"] = _both(narrowed.get("_output", MISSING), definition["schema"])
    return narrowed


def _both(own: Any, other: Any) -> Any:
    """A schema that admits what both admit."""
    if own in (MISSING, None, True, {}) or own == other:
        return other
    if other in (True, {}) or (isinstance(own, Mapping) and other in own.get("allOf", ())):
        return own
    return {"allOf": [own, other]}


# Simulation: a plan without its code (SPEC R12.10).
#
# What code would answer, a model answers as an anonymous delegate: it is given the description of the tool, the
# parameters and what the scopes give, and no more than the code would see. A call with effects, and one that is sent
# and forgotten, stays what it is; it is recorded where it would start.


def simulated(layout: CheckedPlan, definitions: Definitions) -> CheckedPlan:
    """Make the plan of a simulation: models answer where code would."""
    runners = {call.index: _without_code(call, layout, definitions) for call in layout.calls}
    made: dict[int, tuple[Call, ...]] = {}
    for lane in layout.lanes.values():  # most instances share their calls
        if id(lane.calls) not in made:
            made[id(lane.calls)] = tuple(replace(call, runner=runners[call.index]) for call in lane.calls)
    calls = tuple(replace(call, runner=runners[call.index]) for call in layout.calls)
    lanes = {name: replace(lane, calls=made[id(lane.calls)]) for name, lane in layout.lanes.items()}
    return replace(layout, calls=calls, lanes=lanes)


def _without_code(call: Call, layout: CheckedPlan, definitions: Definitions) -> Runner:
    """Find out who answers a call in a simulation."""
    executor, name = call.runner.executor, call.runner.name
    if executor is Executor.LATENT or call.is_fire_and_forget or asks(call) or is_built_in(call):
        return call.runner
    if tool_trust_of(layout.trust, call.tool, name).effects:
        return call.runner
    definition = layout.submission.delegates.get(name) or definitions(name)
    is_one_request = isinstance(definition, Mapping) and not has_own_run(definition)
    return call.runner if executor is Executor.DELEGATE and is_one_request else _ANSWERED


_ANSWERED: Final = Runner(Executor.DELEGATE, ANONYMOUS)
"""Runner of a call that a model answers instead of code."""
