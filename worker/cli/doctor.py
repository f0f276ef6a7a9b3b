"""`acts doctor`: one line for each layer between a submission and its result; what is wrong, and what to do."""

from __future__ import annotations

import click

from .options import COMPLETED, UNAVAILABLE, Common, command
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
