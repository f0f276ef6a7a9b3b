"""`acts ui`: what it prints, how it ends, and when it does not start."""

from __future__ import annotations

import json
import signal
import socket
import sys
from typing import Any

import httpx
import pytest

from acts_celery.worker.cli import main
from tests.acceptance.forks import run as run_command
from tests.worker.backend import DEADLINE_SECONDS, Backend

from .sites import READER, Listener, error_of, served

OWN_TOKENS = {"ACTS_UI_TOKENS": ""}


def started(backend: Backend, *arguments: str, **extra: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `acts ui` that does not start."""
    environment = backend.environment(**extra)
    code, out, err = run_command(
        ["ui", *arguments], env=environment, folder=backend.folder, stdin=b"", timeout_seconds=DEADLINE_SECONDS
    )
    return code, out.decode(), err.decode()


def test_without_tokens_it_prints_a_link_that_reads(backend: Backend) -> None:
    with served(backend, **OWN_TOKENS) as site:
        url, token = site.link.split("/#token=")
        assert url == site.url
        assert len(token) >= 43
        assert site.get("/api/me", token).json()["may"] == ["read"]
        assert error_of(site.get("/api/me", READER)) == (401, "WrongToken")
        assert token not in site.log.read_text()


def test_with_write_the_link_also_decides_and_controls(backend: Backend) -> None:
    with served(backend, "--write", ACTS_ACTOR="ann", **OWN_TOKENS) as site:
        token = site.link.partition("/#token=")[2]
        assert site.get("/api/me", token).json() == {"name": "ann", "may": ["read", "decide", "control"]}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_those_who_look(backend: Backend, run: str, number: int) -> None:
    with served(backend) as site:
        listener = Listener(site, run)
        listener.until("changed", status="completed")
        site.process.send_signal(number)
        assert listener.ended()
        assert site.process.wait(DEADLINE_SECONDS) == 0


def test_a_port_that_is_in_use_is_told_of(backend: Backend) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = started(backend, "--port", str(port))
    assert (code, out) == (3, "")
    assert f"port {port} of 127.0.0.1 cannot be had" in err
    assert "--port N" in err


def test_a_host_that_others_reach_takes_tokens(backend: Backend) -> None:
    code, out, err = started(backend, "--host", "0.0.0.0", **OWN_TOKENS)
    assert (code, out) == (2, "")
    assert "ACTS_UI_TOKENS" in err
    with served(backend, "--host", "0.0.0.0") as site:
        assert site.link == f"http://0.0.0.0:{site.place[1]}"
        assert site.get("/api/me", READER).json()["name"] == "rea"


@pytest.mark.parametrize(("host", "shown"), [("::1", "[::1]"), ("localhost", "localhost")])
def test_other_names_of_this_machine_need_no_tokens(backend: Backend, host: str, shown: str) -> None:
    with served(backend, "--host", host, **OWN_TOKENS) as site:
        address, token = site.link.split("/#token=")
        assert address == f"http://{shown}:{site.place[1]}"
        headers = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{address}/api/me", headers=headers, trust_env=False).json()["may"] == ["read"]


def test_write_and_tokens_together_are_refused(backend: Backend) -> None:
    code, _, err = started(backend, "--write")
    assert code == 2
    assert "leave out --write" in err


def test_limits_of_a_day_take_runs_that_are_kept_for_a_day(backend: Backend) -> None:
    limited = f"ann:control:{READER}:calls=5"
    code, _, err = started(backend, ACTS_UI_TOKENS=limited, ACTS_RETENTION_SECONDS="86399")
    assert code == 2
    assert "set ACTS_RETENTION_SECONDS to 86400 or more" in err


def test_a_host_that_this_machine_does_not_have_is_told_of(backend: Backend) -> None:
    code, _, err = started(backend, "--host", "192.0.2.7")
    assert code == 3
    assert "--host names an address of this machine" in err


def test_a_log_that_does_not_answer_is_told_of_at_the_start(backend: Backend) -> None:
    code, _, err = started(backend, "--redis", "redis://127.0.0.1:1/0")
    assert code == 3
    assert "no answer from the log" in err
    code, _, err = started(backend, ACTS_UI_REDIS_URL="redis://127.0.0.1:1/0")
    assert code == 3
    assert "no answer from the log at redis://127.0.0.1:1/0" in err


def test_a_file_of_tokens_that_is_not_there_is_told_of(backend: Backend) -> None:
    code, _, err = started(backend, ACTS_UI_TOKENS="@/nowhere/tokens")
    assert code == 2
    assert "ACTS_UI_TOKENS: " in err


@pytest.mark.parametrize("package", ["fastapi", "starlette", "uvicorn"])
def test_without_the_extra_the_remedy_is_told(
    package: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in [
        name
        for name in sys.modules
        if name.startswith(("acts_celery.worker.ui", "acts_celery.worker.ui", f"{package}."))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["ui"]) == 3
    assert "pip install '.[ui]'" in capfd.readouterr().err


def test_the_doctor_asks_the_redis_that_the_pages_read(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def layer(url: str) -> dict[str, Any]:
        for name, value in (backend.settings.to_environment() | {"ACTS_UI_REDIS_URL": url}).items():
            monkeypatch.setenv(name, value)
        main(["doctor", "--json"])
        return next(each for each in json.loads(capfd.readouterr().out)["layers"] if each["layer"] == "pages")

    assert layer(backend.settings.require_redis())["ok"]
    lost = layer("redis://:pa55word@127.0.0.1:1/0")
    assert not lost["ok"]
    assert "ACTS_UI_REDIS_URL" in str(lost)
    assert "pa55word" not in str(lost)
