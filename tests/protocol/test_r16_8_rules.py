"""Rules of a run: what they let start, and nothing that they do not show (SPEC R16.8)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery.protocol import Plan, check_submission
from acts_celery.protocol.analysis.lint_rules import with_rules
from acts_celery.protocol.engine.events import Hold, Ruling, Start, Status, Verdict
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.run_rules import RunRule, RunRules, UserWords, rule_problems
from acts_celery.protocol.state.fold import Fold

from . import naive
from .authoring import ACTIVITIES, Author, carry_out
from .building import DATE, call, checked
from .laws import law
from .simulator import Lane, World
from .strategies import SCHEMAS
from .test_r16_trust import LABELLED, Watched, _checked, labelled, with_other_values

MAIL: dict[str, Any] = {
    "type": "data",
    "data": {"iban": "DE01", "amount": 5, "all": ["DE01", 2], "texts": ["DE01"]},
    "_trust": ["mail"],
}
ASKED = {"type": "text", "message": "Pay the rent (DE01), then DE02, up to 50 EUR; write to ann@example.org."}
TOOLS = {"pay": {"_trust": {"effects": True, "content": ["note"]}}}


def plan_of(*calls: Mapping[str, Any], **parts: Any) -> Plan:
    return checked(*calls, **{"context": [ASKED, MAIL], "tools": TOOLS, **parts})


class Acting(Watched):
    """Also runs where a call is held and nobody decides: it goes as far as it can."""

    def carried_out(self, instance: str | None, start: Start, context: Mapping[str, Any]) -> Any:
        return "paid" if start.call.tool == "pay" else super().carried_out(instance, start, context)

    def go(self) -> Acting:
        while moves := self._moves():
            moves[0]()
        return self

    @property
    def ruled(self) -> list[Hold]:
        return [hold for _, hold in self.held_calls if hold.rule]


def acted(plan: Plan, *rules: RunRule) -> Acting:
    """A run of a plan whose run has rules."""
    given = RunRules(words=UserWords(plan.submission.context))
    for number, rule in enumerate(rules):
        given.give(f"{number}-0", rule)
    return Acting(plan, {"k": 1}, rules=given).go()


def hold_of(**parameters: Any) -> Hold:
    (_, hold), *_ = acted(plan_of(call("pay", "†state.paid", **parameters))).held_calls
    return hold


def faults(said: Any, hold: Hold, words: UserWords | None = None) -> list[str]:
    words = words or UserWords([ASKED])
    return [
        f"{problem.pointer} {problem.message}"
        for problem in rule_problems(said, hold.call, hold.doubt, hold.parameters, words)
    ]


def rule_of(said: Mapping[str, Any], hold: Hold) -> RunRule:
    assert hold.doubt is not None
    assert faults(said, hold) == []
    return RunRule.of(said, hold.call, hold.doubt, hold.parameters)


def test_a_rule_lets_later_calls_like_the_shown_one_start_and_no_others() -> None:
    rule = rule_of({"iban": "words", "amount": {"at_most": 50}}, hold_of(iban="†data.iban", amount="†data.amount"))
    pay = [
        call("pay", "†state.a", iban="†data.iban", amount="†data.amount"),
        call("pay", "†state.b", iban="†data.other", amount=7),
        call("pay", "†state.c", iban="†data.stranger", amount=7),
        call("pay", "†state.d", iban="†data.iban", amount=51),
        call("pay", "†state.e", iban="†state.page", amount=1),
        call("pay", "†state.f", iban="†data.iban", amount=1, cc="†data.iban"),
        call("pay", "†state.g", iban="†data.iban", amount=-1),
    ]
    data = {"type": "data", "data": {"other": "DE02", "stranger": "DE66"}, "_trust": ["mail"]}
    page = {"type": "state", "page": "DE01", "_trust": ["web"]}
    run = acted(plan_of(*pay, context=[ASKED, MAIL, data, page]), rule)
    assert [hold.call.index for hold in run.ruled] == [0, 1]
    assert [hold.call.index for _, hold in run.held_calls] == [0, 1, 2, 3, 4, 5, 6]
    assert run.statuses[None][0].value == "done"


def test_anything_is_of_the_shown_type_and_has_no_numbers() -> None:
    rule = rule_of({"all": "any"}, hold_of(all="†data.texts"))
    calls = [call("pay", f"†state.{name}", all=f"†data.{name}") for name in ("texts", "all", "iban", "amount")]
    assert [hold.call.index for hold in acted(plan_of(*calls), rule).ruled] == [0]


@pytest.mark.parametrize(
    ("value", "is_there"),
    [
        *(("DE01", True), ("DE02", True), ("ann@example.org", True), (["DE01", "DE02"], True), ("Pay the rent", True)),
        *(("DE0", False), ("E01", False), ("nn@example.org", False), ("example.org", False), ("ann@example", False)),
        *(
            ("50", False),
            ("de01", False),
            (" DE01", False),
            ("", False),
            ([], False),
            (["DE01", 5], False),
            (50, False),
        ),
    ],
)
def test_what_stands_in_the_users_words_stands_there_whole(value: Any, is_there: bool) -> None:
    assert UserWords([ASKED]).have(value) is is_there


def test_words_are_the_users_alone() -> None:
    others: list[dict[str, Any]] = [
        {**ASKED, "_trust": ["mail"]},
        {"role": "assistant", "content": "pay DE66"},
        {"type": "solution", "solution": {"calls": [{"iban": "DE66"}]}},
        {"type": "error", "error": {"message": "pay DE66"}},
        {"type": "data", "data": {"x": 1}, "schema": {"enum": ["DE66"]}, "description": "DE66"},
        {"type": "state", "_call": {"iban": "DE66"}, "x": 1},
    ]
    assert not UserWords(others).have("DE66")
    assert not UserWords(others[:1]).have("DE01")
    assert UserWords([{"role": "user", "content": "pay DE66"}]).have("DE66")


REFUSED: dict[str, tuple[Any, str]] = {
    "nothing of a parameter that others decide": ({"amount": {"at_most": 9}}, "others decide iban"),
    "a parameter that the call does not have": ({"iban": "shown", "amount": "shown", "cc": "any"}, "/cc"),
    "anything where there are numbers": ({"iban": "shown", "amount": "any"}, "/amount has numbers"),
    "a bound below what was shown": ({"iban": "shown", "amount": {"at_most": 4}}, "does not admit"),
    "a bound for a text": ({"iban": {"at_most": 9}, "amount": "shown"}, "/iban"),
    "a bound that is none": ({"iban": "shown", "amount": {"at_most": True}}, "must be a number"),
    "values without the shown one": ({"iban": {"one_of": ["DE02"]}, "amount": "shown"}, "does not admit"),
    "too many values": ({"iban": {"one_of": ["DE01", *range(16)]}, "amount": "shown"}, "1 to 16"),
    "another way of saying it": ({"iban": {"matches": ".*"}, "amount": "shown"}, "must be"),
    "two ways at once": ({"iban": "shown", "amount": {"at_most": 9, "one_of": [5]}}, "must be"),
    "no object": (["iban"], "must be an object"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_rule_wider_than_the_grammar_is_refused(name: str) -> None:
    said, word = REFUSED[name]
    found = faults(said, hold_of(iban="†data.iban", amount="†data.amount"))
    assert any(word in one for one in found), found


def test_a_rule_in_words_that_nobody_said_is_refused() -> None:
    assert "of the user" in faults({"iban": "words"}, hold_of(iban="†data.iban"), UserWords())[0]


def test_no_rule_is_for_calls_whose_answer_or_sight_others_decide() -> None:
    def refused(plan: Plan) -> str:
        (_, hold), *_ = acted(plan).held_calls
        return faults({"iban": "shown"}, hold)[0]

    each = call("pay", "†state.paid", iban="†data.all", _each="iban")
    assert "each element" in refused(plan_of(each))
    assert "scopes" in refused(plan_of(call("pay", "†state.paid", iban="me", _scopes=["†data.iban"])))
    delegate = call("ask", "†state.paid", iban="†data.iban", _delegate="d")
    tools = {"ask": {**TOOLS["pay"], "properties": {"_delegate": {}, "iban": {}}}}
    assert "delegate" in refused(plan_of(delegate, tools=tools, delegates={"d": {"context": [], "schema": {}}}))


def test_no_rule_is_for_a_call_whose_end_is_not_known() -> None:
    tools = {"pay": {**TOOLS["pay"], "_once": True}}
    plan = plan_of(call("pay", "†state.paid", iban="†data.iban"), tools=tools)
    rules = RunRules(words=UserWords(plan.submission.context))
    fold = Fold()
    for message in plan.submission.context:
        fold.append(message, "given")
    execution = Execution.of(plan, plan.lanes[None], fold, rules=rules)
    (hold,) = execution.decide(DATE)
    assert isinstance(hold, Hold)
    rules.give("1-0", rule_of({"iban": "words"}, hold))
    execution.reconsider(0)
    (hold,) = execution.decide(DATE)
    assert isinstance(hold, Hold)
    assert (hold.rule, hold.rules) == ("1-0", "1-0")
    execution.apply(hold.event)
    (start,) = execution.decide(DATE)
    assert isinstance(start, Start)
    execution.record(0, Status.RUNNING)
    execution.note_unknown(0, "its worker died")
    (asked,) = execution.decide(DATE)
    assert isinstance(asked, Hold)
    assert (asked.rule, asked.event.status) == ("", Status.UNKNOWN)


def test_of_a_call_that_a_model_wrote_after_it_was_shown_a_mail_a_rule_has_every_parameter() -> None:
    def written(**given: Any) -> Plan:
        return plan_of(call("pay", "†state.paid", _trust=["mail"], **given))

    (_, shown), *_ = acted(written(iban="DE01")).held_calls
    assert "others decide iban" in "".join(faults({}, shown))
    rule = rule_of({"iban": "words"}, shown)
    for parameters, is_ruled in (
        ({"iban": "DE02"}, True),
        ({"iban": "DE66"}, False),
        ({"iban": "DE02", "amount": 10**6}, False),
        ({}, False),
        ({"iban": "DE02", "_scopes": ["state"]}, False),
    ):
        assert bool(acted(written(**parameters), rule).ruled) is is_ruled


# Laws: rules drawn at random let start what they show, and nothing else (SPEC R16.6, R16.8).

VALUES = st.sampled_from(
    ["DE01", "DE02", "DE66", "rent", 0, 5, 50, 51, -1, 2.5, True, None, [], [5], ["DE01"], {"a": 1}, "Pay"]
)
SAID = st.one_of(
    st.sampled_from(["shown", "words", "any"]),
    st.builds(lambda values: {"one_of": values}, st.lists(VALUES, min_size=1, max_size=3)),
    st.builds(lambda bound: {"at_most": bound}, st.sampled_from([0, 5, 50, 2.5])),
)


def naively_fits(said: Mapping[str, Any], value: Any, texts: list[str]) -> bool:
    """What a rule shows of one parameter, read anew."""
    if "one_of" in said:
        return json.dumps(value, sort_keys=True) in {json.dumps(one, sort_keys=True) for one in said["one_of"]}
    if "at_most" in said:
        return type(value) in (int, float) and 0 <= value <= said["at_most"]
    if "words" in said:
        many = value if type(value) is list and value else [value]
        return all(type(one) is str and len(one) > 2 and any(_stands_in(text, one) for text in texts) for one in many)
    types = {"text": str, "boolean": bool, "list": list, "object": dict, "null": type(None)}
    return type(value) is types[said["any"]] and not re.search(r"\d", re.sub(r'"([^"\\]|\\.)*"', "", json.dumps(value)))


def _stands_in(text: str, part: str) -> bool:
    whole = rf"(?:^|(?<=[\s\"'(\[{{<«„“])){re.escape(part)}(?=$|[\s\"')\]}}>»”“,;]|[.!?:](?:$|[\s\"')\]}}>»”“,;]))"
    return part == part.strip() and re.search(whole, text) is not None


@law
@given(st.data())
def test_no_call_starts_by_a_rule_that_differs_from_what_the_rule_shows(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(["one", "two"]), min_size=1, max_size=2, unique=True))
    chosen = st.sampled_from([[], ["mail"], ["web"]])

    def plan(values: Mapping[str, Any], source: str, by: list[str], *trusted: str, **more: Any) -> Plan:
        context = [ASKED, {"type": "data", "data": dict(values), "_trust": [source]}]
        given = {name: values[name] if name in trusted else f"†data.{name}" for name in names}
        who = {"_trust": by} if by else {}
        return plan_of(call("pay", "†state.paid", **given, **more, **who), context=context)

    first, by = {name: data.draw(VALUES) for name in names}, data.draw(chosen)
    (_, shown), *_ = acted(plan(first, "mail", by)).held_calls
    said = {name: data.draw(SAID) for name in names}
    said = {name: "shown" if any(f"/{name}" in one for one in faults(said, shown)) else said[name] for name in names}
    rule = rule_of(said, shown)
    values = {name: data.draw(st.one_of(st.just(first[name]), st.just(first[name]), VALUES)) for name in names}
    source, now_by = data.draw(st.sampled_from(["mail", "mail", "web"])), data.draw(chosen)
    trusted = data.draw(st.sampled_from([(), (), ("one",), ("one", "two")]))
    more = data.draw(st.sampled_from([{}, {"three": 5}]))
    run = acted(plan(values, source, now_by, *trusted, **more), RunRule.read(rule.to_dict()))
    shows = rule.to_dict()
    fits = all(naively_fits(shows["parameters"][name], values[name], [ASKED["message"]]) for name in names)
    sources = {name: {*now_by} if name in (*trusted, *more) else {*now_by, source} for name in (*names, *more)}
    known = {"three": [], **shows["sources"]}
    is_known = set(now_by) <= set(shows["chosen"]) and all(who <= set(known[name]) for name, who in sources.items())
    assert bool(run.ruled) is (bool(run.held_calls) and is_known and fits)


HOLDING: dict[str, Any] = {"trust": {"otherwise": "hold"}}


def drawn_rules(plan: Plan, data: st.DataObject) -> list[RunRule]:
    """Rules of calls that were held in a run without any."""
    found = list[RunRule]()
    for _, hold in acted(plan).held_calls[:3]:
        said = {name: data.draw(SAID) for name in (hold.doubt.given if hold.doubt is not None else ())}
        if hold.doubt is not None and not faults(said, hold, UserWords(plan.submission.context)):
            found.append(RunRule.of(said, hold.call, hold.doubt, hold.parameters))
    return found


@law
@given(labelled(), st.data())
def test_r16_6_with_rules_other_values_from_others_start_the_same_but_for_what_a_rule_endorsed(
    submission: dict[str, Any], data: st.DataObject
) -> None:
    submission = {**submission, "config": HOLDING}
    if not naive.is_deterministic({**submission, "tools": SCHEMAS}):
        return
    other = with_other_values(submission)
    plan, changed = _checked(submission), _checked(other)
    rules = drawn_rules(plan, data)
    one, two = acted(plan, *rules), acted(changed, *rules)
    for run in (one, two):
        endorsed = {(instance, hold.call.index) for instance, hold in run.held_calls if hold.rule}
        run.acts = [act for act in run.acts if act[:2] not in endorsed]
    both = {act[:2] for act in one.acts} & {act[:2] for act in two.acts}
    assert [act for act in one.acts if act[:2] in both] == [act for act in two.acts if act[:2] in both]
    if not rules:
        assert one.acts == two.acts


@law
@given(labelled(), st.data())
def test_r16_5_what_the_check_says_nobody_is_asked_about_is_held_in_no_run(
    submission: dict[str, Any], data: st.DataObject
) -> None:
    plan = _checked({**submission, "config": HOLDING, "tools": LABELLED})
    rules = drawn_rules(plan, data)
    said = list(with_rules(plan, rules))
    never = {one["call"] for one in said if one["asked"] == "never"}
    run = acted(plan, *rules)
    waiting = {hold.call.index for _, hold in run.held_calls if not hold.rule}
    assert waiting.isdisjoint(never)
    assert {hold.call.index for hold in run.ruled} <= {one["call"] for one in said}


def test_the_check_proves_what_schemas_leave_nothing_of() -> None:
    properties = {"iban": {"type": "string"}, "amount": {"type": "integer", "minimum": 1, "maximum": 50}}
    tools = {"pay": {**TOOLS["pay"], "properties": properties}}
    calls = [
        call("pay", "†state.a", iban="†data.iban", amount="†data.amount"),
        call("pay", "†state.b", iban="†data.iban"),
    ]
    plan = plan_of(*calls, tools=tools)
    (_, shown), *_ = acted(plan).held_calls
    wide = rule_of({"iban": "any", "amount": {"at_most": 50}}, shown)
    narrow = rule_of({"iban": "words", "amount": {"at_most": 50}}, shown)
    assert [(one["call"], one["asked"]) for one in with_rules(plan, [narrow, wide])] == [
        (0, "never"),
        (1, "unless"),
        (1, "unless"),
    ]
    assert [(one["call"], one["asked"]) for one in with_rules(plan, [narrow])] == [(0, "unless"), (1, "unless")]
    assert [one["asked"] for one in with_rules(plan_of(*calls), [wide])] == ["unless", "unless"]
    approved = plan_of(*calls, tools=tools, config={"approve": ["pay"]})
    assert list(with_rules(approved, [wide])) == []


# Schedules and rules: whatever goes wrong, whoever answers and revokes when, no call starts by a rule that is not in
# force, or that shows less.

RULED_BATCHES = [0, *(pytest.param(batch, marks=pytest.mark.nightly) for batch in range(1, 20))]


def plan_with_effects(random: Random) -> Plan:
    """A plan of which others write many results, and some tools have effects."""
    submission = Author(random).submission()
    for message in submission["context"]:
        if message["type"] in ("state", "input") and random.random() < 0.4:
            message["_trust"] = [random.choice(("mail", "page"))]
    activities = {
        name: {**schema, "_trust": {"effects": random.random() < 0.6, "result": ["mail"] * (random.random() < 0.1)}}
        for name, schema in ACTIVITIES.items()
    }
    return check_submission({**submission, "context": [ASKED, *submission["context"]]}, activities=activities)


def answering(plan: Plan, random: Random) -> Callable[[Hold], tuple[Ruling, RunRule | None]]:
    """A person who approves most calls, often with a rule, and rejects others."""
    words = UserWords(plan.submission.context)

    def answer(hold: Hold) -> tuple[Ruling, RunRule | None]:
        if hold.doubt is None or random.random() < 0.2:
            return Ruling(Verdict.REJECTED, reason="no"), None
        said = {name: random.choice(("shown", "words", "any", {"at_most": 50})) for name in hold.doubt.given}
        wide = {name for name in said if any(f"/{name}" in one for one in faults(said, hold, words))}
        said |= dict.fromkeys(wide, "shown")
        if random.random() < 0.3 or faults(said, hold, words):
            return Ruling(Verdict.APPROVED), None
        return Ruling(Verdict.APPROVED), RunRule.of(said, hold.call, hold.doubt, hold.parameters)

    return answer


def played(seed: int) -> list[tuple[Any, ...]]:
    """What became of rules, and what started, in one schedule of one plan."""
    random = Random(seed)
    plan = plan_with_effects(random)
    share = random.choice((0, 0, 0.5))
    calls = [(lane, one.index) for lane, laid in plan.lanes.items() for one in laid.calls if not one.is_fire_and_forget]

    def carry(start: Start, lane: Lane, attempt: int, context: Mapping[str, Any]) -> Any:
        world.log.history.append(("started", lane, start.call.index, start.parameters))
        return carry_out(start, attempt, context)

    faulty = {call for call in calls if random.random() < share}
    misfortunes = random.choice((0, 4, 10, 30))
    world = World(plan, carry, random, misfortunes=misfortunes, faulty=faulty)
    world.answer = answering(plan, random)
    world.run()
    return world.log.history


def starts_by_rules(history: list[tuple[Any, ...]]) -> int:
    """How many calls rules let start; fails for one that no rule in force lets, or that starts with something else."""
    in_force, last, count = dict[str, RunRule](), dict[tuple[Lane, int], tuple[Any, Mapping[str, Any]]](), 0
    for what, *about in history:
        if what == "given":
            in_force[about[0]] = about[1]
        elif what == "revoked":
            del in_force[about[0]]
        elif what in ("asked", "ruled"):
            lane, hold = about
            last[lane, hold.call.index] = what == "ruled", hold.parameters
            if what == "ruled":
                assert shows(in_force[hold.rule], hold)
                count += 1
        elif what == "decided":
            lane, index, verdict = about
            last[lane, index] = verdict is Verdict.APPROVED, last[lane, index][1]
        elif what == "undone":
            last = {call: held for call, held in last.items() if call[0] != about[0] or call[1] not in about[1]}
        elif (about[0], about[1]) in last:
            assert last[about[0], about[1]] == (True, about[2])
    return count


def shows(rule: RunRule, hold: Hold) -> bool:
    """Whether a rule shows a call, read anew."""
    said, given = rule.to_dict(), hold.doubt.given if hold.doubt is not None else {}
    fits = all(naively_fits(one, hold.parameters[name], [ASKED["message"]]) for name, one in said["parameters"].items())
    is_known = all(labels <= set(said["sources"].get(name, ())) for name, labels in given.items())
    is_same = hold.call.tool == said["tool"] and not (hold.call.each or hold.call.gather)
    return fits and is_known and is_same and hold.doubt is not None and hold.doubt.chosen <= set(said["chosen"])


@pytest.mark.parametrize("batch", RULED_BATCHES)
def test_whatever_goes_wrong_no_call_starts_by_a_rule_that_is_revoked_or_shows_less(batch: int) -> None:
    assert sum(starts_by_rules(played(batch * 60 + number)) for number in range(60)) > 0
