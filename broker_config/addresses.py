"""Where to connect: the addresses of the broker, the log and a result backend."""

from __future__ import annotations

from typing import Final, Literal, Self

from pydantic import Field, PrivateAttr, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic.config import JsonDict
from pydantic_settings import BaseSettings, SettingsConfigDict

from acts_celery.broker_config.errors import NotConfigured
from acts_celery.broker_config.urls import (
    BROKER_SCHEMES,
    REDIS_SCHEMES,
    SecretUrl,
    broker_url_of,
    check_url,
    redis_url_of,
    scheme_of,
)

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
