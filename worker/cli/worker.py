"""`acts worker`: Celery's own worker, on the right queues and with the right pool.

`celery -A acts_celery worker …` does the same, in one process, with Celery's options; this command only chooses
them, and starts as many processes as there are processors.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import signal
import tempfile
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TextIO

import click

from .. import limits
from ..backoff import Backoff
from ..errors import Terminated
from .options import COMPLETED, REJECTED, TERMINATED, UNAVAILABLE, Common, command, load_registry, option, option_group
from .output import escaped, tell, write_error

if TYPE_CHECKING:
    from celery import Celery

    from ...broker_config import Settings

# The processors that this process may use, by its affinity and its control group.

_CONTROL_GROUPS: Final = Path("/sys/fs/cgroup")
_OWN_GROUP: Final = Path("/proc/self/cgroup")


def usable_processors() -> int:
    """Count the processors, one at least; a share of a processor counts as a whole one."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    granted = min(_quotas(_CONTROL_GROUPS, _OWN_GROUP), default=math.inf)
    return max(1, min(bound, math.ceil(granted) if granted < bound else bound))


def _quotas(root: Path, own: Path) -> Iterator[float]:
    """Yield the processors that a control group (version 2) and each above it grant, if they are limited."""
    try:
        lines = own.read_text().splitlines()
    except OSError:  # no Linux
        return
    name = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    if name is None:
        return
    group = root / name
    for folder in (group, *group.parents):
        try:
            quota, period = (folder / "cpu.max").read_text().split()
        except (OSError, ValueError):  # the root has no such file
            quota, period = "max", ""
        if quota != "max":
            yield int(quota) / int(period)
        if folder == root:
            return


LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
COROUTINES: Final = "coroutines"
POOLS: Final = (COROUTINES, "threads", "prefork", "solo")


@dataclass(frozen=True, slots=True)
class _WorkerOptions:
    """The options that say how workers are started."""

    queues: str | None = option(
        "--queues", "-Q", metavar="A,B", help="Serve these queues. Default: all that settings and activities name."
    )
    activity_queues: bool = option(
        "--activity-queues", is_flag=True, help="Serve also the queues that activities have of their own."
    )
    concurrency: int | None = option(
        "--concurrency",
        "-c",
        type=click.IntRange(min=1),
        metavar="N",
        help="Tasks at a time in each process [ACTS_CONCURRENCY].",
    )
    processes: int | None = option(
        "--processes",
        type=click.IntRange(min=1),
        metavar="N",
        help="Worker processes. Default: one for each processor; one with --pool prefork, which forks its own.",
    )
    name: str | None = option("--name", "-n", metavar="NAME", help="NAME or NAME@HOST; default: acts@<host>-<pid>.")
    log_level: str = option(
        "--log-level", "-l", type=click.Choice(LEVELS, case_sensitive=False), default="INFO", show_default=True
    )
    pool: str = option(
        "--pool", "-P", type=click.Choice(POOLS), default=COROUTINES, show_default=True, help="How tasks run."
    )
    metrics_port: int | None = option(
        "--metrics-port",
        type=click.IntRange(1, 65_535),
        metavar="PORT",
        help="Serve metrics for Prometheus on this port; each further process uses the next port [ACTS_METRICS_PORT].",
    )
    supervised: bool = option("--supervised", is_flag=True, hidden=True)
    place: int = option("--place", type=int, default=0, hidden=True)
    """The number of this process among several, from 0."""

    @property
    def count(self) -> int:
        """The number of processes."""
        return self.processes or (1 if self.pool == "prefork" else usable_processors())

    def options(self) -> list[str]:
        """Return the options of each of several processes."""
        options = ["--log-level", self.log_level, "--pool", self.pool]
        options += ["--queues", self.queues] if self.queues is not None else []
        options += ["--activity-queues"] if self.activity_queues else []
        options += ["--metrics-port", str(self.metrics_port)] if self.metrics_port is not None else []
        return options + (["--concurrency", str(self.concurrency)] if self.concurrency is not None else [])

    def served(self, settings: Settings) -> list[str]:
        """Return the queues to serve."""
        from ...broker_config import queue_names
        from ..registry.activities import registry

        named = _names(self.queues)
        own = registry.queues() if self.activity_queues or not named else ()
        return list(dict.fromkeys((*(named or queue_names(settings)), *own)))

    def misspelt(self, settings: Settings) -> Iterator[str]:
        """Yield a warning for each queue whose name is nearly a setting's or an activity's."""
        from ...broker_config import queue_names
        from ...protocol.errors import Speller
        from ..registry.activities import registry

        known, speller = [*queue_names(settings), *registry.queues()], Speller(likeness=limits.WORKER_LIKENESS)
        for name in _names(self.queues):
            if name not in known and (hint := speller.hint(name, known)):
                yield f"no setting and no activity here names the queue {name!r}{hint}"

    def with_port(self, settings: Settings) -> Settings:
        """Return the settings with the port of this process's metrics."""
        first = self.metrics_port or settings.metrics_port
        return settings.model_copy(update={"metrics_port": first + self.place}) if first is not None else settings

    def tasks_at_a_time(self, settings: Settings) -> int:
        """Return how many tasks run at a time: many where tasks wait, one per processor where processes compute."""
        several = settings.concurrency if self.pool in (COROUTINES, "threads") else usable_processors()
        return self.concurrency or several


