"""Runs in which something is overdue: what was begun or published and not ended in time is published again.

A run that is over gets the expiry of its keys here, too.
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
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any

from redis import Redis
from redis.exceptions import RedisError, ResponseError

from ...broker_config import Settings
from ...broker_config.tokens import signing_key
from ...protocol.engine.events import Failure
from ...protocol.engine.execution import UNKNOWN
from .. import limits
from ..broker.attempts import NOT_KNOWN, Attempt, CallId, lost
from ..broker.consumer import Publisher
from ..broker.messages import Completion, TaskMessage, is_once, lane_task, rest_of, unpack_task, with_attempt
from ..errors import QueueRefused, RunNotFound, WorkerError
from ..process import count_refusal
from ..store.connections import PASSING, read_tokens
from ..store.held_calls import HeldCall
from ..store.keys import ENDED_STATUSES
from ..store.living import Processes, SilentProcess
from ..store.run_list import Parent
from ..store.scripts import UNREADABLE, date_now, iso_date, server_ms
from ..store.servers import ServerAway
from ..store.sweeps import OutboxTable, PendingWebhooks, RunSweep, SweptRun, Thresholds
from ..store.waiting import DeadLetter, DeadLetters
from .heartbeats import report_interval_seconds

if TYPE_CHECKING:
    import httpx


# Runs whose keys are broken: each is passed over with a line in the log, and the others are looked after.

logger = logging.getLogger(__name__)

BROKEN: tuple[type[Exception], ...] = (ResponseError, *UNREADABLE)
"""Errors of keys that cannot be read, unless they are among `PASSING`, too."""


class BrokenRuns:
    """The runs whose keys are broken and of which the log has said so."""

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
        except ServerAway:
            pass  # a run that needs a server which is away is looked at again

    def is_answer(self, run: str, answer: object) -> bool:
        """Whether `answer` is no error: neither of the run's own keys, nor since its server, one of several, is away.
        Raises what is wrong with the only server.
        """
        if not isinstance(answer, Exception) or isinstance(answer, ServerAway):
            return not isinstance(answer, Exception)
        if not isinstance(answer, BROKEN) or isinstance(answer, PASSING):
            raise answer
        if run not in self._runs:
            self._runs.add(run)
            count_refusal("runs")
            logger.error("run %r is passed over, its keys are broken: %.200r", run, str(answer))
        return False


# The web hook: calls that are held for a person are posted to an address of the operator's (SPEC R14).
#
# The commit that holds a call writes it into the run's `pending_webhooks`. The sweep takes what is due there and hands
# it to a thread of this module, so no lane and no sweep waits for the address; should the process die, a later sweep
# takes it again. A call is posted until the answer is 2xx: at least once, with the same `webhook-id`. One that is
# decided meanwhile is not posted any more. Requests are signed as Standard Webhooks has it: HMAC-SHA256 over id, time
# and body. A body holds the run's id and what `acts held --json` prints, no more.


class HoldHook:
    """Posts held calls to one address. Made where `hold_webhook_url` is set."""

    def __init__(self, redis: Redis, settings: Settings) -> None:
        """Raises `WorkerError` where what sends the requests is not installed."""
        if find_spec("httpx") is None:
            raise WorkerError(
                "ACTS_HOLD_WEBHOOK_URL needs another package: pip install '.[hooks]' in the clone of acts-celery"
            )
        assert settings.hold_webhook_url is not None
        assert settings.hold_webhook_secret is not None
        self._url = settings.hold_webhook_url.get_secret_value()
        self._key = signing_key(settings.hold_webhook_secret.get_secret_value())
        self._pending = PendingWebhooks(redis, settings.key_prefix)
        self._threads = ThreadPoolExecutor(limits.WEBHOOKS_AT_ONCE, thread_name_prefix="acts-hold-hook")
        self._lock = Lock()
        self._waiting: set[tuple[str, str]] = set()
        self._is_down = False
        self._client: httpx.Client | None = None

    @property
    def room(self) -> int:
        """How many more calls it can take at present."""
        return max(0, limits.WEBHOOKS_WAITING - len(self._waiting))

    def post(self, run: str, members: Iterable[str]) -> None:
        """Post held calls of a run in threads; a later sweep hands in again what there is no room for."""
        for member in members:
            with self._lock:
                if (run, member) in self._waiting or not self.room:
                    continue
                self._waiting.add((run, member))
            self._threads.submit(self._try, run, member)

    def stop(self) -> None:
        """Begin nothing more; another process, or the next, posts what is left."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _try(self, run: str, member: str) -> None:
        try:
            call = self._pending.call(run, member)
            if call is None or self._post(call):
                self._pending.remove(run, member)
            else:
                self._pending.put_off(call, next_delay_ms)
        except (RedisError, RunNotFound) as error:
            logger.warning("run %s: a held call will be sent to the web hook later: %s", run, error)
        except Exception:
            logger.exception("run %s: the web hook could not be told of a held call", run)
        finally:
            with self._lock:
                self._waiting.discard((run, member))

    def _post(self, call: HeldCall) -> bool:
        """Post a call; returns whether the address has taken it. The log says when it begins and ceases to refuse."""
        import httpx

        if self._client is None:  # a redirect would carry the body elsewhere
            self._client = httpx.Client(timeout=limits.WEBHOOK_TIMEOUT_SECONDS, follow_redirects=False)
        id_, body = message_of(call)
        headers = signed_headers(self._key, id_, int(time.time()), body)
        try:
            with self._client.stream("POST", self._url, content=body, headers=headers) as answer:
                fault = "" if answer.is_success else f"it answers {answer.status_code}"
        except httpx.HTTPError as error:
            fault = type(error).__name__
        if fault and not self._is_down:
            logger.warning("the web hook does not accept held calls: %s; trying again", fault)
        elif not fault and self._is_down:
            logger.warning("the web hook accepts held calls again")
        self._is_down = bool(fault)
        return not fault


