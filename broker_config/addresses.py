"""Where to connect: the addresses of the broker, the log and a result backend."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Literal, Self
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from pydantic import Field, PrivateAttr, Secret, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic.config import JsonDict
from pydantic_settings import BaseSettings, SettingsConfigDict

from .errors import NotConfigured

# Addresses of brokers and of the log: which are accepted, how they are shown, how one becomes the other.
#
# Celery (kombu) and redis-py write the same unix socket differently: ``redis+socket:///path?virtual_host=1``
# and ``unix:///path?db=1``. TCP addresses are the same for both. A URL may carry a password, so `SecretUrl`
# shows itself masked wherever it is printed.

BROKER_SCHEMES = ("redis", "rediss", "redis+socket", "sentinel", "amqp", "amqps")
"""What a broker's URL may begin with."""

CLUSTER_SCHEMES = ("redis+cluster", "rediss+cluster")
"""What the URL of a Redis Cluster begins with: it can hold the log, and no broker (kombu cannot use one)."""

REDIS_SCHEMES = ("redis", "rediss", "unix", "sentinel", *CLUSTER_SCHEMES)
"""What the URL of the log may begin with."""

MASK = "***"
_PORT = 6_379
_SENTINEL_PORT = 26_379

# Only a `;` that begins another URL separates two: a password may hold one of its own.
_NEXT_URL = re.compile(r";(?=[A-Za-z][A-Za-z0-9+.-]*://)")
# Greedy up to the last `@`, so that a password with an unescaped `@` or `/` is covered whole.
_CREDENTIALS = re.compile(r"^(?P<scheme>[^:/?#]+://)(?P<credentials>.*)@(?P<rest>[^@]*)$", re.DOTALL)
_SECRET_PARAMETER = re.compile(r"(?i)([?&][^=&]*(?:passw|pwd|secret|token|credential|api_?key)[^=&]*=)[^&]*")


class SecretUrl(Secret[str]):
    """A URL that prints without its password; `get_secret_value` gives the whole."""

    def _display(self) -> str:
        """Return what `str` and `repr` show."""
        return mask_url(self.get_secret_value())

    def secrets(self) -> Iterator[str]:
        """Its passwords, as they are written and as they are meant."""
        for parts in _split(self.get_secret_value()):
            yield from (parts.password or "", unquote(parts.password or ""))


class SecretAddress(SecretUrl):
    """A web address that prints without its password and its query, in which a key may stand."""

    def _display(self) -> str:
        """Return what `str` and `repr` show."""
        address, question, _ = self.get_secret_value().partition("?")
        return mask_url(address) + (f"?{MASK}" if question else "")

    def secrets(self) -> Iterator[str]:
        """Its passwords, and what its query says."""
        yield from super().secrets()
        for parts in _split(self.get_secret_value()):
            yield from (value for _, value in parse_qsl(parts.query))
            yield from (part.partition("=")[2] for part in parts.query.split("&"))


def _split(urls: str) -> Iterator[SplitResult]:
    for url in urls.split(";"):
        with suppress(ValueError):
            yield urlsplit(url)


def mask_url(url: str) -> str:
    """Return `url` with every password replaced by ``***``; several URLs may be joined by ``;``.

    A lone user name is masked as well, because that is where people put a password by mistake.
    """
    return ";".join(_mask_one(one) for one in _NEXT_URL.split(url))


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
    """What an address like ``sentinel://user:password@a:26379/0;sentinel://b:26379`` says.

    As kombu reads it: the first part holds user, password and database of the master, every part a Sentinel's place.
    """

    places: tuple[tuple[str, int], ...]
    username: str | None
    password: str | None = field(repr=False)
    database: int


def read_sentinels(url: str) -> Sentinels:
    """Read an address of Sentinels; `check_url` has looked at it."""
    parts = [urlsplit(one) for one in _NEXT_URL.split(url)]
    user, password = parts[0].username, parts[0].password
    return Sentinels(
        places=tuple((part.hostname or "localhost", part.port or _SENTINEL_PORT) for part in parts),
        username=unquote(user) if user else None,
        password=unquote(password) if password else None,
        database=int(parts[0].path.strip("/") or 0),
    )


def broker_url_of(redis_url: str) -> str:
    """Return the kombu form of a redis-py URL."""
    if scheme_of(redis_url) == "unix":
        return _socket_url(redis_url, scheme="redis+socket", database={"db": "virtual_host"})
    return redis_url


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
    """The hosts whose certificate an address (several joined by ;) wants not to be verified, in their order."""
    found = [urlsplit(one) for one in _NEXT_URL.split(url)]
    asked = [(one.hostname, dict(parse_qsl(one.query.lower()))) for one in found if one.scheme.startswith("rediss")]
    return tuple(host for host, options in asked if host and _is_loose(options))