@command("Run a Celery worker on the right queues.")
@option_group("start", _WorkerOptions)
def worker(*, start: _WorkerOptions, common: Common) -> int:
    """Run workers until SIGTERM or Ctrl-C.

    Nothing more begins then: what has not begun goes to other workers. Calls at work may end within ACTS_STOP_SECONDS;
    a second signal ends them at once.

    Each of several processes is a worker, named NAME, NAME-2, NAME-3 and so on if a name is given. A process that ends
    by itself is started again.

    With --json it prints one line once all are ready: {"worker": …, "queues": […], "pid": …}, and of several processes
    also "processes": [{"worker": …, "pid": …}, …]. Logs go to stderr.

    Exit codes: 0 stopped, 2 bad settings or activities, 3 it could not go on.
    """
    stdout = _stdout_of_our_own()
    _names(start.queues)
    machine = stdout if common.json else None
    if start.count > 1:
        return _supervise(_commands(start.count, start.name, start.options()), common.environment(), machine)
    if start.supervised:
        end_with_supervisor()
    settings = start.with_port(common.settings())
    # `acts_celery.celery` reads the settings when it is imported, and so does whatever the activities start.
    os.environ.update(settings.to_environment())
    load_registry(settings)
    for warning in (*start.misspelt(settings), *_without_code(settings)) if start.place == 0 else ():
        tell(f"warning: {warning}")
    settings.require_broker()
    if start.supervised:
        _count_together()
        _announce(stdout, LOADED)
    return _work(start, settings, machine)


def _without_code(settings: Settings) -> Iterator[str]:
    """Yield a warning where there is no code to run: calls of activities then wait for other workers."""
    from ..registry.activities import registry

    if not (registry.activities or registry.delegates or settings.delegates or settings.mcp):
        yield "no activities are loaded: name them with --activities FILE.py or in ACTS_ACTIVITIES"


def _work(start: _WorkerOptions, settings: Settings, machine: TextIO | None) -> int:
    """Run a worker of Celery; return the exit code."""
    from ...celery import app

    served = start.served(settings)
    _hasten(app, settings)
    celery_worker = app.Worker(
        hostname=_nodename(start.name),
        pool=app.conf.worker_pool if start.pool == COROUTINES else start.pool,
        concurrency=start.tasks_at_a_time(settings),
        loglevel=start.log_level.upper(),
        queues=served,
        quiet=True,
        # Both tell workers of one another, which ours need not know; mingle would delay the start by a second.
        without_gossip=True,
        without_mingle=True,
    )
    was_asked_to_stop = _watch_signals(celery_worker, served, machine, forks=start.pool == "prefork")
    end_if_terminated()  # the modules of activities may have caught it
    celery_worker.start()
    return UNAVAILABLE if celery_worker.exitcode and not was_asked_to_stop() else COMPLETED


