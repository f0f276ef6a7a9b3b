"""Servers, grammars and chat templates of others."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.request import Request as Http
from urllib.request import urlopen

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from acts_celery import Answer, InvalidAnswer, ModelError, RateLimited, Truncated, Unreachable, Usage
from acts_celery.broker_config import ConfiguredModel, load
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.plan.submission import read_submission
from acts_celery.protocol.requests import Request, compose, read_answer, read_request, render, render_tick
from acts_celery.protocol.requests.reading import decoded
from acts_celery.protocol.requests.tool_texts import function_schema
from acts_celery.protocol.schemas import compiled
from acts_celery.worker.agent.asking import Models
from acts_celery.worker.agent.clients import Bounds
from acts_celery.worker.agent.dialects import AnthropicMessages, OpenAIChat
from acts_celery.worker.agent.fitting import Fitting
from acts_celery.worker.agent.prices import PROFILES
from acts_celery.worker.agent.sdk_model import SdkModel
from acts_celery.worker.agent.wire_schema import wire_schema
from acts_celery.worker.registry.activities import Registry, registry
from acts_celery.worker.registry.models import ModelRequest, ignore
from acts_celery.worker.runner.checking import Checker
from tests.models import six_tools
from tests.models.as_sent import as_sent
from tests.models.asked import OUTPUT, on_thread, request
from tests.protocol.composed_samples import answers
from tests.protocol.foreign_plans import nestful, of_nestful

from .grammar_engines import ENGINES
from .installed import XLLAMACPP, free_port, llama_grammar, node_package, python_with, serving

# The provider `openai` against servers that others wrote: aimock (npm), llmock and xllamacpp (PyPI).

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


# The schemas that are sent, held against the engines with which servers enforce them: each takes them, and whatever
# the truth admits can be written by its grammar (SPEC R12.6: never narrower).

OWN = "llama.cpp's own"
"""Its own converter and engine, which the wheel of `xllamacpp` may have without."""
SCRIPT = Path(__file__).with_name("grammar_engines.py")
PACKAGES = ("llguidance>=1,<2", "outlines-core>=0.2,<0.3", "regex", XLLAMACPP, "pydantic", "numpy")
SAMPLES = 25
FLOWS = 60
SECONDS = 600
RULES = {name: profile.rules for name, profile in PROFILES.items() if profile.rules is not None}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    found = str(python_with(tmp_path_factory.mktemp("engines") / "installed", *PACKAGES))
    # What xgrammar asks for besides has gigabytes, and is not needed to read a schema.
    own = [found, "-m", "pip", "install", "-qq", "--no-deps", "xgrammar", "apache-tvm-ffi", "typing_extensions"]
    subprocess.run(own, check=True, capture_output=True, timeout=SECONDS)
    return found


@dataclass(frozen=True)
class Engine:
    """An engine: its command. llama.cpp's own moves what is required before what may be left out, and has limits."""

    command: tuple[str, ...]
    is_own: bool = False


@pytest.fixture(scope="module", params=[*ENGINES, OWN])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """Each engine."""
    if request.param == OWN:
        return Engine((str(llama_grammar(tmp_path_factory.mktemp("llama") / "installed")),), is_own=True)
    return Engine((request.getfixturevalue("python"), str(SCRIPT), request.param))


