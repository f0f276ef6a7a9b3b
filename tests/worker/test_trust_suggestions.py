"""`acts trust suggest`: what may be labelled, with reasons; none of it holds before somebody has accepted it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acts_celery import ActivitiesError, local
from acts_celery.protocol.calls.trust import ToolTrust
from acts_celery.worker.registry.request_definitions import KnownTool, suggestion
from tests.acceptance.command import acts

CODE = '''
from typing import Any

from pydantic import BaseModel

from acts_celery import activity


class Mail(BaseModel):
    id: int
    sender: str
    body: str


@activity
def read_mails() -> list[Mail]:
    """The mails of the mailbox."""
    return [Mail(id=7, sender="eve@example.org", body="pay 900")]


@activity
def look_up(name: str) -> Any:
    """What is known of somebody."""
    return {"person_id": 3, "author": "eve", "address": "here"}


@activity
def send_mail(to: str, body: str) -> str:
    """Send a mail."""
    return to


@activity
def sum_up(numbers: list[int]) -> int:
    """The sum of numbers."""
    return sum(numbers)
'''


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of activities."""
    path = tmp_path_factory.mktemp("code") / "code.py"
    path.write_text(CODE, encoding="utf-8")
    return str(path)


def suggested(code: str, *options: str, **environment: str) -> tuple[dict[str, Any], str]:
    done = acts("trust", "suggest", "--activities", code, *options, env=environment)
    assert done.code == 0, done.stderr
    return done.json, done.stderr


def test_names_and_schemas_suggest_labels_each_with_its_reason(code: str) -> None:
    found, told = suggested(code)
    assert found.keys() == {"read_mails", "send_mail"}
    reasons = {name: one.pop("suggested") for name, one in found.items()}
    assert found["read_mails"] == {"untrusted": {"*.id": [], "*": ["mail"]}}
    assert found["send_mail"] == {"effects": True, "content": ["body"]}
    assert {name: one.keys() for name, one in reasons.items()} == {name: one.keys() for name, one in found.items()}
    assert "'mails'" in reasons["read_mails"]["untrusted"]
    assert "'send'" in reasons["send_mail"]["effects"]
    assert "nothing says anything of look_up, sum_up" in told


def test_nothing_holds_that_nobody_has_accepted(code: str, tmp_path: Path) -> None:
    found, _ = suggested(code)
    file = tmp_path / "trust.json"

    def held(document: dict[str, Any]) -> dict[str, Any]:
        file.write_text(json.dumps({"send_mail": document}), encoding="utf-8")
        context = [{"type": "input", "to": "eve", "body": "hello", "_trust": ["mail"]}]
        call = {"_tool": "send_mail", "to": "†input.to", "body": "†input.body", "_outputPath": "†state.sent"}
        with local([code], trust=str(file)) as client:
            run = client.submit(solution={"calls": [call]}, context=context, config={"trust": {"otherwise": "refuse"}})
            (failed,) = run.wait(timeout_seconds=60).errors
            return failed.to_dict()

    with pytest.raises(ActivitiesError, match=r"/send_mail/suggested: nobody has accepted"):
        held(found["send_mail"])
    accepted = {key: value for key, value in found["send_mail"].items() if key != "suggested"}
    assert "to comes from mail" in str(held(accepted))


def test_what_is_declared_already_is_not_suggested(code: str, tmp_path: Path) -> None:
    file = tmp_path / "trust.json"
    file.write_text(json.dumps({"send_*": {"effects": True}, "read_mails": {"untrusted": ["mail"]}}), encoding="utf-8")
    assert suggested(code, ACTS_TRUST=str(file))[0] == {}


def test_recorded_results_suggest_labels_where_schemas_say_nothing(code: str) -> None:
    with local([code]) as client:
        run = client.submit(solution={"calls": [{"_tool": "look_up", "name": "Eve", "_outputPath": "†state.found"}]})
        run.wait(timeout_seconds=60)
        found, _ = suggested(code, "--run", run.id, **client.settings.to_environment())
    assert found["look_up"]["untrusted"] == {"person_id": [], "*": ["up"]}
    assert "recorded results (1)" in found["look_up"]["suggested"]["untrusted"]


def test_annotations_of_a_server_suggest_that_a_call_runs_once() -> None:
    schema = {"properties": {"order": {"type": "integer"}}}
    said = ToolTrust(effects=True, result=frozenset({"mcp.shop"}))
    assert suggestion(KnownTool("shop.pay", schema, said)) == {}
    hinted = suggestion(KnownTool("shop.pay", schema, said, {"idempotentHint": False}))
    assert hinted.pop("suggested").keys() == {"once"}
    assert hinted == {"once": True}
