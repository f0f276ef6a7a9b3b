"""`acts run`: submit, wait, print the result; without a configured broker on a backend of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from .checked import Checks, check_options
from .failures import COMPLETED, FAILED, Answer, Failed, Interrupted, documented
from .naming import Naming, naming_options
from .no_worker_hint import no_worker_hint, queues_of
from .options import Common, common_options, load_registry
from .output import print_text, tell
from .rendering import background_line, call_name, counts_line
from .source import Source, read_source, source_options
from .view import View, print_result, view_options

if TYPE_CHECKING:
    from acts_celery.broker_config import Settings
    from acts_celery.worker.client.runs import Run

_GONE: Final = (
    "the run ends here, with its embedded server, and nothing of it is kept; with ACTS_BROKER_URL it would go on"
)
_NOT_RAISED: Final = ("InvalidParameters", "OutputError", "Rejected", "Stopped", "Unknown", "Untrusted", "WorkerLost")
"""The types of errors that the engine itself gives."""
_MOST_TOLD: Final = 20
"""Calls that are told of on stderr."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """How a run is waited for, and what is printed of it."""

    as_json: bool
    view: View
    deadline: float | None
    worker_log: Path | None
    embedded: Settings | None
    """The backend that goes with the command, if there is one."""


@click.command(short_help="Submit, wait and print the result.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Give up after this long."
)
@click.option(
    "--worker-log",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the log of the embedded worker, with tracebacks, to this file.",
)
@source_options
@naming_options
@check_options
@view_options
@common_options
def run(
    timeout: float | None,
    worker_log: Path | None,
    *,
    source: Source,
    naming: Naming,
    view: View,
    checks: Checks,
    common: Common,
) -> int:
    """Submit FILE (or - for standard input), wait for its end and print the result.

    If no broker is configured, a server and a worker are started for the time of the run, and nothing of them is left
    behind. They end when the calls that were sent and forgotten have ended, too.

    Warnings of `acts check` are printed on stderr; --json has all its findings.

    Exit codes: 0 completed, 1 failed or cancelled (with a backend of its own also where a call that was sent and not
    awaited failed for good), 2 rejected before anything ran, 3 no server, or timeout.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    with documented(as_json=common.json, has_status=True) as answer:
        settings = common.settings()
        content = read_source(source.file, settings)
        # The backend gets ready while this process loads what it needs itself.
        with backend(settings, worker_log, deadline) as effective:
            value, files = source.decode(content, settings)
            load_registry(effective)
            from acts_celery.worker.client.client import Client

            with Client(effective) as client:
                plan = client.check_submission(value, allow=source.allowed)
                findings = checks.tell(plan)
                if effective is not settings:  # its worker has the settings of this command
                    for warning in client.checker.unready_models(plan):
                        tell(f"warning: {warning}")
                submitted = client.submit_plan(plan, naming.label(value), files)
                embedded = effective if effective is not settings else None
                asked = _Asked(common.json, view, deadline, worker_log, embedded)
                hint = no_worker_hint(
                    settings,
                    lambda: queues_of(plan, settings),
                    lambda: submitted.status().get("waiting_for", ()),
                )
                with nullcontext() if embedded else hint:
                    return _see_through(submitted, findings, asked, answer)


@contextmanager
def backend(settings: Settings, worker_log: Path | None, deadline: float | None) -> Iterator[Settings]:
    """The configured backend, or one of our own."""
    if settings.effective_broker_url is not None or settings.effective_redis_url is not None:
        settings.require_broker()
        settings.require_redis()
        yield settings
        return
    from acts_celery.worker.client.local_backend import embedded_backend

    with embedded_backend(settings, worker_log=worker_log, deadline=deadline) as effective:
        yield effective


def _see_through(
    submitted: Run,
    findings: dict[str, Any],
    asked: _Asked,
    answer: Answer,
) -> int:
    """Wait for the end and print what came of it."""
    from acts_celery.worker.errors import InfrastructureError

    from .deciding import Decider
    from .progress import wait

    view, deadline, is_embedded = asked.view, asked.deadline, asked.embedded is not None
    goes_on = _GONE if is_embedded else f"run {submitted.id} goes on: acts status {submitted.id}"
    try:
        left = None if deadline is None else max(deadline - time.monotonic(), 0)
        decider = Decider(submitted, is_embedded=is_embedded)
        decider.note_plan()
        wait(submitted, decider.take, timeout_seconds=left, is_quiet=view.is_quiet)
        document = submitted.result(waits=asked.as_json).to_dict()
    except TimeoutError:
        calls = submitted.status()["calls"]
        counts = counts_line(calls)
        if not is_embedded and calls.keys() <= {"waiting"}:
            goes_on += "; nothing has begun: is a worker running (`acts worker`)? see `acts doctor`"
        print_result(submitted.result(waits=asked.as_json).to_dict() | findings, view, as_json=asked.as_json)
        answer.is_given = True
        raise Failed(f"not over in time ({counts}); {goes_on}") from None
    except InfrastructureError as error:
        if is_embedded:
            raise
        raise Failed(f"{error}; {goes_on}") from error
    except KeyboardInterrupt:
        raise Interrupted(goes_on) from None
    document |= findings
    if not asked.as_json:  # of what goes on meanwhile is told when it is over
        print_result(document | ({"background": None} if is_embedded else {}), view, as_json=False)
    dead: list[dict[str, Any]] = []
    try:
        dead = _dead(asked.embedded, deadline) if asked.embedded is not None else []
    finally:
        with suppress(InfrastructureError):  # that error is told of already
            now = submitted.status().get("background")
            document |= {"background": now} if now is not None else {}
        if is_embedded and document.get("background") and not asked.as_json and not view.is_quiet:
            print_text(background_line(document["background"]))
        if asked.as_json:
            print_result(document | ({"dead": dead} if dead else {}), view, as_json=True)
            answer.is_given = True
    if is_embedded and not asked.worker_log and (dead or any(map(has_raised, document["calls"]))):
        tell("tracebacks of activities are in the worker's log: keep it with --worker-log FILE")
    return COMPLETED if document["status"] == "completed" and not dead else FAILED


def has_raised(call: Mapping[str, Any]) -> bool:
    """Whether code has raised what a call of a result failed with, so that the worker's log has a traceback of it."""
    return call["status"] == "failed" and (call["error"] or {}).get("type") not in _NOT_RAISED


def _dead(embedded: Settings, deadline: float | None) -> list[dict[str, Any]]:
    """The calls that were sent and not awaited and failed for good: told, and as `acts dead list --json` has them."""
    from acts_celery.worker.client.background import await_background

    dead = [letter.to_dict() for letter in await_background(embedded, deadline, tell)]
    for letter in dead[:_MOST_TOLD]:
        name = call_name(letter["index"], letter["activity"] or letter["delegate"] or "?")
        where = f" in {letter['instance']}" if letter["instance"] is not None else ""
        error = letter["error"]
        tell(f"call {name}{where} was sent and forgotten, and failed: {error['type']}: {error['message']}")
    if len(dead) > _MOST_TOLD:
        tell(f"{len(dead) - _MOST_TOLD} more calls that were sent and forgotten failed: --json lists all")
    return dead
