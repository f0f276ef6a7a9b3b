"""Access: who enters, by which token, and what that admits.

A token comes in the header `Authorization` alone. A browser adds that to no request by itself, so no other page can
use it, and no log of addresses has it. Tokens are compared by their digests, in the same time whatever they are. Who
tries many wrong ones waits, and keeps nobody out: a right token is looked at first. No token takes all that a server
can do at a time.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import logging
import os
import re
import resource
import signal
import socket
import sys
import time
from asyncio.subprocess import Process
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, BinaryIO, Final, Protocol, TypeVar
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from kombu.exceptions import OperationalError
from redis.exceptions import RedisError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...broker_config import BrokerConfigError, Settings
from ...broker_config import load as load_settings
from ...broker_config.tokens import AccessToken, Identity, Right
from ...protocol.errors import ProtocolError, Rejected, json_text
from .. import limits
from ..client.dispatcher import IdTaken
from ..errors import (
    BadQuery,
    InfrastructureError,
    InstanceNotFound,
    NoLoop,
    NoSuchAnswer,
    NoSuchCall,
    NoSuchTick,
    NotPossibleNow,
    OverLimit,
    RunNotFound,
)
from ..fairness import FairSemaphore
from ..registry.mcp_tools import load_code
from ..runner.checking import begun, killed

# Reading: the answers of the pages, made in threads. One run has a few of them at most, so a large one that takes long
# keeps nobody waiting who looks at another.

_COMPACT: Final = (",", ":")

T = TypeVar("T")


class Answering(Protocol):
    """Gives the answers: `acts_celery.worker.ui.Page`."""

    def answer(self, path: str, query: Mapping[str, str], owner: str | None = None) -> Any:
        """The answer to a question, as JSON has it; with an `owner` only its own runs are there."""


class Reader:
    """Asks a page, in threads."""

    def __init__(self, page: Answering) -> None:
        self._page = page
        self._threads = ThreadPoolExecutor(limits.ACCESS_THREADS, "acts-web")
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def answer(self, path: str, query: Mapping[str, str]) -> Any:
        """The answer to a question."""
        return await self.call(_run_of(path), lambda: self._page.answer(path, query))

    async def body(self, path: str, query: Mapping[str, str], owner: str | None = None) -> bytes:
        """Make the bytes of a response; with an `owner` only its own runs are there."""
        return await self.call(_run_of(path), lambda: encoded(self._page.answer(path, query, owner)))

    async def call(self, run: str, ask: Callable[[], T]) -> T:
        """Run a function that reads a run, and return its result."""
        turn = self._turns.get(run)
        if turn is None:
            self._turns[run] = turn = asyncio.Semaphore(limits.OF_ONE_RUN)
        async with turn:
            return await asyncio.get_running_loop().run_in_executor(self._threads, ask)

    def close(self) -> None:
        """Begin nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _run_of(path: str) -> str:
    """The run that a path is about; empty for the list of runs."""
    return path.partition("/")[2].partition("/")[0]


def encoded(value: Any) -> bytes:
    """A value as JSON in UTF-8. Half a character, which UTF-8 cannot hold, becomes the escape that JSON has for it."""
    return json_text(value, separators=_COMPACT).encode("utf-8", "backslashreplace")


# Refusals: what goes wrong in a request, as a problem (RFC 9457) with a status of HTTP.
#
# A message is one of an error of ours, which says what to do. Nothing else is shown: what is unforeseen is in the
# server's log alone.

logger = logging.getLogger("acts.web")


class Refused(Exception):
    """A request that is not answered, with the status of HTTP that says why."""

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        """`more` are members of the problem besides those that each has."""
        self.status = status
        self.kind = kind
        self.headers = dict(headers or {})
        self.more = dict(more or {})
        super().__init__(message)

    @property
    def code(self) -> str:
        """The name of the kind for programs; of an error of ours its `code`."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.kind).lower()


_STATUSES: Final[tuple[tuple[type[Exception], int], ...]] = (
    *((each, 404) for each in (RunNotFound, InstanceNotFound, NoSuchCall, NoSuchTick, NoLoop, NoSuchAnswer)),
    (OverLimit, 429),
    (NotPossibleNow, 409),
    (IdTaken, 409),
    (Rejected, 422),
    *((each, 400) for each in (BadQuery, ProtocolError)),
    (InfrastructureError, 503),
    (BrokerConfigError, 503),
)
"""The first that an error is one of counts."""


def refusal(error: Exception) -> Refused:
    """The answer for an error; an unforeseen one goes to the log."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, HTTPException):
        return Refused(error.status_code, "NoSuchAddress", "nothing is answered at this address", error.headers)
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            again = {"Retry-After": str(limits.REFUSED_AGAIN_SECONDS)} if status == 503 else None
            if not isinstance(error, Rejected):
                return Refused(status, type(error).__name__, str(error), again)
            text = "\n".join(map(str, error.errors[: limits.MOST_ERRORS]))
            return Refused(status, type(error).__name__, text, more=problems(error))
    if isinstance(error, RedisError | OperationalError | TimeoutError):
        logger.warning("a server does not answer: %s", error)
        text = "a server does not answer, the log or the broker: see `acts doctor`"
        return Refused(503, "InfrastructureError", text, {"Retry-After": str(limits.REFUSED_AGAIN_SECONDS)})
    logger.error("a request has failed", exc_info=error)
    return Refused(500, "Bug", "this is a bug of acts-celery: see the server's log, and please report it")


