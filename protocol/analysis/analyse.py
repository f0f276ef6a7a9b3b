"""Analysis: all findings about a valid submission before it runs (SPEC R6.7).

Each pass looks at the whole submission, and is independent of the others.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from itertools import chain, groupby
from typing import Final

from .. import limits
from ..near_misses import KnownPlaces
from ..plan.checked_plan import CheckedPlan
from .findings import Finding
from .lint_rules import lint_findings, text_findings, trust_findings
from .order import order_findings
from .values import value_findings


def analyse(plan: CheckedPlan, ignore: Iterable[str] = ()) -> tuple[Finding, ...]:
    """The findings of a checked submission, warnings first, each once.

    `ignore` holds codes (`ACT103`) or names (`race`) that are left out, as does `config.ignore` of the submission.
    """
    ignored = frozenset(ignore) | ignored_in(plan.submission.config)
    places = KnownPlaces(plan)
    found = (*order_findings(plan), *value_findings(plan), *text_findings(plan, places))
    misspelt = {finding.calls for finding in found if finding.remedy == "write _outputPath"}
    around = (
        finding
        for finding in lint_findings(plan, places)
        if finding.code != "ACT405" or finding.calls not in misspelt  # its path is there, under another name
    )
    kept = dict.fromkeys(
        finding for finding in chain(found, around, trust_findings(plan)) if not is_ignored(finding, ignored)
    )
    return tuple(_first(sorted(kept, key=lambda finding: (_SEVERITIES.index(finding.severity), finding.code))))


def is_ignored(finding: Finding, ignored: Container[str]) -> bool:
    """Whether a finding is left out, by its code or its name."""
    return finding.code in ignored or finding.name in ignored


def ignored_in(config: object) -> frozenset[str]:
    """The codes and names in `config.ignore`."""
    named = config.get("ignore") if isinstance(config, dict) else None
    return frozenset(name for name in named if isinstance(name, str)) if isinstance(named, list) else frozenset()


_SEVERITIES: Final = ("warning", "info", "note")


def _first(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The first findings of each code, and how many more there are."""
    for code, alike in groupby(findings, key=lambda finding: finding.code):
        found = tuple(alike)
        yield from found[: limits.MOST_OF_A_CODE]
        if len(found) > limits.MOST_OF_A_CODE:
            more = f"{len(found) - limits.MOST_OF_A_CODE} more findings of this code are left out"
            yield Finding(code, more, remedy="correct those above and check again")
