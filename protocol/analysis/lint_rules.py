"""Lint rules: scopes, tools, settings, messages and output paths that do not do what they seem to (SPEC R1.3,
R3.5, R4.1, R8).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress, groupby, islice
from operator import itemgetter
from typing import Any, Final

from .. import limits
from ..calls.call import Call, place_in, read_approvals
from ..calls.declarations import input_misfit, is_workflow
from ..calls.meta_properties import AFTER, ALIASES, BY_NAME
from ..calls.tools import Executor, Tool
from ..calls.trust import ToolTrust, tool_trust_of
from ..errors import Speller, pointer, segments, squeezed
from ..messages import DATA_TYPES, ERROR, TEXT_TYPES, is_written, kind_of, read_data
from ..near_misses import KnownPlaces, Literals, NearMiss, NearMisses, named_by, placeholder
from ..paths import MISSING, strings
from ..plan.checked_plan import CheckedPlan
from ..plan.config import ON_REQUEST, is_asked
from ..plan.graph import Readers, ReadPlaces, places_seen, scope_places, sees
from ..plan.places import KIND
from ..references import DAGGER, Reference, expression_in
from ..run_rules import RunRule, UserWords, is_certain, is_like
from ..schemas import conjuncts, excerpt
from ..schemas.algebra import Algebra, is_empty
from ..schemas.walk import value_at
from ..trust import TrustProof, Way
from .findings import Finding, listed, on_call

_TYPES: Final = sorted({*DATA_TYPES, *TEXT_TYPES, "advisor", "meta", "plan", "solution", "tool"})
_LIMITING: Final = ("enum", "oneOf", "anyOf", "pattern")
_DESCRIBING: Final = ("title", "description")
_NOT_WRITTEN: Final = ("input", ERROR)
"""Kinds that no call has to write: an input comes from outside, also later (SPEC R6.3)."""

_CALLS: Final = (("parameters",), ("input_schema",), ("inputSchema",), ("function", "parameters"))
"""Paths of the schema of the calls in the declarations of other systems."""
_RESULTS: Final = ("output_schema", "outputSchema")


def lint_findings(plan: CheckedPlan, places: KnownPlaces) -> Iterator[Finding]:
    """Findings about everything but the parameters of calls."""
    yield from _empty_scopes(plan, places)
    yield from _wide_scopes(plan)
    yield from _left_out(plan)
    yield from _unordered_effects(plan)
    yield from _idle_properties(plan)
    yield from _missing_paths(plan)
    yield from _wrapped_tools(plan)
    yield from _uncallable_tools(plan)
    yield from _hidden_data(plan)
    yield from _misspelt_types(plan)
    yield from _never_written(plan, places)
    yield from _not_asked(plan)
    yield from _gathered_in_sight(plan)
    yield from _hidden_inputs(plan, places)
    yield from _unfit_inputs(plan)
    yield from _indexes_of_nothing(plan, places)


def _gathered_in_sight(plan: CheckedPlan) -> Iterator[Finding]:
    """Values that are gathered from all instances and written into the scopes of instances' calls (SPEC R8.3b)."""
    is_template = plan.submission.is_template
    scoped = (call for call in plan.calls if not call.gather and (is_template or call.instance is not None))
    readers = Readers(scoped, scope_places)
    for call in islice((call for call in plan.calls if call.gather), limits.MOST_SCOPES):
        for place in call.written:
            if seeing := sorted(set(readers.at(place))):
                some = "call" if len(seeing) == 1 else "calls"
                why = f"gathers from all instances into {place}, which is in the _scopes of {some} {listed(seeing)}"
                why += ": each instance may see there what the others hold"
                remedy = f"write it to a kind of its own, such as †{call.tool}, or list narrower scopes"
                yield on_call(plan, "ACT411", call, why, remedy, *place_in(call.raw, "_outputPath"))


