"""`acts eval`: cases that run for every model, compared with the expected outputs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from .. import limits
from .options import COMPLETED, FAILED, Common, Interrupted, command, load_registry
from .output import counted, escaped, print_json, print_lines, tell
from .progress import is_live
from .run import backend, no_worker_hint, queues_of
from .source import allow_option, read_lines, read_submission

if TYPE_CHECKING:
    from ...broker_config import Settings
    from ...protocol import Plan
    from ..client.client import Client
    from ..client.evaluation import Case, Trial, Trials


@command("Run cases for several models and compare.", "eval")
@click.argument("file", metavar="CASES.jsonl")
@click.option("--model", "models", multiple=True, metavar="NAME", help="A model, as config.model names it; repeatable.")
@click.option(
    "--base",
    metavar="FILE",
    help="A submission that every case adds to: its context goes behind FILE's, its other parts replace FILE's.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N cases.")
@click.option(
    "--repeat", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="Run each case N times."
)
@click.option(
    "--concurrency",
    type=click.IntRange(min=1, max=1_000),
    default=20,
    show_default=True,
    metavar="N",
    help="Runs at a time.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Cancel a run after this long: its case has not passed.",
)
@allow_option
def evaluate(
    file: str, models: tuple[str, ...], limit: int | None, *, allow: tuple[str, ...], common: Common, **how: Any
) -> int:
    """Run each case of CASES.jsonl (or - for standard input) for each model, and print how many have passed, what that
    cost and how long a case took. Lists what was not as expected.

    A line is {"name": TEXT, "submission": {…}, "expect": …}; expect is {"value": …}, {"schema": {…}}, or {"function":
    NAME}, a function of a module of --activities that is called with the output, or with the output and the result, and
    says no by False or an exception. A run that waits for a person is cancelled at once, and has not passed. Without
    --model the model is the one that a case or the settings name.

    If no broker is configured, a server and a worker are started for the time of the command. Ctrl-C cancels what is
    under way, and prints what is done.

    Exit codes: 0 all have passed, 1 some have not, 2 the file is not valid and nothing has run, 3 no server.
    """
    with common.documented(has_status=False) as answer:
        settings = common.settings()
        load_registry(settings)
        from ..client.client import Client
        from ..client.evaluation import Trials

        chosen = tuple(dict.fromkeys(models)) or (None,)
        repeat, concurrency, timeout = how["repeat"], how["concurrency"], how["timeout"]
        base = {} if how["base"] is None else read_submission(how["base"], settings)
        cases = _cases(file, settings, base)[:limit]
        trials = Trials(cases, chosen, repeat, concurrency, timeout, allow or None)
        with Client(settings) as client:
            plan = _checked(client, trials, file)
        done: list[Trial] = []
        is_whole = False
        try:
            with backend(settings, None, None) as effective:
                is_own = effective is not settings
                with nullcontext() if is_own else no_worker_hint(settings, lambda: queues_of(plan, settings)):
                    asyncio.run(_run(effective, trials, done, is_own=is_own))
            is_whole = True
        except KeyboardInterrupt:
            raise Interrupted(f"{len(done)} of {len(trials)} cases are done; what was under way is cancelled") from None
        finally:
            if done or is_whole:
                _print(
                    trials.in_order(done),
                    chosen,
                    as_json=common.json,
                    has_runs=settings.effective_redis_url is not None,
                )
                answer.is_given = True
    return COMPLETED if all(trial.has_passed for trial in done) else FAILED


def _cases(file: str, settings: Settings, base: Any) -> list[Case]:
    """Read the cases of a file, added to a base. Raises `protocol.Rejected` with all faults and their lines."""
    from ...protocol import Problem, Rejected
    from ..client.evaluation import case_of
    from ..registry.loading import loaded

    def function(name: str) -> Callable[..., Any] | None:
        found = (getattr(module, name, None) for module in loaded.values())
        return next(filter(callable, found), None)

    places: dict[str, str] = {}
    cases: list[Case] = []
    problems: list[Problem] = []
    for place, value in read_lines(file, settings):
        try:
            case = case_of(value, place.rpartition(":")[2], function, base)
        except Rejected as rejected:
            problems += _placed(rejected, place)
            continue
        if case.name in places:
            problems.append(Problem("", f"{place}: the name {case.name!r} is also used by {places[case.name]}"))
        places[case.name] = place
        cases.append(case)
    if not cases and not problems:
        problems.append(Problem("", f"{file}: it has no case: a case is one line"))
    _require(problems)
    return cases


def _checked(client: Client, trials: Trials, file: str) -> Plan:
    """Check all cases, and return the plan of the first. Raises `protocol.Rejected`."""
    from ...protocol import Rejected
    from ..client.submitting import with_parts

    problems: list[Any] = []
    plan = None
    for model in trials.models:
        for case in trials.cases if model == trials.models[0] else trials.cases[:1]:
            value = with_parts(case.submission, trials.options(case, model), client.checker.tool_of)
            try:
                checked = client.check_submission(value, allow=trials.allow)
                plan = plan or checked
            except Rejected as rejected:
                problems += _placed(rejected, f"{file}: case {case.name!r}")
    _require(problems)
    assert plan is not None, "there is a case, and it was refused or has a plan"
    return plan


def _placed(rejected: Any, place: str) -> Iterator[Any]:
    from ...protocol import Problem

    for problem in rejected.errors:
        yield Problem("", ": ".join(filter(None, (place, problem.pointer, problem.message))))


def _require(problems: Sequence[Any]) -> None:
    from ...protocol import Problem, Rejected

    if problems := list(dict.fromkeys(problems)):
        left = len(problems) - limits.MOST_TOLD
        more = [Problem("", f"{counted(left, 'more fault')} in it")] if left > 0 else []
        raise Rejected([*problems[: limits.MOST_TOLD], *more])


async def _run(settings: Settings, trials: Trials, done: list[Trial], *, is_own: bool) -> None:
    from ..client.async_client import AsyncClient

    with _progress(len(trials)) as show:
        async with AsyncClient(settings) as client:
            if is_own:  # how long the worker takes to begin is no time of a case
                call = {"_tool": "begin", "_output": True, "_outputPath": "†state.begun"}
                begun = await client.submit([], {"calls": [call]}, tools={"begin": {"type": "object"}})
                await begun.wait()

            def note(trial: Trial) -> None:
                done.append(trial)
                show(len(done), sum(not each.has_passed for each in done))

            await trials.run(client, note)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int, int], None]]:
    """Show how many trials are done, and how many of them have not passed."""
    if not is_live():
        quiet_until = time.monotonic() + limits.QUIET_SECONDS

        def say(done: int, failed: int) -> None:
            nonlocal quiet_until
            if time.monotonic() >= quiet_until:
                quiet_until = time.monotonic() + limits.QUIET_SECONDS
                tell(f"{done} of {total} done, {failed} not passed")

        yield say
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.fields[failed]} not passed")
    columns = (TextColumn("cases"), BarColumn(bar_width=20), MofNCompleteColumn(), text, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=total, failed=0)
        yield lambda done, failed: progress.update(bar, completed=done, failed=failed)


def _print(done: Sequence[Trial], models: Sequence[str | None], *, as_json: bool, has_runs: bool) -> None:
    from ..client.evaluation import summary

    summaries = [summary(done, model) for model in models]
    if as_json:
        print_json({"models": summaries, "cases": [trial.to_dict() for trial in done]})
        return
    failed = [trial for trial in done if not trial.has_passed]
    lines = [_failure(trial, has_runs=has_runs) for trial in failed[: limits.MOST_TOLD]]
    if (left := len(failed) - limits.MOST_TOLD) > 0:
        lines.append(f"{counted(left, 'more case')} not as expected: --json lists all")
    print_lines([*lines, *([""] if lines else []), *_table(summaries)])


def _failure(trial: Trial, *, has_runs: bool) -> str:
    model = f", {trial.model}" if trial.model is not None else ""
    run = f" (acts show {trial.run})" if has_runs and trial.run is not None else ""
    return escaped(f"{trial.case}{model}: {' '.join((trial.difference or '').split())}{run}")


def _table(summaries: Sequence[dict[str, Any]]) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [("model", "passed", "requests", "tokens in", "out", "money", "seconds")]
    for each in summaries:
        cost, cases = each["cost"], each["cases"]
        passed = f"{each['passed']} of {cases}" + (f" ({each['passed'] / cases:.0%})" if cases else "")
        usage, money = cost["usage"], cost["money"]
        figures = [f"{count:,}" for count in (cost["requests"], usage["input"], usage["output"])]
        figures.append(f"{float(money):,.4f} {cost['currency']}" if money is not None else "?")
        seconds = "" if each["seconds"] is None else f"{each['seconds']:,.1f}"
        rows.append((escaped(each["model"] or "(as configured)"), passed, *figures, seconds))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *others = (
            text.ljust(width) if at < 2 else text.rjust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join((first, *others)).rstrip()
