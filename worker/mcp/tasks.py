"""Runs as tasks of MCP, by its extension `io.modelcontextprotocol/tasks`: a client that has the extension gets a handle
at once, asks how the run is doing, and lets its user decide on what waits for a person.

The id of a task is the id of its run, and the log has all about it: any server can answer for it.
"""

from __future__ import annotations

import json
from asyncio import to_thread
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Final

from mcp_types import ElicitResult, RequestParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field

from ...protocol import Rejected
from ...protocol.plan.documents import decode
from .. import limits
from ..actions import ACTIONS
from ..client.async_client import AsyncRun
from ..errors import AlreadyDecided, BadQuery, HeldAnew, NotHeld, RunOver
from ..store.keys import ENDED_STATUSES
from ..store.scripts import iso_date
from .code_tools import TAG, outcome
from .reading import Result
from .tools import ToolContext, answer, failure

EXTENSION: Final = "io.modelcontextprotocol/tasks"
POLL_MS: Final = int(limits.READING_LOOK_SECONDS * 1000)
_OVERTAKEN: Final = (AlreadyDecided, HeldAnew, NotHeld, RunOver)
"""The errors of an answer that comes too late, which the extension ignores."""


class TaskParams(RequestParams):
    """The parameters of `tasks/get` and `tasks/cancel`."""

    task_id: str = Field(alias="taskId", min_length=1, max_length=256)


class TaskAnswers(TaskParams):
    """The parameters of `tasks/update`: for some of the questions that `tasks/get` has shown, what the user says."""

    input_responses: dict[str, ElicitResult] = Field(alias="inputResponses")


def knows_tasks(session: Any) -> bool:
    """Whether the client of a session can be given a task instead of an answer."""
    said = session.client_capabilities
    is_declared = said is not None and EXTENSION in (said.extensions or {})
    return is_declared and session.protocol_version in MODERN_PROTOCOL_VERSIONS


def can_ask(session: Any) -> bool:
    """Whether the client of a session shows forms to its user."""
    said = session.client_capabilities
    elicitation = said.elicitation if said is not None else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


async def created(context: ToolContext, run: str) -> dict[str, Any]:
    """The answer to a call that has begun a run: the task that it is."""
    seen = await context.runs.page(run)
    return {"resultType": "task", **_about(seen, "working"), "statusMessage": f"run {run}: {seen['status']}"}


async def got(context: ToolContext, run: str, *, asks: bool) -> dict[str, Any]:
    """The answer to `tasks/get`, with `asks` with the questions that the user may decide on. Raises `RunNotFound`."""
    run = await context.runs.find(context.principal, run)
    seen = await context.runs.page(run)
    if seen["status"] == "cancelled":
        return _about(seen, "cancelled")
    if seen["status"] in ENDED_STATUSES:
        return {**_about(seen, "completed"), "result": await _result(context, seen)}
    counts = ", ".join(f"{count} {status}" for status, count in seen["counts"].items())
    message = f"run {run}: {counts or seen['status']}"
    if seen["held"] and asks and "decide" in context.principal.rights:
        questions = {_key(held): _question(held) for held in await _held(context, run)}
        if questions:
            about = _about(seen, "input_required")
            return {**about, "statusMessage": f"{message}; it waits for you", "inputRequests": questions}
    if seen["held"]:
        message = f"{message}; `held` has what waits for a person"
    return {**_about(seen, "working"), "statusMessage": message}


async def updated(context: ToolContext, run: str, answers: Mapping[str, ElicitResult]) -> None:
    """Do what the user has decided. What has been decided on meanwhile, and what was never asked, is ignored.

    Raises `RunNotFound`, `Refused` without the right to decide, `Rejected` and `BadQuery` for an answer that does not
    fit.
    """
    context.principal.require("decide", "tasks/update")
    found = await context.runs.run(context.principal, run)
    asked = {_key(held): held for held in await _held(context, found.id)}
    for key, said in answers.items():
        if key in asked:
            with suppress(*_OVERTAKEN):
                await _decide(found, asked[key], *_decision(asked[key], said, context.principal.name))


async def _decide(run: AsyncRun, held: Mapping[str, Any], action: str, *ways: Mapping[str, Any]) -> None:
    """Do an action with the first of these parameters that is not refused. Raises what the last of them raises."""
    do = partial(ACTIONS[action].do, run.plain, call=held["call"], shown=held["shown"])
    for parameters in ways[:-1]:
        with suppress(Rejected):
            await to_thread(do, **parameters)
            return
    await to_thread(do, **ways[-1])


async def cancelled(context: ToolContext, run: str) -> None:
    """Cancel the run, unless it has ended. Raises `RunNotFound`, `Refused` without the right to control."""
    context.principal.require("control", "tasks/cancel")
    found = await context.runs.run(context.principal, run)
    with suppress(RunOver):
        await to_thread(ACTIONS["cancel"].do, found.plain)


