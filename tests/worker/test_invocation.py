"""What the worker's log says of an attempt that failed (SPEC R7.2)."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from acts_celery.protocol import Limits
from acts_celery.protocol.engine.events import Failure, Success
from acts_celery.worker.broker.attempts import Attempt, CallId, Result, Retry
from acts_celery.worker.registry.activities import Policy, make_activity
from acts_celery.worker.runner.calls import Threads, invoke

SECOND = Attempt(CallId("r1", "①", 4), number=2, failures=1)


def attempted(function: Callable[[], Any], policy: Policy, *, is_async: bool = True) -> Result:
    async def attempt() -> Result:
        return await invoke(
            function, SECOND, name="charge", is_async=is_async, policy=policy, limits=Limits(), threads=Threads(1)
        )

    return asyncio.run(attempt())


def test_an_attempt_that_failed_is_reported_with_its_call_and_its_number(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise ConnectionError("the bank is closed")

    with caplog.at_level(logging.WARNING, "acts_celery.worker.runner.calls"):
        result = attempted(fails, Policy(retries=3))
        last = attempted(fails, Policy(retries=1))
    assert isinstance(result, Retry)
    assert isinstance(last, Failure)
    again, ended = caplog.records
    assert again.getMessage() == "charge failed: ConnectionError (the bank is closed), call r1:4:①, attempt 2 of 4"
    assert again.exc_info is None, "one that is tried again is one line"
    assert ended.getMessage() == "charge failed: ConnectionError (the bank is closed), call r1:4:①, attempt 2 of 2"
    assert ended.exc_info is not None
    assert (again.levelname, ended.levelname) == ("WARNING", "ERROR")


def test_the_traceback_of_an_error_at_one_place_is_in_the_log_once_or_each_time_for_debugging(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def breaks() -> None:
        raise ZeroDivisionError("again")

    with caplog.at_level(logging.WARNING, "acts_celery.worker.runner.calls"):
        attempted(breaks, Policy())
        attempted(breaks, Policy())
    with caplog.at_level(logging.DEBUG, "acts_celery.worker.runner.calls"):
        attempted(breaks, Policy())
    assert [record.exc_info is not None for record in caplog.records] == [True, False, True]
    assert len({record.getMessage() for record in caplog.records}) == 1


def parses(count: int) -> int:
    return TypeAdapter(int).validate_python("not " * count)


def test_what_an_activity_itself_finds_invalid_is_its_own_error_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    function = make_activity(parses, None, None, Policy()).bind({}, {"count": 1}, {})
    result = attempted(function, Policy(retries=3), is_async=False)
    assert isinstance(result, Retry)
    assert result.failure.type == "ValidationError"
    assert "not" not in result.failure.message
    (record,) = caplog.records
    assert "not" not in record.getMessage()


def test_parameters_that_do_not_fit_end_the_attempts() -> None:
    function = make_activity(parses, None, None, Policy()).bind({}, {"count": "many"}, {})
    result = attempted(function, Policy(retries=3), is_async=False)
    assert isinstance(result, Failure)
    assert result.type == "InvalidParameters"
    assert result.message.startswith("count: Input should be a valid integer")


class Cash(BaseModel):
    kind: Literal["cash"]


class Card(BaseModel):
    kind: Literal["card"]
    number: int


def pays(
    rates: dict[str, int] | None = None,
    rows: list[list[int]] | None = None,
    by: Annotated[Cash | Card, Field(discriminator="kind")] | None = None,
) -> None: ...


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rates": {"123-45": "x"}}, "rates, below it: Input should be a valid integer"),
        ({"rows": [[1], ["123-45"]]}, "rows.1.0: Input should be a valid integer"),
        ({"by": {"kind": "123-45"}}, "by: its tag is none of those expected"),
        ({"by": {"kind": "card", "number": "123-45"}}, "by, below it: Input should be a valid integer"),
    ],
)
def test_what_is_said_of_parameters_holds_nothing_of_their_values(parameters: dict[str, Any], message: str) -> None:
    result = attempted(make_activity(pays, None, None, Policy()).bind({}, parameters, {}), Policy(), is_async=False)
    assert isinstance(result, Failure)
    assert result.message.startswith(message)
    assert "123-45" not in result.message


def test_a_timeout_is_reported_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "acts_celery.worker.runner.calls"):
        result = attempted(asyncio.Event().wait, Policy(retries=1, timeout_seconds=0.001))
    (record,) = caplog.records
    assert result == Failure("TimeoutError", "took longer than 0.001 seconds")
    assert (
        record.getMessage()
        == "charge failed: TimeoutError (took longer than 0.001 seconds), call r1:4:①, attempt 2 of 2"
    )
    assert record.exc_info is None


def test_an_attempt_that_is_followed_by_another_is_one_line_and_the_last_has_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def breaks() -> None:
        raise OSError("away")

    for retries, is_last in ((5, False), (0, True)):
        caplog.clear()
        attempted(breaks, Policy(retries=retries), is_async=False)
        (record,) = caplog.records
        assert (record.exc_info is not None) == is_last
        assert "OSError (away)" in record.getMessage()


@pytest.mark.parametrize("is_async", [True, False])
def test_what_no_coroutine_can_raise_is_named_as_it_was_raised(is_async: bool) -> None:
    def plain() -> Any:
        raise StopIteration("nothing left")

    async def coroutine() -> Any:
        raise StopIteration("nothing left")

    result = attempted(coroutine if is_async else plain, Policy(), is_async=is_async)
    assert result == Failure("StopIteration", "nothing left")


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A Django that is set up, and the threads in which old connections were closed."""
    threads: list[str] = []
    executor = ThreadPoolExecutor(1, "queries-of-coroutines")

    def sync_to_async(function: Callable[[], Any]) -> Callable[[], Any]:
        async def run() -> Any:
            return await asyncio.get_running_loop().run_in_executor(executor, function)

        return run

    parts: dict[str, dict[str, Any]] = {
        "django.conf": {"settings": SimpleNamespace(configured=True)},
        "django.db": {"close_old_connections": lambda: threads.append(threading.current_thread().name)},
        "asgiref.sync": {"sync_to_async": sync_to_async},
    }
    for name, held in parts.items():
        module = ModuleType(name)
        vars(module).update(held)
        monkeypatch.setitem(sys.modules, name, module)
    yield threads
    executor.shutdown()


