"""What holds for every request: its host, its origin, its body, and the headers of each answer."""

from __future__ import annotations

import json
from urllib.parse import quote

import httpx
import pytest

from acts_celery.worker.ui.access import HEADERS
from tests.worker.backend import Backend

from .sites import CONTROLLER, READER, Site, error_of, served

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
