"""What `acts doctor` says of models: whether they can be loaded, and reached (SPEC R13.11)."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from acts_celery.broker_config import load
from acts_celery.worker.cli.doctor_layers import examine_models
from acts_celery.worker.cli.doctor_servers import Layer

from .server import Reply, failing, model_server

LIST = Reply([json.dumps({"object": "list", "data": [{"id": "m"}, {"id": "n"}]}).encode()])


def examined(**settings: Any) -> Layer:
    return examine_models(load(env_file=None, **settings))


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
    monkeypatch.setattr("acts_celery.worker.agent.asking._SECONDS", 0.2)
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
