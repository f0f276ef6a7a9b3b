"""The provider `openai` against servers that others wrote: aimock (npm), llmock and xllamacpp (PyPI).

What they cannot be made to do, the server of `tests.models.server` does.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import Request as Http
from urllib.request import urlopen

import pytest

from acts_celery import Answer, InvalidAnswer, ModelError, RateLimited, Truncated, Unreachable, Usage
from acts_celery.broker_config import ConfiguredModel, load
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.plan.submission import read_submission
from acts_celery.protocol.requests import Request, compose, read_answer, read_request, render
from acts_celery.protocol.requests.reading import decoded
from acts_celery.protocol.requests.tool_texts import function_schema
from acts_celery.protocol.schemas import compiled
from acts_celery.worker.agent.anthropic_messages import AnthropicMessages
from acts_celery.worker.agent.asking import Models
from acts_celery.worker.agent.clients import Bounds
from acts_celery.worker.agent.openai_chat import OpenAIChat
from acts_celery.worker.agent.sdk_model import SdkModel
from acts_celery.worker.registry.activities import Registry
from acts_celery.worker.registry.models import ModelRequest, ignore
from tests.models.asked import OUTPUT, on_thread, request

from .installed import XLLAMACPP, free_port, node_package, python_with, serving

pytestmark = pytest.mark.nightly

HERE = Path(__file__).parent
DIALECTS: dict[str, Any] = {"openai": OpenAIChat, "anthropic": AnthropicMessages}
ANSWERS = 40
TRIALS = 5
MOST_TRIALS = 20


CALLED = [
    {"name": "greet", "arguments": '{"name": "Ann", "_outputPath": "†state.g"}'},
    {"name": "output", "arguments": '{"output": "†state.g"}'},
]


def fixture_file(path: Path) -> Path:
    """What aimock answers, by the user's words."""

    def error(word: str, status: int, message: str) -> dict[str, Any]:
        return {"match": {"userMessage": word}, "response": {"error": {"message": message}, "status": status}}

    def said(word: str, content: str, **parts: Any) -> dict[str, Any]:
        response: dict[str, Any] = {"content": content}
        response |= {key: parts.pop(key) for key in ("finishReason", "usage") if key in parts}
        return {"match": {"userMessage": word}, "response": response, **parts}

    long = json.dumps({"output": "long " * 100})
    fixtures = [
        error("rate", 429, "slow down"),
        error("boom", 500, "internal"),
        said("trunc", '{"calls": [{"_tool": "gre', finishReason="length"),
        said("slow", '{"output": 1}', latency=300),
        {"match": {"userMessage": "functions"}, "response": {"toolCalls": CALLED}},
        said("cut", long, truncateAfterChunks=5),
        {**error("flaky", 503, "busy"), "match": {"userMessage": "flaky", "sequenceIndex": 0}},
        {**said("flaky", '{"output": "second"}'), "match": {"userMessage": "flaky", "sequenceIndex": 1}},
        {
            **said("solve", '{"output": "Привет"}', usage={"prompt_tokens": 111, "completion_tokens": 22}),
            "match": {"userMessage": "solve", "responseFormat": "json_schema"},
        },
    ]
    path.write_text(json.dumps({"fixtures": fixtures}), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def aimock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("aimock")
    script = node_package(folder / "installed", "@copilotkit/aimock@1", "llmock")
    port, fixtures = free_port(), fixture_file(folder / "fixtures.json")
    command = ["node", str(script), "-p", str(port), "-f", str(fixtures), "--strict", "--log-level", "warn"]
    with serving(command, port, folder / "log") as url:
        yield url


@pytest.fixture(scope="module")
def llmock_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return python_with(tmp_path_factory.mktemp("llmock") / "installed", "llmock>=0.2,<0.3").with_name("llmock")


@pytest.fixture(params=[0.3])
def llmock(request: pytest.FixtureRequest, llmock_program: Path, tmp_path: Path) -> Iterator[str]:
    """The server, which sends away a share of the requests."""
    port = free_port()
    command = [str(llmock_program), "serve", "--port", str(port), "--error-rate-429", str(request.param)]
    with serving([*command, "--log-level", "warning"], port, tmp_path / "log") as url:
        yield url


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("llama")
    python = str(python_with(folder / "installed", XLLAMACPP, "gguf", "numpy"))
    model, log = folder / "random.gguf", (folder / "log").open("wb")
    subprocess.run([python, str(HERE / "random_model.py"), str(model)], check=True, timeout=60)
    command = [python, str(HERE / "llama_server.py"), str(model)]
    with (
        log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"{process.stdout.readline().strip()}/v1"
        finally:
            process.stdin.close()
            process.terminate()


def ask(url: str, *requests: ModelRequest, wire: str = "openai") -> list[Answer | ModelError]:
    """What comes of requests, asked one after the other, each once."""

    async def asked() -> list[Answer | ModelError]:
        configured = ConfiguredModel(model=f"{wire}:m", base_url=url, api_key="sk-test")
        model = SdkModel(DIALECTS[wire](), configured, Bounds(1_000_000, 4))
        found: list[Answer | ModelError] = []
        for one in requests:
            try:
                found.append(await model.ask(one, ignore))
            except ModelError as error:
                found.append(error)
        await model.close()
        return found

    return asyncio.run(asked())


def ask_by_settings(url: str, *requests: ModelRequest) -> list[Answer]:
    """What comes of requests that are asked at the same time, and again where that may help."""

    async def asked() -> list[Answer]:
        settings = load(env_file=None, model="openai:gpt-4o", model_base_url=url, model_api_key="sk-test")
        models = Models(settings, Registry(), on_thread)
        answers = await asyncio.gather(*map(models.ask, requests))
        await models.close()
        return answers

    return asyncio.run(asked())


def said(word: str, schema: Any = OUTPUT) -> ModelRequest:
    return request(word, schema=schema, config={"model": "m"})


@pytest.mark.parametrize(
    ("word", "kind", "words"),
    [
        ("rate", RateLimited, "429: slow down"),
        ("boom", Unreachable, "500: internal"),
        ("trunc", Truncated, "longer than max_output_tokens"),
        ("cut", (Truncated, Unreachable), ""),
    ],
)
def test_aimock_what_goes_wrong_has_its_type(aimock: str, word: str, kind: Any, words: str) -> None:
    (found,) = ask(aimock, said(word))
    assert isinstance(found, kind)
    assert words in str(found)


def test_aimock_an_answer_and_its_usage_are_read_however_slowly_it_comes(aimock: str) -> None:
    solved, slow = ask(aimock, said("solve"), said("slow"))
    assert isinstance(solved, Answer)
    assert (solved.text, solved.usage) == ('{"output": "Привет"}', Usage(111, 22))
    assert isinstance(slow, Answer)
    assert slow.text == '{"output": 1}'


def test_aimock_speaks_messages_as_the_provider_anthropic_does(aimock: str) -> None:
    (answer,) = ask(aimock.removesuffix("/v1"), said("slow"), wire="anthropic")
    assert isinstance(answer, Answer)
    assert answer.text == '{"output": 1}'
    assert answer.usage is not None


def functions_of(text: str, tools: Any, choice: str = "required") -> tuple[Request, ModelRequest]:
    """A request whose tools go as functions, and what a model is asked."""
    value = {"context": [{"type": "text", "message": text}], "schema": {"type": "string"}, "tools": tools}
    native = replace(read_request(value, Environment()), is_native=True)
    config = {"model": "m", "max_output_tokens": 600, "wire": "tools", "tool_choice": choice}
    return native, ModelRequest(render(native), function_schema(native), config)


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_aimock_calls_functions_by_both_wires(aimock: str, wire: str) -> None:
    tools = {"greet": {"properties": {"name": {"type": "string"}}, "required": ["name"]}}
    url = aimock if wire == "openai" else aimock.removesuffix("/v1")
    (answer,) = ask(url, functions_of("functions", tools)[1], wire=wire)
    assert isinstance(answer, Answer)
    assert json.loads(answer.text) == {
        "calls": [{"_tool": "greet", "name": "Ann", "_outputPath": "†state.g"}],
        "output": "†state.g",
    }


def test_aimock_what_passes_is_asked_again(aimock: str) -> None:
    (answer,) = ask_by_settings(aimock, request("flaky", schema=OUTPUT))
    assert answer.text == '{"output": "second"}'


def test_llmock_judges_that_every_fault_was_handled_rightly(llmock: str, llmock_program: Path) -> None:
    schema = {**OUTPUT, "properties": {"output": {"enum": ["a", "b"]}}, "additionalProperties": False}
    answers = ask_by_settings(llmock, *(request(f"number {number}", schema=schema) for number in range(20)))
    assert all(not compiled(schema).problems(json.loads(answer.text)) for answer in answers)
    command = [str(llmock_program), "report", "--strict", "--url", llmock.removesuffix("/v1")]
    report = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert report.returncode == 0, report.stdout
    assert "0 fault(s) injected" not in report.stdout


@pytest.mark.parametrize("llmock", [0], indirect=True)
@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_llmock_calls_functions_rightly_and_wrongly_by_both_wires(llmock: str, wire: str) -> None:
    base = llmock.removesuffix("/v1")
    tools = {"refund": {"properties": {"order": {"type": "string"}, "_outputPath": {"const": "†state.refunded"}}}}
    asked, model_request = functions_of("Refund order 7.", tools)
    found = list[Any]()
    for fault in (None, "malformed_arguments", "unknown_tool"):
        if fault is not None:
            faults = {"behaviors": [{"type": "tool_fault", "kind": fault}]}
            urlopen(Http(f"{base}/_llmock/scenario", json.dumps(faults).encode()), timeout=10).close()
        (answer,) = ask(llmock if wire == "openai" else f"{base}/anthropic", model_request, wire=wire)
        assert isinstance(answer, Answer), answer
        read = read_answer(asked, answer.text)
        found.append([len(read.calls) + (read.output is not None), *(error.message for error in read.errors)])
    right, malformed, unknown = found
    assert right == [1]  # of the output, perhaps: it chooses by words of the conversation
    assert "cannot be read" in malformed[1]
    assert "declares no tool" in unknown[1]


TOOLS = {
    "greet": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "_outputPath": {"enum": ["†state.greeting", "†state.other"]}},
        "required": ["name", "_outputPath"],
        "additionalProperties": False,
    },
    "count": {
        "type": "object",
        "properties": {
            "of": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
            "_output": {"type": "integer"},
        },
        "required": ["of"],
    },
}


