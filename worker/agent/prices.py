"""Known models: the cost of requests in money (SPEC R13.3, R13.12), the tokens of pictures, and what providers take.

A cost is by the model's own price, else by the list of `genai-prices`, which comes with the extras of the providers:
nothing is fetched. That list knows a model by its address, so a server of your own has no price there.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import urlsplit

from ...broker_config import ConfiguredModel
from ...protocol.engine.costs import Estimate, nanodollars
from ...protocol.messages import is_file, with_changed
from ...protocol.requests.data_blocks import compact
from ..registry.models import Size, Usage, image_size, valid_size

_LIST: Final = "genai_prices"
_URLS: Final = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
_BEHIND: Final = "pydantic-ai"
"""The provider whose models name their own provider: `pydantic-ai:google:gemini-3-pro`."""
_MILLION: Final = 1_000_000


def price_of(model: ConfiguredModel, usage: Usage) -> int | None:
    """The cost of a request of that usage, in nanodollars, rounded up; None where no price is known."""
    own = model.price
    if own is None:
        return _listed(model, usage)
    cached = min(usage.cached, usage.input)
    written = min(usage.written, usage.input - cached)
    exact = (usage.input - cached - written) * own.input + usage.output * own.output
    exact += cached * (own.input if own.cached is None else own.cached)
    exact += written * (own.input if own.written is None else own.written)
    return nanodollars(exact / _MILLION)


def estimate_of(models: Iterable[ConfiguredModel], input_tokens: int, output_tokens: int) -> Estimate:
    """The most that a request may cost which any of the models may answer, with its input written to a cache."""
    usages = [Usage(input_tokens, output_tokens, written=written) for written in (0, input_tokens)]
    prices = [price_of(model, usage) for model in models for usage in usages]
    known = [price for price in prices if price is not None]
    dearest = max(known) if known and len(known) == len(prices) else None
    return Estimate(input_tokens + output_tokens, dearest, output_tokens)


async def load_prices(models: Iterable[ConfiguredModel]) -> None:
    """Load the list if one of the models may need it, on a thread, since that takes a second."""
    if (
        any(model.price is None and model.provider in (*_URLS, _BEHIND) for model in models)
        and find_spec(_LIST) is not None
    ):
        await asyncio.to_thread(import_module, _LIST)


def _listed(model: ConfiguredModel, usage: Usage) -> int | None:
    if model.provider not in (*_URLS, _BEHIND) or find_spec(_LIST) is None:
        return None
    prices: Any = import_module(_LIST)
    provider, name = _provider_of(model)
    url = _URLS.get(provider) if model.base_url is None else model.base_url.get_secret_value()
    place = {"provider_id": provider} if url is None else {"provider_api_url": url}
    counts = {"input_tokens": usage.input, "output_tokens": usage.output}
    cache = {"cache_read_tokens": usage.cached, "cache_write_tokens": usage.written}
    try:
        found = prices.calc_price(prices.Usage(**counts, **cache), name, **place)
    except (LookupError, ValueError):
        return None
    return nanodollars(found.total_price)


def _provider_of(model: ConfiguredModel) -> tuple[str, str]:
    """The provider that has the model, and its name there."""
    if model.provider != _BEHIND:
        return model.provider, model.name
    provider, _, name = model.name.removeprefix("gateway/").partition(":")
    return provider, name


# The most tokens that the messages of a request may have: a byte of a text is one, a picture counts by the rule of its
# provider (SPEC R13.3).
#
# OpenAI counts tiles of 512 pixels, or patches of 32 times a factor, by the model; Anthropic a token for 750 pixels, or
# for each patch of 28. Other servers have models of many kinds: there a picture counts as in the dearest of these.


_TILES: Final[Mapping[str, tuple[int, int]]] = {
    "gpt-4o-mini": (2_833, 5_667),
    "gpt-4o": (85, 170),
    "gpt-4.1": (85, 170),
    "gpt-4.5": (85, 170),
    "gpt-5": (70, 140),
    "o1": (75, 150),
    "o3": (75, 150),
    "computer-use": (65, 129),
}
"""The tokens of a picture, and of each of its tiles, by the beginning of a model's name."""
_PATCHES: Final[Mapping[str, float]] = {
    "gpt-4.1-mini": 1.62,
    "gpt-4.1-nano": 2.46,
    "gpt-5-mini": 1.62,
    "gpt-5-nano": 2.46,
    "o4-mini": 1.72,
}
"""The tokens of each patch of a picture, by the beginning of a model's name."""
_MOST_TILES: Final = 8
_MOST_PATCHES: Final = 1_536
_MOST_OF_ANTHROPIC: Final = 4_784
_MOST_OF_OTHERS: Final = 16_384
_LEAST_OF_OTHERS: Final = 4_096
_LOW: Final = "low"


