"""Who may read and do what through the page."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from acts_celery.broker_config.tokens import AccessToken
from acts_celery.worker.actions import ACTIONS
from acts_celery.worker.cli import acts
from acts_celery.worker.limits import WINDOW_SECONDS, WRONG_TOKENS
from acts_celery.worker.mcp.server import TOOLS
from acts_celery.worker.ui.access import HEADERS, Access, Reader, Refused
from acts_celery.worker.ui.api import SERVED
from acts_celery.worker.ui.application import PAGES
from tests.worker.backend import Backend

from .sites import CONTROLLER, DECIDER, READER, Site, error_of, served

# Who may do what: each address with each token; and who tries wrong ones.

READ = (
    *("me", "runs", "whole?run=r&path=state.one", "runs/r", "runs/r/plan", "runs/r/calls/0", "runs/r/instances"),
    *("runs/r/instance", "runs/r/place?path=state.one", "runs/r/log", "runs/r/conversation", "runs/r/sent?call=0"),
    *(
        "runs/r/held",
        "runs/r/questions",
        "runs/r/rules",
        "runs/r/changes",
        "runs/r/events",
        "runs/r/result",
        "openapi.json",
        "no/such/address",
    ),
)
"""Every address that is read."""
RIGHTS = {
    **dict.fromkeys(("approve", "reject", "answer", "settle", "approve_plan", "move"), "decide"),
    **dict.fromkeys(("approve_together", "reject_together", "revoke"), "decide"),
    **dict.fromkeys(("retry", "skip", "pause", "resume", "cancel", "fork", "delete"), "control"),
    **dict.fromkeys(("amend", "say", "send"), "submit"),
}
"""The right that each deed takes."""
BODIES: dict[str, dict[str, Any]] = {
    "approve": {"call": 0},
    "reject": {"call": 0, "reason": "no"},
    "approve_together": {"calls": {"0": "1"}},
    "revoke": {"rule": "1-1"},
    "reject_together": {"calls": {"0": "1"}, "reason": "no"},
    "move": {"call": 0, "until": 5},
    "settle": {"call": 0, "outcome": "again"},
    "answer": {"call": 0, "value": 1},
    "approve_plan": {"plan": "0"},
    "amend": {"amendment": {"calls": []}},
    "say": {"message": "go on"},
    "send": {"messages": []},
}
"""What a deed is asked for with; nothing where it is not here."""


@pytest.mark.parametrize("path", READ)
def test_nothing_is_read_without_a_token_that_is_known(site: Site, path: str) -> None:
    assert error_of(site.get(f"/api/{path}", None)) == (401, "NoToken")
    assert error_of(site.get(f"/api/{path}", READER[:-1])) == (401, "WrongToken")
    assert error_of(site.get(f"/api/{path}", None, Authorization=f"Basic {READER}")) == (401, "NoToken")
    assert error_of(
        site.get(f"/api/{path}&token={READER}" if "?" in path else f"/api/{path}?token={READER}", None)
    ) == (
        401,
        "NoToken",
    )


@pytest.mark.parametrize("path", READ)
@pytest.mark.parametrize("token", [READER, DECIDER, CONTROLLER])
def test_whoever_enters_may_read(site: Site, path: str, token: str) -> None:
    assert site.get(f"/api/{path}", token).status_code in (200, 404)


def test_the_table_of_rights_has_every_deed() -> None:
    assert {name: deed.right for name, deed in SERVED.items()} == RIGHTS


def test_an_action_has_one_right_and_one_name_everywhere() -> None:
    assert {name: tool.right for name, tool in TOOLS.items() if name in ACTIONS}.items() <= RIGHTS.items()
    assert {name for name, action in ACTIONS.items() if action.summary} <= acts.commands.keys()
    assert all(acts.commands[name].help == action.help for name, action in ACTIONS.items() if action.summary)


@pytest.mark.parametrize("name", ["approve", "reject", "answer", "approve_plan"])
def test_nobody_acts_under_another_name(site: Site, name: str) -> None:
    assert error_of(site.post(f"/api/runs/r/{name}", {**BODIES[name], "by": "Eve"}, DECIDER)) == (400, "BadBody")


@pytest.mark.parametrize("deed", RIGHTS)
@pytest.mark.parametrize(
    ("token", "rights"), [(READER, ()), (DECIDER, ("decide",)), (CONTROLLER, ("decide", "control"))]
)
def test_a_deed_takes_its_right_and_no_other(site: Site, deed: str, token: str, rights: tuple[str, ...]) -> None:
    answer = site.post(f"/api/runs/r/{deed}", BODIES.get(deed), token)
    admitted = RIGHTS[deed] in rights
    assert error_of(answer) == ((404, "RunNotFound") if admitted else (403, "NotAdmitted"))


@pytest.mark.parametrize("deed", RIGHTS)
def test_nothing_is_done_without_a_token_that_is_known(site: Site, deed: str) -> None:
    assert error_of(site.post(f"/api/runs/r/{deed}", BODIES.get(deed), None)) == (401, "NoToken")
    assert error_of(site.post(f"/api/runs/r/{deed}", BODIES.get(deed), "x" * 20)) == (401, "WrongToken")


@pytest.mark.parametrize("path", ["/", "/health", "/assets/page.css", "/api/me", "/api/runs/r", "/api/runs/r/events"])
def test_an_address_that_is_read_is_not_posted_to(site: Site, path: str) -> None:
    assert error_of(site.post(path))[0] in (404, 405)


@pytest.mark.parametrize("deed", RIGHTS)
def test_no_deed_is_done_by_an_address_alone(site: Site, deed: str) -> None:
    assert site.get(f"/api/runs/r/{deed}").status_code in (404, 405)


def test_two_headers_with_tokens_are_none(site: Site) -> None:
    request = f"GET /api/me HTTP/1.1\r\nHost: {site.host}\r\nConnection: close\r\n"
    twice = f"Authorization: Bearer {READER}\r\nAuthorization: Bearer {CONTROLLER}\r\n\r\n"
    with site.raw((request + twice).encode()) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 401 ")


class Clock:
    """A clock that stands."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def access(clock: Clock) -> Access:
    return Access([AccessToken("ann", frozenset({"read"}), READER)], PAGES, clock)


