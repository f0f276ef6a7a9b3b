"""`acts retry`: failed calls again, in the same run, or taken as done with a value given."""

from __future__ import annotations

import json
from typing import Any

import click

from .failures import COMPLETED, REJECTED, Failed
from .inspect import found_run, print_status
from .options import Common, common_options
from .output import tell
from .rendering import counted


@click.command(short_help="Do failed calls of a run again.")
@click.argument("run", metavar="RUN")
@click.option("--call", type=click.IntRange(min=0), metavar="INDEX", help="Only this call, in all instances.")
@click.option("--instance", metavar="I", help="Only calls of this instance.")
@click.option(
    "--skip",
    is_flag=False,
    flag_value="null",
    metavar="[JSON]",
    help="Do not carry them out: they count as done with this value (null without one).",
)
@common_options
def retry(run: str, call: int | None, instance: str | None, skip: str | None, *, common: Common) -> int:
    """Do the failed calls of RUN again, in RUN itself, and decide anew on what was skipped for them.

    A run that has ended goes on. Calls that were sent and forgotten are sent again by `acts dead resend`.

    Exit codes: 0 under way, 2 the value does not fit, 3 not found, nothing has failed, or no server.
    """
    value = _value(skip) if skip is not None else None
    with found_run(run, common) as found:
        done = found.retry(call=call, instance=instance, skip=skip is not None, value=value)
        document = found.status()
    again = "taken as done" if skip is not None else "tried again"
    skipped = counted(len(done.skipped), "skipped call")
    tell(f"{counted(len(done.calls), 'failed call')} {again}, {skipped} decided anew")
    print_status(document | {"retried": list(done.calls), "reconsidered": list(done.skipped)}, common)
    return COMPLETED


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        hint = f"""a text is written as '"{text}"'""" if text.isprintable() and '"' not in text else "see `--help`"
        raise Failed(f"--skip: {text!r} is not JSON ({error}); {hint}", REJECTED) from None
