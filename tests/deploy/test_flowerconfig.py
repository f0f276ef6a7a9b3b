"""Flower's configuration: which tasks have the address of a page."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from celery.events.state import Task

from .files import DEPLOY


def shown(name: str | None, args: str | None) -> Any:
    """The arguments of a task as Flower shows them under the configuration as it is read now."""
    spec = importlib.util.spec_from_file_location("flowerconfig", DEPLOY / "flowerconfig.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.format_task(Task(uuid="1", name=name, args=args)).args


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ACTS_UI_URL", "https://acts.example")
    return "https://acts.example"


@pytest.mark.parametrize("name", ["acts.execute_instance", "acts.execute_activity", "acts.deliver"])
def test_a_task_of_a_run_has_the_address_of_its_page(pages: str, name: str) -> None:
    assert shown(name, "'1a2-b3 ① 3 echo'") == f"'1a2-b3 ① 3 echo' {pages}/#/run/1a2-b3"


@pytest.mark.parametrize(
    ("name", "args"), [("acts.probe", "instances"), ("shop.mail", "(1,)"), (None, "(1,)"), ("acts.deliver", None)]
)
def test_other_tasks_are_shown_as_they_are(pages: str, name: str | None, args: str | None) -> None:
    assert shown(name, args) == args


def test_without_the_setting_all_are_shown_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACTS_UI_URL", raising=False)
    assert shown("acts.execute_instance", "1a2-b3 ①") == "1a2-b3 ①"
