"""One site for the whole folder; each test begins with nothing on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .site import Site


@pytest.fixture(scope="package")
def shared_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server, a proxy, two instance workers and one for everything else."""
    with Site(tmp_path_factory.mktemp("chaos")) as site:
        yield site


@pytest.fixture
def site(shared_site: Site) -> Iterator[Site]:
    """The same, everybody being there."""
    for member in shared_site.crew:
        member.wait_until_ready()
    yield shared_site
    shared_site.turn_over()