def _hidden_inputs(plan: CheckedPlan, places: KnownPlaces) -> Iterator[Finding]:
    """Parameters of delegates that take the place of what is in their scoped input (SPEC R9.2)."""
    for call in plan.calls:
        is_delegate = call.runner.executor is Executor.DELEGATE
        scoped = [scope for scope in call.scopes if scope.kind == KIND] if is_delegate else []
        seen = ReadPlaces(scoped)
        for name, value in call.parameters.items() if scoped else ():
            place = Reference(KIND, (name,))
            if value != str(place) and seen.overlap(place) and places.has(place):
                why = f"has the parameter {name!r}, which hides {place} of its _scopes from its delegate"
                remedy = f'give the parameter another name, or leave {place} out of "_scopes"'
                yield on_call(plan, "ACT412", call, why, remedy, name)


def _unfit_inputs(plan: CheckedPlan) -> Iterator[Finding]:
    """Parameters of delegates that do not fit the input they declare, whatever is read (SPEC R9.2).

    Missing parameters are no finding: they may come with the scopes.
    """
    definitions = plan.submission.delegates
    is_delegate = (call.runner.executor is Executor.DELEGATE and call.runner.name in definitions for call in plan.calls)
    for call in islice(compress(plan.calls, is_delegate), limits.MOST_DELEGATES):
        for problem in input_misfit(definitions[call.runner.name], call):
            if not problem.pointer or is_workflow(definitions[call.runner.name]):  # of a workflow it is an error
                continue
            why = f"does not fit the input that its delegate {call.runner.name} declares: {problem.message}"
            remedy = "change what the call gives, or the schema that the delegate declares"
            yield on_call(plan, "ACT207", call, why, remedy, *segments(problem.pointer))


def _indexes_of_nothing(plan: CheckedPlan, places: KnownPlaces) -> Iterator[Finding]:
    """Indexes in an output path where nothing makes the list: keys are meant (SPEC R3.5)."""
    written = ((call, place, depth) for call in plan.calls for place in call.written for depth in _indexes(place))
    for call, place, depth in islice(written, limits.MOST_SCOPES):
        above = Reference(place.kind, place.path[:depth])
        making = (each for other in plan.calls for each in other.written if depth not in _indexes(each))
        if places.is_held(above) or any(map(above.overlaps, making)):
            continue
        why = f"writes to {place}, where {place.path[depth]} is an index beyond the end of a list that nothing makes"
        key = Reference(place.kind, (*above.path, str(place.path[depth]), *place.path[depth + 1 :]))
        yield on_call(plan, "ACT205", call, why, f"write {key} for a key", *place_in(call.raw, "_outputPath"))


def _indexes(place: Reference) -> list[int]:
    """The depths of a path with an index above 0; the first segment is always a key."""
    return [depth for depth, segment in enumerate(place.path) if depth and isinstance(segment, int) and segment > 0]


def _not_asked(plan: CheckedPlan) -> Iterator[Finding]:
    """Advisors for another moment than the request (SPEC R15.1)."""
    for index, message in enumerate(plan.submission.context):
        if message.get("type") == "advisor" and not is_asked(message):
            why = f"advisor {message.get('id')!r} is not asked: its moment is {message['on']!r}, and not {ON_REQUEST!r}"
            yield Finding("ACT409", why, (), pointer("context", index, "on"), f'write "on": "{ON_REQUEST}"')


def _empty_scopes(plan: CheckedPlan, places: KnownPlaces) -> Iterator[Finding]:
    """Scopes that show nothing because they are misspelt, or because only an instance has the value."""
    for call in plan.calls:
        at = place_in(call.raw, "_scopes")
        is_global = call.instance is None and not call.gather and not plan.submission.is_template
        for index, scope in enumerate(call.scopes if not call.is_thought else ()):
            if scope.kind == ERROR or scope.kind in TEXT_TYPES:
                continue
            where: tuple[str | int, ...] = (*at, index) if at else ()
            why = f"sees nothing of {call.properties['_scopes'][index]}"
            if not places.has(scope):
                if (near := places.nearest(scope)) is not None:
                    why += ": the context does not hold it and no call writes it"
                    yield on_call(plan, "ACT401", call, why, f"write {near if near.path else near.kind}", *where)
            elif is_global and (name := places.holder(scope)):
                why += f": it has no _instance, and only instances such as {name!r} hold it"
                yield on_call(plan, "ACT402", call, why, f'give the call "_instance": "{name}"', *where)


