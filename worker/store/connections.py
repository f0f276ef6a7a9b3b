"""Connections to Redis: every one of ours is made here, but for the broker's, which kombu makes
(`broker_config.transport_options`).

An address with `rediss://` is held against a certificate; over TCP the system is asked to notice a dead peer. What the
system cannot notice a worker does: its pools are watched (`silence`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final, cast

import hiredis
import redis
import redis.asyncio
import redis.asyncio.connection
import redis.cluster
import redis.connection
from redis import Redis as SyncRedis
from redis import exceptions
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode as AsyncClusterNode
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.cluster import ClusterNode
from redis.cluster import RedisCluster as SyncRedisCluster
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry as SyncRetry
from redis.sentinel import Sentinel

from ...broker_config import (
    KEEPALIVE,
    Settings,
    is_cluster,
    is_sentinel,
    mask_url,
    read_cluster,
    read_sentinels,
    servers_of,
)
from .. import limits
from ..broker.attempts import Tokens
from ..errors import InfrastructureError
from ..outages import Batcher, Outage, watched
from . import servers
from .keys import secret

_KEEPS: Final = "noeviction"
_OPTIONS: Final[dict[str, Any]] = {
    "socket_connect_timeout": 5,
    "socket_timeout": limits.REDIS_ANSWER_SECONDS,
    "socket_keepalive": True,
    "socket_keepalive_options": KEEPALIVE,
    "health_check_interval": 15,
    "max_connections": 1_000_000,  # as many as are needed: redis-py refuses the hundred and first otherwise
}


class NotNow(exceptions.ResponseError):
    """A server cannot write at the moment: its disk is full (MISCONF), or it lacks replicas (NOREPLICAS)."""


class AnswerLost(RedisConnectionError):
    """A script was sent to a node of a cluster, and no answer came: it may have been run, or not."""


_NAMED: Final = {"MISCONF": NotNow, "NOREPLICAS": NotNow}
"""The errors that redis-py takes for an error of the command."""


class _Parser(redis.connection.DefaultParser):  # type: ignore[misc, valid-type]  # chosen at import
    """Reads answers as redis-py does, and names the errors of `_NAMED`."""

    EXCEPTION_CLASSES: ClassVar = {**redis.connection.DefaultParser.EXCEPTION_CLASSES, **_NAMED}


class _AsyncParser(redis.asyncio.connection.DefaultParser):  # type: ignore[misc, valid-type]  # as above
    """The parser of connections on an event loop."""

    EXCEPTION_CLASSES: ClassVar = {**redis.asyncio.connection.DefaultParser.EXCEPTION_CLASSES, **_NAMED}


PASSING: Final = (
    *(RedisConnectionError, RedisTimeoutError, NotNow, exceptions.OutOfMemoryError, exceptions.BusyLoadingError),
    *(exceptions.ReadOnlyError, exceptions.ClusterDownError, exceptions.TryAgainError, exceptions.SlotNotCoveredError),
)
"""The errors of a server that will take the same command later."""


def connect(settings: Settings) -> redis.Redis:
    """A client for threads. Connects when it is first used; where there are Sentinels, to the master they name then."""
    return _connect(settings, settings.require_redis(), _OPTIONS)


def connect_soon(settings: Settings, *, timeout_seconds: float) -> redis.Redis:
    """A client that waits for an answer no longer than that, and tries once more on a new connection."""
    timeouts = {"socket_connect_timeout": timeout_seconds, "socket_timeout": timeout_seconds}
    retry = SyncRetry(NoBackoff(), 1)
    return _connect(settings, settings.require_redis(), {**_OPTIONS, **timeouts, "retry": retry})


def connect_once(settings: Settings, url: str, *, timeout_seconds: float) -> redis.Redis:
    """A client that says at once what is wrong with a server: it waits no longer than that, and tries once."""
    retry = SyncRetry(NoBackoff(), 0)
    timeouts = {"socket_connect_timeout": timeout_seconds, "socket_timeout": timeout_seconds}
    return _connect(settings, url, {**timeouts, "retry": retry})


def _connect(settings: Settings, url: str, options: Mapping[str, Any]) -> redis.Redis:
    if len(urls := servers_of(url)) > 1:
        return servers.Servers(
            [_server(settings, urls, each, options) for each in range(len(urls))], settings.key_prefix
        )
    if url == settings.effective_redis_url and not is_cluster(url):
        options = {**options, "redis_connect_func": servers.refusing_one_of_several(settings.key_prefix, mask_url(url))}
    return _connect_one(settings, url, options)


def _server(settings: Settings, urls: Sequence[str], position: int, options: Mapping[str, Any]) -> servers.Server:
    wait = limits.PING_ANSWER_SECONDS
    name = f"server {position + 1} of {len(urls)} of the log, {mask_url(urls[position])},"
    few = {"retry": SyncRetry(NoBackoff(), 1), **options}
    once = {**options, "socket_connect_timeout": wait, "socket_timeout": wait, "retry": SyncRetry(NoBackoff(), 0)}
    client, asking = (_connect_one(settings, urls[position], each) for each in (few, once))
    return servers.Server(name, position, client, asking)


def _connect_one(settings: Settings, url: str, options: Mapping[str, Any]) -> redis.Redis:
    if is_cluster(url):
        first, others = read_cluster(url)
        nodes = [ClusterNode(*place) for place in others]  # type: ignore[no-untyped-call]  # redis has none here
        return cast("redis.Redis", _Cluster.from_url(first, startup_nodes=nodes, **options))
    if not is_sentinel(url):
        direct = redis.Redis.from_url(url, parser_class=_Parser, **_fitting(url, options))
        watched(direct.connection_pool)
        return direct
    places, master = _sentinels(url)
    sentinel = Sentinel(places, sentinel_kwargs=_of_sentinels(settings))  # type: ignore[no-untyped-call]  # redis has none here
    client: redis.Redis = sentinel.master_for(  # type: ignore[no-untyped-call]  # as above
        settings.sentinel_master, parser_class=_Parser, **master, **options
    )
    watched(client.connection_pool)
    return client


def _fitting(url: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that connections to an address take: a unix socket has none of TCP's."""
    return {name: value for name, value in options.items() if not url.startswith("unix:") or "keepalive" not in name}


