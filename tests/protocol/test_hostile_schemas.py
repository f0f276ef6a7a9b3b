"""Schemas that cost: refused or measured before anything is compiled, shared where they are the same."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from textwrap import dedent
from typing import Any, Final

import pytest

from acts_celery.protocol import Context, Limits, Problem, Reference, Rejected, check_submission
from acts_celery.protocol.analysis.sample_values import sample
from acts_celery.protocol.analysis.simulation import simulate
from acts_celery.protocol.paths import nest
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.plan.documents import decode
from acts_celery.protocol.plan.places import Promise
from acts_celery.protocol.requests import compose, read_request
from acts_celery.protocol.schemas import CompiledSchema, SchemaError, compiled, schema_problem
from acts_celery.protocol.schemas.algebra import Algebra
from acts_celery.protocol.schemas.costs import EXCEEDED, reading
from acts_celery.protocol.schemas.walk import cost_of, matches, schemas_at
from tests.few import few

# No schema, applied to whatever it likes, takes for ever: it is accepted or rejected within seconds (SPEC R7.1).

SECONDS = 60
"""More than any of them takes here, and nothing beside what they would take: hours at least."""


def doubling(*, steps: int, keyword: str) -> dict[str, Any]:
    """A schema in which each of many definitions applies the next one twice."""
    following: list[dict[str, Any]] = [{"$ref": f"#/$defs/d{step + 1}"} for step in range(steps)]
    definitions: dict[str, Any] = {}
    for number, below in enumerate(following):
        twice = {"a": below, "b": below} if keyword == "dependentSchemas" else [below, below]
        definitions[f"d{number}"] = {keyword: twice}
    return {"unevaluatedProperties": False, "$defs": {**definitions, f"d{steps}": {}}, "$ref": "#/$defs/d0"}


HOSTILE: dict[str, tuple[Any, Any]] = {
    "a pattern with nested repetition": ({"pattern": "^(a+)+$"}, "a" * 50_000 + "!"),
    "one with very many ways": ({"pattern": "^((a{0,50}){0,50}){0,50}$"}, "a" * 2_400),
    "the same that looks ahead": ({"pattern": "^(?=((a{0,50}){0,50}){0,50}$)"}, "a" * 2_400),
    "one with overlapping alternatives": ({"pattern": "^(a|a|b?)*$"}, "a" * 50_000 + "!"),
    "one for names of properties": ({"patternProperties": {"^(a+)+$": {}}}, {"a" * 5_000 + "!": 1}),
    "one that lets properties through": (
        {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False},
        {"a" * 5_000 + "!": 1},
    ),
    "one for all names": ({"propertyNames": {"pattern": "^(a+)+$"}}, {"a" * 5_000 + "!": 1}),
    "many patterns on a long text": ({"allOf": [{"pattern": f"x{n}$"} for n in range(3_000)]}, "x" * 900_000),
    "references that double": (doubling(steps=60, keyword="allOf"), {"a": 1, "b": 2}),
    "references that double, any of them": (doubling(steps=60, keyword="anyOf"), {"a": 1, "b": 2}),
    "references that double, one of them": (doubling(steps=60, keyword="oneOf"), {"a": 1, "b": 2}),
    "references that double below": (
        {
            "$defs": {f"d{n}": {"properties": {"a": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2}}} for n in range(60)}
            | {"d60": {}},
            "$ref": "#/$defs/d0",
        },
        nest({}, ("a",) * 60),
    ),
    "references that double by presence": (doubling(steps=60, keyword="dependentSchemas"), {"a": 1, "b": 2}),
    "elements that cannot be sorted": ({"uniqueItems": True}, [{"n": n} for n in range(100_000)]),
    "elements of many types": ({"uniqueItems": True}, [*range(50_000), *map(str, range(50_000))]),
    "a long enumeration for each element": ({"items": {"enum": list(range(100_000))}}, ["x"] * 100_000),
    "many required properties of each element": (
        {"items": {"required": [f"p{n}" for n in range(50_000)]}},
        [{}] * 100_000,
    ),
    "a long enumeration of objects": ({"items": {"enum": [{"n": n} for n in range(10_000)]}}, [{"n": -1}] * 100_000),
    "texts in which a pattern goes back": ({"items": {"pattern": r"^(?=(a|aa)+$)\\1"}}, ["a" * 60 + "b"] * 15_000),
    "many properties left over": (
        {"additionalProperties": True, "unevaluatedProperties": False},
        {f"p{n}": n for n in range(100_000)},
    ),
    "many elements left over": ({"contains": True, "unevaluatedItems": False}, list(range(100_000))),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_is_given_up_in_time(name: str) -> None:
    schema, value = HOSTILE[name]
    begun = time.process_time()
    refused = schema_problem(schema)
    problems = compiled(schema).problems(value) if refused is None else [refused]
    assert time.process_time() - begun < SECONDS
    assert len(problems) <= 1


@pytest.mark.parametrize("name", ["a pattern with nested repetition", "references that double"])
def test_a_submission_with_a_hostile_schema_is_answered_in_time(name: str) -> None:
    schema, value = HOSTILE[name]
    begun = time.process_time()
    call = {"_tool": "t", "a": value, "_outputPath": "†state.x"}
    with pytest.raises(Rejected):
        check_submission({"tools": {"t": {"properties": {"a": schema}}}, "solution": {"calls": [call]}})
    assert time.process_time() - begun < SECONDS


@pytest.mark.parametrize("pattern", ["(a{1000}){600}", r"\k<none>", "[", "(", "*", "[z-a]", "a{2,1}", r"\1(?<="])
def test_a_pattern_that_cannot_be_matched_is_rejected(pattern: str) -> None:
    for schema, place in (({"pattern": pattern}, "/pattern"), ({"patternProperties": {pattern: {}}}, "")):
        problem = schema_problem({"properties": {"a": schema}}, "schema")
        assert problem is not None
        assert problem.pointer.startswith(f"/schema/properties/a{place}")
        assert "is no regular expression (ECMA-262, with Unicode) that can be matched" in problem.message


@pytest.mark.parametrize("begun", ["[", "[\\a", "\\p{", "\\u{", "\\k<", "(?<", "(?<a"])
def test_a_pattern_in_which_nothing_has_an_end_is_refused_in_time(begun: str) -> None:
    began = time.process_time()
    assert schema_problem({"pattern": begun * 50_000}) is not None
    assert time.process_time() - began < SECONDS


def test_alternatives_that_hold_values_like_themselves_are_applied_to_what_is_no_deeper_than_it_is() -> None:
    shapes = [
        {"properties": {"op": {"const": n}, "of": {"items": {"$ref": "#"}}}, "required": ["op"]} for n in range(5)
    ]
    tree = compiled({"anyOf": [*shapes, {"type": "integer"}]})
    assert tree.problems({"op": 1, "of": [1, {"op": 2, "of": [3]}]}) == []
    assert tree.problems({"op": 1, "of": [{"op": 9}]}) != []
    deep: Any = 1
    for _ in range(40):
        deep = {"op": 4, "of": [deep]}
    assert tree.problems(deep) == [Problem("", EXCEEDED)]


LARGE: dict[str, Any] = {"allOf": [{"pattern": f"(?!x)\\p{{L}}{{90}}{number}"} for number in range(1_000)]}


def test_schemas_that_are_too_large_to_read_are_refused_in_time() -> None:
    begun = time.process_time()
    with pytest.raises(Rejected, match=r"the schemas exceed the validation budget \(ACTS_LIMIT_SCHEMA_WORK\)"):
        check_submission({"tools": {"t": LARGE}, "solution": {"calls": [{"_tool": "t", "_outputPath": "†state.x"}]}})
    assert time.process_time() - begun < SECONDS


@pytest.mark.nightly
@pytest.mark.parametrize(("letters", "is_admitted"), [(3, True), (200, False)])
def test_how_much_is_granted_does_not_hang_on_what_was_read_before(letters: int, is_admitted: bool) -> None:
    tools = {f"t{n}": {"properties": {"x": {"pattern": f"^\\p{{L}}{{1,{letters}}}{n}$"}}} for n in range(300)}
    program = dedent(f"""
        from acts_celery.protocol import Rejected, check_submission
        tools = {tools!r}
        value = {{"tools": tools, "solution": {{"calls": [{{"_tool": n, "x": "†input.a"}} for n in tools]}}}}
        value["context"] = [{{"type": "input", "a": "x"}}]
        for _ in range(2):
            try:
                print(len(check_submission(value).calls))
            except Rejected as rejected:
                print(rejected)
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first == second
    assert first == "300" if is_admitted else EXCEEDED in first


