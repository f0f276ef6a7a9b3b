"""The files for containers and for supervisord agree with the tree, each other and the real commands."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
import yaml
from flower.options import options as flower_options

from acts_celery.broker_config import Settings
from acts_celery.broker_config.embedded import VARIABLE
from tests.models.foreign.installed import python_with

from .files import (
    COMPOSE,
    DEPLOY,
    NAMES,
    ROLES,
    ROOT,
    SERVICES,
    dockerfile,
    image_command,
    instructions,
    interpolated,
    program_commands,
    programs,
    service_commands,
    strings,
)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PASSWORDS = {name: name.lower() for name in NAMES}
DEADLINE_SECONDS = 30

# The attributes of the Compose specification that we use, each with the types it may have.
SERVICE_KEYS: dict[str, type | tuple[type, ...]] = {
    "image": str,
    "build": dict,
    "user": str,
    "entrypoint": list,
    "command": list,
    "environment": dict,
    "volumes": list,
    "mem_limit": str,
    "networks": list,
    "ports": list,
    "profiles": list,
    "depends_on": dict,
    "deploy": dict,
    "healthcheck": dict,
    "restart": str,
    "init": bool,
    "read_only": bool,
    "tmpfs": list,
    "cap_drop": list,
    "security_opt": list,
    "stop_grace_period": str,
}
HEALTHCHECK_KEYS = {"test", "interval", "timeout", "retries", "start_period", "disable"}


@cache
def said_by(*command: str) -> str:
    """What a real command prints."""
    finished = subprocess.run(
        [sys.executable, "-m", *command],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"ACTS_BROKER_URL": "redis://127.0.0.1:1/0", "COLUMNS": "200"},
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def check_command(command: list[str]) -> None:
    """Every subcommand and option of a command is one that the real program has."""
    program, *rest = command[2:] if command[:2] == ["python", "-m"] else command
    options = {word.partition("=")[0] for word in rest if word.startswith("--")}
    match [program, *rest]:
        case ["acts" | "acts_celery", subcommand, *_]:
            assert re.search(rf"^\s+{subcommand}\b", said_by("acts_celery", "--help"), re.MULTILINE), subcommand
            known = said_by("acts_celery", subcommand, "--help")
        case ["celery", "-A", "acts_celery", "flower", *_]:
            known = " ".join(f"--{name.replace('_', '-')}" for name in flower_options)
        case ["celery", "-A", "acts_celery", "inspect", method, *_]:
            assert method in said_by("celery", "inspect", "--list").split()
            known = said_by("celery", "inspect", "--help")
        case _:
            known = said_by(program, "--help")
    assert all(re.search(rf"{option}\b", known) for option in options), (command, known)


def queues_of(command: list[str]) -> str | None:
    return command[command.index("--queues") + 1] if "--queues" in command else None


def test_compose_uses_attributes_of_the_specification_with_their_types() -> None:
    assert {key for key in COMPOSE if not key.startswith("x-")} == {"name", "services", "networks", "volumes"}
    for service in SERVICES.values():
        assert all(isinstance(value, SERVICE_KEYS[key]) for key, value in service.items())
        assert set(service.get("healthcheck", {})) <= HEALTHCHECK_KEYS
        assert service["restart"] in {"no", "always", "unless-stopped"}
        durations = [
            value for key, value in service.get("healthcheck", {}).items() if key not in {"test", "retries", "disable"}
        ]
        for duration in [*durations, service.get("stop_grace_period", "1s")]:
            assert re.fullmatch(r"\d+(ms|s|m|h)", duration)


def test_compose_refers_only_to_what_it_defines() -> None:
    for service in SERVICES.values():
        assert set(service.get("depends_on", {})) <= set(SERVICES)
        assert set(service["networks"]) <= set(COMPOSE["networks"])
        for volume in service.get("volumes", ()):
            source = interpolated(volume, PASSWORDS).partition(":")[0]
            assert source in COMPOSE["volumes"] or (DEPLOY / source).exists()
        for awaited, how in service.get("depends_on", {}).items():
            assert how["condition"] != "service_healthy" or "test" in SERVICES[awaited]["healthcheck"]


def test_compose_asks_for_the_passwords_and_for_nothing_else() -> None:
    whole = "\n".join(strings(COMPOSE))
    assert "${" not in interpolated(whole, PASSWORDS)
    for missing in PASSWORDS:
        given = {name: value for name, value in PASSWORDS.items() if name != missing}
        with pytest.raises(KeyError, match=missing):
            interpolated(whole, given)


def test_no_password_stands_on_a_command_line() -> None:
    for service in SERVICES.values():
        words = " ".join([*service.get("entrypoint", ()), *service.get("command", ())])
        assert not re.search(r"(?<!\$)\$\{\w*PASSWORD", words)
    for program in programs().values():
        assert "PASSWORD)s" not in program["command"]


def test_images_are_pinned_and_ports_are_published_on_loopback_alone() -> None:
    images = [service["image"] for service in SERVICES.values() if "build" not in service]
    images += [text.partition("=")[2] for text in instructions("ARG") if "IMAGE" in text]
    assert images
    assert all(re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+[\w.-]*", image) for image in images)
    assert all(text.startswith("${PYTHON_IMAGE}") for text in instructions("FROM"))
    for service in SERVICES.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


def test_only_our_processes_reach_redis() -> None:
    assert COMPOSE["networks"]["data"] == {"internal": True}
    assert SERVICES["redis"]["networks"] == ["data"]
    assert "ports" not in SERVICES["redis"]


def test_containers_run_unprivileged() -> None:
    users = [index for index, instruction in enumerate(dockerfile()) if instruction.name == "USER"]
    last_from = max(index for index, instruction in enumerate(dockerfile()) if instruction.name == "FROM")
    assert users[-1] > last_from
    assert instructions("USER")[-1] not in {"root", "0"}
    for service in SERVICES.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_the_image_is_built_of_what_the_project_consists_of() -> None:
    build = SERVICES["instances"]["build"]
    context = DEPLOY / build["context"]
    assert context.resolve() == ROOT
    assert (context / build["dockerfile"]).is_file()
    stages = {text.split(" AS ")[1] for text in instructions("FROM") if " AS " in text}
    sources: set[str] = set()
    for copy in instructions("COPY"):
        words = shlex.split(copy)
        if words[0].startswith("--from="):
            assert words[0].removeprefix("--from=") in stages
        else:
            sources |= {source.rstrip("/") for source in words[:-1]}
    project = PROJECT["project"]
    (package,) = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    packages = {package, *(path.readlink().name for path in (ROOT / package).iterdir() if path.is_symlink())}
    locks = {"deploy/build.lock", "deploy/requirements.lock"}
    assert sources == {"pyproject.toml", project["readme"], *project["license-files"], *packages, *locks}
    assert all((ROOT / source).exists() for source in sources)
    admitted = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert {line[1:].rstrip("/") for line in admitted if line.startswith("!")} == sources
    (version,) = re.findall(r"python:(3\.\d+)", " ".join(instructions("ARG")))
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]


def test_every_command_is_one_the_real_programs_understand() -> None:
    for command in [*service_commands().values(), *program_commands().values(), image_command()]:
        check_command(command)


def test_the_health_check_of_the_image_reads_where_its_workers_write() -> None:
    (text,) = instructions("HEALTHCHECK")
    (command,) = re.findall(r"CMD (\[.*\])", text)
    check_command(json.loads(command))
    assert json.loads(command) == ["acts", "health"]
    (variables,) = instructions("ENV")
    folder = dict(pair.split("=") for pair in variables.split())["ACTS_HEALTH_FOLDER"]
    for name, service in SERVICES.items():
        if name in program_commands() and "worker" in service.get("command", ())[:1]:
            assert "healthcheck" not in service
            assert any(Path(folder).is_relative_to(writable) for writable in service["tmpfs"])


def test_both_topologies_consist_of_the_same_workers() -> None:
    by_compose = {name: queues_of(command) for name, command in service_commands().items()}
    by_supervisor = {name: queues_of(command) for name, command in program_commands().items()}
    workers = {name: queues for name, queues in by_compose.items() if queues is not None}
    assert workers == {name: queues for name, queues in by_supervisor.items() if queues is not None}
    known = {Settings.model_fields[f"queue_{name}"].default for name in ("instances", "delegates", "background")}
    assert set(workers.values()) == known
    assert set(by_supervisor) == set(SERVICES) - {"cli", "traces", "metrics", "prometheus", "grafana"}


def test_everything_comes_back_after_a_crash_and_has_time_to_finish() -> None:
    for name, program in programs().items():
        assert program["autorestart"] == "true"
        assert program["stopsignal"] == "TERM"
        assert SERVICES[name]["restart"] == "unless-stopped"
        if name not in {"flower", "ui"}:
            assert SERVICES[name]["stop_grace_period"] == f"{program['stopwaitsecs']}s"


def test_in_compose_each_service_has_the_password_of_its_own_user_and_those_who_ask_it_the_models_key() -> None:
    environments = {name: service.get("environment", {}) for name, service in SERVICES.items()}
    for key in ("ACTS_MODEL_API_KEY", "ACTS_MODELS"):
        assert {name for name, given in environments.items() if key in given} == {"delegates", "background"}
    for name, given in environments.items():
        user = {"cli": "clients", "ui": "clients", "traces": "clients"}.get(name, name).upper()
        found = set(re.findall(r"REDIS_PASSWORD_(\w+)", "\n".join(strings(given))))
        assert found == {"REDIS": set(ROLES), "PROMETHEUS": set(), "GRAFANA": set()}.get(user, {user})


def test_every_container_has_a_limit_of_memory_and_redis_one_of_its_own_below_it() -> None:
    assert all(service["mem_limit"] for service in SERVICES.values())
    sizes = {"m": 2**20, "g": 2**30}
    limit, own = (
        interpolated(text, {}).removesuffix("b")
        for text in (SERVICES["redis"]["mem_limit"], SERVICES["redis"]["environment"]["REDIS_MEMORY"])
    )
    assert int(limit[:-1]) * sizes[limit[-1]] >= 2 * int(own[:-1]) * sizes[own[-1]]


def test_every_setting_named_in_deploy_exists() -> None:
    known = {VARIABLE, *(f"ACTS_{name.upper()}" for name in Settings.model_fields)}
    files = [path for pattern in ("Dockerfile", "*.md", "*.yaml", "*.conf", "*.py") for path in DEPLOY.rglob(pattern)]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    named = set(re.findall(r"\bACTS_[A-Z_]*[A-Z]\b", text))
    assert "ACTS_BROKER_URL" in named
    assert named <= known


def test_prometheus_reads_the_figures_of_every_worker_of_compose(promtool: str) -> None:
    path = DEPLOY / "prometheus" / "prometheus.yml"
    done = subprocess.run([promtool, "check", "config", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (job,) = yaml.safe_load(path.read_text(encoding="utf-8"))["scrape_configs"]
    (static,), (found,) = job["static_configs"], job["dns_sd_configs"]
    assert static["targets"] == [f"metrics:{SERVICES['metrics']['command'][-1]}"]
    workers = {name for name, command in service_commands().items() if queues_of(command) is not None}
    assert set(found["names"]) == workers
    for name in workers:
        environment = SERVICES[name]["environment"]
        assert (environment["ACTS_METRICS_HOST"], environment["ACTS_METRICS_PORT"]) == ("0.0.0.0", str(found["port"]))
    for name in (*workers, "metrics"):
        assert set(SERVICES[name]["networks"]) & set(SERVICES["prometheus"]["networks"])


@pytest.mark.nightly
def test_compose_and_the_dashboard_are_what_their_schemas_say(tmp_path: Path) -> None:
    python = python_with(tmp_path / "reading", "compose-spec==0.2.1", "grafana-foundation-sdk==1769699998!10.1.0")
    used = {name: value for name, value in COMPOSE.items() if not name.startswith("x-")}
    (tmp_path / "compose.json").write_text(interpolated(json.dumps(used), PASSWORDS), encoding="utf-8")
    files = [str(tmp_path / "compose.json"), str(DEPLOY / "grafana" / "acts.json")]
    done = subprocess.run([str(python), "-c", _READ, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# What is not of the specification is refused; what is not of a dashboard is dropped, so it is not there afterwards.
_READ = """
import json, sys
from compose_spec import PyCompose
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

compose, board = (open(name).read() for name in sys.argv[1:])
PyCompose.from_json(compose).validate()

def kept(before, after, place):
    if isinstance(before, dict):
        for name, value in before.items():
            assert name in after, f"{place}/{name}"
            kept(value, after[name], f"{place}/{name}")
    elif isinstance(before, list):
        assert len(before) == len(after), place
        for number, (one, other) in enumerate(zip(before, after)):
            kept(one, other, f"{place}/{number}")
    else:
        assert before == after, place

kept(json.loads(board), json.loads(JSONEncoder().encode(Dashboard.from_json(json.loads(board)))), "")
"""
