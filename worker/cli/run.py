"""`acts run`: submit, wait, print the result; without a configured broker on a backend of its own."""

from __future__ import annotations

import json
import secrets
import shlex
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from .. import limits
from ..errors import AlreadyDecided, HeldAnew, InfrastructureError, NotHeld, OverLimit
from .check import CheckOptions, check_options
from .options import (
    COMPLETED,
    FAILED,
    WORDS,
    Answer,
    Common,
    Failed,
    Interrupted,
    Naming,
    command,
    load_registry,
    naming_options,
    option,
    option_group,
)
from .output import (
    background_line,
    call_name,
    counted,
    counts_line,
    in_background,
    print_either,
    print_table,
    print_text,
    tell,
    value_lines,
)
from .people import held_lines, question_lines
from .progress import RowProgress, View, print_result, view_options, waiting_lines
from .rows import LINES, Row, RowBatch, RowFile, RowOptions, RowPlan, RowWriter, Survey, row_file
from .source import Source, source_options, writing_whole

if TYPE_CHECKING:
    from threading import Event as ThreadEvent

    from ...broker_config import Settings
    from ...protocol import Plan
    from ..client.client import Client
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


_GONE: Final = "the run ends with its embedded server, and nothing is kept; with ACTS_BROKER_URL it would continue"
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

    def left(self) -> float | None:
        """Return the seconds that are left to wait; None is any number."""
        return None if self.deadline is None else max(self.deadline - time.monotonic(), 0)


@dataclass(frozen=True, slots=True)
class _Patience:
    """The options that say for how long to wait, and what to keep of an embedded worker."""

    timeout: float | None = option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="Stop waiting after this time.",
    )
    log: str | None = option(
        "--worker-log",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Write the log of the embedded worker, with tracebacks, to this file.",
    )

    @property
    def worker_log(self) -> Path | None:
        """The file that gets the log of the embedded worker."""
        return Path(self.log) if self.log is not None else None


@command("Submit, wait and print the result.")
@option_group("patience", _Patience)
@source_options
@option_group("table", RowOptions)
@naming_options
@check_options
@view_options
def run(
    *,
    patience: _Patience,
    source: Source,
    table: RowOptions,
    naming: Naming,
    view: View,
    checks: CheckOptions,
    common: Common,
) -> int:
    """Submit FILE (or - for standard input, or a workflow's name), wait for its end and print the result.

    If no broker is configured, a server and a worker are started for the time of the run, and nothing is left
    behind. They end when fire-and-forget calls have ended, too.

    With --rows the plan runs once for each row of a table, and a row is written for each: its key, the columns, its
    status, its first error. All rows are checked before the first one runs. The same command with --id continues
    after an interruption.

    Warnings of `acts check` are printed on stderr; --json has all its findings.

    Exit codes: 0 completed, 1 failed or cancelled (with an embedded server also if a fire-and-forget call
    failed for good), 2 rejected before anything ran, 3 no server, or timeout.
    """
    deadline = None if patience.timeout is None else time.monotonic() + patience.timeout
    has_rows = table.are_given()
    with common.documented() as answer:
        settings = common.settings()
        content = source.content(settings)
        # The backend gets ready while this process loads what it needs itself.
        with backend(settings, patience.worker_log, deadline) as effective:
            value, files = source.decode(content, settings)
            load_registry(effective)
            from ..client.client import Client

            embedded = effective if effective is not settings else None
            options = _WaitOptions(common.json, view, deadline, patience.worker_log, embedded)
            with Client(effective) as client:
                if has_rows:
                    rows = _Rows(client, source.allowed, files, naming, options)
                    return rows.run(value, table, checks, answer)
                plan = client.check_submission(value, allow=source.allowed)
                findings = checks.tell(plan)
                if embedded is not None:  # its worker has the settings of this command
                    _tell_of_models(client, plan)
                submitted = client.submit_plan(plan, naming.label(value), files)
                with _hint(settings, plan, submitted) if embedded is None else nullcontext():
                    return _see_through(submitted, findings, options, answer)


def _tell_of_models(client: Client, plan: Plan) -> None:
    """Warn of models that cannot be asked from here."""
    for warning in client.checker.unready_models(plan):
        tell(f"warning: {warning}")


