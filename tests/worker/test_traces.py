"""Traces, and the log lines of a call."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import dropwhile
from pathlib import Path
from typing import Any

import pytest
from celery.utils.log import ColorFormatter
from hypothesis import given
from hypothesis import strategies as st

from acts_celery import Run
from acts_celery.broker_config import EmbeddedServer, Settings, load
from acts_celery.protocol import Limits
from acts_celery.worker.broker.attempts import Attempt, CallId, TracePlace, call_span, place_of_run
from acts_celery.worker.broker.messages import ActivityCall, pack_message, unpack_activity_call
from acts_celery.worker.client.call_results import Timing
from acts_celery.worker.errors import MalformedMessage
from acts_celery.worker.logs import AT_WORK, JsonFormatter, MaskedFormatter, Masking, _set_up, lane_at_work
from acts_celery.worker.registry.loading import load as load_activities
from acts_celery.worker.store.entries import CallTiming
from acts_celery.worker.store.keys import Keys
from acts_celery.worker.telemetry.sending import Exported, NotExported, NothingToExport, SpanSender, TraceExport
from acts_celery.worker.telemetry.spans import request_attributes
from tests.acceptance.command import Finished, acts

from .backend import Backend, Meeting, settings_apart
from .loops import Asked, answer
from .test_control_cli import command
from .test_r9_3_children import ASK, SUM, Told
from .trace_receiver import Receiver, Seen, receiving

# Runs as traces: spans from the log, by the conventions of OpenTelemetry for generative AI.

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{SPAN}-01"
LEFT_OUT = f"00-{TRACE}-{SPAN}-00"
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with receiving() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        yield found


Exporter = Callable[[Backend], TraceExport]


@pytest.fixture
def exporter(receiver: Receiver) -> Iterator[Exporter]:
    """Exports a backend's runs to the receiver."""
    made: list[SpanSender] = []

    def make(backend: Backend) -> TraceExport:
        made.append(SpanSender())
        return TraceExport(backend.redis, backend.settings.key_prefix, made[-1])

    yield make
    for sender in made:
        sender.close()


def command_traces(backend: Backend, *arguments: str, **variables: str) -> Finished:
    return acts(*arguments, env=backend.environment(**variables))


def echo(value: Any, number: int, **meta: Any) -> dict[str, Any]:
    return {"_tool": "echo", "value": value, "_outputPath": f"†state.s{number}", **meta}


def tree(receiver: Receiver, span: Seen) -> dict[str, Any]:
    """A span's descendants by their names."""
    below = [each for each in receiver.by_id.values() if (each.trace, each.above) == (span.trace, span.span)]
    return {each.name: tree(receiver, each) for each in below}


def test_a_run_is_a_trace_of_its_calls(backend: Backend, receiver: Receiver, exporter: Exporter) -> None:
    context = [{"type": "state", "_instance": "①", "n": 1}]
    calls = [echo(1, 0, _instance="①"), {"_tool": "explode", "text": "no luck", "_outputPath": "†state.s4"}]
    run = backend.client.submit(context, {"calls": calls}, name="tea")
    result = backend.wait(run.id)
    exported = exporter(backend).export(run.id)
    place = place_of_run(run.id)
    assert exported == Exported(run.id, place.trace, 3, True)
    (root,) = receiver.named("invoke_workflow tea")
    assert (root.trace, root.span, root.above) == (place.trace, place.span, "")
    assert tree(receiver, root) == {"execute_tool echo": {}, "execute_tool explode": {}}
    (done,), (failed,) = receiver.named("execute_tool echo"), receiver.named("execute_tool explode")
    timing = result.calls[0].timing
    assert timing is not None
    assert (done.start_ms, done.end_ms) == (timing.began_ms, timing.ended_ms)
    own = {name: value for name, value in done.attributes.items() if name not in ("acts.worker", "acts.code.version")}
    assert own == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "gen_ai.tool.call.id": f"{run.id}:0:①",
        "acts.run.id": run.id,
        "acts.instance": "①",
        "acts.call.index": 0,
        "acts.attempts": 1,
        "acts.status": "done",
    }
    assert done.attributes["acts.worker"] == result.calls[0].worker
    assert (failed.is_error, failed.attributes["error.type"], done.is_error) == (True, "ValueError", False)
    assert "no luck" in failed.message
    assert (root.is_error, root.message, root.attributes["acts.status"]) == (True, "a call failed", "failed")
    assert root.start_ms <= done.start_ms <= done.end_ms <= root.end_ms
    assert receiver.resource["service.name"] == "acts"


def test_what_is_exported_twice_has_the_same_ids(backend: Backend, receiver: Receiver, exporter: Exporter) -> None:
    run = backend.run([echo(1, 0), echo("†state.s0", 1)]).run
    export = exporter(backend)
    export.export(run)
    export.export(run)
    first, second = receiver.spans[:3], receiver.spans[3:]
    assert first == second


