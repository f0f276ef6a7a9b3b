"""Every JSON example of the seeds, as it is pasted: it runs, or says precisely what is missing (INTERFACE).

The seeds are read from the folder that `ACTS_SEEDS` names, else from one beside the repository.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from acts_celery.protocol import check_submission, parse
from acts_celery.protocol.paths import nest
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.plan.documents import decode
from acts_celery.protocol.requests import read_answer, read_request
from acts_celery.protocol.requests.reading import FunctionAnswer
from acts_celery.protocol.requests.tool_texts import function_schema, functions_of
from tests.few import few

from .command import ROOT, acts, completed

_FOLDER: Final = Path(os.environ.get("ACTS_SEEDS") or ROOT.parent / "shared" / "seeds")
_TEXT: Final = re.compile(r'"(?:[^"\\]|\\.)*"|//.*')
_OPENING: Final = re.compile(r"^\s*(?:[\[{]\s*$|[\[{].*[\]}]$)")
_NOTHING: Final = "nothing to run"


def examples() -> Iterator[tuple[str, str]]:
    """The examples, each with its file and line: what begins with a line that opens a bracket, to where that closes."""
    for file in sorted(_FOLDER.glob("*.txt")):
        lines = file.read_text(encoding="utf-8").splitlines()
        number = 0
        while number < len(lines):
            first = number
            if _OPENING.match(lines[number]):
                depth = 0
                for number in range(first, len(lines)):
                    brackets = _TEXT.sub("", lines[number])
                    depth += sum(map(brackets.count, "[{")) - sum(map(brackets.count, "]}"))
                    if depth <= 0:
                        break
                yield f"{file.stem}:{first + 1}", "\n".join(lines[first : number + 1])
            number += 1


EXAMPLES: Final = dict(examples())


def test_the_examples_are_found() -> None:
    if not _FOLDER.is_dir():
        pytest.skip("no seeds here")
    assert len(EXAMPLES) > 20


def calls_in(value: Any) -> list[tuple[str, dict[str, Any]]]:
    """The calls of an example, with their places."""
    if isinstance(value, list):
        return [(f"/{index}", each) for index, each in enumerate(value) if "_tool" in each]
    if "calls" in value:
        return [(f"/calls/{index}", each) for index, each in enumerate(value["calls"])]
    return [("", value)] if "_tool" in value else []


def missing_of(value: Any) -> set[tuple[str, str]]:
    """What an example needs and does not say: where each is asked for, and its name."""
    calls = calls_in(value)
    if not calls:
        parts = {(f"/{key}", "a property of a tool") for key in value} if isinstance(value, dict) else set()
        return parts | {("", _NOTHING)}
    messages = [each for each in value if "_tool" not in each] if isinstance(value, list) else []
    missing = set()
    for at, call in calls:
        who = "_delegate" if "_delegate" in call else "_tool"
        missing.add((f"{at}/{who}", repr(call[who])))
        missing |= {(f"{at}/{name}", each) for name, each in call.items() if name[0] != "_" and each.startswith("†")}
        if "_instance" in call and call["_instance"] not in {each.get("_instance") for each in messages}:
            missing.add((f"{at}/_instance", repr(call["_instance"])))
    return missing


def data_for(value: Any) -> list[dict[str, Any]]:
    """Messages with the data and the instances that the calls of an example lack."""
    data: list[dict[str, Any]] = []
    for _, call in calls_in(value):
        if "_instance" in call:
            data.append({"type": "state", "_instance": call["_instance"], "text": "Hi"})
        for each in call.values():
            if isinstance(each, str) and each.startswith("†") and each != call.get("_outputPath"):
                place = parse(each).references[0]
                data.append({"type": place.kind, **nest("given", place.path)})
    return data


def needed(value: Any, folder: Path) -> list[str]:
    """The options of a command that bring what an example lacks: activities, delegates, data and instances."""
    code = ["from acts_celery import activity, delegate"]
    data = data_for(value)
    for _, call in calls_in(value):
        if "_delegate" in call:
            code.append(f"@delegate({call['_delegate']!r})\ndef a_delegate(context): return len(context)")
        else:
            code.append(f"@activity({call['_tool']!r})\ndef an_activity(call, context): return 'done'")
    module, context = folder / "needed.py", folder / "needed.jsonl"
    module.write_text("\n".join(dict.fromkeys(code)), encoding="utf-8")
    context.write_text("".join(json.dumps(each) + "\n" for each in data), encoding="utf-8")
    return ["--activities", str(module), *(["--context", str(context)] if data else [])]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_says_precisely_what_is_missing(name: str) -> None:
    value = decode(EXAMPLES[name].encode())
    finished = acts("check", "-", "--json", stdin=EXAMPLES[name].encode())
    assert finished.code == 2, finished
    found = {error["pointer"]: error["message"] for error in finished.json["errors"]}
    expected = missing_of(value)
    assert found.keys() == {at for at, _ in expected}
    for at, word in expected:
        assert word in found[at]


@pytest.mark.parametrize("name", few((name for name, text in EXAMPLES.items() if calls_in(decode(text.encode()))), 4))
def test_an_example_runs_as_it_stands_with_what_it_lacks(name: str, tmp_path: Path) -> None:
    options = needed(decode(EXAMPLES[name].encode()), tmp_path)
    checked = acts("check", "-", "--json", *options, stdin=EXAMPLES[name].encode())
    assert checked.code == 0, checked
    result = completed(acts("run", "-", "--json", *options, stdin=EXAMPLES[name].encode()))
    assert {call["status"] for call in result["calls"]} <= {"done", "sent"}


def is_answer(text: str) -> bool:
    """Whether a model may answer an example as it stands: it holds calls, and no messages."""
    value = decode(text.encode())
    return bool(calls_in(value)) and not isinstance(value, list)


@pytest.mark.parametrize("wire", ["json", "tools"])
@pytest.mark.parametrize("name", [name for name, text in EXAMPLES.items() if is_answer(text)])
def test_a_model_may_answer_an_example_as_it_stands(name: str, wire: str) -> None:
    value = decode(EXAMPLES[name].encode())
    calls = [call for _, call in calls_in(value)]
    tools: dict[str, Any] = {}
    for call in calls:
        pins = {"_delegate": {"const": call["_delegate"]}} if "_delegate" in call else {}
        scopes = {"_scopes": {"items": {"enum": call["_scopes"]}}} if "_scopes" in call else {}
        tools[call["_tool"]] = {"properties": {key: {} for key in call if key[0] != "_"} | pins | scopes}
    code: dict[str, Any] = {"activities": {tool: {} for tool in tools}, "delegates": ["translatorDelegate"]}
    document = {"context": data_for(value), "tools": tools}
    asked = replace(read_request({**document, "schema": {}}, Environment(**code)), is_native=wire == "tools")
    text = EXAMPLES[name]
    if asked.is_native:
        functions = FunctionAnswer(functions_of(function_schema(asked)))
        arguments = [{"_outputPath": None, **{key: call[key] for key in call if key != "_tool"}} for call in calls]
        parts = [functions.call(call["_tool"], json.dumps(one)) for call, one in zip(calls, arguments, strict=True)]
        text = "".join(parts) + functions.end()
    answer = read_answer(asked, text)
    assert answer.errors == ()
    planned = check_submission({**document, "solution": {"calls": calls}}, **code).calls
    meant = [
        [(call.parameters, call.output, call.scopes, call.runner) for call in of] for of in (answer.calls, planned)
    ]
    assert meant[0] == meant[1] != []
