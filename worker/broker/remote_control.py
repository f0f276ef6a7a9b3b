"""Celery's remote-control commands: those that a worker takes.

Any client of the broker can send them, and they say nothing of the sender. So those that change a worker - stop
it, take queues from it, revoke its tasks - are taken only where a setting says so. Those that ask about tasks answer
with what events show of them: not with what they work on, nor with their tokens.

What comes is looked at first. An answer goes to the list of a process that asked, and to no queue of tasks, which a
sender could name instead to have it filled with the worker's rights. Workers are chosen by name and not by a pattern,
which may take for ever. What is refused, and a command that fails, costs one line in the log.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from celery.worker import state as worker_state
from celery.worker.consumer.control import Control
from celery.worker.control import Panel, control_command

from ...broker_config import Settings
from .. import limits
from ..process import count_refusal
from .attempts import seal_of
from .transport import REPLIES, UUID

# Cancellation: what is at work for a cancelled run stops, and what lies in a queue for it is dropped (SPEC R11.1).
#
# Workers on the log read it in the log; the others see nothing but their messages, so it is also sent as a
# remote-control command of Celery's. Any client of the broker can send one: it is believed only where it shows the key
# to the seal that the messages of the run's calls carry, and only the log can make that. It is best effort: a worker
# that is not reached finishes a call whose result is not taken. Processes of a prefork pool are not reached, as
# Celery's commands go to their parent, and a worker that is to end takes none any more: a process that sees the
# log looks there, too (`recovery.heartbeats`). Calls that were sent and forgotten have left the run and go on.

COMMAND: Final = "acts_cancel"


class Cancellations:
    """The runs that were cancelled lately, and what this process has at work for which run, all by their seals."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, None] = OrderedDict()
        self._at_work: defaultdict[str, set[Callable[[], object]]] = defaultdict(set)
        """The functions that stop each call at work."""
        self._of_run: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """The seals of what is at work, by the name of its run."""

    def __contains__(self, seal: str) -> bool:
        return seal in self._runs

    def cancel(self, key: str) -> None:
        """The run was cancelled whose seal this is the key to."""
        self._stop(seal_of(key))

    @property
    def runs(self) -> list[str]:
        """The names of the runs with calls at work."""
        with self._lock:
            return list(self._of_run)

    def cancel_named(self, run: str) -> None:
        """The log says that the run of that name was cancelled."""
        with self._lock:
            seals = list(self._of_run.get(run, ()))
        for seal in seals:
            self._stop(seal)

    def _stop(self, seal: str) -> None:
        with self._lock:
            self._runs[seal] = None
            while len(self._runs) > limits.CANCELLED_RUNS_KEPT:
                self._runs.popitem(last=False)
            at_work = tuple(self._at_work.get(seal, ()))
        for stop in at_work:
            stop()

    @contextmanager
    def watching(self, run: str, seal: str, stop: Callable[[], object]) -> Iterator[None]:
        """While the block lasts, `stop` is called when the run is cancelled, in any thread; also where that has
        happened just before.
        """
        with self._lock:
            self._at_work[seal].add(stop)
            self._of_run[run][seal] += 1
        try:
            if seal in self:
                stop()
            yield
        finally:
            with self._lock:
                self._at_work[seal].discard(stop)
                if not self._at_work[seal]:
                    del self._at_work[seal]
                self._of_run[run][seal] -= 1
                if not +self._of_run[run]:
                    del self._of_run[run]


@control_command(name=COMMAND, args=[("key", str)], signature="<key>")  # type: ignore[untyped-decorator]  # celery has no types
def _cancel(state: Any, key: str) -> None:
    """Stop what is at work for a run of ours, and drop what comes for it."""
    state.app.conf.acts_runtimes.cancel(str(key))


logger = logging.getLogger(__name__)

Handler = Callable[..., Any]

_HARMLESS: Final = (
    *("ping", "stats", "active_queues", "registered", "revoked", "conf", "report", "clock", "acts_contracts"),
    *("enable_events", "heartbeat"),  # Flower sends the first every few seconds, the second when it starts
)
"""The commands that tell of a worker, and not of the data of its tasks."""
_PARTS: Final = frozenset({"arguments", "destination", "matcher", "pattern", "reply_to", "ticket"})
"""The keys that kombu puts into a message beside the command's name."""


def restrict(steps: Iterable[Any], settings: Settings) -> None:
    """Let a consumer, given by its boot steps, take only the commands that the settings allow."""
    for step in steps:
        if isinstance(step, Control):
            step.box.node.handlers = handlers(settings)
            step.box.node.adjust_clock = _keep_the_clock
            step.box.on_message = _careful(step.box.on_message)


