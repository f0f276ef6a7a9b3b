"""Profiles: what each provider takes, as its documentation says (SPEC R12.6). Data alone: `fitting` and `wire_schema`
do the work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from acts_celery.broker_config import ConfiguredModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Which schemas a provider enforces. The limits are for a whole schema; None where there is none."""

    is_closed: bool
    """Whether every object has to list all that it may have, and every value to have a type."""
    requires_all: bool
    """Whether every property has to be required; one that may be left out admits null then."""
    is_recursive: bool
    """Whether a definition may refer to itself."""
    has_own_first_keys: bool = False
    """Whether the objects of one union have to begin with different keys, or with different constants."""
    keywords: frozenset[str] = frozenset()
    """The keywords that it knows besides types, properties, items, enums, unions and references."""
    properties: int | None = None
    levels: int | None = None
    values: int | None = None
    """In all enums together."""
    unions: int | None = None
    optional: int | None = None
    characters: int | None = None
    """Of all names of properties and definitions, and of the values of enums."""
    enum_characters: int | None = None
    """Of the values of one enum that has more than 250."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How one provider takes requests."""

    rules: Rules | None
    """None where it takes no schema."""
    is_strict: bool = False
    """Whether it enforces a schema only with `"strict": true`."""
    shows_schema: bool = False
    """Whether it shows a model the schema that it enforces; else that stands in a message."""
    has_json_mode: bool = True
    """Whether it can be told to answer with JSON, whatever its schema (`json_object`)."""
    limits_all_functions: bool = False
    """Whether the limits hold for the parameters of all functions together."""
    parameter_names: str | None = None
    """Which names the parameters of functions may have, as a pattern; None: any."""
    most_functions: int | None = None
    """How many functions a request may have, the one of its output among them; None where that is not known."""
    takes_any_turns: bool = False
    """Whether messages may stand in any order. Elsewhere a server may put them through the chat template of an open
    model: most of those take one system message, at the beginning, and then user and assistant in turn.
    """
    newer_names: bool = False
    """Whether the most tokens of an answer are `max_completion_tokens`, which OpenAI's newer models alone know, and not
    `max_tokens`, which other servers know.
    """


_NUMBERS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_LISTS: Final = frozenset({"minItems", "maxItems"})

_OPENAI: Final = Rules(
    is_closed=True,
    requires_all=True,
    is_recursive=True,
    has_own_first_keys=True,
    keywords=_NUMBERS | _LISTS | {"pattern"},
    properties=5_000,
    levels=10,
    values=1_000,
    characters=120_000,
    enum_characters=15_000,
)
_AZURE: Final = Rules(
    is_closed=True, requires_all=True, is_recursive=True, has_own_first_keys=True, properties=100, levels=5, values=500
)
_ANTHROPIC: Final = Rules(is_closed=True, requires_all=False, is_recursive=False, unions=16, optional=24)
_GRAMMARS: Final = Rules(is_closed=False, requires_all=False, is_recursive=True, keywords=_LISTS | {"pattern"})
"""What the converters of llama.cpp, llguidance, outlines-core and xgrammar all take and understand alike."""

PROFILES: Final[Mapping[str, Profile]] = {
    "openai": Profile(
        rules=_OPENAI, is_strict=True, shows_schema=True, most_functions=128, takes_any_turns=True, newer_names=True
    ),
    "azure": Profile(
        rules=_AZURE, is_strict=True, shows_schema=True, most_functions=128, takes_any_turns=True, newer_names=True
    ),
    "anthropic": Profile(
        rules=_ANTHROPIC,
        is_strict=True,
        shows_schema=True,
        has_json_mode=False,
        limits_all_functions=True,
        parameter_names="[a-zA-Z0-9_.-]{1,64}",
    ),
    "compatible": Profile(rules=_GRAMMARS),
    "json": Profile(rules=None),
    "text": Profile(rules=None, has_json_mode=False),
}
"""By name: `json` and `text` enforce no schema, and `text` has no JSON mode either."""

_HOSTS: Final[Mapping[str, str]] = {
    "api.openai.com": "openai",
    "openai.azure.com": "azure",
    "cognitiveservices.azure.com": "azure",
    "services.ai.azure.com": "azure",
    "api.deepseek.com": "json",
    "api.z.ai": "json",
    "api.minimax.io": "json",
    "api.moonshot.ai": "json",
    "dashscope.aliyuncs.com": "json",
    "dashscope-intl.aliyuncs.com": "json",
}
"""Whose rules hold at a host and at those below it. Elsewhere `compatible`: Ollama, vLLM, llama.cpp, LM Studio, Gemini,
Mistral, Groq, Together, Fireworks, xAI, OpenRouter take a schema as it is, and pass over what they do not know.
"""
_BEHIND_GATEWAYS: Final[Mapping[str, str]] = {"openai/": "openai", "anthropic/": "anthropic", "deepseek/": "json"}
"""Whose rules hold for a model that a gateway names so, such as OpenRouter's `openai/gpt-4o`."""
_GATEWAYS: Final = frozenset({"openrouter.ai", "ai-gateway.vercel.sh"})


def profile_of(configured: ConfiguredModel, url: str) -> Profile:
    """The profile that the model's settings name, else the one of its host; `url` is the provider's own."""
    if configured.profile is not None:
        return PROFILES[configured.profile]
    if configured.provider == "anthropic":
        return PROFILES["anthropic"]
    host = urlsplit(configured.base_url.get_secret_value() if configured.base_url is not None else url).hostname or ""
    if host in _GATEWAYS:
        names = (name for prefix, name in _BEHIND_GATEWAYS.items() if configured.name.startswith(prefix))
    else:
        names = (name for own, name in _HOSTS.items() if host == own or host.endswith(f".{own}"))
    return PROFILES[next(names, "compatible")]
