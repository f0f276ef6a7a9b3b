"""Where to connect: the addresses of the broker, the log and a result backend."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    Field,
    PrivateAttr,
    Secret,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from .errors import NotConfigured

# Celery (kombu) and redis-py write the same unix socket differently: ``redis+socket:///path?virtual_host=1``
# and ``unix:///path?db=1``. TCP addresses are the same for both. A URL may carry a password, so `SecretUrl`
# shows itself masked wherever it is printed.

BROKER_SCHEMES = ("redis", "rediss", "redis+socket", "sentinel", "amqp", "amqps")
"""Schemes of a broker's URL."""

CLUSTER_SCHEMES = ("redis+cluster", "rediss+cluster")
"""Schemes of a Redis Cluster, which can hold the log and no broker (kombu cannot use one)."""

REDIS_SCHEMES = ("redis", "rediss", "unix", "sentinel", *CLUSTER_SCHEMES)
"""Schemes of the log's URL."""

MASK = "***"
_RESULT_BACKENDS = ("redis", "rediss", "redis+socket", "sentinel", "rpc")
_PORT = 6_379
_SENTINEL_PORT = 26_379

# Only a `;` that begins another URL separates two: a password may hold one of its own.
_NEXT_URL = re.compile(r";(?=[A-Za-z][A-Za-z0-9+.-]*://)")
# Likewise a `,`: it separates the servers of a log that has several.
_NEXT_SERVER = re.compile(r"\s*,\s*(?=[A-Za-z][A-Za-z0-9+.-]*://)")
# Greedy up to the last `@`, so that a password with an unescaped `@` or `/` is covered whole.
_CREDENTIALS = re.compile(r"^(?P<scheme>[^:/?#]+://)(?P<credentials>.*)@(?P<rest>[^@]*)$", re.DOTALL)
_SECRET_PARAMETER = re.compile(r"(?i)([?&][^=&]*(?:passw|pwd|secret|token|credential|api_?key)[^=&]*=)[^&]*")


class SecretUrl(Secret[str]):
    """A URL that prints without its password; `get_secret_value` gives the whole."""

    def _display(self) -> str:
        """Return what `str` and `repr` show."""
        return mask_url(self.get_secret_value())

    def secrets(self) -> Iterator[str]:
        """Yield its passwords, as they are written and decoded."""
        for parts in _split(self.get_secret_value()):
            yield from (parts.password or "", unquote(parts.password or ""))


class SecretAddress(SecretUrl):
    """A web address that prints without its password and its query, which may have a key."""

    def _display(self) -> str:
        """Return what `str` and `repr` show."""
        address, question, _ = self.get_secret_value().partition("?")
        return mask_url(address) + (f"?{MASK}" if question else "")

    def secrets(self) -> Iterator[str]:
        """Yield its passwords, and the values of its query."""
        yield from super().secrets()
        for parts in _split(self.get_secret_value()):
            yield from (value for _, value in parse_qsl(parts.query))
            yield from (part.partition("=")[2] for part in parts.query.split("&"))


def in_clear(secret: SecretStr | Secret[str]) -> str:
    """Return a secret as it is, to hand on and never to show."""
    return secret.get_secret_value()


def masked(secret: SecretStr | Secret[str]) -> str:
    """Return a secret fit to be shown."""
    return str(secret) if isinstance(secret, SecretUrl) else MASK


def as_json(value: Any, show: Callable[[SecretStr | Secret[str]], str]) -> Any:
    """Return the value of a setting as JSON has it, each secret in it as `show` gives it."""
    match value:
        case SecretStr() | Secret():
            return show(value)
        case BaseModel():
            return {name: as_json(getattr(value, name), show) for name in type(value).model_fields}
        case dict():
            return {key: as_json(item, show) for key, item in value.items()}
        case tuple():
            return [as_json(item, show) for item in value]
        case ByteSize():
            return int(value)
        case Decimal():
            return str(value)
    return value


