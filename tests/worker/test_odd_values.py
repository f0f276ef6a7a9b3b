"""Values come in as exact plain types or not at all, whatever their classes are, and in bounded time."""

from __future__ import annotations

import faulthandler
import itertools
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel

from acts_celery import CallFailed, Draft, Run, ref
from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol import Context, Limits, Rejected, check, check_submission
from acts_celery.protocol.limits import plain, value_problems
from acts_celery.worker.runner.calls import NotPlain, to_json_value

from .backend import FIXTURES, Backend, Meeting, settings_apart, status_of
from .fixtures import odd_values
from .fixtures.odd_values import INTEGERS, VALUES, MyInt, Table

GIVEN = {name: value for name, (value, _) in VALUES.items()}
EXPECTED = {name: value for name, (_, value) in VALUES.items()}
DEADLINE_SECONDS = 60


@pytest.fixture(autouse=True)
def _bounded() -> Iterator[None]:
    """End the process if a test freezes it: code in C that holds the interpreter's lock cannot be interrupted."""
    faulthandler.dump_traceback_later(2 * DEADLINE_SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="module")
def odd(server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """A worker that returns odd values, and does nothing else."""
    files = (str(FIXTURES / "odd_values.py"), str(FIXTURES / "worker_activities.py"))
    settings = settings_apart(server, "odd", activities=files)
    running = Backend(settings, meeting, tmp_path_factory.mktemp("odd"))
    queues = ",".join((*(f"odd-{of}" for of in ("instances", "delegates", "background", "reports")), "odd-values"))
    with running.worker("-Q", queues):
        yield running


def exact(value: Any) -> str:
    """What tells a value from all others, with the types that it is made of."""
    assert not list(value_problems(value, Limits()))
    return json.dumps(value, sort_keys=True)


def done(backend: Backend, *calls: dict[str, Any], **parts: Any) -> dict[str, Any]:
    result = backend.client.submit([], {"calls": [*calls]}, **parts).wait(timeout_seconds=DEADLINE_SECONDS)
    assert result.status == "completed", [call.error for call in result.calls]
    return dict(result.data()["state"])


@pytest.mark.parametrize("tool", ["oddValue", "oddValuePlain", "oddValueFar", "oddValueDelegate"])
def test_what_code_returns_is_made_plain_and_its_worker_goes_on(odd: Backend, tool: str) -> None:
    names = [*VALUES, *(f"{how} {name}" for how in ("listed", "yielded") for name in VALUES)]
    of = {"_tool": "asked", "_delegate": tool} if tool == "oddValueDelegate" else {"_tool": tool}
    calls = [{**of, "kind": name, "_outputPath": f"†state.v{at}"} for at, name in enumerate(names)]
    found = done(odd, *calls)
    expected = [VALUES[name.rpartition(" ")[2]][1] for name in names]
    expected = [[each] if " " in name else each for name, each in zip(names, expected, strict=True)]
    assert exact([found[f"v{at}"] for at in range(len(names))]) == exact(expected)


@pytest.mark.parametrize("how", ["message", "output"])
@pytest.mark.parametrize("tool", ["oddValue", "oddValuePlain"])
def test_messages_and_outputs_hold_plain_values(odd: Backend, tool: str, how: str) -> None:
    for name, (_, expected) in VALUES.items():
        found = done(odd, {"_tool": tool, "kind": f"{how} {name}", "_outputPath": "†state.a || †state.b"})
        assert exact(found["a"]) == exact(expected)


def test_what_is_like_a_number_of_numpy_gives_its_item(odd: Backend) -> None:
    assert done(odd, {"_tool": "oddValue", "kind": "listed Scalar", "_outputPath": "†state.a"}) == {"a": [5]}


def _as_context(backend: Backend) -> Any:
    echo = {"_tool": "echo", "value": "†state.a", "_outputPath": "†state.b"}
    run = backend.client.submit([{"type": "state", "a": GIVEN}], {"calls": [echo]}, id="odd-context")
    return run.wait(timeout_seconds=DEADLINE_SECONDS).data()["state"]["b"]


def _as_parameter(backend: Backend) -> Any:
    return done(backend, {"_tool": "echo", "value": GIVEN, "_outputPath": "†state.b"})["b"]


def _as_whole_document(backend: Backend) -> Any:
    call = odd_values.Table(_tool=odd_values.Text("echo"), value=GIVEN, _outputPath=odd_values.Text("†state.b"))
    document = odd_values.Table(context=odd_values.Row(), solution=odd_values.Table(calls=odd_values.Row([call])))
    run = backend.client.submit_document(document, tags=["odd"])
    return run.wait(timeout_seconds=DEADLINE_SECONDS).data()["state"]["b"]


def _as_draft(backend: Backend) -> Any:
    draft = Draft(client=backend.client)
    draft.call("echo", value=[value for value, _ in INTEGERS.values()]) >> ref.state.b
    run = backend.client.submit_document(draft.to_dict())
    found = run.wait(timeout_seconds=DEADLINE_SECONDS).data()["state"]["b"]
    return EXPECTED | dict(zip(INTEGERS, found, strict=True))


def _as_elements(backend: Backend) -> Any:
    call = {"_tool": "echo", "_each": ["value"], "value": "†state.a", "_outputPath": "†state.b"}
    run = backend.client.submit([{"type": "state", "a": [*GIVEN.values()]}], {"calls": [call]})
    found = run.wait(timeout_seconds=DEADLINE_SECONDS).data()["state"]["b"]
    return dict(zip(GIVEN, found, strict=True))


def _held(backend: Backend, call: dict[str, Any]) -> Run:
    solution = {"calls": [{**call, "_outputPath": "†state.b"}]}
    run = backend.client.submit([], solution, config={"approve": ["echo"]})
    while not run.held():
        time.sleep(0.02)
    return run


def _as_approved_parameters(backend: Backend) -> Any:
    run = _held(backend, {"_tool": "echo", "value": 1})
    run.approve(0, parameters={"value": GIVEN})
    return run.wait(timeout_seconds=DEADLINE_SECONDS).data()["state"]["b"]


def _as_calls_instead(backend: Backend) -> Any:
    run = _held(backend, {"_tool": "echo", "value": 1})
    run.approve(0, calls=[{"_tool": "echo", "value": GIVEN, "_outputPath": "†state.b"}])
    while not (held := run.held()):
        time.sleep(0.02)
    run.approve(held[0]["call"])
    return run.wait(timeout_seconds=DEADLINE_SECONDS).data()["state"]["b"]


def _as_answer(backend: Backend) -> Any:
    run = _held(backend, {"_tool": "ask_human", "question": "?"})
    run.answer(0, GIVEN)
    return run.wait(timeout_seconds=DEADLINE_SECONDS).data()["state"]["b"]


def _as_retried(backend: Backend) -> Any:
    run = backend.client.submit([], {"calls": [{"_tool": "explode", "_outputPath": "†state.b"}]})
    run.wait(timeout_seconds=DEADLINE_SECONDS)
    run.retry(skip=True, value=GIVEN)
    return run.wait(timeout_seconds=DEADLINE_SECONDS).data()["state"]["b"]


def _as_sent(backend: Backend) -> Any:
    echo = {"_tool": "echo", "value": "†input.a", "_outputPath": "†state.b"}
    schema = {"type": "object", "properties": {"a": {}}, "required": ["a"]}
    solution, config = {"calls": [echo]}, {"promise_seconds": DEADLINE_SECONDS}
    run = backend.client.submit([{"type": "input", "schema": schema}], solution, config=config)
    run.send({"type": "input", "input": {"a": GIVEN}})
    return run.wait(timeout_seconds=DEADLINE_SECONDS).data()["state"]["b"]


def _as_amendment(backend: Backend) -> Any:
    run = backend.client.submit([], {"calls": [{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}]})
    run.wait(timeout_seconds=DEADLINE_SECONDS)
    run.amend([{"_tool": "echo", "value": GIVEN, "_outputPath": "†state.b"}], add=True)
    return run.wait(timeout_seconds=DEADLINE_SECONDS).data()["state"]["b"]


DOORS: list[Callable[[Backend], Any]] = [
    _as_context,
    _as_parameter,
    _as_whole_document,
    _as_draft,
    _as_elements,
    _as_approved_parameters,
    _as_calls_instead,
    _as_answer,
    _as_retried,
    _as_sent,
    _as_amendment,
]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__.removeprefix("_as_"))
def test_what_a_client_gives_is_made_plain(odd: Backend, door: Callable[[Backend], Any]) -> None:
    assert exact(door(odd)) == exact(EXPECTED)