def refused(access: Access, token: str, address: str) -> int:
    with pytest.raises(Refused) as found:
        access.enter(f"Bearer {token}", address)
    return found.value.status


def test_many_wrong_tokens_make_their_address_wait(access: Access, clock: Clock) -> None:
    for number in range(WRONG_TOKENS):
        assert refused(access, f"wrong-{number}", "192.0.2.1") == 401
    assert refused(access, "another", "192.0.2.1") == 429
    assert refused(access, "another", "192.0.2.2") == 401
    clock.seconds = WINDOW_SECONDS
    assert refused(access, "another", "192.0.2.1") == 401


def test_a_right_token_enters_whatever_wrong_ones_have_come_from_its_address(access: Access) -> None:
    for number in range(WRONG_TOKENS + 5):
        refused(access, f"wrong-{number}", "192.0.2.1")
    assert refused(access, "another", "192.0.2.1") == 429
    assert access.enter(f"bearer {READER}", "192.0.2.1").name == "ann"


def test_each_token_has_its_share_and_one_alone_has_all(access: Access) -> None:
    alone = access.shares(100, "pages")
    for _ in range(100):
        alone.take("ann")
    with pytest.raises(Refused) as told:
        alone.take("ann")
    assert (told.value.status, told.value.kind) == (429, "TooMany")
    tokens = [AccessToken(name, frozenset({"read"}), f"{name}-0123456789abcdef") for name in ("ann", "bob")]
    shares = Access(tokens, PAGES).shares(100, "pages")
    for _ in range(50):
        shares.take("ann")
    with pytest.raises(Refused):
        shares.take("ann")
    shares.take("bob")
    shares.give_back("ann")
    shares.take("ann")


def test_a_page_that_was_left_open_with_an_old_token_locks_nobody_out(access: Access) -> None:
    for _ in range(10 * WRONG_TOKENS):
        assert refused(access, "of-the-last-start", "127.0.0.1") == 401
    assert access.enter(f"Bearer {READER}", "127.0.0.1").name == "ann"


def test_one_host_with_many_addresses_waits_as_one(access: Access) -> None:
    for number in range(WRONG_TOKENS):
        refused(access, f"wrong-{number}", f"2001:db8::{number + 1:x}")
    assert refused(access, "another", "2001:db8::ffff") == 429
    assert refused(access, "another", "2001:db8:0:1::1") == 401


