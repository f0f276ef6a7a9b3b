"""Readers for what `deploy/` holds: the Compose file, the Dockerfile, the programs of supervisord."""

from __future__ import annotations

import configparser
import json
import re
import runpy
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
_PASSWORDS = runpy.run_path(str(DEPLOY / "passwords.py"))
NAMES: tuple[str, ...] = _PASSWORDS["NAMES"]
ROLES: tuple[str, ...] = _PASSWORDS["ROLES"]
SUPERVISED: tuple[str, ...] = tuple(name for name in NAMES if name != "GRAFANA_PASSWORD")
"""The passwords without that of Grafana, which only Compose starts."""


class Instruction(NamedTuple):
    """One instruction of the Dockerfile."""

    name: str
    text: str


def dockerfile() -> list[Instruction]:
    """The instructions in order, continued lines joined."""
    lines = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    joined = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", " ")
    parts = (line.split(maxsplit=1) for line in joined.splitlines() if line.strip())
    return [Instruction(name, text) for name, text in parts]


def instructions(name: str) -> list[str]:
    """What stands behind every instruction of that name."""
    return [instruction.text for instruction in dockerfile() if instruction.name == name]


def image_command() -> list[str]:
    """What a container of the image executes unless told otherwise."""
    return [*json.loads(instructions("ENTRYPOINT")[-1]), *json.loads(instructions("CMD")[-1])]


def programs() -> dict[str, configparser.SectionProxy]:
    """The programs of supervisord by name."""
    parser = configparser.RawConfigParser()
    parser.read(DEPLOY / "supervisord.conf", encoding="utf-8")
    return {name.removeprefix("program:"): parser[name] for name in parser if name.startswith("program:")}


def program_commands() -> dict[str, list[str]]:
    """What supervisord executes, by program."""
    return {name: shlex.split(program["command"]) for name, program in programs().items()}


def service_commands() -> dict[str, list[str]]:
    """What the services of our own image execute, by service."""
    image_entrypoint = json.loads(instructions("ENTRYPOINT")[-1])
    return {
        name: [*service.get("entrypoint", image_entrypoint), *service["command"]]
        for name, service in SERVICES.items()
        if "build" in service
    }


def strings(value: Any) -> Iterator[str]:
    """Every string inside a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def interpolated(text: str, environment: Mapping[str, str]) -> str:
    """A string as Compose understands it: ``${NAME:-default}``, ``${NAME:?message}``, ``$$``.

    Raises KeyError for a required variable that is missing, ValueError for a ``$`` that is none of these.
    """

    def value(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        if found["name"] is None:
            raise ValueError(f"a lone $ in {text!r}")
        given = environment.get(found["name"])
        if not given and found["operator"] == ":?":
            raise KeyError(found["name"])
        return given or found["word"]

    return re.sub(r"\$\$|\$\{(?P<name>[A-Z_]+)(?P<operator>:[-?])(?P<word>[^}]*)\}|\$", value, text)
