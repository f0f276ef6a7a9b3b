"""A Redis Cluster of three primaries, with a replica each where asked for, on free ports of the loopback."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Final

from redis import Redis

from acts_celery.broker_config import GuardedProcess
from tests.chaos.server import free_port

from .sentinels import client, server

PRIMARIES: Final = 3
_SLOTS: Final = 16_384
_NODE_TIMEOUT_MS: Final = 1_000
_LOOKS: Final = 1_800


@dataclass
class Cluster:
    """The processes, by port; the first three began as primaries."""

    processes: dict[int, GuardedProcess]

    @property
    def url(self) -> str:
        """The address for the log; the other nodes are found from the first two."""
        return ";".join(f"redis+cluster://127.0.0.1:{port}" for port in list(self.processes)[:2])

    def primary_of(self, key: str) -> int:
        """The port of the node that holds a key."""
        with client(self._alive) as redis:
            slot: Any = redis.execute_command("CLUSTER", "KEYSLOT", key)
            ranges: Any = redis.execute_command("CLUSTER", "SLOTS")
        return next(int(node[1]) for first, last, node, *_ in _listed(ranges) if first <= slot <= last)

    def kill_primary_of(self, key: str) -> int:
        """SIGKILL of the node that holds a key. Returns once another one does: its port."""
        port = self.primary_of(key)
        os.kill(self.processes.pop(port).pid, signal.SIGKILL)
        for _ in range(_LOOKS):
            if (found := self.primary_of(key)) != port:
                return found
            _pause()
        raise AssertionError("no replica took over")

    @property
    def _alive(self) -> int:
        return next(iter(self.processes))


@contextmanager
def cluster(folder: Path, *, has_replicas: bool = False) -> Iterator[Cluster]:
    """The cluster, all slots covered; ended with the block."""
    with ExitStack() as stack:
        processes = {}
        for _ in range(PRIMARIES * (2 if has_replicas else 1)):
            port = free_port()
            options = {
                "--port": port,
                "--bind": "127.0.0.1",
                "--save": "",
                "--cluster-enabled": "yes",
                "--cluster-port": free_port(),
                "--cluster-config-file": f"nodes-{port}.conf",
                "--cluster-node-timeout": _NODE_TIMEOUT_MS,
                "--repl-diskless-sync-delay": 0,
            }
            arguments = [str(part) for option in options.items() for part in option]
            processes[port] = stack.enter_context(server(folder, *arguments))
        _join(list(processes))
        yield Cluster(processes)


def _join(ports: list[int]) -> None:
    """Let the nodes meet, share the slots out, and give each primary a replica."""
    first, *others = ports
    with client(first) as redis:
        for port in others:
            with client(port) as other:
                bus = other.config_get("cluster-port")["cluster-port"]
            redis.execute_command("CLUSTER", "MEET", "127.0.0.1", port, bus)
    edges = [_SLOTS * part // PRIMARIES for part in range(PRIMARIES + 1)]
    names = []
    for port, start, end in zip(ports, edges, edges[1:], strict=False):
        with client(port) as redis:
            redis.execute_command("CLUSTER", "ADDSLOTSRANGE", start, end - 1)
            names.append(redis.execute_command("CLUSTER", "MYID"))
    for port, name in zip(ports[PRIMARIES:], names, strict=False):
        with client(port) as redis:
            _await(redis, lambda found, name=name: name in found, "CLUSTER", "NODES")
            redis.execute_command("CLUSTER", "REPLICATE", name)
            _await(redis, lambda found: b"master_link_status:up" in found, "INFO", "replication")
    for port in ports:
        with client(port) as redis:
            _await(redis, lambda found: b"cluster_state:ok" in found, "CLUSTER", "INFO")


def _await(redis: Redis, is_there: Any, *command: str) -> None:
    """Look at what a node says until it says that. It has no event for it."""
    for _ in range(_LOOKS):
        with Redis(connection_pool=redis.connection_pool) as plain:
            plain.response_callbacks.clear()
            found: Any = plain.execute_command(*command)
        if is_there(found if isinstance(found, bytes) else str(found).encode()):
            return
        _pause()
    raise AssertionError(f"{command} never said that")


def _pause() -> None:
    """Wait a moment: a node has no event for what is waited for."""
    Event().wait(0.05)


def _listed(ranges: Any) -> Iterator[tuple[int, int, Any]]:
    """The slots of each node, in the one form or the other that redis-py gives them."""
    if isinstance(ranges, dict):
        for (first, last), node in ranges.items():
            yield first, last, node["primary"]
    else:
        for first, last, node, *_ in ranges:
            yield first, last, node
