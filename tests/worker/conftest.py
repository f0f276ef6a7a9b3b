"""One server and one worker for the whole folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from acts_celery.broker_config import ENVIRONMENT_PREFIX, EmbeddedServer
from acts_celery.worker.registry.loading import load

from .backend import ACTIVITIES, Backend, Meeting, meeting_url, settings_apart, settings_for


@pytest.fixture(scope="session", autouse=True)
def clean_environment() -> Iterator[None]:
    """No variable of ours from outside; the tests' activities registered in this process too."""
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.upper().startswith(ENVIRONMENT_PREFIX):
                patch.delenv(name)
        load(str(ACTIVITIES))
        yield


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as running:
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


@pytest.fixture(scope="module")
def apart() -> Iterator[EmbeddedServer]:
    """A server of a module's own, so that nobody else serves its queues."""
    with EmbeddedServer() as running:
        yield running


@pytest.fixture
def own(apart: EmbeddedServer, tmp_path: Path) -> Backend:
    """A backend there, without a worker."""
    return Backend(settings_for(apart), Meeting(meeting_url(apart)), tmp_path)
