"""The worker's log says of each line which run, instance and call it is about."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from acts_celery.worker.broker.attempts import Attempt, CallId, enter
from acts_celery.worker.logs import AT_WORK, lane_at_work

from .backend import Backend

TEXT = "marigold"


def lines_with(backend: Backend, text: str) -> list[str]:
    """What stands behind the level in the log's lines that hold a text."""
    lines = backend.log.read_text(encoding="utf-8").splitlines()
    return [re.sub(r"^\[.*?: \w+/\w+\] ", "", line) for line in lines if text in line]


def saying(tool: str, number: int, **meta: Any) -> dict[str, Any]:
    return {"_tool": tool, "text": TEXT, "_outputPath": f"†state.s{number}", **meta}


def test_what_activities_log_and_print_names_their_call(backend: Backend) -> None:
    context = [{"type": "state", "_instance": "①", "n": 1}]
    calls = [
        saying("say", 0, _instance="①"),
        saying("sayPlain", 1),
        saying("sayFar", 2, _instance="①"),
        {"_tool": "ask", "_delegate": "sayElsewhere", "_outputPath": "†state.s3"},
        {"_tool": "explode", "text": "no luck", "_outputPath": "†state.s4"},
    ]
    result = backend.run(calls, context)
    at = f"run={result.run} instance=① call=0 "
    assert sorted(lines_with(backend, TEXT)) == sorted(
        [
            *(f"{at}logged {TEXT}", f"{at}printed {TEXT}", f"{at}beside {TEXT}"),
            f"run={result.run} call=1 logged {TEXT}",
            f"run={result.run} instance=① call=2 logged {TEXT}",
        ]
    )
    assert lines_with(backend, "logged elsewhere") == [f"run={result.run} call=3 logged elsewhere"]
    (failed,) = [line for line in lines_with(backend, "explode failed") if result.run in line]
    assert failed.startswith(f"run={result.run} call=4 explode failed")
    assert not any(line.startswith("run=") for line in lines_with(backend, " ready"))


@pytest.fixture
def shown() -> list[str]:
    return []


@pytest.fixture
def own_logger(shown: list[str]) -> Iterator[logging.Logger]:
    """A logger with a handler that is labelled as the worker's are."""
    handler = logging.Handler()
    handler.addFilter(AT_WORK)
    handler.setFormatter(logging.Formatter("%(at_work)s%(message)s"))
    handler.emit = lambda record: shown.append(handler.format(record))  # type: ignore[method-assign]
    logger = logging.getLogger("tests.log_context")
    logger.addHandler(handler)
    yield logger
    logger.removeHandler(handler)


def test_a_lane_is_named_while_it_is_at_work_and_no_longer(own_logger: logging.Logger, shown: list[str]) -> None:
    own_logger.warning("before")
    with lane_at_work("r", None):
        own_logger.warning("global")
        with lane_at_work("r", "①"):
            own_logger.warning("own", extra={"call": "the caller's word"})
    own_logger.warning("after")
    assert shown == ["before", "run=r global", "run=r instance=① own", "after"]


async def _attempt(own_logger: logging.Logger, instance: str) -> None:
    enter(Attempt(CallId("r", instance, 7)), "name")
    own_logger.warning("said")


@pytest.mark.parametrize(
    ("instance", "told"),
    [("a-b", "a-b"), ("a b", '"a b"'), ("a\n[forged]", r'"a\n[forged]"'), ('a"', r'"a\""'), ("a\u2028", r'"a\u2028"')],
)
def test_no_name_of_an_instance_forges_a_line(
    own_logger: logging.Logger, shown: list[str], instance: str, told: str
) -> None:
    asyncio.run(_attempt(own_logger, instance))
    assert shown == [f"run=r instance={told} call=7 said"]


def test_a_line_of_ours_is_one_line_and_of_bounded_length(own_logger: logging.Logger, shown: list[str]) -> None:
    ours = logging.getLogger("acts_celery.worker.tests.log_context")
    ours.addHandler(own_logger.handlers[0])
    try:
        ours.error("refused: %s", "a\n[2026-11-22: CRITICAL] forged \x1b[2J")
        ours.error("refused: %s", "x" * 100_000)
    finally:
        ours.removeHandler(own_logger.handlers[0])
    own_logger.error("two\nlines of an activity")
    forged, long, foreign = shown
    assert forged == r"refused: a\n[2026-11-22: CRITICAL] forged \x1b[2J"
    assert long.endswith("x … (100009 characters)")
    assert len(long) < 2_100
    assert foreign == "two\nlines of an activity"