def test_xllamacpp_random_answers_that_its_grammar_admits_are_read_and_held_against_the_truth(llama: str) -> None:
    """A model with random weights writes random plans. llama.cpp drops a pattern that has no end, such as `^†[^†]`."""
    value = {"context": [{"type": "input", "name": "A"}], "schema": {"type": "integer"}, "tools": TOOLS}
    submission, problems = read_submission(value, Environment().limits)
    assert not problems
    asked = Request(submission, Environment())
    schema = compose(asked)
    model_request = ModelRequest(render(asked), schema, {"model": "m", "temperature": 1.5, "max_output_tokens": 600})
    found = ask(llama, *[model_request] * ANSWERS)
    whole = [one for one in found if isinstance(one, Answer)]
    # It fails by itself where a text is not what its own parser expects, and then closes the connection.
    assert {type(one) for one in found} <= {Answer, Truncated, InvalidAnswer, Unreachable}, found
    assert len(whole) >= ANSWERS // 4
    assert all(one.findings == () for one in whole), whole[0].findings
    fitting = 0
    for one in whole:
        misfits = compiled(schema).problems(decoded(one.text))
        answer = read_answer(asked, one.text)
        fitting += not misfits
        assert answer.errors or not misfits, one.text
    assert fitting >= 1


def test_xllamacpp_random_calls_of_functions_are_read_and_held_against_the_truth(llama: str) -> None:
    """Its grammar begins where the model has written, among random words, that it calls a function."""
    asked, model_request = functions_of("Call something.", TOOLS)
    asking = replace(model_request, config={**model_request.config, "temperature": 1.0})
    found, called = list[Answer | ModelError](), list[Answer]()
    for _ in range(MOST_TRIALS):  # of random bytes the server itself refuses most
        found = ask(llama, *[asking] * (ANSWERS // 4))
        assert {type(one) for one in found} <= {Answer, Truncated, InvalidAnswer, Unreachable}, found
        whole = [one for one in found if isinstance(one, Answer)]
        if called := [one for one in whole if decoded(one.text) != {"calls": [], "output": None}]:
            break
    assert called, found
    for one in called:
        assert not any("_arguments" in call for call in decoded(one.text)["calls"]), one.text  # its grammar is JSON's
        answer = read_answer(asked, one.text)
        assert answer.errors or not compiled(function_schema(asked)).problems(decoded(one.text)), one.text
