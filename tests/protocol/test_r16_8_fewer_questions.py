"""What an operator or an author may say so that people are asked only what matters (SPEC R16.8)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts_celery.protocol import Plan, Rejected, check_submission
from acts_celery.protocol.analysis.provenance import unasked
from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.trust import OperatorTrust, ToolTrust, host_of, operator_problems, tool_trust_of
from acts_celery.protocol.engine.events import Start, Status
from acts_celery.protocol.state.fold import Fold
from acts_celery.protocol.state.labels import FieldLabels

from .building import call, pointers, problems_of, submission, written
from .driver import Driver
from .laws import TIMES, law
from .test_r16_trust import REFUSE, is_refused, refused, refusing, told_shown, ways
from .test_r16_trust import shown as shown_lines

# Labels by field: a part of a result has its own (SPEC R16.8).

REVIEWS: dict[str, list[str]] = {"reviews.*.text": ["reviews"], "*": []}
SHOP: dict[str, Any] = {
    "fetch": {"_trust": {"result": REVIEWS}},
    "pay": {"_trust": {"effects": True, "content": ["note"]}},
}
FOUND = {"id": 7, "reviews": [{"id": 1, "text": "YAK"}, {"id": 2, "text": "EMU"}]}
FETCH = call("fetch", "†state.r")


def pay(account: Any, **more: Any) -> dict[str, Any]:
    return call("pay", "†state.paid", account=account, **more)


FUNCTIONS = {"fetch": lambda parameters, context: FOUND, "pay": lambda parameters, context: "paid"}
HELD: dict[str, tuple[dict[str, Any], ...]] = {
    "a field with a label": (FETCH, pay("†state.r.reviews.0.text")),
    "the whole of it": (FETCH, pay("†state.r")),
    "a part that holds such a field": (FETCH, pay("†state.r.reviews.0")),
    "a field of a copy": (FETCH, call("give", "†state.copy", value="†state.r"), pay("†state.copy.id")),
    "a field with a label in an element of a list": (
        call("fetch", "†state.l", _outputMethod="push"),
        pay("†state.l.0.reviews.1.text"),
    ),
    "a field that others have written since": (
        FETCH,
        call("fetch", "†state.m"),
        call("give", "†state.r.id", value="†state.m.reviews.0.text", after="†state.r"),
        pay("†state.r.id", note="†state.r"),
    ),
    "a field of what may have been merged": (
        call("give", "†state.r", value={"id": 1}),
        call("fetch", "†state.r", _outputMethod="merge", after="†state.r"),
        pay("†state.r.id"),
    ),
    "another value where that with fields is missing": (
        call("give", "†state.own", value="me"),
        FETCH,
        pay("†state.r.nothing || †state.own"),
    ),
    "a field of what a call has left that has failed": (
        call("give", "†state.r", value={"id": 1}),
        call("fetch", "†state.r", fails=True, after="†state.r"),
        pay("†state.r.id"),
    ),
    "a field of what was made from others' data": (
        FETCH,
        call("fetch", "†state.s", of="†state.r.reviews.0.text"),
        pay("†state.s.id"),
    ),
    "a field of an alternative": (call("fetch", "†state.r || †state.s"), pay("†state.r.id")),
}
FREE: dict[str, tuple[dict[str, Any], ...]] = {
    "a field without a label": (FETCH, pay("†state.r.id")),
    "such a field beside one with a label": (FETCH, pay("†state.r.reviews.0.id", note="†state.r.reviews.0.text")),
    "a template of it": (FETCH, pay("no. †{state.r.reviews.1.id}")),
    "a copy of it": (FETCH, call("give", "†state.copy", value="†state.r.id"), pay("†state.copy")),
    "of an element of a list": (call("fetch", "†state.l", _outputMethod="push"), pay("†state.l.0.reviews.1.id")),
    "of an element of a list, where others wait for the list": (
        call("fetch", "†state.l", _outputMethod="push"),
        call("fetch", "†state.m", _after=["†state.l"]),
        pay("†state.l.0.id", note="†state.m"),
    ),
    "of a call for each": (
        call("give", "†state.n", value=[1, 2]),
        call("fetch", "†state.l", of="†state.n", _each="of"),
        pay("†state.l.0.reviews.1.id"),
    ),
}


def _fetch(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    if parameters.get("fails"):
        raise ValueError("no")
    return FOUND


@pytest.mark.parametrize("name", [*HELD, *FREE])
def test_r16_8_a_field_has_its_own_labels_and_the_whole_has_all(name: str) -> None:
    calls, is_held = (HELD | FREE)[name], name in HELD
    plan = check_submission(submission(*calls, tools=SHOP, config=REFUSE))
    result = Driver(plan, {**FUNCTIONS, "fetch": _fetch, "give": lambda given, context: given["value"]}).run()
    effect = next(index for index, one in enumerate(calls) if one["_tool"] == "pay")
    assert is_refused(result, effect) is is_held
    assert ways(plan) == ({effect} if is_held else set())


@pytest.mark.parametrize("name", [*HELD, *FREE])
def test_r16_8_of_a_call_that_reads_a_field_without_a_label_it_is_known_why_nobody_was_asked(name: str) -> None:
    plan = check_submission(submission(*(HELD | FREE)[name], tools=SHOP, config=REFUSE))
    log = Driver(plan, {**FUNCTIONS, "fetch": _fetch, "give": lambda given, context: given["value"]}).run()
    known = plan.calls
    effect = next(one for one in known if one.tool == "pay")
    fold = Fold()
    for entry in log.log:
        for message in entry.outcome.messages if entry.outcome.index != effect.index else ():
            fold.append(message, "a message")
    found = {(one.why, one.parameter) for one in unasked(effect, fold, known, partial(trust_in, plan))}
    expected = {("field", "account")} if name in FREE and "copy" not in name else set()
    assert found - {("content", "note")} == expected
    assert (("content", "note") in found) is (name in FREE and "note" in effect.parameters)


def trust_in(plan: Plan, one: Call) -> ToolTrust:
    return tool_trust_of(plan.trust, one.tool, one.runner.name)


def test_r16_8_a_tool_of_a_server_that_only_reads_says_so_where_data_of_others_reaches_it() -> None:
    plan = check_submission(
        submission(call("fetch", "†state.r"), call("give", "†state.a", value="†state.r"), tools=SHOP)
    )
    reading, fold = plan.calls[1], Fold()
    fold.append(written("†state.r", "YAK", _trust=["mail"]), "a message")
    given = partial(unasked, reading, fold, (), partial(trust_in, plan))
    assert [(str(one.why), [*one.sources]) for one in given(is_of_server=True)] == [("reads", ["mail"])]
    assert given(is_of_server=False) == ()


def test_r16_8_the_most_specific_path_counts_and_what_no_path_covers_has_all() -> None:
    said = FieldLabels.read({"a": ["x"], "a.*.b": [], "a.c.b": ["y"], 'a["d.e"]': ["z"]})
    found = {path: sorted(said.own(tuple(path.split(".")))) for path in ("a", "a.n.b", "a.n.b.m", "a.c.b", "o")}
    assert found == {"a": ["x"], "a.n.b": [], "a.n.b.m": [], "a.c.b": ["y"], "o": ["x", "y", "z"]}
    assert said.own(("a", 3, "b")) == frozenset()
    assert sorted(said.at(("a",))) == ["x", "y", "z"]
    assert said.own(("a", "d.e")) == {"z"}
    assert FieldLabels.read(said.to_dict()) == said
    equally = FieldLabels.read({"*.b": ["x"], "a.*": ["y"]})
    assert equally.own(("a", "b")) == {"x", "y"}


def test_r16_8_a_field_has_the_labels_of_all_declarations() -> None:
    tool, operator = ToolTrust.read({"result": REVIEWS}), OperatorTrust.read({"f*": {"untrusted": {"id": ["shop"]}}})
    both = ToolTrust.together((tool, operator.of("fetch")))
    assert both.result == {"reviews", "shop"}
    assert ToolTrust.read(both.to_dict()) == both
    assert OperatorTrust.read(operator.to_dict()) == operator
    whole = ToolTrust.together((tool, ToolTrust.read({"result": ["mail"]})))
    assert {label for one in whole.fields for label in one.at(("id",))} == {"mail"}
    tools = {**SHOP, "fetch": {"_trust": {"result": {"*": [], "x": ["reviews"]}}}}
    for said in ({"result": ["mail"]}, {"result": {"iban": ["mail"], "*": []}}):
        plan, result = refusing(
            FETCH,
            pay("†state.r.iban"),
            tools=tools,
            activities={"fetch": {"type": "object", "_trust": said}, "pay": {}},
        )
        assert ways(plan) == {1}
        assert is_refused(result, 1)


@pytest.mark.parametrize(
    ("said", "where"),
    [
        ({"text": "reviews"}, "/text"),
        ({"reviews.0.text": ["reviews"]}, "/reviews.0.text"),
        ({"reviews..text": ["reviews"]}, "/reviews..text"),
        ({'reviews["*"]': ["reviews"]}, '/reviews["*"]'),
        ({"text || id": ["reviews"]}, "/text || id"),
        ({"*": []}, ""),
        ({}, ""),
        ({f"a{number}": ["reviews"] for number in range(65)}, ""),
    ],
)
def test_r16_8_labels_by_field_in_another_shape_are_refused(said: Any, where: str) -> None:
    found = problems_of(FETCH, tools={"fetch": {"_trust": {"result": said}}})
    assert pointers(found) == [f"/tools/fetch/_trust/result{where}"]
    assert pointers([*operator_problems({"fetch": {"untrusted": said}})]) == [f"/fetch/untrusted{where}"]


def test_r16_8_only_the_engine_says_labels_by_field_of_a_message() -> None:
    by_field = [{"": ["mail"], "id": []}]
    given = {"type": "state", "id": 1, "_trust": ["mail"], "_trustFields": by_field}
    own = written("†state.r", {"id": 1}, _trust=["mail"], _trustFields=[{"0": ["mail"]}])
    found = problems_of(call("give", value=1), context=[given, own, {**own, "_trustFields": by_field}])
    assert pointers(found) == ["/context/0/_trustFields", "/context/1/_trustFields/0/0"]


def test_r16_8_a_model_is_shown_the_fields_without_a_label() -> None:
    by_field: dict[str, Any] = {"_trust": ["reviews"], "_trustFields": [REVIEWS]}
    message = written("†state.r", {**FOUND, "none": {}}, **by_field)
    lines = [
        '{"r":{"id":7,"reviews":[{"id":1},{"id":2}],"none":{}}}',
        "Not shown: †state.r.reviews.0.text and 1 more that differ by an index, 10 bytes that others wrote (reviews)",
    ]
    assert shown_lines(message)[-2:] == lines
    assert lines[1] in told_shown(message)
    assert '{"id":7,"reviews":[{"id":1},{"id":2}],"none":{}}' in told_shown(message)
    names: dict[str, Any] = {"_trust": ["firm"], "_trustFields": [{"id": [], "*": ["firm"]}]}
    unnamed = written("†state.r", {"id": 7, "YAK": 1, "EMU": [2]}, **names)
    assert shown_lines(unnamed)[-2:] == [
        '{"r":{"id":7}}',
        "Not shown: 2 fields of †state.r, 4 bytes that others wrote (firm)",
    ]
    listed = written(
        "†state.r", {"id": 7, "names": ["YAK", "EMU"]}, _trust=["x"], _trustFields=[{"names.*": ["x"], "*": []}]
    )
    assert shown_lines(listed)[-2:] == ['{"r":{"id":7}}', "Not shown: †state.r.names, 13 bytes that others wrote (x)"]


def test_r16_8_where_a_place_was_written_whole_before_nothing_of_it_is_shown() -> None:
    whole = written("†state.r", {"id": "YAK"}, _trust=["mail"])
    fields = written("†state.r", FOUND, _trust=["reviews"], _trustFields=[REVIEWS])
    assert "YAK" not in str(shown_lines(whole, fields))
    shorter = written("†state.r", {"reviews": []}, _trust=["reviews"], _trustFields=[REVIEWS])
    assert "YAK" not in told_shown(fields, shorter)


@pytest.mark.parametrize(
    ("account", "elements"),
    [
        ("†state.r.reviews.1.id", ["1 of †state.r.reviews"]),
        ("no. †{state.r.reviews.0.id || state.own}", ["0 of †state.r.reviews"]),
        ("†state.l.0.reviews.1.id", ["0 of †state.l", "1 of †state.l.0.reviews"]),
        ("†state.r.id", []),
        ("†state.r.reviews.1.text", []),
    ],
)
def test_r16_8_the_check_lists_an_element_that_others_may_have_put_at_its_index(
    account: str, elements: list[str]
) -> None:
    lists = call("fetch", "†state.l", _outputMethod="push")
    plan = check_submission(submission(FETCH, lists, call("give", "†state.own"), pay(account), tools=SHOP))
    said = [one.to_dict() for one in plan.findings if one.code == "ACT604"]
    assert [one["message"].partition("element is at ")[2].partition(":")[0] for one in said] == elements
    assert {(one["pointer"], one["source"]["label"]) for one in said} <= {("/solution/calls/3/account", "reviews")}


# A parameter that proves (SPEC R16.8), and named hosts (SPEC R16.8).

LETTER = call("fetch", "†state.r")
GUARDED: dict[str, Any] = {
    "fetch": {"_trust": {"result": ["mail"]}},
    "confirm": {"_trust": {"effects": True, "proof": ["code"]}},
    "visit": {"_trust": {"effects": True, "hosts": {"url": ["shop.example"]}}},
}
TO_SHOP, TO_EVIL = "https://shop.example/a?q=†{state.r.id}", "https://evil.example/"


@pytest.mark.parametrize(
    ("more", "is_held"),
    [
        ({"code": "†state.r.id"}, False),
        ({"code": "no. †{state.r.id}", "order": 1}, False),
        ({"code": "†state.r.id", "order": "†state.r.id"}, True),
        ({"code": 1, "order": "†state.r"}, True),
        ({"code": "†state.r.id", "_scopes": ["†state.r"]}, True),
    ],
)
def test_r16_8_a_parameter_that_proves_completes_a_call_that_is_trusted_itself(more: Any, is_held: bool) -> None:
    plan = check_submission(submission(LETTER, call("confirm", "†state.c", **more), tools=GUARDED, config=REFUSE))
    result = Driver(plan, {**FUNCTIONS, "confirm": lambda given, context: 1}).run()
    assert is_refused(result, 1) is is_held
    assert ways(plan) == ({1} if is_held else set())
    proving = [one.pointer for one in plan.findings if one.code == "ACT604"]
    assert proving == (["/solution/calls/1/code"] if "†" in str(more["code"]) else [])


def test_r16_8_a_parameter_proves_and_a_host_is_named_only_if_all_say_so_that_speak_of_effects() -> None:
    said = [ToolTrust.read(GUARDED["confirm"]["_trust"]), ToolTrust.read(GUARDED["visit"]["_trust"])]
    content = ToolTrust.read(
        {"effects": True, "content": ["code", "url"], "hosts": {"url": ["a.example", "shop.example"]}}
    )
    together = ToolTrust.together((said[0], content))
    assert (together.proof, together.content or together.hosts) == (frozenset({"code"}), frozenset())
    assert ToolTrust.together((said[1], content)).hosts == {("url", frozenset({"shop.example"}))}
    assert ToolTrust.together((said[1], ToolTrust(result=frozenset({"web"})))).hosts == said[1].hosts
    for one in (*said, content):
        assert ToolTrust.read(one.to_dict()) == one
    activities = {name: {"type": "object", "_trust": {"effects": True}} for name in ("confirm", "visit")}
    url = "https://shop.example/†{state.r.iban}"
    calls = call("confirm", "†state.c", code="†state.r.iban"), call("visit", "†state.v", url=url)
    plan, result = refusing(LETTER, *calls, tools=GUARDED, activities={**activities, "fetch": {}})
    assert [is_refused(result, index) for index in (1, 2)] == [True, True]
    assert ways(plan) == {1, 2}


NAMED: list[dict[str, Any]] = [
    {"type": "text", "text": "Go to https://inn.example/rooms, or (pub.example). Mail ann@inbox.example."},
    {"type": "state", "site": "http://farm.example", "_trust": ["mail"]},
    {"role": "assistant", "content": "evil.example"},
]


@pytest.mark.parametrize(
    ("url", "is_held"),
    [
        ("https://shop.example/a", False),
        ("shop.example", False),
        (["https://shop.example/a", "http://SHOP.example:80/"], False),
        ("https://inn.example/other", False),
        ("https://pub.example", False),
        (["https://shop.example/a", TO_EVIL], True),
        ([], True),
        (TO_EVIL, True),
        ("https://farm.example", True),
        ("https://inbox.example", True),
        ("https://www.shop.example/", True),
        (None, True),
    ],
)
def test_r16_8_an_address_of_a_named_host_makes_no_call_an_effect(url: Any, is_held: bool) -> None:
    visit = call("visit", "†state.v", url="†state.r")
    plan = check_submission(submission(LETTER, visit, tools=GUARDED, config=REFUSE, context=NAMED))
    result = Driver(plan, {"fetch": lambda given, context: url, "visit": lambda given, context: 1}).run()
    assert is_refused(result, 1) is is_held
    assert ways(plan) == {1}


def test_r16_8_the_check_knows_the_host_of_an_address_that_is_written_down() -> None:
    for url, is_held in (("https://shop.example/", False), (TO_EVIL, True), (TO_SHOP, True)):
        visit = call("visit", "†state.v", url=url, depth="†state.r.id")
        plan = check_submission(submission(LETTER, visit, tools=GUARDED, config=REFUSE))
        assert ways(plan) == ({1} if is_held else set())
        assert [one.pointer for one in plan.findings if one.code == "ACT604"] == (
            [] if is_held else ["/solution/calls/1/url"]
        )


@pytest.mark.parametrize(
    "address",
    [
        "https://shop.example@evil.example/",
        "https://shop.example:pw@evil.example/",
        "https://evil.example\\@shop.example/",
        "https://shop.example\\.evil.example/",
        "https://shop.example?@evil.example/",
        "https://shop.example#@evil.example/",
        "https://shop.example.",
        "https://shop.example./",
        "https://shop%2eexample/",
        "https://shop.example%00.evil.example/",
        "https://shop.exam\tple/",
        "https://shop.example\n",
        " https://shop.example/",
        "https://shop.example/ x",
        "https://ѕhop.example/",
        "https://shop。example/",
        "https://[::1]/",
        "https://[::ffff:1.2.3.4]/",
        "https://127.0.0.1/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://shop.example:/",
        "https://shop.example:99x/",
        "https:shop.example/",
        "https:/shop.example/",
        "https:///shop.example/",
        "//shop.example/",
        "ftp://shop.example/",
        "javascript:shop.example",
        "file:///shop.example",
        "https://-shop.example/",
        "https://shop..example/",
        "https://shop_.example/",
        "/shop.example",
        "localhost",
        "",
        7,
        None,
    ],
)
def test_r16_8_an_address_that_may_be_read_in_two_ways_leads_to_no_host(address: Any) -> None:
    assert host_of(address) is None


def test_r16_8_the_host_of_an_address_is_compared_in_small_letters_with_an_unusual_port() -> None:
    read = {
        "https://Shop.Example/a?b=c@d#e": "shop.example",
        "HTTPS://shop.example:443": "shop.example",
        "http://shop.example:443/": "shop.example:443",
        "https://shop.example:8443/": "shop.example:8443",
        "shop.example:80": "shop.example:80",
        "http://localhost/": "localhost",
        "https://xn--hop-7pb.example/": "xn--hop-7pb.example",
    }
    assert {address: host_of(address) for address in read} == read


@pytest.mark.parametrize(
    ("said", "where"),
    [
        ({"proof": "code", "effects": True}, "/proof"),
        ({"proof": ["code"]}, "/proof"),
        ({"hosts": {"url": ["shop.example"]}}, "/hosts"),
        ({"hosts": ["shop.example"], "effects": True}, "/hosts"),
        ({"hosts": {"url": "shop.example"}, "effects": True}, "/hosts/url"),
        ({"hosts": {"url": ["a.example", "https://shop.example"]}, "effects": True}, "/hosts/url/1"),
        ({"hosts": {"url": ["*.shop.example"]}, "effects": True}, "/hosts/url/0"),
        ({"hosts": {"url": ["10.0.0.1"]}, "effects": True}, "/hosts/url/0"),
    ],
)
def test_r16_8_proofs_and_hosts_in_another_shape_are_refused(said: Any, where: str) -> None:
    assert pointers(problems_of(call("pay"), tools={"pay": {"_trust": said}})) == [f"/tools/pay/_trust{where}"]
    assert pointers([*operator_problems({"pay": said})]) == [f"/pay{where}"]


# An answer that is one of the values of a trusted field (SPEC R16.8).

CHOOSING: dict[str, Any] = {
    "tools": {**SHOP, "ask": {"properties": {"_delegate": {}}}},
    "delegates": {"choose": {"context": [], "schema": {}, "_endorses": "†state.r.reviews.*.id"}},
}
ASKED = call("ask", "†state.which", _delegate="choose", of="†state.r")


@pytest.mark.parametrize(
    ("answer", "calls", "is_proven", "status"),
    [
        (2, (FETCH, ASKED, pay("†state.which")), True, Status.DONE),
        (7, (FETCH, ASKED, pay("†state.which")), True, Status.SKIPPED),
        ("2", (FETCH, ASKED, pay("†state.which")), True, Status.SKIPPED),
        (2, (FETCH, ASKED, pay("me", note="†state.which", when="†state.r")), False, Status.FAILED),
        (2, (FETCH, {**ASKED, "_outputPath": "†state.which || †state.b"}, pay("†state.which")), False, Status.FAILED),
        (
            2,
            (call("fetch", "†state.m"), call("give", "†state.r", value="†state.m"), ASKED, pay("†state.which")),
            False,
            Status.SKIPPED,
        ),
    ],
)
def test_r16_8_an_answer_is_endorsed_if_it_is_one_of_the_values_that_a_call_returned(
    answer: Any, calls: tuple[dict[str, Any], ...], is_proven: bool, status: Status
) -> None:
    plan = check_submission(submission(*calls, config=REFUSE, **CHOOSING))
    functions = {**FUNCTIONS, "choose": lambda given, context: answer, "give": lambda given, context: given["value"]}
    last = len(calls) - 1
    assert Driver(plan, functions).run().outcome(last).status is status
    assert ways(plan) == (set() if is_proven else {last})


@pytest.mark.parametrize("said", ["state.found", "†state.a || †state.b", "†state..a", 1])
def test_r16_8_a_place_of_values_in_another_shape_is_refused(said: Any) -> None:
    delegates = {"choose": {**CHOOSING["delegates"]["choose"], "_endorses": said}}
    assert "/delegates/choose/_endorses" in pointers(problems_of(ASKED, **{**CHOOSING, "delegates": delegates}))


# Laws: R16.5 and R16.6 with all of it drawn at random.

TOOLS: dict[str, Any] = {
    "fetch": {"_trust": {"result": REVIEWS}},
    "list": {"_trust": {"result": {"*.text": ["mail"], "*.*": []}}},
    "act": {"_trust": {"effects": True, "content": ["other"]}},
    "go": {"_trust": {"effects": True, "proof": ["other"], "hosts": {"value": ["shop.example"]}}},
    "give": {},
    "fail": {},
    "ask": {"properties": {"_delegate": {"const": "choose"}}},
}
PLACES = ["†state.a", "†state.a", "†state.b"]
AMONG = ["†state.c.*.id", "†state.a.reviews.*.id", "†state.b.id"]
PARTS = [
    "",
    ".id",
    ".id",
    ".id",
    ".text",
    ".reviews",
    ".0.id",
    ".0.text",
    ".none",
    *[".reviews.0.id", ".reviews.0.text"] * 2,
]


@st.composite
def reads(draw: st.DrawFn) -> str:
    """What a parameter reads: a field, one of two, or a text around one."""
    one, other = (draw(st.sampled_from(PLACES)) + draw(st.sampled_from(PARTS)) for _ in range(2))
    return draw(st.sampled_from([one, one, one, f"{one} || {other}", f"no. †{{{one[1:]}}}"]))


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    """A plan whose calls read fields of what others wrote, and some of which have effects."""
    calls: list[dict[str, Any]] = []
    last = draw(st.integers(1, 4))
    for number in range(last + 1):
        kinds = ["fetch", "list", "give", "act", "go", "fail", "ask"] if number else ["fetch", "list"]
        tool = draw(st.sampled_from(["act", "act", "go"] if number == last else kinds))
        methods: list[dict[str, Any]] = [{}, {}, {"_outputMethod": "push"}, {"_outputMethod": "merge"}]
        to = (
            f"†data.x{number}"
            if tool in ("act", "go")
            else draw(st.sampled_from([*PLACES, *PLACES, "†state.a.reviews"]))
        )
        more = dict(draw(st.sampled_from(methods))) if tool not in ("act", "go") else {}
        if number and draw(st.integers(0, 3)):
            more["value"] = draw(reads())
        elif tool == "fetch" and draw(st.booleans()):
            more |= {"value": "†input.n", "_each": "value"}
        if tool in ("act", "go"):
            more |= {"other": draw(reads())} if draw(st.booleans()) else {}
            more |= {"_scopes": [draw(st.sampled_from(PLACES)) + ".id"]} if not draw(st.integers(0, 3)) else {}
        elif not draw(st.integers(0, 5)):
            to = f"{to} || †state.c"
        calls.append(call(tool, to, **more))
    if draw(st.booleans()):  # most ways are short: the last call reads what the first one has found
        found = "reviews.0.text" if calls[0]["_tool"] == "fetch" else "0.text"
        calls[0] = call(calls[0]["_tool"], PLACES[0])
        calls[-1]["value"] = f"{PLACES[0]}.{draw(st.sampled_from([found, found, found.replace('text', 'id')]))}"
    held: dict[str, Any] = {"type": "state", "a": {"id": 1}}
    given: list[list[Any]] = [[], [], [held], [{**held, "_trust": ["page"]}]]
    context = [{"type": "input", "n": [1, 2]}, *draw(st.sampled_from(given))]
    delegates = {"choose": {"context": [], "schema": {}, "_endorses": draw(st.sampled_from(AMONG))}}
    return submission(*calls, tools=TOOLS, config=REFUSE, context=context, delegates=delegates)


SHOP_TEXT, EVIL_TEXT = "https://shop.example/", "https://evil.example/"


class Watched(Driver):
    """Notes which effects have begun, with what decides."""

    def __init__(self, plan: Plan, text: str, **options: Any) -> None:
        self.acts: list[tuple[int, Mapping[str, Any]]] = []
        found = {"id": 7, "text": 3, "reviews": [{"id": 1, "text": text}]}
        functions = {
            "fetch": lambda given, context: found,
            "list": lambda given, context: [{"id": 3, "text": text}],
            "act": lambda given, context: given.get("value"),
            "go": lambda given, context: given.get("value"),
            "give": lambda given, context: given.get("value"),
            "choose": lambda given, context: 3 if "a" in str(given) else 7,  # what is endorsed may differ
            "fail": lambda given, context: (_ for _ in ()).throw(ValueError(str(given))),
        }
        super().__init__(plan, functions, **options)

    def _start(self, instance: str | None, start: Start) -> None:
        is_visit = start.call.tool == "go" and start.parameters.get("value") == SHOP_TEXT
        if start.call.tool in ("act", "go") and not is_visit:
            given = {name: value for name, value in start.parameters.items() if name != "other"}
            self.acts.append((start.call.index, given))
        super()._start(instance, start)


def _checked(value: dict[str, Any]) -> Plan | None:
    try:
        return check_submission(value)
    except Rejected:
        return None


@settings(max_examples=2 * TIMES * settings().max_examples)
@given(plans(), st.integers(0, 2**32))
def test_r16_5_where_the_check_reports_no_way_no_run_refuses_a_call(value: dict[str, Any], seed: int) -> None:
    if (plan := _checked(value)) is not None:
        for random in (None, Random(seed)):
            assert set(refused(Watched(plan, EVIL_TEXT, random=random).run())) <= ways(plan)


@law
@given(plans())
def test_r16_6_other_values_in_labelled_fields_start_the_same_effects(value: dict[str, Any]) -> None:
    if (plan := _checked(value)) is not None:
        one, other = Watched(plan, SHOP_TEXT), Watched(plan, EVIL_TEXT)
        one.run()
        other.run()
        assert one.acts == other.acts
