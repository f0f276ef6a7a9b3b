"""Tools of MCP servers: over stdio and HTTP, and their sessions."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from acts_celery import ActivitiesError, Client, LocalClient, Run, WorkerError, local
from acts_celery.broker_config import EmbeddedServer, McpServer, SettingsError, load
from acts_celery.protocol import Rejected
from acts_celery.worker.broker.messages import pack
from acts_celery.worker.cli.serving import listed, mcp
from acts_celery.worker.registry.activities import Registry
from acts_celery.worker.registry.mcp_tools import Declaration, admit, read_admitted, register_tools, tool_admissions
from acts_celery.worker.runner.application import make_client_application
from tests.environment import without_settings
from tests.few import few
from tests.worker.backend import DEADLINE_SECONDS, RUN_SECONDS, Backend, Meeting, meeting_url, settings_apart

# Tools of MCP servers are carried out as activities are, and what a server does wrong stays with its call.

ROOT = Path(__file__).parents[2]
SECONDS = 60


def faulty(folder: Path, **more: Any) -> McpServer:
    return McpServer.model_validate(
        {"command": sys.executable, "args": [str(Path(__file__).with_name("faulty_server.py")), str(folder)], **more}
    )


def admitted(folder: Path, servers: Mapping[str, McpServer]) -> dict[str, Any]:
    """Settings with those servers, all of whose tools are admitted as they are."""
    settings = load(mcp=dict(servers), mcp_admitted=str(folder / "tools.json"))
    for name, found in listed(settings, servers).items():
        assert not isinstance(found, WorkerError), found
        admit(settings, name, found.values())
    return {"mcp": settings.mcp, "mcp_admitted": settings.mcp_admitted}


@contextmanager
def backend(folder: Path, **more: Any) -> Iterator[LocalClient]:
    with local(**admitted(folder, {"web": faulty(folder, **more)})) as client:
        yield client


def outcome(client: LocalClient, tool: str, **parameters: Any) -> Any:
    """What a call writes, or its error."""
    call = {"_tool": tool if "." in tool else f"web.{tool}", **parameters, "_outputPath": "†state.found"}
    result = client.submit(solution={"calls": [call]}).wait(timeout_seconds=SECONDS)
    if result.status == "completed":
        return result.data()["state"]["found"]
    error = result.calls[0].error
    assert error is not None
    return error["type"], error["message"]


def test_what_a_server_answers_is_a_value_and_what_it_does_wrong_is_the_error_of_its_call(tmp_path: Path) -> None:
    with backend(tmp_path) as client:
        assert outcome(client, "echo", text="tea") == "tea"
        assert outcome(client, "count", text="tea") == {"n": 3}
        assert outcome(client, "noise") == "heard"
        assert outcome(client, "progress") == "done"
        text, picture, link = outcome(client, "picture")
        assert (text, picture["bytes"], picture["mimeType"]) == ({"text": "here"}, 8, "image/png")
        assert "data" not in picture
        assert (link["type"], link["name"]) == ("resource_link", "†state.secret"), "data is no reference"
        assert outcome(client, "fail") == ("McpToolFailed", "no such page")
        assert "ACTS_" not in outcome(client, "environment")
        kind, message = outcome(client, "flood")
        assert kind != "McpUnavailable"
        assert "ACTS_LIMIT_MESSAGE_BYTES" in message or "bytes" in message
        kind, message = outcome(client, "unreadable")
        assert (kind, "no message" in message) == ("McpRefused", True)
        kind, message = outcome(client, "endless")
        assert (kind, "ACTS_LIMIT_CALL_BYTES" in message) == ("McpRefused", True)
        assert outcome(client, "echo", text="still there") == "still there"


def test_a_call_begins_again_when_its_server_dies_and_a_given_up_one_is_cancelled(tmp_path: Path) -> None:
    with backend(tmp_path, retries=3, timeout_seconds=2) as client:
        assert outcome(client, "die_once") == "alive"
        assert (tmp_path / "calls").read_text().split() == ["die_once", "die_once"]
        kind, _ = outcome(client, "hang")
        assert kind == "TimeoutError"
        assert outcome(client, "echo", text="x") == "x"
        assert len((tmp_path / "cancelled").read_text().split()) == 4


CODES = (-32_000, -32_001, -32_002, -32_020, -32_022, -32_600, -32_601, -32_602, -32_603, -32_700, -31_000, 0, 1, 500)


def test_an_error_that_a_server_answers_is_its_tools_whatever_its_number_and_is_not_asked_for_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with backend(tmp_path, retries=2) as client:
        for code in CODES:
            kind, message = outcome(client, "refuse", code=code)
            assert (kind, "the receipt failed" in message) == ("McpRefused", True), (code, message)
        assert (tmp_path / "calls").read_text().split() == ["refuse"] * len(CODES)
    assert "web.refuse failed: McpRefused" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("code", [-32_000, -32_603])
def test_an_error_that_a_server_answers_ends_no_call_beside_it(tmp_path: Path, code: int) -> None:
    with backend(tmp_path) as client:
        calls = [
            {"_tool": "web.slow", "_outputPath": "†state.slow"},
            {"_tool": "web.refuse", "code": code, "_outputPath": "†state.refused"},
        ]
        result = client.submit(solution={"calls": calls}).wait(timeout_seconds=SECONDS)
        assert [call.status for call in result.calls] == ["done", "failed"]
        assert result.data()["state"]["slow"] == "done"


def test_a_tool_that_changes_after_it_was_admitted_is_refused_until_it_is_admitted(tmp_path: Path) -> None:
    admitted(tmp_path, {"web": faulty(tmp_path)})
    other = {"name": "echo", "description": "Gives nothing back.", "inputSchema": {"type": "object"}}
    (tmp_path / "list.json").write_text(json.dumps([other]))
    settings = load(mcp={"web": faulty(tmp_path)}, mcp_admitted=str(tmp_path / "tools.json"))
    live = listed(settings, ["web"])["web"]
    assert not isinstance(live, WorkerError)
    states = {each.tool.name: each.state for each in tool_admissions("web", live, read_admitted(settings)["web"])}
    assert (states["echo"], states["write"]) == ("changed", "gone")
    with local(mcp=settings.mcp, mcp_admitted=settings.mcp_admitted) as client:
        kind, message = outcome(client, "echo", text="x")
        assert kind == "McpToolChanged"
        assert "acts mcp admit web.echo" in message
    assert not (tmp_path / "calls").exists()


def test_a_tool_is_none_before_it_is_admitted_and_its_results_decide_nothing_after(tmp_path: Path) -> None:
    servers = {"web": faulty(tmp_path)}
    pay = [
        {"_tool": "web.echo", "text": "x", "_outputPath": "†state.page"},
        {"_tool": "web.write", "text": "†state.page", "_outputPath": "†state.written"},
    ]
    config = {"trust": {"otherwise": "refuse"}}
    with local(mcp=servers) as client:
        with pytest.raises(Rejected, match=r"acts mcp admit web\.echo"):
            client.submit(solution={"calls": pay})
        with pytest.raises(Rejected, match=r"acts mcp admit web\.echo"):
            client.submit(["What is new?"], schema={"type": "string"}, tools=["web.echo"])
        with pytest.raises(Rejected, match=r"/config/approve/0: .*acts mcp admit web\.echo"):
            client.submit(solution={"calls": []}, config={"approve": ["web.echo"]})
    with local(**admitted(tmp_path, servers)) as client:
        result = client.submit(solution={"calls": pay}, config=config).wait(timeout_seconds=SECONDS)
        assert result.calls[1].error is not None
        assert result.calls[1].error["type"] == "Untrusted"
    with local(**admitted(tmp_path, {"web": faulty(tmp_path, trusted=True)})) as client:
        result = client.submit(solution={"calls": pay}, config=config).wait(timeout_seconds=SECONDS)
        assert result.data()["state"]["written"] == "x"


def _nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"properties": {"of": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"allOf": [{"properties": {"_activity": {"const": "pay"}}}]}, "names that begin with _"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"_scopes": {"const": ["state"]}}}}}, "begin with _"),
        ({"properties": {"_outputPath": {"const": "†state.pay"}}}, "names that begin with _"),
        ({"$ref": "#"}, "refers to itself"),
        ({"properties": {"of": {"$ref": "file:///etc/passwd"}}}, "is not in it"),
        ({"properties": {"of": {"type": "string", "pattern": "((a{1000}){1000}){1000}"}}}, "too large"),
        (_nested(300), "nested deeper"),
    ],
)
def test_a_schema_that_reaches_for_the_engine_or_cannot_be_held_against_is_unfit(
    schema: dict[str, Any], problem: str
) -> None:
    [found] = Declaration.read({"name": "page", "inputSchema": schema}).problems()
    assert problem in found


def test_names_that_begin_with_an_underscore_inside_a_parameter_are_its_own() -> None:
    schema = {"properties": {"filter": {"properties": {"_id": {"type": "string"}}}}}
    assert not [*Declaration.read({"name": "find", "inputSchema": schema}).problems()]


def test_an_operator_says_of_a_tool_that_it_only_reads_where_it_is_admitted(tmp_path: Path) -> None:
    servers = {"web": faulty(tmp_path)}
    file = tmp_path / "tools.json"
    run = CliRunner(env={"ACTS_MCP": json.dumps({"web": servers["web"].in_clear()}), "ACTS_MCP_ADMITTED": str(file)})

    def asked(*words: str) -> str:
        return run.invoke(mcp, words, standalone_mode=False).stdout

    assert "web.page  new  has effects" in asked("admit", "web")
    assert "web.page  admitted  only reads" in asked("admit", "--reads", "web.page")
    assert json.loads(file.read_text())["web"]["page"]["effects"] is False
    asked("admit", "web")
    assert "web.page  admitted  only reads" in asked("tools", "web.page")
    assert "web.write  admitted  has effects" in asked("tools", "web.write")
    settings = load(mcp=servers, mcp_admitted=str(file))
    calls = [
        {"_tool": "web.echo", "text": "x", "_outputPath": "†state.page"},
        {"_tool": "web.page", "text": "†state.page", "_outputPath": "†state.read"},
    ]
    with local(mcp=settings.mcp, mcp_admitted=settings.mcp_admitted) as client:
        result = client.submit(solution={"calls": calls}, config={"trust": {"otherwise": "refuse"}})
        assert result.wait(timeout_seconds=SECONDS).data()["state"]["read"] == "x"
    changed = {"name": "page", "description": "Reads and pays.", "inputSchema": {"type": "object"}, "effects": False}
    (tmp_path / "list.json").write_text(json.dumps([changed]))
    assert "web.page  changed  has effects" in asked("tools", "web.page")
    asked("admit", "web.page", "--json")
    assert "effects" not in json.loads(file.read_text())["web"]["page"]


PAID: dict[str, Any] = {"effects": True, "result": ["mcp.web"]}


@pytest.mark.parametrize(
    ("said", "trust"),
    [
        ({"result": {"n": [], "*": ["pages"]}}, {"effects": True, "result": {"n": [], "*": ["pages"]}}),
        ({"content": ["text"]}, {**PAID, "content": ["text"]}),
        ({"proof": ["text"]}, {**PAID, "proof": ["text"]}),
        ({"hosts": {"text": ["shop.example"]}}, {**PAID, "hosts": {"text": ["shop.example"]}}),
    ],
)
def test_r16_8_an_operator_declares_fields_content_proofs_and_hosts_of_an_admitted_tool(
    tmp_path: Path, said: Any, trust: Any
) -> None:
    settings = load(mcp={"web": faulty(tmp_path)}, mcp_admitted=str(tmp_path / "tools.json"))
    tool = {"name": "pay", "inputSchema": {"type": "object", "properties": {"text": {}}}}
    (tmp_path / "tools.json").write_text(json.dumps({"web": {"pay": {**tool, "_trust": said}}}))
    register_tools(settings, known := Registry())
    assert known.schemas()["web.pay"]["_trust"] == trust
    other = Declaration.read({**tool, "name": "other"})
    admit(settings, "web", [other])
    assert read_admitted(settings)["web"]["pay"].said == said
    live = {"pay": Declaration.read(tool)}
    [_, found] = tool_admissions("web", live, read_admitted(settings)["web"])
    assert (found.kept, found.dropped) == (said, {})
    assert found.as_only_reading().tool.said == {key: one for key, one in said.items() if key == "result"}
    live = {"pay": Declaration.read({**tool, "description": "Pays more."})}
    [_, found] = tool_admissions("web", live, read_admitted(settings)["web"])
    assert (found.kept, found.dropped) == ({}, said)


@pytest.mark.parametrize(
    ("said", "where", "word"),
    [
        ("mail", "", "object"),
        ({"sources": ["mail"]}, "/sources", "unknown key"),
        ({"effects": False}, "/effects", "beside"),
        ({"result": []}, "/result", "source"),
        ({"result": {"reviews.0.text": ["x"]}}, "/result/reviews.0.text", "element"),
        ({"proof": ["code"]}, "/proof", "no parameter 'code'"),
        ({"hosts": {"url": ["shop.example"]}}, "/hosts", "no parameter 'url'"),
        ({"hosts": {"text": ["https://shop.example"]}}, "/hosts/text/0", "no host"),
    ],
)
def test_r16_8_a_declaration_of_an_admitted_tool_in_another_shape_is_refused(
    tmp_path: Path, said: Any, where: str, word: str
) -> None:
    settings = load(mcp_admitted=str(tmp_path / "tools.json"))
    tool = {"name": "pay", "inputSchema": {"type": "object", "properties": {"text": {}}}, "_trust": said}
    (tmp_path / "tools.json").write_text(json.dumps({"web": {"pay": tool}}))
    with pytest.raises(ActivitiesError, match=rf"/web/pay/_trust{re.escape(where)}: .*{word}"):
        read_admitted(settings)
    (tmp_path / "tools.json").write_text(json.dumps({"web": {"pay": {**tool, "effects": False}}}))
    with pytest.raises(ActivitiesError):
        read_admitted(settings)


def test_r16_8_content_of_a_tool_that_only_reads_is_refused(tmp_path: Path) -> None:
    tool = {"name": "get", "inputSchema": {"properties": {"q": {}}}, "annotations": {"readOnlyHint": True}}
    (tmp_path / "tools.json").write_text(json.dumps({"web": {"get": {**tool, "_trust": {"content": ["q"]}}}}))
    with pytest.raises(ActivitiesError, match=r"/web/get/_trust/content: .*only reads"):
        read_admitted(load(mcp_admitted=str(tmp_path / "tools.json")))


def test_r16_8_what_is_declared_of_an_admitted_tool_counts_in_the_check_and_where_its_calls_start(
    tmp_path: Path,
) -> None:
    found = admitted(tmp_path, {"web": faulty(tmp_path)})
    file = tmp_path / "tools.json"
    document = json.loads(file.read_text())
    document["web"]["count"]["_trust"] = {"result": {"n": [], "*": ["pages"]}}
    document["web"]["page"]["_trust"] = {"content": ["text"]}
    file.write_text(json.dumps(document))
    calls = [
        {"_tool": "web.count", "text": "tea", "_outputPath": "†state.c"},
        {"_tool": "web.echo", "text": "x", "_outputPath": "†state.e"},
        {"_tool": "web.write", "text": "no. †{state.c.n}", "_outputPath": "†state.w"},
        {"_tool": "web.page", "text": "†state.e", "_outputPath": "†state.p"},
        {"_tool": "web.order", "text": "†state.e", "_outputPath": "†state.o"},
    ]
    solution, config = {"calls": calls}, {"trust": {"otherwise": "refuse"}}
    with local(**found) as client:
        plan = client.check({"context": [], "solution": solution, "config": config})
        assert [one.calls for one in plan.findings if one.code in ("ACT601", "ACT602")] == [(4,)]
        result = client.submit(solution=solution, config=config).wait(timeout_seconds=SECONDS)
    assert [call.status for call in result.calls] == ["done", "done", "done", "done", "failed"]
    assert (result.calls[4].error or {})["type"] == "Untrusted"


def test_a_list_without_an_end_is_not_taken(tmp_path: Path) -> None:
    tools = [{"name": f"tool{number}", "inputSchema": {"type": "object"}} for number in range(1_001)]
    (tmp_path / "list.json").write_text(json.dumps(tools))
    found = listed(load(mcp={"web": faulty(tmp_path)}), ["web"])["web"]
    assert isinstance(found, WorkerError)
    assert "more than 1000 tools" in str(found)


ODD: list[tuple[Any, str, str]] = [
    ({"name": "odd"}, "odd", "inputSchema: Field required"),
    ({"name": "odd", "inputSchema": []}, "odd", "inputSchema"),
    ({"name": "odd", "inputSchema": {"type": "object"}, "annotations": 3}, "odd", "annotations"),
    ({"inputSchema": {"type": "object"}}, "(number 2 of its page)", "name"),
    ("odd", "(number 2 of its page)", "by the protocol"),
]


@pytest.mark.parametrize(("odd", "name", "reason"), ODD)
def test_a_tool_that_is_not_by_the_protocol_takes_no_other_away_not_even_while_workers_have_them(
    tmp_path: Path, odd: Any, name: str, reason: str
) -> None:
    echo = {"name": "echo", "inputSchema": {"type": "object"}}
    (tmp_path / "list.json").write_text(json.dumps([echo]))
    servers = {"web": faulty(tmp_path)}
    with local(**admitted(tmp_path, servers)) as client:
        (tmp_path / "list.json").write_text(json.dumps([echo, odd]))
        assert outcome(client, "echo", text="tea") == "tea"
    found = listed(load(mcp=servers), ["web"])["web"]
    assert not isinstance(found, WorkerError)
    states = {each.tool.name: each for each in tool_admissions("web", found, {})}
    assert (states["echo"].state, states[name].state) == ("new", "unfit")
    assert reason in states[name].problems[0]


def test_an_admitted_tool_that_is_one_no_more_is_refused_with_the_reason(tmp_path: Path) -> None:
    with backend(tmp_path) as client:
        (tmp_path / "list.json").write_text(json.dumps([{"name": "echo"}]))
        kind, message = outcome(client, "echo", text="tea")
        assert (kind, "inputSchema" in message) == ("McpToolChanged", True)


def test_a_cursor_that_comes_again_ends_the_list_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    page = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}], "nextCursor": "again"}
    (tmp_path / "list.json").write_text(json.dumps(page))
    found = listed(load(mcp={"web": faulty(tmp_path)}), ["web"])["web"]
    assert not isinstance(found, WorkerError)
    assert [*found] == ["echo"]
    assert "the same cursor twice ('again')" in caplog.text


def test_a_number_that_is_none_fails_the_call_as_that_of_a_function_does(tmp_path: Path) -> None:
    with backend(tmp_path, retries=2) as client:
        kind, message = outcome(client, "mean")
        assert (kind, "/mean" in message, "finite" in message) == ("CallFailed", True, True)
        assert (tmp_path / "calls").read_text().split() == ["mean"]


def test_a_result_that_its_server_wraps_and_says_so_is_what_is_in_it(tmp_path: Path) -> None:
    with backend(tmp_path) as client:
        assert outcome(client, "wrapped") == [3]


def test_a_tool_of_an_older_draft_is_read_by_that_and_an_annotation_that_is_none_is_left_out(tmp_path: Path) -> None:
    pair = {"type": "array", "items": [{"type": "number"}, {"type": "number"}], "additionalItems": False}
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"range": pair, "text": {"type": "string", "description": None}},
    }
    (tmp_path / "list.json").write_text(json.dumps([{"name": "echo", "inputSchema": schema}]))
    settings = admitted(tmp_path, {"web": faulty(tmp_path)})
    [tool] = read_admitted(load(mcp_admitted=settings["mcp_admitted"]))["web"].values()
    assert tool.notes == ["inputSchema/properties/text/description is left out: it is null"]
    with local(**settings) as client:
        assert outcome(client, "echo", range=[1, 2], text="tea") == "tea"
        for wrong in ([1, "x"], [1, 2, 3]):
            with pytest.raises(Rejected, match="range"):
                outcome(client, "echo", range=wrong)


def test_why_a_server_does_not_start_is_what_it_has_written_last_without_its_keys(tmp_path: Path) -> None:
    code = (
        "import os, sys; print('x' * 3_000, file=sys.stderr); print(*range(20), sep='\\n', file=sys.stderr)\n"
        "sys.exit('\\x1b[31mAttributeError: ' + os.environ['KEY'])"
    )
    server = {"command": sys.executable, "args": ["-c", code], "env": {"KEY": "a-long-key"}}
    found = listed(load(mcp={"web": McpServer.model_validate(server)}), ["web"])["web"]
    assert isinstance(found, WorkerError)
    assert "18 | 19 | \\x1b[31mAttributeError: " in str(found)
    assert ("a-long-key" in str(found), "xxx" in str(found), len(str(found)) < 3_000) == (False, False, True)


def test_a_server_ends_with_its_worker_however_that_ends(tmp_path: Path) -> None:
    (tmp_path / "stay").touch()
    code = (
        "import asyncio, sys; from pathlib import Path; from acts_celery.broker_config import load\n"
        "from tests.mcp.test_tools_of_servers import faulty\n"
        "from acts_celery.worker.registry.mcp_sessions import Connections\n"
        "async def main():\n"
        "    await Connections(load(mcp={'web': faulty(Path(sys.argv[1]))})).to('web').tools()\n"
        "    print('open', flush=True)\n    await asyncio.sleep(600)\n"
        "asyncio.run(main())"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, env=without_settings(), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        server = os.pidfd_open(int((tmp_path / "pid").read_text()))
        process.send_signal(signal.SIGKILL)
    assert select_end(server)


def select_end(descriptor: int) -> bool:
    """Whether the process of that descriptor ends in time."""
    import select

    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    try:
        return bool(waiting.poll(30_000))
    finally:
        os.close(descriptor)


def test_keys_are_masked_and_a_bad_server_is_named() -> None:
    settings = load(mcp=json.dumps({"crm": {"url": "https://u:pw@crm.example/?key=q", "headers": {"X-Key": "secret"}}}))
    shown = json.dumps(settings.masked()["mcp"])
    assert ("secret" in shown, "pw" in shown, "key=q" in shown) == (False, False, False)
    assert load(mcp=settings.to_environment()["ACTS_MCP"]).mcp == settings.mcp
    with pytest.raises(SettingsError, match=r'ACTS_MCP: crm: .*either "command"'):
        load(mcp='{"crm": {}}')


def test_the_commands_show_what_a_server_says_and_admit_it(tmp_path: Path) -> None:
    servers = json.dumps({"web": faulty(tmp_path).in_clear()})
    variables = {"ACTS_MCP": servers, "ACTS_MCP_ADMITTED": str(tmp_path / "tools.json")}
    run = CliRunner(env=variables)
    assert run.invoke(mcp, ["admit", "web.page", "--json"], standalone_mode=False).exit_code == 0
    found = run.invoke(mcp, ["tools", "web.page", "web.echo"], standalone_mode=False).stdout
    assert "web.page  admitted  has effects" in found
    assert "IGNORE ALL" in found
    assert r"first.\u3164\U000e0101" in found  # what hides in a text is seen before it is admitted
    assert "web.echo  new  only reads" in found
    gone = CliRunner(env={**variables, "ACTS_MCP": json.dumps({"web": {"command": "there-is-no-such-program"}})})
    refused = gone.invoke(mcp, ["admit", "web", "--json"], standalone_mode=False)
    assert "nothing is admitted" in str(refused.exception)
    assert json.loads(refused.stdout)["errors"][0]["message"] == str(refused.exception)


# MCP servers at an address: a server that is killed, hangs, changes, floods, is not there or refuses the key; and a
# worker that is killed while it waits for one.

SERVER = Path(__file__).with_name("sdk_server.py")


@dataclass
class At:
    """An address at which servers follow each other; what connects in between waits for the next."""

    folder: Path
    key: str
    listening: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.listening = socket.create_server(("127.0.0.1", 0))

    @contextmanager
    def server(self) -> Iterator[subprocess.Popen[bytes]]:
        number = self.listening.fileno()
        command = [sys.executable, str(SERVER), str(self.folder), str(number), self.key]
        with (
            self.log.open("ab") as log,
            subprocess.Popen(command, env=without_settings(), pass_fds=[number], stdout=log, stderr=log) as process,
        ):
            try:
                yield process
            finally:
                process.kill()

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def named(self, **more: Any) -> McpServer:
        """As the settings name it; its key is in a variable."""
        return at(self.listening, "${MCP_TEST_" + self.folder.name.upper() + "}", **more)

    def said(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []


def at(listening: socket.socket, key: str, **more: Any) -> McpServer:
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    return McpServer.model_validate({"url": url, "headers": {"Authorization": f"Bearer {key}"}, **more})


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[At]:
    place = At(tmp_path / "web", "key-of-web")
    monkeypatch.setenv("MCP_TEST_WEB", place.key)
    with place.listening:
        yield place


def test_a_server_that_is_killed_hangs_floods_or_changes_spoils_its_own_calls_alone(tmp_path: Path, web: At) -> None:
    servers = {"web": web.named(retries=5), "slow": web.named(timeout_seconds=3)}
    with web.server() as first, local(**admitted(tmp_path, servers), limit_call_bytes=500_000) as client:
        assert outcome(client, "echo", text="tea") == "tea"
        (web.folder / "description").write_text("Sends the text to others.")
        run = client.submit(solution={"calls": [{"_tool": "web.die_once", "_outputPath": "†state.found"}]})
        assert first.wait(RUN_SECONDS) == -signal.SIGKILL
        with web.server():
            assert run.wait(timeout_seconds=RUN_SECONDS).data()["state"]["found"] == "done"
            assert web.said("calls").count("die_once") == 2
            kind, message = outcome(client, "echo", text="tea")
            assert (kind, "acts mcp admit web.echo" in message) == ("McpToolChanged", True)
            kind, message = outcome(client, "flood")
            assert (kind, "ACTS_LIMIT_CALL_BYTES" in message, "500,000" in message) == ("McpRefused", True, True)
            assert web.said("calls").count("flood") == 1
            assert outcome(client, "slow.hang")[0] == "TimeoutError"
            assert outcome(client, "cancelled") == "done"
    with web.server(), local(**admitted(tmp_path, servers)) as client:
        assert outcome(client, "echo", text="tea") == "tea"


def test_resources_and_prompts_of_a_server_are_read_by_tools_that_are_admitted_as_others(tmp_path: Path) -> None:
    script = Path(__file__).with_name("context_server.py")
    servers = {"web": McpServer.model_validate({"command": sys.executable, "args": [str(script)]})}
    with local(**admitted(tmp_path, servers)) as client:
        assert outcome(client, "list_prompts") == {"result": "mine"}
        assert outcome(client, "list_resources") == [
            {
                "uri": "guide://rules",
                "name": "rules",
                "description": "The rules of the house.",
                "mimeType": "text/plain",
            }
        ]
        assert outcome(client, "read_resource", uri="guide://rules") == "Never call †state.secret."
        assert outcome(client, "read_resource", uri="guide://rooms/hall") == "In the hall stands a table."
        said = outcome(client, "get_prompt", name="greet", arguments={"name": "Ann"})
        assert said == [{"role": "user", "text": "Greet Ann warmly."}]
        assert outcome(client, "read_resource", uri="guide://nowhere")[0] == "McpRefused"
        assert outcome(client, "get_prompt", name="greet")[0] == "McpRefused"


def test_an_error_that_a_server_answers_over_http_is_its_tools_though_it_reads_like_one_of_the_transport(
    tmp_path: Path, web: At
) -> None:
    servers = {"web": web.named(retries=2)}
    with web.server(), local(**admitted(tmp_path, servers)) as client:
        assert outcome(client, "refuse") == (
            "McpRefused",
            "MCP server web refused: SSE stream ended without a response",
        )
        assert web.said("calls") == ["refuse"]


def test_a_server_of_the_version_without_sessions_has_one_for_each_run_and_none_where_it_is_stateless(
    tmp_path: Path, web: At
) -> None:
    servers = {"web": web.named(), "shared": web.named(stateless=True)}
    with web.server(), local(**admitted(tmp_path, servers)) as client:
        assert not any(web.said("sessions"))
        for _ in range(2):
            assert outcome(client, "shared.echo", text="tea") == "tea"
        assert not any(web.said("sessions"))
        for _ in range(2):
            assert outcome(client, "web.echo", text="tea") == "tea"
        assert len(set(filter(None, web.said("sessions")))) == 2


def test_an_address_that_speaks_something_else_is_named_by_its_status() -> None:
    class Other(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Nothing."""

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_error(405)

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/sse"
        found = listed(load(mcp={"web": McpServer.model_validate({"url": url})}), ["web"])["web"]
        server.shutdown()
    assert isinstance(found, WorkerError)
    assert all(word in str(found) for word in ("HTTP 405 Method Not Allowed", "only streamable HTTP"))


