"""One Chromium, one server and one worker for the whole folder, and the runs that are looked at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from acts_celery import Run
from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.registry.loading import load
from tests.ui.sites import TOKENS, Site, served
from tests.worker.backend import ACTIVITIES, Backend, Meeting, meeting_url, settings_for
from tests.worker.loops import loop_settings

from .chromium import Window, launched, window
from .runs import SHOP, file_of, held_run, loop_run, shop_run


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with launched() as running:
        yield running


@pytest.fixture
def desk(browser: Browser) -> Iterator[Window]:
    """A wide window."""
    with window(browser) as opened:
        yield opened
        assert opened.complaints == []


@pytest.fixture(scope="session", autouse=True)
def activities() -> None:
    """The tests' activities, registered in this process too."""
    load(str(ACTIVITIES))
    load(str(SHOP))


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as running:
        yield running


@pytest.fixture(scope="session")
def backend(server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """A worker on every queue."""
    settings = settings_for(server, activities=(str(ACTIVITIES), str(SHOP)))
    running = Backend(settings, Meeting(meeting_url(server)), tmp_path_factory.mktemp("worker"))
    with running.worker():
        yield running


@pytest.fixture(scope="session")
def asking(server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """A worker whose model answers what a test lays down."""
    meeting = Meeting(meeting_url(server))
    running = Backend(loop_settings(server, "asking"), meeting, tmp_path_factory.mktemp("asking"))
    with running.worker():
        yield running


@pytest.fixture(scope="session")
def site(backend: Backend) -> Iterator[Site]:
    """`acts ui` of that backend, for those who have a token."""
    with served(backend, ACTS_UI_TOKENS=TOKENS) as running:
        yield running


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where files of runs are."""
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="session")
def shop(backend: Backend) -> Run:
    """A run of twelve orders, of which two have failed."""
    return shop_run(backend, 12, [3, 8])


@pytest.fixture(scope="session")
def shop_file(backend: Backend, shop: Run, folder: Path) -> str:
    return file_of(backend, shop, folder)


@pytest.fixture(scope="session")
def loop(asking: Backend) -> Run:
    return loop_run(asking)


@pytest.fixture(scope="session")
def loop_file(asking: Backend, loop: Run, folder: Path) -> str:
    return file_of(asking, loop, folder)


@pytest.fixture(scope="session")
def held_file(backend: Backend, folder: Path) -> tuple[Run, str]:
    """A run that waits for a person, and its file."""
    run = held_run(backend)
    return run, file_of(backend, run, folder)
