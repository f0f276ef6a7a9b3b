"""The server: from its socket to its end."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import hashlib
import ipaddress
import json
import re
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...protocol.errors import one_line
from .. import limits
from ..errors import InfrastructureError, NotPossibleNow
from ..store.keys import ENDED_STATUSES
from ..store.scripts import date_of
from .page import Page

# Connections: what a client may leave undone, for how long, and how many of its connections may.
#
# uvicorn closes a connection on which no further request comes, and waits for ever for one that has begun to come, and
# for a client that does not read what it is sent. Where it has as many as it may, it refuses all others: here the
# oldest of those that ask for nothing is dropped instead, of the address that has most of them.

_AT_ONCE: Final = struct.pack("ii", 1, 0)


class Connection(H11Protocol):
    """A connection that is dropped where its client does nothing in time."""

    request_seconds: float = limits.REQUEST_SECONDS
    read_seconds: float = limits.READ_SECONDS
    _coming: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _idle_since: float = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Wait for the first request."""
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._make_room()
        self._watch_request()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a request that has begun to come."""
        super().data_received(data)
        self._watch_request()

    def on_response_complete(self) -> None:
        """Wait for another request."""
        super().on_response_complete()
        self._idle_since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        super().connection_lost(exc)
        self._stop_coming()
        self._stop_unread()

    def pause_writing(self) -> None:
        """More waits for the client than it has read."""
        super().pause_writing()
        self._watch_reader(None)

    def resume_writing(self) -> None:
        """Wait no more for the client, which has read."""
        super().resume_writing()
        self._stop_unread()

    @property
    def _is_idle(self) -> bool:
        """Return whether the connection has no whole request to answer."""
        cycle: Any = self.cycle  # none before the first request, which its type does not say
        return cycle is None or bool(cycle.response_complete)

    def _make_room(self) -> None:
        """Drop one that asks for nothing, where this one is more than there may be."""
        if self.limit_concurrency is None or len(self.connections) < self.limit_concurrency:
            return
        idle = [one for one in self.connections if isinstance(one, Connection) and one is not self and one._is_idle]
        if idle:
            by_address = Counter(one.client[0] if one.client is not None else "" for one in idle)
            most = by_address.most_common(1)[0][0]
            of_most = (one for one in idle if (one.client[0] if one.client is not None else "") == most)
            oldest = min(of_most, key=lambda one: one._idle_since)
            self.connections.discard(oldest)  # the loop hears later that it is lost
            oldest._drop()

    def _watch_request(self) -> None:
        if not self._is_idle:
            self._stop_coming()
        elif self._coming is None and not self.transport.is_closing():
            self._coming = self.loop.call_later(self.request_seconds, self._drop)

    def _watch_reader(self, before: int | None) -> None:
        """Drop a client that has read nothing since the last look."""
        waits = self.transport.get_write_buffer_size()
        if before is not None and waits >= before:
            self._drop()
        else:
            self._unread = self.loop.call_later(self.read_seconds, self._watch_reader, waits)

    def _drop(self) -> None:
        """End the connection now; the system keeps nothing of what waits for its client either."""
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.transport.abort()

    def _stop_coming(self) -> None:
        if self._coming is not None:
            self._coming.cancel()
            self._coming = None

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


class WebServer(uvicorn.Server):
    """uvicorn's, with our connections. It serves until SIGINT or SIGTERM, which end it in good order."""

    def __init__(
        self,
        application: ASGIApp,
        most_connections: int,
        on_ready: Callable[[], None],
        on_stop: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`on_ready` is called when requests are answered, `on_stop` before the end of connections is waited for."""
        self._on_ready = on_ready
        self._on_stop = on_stop
        super().__init__(
            uvicorn.Config(
                application,
                http=Connection,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=most_connections,
                h11_max_incomplete_event_size=limits.HEAD_BYTES,
                timeout_graceful_shutdown=limits.STOP_SECONDS,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop."""
        if self._on_stop is not None:
            await self._on_stop()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Hear the signals, which are not raised once more after that: this is how the command is to end."""
        with super().capture_signals():
            yield
            self._captured_signals.clear()


# The socket of a server.


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is a free one. Raises `InfrastructureError`."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            remedy = "something listens there already: choose another with --port N"
        elif error.errno == errno.EACCES:
            remedy = "that takes rights of its own: choose a port above 1023 with --port N"
        else:
            remedy = f"{error.strerror or error}: --host names an address of this machine"
        raise InfrastructureError(f"port {port} of {host} cannot be had: {remedy}") from error


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host."""
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(str(address).partition("%")[0]).is_loopback for address in found)


