"""What goes wrong in the first minutes is told with what, where and the way out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from acts_celery import InfrastructureError
from acts_celery.broker_config import EmbeddedServer
from tests.acceptance.command import COMMAND, Finished, acts, environment

from .backend import settings_for

CALL = {"solution": {"calls": [{"_tool": "greet", "_outputPath": "†state.a"}]}}
GOOD = "from acts_celery import activity\n\n\n@activity\ndef greet(name: str) -> str:\n    return name\n"


def checked(source: str, folder: Path, **env: str) -> Finished:
    file = folder / "mine.py"
    file.write_text(source)
    return acts("check", "-", "--activities", str(file), stdin=CALL, env=env)


def test_a_missing_parameter_is_reported_with_its_tool(tmp_path: Path) -> None:
    assert checked(GOOD, tmp_path).error_lines == ['acts: /solution/calls/0: greet: "name" is a required property']


def test_a_folder_of_request_definitions_that_is_not_there_is_named(tmp_path: Path) -> None:
    told = checked(GOOD, tmp_path, ACTS_DELEGATES=f"{tmp_path},{tmp_path}/none,https://example.org/definitions/")
    assert [line for line in told.error_lines if "ACTS_DELEGATES" in line] == [
        f"acts: warning: ACTS_DELEGATES: {tmp_path}/none is no folder here, so there is no request definition in it"
    ]


def test_a_file_that_registers_nothing_is_named(tmp_path: Path) -> None:
    told = checked("def greet(name): ...\n", tmp_path)
    assert told.code == 2
    assert told.error_lines[-1].startswith(f"acts: {tmp_path}/mine.py registers no activity: put @activity")
    folder = acts("check", "-", "--activities", str(tmp_path), stdin=CALL)
    assert folder.error_lines == [
        f"acts: no activities file at {tmp_path}: it is a folder; name a file.py in it, or a module"
    ]
    assert "no activities are loaded: name them with" in acts("check", "-", stdin=CALL).error_lines[-1]


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ('retries="three"', "retries is 'three': a whole number, such as retries=3"),
        ("timeout_seconds=[]", "timeout_seconds is []: a number"),
        ("max_concurrency=True", "max_concurrency is True: a whole number"),
        ("retries=-1", "retries is -1: at least 0"),
    ],
)
def test_an_option_of_an_activity_that_is_no_number_is_reported_with_its_line(
    tmp_path: Path, option: str, said: str
) -> None:
    told = checked(GOOD.replace("@activity", f"@activity({option})"), tmp_path)
    assert (told.code, told.error_lines[0].startswith(f"acts: {tmp_path}/mine.py:4: {said}")) == (2, True), told


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("@activity(timeout=3)", "has no argument 'timeout', did you mean 'timeout_seconds'? ({file}:4)"),
        ('@activity(name="a")', "has no argument 'name'; it takes a name first, and queue, "),
        ("@delegate", '{file}:4: a delegate has a name of its own: write @delegate("NAME") above the function'),
        ("a = activity(lambda: 1)", '{file}:4: a lambda has no name: write activity("NAME")(lambda …)'),
        ("import json\njson.loads('{')\n", "column 2 (char 1) ({file}:5)"),
    ],
)
def test_a_slip_of_a_module_is_reported_with_its_own_line(tmp_path: Path, source: str, said: str) -> None:
    told = checked(f"from acts_celery import activity, delegate\n\n\n{source}\ndef greet(name: str): ...\n", tmp_path)
    assert (told.code, said.format(file=tmp_path / "mine.py") in told.error_lines[0]) == (2, True), told


def test_what_is_no_json_is_reported_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text('{"a": ')
    assert acts("check", str(file)).error_lines[0].startswith(f"acts: {file}: not JSON: ")
    assert acts("check", "-", stdin=b"{").error_lines[0].startswith("acts: standard input: not JSON: ")


def test_settings_are_reported_with_what_they_should_be(tmp_path: Path) -> None:
    for name, value, said in (
        ("ACTS_MODEL", "gpt", "should be PROVIDER:NAME, such as openai:gpt-4o, or scripted:FILE.json"),
        ("ACTS_CONCURRENCY", "zero", "should be a whole number"),
        ("ACTS_STRICT_META", "maybe", "should be true or false"),
        ("ACTS_LIMIT_MESSAGE_BYTES", "many", "should be a size, such as 1048576 or 64MiB"),
        ("ACTS_KEY_PREFIX", "a b", "should be of letters, digits, hyphens, dots, colons and _"),
        ("ACTS_LIMIT_DEPTH", "0", "should be greater than 0"),
    ):
        told = checked(GOOD, tmp_path, **{name: value})
        assert (told.code, told.error_lines) == (2, [f"acts: {name}: {said} (it is '{value}')"])


def test_a_limit_is_reported_with_the_setting_that_raises_it() -> None:
    many = {"context": [{"type": "text", "_instance": str(n)} for n in range(3)], **CALL}
    told = acts("check", "-", stdin=many, env={"ACTS_LIMIT_INSTANCES": "2", "ACTS_LIMIT_MESSAGES": "2"})
    assert [line.rpartition(" ")[2] for line in told.error_lines[:2]] == [
        "(ACTS_LIMIT_MESSAGES)",
        "(ACTS_LIMIT_INSTANCES)",
    ]


def test_a_line_of_dotenv_that_cannot_be_read_is_reported_in_our_words(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("ACTS_CONCURRENCY=3\nthis is no line\n")
    command = [*COMMAND, "check", "-"]
    told = subprocess.run(command, cwd=tmp_path, env=environment(), input=b"{}", capture_output=True, check=False)
    lines = told.stderr.decode().splitlines()
    assert lines[0] == "acts: .env: line 2 is ignored: it is not NAME=value"
    assert "dotenv" not in told.stderr.decode()


def test_a_log_that_is_full_says_so_and_what_to_do() -> None:
    with EmbeddedServer() as server:
        settings = settings_for(server)
        from acts_celery import Client

        with Client(settings) as client:
            client.dead_letters().count()
            client._redis.config_set("maxmemory", "1")
            with pytest.raises(InfrastructureError, match=r"is full .*raise its maxmemory.*acts doctor"):
                client.submit([], {"calls": []})
            client._redis.config_set("maxmemory", "0")


def test_an_interrupt_while_modules_load_is_one_line(tmp_path: Path) -> None:
    # The first import of the command finds this module, which is interrupted where another would still be loading.
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    env = environment() | {"PYTHONPATH": os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])}
    told = subprocess.run(
        [sys.executable, "-m", "acts_celery", "check", "-"], env=env, capture_output=True, check=False
    )
    assert (told.returncode, told.stderr) == (128 + signal.SIGINT, b"acts: interrupted\n")
