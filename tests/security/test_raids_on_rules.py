"""Attacks on rules of a run, by somebody who had only read the documents: a rule covers what it shows."""

from __future__ import annotations

import math
from typing import Any

import pytest

from acts_celery import LocalClient, NoSuchRule, Rejected, Run

from .raids import EVIL, STARTED, attempt, effect, end, raided, settle, source

__all__ = ["raided"]

USER = "Pay DE02 or DE-03, not DE021. He said: 5 x_DE04, DE05@bank and 'DE06'; £DE07. Ünder. a"


def ruled(
    client: LocalClient,
    rule: Any,
    shown: Any = "DE02",
    context: list[Any] | None = None,
    first: list[dict[str, Any]] | None = None,
    **options: Any,
) -> Run[Any]:
    """A run in which a call that strangers decide on was approved with a rule."""
    calls = first or [source(shown), effect("†state.mail", _outputPath="†state.first")]
    seen = attempt(client, calls, [USER] if context is None else context, **options)
    (held,) = seen.held
    seen.run.approve(held, rule=rule, by="Ann")
    seen.run.wait(timeout_seconds=20)
    assert [one["to"] for one in STARTED[seen.run.id] if one["to"] != "DE01"] == [shown]
    return seen.run


def later(run: Run[Any], value: Any, tool: str = "raid_mail", name: str = "later", **more: Any) -> list[dict[str, Any]]:
    """What starts of a later call like the one that was approved."""
    calls = [
        source(value, tool, f"†state.{name}"),
        effect(f"†state.{name}", _outputPath=f"†state.{name}_done", **more),
    ]
    return added(run, calls)


