"""Pages of figures, as Prometheus reads them."""

from __future__ import annotations

import socket
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance import forks

from .backend import DEADLINE_SECONDS, Backend

_PAUSE_SECONDS: Final = 0.05

Page = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def free_port(following: int = 0) -> int:
    """A port that is free, with so many free ones behind it."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first:
            port = int(first.getsockname()[1])
            try:
                for number in range(1, following + 1):
                    socket.create_server(("127.0.0.1", port + number)).close()
            except OSError:
                continue
            return port


def scraped(url: str) -> str:
    with urllib.request.urlopen(url, timeout=DEADLINE_SECONDS) as answer:
        text: str = answer.read().decode()
        return text


def page(url: str) -> Page:
    """Every sample of a page."""
    families = text_string_to_metric_families(scraped(url))
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(found: Page, name: str, **labels: str) -> float:
    """One sample; 0 where there is none."""
    return found.get((name, frozenset(labels.items())), 0.0)


def page_until(url: str, is_so: Callable[[Page], bool]) -> Page:
    """The first page of which something is true; asked again and again, since a page can be asked, but never calls."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_so(found := page(url)):
        assert time.monotonic() < deadline, found
        time.sleep(_PAUSE_SECONDS)
    return found


@contextmanager
def metrics_command(backend: Backend, *arguments: str) -> Iterator[str]:
    """`acts metrics` on a free port: the address of its page."""
    command, log = ["metrics", "--port", "0", "--json", *arguments], backend.folder / "metrics.log"
    with forks.staying(command, env=backend.environment(), folder=backend.folder, log=log) as (_, announced):
        yield announced["url"]
