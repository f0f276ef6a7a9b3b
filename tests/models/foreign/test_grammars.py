"""The schemas that are sent, held against the engines with which servers enforce them: each takes them, and whatever
the truth admits can be written by its grammar (SPEC R12.6: never narrower).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from acts_celery.broker_config import load
from acts_celery.protocol.requests import compose
from acts_celery.protocol.schemas import compiled
from acts_celery.worker.agent.prices import PROFILES
from acts_celery.worker.agent.wire_schema import wire_schema
from acts_celery.worker.runner.checking import Checker
from tests.models import six_tools
from tests.models.as_sent import as_sent
from tests.protocol.composed_samples import answers
from tests.protocol.foreign_plans import nestful, of_nestful

from .grammar_engines import ENGINES
from .installed import XLLAMACPP, llama_grammar, python_with

pytestmark = pytest.mark.nightly

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