def added(run: Run[Any], calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    before = len(STARTED[run.id])
    run.amend(calls, add=True)
    seen = settle(run)
    assert len(seen.started) > before or seen.held, seen.statuses
    end(run)
    return seen.started[before:]


WORDS: dict[str, Any] = {
    "another word": EVIL,
    "the beginning of a word": "DE0",
    "the end of a word": "E02",
    "the middle of a word": "ithou",
    "a part of a longer number": "DE0 2",
    "another case": "de02",
    "a space behind": "DE02 ",
    "a space before": " DE02",
    "a line break behind": "DE02\n",
    "a word that spans two": "DE02or",
    "an empty text": "",
    "a space": " ",
    "a tab": "\t",
    "a full stop": ".",
    "a comma": ",",
    "a quote": "'",
    "a letter within words": "D",
    "another letter within words": "y",
    "a digit within a word": "2",
    "a combined letter": "Pa\u0079\u0301",
    "decomposed letters": "U\u0308nder",
    "the letter without its mark": "nder",
    "wide letters": "ＤＥ０２",
    "an invisible letter": "DE\u200b02",
    "an override of direction": "\u202e20ED",
    "behind an underscore": "DE04",
    "a word that was cut at a hyphen": "E-03",
    "two words that are not together": "Pay DE-03",
    "the words in another order": "DE02 Pay",
    "a list with another": ["DE02", EVIL],
    "a list in a list": [["DE02"]],
    "an empty list": [],
    "an object": {"iban": "DE02"},
    "an object of the words": {"DE02": "DE02"},
    "a number in the text": 5,
    "true": True,
    "null": None,
    "a reference": "††input.to",
    "a name of a type": "text",
    "a name of a field": "message",
}


@pytest.mark.parametrize("value", WORDS.values(), ids=WORDS)
def test_r16_8_the_users_words_are_whole_and_as_they_stand(raided: LocalClient, value: Any) -> None:
    assert later(ruled(raided, {"to": "words"}), value) == []


def test_r16_8_the_users_words_start_calls(raided: LocalClient) -> None:
    assert [one["to"] for one in later(ruled(raided, {"to": "words"}), "DE-03")] == ["DE-03"]


SAID: dict[str, tuple[list[Any], list[dict[str, Any]]]] = {
    "data with a source": ([{"type": "input", "page": EVIL, "_trust": ["web"]}], []),
    "data of an instance": ([{"type": "input", "_instance": "②", "page": EVIL}], []),
    "a key of data": ([{"type": "input", "data": {EVIL: 1}}], []),
    "a name of a tool": ([{"type": "tool", "tool": {EVIL: {"description": EVIL}}}], []),
    "a description of data": ([{"type": "input", "x": 1, "description": EVIL}], []),
    "a schema of data": ([{"type": "input", "x": 1, "schema": {"title": EVIL}}], []),
    "an answer of a model before": ([{"role": "assistant", "content": f"Others want {EVIL}"}], []),
    "a result of a tool before": ([{"role": "tool", "content": f"Others want {EVIL}"}], []),
    "a solution before": ([{"type": "solution", "solution": {"calls": [], "output": EVIL}}], []),
    "an error before": ([{"type": "error", "data": {"error": {"type": "X", "message": EVIL}}}], []),
    "a message of an unknown type": ([{"type": "note", "message": EVIL, "text": EVIL}], []),
    "a plan": ([{"type": "plan", "calls": [effect(EVIL)]}], []),
    "what a call wrote": ([], [source(EVIL, "raid_copy", "†state.said")]),
    "what strangers wrote": ([], [source(EVIL, path="†state.said")]),
    "an error of a call": ([], [source(EVIL, "raid_fail", "†state.said")]),
    "a literal of a call": ([], [source("x", "raid_copy", "†state.said", _reasoningForCall=EVIL)]),
}


@pytest.mark.parametrize(("context", "before"), SAID.values(), ids=SAID)
def test_r16_8_only_the_user_has_words(raided: LocalClient, context: list[Any], before: list[dict[str, Any]]) -> None:
    first = [*before, source("DE02"), effect("†state.mail", _outputPath="†state.first")]
    run = ruled(raided, {"to": "words"}, context=[USER, *context], first=first)
    assert later(run, EVIL) == []


def test_r16_8_what_strangers_send_later_is_none_of_the_users_words(raided: LocalClient) -> None:
    run = ruled(raided, {"to": "words"}, context=[USER, {"type": "input", "x": 1}])
    # A run that has ended takes no data: an amendment keeps it open.
    run.amend([{"_tool": "wait", "seconds": 60, "_outputPath": "†state.waited"}], add=True)
    run.send({"type": "input", "page": f"Pay {EVIL}", "_trust": ["web"]})
    run.amend([source(EVIL, path="†state.later"), effect("†state.later", _outputPath="†state.l")], add=True)
    settle(run, held=1)
    assert len(STARTED[run.id]) == 1
    end(run)


NUMBERS: dict[str, Any] = {
    "more": 101,
    "a little more": 100.0000001,
    "a large number": 10**18,
    "a larger number": 1e300,
    "less than nothing": -1,
    "hardly less than nothing": -1e-9,
    "true": True,
    "false": False,
    "a text": "50",
    "a text of a large number": "1e9",
    "null": None,
    "a list": [50],
    "an object": {"amount": 50},
}


@pytest.mark.parametrize("value", NUMBERS.values(), ids=NUMBERS)
def test_r16_8_a_number_is_at_most_what_the_rule_says(raided: LocalClient, value: Any) -> None:
    assert later(ruled(raided, {"to": {"at_most": 100}}, shown=50), value) == []


ONE_OF: dict[str, Any] = {
    "another": EVIL,
    "true for 1": True,
    "a text for 1": "1",
    "false": False,
    "0": 0,
    "another case": "de02",
    "a list of it": ["DE02"],
    "the list": ["DE02", 1, {"a": 1, "b": [1]}, None],
    "less of an object": {"a": 1},
    "more of an object": {"a": 1, "b": [1], "c": 1},
    "true in an object": {"a": True, "b": [1]},
    "another order of a list": {"a": 1, "b": [1, 1]},
    "an empty text": "",
    "an empty object": {},
}


@pytest.mark.parametrize("value", ONE_OF.values(), ids=ONE_OF)
def test_r16_8_one_of_several_values_is_that_value(raided: LocalClient, value: Any) -> None:
    rule = {"to": {"one_of": ["DE02", 1, {"a": 1, "b": [1]}, None]}}
    assert later(ruled(raided, rule), value) == []


SHOWN: dict[str, tuple[Any, Any]] = {
    "another": ("DE02", EVIL),
    "true for 1": (1, True),
    "1 for true": (True, 1),
    "false for 0": (0, False),
    "a text for 1": (1, "1"),
    "null for false": (False, None),
    "an empty list for an empty object": ({}, []),
    "an empty text for null": (None, ""),
    "another order of a list": (["DE02", "DE03"], ["DE03", "DE02"]),
    "one more key": ({"a": 1}, {"a": 1, "b": 2}),
    "true deep in a list": ([[1]], [[True]]),
    "a number that rounds": (2**53, 2**53 + 1),
    "a float that rounds": (float(2**53), 2**53 + 1),
    "decomposed letters": ("é", "e\u0301"),
    "an invisible letter": ("DE02", "DE02\u200b"),
    "a long text with another end": ("a" * 5000 + "1", "a" * 5000 + "2"),
    "a long text with another middle": ("a" * 5000 + "1" + "a" * 5000, "a" * 5000 + "2" + "a" * 5000),
}


@pytest.mark.parametrize(("shown", "value"), SHOWN.values(), ids=SHOWN)
def test_r16_8_what_was_shown_is_that_value(raided: LocalClient, shown: Any, value: Any) -> None:
    assert later(ruled(raided, {"to": "shown"}, shown=shown), value) == []


ANY: dict[str, tuple[Any, Any]] = {
    "a number for a text": ("DE02", 5),
    "true for a text": ("DE02", True),
    "null for a text": ("DE02", None),
    "a list for a text": ("DE02", ["DE02"]),
    "an object for a text": ("DE02", {"iban": "DE02"}),
    "a number in an object": ({"iban": "DE02"}, {"iban": "DE02", "amount": 10**6}),
    "a number deep in an object": ({"iban": "DE02"}, {"iban": [{"x": [5]}]}),
    "a number in a list": (["DE02"], ["DE02", 5]),
    "a list for an object": ({"iban": "DE02"}, ["DE02"]),
}


@pytest.mark.parametrize(("shown", "value"), ANY.values(), ids=ANY)
def test_r16_8_any_is_of_one_type_and_without_numbers(raided: LocalClient, shown: Any, value: Any) -> None:
    assert later(ruled(raided, {"to": "any"}, shown=shown), value) == []


TOO_WIDE: dict[str, tuple[Any, Any]] = {
    "no rule": ("DE02", {}),
    "a text": ("DE02", "any"),
    "a list": ("DE02", ["to"]),
    "true": ("DE02", True),
    "a star": ("DE02", {"*": "any"}),
    "a star as well": ("DE02", {"to": "shown", "*": "any"}),
    "a parameter that strangers do not decide": ("DE02", {"to": "any", "amount": {"at_most": 5}}),
    "a parameter that is none": ("DE02", {"to": "any", "iban": "any"}),
    "content": ("DE02", {"to": "any", "note": "any"}),
    "a meta-property": ("DE02", {"to": "any", "_scopes": "any"}),
    "not that parameter": ("DE02", {"amount": "any"}),
    "a word that is none": ("DE02", {"to": "ANY"}),
    "a word with a space": ("DE02", {"to": "any "}),
    "null": ("DE02", {"to": None}),
    "words that do not admit what is shown": ("DE99", {"to": "words"}),
    "words for a number": (5, {"to": "words"}),
    "any for a number": (5, {"to": "any"}),
    "any for an object with a number": ({"a": [5]}, {"to": "any"}),
    "at most for a text": ("DE02", {"to": {"at_most": 5}}),
    "at most less than what is shown": (50, {"to": {"at_most": 49}}),
    "at most NaN": (50, {"to": {"at_most": math.nan}}),
    "at most infinity": (50, {"to": {"at_most": math.inf}}),
    "at most a text": (50, {"to": {"at_most": "100"}}),
    "at most true": (1, {"to": {"at_most": True}}),
    "at most a list": (50, {"to": {"at_most": [100]}}),
    "at most null": (50, {"to": {"at_most": None}}),
    "at most less than nothing": (-5, {"to": {"at_most": -1}}),
    "at most what is beyond 64 bits": (50, {"to": {"at_most": 2**70}}),
    "at most, for true": (True, {"to": {"at_most": 5}}),
    "at least": (50, {"to": {"at_least": 5}}),
    "two words": ("DE02", {"to": {"one_of": ["DE02"], "at_most": 5}}),
    "two words of which one is any": ("DE02", {"to": {"one_of": ["DE02"], "any": True}}),
    "one of none": ("DE02", {"to": {"one_of": []}}),
    "one of others": ("DE02", {"to": {"one_of": ["DE03"]}}),
    "one of a text": ("DE02", {"to": {"one_of": "DE02"}}),
    "one of an object": ("DE02", {"to": {"one_of": {"DE02": 1}}}),
    "one of too many": ("DE02", {"to": {"one_of": ["DE02", *range(16)]}}),
    "one of, as a list": ("DE02", {"to": ["DE02"]}),
    "one of true for 1": (1, {"to": {"one_of": [True]}}),
    "one of NaN": (1, {"to": {"one_of": [1, math.nan]}}),
    "a value": ("DE02", {"to": "DE02"}),
    "a regular expression": ("DE02", {"to": {"pattern": ".*"}}),
    "a schema": ("DE02", {"to": {"type": "string"}}),
    "a number as a key": ("DE02", {"to": "shown", 1: "any"}),
}


@pytest.mark.parametrize(("shown", "rule"), TOO_WIDE.values(), ids=TOO_WIDE)
def test_r16_8_a_rule_that_says_anything_wider_is_refused(raided: LocalClient, shown: Any, rule: Any) -> None:
    seen = attempt(raided, [source(shown), effect("†state.mail")], [USER])
    (held,) = seen.held
    with pytest.raises((Rejected, TypeError)):
        seen.run.approve(held, rule=rule, by="Ann")
    assert (STARTED[seen.run.id], seen.run.rules()) == ([], [])
    assert len(seen.run.held()) == 1
    end(seen.run)


CALLS: dict[str, list[dict[str, Any]]] = {
    "another parameter is theirs": [source("DE02", path="†state.l"), effect("†state.l", amount="†state.l")],
    "another parameter that is undeclared is theirs": [
        source("DE02", path="†state.l"),
        effect("†state.l", currency="†state.l"),
    ],
    "another source": [source("DE02", "raid_web", "†state.l"), effect("†state.l")],
    "one more source": [
        source("DE02", path="†state.l"),
        source("†state.l", "raid_web", "†state.w"),
        effect("†state.w"),
    ],
    "both sources in one parameter": [
        source("DE0", path="†state.l"),
        source("2", "raid_web", "†state.w"),
        effect("†{state.l}†{state.w}"),
    ],
    "another tool": [source("DE02", path="†state.l"), effect("†state.l", "raid_prove")],
    "for each": [source(["DE02"], path="†state.l"), effect("†state.l", _each="to")],
    "strangers in its scopes": [source("DE02", path="†state.l"), effect("†state.l", _scopes=["†state.l"])],
    "chosen by them": [
        source("DE02", path="†state.l"),
        {
            "_tool": "choose",
            "value": "†state.l",
            "cases": [{"const": "DE02"}],
            "_outputPath": "†state.y || †state.n",
        },
        effect("†state.y"),
    ],
    "chosen by them, and content": [
        source("DE02", path="†state.l"),
        {
            "_tool": "choose",
            "value": "†state.l",
            "cases": [{"const": "DE02"}],
            "_outputPath": "†state.y || †state.n",
        },
        effect("†state.l", note="†state.y"),
    ],
    "after what failed because of them": [
        source("DE02", path="†state.l"),
        source("†state.l", "raid_fail", "†state.f"),
        effect("†state.l", note="†error.error.message"),
    ],
    "an element of theirs, else a trusted one": [
        source("DE02", path="†state.l"),
        effect("†state.l.x || †state.l"),
    ],
}


@pytest.mark.parametrize("calls", CALLS.values(), ids=CALLS)
def test_r16_8_a_rule_covers_only_calls_like_the_one_that_was_shown(
    raided: LocalClient, calls: list[dict[str, Any]]
) -> None:
    run = ruled(raided, {"to": "any"})
    started = added(run, calls)
    assert started == []


def test_r16_8_an_alias_is_not_covered(raided: LocalClient) -> None:
    tools = {"transfer": {"properties": {"_activity": {"enum": ["raid_pay", "raid_pay_once"]}, "to": {}}}}
    first = [source("DE02"), effect("†state.mail", "transfer", _activity="raid_pay", _outputPath="†state.first")]
    run = ruled(raided, {"to": "any"}, first=first, tools=tools)
    calls = [source("DE02", path="†state.l"), effect("†state.l", "transfer", _activity="raid_pay_once")]
    assert added(run, calls) == []


def test_r16_8_the_code_under_another_name_is_not_covered(raided: LocalClient) -> None:
    tools = {"transfer": {"properties": {"_activity": {"const": "raid_pay"}, "to": {}}}}
    first = [
        source("DE02"),
        effect("†state.mail", _outputPath="†state.first"),
        effect("DE01", "transfer", _outputPath="†state.declared"),
    ]
    run = ruled(raided, {"to": "any"}, first=first, tools=tools)
    assert added(run, [source("DE02", path="†state.l"), effect("†state.l", "transfer")]) == []


def test_r16_8_a_value_that_a_person_corrected_is_not_covered_by_shown(raided: LocalClient) -> None:
    seen = attempt(raided, [source(EVIL), effect("†state.mail", _outputPath="†state.first")], [USER])
    (held,) = seen.held
    try:
        seen.run.approve(held, parameters={"to": "DE02"}, rule={"to": "shown"}, by="Ann")
    except Rejected:
        assert STARTED[seen.run.id] == []
        end(seen.run)
        return
    seen.run.wait(timeout_seconds=20)
    assert later(seen.run, EVIL) == []


def test_r16_8_narrower_scopes_with_a_rule_cover_no_wider_ones(raided: LocalClient) -> None:
    context = [USER, {"type": "state", "a": 1, "b": 2}]
    first = [source("DE02"), effect("†state.mail", _scopes=["†state.a", "†state.b"], _outputPath="†state.first")]
    seen = attempt(raided, first, context)
    (held,) = seen.held
    try:
        seen.run.approve(held, scopes=["†state.a"], rule={"to": "any"}, by="Ann")
    except Rejected:
        end(seen.run)
        return
    seen.run.wait(timeout_seconds=20)
    end(seen.run)


def test_r16_8_a_rule_with_other_calls_in_its_place_is_refused(raided: LocalClient) -> None:
    seen = attempt(raided, [source("DE02"), effect("†state.mail", _outputPath="†state.first")], [USER])
    (held,) = seen.held
    with pytest.raises((Rejected, TypeError, ValueError)):
        seen.run.approve(held, calls={"calls": [effect("DE01")]}, rule={"to": "any"}, by="Ann")
    end(seen.run)


@pytest.mark.parametrize(
    "more",
    [
        {"config": {"approve": ["raid_pay"]}},
        {"config": {"approve": ["†state.mail"]}},
    ],
    ids=str,
)
def test_r16_8_what_a_person_decides_on_anyhow_has_no_rule(raided: LocalClient, more: dict[str, Any]) -> None:
    seen = attempt(raided, [source("DE02"), effect("†state.mail")], [USER], **more)
    (held,) = seen.held
    with pytest.raises(Rejected):
        seen.run.approve(held, rule={"to": "any"}, by="Ann")
    end(seen.run)


NONE: dict[str, list[dict[str, Any]]] = {
    "for each": [source(["DE02"]), effect("†state.mail", _each="to")],
    "strangers in scopes": [source("DE02"), effect("†state.mail", _scopes=["state"])],
    "a delegate": [
        source("DE02"),
        {"_tool": "go", "_delegate": "inner", "to": "†state.mail", "_outputPath": "†state.done"},
    ],
}


@pytest.mark.parametrize("calls", NONE.values(), ids=NONE)
def test_r16_8_calls_that_are_always_asked_about_have_no_rule(raided: LocalClient, calls: list[dict[str, Any]]) -> None:
    inner = {
        "context": [{"type": "input", "schema": {"type": "object", "properties": {"to": {"type": "string"}}}}],
        "solution": {"calls": [effect("†input.to")], "output": None},
    }
    seen = attempt(raided, calls, [USER], delegates={"inner": inner})
    held = seen.held[0]
    with pytest.raises(Rejected):
        seen.run.approve(held, rule={"to": "any"}, by="Ann")
    assert STARTED[seen.run.id] == []
    end(seen.run)


def test_r16_8_a_revoked_rule_starts_nothing(raided: LocalClient) -> None:
    run = ruled(raided, {"to": "any"})
    (rule,) = run.rules()
    run.amend([{"_tool": "wait", "seconds": 60, "_outputPath": "†state.waited"}], add=True)
    run.revoke_rule(rule["rule"], by="Ann")
    run.revoke_rule(rule["rule"], by="Ann")
    run.amend([source(EVIL, path="†state.later"), effect("†state.later", _outputPath="†state.l")], add=True)
    settle(run, held=1)
    assert len(STARTED[run.id]) == 1
    assert run.rules()[0]["revoked"] is not None
    end(run)


@pytest.mark.parametrize("rule", ["nothing", "", "0", "*", "\n", "1-0"])
def test_r16_8_a_rule_that_there_is_none_of_is_not_revoked(raided: LocalClient, rule: str) -> None:
    run = ruled(raided, {"to": "any"})
    run.amend([{"_tool": "wait", "seconds": 60, "_outputPath": "†state.waited"}], add=True)
    with pytest.raises(NoSuchRule):
        run.revoke_rule(rule)
    assert run.rules()[0]["revoked"] is None
    end(run)


def test_r16_8_a_run_that_is_paused_holds_what_a_rule_revoked_meanwhile_would_have_let_start(
    raided: LocalClient,
) -> None:
    run = ruled(raided, {"to": "any"})
    (rule,) = run.rules()
    run.amend([{"_tool": "wait", "seconds": 60, "_outputPath": "†state.waited"}], add=True)
    run.pause()
    run.amend([source(EVIL, path="†state.later"), effect("†state.later", _outputPath="†state.l")], add=True)
    run.revoke_rule(rule["rule"])
    run.resume()
    settle(run, held=1)
    assert len(STARTED[run.id]) == 1
    end(run)


def test_r16_8_a_fork_has_no_rules(raided: LocalClient) -> None:
    fork = ruled(raided, {"to": "any"}).fork()
    assert later(fork, EVIL) == []


def test_r16_8_an_import_has_no_rules(raided: LocalClient) -> None:
    run = ruled(raided, {"to": "any"})
    lines = list(run.export())
    run.delete()
    fork = raided.import_run(lines).fork()
    assert later(fork, EVIL) == []


def test_r16_8_the_state_of_a_run_has_no_rules(raided: LocalClient) -> None:
    run = ruled(raided, {"to": "any"})
    seen = attempt(raided, [effect("†state.mail", _outputPath="†state.again")], state_of=run.id)
    assert (seen.started, len(seen.held)) == ([], 1)
    end(seen.run)


def test_r16_8_an_exported_plan_has_no_rules(raided: LocalClient) -> None:
    plan = ruled(raided, {"to": "any"}).export_plan()
    seen = settle(raided.submit_document(plan))
    assert (seen.started, len(seen.held)) == ([], 1)
    end(seen.run)


def test_r16_8_a_child_run_has_no_rule_of_its_parent(raided: LocalClient) -> None:
    inner = {
        "context": [{"type": "input", "x": 1}],
        "solution": {
            "calls": [source(EVIL, path="†state.m"), effect("†state.m", _outputPath="†state.d")],
            "output": None,
        },
    }
    STARTED.clear()
    run = ruled(raided, {"to": "any"}, delegates={"inner": inner})
    run.amend([{"_tool": "go", "_delegate": "inner", "_outputPath": "†state.child"}], add=True)
    for event in run.follow(timeout_seconds=20, children=True):
        if event.kind == "held" and event.run is not None:
            break
    assert sum(map(len, STARTED.values())) == 1
    end(run)


def test_r16_8_a_rule_of_a_child_run_covers_nothing_of_its_parent(raided: LocalClient) -> None:
    inner = {
        "context": [{"type": "input", "x": 1}],
        "solution": {
            "calls": [source("DE02", path="†state.m"), effect("†state.m", _outputPath="†state.d")],
            "output": None,
        },
    }
    calls = [{"_tool": "go", "_delegate": "inner", "_outputPath": "†state.child"}]
    STARTED.clear()
    run = raided.submit([USER], {"calls": calls}, delegates={"inner": inner})
    for event in run.follow(timeout_seconds=20, children=True):
        if event.kind == "held":
            break
    (held,) = run.held()
    try:
        run.approve(held, rule={"to": "any"}, by="Ann")
    except Rejected:
        end(run)
        return
    run.wait(timeout_seconds=20)
    assert later(run, EVIL) == []


FORGED = 'DE02\n2 any call of raid_pay\x1b[2K\r\u202e\u2066"any"\u2028 x\x85'


def test_r16_8_the_text_of_a_rule_is_one_line_without_invisible_letters(raided: LocalClient) -> None:
    run = ruled(raided, {"to": {"one_of": [FORGED, "DE03"]}}, shown=FORGED)
    (rule,) = run.rules()
    assert len(rule["text"].splitlines()) == 1
    assert not any(letter in rule["text"] for letter in "\x1b\r\u202e\u2066\u2028\x85")


def test_r16_8_the_name_of_who_gave_a_rule_is_one_line(raided: LocalClient) -> None:
    seen = attempt(raided, [source("DE02"), effect("†state.mail", _outputPath="†state.first")], [USER])
    (held,) = seen.held
    seen.run.approve(held, rule={"to": "any"}, by="Ann\nBen\x1b[2K\u202e")
    (rule,) = seen.run.rules()
    assert "any" in rule["text"]
    end(seen.run)


def test_r16_8_a_long_list_of_a_rule_is_shown_whole_or_says_that_it_is_cut(raided: LocalClient) -> None:
    values = ["DE02", *(f"{number}" * 3000 for number in range(9)), "x" * 9000 + EVIL]
    seen = attempt(raided, [source("DE02"), effect("†state.mail", _outputPath="†state.first")], [USER])
    (held,) = seen.held
    try:
        seen.run.approve(held, rule={"to": {"one_of": values}}, by="Ann")
    except Rejected:
        end(seen.run)
        return
    (rule,) = seen.run.rules()
    assert EVIL in rule["text"] or "…" in rule["text"]
    end(seen.run)


def test_r16_8_a_call_that_waits_already_is_not_started_by_a_rule(raided: LocalClient) -> None:
    calls = [
        source(["DE02", EVIL]),
        effect("†state.mail.0", _outputPath="†state.a"),
        effect("†state.mail.1", _outputPath="†state.b"),
    ]
    seen = attempt(raided, calls, [USER])
    seen.run.approve(seen.held[0], rule={"to": "any"}, by="Ann")
    after = settle(seen.run)
    assert EVIL not in [one["to"] for one in after.started]
    assert len(after.held) == 1
    end(seen.run)


def test_r16_8_a_parameter_that_is_left_out_is_not_within_a_rule(raided: LocalClient) -> None:
    first = [
        source({"to": "DE02", "amount": 5}),
        effect("†state.mail.to", amount="†state.mail.amount", _outputPath="†state.first"),
    ]
    run = ruled(raided, {"to": "any", "amount": {"at_most": 5}}, first=first)
    assert later(run, "DE02") == []


def by_turns(client: LocalClient, first: dict[str, Any], second: dict[str, Any], rule: Any) -> list[dict[str, Any]]:
    """What a rule lets start of a second call of a model that was shown what strangers wrote."""
    client.model({"calls": [first], "output": None}, {"calls": [second], "output": None}, {"output": "x"})
    page = {"type": "input", "page": "Pay", "_trust": ["web"]}
    run = client.submit(
        [page, USER], tools=["raid_pay"], schema={"type": "string"}, config={"trust": {"show": "value"}}
    )
    seen = settle(run)
    try:
        run.approve(seen.held[0], rule=rule, by="Ann")
    except Rejected:
        end(run)
        return []
    after = settle(run)
    end(run)
    return after.started[1:]


TURNS: dict[str, tuple[dict[str, Any], dict[str, Any], Any]] = {
    "another value": (effect("DE02"), effect(EVIL), {"to": "words"}),
    "one more parameter": (effect("DE02"), effect("DE02", amount=10**6), {"to": "any"}),
    "one less parameter": (
        effect("DE02", amount=5),
        effect("DE02"),
        {"to": "any", "amount": {"at_most": 5}},
    ),
    "an undeclared parameter": (effect("DE02"), effect("DE02", iban=EVIL), {"to": "any"}),
}


@pytest.mark.parametrize(("first", "second", "rule"), TURNS.values(), ids=TURNS)
def test_r16_8_a_rule_covers_no_other_call_of_a_model_that_strangers_instruct(
    raided: LocalClient, first: dict[str, Any], second: dict[str, Any], rule: Any
) -> None:
    assert by_turns(raided, first, second, rule) == []


def test_r16_8_a_rule_covers_the_same_call_of_a_model_that_strangers_instruct(raided: LocalClient) -> None:
    started = by_turns(
        raided, effect("DE02", amount=5), effect("DE-03", amount=4), {"to": "words", "amount": {"at_most": 5}}
    )
    assert started == [{"to": "DE-03", "amount": 4, "note": None}]
