"""`acts held`, `acts approve`, `acts answer`, `acts reject`: what waits for a person, and deciding on it (SPEC R14)."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from .inspect import found_run, print_status
from .options import (
    COMPLETED,
    REJECTED,
    Common,
    Failed,
    bundled,
    common_options,
    documented,
    load_registry,
)
from .output import (
    SHORT,
    confirmed,
    counted,
    cut_line,
    escaped,
    heading,
    print_either,
    print_json,
    print_lines,
    print_text,
    tell,
    value_lines,
)
from .source import allow_option, read_submission

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...protocol import Plan
    from ...protocol.calls.call import Call
    from ...protocol.plan.lanes import Lane
    from ..client.run import Run


T = TypeVar("T")
_DONE: Final = {"approve": "approved", "reject": "rejected", "answer": "answered"}


@dataclass(frozen=True, slots=True)
class Many:
    """Which held calls are decided on alike."""

    is_all: bool
    tools: tuple[str, ...]

    @property
    def is_meant(self) -> bool:
        """Whether it is about calls that are not named one by one."""
        return self.is_all or bool(self.tools)

    def includes(self, call: Mapping[str, Any]) -> bool:
        """Whether a held call is one of them."""
        return self.is_all or call["tool"] in self.tools


_many_options = bundled(
    "many",
    Many,
    click.option("--all", "is_all", is_flag=True, help="All calls that are held now."),
    click.option("--tool", "tools", multiple=True, metavar="NAME", help="All held calls of a tool; may be repeated."),
)


@dataclass(frozen=True, slots=True)
class Decision:
    """Who decides, and on what."""

    by: str | None
    shown: str | None
    is_sure: bool
    """Whether the person at the terminal is not to be asked."""

    def confirm(self, found: Run, verb: str, meant: str, calls: Sequence[Mapping[str, Any]]) -> None:
        """On a terminal, show the calls and ask whether they are to be decided on."""
        if not self.is_sure:
            for line in (line for call in calls for line in held_lines(call)):
                click.echo(line, err=True)
            confirmed(f"{verb} {meant} of run {found.id}?")

    def digest(self, found: Run, verb: str, call: Mapping[str, Any]) -> str:
        """What names the call that was shown: before this command, or by it (SPEC R14.4). Raises `click.UsageError`
        where nobody can be shown it.
        """
        if self.shown is not None:
            return self.shown
        if not self.is_sure and (sys.stdin is None or not sys.stdin.isatty()):
            raise click.UsageError(
                f"there is no terminal to show call {call['call']} at: give --shown DIGEST as `acts held {found.id}` "
                f"prints it, or --yes to {verb} what waits there now"
            )
        self.confirm(found, verb, f"call {call['call']}", [call])
        return str(call["shown"])


_decision_options = bundled(
    "decision",
    Decision,
    click.option("--by", metavar="NAME", help="Who decides; the log keeps it [ACTS_ACTOR]."),
    click.option(
        "--shown",
        metavar="DIGEST",
        help="What `acts held` showed beside the call: the decision is refused if something else waits now.",
    ),
    click.option("--yes", "-y", "is_sure", is_flag=True, help="Decide on what waits now, shown or not; do not ask."),
)


@dataclass(frozen=True, slots=True)
class Instead:
    """What is done in place of a held call."""

    parameters: str | None
    scopes: str | None
    calls: str | None

    def read(self, common: Common) -> dict[str, Any]:
        """The arguments of `Run.approve`. Raises `protocol.Rejected`."""
        from .source import read_amendment

        calls = None
        if self.calls is not None:
            load_registry(common.settings())
            calls = read_amendment(self.calls, common.settings())
        scopes = _given(self.scopes, "--scopes", list, "a list of kinds and references", common)
        parameters = _given(self.parameters, "--parameters", dict, "an object", common)
        return {"parameters": parameters, "scopes": scopes, "calls": calls}


_instead_options = bundled(
    "instead",
    Instead,
    click.option("--parameters", metavar="JSON", help="Run it with these parameters: an object of all of them."),
    click.option(
        "--scopes", metavar="JSON", help='Show it less: a list of kinds and references, such as ["†state.user"].'
    ),
    click.option("--calls", metavar="FILE", help='Put the calls of FILE in its place: {"calls": […]}, as acts amend.'),
)


@click.command(short_help="Print the calls that wait for a person.")
@click.argument("run", metavar="RUN")
@common_options
def held(run: str, *, common: Common) -> int:
    """Print the calls of RUN, and of its child runs, that wait for a person, with the parameters and scopes that they
    will run with; the one that has waited longest comes first. In mode lazy, print the plan that waits, with its
    digest.

    Exit codes: 0 found, also where nothing waits, 3 no server, 4 no such run.
    """
    with found_run(run, common) as found:
        plan, calls = found.plan(), found.held()
    if plan is not None and common.json:
        print_json(plan)
    elif plan is not None:
        print_text(
            heading("plan " + plan["plan"])
            + (f"  of tick {plan['tick']}" if plan["tick"] is not None else "")
            + f"; acts approve {run} --plan {plan['plan']}"
        )
        print_lines(value_lines({"calls": plan["calls"]}, 2))
    for call in calls:
        print_either(call, held_lines(call), as_json=common.json)
    if not calls and plan is None and not common.json:
        print_text("nothing waits for a person")
    return COMPLETED


@click.command(short_help="Let a held call run.")
@click.argument("run", metavar="RUN")
@click.argument("call", metavar="[CALL]", required=False)
@_instead_options
@click.option("--plan", metavar="DIGEST", help="Run the plan that `acts held` shows with this digest.")
@_many_options
@_decision_options
@common_options
def approve(
    run: str,
    call: str | None,
    plan: str | None,
    *,
    instead: Instead,
    many: Many,
    decision: Decision,
    common: Common,
) -> int:
    """Let CALL of RUN run as it was shown. CALL is its id, or its index if only one held call has that index. On a
    terminal the call is shown first, and you are asked; elsewhere give --shown, or --yes. --plan approves the plan of a
    run in mode lazy; this is refused if another plan waits now.

    Exit codes: 0 approved, 2 what is given does not fit, 3 no server, 4 no such run, it is
    over, or the call does not wait.
    """
    if [call is not None, plan is not None, many.is_meant].count(True) != 1:
        raise click.UsageError("give one of CALL, --plan DIGEST, --all, and --tool NAME")
    if call is None and instead != Instead(None, None, None):
        raise click.UsageError("--parameters, --scopes and --calls are for one CALL")
    if instead.calls is not None and instead != Instead(None, None, instead.calls):
        raise click.UsageError("give either --calls, or --parameters and --scopes")
    if many.is_meant:
        return _decide_many(
            run,
            common,
            many,
            decision,
            "approve",
            lambda found, one: found.approve(one["call"], by=decision.by, shown=one["shown"]),
        )
    if plan is not None:
        with documented(as_json=common.json, has_status=True), found_run(run, common) as found:
            found.approve_plan(plan, by=decision.by)
            document = found.status()
        print_status(document, common)
        return COMPLETED
    assert call is not None
    return _decide(
        run,
        call,
        common,
        decision,
        "approve",
        lambda found, shown: found.approve(call, **instead.read(common), by=decision.by, shown=shown),
        is_changed=instead != Instead(None, None, None),
    )


@click.command(short_help="Answer a question of a run.")
@click.argument("run", metavar="RUN")
@click.argument("call", metavar="CALL")
@click.argument("text", metavar="TEXT", required=False)
@click.option("--value", metavar="JSON", help="The answer, if it is not a text.")
@_decision_options
@common_options
def answer(run: str, call: str, text: str | None, value: str | None, *, decision: Decision, common: Common) -> int:
    """Answer CALL of RUN, a question (ask_human). TEXT, or the value of --value, is the call's result. On a terminal
    the question is shown first; elsewhere give --shown, or --yes.

    Exit codes: 0 answered, 2 what is given does not fit, 3 no server, 4 no such run, it is
    over, or the call does not wait.
    """
    if (text is None) is (value is None):
        raise click.UsageError("give either TEXT or --value")
    return _decide(
        run,
        call,
        common,
        decision,
        "answer",
        lambda found, shown: found.answer(call, _answer(text, value, common), by=decision.by, shown=shown),
    )


@click.command(short_help="Reject a held call.")
@click.argument("run", metavar="RUN")
@click.argument("call", metavar="[CALL]", required=False)
@click.option("--reason", metavar="TEXT", required=True, help="The message of the error with which the call ends.")
@_many_options
@_decision_options
@common_options
def reject(run: str, call: str | None, reason: str, *, many: Many, decision: Decision, common: Common) -> int:
    """End CALL of RUN with an error of type Rejected, which goes where an exception of its activity would go. On a
    terminal the call is shown first, and you are asked; elsewhere give --shown, or --yes.

    Exit codes: 0 rejected, 2 what is given does not fit, 3 no server, 4 no such run, it is
    over, or the call does not wait.
    """
    if (call is not None) is many.is_meant:
        raise click.UsageError("give one of CALL, --all, and --tool NAME")
    if call is None:
        return _decide_many(
            run,
            common,
            many,
            decision,
            "reject",
            lambda found, one: found.reject(one["call"], reason, by=decision.by, shown=one["shown"]),
        )
    return _decide(
        run,
        call,
        common,
        decision,
        "reject",
        lambda found, shown: found.reject(call, reason, by=decision.by, shown=shown),
    )


def _decide_many(
    run: str,
    common: Common,
    many: Many,
    decision: Decision,
    verb: str,
    decide: Callable[[Run, Mapping[str, Any]], str],
) -> int:
    """Decide alike on the held calls that are meant. Those on which someone else has decided meanwhile are passed over,
    and so are questions, where they are not rejected.
    """
    from ..errors import AlreadyDecided, HeldAnew, NotHeld

    with documented(as_json=common.json, has_status=True), found_run(run, common) as found:
        calls = [call for call in found.held() if many.includes(call)]
        chosen = [call for call in calls if verb == "reject" or not call.get("question")]
        if len(calls) > len(chosen):
            tell(f"{counted(len(calls) - len(chosen), 'question')} left: `acts answer` answers each")
        if chosen:
            decision.confirm(found, verb, counted(len(chosen), "call"), chosen)
        decisions = {}
        for call in chosen:
            with suppress(AlreadyDecided, HeldAnew, NotHeld):
                decisions[call["call"]] = decide(found, call)
        document = {**found.status(), "decisions": decisions}
    return _print_decided(document, verb, [call for call in chosen if call["call"] in decisions], common)


def _decide(
    run: str,
    call: str,
    common: Common,
    decision: Decision,
    verb: str,
    decide: Callable[[Run, str | None], str],
    *,
    is_changed: bool = False,
) -> int:
    """Make a decision on what was shown of a call, and say where it stands in the log."""
    from ..client.people import meant_of

    with documented(as_json=common.json, has_status=True), found_run(run, common) as found:
        held = {one["call"]: one for one in found.held()}
        name = meant_of(held, call)
        seen = held[name] if name is not None else None
        id_ = decide(found, decision.digest(found, verb, seen) if seen is not None else decision.shown)
        document = {**found.status(), "decision": id_}
    return _print_decided(document, verb, [seen] if seen is not None else [], common, is_changed=is_changed)


def _print_decided(
    document: Mapping[str, Any],
    verb: str,
    calls: Sequence[Mapping[str, Any]],
    common: Common,
    *,
    is_changed: bool = False,
) -> int:
    """Say what was decided on, and how many calls of the run are still held."""
    from ...protocol.errors import json_text

    done, run = _DONE[verb], document["run"]
    lines = []
    for call in calls:
        given = ", changed as given" if is_changed else f" {cut_line(json_text(call['parameters']), SHORT)}"
        lines.append(f"{done} call {call['call']} of run {run}: {escaped(call['tool'])}{given}")
    left = counted(document["calls"].get("held", 0) + document.get("held_below", 0), "call")
    print_either(document, [*lines, f"decided, {left} of run {run} still held"], as_json=common.json)
    return COMPLETED


def _answer(text: str | None, value: str | None, common: Common) -> Any:
    """The text, or the value that is given as JSON. Raises `protocol.Rejected`."""
    from .source import decode_submission

    return text if value is None else decode_submission(value.encode(), common.settings(), "--value")


def _given(text: str | None, option: str, type_: type[T], what: str, common: Common) -> T | None:
    """The value of an option that is given as JSON. Raises `protocol.Rejected`."""
    from ...protocol import Problem, Rejected
    from .source import decode_submission

    value = decode_submission(text.encode(), common.settings(), option) if text is not None else None
    if value is None or isinstance(value, type_):
        return value
    raise Rejected([Problem("", f"{option} must be {what}")])


def held_lines(call: Mapping[str, Any]) -> Iterator[str]:
    """A held call as people read it: everything that it will run with."""
    until = f", rejected at {call['until']}" if call["until"] is not None else ""
    yield f"{heading(call['call'])} {escaped(call['tool'])}  since {call['since']}{until}, --shown {call['shown']}"
    if "untrusted" in call:
        yield f"  others would decide: {escaped(_untrusted(call['untrusted']))}"
    shown = {key: call[key] for key in ("parameters", "scopes", "messages", "output") if call.get(key)}
    yield from value_lines(shown or {"parameters": {}}, 2)


def _untrusted(said: Mapping[str, Any]) -> str:
    """Why a call waits that others would decide, with the calls through which their data has come (SPEC R16.4)."""
    from ...protocol.trust import Doubt

    ways = (f"{source} → {' → '.join(f'call {index}' for index in way)}" for source, way in said["ways"].items() if way)
    return "; ".join((str(Doubt.read(said)), *ways))


# `acts prompt`: what a model would be asked, without asking it (SPEC R12.9).


@click.command(short_help="Show what a model would be asked.")
@click.argument("file", metavar="FILE|RUN")
@click.option(
    "--tick", type=click.IntRange(min=0), metavar="N", help="Show what RUN asked in this tick; the first is 0."
)
@click.option(
    "--call", type=click.IntRange(min=0), metavar="N", help="Show what the call N of FILE would ask for its result."
)
@allow_option
@common_options
def prompt(file: str, tick: int | None, call: int | None, allow: tuple[str, ...], *, common: Common) -> int:
    """Show the messages, schema and settings of FILE's request (or - for standard input), without asking a model.

    A solution in FILE is ignored. Without a schema in FILE the only output is null. With --tick give a run: what its
    loop asked in that tick is shown. With --call the calls of FILE count: of a latent call, or one whose delegate is a
    model, what it would be asked is shown, in the first instance that it runs in. What is not known yet stands as a
    reference.

    Exit codes: 0 shown, 2 FILE is not valid, 3 no server, 4 no such run or tick.
    """
    if tick is not None:
        with found_run(file, common) as run:
            return _show(run.asked(tick), common)
    with documented(as_json=common.json, has_status=False):
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
            return _show(_of_call(Checker(settings).check(value, allow=allow or None), call), common)
        request = Checker(settings).request(value, allow=allow or None)
        config = sent_config(request, request.config, loop_limits(request.config, settings))
        return _show({"messages": render(request), "schema": first_schema(request), "config": config}, common)


def _of_call(plan: Plan, index: int) -> dict[str, Any]:
    """What a call asks a model for its result, as far as that is known. Raises `Rejected` where it asks none."""
    from ...protocol import Problem, Rejected
    from ...protocol.calls.delegates import declares_tools
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
    if call.runner.executor is Executor.ACTIVITY or not is_asked or declares_tools(definition):
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
    """A call's parameters; what no call writes that a parameter reads is read."""
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


