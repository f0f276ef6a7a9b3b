"""What goes wrong: each fault strikes once, undoes itself where it can be undone, and says what it has done."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, Protocol

from acts_celery.broker_config import GuardedProcess
from tests.security import rabbitmq

from .activities import KEPT_SECONDS
from .proxy import Proxy
from .records import Note
from .server import ROOT
from .site import Site
from .workload import Submission

_CLIENT_SECONDS: Final = 60
_WORK_SECONDS: Final = 5
_INTERVAL_SECONDS: Final = 0.05


@dataclass(frozen=True)
class Incident:
    """A fault that has struck. Times are seconds since the epoch."""

    fault: str
    began: float
    ended: float
    killed: frozenset[int] = field(default=frozenset())
    """Worker processes, or groups of them, that were killed."""
    is_outage: bool = False
    """Whether nobody could get anything done meanwhile."""


class Fault(Protocol):
    """Something that goes wrong."""

    def strike(self, site: Site, random: Random) -> Incident:
        """Let it go wrong once; returns when it is over."""
        ...


@dataclass(frozen=True)
class WorkerKilled:
    """SIGKILL of a worker with its whole process group; of one that is in the midst of a call, if there is one soon."""

    names: tuple[str, ...]

    def strike(self, site: Site, random: Random) -> Incident:
        members = [(member, member.processes) for member in site.crew if member.name in self.names]
        note = _at_work(site, random, lambda note: any(note.group in processes for _, processes in members))
        at_work = [pair for pair in members if note is not None and note.group in pair[1]]
        member, processes = random.choice(at_work or members)
        at = time.time()
        return Incident("worker killed", at, at, processes | {member.kill()})


class PoolProcessKilled:
    """SIGKILL of a process of a prefork pool that is in the midst of a call; its parent lives on."""

    def strike(self, site: Site, random: Random) -> Incident:
        note = _at_work(site, random, lambda note: note.pid != note.group)
        assert note is not None, "no pool process is at work"
        at = time.time()
        os.kill(note.pid, signal.SIGKILL)
        return Incident("pool process killed", at, at, frozenset({note.pid}))


class ProcessKilled:
    """SIGKILL of one of several processes of a worker, in the midst of a call if one is soon; the others live on."""

    def strike(self, site: Site, random: Random) -> Incident:
        processes = frozenset[int]().union(*(member.processes for member in site.crew))
        note = _at_work(site, random, lambda note: note.pid in processes)
        at, killed = time.time(), frozenset[int]()
        if note is not None:
            killed = frozenset({note.pid})
            with contextlib.suppress(ProcessLookupError):  # another storm has just killed it
                os.kill(note.pid, signal.SIGKILL)
        return Incident("process killed" if killed else "no process at work", at, at, killed)


class WorkerReplaced:
    """SIGTERM of a worker, as in a deployment: it finishes what it is at."""

    def strike(self, site: Site, random: Random) -> Incident:
        member = random.choice(site.crew)
        at = time.time()
        member.terminate()
        return Incident("worker replaced", at, time.time())


@dataclass(frozen=True)
class ServerKilled:
    """SIGKILL of the server; it comes back with what its append-only file holds."""

    away_seconds: float = 0.0

    def strike(self, site: Site, random: Random) -> Incident:
        with _timed("server killed", is_outage=True) as over:
            site.server.kill()
            _pass(self.away_seconds)
            site.server.start()
        return over()


@dataclass(frozen=True)
class ServerSilent:
    """SIGSTOP of the server: connections stay open, and nobody answers."""

    seconds: float = 5.0

    def strike(self, site: Site, random: Random) -> Incident:
        with _timed("server silent", is_outage=True) as over, site.server.paused():
            _pass(self.seconds)
        return over()


@dataclass(frozen=True)
class ServerFull:
    """`maxmemory` is reached under `noeviction`: reads are answered, writes refused."""

    seconds: float = 3.0

    def strike(self, site: Site, random: Random) -> Incident:
        with _timed("server full", is_outage=True) as over:
            site.redis.config_set("maxmemory-policy", "noeviction")
            site.redis.config_set("maxmemory", 1)
            try:
                _pass(self.seconds)
            finally:
                site.redis.config_set("maxmemory", 0)
        return over()


class ConnectionsDropped:
    """The server closes every connection that it has."""

    def strike(self, site: Site, random: Random) -> Incident:
        with _timed("connections dropped") as over:
            site.redis.client_kill_filter(_type="normal", skipme=True)
            site.redis.client_kill_filter(_type="pubsub")
        return over()


class ConnectionsSwallowed:
    """Nothing comes through on the connections through the proxy any more, and nobody is told."""

    def strike(self, site: Site, random: Random) -> Incident:
        with _timed("connections swallowed") as over:
            site.proxy.swallow()
        return over()


@dataclass(frozen=True)
class LockKept:
    """A worker's interpreter runs nothing for longer than a lease, though the process is there."""

    names: tuple[str, ...]

    def strike(self, site: Site, random: Random) -> Incident:
        member = random.choice([member for member in site.crew if member.name in self.names])
        with _timed("lock kept") as over:
            if member.keep_lock():
                _pass(KEPT_SECONDS)
        return over()


