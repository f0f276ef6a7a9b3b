"""The agent of `six_tools` runs, whatever stands between it and its model: requests are held against the provider's
documented rules and against its SDK's own types, and the answer is written as the schema that was sent demands it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from pydantic import TypeAdapter

from acts_celery import Result, local
from acts_celery.protocol.schemas import compiled
from acts_celery.worker.agent.prices import PROFILES

from . import six_tools
from .as_sent import as_sent
from .provider_rules import anthropic_refusal, openai_refusal
from .server import ModelServer, Reply, failing, model_server, streamed
from .test_anthropic import streamed as anthropic_streamed

ANSWERS = ({"calls": six_tools.CALLS, "output": None}, {"calls": [], "output": six_tools.OUTPUT})


def run(model: str, **settings: Any) -> Result:
    with local([six_tools.ACTIVITIES], model=model, **settings) as client:
        return client.submit_document(six_tools.REQUEST).wait()


def verify_result(result: Result) -> None:
    assert {call.status for call in result.calls} == {"done", "sent"}, result.calls
    assert [call.tool for call in result.calls] == [call["_tool"] for call in six_tools.CALLS]
    assert (result.status, result.output) == ("completed", six_tools.EXPECTED)


def answering(
    refusal: Callable[[Any], str | None], schema_of: Callable[[Any], Any], reply: Callable[[str], Reply]
) -> Callable[[Any], Reply]:
    """A server that holds requests to a provider's rules, and answers tick after tick as the schema demands it."""
    left: Iterator[Mapping[str, Any]] = iter(ANSWERS)

    def written(body: Any) -> Any:
        value, schema = next(left), schema_of(body)
        if schema is None:
            return value
        assert not compiled(schema).problems(as_sent(value, schema))
        return as_sent(value, schema)

    def answer(body: Any) -> Reply:
        try:
            words = refusal(body)
            return failing(400, words) if words is not None else reply(json.dumps(written(body), ensure_ascii=False))
        except Exception as error:  # which would look as if nobody were there
            return failing(404, repr(error))

    return answer


def verify_typed(body: Mapping[str, Any], params: Any) -> None:
    """The body is one that the SDK itself would send: its types admit it, and know every part of it."""
    assert not body.keys() - get_type_hints(params).keys()
    adapter = TypeAdapter[Any](params)  # which has to live as long as what it reads lazily
    for part in adapter.validate_python(body).values():
        if type(part).__name__ == "ValidatorIterator":
            list(part)


def openai_schema(body: Any) -> Any:
    format_ = body.get("response_format", {})
    return format_["json_schema"]["schema"] if format_.get("type") == "json_schema" else None


def anthropic_schema(body: Any) -> Any:
    return body.get("output_config", {}).get("format", {}).get("schema")


def test_the_agent_of_six_tools_runs_with_a_scripted_model(tmp_path: Path) -> None:
    script = tmp_path / "answers.json"
    script.write_text(json.dumps([{"when": "", "answer": answer, "times": 1} for answer in ANSWERS]), "utf-8")
    verify_result(run(f"scripted:{script}"))


@pytest.mark.parametrize("profile", PROFILES)
def test_the_agent_of_six_tools_runs_by_every_profile_of_chat_completions(profile: str) -> None:
    refusal = openai_refusal if profile in ("openai", "azure") else lambda body: None
    with model_server(answering(refusal, openai_schema, streamed)) as server:
        verify_result(run("openai:m", model_base_url=server.url, model_profile=profile))
        verify_asked(server)
        formats = [asked.body.get("response_format", {}).get("type") for asked in server.asked]
        assert formats == [{"json": "json_object", "text": None}.get(profile, "json_schema")] * 2
    for asked in server.asked:
        verify_typed(asked.body, CompletionCreateParamsStreaming)


def test_the_agent_of_six_tools_runs_with_structured_outputs_of_messages() -> None:
    with model_server(answering(anthropic_refusal, anthropic_schema, anthropic_streamed)) as server:
        url = server.url.removesuffix("/v1")
        verify_result(run("anthropic:m", model_base_url=url, model_api_key="k"))
        verify_asked(server)
    for asked in server.asked:
        assert anthropic_schema(asked.body) is not None
        verify_typed(asked.body, MessageCreateParamsStreaming)


def verify_asked(server: ModelServer) -> None:
    """Each tick is asked once: nothing was refused."""
    assert len(server.asked) == len(ANSWERS)