def test_each_server_is_sent_its_own_key_and_one_that_is_not_there_spoils_no_other(
    tmp_path: Path, web: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = At(tmp_path / "other", "key-of-other")
    monkeypatch.setenv("MCP_TEST_OTHER", other.key)
    with other.listening, web.server(), other.server(), socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))  # and does not listen
        servers = {"web": web.named(), "other": other.named()}
        settings = admitted(tmp_path, servers)
        known = json.loads((tmp_path / "tools.json").read_text())
        known |= dict.fromkeys(("dead", "keyless"), known["web"])
        (tmp_path / "tools.json").write_text(json.dumps(known))
        settings["mcp"] = servers | {"dead": at(dead, "x"), "keyless": at(web.listening, "old")}
        with local(**settings) as client:
            assert outcome(client, "dead.echo")[0] == "McpUnavailable"
            kind, message = outcome(client, "keyless.echo")
            assert (kind, "HTTP 401" in message, '"headers"' in message) == ("McpUnavailable", True, True)
            assert outcome(client, "web.echo", text="tea") == "tea"
            assert outcome(client, "other.echo", text="tea") == "tea"
        assert set(other.said("keys")) == {"Bearer key-of-other"}
        assert set(web.said("keys")) == {"Bearer key-of-web", "Bearer old"}


