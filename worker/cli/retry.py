"""`acts retry`: failed calls again, in the same run, or taken as done with a value given."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from .failures import COMPLETED, REJECTED, Failed
from .inspect import found_run, print_status
from .options import Common, common_options
from .output import escaped, tell
from .rendering import counted

if TYPE_CHECKING:
    from acts_celery.worker.client.undoing import Retried

_MOST_NAMED: Final = 20
"""How many stale calls are named at a terminal; --json has all."""


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
@click.option(
    "--downstream", is_flag=True, help="Also do again what has used their results, and what was stale before."
)
@click.option(
    "--effects", is_flag=True, help="With --downstream: also calls with effects, and what was sent and forgotten."
)
@common_options
def retry(run: str, call: int | None, instance: str | None, skip: str | None, *, common: Common, **extent: bool) -> int:
    """Do the failed calls of RUN again, in RUN itself, and decide anew on what was skipped for them.

    A run that has ended goes on. Calls that have used what is written anew are stale: they are named, and --downstream
    carries them out again. Calls that were sent and forgotten are sent again by `acts dead resend`.

    Exit codes: 0 under way, 2 the value does not fit, 3 no server, 4 no such run, or nothing to do again.
    """
    if extent["effects"] and not extent["downstream"]:
        raise Failed("--effects says what --downstream does again: give both", REJECTED)
    value = _value(skip) if skip is not None else None
    with found_run(run, common) as found:
        done = found.retry(call=call, instance=instance, skip=skip is not None, value=value, **extent)
        document = found.status()
    for line in _told(done, is_given=skip is not None, **extent):
        tell(line)
    print_status(document | done.to_dict(), common)
    return COMPLETED


def _told(done: Retried, *, is_given: bool, downstream: bool, effects: bool) -> Iterator[str]:
    again = "taken as done" if is_given else "tried again"
    more = f", {counted(len(done.downstream), 'call')} behind them done again" if downstream else ""
    skipped = counted(len(done.skipped), "skipped call")
    yield f"{counted(len(done.calls), 'failed call')} {again}, {skipped} decided anew{more}"
    if done.stale:
        remedy = "--downstream carries them out again"
        if downstream:
            remedy = "at work, not done again" if effects else "at work, with effects (--effects), or sent (--effects)"
        yield f"{counted(len(done.stale), 'call')} stale: {_names(done.stale)}; {remedy}"


def _names(calls: Sequence[str]) -> str:
    more = f" and {len(calls) - _MOST_NAMED} more" if len(calls) > _MOST_NAMED else ""
    return escaped(", ".join(calls[:_MOST_NAMED])) + more


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        hint = f"""a text is written as '"{text}"'""" if text.isprintable() and '"' not in text else "see `--help`"
        raise Failed(f"--skip: {text!r} is not JSON ({error}); {hint}", REJECTED) from None
