"""The view of a run: how much of it is printed, and which of its calls.

By default it is short: counts, what failed, the values of a few instances, and of each value the beginning. What is
asked for by an option counts for `--json` too; what is only left out to be short is never left out there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import click

from .bundles import bundled
from .output import escaped, flush, print_either, tell
from .rendering import (
    background_line,
    calls_lines,
    cost_line,
    counted,
    counts_line,
    data_lines,
    heading,
    instances_line,
    status_word,
    version_lines,
)
from .values import SHORT, WHOLE, Cut, value_lines

MOST: Final = 10
"""Kinds of failures that are shown where no limit is given."""
_INSTANCES: Final = 5
_MOST_WAITING: Final = 5
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
        return document | {"calls": calls} | _of_instances(document, lambda name: name in having)

    def limited(self, document: dict[str, Any]) -> dict[str, Any]:
        """A document with as many instances as the limit says, and no fewer where there is none."""
        first = set(islice(document["instances"], self.limit))
        return document | _of_instances(document, lambda name: name in first)

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
    print_either(view.limited(chosen), result_lines(chosen, view, len(document["calls"])), as_json=as_json)
    # What comes after may take a while: tasks sent and not awaited, the end of the backend.
    flush()


def result_lines(document: Mapping[str, Any], view: View, total: int | None = None) -> Iterator[str]:
    """A run as `acts run` and `acts show` print it, from the document that `--json` prints; it has so many calls, where
    those of the document are not all.
    """
    calls = document["calls"]
    counts = Counter(call["status"] for call in calls)
    yield f"{status_word(document['status'])}  run {document['run']}, {counts_line(counts, total)}"
    if document.get("reason") is not None:
        yield f"  {escaped(document['reason'])}"
    if view.is_quiet:
        return
    yield from standing_lines(document)
    if stale := sum(call.get("stale", False) for call in calls):
        yield f"  {counted(stale, 'call')} stale: `acts retry {document['run']} --downstream` carries them out again"
    yield from version_lines(calls)
    for status in (*_FAILED, *(_OTHERS if view.tool is not None else ())):
        yield from calls_lines(status, calls, view.most(), view.cut)
    yield from _child_lines(calls, view)
    if view.tool is None:
        yield from _value_lines(document, view)


def standing_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """How the instances stand, and what was sent and not awaited, below the first line of a run."""
    if document.get("instance_status"):
        yield f"  {instances_line(document['instance_status'])}"
    if below := document.get("held_below"):
        waits = "waits" if below == 1 else "wait"
        yield f"  {counted(below, 'call')} of child runs {waits} for a person: acts held {document['run']}"
    if cost := cost_line(document.get("cost")):
        yield f"  {cost}"
    yield from waiting_lines(document.get("waiting_for", []))
    if document.get("background") is not None:
        yield f"  {background_line(document['background'], document['run'])}"


def waiting_lines(told: Sequence[Mapping[str, str | None]]) -> Iterator[str]:
    """What calls wait for that is no call: a few of them (see `Run.status`)."""
    for one in told[:_MOST_WAITING]:
        who = "the run" if one["call"] is None else f"call {escaped(one['call'])}"
        yield f"  {who} waits: {escaped(one['reason'] or '')}"
    if (left := len(told) - _MOST_WAITING) > 0:
        yield f"  … and {left} more: acts status --json"


def _of_instances(document: Mapping[str, Any], is_one: Callable[[str], bool]) -> dict[str, Any]:
    """What a run's document says of some of its instances."""
    return {
        part: {name: value for name, value in document[part].items() if is_one(name)}
        for part in ("instances", "instance_status")
    }


def _own(seen: Any, shared: Any) -> Any:
    """Of what an instance sees, what is not the same in the global values; whole where it lacks some of those."""
    if not isinstance(seen, dict) or not isinstance(shared, dict) or not shared.keys() <= seen.keys():
        return seen
    both = ((name, value, shared.get(name)) for name, value in seen.items())
    return {name: _own(value, other) for name, value, other in both if name not in shared or value != other}


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
    shared = document["global"] if len(instances) > 1 and not view.is_failed else {}
    for instance, kinds in shown:
        yield from data_lines(instance, _own(kinds, shared), view.cut)
    if (left := len(instances) - len(shown)) > 0:
        yield f"… and {counted(left, 'instance')} more: --all, --limit"
