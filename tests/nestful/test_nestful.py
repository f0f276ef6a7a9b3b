"""254 sequences written for another project: what is wrong is reported, what is right runs to the last value.

Judged from outside (INTERFACE's command line) against `evaluator`, which reads the original files.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .answers import answer
from .command import Ended, acts
from .source import RESULT_TOOL, Call
from .verdicts import Verdicts, numbered

# Sequences with references inside text or arithmetic in a parameter that is a string, so literal (SPEC R2.2).
LITERAL = {"e14", "e15", "e16", "e17", "e18", "e19", "e21", "e34", "g77"}


def test_check_rejects_the_whole_and_reports_exactly_the_faulty_calls(verdicts: Verdicts, checked: Ended) -> None:
    assert (checked.code, checked.document["valid"]) == (2, False), checked.stderr[-3000:]
    errors = checked.document["errors"]
    assert all(error["message"] and error["pointer"].startswith("/solution/calls/") for error in errors)
    expected = {
        index: f"{flow.instance}: {flow.calls[position].name}"
        for index, flow, position in numbered(verdicts.dataset.flows)
        if any(fault.position == position for fault in verdicts.faults[flow.instance])
    }
    reported = {int(error["pointer"].split("/")[3]): error for error in errors}
    unforeseen = [error for index, error in reported.items() if index not in expected]
    unreported = [call for index, call in expected.items() if index not in reported]
    assert (unforeseen, unreported) == ([], [])


def test_check_points_at_every_faulty_parameter_and_names_what_is_missing(verdicts: Verdicts, checked: Ended) -> None:
    errors = checked.document["errors"]
    for index, flow, position in numbered(verdicts.dataset.flows):
        for fault in verdicts.faults[flow.instance]:
            if fault.position != position:
                continue
            pointer = "/".join(["/solution/calls", str(index), *(str(step) for step in fault.path[:1])])
            under = [error for error in errors if f"{error['pointer']}/".startswith(f"{pointer}/")]
            assert under, (flow.instance, fault, pointer)
            if fault.reason in ("unknown tool", "missing required parameter"):
                assert any(fault.detail in f"{error}" for error in under), (flow.instance, fault, under)


def test_a_submission_with_invalid_sequences_is_rejected_before_anything_runs(everything: Path, checked: Ended) -> None:
    rejected = acts("run", everything)
    assert rejected.code == 2, rejected.stderr[-3000:]
    assert [error for error in checked.document["errors"] if error["pointer"] not in rejected.stderr] == []


def test_check_orders_every_call_after_the_calls_whose_labels_it_reads(
    verdicts: Verdicts, checked_valid: Ended
) -> None:
    document = checked_valid.document
    assert (checked_valid.code, document["valid"], document["errors"]) == (0, True, [])
    wave = {index: number for number, calls in enumerate(document["waves"]) for index in calls}
    places = {(flow.instance, position): index for index, flow, position in numbered(verdicts.valid)}
    assert sorted(wave) == sorted(places.values())
    for flow in verdicts.valid:
        labels = {call.label: wave[places[flow.instance, position]] for position, call in enumerate(flow.calls)}
        for position, call in enumerate(flow.calls):
            for label in labels_read(call):
                assert labels[label] < wave[places[flow.instance, position]], (flow.instance, position, label)


def test_every_value_of_every_instance_is_what_the_evaluator_computed(verdicts: Verdicts, ran: Ended) -> None:
    assert ran.code == 1, ran.stderr[-3000:]  # some calls must fail: what they read has another type than they need
    assert ran.document["status"] == "failed"
    instances = ran.document["instances"]
    assert set(instances) == {flow.instance for flow in verdicts.valid}
    for flow in verdicts.valid:
        assert instances[flow.instance]["input"] == {"request": flow.request}, flow.instance
        assert instances[flow.instance].get("state", {}) == verdicts.expected[flow.instance].state, flow.instance


def test_every_call_ends_as_the_evaluator_predicted(
    verdicts: Verdicts, ran: Ended, record_property: Callable[[str, object], None]
) -> None:
    calls = ran.document["calls"]
    expected = {}
    for index, flow, position in numbered(verdicts.valid):
        outcome = verdicts.expected[flow.instance].outcomes[position]
        expected[index] = (flow.calls[position].name, flow.instance, outcome.status)
    assert {call["index"]: (call["tool"], call["instance"], call["status"]) for call in calls} == expected
    assert len(calls) == len(expected)
    record_property("nestful_calls", len(calls))


def test_what_is_not_done_says_why_and_what_fails_leaves_an_error_in_its_instance_only(
    verdicts: Verdicts, ran: Ended
) -> None:
    for call in ran.document["calls"]:
        assert bool(call["error"]) == (call["status"] == "failed"), call
        assert bool(call["reason"]) or call["status"] != "skipped", call
    for flow in verdicts.valid:
        failed = any(outcome.status == "failed" for outcome in verdicts.expected[flow.instance].outcomes)
        assert bool(ran.document["instances"][flow.instance].get("error")) == failed, flow.instance


def test_references_inside_text_reach_the_tool_as_the_text_they_are(verdicts: Verdicts, ran: Ended) -> None:
    seen = set()
    for flow in verdicts.valid:
        for call in flow.calls:
            texts = [value for value in call.arguments.values() if isinstance(value, str) and "$" in value]
            if call.name != RESULT_TOOL and texts and not list(labels_read(call)):
                state = ran.document["instances"][flow.instance]["state"]
                tool = verdicts.dataset.tools[call.name]
                assert state[str(call.label)] == answer(tool, call.arguments), flow.instance
                seen.add(flow.instance)
    assert seen >= LITERAL


def test_answers_that_look_like_references_stay_the_text_they_are(verdicts: Verdicts, ran: Ended) -> None:
    states = [ran.document["instances"][flow.instance].get("state", {}) for flow in verdicts.valid]
    assert sum(text.startswith("†") for text in strings(states)) > 100


def labels_read(call: Call) -> Iterator[str]:
    """The labels a call refers to: strings at any depth with two dollar signs, one at each end."""
    for text in strings(call.arguments):
        if text.startswith("$") and text.endswith("$") and text.count("$") == 2:
            yield text[1:-1].partition(".")[0].partition("[")[0]


def strings(value: Any) -> Iterator[str]:
    """Every string of a JSON value."""
    if isinstance(value, str):
        yield value
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for one in inner:
        yield from strings(one)
