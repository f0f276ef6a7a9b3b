"""The pytest fixture `acts`: a client of a server and a worker of the test's own (see `acts_celery.local`).

    def test_greeting(acts):
        run = acts.submit([], {"calls": [{"_tool": "greet", "name": "Alex", "_outputPath": "†state.greeting"}]})
        assert run.wait(timeout_seconds=10).data()["state"] == {"greeting": "Hello Alex"}

It knows the activities and delegates that the test's module has imported or defined with `@activity`. A request asks
the model that the test gives:

    def test_tea(acts):
        model = acts.model({"output": "tea"})
        assert acts.submit(["Tea or coffee?"], schema={}).wait(timeout_seconds=10).output == "tea"
        assert "coffee" in model.requests[0].text

`acts.recorded("tea.jsonl")` is a model whose answers were recorded; `pytest --acts-record` asks for what is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .local import LocalClient


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option by which recordings are made."""
    parser.getgroup("acts").addoption(
        "--acts-record",
        action="store_true",
        help="acts.recorded(FILE) asks the model of ACTS_MODEL for what is not in the file, and adds it.",
    )


@pytest.fixture
def acts(pytestconfig: pytest.Config) -> Iterator[LocalClient]:
    """A client of a server and a worker that exist for the time of the test."""
    from .local import Local

    with Local((), {}, verifies_models=False) as client:
        client.records = pytestconfig.getoption("--acts-record")
        yield client
