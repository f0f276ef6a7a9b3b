"""Every setting of the project, typed and documented: the one place to look.

Precedence: arguments to `load` (the command line's options), then environment variables with the prefix
``ACTS_``, then the file that ``ACTS_ENV_FILE`` names or else a ``.env`` file in the current directory, which says
neither where to connect, nor what code to load, nor which folder to write in, then the defaults below. The name of a
variable is the field's name in capitals behind the prefix: `lease_seconds` is ``ACTS_LEASE_SECONDS``. An empty variable
means the default, and so overrides the file. Sizes may be written as ``256MiB``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import ByteSize, Field, SecretStr, field_validator, model_validator
from pydantic_settings import NoDecode

from . import limits
from .addresses import (
    ENVIRONMENT_PREFIX,
    FOUND,
    MASK,
    REDIS_SCHEMES,
    SECRET,
    AddressSettings,
    SecretAddress,
    SecretUrl,
    check_site,
    check_url,
    mask_url,
    redis_url_of,
)
from .errors import SettingsError
from .limits import Count, LimitSettings
from .mcp import McpSettings
from .models import (
    MODEL_PATTERN,
    NAME_PATTERN,
    PREFIX_PATTERN,
    TWO_KEYS,
    VISIBLE_PATTERN,
    ConfiguredModel,
    Enforce,
    ExtraBody,
    OptionalPrice,
    Price,
    ProfileName,
    Wire,
    check_api_key,
    check_base_url,
    has_credentials,
    masked_body,
    missing_fallbacks,
    read_models,
    secrets_of_body,
)
from .tokens import AccessToken, ActingSettings, Right, check_tokens, read_tokens, signing_key

# The settings of `acts ui`: who may look at runs and decide in them, and where their pages are.

LOCAL_RIGHTS: Final[tuple[Right, ...]] = ("read", "decide", "control")
"""The rights that `acts ui` may give; the first one only reads."""
UI_RIGHTS: Final[tuple[Right, ...]] = (*LOCAL_RIGHTS, "own")
"""The rights of a token of the pages. A token sees all runs, or with `own` only the runs of its name."""


class UiSettings(ActingSettings):
    """The settings of `acts ui`."""

    ui_tokens: SecretStr | None = Field(
        None,
        description="Who may open the pages of `acts ui`: NAME:RIGHTS:TOKEN, separated by commas or lines. RIGHTS are "
        "`read`, `decide`, `control` and `own`, with + between them; every token may read, with `own` only the runs "
        "of that name. The audit trail has the name. Limits may follow, see ACTS_MCP_TOKENS. @FILE reads them from a "
        "file. Unset: `acts ui` makes a token for its own machine.",
        json_schema_extra=SECRET,
    )
    ui_redis_url: SecretUrl | None = Field(
        None,
        description="The Redis that `acts ui` reads runs from, such as a replica of the log; what it writes goes to "
        "the log. Unset: the log.",
        json_schema_extra=SECRET,
    )
    ui_url: str | None = Field(
        None,
        description="Where the pages of `acts ui` are, as a browser sees them (http or https): behind a proxy, and "
        "for links to them. Unset: where it listens.",
    )
    ui_viewers: int = Field(
        100, gt=0, description="How many pages of `acts ui` may follow runs at a time.", json_schema_extra=FOUND
    )

    @field_validator("ui_tokens")
    @classmethod
    def _check_ui_tokens(cls, value: SecretStr | None) -> SecretStr | None:
        return check_tokens(value, UI_RIGHTS)

    @field_validator("ui_redis_url")
    @classmethod
    def _check_ui_redis_url(cls, value: SecretUrl | None) -> SecretUrl | None:
        if value is None:
            return None
        url = value.get_secret_value()
        return SecretUrl(check_url(redis_url_of(url) or url, schemes=REDIS_SCHEMES))

    @field_validator("ui_url")
    @classmethod
    def _check_ui_url(cls, value: str | None) -> str | None:
        return check_site(value)

    @property
    def for_reading(self) -> Self:
        """The settings with which `acts ui` reads runs."""
        return self if self.ui_redis_url is None else self.model_copy(update={"redis_url": self.ui_redis_url})

    def read_ui_tokens(self) -> tuple[AccessToken, ...]:
        """The tokens, read from their file where one is named. Raises `SettingsError`."""
        return read_tokens(self.ui_tokens, "UI_TOKENS", UI_RIGHTS)


# How workers are watched: task events, health, figures.


class WatchingSettings(AddressSettings):
    """The settings that say what workers show of themselves, and where."""

    send_events: bool = Field(
        True, description="Send Celery's task events. Flower and exporters read them.", json_schema_extra=FOUND
    )
    health_folder: str | None = Field(
        None,
        description="Folder in which each worker of this machine writes its state for `acts health`. Unset: none.",
    )
    metrics_port: int | None = Field(
        None,
        gt=0,
        lt=65_536,
        description="Port on which a worker shows the figures of its process to Prometheus (extra `metrics`); of "
        "several processes each takes the next one. Unset: none are kept.",
    )
    metrics_host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address on which it listens, and `acts metrics` too. Whoever reaches it reads the names of tools, "
        "queues and models.",
    )


DEFAULT_PREFIX = "acts"

# pydantic-settings would parse these as JSON; we want `a,b`.
CommaSeparated = Annotated[tuple[str, ...], NoDecode]
QueueName = Annotated[str, Field(pattern=NAME_PATTERN, max_length=200)]


class Settings(UiSettings, WatchingSettings, McpSettings, LimitSettings):
    """The settings of one process, frozen; the module's text tells names and precedence."""

    activities: CommaSeparated = Field(
        (), description="Modules or .py files that register activities and delegates, separated by commas."
    )
    delegates: CommaSeparated = Field(
        (),
        description="Folders, and web addresses (http, https), below which calls may name request definitions (JSON), "
        "separated by commas.",
    )
    allow: CommaSeparated = Field(
        (),
        description="The only activities and delegates in code that a worker carries out, separated by commas. "
        "Unset: all that are registered.",
        json_schema_extra=FOUND,
    )

    log_format: Literal["text", "json"] = Field(
        "text",
        description="How a worker writes its log: `text`, lines for people; `json`, one JSON document a line, with "
        "run, instance, call, attempt and trace.",
        json_schema_extra=FOUND,
    )
    actor: str | None = Field(
        None,
        pattern=VISIBLE_PATTERN,
        max_length=200,
        description="Who submits and steers runs, for the audit trail (`acts log --audit`). Unset: the system's user.",
    )
    model: str | None = Field(
        None,
        pattern=MODEL_PATTERN,
        description="The model that is asked if no other is named: openai:NAME, anthropic:NAME, scripted:FILE.json, "
        "or one registered with @model.",
    )
    model_base_url: SecretAddress | None = Field(
        None,
        description="The address where that model is asked: any OpenAI-compatible endpoint. Unset: its provider's.",
        json_schema_extra=SECRET,
    )
    model_api_key: SecretStr | None = Field(
        None, description="The API key of that model.", json_schema_extra=SECRET | FOUND
    )
    model_context_tokens: int | None = Field(
        None,
        gt=0,
        description="How many tokens that model can read in one request. A request that cannot fit is not sent; the "
        "worker's log warns of one that may not.",
        json_schema_extra=FOUND,
    )
    model_max_output_tokens: int | None = Field(
        None,
        gt=0,
        description="How many tokens an answer of it may have, unless `config.max_output_tokens` says it. Unset: 4096.",
        json_schema_extra=FOUND,
    )
    model_price: Annotated[OptionalPrice, NoDecode] = Field(
        None,
        description="What that model costs, in US dollars for a million tokens, as JSON: "
        '{"input": 2.5, "output": 10, "cached": 1.25, "written": 2.5}. Unset: as the list of prices has it that comes '
        "with the extras `openai` and `anthropic`.",
        json_schema_extra=FOUND,
    )
    model_extra_body: Annotated[ExtraBody, NoDecode] = Field(
        None,
        description='What the requests to that model have besides, as JSON: {"top_k": 40}.',
        json_schema_extra=SECRET,
    )
    model_recording: str | None = Field(
        None,
        min_length=1,
        description="A file that keeps the answers of that model by what was asked (JSON lines): what is in it is not "
        "asked again. ACTS_MODEL=scripted:FILE gives them without the model.",
    )
    model_enforce: Enforce = Field(
        "auto",
        description="What that model's provider is told to enforce: `auto`, as much of the answer's schema as it can; "
        "`json`, JSON of any shape; `off`, nothing.",
        json_schema_extra=FOUND,
    )
    model_profile: ProfileName | None = Field(
        None,
        description="Whose rules hold for what it enforces: openai, azure, anthropic, compatible, json or text. Unset: "
        "those of its host.",
        json_schema_extra=FOUND,
    )
    model_wire: Wire = Field(
        "json",
        description="How that model is told of tools, and calls them: `json`, in messages and in one JSON object; "
        "`tools`, as functions of the provider's own tool calling.",
        json_schema_extra=FOUND,
    )
    model_pictures: bool | None = Field(
        None, description="Whether it sees pictures of tools. Unset: if of OpenAI or Anthropic", json_schema_extra=FOUND
    )
    model_fallbacks: CommaSeparated = Field(
        (),
        description="Models of `models` to ask, in this order, when that model does not answer; separated by commas.",
    )
    models: Annotated[dict[str, ConfiguredModel], NoDecode] = Field(
        {},
        description="Further models that a `config.model` may name, as JSON: "
        '{"NAME": {"model": "openai:…", "base_url": …, "api_key": …, "context_tokens": …, "max_output_tokens": …, '
        '"price": …, "extra_body": …, "recording": …, "enforce": …, "profile": …, "fallbacks": ["NAME"]}}.',
        json_schema_extra=SECRET,
    )
    model_request_seconds: float = Field(
        300,
        gt=0,
        description="Seconds that a request to a model may take, with its retries. A `config` can only shorten it.",
        json_schema_extra=FOUND,
    )
    strict_meta: bool = Field(
        False,
        description="`additionalProperties: false` in a tool's schema also refuses meta-properties that it does not "
        "name (SPEC R4.1).",
        json_schema_extra=FOUND,
    )

    hold_webhook_url: SecretStr | None = Field(
        None,
        description="Address (http, https) to which workers POST each call that is held for a person (SPEC R14), as "
        "JSON. Unset: none.",
        json_schema_extra=SECRET,
    )
    hold_webhook_secret: SecretStr | None = Field(
        None,
        description="The secret that signs these requests (HMAC-SHA256, as in Standard Webhooks): whsec_ and base64, "
        "or any text; at least 16 bytes.",
        json_schema_extra=SECRET,
    )

    key_prefix: str = Field(
        DEFAULT_PREFIX,
        pattern=PREFIX_PATTERN,
        description="The first part of all names in Redis; of names of the broker only if it is not the default.",
        json_schema_extra=FOUND,
    )
    retention_seconds: Count = Field(
        7 * 86_400, description="Seconds for which a run that has ended is kept.", json_schema_extra=FOUND
    )
    queue_instances: QueueName = Field(
        "instances", description="Queue of the tasks that read and write the log.", json_schema_extra=FOUND
    )
    queue_delegates: QueueName = Field(
        "delegates", description="Queue of the delegates (SPEC R9).", json_schema_extra=FOUND
    )
    queue_background: QueueName = Field(
        "background", description="Queue of the fire-and-forget calls (SPEC R5).", json_schema_extra=FOUND
    )
    queue_reports: QueueName = Field(
        "reports",
        description="Queue of the heartbeats of calls at work outside of the log's workers.",
        json_schema_extra=FOUND,
    )

    publish_window: Count = Field(
        500,
        description="How many tasks of one run lie in the queue at a time. Its other instances follow as these begin.",
        json_schema_extra=FOUND,
    )
    concurrency: Count = Field(
        256, description="How many tasks one worker process carries out at a time.", json_schema_extra=FOUND
    )
    lease_seconds: float = Field(
        6,
        gt=0,
        description="Seconds without a heartbeat after which a call counts as lost and is published again.",
        json_schema_extra=FOUND,
    )
    contract_wait_seconds: float = Field(
        600,
        ge=0,
        description="Seconds for which a call waits for code that admits it (SPEC R17.3). Then it fails.",
        json_schema_extra=FOUND,
    )
    sweep_interval_seconds: float = Field(
        1, gt=0, description="Seconds between two searches of a worker for lost calls.", json_schema_extra=FOUND
    )
    stop_seconds: float = Field(
        50,
        gt=0,
        description="How long SIGTERM waits for the calls at work. Those that are left then begin again elsewhere.",
        json_schema_extra=FOUND,
    )
    remote_control: bool = Field(
        False,
        description="Obey the commands of `celery control` that change a worker. Any client of the broker can "
        "then stop workers.",
    )

    @field_validator("models", mode="before")
    @classmethod
    def _read_models(cls, value: object) -> object:
        return read_models(value)

    @field_validator("activities", "delegates", "allow", "model_fallbacks", mode="before")
    @classmethod
    def _split_commas(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("model_base_url")
    @classmethod
    def _check_model_base_url(cls, value: SecretUrl | None) -> SecretUrl | None:
        return check_base_url(value)

    @field_validator("model_api_key")
    @classmethod
    def _check_model_api_key(cls, value: SecretStr | None) -> SecretStr | None:
        return check_api_key(value)

    @field_validator("hold_webhook_secret")
    @classmethod
    def _check_hold_webhook_secret(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            signing_key(value.get_secret_value())
        return value

    @model_validator(mode="after")
    def _check_hold_webhook(self) -> Self:
        if self.hold_webhook_url is None:
            return self
        parts = urlsplit(self.hold_webhook_url.get_secret_value())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{ENVIRONMENT_PREFIX}HOLD_WEBHOOK_URL: should begin with http:// or https:// and a host")
        if self.hold_webhook_secret is None:
            raise ValueError(
                f"{ENVIRONMENT_PREFIX}HOLD_WEBHOOK_SECRET: set it, so that what is sent to "
                f"{ENVIRONMENT_PREFIX}HOLD_WEBHOOK_URL is signed"
            )
        return self

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.sweep_interval_seconds >= self.lease_seconds:
            raise ValueError(
                f"{ENVIRONMENT_PREFIX}LEASE_SECONDS: {self.lease_seconds:g} should be more than "
                f"{ENVIRONMENT_PREFIX}SWEEP_INTERVAL_SECONDS ({self.sweep_interval_seconds:g})"
            )
        if self.model_api_key is not None and has_credentials(self.model_base_url):
            raise ValueError(
                f"{ENVIRONMENT_PREFIX}MODEL_BASE_URL: {TWO_KEYS.format(ENVIRONMENT_PREFIX + 'MODEL_API_KEY')}"
            )
        if missing := missing_fallbacks(self.models, self.model_fallbacks):
            raise ValueError(f"{ENVIRONMENT_PREFIX}MODELS: it has no {missing}, which is named as a fallback")
        return self

    def find_model(self, name: str | None) -> ConfiguredModel | None:
        """The model of that name, by default that of `ACTS_MODEL`, which goes by `provider:name` and by `name`."""
        default = self.default_model
        if name is None or name in self.models:
            return default if name is None else self.models[name]
        return default if default is not None and name in (default.model, default.name) else None

    @property
    def default_model(self) -> ConfiguredModel | None:
        """The model that is asked where no other is named."""
        if self.model is None:
            return None
        return ConfiguredModel(
            model=self.model,
            base_url=self.model_base_url,
            api_key=self.model_api_key,
            context_tokens=self.model_context_tokens,
            max_output_tokens=self.model_max_output_tokens,
            price=self.model_price,
            extra_body=self.model_extra_body,
            recording=self.model_recording,
            enforce=self.model_enforce,
            profile=self.model_profile,
            wire=self.model_wire,
            pictures=self.model_pictures,
            fallbacks=self.model_fallbacks,
        )

    def masked(self) -> dict[str, object]:
        """Return every setting by name, fit to be shown: no password or key, addresses as in effect."""
        shown: dict[str, object] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, SecretStr):
                value = MASK
            elif name == "model_extra_body":
                value = masked_body(self.model_extra_body)
            elif isinstance(value, SecretUrl):
                value = str(value)
            elif isinstance(value, tuple):
                value = list(value)
            elif isinstance(value, dict):
                value = {key: one.masked() for key, one in value.items()}
            elif isinstance(value, Price):
                value = value.model_dump(mode="json")
            elif isinstance(value, ByteSize):
                value = int(value)
            shown[name] = value
        for name, url in (("broker_url", self.effective_broker_url), ("redis_url", self.effective_redis_url)):
            shown[name] = None if url is None else mask_url(url)
        return shown

    def __repr_args__(self) -> Iterable[tuple[str | None, object]]:
        """Show nothing that is secret: `celery inspect conf` and `celery report` print this."""
        return self.masked().items()

    def secrets(self) -> frozenset[str]:
        """What must not be shown wherever it turns up: passwords and queries of addresses, keys, tokens."""
        kept = [*secrets_of_body(self.model_extra_body)]
        for name in type(self).model_fields:
            match getattr(self, name):
                case SecretStr() as one:
                    kept.append(one.get_secret_value())
                case SecretUrl() as one:
                    kept += one.secrets()
                case dict() as several:
                    kept += [secret for one in several.values() for secret in one.secrets()]
        for read in (self.read_ui_tokens, self.read_mcp_tokens):
            with suppress(SettingsError):  # a file that is not here, or not ours to read
                kept += [token.text for token in read()]
        # A very short one is no secret, and would be found where it is none.
        return frozenset(one for one in kept if len(one) > limits.SETTINGS_SHORTEST)

    def to_environment(self) -> dict[str, str]:
        """Return the variables that give a child process these settings, SECRETS IN CLEAR: never print them.

        A setting that is None becomes an empty variable, so that the child's ``.env`` cannot set it again.
        """
        variables: dict[str, str] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, SecretStr | SecretUrl):
                value = value.get_secret_value()
            elif isinstance(value, tuple):
                value = ",".join(value)
            elif isinstance(value, dict):
                value = json.dumps({key: one.in_clear() for key, one in value.items()}) if value else None
            elif isinstance(value, ByteSize):
                value = int(value)
            elif isinstance(value, Price):
                value = value.model_dump_json()
            variables[ENVIRONMENT_PREFIX + name.upper()] = "" if value is None else str(value)
        return variables
