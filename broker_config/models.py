"""The settings of one model: where it is asked, with which key, and what is asked in its stead (SPEC R13.11)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from acts_celery.broker_config.urls import MASK, SecretUrl, mask_url, scheme_of

__all__ = [
    "MODEL_PATTERN",
    "TWO_KEYS",
    "ConfiguredModel",
    "check_api_key",
    "check_base_url",
    "has_credentials",
    "missing_fallbacks",
    "read_models",
]

MODEL_PATTERN = r"^[A-Za-z0-9_-]+:.+$"
"""`provider:name`."""
TWO_KEYS = "the address holds a user or password, and {} is set: one request has one of them"


class ConfiguredModel(BaseModel):
    """One model that an operator has configured."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, protected_namespaces=())

    model: str = Field(pattern=MODEL_PATTERN)
    base_url: SecretUrl | None = None
    api_key: SecretStr | None = None
    context_tokens: int | None = Field(None, gt=0)
    """How many tokens it reads at once, its answer included; None where that is not known."""
    fallbacks: tuple[str, ...] = ()
    """Names of other configured models, asked in this order when this one does not answer."""

    @field_validator("base_url")
    @classmethod
    def _check_base_url(cls, value: SecretUrl | None) -> SecretUrl | None:
        return check_base_url(value)

    @field_validator("api_key")
    @classmethod
    def _check_api_key(cls, value: SecretStr | None) -> SecretStr | None:
        return check_api_key(value)

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if self.api_key is not None and has_credentials(self.base_url):
            raise ValueError(TWO_KEYS.format("api_key"))
        return self

    @property
    def provider(self) -> str:
        """Who is asked: the name before the colon."""
        return self.model.partition(":")[0]

    @property
    def name(self) -> str:
        """What the provider calls it: the name behind the colon."""
        return self.model.partition(":")[2]

    def masked(self) -> dict[str, object]:
        """Fit to be shown."""
        return {
            "model": self.model,
            "base_url": None if self.base_url is None else mask_url(self.base_url.get_secret_value()),
            "api_key": None if self.api_key is None else MASK,
            "context_tokens": self.context_tokens,
            "fallbacks": list(self.fallbacks),
        }

    def in_clear(self) -> dict[str, object]:
        """With its secrets in clear."""
        return {
            "model": self.model,
            "base_url": None if self.base_url is None else self.base_url.get_secret_value(),
            "api_key": None if self.api_key is None else self.api_key.get_secret_value(),
            "context_tokens": self.context_tokens,
            "fallbacks": list(self.fallbacks),
        }


def check_base_url(value: SecretUrl | None) -> SecretUrl | None:
    """The address, which names http or https. Raises `ValueError`."""
    if value is not None and scheme_of(value.get_secret_value()) not in ("http", "https"):
        raise ValueError("should begin with http:// or https://, such as http://localhost:11434/v1")
    return value


def check_api_key(value: SecretStr | None) -> SecretStr | None:
    """The key, which a header of HTTP can carry: visible characters of ASCII. Raises `ValueError`."""
    key = value.get_secret_value() if value is not None else ""
    if fault := next((place for place, each in enumerate(key, start=1) if not "!" <= each <= "~"), None):
        raise ValueError(f"character {fault} is in no key: give the key itself, as the provider shows it")
    return value


def has_credentials(value: SecretUrl | None) -> bool:
    """Whether an address holds a user or a password."""
    return value is not None and "@" in urlsplit(value.get_secret_value()).netloc


def read_models(value: object) -> object:
    """The object that a variable holds as JSON; a value that is none is returned as it is. Raises `ValueError`."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value.strip() else {}
    except ValueError:  # its text may hold a key
        raise ValueError("must be JSON: an object of names and models") from None


def missing_fallbacks(models: Mapping[str, ConfiguredModel], own: Collection[str]) -> str:
    """The names of fallbacks that no model has; empty where there are none."""
    named = {*own, *(name for model in models.values() for name in model.fallbacks)}
    return ", ".join(sorted(named - models.keys()))