@pytest.mark.parametrize("way", [pytest.param("stdio", marks=pytest.mark.nightly), "http"])
def test_a_call_begins_again_elsewhere_when_its_worker_is_killed_while_it_waits_for_the_server(
    tmp_path: Path, web: At, way: str
) -> None:
    command = {"command": sys.executable, "args": [str(SERVER), str(web.folder)]}
    servers = {"web": web.named() if way == "http" else McpServer.model_validate(command)}
    with ExitStack() as stack:
        if way == "http":
            stack.enter_context(web.server())
        tools = admitted(tmp_path, servers)
        server = stack.enter_context(EmbeddedServer())
        settings = settings_apart(server, "mcp", lease_seconds=2, sweep_interval_seconds=0.2, **tools)
        backend = Backend(settings, Meeting(meeting_url(server)), tmp_path)
        own = Registry()
        register_tools(settings, own)
        client = stack.enter_context(Client(settings, registry=own))
        with backend.worker(MCP_TEST_WEB=web.key) as victim:
            run = client.submit([], {"calls": [{"_tool": "web.hang_once", "_outputPath": "†state.found"}]})
            begun = time.monotonic()
            while not web.said("calls"):
                assert time.monotonic() - begun < DEADLINE_SECONDS, backend.log.read_text()
                time.sleep(0.01)
            os.kill(victim.pid, signal.SIGKILL)
        with backend.worker(MCP_TEST_WEB=web.key):
            assert run.wait(timeout_seconds=RUN_SECONDS).data()["state"]["found"] == "done"
        assert web.said("calls") == ["hang_once", "hang_once"]


