"""The client: what it takes, its asyncio twin, archives."""

from __future__ import annotations

import asyncio
import base64
import copy
import hashlib
import inspect
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Annotated, Any, Generic, assert_type, get_args

import msgpack
import pytest
from pydantic import AfterValidator, BaseModel
from typing_extensions import TypedDict

from acts_celery import (
    AsyncClient,
    AsyncRun,
    CallStatus,
    Client,
    DeadLetters,
    Draft,
    OtherFormat,
    OutputUnfit,
    Run,
    RunOver,
    RunStatus,
    local,
    ref,
)
from acts_celery.broker_config import EmbeddedServer, load
from acts_celery.protocol import Rejected
from acts_celery.protocol.engine.events import Status
from acts_celery.worker.client.archive import read_whole
from acts_celery.worker.client.async_client import AsyncDeadLetters, Twin
from acts_celery.worker.client.submitting import messages_of, with_parts
from acts_celery.worker.runner.checking import Checker
from acts_celery.worker.store.keys import ENDED_STATUSES
from tests.few import few

from .backend import Backend, Meeting, settings_for
from .test_control_cli import command

# What a program submits as it has it: functions as tools, texts as messages, a class as the schema (INTERFACE).

SECONDS = 30


def price(item: str) -> int:
    return {"tea": 3, "coffee": 5}[item]


def order(item: str, pieces: int) -> str:
    return f"{pieces} {item}"


def _even(total: int) -> int:
    if total % 2:
        raise ValueError("must be even")
    return total


class Line(BaseModel):
    item: str
    pieces: int


class Invoice(BaseModel):
    lines: list[Line]
    total: int


class EvenInvoice(BaseModel):
    total: Annotated[int, AfterValidator(_even)]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    script: Path = tmp_path_factory.mktemp("model") / "answers.json"
    bought = {"lines": [{"item": "tea", "pieces": 3}], "total": 9}
    first = {"calls": [{"_tool": "price", "item": "tea", "_outputPath": "†state.tea"}]}
    entries = [
        {"when": "an odd one", "answer": {"calls": [], "output": {"total": 9}}},
        {"when": "Order three", "times": 1, "answer": first},
        {"when": "Order three", "answer": {"calls": [], "output": bought}},
    ]
    script.write_text(json.dumps(entries), encoding="utf-8")
    with local([price, order], model=f"scripted:{script}") as found:
        yield found


def test_a_request_is_written_with_functions_texts_and_a_class(client: Client) -> None:
    context = ["Order three of whatever is cheaper."]
    run = client.submit(context, schema=Invoice, tools=[price, order], config={"ticks": 4}, name="tea")
    result = run.wait(timeout_seconds=SECONDS)
    assert result.output == Invoice(lines=[Line(item="tea", pieces=3)], total=9)
    assert result.to_dict()["output"] == {"lines": [{"item": "tea", "pieces": 3}], "total": 9}
    assert run.result().output == result.output
    assert [call.status for call in result.calls] == ["done"]
    shown = json.dumps(run.asked(0), ensure_ascii=False)
    assert context[0] in shown
    assert "pieces" in shown
    assert client.run(run.id).result().output == result.to_dict()["output"]
    assert list(run.export())


def test_an_asyncio_program_gets_an_object_of_the_class_too(client: Client) -> None:
    from acts_celery import AsyncClient

    async def scene() -> Any:
        async with AsyncClient(client.settings, registry=client._registry) as twin:
            run = await twin.submit("Give me an odd one, as a number", schema=Line | EvenInvoice | dict[str, int])
            return (await run.wait(timeout_seconds=SECONDS)).output

    assert asyncio.run(scene()) == {"total": 9}


def test_what_the_class_refuses_beyond_its_schema_is_told_with_where_the_output_is(client: Client) -> None:
    run = client.submit("an odd one", schema=EvenInvoice)
    with pytest.raises(OutputUnfit, match=r"EvenInvoice refuses its output: total: .*must be even.*result\(\)\.output"):
        run.wait(timeout_seconds=SECONDS)
    assert client.run(run.id).result().output == {"total": 9}


class Bought(TypedDict):
    lines: list[Line]
    total: int


@dataclass
class Sum:
    total: int


