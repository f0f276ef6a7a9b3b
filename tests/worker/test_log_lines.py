"""How a worker writes its log: lines for people, or one JSON document a line; never with what is secret."""

from __future__ import annotations

import io
import json
import logging
import re
from itertools import dropwhile
from pathlib import Path
from typing import Any

import pytest
from celery.utils.log import ColorFormatter

from acts_celery.broker_config import EmbeddedServer, Settings, load
from acts_celery.worker.broker.attempts import place_of_run
from acts_celery.worker.logs import AT_WORK, MaskedFormatter, Masking, _set_up, json_formatter, lane_at_work
from acts_celery.worker.registry.loading import load as load_activities

from .backend import Backend, Meeting, settings_apart

ACTIVITIES = Path(__file__).parent / "fixtures" / "logging_activities.py"
KEY = "sk-key-of-the-settings"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def logged(server: EmbeddedServer, meeting: Meeting, folder: Path, log_format: str, name: str) -> Backend:
    settings = settings_apart(server, name, model="openai:m", model_api_key=KEY, log_format=log_format)
    load_activities(str(ACTIVITIES))
    return Backend(settings.model_copy(update={"activities": (str(ACTIVITIES),)}), meeting, folder)


CALLS = [
    {"_tool": "tell", "text": "marigold", "_instance": "①", "_outputPath": "†state.a"},
    {"_tool": "breakdown", "text": "marigold", "_outputPath": "†state.b"},
    {"_tool": "farAway", "text": "marigold", "_outputPath": "†state.c"},
]
CONTEXT = [{"type": "state", "_instance": "①", "n": 1}]


@pytest.fixture(scope="module")
def as_json(
    server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str, list[dict[str, Any]]]:
    """A run of its own, one in somebody's trace, and the lines of the worker's log, which has ended."""
    backend = logged(server, meeting, tmp_path_factory.mktemp("logged-json"), "json", "logged-json")
    with backend.worker():
        alone = backend.run(CALLS, CONTEXT).run
        within = backend.run(CALLS, CONTEXT, traceparent=f"00-{TRACE}-00f067aa0ba902b7-01").run
    lines = backend.log.read_text(encoding="utf-8").splitlines()
    assert KEY not in "".join(lines)
    assert "hunter2" not in "".join(lines)
    since = dropwhile(lambda line: not line.startswith("{"), lines)  # Celery warns root before it sets its log up
    spoken = [line for line in since if line and not line.startswith("worker: ")]  # and says farewell beside it
    return alone, within, [json.loads(line) for line in spoken]


def test_each_line_is_a_document_with_run_instance_call_attempt_and_trace(
    as_json: tuple[str, str, list[dict[str, Any]]],
) -> None:
    alone, within, lines = as_json
    said = [line for line in lines if line["event"] == "logged marigold" and line["run"] == alone]
    assert [line["attempt"] for line in said] == [1, 2]
    about = {"run": alone, "instance": "①", "call": 0, "attempt": 1, "trace": place_of_run(alone).trace}
    assert {name: said[0][name] for name in about} == about
    assert (said[0]["level"], said[0]["logger"], said[0]["amount"]) == ("info", "shop", 3)
    assert said[0]["who"] == {"name": "marigold"}
    assert said[0]["timestamp"].endswith("Z")
    assert [line for line in lines if "at_work" in line or "data" in line] == []
    traces = {line["trace"] for line in lines if line.get("run") == within and "trace" in line}
    assert traces == {TRACE}
    named = [line for line in lines if alone in line["event"] or within in line["event"]]
    assert [line for line in named if "run" not in line] == [], "the ends of tasks are about their runs, too"


def test_what_is_logged_with_structlog_and_what_is_printed_goes_the_same_way(
    as_json: tuple[str, str, list[dict[str, Any]]],
) -> None:
    alone, _, lines = as_json
    counted = next(line for line in lines if line["event"] == "counted" and line["run"] == alone)
    assert (counted["word"], counted["two"], counted["call"], counted["instance"]) == ("marigold", "a b", 0, "①")
    assert (counted["logger"], counted["level"]) == ("shop.events", "info")
    far = next(line for line in lines if line["event"] == "far" and line["run"] == alone)
    assert (far["call"], far["level"]) == (2, "warning")
    assert any(line["event"] == "printed marigold" and line["call"] == 0 for line in lines)


def test_a_failed_attempt_is_a_warning_and_a_failed_call_an_error_with_its_traceback_once(
    as_json: tuple[str, str, list[dict[str, Any]]],
) -> None:
    alone, within, lines = as_json
    for run in (alone, within):
        (again,) = [line for line in lines if line["event"].startswith("tell failed") and line["run"] == run]
        assert again["level"] == "warning"
        assert "exception" not in again
        assert "OSError (redis://user:***@host/0 is away" in again["event"]
    ended = [line for line in lines if line["event"].startswith("breakdown failed")]
    assert [line["level"] for line in ended] == ["error", "error"]
    assert "ValueError (two\\nlines of marigold with ***)" in ended[0]["event"]
    assert ["Traceback" in line.get("exception", "") for line in ended] == [True, False]


