"""`acts check`: everything that can be known of a submission without running it (SPEC R6.7, R7.1)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from .. import limits
from . import options
from .output import (
    call_name,
    counted,
    escaped,
    finding_line,
    heading,
    print_json,
    print_lines,
    print_text,
    reach_lines,
    sight_lines,
    simulation_lines,
    tell,
    workflow_lines,
)
from .source import Source, optional_source_options

if TYPE_CHECKING:
    from ...protocol import Finding, Plan
    from ...protocol.analysis.visibility import RequestReach
    from ..client.deployments import RunRefusal


# `acts check --runs`: what becomes of the calls of runs under way when code is deployed (SPEC R17.2).

_ORDER: Final = ("will", "may", "held")
_WORDS: Final = {
    "will": click.style("will", fg="red", bold=True),
    "may": click.style("may", fg="yellow"),
    "held": click.style("held", fg="yellow"),
}


@dataclass(frozen=True, slots=True)
class DeploymentOptions:
    """The options that check all runs against code that is not deployed yet."""

    are_meant: bool = options.option(
        "--runs",
        is_flag=True,
        help="Instead of FILE: find the calls of all runs under way that the code of --activities, not deployed yet, "
        "will refuse, or may, or that its labels hold.",
    )
    gone: tuple[str, ...] = options.option(
        "--gone",
        metavar="NAME",
        multiple=True,
        help="With --runs: this activity or delegate no longer exists; repeatable.",
    )


def check_runs(gone: tuple[str, ...], common: options.Common) -> int:
    """Print the calls that the new code will refuse, or may."""
    settings = common.settings()
    if not settings.activities and not gone:
        raise click.UsageError("--runs needs the code that is to be deployed: --activities NEW.py, or --gone NAME")
    options.load_registry(settings)
    from ..client.deployments import Deployments, coming
    from ..registry.activities import registry
    from ..runner.checking import Checker
    from ..store.connections import connect, redis_errors

    with redis_errors(settings), connect(settings) as redis:
        said_here = Checker(settings, registry).trust_of
        deployments = Deployments(redis, settings.key_prefix, coming(registry, gone), said_here)
        found = list(deployments.refusals())
    if deployments.unread:
        tell(f"warning: {counted(len(deployments.unread), 'run')} of another format cannot be read here")
    will, held = sum(one.refusal.is_certain for one in found), sum(one.refusal.is_hold for one in found)
    if common.json:
        for one in found:
            print_json(one.to_dict())
    else:
        for line in _lines(found):
            print_text(line)
        runs = counted(deployments.looked_at, "run")
        may = f"{len(found) - will - held} may be{f', {held} may be held' if held else ''}"
        print_text(f"{counted(will, 'call')} will be refused, {may}; {runs} under way")
    return options.FAILED if will else options.COMPLETED


def _lines(found: list[RunRefusal]) -> Iterator[str]:
    """Yield one line for each call and reason, with its instances."""
    from ...protocol.errors import some_of

    alike = defaultdict[tuple[Any, ...], list[str]](list)
    for one in found:
        refusal = one.refusal
        how = "held" if refusal.is_hold else "will" if refusal.is_certain else "may"
        key = _ORDER.index(how), one.run, refusal.index, refusal.tool, refusal.reason
        alike[key].extend([refusal.instance] if refusal.instance is not None else [])
    for (order, run, index, tool, reason), instances in sorted(
        alike.items(), key=lambda pair: tuple(map(str, pair[0]))
    ):
        where = f" in {some_of(instances, limits.MOST_NAMED, escaped)}" if instances else ""
        call = f"call {call_name(index, tool)}" if index is not None else f"tool {escaped(tool)}"
        yield f"{_WORDS[_ORDER[order]]}  run {run} {call}{where}: {escaped(reason)}"


# The findings of `acts check`, as `acts run` and `acts submit` report them before anything runs.

WARNING: Final = "warning"


_IGNORE: Final[dict[str, Any]] = {
    "metavar": "CODE",
    "multiple": True,
    "help": "Leave out findings with this code or name; repeatable.",
}


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The options for findings."""

    is_strict: bool = options.option(
        "--strict", is_flag=True, help="Run nothing if `acts check` has a warning (exit code 2)."
    )
    is_silent: bool = options.option("--no-check", is_flag=True, help="Do not look for findings.")
    ignore: tuple[str, ...] = options.option("--ignore", **_IGNORE)

    def __post_init__(self) -> None:
        if self.is_strict and self.is_silent:
            raise click.UsageError("--strict and --no-check exclude each other")

    def tell(self, plan: Plan) -> dict[str, Any]:
        """Print the warnings on stderr; returns `findings` for the command's document, where there are any.

        Raises `WarningsRefused` for a warning with --strict.
        """
        if self.is_silent:
            return {}
        findings = options.reported(plan, self.ignore)
        warnings = [finding for finding in findings if finding.severity == WARNING]
        _print(warnings)
        documents = [finding.to_dict() for finding in findings]
        if warnings and self.is_strict:
            raise options.WarningsRefused(
                f"{counted(len(warnings), 'warning')}, and --strict: nothing was run", documents
            )
        return {"findings": documents} if documents else {}


