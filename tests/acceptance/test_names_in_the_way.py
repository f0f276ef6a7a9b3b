"""Our package in somebody else's project: none of their files is in its way, and it is in the way of none of theirs.

The project has a `worker.py`, `protocol.py`, `broker_config.py` and `tests/`, and an environment of its own that holds
our wheel: `acts`, Celery, pytest and mypy are started in it as a user starts them.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from acts_celery.broker_config import EmbeddedServer
from tests.environment import without_settings

from .command import ROOT

pytestmark = pytest.mark.nightly

NAMES = ("worker", "protocol", "broker_config")
FILES = {
    **{f"{name}.py": f"NAME = {name!r}\n" for name in NAMES},
    "tests/__init__.py": "",
    "tests/test_theirs.py": (
        "import broker_config\nimport protocol\nimport tests\nimport worker\n\n\n"
        "def test_theirs() -> None:\n"
        "    assert [worker.NAME, protocol.NAME, broker_config.NAME] == ['worker', 'protocol', 'broker_config']\n"
        "    assert tests.__file__ == __file__.replace('test_theirs', '__init__')\n"
    ),
    "tests/test_ours.py": (
        "import mine  # noqa: F401\nfrom acts_celery import Client\n\n\n"
        "def test_acts(acts: Client) -> None:\n"
        "    calls = [{'_tool': 'greet', 'name': 'Ada', '_outputPath': '†state.a'}]\n"
        "    data = acts.submit(solution={'calls': calls}).wait(timeout_seconds=60).data()\n"
        "    assert data == {'state': {'a': 'worker Ada'}}\n"
    ),
    "mine.py": (
        "from acts_celery import AsyncClient, Client, Output, activity, local\n"
        "from acts_celery.protocol import Context, check\n"
        "from worker import NAME\n\n\n"
        "@activity\n"
        "def greet(name: str) -> str:\n"
        "    return f'{NAME} {name}'\n\n\n"
        "def submitted(client: Client) -> str:\n"
        "    check(Context([]), {'calls': []})\n"
        "    return client.submit(solution={'calls': []}).id\n\n\n"
        "async def ordered(client: AsyncClient) -> bool:\n"
        "    run = await client.submit('Hi', schema=int, tools=[greet], config={'ticks': 2}, name='a')\n"
        "    return (await run.wait(timeout_seconds=9)).status == 'completed'\n"
    ),
    "wrong.py": (
        "from acts_celery import Client\n\nrun = Client().submit(solution={'calls': []})\nnumber: int = run.id\n"
        "is_done = run.wait().status == 'complete'\n"
    ),
    "typed.py": (
        "from typing import Any, assert_type\n\n"
        "from pydantic import BaseModel\n\n"
        "from acts_celery import AsyncClient, AsyncRun, Client, Result, Run\n\n\n"
        "class Invoice(BaseModel):\n    total: int\n\n\n"
        "def submitted(client: Client, schema: dict[str, Any]) -> Run:\n"
        "    run = client.submit(['Order tea.'], schema=Invoice, tools=['order'], name='tea')\n"
        "    assert_type(run, Run[Invoice])\n"
        "    assert_type(run.wait(), Result[Invoice])\n"
        "    assert_type(run.result().output, Invoice)\n"
        "    assert_type(client.submit_document({}, schema=list[Invoice]).wait().output, list[Invoice])\n"
        "    assert_type(client.run('a').result().output_as(Invoice), Invoice)\n"
        "    assert_type(client.submit(schema=schema).wait().output, Any)\n"
        "    return run\n\n\n"
        "async def awaited(client: AsyncClient) -> None:\n"
        "    run = await client.submit('Order tea.', schema=Invoice, config={'ticks': 2})\n"
        "    assert_type(run, AsyncRun[Invoice])\n"
        "    assert_type(await run.wait(timeout_seconds=9), Result[Invoice])\n"
        "    assert_type((await run.result()).output, Invoice)\n"
        "    assert_type((await client.submit_document({}, schema=int)), AsyncRun[int])\n"
        "    assert_type((await client.submit(solution={'calls': []})), AsyncRun[Any])\n"
    ),
    "plan.json": '{"solution": {"calls": [{"_tool": "greet", "name": "Ada", "_outputPath": "†state.a"}]}}',
}


class Project:
    """A folder with files of their own, and the programs of an environment that holds our wheel."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self._programs = programs
        inherited = {name: value for name, value in without_settings().items() if not name.startswith("PYTHON")}
        self.environment = {**inherited, "ACTS_ACTIVITIES": "mine.py", "LANG": "C.UTF-8", "NO_COLOR": "1"}

    def command(self, program: str, *arguments: str) -> list[str]:
        """A program of the environment."""
        return [str(self._programs / program), *arguments]

    def run(self, program: str, *arguments: str) -> str:
        """What a program prints that ends well, in the folder."""
        done = subprocess.run(
            self.command(program, *arguments), cwd=self.folder, env=self.environment, capture_output=True, text=True,
            check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout


def environment_with(wheel: Path, folder: Path, *options: str) -> Path:
    """A new environment with our wheel, installed with options of pip; returns where its programs are."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    programs = folder / "bin"
    install = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install", "-qq", *options]
    subprocess.run([*install, str(wheel)], check=True)
    return programs


def show_libraries(environment: Path) -> None:
    """Let the environment see the libraries that are installed here, but not our source."""
    (packages,) = (environment / "lib").glob("python*/site-packages")
    # A folder that a `.pth` names is searched, and the `.pth` of our editable installation in it is not read.
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")


def project_in(folder: Path, programs: Path) -> Project:
    """Their project, its files written."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return Project(folder, programs)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our wheel, made from a copy of the source as it is handed out."""
    source = tmp_path_factory.mktemp("source")
    for name in ("acts_celery", *NAMES):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    target = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "-w", str(target), str(source)], check=True
    )
    (made,) = target.iterdir()
    return made


