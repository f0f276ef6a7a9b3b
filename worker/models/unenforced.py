"""What a provider does not enforce of a request's schema, as findings of `acts check` (SPEC R12.6, R12.8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from acts_celery.protocol.analysis.finding import Finding, listed

from .wire_schema import Opening


def findings_of(openings: Sequence[Opening]) -> Iterator[Finding]:
    """One for each place, with its tool; tools of which everything is open are named together."""
    for whole, together in groupby(openings, key=lambda opening: None if opening.place else opening.reason):
        found = list(together)
        named = [listed(opening.tool for opening in found)] if whole is not None else [str(one.where) for one in found]
        for where, opening in zip(named, found, strict=False):
            yield Finding("ACT413", f"not enforced: {where}: {opening.reason}", remedy=opening.remedy)