def connect_async(settings: Settings) -> redis.asyncio.Redis:
    """A client for a worker's event loop. Connects when it is first used.

    It outlasts a server that is away, full or starting: a commit is repeated until it is taken, since all of ours may
    be sent twice. A task that needs a connection while all are in use waits for one.
    """
    options: dict[str, Any] = {
        **_OPTIONS,
        "socket_timeout": None,  # `grouping` sees to it, once for many answers
        "retry": Retry(ExponentialBackoff(cap=2.0, base=0.05), retries=-1),
        "retry_on_error": [*PASSING],
    }
    return _connect_async(settings, options, _worker_pool)


def connect_async_client(settings: Settings) -> redis.asyncio.Redis:
    """A client for an event loop that waits for runs: a blocked reading has a connection, and there may be many."""
    return _connect_async(settings, _OPTIONS, redis.asyncio.ConnectionPool.from_url)


_MakePool = Callable[..., redis.asyncio.ConnectionPool]


def _worker_pool(url: str, **options: Any) -> redis.asyncio.ConnectionPool:
    few = {**options, "max_connections": limits.REDIS_CONNECTIONS, "timeout": None}
    pool = redis.asyncio.BlockingConnectionPool.from_url(url, **few)
    watched(pool)
    return pool


def _connect_async(settings: Settings, options: Mapping[str, Any], make_pool: _MakePool) -> redis.asyncio.Redis:
    url = settings.require_redis()
    if len(urls := servers_of(url)) > 1:
        asking = connect_soon(settings, timeout_seconds=limits.PING_ANSWER_SECONDS)
        assert isinstance(asking, servers.Servers)
        return servers.AsyncServers([_connect_async_one(settings, one, options, make_pool) for one in urls], asking)
    return _connect_async_one(settings, url, options, make_pool)