def _show(asked: Mapping[str, Any], common: Common) -> int:
    if common.json:
        print_json(_parts(asked))
        return COMPLETED
    _print(asked["messages"], asked["schema"], _functions(asked))
    print_text()
    print_text(heading("config"))
    print_text(escaped(json.dumps(asked["config"], ensure_ascii=False)))
    return COMPLETED


def _parts(asked: Mapping[str, Any]) -> dict[str, Any]:
    functions = _functions(asked)
    own = {"functions": functions} if functions else {}
    return {**{key: asked[key] for key in ("messages", "schema")}, **own}


def _functions(asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The functions that the model may call, where the tools go as functions."""
    from ...protocol.requests.tool_texts import TOOLS, functions_of

    functions = functions_of(asked["schema"]) if asked.get("config", {}).get("wire") == TOOLS else ()
    return [{"name": one.name, "description": one.description, "parameters": one.parameters} for one in functions]


def _print(messages: Sequence[Mapping[str, Any]], schema: Any, functions: Sequence[Any]) -> None:
    for message in messages:
        print_text(heading(escaped(str(message.get("role")))))
        content = message.get("content")
        for call in message.get("tool_calls", ()):
            print_text(escaped(f"{call['function']['name']} {call['function']['arguments']}"))
        if content is None:
            print_text()
            continue
        lines = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        for line in lines.split("\n"):
            print_text(escaped(line))
        print_text()
    print_text(heading("functions" if functions else "schema"))
    for line in json.dumps(functions or schema, ensure_ascii=False, indent=2).split("\n"):
        print_text(escaped(line))