def request_tokens(messages: Sequence[Mapping[str, Any]], models: Iterable[ConfiguredModel]) -> int:
    """The most tokens that messages have for any of the models."""
    asked, pictures, documents = tuple(models), 0, 0

    def plain(part: Any) -> Any:
        nonlocal pictures, documents
        if not isinstance(part, Mapping):
            return part
        if is_file(part) and not str(part.get("media_type")).startswith("image/"):
            documents += _bytes(part)
            return {**part, "data": None}
        if not _is_picture(part):
            return part
        size, detail = _size_of(part), _detail(part)
        pictures += max((image_tokens(model, size, detail) for model in asked), default=_MOST_OF_OTHERS)
        return {"type": part.get("type")}

    texts = compact([with_changed(message, plain) for message in messages])
    return len(texts.encode()) + pictures + documents


def image_tokens(model: ConfiguredModel, size: Size | None, detail: str | None = None) -> int:
    """The most tokens that a picture has for a model; without a size those of the largest picture."""
    if model.provider == "openai" and model.base_url is None:
        return _openai_tokens(model.name, size, detail)
    most = _MOST_OF_ANTHROPIC if model.provider == "anthropic" else _MOST_OF_OTHERS
    if size is None:
        return most
    width, height = size
    least = -(-width // 28) * -(-height // 28) if model.provider == "anthropic" else _LEAST_OF_OTHERS
    return min(max(-(-width * height // 750), least), most)


def _openai_tokens(name: str, size: Size | None, detail: str | None) -> int:
    known = max((begin for begin in (*_TILES, *_PATCHES) if name.startswith(begin)), key=len, default="")
    factor = _PATCHES.get(known, max(_PATCHES.values()))
    by_patches = math.ceil(_patches(size) * factor)
    if known in _PATCHES:
        return by_patches
    base, tile = _TILES.get(known, _TILES["gpt-4o"])
    by_tiles = base if detail == _LOW else base + tile * _tiles(size)
    return by_tiles if known else max(by_tiles, by_patches)


def _patches(size: Size | None) -> int:
    return _MOST_PATCHES if size is None else min(-(-size[0] // 32) * -(-size[1] // 32), _MOST_PATCHES)


def _tiles(size: Size | None) -> int:
    """The tiles of a picture that is fitted into a square of 2048 pixels, then scaled to 768 on its shorter side."""
    if size is None:
        return _MOST_TILES
    shorter, longer = sorted(size)
    longer_side = min(768 * longer / shorter, 2_048)
    return 2 * math.ceil(longer_side / 512)


def _is_picture(part: Mapping[str, Any]) -> bool:
    return part.get("type") in ("image_url", "input_image", "image") or is_file(part)


def _size_of(part: Mapping[str, Any]) -> Size | None:
    """The size of the picture that a part holds, from its data or as it was read when the file was added."""
    match part:
        case {"pixels": [width, height]}:
            return valid_size((width, height))
        case {"image_url": {"url": str(url)} | str(url)} if url.startswith("data:"):
            data = url.partition(",")[2]
        case {"source": {"data": str(data)}} | {"data": str(data)}:
            pass
        case _:
            return None
    try:
        return image_size(base64.b64decode(data))
    except binascii.Error:
        return None


def _detail(part: Mapping[str, Any]) -> str | None:
    inner = part.get("image_url")
    return inner.get("detail") if isinstance(inner, Mapping) else None


def _bytes(part: Mapping[str, Any]) -> int:
    """The bytes of a document, each of which is at most one token; no rule of a provider says more."""
    data, size = part.get("data"), part.get("bytes")
    return len(data) if isinstance(data, str) else size if isinstance(size, int) and size > 0 else 0


# Profiles: the requests that each provider takes, as its documentation says (SPEC R12.6). They are data; `fitting` and
# `wire_schema` go by them.


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The schemas that a provider enforces. The limits are for a whole schema; None is no limit."""

    is_closed: bool
    """Whether every object has to list all its properties, and every value to have a type."""
    requires_all: bool
    """Whether every property has to be required; an optional one admits null then."""
    is_recursive: bool
    """Whether a definition may refer to itself."""
    has_own_first_keys: bool = False
    """Whether the objects of one union have to begin with different keys, or with different constants."""
    keywords: frozenset[str] = frozenset()
    """The keywords that the provider knows besides types, properties, items, enums, unions and references."""
    properties: int | None = None
    levels: int | None = None
    values: int | None = None
    """The values in all enums together."""
    unions: int | None = None
    optional: int | None = None
    characters: int | None = None
    """The characters of all names of properties and definitions, and of the values of enums."""
    enum_characters: int | None = None
    """The characters of the values of one enum that has more than 250."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The requests that one provider takes."""

    rules: Rules | None
    """The rules for schemas; None where it takes no schema."""
    is_strict: bool = False
    """Whether the provider enforces a schema only with `"strict": true`."""
    shows_schema: bool = False
    """Whether the provider shows a model the schema that it enforces; if not, a message does."""
    has_json_mode: bool = True
    """Whether the provider can enforce JSON without a schema (`json_object`)."""
    limits_all_functions: bool = False
    """Whether the limits hold for the parameters of all functions together."""
    parameter_names: str | None = None
    """The pattern of the names that parameters of functions may have; None for any name."""
    most_functions: int | None = None
    """The most functions of a request, the one of its output included; None where that is not known."""
    takes_any_turns: bool = False
    """Whether messages may have any order. Elsewhere a server may put them through the chat template of an open model:
    most of those take one system message, at the beginning, and then user and assistant in turn.
    """
    newer_names: bool = False
    """Whether the limit on an answer's tokens is `max_completion_tokens`, which OpenAI's newer models take, and not
    `max_tokens`, which other servers take.
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
"""The rules that llama.cpp, llguidance, outlines-core and xgrammar all take and apply alike."""

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
"""The profiles by name: `json` and `text` enforce no schema, and `text` has no JSON mode either."""

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
"""The profiles of a host and of those below it. Elsewhere `compatible` holds: Ollama, vLLM, llama.cpp, LM Studio,
Gemini, Mistral, Groq, Together, Fireworks, xAI, OpenRouter take any schema, and pass over unknown keywords.
"""
_BEHIND_GATEWAYS: Final[Mapping[str, str]] = {"openai/": "openai", "anthropic/": "anthropic", "deepseek/": "json"}
"""The profiles of models by their prefix at a gateway, such as OpenRouter's `openai/gpt-4o`."""
_BEHIND_PROVIDERS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("openai", "openai-chat", "openai-responses"), "openai"),
    **dict.fromkeys(("azure", "azure-responses"), "azure"),
    **dict.fromkeys(("deepseek", "moonshotai", "zai", "alibaba"), "json"),
}
"""The profiles of providers behind pydantic-ai, by its names; elsewhere `compatible`."""
_GATEWAYS: Final = frozenset({"openrouter.ai", "ai-gateway.vercel.sh"})


def profile_of(configured: ConfiguredModel, url: str) -> Profile:
    """The profile that the model's settings name, else the one of its host; `url` is the provider's own."""
    if configured.profile is not None:
        return PROFILES[configured.profile]
    provider, name = _provider_of(configured)
    if provider == "anthropic":
        return PROFILES["anthropic"]
    if configured.provider == _BEHIND:
        own = _BEHIND_PROVIDERS.get(provider, "compatible")
        return PROFILES["anthropic" if provider == "bedrock" and "anthropic." in name else own]
    host = urlsplit(configured.base_url.get_secret_value() if configured.base_url is not None else url).hostname or ""
    if host in _GATEWAYS:
        names = (name for prefix, name in _BEHIND_GATEWAYS.items() if configured.name.startswith(prefix))
    else:
        names = (name for own, name in _HOSTS.items() if host == own or host.endswith(f".{own}"))
    return PROFILES[next(names, "compatible")]