def test_a_call_that_is_carried_out_again_is_another_span(
    backend: Backend, meeting: Meeting, receiver: Receiver, exporter: Exporter
) -> None:
    call = {"_tool": "failUntilMended", "name": "traced", "value": 1, "_outputPath": "†state.a"}
    run = backend.client.submit((), {"calls": [call]})
    backend.wait(run.id)
    export = exporter(backend)
    export.export(run.id)
    meeting.redis.set("mended:traced", b"1")
    run.retry()
    backend.wait(run.id)
    export.export(run.id)
    tried = receiver.named("execute_tool failUntilMended")
    assert [span.is_error for span in tried] == [True, False]
    (root,) = receiver.named("invoke_workflow")
    assert (root.is_error, root.attributes["acts.status"]) == (False, "completed")


def test_elements_are_below_their_call(backend: Backend, receiver: Receiver, exporter: Exporter) -> None:
    call = {"_tool": "echo", "_each": "value", "value": "†state.of", "_outputPath": "†state.r"}
    run = backend.run([call], [{"type": "state", "of": [3, 1, 2]}]).run
    exporter(backend).export(run)
    spans = receiver.named("execute_tool echo")
    (whole,) = [span for span in spans if "acts.element" not in span.attributes]
    elements = [span for span in spans if span is not whole]
    assert sorted(span.attributes["acts.element"] for span in elements) == [0, 1, 2]
    assert {span.above for span in elements} == {whole.span}
    assert all(whole.start_ms <= span.end_ms <= whole.end_ms for span in elements)


def test_a_loop_is_an_agent_that_plans_and_asks_a_model(loops: Backend, receiver: Receiver, exporter: Exporter) -> None:
    asked = Asked(loops, answer(SUM, usage=[100, 20, 7]), answer(output="†state.sum", usage=[200, 10]))
    assert asked.result().output == 3
    exporter(loops).export(asked.run.id)
    (root,) = receiver.named("invoke_workflow")
    (agent,) = receiver.named("invoke_agent")
    assert receiver.above(agent) == root
    assert sorted(span.name for span in receiver.by_id.values() if span.above == agent.span) == [
        "execute_tool add",
        "plan",
        "plan",
    ]
    first, second = sorted(receiver.named("chat told"), key=lambda span: span.start_ms)
    assert {"plan"} == {span.name for chat in (first, second) if (span := receiver.above(chat)) is not None}
    assert first.attributes["gen_ai.usage.input_tokens"] == 100
    assert first.attributes["gen_ai.usage.output_tokens"] == 20
    assert first.attributes["gen_ai.usage.cache_read.input_tokens"] == 7
    assert first.attributes["gen_ai.response.model"] == "told"
    assert first.attributes["gen_ai.conversation.id"] == asked.run.id
    assert first.kind == 3, "a client's"
    assert [span.attributes["acts.tick"] for span in (first, second)] == [0, 1]
    assert agent.attributes["gen_ai.usage.input_tokens"] == 300
    (call,) = receiver.named("execute_tool add")
    assert first.end_ms <= call.end_ms <= second.start_ms


def test_an_answer_that_cannot_be_read_and_a_refused_request_are_errors(
    loops: Backend, receiver: Receiver, exporter: Exporter
) -> None:
    asked = Asked(loops, {"text": "no JSON"}, {"refuses": "not that"}, config={"ticks": 2})
    assert asked.result().status == "failed"
    exporter(loops).export(asked.run.id)
    chats = sorted(receiver.named("chat told"), key=lambda span: span.start_ms)
    assert [span.is_error for span in chats] == [True, True]
    assert all(span.attributes["error.type"] for span in chats)
    assert [span.is_error for span in receiver.named("plan")] == [True, True]
    assert receiver.named("invoke_agent")[0].is_error


def test_a_child_run_is_an_agent_below_its_call(loops: Backend, receiver: Receiver, exporter: Exporter) -> None:
    told = Told(loops, answer(SUM), answer(output="†state.sum"))
    run = loops.client.submit((), {"calls": [ASK]}, delegates={"researcher": told.definition()})
    (child,) = [call.child for call in loops.wait(run.id).calls]
    assert child is not None
    export = exporter(loops)
    assert export.export(run.id).children == (child,)
    assert export.export(child).trace == place_of_run(run.id).trace
    (root,) = receiver.named("invoke_workflow")
    below = tree(receiver, root)
    assert below["execute_tool ask"]["invoke_agent researcher"].keys() == {"plan researcher", "execute_tool add"}


