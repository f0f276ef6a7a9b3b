"""What is sent to servers of open models, put through the chat templates that these servers use: none refuses it, and
nothing that was said is missing from what the model reads.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from acts_celery.broker_config import ConfiguredModel
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.requests import compose, read_request, render, render_tick
from acts_celery.worker.agent.fitting import Fitting
from acts_celery.worker.agent.openai_chat import OpenAIChat
from acts_celery.worker.registry.activities import registry
from acts_celery.worker.registry.models import ModelRequest
from tests.models import six_tools

from .installed import python_with

pytestmark = pytest.mark.nightly

SCRIPT: Final = Path(__file__).with_name("chat_templates.py")
SECONDS: Final = 600
WITHOUT_SYSTEM: Final = {"gemma", "gemma2"}
"""Templates without a system message: their servers are told that by the user."""
OF_MODELS: Final = {
    *("zephyr", "chatml", "mistral", "llama", "gemma", "llama3", "llama31", "phi3", "phi4", "qwen25", "qwen3"),
    *("gemma3", "gemma3n", "gemma4", "gptoss", "qwen3_instruct", "starling", "yi_chat"),
}
"""Templates that models came with; others in the package are its own."""
CONTEXTS: Final[dict[str, list[Any]]] = {
    "a text": [{"type": "text", "message": "Order three of whatever is cheaper."}],
    "system and data": [
        {"type": "system", "message": "You are a shop."},
        {"type": "input", "name": "Ann"},
        {"type": "text", "message": "Order for her."},
        {"type": "state", "cart": ["tea"]},
    ],
    "a chat": [
        {"role": "system", "content": "Be brief."},
        {"role": "assistant", "content": "What may it be?"},
        {"role": "user", "content": [{"type": "text", "text": "Tea, please."}]},
        {"type": "system", "message": "The shop closes at six."},
    ],
}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    found = str(python_with(tmp_path_factory.mktemp("templates") / "installed", "jinja2>=3.1,<4"))
    # What it asks for besides has gigabytes; its templates are text.
    own = [found, "-m", "pip", "install", "-qq", "--no-deps", "unsloth==2026.10.9"]
    subprocess.run(own, check=True, capture_output=True, timeout=SECONDS)
    return found


def conversations(context: list[Any]) -> Iterator[list[dict[str, Any]]]:
    """What is sent for the first tick and for the second."""
    document = {"context": context, "schema": {"type": "string"}, "tools": six_tools.REQUEST["tools"]}
    request = read_request(document, Environment(activities=registry.schemas()))
    first = render(request)
    answer: dict[str, Any] = {"calls": [], "output": None}
    before = list(request.submission.context)
    error = {"type": "error", "data": {"call": None, "error": {"type": "Odd", "message": "no calls", "pointer": ""}}}
    second = [*first, *render_tick(request, 0, answer, (), before, [error])]
    second.append({"role": "system", "content": "Hurry up."})
    for messages in (first, second):
        yield [dict(each) for each in Fitting(MODEL, OpenAIChat.url).fitted(asked(messages, compose(request))).messages]


MODEL: Final = ConfiguredModel(model="openai:m", base_url="http://127.0.0.1:1/v1")


def asked(messages: list[dict[str, Any]], schema: Any) -> ModelRequest:
    return ModelRequest(messages, schema, {"model": "m"})


def sent(messages: list[dict[str, Any]], *without: str) -> list[dict[str, Any]]:
    """The messages as their body has them, for a server that refuses what is named."""
    fitted = Fitting(MODEL, OpenAIChat.url).fitted(ModelRequest(messages, None, {"model": "m"}))
    body = OpenAIChat()._body(replace(fitted, without=frozenset(without)), MODEL)
    found: list[dict[str, Any]] = body["messages"]
    return found


def lines(messages: list[dict[str, Any]]) -> set[str]:
    """All that is said, line by line."""
    contents = [message["content"] for message in messages]
    texts = [
        part if isinstance(part, str) else part["text"]
        for content in contents
        for part in ([content] if isinstance(content, str) else content)
    ]
    return {line.strip() for text in texts for line in text.splitlines() if line.strip()}


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
def test_no_template_refuses_what_is_sent_or_leaves_any_of_it_out(python: str, context: list[Any]) -> None:
    asked_for = list(conversations(context))
    given = [sent(messages, *without) for messages in asked_for for without in ((), ("system",))]
    done = subprocess.run(
        [python, str(SCRIPT)],
        input="".join(json.dumps(each) + "\n" for each in given),
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
    )
    read = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(read) == len(given)
    assert read[0].keys() >= OF_MODELS
    for at, found in enumerate(read):
        said, has_system = lines(asked_for[at // 2]), at % 2 == 0
        for name, text in found.items():
            if name not in OF_MODELS or (name in WITHOUT_SYSTEM and has_system):
                continue
            assert text is not None, (name, given[at])
            missing = [line for line in said if line not in text]
            assert missing == [], name