def handlers(settings: Settings) -> dict[str, Handler]:
    """The commands that are taken, by name; the entries for all others refuse them."""
    known: dict[str, Handler] = Panel.data
    taken = known if settings.remote_control else {name: known[name] for name in (*_HARMLESS, COMMAND)}
    return _Handlers({name: _outliving(name, handler) for name, handler in {**taken, **_OF_TASKS}.items()})


def objection(command: object) -> str | None:
    """The reason to refuse a message of the channel, whatever command it is."""
    match command:
        case {"method": str(), **rest}:
            pass
        case _:
            return "it names no command"
    if unknown := sorted(map(repr, set(rest) - _PARTS)):
        return f"it has {unknown[0]:.100}"
    match rest:
        case {"pattern": given} | {"matcher": given} if given:
            return "it chooses workers by a pattern"
        case {"destination": given} if given and not _are_texts(given):
            return "its destination is no list of names"
        case {"arguments": given} if given and not (isinstance(given, dict) and _are_texts(list(given))):
            return "its arguments have no names"
        case {"ticket": given} if given is not None and not (isinstance(given, str) and UUID.fullmatch(given)):
            return "its ticket is none of Celery's"
        case {"reply_to": given} if given and not _is_asker(given):
            return "its answer would not go to a process that asks"
    return None


def refuse_command(reason: str) -> None:
    """Note that a message of the channel is refused."""
    _refuse(f"a remote-control message is refused: {reason}")


def _are_texts(given: object) -> bool:
    return isinstance(given, list) and all(isinstance(one, str) for one in given)


def _is_asker(given: object) -> bool:
    match given:
        case {"exchange": str(exchange), "routing_key": str(key)}:
            return exchange == REPLIES and UUID.fullmatch(key) is not None
    return False


def _careful(take: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Wrap a reader of the channel, so that it gets only messages to which there is no objection."""

    def take_if_whole(body: Any, message: Any) -> None:
        reason = objection(body)
        if reason is None:
            take(body, message)
        else:
            refuse_command(reason)

    return take_if_whole


def _outliving(name: str, handler: Handler) -> Handler:
    """A command that answers with one line where it fails: its arguments are the sender's."""

    def handle(state: Any, **arguments: Any) -> Any:
        try:
            return _with_text_keys(handler(state, **arguments))
        except Exception as error:
            return _refuse(f"the remote-control command {name!r} fails: {type(error).__name__}")

    return handle


def _with_text_keys(value: Any) -> Any:
    """An answer whose objects have texts for keys, as its reader decodes it: options of sockets have numbers."""
    if isinstance(value, dict):
        return {str(key): _with_text_keys(each) for key, each in value.items()}
    return [_with_text_keys(each) for each in value] if isinstance(value, list | tuple) else value


def _keep_the_clock(_: object) -> None:
    """A clock that a message brings orders nothing of ours, and may be too large for the events that carry it on."""


def _refuse(line: str) -> dict[str, str]:
    logger.error("%s", line)
    count_refusal("commands")
    return {"error": "refused"}


_OF_NEIGHBOURS: Final = "hello"
"""Asked by each worker of Celery's command when it starts."""


class _Handlers(dict[str, Handler]):
    def __missing__(self, name: str) -> Handler:
        if name == _OF_NEIGHBOURS:  # what it would tell orders nothing of ours
            return lambda _, **__: {}

        def refuse(_: Any, **__: Any) -> dict[str, str]:
            return _refuse(f"the remote-control command {name!r:.100} is refused: see ACTS_REMOTE_CONTROL")

        return refuse


def _active(_: Any, **__: Any) -> list[Any]:
    return [_shown(request) for request in list(worker_state.active_requests)]


def _reserved(_: Any, **__: Any) -> list[Any]:
    return [_shown(request) for request in list(worker_state.reserved_requests - worker_state.active_requests)]


def _scheduled(_: Any, **__: Any) -> list[Any]:
    return []  # nothing of ours has an ETA


def _query_task(_: Any, ids: Any, **__: Any) -> dict[str, Any]:
    asked = {ids} if isinstance(ids, str) else set(ids)
    found = {request.id: request for request in list(worker_state.reserved_requests) if request.id in asked}
    return {id_: (_state(request), _shown(request)) for id_, request in found.items()}


def _state(request: Any) -> str:
    return "active" if request in worker_state.active_requests else "reserved"


def _shown(request: Any) -> Any:
    return request.info(safe=True)


_OF_TASKS: Final[Mapping[str, Handler]] = {
    "active": _active,
    "reserved": _reserved,
    "scheduled": _scheduled,
    "query_task": _query_task,
}
