"""The conversion and the evaluator held against each other, without the product."""

import json
from collections.abc import Callable

import pytest
from jsonschema import Draft202012Validator

from .answers import answer
from .convert import convert_text, convert_tool
from .source import Collision, Tool, namespace
from .verdicts import Verdicts, numbered


@pytest.mark.parametrize(
    ("original", "converted"),
    [
        ("$var1$", "†state.var1"),
        ("$var1.x$", "†state.var1.x"),
        ("$var1.Exchange Rate$", '†state.var1["Exchange Rate"]'),
        ("$var1.author[0].id$", "†state.var1.author.0.id"),
        ("$var1.movies[0]$", "†state.var1.movies.0"),
        ("100 * $var1.Exchange Rate$", "100 * $var1.Exchange Rate$"),
        ("$var1.localtime$ - $var2.localtime$", "$var1.localtime$ - $var2.localtime$"),
        ("Meeting ID: $var1.event_id$", "Meeting ID: $var1.event_id$"),
        ("$100-$200", "$100-$200"),
        ("var1.product_id$", "var1.product_id$"),
        ("†state.var1", "††state.var1"),
    ],
)
def test_only_a_string_that_is_one_whole_reference_becomes_an_expression(original: str, converted: str) -> None:
    assert convert_text(original) == converted


def test_two_different_tools_of_one_name_are_a_collision_and_equal_listings_are_not() -> None:
    tool = Tool("send", "", {"to": {"type": "string"}}, {}, remote=False)
    assert namespace([tool, tool]) == {"send": tool}
    with pytest.raises(Collision, match="send"):
        namespace([tool, Tool("send", "", {"to": {"type": "number"}}, {}, remote=False)])


def test_the_data_holds_as_many_valid_and_invalid_sequences_as_were_counted(
    verdicts: Verdicts, record_property: Callable[[str, object], None]
) -> None:
    counted = verdicts.census()
    record_property("nestful", json.dumps(counted))
    print(json.dumps(counted, indent=1))
    assert counted == {
        "sequences": 254,
        "calls": 956,
        "valid sequences": 197,
        "valid calls": 725,
        "invalid sequences": 57,
        "faulty calls": 63,
        "invalid by reasons": {
            "unknown tool": 10,
            "missing required parameter": 11,
            "missing required parameter + wrong type": 1,
            "wrong type": 31,
            "dangling reference": 4,
        },
        "statuses": {"done": 602, "failed": 36, "skipped": 87},
        "valid sequences by worst status": {"done": 141, "failed": 31, "skipped": 25},
    }


def test_every_answer_has_the_types_its_tool_declares(verdicts: Verdicts) -> None:
    for tool in verdicts.dataset.tools.values():
        declared = convert_tool(tool)["properties"]["_output"]
        Draft202012Validator.check_schema(declared)
        for number in range(20):
            Draft202012Validator(declared).validate(answer(tool, {"number": number}))


def test_the_converted_schemas_find_the_same_faulty_parameters_as_the_original_specs(
    verdicts: Verdicts,
) -> None:
    submission = verdicts.submission(verdicts.dataset.flows)
    found: set[tuple[int, str]] = set()
    for index, call in enumerate(submission["solution"]["calls"]):
        schema = submission["tools"].get(call["_tool"], {})
        Draft202012Validator.check_schema(schema)
        for error in Draft202012Validator(schema).iter_errors(call):
            if not (isinstance(error.instance, str) and error.instance.startswith("†")):
                found.add((index, str(error.path[0]) if error.path else ""))
    expected = {
        (index, str(fault.path[0]) if fault.path else "")
        for index, flow, position in numbered(verdicts.dataset.flows)
        for fault in verdicts.faults[flow.instance]
        if fault.position == position and fault.reason not in ("unknown tool", "dangling reference")
    }
    assert found == expected


def test_no_valid_sequence_writes_a_label_twice_so_that_each_has_one_outcome(verdicts: Verdicts) -> None:
    for flow in verdicts.valid:
        assert len({call.label for call in flow.calls}) == len(flow.calls), flow.instance
