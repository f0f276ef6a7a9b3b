"""docs/schedules.md: what a schedule or an event submits twice, or from two places at once, is one run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from acts_celery import Client
from acts_celery.broker_config import EmbeddedServer, GuardedProcess
from tests.environment import without_settings
from tests.worker.backend import settings_for

from .pages import ROOT, run_page

PAGE: Final = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
# What two beats do when it is time: each evaluates the entry and sends its task. The second waits for neither.
BEATS: Final = """
from celery.beat import Scheduler
from shop import app

beats = [Scheduler(app), Scheduler(app)]
sent = [beat.apply_async(beat.schedule["daily-report"], advance=False) for beat in beats]
for task in sent:
    task.get(timeout=90)
"""


def test_the_page_prints_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    run_page(PAGE, tmp_path / "page")


def test_two_beats_that_fire_at_once_make_one_run(tmp_path: Path) -> None:
    for name in ("shop.py", "reports.py", "report.json"):
        (tmp_path / name).write_text(_file(name), encoding="utf-8")
    with EmbeddedServer() as server:
        settings = settings_for(server, model=None, activities=("reports.py",))
        theirs = f"{server.broker_url}?virtual_host=1"  # another database
        # The page's application needs no results; the test waits for them.
        paths = {"SHOP_URL": theirs, "CELERY_RESULT_BACKEND": theirs, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
        environment = {**without_settings(), **settings.to_environment(), **paths}
        command = [sys.executable, "-m", "celery", "-A", "shop", "worker", "--pool", "threads", "--loglevel", "error"]
        process = GuardedProcess(command, env=environment, cwd=tmp_path)
        try:
            subprocess.run([sys.executable, "-c", BEATS], env=environment, cwd=tmp_path, check=True, timeout=120)
        finally:
            process.stop()
        with Client(settings) as client:
            (only,) = client.runs()
            assert re.fullmatch(r"report-\d{4}-\d\d-\d\d", only.run)


def test_the_timer_of_the_page_is_one(systemd_analyze: str, tmp_path: Path) -> None:
    for name in ("acts-report.service", "acts-report.timer"):
        (tmp_path / name).write_text(_file(name), encoding="utf-8")
    environment = {**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"}
    command = [systemd_analyze, "verify", "acts-report.service", "acts-report.timer"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def _file(name: str) -> str:
    found = re.search(rf"^```\w+ {re.escape(name)}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]