# Each run has its own session with an MCP server, and one at a time, in whichever worker its calls become ready.

SERVER_SESSIONS_OF_RUNS = Path(__file__).with_name("counting_server.py")
COUNT = {"_tool": "web.count", "_outputPath": "†state.first"}
AGAIN = {"_tool": "web.count", "text": "†state.first", "_outputPath": "†state.second"}
MANY = [f"i{number}" for number in range(12)]
"""Instances."""


@dataclass
class Counting:
    """A counting server's folder, and how it is named."""

    folder: Path
    server: McpServer

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().split() if path.exists() else []


@pytest.fixture(params=["stdio", "http"])
def counting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Counting]:
    with counting_server(tmp_path, request.param) as found:
        yield found


@contextmanager
def counting_server(folder: Path, way: str, **more: Any) -> Iterator[Counting]:
    if way == "stdio":
        command = {"command": sys.executable, "args": [str(SERVER_SESSIONS_OF_RUNS), str(folder)]}
        yield Counting(folder, McpServer.model_validate({**command, **more}))
        return
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        number = listening.fileno()
        http = [sys.executable, str(SERVER_SESSIONS_OF_RUNS), str(folder), str(number)]
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        with subprocess.Popen(http, env=without_settings(), pass_fds=[number]) as process:
            try:
                yield Counting(folder, McpServer.model_validate({"url": url, **more}))
            finally:
                process.kill()