def test_the_addresses_that_are_kept_are_bounded(access: Access) -> None:
    for number in range(10_100):
        refused(access, "wrong", f"10.0.{number // 256}.{number % 256}")
    assert len(access._tries) == 10_000


# What holds for every request: its host, its origin, its body, and the headers of each answer.

PATHS = ("/", "/health", "/assets/page.css", "/assets/none", "/api/me", "/api/runs/none", "/none")


def asked(site: Site, head: str) -> httpx.Response:
    """The answer to a request as it is written here."""
    with site.raw(head.encode()) as connection:
        data = b""
        while more := connection.recv(65_536):
            data += more
    top, _, body = data.partition(b"\r\n\r\n")
    status, *lines = top.decode("latin-1").split("\r\n")
    headers = [tuple(line.split(": ", 1)) for line in lines]
    return httpx.Response(int(status.split()[1]), headers=headers, content=body)  # type: ignore[arg-type]  # pairs


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "", "[", "localhost@evil.example"])
def test_another_name_that_leads_here_is_refused(site: Site, path: str, host: str) -> None:
    head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {READER}\r\nConnection: close\r\n\r\n"
    assert error_of(asked(site, head)) == (421, "WrongHost")


def test_a_request_without_a_host_is_refused(site: Site) -> None:
    assert error_of(asked(site, "GET / HTTP/1.0\r\n\r\n")) == (421, "WrongHost")
    assert asked(site, "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n").status_code == 400


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9", "[::1]:80", "LOCALHOST:80"])
def test_the_names_of_this_machine_are_its_own_whatever_the_port(site: Site, host: str) -> None:
    assert site.get("/health", None, Host=host).status_code == 200


def test_the_host_of_the_setting_is_one_of_the_pages_and_so_is_its_origin(backend: Backend) -> None:
    url = "https://acts.example:8443"
    with served(backend, ACTS_UI_URL=url) as site:
        assert site.link == url
        assert site.get("/health", None, Host="acts.example").status_code == 200
        with site.client(Origin=url, Host="acts.example") as client:
            assert error_of(client.post("/api/runs/none/pause", json={})) == (404, "RunNotFound")
        with site.client(Origin="https://evil.example", Host="acts.example") as client:
            assert error_of(client.post("/api/runs/none/pause", json={})) == (403, "WrongOrigin")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost", "file://", "http://[", ""])
def test_a_deed_that_a_page_of_another_host_asks_for_is_not_done(site: Site, origin: str) -> None:
    with site.client(Origin=origin) as client:
        assert error_of(client.post("/api/runs/none/pause", json={})) == (403, "WrongOrigin")


def test_what_is_no_browser_names_no_origin(site: Site) -> None:
    with site.client() as client:
        assert error_of(client.post("/api/runs/none/pause", json={})) == (404, "RunNotFound")


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "application/jsonp"]
)
def test_what_a_form_can_send_is_no_deed(site: Site, kind: str) -> None:
    with site.client(**{"Origin": site.url, "Content-Type": kind}) as client:
        assert error_of(client.post("/api/runs/none/pause", content="{}")) == (415, "NotJson")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"])
@pytest.mark.parametrize("path", PATHS)
def test_nothing_but_get_and_post_is_answered(site: Site, path: str, method: str) -> None:
    with site.client(Origin="http://evil.example") as client:
        answer = client.request(method, path, headers={"Access-Control-Request-Method": "POST"})
    assert answer.status_code == 405
    assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize("path", [*PATHS, "/api/runs"])
