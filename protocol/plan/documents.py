"""The document of a file: JSON, JSON with comments and commas before a closing bracket (JSONC), or msgpack.

Comments and such commas are replaced by spaces before the JSON reader does the rest, so its errors name the places of
the file. Objects and lists are counted before they take memory.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgpack

from ..errors import Problem, Rejected, no_json, repeated_key
from ..limits import Containers, Limits, TooManyContainers

_TEXT: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)'
"""A JSON text, also one that does not end. Possessive, so that nothing is read twice, however many quotes follow."""
_TEXT_BYTES: Final = re.compile(_TEXT.encode(), re.DOTALL)
_COMMENT: Final = re.compile(rf"{_TEXT}|//[^\r\n]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/|\Z)", re.DOTALL)
_LAST_COMMA: Final = re.compile(rf"{_TEXT}|[\[{{,:][ \t\r\n]*+,|,(?=[ \t\r\n]*+[\]}}])", re.DOTALL)
"""A comma before a closing bracket. After an opening bracket or another comma it remains an error."""


def decode(data: bytes, limits: Limits | None = None) -> Any:
    """The value of a file's bytes. Raises `Rejected`."""
    most = (limits or Limits()).containers_in_all
    if not data.strip():
        raise Rejected([Problem("", "the submission is empty")])
    if 0x80 <= data[0] <= 0x9F or 0xDC <= data[0] <= 0xDF:
        return _decode_msgpack(data, most)
    if len(data) > most and _most_containers(data) > most and _most_containers(_TEXT_BYTES.sub(b"", data)) > most:
        raise Rejected([Problem("", f"more than {most} objects and lists (ACTS_LIMIT_CONTAINERS)")])
    try:
        try:
            return _loads(data)
        except json.JSONDecodeError as error:
            plain = without_comments(error.doc)
            if plain == error.doc:
                raise
            return _loads(plain)
    except RecursionError:
        raise Rejected([Problem("", f"nested deeper than {Limits().depth} levels (ACTS_LIMIT_DEPTH)")]) from None
    except UnicodeDecodeError as error:
        raise Rejected([Problem("", f"not UTF-8: byte {error.start} cannot be decoded")]) from None
    except ValueError as error:
        raise Rejected([Problem("", f"not JSON: {no_json(error)}{_comment(error)}")]) from None


def _loads(data: bytes | str) -> Any:
    try:
        return json.loads(data, parse_constant=_refuse_constant, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        if (whole := _of_two(error)) is None:
            raise
        return whole


def _of_two(error: json.JSONDecodeError) -> dict[str, Any] | None:
    """The submission that two documents are: a list of messages, and a solution behind it; None for anything else."""
    text, end = error.doc, error.pos
    if error.msg != "Extra data" or not text.lstrip().startswith("[") or not text[end:].lstrip().startswith("{"):
        return None
    reading = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_object)
    try:
        context, solution = reading.decode(text[:end]), reading.decode(text[end:])
    except json.JSONDecodeError:
        return None
    is_solution = isinstance(solution.get("calls"), list) and not any(map(is_call, context))
    return {"context": context, "solution": solution} if is_solution else None


def without_comments(text: str, *, is_whole: bool = True) -> str:
    """The text with spaces for comments and for commas before a closing bracket. Raises `Rejected` for a comment that
    does not end; where there is more in the text than a JSON value, that stays as it is.
    """

    def blank(found: re.Match[str]) -> str:
        what = found[0]
        if what.startswith("/*") and (len(what) < 4 or not what.endswith("*/")):
            if not is_whole:
                return what
            line = text.count("\n", 0, found.start()) + 1
            raise Rejected([Problem("", f"not JSON: the comment that begins in line {line} is not closed")])
        return re.sub(r"[^\r\n]", " ", what) if what.startswith("/") or what == "," else what

    return _LAST_COMMA.sub(blank, _COMMENT.sub(blank, text))


def _most_containers(data: bytes) -> int:
    """An upper bound for the number of objects and lists: brackets inside texts count, too."""
    return data.count(b"[") + data.count(b"{")


def _decode_msgpack(data: bytes, most_containers: int) -> Any:
    made = Containers(most_containers).made
    try:
        return msgpack.unpackb(
            data, strict_map_key=True, object_pairs_hook=lambda pairs: made(_object(pairs)), list_hook=made
        )
    except TooManyContainers as error:
        raise Rejected([Problem("", str(error))]) from None
    except (ValueError, msgpack.exceptions.UnpackException, RecursionError, MemoryError) as error:
        raise Rejected([Problem("", f"not msgpack: {error or type(error).__name__}")]) from None


def _object(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """An object. Raises `Rejected` where a key occurs twice: its value would be uncertain."""
    value = dict(pairs)
    if len(value) < len(pairs):
        raise Rejected([Problem("", repeated_key(pairs))])
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _comment(error: ValueError) -> str:
    """Advice where a comment of another language is the error."""
    is_comment = isinstance(error, json.JSONDecodeError) and error.doc[error.pos :].startswith("#")
    return "; a comment begins with //" if is_comment else ""


def is_call(value: Any) -> bool:
    """Tell a call from other objects: it names a tool."""
    return isinstance(value, dict) and "_tool" in value
