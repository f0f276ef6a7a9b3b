"""What the original documents say, statement by statement, each with the smallest submission that shows it.

The numbers are those of the list of statements. A statement runs as a document and, where a model may write its calls,
as an answer on both wires. Where it takes workers, people or a model, the row names the test that shows it.

Four hold in what they are for, and not to the letter. 16: data that is handed in without a method is merged, since a
state is handed in as patches (SPEC R3.3). 44: what is to come has to be promised (SPEC R6.3). 100: no method counts;
calls push what they add (SPEC R3.2). 127: `jsonschema` is what the library that decides is compared with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pytest

from acts_celery.protocol import Output, Plan, check_submission, parse
from acts_celery.protocol.engine.outcomes import resolve_output
from acts_celery.protocol.paths import MISSING
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.plan.documents import decode
from acts_celery.protocol.plan.submission import shaped
from acts_celery.protocol.requests import Answer, read_answer, read_request
from acts_celery.protocol.requests.reading import FunctionAnswer
from acts_celery.protocol.requests.tool_texts import can_be_carried, function_schema, functions_of
from acts_celery.protocol.state.fold import Fold

from .building import DATE, FUNCTIONS
from .driver import Driver, Result

TESTS: Final = Path(__file__).parents[1]


def call(tool: str, to: str | None = None, **properties: Any) -> dict[str, Any]:
    return {"_tool": tool, **properties, **({} if to is None else {"_outputPath": to})}


def give(value: Any, to: str | None = None, **more: Any) -> dict[str, Any]:
    return call("give", to, value=value, **more)


def choosing(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    """The place in the state that the parameter names."""
    return Output(f"†state.{parameters['place']}", "chosen")


def failing(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    raise ValueError("no")


CODE: Final = {**FUNCTIONS, "choosing": choosing, "failing": failing}


@dataclass(frozen=True)
class Seen:
    """What became of a statement's calls."""

    plan: Any

    @cached_property
    def result(self) -> Result:
        return Driver(self.plan, CODE, date=DATE).run()

    @cached_property
    def messages(self) -> list[Mapping[str, Any]]:
        """What the calls appended."""
        return self.result.messages

    def value(self, path: str, instance: str | None = None) -> Any:
        return self._fold(instance).value(parse(path).references[0])

    def status(self, index: int, instance: str | None = None) -> str:
        return self.result.statuses[instance][index].value

    @property
    def output(self) -> Any:
        return resolve_output(self.plan.submission.output, self._fold(None))

    def _fold(self, instance: str | None) -> Fold:
        shared = Fold()
        own = Fold(shared)
        written = [(entry.lane, message) for entry in self.result.log for message in entry.outcome.messages]
        given = [(message.get("_instance"), message) for message in self.plan.submission.context]
        for number, (lane, message) in enumerate([*given, *written]):
            if lane is None:
                shared.append(message, str(number))
            elif lane == instance:
                own.append(message, str(number))
        return own if instance is not None else shared