def next_delay_ms(age_ms: int) -> int:
    """How long to wait for the next attempt, where a call has been held so long: each waits as long as all before."""
    return int(min(max(limits.WEBHOOK_FIRST_DELAY_SECONDS * 1000, age_ms), limits.WEBHOOK_LONGEST_DELAY_SECONDS * 1000))


def message_of(call: HeldCall) -> tuple[str, bytes]:
    """The id of a call's message, the same whenever it is sent, and its body."""
    id_ = hashlib.sha256(f"{call.id.idempotency_key} {call.entry}".encode()).hexdigest()[:32]
    body = {"type": "call.held", "timestamp": iso_date(call.since_ms), "data": {"run": call.id.run, **call.to_dict()}}
    return f"msg_{id_}", json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def signed_headers(key: bytes, id_: str, seconds: int, body: bytes) -> dict[str, str]:
    """The headers of Standard Webhooks."""
    signature = hmac.digest(key, f"{id_}.{seconds}.".encode() + body, "sha256")
    return {
        "content-type": "application/json",
        "webhook-id": id_,
        "webhook-timestamp": str(seconds),
        "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
    }


def thresholds_of(settings: Settings) -> Thresholds:
    """The thresholds that follow from the settings."""
    lease_ms, soon_ms = int(settings.lease_seconds * 1000), int(settings.sweep_interval_seconds * 1000)
    return Thresholds(
        lease_ms=lease_ms,
        published_ms=int(limits.PUBLISHED_SECONDS * 1000),
        heard_ms=int(settings.lease_seconds * 2 / 3 * 1000),
        report_ms=int((report_interval_seconds(settings) + settings.sweep_interval_seconds) * 1000),
        soon_ms=soon_ms,
    )


# The outbox: what is sent and forgotten is kept in the log until it is done (SPEC R5.1, lua/outbox.lua).
#
# The commit that records a call as sent writes it there, so that nothing sent is ever lost. The sweep sends again what
# died with a worker and what is due to be tried again, also when the run has ended, and makes dead letters of the rest.


