"""What a run is called, and what is added to its context, as options of the commands that submit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from acts_celery.worker.client.labels import Label


@dataclass(frozen=True, slots=True)
class Naming:
    """What the options say."""

    id: str | None
    name: str | None
    tags: tuple[str, ...]

    def label(self, value: Any) -> Label:
        """The label of a submission. Raises `protocol.Rejected`."""
        from acts_celery.worker.client.labels import label_of

        return label_of(value, id=self.id, name=self.name, tags=self.tags)


def naming_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options on what a run is called; it receives them as `naming`."""

    @wraps(command)
    def with_naming(*, id_: str | None, name: str | None, tags: tuple[str, ...], **own: Any) -> int:
        return command(naming=Naming(id_, name, tags), **own)

    decorated: Callable[..., int] = with_naming
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


_OPTIONS: Final = (
    click.option("--id", "id_", metavar="ID", help="The run's id. The same id twice is one run."),
    click.option("--name", metavar="TEXT", help="What people call the run; RUN may be given so, too."),
    click.option("--tag", "tags", metavar="TEXT", multiple=True, help="A tag for `acts runs --name`; repeatable."),
)

context_option: Final = click.option(
    "--context",
    "contexts",
    metavar="FILE.jsonl",
    multiple=True,
    help="Add messages to FILE's context, one JSON object a line; repeatable.",
)
