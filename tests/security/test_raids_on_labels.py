"""Attacks on labels by field, by somebody who had only read the documents: strangers want to be paid."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery import LocalClient

from .raids import EVIL, assert_held, effect, raided, source

__all__ = ["raided"]

ITEMS = {"items": [{"id": "A", "text": EVIL}], "user": "Ann"}


def by_field(value: Any, path: str = "†state.r", tool: str = "raid_fields", **more: Any) -> dict[str, Any]:
    return source(value, tool, path, **more)


PLACES: dict[str, list[dict[str, Any]]] = {
    "the field itself": [by_field(ITEMS), effect("†state.r.items.0.text")],
    "the object around it": [by_field(ITEMS), effect("†state.r.items.0")],
    "the list around it": [by_field(ITEMS), effect("†state.r.items")],
    "the whole result": [by_field(ITEMS), effect("†state.r")],
    "below it": [by_field({"items": [{"text": {"deep": [EVIL]}}]}), effect("†state.r.items.0.text.deep.0")],
    "numbers as keys": [by_field({"items": {"0": {"text": EVIL}}}), effect('†state.r.items["0"].text')],
    "numbers as keys, read as an index": [by_field({"items": {"7": {"text": EVIL}}}), effect("†state.r.items.7.text")],
    "a key with a dot": [by_field({"items": {"a.b": {"text": EVIL}}}), effect('†state.r.items["a.b"].text')],
    "an empty key": [by_field({"items": {"": {"text": EVIL}}}), effect('†state.r.items[""].text')],
    "a key that is a star": [by_field({"items": {"*": {"text": EVIL}}}), effect('†state.r.items["*"].text')],
    "an empty key that is a label": [by_field({"": EVIL}, tool="raid_empty"), effect('†state.r[""]')],
    "an empty key below one that is a label": [
        by_field({"": {"a": EVIL}}, tool="raid_empty"),
        effect('†state.r[""].a'),
    ],
    "a quoted name": [by_field(ITEMS), effect('†state.r["items"].0["text"]')],
    "an escaped name": [by_field(ITEMS), effect('†state.r.items.0["\\u0074ext"]')],
    "a template": [by_field(ITEMS), effect("to †{state.r.items.0.text}")],
    "deep in a parameter": [by_field(ITEMS), effect({"a": [{"b": "†state.r.items.0.text"}]})],
    "an undeclared parameter": [by_field(ITEMS), effect("DE01", iban="†state.r.items.0.text")],
    "a path of no label": [by_field({"id": EVIL}, tool="raid_ids"), effect("†state.r.id")],
    "one level too high": [by_field({"items": {"id": EVIL}}, tool="raid_ids"), effect("†state.r.items.id")],
    "one level too deep": [
        by_field({"items": [{"sub": {"id": EVIL}}]}, tool="raid_ids"),
        effect("†state.r.items.0.sub.id"),
    ],
    "a list in a list": [by_field({"items": [[EVIL]]}, tool="raid_ids"), effect("†state.r.items.0.0")],
    "another case": [by_field({"items": [{"ID": EVIL}]}, tool="raid_ids"), effect("†state.r.items.0.ID")],
    "another spelling of letters": [
        by_field({"items": [{"іd": EVIL}]}, tool="raid_ids"),
        effect("†state.r.items.0.іd"),
    ],
    "a text where a list is meant": [by_field({"items": EVIL}, tool="raid_ids"), effect("†state.r.items")],
    "a text where an object is meant": [by_field(EVIL, tool="raid_fields"), effect("†state.r")],
    "pushed, and the path moves": [
        by_field({"text": EVIL}, tool="raid_flat", _outputMethod="push"),
        effect("†state.r.0.text"),
    ],
    "pushed, and a star meets the index": [
        by_field({"a": {"text": EVIL}}, tool="raid_rows", _outputMethod="push"),
        effect("†state.r.0.a.text"),
    ],
    "pushed beside what is trusted": [
        source([{"text": "DE01"}], "raid_copy", "†state.r"),
        by_field({"text": EVIL}, tool="raid_flat", _outputMethod="push", _after=["†state.r"]),
        effect("†state.r.0.text"),
    ],
    "concatenated": [
        source([{"text": "DE01"}], "raid_copy", "†state.r"),
        by_field([{"text": EVIL}], tool="raid_rows", _outputMethod="concat", _after=["†state.r"]),
        effect("†state.r.1.text"),
    ],
    "concatenated, and the first element": [
        source([{"text": "DE01"}], "raid_copy", "†state.r"),
        by_field([{"text": EVIL}], tool="raid_rows", _outputMethod="concat", _after=["†state.r"]),
        effect("†state.r.0.text"),
    ],
    "texts that are joined": [
        source("DE", "raid_copy", "†state.r"),
        by_field("66", tool="raid_flat", _outputMethod="concat", _after=["†state.r"]),
        effect("†state.r"),
    ],
    "merged": [
        source({"text": "DE01"}, "raid_copy", "†state.r"),
        by_field({"text": EVIL}, tool="raid_flat", _outputMethod="merge", _after=["†state.r"]),
        effect("†state.r.text"),
    ],
    "merged, and another field": [
        source({"to": "DE01"}, "raid_copy", "†state.r"),
        by_field({"text": "x", "to": EVIL}, tool="raid_flat", _outputMethod="merge", _after=["†state.r"]),
        effect("†state.r.to"),
    ],
    "assigned": [
        source({"text": "DE01"}, "raid_copy", "†state.r"),
        by_field({"text": EVIL}, tool="raid_flat", _outputMethod="assign", _after=["†state.r"]),
        effect("†state.r.text"),
    ],
    "written to two places": [by_field(ITEMS, "†state.a && †state.b"), effect("†state.b.items.0.text")],
    "written to the other of two places": [
        source({"path": "††state.b", "value": {"id": EVIL}}, "raid_fields_choose", "†state.a || †state.b"),
        effect("†state.b.id"),
    ],
    "written deep, and read from above": [by_field(ITEMS, "†state.deep.r"), effect("†state.deep")],
    "written deep": [by_field(ITEMS, '†state.deep["a.b"]'), effect('†state.deep["a.b"].items.0.text')],
    "written to an element": [by_field({"text": EVIL}, "†state.l.0", "raid_flat"), effect("†state.l.0.text")],
    "written to an element whose index is a label": [
        by_field({"text": EVIL}, "†state.l.0", "raid_rows"),
        effect("†state.l.0.text"),
    ],
    "overwritten by what is trusted": [
        by_field(ITEMS),
        source("DE01", "raid_copy", "†state.r.items.0.text", _after=["†state.r"]),
        effect("†state.r.items.0.text"),
    ],
    "written over what strangers wrote whole": [
        source({"items": {"a": {"id": EVIL}}}, path="†state.r"),
        by_field({"items": {"a": {"text": "x"}}}, _outputMethod="merge", _after=["†state.r"]),
        effect("†state.r.items.a.id"),
    ],
    "set where strangers wrote the whole": [
        source(EVIL, path="†state.r"),
        by_field(ITEMS, _after=["†state.r"]),
        effect("†state.r.items.0.id"),
    ],
    "put by strangers into a trusted field": [
        by_field(ITEMS),
        source(EVIL, path="†state.r.items.0.id", _after=["†state.r"]),
        effect("†state.r.items.0.id"),
    ],
    "put by strangers in place of an element": [
        by_field(ITEMS),
        source({"id": EVIL}, path="†state.r.items.0", _after=["†state.r"]),
        effect("†state.r.items.0.id"),
    ],
    "put by strangers in place of the list": [
        by_field(ITEMS),
        source([{"id": EVIL}], path="†state.r.items", _after=["†state.r"]),
        effect("†state.r.items.0.id"),
    ],
    "put by strangers at the root": [
        by_field(ITEMS),
        source({"items": [{"id": EVIL}]}, path="†state.r", _outputMethod="merge", _after=["†state.r"]),
        effect("†state.r.items.0.id"),
    ],
    "missing in its object": [
        by_field(ITEMS),
        effect("†state.r.items.0.account || †state.r.user"),
    ],
    "missing since the list is short": [by_field(ITEMS), effect("†state.r.items.5.id || †state.r.user")],
    "the field, else a trusted one": [by_field(ITEMS), effect("†state.r.items.0.text || †state.r.user")],
    "a trusted field, where the other is there": [by_field(ITEMS), effect("†state.r.items.0.text && †state.r.user")],
    "a branch by its text": [
        by_field(ITEMS),
        {
            "_tool": "choose",
            "value": "†state.r.items.0.text",
            "cases": [{"const": EVIL}],
            "_outputPath": "†state.yes || †state.no",
        },
        effect("†state.r.items.0.id", amount="†state.yes"),
    ],
    "a branch by its length": [
        by_field(ITEMS),
        {
            "_tool": "choose",
            "value": "†state.r.items",
            "cases": [{"minItems": 1}],
            "_outputPath": "†state.yes || †state.no",
        },
        effect("DE01", note="†state.yes"),
    ],
    "a slice in scopes": [
        by_field(ITEMS),
        {"_tool": "raid_scoped", "_scopes": ["†state.r.items.0.text"], "_outputPath": "†state.s"},
        effect("†state.s"),
    ],
    "the whole in scopes": [
        by_field(ITEMS),
        {"_tool": "raid_scoped", "_scopes": ["state"], "_outputPath": "†state.s"},
        effect("†state.s"),
    ],
    "a copy of both": [
        by_field(ITEMS),
        source({"id": "†state.r.items.0.id", "text": "†state.r.items.0.text"}, "raid_copy", "†state.c"),
        effect("†state.c.text"),
    ],
    "a copy of the whole": [
        by_field(ITEMS),
        source("†state.r", "raid_copy", "†state.c"),
        effect("†state.c.items.0.text"),
    ],
    "a copy of an element by a template": [
        by_field(ITEMS),
        source("†{state.r.items.0}", "raid_copy", "†state.c"),
        effect("†state.c"),
    ],
    "made from a stranger's text": [
        source("x"),
        by_field("†state.mail"),
        effect("†state.r.items.0.id || †state.mail"),
    ],
    "given to its own call": [source(ITEMS), by_field("†state.mail"), effect("†state.r.items.0.id")],
    "each element": [by_field(ITEMS), effect("†state.r.items", _each="to")],
    "each element of results": [
        source([ITEMS], "raid_copy", "†state.all"),
        by_field("†state.all", _each="value"),
        effect("†state.r.0.items.0.text"),
    ],
    "each result, and a star meets the index": [
        source([{"a": {"text": EVIL}}], "raid_copy", "†state.all"),
        by_field("†state.all", tool="raid_rows", _each="value"),
        effect("†state.r.0.a.text"),
    ],
    "an error that quotes it": [
        by_field(ITEMS),
        source("†state.r.items.0.text", "raid_fail", "†state.c"),
        effect("†error.error.message"),
    ],
    "an error of its own tool": [source(EVIL, "raid_fields_fail", "†state.r"), effect("†error.error.message")],
    "its own error, at an alternative": [
        source(EVIL, "raid_fields_fail", "†state.r || †state.failed"),
        effect("†state.failed.message"),
    ],
    "a message for a value": [
        source({"type": "state", "r": {"text": EVIL}}, "raid_fields_message", "†state.r"),
        effect("†state.r.text"),
    ],
    "a message that says that it is trusted": [
        source({"type": "state", "r": {"text": EVIL}, "_trust": []}, "raid_fields_message", "†state.r"),
        effect("†state.r.text"),
    ],
    "what a delegate was given of it": [
        by_field(ITEMS),
        {"_tool": "read", "_delegate": "raid_reader", "item": "†state.r.items.0", "_outputPath": "†state.c"},
        effect("†state.c"),
    ],
    "what a delegate sees of it": [
        by_field(ITEMS),
        {"_tool": "read", "_delegate": "raid_reader", "_scopes": ["†state.r.items"], "_outputPath": "†state.c"},
        effect("†state.c"),
    ],
    "the choice of a delegate": [
        by_field(ITEMS),
        {"_tool": "read", "_delegate": "raid_reader", "_scopes": ["state"], "_outputPath": "†state.c || †state.d"},
        effect("†state.d || †state.r.user"),
    ],
    "a moment that it names": [
        by_field({"items": [{"text": "2020-01-01T00:00:00Z"}]}),
        {"_tool": "wait", "until": "†state.r.items.0.text", "_outputPath": "†state.then"},
        effect("†state.then"),
    ],
}


@pytest.mark.parametrize("calls", PLACES.values(), ids=PLACES)
def test_r16_8_what_strangers_wrote_into_a_field_decides_nothing(
    raided: LocalClient, calls: list[dict[str, Any]]
) -> None:
    assert_held(raided, calls)
