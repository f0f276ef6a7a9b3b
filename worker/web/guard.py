"""What holds for every request, before anything of it is looked at.

- Its host is one under which the server is: another page cannot have its own name lead here (DNS rebinding).
- What changes something is JSON, and comes from the server's own pages where a browser sends it.
- Whatever is below the guarded address of the site takes a token.
- No answer is kept by a browser or a proxy, runs a script of others, or is shown in a frame.
"""

from __future__ import annotations

import socket
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .access import Access, Visitor
from .refusals import Refused, refusal, response
from .site import Site

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
    """The names of hosts under which a server is: this machine's, that on which they listen, and that of a URL."""
    named = {*LOOPBACK, host.lower(), socket.gethostname().lower()}
    return frozenset(named | {urlsplit(url).hostname or ""} if url else named)


class Guard:
    """Lets requests through to an application, or answers them."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        access: Access,
        site: Site,
        host: str,
        url: str | None = None,
        most_requests: int = 100,
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
