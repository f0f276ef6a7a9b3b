"""No schema, applied to whatever it likes, takes for ever: it is accepted or rejected within seconds (SPEC R7.1)."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
import time
from textwrap import dedent
from typing import Any

import pytest

from acts_celery.protocol import Limits, Problem, Rejected, check_submission
from acts_celery.protocol.analysis.sample_values import sample
from acts_celery.protocol.paths import nest
from acts_celery.protocol.schemas import compiled, schema_problem
from acts_celery.protocol.schemas.costs import EXCEEDED
from acts_celery.protocol.schemas.walk import cost_of, matches

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
