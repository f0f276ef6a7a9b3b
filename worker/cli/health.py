"""`acts health`: whether the workers of this machine are well, without asking a server: what a container's check runs.

A worker writes how it is into `ACTS_HEALTH_FOLDER` (`worker/app/health_report.py`); one that has not for long does not
work.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import click

from acts_celery.worker.process.health_file import health_files, read_health

from .failures import COMPLETED, REJECTED, UNAVAILABLE, Failed
from .options import Common, common_options
from .output import escaped, print_json, print_text

_OLD_SECONDS: Final = 30.0


@click.command(short_help="Say whether the workers of this machine are well.")
@common_options
def health(*, common: Common) -> int:
    """Say of each worker that writes into ACTS_HEALTH_FOLDER whether it takes messages and looks for lost calls.

    No server is asked, so it needs no permission on one.

    Exit codes: 0 all are well, 2 no folder is set, 3 one is not well, or there is none.
    """
    folder = common.settings().health_folder
    if folder is None:
        raise Failed("set ACTS_HEALTH_FOLDER, for the workers and for this command", REJECTED)
    workers = [_examine(file) for file in health_files(Path(folder))]
    is_well = bool(workers) and not any(worker["problems"] for worker in workers)
    if common.json:
        print_json({"ok": is_well, "workers": workers})
        return COMPLETED if is_well else UNAVAILABLE
    for worker in workers:
        said = "; ".join(f"{what} {problem}" for what, problem in worker["problems"].items())
        print_text(escaped(f"{worker['worker']}: {said or 'ok'}"))
    if not workers:
        print_text(escaped(f"no worker has written into {folder}"))
    return COMPLETED if is_well else UNAVAILABLE


def _examine(file: Path) -> dict[str, Any]:
    """What a worker has written, and whether that was long ago."""
    try:
        found = read_health(file)
        silent_seconds = time.time() - file.stat().st_mtime
    except (OSError, ValueError, RecursionError) as error:
        return {"worker": file.stem, "problems": {"its file": f"cannot be read: {type(error).__name__}"}}
    problems = dict(found.problems)
    if not found.is_alive:
        problems["it"] = f"is dead: there is no process {found.pid}"
    elif silent_seconds > _OLD_SECONDS:
        problems["it"] = f"has given no sign of life for {silent_seconds:.0f} s"
    return {"worker": found.worker, "problems": problems}
