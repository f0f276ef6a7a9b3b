"""One server of Redis and one worker for the whole folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.registry.loading import load
from tests.worker.backend import ACTIVITIES, Backend, Meeting, meeting_url, settings_for


@pytest.fixture(scope="session", autouse=True)
def activities() -> None:
    """The tests' activities, registered in this process too: it submits."""
    load(str(ACTIVITIES))


@pytest.fixture(scope="session")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """A worker on every queue."""
    with EmbeddedServer() as server:
        meeting = Meeting(meeting_url(server))
        running = Backend(settings_for(server), meeting, tmp_path_factory.mktemp("mcp"))
        with running.worker():
            yield running


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The test's own, for gates and records."""
    return str(request.node.name)
