"""Which runs are exported: each once it has ended, and again where it has gone on and ended anew.

A run's state says with which end it was exported, so an exporter that is started again goes on where it was. Child runs
are in the list of runs like all others. What is exported twice has the same ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from redis import Redis
from redis.exceptions import RedisError

from acts_celery.protocol.engine.events import ChildStarted
from acts_celery.worker.batches import batches
from acts_celery.worker.errors import InfrastructureError, OtherFormat, RunNotFound
from acts_celery.worker.storage.clock import server_ms
from acts_celery.worker.storage.history import History
from acts_celery.worker.storage.keys import ENDED, Keys, active_runs, ended_runs
from acts_celery.worker.storage.scripts import Script

from .run_spans import RunSpans, TracedRun
from .sending import SpanSender, shows_content
from .spans import Span

_AT_ONCE: Final = 500
_WRITING_MS: Final = 60_000
"""A run is listed from the time of its submission, by the clock of who has submitted it, some time later."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What has come of a run."""

    run: str
    trace: str
    spans: int
    """How many; none of a run that the sampler leaves out."""
    has_ended: bool
    children: tuple[str, ...] = ()
    fault: str | None = None
    """Why it could not be exported, where its log is broken."""


class TraceExport:
    """Exports the runs of a backend. All of it raises `RedisError` and `NotExported`."""

    def __init__(self, redis: Redis, prefix: str, sender: SpanSender) -> None:
        self._redis = redis
        self._prefix = prefix
        self._sender = sender
        self._note = Script(redis, "traced")
        self._watched: set[str] = set()
        """The runs that were under way when the lists were read."""
        self._since_ms = -inf
        """Runs that are new since then were submitted later than that."""

    def export(self, run: str) -> Exported:
        """Export a run as far as it has come. Raises `RunNotFound`, `OtherFormat`."""
        keys = Keys(self._prefix, run)
        found: Any = self._redis.hgetall(keys.state)
        state = {key.decode(): value.decode("utf-8", "replace") for key, value in found.items()}
        if not state:
            raise RunNotFound(run)
        traced, history = TracedRun.read(run, state), History(self._redis, keys)
        children: list[str] = []
        sent = 0
        if self._sender.samples(traced.place, traced.above):
            spans = RunSpans(traced, history.definition(), history.codes, shows_content=shows_content())
            sent = self._sender.send(_spans(spans, history, children.append))
        return Exported(run, traced.place.trace, sent, state["status"] in ENDED, tuple(children))

    def export_ended(self) -> Iterator[Exported]:
        """Export every run that has ended and was not exported. The first time all runs that are kept are looked at,
        later those that were under way, or are new.
        """
        now_ms = server_ms(self._redis)
        active: Any = self._redis.zrange(active_runs(self._prefix), 0, -1)
        ended: Any = self._redis.zrangebyscore(ended_runs(self._prefix), self._since_ms, inf)
        under_way = {name.decode() for name in active}
        for run, end in self._due(self._watched | under_way | {name.decode() for name in ended}):
            try:
                exported = self.export(run)
            except (RunNotFound, OtherFormat):  # it is gone meanwhile, or another version's to export
                continue
            except (RedisError, InfrastructureError):
                raise
            except Exception as error:  # a log that is broken keeps no other run from being exported
                exported = Exported(run, "", 0, True, fault=f"{type(error).__name__}: {error}")
            self._note(Keys(self._prefix, run), {"end": end})
            yield exported
        self._watched = under_way
        self._since_ms = now_ms - _WRITING_MS

    def _due(self, runs: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Those that are to be exported, each with its end."""
        for page in batches(sorted(runs), _AT_ONCE):
            with self._redis.pipeline(transaction=False) as pipeline:
                for run in page:
                    pipeline.hmget(Keys(self._prefix, run).state, "status", "finished", "traced")
                states = pipeline.execute()
            for run, (status, finished, traced) in zip(page, states, strict=True):
                if status is not None and status.decode() in ENDED and finished is not None and finished != traced:
                    yield run, finished


def _spans(spans: RunSpans, history: History, note_child: Callable[[str], None]) -> Iterator[Span]:
    """The spans of a log, and by the way the child runs that it tells of."""
    for entry in history.entries():
        if isinstance(entry.event, ChildStarted):
            note_child(entry.event.run)
        yield from spans.take(entry)
    yield from spans.close()
