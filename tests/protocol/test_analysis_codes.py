"""What is found in valid plans (SPEC R6.7): each code, and nothing in sensible plans."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acts_celery.protocol import check_submission
from acts_celery.protocol.analysis.analyse import analyse
from acts_celery.protocol.analysis.findings import CATALOGUE

from .building import ANY, call, checked, plan_submission, submission

# Analysis: every code of the catalogue has a submission that gives it, and one nearly the same that does not.

Submission = dict[str, Any]

GIVES: dict[str, Any] = {
    "type": "object",
    "properties": {
        "_output": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "tags": {"type": "array"}},
        }
    },
}
TAKES: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "userId": {}, "more": {}},
}
PINNED: dict[str, Any] = {"type": "object", "properties": {"_outputPath": {"enum": ["†state.a", "†state.b"]}}}
STATE: dict[str, Any] = {"type": "state", "user": {"name": "Alex", "age": 36}}


def user(text: Any = "†state.user.name", **more: Any) -> Submission:
    """A call that takes a text, beside a user in the state."""
    return submission(call("take", "†state.done", text=text, **more), tools={"take": TAKES}, context=[STATE])


def chain(read: str, **more: Any) -> Submission:
    """A call that reads of what another one gives."""
    calls = call("get", "†state.x", **more), call("take", "†state.y", text=read)
    return submission(*calls, tools={"get": GIVES, "take": TAKES})


def kind(schema: Any, *paths: str) -> Submission:
    """Calls that write into a state with a schema."""
    calls = [call("get", path) for path in paths]
    return submission(*calls, tools={"get": GIVES}, context=[{"type": "state", "schema": schema, "data": {}}])


def delegated(schema: Any) -> Submission:
    """A delegate that declares what it is given."""
    definition = {"context": [{"type": "input", "schema": {"properties": {"text": schema}}}], "schema": {}}
    calls = call("get", "†state.x"), call("ask", "†state.y", text="†state.x.age", _delegate="expert")
    tools = {"get": GIVES, "ask": {"properties": {"_delegate": {}}}}
    return submission(*calls, tools=tools, delegates={"expert": definition})


def advised(moment: str) -> Submission:
    """An advisor that is asked at a moment."""
    return submission(call(), context=[{"type": "advisor", "id": "a", "on": moment}])


def asking(tool: dict[str, Any]) -> Submission:
    """A request with this tool."""
    return {"context": [], "schema": {"type": "string"}, "config": {}, "tools": {"get": tool}}


def large(properties: int) -> Submission:
    """A reader whose schema has so many parts."""
    takes = {"properties": {"text": {"type": "string"}} | {f"p{n}": {"type": "string"} for n in range(properties)}}
    return chain("†state.x.name") | {"tools": {"get": GIVES, "take": takes}}


def scoped(scope: str, **more: Any) -> Submission:
    """A call that is shown a scope of a user's state."""
    return submission(call("see", "†data.seen", _scopes=[scope], **more), context=[STATE])


def of_instance(**more: Any) -> Submission:
    """A scope that only an instance holds."""
    context = [{"type": "state", "_instance": "①", "order": 1}, {"type": "data", "x": 1}]
    return submission(call("see", "†data.seen", _scopes=["†state.order"], **more), context=context)


def two_writers(scope: str) -> Submission:
    """A call that needs one of two results."""
    calls = call("get", "†state.a"), call("get", "†state.b"), call("see", "†data.c", a="†state.a", _scopes=[scope])
    return submission(*calls)


def circling(scope: str) -> Submission:
    """A call that sees what a call listed before it writes, which waits for it."""
    return submission(call("get", "†state.a", after="†data.b"), call("see", "†data.b", _scopes=[scope]))


def flat(**message: Any) -> Submission:
    """A message without `data`."""
    return submission(call("take", "†data.y", text="†input.topic"), context=[{"type": "input", "topic": "x"} | message])