def test_where_django_is_set_up_a_functions_thread_closes_old_connections_around_each_attempt(
    closed: list[str],
) -> None:
    def fails() -> None:
        closed.append("at work")
        raise OSError

    attempted(fails, Policy(), is_async=False)
    assert closed == ["acts-activity", "at work", "acts-activity"]


def test_around_a_coroutine_they_are_closed_where_django_runs_its_queries(closed: list[str]) -> None:
    async def works() -> int:
        closed.append("at work")
        return 1

    async def attempt() -> None:
        options: Any = {"is_async": True, "policy": Policy(), "limits": Limits(), "threads": Threads(1)}
        assert await invoke(works, SECOND, name="works", **options) == Success(1)
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

    asyncio.run(attempt())
    assert [name.partition("_")[0] for name in closed] == ["queries-of-coroutines", "at work", "queries-of-coroutines"]


def test_where_django_is_imported_and_not_set_up_nothing_of_it_is_called(closed: list[str]) -> None:
    sys.modules["django.conf"].settings.configured = False
    assert attempted(int, Policy(), is_async=False) == Success(0)
    assert not closed


def test_a_group_of_exceptions_names_the_first_of_what_failed() -> None:
    async def fails() -> None:
        raise ExceptionGroup("unhandled", [ExceptionGroup("inner", [ValueError("no such item")]), OSError("away")])

    result = attempted(fails, Policy())
    assert isinstance(result, Failure)
    assert result.type == "ExceptionGroup"
    assert result.message == "unhandled (2 sub-exceptions), first ValueError: no such item"
