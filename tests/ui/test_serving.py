"""The pages over HTTP: the front, the answers, and what is refused."""

from __future__ import annotations

import pytest

from tests.worker.backend import Backend

from .sites import CONTROLLER, DECIDER, READER, Listener, Site, error_of


def test_the_front_and_what_it_loads_are_served_as_they_are(site: Site) -> None:
    front = site.get("/", token=None)
    assert front.headers["content-type"] == "text/html; charset=utf-8"
    style = site.get("/assets/page.css", token=None)
    assert style.headers["content-type"] == "text/css; charset=utf-8"
    assert site.get("/health", token=None).json() == {"status": "ok"}


def test_whoever_enters_is_told_what_the_token_admits(site: Site) -> None:
    assert site.get("/api/me", READER).json() == {"name": "rea", "may": ["read"]}
    assert site.get("/api/me", DECIDER).json() == {"name": "dee", "may": ["read", "decide"]}
    assert site.get("/api/me", CONTROLLER).json() == {"name": "con", "may": ["read", "decide", "control"]}


def test_a_run_is_read_and_followed(site: Site, run: str) -> None:
    overview = site.get(f"/api/runs/{run}", READER).json()
    assert (overview["run"], overview["status"]) == (run, "completed")
    listener = Listener(site, run)
    followed = listener.until("changed")
    assert followed | {"expires": None} == overview | {"expires": None}
    listener.close()


def test_a_whole_value_is_saved_as_a_file(backend: Backend, site: Site) -> None:
    large = "Ж" * 200_000
    run = backend.run([{"_tool": "echo", "value": large, "_outputPath": "†state.one"}]).run
    answer = site.get(f"/api/whole?run={run}&path=state.one", READER)
    assert answer.json() == large
    assert answer.headers["content-disposition"] == 'attachment; filename="value.json"'
    assert answer.headers["content-type"] == "application/json"
    shown = site.get(f"/api/runs/{run}/place?path=state.one", READER)
    assert len(shown.content) < len(answer.content), "on the page it is cut"


@pytest.mark.parametrize(
    ("query", "refusal"),
    [
        ("path=state.one", (400, "BadQuery")),
        ("run={run}", (400, "BadQuery")),
        ("run={run}&path=a b†", (400, "ExpressionError")),
        ("run={run}&path=state.none", (404, "NoValue")),
        ("run={run}&path=state.one&instance=none", (404, "InstanceNotFound")),
        ("run={run}&path=state.one&at=yesterday", (400, "BadQuery")),
        ("run=none&path=state.one", (404, "RunNotFound")),
    ],
)
def test_a_value_that_is_not_there_is_refused(site: Site, run: str, query: str, refusal: tuple[int, str]) -> None:
    assert error_of(site.get(f"/api/whole?{query.format(run=run)}")) == refusal


@pytest.mark.parametrize(
    "path", ["runs/{run}/calls/9", "runs/{run}/calls/x", "runs/{run}/sent?call=9", "runs/{run}/instance?name=none"]
)
def test_a_part_that_a_run_does_not_have_is_told_of(site: Site, run: str, path: str) -> None:
    assert error_of(site.get(f"/api/{path.format(run=run)}"))[0] == 404