def test_the_output_is_had_as_any_type_also_where_the_run_was_submitted_elsewhere(client: Client) -> None:
    run = client.submit("Order three of whatever is cheaper.", schema=Bought, tools=[price, order])
    result = run.wait(timeout_seconds=SECONDS)
    assert result.output == {"lines": [Line(item="tea", pieces=3)], "total": 9}
    for found in (result, client.run(run.id).result()):
        invoice = found.output_as(Invoice)
        assert_type(invoice, Invoice)
        assert_type(found.output_as(Bought)["lines"][0].item, str)
        assert invoice == Invoice(lines=[Line(item="tea", pieces=3)], total=9)
        assert found.output_as(Sum).total == 9
    with pytest.raises(OutputUnfit, match="EvenInvoice refuses its output"):
        result.output_as(EvenInvoice)
    with pytest.raises(OutputUnfit, match="is failed: it has no output"):
        client.submit("what no answer is there for", schema=Invoice).wait(timeout_seconds=SECONDS).output_as(Invoice)


def test_a_draft_with_an_output_and_a_class_gives_an_object_of_it(client: Client) -> None:
    draft = Draft(client=client)
    draft.output = {"total": draft.call(price, item="tea") >> ref.state.price}
    run = client.submit_document(draft.to_dict(), schema=EvenInvoice)
    with pytest.raises(OutputUnfit, match="must be even"):
        run.wait(timeout_seconds=SECONDS)
    result = client.submit_document(draft.to_dict(), schema=Sum).wait(timeout_seconds=SECONDS)
    assert result.output == Sum(total=3)


def test_a_run_that_has_not_completed_has_no_object_and_says_so_by_its_status(client: Client) -> None:
    run = client.submit("what no answer is there for", schema=Invoice)
    result = run.wait(timeout_seconds=SECONDS)
    assert result.status == "failed"
    assert result.output is None


def test_what_this_backend_lacks_is_told_at_its_place_in_a_list_of_calls(tmp_path: Path) -> None:
    (tmp_path / "judge.json").write_text('{"context": [], "schema": {"type": "string"}}', encoding="utf-8")
    checker = Checker(load(env_file=None, delegates=[str(tmp_path)], models={"small": {"model": "scripted:x.json"}}))
    call = {"_tool": "t", "_delegate": "judge", "_outputPath": "†state.a"}
    with pytest.raises(Rejected, match="/1/_delegate: delegate 'judge' needs a model, and none is configured"):
        checker.check([{"type": "input", "a": 1}, call])
    checker.check({"solution": {"calls": [call]}, "config": {"model": "small"}})  # one that is named will do
    (tmp_path / "judge.json").write_text(
        '{"context": [], "schema": {}, "config": {"model": "small"}}', encoding="utf-8"
    )
    checker.check([call])


def test_a_function_that_is_no_activity_is_refused_by_its_name(client: Client) -> None:
    def unmarked(item: str) -> None: ...

    with pytest.raises(Rejected, match="unmarked"):
        client.submit("x", schema=Invoice, tools=[unmarked])


def test_a_type_without_a_schema_is_refused(client: Client) -> None:
    with pytest.raises(Rejected, match=r"/schema: .* has none"):
        client.submit("x", schema=Iterator[object()])  # type: ignore[misc]  # no type


@pytest.mark.parametrize(("part", "value"), [("config", ["ticks"]), ("delegates", 3), ("tools", [3])])
def test_a_part_of_the_wrong_type_is_refused_at_its_place(client: Client, part: str, value: Any) -> None:
    options: Any = {part: value}
    with pytest.raises(Rejected, match=f"/{part}"):
        client.submit("x", schema=Invoice, **options)


def test_tools_of_both_places_are_declared() -> None:
    def tool_of(function: Any) -> str:
        return str(function.__name__)

    own, given = {"a": {"type": "object"}}, {"b": {"type": "object"}}
    assert with_parts({"tools": own}, {"tools": given}, tool_of)["tools"] == {**own, **given}
    assert with_parts({"tools": ["a"]}, {"tools": [price, "b"]}, tool_of)["tools"] == ["a", "price", "b"]
    assert with_parts({}, {"tools": given}, tool_of)["tools"] == given
    assert with_parts({"tools": own}, {"tools": price}, tool_of)["tools"] == [own, "price"]
    assert with_parts({"tools": own}, {"tools": "b"}, tool_of)["tools"] == [own, "b"]


