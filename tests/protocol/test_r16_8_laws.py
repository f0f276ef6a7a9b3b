"""Laws R16.5 and R16.6 with what SPEC R16.8 lets people say drawn at random, each part by itself; and mutants of the
code, which these laws notice.

`Case` reads anew, in the plainest way, what the product reads: who may have written a field, which parameters decide,
where an address leads, and among which values an answer is endorsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from acts_celery.protocol import Output, Plan, Rejected, check_in, run_rules, trust
from acts_celery.protocol.calls import trust as declared_trust
from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.trust import Hosts, OperatorTrust, ToolTrust
from acts_celery.protocol.engine import execution
from acts_celery.protocol.engine.events import Start
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.run_rules import RunRule
from acts_celery.protocol.state.fold import Fold
from acts_celery.protocol.state.labels import FieldLabels, Labels
from acts_celery.protocol.trust import Doubt, Flow, hosts_said

from . import test_r16_8_rules as rules
from .building import call, submission
from .driver import Driver
from .laws import TIMES, law
from .test_r16_trust import REFUSE, labelled, refused, ways

Json = dict[str, Any]
FOUND: Json = {"id": 7, "text": "abc", "url": "", "reviews": [{"id": 1, "text": "de"}, {"id": 2, "text": "fg"}]}
BY_FIELD: Sequence[Any] = (
    {"reviews.*.text": ["reviews"], "*": []},
    {"reviews.*": ["reviews"], "reviews.*.id": [], "*": []},
    {"*": ["shop"], "id": []},
    {"id": ["shop"], "*": []},
    {"url": ["shop"], "*": []},
    {"text": ["shop"], "reviews.*.id": []},
    {"*.*.text": ["reviews"], "*": []},
    *(["mail"], ["mail"]),
)
SHOP, EVIL = "https://shop.example/", "https://evil.example/"
LEADS: Mapping[Any, str | None] = {
    SHOP: "shop.example",
    EVIL: "evil.example",
    "https://farm.example/a": "farm.example",
    "http://inn.example": "inn.example",
    "https://shop.example@evil.example/": None,
    "https://shop.example.evil.example/": "shop.example.evil.example",
}
"""Addresses, and where each leads as it is read strictly."""
NAMED: Sequence[Json] = (
    {"type": "text", "text": "The room is at http://inn.example, I think."},
    {"type": "state", "site": "https://farm.example/a", "_trust": ["mail"]},
)
ANSWERS = (1, 2, 7, "1", 99, 666)
SPEAKERS = ("tool", "code", "operator")


@dataclass(frozen=True)
class Case:
    """A submission, and what is said of its tools by itself, the code and the operator."""

    submission: Json
    said: Mapping[str, Mapping[str, Json]]
    """Tool -> speaker -> its declaration."""
    addresses: tuple[Any, Any]
    """What strangers write as an address, in one run and in another."""
    answers: tuple[Any, Any] = (None, None)

    def plan(self) -> Plan | None:
        """The plan, checked with all that is said."""
        code = {name: {"type": "object", **_beside(said.get("code"))} for name, said in self.said.items()}
        tools = {name: _beside(said.get("tool")) for name, said in self.said.items()}
        operator = {name: _of_operator(said["operator"]) for name, said in self.said.items() if "operator" in said}
        known = Environment(activities=code, operator=OperatorTrust.read(operator))
        try:
            return check_in(known, {**self.submission, "tools": {**self.submission["tools"], **tools}})
        except Rejected:
            return None

    def found(self, number: int) -> Json:
        """What `fetch` gives in one run: the same but for what strangers wrote."""

        def varied(value: Any, *path: str) -> Any:
            if isinstance(value, dict):
                return {key: varied(part, *path, key) for key, part in value.items()}
            if isinstance(value, list):
                return [varied(part, *path, str(at)) for at, part in enumerate(value)]
            if not self.writers(path):
                return SHOP if path == ("url",) else value
            if path == ("url",):
                return self.addresses[number]
            return value if number == 0 else (666 if isinstance(value, int) else value.upper())

        return dict(varied(FOUND))

    def writers(self, path: Sequence[str]) -> set[str]:
        """Who else may have written a field, by any declaration."""
        found = set[str]()
        for one in self.said["fetch"].values():
            said = one.get("result") or []
            found.update(_most_specific(said, path) if isinstance(said, dict) else said)
        return found

    def is_act(self, parameters: Mapping[str, Any]) -> bool:
        """Whether a call of `act` changes something outside."""
        acting = self.acting
        if not acting or not all(one.get("hosts") for one in acting):
            return bool(acting)
        for name in {name for one in acting for name in one["hosts"]}:
            listed = [set(one["hosts"][name]) for one in acting if name in one["hosts"]]
            allowed = set.intersection(*listed) | {"inn.example"}
            value = parameters.get(name)
            leads = [LEADS.get(each) for each in (value if isinstance(value, list) else [value])]
            if not leads or not all(each in allowed for each in leads):
                return True
        return False

    @property
    def acting(self) -> list[Json]:
        return [one for one in self.said["act"].values() if one.get("effects")]

    def deciding(self, parameters: Mapping[str, Any]) -> Json:
        """The parameters of `act` that decide."""
        free = [{*one.get("content", ()), *one.get("proof", ())} for one in self.acting]
        return {name: value for name, value in parameters.items() if name not in set.intersection(*free)}

    def endorsed(self) -> list[Any]:
        """The values among which an answer is endorsed: those at its place that nobody else wrote."""
        if self.writers(("reviews", "0", "id")):
            return []
        is_longer = len(self.submission["solution"]["calls"]) > 3
        return ([] if self.writers(("text",)) else [1, 2, 99]) if is_longer else [1, 2]


def _beside(said: Json | None) -> Json:
    return {"_trust": said} if said else {}


def _of_operator(said: Json) -> Json:
    return {"untrusted" if key == "result" else key: value for key, value in said.items()}


def _most_specific(said: Mapping[str, list[str]], path: Sequence[str]) -> set[str]:
    found: dict[tuple[int, int], set[str]] = {}
    for text, names in said.items():
        pattern = text.split(".")
        if len(pattern) <= len(path) and all(one in ("*", at) for one, at in zip(pattern, path, strict=False)):
            found.setdefault((len(pattern), -pattern.count("*")), set()).update(names)
    return found[max(found)] if found else {name for names in said.values() for name in names}


# Strategies: a source, an effect, and one matter between them.


def said_of(draw: st.DrawFn, strategy: st.SearchStrategy[Json]) -> dict[str, Json]:
    """What one or two speakers say of a tool."""
    who = draw(st.sampled_from([("tool",), ("tool", "code"), ("code", "operator"), ("tool", "operator")]))
    return {one: draw(strategy) for one in who}


def results(*said: Any) -> st.SearchStrategy[Json]:
    return st.sampled_from([{"result": one} for one in said])


ACTS = st.just({"effects": True})


@st.composite
def fields(draw: st.DrawFn) -> Case:
    """(a) An effect reads fields of a result, or of a copy."""
    parts = (".id", ".text", ".reviews.0.id", ".reviews.1.text", ".reviews.0", ".reviews", "", ".none || state.own")
    part = draw(st.sampled_from(parts)).replace("state.", "†state.")
    copied = draw(st.sampled_from([False, False, True])) and "||" not in part
    to = "†state.copy" if copied else "†state.f"
    calls = [call("fetch", "†state.f"), *([call("give", to, value=f"†state.f{part}")] if copied else [])]
    value = to if copied else f"{to}{part}"
    own = [{"type": "state", "own": 5}]
    said = {"fetch": said_of(draw, results(*BY_FIELD)), "act": said_of(draw, ACTS), "give": {}}
    return _case([*calls, call("act", "†data.x", value=value)], said, own)


@st.composite
def readers(draw: st.DrawFn) -> Case:
    """(b) Some say of a tool that it only reads."""
    only_reads = st.sampled_from([{"effects": True}, {"effects": False}])
    said = {"tool": draw(only_reads), "code": draw(only_reads)}
    value = draw(st.sampled_from(["†state.f.id", "†state.f.text"]))
    calls = [call("fetch", "†state.f"), call("act", "†data.x", value=value)]
    return _case(calls, {"fetch": said_of(draw, results({"text": ["shop"], "*": []}, ["mail"])), "act": said}, ())


@st.composite
def proofs(draw: st.DrawFn) -> Case:
    """(c) A parameter proves, or is content, in what some say; and strangers may choose whether the call runs."""
    proving = {"proof": ["code"]}
    free = st.sampled_from([proving, proving, proving, {"proof": ["other"]}, {"content": ["code"]}, {}])
    acts = free.map(lambda one: {"effects": True, **one})
    read = "†state.f.text"
    pick = call("pick", "†state.a || †state.b", paths=["††state.a", "††state.b"], by=read)
    shapes: list[tuple[list[Json], Json]] = [
        *[([], {"code": read})] * 3,
        ([], {"code": read, "value": 1}),
        ([], {"code": f"no. †{{{read[1:]}}}"}),
        ([], {"code": read, "value": "†state.f.id"}),
        *[([pick], {"code": "†state.a"})] * 3,
        ([pick], {"code": "†state.b || †state.own", "value": 1}),
    ]
    before, given_ = draw(st.sampled_from(shapes))
    calls = [call("fetch", "†state.f"), *before, call("act", "†data.x", **given_)]
    own = [{"type": "state", "own": 5}]
    return _case(
        calls,
        {
            "fetch": said_of(draw, results({"text": ["shop"], "*": []}, ["mail"])),
            "act": said_of(draw, acts),
            "pick": {},
        },
        own,
    )


@st.composite
def hosts(draw: st.DrawFn) -> Case:
    """(d) An address leads to hosts that some name."""
    listed = st.sampled_from([["shop.example"], ["shop.example"], ["shop.example", "evil.example"], ["evil.example"]])
    acts = listed.map(lambda one: {"effects": True, "hosts": {"url": one}})
    urls: list[Any] = ["†state.f.url", "†state.f.url", [SHOP, "†state.f.url"], SHOP, EVIL]
    more = draw(st.sampled_from([{}, {"value": "†state.f.text"}]))
    calls = [call("fetch", "†state.f"), call("act", "†data.x", url=draw(st.sampled_from(urls)), **more)]
    said = {"fetch": {"code": {"result": {"url": ["shop"], "text": ["shop"], "*": []}}}, "act": said_of(draw, acts)}
    one, other = (draw(st.sampled_from(list(LEADS))) for _ in range(2))
    return _case(calls, said, NAMED, addresses=(one, other))


@st.composite
def endorsements(draw: st.DrawFn) -> Case:
    """(e) A delegate answers with one of the values at a place, or not."""
    ask = call("ask", "†state.which", _delegate="choose", of="†state.f.text")
    more = call("give", "†state.f.reviews", value={"id": 99}, by="†state.f.text", _outputMethod="push")
    added = draw(st.sampled_from([[], [], [more]]))
    calls = [call("fetch", "†state.f"), *added, ask, call("act", "†data.x", value="†state.which")]
    said = {"fetch": said_of(draw, results(*BY_FIELD)), "act": said_of(draw, ACTS), "give": {}}
    answers = draw(st.sampled_from(ANSWERS)), draw(st.sampled_from(ANSWERS))
    return _case(calls, said, (), answers=answers)


def _case(calls: Sequence[Json], said: Mapping[str, Any], context: Sequence[Json], **more: Any) -> Case:
    choose = {"context": [], "schema": {}, "_endorses": "†state.f.reviews.*.id"}
    tools = {"ask": {"properties": {"_delegate": {"const": "choose"}}}}
    value = submission(*calls, context=context, tools=tools, config=REFUSE, delegates={"choose": choose})
    return Case(value, said, **{"addresses": (SHOP, EVIL), **more})


MATTERS: Mapping[str, st.SearchStrategy[Case]] = {
    "fields": fields(),
    "readers": readers(),
    "proofs": proofs(),
    "hosts": hosts(),
    "endorsements": endorsements(),
}


class Watched(Driver):
    """Notes which effects have begun, with what decides."""

    def __init__(self, case: Case, plan: Plan, number: int, **options: Any) -> None:
        self.acts: list[tuple[int, Json]] = []
        self._case = case
        functions = {
            "fetch": lambda given, context: case.found(number),
            "act": lambda given, context: 1,
            "give": lambda given, context: given.get("value"),
            "pick": lambda given, context: Output(given["paths"][str(given["by"]).isupper()], 1),
            "choose": lambda given, context: case.answers[number],
        }
        super().__init__(plan, functions, **options)

    def _start(self, instance: str | None, start: Start) -> None:
        if start.call.tool == "act" and self._case.is_act(start.parameters):
            self.acts.append((start.call.index, self._case.deciding(start.parameters)))
        super()._start(instance, start)


@pytest.mark.parametrize("matter", MATTERS)
@settings(max_examples=2 * TIMES * settings().max_examples)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_r16_5_where_the_check_reports_no_way_no_run_refuses_a_call(
    matter: str, data: st.DataObject, seed: int
) -> None:
    case = data.draw(MATTERS[matter])
    if (plan := case.plan()) is not None:
        for number, random in ((0, None), (1, Random(seed))):
            assert set(refused(Watched(case, plan, number, random=random).run())) <= ways(plan)


@pytest.mark.parametrize("matter", MATTERS)
@law
@given(data=st.data())
def test_r16_6_other_values_from_strangers_start_the_same_effects(matter: str, data: st.DataObject) -> None:
    case = data.draw(MATTERS[matter])
    if (plan := case.plan()) is None:
        return
    runs = Watched(case, plan, 0), Watched(case, plan, 1)
    for run in runs:
        run.run()
    if matter == "endorsements":  # which of the values it is, is endorsed, and another answer starts nothing
        values = [given_["value"] for run in runs for _, given_ in run.acts]
        assert all(type(value) is int and value in case.endorsed() for value in values)
    else:
        assert runs[0].acts == runs[1].acts


# Mutants: the code with one of its rules left out. The laws alone notice, with as many examples as they always have.


def first_path(self: FieldLabels, path: Sequence[str | int]) -> Labels:
    """Take the first path that leads to a field, not the most specific."""
    own = (*self.above, *path)
    return next((labels for pattern, labels in self._along(own) if len(pattern) <= len(own)), self.all)


def only_covered(self: FieldLabels, path: Sequence[str | int]) -> Labels:
    """Trust what no path covers."""
    own = (*self.above, *path)
    return OWN(self, path) if any(len(pattern) <= len(own) for pattern, _ in self._along(own)) else frozenset()


def by_all(said: Iterable[ToolTrust]) -> ToolTrust:
    """Believe any declaration that a tool only reads."""
    listed = list(said)
    found = TOGETHER(listed)
    return replace(found, effects=all(one.effects for one in listed))


def by_any(said: Iterable[ToolTrust]) -> ToolTrust:
    """Let a parameter prove where one declaration says so."""
    listed = list(said)
    return replace(TOGETHER(listed), proof=frozenset().union(*(one.proof for one in listed)))


def unchosen(trust: ToolTrust, flow: Flow, *more: Any) -> Doubt | None:
    """Let a proof also make up for who chose that the call runs."""
    return DOUBT(trust, replace(flow, chosen=frozenset()) if trust.proof else flow, *more)


def any_host(hosts: Hosts, parameters: Mapping[str, Any], named: Callable[[], frozenset[str]]) -> bool:
    """Look whether one of several addresses leads to a named host."""
    leads = [(LEADS_OF(parameters.get(name)), listed | named()) for name, listed in hosts]
    return any(led & listed for led, listed in leads)


def one_list(said: Sequence[Hosts]) -> Hosts:
    """Let a host be named by one declaration."""
    names = {name for one in said for name, _ in one}
    return frozenset((n, frozenset().union(*(h for one in said for name, h in one if name == n))) for n in names)


def all_said(fold: Fold) -> frozenset[str]:
    """Take hosts from all messages."""
    return declared_trust.hosts_named(fold.root(kind) for kind in fold.kinds()) | hosts_said(fold)


def beginning(address: Any) -> str | None:
    """Take the host for what an address begins with."""
    found = re.match(r"(?:https?://)?([a-z]+\.example)", address) if isinstance(address, str) else None
    return found[1] if found else None


def anywhere(answer: Any, trust: ToolTrust, fold: Fold) -> bool:
    """Look for an answer among the values at a place, whoever wrote them."""
    rows = (fold.root("state") or {}).get("f", {}).get("reviews", ())
    return any(answer == row["id"] for row in rows)


def unasked(self: RunRule, call: Call, doubt: Doubt) -> bool:
    """Let a rule start a call whoever chose that it runs."""
    return COVERS(self, call, replace(doubt, chosen=frozenset()))


OWN, TOGETHER, COVERS = FieldLabels.own, ToolTrust.together, RunRule.covers
DOUBT, LEADS_OF = trust.doubt, declared_trust._hosts_in
Patch = tuple[object, str, Any]
MUTANTS: Mapping[str, tuple[str, Sequence[Patch]]] = {
    "the most specific path does not count": ("fields", [(FieldLabels, "own", first_path)]),
    "a part does not have the labels below it": ("fields", [(FieldLabels, "at", OWN)]),
    "what no path covers is trusted": ("fields", [(FieldLabels, "own", only_covered)]),
    "a path loosens what another declaration says": ("fields", [(declared_trust, "with_fields", lambda _, one: one)]),
    "anybody may say that a tool only reads": ("readers", [(ToolTrust, "together", staticmethod(by_all))]),
    "one declaration lets a parameter prove": ("proofs", [(ToolTrust, "together", staticmethod(by_any))]),
    "a proof makes up for who chose": ("proofs", [(trust, "doubt", unchosen), (execution, "doubt", unchosen)]),
    "one of several addresses is enough": ("hosts", [(trust, "lead_to", any_host)]),
    "one declaration names a host": ("hosts", [(declared_trust, "_hosts_of_all", one_list)]),
    "strangers name hosts": ("hosts", [(execution, "hosts_said", all_said)]),
    "an address is read to where a host ends": ("hosts", [(declared_trust, "host_of", beginning)]),
    "any answer is endorsed": ("endorsements", [(execution, "is_among", lambda *_: True)]),
    "an answer may be what others wrote": ("endorsements", [(execution, "is_among", anywhere)]),
    "a rule forgets sources": ("rules", [(RunRule, "covers", lambda self, _, doubt: doubt.chosen <= self.chosen)]),
    "a rule forgets who chose": ("rules", [(RunRule, "covers", unasked)]),
    "a rule forgets what a model wrote": ("rules", [(run_rules, "_decided", lambda _, doubt: doubt.given)]),
    "a rule does not look at values": ("rules", [(run_rules, "_fits", lambda *_: True)]),
}
SEEDS, DATA = st.integers(0, 2**32), st.data()
EXAMPLES = TIMES * settings().max_examples


def notices(test: Any, examples: int, strategies: Mapping[str, Any], **given_: Any) -> bool:
    """Whether a law fails, tried on as many examples as always; what has failed is not made smaller."""
    again = settings(max_examples=examples, phases=[Phase.generate])(given(**strategies)(test.hypothesis.inner_test))
    try:
        again(**given_)
    except AssertionError:
        return True
    return False


def laws_of(matter: str) -> Iterator[bool]:
    """Whether the laws of one matter notice something."""
    if matter == "rules":
        shows = rules.test_no_call_starts_by_a_rule_that_differs_from_what_the_rule_shows
        same = rules.test_r16_6_with_rules_other_values_from_others_start_the_same_but_for_what_a_rule_endorsed
        never = rules.test_r16_5_what_the_check_says_nobody_is_asked_about_is_held_in_no_run
        yield notices(shows, EXAMPLES, {"data": DATA})
        yield from (notices(one, EXAMPLES, {"submission": labelled(), "data": DATA}) for one in (same, never))
        return
    yield notices(
        test_r16_6_other_values_from_strangers_start_the_same_effects, EXAMPLES, {"data": DATA}, matter=matter
    )
    no_way = test_r16_5_where_the_check_reports_no_way_no_run_refuses_a_call
    yield notices(no_way, 2 * EXAMPLES, {"data": DATA, "seed": SEEDS}, matter=matter)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_noticed_by_the_laws_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    matter, patches = MUTANTS[name]
    for patch in patches:
        monkeypatch.setattr(*patch)
    assert any(laws_of(matter))
