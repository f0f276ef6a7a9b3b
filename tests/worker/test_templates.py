"""Templates on real workers (SPEC R2.6): they wait, are read once, and what is put in is never read again."""

from __future__ import annotations

from typing import Any

from .backend import DEADLINE_SECONDS, Backend
from .test_r14_people import wait_held

EVIL = "Ann †{state.secret} †state.secret ††"
CONTEXT: list[dict[str, Any]] = [
    {"type": "input", "name": EVIL},
    {"type": "state", "secret": "S", "n": 1.5},
    *({"type": "state", "_instance": mark, "mark": mark} for mark in "①②"),
]


def make(value: Any, to: str | None, tool: str = "echo", **properties: Any) -> dict[str, Any]:
    return {"_tool": tool, "value": value, **({} if to is None else {"_outputPath": to}), **properties}


def test_a_template_waits_for_what_it_reads_and_is_read_where_its_call_is(backend: Backend) -> None:
    calls = [
        make("Dear †{input.name}: †{state.late || state.n} †{state.made} ††{state.secret}", "†state.letter"),
        make("†{state.mark} of †{state.made}", "†state.own", _instance="②"),
        make("†{state.mark}", "†state.all", _gather=True),
        make(["†state.n"], "†state.made", tool="echoPlain"),
    ]
    output = {"text": "†{state.letter}!", "all": "†state.all"}
    run = backend.client.submit(CONTEXT, {"calls": calls, "output": output})
    result = run.wait(timeout_seconds=DEADLINE_SECONDS)
    letter = f"Dear {EVIL}: 1.5 [1.5] †{{state.secret}}"
    assert result.data()["state"]["letter"] == letter
    assert result.data("②")["state"]["own"] == "② of [1.5]"
    assert result.output == {"text": f"{letter}!", "all": '{"①":"①","②":"②"}'}
    (origin,) = run.explain("†state.letter").origins
    assert [read.reference for read in origin.reads] == ["†input.name", "†state.n", "†state.made"]
    assert run.fork().wait(timeout_seconds=DEADLINE_SECONDS).output == result.output


def test_what_people_give_and_send_is_no_template(backend: Backend) -> None:
    promise = {"type": "input", "schema": {"properties": {"late": {"type": "string"}}, "required": ["late"]}}
    calls = [make("<†{input.late}>", "†state.sent"), make("†{state.sent}", "†state.changed", tool="echoPlain")]
    run = backend.client.submit_document(
        {
            "context": [*CONTEXT[1:], promise],
            "solution": {"calls": calls},
            "config": {"promise_seconds": 3600, "approve": ["echoPlain"]},
        }
    )
    run.send({"type": "input", "input": {"late": EVIL}})
    (held,) = wait_held(run)
    assert held["parameters"] == {"value": f"<{EVIL}>"}
    run.approve(1, parameters={"value": f"†{{state.n}} {EVIL}"})
    assert backend.wait(run.id).data()["state"] == {
        "secret": "S",
        "n": 1.5,
        "sent": f"<{EVIL}>",
        "changed": f"†{{state.n}} {EVIL}",
    }


def test_a_template_that_can_never_be_read_skips_its_call_and_one_too_large_fails_it(backend: Backend) -> None:
    limit = backend.settings.limit_call_bytes
    pieces = "†{state.long}" * (limit // 500_000 + 1)
    calls = [
        make(1, "†state.gone || †state.other", tool="pick", path="††state.other"),
        make("a †{state.gone}", "†state.a"),
        make("a †{state.gone || state.n}", "†state.b"),
        make(pieces, "†state.c"),
    ]
    context = [*CONTEXT, {"type": "state", "long": "x" * 500_000}]
    result = backend.client.submit(context, {"calls": calls}).wait(timeout_seconds=DEADLINE_SECONDS)
    assert [call.status for call in result.calls] == ["done", "skipped", "done", "failed"]
    assert result.calls[3].error is not None
    assert result.calls[3].error["type"] == "TooLarge"
    assert result.data()["state"]["b"] == "a 1.5"
