"""What stands in a key of the log and was written by nothing of ours: it is set aside, and what reads the key goes on.

An entry is removed, a key of another type renamed to `<key>:set-aside`. Either is counted, as `keys` among what the
worker has refused, and costs one line, which shows the beginning of an entry escaped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from redis import Redis

from acts_celery.worker.process.refusals import count_refusal

logger = logging.getLogger(__name__)

T = TypeVar("T")

UNREADABLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError)
"""What reading raises that expects another shape; msgpack's errors are ValueErrors."""


def readable(
    key: str, entries: Iterable[bytes], read: Callable[[bytes], T], remove: Callable[[bytes], object]
) -> Iterator[T]:
    """What `read` makes of the entries of a key; one that it cannot read is removed."""
    for entry in entries:
        try:
            made = read(entry)
        except UNREADABLE:
            drop_entry(key, entry, remove)
        else:
            yield made


def drop_entry(key: str, entry: bytes, remove: Callable[[bytes], object]) -> None:
    """Remove an entry that is none of ours."""
    remove(entry)
    count_refusal("keys")
    logger.error("an entry of %s is set aside, it is none of ours: %r", key, entry[:100])


def move_other_types(redis: Redis, types: Mapping[str, str]) -> None:
    """Rename those of these keys that have another type than they should. Raises `RedisError`."""
    for key, type_ in types.items():
        found: Any = redis.type(key)
        if found not in (type_.encode(), b"none"):
            redis.rename(key, f"{key}:set-aside")
            count_refusal("keys")
            logger.error("%s is set aside, it is a %s and should be a %s", key, found.decode(), type_)
