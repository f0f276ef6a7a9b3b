"""Models by their names (SPEC R13.4, R13.11), and how `acts doctor` tries them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from acts_celery import (
    Answer,
    BadRequest,
    ContextTooLong,
    InvalidAnswer,
    RateLimited,
    Truncated,
    Unreachable,
    Usage,
    WorkerError,
)
from acts_celery.broker_config import ConfiguredModel, Settings, SettingsError, load
from acts_celery.protocol import Rejected
from acts_celery.worker.agent import asking
from acts_celery.worker.agent.asking import Models, verify_fits, verify_models
from acts_celery.worker.backoff import Backoff
from acts_celery.worker.cli.doctor_layers import Layer
from acts_celery.worker.cli.doctor_layers import examined as looked_at
from acts_celery.worker.registry.activities import RegisteredModel, Registry
from acts_celery.worker.registry.models import Model, ModelRequest, ignore
from acts_celery.worker.runner.checking import Checker

from .asked import on_thread, request
from .server import Reply, failing, model_server

# Which model is asked, how often, and what is asked in its stead (SPEC R13.4, R13.11).

Said = Callable[[], Any]


class Speaker:
    """A registered model that does one thing after the other, and notes what it was asked."""

    def __init__(self, *doings: Any) -> None:
        self._doings = list(doings)
        self.asked: list[Mapping[str, Any]] = []

    async def __call__(self, messages: Sequence[Mapping[str, str]], schema: Any, config: Mapping[str, Any]) -> Any:
        self.asked.append(config)
        doing = self._doings.pop(0)
        if isinstance(doing, Exception):
            raise doing
        return doing


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_BACKOFF", Backoff(0.001, 20.0, jitter=True))


@pytest.fixture
def registry() -> Registry:
    return Registry()


def models(registry: Registry, settings: Settings, **speakers: Speaker) -> Models:
    for name, speaker in speakers.items():
        registry.add_model(RegisteredModel(name, speaker.__call__))
    return Models(settings, registry, on_thread)


def asked(models: Models, **config: Any) -> Answer:
    return asyncio.run(models.ask(request("hello", config=config)))


def configured(**settings: Any) -> Settings:
    return load(env_file=None, **settings)


def test_the_default_model_is_asked_where_none_is_named_under_its_own_name(registry: Registry) -> None:
    speaker = Speaker({"output": 1}, {"output": 2}, {"output": 3})
    them = models(registry, configured(model="a:large"), a=speaker)
    assert [asked(them).text, asked(them, model="large").text, asked(them, model="a:large").text] == [
        '{"output": 1}',
        '{"output": 2}',
        '{"output": 3}',
    ]
    assert [config["model"] for config in speaker.asked] == ["large"] * 3


def test_a_named_model_is_one_of_the_settings_or_a_registered_one(registry: Registry) -> None:
    settings = configured(models=json.dumps({"quick": {"model": "b:small"}}))
    them = models(registry, settings, a=Speaker({"output": "a"}), b=Speaker({"output": "b"}))
    assert json.loads(asked(them, model="quick").text) == {"output": "b"}
    assert json.loads(asked(them, model="a").text) == {"output": "a"}
    with pytest.raises(BadRequest, match="no model 'large' is configured"):
        asked(them, model="large")
    with pytest.raises(BadRequest, match="no model is configured"):
        asked(them)


@pytest.mark.parametrize("passing", [RateLimited("slow down"), Unreachable("no connection")])
def test_what_passes_is_asked_again(registry: Registry, passing: Exception) -> None:
    speaker = Speaker(passing, passing, {"output": 1})
    assert asked(models(registry, configured(model="a:x"), a=speaker)).text == '{"output": 1}'
    assert len(speaker.asked) == 3


@pytest.mark.parametrize("lasting", [BadRequest("wrong key"), Truncated("cut"), InvalidAnswer("no JSON")])
def test_what_does_not_pass_is_asked_once(registry: Registry, lasting: Exception) -> None:
    speaker = Speaker(lasting)
    with pytest.raises(type(lasting), match=str(lasting)):
        asked(models(registry, configured(model="a:x"), a=speaker))
    assert len(speaker.asked) == 1


def test_it_is_not_waited_for_what_would_come_too_late(registry: Registry) -> None:
    speaker = Speaker(RateLimited("tomorrow", retry_after_seconds=86_400))
    with pytest.raises(RateLimited, match="tomorrow"):
        asked(models(registry, configured(model="a:x"), a=speaker), request_seconds=30)
    assert len(speaker.asked) == 1


def test_a_model_that_may_be_asked_again_at_once_is_asked_after_the_backoff(registry: Registry) -> None:
    speaker = Speaker(RateLimited("busy", retry_after_seconds=0.0), {"output": 1})
    waits: list[float] = []
    registry.add_model(RegisteredModel("a", speaker.__call__))
    them = Models(configured(model="a:x"), registry, on_thread, lambda error, tries, seconds: waits.append(seconds))
    assert asked(them).text == '{"output": 1}'
    assert [wait > 0 for wait in waits] == [True]


def test_a_functions_own_timeout_is_not_the_deadline_of_the_request(registry: Registry) -> None:
    with pytest.raises(TimeoutError, match="its database"):
        asked(models(registry, configured(model="a:x"), a=Speaker(TimeoutError("its database"))))


def test_a_request_has_a_deadline_that_a_config_can_only_shorten(registry: Registry) -> None:
    async def silent(messages: Any, schema: Any, config: Any) -> Any:
        await asyncio.Event().wait()

    registry.add_model(RegisteredModel("a", silent))
    for setting, seconds in ((300.0, 0.01), (0.01, 300)):
        them = Models(configured(model="a:x", model_request_seconds=setting), registry, on_thread)
        with pytest.raises(Unreachable, match=r"within 0\.01 seconds"):
            asked(them, request_seconds=seconds)


def test_fallbacks_are_asked_in_their_order_before_anything_is_waited_for(registry: Registry) -> None:
    named = {"second": {"model": "b:x"}, "third": {"model": "c:x"}}
    settings = configured(model="a:x", model_fallbacks="second,third", models=json.dumps(named))
    speakers = {
        "a": Speaker(RateLimited("busy"), RateLimited("busy")),
        "b": Speaker(Unreachable("away"), {"output": "b"}),
        "c": Speaker(Unreachable("away")),
    }
    assert asked(models(registry, settings, **speakers)).text == '{"output": "b"}'
    assert [len(speaker.asked) for speaker in speakers.values()] == [2, 2, 1]


def test_a_fallback_is_not_asked_what_was_refused(registry: Registry) -> None:
    settings = configured(model="a:x", model_fallbacks="b", models='{"b": {"model": "b:x"}}')
    second = Speaker({"output": 1})
    with pytest.raises(BadRequest, match="wrong key"):
        asked(models(registry, settings, a=Speaker(BadRequest("wrong key")), b=second))
    assert second.asked == []


def test_an_answer_of_which_something_was_heard_is_not_asked_for_again() -> None:
    class Breaking(Model):
        async def ask(self, request: ModelRequest, on_text: Callable[[str], None]) -> Answer:
            on_text('{"calls": [')
            raise Unreachable("the connection broke")

    candidates = [asking.Candidate(Breaking(), "x")]
    with pytest.raises(Truncated, match="broke off: the connection broke"):
        asyncio.run(asking.answered(candidates, request("a"), lambda _: None, 30, lambda *_: None))


@pytest.mark.parametrize(("most", "least_seconds"), [(5, 0.02), (None, 0.0)])
def test_an_answer_of_a_model_with_a_limit_tells_when_its_provider_had_the_request(
    most: int | None, least_seconds: float
) -> None:
    class Slow(Model):
        async def ask(self, request: ModelRequest, on_text: Callable[[str], None]) -> Answer:
            await asyncio.sleep(0.02)
            on_text("{")
            await asyncio.sleep(0.02)
            return Answer("{}", "slow")

    candidates = [asking.Candidate(Slow(), "x", configured=ConfiguredModel(model="a:x", requests_per_minute=most))]
    answer = asyncio.run(asking.answered(candidates, request("a"), lambda _: None, 30, lambda *_: None))
    assert least_seconds <= answer.heard_seconds <= answer.duration_seconds - least_seconds


def test_loading_what_it_takes_to_ask_a_model_is_not_its_time() -> None:
    """The SDK of a provider may take seconds to load from a cold disk."""
    seconds = 0.05

    class Cold(Model):
        async def prepare(self) -> None:
            await asyncio.sleep(4 * seconds)

        async def ask(self, *_: Any) -> Answer:
            return Answer("{}", "cold")

    asking_it = asking.answered([asking.Candidate(Cold(), "cold")], request("hello"), ignore, seconds, lambda *_: None)
    answer = asyncio.run(asking_it)
    assert (answer.text, answer.duration_seconds < seconds) == ("{}", True)


def test_an_answer_tells_its_usage_and_how_long_it_took(registry: Registry) -> None:
    given = Answer('{"output": 1}', "a-2026", Usage(10, 5, 2))
    answer = asked(models(registry, configured(model="a:x"), a=Speaker(given)))
    assert (answer.model, answer.usage) == ("a-2026", Usage(10, 5, 2))
    assert answer.duration_seconds > 0


def test_a_plain_function_may_be_a_model_too(registry: Registry) -> None:
    registry.add_model(RegisteredModel("a", lambda messages, schema, config: {"output": messages[0]["content"]}))
    assert asked(Models(configured(model="a:x"), registry, on_thread)).text == '{"output": "hello"}'


def test_what_a_function_returns_is_json_or_an_invalid_answer(registry: Registry) -> None:
    with pytest.raises(InvalidAnswer, match="not a JSON value"):
        asked(models(registry, configured(model="a:x"), a=Speaker({"output": float("nan")})))


def test_a_model_that_cannot_be_had_is_found_before_it_is_asked(registry: Registry) -> None:
    with pytest.raises(WorkerError, match="unknown provider 'gpt'"):
        verify_models(configured(model="gpt:5"), registry)
    with pytest.raises(WorkerError, match="No such file"):
        verify_models(configured(models='{"a": {"model": "scripted:none.json"}}'), registry)


@pytest.mark.parametrize(
    ("models", "said"),
    [
        ("{", "must be JSON"),
        ('{"a": {"model": "x"}}', "a: model: should be PROVIDER:NAME"),
        ('{"a": {"model": "x:y", "key": "sk-secret"}}', "a: key: Extra inputs"),
        ('{"a": {"model": "x:y", "api_key": 5}}', "a: api_key"),
        ('{"a": {"model": "x:y", "fallbacks": ["b"]}}', "it has no b, which is named as a fallback"),
    ],
)
def test_models_that_are_none_are_one_line_without_secrets(models: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        configured(models=models)
    assert said in str(caught.value)
    assert str(caught.value).startswith("ACTS_MODELS: ")
    assert "sk-secret" not in str(caught.value)


def test_settings_of_models_travel_to_other_processes_and_are_shown_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    one: dict[str, Any] = {"model": "openai:gpt", "base_url": "https://host/v1", "api_key": "sk-secret"}
    one |= {
        "context_tokens": 8_000,
        "wire": "tools",
        "fallbacks": [],
        "recording": "one.jsonl",
        "enforce": "json",
        "profile": "azure",
    }
    two: dict[str, Any] = {
        "model": "openai:gpt",
        "base_url": "https://user:pw@host/v1",
        "api_key": None,
        "context_tokens": None,
        "max_output_tokens": 900,
        "price": {"input": "2.5", "output": "10", "cached": "1.25", "written": None},
        "extra_body": '{"top_k": "hush"}',
        "enforce": "auto",
        "profile": None,
        "wire": "json",
        "fallbacks": [],
    }
    settings = configured(models=json.dumps({"one": one, "two": two}))
    sent = settings.to_environment()["ACTS_MODELS"]
    assert configured(models=sent).models == settings.models
    for name, given in (("one", one), ("two", two)):
        assert {key: value for key, value in json.loads(sent)[name].items() if key in given} == given
    shown = str(settings.masked()["models"]) + repr(settings)
    assert "sk-secret" not in shown
    assert ":pw@" not in shown
    assert "hush" not in str(settings.masked()["models"])


def test_what_the_default_model_has_besides_reaches_the_processes_that_ask_it() -> None:
    given = {"max_output_tokens": 900, "price": '{"input": 0.1, "output": 2}', "extra_body": '{"top_k": "hush"}'}
    settings = configured(model="openai:gpt", **{f"model_{key}": value for key, value in given.items()})
    model = settings.default_model
    assert model is not None
    assert model.price is not None
    assert (model.max_output_tokens, str(model.price.input), model.extra_body) == (900, "0.1", '{"top_k": "hush"}')
    sent = settings.to_environment()
    again = configured(**{key.removeprefix("ACTS_").lower(): sent[key] for key in sent if "MODEL" in key and sent[key]})
    assert again.default_model == model
    assert "hush" not in str(settings.masked())
    assert hash(model) == hash(again.default_model)  # clients are kept by their models


@pytest.mark.parametrize(
    ("extra_body", "words"),
    [
        ('{"messages": [], "n": 2}', "may not hold messages, n"),
        ('{"max_tokens": 9}', "may not hold max_tokens"),
        ("[1]", "must be an object"),
        ("{", "must be JSON"),
    ],
)
def test_what_requests_have_besides_is_an_object_without_what_the_engine_sets(extra_body: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        configured(model="openai:gpt", model_extra_body=extra_body)


@pytest.mark.parametrize("price", ['{"input": 1}', '{"input": -1, "output": 1}', '{"input": "NaN", "output": 1}', "5"])
def test_a_price_has_both_rates_and_none_below_zero(price: str) -> None:
    with pytest.raises(SettingsError):
        configured(model="openai:gpt", model_price=price)


def test_a_setting_that_a_model_or_its_fallback_does_not_have_is_not_left_out_silently(registry: Registry) -> None:
    settings = configured(
        model="openai:gpt",
        model_api_key="sk-1",
        models=json.dumps({"claude": {"model": "anthropic:c", "api_key": "sk-2"}}),
        model_fallbacks="claude",
    )
    with pytest.raises(BadRequest, match="anthropic:c has no seed"):
        asked(models(registry, settings), seed=5)
    definition = {"d": {"config": {"model": "claude", "seed": 1}}, "e": {"config": {"seed": 2, "top_p": 1}}}
    with pytest.raises(Rejected) as refused:
        Checker(settings, registry).check(
            {"solution": {"calls": []}, "config": {"model": "claude", "seed": 3}, "delegates": definition}
        )
    found = {problem.pointer: problem.message for problem in refused.value.errors}
    assert found.keys() == {"/config/seed", "/delegates/d/config/seed", "/delegates/e/config/seed"}
    assert found["/config/seed"] == "anthropic:c has no such setting: leave it out"


@pytest.mark.parametrize(
    ("wire", "profile", "most"), [("tools", "openai", 127), ("json", "openai", None), ("tools", "json", None)]
)
def test_r12_8_more_tools_than_a_provider_takes_as_functions_are_an_error(
    registry: Registry, wire: str, profile: str, most: int | None
) -> None:
    settings = configured(model="openai:m", model_api_key="k", model_wire=wire, model_profile=profile)

    def checked(count: int, at: str) -> set[str]:
        tools = {f"t{number}": {"properties": {"_delegate": {"const": "anonymous"}}} for number in range(count)}
        request = {"context": [{"type": "text", "message": "Do it."}], "schema": {"type": "string"}, "tools": tools}
        document = request if at == "" else {"solution": {"calls": []}, "delegates": {"d": request}}
        try:
            Checker(settings, registry).check(document)
        except Rejected as refused:
            return {problem.pointer for problem in refused.errors}
        return set()

    for at in ("", "/delegates/d"):
        assert checked(127, at) == set()
        assert checked(128, at) == (set() if most is None else {f"{at}/tools"})


def test_a_models_own_bound_of_its_answers_is_sent_where_a_config_does_not_say(registry: Registry) -> None:
    speaker = Speaker({"output": 1}, {"output": 2})
    them = models(registry, configured(model="a:x", model_max_output_tokens=900), a=speaker)
    for config in ({}, {"max_output_tokens": 5}):
        asked(them, **config)
    assert [each["max_output_tokens"] for each in speaker.asked] == [900, 5]


def varied(size: int) -> str:
    """A text of so many bytes in which nothing is repeated at once."""
    return "".join(f"{number:x}." for number in range(size))[:size]


def fits(text: str, context_tokens: int) -> None:
    verify_fits(request(text), ConfiguredModel(model="a:x", context_tokens=context_tokens))


def test_a_request_that_cannot_fit_the_stated_context_is_not_sent(registry: Registry) -> None:
    speaker = Speaker({"output": 1})
    them = models(registry, configured(model="a:x", model_context_tokens=100), a=speaker)
    with pytest.raises(ContextTooLong, match=r"about 5\d\d tokens, and a:x reads 100 .* not sent: .*config.show_bytes"):
        asyncio.run(them.ask(request(varied(2_000))))
    assert speaker.asked == []


def test_what_cannot_fit_is_asked_of_a_fallback_that_reads_more(registry: Registry) -> None:
    named = json.dumps({"large": {"model": "b:x", "context_tokens": 2_000}})
    settings = configured(model="a:x", model_context_tokens=100, model_fallbacks="large", models=named)
    first, second = Speaker({"output": "a"}), Speaker({"output": "b"})
    them = models(registry, settings, a=first, b=second)
    assert asyncio.run(them.ask(request(varied(2_000)))).text == '{"output": "b"}'
    assert first.asked == []


def test_what_may_fit_is_sent_and_told_of_where_it_probably_does_not(caplog: pytest.LogCaptureFixture) -> None:
    for text in (varied(300), " " * 300):
        fits(text, 200)
    assert caplog.messages == []
    for text in (varied(1_500), " " * 10_000, ("-" * 100 + " ") * 200):
        fits(text, 100)
    assert len(caplog.messages) == 3
    assert all("may be refused, or cut" in message for message in caplog.messages)


# What `acts doctor` says of models: whether they can be loaded, and reached (SPEC R13.11).

LIST = Reply([json.dumps({"object": "list", "data": [{"id": "m"}, {"id": "n"}]}).encode()])


def examined(**settings: Any) -> Layer:
    return looked_at("models", load(env_file=None, **settings))


@pytest.mark.parametrize(
    ("reply", "ok", "said"),
    [
        (LIST, True, "openai:m answers"),
        (failing(404, "no such path"), True, "openai:m answers"),
        (Reply([b"{}"]), True, "openai:m answers"),
        (Reply([b'{"data": 5}']), True, "openai:m answers"),
        (failing(401, "wrong key sk-4711-long"), False, "401: wrong key ***"),
        (failing(503, "down"), False, "503: down"),
    ],
)
def test_an_endpoint_is_asked_which_models_it_has(reply: Reply, ok: bool, said: str) -> None:
    with model_server(lambda body: reply) as server:
        layer = examined(model="openai:m", model_base_url=server.url, model_api_key="sk-4711-long")
        assert [asked.path for asked in server.asked] == ["/v1/models"]
    assert (layer.ok, said in layer.detail) == (ok, True), layer


def test_a_model_that_is_not_listed_is_named_with_those_that_are() -> None:
    with model_server(lambda body: LIST) as server:
        assert "lists no model x, but m, n" in examined(model="openai:x", model_base_url=server.url).detail


def test_an_endpoint_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acts_celery.worker.limits.ASKING_SECONDS", 0.2)
    never = threading.Event()
    with model_server(lambda body: Reply([b"{", never, b"}"])) as server:
        layer = examined(model="openai:m", model_base_url=server.url)
        never.set()
    assert (layer.ok, "openai:m has not answered within 0.2 s" in layer.detail) == (False, True)


def test_what_cannot_be_loaded_or_reached_says_what_to_do(tmp_path: Path) -> None:
    for settings, said in (
        ({"model": "gpt:5"}, "unknown provider 'gpt'"),
        ({"model": f"scripted:{tmp_path}/none.json"}, "No such file"),
        ({"model": "openai:m", "model_base_url": "http://127.0.0.1:1/v1"}, "does not answer"),
    ):
        layer = examined(**settings)
        assert (layer.ok, said in layer.detail, bool(layer.remedies)) == (False, True, True), layer


def test_without_a_key_there_is_nothing_to_ask_and_that_may_be_right() -> None:
    layer = examined(model="openai:m")
    assert (layer.ok, layer.remedies) == (True, ["set ACTS_MODEL_API_KEY where delegates run"])


def test_no_model_is_well() -> None:
    assert examined().ok
