"""Child runs: a delegate that declares tools is a loop of its own (SPEC R9.3, R13.10).

The runner of such a call writes the child down, with a log of its own and what the call's scopes and parameters give
it, and leaves. The child's end answers the call; no worker waits meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redis import Redis

from acts_celery.broker_config import Settings
from acts_celery.protocol import Plan, Rejected
from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.delegates import child_context, declares_tools
from acts_celery.protocol.calls.tools import Executor
from acts_celery.protocol.engine.costs import dollars_of
from acts_celery.protocol.engine.decisions import Failure, Start, Success
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.engine.loop_limits import LoopLimits
from acts_celery.protocol.language.files import digests, pictures_in
from acts_celery.protocol.language.messages import is_promise
from acts_celery.protocol.requests.results import result_schema
from acts_celery.worker.storage.audit import Actor, AuditRecord
from acts_celery.worker.storage.budgets import SPENT, Budget, left_of, sum_fields
from acts_celery.worker.storage.child_links import DELEGATE, PARENT, TRACE, Parent, budgets_of, child_id, result_of
from acts_celery.worker.storage.clock import server_ms
from acts_celery.worker.storage.definition import Definition
from acts_celery.worker.storage.history import History
from acts_celery.worker.storage.keys import ENDED, Keys
from acts_celery.worker.storage.loop_entries import loop_alarm
from acts_celery.worker.storage.owned_runs import note_child
from acts_celery.worker.storage.run_writer import RunWriter
from acts_celery.worker.wire.attempts import Attempt

from .checking import Checker, most_of


@dataclass(frozen=True, slots=True)
class Started:
    """A child run that answers a call."""

    run: str
    lanes: tuple[str, ...] = ()
    """Those to be published."""


class Children:
    """Starts the child runs of calls."""

    def __init__(self, redis: Redis, settings: Settings, checker: Checker) -> None:
        self._redis = redis
        self._settings = settings
        self._checker = checker
        self._writer = RunWriter(redis, settings)

    @staticmethod
    def answers(call: Call, definition: Definition) -> bool:
        """Whether a call is answered by a run of its own."""
        is_delegate = call.runner.executor is Executor.DELEGATE
        return is_delegate and declares_tools(definition.delegates.get(call.runner.name, {}))

    async def start(
        self, start: Start, attempt: Attempt, execution: Execution, definition: Definition
    ) -> Started | Success | Failure:
        """Start the run that answers a call, or take up the one that was started before. Raises `Conflict`,
        `RedisError`.
        """
        own = definition.delegates[start.call.runner.name]
        if alternatives := execution.alternatives(start.call):
            own = {**own, "schema": result_schema(own.get("schema", {}), alternatives)}
        given, labels = execution.scoped_messages(start.call), execution.labels_given(start.call)
        context = child_context(own.get("context", []), given, start.parameters, labels)
        return await asyncio.to_thread(self._start, attempt, start.call.runner.name, own, context, definition)

    def _start(
        self,
        attempt: Attempt,
        delegate: str,
        own: Mapping[str, Any],
        context: list[dict[str, Any]],
        definition: Definition,
    ) -> Started | Success | Failure:
        above, budgets, left = self._above(attempt.id.run, definition)
        most = self._settings.limit_child_depth
        depth = above.depth + 1 if above is not None else 1
        if depth > most:
            return Failure("TooDeep", f"child runs can be nested {most} deep, and not deeper (ACTS_LIMIT_CHILD_DEPTH)")
        keys, status = self._child(attempt)
        if status is not None and status in ENDED:
            return result_of(status, History(self._redis, keys).entries())
        if status is not None:
            return Started(keys.run)
        if spent := next((key for key, number in left.items() if number <= 0), None):
            return Failure("LimitReached", f"config.{spent} has nothing left for a child run")
        try:
            plan = self._plan(own, context, definition, left)
        except Rejected as rejected:
            return Failure("InvalidRequest", "; ".join(map(str, rejected.errors)))
        order = AuditRecord("submitted", Actor(f"call {attempt.id.idempotency_key}", "workers"))
        fields = Parent(attempt.id, attempt.number, depth, budgets).to_fields()
        fields |= {TRACE: attempt.place.pack(), DELEGATE: delegate}
        files = self._files(plan, Keys(keys.prefix, attempt.id.run))
        now_ms = server_ms(self._redis)
        note_child(self._redis, keys, attempt.id.run, now_ms)
        lanes = self._writer.write(plan, keys, now_ms, order, fields, files=files).lanes
        return Started(keys.run, tuple(lanes))

    def _above(self, run: str, definition: Definition) -> tuple[Parent | None, tuple[Budget, ...], dict[str, float]]:
        """Whose child the run is itself, what its child runs take from, and what is left for one now (SPEC R13.3)."""
        keys = Keys(self._settings.key_prefix, run)
        fields: Any = self._redis.hmget(keys.state, PARENT, *SPENT)
        above = Parent.read(fields[0])
        if definition.request is None:
            return above, (), {}
        budgets = budgets_of(run, LoopLimits.of(definition.config, most_of(self._settings)), *fields)
        taken: Any = self._redis.hmget(Keys(keys.prefix, budgets[-1].run).budget, sum_fields(budgets))
        left: dict[str, float] = {**left_of(budgets, taken)}
        if "money" in left:
            left["money"] = float(dollars_of(int(left["money"])))
        due: Any = self._redis.zscore(keys.leases, loop_alarm())
        if due is not None:
            left["seconds"] = (due - server_ms(self._redis)) / 1000
        return above, budgets, left

    def _files(self, plan: Plan, parent: Keys) -> dict[str, bytes]:
        """The files that a child may show: those that its context, and its delegates', name of its parent's, and the
        pictures of tools that it is given.
        """
        own = (each.get("context", ()) for each in plan.submission.delegates.values())
        messages = plan.context.messages
        named = list({*digests(messages, *own), *(digest for _, digest in pictures_in([*messages]))})
        found = dict[str, bytes]()
        for key in (parent.files, parent.pictures) if named else ():
            contents: Any = self._redis.hmget(key, named)
            found |= {digest: content for digest, content in zip(named, contents, strict=True) if content is not None}
        return found

    def _child(self, attempt: Attempt) -> tuple[Keys, str | None]:
        """The keys of the run that is to answer a call, and its status where it is there: an attempt before may have
        written it, whose worker was lost.
        """
        keys = Keys(self._settings.key_prefix, child_id(attempt.id, attempt.again))
        found: Any = self._redis.hget(keys.state, "status")
        return keys, found.decode() if found is not None else None

    def _plan(
        self, own: Mapping[str, Any], context: list[dict[str, Any]], definition: Definition, left: Mapping[str, float]
    ) -> Plan:
        """The child's request, checked. Raises `Rejected`. What a delegate declares of its input promises nothing: its
        model bridges the gap to what it is given (SPEC R9.2).
        """
        value = {
            "context": [message for message in context if not is_promise(message)],
            "schema": own.get("schema", {}),
            "tools": own.get("tools", {}),
            "delegates": definition.delegates,
            "config": child_config(definition.config, own.get("config") or {}, left, self._settings),
        }
        approved, operator = definition.config.get("approve", ()), definition.submitted_with
        return self._checker.check_submission(
            value, definition.delegates, allow=definition.allow, approved=approved, operator=operator
        )


def child_config(
    parent: Mapping[str, Any], own: Mapping[str, Any], left: Mapping[str, float], settings: Settings
) -> dict[str, Any]:
    """The settings of a child: its own, tightened by what its parent has left and what the operator allows."""
    config = {key: value for key, value in own.items() if value is not None}
    for key in ("calls", "tokens", "seconds", "money"):
        limits = [one for one in (config.get(key), left.get(key), most_of(settings).get(key)) if one is not None]
        if limits:
            config[key] = min(limits)
    if (ticks := most_of(settings)["ticks"]) is not None and "ticks" in config:
        config["ticks"] = min(config["ticks"], ticks)
    for key in ("model", "approve_seconds"):
        if key in parent:
            config.setdefault(key, parent[key])
    if approve := [*dict.fromkeys((*parent.get("approve", ()), *config.get("approve", ())))]:
        config["approve"] = approve
    return config
