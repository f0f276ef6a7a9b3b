"""`acts run`: submit, wait, print the result; without a configured broker on a backend of its own."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from .. import limits
from ..errors import AlreadyDecided, HeldAnew, InfrastructureError, NotHeld
from .check import CheckOptions, check_options
from .options import (
    COMPLETED,
    FAILED,
    Answer,
    Common,
    Failed,
    Interrupted,
    Naming,
    command,
    load_registry,
    naming_options,
)
from .output import (
    background_line,
    call_name,
    counts_line,
    in_background,
    print_text,
    tell,
    value_lines,
)
from .people import held_lines
from .progress import View, print_result, view_options, waiting_lines
from .source import Source, source_options

if TYPE_CHECKING:
    from threading import Event as ThreadEvent

    from ...broker_config import Settings
    from ...protocol import Plan
    from ..client.progress import Event
    from ..client.run import Run


# A hint on stderr after some seconds of waiting for a run: the queues that have no worker, or what else its calls wait
# for.


def no_worker_hint(
    settings: Settings,
    queues: Callable[[], Sequence[str]],
    waiting: Callable[[], Sequence[Mapping[str, str | None]]] = tuple,
) -> AbstractContextManager[None]:
    """Ask the workers once which queues they serve, if the block lasts longer than some seconds.

    Reports which of `queues` nobody serves, or what calls wait for, as the status of the run says.
    """

    def look(is_over: ThreadEvent) -> None:
        if not is_over.wait(limits.RUN_QUIET_SECONDS):
            deserted = _deserted(settings, queues())
            if deserted and not is_over.is_set():
                remedy = f"acts worker --queues {','.join(deserted)}; see `acts doctor`"
                tell(f"no worker is known to serve {', '.join(deserted)}: {remedy}")
            # The command that waits for the run reports a log that does not answer.
            with suppress(InfrastructureError):
                for line in () if deserted or is_over.is_set() else waiting_lines(waiting()):
                    tell(line.strip())

    return in_background(look, "acts-no-worker-hint")


def queues_of(plan: Plan, settings: Settings) -> list[str]:
    """Return the queues that a plan needs workers on."""
    from ..registry.activities import registry

    cost = plan.cost
    needed = [settings.queue_instances]
    needed += [settings.queue_delegates] if cost.delegate_requests or cost.model_requests else []
    needed += [settings.queue_background] if cost.background_sends else []
    named = {call.runner.name for call in plan.calls} if cost.queued_activities else set()
    needed += [one.queue for name, one in registry.activities.items() if name in named and one.queue is not None]
    return list(dict.fromkeys(needed))


def _deserted(settings: Settings, queues: Sequence[str]) -> list[str]:
    """Return the queues that no worker serves; none if the workers cannot be asked."""
    from ..runner.application import make_client_application

    try:
        answers = (
            make_client_application(settings).control.inspect(timeout=limits.RUN_ANSWER_SECONDS).active_queues() or {}
        )
    except Exception:  # only a hint: the run itself reports a broken broker
        return []
    served = {queue["name"] for answer in answers.values() for queue in answer}
    return [queue for queue in queues if queue not in served]


_GONE: Final = (
    "the run ends here, with its embedded server, and nothing of it is kept; with ACTS_BROKER_URL it would go on"
)
_NO_TERMINAL: Final = (
    "{} waits for a person, and there is no terminal to ask at: run it from one, or on a server with `acts submit`, "
    "`acts held` and `acts approve`"
)
_NOT_RAISED: Final = ("InvalidParameters", "OutputError", "Rejected", "Stopped", "Unknown", "Untrusted", "WorkerLost")
"""Types of errors that the engine itself makes."""


@dataclass(frozen=True, slots=True)
class _WaitOptions:
    """How to wait for a run, and what to print of it."""

    as_json: bool
    view: View
    deadline: float | None
    worker_log: Path | None
    embedded: Settings | None
    """The settings of the command's own backend, if it has one."""