def _about(seen: Mapping[str, Any], status: str) -> dict[str, Any]:
    """The fields that every task has, by the overview of its run."""
    newest = str(seen["log"]).partition("-")[0]
    updated = iso_date(int(newest)) if newest.isdecimal() else seen["submitted"]
    about = {"taskId": seen["run"], "status": status, "createdAt": seen["submitted"], "lastUpdatedAt": updated}
    return {**about, "ttlMs": _kept_ms(seen), "pollIntervalMs": POLL_MS}


def _kept_ms(seen: Mapping[str, Any]) -> int | None:
    """How long after its submission a run is deleted; None while nobody knows."""
    if seen["expires"] is None or seen["submitted"] is None:
        return None
    kept = datetime.fromisoformat(seen["expires"]) - datetime.fromisoformat(seen["submitted"])
    return int(kept.total_seconds() * 1000)


async def _result(context: ToolContext, seen: Mapping[str, Any]) -> dict[str, Any]:
    """The result of the call that has begun a run which has ended."""
    try:
        if TAG in seen["tags"]:
            found = answer(await outcome(context, seen))
        else:
            found = answer(await Result(run=seen["run"]).execute(context))
            found.is_error = seen["status"] == "failed"
    except Exception as error:
        found = failure(error, str(seen["name"] or "submit"))
    return found.model_dump(mode="json", by_alias=True, exclude_none=True)


# Questions: forms of the client for what `held` has. A plan and a call whose end is not known are decided on by the
# tools: no form shows enough of them.


async def _held(context: ToolContext, run: str) -> Iterator[dict[str, Any]]:
    found: list[dict[str, Any]] = await context.runs.page(run, "held")
    return (held for held in found if "call" in held and "unknown" not in held)


def _key(held: Mapping[str, Any]) -> str:
    """The name of a question about one call, as shown. No other question ever has the same name."""
    return f"{held['call']}:{held['shown']}"


def _question(held: Mapping[str, Any]) -> dict[str, Any]:
    if held.get("question"):
        given = held["parameters"]
        options = given.get("options")
        kind = {"enum": [_label(one) for one in options]} if isinstance(options, list) and options else {}
        fields: dict[str, Any] = {"answer": {"type": "string", "title": "Answer", **kind}}
        text, required = str(given.get("question", "")), "answer"
        more = {key: value for key, value in given.items() if key not in ("question", "options")}
        shown = f"{text}\n{_text(more)}" if more else text
    else:
        decision = {"type": "string", "title": "Decision", "enum": ["approve", "reject"]}
        fields = {"decision": decision, "reason": {"type": "string", "title": "Reason, if you reject"}}
        parts = ("instance", "parameters", "scopes", "messages", "output", "untrusted")
        given = {key: held[key] for key in parts if held.get(key)}
        shown, required = f"May {held['tool']} run with this?\n{_text(given)}", "decision"
    schema = {"type": "object", "properties": fields, "required": [required]}
    return {"method": "elicitation/create", "params": {"mode": "form", "message": shown, "requestedSchema": schema}}


def _decision(held: Mapping[str, Any], said: ElicitResult, name: str) -> tuple[Any, ...]:
    """The action that an answer asks for, and its parameters; a text may stand for a value of another type, which the
    tool of the question takes in its place. Raises `BadQuery`.
    """
    given = said.content or {}
    if said.action != "accept":
        return "reject", {"reason": f"{name} {'declined' if said.action == 'decline' else 'dismissed the question'}"}
    if held.get("question"):
        return "answer", *({"value": value} for value in _values(held, given.get("answer")))
    if given.get("decision") == "approve":
        return "approve", {}
    if given.get("decision") == "reject":
        return "reject", {"reason": str(given.get("reason") or "").strip() or f"{name} rejected it"}
    raise BadQuery("decision: give `approve` or `reject`")


def _values(held: Mapping[str, Any], text: Any) -> list[Any]:
    """The values that the text of a form can stand for: one option, or the text, or what it is as JSON."""
    if not isinstance(text, str):
        raise BadQuery("answer: give a text")
    options = held["parameters"].get("options")
    if isinstance(options, list) and options:
        if chosen := [one for one in options if _label(one) == text]:
            return chosen[:1]
        raise BadQuery(f"answer: give one of {', '.join(map(_label, options))}"[: limits.CLIENTS_LONGEST_TEXT])
    with suppress(Rejected):
        return [text, decode(text.encode())]
    return [text]


def _label(option: Any) -> str:
    return option if isinstance(option, str) else json.dumps(option, ensure_ascii=False)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)