def address_of(listening: socket.socket, host: str) -> str:
    """The address that a browser on this machine opens."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}"


# A run as one file: the page, with all that it loads, and of the answers as many as `limits.SERVER_MOST_BYTES` hold.
#
# The file asks nobody: its policy (CSP) lets run only the scripts and styles whose digests stand in it, and load
# nothing. The answers are a block of JSON, in which no character is left that could end it. What came first is what is
# looked for first: the plan, each call with its errors, then instances, those that failed before the others. What did
# not fit, the file says in sentences.

ASSETS: Final = Path(__file__).with_name("assets")
_FIRST: Final = ("failed", "held", "running", "paused", "waiting", "skipped", "cancelled")
"""The statuses of which a file holds lists of their own, as far as there is room: what needs attention first."""
_STYLE: Final = re.compile(r'<link rel="stylesheet" href="assets/([\w.-]+)">')
_SCRIPT: Final = re.compile(r'<script src="assets/([\w.-]+)"></script>')
_POLICY: Final = "<!-- acts-policy -->"
_DATA: Final = "<!-- acts-data -->"
_MARKUP: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})

Question = tuple[str, Mapping[str, str]]


def document(page: Page, run: str) -> str:
    """The file of a run; of `page`, which counts whole logs. Raises as `Page.answer`."""
    return _filled((ASSETS / "page.html").read_text(encoding="utf-8"), _data(page, page.find(run)))


def _filled(html: str, data: str) -> str:
    """The page with its styles, its scripts and the data in it, and the policy for them."""
    digests: dict[str, list[str]] = {"style": [], "script": []}

    def inline(tag: str) -> Any:
        def made(found: re.Match[str]) -> str:
            text = (ASSETS / found[1]).read_text(encoding="utf-8")
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            digests[tag].append(f"'sha256-{digest}'")
            return f"<{tag}>{text}</{tag}>"

        return made

    html = _SCRIPT.sub(inline("script"), _STYLE.sub(inline("style"), html))
    sources = "; ".join(f"{tag}-src {' '.join(found)}" for tag, found in digests.items())
    policy = f"default-src 'none'; {sources}; img-src data:; base-uri 'none'; form-action 'none'"
    before, behind = html.split(_POLICY)
    html = f'{before}<meta http-equiv="Content-Security-Policy" content="{policy}">{behind}'
    before, behind = html.split(_DATA)
    return f'{before}<script type="application/json" id="acts-data">{data}</script>{behind}'


def json_block(value: Any) -> str:
    """Write a value as JSON for a block of HTML: nothing in it is markup, or cannot be seen."""
    text = one_line(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).translate(_MARKUP)
    return text.encode("utf-8", "backslashreplace").decode()


def _data(page: Page, run: str) -> str:
    made = date_of(datetime.now(UTC))
    size = sum(path.stat().st_size for path in ASSETS.iterdir())
    answers = _Answers(page, limits.SERVER_MOST_BYTES - size - 20_000)
    overview = answers.add((f"runs/{run}", {}))
    for questions, share in ((_of_plan, 0.3), (_of_calls, 0.4), (_of_instances, 0.1), (_of_some, 0.9), (_of_values, 1)):
        answers.add_all(questions(answers, run), share)
    sentences = list(_sentences(answers, overview))
    about = f'"run":{json_block(run)},"made":{json_block(made)},"sentences":{json_block(sentences)}'
    return f'{{{about},"answers":[{",".join(answers.blocks)}]}}'


class _Answers:
    """The answers of a file, as blocks of JSON, up to so many bytes."""

    def __init__(self, page: Page, most_bytes: int) -> None:
        self._page = page
        self._left = most_bytes
        self.blocks: list[str] = []
        self.found: dict[str, Any] = {}
        """The answers to questions without a query, by their addresses."""
        self.instances: dict[str, None] = {}
        """Instances that the file holds, in their order."""
        self.left_out = 0

    def add(self, question: Question) -> Any:
        """Ask, and take the answer in where there is room."""
        return self._add(question, self._left)

    def add_all(self, questions: Iterator[Question], share: float) -> None:
        """Ask and take in until a share of the room that is left is used. What is gone meanwhile is left out."""
        until = self._left * (1 - share)
        for question in questions:
            try:
                self._add(question, self._left - until)
            except NotPossibleNow:
                continue

    def _add(self, question: Question, most: float) -> Any:
        path, query = question
        answer = self._page.answer(path, query)
        block = json_block([path, dict(query), answer])
        if (size := len(block.encode()) + 1) > most:
            self.left_out += 1
            return answer
        self._left -= size
        self.blocks.append(block)
        if not query:
            self.found[path] = answer
        if path.endswith("/instance") and "name" in query:
            self.instances[query["name"]] = None
        return answer

    def ask(self, path: str, **query: str) -> Any:
        """Ask without taking the answer in."""
        return self._page.answer(path, query)


def _of_plan(answers: _Answers, run: str) -> Iterator[Question]:
    yield f"runs/{run}/plan", {}
    yield f"runs/{run}/held", {}
    yield f"runs/{run}/audit", {}
    if answers.found[f"runs/{run}"]["loop"]:
        yield f"runs/{run}/conversation", {}
        for tick in answers.found.get(f"runs/{run}/plan", {}).get("ticks", ()):
            yield f"runs/{run}/plan", {"tick": str(tick)}
            yield f"runs/{run}/conversation", {"tick": str(tick)}


def _of_calls(answers: _Answers, run: str) -> Iterator[Question]:
    calls = _all_calls(answers, run)
    yield from ((f"runs/{run}/calls/{index}", {}) for index in calls)
    for status in _FIRST:
        yield from ((f"runs/{run}/calls/{index}", {"status": status}) for index, has in calls.items() if status in has)


def _all_calls(answers: _Answers, run: str) -> dict[int, Iterable[str]]:
    """The calls of all ticks, each with the statuses that its instances have."""
    plan = answers.ask(f"runs/{run}/plan")
    plans = [answers.ask(f"runs/{run}/plan", tick=str(tick)) for tick in plan["ticks"]] or [plan]
    return {call["index"]: call["counts"].keys() for each in plans for call in each["calls"]}


def _of_instances(answers: _Answers, run: str) -> Iterator[Question]:
    if answers.found[f"runs/{run}"]["instances"]:
        yield f"runs/{run}/instances", {}
        yield from ((f"runs/{run}/instances", {"status": status}) for status in (*_FIRST, "completed"))


def _of_some(answers: _Answers, run: str) -> Iterator[Question]:
    """What is global, and some instances: their calls, values and logs."""
    yield f"runs/{run}/instance", {}
    yield f"runs/{run}/log", {}
    for name in islice(_some_instances(answers, run), limits.SERVER_MOST_INSTANCES):
        yield f"runs/{run}/instance", {"name": name}
        yield f"runs/{run}/log", {"instance": name}


def _some_instances(answers: _Answers, run: str) -> Iterator[str]:
    if not answers.found[f"runs/{run}"]["instances"]:
        return
    seen = set[str]()
    for status in (*_FIRST, None):
        found = answers.ask(f"runs/{run}/instances", **({"status": status} if status is not None else {}))
        for one in found["instances"]:
            if one["instance"] not in seen:
                seen.add(one["instance"])
                yield one["instance"]


def _of_values(answers: _Answers, run: str) -> Iterator[Question]:
    """The values that calls write, where they are global; what delegates and models were given in these instances."""
    calls = [call for call in answers.found.get(f"runs/{run}/plan", {}).get("calls", ()) if not call["note"]]
    for path in dict.fromkeys(path for call in calls for path in call["writes"]):
        yield f"runs/{run}/place", {"path": path}
    asking = [call["index"] for call in calls if call["kind"] != "activity"]
    names = (f"{index}:{name}" for name in answers.instances for index in asking)
    globals_ = (str(index) for index in asking)
    yield from ((f"runs/{run}/sent", {"call": name}) for name in islice((*globals_, *names), limits.MOST_SENT))


def _sentences(answers: _Answers, overview: Mapping[str, Any]) -> Iterator[str]:
    """What the file does not hold."""
    if overview["status"] not in ENDED_STATUSES:
        yield f"The run was {overview['status']} then."
    held, total = len(answers.instances), overview["instances"]
    if held < total:
        yield f"This file holds {held:,} of {total:,} instances, those that failed first; `acts ui` shows all."
    if answers.left_out:
        most = limits.SERVER_MOST_BYTES // 1_000_000
        yield f"{answers.left_out:,} answers did not fit into {most} MB and are left out."
