"""Who may do what: each address with each token; and who tries wrong ones."""

from __future__ import annotations

import pytest

from acts_celery.broker_config.tokens import AccessToken
from acts_celery.worker.ui.access import WINDOW_SECONDS, WRONG_TOKENS, Access, Refused
from acts_celery.worker.ui.application import DEEDS, PAGES

from .sites import CONTROLLER, DECIDER, READER, Site, error_of

READ = (
    *("me", "runs", "whole?run=r&path=state.one", "runs/r", "runs/r/plan", "runs/r/calls/0", "runs/r/instances"),
    *("runs/r/instance", "runs/r/place?path=state.one", "runs/r/log", "runs/r/conversation", "runs/r/sent?call=0"),
    *("runs/r/held", "runs/r/events", "no/such/address"),
)
"""Every address that is read."""
RIGHTS = {
    **dict.fromkeys(("approve", "reject", "answer", "approve_plan"), "decide"),
    **dict.fromkeys(("retry", "skip", "pause", "resume", "cancel", "fork"), "control"),
}
"""The right that each deed takes."""
BODIES = {
    "approve": {"call": 0},
    "reject": {"call": 0, "reason": "no"},
    "answer": {"call": 0, "value": 1},
    "approve_plan": {"plan": "0"},
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
    assert {name: deed.right for name, deed in DEEDS.items()} == RIGHTS


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


@pytest.mark.parametrize("path", ["/", "/health", "/assets/page.css", "/api/runs", "/api/runs/r/events"])
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