def servers_of(url: str) -> tuple[str, ...]:
    """Return the addresses of a log's servers, which `,` divides, in their order; most logs have one."""
    return tuple(_NEXT_SERVER.split(url))


def _split(urls: str) -> Iterator[SplitResult]:
    for url in (one for server in servers_of(urls) for one in server.split(";")):
        with suppress(ValueError):
            yield urlsplit(url)


def mask_url(url: str) -> str:
    """Return `url` with every password replaced by ``***``; several URLs may be joined by ``;``, or by ``,``.

    A lone user name is masked as well, because that is where people put a password by mistake.
    """
    return ",".join(";".join(map(_mask_one, _NEXT_URL.split(server))) for server in servers_of(url))


def scheme_of(url: str) -> str:
    """Return the scheme in lower case, or an empty string where there is none."""
    scheme, separator, _ = url.partition("://")
    return scheme.lower() if separator else ""


def redis_url_of(broker_url: str) -> str | None:
    """Return the form of a broker's URL in which it holds the log; None where that cannot (AMQP, several servers)."""
    if is_sentinel(broker_url):
        return broker_url
    if _NEXT_URL.search(broker_url):
        return None
    match scheme_of(broker_url):
        case "redis" | "rediss":
            # kombu also accepts the names of Python's constants here; redis-py does not.
            return re.sub(r"(ssl_cert_reqs=)CERT_([A-Z]+)", lambda found: found[1] + found[2].lower(), broker_url)
        case "redis+socket":
            return _socket_url(broker_url, scheme="unix", database={"virtual_host": "db"})
        case _:
            return None


def is_cluster(url: str) -> bool:
    """Return whether all of an address, which `;` may divide, is one of a Redis Cluster."""
    return all(scheme_of(one) in CLUSTER_SCHEMES for one in _NEXT_URL.split(url))


def is_spread(url: str) -> bool:
    """Return whether an address names several places between which runs are divided: a cluster, or several servers."""
    return is_cluster(url) or len(servers_of(url)) > 1


def read_cluster(url: str) -> tuple[str, tuple[tuple[str, int], ...]]:
    """Read an address like ``redis+cluster://user:password@a:6379;redis+cluster://b:6379``.

    Returns the first part as redis-py writes it, which holds user, password and options for all nodes, and the places
    of the others; `check_url` has looked at it.
    """
    first, *others = _NEXT_URL.split(url)
    places = [urlsplit(one) for one in others]
    plain = first.replace("+cluster", "", 1)
    return plain, tuple((place.hostname or "localhost", place.port or _PORT) for place in places)


def is_sentinel(url: str) -> bool:
    """Return whether all of an address, which `;` may divide, is one of Sentinels."""
    return all(scheme_of(one) == "sentinel" for one in _NEXT_URL.split(url))


@dataclass(frozen=True, slots=True)
class Sentinels:
    """The parts of an address like ``sentinel://user:password@a:26379/0;sentinel://b:26379``.

    Read as by kombu: the first part holds user, password and database of the master, every part a Sentinel's place.
    """

    places: tuple[tuple[str, int], ...]
    username: str | None
    password: str | None = field(repr=False)
    database: int


def read_sentinels(url: str) -> Sentinels:
    """Read an address of Sentinels that `check_url` has checked."""
    parts = [urlsplit(one) for one in _NEXT_URL.split(url)]
    user, password = parts[0].username, parts[0].password
    return Sentinels(
        places=tuple((part.hostname or "localhost", part.port or _SENTINEL_PORT) for part in parts),
        username=unquote(user) if user else None,
        password=unquote(password) if password else None,
        database=int(parts[0].path.strip("/") or 0),
    )


def broker_url_of(redis_url: str) -> str:
    """Return the kombu form of a redis-py URL: of the first server, where there are several."""
    first, *_ = servers_of(redis_url)
    if scheme_of(first) == "unix":
        return _socket_url(first, scheme="redis+socket", database={"db": "virtual_host"})
    return first


