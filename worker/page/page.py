"""What a page asks of runs, and its answers as JSON: the one entry for the file and for the live server.

| address | answer |
|---|---|
| `runs` | the list of the runs (`status`, `search`, `after`) |
| `runs/RUN` | one run at a glance |
| `runs/RUN/plan` | its calls in layers, with counts, edges and a drawing (`tick`) |
| `runs/RUN/calls/INDEX` | one call: how it was written, its errors, its instances (`status`, `after`) |
| `runs/RUN/instances` | its instances (`status`, `search`, `after`) |
| `runs/RUN/instance` | one of them, or without `name` what is global |
| `runs/RUN/place` | a value (`path`, `instance`, `at`) |
| `runs/RUN/log` | the messages that an instance sees, or the global ones (`instance`, `after`) |
| `runs/RUN/conversation` | a loop (`tick`) |
| `runs/RUN/sent` | what a call was given (`call`) |
| `runs/RUN/held` | what waits for a person |
| `runs/RUN/audit` | who did what to it (`after`) |

No answer is much above a megabyte. Lists go by pages: `next` is what to give as `after`, null at the end. An answer for
which the log is counted takes about a second at most: `reading` says how far it has come, and to ask again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, Final

from redis import Redis

from acts_celery.broker_config import Settings
from acts_celery.worker.client.overview import Overview
from acts_celery.worker.client.run_status import read_state
from acts_celery.worker.errors import NoSuchAnswer
from acts_celery.worker.storage.connections import redis_errors
from acts_celery.worker.storage.keys import Keys

from .audit import audit
from .conversation import conversation
from .instances import call, instance, instances
from .moments import log
from .opened import OpenedRun, Query
from .overview import held, output, overview, runs
from .places import place
from .plan import plan
from .sent import sent
from .tally import Tally

_KEPT: Final = 16
"""Runs whose counts are kept."""
_MOST_LANES: Final = 300_000
"""Of these together: those that were looked at before others are counted anew then."""
_READING_SECONDS: Final = 1.0

_ANSWERS: Final[Mapping[str, Callable[[OpenedRun], Any]]] = {
    "": overview,
    "plan": plan,
    "instances": instances,
    "instance": instance,
    "place": place,
    "log": log,
    "conversation": conversation,
    "sent": sent,
    "held": held,
    "audit": audit,
}
_COUNTED: Final = frozenset({"plan", "calls", "instances", "place", "conversation"})
"""The answers for which the log is counted."""


class Page:
    """Answers about runs; to be kept as long as runs are looked at, and safe in threads."""

    def __init__(self, redis: Redis, settings: Settings, *, reading_seconds: float | None = _READING_SECONDS) -> None:
        """`redis` is where the log is read, a replica too. Counting a log takes at most so long for each answer; None
        counts all of it.
        """
        self._redis = redis
        self._settings = settings
        self._reading_seconds = reading_seconds
        self._tallies: OrderedDict[str, Tally] = OrderedDict()
        self._lock = Lock()

    def answer(self, path: str, query: Mapping[str, str] | None = None, owner: str | None = None) -> Any:
        """The answer at an address, as JSON; with an `owner` only its own runs are there. Raises `NotPossibleNow` (what
        is asked for is not there), `BadQuery`, `InfrastructureError`.
        """
        asked = Query(query or {})
        match path.strip("/").split("/"):
            case ["runs"]:
                with redis_errors(self._settings):
                    return runs(self._redis, self._settings, asked, owner=owner)
            case ["runs", run]:
                return self._of(run, "", overview, asked, owner)
            case ["runs", run, what] if what in _ANSWERS and what:
                return self._of(run, what, _ANSWERS[what], asked, owner)
            case ["runs", run, "calls", index] if index.isascii() and index.isdigit() and len(index) <= 15:
                return self._of(run, "calls", lambda opened: call(opened, int(index)), asked, owner)
        raise NoSuchAnswer(f"there is nothing at {path[:200]!r}")

    def output(self, run: str) -> Any:
        """The whole output of a run. Raises as `answer`."""
        return self._of(run, "", output, Query({}))

    def find(self, text: str, owner: str | None = None) -> str:
        """The id of the run that a text means (see `Client.find`), with an `owner` of its own. Raises `RunNotFound`,
        `AmbiguousRun`.
        """
        with redis_errors(self._settings):
            return Overview(self._redis, self._settings.key_prefix, owner=owner).find(text)

    def _of(self, run: str, what: str, make: Callable[[OpenedRun], Any], query: Query, owner: str | None = None) -> Any:
        with redis_errors(self._settings):
            keys = Keys(self._settings.key_prefix, self.find(run, owner))
            state = read_state(self._redis, keys)
            tally = self._tally(keys, state)
            opened = OpenedRun(self._redis, self._settings, keys, state, tally, query)
            if what not in _COUNTED:
                return make(opened)
            with tally.lock:
                tally.read_on(self._reading_seconds)
                return make(opened)

    def _tally(self, keys: Keys, state: Mapping[str, str]) -> Tally:
        """The counts of a run, kept of those that were looked at last. An id that was used again is another run."""
        name = f"{keys.run} {state.get('submitted')}"
        with self._lock:
            if (found := self._tallies.get(name)) is None:
                found = self._tallies[name] = Tally(self._redis, keys)
            self._tallies.move_to_end(name)
            while len(self._tallies) > 1 and (len(self._tallies) > _KEPT or self._lanes() > _MOST_LANES):
                self._tallies.popitem(last=False)
            return found

    def _lanes(self) -> int:
        return sum(len(tally.lanes) for tally in self._tallies.values())