@pytest.mark.parametrize("token", [None, READER])
def test_every_answer_has_the_headers_that_keep_it_safe(site: Site, path: str, token: str | None) -> None:
    answer = site.get(path, token, Origin="http://evil.example")
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    assert not any(name.startswith("access-control") for name in answer.headers)
    assert "server" not in answer.headers
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "path",
    [
        *("/assets/../application.py", "/assets/%2e%2e/application.py", "/assets/..%2fapplication.py"),
        *("/assets/..%5c..%5cpage.py", "/assets//etc/passwd", "//etc/passwd", "/assets/%2fetc%2fpasswd"),
        *("/assets/page.css%00.html", "/assets/.", "/assets/", "/../../etc/passwd"),
    ],
)
def test_no_path_leads_to_another_file(site: Site, path: str) -> None:
    head = f"GET {path} HTTP/1.1\r\nHost: {site.host}\r\nConnection: close\r\n\r\n"
    assert error_of(asked(site, head))[0] == 404


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "a\r\nSet-Cookie: a=b", "\x1b[2J\x00", "„\u202e\u2028“", "x" * 5_000, "%s{0}"]
)
def test_what_a_path_holds_comes_back_as_a_text_in_json_alone(site: Site, name: str) -> None:
    for path in (
        f"/api/runs/{quote(name, safe='')}",
        f"/api/{quote(name, safe='')}",
        f"/api/runs?status={quote(name)}",
    ):
        answer = site.get(path)
        assert error_of(answer)[0] in (400, 404)
        assert "set-cookie" not in answer.headers
        assert answer.text.isprintable()
        assert len(answer.text) < 20_000


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("[]", "the body"),
        ("null", "the body"),
        ('"x"', "the body"),
        ('{"at": 1}', "at"),
        ('{"at": "yesterday"}', "id of the log"),
        ('{"paused": "yes"}', "paused"),
        ('{"paused": 1}', "paused"),
        ('{"at": null, "more": 1}', "more"),
        ('{"at": null, "at": null}', "twice"),
        ('{"at": NaN}', "NaN"),
        ("{", "not JSON"),
        ('{"at": ' + "[" * 100_000, "nested deeper"),
        ('{"at": "\udcff"}', "UTF-8"),
        ('{"at": ' + "9" * 5_000 + "}", ""),
    ],
)
def test_a_body_that_is_no_deed_is_refused_with_what_is_wrong(site: Site, run: str, body: str, said: str) -> None:
    with site.client(**{"Content-Type": "application/json"}) as client:
        answer = client.post(f"/api/runs/{run}/fork", content=body.encode("utf-8", "surrogateescape"))
    assert error_of(answer)[0] == 400
    assert said in answer.json()["error"]["message"]


def test_a_body_that_is_too_large_is_refused_before_it_is_read_whole(backend: Backend) -> None:
    with served(backend, ACTS_LIMIT_CALL_BYTES="100KB") as site, site.client() as client:
        fits = client.post("/api/runs/none/approve", json={"call": 0, "parameters": {"text": "x" * 50_000}})
        assert error_of(fits) == (404, "RunNotFound")
        head = f"POST /api/runs/none/approve HTTP/1.1\r\nHost: {site.host}\r\nContent-Type: application/json\r\n"
        promised = f"Authorization: Bearer {CONTROLLER}\r\nContent-Length: 1000000000\r\n\r\n" + "x" * 200_000
        with site.raw((head + promised).encode()) as connection:
            answer = b""
            while not answer.endswith(b"}}"):  # head and body may come one after the other
                piece = connection.recv(65_536)
                assert piece, answer
                answer += piece
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["type"] == "TooLarge"


def test_a_head_that_is_too_large_is_refused(site: Site) -> None:
    answer = asked(site, f"GET / HTTP/1.1\r\nHost: {site.host}\r\nX: {'x' * 100_000}")
    assert answer.status_code == 400


def test_a_websocket_is_not_spoken(site: Site) -> None:
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": "x" * 16,
        "Sec-WebSocket-Version": "13",
    }
    assert site.get("/api/runs", None, **upgrade).status_code == 401


# Answers are made in threads, of which one run has a few.

DEADLINE_SECONDS = 30


class Gate:
    """A page on which one run takes until it is let through."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.begun = 0

    def answer(self, path: str, query: Mapping[str, str], owner: str | None = None) -> Any:
        if path.startswith("runs/slow"):
            self.begun += 1
            assert self.gate.wait(DEADLINE_SECONDS)
        return {"path": path}


def test_a_run_that_takes_long_keeps_nobody_waiting_who_looks_at_another() -> None:
    page = Gate()

    async def look() -> None:
        reader = Reader(page)
        slow = [asyncio.create_task(reader.answer(f"runs/slow/{part}", {})) for part in range(100)]
        others = [reader.answer(path, {}) for path in ("runs/quick/plan", "runs", "runs/another")]
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert [each["path"] for each in await asyncio.gather(*others)] == [
                "runs/quick/plan",
                "runs",
                "runs/another",
            ]
        assert page.begun <= 4
        page.gate.set()
        assert len(await asyncio.gather(*slow)) == 100
        assert await reader.body("runs", {}) == b'{"path":"runs"}'
        reader.close()

    asyncio.run(look())
