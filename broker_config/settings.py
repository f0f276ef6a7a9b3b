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

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator
from pydantic_settings import NoDecode

from . import limits
from .addresses import (
    ENVIRONMENT_PREFIX,
    FOUND,
    SECRET,
    AddressSettings,
    CommaSeparated,
    RedisUrl,
    SecretUrl,
    Site,
    as_json,
    in_clear,
    mask_url,
    masked,
    read_object,
    setting,
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
    ApiKey,
    BaseUrl,
    ConfiguredModel,
    Enforce,
    ExtraBody,
    OptionalPrice,
    ProfileName,
    Wire,
    has_credentials,
    masked_body,
    missing_fallbacks,
    secrets_of_body,
    unequal_limits,
)
from .tokens import AccessToken, ActingSettings, Right, check_signing_key, checked_tokens, read_tokens

# The settings of `acts ui`: who may look at runs and decide in them, and where their pages are.

LOCAL_RIGHTS: Final[tuple[Right, ...]] = ("read", "decide", "control")
"""The rights that `acts ui` may give; the first one only reads."""
UI_RIGHTS: Final[tuple[Right, ...]] = (*LOCAL_RIGHTS, "submit", "own")
"""The rights of a token of the pages. A token sees all runs, or with `own` only the runs of its name."""


class UiSettings(ActingSettings):
    """Settings of `acts ui`."""

    ui_tokens: Annotated[SecretStr, checked_tokens(UI_RIGHTS)] | None = setting(
        None,
        "Who may open the pages of `acts ui` and use its HTTP API: NAME:RIGHTS:TOKEN, separated by commas or lines. "
        "RIGHTS are `read`, `submit`, `decide`, `control` and `own`, with + between them; every token may read, with "
        "`own` only the runs of that name. The audit trail has the name. Limits may follow, see ACTS_MCP_TOKENS. @FILE "
        "reads them from a file. Unset: `acts ui` makes a token for its own machine.",
        SECRET,
    )
    ui_redis_url: RedisUrl | None = setting(
        None,
        "The Redis that `acts ui` reads runs from, such as a replica of the log; what it writes goes to the log. "
        "Unset: the log.",
        SECRET,
    )
    ui_url: Site | None = setting(
        None,
        "Where the pages of `acts ui` are, as a browser sees them (http or https): behind a proxy, and for links to "
        "them. Unset: where it listens.",
    )
    ui_viewers: int = setting(
        100,
        "How many pages of `acts ui` and clients of its HTTP API may follow runs, or wait for them, at a time.",
        FOUND,
        gt=0,
    )

    @property
    def for_reading(self) -> Self:
        """Settings with which `acts ui` reads runs."""
        return self if self.ui_redis_url is None else self.model_copy(update={"redis_url": self.ui_redis_url})

    def read_ui_tokens(self) -> tuple[AccessToken, ...]:
        """Read the tokens, from their file if one is named. Raises `SettingsError`."""
        return read_tokens(self.ui_tokens, "UI_TOKENS", UI_RIGHTS)


# How workers are watched: task events, health, figures.


class WatchingSettings(AddressSettings):
    """Settings of task events, health and metrics."""

    send_events: bool = setting(True, "Send Celery's task events. Flower and exporters read them.", FOUND)
    health_folder: str | None = setting(
        None, "Folder in which each worker of this machine writes its state for `acts health`. Unset: none."
    )
    metrics_port: int | None = setting(
        None,
        "Port on which a worker shows its figures to Prometheus (extra `metrics`). Further processes take the next "
        "ports. Unset: no figures are kept.",
        gt=0,
        lt=65_536,
    )
    metrics_host: str = setting(
        "127.0.0.1",
        "Address on which it listens, and `acts metrics` too. Anyone who can reach it can read the names of tools, "
        "queues and models.",
        min_length=1,
    )


DEFAULT_PREFIX = "acts"

QueueName = Annotated[str, Field(pattern=NAME_PATTERN, max_length=200)]


