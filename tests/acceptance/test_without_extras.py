"""What `pip install .` alone gives: everything but what an extra is asked for, and then a sentence that names it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from acts_celery.broker_config import EmbeddedServer

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
# Python imports this before anything else, in each process that is started.
ABSENT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""


def modules_of_extras() -> set[str]:
    """The packages that come with an extra alone."""
    required = (Requirement(one) for name, extra in EXTRAS.items() if name != "dev" for one in extra)
    named = {one.name.replace("_", "-").lower() for one in required} - {"acts-celery"}
    by_module = packages_distributions().items()
    return {module for module, of in by_module if named & {each.replace("_", "-").lower() for each in of}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    names = modules_of_extras()
    assert {"prometheus_client", "uvicorn", "starlette", "openai", "opentelemetry", "mcp"} <= names
    (tmp_path / "sitecustomize.py").write_text(ABSENT.format(names=names), encoding="utf-8")
    blocks = re.findall(r"```(?:python|json)\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    for name, part in (("shop.py", "# shop.py"), ("hello.json", '"_gather"')):
        (tmp_path / name).write_text(next(block for block in blocks if part in block), encoding="utf-8")
    return tmp_path


def acts(folder: Path, *command: str, broker: str = "") -> tuple[int, str, str]:
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{folder}:{ROOT}", "ACTS_ACTIVITIES": "shop.py"}
    environment |= {"ACTS_BROKER_URL": broker} if broker else {}
    program = [sys.executable, "-m", "acts_celery", *command]
    done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_a_plan_runs(folder: Path) -> None:
    code, out, said = acts(folder, "run", "hello.json", "--json")
    assert code == 0, said
    assert json.loads(out)["global"]["data"] == {"summary": "2 greeted: ann, bob"}


def test_commands_work_or_name_the_extra_that_they_need(folder: Path) -> None:
    with EmbeddedServer() as server:
        code, run, said = acts(folder, "submit", "hello.json", broker=server.broker_url)
        assert code == 0, said
        for command in (["status", run.strip()], ["show", run.strip(), "--html", "run.html"], ["doctor"], ["runs"]):
            _, _, said = acts(folder, *command, broker=server.broker_url)
            assert "bug" not in said, command
        assert (folder / "run.html").stat().st_size
        for command, extra in (
            (["metrics", "--port", "0"], "metrics"),
            (["ui", "--port", "0"], "ui"),
            (["mcp"], "mcp"),
        ):
            code, _, said = acts(folder, *command, broker=server.broker_url)
            assert (code, f"'.[{extra}]'" in said) in ((2, True), (3, True)), said
