"""`acts submit`: hand a submission to the configured backend and leave."""

from __future__ import annotations

from contextlib import closing

import click

from .checked import Checks, check_options
from .failures import COMPLETED, documented
from .naming import Naming, naming_options
from .options import Common, common_options, load_registry
from .output import print_either, tell
from .source import Source, source_options


@click.command(short_help="Submit and print the id of the run.")
@source_options
@naming_options
@check_options
@common_options
def submit(*, source: Source, naming: Naming, checks: Checks, common: Common) -> int:
    """Submit FILE (or - for standard input) to the configured broker, and print the run's id.

    Warnings of `acts check` are printed on stderr; --json has all its findings.

    Exit codes: 0 submitted, 2 rejected, 3 no server.
    """
    with documented(as_json=common.json, has_status=True):
        settings = common.settings()
        value, files = source.read(settings)
        load_registry(settings)
        settings.require_redis()
        from acts_celery.worker.client.client import Client
        from acts_celery.worker.storage.connections import connect, eviction_warning

        with Client(settings) as client:
            plan = client.check_submission(value, allow=source.allowed)
            findings = checks.tell(plan)
            run = client.submit_plan(plan, naming.label(value), files)
            with closing(connect(settings)) as redis:
                if (warning := eviction_warning(redis, settings)) is not None:
                    tell(f"warning: {warning}")
    print_either({"run": run.id, **findings}, [run.id], as_json=common.json)
    return COMPLETED
