"""`acts explain`: which messages of the log a value came from (SPEC R11.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from .failures import COMPLETED
from .inspect import at_option, found_run, message_id
from .options import Common, common_options
from .output import escaped, print_either
from .rendering import call_name, heading, status_word
from .values import inline, shortened

if TYPE_CHECKING:
    from acts_celery.protocol.analysis.provenance import Explanation, Origin

_LONGEST: Final = 100
"""Characters of a value on one line; --json prints all of it."""
_COLOURS: Final = {"contributes": "green", "overwritten": "yellow", "removes": "yellow", "conflict": "red"}


@click.command(short_help="Print where a value came from, or why it is not there.")
@click.argument("run", metavar="RUN")
@click.argument("path", metavar="'†KIND.PATH'")
@click.option("--instance", metavar="I", help="The value as this instance sees it.")
@at_option
@common_options
def explain(run: str, path: str, instance: str | None, at: str | None, *, common: Common) -> int:
    """Print the messages that the value at a path of RUN came from, what is left of each, and what their calls had
    read. If there is no value: the calls that may write it, and how they ended. The † may be left out.

    Exit codes: 0 found, also where there is no value, 2 not a path, 3 no server, 4 no such run or instance.
    """
    from acts_celery.protocol import ExpressionError
    from acts_celery.protocol.language.paths import MISSING

    moment = message_id(at)
    with found_run(run, common) as found:
        try:
            explanation = found.explain(path, instance=instance, at=moment)
            is_absent = explanation.value is MISSING and explanation.conflict is None
            absence = found.explain_absence(path, instance=instance, at=moment) if is_absent else None
        except ExpressionError as error:
            raise click.BadParameter(str(error), param_hint="PATH") from error
    document = _document(explanation) | {"run": found.id, "instance": instance}
    document |= {"absence": absence.to_dict()} if absence is not None else {}
    print_either(document, _lines(document), as_json=common.json)
    return COMPLETED


def _document(explanation: Explanation) -> dict[str, Any]:
    """As JSON; `value` is there only where there is one."""
    return {
        "path": str(explanation.reference),
        **_valued(explanation.value),
        "conflict": explanation.conflict,
        "messages": [_origin(origin) for origin in explanation.origins],
    }


def _origin(origin: Origin) -> dict[str, Any]:
    message = origin.logged.message
    is_gathered = (message.get("_call") or {}).get("_gather") is True
    return {
        "id": origin.logged.id,
        "instance": origin.logged.instance,
        "path": str(origin.operation.place),
        "method": origin.operation.method.value,
        "value": origin.operation.value,
        "effect": origin.effect.value,
        "index": origin.logged.call,
        "call": message.get("_call"),
        "date": message.get("_date"),
        "reads": [
            {"path": read.reference, **_valued(read.value), **({"gathered": True} if is_gathered else {})}
            for read in origin.reads
        ],
    }


def _valued(value: Any) -> dict[str, Any]:
    from acts_celery.protocol.language.paths import MISSING

    return {} if value is MISSING else {"value": value}


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    where = "" if document["instance"] is None else f" in {escaped(document['instance'])}"
    yield f"{heading(document['path'])}{where} {_value(document, document['conflict'])}"
    for message in document["messages"]:
        effect = click.style(message["effect"], fg=_COLOURS[message["effect"]])
        what = f"{message['method']} {escaped(message['path'])} {_value(message)}"
        yield f"{click.style(message['id'], dim=True)}  {effect}  {_writer(message)}: {what}"
        for read in message["reads"]:
            what = "from every instance that has it" if "gathered" in read else _value(read)
            yield f"    had read {escaped(read['path'])} {what}"
    if not document["messages"]:
        yield "no message says anything of it" + ("" if where else "; --instance I looks into an instance")
    if "absence" in document:
        yield from _absence_lines(document["absence"])


def _absence_lines(absence: Mapping[str, Any]) -> Iterator[str]:
    for writer in absence["writers"]:
        name = call_name(writer["index"], writer["tool"])
        where = f" in {escaped(writer['instance'])}" if writer["instance"] is not None else ""
        error = writer["error"]
        cause = f"{error.get('type')}: {error.get('message')}" if error is not None else writer["reason"]
        why = f": {escaped(shortened(cause, _LONGEST * 3))}" if cause else ""
        whom = f", which call {writer['needed_by']} lacks" if writer["needed_by"] is not None else ""
        places = escaped(", ".join(writer["places"]))
        yield f"  call {name}{where} writes {places}{whom}: {status_word(writer['status'])}{why}"
    if "promised" in absence:
        yield "a schema has promised it and it has not come: `acts send` brings it"
    elif not absence["writers"]:
        yield "no call writes there"
    if absence["near"] is not None:
        yield f"did you mean {escaped(absence['near'])}?"
    if absence["instances"]:
        yield f"it is there in {escaped(', '.join(absence['instances']))}"


def _value(holder: Mapping[str, Any], conflict: str | None = None) -> str:
    if conflict is not None:
        return f"cannot be read: {escaped(conflict)}"
    if "value" not in holder:
        return "is not there"
    return "= " + shortened(inline(holder["value"]), _LONGEST)


def _writer(message: Mapping[str, Any]) -> str:
    if message["index"] is None:
        return "given" if message["instance"] is None else f"given to {escaped(message['instance'])}"
    tool = message["call"]["_tool"] if message["call"] is not None else "failed"
    return f"call {call_name(message['index'], tool)}"
