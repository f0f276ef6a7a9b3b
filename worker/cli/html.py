"""`acts show --html`: a run as one page, in a file or on standard output."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from .bundles import bundled
from .failures import COMPLETED, REJECTED, Failed
from .options import Common
from .output import flush, print_either, print_text
from .writing import write_whole

_STDOUT: Final = Path("-")


@dataclass(frozen=True, slots=True)
class Form:
    """As what `acts show` shows a run, where not as its values."""

    mermaid: bool = False
    timings: bool = False
    html: Path | None = None


form_options: Final = bundled(
    "form",
    Form,
    click.option("--mermaid", is_flag=True, help="Draw the run as a Mermaid flowchart: ticks, calls, child runs."),
    click.option(
        "--timings", is_flag=True, help="Print when calls began, how long they waited and ran; the slowest first."
    ),
    click.option(
        "--html",
        type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
        metavar="FILE",
        help="Write the run as one page (or - for standard output).",
    ),
)
"""As what a run is shown, as `form`."""


def write_page(run: str, file: Path, common: Common) -> int:
    """Write the page of a run, whole or not at all. Raises `Failed`."""
    from acts_celery.worker.page import Page
    from acts_celery.worker.page.document import document
    from acts_celery.worker.storage.connections import connect

    if file == _STDOUT and common.json:
        raise Failed("--html - prints the page itself: give a FILE with --json", REJECTED)
    settings = common.settings()
    redis = connect(settings)
    try:
        page = Page(redis, settings, reading_seconds=None)
        id_ = page.find(run)
        html = document(page, id_)
    finally:
        redis.close()
    if file == _STDOUT:
        print_text(html)
        flush()
        return COMPLETED
    write_whole(file, [html])
    print_either({"run": id_, "file": str(file)}, [f"run {id_} is in {file}"], as_json=common.json)
    return COMPLETED