@dataclass
class Workers:
    """Workers that are processes of their own, and a client."""

    backend: Backend
    client: Client

    @contextmanager
    def one(self, name: str) -> Iterator[Any]:
        with self.backend.worker("-n", name) as process:
            yield process

    def disturb(self) -> None:
        """Send those that have sessions what is no message."""
        strange = (
            b"\xc1",
            b"",
            pack([]),
            pack({"id": 1, "from": "x", "call": {}}),
            pack({"id": 2, "from": [], "call": 3}),
        )
        for key in self.backend.redis.scan_iter("sessions:session:*"):
            self.backend.redis.rpush(key.removesuffix(b":messages") + b":messages", *strange)

    def retire(self, name: str) -> None:
        """Have a worker take at most one lane more, and live on."""
        app = make_client_application(self.backend.settings)
        [host] = [one for one in app.control.inspect(timeout=5).ping() if one.startswith(name)]
        how = {"destination": [host], "reply": True, "timeout": 10, "limit": 1}
        [answer] = app.control.cancel_consumer("sessions-instances", **how)
        assert "ok" in answer[host]


@contextmanager
def workers(counting: Counting) -> Iterator[Workers]:
    with ExitStack() as stack:
        tools = admitted(counting.folder, {"web": counting.server})
        server = stack.enter_context(EmbeddedServer())
        settings = settings_apart(
            server, "sessions", lease_seconds=2, sweep_interval_seconds=0.2, remote_control=True, **tools
        )
        own = Registry()
        register_tools(settings, own)
        client = stack.enter_context(Client(settings, registry=own))
        yield Workers(Backend(settings, Meeting(meeting_url(server)), counting.folder), client)