def _supervise(commands: list[list[str]], env: dict[str, str], machine: TextIO | None) -> int:
    """Run these processes; return the exit code."""

    def announce(ready: list[Any]) -> None:
        if machine is not None:
            processes = [{"worker": worker["worker"], "pid": worker["pid"]} for worker in ready]
            _announce(machine, {**ready[0], "pid": os.getpid(), "processes": processes})

    # The file goes with the last process that has it open.
    with tempfile.TemporaryFile() as shared:
        env = {**env, SHARED: str(shared.fileno())}
        return asyncio.run(Supervisor(commands, env, announce, shared.fileno()).run())


def _count_together() -> None:
    """Let the processes of one worker count the uses of a scripted model's answers together."""
    from ..agent.scripted import uses

    # Not for what this process starts: there the number would be another file's.
    uses.shared_file = int(os.environ.pop(SHARED))


def _commands(count: int, name: str | None, options: list[str]) -> list[list[str]]:
    """Return the command lines of `count` processes."""
    from ...__main__ import own_command

    common = ("worker", "--processes", "1", "--supervised", "--json", *options)
    return [
        own_command(*common, "--place", str(place), *(["--name", own] if own is not None else []))
        for place, own in enumerate(_numbered(name, count))
    ]


def _numbered(name: str | None, count: int) -> Iterator[str | None]:
    """Yield the names of the processes: NAME@HOST, NAME-2@HOST and so on."""
    yield name
    own, at, host = (name or "").partition("@")
    for number in range(2, count + 1):
        yield f"{own}-{number}{at}{host}" if name is not None else None


def _watch_signals(celery_worker: Any, queues: list[str], machine: TextIO | None, *, forks: bool) -> Callable[[], bool]:
    """Announce the worker once it takes tasks; return a function that says whether a signal has stopped it."""
    from celery.apps.worker import install_worker_term_hard_handler
    from celery.signals import worker_ready, worker_shutting_down

    from ..embedded_worker import READY

    name = celery_worker.hostname
    signals: list[str] = []
    most_seconds: float = celery_worker.app.conf.acts_settings.stop_seconds

    def announce(**_: Any) -> None:
        if not forks:
            stop: Any = signal.getsignal(signal.SIGTERM)
            signal.signal(signal.SIGQUIT, _end_at_once)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, partial(hear, stop))
        _tell(
            f"worker {name} {READY}, on {', '.join(queues)}{_code()}",
            as_json=celery_worker.app.conf.acts_settings.log_format == "json",
        )
        if machine is not None:
            _announce(machine, {"worker": name, "queues": queues, "pid": os.getpid()})

    def hear(stop: Callable[[int, Any], None], number: int, frame: Any) -> None:
        """Stop as Celery does on SIGTERM; a second signal, however soon, ends the process."""
        if signals:
            _end_at_once()
        signals.append(signal.Signals(number).name)
        stop(number, frame)

    def note(sig: str, **_: Any) -> None:
        signals.append(sig)
        _end_later(most_seconds)
        if forks:  # Celery can end the processes of its pool; a second SIGTERM it would ignore
            install_worker_term_hard_handler(celery_worker, sig="SIGTERM")

    worker_ready.connect(announce, weak=False)
    worker_shutting_down.connect(note, weak=False)
    return lambda: bool(signals)


