"""`acts export`, `acts import`: a run as one file, and back (SPEC R11.5)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import click

from .failures import COMPLETED, REJECTED, Failed, documented
from .inspect import found_run
from .options import Common, common_options
from .output import flush, print_either, print_lines, tell
from .writing import write_whole


@click.command(short_help="Write a run as one file.")
@click.argument("run", metavar="RUN")
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Default: standard output."
)
@click.option("--script", is_flag=True, help="Write what its model has answered, as a script for ACTS_MODEL.")
@click.option("--plan", is_flag=True, help="Write its calls as a plan, with their tools, to run again with other data.")
@click.option(
    "--tick", type=click.IntRange(min=0), metavar="N", help="With --plan: the calls of this tick of its loop."
)
@common_options
def export(run: str, output: Path | None, *, script: bool, plan: bool, tick: int | None, common: Common) -> int:
    """Write RUN as one file: its log, its definition and its result, as JSON lines.

    The first line has the result as `acts show --json` prints it, so no server is needed to read the file.

    With --script the file is one for ACTS_MODEL=scripted:FILE.json: the same request then has the same answers.

    With --plan the file is a submission of one plan message, which runs once for each instance: give other data with
    `acts run FILE --context ROWS.jsonl`. A global call of RUN is one of each instance there, which is said.

    Exit codes: 0 written, 3 no server, or the file cannot be written, 4 no such run or tick.
    """
    if plan + script > 1 or (tick is not None and not plan):
        raise Failed("give --script, or --plan and with it --tick", REJECTED)
    from acts_celery.protocol.language.visible import json_text

    with found_run(run, common) as found:
        lines: Callable[[], Iterable[str]] = found.export
        if script:
            lines = lambda: [found.script()]  # noqa: E731
        elif plan:
            lines = lambda: [json_text(found.export_plan(tick, warn=tell), indent=1)]  # noqa: E731
        if output is None:
            print_lines(lines())
            flush()
            return COMPLETED
        write_whole(output, (f"{line}\n" for line in lines()))
        tell(f"run {found.id} is in {output}")
    return COMPLETED


@click.command("import", short_help="Read a run from a file that `acts export` has written.")
@click.argument("file")
@common_options
def import_(file: str, *, common: Common) -> int:
    """Read the run in FILE (or - for standard input) back under its id, and print the id. It can be shown and forked.

    Exit codes: 0 imported, 2 FILE is none, or the run is here already, 3 no server.
    """
    from acts_celery.worker.client.client import Client

    with documented(as_json=common.json, has_status=True):
        settings = common.settings()
        settings.require_redis()
        with _opened(file) as stream, Client(settings) as client:
            run = client.import_run(stream)
            document = run.status()
    print_either(document, [run.id], as_json=common.json)
    return COMPLETED


@contextmanager
def _opened(file: str) -> Iterator[IO[bytes]]:
    if file == "-":
        yield sys.stdin.buffer
        return
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(Path(file).open("rb"))
        except OSError as error:
            raise Failed(f"{file}: {error.strerror or error}", REJECTED) from error
        yield stream
