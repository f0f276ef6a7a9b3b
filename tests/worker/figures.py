"""Pages of figures, as Prometheus reads them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from prometheus_client.parser import text_string_to_metric_families

from .backend import DEADLINE_SECONDS, Backend

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
    return found


@contextmanager
def metrics_command(backend: Backend, *arguments: str) -> Iterator[str]:
    """`acts metrics` on a free port: the address of its page."""
    command = [sys.executable, "-m", "acts_celery", "metrics", "--port", "0", "--json", *arguments]
    process = subprocess.Popen(
        command,
        env=backend.environment(),
        cwd=backend.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield json.loads(line)["url"]
    finally:
        process.terminate()
        process.communicate()
