"""Looking after runs: what was begun or published in them and not ended in time is published again (lua/sweep.lua).

It also ends the life of runs: when a run is over, its keys get their expiry.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any

from redis import Redis
from redis.exceptions import RedisError, ResponseError

from ...broker_config import Settings
from ...broker_config.tokens import signing_key
from ...protocol.engine.events import Failure
from .. import limits
from ..broker.attempts import Attempt, CallId, lost
from ..broker.consumer import Publisher
from ..broker.messages import Completion, TaskMessage, lane_task, rest_of, unpack_task, with_attempt
from ..errors import QueueRefused, RunNotFound, WorkerError
from ..process import count_refusal
from ..store.commits import DueRuns
from ..store.connections import PASSING, read_tokens
from ..store.definition import FORMAT
from ..store.held_calls import HeldCall, read_held
from ..store.keys import ENDED_STATUSES, Condition, Keys, awaiting_code
from ..store.living import SilentProcess, read_living
from ..store.run_list import Parent, result_of
from ..store.run_store import RunStore
from ..store.run_writer import discard_run, expire_runs
from ..store.scripts import UNREADABLE, Script, date_now, drop_entry, iso_date, readable, server_ms
from ..store.waiting import DeadLetter, DeadLetters
from .heartbeats import report_interval_seconds

if TYPE_CHECKING:
    import httpx


# Runs whose keys are broken: each is passed over with a line in the log, and the others are looked after.

logger = logging.getLogger(__name__)

BROKEN: tuple[type[Exception], ...] = (ResponseError, *UNREADABLE)
"""What is raised by keys that cannot be read, where it is none of `PASSING`."""


class BrokenRuns:
    """The runs whose keys are broken, as far as the log has said so already."""

    def __init__(self) -> None:
        self._runs: set[str] = set()

    @contextmanager
    def passing_over(self, run: str) -> Iterator[None]:
        """Pass a run over that is broken, or whose queue is refused. Raises what is wrong with the server instead."""
        try:
            yield
        except BROKEN as error:
            self.is_answer(run, error)
        except QueueRefused as error:
            logger.error("run %r: %s", run, error)

    def is_answer(self, run: str, answer: object) -> bool:
        """Whether that is an answer, and not an error of the run's own keys. Raises what is wrong with the server."""
        if not isinstance(answer, Exception):
            return True
        if not isinstance(answer, BROKEN) or isinstance(answer, PASSING):
            raise answer
        if run not in self._runs:
            self._runs.add(run)
            count_refusal("runs")
            logger.error("run %r is passed over, its keys are broken: %.200r", run, str(answer))
        return False


# The web hook: an address of the operator's is told what is held for a person (SPEC R14).
#
# What is to be told stands in the run (`pending_webhooks`), written in the commit that holds the call. The sweep takes
# what is due and hands it to a thread of this module, so no lane and no sweep waits for the address; should the process
# die, a later sweep takes it again. Told is what was answered with 2xx: so at least once, with the same `webhook-id`.
# What is decided meanwhile is not told any more.  Requests are signed as Standard Webhooks has it: HMAC-SHA256 over id,
# time and body. A body holds the run's id and what `acts held --json` prints, no more.


