"""The settings of one model: its address, its key, and its fallbacks (SPEC R13.11)."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator

from . import limits
from .addresses import MASK, SecretAddress, SecretUrl, as_json, in_clear, masked, read_object, scheme_of

MODEL_PATTERN = r"^[A-Za-z0-9_-]+:.+$"
"""`provider:name`."""
NAME_PATTERN: Final = r"^[A-Za-z0-9_.-]+$"
PREFIX_PATTERN: Final = r"^[A-Za-z0-9_.:-]+$"
VISIBLE_PATTERN: Final = r"^[^\x00-\x1f\x7f-\x9f]+$"
_KEY_NAME: Final = re.compile(r"(?i)passw|pwd|secret|token|credential|key|auth")
TWO_KEYS = "the address holds a user or password, and {} is set: one request has one of them"

_OWN_KEYS = frozenset(
    (
        *("model", "messages", "system", "stream", "stream_options", "response_format", "output_config", "tools"),
        *("tool_choice", "functions", "function_call", "parallel_tool_calls", "max_tokens", "max_completion_tokens"),
        *("temperature", "top_p", "seed", "stop", "stop_sequences", "reasoning_effort", "n"),
    )
)
"""Fields of a request that the engine, `config` or other settings fill in."""


def _read_extra_body(value: object) -> str | None:
    """The object as JSON text, which can be compared. Raises `ValueError`."""
    found = read_object(value)
    if found is None:
        return None
    if not isinstance(found, dict):
        raise ValueError('must be an object, such as {"top_k": 40}')
    if own := ", ".join(sorted(_OWN_KEYS & found.keys())):
        raise ValueError(f"may not hold {own}: the engine sets it; what `config` has a setting for is set there")
    return json.dumps(found, sort_keys=True)


Wire = Literal["json", "tools"]
"""How tools are described to a model, and how it calls them."""
ExtraBody = Annotated[str | None, BeforeValidator(_read_extra_body)]
"""Further fields of a model's requests, as the text of a JSON object."""
_Rate = Annotated[Decimal, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


class Price(BaseModel):
    """The prices of a million tokens, in US dollars."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: _Rate
    output: _Rate
    cached: _Rate | None = None
    """Price of input tokens that the provider reads from its cache; None: `input`."""
    written: _Rate | None = None
    """Price of input tokens that the provider writes to its cache; None: `input`."""


OptionalPrice = Annotated[Price | None, BeforeValidator(read_object)]
"""A price as an object, or as its JSON text."""


def _check_base_url(value: SecretAddress) -> SecretAddress:
    if scheme_of(value.get_secret_value()) not in ("http", "https"):
        raise ValueError("should begin with http:// or https://, such as http://localhost:11434/v1")
    return value


def _check_api_key(value: SecretStr) -> SecretStr:
    key = value.get_secret_value()
    if fault := next((place for place, each in enumerate(key, start=1) if not "!" <= each <= "~"), None):
        raise ValueError(f"character {fault} is in no key: give the key itself, as the provider shows it")
    return value


BaseUrl = Annotated[SecretAddress, AfterValidator(_check_base_url)]
ApiKey = Annotated[SecretStr, AfterValidator(_check_api_key)]
"""A key that a header of HTTP can carry: visible characters of ASCII."""

Enforce = Literal["auto", "json", "off"]
ProfileName = Literal["openai", "azure", "anthropic", "compatible", "json", "text"]


class ConfiguredModel(BaseModel):
    """One model that an operator has configured."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, protected_namespaces=())

    model: str = Field(pattern=MODEL_PATTERN)
    base_url: BaseUrl | None = None
    api_key: ApiKey | None = None
    context_tokens: int | None = Field(None, gt=0)
    """Tokens that it reads at once, its answer included; None: not known."""
    max_output_tokens: int | None = Field(None, gt=0)
    """Tokens that an answer may have if a `config` does not say."""
    requests_per_minute: int | None = Field(None, gt=0, le=limits.MOST_A_MINUTE)
    """Requests to it that may begin in any minute, over all workers; None: any number."""
    tokens_per_minute: int | None = Field(None, gt=0)
    """Tokens that requests to it may take in any minute, over all workers; None: any number."""
    price: OptionalPrice = None
    """Its price; None: as in the public list of prices, if it is there."""
    extra_body: ExtraBody = None
    """Further fields of its requests."""
    recording: str | None = Field(None, min_length=1)
    """The file that keeps its answers, and answers the same request again."""
    enforce: Enforce = "auto"
    """`auto`: of the answer's schema what its provider can enforce; `json`: JSON mode; `off`: nothing."""
    profile: ProfileName | None = None
    """The rules by which schemas are enforced; None: those of its host."""
    wire: Wire = "json"
    """How tools are described: in the messages, or as functions of the provider's tool calling (SPEC R12.6)."""
    pictures: bool | None = None
    """Whether the model sees pictures that tools return; None: yes for OpenAI and Anthropic."""
    fallbacks: tuple[str, ...] = ()
    """Names of other configured models, asked in this order when this one does not answer."""

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if self.api_key is not None and has_credentials(self.base_url):
            raise ValueError(TWO_KEYS.format("api_key"))
        return self

    @property
    def provider(self) -> str:
        """Name of the provider, before the colon."""
        return self.model.partition(":")[0]

    @property
    def name(self) -> str:
        """Name of the model at its provider, behind the colon."""
        return self.model.partition(":")[2]

    @property
    def place(self) -> str:
        """The model and the host where it is asked: models of one place share what its provider allows in a minute."""
        return self.model if self.base_url is None else f"{self.model}@{host_of(self.base_url)}"

    @property
    def sees_pictures(self) -> bool:
        """Whether the model sees pictures that tools return."""
        if self.pictures is not None:
            return self.pictures
        return self.base_url is None and self.provider in ("openai", "anthropic")

    def masked(self) -> dict[str, object]:
        """Return it as JSON, fit to be shown."""
        return {**as_json(self, masked), "extra_body": masked_body(self.extra_body)}

    def __repr_args__(self) -> Iterable[tuple[str | None, object]]:
        """Show nothing that is secret."""
        return self.masked().items()

    def secrets(self) -> Iterator[str]:
        """Yield what must never be shown."""
        yield from secrets_of_body(self.extra_body)
        yield from self.base_url.secrets() if self.base_url is not None else ()
        yield from (self.api_key.get_secret_value(),) if self.api_key is not None else ()

    def in_clear(self) -> dict[str, object]:
        """Return it as JSON, its secrets in clear."""
        return dict(as_json(self, in_clear))


def masked_body(extra_body: str | None) -> dict[str, str] | None:
    """Return the further fields of requests without their values, which may be secret."""
    return None if extra_body is None else dict.fromkeys(json.loads(extra_body), MASK)


def secrets_of_body(extra_body: str | None) -> Iterator[str]:
    """Yield the values that are keys, by their name or their length."""
    waiting: list[tuple[str, object]] = [("", json.loads(extra_body))] if extra_body is not None else []
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.items())
        elif isinstance(value, list):
            waiting.extend((name, one) for one in value)
        elif isinstance(value, str) and (len(value) >= limits.KEY_CHARACTERS or _KEY_NAME.search(name)):
            yield value


def has_credentials(value: SecretUrl | None) -> bool:
    """Say whether an address has a user or a password."""
    return value is not None and "@" in urlsplit(value.get_secret_value()).netloc


def host_of(url: SecretUrl) -> str:
    """Return the host of an address, and its port."""
    return urlsplit(url.get_secret_value()).netloc.rpartition("@")[2]


def unequal_limits(models: Iterable[ConfiguredModel]) -> str:
    """Return a place that models share whose limits of a minute differ, or an empty text."""
    found: dict[str, tuple[int | None, int | None]] = {}
    for model in models:
        own = model.requests_per_minute, model.tokens_per_minute
        if found.setdefault(model.place, own) != own:
            return model.place
    return ""


def missing_fallbacks(models: Mapping[str, ConfiguredModel], own: Collection[str]) -> str:
    """Return the names of fallbacks that no model has, or an empty text."""
    named = {*own, *(name for model in models.values() for name in model.fallbacks)}
    return ", ".join(sorted(named - models.keys()))
