"""Sources that reach a child run, those that its answer has, and definitions that an amendment replaces (SPEC R16.2,
R16.3).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from acts_celery import Message, Run, activity, local
from acts_celery.worker.broker.attempts import CallId
from acts_celery.worker.store.run_list import child_id

wired: list[str] = []


@activity(untrusted="mail")
def note_from_outside() -> str:
    """A note that others wrote."""
    return "DE66"


@activity
def page_with_sources() -> Any:
    """A page; the code says who wrote it."""
    return Message({"type": "state", "page": "DE66", "_trust": ["web"]})


@activity(effects=True)
def wire_to(iban: str) -> str:
    """Sends money."""
    wired.append(iban)
    return iban


CODE: list[Callable[..., Any]] = [note_from_outside, page_with_sources, wire_to]
TOOLS: dict[str, Any] = {
    "ask": {"properties": {"_delegate": {}}},
    **{name: {} for name in ("note_from_outside", "page_with_sources", "wire_to")},
}
NOTE = {"_tool": "note_from_outside", "_outputPath": "†state.note"}


def ask(delegate: str, text: str) -> dict[str, Any]:
    return {"_tool": "ask", "_delegate": delegate, "text": text, "_outputPath": "†state.told"}


def wire(iban: str) -> dict[str, Any]:
    return {"_tool": "wire_to", "iban": iban, "_outputPath": "†state.sent"}


def definition(*context: Mapping[str, Any], **tools: Any) -> dict[str, Any]:
    return {"context": list(context), "schema": {"type": "string"}, "tools": tools}


class Model:
    """Calls a tool first, where it may, by what it was shown, and answers then."""

    def __init__(self, call: Mapping[str, Any] | None = None, output: Any = "†state.page || †input.text") -> None:
        self.call, self.output, self.shown = call, output, ""

    def __call__(self, messages: Sequence[Mapping[str, Any]], schema: Any, config: Mapping[str, Any]) -> Any:
        self.shown = "\n".join(str(message["content"]) for message in messages)
        if "calls" not in (schema or {}).get("properties", {}):
            return {"output": self.output}
        calls, self.call = [self.call] if self.call is not None else [], None
        return {"calls": calls, "output": None if calls else self.output}


def held_for(run: Run, sources: Mapping[str, list[str]]) -> None:
    """That a call is held for that, and nothing was done; it is rejected."""
    (held,) = next(found for _ in run.follow(timeout_seconds=60) if (found := run.held()))
    assert (held["untrusted"]["parameters"], wired) == (sources, [])
    run.reject(held["call"], reason="no")


def test_r16_3_the_model_of_a_delegate_with_effects_is_not_shown_what_its_own_context_says_others_wrote() -> None:
    page = {"type": "state", "page": "YAK", "_trust": ["web"]}
    wired.clear()
    with local(CODE) as client:
        model = Model({**wire("†state.page"), "_outputPath": "†state.done"}, "done")
        client.model(model)
        delegates = {"payer": definition(page, wire_to={})}
        run = client.submit(solution={"calls": [ask("payer", "pay")]}, tools=TOOLS, delegates=delegates)
        child = next(event.child for event in run.follow(timeout_seconds=60) if event.kind == "child")
        assert child is not None
        held_for(client.run(child), {"iban": ["web"]})
        run.wait(timeout_seconds=60)
    assert "YAK" not in model.shown
    assert "Not shown: †state.page, 5 bytes that others wrote (web)" in model.shown


def test_r16_2_the_sources_that_code_names_in_a_child_run_are_those_of_its_answer() -> None:
    wired.clear()
    with local(CODE) as client:
        client.model(Model({"_tool": "page_with_sources", "_outputPath": "†state.page"}))
        delegates = {"reader": definition(page_with_sources={})}
        calls = [ask("reader", "what is new?"), wire("†state.told")]
        run = client.submit(solution={"calls": calls}, tools=TOOLS, delegates=delegates)
        held_for(run, {"iban": ["web"]})
        run.wait(timeout_seconds=60)


def test_r16_2_a_fork_of_a_child_run_knows_who_wrote_what_its_call_was_given() -> None:
    wired.clear()
    with local(CODE) as client:
        client.model(Model({"_tool": "page_with_sources", "_outputPath": "†data.page"}, "†input.text"))
        delegates = {"reader": definition(page_with_sources={})}
        run = client.submit(solution={"calls": [NOTE, ask("reader", "†state.note")]}, tools=TOOLS, delegates=delegates)
        run.wait(timeout_seconds=60)
        fork = client.run(child_id(CallId(run.id, None, 1))).fork()
        fork.amend({"calls": [wire("†input.text")], "tools": {"wire_to": {}}}, add=True)
        held_for(fork, {"iban": ["mail"]})
        fork.wait(timeout_seconds=60)


def test_r16_3_a_delegate_that_an_amendment_defines_does_not_endorse_by_the_operators_word(tmp_path: Path) -> None:
    own = {"schema": {"enum": ["ours", "theirs"]}, "context": [], "_endorses": True}
    (tmp_path / "umpire.json").write_text(json.dumps(own), "utf-8")
    wired.clear()
    with local(CODE, delegates=(str(tmp_path),)) as client:
        client.model(Model(output="theirs"))
        run = client.submit(solution={"calls": [NOTE, ask("umpire", "†state.note")]}, tools=TOOLS)
        run.wait(timeout_seconds=60)
        again = {**ask("umpire", "†state.note"), "_outputPath": "†state.again"}
        amendment = {"calls": [again, wire("†state.again")], "tools": TOOLS, "delegates": {"umpire": definition()}}
        run.amend(amendment, add=True)
        held_for(run, {"iban": ["mail"]})
        run.wait(timeout_seconds=60)


def test_r16_3_a_run_whose_delegate_endorses_has_child_runs(tmp_path: Path) -> None:
    own = {"schema": {"type": "boolean"}, "context": [], "_endorses": True}
    (tmp_path / "umpire.json").write_text(json.dumps(own), "utf-8")
    with local(CODE, delegates=(str(tmp_path),)) as client:
        client.model(Model(output=True))
        delegates = {"helper": {**definition(ask={"properties": {"_delegate": {}}}), "schema": {"type": "boolean"}}}
        calls = [ask("umpire", "this"), {**ask("helper", "that"), "_outputPath": "†state.more"}]
        run = client.submit(solution={"calls": calls}, tools=TOOLS, delegates=delegates)
        assert run.wait(timeout_seconds=60).data()["state"] == {"told": True, "more": True}
