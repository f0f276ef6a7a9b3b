"""What a sidecar reports for its worker process, in the words of `presence` and `heartbeats`.

To the log: that the process is there. That covers whatever its drivers have claimed, since a claim names the process.
By the broker: which remote calls it has at work. Connections are made when they are needed, and given back.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from functools import cached_property
from typing import Final

from celery import Celery
from redis import Redis
from redis.exceptions import RedisClusterException, RedisError

from ...broker_config import Settings, celery_configuration, load
from ..broker.messages import AttemptRef, Report, unpack
from ..broker.transport import BackendConnection
from ..errors import InfrastructureError
from ..logs import MaskedFormatter, Masking, json_formatter
from ..outages import Outage
from ..store.connections import connect_once
from ..store.living import report_silent, withdraw_silent
from .heartbeats import ReportQueue

logger = logging.getLogger(__name__)

_MOST_NAMED: Final = 10
_MOST_WRITTEN: Final = 200
"""Remote calls that the log is told of, for people."""


class Reporter:
    """Reports for one process, known in claims by `process`; `worker` is its name in the log."""

    def __init__(self, pid: int, process: str, worker: str, *, sees_log: bool) -> None:
        self._sees_log = sees_log
        self._settings = load(env_file=None)
        _write_log(self._settings)
        self._pid = pid
        self._process = process
        self._worker = worker
        self._is_silent = False
        self._to_log = Outage(logger, f"reporting to the log that process {pid} is there")
        self._by_broker = Outage(logger, f"reporting the calls at work in process {pid}")

    def report(self, no_presence_seconds: float, no_reports_seconds: float, at_work: Iterable[bytes]) -> None:
        """Report what the process has not reported for so long; 0 for what it has. Failures are logged."""
        prefix = self._settings.key_prefix
        taken = [(bool(is_begun), AttemptRef(*ref)) for is_begun, *ref in map(unpack, at_work)]
        refs = [ref for is_begun, ref in taken if is_begun]
        if not self._is_silent and (taken or (no_presence_seconds and self._redis is not None)):
            self._is_silent = True
            named = ", ".join(f"{ref.run}:{ref.call}" for ref in refs[:_MOST_NAMED])
            logger.warning(
                "worker %s, process %d, has not reported for %.0f s and is alive: its calls stay with it. Code that "
                "holds Python's lock (GIL) does this, or a lost connection%s",
                self._worker,
                self._pid,
                max(no_presence_seconds, no_reports_seconds),
                f". Remote calls at work: {named}" if named else "",
            )
        if no_presence_seconds and self._redis is not None:
            try:
                calls = [(ref.run, f"{ref.lane}\x1f{ref.call}") for ref in refs[:_MOST_WRITTEN]]
                own = (self._process, self._worker, self._pid)
                report_silent(self._redis, prefix, *own, no_presence_seconds, calls)
                self._to_log.succeeded()
            except (RedisError, RedisClusterException) as error:
                self._to_log.failed(error)
        if no_reports_seconds and taken:
            try:
                self._reports.send(
                    Report(begun=tuple(refs), reserved=tuple(ref for is_begun, ref in taken if not is_begun))
                )
                self._by_broker.succeeded()
            except InfrastructureError as error:
                self._by_broker.failed(error)

    def rest(self) -> None:
        """The process reports by itself again, or has ended."""
        if not self._is_silent:
            return
        self._is_silent = False
        if self._redis is not None:
            try:
                withdraw_silent(self._redis, self._settings.key_prefix, self._process)
            except (RedisError, RedisClusterException) as error:
                logger.warning("what was reported for process %d stays until it runs out: %s", self._pid, error)
            self._redis.close()
        self._app.pool.force_close_all()

    @cached_property
    def _redis(self) -> Redis | None:
        settings = self._settings
        if not self._sees_log or settings.effective_redis_url is None:
            return None
        return connect_once(settings, settings.effective_redis_url, timeout_seconds=settings.lease_seconds / 3)

    @cached_property
    def _app(self) -> Celery:
        """What only publishes, and waits no longer than for the log."""
        app = Celery("acts-sidecar", set_as_current=False)
        app.conf.update(celery_configuration(self._settings))
        seconds = self._settings.lease_seconds / 3
        if "socket_timeout" in app.conf.broker_transport_options:
            short = {"socket_timeout": seconds, "socket_connect_timeout": seconds}
        else:
            short = {"read_timeout": seconds, "write_timeout": seconds, "connect_timeout": seconds}
        app.conf.broker_transport_options = {**app.conf.broker_transport_options, **short}
        app.amqp.Connection = BackendConnection
        return app

    @cached_property
    def _reports(self) -> ReportQueue:
        return ReportQueue(self._app, self._settings)


def _write_log(settings: Settings) -> None:
    """Write the log where the worker writes its own."""
    own = logging.Formatter("[%(asctime)s: %(levelname)s/sidecar] %(message)s")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(MaskedFormatter(json_formatter() if settings.log_format == "json" else own, Masking(settings)))
    logging.getLogger().addHandler(handler)