def _wide_scopes(plan: CheckedPlan) -> Iterator[Finding]:
    """Whole kinds in scopes that alone make a call wait for others (SPEC R8.3a); errors have no narrower scope."""
    calls = {call.index: call for call in plan.calls}
    shown = ((graph, index) for graph in plan.graphs for index in graph.scopes)
    wide = (each for each in shown if any(map(_is_wide, each[0].scopes[each[1]])))
    for graph, index in islice(wide, limits.MOST_SCOPES):
        whole = [scope for scope in graph.scopes[index] if _is_wide(scope)]
        narrow = [nodes for scope, nodes in graph.scopes[index].items() if not _is_wide(scope)]
        awaited = graph.behind(chain.from_iterable((*graph.waits[index].values(), *narrow)))
        if delaying := sorted({writer for scope in whole for writer in graph.writers(index, scope)} - awaited):
            kinds = ", ".join(scope.kind for scope in whole)
            place = next((str(own) for own in calls[delaying[0]].written if own.kind in kinds), "")
            why = f"has all of {kinds} in its _scopes and waits for calls {listed(delaying)} only because of that"
            remedy = f"list the places that it needs, such as {place}, to let it run at the same time"
            yield on_call(plan, "ACT403", calls[index], why, remedy, *place_in(calls[index].raw, "_scopes"))


def _is_wide(scope: Reference) -> bool:
    return not scope.path and scope.kind != ERROR


def _left_out(plan: CheckedPlan) -> Iterator[Finding]:
    """Scope waits that were left out because they would close a cycle (SPEC R8.3a)."""
    calls = {call.index: call for call in plan.calls}
    for reader, pairs in groupby(sorted(plan.dropped_waits), key=itemgetter(0)):
        some = listed([writer for _, writer in pairs])
        why = f"does not wait for calls {some}, which write in its _scopes: they wait for it"
        remedy = "list the places that it needs, or take the reference out that closes the cycle"
        yield on_call(plan, "ACT408", calls[reader], why, remedy, *place_in(calls[reader].raw, "_scopes"))


def _unordered_effects(plan: CheckedPlan) -> Iterator[Finding]:
    """Calls with effects beside calls that read the same server or resource, in one wave (SPEC R6.8)."""
    calls = {call.index: call for call in plan.calls}
    resources = {index: found for index, call in calls.items() if (found := plan.resources_of(call))}
    for wave in plan.waves if len(resources) > 1 else ():
        outside = defaultdict[str, list[Call]](list)
        for index in wave:
            for name in resources.get(index, ()):
                outside[name].append(calls[index])
        for name, together in outside.items():
            acting = {call.index for call in together if tool_trust_of(plan.trust, call.tool, call.runner.name).effects}
            reading = [call for call in together if call.index not in acting][: limits.MOST_NAMED]
            for index in sorted(acting):
                met = [(calls[index], reader) for reader in reading if _may_wait(plan, calls[index], reader)]
                yield from (_unordered(plan, *pair, name) for pair in met)


def _may_wait(plan: CheckedPlan, *pair: Call) -> bool:
    """Whether the one listed last of two calls can wait for the other (SPEC R3.6)."""
    first, last = sorted(pair, key=lambda call: call.index)
    return plan.submission.is_template or sees(last, first)


def _unordered(plan: CheckedPlan, acting: Call, reading: Call, name: str) -> Finding:
    first, last = sorted((acting, reading), key=lambda call: call.index)
    why = f"changes {name}, which call {reading.index} ({reading.tool}) reads: neither waits for the other"
    place = next(map(str, first.written), None)
    remedy = f'give call {last.index} "{AFTER}": ["{place}"] to let it wait'
    if place is None:
        remedy = f'give call {first.index} an _outputPath, and list that place in the "{AFTER}" of call {last.index}'
    return replace(on_call(plan, "ACT105", acting, why, remedy), calls=(first.index, last.index))