def problems(rejected: Rejected) -> dict[str, Any]:
    """The errors of a submission, which its check has explained."""
    errors = [problem.to_dict() for problem in rejected.errors[: limits.MOST_ERRORS]]
    return {"errors": errors, "more_errors": len(rejected.errors) - len(errors)}


def document(refused: Refused) -> dict[str, Any]:
    """A refusal as the pages and MCP's tools read it."""
    return {"error": {"type": refused.kind, "message": str(refused)}}


def problem_details(refused: Refused) -> dict[str, Any]:
    """The body of a refusal: a problem as RFC 9457 has it, and what the pages read."""
    about = {"title": HTTPStatus(refused.status).phrase, "status": refused.status, "detail": str(refused)}
    return {"type": "about:blank", **about, "code": refused.code, **refused.more, **document(refused)}


def response(refused: Refused) -> Response:
    """A refusal as an answer."""
    return Response(encoded(problem_details(refused)), refused.status, refused.headers, "application/problem+json")


# A site: what differs between our servers where a request is let in or refused.


@dataclass(frozen=True, slots=True)
class Site:
    """One of our servers."""

    guarded: str
    """The path below which every request needs a token."""
    url_setting: str
    """The setting that says where the server is, as clients see it."""
    how_to_enter: str
    """Advice for people without a token."""
    where_from: str
    """Where a token comes from."""


_SCHEME: Final = "bearer "
_CHALLENGE: Final = {"WWW-Authenticate": "Bearer"}


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who has entered."""

    name: str
    rights: frozenset[Right]
    identity: Identity | None = None
    """The identity that a token has shown."""

    @property
    def only(self) -> str | None:
        """The owner whose runs alone are seen; None where all are."""
        return self.name if "own" in self.rights else None

    def require(self, right: Right) -> None:
        """Raise `Refused` where this token does not admit something."""
        if right not in self.rights:
            has = ", ".join(sorted(self.rights))
            raise Refused(
                403, "NotAdmitted", f"this takes the right to {right}, and the token of {self.name} has {has}"
            )


@dataclass(slots=True)
class _Tries:
    """The wrong tokens that have come from one address."""

    since: float
    digests: set[bytes] = field(default_factory=set)


class Shares:
    """How much of something each name has, and may have."""

    def __init__(self, most: int, what: str) -> None:
        self._most = most
        self._what = what
        self._taken: Counter[str] = Counter()

    def take(self, name: str) -> None:
        """Raise `Refused` where the name has its share already."""
        if self._taken[name] >= self._most:
            text = f"{name} has {self._most} {self._what}, which is its share: end one, or try again later"
            raise Refused(429, "TooMany", text, {"Retry-After": "10"})
        self._taken[name] += 1

    def give_back(self, name: str) -> None:
        """The name has one less."""
        self._taken[name] -= 1
        if not self._taken[name]:
            del self._taken[name]


class Access:
    """The tokens that are known, and the tries of others."""

    def __init__(self, tokens: Iterable[AccessToken], site: Site, clock: Callable[[], float] = time.monotonic) -> None:
        self._known = [(_digest(token.text), Visitor(token.name, token.rights, token.identity)) for token in tokens]
        self._site = site
        self._clock = clock
        self._tries: OrderedDict[str, _Tries] = OrderedDict()

    def enter(self, header: str | None, address: str) -> Visitor:
        """Who comes with such a header `Authorization`, from an address. Raises `Refused`."""
        if header is None or header[: len(_SCHEME)].lower() != _SCHEME:
            raise Refused(401, "NoToken", f"no token: {self._site.how_to_enter}", _CHALLENGE)
        digest = _digest(header[len(_SCHEME) :].strip())
        found = None
        for known, visitor in self._known:
            # Each is compared, so that the time does not say which one it is.
            found = visitor if hmac.compare_digest(known, digest) else found
        if found is None:
            tries = self._tries_of(address)
            if tries is not None and len(tries.digests) >= limits.WRONG_TOKENS:
                wait = max(1, round(tries.since + limits.WINDOW_SECONDS - self._clock()))
                text = f"too many wrong tokens came from {address}: wait {wait} seconds"
                raise Refused(429, "TooManyTries", text, {"Retry-After": str(wait)})
            self._note(address, digest)
            raise Refused(401, "WrongToken", f"this token is not known: {self._site.where_from}", _CHALLENGE)
        return found

    def shares(self, most: int, what: str) -> Shares:
        """The share of each name in something that is there `most` times: half, or all where nobody else enters."""
        is_alone = len({visitor.name for _, visitor in self._known}) < 2
        return Shares(most if is_alone else max(limits.LEAST_SHARE, most // 2), what)

    def _tries_of(self, address: str) -> _Tries | None:
        tries = self._tries.get(_place(address))
        if tries is not None and tries.since + limits.WINDOW_SECONDS <= self._clock():
            del self._tries[_place(address)]
            return None
        return tries

    def _note(self, address: str, digest: bytes) -> None:
        tries = self._tries.setdefault(_place(address), _Tries(self._clock()))
        tries.digests.add(digest)
        while len(self._tries) > limits.ACCESS_ADDRESSES:
            self._tries.popitem(last=False)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _place(address: str) -> str:
    """The key by which tries are counted: an address, or for IPv6 the subnet from which one host can take addresses."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return str(ipaddress.ip_network((found, limits.ACCESS_SUBNET), strict=False)) if found.version == 6 else address


