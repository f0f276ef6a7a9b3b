"""Laws of values (SPEC R1, R3, R8): folding, instances, scopes, and the plans that other laws draw."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any
from unittest.mock import patch

import msgpack
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from acts_celery.protocol import Conflict, Context, Expression, Plan, Reference, Unresolved, limits
from acts_celery.protocol.messages import read_data, render_data
from acts_celery.protocol.paths import MISSING, lookup, nest, unnest
from acts_celery.protocol.plan.documents import decode
from acts_celery.protocol.plan.places import Holdings
from acts_celery.protocol.state.fold import Fold
from acts_celery.protocol.state.kinds import Overlay
from acts_celery.protocol.state.operations import Operation, read_operation
from acts_celery.protocol.state.scopes import scoped, scoped_messages

from . import naive
from .building import FUNCTIONS
from .laws import PLACES, folded, law, read, shown
from .strategies import (
    GIVEN,
    METHODS,
    SMALL_PATHS,
    WRITTEN,
    expressions,
    json_values,
    kinds,
    log_messages,
    logs,
    made_json,
    message_of,
    references,
    shuffled,
    small_paths,
    small_values,
    steps,
    texts,
)
from .test_law_orders import every_order, graphs

# Laws of folding (SPEC R3.1-R3.5): however a log is read, it gives what applying every operation in order gives.

# R3.3: a resolver that reads backward, as the seeds describe it


def resolved_backward(steps: Sequence[naive.Step], at: naive.Place) -> Any:
    """From the newest operation to the oldest that settles the place: a set there or above. Then forward again.

    What an index means hangs on the whole list, so everything below a list that one reaches into belongs together.
    """
    whole = _without_index(at)
    while True:
        relevant: list[naive.Step] = []
        for step in reversed(steps):
            if naive.overlap(_without_index(step.at), whole):
                relevant.insert(0, step)
                if step.method == "set" and len(step.at[1]) <= len(whole[1]) and step.at == _without_index(step.at):
                    break
        wider = min([whole, *(_without_index(step.at) for step in relevant if _without_index(step.at) != step.at)],
                    key=lambda place: len(place[1]))  # fmt: skip
        if wider == whole:
            return naive.found(naive.folded(relevant), at)
        whole = wider


def _without_index(at: naive.Place) -> naive.Place:
    """The place, or the list above it."""
    kind, path = at
    return kind, tuple(takewhile(lambda segment: isinstance(segment, str), path))


@law
@given(st.lists(steps, max_size=8), small_paths)
def test_reading_backward_until_the_path_is_settled_gives_what_the_fold_gives(
    steps: list[naive.Step], path: tuple[str | int, ...]
) -> None:
    fitting: list[naive.Step] = []
    for step in steps:
        try:
            naive.folded([*fitting, step])
        except naive.Misfit:
            continue
        fitting.append(step)
    found = folded([message_of(step) for step in fitting]).value(Reference("state", path))
    expected = resolved_backward(fitting, ("state", path))
    assert (found is MISSING) is (expected is naive.NOTHING)
    assert found is MISSING or found == expected


def test_the_backward_resolver_stops_where_a_set_settles_the_path() -> None:
    steps = [naive.Step(("state", ("a",)), "push", n) for n in range(3)]
    steps.insert(1, naive.Step(("state", ("a",)), "set", ["new"]))
    assert resolved_backward(steps, ("state", ("a",))) == ["new", 1, 2]


# R3.3: prefixes, checkpoints and chunks


@law
@given(logs)
def test_folding_step_by_step_is_folding_all_at_once_at_every_prefix(messages: list[dict[str, Any]]) -> None:
    before = json.dumps(messages)
    fold = Fold()
    for position, message in enumerate(messages):
        fold.append(message, f"message {position}")
        assert shown(fold) == shown(folded(messages[: position + 1]))
    assert json.dumps(messages) == before, "no message is changed"


@law
@given(logs, st.integers(0, 8))
def test_going_on_from_any_checkpoint_gives_what_the_whole_log_gives(
    messages: list[dict[str, Any]], position: int
) -> None:
    while (before := folded(messages[:position])).conflicts():
        position -= 1
    checkpoint = [{"type": "data", "kind": kind, "data": value} for kind, value in before.snapshot().items()]
    kept = msgpack.unpackb(msgpack.packb(checkpoint))
    whole, resumed = folded(messages), Fold()
    for number, message in enumerate([*kept, *messages[position:]]):
        resumed.append(message, f"message {number - len(kept) + position}")
    assert shown(resumed) == shown(whole)


# R11.8: what calls have written is withdrawn


_by = st.one_of(st.none(), st.integers(0, 2))
_arrivals = st.lists(st.tuples(log_messages, st.booleans(), _by, st.booleans()), max_size=8)


@law
@given(_arrivals, st.sets(st.integers(0, 2)), st.booleans(), _arrivals)
def test_r11_8_what_is_withdrawn_was_never_there_for_what_is_read_later(
    before: list[Any], calls: set[int], of_all: bool, after: list[Any]
) -> None:
    shared, shared_without = Fold(), Fold()
    mine, mine_without = Fold(shared), Fold(shared_without)

    def arrive(arrivals: list[Any], withdrawn: set[int]) -> None:
        for number, (message, is_global, by, is_read) in enumerate(arrivals):
            (shared if is_global else mine).append(message, f"message {number}", by)
            if by not in withdrawn or (is_global and not of_all):
                (shared_without if is_global else mine_without).append(message, f"message {number}", by)
            if is_read:
                shown(mine)

    arrive(before, calls)
    mine.withdraw(calls)
    if of_all:
        shared.withdraw(calls)
    arrive(after, set())
    assert shown(mine) == shown(mine_without)
    assert shown(shared) == shown(shared_without)


@law
@given(st.lists(st.tuples(log_messages, st.sampled_from(["global", "own", "own, then read"])), max_size=8))
def test_folding_does_not_depend_on_how_the_messages_are_chunked(arrivals: list[tuple[dict[str, Any], str]]) -> None:
    shared, at_once = Fold(), Fold()
    mine, mine_at_once = Fold(shared), Fold(at_once)
    for number, (message, way) in enumerate(arrivals):
        (shared if way == "global" else mine).append(message, f"message {number}")
        (at_once if way == "global" else mine_at_once).append(message, f"message {number}")
        if way == "own, then read":
            shown(mine)
            shown(shared)
    assert shown(mine) == shown(mine_at_once)
    assert shown(shared) == shown(at_once)


@law
@given(logs)
def test_folding_is_applying_each_operation_to_a_copy(messages: list[dict[str, Any]]) -> None:
    steps: list[naive.Step] = []
    fold = Fold()
    for position, message in enumerate(messages):
        operation = read_operation(message, "message")
        assert operation is not None
        step = naive.Step((operation.place.kind, operation.place.path), operation.method, operation.value)
        assert naive.step_of(message) == step
        try:
            expected = naive.folded([*steps, step])
        except naive.Misfit:
            assert _conflicts(fold, operation)
            continue
        assert not _conflicts(fold, operation)
        steps.append(step)
        fold.append(message, f"message {position}")
        assert fold.snapshot() == expected


def _conflicts(fold: Fold, operation: Operation) -> bool:
    try:
        fold.verify(operation)
    except Conflict:
        return True
    return False


# R3.4


@given(logs, log_messages)
def test_a_conflict_touches_nothing_beside_its_place(messages: list[dict[str, Any]], last: dict[str, Any]) -> None:
    operation = read_operation(last, "message")
    assert operation is not None
    before, after = folded(messages), folded([*messages, last])
    assume(_conflicts(before, operation))
    assert after.snapshot() == before.snapshot()
    for place in PLACES:
        if not place.overlaps(operation.place):
            assert read(after, place) == read(before, place)


@given(logs, st.integers(0, 8))
def test_what_was_read_does_not_change_when_the_log_goes_on(messages: list[dict[str, Any]], position: int) -> None:
    fold = folded(messages[:position])
    before = fold.snapshot()
    text = json.dumps(before)
    for message in messages[position:]:
        fold.append(message, "message")
        fold.snapshot()
    assert json.dumps(before) == text


# R3.5: paths


@given(json_values, references)
def test_a_value_nested_at_a_path_is_found_there(value: Any, reference: Reference) -> None:
    nested = nest(value, reference.path)
    assert lookup(nested, reference.path) == value
    assert unnest(nested, reference.path) == value


@given(small_values, small_paths)
def test_looking_up_is_going_step_by_step(value: Any, path: tuple[str | int, ...]) -> None:
    assert (lookup(value, path) is MISSING) is (naive.found({"k": value}, ("k", path)) is naive.NOTHING)


# Laws of holdings (SPEC R3.6, R6.1): which places each of many instances holds is what looking up each place says.

places = st.lists(
    st.sampled_from(PLACES) | st.builds(Reference, st.sampled_from(["state", "data"]), small_paths), max_size=8
)


@law
@given(places, logs, st.lists(st.lists(log_messages, max_size=4), max_size=3), st.sampled_from([0, 32]))
def test_an_instance_holds_what_looking_up_each_place_finds(
    asked: list[Reference], all_see: list[Any], own: list[list[Any]], most_copied: int
) -> None:
    with patch("acts_celery.protocol.limits.MOST_COPIED", most_copied):  # with 0, objects are overlaid however small
        shared = folded(all_see)
        holdings = Holdings(asked, shared)
        for fold in [shared, Fold(shared), *(folded(messages, shared) for messages in own)]:
            assert holdings.of(fold) == {place for place in asked if fold.exists(place)}


# Laws of instances (SPEC R3.6, R10.3): their operations lie on top of the global ones, and no other one sees them.

INSTANCES = ("①", "②")
_DESCRIBED = tuple(
    {"type": "state", "data": {"a": 1}, "schema": schema, "description": text}
    for schema in (True, {"type": "object"}, {"properties": {"a": {"type": "integer"}}})
    for text in ("one", "other")
)
_arrivals_instances = st.tuples(
    st.sampled_from([None, *INSTANCES]),
    st.sampled_from(shuffled([*WRITTEN, *GIVEN * 20, *_DESCRIBED * 100])),
)
_EXPRESSIONS = ("†state", "†state.a", "†data.b || †state.a.b", "†state.a && †data", "†state.0 || †state.a.0 || †data.a")
_KINDS = (Reference("state"), Reference("data"))


def _visible(context: Context, instance: str | None) -> Any:
    """All that can be learnt of a context as a reader in an instance."""
    fold = context.fold(instance)
    return repr(
        (
            shown(fold),
            fold.kinds(),
            [(fold.schema(kind.kind), fold.description(kind.kind)) for kind in _KINDS],
            [_told(lambda text: context.resolve(text, instance=instance), text) for text in _EXPRESSIONS],
            [_told(lambda kind: [scoped(fold, [kind]), scoped_messages(fold, [kind])], kind) for kind in _KINDS],
        )
    )


def _told(ask: Any, about: Any) -> Any:
    try:
        return ask(about)
    except (Conflict, Unresolved) as answer:
        return type(answer).__name__


def _addressed(name: str | None, message: dict[str, Any]) -> dict[str, Any]:
    return message if name is None else {**message, "_instance": name}


@law
@given(st.lists(_arrivals_instances, max_size=6))
def test_no_message_of_an_instance_changes_anything_visible_in_another(
    arrivals: list[tuple[str | None, dict[str, Any]]],
) -> None:
    context = Context()
    seen = {reader: _visible(context, reader) for reader in (None, *INSTANCES)}
    for name, message in arrivals:
        context.append(_addressed(name, message))
        now = {reader: _visible(context, reader) for reader in (None, *INSTANCES)}
        assert all(now[reader] == seen[reader] for reader in now if name not in (None, reader))
        seen = now


@given(st.lists(_arrivals_instances, max_size=8))
def test_a_reader_sees_what_it_would_see_if_there_were_no_other_instances(
    arrivals: list[tuple[str | None, dict[str, Any]]],
) -> None:
    everything = Context(_addressed(name, message) for name, message in arrivals)
    for reader in (None, *INSTANCES):
        alone = Context(_addressed(name, message) for name, message in arrivals if name in (None, reader))
        assert everything.data(reader) == alone.data(reader)


@given(st.lists(st.tuples(log_messages, st.sampled_from(["global", "own", "global, then read", "read"])), max_size=8))
def test_an_instances_values_are_its_own_operations_on_top_of_the_global_ones_whenever_they_came(
    arrivals: list[tuple[dict[str, Any], str]],
) -> None:
    shared = Fold()
    mine = Fold(shared)
    for message, way in arrivals:
        (shared if way.startswith("global") else mine).append(message, "message")
        if way.endswith("read"):
            mine.snapshot()
    general = [message for message, way in arrivals if way.startswith("global")]
    special = [message for message, way in arrivals if not way.startswith("global")]
    afresh = Fold()
    for message in [*general, *special]:
        afresh.append(message, "message")
    assert shown(mine) == shown(afresh)
    assert shown(shared)[0] == folded(general).snapshot()


_labelled_arrivals = st.tuples(_arrivals_instances, st.sampled_from([(), ("mail",), ("web",)]))


@given(*[st.lists(_labelled_arrivals, max_size=4)] * 2, st.lists(st.booleans(), min_size=4, max_size=4))
def test_what_is_added_to_a_copy_of_a_context_is_not_in_the_other(before: Any, after: Any, is_read: list[bool]) -> None:
    with patch.object(limits, "MOST_COPIED", 1):  # so that objects are overlaid however small they are
        context, first = Context(map(_marked_and_addressed, before)), [*map(_marked_and_addressed, before)]
        copies, added = [context, context.copy()], list[list[dict[str, Any]]]([[], []])
        for number, message in enumerate(map(_marked_and_addressed, after)):
            copies[number % 2].append(message)
            added[number % 2].append(message)
            copies[1] = copies[1].copy()
            if is_read[number]:
                _known_of(copies[number % 2])
        assert [_known_of(copy) for copy in copies] == [_known_of(Context([*first, *more])) for more in added]


@given(
    st.lists(st.tuples(_arrivals_instances, st.sampled_from([(), ("mail",)])), max_size=6), st.sets(st.integers(0, 6))
)
def test_what_was_replaced_in_a_context_was_never_there(arrivals: Any, gone: set[int]) -> None:
    messages = [*map(_marked_and_addressed, arrivals)]
    context = Context(messages)
    context.replace({"type": "withdrawn"}, gone)
    left = [{"type": "withdrawn"} if at in gone else message for at, message in enumerate(messages)]
    assert _known_of(context) == _known_of(Context(left))


def _marked_and_addressed(arrival: Any) -> dict[str, Any]:
    (name, message), labels = arrival
    return _addressed(name, {**message, "_trust": [*labels]} if labels else message)


def _known_of(context: Context) -> Any:
    """All that can be learnt of a context, sources included; the order of keys is that in which they were read."""
    folds = [context.fold(instance) for instance in (None, *INSTANCES)]
    marks = [[fold.marks(place) for place in PLACES] for fold in folds]
    said = [[(fold.schema(kind.kind), fold.description(kind.kind)) for kind in _KINDS] for fold in folds]
    return context.messages, context.marks, [*context.declaring], marks, said, [*map(shown, folds)]


# Laws of scopes (SPEC R8): what is given out lies inside the scopes, and what lies inside is given out.

SCOPES = ("state", "data", "†state.a", "†state.b", "†state.a.a", "†data.a.0", "†data.b", "†state.0", '†state["a b"]')


def _marked(number: int, kind: str, path: tuple[str | int, ...]) -> dict[str, Any]:
    """A message whose values are marks of its own, so that one knows them again wherever they turn up."""
    value: Any = {"a": f"mark {number} a", "b": [f"mark {number} b"]}
    for segment in reversed(path):
        value = {str(segment): value}
    return {"type": "data", "kind": kind, "data": value}


_places = st.sampled_from([(kind, path) for kind in ("state", "data") for path in SMALL_PATHS])


@law
@given(
    st.lists(st.tuples(st.sampled_from([None, "①", "②"]), _places), max_size=8),
    st.lists(st.sampled_from(SCOPES), max_size=3),
    st.sampled_from([None, "①"]),
)
def test_scoped_output_never_holds_a_value_from_outside_the_scopes(
    written: list[tuple[str | None, tuple[str, tuple[str | int, ...]]]], scopes: list[str], reader: str | None
) -> None:
    context = Context()
    for number, (name, place) in enumerate(written):
        message = _marked(number, *place)
        context.append(message if name is None else {**message, "_instance": name})
    places = [naive.place(scope if scope.startswith("†") else f"†{scope}") for scope in scopes]
    allowed = {mark for place in places for mark in _marks(naive.found(context.data(reader), place))}
    references = [Reference(kind, path) for kind, path in places]
    assert set(_marks(context.scoped(scopes, instance=reader))) == allowed
    assert set(_marks(scoped_messages(context.fold(reader), references))) == allowed


def _marks(value: Any) -> Iterator[str]:
    if isinstance(value, str) and value.startswith("mark "):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _marks(item)


@given(
    st.dictionaries(st.sampled_from(["state", "data"]), small_values),
    st.lists(st.builds(Reference, st.sampled_from(["state", "data", "input"]), small_paths), max_size=4),
)
def test_a_scoped_context_holds_what_is_at_the_scopes_and_nothing_from_outside(
    values: dict[str, Any], scopes: list[Reference]
) -> None:
    fold = folded([{"type": kind, "data": value} for kind, value in values.items()])
    given_out = scoped(fold, scopes)
    for leaf in _leaves(given_out):
        if leaf:
            assert any(leaf[: len(scope.key)] == scope.key for scope in scopes), "inside a scope"
            here, there = naive.found(given_out, _place(leaf)), naive.found(values, _place(leaf))
            assert here == there, "and the same as in the context"
    for scope in scopes:
        if (value := fold.value(scope)) is not MISSING:
            place = _place(tuple(map(str, scope.key)))
            assert naive.found(given_out, place) == value, "whatever is at a scope is given"


def _leaves(value: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, (dict, list)) and value:
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(item, (*at, str(key)))
    else:
        yield at


def _place(key: tuple[str, ...]) -> naive.Place:
    return key[0], tuple(int(part) if naive.INDEX.fullmatch(part) else part for part in key[1:])


# Laws of messages (SPEC R1): no field is lost on any way, and what is rendered reads the same again.

_TYPES = ("text", "system", "data", "input", "state", "error", "meta", "advisor", "never heard of")
_NAMES = ("data", "state", "input", "error", "_date", "_more", "description", "title", "", "†", "text", "é")
_free = st.dictionaries(st.sampled_from(_NAMES), made_json, max_size=3)
any_messages: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.builds(lambda rest, type_: {**rest, "type": type_}, _free, st.sampled_from(_TYPES)),
    st.builds(lambda rest, content: {**rest, "role": "user", "content": content}, _free, made_json),
    log_messages,
)


@law
@given(st.lists(any_messages, max_size=2), st.sampled_from([None, "①"]))
def test_no_field_of_a_message_is_lost_on_any_way(messages: list[dict[str, Any]], instance: str | None) -> None:
    given_in = messages if instance is None else [{**message, "_instance": instance} for message in messages]
    text = json.dumps(given_in)
    for carried in (json.loads(text), msgpack.unpackb(msgpack.packb(given_in))):
        context = Context(carried)
        assert list(context.messages) == given_in
        assert json.dumps(list(context.messages)) == text, "in the same order, of the same types"
        assert context.data(instance) == Context(given_in).data(instance)


@law
@given(st.lists(any_messages, max_size=2))
def test_a_submission_means_the_same_in_json_and_in_msgpack(messages: list[dict[str, Any]]) -> None:
    value = {"context": messages}
    text = json.dumps(value)
    for carried in (text.encode(), json.dumps(value, ensure_ascii=False).encode(), msgpack.packb(value)):
        assert json.dumps(decode(carried)) == text


@given(any_messages)
def test_provenance_changes_nothing_of_what_a_message_carries(message: dict[str, Any]) -> None:
    marked = {**message, "_date": "2026-11-21T00:00:00Z", "_instance": "①"}
    bare = {key: value for key, value in message.items() if key != "_date"}
    one, other = read_data(marked), read_data(bare)
    assert (one is None) is (other is None)
    if one is not None and other is not None:
        assert (one.kind, one.payload) == (other.kind, other.payload)
    assert read_operation(marked, "m") == read_operation(bare, "m")


@given(kinds, json_values)
def test_reading_what_was_rendered_gives_kind_and_payload_back(kind: str, payload: Any) -> None:
    data = read_data(json.loads(json.dumps(render_data(kind, payload))))
    assert data is not None
    assert (data.kind, data.payload) == (kind, payload)


@given(st.dictionaries(texts, json_values, max_size=3))
def test_an_object_renders_flat_or_whole_and_reads_the_same(payload: dict[str, Any]) -> None:
    for kind in ("state", "input"):
        assert Context([render_data(kind, payload)]).data() == {kind: payload}


# What the laws are tried on: their strategies reach every case that is interesting, and not by accident.

EXAMPLES = 400


def shares(strategy: st.SearchStrategy[Any], features: Any) -> Counter[str]:
    """In how many of a hundred examples each feature occurs."""
    found: Counter[str] = Counter()

    @settings(
        max_examples=EXAMPLES, phases=[Phase.generate], derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def collect(example: Any) -> None:
        found.update(set(features(example)))

    collect()
    return Counter({feature: 100 * count // EXAMPLES for feature, count in found.items()})


def rare(found: Counter[str], expected: Iterable[str], least: int) -> dict[str, int]:
    """The features that occur in fewer than so many of a hundred examples."""
    return {feature: found[feature] for feature in expected if found[feature] < least}


def of_a_log(messages: list[dict[str, Any]]) -> Iterator[str]:
    """What happens in a log."""
    fold = Fold()
    for message in messages:
        operation = read_operation(message, "message")
        assert operation is not None
        standing = len(fold.conflicts())
        yield from _of_an_operation(operation, fold)
        fold.append(message, "message")
        now = len(fold.conflicts())
        yield "a conflict" if now > standing else "a conflict settled" if now < standing else "no news of conflicts"


def _of_an_operation(operation: Operation, fold: Fold) -> Iterator[str]:
    path, method = operation.place.path, str(operation.method)
    try:
        there = fold.value(operation.place)
        fold.verify(operation)
    except Conflict:
        yield "into a conflict" if fold.conflicts() else "what does not fit"
        return
    yield f"{method} on nothing" if there is MISSING else f"{method} on something"
    yield f"a path of {len(path)}"
    if any(isinstance(segment, str) and " " in segment for segment in path):
        yield "a quoted key"
    if path and path[-1] == "0" and isinstance(path[-1], str):
        yield "digits as a key"
    if path and isinstance(path[-1], int):
        yield "an index" if there is not MISSING else "an index behind the last"


def test_logs_reach_every_method_kind_of_path_and_conflict() -> None:
    found = shares(logs, of_a_log)
    methods = [f"{method} on {what}" for method in METHODS for what in ("nothing", "something")]
    paths = ["a path of 0", "a path of 1", "a path of 2", "a path of 3", "a quoted key", "digits as a key"]
    lists = ["an index", "an index behind the last"]
    conflicts = ["a conflict", "a conflict settled", "into a conflict", "what does not fit"]
    assert not rare(found, [*methods, *paths, *lists, *conflicts], 3), found


def of_two_folds(arrivals: list[tuple[dict[str, Any], bool]]) -> Iterator[str]:
    """What happens to an instance while global messages come."""
    shared = Fold()
    mine = Fold(shared)
    for message, is_global in arrivals:
        before = mine.snapshot()
        (shared if is_global else mine).append(message, "message")
        yield "a global message shows" if is_global and mine.snapshot() != before else "nothing shows"
        if len(mine.conflicts()) > len(shared.conflicts()):
            yield "a conflict of its own"
        kind = mine._kind("state")
        if kind is not None and isinstance(kind.root(), Overlay):
            yield "an overlay"


@pytest.mark.nightly
def test_logs_of_an_instance_reach_overlays_and_conflicts_with_global_messages() -> None:
    found = shares(st.lists(st.tuples(log_messages, st.booleans()), max_size=8), of_two_folds)
    assert not rare(found, ["a global message shows", "a conflict of its own"], 10), found
    assert not rare(found, ["an overlay"], 1), found  # `test_law_values` makes objects overlaid however small


def of_an_expression(expression: Expression) -> Iterator[str]:
    """What there is to print."""
    yield f"alternatives: {len(expression.alternatives)}"
    for reference in expression.references:
        yield f"a path of {len(reference.path)}"
        for segment in reference.path:
            yield "an index" if isinstance(segment, int) else "a bare key" if segment == "user" else "a quoted key"


@pytest.mark.nightly
def test_expressions_reach_quoted_keys_indices_and_alternatives() -> None:
    found = shares(expressions, of_an_expression)
    expected = ["alternatives: 2", "a path of 0", "a path of 3", "an index", "a bare key", "a quoted key"]
    assert not rare(found, expected, 2), found


def of_a_graph(plan: Plan) -> Iterator[str]:
    """What can happen in a graph."""
    results = list(every_order(plan, FUNCTIONS, most=10))
    yield "one order" if len(results) == 1 else "several orders"
    yield from (str(status) for status in results[0].statuses[None].values())
    writes = [path for message in results[0].messages if (path := message.get("_path")) is not None]
    yield from ("an alternative" for path in writes if "data" in path)


@pytest.mark.nightly
def test_graphs_reach_branches_failures_and_several_orders() -> None:
    found = shares(graphs, of_a_graph)
    assert not rare(found, ["one order", "several orders", "done", "failed", "skipped", "an alternative"], 5), found


# Carrying over: what a kind's value and its sources are in another log (SPEC R3.6, R16.2).


@given(st.lists(st.tuples(log_messages, st.sampled_from([None, None, "①", "②"]), st.sampled_from([(), (), ("mail",)]))))
def test_law_every_reader_of_carried_messages_sees_the_values_and_at_least_the_sources(steps: list[Any]) -> None:
    messages = [
        {**message, **({"_instance": name} if name else {}), **({"_trust": [*labels]} if labels else {})}
        for message, name, labels in steps
    ]
    before = _folds(messages)
    after = _folds([
        {**message, **({"_instance": name} if name else {})}
        for name, fold in before.items()
        for message in fold.carried("state")
    ])  # fmt: skip
    for name, fold in before.items():
        reader = after.get(name, after[None])
        assert reader.root("state") == fold.root("state")
        for place in (Reference("state", path) for path in SMALL_PATHS if not isinstance((*path, "")[0], int)):
            if fold.exists(place) and reader.exists(place):  # a conflict is not carried, and leaves no value
                assert fold.marks(place).labels <= reader.marks(place).labels


def _folds(messages: list[dict[str, Any]]) -> dict[str | None, Fold]:
    folds: dict[str | None, Fold] = {None: Fold()}
    for number, message in enumerate(messages):
        fold = folds.setdefault(message.get("_instance"), Fold(folds[None]))
        fold.append(message, f"message {number}")
    return folds