def _idle_properties(plan: CheckedPlan) -> Iterator[Finding]:
    """Meta-properties without effect: a method without a path, a result of a call that code runs."""
    for call in plan.calls:
        if call.output is None and call.raw.get("_outputMethod") is not None:
            why = "has an _outputMethod and no _outputPath: its result goes nowhere"
            yield on_call(plan, "ACT404", call, why, "add an _outputPath", "_outputMethod")
        if call.raw.get("_output") is not None and call.runner.executor is not Executor.LATENT:
            is_certain = call.runner.executor is Executor.DELEGATE or call.runner.name in plan.contracts
            if is_certain or call.properties.get("_activity"):
                why = (
                    f"has an _output, which has no effect: {call.runner.executor} {call.runner.name!r} gives the result"
                )
                yield on_call(plan, "ACT404", call, why, "leave _output out", "_output")


def _missing_paths(plan: CheckedPlan) -> Iterator[Finding]:
    """Calls without an output path whose tool restricts it, or whose code gives a result (SPEC R5.1)."""
    limiting = {name: _limits_path(tool) for name, tool in plan.tools.items()}
    for call in plan.calls:
        if call.output is not None:
            continue
        if limit := limiting.get(call.tool):
            why = f"has no _outputPath, and its tool says what that may be ({limit}): its result goes nowhere"
            yield on_call(plan, "ACT405", call, why, "add an _outputPath that the tool admits")
        elif (giver := giver_of(plan, call)) is not None:
            why = f"has no _outputPath, and {giver}: its result goes nowhere"
            place = Reference("state", (call.tool,))
            yield on_call(plan, "ACT405", call, why, f'add an _outputPath, such as "{place}"')


def giver_of(plan: CheckedPlan, call: Call) -> str | None:
    """A clause that names who declares a result of an explicit call: its tool, or its code."""
    name, executor = call.runner.name, call.runner.executor
    if executor is Executor.LATENT:
        return None
    if (tool := plan.tools.get(call.tool)) is not None and tool.gives_result:
        return f"its tool {tool.name!r} says what it gives"
    if executor is Executor.ACTIVITY:
        signature = plan.signatures.get(name)
        gives = signature is not None and signature.gives_result
        return f"its activity {name!r} says what it gives" if gives else None
    return f"its delegate {name!r} gives one" if name in {*plan.submission.delegates, *plan.giving} else None


def _limits_path(tool: Tool) -> str | None:
    """The keyword by which a tool restricts output paths."""
    schema = tool.document["properties"].get("_outputPath")
    words = (word for part in conjuncts((schema,), tool.document) for word in _LIMITING if word in part)
    return next(words, None)


def _wrapped_tools(plan: CheckedPlan) -> Iterator[Finding]:
    """Tools declared as in other systems, whose schema then means nothing (SPEC R4.1)."""
    for name in dict.fromkeys(call.tool for call in plan.calls):
        tool = plan.submission.tools.get(name)
        where = calls_inside(tool.declaration) if tool is not None else None
        if where is not None:
            calls = tuple(islice((call.index for call in plan.calls if call.tool == name), limits.MOST_NAMED))
            why = f"the tool {name!r} has its schema under {where}, where it has no effect: any call fits"
            yield Finding("ACT406", why, calls, None, f"replace the declaration with the content of {where}")


def _uncallable_tools(plan: CheckedPlan) -> Iterator[Finding]:
    """Tools of a request whose schemas contradict themselves (SPEC R12.4)."""
    algebra = Algebra()
    for name, tool in plan.submission.tools.items() if plan.submission.is_request else ():
        calls = excerpt({"type": "object", "allOf": [tool.of_values]}, tool.of_values)
        if is_empty(algebra.made_of(calls)):
            why = f"no call of the tool {name!r} can be valid, whatever the model writes: its schema admits none"
            where = pointer(*plan.submission.declared[name]) if name in plan.submission.declared else None
            remedy = 'look for what contradicts it, such as "additionalProperties": false beside what it requires'
            yield Finding("ACT415", why, (), where, remedy)