def _hint(settings: Settings, plan: Plan, submitted: Run) -> AbstractContextManager[None]:
    """Say after some seconds what a run waits for, while the block lasts."""
    return no_worker_hint(
        settings, lambda: queues_of(plan, settings), lambda: submitted.status().get("waiting_for", ())
    )


@contextmanager
def backend(settings: Settings, worker_log: Path | None, deadline: float | None) -> Iterator[Settings]:
    """Give the settings of the configured backend, or start one for the block."""
    if settings.effective_broker_url is not None or settings.effective_redis_url is not None:
        settings.require_broker()
        settings.require_redis()
        yield settings
        return
    from ..embedded_worker import embedded_backend

    with embedded_backend(settings, worker_log=worker_log, deadline=deadline) as effective:
        yield effective


def _see_through(submitted: Run, findings: dict[str, Any], options: _WaitOptions, answer: Answer) -> int:
    """Wait for the end of a run and print its result; returns the exit code."""
    from ..errors import InfrastructureError
    from .progress import wait

    view, deadline, is_embedded = options.view, options.deadline, options.embedded is not None
    goes_on = _GONE if is_embedded else f"run {submitted.id} continues: acts status {submitted.id}"
    try:
        decider = Decider(submitted, is_embedded=is_embedded)
        decider.note_plan()
        wait(submitted, decider.take, timeout_seconds=options.left(), is_quiet=view.is_quiet)
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
        tell(f"fire-and-forget call {name}{where} failed: {error['type']}: {error['message']}")
    if len(dead) > limits.MOST_TOLD:
        tell(f"{len(dead) - limits.MOST_TOLD} more fire-and-forget calls failed: --json lists all")
    return dead


# Rows: parts of a batch, of which a few are under way at a time. The oldest is waited for, and its rows are written.


