"""One server and one worker for the whole folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from acts_celery.broker_config import EmbeddedServer
from acts_celery.broker_config.embedded import VARIABLE
from acts_celery.worker.registry.loading import load

from .backend import ACTIVITIES, Backend, Meeting, meeting_url, settings_apart, settings_for
from .loops import loop_settings


@pytest.fixture(scope="session", autouse=True)
def activities() -> None:
    """The tests' activities, registered in this process too."""
    load(str(ACTIVITIES))


_CHOSEN = os.environ.get(VARIABLE)
"""The server that the tests are to run on."""


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as running:
        if _CHOSEN is not None:
            found: Any = redis.Redis.from_url(running.redis_url).info("server")
            assert Path(found["executable"]).samefile(shutil.which(_CHOSEN) or _CHOSEN), found["executable"]
        yield running


@pytest.fixture(scope="session")
def meeting(server: EmbeddedServer) -> Meeting:
    return Meeting(meeting_url(server))


@pytest.fixture(scope="session")
def backend(server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """A worker on every queue."""
    running = Backend(settings_for(server), meeting, tmp_path_factory.mktemp("worker"))
    with running.worker():
        yield running


@pytest.fixture(scope="session")
def aside(server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """A worker on a queue of instances of its own; nobody serves its other queues, so that tests can look into them."""
    running = Backend(settings_apart(server, "aside"), meeting, tmp_path_factory.mktemp("aside"))
    with running.worker("-Q", "aside-instances"):
        yield running


@pytest.fixture(scope="session")
def loops(server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """A worker whose model answers what tests lay down."""
    running = Backend(loop_settings(server, "loops"), meeting, tmp_path_factory.mktemp("loops"))
    with running.worker():
        yield running


@pytest.fixture(scope="module")
def apart() -> Iterator[EmbeddedServer]:
    """A server of a module's own, so that nobody else serves its queues."""
    with EmbeddedServer() as running:
        yield running


@pytest.fixture
def own(apart: EmbeddedServer, tmp_path: Path) -> Backend:
    """A backend there, without a worker."""
    return Backend(settings_for(apart), Meeting(meeting_url(apart)), tmp_path)
