"""Alert rules and dashboard: of figures that exist, each alert tried, each remedy a command that there is. A tool that
became slow raises the alert that names it, with a real Prometheus.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.cli import acts
from acts_celery.worker.telemetry.metrics import LogMetrics, QueueMetrics, log_metrics, queue_metrics
from acts_celery.worker.telemetry.process_metrics import ProcessMetrics
from tests.worker.backend import ROOT, Backend, Meeting, ended, meeting_url, settings_for
from tests.worker.figures import free_port, metrics_command

PROMETHEUS = ROOT / "deploy" / "prometheus"
DASHBOARD = ROOT / "deploy" / "grafana" / "acts.json"
RULES = yaml.safe_load((PROMETHEUS / "rules.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RECORDED = {rule["record"] for rule in RULES if "record" in rule}
NAME = re.compile(r"\b(?:acts|process)(?:_[a-z0-9]+)+\b|\bacts(?::[a-z0-9_]+)+")
SHAPES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def shown() -> set[str]:
    """The names of all series that the two pages have."""
    registry = CollectorRegistry()
    ProcessMetrics(registry, ())
    families: list[Metric] = [*registry.collect()]
    families += log_metrics(LogMetrics(Counter(), 0, 0, 0))
    families += queue_metrics({"q": QueueMetrics(0, 0.0)})
    named = {f"{family.name}{suffix}" for family in families for suffix in SHAPES[family.type]}
    return named | {"acts_log_up", "acts_broker_up", "acts_collection_seconds"}


def expressions() -> Iterator[str]:
    """All that is asked of Prometheus in rules and dashboard."""
    yield from (rule["expr"] for rule in RULES)
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    yield from (target["expr"] for panel in board["panels"] for target in panel.get("targets", ()))
    yield from (one["query"]["query"] for one in board["templating"]["list"] if one["type"] == "query")


def test_every_figure_in_rules_and_dashboard_exists() -> None:
    asked = {name for one in expressions() for name in NAME.findall(one)}
    assert len(asked) > 30
    assert asked - shown() - RECORDED == set()


def test_every_figure_that_is_shown_is_explained() -> None:
    page = (ROOT / "docs" / "observe.md").read_text(encoding="utf-8")
    unexplained = {
        name
        for name in shown()
        if not name.startswith("process_") and f"`{re.sub('_(bucket|sum|count)$', '', name)}" not in page
    }
    assert unexplained == set()


@pytest.mark.parametrize("alert", ALERTS.values(), ids=ALERTS)
def test_the_remedy_of_an_alert_names_commands_that_there_are(alert: dict[str, Any]) -> None:
    commands = re.findall(r"`acts ([a-z]+)", alert["annotations"]["remedy"])
    assert commands
    assert set(commands) <= set(acts.commands)
    assert alert["annotations"]["summary"]


def test_every_alert_is_tried() -> None:
    tried = yaml.safe_load((PROMETHEUS / "rules.test.yml").read_text(encoding="utf-8"))["tests"]
    raised = {one["alertname"] for test in tried for one in test.get("alert_rule_test", ()) if one["exp_alerts"]}
    assert raised == set(ALERTS)


def test_the_rules_are_right_and_raise_what_they_should(promtool: str) -> None:
    for command in (("check", "rules", "rules.yml"), ("test", "rules", "rules.test.yml")):
        done = subprocess.run([promtool, *command], cwd=PROMETHEUS, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_asks_what_prometheus_understands(promtool: str, tmp_path: Path) -> None:
    plain = [
        one.replace("$__rate_interval", "5m").replace("$tool", ".*")
        for one in expressions()
        if "label_values" not in one
    ]
    rules = [{"record": f"asked:{number}", "expr": one} for number, one in enumerate(plain)]
    (tmp_path / "asked.yml").write_text(yaml.safe_dump({"groups": [{"name": "asked", "rules": rules}]}))
    command = [promtool, "check", "rules", "--lint=none", str(tmp_path / "asked.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


SECONDS_A_MINUTE = 1
"""Of the test's time, so that hours of Prometheus pass in minutes."""
ACTIVITIES = """
import asyncio, os
from pathlib import Path
from acts_celery import activity

@activity
async def lookup(number: int) -> int:
    await asyncio.sleep(2 if Path(os.environ["SLOW"]).exists() else 0.02)
    return number

@activity
async def other(number: int) -> int:
    return number
"""


def hurried(text: str) -> str:
    """Rules in which a minute is a second."""

    def shorter(found: re.Match[str]) -> str:
        minutes = int(found[1]) * {"m": 1, "h": 60}[found[2]]
        return f"{minutes * SECONDS_A_MINUTE}s"

    return re.sub(r"\b(\d+)([mh])\b", shorter, text)


@contextmanager
def prometheus(folder: Path, *pages: str) -> Iterator[str]:
    """A server that reads these pages every second: its address."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("there is no prometheus: apt install prometheus")
    (folder / "rules.yml").write_text(hurried((PROMETHEUS / "rules.yml").read_text(encoding="utf-8")))
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    jobs = [{"job_name": "acts", "static_configs": [{"targets": [page.split("/")[2] for page in pages]}]}]
    configuration = {"global": every, "rule_files": ["rules.yml"], "scrape_configs": jobs}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    address = f"127.0.0.1:{free_port()}"
    options = [f"--web.listen-address={address}", f"--storage.tsdb.path={folder / 'data'}"]
    command = [program, f"--config.file={folder / 'prometheus.yml'}", *options]
    with (folder / "prometheus.log").open("wb") as log, ended(command, {}, folder, log):
        yield f"http://{address}"


def firing(address: str) -> dict[str, str]:
    """The alerts that are raised now, and the tool that each names."""
    try:
        with urllib.request.urlopen(f"{address}/api/v1/alerts", timeout=5) as answer:
            found = json.load(answer)["data"]["alerts"]
    except OSError:  # it begins
        return {}
    return {one["labels"]["alertname"]: one["labels"].get("tool", "") for one in found if one["state"] == "firing"}


@pytest.mark.nightly
def test_a_tool_that_became_slow_raises_the_alert_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(ACTIVITIES)
    slow, port = tmp_path / "slow", free_port()
    with EmbeddedServer() as server:
        settings = settings_for(server, activities=(str(tmp_path / "own.py"),), concurrency=64)
        backend = Backend(settings, Meeting(meeting_url(server)), tmp_path)
        page = f"http://127.0.0.1:{port}/metrics"
        worker = backend.worker("--metrics-port", str(port), SLOW=str(slow))
        with metrics_command(backend) as log, worker, prometheus(tmp_path, page, log) as address:

            def work(seconds: float) -> dict[str, str]:
                """Runs, one after the other, until that time is over or the alert is raised."""
                until = time.monotonic() + seconds
                while time.monotonic() < until:
                    calls = [
                        {"_tool": tool, "number": 1, "_outputPath": f"†state.{tool}"} for tool in ("lookup", "other")
                    ]
                    backend.wait(backend.client.submit([], {"calls": calls}).id)
                    if "ActsToolSlow" in (found := firing(address)):
                        return found
                return {}

            assert work(40) == {}
            slow.touch()
            found = work(120)
    assert found["ActsToolSlow"] == "lookup", found