def _hidden_data(plan: CheckedPlan) -> Iterator[Finding]:
    """Data under a reserved name in a flat message (SPEC R1.3)."""
    read = {place.key[:2] for call in plan.calls for place in places_seen(call) if place.path}
    for index, message in enumerate(plan.context.messages):
        kind = kind_of(message) if message.get("type") in DATA_TYPES else None
        if kind is None or is_written(message) or "data" in message or (kind in DATA_TYPES and kind in message):
            continue
        for key in _DESCRIBING:
            if key in message and (not isinstance(message[key], str) or (kind, key) in read):
                why = f"the message has {key!r} beside its data: it describes the message and is no data"
                remedy = f'put the data under "data": {{"{key}": …}}'
                yield Finding("ACT407", why, (), pointer("context", index, key), remedy)


def _misspelt_types(plan: CheckedPlan) -> Iterator[Finding]:
    """Messages of an unknown type, which nothing reads and no model is shown (SPEC R1.1), and paths to such kinds."""
    speller = Speller(likeness=limits.LIKENESS)
    for index, message in enumerate(plan.submission.context):
        type_ = message.get("type")
        if type_ is not None and type_ not in _TYPES and (near := speller.nearest(type_, _TYPES)) is not None:
            why = f"the message has the type {type_!r}: it is kept, and nothing reads it"
            yield Finding("ACT414", why, (), pointer("context", index, "type"), f'write "type": "{near}"')
    read = {place.kind for call in plan.calls for place in places_seen(call)}
    held = {kind_of(message) for message in plan.context.messages if read_data(message) is not None}
    known = {*read, *held, *DATA_TYPES}
    for call in plan.calls:
        for place in call.written:
            if place.kind not in known and (near := speller.nearest(place.kind, DATA_TYPES)) is not None:
                why, where = f"writes to {place}, a kind that nothing reads", place_in(call.raw, "_outputPath")
                yield on_call(plan, "ACT414", call, why, f"write {replace(place, kind=near)}", *where)


def _never_written(plan: CheckedPlan, places: KnownPlaces) -> Iterator[Finding]:
    """Properties that a kind's schema requires, and that no call writes and the context does not hold."""
    if not plan.calls:
        return
    for index, message in enumerate(plan.context.messages):
        data, schema = read_data(message), message.get("schema")
        if data is None or is_written(message) or data.kind in _NOT_WRITTEN or not isinstance(schema, dict):
            continue
        for key in schema.get("required", ()):
            place = Reference(data.kind, (key,))
            if not places.has(place):
                why = f"the schema of {data.kind} requires {key!r}, and no call writes {place}"
                at = pointer("context", index, "schema", "required")
                yield Finding("ACT208", why, (), at, f"let a call write {place}, or do not require it")


def unwrapping(declaration: Mapping[str, Any]) -> Iterator[str]:
    """Advice about the parts of a declaration that are written as in other systems."""
    if (path := calls_inside(declaration)) is not None:
        yield f"a tool is itself the JSON Schema of its calls: replace it with the content of {path}"
    for key in _RESULTS:
        if isinstance(declaration.get(key), dict) and "_output" not in declaration:
            yield f"the schema of a tool's result is its _output: move the content of {key} there"


def calls_inside(declaration: Mapping[str, Any]) -> str | None:
    """The path of the schema of the calls in a declaration that is not itself this schema."""
    paths = () if "properties" in declaration else _CALLS
    return next((".".join(path) for path in paths if _is_for_calls(value_at(path, declaration))), None)


def _is_for_calls(schema: Any) -> bool:
    return isinstance(schema, dict) and ("properties" in schema or schema.get("type") == "object")


# Texts: strings and keys of calls that were meant to have an effect and have none (SPEC R2.2, R2.4, R2.5, R4.1).

_META: Final = (*BY_NAME, *ALIASES)
_SQUEEZED: Final = {name.replace("_", "").lower(): name for name in _META}
_UNMISTAKABLE: Final = frozenset({"_outputPath", "_outputMethod", "_reasoningForCall", "_tool"})
"""Meta-properties whose names no parameter has by chance."""


