"""The questions that a page asks about runs, and the answers as JSON: the one entry for the file and for the live
server.

| address | answer |
|---|---|
| `runs` | the list of the runs (`status`, `name`, `tag`, `search`, `limit`, `after`) |
| `workflows` | the workflows of the operator's folders (`search`, `after`) |
| `workflow` | one of them: what it needs, gives, costs and can reach (`name`) |
| `runs/RUN` | one run at a glance |
| `runs/RUN/plan` | its calls in layers, with counts, edges and a drawing (`tick`) |
| `runs/RUN/calls/INDEX` | one call: how it was written, its errors, its instances (`status`, `after`) |
| `runs/RUN/instances` | its instances (`status`, `search`, `after`) |
| `runs/RUN/instance` | one of them, or without `name` what is global |
| `runs/RUN/place` | a value (`path`, `instance`, `at`) |
| `runs/RUN/log` | the moments that an instance sees, or the global ones, with values (`instance`, `after`, `at`) |
| `runs/RUN/conversation` | a loop (`tick`) |
| `runs/RUN/sent` | what a call was given (`call`) |
| `runs/RUN/held` | what waits for a person |
| `runs/RUN/questions` | what of that is asked together |
| `runs/RUN/rules` | the rules that let calls start without a question |
| `runs/RUN/audit` | who did what to it (`after`) |

No answer is much above a megabyte. Lists go by pages: `next` is what to give as `after`, null at the end. An answer for
which the log is counted takes about a second at most: `reading` says how far it has come, and to ask again.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import islice
from threading import Lock
from typing import Any, Final, NoReturn, get_args

from redis import Redis

from ...broker_config import Settings
from ...protocol import Problem, Rejected
from ...protocol.calls.declarations import input_schema
from ...protocol.engine.loop import Stage
from ...protocol.plan.submission import workflow_calls
from .. import limits
from ..client.control import Control, LoopControl
from ..client.deployments import RunIndex
from ..client.people import People, PlanControl
from ..client.results import Descendants, Result, RunStatus, run_status, status_of
from ..client.undoing import undo_runs
from ..errors import BadQuery, NoSuchAnswer, WorkerError
from ..runner.checking import Checker
from ..store.connections import redis_errors
from ..store.entries import read_entry
from ..store.held_calls import HeldCall, questions, read_held
from ..store.keys import ENDED_STATUSES, LOOP
from ..store.run_store import RunStore
from ..store.scripts import iso_date, server_ms
from .instances import call, instance, instances, place
from .opened import OpenedRun, Query, RunCounters, audit, log, shown, within
from .sent import conversation, plan, sent

# A run at a glance, the list of the runs, what waits for a person: any number of instances costs the same.

_STATUSES: Final = get_args(RunStatus)


def runs(redis: Redis, settings: Settings, query: Query, *, owner: str | None = None) -> dict[str, Any]:
    """The answer `runs`: the newest first, with an `owner` its own, `limit` at most. Each word of `search` is part of
    an id, a name or a tag; `tag` are tags that a run has, one a line. `away` says which servers' runs are left out.
    """
    status, search, after = query.text("status"), query.text("search"), query.text("after")
    name, limit = query.text("name"), query.number("limit")
    tags, words = set((query.text("tag") or "").splitlines()), (search or "").casefold().split()
    most = limits.PAGE_RUNS_AT_ONCE if limit is None else min(limit, limits.PAGE_RUNS_AT_ONCE)
    if status is not None and status not in _STATUSES:
        raise BadQuery(f"status={status[:100]!r} is not one of {', '.join(_STATUSES)}")
    wanted: RunStatus | None = run_status(status) if status is not None else None
    found: list[dict[str, Any]] = []
    before_ms, last_seen = _cursor(after) if after is not None else (None, None)
    looked_at, last, away = 0, None, list[str]()
    for summary in RunIndex(redis, settings.key_prefix, owner=owner).runs(left_out=away.append):
        submitted_ms = round(summary.submitted.timestamp() * 1000)
        if before_ms is not None and submitted_ms >= before_ms:
            if submitted_ms == before_ms and summary.run == last_seen:
                before_ms = None  # what follows comes behind it, also what was submitted in the same millisecond
            continue
        before_ms = None
        if len(found) >= most or looked_at == limits.PAGE_MOST_LOOKED_AT:
            return {"runs": found, "next": last} | ({"away": away} if away else {})
        looked_at, last = looked_at + 1, f"{submitted_ms}:{summary.run}"
        texts = [text.casefold() for text in (summary.run, summary.name or "", *summary.tags)]
        is_found = all(any(word in text for text in texts) for word in words)
        is_found = is_found and name in (None, summary.name) and tags.issubset(summary.tags)
        if is_found and wanted in (None, summary.status):
            found.append(summary.to_dict())
    return {"runs": found, "next": None} | ({"away": away} if away else {})


def _cursor(after: str) -> tuple[int, str]:
    """When the last run of a page was submitted, and its id: ids that were given do not sort by time."""
    milliseconds, _, run = after.partition(":")
    if not (run and milliseconds.isascii() and milliseconds.isdigit() and len(milliseconds) <= 15):
        raise BadQuery(f"after={after[:100]!r} is not what an answer has given as `next`")
    return int(milliseconds), run


# Workflows: what each needs, gives, costs and can reach, before it runs (SPEC R9.4).


def workflows(checker: Checker, query: Query) -> dict[str, Any]:
    """The answer `workflows`, by name. `search` is part of a name."""
    search, after = (query.text("search") or "").casefold(), query.text("after") or ""
    found = list[dict[str, Any]]()
    for name, definition in checker.workflows(lambda name: name > after and search in name.casefold()):
        if len(found) == limits.PAGE_RUNS_AT_ONCE:
            return {"workflows": found, "next": found[-1]["name"]}
        schema = input_schema(definition.get("context", ())) if definition is not None else None
        keys = list(schema.get("properties", ())) if isinstance(schema, Mapping) else []
        calls = len(workflow_calls(definition)) if definition is not None else None
        found.append({"name": name, "needs": keys[: limits.MOST_NAMED], "calls": calls})
    return {"workflows": found, "next": None}


def workflow(checker: Checker, query: Query) -> dict[str, Any]:
    """The answer `workflow`; of one that cannot be run from here, why."""
    name = query.required("name")
    try:
        plan = checker.check(checker.workflow(name))
        found = checker.workflow_reach(name, plan).to_dict()
    except (Rejected, WorkerError) as error:
        problems = error.errors if isinstance(error, Rejected) else [Problem("", str(error))]
        told = [one.to_dict() for one in problems[: limits.MOST_ORDERS]]
        return {"name": name, "problems": shown(told)}
    lists = {"reaches": within(found.pop("reaches")), "findings": within(one.to_dict() for one in plan.findings)}
    return {"name": name, "problems": [], **{key: shown(part) for key, part in found.items()}, **lists}


def overview(run: OpenedRun) -> dict[str, Any]:
    """The answer `runs/RUN`."""
    state = run.state
    newest, instances, left_ms = run.store.extent()
    status = status_of(run.store)
    now_ms = server_ms(run.store.redis)
    submitted, finished = _ms(state.get("submitted")), _ms(state.get("finished"))
    return {
        "run": run.store.run,
        "name": state.get("name"),
        "tags": state["tags"].split("\n") if state.get("tags") else [],
        "status": status["status"],
        "submitted": iso_date(submitted) if submitted is not None else None,
        "at": status.get("at"),
        "priority": status.get("priority", 0),
        "waiting_for": status.get("waiting_for", []),
        "finished": iso_date(finished) if finished is not None else None,
        "duration_seconds": max(0, (finished or now_ms) - submitted) / 1000 if submitted is not None else None,
        "cost": json.loads(state["loop:cost"]) if "loop:cost" in state else None,
        "counts": status["calls"],
        "instances": instances,
        "log": newest,
        **_ending(run),
        "loop": run.definition.request is not None,
        "held": sum(status["calls"].get(each, 0) for each in ("held", "unknown")) + status.get("held_below", 0),
        "parent": status.get("parent"),
        "forked_from": status.get("forked_from"),
        "simulation": status.get("simulation", False),
        "background": status.get("background"),
        "unanswered": status.get("unanswered", []),
        "progress": status.get("progress", []),
        "rules": status.get("rules", 0),
        "expires": iso_date(now_ms + left_ms) if left_ms > 0 else None,
        "orders": _orders(run),
        "undo": _undo(run),
    }


def _undo(run: OpenedRun) -> list[str] | None:
    """The runs that take back what a run has done; None if none of its calls can be undone."""
    can_be = any(said.once for said in run.definition.trust.values())
    return [undoing.run for undoing in undo_runs(run.store)] if can_be else None


def _orders(run: OpenedRun) -> list[dict[str, Any]]:
    """Who has changed the status of a run, the newest last: submitted, forked, paused, resumed or cancelled it."""
    entries = [read_entry(*entry) for entry in run.store.status_entries(limits.MOST_ORDERS)]
    return [{"id": entry.id, **entry.audit.to_dict()} for entry in entries if entry.audit is not None]


def held(run: OpenedRun) -> list[dict[str, Any]]:
    """The answer `runs/RUN/held`: the plan that is to be approved, where there is one, and the calls that have waited
    longest; those of child runs are among them.
    """
    answers = [call.to_dict(run.store.run) for call in _held_calls(run)]
    parts = ("parameters", "scopes", "messages", "output")
    calls = within(each | {part: shown(each[part]) for part in parts if part in each} for each in answers)
    plan = _waiting_plan(run)
    return calls if plan is None else [plan | {"calls": shown(plan["calls"])}, *calls]


def _held_calls(run: OpenedRun) -> list[HeldCall]:
    found = [*islice(read_held(run.store.redis, run.store.keys), limits.MOST_HELD), *Descendants(run.store).held()]
    return sorted(found, key=lambda call: call.since_ms)[: limits.MOST_HELD]


def held_questions(run: OpenedRun) -> list[dict[str, Any]]:
    """The answer `runs/RUN/questions`: which of the calls in `runs/RUN/held` are asked about together (SPEC R16.8)."""
    answers = (question.to_dict(run.store.run) for question in questions(_held_calls(run)))
    return within(
        each | {"same": shown(each["same"]), "rows": [row | {"differs": shown(row["differs"])} for row in each["rows"]]}
        for each in answers
    )


def rules(run: OpenedRun) -> list[dict[str, Any]]:
    """The answer `runs/RUN/rules`, the oldest first (SPEC R16.8)."""
    return within(shown(rule) for rule in People(run.store, run.settings, _none).rules())


def _none() -> NoReturn:
    raise NotImplementedError("a page only reads")


def _waiting_plan(run: OpenedRun) -> dict[str, Any] | None:
    """The plan of a run in mode lazy that waits for its approval."""
    about = run.store, run.settings
    return PlanControl(*about, LoopControl(*about, _none), Control(*about, _none)).plan()


def _ending(run: OpenedRun) -> dict[str, Any]:
    """The output of a run that has ended, why it ended as it did, and how many ticks its loop has asked; the global
    lane and the loop's say it.
    """
    is_loop = run.definition.request is not None
    if run.status not in ENDED_STATUSES:
        stage, _, tick = run.state.get("loop", "new:0").partition(":")
        return {"output": None, "reason": None, "ticks": int(tick) + (stage != Stage.NEW) if is_loop else None}
    result = _result(run)
    reason = run.state.get("exceeded") or result.reason or run.state.get("output_fault") or run.state.get("missed")
    ticks = len(result.ticks) if result.ticks is not None else None
    return {"output": shown(result.output), "reason": reason, "ticks": ticks}


def output(run: OpenedRun) -> Any:
    """The whole output of a run; None where it has not ended, or has none."""
    return _result(run).output if run.status in ENDED_STATUSES else None


def _result(run: OpenedRun) -> Result:
    """The result of a run's global lane, and of its loop."""
    return run.result(run.entries(None, *([LOOP] if run.definition.request is not None else [])))


