"""Slips: what stands in a valid submission and was hardly meant so (SPEC R2.5, R3.4, R4.1, R4.7, R11.3).

A misspelt meta-property is admitted like any that nobody knows, and does nothing, as does a method without a path, or
a result beside who gives one; the output ends the solution, whatever the schema of the submission asks for; and an
output path without `†` lies inside `state`, also when it begins with a kind.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from protocol.calls.call import META_PROPERTIES, Call, place_in
from protocol.calls.tools import Executor, Tool
from protocol.graph.readers import Readers, places_read
from protocol.hints.missing_dagger import undaggered
from protocol.language.errors import pointer, shortened
from protocol.language.messages import DATA_TYPES
from protocol.language.references import Reference
from protocol.language.spelling import Patience, Speller
from protocol.schemas import Schema, compiled

from .effort import is_spent
from .finding import Finding
from .habits import foreign
from .presence import Presence

Place = Sequence[str | int]

_LIKENESS: Final = 0.8
"""Names of one's own may look like known ones: only what is nearly the same is taken for a slip."""
_LIKENESS_OF_SETTINGS: Final = 0.7
"""Less is asked of a setting: the others in a config are a model's, and none of those is called anything like it."""
_SETTINGS: Final = ("max_concurrency",)
"""What the backend itself reads in a config; all of it is handed to the model."""


def misspelt_properties(
    calls: Iterable[Call], places: Sequence[Place], tools: Mapping[str, Tool], taken_whole: Container[int]
) -> Iterator[Finding]:
    """Meta-properties that are unknown and nearly a known one. `places` says where in the submission each call is,
    `taken_whole` holds the calls whose activity may know what it is given there.
    """
    spelling = Speller(META_PROPERTIES, likeness=_LIKENESS)
    for call in calls:
        tool = tools.get(call.tool)
        for key in call.raw:
            if not key.startswith("_") or key in META_PROPERTIES or (tool is not None and tool.mentions(key)):
                continue
            if hint := spelling.hint(key):
                yield Finding(
                    "info" if call.index in taken_whole else "warning",
                    f"call {call.index} ({call.tool}) has the property {key}, {foreign(call, taken_whole)}{hint}",
                    (call.index,),
                    pointer(*places[call.index], key),
                )


def misspelt_parameters(calls: Iterable[Call], places: Sequence[Place], tools: Mapping[str, Tool]) -> Iterator[Finding]:
    """Parameters that a tool's schema does not name, and that are nearly one which it names and the call leaves out."""
    patience = Patience(likeness=_LIKENESS)
    for call in calls:
        tool = tools.get(call.tool)
        named = tool.declaration.get("properties") if tool is not None else None
        if tool is None or not isinstance(named, Mapping):
            continue
        unknown = [key for key in call.raw if not key.startswith("_") and key not in named]
        left_out = [name for name in named if name not in call.raw] if unknown else ()
        for key in unknown:
            if is_spent() or not patience.lasts(0):
                return
            if (hint := patience.hint(key, left_out)) and not tool.mentions(key):
                yield Finding(
                    "info",
                    f"call {call.index} ({call.tool}) has the parameter {key}, which its tool does not name{hint}",
                    (call.index,),
                    pointer(*places[call.index], key),
                )


def misspelt_settings(config: Mapping[str, Any], delegates: Mapping[str, Any]) -> Iterator[Finding]:
    """Properties of the submission's `config`, and of those of its delegates, that are nearly one that counts."""
    patience = Patience(likeness=_LIKENESS_OF_SETTINGS)
    own = [(f"the config of delegate {name!r}", ("delegates", name), each) for name, each in delegates.items()]
    for whose, at, holder in (("the config", (), {"config": config}), *own):
        settings = holder.get("config") or {}
        left_out = [name for name in _SETTINGS if name not in settings]
        for key in settings if left_out else ():
            if hint := patience.hint(key.lower(), left_out):
                told = f"{whose} has {shortened(key)}, which limits nothing{hint}"
                yield Finding("warning", told, (), pointer(*at, "config", key))


