"""What providers are sent of tools as functions: the six tools of `six_tools`, by both wires (SPEC R12.6)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from acts_celery import Answer, InvalidAnswer, local
from acts_celery.broker_config import ConfiguredModel
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.requests import read_request, render
from acts_celery.protocol.requests.tool_texts import TOOLS, function_schema
from acts_celery.protocol.schemas import compiled
from acts_celery.worker.agent.anthropic_messages import AnthropicMessages
from acts_celery.worker.agent.clients import Bounds
from acts_celery.worker.agent.fitting import Fitting
from acts_celery.worker.agent.openai_chat import OpenAIChat
from acts_celery.worker.agent.sdk_model import SdkModel
from acts_celery.worker.registry.activities import registry
from acts_celery.worker.registry.models import ModelRequest, ignore

from . import six_tools
from .as_sent import as_sent
from .server import Reply, delta, failing, model_server
from .tool_servers import STREAM, WIRES, OpenAIWire, Say, Speaker, Wire, output

DIALECTS: dict[str, Any] = {"openai": OpenAIChat, "anthropic": AnthropicMessages}


def six_calls() -> list[tuple[str, Any]]:
    return [(call["_tool"], {key: part for key, part in call.items() if key != "_tool"}) for call in six_tools.CALLS]


def asked(tools: Any = six_tools.REQUEST["tools"], schema: Any = six_tools.REQUEST["schema"]) -> ModelRequest:
    value = {**six_tools.REQUEST, "tools": tools, "schema": schema}
    request = replace(read_request(value, Environment(activities=registry.schemas())), is_native=True)
    config = {"model": "m", "max_output_tokens": 100, "wire": TOOLS, "tool_choice": "required"}
    return ModelRequest(render(request), function_schema(request), config)


def as_enforced(configured: ConfiguredModel) -> list[tuple[str, Any]]:
    """The six calls as a model writes them whose provider enforces what it is sent."""
    sent = Fitting(configured, DIALECTS[configured.provider].url).fitted(asked())
    schemas = {function.name: function.parameters for function in sent.functions if function.is_strict}
    calls = [(name, as_sent(given, schemas[name]) if name in schemas else given) for name, given in six_calls()]
    assert not any(compiled(schemas[name]).problems(given) for name, given in calls if name in schemas)
    return calls


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize(
    ("wire", "profile"), [("openai", "openai"), ("openai", "azure"), ("openai", "compatible"), ("anthropic", None)]
)
def test_the_agent_of_six_tools_runs_by_each_wire(wire: str, profile: Any, *, streams: bool) -> None:
    speaker = Speaker()
    calls = as_enforced(ConfiguredModel(model=f"{wire}:m", profile=profile))
    says = [Say(calls, "I look her up."), Say(words=six_tools.OUTPUT)]
    speaker.replies["six"] = [lambda kind, say=say: kind.reply(say, streams=streams) for say in says]  # type: ignore[misc]
    context = [{"type": "text", "message": "topic: six"}, *six_tools.REQUEST["context"]]
    with model_server(speaker) as server:
        url = server.url if wire == "openai" else server.url.removesuffix("/v1")
        models = {
            "native": {"model": f"{wire}:m", "base_url": url, "api_key": "k", "wire": "tools", "profile": profile}
        }
        with local([six_tools.ACTIVITIES], models=models) as client:
            request = {**six_tools.REQUEST, "context": context, "config": {"model": "native"}}
            result = client.submit_document(request).wait()
    assert speaker.broken == []
    assert {call.status for call in result.calls} == {"done"}, result.calls
    assert result.output == six_tools.EXPECTED


@pytest.mark.parametrize(("provider", "profile"), [("openai", "openai"), ("openai", "azure"), ("anthropic", None)])
def test_a_strict_provider_enforces_what_it_can_say_of_each_function(provider: str, profile: Any) -> None:
    configured = ConfiguredModel(model=f"{provider}:m", profile=profile)
    sent = Fitting(configured, DIALECTS[provider].url).fitted(asked())
    left = {function.tool for function in sent.functions if not function.is_strict}
    (finding,) = sent.findings
    assert all(f"{tool}: all functions together have" in finding for tool in left)
    assert left == (set() if provider == "openai" else {"place_order", "search_orders"})
    assert "add_note.note: it may have any property" in finding
    for function in sent.functions:
        if function.is_strict and provider == "openai":
            assert set(function.parameters["required"]) == set(function.parameters["properties"])


@pytest.mark.parametrize("enforce", ["off", "json"])
def test_nothing_is_enforced_of_functions_where_the_settings_say_so(enforce: Any) -> None:
    configured = ConfiguredModel(model="openai:m", profile="openai", enforce=enforce)
    sent = Fitting(configured, OpenAIChat.url).fitted(asked())
    assert not any(function.is_strict for function in sent.functions)
    assert (sent.must_call, sent.is_plain, sent.findings) == (False, True, ())


def test_parameters_with_names_that_anthropic_refuses_are_shown_in_words() -> None:
    tool = {"greet": {"properties": {"имя": {"type": "string"}}, "required": ["имя"]}}
    sent = Fitting(ConfiguredModel(model="anthropic:m"), AnthropicMessages.url).fitted(asked(tool))
    (greet, _) = sent.functions
    assert greet.parameters == {"type": "object", "properties": {}}
    assert "имя" in greet.description


def answer_of(reply: Callable[[Any], Reply], wire: str = "openai") -> Answer:
    async def ask(url: str) -> Answer:
        base = url if wire == "openai" else url.removesuffix("/v1")
        model = SdkModel(
            DIALECTS[wire](), ConfiguredModel(model=f"{wire}:m", base_url=base, api_key="k"), Bounds(9_000, 4)
        )
        try:
            return await model.ask(asked(), ignore)
        finally:
            await model.close()

    with model_server(reply) as server:
        return asyncio.run(ask(server.url))


@pytest.mark.parametrize("wire", WIRES)
def test_a_provider_that_refuses_what_is_to_be_enforced_is_asked_once_without_it(wire: str) -> None:
    bodies: list[Any] = []

    def reply(body: Any) -> Reply:
        bodies.append(body)
        if body["tool_choice"] in ("required", {"type": "any"}):
            return failing(400, "tool_choice is not supported")
        return WIRES[wire].reply(Say([output("x")]), streams=True)

    answer = answer_of(reply, wire)
    assert answer.text == '{"calls": [], "output": "x"}'
    assert "tool_choice is not supported" in answer.findings[-1]
    assert len(bodies) == 2


def piece(index: Any = None, id: Any = None, name: Any = None, arguments: Any = None) -> dict[str, Any]:
    function = {key: part for key, part in (("name", name), ("arguments", arguments)) if part is not None}
    said = {"index": index, "id": id, "function": function}
    return {key: part for key, part in said.items() if part is not None}


ONE = {"_tool": "refund", "order_id": "1"}
TWO = {"_tool": "refund", "order_id": "2"}
NOTE = {"_tool": "add_note", "note": "x"}
GIVEN = '{"order_id": "1"}'
GIVEN_TWO = '{"order_id": "2"}'
NOTED = '{"note": "x"}'
ODD: list[tuple[list[Any], list[Any]]] = [
    ([piece(0, name="refund", arguments=GIVEN)], [ONE]),
    ([piece(None, "a", "refund", {"order_id": "1"})], [ONE]),
    # The arguments of the second one are missing: they are not taken for none.
    ([piece(None, "a", "refund", GIVEN), piece(None, "b", "refund", "")], [ONE, {"_tool": "refund", "_arguments": ""}]),
    ([piece(0, "a", "refund", "{}"), piece(0, "b", "refund", "{}")], [{"_tool": "refund"}, {"_tool": "refund"}]),
    ([5, None, piece(0, "a", "x")], [{"_tool": "x"}]),
    # Opened together.
    ([piece(0, "a", "refund", ""), piece(1, "b", "add_note", ""), piece(0, arguments=GIVEN),
      piece(1, arguments=NOTED)], [ONE, NOTE]),
    ([piece(0, "a", "refund", '{"order'), piece(1, "b", "add_note", '{"no'), piece(1, arguments='te": "x"}'),
      piece(0, arguments='_id": "1"}')], [ONE, NOTE]),
    # The second one first: the index says which is which.
    ([piece(1, "b", "add_note", NOTED), piece(0, "a", "refund", GIVEN)], [ONE, NOTE]),
    # The id, or the name, comes later.
    ([piece(0, None, "refund", ""), piece(0, "a", None, GIVEN)], [ONE]),
    ([piece(0, "a"), piece(0, None, "refund"), piece(0, arguments=GIVEN)], [ONE]),
    ([piece(0, "a", None, GIVEN), piece(0, None, "refund")], [ONE]),
    # Neither index nor id: by name, else the call before.
    ([piece(name="refund", arguments=GIVEN), piece(name="add_note", arguments=NOTED)], [ONE, NOTE]),
    ([piece(name="refund", arguments=GIVEN), piece(name="refund", arguments=GIVEN_TWO)], [ONE, TWO]),
    ([piece(name="refund", arguments='{"order'), piece(arguments='_id": "1"}')], [ONE]),
    ([piece(name="refund"), piece(None, "a", None, GIVEN)], [ONE]),
    # All with the index 0 and their own ids; two with one id.
    ([piece(0, "a", "refund", '{"order_id": '), piece(0, None, None, '"1"}'), piece(0, "b", "add_note", NOTED)],
     [ONE, NOTE]),
    ([piece(0, "a", "refund", '{"order_id": '), piece(0, "b", "add_note", '{"note": '), piece(0, "a", None, '"1"}'),
      piece(0, "b", None, '"x"}')], [ONE, NOTE]),
    ([piece(0, "a", "refund", GIVEN), piece(1, "a", "refund", GIVEN_TWO)], [ONE, TWO]),
    # Each piece with an id of its own, and the name in each.
    ([piece(0, "a", "refund", '{"order_id": '), piece(0, "b", None, '"1"}'), piece(0, "c", None, "")], [ONE]),
    ([piece(0, "a", "refund", '{"order_id": '), piece(0, "a", "refund", '"1"}')], [ONE]),
    ([piece(0, "a", "refund", "{}"), piece(0, None, None, " ")], [{"_tool": "refund"}]),
]  # fmt: skip


@pytest.mark.parametrize(("calls", "expected"), ODD)
def test_calls_are_read_however_servers_count_them(calls: list[Any], expected: list[Any]) -> None:
    chunks = [delta(tool_calls=[call]) for call in calls]
    answer = answer_of(lambda _: Reply([*chunks, *OpenAIWire.end("tool_calls")], headers=STREAM))
    assert json.loads(answer.text)["calls"] == expected
    together = [delta(tool_calls=calls)]
    answer = answer_of(lambda _: Reply([*together, *OpenAIWire.end("tool_calls")], headers=STREAM))
    assert json.loads(answer.text)["calls"] == expected


SCATTERED = [
    [piece(0, "a")],  # no name
    [piece(arguments=GIVEN)],  # of no call
    [piece(0, "a", "refund", GIVEN), piece(1, arguments=GIVEN)],
    [piece(0, "a", "refund", GIVEN), piece(0, arguments=GIVEN_TWO)],  # behind a whole one
    [piece(0, "a", "refund", "{}"), piece(0, arguments=GIVEN)],  # a placeholder
    [piece(name="refund"), piece(name="add_note"), piece(arguments=GIVEN), piece(arguments=NOTED)],
    [piece(name="refund", arguments='{"order_id": "'), piece(name="refund", arguments="{}"), piece(arguments='"}')],
    [piece(0, "a", "refund", ""), piece(0, "b", "add_note", ""), piece(0, arguments=GIVEN)],
]


@pytest.mark.parametrize("calls", SCATTERED)
def test_pieces_that_belong_to_no_call_make_the_answer_invalid(calls: list[Any]) -> None:
    chunks = [delta(tool_calls=[call]) for call in calls]
    with pytest.raises(InvalidAnswer, match="cannot be put together"):
        answer_of(lambda _: Reply([*chunks, *OpenAIWire.end("tool_calls")], headers=STREAM))


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("streams", [True, False])
def test_arguments_that_are_too_long_end_the_answer(wire: str, *, streams: bool) -> None:
    kind: Wire = WIRES[wire]
    say = Say([("refund", {"order_id": "1", "reason": "x" * 20_000})])
    with pytest.raises(InvalidAnswer, match="more than 9000 bytes"):
        answer_of(lambda _: kind.reply(say, streams=streams), wire)
