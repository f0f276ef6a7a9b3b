"""Start everything with one command: ``python deploy/up.py``; with arguments, speak to what is running.

The topology itself is ``supervisord.conf`` beside this file. supervisord reads environment variables, has no
defaults for them, makes no directories and takes an empty password for a password. This file adds just that, reads
``.env`` beside it for what is not set (see ``passwords.py``), then becomes ``supervisord`` - or, for ``python
deploy/up.py status`` and the like, ``supervisorctl``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from dotenv import dotenv_values

CONFIGURATION = Path(__file__).with_name("supervisord.conf")
SECRETS = Path(__file__).with_name(".env")


class Variable(NamedTuple):
    """An environment variable of ``supervisord.conf``: its default, if it has one, and what it may be."""

    default: str | None
    pattern: str
    meaning: str


PORT = r"[1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5]"
WORD = r"[A-Za-z0-9._~-]+"  # goes into a URL and into supervisord's own quoting as it is
PASSWORD = Variable(None, WORD, "letters, digits and . _ ~ -")

VARIABLES = {
    "DEPLOY_DIRECTORY": Variable("var/acts", r'[^\s"%]+', "a path without blanks, quotes and percent signs"),
    "REDIS_PORT": Variable("6399", PORT, "a port number"),
    "REDIS_USERS": Variable(
        str(Path(__file__).parent / "redis" / "users.acl"),
        r'[^\s"%]+',
        "a path without blanks, quotes and percent signs",
    ),
    "REDIS_MEMORY": Variable("1gb", r"[1-9]\d*[kmg]b", "a size such as 1gb"),
    "REDIS_PASSWORD_INSTANCES": PASSWORD,
    "REDIS_PASSWORD_DELEGATES": PASSWORD,
    "REDIS_PASSWORD_BACKGROUND": PASSWORD,
    "REDIS_PASSWORD_CLIENTS": PASSWORD,
    "REDIS_PASSWORD_FLOWER": PASSWORD,
    "REDIS_PASSWORD_METRICS": PASSWORD,
    "FLOWER_PORT": Variable("5555", PORT, "a port number"),
    "FLOWER_USER": Variable("acts", WORD, "letters, digits and . _ ~ -"),
    "FLOWER_PASSWORD": PASSWORD,
    "UI_PORT": Variable("5556", PORT, "a port number"),
    "INSTANCE_WORKERS": Variable("2", r"[1-9]\d?", "a number from 1 to 99"),
}
SOCKET_PATH_BYTES = 103
"""What fits into the address of a unix socket on every system."""


def main(arguments: list[str]) -> None:
    """Become supervisord, or supervisorctl where there are arguments; exit with 2 if a variable is wrong."""
    given = {**dotenv_values(SECRETS), **os.environ}
    values = {name: given.get(name) or variable.default for name, variable in VARIABLES.items()}
    directory = Path(str(values["DEPLOY_DIRECTORY"])).absolute()
    values["DEPLOY_DIRECTORY"] = str(directory)
    if problems := problems_of(values):
        print(*(f"deploy/up.py: {problem}" for problem in problems), sep="\n", file=sys.stderr)
        raise SystemExit(2)
    is_new = not directory.exists()
    for part in (directory, directory / "redis", directory / "logs"):
        part.mkdir(mode=0o700, parents=True, exist_ok=True)
    if is_new:  # data and logs are in nobody's commit
        (directory / ".gitignore").write_text("*\n", encoding="utf-8")
    module = "supervisor.supervisorctl" if arguments else "supervisor.supervisord"
    command = [sys.executable, "-m", module, "-c", str(CONFIGURATION), *(arguments or ["-n"])]
    os.execve(sys.executable, command, environment_with(values))


def problems_of(values: Mapping[str, str | None]) -> list[str]:
    """Say what is missing or cannot be used, and what it may be."""
    problems = []
    for name, variable in VARIABLES.items():
        value = values[name]
        if value is None:
            problems.append(f"set {name} ({variable.meaning}), or run deploy/passwords.py; there is no default for it")
        elif not re.fullmatch(variable.pattern, value):
            problems.append(f"{name} must be {variable.meaning}")
    socket = f"{values['DEPLOY_DIRECTORY']}/supervisor.sock"
    if len(os.fsencode(socket)) > SOCKET_PATH_BYTES:
        problems.append(f"DEPLOY_DIRECTORY is too long: {socket} cannot be the address of a socket")
    return problems


def environment_with(values: Mapping[str, str | None]) -> dict[str, str]:
    """The environment, the defaults filled in, and this interpreter's ``python`` before any other."""
    path = os.pathsep.join(filter(None, (str(Path(sys.executable).parent), os.environ.get("PATH"))))
    return {**os.environ, **{name: str(value) for name, value in values.items()}, "PATH": path}


if __name__ == "__main__":
    main(sys.argv[1:])