check_options: Final = options.option_group("checks", CheckOptions)
"""Gives a command the options of `CheckOptions`, as `checks`."""


def _print(warnings: Sequence[Finding]) -> None:
    for finding in islice(warnings, limits.MOST_TOLD):
        tell(click.unstyle(finding_line(finding)))
    if len(warnings) > limits.MOST_TOLD:
        tell(f"{len(warnings) - limits.MOST_TOLD} more: `acts check` prints all")


_ASKED: Final = ("ACT601", "ACT602")
"""The findings about calls that are held since others would decide."""


@dataclass(frozen=True, slots=True)
class FindingOptions:
    """The options of `acts check` for findings."""

    ignore: tuple[str, ...] = options.option("--ignore", **_IGNORE)
    rules: str | None = options.option(
        "--rule",
        metavar="FILE",
        help="Say what nobody is asked with the rules in FILE, one a line, as `acts rules RUN --json` prints them.",
    )

    @property
    def are_meant(self) -> bool:
        """Whether one of them is given."""
        return bool(self.ignore) or self.rules is not None

    def unasked(self, plan: Plan) -> list[dict[str, Any]]:
        """Say what the rules in the file change of a plan. Raises `Failed` for a file that holds none."""
        from ...protocol.analysis.lint_rules import with_rules
        from ...protocol.run_rules import RunRule

        try:
            lines = Path(self.rules).read_text(encoding="utf-8").splitlines() if self.rules is not None else ()
            said = [json.loads(line) for line in lines if line.strip()]
            return list(with_rules(plan, [RunRule.read(one) for one in said if not one.get("revoked")]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            text = f"--rule {self.rules}: give rules as `acts rules RUN --json` prints them, one a line"
            raise options.Failed(f"{text} ({type(error).__name__}: {error})", options.REJECTED) from None

    def of(self, plan: Plan, reach: RequestReach | None, unasked: Sequence[Mapping[str, Any]]) -> tuple[Finding, ...]:
        """Return the findings to be told, without those of calls about which nobody is asked."""
        never = {one["call"] for one in unasked if one["asked"] == "never"}
        found = options.reported(plan, self.ignore, reach.findings if reach is not None else ())
        return tuple(one for one in found if one.code not in _ASKED or never.isdisjoint(one.calls))


@options.command("Find all errors and findings without running anything.")
@click.option("--mermaid", is_flag=True, help="Draw the graph as a Mermaid flowchart (with --json as `mermaid`).")
@click.option(
    "--who-sees", metavar="PATH", help="List the calls that can see a value there, such as '†state.user.ssn'."
)
@click.option(
    "--simulate", "simulated", is_flag=True, help="Run it in memory, with values that are made from the schemas."
)
@options.option_group("findings", FindingOptions)
@options.option_group("runs", DeploymentOptions)
@optional_source_options
def check(
    mermaid: bool,
    who_sees: str | None,
    simulated: bool,
    *,
    findings: FindingOptions,
    runs: DeploymentOptions,
    source: Source,
    common: options.Common,
) -> int:
    """Check FILE (or - for standard input) and run nothing. Prints all errors; or, if there are none, which calls run
    when (waves), the branches and the findings.

    With --runs: check the calls of unfinished runs against code that is not deployed yet.

    Exit codes: 0 valid, 2 not; with --runs 1 where calls will be refused, 3 no server.
    """
    if runs.are_meant:
        if source != Source("", (), (), ()) or mermaid or simulated or who_sees is not None or findings.are_meant:
            raise click.UsageError("--runs looks at all runs: it takes --activities, --gone and no FILE")
        return check_runs(runs.gone, common)
    if runs.gone or not source.file:
        raise click.UsageError("--gone goes with --runs" if runs.gone else "Missing argument 'FILE'.")
    with common.documented(has_status=False):
        settings = common.settings()
        value, _ = source.read(settings)
        options.load_registry(settings)
        from ..runner.checking import Checker

        checker = Checker(settings)
        plan = checker.check(value, allow=source.allowed)
        reach = checker.reach(value, allow=source.allowed) if plan.submission.is_request else None
        workflow = checker.workflow_reach(source.file, plan).to_dict() if source.is_workflow(settings) else None
        unasked = findings.unasked(plan)
        found = findings.of(plan, reach, unasked)
        sights = _sights(plan, who_sees, reach)
        simulation = _simulation(plan) if simulated else None
        for warning in (unready := list(checker.unready_models(plan))):
            tell(f"warning: {warning}")
    if common.json:
        parts = {
            "mermaid": plan.to_mermaid(annotated=True) if mermaid else None,
            "who_sees": sights,
            "simulation": simulation,
            "request": reach.to_dict() if reach is not None else None,
            "workflow": workflow and {"name": source.file, **workflow},
            "models": unready or None,
            "rules": unasked if findings.rules is not None else None,
        }
        chosen = {name: part for name, part in parts.items() if part is not None}
        listed = {"findings": [finding.to_dict() for finding in found]}
        print_json({"valid": True, "errors": []} | plan.to_dict() | listed | _extent(plan) | chosen)
    elif mermaid:
        print_text(plan.to_mermaid(annotated=True).rstrip("\n"))
    elif sights or simulation:
        print_lines((*(sight_lines(sights) if sights else ()), *(simulation_lines(simulation) if simulation else ())))
    else:
        print_lines(workflow_lines(source.file, workflow) if workflow else ())
        print_lines((*_plan_lines(plan, found, reach), *_rule_lines(unasked)))
    return options.COMPLETED


def _rule_lines(unasked: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if unasked:
        yield heading("rules")
    for one in unasked:
        how = "nobody is asked, by the rule" if one["asked"] == "never" else "a person is asked unless it fits the rule"
        yield f"  {call_name(one['call'], one['tool'])}: {how}: {escaped(one['rule'])}"


def _sights(plan: Plan, path: str | None, reach: RequestReach | None) -> dict[str, Any] | None:
    from ...protocol import ExpressionError
    from ...protocol.analysis.visibility import who_sees

    try:
        seen = who_sees(plan, path) if path is not None else None
        if seen is None or reach is None:
            return seen.to_dict() if seen is not None else None
        shown, passed = reach.shows(seen.place), list(reach.passed(seen.place))
        return seen.to_dict() | {"model": {"name": reach.model, "shown": shown, "passes_to": passed}}
    except ExpressionError as error:
        raise options.Failed(f"--who-sees: {error}", options.REJECTED) from None


def _simulation(plan: Plan) -> dict[str, Any]:
    """Simulate a plan; returns a document like a run's."""
    from ...protocol.analysis.simulation import alternatives, branch_effects, simulate

    simulation = simulate(plan)
    effects = list(branch_effects(plan, simulation))
    return {
        "global": dict(simulation.data[None]),
        "instances": {name: dict(kinds) for name, kinds in simulation.data.items() if name is not None},
        "calls": [call.to_dict() for call in simulation.calls],
        "branches": [effect.to_dict() for effect in effects],
        "unfit": list(simulation.unfit),
        "left_out": {
            "instances": simulation.left_out,
            "alternatives": sum(1 for _ in alternatives(plan)) - len(effects),
        },
    }


def branches(plan: Plan, *, most_readers: int = limits.MOST_READERS) -> list[dict[str, Any]]:
    """Find the calls that choose between places to write to, and the readers of each place (SPEC R4.4, R6.6)."""
    from ...protocol.plan.graph import Audience

    choosing = [call for call in plan.calls if len(call.alternatives) > 1]
    audience = Audience(plan.calls if choosing else (), is_template=plan.submission.is_template)
    left = most_readers
    found = []
    for call in choosing:
        alternatives = []
        for group in call.alternatives:
            reading = (index for place in group for index in audience.of(call, place) if index != call.index)
            readers = sorted(set(islice(reading, left)))
            left -= len(readers)
            is_complete = next(reading, None) is None
            alternatives.append({"paths": list(map(str, group)), "readers": readers, "complete": is_complete})
        found.append({"call": call.index, "alternatives": alternatives})
    return found


def _extent(plan: Plan) -> dict[str, Any]:
    return {
        "branches": branches(plan),
        "cost": {
            "calls": len(plan.calls),
            "instances": sum(instance is not None for instance in plan.lanes),
            "executions": plan.size,
        }
        | {name: amount for name, amount in plan.cost.to_dict().items() if name != "calls"},
        "unread": list(plan.unread),
    }


def _plan_lines(plan: Plan, findings: Sequence[Finding], reach: RequestReach | None) -> Iterator[str]:
    if reach is not None:
        yield from reach_lines(reach.to_dict())
        yield from _promised_lines(plan)
        yield from _finding_lines(findings)
        return
    names = {call.index: call_name(call.index, call.tool) for call in plan.calls}
    instances = sum(instance is not None for instance in plan.lanes)
    cost = counted(len(plan.calls), "call")
    if plan.submission.is_template and instances:
        cost += f" × {counted(instances, 'instance')} = {plan.size}"
    elif instances:
        every = f" = {plan.size}" if plan.size != len(plan.calls) else ""
        cost += f" in {counted(instances, 'instance')}{every}"
    yield f"{click.style('valid', fg='green', bold=True)}  {cost}, {counted(len(plan.waves), 'wave')}"
    yield f"{heading('cost')}  {_cost(plan)}"
    for number, wave in enumerate(plan.waves, start=1):
        yield f"{heading(f'wave {number}')}  {', '.join(names[index] for index in wave)}"
    if plan.waits_for_approval:
        yield f"{heading('lazy')}  nothing runs before a person has approved the plan (acts held, acts approve)"
    if plan.held:
        yield f"{heading('held')}  {', '.join(names[index] for index in plan.held)}: until a person decides"
    if found := branches(plan):
        yield heading("branches")
    for branch in found:
        for alternative in branch["alternatives"]:
            readers = [names[index] for index in alternative["readers"]] + ["…"] * (not alternative["complete"])
            then = ", ".join(readers) or "nothing reads it"
            places = escaped(" && ".join(alternative["paths"]))
            yield f"  {names[branch['call']]} writes {places}  →  {then}"
    if plan.scopes:
        yield f"{heading('scopes')}  what calls see besides their parameters"
    for index, seen in plan.scopes.items():
        by = "  (by its tool)" if seen["by"] == "tool" else ""
        yield f"  {names[index]}  {escaped(', '.join(seen['scopes']))}{by}"
    yield from _promised_lines(plan)
    yield from _finding_lines(findings)


def _promised_lines(plan: Plan) -> Iterator[str]:
    """Yield the values that are to come later (SPEC R6.3), a hundred at most."""
    from ...protocol.errors import shortened

    if plan.promised:
        yield f"{heading('promised')}  a run needs these values, or config.promise_seconds to wait for them"
    for promised in plan.promised[: limits.MOST_PROMISED]:
        where = f" in instance {escaped(promised.instance)}" if promised.instance is not None else ""
        schema = escaped(json.dumps(promised.schema, ensure_ascii=False))
        use = "" if promised.needed else "  (no call waits for it)"
        yield f"  {escaped(str(promised.place))}{where}  {shortened(schema, 200)}{use}"
    if len(plan.promised) > limits.MOST_PROMISED:
        yield f"  and {len(plan.promised) - limits.MOST_PROMISED} more: see --json"


def _finding_lines(findings: Sequence[Finding]) -> Iterator[str]:
    if findings:
        yield heading("findings")
    yield from (f"  {finding_line(finding)}" for finding in findings)


def _cost(plan: Plan) -> str:
    cost = plan.cost
    instances = sum(lane.instance is not None and bool(lane.calls) for lane in plan.lanes.values())
    parts = [counted(instances, "instance")] if instances else []
    parts += ["the global calls"] if cost.lanes > instances else []
    for number, one, several in (
        (cost.queued_activities, "call with a queue of its own", "calls with a queue of their own"),
        (cost.delegate_requests, "delegate call", "delegate calls"),
        (cost.model_requests, "request to a model", "requests to models"),
        (cost.background_sends, "fire-and-forget call", "fire-and-forget calls"),
    ):
        parts += [f"{number} {one if number == 1 else several}"] if number else []
    tasks = f"{counted(cost.tasks, 'Celery task')} for {', '.join(parts)}" if parts else "no Celery task"
    wake_ups = f", and at most {cost.wake_ups} more to wake instances that wait" if cost.wake_ups else ""
    return f"{tasks}{wake_ups}; at most {counted(cost.width, 'call')} at the same time, {cost.depth} one after another"


# `acts contracts`: what a client without the workers' code checks against.


@options.command("Print the tools that workers announce.")
def contracts(*, common: options.Common) -> int:
    """Print the activities and delegates that workers announce, by which a client without their code checks.

    With --json their schemas, too: `Client(contracts="tools.json")` reads a file with this output.

    Exit codes: 0 found, 3 no server, or no worker announces any.
    """
    from ..registry.contracts import announced_by
    from ..runner.application import make_client_application

    with common.documented(has_status=False) as answer:
        settings = common.settings()
        settings.require_broker()
        found = announced_by(make_client_application(settings))
        if not found.workers:
            raise options.Failed(found.problems[0])
        if common.json:
            print_json(found.to_dict())
            answer.is_given = True
            return options.COMPLETED
    for problem in found.problems:
        tell(f"warning: {problem}")
    named = [*found.known.activities.values(), *found.known.delegates.values()]
    print_lines(f"{escaped(one.name)}  {escaped(one.version)}" for one in named)
    return options.COMPLETED
