"""The web hook that is told what waits for a person (SPEC R14): signed, at least once, in nobody's way."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import queue
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Event, Thread
from typing import Any

import pytest

from acts_celery.broker_config import EmbeddedServer, SettingsError, load
from acts_celery.worker.recovery.overdue import next_delay_ms
from acts_celery.worker.store.keys import Keys

from .backend import DEADLINE_SECONDS, Backend, Meeting, settings_apart
from .test_control import echo
from .test_r14_people import submitted, wait_held

SECRET = "whsec_" + base64.b64encode(b"a secret of the tests").decode()
TOKEN = "whoever-knows-this-may-write-here"
_names = count()


class Address(ThreadingHTTPServer):
    """An address that is told; it answers with `codes` in turn, then 204, each when `gate` is open."""

    def __init__(self, *codes: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.codes = iter(codes)
        self.gate = Event()
        self.gate.set()
        self.taken: queue.Queue[tuple[dict[str, str], bytes]] = queue.Queue()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/held?token={TOKEN}"

    def take(self) -> tuple[dict[str, str], bytes]:
        """The next request: its headers and its body."""
        return self.taken.get(timeout=DEADLINE_SECONDS)


class _Handler(BaseHTTPRequestHandler):
    server: Address

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.taken.put(({key.lower(): value for key, value in self.headers.items()}, body))
        self.server.gate.wait(DEADLINE_SECONDS)
        self.send_response(next(self.server.codes, 204))
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@contextmanager
def listening(*codes: int) -> Iterator[Address]:
    address = Address(*codes)
    thread = Thread(target=address.serve_forever)
    thread.start()
    try:
        yield address
    finally:
        address.gate.set()
        address.shutdown()
        thread.join()
        address.server_close()


def backend_for(
    address: Address, server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> Backend:
    name = f"hook{next(_names)}"
    hook = {"hold_webhook_url": address.url, "hold_webhook_secret": SECRET}
    settings = settings_apart(server, name, lease_seconds=1.5, sweep_interval_seconds=0.2, **hook)
    return Backend(settings, meeting, tmp_path_factory.mktemp(name))


def is_signed(headers: dict[str, str], body: bytes) -> bool:
    """As a receiver checks it, by the text of Standard Webhooks."""
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = hmac.new(b"a secret of the tests", signed, hashlib.sha256).digest()
    return headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"


def test_r14_the_hook_gets_what_acts_held_shows_signed_and_until_it_answers_well(
    server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with listening(500, 302) as address:
        backend = backend_for(address, server, meeting, tmp_path_factory)
        with backend.worker():
            run = submitted(backend, echo(1, "†state.a"))
            requests = [address.take() for _ in range(3)]
            (held,) = wait_held(run)
            assert all(is_signed(headers, body) for headers, body in requests)
            assert len({headers["webhook-id"] for headers, _ in requests}) == 1
            told = [json.loads(body) for _, body in requests]
            assert told == [{"type": "call.held", "timestamp": held["since"], "data": {"run": run.id, **held}}] * 3
            keys = Keys(backend.settings.key_prefix, run.id)
            while backend.redis.zcard(keys.pending_webhooks):
                run.status()
            run.approve(0)
            assert backend.wait(run.id).status == "completed"
            assert address.taken.empty()
        assert TOKEN not in backend.log.read_text()


def test_r14_an_address_that_does_not_answer_holds_up_no_other(
    server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with listening() as address:
        address.gate.clear()
        backend = backend_for(address, server, meeting, tmp_path_factory)
        with backend.worker():
            run = submitted(backend, echo(1, "†state.a"), echo("†state.a", "†state.b"))
            run.approve(json.loads(address.take()[1])["data"])
            run.approve(json.loads(address.take()[1])["data"])
            assert backend.wait(run.id).status == "completed"
            address.gate.set()


@pytest.mark.nightly
def test_r14_the_hook_is_called_although_the_worker_dies(
    server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with listening(503, 503, 503) as address:
        backend = backend_for(address, server, meeting, tmp_path_factory)
        with backend.worker() as victim:
            submitted(backend, echo(1, "†state.a"))
            first, _ = address.take()
            os.kill(victim.pid, signal.SIGKILL)
            victim.wait()
        with backend.worker():
            again, _ = address.take()
    assert again["webhook-id"] == first["webhook-id"]


def test_r14_each_attempt_waits_as_long_as_all_before_and_no_longer_than_an_hour() -> None:
    assert [next_delay_ms(age) for age in (0, 5_000, 60_000, 10**9)] == [2_000, 5_000, 60_000, 3_600_000]


def test_r14_a_hook_needs_a_secret_and_an_address_of_the_web() -> None:
    for given in (
        {"hold_webhook_url": "https://example.org/"},
        {"hold_webhook_url": "ftp://example.org/", "hold_webhook_secret": SECRET},
        {"hold_webhook_url": "https://example.org/", "hold_webhook_secret": "short"},
    ):
        with pytest.raises(SettingsError, match="HOLD_WEBHOOK") as refused:
            load(env_file=None, **given)
        assert "short" not in str(refused.value)
    shown = load(env_file=None, hold_webhook_url="https://u:p@example.org/t0ken", hold_webhook_secret=SECRET).masked()
    assert (shown["hold_webhook_url"], shown["hold_webhook_secret"]) == ("***", "***")
