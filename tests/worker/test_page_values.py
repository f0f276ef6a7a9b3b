"""A value on the page of a run: what it is and was, who wrote it, who reads it, and that no instance sees another's."""

from __future__ import annotations

import json
import secrets
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from acts_celery.protocol.state.fold import Fold
from acts_celery.worker.store.entries import id_key
from acts_celery.worker.ui.opened import CUT, SHOW_BYTES, shown, size_of

from .backend import Backend
from .pages import Asking

TEXTS = st.text(max_size=300)
JSON = st.recursive(
    st.none() | st.integers() | TEXTS | TEXTS.map(lambda text: text * 20),
    lambda parts: st.lists(parts, max_size=30) | st.dictionaries(TEXTS, parts, max_size=12),
    max_leaves=40,
)


def echo(value: Any, path: str, **more: Any) -> dict[str, Any]:
    return {"_tool": "echo", "value": value, "_outputPath": path, **more}


def instances(*names: str) -> list[dict[str, Any]]:
    return [{"type": "state", "_instance": name, "name": name, "text": f"secret of {name}"} for name in names]


def planned(backend: Backend, calls: list[dict[str, Any]], *names: str, context: Any = ()) -> Asking:
    run = backend.client.submit([*context, *instances(*names), {"type": "plan", "calls": calls}])
    backend.wait(run.id)
    return Asking(backend, run)


CALLS = [
    {"_tool": "failFor", "instance": "†state.name", "mark": "b", "_outputPath": "†state.a"},
    echo("†state.text", "†state.log", _outputMethod="push"),
    echo("†state.a", "†state.log", _outputMethod="push"),
    {"_tool": "seeScopes", "_scopes": ["state"]},
]


def test_a_value_has_its_writers_its_readers_and_whoever_sees_it(backend: Backend) -> None:
    page = planned(backend, [*CALLS, echo("†state.log", "†state.seen")], "a")
    place = page.ask("place", path="state.log", instance="a")
    assert place["value"] == page.run.result().data("a")["state"]["log"]
    assert [(writer["index"], writer["method"]) for writer in place["writers"]] == [(1, "push"), (2, "push")]
    assert [reader["index"] for reader in place["readers"]] == [4]
    assert {(one["index"], one["derived"]) for one in place["seen_by"]} == {(3, False), (4, False)}
    assert [origin["effect"] for origin in place["provenance"]] == ["contributes", "contributes"]
    assert place["provenance"][0]["reads"] == [{"path": "†state.text", "value": "secret of a"}]


def test_a_value_that_is_missing_says_which_call_was_to_write_it_and_why_it_did_not(backend: Backend) -> None:
    page = planned(backend, CALLS, "a", "b")
    missing = page.ask("place", path="†state.a", instance="b")["missing"]
    assert missing["sentence"] == "Nothing is at †state.a: call 0 (failFor) was to write it, and is failed."
    assert missing["why"][0]["error"] == {"type": "ValueError", "message": "not for b"}
    assert page.ask("place", path="state.textt", instance="b")["missing"]["near"] == "†state.text"
    assert "value" not in page.ask("place", path="state.a")  # it is there in an instance only


def test_at_each_moment_the_log_folds_to_the_value_that_the_place_had(backend: Backend) -> None:
    page = planned(backend, CALLS, "a", "b")
    entries = page.all("log", "entries", instance="a")
    shared = Fold()
    own = Fold(shared)
    for entry in entries:
        (shared if entry["instance"] is None else own).append(entry["message"], entry["id"], entry["call"])
        place = page.ask("place", path="state.log", instance="a", at=entry["id"])
        assert place.get("value") == own.snapshot().get("state", {}).get("log")
    assert own.snapshot() == page.run.result().data("a")


def test_what_a_call_was_given_is_made_again_from_the_log(backend: Backend) -> None:
    delegate = {"context": [{"type": "system", "message": "You are brief."}], "schema": {"type": "string"}}
    ask = {"_tool": "ask", "_delegate": "brief", "question": "†data.q", "_scopes": ["state"], "_outputPath": "†state.a"}
    context: list[dict[str, Any]] = [
        {"type": "data", "kind": "data", "data": {"q": "why?", "secret": "not for it"}},
        {"type": "state", "known": "for it"},
    ]
    run = backend.client.submit(context, {"calls": [ask]}, delegates={"brief": delegate})
    backend.wait(run.id)
    sent = Asking(backend, run).ask("sent", call="0")
    assert (sent["parameters"], sent["scopes"], sent["exact"]) == (
        {"question": "why?"},
        {"state": {"known": "for it"}},
        True,
    )
    assert "You are brief." in str(sent["messages"])
    assert "for it" in str(sent["messages"])
    assert "not for it" not in str(sent)