MANY_PARTS: dict[str, Any] = {"allOf": [{"properties": {"x": {"type": "string"}}}] * 1_000}


def test_equal_calls_of_a_tool_are_held_against_it_once() -> None:
    calls = [{"_tool": "t", "x": "same"}] * 3_000
    assert len(check_submission({"tools": {"t": MANY_PARTS}, "solution": {"calls": calls}}).calls) == 3_000


def test_calls_whose_schemas_take_too_long_together_are_refused_in_time_and_once() -> None:
    calls = [{"_tool": "t", "x": f"other {number}"} for number in range(3_000)]
    value = {"tools": {"t": MANY_PARTS}, "solution": {"calls": calls}}
    begun = time.process_time()
    with pytest.raises(Rejected) as rejected:
        check_submission(value, limits=Limits(schema_work=20_000_000))
    assert time.process_time() - begun < SECONDS
    (problem,) = rejected.value.errors
    assert problem.message.startswith(EXCEEDED)
    assert len(check_submission(value).calls) == 3_000


def test_thousands_of_calls_of_a_tool_of_fifty_shapes_are_held_against_each() -> None:
    shapes = [
        {"properties": {"kind": {"const": f"k{number}"}, f"v{number}": {"type": "string"}}, "required": ["kind"]}
        for number in range(50)
    ]
    calls = [{"_tool": "t", "kind": f"k{number % 50}", "v": f"text {number}"} for number in range(2_000)]
    check_submission({"tools": {"t": {"oneOf": shapes}}, "solution": {"calls": calls}})
    wrong = {"_tool": "t", "kind": "k50"}
    with pytest.raises(Rejected, match="/solution/calls/2000"):
        check_submission({"tools": {"t": {"oneOf": shapes}}, "solution": {"calls": [*calls, wrong]}})


