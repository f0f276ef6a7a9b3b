"""The pages over HTTP: the front, the answers, and what is refused."""

from __future__ import annotations

from .sites import CONTROLLER, DECIDER, READER, Listener, Site


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
