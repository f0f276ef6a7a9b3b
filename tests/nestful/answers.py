"""What a tool answers: a value made of nothing but its spec and the parameters of the call.

A digest of the tool's name and the canonical JSON of the parameters feeds every leaf, so one wrong
parameter anywhere upstream changes every value downstream. Answers have the types the spec declares. Some
strings look like references on purpose: resolved values are data and must never be parsed again (SPEC
R2.4).
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from .source import Tool

_Maker = Callable[[Mapping[str, Any], bytes, str], Any]


def answer(tool: Tool, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of `tool` to `parameters`: an object with every output property its spec lists."""
    canonical = json.dumps(parameters, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    seed = _digest(tool.name.encode(), canonical.encode())
    return {name: _value(declared, _digest(seed, name.encode()), name) for name, declared in tool.outputs.items()}


def _digest(*parts: bytes) -> bytes:
    return hashlib.sha256(b"\0".join(parts)).digest()


def _value(declared: Mapping[str, Any] | str, seed: bytes, name: str) -> Any:
    if isinstance(declared, str):  # a nested property written as {"count": "string"}
        declared = {"type": declared}
    return _MAKERS[declared["type"].lower()](declared, seed, name)


def _string(_declared: Mapping[str, Any], seed: bytes, name: str) -> str:
    text = f"{name} {seed[:4].hex()}"
    match seed[4] % 16:
        case 0:
            return "†input.request"  # would resolve, to the wrong text
        case 1:
            return f"†state.x{seed[:4].hex()} || †input.request"
        case 2:
            return f"††{text}"  # would lose a † if it were taken for an escape
        case 3:
            return f"†{text}"  # would not parse
        case 4:
            return f"${text}$ текст ①"
        case _:
            return text


def _number(_declared: Mapping[str, Any], seed: bytes, _name: str) -> int | float:
    # Whole either way, so that a consumer that asks for an integer is content; JSON Schema counts 7.0 as one.
    whole = int.from_bytes(seed[:3], "big") % 100_000
    return float(whole) if seed[4] % 2 else whole


def _float(_declared: Mapping[str, Any], seed: bytes, _name: str) -> float:
    return int.from_bytes(seed[:2], "big") / 8 + 0.0625  # exact in binary, never whole


def _integer(_declared: Mapping[str, Any], seed: bytes, _name: str) -> int:
    return int.from_bytes(seed[:5], "big", signed=True)


def _boolean(_declared: Mapping[str, Any], seed: bytes, _name: str) -> bool:
    return seed[0] % 2 == 0


def _array(declared: Mapping[str, Any], seed: bytes, name: str) -> list[Any]:
    items = declared.get("items", "string")
    return [_value(items, _digest(seed, bytes([n])), f"{name} {n}") for n in range(1 + seed[0] % 3)]


def _object(declared: Mapping[str, Any], seed: bytes, _name: str) -> dict[str, Any]:
    properties = declared.get("properties", {"summary": "string", "size": "integer"})
    return {key: _value(inner, _digest(seed, key.encode()), key) for key, inner in properties.items()}


_MAKERS: Mapping[str, _Maker] = {
    "string": _string,
    "file": _string,  # a name or a URL: it travels as text
    "number": _number,
    "float": _float,
    "integer": _integer,
    "boolean": _boolean,
    "array": _array,
    "object": _object,
}