@pytest.mark.parametrize("name", VALUES)
def test_the_core_makes_plain_values_of_a_submission(name: str) -> None:
    value, expected = VALUES[name]
    call = {"_tool": "t", "x": value, "_outputPath": "†state.b", "_output": {"enum": [value]}}
    tools = {"t": {"type": "object", "properties": {"x": {"const": value}}}}
    plan = check([{"type": "state", "a": value}], {"calls": [call], "output": value}, tools=tools)
    assert exact(plan.calls[0].properties["x"]) == exact(plan.submission.output) == exact(expected)
    assert exact(plan.submission.context[0]["a"]) == exact(expected)
    assert exact(Context([{"type": "state", "a": value}]).resolve("†state.a")) == exact(expected)


@pytest.mark.parametrize("value", [MyInt(2**64), odd_values.Number("nan"), odd_values.Scalar(), (1,), b"x"])
def test_what_no_exact_value_can_be_made_of_is_refused_at_its_place(value: Any) -> None:
    with pytest.raises(Rejected) as refused:
        check_submission({"context": [{"type": "state", "a": [value]}], "solution": {"calls": []}})
    assert [problem.pointer for problem in refused.value.errors] == ["/context/0/a/0"]


def test_a_key_that_is_no_text_is_refused_and_not_asked_for_its_hash() -> None:
    table = {odd_values.MyInt(1): 1}
    assert plain({"a": table}, Limits()) == {"a": table}
    with pytest.raises(Rejected, match="keys must be strings"):
        check_submission({"context": [{"type": "state", "a": table}], "solution": {"calls": []}})