def test_what_a_delegate_and_a_model_answer_are_an_agent_and_a_chat(
    loops: Backend, receiver: Receiver, exporter: Exporter
) -> None:
    told = Told(loops, answer(output=7, usage=[50, 5]))
    definition = {"context": [{"type": "text", "message": f"topic: {told.topic}"}], "schema": {"type": "integer"}}
    run = loops.client.submit((), {"calls": [ASK]}, delegates={"researcher": definition})
    assert loops.wait(run.id).data()["state"]["answer"] == 7
    exporter(loops).export(run.id)
    (agent,) = receiver.named("invoke_agent researcher")
    (chat,) = receiver.named("chat told")
    assert receiver.above(chat) == agent
    assert agent.attributes["gen_ai.tool.name"] == "ask"
    assert chat.attributes["gen_ai.usage.input_tokens"] == 50


def test_content_is_shown_where_the_conventions_variable_asks_for_it_and_nowhere_else(
    loops: Backend, receiver: Receiver, exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(loops, answer({**SUM, "b": 424242}), answer(output=1))
    asked.result()
    export = exporter(loops)
    export.export(asked.run.id)
    assert "424242" not in repr(receiver.spans)
    assert asked.topic not in repr(receiver.spans)
    receiver.spans.clear()
    monkeypatch.setenv(CONTENT, "true")
    export.export(asked.run.id)
    (call,) = receiver.named("execute_tool add")
    assert json.loads(call.attributes["gen_ai.tool.call.arguments"]) == {"a": 1, "b": 424242}
    assert json.loads(call.attributes["gen_ai.tool.call.result"]) == {"sum": 424243}
    first = min(receiver.named("chat told"), key=lambda span: span.start_ms)
    said = json.loads(first.attributes["gen_ai.input.messages"])
    assert asked.topic in json.dumps(said)
    assert {message["role"] for message in said} == {"system", "user"}
    (replied,) = json.loads(first.attributes["gen_ai.output.messages"])
    assert replied["role"] == "assistant"
    assert "424242" in replied["parts"][0]["content"]


def test_the_settings_of_a_request_have_the_names_of_the_conventions() -> None:
    config = {"model": "openai:gpt-5", "max_output_tokens": 9, "temperature": 0.5, "stop": "END", "wire": "tools"}
    assert request_attributes(config) == {
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.stop_sequences": ["END"],
    }
    assert request_attributes({"model": "fast"}) == {"gen_ai.request.model": "fast"}


def test_a_run_is_under_the_span_that_it_was_submitted_in(
    backend: Backend, receiver: Receiver, exporter: Exporter
) -> None:
    run = backend.client.submit((), {"calls": [echo(1, 0)]}, traceparent=SAMPLED)
    backend.wait(run.id)
    exporter(backend).export(run.id)
    (root,) = receiver.named("invoke_workflow")
    assert (root.trace, root.above) == (TRACE, SPAN)


def test_what_the_caller_does_not_record_is_not_exported(
    backend: Backend, receiver: Receiver, exporter: Exporter
) -> None:
    run = backend.client.submit((), {"calls": [echo(1, 0)]}, traceparent=LEFT_OUT)
    backend.wait(run.id)
    assert exporter(backend).export(run.id).spans == 0
    assert receiver.spans == []


def test_a_sampler_keeps_or_leaves_out_a_run_with_its_child_runs(
    loops: Backend, receiver: Receiver, exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    export = exporter(loops)
    kept = set[bool]()
    while len(kept) < 2:
        told = Told(loops, answer(output=1))
        run = loops.client.submit((), {"calls": [ASK]}, delegates={"researcher": told.definition()})
        loops.wait(run.id)
        exported = export.export(run.id)
        assert bool(export.export(exported.children[0] if exported.children else _child(run)).spans) is bool(
            exported.spans
        )
        kept.add(bool(exported.spans))


def _child(run: Run) -> str:
    (child,) = [call.child for call in run.result().calls]
    assert child is not None
    return child


def test_what_is_no_traceparent_is_refused_and_a_variable_that_is_none_is_told_of(backend: Backend) -> None:
    from acts_celery.protocol import Rejected

    with pytest.raises(Rejected, match="is no traceparent"):
        backend.client.submit((), {"calls": [echo(1, 0)]}, traceparent="00-zz")
    document = backend.folder / "submission.json"
    document.write_text(json.dumps({"solution": {"calls": [echo(1, 0)]}}))
    told = command_traces(backend, "submit", str(document), TRACEPARENT="nonsense")
    assert told.code == 0
    assert "TRACEPARENT is no traceparent" in told.stderr
    kept = command_traces(backend, "submit", str(document), TRACEPARENT=SAMPLED)
    assert kept.stderr == ""
    state = backend.redis.hget(Keys(backend.settings.key_prefix, kept.stdout.strip()).state, "trace")
    assert state == f"{TRACE}-{SPAN}-01".encode()


def test_who_submits_within_a_span_of_open_telemetry_hands_it_on(backend: Backend) -> None:
    from opentelemetry import trace

    context = trace.SpanContext(int(TRACE, 16), int(SPAN, 16), is_remote=False, trace_flags=trace.TraceFlags(1))
    with trace.use_span(trace.NonRecordingSpan(context)):
        run = backend.client.submit((), {"calls": [echo(1, 0)]})
    state = backend.redis.hget(Keys(backend.settings.key_prefix, run.id).state, "trace")
    assert state == f"{TRACE}-{SPAN}-01".encode()


def test_activities_and_delegates_run_under_the_span_of_their_call(
    server: EmbeddedServer, meeting: Meeting, receiver: Receiver, exporter: Exporter, tmp_path: Path
) -> None:
    activities = Path(__file__).parent / "fixtures" / "traced_activities.py"
    settings = settings_apart(server, "traced").model_copy(update={"activities": (str(activities),)})
    running = Backend(settings, meeting, tmp_path)
    tools = ["hereOnLoop", "hereOnThread", "hereFar"]
    elsewhere = {"_tool": "ask", "_delegate": "hereElsewhere", "_outputPath": "†state.hereElsewhere"}
    asks = {"_tool": "think", "_delegate": "thinker", "_outputPath": "†state.asked"}
    calls = [*({"_tool": tool, "_outputPath": f"†state.{tool}"} for tool in tools), elsewhere, asks]
    thinker = {"context": [], "schema": {"type": "string"}, "config": {"model": "here"}}
    delegates = {"thinker": thinker}
    from acts_celery.worker.registry.loading import load

    load(str(activities))
    with running.worker(TRACED="1", OTEL_TRACES_SAMPLER="parentbased_always_off"):
        under = running.client.submit((), {"calls": calls}, traceparent=SAMPLED, delegates=delegates)
        found = running.wait(under.id).data()["state"]
        alone = running.run(calls, delegates=delegates).data()["state"]
    exporter(running).export(under.id)
    spans = {
        span.attributes["gen_ai.tool.name"]: span for span in receiver.spans if "gen_ai.tool.name" in span.attributes
    }
    for tool, name in (*((tool, tool) for tool in tools), ("ask", "hereElsewhere")):
        expected = f"00-{TRACE}-{spans[tool].span}-01"
        assert found[name] == [expected, expected]
        handed, current = alone[name]
        assert (handed[:-3], handed[-3:], current[-3:]) == (current[:-3], "-01", "-00"), "nobody records it"
    assert found["asked"] == f"00-{TRACE}-{spans['think'].span}-01"
    assert alone["asked"][3:35] == alone["hereFar"][0][3:35]


def test_each_run_is_exported_once_it_has_ended_also_by_one_that_was_started_again(
    server: EmbeddedServer, meeting: Meeting, receiver: Receiver, exporter: Exporter, tmp_path: Path
) -> None:
    running = Backend(settings_apart(server, "traced-all"), meeting, tmp_path)
    export = exporter(running)
    with running.worker():
        first = running.run([echo(1, 0)]).run
        held_up = {"_tool": "waitAtGate", "gate": "traced", "_outputPath": "†state.a"}
        waiting = running.client.submit((), {"calls": [held_up]})
        assert [each.run for each in export.export_ended()] == [first]
        second = running.run([echo(1, 0)]).run
        assert [each.run for each in exporter(running).export_ended()] == [second]
        assert [*export.export_ended()] == []
        meeting.open_gate("traced")
        running.wait(waiting.id)
        assert [each.run for each in export.export_ended()] == [waiting.id]


def test_spans_that_are_not_taken_are_exported_later(
    backend: Backend, receiver: Receiver, exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    run = backend.run([echo(1, 0)]).run
    export = exporter(backend)
    receiver.refuses = 400
    with pytest.raises(NotExported, match="400"):
        export.export(run)
    receiver.refuses = None
    assert run in {each.run for each in export.export_ended()}
    assert run not in {each.run for each in exporter(backend).export_ended()}


def test_a_broken_log_keeps_no_other_run_from_being_exported(backend: Backend, exporter: Exporter) -> None:
    export = exporter(backend)
    for _ in export.export_ended():
        pass
    runs = [backend.run([echo(1, 0)]).run for _ in range(3)]
    backend.redis.xadd(Keys(backend.settings.key_prefix, runs[1]).log, {"l": "", "p": "0-0", "c": 99, "s": "done"})
    found = {each.run: each for each in export.export_ended()}
    assert {run: found[run].spans for run in runs} == {runs[0]: 2, runs[1]: 0, runs[2]: 2}
    assert "KeyError: 99" in (found[runs[1]].fault or "")
    assert runs[1] not in {each.run for each in export.export_ended()}


def test_spans_go_in_batches_of_the_standard_size(
    backend: Backend, receiver: Receiver, exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    context = [{"type": "state", "_instance": f"i{number}"} for number in range(10)]
    plan = {"type": "plan", "calls": [echo(1, 0)]}
    run = backend.client.submit([plan, *context])
    backend.wait(run.id)
    assert exporter(backend).export(run.id).spans == 11
    assert receiver.requests == [4, 4, 3]
    assert len(receiver.named("execute_tool echo")) == 10


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("OTEL_SDK_DISABLED", "true", "unset it"),
        ("OTEL_TRACES_EXPORTER", "none", "set it to otlp"),
        ("OTEL_TRACES_EXPORTER", "zipkin", "has the exporter zipkin"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "has the exporter otlp_proto_grpc"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "none", "should be a number"),
    ],
)
def test_settings_by_which_nothing_could_be_exported_are_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, told: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(NothingToExport, match=told):
        SpanSender()


def test_the_commands_export_a_run_and_all_runs_as_they_end(
    server: EmbeddedServer, meeting: Meeting, receiver: Receiver, tmp_path: Path
) -> None:
    running = Backend(settings_apart(server, "traced-cli"), meeting, tmp_path)
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    with running.worker():
        first = running.run([echo(1, 0)]).run
        one = command_traces(running, "trace", first, "--json", **variables)
        assert json.loads(one.stdout) == {"run": first, "trace": place_of_run(first).trace, "spans": 2, "ended": True}
        second = running.run([echo(1, 0)]).run
        told = command_traces(running, "traces", "--json", **variables).stdout.splitlines()
        assert sorted(json.loads(line)["run"] for line in told) == [first, second]
        reading, following = _follow(running, variables)
        with following as process:
            third = running.run([echo(1, 0)]).run
            assert json.loads(reading.readline())["run"] == third
            process.terminate()
            assert process.wait(30) == 143
    assert len(receiver.by_id) == 6


def _follow(backend: Backend, variables: dict[str, str]) -> tuple[Any, Any]:
    """`acts traces --follow`, and what it prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "acts_celery", "traces", "--follow", "--json"],
        env=backend.environment(**variables),
        stdout=subprocess.PIPE,
        text=True,
    )
    return process.stdout, process


def test_without_the_extra_the_commands_say_what_to_install(backend: Backend) -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None; from acts_celery.worker.cli import main; "
        "sys.exit(main(['traces']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=backend.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "pip install '.[otel]'" in done.stderr


# Where runs and calls stand in a trace: the header of W3C Trace Context, and ids that follow from run and call.


@pytest.mark.parametrize(
    ("header", "is_sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like", True),
        (f"cc-{TRACE}-{SPAN}-01", True),
    ],
)
def test_a_traceparent_is_read(header: str, is_sampled: bool) -> None:
    assert TracePlace.read_header(header) == TracePlace(TRACE, SPAN, is_sampled)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-1",
        f"cc-{TRACE}-{SPAN}-01.what",
        f"00-{TRACE}-{SPAN}-01\n",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{'٣' * 32}-{SPAN}-01",
    ],
)
def test_what_is_none_is_not(header: str) -> None:
    assert TracePlace.read_header(header) is None


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=8, max_size=8), st.sampled_from([None, True, False]))
def test_a_place_travels_as_it_is(trace: bytes, span: bytes, is_sampled: bool | None) -> None:
    place = TracePlace(trace.hex(), span.hex(), is_sampled)
    assert TracePlace.unpack(place.pack()) == place
    if any(trace) and any(span):
        read = TracePlace.read_header(place.header)
        assert read == TracePlace(place.trace, place.span, is_sampled is not False)


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20), st.integers(0, 99), st.integers(0, 9))
def test_each_run_call_and_repetition_has_a_span_of_its_own(run: str, lane: str, index: int, again: int) -> None:
    member = CallId(run, lane, index).member
    spans = {place_of_run(run).span, call_span(run, member, again), call_span(run, member, again + 1)}
    spans.add(call_span(run, CallId(run, None, index).member, again))
    assert len(spans) == 4
    assert all(re.fullmatch("[0-9a-f]{16}", span) for span in spans)
    assert call_span(run, member, again) == call_span(run, member, again)


def test_an_attempt_has_the_span_of_its_call_in_the_trace_of_its_run() -> None:
    id_ = CallId("r", "①", 3)
    above = TracePlace(TRACE, SPAN, is_sampled=False)
    under = Attempt(id_, trace=place_of_run("r", above).pack())
    assert under.place.header == f"00-{TRACE}-{call_span('r', id_.member)}-00"
    assert Attempt(id_, again=1).place == place_of_run("r").at(call_span("r", id_.member, 1))


@pytest.mark.parametrize("trace", ["x", f"{TRACE}-{SPAN}-02", f"{TRACE}-{SPAN}-01\n", f"{TRACE}-{SPAN}"])
def test_a_message_with_a_place_that_is_none_is_refused(trace: str) -> None:
    good = ActivityCall(Attempt(CallId("r", None, 0), trace=f"{TRACE}-{SPAN}-01"), "a", {}, {}, {})
    assert unpack_activity_call(pack_message(good), Limits()) == good
    bad = ActivityCall(Attempt(CallId("r", None, 0), trace=trace), "a", {}, {}, {})
    with pytest.raises(MalformedMessage):
        unpack_activity_call(pack_message(bad), Limits())


# When calls began and ended, what they waited for, and how often they were tried.

TOOLS = {"think": {"type": "object"}}


def test_a_call_says_when_it_began_what_it_took_and_how_often_it_was_tried(backend: Backend, meeting: Meeting) -> None:
    calls: list[dict[str, Any]] = [
        {"_tool": "failTwice", "name": "timed", "_outputPath": "†state.a"},
        {"_tool": "waitAtGate", "gate": "timed", "value": "†state.a", "_outputPath": "†state.b"},
        {"_tool": "remoteAdd", "a": "†state.a", "b": 1, "_outputPath": "†state.c"},
    ]
    run = backend.client.submit([], {"calls": calls})
    meeting.take("at:timed")
    (at_gate,) = [call for call in run.result().calls if call.index == 1]
    assert at_gate.timing == Timing(attempts=1)
    meeting.open_gate("timed")
    backend.wait(run.id)
    first, second, remote = (call["timing"] for call in run.result(waits=True).to_dict()["calls"])
    assert [timing["attempts"] for timing in (first, second, remote)] == [3, 1, 1]
    assert first["waited_seconds"] >= 0.01  # it rested twice
    for timing in (second, remote):
        began, ready = datetime.fromisoformat(timing["began"]), datetime.fromisoformat(first["ended"])
        assert timing["waited_seconds"] == max((began - ready).total_seconds(), 0)
        spent = datetime.fromisoformat(timing["ended"]) - began
        assert timing["seconds"] == spent.total_seconds()
    quick = run.result().to_dict()["calls"]
    assert {call["timing"]["waited_seconds"] for call in quick} == {None}


def test_they_are_printed_the_slowest_first_and_beside_what_a_call_wrote(backend: Backend) -> None:
    calls: list[dict[str, Any]] = [
        {"_tool": "echo", "value": 1, "_outputPath": "†state.a"},
        {"_tool": "failTwice", "name": "printed", "_outputPath": "†state.b"},
    ]
    run = backend.run(calls).run
    lines = command(backend, "show", run, "--timings").stdout.splitlines()
    assert len(lines) == 2
    assert any("1 failTwice (global): " in line and ", 3 attempts, by acts@" in line for line in lines)
    assert " ms, 3 attempts" in command(backend, "log", run).stdout
    shown = command(backend, "show", run, "--json").json["calls"]
    assert [call["timing"]["attempts"] for call in shown] == [1, 3]
    ends = [line["end"]["timing"] for line in command(backend, "log", run, "--json").json_lines if "end" in line]
    assert sorted(end["attempts"] for end in ends) == [1, 3]
    assert all(end["began"] <= end["ended"] for end in ends)


def test_a_call_that_left_no_message_is_in_the_log_where_all_is_asked_for(backend: Backend) -> None:
    context = [{"type": "state", "_instance": "①", "x": 1}]
    calls = [
        {"_tool": "think", "thought": "is it enough?", "about": "†state.x"},
        {"_tool": "say", "text": "†state.gone"},
        {"_tool": "say", "text": "it is"},
    ]
    plan = {"type": "plan", "calls": [{"_tool": "explode", "_outputPath": "†state.gone"}, *calls]}
    run = backend.client.submit_document({"context": [*context, plan], "tools": TOOLS})
    backend.wait(run.id)
    usual = command(backend, "log", run.id).stdout
    everything = command(backend, "log", run.id, "--all", "--instance", "①").stdout
    for end in ("← think, latent", "← say, sent", "← say, skipped: †state.gone"):
        assert (end in everything, end in usual) == (True, False)
    lines = command(backend, "log", run.id, "--all", "--json").json_lines
    ends = {(line["end"]["index"], line["end"]["status"]) for line in lines if line["message"] is None}
    assert ends == {(1, "latent"), (2, "skipped"), (3, "sent")}


def test_what_no_worker_of_ours_has_written_is_no_time() -> None:
    for packed in (-1, "1", [1], [1, 1], [-1, 2], [None, "2"], {"took": 1}, None):
        assert CallTiming.read(packed) is None
    for spent in (CallTiming(0), CallTiming(12, 3), CallTiming(None, 2)):
        assert CallTiming.read(spent.pack()) == spent


# How a worker writes its log: lines for people, or one JSON document a line; never with what is secret.

ACTIVITIES = Path(__file__).parent / "fixtures" / "logging_activities.py"
KEY = "sk-key-of-the-settings"


def logged(server: EmbeddedServer, meeting: Meeting, folder: Path, log_format: str, name: str) -> Backend:
    settings = settings_apart(server, name, model="openai:m", model_api_key=KEY, log_format=log_format)
    load_activities(str(ACTIVITIES))
    return Backend(settings.model_copy(update={"activities": (str(ACTIVITIES),)}), meeting, folder)


CALLS = [
    {"_tool": "tell", "text": "marigold", "_instance": "①", "_outputPath": "†state.a"},
    {"_tool": "breakdown", "text": "marigold", "_outputPath": "†state.b"},
    {"_tool": "farAway", "text": "marigold", "_outputPath": "†state.c"},
]
CONTEXT = [{"type": "state", "_instance": "①", "n": 1}]


@pytest.fixture(scope="module")
def as_json(
    server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str, list[dict[str, Any]]]:
    """A run of its own, one in somebody's trace, and the lines of the worker's log, which has ended."""
    backend = logged(server, meeting, tmp_path_factory.mktemp("logged-json"), "json", "logged-json")
    with backend.worker():
        alone = backend.run(CALLS, CONTEXT).run
        within = backend.run(CALLS, CONTEXT, traceparent=f"00-{TRACE}-00f067aa0ba902b7-01").run
    lines = backend.log.read_text(encoding="utf-8").splitlines()
    assert KEY not in "".join(lines)
    assert "hunter2" not in "".join(lines)
    since = dropwhile(lambda line: not line.startswith("{"), lines)  # Celery warns root before it sets its log up
    spoken = [line for line in since if line and not line.startswith("worker: ")]  # and says farewell beside it
    return alone, within, [json.loads(line) for line in spoken]


def test_each_line_is_a_document_with_run_instance_call_attempt_and_trace(
    as_json: tuple[str, str, list[dict[str, Any]]],
) -> None:
    alone, within, lines = as_json
    said = [line for line in lines if line["event"] == "logged marigold" and line["run"] == alone]
    assert [line["attempt"] for line in said] == [1, 2]
    about = {"run": alone, "instance": "①", "call": 0, "attempt": 1, "trace": place_of_run(alone).trace}
    assert {name: said[0][name] for name in about} == about
    assert (said[0]["level"], said[0]["logger"], said[0]["amount"]) == ("info", "shop", 3)
    assert said[0]["who"] == {"name": "marigold"}
    assert said[0]["timestamp"].endswith("Z")
    assert [line for line in lines if "at_work" in line or "data" in line] == []
    traces = {line["trace"] for line in lines if line.get("run") == within and "trace" in line}
    assert traces == {TRACE}
    named = [line for line in lines if alone in line["event"] or within in line["event"]]
    assert [line for line in named if "run" not in line] == [], "the ends of tasks are about their runs, too"


def test_what_is_logged_with_structlog_and_what_is_printed_goes_the_same_way(
    as_json: tuple[str, str, list[dict[str, Any]]],
) -> None:
    alone, _, lines = as_json
    counted = next(line for line in lines if line["event"] == "counted" and line["run"] == alone)
    assert (counted["word"], counted["two"], counted["call"], counted["instance"]) == ("marigold", "a b", 0, "①")
    assert (counted["logger"], counted["level"]) == ("shop.events", "info")
    far = next(line for line in lines if line["event"] == "far" and line["run"] == alone)
    assert (far["call"], far["level"]) == (2, "warning")
    assert any(line["event"] == "printed marigold" and line["call"] == 0 for line in lines)


def test_a_failed_attempt_is_a_warning_and_a_failed_call_an_error_with_its_traceback_once(
    as_json: tuple[str, str, list[dict[str, Any]]],
) -> None:
    alone, within, lines = as_json
    for run in (alone, within):
        (again,) = [line for line in lines if line["event"].startswith("tell failed") and line["run"] == run]
        assert again["level"] == "warning"
        assert "exception" not in again
        assert "OSError (redis://user:***@host/0 is away" in again["event"]
    ended = [line for line in lines if line["event"].startswith("breakdown failed")]
    assert [line["level"] for line in ended] == ["error", "error"]
    assert "ValueError (two\\nlines of marigold with ***)" in ended[0]["event"]
    assert ["Traceback" in line.get("exception", "") for line in ended] == [True, False]


def test_celerys_own_lines_and_the_one_that_says_that_it_is_ready_are_documents(
    as_json: tuple[str, str, list[dict[str, Any]]],
) -> None:
    _, _, lines = as_json
    assert any(line["logger"].startswith("celery.") for line in lines)
    (ready,) = [line for line in lines if " is ready, on " in line["event"]]
    assert ready["level"] == "info"


def test_for_people_structlog_writes_a_line_with_its_values(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path
) -> None:
    backend = logged(server, meeting, tmp_path, "text", "logged-text")
    with backend.worker():
        run = backend.run(CALLS, CONTEXT).run
    text = backend.log.read_text(encoding="utf-8")
    assert f'] run={run} instance=① call=0 counted word=marigold two="a b"\n' in text
    assert f"] run={run} instance=① call=0 attempt=2 logged marigold\n" in text
    assert f"] run={run} call=2 far word=marigold\n" in text
    assert "\x1b[" not in text, "colours are for terminals"
    assert "redis://user:***@host/0 is away" in text
    assert KEY not in text
    assert text.count("Traceback") == 1


def written(formatter: logging.Formatter, message: Any, *args: Any, **extra: Any) -> str:
    """A line of the library's, as a handler of the worker writes it."""
    stream, logger = io.StringIO(), logging.getLogger("tests.log_lines")
    handler = logging.StreamHandler(stream)
    handler.addFilter(AT_WORK)
    handler.setFormatter(formatter)
    logger.addHandler(handler)
    try:
        logger.warning(message, *args, extra=extra)
    finally:
        logger.removeHandler(handler)
    return stream.getvalue()


def test_nothing_that_is_logged_breaks_a_document_or_forges_a_line() -> None:
    odd = {"nan": float("nan"), "bytes": b"\xff", "set": {1}, "object": object(), "key": {1: "x\u2028y"}}
    line = written(JsonFormatter(), 'a\n{"level": "forged"} \x9b2J %s', "x", **odd)
    assert line.count("\n") == 1
    assert line.rstrip("\n").isprintable()
    document = json.loads(line)
    assert document["event"] == 'a\n{"level": "forged"} \x9b2J x'
    assert (document["nan"], document["bytes"], document["set"]) == ("nan", "b'\\xff'", [1])
    assert document["key"] == {"1": "x\u2028y"}


def test_a_lane_whose_run_was_not_read_yet_has_no_trace() -> None:
    with lane_at_work("r", None):
        document = json.loads(written(JsonFormatter(), "said"))
    assert (document["run"], "trace" in document, "call" in document) == ("r", False, False)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("amqp://guest:s3cret@host:5672//", "amqp://guest:***@host:5672//"),
        ("redis://:s3cret@host/0 and rediss://u:other@h", "redis://:***@host/0 and rediss://u:***@h"),
        ("http://user@host/a:b@c", "http://user@host/a:b@c"),
        ("an@address.org, and 12:30", "an@address.org, and 12:30"),
        ('{"url": "https://u:p@h"}', '{"url": "https://u:***@h"}'),
    ],
)
def test_passwords_in_addresses_are_masked(text: str, shown: str) -> None:
    assert Masking()(text) == shown