_WRAPPED: Final = "parameters belong beside _tool"
_WAITING: Final = frozenset({"dependson", "waitfor"})
_INSTEAD: Final = {
    "a call waits for what it reads: read what the other call writes": (
        "after", "before", "depends", "dependson", "requires", "waitfor",
    ),
    "for a condition let another call choose between alternatives (||), and read one of them": (
        "condition", "if", "unless", "when", "else", "then", "otherwise", "next",
    ),
    _WRAPPED: ("args", "arguments", "inputs", "parameters", "params"),
    "a plan message runs once for each instance": ("each", "foreach", "loop", "map"),
    "an exception goes to the last alternative of _outputPath": ("catch", "onerror", "onfailure", "fallback"),
    "retries and timeouts are set where the activity is registered: @activity(retries=3)": (
        "maxretries", "retries", "retry", "timeout", "timeoutseconds",
    ),
}  # fmt: skip
"""Advice -> the words that other systems have for what it is about."""
_WORDS: Final = {word: remedy for remedy, words in _INSTEAD.items() for word in words}


def text_findings(plan: CheckedPlan, places: KnownPlaces) -> Iterator[Finding]:
    """Findings about the texts and keys of calls."""
    texts = _Texts(plan, places, Speller(likeness=limits.TEXT_LIKENESS), Readers(plan.calls))
    yield from texts.output()
    for call in plan.calls:
        yield from texts.keys(call)
        yield from texts.output_path(call)
        yield from texts.alternatives(call)
        if not call.is_thought and call.given is MISSING:  # else its parameters go to no code
            yield from texts.parameters(call)


def near_misses_of(plan: CheckedPlan) -> Iterator[Finding]:
    """The findings that can explain an error: misspelt properties and paths, and texts meant as references."""
    # That a place is read as it is written says nothing where another call does not find what it reads.
    texts = _Texts(plan, KnownPlaces(plan), Speller(likeness=limits.TEXT_LIKENESS), Readers(()))
    for call in plan.calls:
        yield from texts.keys(call)
        yield from texts.output_path(call)
        yield from texts.parameters(call)


