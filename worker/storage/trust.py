"""Trust: what a definition holds of what tools and code say of who may decide (SPEC R16.1)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.trust import ENDORSES, ToolTrust, endorsement_problems
from acts_celery.protocol.engine.events import CallEnded, ElementEnded, MessageAdded
from acts_celery.protocol.engine.statuses import Status
from acts_celery.protocol.language.messages import CHOSEN, TRUST
from acts_celery.protocol.state.fold import Fold
from acts_celery.protocol.state.labels import TRUSTED, Labels, Marks, marks_of
from acts_celery.protocol.trust.flow import marks_since

Ended = MessageAdded | CallEnded | ElementEnded
"""What an entry says of a call that has written, or ended."""
Trusts = Mapping[str, ToolTrust]
"""What is said of tools and code, by name."""
SaidHere = Callable[[Iterable[Call], Mapping[str, Any]], Trusts]
"""What the code and the operator of this process say of calls, by the names of their tools and their code; given the
definitions of the run's delegates, too.
"""


@dataclass(frozen=True, slots=True)
class Said:
    """What is said of calls by all who may: the run, this process's code and its operator (SPEC R16.1)."""

    all: Trusts
    added: Trusts
    """What of that the run does not say: calls may have begun, or ended, without it."""

    @property
    def relabels(self) -> bool:
        """Whether what the log holds of calls gets sources that it does not name."""
        return any(one.result for one in self.added.values())


def pack_trust(said: Trusts) -> dict[str, Any]:
    """Its field, where anything is said."""
    return {"trust": {name: one.to_dict() for name, one in said.items()}} if said else {}


def unpack_trust(fields: Mapping[str, Any]) -> Trusts:
    """The inverse of `pack_trust`.

    A delegate endorses only if the definition beside it says so, with an answer of few values: a file that was imported
    may say more (SPEC R16.3).
    """
    said = {name: ToolTrust.read(one) for name, one in fields.get("trust", {}).items()}
    for name in [name for name, one in said.items() if one.endorses]:
        definition = fields["delegates"].get(name, {})
        if definition.get(ENDORSES) is not True or any(endorsement_problems(definition)):
            said[name] = replace(said[name], endorses=False)
    return said


def both(before: Trusts, added: Trusts, defined: Collection[str] = ()) -> Trusts:
    """What is said by a run and by who adds to it, an amendment or a worker: each can only add. A delegate that the
    amendment has `defined` endorses only if it says so: another definition may have answered before.
    """
    if not added and not defined:
        return before
    before = {name: replace(said, endorses=said.endorses and name not in defined) for name, said in before.items()}
    names = (*before, *(name for name in added if name not in before))
    return {name: ToolTrust.together(said[name] for said in (before, added) if name in said) for name in names}


def relabelled(event: Ended, call: Call, trust: ToolTrust, fold: Fold, elsewhere: Labels = TRUSTED) -> Ended:
    """What a call has written, or how it has ended, with the sources that are known since the log was written. A gather
    call has those from `elsewhere`, too: of all results that it may have read in other lanes.
    """
    is_done = isinstance(event, CallEnded) and event.status is Status.DONE and not event.is_rescued
    marks = marks_since(call, trust, fold, is_done=is_done)
    if call.gather and elsewhere:
        marks |= Marks(elsewhere, elsewhere)
    if not marks:
        return event
    if event.message is not None:
        together = marks_of(event.message) | marks
        chosen = {CHOSEN: sorted(together.chosen)} if together.chosen else {}
        event = replace(event, message={**event.message, TRUST: sorted(together.labels), **chosen})
    return replace(event, labels=event.labels | marks.labels) if isinstance(event, CallEnded) else event
