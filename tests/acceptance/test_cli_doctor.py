"""`acts --help` and `acts doctor` (INTERFACE): what a person without a manual finds out."""

from __future__ import annotations

import re
from functools import partial

from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.cli import acts as group

from .backend import Backend, server_settings
from .command import UNREACHABLE, acts, at_once, completed

COMMANDS = ["run", "check", "submit", "status", "show", "log", "worker", "doctor"]
LAYERS = ["settings", "broker", "log", "workers", "queues", "versions"]
GIVE = {"_tool": "give", "value": 1, "_outputPath": "†state.x"}


def test_every_command_explains_itself() -> None:
    for result in at_once(partial(acts, command, "--help") for command in COMMANDS):
        assert result.code == 0, result
        missing = {"--json", "--activities", "--broker", "--redis"} - set(re.findall(r"--[a-z]+", result.stdout))
        assert not missing, result


def test_the_help_has_eight_commands_first_and_all_others_in_four_groups() -> None:
    result = acts("--help")
    assert result.code == 0
    headings = re.findall(r"^(\w+):\n", result.stdout.partition("Options:\n")[2], re.MULTILINE)
    assert headings == ["Commands", "Run", "Look", "Steer", "Operate"]
    first = result.stdout.partition("Commands:\n")[2].partition("\nRun:\n")[0]
    assert re.findall(r"^  (\w+)  ", first, re.MULTILINE) == COMMANDS
    listed = re.findall(r"^  (\w+)  ", result.stdout.partition("Commands:\n")[2], re.MULTILINE)
    assert sorted(listed) == sorted(group.commands)


def test_the_doctor_finds_every_layer_well_where_a_worker_runs(backend: Backend) -> None:
    completed(backend.run({"context": [], "solution": {"calls": [GIVE]}}))  # so the worker is up
    result, machine = at_once(partial(backend.acts, "doctor", *options) for options in ((), ("--json",)))
    assert result.code == 0, result
    for layer in LAYERS:
        assert any(layer in line.lower() for line in result.stdout.splitlines()), (layer, result)
    assert machine.code == 0
    assert isinstance(machine.json, dict)


def test_the_doctor_says_what_is_wrong_where_no_server_is() -> None:
    result, machine = at_once(partial(acts, "doctor", *options, *UNREACHABLE) for options in ((), ("--json",)))
    assert result.code == 3
    assert "127.0.0.1:1" in result.stdout + result.stderr
    assert machine.code == 3
    assert isinstance(machine.json, dict)


def test_the_doctor_notices_that_no_worker_runs(bare_server: EmbeddedServer) -> None:
    result = acts("doctor", env=server_settings(bare_server))
    assert result.code == 3, result
    assert "worker" in result.stdout + result.stderr


def test_the_doctor_masks_secrets() -> None:
    url = "redis://user:hunter2@127.0.0.1:1/0"
    result = acts("doctor", "--broker", url, "--redis", url, env={"ACTS_MODEL_API_KEY": "sk-hunter2"})
    assert "hunter2" not in result.stdout + result.stderr


def test_an_option_wins_over_the_environment(bare_server: EmbeddedServer) -> None:
    env = server_settings(bare_server)
    result = acts("status", "some-run", "--json", *UNREACHABLE, env=env)
    assert result.code == 3
    assert "127.0.0.1:1" in result.stderr
