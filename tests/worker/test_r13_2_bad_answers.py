"""What becomes of an answer, whatever it is: one row for each, by a real worker and a real server (SPEC R12.6a-R13.4).

After the answer of its row the model answers well, so a row is told by what ran of it, what was wrong in its tick, and
how often was asked.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Final

import pytest

from acts_celery.broker_config import EmbeddedServer
from tests.models.server import Reply, delta, event, failing, model_server, streamed, whole

from .backend import Backend, Meeting, settings_apart
from .loops import ADD

KEY: Final = "sk-canary-4711"
SUM: Final = {"_tool": "add", "a": 1, "b": 2, "_outputPath": "†state.sum"}
MORE: Final = {"_tool": "add", "a": "†state.sum", "b": 2, "_outputPath": "†state.more"}
GOOD: Final = 7
EVENTS: Final = {"Content-Type": "text/event-stream"}


def text(*calls: Any, output: Any = None) -> str:
    return json.dumps({"calls": list(calls), "output": output}, ensure_ascii=False)


CALLS: Final = text(SUM)


@dataclass(frozen=True)
class Row:
    """A reply, and what becomes of it."""

    reply: Reply
    says: tuple[str, ...] = ()
    """The type of the tick's error and words of its message; empty where nothing is wrong."""
    runs: tuple[str, ...] = ()
    """What becomes of the calls of the answer."""
    asked: tuple[int, ...] = (0, 1)
    """The ticks that were asked for, in order."""
    fails: str = ""
    """Words of the reason, where the run fails."""
    is_charged: bool = True
    """Whether what the provider reported of it is counted."""
    config: dict[str, Any] = field(default_factory=dict)
    words: str | None = None
    """What the log keeps of what stood around the answer."""


def both(name: str, answer: str, *says: str, **more: Any) -> Iterator[tuple[str, Row]]:
    """An answer that comes in pieces, and one that comes at once: the same becomes of both."""
    yield f"{name}, streamed", Row(streamed(answer), says, **more)
    yield f"{name}, whole", Row(whole(answer), says, **more)


def called(arguments: str) -> dict[str, Any]:
    """A message with a function call."""
    return {"tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": arguments}}]}


def body(value: Any) -> Reply:
    return Reply([json.dumps(value).encode()])


