"""The group that holds the commands."""

from __future__ import annotations

from typing import Any

import click

from .archive import export, import_
from .check import check, contracts
from .control import amend, cancel, dead, delete, fork, move, pause, resume, retry, say, send
from .doctor import doctor, trust
from .evaluating import evaluate
from .options import REJECTED, WORDS, Interrupted
from .output import write_error
from .people import answer, approve, held, prompt, reject, revoke, rules, settle
from .run import run
from .runs import explain, health, log, runs, show, status, wait
from .serving import mcp, metrics, trace, traces, ui
from .submit import submit
from .worker import worker


class _Commands(click.Group):
    """A group that lists commands in the order in which users meet them, and turns Ctrl-C into `Interrupted`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words of the command line, for commands that say how they are repeated."""
        ctx.meta[WORDS] = [*args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of registration."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands that a user needs first, and the others by what they are for."""
        for title, commands in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(each.name or "", each.get_short_help_str(100)) for each in commands])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. click would print an empty line for Ctrl-C, so it is not shown one."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="acts-celery", message="acts-celery %(version)s", help="Print the version.")
@click.pass_context
def acts(ctx: click.Context) -> None:
    """Run plans of tool calls on Celery and Redis, and read their results.

    Exit codes: 0 fine, 1 the run failed or was cancelled, 2 refused before anything ran, 3 infrastructure or timeout,
    4 not possible now.
    """
    if ctx.invoked_subcommand is None:
        write_error(ctx.get_help() + "\n")
        ctx.exit(REJECTED)


_GROUPS: dict[str, tuple[click.Command, ...]] = {
    "Commands": (run, check, submit, status, show, log, worker, doctor),
    "Run": (prompt, evaluate, wait),
    "Look": (runs, explain, held, rules, contracts, ui, trace, traces, export),
    "Steer": (pause, resume, cancel, retry, fork, amend, say, send, approve, answer, reject, settle, revoke, move),
    "Operate": (import_, delete, dead, mcp, trust, metrics, health),
}
"""Every command once, under the heading of the help that lists it."""
for commands in _GROUPS.values():
    for command in commands:
        acts.add_command(command)
