"""`acts status`, `acts show`, `acts log`: what the log says of a run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from worker.cli.failures import COMPLETED
from worker.cli.options import Common, common_options
from worker.cli.output import escaped, flush, print_json, print_text, tell
from worker.cli.rendering import counts_line, heading, status_word
from worker.errors import InstanceNotFound

if TYPE_CHECKING:
    from worker.client.runs import LogEntry, Run

_MESSAGE_ID: Final = re.compile(r"\d{1,19}(-\d{1,19})?\Z", re.ASCII)
_LAST_OF_A_MILLISECOND: Final = 2**63 - 1
_PROVENANCE: Final = frozenset({"_by", "_call", "_date", "_instance"})

at_option = click.option("--at", metavar="MESSAGE_ID", help="As of this message of the log (see `acts log`).")


@click.command(short_help="Print the calls of a run counted by status, now or as of a past message.")
@click.argument("run", metavar="RUN")
@at_option
@common_options
def status(run: str, at: str | None, *, common: Common) -> int:
    """Print the status of RUN, and its calls counted by theirs.

    Exit codes: 0 found, 3 not found, or no server.
    """
    moment = message_id(at)
    with found_run(run, common) as found:
        document = found.status(moment)
    print_status(document, common)
    return COMPLETED


@click.command(short_help="Print the data of a run, now or as of a past message.")
@click.argument("run", metavar="RUN")
@click.option("--instance", metavar="I", help="Only this instance's data and calls.")
@at_option
@common_options
def show(run: str, instance: str | None, at: str | None, *, common: Common) -> int:
    """Print the folded data and the calls of RUN, now or as of a past message.

    Exit codes: 0 found, 3 not found, or no server.
    """
    from worker.cli.run import print_result

    moment = message_id(at)
    with found_run(run, common) as found:
        document = found.result(at=moment).to_dict()
    if instance is not None:
        document = _of_instance(document, instance)
    print_result(document, as_json=common.json)
    return COMPLETED


@click.command(short_help="Print the messages of a run.")
@click.argument("run", metavar="RUN")
@click.option("--instance", metavar="I", help="Only the messages of this instance.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the run ends.")
@common_options
def log(run: str, instance: str | None, follow: bool, *, common: Common) -> int:
    """Print the messages of RUN in order, one line each; with --follow stderr says in the end how it ended.

    Exit codes: 0 found, also where the run failed, 3 not found, or no server.
    """
    with found_run(run, common) as found:
        for entry in found.log(instance=instance, follow=follow):
            _print_entry(entry, as_json=common.json)
            if follow:
                flush()
        if follow:
            end = found.status()
            tell(f"run {run} is {end['status']}, {counts_line(end['calls'])}")
    return COMPLETED


def print_status(document: Mapping[str, Any], common: Common) -> None:
    """Print a run's status and its calls counted by theirs."""
    if common.json:
        print_json(document)
    else:
        print_text(f"{status_word(document['status'])}  run {document['run']}, {counts_line(document['calls'])}")


@contextmanager
def found_run(run: str, common: Common) -> Iterator[Run]:
    """The run of that id, its connection open."""
    from worker.client.client import Client

    with Client(common.settings()) as client:
        yield client.run(run)


def message_id(text: str | None) -> str | None:
    """A message's id in full; one without a sequence number stands for its whole millisecond."""
    if text is None:
        return None
    if not (match := _MESSAGE_ID.match(text)):
        raise click.BadParameter(f"{text!r} is not a message's id such as 1763683200000-0", param_hint="--at")
    return text if match[1] else f"{text}-{_LAST_OF_A_MILLISECOND}"


def _of_instance(document: dict[str, Any], instance: str) -> dict[str, Any]:
    """The part of a run's document that one instance is about."""
    if instance not in document["instances"]:
        raise InstanceNotFound(document["run"], instance, list(document["instances"]))
    return document | {
        "instances": {instance: document["instances"][instance]},
        "calls": [call for call in document["calls"] if call["instance"] == instance],
    }


def _print_entry(entry: LogEntry, *, as_json: bool) -> None:
    if as_json:
        print_json({"id": entry.id, "instance": entry.instance, "message": dict(entry.message)})
        return
    message = {key: value for key, value in entry.message.items() if key not in _PROVENANCE}
    call = entry.message.get("_call")
    origin = f"  ← {escaped(str(call.get('_tool')))}" if isinstance(call, dict) else ""
    origin += f", given by {escaped(str(entry.message['_by']))}" if "_by" in entry.message else ""
    moment = datetime.fromtimestamp(int(entry.id.partition("-")[0]) / 1000, UTC).astimezone()
    where = heading(entry.instance) if entry.instance is not None else click.style("global", dim=True)
    stamp = click.style(f"{entry.id}  {moment:%H:%M:%S}", dim=True)
    print_text(f"{stamp}  {where}  {escaped(json.dumps(message, ensure_ascii=False))}{origin}")