# What holds for every request, before anything of it is looked at.
#
# - Its host is one under which the server is: another page cannot have its own name lead here (DNS rebinding).
# - What changes something is JSON, and comes from the server's own pages where a browser sends it.
# - Whatever is below the guarded address of the site takes a token.
# - No answer is kept by a browser or a proxy, runs a script of others, or is shown in a frame.

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_METHODS: Final = ("GET", "POST")


def _hosts_of(host: str, url: str | None) -> frozenset[str]:
    """List the host names of a server: this machine, the host on which it listens, and the host of a URL."""
    named = {*LOOPBACK, host.lower(), socket.gethostname().lower()}
    return frozenset(named | {urlsplit(url).hostname or ""} if url else named)


class Guard:
    """Lets requests through to an application, or answers them."""

    def __init__(
        self, app: ASGIApp, *, access: Access, site: Site, host: str, url: str | None = None, most_requests: int = 100
    ) -> None:
        """`most_requests` can be answered at a time; each token's name has its share of them."""
        self._app = app
        self._shares = access.shares(most_requests, "requests under way")
        self._access = access
        self._site = site
        self._hosts = _hosts_of(host, url)
        self._url = url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        has_begun, name = False, None
        scope["app"] = self  # so that starlette raises where an address is unknown, and does not answer by itself

        async def secured(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        try:
            visitor = self._look_at(scope)
            if visitor is not None:
                self._shares.take(visitor.name)
                name = visitor.name
            await self._app(scope, receive, secured)
        except Exception as error:
            refused = refusal(error)
            if not has_begun:
                await response(refused)(scope, receive, secured)
        finally:
            if name is not None:
                self._shares.give_back(name)

    def _look_at(self, scope: Scope) -> Visitor | None:
        """Who asks, where that takes a token. Raises `Refused`."""
        headers, visitor = Headers(scope=scope), None
        host = headers.get("host", "")
        if _name(host) not in self._hosts:
            text = f"this server is not at this host: set {self._site.url_setting} to where clients find it"
            raise Refused(421, "WrongHost", text)
        if scope["method"] not in _METHODS:
            raise Refused(405, "WrongMethod", "only GET and POST are answered", {"Allow": ", ".join(_METHODS)})
        if scope["method"] == "POST":
            self._look_at_origin(headers, host)
        if scope["path"].startswith(self._site.guarded):
            given = headers.getlist("authorization")
            client = scope.get("client") or ("", 0)
            visitor = self._access.enter(given[0] if len(given) == 1 else None, client[0])
            scope.setdefault("state", {})["visitor"] = visitor
        if scope["method"] == "POST" and _media_type(headers) != "application/json":
            raise Refused(415, "NotJson", "the body should be JSON, with Content-Type: application/json")
        return visitor

    def _look_at_origin(self, headers: Headers, host: str) -> None:
        """Refuse what a browser sends for the page of another host. What is no browser names none."""
        origin = headers.get("origin")
        if origin is None or origin == self._url or origin.partition("://")[2].lower() == host.lower():
            return
        raise Refused(403, "WrongOrigin", "the request comes from a page of another host: nothing was done")


def _name(host: str) -> str:
    """The name in a header `Host`, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _media_type(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


# The body of a request: as large as it may be, within a time, and not too many at once.


async def body_of(request: Request, most_bytes: int, setting: str, hold: Callable[[int], None]) -> bytes:
    """Read the body of a request, which has at most so many bytes by a setting; `hold` takes how many it has so far.
    Raises `Refused`.
    """
    parts, size = list[bytes](), 0
    try:
        async with asyncio.timeout(limits.BODY_SECONDS):
            async for part in request.stream():
                parts.append(part)
                if (size := size + len(part)) > most_bytes:
                    raise Refused(413, "TooLarge", f"the body has more than {most_bytes} bytes ({setting})")
                hold(size)
    except (TimeoutError, ClientDisconnect):
        raise Refused(408, "TooSlow", f"the body has not come within {limits.BODY_SECONDS:g} seconds") from None
    return b"".join(parts)


class Bodies:
    """The bodies that a server has at work: of each visitor as many as have the bytes of the largest one together, and
    twice as many in all. Small ones are not counted.
    """

    def __init__(self, most_bytes: int, setting: str) -> None:
        self._most = most_bytes
        self._setting = setting
        self._held = Counter[str]()

    @asynccontextmanager
    async def read(self, request: Request, visitor: str) -> AsyncIterator[bytes]:
        """Hold the body of a request as long as it is at work. Raises `Refused`."""
        held = 0

        def hold(size: int) -> None:
            nonlocal held
            if size > max(held, limits.ACCESS_SMALL_BYTES):
                self._require(visitor, size - held)
                self._held[visitor] += size - held
                held = size

        told = request.headers.get("content-length", "")
        try:
            hold(min(int(told), self._most) if told.isdecimal() else 0)
            yield await body_of(request, self._most, self._setting, hold)
        finally:
            self._held[visitor] -= held
            if not self._held[visitor]:
                del self._held[visitor]

    def _require(self, visitor: str, size: int) -> None:
        again = {"Retry-After": "5"}
        if self._held[visitor] + size > self._most:
            text = f"your requests under way have {self._held[visitor]} bytes: send this one when they are answered"
            raise Refused(429, "TooManyBytes", text, again)
        if self._held.total() + size > 2 * self._most:
            raise Refused(503, "TooManyBytes", "the requests under way have too many bytes: send this one later", again)


# Documents: a large body is worked on in a process of its own.
#
# To read, check and submit a document takes time and memory that grow with it; there they are bounded, and the
# server's other visitors do not wait. Each process works on one body at a time, and each visitor has one under way. The
# processor time of a visitor's documents is limited, too.
#
# The process gets a line of JSON that says what is to be done, and the length of the body, then the body; it answers
# with a line.

_DIED: Final = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)
_PROGRAM: Final = "import sys; sys.path[:] = sys.argv[1:]; from {} import main; main()"
"""The program of a process: it imports what this process would, and nothing from the folder it is started in."""


@dataclass(slots=True)
class _Spent:
    """The processor time that a visitor's documents have taken: it is forgotten as time goes by."""

    seconds: float = 0.0
    at: float = 0.0

    def add(self, seconds: float) -> None:
        now = time.monotonic()
        self.seconds = max(0.0, self.seconds - limits.DOCUMENTS_SHARE * (now - self.at)) + seconds
        self.at = now


class DocumentProcesses:
    """The processes of one server, each begun when it is first needed. Make it in the event loop that serves."""

    def __init__(self, settings: Settings, module: str) -> None:
        """`module` has a function `main`, which calls `serve_documents`."""
        self._program = _PROGRAM.format(module)
        self._environment = {**os.environ, **settings.to_environment()}
        self._idle: list[Process] = []
        self._places = FairSemaphore(limits.DOCUMENTS_PROCESSES)
        self._own: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._spent: dict[str, _Spent] = {}
        self._waiting = Counter[str]()

    async def answer(self, visitor: str, about: Mapping[str, Any], body: bytes) -> Any:
        """Have a process answer a body, and what is said about it. Raises `Refused`."""
        if (own := self._own.get(visitor)) is None:
            self._own[visitor] = own = asyncio.Lock()
        if self._waiting[visitor] >= limits.DOCUMENTS_MOST_WAITING:
            text = f"{self._waiting[visitor]} of your documents are under way: send this one when they are answered"
            raise Refused(429, "TooMuchWork", text, {"Retry-After": "5"})
        self._waiting[visitor] += 1
        try:
            async with own, self._places.one(visitor):
                return await self._asked(visitor, about, body)
        finally:
            self._waiting[visitor] -= 1

    async def close(self) -> None:
        """End the processes."""
        while self._idle:
            await killed(self._idle.pop())

    def _require_time(self, visitor: str) -> None:
        spent = self._spent.setdefault(visitor, _Spent())
        spent.add(0)
        if (over := spent.seconds - limits.SPENT_SECONDS) > 0:
            taken = f"the documents of {visitor} have taken {limits.SPENT_SECONDS:g} s"
            text = f"{taken}: send the next one later, or a smaller one"
            raise Refused(429, "TooMuchWork", text, {"Retry-After": str(int(over / limits.DOCUMENTS_SHARE) + 1)})

    async def _asked(self, visitor: str, about: Mapping[str, Any], body: bytes) -> Any:
        self._require_time(visitor)
        process: Process | None = None
        try:
            while self._idle and process is None:
                process = self._idle.pop()
                process = process if process.returncode is None else None  # it was ended meanwhile
            process = process or await begun(self._program, limits.DOCUMENTS_MOST_ANSWERED, self._environment)
            began = time.monotonic()
            try:
                answered = await _exchanged(process, about, body)
            finally:
                self._spent[visitor].add(time.monotonic() - began)
        except _DIED as error:
            if process is not None:
                await killed(process)
                if process.returncode == -signal.SIGPROF:
                    text = f"takes more than {limits.DOCUMENTS_MOST_SECONDS} s of processor time"
                    raise Refused(413, "TooLarge", f"{text}: send a smaller document") from None
            text = f"the process that reads documents has ended ({error!r}): send a smaller document, or try again"
            raise Refused(503, "InfrastructureError", text, {"Retry-After": "2"}) from None
        except BaseException:
            if process is not None:
                await killed(process)  # its answer is not awaited any more
            raise
        self._idle.append(process)
        return answered


async def _exchanged(process: Process, about: Mapping[str, Any], body: bytes) -> Any:
    """The answer of a process. Raises one of `_DIED` where there is none."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.writelines((json.dumps({**about, "bytes": len(body)}).encode() + b"\n", body))
    await process.stdin.drain()
    return json.loads(await process.stdout.readuntil())


DocumentAnswer = Callable[[Mapping[str, Any], bytes], Awaitable[Any]]
"""Answers to what is said about a body, and the body, with JSON."""


def serve_documents(answering: Callable[[Settings], AbstractAsyncContextManager[DocumentAnswer]]) -> None:
    """Answer in this process, whose input and output are a server's, until the input ends."""
    os.nice(limits.DOCUMENTS_NICENESS)
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what code of users prints is no answer
    settings = load_settings(env_file=None)
    load_code(settings)
    with suppress(ValueError, OSError):  # not every system bounds it
        resource.setrlimit(resource.RLIMIT_AS, (limits.DOCUMENTS_MOST_BYTES, limits.DOCUMENTS_MOST_BYTES))
    asyncio.run(_serve_documents(answering(settings), sys.stdin.buffer, output))


async def _serve_documents(
    answering: AbstractAsyncContextManager[DocumentAnswer], messages: BinaryIO, output: BinaryIO
) -> None:
    async with answering as answer:
        output.write(b"\n")
        output.flush()
        while head := messages.readline():
            about = json.loads(head)
            body = messages.read(about["bytes"])
            signal.setitimer(signal.ITIMER_PROF, limits.DOCUMENTS_MOST_SECONDS)  # it ends the process
            answered = await answer(about, body)
            signal.setitimer(signal.ITIMER_PROF, 0)
            output.write(json.dumps(answered).encode() + b"\n")
            output.flush()


def out_of_memory() -> Refused:
    """The answer for a document that has taken all the memory that it may."""
    return Refused(413, "TooLarge", f"takes more than {limits.DOCUMENTS_MOST_BYTES} bytes of memory")
