"""`acts prompt`: what a model would be asked, without asking it (SPEC R12.9)."""

from __future__ import annotations

import json

import click

from worker.cli.failures import COMPLETED, documented
from worker.cli.options import Common, allow_option, common_options, load_registry
from worker.cli.output import escaped, print_json, print_text
from worker.cli.rendering import heading


@click.command(short_help="Show what a model would be asked.")
@click.argument("file")
@allow_option
@common_options
def prompt(file: str, allow: tuple[str, ...], *, common: Common) -> int:
    """Show the messages and the composed schema of FILE's request (or - for standard input), without asking anybody.

    A solution in FILE is passed over; without a schema in FILE the only output is null.

    Exit codes: 0 shown, 2 FILE is not valid.
    """
    from worker.cli.source import read_submission

    with documented(as_json=common.json, has_status=False):
        settings = common.settings()
        value = read_submission(file, settings)
        load_registry(settings)
        from protocol.requests import compose, render
        from worker.execution.checking import Checker

        request = Checker(settings).request(value, allow=allow or None)
        messages, schema = render(request), compose(request)
    if common.json:
        print_json({"messages": messages, "schema": schema})
        return COMPLETED
    for message in messages:
        print_text(heading(escaped(str(message.get("role")))))
        content = message.get("content")
        lines = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        for line in lines.split("\n"):
            print_text(escaped(line))
        print_text()
    print_text(heading("schema"))
    for line in json.dumps(schema, ensure_ascii=False, indent=2).split("\n"):
        print_text(escaped(line))
    return COMPLETED
