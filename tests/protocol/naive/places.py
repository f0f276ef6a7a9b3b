"""Places and expressions, read from their text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

Segment = str | int
Place = tuple[str, tuple[Segment, ...]]
"""A kind and a path."""
Groups = list[list[Place]]
"""Alternatives of places that belong together."""
ERROR: Place = ("error", ())
INDEX = re.compile(r"0|[1-9][0-9]{0,17}")


def places(text: str, dagger: str = "") -> Groups:
    """`†a.b && †c || †d` as places; `dagger` is what each lacks."""
    tokens = re.findall(r'\["(?:[^"\\]|\\.)*"\]|\|\||&&|[^|&\[]+', text)
    groups: list[list[str]] = [[""]]
    for token in tokens:
        if token == "||":
            groups.append([""])
        elif token == "&&":
            groups[-1].append("")
        else:
            groups[-1][-1] += token
    return [[place(dagger + part.strip()) for part in group] for group in groups] if text else []


@cache
def place(text: str) -> Place:
    """`†state.user["first name"].0` as kind and path; without † inside the state."""
    if not text.startswith("†"):
        text = "†state" + (text if text.startswith("[") else "." + text)
    kind = re.match(r"†[^.\[]*", text)
    assert kind is not None
    path: list[Segment] = []
    for bare, quoted in re.findall(r'\.([^.\[]+)|\[("(?:[^"\\]|\\.)*")\]', text[kind.end() :]):
        path.append(json.loads(quoted) if quoted else int(bare) if INDEX.fullmatch(bare) else bare)
    return kind[0][1:], tuple(path)


def parts(text: str) -> list[str | Groups]:
    """A text that is no expression as literal texts and, in braces, what is read."""
    tokens = re.findall(r'††|†\{(?:\["(?:[^"\\]|\\.)*"\]|[^}])*\}|.', text, re.DOTALL)
    return [places(token[2:-1], "†") if token.startswith("†{") else token.replace("††", "†") for token in tokens]


def is_expression(value: Any) -> bool:
    """Whether a value is a reference or several."""
    return isinstance(value, str) and value.startswith("†") and value[1:2] not in ("†", "{")


def expressions(call: Mapping[str, Any]) -> Iterator[Groups]:
    """Every expression in a call's parameters."""
    for key, value in call.items():
        if not key.startswith("_"):
            yield from _expressions(value)


def _expressions(value: Any) -> Iterator[Groups]:
    if isinstance(value, str):
        yield from (
            [places(value)] if is_expression(value) else (part for part in parts(value) if isinstance(part, list))
        )
    elif isinstance(value, dict):
        for item in value.values():
            yield from _expressions(item)
    elif isinstance(value, list):
        for item in value:
            yield from _expressions(item)


def scopes(call: Mapping[str, Any]) -> list[Place]:
    """What a call may see, whole kinds as well as slices."""
    return [place(scope if scope.startswith("†") else "†" + scope) for scope in call.get("_scopes", [])]


def afters(call: Mapping[str, Any]) -> list[Place]:
    """Where those write that a call waits for without reading it."""
    return [place(text) for text in call.get("_after", [])]


def outputs(call: Mapping[str, Any]) -> Groups:
    """Where a call may write."""
    return places(call["_outputPath"]) if call.get("_outputPath") is not None else []


SURE = ("give", "wrap", "list", "echo", "see")


def may_fail(call: Mapping[str, Any]) -> bool:
    """Whether a call can leave an error: not where its tool takes whatever is given, and its result replaces what is
    at a key of its kind.
    """
    is_plain = call.get("_outputMethod", "set") == "set" and "_each" not in call
    return not is_plain or call["_tool"] not in SURE or any(len(at[1]) != 1 for at in written(call))


def written(call: Mapping[str, Any]) -> list[Place]:
    """Every place that a call may write."""
    return [one for group in outputs(call) for one in group]


def places_seen(call: Mapping[str, Any]) -> list[Place]:
    """Every place that a call reads, by its parameters or its scopes."""
    return [*(one for groups in expressions(call) for group in groups for one in group), *scopes(call)]


def overlap(one: Place, other: Place) -> bool:
    """Whether a place is the other, above it or below it."""
    mine, theirs = [one[0], *map(str, one[1])], [other[0], *map(str, other[1])]
    return all(a == b for a, b in zip(mine, theirs, strict=False))