def check_broker_url(value: SecretUrl) -> SecretUrl:
    """Return a broker's address as Celery reads it; raise ValueError for a wrong one."""
    if len(servers_of(value.get_secret_value())) > 1:
        raise ValueError("several servers hold the log (ACTS_REDIS_URL) and no broker: name one of them for the broker")
    return SecretUrl(check_url(broker_url_of(value.get_secret_value()), schemes=BROKER_SCHEMES))


def check_redis_url(value: SecretUrl) -> SecretUrl:
    """Return the log's address as redis-py reads it; raise ValueError for a wrong one."""
    urls = servers_of(value.get_secret_value().strip().rstrip(","))
    servers = [check_url(redis_url_of(url) or url, schemes=REDIS_SCHEMES) for url in urls]
    if len(servers) > 1 and any(map(is_cluster, servers)):
        raise ValueError("a Redis Cluster divides the runs itself: name it alone")
    if len(servers) > len({*servers}):
        raise ValueError("a server of the log is named twice")
    return SecretUrl(",".join(servers))


def check_result_backend(value: SecretUrl) -> SecretUrl:
    """Return a result backend's address; raise ValueError for a scheme by which Celery would import a module."""
    if (scheme := scheme_of(value.get_secret_value())) not in _RESULT_BACKENDS:
        raise ValueError(f"a result backend is one of {', '.join(_RESULT_BACKENDS)}, and not {scheme!r}")
    return value


def check_url(url: str, *, schemes: tuple[str, ...]) -> str:
    """Return `url` stripped; raise ValueError saying what is wrong with it, password masked."""
    url = url.strip()
    for one in _NEXT_URL.split(url):
        scheme = scheme_of(one)
        if scheme in CLUSTER_SCHEMES and scheme not in schemes:
            raise ValueError(
                f"{mask_url(one)!r}: a Redis Cluster holds the log (ACTS_REDIS_URL) and no broker; give the broker a "
                "server, or Sentinels (sentinel://a:26379;sentinel://b:26379)"
            )
        if scheme not in schemes:
            known = ", ".join(f"{name}://" for name in schemes)
            raise ValueError(f"{mask_url(one)!r} should begin with one of {known} (e.g. redis://localhost:6379/0)")
        parts = urlsplit(one)
        try:
            parts.port  # noqa: B018 - reading the property is the check
        except ValueError:
            raise ValueError(f"{mask_url(one)!r} has a port that is not a number from 0 to 65535") from None
        if scheme in ("redis", "rediss", "sentinel") and not re.fullmatch(r"/?|/\d+/?", parts.path):
            raise ValueError(f"{mask_url(one)!r} names a database that is not a number")
        if scheme in CLUSTER_SCHEMES and parts.path.strip("/0"):
            raise ValueError(f"{mask_url(one)!r} names a database; a Redis Cluster has only one")
        if scheme in ("unix", "redis+socket") and not parts.path.strip("/"):
            raise ValueError(f"{mask_url(one)!r} names no socket (e.g. {scheme}:///run/redis/redis.sock)")
    return url


def _mask_one(url: str) -> str:
    address, question, query = url.partition("?")
    if "@" in query:
        # An unescaped `?` inside the password: everything up to the last `@` counts as credentials.
        address, question, query = url, "", ""
    if found := _CREDENTIALS.match(address):
        user, colon, _ = found["credentials"].partition(":")
        address = f"{found['scheme']}{user + colon if colon else ''}{MASK}@{found['rest']}"
    return _SECRET_PARAMETER.sub(rf"\g<1>{MASK}", address + question + query)


def _socket_url(url: str, *, scheme: str, database: dict[str, str]) -> str:
    parts = urlsplit(url)
    query = urlencode([(database.get(name, name), value) for name, value in parse_qsl(parts.query)])
    # urlunsplit would drop the empty authority's slashes for these schemes.
    return f"{scheme}://{parts.netloc}{parts.path}" + (f"?{query}" if query else "")


