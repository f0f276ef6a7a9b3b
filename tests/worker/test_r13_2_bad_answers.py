"""What becomes of an answer, whatever it is: one row for each, by a real worker and a real server, on each wire on
which it can occur, streamed and in one piece (SPEC R12.6-R13.4).

After the answer of its row the model answers well, so a row is told by what ran of it, what was wrong in its tick, and
how often was asked.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Final

import pytest

from acts_celery.broker_config import EmbeddedServer
from tests.models.server import Reply, event, model_server
from tests.models.tool_servers import STREAM, WIRES, Say, Wire, output, wire_of

from .backend import Backend, Meeting, settings_apart
from .loops import ADD

KEY: Final = "sk-canary-4711"
SUM: Final = {"_tool": "add", "a": 1, "b": 2, "_outputPath": "†state.sum"}
MORE: Final = {"_tool": "add", "a": "†state.sum", "b": 2, "_outputPath": "†state.more"}
GOOD: Final = 7
PAGE: Final = Reply([b"<html>Log in</html>"], headers={"Content-Type": "text/html"})


@dataclass(frozen=True)
class Way:
    """How a model is asked, and how its answer comes."""

    provider: str
    has_functions: bool
    streams: bool

    @property
    def model(self) -> str:
        """The name of a model that is asked so."""
        return f"{self.provider}_{'tools' if self.has_functions else 'json'}"

    @property
    def wire(self) -> Wire:
        """What its provider speaks."""
        return WIRES[self.provider]

    def reply(self, say: Say) -> Reply:
        """An answer as it comes."""
        return self.wire.reply(say, streams=self.streams)

    def __str__(self) -> str:
        return f"{self.model} {'streamed' if self.streams else 'whole'}"


WAYS: Final = [
    Way(provider, has_functions, streams)
    for provider in WIRES
    for has_functions in (False, True)
    for streams in (True, False)
]
IN_TEXT: Final = [way for way in WAYS if not way.has_functions]
BY_CALLS: Final = [way for way in WAYS if way.has_functions]
STREAMED: Final = [way for way in WAYS if way.streams]
WHOLE: Final = [way for way in WAYS if not way.streams]
AS_TEXT: Final = [way for way in WAYS if way.streams or way.provider == "openai"]
"""Those in which the arguments of a function come as a text, which may be no JSON."""


def text(*calls: Any, output: Any = None) -> str:
    return json.dumps({"calls": list(calls), "output": output}, ensure_ascii=False)


CALLS: Final = text(SUM)


@dataclass(frozen=True)
class Row:
    """A reply, and what becomes of it."""

    reply: Callable[[Way], Reply]
    says: tuple[str, ...] = ()
    """The type of the tick's error and words of its message; empty where nothing is wrong."""
    runs: tuple[str, ...] | None = ()
    """What becomes of the calls of the answer; None where that depends on how fast it comes."""
    asked: tuple[int, ...] = (0, 1)
    """The ticks that were asked for, in order."""
    fails: str = ""
    """Words of the reason, where the run fails."""
    is_charged: bool = True
    """Whether what the provider reported of it is counted."""
    config: dict[str, Any] = field(default_factory=dict)
    words: str | None = None
    """What the log keeps of what stood around the answer."""
    output: Any = GOOD
    ways: Sequence[Way] = tuple(WAYS)
    """Those in which it can occur."""


def answered(*calls: dict[str, Any], output: Any = None) -> Callable[[Way], Reply]:
    """An answer as it is written on each wire."""

    def reply(way: Way) -> Reply:
        return way.reply(called(*calls, output=output) if way.has_functions else Say(words=text(*calls, output=output)))

    return reply


def called(*calls: dict[str, Any], output: Any = None, **more: Any) -> Say:
    """An answer as calls of functions."""
    made: list[tuple[str, Any]] = [
        (call["_tool"], {key: part for key, part in call.items() if key != "_tool"}) for call in calls
    ]
    return Say([*made, *([("output", {"output": output})] if output is not None else [])], **more)


def said(say: Say, *says: str, **more: Any) -> Row:
    """An answer that is the same on each wire."""
    return Row(lambda way: way.reply(say), says, **more)


def written(answer: str, *says: str, **more: Any) -> Row:
    """A text, where an answer is one."""
    return said(Say(words=answer), *says, ways=IN_TEXT, **more)