def rows() -> Iterator[tuple[str, Row]]:
    done: dict[str, Any] = {"runs": ("done",)}
    unread = ("InvalidAnswer", "the answer cannot be read: ")
    expected = 'expected {"calls": …, "output": …}'
    # What stands around the answer changes nothing.
    sure, ending = "Sure, here is what I do:", "Done! Anything else?"
    yield from both("prose before it", f"{sure}\n{CALLS}", **done, words=sure)
    yield from both("prose behind it", f"{CALLS}\n\n{ending}", **done, words=ending)
    yield from both("thinking", f'<think>{{"output": 1}}?</think>\n{CALLS}', **done)
    yield from both("a fence", f"```json\n{CALLS}\n```", **done)
    yield from both("it twice", f"{CALLS}\n{CALLS}", **done)
    yield from both("no output", json.dumps({"calls": [SUM]}), **done)
    yield from both("no calls", '{"output": 7}', asked=(0,))
    # What cannot be read.
    yield from both("nothing", "", *unread, f"it is empty; {expected}")
    yield from both("a bare output", "7", *unread, expected, "It begins: 7")
    yield from both("prose alone", "I would rather not. " * 100, *unread, expected, "It begins: I would rather")
    yield from both("two objects", f"{CALLS} or {text(output=8)}", *unread, "2 different objects")
    yield from both("keys of another language", '{"вызовы": [], "ответ": 7}', *unread, expected, "вызовы")
    yield from both("an object inside another", f'{{"answer": {CALLS}}}', *unread, expected)
    yield from both("a text of JSON", json.dumps(CALLS), *unread, expected)
    yield from both("a key twice", '{"calls": [], "output": 7, "output": 8}', *unread, "'output' occurs twice")
    yield from both("no number", '{"output": NaN}', *unread, "NaN is not a JSON value")
    yield from both("broken JSON", '{"calls": [}', *unread, "it is not JSON")
    yield from both("deep", '{"output": ' + "[" * 5_000, *unread, "nested too deeply")
    yield from both("ten megabytes", "x" * 10_000_000, "InvalidAnswer", "bytes", is_charged=False)
    # What is read, and is wrong.
    yield from both(
        "no list of calls", '{"calls": {"_tool": "add"}, "output": null}', "InvalidAnswer", "must be a list"
    )
    yield from both("a call that is a text", text(json.dumps(SUM)), "InvalidCall", "a call must be an object")
    yield from both(
        "parameters as a JSON text",
        text({"_tool": "add", "arguments": '{"a": 1}'}),
        "InvalidCall",
        "parameters stand beside _tool",
    )
    yield from both("an unknown tool", text({"_tool": "sum", "a": 1}), "InvalidCall", "it declares: add")
    yield from both("an unknown property", '{"output": 8, "thought": "x"}', "InvalidAnswer", "unknown property")
    yield from both(
        "a reference in a text",
        text(SUM, output="The sum is †state.sum."),
        *("InvalidOutput", "write 'The sum is †{state.sum}.'"),
        **done,
    )
    yield from both(
        "a reference without its dagger",
        text(SUM, {"_tool": "add", "a": "state.sum", "_outputPath": "†state.more"}),
        *("InvalidCall", "names a place and has no †", "write †state.sum"),
        **done,
    )
    yield from both(
        "a field that is not there",
        text(SUM, {"_tool": "add", "a": "†state.sum.total", "_outputPath": "†state.more"}),
        runs=("done", "skipped"),
    )
    yield from both("an output that does not fit", text(output="seven"), "InvalidOutput", "integer")
    yield from both(
        "a consequence before its cause",
        text(MORE, {**SUM, "c": 1}),
        *("InvalidCall", "see what is wrong with /calls/1"),
    )
    yield from both(
        "too many calls",
        text(*[{"_tool": "add", "a": 1}] * 100_000)[:990_000].rpartition(",")[0] + '], "output": null}',
        asked=(0,),
        fails="calls",
    )
    # What the provider says beside the text.
    refusal = "I cannot help with that."
    yield (
        "a refusal, streamed",
        Row(Reply([delta(refusal=refusal), *streamed("").chunks], headers=EVENTS), ("Refused", refusal)),
    )
    yield "a refusal, whole", Row(whole("", refusal=refusal), ("Refused", refusal))
    yield "a filter", Row(whole("", finish="content_filter"), ("Refused", "filtered"))
    yield (
        "a length, streamed",
        Row(streamed("", finish="length"), ("Truncated", "max_output_tokens (64)"), config={"max_output_tokens": 64}),
    )
    yield (
        "a length, whole",
        Row(whole("", finish="length"), ("Truncated", "max_output_tokens (64)"), config={"max_output_tokens": 64}),
    )
    stray = ("InvalidAnswer", "the answer is a function call, and no functions were offered")
    yield "a function call", Row(whole("", finish="tool_calls", **called('{"a": 1}')), stray)
    yield "a function call of broken JSON", Row(whole("", finish="tool_calls", **called('{"a": ')), stray)
    yield (
        "an error inside",
        Row(body({"error": {"message": f"no, {KEY}", "type": "x"}}), ("InvalidAnswer", "no, ***"), is_charged=False),
    )
    streamed_call = Reply([delta(**called('{"a": 1}')), *streamed("").chunks], headers=EVENTS)
    yield "a function call, streamed", Row(streamed_call, stray)
    yield "a function call beside an answer", Row(whole(CALLS, **called('{"a": 1}')), **done)
    # What is asked again, and spends no tick.
    again: dict[str, Any] = {"asked": (0, 0), "is_charged": False}
    yield "no choices", Row(body({"choices": [], "model": "m"}), **again)
    yield "the end at once", Row(Reply([event(b"[DONE]")], headers=EVENTS), **again)
    yield "a limited rate", Row(failing(429, "slow down", Retry_After="0"), **again)
    yield "overloaded", Row(failing(529, "overloaded"), **again)
    yield "an error inside that passes", Row(body({"error": {"message": "no", "type": "server_error"}}), **again)
    yield "a cut before a call", Row(Reply([delta(content="")], headers=EVENTS, is_cut=True), **again)
    # What ends the run.
    ends: dict[str, Any] = {"asked": (0,), "is_charged": False}
    page = Reply([b"<html>Log in</html>"], headers={"Content-Type": "text/html"})
    yield "a page for people", Row(page, fails="is ACTS_MODEL_BASE_URL right?", **ends)
    yield "a wrong key", Row(failing(401, f"no such key: {KEY}"), fails="no such key: ***", **ends)
    yield "an unknown model", Row(failing(404, "no such model"), fails="no such model", **ends)
    slow = Reply([delta(content=" "), Event()], headers=EVENTS)
    yield "nothing for ever", Row(slow, fails="request_seconds", config={"request_seconds": 1}, **ends)
    # What is no text at all.
    yield (
        "no UTF-8",
        Row(Reply([b'{"choices": [{"message": {"content": "\xff"}}]}']), ("InvalidAnswer",), is_charged=False),
    )
    yield "half a character", Row(whole(text(output="\ud800")), ("InvalidAnswer",))


ROWS: Final = dict(rows())


