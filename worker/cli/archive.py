"""`acts export`, `acts import`: a run as one file, or many, and back (SPEC R11.5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ..errors import OtherFormat, RunNotFound
from . import options
from .output import counted, flush, print_json, print_lines, tell
from .source import make_folder, write_whole, writing_whole

# `acts export --jsonl`: runs as tables of JSON lines, for analysis.


class SkippedRuns:
    """Reports runs that were not written, and keeps the exit code that says so."""

    def __init__(self) -> None:
        self.code = options.COMPLETED

    def __call__(self, run: str, error: OtherFormat) -> None:
        """Report one run."""
        tell(f"left out: run {run}: {error}")
        self.code = options.FAILED


def write_tables(run: str | None, folder: str, chosen: options.ChosenRuns, common: options.Common) -> int:
    """Write a run, or the chosen runs, to one file for each table in a folder; `-` is standard output."""
    from ...protocol.errors import json_text
    from ..client.tables import TABLES

    left_out = SkippedRuns()
    with common.client() as client:
        id_ = client.find(run).id if run is not None else None
        report = left_out if run is None else None
        rows: Iterator[tuple[str, dict[str, Any]]] = client.export_rows(run=id_, left_out=report, **chosen.criteria())
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


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The options that say in which form a run is written."""

    script: bool = options.option(
        "--script", is_flag=True, help="Write what its model has answered, as a script for ACTS_MODEL."
    )
    plan: bool = options.option(
        "--plan", is_flag=True, help="Write its calls as a plan, with their tools, to run again with other data."
    )
    tick: int | None = options.option(
        "--tick", type=click.IntRange(min=0), metavar="N", help="With --plan: the calls of this tick of its loop."
    )
    jsonl: str | None = options.option(
        "--jsonl", metavar="FOLDER", help="Write tables for analysis there; - writes them to standard output."
    )


@options.command("Write a run as one file, or many, or tables of them.")
@click.argument("run", metavar="[RUN]", required=False)
@options.chosen_options
@click.option("--all", "is_all", is_flag=True, help="All runs, also those under way.")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Default: standard output. Of many: a folder.",
)
@options.option_group("form", ExportOptions)
def export(
    run: str | None,
    output: Path | None,
    *,
    chosen: options.ChosenRuns,
    is_all: bool,
    form: ExportOptions,
    common: options.Common,
) -> int:
    """Write RUN as one file: its log, its definition and its result, as JSON lines; or those that the options choose,
    each as a file in a folder.

    The first line has the result as `acts show --json` prints it, so no server is needed to read the file.

    With --jsonl the runs are written as tables, which pandas and DuckDB read: runs.jsonl, calls.jsonl, ticks.jsonl and
    messages.jsonl in a folder, or one after the other to standard output, each line with its "table".

    With --script the file is one for ACTS_MODEL=scripted:FILE.json: the same request then has the same answers.

    With --plan the file is a submission of one plan message, which runs once for each instance: give other data with
    `acts run FILE --context ROWS.jsonl`. A global call of RUN becomes one for each
    instance, and a line on stderr says so.

    When many runs are written, runs of versions that this one does not read are left out and named.

    Exit codes: 0 written, 1 runs were left out, 3 no server, or the file cannot be written, 4 no such run or tick.
    """
    is_many = run is None
    if is_many != (is_all or bool(chosen)):
        raise click.UsageError("name a run, or say which: --older-than, --status, --name, --all")
    forms = [form.script, form.plan, form.jsonl is not None]
    if sum(forms) > 1 or (form.tick is not None and not form.plan):
        raise click.UsageError("give one of --script, --plan and --jsonl; --tick goes with --plan")
    if form.jsonl is not None:
        if output is not None:
            raise click.UsageError("--jsonl names the folder; give no --output with it")
        return write_tables(run, form.jsonl, chosen, common)
    if is_many:
        if output is None or form.script or form.plan:
            raise click.UsageError(
                "many runs are written as tables (--jsonl), or each as a file in a folder (-o FOLDER)"
            )
        return _export_many(output, chosen, common)
    assert run is not None
    _export_one(run, output, form, common)
    return options.COMPLETED


def _export_one(run: str, output: Path | None, form: ExportOptions, common: options.Common) -> None:
    from ...protocol.errors import json_text

    with common.found(run) as found:
        lines: Callable[[], Iterable[str]] = found.export
        if form.script:
            lines = lambda: [found.script()]  # noqa: E731
        elif form.plan:
            lines = lambda: [json_text(found.export_plan(form.tick, warn=tell), indent=1)]  # noqa: E731
        if output is None:
            print_lines(lines())
            flush()
            return
        write_whole(output, (f"{line}\n" for line in lines()))
        tell(f"run {found.id} is in {output}")


def _export_many(folder: Path, chosen: options.ChosenRuns, common: options.Common) -> int:
    """Write each run to its own file."""
    make_folder(folder)
    written, left_out = 0, SkippedRuns()
    with common.client() as client:
        for summary in client.runs(**chosen.criteria()):
            try:
                lines = client.run_of(summary.run).export()
                write_whole(folder / f"{summary.run}.jsonl", (f"{line}\n" for line in lines))
                written += 1
            except RunNotFound:  # it was deleted meanwhile
                continue
            except OtherFormat as error:
                left_out(summary.run, error)
    tell(f"{counted(written, 'run')} written to {folder}")
    return left_out.code


@options.command("Read a run from a file that `acts export` has written.", "import")
@click.argument("file")
def import_(file: str, *, common: options.Common) -> None:
    """Read the run in FILE (or - for standard input) back under its id, and print the id. It can be shown and forked.

    Exit codes: 0 imported, 2 FILE is no export, or the run is here already, 3 no server.
    """
    with common.documented():
        common.settings().require_redis()
        try:
            stream = click.open_file(file, "rb")
        except OSError as error:
            raise options.Failed(f"{file}: {error.strerror or error}", options.REJECTED) from error
        with stream, common.client() as client:
            run = client.import_run(stream)
            document = run.status()
    common.print(document, [run.id])