def test_a_pattern_that_goes_back_too_often_in_a_text_is_given_up() -> None:
    pattern, text = r"^(?=(a|aa)+$)\1", "a" * 60 + "b"
    assert [str(problem) for problem in compiled({"pattern": pattern}).problems(text)] == [
        "/: the pattern goes back too often in the text"
    ]
    assert matches(pattern, text) is None
    assert matches(pattern, "aa") is True


GIVEN_UP: dict[str, Any] = {"pattern": r"(a|aa)+(?=$)b"}
LONG = "a" * 60 + "b"
"""A text for which it takes too long to say that the pattern does not occur in it."""


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"not": GIVEN_UP}, LONG),
        ({"not": {"not": GIVEN_UP}}, LONG),
        ({"not": {"$ref": "#/$defs/given-up"}}, LONG),
        ({"not": {"anyOf": [GIVEN_UP, {"type": "integer"}]}}, LONG),
        ({"not": {"properties": {"a": GIVEN_UP}, "required": ["a"]}}, {"a": LONG}),
        ({"not": {"contains": GIVEN_UP}}, [LONG]),
        ({"not": {"propertyNames": GIVEN_UP}}, {LONG: 1}),
        ({"not": {"patternProperties": {GIVEN_UP["pattern"]: False}}}, {LONG: 1}),
        ({"if": GIVEN_UP, "then": False}, LONG),
        ({"oneOf": [GIVEN_UP, True]}, LONG),
        ({"contains": GIVEN_UP, "minContains": 0, "maxContains": 0}, [LONG]),
        ({"propertyNames": {"not": GIVEN_UP}}, {LONG: 1}),
        ({"patternProperties": {GIVEN_UP["pattern"]: {"type": "string"}}}, {LONG: 1}),
        ({"dependentSchemas": {"a": {"not": {"properties": {"a": GIVEN_UP}}}}}, {"a": LONG}),
    ],
)
def test_a_pattern_that_is_given_up_admits_nothing_wherever_it_stands(schema: dict[str, Any], value: Any) -> None:
    ready = compiled({**schema, "$defs": {"given-up": GIVEN_UP}})
    assert ready.problems(value) != []
    assert ready.problems(value, known=()) != []
    assert ready.problems(value, lenient=True) != []


def test_what_another_alternative_admits_needs_no_pattern_that_is_given_up() -> None:
    assert compiled({"anyOf": [GIVEN_UP, {"type": "string"}]}).problems(LONG) == []


