"""One server, one worker and one `acts ui` for the whole folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from acts_celery.worker.registry.loading import load
from tests.ui.sites import TOKENS, Site, served
from tests.worker.backend import ACTIVITIES, Backend, backend_apart


@pytest.fixture(scope="session", autouse=True)
def activities() -> None:
    """The tests' activities, registered in this process too: it submits."""
    load(str(ACTIVITIES))


@pytest.fixture(scope="session")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """A worker on every queue."""
    with backend_apart(tmp_path_factory.mktemp("contract"), ui_tokens=TOKENS) as running:
        yield running


@pytest.fixture(scope="session")
def site(backend: Backend) -> Iterator[Site]:
    """The pages of that backend."""
    with served(backend) as running:
        yield running


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The test's own, for gates."""
    return f"contract-{request.node.name}"