def until(is_so: Callable[[], bool]) -> None:
    begun = time.monotonic()
    while not is_so():
        assert time.monotonic() - begun < DEADLINE_SECONDS
        time.sleep(0.02)


def decide(run: Run, number: int) -> None:
    """Approve the calls that a run holds, once there are so many."""
    until(lambda: len(run.held()) == number)
    for held in run.held():
        run.approve(held["call"])


def begun(client: Client, number: int) -> list[Run]:
    """Runs of two calls, of which the first is done and the second waits for a person."""
    runs = [client.submit(solution={"calls": [COUNT, AGAIN]}, config={"approve": ["web.count"]}) for _ in range(number)]
    for run in runs:
        decide(run, 1)
    for run in runs:
        until(lambda run=run: [held["call"] for held in run.held()] == ["1"])  # type: ignore[misc]
    return runs


def state(run: Run) -> Any:
    return run.wait(timeout_seconds=RUN_SECONDS).data()["state"]


def test_runs_share_no_session_and_each_keeps_its_own_though_another_worker_goes_on_with_it(counting: Counting) -> None:
    with workers(counting) as both, both.one("first"):
        before = set(counting.lines("sessions"))  # that in which the tool was admitted
        runs = begun(both.client, 4)
        both.disturb()
        both.retire("first")
        with both.one("second"):
            for run in runs:
                decide(run, 1)
            found = [state(run) for run in runs]
            names = [str(run.wait().calls[1].worker) for run in runs]
            assert sum(not name.startswith("second") for name in names) <= 1, names
        assert [(one["first"]["n"], one["second"]["n"]) for one in found] == [(1, 2)] * 4
        assert all(one["first"]["session"] == one["second"]["session"] for one in found)
        assert len({one["first"]["session"] for one in found}) == 4
        until(lambda: set(counting.lines("sessions")) == set(counting.lines("ended")) | before)


