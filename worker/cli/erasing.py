"""`acts delete --instance I`: what all runs hold of an instance, such as one person's data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .choosing import done_with, print_undone
from .failures import COMPLETED
from .output import escaped, print_either
from .rendering import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acts_celery.worker.client.erasing import ErasableRun, ErasableRuns
    from acts_celery.worker.client.erasure import Erased

    from .choosing import Chosen
    from .options import Common

ELSEWHERE: Final = (
    "the names of the instances in the runs and their audit trails",
    "exported files, backups and the append-only file until it is rewritten",
    "logs and traces of workers, and what calls have written elsewhere",
)
"""Where data may stay that no command of ours deletes."""


def erase(instances: Sequence[str], chosen: Chosen, common: Common, *, yes: bool) -> int:
    """List the runs that hold something of instances; with `yes` delete that of each."""
    from acts_celery.worker.client.client import Client

    with Client(common.settings()) as client:
        found = client.erasable_runs(instances, **chosen.criteria())
        if not yes:
            sums = [f"would delete of {counted(len(found.runs), 'run')}", *_kept(found)]
            document = {"deleted": False, "runs": [run.to_dict() for run in found.runs], **_more(found)}
            print_undone(found.runs, _line, sums, document, as_json=common.json)
            return COMPLETED
        done = done_with(client.erase_instances(found.runs), _sum)
    lines = [line for erased in done for line in erased_lines(erased)]
    if left := len(found.runs) - len(done):
        lines.append(f"nothing of {counted(left, 'run')}: gone, or something was added meanwhile")
    lines += [_sum(done), *_kept(found), *(f"stays: {place}" for place in ELSEWHERE)]
    document = {"deleted": True, "runs": [erased.to_dict() for erased in done], **_more(found)}
    print_either(document, lines, as_json=common.json)
    return COMPLETED


def erased_lines(erased: Erased) -> list[str]:
    """What was deleted of one run, and what of it stays."""
    parts = [f"{erased.entries} entries of the log", counted(len(erased.children), "child run")]
    parts += [counted(erased.dead_letters, "dead letter"), counted(erased.files, "file")]
    called = ", ".join(escaped(instance) for instance in erased.instances)
    lines = [f"deleted of run {erased.run}, {called}: {', '.join(parts)}"]
    return [*lines, *(f"stays: {escaped(what)}" for what in erased.remains)]


def _sum(done: Sequence[Erased]) -> str:
    return f"deleted of {counted(len(done), 'run')}"


def _more(found: ErasableRuns) -> dict[str, object]:
    return {"kept": dict(found.kept), "elsewhere": list(ELSEWHERE)}


def _kept(found: ErasableRuns) -> list[str]:
    kept = ", ".join(f"{counted(number, 'run')} {why}" for why, number in found.kept.items())
    return [f"nothing is deleted of {kept}: end or cancel them first"] if kept else []


def _line(run: ErasableRun) -> str:
    called = ", ".join(map(escaped, run.instances))
    return "  ".join(part for part in (run.run, escaped(run.name or ""), called) if part)