@pytest.fixture(scope="module")
def project(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Their project, beside which our wheel is installed."""
    environment = tmp_path_factory.mktemp("environment")
    programs = environment_with(wheel, environment, "--no-deps")
    show_libraries(environment)
    return project_in(tmp_path_factory.mktemp("theirs"), programs)


@pytest.fixture
def worker_settings(project: Project) -> Iterator[dict[str, str]]:
    """The environment of a worker with a server of its own."""
    with EmbeddedServer() as server:
        yield {
            **project.environment,
            "ACTS_BROKER_URL": server.broker_url,
            "ACTS_REDIS_URL": server.redis_url,
        }


def test_what_is_imported_is_the_wheel_and_no_folder_of_ours(project: Project) -> None:
    code = "import acts_celery, acts_celery.protocol as core; print(acts_celery.__file__, core.__file__)"
    for place in project.run("python", "-P", "-c", code).split():
        assert "site-packages/acts_celery/" in place
        assert not place.startswith(str(ROOT))


def test_a_run_of_their_activities(project: Project) -> None:
    assert json.loads(project.run("acts", "run", "plan.json", "--json"))["global"] == {"state": {"a": "worker Ada"}}


def test_their_tests(project: Project) -> None:
    assert "2 passed" in project.run("python", "-m", "pytest")


def test_mypy_in_strict_mode_knows_our_types(project: Project) -> None:
    project.run("python", "-m", "mypy", "--strict", "mine.py", "typed.py")
    wrong = project.command("python", "-m", "mypy", "--strict", "wrong.py")
    done = subprocess.run(
        wrong, cwd=project.folder, env=project.environment, capture_output=True, text=True, check=False
    )
    assert 'has type "str", variable has type "int"' in done.stdout, done
    assert "wrong.py:5: error: Non-overlapping equality check" in done.stdout, done


@pytest.mark.parametrize(
    "command", [("acts", "worker", "--processes", "1"), ("python", "-m", "celery", "-A", "acts_celery", "worker")]
)
def test_workers(project: Project, worker_settings: dict[str, str], command: tuple[str, ...]) -> None:
    program, *arguments = command
    with subprocess.Popen(
        project.command(program, *arguments), cwd=project.folder, env=worker_settings, stderr=subprocess.DEVNULL
    ) as worker:
        submitted = subprocess.run(
            project.command("acts", "submit", "plan.json", "--json"), cwd=project.folder, env=worker_settings,
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        run = json.loads(submitted.stdout)["run"]
        wait = project.command("acts", "wait", run, "--timeout", "60")
        done = subprocess.run(
            wait, cwd=project.folder, env=worker_settings, capture_output=True, text=True, check=False
        )
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    assert done.returncode == 0, done


@pytest.mark.nightly
def test_in_an_empty_environment_the_wheel_brings_all_that_it_needs(wheel: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    project = project_in(theirs, environment_with(wheel, tmp_path / "environment"))
    assert json.loads(project.run("acts", "run", "plan.json", "--json"))["global"] == {"state": {"a": "worker Ada"}}
    project.environment["ACTS_BROKER_URL"] = "redis://localhost:6379/0"
    assert "acts_celery" in project.run("celery", "-A", "acts_celery", "report")


CLIENT = """
import sys
from acts_celery import Client

with Client(broker=sys.argv[1], redis=sys.argv[1]) as client:
    run = client.submit({"calls": [{"_tool": "greet", "name": "Ada", "_outputPath": "†state.a"}]})
    print(run.result(timeout_seconds=60).value("†state.a"), len([*run.follow()]))
"""


@pytest.mark.parametrize("versions", [("5.5.3", "5.2.1"), ("5.5.3", "6.4.0"), ("5.6.3", "7.4.1"), ("5.7.0", "8.1.0")])
def test_a_client_works_beside_other_versions(
    wheel: Path, project: Project, worker_settings: dict[str, str], tmp_path: Path, versions: tuple[str, str]
) -> None:
    celery, redis = versions
    programs = environment_with(wheel, tmp_path / "environment", f"celery=={celery}", f"redis=={redis}")
    command = project.command("acts", "worker", "--processes", "1", "--json")
    with subprocess.Popen(command, cwd=project.folder, env=worker_settings, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline()
        theirs = {name: value for name, value in worker_settings.items() if name != "ACTS_ACTIVITIES"}
        done = subprocess.run(
            [str(programs / "python"), "-c", CLIENT, worker_settings["ACTS_BROKER_URL"]],
            cwd=tmp_path, env=theirs, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        worker.terminate()
    assert done.stdout.startswith("worker Ada "), done.stderr
    if celery == "5.5.3":
        started = subprocess.run(
            [str(programs / "acts"), "worker"],
            cwd=tmp_path, env=theirs, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert "workers need kombu 5.7" in started.stderr
        assert started.returncode != 0
