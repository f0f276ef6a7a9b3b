"""`acts pause`, `acts resume`, `acts cancel`: orders to a run (SPEC R11.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from worker.cli.failures import COMPLETED
from worker.cli.inspect import found_run, print_status
from worker.cli.options import Common, common_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.runs import Run


@click.command(short_help="Begin no more calls of a run.")
@click.argument("run", metavar="RUN")
@common_options
def pause(run: str, *, common: Common) -> int:
    """Begin no more calls of RUN. Those at work end and their results are kept; `acts resume` goes on.

    Exit codes: 0 paused, 3 not found, over already, or no server.
    """
    return _order(run, common, lambda found: found.pause())


@click.command(short_help="Go on with a paused run.")
@click.argument("run", metavar="RUN")
@common_options
def resume(run: str, *, common: Common) -> int:
    """Go on with RUN where it was paused.

    Exit codes: 0 under way, 3 not found, over already, or no server.
    """
    return _order(run, common, lambda found: found.resume())


@click.command(short_help="End a run as it stands.")
@click.argument("run", metavar="RUN")
@common_options
def cancel(run: str, *, common: Common) -> int:
    """End RUN as it stands. What is at work is stopped where it can be; no result is taken any more.

    Exit codes: 0 cancelled, 3 not found, over already, or no server.
    """
    return _order(run, common, lambda found: found.cancel())


def _order(run: str, common: Common, order: Callable[[Run], None]) -> int:
    with found_run(run, common) as found:
        order(found)
        document = found.status()
    print_status(document, common)
    return COMPLETED
