"""A server with users and workers; the activities of `tests/worker`, registered in this process too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.worker.conftest import activities

from .users import Guarded, guarded_server

__all__ = ["activities"]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A server with the users, and a worker of each kind under its own."""
    with guarded_server(tmp_path_factory.mktemp("users")) as guarded:
        yield guarded
