"""`acts export --jsonl`: runs as tables of JSON lines, for analysis."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .failures import COMPLETED, FAILED
from .output import flush, print_json, tell
from .rendering import counted
from .writing import make_folder, writing_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acts_celery.worker.errors import OtherFormat

    from .choosing import Chosen
    from .options import Common


class LeftOut:
    """Tells of runs of which nothing was written, and keeps for the exit code that there are some."""

    def __init__(self) -> None:
        self.code = COMPLETED

    def __call__(self, run: str, error: OtherFormat) -> None:
        """Tell of one."""
        tell(f"left out: run {run}: {error}")
        self.code = FAILED


def write_tables(run: str | None, folder: str, chosen: Chosen, common: Common) -> int:
    """Write a run, or those that were chosen, to files in a folder, one for each table; `-` is standard output."""
    from acts_celery.protocol.language.visible import json_text
    from acts_celery.worker.client.client import Client
    from acts_celery.worker.client.tables import TABLES

    left_out = LeftOut()
    with Client(common.settings()) as client:
        id_ = client.find(run).id if run is not None else None
        told = left_out if run is None else None
        rows: Iterator[tuple[str, dict[str, Any]]] = client.export_rows(run=id_, left_out=told, **chosen.criteria())
        if folder == "-":
            for table, row in rows:
                print_json({"table": table, **row})
            flush()
            return left_out.code
        place, counts = Path(folder), Counter[str]()
        make_folder(place)
        with writing_whole([place / f"{table}.jsonl" for table in TABLES]) as files:
            file_of = dict(zip(TABLES, files, strict=True))
            for table, row in rows:
                file_of[table].write(json_text(row) + "\n")
                counts[table] += 1
    tell(f"{', '.join(counted(counts[table], table.removesuffix('s')) for table in TABLES)} in {folder}")
    return left_out.code