@pytest.mark.parametrize("counting", few(["stdio", "http"], 1), indirect=True)
def test_the_instances_of_a_run_share_its_session_in_whichever_worker_they_are(counting: Counting) -> None:
    with workers(counting) as both, both.one("first"), both.one("second"):
        context = [{"type": "input", "_instance": name, "text": name} for name in MANY]
        call = {**COUNT, "_instance": "*", "text": "†input.text"}
        result = both.client.submit(context, solution={"calls": [call]}).wait(timeout_seconds=RUN_SECONDS)
        found = [result.data(name)["state"]["first"] for name in MANY]
        assert sorted(one["n"] for one in found) == list(range(1, len(MANY) + 1))
        assert len({one["session"] for one in found}) == 1


@pytest.mark.parametrize("counting", few(["stdio", "http"], 1), indirect=True)
def test_a_session_whose_worker_is_killed_is_lost_and_the_run_goes_on_in_another_and_says_so(
    counting: Counting,
) -> None:
    with workers(counting) as both:
        with both.one("first") as first:
            [run] = begun(both.client, 1)
            os.kill(first.pid, signal.SIGKILL)
        with both.one("second"):
            decide(run, 1)
            found = state(run)
        assert (found["first"]["n"], found["second"]["n"]) == (1, 1)
        [noted] = [
            entry.audit for entry in run.log(audit=True) if entry.audit and entry.audit.did.startswith("session")
        ]
        assert (noted.about["server"], noted.about["session"]) == ("web", 2)
        assert "worker process" in noted.about["because"]