def _code() -> str:
    """Name the activities and delegates that are registered here, for the line that says that a worker is ready."""
    from ...protocol.errors import some_of
    from ..registry.activities import registry

    kinds = {"activities": sorted(registry.activities), "delegates": sorted(registry.delegates)}
    named = (f"{kind} {some_of(names, limits.MOST_TOLD, escaped)}" for kind, names in kinds.items() if names)
    return "".join(f"; {kind}" for kind in named)


def _end_later(seconds: float) -> None:
    """End this process as a second signal does, unless it has ended before."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGQUIT))
    timer.daemon = True
    timer.start()


def _tell(text: str, *, as_json: bool) -> None:
    """Write a line whatever the level of the log, as JSON if the log is."""
    if as_json:
        logger = logging.getLogger(__name__)
        logger.handle(logger.makeRecord(logger.name, logging.INFO, "", 0, text, (), None))
    else:
        write_error(f"acts: {text}\n")


def _end_at_once(*_: object) -> NoReturn:
    """End the process: Celery would wait for the threads of its pool, which cannot be interrupted."""
    # Not through a stream, which the signal may have come in the middle of.
    os.write(2, b"acts: stopped at once; the calls under way go on elsewhere when their leases have run out\n")
    os._exit(COMPLETED)


def _announce(machine: TextIO, message: object) -> None:
    machine.write(json.dumps(message) + "\n")
    machine.flush()


def _hasten(app: Celery, settings: Settings) -> None:
    """Let the worker of an embedded server react to signals sooner.

    A worker handles signals between two looks at the queues, a second apart. Over a socket of this machine the looks
    may be frequent.
    """
    if settings.require_broker().startswith("redis+socket:"):
        options = {**app.conf.broker_transport_options, "polling_interval": limits.LOCAL_POLL_SECONDS}
        app.conf.broker_transport_options = options


def _names(queues: str | None) -> list[str]:
    """Return the queues of a comma-separated list, each once."""
    if queues is None:
        return []
    names = [name.strip() for name in queues.split(",") if name.strip()]
    if not names:
        raise click.BadParameter("names no queue", param_hint="--queues")
    return list(dict.fromkeys(names))


def _nodename(name: str | None) -> str:
    """Return the worker's name for Celery, unique unless the user names it."""
    from celery.utils.nodenames import host_format, nodename

    if name is None:
        return str(host_format(nodename("acts", f"%h-{os.getpid()}")))
    return str(host_format(name if "@" in name else nodename(name, "%h")))


def _stdout_of_our_own() -> TextIO:
    """Return stdout, and send to stderr what other code writes there: Celery says good-bye on it."""
    try:
        own = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
    except OSError:  # one of them is closed
        return Path(os.devnull).open("w", encoding="utf-8")
    return own


# The supervisor: as many worker processes as are asked for, each kept running until it is to end.
#
# A worker process is one event loop on one processor. Each is a program of its own (`acts worker --processes 1`), so
# none
# shares a thread, a lock or a connection with another. The first one starts alone until it has loaded settings and
# activities: what is wrong with them is then reported once.
#
# A process that ends unasked is started again, later each time while it keeps ending soon. The processes end with the
# supervisor, however that ends (`end_with_supervisor`).

LOADED: Final = "loaded"
"""The first line that a supervised process prints: its settings and activities are good. The second is `--json`'s."""
SHARED: Final = "_ACTS_SHARED"
"""The variable that names the descriptor of a file that the processes of one supervisor share."""


def end_with_supervisor() -> None:
    """From now on end at once when the supervisor has ended, however it did.

    Standard input is a pipe whose other end only the supervisor has: the system closes it.
    """
    threading.Thread(target=_wait_for_end, name="acts-supervised", daemon=True).start()


def _wait_for_end() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


_BACKOFF: Final = Backoff(1.0, 30.0)
_WAYS_TO_STOP: Final = (signal.SIGTERM, signal.SIGQUIT, signal.SIGKILL)
"""The signals that the first, the second and every further request send on: finish what is under way; end; end by
force.
"""


