"""Our Lua scripts (`lua/`): what each is made of, and how it is called.

Two lines of a script are read here. `-- KEYS: state log` names the keys that it touches, as `Keys` calls them; they
are locals of the script. `*` is every other key of the run. `-- USES: run` names files with functions that it uses,
whose keys are the script's as well. A script takes its request as one argument, msgpack, which it finds in `request`,
and answers with msgpack, by names. A script of several actions finds in `request.action` which one to take.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Final, Protocol, Self, TypeVar

import msgpack
from redis import Redis
from redis.client import Pipeline
from redis.cluster import ClusterPipeline

from .. import limits
from ..process import count_refusal
from .keys import Keys

_LINE: Final = re.compile(r"^-- (KEYS|USES): (.*)\n", re.MULTILINE)
_EVERY: Final = "*"


@dataclass(frozen=True, slots=True)
class Source:
    """A script as a server takes it."""

    text: str
    names: tuple[str, ...]
    """The keys that it names, in the order in which it takes them."""
    takes_every: bool
    """Whether the script takes every other key of the run after those."""

    def keys_of(self, keys: Keys | str) -> tuple[str, ...]:
        """The keys for a run; one that belongs to no run is given itself."""
        return (keys,) if isinstance(keys, str) else _keys_of(self, keys)


@lru_cache(limits.SCRIPT_KEYS_KEPT)
def _keys_of(source: Source, keys: Keys) -> tuple[str, ...]:
    named = tuple(getattr(keys, name) for name in source.names)
    return (*named, *(key for key in keys.all if key not in named)) if source.takes_every else named


@cache
def read_script(name: str) -> Source:
    """One of our scripts, with what it uses before it."""
    parts: dict[str, str] = {}
    _collect(name, parts)
    text = "\n".join(parts.values())
    declared = dict.fromkeys(key for line, keys in _LINE.findall(text) if line == "KEYS" for key in keys.split())
    names = tuple(key for key in declared if key != _EVERY)
    prelude = f"local {', '.join(names)} = unpack(KEYS)\nlocal request = cmsgpack.unpack(ARGV[1])\n"
    return Source(prelude + text, names, _EVERY in declared)


def _collect(name: str, parts: dict[str, str]) -> None:
    """Add the text of a file, after those that it uses."""
    text = files(__package__).joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")
    for line, used in _LINE.findall(text):
        for each in used.split() if line == "USES" else ():
            if each not in parts:
                _collect(each, parts)
    parts[name] = text


class Script:
    """One of our scripts, or an action of one, for threads. `is_raw`: the texts of its answer are bytes."""

    def __init__(self, redis: Redis, name: str, action: str = "", *, is_raw: bool = False) -> None:
        self._action = action
        self._redis = redis
        self._source = read_script(name)
        self._script = redis.register_script(self._source.text)
        self._is_raw = is_raw

    def __call__(self, keys: Keys | str, request: Mapping[str, Any]) -> dict[str, Any]:
        """What it answers. Raises `RedisError`."""
        return self.read(self._script(keys=self._source.keys_of(keys), args=[pack_request(request, self._action)]))

    def run_all(self, requests: Iterable[tuple[Keys | str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
        """Run it for each of these keys and requests, in one round trip. Raises `RedisError`."""
        return [self.read(reply) for reply in self._replies(requests, raise_on_error=True)]

    def try_all(self, requests: Iterable[tuple[Keys | str, Mapping[str, Any]]]) -> list[Any]:
        """Run it as `run_all` does; returns for each request a reply for `read`, or the error of its keys."""
        return self._replies(requests, raise_on_error=False)

    def _replies(self, requests: Iterable[tuple[Keys | str, Mapping[str, Any]]], *, raise_on_error: bool) -> list[Any]:
        with self._redis.pipeline(transaction=False) as pipeline:
            for keys, request in requests:
                self._add(pipeline, keys, request)
            return pipeline.execute(raise_on_error=raise_on_error)

    def _add(self, pipeline: Pipeline, keys: Keys | str, request: Mapping[str, Any]) -> None:
        names, packed = self._source.keys_of(keys), pack_request(request, self._action)
        if isinstance(pipeline, ClusterPipeline):  # it takes no EVALSHA, since a node may not know the script
            pipeline.execute_command("EVAL", self._source.text, len(names), *names, packed)
        else:
            self._script(keys=names, args=[packed], client=pipeline)

    def read(self, reply: Any) -> dict[str, Any]:
        """The script's answer. Raises one of `set_aside.UNREADABLE` for texts that are none."""
        return read_answer(reply, is_raw=self._is_raw)


class Commands(Protocol):
    """Sends commands for the tasks of one event loop (`connections.GroupedCommands`)."""

    def register_script(self, text: str) -> str:
        """Make a script known; returns what `run_script` takes."""
        ...

    async def run_script(self, sha: str, keys: tuple[str, ...], *arguments: Any) -> Any:
        """Run a registered script."""
        ...


