"""Attacks on approvals and questions, by somebody who had only read the documents: an answer covers what was shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest

from acts_celery import (
    AlreadyDecided,
    HeldAnew,
    LocalClient,
    NotHeld,
    Rejected,
    Run,
    RunOver,
    WorkerError,
)

from .raids import EVIL, STARTED, VALUES, Attempt, attempt, effect, end, raided, settle, source

__all__ = ["raided"]


def two(client: LocalClient, one: Any = "DE02", other: Any = "DE03", **more: Any) -> Attempt:
    """A run in which two calls wait for strangers' word."""
    calls = [
        source({"a": one, "b": other}),
        effect("†state.mail.a", _outputPath="†state.a", **more),
        effect("†state.mail.b", _outputPath="†state.b", **more),
    ]
    return attempt(client, calls)


PAIRS: dict[str, tuple[Any, Any]] = {
    "1 and a text": (1, "1"),
    "1 and true": (1, True),
    "0 and false": (0, False),
    "0 and null": (0, None),
    "an empty text and null": ("", None),
    "the word null and null": ("null", None),
    "a text and a text in quotes": ("a", '"a"'),
    "an empty list and an empty object": ([], {}),
    "an empty list and null": ([], None),
    "an empty object and an empty text": ({}, ""),
    "a list and an object of indexes": (["a"], {"0": "a"}),
    "a list and its text": (["a"], '["a"]'),
    "a key with a slash and a deep key": ({"a/b": "x"}, {"a": {"b": "x"}}),
    "a key with a tilde and one with a slash": ({"a~1b": "x"}, {"a/b": "x"}),
    "an escaped tilde and a tilde": ({"a~0b": "x"}, {"a~b": "x"}),
    "an empty key and no key": ({"": "x"}, "x"),
    "two empty keys and one": ({"": {"": "x"}}, {"": "x"}),
    "a missing key and null": ({"a": 1}, {"a": 1, "b": None}),
    "a missing key and an empty object": ({"a": 1}, {"a": 1, "b": {}}),
    "other letters that look alike": ("DE02", "DЕ02"),
    "an invisible letter": ("DE02", "DE02\u200b"),
    "a soft hyphen": ("DE02", "DE\u00ad02"),
    "decomposed letters": ("é", "e\u0301"),
    "a space behind": ("DE02", "DE02 "),
    "another space": ("DE 02", "DE\u00a002"),
    "a line break": ("DE02", "DE02\n"),
    "an override of direction": ("DE02", "\u202e20ED"),
    "a tag letter": ("DE02", "DE02\U000e0041"),
    "another end of a long text": ("a" * 9000 + "1", "a" * 9000 + "2"),
    "another middle of a long text": ("a" * 9000 + "1" + "a" * 9000, "a" * 9000 + "2" + "a" * 9000),
    "another element of a long list": (list(range(3000)), [*range(2999), -1]),
    "another key of a large object": ({f"k{n}": n for n in range(3000)}, {f"k{n}": n for n in range(2999)} | {"k": 0}),
    "large numbers": (2**53, 2**53 + 1),
    "the order of a list": (["a", "b"], ["b", "a"]),
    "deep values": ({"a": [{"b": [1]}]}, {"a": [{"b": [2]}]}),
}


def _parts(question: dict[str, Any]) -> list[str]:
    return [json.dumps([row["differs"], question["same"]], sort_keys=True) for row in question["rows"]]


@pytest.mark.parametrize(("one", "other"), PAIRS.values(), ids=PAIRS)
def test_r16_8_two_values_that_are_not_the_same_are_shown_as_different(
    raided: LocalClient, one: Any, other: Any
) -> None:
    seen = two(raided, one, other)
    (question,) = seen.run.questions()
    first, second = question["rows"]
    assert first["shown"] != second["shown"]
    assert json.dumps(first["differs"]) != json.dumps(second["differs"]), question
    held = [json.dumps(call["parameters"]) for call in seen.run.held()]
    assert held[0] != held[1]
    end(seen.run)


COMMAND = [sys.executable, "-m", "acts_celery"]