class HoldHook:
    """Tells one address. Made where `hold_webhook_url` is set."""

    def __init__(self, redis: Redis, settings: Settings) -> None:
        """Raises `WorkerError` where what sends the requests is not installed."""
        if find_spec("httpx") is None:
            raise WorkerError("ACTS_HOLD_WEBHOOK_URL takes another package: pip install 'acts-celery[hooks]'")
        assert settings.hold_webhook_url is not None
        assert settings.hold_webhook_secret is not None
        self._redis = redis
        self._prefix = settings.key_prefix
        self._url = settings.hold_webhook_url.get_secret_value()
        self._key = signing_key(settings.hold_webhook_secret.get_secret_value())
        self._due = DueRuns(redis, settings.key_prefix)
        self._threads = ThreadPoolExecutor(limits.HOOKS_AT_ONCE, thread_name_prefix="acts-hold-hook")
        self._lock = Lock()
        self._waiting: set[tuple[str, str]] = set()
        self._is_down = False
        self._client: httpx.Client | None = None

    @property
    def room(self) -> int:
        """Of how many calls more it can tell at present."""
        return max(0, limits.OVERDUE_MOST_WAITING - len(self._waiting))

    def tell(self, run: str, members: Iterable[str]) -> None:
        """Tell of held calls of a run; returns at once. What there is no room for a later sweep hands in again."""
        for member in members:
            with self._lock:
                if (run, member) in self._waiting or not self.room:
                    continue
                self._waiting.add((run, member))
            self._threads.submit(self._tell, Keys(self._prefix, run), member)

    def stop(self) -> None:
        """Begin nothing more; what is left is told by another process, or the next."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _tell(self, keys: Keys, member: str) -> None:
        try:
            self._tell_once(keys, member)
        except (RedisError, RunNotFound) as error:
            logger.warning("run %s: a held call will be sent to the web hook later: %s", keys.run, error)
        except Exception:
            logger.exception("run %s: the web hook could not be told of a held call", keys.run)
        finally:
            with self._lock:
                self._waiting.discard((keys.run, member))

    def _tell_once(self, keys: Keys, member: str) -> None:
        call = next(read_held(self._redis, keys, only=member), None)
        if call is None or self._post(call):
            self._redis.zrem(keys.pending_webhooks, member)
            return
        now = server_ms(self._redis)
        delay_ms = next_delay_ms(now - call.since_ms)
        self._redis.zadd(keys.pending_webhooks, {member: now + delay_ms}, xx=True)
        self._due.note_until(keys.run, delay_ms)

    def _post(self, call: HeldCall) -> bool:
        """Whether the address has taken it. The log says when it begins to refuse, and when it takes things again."""
        import httpx

        if self._client is None:  # a redirect would carry the body elsewhere
            self._client = httpx.Client(timeout=limits.OVERDUE_TIMEOUT_SECONDS, follow_redirects=False)
        id_, body = message_of(call)
        headers = signed_headers(self._key, id_, int(time.time()), body)
        try:
            with self._client.stream("POST", self._url, content=body, headers=headers) as answer:
                fault = "" if answer.is_success else f"it answers {answer.status_code}"
        except httpx.HTTPError as error:
            fault = type(error).__name__
        if fault and not self._is_down:
            logger.warning("the web hook does not take what is held: %s; it is tried again", fault)
        elif not fault and self._is_down:
            logger.warning("the web hook takes what is held again")
        self._is_down = bool(fault)
        return not fault


def next_delay_ms(age_ms: int) -> int:
    """How long to wait for the next attempt, where a call has been held so long: each waits as long as all before."""
    return int(min(max(limits.FIRST_DELAY_SECONDS * 1000, age_ms), limits.OVERDUE_LONGEST_DELAY_SECONDS * 1000))


def message_of(call: HeldCall) -> tuple[str, bytes]:
    """The id of a call's message, the same whenever it is sent, and its body."""
    id_ = hashlib.sha256(f"{call.id.idempotency_key} {call.entry}".encode()).hexdigest()[:32]
    told = {"type": "call.held", "timestamp": iso_date(call.since_ms), "data": {"run": call.id.run, **call.to_dict()}}
    return f"msg_{id_}", json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()


def signed_headers(key: bytes, id_: str, seconds: int, body: bytes) -> dict[str, str]:
    """The headers of Standard Webhooks."""
    signature = hmac.digest(key, f"{id_}.{seconds}.".encode() + body, "sha256")
    return {
        "content-type": "application/json",
        "webhook-id": id_,
        "webhook-timestamp": str(seconds),
        "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
    }


