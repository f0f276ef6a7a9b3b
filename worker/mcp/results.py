"""What a tool of an MCP server answers, as the value of a call.

Structured content is the value as it is. Texts are a text. Where there is anything else, the value is a list of parts:
pictures, sounds and files are named there by type, size and digest, and links by their address; their bytes are not
kept. All of it is data: no text in it is a reference (SPEC R2.4).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

from .errors import McpToolFailed

_LONGEST_ERROR: Final = 2_000


def value_of(answer: Mapping[str, Any], *, is_wrapped: bool = False) -> Any:
    """The value of a `CallToolResult`; `is_wrapped` where its tool says that (see `declarations`).

    Raises `McpToolFailed` where the tool says that it has failed.
    """
    parts = [_part(block) for block in answer.get("content") or ()]
    texts = [part["text"] for part in parts if part.keys() == {"text"}]
    if answer.get("isError"):
        raise McpToolFailed("\n".join(texts)[:_LONGEST_ERROR] or "the tool has failed and does not say why")
    if (found := answer.get("structuredContent")) is not None:
        return found["result"] if is_wrapped and isinstance(found, dict) and found.keys() == {"result"} else found
    return "\n".join(texts) if len(texts) == len(parts) else parts


def _part(block: Mapping[str, Any]) -> dict[str, Any]:
    match block.get("type"):
        case "text":
            return {"text": block["text"]}
        case "image" | "audio":
            return {"type": block["type"], **_kept(block, ("mimeType",)), **_digested(block["data"])}
        case "resource":
            resource = block["resource"]
            data = _digested(resource["blob"]) if "blob" in resource else {"text": resource.get("text", "")}
            return {"type": "resource", **_kept(resource, ("uri", "mimeType")), **data}
        case "resource_link":
            return {"type": "resource_link", **_kept(block, ("uri", "name", "description", "mimeType", "size"))}
    return {"type": str(block.get("type"))[:100]}


def _kept(block: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: block[key] for key in keys if block.get(key) is not None}


def _digested(data: str) -> dict[str, Any]:
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return {"bytes": None}
    return {"bytes": len(content), "sha256": sha256(content).hexdigest()}
