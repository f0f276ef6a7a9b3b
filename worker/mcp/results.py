"""What a tool of an MCP server answers, as the value of a call.

Structured content is the value as it is. Texts are a text. Where there is anything else, the value is a list of parts:
pictures, sounds and files are named there by type, size and digest, and links by their address. Pictures are kept as
files of the run, other bytes are not. All of it is data: no text in it is a reference (SPEC R2.4).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

from .errors import McpToolFailed

Keep = Callable[[bytes], Awaitable[str]]
"""Keeps a picture; returns why it is not kept, or nothing."""
_LONGEST_ERROR: Final = 2_000


async def value_of(answer: Mapping[str, Any], keep: Keep, *, is_wrapped: bool = False) -> Any:
    """The value of a `CallToolResult`; `is_wrapped` where its tool says that (see `declarations`).

    Raises `McpToolFailed` where the tool says that it has failed.
    """
    blocks = answer.get("content") or ()
    texts = [block["text"] for block in blocks if block.get("type") == "text"]
    if answer.get("isError"):
        raise McpToolFailed("\n".join(texts)[:_LONGEST_ERROR] or "the tool has failed and does not say why")
    if (found := answer.get("structuredContent")) is not None:
        return found["result"] if is_wrapped and isinstance(found, dict) and found.keys() == {"result"} else found
    return "\n".join(texts) if len(texts) == len(blocks) else [await _part(block, keep) for block in blocks]


async def _part(block: Mapping[str, Any], keep: Keep) -> dict[str, Any]:
    match block.get("type"):
        case "text":
            return {"text": block["text"]}
        case "image" | "audio" as kind:
            own = {"type": kind, **_kept(block, ("mimeType",))}
            return {**own, **await _digested(block["data"], keep if kind == "image" else None)}
        case "resource":
            resource = block["resource"]
            own = {"type": "resource", **_kept(resource, ("uri", "mimeType"))}
            if "blob" not in resource:
                return {**own, "text": resource.get("text", "")}
            is_image = str(resource.get("mimeType")).startswith("image/")
            return {**own, **await _digested(resource["blob"], keep if is_image else None)}
        case "resource_link":
            return {"type": "resource_link", **_kept(block, ("uri", "name", "description", "mimeType", "size"))}
    return {"type": str(block.get("type"))[:100]}


def _kept(block: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: block[key] for key in keys if block.get(key) is not None}


async def _digested(data: str, keep: Keep | None) -> dict[str, Any]:
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return {"bytes": None}
    why = await keep(content) if keep is not None else ""
    return {"bytes": len(content), "sha256": sha256(content).hexdigest(), **({"notKept": why} if why else {})}