def test_no_answer_about_an_instance_has_anything_of_another(backend: Backend) -> None:
    names = [f"instance-{secrets.token_hex(8)}" for _ in range(3)]
    page = planned(backend, CALLS, *names)
    for name in names:
        questions: list[tuple[str, dict[str, str]]] = [
            ("instance", {"name": name}),
            ("log", {"instance": name}),
            *(
                ("place", {"path": path, "instance": name})
                for path in ("state.log", "state.a", "state.nothing", "error")
            ),
            *(("sent", {"call": f"{index}:{name}"}) for index in range(4)),
        ]
        for what, query in questions:
            text = json.dumps(page.ask(what, **query))
            assert all(other not in text for other in names if other != name), (what, query)
    for what, query in (("instance", {}), ("log", {}), ("place", {"path": "state.text"}), ("", {}), ("plan", {})):
        text = json.dumps(page.ask(what, **query))
        assert "secret of" not in text
    assert all("secret of" not in json.dumps(page.ask(what)) for what in ("calls/1", "instances"))


def test_a_large_value_is_cut_everywhere_and_its_size_is_said(backend: Backend) -> None:
    large = "x" * 300_000 + "END"
    context = [{"type": "data", "kind": "data", "data": {"large": large}}]
    page = planned(backend, [echo("†data.large", "†state.copy")], "a", context=context)
    answers = [
        page.ask("instance", name="a"),
        page.ask("place", path="state.copy", instance="a"),
        page.ask("log", instance="a"),
        page.ask("sent", call="0:a"),
    ]
    for answer in answers:
        text = json.dumps(answer, ensure_ascii=False)
        assert len(text) < 4 * SHOW_BYTES
        assert CUT in text
    cut = page.ask("place", path="state.copy", instance="a")["value"][CUT]
    assert cut["bytes"] == len(large) + 2
    assert cut["tail"].endswith("END")
    logged = page.ask("log", instance="a")["entries"]
    assert sorted(entry.get("cut", False) for entry in logged) == [False, False, True, True]


def test_what_is_small_stays_whole_beside_what_is_cut() -> None:
    value = {"big": {"list": ["y" * 50_000, 1], "name": "Ada"}, "text": "z" * 30_000, "n": 7}
    cut = shown(value)
    assert (cut["n"], cut["big"]["name"], cut["big"]["list"][1]) == (7, "Ada", 1)
    assert cut["text"][CUT]["bytes"] == 30_002
    assert cut["big"]["list"][0][CUT]["bytes"] == 50_002
    assert shown({"a": [1, {"b": None}]}) == {"a": [1, {"b": None}]}


@given(JSON, st.integers(200, 2_000))
def test_law_what_is_shown_is_bounded_and_a_value_that_fits_is_not_changed(value: Any, most: int) -> None:
    found = shown(value, most)
    assert (found == value) if size_of(value) <= most else size_of(found) <= 3 * most + 500


def test_a_page_of_the_log_is_bounded_and_the_next_goes_on_behind_it(backend: Backend) -> None:
    calls = [echo("y" * 15_000, f"†state.v{number}") for number in range(60)]
    page = planned(backend, calls, "a")
    first = page.ask("log", instance="a")
    assert first["next"] is not None
    assert len(json.dumps(first)) < 1_000_000
    entries = page.all("log", "entries", instance="a")
    both = [*page.run.log(instance="a"), *(entry for entry in page.run.log() if entry.instance is None)]
    assert [entry["id"] for entry in entries] == sorted({entry.id for entry in both}, key=id_key)


def test_no_answer_is_much_above_a_megabyte(backend: Backend) -> None:
    calls = [echo("†data.large", f"†state.{'v' * 100}{number}") for number in range(150)]
    context = [{"type": "data", "kind": "data", "data": {"large": "x" * 6_000}}]
    page = planned(backend, calls, "a", context=context)
    for what, query in (
        ("instance", {"name": "a"}),
        ("plan", {}),
        ("calls/0", {}),
        ("place", {"path": "state", "instance": "a"}),
        ("log", {"instance": "a"}),
    ):
        answer = page.ask(what, **query)
        assert size_of(answer) < 1_200_000, what
    shown_calls = page.ask("instance", name="a")
    assert len(shown_calls["calls"]) + shown_calls["more"] == 150
    assert shown_calls["more"] > 0
