"""Signatures: where a tool's schema admits what the code behind it does not take (SPEC R4.1a, R4.2).

A tool that the context declares has a schema of its own, and its activity a signature. What the call says itself is
held against it here: the names of its parameters, their values as far as no conversion makes them fit, and its scopes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from protocol.calls.call import Call, place_in
from protocol.calls.tools import Executor
from protocol.language.errors import Problem, pointer
from protocol.language.spelling import Patience
from protocol.schemas import CompiledSchema, compiled
from protocol.schemas.steps import MOST_STEPS, spent
from protocol.submission.layout import Layout

from .conversions import convertible
from .finding import Finding

Place = Sequence[str | int]


@dataclass(frozen=True)
class Signature:
    """What an activity takes, by the schema of its signature."""

    name: str
    schema: Mapping[str, Any]

    @cached_property
    def known(self) -> Mapping[str, Any]:
        """What it says of parameters and meta-properties by name."""
        properties: Mapping[str, Any] = self.schema.get("properties", {})
        return properties

    @property
    def is_closed(self) -> bool:
        """Whether it takes only what it names."""
        return self.schema.get("additionalProperties") is False

    @cached_property
    def exact(self) -> CompiledSchema:
        """What it says of the parameters it names, each by itself."""
        kept = {key: self.schema[key] for key in ("properties", "$defs", "definitions") if key in self.schema}
        return compiled({"type": "object", **kept})

    @cached_property
    def convertible(self) -> CompiledSchema:
        """The same, with all that conversions make fit."""
        return compiled(convertible(self.exact.schema))


def signature_findings(
    calls: Iterable[Call], places: Sequence[Place], signatures: Mapping[str, Signature]
) -> Iterator[Finding]:
    """What calls say and their activities do not take. `places` are those of the calls, `signatures` are by name."""
    patience = Patience()
    for call in calls:
        signature = _signature_of(call, signatures)
        if signature is None:
            continue
        at = places[call.index]
        for problem in (*_misnamed(call, signature, at, patience), *_unfit(call, signature, at)):
            yield Finding(
                "warning",
                f"call {call.index} ({call.tool}) does not fit the signature of its activity {signature.name!r}, "
                f"which {problem.message}; change the call, the tool or the function",
                (call.index,),
                problem.pointer,
                lost=call.index if call.output is None or len(call.output.alternatives) == 1 else None,
            )
        for problem in _ungiven(call, signature, at):
            yield Finding(
                "info",
                f"call {call.index} ({call.tool}) has the scope {problem.message}, of which its activity "
                f"{signature.name!r} is given nothing: leave it out, or give the function a keyword-only parameter "
                "named like the kind",
                (call.index,),
                problem.pointer,
            )


def signatures_of(layout: Layout) -> dict[str, Signature]:
    """The signatures of the activities behind declared tools, by name."""
    return {name: Signature(name, schema) for name, schema in layout.signatures.items()}


def taken_whole(layout: Layout) -> frozenset[int]:
    """The calls of which somebody may be given all, with properties that nobody else knows (SPEC R4.1a): those of an
    activity that takes whole calls, or whose signature is not known. Delegates and models are given parameters only.
    """
    known = signatures_of(layout)
    derived = {name: Signature(name, tool.declaration) for name, tool in layout.tools.items()}
    found = set[int]()
    for call in layout.calls:
        is_derived = call.tool not in layout.submission.tools and call.runner.name == call.tool
        signature = derived.get(call.tool) if is_derived else known.get(call.runner.name)
        if call.runner.executor is Executor.ACTIVITY and (signature is None or not signature.is_closed):
            found.add(call.index)
    return frozenset(found)


def _signature_of(call: Call, signatures: Mapping[str, Signature]) -> Signature | None:
    """The signature of the activity that runs a call, where it is known."""
    return signatures.get(call.runner.name) if call.runner.executor is Executor.ACTIVITY else None


def _misnamed(call: Call, signature: Signature, at: Place, patience: Patience) -> Iterator[Problem]:
    for name in signature.schema.get("required", ()):
        if name not in call.parameters:
            yield Problem(pointer(*at), f"needs {name!r}")
    for name in call.parameters if signature.is_closed else ():
        if name not in signature.known:
            yield Problem(pointer(*at, name), f"takes no {name!r}{patience.hint(name, signature.known)}")


def _unfit(call: Call, signature: Signature, at: Place) -> Iterator[Problem]:
    """Values that no conversion makes fit, in the words of the signature itself."""
    if spent() > MOST_STEPS:
        return
    given = {name: value for name, value in call.standing_in().items() if not name.startswith("_")}
    if unfit := signature.convertible.problems(given, *at, lenient=True):
        said = {problem.pointer: problem for problem in signature.exact.problems(given, *at, lenient=True)}
        for problem in unfit:
            message = said.get(problem.pointer, problem).message
            yield Problem(problem.pointer, f"takes something else here: {message}")


def _ungiven(call: Call, signature: Signature, at: Place) -> Iterator[Problem]:
    """Scopes that the call itself names, and nothing in the signature is there for."""
    written = place_in(call.raw, "_scopes")
    if not written or not (signature.is_closed or "_scopes" in signature.known):
        return
    given = compiled(signature.known.get("_scopes", {"items": False}))
    for index, scope in enumerate(call.properties["_scopes"]):
        if given.problems([scope]):
            yield Problem(pointer(*at, *written, index), repr(scope))
