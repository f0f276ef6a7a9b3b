"""The view of a run: how much of it is printed, and which of its calls.

By default it is short: counts, what failed, the values of a few instances, and of each value the beginning. What is
asked for by an option counts for `--json` too; what is only left out to be short is never left out there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import click

from .bundles import bundled
from .output import escaped, flush, print_either, tell
from .rendering import calls_lines, counted, counts_line, data_lines, heading, status_word
from .values import SHORT, WHOLE, Cut, value_lines

MOST: Final = 10
"""Kinds of failures that are shown where no limit is given."""
_INSTANCES: Final = 5
"""Likewise instances."""
_FAILED: Final = ("failed", "skipped")
_OTHERS: Final = ("waiting", "held", "running", "done", "sent", "latent")


@dataclass(frozen=True, slots=True)
class View:
    """What the options say."""

    is_all: bool = False
    is_failed: bool = False
    tool: str | None = None
    limit: int | None = None
    is_quiet: bool = False

    @property
    def is_filter(self) -> bool:
        """Whether only some calls are asked for."""
        return self.is_failed or self.tool is not None

    @property
    def cut(self) -> Cut:
        """How much of a value is shown."""
        return WHOLE if self.is_all else SHORT

    def most(self, default: int = MOST) -> int | None:
        """How many lines of a kind are shown; None is all."""
        return self.limit if self.limit is not None else None if self.is_all else default

    def chosen(self, document: dict[str, Any]) -> dict[str, Any]:
        """The part of a run's document that is asked for."""
        if not self.is_filter:
            return document
        calls = [call for call in document["calls"] if self._shows(call)]
        self.tell_of_unknown({call["tool"] for call in document["calls"]})
        having = {call["instance"] for call in calls}
        instances = {name: data for name, data in document["instances"].items() if name in having}
        return document | {"calls": calls, "instances": instances}

    def limited(self, document: dict[str, Any]) -> dict[str, Any]:
        """A document with as many instances as the limit says, and no fewer where there is none."""
        return document | {"instances": dict(islice(document["instances"].items(), self.limit))}

    def tell_of_unknown(self, tools: Collection[str]) -> None:
        """Say on stderr that no call is of the tool that is asked for; `tools` are those of all calls."""
        if self.tool is not None and self.tool not in tools:
            from acts_celery.protocol.language.spelling import Speller

            tell(f"no call is of the tool {self.tool!r}{Speller().hint(self.tool, tools)}")

    def _shows(self, call: Mapping[str, Any]) -> bool:
        return self.tool in (None, call["tool"]) and (not self.is_failed or call["status"] == "failed")


view_options: Final = bundled(
    "view",
    View,
    click.option("--all", "is_all", is_flag=True, help="Print everything, and every value whole."),
    click.option("--failed", "is_failed", is_flag=True, help="Only what failed."),
    click.option("--tool", metavar="NAME", help="Only calls of this tool."),
    click.option("--limit", type=click.IntRange(min=0), metavar="N", help="At most so many."),
    click.option("--quiet", "-q", "is_quiet", is_flag=True, help="Print the first line only: the status."),
)
"""How much a command prints, as `view`."""


def print_result(document: dict[str, Any], view: View, *, as_json: bool) -> None:
    """Print a run's document, as much of it as is asked for."""
    chosen = view.chosen(document)
    print_either(view.limited(chosen), result_lines(chosen, view), as_json=as_json)
    # What comes after may take a while: tasks sent and not awaited, the end of the backend.
    flush()


def result_lines(document: Mapping[str, Any], view: View) -> Iterator[str]:
    """A run as `acts run` and `acts show` print it, from the document that `--json` prints."""
    calls = document["calls"]
    counts = Counter(call["status"] for call in calls)
    yield f"{status_word(document['status'])}  run {document['run']}, {counts_line(counts)}"
    if document.get("reason") is not None:
        yield f"  {escaped(document['reason'])}"
    if view.is_quiet:
        return
    for status in (*_FAILED, *(_OTHERS if view.tool is not None else ())):
        yield from calls_lines(status, calls, view.most(), view.cut)
    yield from _child_lines(calls, view)
    if view.tool is None:
        yield from _value_lines(document, view)


def _child_lines(calls: Sequence[Mapping[str, Any]], view: View) -> Iterator[str]:
    """The runs that answer calls: each has a log of its own."""
    answered = [call for call in calls if call.get("child") is not None]
    if answered:
        yield heading("child runs")
    for call in answered[: view.most()]:
        where = f" ({call['instance']})" if call["instance"] is not None else ""
        yield f"  {call['index']} {escaped(call['tool'])}{escaped(where)}: {call['child']}"
    if (left := len(answered) - len(answered[: view.most()])) > 0:
        yield f"  … and {left} more: --all"


def _value_lines(document: Mapping[str, Any], view: View) -> Iterator[str]:
    if document["output"] is not None:
        yield from value_lines({"output": document["output"]}, cut=view.cut)
    if not view.is_failed:
        yield from data_lines("global", document["global"], view.cut)
    failed = {call["instance"] for call in document["calls"] if call["status"] == "failed"}
    instances = sorted(document["instances"].items(), key=lambda item: item[0] not in failed)
    shown = instances[: view.most(_INSTANCES)]
    for instance, kinds in shown:
        yield from data_lines(instance, kinds, view.cut)
    if (left := len(instances) - len(shown)) > 0:
        yield f"… and {counted(left, 'instance')} more: --all, --limit, --instance"
