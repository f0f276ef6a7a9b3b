"""The pages about activities and delegates say what is so."""

from __future__ import annotations

import base64
import json
import re
from io import TextIOWrapper
from typing import Any, Final

import msgpack
import pytest

from acts_celery import ActivitiesError, CallFailed, Client
from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol import Limits, Rejected, check_submission
from acts_celery.protocol.calls.declarations import delegate_context
from acts_celery.protocol.schemas import compiled
from acts_celery.worker.agent.model_calls import rendered
from acts_celery.worker.registry.activities import Activity, Policy, make_activity
from acts_celery.worker.runner.calls import to_json_value
from tests.worker.backend import Backend, Meeting, meeting_url, settings_for

from .pages import ROOT

# The tables of docs/activities.md hold, row by row: what a signature may hold, what a function gets and may return.

PAGE: Final = (ROOT / "docs" / "activities.md").read_text(encoding="utf-8")
BLOCKS: Final = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
NAMES: dict[str, Any] = {"__name__": __name__}
exec(compile(BLOCKS[0], "activities.md", "exec", dont_inherit=True), NAMES)


def rows(table: str) -> list[tuple[str, ...]]:
    text = PAGE.split(f"<!-- {table} -->\n")[1].split("\n<!--")[0]
    lines = [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in text.splitlines()[2:]]
    return [tuple(cell.replace("\\|", "|") for cell in line) for line in lines]


def code(cell: str) -> str:
    """The first code of a cell."""
    found = re.match(r"`(.*?)`", cell)
    assert found, cell
    return found[1]


def activity_of(annotation: str) -> Activity:
    def function(value: Any) -> Any:
        return value

    function.__annotations__ = {"value": eval(annotation, NAMES)}
    return make_activity(function, None, None, Policy())


@pytest.mark.parametrize(("annotation", "given", "gets"), rows("parameters"))
def test_a_function_gets_what_the_page_says(annotation: str, given: str, gets: str) -> None:
    activity, value = activity_of(code(annotation)), json.loads(code(given))
    assert compiled(dict(activity.schema)).problems({"value": value}) == []
    got, expected = activity.bind({}, {"value": value}, {})(), eval(code(gets), NAMES)
    assert (type(got), got) == (type(expected), expected)


@pytest.mark.parametrize(("annotation", "given", "why"), rows("refused"))
def test_a_call_is_refused_for_what_the_page_says(annotation: str, given: str, why: str) -> None:
    problems = compiled(dict(activity_of(code(annotation)).schema)).problems({"value": json.loads(code(given))})
    assert [problem for problem in problems if why in problem.message], problems


@pytest.mark.parametrize(("returned", "stored"), rows("results")[1:])
def test_a_result_is_stored_as_the_page_says(returned: str, stored: str) -> None:
    value = eval(code(returned), NAMES)
    if stored.startswith("fails: "):
        with pytest.raises(CallFailed, match=re.escape(stored.removeprefix("fails: "))):
            to_json_value(value, Limits())
    else:
        assert to_json_value(value, Limits()) == json.loads(code(stored))


def any_more(*values: int) -> None: ...
def only_in_order(value: int, /) -> None: ...
def hidden(_value: int) -> None: ...
def a_file(value: TextIOWrapper) -> None: ...
def unknown(value: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037  # it is what is refused


@pytest.mark.parametrize("function", [any_more, only_in_order, hidden, a_file, unknown])
def test_what_a_signature_may_not_hold_is_refused_when_it_is_registered(function: Any) -> None:
    with pytest.raises(ActivitiesError):
        make_activity(function, None, None, Policy())


def test_a_bound_method_is_an_activity_and_further_parameters_are_given() -> None:
    class Service:
        def ask(self, question: str, **rest: Any) -> Any:
            return question, rest

    activity = make_activity(Service().ask, "ask", None, Policy())
    assert activity.bind({}, {"question": "q", "more": 1}, {})() == ("q", {"more": 1})


# What docs/delegates.md shows is what lies in the queue of the delegates.

PAGE_DELEGATES_PAGE: Final = (ROOT / "docs" / "delegates.md").read_text(encoding="utf-8")
BYTES: Final = int(re.findall(r"msgpack, of (\d+) bytes", PAGE_DELEGATES_PAGE)[0])


def block(name: str) -> Any:
    found = re.search(rf"^```json {re.escape(name)}\n(.*?)^```$", PAGE_DELEGATES_PAGE, re.MULTILINE | re.DOTALL)
    assert found, name
    return json.loads(found[1])


@pytest.fixture(scope="module")
def argument(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The argument of the task that a worker without the delegates' queue has published."""
    with EmbeddedServer() as server:
        settings = settings_for(server)
        backend = Backend(settings, Meeting(meeting_url(server)), tmp_path_factory.mktemp("page"))
        with Client(settings) as client, backend.worker("--queues", "instances"):
            client.submit_document(block("letter.json"))
            taken: Any = backend.redis.brpop([backend.queue("delegates")], 30)
    body = msgpack.unpackb(base64.b64decode(json.loads(taken[1])["body"]))
    found = body[0][0]
    assert isinstance(found, bytes)
    return found


def test_the_message_is_what_the_page_shows(argument: bytes) -> None:
    message, shown = msgpack.unpackb(argument), block("message")
    for part, name in ((message["attempt"]["id"], "run"), (message["attempt"], "token"), (message["attempt"], "seal")):
        assert part.pop(name)
    message["attempt"]["seen"] = ["…" for _ in message["attempt"]["seen"]]
    for part, name in ((shown["attempt"]["id"], "run"), (shown["attempt"], "token"), (shown["attempt"], "seal")):
        assert part.pop(name) == "…"
    assert message == shown, "say it in docs/delegates.md"
    assert len(argument) == BYTES, "say it in docs/delegates.md"


def test_the_workflow_of_the_page_takes_a_number_and_nothing_else() -> None:
    call = {"_tool": "next", "_delegate": "next", "n": "†input.n", "_outputPath": "†state.out"}
    document = {"context": [{"type": "input", "n": 1}], "delegates": {"next": block("next.json")}}
    check_submission({**document, "solution": {"calls": [call]}})
    with pytest.raises(Rejected, match="integer"):
        check_submission({**document, "solution": {"calls": [{**call, "n": "one"}]}})


def test_nothing_out_of_scope_is_in_its_bytes(argument: bytes) -> None:
    for text in ("4000-1234", "9000", "Bob", "customers", "budget", "card"):
        assert text.encode() not in argument


def test_a_model_is_asked_what_the_page_shows(argument: bytes) -> None:
    assert rendered(msgpack.unpackb(argument)["context"]) == block("asked")


def test_code_gets_the_last_two_messages() -> None:
    scoped = block("message")["context"][2]
    assert delegate_context([], [scoped], {"subject": "Your order"}) == [
        {"type": "state", "tone": "friendly", "name": "Ann"},
        {"type": "input", "subject": "Your order"},
    ]
