"""Admission: the gate through which everything passes that begins work - a run, a fork, calls that are added or done
again, more ticks, a message to a loop - by the limits behind the token of whoever asks.

What somebody has is not counted on: the runs of the owner's index say it, each by its state. So nothing can leak, and
what is deleted counts no more. One run of an owner with limits is written down at a time, so two that come together are
not both the last one that fits. What models take is known when they have answered: who has spent more than its limit
begins nothing more on that day. Elements of an `_each` call count as they begin; a run that would begin more of them
than were left when it was admitted fails (see lua/commit_holds.lua).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from redis import Redis
from redis.exceptions import LockError

from acts_celery.broker_config import Settings
from acts_celery.broker_config.tokens import Identity
from acts_celery.protocol.engine.costs import CURRENCY, dollars_of
from acts_celery.worker.batches import batches
from acts_celery.worker.errors import InfrastructureError, OverLimit
from acts_celery.worker.storage.clock import server_ms
from acts_celery.worker.storage.commits import ELEMENTS, ELEMENTS_LEFT, PAID_MONEY, PAID_TOKENS
from acts_celery.worker.storage.keys import ENDED, Keys, active_runs, admission, owned_children, owned_runs
from acts_celery.worker.storage.owned_runs import OWNER, top_of

_HELD_SECONDS: Final = 120
"""So long a client that dies keeps others of its owner waiting."""
_WAIT_SECONDS: Final = 60
_AT_ONCE: Final = 500
_DAY_MS: Final = 86_400_000
_FIELDS: Final = (OWNER, "imported", "total", ELEMENTS, "loop:cost", PAID_TOKENS, PAID_MONEY)


@contextmanager
def admitted(redis: Redis, settings: Settings, calls: int = 0, *, more_of: str = "") -> Iterator[dict[str, Any]]:
    """Begin in here what takes so many calls: a run, or `more_of` one. Yields what the state of a new run says of it.

    Raises `OverLimit` where who has shown a token may not begin it, `InfrastructureError` where another of that name
    does not get on, `RedisError`.
    """
    identity = settings.identity
    if identity is None or (identity.limits.runs is None and not identity.limits.are_of_a_day):
        yield {}
        return
    prefix = settings.key_prefix
    lock = redis.lock(admission(prefix, identity.name), _HELD_SECONDS, blocking_timeout=_WAIT_SECONDS)
    if not lock.acquire():
        raise InfrastructureError(f"another run of {identity.name} is being written down; try again")
    try:
        _refuse_runs(redis, prefix, identity, top_of(redis, prefix, more_of) if more_of else "")
        left = _refuse_day(redis, prefix, identity, calls)
        yield {} if left is None else {ELEMENTS_LEFT: left}
    finally:
        with suppress(LockError):  # its time was over
            lock.release()


def _refuse_runs(redis: Redis, prefix: str, identity: Identity, but: str) -> None:
    most = identity.limits.runs
    if most is not None and (found := _under_way(redis, prefix, identity.name, but)) >= most:
        raise OverLimit(
            f"{identity.name} has {found} runs under way, and its limit is {most} (runs={most}, behind its token): "
            "wait until one ends or cancel one, or have it raised"
        )


def _refuse_day(redis: Redis, prefix: str, identity: Identity, calls: int) -> int | None:
    """How many calls are left for elements; None is any number."""
    limits = identity.limits
    if not limits.are_of_a_day:
        return None
    spent = _spent_today(redis, prefix, identity.name)
    for name, most, taken, added, unit in (
        ("calls", limits.calls, Decimal(spent.calls), calls, "calls"),
        ("tokens", limits.tokens, Decimal(spent.tokens), 0, "tokens"),
        ("money", limits.money, spent.money, 0, CURRENCY),
    ):
        if most is not None and (taken + added > most or taken >= most):
            more = f", this one has {added} more" if added else ""
            raise OverLimit(
                f"the runs that {identity.name} has begun today have taken {taken:f} {unit}{more}, and its limit is "
                f"{Decimal(most):f} a day ({name}={Decimal(most):f}, behind its token): begin it after midnight UTC, "
                "or have it raised"
            )
    return None if limits.calls is None else limits.calls - spent.calls - calls


def _under_way(redis: Redis, prefix: str, owner: str, but: str) -> int:
    """How many runs of an owner are under way, without one."""
    found, start = 0, 0
    while page := _names(redis.zrange(owned_runs(prefix, owner), start, start + _AT_ONCE - 1)):
        start += len(page)
        listed: Any = redis.zmscore(active_runs(prefix), page)
        active = [run for run, since in zip(page, listed, strict=True) if since is not None and run != but]
        states = _states(redis, prefix, active, (OWNER, "status"))
        found += sum(whose == owner and status is not None and status not in ENDED for whose, status in states)
    return found


@dataclass(slots=True)
class _Spent:
    calls: int = 0
    tokens: int = 0
    money: Decimal = Decimal(0)


def _spent_today(redis: Redis, prefix: str, owner: str) -> _Spent:
    """What the runs have taken that an owner has begun today. What child runs cost is in the runs above them, and their
    calls are not.
    """
    now = server_ms(redis)
    today, spent = now - now % _DAY_MS, _Spent()
    runs = _names(redis.zrangebyscore(owned_runs(prefix, owner), today, "+inf"))
    for some in batches(runs, _AT_ONCE):
        for whose, imported, total, elements, *paid in _states(redis, prefix, some, _FIELDS):
            if whose != owner or imported:  # what an import has taken was taken elsewhere
                continue
            cost, tokens, money = paid
            loop = json.loads(cost) if cost is not None else {}  # it has what its calls have cost, too
            spent.calls += int(total or 0) + int(elements or 0)
            spent.tokens += loop.get("tokens", 0) if loop else int(tokens or 0)
            spent.money += Decimal(loop.get("money") or 0) if loop else Decimal(dollars_of(int(money or 0)))
    below = _names(redis.zrangebyscore(owned_children(prefix, owner), today, "+inf"))
    for start in range(0, len(below), _AT_ONCE):
        page = below[start : start + _AT_ONCE]
        for counts in _states(redis, prefix, page, ("total", ELEMENTS)):
            spent.calls += sum(int(count or 0) for count in counts)
    return spent


def _names(found: Any) -> list[str]:
    return [name.decode() for name in found]


def _states(redis: Redis, prefix: str, runs: list[str], fields: tuple[str, ...]) -> Iterator[list[str | None]]:
    """These fields of the states of runs."""
    with redis.pipeline(transaction=False) as pipeline:
        for run in runs:
            pipeline.hmget(Keys(prefix, run).state, fields)
        for found in pipeline.execute():
            yield [field.decode() if field is not None else None for field in found]