def typed(type_: str) -> Submission:
    """A message of a type beside a call."""
    return submission(call(), context=[{"type": type_, "message": "hello"}])


def branching(**parameters: Any) -> Submission:
    """A call that reads of one that chooses."""
    return submission(call("choose", "†data.good || †data.bad"), call("take", "†data.taken", **parameters))


def held(*calls: Any) -> Submission:
    """Calls beside a value that is there already."""
    return submission(*calls, context=[{"type": "data", "x": 1}])


def gathering(path: str) -> Submission:
    """A plan that gathers beside a call whose scope is all of the state."""
    calls = [call("see", "†data.seen", _scopes=["state"]), call("sum", path, of="†data.seen", _gather=True)]
    return plan_submission(*calls, context=[{"type": "state", "_instance": name, "x": 1} for name in "ab"])


def hiding(**parameters: Any) -> Submission:
    """A call of a delegate that sees an input."""
    context = [{"type": "input", "text": "old"}]
    return submission(call("ask", "†data.x", _delegate="d", _scopes=["input"], **parameters), context=context)


def paying(account: Any, **parameters: Any) -> Submission:
    """A call that changes something outside, beside one that others write to and one that chooses by it."""
    tools = {"fetch": {"_trust": {"result": ["mail"]}}, "pay": {"_trust": {"effects": True, "content": ["note"]}}}
    choosing = call("take", "†state.a || †state.b", value="†state.mail")
    pay = call("pay", "†state.paid", account=account, **parameters)
    return submission(call("fetch", "†state.mail"), choosing, pay, tools=tools)


def judged(text: Any) -> Submission:
    """A payment that a delegate which endorses decides on."""
    tools = {"fetch": {"_trust": {"result": ["mail"]}}, "pay": {"_trust": {"effects": True}}}
    asking = call("ask", "†state.ours", _delegate="judge", text=text)
    delegates = {"judge": {"schema": {"type": "boolean"}, "_endorses": True}}
    calls = call("fetch", "†state.mail"), asking, call("pay", "†state.paid", when="†state.ours")
    return submission(*calls, tools=tools, delegates=delegates)


READER, WRITER = call("take", "†data.taken", value="†data.x"), call("get", "†data.x")

