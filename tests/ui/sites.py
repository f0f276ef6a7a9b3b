"""`acts ui` as a process of its own, and what asks it."""

from __future__ import annotations

import json
import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from tests.acceptance import forks
from tests.acceptance.forks import Forked
from tests.worker.backend import DEADLINE_SECONDS, Backend

READER, DECIDER, CONTROLLER = "reader-0123456789", "decider-0123456789", "controller-0123456789"
TOKENS: Final = f"rea:read:{READER},dee:decide:{DECIDER},con:decide+control:{CONTROLLER}"


@dataclass
class Site:
    """Where `acts ui` serves, and its process."""

    link: str
    """What was printed."""
    place: tuple[str, int]
    """Host and port."""
    process: Forked
    log: Path

    @property
    def host(self) -> str:
        """As a browser names it."""
        return f"127.0.0.1:{self.place[1]}"

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://{self.host}"

    def client(self, token: str | None = CONTROLLER, **headers: str) -> httpx.Client:
        """What asks as a browser does, with a token."""
        entering = {"Authorization": f"Bearer {token}"} if token is not None else {}
        return httpx.Client(base_url=self.url, headers={**entering, **headers}, timeout=DEADLINE_SECONDS)

    def get(self, path: str, token: str | None = CONTROLLER, **headers: str) -> httpx.Response:
        """One answer."""
        with self.client(token, **headers) as client:
            return client.get(path)

    def post(self, path: str, body: Any = None, token: str | None = CONTROLLER, **headers: str) -> httpx.Response:
        """One deed, as the front asks for it."""
        with self.client(token, Origin=self.url, **headers) as client:
            return client.post(path, json={} if body is None else body)

    def raw(self, data: bytes) -> socket.socket:
        """A connection on which these bytes were sent."""
        connection = socket.create_connection(self.place, timeout=DEADLINE_SECONDS)
        connection.sendall(data)
        return connection


def error_of(response: httpx.Response) -> tuple[int, str]:
    """Status and type of a refusal, which is JSON with a sentence whatever was asked."""
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert (problem["status"], problem["detail"]) == (response.status_code, problem["error"]["message"])
    assert problem["detail"]
    assert problem["title"]
    assert problem["code"].replace("_", "") == problem["error"]["type"].lower()
    return response.status_code, problem["error"]["type"]


@contextmanager
def served(backend: Backend, *arguments: str, **extra: str) -> Iterator[Site]:
    """`acts ui` on a free port."""
    command, log = ["ui", "--json", "--port", "0", *arguments], backend.folder / "ui.log"
    starting = forks.staying(command, env=backend.environment(**extra), folder=backend.folder, log=log)
    with starting as (process, told):
        assert told["pid"] == process.pid
        yield Site(told["url"], (told["host"], told["port"]), process, log)
        process.terminate()
        assert process.wait(DEADLINE_SECONDS) == 0


class Listener:
    """Reads the stream of the page of a run in a thread of its own."""

    def __init__(self, site: Site, run: str, token: str = READER) -> None:
        self.count = 0
        """How many events have come so far."""
        self._client = site.client(token)
        self._events: queue.Queue[tuple[str, Any] | None] = queue.Queue()
        self._stream = self._client.stream("GET", f"/api/runs/{run}/changes")
        self.response = self._stream.__enter__()
        self.response.raise_for_status()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def until(self, event: str, **wanted: Any) -> Any:
        """The data of the next event of a name that has these values."""
        while True:
            found = self._events.get(timeout=DEADLINE_SECONDS)
            assert found is not None, f"the stream has ended before {event} {wanted}"
            if found[0] == event and all(found[1].get(name) == value for name, value in wanted.items()):
                return found[1]

    def ended(self) -> bool:
        """Whether the stream ends; waits for it."""
        while self._events.get(timeout=DEADLINE_SECONDS) is not None:
            pass
        return True

    def close(self) -> None:
        """Go."""
        self.response.close()
        self._client.close()

    def _read(self) -> None:
        event = ""
        try:
            for line in self.response.iter_lines():
                name, _, value = line.partition(": ")
                if name == "event":
                    event = value
                elif name == "data":
                    self.count += 1
                    self._events.put((event, json.loads(value)))
        except (httpx.HTTPError, httpx.StreamError):
            pass  # it was closed
        finally:
            self._events.put(None)
