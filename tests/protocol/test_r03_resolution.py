"""SPEC R3: the value of a path is folded from the log."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery.protocol import Conflict, Context, Rejected

from .building import call, problems, run, statuses, value_at, written


def state(*messages: dict[str, Any]) -> Any:
    """The folded state after these messages."""
    return value_at(Context(messages), "†state")


GIVEN = {"type": "state", "user": {"name": "Alex", "tags": ["a"]}, "n": 5}


# R3.1


def test_r3_1_a_message_that_no_call_wrote_is_a_deep_merge_at_the_root_of_its_kind() -> None:
    second = {"type": "data", "kind": "state", "data": {"user": {"age": 7, "tags": ["b"]}}}
    assert state(GIVEN, second) == {"user": {"name": "Alex", "tags": ["b"], "age": 7}, "n": 5}


def test_r3_1_a_written_message_is_its_method_at_its_path_with_set_as_the_default() -> None:
    assert state(GIVEN, written("†state.user", {"id": 1})) == {"user": {"id": 1}, "n": 5}
    assert state(GIVEN, written("†state.user", {"id": 1}, "merge"))["user"] == {"name": "Alex", "tags": ["a"], "id": 1}


def test_r3_1_the_seeds_example_finds_the_status_and_keeps_the_name() -> None:
    context = Context([{"type": "data", "data": {"user": {"name": "Alex", "status": "active"}}}])
    context.append(
        {
            "type": "data",
            "data": {"user": {"status": "inactive"}},
            "_call": {"_tool": "updateUserStatus", "newStatus": "inactive", "_outputPath": "†data.user.status"},
            "_date": "2025-10-26T12:00:00Z",
        }
    )
    assert context.resolve("†data.user.status") == "inactive"
    assert context.resolve("†data.user.name") == "Alex"


def test_r3_1_of_several_declared_paths_the_message_says_which_it_is_about() -> None:
    call = {"_tool": "t", "_outputPath": "†state.user && †state.user.name || †data.other"}
    outer = {"type": "data", "kind": "state", "data": {"user": {"name": 1}}, "_call": call}
    assert state(GIVEN, {**outer, "_path": "†state.user"})["user"] == {"name": 1}
    assert state(GIVEN, {**outer, "_path": "†state.user.name"})["user"] == {"name": 1, "tags": ["a"]}
    assert state(GIVEN, outer)["user"] == {"name": 1}, "without a word of its own it is the first that fits"


def test_r3_1_where_it_does_not_say_the_path_of_its_own_kind_counts() -> None:
    message = written("†data.a", 1, _call={"_tool": "t", "_outputPath": "†state.a && †data.a"})
    context = Context([{"type": "data", "a": {"x": 1}}, message])
    assert context.data() == {"data": {"a": 1}}


def test_r3_1_a_path_without_a_call_is_only_a_property() -> None:
    assert state(GIVEN, {"type": "state", "user": {"x": 1}, "_path": "†state.user"})["user"]["name"] == "Alex"


@pytest.mark.parametrize(
    ("method", "result"),
    [
        ("set", {"user": {"age": 7}}),
        ("merge", {"user": {"name": "Alex", "tags": ["a"], "age": 7}, "n": 5}),
        ("assign", {"user": {"age": 7}, "n": 5}),
    ],
)
def test_r3_1_a_method_counts_in_a_message_that_no_call_wrote_at_the_root_of_its_kind(method: str, result: Any) -> None:
    for shape in ({"user": {"age": 7}}, {"data": {"user": {"age": 7}}}, {"state": {"user": {"age": 7}}}):
        assert state(GIVEN, {"type": "state", **shape, "_outputMethod": method}) == result
    kindly = {"type": "data", "kind": "state", "data": {"user": {"age": 7}}, "_outputMethod": method}
    assert state(GIVEN, kindly) == result


def test_r3_1_a_method_counts_at_the_path_where_the_message_says_it() -> None:
    message = {"type": "state", "user": {"tags": "b"}, "_outputMethod": "push", "_path": "†state.user.tags"}
    assert state(GIVEN, message) == {"user": {"name": "Alex", "tags": ["a", "b"]}, "n": 5}


def test_r3_1_a_method_counts_at_the_root_where_the_calls_path_is_not_known() -> None:
    message = {"type": "state", "user": {"age": 7}, "_outputMethod": "assign", "_call": {"_tool": "t"}}
    assert state(GIVEN, message) == {"user": {"age": 7}, "n": 5}


@pytest.mark.parametrize("method", ["push", "concat", "replace", "", 5, ["set"]])
@pytest.mark.parametrize("more", [{}, {"_call": {"_tool": "t"}}, {"_path": "†state.elsewhere"}])
def test_r3_1_a_method_that_is_unknown_or_needs_a_path_is_a_structural_error(method: Any, more: Any) -> None:
    message = {"type": "state", "user": [1], "_outputMethod": method, **more}
    with pytest.raises(Rejected) as rejected:
        Context([message])
    assert [problem.pointer for problem in rejected.value.errors] == ["/_outputMethod"]
    found = problems({"context": [GIVEN, message], "solution": {"calls": []}})
    assert [problem.pointer for problem in found] == ["/context/1/_outputMethod"]


def test_r3_1_a_call_may_push_to_a_whole_kind_for_its_path_is_known() -> None:
    assert Context([written("†rows", 1, "push"), written("†rows", 2, "push")]).resolve("†rows") == [1, 2]


def test_r3_1_an_error_message_sets_its_kind_whole_and_its_method_does_not_count() -> None:
    first = {"type": "error", "data": {"call": {"_tool": "a"}, "error": {"type": "A", "message": "a", "more": 1}}}
    second = {"type": "data", "kind": "error", "data": {"error": {"type": "B"}}, "_outputMethod": "merge"}
    context = Context([first, second])
    assert context.resolve("†error") == {"error": {"type": "B"}}
    assert len(context.messages) == 2, "earlier ones are in the log"


def test_r3_1_an_instances_own_errors_hide_the_global_ones_whatever_came_last() -> None:
    mine = {"type": "error", "_instance": "①", "data": {"error": {"type": "mine"}}}
    general = {"type": "error", "data": {"call": {"_tool": "t"}, "error": {"message": "all"}}}
    context = Context([mine, general, {"type": "text", "_instance": "②"}])
    assert context.resolve("†error", instance="①") == {"error": {"type": "mine"}}
    assert context.resolve("†error", instance="②") == general["data"] == context.resolve("†error")
    context.append({**written("†error.note", 1), "_instance": "②"})
    assert context.resolve("†error", instance="②") == {"note": 1}, "never a mixture of both"


@pytest.mark.parametrize("kind", ["text", "system", "hologram"])
def test_r3_1_a_message_without_data_changes_nothing(kind: str) -> None:
    assert state(GIVEN, {"type": kind, "data": {"n": 1}}) == state(GIVEN)


# R3.2


@pytest.mark.parametrize(
    ("method", "base", "value", "result"),
    [
        ("set", {"a": 1}, {"b": 2}, {"b": 2}),
        ("set", [1], None, None),
        ("merge", {"a": {"x": 1}, "l": [1]}, {"a": {"y": 2}, "l": [2]}, {"a": {"x": 1, "y": 2}, "l": [2]}),
        ("merge", {"a": 1}, {"a": {"y": 2}}, {"a": {"y": 2}}),
        ("merge", {"a": {"y": 2}}, {"a": None}, {"a": None}),
        ("merge", {"a": 1}, [2], [2]),
        ("merge", {"a": 1}, "text", "text"),
        ("merge", 5, 6, 6),
        ("assign", {"a": {"x": 1}, "b": 1}, {"a": {"y": 2}}, {"a": {"y": 2}, "b": 1}),
        ("push", [1], 2, [1, 2]),
        ("push", [1], [2, 3], [1, [2, 3]]),
        ("push", [], None, [None]),
        ("concat", [1], [2, 3], [1, 2, 3]),
        ("concat", "ab", "cd", "abcd"),
        ("concat", "", "", ""),
    ],
)
def test_r3_2_each_method_combines_as_it_should(method: str, base: Any, value: Any, result: Any) -> None:
    assert state(written("†state.x", base), written("†state.x", value, method)) == {"x": result}


@pytest.mark.parametrize(
    ("method", "value", "result"),
    [
        ("set", 1, 1),
        ("merge", {"a": {"b": 1}}, {"a": {"b": 1}}),
        ("merge", 1, 1),
        ("assign", {"a": 1}, {"a": 1}),
        ("push", 1, [1]),
        ("push", [1], [[1]]),
        ("concat", [1], [1]),
        ("concat", "x", "x"),
    ],
)
def test_r3_2_each_method_starts_from_nothing(method: str, value: Any, result: Any) -> None:
    assert state(written("†state.x.y", value, method)) == {"x": {"y": result}}


def test_r3_2_null_is_a_value_and_not_a_missing_base() -> None:
    for method, value in (("push", 1), ("concat", "x"), ("assign", {}), ("merge", {})):
        context = Context([written("†state.x", None), written("†state.x", value, method)])
        with pytest.raises(Conflict, match="null"):
            context.resolve("†state.x")


# R3.3


def test_r3_3_operations_are_applied_in_log_order() -> None:
    messages = [
        written("†state.l", [1], "concat"),
        written("†state.l", 2, "push"),
        written("†state", {"l": ["new"], "m": 1}),
        written("†state.l.0", "newer"),
        written("†state.l", 3, "push"),
        {"type": "state", "m": {"n": 1}},
        written("†state.m.n", [2], "push"),
    ]
    context = Context(messages)
    with pytest.raises(Conflict):
        context.resolve("†state.m.n")
    assert context.resolve("†state.l") == ["newer", 3]


def test_r3_3_values_of_messages_are_never_changed_by_folding() -> None:
    shared = {"items": [1], "deep": {"a": 1}}
    messages = [
        written("†state.x", shared),
        written("†state.y", shared),
        written("†state.x.items", 2, "push"),
        written("†state.x.deep.b", 2),
        written("†state.y.deep", {"c": 3}, "merge"),
    ]
    assert state(*messages) == {
        "x": {"items": [1, 2], "deep": {"a": 1, "b": 2}},
        "y": {"items": [1], "deep": {"a": 1, "c": 3}},
    }
    assert shared == {"items": [1], "deep": {"a": 1}}


# R3.4


def test_r3_4_pushing_onto_a_number_is_an_error_that_leaves_other_paths_alone() -> None:
    bad = written("†state.n", "x", "push")
    context = Context([GIVEN, bad])
    with pytest.raises(Conflict) as conflict:
        context.resolve("†state.n")
    for part in ("†state.n", "push", "string", "number", "message 1"):
        assert part in str(conflict.value)
    assert context.resolve("†state.user.name") == "Alex"
    assert context.resolve("†state.no || †state.user.tags") == ["a"]
    assert context.messages == (GIVEN, bad)


@pytest.mark.parametrize(
    ("path", "value", "method", "types"),
    [
        ("†state.user", 1, "push", ("number", "object")),
        ("†state.user", "x", "concat", ("string", "object")),
        ("†state.user.tags", "x", "concat", ("string", "list")),
        ("†state.user.name", [1], "concat", ("list", "string")),
        ("†state.n", 1, "concat", ("number", "number")),
        ("†state.n", {}, "assign", ("object", "number")),
        ("†state.user.tags", {}, "merge", ("object", "list")),
        ("†state.user", 1, "assign", ("number", "object")),
        ("†state.fresh", 1, "assign", ("number", "nothing")),
        ("†state.fresh", 1, "concat", ("number", "nothing")),
        ("†state.n.x", 1, "set", ("number", "number")),
        ("†state.user.name.x", True, "set", ("boolean", "string")),
        ("†state.user.tags.key", 1, "set", ("number", "list")),
    ],
)
def test_r3_4_an_operation_that_does_not_fit_names_both_types(
    path: str, value: Any, method: str, types: tuple[str, str]
) -> None:
    with pytest.raises(Conflict) as conflict:
        Context([GIVEN, written(path, value, method)]).resolve(path)
    assert path in str(conflict.value)
    assert f"cannot {method} {types[0]} at" in str(conflict.value)
    assert f"there is {types[1]}" in str(conflict.value)


def test_r3_4_a_conflict_is_reported_to_who_reads_there_above_or_below() -> None:
    context = Context([GIVEN, written("†state.user.name", 1, "push")])
    for text in ("†state", "†state.user", "†state.user.name", "†state.user.name.x"):
        with pytest.raises(Conflict):
            context.resolve(text)
    for text in ("†state.n", "†state.user.tags", "†state.user.tags.0"):
        context.resolve(text)
    assert context.data() == {"state": {"user": {"name": "Alex", "tags": ["a"]}, "n": 5}}


@pytest.mark.parametrize(
    "healing",
    [
        written("†state.user.name", "new"),
        written("†state.user", {"name": "new"}),
        written("†state", {"user": {"name": "new"}}),
        written("†state.user", {"name": "new"}, "assign"),
        written("†state.user", {"name": "new"}, "merge"),
        {"type": "state", "user": {"name": "new"}},
    ],
)
def test_r3_4_a_conflict_is_over_when_what_is_there_is_replaced(healing: dict[str, Any]) -> None:
    context = Context([GIVEN, written("†state.user.name", 1, "push"), healing])
    assert context.resolve("†state.user.name") == "new"


@pytest.mark.parametrize(
    "other",
    [
        written("†state.user.name", "x", "concat"),
        written("†state.user.name", {"x": 1}, "merge"),
        written("†state.user.name.x", 1),
        written("†state.user", {"age": 1}, "merge"),
        written("†state.user", {"age": 1}, "assign"),
    ],
)
def test_r3_4_a_conflict_stays_when_what_is_there_is_built_upon(other: dict[str, Any]) -> None:
    context = Context([GIVEN, written("†state.user.name", 1, "push"), other])
    with pytest.raises(Conflict, match="push number at"):
        context.resolve("†state.user.name")


def test_r3_4_nothing_can_be_built_upon_a_conflict_not_even_what_would_have_fitted_before() -> None:
    context = [GIVEN, written("†state.user.name", 1, "push")]
    calls = [
        call(to="†state.user.name", value="x", _outputMethod="concat"),
        call(to="†state.user.age", value=1),
        call(to="†state.user.name", value="new", after="†state.user.age"),
        call(to="†state.copy", value="†state.user.name", after="†state.user.age"),
    ]
    result = run(*calls, context=context)
    assert statuses(result) == ["failed", "done", "done", "done"]
    assert result.data[None]["state"]["copy"] == "new"


def test_r3_4_below_a_conflict_there_is_no_other() -> None:
    context = Context([GIVEN, written("†state.n", 1, "push"), written("†state.n.x", 1), written("†state.n.y.z", 1)])
    (conflict,) = context.fold().conflicts()
    assert "message 1" in str(conflict)


# R3.5


def test_r3_5_a_list_index_reads_or_replaces_that_element() -> None:
    context = Context([{"type": "state", "l": [{"k": 1}, 2]}, written("†state.l.0.k", 3), written("†state.l.1", "x")])
    assert context.resolve("†state.l") == [{"k": 3}, "x"]
    assert context.resolve("†state.l.0.k") == 3


def test_r3_5_the_index_behind_the_last_appends_and_anything_beyond_is_an_error() -> None:
    context = Context([{"type": "state", "l": [1]}, written("†state.l.1", 2), written("†state.l.2.x", 3)])
    assert context.resolve("†state.l") == [1, 2, {"x": 3}]
    context.append(written("†state.l.4", 5))
    with pytest.raises(Conflict, match="beyond the end"):
        context.resolve("†state.l.4")


def test_r3_5_index_0_of_nothing_begins_a_list_and_any_other_is_beyond_its_end() -> None:
    assert state(written("†state.l.0", "first")) == {"l": ["first"]}
    with pytest.raises(Conflict, match="index 1 is beyond the end"):
        Context([written("†state.l.1", "second")]).resolve("†state.l.1")


def test_r3_5_digits_name_the_key_of_an_object() -> None:
    assert state({"type": "state", "o": {"0": "a", "7": "b"}}, written("†state.o.7", "c"))["o"] == {"0": "a", "7": "c"}
    begun = {**written("†state.o", {"5": 1}), "_call": {"_outputPath": '†state.o["5"]'}}
    assert state(begun) == {"o": {"5": 1}}, "quoted digits are a key, also where nothing is there yet"


def test_r3_5_the_first_segment_after_a_kind_is_a_key() -> None:
    assert state(written("†state.2024", "x")) == {"2024": "x"}
    assert state(written("†state.0.0", "x")) == {"0": ["x"]}
    assert state(written("†state.7", 1, "push")) == {"7": [1]}
    context = Context([written("†state.2024.total", 5)])
    assert context.resolve("†state.2024.total") == context.resolve('†state["2024"].total') == 5


def test_r3_5_a_quoted_segment_is_a_key_and_never_an_index() -> None:
    begun = {**written("†state.o", {"0": {"0": 1}}), "_call": {"_outputPath": '†state.o["0"]["0"]'}}
    assert state(begun) == {"o": {"0": {"0": 1}}}
    listed = {**written("†state.l", {"0": 1}), "_call": {"_outputPath": '†state.l["0"]'}}
    with pytest.raises(Conflict, match="a list has no key"):
        Context([{"type": "state", "l": [0]}, listed]).resolve("†state.l")


def test_r3_5_a_push_at_an_index_works_on_that_element() -> None:
    assert state({"type": "state", "l": [[1]]}, written("†state.l.0", 2, "push"))["l"] == [[1, 2]]
