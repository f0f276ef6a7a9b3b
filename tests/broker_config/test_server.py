"""The persistent server: on loopback, with a password that no process list shows, and its data comes back."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import AuthenticationError, Redis
from redis.backoff import NoBackoff
from redis.exceptions import OutOfMemoryError
from redis.retry import Retry

from acts_celery.broker_config.server import main

ROOT = Path(__file__).parents[2]
PASSWORD = 'pass "word" \\ привет'
USERS = "user default off\nuser own on #${OWN_SHA256} ~* &* +@all\n"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running(directory: Path, *, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run the server until the block ends; enter the block when its log says that it is ready."""
    users = directory.parent / "users.acl"
    users.write_text(USERS, encoding="utf-8")
    command = [
        *(sys.executable, "-m", "acts_celery.broker_config.server", "--directory", str(directory), "--port", str(port)),
        *("--append-only", "--users", str(users), "--max-memory", "8mb"),
    ]
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "REDIS_PASSWORD_OWN": PASSWORD}, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        try:
            assert any(b"eady to accept connections" in line for line in process.stdout), "it ended at its start"
            yield process
        finally:
            process.terminate()


def test_its_data_survives_a_kill_and_its_password_is_asked_for(tmp_path: Path) -> None:
    port = free_port()
    with running(tmp_path / "data", port=port) as process:
        with Redis(port=port, username="own", password=PASSWORD) as redis:
            redis.set("key", "value")
            assert redis.config_get("bind", "appendfsync") == {"bind": "127.0.0.1", "appendfsync": "always"}
        # redis-py would try a refused password again for seconds.
        once = Retry(NoBackoff(), retries=0)
        with Redis(port=port, retry=once) as stranger, pytest.raises(AuthenticationError):
            stranger.get("key")
        if sys.platform == "linux":
            assert b"pass" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        process.kill()
    with running(tmp_path / "data", port=port), Redis(port=port, username="own", password=PASSWORD) as redis:
        assert redis.get("key") == b"value"


def test_two_servers_do_not_share_a_directory(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "acts_celery.broker_config.server",
        "--directory",
        str(tmp_path),
        "--port",
        str(free_port()),
    ]
    with running(tmp_path, port=free_port()):
        second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (second.returncode, second.stdout) == (3, "")
    assert second.stderr == f"another server keeps its data in {tmp_path}: stop it, or give another --directory\n"


def test_what_it_cannot_be_given_is_said_in_one_line_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = str(other.getsockname()[1])
        assert main(["--directory", str(tmp_path), "--port", taken]) == 3
    assert main(["--directory", str(tmp_path / "file"), "--port", taken]) == 3
    assert capsys.readouterr().err.splitlines() == [
        f"port {taken} of 127.0.0.1 cannot be had: Address already in use: choose another with --port N",
        f"{tmp_path}/file: File exists",
    ]
    for option, value, said in (("--port", "80000", "from 1 to 65535"), ("--max-memory", "lots", "such as 500mb")):
        with pytest.raises(SystemExit):
            main(["--directory", str(tmp_path), option, value])
        assert said in capsys.readouterr().err


def test_a_password_variable_that_is_not_set_is_named(tmp_path: Path) -> None:
    (tmp_path / "users.acl").write_text("user own on #${NOT_SET_ANYWHERE_SHA256}\n")
    command = [
        *(sys.executable, "-W", "error", "-m", "acts_celery.broker_config.server", "--directory", str(tmp_path)),
        *("--users", str(tmp_path / "users.acl")),
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    expected = "the environment variable REDIS_PASSWORD_NOT_SET_ANYWHERE is not set\n"
    assert (ended.returncode, ended.stderr) == (2, expected)


def test_what_is_full_refuses_writes_and_forgets_nothing(tmp_path: Path) -> None:
    port = free_port()
    with running(tmp_path / "data", port=port), Redis(port=port, username="own", password=PASSWORD) as redis:
        redis.set("first", "x")
        with pytest.raises(OutOfMemoryError):
            redis.set("large", b"x" * 9_000_000)
        assert redis.get("first") == b"x"


def test_a_server_without_a_password_says_so_and_how_it_is_found(tmp_path: Path) -> None:
    port = free_port()
    command = [
        *(sys.executable, "-m", "acts_celery.broker_config.server", "--directory", str(tmp_path), "--port", str(port)),
    ]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        try:
            assert process.stderr.readline().startswith("no password is asked for")
            assert process.stderr.readline().startswith(f"ACTS_BROKER_URL=redis://localhost:{port}/0 finds it")
        finally:
            process.terminate()