@dataclass(frozen=True)
class Statement:
    """A statement: its number, and what it says in words of ours."""

    number: int
    says: str
    calls: Sequence[Any] = ()
    sees: Callable[[Seen], object] = lambda seen: seen.result
    """What is true when the calls have ended."""
    context: Sequence[Any] = ()
    tools: Mapping[str, Any] = field(default_factory=dict)
    """Schemas of tools, where it matters that they are more than the parameters of the calls."""
    latent: tuple[str, ...] = ()
    """Tools without code."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further parts of the submission."""
    wrong: str = ""
    """Where the submission has to be refused."""
    is_plan: bool = False
    is_for_people: bool = False
    """Whether only a document says it: a plan, a setting, a definition, or what is missing."""
    elsewhere: str = ""
    """The test that shows it, where this takes more than the core."""

    @property
    def document(self) -> dict[str, Any]:
        calls = list(self.calls)
        inside = {"context": [*self.context, *([{"type": "plan", "calls": calls}] if self.is_plan else [])]}
        solution = {} if self.is_plan else {"solution": {"calls": calls, **self._output}}
        parts = {key: part for key, part in self.more.items() if key != "output"}
        return {**inside, **solution, "tools": self.all_tools, **parts}

    @property
    def all_tools(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for raw in self.calls:
            own = found.setdefault(raw["_tool"], {"type": "object", "properties": {}})
            names = [key for key in raw if not key.startswith("_") or key in ("_delegate", "_module")]
            own["properties"] |= {key: {} for key in names}
            if raw.keys() & {"_scopes", "_imports"}:
                own["properties"]["_scopes"] = {"type": "array", "items": {"type": "string"}}
        return {**found, **self.tools}

    @property
    def known(self) -> dict[str, Any]:
        """What is registered: code for all tools but the latent ones."""
        code = {name: {"type": "object"} for name in (*CODE, *self.all_tools) if name not in self.latent}
        return {"activities": code} if self.latent else {}

    @property
    def can_be_answered(self) -> bool:
        return not (self.elsewhere or self.is_plan or self.is_for_people or self.wrong)

    @property
    def _output(self) -> dict[str, Any]:
        return {"output": self.more["output"]} if "output" in self.more else {}

    def __str__(self) -> str:
        return f"{self.number} {self.says}"


def held(file: str, name: str) -> str:
    return f"{file}::{name}"


USER: Final = [{"type": "data", "data": {"user": {"name": "Alex", "status": "active"}}}]
PEOPLE: Final = [{"type": "state", "_instance": name, "who": name} for name in ("①", "②")]
EACH: Final = [give("†state.who", "†state.seen", _instance=name) for name in ("①", "②")]
PROMISE: Final = {"type": "input", "schema": {"type": "object", "properties": {"name": {"type": "string"}}}}
PINNED: Final = {"type": "object", "properties": {"value": {}, "_outputPath": {"const": "†state.fixed"}}}
OF_TWO: Final = {"type": "object", "properties": {"value": {}, "_outputPath": {"enum": ["†state.good", "†state.bad"]}}}
FREE: Final = {"type": "object", "properties": {"value": {}, "_outputPath": {"type": "string", "pattern": "^†"}}}
THINK: Final = {"type": "object", "properties": {"_output": {"type": "string"}}}
SECRET: Final = [{"type": "state", "user": "Ann"}, {"type": "input", "secret": "x"}]
SUMMARY: Final = {"context": [{"type": "system", "text": "Sum up."}], "schema": {"type": "string"}}
LIST_THEN_SOLUTION: Final = """
[{"type": "state", "a": 1}]  // then
{"calls": [{"_tool": "sum", "_delegate": "Summarizer", "_scopes": ["state"]}]}
"""

OUTPUT_EN: Final = "acceptance/test_seed_output_en.py"
SCOPES: Final = "acceptance/test_seed_scopes_ru.py"
STATE: Final = "acceptance/test_seed_state_ru.py"
LOOP: Final = "worker/test_r13_1_loop.py"

_S = Statement
STATEMENTS: Final = (
    # Where results go.
    _S(1, "an output path says where a result is kept", [give(1, "†state.a")], lambda s: s.value("†state.a") == 1),
    _S(2, "later calls use it", [give(1, "†state.a"), give("†state.a", "†state.b")],
       lambda s: s.value("†state.b") == 1),
    _S(3, "results of calls and the output are two things", [give(1, "†state.a")], lambda s: s.output == {"is": 1},
       more={"output": {"is": "†state.a"}}, is_for_people=True),
    _S(4, "any kind of data can be written", [give(1, "†profile.age")], lambda s: s.value("†profile") == {"age": 1}),
    _S(5, "a result is appended as a message", [give(1, "†state.a")], lambda s: len(s.messages) == 1),
    _S(6, "that message is a data message as any other", [give(1, "†data.a")],
       lambda s: (s.messages[0]["type"], s.messages[0]["data"]) == ("data", {"a": 1})),
    _S(7, "it holds the call as it was written", [give("†data.user.name", "†state.a")],
       lambda s: s.messages[0]["_call"] == give("†data.user.name", "†state.a"), context=USER),
    _S(8, "it holds the moment", [give(1, "†state.a")], lambda s: s.messages[0]["_date"] == DATE),
    _S(9, "it holds the method", [give(1, "†state.a", _outputMethod="push")],
       lambda s: s.messages[0]["_outputMethod"] == "push"),
    _S(10, "a model sees none of this", elsewhere=held(
        OUTPUT_EN, "test_the_hidden_notes_are_in_the_log_and_not_in_what_a_tool_sees")),
    _S(11, "all of it is a trail that can be followed", elsewhere=held(
        OUTPUT_EN, "test_the_history_can_be_read_as_of_every_note")),
    _S(12, "a tool may leave the path open", [give(1, "†data.any")], lambda s: s.value("†data.any") == 1,
       tools={"give": FREE}),
    _S(13, "a tool may fix the path, and it is filled in", [give(1)], lambda s: s.value("†state.fixed") == 1,
       tools={"give": PINNED}),
    _S(14, "nothing is overwritten", [give(2, "†state.a")],
       lambda s: (s.value("†state.a"), [*s.plan.submission.context]) == (2, [{"type": "state", "a": 1}]),
       context=[{"type": "state", "a": 1}]),
    _S(15, "a value is put together when it is read", [give(2, "†state.l", _outputMethod="push")],
       lambda s: s.value("†state.l") == [1, 2], context=[{"type": "state", "l": [1]}]),
    _S(16, "what a call sets hides what was there", [give({"b": 2}, "†state.a")],
       lambda s: s.value("†state.a") == {"b": 2}, context=[{"type": "state", "a": {"x": 1}}]),
    _S(17, "merge, push and concat add to it", [
        give({"b": 2}, "†state.o", _outputMethod="merge"), give("!", "†state.t", _outputMethod="concat")],
       lambda s: (s.value("†state.o"), s.value("†state.t")) == ({"a": 1, "b": 2}, "Hi!"),
       context=[{"type": "state", "o": {"a": 1}, "t": "Hi"}]),
    _S(18, "a method that does not fit harms nothing", [give(1, "†state.n", _outputMethod="push")],
       lambda s: (s.status(0), s.value("†state.n")) == ("failed", 5), context=[{"type": "state", "n": 5}]),
    _S(19, "the message is as the document prints it", [give("inactive", "†data.user.status")],
       lambda s: s.messages[0] == {"type": "data", "data": {"user": {"status": "inactive"}}, "_date": DATE,
                                   "_call": give("inactive", "†data.user.status")}, context=USER),
    _S(20, "the rest of the object stays", [give("inactive", "†data.user.status")],
       lambda s: s.value("†data.user") == {"name": "Alex", "status": "inactive"}, context=USER),
    _S(21, "a call may work on data that is not there yet", [give("†input.name", "†state.a")],
       lambda s: [str(one.place) for one in s.plan.promised] == ["†input.name"], context=[PROMISE], is_for_people=True),
    _S(22, "such as an input that is still to come", [give("†input.name", "†state.a")],
       lambda s: s.plan.promised[0].needed, context=[PROMISE], is_for_people=True),
    _S(23, "so one plan serves many inputs", [give("†input.n", "†state.n")],
       lambda s: (s.value("†state.n", "①"), s.value("†state.n", "②")) == (1, 2), is_plan=True,
       context=[{"type": "input", "_instance": "①", "n": 1}, {"type": "input", "_instance": "②", "n": 2}]),
    _S(24, "calls are chained by their places", [give("†state.a", "†state.b"), give(1, "†state.a")],
       lambda s: s.plan.edges == ((1, 0),)),
    # Calls without a place.
    _S(25, "to leave the path out means something: a thought, or sent and forgotten", [call("think"), give(1)],
       lambda s: (s.status(0), s.status(1)) == ("latent", "sent"), latent=("think",)),
    _S(26, "a latent call without a path is a passing thought", [call("think", _output="so")],
       lambda s: (s.status(0), s.messages) == ("latent", []), tools={"think": THINK}, latent=("think",)),
    _S(27, "calls may follow it in the same solution", [call("think", _output="so"), give(1, "†state.a")],
       lambda s: s.value("†state.a") == 1, tools={"think": THINK}, latent=("think",)),
    _S(28, "what a model answered itself is there for its next calls", [
        call("think", "†state.t", _output="so"), give("†state.t", "†state.a")],
       lambda s: s.value("†state.a") == "so", tools={"think": THINK}, latent=("think",)),
    _S(29, "an explicit call without a path is started and not kept", [give(1)],
       lambda s: (s.status(0), s.messages) == ("sent", []),
       tools={"give": {"type": "object", "properties": {"value": {}, "_output": {"type": "integer"}}}}),
    _S(30, "as for an event that is logged", [call("logEvent", eventName="x")], lambda s: s.status(0) == "sent"),
    _S(31, "as for a notice", [call("sendMessage", message="x")], lambda s: s.status(0) == "sent"),
    _S(32, "as for long work that nothing waits for", elsewhere=held(
        "worker/test_forgetting.py", "test_the_run_does_not_wait_for_it_and_its_message_asks_for_no_result")),
    _S(33, "a path may name several places, or one of several", [
        give(1, "†state.a && †data.a"), call("choosing", "†state.b || †state.c", place="c")],
       lambda s: (s.value("†state.a"), s.value("†data.a"), s.value("†state.c")) == (1, 1, "chosen")),
    _S(34, "so what runs depends on what comes", [
        call("choosing", "†state.b || †state.c", place="c"), give("†state.b", "†state.x"),
        give("†state.c", "†state.y")],
       lambda s: (s.status(1), s.status(2)) == ("skipped", "done")),
    _S(35, "paths are the wires of a graph", [give(1, "†state.a"), give("†state.a", "†state.b")],
       lambda s: s.plan.edges == ((0, 1),)),
    _S(36, "a strategy is one object", [give(1, "†state.a")], lambda s: s.value("†state.a") == 1, is_plan=True),
    _S(37, "with an instance the path is that instance's", EACH, lambda s: s.value("†state.seen", "②") == "②",
       context=PEOPLE),
    _S(38, "instances do not see each other", EACH, lambda s: s.value("†state.seen") is MISSING, context=PEOPLE),
    _S(39, "state lasts over several requests", elsewhere=held(
        "worker/test_state_of.py", "test_the_state_of_a_run_becomes_that_of_another_one_for_each_instance")),
    # Variables.
    _S(40, "a parameter may be a reference", [give({"deep": ["†data.user.name"]}, "†state.a")],
       lambda s: s.value("†state.a") == {"deep": ["Alex"]}, context=USER),
    _S(41, "so nobody copies the data", [give("†data.user", "†state.a")],
       lambda s: s.value("†state.a") == USER[0]["data"]["user"], context=USER),  # type: ignore[index]  # an object
    _S(42, "it reads state and input", [give("†input.a", "†state.a"), give("†state.b", "†state.c")],
       lambda s: (s.value("†state.a"), s.value("†state.c")) == (1, 2),
       context=[{"type": "input", "a": 1}, {"type": "state", "b": 2}]),
    _S(43, "what is read is data, and read no further", [give("†input.a", "†state.a")],
       lambda s: s.value("†state.a") == "†state.secret", context=[{"type": "input", "a": "†state.secret"}]),
    _S(44, "a user is greeted by the name that was given", [call("greetUser", "†state.g", userName="†input.userName")],
       lambda s: s.plan.calls[0].read, context=[{"type": "input", "userName": "Ann"}]),
    _S(45, "it is what code would write", elsewhere=held(
        "acceptance/test_seed_variables_ru.py", "test_a_reference_hands_the_activity_what_the_input_holds")),
    _S(46, "the summary goes where the tool says", [give("x", "†state.user.summary")],
       lambda s: s.value("†state.user.summary") == "x"),
    _S(47, "the structure is there before the data", [give("†input.name", "†state.a"), give("†state.a", "†state.b")],
       lambda s: s.plan.edges == ((0, 1),), context=[PROMISE], is_for_people=True),
    _S(48, "the tool decides which place it is", [call("choosing", "†state.a || †state.b", place="b")],
       lambda s: (s.value("†state.a"), s.value("†state.b")) == (MISSING, "chosen")),
    _S(49, "a failure goes to the other place", [call("failing", "†state.verified || †state.failed")],
       lambda s: s.value("†state.failed")["type"] == "ValueError"),
    _S(50, "one result goes to two places", [give(1, "†state.a && †state.b")],
       lambda s: s.value("†state.a") == s.value("†state.b") == 1),
    _S(51, "the graph is checked before the data exists", [give("†input.name", "†state.a")],
       lambda s: s.plan.waves == ((0,),), context=[PROMISE], is_for_people=True),
    _S(52, "and approved before anything runs", [give(1, "†state.a")], lambda s: s.plan.waits_for_approval,
       more={"config": {"mode": "lazy"}}, is_for_people=True),
    _S(53, "and used again", elsewhere=held(
        "worker/test_export_plan.py", "test_a_plan_is_run_again_with_other_data")),
    _S(54, "references read and paths write", [give("†state.a", "†state.b"), give("†state.b", "†state.c")],
       lambda s: s.value("†state.c") == 1, context=[{"type": "state", "a": 1}]),
    _S(55, "a recipe says that a fruit is taken, and not which", [give("†input.fruit", "†state.juice")],
       lambda s: s.value("†state.juice") == "pear", context=[{"type": "input", "fruit": "pear"}]),
    _S(56, "state is the draft between the steps", [give(1, "†state.a"), give("†state.a", "†data.b")],
       lambda s: s.value("†data.b") == 1),
    _S(57, "a plan message holds the calls", (), lambda s: s.value("†state.a") == 1, is_for_people=True,
       more={"": {"context": [{"type": "plan", "plan": [give(1, "†state.a")]}], "tools": {"give": {}}}}),
    # State.
    _S(58, "state is data that lasts", [give("†state.a", "†state.b")], lambda s: s.value("†state") == {"a": 1, "b": 1},
       context=[{"type": "state", "a": 1}]),
    _S(59, "it carries context from call to call", [give(1, "†state.a"), give("†state.a", "†state.b")],
       lambda s: s.value("†state.b") == 1),
    _S(60, "it is the truth about a request", [give(1, "†state.a")], lambda s: s.value("†state") == {"a": 1}),
    _S(61, "it survives a worker", elsewhere=held(
        "worker/test_r13_5_kills.py",
        "test_r13_5_a_loop_survives_the_kill_of_its_worker_while_asking_and_while_calling_at_every_tick")),
    _S(62, "a process is paused and goes on", elsewhere=held(
        "worker/test_control_cli.py", "test_a_run_is_paused_resumed_and_cancelled")),
    _S(63, "a new iteration sees how far it is", elsewhere=held(
        LOOP, "test_r13_1_the_messages_of_a_tick_begin_with_those_of_the_one_before")),
    _S(64, "one tool writes what another reads", elsewhere=held(
        STATE, "test_one_tool_writes_into_the_state_and_the_next_reads_it")),
    _S(65, "any parameter may be a reference", [call("echo", "†data.p", userId="†state.currentUser.id")],
       lambda s: s.value("†data.p") == {"userId": "u1"}, context=[{"type": "state", "currentUser": {"id": "u1"}}]),
    _S(66, "it is replaced before the tool runs", elsewhere=held(
        STATE, "test_the_reference_is_replaced_by_the_value_before_the_tool_runs")),
    _S(67, "large objects are written once", [give("†state.large", "†data.copy")],
       lambda s: s.messages[0]["_call"]["value"] == "†state.large", context=[{"type": "state", "large": ["x"] * 9}]),
    _S(68, "an output path tells where to write", [give(1, "†state.a.b")], lambda s: s.value("†state.a") == {"b": 1}),
    _S(69, "a schema of the state leads to the tools that fill it", elsewhere=held(
        "protocol/test_law_requests.py",
        "test_r12_5_what_the_state_requires_and_is_not_there_is_listed_with_the_tools_that_write_it")),
    _S(70, "so the order of tools is right by structure", elsewhere=held(
        LOOP, "test_r12_5_an_output_that_leaves_required_places_of_the_state_empty_is_set_aside")),
    _S(71, "a path without a kind is in the state", [give(1, "user.summary")],
       lambda s: s.value("†state.user.summary") == 1),
    _S(72, "|| writes to one of several places", [call("choosing", "†state.a || †state.b", place="a")],
       lambda s: s.value("†state") == {"a": "chosen"}),
    _S(73, "who carries it out chooses", [give(1, "†state.a || †state.b")], lambda s: s.value("†state") == {"a": 1}),
    _S(74, "&& writes to all places", [give(1, "†state.a && †state.b")],
       lambda s: s.value("†state") == {"a": 1, "b": 1}),
    _S(75, "a tool may take any path", [give(1, "†state.a && †data.b")], lambda s: s.value("†data.b") == 1,
       tools={"give": {"type": "object", "properties": {"value": {}, "_outputPath": {"type": "string"}}}}),
    _S(76, "so that an agent connects tools on the fly", elsewhere=held(
        LOOP, "test_r13_1_a_request_is_asked_until_an_output_is_there")),
    _S(77, "a tool may prescribe paths", [give(1, "†state.good")], lambda s: s.value("†state.good") == 1,
       tools={"give": OF_TWO}),
    _S(78, "and then no other is taken", [give(1, "†state.other")], tools={"give": OF_TWO},
       wrong="/solution/calls/0/_outputPath"),
    _S(79, "a choice of two places handles errors that are known", [give(1, "†state.good || †state.bad")],
       lambda s: s.value("†state.good") == 1, tools={"give": OF_TWO}),
    _S(80, "a designer chooses between freedom and a fixed flow", [give(1)], lambda s: s.value("†state.fixed") == 1,
       tools={"give": PINNED}),
    _S(81, "the graph is there before anything runs", [give(1, "†state.a"), give("†state.a", "†state.b")],
       lambda s: s.plan.waves == ((0,), (1,)), is_for_people=True),
    _S(82, "inputs can be prescribed as outputs can", [call("echo", "†data.p")],
       lambda s: s.value("†data.p") == {"userId": "u1"}, context=[{"type": "state", "user": {"id": "u1"}}],
       tools={"echo": {"type": "object", "properties": {"userId": {"const": "†state.user.id"}},
                       "required": ["userId"]}}),
    _S(83, "a graph can be checked and used again", elsewhere=held(
        "worker/test_export_plan.py", "test_a_plan_is_run_again_with_other_data")),
    _S(84, "and simulated", elsewhere=held("protocol/test_simulation.py", "")),
    _S(85, "and carried out by a model alone", elsewhere=held(
        "worker/test_simulation_runs.py", "test_r12_10_models_answer_the_calls_of_a_plan_and_no_code_runs")),
    _S(86, "state is the canvas, and paths the wires", [give(1, "†state.a"), give("†state.a", "†state.b")],
       lambda s: s.plan.edges == ((0, 1),)),
    _S(87, "a path makes a function a step", [give(1, "†state.n")], lambda s: s.value("†state.n") == 1),
    _S(88, "state is data of its kind", [give("†state.a", "†state.b")], lambda s: s.value("†state.b") == 1,
       context=[{"type": "data", "kind": "state", "data": {"a": 1}}]),
    _S(89, "its schema holds what is written", [give("text", "†state.n")], lambda s: s.status(0) == "failed",
       context=[{"type": "state", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}}}]),
    _S(90, "patches become one value", [give("†state", "†data.all")],
       lambda s: s.value("†data.all") == {"a": 1, "b": 2},
       context=[{"type": "state", "a": 1}, {"type": "state", "b": 2}]),
    _S(91, "a module is given what it imports", [call("see", "†data.seen", _imports=["state"])],
       lambda s: s.value("†data.seen") == {"state": {"user": "Ann"}}, context=SECRET),
    _S(92, "so it reads the state and acts on it", [call("see", "†state.seen", _scopes=["†state.user"])],
       lambda s: s.value("†state.seen") == {"state": {"user": "Ann"}}, context=SECRET),
    _S(93, "a plan has no circle", [give("†state.b", "†state.a"), give("†state.a", "†state.b")],
       wrong="/solution/calls/0"),
    _S(94, "it branches and fans out", [
        call("choosing", "†state.a || †state.b", place="a"), give("†state.a", "†data.x"),
        give("†state.a", "†data.y")], lambda s: s.plan.waves == ((0,), (1, 2))),
    _S(95, "each instance has a state", EACH, lambda s: s.value("†state.seen", "①") == "①", context=PEOPLE),
    _S(96, "references find the right one", EACH, lambda s: s.value("†state.seen", "②") == "②", context=PEOPLE),
    _S(97, "one plan runs over many states", [give("†state.who", "†state.seen")],
       lambda s: s.value("†state.seen", "②") == "②", context=PEOPLE, is_plan=True),
    _S(98, "one request has many sets of data", EACH, lambda s: len(s.result.statuses) >= len(PEOPLE), context=PEOPLE),
    # In plain words.
    _S(99, "the history explains the agent", elsewhere=held(
        OUTPUT_EN, "test_the_history_can_be_read_as_of_every_note")),
    _S(100, "methods are applied from old to new", [
        give(2, "†state.l", _outputMethod="push"), give("†state.l", "†data.after")],
       lambda s: s.value("†data.after") == [1, 2], context=[{"type": "state", "l": [1]}]),
    _S(101, "a tool is set up before its data is there", [give("†input.name", "†state.a")],
       lambda s: s.plan.promised, context=[PROMISE], is_for_people=True),
    _S(102, "data, state and references are one circuit", [give("†data.user.name", "†state.a")],
       lambda s: s.value("†state.a") == "Alex", context=USER),
    # Scopes.
    _S(103, "scopes list what a call may see", [call("see", "†data.seen", _scopes=["state"])],
       lambda s: s.value("†data.seen") == {"state": {"user": "Ann"}}, context=SECRET),
    _S(104, "without them it sees nothing", [call("see", "†data.seen")], lambda s: s.value("†data.seen") == {},
       context=SECRET),
    _S(105, "they tell a model where to look", elsewhere=held(
        SCOPES, "test_the_scope_of_a_latent_call_is_a_hint_and_the_call_runs_nothing")),
    _S(106, "so parts stand alone and are used again", elsewhere=held(
        SCOPES, "test_a_delegate_defined_as_a_request_is_solved_with_its_own_messages_and_the_scope")),
    _S(107, "a tool may fix them", [call("see", "†data.seen")],
       lambda s: s.value("†data.seen") == {"state": {"user": "Ann"}}, context=SECRET,
       tools={"see": {"type": "object", "properties": {"_scopes": {"const": ["state"]}}}}),
    _S(108, "or leave a choice", [call("see", "†data.seen", _scopes=["input"])], context=SECRET,
       tools={"see": {"type": "object", "properties": {"_scopes": {"items": {"enum": ["state"]}}}}},
       wrong="/solution/calls/0/_scopes/0"),
    _S(109, "a person may approve them", elsewhere=held("worker/test_r14_2_changes.py", "")),
    _S(110, "to a latent call they are a hint", elsewhere=held(
        SCOPES, "test_the_scope_of_a_latent_call_is_a_hint_and_the_call_runs_nothing")),
    _S(111, "less noise makes it better", elsewhere=held(
        SCOPES, "test_the_scope_of_a_latent_call_is_a_hint_and_the_call_runs_nothing")),
    _S(112, "an activity gets them beside its parameters", [call("see", "†data.seen", about="x", _scopes=["state"])],
       lambda s: s.value("†data.seen") == {"state": {"user": "Ann"}}, context=SECRET),
    _S(113, "also what no model has used", [call("see", "†data.seen", _scopes=["input"])],
       lambda s: s.value("†data.seen") == {"input": {"secret": "x"}}, context=SECRET),
    _S(114, "with an instance they are that instance's", [
        call("see", "†data.seen", _scopes=["state"], _instance="②")],
       lambda s: s.value("†data.seen", "②") == {"state": {"who": "②"}}, context=PEOPLE),
    _S(115, "nothing leaks between instances", [call("see", "†data.seen", _scopes=["state"], _instance="①")],
       lambda s: "②" not in str(s.value("†data.seen", "①")), context=PEOPLE),
    _S(116, "they are what a delegate is given beside its own", elsewhere=held(
        SCOPES, "test_a_delegate_in_code_receives_the_scoped_messages_then_its_parameters_and_nothing_else")),
    _S(117, "and nothing else of the parent's", elsewhere=held(
        "worker/test_delegates.py", "test_the_message_holds_exactly_the_scoped_context")),
    _S(118, "two users are told apart", [call("sendMessage", recipientId="b", message="Hi", _scopes=["input"])],
       lambda s: s.result.sent[0].context == {"input": {"user": "b"}},
       context=[{"type": "state", "user": "a"}, {"type": "input", "user": "b"}]),
    _S(119, "an event is logged with the user it is not told", [call("logEvent", eventName="x", _scopes=["state"])],
       lambda s: s.result.sent[0].context == {"state": {"user": "Ann"}}, context=SECRET),
    _S(120, "a function takes parameters and scopes apart", elsewhere=held(
        SCOPES, "test_a_keyword_named_like_a_kind_receives_its_scope")),
    _S(121, "a list of a message and a call is a submission", (), lambda s: s.plan.calls[0].runner.name == "Summarizer",
       more={"": [{"type": "state", "text": "long"},
                  call("summarize", _delegate="Summarizer", _scopes=["state"])]}, is_for_people=True),
    _S(122, "a context and a solution are one submission", (), lambda s: s.plan.calls[0].tool == "sum",
       more={"": decode(LIST_THEN_SOLUTION.encode())}, is_for_people=True),
    _S(123, "two delegates get a state each", elsewhere=held(
        SCOPES, "test_delegates_in_code_receive_only_their_instances_state")),
    _S(124, "one mechanism serves all ways of execution", [
        call("see", "†data.a", _scopes=["state"]), call("sum", "†data.b", _delegate="sum", _scopes=["state"])],
       lambda s: {str(scope) for one in s.plan.calls for scope in one.scopes} == {"†state"}, context=SECRET,
       more={"delegates": {"sum": SUMMARY}}, is_for_people=True),
    # The backend.
    _S(125, "it is a distributed task queue in Python", elsewhere=held("worker/test_celery_command.py", "")),
    _S(126, "of Celery, Redis, pydantic and msgpack", elsewhere=held("architecture/test_imports.py", "")),
    _S(127, "with JSON Schema", elsewhere=held("protocol/test_r04_1_schemas.py", "")),
    _S(128, "with these folders", elsewhere=held("architecture/test_contents.py", "")),
    _S(129, "a solution is split into a task for each instance", elsewhere=held("worker/test_submitting.py", "")),
    _S(130, "a delegate gets a snapshot in msgpack", elsewhere=held(
        "worker/test_delegates.py", "test_the_message_holds_exactly_the_scoped_context")),
    _S(131, "results are appended to a stream", elsewhere=held("worker/test_commit_script.py", "")),
    _S(132, "forgotten calls have no result backend", elsewhere=held(
        "worker/test_forgetting.py", "test_nothing_is_stored_in_a_configured_result_backend")),
    _S(133, "instances scale over workers", elsewhere=held("worker/test_full_size.py", "")),
    _S(134, "activities run in the background", elsewhere=held(
        "worker/test_dead_letters.py", "test_a_run_says_how_many_are_outstanding_done_and_dead")),
    _S(135, "Flower shows them", elsewhere=held("deploy/test_flower_page.py", "")),
)  # fmt: skip


