"""A reader finds the module of a rule in the package's own words."""

from __future__ import annotations

import re
from pathlib import Path

import protocol


def test_the_core_names_each_of_its_modules_and_no_other() -> None:
    modules = {path.stem for path in Path(protocol.__file__).parent.glob("*.py")} - {"__init__"}
    named = set(re.findall(r"`([a-z]+)`", protocol.__doc__ or ""))
    assert named == modules