@dataclass
class _Rows:
    """Runs a plan for the rows of a file."""

    client: Client
    allowed: Sequence[str] | None
    files: Mapping[str, bytes]
    naming: Naming
    options: _WaitOptions

    def run(self, value: Any, table: RowOptions, checks: CheckOptions, answer: Answer) -> int:
        """Check all rows, then run them and write a row for each; returns the exit code."""
        if self.options.view != View(is_quiet=self.options.view.is_quiet):
            raise click.UsageError("with --rows, use only --quiet; `acts show RUN` shows a run")
        file = row_file(table, self.client.settings)
        output = table.target(file.path)
        plan = RowPlan.of(value, lambda document: self.client.check_submission(document, allow=self.allowed))
        survey = Survey.of(plan, file, table.paths)
        findings = checks.tell(survey.plan)
        if self.options.embedded is not None:
            _tell_of_models(self.client, survey.plan)
        id_ = self.naming.id or f"rows-{secrets.token_hex(4)}"
        batch = RowBatch(id_, survey.rows, survey.ids(id_))
        goes_on = self._remark(batch, survey.plan)
        answer.is_given = output is None  # rows are the document
        try:
            with writing_whole([output]) if output is not None else nullcontext([None]) as (stream,):
                write = stream.write if stream is not None else print_table
                as_lines = output.suffix.lower() in LINES if output is not None else self.options.as_json
                self._write(file, survey, batch, RowWriter(write, file.key, as_lines=as_lines))
        except KeyboardInterrupt:
            raise Interrupted(goes_on) from None
        except InfrastructureError as error:
            raise Failed(f"{error}; {goes_on}") from error
        except Failed as failed:  # there is no time left, or the file cannot be written
            raise Failed(f"{failed}; {goes_on}", failed.code) from failed
        dead = _dead(self.options.embedded, self.options.deadline) if self.options.embedded is not None else []
        answer.is_given = True
        self._print(batch, output, findings | ({"dead": dead} if dead else {}))
        return COMPLETED if batch.is_completed and not dead else FAILED

    def _remark(self, batch: RowBatch, plan: Plan) -> str:
        """Say how the batch goes on if it is cut off, and that a person is asked; returns the former."""
        if self.options.embedded is not None:
            if plan.held or plan.waits_for_approval:
                raise Failed(_NO_TERMINAL.format("a call of each row"))
            return _GONE
        words = click.get_current_context().meta[WORDS]
        again = shlex.join(["acts", *words, *(() if self.naming.id is not None else ("--id", batch.id))])
        if not self.options.view.is_quiet:
            several = f", in {len(batch.runs)} runs" if len(batch.runs) > 1 else ""
            tell(
                f"run {batch.id}: {counted(batch.rows, 'row')}{several}; if this is interrupted, continue with: {again}"
            )
        if plan.held or plan.waits_for_approval:
            tell(f"calls of these rows wait for a person: acts held {batch.runs[0]}, then acts approve or acts reject")
        return f"what was submitted continues; for the rest, use: {again}"

    def _write(self, file: RowFile, survey: Survey, batch: RowBatch, writer: RowWriter) -> None:
        """Submit the parts in order, and write the rows of each when it has ended."""
        parts = zip(batch.runs, file.parts(survey.part), strict=True)
        waiting = next(parts, None)
        under_way: deque[Run] = deque()
        settings = self.client.settings
        progress = RowProgress(batch, is_quiet=self.options.view.is_quiet)
        with progress:
            while waiting is not None or under_way:
                while waiting is not None and len(under_way) < survey.ahead:
                    try:
                        under_way.append(self._submit(waiting[0], batch.id, survey.row_plan, file, waiting[1]))
                    except OverLimit:
                        if not under_way:
                            raise
                        break
                    waiting = next(parts, None)
                run = under_way.popleft()
                is_first = not batch.done and self.options.embedded is None
                with _hint(settings, survey.plan, run) if is_first else nullcontext():
                    try:
                        progress.wait(run, self.options.left(), survey.calls)
                    except TimeoutError as error:  # an error of the system, too, as those of a full disk are
                        raise Failed(str(error)) from None
                result = run.result()
                batch.take(result)
                progress.note()
                writer.write(result.table(*survey.columns))

    def _submit(self, id_: str, batch: str, plan: RowPlan, file: RowFile, rows: Sequence[Row]) -> Run:
        value = plan.with_rows(rows)
        label = replace(self.naming, id=id_, tags=(*self.naming.tags, batch)).label(value)
        return self.client.submit_plan(plan.checked(file, rows), label, self.files)

    def _print(self, batch: RowBatch, output: Path | None, more: Mapping[str, Any]) -> None:
        """Print the sums: on stderr where the rows are on stdout."""
        lines = list(islice(batch.lines(), 1 if self.options.view.is_quiet else None))
        if output is None:
            for line in lines:
                tell(click.unstyle(line))
            return
        document = {**batch.to_dict(), "output": str(output), **more}
        print_either(document, [*lines, f"  {output}: {counted(batch.done, 'row')}"], as_json=self.options.as_json)


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
            if "held_below" not in now and ("running" in now["calls"] or not {"held", "unknown"} & now["calls"].keys()):
                return
            raise Failed(_NO_TERMINAL.format("a call"))

    def _note(self) -> None:
        if self.can_ask:
            self._ask()
        else:
            tell(f"a call waits for a person: acts held {self._run.id}, then acts approve or acts reject")

    def _ask(self) -> None:
        calls = self._run.held()
        for question in self._run.questions():
            if self._ask_together(question):
                calls = [call for call in calls if call["call"] not in question["calls"]]
        for call in calls:
            for line in held_lines(call):
                click.echo(line, err=True)
            if "unknown" in call:
                tell(f"acts settle {self._run.id} {call['call']} says what became of it")
                continue
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

    def _ask_together(self, question: Mapping[str, Any]) -> bool:
        """Ask about calls that wait for the same source; whether they were decided on."""
        for line in question_lines(question):
            click.echo(line, err=True)
        answer = _answer("let all of them run? y, why not, or each to decide one by one")
        if answer.lower() == "each":
            return False
        try:
            if answer.lower() in ("y", "yes"):
                self._run.approve_together(question)
            else:
                self._run.reject_together(question, _answer("why not") if answer.lower() in ("n", "no") else answer)
        except (AlreadyDecided, HeldAnew, NotHeld) as error:  # somewhere else
            tell(str(error))
        return True

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
