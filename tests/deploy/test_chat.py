"""The example of a chat page: a conversation in which the model knows what it has said (SPEC R13.12)."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from acts_celery import local
from tests.models.server import model_server, streamed

from .files import DEPLOY

CHAT = DEPLOY / "examples" / "chat" / "chat.py"
_MOST_LINES = 60
SAID = {"Hi, I am Ann.": "Hi Ann! It is 20 euros.", "And in dollars?": "That is 22 dollars, Ann."}


def told(body: Any) -> Any:
    """The answer to the last thing that was said."""
    asked.append(body["messages"])
    texts = [str(message["content"]) for message in body["messages"]]
    last = max(SAID, key=lambda said: max((at for at, text in enumerate(texts) if said in text), default=-1))
    return streamed(json.dumps({"calls": [], "output": SAID[last]}), pieces=4)


asked: list[list[dict[str, Any]]] = []


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    with (
        model_server(told) as server,
        local(model="openai:m", model_base_url=server.url, model_api_key="k") as client,
        monkeypatch.context() as environment,
    ):
        for name, value in client.settings.to_environment().items():
            environment.setenv(name, value)
        spec = importlib.util.spec_from_file_location("chat", CHAT)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        with TestClient(module.app) as page:
            yield page


def followed(page: TestClient, run: str, after: str, **headers: str) -> list[tuple[str, dict[str, Any]]]:
    """The events of a run behind one, with their ids."""
    events = page.get(f"/events/{run}", params={"after": after}, headers=headers).text.split("\n\n")
    parts = [dict(line.split(": ", 1) for line in event.split("\n")) for event in events if event]
    return [(part["id"], json.loads(part["data"])) for part in parts]


def shown(events: list[tuple[str, dict[str, Any]]]) -> str:
    """What the page shows by them."""
    text = ""
    for _, event in events:
        text = text[: event["at"]] + event["text"] if event["text"] else text
        text = event["output"] or text
    return text


def test_a_chat_page_shows_answers_and_the_model_remembers_its_own(page: TestClient) -> None:
    assert "<form>" in page.get("/").text
    (first, hello), (second, answer) = SAID.items()
    run = page.post("/say", json={"run": None, "text": first}).json()["run"]
    events = followed(page, run, "0-0")
    assert shown(events) == hello
    assert events[-1][1]["end"]
    assert followed(page, run, "0-0", **{"last-event-id": events[2][0]}) == events[3:]
    assert page.post("/say", json={"run": run, "text": second}).json() == {"run": run}
    assert shown(followed(page, run, events[-1][0])) == answer
    own = [number for number, message in enumerate(asked[-1]) if message["role"] == "assistant"]
    assert hello in asked[-1][own[-1]]["content"]
    assert second in asked[-1][-1]["content"]
    assert (len(asked), own[-1] < len(asked[-1]) - 1) == (2, True)


def test_the_example_is_as_short_as_it_says() -> None:
    assert len(CHAT.read_text(encoding="utf-8").splitlines()) <= _MOST_LINES
