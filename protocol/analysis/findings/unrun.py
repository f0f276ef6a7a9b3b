"""Unrun: calls that stand in a submission and that nobody runs (SPEC R10.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from protocol.language.errors import pointer
from protocol.language.paths import parts_of
from protocol.submission.submission import Submission

from .finding import Finding


def unrun_calls(submission: Submission) -> Iterator[Finding]:
    """Calls beside those of a solution or a plan."""
    for key, value in submission.beside.items():
        if _holds_calls(value):
            yield _finding(
                f"what stands under {key!r} in the solution is not run: put it among its calls", "solution", key
            )
    plans = [index for index, message in enumerate(submission.context) if message.get("type") == "plan"]
    for index in plans:
        message = submission.context[index]
        if _holds_calls(message.get("plan")) and _holds_calls(message.get("calls")):
            yield _finding("of a plan message with both, only what is in 'plan' counts", "context", index, "calls")
    if plans and not submission.is_template and not submission.calls and submission.output is None:
        text = "nothing runs: beside a solution, plan messages are context; leave the solution out, or give it calls"
        yield _finding(text, "context", plans[0])


def _finding(text: str, *at: str | int) -> Finding:
    return Finding("warning", text, (), pointer(*at))


def _holds_calls(value: Any) -> bool:
    return any(isinstance(part, dict) and "_tool" in part for part in parts_of(value))