@pytest.mark.parametrize("closing", [{}, {"additionalProperties": True}, {"unevaluatedProperties": True}])
def test_nothing_is_written_under_a_name_on_which_a_pattern_is_given_up(closing: dict[str, Any]) -> None:
    kind = compiled({"patternProperties": {GIVEN_UP["pattern"]: {"type": "string"}}, **closing})
    assert kind.problems_at((LONG,), 1, "at") == [Problem("/at", "the schema admits nothing here")]
    assert kind.problems_at((LONG, "below"), 1, "at") != []
    assert kind.problems_at(("a",), 1, "at") == []


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("a", "bab", True),
        ("^a", "ba", False),
        ("^†(state|input)[.\\[]", "†state.x", True),
        ("^\\d{2}-\\d{2}$", "12-34", True),
        ("a$", "a\n", False),
        ("^[\\w.+-]+@[\\w-]+$", "a@b", True),
        ("^\\w$", "á", False),
        ("^\\d$", "٣", False),
        ("^\\p{L}{1,50}$", "Обычный", True),
        ("^(?!foo)", "bar", True),
        ("^(?!foo)", "food", False),
        ("(?<=a)b", "ab", True),
        ("(a)\\1", "aa", True),
        ("[^[\\]]", "[", False),
        (r"^(?<year>\d{4})-\k<year>$", "2020-2020", True),
        (r"^(?<year>\d{4})-\k<year>$", "2020-2021", False),
        (r"^(a)(?<b>c)\k<b>\1$", "acca", True),
        (r"(?<=a)(?<n>b)\k<n>", "abb", True),
        ("^[^]*$", "a\n", True),
        ("[]", "a", False),
        (r"^\uD83D\uDE00$", "😀", True),
        (r"^[\uD83D\uDE00x]$", "😀", True),
        (r"^\\uD83D\\uDE00$", r"\uD83D\uDE00", True),
        (r"^[^\0]*$", "a\0", False),
        (r"^[\b]?a$", "\x08a", True),
        (r"^\p{L}{1,255}$", "Обычный", True),
        (r"^.{1,5000}$", "a", True),
        ("^((?!no).)*$", "x" * 10_000, True),
        ("^((?!no).)*$", "x" * 10_000 + "no", False),
        ("^(?=.*[A-Z])(?=.*\\d).{8,}$", "Passw0rd", True),
        ("^\\u0041\\/$", "A/", True),
        ("[", "[", False),
        ("a", "\ud800a", False),
    ],
)
def test_patterns_occur_anywhere_unless_they_are_anchored(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


def test_properties_that_match_a_pattern_are_not_unevaluated() -> None:
    schema = {"allOf": [{"patternProperties": {"^x(?!y)": {}}}], "unevaluatedProperties": False}
    assert compiled(schema).problems({"x1": 1}) == []
    assert [str(problem) for problem in compiled(schema).problems({"xy": 1, "b": 2, "x": 3})] == [
        "/: Unevaluated properties are not allowed ('xy', 'b' were unexpected)"
    ]


@pytest.mark.parametrize(
    ("pattern", "ways"),
    [
        ("", 0),
        ("^a+(b|c)*$", 3),
        ("^((a{0,50}){0,50}){0,50}$", 125_000),
        ("x{0,5000}", 5_000),
        ("^x{0,5000}$", 1),
        ("^x{0,5000}y{5000}$", 5_001),
        ("^(?:[0-9a-f]{2}){1,5000}$", 1),
        ("^(?:[0-9a-f]{1,2}){1,5000}$", 10_000),
        ("^a{0,100}|b$", 101),
        ("^\\p{L}{1,50}\\{3,4}[{2,3}]$", 7),
    ],
)
def test_the_width_of_a_pattern_is_what_its_repetitions_write_out(pattern: str, ways: int) -> None:
    assert cost_of(pattern).ways == ways


@pytest.mark.parametrize("pattern", ["^[\\s\\S]{0,5000}$", "^(?:[A-Za-z0-9+/]{4}){0,2000}$", "^(\\w{1,20} ?){1,40}$"])
def test_a_large_pattern_matches_a_large_text(pattern: str) -> None:
    assert compiled({"pattern": pattern}).problems("abcd" * 10) == []
    assert compiled({"items": {"pattern": pattern}}).problems(["abcd" * 10] * 1_000) == []


def test_properties_that_match_a_pattern_are_no_additional_ones() -> None:
    schema = {"properties": {"a": {}}, "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False}
    assert compiled(schema).problems({"a": 1, "x1": 2}) == []
    assert [str(problem) for problem in compiled(schema).problems({"b": 1, "x1": "no"})] == [
        "/: Additional properties are not allowed ('b' was unexpected)",
        '/x1: "no" is not of type "integer"',
    ]


def endless(*, fan_out: int) -> dict[str, Any]:
    """A schema in which every value holds many like itself."""
    names = [f"k{n}" for n in range(fan_out)]
    properties = {name: {"$ref": "#/$defs/node"} for name in names}
    return {"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "required": names, "properties": properties}}}


@pytest.mark.parametrize(
    "schema",
    [
        endless(fan_out=12),
        {"type": "array", "minItems": 8, "items": {"$ref": "#"}},
        {"type": "array", "prefixItems": [{"$ref": "#"}] * 8},
    ],
)
def test_a_value_made_up_from_a_schema_without_an_end_has_one(schema: dict[str, Any]) -> None:
    began = time.process_time()
    sample(schema)
    assert time.process_time() - began < SECONDS


def test_schemas_without_an_end_are_compared_in_bounded_time() -> None:
    reader = {"properties": {"p": {"$ref": "#/$defs/node"}}, "$defs": endless(fan_out=12)["$defs"]}
    calls = [{"_tool": "write", "_outputPath": "a"}, {"_tool": "read", "p": "†state.a", "_outputPath": "b"}]
    tools = {"write": {"_output": endless(fan_out=12)}, "read": reader}
    began = time.process_time()
    assert check_submission({"solution": {"calls": calls}, "tools": tools}).findings != (), "no value ever ends"
    assert time.process_time() - began < SECONDS


@pytest.mark.parametrize(
    "dialect", ["{address}", "file:///etc/hostname", "", "no address", "http://json-schema.org/draft-04/schema#"]
)
def test_no_address_is_opened_and_every_schema_is_of_one_dialect(dialect: str) -> None:
    opened: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            opened.append(self.path)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            schema = {"$schema": dialect.format(address=f"http://127.0.0.1:{server.server_port}/x"), "minimum": 1}
            nested = {"properties": {"v": {**schema, "$id": "http://127.0.0.1/y"}}, "_output": schema}
            plan = check_submission(
                {
                    "context": [{"type": "state", "schema": schema}, {"type": "input", "v": 1}],
                    "delegates": {"d": {"schema": schema}},
                    "tools": {"a": {**schema, **nested}},
                    "solution": {"calls": [{"_tool": "a", "v": "†input.v", "_outputPath": "†data.x"}]},
                    "schema": schema,
                }
            )
            assert plan.findings is not None
            assert schema_problem({**schema, "minimum": "1"}) is not None
        finally:
            server.shutdown()
    assert opened == []


# What schemas are said to cost is held against the clock and against memory, keyword by keyword (SPEC R7.1).

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
LARGE_SCHEMA_COSTS: Final[dict[str, Any]] = {
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


@pytest.mark.parametrize("times", few([_TIMES[1], _TIMES[0], 1_000], 1))
@pytest.mark.parametrize("name", few(KEYWORDS, 8))
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


@pytest.mark.nightly
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("keyword", NUMERIC)
def test_no_number_takes_ten_times_what_is_estimated_at_either_end_of_what_it_can_be(keyword: str, end: str) -> None:
    for bound in BOUNDS:
        said = of_bound(keyword, bound)
        schema = CompiledSchema(applied({"items": {"anyOf": [said, {}]}}, 10))
        estimated = schema.work.of(ENDS[end][:40]) * _SECONDS_PER_UNIT
        measured = min(seconds_of(schema, ENDS[end][:40], _FACTOR * estimated + _NOISE_SECONDS))
        assert measured <= _FACTOR * estimated + _NOISE_SECONDS, (bound, measured, estimated)


@pytest.mark.nightly
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
@pytest.mark.parametrize("name", LARGE_SCHEMA_COSTS)
def test_no_schema_takes_ten_times_what_is_estimated_to_be_compiled(name: str) -> None:
    schema = LARGE_SCHEMA_COSTS[name]
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
        CompiledSchema({"pattern": "(\\p{L}{1,600}){1,2}"})


# Schemas that share what they refer to, or name themselves twice, are read in time in proportion to their size.

SECONDS_SHARED_SCHEMAS = 1.0
DEPTH = 24


def shared(keyword: str) -> dict[str, Any]:
    """Each definition refers to the next one twice."""
    definitions = {f"d{i}": {keyword: [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(DEPTH)}
    return {"$defs": {**definitions, f"d{DEPTH}": {"type": "integer"}}, "$ref": "#/$defs/d0"}


def timed(begun: float) -> bool:
    return time.process_time() - begun < SECONDS_SHARED_SCHEMAS


def test_a_path_through_a_schema_that_names_itself_twice_is_followed_once() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"$ref": "#"}}, "allOf": [{"$ref": "#"}, {"$ref": "#"}]}
    schema["allOf"] = [{"properties": {"a": {"$ref": "#"}}} for _ in range(2)]
    begun = time.process_time()
    assert schemas_at(schema, ("a",) * 40)
    assert timed(begun)


def test_what_a_promise_requires_is_bounded() -> None:
    levels = {
        f"d{i}": {"required": ["a", "b"], "properties": {name: {"$ref": f"#/$defs/d{i + 1}"} for name in "ab"}}
        for i in range(DEPTH)
    }
    promise = Promise(0, None, {"$defs": levels, "$ref": "#/$defs/d0"})
    begun = time.process_time()
    places = list(promise.required(Context([]).fold()))
    assert timed(begun)
    assert Reference("input", ("a",)) in places
    assert Reference("input", ("b", "a", "b")) in places


@pytest.mark.parametrize("schema", [True, False])
def test_a_promise_may_be_a_boolean(schema: bool) -> None:
    promise = Promise(0, None, schema)
    assert promise.schema_of(Reference("input")) in ({}, False)
    assert list(promise.required(Context([]).fold())) == []


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf"])
def test_a_schema_for_a_model_is_composed_once_for_what_is_shared(keyword: str) -> None:
    schema = shared(keyword)
    tools = {"t": {"properties": {"x": {"$ref": schema["$ref"]}}, "$defs": schema["$defs"]}}
    begun = time.process_time()
    assert compose(read_request({"tools": tools, "schema": {}}, Environment()))
    assert timed(begun)


def test_a_text_that_does_not_end_is_not_read_again_and_again() -> None:
    data = b'{"context": ["' + b'\\"' * 800 + b"[" * 2_000_000
    begun = time.process_time()
    with pytest.raises(Rejected):
        decode(data)
    assert timed(begun)


def test_a_path_of_thousands_of_digits_is_a_key() -> None:
    calls = [
        {"_tool": "t", "x": "state." + "9" * 5_000, "_outputPath": "†state.a"},
        {"_tool": "t", "x": "†state.a", "_outputPath": "†state." + "9" * 5_000},
    ]
    assert (
        check_submission({"solution": {"calls": calls}, "tools": {"t": {"properties": {"x": {}}}}}).findings is not None
    )


def test_a_tools_own_definition_does_not_take_the_place_of_what_is_said_of_calls() -> None:
    tools = {"t": {"properties": {"x": {"type": "integer"}}, "$defs": {"(call)": {}, "(call 0)": {}}}}
    with pytest.raises(Rejected, match="is not of type"):
        check_submission(
            {"tools": tools, "solution": {"calls": [{"_tool": "t", "x": "no", "_outputPath": "†state.a"}]}}
        )


def test_a_tool_without_a_name_is_refused() -> None:
    with pytest.raises(Rejected, match="a tool needs a name"):
        read_request({"tools": {"": {}}, "schema": {}}, Environment())


def test_r3_1_no_call_writes_errors() -> None:
    for path in ("†error.mine", "†state.a && †error", "†state.a || †error.b"):
        with pytest.raises(Rejected, match="leads to the kind error, which only the engine writes"):
            check_submission({"tools": {"t": {}}, "solution": {"calls": [{"_tool": "t", "_outputPath": path}]}})


def test_a_multiple_of_next_to_nothing_is_simulated() -> None:
    tools = {"t": {"_output": {"type": "number", "multipleOf": 1e-320}}}
    plan = check_submission({"tools": tools, "solution": {"calls": [{"_tool": "t", "_outputPath": "†state.a"}]}})
    assert simulate(plan).data is not None