# What a sweep judges by.


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """How long what may be silent in one sweep, in milliseconds; the fields are those of the scripts' requests."""

    lease_ms: int
    """A call at work, or the driver of a lane."""
    published_ms: int
    """A published task, before it counts as lost where its queue has been consumed."""
    heard_ms: int
    """A worker that has taken a remote call's message, until it reports that."""
    report_ms: int
    """A worker between two reports that a sweep reads."""
    soon_ms: int
    """The time until the next sweep."""
    consumed_until: Mapping[str, int] = field(default_factory=dict)
    """For each queue the time before which everything published there was taken: a probe came out."""
    suspended: bool = False
    """Heartbeats may have been missed: nothing at work is declared lost."""

    @classmethod
    def of(cls, settings: Settings) -> Thresholds:
        """Those that follow from the settings."""
        lease, soon = settings.lease_seconds, settings.sweep_interval_seconds
        return cls(
            lease_ms=_ms(lease),
            published_ms=_ms(limits.PUBLISHED_SECONDS),
            heard_ms=_ms(lease * 2 / 3),
            report_ms=_ms(report_interval_seconds(settings) + soon),
            soon_ms=_ms(soon),
        )


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


# The outbox: what is sent and forgotten is kept in the log until it is done (SPEC R5.1, lua/outbox.lua).
#
# It is written by the commit that records a call as sent, so that nothing sent is ever lost. The sweep sends again what
# died with a worker and what is due to be tried again, also when the run has ended, and makes dead letters of the rest.


class Outbox:
    """Looks after the outboxes of runs."""

    def __init__(self, redis: Redis, publisher: Publisher, settings: Settings) -> None:
        self._redis = redis
        self._publisher = publisher
        self._settings = settings
        self._letters = DeadLetters(redis, settings)
        self._script = Script(redis, "outbox", "look_after", is_raw=True)
        self._end = Script(redis, "outbox", "take_dead")
        self._given_back = Script(redis, "outbox", "note_given_back")

    def sweep(self, run: str, thresholds: Thresholds) -> set[str]:
        """Send again what was lost or is due in a run.

        Returns the queues from which a probe is awaited.
        """
        keys = Keys(self._settings.key_prefix, run)
        request = {**asdict(thresholds), "most": limits.SENT_AT_ONCE, "limit_attempts": self._settings.limit_attempts}
        found = self._script(keys, request)
        for member in found["broken"]:
            drop_entry(keys.outbox, member, partial(self._remove, keys))
        if found["send"]:
            self._send(keys, found["send"])
        for member, number, failures, _, task in found["dead"]:
            failure = lost(number - failures - 1)
            try:
                self._letters.add(_letter(run, member, task, (failure.type, failure.message), number - 1))
            except UNREADABLE:
                drop_entry(keys.outbox, member, partial(self._remove, keys))
            else:
                self._remove(keys, member, number - 1)
        return {queue.decode() for queue in found["awaited"]}

    def _send(self, keys: Keys, calls: Sequence[Sequence[Any]]) -> None:
        tokens = read_tokens(self._redis, self._settings.key_prefix)
        known = {member: how for member, *how in calls}

        def task_of(member: bytes) -> TaskMessage:
            number, failures, is_repeated, task = known[member]
            call = CallId.of_member(keys.run, member.decode())
            token = tokens.given(Attempt(call, number)).token
            return with_attempt(unpack_task(task), number, failures, is_repeated=is_repeated, token=token)

        self._publisher.publish(list(readable(keys.outbox_tasks, known, task_of, partial(self._remove, keys))))

    def judged(self, run: str, completion: Completion) -> Completion:
        """What comes of a call: one that was given back is tried again, or has failed where it was so for too long
        (SPEC R17.3).
        """
        ref, error = completion.ref, completion.error
        if not completion.is_given_back or error is None:
            return completion
        member = CallId(run, ref.lane or None, ref.call).member
        keys = Keys(self._settings.key_prefix, run)
        found = self._given_back(keys, {"member": member, "attempt": ref.attempt})
        since, now = int(found.get("since", found["now"])), int(found["now"])
        wait_seconds = self._settings.contract_wait_seconds
        rest = rest_of(Failure(*error), since, now, wait_seconds, code_came_ms=int(found["code_came"]))
        if isinstance(rest, Failure):
            return Completion(ref, (rest.type, rest.message))
        self._redis.zadd(awaiting_code(keys.prefix), {run: now})
        return completion._replace(delay_seconds=rest)

    def bury(self, run: str, completions: Sequence[Completion]) -> None:
        """Make dead letters of calls that failed for good; they stay in the outbox until that is noted there."""
        keys = Keys(self._settings.key_prefix, run)
        for completion in completions:
            if completion.error is None or completion.delay_seconds is not None:
                continue
            member = CallId(run, completion.ref.lane or None, completion.ref.call).member.encode()
            entry: Any = self._redis.hget(keys.outbox, member)
            task: Any = self._redis.hget(keys.outbox_tasks, member)
            found = Condition.read(entry)
            if found is not None and found.attempt == completion.ref.attempt:
                self._letters.add(_letter(run, member, task, completion.error, completion.ref.attempt))

    def _remove(self, keys: Keys, member: bytes, attempts: int = 0) -> None:
        """Take out a call that is dead, unless it was sent again and has fewer attempts by now."""
        self._end(keys, {"member": member, "attempts": attempts})