CASES: dict[str, tuple[Submission, Submission]] = {
    "ACT101": (branching(a="†data.good", b="†data.bad"), branching(a="†data.good || †data.bad")),
    "ACT103": (
        submission(call("get", "†state.a"), call("get", "†state.a")),
        submission(call("get", "†state.a"), call("get", "†state.a", after="†state.a")),
    ),
    "ACT104": (held(READER, WRITER), held(WRITER, READER)),
    "ACT201": (chain("†state.x.age"), chain("†state.x.name")),
    "ACT202": (user("†state.user.age"), user("†state.user.name")),
    "ACT203": (
        kind({"properties": {"user": {"type": "string"}}}, "†state.user"),
        kind({"properties": {"user": {"type": "object"}}}, "†state.user"),
    ),
    "ACT204": (chain("†state.x.nmae"), chain("†state.x.name")),
    "ACT205": (chain("†state.x.0.name"), chain("†state.x.tags.0")),
    "ACT206": (chain("†state.x.name", _outputMethod="concat"), chain("†state.x.name", _outputMethod="assign")),
    "ACT207": (delegated({"type": "string"}), delegated({"type": "integer"})),
    "ACT208": (
        kind({"required": ["user", "total"]}, "†state.user"),
        kind({"required": ["user", "total"]}, "†state.user", "†state.total"),
    ),
    "ACT209": (user(userid=1), user(userId=1)),
    "ACT299": (large(20_000), large(25)),
    "ACT301": (user("state.user.name"), user("the user's name")),
    "ACT302": (user("{{state.user.name}}"), user("{name}")),
    "ACT303": (user(_outputpath="†state.z"), user(_reasoningForCall="why not")),
    "ACT304": (user(_dependsOn=[0]), user(more=[0])),
    "ACT305": (user("Hello †state.user.name!"), user("Hello!")),
    "ACT307": (
        submission(call("get", "state.x"), call("take", text="†state.state.y || †state.z"), call("get", "†state.z")),
        submission(call("get", "x"), call("take", text="†state.x")),
    ),
    "ACT308": (user("†user.name || †state.user.age"), user("†state.user.name || †state.user.age")),
    "ACT309": (user("†state.other || †state.user.name"), user("†state.user.age || †state.user.name")),
    "ACT310": (user(userld=1), user(userId=1)),
    "ACT401": (scoped("†state.usr"), scoped("†state.user")),
    "ACT402": (of_instance(), of_instance(_instance="①")),
    "ACT403": (two_writers("state"), two_writers("†state.a")),
    "ACT404": (user() | submission(call("take", _outputMethod="push")), user(_outputMethod="push")),
    "ACT405": (
        submission(call("get"), tools={"get": PINNED}),
        submission(call("get", "†state.a"), tools={"get": PINNED}),
    ),
    "ACT406": (
        submission(call("get", "†state.a"), tools={"get": {"parameters": {"type": "object", "properties": {}}}}),
        submission(call("get", "†state.a"), tools={"get": {"type": "object", "properties": {"parameters": {}}}}),
    ),
    "ACT407": (flat(title={"text": "x"}), flat(title="What the topic is")),
    "ACT408": (circling("state"), circling("†state.b")),
    "ACT409": (advised("commit"), advised("request")),
    "ACT411": (gathering("†state.all"), gathering("†summary.all")),
    "ACT412": (hiding(text="new"), hiding(words="new")),
    "ACT414": (typed("txt"), typed("note")),
    "ACT415": (asking({"minProperties": 1, "additionalProperties": False}), asking({"minProperties": 1})),
    "ACT601": (paying("†state.mail.iban"), paying("DE01", note="†state.mail.iban")),
    "ACT602": (paying("DE01", note="†state.a"), paying("DE01", note="†state.mail")),
    "ACT603": (judged("†state.mail"), judged("hello")),
}
"""Code to a submission that gives it, and one that does not."""
OF_MODELS = ("ACT413",)
"""What hangs on the settings of a model: `tests/worker/test_prompt_cli.py` has its good and its bad request."""
SIGNATURE = {"properties": {"text": {}, "userId": {}}, "required": ["userId"], "additionalProperties": False}
OPTIONS: dict[str, Any] = {"ACT209": {"activities": {"take": SIGNATURE}}}
"""What else a check is given."""


def codes(value: Submission, code: str) -> set[str]:
    return {finding.code for finding in analyse(check_submission(value, **OPTIONS.get(code, {})))}


@pytest.mark.parametrize("code", CASES)
def test_a_bad_plan_gives_the_code_and_a_good_one_does_not(code: str) -> None:
    bad, good = CASES[code]
    assert code in codes(bad, code)
    assert code not in codes(good, code)


def test_every_code_of_the_catalogue_has_a_bad_plan_and_a_good_one() -> None:
    assert sorted([*CASES, *OF_MODELS]) == sorted(CATALOGUE)


def test_a_value_that_a_delegate_does_not_declare_is_found_as_one_that_is_read_is() -> None:
    def asked(text: Any) -> Submission:
        value = delegated({"type": "string"})
        value["solution"]["calls"][1]["text"] = text
        return value

    (finding,) = analyse(check_submission(asked(5)))
    assert (finding.code, finding.pointer) == ("ACT207", "/solution/calls/1/text")
    assert "ACT207" not in codes(asked("five"), "ACT207")


