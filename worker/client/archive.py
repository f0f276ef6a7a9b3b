"""Export a run to one file and import it under its id (SPEC R11.5); make a plan of its calls, a script of its
answers, and of its state what another run begins with; draw it.

The file has lines of JSON. The first holds the definition, the state and the result, as `acts show --json` prints it;
each of the others a file of the run (`file` is its digest, `content` is in base64), or an entry of its log: `id`,
`lane`, `message` if it has one, and its other fields as they are in Redis, in base64. Nothing of the run is lost.

An imported run is there to be read and forked; if it had not ended, it is cancelled. The last entry of its log says who
imported it; who did what before is taken from the file.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from redis import Redis
from redis.exceptions import RedisError

from ...broker_config import Settings
from ...protocol import Limits, Problem, Rejected
from ...protocol.calls.call import Call
from ...protocol.engine.events import Status
from ...protocol.engine.loop import Answered, RequestRecorded
from ...protocol.errors import json_text, shortened, some_of
from ...protocol.limits import MOST_LABELS, value_problems
from ...protocol.messages import DATA_TYPES, EVERYWHERE, TRUST, kind_of
from ...protocol.plan.config import SETTINGS
from ...protocol.references import Reference
from ..broker.attempts import CallId
from ..broker.messages import pack, unpack
from ..errors import NoLoop, NoSuchTick, RunNotFound
from ..limits import LONGEST_PATH, MOST_NAMED, RUN_MOST, limits_of
from ..registry.models import ModelRequest
from ..store.definition import FORMAT, SaidHere, StoredPlan, require_format, unpack_definition
from ..store.entries import ENTRY_ID, Entry, id_key, read_entry
from ..store.held_calls import audit_record
from ..store.keys import ENDED_STATUSES, LOOP, Condition, Field, Fields
from ..store.run_list import OWNER, RunList, owner_fields
from ..store.run_store import Head, RunStore
from ..store.run_writer import RunCopy, expire_runs
from ..store.scripts import server_ms
from ..store.state import End, LaneState, RunState
from .submitting import ID

if TYPE_CHECKING:
    from .call_results import CallResult
    from .results import Result
    from .run import Run

VERSION: Final = 1
INPUT: Final = "input"
_DESCRIBING: Final = ("schema", "description", "title")
_NOT_OF_PLANS: Final = frozenset({"mode", "ignore"})
"""Settings that a plan does not keep: its message has the mode, and findings are for its author."""
_NUMBERS: Final = frozenset({"format", "total", "submitted", "finished", "running", "bytes"})
"""The fields of the state that are numbers, as are the counts of calls by status (`n:…`)."""
_NUMBER: Final = re.compile(r"\d{1,13}\Z", re.ASCII)
"""A count, or a time in ms that a date can have."""
_NOT_TAKEN: Final = frozenset({"look", "promises_due", "parent", "imported", "sent", OWNER})
"""The fields of the state about work under way, or about other runs."""


def script_of(history: RunStore) -> str:
    """Make a script of the answers of a run's loop, for the scripted model. Raises `NoLoop`."""
    entries: list[dict[str, Any]] = []
    messages: list[Mapping[str, Any]] = []
    schema, request = None, ModelRequest([])
    for event in (event for entry in history.whole(history.lane(LOOP)) for event in entry.loop):
        if isinstance(event, RequestRecorded):
            messages, schema = [*messages, *event.messages], event.schema or schema
            request = ModelRequest(messages, schema, event.config)
        elif isinstance(event, Answered):
            answer = event.message["solution"]
            words = {"words": event.message["words"]} if "words" in event.message else {}
            entries.append(request.recorded({"answer": answer, **words}))
    if not entries:
        raise NoLoop("the run has no answers of a model: it is not a request, or no model was asked yet")
    return json_text(entries, indent=1)


def promise_in(entry: Entry) -> dict[str, Any] | None:
    """Make the promise of an input that was handed in with a schema: its value belongs to one run alone."""
    message = entry.message
    if message is None or entry.call is not None or "schema" not in message or message.get("type") not in DATA_TYPES:
        return None
    if kind_of(message) != INPUT:
        return None
    return {"type": INPUT, **{key: message[key] for key in (*_DESCRIBING, TRUST) if key in message}}