def test_one_text_or_one_message_is_a_context() -> None:
    assert messages_of("Hi") == [{"type": "text", "message": "Hi"}]
    assert messages_of({"type": "input", "a": 1}) == [{"type": "input", "a": 1}]
    assert Draft("Hi").context == messages_of(["Hi"])


def test_the_types_of_statuses_name_each_of_them(client: Client) -> None:
    assert set(get_args(CallStatus)) == set(Status)
    assert set(get_args(RunStatus)) > ENDED_STATUSES
    result = client.submit(solution={"calls": []}).wait(timeout_seconds=SECONDS)
    assert_type(result.status, RunStatus)
    assert_type([call.status for call in result.calls], list[CallStatus])


# The asyncio classes have every method of the plain ones, with the same parameters.

_SAME = {"run_of", "child", "dead_letters"}
"""What reads nothing, so that there is nothing to be awaited."""
_OTHERS = {"reading", "events", "add", "counts", "forget_runs", "forget_instances", "forget_calls"}
"""What only other modules of the backend call."""
_NAMES = {"Run": "AsyncRun", "DeadLetters": "AsyncDeadLetters"}
TWINS = [(Client, AsyncClient), (Run, AsyncRun), (DeadLetters, AsyncDeadLetters)]


def public(one: type) -> dict[str, Any]:
    classes = [each for each in one.__mro__ if each not in (object, Generic, Twin)]
    members = {name: value for each in reversed(classes) for name, value in vars(each).items()}
    return {name: value for name, value in members.items() if not name.startswith("_") and name not in _OTHERS}


def returned(annotation: str) -> str:
    """What an asyncio method gives in the place of what the plain one does."""
    return _NAMES.get(annotation, annotation.replace("Iterator", "AsyncIterator"))


@pytest.mark.parametrize(("plain", "twin"), TWINS)
def test_a_twin_has_every_method_and_no_other(plain: type, twin: type) -> None:
    assert public(plain).keys() == public(twin).keys() - ({"run_of"} if plain is Run else set())


@pytest.mark.parametrize(
    ("plain", "twin", "name"),
    [(plain, twin, name) for plain, twin in TWINS for name, value in public(plain).items() if callable(value)],
)
def test_a_method_takes_the_same_in_both_and_is_awaited(plain: type, twin: type, name: str) -> None:
    one, other = getattr(plain, name), getattr(twin, name)
    expected, found = inspect.signature(one), inspect.signature(other)
    if name != "run_of":
        assert list(found.parameters.values()) == list(expected.parameters.values())
    assert found.return_annotation == returned(expected.return_annotation)
    is_awaited = inspect.iscoroutinefunction(other) or inspect.isasyncgenfunction(other)
    assert is_awaited == (name not in _SAME)
    assert inspect.getdoc(other)


def test_what_is_submitted_one_part_at_a_time_and_as_a_document_takes_the_same_options() -> None:
    parts, document = ([*inspect.signature(one).parameters.values()] for one in (Client.submit, Client.submit_document))
    assert parts[3:] == document[2:]
    assert not any(option.kind is option.VAR_KEYWORD for option in document)


# A run as one file: written, read without a server, read back elsewhere, and forked there (SPEC R11.5).

CONTEXT: list[dict[str, Any]] = [
    {"type": "state", "_instance": "①", "text": "Привет"},
    {"type": "state", "_instance": "②", "text": "Bonjour"},
]
CALLS: list[dict[str, Any]] = [
    {"_tool": "echo", "value": "†state.text", "_instance": "①", "_outputPath": "†state.copy"},
    {"_tool": "explode", "_instance": "②", "_outputPath": "†state.copy"},
    {"_tool": "echo", "value": "†state.copy", "_instance": "②", "_outputPath": "†state.more"},
    {"_tool": "echo", "value": 5, "_outputPath": "†state.n"},
]


