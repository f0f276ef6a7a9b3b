"""The servers of a log that has several: each run is whole on one of them, and its id says on which, by the slot that a
Redis Cluster would give its keys. What belongs to no run is on the first.

Each server keeps which place of which list it has, from the first use on: a process that names other servers, or these
in another order, would look for runs where they are not, and is refused. A server that does not answer is asked again a
moment later, and until then its commands fail at once, so that it holds up no others.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

import redis.asyncio
from redis import Redis
from redis.client import Pipeline
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from .. import limits
from .keys import BESIDE_RUNS, Keys, active_runs, ended_runs, make_run_id, place, secret


class ServerAway(RedisConnectionError):
    """One of several servers of a log does not answer."""


class OtherServers(RedisError):
    """The servers of a log are not those that hold it, or not in their order: runs would be looked for elsewhere."""


SCRIPTS: Final = ("EVALSHA", "EVAL")
_OF_NO_KEY: Final = frozenset({"CONFIG GET", "CONFIG SET", "ECHO", "INFO", "PING", "SCRIPT EXISTS", "TIME"})


def position_of(command: Sequence[Any], servers: int) -> int:
    """Find which of so many servers has the key of a command, counted from 0."""
    name, *arguments = command
    if name in _OF_NO_KEY:
        return 0
    if name in SCRIPTS:
        key = arguments[2]
    elif name == "XREAD":
        key = arguments[next(at for at, one in enumerate(arguments) if one in (b"STREAMS", "STREAMS")) + 1]
    else:
        key = arguments[0]
    key = key if isinstance(key, bytes) else str(key).encode()
    tag = key.partition(b"{")[2].partition(b"}")[0]
    return 0 if not tag or tag in BESIDE_RUNS else key_slot(key) * servers // REDIS_CLUSTER_HASH_SLOTS


def unless_away(answers: Iterable[Any]) -> list[Any]:
    """Read the answers of a pipeline: None from a server that is away. Raises any other error."""
    found = [None if isinstance(answer, ServerAway) else answer for answer in answers]
    if (failed := next((one for one in found if isinstance(one, Exception)), None)) is not None:
        raise failed
    return found


def position_in(log: Redis, run: str) -> int:
    """Find which server of a log has a run: 0 where there is one."""
    return position_of(("GET", Keys("", run).state), len(log.servers)) if isinstance(log, Servers) else 0


def others_reached(log: Redis) -> list[int]:
    """Find which servers of a log answer now, beside the first one."""
    return [*filter(log.reaches, range(1, len(log.servers)))] if isinstance(log, Servers) else []


def new_run_id(log: Redis, milliseconds: int) -> str:
    """Make a run's id: of several servers, for one that is there."""
    made = make_run_id(milliseconds)
    if isinstance(log, Servers) and (log.reaches(0) or others_reached(log)):
        while not log.reaches(position_in(log, made)):
            made = make_run_id(milliseconds)
    return made


class Server:
    """One of several servers, and whether it can be used."""

    def __init__(self, name: str, position: int, client: Redis, asking: Redis) -> None:
        self.name = name
        self.position = position
        self.client = client
        self.asking = asking
        """A client that tries once, and does not wait for long."""
        self.is_known = False
        """Set once it has answered, and has this place in the list."""
        self._why = ""
        self._again = 0.0

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note where the server does not answer. Raises `ServerAway` for it."""
        if not self.is_known and time.monotonic() < self._again:
            raise ServerAway(self._why)
        try:
            yield
        except (ServerAway, AuthenticationError):
            raise
        except (RedisConnectionError, RedisTimeoutError) as error:
            self.is_known = False
            self._why = f"{self.name} does not answer ({error})"
            self._again = time.monotonic() + limits.PING_INTERVAL_SECONDS
            raise ServerAway(self._why) from error


class Servers(Redis):
    """The client of several servers, for threads."""

    def __init__(self, servers: Sequence[Server], prefix: str) -> None:
        super().__init__(connection_pool=servers[0].client.connection_pool)
        self.servers = servers
        self._prefix = prefix
        self._list: bytes | None = None
        """Which list this is, as the first server has it."""
        self._has_looked = False

    def use(self, position: int) -> Redis:
        """The client of a server that has its place in the list, as all have that are there when this is first called.
        Raises `ServerAway`, `OtherServers`.
        """
        if not self._has_looked:
            self._has_looked = True
            try:
                [*self.each()]
            except OtherServers:
                self._has_looked = False
                raise
        server = self.servers[position]
        if not server.is_known:
            with server.noting():
                self._check(server)
            server.asking.connection_pool.disconnect()
            server.is_known = True
        return server.client

    def reaches(self, position: int) -> bool:
        """Whether a server answers. Raises `OtherServers`."""
        try:
            client = self.use(position)
            with self.servers[position].noting():
                return bool(client.ping())
        except ServerAway:
            return False

    def each(self) -> Iterator[Redis]:
        """The clients of those that can be used. Raises `OtherServers`."""
        for server in self.servers:
            with suppress(ServerAway):
                yield self.use(server.position)

    def _check(self, server: Server) -> None:
        """Look whether a server has its place; one that has none yet takes it."""
        if (found := self._place(server)) is None:
            self._join(server)
            found = self._place(server)
            assert found is not None
        if server.position == 0:
            if self._list != found[0]:
                for other in self.servers[1:]:
                    other.is_known = False
            self._list = found[0]
        elif self._list is None:
            with suppress(ServerAway):
                self.use(0)
        list_, *place_ = found
        if self._list not in (None, list_) or place_ != [len(self.servers), server.position]:
            raise OtherServers(f"{server.name} {told(*place_)}")

    def _place(self, server: Server) -> tuple[bytes, int, int] | None:
        """Read which list a server is in, how many servers that has, and its place there; None if it has none."""
        found: Any = server.asking.hmget(place(self._prefix), "list", "servers", "position")
        return None if None in found else (found[0], int(found[1]), int(found[2]))

    def _join(self, server: Server) -> None:
        """Have a server take its place; the first one keeps which have one, so that one that has lost it is noticed."""
        key, asking, number = place(self._prefix), server.asking, server.position
        why = ""
        if asking.exists(active_runs(self._prefix), ended_runs(self._prefix), secret(self._prefix)):
            why = f"holds the runs of a log of one server: {_REMEDY}"
        elif number and self.use(0).hexists(key, f"joined:{number}"):
            why = (
                "has not the place that it had: it is another server, or has lost what it held. Restore it, or to do "
                f"without its runs, HDEL {key} joined:{number} on the first server"
            )
        if why and self._place(server) is None:  # else another client was at it
            raise OtherServers(f"{server.name} {why}")
        if not why:
            asking.hsetnx(key, "list", self._list or secrets.token_hex(limits.SECRET_BYTES))
            asking.hset(key, mapping={"servers": len(self.servers), "position": number})
            if number:
                self.use(0).hset(key, f"joined:{number}", 1)

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send a command to the server that has its key; a script to be loaded to each."""
        if args[0] == "SCRIPT LOAD":
            loaded = [one.execute_command(*args, **options) for one in self.each()]  # type: ignore[no-untyped-call]  # redis has none here
            return loaded[0] if loaded else None
        position = position_of(args, len(self.servers))
        client = self.use(position)
        with self.servers[position].noting():
            return client.execute_command(*args, **options)  # type: ignore[no-untyped-call]  # as above

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> Pipeline:
        """Make a pipeline whose commands go to their servers; a transaction is one of each server."""
        return ServersPipeline(self, transaction)

    def close(self) -> None:
        """Close the connections."""
        for server in self.servers:
            server.client.close()
            server.asking.close()


