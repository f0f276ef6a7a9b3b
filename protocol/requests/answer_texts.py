"""Answer texts: the one JSON object that a model has written, whatever stands around it (SPEC R12.6a).

    <think>Three of them cost 60.</think>
    Here is the plan:
    ```json
    {"calls": [{"_tool": "order", "count": 3}], "output": null}
    ```

The object is the one that has `calls` or `output`. Nothing else is guessed: what only looks like it, or stands there
twice with different values, is an error that says what was expected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from contextlib import suppress
from typing import Any, Final

from acts_celery.protocol.language.errors import no_json, repeated_key

ANSWER_KEYS: Final = ("calls", "output")
"""By which an answer is known."""
_THINKING: Final = ("<think>", "</think>")
_STOP: Final = re.compile(r"[{\[]|</?think>")
_BEGINS: Final = re.compile(r'\{\s*["}]|\[\s*[\[{]')
"""What begins like JSON that may hold an answer; other brackets belong to the words around it."""
_MARK: Final = re.compile(r'["{}\[\]]')
_STRING_END: Final = re.compile(r'"|\\.?', re.DOTALL)
_LEFT_OUT: Final = ("...", "…")
"""What stands for something else: a text that has it shows the shape of an answer, and is none."""
_PAIRS: Final = {"}": "{", "]": "["}
_MOST_DIGITS: Final = 4_000
_MOST_BROKEN: Final = 1_000
"""So many texts that begin like JSON and are none are passed over,"""
_MOST_PASSED: Final = 3
"""which are up to so many times as long in all as the whole."""


class Unreadable(ValueError):
    """A text that is not JSON, in which a key stands twice, or that has no answer."""


def decoded(text: str, *, is_lenient: bool = False) -> Any:
    """The value of a JSON text that is nothing else. Raises `Unreadable`. Where it is lenient, numbers that cannot be
    kept are read all the same: what holds one is refused by itself (SPEC R4.1).
    """
    try:
        return (_LENIENT if is_lenient else _DECODER).decode(text)
    except (ValueError, RecursionError) as error:
        raise _not_json(error) from None


def find_answer(text: str, keys: Collection[str] = ANSWER_KEYS, *, is_lenient: bool = False) -> dict[str, Any]:
    """The object in a text that has one of these keys; lenient as in `decoded`. Raises `Unreadable` where there is
    none, or where several differ.
    """
    return _found(text, keys, _LENIENT if is_lenient else _DECODER)[0][0]


def words_beside(text: str) -> str:
    """What stands around that object; nothing where there is none."""
    words, at = "", 0
    with suppress(Unreadable):
        for _, start, end in _found(text, ANSWER_KEYS, _LENIENT):
            words, at = words + text[at:start], end
    return (words + text[at:]).strip() if at else ""


def _found(text: str, keys: Collection[str], decoder: json.JSONDecoder) -> list[tuple[dict[str, Any], int, int]]:
    """The object as often as it stands there, each time with its place."""
    found: list[tuple[dict[str, Any], int, int]] = []
    at, left, broken = 0, _MOST_PASSED * len(text), 0
    while (stop := _STOP.search(text, at)) is not None and left > 0 and broken < _MOST_BROKEN:
        at = stop.start()
        if stop[0] in _THINKING:
            end = text.find(_THINKING[1], at)
            if stop[0] == _THINKING[1]:
                found.clear()  # it began in the prompt
            at = len(text) if end < 0 else end + len(_THINKING[1])
        elif not _BEGINS.match(text, at):
            at += 1
        else:
            start = at
            try:
                value, at = decoder.raw_decode(text, start)
            except (ValueError, RecursionError) as error:
                behind = _end_of(text, at)
                if not _is_shape(text, error) and _names(text[at:behind], keys):
                    raise _not_json(error) from None
                left -= (len(text) if behind is None else behind) - at
                at = at + 1 if behind is None else behind
                broken += 1
            else:
                found += [(value, start, at)] if isinstance(value, dict) and value.keys() & set(keys) else []
    if stop is not None:
        raise Unreadable("too much of it begins like JSON and is none")
    if not found:
        raise Unreadable(missing(keys) if text.strip() else f"it is empty; {expected(keys)}")
    if any(_compact(each) != _compact(found[0][0]) for each, *_ in found[1:]):
        raise Unreadable(f"it has {len(found)} different objects with {_either(keys)}: write one")
    return found


def _end_of(text: str, at: int) -> int | None:
    """Behind the bracket that closes the one here; None where none does."""
    is_open: list[str] = []
    while (mark := _MARK.search(text, at)) is not None:
        at = mark.end()
        if mark[0] == '"':
            while (end := _STRING_END.search(text, at)) is not None and end[0] != '"':
                at = end.end()
            if end is None:
                return None
            at = end.end()
        elif mark[0] in _PAIRS:
            if is_open.pop() != _PAIRS[mark[0]]:
                return None
            if not is_open:
                return at
        else:
            is_open.append(mark[0])
    return None


def _is_shape(text: str, error: Exception) -> bool:
    """Whether what is no JSON there is a sign for what is left out."""
    return isinstance(error, json.JSONDecodeError) and text.startswith(_LEFT_OUT, error.pos)


def _names(text: str, keys: Collection[str]) -> bool:
    """Whether one of the keys stands in it."""
    return re.search(rf'"(?:{"|".join(map(re.escape, keys))})"\s*:', text) is not None


def _not_json(error: ValueError | RecursionError) -> Unreadable:
    if isinstance(error, Unreadable):
        return error
    if isinstance(error, RecursionError):
        return Unreadable("it is nested too deeply")
    return Unreadable(f"it is not JSON ({no_json(error)})")


def missing(keys: Collection[str] = ANSWER_KEYS) -> str:
    """What is said of an answer that has none of the keys."""
    return f"it has no JSON object with {_either(keys)}; {expected(keys)}"


def expected(keys: Collection[str]) -> str:
    """What an answer looks like."""
    shape = ", ".join(f'"{key}": …' for key in keys)
    return f"expected {{{shape}}}"


def _either(keys: Collection[str]) -> str:
    return " or ".join(f'"{key}"' for key in keys)


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise Unreadable(repeated_key(pairs))
    return value


def _refused(name: str) -> Any:
    raise Unreadable(f"{name} is not a JSON value")


def _integer(text: str) -> int:
    """An integer; of one of more digits than Python reads, the first: it is beyond 64 bits in any case."""
    return int(text[:_MOST_DIGITS])


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refused)
_LENIENT: Final = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer)
