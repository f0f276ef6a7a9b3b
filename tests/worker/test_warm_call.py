"""The way of one call, from `submit` to its result, stays short: counted in modules whose functions run."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from acts_celery.broker_config import EmbeddedServer

from .backend import FIXTURES, ROOT, Backend, Meeting, settings_apart
from .fixtures import recorded_call

MOST_MODULES: Final = 95
ROUNDS: Final = 5
"""Calls that are recorded; the smallest count holds, since a worker's periodic work may run beside a call."""
PACKAGES: Final = ("protocol", "worker", "broker_config", "acts_celery")


def of_the_product(files: Iterable[str]) -> set[str]:
    found = {Path(name).resolve() for name in files if name.startswith("/")}
    inside = {path.relative_to(ROOT).as_posix() for path in found if path.is_relative_to(ROOT)}
    return {path for path in inside if path.partition("/")[0] in PACKAGES}


def test_a_warm_call_runs_functions_of_few_modules(server: EmbeddedServer, meeting: Meeting, tmp_path: Path) -> None:
    activities = (str(FIXTURES / "recorded_call.py"),)
    idle = Backend(settings_apart(server, "warm", activities=activities), meeting, tmp_path)

    def call(tool: str, **parameters: Any) -> Any:
        done = idle.run([{"_tool": tool, **parameters, "_outputPath": "†state.result"}])
        return done.data()["state"]["result"]

    def modules() -> set[str]:
        """Record one call of a warm client and worker."""
        call("forget_modules")
        recorded_call.RUNNING.clear()
        recorded_call.install()
        try:
            assert call("double", n=21) == 42
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        here, there = of_the_product(recorded_call.RUNNING.copy()), of_the_product(call("take_modules"))
        assert "worker/client/client.py" in here
        assert "worker/runner/lane_runner.py" in there
        return here | there

    with idle.worker():
        assert call("double", n=1) == 2
        found = min((modules() for _ in range(ROUNDS)), key=len)
    assert len(found) <= MOST_MODULES, sorted(found)