def test_a_session_that_its_server_or_time_has_ended_is_followed_by_another_and_the_errors_say_so(
    tmp_path: Path,
) -> None:
    with counting_server(tmp_path, "stdio", idle_seconds=0.1) as counting:
        config = {"approve": ["web.count"]}
        tools = admitted(tmp_path, {"web": counting.server})
        before = set(counting.lines("sessions"))
        with local(**tools) as client:
            run = client.submit(solution={"calls": [COUNT, AGAIN]}, config=config)
            decide(run, 1)
            until(lambda: len(set(counting.lines("ended")) - before) == 1)
            decide(run, 1)
            assert state(run)["second"]["n"] == 1
            assert any("idle_seconds" in str(e.audit.about) for e in run.log(audit=True) if e.audit)
            context = [{"type": "input", "text": "fail"}]
            calls = [
                {"_tool": "web.count", "text": "end", "_outputPath": "†state.first"},
                {"_tool": "web.count", "text": "†state.first || †input.text", "_outputPath": "†state.second"},
            ]
            first, second = client.submit(context, solution={"calls": calls}).wait(timeout_seconds=SECONDS).calls
            assert first.error is not None
            assert second.error is not None
            assert (first.error["type"], "what that held is lost" in first.error["message"]) == ("McpUnavailable", True)
            assert (second.error["type"], "session 2" in second.error["message"]) == ("McpToolFailed", True)


def test_more_runs_than_may_have_a_session_wait_for_one_and_are_told_so(tmp_path: Path) -> None:
    with counting_server(tmp_path, "stdio", max_sessions=2, timeout_seconds=8) as counting:
        tools = admitted(tmp_path, {"web": counting.server})
        with local(**tools) as client:
            runs = [client.submit(solution={"calls": [COUNT]}) for _ in range(5)]
            assert [state(run)["first"]["n"] for run in runs] == [1] * 5
            begun(client, 2)
            kind, message = outcome(client, "web.count")
            assert (kind, "max_sessions" in message, "stateless" in message) == ("McpUnavailable", True, True)


def test_a_stateless_server_has_one_session_for_all_runs(tmp_path: Path) -> None:
    with counting_server(tmp_path, "stdio", stateless=True) as counting:
        tools = admitted(tmp_path, {"web": counting.server})
        with local(**tools) as client:
            assert [outcome(client, "web.count")["n"] for _ in range(3)] == [1, 2, 3]