class ServersPipeline(Pipeline):
    """A pipeline to several servers: if one does not answer, its commands are errors and the others' run."""

    def __init__(self, servers: Servers, transaction: bool) -> None:
        super().__init__(servers.connection_pool, servers.response_callbacks, transaction, None)
        self._servers = servers

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """The answers, in the order of the commands. Raises the first error, or returns each in its place."""
        stack, scripts = self.command_stack, self.scripts
        self.reset()
        parts: dict[int, list[int]] = {}
        for at, (args, _) in enumerate(stack):
            parts.setdefault(position_of(args, len(self._servers.servers)), []).append(at)
        answers: list[Any] = [None] * len(stack)
        for position in sorted(parts):
            commands = [stack[at] for at in parts[position]]
            for at, answer in zip(parts[position], self._answers(position, commands, scripts), strict=True):
                answers[at] = answer
        if raise_on_error and (failed := next((one for one in answers if isinstance(one, Exception)), None)):
            raise failed
        return answers

    def _answers(self, position: int, commands: list[Any], scripts: set[Any]) -> list[Any]:
        try:
            client = self._servers.use(position)
            with self._servers.servers[position].noting(), client.pipeline(self.transaction) as pipeline:
                pipeline.command_stack, pipeline.scripts = commands, scripts
                return pipeline.execute(raise_on_error=False)
        except ServerAway as error:
            return [error] * len(commands)


class AsyncServers(redis.asyncio.Redis):
    """The client of several servers, for an event loop. `asking` looks at them in threads."""

    def __init__(self, clients: Sequence[redis.asyncio.Redis], asking: Servers) -> None:
        super().__init__(connection_pool=clients[0].connection_pool)
        self.clients = clients
        self.asking = asking

    @asynccontextmanager
    async def using(self, position: int) -> AsyncIterator[redis.asyncio.Redis]:
        """The client of a server that has its place in the list. Raises `ServerAway`, `OtherServers`."""
        server = self.asking.servers[position]
        if not server.is_known:
            await asyncio.to_thread(self.asking.use, position)
        with server.noting():
            yield self.clients[position]

    async def reaches(self, run: str) -> bool:
        """Whether the server of a run is there. Raises `OtherServers`."""
        try:
            async with self.using(position_in(self.asking, run)):
                return True
        except ServerAway:
            return False

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send a command to the server that has its key."""
        async with self.using(position_of(args, len(self.clients))) as client:
            return await client.execute_command(*args, **options)  # type: ignore[no-untyped-call]  # as above

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Close the connections."""
        for client in self.clients:
            await client.aclose(close_connection_pool)
        self.asking.close()


_REMEDY: Final = (
    "name its servers in ACTS_REDIS_URL, all of them and in their order. For other servers, begin with empty ones, and "
    "take the runs along with `acts export` and `acts import`"
)


def told(servers: int, position: int) -> str:
    """Say which place a server has, and what to do."""
    return f"is server {position + 1} of the {servers} of a log: {_REMEDY}"


def refusing_one_of_several(prefix: str, where: str) -> Callable[[Any], None]:
    """Make what redis-py calls with each new connection to a server that is named alone: the first asks whether that is
    one of several. Raises `OtherServers`.
    """
    asked = list[bool]()

    def connected(connection: Any) -> None:
        connection.on_connect()
        if not asked:
            connection.send_command("HMGET", place(prefix), "servers", "position", check_health=False)
            with suppress(NoPermissionError):
                if None not in (found := connection.read_response()):
                    raise OtherServers(f"the log at {where} {told(*map(int, found))}")
            asked.append(True)

    return connected
