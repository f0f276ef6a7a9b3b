"""Laws of instances (SPEC R3.6, R10.3): their operations lie on top of the global ones, and no other one sees them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from acts_celery.protocol import Conflict, Context, Reference, Unresolved
from acts_celery.protocol.state.fold import Fold
from acts_celery.protocol.state.scopes import scoped, scoped_messages

from .laws import folded, law, shown
from .strategies import GIVEN, WRITTEN, log_messages, shuffled

INSTANCES = ("①", "②")
_DESCRIBED = tuple(
    {"type": "state", "data": {"a": 1}, "schema": schema, "description": text}
    for schema in (True, {"type": "object"}, {"properties": {"a": {"type": "integer"}}})
    for text in ("one", "other")
)
_arrivals = st.tuples(
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
@given(st.lists(_arrivals, max_size=6))
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


@given(st.lists(_arrivals, max_size=8))
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