def idle_methods(calls: Iterable[Call], places: Sequence[Place]) -> Iterator[Finding]:
    """Output methods of calls that write nothing."""
    for call in calls:
        if call.output is None and call.raw.get("_outputMethod") is not None:
            yield Finding(
                "warning",
                f"call {call.index} ({call.tool}) has an _outputMethod and no _outputPath, so that its result goes "
                "nowhere: say where it goes, or leave _outputMethod out",
                (call.index,),
                pointer(*places[call.index], "_outputMethod"),
            )


def idle_activities(calls: Iterable[Call], places: Sequence[Place]) -> Iterator[Finding]:
    """Activities of calls that a delegate runs (SPEC R4.2)."""
    for call in calls:
        if call.runner.executor is Executor.DELEGATE and call.raw.get("_activity"):
            yield Finding(
                "info",
                f"call {call.index} ({call.tool}) is run by its delegate, and its _activity by nobody: leave one out",
                (call.index,),
                pointer(*places[call.index], "_activity"),
            )


def idle_results(
    calls: Iterable[Call], places: Sequence[Place], declared: Container[str], activities: Container[str]
) -> Iterator[Finding]:
    """Results written into calls that code or a delegate runs. `activities` are those known to be there: where nobody
    has said which there are, a declared tool may be one that nothing runs.
    """
    for call in calls:
        if call.raw.get("_output") is None or call.runner.executor is Executor.LATENT:
            continue
        is_named = call.runner.executor is Executor.DELEGATE or call.properties.get("_activity")
        if is_named or call.tool not in declared or call.runner.name in activities:
            yield Finding(
                "warning",
                f"call {call.index} ({call.tool}) has an _output, which is not taken for its result: "
                f"{call.runner.executor} {call.runner.name!r} runs it; leave _output out, or call a tool that nothing "
                "runs",
                (call.index,),
                pointer(*places[call.index], "_output"),
            )


def unfit_output(output: Any, schema: Schema | None) -> Iterator[Finding]:
    """An output of the solution that the schema of the submission forbids (SPEC R11.3)."""
    if output is None or schema is None:
        return
    for problem in compiled(schema).problems(output, "solution", "output"):
        yield Finding(
            "warning",
            f"the solution's output is not what the schema of the submission admits: {problem.message}; change one of "
            "them",
            (),
            problem.pointer,
        )


def undaggered_paths(
    calls: Sequence[Call], places: Sequence[Place], readers: Readers, presence: Presence
) -> Iterator[Finding]:
    """Output paths inside `state` whose first key is the name of a kind, and which nothing else speaks of.

    Whoever reads all of the state may mean them, unless another reads where they would lead with a dagger. A kind of
    one's own may well have a namesake inside the state: there, both have to speak for a slip.
    """
    in_particular = Readers(calls, lambda call: (place for place in places_read(call) if place.path))
    for call in calls:
        for slip in undaggered(call, presence.kinds | DATA_TYPES):
            is_missed = bool(slip.meant.path) and in_particular.has(slip.meant, but=call.index)
            is_unread = not readers.has(slip.place, but=call.index)
            is_common = slip.meant.kind in DATA_TYPES
            if not (is_missed or is_unread if is_common else is_missed and is_unread):
                continue
            is_known = next(in_particular.at(slip.place), None) is not None
            if not is_known and not presence.speaks_of(Reference(slip.place.kind, slip.place.path[:1])):
                at = pointer(*places[call.index], *place_in(call.raw, "_outputPath"))
                yield Finding("warning" if is_common else "info", str(slip), (call.index,), at)


def misspelt_kinds(
    calls: Sequence[Call], places: Sequence[Place], readers: Readers, presence: Presence
) -> Iterator[Finding]:
    """Output paths of kinds that no message is of and nobody reads, and that are known ones but for capitals."""
    known = presence.held | DATA_TYPES
    folded = {kind.casefold(): kind for kind in sorted(known)}
    for call in calls:
        for place in call.written:
            if place.kind in known or next(readers.at(Reference(place.kind)), None) is not None:
                continue
            if (near := folded.get(place.kind.casefold())) is not None:
                yield Finding(
                    "info",
                    f"call {call.index} ({call.tool}) writes to {place}; no message is of that kind, and nobody "
                    f"reads it: did you mean {Reference(near, place.path)}?",
                    (call.index,),
                    pointer(*places[call.index], *place_in(call.raw, "_outputPath")),
                )