def _is_loose(options: Mapping[str, str]) -> bool:
    reqs = options.get("ssl_cert_reqs", "required").removeprefix("cert_")
    return reqs != "required" or options.get("ssl_check_hostname", "true") in ("false", "0", "no", "off")


def plain_hosts(url: str) -> tuple[str, ...]:
    """The other hosts that an address (several joined by ;) speaks to without encryption, in their order."""
    found = [urlsplit(one) for one in url.split(";")]
    hosts = [one.hostname for one in found if one.scheme in ("redis", "amqp", "sentinel", "redis+cluster")]
    return tuple(
        host for host in hosts if host and host != "localhost" and not host.startswith("127.") and host != "::1"
    )


def check_site(value: str | None) -> str | None:
    """The address of a web server of ours, without a `/` at its end. Raises ValueError for what is none."""
    if value is None:
        return None
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("should be http:// or https://, a host, and perhaps a port")
    if parts.path not in ("", "/") or parts.username is not None:
        raise ValueError("the server is at the root of a host: it has no path, user or password")
    return value.rstrip("/")


FOUND: Final[JsonDict] = {"found": "any"}
"""In the metadata of a setting: a `.env` that merely lies in the current folder, such as that of a repository that was
cloned, may say it. It decides neither what runs, nor where data goes, nor what is written or who may enter.
"""
TIGHTER: Final[JsonDict] = {"found": "lower"}
"""Likewise, as long as it is not more than the default."""
SECRET: Final[JsonDict] = {"secret": True}
"""In the metadata of a setting: it may hold what must not be shown."""

ENVIRONMENT_PREFIX = "ACTS_"
"""What the name of every environment variable of ours begins with."""

_RESULT_BACKENDS = ("redis", "rediss", "redis+socket", "sentinel", "rpc")


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

    broker_url: SecretUrl | None = Field(
        None,
        description="Celery's broker: redis, rediss, redis+socket, sentinel (several joined by ;), amqp or "
        "amqps. Unset: `redis_url`. Do not give a password with --broker: all users of the machine can see it.",
        json_schema_extra=SECRET,
    )
    redis_url: SecretUrl | None = Field(
        None,
        description="The Redis that holds the log: redis, rediss, unix, or sentinel (several joined by ;). Unset: "
        "the broker, if that is a Redis.",
        json_schema_extra=SECRET,
    )
    sentinel_master: str = Field(
        "mymaster", description="The master's name, for sentinel:// addresses.", json_schema_extra=FOUND
    )
    sentinel_password: SecretStr | None = Field(
        None,
        description="The password of the Sentinels, if they have one of their own.",
        json_schema_extra=SECRET | FOUND,
    )
    queue_type: Literal["classic", "quorum"] = Field(
        "classic",
        description="The type of the queues on a RabbitMQ; `quorum` has them on several of its nodes. Queues that are "
        "there keep theirs.",
        json_schema_extra=FOUND,
    )
    broker_connections: int = Field(
        4,
        ge=2,
        description="Connections to the broker on which a worker process publishes and reports, at most; who needs one "
        "more waits. Those on which it takes tasks come in addition: see docs/capacity.md.",
        json_schema_extra=FOUND,
    )
    result_backend_url: SecretUrl | None = Field(
        None,
        description="Celery's result backend, for Celery tasks of your own. acts-celery needs none.",
        json_schema_extra=SECRET,
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

    @field_validator("broker_url")
    @classmethod
    def _check_broker_url(cls, value: SecretUrl | None) -> SecretUrl | None:
        if value is None:
            return None
        return SecretUrl(check_url(broker_url_of(value.get_secret_value()), schemes=BROKER_SCHEMES))

    @field_validator("result_backend_url")
    @classmethod
    def _check_result_backend_url(cls, value: SecretUrl | None) -> SecretUrl | None:
        """Celery would import the module that another scheme names."""
        if value is not None and (scheme := scheme_of(value.get_secret_value())) not in _RESULT_BACKENDS:
            raise ValueError(f"a result backend is one of {', '.join(_RESULT_BACKENDS)}, and not {scheme!r}")
        return value

    @field_validator("redis_url")
    @classmethod
    def _check_redis_url(cls, value: SecretUrl | None) -> SecretUrl | None:
        if value is None:
            return None
        url = value.get_secret_value()
        return SecretUrl(check_url(redis_url_of(url) or url, schemes=REDIS_SCHEMES))

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
