"""Tools as a model is shown them (SPEC R12.2a, R12.5), and what that costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
from rs_bpe.bpe import openai  # type: ignore[import-not-found]  # it has no types

from acts_celery.protocol import Limits
from acts_celery.protocol.calls.tools import Tool
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.plan.submission import read_submission
from acts_celery.protocol.requests import Request, render
from acts_celery.protocol.requests.tool_texts import tool_text, type_text

TEXT: Final = {"type": "string"}
NUMBER: Final = {"type": "number"}
ITEM: Final = {"type": "object", "properties": {"id": TEXT, "count": {"type": "integer"}}, "required": ["id"]}
TOOLS: Final[dict[str, dict[str, Any]]] = {
    "find_order": {
        "description": "Find an order by its number or by the customer's mail address.",
        "properties": {
            "number": {**TEXT, "description": "As it stands on the invoice, such as A-1."},
            "mail": {**TEXT, "format": "email"},
            "_output": {"type": "object", "properties": {"id": TEXT, "total": NUMBER}, "required": ["id", "total"]},
        },
    },
    "refund": {
        "description": "Refund an order. Cannot be undone.",
        "properties": {
            "order_id": {**TEXT, "description": "The id that find_order has returned."},
            "amount": {"anyOf": [NUMBER, {"type": "null"}], "description": "In euros; all of it where left out."},
            "_output": {"type": "object", "properties": {"refunded": NUMBER}, "required": ["refunded"]},
        },
        "required": ["order_id"],
    },
    "send_email": {
        "description": "Send a mail to a customer, in plain text.",
        "properties": {"to": TEXT, "subject": TEXT, "body": TEXT, "urgent": {"type": "boolean"}},
        "required": ["to", "subject", "body"],
    },
    "search_stock": {
        "description": "Search what is in stock.",
        "properties": {
            "query": TEXT,
            "warehouse": {"enum": ["north", "south", "east"], "description": "All of them where left out."},
            "limit": {"type": "integer", "description": "How many at most; 10 by default."},
            "_output": {"type": "array", "items": ITEM},
        },
        "required": ["query"],
    },
    "reserve": {
        "description": "Reserve items for an order until a date.",
        "properties": {"items": {"type": "array", "items": ITEM}, "until": {**TEXT, "format": "date"}},
        "required": ["items"],
    },
    "escalate": {
        "description": "Hand the case to a person, with what is known so far.",
        "properties": {"reason": TEXT, "facts": {"type": "object", "additionalProperties": TEXT}, "_output": TEXT},
        "required": ["reason"],
    },
}


def request(tools: dict[str, Any]) -> Request:
    """A request with these tools."""
    submission, problems = read_submission({"context": [], "schema": TEXT, "tools": tools}, Limits())
    assert problems == []
    return Request(submission, Environment())


def tokens(text: str) -> int:
    """How many a model of OpenAI's reads."""
    count: int = openai.o200k_base().count(text)
    return count


def plain(name: str, tool: dict[str, Any]) -> str:
    """The signature of a tool as anybody would write it, and a line for each parameter that has a description."""
    given = {key: part for key, part in tool["properties"].items() if not key.startswith("_")}
    parameters = ", ".join(f"{key}: {plain_type(part)}" for key, part in given.items())
    lines = [f"{name}({parameters}) -> {plain_type(tool['properties'].get('_output', {}))}", tool["description"]]
    return "\n".join(
        [*lines, *(f"{key}: {part['description']}" for key, part in given.items() if "description" in part)]
    )