@dataclass(frozen=True)
class _Texts:
    """Finds texts and keys of one submission that were meant otherwise."""

    plan: CheckedPlan
    places: KnownPlaces
    speller: Speller
    readers: Readers

    def keys(self, call: Call) -> Iterator[Finding]:
        """Unknown properties that resemble one of the protocol's or another system's."""
        tool = self.plan.tools.get(call.tool)
        properties = tool.document["properties"] if tool is not None else ()
        listed = [name for name in properties if not name.startswith("_")]
        left_out = [name for name in listed if name not in call.raw]
        for key in call.raw:
            if key in _META or (tool is not None and tool.mentions(key)):
                continue
            is_meta, plain = key.startswith("_"), squeezed(key)
            meant = _SQUEEZED.get(plain) or (self.speller.nearest(key, _META) if is_meta else None)
            remedy, why = _WORDS.get(plain), f"has the property {key!r}, which has no effect"
            is_foreign = _is_object(call.raw[key]) if remedy == _WRAPPED else plain in _WAITING
            # Without its _ it may be a parameter, unless the tool lists others or its name is unmistakable.
            # A call without a tool has been given an empty one, so that what else is wrong with it can be found.
            is_there = meant in call.raw and (meant != "_tool" or call.tool != "")
            if meant and (is_meta or (not is_there and (meant in _UNMISTAKABLE or listed))):
                remedy = f"leave it out: {meant} is there" if is_there else f"write {meant}"
                yield on_call(self.plan, "ACT303", call, why, remedy, key)
            elif remedy and (is_meta or (listed and is_foreign)):
                yield on_call(self.plan, "ACT304", call, why, remedy, key)
            elif not is_meta and (near := self.speller.nearest(key, left_out)):
                why = f"has {key!r}, which its tool does not name"
                yield on_call(self.plan, "ACT310", call, why, f"write {near}", key)

    def parameters(self, call: Call) -> Iterator[Finding]:
        """Parameters that would be references in other systems, and are texts here."""
        for at, slip in self._slips(call, call.parameters):
            yield on_call(self.plan, slip.code, call, slip.why, slip.remedy, *at)

    def output(self) -> Iterator[Finding]:
        """Texts in the solution's output that would be references in other systems (SPEC R4.9)."""
        for at, slip in self._slips(None, self.plan.submission.output):
            yield Finding(slip.code, f"the output {slip.why}", (), pointer("solution", "output", *at), slip.remedy)

    def _slips(self, call: Call | None, value: Any) -> Iterator[tuple[tuple[str | int, ...], NearMiss]]:
        tool = self.plan.tools.get(call.tool) if call is not None else None
        literals = Literals(tool.document if tool is not None else None)
        slips = NearMisses(self.places, lambda place: self._is_shown(call, place))
        count = call.index - self.plan.submission.first if call is not None else 0
        for at, text in strings(value):
            slip = slips.of(text[: limits.LINT_LONGEST]) or placeholder(
                text, count, lambda at: self.plan.calls[at].written
            )
            if slip is not None and not literals.has(at, text):
                yield at, slip

    def output_path(self, call: Call) -> Iterator[Finding]:
        """Output paths without a dagger that begin with a kind, and so lead into the state (SPEC R2.5)."""
        parts = re.split(r"\|\||&&", str(call.properties.get("_outputPath", "")))
        if len(parts) != len(call.written):
            return  # an operator inside a quoted key
        for part, written in zip(map(str.strip, parts), call.written, strict=True):
            name = named_by(part) or part
            meant = expression_in(DAGGER + name.lstrip("./").replace("/", "."))
            place = meant.references[0] if meant is not None else None
            if place is not None and not part.startswith(DAGGER) and self._is_meant(call, written, place):
                why = f"writes to {written}, since a path without † is one inside state"
                yield on_call(self.plan, "ACT307", call, why, f"write {place}", *place_in(call.raw, "_outputPath"))

    def _is_meant(self, call: Call, written: Reference, place: Reference) -> bool:
        """Whether a path was meant to begin with a kind, because that place is read or the state lacks the name."""
        is_common = place.kind in DATA_TYPES
        if not (place.path or place.kind == "state") or not (is_common or place.kind in self.places.kinds()):
            return False
        is_missed = bool(place.path) and self.readers.has(place, but=call.index) and place.kind != "state"
        is_unread = not self.readers.has(written, but=call.index)
        if self.places.is_held(Reference("state", written.path[:1])):
            return False
        return is_missed or is_unread if is_common else is_missed and is_unread

    def alternatives(self, call: Call) -> Iterator[Finding]:
        """Alternatives that never have a value: they lack their kind, are misspelt, or only an instance has them."""
        for at, expression in call.reads:
            for group in expression.alternatives if len(expression.alternatives) > 1 else ():
                for place in group:
                    if self.places.has(place):
                        continue
                    near = self.places.nearest(place)
                    is_kind = near is not None and near.path == (place.kind, *place.path)
                    why = f"reads {place}, which the context does not hold and no call writes"
                    remedy = f"write {near}" if near is not None else "leave the alternative out"
                    yield on_call(self.plan, "ACT308" if is_kind else "ACT309", call, why, remedy, *segments(at))

    def _is_shown(self, call: Call | None, place: Reference) -> bool:
        """Whether the call's scopes give it the value."""
        return call is not None and any(scope.overlaps(place) for scope in call.scopes)


def _is_object(value: Any) -> bool:
    """Whether a value is an object, or the JSON text of one."""
    return isinstance(value, dict) or (isinstance(value, str) and value.lstrip().startswith("{"))


# Trust: the ways from data that others wrote to calls that change something outside (SPEC R16.5).