class NetworkCut:
    """Every connection through the proxy breaks."""

    def strike(self, site: Site, random: Random) -> Incident:
        with _timed("network cut") as over:
            site.proxy.cut()
        return over()


@dataclass(frozen=True)
class NetworkSlow:
    """What goes through the proxy takes two milliseconds there and back."""

    seconds: float = 5.0
    round_trip_seconds: float = 0.002

    def strike(self, site: Site, random: Random) -> Incident:
        with _timed("network slow") as over:
            site.proxy.delay_seconds = self.round_trip_seconds / 2
            try:
                _pass(self.seconds)
            finally:
                site.proxy.delay_seconds = 0.0
        return over()


@dataclass(frozen=True)
class BrokerStopped:
    """RabbitMQ, of this folder, stops and comes back: its queues are kept, connections are not."""

    folder: Path
    seconds: float = 0.0

    def strike(self, site: Site, random: Random) -> Incident:
        with _timed("broker stopped", is_outage=True) as over:
            rabbitmq.control(self.folder, "stop_app")
            try:
                _pass(self.seconds)
            finally:
                rabbitmq.control(self.folder, "start_app")
        return over()


@dataclass(frozen=True)
class BrokerConnectionsClosed:
    """RabbitMQ closes every connection that it has."""

    folder: Path

    def strike(self, site: Site, random: Random) -> Incident:
        with _timed("broker's connections closed") as over:
            rabbitmq.control(self.folder, "close_all_connections", "chaos")
        return over()


@dataclass(frozen=True)
class BrokerShortOfMemory:
    """RabbitMQ raises its memory alarm: who publishes is kept waiting, deliveries go on."""

    folder: Path
    seconds: float = 3.0

    def strike(self, site: Site, random: Random) -> Incident:
        with _timed("broker short of memory", is_outage=True) as over:
            rabbitmq.control(self.folder, "set_vm_memory_high_watermark", "absolute", "1MB")
            try:
                _pass(self.seconds)
            finally:
                rabbitmq.control(self.folder, "set_vm_memory_high_watermark", "0.9")
        return over()


@dataclass(frozen=True)
class ClientKilled:
    """SIGKILL of `acts submit` when it has sent so many bytes to the server and nothing of the rest has arrived."""

    submission: Submission
    after_bytes: int

    def strike(self, site: Site, random: Random) -> Incident:
        began = time.time()
        with Proxy(site.server.port, swallow_after_bytes=self.after_bytes) as proxy:
            client = GuardedProcess(
                [sys.executable, "-m", "acts_celery", "submit", self._file(site), "--json"],
                env=site.environment(proxy.url),
                cwd=ROOT,
                stdout=subprocess.DEVNULL,
            )
            with client:
                while not proxy.swallowing.wait(_INTERVAL_SECONDS) and client.poll() is None:
                    pass
                with contextlib.suppress(ProcessLookupError):
                    os.kill(client.pid, signal.SIGKILL)
                client.wait(_CLIENT_SECONDS)
        return Incident("client killed" if proxy.swallowing.is_set() else "client not killed", began, time.time())

    def _file(self, site: Site) -> str:
        file = site.folder / f"{self.submission.number}.json"
        file.write_text(json.dumps(self.submission.document), "utf-8")
        return str(file)


def _at_work(site: Site, random: Random, is_wanted: Callable[[Note], bool]) -> Note | None:
    """Somebody in the midst of a call that takes its time."""
    deadline = time.monotonic() + _WORK_SECONDS
    while time.monotonic() < deadline:
        begun_by = time.time() - _INTERVAL_SECONDS
        if found := [note for note in site.records.under_way if note.at < begun_by and is_wanted(note)]:
            return random.choice(found)
        _pass(_INTERVAL_SECONDS)
    return None


def _pass(seconds: float) -> None:
    """Let time go by: how long a fault lasts is the fault."""
    threading.Event().wait(seconds)


@contextmanager
def _timed(fault: str, *, is_outage: bool = False) -> Iterator[Callable[[], Incident]]:
    began = time.time()
    yield lambda: Incident(fault, began, time.time(), is_outage=is_outage)