def test_r3_5_digits_that_are_an_index_of_nothing_are_found_and_the_quotes_are_suggested() -> None:
    years = submission(call("get", "†state.years.2024"), call("get", "†state.years.2025"))
    found = [finding for finding in analyse(check_submission(years)) if finding.code == "ACT205"]
    assert [finding.remedy for finding in found] == [f'write †state.years["{year}"] for a key' for year in (2024, 2025)]
    for makes in ("†state.years", "†state.years.0", '†state.years["a"]', "†state"):
        assert "ACT205" not in codes(submission(call("get", makes), call("get", "†state.years.1")), "ACT205")
    held = submission(call("get", "†state.years.1"), context=[{"type": "state", "years": [1]}])
    assert "ACT205" not in codes(held, "ACT205")
    assert "ACT205" not in codes(submission(call("get", "†state.2024"), call("get", "†state.a.0")), "ACT205")


def test_a_result_that_is_given_beside_the_code_that_gives_it_is_found_also_where_no_tool_is_declared() -> None:
    value = submission({"_tool": "take", "_output": 1, "_outputPath": "†state.x"})
    (finding,) = analyse(check_submission(value, activities={"take": {"type": "object"}}))
    assert (finding.code, finding.pointer) == ("ACT404", "/solution/calls/0/_output")


@pytest.mark.parametrize("code", CASES)
def test_a_finding_has_the_shape_that_is_documented(code: str) -> None:
    found = [finding.to_dict() for finding in analyse(check_submission(CASES[code][0], **OPTIONS.get(code, {})))]
    finding = next(each for each in found if each["code"] == code)
    keys = ["code", "name", "severity", "message", "calls", "pointer", "remedy", "rule"]
    assert list(finding) == [*keys, *(["source", "effect", "way"] if code.startswith("ACT6") else [])]
    assert finding["severity"] in ("warning", "info", "note")
    assert finding["message"]
    assert finding["remedy"]
    assert json.loads(json.dumps(finding)) == finding


@pytest.mark.parametrize("code", CASES)
def test_a_finding_is_left_out_by_its_code_or_its_name_or_by_the_submission_itself(code: str) -> None:
    value, options = CASES[code][0], OPTIONS.get(code, {})
    plan = check_submission(value, **options)
    asking = check_submission({**value, "config": {"ignore": [code]}}, **options)
    ways = analyse(plan, [code]), analyse(plan, [CATALOGUE[code].name]), analyse(asking)
    assert all(code not in {finding.code for finding in found} for found in ways)


def test_names_are_unlike_and_codes_are_of_the_five_families() -> None:
    names = [entry.name for entry in CATALOGUE.values()]
    assert len(set(names)) == len(names)
    assert {code[:4] for code in CATALOGUE} == {"ACT1", "ACT2", "ACT3", "ACT4", "ACT6"}


# Findings: of plans as models write them every day, and that run as they are meant to, nothing is told (SPEC R6.7).

INPUT = {"topic": "x", "lang": "de", "style": "formal"}
SECTIONS = range(5)


def step(tool: str, to: str = "", **properties: Any) -> dict[str, Any]:
    """A call that reads the topic where it reads nothing else."""
    written = {"_outputPath": to} if to else {}
    return {"_tool": tool, **written, **(properties or {"topic": "†input.topic"})}


def triage(handlers: int) -> list[dict[str, Any]]:
    """Each branch is answered in a way of its own; what was answered is polished, the rest goes to a human."""
    routes = [f"†state.route{number}" for number in range(handlers)]
    return [
        step("classify", " || ".join((*routes, "†state.other"))),
        *(step("answer", "draft", about=route) for route in routes),
        step("polish", "reply", text="†state.draft"),
        step("escalate", "reply", text="†state.other"),
        step("send", body="†state.reply"),
    ]


def sections() -> list[dict[str, Any]]:
    """Behind a gate there are sections, each of which may fail and have another one put in its place."""
    parts = [
        part
        for number in SECTIONS
        for part in (
            step("draft", f"draft{number} || error{number}", topic="†state.ok"),
            step("format", f"section{number}", text=f"†state.draft{number}"),
            step("excuse", f"section{number}", text=f"†state.error{number}"),
        )
    ]
    return [
        step("moderate", "ok || blocked"),
        *parts,
        step("compose", "reply", parts=[f"†state.section{number}" for number in SECTIONS]),
        step("refuse", "reply", why="†state.blocked"),
    ]


