"""Request definitions at web addresses (SPEC R9.1)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from acts_celery import Client, WorkerError
from acts_celery.broker_config import load
from acts_celery.protocol import Rejected

DEFINITION = {"context": [{"type": "system", "message": "You are a translator."}], "schema": {"type": "string"}}


class Site(BaseHTTPRequestHandler):
    """Serves one definition, a large one, and redirects."""

    definition = DEFINITION

    def do_GET(self) -> None:
        if "/moved" in self.path:
            self.send_response(302)
            self.send_header("Location", "/d/translator.json")
            self.end_headers()
            return
        content = json.dumps(self.definition).encode() if "translator" in self.path else b" " * 3_000
        self.send_response(200)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def client_of(root: str) -> Client:
    return Client(load(env_file=None, delegates=(root,), model="openai:any", limit_message_bytes=2_000))


def asking(delegate: str) -> dict[str, object]:
    return {"solution": {"calls": [{"_tool": "t", "_delegate": delegate, "_outputPath": "†state.x"}]}}


@pytest.mark.parametrize("root", ["/d", "/d/", ""])
def test_r9_1_a_definition_below_a_configured_address_travels_with_the_run(site: str, root: str) -> None:
    name = f"{site}/d/translator.json"
    plan = client_of(site + root).check(asking(name))
    assert plan.submission.delegates == {name: DEFINITION}


def test_r9_1_what_the_tools_of_a_request_lead_to_is_read_when_it_is_submitted(site: str) -> None:
    name = f"{site}/d/translator.json"
    tools = {"t": {"properties": {"_delegate": {"const": name}}}}
    plan = client_of(site).check({"context": [], "schema": {}, "tools": tools})
    assert plan.submission.delegates == {name: DEFINITION}


@pytest.mark.parametrize(
    "path",
    [
        "/e/translator.json",
        "/dd/translator.json",
        "/d/../translator.json",
        "/d/%2e%2e/translator.json",
        "/d/translator.json?x=1",
        "/d/translator.json#x",
        "/d//translator.json",
        "/d/translator",
        "/d/.translator.json",
        "/d/\\translator.json",
        "/d/translator.json\n",
    ],
)
def test_r9_1_what_leads_elsewhere_is_no_delegate(site: str, path: str) -> None:
    with pytest.raises(Rejected, match="unknown delegate"):
        client_of(f"{site}/d").check(asking(site + path))


def test_r9_1_another_host_port_scheme_or_user_is_no_delegate(site: str) -> None:
    port = site.rpartition(":")[2]
    for other in (
        f"http://localhost:{port}",
        "http://127.0.0.1",
        f"https://127.0.0.1:{port}",
        f"http://user@127.0.0.1:{port}",
        f"http://127.0.0.1:{port}.example.org",
        "file://",
    ):
        with pytest.raises(Rejected, match="unknown delegate"):
            client_of(site).check(asking(f"{other}/d/translator.json"))


@pytest.mark.parametrize(("path", "text"), [("/d/moved.json", "302"), ("/d/large.json", "more than 2000 bytes")])
def test_r9_1_a_redirect_and_what_is_too_large_are_not_taken(site: str, path: str, text: str) -> None:
    with pytest.raises(WorkerError, match=text):
        client_of(site).check(asking(site + path))


def test_r9_1_a_file_that_is_too_large_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "large.json").write_text(json.dumps(DEFINITION) + " " * 3_000, encoding="utf-8")
    with pytest.raises(WorkerError, match="more than 2000 bytes"):
        client_of(str(tmp_path)).check(asking("large"))
