"""Findings on trust: every way from what others wrote to a call that changes something outside (SPEC R16.5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.trust import ToolTrust, said_of
from acts_celery.protocol.submission.layout import Layout
from acts_celery.protocol.trust.proof import Proof, Way

from .finding import Finding, on_call


def trust_findings(layout: Layout) -> Iterator[Finding]:
    """One for each call with effects, what decides on it, and source."""

    def trust(call: Call) -> ToolTrust:
        return said_of(layout.trust, call.tool, call.runner.name)

    if not any(said.effects for said in layout.trust.values()):
        return
    submission = layout.submission
    proof = Proof(layout.calls, submission.context, trust, is_template=submission.is_template)
    ends = "it fails as Untrusted" if layout.refuses_untrusted else "it is held for a person"
    calls = {call.index: call for call in layout.calls}
    for call, labels in proof.endorsed:
        for label in sorted(labels):
            why = f"endorses: {call.runner.name!r} reads what others wrote to {label}, and its answer is trusted"
            found = on_call(layout, "ACT603", call, why, "look whether a wrong answer of that delegate would do harm")
            yield replace(found, way={"source": {"label": label}, "effect": None, "way": [call.index]})
    for way in proof.ways:
        call = calls[way.effect]
        if way.parameter is None:
            why = f"runs by the say of {way.source.label}, which others write to ({_told(way, calls)}): {ends}"
            remedy = "let a person approve it, or let what chooses read nothing that others wrote"
            found = on_call(layout, "ACT602", call, why, remedy)
        else:
            given = f"{way.parameter!r} from {way.source.label}"
            why = f"is given {given}, which others write to ({_told(way, calls)}): {ends}"
            remedy = "let a person approve it, give a value that nobody else wrote, or let the tool call it content"
            found = on_call(layout, "ACT601", call, why, remedy, way.parameter)
        yield replace(found, way={"source": _source(way), "effect": way.effect, "way": list(way.calls)})


def _told(way: Way, calls: dict[int, Call]) -> str:
    start = f"message {way.source.message}" if way.source.message is not None else "its source"
    if way.source.call is not None:
        start = f"call {way.source.call} ({calls[way.source.call].tool})"
    return " → ".join([start, *(f"call {index} ({calls[index].tool})" for index in way.calls)])


def _source(way: Way) -> dict[str, object]:
    at = {"call": way.source.call, "message": way.source.message}
    return {"label": way.source.label, **{key: index for key, index in at.items() if index is not None}}
