"""Settings: precedence, derived addresses, masking, and errors that name the variable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from acts_celery.broker_config import NotConfigured, Settings, SettingsError, load, unknown_variables
from acts_celery.broker_config.loading import left_out, mark


def test_everything_has_a_default() -> None:
    settings = load()
    assert settings.broker_url is None
    assert settings.activities == ()
    assert settings.limit_submission_bytes == 16 * 1024 * 1024


def test_every_setting_is_described() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_an_argument_beats_the_environment_which_beats_the_file_which_beats_the_default(
    clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load().limit_depth == 64
    (clean_environment / ".env").write_text("ACTS_LIMIT_DEPTH=10\n")
    assert load().limit_depth == 10
    monkeypatch.setenv("ACTS_LIMIT_DEPTH", "20")
    assert load().limit_depth == 20
    assert load(limit_depth=30).limit_depth == 30


def test_an_argument_of_none_counts_as_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTS_BROKER_URL", "redis://somewhere/0")
    assert load(broker_url=None).require_broker() == "redis://somewhere/0"


def test_an_empty_variable_means_the_default_and_overrides_the_file(
    clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (clean_environment / ".env").write_text("ACTS_BROKER_URL=redis://somewhere/0\nACTS_LIMIT_DEPTH=10\n")
    monkeypatch.setenv("ACTS_BROKER_URL", "")
    monkeypatch.setenv("ACTS_LIMIT_DEPTH", "")
    assert load().effective_broker_url is None
    assert load().limit_depth == 64


def test_lists_are_written_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTS_ACTIVITIES", "shop.activities, reviews.py,,")
    monkeypatch.setenv("ACTS_DELEGATES", "delegates")
    assert load().activities == ("shop.activities", "reviews.py")
    assert load().delegates == ("delegates",)
    assert load(activities=["other.py"]).activities == ("other.py",)


def test_sizes_may_carry_a_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTS_LIMIT_MESSAGE_BYTES", "2MiB")
    assert load().limit_message_bytes == 2 * 1024 * 1024


def test_a_value_read_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load().limit_depth = 1  # type: ignore[misc]  # that is the point


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("ACTS_LIMIT_DEPTH", "deep", "a whole number"),
        ("ACTS_LIMIT_DEPTH", "0", "greater than 0"),
        ("ACTS_LIMIT_MESSAGE_BYTES", "many", "a size, such as"),
        ("ACTS_QUEUE_INSTANCES", "a b", "letters, digits"),
        ("ACTS_MODEL", "gpt", "PROVIDER:NAME"),
        ("ACTS_BROKER_URL", "localhost:6379", "should begin with one of redis://"),
        ("ACTS_BROKER_URL", "redis://:secret@host:port/0", "port"),
        ("ACTS_BROKER_URL", "redis://:secret@host/first", "database"),
        ("ACTS_BROKER_URL", "mongodb://:secret@host", "should begin with one of redis://"),
        ("ACTS_REDIS_URL", "amqp://user:secret@host//", "should begin with one of redis://"),
        ("ACTS_REDIS_URL", "unix://", "names no socket"),
        ("ACTS_LEASE_SECONDS", "1", "ACTS_SWEEP_INTERVAL_SECONDS"),
    ],
)
def test_a_bad_value_is_one_line_that_names_its_variable_and_keeps_its_secret(
    variable: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError) as caught:
        load()
    (line,) = caught.value.problems
    assert line.startswith(f"{variable}: ")
    assert said in line
    assert "\n" not in line
    assert "secret" not in line


@pytest.mark.parametrize("variable", ["ACTS_UI_TOKENS", "ACTS_MCP_TOKENS"])
def test_tokens_that_cannot_be_read_are_not_shown(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "ann:nothing:a-secret-of-many-letters")
    with pytest.raises(SettingsError, match=r"token 1 \(ann\): 'nothing' is no right") as caught:
        load()
    assert "secret" not in str(caught.value)


def test_all_bad_values_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTS_LIMIT_DEPTH", "deep")
    monkeypatch.setenv("ACTS_CONCURRENCY", "-1")
    with pytest.raises(SettingsError) as caught:
        load()
    assert {line.partition(":")[0] for line in caught.value.problems} == {
        "ACTS_LIMIT_DEPTH",
        "ACTS_CONCURRENCY",
    }


def test_an_unreadable_file_is_named(clean_environment: Path) -> None:
    (clean_environment / ".env").write_bytes(b"ACTS_MODEL=\xff\xfe\n")
    with pytest.raises(SettingsError, match=r"^\.env: cannot be read"):
        load()


def test_an_override_that_is_no_setting_is_the_callers_mistake() -> None:
    with pytest.raises(TypeError, match="broker"):
        load(broker="redis://localhost")


def test_without_a_broker_the_error_says_what_to_do() -> None:
    with pytest.raises(NotConfigured, match=r"set ACTS_BROKER_URL, e\.g\. redis://localhost:6379/0, or use --broker"):
        load().require_broker()
    with pytest.raises(NotConfigured, match="set ACTS_BROKER_URL"):
        load().require_redis()


def test_a_redis_broker_is_the_log_too() -> None:
    assert load(broker_url="redis://:pw@host/1").require_redis() == "redis://:pw@host/1"
    assert load(broker_url="redis+socket:///run/s").require_redis() == "unix:///run/s"


def test_the_log_is_the_broker_too() -> None:
    assert load(redis_url="redis://host/1").require_broker() == "redis://host/1"
    assert load(redis_url="unix:///run/s?db=2").require_broker() == "redis+socket:///run/s?virtual_host=2"


def test_the_other_librarys_spelling_of_a_socket_is_understood() -> None:
    assert load(broker_url="unix:///run/s").require_broker() == "redis+socket:///run/s"
    assert load(redis_url="redis+socket:///run/s").require_redis() == "unix:///run/s"


@pytest.mark.parametrize("broker", ["amqp://host//", "amqps://host//"])
def test_a_broker_that_cannot_hold_the_log_needs_a_redis_beside_it(broker: str) -> None:
    with pytest.raises(NotConfigured, match="cannot hold the log: set ACTS_REDIS_URL"):
        load(broker_url=broker).require_redis()
    assert load(broker_url=broker, redis_url="redis://r/0").require_redis() == "redis://r/0"


def test_what_is_shown_holds_no_secret() -> None:
    settings = load(
        broker_url="redis://:hush1@host/0",
        result_backend_url="redis://:hush2@host/1",
        model_base_url="https://model.example/v1?token=hush3",
        model_api_key="hush4",
        sentinel_password="hush5",
    )
    shown = settings.masked()
    assert set(shown) == set(Settings.model_fields)
    assert shown["broker_url"] == shown["redis_url"] == "redis://:***@host/0"
    assert shown["model_api_key"] == "***"
    assert "hush" not in repr(shown)


@pytest.mark.parametrize(
    "given",
    [
        {"model_base_url": "https://user:hush@model.example/v1", "model_api_key": "hush"},
        {"models": {"a": {"model": "openai:m", "base_url": "https://hush@model.example/v1", "api_key": "hush"}}},
    ],
)
def test_a_password_in_a_models_address_beside_a_key_is_refused_and_not_shown(given: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="one request has one of them") as refused:
        load(**given)
    assert "hush" not in str(refused.value)
    assert load(model_base_url="https://user:hush@model.example/v1").model_api_key is None


def test_a_child_process_gets_the_same_settings(clean_environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = load(
        broker_url="redis://:pw@host/0",
        activities=["a.py", "b"],
        limit_message_bytes="2MiB",
        strict_meta=True,
        model_api_key="k",
    )
    for name, value in given.to_environment().items():
        monkeypatch.setenv(name, value)
    (clean_environment / ".env").write_text("ACTS_RESULT_BACKEND_URL=redis://not-this-one/0\n")
    assert load() == given


def test_a_misspelt_variable_is_found_with_the_one_meant(clean_environment: Path) -> None:
    (clean_environment / ".env").write_text("ACTS_LIMIT_DEPHT=3\nOTHER=1\n")
    found = unknown_variables({"ACTS_BROKR_URL": "x", "ACTS_REDIS_URL": "x", "HOME": "/"})
    assert found == {"ACTS_BROKR_URL": "ACTS_BROKER_URL", "ACTS_LIMIT_DEPHT": "ACTS_LIMIT_DEPTH"}


def test_a_file_that_is_found_loads_no_code_and_one_that_is_named_does(
    clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (clean_environment / ".env").write_text("ACTS_ACTIVITIES=evil.py\nACTS_LIMIT_DEPTH=10\n")
    assert (load().activities, load().limit_depth) == ((), 10)
    assert load(activities=("mine.py",)).activities == ("mine.py",)
    assert load(env_file=".env").activities == ("evil.py",)
    monkeypatch.setenv("ACTS_ENV_FILE", ".env")
    assert load().activities == ("evil.py",)
    monkeypatch.setenv("ACTS_ENV_FILE", "missing.env")
    with pytest.raises(SettingsError, match=r"missing\.env: there is no such file"):
        load()
    monkeypatch.delenv("ACTS_ENV_FILE")
    monkeypatch.setenv("ACTS_ACTIVITIES", "own.py")
    assert load().activities == ("own.py",)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ACTS_MODEL_BASE_URL", "http://thief.example/v1"),
        ("ACTS_MODELS", '{"m": {"model": "openai:m", "base_url": "http://thief.example/v1"}}'),
        ("ACTS_RESULT_BACKEND_URL", "redis://thief.example/0"),
        ("ACTS_BROKER_URL", "redis://thief.example/0"),
        ("ACTS_REDIS_URL", "redis://thief.example/0"),
        ("ACTS_HEALTH_FOLDER", "."),
        ("ACTS_DELEGATES", "https://thief.example/"),
    ],
)
def test_a_file_that_is_found_names_no_address_and_no_folder(clean_environment: Path, name: str, value: str) -> None:
    (clean_environment / ".env").write_text(f"{name}={value}\nACTS_LIMIT_DEPTH=10\nACTS_MODEL_API_KEY=k\n")
    field = name.removeprefix("ACTS_").lower()
    assert not getattr(load(model="openai:m"), field)
    assert load(model="openai:m").limit_depth == 10
    assert left_out({}) == [field]
    assert left_out({name: "given"}) == left_out({"ACTS_ENV_FILE": ".env"}) == []
    assert getattr(load(env_file=".env", model="openai:m"), field)


def test_a_result_backend_loads_no_module_by_its_scheme() -> None:
    with pytest.raises(SettingsError, match="a result backend is one of redis"):
        load(env_file=None, result_backend_url="evil.module:Backend://x")
    assert load(env_file=None, result_backend_url="rpc://").result_backend_url


@pytest.mark.parametrize("url", ["localhost:11434/v1", "redis://localhost/v1"])
def test_a_models_address_names_http(url: str) -> None:
    with pytest.raises(SettingsError, match="should begin with http:// or https://"):
        load(env_file=None, model="openai:m", model_base_url=url)
    with pytest.raises(SettingsError, match="should begin with http:// or https://"):
        load(env_file=None, models={"other": {"model": "openai:m", "base_url": url}})


@pytest.mark.parametrize("key", ["…", "sk-\N{HORIZONTAL ELLIPSIS}", "sk-1 2", "sk-1\n", "ключ"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key: str) -> None:
    for given in ({"model_api_key": key}, {"models": {"a": {"model": "openai:m", "api_key": key}}}):
        with pytest.raises(SettingsError, match="is in no key: give the key itself") as refused:
            load(env_file=None, **given)
        assert key not in str(refused.value)
    assert load(env_file=None, model_api_key="sk-proj_1.2+/=~").model_api_key


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ACTS_MODEL", "scripted:evil.json"),
        ("ACTS_MODEL_RECORDING", "../prompts.jsonl"),
        ("ACTS_MODEL_FALLBACKS", "other"),
        ("ACTS_MODEL_EXTRA_BODY", '{"store": true}'),
        ("ACTS_REMOTE_CONTROL", "true"),
        ("ACTS_METRICS_HOST", "0.0.0.0"),
        ("ACTS_METRICS_PORT", "9101"),
        ("ACTS_ACTOR", "boss"),
        ("ACTS_TRUST", "trust.json"),
        ("ACTS_APPROVED_PLANS", "plans.txt"),
        ("ACTS_LIMIT_DEPTH", "1000"),
        ("ACTS_LIMIT_CALL_BYTES", "1GiB"),
    ],
)
def test_a_file_that_is_found_decides_nothing_that_does_harm(clean_environment: Path, name: str, value: str) -> None:
    (clean_environment / ".env").write_text(f"{name}={value}\nACTS_CONCURRENCY=3\nACTS_LIMIT_TICKS=5\n")
    field = name.removeprefix("ACTS_").lower()
    found = load()
    assert getattr(found, field) == Settings.model_fields[field].get_default(call_default_factory=True)
    assert (found.concurrency, found.limit_ticks, left_out({})) == (3, 5, [field])


def test_a_setting_counts_in_a_file_that_is_found_only_where_it_says_so() -> None:
    unmarked = {name for name, field in Settings.model_fields.items() if mark(field, "found") is None}
    assert unmarked == {
        *("broker_url", "redis_url", "result_backend_url", "ui_tokens", "ui_redis_url", "ui_url"),
        *("mcp", "mcp_admitted", "mcp_tokens", "mcp_activities", "mcp_delegates", "mcp_url", "trust", "approved_plans"),
        *("health_folder", "metrics_port", "metrics_host", "activities", "delegates", "actor", "remote_control"),
        *("model", "model_base_url", "model_extra_body", "model_recording", "model_fallbacks", "models"),
        *("hold_webhook_url", "hold_webhook_secret"),
    }
    lower = {name for name, field in Settings.model_fields.items() if mark(field, "found") == "lower"}
    assert lower == {name for name in Settings.model_fields if name.startswith("limit_")}