def _connect_async_one(
    settings: Settings, url: str, options: Mapping[str, Any], make_pool: _MakePool
) -> redis.asyncio.Redis:
    if is_cluster(url):
        return _connect_async_to_cluster(url)
    if is_sentinel(url):
        return _connect_async_to_master(settings, url, options)
    return redis.asyncio.Redis.from_pool(make_pool(url, parser_class=_AsyncParser, **_fitting(url, options)))


class _Cluster(redis.cluster.RedisCluster):
    """The client of a cluster, where it differs from the client of one server.

    It sends a command again whose answer was lost with a node. A script of ours may have been run then, and a
    message that is sent twice is there twice: the caller gets the error, as with one server.
    """

    def _execute_command(self, target_node: Any, *args: Any, **options: Any) -> Any:
        try:
            return super()._execute_command(target_node, *args, **options)  # type: ignore[no-untyped-call]  # as above
        except (RedisConnectionError, RedisTimeoutError) as error:
            if args[0] in servers.SCRIPTS:
                raise AnswerLost(str(error)) from error
            raise

    def time(self, **_: Any) -> Any:
        """The time of one node: their clocks are held together, and all of them would be asked."""
        return self.execute_command("TIME", target_nodes=redis.RedisCluster.DEFAULT_NODE)  # type: ignore[no-untyped-call]  # as above


def _connect_async_to_cluster(url: str) -> redis.asyncio.Redis:
    """Commands that fail are repeated by the group they are in (`GroupedCommands`), which outlasts a failover."""
    first, places = read_cluster(url)
    nodes = [AsyncClusterNode(*place) for place in places]
    client = redis.asyncio.RedisCluster.from_url(first, startup_nodes=nodes, **_OPTIONS)
    return cast("redis.asyncio.Redis", client)


def _connect_async_to_master(settings: Settings, url: str, options: Mapping[str, Any]) -> redis.asyncio.Redis:
    places, master = _sentinels(url)
    sentinel = AsyncSentinel(places, sentinel_kwargs=_of_sentinels(settings))  # type: ignore[no-untyped-call]  # as above
    client: redis.asyncio.Redis = sentinel.master_for(
        settings.sentinel_master, parser_class=_AsyncParser, **master, **options
    )
    watched(client.connection_pool)
    return client


def _sentinels(url: str) -> tuple[list[tuple[str, int]], dict[str, Any]]:
    """Where the Sentinels are, and how the master is entered."""
    read = read_sentinels(url)
    return [*read.places], {"username": read.username, "password": read.password, "db": read.database}


def _of_sentinels(settings: Settings) -> dict[str, Any]:
    """How the Sentinels themselves are entered."""
    password = settings.sentinel_password
    return {
        "password": password.get_secret_value() if password is not None else None,
        "socket_connect_timeout": _OPTIONS["socket_connect_timeout"],
        "socket_timeout": _OPTIONS["socket_connect_timeout"],
    }


def eviction_warning(redis: redis.Redis, settings: Settings) -> str | None:
    """A warning where the log's server may throw keys away; None where it may not, or may not be asked."""
    try:
        found: Any = redis.info("memory")
    except (RedisError, exceptions.RedisClusterException):
        return None
    policy = found.get("maxmemory_policy", _KEEPS)
    if policy == _KEEPS:
        return None
    where = mask_url(settings.require_redis())
    return (
        f"the log at {where} has maxmemory-policy {policy}: when its memory is full it throws away parts of runs. "
        "CONFIG SET maxmemory-policy noeviction, and in its file"
    )


