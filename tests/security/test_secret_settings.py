"""Secrets in settings: whatever may hold one says so, and none is shown, by whichever way settings can be asked for."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest
from celery.worker.control import conf

from acts_celery.broker_config import Settings, load
from acts_celery.broker_config.loading import mark
from acts_celery.worker.logs import Masking
from acts_celery.worker.runner.application import make_client_application
from tests.deploy.files import programs

SECRETS: dict[str, tuple[Any, str]] = {
    "broker_url": ("redis://u:hushhush1@host/0", "hushhush1"),
    "redis_url": ("redis://:hushhush2@host/0", "hushhush2"),
    "sentinel_password": ("hushhush3", "hushhush3"),
    "result_backend_url": ("redis://:hushhush4@host/0", "hushhush4"),
    "mcp": ({"crm": {"url": "https://crm.example", "headers": {"Authorization": "Bearer ${CRM_TOKEN}"}}}, "hushhush5"),
    "mcp_tokens": ("ann:submit:hushhush6-0123456789", "hushhush6-0123456789"),
    "ui_tokens": ("ann:read:hushhush7-0123456789,bob:read:other-0123456789", "hushhush7-0123456789"),
    "ui_redis_url": ("redis://:hushhush8@host/0", "hushhush8"),
    "model_base_url": ("https://host/v1?k=hushhush9", "hushhush9"),
    "model_api_key": ("hushhush10", "hushhush10"),
    "model_extra_body": ('{"api_key": "hushhush11"}', "hushhush11"),
    "models": ({"m": {"model": "openai:m", "base_url": "https://h/?k=hushhush12"}}, "hushhush12"),
    "hold_webhook_url": ("https://hook.example/hushhush13", "https://hook.example/hushhush13"),
    "hold_webhook_secret": ("hushhush14-hushhush", "hushhush14-hushhush"),
}
"""For each setting that may hold a secret a value, and what is secret in it."""
TOGETHER: dict[str, dict[str, Any]] = {
    "hold_webhook_url": {"hold_webhook_secret": "another-secret-text"},
    "hold_webhook_secret": {"hold_webhook_url": "https://hook.example/"},
    "model_base_url": {"model": "openai:m"},
    "model_api_key": {"model": "openai:m"},
    "model_extra_body": {"model": "openai:m"},
}


def test_every_setting_that_may_hold_a_secret_says_so() -> None:
    marked = {name for name, field in Settings.model_fields.items() if mark(field, "secret")}
    told = re.compile(r"Secret|ConfiguredModel|McpServer|ExtraBody")
    typed = {name for name, note in get_type_hints(Settings).items() if told.search(str(note))}
    named = re.compile(r"_(key|secret|password|tokens)$")
    named_so = {name for name in Settings.model_fields if named.search(name) and not name.startswith("limit_")}
    counts = {"model_context_tokens", "model_max_output_tokens"}
    assert (typed & set(Settings.model_fields)) | (named_so - counts) <= marked == set(SECRETS)


@pytest.mark.parametrize("name", SECRETS)
def test_what_is_secret_in_a_setting_is_shown_nowhere(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRM_TOKEN", "hushhush5")
    value, secret = SECRETS[name]
    addresses = {} if name == "broker_url" else {"broker_url": "redis://host/0"}
    given = {name: json.dumps(value) if isinstance(value, dict) else value}
    settings = load(env_file=None, **addresses, **TOGETHER.get(name, {}), **given)
    app = make_client_application(settings)
    app.conf.acts_settings = settings
    shown = (
        repr(settings),
        str(settings),
        str(settings.masked()),
        str(conf(SimpleNamespace(app=app))),
        app.bugreport(),
        Masking(settings)(f"it is <{secret}>"),
    )
    assert [text for text in shown if secret in text] == []


NEEDED: dict[str, set[str]] = {
    "redis": {"broker_url", "redis_url"},
    "instances": {"mcp", "hold_webhook_url", "hold_webhook_secret"},
    "delegates": {"mcp", "model_base_url", "model_api_key", "model_extra_body", "models"},
    "background": {"mcp", "model_base_url", "model_api_key", "model_extra_body", "models"},
    "flower": set(),
    "ui": {"ui_tokens", "ui_redis_url"},
}
"""What each program of supervisord has for its work; all that connect have where to, and how."""
CONNECTING = {"broker_url", "redis_url", "result_backend_url", "sentinel_password"}


@pytest.mark.parametrize("program", NEEDED)
def test_what_a_program_of_supervisord_should_not_have_is_empty_in_its_environment(program: str) -> None:
    assert set(programs()) == set(NEEDED)
    given = dict(re.findall(r'(\w+)="([^"]*)"', programs()[program]["environment"]))
    needed = NEEDED[program] | (CONNECTING if program != "redis" else set())
    names = {f"ACTS_{name.upper()}" for name in set(SECRETS) - needed}
    assert {name for name in names if given.get(name) != ""} == set()
    assert {name for name in needed if given.get(f"ACTS_{name.upper()}") == ""} <= CONNECTING
