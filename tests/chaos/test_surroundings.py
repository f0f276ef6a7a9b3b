"""The network and the server of the chaos do what they are told: else its faults would be none."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from .proxy import Proxy
from .server import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("server"))
    try:
        running.start()
        yield running
    finally:
        running.stop()


def connected(proxy: Proxy) -> Redis:
    """A client that does not repeat what is not answered."""
    return Redis(port=proxy.port, retry=Retry(NoBackoff(), 0), socket_timeout=1)


def test_what_goes_through_takes_its_time(server: Server) -> None:
    with Proxy(server.port) as proxy, connected(proxy) as redis:
        redis.ping()
        proxy.delay_seconds = 0.05
        began = time.monotonic()
        redis.ping()
        assert time.monotonic() - began >= 0.1


def test_connections_break_and_new_ones_are_welcome(server: Server) -> None:
    with Proxy(server.port) as proxy, connected(proxy) as redis:
        before = redis.client_id()
        proxy.cut()
        assert redis.client_id() != before


def test_what_is_swallowed_does_not_arrive(server: Server) -> None:
    with Proxy(server.port, swallow_after_bytes=1_000) as proxy, connected(proxy) as redis:
        redis.set("small", b"x")
        with pytest.raises(RedisTimeoutError):
            redis.set("large", b"x" * 2_000)
        assert proxy.swallowing.is_set()
    with Redis(port=server.port) as redis:
        assert (redis.exists("small"), redis.exists("large")) == (1, 0)


def test_a_killed_server_keeps_what_it_has_acknowledged(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        server.start()
        with Redis(port=server.port) as redis:
            redis.set("kept", 1)
            server.kill()
            server.start()
            assert redis.get("kept") == b"1"
    finally:
        server.stop()