def test_the_keys_and_passwords_of_the_settings_are_masked_wherever_they_stand() -> None:
    settings: Settings = load(
        env_file=None,
        broker_url="redis://u:broker%2Fword@host/0",
        redis_url="redis://:one-word@a:1/0",
        model="openai:m",
        model_api_key='key"quoted',
        models={"other": {"model": "openai:o", "api_key": "key-of-other"}},
    )
    masked = Masking(settings)
    for secret in ("broker%2Fword", "broker/word", "one-word", 'key"quoted', 'key\\"quoted', "key-of-other"):
        assert masked(f"it is <{secret}>") == "it is <***>"


def test_a_handler_that_somebody_else_has_set_up_is_labelled_and_writes_as_it_did() -> None:
    logger = logging.getLogger("tests.handlers")
    own, celerys = logging.StreamHandler(), logging.StreamHandler()
    own.setFormatter(formatter := logging.Formatter("%(message)s"))
    celerys.setFormatter(ColorFormatter("%(message)s"))
    logger.handlers = [own, celerys]
    _set_up(logger, Masking(), as_json=True)
    assert own.formatter is formatter
    assert isinstance(celerys.formatter, MaskedFormatter)
    assert AT_WORK in own.filters
    assert AT_WORK in celerys.filters


def test_for_people_nothing_that_a_record_holds_begins_a_line_or_reaches_the_terminal() -> None:
    forged = "\x1b[2Jx\n[2026-11-28 00:00:00,000: CRITICAL/MainProcess] run=boss approved\u2028by ann\x85\r[2026] y"
    logger, stream = logging.getLogger("tests.forged"), io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(MaskedFormatter(logging.Formatter("[%(levelname)s] %(message)s"), Masking()))
    logger.handlers, logger.propagate = [handler], False
    try:
        raise ValueError(forged)
    except ValueError:
        logger.exception("said %s", forged)
    lines = re.split("[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]", stream.getvalue().rstrip("\n"))
    assert lines[0].startswith("[ERROR] said ")
    assert [line for line in lines[1:] if not line.startswith("  ")] == []
    assert sum("run=boss approved\\u2028by ann\\x85\\r[2026] y" in line for line in lines) == 2
    assert "\x1b" not in stream.getvalue()
    assert any(line.startswith("  ValueError: ") for line in lines)
