"""The settings of MCP servers whose tools workers call: how each is started or reached, and its keys."""

from __future__ import annotations

import os
import re
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator
from pydantic_settings import NoDecode

from . import limits
from .addresses import SECRET, CommaSeparated, Site, as_json, in_clear, mask_url, masked, read_object, setting
from .errors import NotConfigured
from .models import NAME_PATTERN
from .tokens import AccessToken, ActingSettings, Right, checked_tokens, read_tokens

MCP_RIGHTS: Final[tuple[Right, ...]] = ("read", "submit", "decide", "control", "all")
"""Rights that a token of `acts mcp` may have."""

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SERVER_NAME: Final = r"^[A-Za-z0-9_-]{1,64}$"


class McpServer(BaseModel):
    """One MCP server, as MCP clients configure it: a `command`, or a `url`.

    `args`, `env`, `url` and `headers` may name variables of the environment, as `${NAME}`: they are read where the
    server is started or reached, so that a key need not stand in the setting.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    type: Literal["stdio", "http", "streamable-http"] | None = None
    """Written by MCP clients; the other keys say the same."""
    command: str | None = Field(None, min_length=1)
    args: tuple[SecretStr, ...] = ()
    env: dict[str, SecretStr] = {}
    """The environment of the server's process, besides PATH, HOME and the like: it gets nothing else of the worker's.
    """
    cwd: str | None = None
    url: SecretStr | None = None
    headers: dict[str, SecretStr] = {}
    trusted: bool = False
    """Whether its results are free of other people's text; if not, their source is `mcp.NAME` (SPEC R16.1)."""
    timeout_seconds: float = Field(60, gt=0)
    """How long one attempt of a call may take."""
    retries: int = Field(0, ge=0)
    """Further attempts if the server ended, hung or could not be reached."""
    max_concurrency: int | None = Field(None, gt=0)
    """Calls of one tool that run at a time, over all workers."""
    stateless: bool = False
    """Whether runs share one session; if not, each run has its own."""
    max_sessions: int = Field(16, gt=0)
    """Sessions of runs in one worker process at a time."""
    idle_seconds: float = Field(3600, gt=0)
    """Seconds without a call after which the session of a run is closed."""
    queue: str | None = Field(None, pattern=NAME_PATTERN, max_length=200)
    """The queue of the workers that have this server; None: all workers have it."""

    @model_validator(mode="after")
    def _check_way(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError('needs either "command" (and "args"), or "url"')
        if self.command is None and (self.args or self.env or self.cwd is not None):
            raise ValueError('"args", "env" and "cwd" go with "command"')
        if self.url is None and self.headers:
            raise ValueError('"headers" go with "url"')
        if self.type is not None and (self.type == "stdio") != (self.url is None):
            raise ValueError(f'"type" is {self.type}, and the other keys say otherwise')
        if self.url is not None:
            parts = urlsplit(self.url.get_secret_value())
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError('"url" should begin with http:// or https:// and a host')
        return self

    def in_clear(self) -> dict[str, object]:
        """Return it as JSON, its secrets in clear."""
        return dict(as_json(self, in_clear))

    def masked(self) -> dict[str, object]:
        """Return it as JSON with masked values of `args`, `env` and `headers`, and no password or query."""
        shown = as_json(self, masked)
        if self.url is not None:
            shown["url"] = mask_url(self.url.get_secret_value().partition("?")[0])
        return {key: value for key, value in shown.items() if value not in (None, {}, [])}

    def secrets(self) -> list[str]:
        """Return what must never be shown: values, as they are written and as their variables have them."""
        kept = [one.get_secret_value() for one in (*self.env.values(), *self.headers.values())]
        url = self.url.get_secret_value() if self.url is not None else ""
        parts = urlsplit(url)
        written = [*kept, *(one.get_secret_value() for one in self.args), url]
        named = [os.environ.get(name, "") for text in written for name in _VARIABLE.findall(text)]
        # A very short one would also be found where it is none.
        return [one for one in (*named, *kept, parts.query, parts.password or "") if len(one) > limits.MCP_SHORTEST]


def expanded(text: SecretStr, name: str) -> str:
    """Fill variables into a text of server `name`. Raises `NotConfigured` for a variable that is not set."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in os.environ:
            raise NotConfigured(
                f"ACTS_MCP: server {name!r} names ${{{found[1]}}}, which is not set here: set {found[1]}"
            )
        return os.environ[found[1]]

    return _VARIABLE.sub(value, text.get_secret_value())


_Servers = dict[Annotated[str, Field(pattern=_SERVER_NAME)], McpServer]


class McpSettings(ActingSettings):
    """The settings of MCP servers and their tools, and of what an operator says of all tools."""

    mcp: Annotated[_Servers, NoDecode, BeforeValidator(read_object)] = setting(
        {},
        'MCP servers whose tools workers run (extra `mcp`), as JSON: {"NAME": {"command": …, "args": […], '
        '"env": {…}}} or {"NAME": {"url": …, "headers": {…}}}; besides "trusted", "timeout_seconds" (60), "retries" '
        '(0), "max_concurrency", "stateless", "max_sessions" (16), "idle_seconds" (3600), "queue". See mcp.md.',
        SECRET,
    )
    mcp_admitted: str | None = setting(
        None,
        "The file of the tools of these servers that are admitted, which `acts mcp admit` writes; workers and clients"
        " read it. Unset: none is.",
        min_length=1,
    )
    trust: str | None = setting(None, "JSON file with the operator's labels of tools: see trust.md.", min_length=1)
    approved_plans: str | None = setting(
        None,
        "A file, or a folder of files, with a digest on each line (`sha256` of `acts held --json`): plans in mode lazy "
        "that need no approval.",
        min_length=1,
    )

    mcp_tokens: Annotated[SecretStr, checked_tokens(MCP_RIGHTS)] | None = setting(
        None,
        "Who may use `acts mcp --http`: NAME:RIGHTS:TOKEN, separated by commas or lines. RIGHTS: `read`, `submit`, "
        "`decide`, `control` and `all`, with + between them; every token may read. A token sees the runs that were "
        "submitted under its name, with `all` every run. A token may end with its limits, as "
        "ann:submit:TOKEN:runs=5+calls=1000+tokens=200000+money=2.50: the runs under way, and the calls, tokens and "
        "money of all runs begun in one day (UTC). @FILE reads them from a file. Unset: `acts mcp --http` makes a "
        "token for its own machine.",
        SECRET,
    )
    mcp_activities: CommaSeparated = setting(
        (),
        "Activities that are tools of `acts mcp`, too, separated by commas; `*` stands for all of ACTS_ACTIVITIES and "
        "for all admitted tools of ACTS_MCP.",
    )
    mcp_delegates: CommaSeparated = setting(
        (),
        "Delegates and workflows that are tools of `acts mcp`, too, separated by commas: registered ones, and request "
        "definitions of ACTS_DELEGATES.",
    )
    mcp_url: Site | None = setting(
        None, "Where `acts mcp --http` is, as clients see it (http or https): behind a proxy. Unset: where it listens."
    )

    def read_mcp_tokens(self) -> tuple[AccessToken, ...]:
        """Read the tokens, from their file if one is named. Raises `SettingsError`."""
        return read_tokens(self.mcp_tokens, "MCP_TOKENS", MCP_RIGHTS)