def plan_of(
    run: RunState,
    tick: int | None = None,
    warn: Callable[[str], None] | None = None,
    promises: Iterable[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Make a plan of a run's calls, to be run again: a submission of one plan message, with the tools and delegates
    that the calls name; with a `tick` only of the calls that it brought. Replaced calls are left out. It keeps the
    `promises`, the mode, what people decide on, and the settings that change what runs (SPEC R9.5).

    A call that every instance has is one call of the plan. `warn` is called with a text if there are global calls next
    to those of instances: a plan runs them in each. Raises `NoLoop`, `NoSuchTick`.
    """
    if tick is not None:
        if run.loop is None:
            raise NoLoop("the run is no request: it has no ticks")
        answered = len([each for each in run.loop.ticks if each.solution is not None])
        if tick >= answered:
            raise NoSuchTick(
                f"the run has {answered} ticks that were answered: there is no tick {tick}, the first is 0"
            )
    found: dict[int, Call] = {}
    for lane in run.lanes.values():
        ticks = lane.ticks if tick is not None else {}
        chosen = (call for index, call in lane.known.items() if tick is None or ticks.get(index) == tick)
        found |= {call.index: call for call in chosen if not _is_replaced(lane.end(call.index))}
    calls = [found[index] for index in sorted(found)]
    shared = [f"{call.index} ({call.tool})" for call in calls if call.instance is None and not call.gather]
    if warn is not None and shared and not run.definition.is_template and len(run.lanes) > 1:
        warn(
            "run once, globally, here, and once in each instance in the plan: "
            f"{some_of(shared, MOST_NAMED)}; "
            'a call that reads in all instances is given "_gather": true'
        )
    named = {name for call in calls for name in (call.tool, call.runner.name)}
    definition = run.definition
    config = _config_of(definition)
    declared = named.union(config.get("approve", ()))
    return {
        "context": [
            *_each_once(promises),
            {
                "type": "plan",
                **({"mode": "lazy"} if _is_lazy(definition) else {}),
                "calls": _templates([_with_sources(call) for call in calls], run.lanes.keys() - {None}),
            },
        ],
        "tools": {name: dict(tool.declaration) for name, tool in definition.tools.items() if name in declared},
        "delegates": dict(definition.delegates) if named & definition.delegates.keys() else {},  # they may name others
        **({"config": config} if config else {}),
    }


def _each_once(promises: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({pack(promise): promise for promise in promises}.values())


def _is_lazy(definition: StoredPlan) -> bool:
    """Say whether nothing of the run began before its plan, or each tick's plan, was approved."""
    return definition.is_lazy or (definition.request is not None and definition.config.get("mode") == "lazy")


def _config_of(definition: StoredPlan) -> dict[str, Any]:
    """Choose the settings of a run that change what a plan of its calls does."""
    config = {key: value for key, value in definition.config.items() if SETTINGS[key].in_submission}
    trust = {key: value for key, value in config.pop("trust", {}).items() if key != "show"}
    return {key: value for key, value in config.items() if key not in _NOT_OF_PLANS} | (
        {"trust": trust} if trust else {}
    )


def state_of(store: RunStore, said_here: SaidHere) -> list[dict[str, Any]]:
    """Make messages of a run's folded state, with its labels, from which another run begins: the global state, then
    what each instance has of its own (SPEC R3.6, R16.2). `said_here` is what this process says of the sources of calls.
    Raises `IsSimulation`.
    """
    run = RunState(replace(store.definition(), said_here=said_here), store.instances())
    run.definition.require_real(store.run)
    run.feed(store.entries())
    found: list[dict[str, Any]] = []
    for lane in run.lanes.values():
        where = {} if lane.instance is None else {"_instance": lane.instance}
        found += ({**message, **where} for message in lane.fold.carried(_STATE))
        labels = sorted(lane.fold.all_marks.labels)[:MOST_LABELS]
        if labels and not all(map(lane.fold.exists, _places_written(lane))):
            # Who has kept a value from being there may have had a say in all that is read in its place.
            found.append({"type": _STATE, "data": {}, TRUST: labels, **where})
    return found


_STATE: Final = "state"


def _places_written(lane: LaneState) -> Iterator[Reference]:
    """List the places in the state that the calls of a lane were to write."""
    outputs = (call.output for call in lane.known.values() if call.output is not None)
    return (place for output in outputs for place in output.references if place.kind == _STATE)


def _with_sources(call: Call) -> Mapping[str, Any]:
    """Write a call as it was submitted, with the sources of who chose it (SPEC R16.1)."""
    return {**call.raw, TRUST: sorted(call.prompt_labels)[:MOST_LABELS]} if call.prompt_labels else call.raw


def _is_replaced(end: End | None) -> bool:
    return end is not None and end.status is Status.SKIPPED and (end.reason or "").startswith("replaced by ")


def _templates(calls: Sequence[Mapping[str, Any]], instances: Set[str | None]) -> list[dict[str, Any]]:
    """Make templates of calls: one of those that every instance has, differing only in its name."""
    general = [{key: value for key, value in raw.items() if key != "_instance"} for raw in calls]
    forms = [(pack(each), raw.get("_instance")) for each, raw in zip(general, calls, strict=True)]
    named = defaultdict[bytes, dict[str | None, None]](dict)
    for form, instance in forms:
        named[form][instance] = None
    found: list[dict[str, Any]] = []
    for (form, instance), each, raw in zip(forms, general, calls, strict=True):
        if instance != EVERYWHERE and not named[form].keys() >= instances:
            found.append(dict(raw))
        elif instance == next(iter(named[form])):
            found.append(each)
    return found


def export_lines(redis: Redis, prefix: str, run: str, result: Mapping[str, Any]) -> Iterator[str]:
    """Write a run as the lines of a file. Raises `RunNotFound`, `RunBroken`, `OtherFormat`, `RedisError`."""
    store = RunStore.open(redis, prefix, run)
    head, state = store.head(), store.state()
    if not state:
        raise RunNotFound(run)
    require_format(int(state["format"]))
    yield json_text(
        {
            "acts_run": VERSION,
            "format": FORMAT,
            "run": run,
            "result": dict(result),
            "instances": list(head.instances),
            "state": state,
            "definition": _encoded(head.definition),
            "codes": dict(head.codes),
            "begun": store.begun(),
        }
    )
    for digest, content, _ in store.all_files():
        yield json_text({"file": digest, "content": _encoded(content)})
    for id_, raw in store.raw():
        entry: dict[str, Any] = {"id": id_.decode()}
        fields = dict(raw)
        if Field.LANE in fields:
            entry |= {"lane": _text(fields.pop(Field.LANE)), "before": _text(fields.pop(Field.BEFORE))}
        entry |= {"message": unpack(fields.pop(Field.MESSAGE))} if Field.MESSAGE in fields else {}
        others = {_text(key): _encoded(value) for key, value in fields.items()}
        yield json_text(entry | ({"fields": others} if others else {}))


def import_lines(redis: Redis, settings: Settings, lines: Iterable[str | bytes], read: Callable[[str], object]) -> str:
    """Write a run from its file; returns its id. If `read` cannot read the run then, the file is refused.

    Raises `Rejected`, and then nothing was written; `OtherFormat`, `RedisError`.
    """
    rows = iter(lines)
    head = _read(next(rows, b""), 1)
    if head.get("acts_run") != VERSION or not isinstance(run := head.get("run"), str) or not ID.match(run):
        raise _refused(1, f'this is no run that `acts export` has written ("acts_run": {VERSION})')
    require_format(head["format"] if isinstance(head.get("format"), int) else 0)
    prefix = settings.key_prefix
    if RunStore.open(redis, prefix, run).status() is not None or RunList(redis, prefix).submitted([run]):
        raise Rejected([Problem("", f"run {run} is here already: delete it before it is imported")])
    copy = RunCopy(redis, prefix, run)
    with copy.begun(server_ms(redis), settings):
        state = _write_head(copy, head)
        copy.append(_entries(copy, rows, settings))
        if state["status"] not in ENDED_STATUSES:
            state["status"] = "cancelled"
            copy.add({Field.STATUS: b"cancelled"})
        order = audit_record(settings, "imported")
        copy.add({Field.AUDIT: order.pack()})
        copy.finish(state | owner_fields(settings))
        _prove(run, read)
        expire_runs(redis, prefix, [run], settings.retention_seconds)
    order.write_line(run)
    return run


def read_whole(run: Run) -> None:
    """Read everything of a run, to see whether that raises anything."""
    run.status()
    for _ in run.export():
        pass
    result = run.result()
    ids = [entry.id for entry in run.log(audit=True, every=True)]
    for id_ in ids[:: max(1, len(ids) // 4)]:
        run.result(id_)
    for instance in (None, *result.instances)[:2]:
        for kind in result.data(instance):
            run.explain(kind, instance=instance)
            run.explain_absence(f"{kind}.none", instance=instance)


def _prove(run: str, read: Callable[[str], object]) -> None:
    """Read an imported run once, before anybody relies on it. Raises `Rejected`."""
    try:
        read(run)
    except RedisError:
        raise
    except Exception as error:
        text = f"it cannot be read as a run: {type(error).__name__}: {shortened(str(error))}"
        raise Rejected([Problem("", text)]) from error


def _write_head(copy: RunCopy, head: Mapping[str, Any]) -> dict[str, Any]:
    """Write what the first line says of a run besides its state; returns the state."""
    instances, state, codes, begun = (
        head.get("instances"),
        head.get("state"),
        head.get("codes", {}),
        head.get("begun", {}),
    )
    definition = _decoded(head.get("definition"), 1)
    try:
        unpack_definition(definition)
        for member, condition in begun.items():
            CallId.of_member(copy.run, member)
            if Condition.read(condition.encode()) is None:
                raise ValueError(f"{member!r} has no condition")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _refused(1, "its definition, or what had begun, cannot be read") from error
    if not isinstance(instances, list) or not all(isinstance(name, str) for name in instances):
        raise _refused(1, "its instances are no list of names")
    if not isinstance(state, dict) or not all(isinstance(value, str) for value in state.values()):
        raise _refused(1, "its state is no object of texts")
    if not {"status", "total", "submitted"} <= state.keys():
        raise _refused(1, "its state lacks a status, a total or the time of its submission")
    if odd := sorted(key for key, value in state.items() if _is_number(key) and not _NUMBER.match(value)):
        raise _refused(1, f"in its state {shortened(odd[0], 40)!r} is no number")
    if ("forked_from" in state) != ("forked_at" in state):
        raise _refused(1, "its state has one of forked_from and forked_at alone")
    if not isinstance(codes, dict) or not all(type(number) is int for number in codes.values()):
        raise _refused(1, "its codes are no object of numbers")
    copy.set_head(Head(definition, instances, codes))
    copy.set_calls(begun.items(), was_at_work=True)
    kept = {key: value for key, value in state.items() if key not in _NOT_TAKEN and not key.startswith("amending")}
    kept |= {} if "begun" in head else {"running": "0", "between": "0"}
    return {**kept, "format": FORMAT, "imported": "1", "remaining": "0"}


def _entries(copy: RunCopy, rows: Iterator[str | bytes], settings: Settings) -> Iterator[tuple[bytes, Fields]]:
    """Read the entries of a run's log from lines, and add its files. Raises `Rejected`."""
    limits = limits_of(settings)
    limits = replace(limits, depth=limits.depth + LONGEST_PATH)  # with room for the paths that values were written to
    most = left = int(settings.limit_run_bytes) + int(settings.limit_submission_bytes)
    last = (0, 0)
    for number, row in enumerate(rows, start=2):
        entry = _read(row, number)
        if "file" in entry:
            digest, content = _file(entry, number)
            left = _left(left - len(content), most, number)
            copy.add_file(digest, content)
            continue
        fields = _fields(entry, number, limits)
        left = _left(left - sum(map(len, fields.values())), most, number)
        id_, before, last = entry["id"], last, id_key(entry["id"])
        if last <= before:
            raise _refused(number, f"the entry {id_} comes after {before[0]}-{before[1]}: ids only grow")
        yield id_.encode(), fields


def _left(left: int, most: int, number: int) -> int:
    """Pass on how many bytes may still be written. Raises `Rejected` if that is less than nothing."""
    if left < 0:
        limits = "ACTS_LIMIT_RUN_BYTES and ACTS_LIMIT_SUBMISSION_BYTES"
        raise _refused(number, f"it holds more than the {most} bytes that a run may have ({limits})")
    return left


def _file(entry: Mapping[str, Any], number: int) -> tuple[str, bytes]:
    """Read a file's digest and content. Raises `Rejected`."""
    content = _decoded(entry.get("content"), number)
    digest = hashlib.sha256(content).hexdigest()
    if entry["file"] != digest:
        raise _refused(number, "a file's content does not match its digest")
    return digest, content


def _fields(entry: Mapping[str, Any], number: int, limits: Limits) -> Fields:
    """Read the fields of an entry as Redis has them. Raises `Rejected`."""
    others, id_ = entry.get("fields", {}), entry.get("id")
    if not isinstance(id_, str) or not isinstance(others, dict):
        raise _refused(number, "an entry has no id, or fields that are no object")
    lane = {Field.LANE: entry["lane"], Field.BEFORE: entry.get("before", "0-0")} if "lane" in entry else {}
    decoded = {key.encode(): _decoded(value, number) for key, value in others.items()}
    try:
        message = {Field.MESSAGE: pack(entry["message"])} if "message" in entry else {}
        given = {**lane, **decoded, **message}
        fields = {key: one if isinstance(one, bytes) else one.encode() for key, one in given.items()}
        if not fields:
            raise ValueError(id_)
        if not ENTRY_ID.match(id_) or not (0, 0) < id_key(id_) < (2**64, 0):
            raise ValueError(id_)
        read = read_entry(id_.encode(), fields)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise _refused(number, f"the entry {id_:.40} cannot be read") from error
    if problem := next(value_problems([read.message, getattr(read.event, "error", None)], limits), None):
        raise _refused(number, f"the entry {id_:.40} holds what no run does: {shortened(problem.message)}")
    if read.audit is not None and read.audit.actor.is_authenticated:  # so says the file, and nothing has shown it here
        return {**fields, Field.AUDIT: read.audit.by(read.audit.actor.name).pack()}
    return fields


def _read(row: str | bytes, number: int) -> dict[str, Any]:
    try:
        value = json.loads(row)
    except (ValueError, RecursionError) as error:
        raise _refused(number, "not JSON") from error
    if not isinstance(value, dict):
        raise _refused(number, "not an object")
    return value


def _is_number(key: str) -> bool:
    return key in _NUMBERS or key.startswith("n:")


def _refused(number: int, text: str) -> Rejected:
    return Rejected([Problem("", f"line {number}: {text}")])


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _decoded(value: Any, number: int) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise _refused(number, "what should be base64 is not") from error


# The picture of a run as a Mermaid flowchart: ticks, their calls and how these ended, child runs in their calls.

_STYLES: Final = {
    "failed": "stroke:#c00,stroke-width:2px",
    "held": "stroke:#c80,stroke-width:2px",
    "skipped": "stroke-dasharray:4 4",
}
"""The styles of nodes by the status of their calls, the worst first."""


def draw(result: Result, child: Callable[[str], Result | None] = lambda _: None) -> str:
    """The flowchart of a run; `child` gives the results of child runs, where they can be had."""
    lines = list(_run(result, "r", child))
    classes = {line.rpartition(" ")[2] for line in lines if line.startswith("class ")}
    used = [f"classDef {status} {style}" for status, style in _STYLES.items() if status in classes]
    return "\n".join(["flowchart TD", *(f"  {line}" for line in (*lines, *used))])


def _run(result: Result, name: str, child: Callable[[str], Result | None]) -> Iterator[str]:
    """The nodes of one run; their names begin with its own."""
    before: list[str] = []
    for tick in result.ticks or ():
        node = f"{name}t{tick.tick}"
        yield f'{node}(["tick {tick.tick}: {_label(tick.model or "model")}"])'
        yield from (f"{one} --> {node}" for one in before)
        before = yield from _calls([call for call in result.calls if call.tick == tick.tick], name, node, child)
        before = before or [node]
    if result.ticks is None:
        before = yield from _calls(result.calls, name, None, child)
    end = f"{name}end"
    output = "" if result.output is None else ": " + _label(json.dumps(result.output, ensure_ascii=False))
    yield f'{end}(["{_label(result.status)}{output}"])'
    yield from (f"{one} --> {end}" for one in before)


def _calls(
    calls: Sequence[CallResult], name: str, after: str | None, child: Callable[[str], Result | None]
) -> Generator[str, None, list[str]]:
    """The nodes of calls, those of all instances together; returns their names."""
    indexes = list(dict.fromkeys(call.index for call in calls))[:RUN_MOST]
    nodes = []
    for index in indexes:
        alike = [call for call in calls if call.index == index]
        node = f"{name}c{index}"
        nodes.append(node)
        worst = next((call.status for status in _STYLES for call in alike if call.status == status), alike[0].status)
        where = f" ×{len(alike)}" if len(alike) > 1 else f" {alike[0].instance}" if alike[0].instance else ""
        inside = child(alike[0].child) if alike[0].child is not None else None
        label = f"{index} {_label(alike[0].tool)}{_label(where)}<br/>{worst}"
        if inside is None:
            yield f'{node}["{label}"]'
        else:
            yield f'subgraph {node}["{label}"]'
            yield from _run(inside, f"{node}_", child)
            yield "end"
        if worst in _STYLES:
            yield f"class {node} {worst}"
        if after is not None:
            yield f"{after} --> {node}"
    return nodes


def _label(text: str) -> str:
    """A text that Mermaid takes for one, and short."""
    short = text if len(text) <= 60 else f"{text[:60]}…"
    return "".join(each if each.isalnum() or each in " .:,!?_-×" else f"#{ord(each)};" for each in short)