def test_celerys_own_lines_and_the_one_that_says_that_it_is_ready_are_documents(
    as_json: tuple[str, str, list[dict[str, Any]]],
) -> None:
    _, _, lines = as_json
    assert any(line["logger"].startswith("celery.") for line in lines)
    (ready,) = [line for line in lines if " is ready, on " in line["event"]]
    assert ready["level"] == "info"


def test_for_people_structlog_writes_a_line_with_its_values(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path
) -> None:
    backend = logged(server, meeting, tmp_path, "text", "logged-text")
    with backend.worker():
        run = backend.run(CALLS, CONTEXT).run
    text = backend.log.read_text(encoding="utf-8")
    assert f'] run={run} instance=① call=0 counted word=marigold two="a b"\n' in text
    assert f"] run={run} instance=① call=0 attempt=2 logged marigold\n" in text
    assert f"] run={run} call=2 far word=marigold\n" in text
    assert "\x1b[" not in text, "colours are for terminals"
    assert "redis://user:***@host/0 is away" in text
    assert KEY not in text
    assert text.count("Traceback") == 1


def written(formatter: logging.Formatter, message: Any, *args: Any, **extra: Any) -> str:
    """A line of the library's, as a handler of the worker writes it."""
    stream, logger = io.StringIO(), logging.getLogger("tests.log_lines")
    handler = logging.StreamHandler(stream)
    handler.addFilter(AT_WORK)
    handler.setFormatter(formatter)
    logger.addHandler(handler)
    try:
        logger.warning(message, *args, extra=extra)
    finally:
        logger.removeHandler(handler)
    return stream.getvalue()


def test_nothing_that_is_logged_breaks_a_document_or_forges_a_line() -> None:
    odd = {"nan": float("nan"), "bytes": b"\xff", "set": {1}, "object": object(), "key": {1: "x\u2028y"}}
    line = written(json_formatter(), 'a\n{"level": "forged"} \x9b2J %s', "x", **odd)
    assert line.count("\n") == 1
    assert line.rstrip("\n").isprintable()
    document = json.loads(line)
    assert document["event"] == 'a\n{"level": "forged"} \x9b2J x'
    assert (document["nan"], document["bytes"], document["set"]) == ("nan", "b'\\xff'", [1])
    assert document["key"] == {"1": "x\u2028y"}


def test_a_lane_whose_run_was_not_read_yet_has_no_trace() -> None:
    with lane_at_work("r", None):
        document = json.loads(written(json_formatter(), "said"))
    assert (document["run"], "trace" in document, "call" in document) == ("r", False, False)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("amqp://guest:s3cret@host:5672//", "amqp://guest:***@host:5672//"),
        ("redis://:s3cret@host/0 and rediss://u:other@h", "redis://:***@host/0 and rediss://u:***@h"),
        ("http://user@host/a:b@c", "http://user@host/a:b@c"),
        ("an@address.org, and 12:30", "an@address.org, and 12:30"),
        ('{"url": "https://u:p@h"}', '{"url": "https://u:***@h"}'),
    ],
)
def test_passwords_in_addresses_are_masked(text: str, shown: str) -> None:
    assert Masking()(text) == shown


def test_the_keys_and_passwords_of_the_settings_are_masked_wherever_they_stand() -> None:
    settings: Settings = load(
        env_file=None,
        broker_url="redis://u:broker%2Fword@host/0",
        redis_url="redis://:one-word@a:1/0",
        model="openai:m",
        model_api_key='key"quoted',
        models={"other": {"model": "openai:o", "api_key": "key-of-other"}},
    )
    masked = Masking(settings)
    for secret in ("broker%2Fword", "broker/word", "one-word", 'key"quoted', 'key\\"quoted', "key-of-other"):
        assert masked(f"it is <{secret}>") == "it is <***>"


def test_a_handler_that_somebody_else_has_set_up_is_labelled_and_writes_as_it_did() -> None:
    logger = logging.getLogger("tests.handlers")
    own, celerys = logging.StreamHandler(), logging.StreamHandler()
    own.setFormatter(formatter := logging.Formatter("%(message)s"))
    celerys.setFormatter(ColorFormatter("%(message)s"))
    logger.handlers = [own, celerys]
    _set_up(logger, Masking(), as_json=True)
    assert own.formatter is formatter
    assert isinstance(celerys.formatter, MaskedFormatter)
    assert AT_WORK in own.filters
    assert AT_WORK in celerys.filters


def test_for_people_nothing_that_a_record_holds_begins_a_line_or_reaches_the_terminal() -> None:
    forged = "\x1b[2Jx\n[2026-11-28 00:00:00,000: CRITICAL/MainProcess] run=boss approved\u2028by ann\x85\r[2026] y"
    logger, stream = logging.getLogger("tests.forged"), io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(MaskedFormatter(logging.Formatter("[%(levelname)s] %(message)s"), Masking()))
    logger.handlers, logger.propagate = [handler], False
    try:
        raise ValueError(forged)
    except ValueError:
        logger.exception("said %s", forged)
    lines = re.split("[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]", stream.getvalue().rstrip("\n"))
    assert lines[0].startswith("[ERROR] said ")
    assert [line for line in lines[1:] if not line.startswith("  ")] == []
    assert sum("run=boss approved\\u2028by ann\\x85\\r[2026] y" in line for line in lines) == 2
    assert "\x1b" not in stream.getvalue()
    assert any(line.startswith("  ValueError: ") for line in lines)