def unverified_hosts(url: str) -> tuple[str, ...]:
    """Return the hosts of an address (several joined by ;) whose certificate is not to be verified, in their order."""
    found = [urlsplit(one) for server in servers_of(url) for one in _NEXT_URL.split(server)]
    hosts = [(one.hostname, dict(parse_qsl(one.query.lower()))) for one in found if one.scheme.startswith("rediss")]
    return tuple(host for host, options in hosts if host and _is_loose(options))


def _is_loose(options: Mapping[str, str]) -> bool:
    reqs = options.get("ssl_cert_reqs", "required").removeprefix("cert_")
    return reqs != "required" or options.get("ssl_check_hostname", "true") in ("false", "0", "no", "off")


def plain_hosts(url: str) -> tuple[str, ...]:
    """Return the remote hosts of an address (several joined by ;) that are reached without encryption."""
    found = [urlsplit(one) for server in servers_of(url) for one in server.split(";")]
    hosts = [one.hostname for one in found if one.scheme in ("redis", "amqp", "sentinel", "redis+cluster")]
    return tuple(
        host for host in hosts if host and host != "localhost" and not host.startswith("127.") and host != "::1"
    )


def check_site(value: str) -> str:
    """Return the address of one of our web servers without a `/` at its end; raise ValueError for a wrong one."""
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("should be http:// or https://, a host, and perhaps a port")
    if parts.path not in ("", "/") or parts.username is not None:
        raise ValueError("the server is at the root of a host: it has no path, user or password")
    return value.rstrip("/")


BrokerUrl = Annotated[SecretUrl, AfterValidator(check_broker_url)]
RedisUrl = Annotated[SecretUrl, AfterValidator(check_redis_url)]
Site = Annotated[str, AfterValidator(check_site)]

FOUND: Final[JsonDict] = {"found": "any"}
"""Metadata of a setting that a found `.env` may set: one in the current folder that `ACTS_ENV_FILE` does not name.

Such a file may come with a cloned repository, so these settings decide neither what runs, nor where data goes, nor what
is written, nor who has access.
"""
TIGHTER: Final[JsonDict] = {"found": "lower"}
"""Metadata of a limit that a found `.env` may lower but not raise."""
SECRET: Final[JsonDict] = {"secret": True}
"""Metadata of a setting whose value is masked wherever settings are shown."""


def setting(default: Any, description: str, marks: JsonDict | None = None, **constraints: Any) -> Any:
    """Declare a setting, with its text in docs/reference.md, and what `FOUND`, `TIGHTER` and `SECRET` say of it."""
    return Field(default, description=description, json_schema_extra=marks, **constraints)


def _split_commas(value: object) -> object:
    return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value


# pydantic-settings would parse these as JSON; we want `a,b`.
CommaSeparated = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_commas)]


def read_object(value: object) -> object:
    """Return the object that a text holds as JSON, None for an empty one, and any other value as it is.

    Raises ValueError, without the text, which may hold a key.
    """
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value.strip() else None
    except ValueError:
        raise ValueError("must be JSON: an object") from None


ENVIRONMENT_PREFIX = "ACTS_"
"""Prefix of the name of every environment variable of ours."""