def require_servers(settings: Settings) -> None:
    """Raise `InfrastructureError` where other servers of the log are named than those that hold it; one that is away is
    asked later.
    """
    try:
        with connect_once(settings, settings.require_redis(), timeout_seconds=limits.SERVING_ASKED_SECONDS) as log:
            log.exists(secret(settings.key_prefix))
    except servers.OtherServers as error:
        raise InfrastructureError(str(error)) from error
    except (RedisError, exceptions.RedisClusterException):
        pass


@contextmanager
def redis_errors(settings: Settings) -> Iterator[None]:
    """Turn what the Redis client raises into an `InfrastructureError` that says what to do."""
    try:
        yield
    except (RedisError, exceptions.RedisClusterException) as error:
        raise InfrastructureError(_advice(error, mask_url(settings.require_redis()))) from error


def _advice(error: Exception, where: str) -> str:
    match error:
        case exceptions.AuthenticationError():
            return f"the log at {where} needs the right password ({error}): redis://:PASSWORD@HOST:PORT/0"
        case RedisConnectionError() if "CERTIFICATE_VERIFY_FAILED" in str(error):
            advice = "name the authority that signed it with ?ssl_ca_certs=FILE in the URL"
            return f"the certificate of the log at {where} is not to be trusted ({error}): {advice}"
        case servers.ServerAway():
            return f"{error}; runs on the other servers go on: see `acts doctor`"
        case RedisConnectionError() | RedisTimeoutError():
            return f"no answer from the log at {where} ({error}): does the server run? see `acts doctor`"
        case exceptions.OutOfMemoryError():
            advice = (
                "raise its maxmemory, or delete runs that have ended (`acts delete --free 500MB`); see `acts doctor`"
            )
            return f"the log at {where} is full ({error}): {advice}"
        case NotNow():
            advice = "give its disk room (MISCONF), or bring back its replicas (NOREPLICAS)"
            return f"the log at {where} takes nothing at the moment ({error}): {advice}"
        case exceptions.MovedError():
            return "the log's server is part of a Redis Cluster: write ACTS_REDIS_URL=redis+cluster://HOST:PORT"
        case servers.OtherServers():
            return str(error)
        case exceptions.RedisClusterException():
            return f"no answer from the cluster of the log at {where} ({error})"
    return f"the log refuses: {error}"


# Grouping: commands that are asked for in one turn of the event loop go out in one pipeline.
#
# A lane's opening, claim and commit are one command each, and many lanes run on one loop: together they cost one write,
# one read and one wake-up of the loop, instead of one each.

logger = logging.getLogger(__name__)


Command = tuple[Any, ...]