def _ms(field: str | None) -> int | None:
    return int(float(field)) if field is not None else None


_ANSWERS: Final[Mapping[str, Callable[[OpenedRun], Any]]] = {
    "": overview,
    "plan": plan,
    "instances": instances,
    "instance": instance,
    "place": place,
    "log": log,
    "conversation": conversation,
    "sent": sent,
    "held": held,
    "questions": held_questions,
    "rules": rules,
    "audit": audit,
}
_COUNTED: Final = frozenset({"plan", "calls", "instances", "place", "conversation"})
"""The answers for which the log is counted."""


class Page:
    """Answers about runs. Keep it while runs are shown; it is safe in threads."""

    def __init__(
        self, redis: Redis, settings: Settings, *, reading_seconds: float | None = limits.READING_SECONDS
    ) -> None:
        """`redis` is where the log is read, a replica too. Counting a log takes at most so long for each answer; None
        counts all of it.
        """
        self._redis = redis
        self._settings = settings
        self._reading_seconds = reading_seconds
        self._counters: OrderedDict[str, RunCounters] = OrderedDict()
        self._lock = Lock()
        self._checking = Lock()

    @cached_property
    def _checker(self) -> Checker:
        """Checks workflows; made for the first that is asked for, since it loads activities."""
        return Checker(self._settings)

    def answer(self, path: str, query: Mapping[str, str] | None = None, owner: str | None = None) -> Any:
        """The answer at an address, as JSON; with an `owner` only its own runs are there. Raises `NotPossibleNow` (what
        is asked for is not there), `BadQuery`, `InfrastructureError`.
        """
        asked = Query(query or {})
        match path.strip("/").split("/"):
            case [("workflows" | "workflow") as what] if owner is None:
                with self._checking:
                    return (workflows if what == "workflows" else workflow)(self._checker, asked)
            case ["runs"]:
                with redis_errors(self._settings):
                    return runs(self._redis, self._settings, asked, owner=owner)
            case ["runs", run]:
                return self._of(run, "", overview, asked, owner)
            case ["runs", run, what] if what in _ANSWERS and what:
                return self._of(run, what, _ANSWERS[what], asked, owner)
            case ["runs", run, "calls", index] if index.isascii() and index.isdigit() and len(index) <= 15:
                return self._of(run, "calls", lambda opened: call(opened, int(index)), asked, owner)
        raise NoSuchAnswer(f"there is nothing at {path[:200]!r}")

    def output(self, run: str) -> Any:
        """The whole output of a run. Raises as `answer`."""
        return self._of(run, "", output, Query({}))

    def find(self, text: str, owner: str | None = None, *, asker: str | None = None) -> str:
        """The id of the run that a text means (see `Client.find`): with an `owner` one of its own, and by a name or
        `latest` one of the `asker`. Raises `RunNotFound`, `AmbiguousRun`.
        """
        with redis_errors(self._settings):
            return RunIndex(self._redis, self._settings.key_prefix, owner=owner, asker=asker).find(text)

    def _of(self, run: str, what: str, make: Callable[[OpenedRun], Any], query: Query, owner: str | None = None) -> Any:
        with redis_errors(self._settings):
            store = RunStore.open(self._redis, self._settings.key_prefix, self.find(run, owner))
            state = store.require_state()
            counters = self._counters_of(store, state)
            opened = OpenedRun(store, self._settings, state, counters, query)
            if what not in _COUNTED:
                return make(opened)
            with counters.lock:
                counters.read_on(self._reading_seconds)
                return make(opened)

    def _counters_of(self, store: RunStore, state: Mapping[str, str]) -> RunCounters:
        """The counts of a run, kept for the runs shown last. An id that was used again is another run."""
        name = f"{store.run} {state.get('submitted')}"
        with self._lock:
            if (found := self._counters.get(name)) is None:
                found = self._counters[name] = RunCounters(store)
            self._counters.move_to_end(name)
            while len(self._counters) > 1 and (
                len(self._counters) > limits.PAGE_KEPT or self._lanes() > limits.PAGE_MOST_LANES
            ):
                self._counters.popitem(last=False)
            return found

    def _lanes(self) -> int:
        return sum(len(counters.lanes) for counters in self._counters.values())
