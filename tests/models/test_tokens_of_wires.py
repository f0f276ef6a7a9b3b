"""What each wire takes, in tokens, of the agent of `six_tools`: its first request, and its calls. docs/models.md has
the table; `python -m tests.models.test_tokens_of_wires` prints it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from rs_bpe.bpe import openai  # type: ignore[import-not-found]  # it has no types

from acts_celery.broker_config import ConfiguredModel
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.requests import compose, read_request, render
from acts_celery.protocol.requests.tool_texts import TOOLS, function_schema
from acts_celery.worker.agent.anthropic_messages import AnthropicMessages
from acts_celery.worker.agent.fitting import Fitted, Fitting
from acts_celery.worker.agent.openai_chat import OpenAIChat
from acts_celery.worker.registry.activities import registry
from acts_celery.worker.registry.models import ModelRequest

from . import six_tools
from .as_sent import as_sent

PAGE: Final = Path(__file__).parents[2] / "docs" / "models.md"
WIRES: Final[Mapping[str, tuple[str, bool]]] = {
    "`json`, profile `compatible`, `json` or `text`": ("compatible", False),
    "`json`, profile `openai` or `azure`": ("openai", False),
    "`json`, profile `anthropic`": ("anthropic", False),
    "`tools`, profile `compatible`": ("compatible", True),
    "`tools`, profile `openai` or `azure`": ("openai", True),
    "`tools`, profile `anthropic`": ("anthropic", True),
}
"""Each wire, with its profile and whether the tools go as functions."""


def table() -> str:
    """The table of the page."""
    lines = ["| wire | first request | a call, on average |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {_rounded(asked)} | {call} |" for name, asked, call in rows())])


def rows() -> Iterator[tuple[str, int, int]]:
    """Each wire, with the tokens of its first request and of a call."""
    for name, (profile, is_native) in WIRES.items():
        sent = fitted(profile, is_native=is_native)
        yield name, tokens(*asked_of(sent)), round(sum(map(tokens, calls_of(sent))) / len(six_tools.CALLS))


def fitted(profile: Any, *, is_native: bool) -> Fitted:
    """The first request as it is sent."""
    provider = "anthropic" if profile == "anthropic" else "openai"
    url = (AnthropicMessages if provider == "anthropic" else OpenAIChat).url
    known = Environment(activities=registry.schemas())
    request = replace(read_request(six_tools.REQUEST, known), is_native=is_native)
    schema = function_schema(request) if is_native else compose(request)
    config = {"model": "m", **({"wire": TOOLS, "tool_choice": "auto"} if is_native else {})}
    asked = ModelRequest(render(request), schema, config)
    return Fitting(ConfiguredModel(model=f"{provider}:m", profile=profile), url).fitted(asked)


def asked_of(sent: Fitted) -> Iterator[Any]:
    """All that a model reads of a request; a provider that enforces a schema with a grammar alone does not show it."""
    yield from (message["content"] for message in sent.messages)
    if sent.format is not None and not shows_in_message(sent):
        yield sent.format
    for function in sent.functions:
        yield {"name": function.name, "description": function.description, "parameters": function.parameters}


def shows_in_message(sent: Fitted) -> bool:
    """Whether the schema stands in a message."""
    return any("JSON Schema: " in message["content"] for message in sent.messages)


def calls_of(sent: Fitted) -> Iterator[Any]:
    """The calls as a model writes them."""
    if not sent.functions:
        answer: Any = {"calls": six_tools.CALLS, "output": None}
        yield from (answer if sent.format is None else as_sent(answer, sent.format))["calls"]
        return
    schemas = {function.name: function.parameters for function in sent.functions if function.is_strict}
    for call in six_tools.CALLS:
        name = call["_tool"]
        given = {key: part for key, part in call.items() if key != "_tool"}
        yield name
        yield as_sent(given, schemas[name]) if name in schemas else given


def tokens(*values: Any) -> int:
    """How many tokens values take: texts as they are, others as compact JSON."""
    return sum(int(_encoding().count(_text(value))) for value in values)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@cache
def _encoding() -> Any:
    return openai.o200k_base()


def _rounded(count: int) -> str:
    return f"{round(count, -2):,}"


def test_the_page_says_what_each_wire_takes() -> None:
    page = PAGE.read_text("utf-8")
    for name, *measured in rows():
        (line,) = [line for line in page.splitlines() if line.startswith(f"| {name} |")]
        said = [int(cell.replace(",", "")) for cell in line.split("|")[2:4]]
        assert said == pytest.approx(measured, rel=0.1), f"docs/models.md should have\n{table()}"


if __name__ == "__main__":
    print(table())
