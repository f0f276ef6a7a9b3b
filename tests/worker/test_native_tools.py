"""Loops whose tools go as functions of the provider's own tool calling, on real workers (SPEC R12.6)."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from threading import Event
from typing import Any

import pytest

from acts_celery import Run
from acts_celery.broker_config import EmbeddedServer
from tests.few import few
from tests.models.server import Reply, delta, model_server
from tests.models.server import event as sent_event
from tests.models.tool_servers import STREAM, Say, Speaker, Wire, output

from .backend import Backend, Meeting, settings_apart
from .loops import ADD
from .test_r14_people import wait_held

TOOLS = {"add": ADD}
WAIT = {"type": "object", "properties": {"gate": {"type": "string"}, "value": {}}}
Answer = Say | Callable[[Wire], Reply]


@dataclass
class Native:
    """A backend whose models call functions, and the wire that they are asked by."""

    backend: Backend
    speaker: Speaker
    model: str = "openai"
    streams: bool = True

    def submit(self, *answers: Answer, **request: Any) -> tuple[Run, str]:
        """Submit a request whose ticks are answered so; the run and its topic."""
        topic = secrets.token_hex(4)
        self.speaker.replies[topic] = list(map(self._reply, answers))
        context = [{"type": "text", "message": f"topic: {topic}"}, *request.pop("context", [])]
        config = {"model": self.model, **request.pop("config", {})}
        document = {"context": context, "schema": {"type": "integer"}, "tools": TOOLS, **request, "config": config}
        return self.backend.client.submit_document(document), topic

    def bodies(self, topic: str) -> list[Any]:
        """What was sent, in order; all of it keeps the rules."""
        assert self.speaker.broken == []
        return self.speaker.bodies[topic]

    def results(self, topic: str, tick: int = -1) -> dict[str, str]:
        """What the model was told of its calls when it was asked, by their ids."""
        found: dict[str, str] = {}
        for message in self.bodies(topic)[tick]["messages"]:
            if message["role"] == "tool":
                found[message["tool_call_id"]] = message["content"]
            elif isinstance(message["content"], list):
                blocks = [block for block in message["content"] if block["type"] == "tool_result"]
                found |= {block["tool_use_id"]: block["content"] for block in blocks}
        return found

    def _reply(self, answer: Answer) -> Callable[[Wire], Reply]:
        streams = self.streams
        return (lambda wire: wire.reply(answer, streams=streams)) if isinstance(answer, Say) else answer


@pytest.fixture(scope="module")
def speaker() -> Speaker:
    return Speaker()


@pytest.fixture(scope="module")
def backend(
    server: EmbeddedServer, speaker: Speaker, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backend]:
    with model_server(speaker) as model:
        openai = {"model": "openai:m", "base_url": model.url, "api_key": "k", "wire": "tools"}
        anthropic = {"model": "anthropic:m", "base_url": model.url.removesuffix("/v1"), "api_key": "k", "wire": "tools"}
        given: dict[str, Any] = {"models": {"openai": openai, "anthropic": anthropic}, "lease_seconds": 1.5}
        settings = settings_apart(server, "native", **given, sweep_interval_seconds=0.2, limit_attempts=20)
        backend = Backend(settings, meeting, tmp_path_factory.mktemp("native"))
        with backend.worker():
            yield backend


@pytest.fixture(params=["openai", "anthropic"])
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(
    params=few([("openai", False), ("anthropic", True), ("openai", True), ("anthropic", False)], 2),
    ids=["whole-openai", "streamed-anthropic", "streamed-openai", "whole-anthropic"],
)
def native(request: pytest.FixtureRequest, backend: Backend, speaker: Speaker) -> Native:
    model, streams = request.param
    return Native(backend, speaker, model, streams)


@pytest.fixture
def streaming(backend: Backend, speaker: Speaker, model: str) -> Native:
    return Native(backend, speaker, model)


def errors(run: Run) -> list[Any]:
    return [entry.message["data"]["error"] for entry in run.log() if entry.message["type"] == "error"]


def test_calls_of_functions_refer_to_each_other_and_their_results_are_tool_messages(native: Native) -> None:
    calls = [("add", {"a": 1, "b": 2, "_outputPath": "†state.sum"}), ("add", {"a": "†state.sum", "b": 10})]
    run, topic = native.submit(Say(calls, "Let me add."), Say([output("†result.c1")]))
    result = native.backend.wait(run.id)
    assert (result.status, result.output) == ("completed", 13)
    assert native.results(topic) == {
        "t000c0000": "done\n## Data: †state.sum\n3",
        "t000c0001": "done\n## Data: †result.c1\n13",
    }
    first, second = native.bodies(topic)
    assert json.dumps(first["messages"])[:-2] in json.dumps(second["messages"]) or native.model == "anthropic"
    assert "Let me add." in json.dumps(second["messages"])
    assert "Tools" not in json.dumps(first["messages"])
    (solution, _) = [entry.message for entry in run.log() if entry.message["type"] == "solution"]
    assert solution["words"] == "Let me add."
    assert [tick.usage and tick.usage["input"] for tick in result.ticks or ()] == [
        111 if native.model == "openai" else 100
    ] * 2


def test_r12_4_a_function_call_with_a_path_of_null_is_sent_and_forgotten(native: Native) -> None:
    run, topic = native.submit(Say([("add", {"a": 1, "b": 2, "_outputPath": None})]), Say([output(3)]))
    result = native.backend.wait(run.id)
    assert (result.status, result.output) == ("completed", 3)
    assert native.results(topic) == {"t000c0000": "sent (its result was not kept)"}
    assert "is sent and forgotten" in json.dumps(native.bodies(topic)[0])
    assert '"_outputPath\\":null' in json.dumps(native.bodies(topic)[1]) or native.model == "anthropic"
    assert "result" not in result.data()


def test_r9_4_a_workflow_is_a_function_of_a_model_and_its_result_the_tool_message(streaming: Native) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    calls = [{"_tool": "add", "a": "†input.n", "b": 1, "_outputPath": "†state.sum"}]
    following = {"context": [{"type": "input", "schema": schema}], "solution": {"calls": calls, "output": "†state.sum"}}
    tools = {"following": {"properties": {"_delegate": {"const": "following"}, "n": {"type": "integer"}}}}
    says = [("following", {"n": 1}), ("following", {"n": "one", "_outputPath": "†state.never"})]
    parts: dict[str, Any] = {"tools": tools, "delegates": {"following": following}}
    run, topic = streaming.submit(Say(says), Say([output("†result.c0")]), **parts)
    result = streaming.backend.wait(run.id)
    assert (result.status, result.output) == ("completed", 2)
    told = streaming.results(topic)
    assert told["t000c0000"] == "done\n## Data: †result.c0\n2"
    assert told["t000c0001"].startswith("invalid")


def test_each_call_has_one_tool_message_whatever_has_become_of_it(native: Native) -> None:
    calls = [
        ("add", {"a": "one", "b": 2, "_outputPath": "†state.failed"}),
        ("add", {"a": "†state.failed", "_outputPath": "†state.skipped"}),
        ("nothing", {"a": 1}),
        ("add", {"c": 1}),
        ("add", {"a": 5}),
    ]
    run, topic = native.submit(Say(calls), Say([output("†result.c4")]))
    result = native.backend.wait(run.id)
    assert (result.status, result.output) == ("completed", 6)
    told = native.results(topic)
    assert list(told) == [f"t000c000{at}" for at in range(5)]
    begins = [text.partition("\n")[0].partition(" ")[0] for text in told.values()]
    assert begins == ["failed", "skipped", "invalid:", "invalid:", "done"]
    assert "declares no tool 'nothing'" in told["t000c0002"]


def test_arguments_that_are_no_json_are_the_error_of_their_call_and_the_others_run(streaming: Native) -> None:
    run, topic = streaming.submit(Say([("add", '{"a": 1'), ("add", {"a": 5})]), Say([output("†result.c1")]))
    result = streaming.backend.wait(run.id)
    assert (result.status, result.output) == ("completed", 6)
    assert "its arguments cannot be read" in streaming.results(topic)["t000c0000"]
    assert [error["pointer"] for error in errors(run)] == ["/calls/0"]


def test_an_output_that_is_set_aside_has_a_tool_message_that_says_why(native: Native) -> None:
    run, topic = native.submit(
        Say([("add", {"a": "x"}), output(3)]), Say([output("many")]), Say([("output", {"wrong": 1})]), Say([output(4)])
    )
    result = native.backend.wait(run.id)
    assert (result.status, result.output) == ("completed", 4)
    told = native.results(topic)
    assert "not accepted: a call of the same answer failed" in told["t000c0001"]
    assert "integer" in told["t001c0000"]
    assert "has one argument" in told["t002c0000"]


def test_words_alone_are_an_output_that_may_be_a_text_and_an_error_otherwise(native: Native) -> None:
    run, topic = native.submit(Say(words="Hello!"), schema={"type": "string"})
    assert native.backend.wait(run.id).output == "Hello!"
    assert native.bodies(topic)[0]["tool_choice"] in ("auto", {"type": "auto"})
    run, topic = native.submit(Say(words="It is four."), Say([output(4)]))
    result = native.backend.wait(run.id)
    assert (result.status, result.output) == ("completed", 4)
    assert "calls no tool" in errors(run)[0]["message"]
    first, second = native.bodies(topic)
    assert first["tool_choice"] in ("required", {"type": "any"})
    assert "It is four." in json.dumps(second["messages"])


def test_ten_ticks_keep_the_rules_and_each_begins_with_the_one_before(native: Native) -> None:
    run, topic = native.submit(
        *(Say([("add", {"a": at, "_outputPath": f"†state.s{at}"})]) for at in range(9)),
        Say([output("†state.s8")]),
        config={"ticks": 10},
    )
    result = native.backend.wait(run.id)
    assert (result.status, result.output) == ("completed", 9)
    bodies = native.bodies(topic)
    assert len(bodies) == 10
    for before, after in pairwise(bodies):
        assert before["tools"] == after["tools"]
        assert unmarked(after["messages"])[: len(before["messages"])] == unmarked(before["messages"])
    assert len(native.results(topic)) == 9


def test_the_requests_to_anthropic_are_marked_where_what_was_sent_before_ends(
    backend: Backend, speaker: Speaker
) -> None:
    native = Native(backend, speaker, "anthropic")
    run, topic = native.submit(Say([("add", {"a": 1})]), Say([("add", {"a": 2})]), Say([output("†result.c1")]))
    assert native.backend.wait(run.id).output == 3
    bodies = native.bodies(topic)
    assert [[at for at, turn in enumerate(body["messages"]) if marks(turn)] for body in bodies] == [[0], [0, 2], [2, 4]]
    assert all("cache_control" in body["system"][-1] for body in bodies)


def marks(turn: Any) -> list[Any]:
    content = turn["content"]
    return [block for block in content if "cache_control" in block] if isinstance(content, list) else []


def unmarked(messages: Any) -> Any:
    return json.loads(json.dumps(messages).replace(', "cache_control": {"type": "ephemeral"}', ""))


def test_what_a_person_is_asked_is_what_the_model_wrote_though_its_calls_came_in_mixed_pieces(
    backend: Backend, speaker: Speaker
) -> None:
    native = Native(backend, speaker)
    pieces = [
        {"index": 0, "id": "a", "function": {"name": "add", "arguments": ""}},
        {"index": 1, "id": "b", "function": {"name": "add", "arguments": '{"a"'}},
        {"index": 0, "function": {"arguments": '{"a": 1, "b": 2}'}},
        {"index": 1, "function": {"arguments": ": 5}"}},
    ]

    def mixed(wire: Wire) -> Reply:
        return Reply([*(delta(tool_calls=[piece]) for piece in pieces), *wire.end("tool_calls")], headers=STREAM)

    run, topic = native.submit(mixed, Say([output("†result.c1")]), config={"approve": ["add"]})
    assert [call["parameters"] for call in wait_held(run, 2)] == [{"a": 1, "b": 2}, {"a": 5}]
    run.approve(0)
    run.approve(1)
    assert backend.wait(run.id).output == 6
    assert [text.partition("\n")[2] for text in native.results(topic).values()] == [
        "## Data: †result.c0\n3",
        "## Data: †result.c1\n6",
    ]


def test_nothing_of_an_answer_runs_whose_pieces_belong_to_no_call(backend: Backend, speaker: Speaker) -> None:
    native = Native(backend, speaker)
    pieces = [{"function": {"name": "add", "arguments": ""}}, {"function": {"name": "sub", "arguments": ""}}]
    pieces += [{"function": {"arguments": '{"a": 1}'}}, {"function": {"arguments": '{"a": 2}'}}]

    def scattered(wire: Wire) -> Reply:
        return Reply([*(delta(tool_calls=[piece]) for piece in pieces), *wire.end("tool_calls")], headers=STREAM)

    run, _ = native.submit(scattered, Say([output(4)]))
    result = backend.wait(run.id)
    assert (result.output, [*result.calls]) == (4, [])
    assert [error["type"] for error in errors(run)] == ["InvalidAnswer"]
    assert "which call it belongs to" in errors(run)[0]["message"]


def test_a_call_begins_while_the_rest_of_the_answer_is_held_back(streaming: Native, meeting: Meeting) -> None:
    gate, hold = secrets.token_hex(4), Event()
    say = Say([("waitAtGate", {"gate": gate, "value": 20, "_outputPath": "†state.w"}), ("add", {"a": "†state.w"})])

    def held(wire: Wire) -> Reply:
        chunks = wire.chunks(say)
        return Reply([*chunks[:-1], hold, chunks[-1], *wire.end("tool_calls")], headers=STREAM)

    run, topic = streaming.submit(held, Say([output("†result.c1")]), tools={**TOOLS, "waitAtGate": WAIT})
    meeting.take(f"at:{gate}")
    assert [entry for entry in run.log() if entry.message["type"] == "solution"] == []
    hold.set()
    meeting.open_gate(gate)
    result = streaming.backend.wait(run.id)
    assert (result.status, result.output) == ("completed", 21)
    assert list(streaming.results(topic)) == ["t000c0000", "t000c0001"]


def test_a_text_output_is_told_while_its_function_is_called(streaming: Native) -> None:
    hold, told = Event(), ""
    say = Say([("add", {"a": 1, "_outputPath": "†state.one"}), output("Hello, dear world")], "I add, too.")

    def held(wire: Wire) -> Reply:
        chunks = wire.chunks(say)
        return Reply([*chunks[:-2], hold, *chunks[-2:], *wire.end("tool_calls")], headers=STREAM)

    run, _ = streaming.submit(held, schema={"type": "string"})
    for event in run.follow(timeout_seconds=60):
        if event.kind == "text":
            told = told[: event.at] + (event.text or "")
        if told.startswith("Hello, de"):
            assert hold.is_set() or [entry for entry in run.log() if entry.message["type"] == "solution"] == []
            hold.set()
    assert "Hello, dear world".startswith(told)
    result = streaming.backend.wait(run.id)
    assert (result.output, [call.status for call in result.calls]) == ("Hello, dear world", ["done"])


def test_words_are_told_while_they_are_written_and_calls_behind_them_begin(streaming: Native, meeting: Meeting) -> None:
    hold, gate, told = Event(), secrets.token_hex(4), ""
    text: Any = {"schema": {"type": "string"}}

    def held(wire: Wire) -> Reply:
        return Reply([*wire.chunks(Say(words='Hello, "dear" world')), hold, *wire.end("stop")], headers=STREAM)

    def held_behind_a_call(wire: Wire) -> Reply:
        call = ("waitAtGate", {"gate": gate, "value": 20, "_outputPath": "†state.w"})
        chunks = wire.chunks(Say([call, ("add", {"a": "†state.w"})], "I look."))
        return Reply([*chunks[:-1], hold, chunks[-1], *wire.end("tool_calls")], headers=STREAM)

    run, _ = streaming.submit(held, **text)
    for event in run.follow(timeout_seconds=60):
        if event.kind == "text":
            told = told[: event.at] + (event.text or "")
        if told.startswith('Hello, "'):
            hold.set()
    assert hold.is_set()
    assert streaming.backend.wait(run.id).output == 'Hello, "dear" world'
    hold.clear()
    run, _ = streaming.submit(held_behind_a_call, Say(words="It is done."), **text, tools={**TOOLS, "waitAtGate": WAIT})
    meeting.take(f"at:{gate}")
    hold.set()
    meeting.open_gate(gate)
    result = streaming.backend.wait(run.id)
    assert (result.output, [call.status for call in result.calls]) == ("It is done.", ["done", "done"])


def test_calls_behind_an_output_run_and_nothing_of_an_output_that_is_no_text_is_told(streaming: Native) -> None:
    call = ("add", {"a": 1, "_outputPath": "†state.one"})
    for schema, value in (({"type": "string"}, "Hello, dear world"), ({"type": "integer"}, 12_345_678)):
        run, _ = streaming.submit(Say([output(value), call]), schema=schema)
        events = list(run.follow(timeout_seconds=60))
        result = streaming.backend.wait(run.id)
        assert (result.output, [each.status for each in result.calls]) == (value, ["done"])
        pieces = [event.text or "" for event in events if event.kind == "text"]
        assert str(value).startswith("".join(pieces)) if isinstance(value, str) else not pieces


def test_an_answer_that_breaks_off_behind_a_call_counts_as_far_as_it_came(streaming: Native, meeting: Meeting) -> None:
    gate, hold = secrets.token_hex(4), Event()
    say = Say([("waitAtGate", {"gate": gate, "value": 20, "_outputPath": "†state.w"}), ("add", {"a": "†state.w"})])

    def cut(wire: Wire) -> Reply:
        return Reply([*wire.chunks(say)[:-2], hold], headers=STREAM, is_cut=True)

    run, topic = streaming.submit(cut, Say([output("†state.w")]), tools={**TOOLS, "waitAtGate": WAIT})
    meeting.take(f"at:{gate}")
    hold.set()
    meeting.open_gate(gate)
    result = streaming.backend.wait(run.id)
    assert (result.status, result.output) == ("completed", 20)
    assert list(streaming.results(topic)) == ["t000c0000"]
    assert [error["type"] for error in errors(run)] == ["Truncated"]


def test_a_held_call_that_is_rejected_has_its_tool_message(streaming: Native) -> None:
    run, topic = streaming.submit(
        Say([("add", {"a": 1}), ("add", {"a": 2})]), Say([output("†result.c1")]), config={"approve": ["add"]}
    )
    wait_held(run, 2)
    run.reject(0, "no")
    run.approve(1)
    result = streaming.backend.wait(run.id)
    assert (result.status, result.output) == ("completed", 3)
    told = streaming.results(topic)
    assert "Rejected" in told["t000c0000"]
    assert told["t000c0001"].startswith("done")


def test_a_loop_of_functions_that_repeats_itself_is_told_so_and_ends(streaming: Native) -> None:
    run, topic = streaming.submit(*[Say([("add", {"a": 1}), ("add", {"a": 2, "_outputPath": "†state.b"})])] * 3)
    result = streaming.backend.wait(run.id)
    assert "the last 3 ticks were the same" in (result.reason or "")
    assert "in a row" in json.dumps(streaming.bodies(topic)[2]["messages"][-1])


def test_a_fork_and_more_ticks_go_on_with_the_wire_that_the_run_began_with(streaming: Native) -> None:
    run, topic = streaming.submit(
        Say([("add", {"a": 1})]), Say([("add", {"a": 2})]), Say([output(5)]), config={"ticks": 1}
    )
    assert streaming.backend.wait(run.id).status == "failed"
    run.resume(ticks=2)
    assert streaming.backend.wait(run.id).output == 5
    fork = run.fork()
    assert streaming.backend.wait(fork.id).output == 5
    (entry,) = [entry for entry in run.log() if entry.message.get("tick") == 0]
    fork = run.fork(entry.id)
    assert streaming.backend.wait(fork.id).status == "failed"  # the ticks were added later
    fork.resume(ticks=2)
    assert streaming.backend.wait(fork.id).output == 5
    assert len(streaming.bodies(topic)) == 3


def test_a_child_run_is_asked_by_the_wire_of_its_own_model(streaming: Native) -> None:
    topic = secrets.token_hex(4)
    streaming.speaker.replies[topic] = [
        lambda wire: wire.reply(Say([("add", {"a": 1})]), streams=True),
        lambda wire: wire.reply(Say([output("†result.c0")]), streams=True),
    ]
    inner = {"context": [{"type": "text", "message": f"topic: {topic}"}], "schema": {"type": "integer"}, "tools": TOOLS}
    ask = {"type": "object", "properties": {"_delegate": {"const": "inner"}}}
    run, outer = streaming.submit(
        Say([("ask", {})]), Say([output("†result.c0")]), delegates={"inner": inner}, tools={"ask": ask}
    )
    result = streaming.backend.wait(run.id)
    assert (result.status, result.output) == ("completed", 2)
    assert [tool["name"] for tool in functions(streaming.bodies(topic)[0])] == ["add", "output"]
    assert [tool["name"] for tool in functions(streaming.bodies(outer)[0])] == ["ask", "output"]


def functions(body: Any) -> list[Any]:
    return [tool.get("function", tool) for tool in body["tools"]]


def test_a_plan_that_waits_for_an_approval_has_its_places(streaming: Native) -> None:
    run, topic = streaming.submit(Say([("add", {"a": 1})]), Say([output("†result.c0")]), config={"mode": "lazy"})
    while (plan := run.plan()) is None:
        time.sleep(0.02)
    assert plan["calls"][0]["_outputPath"] == "†result.c0"
    run.approve_plan(plan["plan"])
    while (plan := run.plan()) is None and run.status()["status"] != "completed":
        time.sleep(0.02)
    if plan is not None:
        run.approve_plan(plan["plan"])
    assert streaming.backend.wait(run.id).output == 2
    assert streaming.results(topic)["t000c0000"].startswith("done")


@pytest.mark.nightly
def test_an_answer_of_far_too_many_calls_starts_none(streaming: Native) -> None:
    run, _ = streaming.submit(lambda wire: wire.reply(Say([("add", {"a": 1})] * 5_000), streams=False))
    result = streaming.backend.wait(run.id)
    assert (result.status, [*result.calls]) == ("failed", [])
    assert "config.calls" in (result.reason or "")
    run, _ = streaming.submit(
        lambda wire: wire.reply(Say([("add", {"a": 1})] * 100_000), streams=False), Say([output(5)])
    )
    result = streaming.backend.wait(run.id)
    assert (result.output, [*result.calls]) == (5, [])


SIGNED = {"google": {"thought_signature": "c2lnbmVk"}}
DETAILS = [
    {"type": "reasoning.text", "index": 0, "text": "They want ", "signature": None},
    {"type": "reasoning.text", "index": 0, "text": "a sum.", "signature": "S1"},
    {"type": "reasoning.encrypted", "index": 1, "data": "b3BhcXVl", "id": "call_0"},
]
THOUGHTS = [
    {"type": "thinking", "thinking": "They want a sum.", "signature": "S1"},
    {"type": "redacted_thinking", "data": "b3BhcXVl"},
]


ONE = ("add", {"a": 1, "_outputPath": "†state.one"})


def thinking_aloud(wire: Wire, call: tuple[str, Any] = ONE) -> Reply:
    """A call with what the provider says beside it: signatures, reasoning, thoughts (cut into pieces)."""
    say = Say([call], "I add.")
    if wire.__name__ == "OpenAIWire":
        kind = b'"type": "function"'
        signed = kind + f', "extra_content": {json.dumps(SIGNED)}'.encode()
        details = [delta(reasoning="…", reasoning_details=[entry]) for entry in DETAILS]
        chunks = [chunk.replace(kind, signed) for chunk in wire.chunks(say)]
        return Reply([*details, *chunks, *wire.end("tool_calls")], headers=STREAM)
    start, ping, *blocks = wire.chunks(say)
    thinking, redacted = THOUGHTS
    events: list[dict[str, Any]] = [
        {"type": "content_block_start", "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
        {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "They want "}},
        {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "a sum."}},
        {"type": "content_block_delta", "delta": {"type": "signature_delta", "signature": thinking["signature"]}},
        {"type": "content_block_stop"},
    ]
    thoughts = [sent_event({**each, "index": 0}) for each in events]
    thoughts += [sent_event({"type": "content_block_start", "index": 1, "content_block": redacted})]
    moved = [re.sub(rb'"index": (\d+)', lambda found: b'"index": %d' % (int(found[1]) + 2), block) for block in blocks]
    return Reply([start, ping, *thoughts, *moved, *wire.end("tool_calls")], headers=STREAM)


def test_what_a_provider_says_besides_is_sent_back_to_its_model_and_shown_to_nobody(streaming: Native) -> None:
    run, topic = streaming.submit(thinking_aloud, Say([("add", {"a": 2})]), Say([output("†state.one")]))
    assert streaming.backend.wait(run.id).output == 2
    fork = run.fork(next(entry.id for entry in run.log() if entry.message.get("tick") == 0))
    assert streaming.backend.wait(fork.id).output == 2
    _, *later = streaming.bodies(topic)
    assert len(later) == 2
    for body in later:
        (said, *_) = [message for message in body["messages"] if message["role"] == "assistant"]
        if streaming.model == "openai":
            assert said["tool_calls"][0]["extra_content"] == SIGNED
            first, second, encrypted = DETAILS
            assert said["reasoning_details"] == [{**first, **second, "text": "They want a sum."}, encrypted]
            assert said["reasoning"] == "………"
            assert said["tool_calls"][0]["id"] == "call_0"  # which the reasoning names
            (told,) = [each for each in body["messages"] if each.get("tool_call_id") == "call_0"]
            assert told["content"].startswith("done")
        else:
            assert [block["type"] for block in said["content"]] == ["thinking", "redacted_thinking", "text", "tool_use"]
            assert said["content"][:2] == THOUGHTS
    result = streaming.backend.client.run(run.id).result()
    prompt = streaming.backend.client.run(run.id).asked(1)
    shown = json.dumps([prompt, result.to_dict(), [entry.message for entry in run.log()]], default=str)
    assert not any(secret in shown for secret in ("c2lnbmVk", "b3BhcXVl", "They want"))


def test_what_a_provider_says_besides_goes_with_an_answer_that_breaks_off(streaming: Native, meeting: Meeting) -> None:
    gate, hold = secrets.token_hex(4), Event()
    call = ("waitAtGate", {"gate": gate, "value": 20, "_outputPath": "†state.w"})

    def cut(wire: Wire) -> Reply:
        chunks = thinking_aloud(wire, call).chunks[: -len(wire.end("tool_calls"))]
        return Reply([*chunks, hold], headers=STREAM, is_cut=True)

    run, topic = streaming.submit(cut, Say([output("†state.w")]), tools={**TOOLS, "waitAtGate": WAIT})
    meeting.take(f"at:{gate}")
    hold.set()
    meeting.open_gate(gate)
    assert streaming.backend.wait(run.id).output == 20
    assert "S1" in json.dumps(streaming.bodies(topic)[1])
