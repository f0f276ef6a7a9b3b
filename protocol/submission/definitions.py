"""Request definitions: the delegates that a model solves, as a submission or a file holds them (SPEC R9.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from acts_celery.protocol.calls.declarations import read_tools
from acts_celery.protocol.calls.trust import ENDORSES, endorsement_problems
from acts_celery.protocol.language.errors import Problem, pointer
from acts_celery.protocol.language.spelling import Speller
from acts_celery.protocol.schemas import schema_problem
from acts_celery.protocol.state.shapes import message_problems

from .config import config_problems
from .output import null_problems

_KEYS: Final = ("context", "schema", "tools", "config", ENDORSES)
_LIKENESS: Final = 0.8


def definition_problems(definition: Any, *at: str | int) -> Iterator[Problem]:
    """What is wrong with a delegate's request definition (SPEC R9.1)."""
    if not isinstance(definition, dict):
        yield Problem(pointer(*at), "a request definition must be an object with a context and a schema")
        return
    speller = Speller(likeness=_LIKENESS)
    for key in sorted(definition.keys() - _KEYS):
        if hint := speller.hint(key, _KEYS):
            yield Problem(pointer(*at, key), f"unknown property of a request definition{hint}")
    context = definition.get("context", [])
    if not isinstance(context, list):
        yield Problem(pointer(*at, "context"), "must be a list of messages")
    else:
        for index, message in enumerate(context):
            yield from message_problems(message, *at, "context", index)
        _, found = read_tools(context, definition.get("tools"))
        yield from (replace(problem, pointer=pointer(*at) + problem.pointer) for problem in found)
    yield from config_problems(definition.get("config"), *at, "config")
    yield from endorsement_problems(definition, *at)
    schema = definition.get("schema")
    if schema is not None and (problem := schema_problem(schema, *at, "schema")) is not None:
        yield problem
    elif schema is not None:
        yield from null_problems(schema, *at, "schema")
