"""Golden files: what a model is asked for the examples of the original documents, to the byte (SPEC R12.3-R12.5).

A change of what every model is asked shows as a change of these files. They are written anew by
`python -m tests.protocol.test_r12_golden`, which is to be read before it is committed.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.requests import Fate, Request, read_request, render
from acts_celery.protocol.requests.receipts import Turn
from acts_celery.protocol.requests.rendering import render_functions
from acts_celery.protocol.requests.tool_texts import Function, first_schema, function_schema, functions_of

NATIVE: Final = "functions"
"""The example `output` where its tools go as functions."""
GOLDEN: Final = Path(__file__).parent / "golden"
TEXT: Final = {"type": "string"}
OBJECT: Final = {"type": "object"}
EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "output": {
        "context": [{"type": "data", "data": {"user": {"name": "Alex", "status": "active"}}}],
        "schema": {"type": "object", "properties": {"status": TEXT}, "required": ["status"]},
        "tools": [
            "updateUserStatus",
            {
                "summarizeUser": {
                    "description": "Summarizes a user.",
                    "properties": {"user": OBJECT, "_output": TEXT},
                    "required": ["user"],
                    "_outputPath": {"type": "string", "const": "†data.user.summary"},
                }
            },
        ],
    },
    "branches": {
        "context": [{"type": "input", "schema": {"type": "object", "properties": {"userId": TEXT}}}],
        "schema": TEXT,
        "tools": {
            "verifyUser": {
                "properties": {"userId": TEXT, "_outputPath": {"enum": ["†state.success", "†state.failure"]}},
                "required": ["userId", "_outputPath"],
            },
            "think": {"properties": {"about": TEXT}, "_outputPath": {"const": "†state.plan || †state.doubt"}},
        },
    },
    "scopes": {
        "context": [
            {"type": "state", "currentUser": {"id": "user_A", "name": "Алиса"}},
            {"type": "input", "mentionedUser": {"id": "user_B"}, "description": "Кому пишем"},
        ],
        "schema": {"type": "boolean"},
        "tools": {
            "sendMessage": {
                "properties": {"recipientId": TEXT, "message": TEXT},
                "required": ["recipientId", "message"],
                "_scopes": {"type": "array", "items": {"enum": ["state", "input"]}},
            },
            "logEvent": {"properties": {"eventName": TEXT}, "_scopes": {"const": ["state"]}},
        },
    },
    "instances": {
        "context": [
            {"type": "system", "message": "Переводи."},
            {"type": "state", "_instance": "①", "text": "Привет"},
            {"type": "state", "_instance": "②", "text": "Bonjour"},
            {"type": "plan", "calls": [{"_tool": "translate", "text": "†state.text", "_outputPath": "†state.english"}]},
        ],
        "schema": {"type": "array", "items": TEXT},
        "tools": {
            "translate": {
                "properties": {"text": TEXT, "_delegate": {"const": "translatorDelegate"}, "_output": TEXT},
                "required": ["text"],
            }
        },
    },
    "nested": {
        "context": [],
        "schema": {"$ref": "#/$defs/tree", "$defs": {"tree": {"items": {"$ref": "#/$defs/tree"}, "type": "array"}}},
        "tools": {
            "plant": {
                "$defs": {"leaf": {"type": "object", "properties": {"size": {"type": "integer"}}}},
                "properties": {
                    "leaves": {"type": "array", "items": {"$ref": "#/$defs/leaf"}},
                    "shape": {"oneOf": [{"const": "round"}, {"type": "integer"}]},
                    "_output": {"type": "array", "items": {"$ref": "#/$defs/leaf"}},
                },
                "additionalProperties": False,
            }
        },
    },
}


def request(name: str) -> Request:
    """The request of an example."""
    code: dict[str, Any] = {
        "updateUserStatus": {"type": "object", "properties": {"newStatus": TEXT, "_output": TEXT}},
        "verifyUser": OBJECT,
        "logEvent": OBJECT,
    }
    return read_request(EXAMPLES[name], Environment(activities=code, delegates=("translatorDelegate",)))


def asked(name: str) -> str:
    """What a model is asked, but for the engine's own text; where the tools go as functions, with these and what
    follows a tick.
    """
    if name == NATIVE:
        return asked_by_functions()
    whole: dict[str, Any] = {"messages": render(request(name))[1:], "schema": first_schema(request(name))}
    return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"


def asked_by_functions() -> str:
    """What a model that calls functions is asked, and what follows its first answer, the engine's text among it."""
    native = replace(request("output"), is_native=True)
    written = {"type": "data", "data": {"user": {"status": "active"}}, "_call": {}, "_outputMethod": "merge"}
    calls = [
        {"_tool": "updateUserStatus", "newStatus": "active", "_outputPath": "†result.c0"},
        {"_tool": "summarizeUser", "_arguments": "{oops"},
    ]
    wrong = {"call": calls[1], "error": {"type": "InvalidCall", "message": "no JSON", "pointer": "/calls/1"}}
    turn = Turn(0, {"calls": calls, "output": {"status": "†data.user.status"}}, 0, "Let me see.", "a call failed")
    new = [written, {"type": "error", "data": wrong}]
    fates = [Fate(0, "updateUserStatus", None, "done", "†result.c0", None, (written,))]
    after = render_functions(native, turn, fates, native.submission.context, new)
    functions = [vars_of(function) for function in functions_of(function_schema(native))]
    whole = {"messages": render(native), "functions": functions, "after": after}
    return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"


def vars_of(function: Function) -> dict[str, Any]:
    return {"name": function.name, "description": function.description, "parameters": function.parameters}


@pytest.mark.parametrize("name", [*EXAMPLES, NATIVE])
def test_r12_what_a_model_is_asked_is_what_the_golden_file_says(name: str) -> None:
    assert asked(name) == (GOLDEN / f"{name}.json").read_text("utf-8")


if __name__ == "__main__":
    for example in (*EXAMPLES, NATIVE):
        (GOLDEN / f"{example}.json").write_text(asked(example), "utf-8")
