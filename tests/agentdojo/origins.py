"""Where a value of a ground truth comes from: the prompt, an earlier output, or somebody who reads one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_WORD = re.compile(r"[^\s'\"(),;?!]+")
_NAME = re.compile(r"[A-Za-z_]\w*")


def is_in_prompt(value: Any, prompt: str) -> bool:
    """Whether whoever plans can write a value down from the prompt alone: each of its words stands there."""
    words = {word.strip(".:").lower() for word in _WORD.findall(prompt)}
    if isinstance(value, Mapping):
        return all(is_in_prompt(one, prompt) for one in value.values())
    if isinstance(value, list):
        return all(is_in_prompt(one, prompt) for one in value)
    if isinstance(value, bool) or value is None:
        return value is None
    if isinstance(value, int | float):
        return any(_number(word) == value for word in words)
    text = str(value).lower()
    is_quoted = re.search(rf"(?<![\w.@-]){re.escape(text)}(?![\w@-])", prompt.lower()) is not None
    return is_quoted or all(word.strip(".:") in words for word in _WORD.findall(text))


Path = tuple[str | int, ...]
Found = tuple[str, Path]
"""The place of an output, and a path in it."""


def paths_to(value: Any, outputs: Mapping[str, Any], *, any_element: bool = False) -> Iterator[Found]:
    """Where a value is in the outputs by where they are written, the last one first. A path names no element of a list
    but the only one: which of several it is cannot be known before the list is read. With `any_element` it names any.
    """
    for place, output in reversed(list(outputs.items())):
        for path, found in _walk((), output, any_element=any_element):
            if type(found) is type(value) and found == value and value not in ("", [], {}):
                yield place, path


def values_at(path: Path, output: Any) -> Iterator[Any]:
    """The values of an output at a path, in which `*` is each element of a list."""
    if not path:
        yield output
    elif path[0] == "*" and isinstance(output, list):
        for one in output:
            yield from values_at(path[1:], one)
    elif isinstance(output, Mapping) and path[0] in output:
        yield from values_at(path[1:], output[str(path[0])])


def readable(value: Any, outputs: Mapping[str, Any]) -> list[str]:
    """The outputs in which somebody who reads finds a value: where it stands, or all where it stands nowhere."""
    leaves = [str(one) for one in _leaves(value)]
    found = [place for place, output in outputs.items() if any(_stands(leaf, output) for leaf in leaves)]
    return found or list(outputs)


def _stands(leaf: str, output: Any) -> bool:
    texts = [str(one) for one in _leaves(output)]
    return leaf in texts or (len(leaf) > 1 and leaf in json.dumps(output, ensure_ascii=False))


def _walk(path: Path, value: Any, *, any_element: bool) -> Iterator[tuple[Path, Any]]:
    yield path, value
    inner: Sequence[tuple[str | int, Any]] = []
    if isinstance(value, Mapping):
        inner = [(key, one) for key, one in value.items() if _NAME.fullmatch(key)]
    elif isinstance(value, list) and (any_element or len(value) == 1):
        inner = list(enumerate(value))
    for key, one in inner:
        yield from _walk((*path, key), one, any_element=any_element)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for one in value.values():
            yield from _leaves(one)
    elif isinstance(value, list):
        for one in value:
            yield from _leaves(one)
    else:
        yield value


def _number(word: str) -> float | None:
    try:
        return float(word.strip("£$€%"))
    except ValueError:
        return None
