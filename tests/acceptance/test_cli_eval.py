"""`acts eval`: cases, each run for every model, held against what is expected of them."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from .command import Finished, acts, finish, start

MODULE = '''
import asyncio
import os

from acts_celery import activity, model


@activity
def find_total(order: str) -> int:
    return {"A-1": 30, "A-2": 900}[order]


@model("told")
async def told(messages, schema, config):
    """Says what stands behind `say` in the context, asks a tool, or waits for ever."""
    said = messages[-1]["content"]
    if "wait for ever" in said:
        with open(os.environ["ASKED"], "w") as asked:
            asked.write("asked")
        await asyncio.Event().wait()
    if "never answer" in said:
        await asyncio.Event().wait()
    if "count" in said:
        return {"output": len(messages)}
    if "find" in said and len(messages) == 2:
        call = {"_tool": "find_total", "order": "A-1", "_outputPath": "†state.total"}
        return {"calls": [call], "output": None}
    return {"output": "†state.total" if "find" in messages[1]["content"] else config["model"]}


def is_short(output):
    assert len(output) < 3, f"{output!r} is long"


def has_called(output, result):
    return [call.tool for call in result.calls] == ["find_total"]


NUMBER = 5
'''
MODELS = {"a": {"model": "told:a"}, "long": {"model": "told:long"}}


def case(said: str, expect: Mapping[str, Any], **parts: Any) -> dict[str, Any]:
    context = [{"type": "text", "message": said}]
    return {"submission": {"context": context, "schema": {}, "tools": ["find_total"]}, "expect": expect, **parts}


CASES = [
    case("Who are you?", {"value": "a"}, name="name"),
    case("Who are you?", {"schema": {"type": "string", "maxLength": 2}}, name="schema"),
    case("Who are you?", {"function": "is_short"}),
    case("find the total", {"value": 30}, name="total"),
    case("find the total", {"function": "has_called"}, name="calls"),
]


@pytest.fixture
def module(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(MODULE, encoding="utf-8")
    return tmp_path / "shop.py"


def arguments(module: Path, cases: Sequence[Any], *options: str) -> list[str]:
    file = module.with_name("cases.jsonl")
    lines = [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in cases]
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return ["eval", str(file), "--activities", str(module), *options]


def evaluated(module: Path, cases: Sequence[Any], *options: str) -> Finished:
    return acts(*arguments(module, cases, *options), env={"ACTS_MODELS": json.dumps(MODELS)})


def test_cases_are_run_for_every_model_and_compared(module: Path) -> None:
    found = evaluated(module, CASES, "--model", "a", "--model", "long", "--repeat", "2", "--json")
    assert found.code == 1, found
    one, other = found.json["models"]
    assert (one["model"], one["cases"], one["passed"]) == ("a", 10, 10)
    assert (other["model"], other["cases"], other["passed"]) == ("long", 10, 4)
    assert one["cost"]["requests"] == 14  # two cases of five ask twice
    differences = {each["case"]: each["difference"] for each in found.json["cases"] if not each["passed"]}
    assert differences == {
        "name": 'the output: "long", and "a" is expected',
        "schema": 'the output: "long" is longer than 2 characters',
        "3": "AssertionError: 'long' is long",
    }
    assert {(each["model"], each["repeat"]) for each in found.json["cases"]} == {
        (name, number) for name in ("a", "long") for number in (0, 1)
    }
    assert all(each["seconds"] > 0 for each in found.json["cases"])


def test_people_are_shown_what_was_not_as_expected_and_a_table(module: Path) -> None:
    found = evaluated(module, CASES, "--model", "long", "--model", "a", "--limit", "2")
    assert found.code == 1, found
    table = [re.split(r" {2,}", line) for line in found.stdout.splitlines()]
    assert table[0] == ['name, long: the output: "long", and "a" is expected']
    assert table[3] == ["model", "passed", "requests", "tokens in", "out", "money", "seconds"]
    assert table[4][:3] == ["long", "0 of 2 (0%)", "2"]
    assert table[5][:3] == ["a", "2 of 2 (100%)", "2"]
    passed = evaluated(module, CASES[:2], "--model", "a")
    assert passed.code == 0, passed
    assert len(passed.stdout.splitlines()) == 2


def test_what_is_wrong_with_the_file_is_told_with_its_lines_and_nothing_runs(module: Path) -> None:
    def told(cases: Sequence[Any], *options: str) -> list[str]:
        found = evaluated(module, cases, *options)
        assert found.code == 2, found
        assert found.stdout == ""
        return [line.partition("cases.jsonl")[2] for line in found.error_lines]

    good = case("Who?", {"value": "a"}, name="good")
    assert told([]) == [": it has no case: a case is one line"]
    broken = told([*[{**good, "name": str(number)} for number in range(499)], '{"submission": '], "--model", "a")
    assert broken[0].startswith(":500: not JSON")
    wrong = told(
        [
            good,
            "5",
            {**good, "expect": {}},
            {**good, "expect": {"function": "none"}, "name": "b"},
            {**good, "expect": {"function": "NUMBER"}, "name": "c"},
            {**good, "expect": {"schema": {"type": "text"}}, "name": "d"},
            {**good, "name": 5},
            good,
        ]
    )
    assert [line[:3] for line in wrong] == [":2:", ":3:", ":4:", ":5:", ":6:", ":7:", ":8:"]
    assert "there is no function 'none' in the modules of --activities" in wrong[2]
    assert "the name 'good' is also used by" in wrong[6]
    assert (
        "no model 'none' is configured (ACTS_MODEL, ACTS_MODELS); there is a, long"
        in told([good], "--model", "none")[0]
    )
    unknown = {**good, "submission": {**good["submission"], "tools": ["find_totle"]}}
    assert "case 'good': /tools" in told([unknown], "--model", "a")[0]
    many = told([{**good, "expect": {}, "name": str(number)} for number in range(100)])
    assert len(many) == 21


def test_a_run_that_fails_or_is_late_has_not_passed(module: Path) -> None:
    failing = {"calls": [{"_tool": "find_total", "order": "A-3", "_outputPath": "†state.x"}], "output": "†state.x"}
    cases = [
        {"name": "failing", "submission": {"solution": failing}, "expect": {"value": 1}},
        case("never answer", {"value": 1}, name="late"),
    ]
    found = evaluated(module, cases, "--timeout", "2", "--model", "a", "--json")
    assert found.code == 1, found
    differences = {each["case"]: each["difference"] for each in found.json["cases"]}
    assert differences["failing"] == "the run is failed: find_total: KeyError: 'A-3'"
    assert differences["late"] == "not over within 2 s, so the run was cancelled"
    costs = {each["case"]: each["cost"] for each in found.json["cases"]}
    assert costs["late"]["requests"] == 1  # it was asked, and what that costs is not known


def test_a_case_that_waits_for_a_person_is_cancelled_at_once_and_says_what_waits(module: Path) -> None:
    find = {"_tool": "find_total", "order": "A-1", "_outputPath": "†state.x"}
    solution = {"calls": [find], "output": "†state.x"}
    question = {"_tool": "ask_human", "question": "Which order?", "_outputPath": "†state.x"}
    child = {"context": [{"type": "text", "message": "find it"}], "schema": {}, "tools": ["find_total"]}
    ask = {"type": "object", "properties": {"_delegate": {"const": "desk"}}}
    inner = {"calls": [{"_tool": "ask", "_outputPath": "†state.x"}], "output": "†state.x"}
    submissions = {
        "a held call": {"solution": solution, "config": {"approve": ["find_total"]}},
        "a question": {"solution": {**solution, "calls": [question]}},
        "a plan of a model": {**case("find it", {})["submission"], "config": {"mode": "lazy"}},
        "a plan": {"context": [{"type": "plan", "mode": "lazy", "calls": [find]}]},
        "in a child run": {
            "solution": inner,
            "tools": {"ask": ask},
            "delegates": {"desk": child},
            "config": {"approve": ["find_total"]},
        },
    }
    cases = [{"name": name, "submission": each, "expect": {"value": 30}} for name, each in submissions.items()]
    found = evaluated(module, cases, "--model", "a", "--json")  # the timeout is ten minutes
    assert found.code == 1, found
    waits = {
        each["case"]: each["difference"].removesuffix(", so the run was cancelled") for each in found.json["cases"]
    }
    assert waits == {
        "a held call": "a call of find_total waits for a person",
        "a question": "a call of ask_human waits for a person",
        "a plan of a model": "a plan waits for an approval",
        "a plan": "a plan waits for an approval",
        "in a child run": "a call of find_total waits for a person",
    }


def test_cases_may_share_a_base(module: Path) -> None:
    base = module.with_name("base.json")
    text = {"type": "text", "message": "Please count."}
    base.write_text(json.dumps({"context": [text], "tools": ["find_total"], "schema": {}}), encoding="utf-8")
    more = {"context": [text, {"type": "text", "message": "Please count again."}], "schema": {"type": "integer"}}
    cases = [
        {"name": "as it is", "submission": {}, "expect": {"value": 2}},
        {"name": "more", "submission": more, "expect": {"value": 4}},
    ]
    found = evaluated(module, cases, "--base", str(base), "--model", "a", "--json")
    assert {each["case"]: each["difference"] for each in found.json["cases"]} == {"as it is": None, "more": None}
    base.write_text("5", encoding="utf-8")
    found = evaluated(module, cases, "--base", str(base), "--model", "a")
    assert found.code == 2
    assert "the base is no submission" in found.stderr


def ended(module: Path, by: signal.Signals, *options: str) -> Finished:
    """The command, ended by a signal when the first of its two cases is done and the second is asked."""
    pipe = module.with_name("asked")
    os.mkfifo(pipe)
    cases = [case("Who?", {"value": "a"}, name="quick"), case("wait for ever", {"value": 1}, name="slow")]
    process = start(
        *arguments(module, cases, "--model", "a", "--concurrency", "1", *options),
        env={"ACTS_MODELS": json.dumps(MODELS), "ASKED": str(pipe)},
    )
    assert pipe.read_text(encoding="utf-8") == "asked"
    process.send_signal(by)
    return finish(process)


def test_ctrl_c_keeps_what_was_done_and_prints_it(module: Path) -> None:
    found = ended(module, signal.SIGINT, "--json")
    assert found.code == 130, found
    assert [each["case"] for each in found.json["cases"]] == ["quick"]
    assert "1 of 2 cases are done" in found.stderr


def test_sigterm_keeps_what_was_done_too(module: Path) -> None:
    found = ended(module, signal.SIGTERM)
    assert found.code == 143, found
    assert "1 of 1 (100%)" in found.stdout


@pytest.mark.nightly
def test_a_thousand_cases_fan_out_over_the_worker(module: Path) -> None:
    cases = [case(f"Who are you, {number}?", {"value": "a"}) for number in range(1_000)]
    process = start(*arguments(module, cases, "--model", "a", "--json"), env={"ACTS_MODELS": json.dumps(MODELS)})
    found = finish(process)
    assert found.code == 0, found
    assert found.json["models"][0]["passed"] == 1_000