def providers() -> list[dict[str, Any]]:
    """One after the other is asked until one knows; of what is good several parts are made at once."""
    return [
        step("ask", "found0 || lost0"),
        *(step("ask", f"found{n} || lost{n}", after=f"†state.lost{n - 1}") for n in range(1, 4)),
        step("search", "found4", after="†state.lost3"),
        step("judge", "good || bad", facts=" || ".join(f"†state.found{number}" for number in SECTIONS)),
        *(step("make", part, facts="†state.good") for part in ("title", "body", "image")),
        step("page", "reply", title="†state.title", body="†state.body", image="†state.image"),
        step("apologise", "reply", why="†state.bad"),
    ]


PLANS = {
    "triage": triage(6),
    "sections": sections(),
    "providers": providers(),
    "revised twice": [
        step("write", "draft"),
        step("review", "notes", text="†state.draft"),
        step("revise", "draft", text="†state.draft", notes="†state.notes"),
        step("review", "more", text="†state.draft"),
        step("revise", "draft", text="†state.draft", notes="†state.more"),
        step("publish", text="†state.draft"),
    ],
    "revised on one branch": [
        step("moderate", "ok || blocked"),
        step("write", "draft", text="†state.ok"),
        *[step("improve", "draft", text="†state.draft")] * 2,
        step("publish", "reply", text="†state.draft"),
        step("refuse", "reply", why="†state.blocked"),
        step("send", body="†state.reply"),
    ],
    "polished on one branch": [
        step("route", "easy || hard"),
        step("draft", "reply", text="†state.easy"),
        step("polish", "reply", text="†state.reply"),
        step("human", "reply", text="†state.hard"),
        step("send", body="†state.reply"),
    ],
    "reviewed with a way out": [
        step("write", "draft"),
        step("review", "review || failed", draft="†state.draft", style="†input.style"),
        step("revise", "draft", review="†state.review || †state.failed"),
    ],
    "a ticket filled in": [
        step("classify", "ticket.category", ticket="†state.ticket"),
        step("answer", "ticket.reply", category="†state.ticket.category", lang="†input.lang"),
        step("close", "ticket.status", reply="†state.ticket.reply"),
    ],
    "steps in a list": [
        step("think", "steps.0"),
        *(step("think", f"steps.{n}", before=f"†state.steps.{n - 1}", lang="†input.lang") for n in (1, 2)),
        step("sum", "summary", steps="†state.steps"),
    ],
    "a cart": [
        step("add", "cart.items", _outputMethod="push", item="†input.topic"),
        step("total", "cart.total", items="†state.cart.items", lang="†input.lang"),
        step("pay", "cart.paid || cart.declined", total="†state.cart.total", style="†input.style"),
        step("ship", "cart.status", paid="†state.cart.paid"),
        step("cancel", "cart.status", why="†state.cart.declined"),
        step("clear", "cart.items", status="†state.cart.status"),
    ],
    "all of the state shown": [
        step("fetch", "ticket.items"),
        step("price", "ticket.total", items="†state.ticket.items", lang="†input.lang"),
        step("explain", "text", _delegate="explainer", _scopes=["state"], total="†state.ticket.total"),
    ],
    "a status written before": [
        step("announce", "status", topic="†input.topic", _output="started"),
        step("work", "result"),
        step("finish", "status", result="†state.result"),
    ],
}


@pytest.mark.parametrize("name", PLANS)
def test_of_a_sensible_plan_nothing_is_reported(name: str) -> None:
    context = [{"type": "input", **INPUT}, {"type": "state", "ticket": {"id": 7}, "steps": [], "cart": {"items": []}}]
    activities = {call["_tool"]: ANY for call in PLANS[name] if "_output" not in call and "_delegate" not in call}
    plan = checked(*PLANS[name], context=context, activities=activities, delegates={"explainer": {"context": []}})
    assert analyse(plan) == ()