@pytest.fixture(scope="module")
def exported(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    run = backend.client.submit(CONTEXT, {"calls": CALLS}, name="kept", tags=["a", "b"])
    backend.wait(run.id)
    file = tmp_path_factory.mktemp("archive") / "run.jsonl"
    told = command(backend, "export", run.id, "-o", str(file))
    assert (told.code, told.stdout) == (0, "")
    assert list(file.parent.iterdir()) == [file]
    assert file.stat().st_mode & 0o777 == 0o600, "it holds values"
    return run.id, file


def test_the_file_can_be_read_without_anything_of_ours(backend: Backend, exported: tuple[str, Path]) -> None:
    run, file = exported
    head, *entries = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert head["result"] == command(backend, "show", run, "--json").json
    messages = [entry["message"] for entry in entries if "message" in entry]
    assert messages == [line["message"] for line in command(backend, "log", run, "--json").json_lines]
    again = [json.loads(line) for line in command(backend, "export", run).stdout.splitlines()]
    for each in (head, again[0]):
        each["state"].pop("look", None)  # when the sweep looks at it next
    assert again == [head, *entries]


def test_it_is_read_back_elsewhere_as_it_was_and_is_forked(backend: Backend, exported: tuple[str, Path]) -> None:
    run, file = exported
    here = backend.client.run(run)
    with EmbeddedServer() as server, Client(settings_for(server)) as client:
        with file.open("rb") as lines:
            there = client.import_run(lines)
        assert there.id == run
        assert there.result().to_dict() == here.result().to_dict()
        assert [(e.id, e.message) for e in there.log()] == [(e.id, e.message) for e in here.log()]
        assert there.explain("†state.copy", instance="①").value == "Привет"
        past = [entry.id for entry in here.log()][1]
        assert there.result(past).to_dict() == here.result(past).to_dict()
        (summary,) = client.runs()
        assert (summary.run, summary.name, summary.tags, summary.status) == (run, "kept", ("a", "b"), "failed")
        for refused in (there.retry, lambda: there.amend([], add=True), there.resume):
            with pytest.raises(RunOver):
                refused()
        fork = there.fork(paused=True)
        assert fork.result().to_dict()["calls"] == there.result().to_dict()["calls"]
        with file.open("rb") as lines, pytest.raises(Rejected, match="is here already"):
            client.import_run(lines)
        there.delete()
        with file.open("rb") as lines:
            assert client.import_run(lines).id == run


def test_a_run_under_way_is_cancelled_where_it_is_imported(backend: Backend, meeting: Meeting) -> None:
    wait = {"_tool": "waitAtGate", "gate": "archive", "_outputPath": "†state.a"}
    run = backend.client.submit([], {"calls": [wait]})
    meeting.take("at:archive")
    lines = list(run.export())
    with EmbeddedServer() as server, Client(settings_for(server)) as client:
        there = client.import_run(lines)
        assert (there.status()["status"], there.wait(1).calls[0].status) == ("cancelled", "failed")
    meeting.open_gate("archive")


def _entry(message: Any) -> str:
    return json.dumps({"id": "99999999999999-0", "lane": "", "before": "0-0", "message": message})


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


def test_what_is_no_such_file_is_refused_and_nothing_is_written(exported: tuple[str, Path], tmp_path: Path) -> None:
    lines = exported[1].read_text(encoding="utf-8").splitlines()
    head = json.loads(lines[0])
    with EmbeddedServer() as server, Client(settings_for(server)) as client:
        for bad, said in (
            ([], "line 1: not JSON"),
            (["{}"], "line 1: this is no run"),
            ([json.dumps(head | {"run": "a{b}"})], "line 1: this is no run"),
            ([json.dumps(head | {"definition": "%"})], "base64"),
            ([json.dumps(head | {"definition": "AAAA"})], "line 1: its definition, or what had begun, cannot be read"),
            ([json.dumps(head | {"begun": {"\x1f0": "skipped"}})], "what had begun, cannot be read"),
            ([json.dumps(head | {"begun": {"none": "running:1:0:me"}})], "what had begun, cannot be read"),
            ([json.dumps(head | {"instances": [1]})], "line 1: its instances"),
            ([json.dumps(head | {"state": {}})], "line 1: its state lacks"),
            *(
                ([json.dumps(head | {"state": head["state"] | {key: value}})], f"line 1: in its state '{key}' is no")
                for key, value in (("total", "x"), ("submitted", "1e300"), ("finished", "nan"), ("n:failed", "-1"))
            ),
            ([json.dumps(head | {"state": head["state"] | {"forked_from": "a"}})], "line 1: its state has one of"),
            ([*lines[:2], "[]"], "line 3: not an object"),
            ([*lines[:2], '{"id": "x", "lane": ""}'], "line 3: the entry x cannot be read"),
            (
                [*lines[:2], json.dumps({"id": f"{2**64}-0", "lane": ""})],
                "line 3: the entry 18446744073709551616-0 cannot",
            ),
            ([lines[0], lines[2], lines[1]], "line 3: the entry .* comes after .*: ids only grow"),
            ([*lines[:2], lines[1]], "line 3: the entry .* comes after"),
            ([*lines[:2], _entry({"type": "data", "data": _nested(400)})], "line 3: .* nested deeper than 264 levels"),
        ):
            with pytest.raises(Rejected, match=said):
                client.import_run(bad)
            assert list(client._redis.scan_iter(f"*{{{exported[0]}}}*")) == [], said
        assert list(client.runs()) == []


ODD: list[Any] = [None, True, -1, 2**70, 1.5, "", "x", "\x00", "999999999999999999", [], [1], {}, {"a": 1}]


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in pairs:
        yield from _places(below, (*at, key))


def _changed(value: Any, at: Sequence[Any], random: Random) -> Any:
    """The value with something else at a place, or nothing."""
    if not at:
        return random.choice(ODD)
    changed = copy.deepcopy(value)
    inner = changed
    for key in at[:-1]:
        inner = inner[key]
    if isinstance(inner, dict) and random.random() < 0.3:
        del inner[at[-1]]
    else:
        inner[at[-1]] = _packed_oddly(inner[at[-1]], random)
    return changed


def _packed_oddly(value: Any, random: Random) -> Any:
    """Another value; of one that is msgpack in base64 mostly msgpack in base64, too."""
    if isinstance(value, str) and random.random() < 0.7:
        with suppress(OverflowError, ValueError, msgpack.UnpackException):
            packed = msgpack.unpackb(base64.b64decode(value, validate=True), strict_map_key=False)
            if isinstance(packed, (dict, list)):
                changed = _changed(packed, random.choice(list(_places(packed))), random)
                return base64.b64encode(msgpack.packb(changed, default=str)).decode()
    return random.choice(ODD)


@pytest.mark.parametrize("seed", few(range(4), 1))
def test_a_file_that_was_changed_is_refused_or_can_be_read(exported: tuple[str, Path], seed: int) -> None:
    random = Random(seed)
    lines = [json.loads(line) for line in exported[1].read_text(encoding="utf-8").splitlines()]
    with EmbeddedServer() as server, Client(settings_for(server)) as client:
        for _ in range(100):
            number = random.randrange(len(lines))
            changed = list(lines)
            changed[number] = _changed(lines[number], random.choice(list(_places(lines[number]))), random)
            try:
                run = client.import_run([json.dumps(line) for line in changed])
            except (Rejected, OtherFormat):
                assert list(client._redis.scan_iter("*{*}*")) == []
                continue
            read_whole(run)
            (summary,) = client.runs()
            assert summary.run == run.id
            list(run.export())
            run.delete()


def test_more_than_a_run_may_have_is_refused_and_nothing_is_left(exported: tuple[str, Path]) -> None:
    lines = exported[1].read_text(encoding="utf-8").splitlines()
    contents = [bytes([number]) * 100_000 for number in range(40)]
    files = [
        json.dumps({"file": hashlib.sha256(content).hexdigest(), "content": base64.b64encode(content).decode()})
        for content in contents
    ]
    with EmbeddedServer() as server:
        bounds = {"limit_run_bytes": 1_000_000, "limit_submission_bytes": 1_000_000}
        settings = settings_for(server).model_copy(update=bounds)
        with Client(settings) as client:
            with pytest.raises(Rejected, match=r"more than the 2000000 bytes .*ACTS_LIMIT_RUN_BYTES"):
                client.import_run([lines[0], *files, *lines[1:]])
            assert list(client.runs()) == []
            assert client.import_run([lines[0], *files[:10], *lines[1:]]).id == exported[0]


def test_the_commands_go_through_a_pipe(backend: Backend, exported: tuple[str, Path]) -> None:
    with EmbeddedServer() as server:
        aside = Backend(settings_for(server), backend.meeting, backend.folder)
        told = command(aside, "import", "-", stdin=exported[1].read_bytes())
        assert (told.code, told.stdout) == (0, f"{exported[0]}\n")
        again = command(aside, "import", str(exported[1]), "--json")
        assert (again.code, again.json["status"], "is here already" in again.stderr) == (2, "rejected", True)
        assert command(aside, "import", "/nowhere").code == 2
