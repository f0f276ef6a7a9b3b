"""Advice and versions: what is asked for beside calls and an output (SPEC R15)."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery.protocol import check_submission
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.plan.config import Meta
from acts_celery.protocol.requests import Request, compose, read_answer, read_request

from .building import pointers, problems

CRITIC: dict[str, Any] = {
    "type": "advisor",
    "id": "critic",
    "role": "Doubts everything.",
    "on": "request",
    "schema": {"type": "object", "properties": {"risk": {"type": "integer"}}, "required": ["risk"]},
}
META: dict[str, Any] = {"type": "meta", "meta": {"path": "docs/plan", "version": "1.9.0", "author": "x"}}
ADVICE: dict[str, Any] = {"id": "critic", "thought": "hm", "risk": 3, "calls": '{"price": 80}'}


def request(*context: Any) -> Request:
    """A request with this context and no tools."""
    return read_request({"context": list(context), "schema": {"type": "string"}}, Environment())


def answered(asked: Request, **asides: Any) -> list[tuple[str, str]]:
    """What is wrong with an answer."""
    answer = read_answer(asked, {**asides, "calls": [], "output": None})
    return [(error.pointer, error.message) for error in answer.errors]


def test_r12_3_meta_and_advisors_stand_before_the_calls_where_they_are_asked_for() -> None:
    composed = compose(request(CRITIC, META))
    assert list(composed["properties"]) == composed["required"] == ["meta", "advisors", "calls", "output"]
    (advice,) = composed["properties"]["advisors"]["items"]["anyOf"]
    assert (list(advice["properties"]), advice["description"]) == (["id", "thought", "risk", "calls"], CRITIC["role"])
    assert list(compose(request())["properties"]) == ["calls", "output"]


def test_r15_1_advice_is_kept_in_the_solution_and_validated_by_its_schema() -> None:
    asked = request(CRITIC)
    answer = read_answer(asked, {"advisors": [ADVICE], "calls": [], "output": "done"})
    assert (answer.errors, answer.findings, answer.solution["advisors"]) == ((), (), [ADVICE])
    assert [at for at, _ in answered(asked, advisors=[{**ADVICE, "risk": "high"}])] == ["/advisors/0"]
    assert answered(asked) == [("", "'advisors' is missing")]


@pytest.mark.parametrize("calls", ["80", "not JSON", '{"price": 101}', '{"price": "80"}'])
def test_r15_1_ratings_that_cannot_be_read_are_a_finding_and_no_error(calls: str) -> None:
    answer = read_answer(request(CRITIC), {"advisors": [{**ADVICE, "calls": calls}], "calls": [], "output": None})
    assert answer.errors == ()
    assert answer.findings == ("the calls of advisor 'critic' are not JSON of tool to a number from 0 to 100",)


def test_r15_1_every_advisor_is_asked_once() -> None:
    other = {"type": "advisor", "id": "friend"}
    found = answered(request(CRITIC, other), advisors=[ADVICE, ADVICE])
    assert [message for _, message in found] == [
        "advisor 'critic' is asked once, and advises 2 times",
        "advisor 'friend' is asked once, and advises 0 times",
    ]


def test_r15_1_an_advisor_for_another_moment_is_kept_and_not_asked() -> None:
    later = {**CRITIC, "on": "commit", "id": None, "schema": 5}
    assert list(compose(request(later))["properties"]) == ["calls", "output"]
    plan = check_submission({"context": [later], "schema": {"type": "string"}})
    assert [finding.name for finding in plan.findings] == ["advisor-not-asked"]
    assert plan.submission.context == [later]


@pytest.mark.parametrize(
    ("version", "is_newer"),
    [
        *(("1.10.0", True), ("1.9.1", True), ("2", True), ("1.9", False), ("1.9.0.0", False), ("1.8.99", False)),
        *((2, False), ("", False)),
    ],
)
def test_r15_2_segments_of_a_version_compare_as_numbers(version: Any, is_newer: bool) -> None:
    assert Meta({}, "1.9.0").is_newer(version) == is_newer


def test_r15_2_a_version_that_is_not_greater_is_an_error() -> None:
    asked = request(META)
    assert answered(asked, meta={"path": "docs/plan", "version": "1.10.0", "author": "y"}) == []
    assert answered(asked, meta={"path": "docs/plan", "version": "1.9.0"}) == [
        ("/meta/version", "'1.9.0' is not greater than '1.9.0'")
    ]
    assert [at for at, _ in answered(asked, meta={"path": "elsewhere", "version": "2"})] == ["/meta/path"]


def test_r15_what_cannot_be_asked_is_a_structural_error_of_a_request() -> None:
    broken = [{"type": "advisor"}, {**CRITIC, "schema": {"type": "string"}}, {"type": "meta", "meta": {"version": 2}}]
    found = problems({"context": broken, "schema": {"type": "string"}})
    assert pointers(found) == ["/context/0/id", "/context/1/schema", "/context/2/meta/version"]
