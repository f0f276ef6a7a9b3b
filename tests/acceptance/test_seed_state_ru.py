"""The seed "010: Агент/Состояние", example by example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .backend import Backend
from .command import acts, completed, run_embedded, statuses, values

CURRENT = {"type": "state", "currentUser": {"id": "user_A"}}
FETCH = {"_tool": "fetchUserProfile", "userId": "†state.currentUser.id"}
OUTCOMES = {"_outputPath": {"enum": ["†state.success", "†state.failure"]}}


def give(path: Any, value: Any = "text", **more: Any) -> dict[str, Any]:
    """A call that writes a value to a path."""
    return {"_tool": "give", "value": value, "_outputPath": path, **more}


def solution(*calls: dict[str, Any], context: Sequence[Any] = ()) -> dict[str, Any]:
    """A submission of these calls."""
    return {"context": list(context), "solution": {"calls": list(calls), "output": None}}


def test_the_reference_is_replaced_by_the_value_before_the_tool_runs(backend: Backend) -> None:
    document = completed(backend.run(solution(FETCH, context=[CURRENT])))
    assert statuses(document) == ["sent"]
    assert backend.records.take("fetchUserProfile")["userId"] == "user_A"
    assert values(document) == {"state": {"currentUser": {"id": "user_A"}}}


def test_one_tool_writes_into_the_state_and_the_next_reads_it() -> None:
    calls = [
        give("†state.currentUser.id", "user_B"),
        {**FETCH, "_outputPath": "†state.currentUser.profile"},
    ]
    document = completed(run_embedded(solution(*calls)))
    profile = {"id": "user_B", "plan": "plan of user_B"}
    assert values(document) == {"state": {"currentUser": {"id": "user_B", "profile": profile}}}


def test_the_prefix_of_an_output_path_into_the_state_is_optional(backend: Backend) -> None:
    document = completed(backend.run(solution(give("†state.user.summary"), give("audit.summary"))))
    assert values(document) == {"state": {"user": {"summary": "text"}, "audit": {"summary": "text"}}}


def test_alternative_paths_receive_the_result_in_one_of_them(backend: Backend) -> None:
    document = completed(backend.run(solution(give("†state.summary.text || †state.summary.json"))))
    assert values(document) == {"state": {"summary": {"text": "text"}}}


def test_parallel_paths_receive_the_same_result(backend: Backend) -> None:
    document = completed(backend.run(solution(give("†state.user.profile.summary && †state.audit.log.summary"))))
    assert values(document) == {
        "state": {"user": {"profile": {"summary": "text"}}, "audit": {"log": {"summary": "text"}}}
    }


def refused_paths(properties: dict[str, Any], *paths: str) -> list[str]:
    """Those of the paths that a tool with these properties does not admit, found by one `check`."""
    submission = solution(*({"_tool": "judge", "_output": 1, "_outputPath": path} for path in paths))
    submission["tools"] = {"judge": {"type": "object", "properties": properties}}
    result = acts("check", "-", "--json", stdin=submission)
    pointers = [error["pointer"] for error in result.json["errors"]]
    assert result.code == (2 if pointers else 0), result
    refused = [index for index, _ in enumerate(paths) if f"/solution/calls/{index}/_outputPath" in pointers]
    assert len(refused) == len(pointers), result
    return [paths[index] for index in refused]


def test_a_dynamic_path_takes_any_form() -> None:
    free = {"_outputPath": {"type": "string"}}
    assert refused_paths(free, "a.b", "†state.a.b && †data.c", "†state.d || †state.e") == []


def test_a_prescribed_choice_of_paths_admits_each_of_them_and_no_other() -> None:
    paths = ("†state.success", "†state.elsewhere", "†state.failure", "success", "elsewhere", "success || failure")
    assert refused_paths(OUTCOMES, *paths) == ["†state.elsewhere", "elsewhere"]


def test_one_of_prescribes_a_choice_as_well() -> None:
    choice = {"_outputPath": {"oneOf": [{"const": "†state.success"}, {"const": "†state.failure"}]}}
    assert refused_paths(choice, "†state.failure", "†state.elsewhere") == ["†state.elsewhere"]


def test_the_schema_of_the_state_holds_what_is_written_into_it(backend: Backend) -> None:
    schema = {
        "type": "object",
        "properties": {
            "user": {
                "type": "object",
                "properties": {"age": {"type": "integer"}},
                "required": ["age", "name"],
            }
        },
    }
    state = {"type": "state", "schema": schema}
    document = completed(backend.run(solution(give("†state.user.age", 36), context=[state])))
    assert values(document) == {"state": {"user": {"age": 36}}}

    refused = backend.run(solution(give("†state.user.age", "old"), context=[state]))
    assert (refused.code, refused.json["status"], statuses(refused.json)) == (1, "failed", ["failed"])
    assert "state" not in values(refused.json)


def test_state_is_data_of_the_kind_state(backend: Backend) -> None:
    message = {"type": "data", "kind": "state", "data": {"currentUser": {"id": "user_A"}}}
    call = {**FETCH, "_outputPath": "†state.profile"}
    document = completed(backend.run(solution(call, context=[message])))
    assert values(document)["state"]["profile"]["id"] == "user_A"


def test_patches_of_the_state_become_one_value(backend: Backend) -> None:
    context = [
        CURRENT,
        {"type": "state", "currentUser": {"name": "Алиса"}, "tries": [1]},
        {"type": "state", "tries": []},
    ]
    document = completed(backend.run(solution(context=context)))
    assert values(document) == {"state": {"currentUser": {"id": "user_A", "name": "Алиса"}, "tries": []}}


def test_references_go_to_the_state_of_the_calls_own_instance(backend: Backend) -> None:
    context = [
        {"type": "state", "_instance": "①", "currentUser": {"id": "user_A"}},
        {"type": "state", "_instance": "②", "currentUser": {"id": "user_B"}},
        {"type": "state", "tenant": "shared"},
    ]
    calls = [{**FETCH, "_instance": name, "_outputPath": "†state.profile"} for name in "①②"]
    document = completed(backend.run(solution(*calls, context=context)))
    for name, user in (("①", "user_A"), ("②", "user_B")):
        assert values(document, name) == {
            "state": {
                "tenant": "shared",
                "currentUser": {"id": user},
                "profile": {"id": user, "plan": f"plan of {user}"},
            }
        }
    assert values(document) == {"state": {"tenant": "shared"}}


def test_one_plan_serves_many_states_in_parallel_without_mixing_them(backend: Backend) -> None:
    people = {f"p{number}": f"user_{number}" for number in range(12)}
    context = [{"type": "state", "_instance": name, "currentUser": {"id": user}} for name, user in people.items()]
    plan = {
        "type": "plan",
        "calls": [
            {**FETCH, "_outputPath": "†state.profile"},
            give("†state.plan", "†state.profile.plan"),
        ],
    }
    document = completed(backend.run({"context": [*context, plan]}))
    assert {name: values(document, name)["state"]["plan"] for name in people} == {
        name: f"plan of {user}" for name, user in people.items()
    }
    assert len(document["calls"]) == 24


def test_a_branch_and_a_fan_out_over_the_state_are_checked_without_running() -> None:
    calls = [
        {"_tool": "judge", "_output": 1, "_outputPath": "†state.yes || †state.no"},
        {"_tool": "judge", "on": "†state.yes", "_output": 2, "_outputPath": "†state.a && †state.b"},
        {"_tool": "judge", "on": "†state.no", "_output": 3, "_outputPath": "†state.c"},
        {"_tool": "judge", "on": ["†state.a", "†state.b"], "_output": 4, "_outputPath": "†state.d"},
    ]
    result = acts("check", "-", "--json", stdin=solution(*calls) | {"tools": {"judge": {"type": "object"}}})
    assert (result.code, result.json["valid"]) == (0, True)
    assert [sorted(wave) for wave in result.json["waves"]] == [[0], [1, 2], [3]]
