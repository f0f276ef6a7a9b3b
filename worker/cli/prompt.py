"""`acts prompt`: what a model would be asked, without asking it (SPEC R12.9)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .failures import COMPLETED, REJECTED, Failed, documented
from .inspect import found_run
from .options import Common, common_options, load_registry
from .output import escaped, print_json, print_text
from .rendering import heading
from .source import allow_option, read_submission

if TYPE_CHECKING:
    from acts_celery.protocol import Plan
    from acts_celery.protocol.calls.call import Call
    from acts_celery.protocol.graph.lanes import Lane


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
        from acts_celery.protocol.requests import render
        from acts_celery.protocol.requests.functions import first_schema
        from acts_celery.worker.lanes.checking import Checker
        from acts_celery.worker.loop.loop_requests import sent_config
        from acts_celery.worker.loop.loop_view import loop_limits

        if call is not None:
            return _show(_of_call(Checker(settings).check(value, allow=allow or None), call), common)
        request = Checker(settings).request(value, allow=allow or None)
        config = sent_config(request, request.config, loop_limits(request.config, settings))
        return _show({"messages": render(request), "schema": first_schema(request), "config": config}, common)


def _of_call(plan: Plan, index: int) -> dict[str, Any]:
    """What a call asks a model for its result, as far as that is known. Raises `Rejected` where it asks none."""
    from acts_celery.protocol import Problem, Rejected
    from acts_celery.protocol.calls.delegates import declares_tools
    from acts_celery.protocol.calls.tools import ANONYMOUS, Executor
    from acts_celery.protocol.engine.execution import Execution
    from acts_celery.protocol.language.errors import pointer
    from acts_celery.protocol.requests.results import result_request
    from acts_celery.worker.models.delegates import enveloped, request_config

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
    from acts_celery.protocol.calls.call import read_expressions
    from acts_celery.protocol.graph.writers import Writers
    from acts_celery.protocol.language.errors import Conflict, Unresolved
    from acts_celery.protocol.language.templates import evaluated

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
    from acts_celery.protocol.requests.functions import TOOLS, functions_of

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
