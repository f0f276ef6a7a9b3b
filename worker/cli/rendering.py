"""Rendering: calls, findings and simulations as lines for people.

Every line is plain text but for the colours of headings; `output` takes those away where they do not belong.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

from .output import escaped
from .values import SHORT, WHOLE, Cut, cut_line, value_lines

if TYPE_CHECKING:
    from acts_celery.protocol import Finding

SHOWN_INSTANCES: Final = 20
"""Instances of a simulation that are shown."""

_COLOURS: Final = {
    "completed": "green",
    "done": "green",
    "held": "magenta",
    "failed": "red",
    "cancelled": "red",
    "skipped": "yellow",
    "running": "cyan",
    "paused": "yellow",
}
_OF_INSTANCES: Final = ("completed", "running", "held", "paused", "cancelled", "failed", "deleted")
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60))
_ORDER: Final = ("waiting", "held", "running", "done", "sent", "latent", "skipped", "failed")


def status_word(status: str) -> str:
    """A status, in its colour."""
    return click.style(status, fg=_COLOURS.get(status), bold=True)


def heading(text: str) -> str:
    """The name of an instance, or of a part of the output."""
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
    """How what was sent and not awaited stands, and where to look for what failed of a run that is kept."""
    listed = ", ".join(f"{background[how]} {how}" for how in ("outstanding", "done", "dead") if background[how])
    remedy = f": acts dead list --run {run}" if background["dead"] and run is not None else ""
    return f"in the background: {listed}{remedy}"


def counted(number: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def sight_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Who can see a place, as `acts check --who-sees` prints it."""
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
        yield f"{heading('is shown to a model')}  {name}, which may pass it to {tools}"


def reach_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """What a model can do by a request, as `acts check` prints it."""
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


def finding_line(finding: Finding) -> str:
    """A finding: how severe, which, where, what, and what to do."""
    severity = click.style(finding.severity, fg="yellow" if finding.severity == "warning" else None)
    where = f"{escaped(finding.pointer)}: " if finding.pointer is not None else ""
    remedy = f"; {escaped(finding.remedy)}" if finding.remedy is not None else ""
    return f"{severity} {finding.code}: {where}{escaped(finding.message)}{remedy}"


def simulation_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """A simulation: what would be there in the end, what would not run, and what each branch leaves out."""
    yield heading("simulated") + f"  {counts_line(Counter(call['status'] for call in document['calls']))}"
    yield from data_lines("global", document["global"])
    shown = list(document["instances"].items())[:SHOWN_INSTANCES]
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
    """How a call is named everywhere."""
    return f"{index} {escaped(tool)}"


def _sights(sights: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for sight in sights:
        named = "" if sight["name"] == sight["tool"] else f" {escaped(sight['name'])}"
        call, how = call_name(sight["index"], sight["tool"]), escaped(", ".join(sight["how"]))
        yield f"  {call} ({sight['executor']}{named}): {how}"


def data_lines(name: str, kinds: Mapping[str, Any], cut: Cut = WHOLE) -> Iterator[str]:
    """What a reader sees, under its name; nothing where that is nothing."""
    filled = {kind: value for kind, value in kinds.items() if value not in ({}, None)}
    if filled:
        yield heading(name)
        yield from value_lines(filled, 2, cut)


def calls_lines(
    status: str, calls: Iterable[Mapping[str, Any]], most: int | None = None, cut: Cut = WHOLE
) -> Iterator[str]:
    """The calls of one status with their cause; the same call of many instances is one line, of `most` at most."""
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


def version_lines(calls: Iterable[Mapping[str, Any]], most: int = 5) -> Iterator[str]:
    """The tools whose calls were carried out by more than one version of their code, and by which workers."""
    known: dict[str, dict[str, str]] = {}
    for call in calls:
        if call.get("version") is not None:
            known.setdefault(call["tool"], {}).setdefault(call["version"], call["worker"])
    several = {tool: versions for tool, versions in known.items() if len(versions) > 1}
    for tool, versions in islice(several.items(), most):
        listed = [f"{escaped(version)} ({escaped(worker)})" for version, worker in versions.items()]
        yield f"  {len(versions)} versions of {escaped(tool)}: {', '.join(listed[:most])}"


def change_lines(changes: Mapping[str, Any], cut: Cut = SHORT) -> Iterator[str]:
    """What a person changed of a held call, old and new: `/amount: 90 → 10`."""
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
    """When calls began, what they waited and took, one a line; those first that took longest, of `most` at most."""
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
    """What a call took, as far as that is known: `3 ms`, `waited 1.2 s`, `2 attempts`."""
    took, waited, attempts = timing["seconds"], timing["waited_seconds"], timing["attempts"]
    return [
        *([_span(took)] if took is not None else []),
        *([f"waited {_span(waited)}"] if waited else []),
        *([counted(attempts, "attempt")] if attempts is not None and attempts > 1 else []),
    ]


def _span(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:,.1f} s"


def _few(instances: Sequence[str]) -> str:
    """The first five of them."""
    return ", ".join(map(escaped, instances[:5])) + (f" and {len(instances) - 5} more" if len(instances) > 5 else "")


def _cause(call: Mapping[str, Any], cut: Cut) -> str:
    if call["error"] is not None:
        return cut_line(f"{call['error'].get('type')}: {call['error'].get('message')}", cut)
    reason = cut_line(call["reason"] or "", cut)
    return ", ".join(filter(None, ("stale" if call.get("stale") else "", reason)))


def cost_line(cost: Mapping[str, Any] | None) -> str:
    """What asking models has cost: `0.0123 USD, 1234 tokens in 3 requests`; money where a price is known. Nothing where
    no usage was reported.
    """
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