@command("Submit, wait and print the result.")
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
def run(
    timeout: float | None,
    worker_log: Path | None,
    *,
    source: Source,
    naming: Naming,
    view: View,
    checks: CheckOptions,
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
    with common.documented() as answer:
        settings = common.settings()
        content = source.content(settings)
        # The backend gets ready while this process loads what it needs itself.
        with backend(settings, worker_log, deadline) as effective:
            value, files = source.decode(content, settings)
            load_registry(effective)
            from ..client.client import Client

            with Client(effective) as client:
                plan = client.check_submission(value, allow=source.allowed)
                findings = checks.tell(plan)
                if effective is not settings:  # its worker has the settings of this command
                    for warning in client.checker.unready_models(plan):
                        tell(f"warning: {warning}")
                submitted = client.submit_plan(plan, naming.label(value), files)
                embedded = effective if effective is not settings else None
                options = _WaitOptions(common.json, view, deadline, worker_log, embedded)
                hint = no_worker_hint(
                    settings,
                    lambda: queues_of(plan, settings),
                    lambda: submitted.status().get("waiting_for", ()),
                )
                with nullcontext() if embedded else hint:
                    return _see_through(submitted, findings, options, answer)


@contextmanager
def backend(settings: Settings, worker_log: Path | None, deadline: float | None) -> Iterator[Settings]:
    """Give the settings of the configured backend, or start one for the block."""
    if settings.effective_broker_url is not None or settings.effective_redis_url is not None:
        settings.require_broker()
        settings.require_redis()
        yield settings
        return
    from ..local import embedded_backend

    with embedded_backend(settings, worker_log=worker_log, deadline=deadline) as effective:
        yield effective


def _see_through(
    submitted: Run,
    findings: dict[str, Any],
    options: _WaitOptions,
    answer: Answer,
) -> int:
    """Wait for the end of a run and print its result; returns the exit code."""
    from ..errors import InfrastructureError
    from .progress import wait

    view, deadline, is_embedded = options.view, options.deadline, options.embedded is not None
    goes_on = _GONE if is_embedded else f"run {submitted.id} goes on: acts status {submitted.id}"
    try:
        left = None if deadline is None else max(deadline - time.monotonic(), 0)
        decider = Decider(submitted, is_embedded=is_embedded)
        decider.note_plan()
        wait(submitted, decider.take, timeout_seconds=left, is_quiet=view.is_quiet)
        document = submitted.result(waits=options.as_json).to_dict()
    except TimeoutError:
        calls = submitted.status()["calls"]
        counts = counts_line(calls)
        if not is_embedded and calls.keys() <= {"waiting"}:
            goes_on += "; nothing has begun: is a worker running (`acts worker`)? see `acts doctor`"
        print_result(submitted.result(waits=options.as_json).to_dict() | findings, view, as_json=options.as_json)
        answer.is_given = True
        raise Failed(f"not over in time ({counts}); {goes_on}") from None
    except InfrastructureError as error:
        if is_embedded:
            raise
        raise Failed(f"{error}; {goes_on}") from error
    except KeyboardInterrupt:
        raise Interrupted(goes_on) from None
    document |= findings
    if not options.as_json:  # what runs in the background is printed when it is over
        print_result(document | ({"background": None} if is_embedded else {}), view, as_json=False)
    dead: list[dict[str, Any]] = []
    try:
        dead = _dead(options.embedded, deadline) if options.embedded is not None else []
    finally:
        with suppress(InfrastructureError):  # that error is reported already
            now = submitted.status().get("background")
            document |= {"background": now} if now is not None else {}
        if is_embedded and document.get("background") and not options.as_json and not view.is_quiet:
            print_text(background_line(document["background"]))
        if options.as_json:
            print_result(document | ({"dead": dead} if dead else {}), view, as_json=True)
            answer.is_given = True
    if is_embedded and not options.worker_log and (dead or any(map(has_raised, document["calls"]))):
        tell("tracebacks of activities are in the worker's log: keep it with --worker-log FILE")
    return COMPLETED if document["status"] == "completed" and not dead else FAILED


def has_raised(call: Mapping[str, Any]) -> bool:
    """Say whether code raised the error of a failed call, so that the worker's log has a traceback."""
    return call["status"] == "failed" and (call["error"] or {}).get("type") not in _NOT_RAISED


def _dead(embedded: Settings, deadline: float | None) -> list[dict[str, Any]]:
    """Report the calls that were sent and forgotten and failed for good; return them as JSON has them."""
    from ..store.waiting import await_background

    dead = [letter.to_dict() for letter in await_background(embedded, deadline, tell)]
    for letter in dead[: limits.MOST_TOLD]:
        name = call_name(letter["index"], letter["activity"] or letter["delegate"] or "?")
        where = f" in {letter['instance']}" if letter["instance"] is not None else ""
        error = letter["error"]
        tell(f"call {name}{where} was sent and forgotten, and failed: {error['type']}: {error['message']}")
    if len(dead) > limits.MOST_TOLD:
        tell(f"{len(dead) - limits.MOST_TOLD} more calls that were sent and forgotten failed: --json lists all")
    return dead


# `acts submit`: hand a submission to the configured backend and leave.


@command("Submit and print the id of the run.")
@source_options
@click.option(
    "--state-of",
    metavar="RUN",
    help="Begin with the state of this run, of each instance, with its labels; FILE's own messages add to it.",
)
@naming_options
@check_options
def submit(state_of: str | None, *, source: Source, naming: Naming, checks: CheckOptions, common: Common) -> None:
    """Submit FILE (or - for standard input) to the configured broker, and print the run's id.

    Warnings of `acts check` are printed on stderr; --json has all its findings.

    Exit codes: 0 submitted, 2 rejected, 3 no server, 4 no such run for --state-of.
    """
    with common.documented():
        settings = common.settings()
        value, files = source.read(settings)
        load_registry(settings)
        settings.require_redis()
        from ..client.client import Client
        from ..client.submitting import counted_behind, with_state
        from ..store.connections import connect, eviction_warning

        with Client(settings) as client:
            state = client.state_of(state_of) if state_of is not None else []
            value = with_state(value, state) if state else value
            with counted_behind(state):
                plan = client.check_submission(value, allow=source.allowed)
            findings = checks.tell(plan)
            run = client.submit_plan(plan, naming.label(value), files)
            with closing(connect(settings)) as redis:
                if (warning := eviction_warning(redis, settings)) is not None:
                    tell(f"warning: {warning}")
    common.print({"run": run.id, **findings}, [run.id])


# Deciding on held calls from `acts run`: at a terminal the person is asked as soon as a call is held (SPEC R14).


class Decider:
    """Asks for decisions on the held calls of a run that `acts run` waits for."""

    def __init__(self, run: Run, *, is_embedded: bool) -> None:
        self._run = run
        self._is_embedded = is_embedded
        self._is_stuck = False
        """Whether a call is held and nobody can decide on it."""
        self._left = 0
        """How many calls have to end before nothing is at work any more."""
        self.can_ask = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))

    def note_plan(self) -> None:
        """Ask whether the plan of a run in mode lazy may run. Raises `Failed` if nobody can be asked."""
        if (plan := self._run.plan()) is None:
            return
        if self.can_ask:
            for line in value_lines({"calls": plan["calls"]}, 2):
                click.echo(line, err=True)
            if _answer("let this plan run? y or n").lower() in ("y", "yes"):
                self._run.approve_plan(plan["plan"])
            else:
                self._run.cancel()
        elif not self._is_embedded:
            tell(f"the plan waits for a person: acts held {self._run.id}, then acts approve, acts amend or acts cancel")
        else:
            raise Failed(_NO_TERMINAL.format("the plan"))

    def take(self, event: Event) -> None:
        """Ask the person at the terminal about a held call, or say which command decides on it.

        Raises `Failed` if nobody can decide, once nothing else is at work or a child run has the call.
        """
        is_held = event.kind == "held"
        if self.can_ask or not self._is_embedded:
            if is_held:
                self._note()
            return
        self._is_stuck = self._is_stuck or is_held
        is_own = event.run is None
        self._left -= is_own and event.kind == "call"
        if self._is_stuck and event.kind in ("held", "call") and (self._left <= 0 or (is_held and not is_own)):
            now = self._run.status()
            self._left = now["calls"].get("running", 0)
            if "held_below" not in now and ("running" in now["calls"] or "held" not in now["calls"]):
                return
            raise Failed(_NO_TERMINAL.format("a call"))

    def _note(self) -> None:
        if self.can_ask:
            self._ask()
        else:
            tell(f"a call waits for a person: acts held {self._run.id}, then acts approve or acts reject")

    def _ask(self) -> None:
        for call in self._run.held():
            for line in held_lines(call):
                click.echo(line, err=True)
            answer = _answer("your answer" if call.get("question") else "let it run? y, or why not")
            try:
                if call.get("question"):
                    self._reply(call, answer)
                elif answer.lower() in ("y", "yes"):
                    self._run.approve(call["call"], shown=call["shown"])
                else:
                    reason = _answer("why not") if answer.lower() in ("n", "no") else answer
                    self._run.reject(call["call"], reason, shown=call["shown"])
            except (AlreadyDecided, HeldAnew, NotHeld) as error:  # somewhere else
                tell(str(error))

    def _reply(self, call: Mapping[str, Any], answer: str) -> None:
        """Answer a question with the text or, if that is refused, with the JSON value in it; ask until one fits."""
        from ...protocol import Rejected

        while True:
            refusal = ""
            for value in _values(answer):
                try:
                    self._run.answer(call["call"], value, shown=call["shown"])
                except Rejected as rejected:
                    refusal = "; ".join(problem.message for problem in rejected.errors)
                else:
                    return
            tell(refusal)
            answer = _answer("your answer")


def _values(answer: str) -> Iterator[Any]:
    """Yield what a text may mean: itself, or the JSON value in it."""
    yield answer
    with suppress(ValueError):
        yield json.loads(answer)


def _answer(prompt: str) -> str:
    """Read an answer; not with `input`, which writes to stdout. The end of the input interrupts the run."""
    answer = ""
    while not answer.strip():
        click.echo(f"  {prompt}: ", nl=False, err=True)
        if not (answer := sys.stdin.readline()):
            raise KeyboardInterrupt
    return answer.strip()
