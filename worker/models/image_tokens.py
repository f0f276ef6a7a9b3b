"""How many tokens the messages of a request have at most: a byte of a text is one, a picture counts by the rule of its
provider (SPEC R13.3).

OpenAI counts tiles of 512 pixels, or patches of 32 times a factor, by the model; Anthropic a token for 750 pixels, or
for each patch of 28. Servers of one's own have models of many kinds: there a picture counts as the largest of them do.
"""

from __future__ import annotations

import base64
import binascii
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from acts_celery.broker_config import ConfiguredModel
from acts_celery.protocol.language.files import is_file, with_changed
from acts_celery.protocol.requests.data_blocks import compact

Size = tuple[int, int]
"""Width and height, in pixels."""

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
"""Tokens of a picture, and of each of its tiles, by how a model's name begins."""
_PATCHES: Final[Mapping[str, float]] = {
    "gpt-4.1-mini": 1.62,
    "gpt-4.1-nano": 2.46,
    "gpt-5-mini": 1.62,
    "gpt-5-nano": 2.46,
    "o4-mini": 1.72,
}
"""Tokens of each patch."""
_MOST_TILES: Final = 8
_MOST_PATCHES: Final = 1_536
_MOST_OF_ANTHROPIC: Final = 4_784
_MOST_OF_OTHERS: Final = 16_384
_LEAST_OF_OTHERS: Final = 4_096
_LOW: Final = "low"


def request_tokens(messages: Sequence[Mapping[str, Any]], models: Iterable[ConfiguredModel]) -> int:
    """How many tokens messages have at most, whichever of the models reads them."""
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
    """How many tokens a picture has for a model at most; of any size where that is not known."""
    if model.provider == "anthropic":
        if size is None:
            return _MOST_OF_ANTHROPIC
        width, height = size
        return min(max(-(-width * height // 750), -(-width // 28) * -(-height // 28)), _MOST_OF_ANTHROPIC)
    if model.provider == "openai" and model.base_url is None:
        return _of_openai(model.name, size, detail)
    return (
        _MOST_OF_OTHERS if size is None else min(max(-(-size[0] * size[1] // 750), _LEAST_OF_OTHERS), _MOST_OF_OTHERS)
    )


def image_size(content: bytes) -> Size | None:
    """The size of a picture, by its header; None where that cannot be read."""
    import imagesize

    try:
        width, height = imagesize.get(io.BytesIO(content))
    except Exception:  # whatever a parser makes of bytes that anybody may have written
        return None
    return _valid((width, height))


def _of_openai(name: str, size: Size | None, detail: str | None) -> int:
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
    """A picture is put into a square of 2048 pixels, then its shorter side has 768."""
    if size is None:
        return _MOST_TILES
    shorter, longer = sorted(size)
    longer_side = min(768 * longer / shorter, 2_048)
    return 2 * math.ceil(longer_side / 512)


def _is_picture(part: Mapping[str, Any]) -> bool:
    return part.get("type") in ("image_url", "input_image", "image") or is_file(part)


def _size_of(part: Mapping[str, Any]) -> Size | None:
    """The size of the picture that a part holds, where it is in the part or was read when the file was given."""
    match part:
        case {"pixels": [width, height]}:
            return _valid((width, height))
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


def _valid(size: tuple[Any, Any]) -> Size | None:
    width, height = size
    is_size = all(isinstance(side, int) and not isinstance(side, bool) and side > 0 for side in size)
    return (width, height) if is_size else None


def _detail(part: Mapping[str, Any]) -> str | None:
    inner = part.get("image_url")
    return inner.get("detail") if isinstance(inner, Mapping) else None


def _bytes(part: Mapping[str, Any]) -> int:
    """Of a document: no rule says how many tokens it has, but a byte of it is one at most."""
    data, size = part.get("data"), part.get("bytes")
    return len(data) if isinstance(data, str) else size if isinstance(size, int) and size > 0 else 0
