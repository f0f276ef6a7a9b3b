"""What an operator may get wrong, in files: it frees nothing that code says."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from acts_celery import ActivitiesError, Rejected, SettingsError, WorkerError, activity, local

from .raids import EVIL, assert_held, attempt, effect, end, obey, picked, source

NUMBERS = itertools.count()


@pytest.mark.parametrize(
    "trust",
    [
        {"raid_pay": {"effects": False}},
        {"raid_pay": {"effects": 0}},
        {"raid_pay": {"content": ["*"]}},
        {"raid_pay": {"proof": ["to.iban"], "effects": True}},
        {"raid_pay": {"effects": True, "hosts": {"to": ["*"]}}},
        {"raid_mail": {"untrusted": []}},
        {"raid_mail": {"untrusted": {"*": []}}},
        {"raid_mail": {"untrusted": {"": []}}},
        {"raid_mail": {"trusted": True}},
        {"*": {"effects": False}},
        {"raid_pay": {"effects": True, "content": ["to"], "proof": ["to"]}},
    ],
    ids=json.dumps,
)
def test_r16_1_a_file_of_the_operator_takes_nothing_from_what_code_says(tmp_path: Any, trust: dict[str, Any]) -> None:
    file = tmp_path / "trust.json"
    file.write_text(json.dumps(trust))
    try:
        backend = local(trust=str(file))
        client = backend.start()
    except (SettingsError, WorkerError):
        return
    try:
        assert_held(client, [source({"iban": EVIL}), effect("†state.mail")])
    finally:
        backend.stop()


@pytest.mark.parametrize(
    "definition",
    [
        {"schema": {"type": "string"}, "_endorses": True},
        {"schema": {"enum": list(range(17))}, "_endorses": True},
        {"schema": {"type": "integer", "minimum": 0, "maximum": 3}, "_endorses": True},
        {"schema": {"anyOf": [{"type": "boolean"}, {"type": "string"}]}, "_endorses": True},
        {"schema": {"enum": ["a", "b"]}, "_endorses": "yes"},
        {"schema": {"type": "string"}, "_endorses": "†state.a || †state.b"},
        {"schema": {"type": "string"}, "_endorses": "†{state.a}"},
        {"schema": {"type": "string"}, "_endorses": "†text"},
        {"schema": {"type": "string"}, "_endorses": "†input.mail"},
        {"schema": {"type": "string"}, "_endorses": ["†state.a"]},
        {"schema": {"type": "string"}, "_endorses": 1},
        {"schema": {"type": "string"}, "_endorses": "†state"},
        {"schema": {"type": "string"}, "_endorses": "†*.id"},
    ],
    ids=json.dumps,
)
def test_r16_3_a_definition_that_endorses_more_than_its_word_is_refused_or_endorses_nothing(
    tmp_path: Any, definition: dict[str, Any]
) -> None:
    (tmp_path / "wide.json").write_text(
        json.dumps({"context": [{"type": "system", "message": "x"}], **definition}), encoding="utf-8"
    )
    backend = local(delegates=str(tmp_path))
    try:
        client = backend.start()
    except (SettingsError, WorkerError):
        return
    try:
        obey(client)
        for answer in ("E", "b"):
            try:
                seen = attempt(client, picked(answer, before=[], tool="wide"))
            except (Rejected, WorkerError):
                continue
            end(seen.run)
            assert seen.started == []
    finally:
        backend.stop()


LABELS: dict[str, Any] = {
    "a quoted key": ('["a.b"].text', {"a.b": {"text": EVIL}}, '†state.r["a.b"].text'),
    "a quoted key at the end": ('x["a.b"]', {"x": {"a.b": EVIL}}, '†state.r.x["a.b"]'),
    "a quoted plain key": ('["text"]', {"text": EVIL}, "†state.r.text"),
    "a quoted star": ('["*"].text', {"*": {"text": EVIL}}, '†state.r["*"].text'),
    "a quoted index": ('["0"].text', {"0": {"text": EVIL}}, '†state.r["0"].text'),
    "a quoted empty key": ('[""]', {"": EVIL}, '†state.r[""]'),
    "an empty path": ("", {"text": EVIL}, "†state.r.text"),
    "a dot at the end": ("text.", {"text": EVIL}, "†state.r.text"),
    "a dot at the start": (".text", {"text": EVIL}, "†state.r.text"),
    "brackets with a star": ("items[*].text", {"items": [{"text": EVIL}]}, "†state.r.items.0.text"),
    "two stars": ("**.text", {"a": {"b": {"text": EVIL}}}, "†state.r.a.b.text"),
    "a dollar": ("$.text", {"text": EVIL}, "†state.r.text"),
    "a pointer": ("/text", {"text": EVIL}, "†state.r.text"),
    "a dagger": ("†text", {"text": EVIL}, "†state.r.text"),
    "a part of a name": ("te*", {"text": EVIL}, "†state.r.text"),
    "a space": (" text", {"text": EVIL}, "†state.r.text"),
    "two names": ("a, text", {"text": EVIL}, "†state.r.text"),
    "a dash": ("a-b", {"a-b": EVIL}, "†state.r.a-b"),
    "letters of another alphabet": ("текст", {"текст": EVIL}, "†state.r.текст"),
}


@pytest.mark.parametrize(("label", "value", "place"), LABELS.values(), ids=LABELS)
def test_r16_8_a_path_of_a_label_means_a_field_or_is_refused(label: str, value: Any, place: str) -> None:
    name = f"raid_path_{next(NUMBERS)}"
    try:

        @activity(name, untrusted={label: "mail", "*": []})
        def labelled(value: Any) -> Any:
            return value
    except ActivitiesError:
        return
    with local() as client:
        assert_held(client, [source(value, name, "†state.r"), effect(place)])