class Outbox:
    """Sends again what was lost of the calls that were sent and forgotten, and ends those that fail for good."""

    def __init__(self, redis: Redis, publisher: Publisher, settings: Settings) -> None:
        self._redis = redis
        self._publisher = publisher
        self._settings = settings
        self._letters = DeadLetters(redis, settings)
        self._table = OutboxTable(redis, settings)

    def sweep(self, run: str, thresholds: Thresholds) -> set[str]:
        """Send again what was lost or is due in a run; returns the queues from which a probe is awaited."""
        found = self._table.take_due(run, thresholds)
        if found["send"]:
            self._send(run, found["send"])
        for member, number, failures, _, task in found["dead"]:
            failure = lost(number - failures - 1)
            try:
                self._letters.add(_letter(run, member, task, (failure.type, failure.message), number - 1))
            except UNREADABLE:
                self._table.set_aside(run, member)
            else:
                self._table.remove(run, member, number - 1)
        return {queue.decode() for queue in found["awaited"]}

    def _send(self, run: str, calls: Sequence[Sequence[Any]]) -> None:
        tokens = read_tokens(self._redis, self._settings.key_prefix)
        known = {member: how for member, *how in calls if not self._is_asked_about(run, member, *how)}

        def task_of(member: bytes) -> TaskMessage:
            number, failures, is_repeated, task = known[member]
            token = tokens.given(Attempt(CallId.of_member(run, member.decode()), number)).token
            return with_attempt(unpack_task(task), number, failures, is_repeated=is_repeated, token=token)

        self._publisher.publish(list(self._table.readable(run, known, task_of)))

    def _is_asked_about(
        self, run: str, member: bytes, number: int, failures: int, is_repeated: bool, task: bytes
    ) -> bool:
        """Make a dead letter of a call that runs at most once and may have begun: a person says whether it
        is sent again (SPEC R4.11). Says whether it is one.
        """
        with suppress(*UNREADABLE):
            if is_repeated and is_once(unpack_task(task)):
                self._letters.add(_letter(run, member, task, (UNKNOWN, NOT_KNOWN), number - 1))
                self._table.remove(run, member, number - 1)
                return True
        return False

    def judged(self, run: str, completion: Completion) -> Completion:
        """The completion of a call that was given back, with its next attempt, or as failed where no code has admitted
        it for too long (SPEC R17.3); any other one unchanged.
        """
        ref, error = completion.ref, completion.error
        if not completion.is_given_back or error is None:
            return completion
        since, now, code_came = self._table.note_given_back(CallId(run, ref.lane or None, ref.call), ref.attempt)
        wait_seconds = self._settings.contract_wait_seconds
        rest = rest_of(Failure(*error), since, now, wait_seconds, code_came_ms=code_came)
        if isinstance(rest, Failure):
            return Completion(ref, (rest.type, rest.message))
        self._table.note_awaiting_code(run, now)
        return completion._replace(delay_seconds=rest)

    def dead_letter(self, run: str, completions: Sequence[Completion]) -> None:
        """Make dead letters of calls that failed for good; they stay in the outbox until that is noted there."""
        for completion in completions:
            if completion.error is None or completion.delay_seconds is not None:
                continue
            ref = completion.ref
            member = CallId(run, ref.lane or None, ref.call).member.encode()
            if (task := self._table.task(run, member, ref.attempt)) is not None:
                self._letters.add(_letter(run, member, task, completion.error, ref.attempt))


def _letter(run: str, member: bytes, task: bytes, error: tuple[str, str], attempts: int) -> DeadLetter:
    return DeadLetter(CallId.of_member(run, member.decode()), unpack_task(task), *error, attempts, date_now())


