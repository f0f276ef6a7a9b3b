"""A master, a replica and a Sentinel that watches them, on free ports of the loopback."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from redis import Redis
from redis.backoff import ConstantBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from acts_celery.broker_config import GuardedProcess, find_server
from tests.chaos.server import free_port

MASTER: Final = "mymaster"
_TRIES: Final = 600
_WAIT_MS: Final = 30_000


@dataclass
class Watched:
    """The processes, and where clients are to ask."""

    sentinel_port: int
    processes: dict[int, GuardedProcess]
    """The servers, by port."""

    @property
    def url(self) -> str:
        """The address for the broker and the log alike."""
        return f"sentinel://127.0.0.1:{self.sentinel_port}/0"

    @property
    def master_port(self) -> int:
        """Where the master is, as the Sentinel says."""
        with client(self.sentinel_port) as sentinel:
            found: Any = sentinel.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
        return int(found[1])

    def kill_master(self) -> int:
        """SIGKILL of the master. Returns once another one is named: its port."""
        port = self.master_port
        with client(self.sentinel_port) as sentinel, sentinel.pubsub() as news:
            news.subscribe("+switch-master")
            news.get_message(timeout=10)
            os.kill(self.processes[port].pid, signal.SIGKILL)
            assert news.get_message(timeout=60) is not None
        return self.master_port


def client(port: int) -> Redis:
    """A client for a server that may be starting yet."""
    retry = Retry(
        ConstantBackoff(0.05), _TRIES, (RedisConnectionError, OSError)
    )  # before redis-py 8 without the latter
    return Redis(port=port, retry=retry, socket_timeout=60)


@contextmanager
def watched_servers(folder: Path) -> Iterator[Watched]:
    """All of them; ended with the block."""
    with ExitStack() as stack:
        first, second, sentinel_port = free_port(), free_port(), free_port()
        processes = {}
        for port, more in ((first, ()), (second, ("--replicaof", f"127.0.0.1 {first}"))):
            options = ("--port", str(port), "--bind", "127.0.0.1", "--save", "", "--repl-diskless-sync-delay", "0")
            processes[port] = stack.enter_context(server(folder, *options, *more))
            with client(port) as redis:
                redis.ping()
        with client(first) as redis:
            redis.set("first", "write")
            assert redis.wait(1, _WAIT_MS) == 1, "the replica follows"
        configuration = folder / "sentinel.conf"
        configuration.write_text(
            f"port {sentinel_port}\nbind 127.0.0.1\nsentinel monitor {MASTER} 127.0.0.1 {first} 1\n"
            f"sentinel down-after-milliseconds {MASTER} 1000\nsentinel failover-timeout {MASTER} 5000\n"
        )
        stack.enter_context(server(folder, str(configuration), "--sentinel"))
        with client(sentinel_port) as sentinel, sentinel.pubsub() as news:
            news.subscribe("+slave")
            while not sentinel.execute_command("SENTINEL", "REPLICAS", MASTER):
                news.get_message(timeout=1)
        yield Watched(sentinel_port, processes)


@contextmanager
def server(folder: Path, *arguments: str) -> Iterator[GuardedProcess]:
    """A server with these options; ended with the block."""
    with (folder / "servers.log").open("ab") as log:
        process = GuardedProcess([str(find_server()), *arguments], cwd=folder, stdout=log)
    try:
        yield process
    finally:
        process.stop()
