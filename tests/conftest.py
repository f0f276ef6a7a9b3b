"""What holds for every test: inherited signals, the number of examples, and the order in which modules begin.

`HYPOTHESIS_PROFILE=nightly` (as `make nightly` sets it) tries thousands of examples; the default, `ci`, up to 25.
"""

from __future__ import annotations

import os
import pkgutil
import shutil
import signal
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from acts_celery import protocol, worker
from tests import slow
from tests.environment import remove_settings
from tests.servers import MODULES

# Started in the background, the tests inherit ignored signals and would hand them down to the commands they start,
# which then could not be interrupted.
for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)

# Who has followed the README has exported some: to tests, and to all that they start, they mean nothing.
remove_settings()

# Hypothesis also draws constants that it finds in the loaded modules of this project. A module that is loaded during a
# test would change what the next example is drawn from, and Hypothesis would call that test flaky.
for _package in (protocol, worker):
    for _module in pkgutil.walk_packages(_package.__path__, f"{_package.__name__}."):
        import_module(_module.name)

# Before a change lands the same examples are tried each time, so that what is refused is due to it; `make nightly`
# looks for new ones. Laws take three times these numbers (see `tests/protocol/laws.py`), some hostile inputs a few.
_UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
settings.register_profile("ci", _UNHURRIED, max_examples=5, derandomize=True)
settings.register_profile("nightly", _UNHURRIED, max_examples=1_500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

_TESTS = Path(__file__).parent
_LONGEST_FIRST = ("docs", "security", "mcp", "chaos", "worker", "acceptance", "deploy", "mcp_server", "ui", "nestful")
"""Folders whose modules take long. Begun last, one of them would leave the other processes without work."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs on each server, what needs a tool of Debian's and what is slow. Put the long folders first;
    modules keep their order within a folder.
    """
    slow_names = slow.names()
    for item in items:
        is_slow = item.nodeid.partition("[")[0] in slow_names
        if is_slow:
            item.add_marker("slow")
        # Of what is slow, only the workers' own tests are repeated on each server; `make nightly` repeats all.
        is_listed = item.path.relative_to(_TESTS).with_suffix("").as_posix() in MODULES
        if is_listed and (not is_slow or item.path.parent.name == "worker"):
            item.add_marker("each_server")
        if {"promtool", "systemd_analyze"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("tool")
    ranks = {name: rank for rank, name in enumerate(_LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path.parent.name, len(ranks)))


@pytest.fixture(scope="session")
def promtool() -> str:
    """Prometheus' own checks of figures, rules and their tests; Debian has it in the package `prometheus`."""
    return _tool("promtool", "prometheus")


@pytest.fixture(scope="session")
def systemd_analyze() -> str:
    """systemd's own checks of units."""
    return _tool("systemd-analyze", "systemd")


def _tool(name: str, package: str) -> str:
    program = shutil.which(name)
    if program is None and os.environ.get("TOOLS") == "required":
        raise AssertionError(f"there is no {name}: apt install {package}")
    if program is None:
        pytest.skip(f"there is no {name}: apt install {package}")
    return program
