"""Findings: of plans as models write them every day, and that run as they are meant to, nothing is told (SPEC R6.7)."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery.protocol.analysis.analyse import analyse

from .building import ANY, checked

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
