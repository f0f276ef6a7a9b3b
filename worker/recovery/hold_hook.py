"""The web hook: an address of the operator's is told what is held for a person (SPEC R14).

What is to be told stands in the run (`pending_webhooks`), written in the commit that holds the call. The sweep takes
what is due and hands it to a thread of this module, so no lane and no sweep waits for the address; should the process
die, a later sweep takes it again. Told is what was answered with 2xx: so at least once, with the same `webhook-id`.
What is decided meanwhile is not told any more.  Requests are signed as Standard Webhooks has it: HMAC-SHA256 over id,
time and body. A body holds the run's id and what `acts held --json` prints, no more.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Final

from redis import Redis
from redis.exceptions import RedisError

from acts_celery.broker_config import Settings
from acts_celery.broker_config.signing import signing_key
from acts_celery.worker.errors import RunNotFound
from acts_celery.worker.storage.clock import iso_date, server_ms
from acts_celery.worker.storage.due import DueRuns
from acts_celery.worker.storage.held_calls import HeldCall, read_held
from acts_celery.worker.storage.keys import Keys

if TYPE_CHECKING:
    import httpx

logger = logging.getLogger(__name__)

TELLING_SECONDS: Final = 30.0
"""After so long a sweep takes what was handed to a process and not told by it."""
_TIMEOUT_SECONDS: Final = 10.0
_AT_ONCE: Final = 8
"""Requests at a time."""
_MOST_WAITING: Final = 200
"""So many calls a process takes upon itself."""
_FIRST_DELAY_SECONDS: Final = 2.0
_LONGEST_DELAY_SECONDS: Final = 3_600.0


class HoldHook:
    """Tells one address. Made where `hold_webhook_url` is set."""

    def __init__(self, redis: Redis, settings: Settings) -> None:
        assert settings.hold_webhook_url is not None
        assert settings.hold_webhook_secret is not None
        self._redis = redis
        self._prefix = settings.key_prefix
        self._url = settings.hold_webhook_url.get_secret_value()
        self._key = signing_key(settings.hold_webhook_secret.get_secret_value())
        self._due = DueRuns(redis, settings.key_prefix)
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="acts-hold-hook")
        self._lock = Lock()
        self._waiting: set[tuple[str, str]] = set()
        self._is_down = False
        self._client: httpx.Client | None = None

    @property
    def room(self) -> int:
        """Of how many calls more it can tell at present."""
        return max(0, _MOST_WAITING - len(self._waiting))

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
            self._client = httpx.Client(timeout=_TIMEOUT_SECONDS, follow_redirects=False)
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
    return int(min(max(_FIRST_DELAY_SECONDS * 1000, age_ms), _LONGEST_DELAY_SECONDS * 1000))


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
