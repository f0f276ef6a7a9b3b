"""Answers at random: a model that tries the tools of a test with whatever their schemas admit.

    acts.model(random_answers(seed=7))

An answer has up to three calls, or an output. Parameters are values of the tool's schema, with the odd ones among them
(empty texts, least and largest numbers, what may be left out), and now and then a reference to what an earlier call of
the answer writes. The same seed and request give the same answer. What the whole schema refuses is made anew, and at
last as plain as it can be: a call that the engine refuses all the same is an error that its next request shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

from acts_celery.protocol.analysis.sample_values import sample
from acts_celery.protocol.schemas import compiled, referred

from .request import ModelRequest

_TEXTS: Final = ("", "a", "O'Brien", "0", "null", "двойка ②", "line\nbreak", "<b>&amp;</b>", "x" * 300)
_NUMBERS: Final = (0, 1, -1, 2, 7, 100, 10**9)
_ODDS_OF_REFERENCE: Final = 0.1
_MOST_CALLS: Final = 3
_TRIES: Final = 20
_DEPTH: Final = 8


def random_answers(seed: int = 0) -> Callable[[Sequence[Mapping[str, Any]], Any, Mapping[str, Any]], dict[str, Any]]:
    """A function that can be a model of a test (`acts.model(random_answers(7))`): it answers at random."""

    def answer(messages: Sequence[Mapping[str, Any]], schema: Any, config: Mapping[str, Any]) -> dict[str, Any]:
        return _Dice(schema, Random(f"{seed} {ModelRequest(messages, schema, config).digest}")).answer()

    return answer


class _Dice:
    """Draws one answer to a request of this schema."""

    def __init__(self, root: Any, random: Random) -> None:
        self._root = root if isinstance(root, dict) else {}
        self._random = random
        self._written: list[str] = []

    def answer(self) -> dict[str, Any]:
        """The answer: calls, or an output."""
        parts = self._root.get("properties", {})
        outputs = self._alternatives(parts.get("output", {}))
        output: Any = next((each for each in outputs if each != {"type": "null"}), {})
        tools = [each for each in self._alternatives(parts.get("calls", {}).get("items")) if each]
        if not tools or self._random.random() < 1 / 3:
            return {**({"calls": []} if "calls" in parts else {}), "output": self._fitting(output)}
        calls = [self._call(self._random.choice(tools)) for _ in range(self._random.randint(1, _MOST_CALLS))]
        return {"calls": calls, "output": None}

    def _call(self, tool: Any) -> Any:
        call = self._fitting(tool)
        if isinstance(call, dict) and "_outputPath" in call:
            self._written.append(str(call["_outputPath"]))
        return call

    def _fitting(self, schema: Any) -> Any:
        whole = compiled(self._whole(schema))
        drawn = (self._value(schema, 0) for _ in range(_TRIES))
        return next((value for value in drawn if not whole.problems(value)), self._plain(schema))

    def _value(self, schema: Any, depth: int) -> Any:
        schema = self._random.choice(self._alternatives(schema))
        if not isinstance(schema, dict) or depth > _DEPTH:
            return self._plain(schema)
        if "anyOf" in schema or "oneOf" in schema:
            return self._value(schema, depth + 1)
        for keyword in ("const", "enum"):
            if keyword in schema:
                return schema[keyword] if keyword == "const" else self._random.choice(schema[keyword])
        if "properties" in schema:
            return self._object(schema, depth)
        if schema.get("type") == "array" and "prefixItems" not in schema:
            least = schema.get("minItems", 0)
            size = self._random.randint(least, min(schema.get("maxItems", least + 3), least + 3))
            return [self._value(schema.get("items", True), depth + 1) for _ in range(size)]
        if schema.get("type") == "boolean":
            return self._random.random() < 1 / 2
        return self._leaf(schema)

    def _leaf(self, schema: Mapping[str, Any]) -> Any:
        if "format" in schema:
            return self._plain(schema)
        known = {"string": _TEXTS, "integer": _NUMBERS, "number": (*_NUMBERS, 0.5, -1e-9)}
        ends = [schema[key] for key in ("minimum", "maximum") if key in schema]
        kind = schema.get("type")
        return self._random.choice([*known.get(kind if isinstance(kind, str) else "", ()), *ends, self._plain(schema)])

    def _plain(self, schema: Any) -> Any:
        return sample(self._whole(schema))

    def _whole(self, schema: Any) -> Any:
        return {**schema, "$defs": self._root.get("$defs", {})} if isinstance(schema, dict) else schema

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        required, found = schema.get("required", ()), dict[str, Any]()
        is_call = depth == 0 and "_tool" in schema["properties"]
        for key, below in schema["properties"].items():
            is_parameter = is_call and not key.startswith("_")
            odds = 1 / 2 if is_parameter or not is_call else 0  # a model leaves out what it need not say of a call
            if below is False or (key not in required and self._random.random() >= odds):
                continue
            if is_parameter and self._written and self._random.random() < _ODDS_OF_REFERENCE:
                found[key] = self._random.choice(self._written)
            elif is_call and key == "_outputPath" and _is_of_engine(self._followed(below)):
                found[key] = f"†state.r{len(self._written)}"
            else:
                found[key] = self._value(below, depth + 1)
        return found

    def _alternatives(self, schema: Any) -> list[Any]:
        """What a schema is one of, without a reference or a template in place of a value; itself where that is all."""
        schema = self._followed(schema)
        listed = schema.get("anyOf") or schema.get("oneOf") if isinstance(schema, dict) else None
        if not listed:
            return [schema]
        return [branch for branch in map(self._followed, listed) if not _is_of_engine(branch)] or listed

    def _followed(self, schema: Any) -> Any:
        for _ in range(_DEPTH):
            if not isinstance(schema, dict) or "$ref" not in schema:
                break
            schema = referred(schema["$ref"], self._root)
        return schema


def _is_of_engine(schema: Any) -> bool:
    return isinstance(schema, dict) and "†" in str(schema.get("pattern", ""))
