"""Types as a model is shown them: a schema in the way of programs (SPEC R12.2a).

    {refunded: number, at?: string(date), by: "card" | "bank"}

It is an outline: the schema of the whole answer says the rest. So of a large type the first thousands of characters are
written, and how many fields, choices or values are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from acts_celery.protocol.language.visible import one_line
from acts_celery.protocol.schemas.walk import referred

from .data_blocks import compact

T = TypeVar("T")

_DEEPEST: Final = 6
_MOST_VALUES: Final = 50
_MOST_CHARACTERS: Final = 4_000
_ANY: Final = "any"
_OR: Final = " | "
_PLAIN: Final = frozenset({"string", "number", "integer", "boolean", "null", "object"})


def type_text(schema: Any, document: Any) -> str:
    """The type that a schema describes, as it is written in programs; what is too deep or has no name is `any`.

    >>> type_text({"properties": {"a": {"type": "string"}, "b": {}}, "required": ["a"]}, {})
    '{a: string, b?: any}'
    """
    return _Types(document).text(schema, 0)


class _Types:
    """Writes the types of a document, until there are as many characters as are shown."""

    def __init__(self, document: Any) -> None:
        self._document = document
        self._left = _MOST_CHARACTERS

    def text(self, schema: Any, depth: int) -> str:
        if not isinstance(schema, dict) or depth > _DEEPEST:
            return self._counted("never" if schema is False else _ANY)
        if "const" in schema:
            return self._counted(compact(schema["const"]))
        if "enum" in schema:
            return _OR.join(self._first(schema["enum"], lambda value: self._counted(compact(value)), _MOST_VALUES))
        if "$ref" in schema:
            return self.text(referred(schema["$ref"], self._document), depth + 1)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema and "properties" not in schema:
                return _union(self._below(schema[keyword], depth))
        types = schema.get("type")
        if isinstance(types, list):
            return _union(self.text({**schema, "type": each}, depth) for each in types)
        if types is None and schema.get("allOf"):
            return _joined(self._below(schema["allOf"], depth))
        return self._of_type(types, schema, depth)

    def _of_type(self, type_: Any, schema: Mapping[str, Any], depth: int) -> str:
        if type_ == "array":
            if places := self._below(schema.get("prefixItems", ()), depth):
                return f"[{', '.join(places)}]"
            item = self.text(schema.get("items", True), depth + 1)
            return f"({item})[]" if _OR in item else f"{item}[]"
        if type_ == "object" or (type_ is None and "properties" in schema):
            return self._object(schema, depth)
        if type_ == "string" and isinstance(schema.get("format"), str):
            return self._counted(f"string({one_line(schema['format'])})")
        return self._counted(type_ if isinstance(type_, str) else _ANY)

    def _object(self, schema: Mapping[str, Any], depth: int) -> str:
        required = schema.get("required", ())

        def field(pair: tuple[str, Any]) -> str:
            name = self._counted(f"{one_line(pair[0])}{'' if pair[0] in required else '?'}: ")
            return name + self.text(pair[1], depth + 1)

        fields = self._first(schema.get("properties", {}).items(), field)
        others = schema.get("additionalProperties")
        if isinstance(others, dict) and not fields:
            return f"{{[name]: {self.text(others, depth + 1)}}}"
        return f"{{{', '.join(fields)}}}" if fields else self._counted("object")

    def _below(self, schemas: Iterable[Any], depth: int) -> list[str]:
        return self._first(schemas, lambda schema: self.text(schema, depth + 1))

    def _first(self, parts: Iterable[T], write: Callable[[T], str], most: int | None = None) -> list[str]:
        """Those that there is room for, and how many others there are."""
        parts, written = list(parts), list[str]()
        for part in parts[:most]:
            if self._left <= 0:
                break
            written.append(write(part))
        left = len(parts) - len(written)
        return [*written, f"… {left} more"] if left else written

    def _counted(self, text: str) -> str:
        self._left -= len(text)
        return text


def _union(types: Iterable[str]) -> str:
    return _OR.join(dict.fromkeys(types)) or _ANY


def _joined(types: list[str]) -> str:
    """The type of what is all of these; a plain one beside another that says more is left out."""
    known = [each for each in dict.fromkeys(types) if each != _ANY]
    known = [each for each in known if each not in _PLAIN] or [each for each in known if each != "number"] or known
    return " & ".join(f"({each})" if _OR in each and len(known) > 1 else each for each in known) or _ANY
