"""The server, worker and `acts ui` of the pages' tests, once for the whole folder."""

from __future__ import annotations

import pytest

from tests.ui.conftest import activities, backend, site

__all__ = ["activities", "backend", "site"]


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The test's own, for gates."""
    return f"contract-{request.node.name}"