def functions(say: Say, *says: str, **more: Any) -> Row:
    """Calls of functions, where an answer is made of them."""
    return said(say, *says, **{"ways": BY_CALLS, **more})


def failing(status: int, type_: str, message: str, **headers: str) -> Callable[[Way], Reply]:
    """An error in the provider's words."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda way: Reply([json.dumps(way.wire.error(type_, message)).encode()], status, named)


def error_inside(type_: str, message: str) -> Callable[[Way], Reply]:
    """An error in place of an answer, or in the midst of one."""

    def reply(way: Way) -> Reply:
        error = way.wire.error(type_, message)
        if not way.streams:
            return Reply([json.dumps(error).encode()])
        return Reply([*way.wire.chunks(Say()), event(error)], headers=STREAM)

    return reply


def breaking_off(say: Say) -> Callable[[Way], Reply]:
    """A stream that is cut, before what it began with is whole."""
    return lambda way: Reply(way.wire.chunks(say)[: -1 if say.calls else None], headers=STREAM, is_cut=True)


def body(value: Any) -> Callable[[Way], Reply]:
    """Something in one piece."""
    return lambda way: Reply([value if isinstance(value, bytes) else json.dumps(value).encode()])


def rows() -> Iterator[tuple[str, Row]]:
    yield from unread_texts()
    yield from unread_calls()
    yield from wrong_answers()
    yield from what_providers_say()
    yield from what_ends()


def unread_texts() -> Iterator[tuple[str, Row]]:
    """Texts that should be an answer."""
    done: dict[str, Any] = {"runs": ("done",)}
    unread = ("InvalidAnswer", "the answer cannot be read: ")
    expected = 'expected {"calls": …, "output": …}'
    # What stands around the answer changes nothing.
    sure, ending = "Sure, here is what I do:", "Done! Anything else?"
    yield "prose before it", written(f"{sure}\n{CALLS}", **done, words=sure)
    yield "prose behind it", written(f"{CALLS}\n\n{ending}", **done, words=ending)
    yield "thinking", written(f'<think>{{"output": 1}}?</think>\n{CALLS}', **done)
    yield "a fence", written(f"```json\n{CALLS}\n```", **done)
    yield "it twice", written(f"{CALLS}\n{CALLS}", **done)
    yield "no output", written(json.dumps({"calls": [SUM]}), **done)
    yield "no calls", written('{"output": 7}', asked=(0,))
    # What cannot be read.
    yield "nothing", written("", *unread, f"it is empty; {expected}")
    yield "a bare output", written("7", *unread, expected, "It begins: 7")
    yield "prose alone", written("I would rather not. " * 100, *unread, expected, "It begins: I would rather")
    yield "two objects", written(f"{text(output=8)} or {CALLS}", *unread, "2 different objects")
    yield "keys of another language", written('{"вызовы": [], "ответ": 7}', *unread, expected, "вызовы")
    yield "an object inside another", written(f'{{"answer": {CALLS}}}', *unread, expected)
    yield "a text of JSON", written(json.dumps(CALLS), *unread, expected)
    yield "a key twice", written('{"calls": [], "output": 7, "output": 8}', *unread, "'output' occurs twice")
    yield "no number", written('{"output": NaN}', "InvalidOutput", "not a finite number")
    yield "no calls and no output", written(text(), "InvalidAnswer", "has no calls and no output")
    yield "broken JSON", written('{"calls": [}', *unread, "it is not JSON")
    yield "deep", written('{"output": ' + "[" * 5_000, *unread, "nested too deeply")
    yield "ten megabytes", written("x" * 10_000_000, "InvalidAnswer", "bytes", is_charged=False)
    # What is read, and is wrong.
    yield "no list of calls", written('{"calls": {"_tool": "add"}, "output": null}', "InvalidAnswer", "must be a list")
    yield "a call that is a text", written(text(json.dumps(SUM)), "InvalidCall", "a call must be an object")
    yield "an unknown property", written('{"output": 8, "thought": "x"}', "InvalidAnswer", "unknown property")
    # Calls of functions, where none were offered.
    stray = ("InvalidAnswer", "the answer is a function call, and no functions were offered")
    yield "a function call", said(Say([("add", {"a": 1})]), *stray, ways=IN_TEXT)
    yield (
        "a function call of broken JSON",
        said(Say([("add", '{"a": ')]), *stray, ways=[way for way in IN_TEXT if way in AS_TEXT]),
    )
    yield "a function call beside an answer", said(Say([("add", {"a": 1})], CALLS), ways=IN_TEXT, **done)


def unread_calls() -> Iterator[tuple[str, Row]]:
    """Calls of functions that should be an answer."""
    done: dict[str, Any] = {"runs": ("done",)}
    add = called(SUM).calls[0]
    # What stands around the calls changes nothing.
    yield "words beside calls", functions(Say([add], "I add."), **done, words="I add.")
    yield "a finish that does not fit", functions(Say([add], finish="stop"), **done)
    yield "an output beside calls", functions(Say([add, output("†state.sum")]), **done, asked=(0,), output=3)
    yield "an output before calls", functions(Say([output(8), add]), **done, asked=(0,), output=8)
    yield "an output of null beside calls", functions(Say([add, output(None)]), **done)
    yield "the output twice", functions(Say([output(8), output(8)]), asked=(0,), output=8)
    yield "two calls with one id", Row(one_id, runs=("done", "done"), ways=BY_CALLS)
    # What cannot be read: of the arguments of one call, that call alone.
    invalid = "InvalidCall"
    unread = (invalid, "its arguments cannot be read: ")
    as_text: dict[str, Any] = {**done, "ways": [way for way in BY_CALLS if way in AS_TEXT]}
    yield "arguments of broken JSON", functions(Say([("add", '{"a": '), add]), *unread, "not JSON", **as_text)
    yield "arguments with a key twice", functions(Say([("add", '{"a": 1, "a": 2}'), add]), *unread, "twice", **as_text)
    yield "arguments that are no number", functions(Say([("add", '{"a": NaN}'), add]), *unread, "NaN", **as_text)
    deep = '{"a": ' + "[" * 5_000
    yield "deep arguments", functions(Say([("add", deep), add]), *unread, "nested too deeply", **as_text)
    in_text = Say([("add", json.dumps('{"a": 1}')), add])
    yield "arguments that are a text of JSON", functions(in_text, invalid, "are not a JSON object", **done)
    yield "arguments that name a tool", functions(Say([("add", {"_tool": "add"})]), invalid, "have `_tool`")
    openai = [way for way in BY_CALLS if way.provider == "openai"]
    yield (
        "no arguments",
        functions(Say([("add", ""), add]), invalid, "arguments are missing", **done | {"ways": openai}),
    )
    yield "no name", functions(Say([("", {"a": 1}), add]), "InvalidAnswer", "without the name of its function")
    half = Say([("add", '{"a": "\\ud800"}'), add])
    yield "half a character in arguments", functions(half, invalid, "Unicode", **done)
    of_output = ("InvalidAnswer", "arguments of output cannot be read: it is not JSON")
    yield "an output of broken JSON", functions(Say([("output", '{"output": '), add]), *of_output, **as_text)
    named = Say([("output", {"result": 8}), add])
    yield "an output by another name", functions(named, "InvalidAnswer", "output has one argument", **done)
    twice = Say([output(8), output(9), add])
    yield "two outputs", functions(twice, "InvalidAnswer", "twice with different values", **done)
    much = Say([("add", {"a": "x" * 10_000_000})])
    yield "ten megabytes of arguments", functions(much, "InvalidAnswer", "bytes", is_charged=False)
    # What calls nothing.
    nothing = ("InvalidAnswer", "the answer calls no tool and gives no result")
    yield "words alone", functions(Say(words="I would rather not. " * 100), *nothing)
    yield "an empty message", functions(Say(), *nothing)
    yield "an output of null", functions(Say([output(None)]), *nothing)
    yield "a text of an answer", functions(Say(words=text(output=8)), *nothing)


def one_id(way: Way) -> Reply:
    """Two calls that have the same id."""
    reply = way.reply(called(SUM, MORE))
    chunks = [
        each.replace(b'call_1"', b'call_0"').replace(b'toolu_1"', b'toolu_0"')
        for each in reply.chunks
        if isinstance(each, bytes)
    ]
    return Reply(chunks, headers=reply.headers)


def wrong_answers() -> Iterator[tuple[str, Row]]:
    """Answers that are read, and are wrong."""
    done: dict[str, Any] = {"runs": ("done",)}
    yield (
        "parameters as a JSON text",
        Row(
            answered({"_tool": "add", "arguments": '{"a": 1}'}),
            ("InvalidCall", "parameters belong beside _tool"),
            ways=IN_TEXT,
        ),
    )
    large = {"_tool": "add", "a": 2**64}
    yield "an integer beyond 64 bits", Row(answered(large, SUM), ("InvalidCall", "64"), **done)
    deep: Any = 1
    for _ in range(70):
        deep = [deep]
    yield "too many levels", Row(answered({"_tool": "add", "a": deep}, SUM), ("InvalidCall", "64 levels"), **done)
    yield "an output beyond 64 bits", Row(answered(SUM, output=2**64), ("InvalidOutput", "64"), **done)
    yield "an unknown tool", Row(answered({"_tool": "sum", "a": 1}), ("InvalidCall", "it declares: add"))
    yield (
        "a reference in a text",
        Row(
            answered(SUM, output="The sum is †state.sum."),
            ("InvalidOutput", "write 'The sum is †{state.sum}.'"),
            **done,
        ),
    )
    yield (
        "a reference without its dagger",
        Row(
            answered(SUM, {**MORE, "a": "state.sum"}),
            ("InvalidCall", "names a place and has no †", "write †state.sum"),
            **done,
        ),
    )
    yield (
        "an output path without its dagger",
        Row(answered({**SUM, "_outputPath": "state.sum"}), ("InvalidCall", "write †state.sum")),
    )
    yield "a field that is not there", Row(answered(SUM, {**MORE, "a": "†state.sum.total"}), runs=("done", "skipped"))
    yield "an output that does not fit", Row(answered(output="seven"), ("InvalidOutput", "integer"))
    yield (
        "a consequence before its cause",
        Row(answered(MORE, {**SUM, "c": 1}), ("InvalidCall", "correct /calls/1 first")),
    )
    many = [{"_tool": "add", "a": 1}] * 39_000
    beyond: dict[str, Any] = {"asked": (0,), "fails": "config.calls"}
    yield "too many calls", Row(answered(*many), **beyond, ways=[*IN_TEXT, *(way for way in BY_CALLS if way in WHOLE)])
    one_by_one = [way for way in BY_CALLS if way.streams]  # the first begin before it is known how many there are
    yield "too many calls, one by one", Row(answered(*many[:1_000]), **beyond, runs=None, ways=one_by_one)
    yield "half a character", Row(answered(output="\ud800"), ("Invalid",))


def what_providers_say() -> Iterator[tuple[str, Row]]:
    """What is said beside the answer, or in place of it."""
    refusal = "I cannot help with that."
    openai = [way for way in WAYS if way.provider == "openai"]
    yield "a refusal", said(Say(refusal=refusal), "Refused", f"the model refuses: {refusal}", ways=openai)
    odd = "no" * 50_000 + "\ud800"
    yield "an odd refusal", said(Say(refusal=odd), "Refused", "the model refuses: nono", ways=openai)
    yield "a filter", said(Say(finish="content_filter"), "Refused", "filtered")
    long, most = ("Truncated", "max_output_tokens (64)"), {"config": {"max_output_tokens": 64}}
    yield "a length", said(Say(finish="length"), *long, **most)
    in_call = Say([("add", '{"a": ')], finish="length")
    yield "a length in a call", functions(in_call, *long, ways=[way for way in BY_CALLS if way in AS_TEXT], **most)
    error = error_inside("invalid_request_error", f"no, {KEY}")
    yield "an error inside", Row(error, ("InvalidAnswer", "no, ***"), is_charged=False)
    # What is asked again, and spends no tick.
    again: dict[str, Any] = {"asked": (0, 0), "is_charged": False}
    yield "no choices", Row(body({"choices": [], "content": [], "model": "m"}), ways=WHOLE, **again)
    yield "the end at once", Row(lambda way: Reply(way.wire.end("stop")[-1:], headers=STREAM), ways=STREAMED, **again)
    yield "a limited rate", Row(failing(429, "rate_limit_error", "slow down", Retry_After="0"), **again)
    yield "overloaded", Row(failing(529, "overloaded_error", "overloaded"), **again)
    yield "an error inside that passes", Row(error_inside("overloaded_error", "no"), **again)
    yield "a cut before a call", Row(breaking_off(Say()), ways=STREAMED, **again)
    cut = breaking_off(Say([("add", '{"a": ')]))
    yield "a cut in a call", Row(cut, ways=[way for way in BY_CALLS if way.streams], **again)


def what_ends() -> Iterator[tuple[str, Row]]:
    """What ends the run, and what is no text at all."""
    ends: dict[str, Any] = {"asked": (0,), "is_charged": False}
    yield "a page for people", Row(lambda way: PAGE, ways=WHOLE, fails="is ACTS_MODEL_BASE_URL right?", **ends)
    key = failing(401, "authentication_error", f"no such key: {KEY}")
    yield "a wrong key", Row(key, fails="no such key: ***", **ends)
    yield "an unknown model", Row(failing(404, "not_found_error", "no such model"), fails="no such model", **ends)
    late: dict[str, Any] = {**ends, "fails": "request_seconds", "config": {"request_seconds": 1}, "ways": STREAMED}
    yield "nothing for ever", Row(lambda way: Reply([*way.wire.chunks(Say()), Event()], headers=STREAM), **late)
    no_text = b'{"choices": [{"message": {"content": "\xff"}}]}'
    yield "no UTF-8", Row(body(no_text), ("InvalidAnswer",), ways=WHOLE, is_charged=False)


ROWS: Final = dict(rows())


@dataclass
class Speaker:
    """Answers as the row says whose topic the request has, and then well."""

    rows: dict[str, tuple[Row, Way]] = field(default_factory=dict)
    asked: dict[str, list[int]] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    """The rules of their providers that requests have broken, by topic."""

    def __call__(self, sent: Any) -> Reply:
        messages = json.dumps(sent["messages"])
        topic = re.findall(r"topic: (\w+)", messages)[0]
        if "tools" in sent:
            try:
                wire_of(sent).verify(sent)
            except Exception as error:
                self.broken[topic] = f"{error!r:.500}"
        asked = self.asked.setdefault(topic, [])
        asked.append(int("# Tick 0" in messages or '"t000c' in messages))
        row, way = self.rows[topic]
        return row.reply(way) if len(asked) == 1 else answered(output=GOOD)(way)


@pytest.fixture(scope="module")
def speaker() -> Speaker:
    return Speaker()


@pytest.fixture(scope="module")
def backend(
    server: EmbeddedServer, speaker: Speaker, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backend]:
    with model_server(speaker) as model:
        urls = {"openai": model.url, "anthropic": model.url.removesuffix("/v1")}
        models = {
            way.model: {
                "model": f"{way.provider}:m",
                "base_url": urls[way.provider],
                "api_key": KEY,
                "wire": "tools" if way.has_functions else "json",
                "price": {"input": 2, "output": 10, "cached": 1},
            }
            for way in WAYS
        }
        given: dict[str, Any] = {"models": models, "model": "openai:m", "model_base_url": model.url}
        running = Backend(settings_apart(server, "bad_answers", **given), meeting, tmp_path_factory.mktemp("bad"))
        with running.worker():
            yield running


@pytest.mark.parametrize(
    ("name", "way"),
    [
        pytest.param(name, way, id=f"{name}, {way}", marks=[pytest.mark.nightly] * (number % len(row.ways) > 0))
        for start, (name, row) in enumerate(ROWS.items())
        for number, way in enumerate(row.ways, start)
    ],
)
def test_what_becomes_of_an_answer(name: str, way: Way, backend: Backend, speaker: Speaker) -> None:
    row, topic = ROWS[name], secrets.token_hex(4)
    speaker.rows[topic] = row, way
    context = [{"type": "text", "message": f"topic: {topic}"}]
    config = {**row.config, "model": way.model}
    document = {"context": context, "schema": {"type": "integer"}, "tools": {"add": ADD}, "config": config}
    run = backend.client.submit_document(document)
    result = backend.wait(run.id)
    messages = [entry.message for entry in run.log()]
    errors = [message["data"] for message in messages if message["type"] == "error"]
    shown = json.dumps([errors, result.reason], ensure_ascii=False)
    assert KEY not in shown
    assert speaker.broken.get(topic) is None
    assert tuple(speaker.asked[topic]) == row.asked, shown
    assert row.runs in (None, tuple(call.status for call in result.calls)), shown
    if row.fails:
        assert result.status == "failed"
        assert row.fails in str(result.reason)
        return
    assert (result.status, result.output) == ("completed", row.output)
    solutions = [message for message in messages if message["type"] == "solution"]
    usages = [message["usage"] for message in solutions]
    assert row.words in (None, solutions[0].get("words"))
    assert len(usages) == len(set(row.asked))
    assert (usages[0] is not None) == (row.is_charged or len(usages) == 1), usages
    assert (not errors) == (not row.says), shown
    for words in row.says:
        assert words in errors[0]["error"]["type"] + errors[0]["error"]["message"], shown
    assert all(len(error["error"]["message"]) < 1_000 for error in errors)


def begun(way: Way, *rest: Event) -> Reply:
    """An answer that begins with its usage, as far as that is known, and has no end."""
    usage = {"prompt_tokens": 100, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 90}}
    early = [event({"model": "m", "choices": [], "usage": usage})] if way.provider == "openai" else []
    hello = '"output": "Hello, here is what I'
    say = Say([("output", f"{{{hello}")]) if way.has_functions else Say(words=f'{{"calls": [], {hello}')
    chunks = way.wire.chunks(say)
    return Reply([*early, *chunks[: -1 if way.provider == "anthropic" else None], *rest], headers=STREAM)


@pytest.mark.parametrize("is_cancelled", [True, False])
@pytest.mark.parametrize("way", STREAMED, ids=str)
def test_r13_3_usage_that_was_reported_before_a_request_is_cancelled_or_breaks_off_counts_with_the_most_output(
    way: Way, backend: Backend, speaker: Speaker, *, is_cancelled: bool
) -> None:
    hold, topic = Event(), secrets.token_hex(4)
    speaker.rows[topic] = Row(lambda way: begun(way, *([hold] if is_cancelled else []))), way
    context = [{"type": "text", "message": f"topic: {topic}"}]
    config = {"model": way.model, "max_output_tokens": 64}
    document = {"context": context, "schema": {"type": ["string", "integer"]}, "tools": {"add": ADD}, "config": config}
    run = backend.client.submit_document(document)
    try:
        if is_cancelled:
            next(event for event in run.follow(timeout_seconds=60) if event.kind == "text")
            run.cancel()
        result = backend.wait(run.id)
    finally:
        hold.set()
    assert result.ticks is not None
    cost = result.cost if is_cancelled else result.ticks[0].cost
    assert cost is not None
    assert (cost.requests, cost.input, cost.output, cost.cached) == (1, 100, 1, 90)
    assert (cost.tokens, cost.estimated) == (100 + 64, 64 - 1)
    assert cost.money == "0.00075", "(10 * 2 + 90 * 1 + 64 * 10) / 1,000,000"


DELEGATED: Final[dict[str, tuple[Row, str]]] = {
    "prose around it": (written('Sure:\n```json\n{"output": 3}\n```\nDone!'), ""),
    "thinking": (written('<think>{"output": 1}?</think>{"output": 3}'), ""),
    "calls that are none": (written('{"calls": [], "output": 3}'), ""),
    "a bare output": (written("3"), 'expected {"output": …}'),
    "two objects": (written('{"output": 1} {"output": 3}'), "2 different objects"),
    "calls": (written(text(SUM, output=3)), "it has calls, where there are no tools"),
    "no output": (written('{"output": null}'), "it has no output"),
    "nothing": (written(""), "it is empty"),
    "what does not fit": (written('{"output": "three"}'), "not what the schema demands"),
    "a length": (said(Say(words='{"output": ', finish="length")), "max_output_tokens"),
    "a filter": (said(Say(finish="content_filter")), "filtered"),
    "a function call": (said(Say([("add", {})])), "is a function call"),
    "a page for people": (Row(lambda way: PAGE), "ACTS_MODEL_BASE_URL"),
    "half a character": (written('{"output": "\ud800"}'), "not what the schema demands"),
}


@pytest.mark.parametrize("way", [way for way in IN_TEXT if way.streams], ids=str)
@pytest.mark.parametrize("name", DELEGATED)
def test_what_becomes_of_the_answer_of_a_delegate(name: str, way: Way, backend: Backend, speaker: Speaker) -> None:
    (row, fails), topic = DELEGATED[name], secrets.token_hex(4)
    speaker.rows[topic] = row, way
    context = [{"type": "text", "message": f"topic: {topic}"}]
    inner = {"context": context, "schema": {"type": "integer"}, "config": {"model": way.model}}
    call = {"_tool": "ask", "_delegate": "inner", "_outputPath": "†state.asked"}
    result = backend.run([call], delegates={"inner": inner})
    (ended,) = result.calls
    assert ended.status == ("failed" if fails else "done"), ended.error
    assert fails in str(ended.error)
    assert fails or result.data()["state"]["asked"] == 3
