"""Output: what goes to stdout and stderr, and in which form.

stdout is for results: JSON in UTF-8 whatever the locale, or text that is coloured on a terminal only. stderr is for
people: one line for each message. Text from a submission is shown with its control characters escaped, so that a
value cannot rewrite the terminal or fake a line.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from .. import limits

if TYPE_CHECKING:
    from ...protocol import Finding


# The zero-width joiners are part of words and of emoji; everything else that cannot be seen is escaped.
_JOINERS: Final = "\u200c\u200d"


class OutputFailed(Exception):
    """stdout cannot be written to; `is_closed` where its reader has closed it (`acts log … | head`)."""

    def __init__(self, error: OSError) -> None:
        self.is_closed = error.errno in (errno.EPIPE, errno.ECONNRESET)
        super().__init__(f"the output cannot be written: {error.strerror}")


def prepare_streams() -> None:
    """Make both streams accept every character, whatever the locale's encoding, and standard input every byte."""
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "backslashreplace"), (sys.stderr, "backslashreplace")):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=errors)


def print_json(value: Any) -> None:
    """Write one JSON document on one line of stdout; whatever cannot be seen in it is escaped, which JSON allows."""
    from ...protocol.errors import json_text

    # A lone surrogate, which UTF-8 cannot hold, becomes `\udXXX`: the very escape that JSON has for it.
    text = json_text(value) + "\n"
    with _writing() as stream:
        stream.flush()
        stream.buffer.write(text.encode("utf-8", "backslashreplace"))


def print_text(text: str = "") -> None:
    """Write text and a line end to stdout; colours stay only where it is a terminal."""
    with _writing() as stream:
        stream.write((text if is_coloured(stream) else click.unstyle(text)) + "\n")


def print_table(text: str) -> None:
    """Write lines of a table to stdout as they are; on a terminal with what cannot be seen escaped."""
    with _writing() as stream:
        stream.write("".join(f"{escaped(line)}\n" for line in text.splitlines()) if stream.isatty() else text)


def print_lines(lines: Iterable[str]) -> None:
    """Write lines to stdout, as `print_text` does."""
    for line in lines:
        print_text(line)


def print_either(document: Any, lines: Iterable[str], *, as_json: bool) -> None:
    """Write a document to stdout: as JSON, or as lines for people."""
    if as_json:
        print_json(document)
    else:
        print_lines(lines)


def tell(message: str) -> None:
    """Write one line to stderr, `message` made fit to be one."""
    line = escaped(" ".join(message.split()))
    if len(line) > limits.LONGEST_LINE:
        line = line[: limits.LONGEST_LINE - 1] + "…"
    write_error(f"acts: {line}\n")


def write_error(text: str) -> None:
    """Write to stderr as it is; where that is closed, nothing is written."""
    try:
        # Not `sys.stderr`: in a worker, Celery's log has taken its place.
        if sys.__stderr__ is not None:
            sys.__stderr__.write(text)
            sys.__stderr__.flush()
    except (OSError, ValueError):
        pass


def confirmed(question: str) -> None:
    """Ask on a terminal, and end the command where the answer is no; a script is not asked."""
    if sys.stdin is not None and sys.stdin.isatty():
        click.confirm(question, abort=True, err=True)


def flush() -> None:
    """Write out what stdout still holds."""
    with _writing() as stream:
        stream.flush()


