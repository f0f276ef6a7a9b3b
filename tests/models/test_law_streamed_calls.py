"""A law of streamed function calls: whatever order and cut the pieces of several calls come in, what runs is what runs
when they come whole, or nothing (SPEC R12.6, R13.8).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from acts_celery import InvalidAnswer
from acts_celery.protocol.requests.streaming import GrowingAnswer
from acts_celery.protocol.requests.tool_texts import Function
from acts_celery.worker.agent.anthropic_messages import AnthropicMessages
from acts_celery.worker.agent.called import Called
from acts_celery.worker.agent.openai_chat import OpenAIChat
from acts_celery.worker.agent.sdk_model import Dialect, Written

OBJECT: Final = {"type": "object", "properties": {"x": {}}}
FUNCTIONS: Final = [
    *(Function(name, name, "", OBJECT) for name in ("pay", "send", "stop")),
    Function(None, "output", "", OBJECT),
]
TEXTS: Final = st.sampled_from(["", "a", "{}", '"}', '{"x": 1}', "\\", '\\"', "†state.a", "😀", "]["])
ARGUMENTS: Final[st.SearchStrategy[dict[str, Any]]] = st.dictionaries(
    st.sampled_from(["x", "y", "{"]), st.one_of(TEXTS, st.integers(0, 9), st.just([]), st.just({"z": "}"})), max_size=2
)
Call = tuple[str, dict[str, Any]]
CALLS: Final = st.lists(st.tuples(st.sampled_from(["pay", "send", "stop"]), ARGUMENTS), min_size=1, max_size=4)


@dataclass(frozen=True)
class Style:
    """How a server marks the pieces of its calls."""

    has_index: bool = True
    has_ids: bool = True
    repeats: bool = False
    """Whether each piece has the name, and the id."""
    is_counted: bool = True
    """Whether the indexes differ."""
    named_at: int = 0
    """The piece that has the name, where there are so many."""

    @property
    def is_certain(self) -> bool:
        """Whether each piece says which call it belongs to."""
        return (self.has_index and self.is_counted) or (self.has_ids and self.repeats)


STYLES: Final = [
    Style(),
    Style(has_ids=False),
    Style(repeats=True),
    Style(named_at=1),
    Style(has_ids=False, named_at=2),
    Style(is_counted=False),
    Style(is_counted=False, repeats=True),
    Style(has_index=False),
    Style(has_index=False, repeats=True),
    Style(has_index=False, has_ids=False),
    Style(has_index=False, has_ids=False, repeats=True),
]


@st.composite
def mixed(draw: st.DrawFn, parts: Sequence[Sequence[Any]]) -> list[Any]:
    """The parts of several wholes in one order, which keeps that of each."""
    which = draw(st.permutations([at for at, own in enumerate(parts) for _ in own]))
    left = [iter(own) for own in parts]
    return [next(left[at]) for at in which]


def cut(draw: st.DrawFn, text: str) -> list[str]:
    marks = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    return [text[begin:end] for begin, end in zip([0, *marks], [*marks, len(text)], strict=True)]


@st.composite
def openai_streams(draw: st.DrawFn) -> tuple[list[Call], list[Any], Style]:
    """Calls, the events that they come in, and their style."""
    calls, style = draw(CALLS), draw(st.sampled_from(STYLES))
    pieces = []
    for at, (name, arguments) in enumerate(calls):
        texts = cut(draw, json.dumps(arguments, ensure_ascii=draw(st.booleans())))
        own = []
        for number, text in enumerate(texts):
            is_named = style.repeats or number == min(style.named_at, len(texts) - 1)
            function = {**({"name": name} if is_named else {}), "arguments": text}
            own.append({
                **({"index": at if style.is_counted else 0} if style.has_index else {}),
                **({"id": f"id{at}"} if style.has_ids and (style.repeats or number == 0) else {}),
                "function": function,
            })  # fmt: skip
        pieces.append(own)
    events = [[piece] for piece in draw(mixed(pieces))]
    if draw(st.booleans()):
        events = [[piece for event in events[at : at + 3] for piece in event] for at in range(0, len(events), 3)]
    return calls, [{"choices": [{"delta": {"tool_calls": each}}]} for each in events], style


@st.composite
def anthropic_streams(draw: st.DrawFn) -> tuple[list[Call], list[Any]]:
    """Calls, and the events that they come in, among blocks of other types."""
    calls = draw(CALLS)
    kinds = draw(st.permutations([*calls, *draw(st.lists(st.sampled_from(["text", "server_tool_use"]), max_size=2))]))
    pieces = []
    for at, kind in enumerate(kinds):
        if isinstance(kind, str):
            block, texts = dict[str, Any]({"type": kind, "name": "search"}), ['{"q": 1', "}"] if kind != "text" else []
        else:
            block = {"type": "tool_use", "id": f"id{at}", "name": kind[0], "input": {}}
            texts = ["", *cut(draw, json.dumps(kind[1]))] if kind[1] or draw(st.booleans()) else [""]
        deltas = [{"delta": {"type": "input_json_delta", "partial_json": text}} for text in texts]
        events: list[dict[str, Any]] = [
            {"type": "content_block_start", "content_block": block},
            *({"type": "content_block_delta", **each} for each in deltas),
            {"type": "content_block_stop"},
        ]
        pieces.append([{**event, "index": at} for event in events])
    return [kind for kind in kinds if not isinstance(kind, str)], draw(mixed(pieces))


def runs(dialect: Dialect, events: Sequence[Any]) -> tuple[list[Any], list[Any] | None]:
    """The calls that begin while an answer comes, and all of them; None where it is invalid."""
    written = Written("m", 100_000, called=Called(FUNCTIONS))
    growing, begun = GrowingAnswer(), list[Any]()
    try:
        for event in events:
            begun += growing.feed(dialect.take(written, event, streams=True))
        written.finish = "stop"
        return begun, json.loads(written.answer().text)["calls"]
    except InvalidAnswer:
        return begun, None


@given(openai_streams())
def test_pieces_of_calls_run_in_any_order_and_cut_as_when_they_come_whole_at_openai(
    stream: tuple[list[Call], list[Any], Style],
) -> None:
    calls, events, style = stream
    whole = [{"_tool": name, **arguments} for name, arguments in calls]
    begun, ran = runs(OpenAIChat(), events)
    if style.is_certain:
        assert ran is not None
    if style.has_index and style.is_counted:
        assert begun == whole[: len(begun)]
        assert ran == whole
        return
    left = list(whole)
    for call in begun:
        left.remove(call)  # each that runs is one of them
    if ran is not None:
        assert ran[: len(begun)] == begun
        assert sorted(map(json.dumps, ran)) == sorted(map(json.dumps, whole))


@given(anthropic_streams())
def test_pieces_of_calls_run_in_any_order_and_cut_as_when_they_come_whole_at_anthropic(
    stream: tuple[list[Call], list[Any]],
) -> None:
    calls, events = stream
    whole = [{"_tool": name, **arguments} for name, arguments in calls]
    assert runs(AnthropicMessages(), events) == (whole, whole)
