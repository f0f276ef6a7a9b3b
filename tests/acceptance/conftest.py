"""Fixtures of the acceptance tests: a server with a worker, a bare server, records of activities."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from acts_celery.broker_config import EmbeddedServer

from .backend import Backend, running_backend
from .records import Records


@pytest.fixture(scope="session")
def session_backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """One server and worker for the whole session."""
    with running_backend(tmp_path_factory.mktemp("backend")) as backend:
        yield backend


@pytest.fixture
def backend(session_backend: Backend) -> Backend:
    """The session's backend, without the records of earlier tests."""
    session_backend.records.forget()
    return session_backend


@pytest.fixture(scope="session")
def bare_server() -> Iterator[EmbeddedServer]:
    """A server nobody works on: what a rejected submission leaves in it is all there is."""
    with EmbeddedServer() as server:
        yield server


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    """A pipe of its own for one test's activities."""
    pipe = Records(tmp_path / "records")
    yield pipe
    pipe.close()
