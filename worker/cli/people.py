"""`acts held`, `acts approve`, `acts answer`, `acts reject`: calls that wait for a person, and decisions (SPEC R14)."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from ..actions import ACTIONS
from .options import REJECTED, RUN, Common, Failed, command, load_registry, option, option_group
from .output import (
    SHORT,
    confirmed,
    counted,
    cut_line,
    escaped,
    heading,
    inline,
    print_json,
    print_lines,
    print_text,
    tell,
    value_lines,
)
from .runs import print_status
from .source import allow_option, decode_submission, read_amendment, read_submission

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...protocol import Plan
    from ...protocol.calls.call import Call
    from ...protocol.plan.lanes import Lane
    from ..client.run import Run


T = TypeVar("T")
Parameters = dict[str, Any]
"""Parameters of an action."""
_DONE: Final = {"approve": "approved", "reject": "rejected", "answer": "answered", "settle": "settled"}


@dataclass(frozen=True, slots=True)
class HeldFilter:
    """The options that choose held calls, to decide on all of them alike."""

    is_all: bool = option("--all", is_flag=True, help="All calls that are held now.")
    tools: tuple[str, ...] = option(
        "--tool", multiple=True, metavar="NAME", help="All held calls of a tool; may be repeated."
    )

    question: str | None = option(
        "--question", metavar="DIGEST", help="All calls that `acts held` showed with this digest, and no others."
    )

    @property
    def is_meant(self) -> bool:
        """Whether an option chooses calls."""
        return self.is_all or bool(self.tools) or self.question is not None

    def chosen(self, run: Run) -> list[dict[str, Any]]:
        """Find the held calls that are meant. Raises `HeldAnew` if the digest names no calls that are held now."""
        calls = run.held()
        if self.question is None:
            return [call for call in calls if self.is_all or call["tool"] in self.tools]
        shown = run.question(self.question)["calls"]
        return [call for call in calls if shown.get(call["call"]) == call["shown"]]


@dataclass(frozen=True, slots=True)
class Decision:
    """The options that say who decides, and on which digest."""

    by: str | None = option("--by", metavar="NAME", help="Who decides; the log keeps it [ACTS_ACTOR].")
    shown: str | None = option(
        "--shown",
        metavar="DIGEST",
        help="What `acts held` showed with the call: the decision is refused if something else waits now.",
    )
    is_sure: bool = option("--yes", "-y", is_flag=True, help="Decide on what waits now, shown or not; do not ask.")

    def one(
        self, verb: str, run: str, call: str, common: Common, read: Callable[[], Parameters], *, changes: bool = False
    ) -> None:
        """Decide on a call as it was shown, with the parameters that `read` gives."""
        from ..client.people import meant_of

        with common.documented(), common.found(run) as found:
            held = {one["call"]: one for one in found.held()}
            seen = held.get(meant_of(held, call) or "")
            shown = self._digest(found, verb, seen) if seen is not None else self.shown
            done = ACTIONS[verb].do(found, call, **read(), by=self.by, shown=shown)
            document = {**found.status(), "decision": done["id"]}
        _print_decided(document, verb, [seen] if seen is not None else [], common, is_changed=changes)

    def many(self, verb: str, run: str, many: HeldFilter, common: Common, **given: Any) -> None:
        """Decide alike on the chosen calls. Calls on which someone else has decided meanwhile are left out, and so are
        questions, unless they are rejected.
        """
        from ..errors import AlreadyDecided, HeldAnew, NotHeld

        with common.documented(), common.found(run) as found:
            calls = many.chosen(found)
            begun = [call for call in calls if "unknown" in call]
            calls = [call for call in calls if "unknown" not in call]
            if begun:
                tell(f"{counted(len(begun), 'call')} left whose end is not known: `acts settle` settles each")
            chosen = [call for call in calls if verb == "reject" or not call.get("question")]
            if len(calls) > len(chosen):
                tell(f"{counted(len(calls) - len(chosen), 'question')} left: `acts answer` answers each")
            if chosen and many.question is None:  # else it was shown before
                self._confirm(found, verb, counted(len(chosen), "call"), chosen)
            decisions = dict[str, str]()
            with suppress(AlreadyDecided, HeldAnew, NotHeld):
                decide = found.approve_together if verb == "approve" else found.reject_together
                decisions = decide({call["call"]: call["shown"] for call in chosen}, **given, by=self.by)["decisions"]
            document = {**found.status(), "decisions": decisions}
        _print_decided(document, verb, [call for call in chosen if call["call"] in decisions], common)

    def _confirm(self, found: Run, verb: str, meant: str, calls: Sequence[Mapping[str, Any]]) -> None:
        """On a terminal, show the calls and ask for confirmation."""
        if not self.is_sure:
            for line in (line for call in calls for line in held_lines(call)):
                click.echo(line, err=True)
            confirmed(f"{verb} {meant} of run {found.id}?")

    def _digest(self, found: Run, verb: str, call: Mapping[str, Any]) -> str:
        """Return the digest of the call that was shown, before this command or by it (SPEC R14.4).

        Raises `click.UsageError` if there is no terminal to show it at.
        """
        if self.shown is not None:
            return self.shown
        if not self.is_sure and (sys.stdin is None or not sys.stdin.isatty()):
            raise click.UsageError(
                f"there is no terminal to show call {call['call']} at: give --shown DIGEST as `acts held {found.id}` "
                f"prints it, or --yes to {verb} what waits there now"
            )
        self._confirm(found, verb, f"call {call['call']}", [call])
        return str(call["shown"])


@dataclass(frozen=True, slots=True)
class ApprovedChanges:
    """The options that change a held call as it is approved."""

    parameters: str | None = option(
        "--parameters", metavar="JSON", help="Run it with these parameters: an object of all of them."
    )
    scopes: str | None = option(
        "--scopes", metavar="JSON", help='Show it less: a list of kinds and references, such as ["†state.user"].'
    )
    rule: str | None = option(
        "--rule", metavar="JSON", help='Later calls like it start, too: {"iban": "words", "amount": {"at_most": 50}}.'
    )
    calls: str | None = option(
        "--calls", metavar="FILE", help='Put the calls of FILE in its place: {"calls": […]}, as acts amend.'
    )

    def read(self, common: Common) -> dict[str, Any]:
        """Return the arguments of `Run.approve`. Raises `protocol.Rejected`."""
        calls = None
        if self.calls is not None:
            load_registry(common.settings())
            calls = read_amendment(self.calls, common.settings())
        scopes = _given(self.scopes, "--scopes", list, "a list of kinds and references", common)
        parameters = _given(self.parameters, "--parameters", dict, "an object", common)
        rule = _given(self.rule, "--rule", dict, "an object", common)
        return {"parameters": parameters, "scopes": scopes, "calls": calls, "rule": rule}


@dataclass(frozen=True, slots=True)
class ApprovedPlan:
    """The options that approve a plan."""

    plan: str | None = option("--plan", metavar="DIGEST", help="Run the plan that `acts held` shows with this digest.")
    for_all: bool = option("--for-all", is_flag=True, help="With --plan: no later run of the same plan waits.")


@command("Print the calls that wait for a person.")
@RUN
def held(run: str, *, common: Common) -> None:
    """Print the calls of RUN, and of its child runs, that wait for a person, with the parameters and scopes that they
    will run with; the one that has waited longest comes first. Calls that wait for the same source are one question:
    what they have alike, and a table of what differs. In mode lazy, print the plan that waits, with its digest.

    Exit codes: 0 found, also where nothing waits, 3 no server, 4 no such run.
    """
    with common.found(run) as found:
        plan, calls, asked = found.plan(), found.held(), found.questions()
    if plan is not None and common.json:
        print_json(plan)
    elif plan is not None:
        print_text(
            heading("plan " + plan["plan"])
            + (f"  of tick {plan['tick']}" if plan["tick"] is not None else "")
            + f"; acts approve {run} --plan {plan['plan']}"
        )
        print_lines(value_lines({"calls": plan["calls"]}, 2))
    together = {call: question["question"] for question in asked for call in question["calls"]}
    for question in [] if common.json else asked:
        print_lines(question_lines(question))
    for call in calls:
        if common.json:
            print_json(call | ({"together": together[call["call"]]} if call["call"] in together else {}))
        elif call["call"] not in together:
            print_lines(held_lines(call))
    if not calls and plan is None and not common.json:
        print_text("nothing waits for a person")


@command(ACTIONS["approve"])
@RUN
@click.argument("call", metavar="[CALL]", required=False)
@option_group("instead", ApprovedChanges)
@option_group("planned", ApprovedPlan)
@option_group("many", HeldFilter)
@option_group("decision", Decision)
def approve(
    run: str,
    call: str | None,
    *,
    instead: ApprovedChanges,
    planned: ApprovedPlan,
    many: HeldFilter,
    decision: Decision,
    common: Common,
) -> None:
    """Approve a call, several, or a plan."""
    plan = planned.plan
    if [call is not None, plan is not None, many.is_meant].count(True) != 1:
        raise click.UsageError("give one of CALL, --question DIGEST, --plan DIGEST, --all, and --tool NAME")
    if planned.for_all and plan is None:
        raise click.UsageError("--for-all is for --plan DIGEST")
    if call is None and instead != ApprovedChanges():
        raise click.UsageError("--parameters, --scopes, --rule and --calls are for one CALL")
    if instead.calls is not None and instead != ApprovedChanges(calls=instead.calls):
        raise click.UsageError("give either --calls, or --rule, or --parameters and --scopes")
    if call is not None:
        decision.one("approve", run, call, common, lambda: instead.read(common), changes=instead != ApprovedChanges())
    elif plan is None:
        decision.many("approve", run, many, common)
    else:
        with common.documented(), common.found(run) as found:
            ACTIONS["approve_plan"].do(found, plan, by=decision.by, for_all=planned.for_all)
            document = found.status()
        print_status(document, common)


@command("Print the rules of a run.")
@RUN
def rules(run: str, *, common: Common) -> None:
    """Print the rules that were given in RUN, the oldest first: what each lets start, who gave it, and which calls it
    let start; with --json as `acts check --rule` takes them.

    Exit codes: 0 found, also where there are none, 3 no server, 4 no such run.
    """
    with common.found(run) as found:
        given = found.rules()
    for rule in given:
        common.print(rule, rule_lines(rule))
    if not given and not common.json:
        print_text("no rules")


def rule_lines(rule: Mapping[str, Any]) -> Iterator[str]:
    """Yield a rule for people: what it lets start, and what it did."""
    by = f" by {escaped(rule['by'])}" if rule["by"] is not None else ""
    until = f", revoked at {rule['revoked']} by {escaped(rule['revoked_by'] or '?')}" if rule["revoked"] else ""
    yield f"{heading(rule['rule'])}  given at {rule['given']}{by}{until}"
    yield f"  {escaped(rule['text'])}"
    if rule["calls"]:
        yield f"  started: call {escaped(', '.join(rule['calls']))}"


@command(ACTIONS["revoke"])
@RUN
@click.argument("rule", metavar="RULE")
@click.option("--by", metavar="NAME", help="Who revokes it; the log keeps it [ACTS_ACTOR].")
def revoke(run: str, rule: str, by: str | None, *, common: Common) -> None:
    """Revoke a rule."""
    with common.documented(), common.found(run) as found:
        document = found.status() | ACTIONS["revoke"].do(found, rule, by=by)
    print_status(document, common)


@command(ACTIONS["answer"])
@RUN
@click.argument("call", metavar="CALL")
@click.argument("text", metavar="TEXT", required=False)
@click.option("--value", metavar="JSON", help="The answer, if it is not a text.")
@option_group("decision", Decision)
def answer(run: str, call: str, text: str | None, value: str | None, *, decision: Decision, common: Common) -> None:
    """Answer a question by a text or a value."""
    if (text is None) is (value is None):
        raise click.UsageError("give either TEXT or --value")

    def read() -> Parameters:
        if value is None:
            return {"value": text}
        return {"value": decode_submission(value.encode(), common.settings(), "--value")}

    decision.one("answer", run, call, common, read)


@command(ACTIONS["reject"])
@RUN
@click.argument("call", metavar="[CALL]", required=False)
@click.option("--reason", metavar="TEXT", required=True, help="The message of the error with which the call ends.")
@option_group("many", HeldFilter)
@option_group("decision", Decision)
def reject(run: str, call: str | None, reason: str, *, many: HeldFilter, decision: Decision, common: Common) -> None:
    """Reject a call, or several."""
    if (call is not None) is many.is_meant:
        raise click.UsageError("give one of CALL, --question DIGEST, --all, and --tool NAME")
    if call is None:
        decision.many("reject", run, many, common, reason=reason)
    else:
        decision.one("reject", run, call, common, lambda: {"reason": reason})


@command(ACTIONS["settle"])
@RUN
@click.argument("call", metavar="CALL")
@click.option("--done", "outcome", flag_value="done", help="It has happened: --value, else null, is its result.")
@click.option("--again", "outcome", flag_value="again", help="It has not happened: it begins again.")
@click.option("--failed", "reason", metavar="REASON", help="It has failed, and is not begun again.")
@click.option("--value", metavar="JSON", help="With --done: the call's result.")
@option_group("decision", Decision)
def settle(
    run: str,
    call: str,
    outcome: str | None,
    reason: str | None,
    value: str | None,
    *,
    decision: Decision,
    common: Common,
) -> None:
    """Say how a call has ended, or have it begin again."""
    if (outcome is None) is (reason is None):
        raise click.UsageError("give one of --done, --again, and --failed REASON")
    if value is not None and outcome != "done":
        raise click.UsageError("--value is for --done")

    def read() -> Parameters:
        decoded = decode_submission(value.encode(), common.settings(), "--value") if value is not None else None
        return {"outcome": outcome or "failed", "value": decoded, "reason": reason or ""}

    decision.one("settle", run, call, common, read)


def _print_decided(
    document: Mapping[str, Any],
    verb: str,
    calls: Sequence[Mapping[str, Any]],
    common: Common,
    *,
    is_changed: bool = False,
) -> None:
    """Print which calls were decided on, and how many calls of the run are still held."""
    from ...protocol.errors import json_text

    done, run = _DONE[verb], document["run"]
    lines = []
    for call in calls:
        given = ", changed as given" if is_changed else f" {cut_line(json_text(call['parameters']), SHORT)}"
        lines.append(f"{done} call {call['call']} of run {run}: {escaped(call['tool'])}{given}")
    left = counted(document["calls"].get("held", 0) + document.get("held_below", 0), "call")
    common.print(document, [*lines, f"decided, {left} of run {run} still held"])


def _given(text: str | None, option: str, type_: type[T], what: str, common: Common) -> T | None:
    """Decode an option in JSON. Raises `protocol.Rejected`."""
    from ...protocol import Problem, Rejected

    value = decode_submission(text.encode(), common.settings(), option) if text is not None else None
    if value is None or isinstance(value, type_):
        return value
    raise Rejected([Problem("", f"{option} must be {what}")])


def held_lines(call: Mapping[str, Any]) -> Iterator[str]:
    """Yield a held call for people: everything that it will run with."""
    until = f", rejected at {call['until']}" if call["until"] is not None else ""
    yield f"{heading(call['call'])} {escaped(call['tool'])}  since {call['since']}{until}, --shown {call['shown']}"
    if "unknown" in call:
        yield f"  its end is not known: {escaped(_evidence(call['unknown']))}"
    if "untrusted" in call:
        yield f"  others would decide: {escaped(_untrusted(call['untrusted']))}"
    shown = {key: call[key] for key in ("parameters", "scopes", "messages", "output") if call.get(key)}
    yield from value_lines(shown or {"parameters": {}}, 2)


def question_lines(question: Mapping[str, Any]) -> Iterator[str]:
    """Yield a question about several calls for people: what they have alike, and a table of what differs."""
    number = counted(len(question["rows"]), "call")
    yield f"{heading(number)} of {escaped(question['tool'])} together, --question {question['question']}"
    yield f"  others would decide: {escaped(_untrusted({**question['untrusted'], 'ways': {}}))}"
    yield from value_lines(question["same"], 2)
    columns = ["call", *(escaped(at) for at in question["columns"]), "--shown"]
    rows = [
        [
            escaped(row["call"]),
            *(inline(row["differs"][at]) if at in row["differs"] else "" for at in question["columns"]),
            row["shown"],
        ]
        for row in question["rows"]
    ]
    widths = [max(len(line[place]) for line in (columns, *rows)) for place in range(len(columns))]
    for line in (columns, *rows):
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def _evidence(unknown: Mapping[str, Any]) -> str:
    """Say what is known of a call that was begun (SPEC R4.11)."""
    named = (("worker", "begun by"), ("since", "at"), ("attempt", "attempt"), ("key", "idempotency key"))
    return "; ".join((unknown["said"], *(f"{text} {unknown[name]}" for name, text in named if name in unknown)))


def _untrusted(doubt: Mapping[str, Any]) -> str:
    """Say whose data would decide a call, and through which calls it came (SPEC R16.4)."""
    from ...protocol.trust import Doubt

    ways = (
        f"{source} → {' → '.join(f'call {index}' for index in way)}" for source, way in doubt["ways"].items() if way
    )
    return "; ".join((str(Doubt.read(doubt)), *ways))


# `acts prompt`: the messages for a model, without asking it (SPEC R12.9).


@command("Show what a model would be asked.")
@click.argument("file", metavar="FILE|RUN")
@click.option(
    "--tick", type=click.IntRange(min=0), metavar="N", help="Show what RUN asked in this tick; the first is 0."
)
@click.option(
    "--call", type=click.IntRange(min=0), metavar="N", help="Show what the call N of FILE would ask for its result."
)
@allow_option
def prompt(file: str, tick: int | None, call: int | None, allow: tuple[str, ...], *, common: Common) -> None:
    """Show the messages, schema and settings of FILE's request (or - for standard input), without asking a model.

    A solution in FILE is ignored. Without a schema in FILE the only output is null. With --tick, give a RUN: it shows
    what the loop asked in that tick. With --call, it shows what a latent call of FILE, or a call of a delegate that is
    a model, would ask in its first instance, with references for what is not known yet.

    Exit codes: 0 shown, 2 FILE is not valid, 3 no server, 4 no such run or tick.
    """
    if tick is not None:
        with common.found(file) as run:
            _print_request(run.asked(tick), common)
        return
    with common.documented(has_status=False):
        if file != "-" and not Path(file).exists():
            raise Failed(f"{file}: no such file; what a run has asked: acts prompt RUN --tick 0", REJECTED)
        settings = common.settings()
        value = read_submission(file, settings)
        load_registry(settings)
        from ...protocol.requests import render
        from ...protocol.requests.tool_texts import first_schema
        from ..agent.ticks import sent_config
        from ..runner.checking import Checker
        from ..store.loop_view import loop_limits

        if call is not None:
            _print_request(_of_call(Checker(settings).check(value, allow=allow or None), call), common)
            return
        request = Checker(settings).request(value, allow=allow or None)
        config = sent_config(request, request.config, loop_limits(request.config, settings))
        _print_request({"messages": render(request), "schema": first_schema(request), "config": config}, common)


def _of_call(plan: Plan, index: int) -> dict[str, Any]:
    """Return the messages by which a call would ask a model for its result. Raises `Rejected` if it asks none."""
    from ...protocol import Problem, Rejected
    from ...protocol.calls.declarations import has_own_run
    from ...protocol.calls.tools import ANONYMOUS, Executor
    from ...protocol.engine.execution import Execution
    from ...protocol.errors import pointer
    from ...protocol.requests.rendering import result_request
    from ..agent.model_calls import enveloped
    from ..runner.remote import request_config

    delegates = plan.submission.delegates
    lanes = (lane for lane in plan.lanes.values() if any(one.index == index for one in lane.calls))
    if (lane := next(lanes, None)) is None:
        raise Rejected([Problem("", f"there is no call {index}: the first is 0, the last {len(plan.calls) - 1}")])
    call = next(one for one in lane.calls if one.index == index)
    definition = delegates.get(call.runner.name, {}) if call.runner.executor is not Executor.LATENT else {}
    is_asked = call.runner.executor is Executor.LATENT or call.runner.name in (*delegates, ANONYMOUS)
    if call.runner.executor is Executor.ACTIVITY or not is_asked or has_own_run(definition):
        text = "it asks no model for its result alone: that is for latent calls, and for delegates without tools"
        raise Rejected([Problem(pointer(*plan.submission.place(index)), text)])
    execution = Execution.of(plan, lane, plan.context.fold(lane.instance))
    request = result_request(
        call,
        _known_parameters(plan, lane, call),
        execution.scoped_messages(call),
        execution.alternatives(call),
        tool=plan.tools.get(call.tool),
        definition=definition,
        show_bytes=plan.submission.config.get("show_bytes"),
    )
    config = request_config(plan.submission.config, definition.get("config") or {})
    return {"messages": request.messages, "schema": enveloped(request.schema), "config": config}


def _known_parameters(plan: Plan, lane: Lane, call: Call) -> dict[str, Any]:
    """Return a call's parameters; those that read nothing that a call writes have their values."""
    from ...protocol.calls.call import read_expressions
    from ...protocol.errors import Conflict, Unresolved
    from ...protocol.plan.graph import Writers
    from ...protocol.templates import evaluated

    writers = Writers(one for name in {lane.instance, None} if name in plan.lanes for one in plan.lanes[name].calls)
    fold, parameters = plan.context.fold(lane.instance), dict(call.parameters)
    for name, value in call.parameters.items():
        reads, _ = read_expressions({name: value})
        is_written = any(any(writers.lines(place)) for _, expression in reads for place in expression.references)
        if not is_written and not call.gather:
            with suppress(Unresolved, Conflict):
                parameters[name] = evaluated(value, fold)
    return parameters


def _print_request(request: Mapping[str, Any], common: Common) -> None:
    """Print a request to a model, with its functions if the tools go as functions."""
    from ...protocol.requests.tool_texts import TOOLS, functions_of

    has_functions = request.get("config", {}).get("wire") == TOOLS
    functions = [
        {"name": one.name, "description": one.description, "parameters": one.parameters}
        for one in (functions_of(request["schema"]) if has_functions else ())
    ]
    document = {"messages": request["messages"], "schema": request["schema"]}
    common.print(document | ({"functions": functions} if functions else {}), _request_lines(request, functions))


def _request_lines(request: Mapping[str, Any], functions: Sequence[Any]) -> Iterator[str]:
    for message in request["messages"]:
        yield heading(str(message.get("role")))
        for call in message.get("tool_calls", ()):
            yield escaped(f"{call['function']['name']} {call['function']['arguments']}")
        if (content := message.get("content")) is not None:
            text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
            yield from map(escaped, text.split("\n"))
        yield ""
    yield heading("functions" if functions else "schema")
    yield from map(escaped, json.dumps(functions or request["schema"], ensure_ascii=False, indent=2).split("\n"))
    yield ""
    yield heading("config")
    yield escaped(json.dumps(request["config"], ensure_ascii=False))