class Settings(UiSettings, WatchingSettings, McpSettings, LimitSettings):
    """The settings of one process, frozen; the module's docstring has names and precedence."""

    activities: CommaSeparated = setting(
        (), "Modules or .py files that register activities and delegates, separated by commas."
    )
    delegates: CommaSeparated = setting(
        (),
        "Folders, and web addresses (http, https), below which calls may name request definitions (JSON), separated "
        "by commas.",
    )
    allow: CommaSeparated = setting(
        (),
        "The only activities and delegates in code that a worker runs, separated by commas. Unset: all that "
        "are registered.",
        FOUND,
    )

    log_format: Literal["text", "json"] = setting(
        "text",
        "How a worker writes its log: `text`, lines for people; `json`, one JSON document a line, with run, instance,"
        " call, attempt and trace.",
        FOUND,
    )
    actor: str | None = setting(
        None,
        "Who submits and steers runs, for the audit trail (`acts log --audit`). Unset: the system's user.",
        pattern=VISIBLE_PATTERN,
        max_length=200,
    )
    model: str | None = setting(
        None,
        "The model that is asked if no other is named: openai:NAME, anthropic:NAME, "
        "pydantic-ai:PROVIDER:NAME, scripted:FILE.json, or one registered with @model.",
        pattern=MODEL_PATTERN,
    )
    model_base_url: BaseUrl | None = setting(
        None, "The address where that model is asked: any OpenAI-compatible endpoint. Unset: its provider's.", SECRET
    )
    model_api_key: ApiKey | None = setting(None, "The API key of that model.", SECRET | FOUND)
    model_context_tokens: int | None = setting(
        None,
        "How many tokens that model can read in one request. A request that cannot fit is not sent; the worker's log "
        "warns of one that may not.",
        FOUND,
        gt=0,
    )
    model_max_output_tokens: int | None = setting(
        None,
        "How many tokens an answer of it may have, unless `config.max_output_tokens` says it. Unset: 4096.",
        FOUND,
        gt=0,
    )
    model_requests_per_minute: int | None = setting(
        None,
        "Requests to that model that may begin in any minute, over all workers: others wait. Unset: any number.",
        FOUND,
        gt=0,
        le=limits.MOST_A_MINUTE,
    )
    model_tokens_per_minute: int | None = setting(
        None,
        "Tokens that requests to that model, with their answers, may take in any minute, over all workers. "
        "Unset: any number.",
        FOUND,
        gt=0,
    )
    model_price: Annotated[OptionalPrice, NoDecode] = setting(
        None,
        'What that model costs, in US dollars for a million tokens, as JSON: {"input": 2.5, "output": 10, "cached": '
        '1.25, "written": 2.5}. Unset: as the list of prices has it that comes with the extras `openai` and '
        "`anthropic`.",
        FOUND,
    )
    model_extra_body: Annotated[ExtraBody, NoDecode] = setting(
        None, 'Further fields of the requests to that model, as JSON: {"top_k": 40}.', SECRET
    )
    model_recording: str | None = setting(
        None,
        "A file of JSON lines that records the answers of that model; a recorded request is not sent again. "
        "ACTS_MODEL=scripted:FILE gives them without the model.",
        min_length=1,
    )
    model_enforce: Enforce = setting(
        "auto",
        "What the provider of that model enforces: `auto`, as much of the answer's schema as it can; `json`, JSON of "
        "any shape; `off`, nothing.",
        FOUND,
    )
    model_profile: ProfileName | None = setting(
        None,
        "Profile of what the provider enforces: openai, azure, anthropic, compatible, json or text. Default: by host.",
        FOUND,
    )
    model_wire: Wire = setting(
        "json",
        "How that model learns of tools, and calls them: `json`, in messages and in one JSON object; `tools`, as "
        "functions of the provider's own tool calling.",
        FOUND,
    )
    model_pictures: bool | None = setting(
        None, "Whether it sees pictures of tools. Unset: if of OpenAI or Anthropic", FOUND
    )
    model_fallbacks: CommaSeparated = setting(
        (), "Models of `models` to ask, in this order, when that model does not answer; separated by commas."
    )
    models: Annotated[dict[str, ConfiguredModel], NoDecode, BeforeValidator(read_object)] = setting(
        {},
        'Further models that a `config.model` may name, as JSON: {"NAME": {"model": "openai:…", "base_url": …, '
        '"api_key": …, "context_tokens": …, "max_output_tokens": …, "requests_per_minute": …, '
        '"tokens_per_minute": …, "price": …, "extra_body": …, "recording": …, "enforce": …, '
        '"profile": …, "fallbacks": ["NAME"]}}.',
        SECRET,
    )
    model_request_seconds: float = setting(
        300,
        "Seconds that a request to a model may take, with its retries. A `config` can only shorten it.",
        FOUND,
        gt=0,
    )
    strict_meta: bool = setting(
        False,
        "`additionalProperties: false` in a tool's schema also refuses meta-properties that it does not name (SPEC "
        "R4.1).",
        FOUND,
    )

    hold_webhook_url: SecretStr | None = setting(
        None,
        "Address (http, https) to which workers POST each call that is held for a person (SPEC R14), as JSON. Unset: "
        "none.",
        SECRET,
    )
    hold_webhook_secret: Annotated[SecretStr, AfterValidator(check_signing_key)] | None = setting(
        None,
        "The secret that signs these requests (HMAC-SHA256, as in Standard Webhooks): whsec_ and base64, or any text;"
        " at least 16 bytes.",
        SECRET,
    )

    key_prefix: str = setting(
        DEFAULT_PREFIX,
        "The first part of all names in Redis; of names of the broker only if it is not the default.",
        FOUND,
        pattern=PREFIX_PATTERN,
    )
    retention_seconds: Count = setting(7 * 86_400, "Seconds for which a run that has ended is kept.", FOUND)
    queue_instances: QueueName = setting("instances", "Queue of the tasks that read and write the log.", FOUND)
    queue_delegates: QueueName = setting("delegates", "Queue of the delegates (SPEC R9).", FOUND)
    queue_background: QueueName = setting("background", "Queue of the fire-and-forget calls (SPEC R5).", FOUND)
    queue_reports: QueueName = setting(
        "reports", "Queue of the heartbeats of calls at work outside of the log's workers.", FOUND
    )

    publish_window: Count = setting(
        500, "How many tasks of one run lie in the queue at a time. Its other instances follow as these begin.", FOUND
    )
    concurrency: Count = setting(256, "How many tasks one worker process runs at a time.", FOUND)
    lease_seconds: float = setting(
        6, "Seconds without a heartbeat after which a call counts as lost and is published again.", FOUND, gt=0
    )
    contract_wait_seconds: float = setting(
        600, "Seconds for which a call waits for code that admits it (SPEC R17.3). Then it fails.", FOUND, ge=0
    )
    sweep_interval_seconds: float = setting(1, "Seconds between two searches of a worker for lost calls.", FOUND, gt=0)
    stop_seconds: float = setting(
        50, "How long SIGTERM waits for the calls at work. Those that are left then begin again elsewhere.", FOUND, gt=0
    )
    remote_control: bool = setting(
        False,
        "Obey the commands of `celery control` that change a worker. Any client of the broker can then stop workers.",
    )

    @model_validator(mode="after")
    def _check_hold_webhook(self) -> Self:
        if self.hold_webhook_url is None:
            return self
        parts = urlsplit(self.hold_webhook_url.get_secret_value())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{ENVIRONMENT_PREFIX}HOLD_WEBHOOK_URL: should begin with http:// or https:// and a host")
        if self.hold_webhook_secret is None:
            raise ValueError(
                f"{ENVIRONMENT_PREFIX}HOLD_WEBHOOK_SECRET: set it to sign the requests to "
                f"{ENVIRONMENT_PREFIX}HOLD_WEBHOOK_URL"
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
        configured = [*self.models.values(), *([self.default_model] if self.default_model is not None else [])]
        if place := unequal_limits(configured):
            raise ValueError(
                f"{ENVIRONMENT_PREFIX}MODELS: several models are {place}, which has one limit for all requests to it: "
                "give them the same requests_per_minute and tokens_per_minute"
            )
        return self

    def find_model(self, name: str | None) -> ConfiguredModel | None:
        """Find a model by its name; by default `ACTS_MODEL`, which has the names `provider:name` and `name`."""
        default = self.default_model
        if name is None or name in self.models:
            return default if name is None else self.models[name]
        return default if default is not None and name in (default.model, default.name) else None

    @property
    def default_model(self) -> ConfiguredModel | None:
        """The model of requests that name none."""
        if self.model is None:
            return None
        own = {name: getattr(self, f"model_{name}") for name in ConfiguredModel.model_fields if name != "model"}
        return ConfiguredModel(model=self.model, **own)

    def masked(self) -> dict[str, object]:
        """Return every setting by name, fit to be shown: no password or key, addresses as in effect."""
        shown: dict[str, object] = {name: as_json(getattr(self, name), masked) for name in type(self).model_fields}
        shown["model_extra_body"] = masked_body(self.model_extra_body)
        for name, several in (("models", self.models), ("mcp", self.mcp)):
            shown[name] = {key: one.masked() for key, one in several.items()}
        for name, url in (("broker_url", self.effective_broker_url), ("redis_url", self.effective_redis_url)):
            shown[name] = None if url is None else mask_url(url)
        return shown

    def __repr_args__(self) -> Iterable[tuple[str | None, object]]:
        """Show nothing that is secret: `celery inspect conf` and `celery report` print this."""
        return self.masked().items()

    def secrets(self) -> frozenset[str]:
        """Return what must never be shown: passwords and queries of addresses, keys, tokens."""
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
            value = as_json(getattr(self, name), in_clear)
            if isinstance(value, list):
                value = ",".join(value)
            elif isinstance(value, dict):
                value = json.dumps(value) if value else None
            variables[ENVIRONMENT_PREFIX + name.upper()] = "" if value is None else str(value)
        return variables