class Supervisor:
    """Runs one process for each command. `on_ready` is called once, with their announcements in that order."""

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        env: Mapping[str, str],
        on_ready: Callable[[list[Any]], None],
        *shared: int,
    ) -> None:
        self._shared = shared
        """Descriptors that all processes have open."""
        self._commands = commands
        self._env = env
        self._on_ready = on_ready
        self._processes: dict[int, Process] = {}
        self._announced: dict[int, Any] = {}
        self._requests = 0
        self._code = COMPLETED
        self._stopping = asyncio.Event()
        self._loaded = asyncio.Event()

    async def run(self) -> int:
        """Run until every process has ended on request, or one did not get ready; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            loop.add_signal_handler(number, self._stop)
        first = asyncio.create_task(self._keep(0))
        await asyncio.wait([first, asyncio.create_task(self._loaded.wait())], return_when=asyncio.FIRST_COMPLETED)
        others = [] if self._stopping.is_set() else [self._keep(place) for place in range(1, len(self._commands))]
        await asyncio.gather(first, *others)
        return self._code

    async def _keep(self, place: int) -> None:
        """Run one process, again and again, until all are to end."""
        failures = 0
        while not self._stopping.is_set():
            began = asyncio.get_running_loop().time()
            code = await self._run_once(place)
            if self._stopping.is_set():
                if code > 0 and code != TERMINATED:  # it was still starting, then
                    self._code = self._code or UNAVAILABLE
                return
            if place not in self._announced:
                self._code = REJECTED if code == REJECTED else UNAVAILABLE
                self._stop()
                return
            lasted = asyncio.get_running_loop().time() - began
            failures = 1 if lasted > limits.LASTING_SECONDS else failures + 1
            delay = _BACKOFF.seconds(failures)
            name = self._announced[place]["worker"]
            tell(f"worker {name} ended by itself ({_end_words(code)}); another is started in {delay:g} s")
            await self._sleep(delay)

    async def _run_once(self, place: int) -> int:
        """Run one process to its end; return its exit code, negative for a signal."""
        process = await asyncio.create_subprocess_exec(
            *self._commands[place],
            env=self._env,
            pass_fds=self._shared,
            stdin=PIPE,
            stdout=PIPE,
            # Ctrl-C in a terminal reaches the whole group, and is for the supervisor to pass on.
            process_group=0,
        )
        self._processes[place] = process
        if self._requests:  # meanwhile
            _send(process, signal.SIGTERM)
        assert process.stdout is not None
        async for line in process.stdout:
            self._hear(place, json.loads(line))
        code = await process.wait()
        del self._processes[place]
        return code

    def _hear(self, place: int, message: Any) -> None:
        if message == LOADED:
            self._loaded.set()
            return
        is_first = len(self._announced) < len(self._commands)
        self._announced[place] = message
        if is_first and len(self._announced) == len(self._commands):
            self._on_ready([self._announced[number] for number in range(len(self._commands))])

    def _stop(self) -> None:
        """Ask every process to end, more urgently each time."""
        self._stopping.set()
        number = _WAYS_TO_STOP[min(self._requests, len(_WAYS_TO_STOP) - 1)]
        self._requests += 1
        for process in self._processes.values():
            _send(process, number)

    async def _sleep(self, seconds: float) -> None:
        """Sleep, but no longer than until all are to end."""
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            pass


def _send(process: Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except ProcessLookupError:  # it has ended
        pass


def _end_words(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


# SIGTERM unwinds a command as Ctrl-C does, so that what was started is ended.

_heard: Final[list[int]] = []


def terminate(number: int, _frame: FrameType | None) -> None:
    """Handle SIGTERM."""
    _heard.append(number)
    raise Terminated(TERMINATED)


def end_if_terminated() -> None:
    """Unwind if other code has caught the exception of a signal."""
    if _heard:
        raise Terminated(TERMINATED)
