"""What a command loads before it begins: starting is fast where nothing is loaded that it does not use."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import acts_celery

ROOT = Path(__file__).parents[2]
SUBMISSION = {
    "solution": {"calls": [{"_tool": "hold", "_outputPath": "†state.held"}]},
    "tools": {"hold": {"type": "object", "properties": {"_activity": {"const": "hold"}}}},
}
ACTIVITIES = "from acts_celery import activity\n\n\n@activity\ndef hold() -> int:\n    return 1\n"

OF_A_RUN = {
    "click",
    "redis",
    "hiredis",
    "packaging",
    "celery",
    "kombu",
    "amqp",
    "billiard",
    "vine",
    "dateutil",
    "tzlocal",
}
OF_A_RUN |= {"pydantic", "pydantic_core", "pydantic_settings", "annotated_types", "dotenv", "typing_extensions"}
OF_A_RUN |= {"typing_inspection", "jsonschema_rs", "msgpack", "docstring_parser"}
OF_OTHER_LIBRARIES = {
    "_distutils_hack",
    "cffi",
    "cryptography",
    "django",
    "greenlet",
    "opentelemetry",
    "six",
    "xxhash",
    "yaml",
}
"""What those load where it is installed: Celery, kombu and redis-py look for them."""


def loaded_by(*arguments: str) -> set[str]:
    """The top-level packages that a command has loaded when it ends."""
    code = (
        "import sys; from acts_celery.worker.cli import main; code = main(sys.argv[1:]); "
        "print(*sys.modules, file=sys.stderr); sys.exit(code)"
    )
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return packages(done.stderr)


def packages(modules: str) -> set[str]:
    """The top-level packages of modules; ours by the folder they are in."""
    return {name.removeprefix("acts_celery.").partition(".")[0] for name in modules.split()}


def test_help_loads_no_library_but_the_one_that_prints_it() -> None:
    loaded = loaded_by("--help")
    assert "click" in loaded
    assert loaded & {"protocol", "broker_config", "pydantic", "redis", "kombu", "celery", "rich"} == set()


def test_the_help_of_the_pages_takes_neither_their_server_nor_their_extra() -> None:
    assert loaded_by("ui", "--help") & {"protocol", "redis", "fastapi", "starlette", "uvicorn"} == set()


def test_what_supervises_workers_loads_no_library_of_theirs() -> None:
    code = "import sys, acts_celery.worker.cli.worker, acts_celery.__main__; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = packages(done.stdout)
    assert "asyncio" in loaded
    assert loaded & {"protocol", "broker_config", "pydantic", "redis", "kombu", "celery", "rich"} == set()


def test_checking_loads_neither_celery_nor_redis(tmp_path: Path) -> None:
    (tmp_path / "submission.json").write_text(json.dumps(SUBMISSION))
    (tmp_path / "activities.py").write_text(ACTIVITIES)
    loaded = loaded_by("check", str(tmp_path / "submission.json"), "--activities", str(tmp_path / "activities.py"))
    assert "protocol" in loaded
    assert loaded & {"redis", "kombu", "celery", "rich"} == set()


def test_the_worker_of_a_run_starts_before_its_command_loads_libraries() -> None:
    code = "import sys, acts_celery.worker.embedded_worker; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = packages(done.stdout)
    assert "pydantic" in loaded, "the settings are loaded"
    assert loaded & {"protocol", "redis", "kombu", "celery", "rich"} == set()


def test_a_run_loads_these_libraries_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "submission.json").write_text(json.dumps(SUBMISSION))
    (tmp_path / "activities.py").write_text(ACTIVITIES)
    loaded = loaded_by("run", str(tmp_path / "submission.json"), "--activities", str(tmp_path / "activities.py"))
    libraries = loaded & packages_distributions().keys()
    assert {"click", "redis", "kombu"} <= libraries
    assert libraries - OF_A_RUN - OF_OTHER_LIBRARIES == set()


def test_only_what_exports_traces_and_what_looks_for_a_span_imports_open_telemetry() -> None:
    importing = re.compile(r"^\s*(?:from|import) opentelemetry", re.MULTILINE)
    sources = [path for folder in ("worker", "protocol", "broker_config") for path in (ROOT / folder).rglob("*.py")]
    found = {path.name for path in sources if importing.search(path.read_text(encoding="utf-8"))}
    assert found == {"sending.py", "attempts.py"}


def test_a_worker_loads_nothing_that_comes_with_an_extra_and_is_not_asked_for() -> None:
    code = "import sys; from acts_celery.celery import app; app.log.setup(loglevel='INFO'); print(*sys.modules)"
    env = {**os.environ, "ACTS_BROKER_URL": "redis://127.0.0.1:1/0", "ACTS_LOG_FORMAT": "json"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert packages(done.stdout) & {"structlog", "httpx", "imagesize", "openai", "anthropic", "mcp"} == set()


def test_names_that_are_loaded_when_asked_for_are_those_that_type_checkers_see() -> None:
    tree = ast.parse(Path(acts_celery.__file__).read_text(encoding="utf-8"))
    shown = next(node.body for node in tree.body if isinstance(node, ast.If))
    homes = {
        name.name: f"acts_celery.{node.module}" if node.level else node.module
        for node in shown
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    assert homes == acts_celery._HOMES
    assert all(getattr(acts_celery, name) is not None for name in acts_celery.__all__)
