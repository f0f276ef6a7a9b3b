"""What a run is called, as options of the commands that submit."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from .bundles import bundled
from .output import tell

if TYPE_CHECKING:
    from acts_celery.worker.client.labels import Label

TRACEPARENT: Final = "TRACEPARENT"
"""The variable by which a program is told of the span that it runs in, as OpenTelemetry's specification has it."""


@dataclass(frozen=True, slots=True)
class Naming:
    """What the options say."""

    id: str | None
    name: str | None
    tags: tuple[str, ...]

    def label(self, value: Any) -> Label:
        """The label of a submission. Raises `protocol.Rejected`."""
        from acts_celery.worker.client.labels import label_of
        from acts_celery.worker.wire.traces import TracePlace

        given = os.environ.get(TRACEPARENT) or None
        if given is not None and TracePlace.read_header(given) is None:
            tell(f"{TRACEPARENT} is no traceparent as W3C Trace Context has it: the run begins a trace of its own")
            given = None
        return label_of(value, id=self.id, name=self.name, tags=self.tags, traceparent=given)


naming_options: Final = bundled(
    "naming",
    Naming,
    click.option("--id", metavar="ID", help="The run's id. The same id twice is one run."),
    click.option("--name", metavar="TEXT", help="A name for the run; other commands take it as RUN."),
    click.option("--tag", "tags", metavar="TEXT", multiple=True, help="A tag for `acts runs --name`; repeatable."),
)