@dataclass
class Speaker:
    """Answers as the row says whose topic the request has, and then well."""

    rows: dict[str, Row] = field(default_factory=dict)
    asked: dict[str, list[int]] = field(default_factory=dict)

    def __call__(self, sent: Any) -> Reply:
        said = [str(message["content"]) for message in sent["messages"]]
        topic = next(one.removeprefix("topic: ") for one in said if one.startswith("topic: "))
        asked = self.asked.setdefault(topic, [])
        asked.append(sum(one.startswith("# Tick ") for one in said))
        return self.rows[topic].reply if len(asked) == 1 else streamed(text(output=GOOD))


@pytest.fixture(scope="module")
def speaker() -> Speaker:
    return Speaker()


@pytest.fixture(scope="module")
def backend(
    server: EmbeddedServer, speaker: Speaker, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backend]:
    with model_server(speaker) as model:
        given = {"model": "openai:m", "model_base_url": model.url, "model_api_key": KEY}
        running = Backend(settings_apart(server, "bad_answers", **given), meeting, tmp_path_factory.mktemp("bad"))
        with running.worker():
            yield running


@pytest.mark.parametrize("name", ROWS)
def test_what_becomes_of_an_answer(name: str, backend: Backend, speaker: Speaker) -> None:
    row, topic = ROWS[name], secrets.token_hex(4)
    speaker.rows[topic] = row
    context = [{"type": "text", "message": f"topic: {topic}"}]
    document = {"context": context, "schema": {"type": "integer"}, "tools": {"add": ADD}, "config": row.config}
    run = backend.client.submit_document(document)
    result = backend.wait(run.id)
    messages = [entry.message for entry in run.log()]
    errors = [message["data"] for message in messages if message["type"] == "error"]
    shown = json.dumps([errors, result.reason], ensure_ascii=False)
    assert KEY not in shown
    assert tuple(speaker.asked[topic]) == row.asked, shown
    assert tuple(call.status for call in result.calls) == row.runs, shown
    if row.fails:
        assert result.status == "failed"
        assert row.fails in str(result.reason)
        return
    assert (result.status, result.output) == ("completed", GOOD)
    solutions = [message for message in messages if message["type"] == "solution"]
    usages = [message["usage"] for message in solutions]
    assert row.words in (None, solutions[0].get("words"))
    assert len(usages) == len(set(row.asked))
    assert (usages[0] is not None) == (row.is_charged or len(usages) == 1), usages
    assert (not errors) == (not row.says), shown
    for words in row.says:
        assert words in errors[0]["error"]["type"] + errors[0]["error"]["message"], shown
    assert all(len(error["error"]["message"]) < 1_000 for error in errors)


DELEGATED: Final[dict[str, tuple[Reply, str]]] = {
    "prose around it": (whole('Sure:\n```json\n{"output": 3}\n```\nDone!'), ""),
    "thinking": (streamed('<think>{"output": 1}?</think>{"output": 3}'), ""),
    "calls that are none": (whole('{"calls": [], "output": 3}'), ""),
    "a bare output": (whole("3"), 'expected {"output": …}'),
    "two objects": (whole('{"output": 1} {"output": 3}'), "2 different objects"),
    "calls": (whole(text(SUM, output=3)), "it has calls, where there are no tools"),
    "no output": (whole('{"output": null}'), "it has no output"),
    "nothing": (whole(""), "it is empty"),
    "what does not fit": (whole('{"output": "three"}'), "not what the schema demands"),
    "a length": (whole('{"output": ', finish="length"), "max_output_tokens"),
    "a filter": (whole("", finish="content_filter"), "filtered"),
    "a refusal": (whole("", refusal="No."), "the model refuses: No."),
    "a function call": (whole("", finish="tool_calls", **called("{}")), "is a function call"),
    "a page for people": (Reply([b"<html>"], headers={"Content-Type": "text/html"}), "ACTS_MODEL_BASE_URL"),
    "half a character": (whole('{"output": "\ud800"}'), "not what the schema demands"),
}


@pytest.mark.parametrize("name", DELEGATED)
def test_what_becomes_of_the_answer_of_a_delegate(name: str, backend: Backend, speaker: Speaker) -> None:
    (reply, fails), topic = DELEGATED[name], secrets.token_hex(4)
    speaker.rows[topic] = Row(reply)
    inner = {"context": [{"type": "text", "message": f"topic: {topic}"}], "schema": {"type": "integer"}}
    call = {"_tool": "ask", "_delegate": "inner", "_outputPath": "†state.asked"}
    result = backend.run([call], delegates={"inner": inner})
    (ended,) = result.calls
    assert ended.status == ("failed" if fails else "done"), ended.error
    assert fails in str(ended.error)
    assert fails or result.data()["state"]["asked"] == 3
