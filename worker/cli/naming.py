"""What a run is called, as options of the commands that submit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from .bundles import bundled

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


naming_options: Final = bundled(
    "naming",
    Naming,
    click.option("--id", metavar="ID", help="The run's id. The same id twice is one run."),
    click.option("--name", metavar="TEXT", help="A name for the run; other commands take it as RUN."),
    click.option("--tag", "tags", metavar="TEXT", multiple=True, help="A tag for `acts runs --name`; repeatable."),
)