class GroupedCommands:
    """Sends commands for the tasks of one event loop. A command may be sent twice, where its answer was lost.

    What the server will take later - it is full, loading or away - is repeated until it takes it.
    """

    def __init__(self, redis: Redis, position: int | None = None) -> None:
        """`position` is the one of several servers to which all go."""
        self._redis = redis
        self._position = position
        self._parts: tuple[GroupedCommands, ...] = ()
        """A group for each server, where there are several."""
        if isinstance(redis, servers.AsyncServers) and position is None:
            self._parts = tuple(type(self)(redis, each) for each in range(len(redis.clients)))
        self._scripts: dict[str, str] = {}
        self._idle: list[AbstractConnection] = []
        """Connections of the pool that are kept, as many as there are pipelines."""
        self._batcher = Batcher[Command, Any](
            self._ask,
            size_of=_size,
            under_way=limits.PIPELINES,
            passing=PASSING,
            outage=Outage(logger, "a command to the log"),
        )

    def register_script(self, text: str) -> str:
        """Make a script known; returns what `run_script` takes."""
        sha: str = self._redis.register_script(text).sha
        self._scripts[sha] = text
        return sha

    async def run_script(self, sha: str, keys: tuple[str, ...], *arguments: Any) -> Any:
        """Run a registered script. Raises `RedisError`, as `execute` does."""
        try:
            return await self.execute("EVALSHA", sha, len(keys), *keys, *arguments)
        except exceptions.NoScriptError:
            return await self.execute("EVAL", self._scripts[sha], len(keys), *keys, *arguments)

    def execute(self, *command: Any) -> asyncio.Future[Any]:
        """Send a command to the server; returns the future of its answer."""
        if self._parts:
            return self._parts[servers.position_of(command, len(self._parts))].execute(*command)
        return self._batcher.hand_in(command)

    async def _ask(self, commands: list[Command]) -> list[Any]:
        """The answers to commands, each of which may be an error."""
        if isinstance(self._redis, servers.AsyncServers) and self._position is not None:
            async with self._redis.using(self._position) as server:
                return await self._ask_one(server, commands)
        return await self._ask_one(self._redis, commands)

    async def _ask_one(self, redis: Redis, commands: list[Command]) -> list[Any]:
        if isinstance(redis, RedisCluster):
            async with redis.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                return await pipeline.execute(raise_on_error=False)
        try:
            async with asyncio.timeout(limits.REDIS_ANSWER_SECONDS) as silence:
                connection = self._idle.pop() if self._idle else await redis.connection_pool.get_connection()  # type: ignore[no-untyped-call]  # redis has none here
                try:
                    return await self._answers(connection, commands, silence)
                finally:
                    self._idle.append(connection)  # one that has failed is closed, and connects anew
        except TimeoutError as error:
            raise RedisTimeoutError(f"no answer for {limits.REDIS_ANSWER_SECONDS} s") from error

    async def _answers(
        self, connection: AbstractConnection, commands: Sequence[Command], silence: asyncio.Timeout
    ) -> list[Any]:
        if not connection.is_connected:
            # Sending alone does not ask the Sentinels again.
            await connection.connect()  # type: ignore[no-untyped-call]  # as above
        await _send(connection, b"".join(map(hiredis.pack_command, commands)))
        loop, answers = asyncio.get_running_loop(), []
        since = loop.time()
        for command in commands:
            answers.append(await self._answer(connection, command[0]))
            if (now := loop.time()) - since > 1:  # to move the timeout for each answer costs more than reading it
                silence.reschedule(now + limits.REDIS_ANSWER_SECONDS)
                since = now
        return answers

    async def _answer(self, connection: AbstractConnection, command: str) -> Any:
        try:
            answer = await connection.read_response()
        except exceptions.ResponseError as error:
            return error
        read = self._redis.response_callbacks.get(command)
        return answer if read is None else read(answer)


async def _send(connection: AbstractConnection, data: bytes) -> None:
    try:
        await connection.send_packed_command(data)
    except AttributeError as error:  # Python 3.13's transport, where the connection was reset meanwhile
        await connection.disconnect(nowait=True)
        raise RedisConnectionError("the connection was reset") from error


def server_facts(client: SyncRedis, *section: str) -> list[Mapping[str, Any]]:
    """Read `INFO` of a server, of each of several that is there, or of a cluster's with data. Raises `RedisError`."""
    if isinstance(client, servers.Servers):
        return [facts for one in client.each() for facts in server_facts(one, *section)]
    if isinstance(client, SyncRedisCluster):
        nodes: Any = client.info(*section, target_nodes=SyncRedisCluster.PRIMARIES)
        return [*nodes.values()]
    facts: Any = client.info(*section)
    return [facts]


def _size(command: Command) -> int:
    return sum(len(part) for part in command if isinstance(part, bytes))


# The log's secret: made by the first process that needs it, and the same for all from then on.


def new_secret() -> bytes:
    """Bytes that cannot be guessed."""
    return secrets.token_bytes(limits.SECRET_BYTES)


def read_tokens(redis: SyncRedis, prefix: str) -> Tokens:
    """The tokens of a backend. Raises `RedisError`."""
    key = secret(prefix)
    found: Any = redis.get(key)
    if found is None:
        redis.setnx(key, new_secret())
        found = redis.get(key)
    return Tokens(found)
