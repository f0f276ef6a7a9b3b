"""`acts doctor`: one line for each layer between a submission and its result; what is wrong, and what to do.

`acts trust suggest` says what may be missing in the operator's file of trust in tools (SPEC R16.1).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from .options import COMPLETED, UNAVAILABLE, Common, command, load_registry
from .output import counted, escaped, print_json, print_text, tell


@command("Find out what is wrong and what to do.")
@click.option(
    "--restored",
    is_flag=True,
    help="The log was restored from a backup: ask about calls with once=True that had not ended in it. Give it before "
    "the workers start.",
)
def doctor(*, restored: bool, common: Common) -> int:
    """Look at settings, versions, activities, broker, log, workers and queues, and say what is wrong.

    Exit codes: 0 all is well, 3 something is not.
    """
    from .doctor_layers import examine

    if restored:
        _note_restored(common)
    layers = examine(common)
    is_well = all(layer.ok for layer in layers)
    if common.json:
        print_json({"ok": is_well, "layers": [layer.to_dict() for layer in layers]})
    else:
        for layer in layers:
            word, colour = ("ok", "green") if layer.ok else ("BAD", "red")
            if layer.ok and layer.remedies:
                word, colour = "warn", "yellow"
            print_text(f"{click.style(f'{word:<5}', fg=colour, bold=True)} {layer.layer:<12} {escaped(layer.detail)}")
            for remedy in layer.remedies:
                print_text(f"      → {escaped(remedy)}")
    return COMPLETED if is_well else UNAVAILABLE


def _note_restored(common: Common) -> None:
    """Ask about calls that a log restored from a backup does not know to have begun."""
    from ..store.connections import connect, redis_errors
    from ..store.run_list import RunList

    settings = common.settings()
    with redis_errors(settings), connect(settings) as redis:
        count = RunList(redis, settings.key_prefix).note_restored()
    tell(f"{counted(count, 'run')} under way: calls that run at most once are asked about before they begin")


@click.group("trust", short_help="Labels of tools: what others write, and what acts.")
def trust() -> None:
    """Labels of tools, as the operator declares them in the file of ACTS_TRUST."""


@command("Suggest labels, to be reviewed.", "suggest", into=trust)
@click.option("--run", "runs", multiple=True, metavar="RUN", help="Look at the results in this run; repeatable.")
def suggest(*, runs: tuple[str, ...], common: Common) -> None:
    """Print a file for ACTS_TRUST that labels the tools of ACTS_ACTIVITIES and the admitted ones of ACTS_MCP as far as
    names, schemas, annotations and the results of --run say anything, with the reasons. What is declared already is
    left out.

    Nothing of it holds: a file with an entry that is "suggested" is refused. Read the reasons, correct the entry, and
    remove "suggested" from it, or remove the entry.

    Exit codes: 0 printed, 2 code or a file that cannot be read, 3 no server for --run.
    """
    from ..registry.activities import registry
    from ..registry.request_definitions import known_tools, suggestion

    with common.documented(has_status=False) as answer:
        settings = common.settings()
        load_registry(settings)
        tools = list(known_tools(settings, registry, _results(runs, common)))
        found = {tool.name: entry for tool in tools if (entry := suggestion(tool))}
        print_text(json.dumps(found, indent=2, ensure_ascii=False))
        answer.is_given = True
    tell(f"{counted(len(found), 'tool')} of {len(tools)} with a suggestion: read the reasons, then accept or remove it")
    if silent := [tool.name for tool in tools if tool.name not in found and not tool.said]:
        tell(f"nothing says anything of {', '.join(silent)}: label by hand what others write, and what acts")
    for tool in tools:
        if tool.may_only_read:
            tell(f"{tool.name} may only read, by its name: if so, acts mcp admit --reads {tool.name}")


def _results(runs: Iterable[str], common: Common) -> Mapping[str, Sequence[Any]]:
    """Collect the results of the calls of runs, by tool."""
    from ...protocol.state.operations import read_operation

    found = defaultdict[str, list[Any]](list)
    for run in runs:
        with common.found(run) as recorded:
            for entry in recorded.log():
                call = entry.message.get("_call")
                operation = read_operation(entry.message, entry.id) if isinstance(call, Mapping) else None
                if operation is not None and isinstance(call, Mapping):
                    found[str(call.get("_tool"))].append(operation.value)
    return found
