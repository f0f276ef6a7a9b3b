"""Rendering: values, results and plans as lines for people.

Values look like YAML: keys and indentation, texts as they are where that is unambiguous. Every line is plain text
but for the colours of headings; `output` takes those away where they do not belong.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from worker.cli.output import escaped

if TYPE_CHECKING:
    from protocol import Finding

INLINE_WIDTH: Final = 88
"""A list of scalars that is not longer stays on one line."""
SHOWN_INSTANCES: Final = 20
"""Instances shown on a terminal; a file or a pipe gets all."""

_COLOURS: Final = {
    "completed": "green",
    "done": "green",
    "failed": "red",
    "cancelled": "red",
    "skipped": "yellow",
    "running": "cyan",
    "paused": "yellow",
}
_ORDER: Final = ("waiting", "held", "running", "done", "sent", "latent", "skipped", "failed")
_LOOKS_LIKE_JSON: Final = re.compile(r"(?:null|true|false|-?\d[\d.eE+-]*)\Z")
_SYNTAX_AT_START: Final = tuple("\"'[]{}|>-#&*!%@`")


def status_word(status: str) -> str:
    """A status, in its colour."""
    return click.style(status, fg=_COLOURS.get(status), bold=True)


def heading(text: str) -> str:
    """The name of an instance, or of a part of the output."""
    return click.style(escaped(text), bold=True)


def counts_line(counts: Mapping[str, int]) -> str:
    """`88 calls: 70 done, 10 skipped`, the statuses in the order of a call's life."""
    known = [status for status in _ORDER if counts.get(status)]
    others = [status for status in counts if status not in _ORDER]
    total = sum(counts.values())
    listed = ", ".join(f"{counts[status]} {status}" for status in (*known, *others))
    return counted(total, "call") + (f": {listed}" if listed else "")


def counted(number: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def result_lines(document: Mapping[str, Any], *, most_instances: int | None = None) -> Iterator[str]:
    """A run as `acts run` prints it, from the document that `--json` prints."""
    calls = document["calls"]
    counts = Counter(call["status"] for call in calls)
    yield f"{status_word(document['status'])}  run {document['run']}, {counts_line(counts)}"
    if document.get("reason") is not None:
        yield f"  {escaped(document['reason'])}"
    if document["output"] is not None:
        yield from value_lines({"output": document["output"]})
    yield from _data_lines("global", document["global"])
    shown = list(document["instances"].items())[:most_instances]
    for instance, kinds in shown:
        yield from _data_lines(instance, kinds)
    if (left := len(document["instances"]) - len(shown)) > 0:
        yield f"… and {counted(left, 'instance')} more: --json prints all"
    yield from _calls_lines("failed", calls)
    yield from _calls_lines("skipped", calls)


def sight_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Who can see a place, as `acts check --who-sees` prints it."""
    yield heading(f"sees {document['path']}") + ("" if document["direct"] else "  no call")
    if document["note"] is not None:
        yield f"  {escaped(document['note'])}"
    yield from _sights(document["direct"])
    if document["derived"]:
        yield heading("sees what was made from it")
        yield from _sights(document["derived"])


def finding_lines(findings: Iterable[Finding]) -> Iterator[str]:
    """Findings, one a line: how severe, which, where, what, and what to do."""
    return (f"  {finding_line(finding)}" for finding in findings)


def finding_line(finding: Finding) -> str:
    """One finding."""
    severity = click.style(finding.severity, fg="yellow" if finding.severity == "warning" else None)
    where = f"{escaped(finding.pointer)}: " if finding.pointer is not None else ""
    remedy = f"; {escaped(finding.remedy)}" if finding.remedy is not None else ""
    return f"{severity} {finding.code}: {where}{escaped(finding.message)}{remedy}"


def simulation_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """A simulation: what would be there in the end, what would not run, and what each branch leaves out."""
    yield heading("simulated") + f"  {counts_line(Counter(call['status'] for call in document['calls']))}"
    yield from _data_lines("global", document["global"])
    shown = list(document["instances"].items())[:SHOWN_INSTANCES]
    for instance, kinds in shown:
        yield from _data_lines(instance, kinds)
    if (left := len(document["instances"]) - len(shown)) > 0:
        yield f"… and {counted(left, 'instance')} more: --json prints all"
    yield from _calls_lines("failed", document["calls"])
    yield from _calls_lines("skipped", document["calls"])
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


def value_lines(value: Any, indent: int = 0) -> Iterator[str]:
    """A JSON value as indented lines."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _entry_lines(f"{_key(key)}:", item, indent)
    elif isinstance(value, list) and value and not _is_inline(value, indent):
        for item in value:
            yield from _entry_lines("-", item, indent)
    else:
        yield " " * indent + inline(value)


def inline(value: Any) -> str:
    """A value on one line; a text without quotes where it cannot be taken for anything else."""
    if isinstance(value, str) and _is_plain(value):
        return value
    return escaped(json.dumps(value, ensure_ascii=False))


def shortened(text: str, most: int) -> str:
    """At most so many characters of a text."""
    return text if len(text) <= most else text[: most - 1] + "…"


def call_name(index: int, tool: str) -> str:
    """How a call is named everywhere."""
    return f"{index} {escaped(tool)}"


def _sights(sights: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for sight in sights:
        named = "" if sight["name"] == sight["tool"] else f" {escaped(sight['name'])}"
        call, how = call_name(sight["index"], sight["tool"]), escaped(", ".join(sight["how"]))
        yield f"  {call} ({sight['executor']}{named}): {how}"


def _data_lines(name: str, kinds: Mapping[str, Any]) -> Iterator[str]:
    filled = {kind: value for kind, value in kinds.items() if value not in ({}, None)}
    if filled:
        yield heading(name)
        yield from value_lines(filled, 2)


def _entry_lines(label: str, value: Any, indent: int) -> Iterator[str]:
    margin = " " * indent
    if isinstance(value, str) and _is_block(value):
        yield f"{margin}{label} |"
        yield from (f"{margin}  {line}".rstrip() for line in value.split("\n"))
    elif isinstance(value, (dict, list)) and value and not (isinstance(value, list) and _is_inline(value, indent)):
        yield f"{margin}{label}"
        yield from value_lines(value, indent + 2)
    else:
        yield f"{margin}{label} {inline(value)}"


def _is_inline(value: Sequence[Any], indent: int) -> bool:
    return not any(isinstance(item, (dict, list)) for item in value) and len(inline(value)) + indent <= INLINE_WIDTH


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


def _key(key: str) -> str:
    return key if _is_plain(key) and ": " not in key else escaped(json.dumps(key, ensure_ascii=False))


def _calls_lines(status: str, calls: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The calls of one status with their cause; the same call of many instances is one line."""
    alike: dict[tuple[int, str, str], list[str]] = {}
    for call in calls:
        if call["status"] == status:
            key = (call["index"], call["tool"], _cause(call))
            alike.setdefault(key, []).append(call["instance"] or "global")
    if alike:
        yield status_word(status)
    for (index, tool, cause), instances in alike.items():
        few = ", ".join(map(escaped, instances[:5])) + (f" and {len(instances) - 5} more" if len(instances) > 5 else "")
        yield f"  {call_name(index, tool)} ({few}): {cause}"


def _cause(call: Mapping[str, Any]) -> str:
    if call["error"] is not None:
        return escaped(f"{call['error'].get('type')}: {call['error'].get('message')}")
    return escaped(call["reason"] or "")