class AsyncScript:
    """One of our scripts, as the tasks of an event loop run it."""

    def __init__(self, commands: Commands, name: str, *, is_raw: bool = False) -> None:
        self._source = read_script(name)
        self._commands = commands
        self._sha = commands.register_script(self._source.text)
        self._is_raw = is_raw

    async def __call__(self, keys: Keys | str, request: Mapping[str, Any]) -> dict[str, Any]:
        """What it answers. Raises `RedisError`."""
        reply = await self._commands.run_script(self._sha, self._source.keys_of(keys), pack_request(request))
        return read_answer(reply, is_raw=self._is_raw)


def pack_request(request: Mapping[str, Any], action: str = "") -> bytes:
    """A request as msgpack. Redis' own knows no bin type: there texts and bytes are one."""
    packed = msgpack.packb({**request, "action": action} if action else request, use_bin_type=False)
    assert isinstance(packed, bytes)
    return packed


def read_answer(reply: bytes, *, is_raw: bool = False) -> dict[str, Any]:
    """An answer by its names; `is_raw` where its texts are to stay bytes."""
    if not is_raw:
        found: dict[str, Any] = msgpack.unpackb(reply, strict_map_key=False)
        return found
    return {name.decode(): value for name, value in msgpack.unpackb(reply, raw=True, strict_map_key=False).items()}


# The server's clock: what is due is judged by it, whatever a client's own clock says.


def server_ms(redis: Redis) -> int:
    """The server's time now, in milliseconds since the epoch. Raises `RedisError`."""
    found: Any = redis.time()
    seconds, microseconds = found
    return int(seconds * 1000 + microseconds // 1000)


class ServerClock:
    """Tells the server's time, and asks it now and then."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._asked = float("-inf")
        self._ahead = 0.0

    def milliseconds(self) -> int:
        """Since the epoch. Raises `RedisError`."""
        if time.monotonic() - self._asked > limits.CLOCK_REFRESH_SECONDS:
            now = server_ms(self._redis)
            self._asked = time.monotonic()
            self._ahead = now / 1000 - self._asked
        return int((time.monotonic() + self._ahead) * 1000)


def date_now() -> str:
    """This process's time as messages have it."""
    return iso_date(time.time_ns() // 1_000_000)


@lru_cache(1)
def iso_date(milliseconds: int) -> str:
    """A moment as `date_of` writes it; many calls end in one millisecond."""
    return date_of(datetime.fromtimestamp(milliseconds / 1000, UTC))


def date_of(moment: datetime) -> str:
    """A moment, in UTC, as everything of ours writes it: ISO 8601, milliseconds, Z."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# A foreign entry in a key of the log: it is set aside, and readers of the key continue.
#
# An entry is removed, a key of another type renamed to `<key>:set-aside`. Either is counted, as `keys` among what the
# worker has refused, and costs one line, which shows the beginning of an entry escaped.

logger = logging.getLogger(__name__)

T = TypeVar("T")

UNREADABLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError)
"""The exceptions of reading bytes of another shape; msgpack's errors are ValueErrors."""


def readable(
    key: str, entries: Iterable[bytes], read: Callable[[bytes], T], remove: Callable[[bytes], object]
) -> Iterator[T]:
    """Read the entries of a key; one that `read` cannot read is removed."""
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
    logger.error("a foreign entry of %s is set aside: %r", key, entry[:100])


def move_other_types(redis: Redis, types: Mapping[str, str]) -> None:
    """Rename those of these keys that have another type than they should. Raises `RedisError`."""
    for key, type_ in types.items():
        found: Any = redis.type(key)
        if found not in (type_.encode(), b"none"):
            redis.rename(key, f"{key}:set-aside")
            count_refusal("keys")
            logger.error("%s is set aside, it is a %s and should be a %s", key, found.decode(), type_)


# Codes: which worker ran the calls of a run, with which version of their code (SPEC R11.9, R17.1).
#
# Many calls have the same one, so an entry that ends a call has its number (field `W`), and the run's hash `codes` has
# each once: its bytes, and the number. After so many of a run no more are noted.

_BETWEEN: Final = "\x1f"


@dataclass(frozen=True, slots=True)
class ExecutedBy:
    """The worker that ran a call, and the version of its code."""

    worker: str
    version: str | None
    """None where a model has answered."""

    def pack(self) -> str:
        """Write the field of the hash."""
        return f"{self.worker}{_BETWEEN}{self.version or ''}"

    @classmethod
    def unpack(cls, text: str) -> Self:
        """Read a field of the hash."""
        worker, _, version = text.partition(_BETWEEN)
        return cls(worker, version or None)


def codes_of(found: Any) -> dict[int, ExecutedBy]:
    """The codes of a run by their numbers, from its hash; without what is none of ours."""
    numbered = ((text.decode("utf-8", "replace"), number.decode()) for text, number in found.items())
    return {
        int(number): ExecutedBy.unpack(text) for text, number in numbered if number.isascii() and number.isdecimal()
    }