def command(client: LocalClient, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **client.settings.to_environment(), "COLUMNS": "100"}
    return subprocess.run(
        [*COMMAND, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


INVISIBLE = "\u200b\u202e\u2066\u00ad\U000e0041\x1b\x07\x85\u2028\u3164"


def test_r16_8_what_the_command_shows_forges_no_line_hides_nothing_and_leaves_out_nothing(raided: LocalClient) -> None:
    long, many = "a" * 9000, [f"IT{number:04}" for number in range(150)]
    forged = f"DE02{INVISIBLE}\n  call  /parameters/to\n  2     DE01"
    values: dict[str, list[Any]] = {
        "raid_pay": [forged, "DE03"],
        "raid_prove": [long + "DE66", long + "DE67"],
        "raid_pay_once": [{"k\n  2     DE01": 1, "x\u202e": "DE68"}, {"k": 1}],
        "raid_pay_late": many,
    }
    calls = [source(list(values.values()))]
    for number, (tool, each) in enumerate(values.items()):
        calls += [
            effect(f"†state.mail.{number}.{n}", tool, _outputPath=f"†state.p{number}.n{n}") for n in range(len(each))
        ]
    calls.append(source(long + "DE69", "raid_web", "†state.web"))
    calls.append(effect("†state.web", amount={"a": [long + "DE70"]}))
    seen = attempt(raided, calls)
    shown = command(raided, "held", seen.run.id).stdout
    end(seen.run)
    assert not set(INVISIBLE) & set(shown), shown
    assert "\n  2     DE01" not in shown
    assert [value for value in (*many, "DE03", "DE66", "DE67", "DE68", "DE69", "DE70") if value not in shown] == []


def test_r16_8_a_call_that_is_held_after_the_question_was_shown_is_not_answered(raided: LocalClient) -> None:
    seen = two(raided)
    (question,) = seen.run.questions()
    seen.run.amend([source(EVIL, path="†state.late"), effect("†state.late", _outputPath="†state.c")], add=True)
    settle(seen.run, held=3)
    seen.run.approve_together(question)
    after = settle(seen.run)
    assert sorted(one["to"] for one in after.started) == ["DE02", "DE03"]
    assert [call["parameters"]["to"] for call in after.held] == [EVIL]
    end(seen.run)


def _questions(run: Run[Any]) -> dict[str, Any]:
    (question,) = run.questions()
    return question


TAMPERED = {
    "the digests swapped": lambda calls: dict(zip(calls, reversed(calls.values()), strict=True)),
    "the digest of the other": lambda calls: {list(calls)[1]: next(iter(calls.values()))},
    "no digest": lambda calls: dict.fromkeys(calls, ""),
    "null": lambda calls: dict.fromkeys(calls, None),
    "the beginning of a digest": lambda calls: {call: shown[:8] for call, shown in calls.items()},
    "another case": lambda calls: {call: shown.upper() + "A" for call, shown in calls.items()},
    "a star": lambda calls: dict.fromkeys(calls, "*"),
    "a number": lambda calls: dict.fromkeys(calls, 1),
    "another call": lambda calls: {"0": next(iter(calls.values()))},
    "a call that there is none of": lambda calls: {"99": next(iter(calls.values()))},
    "a star for calls": lambda calls: {"*": next(iter(calls.values()))},
    "nothing": lambda calls: {},
    "a text": lambda calls: "*",
}


@pytest.mark.parametrize("tamper", TAMPERED.values(), ids=TAMPERED)
def test_r16_8_a_question_that_was_tampered_with_lets_nothing_start(raided: LocalClient, tamper: Any) -> None:
    seen = two(raided)
    calls = tamper(_questions(seen.run)["calls"])
    with suppress(WorkerError, Rejected, TypeError):
        raided.run(seen.run.id).approve_together(calls, by="Ann")
    assert STARTED[seen.run.id] == []
    assert len(seen.run.held()) == 2
    end(seen.run)


def test_r16_8_a_question_of_another_run_lets_nothing_start(raided: LocalClient) -> None:
    one, other = two(raided), two(raided)
    question = _questions(one.run)
    with pytest.raises(HeldAnew):
        other.run.question(question["question"])
    with suppress(WorkerError):
        other.run.approve_together(question)
    assert STARTED[other.run.id] == []
    assert len(other.run.held()) == 2
    end(one.run)
    end(other.run)


def test_r16_8_a_digest_of_another_run_approves_nothing(raided: LocalClient) -> None:
    one, other = two(raided), two(raided)
    with pytest.raises(HeldAnew):
        other.run.approve("1", shown=one.run.held()[0]["shown"])
    assert STARTED[other.run.id] == []
    end(one.run)
    end(other.run)


def test_r16_8_a_question_whose_calls_were_replaced_lets_nothing_start(raided: LocalClient) -> None:
    seen = two(raided)
    question = _questions(seen.run)
    seen.run.amend(
        [
            source({"a": EVIL, "b": EVIL}, path="†state.other"),
            effect("†state.other.a", _outputPath="†state.c"),
            effect("†state.other.b", _outputPath="†state.d"),
        ]
    )
    settle(seen.run, held=2)
    with suppress(WorkerError):
        seen.run.approve_together(question)
    assert STARTED[seen.run.id] == []
    assert len(seen.run.held()) == 2
    end(seen.run)


def test_r16_8_a_question_of_a_cancelled_run_lets_nothing_start(raided: LocalClient) -> None:
    seen = two(raided)
    question = _questions(seen.run)
    seen.run.cancel()
    with pytest.raises(RunOver):
        seen.run.approve_together(question)
    assert STARTED[seen.run.id] == []


def test_r16_8_a_call_that_somebody_rejected_meanwhile_does_not_start(raided: LocalClient) -> None:
    seen = two(raided)
    question = _questions(seen.run)
    seen.run.reject(seen.run.held()[0], "no", by="Ben")
    with suppress(WorkerError):
        seen.run.approve_together(question, by="Ann")
    after = settle(seen.run)
    assert "DE02" not in [one["to"] for one in after.started]
    end(seen.run)


def test_r16_8_approving_twice_starts_a_call_once(raided: LocalClient) -> None:
    seen = two(raided)
    question = _questions(seen.run)
    seen.run.approve_together(question, by="Ann")
    with suppress(WorkerError):
        seen.run.approve_together(question, by="Ben")
    seen.run.wait(timeout_seconds=20)
    assert sorted(one["to"] for one in STARTED[seen.run.id]) == ["DE02", "DE03"]


def test_r16_8_what_was_approved_cannot_be_approved_with_other_parameters(raided: LocalClient) -> None:
    seen = two(raided)
    call = seen.run.held()[0]
    seen.run.approve(call, by="Ann")
    with pytest.raises((AlreadyDecided, NotHeld)):
        seen.run.approve(call["call"], parameters={"to": EVIL}, shown=call["shown"], by="Ben")
    end(seen.run)
    assert EVIL not in [one["to"] for one in STARTED[seen.run.id]]


NAMES = [
    "",
    " ",
    "-1",
    "+1",
    "1.0",
    "１",
    "1\n",
    "*",
    "0",
    "99",
    "1:①",
    "1[0]",
    "raid_pay",
    -1,
    99,
    True,
    None,
    1.0,
    [1],
]


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_r14_2_a_call_that_is_named_otherwise_is_not_approved(raided: LocalClient, name: Any) -> None:
    seen = two(raided)
    shown = seen.run.held()[0]["shown"]
    with pytest.raises((WorkerError, Rejected, TypeError)):
        seen.run.approve(name, shown=shown, by="Ann")
    assert STARTED[seen.run.id] == []
    end(seen.run)


def test_r14_2_parameters_of_people_are_data(raided: LocalClient) -> None:
    context = [{"type": "state", "secret": "S"}]
    seen = attempt(raided, [source("DE02"), effect("†state.mail")], context)
    seen.run.approve(seen.held[0], parameters={"to": "†state.secret", "amount": "†{state.secret}"}, by="Ann")
    seen.run.wait(timeout_seconds=20)
    assert STARTED[seen.run.id] == [{"to": "†state.secret", "amount": "†{state.secret}", "note": None}]


WIDER = [
    ["state"],
    ["†state"],
    ["†state.user", "†state.secret"],
    ["†state.user || †state.secret"],
    ["†state.user && †state.secret"],
    ["†state.user.name.first", "input"],
    ['†state["secret"]'],
    ["†state.use"],
    "state",
    [""],
    ["*"],
    [1],
    ["text"],
    ["†{state.secret}"],
    ["†state.user.."],
]


@pytest.mark.parametrize("scopes", WIDER, ids=json.dumps)
def test_r14_2_wider_scopes_than_were_shown_are_refused(raided: LocalClient, scopes: Any) -> None:
    context = [{"type": "state", "user": {"name": {"first": "Ann"}}, "secret": "S"}]
    seen = attempt(raided, [source("DE02"), effect("†state.mail", _scopes=["†state.user"])], context)
    with pytest.raises((Rejected, TypeError)):
        seen.run.approve(seen.held[0], scopes=scopes, by="Ann")
    assert STARTED[seen.run.id] == []
    end(seen.run)


def test_r14_2_what_changes_after_it_was_shown_does_not_run(raided: LocalClient) -> None:
    promise = {"type": "input", "to": "DE02", "_trust": ["mail"]}
    calls = [effect("†input.to", _scopes=["input"])]
    seen = attempt(raided, calls, [promise])
    shown = seen.held[0]
    seen.run.send({"type": "input", "to": EVIL, "_trust": ["mail"]})
    assert seen.run.held()[0]["parameters"] == shown["parameters"]
    seen.run.approve(shown, by="Ann")
    seen.run.wait(timeout_seconds=20)
    assert [one["to"] for one in STARTED[seen.run.id]] == ["DE02"]


def test_r14_2_other_calls_in_place_of_a_held_one_are_held_themselves(raided: LocalClient) -> None:
    seen = attempt(raided, [source(EVIL), effect("†state.mail", _outputPath="†state.a")])
    seen.run.approve(seen.held[0], calls={"calls": [effect("†state.mail", _outputPath="†state.b")]}, by="Ann")
    after = settle(seen.run)
    assert (after.started, len(after.held)) == ([], 1)
    end(seen.run)


@pytest.mark.parametrize("for_all", [False, True])
def test_r16_4_who_approves_a_plan_endorses_nothing_that_strangers_write_later(
    raided: LocalClient, for_all: bool
) -> None:
    run = raided.submit([], {"calls": [source(EVIL), effect("†state.mail")]}, config={"mode": "lazy"})
    plan = run.plan()
    assert plan is not None
    run.approve_plan(plan["plan"], by="Ann", for_all=for_all)
    seen = settle(run)
    assert (seen.started, len(seen.held)) == ([], 1)
    end(run)


def test_r16_4_an_approval_covers_no_other_value_after_a_retry(raided: LocalClient) -> None:
    VALUES["other"] = []
    calls = [
        {"_tool": "raid_turns", "key": "other", "_outputPath": "†state.a"},
        source("DE02", path="†state.b"),
        effect("†state.a || †state.b"),
    ]
    seen = attempt(raided, calls)
    seen.run.approve(seen.held[0], by="Ann")
    seen.run.wait(timeout_seconds=20)
    assert [one["to"] for one in STARTED[seen.run.id]] == ["DE02"]
    VALUES["other"] = [EVIL]
    seen.run.retry(call=0, downstream=True, effects=True)
    after = settle(seen.run)
    assert EVIL not in [one["to"] for one in after.started]
    assert [call["parameters"]["to"] for call in after.held] == [EVIL]
    end(seen.run)


def test_r16_4_an_approved_call_that_failed_is_not_given_another_value(raided: LocalClient) -> None:
    VALUES["third"] = []
    calls = [
        {"_tool": "raid_turns", "key": "third", "_outputPath": "†state.a"},
        source("DE02", path="†state.b"),
        effect("†state.a || †state.b", "raid_pay_once"),
    ]
    seen = attempt(raided, calls)
    seen.run.approve(seen.held[0], by="Ann")
    seen.run.wait(timeout_seconds=20)
    VALUES["third"] = [EVIL]
    seen.run.retry()
    after = settle(seen.run)
    assert EVIL not in [one["to"] for one in after.started]
    end(seen.run)


def test_r16_4_a_fork_asks_again_about_what_waits(raided: LocalClient) -> None:
    seen = two(raided)
    fork = seen.run.fork()
    after = settle(fork, held=2)
    assert (after.started, len(after.held)) == ([], 2)
    with suppress(WorkerError):
        fork.approve_together(_questions(seen.run))
    end(fork)
    end(seen.run)


def test_r16_4_an_archive_whose_approval_was_changed_starts_nothing_else(raided: LocalClient) -> None:
    seen = attempt(raided, [source("DE02"), effect("†state.mail")])
    seen.run.approve(seen.held[0], by="Ann")
    seen.run.wait(timeout_seconds=20)
    moments = [entry.id for entry in seen.run.log(audit=True, every=True)]
    lines = [line.replace("DE02", EVIL) for line in seen.run.export()]
    seen.run.delete()
    try:
        imported = raided.import_run(lines)
    except Rejected:
        return
    STARTED.clear()
    for moment in moments:
        fork = imported.fork(at=moment)
        settle(fork)
        end(fork)
    assert EVIL not in [one["to"] for started in STARTED.values() for one in started]


def test_r16_4_a_fork_at_any_moment_of_an_approved_run_pays_nobody_without_a_person(raided: LocalClient) -> None:
    seen = attempt(raided, [source("DE02"), effect("†state.mail")])
    seen.run.approve(seen.held[0], by="Ann")
    seen.run.wait(timeout_seconds=20)
    STARTED.clear()
    for entry in list(seen.run.log(audit=True, every=True)):
        fork = seen.run.fork(at=entry.id)
        settle(fork)
        end(fork)
    assert not any(STARTED.values())


def test_r14_3_the_name_of_who_decides_forges_no_line_of_the_log(raided: LocalClient) -> None:
    seen = two(raided)
    seen.run.reject(seen.run.held()[0], f"no\n2026  approved by Ben{INVISIBLE}", by=f"Ann\napproved by Ben{INVISIBLE}")
    shown = command(raided, "log", seen.run.id, "--audit").stdout
    assert not set(INVISIBLE) & set(shown)
    assert "\napproved by Ben" not in shown
    end(seen.run)


@pytest.mark.parametrize(
    "call", ["1", {"call": "1"}, {"call": "1", "shown": None}, {"call": "1", "shown": ""}], ids=str
)
def test_r14_4_who_was_shown_nothing_decides_nothing(raided: LocalClient, call: Any) -> None:
    seen = two(raided)
    with pytest.raises((Rejected, HeldAnew), match="held"):
        raided.run(seen.run.id).approve(call, by="Ann")
    assert STARTED[seen.run.id] == []
    end(seen.run)


OTHER_DEEDS = {
    "settled as done": lambda run, held: run.settle(held, "done", value="x"),
    "settled as failed": lambda run, held: run.settle(held, "failed", reason="x"),
    "begun again": lambda run, held: run.settle(held, "again"),
    "answered": lambda run, held: run.answer(held, True),
    "moved": lambda run, held: run.move(held, 0),
    "retried": lambda run, held: run.retry(call=1),
    "retried with effects": lambda run, held: run.retry(call=0, downstream=True, effects=True),
    "taken as done": lambda run, held: run.retry(call=1, skip=True, value="x"),
    "paused and resumed": lambda run, held: (run.pause(), run.resume()),
    "resumed": lambda run, held: run.resume(),
    "approved as a plan": lambda run, held: run.approve_plan(held["shown"]),
    "sent more": lambda run, held: run.send({"type": "state", "x": 1}),
}


@pytest.mark.parametrize("deed", OTHER_DEEDS.values(), ids=OTHER_DEEDS)
def test_r16_4_nothing_but_an_approval_lets_a_held_call_start(raided: LocalClient, deed: Any) -> None:
    seen = two(raided)
    with suppress(WorkerError, Rejected):
        deed(seen.run, seen.held[0])
    after = settle(seen.run)
    assert after.started == []
    assert len(after.held) == 2
    end(seen.run)


def test_r14_2_what_changes_in_scopes_after_it_was_shown_is_not_seen(raided: LocalClient) -> None:
    context = [{"type": "state", "known": "DE02"}]
    seen = attempt(
        raided, [source("DE02"), effect("†state.mail", "raid_pay_seeing", _scopes=["†state.known"])], context
    )
    seen.run.send({"type": "state", "known": EVIL})
    seen.run.approve(seen.held[0], by="Ann")
    seen.run.wait(timeout_seconds=20)
    assert STARTED[seen.run.id] == [{"to": "DE02", "state": {"known": "DE02"}}]


def test_r16_4_who_approves_a_child_run_does_not_endorse_what_it_reads_itself(raided: LocalClient) -> None:
    STARTED.clear()
    inner = {
        "context": [{"type": "input", "schema": {"type": "object", "properties": {"x": {"type": "string"}}}}],
        "solution": {"calls": [source(EVIL), effect("†state.mail", note="†input.x")], "output": None},
    }
    calls = [source("x"), {"_tool": "go", "_delegate": "inner", "x": "†state.mail", "_outputPath": "†state.c"}]
    run = raided.submit([], {"calls": calls}, delegates={"inner": inner})
    settle(run)
    (held,) = run.held()
    run.approve(held, by="Ann")
    for event in run.follow(timeout_seconds=20, children=True):
        if event.kind == "held" and event.run is not None:
            break
    assert not any(STARTED.values())
    assert [call["parameters"]["to"] for call in run.held()] == [EVIL]
    end(run)