def test_a_value_that_holds_itself_many_times_is_refused_in_bounded_time() -> None:
    value: list[Any] = [MyInt(1)]
    for _ in range(40):
        value = [value] * 40
    with pytest.raises(Rejected, match="too large"):
        check_submission({"context": [{"type": "state", "a": value}], "solution": {"calls": []}})


@pytest.mark.parametrize("tool", ["slowList", "slowListLater"])
def test_a_lazy_result_is_read_within_the_timeout_and_stops_no_other_call(odd: Backend, tool: str) -> None:
    slow = odd.client.submit([], {"calls": [{"_tool": tool, "seconds": 0.4, "times": 30, "_outputPath": "†state.a"}]})
    begun = time.monotonic()
    assert done(odd, {"_tool": "echo", "value": 1, "_outputPath": "†state.a"}) == {"a": 1}
    assert time.monotonic() - begun < 6, "twelve seconds are what reading takes"
    result = slow.wait(timeout_seconds=DEADLINE_SECONDS)
    assert result.calls[0].error is not None
    assert result.calls[0].error["type"] == "TimeoutError"
    quick = {"_tool": tool, "seconds": 0.01, "times": 3, "_outputPath": "†state.a"}
    assert done(odd, quick) == {"a": [0.01, 0.01, 0.01]}


@pytest.mark.parametrize("kind", ["texts", "nothing", "lists", "numbers"])
@pytest.mark.parametrize("tool", ["endlessList", "endlessListLater"])
def test_an_endless_result_is_refused_as_soon_as_it_is_too_large(odd: Backend, tool: str, kind: str) -> None:
    run = odd.client.submit([], {"calls": [{"_tool": tool, "kind": kind, "_outputPath": "†state.a"}]})
    result = run.wait(timeout_seconds=DEADLINE_SECONDS)
    assert status_of(result, 0) == "failed"
    error = result.calls[0].error
    assert error is not None
    assert "ACTS_LIMIT_" in error["message"]