def detach_stdout() -> None:
    """Discard what can no longer be written, so that the interpreter does not fail at its end."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)


def is_coloured(stream: TextIO) -> bool:
    """Say whether a stream is a terminal with colours, and no variable turns them off (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def escaped(text: str) -> str:
    """Return a text in which all but visible characters and spaces are escaped as in a Python string."""
    if text.isascii() and text.isprintable():
        return text
    from ...protocol.errors import INVISIBLE

    def is_shown(character: str) -> bool:
        if character.isprintable():
            return INVISIBLE.match(character) is None
        return character in _JOINERS or unicodedata.category(character) == "Zs"

    return "".join(each if is_shown(each) else each.encode("unicode_escape").decode() for each in text)


@contextmanager
def nothing_on_stdout() -> Iterator[None]:
    """Send to stderr what other code prints, such as an activities file when it is imported."""
    with redirect_stdout(sys.stderr):
        yield


@contextmanager
def _writing() -> Iterator[TextIO]:
    """Give stdout, and raise its errors as `OutputFailed`; a closed one swallows everything."""
    if sys.stdout is None:
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
            yield nowhere
        return
    try:
        yield sys.stdout
    except OSError as error:
        raise OutputFailed(error) from error


# Values as lines for people: keys and indentation as in YAML, texts as they are where that is unambiguous.
#
# What is long is cut, and says how much is left out; `WHOLE` cuts nothing.


_LOOKS_LIKE_JSON: Final = re.compile(r"(?:null|true|false|-?\d[\d.eE+-]*)\Z")
_SYNTAX_AT_START: Final = tuple("\"'[]{}|>-#&*!%@`")


@dataclass(frozen=True, slots=True)
class Cut:
    """How much of a value is shown; None is all."""

    characters: int | None = None
    """Characters of one text."""
    items: int | None = None
    """Elements of one list or object, and lines of one text."""


WHOLE: Final = Cut()
SHORT: Final = Cut(characters=200, items=20)


def value_lines(value: Any, indent: int = 0, cut: Cut = WHOLE) -> Iterator[str]:
    """Yield a JSON value as indented lines."""
    if isinstance(value, dict) and value:
        for key, item in islice(value.items(), cut.items):
            yield from _entry_lines(f"{_key(key, cut)}:", item, indent, cut)
        yield from _rest(len(value), indent, cut, "key")
    elif isinstance(value, list) and value and not _is_inline(value, indent):
        for item in islice(value, cut.items):
            yield from _entry_lines("-", item, indent, cut)
        yield from _rest(len(value), indent, cut, "element")
    else:
        yield " " * indent + inline(value, cut)


def inline(value: Any, cut: Cut = WHOLE) -> str:
    """Return a value on one line; a text has no quotes if it cannot be taken for anything else."""
    if isinstance(value, str):
        shown, rest = _cut_text(value, cut)
        return (shown if _is_plain(shown) else escaped(json.dumps(shown, ensure_ascii=False))) + rest
    return escaped(json.dumps(value, ensure_ascii=False))


def shortened(text: str, most: int) -> str:
    """Cut a text to a number of characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def cut_line(text: str, cut: Cut = WHOLE) -> str:
    """Return a text on one line, without quotes."""
    shown, rest = _cut_text(text, cut)
    return escaped(shown) + rest


def _rest(number: int, indent: int, cut: Cut, noun: str) -> Iterator[str]:
    if cut.items is not None and (left := number - cut.items) > 0:
        yield f"{' ' * indent}… and {left} {noun}{'' if left == 1 else 's'} more"


def _cut_text(text: str, cut: Cut) -> tuple[str, str]:
    """Return the beginning of a text, and a remark on its length if it was cut."""
    if cut.characters is None or len(text) <= cut.characters:
        return text, ""
    return text[: cut.characters], f"… ({len(text):,} characters)"


def _entry_lines(label: str, value: Any, indent: int, cut: Cut) -> Iterator[str]:
    margin = " " * indent
    if isinstance(value, str) and _is_block(value[: (cut.characters or len(value)) * 2]):
        lines = value.split("\n")
        yield f"{margin}{label} |"
        for line in islice(lines, cut.items):
            yield f"{margin}  {cut_line(line, cut)}".rstrip()
        yield from _rest(len(lines), indent + 2, cut, "line")
    elif isinstance(value, (dict, list)) and value and not (isinstance(value, list) and _is_inline(value, indent)):
        yield f"{margin}{label}"
        yield from value_lines(value, indent + 2, cut)
    else:
        yield f"{margin}{label} {inline(value, cut)}"


def _is_inline(value: Sequence[Any], indent: int) -> bool:
    if len(value) > limits.INLINE_WIDTH or any(isinstance(item, (dict, list)) for item in value):
        return False
    return len(inline(value)) + indent <= limits.INLINE_WIDTH


def _is_plain(text: str) -> bool:
    return (
        text == text.strip()
        and text != ""
        and escaped(text) == text
        and not text.startswith(_SYNTAX_AT_START)
        and not _LOOKS_LIKE_JSON.match(text)
    )


def _is_block(text: str) -> bool:
    lines = text.split("\n")
    return len(lines) > 1 and all(escaped(line) == line for line in lines)


def _key(key: str, cut: Cut) -> str:
    shown, rest = _cut_text(key, cut)
    return (shown if _is_plain(shown) and ": " not in shown else escaped(json.dumps(shown, ensure_ascii=False))) + rest


# Rendering: calls, findings and simulations as lines for people.
#
# Every line is plain text but for the colours of headings; `output` takes those away where they do not belong.


_COLOURS: Final = {
    "completed": "green",
    "done": "green",
    "held": "magenta",
    "unknown": "magenta",
    "failed": "red",
    "cancelled": "red",
    "skipped": "yellow",
    "running": "cyan",
    "paused": "yellow",
    "scheduled": "yellow",
}
_OF_INSTANCES: Final = ("completed", "running", "held", "paused", "scheduled", "cancelled", "failed", "deleted")
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60))
NOT_TAKEN: Final = "not taken"
"""The status that people are shown for calls that were skipped because another branch was taken (`skipped` in JSON)."""
_ORDER: Final = ("waiting", "held", "unknown", "running", "done", "sent", "latent", NOT_TAKEN, "skipped", "failed")


def status_word(status: str) -> str:
    """Return a status in its colour."""
    return click.style(status, fg=_COLOURS.get(status), bold=True)


def heading(text: str) -> str:
    """Return a bold heading, such as the name of an instance."""
    return click.style(escaped(text), bold=True)


def counts_line(counts: Mapping[str, int], total: int | None = None) -> str:
    """`88 calls: 70 done, 10 skipped`, the statuses in the order of a call's life; of more calls in `total`
    `88 of 100 calls: …`.
    """
    known = [status for status in _ORDER if counts.get(status)]
    others = [status for status in counts if status not in _ORDER]
    shown = sum(counts.values())
    listed = ", ".join(f"{counts[status]} {status}" for status in (*known, *others))
    some = f"{shown} of " if total is not None and total != shown else ""
    return some + counted(shown if total is None else total, "call") + (f": {listed}" if listed else "")


def instances_line(statuses: Mapping[str, str]) -> str:
    """`200 instances: 195 completed, 5 failed (⑤, ⑦)`; those are named that failed, a few of many."""
    counts = Counter(statuses.values())
    listed = ", ".join(f"{counts[status]} {status}" for status in _OF_INSTANCES if counts[status])
    failed = [instance for instance, status in statuses.items() if status == "failed"]
    return f"{counted(len(statuses), 'instance')}: {listed}" + (f" ({_few(failed)})" if failed else "")


def background_line(background: Mapping[str, int], run: str | None = None) -> str:
    """Count the calls that were sent and forgotten, and name the command that lists those that failed."""
    listed = ", ".join(f"{background[how]} {how}" for how in ("outstanding", "done", "dead") if background[how])
    remedy = f": acts dead list --run {run}" if background["dead"] and run is not None else ""
    return f"in the background: {listed}{remedy}"


def counted(number: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def sight_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield who can see a place, as `acts check --who-sees` prints it."""
    yield heading(f"sees {document['path']}") + ("" if document["direct"] else "  no call")
    if document["note"] is not None:
        yield f"  {escaped(document['note'])}"
    yield from _sights(document["direct"])
    if document["derived"]:
        yield heading("sees what was made from it")
        yield from _sights(document["derived"])
    if (model := document.get("model")) is not None:
        name = escaped(model["name"]) if model["name"] is not None else "the configured model"
        tools = ", ".join(map(escaped, model["passes_to"])) or "nothing"
        how = "is shown to a model" if model["shown"] else "is shown to a model by path, schema and size"
        yield f"{heading(how)}  {name}, which may pass it to {tools}"


def reach_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a model can do by a request, as `acts check` prints it."""
    tools = document["tools"]
    calls = f"at most {counted(document['calls'], 'call')} and {counted(document['requests'], 'request')} to models"
    yield f"{click.style('valid', fg='green', bold=True)}  a request: {counted(len(tools), 'tool')}, {calls}"
    yield f"{heading('first request')}  {counted(document['first_request_bytes'], 'byte')}"
    spent = [counted(document["tokens"], "token")] if document["tokens"] is not None else []
    spent += [f"{document['money']:g} USD"] if document["money"] is not None else []
    if spent:
        yield f"{heading('all requests')}  at most {' and '.join(spent)}"
    if document["unenforced"] is not None:
        yield f"{heading('not enforced')}  the provider cannot say the schema: {escaped(document['unenforced'])}"
    for tool in tools:
        code = " or ".join(f"{each['executor']} {escaped(each['name'])}" for each in tool["code"])
        places, scopes = ("anything" if tool[key] is None else ", ".join(tool[key]) for key in ("writes", "sees"))
        yield f"{heading(escaped(tool['tool']))}  {code}; writes {escaped(places) or 'nothing'}; " + (
            f"sees {escaped(scopes) or 'its parameters alone'}"
        )


_KINDS: Final = {"activity": "code", "delegate": "a delegate in code", "loop": "a loop: its model chooses calls"}


def workflow_lines(name: str, document: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a workflow needs, gives, costs and can reach, as `acts check NAME` prints it."""
    yield f"{heading('workflow')}  {escaped(name)}"
    needs, gives, costs = document["needs"], document["gives"], document["costs"]
    yield f"{heading('needs')}  {'' if needs['schema'] is not None else 'nothing that it declares'}".rstrip()
    schema = needs["schema"] if isinstance(needs["schema"], dict) else {}
    required = schema.get("required", ())
    for key, one in schema.get("properties", {}).items():
        yield f"  {escaped(key)}  {_schema_text(one)}{'' if key in required else '  (may be left out)'}"
    if needs["schema"] is not None and not schema.get("properties"):
        yield f"  {_schema_text(needs['schema'])}"
    result = "the state that its calls leave" if gives["output"] is None else _schema_text(gives["output"])
    yield f"{heading('gives')}  {result}" + ("" if gives["schema"] is None else f"  {_schema_text(gives['schema'])}")
    yield f"{heading('costs')}  {'; '.join(_costs(costs))}"
    yield f"{heading('reaches')}  {'' if document['reaches'] else 'nothing'}".rstrip()
    for one in document["reaches"]:
        yield f"  {escaped(one['name'])}  {', '.join(_reached(one))}"


def _schema_text(value: Any) -> str:
    from ...protocol.errors import shortened

    return escaped(shortened(json.dumps(value, ensure_ascii=False), limits.MOST_CHARACTERS))


def _costs(costs: Mapping[str, Any]) -> Iterator[str]:
    yield f"at most {counted(costs['calls'], 'call')} and {counted(costs['requests'], 'request')} to models"
    if costs["per_element"]:
        yield "of a call with _each one was counted: it runs for each element of a list"
    if costs["recursive"]:
        yield "a workflow calls itself, and was counted once: ACTS_LIMIT_CHILD_DEPTH ends that"
    elif costs["levels"]:
        yield f"child runs {counted(costs['levels'], 'level')} deep"
    if costs["limits"]:
        yield "config: " + ", ".join(f"{key} {value}" for key, value in costs["limits"].items())


def _reached(one: Mapping[str, Any]) -> Iterator[str]:
    yield f"{_KINDS.get(one['by'], 'a ' + one['by'])}"
    yield counted(one["calls"], "call")
    if one["effects"]:
        yield "with effects"
    if one["untrusted"]:
        yield f"untrusted ({escaped(', '.join(one['untrusted']))})"
    if one["servers"]:
        yield f"server {escaped(', '.join(one['servers']))}"
    if one["held"]:
        yield "held until a person decides"


def finding_line(finding: Finding) -> str:
    """Return a finding on one line: severity, code, place, message, remedy."""
    severity = click.style(finding.severity, fg="yellow" if finding.severity == "warning" else None)
    where = f"{escaped(finding.pointer)}: " if finding.pointer is not None else ""
    remedy = f"; {escaped(finding.remedy)}" if finding.remedy is not None else ""
    return f"{severity} {finding.code}: {where}{escaped(finding.message)}{remedy}"


def simulation_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a simulation: the values at the end, what would not run, and what each branch leaves out."""
    yield heading("simulated") + f"  {counts_line(Counter(call['status'] for call in document['calls']))}"
    yield from data_lines("global", document["global"])
    shown = list(document["instances"].items())[: limits.SHOWN_INSTANCES]
    for instance, kinds in shown:
        yield from data_lines(instance, kinds)
    if (left := len(document["instances"]) - len(shown)) > 0:
        yield f"… and {counted(left, 'instance')} more: --json prints all"
    yield from calls_lines("failed", document["calls"])
    yield from calls_lines("skipped", document["calls"])
    tools = {call["index"]: call["tool"] for call in document["calls"]}
    if document["branches"]:
        yield heading("branches")
    for branch in document["branches"]:
        skipped = ", ".join(call_name(index, tools[index]) for index in branch["skipped"]) or "nothing"
        chooser = call_name(branch["call"], tools[branch["call"]])
        yield f"  {chooser} writes {escaped(branch['alternative'])}  →  skips {skipped}"
    left_out = document["left_out"]
    if left_out["instances"]:
        yield f"{counted(left_out['instances'], 'instance')} more: not simulated, only the first ones are"
    if left_out["alternatives"]:
        yield f"{counted(left_out['alternatives'], 'alternative')} more: not tried, only the first ones are"
    if document["unfit"]:
        yield f"no value could be made up for the _output of {', '.join(map(escaped, document['unfit']))}"
    if any(call["status"] in ("failed", "skipped") for call in document["calls"]):
        yield "all results are made up from the schemas: on real ones calls may end otherwise"


def call_name(index: int, tool: str) -> str:
    """Return the name of a call in all output."""
    return f"{index} {escaped(tool)}"


def _sights(sights: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for sight in sights:
        named = "" if sight["name"] == sight["tool"] else f" {escaped(sight['name'])}"
        call, how = call_name(sight["index"], sight["tool"]), escaped(", ".join(sight["how"]))
        yield f"  {call} ({sight['executor']}{named}): {how}"


def data_lines(name: str, kinds: Mapping[str, Any], cut: Cut = WHOLE) -> Iterator[str]:
    """Yield what a reader sees, under its name; nothing for a reader that sees nothing."""
    filled = {kind: value for kind, value in kinds.items() if value not in ({}, None)}
    if filled:
        yield heading(name)
        yield from value_lines(filled, 2, cut)


def calls_lines(
    status: str, calls: Iterable[Mapping[str, Any]], most: int | None = None, cut: Cut = WHOLE
) -> Iterator[str]:
    """Yield the calls of one status with their cause, `most` at most; one line for a call of many instances."""
    alike: dict[tuple[int, str, str], list[str]] = {}
    for call in calls:
        if call["status"] == status:
            key = (call["index"], call["tool"], _cause(call, cut))
            alike.setdefault(key, []).append(call["instance"] or "global")
    if alike:
        yield status_word(status)
    for (index, tool, cause), instances in islice(alike.items(), most):
        yield f"  {call_name(index, tool)} ({_few(instances)})" + (f": {cause}" if cause else "")
    if most is not None and len(alike) > most:
        left = sum(map(len, islice(alike.values(), most, None)))
        yield f"  … and {counted(left, f'{status} call')} more: --all"


class Failures:
    """Failed calls of many instances, counted by tool and type of error, with an example of each kind."""

    def __init__(self) -> None:
        self._counts = Counter[tuple[str, str]]()
        self._examples: dict[tuple[str, str], dict[str, Any]] = {}

    def add(self, tool: str, error: Mapping[str, Any], instance: str | None) -> None:
        """Take in a failed call, with its error as JSON."""
        kind = (tool, str(error.get("type")))
        self._counts[kind] += 1
        self._examples.setdefault(kind, {"instance": instance, "message": str(error.get("message"))})

    def to_list(self) -> list[dict[str, Any]]:
        """Write the kinds as JSON, the most frequent first."""
        return [
            {"tool": tool, "type": type_, "count": count, "example": self._examples[tool, type_]}
            for (tool, type_), count in self._counts.most_common()
        ]

    def lines(self, most: int | None = limits.PROGRESS_MOST, cut: Cut = SHORT) -> Iterator[str]:
        """Yield the kinds for people, the most frequent first."""
        kinds = self.to_list()
        if kinds:
            yield status_word("failed")
        for kind in kinds[:most]:
            example, name = kind["example"], f"{escaped(kind['tool'])} {escaped(kind['type'])}"
            where = escaped(example["instance"] or "global")
            yield f"  {name}: {counted(kind['count'], 'call')}, such as {where}: {cut_line(example['message'], cut)}"
        if left := len(kinds) - len(kinds[:most]):
            yield f"  … and {counted(left, 'kind')} more: --all"


def version_lines(calls: Iterable[Mapping[str, Any]], most: int = 5) -> Iterator[str]:
    """Yield the tools that ran in more than one version of their code, with the workers."""
    known: dict[str, dict[str, str]] = {}
    for call in calls:
        if call.get("version") is not None:
            known.setdefault(call["tool"], {}).setdefault(call["version"], call["worker"])
    several = {tool: versions for tool, versions in known.items() if len(versions) > 1}
    for tool, versions in islice(several.items(), most):
        listed = [f"{escaped(version)} ({escaped(worker)})" for version, worker in versions.items()]
        yield f"  {len(versions)} versions of {escaped(tool)}: {', '.join(listed[:most])}"


def change_lines(changes: Mapping[str, Any], cut: Cut = SHORT) -> Iterator[str]:
    """Yield what a person changed of a held call, old and new: `/amount: 90 → 10`."""
    for change in changes.get("parameters", ()):
        old, new = (_value(change[name], cut) if name in change else "nothing" for name in ("old", "new"))
        yield f"{escaped(change['pointer'])}: {old} → {new}"
    if (scopes := changes.get("scopes")) is not None:
        old, new = (", ".join(map(escaped, scopes[name])) or "none" for name in ("old", "new"))
        yield f"scopes: {old} → {new}"
    for call in changes.get("calls", ()):
        yield f"in its place: {_value(call, cut)}"


def _value(value: Any, cut: Cut) -> str:
    return cut_line(json.dumps(value, ensure_ascii=False), cut)


def timing_lines(calls: Iterable[Mapping[str, Any]], most: int | None = None) -> Iterator[str]:
    """Yield when calls began, waited and ran, the slowest first, `most` at most."""
    timed = [call for call in calls if (call.get("timing") or {}).get("began") is not None]
    timed.sort(key=lambda call: call["timing"]["seconds"], reverse=True)
    for call in timed[:most]:
        name = f"{call_name(call['index'], call['tool'])} ({escaped(call['instance'] or 'global')})"
        began = datetime.fromisoformat(call["timing"]["began"]).astimezone()
        clock = began.isoformat(timespec="milliseconds")[11:23]
        worker = [f"by {escaped(call['worker'])}"] if call["worker"] is not None else []
        yield f"{clock}  {name}: {', '.join((*timing_words(call['timing']), *worker))}"
    if (left := len(timed) - len(timed[:most])) > 0:
        yield f"… and {counted(left, 'call')} more: --all, --limit"
    if not timed:
        yield "no call has ended whose time at work the log has"


def timing_words(timing: Mapping[str, Any]) -> list[str]:
    """List what is known of a call's time: `3 ms`, `waited 1.2 s`, `2 attempts`."""
    took, waited, attempts = timing["seconds"], timing["waited_seconds"], timing["attempts"]
    return [
        *([_span(took)] if took is not None else []),
        *([f"waited {_span(waited)}"] if waited else []),
        *([counted(attempts, "attempt")] if attempts is not None and attempts > 1 else []),
    ]


def _span(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:,.1f} s"


def _few(instances: Sequence[str]) -> str:
    """Name the first five instances."""
    from ...protocol.errors import some_of

    return some_of(instances, 5, escaped)


def _cause(call: Mapping[str, Any], cut: Cut) -> str:
    if call["error"] is not None:
        return cut_line(f"{call['error'].get('type')}: {call['error'].get('message')}", cut)
    reason = cut_line(call["reason"] or "", cut)
    return ", ".join(filter(None, ("stale" if call.get("stale") else "", reason)))


def cost_line(cost: Mapping[str, Any] | None) -> str:
    """Return the cost of models: `0.0123 USD, 1234 tokens in 3 requests`; an empty text if no usage was reported."""
    if cost is None or cost["tokens"] == cost.get("estimated", 0):
        return ""
    money = f"{cost['money']} {cost['currency']}, " if cost["money"] is not None else ""
    return f"{money}{counted(cost['tokens'], 'token')} in {counted(cost['requests'], 'request')}"


def span(seconds: float) -> str:
    """`3 s`, `5 m`, `2 h`, `4 d`."""
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def size_words(size: int) -> str:
    """`512 bytes`, `3.4 kB`, `56 MB`: in powers of 1,000."""
    if size < 1000:
        return counted(size, "byte")
    power = min(4, (len(str(size)) - 1) // 3)
    number = size / 1000**power
    return f"{number:.1f} {'kMGT'[power - 1]}B" if number < 10 else f"{number:.0f} {'kMGT'[power - 1]}B"


@contextmanager
def in_background(work: Callable[[threading.Event], None], name: str) -> Iterator[None]:
    """Run `work` in a thread with this name while the block lasts; the event that it gets is set at the end."""
    is_over = threading.Event()
    threading.Thread(target=work, args=(is_over,), name=name, daemon=True).start()
    try:
        yield
    finally:
        is_over.set()
