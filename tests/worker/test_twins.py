"""The asyncio classes have every method of the plain ones, with the same parameters."""

from __future__ import annotations

import inspect
from typing import Any, Generic

import pytest

from acts_celery import AsyncClient, AsyncRun, Client, DeadLetters, Run
from acts_celery.worker.client.async_client import AsyncDeadLetters, Twin

_SAME = {"run_of", "child", "dead_letters"}
"""What reads nothing, so that there is nothing to be awaited."""
_OTHERS = {"reading", "add", "counts", "forget_runs", "forget_instances", "forget_calls"}
"""What only other modules of the backend call."""
_NAMES = {"Run": "AsyncRun", "DeadLetters": "AsyncDeadLetters"}
TWINS = [(Client, AsyncClient), (Run, AsyncRun), (DeadLetters, AsyncDeadLetters)]


def public(one: type) -> dict[str, Any]:
    classes = [each for each in one.__mro__ if each not in (object, Generic, Twin)]
    members = {name: value for each in reversed(classes) for name, value in vars(each).items()}
    return {name: value for name, value in members.items() if not name.startswith("_") and name not in _OTHERS}


def returned(annotation: str) -> str:
    """What an asyncio method gives in the place of what the plain one does."""
    return _NAMES.get(annotation, annotation.replace("Iterator", "AsyncIterator"))


@pytest.mark.parametrize(("plain", "twin"), TWINS)
def test_a_twin_has_every_method_and_no_other(plain: type, twin: type) -> None:
    assert public(plain).keys() == public(twin).keys() - ({"run_of"} if plain is Run else set())


@pytest.mark.parametrize(
    ("plain", "twin", "name"),
    [(plain, twin, name) for plain, twin in TWINS for name, value in public(plain).items() if callable(value)],
)
def test_a_method_takes_the_same_in_both_and_is_awaited(plain: type, twin: type, name: str) -> None:
    one, other = getattr(plain, name), getattr(twin, name)
    expected, found = inspect.signature(one), inspect.signature(other)
    if name != "run_of":
        assert list(found.parameters.values()) == list(expected.parameters.values())
    assert found.return_annotation == returned(expected.return_annotation)
    is_awaited = inspect.iscoroutinefunction(other) or inspect.isasyncgenfunction(other)
    assert is_awaited == (name not in _SAME)
    assert inspect.getdoc(other)


def test_what_is_submitted_one_part_at_a_time_and_as_a_document_takes_the_same_options() -> None:
    options = [inspect.signature(one).parameters["options"] for one in (Client.submit, Client.submit_document)]
    assert options[0] == options[1]