def rows(of: Callable[[Statement], object]) -> list[Any]:
    """The statements as parameters."""
    return [pytest.param(one, id=str(one)) for one in STATEMENTS if of(one)]


def checked(one: Statement) -> Plan:
    handed_in, _ = shaped(one.more.get("", {**one.document}))
    delegates = ["Summarizer"] if "" in one.more else None
    return check_submission(handed_in, delegates=delegates, **one.known)


def answered(one: Statement, wire: str) -> Answer:
    document = {"context": list(one.context), "schema": {}, "tools": one.all_tools}
    request = read_request(document, Environment(**one.known))
    if wire == "json":
        return read_answer(request, json.dumps({"calls": [*one.calls], "output": None}))
    request = replace(request, is_native=True)
    assert can_be_carried(request)
    functions = functions_of(function_schema(request))
    names = {function.tool: function.name for function in functions}
    writing = FunctionAnswer(functions)
    parts = []
    for raw in one.calls:
        pinned = "_outputPath" in request.tools[raw["_tool"]].constants
        arguments = {key: value for key, value in raw.items() if key != "_tool"}
        kept = arguments if pinned else {"_outputPath": None, **arguments}
        parts.append(writing.call(names[raw["_tool"]], json.dumps(kept)))
    return read_answer(request, "".join(parts) + writing.end())
