"""Running a page of the documentation: its files are written, its commands run, their output held against the page's.

```python NAME      a file, written into the page's folder
```console          lines that begin with `$ ` are run, one shell for the page; those below are what they print.
                    `…` stands for any text; alone on a line, for any lines
<!-- from here: a server and a worker -->             both are started; the shell is told where
<!-- from here: a server, a worker and its API -->    and `acts ui`: $API and $TOKEN lead to it
<!-- from here: the worker is started again -->
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from acts_celery.broker_config import EmbeddedServer
from tests.acceptance import forked_command, forks
from tests.environment import without_settings

ROOT: Final = Path(__file__).parents[2]
_PARTS: Final = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$|^<!-- from here: (.*?) -->$", re.MULTILINE | re.DOTALL)
_SERVER: Final = "a server and a worker"
_API: Final = "a server, a worker and its API"
_AGAIN: Final = "the worker is started again"
_SECONDS: Final = 120
_PYTEST: Final = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "acts_celery.worker.pytest_plugin"}
"""Ours is the plugin that pages need; to load all that are installed here takes two seconds."""
_FORKED_COMMAND: Final = forked_command.__file__


@dataclass(frozen=True)
class Step:
    """One command of a page and what it says it prints; or something that is there from then on."""

    text: str
    expected: str = ""
    is_command: bool = True


def steps(page: str, folder: Path) -> Iterator[Step]:
    """The steps of a page; its files are written on the way."""
    for found in _PARTS.finditer(page):
        language, name, text, event = found.groups()
        if event is not None:
            yield Step(event, is_command=False)
        elif name is not None:
            (folder / name).write_text(text, encoding="utf-8")
        elif language == "console":
            for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
                yield Step(command, expected)


def run_page(page: str, folder: Path, *, is_forked: bool = True) -> None:
    """Run a page in an empty folder. Raises `AssertionError` where it does not print what it says.

    `acts` forks a process that has the command's modules. A page that kills what it starts needs interpreters instead.
    """
    bin_folder = folder.parent / "bin"
    bin_folder.mkdir(exist_ok=True)
    acts = f"-S {_FORKED_COMMAND} {forks.server().fileno()}" if is_forked else "-m acts_celery"
    for name, arguments in (("acts", acts), ("python", "")):
        program = bin_folder / name
        program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} {arguments} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    kept = without_settings()
    environment = {**kept, "PATH": f"{bin_folder}:{os.environ['PATH']}", "LANG": "C.UTF-8", "NO_COLOR": "1"}
    environment |= _PYTEST | {"PYTHONUNBUFFERED": "1"}  # errors between other lines, as at a terminal
    with ExitStack() as servers, ExitStack() as workers, ExitStack() as sites:
        for step in steps(page, folder):
            if step.is_command:
                printed = _run(step.text, environment, folder)
                assert re.fullmatch(_pattern(step.expected), printed), (
                    f"$ {step.text}\nprints\n{printed}\nand not\n{step.expected}"
                )
                continue
            if step.text in (_SERVER, _API):
                server = servers.enter_context(EmbeddedServer())
                environment |= {"ACTS_BROKER_URL": server.broker_url, "ACTS_REDIS_URL": server.redis_url}
            else:
                assert step.text == _AGAIN, step.text
            workers.close()
            worker, log = ["worker", "--processes", "1", "--json"], folder.parent / "worker.log"
            environment_of_worker = environment | {"PYTHONPATH": str(ROOT)}
            workers.enter_context(forks.staying(worker, env=environment_of_worker, folder=folder, log=log))
            if step.text == _API:
                token = "the-token-of-the-page"
                own = environment_of_worker | {"ACTS_UI_TOKENS": f"shop:submit+decide+control:{token}"}
                command, log = ["ui", "--json", "--port", "0"], folder.parent / "ui.log"
                _, told = sites.enter_context(forks.staying(command, env=own, folder=folder, log=log))
                environment |= {"API": told["url"], "TOKEN": token}


def _run(command: str, environment: dict[str, str], folder: Path) -> str:
    """What a command prints. `export` and the exit code stay for the next ones, as in a shell."""
    state = folder.parent / "environment"
    script = f'{command}\ncode=$?\nenv -0 > "{state}"\nexit $code'
    before = environment.get("LAST", "0")
    done = subprocess.run(
        ["sh", "-c", f"(exit {before}); {script}"],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
        check=False,
        pass_fds=[forks.server().fileno()],
    )
    found = dict(line.split("=", 1) for line in state.read_text(encoding="utf-8").split("\0") if "=" in line)
    environment |= {name: value for name, value in found.items() if name.startswith("ACTS_")}
    environment["LAST"] = str(done.returncode)
    return done.stdout


def _pattern(expected: str) -> str:
    """What a page says, as a regular expression."""
    lines = (
        "(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + "\n" for line in expected.splitlines()
    )
    return "".join(lines)
