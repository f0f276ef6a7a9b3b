"""What schemas are said to cost is held against the clock and against memory, keyword by keyword (SPEC R7.1).

An estimate may be too high; it is never under by more than a factor of ten. Processor time of the process alone counts,
the least of some tries, so that a busy machine does not matter.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from acts_celery.protocol.schemas import CompiledSchema, SchemaError
from acts_celery.protocol.schemas.algebra import Algebra
from acts_celery.protocol.schemas.costs import reading

_SECONDS_PER_UNIT: Final = 1e-8
_FACTOR: Final = 10
_NOISE_SECONDS: Final = 0.005
"""Too short to be measured, or to matter."""
_NOISE_BYTES: Final = 16_000_000
_TRIES: Final = 3
_MOST_UNITS: Final = 10**9
_BIG: Final = 10**300
_HUGE: Final = 10**1000
_TIMES: Final = (3, 150)
"""How often each keyword is applied by `allOf`."""
KEYWORDS: Final[dict[str, tuple[dict[str, Any], Any]]] = {
    "uniqueItems floats": ({"uniqueItems": True}, [i + 0.5 for i in range(3000)]),
    "uniqueItems lists": ({"uniqueItems": True}, [[i, [i, i]] for i in range(1000)]),
    "uniqueItems objs": ({"uniqueItems": True}, [{"a": i, "b": str(i)} for i in range(1000)]),
    "uniqueItems small x": (
        {"items": {"uniqueItems": True}},
        [[i, i + 1, i + 2, [i], 4, 5, 6, 7, 8, 9, 10, 11, 12] for i in range(300)],
    ),
    "uniqueItems strs": ({"uniqueItems": True}, ["x" * 100 + str(i) for i in range(1000)]),
    "multipleOf 3": ({"items": {"multipleOf": 3}}, [3 * i for i in range(1000)]),
    "multipleOf 0.01": ({"items": {"multipleOf": 0.01}}, [0.01 * i for i in range(1000)]),
    "multipleOf 1e-300": ({"items": {"multipleOf": 1e-300}}, [i + 0.5 for i in range(300)]),
    "multipleOf 1e-320": ({"items": {"multipleOf": 1e-320}}, [i + 0.5 for i in range(300)]),
    "multipleOf 1e300 of long": ({"items": {"multipleOf": 1e300}}, [_BIG * i for i in range(300)]),
    "multipleOf 7 of long": ({"items": {"multipleOf": 7}}, [_BIG * 7 * i for i in range(300)]),
    "multipleOf 7 of very long": ({"items": {"multipleOf": 7}}, [_HUGE * 7 * i for i in range(300)]),
    "multipleOf long of long": ({"items": {"multipleOf": 10**30 + 1}}, [(10**30 + 1) * _BIG * i for i in range(300)]),
    "multipleOf 0.5 of very long": ({"items": {"multipleOf": 0.5}}, [_HUGE * 7 * i for i in range(300)]),
    "multipleOf 1e-300 of very long": ({"items": {"multipleOf": 1e-300}}, [_HUGE * 7 * i for i in range(300)]),
    "minimum 1 ints": ({"items": {"minimum": -1}}, list(range(1000))),
    "minimum -1e308 very long": ({"items": {"minimum": -1e308}}, [_HUGE + i for i in range(300)]),
    "minimum -1e308 ints": ({"items": {"minimum": -1e308}}, list(range(300))),
    "minimum long very long": ({"items": {"minimum": -_BIG}}, [_HUGE + i for i in range(300)]),
    "minimum long floats": ({"items": {"minimum": -_BIG}}, [0.5 + i for i in range(300)]),
    "maximum long floats": ({"items": {"maximum": _BIG}}, [1e300 + i for i in range(300)]),
    "exclusiveMinimum": ({"items": {"exclusiveMinimum": -1.5}}, [0.5 + i for i in range(1000)]),
    "type": ({"items": {"type": "number"}}, [0.5 + i for i in range(1000)]),
    "type integer floats": ({"items": {"type": "integer"}}, [1e300 for i in range(1000)]),
    "type integer very long": ({"items": {"type": "integer"}}, [_HUGE for i in range(1000)]),
    "type list": ({"items": {"type": ["number", "null", "string"]}}, [0.5 + i for i in range(1000)]),
    "const": ({"items": {"not": {"const": [1, 2, 3]}}}, [[1, 2, i + 4] for i in range(1000)]),
    "const obj": ({"items": {"not": {"const": {"a": 1, "b": 2}}}}, [{"a": 1, "b": i + 4} for i in range(1000)]),
    "const number": ({"items": {"not": {"const": 1.5}}}, list(range(1000))),
    "const long": ({"items": {"not": {"const": _BIG}}}, [_HUGE for i in range(1000)]),
    "enum 10": ({"items": {"not": {"enum": [*range(10)]}}}, [i + 20 for i in range(1000)]),
    "enum strs": ({"items": {"not": {"enum": [str(i) for i in range(10)]}}}, [str(i + 20) for i in range(1000)]),
    "enum objs": ({"items": {"not": {"enum": [{"a": i} for i in range(10)]}}}, [{"a": i + 20} for i in range(1000)]),
    "required": ({"items": {"required": ["a", "b"]}}, [{"a": 1, "b": 2} for i in range(1000)]),
    "properties": ({"items": {"properties": {"a": {"minimum": 0}}}}, [{"a": 1, "b": 2} for i in range(1000)]),
    "patternProperties": (
        {"items": {"patternProperties": {"^a": {"minimum": 0}}}},
        [{"a": 1, "b": 2} for i in range(1000)],
    ),
    "additionalProperties": (
        {"items": {"additionalProperties": {"minimum": 0}}},
        [{"a": 1, "b": 2} for i in range(1000)],
    ),
    "additionalProperties+props": (
        {"items": {"properties": {"a": {}}, "additionalProperties": {"minimum": 0}}},
        [{"a": 1, "b": 2} for i in range(1000)],
    ),
    "addl + patternProps": (
        {"items": {"patternProperties": {"^a": {}}, "additionalProperties": {"minimum": 0}}},
        [{"a": 1, "b": 2} for i in range(1000)],
    ),
    "unevaluatedProperties": (
        {"items": {"unevaluatedProperties": {"minimum": 0}}},
        [{"a": 1, "b": 2} for i in range(1000)],
    ),
    "unevaluatedItems": ({"items": {"unevaluatedItems": {"minimum": 0}}}, [[1, 2, 3] for i in range(1000)]),
    "contains": ({"contains": {"minimum": 5000}, "minContains": 0}, list(range(1000))),
    "minContains": ({"contains": {"minimum": 0}, "minContains": 3, "maxContains": 100000}, list(range(1000))),
    "propertyNames": ({"items": {"propertyNames": {"maxLength": 5}}}, [{"a": 1, "b": 2} for i in range(1000)]),
    "dependentRequired": ({"items": {"dependentRequired": {"a": ["b"]}}}, [{"a": 1, "b": 2} for i in range(1000)]),
    "dependentSchemas": (
        {"items": {"dependentSchemas": {"a": {"minProperties": 1}}}},
        [{"a": 1, "b": 2} for i in range(1000)],
    ),
    "if": ({"items": {"if": {"minimum": 0}, "then": {"maximum": 1e9}, "else": False}}, list(range(1000))),
    "oneOf": ({"items": {"oneOf": [{"minimum": 0}, {"maximum": -1}]}}, list(range(1000))),
    "anyOf": ({"items": {"anyOf": [{"minimum": 1e9}, {"minimum": 0}]}}, list(range(1000))),
    "not": ({"items": {"not": {"minimum": 1e9}}}, list(range(1000))),
    "maxLength": ({"items": {"maxLength": 1000}}, ["é" * 500 for i in range(300)]),
    "minLength": ({"items": {"minLength": 1}}, ["x" * 500 for i in range(300)]),
    "pattern lit": ({"items": {"pattern": "x"}}, ["x" * 500 for i in range(300)]),
    "pattern long nomatch": ({"items": {"not": {"pattern": "[a-z]+y"}}}, ["x" * 500 for i in range(300)]),
    "pattern uni": ({"items": {"pattern": "\\p{L}+$"}}, ["é" * 500 for i in range(300)]),
    "pattern lookahead": ({"items": {"pattern": "(?=x)x+$"}}, ["x" * 200 for i in range(30)]),
    "pattern counted": ({"items": {"not": {"pattern": "[a-z]{50,60}y"}}}, ["x" * 500 for i in range(30)]),
    "pattern email": (
        {"items": {"pattern": "^[a-z]{1,64}@[a-z]{1,64}$"}},
        ["x" * 60 + "@" + "y" * 60 for i in range(300)],
    ),
    "maxItems": ({"items": {"maxItems": 1000}}, [[1, 2] for i in range(1000)]),
    "maxProperties": ({"items": {"maxProperties": 1000}}, [{"a": 1} for i in range(1000)]),
    "prefixItems": ({"items": {"prefixItems": [{"minimum": 0}]}}, [[1, 2] for i in range(1000)]),
    "true": ({"items": True}, list(range(1000))),
    "ref": ({"items": {"$ref": "#/$defs/a"}}, list(range(1000))),
    "format": ({"items": {"format": "email"}}, ["x" * 500 for i in range(300)]),
    "contentMediaType": ({"items": {"contentMediaType": "application/json"}}, ["[1,2,3]" * 100 for i in range(300)]),
    "contentEncoding": ({"items": {"contentEncoding": "base64"}}, ["aGVsbG8=" * 60 for i in range(300)]),
}
ENDS: Final[dict[str, list[float]]] = {
    "zero": [0.0] * 300,
    "smallest": [5e-324 * (i + 1) for i in range(300)],
    "small": [1e-300 * (i + 1) for i in range(300)],
    "halves": [i + 0.5 for i in range(300)],
    "integers": list(range(1, 301)),
    "large": [1e300 + i * 1e290 for i in range(300)],
    "largest": [1.7976931348623157e308] * 300,
    "long": [_BIG * (i + 1) for i in range(300)],
    "very long": [_HUGE + i for i in range(100)],
}
"""Values at both ends of what a number can be, and between them."""
BOUNDS: Final = (5e-324, 1e-300, 0.01, 3, 1e300, 1.7976931348623157e308, _BIG, _HUGE)
NUMERIC: Final = ("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "const", "enum")
SECONDS_PER_UNIT_OF_ALGEBRA: Final = 5e-6
LARGE: Final[dict[str, Any]] = {
    "properties": {"properties": {f"p{i}": {"type": "integer"} for i in range(5_000)}},
    "allOf": {"allOf": [{"minimum": i} for i in range(5_000)]},
    "enum": {"enum": [f"p{i}" for i in range(50_000)]},
    "enum of objects": {"enum": [{"a": i} for i in range(10_000)]},
    "required": {"required": [f"p{i}" for i in range(50_000)]},
    "references": {"$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(1_500)} | {"d1500": {}}},
    "patterns": {"allOf": [{"pattern": f"a{i}b*"} for i in range(2_000)]},
    "patternProperties": {"patternProperties": {f"a{i}b*": {} for i in range(2_000)}},
    "written out": {"allOf": [{"pattern": f"\\p{{L}}{{1,80}}a{i}b*"} for i in range(15)]},
    "a long pattern": {"pattern": "|".join(f"word{i}" for i in range(5_000))},
    "dependentSchemas": {"dependentSchemas": {f"a{i}": {"required": ["x"]} for i in range(2_000)}},
}


def applied(keyword: dict[str, Any], times: int) -> dict[str, Any]:
    """A schema that applies a keyword so often; no two parts are equal."""
    return {"allOf": [{**keyword, "$comment": str(number)} for number in range(times)], "$defs": {"a": {"minimum": -1}}}


@pytest.mark.parametrize("times", [*_TIMES, pytest.param(1_000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", KEYWORDS)
def test_no_keyword_takes_ten_times_what_is_estimated(name: str, times: int) -> None:
    keyword, value = KEYWORDS[name]
    document = applied(keyword, times)
    if reading(document).is_too_large():
        with pytest.raises(SchemaError, match="too large to be read"):
            CompiledSchema(document)
        return
    schema = CompiledSchema(document)
    estimated = schema.work.of(value) * _SECONDS_PER_UNIT
    measured = min(seconds_of(schema, value, _FACTOR * estimated + _NOISE_SECONDS))
    assert measured <= _FACTOR * estimated + _NOISE_SECONDS, (measured, estimated)


def of_bound(keyword: str, bound: float) -> dict[str, Any]:
    """What a keyword says of a number."""
    return {keyword: [bound * (i + 1) for i in range(10)] if keyword == "enum" else bound}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("keyword", NUMERIC)
def test_no_number_takes_ten_times_what_is_estimated_at_either_end_of_what_it_can_be(keyword: str, end: str) -> None:
    for bound in BOUNDS:
        said = of_bound(keyword, bound)
        schema = CompiledSchema(applied({"items": {"anyOf": [said, {}]}}, 10))
        estimated = schema.work.of(ENDS[end][:40]) * _SECONDS_PER_UNIT
        measured = min(seconds_of(schema, ENDS[end][:40], _FACTOR * estimated + _NOISE_SECONDS))
        assert measured <= _FACTOR * estimated + _NOISE_SECONDS, (bound, measured, estimated)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("keyword", [*NUMERIC, "uniqueItems"])
def test_no_comparison_of_values_takes_ten_times_what_it_is_said_to_cost(keyword: str, end: str) -> None:
    values = ENDS[end] * 4
    for bound in BOUNDS:
        if keyword == "uniqueItems":
            schema: dict[str, Any] = {"uniqueItems": True}
        elif keyword == "enum":
            schema = {"items": {"enum": [*dict.fromkeys(values)] if bound == 3 else of_bound("enum", bound)["enum"]}}
        else:
            schema = {"items": {"allOf": [{keyword: bound}, {keyword: bound * 3}, {keyword: bound * 7}]}}
        assert_algebra_lasts(schema, values)


@pytest.mark.parametrize("multiple", [1e-300, 2.0**-800, 0.01, 3, 10**30 + 1])
def test_many_multiples_are_compared_within_the_budget(multiple: float) -> None:
    schema = {"items": {"allOf": [{"multipleOf": multiple * (2 * i + 1)} for i in range(200)]}}
    assert_algebra_lasts(schema, [i + 0.5 for i in range(500)])


def assert_algebra_lasts(schema: dict[str, Any], values: list[float]) -> None:
    """Compare what a schema admits with a list; the time has to be that of the budget that it takes, or less."""
    for tries in range(_TRIES):
        algebra, begun = Algebra(_MOST_UNITS), time.process_time()
        algebra.fit(algebra.only(values), algebra.made_of(schema))
        taken = time.process_time() - begun
        enough = _FACTOR * (_MOST_UNITS - algebra._left) * SECONDS_PER_UNIT_OF_ALGEBRA + _NOISE_SECONDS
        if taken <= enough:
            return
        assert tries < _TRIES - 1, (taken, enough)


def seconds_of(schema: CompiledSchema, value: Any, enough: float) -> Iterator[float]:
    """What a check takes, tried again where it took more than is allowed."""
    for _ in range(_TRIES):
        begun = time.process_time()
        schema.checker(()).is_valid(value)
        yield (taken := time.process_time() - begun)
        if taken <= enough:
            return


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", LARGE)
def test_no_schema_takes_ten_times_what_is_estimated_to_be_compiled(name: str) -> None:
    schema = LARGE[name]
    units, size = reading(schema)
    enough = _FACTOR * units * _SECONDS_PER_UNIT + _NOISE_SECONDS
    seconds, grown = compiled_apart(schema)
    for _ in range(_TRIES - 1):  # others may be busy, as above
        if seconds > enough:
            seconds, grown = compiled_apart(schema)
    assert seconds <= enough
    assert grown <= _FACTOR * size + _NOISE_BYTES


def compiled_apart(schema: Any) -> tuple[float, int]:
    """Seconds and bytes that compiling takes in a process that has not compiled anything."""
    ours, theirs = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            before, begun = memory(), time.process_time()
            kept = CompiledSchema(schema)
            os.write(theirs, f"{time.process_time() - begun} {memory() - before}".encode())
            del kept
        finally:
            os._exit(0)
    os.close(theirs)
    with open(ours, encoding="utf-8") as told:  # noqa: PTH123  # a descriptor, no path
        seconds, grown = told.read().split()
    os.waitpid(pid, 0)
    return float(seconds), int(grown)


def memory() -> int:
    """What this process has in memory, in bytes."""
    with open("/proc/self/status", encoding="utf-8") as status:  # noqa: PTH123
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def test_patterns_that_take_gigabytes_are_refused_before_they_are_compiled() -> None:
    patterns = {"allOf": [{"pattern": f"(\\p{{L}}{{1,300}}){{1,5}}y{number}"} for number in range(10)]}
    with pytest.raises(SchemaError, match="too large to be read"):
        CompiledSchema(patterns)
    with pytest.raises(SchemaError, match="that can be matched"):
        CompiledSchema({"pattern": "\\p{L}{1,1000}"})
