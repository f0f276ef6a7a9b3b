"""The facade: checking and planning as users see it.

What is loaded only when it is asked for: the analysis behind `Plan.findings`, `.cost` and `.to_mermaid()`, and the
hints that a rejection carries. It is above all other modules; none of them imports it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from functools import cached_property
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from .calls.call import place_in
from .errors import Problem, Rejected
from .limits import MOST_OF_A_CODE, Limits, plain
from .messages import EVERYWHERE, Message
from .paths import MISSING
from .plan import additions
from .plan.additions import SoFar
from .plan.checked_plan import CheckedPlan
from .plan.checking import Environment, RejectedCalls, check_calls
from .plan.graph import unread_results
from .plan.submission import WHOLE, Shape, read_submission, shaped
from .state.context import Context

if TYPE_CHECKING:
    from .analysis.deployment import PlanCost
    from .analysis.findings import Finding


class Plan(CheckedPlan):
    """Everything known before anything runs (SPEC R6.7, R10)."""

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """The findings: worth knowing, but no errors. They are looked for when asked for, not when the plan is made."""
        place = self.submission.shape.place
        return tuple(replace(each, pointer=each.pointer and place(each.pointer)) for each in analyse(self))

    @cached_property
    def unread(self) -> tuple[int, ...]:
        """The calls whose results no call reads: what the run is there to produce, or what is not needed."""
        return unread_results(self.calls)

    @property
    def scopes(self) -> dict[int, dict[str, Any]]:
        """The scopes of each call that runs, by index, and whether the call or its tool says so
        (SPEC R8.3b); calls that get nothing are left out.
        """
        return {
            call.index: {
                "scopes": list(call.properties["_scopes"]),
                "by": "call" if place_in(call.raw, "_scopes") else "tool",
            }
            for call in self.calls
            if call.scopes and not call.is_thought and call.given is MISSING
        }

    @cached_property
    def cost(self) -> PlanCost:
        """How much the run will take."""
        from .analysis.deployment import cost_of

        return cost_of(self.lanes.values(), self.queued, self.joined_levels)

    def to_mermaid(self, *, annotated: bool = False) -> str:
        """The graph as a Mermaid flowchart; instances of one call are one node (SPEC R6.7).

        Annotated, it has a legend, branches are dashed, and what fans out is marked.
        """
        from .analysis.findings import mermaid

        calls = (call.index for lane in self.lanes.values() for call in lane.calls)
        is_spread = self.submission.is_template or any(call.instance == EVERYWHERE for call in self.calls)
        runs = Counter(calls) if is_spread else {}
        return mermaid(self.calls, self.edges, runs, annotated=annotated)

    def to_dict(self) -> dict[str, Any]:
        """The graph as data."""
        return {
            "waves": [list(wave) for wave in self.waves],
            "edges": [list(edge) for edge in self.edges],
            "findings": [finding.to_dict() for finding in self.findings],
            "promised": [promised.to_dict() for promised in self.promised],
            "scopes": [{"call": index, **seen} for index, seen in self.scopes.items()],
            "held": list(self.held),
        }


class BackendInfo(TypedDict, total=False):
    """The knowledge of a backend, for planning as it does."""

    activities: Mapping[str, Mapping[str, Any]] | None
    """The schemas of the registered activities by name."""
    delegates: Container[str] | None
    """The names of the registered delegates."""
    model: bool
    """Whether a model is configured, as it is by default."""
    strict_meta: bool
    limits: Limits | None
    allow: Iterable[str] | None
    """The only tools and code that may be called, where given (SPEC R4.2a)."""


def check(
    context: Context | Iterable[Message],
    solution: Mapping[str, Any] | None = None,
    *,
    tools: Mapping[str, Any] | None = None,
    **known: Unpack[BackendInfo],
) -> Plan:
    """Check a solution, or the plan messages of a context, against the context.

    `known` is what a backend knows (see `BackendInfo`); leave it out to plan without one. Raises `Rejected` with every
    structural error.
    """
    submission: dict[str, Any] = {"context": list(context.messages if isinstance(context, Context) else context)}
    if solution is not None:
        submission["solution"] = dict(solution)
    if tools is not None:
        submission["tools"] = dict(tools)
    return check_submission(submission, **known)


def check_submission(value: Any, **known: Unpack[BackendInfo]) -> Plan:
    """Check a whole submission as it was handed in; see `check`."""
    allow = known.get("allow")
    given = {**known, "limits": known.get("limits") or Limits(), "allow": None if allow is None else frozenset(allow)}
    return check_in(Environment(**given), value)  # type: ignore[arg-type]  # mypy loses the names


def check_in(known: Environment, value: Any) -> Plan:
    """Check a whole submission against a backend, in whatever shape it was handed in. Raises `Rejected`."""
    document, shape = shaped(plain(value, known.limits))

    def checked() -> CheckedPlan:
        submission, problems = read_submission(document, known.limits)
        return check_calls(replace(submission, shape=shape), problems, known)

    return _plan(checked, shape)


def check_amendment(value: Any, so_far: SoFar, known: Environment) -> Plan:
    """The plan of the new calls of a run alone; see `plan.additions`. Raises `Rejected`."""
    return _plan(lambda: additions.check_amendment(plain(value, known.limits), so_far, known))


def explained(rejected: Rejected) -> Iterator[Problem]:
    """The problems of a rejection with what is to be done about them."""
    from .hints import explained

    yield from explained(rejected)


def _embedded(layout: CheckedPlan) -> Iterator[Problem]:
    """References in the middle of texts, where they are not read (SPEC R2.6)."""
    from .near_misses import embedded_problems

    return embedded_problems(layout)


def _plan(checked: Callable[[], CheckedPlan], shape: Shape = WHOLE) -> Plan:
    """The plan; a rejection is raised with hints, and the places of what was handed in."""
    problems: tuple[Problem, ...] = ()
    try:
        layout = checked()
    except RejectedCalls as rejected:
        layout, problems = rejected.plan, rejected.errors
    except Rejected as rejected:
        raise shape.rejected(explained(rejected)) from None
    known = {problem.pointer for problem in problems}
    if problems := (*problems, *(one for one in _embedded(layout) if one.pointer not in known)):
        raise shape.rejected(explained(RejectedCalls(problems, layout)))
    return Plan(**{field.name: getattr(layout, field.name) for field in fields(layout)})


# Analysis: all findings about a valid submission before it runs (SPEC R6.7). Each pass looks at the whole submission,
# and is independent of the others.

_SEVERITIES: Final = ("warning", "info", "note")


def analyse(plan: CheckedPlan, ignore: Iterable[str] = ()) -> tuple[Finding, ...]:
    """The findings of a checked submission, warnings first, each once.

    `ignore` holds codes (`ACT103`) or names (`race`) that are left out, as does `config.ignore` of the submission.
    """
    from .analysis.findings import ignored_in, is_ignored
    from .analysis.lint_rules import lint_findings, text_findings, trust_findings
    from .analysis.order import order_findings
    from .analysis.values import value_findings
    from .near_misses import KnownPlaces

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


def _first(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The first findings of each code, and how many more there are."""
    from .analysis.findings import Finding

    for code, alike in groupby(findings, key=lambda finding: finding.code):
        found = tuple(alike)
        yield from found[:MOST_OF_A_CODE]
        if len(found) > MOST_OF_A_CODE:
            more = f"{len(found) - MOST_OF_A_CODE} more findings of this code are left out"
            yield Finding(code, more, remedy="correct those above and check again")