class AddressSettings(BaseSettings):
    """The settings that say where to connect, and how all settings are read (see `settings`)."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX,
        env_file=".env",
        env_file_encoding="utf-8",
        frozen=True,
        # A .env file is shared with other programs; `variables.unknown_variables` finds our misspelt ones.
        extra="ignore",
        hide_input_in_errors=True,
        # `model` and `model_*` are settings of ours, not pydantic's.
        protected_namespaces=(),
    )
    _is_embedded: bool = PrivateAttr(False)

    broker_url: BrokerUrl | None = setting(
        None,
        "Celery's broker: redis, rediss, redis+socket, sentinel (several joined by ;), amqp or amqps. Unset: "
        "`redis_url`, or its first server. Do not give a password with --broker: all users of the machine can see it.",
        SECRET,
    )
    redis_url: RedisUrl | None = setting(
        None,
        "The Redis that holds the log: redis, rediss, unix, or sentinel (several joined by ;). Several servers are "
        "joined by commas, and divide the runs: see docs/capacity.md. Unset: the broker, if that is a Redis.",
        SECRET,
    )
    sentinel_master: str = setting("mymaster", "The master's name, for sentinel:// addresses.", FOUND)
    sentinel_password: SecretStr | None = setting(None, "The Sentinels' password, if they need one.", SECRET | FOUND)
    queue_type: Literal["classic", "quorum"] = setting(
        "classic",
        "The type of new queues on RabbitMQ; `quorum` keeps each on several nodes. Existing queues keep their type.",
        FOUND,
    )
    broker_connections: int = setting(
        4,
        "The most connections to the broker on which a worker process publishes and reports. "
        "Those on which it takes tasks come on top: see docs/deploying.md.",
        FOUND,
        ge=2,
    )
    result_backend_url: Annotated[SecretUrl, AfterValidator(check_result_backend)] | None = setting(
        None, "Celery's result backend, for Celery tasks of your own. acts-celery needs none.", SECRET
    )

    @field_validator("*", mode="before")
    @classmethod
    def _empty_means_default(cls, value: object, info: ValidationInfo) -> object:
        if isinstance(value, str) and not value.strip() and info.field_name is not None:
            return cls.model_fields[info.field_name].get_default()
        return value

    @model_validator(mode="after")
    def _check_queue_type(self) -> Self:
        url = self.effective_broker_url
        if self.queue_type == "quorum" and url is not None and not scheme_of(url).startswith("amqp"):
            raise ValueError(f"{ENVIRONMENT_PREFIX}QUEUE_TYPE: quorum queues are RabbitMQ's: use an amqp:// broker")
        return self

    @property
    def effective_broker_url(self) -> str | None:
        """The broker's URL as Celery wants it: the one given, or else derived from `redis_url`."""
        if self.broker_url is not None:
            return self.broker_url.get_secret_value()
        return None if self.redis_url is None else broker_url_of(self.redis_url.get_secret_value())

    @property
    def effective_redis_url(self) -> str | None:
        """The log's URL: the one given, or the broker's if that is one Redis, or Sentinels."""
        if self.redis_url is not None:
            return self.redis_url.get_secret_value()
        return None if self.broker_url is None else redis_url_of(self.broker_url.get_secret_value())

    def require_broker(self) -> str:
        """Return the broker's URL for Celery; raise `NotConfigured` where there is none."""
        if (url := self.effective_broker_url) is not None:
            return url
        raise NotConfigured(
            f"no broker is configured: set {ENVIRONMENT_PREFIX}BROKER_URL, e.g. redis://localhost:6379/0, "
            "or use --broker; `acts run` brings an embedded one"
        )

    def require_redis(self) -> str:
        """Return the log's URL; raise `NotConfigured` where there is none."""
        if (url := self.effective_redis_url) is not None:
            return url
        if self.broker_url is None:
            raise NotConfigured(
                f"no broker is configured, and no Redis for the log: set {ENVIRONMENT_PREFIX}BROKER_URL, "
                "e.g. redis://localhost:6379/0, or use --broker; `acts run` brings an embedded one"
            )
        raise NotConfigured(
            f"the broker ({scheme_of(self.broker_url.get_secret_value())}) cannot hold the log: set "
            f"{ENVIRONMENT_PREFIX}REDIS_URL, e.g. redis://localhost:6379/0, or use --redis"
        )

    def with_embedded(self, *, broker_url: str, redis_url: str) -> Self:
        """Return a copy that uses the two addresses of an `EmbeddedServer`."""
        own = self.model_copy(update={"broker_url": SecretUrl(broker_url), "redis_url": SecretUrl(redis_url)})
        own._is_embedded = True
        return own

    @property
    def is_embedded(self) -> bool:
        """Whether the server is there for one process alone: once gone it does not come back."""
        return self._is_embedded