def _letter(run: str, member: bytes, task: bytes, error: tuple[str, str], attempts: int) -> DeadLetter:
    return DeadLetter(CallId.of_member(run, member.decode()), unpack_task(task), *error, attempts, date_now())


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the script finds in a run; the fields are its answer's (see sweep.lua)."""

    status: str | None = None
    parent: str | None = None
    lanes: list[str]
    suspects: list[str]
    let_out: list[str]
    lost: int
    is_all: bool
    forgotten: int
    next_ms: int
    awaited: list[str]
    pending_webhooks: list[str]
    waiting_for_silent: list[tuple[str, str]]


class RunKeeper:
    """Looks after runs. All of it raises `RedisError` and `InfrastructureError`."""

    def __init__(
        self, redis: Redis, publisher: Publisher, settings: Settings, outbox: Outbox, broken: BrokenRuns
    ) -> None:
        self._redis = redis
        self._publisher = publisher
        self._settings = settings
        self._outbox = outbox
        self._broken = broken
        self._script = Script(redis, "sweep")
        self._hook = HoldHook(redis, settings) if settings.hold_webhook_url is not None else None
        self._awaited: set[str] = set()
        self._silent: dict[str, SilentProcess] = {}
        """Processes that live and report nothing, by their names in claims."""
        self._told: dict[str, set[str]] = {}
        """Which runs' waiting for which of them the log has named."""

    def stop(self) -> None:
        """Call no web hook any more."""
        if self._hook is not None:
            self._hook.stop()

    def take_awaited(self) -> set[str]:
        """The queues from which a probe is awaited since this was asked."""
        awaited, self._awaited = self._awaited, set()
        return awaited

    def look_after(self, runs: Mapping[str, float], thresholds: Thresholds) -> tuple[dict[str, int], dict[str, float]]:
        """Look after runs, given with the time of their submission in seconds.

        Returns when to look at each again, in milliseconds, where something will be due; and those of the runs in which
        more is left to judge now.
        """
        again = dict.fromkeys(runs, server_ms(self._redis) + limits.BROKEN_MS)
        left: dict[str, float] = {}
        over: list[str] = []
        for run, answer in zip(runs, self._judge(runs, thresholds), strict=True):
            with self._broken.passing_over(run):
                if not self._broken.is_answer(run, answer):
                    continue
                found = Found(**self._script.read(answer))
                self._publish(run, found)
                self._tell_of_silent(run, found.waiting_for_silent)
                if not found.is_all:
                    left[run] = runs[run]
                answers = found.status in ENDED_STATUSES and self._answer(run, found)
                if found.forgotten:
                    self._awaited |= self._outbox.sweep(run, thresholds)
                elif found.status is None:
                    self._remove_unfinished(self._keys(run), runs[run])
                elif answers:
                    continue
                elif found.status in ENDED_STATUSES:
                    over.append(run)
                again[run] = found.next_ms
        self._expire(over)
        return again, left

    def _keys(self, run: str) -> Keys:
        return Keys(self._settings.key_prefix, run)

    def _judge(self, runs: Iterable[str], thresholds: Thresholds) -> list[Any]:
        """What the script answers of each run, or the error that its keys have raised.

        Who lives is read each time: a sweep may take longer than a lease.
        """
        living = read_living(self._redis, self._settings.key_prefix, thresholds.lease_ms)
        self._silent = {one.process: one for one in living.silent}
        self._told = {process: told for process, told in self._told.items() if process in self._silent}
        request = {
            **asdict(thresholds),
            "most": limits.AT_ONCE,
            "instances": self._settings.queue_instances,
            "window": self._settings.publish_window,
            "format": FORMAT,
            "tells": self._hook is not None,
            "most_told": self._hook.room if self._hook is not None else 0,
            "telling_ms": int(limits.TELLING_SECONDS * 1000),
            "silent": {one.process: one.until_ms for one in living.silent},
            "silences": [one.since_ms for one in living.silent],
        }
        with self._redis.pipeline(transaction=False) as pipeline:
            for run in runs:
                self._script.add(pipeline, self._keys(run), request | {"holders": living.holders.get(run, {})})
            return pipeline.execute(raise_on_error=False)

    def _tell_of_silent(self, run: str, waiting: Iterable[tuple[str, str]]) -> None:
        """Have the log say once which calls of a run wait for a process that lives and reports nothing."""
        names: dict[str, list[str]] = defaultdict(list)
        for member, process in waiting:
            if "@" not in member.rpartition("\x1f")[2]:
                names[process].append(CallId.of_member(run, member).name)
        for process, calls in names.items():
            silent, told = self._silent.get(process), self._told.setdefault(process, set())
            if silent is not None and run not in told:
                told.add(run)
                logger.warning(
                    "run %r: calls %s wait for %s; they are not begun elsewhere", run, _listed(calls), silent
                )

    def _publish(self, run: str, found: Found) -> None:
        """Publish what was found lost or due, and call the web hook for what waits for a person."""
        if found.lost:
            logger.warning(
                "run %r: %d tasks or calls were lost with their worker; they go on elsewhere", run, found.lost
            )
        self._awaited.update(found.awaited)
        if self._hook is not None:
            self._hook.tell(run, found.pending_webhooks)
        queue = self._settings.queue_instances
        self._publisher.publish(
            lane_task(run, lane or None, queue, was_lost=lane in found.suspects)
            for lane in (*found.lanes, *found.let_out)
        )

    def _expire(self, runs: Iterable[str]) -> None:
        """See to it that what is over does not stay for ever; a run that is broken keeps no other from its end."""
        prefix, seconds = self._settings.key_prefix, self._settings.retention_seconds
        try:
            expire_runs(self._redis, prefix, list(runs), seconds)
        except BROKEN:
            for run in runs:
                with self._broken.passing_over(run):
                    expire_runs(self._redis, prefix, [run], seconds)

    def _answer(self, run: str, found: Found) -> bool:
        """Send the result of a child run again, where the call waits for it still; says so (SPEC R9.3)."""
        parent = Parent.read(found.parent)
        if parent is None or found.status is None:
            return False
        keys = self._keys(run)
        above = self._keys(parent.call.run)
        run_status = RunStore(self._redis, above).status()
        entry: Any = self._redis.hget(above.calls, parent.call.member)
        if run_status not in ("running", "paused") or not parent.waits_for(entry, keys.run):
            return False
        result = result_of(found.status, RunStore(self._redis, keys).entries())
        tokens = read_tokens(self._redis, keys.prefix)
        self._publisher.publish([parent.answer(keys.run, result, tokens, self._settings.queue_instances)])
        return True

    def _remove_unfinished(self, keys: Keys, submitted_seconds: float) -> None:
        """Remove a run whose client died while it wrote; one that may still be at it is left alone."""
        if server_ms(self._redis) / 1000 - submitted_seconds > limits.SUBMITTING_SECONDS:
            discard_run(self._redis, keys.prefix, keys.run)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[: limits.OVERDUE_MOST_NAMED]) + (", …" if len(names) > limits.OVERDUE_MOST_NAMED else "")
