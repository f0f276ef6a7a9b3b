"""`acts check --runs`: what becomes of the calls of runs under way when code is deployed (SPEC R17.2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

from .bundles import bundled
from .failures import COMPLETED, FAILED
from .options import Common, load_registry
from .output import escaped, print_json, print_text, tell
from .rendering import call_name, counted

if TYPE_CHECKING:
    from acts_celery.worker.client.deployments import RunRefusal

_MOST_NAMED: Final = 5
"""Instances that a line names."""
_ORDER: Final = ("will", "may", "held")
_WORDS: Final = {
    "will": click.style("will", fg="red", bold=True),
    "may": click.style("may", fg="yellow"),
    "held": click.style("held", fg="yellow"),
}


@dataclass(frozen=True, slots=True)
class AllRuns:
    """Whether all runs are meant, and what code they will be without."""

    are_meant: bool
    gone: tuple[str, ...]


runs_options: Final = bundled(
    "runs",
    AllRuns,
    click.option(
        "--runs",
        "are_meant",
        is_flag=True,
        help="Instead of FILE: find the calls of all runs under way that the code of --activities, not deployed yet, "
        "will refuse, or may, or that its labels hold.",
    ),
    click.option(
        "--gone", metavar="NAME", multiple=True, help="With --runs: there is no code of this name any more; repeatable."
    ),
)
"""The options of `acts check` for that, as `runs`."""


def check_runs(gone: tuple[str, ...], common: Common) -> int:
    """Print the calls that will be refused, or may be."""
    settings = common.settings()
    if not settings.activities and not gone:
        raise click.UsageError("--runs needs the code that is to be deployed: --activities NEW.py, or --gone NAME")
    load_registry(settings)
    from acts_celery.worker.client.deployments import Deployments, coming
    from acts_celery.worker.lanes.checking import Checker
    from acts_celery.worker.registry.activities import registry
    from acts_celery.worker.storage.connections import connect, redis_errors

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
    return FAILED if will else COMPLETED


def _lines(found: list[RunRefusal]) -> Iterator[str]:
    """One line for each call of a plan and reason, whatever the number of its instances."""
    alike = defaultdict[tuple[Any, ...], list[str]](list)
    for one in found:
        refusal = one.refusal
        how = "held" if refusal.is_hold else "will" if refusal.is_certain else "may"
        key = _ORDER.index(how), one.run, refusal.index, refusal.tool, refusal.reason
        alike[key].extend([refusal.instance] if refusal.instance is not None else [])
    for (order, run, index, tool, reason), instances in sorted(
        alike.items(), key=lambda pair: tuple(map(str, pair[0]))
    ):
        named = ", ".join(islice(instances, _MOST_NAMED))
        more = f" and {len(instances) - _MOST_NAMED} more" if len(instances) > _MOST_NAMED else ""
        where = f" in {escaped(named)}{more}" if instances else ""
        call = f"call {call_name(index, tool)}" if index is not None else f"tool {escaped(tool)}"
        yield f"{_WORDS[_ORDER[order]]}  run {run} {call}{where}: {escaped(reason)}"
