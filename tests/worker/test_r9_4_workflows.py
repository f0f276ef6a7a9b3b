"""Workflows: delegates whose own calls answer, as child runs without a model (SPEC R9.4), on real workers."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from acts_celery import Result, Run, RunNotFound
from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol import Rejected
from acts_celery.worker.broker.attempts import CallId
from acts_celery.worker.errors import NoSuchAnswer
from acts_celery.worker.store.run_list import child_id
from acts_celery.worker.ui import Page
from tests.protocol import naive

from .backend import Backend, Meeting, settings_apart
from .loops import Asked, answer, loop_settings
from .test_control_cli import command

Json = dict[str, Any]

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def add(a: Any, path: str, **more: Any) -> Json:
    return {"_tool": "add", "a": a, "b": 1, "_outputPath": path, **more}


def echo(value: Any, path: str, **more: Any) -> Json:
    return {"_tool": "echo", "value": value, "_outputPath": path, **more}


def flow(name: str, path: str = "†state.out", **more: Any) -> Json:
    """A call of a workflow."""
    return {"_tool": name, "_delegate": name, "_outputPath": path, **more}


NEXT: Json = {
    "context": [{"type": "input", "schema": NUMBER}],
    "solution": {"calls": [add("†input.n", "†state.sum")], "output": "†state.sum"},
}
BOTH: Json = {"context": [{"type": "plan", "calls": [flow("next", "†state.a", n=1), flow("next", "†state.b", n=2)]}]}
WRONG: Json = {"solution": {"calls": [{"_tool": "explode", "_outputPath": "†state.x"}]}}
GATED: Json = {"solution": {"calls": [{"_tool": "waitAtGate", "gate": "flow", "value": 7, "_outputPath": "†state.x"}]}}
AGAIN: Json = {"solution": {"calls": [flow("again", "†state.x")]}}


@pytest.fixture(scope="module")
def flows(server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """Without any model, and with workflows in a folder."""
    folder = tmp_path_factory.mktemp("definitions")
    for name, definition in {"next": NEXT, "both": BOTH, "asked": {"schema": {"type": "string"}}}.items():
        (folder / f"{name}.json").write_text(json.dumps(definition), encoding="utf-8")
    trust = tmp_path_factory.mktemp("trust") / "trust.json"
    trust.write_text(json.dumps({"charge": {"effects": True}}), encoding="utf-8")
    short = {"lease_seconds": 1.5, "sweep_interval_seconds": 0.2, "limit_child_depth": 2, "model": None}
    settings = settings_apart(server, "flows", delegates=(str(folder),), trust=str(trust), **short)
    running = Backend(settings, meeting, tmp_path_factory.mktemp("flows"))
    with running.worker():
        yield running


def submit(backend: Backend, *calls: Json, context: Any = (), config: Any = None, **delegates: Json) -> Run:
    document = {"context": [*context], "solution": {"calls": [*calls]}, "delegates": delegates}
    return backend.client.submit_document(document | ({"config": config} if config else {}))


def ended(backend: Backend, *calls: Json, **parts: Any) -> Result:
    return backend.wait(submit(backend, *calls, **parts).id)


def test_r9_4_a_workflow_answers_by_a_run_of_its_own_without_a_model(flows: Backend) -> None:
    result = ended(flows, flow("next", n="†input.n"), context=[{"type": "input", "n": 41}], next=NEXT)
    assert result.data()["state"] == {"out": 42}
    child = result.calls[0].child
    assert child == child_id(CallId(result.run, None, 0))
    inner = flows.client.run(child)
    assert inner.status()["parent"] == {"run": result.run, "call": "0"}
    assert inner.result().data() == {"input": {"n": 41}, "state": {"sum": 42}}


CASES: dict[str, tuple[list[Json], list[Json]]] = {
    "output": ([flow("next", n=1)], []),
    "state": ([flow("both")], []),
    "each": ([flow("next", n="†state.list", _each="n")], [{"type": "state", "list": [1, 2, 3]}]),
    "instances": (
        [flow("next", n="†state.n", _instance="*")],
        [{"type": "state", "n": 1, "_instance": "①"}, {"type": "state", "n": 5, "_instance": "②"}],
    ),
    "scopes": ([flow("sees", _scopes=["†state.seen"])], [{"type": "state", "seen": 1, "hidden": 2}]),
    "own instances": ([flow("many", "†state.many")], []),
    "nothing": ([flow("none")], []),
    "read on": ([flow("next", n=1), flow("next", "†state.more", n="†state.out")], []),
}
MANY: Json = {
    "context": [
        *({"type": "state", "n": n, "_instance": mark} for n, mark in enumerate("①②")),
        {"type": "plan", "calls": [add("†state.n", "†state.m"), echo("†state.m", "†state.all", _gather=True)]},
    ]
}
DEFINED: dict[str, Json] = {
    "next": NEXT,
    "both": BOTH,
    "sees": {"solution": {"calls": [echo("†state.seen", "†data.x")], "output": {"x": "†data.x"}}},
    "many": MANY,
    "none": {"solution": {"calls": [], "output": {"fixed": 1}}},
}
FUNCTIONS: dict[str, naive.Function] = {
    "add": lambda parameters, _: parameters["a"] + parameters["b"],
    "echo": lambda parameters, _: parameters["value"],
}


@pytest.mark.parametrize("case", CASES)
def test_r9_4_what_a_workflow_gives_is_what_the_naive_evaluator_gives(flows: Backend, case: str) -> None:
    calls, context = CASES[case]
    document = {"context": context, "solution": {"calls": calls}, "delegates": DEFINED}
    verdict = naive.evaluate(document, FUNCTIONS)
    result = ended(flows, *calls, context=context, **DEFINED)
    assert result.status == "completed"
    assert {reader: result.data(reader) for reader in verdict.data} == verdict.data


def test_r9_4_the_failure_of_a_workflow_is_that_of_the_call_and_goes_where_an_exception_would(flows: Backend) -> None:
    failed = ended(flows, flow("wrong"), wrong=WRONG).calls[0].error or {}
    assert (failed["type"], "boom" in failed["message"]) == ("ChildFailed", True)
    rescued = ended(flows, flow("wrong", "†state.out || †state.trouble"), wrong=WRONG)
    assert rescued.data()["state"]["trouble"]["type"] == "ChildFailed"


@pytest.mark.parametrize("is_plan", [True, False])
def test_r9_4_the_result_of_a_workflow_is_held_against_its_schema(flows: Backend, is_plan: bool) -> None:
    calls = [echo("text", "†state.n")]
    part = {"context": [{"type": "plan", "calls": calls}]} if is_plan else {"solution": {"calls": calls}}
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    error = ended(flows, flow("odd"), odd={**part, "schema": schema}).calls[0].error or {}
    assert (error["type"], "schema" in error["message"]) == ("ChildFailed", True)


def test_r9_4_a_value_that_does_not_fit_its_input_starts_no_run(flows: Backend) -> None:
    result = ended(flows, flow("next", n="†state.n"), context=[{"type": "state", "n": "text"}], next=NEXT)
    error = result.calls[0].error or {}
    assert (error["type"], "integer" in error["message"]) == ("InvalidParameters", True)
    with pytest.raises(RunNotFound):
        flows.client.run(child_id(CallId(result.run, None, 0)))


def test_r9_4_workflows_call_workflows_only_so_deep(flows: Backend) -> None:
    error = ended(flows, flow("again"), again=AGAIN).calls[0].error or {}
    assert "TooDeep" in error["message"]


def test_r9_4_what_is_wrong_with_a_workflow_is_found_before_anything_runs(flows: Backend) -> None:
    for solution, at in (
        ({"calls": [{"_tool": "unheard", "_outputPath": "†state.x"}]}, "/delegates/odd/solution/calls/0"),
        ({"calls": [], "output": "†state.never"}, "/delegates/odd/solution/output"),
    ):
        with pytest.raises(Rejected) as rejected:
            submit(flows, flow("odd"), odd={"solution": solution})
        assert rejected.value.errors[0].pointer.startswith(at)


def test_r9_4_what_waits_for_a_person_in_a_workflow_is_found_from_above(flows: Backend) -> None:
    run = submit(flows, flow("next", n=1), next=NEXT, config={"approve": ["add"]})
    until(lambda: run.status().get("held_below") == 1)
    (held,) = run.held()
    run.approve(held, parameters={"a": 10, "b": 1})
    assert flows.wait(run.id).data()["state"]["out"] == 11


def until(is_so: Any) -> None:
    begun = time.monotonic()
    while not is_so():
        assert time.monotonic() - begun < 60
        time.sleep(0.01)


def test_r10_2_a_lazy_workflow_waits_until_its_plan_is_approved(flows: Backend) -> None:
    run = submit(flows, flow("lazy", n=1), lazy={**NEXT, "config": {"mode": "lazy"}})
    name = child_id(CallId(run.id, None, 0))
    until(lambda: run.result().calls[0].child == name)
    child = flows.client.run(name)
    plan = child.plan()
    assert (child.status()["status"], plan is not None) == ("paused", True)
    child.approve_plan(str((plan or {})["plan"]))
    assert flows.wait(run.id).data()["state"]["out"] == 2


def test_r9_5_a_lazy_workflow_that_was_approved_for_all_does_not_wait_again(flows: Backend) -> None:
    lazy = {"context": NEXT["context"], **NEXT, "config": {"mode": "lazy"}, "schema": {"type": "integer"}}
    run = submit(flows, flow("lazy", n=1), lazy=lazy)
    name = child_id(CallId(run.id, None, 0))
    until(lambda: run.result().calls[0].child == name)
    child = flows.client.run(name)
    child.approve_plan(str((child.plan() or {})["plan"]), for_all=True)
    assert flows.wait(run.id).data()["state"]["out"] == 2
    assert ended(flows, flow("lazy", n=2), lazy=lazy).data()["state"]["out"] == 3


def test_r9_4_workflows_are_paused_resumed_and_cancelled_with_their_run(flows: Backend, meeting: Meeting) -> None:
    run = submit(flows, flow("gated"), gated=GATED)
    meeting.take("at:flow")
    child = flows.client.run(child_id(CallId(run.id, None, 0)))
    run.pause()
    assert child.status()["status"] == "paused"
    run.resume()
    assert child.status()["status"] == "running"
    run.cancel()
    assert child.status()["status"] == "cancelled"
    meeting.open_gate("flow")


def test_r9_4_what_is_deep_below_a_run_is_cancelled_with_it(flows: Backend, meeting: Meeting) -> None:
    gated = {"solution": {"calls": [{"_tool": "waitAtGate", "gate": "deep", "value": 7, "_outputPath": "†state.x"}]}}
    middle = {"solution": {"calls": [flow("gated", "†state.y"), echo("†state.y", "†state.z")]}}
    run = submit(flows, flow("middle"), echo("†state.out", "†state.after"), middle=middle, gated=gated)
    meeting.take("at:deep")
    names = [run.id]
    for _ in range(2):
        names.append(child_id(CallId(names[-1], None, 0)))
    run.cancel()
    for name in reversed(names):
        until(lambda at=name: flows.client.run(at).status()["status"] == "cancelled")
    meeting.open_gate("deep")
    assert all("z" not in flows.wait(name).data().get("state", {}) for name in names)


def test_r9_4_a_worker_that_dies_in_a_workflow_costs_no_answer(
    server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> None:
    short = {"lease_seconds": 1.5, "sweep_interval_seconds": 0.2}
    backend = Backend(settings_apart(server, "felled", **short), meeting, tmp_path_factory.mktemp("felled"))
    hang = {"solution": {"calls": [{"_tool": "hangOnce", "name": "felled", "_outputPath": "†state.x"}]}}
    run = submit(backend, flow("hang"), hang=hang)
    with backend.worker() as process:
        meeting.take("hanging:felled")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    with backend.worker():
        assert backend.wait(run.id).data()["state"]["out"] == {"x": 2}


def test_r9_4_an_answer_that_was_lost_is_sent_again(flows: Backend, meeting: Meeting) -> None:
    from acts_celery.worker.store.keys import Keys

    gated = {"solution": {"calls": [{"_tool": "waitAtGate", "gate": "lost", "value": 7, "_outputPath": "†state.x"}]}}
    run = submit(flows, flow("gated"), gated=gated)
    meeting.take("at:lost")
    child, keys = child_id(CallId(run.id, None, 0)), Keys(flows.settings.key_prefix, run.id)
    until(lambda: str(flows.redis.hget(keys.calls, "\x1f0")).find("child:") >= 0)
    entry: Any = flows.redis.hget(keys.calls, "\x1f0")
    flows.redis.hset(keys.calls, "\x1f0", "lost")  # a message that comes now is dropped, as if it had got lost
    meeting.open_gate("lost")
    flows.wait(child)
    flows.redis.hset(keys.calls, "\x1f0", entry)
    assert flows.wait(run.id).data()["state"]["out"] == {"x": 7}


# By name (`ACTS_DELEGATES`).


def test_r9_4_a_workflow_of_a_folder_is_called_by_its_name_with_those_that_it_calls(flows: Backend) -> None:
    run = submit(flows, flow("both"))
    assert flows.wait(run.id).data()["state"]["out"] == {"a": 2, "b": 3}


def test_r9_4_a_run_keeps_the_definitions_that_it_was_submitted_with(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path
) -> None:
    settings = settings_apart(server, "kept-definitions", delegates=(str(tmp_path),))
    backend = Backend(settings, meeting, tmp_path)
    files = [tmp_path / f"{name}.json" for name in ("outer", "inner")]
    for number, file in enumerate(files):
        calls = [echo("old", "†state.x")] if number else [flow("inner", "†state.y")]
        file.write_text(json.dumps({"solution": {"calls": calls}}), encoding="utf-8")
    run = submit(backend, flow("outer"))
    files[0].write_text("{", encoding="utf-8")
    files[1].unlink()
    with backend.worker():
        assert backend.wait(run.id).data()["state"]["out"] == {"y": {"x": "old"}}


def test_r9_4_a_workflow_is_started_as_a_run_by_its_name(flows: Backend) -> None:
    run = flows.client.run("next", n=4)
    assert (flows.wait(run.id).output, run.id != "next") == (5, True)
    assert flows.client.find("next").id == run.id
    assert flows.wait(flows.client.run("next", {"n": 5}).id).output == 6
    assert flows.wait(flows.client.run("both", {}).id).data()["state"] == {"a": 2, "b": 3}
    assert flows.client.run(run.id).id == run.id


@pytest.mark.parametrize(
    ("name", "given", "word"),
    [("next", {"n": "x"}, "integer"), ("next", {}, "required"), ("nxt", {"n": 1}, "next"), ("asked", {}, "model")],
)
def test_r9_4_what_cannot_be_started_is_refused(flows: Backend, name: str, given: Mapping[str, Any], word: str) -> None:
    with pytest.raises(Rejected) as rejected:
        flows.client.run(name, given)
    assert word in str(rejected.value)


def test_r9_4_a_command_starts_a_workflow_with_values_as_json_or_text(flows: Backend, tmp_path: Path) -> None:
    told = command(flows, "run", "next", "--input", "n=6", "--json")
    assert (told.code, told.json["output"]) == (0, 7)
    unfit = command(flows, "run", "next", "--input", "n=six")
    assert (unfit.code, "/input/n" in unfit.stderr) == (2, True)
    assert command(flows, "run", "next", "--input", "n").code == 2
    assert command(flows, "check", "next").code == 0
    promise = {"type": "input", "schema": {"properties": {"zip": {"type": "string"}}}}
    plan = {"context": [promise, {"type": "plan", "calls": [echo("†input.zip", "†state.zip")]}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    text = command(flows, "run", str(tmp_path / "plan.json"), "--input", "zip=01234", "--json")
    assert text.json["global"]["state"] == {"zip": "01234"}


# In loops.


@pytest.fixture(scope="module")
def asking(server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    settings = loop_settings(server, "asking", sweep_interval_seconds=0.2, lease_seconds=1.5)
    running = Backend(settings, meeting, tmp_path_factory.mktemp("asking"))
    with running.worker():
        yield running


TOOLS = {"next": {"type": "object", "properties": {"_delegate": {"const": "next"}, "n": {"type": "integer"}}}}


def test_r9_4_a_workflow_is_a_tool_of_a_model_and_its_calls_count(asking: Backend) -> None:
    call = {"_tool": "next", "n": 1, "_outputPath": "†state.x"}
    parts: Json = {"tools": TOOLS, "delegates": {"next": NEXT}}
    found = Asked(asking, answer(call), answer(output="†state.x"), **parts, config={"calls": 2}).result()
    assert (found.status, found.output) == ("completed", 2)
    short = Asked(asking, answer(call), answer(output=0), **parts, config={"calls": 1}).result()
    assert (short.calls[0].error or {})["type"] == "LimitReached"


def test_r9_4_a_workflow_ends_with_a_loop_that_has_reached_a_limit(asking: Backend, meeting: Meeting) -> None:
    calls = [
        {"_tool": "waitAtGate", "gate": "late", "value": 1, "_outputPath": "†state.a"},
        {"_tool": "waitAtGate", "gate": "†state.a", "value": 1, "_outputPath": "†state.b"},
    ]
    late = {"solution": {"calls": calls}}
    tools = {"late": {"type": "object", "properties": {"_delegate": {"const": "late"}}}}
    call = {"_tool": "late", "_outputPath": "†state.x"}
    asked = Asked(asking, answer(call), tools=tools, delegates={"late": late}, config={"seconds": 2})
    meeting.take("at:late")
    assert asked.result().status == "failed"
    child = asking.client.run(child_id(CallId(asked.run.id, None, 0)))
    until(lambda: child.status()["status"] == "cancelled")
    meeting.open_gate("late")


def test_r9_4_what_a_model_calls_a_workflow_with_is_held_against_its_input(asking: Backend) -> None:
    tools = {"next": {"type": "object", "properties": {"_delegate": {"const": "next"}}, "additionalProperties": True}}
    call = {"_tool": "next", "n": "one", "_outputPath": "†state.x"}
    found = Asked(asking, answer(call), answer(output=0), tools=tools, delegates={"next": NEXT})
    found.result()
    assert "integer" in json.dumps(found.requests[1]["messages"])


# Before it runs: what it needs, gives, costs and can reach.

COSTLY: Json = {
    "context": [{"type": "input", "schema": {"properties": {"list": {"type": "array"}}, "required": ["list"]}}],
    "solution": {
        "calls": [
            flow("next", "†state.a", n=1),
            flow("next", "†state.b", n="†input.list", _each="n"),
            {"_tool": "charge", "name": "x", "kills": False, "_outputPath": "†state.paid"},
            flow("costly", "†state.again", list=[]),
        ],
    },
    "config": {"approve": ["add"], "max_concurrency": 3},
}


def test_r9_4_a_check_of_a_name_says_what_the_workflow_needs_gives_costs_and_reaches(flows: Backend) -> None:
    (Path(flows.settings.delegates[0]) / "costly.json").write_text(json.dumps(COSTLY), encoding="utf-8")
    told = command(flows, "check", "costly", "--json").json["workflow"]
    assert (told["name"], list(told["needs"]["schema"]["properties"])) == ("costly", ["list"])
    assert told["gives"]["output"] is None
    assert "†state.paid" in told["gives"]["places"]
    costs = {"calls": 6, "requests": 0, "levels": 1, "per_element": True, "recursive": True}
    assert told["costs"] == costs | {"limits": {"max_concurrency": 3}}
    reached = {one["name"]: (one["by"], one["calls"], one["effects"], one["held"]) for one in told["reaches"]}
    assert reached == {
        "charge": ("activity", 1, True, False),
        "add": ("activity", 2, False, True),
        "next": ("workflow", 2, False, False),
        "costly": ("workflow", 1, True, False),
    }
    text = command(flows, "check", "costly").stdout
    assert all(word in text for word in ("needs", "gives", "costs", "reaches", "with effects", "held until"))
    assert "workflow" not in command(flows, "check", "-", "--json", stdin={"solution": {"calls": []}}).json


def test_r9_4_the_pages_list_the_workflows_of_the_folders_and_say_why_one_cannot_run(flows: Backend) -> None:
    folder = Path(flows.settings.delegates[0])
    (folder / "sub").mkdir(exist_ok=True)
    (folder / "sub" / "odd.json").write_text(json.dumps({"solution": {"calls": [{"_tool": "unheard"}]}}))
    (folder / "torn.json").write_text("{")
    page = Page(flows.redis, flows.settings)
    listed = {one["name"]: one["calls"] for one in page.answer("workflows")["workflows"]}
    assert {"next": 1, "both": 2, "sub/odd": 1, "torn": None}.items() <= listed.items()
    assert "asked" not in listed, "a model answers it"
    assert [one["name"] for one in page.answer("workflows", {"search": "ODD"})["workflows"]] == ["sub/odd"]
    found = page.answer("workflow", {"name": "next"})
    assert (found["problems"], found["needs"]["schema"], found["gives"]["output"]) == ([], NUMBER, "†state.sum")
    for name, word in (("sub/odd", "unheard"), ("torn", "JSON"), ("../next", "no workflow"), ("asked", "model")):
        assert word in page.answer("workflow", {"name": name})["problems"][0]["message"]
    with pytest.raises(NoSuchAnswer):
        page.answer("workflows", {}, owner="Ann")


def test_r9_4_workflows_below_a_run_have_together_the_calls_of_one_run(
    server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = settings_apart(server, "many", limit_calls=20, limit_child_depth=5)
    backend = Backend(settings, meeting, tmp_path_factory.mktemp("many"))
    spreading = {"solution": {"calls": [flow("spreading", f"†state.x{number}") for number in range(4)]}}
    with backend.worker():
        run = submit(backend, flow("spreading"), spreading=spreading)
        backend.wait(run.id)
    errors = [*errors_below(backend, run.id)]
    assert "calls are left" in next(one["message"] for one in errors if one["type"] == "LimitReached")


def errors_below(backend: Backend, run: str) -> Iterator[Mapping[str, Any]]:
    """The errors of a run, and of the runs below it."""
    for call in backend.client.run(run).result().calls:
        if call.error is not None:
            yield call.error
        if call.child is not None:
            with suppress(RunNotFound):
                yield from errors_below(backend, call.child)


def test_r9_4_very_many_workflows_are_refused_and_a_long_chain_of_them_is_looked_through(flows: Backend) -> None:
    chain = {f"w{n}": {"solution": {"calls": [flow(f"w{n + 1}", "†state.x")]}} for n in range(400)}
    with pytest.raises(Rejected) as rejected:
        submit(flows, flow("w0"), **chain, w400=NEXT)
    assert [(one.pointer, "more than 100" in one.message) for one in rejected.value.errors] == [("/delegates", True)]
