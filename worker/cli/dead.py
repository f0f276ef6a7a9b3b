"""`acts dead`: fire-and-forget calls that failed for good (SPEC R5.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from .failures import COMPLETED
from .options import Common, common_options
from .output import confirmed, escaped, print_either, print_text
from .rendering import counted
from .values import value_lines

if TYPE_CHECKING:
    from acts_celery.worker.client.client import Client
    from acts_celery.worker.storage.dead_letters import DeadLetter, DeadLetters


@click.group(
    no_args_is_help=False, short_help="List, show, resend and drop fire-and-forget calls that failed for good."
)
def dead() -> None:
    """Fire-and-forget calls that failed after their retries, or whose workers died again and again."""


@dead.command("list", short_help="Print them, the oldest first.")
@click.option("--run", metavar="RUN", help="Only those of this run.")
@common_options
def list_(run: str | None, *, common: Common) -> int:
    """Print all dead letters, or those of one run, the oldest first, one line each.

    Exit codes: 0 also where there are none, 3 no server, 4 no such run.
    """
    with _letters(common) as (client, letters):
        found = letters.list(client.find(run).id if run is not None else None)
    for letter in found:
        print_either(letter.to_dict(), [_line(letter)], as_json=common.json)
    if not found and not common.json:
        print_text("no dead letters")
    return COMPLETED


@dead.command(short_help="Print one, with the parameters and scopes that were sent.")
@click.argument("id_", metavar="ID")
@common_options
def show(id_: str, *, common: Common) -> int:
    """Print the dead letter ID, with the parameters and scopes its call was sent with.

    Exit codes: 0 found, 3 no server, 4 no such call.
    """
    with _letters(common) as (_, letters):
        letter = letters.get(id_)
    document = letter.to_dict() | {"body": letter.body}
    print_either(document, (_line(letter), *value_lines(letter.body, 2)), as_json=common.json)
    return COMPLETED


@dead.command(short_help="Send calls again, with all their attempts.")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Every one there is.")
@common_options
def resend(ids: tuple[str, ...], is_all: bool, *, common: Common) -> int:
    """Send calls again, with all their attempts. A running instance worker does so within a second or two.

    Exit codes: 0 done, 3 no server, 4 one of them is not there (then none is sent).
    """
    return _act(ids, is_all, common, "resent", lambda letters, chosen: letters.resend(chosen))


@dead.command(short_help="Forget calls for ever.")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Every one there is.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask. On a terminal --all asks first.")
@common_options
def drop(ids: tuple[str, ...], is_all: bool, yes: bool, *, common: Common) -> int:
    """Forget calls for ever.

    Exit codes: 0 done, 3 no server, 4 one of them is not there (then none is dropped).
    """

    def forget(letters: DeadLetters, chosen: tuple[str, ...]) -> None:
        if is_all and not yes:
            confirmed(f"forget {counted(len(chosen), 'call')} for ever?")
        letters.drop(chosen)

    return _act(ids, is_all, common, "dropped", forget)


@contextmanager
def _letters(common: Common) -> Iterator[tuple[Client, DeadLetters]]:
    from acts_celery.worker.client.client import Client

    with Client(common.settings()) as client:
        yield client, client.dead_letters()


def _act(
    ids: tuple[str, ...], is_all: bool, common: Common, done: str, act: Callable[[DeadLetters, tuple[str, ...]], None]
) -> int:
    if bool(ids) == is_all:
        raise click.UsageError("name the calls by their ids, or give --all")
    with _letters(common) as (_, letters):
        chosen = tuple(letter.id for letter in letters.list()) if is_all else ids
        act(letters, chosen)
    print_either({done: list(chosen)}, [f"{counted(len(chosen), 'call')} {done}"], as_json=common.json)
    return COMPLETED


def _line(letter: DeadLetter) -> str:
    document = letter.to_dict()
    name = document["activity"] or document["delegate"] or "?"
    where = f"{escaped(name)} on {letter.task.queue}, {counted(letter.attempts, 'attempt')}"
    error = escaped(f"{letter.error_type}: {letter.error_message}")
    return f"{letter.date}  {escaped(letter.id)}  {where}  {error}"