class _Array:
    """As arrays of numpy are: without importing it."""

    dtype, size = "float64", 2

    def __init__(self, *held: Any) -> None:
        self._held = held

    def tolist(self) -> list[Any]:
        return [*self._held]


class _Huge(_Array):
    size = 10**9

    def tolist(self) -> list[Any]:
        raise AssertionError("it is too large to be read")


def test_arrays_give_their_lists() -> None:
    found = to_json_value({"a": _Array(1.5, [MyInt(2)])}, Limits())
    assert exact(found) == exact({"a": [1.5, [2]]})


@pytest.mark.parametrize(("library", "remedy"), [("pandas", 'to_dict("records")'), ("polars", "to_dicts()")])
def test_a_table_is_refused_with_what_gives_its_rows(library: str, remedy: str) -> None:
    table = type("DataFrame", (), {"__module__": f"{library}.core.frame"})()
    with pytest.raises(CallFailed, match=re.escape(remedy)):
        to_json_value({"rows": table}, Limits())


def test_what_is_missing_in_a_table_is_refused_at_its_place_with_a_remedy() -> None:
    with pytest.raises(CallFailed, match="at /1/b: is not a finite number: write null"):
        to_json_value([{"b": 1.0}, {"b": float("nan")}], Limits())


@dataclass
class _Lazy:
    rows: Any


class _LazyModel(BaseModel):
    rows: Any


def test_an_iterator_in_a_dataclass_is_read_and_in_a_model_refused() -> None:
    assert to_json_value(_Lazy(iter([1, 2])), Limits()) == {"rows": [1, 2]}
    with pytest.raises(CallFailed, match="give it a list"):
        to_json_value(_LazyModel(rows={"below": [itertools.count()]}), Limits())


def test_what_is_too_large_is_not_read_to_its_end() -> None:
    for value in (_Huge(), [None] * 2_000_000, itertools.count()):
        with pytest.raises(CallFailed, match="ACTS_LIMIT_MESSAGE_BYTES"):
            to_json_value(value, Limits())


@pytest.mark.parametrize("value", [date(2026, 1, 31), _LazyModel(rows=1), iter([1]), Table(a=1)])
def test_on_the_event_loop_no_code_of_a_value_is_called(value: Any) -> None:
    with pytest.raises(NotPlain):
        to_json_value({"a": [value]}, Limits(), is_plain=True)


def test_values_of_numpy_pandas_and_polars_are_read() -> None:
    numpy, pandas, polars = (pytest.importorskip(name) for name in ("numpy", "pandas", "polars"))
    given = {
        "int": numpy.int64(5),
        "float": numpy.float64(1.5),
        "half": numpy.float32(0.5),
        "bool": numpy.bool_(True),
        "text": numpy.str_("a"),
        "array": numpy.array([[1, 2], [3, 4]]),
        "objects": numpy.array([numpy.int8(1), "a", None], dtype=object),
        "pandas": pandas.Series([1, 2]),
        "polars": polars.Series([1, 2]),
        "rows": pandas.DataFrame({"a": [1, 2]}).to_dict("records"),
    }
    assert exact(to_json_value(given, Limits())) == exact(
        {
            "int": 5,
            "float": 1.5,
            "half": 0.5,
            "bool": True,
            "text": "a",
            "array": [[1, 2], [3, 4]],
            "objects": [1, "a", None],
            "pandas": [1, 2],
            "polars": [1, 2],
            "rows": [{"a": 1}, {"a": 2}],
        }
    )
    for frame in (pandas.DataFrame({"a": [1]}), polars.DataFrame({"a": [1]})):
        with pytest.raises(CallFailed, match="to_dict"):
            to_json_value(frame, Limits())
    with pytest.raises(CallFailed, match="write null"):
        to_json_value(numpy.array([numpy.nan]), Limits())
