"""A reader finds the module of a rule in the package's own words."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNLISTED = {"worker", "worker/cli", "broker_config"}
"""Packages whose documentation is about what they offer."""
PACKAGES = [
    str(path.parent.relative_to(ROOT))
    for package in ("protocol", "worker", "broker_config")
    for path in sorted((ROOT / package).rglob("__init__.py"))
]


@pytest.mark.parametrize("package", [name for name in PACKAGES if name not in UNLISTED])
def test_a_package_names_each_of_its_modules_and_no_other(package: str) -> None:
    folder = ROOT / package
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
    modules = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    named = set(re.findall(r"`([a-z_]+)`", text or ""))
    assert named == modules - {"__init__"}