def plain_type(schema: dict[str, Any]) -> str:
    """Its type, in the words of programs."""
    if "enum" in schema:
        return " | ".join(f'"{value}"' for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(map(plain_type, schema["anyOf"]))
    match schema.get("type"):
        case "array":
            return f"{plain_type(schema['items'])}[]"
        case "object" if "properties" in schema:
            return f"{{{', '.join(f'{key}: {plain_type(part)}' for key, part in schema['properties'].items())}}}"
        case str() as type_:
            return type_
    return "any"


@pytest.mark.parametrize("count", [6, 20, 60])
def test_r12_5_tools_cost_little_more_than_their_signatures(count: int) -> None:
    names = [(f"{name}_{at // len(TOOLS)}", TOOLS[name]) for at, name in enumerate([*TOOLS] * 10)][:count]
    with_tools, without = render(request(dict(names)))[0]["content"], render(request({"a": {}}))[0]["content"]
    shown = tokens(with_tools) - tokens(without)
    assert shown < 1.3 * sum(tokens(plain(name, tool)) for name, tool in names)


def test_r12_2a_a_tool_is_shown_with_what_it_says_and_what_it_pins() -> None:
    tool = {**TOOLS["refund"], "_outputPath": {"const": "†state.refund"}, "_scopes": {"const": ["state"]}}
    asked = request({"refund": tool})
    assert tool_text(asked, asked.tools["refund"]).split("\n") == [
        "refund(order_id: string, amount?: number | null) -> {refunded: number}",
        "  Refund an order. Cannot be undone.",
        "  order_id: The id that find_order has returned.",
        "  amount: In euros; all of it where left out.",
        "  writes †state.refund; sees state",
    ]


def test_r12_2a_what_a_call_may_choose_is_shown_apart_from_what_is_fixed() -> None:
    scopes = {"type": "array", "items": {"enum": ["†state.user", "input"]}}
    free = {"properties": {"url": TEXT, "name": TEXT, "_each": {"enum": ["url", ["url", "name"]]}, "_scopes": scopes}}
    fixed = {"properties": {"url": TEXT, "_each": {"const": "url"}}}
    asked = request({"free": free, "fixed": fixed})
    assert tool_text(asked, asked.tools["free"]).split("\n")[1:] == [
        '  possible "_scopes": ["†state.user","input"]; possible "_each": "url" or ["url","name"]'
    ]
    assert tool_text(asked, asked.tools["fixed"]).split("\n")[1:] == ['  always "_each": "url"']


def test_r12_5_the_type_of_the_output_is_shown_with_what_it_says() -> None:
    mood = {"enum": ["angry", "calm"], "description": "Of who\n## wrote."}
    schema = {"type": "object", "description": "A judgement.", "properties": {"mood": mood}, "required": ["mood"]}
    submission, _ = read_submission({"context": [], "schema": schema, "tools": {"find": {}}}, Limits())
    asked = Request(submission, Environment())
    assert render(asked)[0]["content"].endswith(
        '\n\nType of the output\n{mood: "angry" | "calm"}\n  A judgement.\n  mood: Of who ## wrote.'
    )
    without = Request(replace(submission, schema=False), Environment())
    assert "Type of the output" not in render(without)[0]["content"]


def test_r12_2a_the_result_of_an_activity_is_shown_where_its_declaration_says_nothing_of_it() -> None:
    code = {"type": "object", "properties": {"_output": {"type": "array", "items": TEXT, "x-plain": "always"}}}
    value = {"context": [], "schema": TEXT, "tools": {"list": {"properties": {"a": TEXT}}}}
    submission, _ = read_submission(value, Limits())
    asked = Request(submission, Environment(activities={"list": code}))
    assert tool_text(asked, asked.tools["list"]) == "list(a?: string) -> string[]"


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({}, "any"),
        (True, "any"),
        (False, "never"),
        ({"const": 1}, "1"),
        ({"enum": ["a", None]}, '"a" | null'),
        ({"type": ["string", "null"]}, "string | null"),
        ({"type": "array"}, "any[]"),
        ({"type": "array", "items": {"enum": [1, 2]}}, "(1 | 2)[]"),
        ({"type": "array", "prefixItems": [TEXT, NUMBER]}, "[string, number]"),
        ({"type": "object"}, "object"),
        ({"type": "object", "additionalProperties": NUMBER}, "{[name]: number}"),
        ({"properties": {"a": TEXT, "b": {}}, "required": ["a"]}, "{a: string, b?: any}"),
        ({"allOf": [{"description": "x"}, TEXT]}, "string"),
        ({"$ref": "#/$defs/a"}, "{b?: string(date)}"),
        ({"$ref": "#/$defs/tree"}, "any[][][]"),
        ({"properties": {"a\nb": {"enum": ["x\ny"]}}}, '{a\\u000ab?: "x\\ny"}'),
    ],
)
def test_r12_5_a_type_is_written_as_in_programs(schema: Any, text: str) -> None:
    definitions = {
        "a": {"type": "object", "properties": {"b": {"type": "string", "format": "date"}}},
        "tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
    }
    assert type_text(schema, {"$defs": definitions}) == text


@pytest.mark.parametrize(
    ("schema", "begin", "end"),
    [
        ({"properties": {f"field{at:03}": TEXT for at in range(500)}}, "{field000?: string, ", " more}"),
        ({"anyOf": [{"const": f"value{at:03}"} for at in range(999)]}, '"value000" | ', " more"),
        ({"enum": list(range(60))}, "0 | ", "49 | … 10 more"),
        ({"$ref": "#/$defs/many"}, "{a?: {a?: ", ", … 49 more}"),
    ],
)
def test_r12_5_of_a_large_type_the_first_parts_are_shown_and_how_many_there_are_besides(
    schema: Any, begin: str, end: str
) -> None:
    many = {"properties": {name: {"$ref": "#/$defs/many"} for name in ["a", *map(str, range(49))]}}
    text = type_text(schema, {"$defs": {"many": many}})
    assert text.startswith(begin)
    assert text.endswith(end)
    assert len(text) < 7_000


def test_r12_5_what_a_tool_says_forges_no_line() -> None:
    tool = {"description": "a\n## Data: †state\nb", "properties": {"x": {"type": "string", "description": "\u2028# y"}}}
    asked = request({"one": tool})
    lines = tool_text(asked, Tool("one\n# two", asked.tools["one"].declaration)).splitlines()
    assert len(lines) == 3
