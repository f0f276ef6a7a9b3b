"""docs/schedules.md: what a schedule or an event submits twice, or from two places at once, is one run."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from celery import Celery
from celery.schedules import crontab

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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The page's files, in a folder with a space in its name."""
    folder = tmp_path / "my reports"
    folder.mkdir()
    for name in ("reports.py", "report.json"):
        (folder / name).write_text(_file(name), encoding="utf-8")
    (folder / "cron.env").touch()
    return folder


def printed(folder: Path, *arguments: str, code: int = 0) -> Any:
    """The document that `acts submit` prints in the folder, or its message where it refuses."""
    command = [sys.executable, "-m", "acts_celery", "submit", "report.json", "--env-file", "cron.env", "--json"]
    given = ("--activities", "reports.py", "--input", 'day=50%, it\'s "5 $" \\', *arguments)
    environment = {**without_settings(), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*command, *given], env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)["files"] if code == 0 else done.stderr


def test_what_every_prints_submits_each_occasion_once(systemd_analyze: str, folder: Path) -> None:
    units = printed(folder, "--every", "*/20 8-18 * * mon-fri", "--id", "daily")
    for name, text in units.items():
        (folder / name).write_text(text, encoding="utf-8")
    verified = subprocess.run(
        [systemd_analyze, "verify", *units],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{folder}:"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (verified.returncode, verified.stderr) == (0, "")
    assert (
        "\nOnCalendar=Mon,Tue,Wed,Thu,Fri *-*-* 08,09,10,11,12,13,14,15,16,17,18:00,20,40:00 UTC\n"
        in (units["acts-daily.timer"])
    )
    (line,) = re.findall("^ExecStart=(.*)$", units["acts-daily.service"], re.MULTILINE)
    of_day = printed(folder, "--every", "1d", "--for", "cron")["crontab"]
    assert of_day.startswith("0 0 * * *  cd ")
    (of_beat,) = printed(folder, "--every", "1h", "--for", "beat", "--id", "hourly").values()
    with EmbeddedServer() as server:
        settings = settings_for(server, model=None, activities=())
        environment = {**without_settings(), **settings.to_environment(), "PYTHONPATH": str(ROOT)}
        by_systemd = shlex.split(line.replace("%%", "%").replace("$$", "$"))
        by_cron = ["sh", "-c", of_day.partition("  ")[2].replace("\\%", "%")]
        for command in (by_systemd, by_cron) * 2:
            subprocess.run(command, env=environment, cwd=folder, check=True, timeout=120)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            app = Celery("shop")
            exec(compile(of_beat, "every_hourly.py", "exec"), {"app": app})
            entry = app.conf.beat_schedule["acts-hourly"]
            assert entry["schedule"] == crontab(minute="0", hour="*/1")
            for _ in range(2):
                app.tasks[entry["task"]].apply([each() for each in entry["args"]], throw=True)
        with Client(settings) as client:
            ids = {re.sub(r"\d", "0", one.run) for one in client.runs()}  # a minute may end between two of them
            assert sorted(ids) == [
                "daily-0000-00-00T0000",
                "hourly-0000-00-00T00",
                "report-0000-00-00",
            ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--every", "90m"], "90m divides no hour, day or week"),
        (["--every", "0 6 1 * mon"], "make two schedules"),
        (["--every", "61 * * * *"], "'61' is no minute"),
        (["--every", "5/15 * * * *"], "'5/15' is no minute"),
        (["--every", "1d", "--broker", "redis://:secret@host"], "have addresses in an --env-file"),
        (["--every", "1d", "--state-of", "latest"], "will expire"),
        (["--every", "1d", "--id", "./daily"], "cannot be the id of a run"),
        (["--every", "1d", "--tag", "a\nb"], "a line break"),
        (["--every", "1d", "--allow", "nothing"], "/solution/calls/0"),
    ],
)
def test_what_no_schedule_could_submit_is_refused(arguments: list[str], said: str, folder: Path) -> None:
    assert said in printed(folder, *arguments, code=2)


def _file(name: str) -> str:
    found = re.search(rf"^```\w+ {re.escape(name)}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]