def trust_findings(plan: CheckedPlan) -> Iterator[Finding]:
    """A finding for each call with effects, each parameter or choice that others may decide, and each source."""

    def trust(call: Call) -> ToolTrust:
        return tool_trust_of(plan.trust, call.tool, call.runner.name)

    if not any(trust_.effects for trust_ in plan.trust.values()):
        return
    submission = plan.submission
    proof = TrustProof(plan.calls, submission.context, trust, is_template=submission.is_template)
    ends = "it fails as Untrusted" if plan.refuses_untrusted else "it is held for a person"
    calls = {call.index: call for call in plan.calls}
    for call, labels in proof.endorsed:
        for label in sorted(labels):
            among = trust(call).endorses
            why = f"endorses: {call.runner.name!r} reads what others wrote to {label}, and its answer is trusted"
            why += f" if it is one of the values at {among}" if isinstance(among, str) else ""
            found = on_call(plan, "ACT603", call, why, "look whether a wrong answer of that delegate would do harm")
            yield replace(found, way={"source": {"label": label}, "effect": None, "way": [call.index]})
    for call, name, label in ((call, name, label) for call, name, labels in proof.waived for label in sorted(labels)):
        if name in trust(call).proof:
            why = f"is given {name!r} from {label}: it proves, and decides nothing else"
        else:
            why = f"has no effects where {name!r} leads, a host that is named: {label} may decide on it"
        found = on_call(plan, "ACT604", call, why, "look whether any value from there would do harm", name)
        yield replace(found, way={"source": {"label": label}, "effect": call.index, "way": []})
    for call, name, place, label in proof.picked:
        element = f"{place.path[-1]} of {Reference(place.kind, place.path[:-1])}"
        why = f"is given {name!r} of a list with {label} in it: strangers decide which element is at {element}"
        found = on_call(plan, "ACT604", call, why, "label that field, too, if another element would do harm", name)
        yield replace(found, way={"source": {"label": label}, "effect": call.index, "way": []})
    for way in proof.ways:
        call = calls[way.effect]
        if way.parameter is None:
            why = f"runs by the say of {way.source.label}, which others write to ({_told(way, calls)}): {ends}"
            remedy = "let a person approve it, or let what chooses read nothing that others wrote"
            found = on_call(plan, "ACT602", call, why, remedy)
        else:
            given = f"{way.parameter!r} from {way.source.label}"
            why = f"is given {given}, which others write to ({_told(way, calls)}): {ends}"
            remedy = "let a person approve it, give a value that nobody else wrote, or let the tool call it content"
            found = on_call(plan, "ACT601", call, why, remedy, way.parameter)
        yield replace(found, way={"source": _source(way), "effect": way.effect, "way": list(way.calls)})


def with_rules(plan: CheckedPlan, rules: Sequence[RunRule]) -> Iterator[dict[str, Any]]:
    """What rules of a run change of a plan (SPEC R16.8): each call on which others may decide and that one of them is
    about, with its `rule`, and whether a person is `asked` then: "never", or "unless" its values fit the rule.
    """

    def trust(call: Call) -> ToolTrust:
        return tool_trust_of(plan.trust, call.tool, call.runner.name)

    submission = plan.submission
    words = UserWords(message for message in submission.context if message.get("_instance") is None)
    approvals = read_approvals(submission.config)
    proof = TrustProof(plan.calls, submission.context, trust, is_template=submission.is_template)
    for call, doubt in () if plan.refuses_untrusted else proof.doubts:
        like = [rule for rule in rules if is_like(rule, call, doubt) and not approvals.hold(call)]
        tool = plan.tools.get(call.tool)
        properties = tool.document["properties"] if tool is not None else {}
        certain = [rule for rule in like if is_certain(rule, call, properties, words)]
        for rule in certain[:1] or like:
            asked = "never" if certain else "unless"
            yield {"call": call.index, "tool": call.tool, "rule": str(rule), "asked": asked}


def _told(way: Way, calls: dict[int, Call]) -> str:
    start = f"message {way.source.message}" if way.source.message is not None else "its source"
    if way.source.call is not None:
        start = f"call {way.source.call} ({calls[way.source.call].tool})"
    return " → ".join([start, *(f"call {index} ({calls[index].tool})" for index in way.calls)])


def _source(way: Way) -> dict[str, object]:
    at = {"call": way.source.call, "message": way.source.message}
    return {"label": way.source.label, **{key: index for key, index in at.items() if index is not None}}