def admitted(engine: Engine, cases: Sequence[Mapping[str, Any]]) -> list[Any]:
    """What an engine says of each case."""
    lines = "".join(f"{json.dumps(case)}\n" for case in cases)
    done = subprocess.run(engine.command, input=lines, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def composed(**request: Any) -> dict[str, Any]:
    """The composed schema of a request."""
    known = load(env_file=None, activities=(six_tools.ACTIVITIES,), model="openai:m")
    return compose(Checker(known).request({"context": [], "schema": {"type": "string"}, **request}))


def copied(call: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The call schema of another tool that is the same."""
    name = call["properties"]["_tool"]["const"]
    return {**call, "properties": {**call["properties"], "_tool": {"const": f"{name}{number}"}}}


def of_six_tools(copies: int) -> dict[str, Any]:
    """The composed schema of the six tools, so many times."""
    schema = composed(tools=list(six_tools.NAMES))
    calls = schema["properties"]["calls"]["items"]["anyOf"]
    more = [copied(call, number) for number in range(1, copies) for call in calls]
    items = {"anyOf": [*calls, *more]}
    properties = {**schema["properties"], "calls": {"type": "array", "items": items}}
    return {**schema, "properties": properties}


def sampled(schema: dict[str, Any]) -> list[Any]:
    """Answers that the truth admits."""
    found: list[Any] = [{"calls": six_tools.CALLS, "output": None}, {"calls": [], "output": six_tools.OUTPUT}]

    @settings(
        max_examples=SAMPLES,
        database=None,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(answers(schema))
    def collect(answer: Any) -> None:
        found.append(answer)

    collect()
    return found


def cases_of(engine: Engine, schema: dict[str, Any], values: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """What is sent of a schema by each profile, with answers as they are written by it."""
    for rules in RULES.values():
        sent = wire_schema(schema, rules).schema
        ordered = required_first(sent) if engine.is_own else sent
        written = [as_sent(value, ordered) for value in values]
        assert not any(compiled(sent).problems(value) for value in written)
        yield {"schema": sent, "texts": [json.dumps(value, ensure_ascii=False) for value in written]}


def required_first(schema: Any) -> Any:
    """A schema whose objects list what is required before what may be left out."""
    if isinstance(schema, list):
        return list(map(required_first, schema))
    if not isinstance(schema, dict):
        return schema
    written = {key: required_first(part) for key, part in schema.items()}
    if isinstance(properties := written.get("properties"), dict) and isinstance(needed := schema.get("required"), list):
        written["properties"] = dict(sorted(properties.items(), key=lambda named: named[0] not in needed))
    return written


def verify(engine: Engine, cases: Sequence[Mapping[str, Any]]) -> None:
    for case, said in zip(cases, admitted(engine, cases), strict=True):
        assert isinstance(said, list), said
        refused = [text for text, is_admitted in zip(case["texts"], said, strict=True) if not is_admitted]
        assert refused == []


@pytest.mark.parametrize("tools", [6, 20, 60])
def test_what_is_sent_of_tools_is_taken_and_admits_what_the_truth_admits(engine: Engine, tools: int) -> None:
    values = sampled(of_six_tools(1))
    verify(engine, list(cases_of(engine, of_six_tools(-(-tools // 6)), values)))


def test_what_is_sent_of_foreign_plans_is_taken_and_admits_them(engine: Engine) -> None:
    cases: list[dict[str, Any]] = []
    for _, value in of_nestful(most=FLOWS):
        schema = composed(tools=value["tools"])
        answer = {"calls": value["solution"]["calls"] if "solution" in value else [], "output": None}
        cases += cases_of(engine, schema, [answer] if not compiled(schema).problems(answer) else [])
    if not cases:
        pytest.skip("NESTFUL is not here (ACTS_NESTFUL)")
    verify(engine, cases)


def test_what_is_sent_of_all_foreign_tools_at_once_is_taken(engine: Engine) -> None:
    value = nestful()
    if value is None:
        pytest.skip("NESTFUL is not here (ACTS_NESTFUL)")
    sent = wire_schema(composed(tools=value["tools"]), RULES["compatible"]).schema
    cases = [{"schema": sent, "texts": ['{"calls": [], "output": null}']}]
    if engine.is_own:  # a hundred tools are too many rules for it; its server refuses them, and is asked without
        assert admitted(engine, cases) == ["its grammar cannot be read"]
    else:
        verify(engine, cases)


def test_what_no_tool_is_called_is_not_admitted(engine: Engine) -> None:
    schema = of_six_tools(1)
    calls = [{"_tool": "nothing"}, {"_tool": "refund"}, {**six_tools.CALLS[3], "amount": "ten"}]
    wrong = [{"calls": [call], "output": None} for call in calls]
    sent = wire_schema(schema, RULES["compatible"]).schema
    (said,) = admitted(engine, [{"schema": sent, "texts": list(map(json.dumps, wrong))}])
    assert said == [False] * len(wrong)


# What is sent to servers of open models, put through the chat templates that these servers use: none refuses it, and
# nothing that was said is missing from what the model reads.

SCRIPT_CHAT_TEMPLATES: Final = Path(__file__).with_name("chat_templates.py")
SECONDS_CHAT_TEMPLATES: Final = 600
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
def python_chat_templates(tmp_path_factory: pytest.TempPathFactory) -> str:
    found = str(python_with(tmp_path_factory.mktemp("templates") / "installed", "jinja2>=3.1,<4"))
    # What it asks for besides has gigabytes; its templates are text.
    own = [found, "-m", "pip", "install", "-qq", "--no-deps", "unsloth==2026.10.9"]
    subprocess.run(own, check=True, capture_output=True, timeout=SECONDS_CHAT_TEMPLATES)
    return found


def conversations(context: list[Any]) -> Iterator[list[dict[str, Any]]]:
    """What is sent for the first tick and for the second."""
    document = {"context": context, "schema": {"type": "string"}, "tools": six_tools.REQUEST["tools"]}
    request = read_request(document, Environment(activities=registry.schemas()))
    first = render(request)
    answer: dict[str, Any] = {"calls": [], "output": None}
    before = list(request.submission.context)
    error = {"type": "error", "data": {"call": None, "error": {"type": "Odd", "message": "no calls", "pointer": ""}}}
    second = [*first, *render_tick(request, 0, answer, (), [*before, error], [error])]
    second.append({"role": "system", "content": "Hurry up."})
    for messages in (first, second):
        yield [dict(each) for each in Fitting(MODEL, OpenAIChat.url).fitted(asked(messages, compose(request))).messages]


MODEL: Final = ConfiguredModel(model="openai:m", base_url="http://127.0.0.1:1/v1")


def asked(messages: list[dict[str, Any]], schema: Any) -> ModelRequest:
    return ModelRequest(messages, schema, {"model": "m"})


def sent(messages: list[dict[str, Any]], *without: str) -> list[dict[str, Any]]:
    """The messages as their body has them, for a server that refuses what is named."""
    fitted = Fitting(MODEL, OpenAIChat.url).fitted(ModelRequest(messages, None, {"model": "m"}))
    body = OpenAIChat().body(replace(fitted, without=frozenset(without)), MODEL)
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
def test_no_template_refuses_what_is_sent_or_leaves_any_of_it_out(
    python_chat_templates: str, context: list[Any]
) -> None:
    asked_for = list(conversations(context))
    given = [sent(messages, *without) for messages in asked_for for without in ((), ("system",))]
    done = subprocess.run(
        [python_chat_templates, str(SCRIPT_CHAT_TEMPLATES)],
        input="".join(json.dumps(each) + "\n" for each in given),
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS_CHAT_TEMPLATES,
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