class RunReaper:
    """Publishes again what is lost or due in runs, and ends the life of those that are over. All of it raises
    `RedisError` and `InfrastructureError`.
    """

    def __init__(
        self, redis: Redis, publisher: Publisher, settings: Settings, outbox: Outbox, broken: BrokenRuns
    ) -> None:
        self._redis = redis
        self._publisher = publisher
        self._settings = settings
        self._outbox = outbox
        self._broken = broken
        self._sweep = RunSweep(redis, settings)
        self._processes = Processes(redis, settings.key_prefix)
        self._hook = HoldHook(redis, settings) if settings.hold_webhook_url is not None else None
        self._awaited: set[str] = set()
        self._silent: dict[str, SilentProcess] = {}
        """Processes that live and report nothing, by their names in claims."""
        self._logged: dict[str, set[str]] = {}
        """By those processes, the runs of which the log has said that they wait for one."""

    def stop(self) -> None:
        """Call no web hook any more."""
        if self._hook is not None:
            self._hook.stop()

    def take_awaited(self) -> set[str]:
        """The queues from which a probe is awaited since the last call of this."""
        awaited, self._awaited = self._awaited, set()
        return awaited

    def look_after(self, runs: Mapping[str, float], thresholds: Thresholds) -> tuple[dict[str, int], dict[str, float]]:
        """Look after runs, each with the time of its submission in seconds.

        Returns when to look at each again, in ms, where something will be due; and those of the runs in which more is
        left to judge now.
        """
        now_ms = server_ms(self._redis)
        again = dict.fromkeys(runs, now_ms + limits.BROKEN_MS)
        left: dict[str, float] = {}
        over: list[str] = []
        for run, answer in zip(runs, self._take(runs, thresholds), strict=True):
            with self._broken.passing_over(run):
                if not self._broken.is_answer(run, answer):
                    if isinstance(answer, ServerAway):
                        again[run] = now_ms + thresholds.lease_ms
                    continue
                found = self._sweep.read(answer)
                self._publish(run, found)
                self._log_silent(run, found.waiting_for_silent)
                if not found.is_all:
                    left[run] = runs[run]
                answers = found.status in ENDED_STATUSES and self._answer(run, found)
                if found.status in ("running", "paused") and (parent := Parent.read(found.parent)) is not None:
                    self._sweep.cancel_abandoned(parent, run)
                if found.forgotten:
                    self._awaited |= self._outbox.sweep(run, thresholds)
                elif found.status is None:
                    self._sweep.remove_unfinished(run, runs[run])
                elif answers:
                    continue
                elif found.status in ENDED_STATUSES:
                    over.append(run)
                again[run] = found.next_ms
        self._expire(over)
        return again, left

    def _take(self, runs: Iterable[str], thresholds: Thresholds) -> list[Any]:
        """Run the script for each run; returns its answer, or the error of its keys.

        Which processes live is read each time: a sweep may take longer than a lease.
        """
        living = self._processes.read(thresholds.lease_ms)
        self._silent = {one.process: one for one in living.silent}
        self._logged = {process: runs for process, runs in self._logged.items() if process in self._silent}
        most_webhooks = self._hook.room if self._hook is not None else None
        return self._sweep.take(runs, thresholds, living, most_webhooks=most_webhooks)

    def _log_silent(self, run: str, waiting: Iterable[tuple[str, str]]) -> None:
        """Log once which calls of a run wait for a process that lives and reports nothing."""
        names: dict[str, list[str]] = defaultdict(list)
        for member, process in waiting:
            if "@" not in member.rpartition("\x1f")[2]:
                names[process].append(CallId.of_member(run, member).name)
        for process, calls in names.items():
            silent, logged = self._silent.get(process), self._logged.setdefault(process, set())
            if silent is not None and run not in logged:
                logged.add(run)
                logger.warning(
                    "run %r: calls %s wait for %s; they are not begun elsewhere", run, _listed(calls), silent
                )

    def _publish(self, run: str, found: SweptRun) -> None:
        """Publish what was found lost or due, and call the web hook for what waits for a person."""
        if found.lost:
            logger.warning(
                "run %r: %d tasks or calls were lost with their worker; they continue elsewhere", run, found.lost
            )
        self._awaited.update(found.awaited)
        if self._hook is not None:
            self._hook.post(run, found.pending_webhooks)
        queue = self._settings.queue_instances
        self._publisher.publish(
            lane_task(run, lane or None, queue, was_lost=lane in found.suspects, priority=found.priority)
            for lane in (*found.lanes, *found.let_out)
        )

    def _expire(self, runs: Sequence[str]) -> None:
        """Have the keys of runs that are over expire; one that is broken keeps no other from its end."""
        try:
            self._sweep.expire(runs)
        except BROKEN:
            for run in runs:
                with self._broken.passing_over(run):
                    self._sweep.expire([run])

    def _answer(self, run: str, found: SweptRun) -> bool:
        """Send the result of a child run again where its call still waits for it; returns whether it does (SPEC
        R9.3).
        """
        parent = Parent.read(found.parent)
        if parent is None or found.status is None or not self._sweep.is_awaited(parent, run):
            return False
        result = self._sweep.result(run, found.status)
        tokens = read_tokens(self._redis, self._settings.key_prefix)
        self._publisher.publish([parent.answer(run, result, tokens, self._settings.queue_instances, found.priority)])
        return True


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[: limits.LOST_CALLS_NAMED]) + (", …" if len(names) > limits.LOST_CALLS_NAMED else "")
